# SPDX-License-Identifier: Apache-2.0
"""Reports of devices: generated vehicles, what estimates from them are off by, and what one day of reports gives away.

One kind of report is advised on, the first whose epsilon is blank, else the first; others stay as they are. Vehicles
are generated from public facts alone (bounds, grid) unless the owner's are asked for. Errors are those of a simulated
collection, reports drawn by the same code as those of devices. What an attacker finds is computed from the laws, which
are public.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dunnage import noise_arrays
from dunnage.advising.frontier import DATA, GENERATED, Failure, Point
from dunnage.advising.policies import BasePolicy
from dunnage.advising.sweep import Asked, Case, Drawn, Reference, Task
from dunnage.arrays import FloatArray
from dunnage.auditing.fleet import NUM_BUCKETS, Fleet, inputs_of
from dunnage.auditing.tracking import even_weights, guess_numbers, locate
from dunnage.errors import ParameterError, PolicyError, Refusal, TaskError
from dunnage.local.batch import perturb_column
from dunnage.local.client import check_task, mechanism_of
from dunnage.local.estimators import estimate_means, estimate_shares
from dunnage.local.location import LocalLocation
from dunnage.local.numeric import LocalNumeric
from dunnage.local.subjects import Grid
from dunnage.local.task import Purpose, Tier
from dunnage.local.task import Task as DeviceTask
from dunnage.local.tasks import CarrierPolicy, carriers_from_text, task_of
from dunnage.local.trajectory import LocalTrajectory
from dunnage.noise import Noise

EPSILONS, QUICK_EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0), (1.0, 2.0, 4.0)
NUMBER_METHODS = ("hybrid", "piecewise", "duchi", "laplace")
PLACE_METHODS = ("auto", "randomised-response", "symmetric-unary", "hadamard")
PATH_METHODS = ("auto", "hadamard")
_METHODS = {LocalNumeric.name: NUMBER_METHODS, LocalLocation.name: PLACE_METHODS}
MOST_LEVELS_FEWER = 2
MOST_VEHICLES = 1_000_000
REPORTS_A_DRAW, MOST_REPEATS = 100_000, 20
"""Reports that are simulated in one draw, and fleets at most: errors of single fleets differ much."""
_CONFIDENCE = 0.95
_HARDLY_ANY = 0.001
_WORD = 53
_MISSING = 0.02
_CENTRES, _EVENLY, _AROUND = 5, 0.3, 0.08
_STEP = 0.03
_CHOSEN_ANEW = ("tiers", "sampled", "as_published", "area_in_clear")
"""What a policy says of a kind of report that is left out: it belongs to another choice, or promises less."""


@dataclass(frozen=True, eq=False, kw_only=True)
class CarrierCase(Case):
    """Vehicles, and the one kind of report that is advised on."""

    rules: CarrierPolicy  # The policy with a first epsilon filled in
    duty: str  # Name of the kind of report
    num_vehicles: int  # How many vehicles report
    # What the owner's vehicles would report, one row each; None to generate vehicles
    columns: tuple[FloatArray, ...] | None = field(default=None, repr=False)

    @property
    def purpose(self) -> Purpose:
        """What is reported under the policy as it is."""
        return next(item for item in task_of(self.rules).purposes if item.name == self.duty)


def open_carriers(asked: Asked) -> CarrierCase:
    """Read the policy, and count the vehicles of the data."""
    name = advised_kind(asked.base)
    rules = _rules(asked, _document(asked, name, {"epsilon": EPSILONS[0]}))
    if not isinstance(asked.data, str | os.PathLike):
        raise ParameterError("rows of vehicles are read from a file. Got something else. Give the path of one.")
    fleet = Fleet.read(asked.data, rules)
    num = asked.size if asked.size is not None and asked.on != DATA else fleet.num_vehicles
    if num > MOST_VEHICLES:
        raise ParameterError(f"at most {MOST_VEHICLES:,} vehicles are simulated. Got {num:,}. Give --size.")
    purpose = next(item for item in fleet.task.purposes if item.name == name)
    return CarrierCase(
        asked=asked,
        data=None,
        digest=_file_digest(asked.data),
        rules=rules,
        duty=name,
        num_vehicles=num,
        columns=_one_row_each(fleet, purpose) if asked.on == DATA else None,
    )


def advised_kind(base: BasePolicy) -> str:
    """Return the kind of report that is advised on: the first whose epsilon is blank, else the first of all."""
    return str(next(iter((*base.blank_kinds, *base.document["mechanisms"]))))


def _file_digest(path: str | os.PathLike[str]) -> str:
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _one_row_each(fleet: Fleet, purpose: Purpose) -> tuple[FloatArray, ...]:
    """Return what each vehicle would report of one of its rows, drawn at random."""
    readings = next(iter(fleet.by_row()))
    columns = readings.columns(purpose, fleet.columns.places)
    vehicles = np.sort(fleet.vehicles)  # rows come vehicle by vehicle
    starts = np.flatnonzero(np.concatenate(([True], vehicles[1:] != vehicles[:-1])))
    sizes = np.diff(np.append(starts, len(vehicles)))
    rows = starts + noise_arrays.below_each(Noise(), sizes)
    return tuple(column[rows] for column in columns)


# Policies


def _document(asked: Asked, name: str, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Return the policy with one kind of report changed: its epsilon, method, and the levels of its grid."""
    document, duty = asked.base.document, dict(asked.base.document["mechanisms"][name])
    for key in _CHOSEN_ANEW:
        duty.pop(key, None)
    levels = chosen.get("levels")
    duty.update({key: value for key, value in chosen.items() if key not in ("levels", "purpose")})
    found = {**document, "mechanisms": {**document["mechanisms"], name: duty}}
    if levels is not None:
        grid = _grid_name(document, duty)
        attributes = dict(document["attributes"])
        area = min(int(attributes[grid].get("area_levels", 1)), int(levels))
        attributes[grid] = {**attributes[grid], "levels": levels}
        if "area_levels" in attributes[grid]:
            attributes[grid]["area_levels"] = area
        found["attributes"] = attributes
    return found


