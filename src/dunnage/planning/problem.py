# SPDX-License-Identifier: Apache-2.0
"""A packing problem in whole numbers: rows and classes, quantities, kinds of truck, and rows that may share a truck."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
import pyarrow.compute as pc

from dunnage.arrays import FloatArray, IntArray
from dunnage.errors import NoPlanError, ParameterError, check_kind
from dunnage.exact import Exact, exact, share, shown, shown_number
from dunnage.kernels.bins.certified import BinKind
from dunnage.kernels.bins.chances import Between, ClassSizes, Members
from dunnage.kernels.bins.scalar import whole_numbers
from dunnage.model.domains import Numeric, domain_from
from dunnage.planning.trucks import Capacity, Truck, check_kinds, listed, parse_capacities
from dunnage.release import Release, Uncertain
from dunnage.text import several

MAX_COST = 10**6
_MAX_ROWS_NAMED = 20

Telling = Callable[[str, int, int], None]  # called with the stage, the trucks or cost, and the bound


@dataclass(frozen=True, eq=False, kw_only=True)
class PackingProblem:
    release: Release
    known: tuple[Uncertain, ...]  # what is known about each packed quantity
    trucks: tuple[Truck, ...]  # the kinds of truck
    by: str | None = None  # by, apart: public columns; rows with different values never share a truck
    apart: str | None = None
    spread: int | None = None  # no truck takes more than this part (1/spread) of a class
    free: Fraction = Fraction(0)  # share of every capacity that is left free, already subtracted from the trucks

    @classmethod
    def of(
        cls,
        release: Release,
        *,
        capacity: Capacity | None,
        trucks: Sequence[Truck] | None,
        by: str | None,
        apart: str | None,
        quantity: str | None,
        spread: int | None,
        sides: Sequence[str] = (),  # of boxes; they may be public numbers
    ) -> PackingProblem:
        check_kind(release, Release, "pack takes a Release: what dn.publish returned, or dn.Release.read(FOLDER)")
        release.check_rows("pack")
        if not len(release):
            raise NoPlanError("the release has no rows to pack. Ask the owner for a release with rows.")
        kinds = _trucks(release, capacity, trucks, quantity, sides)
        public = [name for name, item in release.attributes.items() if item.role == "public"]
        for column in (by, apart):
            if column is not None and (not isinstance(column, str) or column not in public):
                choice = f"Use {', '.join(public)}" if public else "The release has none, so remove this option"
                raise ParameterError(
                    f"rows can be packed apart only by a public column. Got {shown(column)}. {choice}."
                )
        if spread is not None and (type(spread) is not int or spread < 1):
            raise ParameterError(f"spread must be a whole number of at least 1, for example 3. Got {shown(spread)}.")
        known = tuple(release.uncertain(name) for name in kinds[0].capacity)
        return cls(release=release, known=known, trucks=kinds, by=by, apart=apart, spread=spread)

    @property
    def quantities(self) -> dict[str, str]:
        return {known.name: known.unit for known in self.known}

    @cached_property
    def class_id(self) -> IntArray:
        return np.asarray(self.known[0].class_id, dtype=np.int64)

    @cached_property
    def group(self) -> IntArray:
        columns = dict.fromkeys(column for column in (self.by, self.apart) if column is not None)
        return combinations(self.release, list(columns))

    @cached_property
    def group_of_class(self) -> IntArray:
        groups = np.zeros(int(self.class_id.max()) + 1, dtype=np.int64)
        groups[self.class_id] = self.group
        return groups

    @cached_property
    def class_sizes(self) -> IntArray:
        return np.bincount(self.class_id).astype(np.int64)

    @property
    def class_of_member(self) -> IntArray:
        return np.repeat(np.arange(len(self.class_sizes)), self.class_sizes)

    @cached_property
    def caps(self) -> IntArray:
        return self.class_sizes if self.spread is None else self.class_sizes // self.spread

    @cached_property
    def fewest_trucks(self) -> list[int]:
        """The number of trucks that each group takes, however light its rows: its classes are spread over so many."""
        fewest = np.zeros(int(self.group.max()) + 1, dtype=np.int64)
        np.maximum.at(fewest, self.group_of_class, -(-self.class_sizes // np.maximum(self.caps, 1)))
        return fewest.tolist()

    @property
    def without_weights(self) -> int | None:
        """How many trucks rows as large as their domains allow would take; None if that is not useful to know."""
        if len(self.trucks) > 1 or self.release.certificate.rows.slots is not None:
            return None
        domains = {name: domain_from(self.release.attributes[name].domain or {}) for name in self.quantities}
        sizes = {name: domain.upper for name, domain in domains.items() if isinstance(domain, Numeric)}
        rooms = self.trucks[0].capacity.items()
        in_truck = min((int(exact(room) // sizes[name]) for name, room in rooms if sizes.get(name, 0) > 0), default=0)
        groups = np.bincount(self.group)
        trucks = int((-(-groups // min(in_truck, len(self.group)))).sum()) if in_truck else 0
        return trucks if trucks > len(groups) else None

    @property
    def unit_cost(self) -> Fraction:
        """The cost of one unit in whole numbers: the exact common measure of all costs."""
        costs = [exact(truck.cost, what="cost") for truck in self.trucks]
        whole = math.lcm(*(cost.denominator for cost in costs))
        measure = Fraction(math.gcd(*(int(cost * whole) for cost in costs)), whole)
        # If numbers are too long for the tolerances of a solver, costs are rounded down, and a bound is still true.
        return max(measure, max(costs) / MAX_COST)

    def with_margin(self, margin: Exact | None) -> PackingProblem:
        if margin is None:
            return self
        free = share(margin, what="margin")
        if not 0 <= free < 1:
            raise ParameterError(f"margin must be at least 0 and less than 1, such as 0.05. Got {shown_number(free)}.")
        trucks = []
        for truck in self.trucks:
            rooms = {}
            for name, capacity in truck.capacity.items():
                # The exact decimal or, if it has too many digits, the double below it.
                wanted = exact(capacity, what="capacity") * (1 - free)
                near = float(wanted)
                rooms[name] = near if exact(near) <= wanted else math.nextafter(near, 0.0)
            trucks.append(replace(truck, capacity=rooms))
        return replace(self, trucks=tuple(trucks), free=free)

    def with_any_number(self) -> PackingProblem:
        """Return the same problem with any number of trucks, if there is only one kind."""
        return replace(self, trucks=(replace(self.trucks[0], count=None),)) if len(self.trucks) == 1 else self

    @property
    def remedy(self) -> str:
        return "Use a larger truck." if not self.free else "Use a larger truck, or a smaller margin."

    def kinds(self, capacities: IntArray) -> list[BinKind]:
        one = len(self.trucks) == 1  # then the objective is the number of trucks, whatever their cost
        return [
            BinKind(
                capacity=tuple(line),
                cost=1 if one else int(exact(truck.cost, what="cost") / self.unit_cost),
                count=truck.count,
            )
            for truck, line in zip(self.trucks, capacities.tolist(), strict=True)
        ]

    def whole(self, values: Sequence[FloatArray]) -> Whole:
        return whole_columns(values, [[truck.capacity[known.name] for truck in self.trucks] for known in self.known])

    def class_members(self) -> tuple[list[ClassSizes], Whole] | None:
        """Return the members of each class, and their whole numbers; None without multisets."""
        members = self.release.members
        if members is None:
            return None
        class_id = members.column("class_id").to_numpy()
        columns = [members.column(known.name).combine_chunks().to_numpy(zero_copy_only=False) for known in self.known]
        whole = self.whole(columns)
        starts = np.flatnonzero(np.diff(class_id)) + 1
        return [Members(part) for part in np.split(whole.values, starts)], whole

    def class_bounds(self) -> tuple[list[ClassSizes], Whole]:
        """Return what the bounds say about each class, assuming that there are members at both ends."""
        first = np.unique(self.class_id, return_index=True)[1]
        both = [np.concatenate([known.lower[first], known.upper[first]]) for known in self.known]
        whole = self.whole(both)
        num = len(first)
        ends = zip(whole.values[:num], whole.values[num:], self.class_sizes.tolist(), strict=True)
        return [Between(lower, upper, count) for lower, upper, count in ends], whole

    def check_spread(self) -> None:
        if self.spread is not None and self.spread > int(self.class_sizes.min()):
            largest = int(self.class_sizes.min())
            raise NoPlanError(
                f"a class of {several(largest, 'row')} cannot be spread so that no truck takes more than "
                f"1/{self.spread} of it. The largest possible spread is {largest}."
            )

    def check_rows_fit(self, values: Sequence[FloatArray]) -> None:
        fits = np.zeros(len(self.release), dtype=bool)
        for truck in self.trucks:
            parts = [column <= truck.capacity[known.name] for known, column in zip(self.known, values, strict=True)]
            fits |= np.logical_and.reduce(parts)
        heavy = np.flatnonzero(~fits)
        if len(heavy):
            rows = ", ".join(str(row) for row in heavy[:_MAX_ROWS_NAMED].tolist())
            largest = " and ".join(
                f"{max(truck.capacity[name] for truck in self.trucks):g} {unit}".strip()
                for name, unit in self.quantities.items()
            )
            margin = f" (with a margin of {shown_number(self.free)})" if self.free else ""
            raise NoPlanError(
                f"no truck can take {len(heavy)} released rows that exceed {largest}{margin}: "
                f"row {rows}{' and more' if len(heavy) > _MAX_ROWS_NAMED else ''}. {self.remedy}"
            )


@dataclass(frozen=True, eq=False)
class Whole:
    """Values and capacities in whole numbers, one column per quantity; if they are exact, both kinds are equal."""

    values: IntArray  # values, rooms: safe, so that what fits in these numbers fits in truth
    rooms: IntArray
    below: IntArray  # below, below_rooms: rounded the other way, so that a bound on them is true
    below_rooms: IntArray

    @property
    def exact(self) -> bool:
        return bool(np.array_equal(self.values, self.below) and np.array_equal(self.rooms, self.below_rooms))


def whole_columns(values: Sequence[FloatArray], capacities: Sequence[Sequence[float]]) -> Whole:
    """Turn values and capacities of each quantity into whole numbers."""
    columns = []
    for column, rooms in zip(values, map(np.array, capacities), strict=True):
        numbers = whole_numbers(np.concatenate([column, rooms]), float(rooms.max()))
        low = numbers.items if numbers.below is None else numbers.below[0]
        high = low if numbers.below is None else low + 1
        num = len(column)
        columns.append((numbers.items[:num], low[num:], low[:num], high[num:]))
    return Whole(*(np.column_stack(parts) for parts in zip(*columns, strict=True)))


def _trucks(
    release: Release,
    capacity: Capacity | None,
    trucks: Sequence[Truck] | None,
    quantity: str | None,
    sides: Sequence[str],
) -> tuple[Truck, ...]:
    if (capacity is None) == (trucks is None):
        raise ParameterError("pack needs either a capacity or trucks. Use --capacity 500kg or --trucks trucks.csv.")
    units = {name: release.uncertain(name).unit for name in dict.fromkeys([*release.quantities, *sides])}
    if not units:
        raise ParameterError("the release has no quantity to pack. Ask the owner for a release with a numeric column.")
    if quantity is not None and (not isinstance(quantity, str) or quantity not in units):
        raise ParameterError(f"the release has no quantity {quantity!r}. It has: {', '.join(units)}.")
    wanted = units if quantity is None else {name: units[name] for name in (quantity, *sides)}
    if trucks is None:
        texts = [] if capacity is None else listed(capacity)
        if not texts:
            raise ParameterError(f"no capacity is given. Give the capacity for {', '.join(wanted)}, for example 500.")
        return (Truck(name="truck", capacity=parse_capacities([str(text) for text in texts], wanted)),)
    check_kind(
        trucks, list | tuple, "trucks takes a list of dn.Truck, such as dn.read_trucks(FILE, release.quantities)"
    )
    for truck in trucks:
        check_kind(truck, Truck, "trucks takes a list of dn.Truck, such as dn.read_trucks(FILE, release.quantities)")
    if not trucks:
        raise ParameterError("no kind of truck is given. Give at least one.")
    if len({truck.name for truck in trucks}) < len(trucks):
        raise ParameterError("two kinds of truck have the same name. Give each kind its own name.")
    packed = [name for name in wanted if all(name in truck.capacity for truck in trucks)]
    check_kinds(trucks, packed or wanted)
    costs = [truck.cost for truck in trucks]
    if max(costs) > MAX_COST * min(costs):
        raise ParameterError(
            f"one truck costs over {MAX_COST:,} times as much as another ({max(costs):g}, {min(costs):g}). Remove one."
        )
    return tuple(replace(truck, capacity={name: truck.capacity[name] for name in packed}) for truck in trucks)


def combinations(release: Release, names: Sequence[str]) -> IntArray:
    """Return a number for each released row: that of its combination of values in some columns."""
    codes = np.zeros(len(release), dtype=np.int64)
    for name in names:
        own = release.data.column(name).combine_chunks().dictionary_encode().indices
        numbers = pc.fill_null(own, -1).to_numpy(zero_copy_only=False).astype(np.int64) + 1
        codes = np.unique(codes * (int(numbers.max(initial=0)) + 1) + numbers, return_inverse=True)[1].reshape(-1)
    return codes


def rows_by_group(codes: IntArray) -> list[IntArray]:
    order = np.argsort(codes, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(codes[order])) + 1)
