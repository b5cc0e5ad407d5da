# SPDX-License-Identifier: Apache-2.0
"""Truck: a kind of truck, from a table or a capacity."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path

from dunnage.errors import InputError, ParameterError, Problem, check_kind
from dunnage.exact import decimal, whole
from dunnage.tables.reader import read_listing


@dataclass(frozen=True, kw_only=True)
class Truck:
    """A kind of truck: its name, its capacity for each quantity, how many there are, and the cost of one."""

    name: str
    capacity: Mapping[str, float]
    count: int | None = None
    cost: float = 1.0

    def __post_init__(self) -> None:
        check_kind(
            self.capacity, Mapping, "capacity takes a table, such as Truck(name='van', capacity={'weight': 500})"
        )


def read_trucks(path: str | os.PathLike[str], quantities: Sequence[str]) -> tuple[Truck, ...]:
    """Read ``trucks.csv``: ``truck,count,cost`` and one column per capacity.

    Quantities without a column are not packed.

    Raises
    ------
    InputError
        If a column is unknown, a number is invalid, or a name appears twice.
    """
    file = Path(path)
    header, lines = read_listing(file, ("truck", "count", "cost"))
    packed = [name for name in quantities if name in header]
    strange = [name for name in header[3:] if name not in quantities]
    if strange or len(set(header)) < len(header) or any(len(line) > len(header) for line in lines):
        what = (
            f"has a column {strange[0]!r}, which is not a quantity"
            if strange
            else "repeats a column or has extra cells"
        )
        raise InputError(str(file), [f"{what}. The columns are truck, count, cost, then {', '.join(quantities)}."])
    if not packed or not lines:
        what = f"has no column {' or '.join(quantities)}" if not packed else "has no truck"
        raise InputError(
            str(file),
            [f"{what}. Write one column of capacities for each packed quantity, and one line per kind of truck."],
        )
    trucks = []
    for number, line in enumerate(lines, 1):
        cells = dict(zip(header, line, strict=False))
        count = whole(cells["count"])
        cost = decimal(cells["cost"]) if cells["cost"].strip() else 1.0
        capacity = {name: decimal(cells.get(name, "")) for name in packed}
        if (count is None and cells["count"].strip()) or not all(
            _is_amount(size) for size in (*capacity.values(), cost)
        ):
            what = "does not have a whole count, and a cost and capacities above 0"
            raise InputError(str(file), [Problem(what, rows=(number,), remedy="Correct the line.")])
        if not cells["truck"].strip():
            raise InputError(str(file), [Problem("has no name", rows=(number,), remedy="Name the truck.")])
        trucks.append(Truck(name=cells["truck"].strip(), capacity=capacity, count=count, cost=cost))
    if len({truck.name for truck in trucks}) < len(trucks):
        raise InputError(str(file), ["has two kinds of truck with the same name. Give each kind its own name."])
    return tuple(trucks)


def check_kinds(trucks: Sequence[Truck], quantities: Iterable[str]) -> None:
    for truck in trucks:
        for quantity in quantities:
            if not _is_amount(truck.capacity.get(quantity)):
                raise ParameterError(f"truck {truck.name!r} has no capacity for {quantity}. Give it one above 0.")
        if not _is_amount(truck.cost):
            raise ParameterError(f"truck {truck.name!r} must cost more than 0. Got {truck.cost!r}.")
        if truck.count is not None and (type(truck.count) is not int or truck.count < 0):
            raise ParameterError(
                f"the count of truck {truck.name!r} must be a whole number of at least 0. Got {truck.count!r}."
            )


def _is_amount(value: object) -> bool:
    return isinstance(value, Real) and 0 < float(value) < math.inf


Capacity = float | str | Sequence[float | str] | Mapping[str, float]
"""One capacity, several, or one by the name of each quantity."""


def listed(capacity: Capacity) -> list[float | str]:
    if isinstance(capacity, Mapping):
        return [f"{name}={amount}" for name, amount in capacity.items()]
    return list(capacity) if isinstance(capacity, Iterable) and not isinstance(capacity, str) else [capacity]


def parse_capacities(texts: Sequence[str | float], units: Mapping[str, str]) -> dict[str, float]:
    """Read capacities such as ``500``, ``500kg`` or ``volume=9 m3``, by quantity."""
    capacities: dict[str, float] = {}
    # Capacities with a name first.
    for text in sorted((str(text).strip(" \t") for text in texts), key=lambda text: "=" not in text):
        number, unit = split_amount(text)
        name = text.rpartition("=")[0].strip()
        if not name:
            # It is for the only remaining quantity, or for the remaining one with the same unit.
            left = [name for name in units if name not in capacities]
            fitting = [name for name in left if units[name] == unit] if len(left) > 1 else left
            if len(fitting) != 1:
                names = list(left or units)
                raise ParameterError(f"capacity {text!r} could be for {_listed(names)}. Name it: {names[0]}={text}.")
            name = fitting[0]
        if name not in units:
            raise ParameterError(
                f"the release has no quantity {name!r} to pack. Got capacity {text!r}. Use {_listed(units)}."
            )
        if name in capacities:
            raise ParameterError(f"{name} has two capacities. Remove {text!r} or the other.")
        if not decimal(number) > 0:
            raise ParameterError(f"capacity must be a positive number, such as 500{units[name]}. Got {text!r}.")
        if unit and unit != units[name]:
            released = units[name] or "no unit"
            remedy = f"Write it in {units[name]}" if units[name] else "Give a plain number, such as 500"
            raise ParameterError(f"{name} is released in {released}. Got capacity {text!r}. {remedy}.")
        capacities[name] = decimal(number)
    return {name: capacities[name] for name in units if name in capacities}


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "another release: this one has no quantities"


def split_amount(text: str) -> tuple[str, str]:
    amount = text.rpartition("=")[2].strip(" \t")
    digits = len(amount)
    while digits and not (math.isfinite(decimal(amount[:digits])) and amount[digits - 1] not in " \t"):
        digits -= 1
    return amount[:digits], amount[digits:].strip(" \t")
