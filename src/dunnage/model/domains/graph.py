# SPDX-License-Identifier: Apache-2.0
"""Labels that are the vertices of a public network."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dunnage.arrays import FloatArray, IntArray
from dunnage.errors import InputError, ParameterError
from dunnage.exact import Exact, exact, shown, shown_number
from dunnage.model.domains.labels import Coded, check_text
from dunnage.tables.reader import read_lines, refuse_lines

# Longest edge; one over it is the shortest. No sum, square or quotient of paths leaves the range of doubles.
MAX_LENGTH = 10**12
_UNREACHED = 2**62
_MAX_AT_ONCE = 2**22  # Distances that are worked out at a time


@dataclass(frozen=True, kw_only=True)
class Graph(Coded):
    """Labels that are the vertices of a public network; the distance is the shortest path.

    Every vertex must be reachable from every other one. Sums of lengths are exact where a common unit of all lengths
    fits 63 bits, as it does for decimals of a few digits; else lengths are rounded to one first, at the 19th digit of
    the longest way.

    Parameters
    ----------
    edges
        ``(from, to)`` or ``(from, to, length)``; the length is 1 by default, and at least 1e-12 and at most 1e12. Kept
        sorted, so that their order does not matter.
    directed
        Whether an edge leads only from its first vertex to its second.
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
            raise ParameterError("A graph needs one or more edges. Got none.")
        edges = tuple((start, end, length) for (start, end), length in sorted(lengths.items()))
        object.__setattr__(self, "edges", edges)
        for backwards in (False, True) if self.directed else (False,):
            reached = set(_reach(self._arcs, len(self.labels), backwards=backwards))
            for code, label in enumerate(self.labels):
                if code not in reached:
                    ends = (label, self.labels[0]) if backwards else (self.labels[0], label)
                    raise ParameterError(
                        f"Every vertex must be reachable from every other one. Got no path from {ends[0]!r} to "
                        f"{ends[1]!r}. Add the edges that join them, or make one domain for each part."
                    )

    @classmethod
    def from_csv(cls, path: str | PathLike[str], *, directed: bool = False) -> Graph:
        """Read an edge list."""
        (header_line, header), *lines = read_lines(path)
        names = [name.strip().lower() for name in header]
        if names not in (["from", "to"], ["from", "to", "length"]):
            refuse_lines(path, [(header_line, "the header must be from,to or from,to,length. Add it.")])
        lengths: dict[tuple[str, str], Fraction] = {}
        problems = []
        for line, cells in lines:
            if len(cells) != len(names):
                what = f"there must be {len(names)} cells as in the header. Got {len(cells)}. Mend the line."
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
        """Yield the distances from some vertices to all, some rows at a time. Shape of each: vertices, all vertices."""
        incoming, order, unit = self._ways
        step = max(1, _MAX_AT_ONCE // len(order))
        for start in range(0, len(codes), step):
            near = _shortest_paths(incoming, order, codes[start : start + step])
            yield np.ascontiguousarray(near.T / unit, dtype=np.float64)

    @cached_property
    def _ways(self) -> tuple[list[tuple[IntArray, IntArray]], list[int], float]:
        """Arcs into each vertex, the vertices in an order of reach, and how much a length of 1 is in the arcs' unit."""
        num = len(self.labels)
        unit = _common_unit(self._arcs, num)
        into: list[list[tuple[int, int]]] = [[] for _ in range(num)]
        for start, end, length in self._arcs:
            into[end].append((start, max(1, round(length * unit))))  # none is rounded to nothing
        incoming = [
            (np.array([start for start, _ in arrivals]), np.array([[length] for _, length in arrivals], dtype=np.int64))
            for arrivals in into
        ]
        return incoming, _reach(self._arcs, num, backwards=False), float(unit)

    def _measure(self, codes: IntArray) -> FloatArray:
        rows = [some[:, codes] for some in self.distances_from(codes)]
        return np.concatenate(rows) if len(rows) > 1 else rows[0]


def _add_edge(lengths: dict[tuple[str, str], Fraction], edge: object, directed: bool) -> None:
    """Check an edge and add it; the two directions of an undirected one are the same edge."""
    if isinstance(edge, str) or not isinstance(edge, Sequence) or len(edge) not in (2, 3):
        raise ParameterError(f"An edge must be (from, to) or (from, to, length). Got {shown(edge)}.")
    start, end = edge[:2]
    check_text(start, "edges")
    check_text(end, "edges")
    name = f"the edge from {start!r} to {end!r}"
    length = exact(edge[2], what=f"The length of {name}") if len(edge) == 3 else Fraction(1)
    if start == end:
        raise ParameterError(f"An edge must join two vertices. Got {name}. Remove it.")
    if not Fraction(1, MAX_LENGTH) <= length <= MAX_LENGTH:
        rule = "above 0" if length <= 0 else "at least 1e-12 and at most 1e12"
        raise ParameterError(
            f"A length must be {rule}. Got {shown_number(length)} for {name}. Mend it, or change the unit."
        )
    ends = (start, end) if directed or start < end else (end, start)
    if lengths.setdefault(ends, length) != length:
        raise ParameterError(
            f"An edge must have one length. Got {shown_number(lengths[ends])} and {shown_number(length)} for "
            f"{name}. Remove one" + ("." if directed else ", or make the graph directed.")
        )


def _reach(arcs: list[tuple[int, int, Fraction]], num_vertices: int, *, backwards: bool) -> list[int]:
    """Vertices that can be reached from the first one (or reach it), nearest first by number of edges."""
    following: list[list[int]] = [[] for _ in range(num_vertices)]
    for start, end, _ in arcs:
        if backwards:
            following[end].append(start)
        else:
            following[start].append(end)
    order, seen, todo = [0], {0}, deque([0])
    while todo:
        for vertex in following[todo.popleft()]:
            if vertex not in seen:
                seen.add(vertex)
                order.append(vertex)
                todo.append(vertex)
    return order


def _common_unit(arcs: list[tuple[int, int, Fraction]], num_vertices: int) -> Fraction:
    """Return how many parts of 1 to count lengths in, so that no path has 2**62 of them.

    In these parts all lengths are whole, if that is possible; else they are rounded to as fine ones as there can be.
    """
    longest = max(length for _, _, length in arcs) * num_vertices
    unit = 1
    for denominator in {length.denominator for _, _, length in arcs}:
        unit = math.lcm(unit, denominator)
        if longest * unit >= _UNREACHED:
            return Fraction(2) ** (math.floor(math.log2(_UNREACHED / longest)) - 1)
    return Fraction(unit)


def _shortest_paths(incoming: list[tuple[IntArray, IntArray]], order: list[int], sources: IntArray) -> IntArray:
    """Distance to each vertex (row) from some vertices (columns) at once.

    Bellman and Ford's relaxation with Yen's alternating sweeps: a sweep follows a path as long as it runs
    along the order, so sweeps back and forth along a breadth-first order settle in a few rounds.
    """
    near = np.full((len(order), len(sources)), _UNREACHED, dtype=np.int64)
    near[sources, np.arange(len(sources))] = 0
    while True:
        before = near.copy()
        for vertex in (*order, *reversed(order)):
            starts, lengths = incoming[vertex]
            np.minimum(near[vertex], (near[starts] + lengths).min(axis=0), out=near[vertex])
        if np.array_equal(before, near):
            return near
