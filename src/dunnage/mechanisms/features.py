# SPDX-License-Identifier: Apache-2.0
"""Features: partitions of the universe of trip types by public columns, and the groups of cells they meet in.

Every public column is a function of the pair (origin, destination) or of the slot (day, window), so every feature is a
product: a class of pairs and a class of slots. Cells that lie in the same group of every feature form a *join group*;
what all features together know of a cell is which join group it is in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dunnage.arrays import IntArray
from dunnage.errors import ParameterError
from dunnage.exact import shown
from dunnage.trips import COLUMNS, Classes, PairClasses, Universe

_ZONES = ("origin_zone", "destination_zone")
# Periods of the paper are windows, of each day by itself where days are told apart. Each name adds to the one before.
_FLAT: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "3": ((), ("window",)),
    "4": ((), ("window",), (*_ZONES, "window")),
    "5": ((), ("window",), (*_ZONES, "window"), ("mode", "window")),
}
_NESTED = {**_FLAT, "5": (*_FLAT["4"], (*_ZONES, "mode", "window"))}
NAMED = {
    **{f"O{name}": columns for name, columns in _FLAT.items()},
    **{f"H{name}": columns for name, columns in _NESTED.items()},
}
"""Features of the paper by name, without the cells themselves, which are always the first."""

FeatureColumns = tuple[str, ...]


def read_features(given: object, *, days: bool) -> tuple[FeatureColumns, ...]:
    if isinstance(given, str):
        if given not in NAMED:
            raise ParameterError(
                f"features must be one of {', '.join(NAMED)} or a list of lists of columns. Got {given!r}."
            )
        return tuple(_ordered((*columns, "day") if days and columns else columns) for columns in NAMED[given])
    if not isinstance(given, Iterable) or isinstance(given, Mapping):
        raise ParameterError(f"features must be a name or a list of lists of columns. Got {shown(given)}.")
    read = tuple(_read_feature(item) for item in given)
    if len(set(read)) < len(read):
        raise ParameterError("features must be all different. Got one twice. Remove it.")
    return read


def kept_features(given: object) -> str | tuple[FeatureColumns, ...]:
    read = read_features(given, days=False)
    return given if isinstance(given, str) else read


def described(kept: str | tuple[FeatureColumns, ...]) -> str | list[list[str]]:
    return kept if isinstance(kept, str) else [list(columns) for columns in kept]


def nested(features: Sequence[FeatureColumns]) -> tuple[FeatureColumns, ...]:
    """Let each feature tell apart all that the one before does: a tree."""
    grown: list[FeatureColumns] = []
    for columns in features:
        grown.append(_ordered((*(grown[-1] if grown else ()), *columns)))
    return tuple(dict.fromkeys(grown))


def _read_feature(item: object) -> FeatureColumns:
    if isinstance(item, str) or not isinstance(item, Iterable):
        raise ParameterError(
            f'each feature is a list of columns, such as ["mode", "window"]. Got {shown(item)}. Put it in brackets.'
        )
    columns = tuple(item)
    unknown = [name for name in columns if name not in COLUMNS]
    if unknown or len(set(columns)) < len(columns):
        what = f"Got {shown(unknown[0])}." if unknown else "Got one twice."
        raise ParameterError(f"a feature is made of the columns {', '.join(COLUMNS)}, each once. {what}")
    return _ordered(columns)


def _ordered(columns: Iterable[str]) -> FeatureColumns:
    given = set(columns)
    return tuple(name for name in COLUMNS if name in given)


def feature_name(columns: FeatureColumns) -> str:
    return " x ".join(columns) if columns else "total"


@dataclass(frozen=True, eq=False, kw_only=True)
class Feature:
    """One partition of the universe."""

    columns: FeatureColumns  # The public columns it is made by; none for the total
    # pairs, slots: its classes of pairs and of slots. Group `slot class * pair classes + pair class` has the cells in
    # both
    pairs: PairClasses
    slots: Classes

    @classmethod
    def of(cls, universe: Universe, columns: FeatureColumns) -> Feature:
        absent = [name for name in columns if name not in universe.columns]
        if absent:
            raise ParameterError(f"the feature {feature_name(columns)} needs {_source(absent[0])}. Got none.")
        return cls(columns=columns, pairs=universe.pair_classes(columns), slots=universe.slot_classes(columns))

    @property
    def size(self) -> int:
        return self.pairs.num * self.slots.num

    @property
    def name(self) -> str:
        return feature_name(self.columns)

    def groups(self, pairs: IntArray, slots: IntArray) -> IntArray:
        return self.slots.codes_of(slots) * self.pairs.num + self.pairs.codes_of(pairs)

    def sums(self, pairs: IntArray, slots: IntArray, counts: NDArray[Any]) -> NDArray[Any]:
        sums = np.zeros(self.size, dtype=counts.dtype)
        np.add.at(sums, self.groups(pairs, slots), counts)
        return sums

    def parents(self, other: Feature, layout: Layout) -> IntArray:
        """Return the group of a coarser feature that each group lies in. Shapes: -> (size,)."""
        found = np.zeros(self.size, dtype=np.int64)
        found[layout.groups_of(self)] = layout.groups_of(other)
        return found

    def refines(self, other: Feature) -> bool:
        """Return whether each of its groups lies in one group of the other: the paper's partial order."""
        return self.pairs.refines(other.pairs) and self.slots.refines(other.slots)