def _grid_name(document: Mapping[str, Any], duty: Mapping[str, Any]) -> str:
    """Return the attribute of the grid that a kind of report uses."""
    if duty.get("attributes"):
        return str(duty["attributes"][0])
    return next(str(name) for name, table in document["attributes"].items() if table.get("kind") == "grid")


def _rules(asked: Asked, document: Mapping[str, Any]) -> CarrierPolicy:
    """Read a policy; kinds of report that are still blank take hardly anything of the allowance."""
    import tomli_w

    blank = [name for name in asked.base.blank_kinds if name != advised_kind(asked.base)]
    filled = {name: {**document["mechanisms"][name], "epsilon": _HARDLY_ANY} for name in blank}
    document = {**document, "mechanisms": {**document["mechanisms"], **filled}}
    return carriers_from_text(tomli_w.dumps(document), path=asked.base.path)


def carrier_tables(case: Case, point: Point) -> dict[str, Mapping[str, Any]]:
    """Give the tables that a point replaces in a policy for devices."""
    assert isinstance(case, CarrierCase)
    document = _document(case.asked, case.duty, point.parameters)
    changed = ("mechanisms", "attributes") if "levels" in point.parameters else ("mechanisms",)
    return {name: document[name] for name in changed}


# Candidates


def carrier_tasks(case: CarrierCase) -> tuple[list[Task], list[Failure]]:
    """List methods, epsilons and grids; those that the allowance of a vehicle does not pay for are told."""
    found: list[Task] = []
    failed: list[Failure] = []
    mechanism_name = case.purpose.mechanism
    for chosen in _candidates(case):
        title = _title(case.duty, chosen)
        try:
            task = _device_task(case, chosen)
        except (PolicyError, TaskError) as error:
            problems = getattr(error, "problems", None)
            why = "; ".join(map(str, problems)) if problems else str(error)
            failed.append(Failure(name=title, why=" ".join(why.split())))
            continue
        mechanism, _ = _mechanism(case, task)
        found.append(
            Task(
                name=title,
                mechanism=mechanism_name,
                parameters=chosen,
                guarantee=f"local dp, epsilon {chosen['epsilon']:g}, one report",
                basis=str(mechanism.promise().basis),
                on=GENERATED if case.columns is None else DATA,
            )
        )
    return found, failed


