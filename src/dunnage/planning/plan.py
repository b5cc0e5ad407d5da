# SPDX-License-Identifier: Apache-2.0
"""Plan and FleetPlan: a decision made from a release, as a value and as a folder.

A packing plan says which released row goes into which bin, and the truck of each bin. A sealed plan says only how many
rows of each class a bin takes. Both state how good they are (objective, bound, gap), what they assume, how likely they
reveal the truck of a package, and what they leave unplanned.

A plan of shuttles says how many shuttles each zone gets, and where they wait for riders: ``plan.json``, ``fleet.csv``
(``zone,shuttles``) and, unless they all wait at hubs, ``parking.csv`` (``zone,from,rank,stop``). A single CSV file with
the columns of ``fleet.csv``, made by any program, is also a plan; it is marked external.
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
import pyarrow as pa
from pydantic import AfterValidator, BeforeValidator, Field

from dunnage._version import __version__
from dunnage.arrays import FloatArray, IntArray
from dunnage.errors import InputError, ParameterError, Problem
from dunnage.exact import decimal, exact, whole
from dunnage.folders import new_folder
from dunnage.model import documents
from dunnage.model.documents import Listed, Model, Number, OrEmpty, Software
from dunnage.notebooks import Displayed, Tabular
from dunnage.planning.boxes import Box
from dunnage.planning.dispatch import HOUR, Service
from dunnage.planning.models import PackingModel
from dunnage.planning.trucks import Truck
from dunnage.tables.reader import listing_rows, read_listing, write_lines
from dunnage.text import for_unit, percent, percent_at_least, percent_at_most, several

FORMAT = 1
PLAN_FILE = "plan.json"
PLAN_PAGE = "plan.html"
ASSIGNMENT_FILE = "assignment.csv"
SLOTS_FILE = "slots.csv"
SLOTS_HEADER = ("bin", "class_id", "count")
FLEET_FILE = "fleet.csv"
FLEET_HEADER = ("zone", "shuttles")
PARKING_FILE = "parking.csv"
MAX_BUS_LINES_NAMED = 5
SHIFTS_FILE, SHIFTS_HEADER = "shifts.csv", ("zone", "begin", "end", "break_begin", "break_end", "drivers")
PARKING_HEADER = ("zone", "from", "rank", "stop")
PACKING_HEADER = ("row", "bin")
PLACES_FILE = "places.csv"
PLACES_HEADER = ("row", "bin", "x", "y", "z", "dx", "dy", "dz")
_LENGTHS = ("mm", "cm", "dm", "m", "in", "inch", "ft")  # units of a length
MAX_SHUTTLES = 1_000_000  # of a zone
MAX_WHOLE = 999_999_999  # in a list of rows, bins and counts
_INVALID = "contradicts itself, or another version wrote it. Make the plan again."

# Contents of plan.json

Share = Annotated[float, Field(ge=0, le=1)]


class Certified(Model):
    """The proved probability that every bin really fits, and the basis of the proof."""

    at_least: Share
    at_most: Share
    rests_on: str = ""


class Linkage(Model):
    """How often someone who knows a package's weight, the release and the plan can name its truck."""

    mean: Share  # over released packages
    worst: Share
    kind: Literal["exact", "estimate"]
    repairs: int | None = None  # for an estimate after a repair: the number of repairs it is based on
    note: str = ""  # what this someone knows
    fills: Number | None = None  # number of ways to fill sealed slots; rounded beyond 15 digits
    points: int | None = None  # number of true values considered, if not all
    error: float | None = None  # of the mean, if it was estimated
    if_seen_to_fit: Share | None = None  # upper bound for someone who also sees that everything fitted

    def for_unit(self, unit: str) -> Linkage:
        return self.model_copy(update={"note": for_unit(self.note, unit)})


class LinkageOffer(Model):
    """The mean truck linkage that a plan with more trucks has; it was computed, but the plan is not kept."""

    extra_trucks: Annotated[int, Field(ge=1)]
    mean: Share


def linkage_text(linkage: Linkage, unit: str) -> str:
    knows = for_unit("someone who knows a package's weight", unit)
    return (
        f"{knows} can name its truck {percent(linkage.mean)} of the time on average, "
        f"{percent_at_most(linkage.worst)} in the worst case ({linkage.kind})"
    )


class Unplanned(Model):
    """Records known to travel outside a plan; None if the release does not reveal their number."""

    count: int | None
    suppressed: int | None = None
    left_out: int | None = None


class _TruckLine(Model):
    truck: str
    capacity: dict[str, Annotated[Number, Field(gt=0)]] = Field(min_length=1)
    count: Annotated[int, Field(ge=0)] | None
    cost: Annotated[Number, Field(gt=0)]


def _checked_linkage(value: float | str) -> float | str:
    if not 0 < exact(value) <= 1:
        raise ParameterError("must be more than 0 and at most 1.")
    return value


def _checked_margin(value: float | str) -> float | str:
    if not 0 <= exact(value) < 1:
        raise ParameterError("must be at least 0 and less than 1.")
    return value


def _read_box(value: object) -> object:
    try:
        return Box(**{**value, "sides": tuple(value["sides"])}) if isinstance(value, dict) else value
    except (TypeError, KeyError):
        raise ParameterError("does not describe boxes.") from None


