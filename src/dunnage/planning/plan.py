# SPDX-License-Identifier: Apache-2.0
"""Plan and FleetPlan: a decision made from a release, as a value and as a folder.

A packing plan says which released row goes into which bin, and which truck each bin is. A sealed one says only how many
rows of each class a bin takes. Either states how good it is (objective, bound, gap), what it assumed, how likely it
betrays a package's truck, and what it leaves unplanned.

A plan of shuttles says how many each zone gets: ``plan.json`` and ``fleet.csv`` (``zone,shuttles``). A bare CSV file
with these two columns, made by anybody, is a plan too: it is marked external.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator, BeforeValidator, Field

from dunnage._version import __version__
from dunnage.arrays import IntArray
from dunnage.errors import InputError, ParameterError, Problem
from dunnage.exact import exact
from dunnage.folders import new_folder
from dunnage.model import documents
from dunnage.model.documents import Model, Number, OrEmpty, Software
from dunnage.planning.dispatch import Service
from dunnage.planning.models import PackingModel
from dunnage.planning.trucks import Truck
from dunnage.tables.reader import listing_rows, read_listing, write_lines
from dunnage.text import several

FORMAT = 1
PLAN_FILE = "plan.json"
PLAN_PAGE = "plan.html"
ASSIGNMENT_FILE = "assignment.csv"
SLOTS_FILE = "slots.csv"
SLOTS_HEADER = ("bin", "class_id", "count")
FLEET_FILE = "fleet.csv"
FLEET_HEADER = ("zone", "shuttles")
PACKING_HEADER = ("row", "bin")
MAX_SHUTTLES = 1_000_000  # of a zone
_OTHER_VERSION = "is not a plan of this version. Make it anew."
# What plan.json says

Share = Annotated[float, Field(ge=0, le=1)]


class Certified(Model):
    """What is proved of the truth: how likely every bin fits, and what that rests on."""

    at_least: Share
    at_most: Share
    rests_on: str = ""


class Linkage(Model):
    """How likely someone who knows a package's weight, the release and the plan names its truck."""

    mean: Share  # over released packages
    worst: Share
    kind: Literal["exact", "estimate"]
    repairs: int | None = None  # how many repairs an estimate after a repair rests on
    note: str = ""  # who is meant
    fills: Number | None = None  # how many ways to fill sealed slots there are; beyond 15 digits rounded
    points: int | None = None  # how many true values were looked at, if not all
    error: float | None = None  # of the mean, where it was estimated
    if_seen_to_fit: Share | None = None  # at most, for someone who also sees that everything fitted


def linkage_text(linkage: Linkage) -> str:
    return (
        f"who knows a weight names its truck with {linkage.mean:.1%} on average, {linkage.worst:.1%} at worst "
        f"({linkage.kind})"
    )


class Unplanned(Model):
    """Records known to travel outside a plan; None where the release keeps their number to itself."""

    count: int | None
    suppressed: int | None = None
    left_out: int | None = None


class _TruckLine(Model):
    truck: str
    capacity: dict[str, Annotated[Number, Field(gt=0)]] = Field(min_length=1)
    count: Annotated[int, Field(ge=0)] | None
    cost: Annotated[Number, Field(gt=0)]


def _checked_margin(value: float | str) -> float | str:
    if not 0 <= exact(value) < 1:
        raise ParameterError("must be at least 0 and below 1.")
    return value


class PlanDocument(Model):
    """What ``plan.json`` of a packing plan states."""

    format: Literal[1]
    kind: Literal["packing"]
    release: str
    objective: Number
    minimises: str | None = None  # it and the next follow from the rest
    bins: int | None = None
    bound: Number
    gap: Number | None = None
    status: str
    seconds: Number
    model: PackingModel
    quantities: dict[str, str] = Field(min_length=1)
    sealed: bool = False
    by: str | None
    apart: str | None
    spread: Annotated[int, Field(ge=1)] | None
    margin: Annotated[Number | str, AfterValidator(_checked_margin)] | None = None  # plans of before had none
    certified: OrEmpty[Certified]
    trucks: list[_TruckLine]
    truck_linkage: OrEmpty[Linkage]
    unplanned: OrEmpty[Unplanned]
    software: Software | None = None


class Waits(Model):
    mean: float
    median: float
    p95: float