def _candidates(case: CarrierCase) -> Iterator[dict[str, Any]]:
    purpose, quick = case.purpose, case.asked.quick
    methods = _METHODS.get(purpose.mechanism, PATH_METHODS)
    for method in methods[:1] if quick else methods:
        for epsilon in QUICK_EPSILONS if quick else EPSILONS:
            yield {"epsilon": epsilon, "method": method}
    for levels in _other_levels(case):
        for epsilon in QUICK_EPSILONS if quick else EPSILONS:
            yield {"epsilon": epsilon, "method": methods[0], "levels": levels}


def _other_levels(case: CarrierCase) -> range:
    """Return coarser grids that a map could have; none where others report on the same grid."""
    purpose = case.purpose
    shared = [item for item in task_of(case.rules).purposes if item.grid == purpose.grid]
    if purpose.mechanism != LocalLocation.name or purpose.grid is None or len(shared) > 1:
        return range(0)
    return range(purpose.grid.levels - 1, max(1, purpose.grid.levels - 1 - MOST_LEVELS_FEWER), -1)


def _title(duty: str, chosen: Mapping[str, Any]) -> str:
    level = f", {chosen['levels']} levels" if "levels" in chosen else ""
    return f"{duty}: {chosen['method']} epsilon={chosen['epsilon']:g}{level}"


def _device_task(case: CarrierCase, chosen: Mapping[str, Any]) -> DeviceTask:
    task = task_of(_rules(case.asked, _document(case.asked, case.duty, chosen)))
    check_task(task)
    return task


def _mechanism(case: CarrierCase, task: DeviceTask) -> tuple[Any, Tier]:
    purpose = next(item for item in task.purposes if item.name == case.duty)
    mechanism = mechanism_of(task, purpose)
    return mechanism, mechanism.levels[0]


# Measuring


