# SPDX-License-Identifier: Apache-2.0
"""Tables of categories: a universe whose cells are the combinations of public labels. Public facts only.

What holds for types of trips holds for any combinations of labels: every column is an axis, and every list of columns a
feature. Such a universe has one slot; its pairs are tuples with one place for each column. The number of a cell counts
the labels of the last column fastest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dunnage.arrays import IntArray
from dunnage.errors import ParameterError
from dunnage.model.domains import Category, Ordinal, domain_from
from dunnage.model.trips import Grouping, ProductClasses, Universe, split_axes

if TYPE_CHECKING:
    from dunnage.model.certificate import AttributeStatement


@dataclass(frozen=True, eq=False, kw_only=True)
class Categories(Universe):
    """All combinations of the labels of some columns."""

    of_trips: ClassVar[bool] = False
    domains: Mapping[str, Category | Ordinal]
    unit: str = "record"
    # What only trips have
    stops: tuple[str, ...] = field(default=(), init=False)
    windows: tuple[str, ...] = field(default=("",), init=False)
    window_minutes: int = field(default=0, init=False)
    arrives: bool = field(default=False, init=False)

    @property
    def axes(self) -> tuple[int, ...]:
        return tuple(len(domain.labels) for domain in self.domains.values())

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.domains)

    @property
    def cell_columns(self) -> tuple[str, ...]:
        return self.columns

    def cells_of(self, codes: Mapping[str, IntArray]) -> IntArray:
        cells = np.zeros(1, dtype=np.int64)
        for name, length in zip(self.domains, self.axes, strict=True):
            cells = cells * length + codes[name]
        return cells

    def column_codes(self, name: str, cells: IntArray) -> IntArray:
        return split_axes(cells, self.axes)[self.columns.index(name)]

    def labels(self, name: str) -> tuple[str, ...]:
        return self.domains[name].labels

    def pair_classes(self, columns: Sequence[str]) -> ProductClasses:
        return ProductClasses(
            axes=tuple(
                Grouping.of(np.arange(length)) if name in columns else Grouping.whole(length)
                for name, length in zip(self.domains, self.axes, strict=True)
            )
        )

    def slot_classes(self, columns: Sequence[str]) -> Grouping:
        return Grouping.whole(1)

    def describe(self) -> list[dict[str, object]]:
        return [
            {"name": name, "role": "quasi-identifier", "kind": domain.kind, "domain": domain.describe()}
            for name, domain in self.domains.items()
        ]

    @classmethod
    def stated(cls, attributes: Sequence[AttributeStatement], unit: str) -> Categories:
        """Make a universe from a certificate: the inverse of :meth:`describe`."""
        domains = {}
        for item in attributes:
            domain = domain_from(item.domain or {})
            if not isinstance(domain, Category | Ordinal):
                raise ParameterError("a table of counts needs columns of categories.")
            domains[item.name] = domain
        return cls(domains=domains, unit=unit)