class PlanDocument(Model):
    format: Literal[1]
    kind: Literal["packing"]
    release: str
    objective: Number
    minimises: str | None = None  # this and the next field follow from the others
    bins: int | None = None
    bound: Number
    gap: Number | None = None
    status: str
    seconds: Number
    model: PackingModel
    quantities: dict[str, str] = Field(min_length=1)
    sealed: bool = False
    box: Annotated[Box, BeforeValidator(_read_box)] | None = None  # places.csv says where each row stands
    by: str | None
    apart: str | None
    spread: Annotated[int, Field(ge=1)] | None
    margin: Annotated[Number | str, AfterValidator(_checked_margin)] | None = None  # older plans have none
    extra_trucks: Annotated[int, Field(ge=0)] | None = None  # this and the next four: older plans have none
    max_linkage: Annotated[Number | str, AfterValidator(_checked_linkage)] | None = None
    lower_linkage: Listed[LinkageOffer] = Field(default_factory=tuple)
    least_linkage: Share | None = None
    notes: Listed[str] = Field(default_factory=tuple)
    certified: OrEmpty[Certified]
    trucks: list[_TruckLine]
    protects: str = "package"  # what one row is; older plans do not say
    truck_linkage: OrEmpty[Linkage]
    unplanned: OrEmpty[Unplanned]
    software: Software | None = None


class Waits(Model):
    mean: float
    median: float
    p95: float


class Run(Model):
    """How a fleet performs: waits, and shares of its time; ``occupancy`` is the mean number of riders while busy."""

    wait_seconds: Waits
    busy_share: float
    empty_share: float
    parked_share: float
    idle_share: float
    idle_seconds: float  # per shuttle and day
    occupancy: float


class FleetSpread(Model):
    """The fleets that a zone by itself needs on single simulated days."""

    smallest: int
    mean: float
    largest: int


class ZoneFacts(Model):
    """The rides of a zone, the bound on its fleet and, if there are rides, its performance."""

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
    """The demand of an average day: trips, trips without a shuttle, shuttle rides, and shares of modes."""

    trips: float
    same_stop: float  # trips that end where they begin
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
    except TypeError:  # an unknown key, or a value that is not a number
        raise ParameterError("does not describe the service of shuttles.") from None


class FleetModel(Model):
    """What a fleet was sized for; an external plan does not say."""

    name: str
    max_wait_seconds: Number | None = None
    expansions: int | None = None
    seed: int | None = None
    day: str | None = None
    dates: int | dict[str, int] | None = None  # of the trips, if the planner stated them and not the release
    service: Annotated[Service, BeforeValidator(_read_service)] | None = None


class Shift(Model):
    """A shift of drivers of a zone, in seconds of the service day."""

    zone: str
    begin: int
    end: int
    break_begin: int | None = None
    break_end: int | None = None
    drivers: int

    @property
    def times(self) -> tuple[int | None, ...]:
        return self.begin, self.end, self.break_begin, self.break_end


class Drivers(Model):
    """The drivers of a fleet: their rule, how many there are, a bound on that, and their shifts."""

    shift_hours: Number
    break_minutes: Number
    drive_hours: Number
    number: int
    bound: int
    shifts: Listed[Shift]


class BusLine(Model):
    """The buses from one hub to another: their seats, and in each window the riders and seats of an average day."""

    origin: str
    destination: str
    seats: int  # of one bus
    headway_seconds: int
    riders: list[float]
    offered: list[float]
    seats_needed: int  # of one bus, for the fullest window
    headway_needed: int | None = None  # for the fullest window with these buses; None without riders

    @property
    def too_full(self) -> bool:
        return self.seats_needed > self.seats

    @property
    def fullest(self) -> int:
        """The window in which the largest share of seats is taken."""
        shares = [riders / seats for riders, seats in zip(self.riders, self.offered, strict=True)]
        return shares.index(max(shares))

    @property
    def taken(self) -> float:
        return self.riders[self.fullest] / self.offered[self.fullest]

    @property
    def words(self) -> str:
        at = self.fullest
        return (
            f"{self.origin} to {self.destination}: {self.riders[at]:,.1f} riders for {self.offered[at]:,.1f} seats "
            f"({self.seats} every {self.headway_seconds} s)"
        )

    @property
    def remedy(self) -> str:
        return f"{self.seats_needed:,} seats a bus, or a bus every {self.headway_needed} s"


class BusLoads(Model):
    """How full buses are: riders by the window in which they are expected to board, on an average day."""

    windows: list[str]
    lines: list[BusLine]

    @property
    def fullest_first(self) -> list[BusLine]:
        return sorted((line for line in self.lines if any(line.riders)), key=lambda line: -line.taken)

    @property
    def text_lines(self) -> list[str]:
        full = [line for line in self.fullest_first if line.too_full]
        which = f"{len(full):,} of {several(len(self.lines), 'bus line')}"
        if not full:
            most = percent(self.fullest_first[0].taken) if self.fullest_first else "0 %"
            return [
                f"Buses       none of {several(len(self.lines), 'line')} is too full; at most {most} of seats taken"
            ]
        lines = [f"Buses       {which} {'is' if len(full) == 1 else 'are'} too full"]
        for line in full[:MAX_BUS_LINES_NAMED]:
            lines.append(f"Too full    {line.words} from {self.windows[line.fullest]}; it needs {line.remedy}")
        if (more := len(full) - MAX_BUS_LINES_NAMED) > 0:
            lines.append(f"Too full    {several(more, 'other line')}")
        return lines


Waiting = Literal["posts", "requests, then posts"]
"""How shuttles wait: at their posts, or there unless the latest requests need them elsewhere. All others use hubs."""