class Run(Model):
    """How a fleet runs: waits, and shares of its time; ``occupancy`` is riders aboard when there are some."""

    wait_seconds: Waits
    busy_share: float
    empty_share: float
    parked_share: float
    idle_share: float
    idle_seconds: float  # of a shuttle and day
    occupancy: float


class FleetSpread(Model):
    """The fleets that single expansions need, the zone by itself."""

    smallest: int
    mean: float
    largest: int


class ZoneFacts(Model):
    """What a zone is planned for, what bounds its fleet, and how it runs, if anybody rides there."""

    legs: float
    bound: int
    solo_cover: int  # for orientation only
    spread: OrEmpty[FleetSpread]
    wait_seconds: OrEmpty[Waits]
    busy_share: float | None = None
    empty_share: float | None = None
    parked_share: float | None = None
    idle_share: float | None = None
    idle_seconds: float | None = None
    occupancy: float | None = None


class Demand(Model):
    """What an average day asks for: trips, those that need no shuttle, shuttle rides, and shares of modes."""

    trips: float
    same_stop: float  # to where they began
    without_shuttle: float
    legs: float
    modes: dict[str, float]


class CityFacts(Model):
    digest: str
    stops: int
    zones: int


def _read_service(value: object) -> object:
    try:
        return Service(**value) if isinstance(value, dict) else value
    except TypeError:  # another key, or no number
        raise ParameterError("does not say how shuttles serve.") from None


class FleetModel(Model):
    """What a fleet was sized for; somebody else's plan says none of it."""

    name: str
    max_wait_seconds: Number | None = None
    expansions: int | None = None
    seed: int | None = None
    day: str | None = None
    service: Annotated[Service, BeforeValidator(_read_service)] | None = None


class FleetDocument(Model):
    """What ``plan.json`` of a plan of shuttles states."""

    format: Literal[1]
    kind: Literal["fleet"]
    release: str
    objective: int
    minimises: str
    bound: int
    gap: int
    status: str
    seconds: Number
    probes: int
    model: OrEmpty[FleetModel]
    fleet: dict[str, int]
    zones: dict[str, ZoneFacts]
    operation: OrEmpty[Run]
    demand: OrEmpty[Demand]
    city: OrEmpty[CityFacts]
    assumed: list[str]
    notes: list[str]
    unplanned: Unplanned
    software: Software


# Packages


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
        counts = np.zeros((num_bins, num_classes), dtype=np.int64)
        np.add.at(counts, (self.bin, self.class_id), self.count)
        return counts


