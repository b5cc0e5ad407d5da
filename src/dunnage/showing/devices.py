# SPDX-License-Identifier: Apache-2.0
"""What belongs to devices, for a person: policies for them, tasks, reports, tallies, allowances, sealed records."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from dunnage.collecting.files import describe_tallies, read_task_file
from dunnage.collecting.identity import KeyRing, SealedRecord
from dunnage.collecting.tasks import read_carriers, task_of
from dunnage.devices.allowance import Spent
from dunnage.devices.client import check_task, mechanism_of
from dunnage.devices.task import Task
from dunnage.errors import AllowanceError, InputError, SealError
from dunnage.policy import is_for_devices
from dunnage.showing.common import MOST_BYTES, MOST_TABLE_BYTES, Shown, check_size
from dunnage.showing.texts import promise_text, task_text


def predictions(task: Task, devices: int) -> list[str]:
    """Say in a line for each purpose how far estimates of a fleet would be off."""
    hints = []
    for purpose in task.purposes:
        mechanism = mechanism_of(task, purpose)
        if purpose.grid is not None:
            hints.append(f"{purpose.name}: {mechanism.noise_verdict(devices).message}")
            continue
        tier = min(task.slot_tiers(purpose), key=lambda tier: tier.epsilon)
        sds = mechanism.predicted_sd(tier, devices)
        means = (f"{q.name} {2 * sd:.2g} {q.unit}".rstrip() for q, sd in zip(purpose.quantities, sds, strict=True))
        told = f"means are within about {', '.join(means)}"
        hints.append(f"{purpose.name}: {devices:,} vehicles, all of tier {tier.name}: {told}")
    return hints


def is_device_policy(path: Path) -> bool:
    """Tell whether a file is a policy for devices; one that cannot be read is left to others to complain about."""
    try:
        return is_for_devices(tomllib.loads(path.read_text(encoding="utf-8-sig")))
    except (OSError, ValueError, ArithmeticError, RecursionError):
        return False


def shown_device_policy(path: Path, devices: int) -> Shown:
    """Describe a policy for devices: what each mechanism promises, tiers, schedule, predicted errors."""
    policy = read_carriers(path)
    task = task_of(policy)
    promises = {purpose.name: mechanism_of(task, purpose).promise() for purpose in task.purposes}
    statements, hints = check_task(task).statements(), predictions(task, devices)
    schedule, limits = task.schedule, task.limits
    lines = [f"Policy for {policy.dataset}, protecting one {policy.protects}; for devices", "Reported"]
    lines += [f"  {n.name:<20} number [{float(n.low):g}, {float(n.high):g}] {n.unit}".rstrip() for n in policy.numbers]
    lines += [f"  {name:<20} {grid.num_cells:,} cells of a box" for name, grid in policy.grids.items()]
    tiers = {tier.name: tier.epsilon for purpose in task.purposes for tier in purpose.tiers}
    listed = ", ".join(f"{name} (epsilon {float(epsilon):g})" for name, epsilon in tiers.items())
    day = "" if limits.day is None else f", of a day {float(limits.day):g}"
    lines += [
        f"Tiers         {listed}",
        f"Schedule      {schedule.slots_per_day} of {schedule.num_moments} moments a day, drawn before it; a report "
        f"may come {schedule.lateness_minutes} minutes late; a day closes at {schedule.closing} UTC",
        f"Allowance     of a lifetime epsilon {float(limits.lifetime):g}{day}",
    ]
    parts = ["\n".join(lines)]
    parts += [f"Mechanism {name}\n{promise_text(promise)}" for name, promise in promises.items()]
    parts.append("\n".join(["Gives away", *(f"  {text}" for text in statements)]))
    parts.append("\n".join(["Predicted error", *(f"  {text}" for text in hints)]))
    described = {
        "dataset": policy.dataset,
        "digest": policy.digest(),
        "task": task.to_dict(),
        "promises": {name: promise.to_dict() for name, promise in promises.items()},
        "losses": statements,
        "predicted": hints,
    }
    return described, "\n\n".join(parts)


def shown_task(path: Path, devices: int) -> Shown:
    task = read_task_file(path)
    described = {"digest": task.digest, "devices": devices, "task": json.loads(task.to_json())}
    return described, task_text(task, devices)


def _shown_ring(path: Path, devices: int) -> Shown:
    """Say which keys a ring has, never the keys themselves."""
    keys = [
        {"id": key.key_id, "algorithm": key.algorithm, "created": key.created, "state": key.state}
        for key in KeyRing.read(path).keys
    ]
    lines = [f"Key ring    {path} (private; keep a copy: without it nothing opens)"]
    lines += [f"  {key['id']}  {key['algorithm']:<11}  {key['created']}  {key['state']}" for key in keys]
    return {"kind": "key ring", "keys": keys}, "\n".join(lines)


def _shown_sealed(path: Path, devices: int) -> Shown:
    """Count sealed records by the key that opens them; aliases are not listed."""
    check_size(path, MOST_TABLE_BYTES)
    counts: Counter[str] = Counter()
    with path.open("rb") as source:
        for number, line in enumerate(source, 1):
            if line.strip():
                try:
                    counts[SealedRecord.from_json(json.dumps(json.loads(line)["sealed"])).key_id] += 1
                except (ValueError, KeyError, TypeError, RecursionError, SealError):
                    what = f"line {number} is no sealed record, or is cut off. Use a copy."
                    raise InputError(str(path), [what]) from None
    lines = [f"Sealed      {counts.total():,} identity records"]
    lines += [f"  key {key}: {num:,}" for key, num in counts.items()]
    lines.append(f"To open them: dunnage device open {path} --keys RING -o RECORDS.csv")
    return {"kind": "sealed records", "records": counts.total(), "keys": dict(counts)}, "\n".join(lines)


def _shown_allowance(path: Path, devices: int) -> Shown:
    """Say what a vehicle has spent; what it reported stays in the file."""
    check_size(path, MOST_BYTES)
    line, _, checksum = path.read_bytes().partition(b"\n")
    try:
        if checksum != b"sha256 %s\n" % hashlib.sha256(line).hexdigest().encode():
            raise ValueError
        book = json.loads(line)
        spent = {str(name): str(Spent.from_list(item)) for name, item in book["lifetime"].items()}
        tier, task, days = str(book["tier"]), str(book["task"]), len(book["days"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, ArithmeticError):
        raise AllowanceError(f"the allowance {path} is damaged. Use the vehicle's copy, if there is one.") from None
    lines = [
        f"Allowance   {path}, of one vehicle in tier {tier} (private)",
        f"Task        {task}",
        *(f"Spent       {name}: {words}" for name, words in spent.items()),
        f"Open days   {days}",
    ]
    return {"kind": "allowance", "tier": tier, "task": task, "spent": spent, "open_days": days}, "\n".join(lines)


BY_KIND: Mapping[str, Callable[[Path, int], Shown]] = {
    "dunnage tallies": lambda path, devices: describe_tallies(path),
    "dunnage key ring": _shown_ring,
    "dunnage sealed record": _shown_sealed,
    "dunnage allowance": _shown_allowance,
}
"""By the kind that a file names near its beginning."""
