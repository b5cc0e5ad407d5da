# SPDX-License-Identifier: Apache-2.0
"""What every kind of domain answers, and what the coded ones answer besides."""

from __future__ import annotations

from dataclasses import Field, fields
from fractions import Fraction
from typing import Any, ClassVar, Protocol

from numpy.typing import ArrayLike

from dunnage.arrays import BoolArray, FloatArray, IntArray
from dunnage.exact import plain


def _plain(value: object) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return plain(value) if isinstance(value, Fraction) else value


class Domain(Protocol):
    """What every kind of domain answers; kinds are dataclasses of public facts."""

    kind: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def diameter(self) -> float:
        """Largest distance between two values."""

    def contains(self, values: ArrayLike) -> BoolArray:
        """Tell for each value whether it is in the domain."""

    def distance(self, a: Any, b: Any) -> float:
        """Distance of two values in the domain's own units."""

    def generalise(self, values: Any) -> Any:
        """Smallest generalised value that covers all ``values``."""

    def width(self, generalised: Any) -> float:
        """Share of the domain, 0 to 1, that a generalised value leaves open."""

    def describe(self) -> dict[str, object]:
        """Plain description that JSON can hold, numbers exact; :func:`dunnage.domains.domain_from` is its inverse."""
        return {"kind": self.kind, **{item.name: _plain(getattr(self, item.name)) for item in fields(self)}}


class CodedDomain(Domain, Protocol):
    """A domain of finitely many labels."""

    @property
    def labels(self) -> tuple[str, ...]:
        """All values in canonical order; a value's code is its position."""

    def codes(self, values: ArrayLike) -> IntArray:
        """Positions of values in ``labels``."""

    def distances(self) -> FloatArray:
        """Matrix of distances between all labels, by code; read-only."""

    def distances_between(self, codes: IntArray) -> FloatArray:
        """Matrix of distances between some labels, given by their codes in rising order."""
