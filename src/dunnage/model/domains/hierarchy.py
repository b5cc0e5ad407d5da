# SPDX-License-Identifier: Apache-2.0
"""Trees of labels, and value hierarchies: how each kind of attribute is generalised level by level.

============  =================================================================================================
kind          levels
============  =================================================================================================
``numeric``   the value, then intervals of the width ``doubling``, twice that, ..., the whole domain
``tree``      the leaf, then the nodes above it: the columns of an ARX file, else the depths of the tree
``ordinal``   the value, then ``*``
``category``  the value, then ``*``
``stop``      the value, then ``*``
============  =================================================================================================

Levels nest: values that share a generalisation share it on every higher level. A hierarchy is public, like the domain.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from os import PathLike
from typing import TYPE_CHECKING, ClassVar, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike

from dunnage.arrays import FloatArray, IntArray
from dunnage.errors import InputError, ParameterError
from dunnage.exact import shown
from dunnage.model.domains.labels import Category, Coded, Domain, Ordinal, Stops, check_text, share
from dunnage.model.domains.numeric import Numeric
from dunnage.tables.reader import read_lines, refuse_lines

ANY = "*"  # Label of the generalisation of all values of an ordinal or category attribute
MAX_CELLS = 2**24  # Largest hierarchy of labels: leaves times levels


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

    Codes follow a depth-first walk, so the leaves below a node have consecutive codes, and the least common
    ancestor of a set is that of its smallest and largest code.

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
        parents = _parent_pairs(self.parents)
        rows = _level_rows(self.rows)
        if rows:
            steps = (step for row in rows for step in pairwise(row))
            implied = tuple(sorted({(child, parent) for child, parent in steps if child != parent}))
            if parents and parents != implied:
                raise ParameterError("parents and rows must agree. Give only one of them.")
            parents = implied
        if not parents:
            raise ParameterError("A tree needs parents (child -> parent) or rows. Got no entry.")
        object.__setattr__(self, "parents", parents)
        object.__setattr__(self, "rows", rows)
        _ = self._shape  # walking it finds cycles and second roots

    @classmethod
    def from_levels(cls, rows: Sequence[Sequence[str]]) -> Tree:
        """Make a tree from one row per leaf, as ARX writes hierarchies."""
        return cls(rows=rows)

    @classmethod
    def from_csv(cls, path: str | PathLike[str], delimiter: str | None = None) -> Tree:
        """Read a hierarchy in ARX's layout."""
        lines = read_lines(path, delimiter)
        problems = _row_problems([cells for _, cells in lines])
        refuse_lines(path, [(lines[index][0], what) for index, what in problems])
        try:
            return cls(rows=[cells for _, cells in lines])
        except ParameterError as error:
            raise InputError(str(path), [str(error)]) from None

    @cached_property
    def _shape(self) -> _Shape:
        return _walk(self.parents)

    @cached_property
    def _parent_of(self) -> dict[str, str]:
        return dict(self.parents)

    @cached_property
    def _row_of(self) -> dict[str, tuple[str, ...]]:
        return {row[0]: row for row in self.rows}

    @property
    def root(self) -> str:
        return self._shape.root

    @property
    def labels(self) -> tuple[str, ...]:
        return self._shape.leaves

    @cached_property
    def num_levels(self) -> int:
        return len(self.rows[0]) if self.rows else max(self._shape.depths.values()) + 1

    def levels(self, value: str) -> tuple[str, ...]:
        """Generalisations of a leaf by level, from itself to the root.

        Without rows a level is a depth: a leaf that is not as deep as others stays itself on the first levels.
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
        """How many leaves are below each node; a leaf counts itself."""
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
        above = (leaf, *self._above(leaf))  # the root spans all leaves, so one is always found
        return next(node for node in above if self._shape.spans[node][1] > codes[-1])

    def width(self, generalised: str) -> float:
        if generalised not in self._shape.spans:
            raise ParameterError("A generalised value must be the label of a node of the tree. Got another.")
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


def _parent_pairs(parents: object) -> tuple[tuple[str, str], ...]:
    entries = parents.items() if isinstance(parents, Mapping) else parents
    if isinstance(entries, str) or not isinstance(entries, Iterable):
        raise ParameterError(f"parents must map each child to its parent. Got {shown(parents)}.")
    pairs = []
    for entry in entries:
        if isinstance(entry, str) or not isinstance(entry, Sequence) or len(entry) != 2:
            raise ParameterError(f"parents must hold pairs (child, parent). Got {shown(entry)}.")
        for label in entry:
            check_text(label, "parents")
        pairs.append((entry[0], entry[1]))
    pairs.sort()
    for (child, first), (other, second) in pairwise(pairs):
        if child == other:
            raise ParameterError(f"{child!r} has two parents, {first!r} and {second!r}. Keep one of the entries.")
    return tuple(pairs)


def _walk(parents: tuple[tuple[str, str], ...]) -> _Shape:
    """Walk a tree depth first, without recursion: hierarchies may be deep."""
    children: dict[str, list[str]] = {}
    for child, parent in parents:
        children.setdefault(parent, []).append(child)
    roots = sorted(children.keys() - {child for child, _ in parents})
    if len(roots) > 1:
        raise ParameterError(
            f"A tree must have one root. Got {len(roots)}: {roots[0]!r} and {roots[1]!r} have no parent. "
            "Give both the same ancestor."
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
    parent_of = dict(parents)
    if lost := parent_of.keys() - spans.keys():  # entries that the walk did not reach lead into a cycle
        node, seen = min(lost), set[str]()
        while node not in seen:
            seen.add(node)
            node = parent_of[node]
        raise ParameterError(
            f"{node!r} is above itself: its entry {node!r} -> {parent_of[node]!r} is part of a cycle. Remove it."
        )
    return _Shape(roots[0], tuple(leaves), spans, depths, children)


def _level_rows(rows: object) -> tuple[tuple[str, ...], ...]:
    if isinstance(rows, str) or not isinstance(rows, Iterable):
        raise ParameterError(f"rows must be a list of rows. Got {shown(rows)}.")
    given = list(rows)
    for row in given:
        if isinstance(row, str) or not isinstance(row, Sequence):
            raise ParameterError(f"A row must be a list of labels, the leaf first. Got {shown(row)}.")
    problems = _row_problems(given)
    if problems:
        index, what = problems[0]
        raise ParameterError(f"Hierarchy row {index + 1}: {what}")
    return tuple(sorted(tuple(row) for row in given))


def _row_problems(rows: Sequence[Sequence[object]]) -> list[tuple[int, str]]:
    """All that keeps rows from being a hierarchy, each with the index of its row."""
    found: list[tuple[int, str]] = []
    for index, cells in enumerate(rows):
        if len(cells) != len(rows[0]) or len(cells) < 2:
            what = f"every row must have as many labels as the first, at least 2: the first has {len(rows[0])}, "
            found.append((index, what + f"this one {len(cells)}. Repeat a label to fill a level."))
        for level, cell in enumerate(cells):
            if not isinstance(cell, str) or not cell:
                found.append((index, f"the label at level {level} must be text. Got {shown(cell)}. Fill it in."))
    if found:
        return found
    texts = cast("Sequence[Sequence[str]]", rows)
    leaves: set[str] = set()
    for index, row in enumerate(texts):
        if row[0] in leaves:
            found.append((index, f"the leaf {row[0]!r} has an earlier row already. Remove one of them."))
        leaves.add(row[0])
    for index, row in enumerate(texts):
        if row[-1] != texts[0][-1]:
            what = f"the last label must be {texts[0][-1]!r} as in the first row. Got {row[-1]!r}. Use one root."
            found.append((index, what))
        for label in sorted(set(row[1:]) - {row[0]}):
            if label in leaves:
                found.append((index, f"{label!r} generalises {row[0]!r} but is a leaf itself. Rename one of them."))
    following: dict[tuple[int, str], str] = {}
    for index, row in enumerate(texts):
        for level in range(1, len(row) - 1):
            above = following.setdefault((level, row[level]), row[level + 1])
            if above != row[level + 1]:
                what = f"not monotone: {row[level]!r} at level {level} becomes {row[level + 1]!r} here and "
                found.append((index, what + f"{above!r} in an earlier row. Make them the same."))
    tops: dict[str, int] = {}  # a label names one node, whatever the row
    for index, row in enumerate(texts):
        places: dict[str, list[int]] = {}
        for level, label in enumerate(row):
            places.setdefault(label, []).append(level)
        for label, levels in places.items():
            if levels[-1] - levels[0] >= len(levels):
                what = f"{label!r} comes again at level {levels[-1]}, above another label. Rename one."
                found.append((index, what))
            elif tops.setdefault(label, levels[-1]) != levels[-1]:
                what = f"{label!r} means different things at levels {levels[-1]} and {tops[label]}. Rename one."
                found.append((index, what))
    return sorted(found, key=lambda problem: problem[0])


@dataclass(frozen=True)
class IntervalHierarchy:
    """Numbers, and intervals that double in width; the last level is the whole domain.

    Intervals are aligned at the domain's lower end, and the last of a level ends with the domain. A border belongs to
    the interval above it, the domain's upper end to the last. They are published closed. A value that is the double
    nearest to a border counts as that border, so that decimals fall where they would on paper.
    """

    domain: Numeric

    @cached_property
    def num_levels(self) -> int:
        return 2 + (self._num_intervals - 1).bit_length()

    @cached_property
    def _span(self) -> int:
        """Width of the whole domain over the denominator of the borders."""
        return int((self.domain.upper - self.domain.lower) * self.domain.borders.denominator)

    @property
    def _unit(self) -> int:
        return math.gcd(self._span, self.domain.borders.step)

    @property
    def whole(self) -> int:
        return self._span // self._unit

    @property
    def _num_intervals(self) -> int:
        return -(-self._span // self.domain.borders.step)

    def _index(self, values: FloatArray, level: int) -> IntArray:
        # An interval of the next level is two neighbours of this one, so all indices follow from those of level 1.
        return self.domain.borders.below(values, self._num_intervals - 1) >> (level - 1)

    def groups(self, values: FloatArray, level: int) -> IntArray:
        """Give values that share a generalisation the same number, in their order."""
        if level == 0:
            return np.unique(values, return_inverse=True)[1].astype(np.int64)
        return self._index(values, level)

    def widths(self, values: FloatArray, level: int) -> IntArray:
        if level == 0:
            return np.zeros(len(values), dtype=np.int64)
        step = self.domain.borders.step // self._unit << (level - 1)
        starts = self._index(values, level) * step
        return np.minimum(starts + step, self.whole) - starts

    def bounds(self, values: FloatArray, level: int) -> tuple[FloatArray, FloatArray]:
        """Return the closed interval that each value is generalised to: lower and upper ends."""
        if level == 0:
            return values, values
        index, scale = self._index(values, level), 1 << (level - 1)
        last = (index + 1) * scale >= self._num_intervals
        below_last = np.where(last, 0, (index + 1) * scale)
        upper = np.where(last, self.domain.upper_float, self.domain.borders.points(below_last))
        return self.domain.borders.points(index * scale), upper


@dataclass(frozen=True)
class NodeHierarchy:
    """Labels, and the labels of what generalises them."""

    domain: Tree | Ordinal | Category | Stops

    def __post_init__(self) -> None:
        if len(self.domain.labels) * self.num_levels > MAX_CELLS:
            raise ParameterError(
                f"A hierarchy may have at most {MAX_CELLS} leaves times levels. Got {len(self.domain.labels)} leaves "
                f"on {self.num_levels} levels. Use a coarser or shallower one."
            )
        if not isinstance(self.domain, Tree) and ANY in self.domain.labels:
            raise ParameterError(
                f"{ANY!r} stands for any value in a release, and is a value of this {self.domain.kind} domain too. "
                "Rename the value."
            )

    @cached_property
    def num_levels(self) -> int:
        if isinstance(self.domain, Tree):
            return self.domain.num_levels
        return min(2, len(self.domain.labels))

    @cached_property
    def whole(self) -> int:
        return max(1, len(self.domain.labels) - 1) if isinstance(self.domain, Tree) else 1

    @cached_property
    def _paths(self) -> list[tuple[str, ...]]:
        if isinstance(self.domain, Tree):
            return [self.domain.levels(leaf) for leaf in self.domain.labels]
        return [(label, ANY)[: self.num_levels] for label in self.domain.labels]

    def labels(self, level: int) -> list[str]:
        return [path[level] for path in self._paths]

    @cached_property
    def node_widths(self) -> dict[str, int]:
        """Width of each node by its label: other leaves below it, or 0 and 1."""
        if isinstance(self.domain, Tree):
            return {node: size - 1 for node, size in self.domain.node_sizes.items()}
        return {label: level for path in self._paths for level, label in enumerate(path)}

    def groups(self, codes: IntArray, level: int) -> IntArray:
        """Give codes that share a generalisation the same number, in an order that the hierarchy alone decides."""
        number: dict[str, int] = {}
        of_code = [number.setdefault(label, len(number)) for label in self.labels(level)]
        return np.asarray(of_code, dtype=np.int64)[codes]

    def widths(self, codes: IntArray, level: int) -> IntArray:
        widths = [self.node_widths[label] for label in self.labels(level)]
        return np.asarray(widths, dtype=np.int64)[codes]


Hierarchy = IntervalHierarchy | NodeHierarchy


def hierarchy_of(domain: Domain) -> Hierarchy:
    if isinstance(domain, Numeric):
        _ = domain.borders  # an error without a first width
        return IntervalHierarchy(domain)
    if isinstance(domain, Tree | Ordinal | Category | Stops):
        return NodeHierarchy(domain)
    why = ": its values form a network, not a hierarchy" if domain.kind == "graph" else ""
    raise ParameterError(f"A {domain.kind} has no levels to generalise by{why}. Use kind = tree with a hierarchy.")
