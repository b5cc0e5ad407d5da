# SPDX-License-Identifier: Apache-2.0
"""Labels with a public hierarchy of generalisations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from os import PathLike
from typing import TYPE_CHECKING, ClassVar, cast

import numpy as np
from numpy.typing import ArrayLike

from dunnage.arrays import FloatArray, IntArray
from dunnage.domains.files import read_csv, refuse_lines
from dunnage.domains.labels import Coded, check_text, share
from dunnage.errors import InputError, ParameterError
from dunnage.exact import shown


@dataclass(frozen=True)
class _Shape:
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
        lines = read_csv(path, delimiter)
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
        leaf = self.labels[self._code(value)]
        if self.rows:
            return self._row_of[leaf]
        path = (leaf, *self._above(leaf))
        return (leaf,) * (self.num_levels - len(path)) + path

    def _above(self, node: str) -> Iterator[str]:
        while (parent := self._parent_of.get(node)) is not None:
            yield parent
            node = parent

    def _ancestor(self, first: int, last: int) -> str:
        """Lowest node above the leaves with codes ``first`` to ``last``."""
        leaf = self.labels[first]
        if first == last:
            return leaf
        # The root spans all leaves, so one is always found.
        return next(node for node in self._above(leaf) if self._shape.spans[node][1] > last)

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

    def distance(self, a: str, b: str) -> float:
        first, last = sorted((self._code(a), self._code(b)))
        return float(self._num_others(self._ancestor(first, last)))

    def generalise(self, values: ArrayLike) -> str:
        codes = self._some_codes(values)
        return self._ancestor(int(codes[0]), int(codes[-1]))

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
    if not roots:
        _refuse_cycle(parents, ())
    root = roots[0]
    leaves: list[str] = []
    starts, spans, depths = {root: 0}, dict[str, tuple[int, int]](), {root: 0}
    todo = [(root, False)]
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
    _refuse_cycle(parents, spans)
    return _Shape(root, tuple(leaves), spans, depths, children)


def _refuse_cycle(parents: tuple[tuple[str, str], ...], reached: Iterable[str]) -> None:
    """Refuse entries that the walk from the root did not reach: they lead into a cycle."""
    parent_of = dict(parents)
    lost = parent_of.keys() - set(reached)
    if not lost:
        return
    node, seen = min(lost), set[str]()
    while node not in seen:
        seen.add(node)
        node = parent_of[node]
    raise ParameterError(
        f"{node!r} is above itself: its entry {node!r} -> {parent_of[node]!r} is part of a cycle. Remove it."
    )


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
