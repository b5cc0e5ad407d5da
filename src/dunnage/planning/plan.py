# SPDX-License-Identifier: Apache-2.0
"""Plan: a decision made from a release, as a value and as a folder.

A packing plan says which released row goes into which bin, and which truck each bin is. It states how good it is
(objective, bound, gap), what it assumed, how likely it betrays a package's truck, and what it leaves unplanned.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from dunnage._version import __version__
from dunnage.errors import InputError, ParameterError, Problem
from dunnage.folders import new_folder
from dunnage.release import Release

FORMAT = 1
PLAN_FILE = "plan.json"
MOST_PLAN_BYTES = 1 << 30
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Truck:
    """A kind of truck: its name, what it holds of each quantity, how many there are, what one costs."""

    name: str
    capacity: Mapping[str, float]
    count: int | None = None
    cost: float = 1.0


@dataclass(frozen=True, eq=False, kw_only=True)
class Plan:
    """Which released row goes into which bin.

    Parameters
    ----------
    release
        Digest of the certificate of the release that was planned on; empty for somebody else's plan.
    bin_of_row
        Bin of each released row, from 0.
    truck_of_bin
        Name of the truck each bin is.
    trucks
        The kinds of truck.
    model
        Name and parameters of the model, as plain data.
    bound
        No plan of this model has fewer bins: proved.
    seconds
        Time taken.
    unit
        Unit of the packed quantity.
    by
        Public column whose values are packed apart, if any.
    truck_linkage
        How likely an attacker who knows a package's weight, the release and the plan names its truck.
    unplanned
        Packages known to travel outside the plan.
    external
        Whether somebody else made it.
    private
        Whether it was made with private knowledge, and so must not be handed out.
    """

    release: str
    bin_of_row: IntArray
    truck_of_bin: tuple[str, ...]
    trucks: tuple[Truck, ...]
    model: Mapping[str, Any]
    bound: int
    seconds: float
    unit: str = ""
    by: str | None = None
    truck_linkage: Mapping[str, Any] = field(default_factory=dict)
    unplanned: Mapping[str, Any] = field(default_factory=dict)
    external: bool = False
    private: bool = False

    @property
    def objective(self) -> int:
        """Number of bins."""
        return len(self.truck_of_bin)

    @property
    def gap(self) -> int:
        """How many bins fewer might still be possible under the model."""
        return self.objective - self.bound

    @property
    def status(self) -> str:
        """``optimal`` if proved for the model, ``feasible`` if not, ``external`` for somebody else's plan."""
        if self.external:
            return "external"
        return "optimal" if self.gap == 0 else "feasible"

    def truck(self, name: str) -> Truck:
        """Return a kind of truck by its name."""
        return next(truck for truck in self.trucks if truck.name == name)

    def capacity_of_bins(self, quantity: str) -> npt.NDArray[np.float64]:
        """Return what each bin holds of a quantity."""
        held = {truck.name: truck.capacity[quantity] for truck in self.trucks}
        return np.array([held[name] for name in self.truck_of_bin])

    def to_dict(self) -> dict[str, Any]:
        """Give everything but the assignment as plain data."""
        return {
            "format": FORMAT,
            "kind": "packing",
            "release": self.release,
            "objective": self.objective,
            "bound": self.bound,
            "gap": self.gap,
            "status": self.status,
            "seconds": round(self.seconds, 3),
            "model": dict(self.model),
            "unit": self.unit,
            "by": self.by,
            "trucks": [
                {"truck": t.name, "capacity": dict(t.capacity), "count": t.count, "cost": t.cost} for t in self.trucks
            ],
            "truck_linkage": dict(self.truck_linkage),
            "unplanned": dict(self.unplanned),
            "software": {"dunnage": __version__},
        }

    def summary(self) -> str:
        """Describe the plan for a person."""
        linkage = self.truck_linkage
        lines = [
            f"Bins        {self.objective}, at least {self.bound} needed: {self.status}",
            f"Model       {', '.join(f'{key} {value}' for key, value in self.model.items())}",
            *(
                f"Truck       {t.name}: {', '.join(f'{q} {c:g} {self.unit}'.strip() for q, c in t.capacity.items())}"
                for t in self.trucks
            ),
        ]
        if linkage:
            lines.append(
                f"Linkage     who knows a weight names its truck with {linkage['mean']:.1%} on average, "
                f"{linkage['worst']:.1%} at worst ({linkage['kind']})"
            )
        if self.unplanned.get("count"):
            lines.append(f"Unplanned   {self.unplanned['count']} packages travel outside the plan")
        return "\n".join([*lines, f"Seconds     {self.seconds:.2f}"])

    def write(self, folder: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write the plan: ``plan.json``, ``bins.csv`` and ``assignment.csv``."""
        if self.private:
            raise ParameterError("this plan was made on true weights and stays with the owner. Write a settlement.")
        with new_folder(folder, marker=PLAN_FILE, force=force) as work:
            text = json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
            (work / PLAN_FILE).write_text(text, encoding="utf-8")
            _write_csv(work / "bins.csv", ("bin", "truck"), enumerate(self.truck_of_bin))
            _write_csv(work / "assignment.csv", ("row", "bin"), enumerate(self.bin_of_row.tolist()))
        return Path(folder)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Plan:
        """Read a plan folder.

        Raises
        ------
        InputError
            With what is wrong, if it is not a plan.
        """
        folder = Path(path)
        content = _plan_json(folder / PLAN_FILE)
        truck_of_bin = _read_bins(folder / "bins.csv")
        bin_of_row = _read_rows(folder / "assignment.csv", None)
        if len(bin_of_row) and int(bin_of_row.max()) >= len(truck_of_bin):
            what = f"row {named_rows(np.flatnonzero(bin_of_row >= len(truck_of_bin)))} is in a bin without a truck"
            raise InputError(str(folder / "assignment.csv"), [f"{what}. Name the truck of every bin in bins.csv."])
        try:
            return cls._of(content, truck_of_bin, bin_of_row)
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
            raise InputError(str(folder / PLAN_FILE), ["is not a plan of this version. Make it anew."]) from None

    @classmethod
    def _of(cls, content: Mapping[str, Any], truck_of_bin: Sequence[str], bin_of_row: IntArray) -> Plan:
        """Make a plan of what its files hold; whatever does not fit raises."""
        plan = cls(
            release=_typed(content["release"], str),
            bin_of_row=bin_of_row,
            truck_of_bin=tuple(truck_of_bin),
            trucks=tuple(_truck_from(truck) for truck in content["trucks"]),
            model=_typed(content["model"], dict),
            bound=_typed(content["bound"], int),
            seconds=_number(content["seconds"]),
            unit=_typed(content["unit"], str),
            by=_typed(content["by"], str, type(None)),
            truck_linkage=_linkage_from(content["truck_linkage"]),
            unplanned=_typed(content["unplanned"], dict),
            external=_typed(content["status"], str) == "external",
        )
        names = [truck.name for truck in plan.trucks]
        if (
            len(set(names)) < len(names)
            or not set(truck_of_bin) <= set(names)
            or content["objective"] != plan.objective
        ):
            raise ValueError
        return plan


def _typed(value: Any, *kinds: type) -> Any:
    if type(value) not in kinds:
        raise TypeError
    return value


def _number(value: Any) -> float:
    number = float(_typed(value, int, float))
    if not np.isfinite(number):
        raise ValueError
    return number


def _truck_from(content: Mapping[str, Any]) -> Truck:
    capacity = {quantity: _number(held) for quantity, held in content["capacity"].items()}
    count, cost = _typed(content["count"], int, type(None)), _number(content["cost"])
    if min(capacity.values()) <= 0 or (count is not None and count < 0):
        raise ValueError
    return Truck(name=_typed(content["truck"], str), capacity=capacity, count=count, cost=cost)


def _linkage_from(content: Any) -> dict[str, Any]:
    linkage: dict[str, Any] = _typed(content, dict)
    if linkage:
        _number(linkage["mean"]), _number(linkage["worst"]), _typed(linkage["kind"], str)
    return linkage


def _plan_json(path: Path) -> Mapping[str, Any]:
    try:
        if path.stat().st_size > MOST_PLAN_BYTES:
            raise InputError(str(path), ["is too large to be a plan. Check the path."])
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise InputError(str(path), [f"cannot be read: {error.strerror}. Give a plan folder."]) from None
    except (ValueError, RecursionError):  # a number too long to read is a ValueError too
        raise InputError(str(path), ["is not JSON. Make the plan anew."]) from None
    if not isinstance(content, dict) or content.get("format") != FORMAT or content.get("kind") != "packing":
        raise InputError(str(path), [f"is not a packing plan of format {FORMAT}. Use a newer version of Dunnage."])
    return content


def _write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def _read_csv(path: Path, header: Sequence[str]) -> list[list[str]]:
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


def _read_bins(path: Path) -> list[str]:
    """Read ``bin,truck`` and return the truck of each bin, numbered from 0 in order."""
    lines = _read_csv(path, ("bin", "truck"))
    wrong = [number for number, line in enumerate(lines, 1) if line[0].strip() != str(number - 1)]
    if wrong:
        what = Problem("is not the next bin", rows=tuple(wrong[:20]), num_rows=len(wrong), remedy="Number them from 0.")
        raise InputError(str(path), [what])
    return [line[1] for line in lines]


def read_assignment(path: Path, *, num_rows: int | None = None) -> IntArray:
    """Read ``row,bin`` of any solver and return the bin of each row; every row from 0 must be there once.

    Bins may be numbered with gaps; they are returned as 0, 1, 2 ... in the same order.

    Parameters
    ----------
    path
        The CSV file.
    num_rows
        How many rows the release has, if that is known.

    Raises
    ------
    InputError
        If a row is missing, doubled or not of the release, or a cell is no whole number.
    """
    bins = _read_rows(path, num_rows)
    return np.unique(bins, return_inverse=True)[1].reshape(-1)


def _read_rows(path: Path, num_rows: int | None) -> IntArray:
    rows, bins = _whole_columns(path)
    distinct, times = np.unique(rows, return_counts=True)
    # Without doubles and gaps the rows are 0 to n - 1, so nothing as long as the largest number is ever made.
    wanted = np.arange(len(distinct) if num_rows is None else num_rows)
    faults = (
        (distinct[times > 1], "row {} stands in it more than once. Assign each row once."),
        (np.setdiff1d(wanted, distinct), "row {} is missing. Assign every row of the release."),
        (distinct[distinct >= len(wanted)] if num_rows is not None else distinct[:0], "the release has no row {}."),
    )
    problems = [text.format(named_rows(found)) for found, text in faults if len(found)]
    if problems or not len(rows):
        raise InputError(str(path), problems or ["assigns no row. Assign every row of the release."])
    found = np.empty(len(rows), dtype=np.int64)
    found[rows] = bins
    return found


def _whole_columns(path: Path) -> tuple[IntArray, IntArray]:
    lines = _read_csv(path, ("row", "bin"))
    wrong = [n for n, line in enumerate(lines, 1) if not (_is_whole(line[0]) and _is_whole(line[1]))]
    if wrong:
        remedy = "Write whole numbers from 0, below a thousand million."
        raise InputError(
            str(path), [Problem("holds no whole number", rows=tuple(wrong[:20]), num_rows=len(wrong), remedy=remedy)]
        )
    cells = np.array([[int(line[0]), int(line[1])] for line in lines], dtype=np.int64).reshape(-1, 2)
    return cells[:, 0], cells[:, 1]


def _is_whole(cell: str) -> bool:
    return cell.strip().isdecimal() and len(cell.strip()) < 10


def named_rows(numbers: IntArray) -> str:
    """Name rows in an error: the first ten, and how many more."""
    named = ", ".join(str(number) for number in numbers[:10].tolist())
    return named + (f" (and {len(numbers) - 10} more)" if len(numbers) > 10 else "")


def combinations(release: Release, names: Sequence[str]) -> IntArray:
    """Give each released row the number of its combination of values in some columns."""
    codes = np.zeros(len(release), dtype=np.int64)
    for name in names:
        own = release.data.column(name).combine_chunks().dictionary_encode().indices
        numbers = pc.fill_null(own, -1).to_numpy(zero_copy_only=False).astype(np.int64) + 1
        codes = np.unique(codes * (int(numbers.max()) + 1) + numbers, return_inverse=True)[1].reshape(-1)
    return codes


def rows_by_group(codes: IntArray) -> list[IntArray]:
    """Return the rows of each number, in the order of the numbers."""
    order = np.argsort(codes, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(codes[order])) + 1)


def exchangeable(release: Release) -> IntArray:
    """Give a number to the released rows that nobody can tell apart: same class, equal public and sensitive values."""
    told = [name for name, item in release.attributes.items() if item["role"] in ("public", "sensitive")]
    return combinations(release, ["class_id", *told])


LINKAGE_NOTE = (
    "the best guess of someone who knows the weight, public and sensitive values of one released package, the release "
    "and the plan, but no outcome and no second package"
)


def truck_linkage(group: IntArray, bin_of_row: IntArray) -> dict[str, Any]:
    """Return how likely someone who knows a package's values, the release and the plan names its truck.

    Rows of a group are exchangeable, so the truck of a package of the group is each truck with the share of the
    group's rows that go there; the best guess is the largest share. ``mean`` is over released packages.

    Parameters
    ----------
    group
        Group of exchangeable rows each row is in, as :func:`exchangeable` numbers them.
    bin_of_row
        Bin of each row.

    Examples
    --------
    >>> truck_linkage(np.array([0, 0, 0, 1]), np.array([0, 0, 1, 1]))["mean"]
    0.75
    """
    _, largest, sizes = _largest_shares(group, bin_of_row)
    mean, worst = float(largest.sum() / sizes.sum()), float((largest / sizes).max())
    return {"mean": mean, "worst": worst, "kind": "exact", "note": LINKAGE_NOTE}


def linkage_of_rows(group: IntArray, bin_of_row: IntArray) -> npt.NDArray[np.float64]:
    """Return for each row the best guess that :func:`truck_linkage` summarises."""
    group, largest, sizes = _largest_shares(group, bin_of_row)
    return np.asarray((largest / sizes)[group])


def _largest_shares(group: IntArray, bin_of_row: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Return the group of each row from 0 on, and for each group its most rows in one bin and its size."""
    num_bins = int(bin_of_row.max()) + 1
    _, group, sizes = np.unique(group, return_inverse=True, return_counts=True)
    pairs, counts = np.unique(group * num_bins + bin_of_row, return_counts=True)
    largest = np.zeros(len(sizes), dtype=np.int64)
    np.maximum.at(largest, pairs // num_bins, counts)
    return group, largest, sizes


def read_trucks(path: str | os.PathLike[str], quantities: Sequence[str]) -> tuple[Truck, ...]:
    """Read ``trucks.csv``: ``truck,count,cost`` and one column per capacity.

    Raises
    ------
    InputError
        If a column is missing, a number makes no sense, or a name stands twice.
    """
    file = Path(path)
    lines = _read_csv(file, ("truck", "count", "cost"))
    with file.open(newline="", encoding="utf-8-sig") as stream:
        header = [name.strip() for name in next(csv.reader(stream))]
    absent = [name for name in quantities if name not in header]
    if absent or not lines:
        what = f"has no column {', '.join(absent)}" if absent else "has no truck"
        raise InputError(str(file), [f"{what}. Give one column of capacities for each packed quantity."])
    trucks = tuple(
        _truck(file, number, dict(zip(header, line, strict=False)), quantities) for number, line in enumerate(lines, 1)
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


def parse_capacity(text: str | float, quantity: str, unit: str) -> float:
    """Read a capacity such as ``500``, ``500kg`` or ``weight=500 kg`` and check its unit.

    Raises
    ------
    ParameterError
        If it is no positive number, or its unit or quantity is another.
    """
    given = str(text).strip()
    name, _, amount = given.rpartition("=")
    number = amount.strip()
    digits = len(number)
    while digits and not _is_number(number[:digits]):
        digits -= 1
    got_unit = number[digits:].strip()
    if name and name.strip() != quantity:
        raise ParameterError(
            f"the release has no quantity {name.strip()!r} to pack. Got capacity {given!r}. Use {quantity}."
        )
    if not digits or not float(number[:digits]) > 0:
        raise ParameterError(f"capacity must be a positive number. Got {given!r}. Write 500{unit}, say.")
    if got_unit and got_unit != unit:
        raise ParameterError(
            f"{quantity} is released in {unit or 'no unit'}. Got capacity {given!r}. Give it in {unit or 'numbers'}."
        )
    return float(number[:digits])


def _is_number(text: str) -> bool:
    try:
        return bool(np.isfinite(float(text))) and text == text.strip()
    except ValueError:
        return False