def measure_carriers(case: CarrierCase, task: Task) -> Drawn:
    """Simulate some collections and attack one vehicle."""
    device_task = _device_task(case, task.parameters)
    mechanism, tier = _mechanism(case, device_task)
    if not isinstance(mechanism, LocalNumeric) and (verdict := mechanism.noise_verdict(case.num_vehicles)).is_noise:
        raise Refusal(f"what is estimated would be noise: {verdict.message}.")
    repeats = max(1, min(MOST_REPEATS, REPORTS_A_DRAW // case.num_vehicles))
    squares, more = zip(*(_squares(case, mechanism, tier) for _ in range(repeats)), strict=True)
    risk = _risk(case, device_task, mechanism, tier)
    figures = {name: float(np.mean([one[name] for one in more])) for name in more[0]}
    figures |= {"vehicles": float(case.num_vehicles), "days": _days(device_task)}
    return Drawn(cost=math.sqrt(float(np.mean(squares))), risk=risk, cost_least=0.0, figures=figures)


def _days(task: DeviceTask) -> float:
    """Return for how many days the allowance of a vehicle lasts, of the tier that it lasts shortest for."""
    losses = check_task(task)
    days = [loss for tier in task.tier_names if (loss := losses.of_day(tier)) is not None]
    return float(task.limits.lifetime // max(days)) if days else 0.0


def _squares(case: CarrierCase, mechanism: Any, tier: Tier) -> tuple[float, dict[str, float]]:
    """Return the mean square error of one collection, in the unit of costs, and more figures."""
    noise = Noise()
    columns = list(case.columns or alike_columns(case.purpose, case.num_vehicles, noise))
    tally = perturb_column(mechanism, tier, columns, noise)
    if isinstance(mechanism, LocalNumeric):
        return _mean_squares(mechanism, tier, tally, columns)
    return _share_squares(case, mechanism, tally, columns)


def _mean_squares(
    mechanism: LocalNumeric, tier: Tier, tally: Any, columns: Sequence[FloatArray]
) -> tuple[float, dict[str, float]]:
    """Compare means with the true ones, in parts of their domains."""
    means, _ = estimate_means(mechanism, [tally], confidence=_CONFIDENCE, rule="stratify")
    widths = [float(quantity.high - quantity.low) for quantity in mechanism.quantities]
    errors = [
        (_told(mean.value, quantity) - _true_mean(quantity, column)) / width
        for mean, quantity, column, width in zip(means, mechanism.quantities, columns, widths, strict=True)
    ]
    worst = mechanism.predicted_sd(tier, len(columns[0]))
    predicted = math.sqrt(float(np.mean([(sd / width) ** 2 for sd, width in zip(worst, widths, strict=True)])))
    return float(np.mean(np.square(errors))), {"predicted_at_worst": predicted}


def _told(value: float | None, quantity: Any) -> float:
    """Return an estimate; where nothing was told, the middle of the domain."""
    return (float(quantity.low) + float(quantity.high)) / 2 if value is None else value


def _true_mean(quantity: Any, column: FloatArray) -> float:
    low, high = float(quantity.low), float(quantity.high)
    there = column[~np.isnan(column)]
    return float(np.clip(there, low, high).mean()) if len(there) else (low + high) / 2


def _share_squares(
    case: CarrierCase, mechanism: LocalLocation | LocalTrajectory, tally: Any, columns: Sequence[FloatArray]
) -> tuple[float, dict[str, float]]:
    """Compare shares with the true ones on the policy's grid, in mean shares; coarser maps are spread evenly."""
    found = estimate_shares(mechanism, [tally], confidence=_CONFIDENCE, rule="stratify").value
    wanted: Any = mechanism
    if isinstance(mechanism, LocalLocation) and case.purpose.grid is not None:
        found = _spread(found, mechanism.grid, case.purpose.grid)
        wanted = LocalLocation(grid=case.purpose.grid, epsilon=mechanism.levels[0].epsilon, method="hadamard")
    law = wanted.channel(wanted.levels[0])
    true = np.bincount(inputs_of(wanted, law, columns), minlength=law.num_inputs) / len(columns[0])
    errors = found - true
    wrong = float(np.abs(errors).sum()) / 2
    return float(np.mean(np.square(errors))) * law.num_inputs**2, {"wrongly_placed": wrong}


def _spread(shares: FloatArray, coarse: Grid, fine: Grid) -> FloatArray:
    """Give the share of each cell evenly to the cells inside it; the last is outside."""
    each = fine.num_cells // coarse.num_cells
    return np.append(np.repeat(shares[:-1] / each, each), shares[-1])


def _risk(case: CarrierCase, task: DeviceTask, mechanism: Any, tier: Tier) -> float:
    """Return how often one vehicle's bucket or cell is named by its reports of one day, all being alike beforehand."""
    if isinstance(mechanism, LocalNumeric):
        return number_risk(mechanism, tier)
    law = mechanism.channel(tier)
    found = locate(law, task.schedule.slots_per_day).value
    if isinstance(mechanism, LocalLocation) and case.purpose.grid is not None:
        # On a coarser grid a cell is named of those inside the guessed one, which are alike.
        return found * float(law.num_inputs) / (case.purpose.grid.num_cells + 1)
    return found


def number_risk(mechanism: LocalNumeric, tier: Tier) -> float:
    """Return how often one report names the bucket of the number that it tells most about."""
    weights = [
        None if attribute.presence else even_weights(NUM_BUCKETS, attribute.steps) for attribute in mechanism.attributes
    ]
    guesses = guess_numbers(mechanism.channel(tier), weights)
    return max(guess.value for guess, given in zip(guesses, weights, strict=True) if given is not None)


def carrier_reference(case: CarrierCase) -> Reference:
    """Say what errors and risks are compared with."""
    purpose = case.purpose
    left = _left_says(case)
    fleet = f"{case.num_vehicles:,} {'generated ' if case.columns is None else ''}vehicles, one report each"
    if purpose.grid is None:
        chance = 1 / NUM_BUCKETS
        cost = "the root mean square error of means, in parts of the domain of each number"
        risk = f"naming which of {NUM_BUCKETS} buckets a vehicle's number is in by one report"
        if task_of(case.rules).schedule.slots_per_day > 1:
            left.append("Reports of one day tell of different moments: numbers are guessed by one report each.")
    else:
        inputs = mechanism_of(task_of(case.rules), purpose).channel(purpose.tiers[0]).num_inputs
        chance, what = 1 / inputs, "path" if purpose.steps > 1 else "cell"
        cost = f"the root mean square error of shares of the policy's {inputs:,} {what}s, in mean shares"
        risk = f"naming the {what} of a vehicle that stays there, by its reports of one day"
    return Reference(
        risk_without_privacy=1.0,
        risk_of_chance=chance,
        cost_baseline="estimates of all true values",
        says=(
            f"The cost is {cost}: {fleet}.",
            f"The risk is that of {risk}; all are alike beforehand. It follows from the laws of reports.",
            "days: how long the allowance of a vehicle lasts, all its kinds of report together.",
            *left,
        ),
    )


def _left_says(case: CarrierCase) -> list[str]:
    """Say which kinds of report were not advised on."""
    blank = [name for name in case.asked.base.blank_kinds if name != case.duty]
    others = [item.name for item in task_of(case.rules).purposes if item.name not in (case.duty, *blank)]
    says = [f"Only {case.duty} was advised on."] if blank or others else []
    if others:
        says.append(f"As they were: {', '.join(others)}.")
    if blank:
        says.append(
            f"Still blank: {', '.join(blank)}. Run dunnage advise again on the policy that is recommended here, which "
            f"advises on {blank[0]}. Until then the allowance of a vehicle is shared with hardly anything: leave some."
        )
    return says


def check_maps(case: CarrierCase, tasks: Sequence[Task]) -> None:
    """Refuse at once to measure maps that would all be noise."""
    laws = [_mechanism(case, _device_task(case, task.parameters))[0] for task in tasks]
    if not laws or any(isinstance(law, LocalNumeric) or not _is_noise(law, case.num_vehicles) for law in laws):
        return
    needed = case.num_vehicles
    while needed < MOST_VEHICLES and all(_is_noise(law, needed) for law in laws):
        needed = min(needed + max(1, needed // 20), MOST_VEHICLES)
    least = f"About {needed:,} are needed" if needed < MOST_VEHICLES else f"More than {MOST_VEHICLES:,} are needed"
    raise Refusal(
        f"with {case.num_vehicles:,} vehicles everything that {case.duty} would estimate is noise, whatever epsilon "
        f"was tried. {least} at least. Take a grid with fewer levels, or see what more vehicles give: --size."
    )


def _is_noise(law: Any, num_vehicles: int) -> bool:
    return bool(law.noise_verdict(num_vehicles).is_noise)


# Generated vehicles


def alike_columns(purpose: Purpose, num: int, noise: Noise) -> tuple[FloatArray, ...]:
    """Generate what vehicles would report, from public bounds alone."""
    if purpose.grid is None:
        return tuple(_alike_numbers(quantity, num, noise) for quantity in purpose.quantities)
    return _alike_places(purpose.grid, purpose.steps, num, noise)


def _uniforms(noise: Noise, size: int) -> FloatArray:
    return np.asarray((noise_arrays.below(noise, 1 << _WORD, size) + 0.5) / float(1 << _WORD))


def _normals(noise: Noise, size: int) -> FloatArray:
    from scipy.special import ndtri

    return np.asarray(ndtri(_uniforms(noise, size)))


def _alike_numbers(quantity: Any, num: int, noise: Noise) -> FloatArray:
    """Draw numbers around a middle that is drawn, too; some are missing where that is reported."""
    from scipy.special import expit

    middle, spread = _normals(noise, 1)[0], 0.5 + _uniforms(noise, 1)[0]
    low, high = float(quantity.low), float(quantity.high)
    values = low + (high - low) * np.asarray(expit(middle + spread * _normals(noise, num)))
    if quantity.missing == "symbol":
        values = np.where(_uniforms(noise, num) < _MISSING, np.nan, values)
    return np.asarray(values)


def _alike_places(grid: Grid, steps: int, num: int, noise: Noise) -> tuple[FloatArray, ...]:
    """Draw places around some centres and all over the box, and short ways from there."""
    west, south, east, north = (float(side) for side in grid.box)
    centres = _uniforms(noise, 2 * _CENTRES).reshape(_CENTRES, 2)
    near = centres[noise_arrays.below(noise, _CENTRES, num)] + _AROUND * _normals(noise, 2 * num).reshape(num, 2)
    anywhere = _uniforms(noise, num) < _EVENLY
    places = np.where(anywhere[:, None], _uniforms(noise, 2 * num).reshape(num, 2), near)
    columns: list[FloatArray] = []
    for _ in range(steps):
        columns += [west + (east - west) * places[:, 0], south + (north - south) * places[:, 1]]
        places = places + _STEP * _normals(noise, 2 * num).reshape(num, 2)
    return tuple(columns)
