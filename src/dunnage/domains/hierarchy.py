# SPDX-License-Identifier: Apache-2.0
"""Value hierarchies: how each kind of attribute is generalised level by level, from the value to the whole domain.

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
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dunnage.arrays import FloatArray, IntArray
from dunnage.domains.labels import Category, Ordinal, Stops
from dunnage.domains.numeric import Numeric
from dunnage.domains.protocol import Domain
from dunnage.domains.tree import Tree
from dunnage.errors import ParameterError

ANY = "*"  # Label of the generalisation of all values of an ordinal or category attribute

MOST_CELLS = 2**24  # Largest hierarchy of labels: leaves times levels


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
        if len(self.domain.labels) * self.num_levels > MOST_CELLS:
            raise ParameterError(
                f"A hierarchy may have at most {MOST_CELLS} leaves times levels. Got {len(self.domain.labels)} leaves "
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
    """Return the value hierarchy of a domain.

    Examples
    --------
    >>> weights = hierarchy_of(Numeric(lower=0, upper=100, doubling=25))
    >>> weights.num_levels, [weights.bounds(np.array([30.0]), level)[1].item() for level in range(4)]
    (4, [30.0, 50.0, 50.0, 100.0])
    """
    if isinstance(domain, Numeric):
        _ = domain.borders  # an error without a first width
        return IntervalHierarchy(domain)
    if isinstance(domain, Tree | Ordinal | Category | Stops):
        return NodeHierarchy(domain)
    why = ": its values form a network, not a hierarchy" if domain.kind == "graph" else ""
    raise ParameterError(f"A {domain.kind} has no levels to generalise by{why}. Use kind = tree with a hierarchy.")
