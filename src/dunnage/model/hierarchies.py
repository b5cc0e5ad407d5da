# SPDX-License-Identifier: Apache-2.0
"""Hierarchies: how each kind of attribute is generalised level by level. Public, as domains are.

numeric                   the value, then intervals of the width `doubling`, twice that, ..., the whole domain
tree                      the leaf, then the nodes above it: the columns of an ARX file, or the depths of the tree
ordinal, category, stop   the value, then `*`

Levels nest: values that share a generalisation share it on every higher level.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from dunnage.arrays import FloatArray, IntArray
from dunnage.errors import ParameterError
from dunnage.exact import shown
from dunnage.model.domains import Category, Domain, Numeric, Ordinal, Stops, Tree, check_texts

ANY = "*"  # Label that generalises all values of an ordinal or category attribute
MAX_CELLS = 2**24  # Maximum size of a hierarchy of labels: leaves times levels
MAX_DIGITS = 4  # Digits that remain of codes without a list: a certificate lists every leaf


@dataclass(frozen=True, kw_only=True)
class Prefixes:
    """How codes such as postcodes are shortened: ``80331`` becomes ``803**``, then ``80***``, then ``*****``."""

    length: int  # Characters of a full code
    kept: tuple[int, ...]  # How many first characters remain: of a value, then level by level
    codes: tuple[str, ...] | None = None  # All codes; None if every number of that length may be one

    def __post_init__(self) -> None:
        if not 1 <= self.length <= 20:
            raise ParameterError(f"length must be the number of characters of a full code, 1 to 20. Got {self.length}.")
        if not self.kept or any(few >= many for many, few in pairwise((self.length + 1, *self.kept, 0))):
            raise ParameterError(
                f"prefix must be numbers of characters that become smaller, from at most {self.length} to at least 1, "
                f"such as [3, 2]. Got {shown(list(self.kept))}."
            )

    def shortened(self, code: str, kept: int) -> str:
        return code[:kept] + ANY * (self.length - kept)

    def tree(self) -> Tree:
        first, codes = self.kept[0], self.codes
        if codes is None:
            if first > MAX_DIGITS:
                raise ParameterError(
                    f"without a list of all codes, at most the first {MAX_DIGITS} digits can remain. Got {first}. Keep "
                    "fewer, or list the codes that exist: domain = [...]."
                )
            codes = tuple(f"{number:0{first}d}" for number in range(10**first))
        elif wrong := [code for code in check_texts(codes, "domain") if len(code) != self.length or ANY in code]:
            raise ParameterError(f"a code must have {self.length} characters other than *. Got {wrong[0]!r}.")
        starts = dict.fromkeys(code[:first] for code in codes)
        levels = (*self.kept, 0)
        return Tree(rows=[[self.shortened(start, kept) for kept in levels] for start in starts])

    def cut(self, cell: str) -> str:
        """Shorten a cell, which may be longer after a mark, as ``10001-1234`` is; other cells do not change."""
        code = cell.strip()
        full, more = code[: self.length], code[self.length :]
        if len(full) < self.length or more[:1].isalnum() or (self.codes is None and not full.isdecimal()):
            return code
        return self.shortened(code, self.kept[0])


@dataclass(frozen=True)
class IntervalHierarchy:
    """Numbers, and intervals that double in width; the last level is the whole domain."""

    # Intervals start at the lower end of the domain, and the last of a level ends with the domain. A border belongs to
    # the interval above it, the upper end to the last. Published intervals are closed. A value that is the double
    # nearest to a border counts as that border, so that decimals fall where they would on paper.
    domain: Numeric

    @cached_property
    def num_levels(self) -> int:
        return 2 + (self._num_intervals - 1).bit_length()

    @cached_property
    def _span(self) -> int:
        """Width of the whole domain in units of the denominator of the borders."""
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
        # Two neighbours make an interval of the next level, so all indices follow from those of level 1.
        return self.domain.borders.below(values, self._num_intervals - 1) >> (level - 1)

    def groups(self, values: FloatArray, level: int) -> IntArray:
        """Give values with the same generalisation the same number, in their order."""
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
        if level == 0:
            return values, values
        index, scale = self._index(values, level), 1 << (level - 1)
        last = (index + 1) * scale >= self._num_intervals
        below_last = np.where(last, 0, (index + 1) * scale)
        upper = np.where(last, self.domain.upper_float, self.domain.borders.points(below_last))
        return self.domain.borders.points(index * scale), upper


@dataclass(frozen=True)
class NodeHierarchy:
    """Labels and the labels that generalise them."""

    domain: Tree | Ordinal | Category | Stops

    def __post_init__(self) -> None:
        if len(self.domain.labels) * self.num_levels > MAX_CELLS:
            raise ParameterError(
                f"A hierarchy can have at most {MAX_CELLS} leaves times levels. Got {len(self.domain.labels)} leaves "
                f"on {self.num_levels} levels. Use fewer leaves or levels."
            )
        if not isinstance(self.domain, Tree) and ANY in self.domain.labels:
            raise ParameterError(
                f"{ANY!r} stands for any value in a release, but is also a value of this {self.domain.kind} domain. "
                "Rename the value."
            )

    @cached_property
    def num_levels(self) -> int:
        return self.domain.num_levels if isinstance(self.domain, Tree) else min(2, len(self.domain.labels))

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
        """Give codes with the same generalisation the same number; only the hierarchy decides their order."""
        number: dict[str, int] = {}
        of_code = [number.setdefault(label, len(number)) for label in self.labels(level)]
        return np.asarray(of_code, dtype=np.int64)[codes]

    def widths(self, codes: IntArray, level: int) -> IntArray:
        widths = [self.node_widths[label] for label in self.labels(level)]
        return np.asarray(widths, dtype=np.int64)[codes]


Hierarchy = IntervalHierarchy | NodeHierarchy


def hierarchy_of(domain: Domain) -> Hierarchy:
    if isinstance(domain, Numeric):
        _ = domain.borders  # raises an error without a first width
        return IntervalHierarchy(domain)
    if isinstance(domain, Tree | Ordinal | Category | Stops):
        return NodeHierarchy(domain)
    why = ", because its values form a network" if domain.kind == "graph" else ""
    raise ParameterError(f"A {domain.kind} domain has no hierarchy{why}. Use kind = tree with a hierarchy.")