class FleetDocument(Model):
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
    parking: dict[str, Waiting] = Field(default={})  # zones with posts, which parking.csv has; others wait at hubs
    zones: dict[str, ZoneFacts]
    operation: OrEmpty[Run]
    demand: OrEmpty[Demand]
    city: OrEmpty[CityFacts]
    drivers: Drivers | None = None
    buses: BusLoads | None = None  # if buses.csv of the city has seats
    assumed: Listed[str]
    notes: Listed[str]
    unplanned: Unplanned
    software: Software


def _plain(plan: Plan | FleetPlan, document: type[Model], **derived: object) -> dict[str, Any]:
    """Return the fields that a plan shares with its document, and those derived from others, as plain data."""
    shared = {name: getattr(plan, name) for name in document.model_fields if hasattr(plan, name)}
    derived |= {"format": FORMAT, "seconds": round(plan.seconds, 3), "software": Software(dunnage=__version__)}
    return document.model_validate(shared | derived).plain()


def _shared(plan: type[Plan | FleetPlan], stated: PlanDocument | FleetDocument) -> dict[str, Any]:
    shared = {item.name for item in fields(plan)} & type(stated).model_fields.keys()
    return {name: getattr(stated, name) for name in shared} | {"external": stated.status == "external"}


# Packages


