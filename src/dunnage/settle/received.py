# SPDX-License-Identifier: Apache-2.0
"""Received: a plan as the owner is given it, checked against the release before any private number is touched."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from dunnage.arrays import IntArray
from dunnage.errors import InputError, ParameterError, ReleaseError
from dunnage.planning.linkage import exchangeable
from dunnage.planning.plan import Plan, Slots, named_rows, read_assignment
from dunnage.planning.trucks import Truck, parse_capacities
from dunnage.release import Release
from dunnage.settle.restating import planned_linkage

Capacity = float | str | Sequence[str | float]


def received_plan(
    plan: Plan | str | os.PathLike[str],
    release: Release,
    capacity: Capacity | None,
    trucks: Sequence[Truck] | None,
) -> Plan:
    """Read and check a plan; what is given of trucks replaces its own."""
    if capacity is not None and trucks is not None:
        raise ParameterError("apply takes a capacity or trucks, not both. Drop one.")
    if not len(release):
        raise ReleaseError("the release has no row, so no plan can be applied to it. Publish the data anew.")
    if isinstance(plan, Plan):
        source, found = "plan", plan
    elif (path := Path(plan)).is_dir():
        source, found = str(path), Plan.read(path)
    else:
        return _external_plan(path, release, capacity, trucks)
    if found.release != release.certificate.digest and (found.release or not found.external):
        raise ReleaseError(f"{source} was made on another release. Give that release, or plan on this one.")
    if found.slots is None:
        _check_rows(source, found.assignment, found.num_bins, len(release))
    else:
        _check_slots(source, found.slots, found.num_bins, release.class_of_row)
    _check_quantities(found, release)
    return _checked_trucks(_with_trucks(found, capacity, trucks))


def _check_rows(source: str, bin_of_row: IntArray, num_bins: int, num_rows: int) -> None:
    planned = len(bin_of_row)
    if planned < num_rows:
        missing = np.arange(planned, num_rows)
        raise InputError(source, [f"row {named_rows(missing)} is missing. Assign every row of the release."])
    if planned > num_rows:
        more = np.arange(num_rows, planned)
        raise InputError(source, [f"the release has no row {named_rows(more)}. Plan on the rows it has."])
    bad = np.flatnonzero((bin_of_row < 0) | (bin_of_row >= num_bins))
    if len(bad):
        raise InputError(source, [f"row {named_rows(bad)} is in a bin without a truck. Name a truck for every bin."])


def _check_slots(source: str, slots: Slots, num_bins: int, class_id: IntArray) -> None:
    """Check that the bins of a sealed plan take each class exactly."""
    if not len(slots.bin) or min(slots.class_id.min(), slots.count.min()) < 0:
        raise InputError(source, ["has no slots, or a number below 0 in them. Plan on the release anew."])
    if slots.bin.min() < 0 or slots.bin.max() >= num_bins:
        raise InputError(source, ["has slots in a bin without a truck. Name a truck for every bin."])
    taken: Counter[int] = Counter()
    for number, count in zip(slots.class_id.tolist(), slots.count.tolist(), strict=True):
        taken[number] += count
    sizes = Counter(class_id.tolist())
    wrong = [number for number in sorted(taken.keys() | sizes.keys()) if taken[number] != sizes[number]]
    if wrong:
        problems = [
            f"class {number} has {sizes[number]} rows in the release, the slots take {taken[number]}"
            for number in wrong[:20]
        ]
        more = f" (and {len(wrong) - 20} more classes)" if len(wrong) > 20 else ""
        raise InputError(source, [*problems[:-1], f"{problems[-1]}{more}. Give every row of a class one slot."])


def _check_quantities(plan: Plan, release: Release) -> None:
    known = release.quantities
    strange = [name for name in plan.quantities if name not in known]
    if strange or not plan.quantities:
        raise ParameterError(
            f"the plan packs {', '.join(map(repr, strange)) or 'nothing'}, the release has "
            f"{', '.join(known) or 'none'}. Plan on the release."
        )


def _with_trucks(plan: Plan, capacity: Capacity | None, trucks: Sequence[Truck] | None) -> Plan:
    if trucks is not None:
        return replace(plan, trucks=tuple(trucks))
    if capacity is None:
        return plan
    if len(plan.trucks) != 1:
        raise ParameterError(f"the plan has {len(plan.trucks)} kinds of truck. Give trucks instead of a capacity.")
    held = {**plan.trucks[0].capacity, **parse_capacities(listed(capacity), plan.quantities)}
    return replace(plan, trucks=(replace(plan.trucks[0], capacity=held),))


def listed(capacity: Capacity) -> Sequence[str | float]:
    """Return one or several capacities as several."""
    return list(capacity) if isinstance(capacity, Iterable) and not isinstance(capacity, str) else [capacity]


def check_kinds(trucks: Sequence[Truck], quantities: Iterable[str]) -> None:
    """Check that every kind of truck says what it holds and costs."""
    for truck in trucks:
        for quantity in quantities:
            held = truck.capacity.get(quantity, 0)
            if not (math.isfinite(held) and held > 0):
                raise ParameterError(f"truck {truck.name!r} has no capacity for {quantity}. Give it one above 0.")
        if not (math.isfinite(truck.cost) and truck.cost > 0):
            raise ParameterError(f"truck {truck.name!r} has no cost above 0. Give it one.")


def _checked_trucks(plan: Plan) -> Plan:
    """Check that there is a truck for every bin."""
    check_kinds(plan.trucks, plan.quantities)
    kinds = {truck.name: truck for truck in plan.trucks}
    for name, times in Counter(plan.truck_of_bin).items():
        if name not in kinds:
            raise ParameterError(f"{times} bins have no truck: no kind is called {name!r}. Add it to the trucks.")
        most = kinds[name].count
        if most is not None and times > most:
            raise ParameterError(
                f"{times - most} bins have no truck: the plan fills {times} of kind {name!r}, there are {most}. "
                "Give more trucks or another plan."
            )
    return plan


def _external_plan(path: Path, release: Release, capacity: Capacity | None, trucks: Sequence[Truck] | None) -> Plan:
    """Make a plan of somebody else's ``row,bin``."""
    bin_of_row = read_assignment(path, num_rows=len(release))
    if trucks is not None and len(trucks) != 1:
        raise ParameterError(
            f"{path} does not say which bin is which of {len(trucks)} kinds of truck. Give one kind, or a plan folder "
            "with bins.csv."
        )
    units = {name: release.uncertain(name).unit for name in release.quantities}
    if trucks is not None:
        truck = trucks[0]
    elif capacity is not None:
        truck = Truck(name="truck", capacity=parse_capacities(listed(capacity), units))
    else:
        raise ParameterError(f"{path} does not say what a truck holds. Give --capacity 500kg, or --trucks trucks.csv.")
    plan = Plan(
        release="",
        bin_of_row=bin_of_row,
        truck_of_bin=(truck.name,) * (int(bin_of_row.max()) + 1),
        trucks=(truck,),
        model={"name": "external"},
        bound=0,
        seconds=0.0,
        quantities={name: unit for name, unit in units.items() if name in truck.capacity},
        truck_linkage=planned_linkage(release, exchangeable(release), bin_of_row),
        external=True,
    )
    _check_quantities(plan, release)
    return _checked_trucks(plan)
