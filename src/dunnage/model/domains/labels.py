# SPDX-License-Identifier: Apache-2.0
"""Domains: what every kind answers, what those of labels share, and the kinds without a hierarchy or a network."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import Field, dataclass, fields
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dunnage.arrays import BoolArray, FloatArray, IntArray
from dunnage.errors import ParameterError
from dunnage.exact import plain, shown

MOST_IN_MATRIX = 16_384  # Most labels whose distances are put in a matrix (2 GiB)


class Domain(ABC):
    """What every kind of domain answers; kinds are dataclasses of public facts."""

    kind: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    @abstractmethod
    def diameter(self) -> float:
        """Largest distance between two values."""

    @abstractmethod
    def contains(self, values: ArrayLike) -> BoolArray:
        """Tell for each value whether it is in the domain."""

    @abstractmethod
    def distance(self, a: Any, b: Any) -> float:
        """Distance of two values in the domain's own units."""

    @abstractmethod
    def generalise(self, values: Any) -> Any:
        """Smallest generalised value that covers all ``values``."""

    @abstractmethod
    def width(self, generalised: Any) -> float:
        """Share of the domain, 0 to 1, that a generalised value leaves open."""

    def describe(self) -> dict[str, object]:
        """Plain description that JSON can hold, numbers exact; :func:`domain_from` is its inverse."""
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
        raise ParameterError(f"{name} must not be empty. Give every value that may occur.")
    twice, times = Counter(labels).most_common(1)[0]
    if times > 1:
        raise ParameterError(f"{name} must be all different. Got {twice!r} twice. Remove one.")
    return labels


def check_text(label: object, name: str) -> None:
    if not isinstance(label, str) or not label:
        raise ParameterError(f"{name} must hold texts that are not empty. Got {shown(label)}. Put numbers in quotes.")


class Coded(Domain):
    """A domain of finitely many labels, which algorithms know by their codes: positions in ``labels``."""

    if TYPE_CHECKING:

        @property
        def labels(self) -> tuple[str, ...]:
            """All values in canonical order."""

    @abstractmethod
    def _measure(self, codes: IntArray) -> FloatArray:
        """Work out the distances between some labels, given by their codes in rising order."""

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
        """Positions of values in ``labels``."""
        codes = self._look_up(values)
        strange = np.flatnonzero(codes < 0)
        if strange.size:
            raise ParameterError(
                f"Every value must be in the {self.kind} domain. Got {strange.size} that are not, the first "
                f"at position {strange[0]}. Add them to the domain or leave their rows out."
            )
        return codes

    def _some_codes(self, values: ArrayLike) -> IntArray:
        codes = np.unique(self.codes(values))
        if codes.size == 0:
            raise ParameterError("Only one or more values can be generalised. Got none.")
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
        """Matrix of distances between some labels, given by their codes in rising order."""
        self._check_number(len(codes))
        return self._measure(codes)

    def _check_number(self, num: int) -> None:
        if num > MOST_IN_MATRIX:
            raise ParameterError(
                f"Distances are worked out between at most {MOST_IN_MATRIX:,} labels. Got {num:,}. "
                "Use a coarser domain, or a tree."
            )


CodedDomain = Coded


def share(part: float, whole: float) -> float:
    """Part of a whole that may be nothing: then nothing can be lost."""
    return part / whole if whole else 0.0


@dataclass(frozen=True, kw_only=True)
class Ordinal(Coded):
    """Labels in a public order."""

    kind: ClassVar[str] = "ordinal"
    levels: tuple[str, ...]  # All values from lowest to highest

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
            raise ParameterError("A range of levels must be (lowest, highest). Got the higher one first.")
        return share(highest - lowest, self.diameter)

    def _measure(self, codes: IntArray) -> FloatArray:
        ranks = codes.astype(np.float64)
        return np.abs(ranks[:, None] - ranks)


class _Unordered(Coded):
    """Labels without order or structure: two are the same, or not."""

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
    """Stops of a city: labels without structure of their own, in a public order that is kept."""

    kind: ClassVar[str] = "stop"
    stops: tuple[str, ...]  # All stops; a stop's code is its position

    if TYPE_CHECKING:

        def __init__(self, *, stops: Sequence[str]) -> None: ...

    def __post_init__(self) -> None:
        object.__setattr__(self, "stops", check_texts(self.stops, "stops"))

    @property
    def labels(self) -> tuple[str, ...]:
        return self.stops
