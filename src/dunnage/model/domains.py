# SPDX-License-Identifier: Apache-2.0
"""The public kind and range of an attribute: distance, generalisation, width.

A domain is a public fact, fixed before any private row is read. Every kind answers the same questions
(:class:`Domain`): is a value in it, how far apart are two values, what is the smallest generalised value that covers a
set, and how wide is that on a scale from 0 (nothing lost) to 1 (everything lost).

============  ===========================  ==========================  ============================
kind          distance                     generalised value           width
============  ===========================  ==========================  ============================
``numeric``   difference                   (lower, upper)              length / domain's length
``ordinal``   steps between levels         (lowest, highest) level     steps / (levels - 1)
``category``  0 or 1                       sorted tuple of values      (distinct - 1) / (values - 1)
``tree``      leaves under the least       label of that ancestor      (leaves under it - 1) /
              common ancestor, less one                                (leaves - 1)
``graph``     shortest path                sorted tuple of vertices    longest of their distances
                                                                       / diameter
``stop``      0 or 1                       tuple of stops              (distinct - 1) / (stops - 1)
``time``      seconds of the service day   (first, last) second        length / service day's length
============  ===========================  ==========================  ============================

All but ``numeric`` and ``time`` are *coded* (:class:`CodedDomain`): their values are the ``labels``, and algorithms
use the positions of values in that tuple and the matrix of distances. :mod:`dunnage.model.hierarchies` has the levels
by which values are generalised.

Error messages may name domains, but never the values that were looked up in them: those come from private rows.

References
----------
Bhati, Ivanchev, Bojic, Datta and Eckhoff, "Utility-driven k-anonymization of public transport user data",
IEEE Access 9, 2021: distances are its equations 3 to 9, widths its equation 20.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from datetime import date
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from numbers import Integral
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike

from dunnage.arrays import BoolArray, FloatArray, IntArray
from dunnage.errors import InputError, ParameterError
from dunnage.exact import Exact, exact, nearest_float, plain, shown, shown_number
from dunnage.model.periods import dates_of
from dunnage.tables.reader import read_lines, refuse_lines

# --- What every kind answers, and labels

MOST_IN_MATRIX = 16_384  # Maximum number of labels in a matrix of distances (2 GiB)


class Domain(ABC):
    """The questions that every kind of domain answers; kinds are dataclasses of public facts."""

    kind: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    @abstractmethod
    def diameter(self) -> float:
        """Largest distance between two values."""

    @abstractmethod
    def contains(self, values: ArrayLike) -> BoolArray:
        """Return for each value whether it is in the domain."""

    @abstractmethod
    def distance(self, a: Any, b: Any) -> float:
        """Distance of two values in the units of the domain."""

    @abstractmethod
    def generalise(self, values: Any) -> Any:
        """Smallest generalised value that covers all ``values``."""

    @abstractmethod
    def width(self, generalised: Any) -> float:
        """Share of the domain, 0 to 1, that a generalised value covers."""

    def describe(self) -> dict[str, object]:
        """Return a description in plain data with exact numbers; :func:`domain_from` is its inverse."""
        return {"kind": self.kind, **{item.name: _plain(getattr(self, item.name)) for item in fields(self)}}


def _plain(value: object) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return plain(value) if isinstance(value, Fraction) else value


def check_texts(values: object, name: str) -> tuple[str, ...]:
    """Check a sequence of labels: one or more, text, not empty, all different."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ParameterError(f"{name} must be a list of texts. Got {shown(values)}.")
    labels = tuple(values)
    for label in labels:
        check_text(label, name)
    if not labels:
        raise ParameterError(f"{name} must not be empty. List all possible values.")
    twice, times = Counter(labels).most_common(1)[0]
    if times > 1:
        raise ParameterError(f"{name} must be different. Got {twice!r} twice. Remove one.")
    return labels


def check_text(label: object, name: str) -> None:
    if not isinstance(label, str) or not label:
        raise ParameterError(f"{name} must be texts that are not empty. Got {shown(label)}. Put numbers in quotes.")


class Coded(Domain):
    """A domain of finitely many labels; their codes are the positions in ``labels``."""

    if TYPE_CHECKING:

        @property
        def labels(self) -> tuple[str, ...]:
            """All values in canonical order."""

    @abstractmethod
    def _measure(self, codes: IntArray) -> FloatArray:
        """Compute the distances between some labels, given by their codes in rising order."""

    @cached_property
    def _code_of(self) -> dict[str, int]:
        return {label: code for code, label in enumerate(self.labels)}

    def _look_up(self, values: ArrayLike) -> IntArray:
        """Code of each value, -1 where it is not in the domain."""
        cells = np.asarray(values, dtype=object).reshape(-1).tolist()
        find = self._code_of.get
        return np.fromiter((find(cell, -1) for cell in cells), dtype=np.int64, count=len(cells))

    def contains(self, values: ArrayLike) -> BoolArray:
        return self._look_up(values) >= 0

    def codes(self, values: ArrayLike) -> IntArray:
        codes = self._look_up(values)
        strange = np.flatnonzero(codes < 0)
        if strange.size:
            raise ParameterError(
                f"{strange.size} values are not in the {self.kind} domain, the first at position {strange[0]}. "
                "Add them to the domain, or leave their rows out."
            )
        return codes

    def _some_codes(self, values: ArrayLike) -> IntArray:
        codes = np.unique(self.codes(values))
        if codes.size == 0:
            raise ParameterError("generalising needs at least one value.")
        return codes

    def _distinct(self, values: ArrayLike) -> tuple[str, ...]:
        return tuple(self.labels[code] for code in self._some_codes(values))

    def distance(self, a: str, b: str) -> float:
        codes, places = np.unique(self.codes([a, b]), return_inverse=True)
        return float(self._measure(codes)[tuple(places)])

    def distances(self) -> FloatArray:
        """Matrix of distances between all labels, by code; read-only."""
        return self._distance_matrix

    @cached_property
    def _distance_matrix(self) -> FloatArray:
        matrix = self.distances_between(np.arange(len(self.labels)))
        matrix.setflags(write=False)
        return matrix

    def distances_between(self, codes: IntArray) -> FloatArray:
        self._check_number(len(codes))
        return self._measure(codes)

    def _check_number(self, num: int) -> None:
        if num > MOST_IN_MATRIX:
            raise ParameterError(
                f"distances: at most {MOST_IN_MATRIX:,} labels. Got {num:,}. Use a coarser domain or a tree."
            )


