# SPDX-License-Identifier: Apache-2.0
"""The goal error of devices: how far estimates from reports are off, and what one day of reports reveals.

Advice covers one kind of report, the first with a blank epsilon, otherwise the first; others stay as they are. Vehicles
are generated from public facts alone (bounds, grid) unless the owner's are requested. Errors are those of a simulated
collection, with the same code as on devices. What an attacker learns is computed from the laws, which are public.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from dunnage.advising.frontier import DATA, GENERATED, Point, Table
from dunnage.advising.sweep import (
    AdviceRequest,
    BasePolicy,
    Candidate,
    Candidates,
    Draw,
    Reference,
    Subject,
    allowed,
    words,
)
from dunnage.arrays import FloatArray
from dunnage.auditing.carriers import NUM_BUCKETS, Fleet, even_weights, guess_numbers, inputs_of, locate
from dunnage.collecting.batch import perturb_column
from dunnage.collecting.estimate import estimate_means, estimate_shares
from dunnage.collecting.tasks import CarrierPolicy, carriers_from_text, task_of
from dunnage.devices.client import check_task, mechanism_of
from dunnage.devices.numbers import LocalNumeric
from dunnage.devices.paths import LocalTrajectory
from dunnage.devices.places import LocalLocation
from dunnage.devices.task import Purpose, Task
from dunnage.errors import ParameterError, Refusal
from dunnage.noise import arrays as noise_arrays
from dunnage.noise.source import Noise
from dunnage.samples.shape import like_reports
from dunnage.tables.reader import data_files, parquet_files

EPSILONS, QUICK_EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0), (1.0, 2.0, 4.0)
METHODS = {
    LocalNumeric.name: ("designed", "piecewise", "duchi", "laplace"),
    LocalLocation.name: ("best", "randomised-response", "subset-selection", "projective"),
    LocalTrajectory.name: ("best", "projective"),
}
MAX_LEVELS_FEWER = 2
MAX_VEHICLES = 1_000_000
REPORTS_A_DRAW, MAX_REPEATS = 100_000, 20
"""Reports, and fleets, that one draw simulates: errors of single fleets differ much."""
MAP_COST = 0.5
"""Default limit on the error of shares on a map: shares are small, and the unit is the mean over all of them."""
_CONFIDENCE = 0.95
_HARDLY_ANY = 0.001
_CHOSEN_AGAIN = ("tiers", "sampled", "as_published", "area_in_clear")
"""Keys of a kind of report that are left out: they belong to another choice, or promise less."""


@dataclass(frozen=True, eq=False, kw_only=True)
class FleetSubject(Subject):
    """Vehicles, and the one kind of report that advice covers."""

    rules: CarrierPolicy  # the policy with a first epsilon filled in
    duty: str  # name of the kind of report
    num_vehicles: int
    # What the owner's vehicles would report, one row each; None to generate vehicles.
    columns: tuple[FloatArray, ...] | None = field(default=None, repr=False)

    @property
    def unit(self) -> str:
        return "vehicle"

    @property
    def purpose(self) -> Purpose:
        return next(item for item in task_of(self.rules).purposes if item.name == self.duty)


def open_fleet(request: AdviceRequest) -> FleetSubject:
    name = advised_kind(request.base)
    rules = _rules(request, {"epsilon": EPSILONS[0]})
    if not isinstance(request.data, str | os.PathLike):
        raise ParameterError(
            "advice for devices reads rows of vehicles from a file. Got something else. Give its path."
        )
    fleet = Fleet.read(request.data, rules)
    num = request.size if request.size is not None and request.on != DATA else fleet.num_vehicles
    if num > MAX_VEHICLES:
        raise ParameterError(f"advice simulates at most {MAX_VEHICLES:,} vehicles. Got {num:,}. Give a smaller --size.")
    digests = []
    for path in data_files(Path(request.data)):
        for file in parquet_files(path) or [path]:
            with file.open("rb") as stream:
                digests.append(hashlib.file_digest(stream, "sha256").hexdigest())
    digest = hashlib.sha256(" ".join(digests).encode()).hexdigest()
    columns = None
    if request.on == DATA:  # each vehicle reports a random one of its rows
        purpose = next(item for item in fleet.task.purposes if item.name == name)
        vehicles = np.sort(fleet.vehicles)  # rows come vehicle by vehicle
        starts = np.flatnonzero(np.concatenate(([True], vehicles[1:] != vehicles[:-1])))
        rows = starts + noise_arrays.below_each(Noise(), np.diff(np.append(starts, len(vehicles))))
        readings = next(iter(fleet.by_row()))
        columns = tuple(column[rows] for column in readings.columns(purpose, fleet.columns.places))
    return FleetSubject(
        request=request,
        digest=digest,
        public_size=request.size is not None,
        rules=rules,
        duty=name,
        num_vehicles=num,
        columns=columns,
    )


def advised_kind(base: BasePolicy) -> str:
    """Return the kind of report that advice covers: the first with a blank epsilon, otherwise the first of all."""
    return str(next(iter((*base.blank_kinds, *base.document["mechanisms"]))))


# Policies


def _changed(request: AdviceRequest, chosen: Table) -> dict[str, Table]:
    """Return the tables of the policy with one kind of report changed: its epsilon, method, and levels of its grid."""
    tables, attributes = (request.base.document[name] for name in ("mechanisms", "attributes"))
    name = advised_kind(request.base)
    duty = {key: value for key, value in tables[name].items() if key not in _CHOSEN_AGAIN}
    duty.update({key: value for key, value in chosen.items() if key != "levels"})
    changed: dict[str, Table] = {"mechanisms": {**tables, name: duty}}
    if (levels := chosen.get("levels")) is not None:
        grids = duty.get("attributes") or [key for key, table in attributes.items() if table.get("kind") == "grid"]
        grid = {**attributes[grids[0]], "levels": levels}
        if "area_levels" in grid:
            grid["area_levels"] = min(int(grid["area_levels"]), int(str(levels)))
        changed["attributes"] = {**attributes, grids[0]: grid}
    return changed


def _rules(request: AdviceRequest, chosen: Table) -> CarrierPolicy:
    """Read a policy with a choice; kinds of report that are still blank use hardly any of the allowance."""
    import tomli_w

    document = {**request.base.document, **_changed(request, chosen)}
    blank = [name for name in request.base.blank_kinds if name != advised_kind(request.base)]
    filled = {name: {**document["mechanisms"][name], "epsilon": _HARDLY_ANY} for name in blank}
    document["mechanisms"] = {**document["mechanisms"], **filled}
    return carriers_from_text(tomli_w.dumps(document), path=request.base.path)


def fleet_tables(subject: FleetSubject, point: Point) -> Mapping[str, Table]:
    return _changed(subject.request, point.parameters)


# Candidates


def fleet_candidates(subject: FleetSubject) -> Candidates:
    """List candidates; refuse at once if all maps would be noise."""
    candidates, failed = payable_candidates(subject)
    laws = [_device_task(subject, candidate)[1] for candidate in candidates]

    def all_noise(num_vehicles: int) -> bool:
        return all(law.noise_verdict(num_vehicles).is_noise for law in laws)

    if not laws or any(isinstance(law, LocalNumeric) for law in laws) or not all_noise(subject.num_vehicles):
        return candidates, failed
    needed = subject.num_vehicles
    while needed < MAX_VEHICLES and all_noise(needed):
        needed = min(needed + max(1, needed // 20), MAX_VEHICLES)
    least = f"At least about {needed:,}" if needed < MAX_VEHICLES else f"More than {MAX_VEHICLES:,}"
    raise Refusal(
        f"with {subject.num_vehicles:,} vehicles, everything that {subject.duty} would estimate is noise for every "
        f"epsilon that was tried. {least} are needed. Use a grid with fewer levels, or try more vehicles with --size."
    )


def payable_candidates(subject: FleetSubject) -> Candidates:
    """List methods, epsilons and grids; those that the allowance of a vehicle does not pay for are listed as failed."""
    purpose, quick = subject.purpose, subject.request.quick
    methods, grid = METHODS[purpose.mechanism], purpose.grid
    levels: Sequence[int] = ()
    if purpose.mechanism == LocalLocation.name and grid is not None:
        # If no other kind of report uses the grid of a map, coarser grids are tried too.
        alone = sum(item.grid == grid for item in task_of(subject.rules).purposes) == 1
        levels = range(grid.levels - 1, max(1, grid.levels - 1 - MAX_LEVELS_FEWER), -1) if alone else ()
    on = GENERATED if subject.columns is None else DATA
    variants: list[tuple[str, str, Table]] = [(method, "", {}) for method in (methods[:1] if quick else methods)]
    variants += [(methods[0], f", {level} levels", {"levels": level}) for level in levels]
    candidates = [
        Candidate(
            name=f"{subject.duty}: {method} epsilon={epsilon:g}{ending}",
            mechanism=purpose.mechanism,
            parameters={"epsilon": epsilon, "method": method, **more},
            guarantee=f"local dp, epsilon {epsilon:g}, one report",
            on=on,
        )
        for (method, ending, more), epsilon in itertools.product(variants, QUICK_EPSILONS if quick else EPSILONS)
    ]

    def promised(candidate: Candidate) -> Candidate:
        return replace(candidate, basis=str(_device_task(subject, candidate)[1].promise().basis))

    return allowed(candidates, promised)


def _device_task(subject: FleetSubject, candidate: Candidate) -> tuple[Task, Any]:
    """Return the task of devices for a candidate, and the mechanism of the kind of report that advice covers."""
    task = task_of(_rules(subject.request, candidate.parameters))
    check_task(task)
    return task, mechanism_of(task, next(item for item in task.purposes if item.name == subject.duty))


# Measuring


def measure_fleet(subject: FleetSubject, candidate: Candidate) -> Draw:
    """Simulate some collections and attack the bucket or cell of one vehicle, all equally likely beforehand."""
    device_task, mechanism = _device_task(subject, candidate)
    tier = mechanism.levels[0]
    numbers = isinstance(mechanism, LocalNumeric)
    if not numbers and (verdict := mechanism.noise_verdict(subject.num_vehicles)).is_noise:
        raise Refusal(f"the estimates would be noise: {verdict.message}.")
    squares, more = [], []
    for _ in range(max(1, min(MAX_REPEATS, REPORTS_A_DRAW // subject.num_vehicles))):
        noise = Noise()
        columns = list(subject.columns or like_reports(subject.purpose, subject.num_vehicles, noise))
        tally = perturb_column(mechanism, tier, columns, noise)
        square, figure = (_mean_squares if numbers else _share_squares)(subject, mechanism, tally, columns)
        squares.append(square)
        more.append(figure)
    if numbers:
        # How often one report names the bucket of the number that it reveals most about.
        weights = [None if item.presence else even_weights(NUM_BUCKETS, item.steps) for item in mechanism.attributes]
        guesses = guess_numbers(mechanism.channel(tier), weights)
        risk = max(guess.value for guess, given in zip(guesses, weights, strict=True) if given is not None)
    else:
        law = mechanism.channel(tier)
        risk = locate(law, device_task.schedule.slots_per_day).value
        if isinstance(mechanism, LocalLocation) and subject.purpose.grid is not None:
            # On a coarser grid the guess names one of the cells inside the guessed one, which are alike.
            risk *= float(law.num_inputs) / (subject.purpose.grid.num_cells + 1)
    # The days that the allowance of a vehicle lasts, in the tier for which it is shortest.
    losses = check_task(device_task)
    days = [loss for name in device_task.tier_names if (loss := losses.of_day(name)) is not None]
    return Draw(
        cost=math.sqrt(float(np.mean(squares))),
        risk=risk,
        min_cost=0.0,
        num_records=subject.num_vehicles,
        figures={
            "predicted_at_worst" if numbers else "wrongly_placed": float(np.mean(more)),
            "vehicles": float(subject.num_vehicles),
            "days": float(device_task.limits.lifetime // max(days)) if days else 0.0,
        },
    )


def _mean_squares(
    subject: FleetSubject, mechanism: LocalNumeric, tally: Any, columns: Sequence[FloatArray]
) -> tuple[float, float]:
    """Compare means with the true ones, as shares of their domains; also return the predicted worst case."""
    means, _ = estimate_means(mechanism, [tally], confidence=_CONFIDENCE, rule="stratify")
    errors, predicted = [], []
    sds = mechanism.predicted_sd(mechanism.levels[0], len(columns[0]))
    for mean, quantity, column, sd in zip(means, mechanism.quantities, columns, sds, strict=True):
        low, high = float(quantity.low), float(quantity.high)
        width, middle = float(quantity.high - quantity.low), (low + high) / 2
        there = column[~np.isnan(column)]
        truth = float(np.clip(there, low, high).mean()) if len(there) else middle
        errors.append(((middle if mean.value is None else mean.value) - truth) / width)
        predicted.append((sd / width) ** 2)
    return float(np.mean(np.square(errors))), math.sqrt(float(np.mean(predicted)))


def _share_squares(
    subject: FleetSubject, mechanism: LocalLocation | LocalTrajectory, tally: Any, columns: Sequence[FloatArray]
) -> tuple[float, float]:
    """Compare shares with the true ones on the policy's grid, in mean shares; also return the misplaced share."""
    shares = estimate_shares(mechanism, [tally], confidence=_CONFIDENCE, rule="stratify").value
    wanted: Any = mechanism
    if isinstance(mechanism, LocalLocation) and subject.purpose.grid is not None:
        # The share of each cell is spread evenly over the cells inside it; the last stands for outside.
        each = subject.purpose.grid.num_cells // mechanism.grid.num_cells
        shares = np.append(np.repeat(shares[:-1] / each, each), shares[-1])
        wanted = LocalLocation(grid=subject.purpose.grid, epsilon=mechanism.levels[0].epsilon, method="hadamard")
    law = wanted.channel(wanted.levels[0])
    errors = shares - np.bincount(inputs_of(wanted, law, columns), minlength=law.num_inputs) / len(columns[0])
    return float(np.mean(np.square(errors))) * law.num_inputs**2, float(np.abs(errors).sum()) / 2


