# SPDX-License-Identifier: Apache-2.0
"""Paths: the two or three cells of a public grid that a vehicle passed, in one report.

Perturbing each place separately spends the loss of a report once for every step. The sound report covers the path as a
whole: reachable paths, in which the next cell is at most ``hops`` cells away from the one before, have numbers (without
a list of them), and the number goes through one frequency oracle. Reachability is public, so any other path is first
moved to a reachable one. The published forms (the product of places, QLP and QJLP) are here too, with their true loss.
``docs/proofs/local-trajectory.md`` has the proofs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from typing import ClassVar

from dunnage.devices.places import (
    AREA_NOTE,
    CHOICES,
    ORACLES,
    InClear,
    Law,
    OnGrid,
    Oracle,
    PublishedUnary,
    areas_text,
    find_oracle,
    read_place,
)
from dunnage.devices.subjects import Grid, Tier
from dunnage.errors import ParameterError
from dunnage.model.guarantees import Promise
from dunnage.noise.source import Noise, integer

Path = tuple[int, ...]  # cells in order of time; `grid.outside` for a place that is outside or missing


@dataclass(frozen=True, kw_only=True)
class ReachablePaths:
    """Numbers of all paths in which the next cell is at most ``hops`` cells away (to the side, up or down, or both)."""

    # A path is a walk of its columns and one of its rows, and every pair of walks is a path. Its number is walk of
    # columns * num_walks + walk of rows; walks are numbered in order of their first, second, third place.

    grid: Grid
    steps: int  # cells of a path
    hops: int = 1  # largest distance of the next cell to the side, up or down

    def __post_init__(self) -> None:
        integer(self.steps, "steps", least=1)
        if integer(self.hops, "hops", least=1) >= max(self.grid.num_columns, 2):
            raise ParameterError(
                f"hops must be below the {self.grid.num_columns} columns of the grid. Got {self.hops}. Try 1."
            )

    @property
    def num_paths(self) -> int:
        return self.num_walks**2

    @property
    def num_walks(self) -> int:
        return self.walks_before[-1][-1]

    @cached_property
    def walks_before(self) -> tuple[tuple[int, ...], ...]:
        """``walks_before[r][i]``: walks with r steps to come that begin before place i of a side."""
        size = self.grid.num_columns
        tables = [tuple(range(size + 1))]
        for _ in range(self.steps - 1):
            near = [self._near(place) for place in range(size)]
            counts = (tables[-1][stop] - tables[-1][start] for start, stop in near)
            tables.append(tuple(accumulate(counts, initial=0)))
        return tuple(tables)

    def index(self, path: Path) -> int:
        """Clip a path to a reachable one and return its number; the last number if a place is missing."""
        if self.grid.outside in path:
            return self.num_paths
        ranks = []
        for walk in zip(*(self.grid.column_row(cell) for cell in path), strict=True):
            start, rank, before = 0, 0, walk[0]
            for place, table in zip(walk, reversed(self.walks_before), strict=True):
                # Each place is moved towards the one before until it is near enough.
                before = min(max(place, before - self.hops), before + self.hops)
                rank += table[before] - table[start]
                start = self._near(before)[0]
            ranks.append(rank)
        return ranks[0] * self.num_walks + ranks[1]

    def cells(self, index: int) -> Path | None:
        """Return the path of a number; None for the last, which stands for paths with a missing place."""
        if index == self.num_paths:
            return None
        walks = []
        for rank in divmod(index, self.num_walks):
            start, walk = 0, []
            for table in reversed(self.walks_before):
                rank += table[start]
                place = bisect_right(table, rank) - 1
                rank -= table[place]
                start = self._near(place)[0]
                walk.append(place)
            walks.append(walk)
        return tuple(self.grid.cell_at(column, row) for column, row in zip(*walks, strict=True))

    def _near(self, place: int) -> tuple[int, int]:
        return max(place - self.hops, 0), min(place + self.hops + 1, self.grid.num_columns)


@dataclass(frozen=True, kw_only=True)
class AreaPaths:
    """Numbers of all paths, near or far: by their sequence of areas first, then by the places inside them."""

    grid: Grid
    steps: int

    @property
    def num_groups(self) -> int:
        return int(self.grid.num_areas**self.steps)

    @property
    def group_size(self) -> int:
        return int(self.grid.num_inner**self.steps)

    def index(self, path: Path) -> int:
        if self.grid.outside in path:
            return self.num_groups * self.group_size
        group = join_digits([self.grid.area(cell) for cell in path], self.grid.num_areas)
        inner = join_digits([self.grid.inner(cell) for cell in path], self.grid.num_inner)
        return group * self.group_size + inner

    def cells(self, index: int) -> Path | None:
        if index == self.num_groups * self.group_size:
            return None
        group, inner = divmod(index, self.group_size)
        areas = split_digits(group, self.grid.num_areas, self.steps)
        inners = split_digits(inner, self.grid.num_inner, self.steps)
        return tuple(self.grid.joined(area, place) for area, place in zip(areas, inners, strict=True))


@dataclass(frozen=True, kw_only=True)
class PlaceByPlace:
    """Numbers of paths cell by cell, including the missing one: each place of a path is a separate input."""

    grid: Grid
    steps: int

    def index(self, path: Path) -> int:
        return join_digits(path, self.grid.num_cells + 1)

    def cells(self, index: int) -> Path:
        return split_digits(index, self.grid.num_cells + 1, self.steps)


PathCode = ReachablePaths | AreaPaths | PlaceByPlace  # a public numbering of paths


def join_digits(digits: Sequence[int], base: int) -> int:
    number = 0
    for digit in digits:
        number = number * base + digit
    return number


def split_digits(number: int, base: int, num: int) -> tuple[int, ...]:
    digits = []
    for _ in range(num):
        number, digit = divmod(number, base)
        digits.append(digit)
    return tuple(reversed(digits))


@dataclass(frozen=True, kw_only=True)
class Independent(Law):
    """A channel that perturbs each place separately; inputs and symbols have those of places as digits."""

    place: InClear
    steps: int

    @property
    def num_inputs(self) -> int:
        return int(self.place.num_inputs**self.steps)

    @property
    def num_symbols(self) -> int:
        return int(self.place.num_symbols**self.steps)

    @property
    def loss(self) -> Fraction | None:
        one = self.place.loss
        return None if one is None else one * self.steps

    @property
    def loss_within(self) -> Fraction:
        return self.place.loss_within * self.steps

    def exponent(self, index: int, symbol: int) -> Fraction | None:
        inputs = split_digits(index, self.place.num_inputs, self.steps)
        symbols = split_digits(symbol, self.place.num_symbols, self.steps)
        exponents = list(map(self.place.exponent, inputs, symbols))
        possible = [exponent for exponent in exponents if exponent is not None]
        return sum(possible, Fraction(0)) if len(possible) == len(exponents) else None

    def perturb(self, index: int, noise: Noise) -> int:
        inputs = split_digits(index, self.place.num_inputs, self.steps)
        return join_digits([self.place.perturb(place, noise) for place in inputs], self.place.num_symbols)

    def read(self, symbol: int) -> list[tuple[int | None, int]]:
        symbols = split_digits(symbol, self.place.num_symbols, self.steps)
        return [pair for of_place in symbols for pair in self.place.read(of_place)]

    def variance(self, share: float, num: float) -> float:
        """Return the variance of a path's estimated share, the mean of products of the estimates for its places."""
        # This assumes that places are spread evenly and that vehicles stay in their area.
        oracle, groups = self.place.oracle, self.place.num_groups
        inner = 1 / oracle.num_inputs
        # One report estimates "the place is this one", 0 or 1, with this variance; `square` is the mean of its square.
        noise = oracle.variance(inner, 1)
        square, even = noise + inner, inner**self.steps
        # square^steps - even, written without a difference of nearly equal terms; no path has more in a group
        product = noise * sum(square**at * inner ** (self.steps - 1 - at) for at in range(self.steps))
        return (product + max(even - share * groups, 0.0)) / (groups * num)