CodedDomain = Coded


def share(part: float, whole: float) -> float:
    """Return part / whole, and 0 if the whole is 0: then nothing can be lost."""
    return part / whole if whole else 0.0


@dataclass(frozen=True, kw_only=True)
class Ordinal(Coded):
    kind: ClassVar[str] = "ordinal"
    levels: tuple[str, ...]  # From lowest to highest

    if TYPE_CHECKING:

        def __init__(self, *, levels: Sequence[str]) -> None: ...

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", check_texts(self.levels, "levels"))

    @property
    def labels(self) -> tuple[str, ...]:
        return self.levels

    @property
    def diameter(self) -> float:
        return float(len(self.levels) - 1)

    def generalise(self, values: ArrayLike) -> tuple[str, str]:
        levels = self._distinct(values)
        return levels[0], levels[-1]

    def width(self, generalised: tuple[str, str]) -> float:
        lowest, highest = self.codes(generalised).tolist()
        if lowest > highest:
            raise ParameterError("A range of levels must be (lowest, highest).")
        return share(highest - lowest, self.diameter)

    def _measure(self, codes: IntArray) -> FloatArray:
        ranks = codes.astype(np.float64)
        return np.abs(ranks[:, None] - ranks)


class _Unordered(Coded):
    """Labels without order or structure: two are equal or different."""

    @property
    def diameter(self) -> float:
        return float(len(self.labels) > 1)

    def generalise(self, values: ArrayLike) -> tuple[str, ...]:
        return self._distinct(values)

    def width(self, generalised: Iterable[str]) -> float:
        return share(len(self._distinct(list(generalised))) - 1, len(self.labels) - 1)

    def _measure(self, codes: IntArray) -> FloatArray:
        return 1.0 - np.eye(len(codes))


@dataclass(frozen=True, kw_only=True)
class Category(_Unordered):
    """Labels without order or structure.

    Parameters
    ----------
    values
        All values; kept sorted, so that their order does not matter.
    """

    kind: ClassVar[str] = "category"
    values: tuple[str, ...]

    if TYPE_CHECKING:

        def __init__(self, *, values: Iterable[str]) -> None: ...

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(sorted(check_texts(self.values, "values"))))

    @property
    def labels(self) -> tuple[str, ...]:
        return self.values


@dataclass(frozen=True, kw_only=True)
class Stops(_Unordered):
    """Stops of a city: labels without structure, in a public order that is kept."""

    kind: ClassVar[str] = "stop"
    stops: tuple[str, ...]  # All stops; a stop's code is its position

    if TYPE_CHECKING:

        def __init__(self, *, stops: Sequence[str]) -> None: ...

    def __post_init__(self) -> None:
        object.__setattr__(self, "stops", check_texts(self.stops, "stops"))

    @property
    def labels(self) -> tuple[str, ...]:
        return self.stops


# --- Numbers

MAX_GRID = 2**52  # Maximum integer on a grid: below it, neighbouring grid points are different doubles


@dataclass(frozen=True)
class PointGrid:
    """Equidistant public points: point i is the double nearest to (first + i * step) / denominator."""

    first: int  # All three are below 2**52, so that neighbouring points are different doubles
    step: int
    denominator: int

    @classmethod
    def of(cls, lower: Fraction, step: Fraction, *others: Fraction) -> PointGrid:
        """Put all numbers, and ``others``, over one denominator."""
        denominator = math.lcm(lower.denominator, step.denominator, *(other.denominator for other in others))
        return cls(int(lower * denominator), int(step * denominator), denominator)

    def is_exact(self, upper: Fraction) -> bool:
        """Return whether all points up to ``upper`` are different doubles."""
        return max(abs(self.first), abs(int(upper * self.denominator)), self.denominator) < MAX_GRID

    def points(self, steps: ArrayLike) -> FloatArray:
        # All integers are below 2**53, hence exact as doubles, and one division rounds once.
        points = (self.first + np.asarray(steps, dtype=np.int64) * self.step) / self.denominator
        return np.asarray(points, dtype=np.float64)

    def below(self, values: FloatArray, last: int) -> IntArray:
        """Return the largest step from 0 to ``last`` with a point of at most the value."""
        guess = np.floor((values - self.first / self.denominator) / (self.step / self.denominator))
        steps = np.clip(guess, 0, last).astype(np.int64)
        # The guess is off by a few steps at most (three roundings of a number below 2**53): compare with the neighbours
        # until none is better.
        while (high := (self.points(steps) > values) & (steps > 0)).any():
            steps = steps - high
        while (low := (self.points(steps + 1) <= values) & (steps < last)).any():
            steps = steps + low
        return steps


