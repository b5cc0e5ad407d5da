# SPDX-License-Identifier: Apache-2.0
"""Truck: a kind of truck, read from ``trucks.csv`` or from a capacity; and the small tables that planners exchange."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dunnage.errors import InputError, ParameterError, Problem


@dataclass(frozen=True, kw_only=True)
class Truck:
    """A kind of truck: its name, what it holds of each quantity, how many there are, what one costs."""

    name: str
    capacity: Mapping[str, float]
    count: int | None = None
    cost: float = 1.0


def write_lines(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def read_lines(path: Path, header: Sequence[str]) -> list[list[str]]:
    """Read a small table whose first columns must be the header's."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            lines = [line for line in csv.reader(stream) if line]
    except OSError as error:
        raise InputError(str(path), [f"cannot be read: {error.strerror}. Check the path."]) from None
    except (ValueError, csv.Error):  # not UTF-8, or a path that no file can have
        raise InputError(str(path), ["is not a CSV file in UTF-8. Save it as one."]) from None
    if not lines or [name.strip() for name in lines[0][: len(header)]] != list(header):
        raise InputError(str(path), [f"must begin with the header {','.join(header)}. Mend the first line."])
    short = [number for number, line in enumerate(lines[1:], 1) if len(line) < len(header)]
    if short:
        raise InputError(str(path), [Problem("has too few cells", rows=tuple(short), remedy="Mend the lines.")])
    return lines[1:]


def read_trucks(path: str | os.PathLike[str], quantities: Sequence[str]) -> tuple[Truck, ...]:
    """Read ``trucks.csv``: ``truck,count,cost`` and one column per capacity.

    Quantities without a column are not packed.

    Raises
    ------
    InputError
        If a column is none of these, a number makes no sense, or a name stands twice.
    """
    file = Path(path)
    lines = read_lines(file, ("truck", "count", "cost"))
    with file.open(newline="", encoding="utf-8-sig") as stream:
        header = [name.strip() for name in next(csv.reader(stream))]
    held = [name for name in quantities if name in header]
    strange = [name for name in header[3:] if name not in quantities]
    if strange or len(set(header)) < len(header) or any(len(line) > len(header) for line in lines):
        what = (
            f"has a column {strange[0]!r} that is no quantity" if strange else "has a doubled column or too many cells"
        )
        raise InputError(str(file), [f"{what}. Columns are truck, count, cost, then {', '.join(quantities)}."])
    if not held or not lines:
        what = f"has no column {' or '.join(quantities)}" if not held else "has no truck"
        raise InputError(str(file), [f"{what}. Give one column of capacities for each packed quantity."])
    trucks = tuple(
        _truck(file, number, dict(zip(header, line, strict=False)), held) for number, line in enumerate(lines, 1)
    )
    if len({truck.name for truck in trucks}) < len(trucks):
        raise InputError(str(file), ["names a truck twice. Give each kind its own name."])
    return trucks


def _truck(path: Path, number: int, cells: Mapping[str, str], quantities: Sequence[str]) -> Truck:
    try:
        count = int(cells["count"]) if cells["count"].strip() else None
        cost = float(cells["cost"]) if cells["cost"].strip() else 1.0
        capacity = {name: float(cells[name]) for name in quantities}
        if (count is not None and count < 0) or not all(np.isfinite(v) and v > 0 for v in (*capacity.values(), cost)):
            raise ValueError
    except (ValueError, KeyError):
        what = "must have a whole count, a cost and capacities above 0"
        raise InputError(str(path), [Problem(what, rows=(number,), remedy="Mend the line.")]) from None
    if not cells["truck"].strip():
        raise InputError(str(path), [Problem("has no name", rows=(number,), remedy="Name the truck.")])
    return Truck(name=cells["truck"].strip(), capacity=capacity, count=count, cost=cost)


def parse_capacities(given: Sequence[str | float], units: Mapping[str, str]) -> dict[str, float]:
    """Read capacities such as ``500``, ``500kg`` or ``volume=9 m3``, and say what each is a capacity of.

    One without a name is of the quantity left over, or of the one among those left that has its unit.
    """
    texts = [str(text).strip() for text in given]
    found: dict[str, float] = {}
    for text in sorted(texts, key=lambda text: "=" not in text):  # those with a name first
        name = text.rpartition("=")[0].strip() or _quantity_of(text, units, found)
        if name not in units:
            raise ParameterError(
                f"the release has no quantity {name!r} to pack. Got capacity {text!r}. Use {_listed(units)}."
            )
        if name in found:
            raise ParameterError(f"{name} has two capacities. Got {text!r} besides another. Give one.")
        found[name] = _amount(text, name, units[name])
    return {name: found[name] for name in units if name in found}


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "another release: it has none"


def _quantity_of(text: str, units: Mapping[str, str], taken: Mapping[str, float]) -> str:
    """Say what a capacity without a name is of."""
    left = [name for name in units if name not in taken]
    fitting = [name for name in left if units[name] == _split(text)[1]] if len(left) > 1 else left
    if len(fitting) != 1:
        known = list(left or units)
        raise ParameterError(f"capacity {text!r} may be of {_listed(known)}. Name it: {known[0]}={text}.")
    return fitting[0]


def _split(text: str) -> tuple[str, str]:
    """Split an amount into number and unit; the number is empty if there is none."""
    amount = text.rpartition("=")[2].strip()
    digits = len(amount)
    while digits and not _is_number(amount[:digits]):
        digits -= 1
    return amount[:digits], amount[digits:].strip()


def _amount(text: str, quantity: str, unit: str) -> float:
    number, got_unit = _split(text)
    if not number or not float(number) > 0:
        raise ParameterError(f"capacity must be a positive number. Got {text!r}. Write 500{unit}, say.")
    if got_unit and got_unit != unit:
        raise ParameterError(
            f"{quantity} is released in {unit or 'no unit'}. Got capacity {text!r}. Give it in {unit or 'numbers'}."
        )
    return float(number)


def _is_number(text: str) -> bool:
    try:
        return bool(np.isfinite(float(text))) and text == text.strip()
    except ValueError:
        return False