def fleet_reference(subject: FleetSubject) -> Reference:
    purpose, task = subject.purpose, task_of(subject.rules)
    blank = [name for name in subject.request.base.blank_kinds if name != subject.duty]
    others = [item.name for item in task.purposes if item.name not in (subject.duty, *blank)]
    left = [words("one kind", kind=subject.duty)] if blank or others else []
    left += [words("unchanged", names=", ".join(others))] if others else []
    left += [words("still blank", names=", ".join(blank), first=blank[0])] if blank else []
    fleet = words("generated fleet" if subject.columns is None else "fleet", num=subject.num_vehicles)
    if purpose.grid is None:
        chance = 1 / NUM_BUCKETS
        says = [words("cost of numbers", fleet=fleet), words("risk of numbers", buckets=NUM_BUCKETS)]
        left += [words("moments differ")] if task.schedule.slots_per_day > 1 else []
    else:
        inputs = mechanism_of(task, purpose).channel(purpose.tiers[0]).num_inputs
        chance, what = 1 / inputs, "path" if purpose.steps > 1 else "cell"
        says = [words("cost of maps", inputs=inputs, what=what, fleet=fleet), words("risk of maps", what=what)]
    return Reference(
        risk_without_privacy=1.0,
        risk_of_chance=chance,
        cost_baseline="estimates of all true values",
        says=(*says, words("days"), *left),
    )


def vehicles_help(subject: FleetSubject, points: Sequence[Point]) -> str:
    return words("help maps" if subject.purpose.grid is not None else "help numbers", num=subject.num_vehicles)


def simulate_command(subject: FleetSubject, point: Point) -> str:
    """Return the command that tries the task on rows of many vehicles; empty while another kind of report is blank."""
    several = len(subject.request.base.blank_kinds) > 1
    return "" if several else "dunnage device simulate DATA --task TASK.json -o REPORTS.jsonl"