@dataclass(frozen=True, kw_only=True)
class Numeric(Domain):
    """Numbers between two public bounds, both included.

    With a ``resolution`` the domain has a public grid of ``num_steps + 1`` points ``lower + i * resolution``. A grid
    point is the double nearest to that decimal, so 0.3 is on a grid of 0.1 although ``0.3 / 0.1`` is not whole in
    floating point.

    Parameters
    ----------
    lower, upper
        Bounds; never read from the data. A float means the decimal it prints as.
    resolution
        Distance between neighbouring grid points; ``upper - lower`` must be a multiple of it.
    unit
        Name of the unit, for people.
    doubling
        Width of the intervals at the first level of a hierarchy. It doubles at each level, up to the whole domain; see
        :mod:`dunnage.model.hierarchies`.
    clock
        Whether numbers are minutes of a service day, which people read and write as HH:MM.
    """

    kind: ClassVar[str] = "numeric"
    lower: Fraction
    upper: Fraction
    resolution: Fraction | None = None
    unit: str = ""
    doubling: Fraction | None = None
    clock: bool = False

    if TYPE_CHECKING:  # arguments have wider types than fields

        def __init__(
            self,
            *,
            lower: Exact,
            upper: Exact,
            resolution: Exact | None = None,
            unit: str = "",
            doubling: Exact | None = None,
            clock: bool = False,
        ) -> None: ...

    def __post_init__(self) -> None:
        for name in ("lower", "upper", "resolution", "doubling"):
            if name in ("lower", "upper") or getattr(self, name) is not None:
                object.__setattr__(self, name, exact(getattr(self, name), what=name))
        if not isinstance(self.unit, str):
            raise ParameterError(f"unit must be text, such as 'kg'. Got {shown(self.unit)}.")
        if not isinstance(self.clock, bool):
            raise ParameterError(f"clock must be true or false. Got {shown(self.clock)}.")
        got = f"Got {shown_number(self.lower)} and {shown_number(self.upper)}."
        if not self.lower < self.upper:
            raise ParameterError(f"lower must be below upper. {got} Swap them or widen the domain.")
        if not 0 < nearest_float(self.upper) - nearest_float(self.lower) < math.inf:
            raise ParameterError(f"The bounds must be different finite doubles. {got} Change the unit.")
        resolution, doubling = self.resolution, self.doubling
        if resolution is not None:
            if resolution <= 0:
                raise ParameterError(f"resolution must be above 0. Got {shown_number(resolution)}.")
            steps = (self.upper - self.lower) / resolution
            if steps.denominator != 1:
                below = self.lower + math.floor(steps) * resolution
                raise ParameterError(
                    "upper - lower must be a whole number of steps of the resolution. Got "
                    f"{shown_number(self.upper - self.lower)} in steps of {shown_number(resolution)}. Change "
                    f"upper to {shown_number(below)} or {shown_number(below + resolution)}, or change resolution."
                )
            if not self._grid.is_exact(self.upper):
                raise ParameterError(
                    f"A resolution of {shown_number(resolution)} is too fine for exact arithmetic. "
                    "Choose a coarser resolution, or bounds with fewer decimals."
                )
        if doubling is not None:
            if doubling <= 0:
                raise ParameterError(f"doubling must be above 0. Got {shown_number(doubling)}.")
            if not self.borders.is_exact(self.upper):
                raise ParameterError(
                    f"A doubling of {shown_number(doubling)} is too narrow for exact arithmetic. "
                    "Choose a wider first interval, or bounds with fewer decimals."
                )

    @cached_property
    def _grid(self) -> PointGrid:
        if self.resolution is None:
            raise ParameterError("This domain has no grid. Give it a resolution.")
        return PointGrid.of(self.lower, self.resolution)

    @cached_property
    def borders(self) -> PointGrid:
        """The starts of intervals of the width ``doubling``; the upper end has the same denominator."""
        if self.doubling is None:
            raise ParameterError("The hierarchy of a numeric domain needs a first width. Add doubling = WIDTH.")
        return PointGrid.of(self.lower, min(self.doubling, self.upper - self.lower), self.upper)

    def describe(self) -> dict[str, object]:
        described = super().describe()
        return described if self.clock else {name: value for name, value in described.items() if name != "clock"}

    @property
    def lower_float(self) -> float:
        return float(self.lower)

    @property
    def upper_float(self) -> float:
        return float(self.upper)

    @property
    def span(self) -> float:
        return self.upper_float - self.lower_float

    @property
    def diameter(self) -> float:
        return self.span

    @property
    def num_steps(self) -> int:
        return int((self.upper - self.lower) * self._grid.denominator) // self._grid.step

    def contains(self, values: ArrayLike) -> BoolArray:
        numbers = _floats(values)
        return (numbers >= self.lower_float) & (numbers <= self.upper_float)

    def clamp(self, values: ArrayLike) -> FloatArray:
        """Move values outside to the nearer bound; NaN stays NaN."""
        return np.clip(_floats(values), self.lower_float, self.upper_float)

    def distance(self, a: float, b: float) -> float:
        return abs(float(a) - float(b))

    def generalise(self, values: ArrayLike) -> tuple[float, float]:
        given = _floats(values)
        if given.size == 0 or np.isnan(given).any():
            raise ParameterError("generalising needs at least one number, and no NaN.")
        return float(given.min()), float(given.max())

    def width(self, generalised: tuple[float, float]) -> float:
        lower, upper = generalised
        if not lower <= upper:
            raise ParameterError("An interval must be (lower, upper), the lower bound first.")
        return (upper - lower) / self.diameter

    def grid_values(self, steps: ArrayLike) -> FloatArray:
        return self._grid.points(steps)

    def steps_below(self, values: ArrayLike) -> IntArray:
        """Return the largest step with a grid point of at most the value; -1 below the domain."""
        given = _floats(values)
        if np.isnan(given).any():
            raise ParameterError("NaN is not on any grid. Leave such values out first.")
        steps = self._grid.below(self.clamp(given), self.num_steps)
        return np.where(given < self.lower_float, np.int64(-1), steps)

    def steps_above(self, values: ArrayLike) -> IntArray:
        """Return the smallest step with a grid point of at least the value; ``num_steps + 1`` above the domain."""
        below = self.steps_below(values)
        reached = (below >= 0) & (self.grid_values(below) == _floats(values))
        return np.where(reached, below, below + 1)

    def on_grid(self, values: ArrayLike) -> BoolArray:
        given = _floats(values)
        inside = self.contains(given)
        steps = self.steps_below(np.where(inside, given, self.lower_float))
        return np.asarray(inside & (self.grid_values(steps) == given))


def decimal_scale(values: ArrayLike) -> int | None:
    """Return the smallest power of ten, up to 10**9, that makes all values whole; None if there is none."""
    numbers = _floats(values)
    if not np.isfinite(numbers).all():
        return None
    few = numbers[:1000]  # most scales fail on a few values
    scales = (10**decimals for decimals in range(10))
    return next((scale for scale in scales if _are_decimals(few, scale) and _are_decimals(numbers, scale)), None)


def _are_decimals(values: FloatArray, scale: int) -> bool:
    with np.errstate(over="ignore"):
        nearest = np.rint(values * scale)
    left = ~_are_quotients(values, nearest, scale)
    for shift in (-1.0, 1.0):  # from 2**51 up the product may be rounded to a neighbour
        left[left] = ~_are_quotients(values[left], nearest[left] + shift, scale)
    return not left.any()


def _are_quotients(values: FloatArray, integers: FloatArray, scale: int) -> BoolArray:
    # Both operands are exact integers, so the quotient is the double nearest to the decimal.
    return np.asarray((integers / scale == values) & (np.abs(integers) < 2.0**53))


def _floats(values: ArrayLike) -> FloatArray:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ParameterError("A numeric domain needs numbers. Convert the values first.") from None


# --- Networks