@dataclass(frozen=True, eq=False, kw_only=True)
class Plan:
    """Which released row goes into which bin, or how many of which class."""

    release: str  # digest of the certificate of the release that was planned on; empty for somebody else's plan
    bin_of_row: IntArray | None  # bin of each released row, from 0; None if the plan is sealed
    truck_of_bin: tuple[str, ...]  # name of the truck each bin is
    trucks: tuple[Truck, ...]  # the kinds of truck
    model: PackingModel  # name and parameters of the model
    bound: float  # no plan of this model has a smaller objective: proved
    seconds: float  # time taken
    quantities: Mapping[str, str]  # what is packed: name and unit of each quantity
    slots: Slots | None = None  # for a sealed plan, how many rows of each class a bin takes
    by: str | None = None  # by, apart: public columns whose values never share a truck, if any
    apart: str | None = None
    spread: int | None = None  # no truck takes more than this part (1/spread) of a class
    margin: float | str | None = None  # part of every capacity that the plan left free
    certified: Certified | None = None  # how likely every bin fits in truth; None for a model that proves nothing of it
    truck_linkage: Linkage | None = None  # None if the release does not say how its noise was drawn
    unplanned: Unplanned | None = None  # packages known to travel outside the plan
    external: bool = False  # whether somebody else made it
    private: bool = False  # whether it was made with private knowledge, and so must not be handed out

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
        rooms = {truck.name: truck.capacity[quantity] for truck in self.trucks}
        return np.array([rooms[name] for name in self.truck_of_bin])

    def to_dict(self) -> dict[str, Any]:
        """Give everything but the assignment as plain data."""
        stated = {name: getattr(self, name) for name in PlanDocument.model_fields if hasattr(self, name)}
        trucks = [_TruckLine(truck=t.name, capacity=dict(t.capacity), count=t.count, cost=t.cost) for t in self.trucks]
        derived = {
            "format": FORMAT,
            "kind": "packing",
            "bins": self.num_bins,
            "seconds": round(self.seconds, 3),
            "quantities": dict(self.quantities),
            "sealed": self.slots is not None,
            "trucks": trucks,
            "software": Software(dunnage=__version__),
        }
        return PlanDocument.model_validate(stated | derived).plain()

    def summary(self) -> str:
        """Describe the plan for a person."""
        linkage = self.truck_linkage
        cost = f", cost {self.objective:g}" if self.minimises == "cost" else ""
        lines = [
            f"Bins        {self.num_bins}{cost}, at least {self.bound:g} needed: {self.status}",
            f"Model       {', '.join(f'{key} {value}' for key, value in self.model.plain().items())}",
        ]
        for truck in self.trucks:
            rooms = ", ".join(f"{q} {c:g} {self.quantities.get(q, '')}".strip() for q, c in truck.capacity.items())
            used = f", {self.truck_of_bin.count(truck.name)} used at {truck.cost:g}" if len(self.trucks) > 1 else ""
            lines.append(f"Truck       {truck.name}: {rooms}{used}")
        if self.certified:
            low, high = self.certified.at_least, self.certified.at_most
            lines.append(f"Certified   everything fits with probability {low:.4f} at least, {high:.4f} at most")
            if low < 1 and self.certified.rests_on:
                lines.append(f"Rests on    {self.certified.rests_on}")
        if self.spread is not None:
            lines.append(f"Spread      no truck takes more than 1/{self.spread} of a class")
        if self.margin is not None:
            lines.append(f"Margin      {self.margin} of every capacity was left free")
        if linkage:
            lines.append(f"Linkage     {linkage_text(linkage)}")
        if self.unplanned is not None and (outside := self.unplanned.count):
            lines.append(f"Unplanned   {outside} package{' travels' if outside == 1 else 's travel'} outside the plan")
        return "\n".join([*lines, f"Seconds     {self.seconds:.2f}"])

    def write(self, folder: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write the plan: ``plan.json``, ``bins.csv``, and ``assignment.csv`` or, sealed, ``slots.csv``."""
        if self.private:
            raise ParameterError("this plan was made on true weights and stays with the owner. Write a settlement.")
        either = (ASSIGNMENT_FILE, SLOTS_FILE)  # a sealed plan may replace another, and the reverse
        with new_folder(folder, marker=PLAN_FILE, force=force, may_hold=either) as work:
            (work / PLAN_FILE).write_text(documents.to_text(self.to_dict()), encoding="utf-8")
            write_lines(work / "bins.csv", ("bin", "truck"), enumerate(self.truck_of_bin))
            if self.bin_of_row is not None:
                write_lines(work / ASSIGNMENT_FILE, ("row", "bin"), enumerate(self.bin_of_row.tolist()))
            if self.slots is not None:
                lines = np.column_stack([self.slots.bin, self.slots.class_id, self.slots.count])
                write_lines(work / SLOTS_FILE, SLOTS_HEADER, lines.tolist())
        return Path(folder)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Plan:
        """Read a plan folder; an :class:`InputError` says what is wrong with it."""
        folder = Path(path)
        stated = documents.read(folder / PLAN_FILE, PlanDocument, what="a packing plan", remedy="Make the plan anew.")
        _, lines = read_listing(folder / "bins.csv", ("bin", "truck"))  # bins are numbered from 0 in order
        wrong = [number for number, line in enumerate(lines, 1) if line[0].strip() != str(number - 1)]
        if wrong:
            next_bin = Problem(
                "is not the next bin", rows=tuple(wrong[:20]), num_rows=len(wrong), remedy="Number them from 0."
            )
            raise InputError(str(folder / "bins.csv"), [next_bin])
        truck_of_bin, slots, bin_of_row = [line[1] for line in lines], None, None
        file = folder / (SLOTS_FILE if stated.sealed else ASSIGNMENT_FILE)
        if stated.sealed:
            slots = Slots(*_whole_columns(file, SLOTS_HEADER).T)
            pairs, times = np.unique([slots.bin, slots.class_id], axis=1, return_counts=True)
            problems = []
            if (times > 1).any():
                problems.append("has two lines for one bin and class. Give one line each.")
            if not pairs.size or (slots.count < 1).any():
                problems.append("has no line, or a count below 1. Give one line for each class a bin takes.")
            if problems:
                raise InputError(str(file), problems)
        else:
            bin_of_row = _read_rows(file, None)
        bins = np.asarray(bin_of_row if slots is None else slots.bin)
        if len(bins) and int(bins.max()) >= len(truck_of_bin):
            what = f"{'line' if stated.sealed else 'row'} {named_rows(np.flatnonzero(bins >= len(truck_of_bin)))}"
            raise InputError(
                str(file), [f"{what} is in a bin without a truck. Name the truck of every bin in bins.csv."]
            )
        plan = cls(
            **{item.name: getattr(stated, item.name) for item in fields(cls) if hasattr(stated, item.name)}
            | {
                "bin_of_row": bin_of_row,
                "slots": slots,
                "truck_of_bin": tuple(truck_of_bin),
                "trucks": tuple(
                    Truck(name=t.truck, capacity=t.capacity, count=t.count, cost=t.cost) for t in stated.trucks
                ),
                "external": stated.status == "external",
            }
        )
        names = [truck.name for truck in plan.trucks]
        if (
            len(set(names)) < len(names)
            or not set(truck_of_bin) <= set(names)
            or any(not plan.quantities.keys() <= truck.capacity.keys() for truck in plan.trucks)
            or stated.objective != plan.objective
            or plan.bound > plan.objective
        ):
            raise InputError(str(folder / PLAN_FILE), [_OTHER_VERSION])
        return plan


def whole_if_possible(value: Fraction) -> float:
    """Return a whole number as one, and anything else as the nearest double."""
    return value.numerator if value.denominator == 1 else float(value)


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
    problems = [text.format(named_rows(bin_of_row)) for bin_of_row, text in faults if len(bin_of_row)]
    if problems or not len(rows):
        raise InputError(str(path), problems or ["assigns no row. Assign every row of the release."])
    bin_of_row = np.empty(len(rows), dtype=np.int64)
    bin_of_row[rows] = bins
    return bin_of_row


def _whole_columns(path: Path, header: Sequence[str]) -> IntArray:
    """Read lines of whole numbers. Shape: lines by columns."""
    lines = [[cell.strip() for cell in line[: len(header)]] for line in read_listing(path, header)[1]]
    wrong = [
        number for number, line in enumerate(lines, 1) if not all(cell.isdecimal() and len(cell) < 10 for cell in line)
    ]
    if wrong:
        remedy = "Write whole numbers from 0, below a thousand million."
        raise InputError(
            str(path), [Problem("holds no whole number", rows=tuple(wrong[:20]), num_rows=len(wrong), remedy=remedy)]
        )
    return np.array([[int(cell) for cell in line] for line in lines], dtype=np.int64).reshape(-1, len(header))


def named_rows(numbers: IntArray) -> str:
    """Name rows in an error: the first ten, and how many more."""
    named = ", ".join(str(number) for number in numbers[:10].tolist())
    return named + (f" (and {len(numbers) - 10} more)" if len(numbers) > 10 else "")


# Shuttles


@dataclass(frozen=True, eq=False, kw_only=True)
class FleetPlan:
    """How many shuttles each zone of a city gets."""

    release: str  # digest of the certificate of the release that was planned on; empty for somebody else's plan
    zones: tuple[str, ...]  # zones, shuttles: names of the zones, and the shuttles of each
    shuttles: tuple[int, ...]
    model: FleetModel | None = None  # what was asked for
    bound: int = 0  # no smaller fleet can meet the target on the trips that were planned for: proved, and weak
    seconds: float = 0.0  # seconds, probes: time taken, and how many days were simulated
    probes: int = 0
    by_zone: Mapping[str, ZoneFacts] = field(default_factory=dict)  # what each zone is planned for, and how it runs
    operation: Run | None = None  # how all zones run
    demand: Demand | None = None  # what was planned for, on an average day
    city: CityFacts | None = None  # digest of the city that was planned in, and its size
    assumed: tuple[str, ...] = ()  # assumed, notes: what the plan takes for granted, and what its reader should know
    notes: tuple[str, ...] = ()
    unplanned: Unplanned = Unplanned(count=0)  # noqa: RUF009 - it is frozen. Trips known to be made outside the plan
    external: bool = False  # whether somebody else made it
    minimises: ClassVar[str] = "shuttles"

    def __post_init__(self) -> None:
        if len(self.zones) != len(self.shuttles) or len(set(self.zones)) < len(self.zones):
            raise ParameterError("a plan of shuttles names each zone once, with its shuttles. Mend zones and shuttles.")
        if any(not 0 <= number <= MAX_SHUTTLES for number in self.shuttles):
            raise ParameterError(f"a zone has 0 to {MAX_SHUTTLES:,} shuttles. Got another number. Mend the plan.")
        if not 0 <= self.bound <= self.objective:
            raise ParameterError("a bound is at least 0 and at most the shuttles of the plan. Mend it.")

    @property
    def objective(self) -> int:
        """Shuttles of all zones."""
        return sum(self.shuttles)

    @property
    def gap(self) -> int:
        """How many shuttles fewer might still be possible."""
        return self.objective - self.bound

    @property
    def status(self) -> str:
        """``external`` for somebody else's plan, otherwise ``feasible``: it meets the target in the simulation."""
        return "external" if self.external else "feasible"

    def shuttles_of(self, zones: Sequence[str], source: str = "plan") -> list[int]:
        """Return the shuttles of each zone of a city; an error if the plan lacks one of the zones, or has another."""
        fleet = self._fleet
        problems = [f"has no line for zone {zone!r}. Add it, with 0 if need be." for zone in zones if zone not in fleet]
        problems += [f"names {zone!r}, which is no zone of the city. Remove it." for zone in fleet if zone not in zones]
        if problems:
            raise InputError(source, problems[:20])
        return [fleet[zone] for zone in zones]

    def to_dict(self) -> dict[str, Any]:
        """Give the plan as plain data."""
        stated = {name: getattr(self, name) for name in FleetDocument.model_fields if hasattr(self, name)}
        derived = {
            "format": FORMAT,
            "kind": "fleet",
            "seconds": round(self.seconds, 3),
            "fleet": self._fleet,
            "zones": dict(self.by_zone),
            "assumed": list(self.assumed),
            "notes": list(self.notes),
            "software": Software(dunnage=__version__),
        }
        return FleetDocument.model_validate(stated | derived).plain()

    def summary(self) -> str:
        """Describe the plan for a person."""
        least = "" if self.external else f", at least {self.bound} needed"
        lines = [f"Shuttles    {self.objective}{least}: {self.status}"]
        for zone, number in self._fleet.items():
            lines.append(f"Zone        {zone}: {several(number, 'shuttle')}")
            if (facts := self.by_zone.get(zone)) is None:
                continue
            lines[-1] += f" for {several(round(facts.legs), 'ride')} a day"
            if facts.wait_seconds is not None:
                lines[-1] += f", wait {facts.wait_seconds.mean:.0f} s"
            if (spread := facts.spread) is not None:
                largest = "" if spread.smallest == spread.largest else f" to {spread.largest}"
                lines[-1] += f"; by itself {spread.smallest}{largest} for single days"
        if (run := self.operation) is not None:
            wait = run.wait_seconds
            lines += [
                f"Wait        {wait.mean:.0f} s on average, median {wait.median:.0f}, 95 % at most {wait.p95:.0f}",
                f"Running     {run.busy_share:.1%} of the time with riders, {run.empty_share:.1%} driving empty, "
                f"{run.parked_share:.1%} parked; {run.occupancy:.2f} riders aboard when busy",
            ]
        if (demand := self.demand) is not None:
            modes = sorted(((share, mode) for mode, share in demand.modes.items() if share > 0), reverse=True)
            lines += [
                f"Planned for {several(round(demand.trips), 'trip')} a day with "
                f"{several(round(demand.legs), 'shuttle ride')}; without one {round(demand.without_shuttle):,}, "
                f"of which {demand.same_stop:,.0f} to where they began",
                f"Modes       {', '.join(f'{mode} {share:.1%}' for share, mode in modes) or 'none'}",
            ]
        lines += [f"Assumes     {sentence}" for sentence in self.assumed]
        lines += [f"Note        {sentence}" for sentence in self.notes]
        if not self.external:
            lines.append(f"Seconds     {self.seconds:.2f}, {several(self.probes, 'day')} simulated")
        return "\n".join(lines)

    @property
    def _fleet(self) -> dict[str, int]:
        return dict(zip(self.zones, self.shuttles, strict=True))

    def write(self, folder: str | os.PathLike[str], *, page: str = "", force: bool = False) -> Path:
        """Write the plan: ``plan.json``, ``fleet.csv`` and, if given, its page ``plan.html``."""
        with new_folder(folder, marker=PLAN_FILE, force=force, may_hold=(PLAN_PAGE,)) as work:
            (work / PLAN_FILE).write_text(documents.to_text(self.to_dict()), encoding="utf-8")
            write_lines(work / FLEET_FILE, FLEET_HEADER, list(self._fleet.items()))
            if page:
                (work / PLAN_PAGE).write_text(page, encoding="utf-8")
        return Path(folder)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> FleetPlan:
        """Read a plan folder, or a bare CSV file ``zone,shuttles``; an :class:`InputError` says what is wrong."""
        place = Path(path)
        if not place.is_dir():
            zones, shuttles = _read_fleet(place)
            return cls(release="", zones=zones, shuttles=shuttles, model=FleetModel(name="external"), external=True)
        remedy = "Give one that size made."
        stated = documents.read(place / PLAN_FILE, FleetDocument, what="a plan of shuttles", remedy=remedy)
        zones, shuttles = _read_fleet(place / FLEET_FILE)
        try:
            plan = cls(
                **{item.name: getattr(stated, item.name) for item in fields(cls) if hasattr(stated, item.name)}
                | {
                    "zones": zones,
                    "shuttles": shuttles,
                    "by_zone": stated.zones,
                    "assumed": tuple(stated.assumed),
                    "notes": tuple(stated.notes),
                    "external": stated.status == "external",
                }
            )
            same = (stated.fleet, stated.objective, stated.gap) == (plan._fleet, plan.objective, plan.gap)
        except ParameterError:
            same = False
        if not same or not stated.zones.keys() <= set(zones):
            raise InputError(str(place / PLAN_FILE), [_OTHER_VERSION])
        return plan


def is_fleet_plan(path: str | os.PathLike[str]) -> bool:
    """Tell whether a folder or CSV file is a plan of shuttles; what cannot be read is none."""
    try:
        return told_fleet_plan(path)
    except InputError:
        return False


def told_fleet_plan(path: str | os.PathLike[str]) -> bool:
    """Tell whether a folder or CSV file is a plan of shuttles, or else one of packages."""
    place = Path(path)
    if place.is_dir():
        file = place / PLAN_FILE
        content = documents.load_json(file, what="a plan folder", remedy="Make the plan anew.")
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise InputError(str(file), [f"is not a plan of format {FORMAT}. Use a newer version of Dunnage."])
        if content.get("kind") not in ("packing", "fleet"):
            what = "is a plan neither of packages nor of shuttles. Give one that pack or size made."
            raise InputError(str(file), [what])
        return bool(content["kind"] == "fleet")
    try:
        header = next(listing_rows(place), [])
    except OSError as error:
        raise InputError(str(place), [f"cannot be read: {error.strerror}. Give a plan: a folder or a CSV."]) from None
    except (ValueError, csv.Error):  # not UTF-8, or a path that no file can have
        raise InputError(str(place), ["is neither a plan folder nor a CSV file in UTF-8. Give one."]) from None
    begins = tuple(name.strip() for name in header[:2])
    if begins not in (PACKING_HEADER, FLEET_HEADER):
        what = (
            f"is no plan: a CSV file begins with {','.join(PACKING_HEADER)} for packages, or {','.join(FLEET_HEADER)} "
            "for shuttles. Mend the first line."
        )
        raise InputError(str(place), [what])
    return begins == FLEET_HEADER


def _read_fleet(path: Path) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Read ``zone,shuttles``: every zone once, with a whole number."""
    lines = [[cell.strip() for cell in line] for line in read_listing(path, FLEET_HEADER)[1]]
    zones, seen, problems = tuple(line[0] for line in lines), set[str](), []
    for row, line in enumerate(lines, 1):
        if len(line) != len(FLEET_HEADER) or not line[0]:
            problems.append(Problem("is not a zone and its shuttles", rows=(row,), remedy="Mend the line."))
        elif not (line[1].isascii() and line[1].isdecimal() and len(line[1]) < 8 and int(line[1]) <= MAX_SHUTTLES):
            remedy = f"Write a whole number up to {MAX_SHUTTLES:,}."
            problems.append(Problem("has no whole number of shuttles", rows=(row,), remedy=remedy))
        if line[0] in seen:
            problems.append(Problem("names a zone a second time", rows=(row,), remedy="Remove one."))
        seen.add(line[0])
    if problems or not lines:
        raise InputError(str(path), problems[:20] or ["names no zone. Give a line zone,shuttles for each."])
    return zones, tuple(int(line[1]) for line in lines)