def _source(column: str) -> str:
    return {
        "mode": "the mode of each pair: [city] modes",
        "day": 'days that are told apart: day = "weekday", say, in the attribute that holds the time',
    }.get(column, "the zone of each stop: a column zone in [city] stops")


def partial_order(features: Sequence[Feature]) -> list[tuple[int, int]]:
    """Return all pairs (finer, coarser) of features, found from the partitions themselves."""
    return [
        (finer, coarser)
        for finer, one in enumerate(features)
        for coarser, other in enumerate(features)
        if finer != coarser and one.refines(other)
    ]


@dataclass(frozen=True, eq=False, kw_only=True)
class Layout:
    """Where cells are kept: join group by join group."""

    universe: Universe  # What the cells are of
    # pairs, slots: join classes. Join group `slot class * pair classes + pair class` has the cells in both; in it they
    # are ranked by slot, then by pair
    pairs: PairClasses
    slots: Classes

    @classmethod
    def of(cls, universe: Universe, features: Sequence[Feature]) -> Layout:
        return cls(
            universe=universe,
            pairs=PairClasses.joined([feature.pairs for feature in features], len(universe.stops)),
            slots=Classes.joined([feature.slots for feature in features], universe.num_slots),
        )

    @property
    def num_groups(self) -> int:
        return self.pairs.num * self.slots.num

    @cached_property
    def sizes(self) -> IntArray:
        return np.multiply.outer(self.slots.sizes, self.pairs.sizes).reshape(-1)

    @cached_property
    def starts(self) -> IntArray:
        return np.concatenate(([0], np.cumsum(self.sizes)))

    def places(self, cells: IntArray) -> tuple[IntArray, IntArray]:
        pairs, slots = self.universe.split(cells)
        pair_class = self.pairs.codes_of(pairs)
        ranks = self.slots.ranks_of(slots) * self.pairs.sizes[pair_class] + self.pairs.ranks_of(pairs)
        return self.slots.codes_of(slots) * self.pairs.num + pair_class, ranks

    def cells(self, groups: IntArray, ranks: IntArray) -> IntArray:
        """Return the cells at some ranks of join groups: the inverse of :meth:`places`."""
        slot_class, pair_class = np.divmod(groups, self.pairs.num)
        slot_rank, pair_rank = np.divmod(ranks, self.pairs.sizes[pair_class])
        slots = self.slots.members_at(slot_class, slot_rank)
        return slots * self.universe.num_pairs + self.pairs.members_at(pair_class, pair_rank)

    def groups_of(self, feature: Feature) -> IntArray:
        """Return the group of a feature that each join group lies in. Shapes: -> (num_groups,)."""
        rows = self.slots.parents(feature.slots) * feature.pairs.num
        return np.add.outer(rows, self.pairs.parents(feature.pairs)).reshape(-1)

    def slot_class_of(self) -> IntArray:
        """Return the join class of slots of each join group. Shapes: -> (num_groups,)."""
        return np.repeat(np.arange(self.slots.num), self.pairs.num)
