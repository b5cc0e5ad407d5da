# SPDX-License-Identifier: Apache-2.0
"""Plan: a decision made from a release, as a value and as a folder.

A packing plan says which released row goes into which bin, and which truck each bin is. A sealed one says only how many
rows of each class a bin takes. Either states how good it is (objective, bound, gap), what it assumed, how likely it
betrays a package's truck, and what it leaves unplanned.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dunnage._version import __version__
from dunnage.arrays import IntArray
from dunnage.errors import InputError, ParameterError, Problem
from dunnage.exact import exact
from dunnage.folders import new_folder
from dunnage.planning.trucks import Truck, read_lines, write_lines

FORMAT = 1
PLAN_FILE = "plan.json"
ASSIGNMENT_FILE = "assignment.csv"
SLOTS_FILE = "slots.csv"
SLOTS_HEADER = ("bin", "class_id", "count")
MOST_PLAN_BYTES = 1 << 30


@dataclass(frozen=True, eq=False)
class Slots:
    """What a sealed plan says: how many rows of which class a bin takes, one line each."""

    bin: IntArray
    class_id: IntArray
    count: IntArray

    @classmethod
    def of_assignment(cls, bin_of_row: IntArray, class_id: IntArray) -> Slots:
        """Forget which row goes where, and keep how many of each class."""
        num_classes = int(class_id.max()) + 1
        pairs, counts = np.unique(bin_of_row * num_classes + class_id, return_counts=True)
        return cls(pairs // num_classes, pairs % num_classes, counts.astype(np.int64))

    def table(self, num_bins: int, num_classes: int) -> IntArray:
        """Return the counts as a table of bins by classes."""
        found = np.zeros((num_bins, num_classes), dtype=np.int64)
        np.add.at(found, (self.bin, self.class_id), self.count)
        return found


@dataclass(frozen=True, eq=False, kw_only=True)
class Plan:
    """Which released row goes into which bin, or how many of which class.

    Parameters
    ----------
    release
        Digest of the certificate of the release that was planned on; empty for somebody else's plan.
    bin_of_row
        Bin of each released row, from 0; None if the plan is sealed.
    slots
        For a sealed plan, how many rows of each class a bin takes.
    truck_of_bin
        Name of the truck each bin is.
    trucks
        The kinds of truck.
    model
        Name and parameters of the model, as plain data.
    bound
        No plan of this model has a smaller objective: proved.
    seconds
        Time taken.
    quantities
        What is packed: name and unit of each quantity.
    by, apart
        Public columns whose values never share a truck, if any.
    spread
        No truck takes more than this part (1/spread) of a class; None if that was not asked for.
    margin
        Part of every capacity that the plan left free; None if that was not asked for.
    certified
        What is proved of the truth: between which bounds lies the probability that every bin fits, and what that rests
        on; empty for a model that proves nothing of the kind.
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
    bin_of_row: IntArray | None
    truck_of_bin: tuple[str, ...]
    trucks: tuple[Truck, ...]
    model: Mapping[str, Any]
    bound: float
    seconds: float
    quantities: Mapping[str, str]
    slots: Slots | None = None
    by: str | None = None
    apart: str | None = None
    spread: int | None = None
    margin: float | str | None = None
    certified: Mapping[str, Any] = field(default_factory=dict)
    truck_linkage: Mapping[str, Any] = field(default_factory=dict)
    unplanned: Mapping[str, Any] = field(default_factory=dict)
    external: bool = False
    private: bool = False

    def __post_init__(self) -> None:
        if (self.bin_of_row is None) == (self.slots is None):
            raise ParameterError("a plan either assigns rows to bins or is sealed and has slots. Give one of the two.")

    @property
    def num_bins(self) -> int:
        """Number of bins in use."""
        return len(self.truck_of_bin)

    @property
    def minimises(self) -> str:
        """What the objective is: ``trucks``, or ``cost`` if there are several kinds of truck."""
        return "trucks" if len(self.trucks) == 1 else "cost"

    @property
    def objective(self) -> float:
        """Number of bins, or what they cost together if there are several kinds of truck."""
        if self.minimises == "trucks":
            return self.num_bins
        return whole_if_possible(
            sum((exact(self.truck(name).cost, what="cost") for name in self.truck_of_bin), Fraction(0))
        )

    @property
    def gap(self) -> float:
        """How much smaller an objective might still be possible under the model."""
        return whole_if_possible(exact(self.objective, what="objective") - exact(self.bound, what="bound"))

    @property
    def assignment(self) -> IntArray:
        """The bin of each released row; an error for a sealed plan."""
        if self.bin_of_row is None:
            raise ParameterError("a sealed plan assigns no row to a bin. Use its slots.")
        return self.bin_of_row

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
            "minimises": self.minimises,
            "bins": self.num_bins,
            "bound": self.bound,
            "gap": self.gap,
            "status": self.status,
            "seconds": round(self.seconds, 3),
            "model": dict(self.model),
            "quantities": dict(self.quantities),
            "sealed": self.slots is not None,
            "by": self.by,
            "apart": self.apart,
            "spread": self.spread,
            "margin": self.margin,
            "certified": dict(self.certified),
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
            f"Bins        {self.num_bins}{self._least_text()}: {self.status}",
            f"Model       {', '.join(f'{key} {value}' for key, value in self.model.items())}",
            *(f"Truck       {self._truck_text(truck)}" for truck in self.trucks),
        ]
        if self.certified:
            low, high = self.certified["at_least"], self.certified["at_most"]
            lines.append(f"Certified   everything fits with probability {low:.4f} at least, {high:.4f} at most")
            if low < 1 and self.certified.get("rests_on"):
                lines.append(f"Rests on    {self.certified['rests_on']}")
        if self.spread is not None:
            lines.append(f"Spread      no truck takes more than 1/{self.spread} of a class")
        if self.margin is not None:
            lines.append(f"Margin      {self.margin} of every capacity was left free")
        if linkage:
            lines.append(
                f"Linkage     who knows a weight names its truck with {linkage['mean']:.1%} on average, "
                f"{linkage['worst']:.1%} at worst ({linkage['kind']})"
            )
        if self.unplanned.get("count"):
            outside = self.unplanned["count"]
            lines.append(f"Unplanned   {outside} package{' travels' if outside == 1 else 's travel'} outside the plan")
        return "\n".join([*lines, f"Seconds     {self.seconds:.2f}"])

    def _least_text(self) -> str:
        if self.minimises == "cost":
            return f", cost {self.objective:g}, at least {self.bound:g} needed"
        return f", at least {self.bound:g} needed"

    def _truck_text(self, truck: Truck) -> str:
        held = ", ".join(f"{q} {c:g} {self.quantities.get(q, '')}".strip() for q, c in truck.capacity.items())
        used = f", {self.truck_of_bin.count(truck.name)} used at {truck.cost:g}" if len(self.trucks) > 1 else ""
        return f"{truck.name}: {held}{used}"

    def write(self, folder: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write the plan: ``plan.json``, ``bins.csv``, and ``assignment.csv`` or, sealed, ``slots.csv``."""
        if self.private:
            raise ParameterError("this plan was made on true weights and stays with the owner. Write a settlement.")
        either = (ASSIGNMENT_FILE, SLOTS_FILE)  # a sealed plan may replace another, and the reverse
        with new_folder(folder, marker=PLAN_FILE, force=force, may_hold=either) as work:
            text = json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
            (work / PLAN_FILE).write_text(text, encoding="utf-8")
            write_lines(work / "bins.csv", ("bin", "truck"), enumerate(self.truck_of_bin))
            if self.bin_of_row is not None:
                write_lines(work / ASSIGNMENT_FILE, ("row", "bin"), enumerate(self.bin_of_row.tolist()))
            if self.slots is not None:
                lines = np.column_stack([self.slots.bin, self.slots.class_id, self.slots.count])
                write_lines(work / SLOTS_FILE, SLOTS_HEADER, lines.tolist())
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
        sealed = content.get("sealed", False)
        if type(sealed) is not bool:
            raise InputError(str(folder / PLAN_FILE), ["does not say whether the plan is sealed. Make it anew."])
        filled = _read_slots(folder / SLOTS_FILE) if sealed else _read_rows(folder / ASSIGNMENT_FILE, None)
        bins = filled.bin if isinstance(filled, Slots) else filled
        if len(bins) and int(bins.max()) >= len(truck_of_bin):
            what = f"{'line' if sealed else 'row'} {named_rows(np.flatnonzero(bins >= len(truck_of_bin)))}"
            file = folder / (SLOTS_FILE if sealed else ASSIGNMENT_FILE)
            raise InputError(
                str(file), [f"{what} is in a bin without a truck. Name the truck of every bin in bins.csv."]
            )
        try:
            return cls._of(content, truck_of_bin, filled)
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
            raise InputError(str(folder / PLAN_FILE), ["is not a plan of this version. Make it anew."]) from None

    @classmethod
    def _of(cls, content: Mapping[str, Any], truck_of_bin: Sequence[str], filled: IntArray | Slots) -> Plan:
        """Make a plan of what its files hold; whatever does not fit raises."""
        plan = cls(
            release=_typed(content["release"], str),
            bin_of_row=None if isinstance(filled, Slots) else filled,
            slots=filled if isinstance(filled, Slots) else None,
            truck_of_bin=tuple(truck_of_bin),
            trucks=tuple(_truck_from(truck) for truck in content["trucks"]),
            model=_typed(content["model"], dict),
            bound=_bound_from(content["bound"]),
            seconds=_number(content["seconds"]),
            quantities={name: _typed(unit, str) for name, unit in content["quantities"].items()},
            by=_typed(content["by"], str, type(None)),
            apart=_typed(content["apart"], str, type(None)),
            spread=_spread_from(content["spread"]),
            margin=_margin_from(content.get("margin")),  # plans of before had none
            certified=_certified_from(content["certified"]),
            truck_linkage=_linkage_from(content["truck_linkage"]),
            unplanned=_typed(content["unplanned"], dict),
            external=_typed(content["status"], str) == "external",
        )
        names = [truck.name for truck in plan.trucks]
        if (
            len(set(names)) < len(names)
            or not set(truck_of_bin) <= set(names)
            or not plan.quantities
            or any(not plan.quantities.keys() <= truck.capacity.keys() for truck in plan.trucks)
            or content["objective"] != plan.objective
            or plan.bound > plan.objective
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


def _share(value: Any) -> float:
    number = _number(value)
    if not 0 <= number <= 1:
        raise ValueError
    return number


def _spread_from(value: Any) -> int | None:
    spread: int | None = _typed(value, int, type(None))
    if spread is not None and spread < 1:
        raise ValueError
    return spread


def _margin_from(value: Any) -> float | str | None:
    margin: float | str | None = _typed(value, int, float, str, type(None))
    if margin is not None and not 0 <= exact(margin) < 1:
        raise ValueError
    return margin


def _truck_from(content: Mapping[str, Any]) -> Truck:
    capacity = {quantity: _number(held) for quantity, held in content["capacity"].items()}
    count, cost = _typed(content["count"], int, type(None)), _number(content["cost"])
    if min(capacity.values()) <= 0 or cost <= 0 or (count is not None and count < 0):
        raise ValueError
    return Truck(name=_typed(content["truck"], str), capacity=capacity, count=count, cost=cost)


def whole_if_possible(value: Fraction) -> float:
    """Return a whole number as one, and anything else as the nearest double."""
    return value.numerator if value.denominator == 1 else float(value)


def _bound_from(content: Any) -> float:
    _number(content)
    return content  # type: ignore[no-any-return]


def _certified_from(content: Any) -> dict[str, Any]:
    certified: dict[str, Any] = _typed(content, dict)
    if certified:
        _share(certified["at_least"]), _share(certified["at_most"])
    return certified


def _linkage_from(content: Any) -> dict[str, Any]:
    linkage: dict[str, Any] = _typed(content, dict)
    if linkage:
        _share(linkage["mean"]), _share(linkage["worst"]), _typed(linkage["kind"], str)
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


def _read_bins(path: Path) -> list[str]:
    """Read ``bin,truck`` and return the truck of each bin, numbered from 0 in order."""
    lines = read_lines(path, ("bin", "truck"))
    wrong = [number for number, line in enumerate(lines, 1) if line[0].strip() != str(number - 1)]
    if wrong:
        what = Problem("is not the next bin", rows=tuple(wrong[:20]), num_rows=len(wrong), remedy="Number them from 0.")
        raise InputError(str(path), [what])
    return [line[1] for line in lines]


def _read_slots(path: Path) -> Slots:
    """Read ``bin,class_id,count``; no line may stand twice, and every count is 1 or more."""
    cells = _whole_columns(path, SLOTS_HEADER)
    pairs, times = np.unique(cells[:, :2], axis=0, return_counts=True)
    problems = []
    if (times > 1).any():
        problems.append("has two lines for one bin and class. Give one line each.")
    if not len(pairs) or (cells[:, 2] < 1).any():
        problems.append("has no line, or a count below 1. Give one line for each class a bin takes.")
    if problems:
        raise InputError(str(path), problems)
    return Slots(cells[:, 0], cells[:, 1], cells[:, 2])


def read_assignment(path: Path, *, num_rows: int | None = None) -> IntArray:
    """Read ``row,bin`` of any solver and return the bin of each row; every row from 0 must be there once.

    Bins may be numbered with gaps; they are returned as 0, 1, 2 ... in the same order.
    """
    bins = _read_rows(path, num_rows)
    return np.unique(bins, return_inverse=True)[1].reshape(-1)


def _read_rows(path: Path, num_rows: int | None) -> IntArray:
    rows, bins = _whole_columns(path, ("row", "bin")).T
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


def _whole_columns(path: Path, header: Sequence[str]) -> IntArray:
    """Read lines of whole numbers. Shape: lines by columns."""
    lines = [line[: len(header)] for line in read_lines(path, header)]
    wrong = [number for number, line in enumerate(lines, 1) if not all(map(_is_whole, line))]
    if wrong:
        remedy = "Write whole numbers from 0, below a thousand million."
        raise InputError(
            str(path), [Problem("holds no whole number", rows=tuple(wrong[:20]), num_rows=len(wrong), remedy=remedy)]
        )
    return np.array([[int(cell) for cell in line] for line in lines], dtype=np.int64).reshape(-1, len(header))


def _is_whole(cell: str) -> bool:
    return cell.strip().isdecimal() and len(cell.strip()) < 10


def named_rows(numbers: IntArray) -> str:
    """Name rows in an error: the first ten, and how many more."""
    named = ", ".join(str(number) for number in numbers[:10].tolist())
    return named + (f" (and {len(numbers) - 10} more)" if len(numbers) > 10 else "")