# The inverse is the shortest edge. No sum, square or quotient of paths leaves the range of doubles.
MAX_LENGTH = 10**12
_UNREACHED = 2**62
_MAX_AT_ONCE = 2**22  # Distances that are computed at a time


@dataclass(frozen=True, kw_only=True)
class Graph(Coded):
    """Labels that are the vertices of a public network; the distance is the shortest path.

    Every vertex must be reachable from every other one. Sums of lengths are exact if a common unit of all lengths fits
    63 bits, as it does for decimals of a few digits; otherwise lengths are first rounded, at the 19th digit of the
    longest way.

    Parameters
    ----------
    edges
        ``(from, to)`` or ``(from, to, length)``; the length is 1 by default, at least 1e-12 and at most 1e12. Kept
        sorted, so that their order does not matter.
    directed
        Whether an edge goes only from its first vertex to its second.
    """

    kind: ClassVar[str] = "graph"
    edges: tuple[tuple[str, str, Fraction], ...]
    directed: bool = False

    if TYPE_CHECKING:

        def __init__(
            self, *, edges: Iterable[tuple[str, str] | tuple[str, str, Exact] | Sequence[Any]], directed: bool = False
        ) -> None: ...

    def __post_init__(self) -> None:
        if not isinstance(self.directed, bool):
            raise ParameterError(f"directed must be true or false. Got {shown(self.directed)}.")
        if isinstance(self.edges, str) or not isinstance(self.edges, Iterable):
            raise ParameterError(f"edges must be a list of edges. Got {shown(self.edges)}.")
        lengths: dict[tuple[str, str], Fraction] = {}
        for edge in self.edges:
            _add_edge(lengths, edge, self.directed)
        if not lengths:
            raise ParameterError("A graph needs at least one edge.")
        edges = tuple((start, end, length) for (start, end), length in sorted(lengths.items()))
        object.__setattr__(self, "edges", edges)
        for backwards in (False, True) if self.directed else (False,):
            reached = {self.labels[code] for code in _reach(self._arcs, len(self.labels), backwards=backwards)}
            if lost := [label for label in self.labels if label not in reached]:
                ends = (lost[0], self.labels[0]) if backwards else (self.labels[0], lost[0])
                raise ParameterError(
                    f"There is no path from {ends[0]!r} to {ends[1]!r}, but every vertex must be reachable from "
                    "every other one. Add edges that connect them, or make one domain for each part."
                )

    @classmethod
    def from_csv(cls, path: str | PathLike[str], *, directed: bool = False) -> Graph:
        """Read an edge list."""
        (header_line, header), *lines = read_lines(path)
        names = [name.strip().lower() for name in header]
        if names not in (["from", "to"], ["from", "to", "length"]):
            refuse_lines(path, [(header_line, "the header must be from,to or from,to,length.")])
        lengths: dict[tuple[str, str], Fraction] = {}
        problems = []
        for line, cells in lines:
            if len(cells) != len(names):
                what = f"the header has {len(names)} cells, but this line has {len(cells)}."
                problems.append((line, what))
                continue
            try:
                _add_edge(lengths, cells, directed)
            except ParameterError as error:
                problems.append((line, str(error)))
        refuse_lines(path, problems)
        try:
            return cls(edges=[(*ends, length) for ends, length in lengths.items()], directed=directed)
        except ParameterError as error:
            raise InputError(str(path), [str(error)]) from None

    @cached_property
    def labels(self) -> tuple[str, ...]:
        return tuple(sorted({vertex for start, end, _ in self.edges for vertex in (start, end)}))

    @cached_property
    def _arcs(self) -> list[tuple[int, int, Fraction]]:
        code = self._code_of
        arcs = [(code[start], code[end], length) for start, end, length in self.edges]
        return arcs if self.directed else arcs + [(end, start, length) for start, end, length in arcs]

    @cached_property
    def diameter(self) -> float:
        self._check_number(len(self.labels))
        return max(float(rows.max()) for rows in self.distances_from(np.arange(len(self.labels))))

    def generalise(self, values: ArrayLike) -> tuple[str, ...]:
        return self._distinct(values)

    def width(self, generalised: Iterable[str]) -> float:
        codes = self._some_codes(list(generalised))
        return float(self._measure(codes).max()) / self.diameter

    def distances_from(self, codes: IntArray) -> Iterator[FloatArray]:
        """Yield distances from some vertices to all, some rows at a time. Shape of each: (vertices, all vertices)."""
        incoming, order, unit = self._ways
        step = max(1, _MAX_AT_ONCE // len(order))
        for start in range(0, len(codes), step):
            sources = codes[start : start + step]
            near = np.full((len(order), len(sources)), _UNREACHED, dtype=np.int64)
            near[sources, np.arange(len(sources))] = 0
            # Bellman and Ford's relaxation with Yen's alternating sweeps: a sweep follows a path as long as it runs
            # along the order, so sweeps back and forth along a breadth-first order settle in a few rounds.
            before: IntArray | None = None
            while before is None or not np.array_equal(before, near):
                before = near.copy()
                for vertex in (*order, *reversed(order)):
                    starts, lengths = incoming[vertex]
                    np.minimum(near[vertex], (near[starts] + lengths).min(axis=0), out=near[vertex])
            yield np.ascontiguousarray(near.T / unit, dtype=np.float64)

    @cached_property
    def _ways(self) -> tuple[list[tuple[IntArray, IntArray]], list[int], float]:
        """Arcs into each vertex, vertices in the order in which they are reached, and the length 1 in units of arcs."""
        num, unit = len(self.labels), Fraction(1)
        # How many units make a length of 1: all lengths are whole if possible, and no path has 2**62 units.
        longest = max(length for _, _, length in self._arcs) * num
        for denominator in {length.denominator for _, _, length in self._arcs}:
            unit = Fraction(math.lcm(int(unit), denominator))
            if longest * unit >= _UNREACHED:
                unit = Fraction(2) ** (math.floor(math.log2(_UNREACHED / longest)) - 1)
                break
        into: list[list[tuple[int, int]]] = [[] for _ in range(num)]
        for start, end, length in self._arcs:
            into[end].append((start, max(1, round(length * unit))))  # no length is rounded to 0
        incoming = [
            (np.array([start for start, _ in arrivals]), np.array([[length] for _, length in arrivals], dtype=np.int64))
            for arrivals in into
        ]
        return incoming, _reach(self._arcs, num, backwards=False), float(unit)

    def _measure(self, codes: IntArray) -> FloatArray:
        rows = [some[:, codes] for some in self.distances_from(codes)]
        return np.concatenate(rows) if len(rows) > 1 else rows[0]


def _add_edge(lengths: dict[tuple[str, str], Fraction], edge: object, directed: bool) -> None:
    """Check and add an edge; the two directions of an undirected edge are the same."""
    if isinstance(edge, str) or not isinstance(edge, Sequence) or len(edge) not in (2, 3):
        raise ParameterError(f"An edge must be (from, to) or (from, to, length). Got {shown(edge)}.")
    start, end = edge[:2]
    check_text(start, "edges")
    check_text(end, "edges")
    name = f"the edge from {start!r} to {end!r}"
    length = exact(edge[2], what=f"The length of {name}") if len(edge) == 3 else Fraction(1)
    if start == end:
        raise ParameterError(f"An edge must connect two different vertices. Remove {name}.")
    if not Fraction(1, MAX_LENGTH) <= length <= MAX_LENGTH:
        rule = "above 0" if length <= 0 else "at least 1e-12 and at most 1e12"
        raise ParameterError(f"A length must be {rule}. Got {shown_number(length)} for {name}. Change it or the unit.")
    ends = (start, end) if directed or start < end else (end, start)
    if lengths.setdefault(ends, length) != length:
        raise ParameterError(
            f"An edge must have one length. Got {shown_number(lengths[ends])} and {shown_number(length)} for {name}. "
            + ("Remove one." if directed else "Remove one, or make the graph directed.")
        )


def _reach(arcs: list[tuple[int, int, Fraction]], num_vertices: int, *, backwards: bool) -> list[int]:
    """Return the vertices that the first one reaches (or that reach it), fewest edges first."""
    following: list[list[int]] = [[] for _ in range(num_vertices)]
    for start, end, _ in arcs:
        following[end if backwards else start].append(start if backwards else end)
    order, seen, todo = [0], {0}, deque([0])
    while todo:
        for vertex in following[todo.popleft()]:
            if vertex not in seen:
                seen.add(vertex)
                order.append(vertex)
                todo.append(vertex)
    return order


# --- Trees


class _Shape(NamedTuple):
    """A tree walked depth first: the leaves below a node are ``leaves[start:end]``."""

    root: str
    leaves: tuple[str, ...]
    spans: dict[str, tuple[int, int]]
    depths: dict[str, int]
    children: dict[str, list[str]]


@dataclass(frozen=True, kw_only=True)
class Tree(Coded):
    """Labels with a public hierarchy of generalisations; the leaves are the values.

    Codes follow a depth-first walk, so the leaves below a node have consecutive codes, and the least common ancestor of
    a set is that of its smallest and largest code.

    Parameters
    ----------
    parents
        Parent of every node but the root. Kept sorted, so that its order does not matter.
    rows
        Instead of ``parents``: one row per leaf, see :meth:`from_levels`.
    """

    kind: ClassVar[str] = "tree"
    parents: tuple[tuple[str, str], ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()

    if TYPE_CHECKING:

        def __init__(
            self, *, parents: Mapping[str, str] | Iterable[tuple[str, str]] = (), rows: Sequence[Sequence[str]] = ()
        ) -> None: ...

    def __post_init__(self) -> None:
        entries = self.parents.items() if isinstance(self.parents, Mapping) else self.parents
        if isinstance(entries, str) or not isinstance(entries, Iterable):
            raise ParameterError(f"parents must map each child to its parent. Got {shown(self.parents)}.")
        pairs = []
        for entry in entries:
            if isinstance(entry, str) or not isinstance(entry, Sequence) or len(entry) != 2:
                raise ParameterError(f"parents must be pairs (child, parent). Got {shown(entry)}.")
            for label in entry:
                check_text(label, "parents")
            pairs.append((entry[0], entry[1]))
        pairs.sort()
        for (child, first), (other, second) in pairwise(pairs):
            if child == other:
                raise ParameterError(f"{child!r} has two parents, {first!r} and {second!r}. Keep one of the entries.")
        if isinstance(self.rows, str) or not isinstance(self.rows, Iterable):
            raise ParameterError(f"rows must be a list of rows. Got {shown(self.rows)}.")
        given = list(self.rows)
        for row in given:
            if isinstance(row, str) or not isinstance(row, Sequence):
                raise ParameterError(f"A row must be a list of labels, the leaf first. Got {shown(row)}.")
        for index, what in _row_problems(given)[:1]:
            raise ParameterError(f"Hierarchy row {index + 1}: {what}")
        rows = tuple(sorted(tuple(row) for row in given))
        if rows:
            steps = (step for row in rows for step in pairwise(row))
            implied = sorted({(child, parent) for child, parent in steps if child != parent})
            if pairs and pairs != implied:
                raise ParameterError("parents and rows disagree. Give only one of them.")
            pairs = implied
        if not pairs:
            raise ParameterError("A tree needs parents (child -> parent) or rows.")
        object.__setattr__(self, "parents", tuple(pairs))
        object.__setattr__(self, "rows", rows)
        _ = self._shape  # the walk detects cycles and second roots

    @classmethod
    def from_levels(cls, rows: Sequence[Sequence[str]]) -> Tree:
        """Make a tree from one row per leaf, as ARX writes hierarchies."""
        return cls(rows=rows)

    @classmethod
    def from_csv(cls, path: str | PathLike[str], delimiter: str | None = None, *, column: str = "") -> Tree:
        """Read a hierarchy in ARX's layout, with or without a line of names above it.

        A first line is a header if it begins with the name of the column, or if it shares no label with the others,
        which all end with the same one.
        """
        lines = read_lines(path, delimiter)
        first, others = lines[0][1], [cells for _, cells in lines[1:]]
        named = bool(column) and first[0].strip().casefold() == column.strip().casefold()
        one_root = len(others) > 1 and len({tuple(cells[-1:]) for cells in others}) == 1
        if others and (named or (one_root and not {*first} & {label for cells in others for label in cells})):
            lines = lines[1:]
        problems = _row_problems([cells for _, cells in lines])
        refuse_lines(path, [(lines[index][0], what) for index, what in problems])
        try:
            return cls(rows=[cells for _, cells in lines])
        except ParameterError as error:
            raise InputError(str(path), [str(error)]) from None

    @cached_property
    def _parent_of(self) -> dict[str, str]:
        return dict(self.parents)

    @cached_property
    def _shape(self) -> _Shape:
        """The tree, walked without recursion because hierarchies may be deep."""
        children: dict[str, list[str]] = {}
        for child, parent in self.parents:
            children.setdefault(parent, []).append(child)
        roots = sorted(children.keys() - self._parent_of.keys())
        if len(roots) > 1:
            raise ParameterError(
                f"A tree must have one root, but {len(roots)} nodes have no parent, such as {roots[0]!r} and "
                f"{roots[1]!r}. Give them a common ancestor."
            )
        leaves: list[str] = []
        starts, spans, depths = dict[str, int](), dict[str, tuple[int, int]](), dict.fromkeys(roots, 0)
        todo = [(root, False) for root in roots]
        while todo:
            node, done = todo.pop()
            if done:
                spans[node] = starts[node], len(leaves)
                continue
            starts[node] = len(leaves)
            if node not in children:
                leaves.append(node)
            todo.append((node, True))
            todo.extend((child, False) for child in reversed(children.get(node, ())))
            depths.update((child, depths[node] + 1) for child in children.get(node, ()))
        above = self._parent_of
        if lost := above.keys() - spans.keys():  # entries that the walk did not reach lead into a cycle
            node, seen = min(lost), set[str]()
            while node not in seen:
                seen.add(node)
                node = above[node]
            raise ParameterError(f"{node!r} is its own ancestor: remove {node!r} -> {above[node]!r} from the cycle.")
        return _Shape(roots[0], tuple(leaves), spans, depths, children)

    @cached_property
    def _row_of(self) -> dict[str, tuple[str, ...]]:
        return {row[0]: row for row in self.rows}

    @property
    def root(self) -> str:
        return self._shape.root

    @property
    def labels(self) -> tuple[str, ...]:
        return self._shape.leaves

    @property
    def shortened(self) -> str:
        """A value if values are codes of which only the first characters remain, such as ``80***``; empty if not."""
        return self.labels[0] if self.labels[0].endswith("*") else ""

    @cached_property
    def num_levels(self) -> int:
        return len(self.rows[0]) if self.rows else max(self._shape.depths.values()) + 1

    def levels(self, value: str) -> tuple[str, ...]:
        """Return the generalisations of a leaf by level, from itself to the root.

        Without rows a level is a depth: a leaf that is less deep than others stays itself on the first levels.
        """
        leaf = self.labels[self.codes([value])[0]]
        if self.rows:
            return self._row_of[leaf]
        path = (leaf, *self._above(leaf))
        return (leaf,) * (self.num_levels - len(path)) + path

    def _above(self, node: str) -> Iterator[str]:
        while (parent := self._parent_of.get(node)) is not None:
            yield parent
            node = parent

    @property
    def node_sizes(self) -> dict[str, int]:
        return {node: end - start for node, (start, end) in self._shape.spans.items()}

    def _num_others(self, node: str) -> int:
        start, end = self._shape.spans[node]
        return end - start - 1

    @property
    def diameter(self) -> float:
        return float(len(self.labels) - 1)

    def generalise(self, values: ArrayLike) -> str:
        codes = self._some_codes(values)
        leaf: str = self.labels[codes[0]]
        above = (leaf, *self._above(leaf))  # the root spans all leaves, so there is always one
        return next(node for node in above if self._shape.spans[node][1] > codes[-1])

    def width(self, generalised: str) -> float:
        if generalised not in self._shape.spans:
            raise ParameterError("A generalised value must be the label of a node of the tree.")
        return share(self._num_others(generalised), self.diameter)

    def _measure(self, codes: IntArray) -> FloatArray:
        matrix = np.zeros((len(codes), len(codes)))
        place = np.searchsorted(codes, np.arange(len(self.labels) + 1)).tolist()
        for node, below in self._shape.children.items():
            start, end = (place[code] for code in self._shape.spans[node])
            for child in below:  # each pair of leaves is written once, at its least common ancestor
                first, last = (place[code] for code in self._shape.spans[child])
                matrix[first:last, start:first] = self._num_others(node)
                matrix[first:last, last:end] = self._num_others(node)
        return matrix

    def describe(self) -> dict[str, object]:
        if self.rows:
            return {"kind": self.kind, "rows": [list(row) for row in self.rows]}
        return {"kind": self.kind, "parents": dict(self.parents)}


def _row_problems(rows: Sequence[Sequence[object]]) -> list[tuple[int, str]]:
    """Return all problems of the rows of a hierarchy, each with the index of its row."""
    problems: list[tuple[int, str]] = []
    for index, cells in enumerate(rows):
        if len(cells) != len(rows[0]) or len(cells) < 2:
            what = f"every row must have as many labels as the first, at least 2: the first has {len(rows[0])}, "
            problems.append((index, what + f"this one {len(cells)}. Repeat a label to fill a level."))
        for level, cell in enumerate(cells):
            if not isinstance(cell, str) or not cell:
                problems.append((index, f"the label at level {level} must be text. Got {shown(cell)}. Fill it in."))
    if problems:
        return problems
    texts = cast("Sequence[Sequence[str]]", rows)
    leaves: set[str] = set()
    for index, row in enumerate(texts):
        if row[0] in leaves:
            problems.append((index, f"the leaf {row[0]!r} already has a row. Remove one of them."))
        leaves.add(row[0])
    for index, row in enumerate(texts):
        if row[-1] != texts[0][-1]:
            what = f"the last label must be {texts[0][-1]!r}, as in the first row. Got {row[-1]!r}."
            problems.append((index, what))
        for label in sorted(set(row[1:]) - {row[0]}):
            if label in leaves:
                problems.append((index, f"{label!r} generalises {row[0]!r} but is a leaf itself. Rename one of them."))
    following: dict[tuple[int, str], str] = {}
    for index, row in enumerate(texts):
        for level in range(1, len(row) - 1):
            if (above := following.setdefault((level, row[level]), row[level + 1])) != row[level + 1]:
                what = f"{row[level]!r} at level {level} becomes {row[level + 1]!r} here, but "
                problems.append((index, what + f"{above!r} in an earlier row. Make them the same."))
    tops: dict[str, int] = {}  # a label names one node, whatever the row
    for index, row in enumerate(texts):
        places: dict[str, list[int]] = {}
        for level, label in enumerate(row):
            places.setdefault(label, []).append(level)
        for label, levels in places.items():
            if levels[-1] - levels[0] >= len(levels):
                what = f"{label!r} appears again at level {levels[-1]}, above another label. Rename one."
                problems.append((index, what))
            elif tops.setdefault(label, levels[-1]) != levels[-1]:
                what = f"{label!r} means different things at levels {levels[-1]} and {tops[label]}. Rename one."
                problems.append((index, what))
    return sorted(problems, key=lambda problem: problem[0])


# --- Times of a service day, in windows of equal length, and days that are counted separately
#
# A service day may go past midnight: with the domain 04:00 to 28:00, half past one at night is 25:30 of the day before,
# as in GTFS. A time is kept as a *stamp*: the number of its service date times 200,000, plus its second of the service
# day. The number of a date is its proleptic Gregorian ordinal; a time without a date has the number 0.

STAMPS_PER_DATE = 200_000
DAYS = ("date", "weekday", "day-type")
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
DAY_TYPES = ("weekday", "saturday", "sunday")
MAX_DATES = 3_700  # Maximum number of dates from the first to the last: ten years
DAY_SECONDS = 86_400

_NO_ZONES = ("localtime", "posixrules", "Factory")
_CLOCK = re.compile(r"(\d{1,2}):([0-5]\d)", re.ASCII)


def stamps_of(ordinals: IntArray, seconds: IntArray) -> IntArray:
    """Combine service dates and seconds of the service day. Shapes: (n,) each -> (n,)."""
    return ordinals * STAMPS_PER_DATE + np.clip(seconds, 0, STAMPS_PER_DATE - 1)


def split_stamps(stamps: IntArray) -> tuple[IntArray, IntArray]:
    """Return the number of the service date and the second of the service day of each stamp."""
    ordinals, seconds = np.divmod(stamps, STAMPS_PER_DATE)
    return ordinals, seconds


def clock_text(minutes: int) -> str:
    """Write minutes of a service day as HH:MM; hours may go past 24."""
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


@dataclass(frozen=True, kw_only=True)
class Windows(Domain):
    """Times of a service day in windows, with the days that are counted separately."""

    kind: ClassVar[str] = "time"
    lower: str  # First minute of the service day, HH:MM; an earlier time belongs to the service day before
    upper: str  # The minute after the last one, at most 24 hours later; hours may go past 24
    window_minutes: int  # Length of a window; the last may be shorter
    # IANA name of the time zone. Seconds are then counted from twelve hours before noon, so that they are unambiguous
    # on days when clocks change.
    zone: str | None = None
    # What is counted separately: each ``date``, the seven days of the week (``weekday``) or each ``day-type`` (weekday,
    # saturday, sunday); None counts all days together.
    day: str | None = None
    dates: tuple[str, str] | None = None  # First and last possible service date, YYYY-MM-DD: a public fact
    holidays: tuple[str, ...] = ()  # Dates that count as a sunday; for ``day-type`` only

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            lower: str,
            upper: str,
            window_minutes: int,
            zone: str | None = None,
            day: str | None = None,
            dates: Sequence[str] | None = None,
            holidays: Iterable[str] = (),
        ) -> None: ...

    def __post_init__(self) -> None:
        minutes = self.window_minutes
        if isinstance(minutes, bool) or not isinstance(minutes, Integral) or not 1 <= minutes <= 1440:
            raise ParameterError(f"window_minutes must be a whole number from 1 to 1440. Got {shown(minutes)}.")
        object.__setattr__(self, "window_minutes", int(minutes))
        lower, upper = _minutes(self.lower, "lower"), _minutes(self.upper, "upper")
        if not (lower < upper <= lower + 1440 and lower < 1440):
            raise ParameterError(
                "a service day begins before 24:00, ends after it begins and has at most 24 hours. "
                f"Got {self.lower} to {self.upper}. Write, for example, 04:00 and 28:00."
            )
        object.__setattr__(self, "lower", clock_text(lower))
        object.__setattr__(self, "upper", clock_text(upper))
        if self.zone is not None:
            zone = self.zone
            import zoneinfo

            if zone in _NO_ZONES:
                raise ParameterError(f"zone {zone} differs between machines. Write an IANA name such as Europe/Madrid.")
            try:
                if not isinstance(zone, str):
                    raise ValueError
                zoneinfo.ZoneInfo(zone)
            except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
                raise ParameterError(
                    f"zone must be the IANA name of a time zone, such as Europe/Madrid. Got {shown(zone)}. If it is "
                    "correct, this machine has no list of zones: install tzdata."
                ) from None
        if self.day not in (None, *DAYS):
            raise ParameterError(f"day must be one of {', '.join(DAYS)}, or left out. Got {shown(self.day)}.")
        if self.dates is not None:
            dates = self.dates
            ends = tuple(dates) if isinstance(dates, Iterable) and not isinstance(dates, str) else ()
            if len(ends) != 2:
                raise ParameterError(f"dates must be the first and the last service date. Got {shown(dates)}.")
            first, last = (_checked_ordinal(day, "dates") for day in ends)
            if not 0 <= last - first < MAX_DATES:
                raise ParameterError(
                    f"dates must be the first and the last service date, at most {MAX_DATES} days apart. Got "
                    f"{ends[0]} and {ends[1]}."
                )
            object.__setattr__(self, "dates", (ends[0], ends[1]))
        if isinstance(self.holidays, str) or not isinstance(self.holidays, Iterable):
            raise ParameterError(f"holidays must be a list of dates. Got {shown(self.holidays)}.")
        holidays = tuple(self.holidays)
        for day in holidays:
            _checked_ordinal(day, "holidays")
        object.__setattr__(self, "holidays", tuple(sorted(set(holidays))))
        if self.holidays and self.day != "day-type":
            raise ParameterError('holidays count as sundays and need day = "day-type". Set it, or leave holidays out.')

    @cached_property
    def lower_seconds(self) -> int:
        return 60 * _minutes(self.lower, "lower")

    @cached_property
    def upper_seconds(self) -> int:
        return 60 * _minutes(self.upper, "upper")

    @cached_property
    def labels(self) -> tuple[str, ...]:
        minutes = range(self.lower_seconds // 60, self.upper_seconds // 60, self.window_minutes)
        return tuple(clock_text(start) for start in minutes)

    def calendar(self, period: str | None = None) -> range | None:
        """Return the numbers of all possible service dates; None if they are not public."""
        spans, named = [], None if period is None else dates_of(period)
        if named is not None:
            spans.append((named.start, named.stop - 1))
        if self.dates is not None:
            spans.append((_ordinal(self.dates[0]), _ordinal(self.dates[1])))
        if not spans:
            return None
        first, last = max(start for start, _ in spans), min(end for _, end in spans)
        if first > last:
            raise ParameterError(f"no service date of the policy lies in period {period}. Check dates.")
        return range(first, last + 1)

    def days(self, period: str | None = None) -> tuple[str, ...]:
        """Return the labels of days that are counted separately; if the calendar is known, only those in it."""
        return tuple(self._labelled(period))

    def num_dates(self, period: str | None = None) -> tuple[int, ...]:
        """Return the number of dates of each label; without labels one number for all; nothing if unknown."""
        dates = self.calendar(period)
        if dates is None:
            return ()
        return tuple(self._labelled(period).values()) if self.day is not None else (len(dates),)

    def _labelled(self, period: str | None) -> dict[str, int]:
        """Return the labels of days in order, with the number of dates of each (0 if unknown)."""
        dates = self.calendar(period)
        if self.day is None:
            return {}
        if self.day == "date":
            if dates is None:
                raise ParameterError('day = "date" needs dates, such as ["2026-11-01", "2026-11-30"], or [period].')
            return {date.fromordinal(ordinal).isoformat(): 1 for ordinal in dates}
        names = WEEKDAYS if self.day == "weekday" else DAY_TYPES
        if dates is None:
            return dict.fromkeys(names, 0)
        times = np.bincount(self._kinds(np.arange(dates.start, dates.stop)), minlength=len(names)).tolist()
        return {name: num for name, num in zip(names, times, strict=True) if num}

    def _kinds(self, ordinals: IntArray) -> IntArray:
        weekday = (ordinals + 6) % 7
        if self.day == "weekday":
            return weekday
        holidays = np.array([_ordinal(day) for day in self.holidays], dtype=np.int64)
        return np.where(np.isin(ordinals, holidays), 2, np.maximum(weekday - 4, 0))

    def day_codes(self, ordinals: IntArray, period: str | None = None) -> IntArray:
        """Return the position in :meth:`days` of each date; 0 if all days are counted together."""
        if self.day is None:
            return np.zeros(len(ordinals), dtype=np.int64)
        if self.day == "date":
            dates = self.calendar(period)
            assert dates is not None  # days() has refused
            return ordinals - dates.start
        names = WEEKDAYS if self.day == "weekday" else DAY_TYPES
        labels = self.days(period)
        place = np.array([labels.index(name) if name in labels else -1 for name in names], dtype=np.int64)
        return place[self._kinds(ordinals)]

    def slots(self, stamps: ArrayLike, period: str | None = None) -> IntArray:
        """Return the slot of each time: position of its day times the number of windows, plus its window."""
        ordinals, seconds = split_stamps(np.asarray(stamps, dtype=np.int64))
        windows = (seconds - self.lower_seconds) // (60 * self.window_minutes)
        return self.day_codes(ordinals, period) * len(self.labels) + windows

    @property
    def diameter(self) -> float:
        return float(self.upper_seconds - self.lower_seconds)

    def contains(self, values: ArrayLike) -> BoolArray:
        """Return for each stamp whether it is in the service day and its date, if any, in ``dates``."""
        ordinals, seconds = split_stamps(np.asarray(values, dtype=np.int64).reshape(-1))
        inside: BoolArray = (seconds >= self.lower_seconds) & (seconds < self.upper_seconds)
        return inside & self.in_calendar(ordinals)

    def in_calendar(self, ordinals: IntArray, period: str | None = None) -> BoolArray:
        """Return for each date whether it is possible; a missing date, or an unknown calendar, is."""
        dates = self.calendar(period)
        if dates is None:
            return np.ones(len(ordinals), dtype=bool)
        inside: BoolArray = (ordinals == 0) | ((ordinals >= dates.start) & (ordinals < dates.stop))
        return inside

    def distance(self, a: int, b: int) -> float:
        return float(abs(a % STAMPS_PER_DATE - b % STAMPS_PER_DATE))

    def generalise(self, values: ArrayLike) -> tuple[int, int]:
        seconds = split_stamps(np.asarray(values, dtype=np.int64).reshape(-1))[1]
        if not seconds.size:
            raise ParameterError("generalising needs at least one value.")
        return int(seconds.min()), int(seconds.max())

    def width(self, generalised: tuple[int, int]) -> float:
        first, last = generalised
        if first > last:
            raise ParameterError("A range of times must be (first, last).")
        return (last - first) / self.diameter


def _minutes(text: object, name: str) -> int:
    clock = _CLOCK.fullmatch(text) if isinstance(text, str) else None
    if clock is None or (minutes := 60 * int(clock[1]) + int(clock[2])) > 48 * 60:
        raise ParameterError(f"{name} must be a time HH:MM up to 48:00, such as 04:00. Got {shown(text)}.")
    return minutes


def _ordinal(day: str) -> int:
    return date.fromisoformat(day).toordinal()


def _checked_ordinal(day: object, name: str) -> int:
    try:
        if isinstance(day, str) and date.fromisoformat(day).isoformat() == day:
            return _ordinal(day)
    except ValueError:
        pass
    raise ParameterError(f"{name} must be dates YYYY-MM-DD in quotes. Got {shown(day)}.")


# --- Every kind by its name

KINDS: dict[str, type[Any]] = {made.kind: made for made in (Numeric, Ordinal, Category, Tree, Graph, Stops, Windows)}


def domain_from(description: Mapping[str, object]) -> Domain:
    kind = description.get("kind")
    made = KINDS.get(kind) if isinstance(kind, str) else None
    if made is None:
        raise ParameterError(f"kind must be one of {', '.join(KINDS)}. Got {kind!r}.")
    given = {name: value for name, value in description.items() if name != "kind"}
    required = {field.name: field.default is MISSING for field in fields(made)}
    unknown = sorted(given.keys() - required.keys())
    missing = sorted(name for name, needed in required.items() if needed and name not in given)
    if unknown or missing:
        raise ParameterError(
            f"A {kind} domain takes {', '.join(required)}. "
            + (f"Remove {', '.join(unknown)}." if unknown else f"Add {', '.join(missing)}.")
        )
    return cast("Domain", made(**given))
