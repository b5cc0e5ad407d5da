# SPDX-License-Identifier: Apache-2.0
"""Text for a person of what promises: a release, a policy, a dry run, a task, a policy for devices."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from dunnage.collecting.estimate import normal_quantile
from dunnage.collecting.tasks import read_carriers, task_of
from dunnage.devices.client import check_task
from dunnage.devices.client import mechanism_of as device_mechanism
from dunnage.devices.task import Purpose as TaskPurpose
from dunnage.devices.task import Task
from dunnage.errors import ReleaseError
from dunnage.exact import decimal_text
from dunnage.model.certificate import Certificate, ProofNote, odds
from dunnage.model.domains import Numeric, domain_from
from dunnage.model.guarantees import Basis, Guarantee, Loss, Promise, WithinCluster
from dunnage.model.policy import Policy
from dunnage.publishing import DryRun, mechanism_of
from dunnage.release import Release
from dunnage.release.kinds.rows import MAX_LINES
from dunnage.text import several

PICTURE_WIDTH = 50
MAX_LABELS_NAMED = 4
_LABEL_WORDS = {"tree": "leaves", "graph": "vertices", "ordinal": "levels", "category": "values"}
_FIRST = ("name", "model", "protects", "k", "epsilon", "delta", "beta", "neighbours")


def titled(title: str) -> str:
    return f"{title}\n{'=' * len(title)}"


def labelled(*pairs: tuple[str, object], width: int = 11) -> list[str]:
    """Write a column of labels with texts beside them, one line each; what is None is left out."""
    return [f"{label:<{width}} {text}" for label, text in pairs if text is not None]


def release_text(release: Release) -> str:
    """Describe a release: what it promises, what it shows, how its classes lie."""
    certificate = release.certificate
    title = f"Release of {certificate.dataset}" + (f", period {certificate.period}" if certificate.period else "")
    pictured = [name for name in release.attributes if f"{name}_lower" in release.data.column_names]
    try:
        parts = [
            titled(title),
            statement_text(certificate),
            "\n".join(release.owner.figures(release)),
            *(interval_picture(release, name) for name in pictured),
            label_list(release),
            f"Certificate {certificate.digest}\nSpend {certificate.spend.id}, {certificate.time}",
        ]
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, ZeroDivisionError):
        # The digests fit, so whoever made the release made it so.
        raise ReleaseError("the release does not have the form of one. Run dunnage verify on it.") from None
    return "\n\n".join(part for part in parts if part)


def headlines(certificate: Certificate) -> list[tuple[str, str]]:
    """Say in a line or two, each with a title, what is promised: never a claim without what holds."""
    stated = guarantee_words(certificate.guarantee)
    if certificate.basis is Basis.VOID:
        return [("Promises", f"nothing: {certificate.why}")]
    if certificate.basis is Basis.PROVED:
        return [("Promises", stated)]
    held = guarantee_words(certificate.holds) if certificate.holds is not None else "no bound is proved"
    return [("Claimed", f"{stated}; not proved"), ("Holds", held)]


def guarantee_words(guarantee: Guarantee) -> str:
    """Write a guarantee in a line; of one within clusters, that there is none across them."""
    stated = guarantee.to_dict()
    words = ", ".join(f"{key} {stated[key]}" for key in _in_order(stated))
    if not isinstance(guarantee, WithinCluster):
        return words
    unit = "area" if "areas" in guarantee.clusters else "cluster"
    return f"{words}; only between values of the same {unit}: across {unit}s there is no bound"


def _in_order(names: Iterable[str]) -> list[str]:
    """Return names as they are told: what it is first, whatever the order in a file."""
    return sorted(names, key=lambda name: _FIRST.index(name) if name in _FIRST else len(_FIRST))


def statement_text(certificate: Certificate) -> str:
    """Describe what a certificate states: guarantee, basis, mechanism, proof, what it means and rests on."""
    parameters = certificate.mechanism
    lines = labelled(
        ("Stated" if certificate.basis is Basis.CLAIMED else "Guarantee", guarantee_words(certificate.guarantee)),
        ("Basis", certificate.basis),
        ("Mechanism", ", ".join(f"{key} {_parameter_text(key, parameters[key])}" for key in _in_order(parameters))),
        ("Claimed", certificate.claim),
        ("Why", certificate.why),
        ("Holds", None if certificate.holds is None else guarantee_words(certificate.holds)),
        ("Proof", certificate.proof),
        *(("WARNING", warning) for warning in certificate.warnings or []),
    )
    lines += ["What it means", *_bullets(certificate.meaning.sentences)]
    lines += _bullets([row.sentence for row in certificate.meaning.odds if row.sentence is not None])
    lines += ["In clear", *_bullets(certificate.in_clear), "Assumes", *_bullets(certificate.assumptions)]
    return "\n".join(lines)


def _parameter_text(key: str, value: Any) -> str:
    """Write a parameter; of the purposes of estimates only what they are."""
    if key == "purposes" and isinstance(value, dict):
        return " and ".join(f"{name} ({item['name']}, {item['method']})" for name, item in sorted(value.items()))
    return str(value)


def _bullets(items: Iterable[str]) -> list[str]:
    return [f"  - {item}" for item in items]


def interval_picture(release: Release, name: str) -> str:
    """Draw the interval of each class over the public domain, one line a class."""
    if release.classes is None:
        return ""
    stated = release.attributes[name]
    domain = domain_from(stated.domain or {})
    if not isinstance(domain, Numeric):
        return ""
    low, high = float(domain.lower), float(domain.upper)
    lower = release.classes.column(f"{name}_lower").to_numpy()
    upper = release.classes.column(f"{name}_upper").to_numpy()
    sizes = release.classes.column("size").to_numpy()
    order = np.arange(len(sizes))[:MAX_LINES]  # by stratum, then interval
    strata, scale = _strata_of_classes(release), PICTURE_WIDTH / (high - low)
    unit = f" {stated.unit}" if stated.unit else ""
    lines = [f"{name}, the interval of each class between {low:g} and {high:g}{unit}"]
    for index in order:
        start = min(int((lower[index] - low) * scale), PICTURE_WIDTH - 1)
        stop = max(start + 1, min(math.ceil((upper[index] - low) * scale), PICTURE_WIDTH))
        bar = f"|{' ' * start}{'█' * (stop - start)}{' ' * (PICTURE_WIDTH - stop)}|"
        label = f"{lower[index]:>10.10g} .. {upper[index]:<10.10g}"
        lines.append(f"  {int(index):>5}  {label} {bar} {sizes[index]} records{strata[index]}")
    if len(sizes) > MAX_LINES:
        lines.append(f"  ... and {len(sizes) - MAX_LINES} more classes")
    return "\n".join(lines)


def label_list(release: Release) -> str:
    """List the nodes and sets of each class, one line a class; empty if there are none."""
    names = [name for name, item in release.attributes.items() if item.role == "quasi-identifier"]
    if release.classes is None or not (names := [name for name in names if name in release.classes.column_names]):
        return ""
    rows = release.classes.select([*names, "size"]).slice(0, MAX_LINES).to_pylist()
    strata = _strata_of_classes(release)
    lines = [f"{', '.join(names)}, the node or set of each class"]
    for index, row in enumerate(rows):
        told = "  ".join(f"{name} {_labels_text(row[name])}" for name in names)
        lines.append(f"  {index:>5}  {told}  {row['size']} records{strata[index]}")
    if len(release.classes) > MAX_LINES:
        lines.append(f"  ... and {len(release.classes) - MAX_LINES} more classes")
    return "\n".join(lines)


def _labels_text(told: str | list[str]) -> str:
    """Write a node, or a set by its first labels."""
    if isinstance(told, str):
        return told
    more = [f"and {len(told) - MAX_LABELS_NAMED} more"] if len(told) > MAX_LABELS_NAMED else []
    return "{" + ", ".join([*told[:MAX_LABELS_NAMED], *more]) + "}"


def _strata_of_classes(release: Release) -> list[str]:
    """Return the public values of each class, to be printed behind it."""
    public = [name for name, item in release.attributes.items() if item.role == "public"]
    num_classes = len(release.classes) if release.classes is not None else 0
    if not public:
        return [""] * num_classes
    classes, first = np.unique(release.data.column("class_id").to_numpy(), return_index=True)
    first = first[classes >= 0]  # rows below 0 are in no class
    rows = release.data.select(public).take(first[:MAX_LINES]).to_pylist()
    return ["  " + ", ".join(str(value) for value in row.values()) for row in rows]


def policy_text(policy: Policy) -> str:
    """Describe a policy: each column, and what the mechanism promises."""
    promise = mechanism_of(policy).promise(policy.schema)
    lines = [f"Policy for {policy.dataset}, protecting one {policy.schema.protects}", "Columns"]
    for attribute in policy.schema:
        domain = attribute.domain.describe() if attribute.domain is not None else {}
        span = f" [{domain['lower']}, {domain['upper']}] {domain.get('unit', '')}" if "lower" in domain else ""
        labels = getattr(attribute.domain, "labels", ())
        span = f" of {len(labels)} {_LABEL_WORDS[str(attribute.kind)]}" if str(attribute.kind) in _LABEL_WORDS else span
        counted = "tells persons apart: k counts them" if attribute.name == policy.schema.person else ""
        lines.append(f"  {attribute.name:<20} {attribute.role:<17} {attribute.kind or ''}{span}{counted}".rstrip())
    if policy.schema.trip is None:
        lines.append(f"Small strata  {policy.small}")
    else:
        trip, time, bound = policy.schema.trip, policy.schema.time, policy.schema.contribution
        windows = f"{several(len(time.labels), 'window')} of {several(time.window_minutes, 'minute')}"
        days = f", days told apart by {trip.day or time.day}" if policy.schema.tells_days else ""
        lines.append(f"Counts trips  from {trip.origin} to {trip.destination} at {trip.time}; {windows}{days}")
        if bound is not None:
            lines.append(f"Of a rider    at most {bound.max:,} a {bound.per}, told apart by {bound.person}")
    lines.append(f"Budget        {policy.budget or 'none'}")
    if policy.period:
        lines.append(
            f"Period        one {policy.period.length}"
            + (f" of {policy.period.column}" if policy.period.column else "")
        )
    return "\n".join([*lines, "", promise_text(promise)])


def promise_text(promise: Promise) -> str:
    proof = promise.to_dict().get("proof")
    lines = labelled(
        (
            "Claims" if promise.basis is Basis.CLAIMED else "Promises",
            f"{guarantee_words(promise.guarantee)}; basis {promise.basis}",
        ),
        ("Claimed", promise.claim or None),
        ("Why", promise.why or None),
        ("Really holds", None if promise.holds is None else guarantee_words(promise.holds)),
        ("Proof", ProofNote.model_validate(proof) if proof else None),
        *(("WARNING", warning) for warning in promise.warnings),
        width=13,
    )
    lines += ["In clear", *_bullets(promise.in_clear)]
    lines += ["Assumes", *_bullets(f"{item.name}: {item.says}" for item in promise.assumptions)]
    return "\n".join(lines)


def dry_run_text(run: DryRun) -> str:
    foresight = run.foresight  # what a mechanism tells its owner beforehand
    left_out = f"{run.num_rows} valid, {run.num_left_out} left out by the policy"
    return "\n".join(
        [
            "Dry run: nothing was drawn, spent or written.",
            *labelled(("Records", left_out), width=13),
            promise_text(run.promise),
            *labelled(
                ("Would spend", run.asked),
                ("Spent so far", run.before.total),
                ("Left now", run.before.left_text()),
                ("Left then", run.after.left_text()),
                *(("WARNING", warning) for warning in foresight.warnings),
                width=13,
            ),
            *(["For you only", *_bullets(foresight.lines)] if foresight.lines else []),
        ]
    )


def task_text(task: Task, devices: int | None = None, *, confidence: float = 0.95) -> str:
    """Describe a task: what it asks, what vehicles give away, and how far estimates of a fleet would be off."""
    schedule = task.schedule
    slots = f"{several(schedule.slots_per_day, 'slot')} a day of {schedule.num_moments:,}, drawn before the day"
    late = f"sent within {several(schedule.lateness_minutes, 'minute')}; a day closes at {schedule.closing} UTC"
    lines = [
        titled(f"Task of {task.dataset}, version {task.version}"),
        *labelled(("Digest", task.digest), ("Protects", task.protects), ("Schedule", f"{slots}; {late}")),
    ]
    for purpose in task.purposes:
        lines += ["", *_purpose_lines(task, purpose)]
        lines += _predicted_lines(task, purpose, devices, confidence) if devices is not None else []
    return "\n".join([*lines, "", "What a vehicle gives away", *_loss_lines(task)])


def _purpose_lines(task: Task, purpose: TaskPurpose) -> Iterator[str]:
    mechanism = device_mechanism(task, purpose)
    yield f"{purpose.name}: {purpose.mechanism}" + "".join(f", {k} {v}" for k, v in purpose.parameters.items())
    for quantity in purpose.quantities:
        unit = f" {quantity.unit}" if quantity.unit else ""
        span = f"{decimal_text(quantity.low)} to {decimal_text(quantity.high)}{unit}"
        yield f"  {quantity.name:<20} {span}; missing: {quantity.missing}"
    if purpose.grid is not None:
        grid, side = purpose.grid, purpose.grid.num_columns
        width, height = (float(pitch) for pitch in grid.pitch_km)
        yield f"  grid of {side:,} x {side:,} cells, {width:.3g} km by {height:.3g} km each" + (
            f"; paths of {purpose.steps} cells" if purpose.steps > 1 else ""
        )
    for tier in mechanism.levels:
        bits = mechanism.payload_bits(tier)
        yield (
            f"  tier {tier.name:<15} epsilon {decimal_text(tier.epsilon)} a report; "
            f"{several(math.ceil(bits / 8), 'byte')} of payload"
        )


def _predicted_lines(task: Task, purpose: TaskPurpose, devices: int, confidence: float) -> Iterator[str]:
    """Say how far each estimate would be off, per tier and together, if tiers are alike in size."""
    mechanism = device_mechanism(task, purpose)
    each = max(devices // len(mechanism.levels), 1)
    rows: dict[str, list[float]] = {}
    for tier in mechanism.levels:
        sds = mechanism.predicted_sd(tier, each)
        rows[tier.name] = list(sds) if isinstance(sds, tuple) else [sds]
    if len(rows) > 1:  # as precise tiers weigh more
        together = zip(*rows.values(), strict=True)
        rows["together"] = [math.sqrt(1 / sum(1 / sd**2 for sd in of_tiers)) for of_tiers in together]
    names = [quantity.name for quantity in purpose.quantities] or ["share"]
    units = [quantity.unit for quantity in purpose.quantities] or [""]
    factor = normal_quantile(confidence)
    level = f"{100 * confidence:g} %"
    yield f"  Predicted for {devices:,} vehicles: standard deviation, and half width of a {level} interval"
    for tier_name, deviations in rows.items():
        for name, unit, sd in zip(names, units, deviations, strict=True):
            yield f"    {tier_name:<12} {name:<20} {sd:>10.3g}  +- {factor * sd:.3g} {unit}".rstrip()
    if purpose.grid is not None:
        verdict = mechanism.noise_verdict(devices)
        yield f"  {'NOISE' if verdict.is_noise else 'Map'}: {verdict.message}"


def _loss_lines(task: Task) -> Iterator[str]:
    """Say what a report, a slot, a day and a lifetime give away, and what that means in odds."""
    losses = check_task(task)
    for tier in task.tier_names:
        day = losses.of_day(tier)
        parts: list[tuple[str, Fraction | None]] = [
            *((f"one report of {p.name}", losses.by_report[tier, p.name]) for p in task.purposes),
            *([("one slot", losses.of_slot(tier))] if len(task.purposes) > 1 else []),
            ("a day", day),
            ("a lifetime", None if day is None else task.limits.lifetime),
        ]
        yield f"  tier {tier}"
        for name, loss in parts:
            bound = "no bound" if loss is None else f"epsilon {decimal_text(loss)}: {odds(Loss(loss))[1].sentence}"
            yield f"    {name:<28} {bound}"
        if day is not None:
            yield f"    {'lasts for':<28} {several(task.limits.lifetime // day, 'day')}, then the vehicle falls silent"


def predictions(task: Task, devices: int) -> list[str]:
    """Say in a line for each purpose how far estimates of a fleet would be off."""
    hints = []
    for purpose in task.purposes:
        mechanism = device_mechanism(task, purpose)
        if purpose.grid is not None:
            hints.append(f"{purpose.name}: {mechanism.noise_verdict(devices).message}")
            continue
        tier = min(task.slot_tiers(purpose), key=lambda tier: tier.epsilon)
        sds = mechanism.predicted_sd(tier, devices)
        means = (f"{q.name} {2 * sd:.2g} {q.unit}".rstrip() for q, sd in zip(purpose.quantities, sds, strict=True))
        told = f"means are within about {', '.join(means)}"
        hints.append(f"{purpose.name}: {devices:,} vehicles, all of tier {tier.name}: {told}")
    return hints


def device_policy_text(path: Path, devices: int) -> tuple[dict[str, object], str]:
    """Describe a policy for devices: what each mechanism promises, tiers, schedule, predicted errors."""
    policy = read_carriers(path)
    task = task_of(policy)
    promises = {purpose.name: device_mechanism(task, purpose).promise() for purpose in task.purposes}
    statements, hints = check_task(task).statements(), predictions(task, devices)
    schedule, limits = task.schedule, task.limits
    lines = [f"Policy for {policy.dataset}, protecting one {policy.protects}; for devices", "Reported"]
    lines += [f"  {n.name:<20} number [{float(n.low):g}, {float(n.high):g}] {n.unit}".rstrip() for n in policy.numbers]
    lines += [f"  {name:<20} {grid.num_cells:,} cells of a box" for name, grid in policy.grids.items()]
    tiers = {tier.name: tier.epsilon for purpose in task.purposes for tier in purpose.tiers}
    listed = ", ".join(f"{name} (epsilon {float(epsilon):g})" for name, epsilon in tiers.items())
    day = "" if limits.day is None else f", of a day {float(limits.day):g}"
    slots = f"{schedule.slots_per_day} of {schedule.num_moments} moments a day, drawn before it"
    late = f"a report may come {schedule.lateness_minutes} minutes late; a day closes at {schedule.closing} UTC"
    lines += labelled(
        ("Tiers", listed),
        ("Schedule", f"{slots}; {late}"),
        ("Allowance", f"of a lifetime epsilon {float(limits.lifetime):g}{day}"),
        width=13,
    )
    parts = ["\n".join(lines)]
    parts += [f"Mechanism {name}\n{promise_text(promise)}" for name, promise in promises.items()]
    parts.append("\n".join(["Gives away", *(f"  {text}" for text in statements)]))
    parts.append("\n".join(["Predicted error", *(f"  {text}" for text in hints)]))
    described: dict[str, object] = {
        "dataset": policy.dataset,
        "digest": policy.digest(),
        "task": task.to_dict(),
        "promises": {name: promise.to_dict() for name, promise in promises.items()},
        "losses": statements,
        "predicted": hints,
    }
    return described, "\n\n".join(parts)
