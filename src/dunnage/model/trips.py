# SPDX-License-Identifier: Apache-2.0
"""Trips: the columns that say where and when someone travelled, and the universe of trip types. Public facts only.

A trip type, or *cell*, is an origin, a destination, a window of time and, if days are counted separately, a day. Origin
and destination are stops or, at the level of zones, the zones of stops. The number of a cell is
``((day * windows + window) * stops + origin) * destinations + destination``; ``slot`` is ``day * windows + window`` and
``pair`` is ``origin * destinations + destination``. Boardings have no destination: there is one, without a name. There
may be billions of cells, so nothing here is as long as all of them: every public column is a function of the pair or of
the slot.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from dunnage.arrays import IntArray
from dunnage.errors import ParameterError
from dunnage.model.domains import Ordinal, Stops, Windows, domain_from

if TYPE_CHECKING:
    from dunnage.model.city import City

PAIR_COLUMNS = ("origin", "destination", "origin_zone", "destination_zone", "mode")
SLOT_COLUMNS = ("day", "window")
COLUMNS = (*PAIR_COLUMNS, *SLOT_COLUMNS)
Level = Literal["stop", "zone"]
# The released columns of origin and destination at each level.
END_COLUMNS: Mapping[Level, tuple[str, str]] = {
    "stop": ("origin", "destination"),
    "zone": ("origin_zone", "destination_zone"),
}
MAX_CELLS = 1 << 62
_MAX_LISTED = 1 << 24


@dataclass(frozen=True, kw_only=True)
class Trip:
    origin: str
    destination: str | None = None  # None for boardings: only where trips begin is known
    time: str  # When it began
    count: str | None = None  # The number of trips of a row; None if each row is one trip
    day: str | None = None  # The label of the day, if a column names it
    level: Level = "stop"  # Whether trips are counted between stops or between their zones

    def __post_init__(self) -> None:
        if self.level not in get_args(Level):
            raise ParameterError(f"level must be {' or '.join(get_args(Level))}. Got {self.level!r}.")
        if len(set(self.columns)) < len(self.columns):
            raise ParameterError(f"the parts of a trip must be different columns. Got {', '.join(self.columns)}.")

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(name for name in (self.origin, self.destination, self.time, self.count, self.day) if name)

    @property
    def ends(self) -> tuple[str, ...]:
        """The released columns of the origin and, if it is known, of the destination."""
        return END_COLUMNS[self.level][: 1 if self.destination is None else 2]


@dataclass(frozen=True, eq=False, kw_only=True)
class Grouping:
    """A partition as a table: the class of each member, from 0 without gaps."""

    codes: NDArray[np.int32]  # Class of each member
    num: int  # Number of classes

    @classmethod
    def whole(cls, size: int) -> Grouping:
        return cls(codes=np.zeros(size, dtype=np.int32), num=1)

    @classmethod
    def joined(cls, parts: Sequence[Grouping], size: int) -> Grouping:
        """Return the coarsest partition that is finer than all parts; empty classes do not count."""
        joined = cls.whole(size)
        for part in parts:
            if part.num == size or joined.num == 1:  # the finest partition, or nothing to join with
                joined = part if joined.num < size else joined
            elif part.num > 1:
                joined = cls.of(joined.codes.astype(np.int64) * part.num + part.codes)
        return joined

    @classmethod
    def of(cls, labels: IntArray) -> Grouping:
        """Give labels, which are not negative, numbers in their order, without gaps."""
        if len(labels) and int(labels.max()) > _MAX_LISTED:
            distinct, codes = np.unique(labels, return_inverse=True)
            return cls(codes=codes.astype(np.int32), num=len(distinct))
        occurs = np.bincount(labels) > 0  # a table of labels is faster than sorting
        return cls(codes=(np.cumsum(occurs, dtype=np.int32) - 1)[labels].astype(np.int32), num=int(occurs.sum()))

    @cached_property
    def sizes(self) -> IntArray:
        return np.bincount(self.codes, minlength=self.num)

    @cached_property
    def _order(self) -> tuple[IntArray, NDArray[np.int32], IntArray]:
        """Members class by class, the rank of each in its class, and where classes begin."""
        order = np.argsort(self.codes, kind="stable")
        firsts = np.concatenate(([0], np.cumsum(self.sizes)[:-1]))
        ranks = np.empty(len(order), dtype=np.int32)
        ranks[order] = np.arange(len(order)) - np.repeat(firsts, self.sizes)
        return order, ranks, firsts

    def codes_of(self, members: IntArray) -> IntArray:
        return self.codes[members].astype(np.int64)

    def ranks_of(self, members: IntArray) -> IntArray:
        """Return the place of some members in their class, from 0."""
        return self._order[1][members].astype(np.int64)

    def members_at(self, classes: IntArray, ranks: IntArray) -> IntArray:
        """Return the members at some places of classes: the inverse of class and rank."""
        order, _, firsts = self._order
        members: IntArray = order[firsts[classes] + ranks]
        return members

    def refines(self, other: Grouping) -> bool:
        """Return whether each class lies in one class of the other partition."""
        return bool((self.parents(other)[self.codes] == other.codes).all())

    def parents(self, other: Grouping) -> IntArray:
        parents = np.zeros(self.num, dtype=np.int64)
        parents[self.codes] = other.codes
        return parents


@dataclass(frozen=True, eq=False, kw_only=True)
class ProductClasses:
    """Tuples, such as pairs of stops, partitioned axis by axis, and optionally by a table of all tuples too.

    The number of a tuple counts the places of the last axis fastest; so does the number of its class.
    """

    axes: tuple[Grouping, ...]  # Classes of the values of each axis
    # A further partition of tuples; None if the axes are enough. Without it no array has one entry for each tuple,
    # which would grow with the square of the number of stops.
    table: Grouping | None = None

    @classmethod
    def joined(cls, parts: Sequence[ProductClasses], lengths: Sequence[int]) -> ProductClasses:
        tables = [part.table for part in parts if part.table is not None]
        return cls(
            axes=tuple(Grouping.joined([part.axes[at] for part in parts], size) for at, size in enumerate(lengths)),
            table=Grouping.joined(tables, math.prod(lengths)) if tables else None,
        )

    @property
    def _lengths(self) -> tuple[int, ...]:
        return tuple(len(axis.codes) for axis in self.axes)

    @cached_property
    def _all(self) -> Grouping:
        """Everything as one table; if there is one table of tuples, memory allows another."""
        assert self.table is not None
        num = math.prod(self._lengths)
        return Grouping.joined([self.table, Grouping.of(self._product(np.arange(num)))], num)

    def _product(self, members: IntArray) -> IntArray:
        codes = np.zeros(len(members), dtype=np.int64)
        for axis, own in zip(self.axes, split_axes(members, self._lengths), strict=True):
            codes = codes * axis.num + axis.codes_of(own)
        return codes

    @property
    def num(self) -> int:
        return self._all.num if self.table is not None else math.prod(axis.num for axis in self.axes)

    @cached_property
    def sizes(self) -> IntArray:
        if self.table is not None:
            return self._all.sizes
        return reduce(np.multiply.outer, [axis.sizes for axis in self.axes]).reshape(-1)

    def codes_of(self, members: IntArray) -> IntArray:
        return self._all.codes_of(members) if self.table is not None else self._product(members)

    def ranks_of(self, members: IntArray) -> IntArray:
        """Return the place of some tuples in their class: by the first axis, then by the next."""
        if self.table is not None:
            return self._all.ranks_of(members)
        ranks = np.zeros(len(members), dtype=np.int64)
        for axis, own in zip(self.axes, split_axes(members, self._lengths), strict=True):
            ranks = ranks * axis.sizes[axis.codes_of(own)] + axis.ranks_of(own)
        return ranks

    def members_at(self, classes: IntArray, ranks: IntArray) -> IntArray:
        if self.table is not None:
            return self._all.members_at(classes, ranks)
        members, step = np.zeros(len(classes), dtype=np.int64), 1
        for axis in reversed(self.axes):
            classes, own = np.divmod(classes, axis.num)
            ranks, places = np.divmod(ranks, axis.sizes[own])
            members, step = members + step * axis.members_at(own, places), step * len(axis.codes)
        return members

    def refines(self, other: ProductClasses) -> bool:
        if self.table is not None:
            return self._all.refines(other._as_table())
        each = all(axis.refines(coarser) for axis, coarser in zip(self.axes, other.axes, strict=True))
        return each and (other.table is None or self._as_table().refines(other.table))

    def _as_table(self) -> Grouping:
        members = np.arange(math.prod(self._lengths))
        return Grouping(codes=self.codes_of(members).astype(np.int32), num=self.num)

    def parents(self, other: ProductClasses) -> IntArray:
        if self.table is not None:
            return self._all.parents(other._as_table())
        parents = np.zeros(1, dtype=np.int64)
        for axis, coarser in zip(self.axes, other.axes, strict=True):
            parents = np.add.outer(parents * coarser.num, axis.parents(coarser)).reshape(-1)
        return parents


def split_axes(members: IntArray, lengths: Sequence[int]) -> list[IntArray]:
    """Return the place of each tuple on every axis: the last one counts fastest."""
    places = []
    for length in reversed(lengths):
        members, own = np.divmod(members, length)
        places.append(own)
    return places[::-1]


@dataclass(frozen=True, eq=False, kw_only=True)
class Universe:
    """All possible trip types: a public fact, however few of them occur."""

    stops: tuple[str, ...]  # All stops, in a public order; at the level of zones, all zones
    windows: tuple[str, ...]  # Start of each window of time, as ``HH:MM``; hours may go past 24
    window_minutes: int
    days: tuple[str, ...] = ()  # Labels of days that are counted separately; empty if there are none
    num_dates: tuple[int, ...] = ()  # Calendar days of each label (or, without them, of everything); empty if unknown
    city: City | None = field(default=None, repr=False)  # Zones of stops and modes of pairs, if known
    time: Windows | None = field(default=None, repr=False)  # The service day, its zone and its dates, if known
    level: Level = "stop"  # What origins and destinations are
    arrives: bool = True  # Whether trips have a destination; boardings have none
    unit: str = "trip"  # What is counted

    def __post_init__(self) -> None:
        if self.num_cells > MAX_CELLS:
            raise ParameterError(f"there can be at most 2^62 trip types. Got {self.num_cells}. Use longer windows.")

    of_trips: ClassVar[bool] = True  # Whether cells are types of trips

    @property
    def axes(self) -> tuple[int, ...]:
        """How many values each part of a pair can have."""
        return len(self.stops), self.num_destinations

    @property
    def num_pairs(self) -> int:
        """Number of pairs of origin and destination, including those from a stop to itself."""
        return math.prod(self.axes)

    @property
    def num_destinations(self) -> int:
        return len(self.stops) if self.arrives else 1

    @property
    def num_slots(self) -> int:
        return len(self.windows) * max(1, len(self.days))

    @property
    def num_cells(self) -> int:
        return self.num_pairs * self.num_slots

    @property
    def columns(self) -> tuple[str, ...]:
        if self.level == "zone":  # stops and modes are gone
            return (*self.ends, *(name for name in SLOT_COLUMNS if name != "day" or self.days))
        zones = self.city is not None and self.city.zones is not None
        modes = self.city is not None and self.city.modes is not None
        absent = {"origin_zone", "destination_zone"} if not zones else set()
        absent |= (set() if modes else {"mode"}) | (set() if self.days else {"day"})
        absent |= set() if self.arrives else {"destination", "destination_zone", "mode"}
        return tuple(name for name in COLUMNS if name not in absent)

    @property
    def ends(self) -> tuple[str, ...]:
        """The released columns of origin and destination; boardings have only the first."""
        return self.ends_at(self.level)

    def ends_at(self, level: Level) -> tuple[str, ...]:
        return END_COLUMNS[level][: 2 if self.arrives else 1]

    @property
    def cell_columns(self) -> tuple[str, ...]:
        """The released columns that identify a cell."""
        return (*self.ends, "window", "day") if self.days else (*self.ends, "window")

    def cells(self, origins: IntArray, destinations: IntArray | int, slots: IntArray) -> IntArray:
        """Return the numbers of cells; the destination of a boarding is 0."""
        return (slots.astype(np.int64) * len(self.stops) + origins) * self.num_destinations + destinations

    def cells_of(self, codes: Mapping[str, IntArray]) -> IntArray:
        """Return the numbers of cells from the codes of their columns."""
        slots = codes["window"] + codes.get("day", 0) * len(self.windows)
        origins, *destinations = (codes[name] for name in self.ends)
        return self.cells(origins, destinations[0] if destinations else 0, slots)

    def split(self, cells: IntArray) -> tuple[IntArray, IntArray]:
        slots, pairs = np.divmod(cells, self.num_pairs)
        return pairs, slots

    def pair_ends(self, pairs: IntArray) -> tuple[IntArray, IntArray]:
        origins, destinations = np.divmod(pairs, self.num_destinations)
        return origins, destinations

    def column_codes(self, name: str, cells: IntArray) -> IntArray:
        pairs, slots = self.split(cells)
        if name in SLOT_COLUMNS:
            day, window = np.divmod(slots, len(self.windows))
            return window if name == "window" else day
        origin, destination = self.pair_ends(pairs)
        return origin if name == self.ends[0] else destination

    def labels(self, name: str) -> tuple[str, ...]:
        return {"window": self.windows, "day": self.days}.get(name, self.stops)

    def describe(self) -> list[dict[str, object]]:
        """Describe the cell columns as plain data, in the shape of released attributes."""
        described = []
        for name in self.cell_columns:
            labels, more = list(self.labels(name)), dict[str, object]()
            domain: dict[str, object] = {"kind": Ordinal.kind, "levels": labels}
            if name not in SLOT_COLUMNS:
                domain = {"kind": Stops.kind, "stops": labels}
            elif name == "window" and self.time is not None:
                domain = self.time.describe()
            elif name == "window":
                more["window_minutes"] = self.window_minutes
            if self.num_dates and name == self.cell_columns[-1]:
                more["num_dates"] = list(self.num_dates)
            fixed = {"name": name, "role": "quasi-identifier", "kind": domain["kind"]}
            described.append({**fixed, "domain": domain, **more})
        return described

    @classmethod
    def from_description(cls, attributes: Sequence[Mapping[str, Any]]) -> Universe:
        """Make a universe from the result of :meth:`describe`, which has no zones and modes."""
        described = {item["name"]: item for item in attributes}
        level: Level = "zone" if END_COLUMNS["zone"][0] in described else "stop"
        stops, windows = (domain_from(described[name]["domain"]) for name in (END_COLUMNS[level][0], "window"))
        days = domain_from(described["day"]["domain"]) if "day" in described else None
        if not (
            isinstance(stops, Stops) and isinstance(windows, Windows | Ordinal) and isinstance(days, Ordinal | None)
        ):
            raise ParameterError("trip types need stops, windows of time and labels of days.")
        time = windows if isinstance(windows, Windows) else None
        last = described["window" if days is None else "day"]
        return cls(
            stops=stops.stops,
            windows=windows.labels,
            window_minutes=time.window_minutes if time is not None else described["window"]["window_minutes"],
            days=() if days is None else days.labels,
            num_dates=tuple(last.get("num_dates", ())),
            time=time,
            level=level,
            arrives=END_COLUMNS[level][1] in described,
        )

    def pair_classes(self, columns: Sequence[str]) -> ProductClasses:
        """Partition pairs by some columns; without any that concern pairs, all are in one class."""
        return ProductClasses(
            axes=(
                self._stop_classes("origin", columns),
                self._stop_classes("destination", columns) if self.arrives else Grouping.whole(1),
            ),
            table=self._city_classes("modes") if "mode" in columns else None,
        )

    def slot_classes(self, columns: Sequence[str]) -> Grouping:
        """Partition slots by some columns; without any that concern slots, all are in one class."""
        day, window = np.divmod(np.arange(self.num_slots), len(self.windows))
        of = {"day": day, "window": window}
        return Grouping.joined([Grouping.of(of[name]) for name in SLOT_COLUMNS if name in columns], self.num_slots)

    def _stop_classes(self, end: str, columns: Sequence[str]) -> Grouping:
        if END_COLUMNS[self.level][end == "destination"] in columns:
            return Grouping.of(np.arange(len(self.stops)))
        return self._city_classes("zones") if f"{end}_zone" in columns else Grouping.whole(len(self.stops))

    def _city_classes(self, name: str) -> Grouping:
        codes: IntArray | None = getattr(self.city, name)
        assert codes is not None
        return Grouping.of(codes.reshape(-1).astype(np.int64))


def known_columns(columns: Sequence[str]) -> set[str]:
    """Return all columns that follow from the given ones: a stop has one zone, a pair of stops one mode."""
    ends = ("origin", "destination")
    names = {*columns, *(f"{end}_zone" for end in ends if end in columns)}
    return names | {"mode"} if names.issuperset(ends) else names


def is_nested(features: Sequence[Sequence[str]]) -> bool:
    """Return whether each feature, by its columns, refines the one before it, so that they form a tree."""
    return all(known_columns(coarser) <= known_columns(finer) for coarser, finer in pairwise(features))