@dataclass(frozen=True, eq=False)
class Slots:
    """A sealed plan: how many rows of each class a bin takes, one line per bin and class."""

    bin: IntArray
    class_id: IntArray
    count: IntArray

    @classmethod
    def of_assignment(cls, bin_of_row: IntArray, class_id: IntArray) -> Slots:
        num_classes = int(class_id.max()) + 1
        pairs, counts = np.unique(bin_of_row * num_classes + class_id, return_counts=True)
        return cls(pairs // num_classes, pairs % num_classes, counts.astype(np.int64))

    def table(self, num_bins: int, num_classes: int) -> IntArray:
        counts = np.zeros((num_bins, num_classes), dtype=np.int64)
        np.add.at(counts, (self.bin, self.class_id), self.count)
        return counts


@dataclass(frozen=True, eq=False, kw_only=True)
class Plan(Displayed, Tabular):
    """Which released row goes into which bin, or how many rows of each class a bin takes."""

    release: str  # digest of the certificate of the release; empty for an external plan
    bin_of_row: IntArray | None  # bin of each released row, from 0; None if the plan is sealed
    truck_of_bin: tuple[str, ...]  # name of the truck of each bin
    trucks: tuple[Truck, ...]  # the kinds of truck
    model: PackingModel  # name and parameters of the model
    bound: float  # proved: no plan of this model has a smaller objective
    seconds: float  # time taken
    quantities: Mapping[str, str]  # name and unit of each packed quantity
    slots: Slots | None = None  # only for a sealed plan
    box: Box | None = None  # box, cells: how boxes may stand; x, y, z of each row's cell and its sides along them
    cells: FloatArray | None = None
    by: str | None = None  # by, apart: public columns; rows with different values never share a truck
    apart: str | None = None
    spread: int | None = None  # no truck takes more than this part (1/spread) of a class
    margin: float | str | None = None  # share of every capacity that the plan leaves free
    extra_trucks: int | None = None  # how many trucks were allowed beyond the fewest, to lower linkage
    max_linkage: float | str | None = None  # largest mean linkage that was asked for
    lower_linkage: tuple[LinkageOffer, ...] = ()  # what more trucks would give, if linkage is high
    least_linkage: float | None = None  # if linkage is high: the lowest that any plan on the release can have
    notes: tuple[str, ...] = ()  # what would mislead someone who reads the figures alone
    certified: Certified | None = None  # how likely every bin fits in truth; None if the model proves nothing about it
    truck_linkage: Linkage | None = None  # None if the release does not state the law of its noise
    unplanned: Unplanned | None = None  # packages known to travel outside the plan
    protects: str = "package"  # what one row is, as the certificate of the release says
    external: bool = False  # whether another program made it
    private: bool = False  # whether it uses private data, and so must stay with the owner
    kind: ClassVar[str] = "packing"

    def __post_init__(self) -> None:
        if (self.bin_of_row is None) == (self.slots is None):
            raise ParameterError(
                "a plan either assigns rows to bins, or is sealed and has slots. Set bin_of_row or slots, not both."
            )
        placed = (
            self.bin_of_row is not None and self.cells is not None and self.cells.shape == (len(self.bin_of_row), 6)
        )
        if (self.box is not None or self.cells is not None) and not (self.box is not None and placed):
            raise ParameterError("a plan of boxes needs their rules and a cell for each row. Set box and cells.")

    def __repr__(self) -> str:
        return f"Plan({self.num_bins} trucks, at least {self.bound:g} needed, {self.model.name}, {self.status})"

    def to_arrow(self) -> pa.Table:
        """Give the bin and the truck of each row, or the slots of a sealed plan, as an Arrow table."""
        trucks = np.array(self.truck_of_bin, dtype=object)
        if self.slots is not None:
            columns = {"bin": self.slots.bin, "class_id": self.slots.class_id, "count": self.slots.count}
            return pa.table({**columns, "truck": trucks[self.slots.bin].tolist()})
        bins = self.assignment
        cells = {} if self.cells is None else dict(zip(PLACES_HEADER[2:], self.cells.T, strict=True))
        return pa.table({"row": np.arange(len(bins)), "bin": bins, "truck": trucks[bins].tolist(), **cells})

    @property
    def num_bins(self) -> int:
        return len(self.truck_of_bin)

    @property
    def minimises(self) -> str:
        """What the objective is: ``trucks``, or ``cost`` if there are several kinds of truck."""
        return "trucks" if len(self.trucks) == 1 else "cost"

    @property
    def objective(self) -> float:
        """The number of bins, or their total cost if there are several kinds of truck."""
        if self.minimises == "trucks":
            return self.num_bins
        costs = (exact(self.truck(name).cost, what="cost") for name in self.truck_of_bin)
        return whole_if_possible(sum(costs, Fraction(0)))

    @property
    def gap(self) -> float:
        """By how much the objective might still improve under the model."""
        return whole_if_possible(exact(self.objective, what="objective") - exact(self.bound, what="bound"))

    @property
    def assignment(self) -> IntArray:
        """The bin of each released row; a sealed plan has none."""
        if self.bin_of_row is None:
            raise ParameterError("a sealed plan does not assign rows to bins. Use its slots.")
        return self.bin_of_row

    @property
    def status(self) -> str:
        """``optimal`` if proved for the model, ``feasible`` if not, ``external`` if another program made it."""
        if self.external:
            return "external"
        return "optimal" if self.gap == 0 else "feasible"

    def truck(self, name: str) -> Truck:
        return next(truck for truck in self.trucks if truck.name == name)

    @property
    def units(self) -> dict[str, str]:
        """What a truck has a capacity for, as its owner writes it: sides of a box instead of their product."""
        if self.box is None:
            return dict(self.quantities)
        unit = self.quantities[self.box.volume].removesuffix("3")
        others = {name: unit for name, unit in self.quantities.items() if name != self.box.volume}
        return {**others, **dict.fromkeys(self.box.sides, unit)}

    def capacity_of_bins(self, quantity: str) -> npt.NDArray[np.float64]:
        rooms = {truck.name: truck.capacity[quantity] for truck in self.trucks}
        return np.array([rooms[name] for name in self.truck_of_bin])

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain data, without the assignment."""
        return _plain(
            self,
            PlanDocument,
            bins=self.num_bins,
            quantities=dict(self.quantities),
            sealed=self.slots is not None,
            trucks=[
                _TruckLine(truck=t.name, capacity=dict(t.capacity), count=t.count, cost=t.cost) for t in self.trucks
            ],
        )

    @property
    def cautions(self) -> tuple[str, ...]:
        """What would mislead someone who reads the plan alone."""
        sides = [name for name, unit in self.quantities.items() if unit in _LENGTHS]
        if len(sides) < 2 or self.box is not None:  # one length may be a length of the loading floor, which does add up
            return self.notes
        added = (
            f"{' and '.join(sides)} are lengths. The plan adds them up as it adds weights, and does not place boxes: a "
            "truck that fits by sums may not be loadable, and far fewer trucks may do. Name the sides with --box "
            "length,width,height to place boxes."
        )
        return (added, *self.notes)

    @property
    def linkage_advice(self) -> str | None:
        """What would lower a high truck linkage, with figures that were computed; None if it is not high."""
        linkage, least = self.truck_linkage, self.least_linkage
        if linkage is None or self.max_linkage is not None:
            return None
        if self.lower_linkage:
            parts = [
                f"{several(offer.extra_trucks, 'extra truck')}: about {percent(offer.mean)}"
                for offer in self.lower_linkage
            ]
            return f"{'; '.join(parts)} (--extra-trucks or --max-linkage)"
        if least is None:
            return None
        if linkage.mean <= least * (1 + 1e-9):
            return "no plan on this release can have less; larger classes (a larger k) would"
        return (
            "a few more trucks lower it little, as far as there was time to try (--extra-trucks, --time-limit); "
            + (f"--by {self.by} leaves few trucks to choose from; " if self.by is not None else "")
            + f"no plan on this release gets below {percent_at_least(least)}"
        )

    def summary(self) -> str:
        """Describe the plan for a person."""
        linkage = self.truck_linkage
        cost = f", cost {self.objective:g}" if self.minimises == "cost" else ""
        lines = [
            *(f"CAUTION     {text}" for text in self.cautions),
            f"Bins        {self.num_bins}{cost}, at least {self.bound:g} needed: {self.status}",
            f"Model       {', '.join(f'{key} {value}' for key, value in self.model.plain().items())}",
        ]
        for truck in self.trucks:
            units = self.units
            rooms = ", ".join(
                f"{q} {c:.12g} {units.get(q, '')}".strip() for q, c in truck.capacity.items() if q in units
            )
            used = f", {self.truck_of_bin.count(truck.name)} used at {truck.cost:g}" if len(self.trucks) > 1 else ""
            lines.append(f"Truck       {truck.name}: {rooms}{used}")
        if self.certified:
            low, high = self.certified.at_least, self.certified.at_most
            odds = "certainty"
            if low < 1:
                odds = f"a probability between {percent_at_least(low, 4)} and {percent_at_most(high, 4)}"
            lines.append(f"Certified   everything fits with {odds}")
            if low < 1 and self.certified.rests_on:
                lines.append(f"Based on    {self.certified.rests_on}")
        if self.box is not None:
            lines.append(f"Boxes       {self.box.words}; {PLACES_FILE} says where each {self.protects} stands")
        if self.spread is not None:
            lines.append(f"Spread      no truck takes more than 1/{self.spread} of a class")
        if self.margin is not None:
            lines.append(f"Margin      {self.margin} of every capacity is left free")
        if self.max_linkage is not None:
            lines.append(f"Extra       as many trucks as a mean linkage of at most {self.max_linkage} takes")
        elif self.extra_trucks:
            lines.append(f"Extra       up to {several(self.extra_trucks, 'truck')} beyond the fewest, to lower linkage")
        if linkage:
            lines.append(f"Linkage     {linkage_text(linkage, self.protects)}")
        if advice := self.linkage_advice:
            lines.append(f"Lower it    {advice}")
        if self.unplanned is not None and (outside := self.unplanned.count):
            travels = "travels" if outside == 1 else "travel"
            lines.append(f"Unplanned   {several(outside, self.protects)} {travels} outside the plan")
        return "\n".join([*lines, f"Seconds     {self.seconds:.2f}"])

    def write(self, folder: str | os.PathLike[str], *, page: str = "", force: bool = False) -> Path:
        """Write the plan: ``plan.json``, ``bins.csv``, ``assignment.csv`` or, sealed, ``slots.csv``, and its page."""
        if self.private:
            raise ParameterError("this plan uses true weights, so it stays with the owner. Write a settlement instead.")
        either = (
            ASSIGNMENT_FILE,
            SLOTS_FILE,
            PLACES_FILE,
            PLAN_PAGE,
        )  # a sealed plan may replace an open one, and the reverse
        with new_folder(folder, marker=PLAN_FILE, force=force, may_hold=either) as work:
            (work / PLAN_FILE).write_text(documents.to_text(self.to_dict()), encoding="utf-8")
            write_lines(work / "bins.csv", ("bin", "truck"), enumerate(self.truck_of_bin))
            if self.bin_of_row is not None:
                write_lines(work / ASSIGNMENT_FILE, ("row", "bin"), enumerate(self.bin_of_row.tolist()))
            if self.cells is not None:
                places = zip(self.assignment.tolist(), self.cells.tolist(), strict=True)
                rows = ((row, bin_, *(f"{side:.12g}" for side in cell)) for row, (bin_, cell) in enumerate(places))
                write_lines(work / PLACES_FILE, PLACES_HEADER, rows)
            if self.slots is not None:
                lines = np.column_stack([self.slots.bin, self.slots.class_id, self.slots.count])
                write_lines(work / SLOTS_FILE, SLOTS_HEADER, lines.tolist())
            if page:
                (work / PLAN_PAGE).write_text(page, encoding="utf-8")
        return Path(folder)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Plan:
        """Read a plan folder; an :class:`InputError` says what is wrong."""
        folder = Path(path)
        stated = documents.read(folder / PLAN_FILE, PlanDocument, what="a packing plan", remedy="Make the plan again.")
        _, lines = read_listing(folder / "bins.csv", ("bin", "truck"))  # bins are numbered in order from 0
        if wrong := [number for number, line in enumerate(lines, 1) if whole(line[0]) != number - 1]:
            what, remedy = "does not have the number of the next bin", "Number the bins in order from 0."
            raise InputError(str(folder / "bins.csv"), [Problem.in_rows(what, wrong, remedy=remedy)])
        truck_of_bin, slots, bin_of_row = [line[1] for line in lines], None, None
        file = folder / (SLOTS_FILE if stated.sealed else ASSIGNMENT_FILE)
        if stated.sealed:
            slots = Slots(*_whole_columns(file, SLOTS_HEADER).T)
            pairs, times = np.unique([slots.bin, slots.class_id], axis=1, return_counts=True)
            problems = []
            if (times > 1).any():
                problems.append("has two lines for the same bin and class. Write one line.")
            if not pairs.size or (slots.count < 1).any():
                problems.append("has no lines, or a count below 1. Write one line for each class that a bin takes.")
            if problems:
                raise InputError(str(file), problems)
        else:
            bin_of_row = _read_rows(file, None)
        bins = np.asarray(bin_of_row if slots is None else slots.bin)
        if len(bins) and int(bins.max()) >= len(truck_of_bin):
            what = f"{'line' if stated.sealed else 'row'} {named_rows(np.flatnonzero(bins >= len(truck_of_bin)))}"
            raise InputError(str(file), [f"{what} is in a bin without a truck. Add the bin to bins.csv."])
        own = _shared(cls, stated) | {
            "bin_of_row": bin_of_row,
            "slots": slots,
            "cells": None if stated.box is None else _read_cells(folder / PLACES_FILE, np.asarray(bin_of_row)),
            "truck_of_bin": tuple(truck_of_bin),
            "trucks": tuple(
                Truck(name=t.truck, capacity=t.capacity, count=t.count, cost=t.cost) for t in stated.trucks
            ),
        }
        try:
            plan = cls(**own)
        except ParameterError:  # sealed, and with boxes
            raise InputError(str(folder / PLAN_FILE), [_INVALID]) from None
        names = [truck.name for truck in plan.trucks]
        if (
            len(set(names)) < len(names)
            or not set(truck_of_bin) <= set(names)
            or (plan.box is not None and plan.box.volume not in plan.quantities)
            or any(not plan.quantities.keys() | plan.units.keys() <= truck.capacity.keys() for truck in plan.trucks)
            or stated.objective != plan.objective
            or plan.bound > plan.objective
        ):
            raise InputError(str(folder / PLAN_FILE), [_INVALID])
        return plan


def whole_if_possible(value: Fraction) -> float:
    return value.numerator if value.denominator == 1 else float(value)


def read_assignment(path: Path, *, num_rows: int | None = None) -> IntArray:
    """Read ``row,bin`` from any solver: the bin of each row from 0, with bins numbered 0, 1, 2 ... in order."""
    return np.unique(_read_rows(path, num_rows), return_inverse=True)[1].reshape(-1)


def _read_rows(path: Path, num_rows: int | None) -> IntArray:
    rows, bins = _whole_columns(path, ("row", "bin")).T
    distinct, times = np.unique(rows, return_counts=True)
    # Without repeats and gaps the rows are 0 to n - 1, so no array is as long as the largest number.
    wanted = np.arange(len(distinct) if num_rows is None else num_rows)
    faults = (
        (distinct[times > 1], "row {} appears more than once. Assign each row once."),
        (np.setdiff1d(wanted, distinct), "row {} is missing. Assign every row of the release."),
        (distinct[distinct >= len(wanted)] if num_rows is not None else distinct[:0], "the release has no row {}."),
    )
    problems = [text.format(named_rows(bin_of_row)) for bin_of_row, text in faults if len(bin_of_row)]
    if problems or not len(rows):
        raise InputError(str(path), problems or ["assigns no rows. Assign every row of the release."])
    bin_of_row = np.empty(len(rows), dtype=np.int64)
    bin_of_row[rows] = bins
    return bin_of_row


def _read_cells(path: Path, bin_of_row: IntArray) -> FloatArray:
    """Read ``row,bin,x,y,z,dx,dy,dz``: one line for each row, in order, in the bin of the assignment."""
    lines = read_listing(path, PLACES_HEADER)[1]
    cells = np.array([[decimal(cell) for cell in line[2 : len(PLACES_HEADER)]] for line in lines]).reshape(-1, 6)
    bins = [(whole(line[0]), whole(line[1])) for line in lines]
    if bins != list(enumerate(bin_of_row.tolist())) or not (np.isfinite(cells) & (cells >= 0)).all():
        what = (
            f"must have one line for each row of {ASSIGNMENT_FILE}, in order, with its bin and numbers of at least 0."
        )
        raise InputError(str(path), [f"{what} Make the plan again."])
    return cells


def _whole_columns(path: Path, header: Sequence[str]) -> IntArray:
    lines = [[whole(cell) for cell in line[: len(header)]] for line in read_listing(path, header)[1]]
    if wrong := [row for row, line in enumerate(lines, 1) if any(cell is None or cell > MAX_WHOLE for cell in line)]:
        remedy = f"Write whole numbers from 0 to {MAX_WHOLE:,}."
        raise InputError(str(path), [Problem.in_rows("does not have a whole number", wrong, remedy=remedy)])
    return np.array(lines, dtype=np.int64).reshape(-1, len(header))


def named_rows(numbers: IntArray) -> str:
    """List rows for an error: the first ten, and how many more there are."""
    first = ", ".join(str(number) for number in numbers[:10].tolist())
    return first + (f" (and {len(numbers) - 10} more)" if len(numbers) > 10 else "")


# Shuttles


@dataclass(frozen=True, kw_only=True)
class Posts:
    """Where the shuttles of one zone wait for riders, hour by hour."""

    waiting: Waiting
    begin: int  # second of the service day at which the first hour begins
    stops: tuple[tuple[str, ...], ...]  # of each hour, by importance: n shuttles without riders take about the first n

    @property
    def words(self) -> str:
        return "wait at stops" if self.waiting == "posts" else "follow the latest requests, or else wait at stops"


@dataclass(frozen=True, eq=False, kw_only=True)
class FleetPlan(Displayed, Tabular):
    """How many shuttles each zone of a city gets, and where they wait."""

    release: str  # digest of the certificate of the release; empty for an external plan
    zones: tuple[str, ...]  # zones, shuttles: names of the zones, and the shuttles of each
    shuttles: tuple[int, ...]
    posts: Mapping[str, Posts] = field(default_factory=dict)  # by zone; shuttles of other zones wait at hubs
    model: FleetModel | None = None  # what the fleet was sized for
    bound: int = 0  # proved but weak: no smaller fleet can meet the target on the planned trips
    seconds: float = 0.0  # seconds, probes: time taken, and number of simulated days
    probes: int = 0
    by_zone: Mapping[str, ZoneFacts] = field(default_factory=dict)  # demand and performance of each zone
    operation: Run | None = None  # performance of all zones
    demand: Demand | None = None  # of an average day
    city: CityFacts | None = None  # digest and size of the city
    drivers: Drivers | None = None  # if shifts were requested
    buses: BusLoads | None = None  # if the city says how many seats its buses have
    assumed: tuple[str, ...] = ()  # assumed, notes: assumptions of the plan, and what its reader should know
    notes: tuple[str, ...] = ()
    unplanned: Unplanned = Unplanned(count=0)  # noqa: RUF009 - it is frozen. Trips known to be outside the plan
    external: bool = False  # whether another program made it
    minimises: ClassVar[str] = "shuttles"
    kind: ClassVar[str] = "fleet"

    def __post_init__(self) -> None:
        if len(self.zones) != len(self.shuttles) or len(set(self.zones)) < len(self.zones):
            raise ParameterError("a plan of shuttles must name each zone once, with its shuttles. Correct it.")
        if any(not 0 <= number <= MAX_SHUTTLES for number in self.shuttles):
            raise ParameterError(f"a zone must have 0 to {MAX_SHUTTLES:,} shuttles. Correct the plan.")
        if not 0 <= self.bound <= self.objective:
            raise ParameterError("the bound must be from 0 to the number of shuttles in the plan. Correct it.")

    def __repr__(self) -> str:
        return f"FleetPlan({self.objective} shuttles in {len(self.zones)} zones, at least {self.bound} needed)"

    def to_arrow(self) -> pa.Table:
        """Give the shuttles of each zone as an Arrow table."""
        return pa.table({"zone": list(self.zones), "shuttles": list(self.shuttles)})

    @property
    def objective(self) -> int:
        """The shuttles of all zones."""
        return sum(self.shuttles)

    @property
    def gap(self) -> int:
        """By how many shuttles a smaller fleet might still be possible."""
        return self.objective - self.bound

    @property
    def status(self) -> str:
        """``external`` if another program made the plan, otherwise ``feasible``: it meets the target in simulation."""
        return "external" if self.external else "feasible"

    def shuttles_of(self, zones: Sequence[str], source: str = "plan") -> list[int]:
        """Return the shuttles of each zone of a city; the plan must have exactly these zones."""
        fleet = self._fleet
        problems = [
            f"has no line for zone {zone!r}. Add it, with 0 if it needs no shuttles."
            for zone in zones
            if zone not in fleet
        ]
        problems += [
            f"names {zone!r}, which is not a zone of the city. Remove it." for zone in fleet if zone not in zones
        ]
        if problems:
            raise InputError(source, problems[:20])
        return [fleet[zone] for zone in zones]

    def to_dict(self) -> dict[str, Any]:
        waiting = {zone: own.waiting for zone, own in self.posts.items()}
        content = _plain(self, FleetDocument, fleet=self._fleet, parking=waiting, zones=dict(self.by_zone))
        return {k: v for k, v in content.items() if v is not None or k not in ("drivers", "buses")}

    def summary(self) -> str:
        """Describe the plan for a person."""
        bound = "" if self.external else f", at least {self.bound} needed"
        lines = [f"Shuttles    {self.objective}{bound}: {self.status}"]
        for zone, number in self._fleet.items():
            lines.append(f"Zone        {zone}: {several(number, 'shuttle')}")
            if (facts := self.by_zone.get(zone)) is None:
                continue
            lines[-1] += f" for {several(round(facts.legs), 'ride')} a day"
            if facts.wait_seconds is not None:
                lines[-1] += f", mean wait {facts.wait_seconds.mean:.0f} s"
            if (spread := facts.spread) is not None:
                largest = "" if spread.smallest == spread.largest else f" to {spread.largest}"
                lines[-1] += f"; single days by themselves need {spread.smallest}{largest}"
        if (run := self.operation) is not None:
            wait = run.wait_seconds
            lines += [
                f"Wait        {wait.mean:.0f} s on average; median {wait.median:.0f} s; 95 % at most {wait.p95:.0f} s",
                f"Running     {percent(run.busy_share)} of the time with riders, "
                f"{percent(run.empty_share)} driving empty, {percent(run.parked_share)} parked; "
                f"{run.occupancy:.2f} riders on board while busy",
            ]
        if (demand := self.demand) is not None:
            modes = sorted(((share, mode) for mode, share in demand.modes.items() if share > 0), reverse=True)
            lines += [
                f"Planned for {several(round(demand.trips), 'trip')} a day with "
                f"{several(round(demand.legs), 'shuttle ride')}; trips without a shuttle: "
                f"{round(demand.without_shuttle):,}, of which {demand.same_stop:,.0f} end where they begin",
                f"Modes       {', '.join(f'{mode} {percent(share)}' for share, mode in modes) or 'none'}",
            ]
        if self.posts:
            lines.append(f"Parking     {PARKING_FILE} says where shuttles wait for riders in each hour")
        if (drivers := self.drivers) is not None:
            lines.append(
                f"Drivers     {drivers.number} a day, at least {drivers.bound} needed; {SHIFTS_FILE} lists them"
            )
        lines += self.buses.text_lines if self.buses is not None else []
        lines += [f"Assumes     {sentence}" for sentence in self.assumed]
        lines += [f"Note        {sentence}" for sentence in self.notes]
        if not self.external:
            lines.append(f"Seconds     {self.seconds:.2f}, {several(self.probes, 'day')} simulated")
        return "\n".join(lines)

    @property
    def _fleet(self) -> dict[str, int]:
        return dict(zip(self.zones, self.shuttles, strict=True))

    def write(self, folder: str | os.PathLike[str], *, page: str = "", force: bool = False) -> Path:
        """Write the plan: ``plan.json``, ``fleet.csv``, ``parking.csv``, ``shifts.csv`` and its page ``plan.html``."""
        with new_folder(folder, marker=PLAN_FILE, force=force, may_hold=(PLAN_PAGE, PARKING_FILE, SHIFTS_FILE)) as work:
            (work / PLAN_FILE).write_text(documents.to_text(self.to_dict()), encoding="utf-8")
            write_lines(work / FLEET_FILE, FLEET_HEADER, list(self._fleet.items()))
            if self.posts:
                lines = (
                    (zone, _clock(own.begin + hour * HOUR), rank, stop)
                    for zone, own in self.posts.items()
                    for hour, stops in enumerate(own.stops)
                    for rank, stop in enumerate(stops, 1)
                )
                write_lines(work / PARKING_FILE, PARKING_HEADER, lines)
            if self.drivers is not None:
                shifts = (
                    (one.zone, *(_clock(at) if at is not None else "" for at in one.times), one.drivers)
                    for one in self.drivers.shifts
                )
                write_lines(work / SHIFTS_FILE, SHIFTS_HEADER, shifts)
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
        remedy = "Use a plan made by dunnage size."
        stated = documents.read(place / PLAN_FILE, FleetDocument, what="a plan of shuttles", remedy=remedy)
        zones, shuttles = _read_fleet(place / FLEET_FILE)
        posts = _read_posts(place / PARKING_FILE, stated.parking) if stated.parking else {}
        try:
            own = {"zones": zones, "shuttles": shuttles, "posts": posts, "by_zone": stated.zones}
            plan = cls(**_shared(cls, stated) | own)
            same = (stated.fleet, stated.objective, stated.gap) == (plan._fleet, plan.objective, plan.gap)
        except ParameterError:
            same = False
        if not same or not stated.zones.keys() | stated.parking.keys() <= set(zones):
            raise InputError(str(place / PLAN_FILE), [_INVALID])
        return plan


def is_fleet_plan(path: str | os.PathLike[str]) -> bool:
    """Return whether a folder or CSV file is a plan of shuttles; False if it cannot be read."""
    try:
        return states_fleet_plan(path)
    except InputError:
        return False


def states_fleet_plan(path: str | os.PathLike[str]) -> bool:
    """Return whether a folder or CSV file is a plan of shuttles (True) or of packages (False)."""
    place = Path(path)
    if place.is_dir():
        file = place / PLAN_FILE
        content = documents.load_json(file, what="a plan folder", remedy="Make the plan again.")
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise InputError(str(file), [f"is not a plan of format {FORMAT}. Use a newer version of Dunnage."])
        if content.get("kind") not in ("packing", "fleet"):
            what = "is a plan of neither packages nor shuttles. Use a plan made by dunnage pack or dunnage size."
            raise InputError(str(file), [what])
        return bool(content["kind"] == "fleet")
    try:
        header = next(listing_rows(place), [])
    except OSError as error:
        raise InputError(
            str(place), [f"cannot be read: {error.strerror}. Name a plan: a folder or a CSV file."]
        ) from None
    except (ValueError, csv.Error):  # not UTF-8, or an impossible path
        raise InputError(str(place), ["is neither a plan folder nor a CSV file in UTF-8. Name a plan."]) from None
    begins = tuple(name.strip() for name in header[:2])
    if begins not in (PACKING_HEADER, FLEET_HEADER):
        first = f"{','.join(PACKING_HEADER)} for packages, or {','.join(FLEET_HEADER)} for shuttles"
        raise InputError(str(place), [f"is not a plan. The first line must be {first}."])
    return begins == FLEET_HEADER


def _read_fleet(path: Path) -> tuple[tuple[str, ...], tuple[int, ...]]:
    lines = read_listing(path, FLEET_HEADER)[1]
    zones, shuttles = tuple(line[0].strip() for line in lines), tuple(whole(line[1]) or 0 for line in lines)
    seen, problems = set[str](), []
    for row, line in enumerate(lines, 1):
        if len(line) != len(FLEET_HEADER) or not zones[row - 1]:
            problems.append(Problem("is not a zone and its shuttles", rows=(row,), remedy="Correct the line."))
        elif whole(line[1]) is None or shuttles[row - 1] > MAX_SHUTTLES:
            remedy = f"Write a whole number up to {MAX_SHUTTLES:,}."
            problems.append(Problem("does not have a whole number of shuttles", rows=(row,), remedy=remedy))
        if zones[row - 1] in seen:
            problems.append(Problem("repeats a zone", rows=(row,), remedy="Keep one line per zone."))
        seen.add(zones[row - 1])
    if problems or not lines:
        raise InputError(str(path), problems[:20] or ["names no zone. Write one line zone,shuttles for each zone."])
    return zones, shuttles


def _clock(seconds: int) -> str:
    return f"{seconds // 3600:02d}:{seconds % 3600 // 60:02d}"


def _read_posts(path: Path, waiting: Mapping[str, Waiting]) -> dict[str, Posts]:
    """Read ``zone,from,rank,stop``: for each zone hour after hour, each with the same number of stops by rank."""
    hours: dict[str, dict[str, list[str]]] = {zone: {} for zone in waiting}
    problems = []
    for row, line in enumerate(read_listing(path, PARKING_HEADER)[1], 1):
        zone, start, rank, stop = (cell.strip(" \t") for cell in line[: len(PARKING_HEADER)])
        if zone not in hours:
            remedy = f"Remove the line: {PLAN_FILE} has no such zone with posts."
            problems.append(Problem("names another zone", rows=(row,), remedy=remedy))
            continue
        stops = hours[zone].setdefault(start, [])
        if whole(rank) != len(stops) + 1 or not stop:
            problems.append(Problem("does not have the next rank and a stop", rows=(row,), remedy="Correct the line."))
        stops.append(stop)
    posts = {}
    for zone, own in hours.items():
        begin = _second(next(iter(own), ""))
        regular = begin is not None and list(own) == [_clock(begin + hour * HOUR) for hour in range(len(own))]
        if begin is None or not regular or len(set(map(len, own.values()))) > 1:
            what = f"must have every hour of zone {zone!r} in order, such as 06:00 and 07:00, with as many stops each."
            problems.append(Problem(what))
            continue
        posts[zone] = Posts(waiting=waiting[zone], begin=begin, stops=tuple(map(tuple, own.values())))
    if problems:
        raise InputError(str(path), problems[:20])
    return posts


def _second(clock: str) -> int | None:
    """Return the second of a time of the service day such as 06:30, which may be past 24:00; None if it is not one."""
    hours, _, minutes = clock.partition(":")
    right = all(part.isascii() and part.isdecimal() and len(part) == 2 for part in (hours, minutes))
    return int(hours) * 3600 + int(minutes) * 60 if right and int(minutes) < 60 else None