PUBLISHED = ("product", "qlp", "qjlp")  # places at epsilon each; at epsilon / steps each; joined, at epsilon


@dataclass(frozen=True, kw_only=True)
class LocalTrajectory(OnGrid):
    """Report the two or three cells of a public grid that a vehicle passed.

    Parameters
    ----------
    grid
        The public grid.
    steps
        Number of cells in a path: 2 or 3.
    epsilon, tiers
        Privacy loss of one report, of the whole path: one value for all, or public tiers.
    method
        As for places, without ``planar``. With ``as_published``: ``product`` (the default), ``qlp``, ``qjlp``.
    hops
        Largest distance, in cells (to the side, up or down, or both), from one cell of a path to the next. If a path
        goes further, each cell is moved towards the one reported before it until it is near enough.
    area_in_clear
        Show the area of each cell, and hide only the places inside; then any path is possible, and hops are ignored.
    as_published
        A published form: areas in clear, every bit flipped separately.

    Guarantee
    ---------
    Epsilon-local differential privacy of one report, proved. With ``area_in_clear`` only between paths through the same
    areas. ``as_published``: claimed; really, and within the same areas only, ``steps`` times 2 epsilon for the product,
    2 epsilon for QLP and QJLP.

    References
    ----------
    Yao et al. 2024, sections 4.3 and 5.3; QLP and QJLP after Yang et al. 2021, as far as they are described.

    Examples
    --------
    >>> grid = Grid(box=("103.9", "30.5", "104.2", "30.8"), levels=3)
    >>> LocalTrajectory(grid=grid, steps=3, epsilon=1).channel("all").num_inputs
    677
    """

    name: ClassVar[str] = "local-trajectory"
    num_steps: ClassVar[tuple[int, int]] = (2, 3)
    parameters: ClassVar[tuple[str, ...]] = ("method", "as_published", "area_in_clear", "hops")
    methods: ClassVar[tuple[str, ...]] = (*CHOICES, *ORACLES)
    steps: int
    hops: int = 1
    paths: PathCode = field(init=False, repr=False, compare=False)

    def _check_method(self) -> None:
        if not isinstance(self.grid, Grid) or self.grid.levels < 2:
            raise ParameterError(f"{self.name} needs a grid of at least 2 levels. Give Grid(box=..., levels=...).")
        if self.steps not in (2, 3):
            raise ParameterError(f"steps must be 2 or 3. Got {str(self.steps)[:20]}. Longer paths are noise.")
        integer(self.hops, "hops", least=1)
        if self.as_published and self.method in CHOICES:
            object.__setattr__(self, "method", "product")
        allowed = PUBLISHED if self.as_published else self.methods
        if self.method not in allowed:
            form = "as_published " if self.as_published else ""
            raise ParameterError(f"{form}method must be one of {', '.join(allowed)}. Got {str(self.method)[:40]!r}.")
        code: PathCode = self._reachable(self.grid)
        if self.method in ("product", "qlp"):
            code = PlaceByPlace(grid=self.grid, steps=self.steps)
        elif self.method == "qjlp" or self.area_in_clear:
            code = AreaPaths(grid=self.grid, steps=self.steps)
        object.__setattr__(self, "paths", code)

    def _reachable(self, grid: Grid) -> ReachablePaths:
        return ReachablePaths(grid=grid, steps=self.steps, hops=min(self.hops, grid.num_columns - 1))

    def law(self, grid: Grid, epsilon: Fraction) -> Law:
        if self.method in ("product", "qlp"):
            each = epsilon if self.method == "product" else epsilon / self.steps
            place = PublishedUnary(num_inputs=grid.num_inner + 1, epsilon=each)
            return Independent(place=InClear(oracle=place, num_groups=grid.num_areas), steps=self.steps)
        if self.method == "qjlp" or self.area_in_clear:
            code = AreaPaths(grid=grid, steps=self.steps)
            num_inputs = code.group_size + 1
            joined: Oracle = (
                PublishedUnary(num_inputs=num_inputs, epsilon=epsilon)
                if self.method == "qjlp"
                else find_oracle(self.method, num_inputs, epsilon)
            )
            return InClear(oracle=joined, num_groups=code.num_groups, num_filled=grid.num_areas)
        return find_oracle(self.method, self.num_shares(grid), epsilon)

    def num_shares(self, grid: Grid) -> int:
        return self._reachable(grid).num_paths + 1

    def oracle(self, tier: Tier | str) -> Oracle:
        law = self.channel(tier)
        part = law.place if isinstance(law, Independent) else law
        return part.oracle if isinstance(part, InClear) else part  # type: ignore[return-value]

    def index(self, value: object) -> int:
        """Return the input for a path, a sequence of ``steps`` pairs ``(longitude, latitude)``; never raises.

        Any other value counts as a path in which every place is missing.
        """
        try:
            places = [read_place(place) for place in value]  # type: ignore[attr-defined]
        except Exception:  # no private value of any type may stop the report
            places = []
        if len(places) != self.steps:
            places = [(None, None)] * self.steps
        return self.paths.index(tuple(self.grid.cell(*place) for place in places))

    def describe(self) -> dict[str, object]:
        return {**super().describe(), "steps": self.steps, "hops": self.hops}

    def promise(self) -> Promise:
        """State what one report guarantees, for the tier with the largest loss. This needs no data."""
        areas = f"the sequences of {self.steps} of {areas_text(self.grid)}"
        if self.as_published:
            return self.promised(areas=areas, what="paths", notes=("local-trajectory.md#the-published-forms",))
        notes = ["local-trajectory.md#the-whole-path-in-one-report"]
        warnings = ["a path with a place that is outside the box or missing is reported as missing"]
        if self.area_in_clear:
            notes.append(AREA_NOTE)
        else:
            warnings.append(
                f"a path with a step of more than {self.hops} cells is moved to a reachable one before it is "
                "perturbed: each cell towards the one before"
            )
        return self.promised(areas=areas, what="paths", notes=tuple(notes), warnings=tuple(warnings))
