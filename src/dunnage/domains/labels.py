# SPDX-License-Identifier: Apache-2.0
"""Domains of labels: what they share, and the kinds without a hierarchy or a network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np
from numpy.typing import ArrayLike

from dunnage.arrays import BoolArray, FloatArray, IntArray
from dunnage.domains.protocol import CodedDomain
from dunnage.errors import ParameterError
from dunnage.exact import shown

MOST_IN_MATRIX = 16_384  # Most labels whose distances are put in a matrix (2 GiB)


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


class Coded(CodedDomain, Protocol):
    """Look-up of labels and the matrix of distances, shared by the coded domains, which derive from it."""

    @cached_property
    def _code_of(self) -> dict[str, int]:
        return {label: code for code, label in enumerate(self.labels)}

    def _look_up(self, values: ArrayLike) -> IntArray:
        """Code of each value, -1 where it is not in the domain."""
        given = np.asarray(values, dtype=object).reshape(-1).tolist()
        find = self._code_of.get
        return np.fromiter((find(value, -1) for value in given), dtype=np.int64, count=len(given))

    def contains(self, values: ArrayLike) -> BoolArray:
        return self._look_up(values) >= 0

    def codes(self, values: ArrayLike) -> IntArray:
        codes = self._look_up(values)
        strange = np.flatnonzero(codes < 0)
        if strange.size:
            raise ParameterError(
                f"Every value must be in the {self.kind} domain. Got {strange.size} that are not, the first "
                f"at position {strange[0]}. Add them to the domain or leave their rows out."
            )
        return codes

    def _code(self, value: str) -> int:
        return int(self.codes([value])[0])

    def _some_codes(self, values: ArrayLike) -> IntArray:
        codes = np.unique(self.codes(values))
        if codes.size == 0:
            raise ParameterError("Only one or more values can be generalised. Got none.")
        return codes

    def _distinct(self, values: ArrayLike) -> tuple[str, ...]:
        return tuple(self.labels[code] for code in self._some_codes(values))

    def distances(self) -> FloatArray:
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
                f"Distances are worked out between at most {MOST_IN_MATRIX:,} labels. Got {num:,}. "
                "Use a coarser domain, or a tree."
            )

    def _measure(self, codes: IntArray) -> FloatArray:
        """Work out the distances between some labels."""


def share(part: float, whole: float) -> float:
    """Part of a whole that may be nothing: then nothing can be lost."""
    return part / whole if whole else 0.0


@dataclass(frozen=True, kw_only=True)
class Ordinal(Coded):
    """Labels in a public order.

    Parameters
    ----------
    levels
        All values from lowest to highest.
    """

    kind: ClassVar[str] = "ordinal"
    levels: tuple[str, ...]

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

    def distance(self, a: str, b: str) -> float:
        return float(abs(self._code(a) - self._code(b)))

    def generalise(self, values: ArrayLike) -> tuple[str, str]:
        found = self._distinct(values)
        return found[0], found[-1]

    def width(self, generalised: tuple[str, str]) -> float:
        lowest, highest = (self._code(level) for level in generalised)
        if lowest > highest:
            raise ParameterError("A range of levels must be (lowest, highest). Got the higher one first.")
        return share(highest - lowest, self.diameter)

    def _measure(self, codes: IntArray) -> FloatArray:
        ranks = codes.astype(np.float64)
        return np.abs(ranks[:, None] - ranks)


class _Unordered(Coded, Protocol):
    """Labels without order or structure: two are the same, or not."""

    @property
    def diameter(self) -> float:
        return float(len(self.labels) > 1)

    def distance(self, a: str, b: str) -> float:
        return float(self._code(a) != self._code(b))

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
    """Stops of a city: labels without structure of their own, in a public order that is kept.

    Parameters
    ----------
    stops
        All stops; a stop's code is its position.
    """

    kind: ClassVar[str] = "stop"
    stops: tuple[str, ...]

    if TYPE_CHECKING:

        def __init__(self, *, stops: Sequence[str]) -> None: ...

    def __post_init__(self) -> None:
        object.__setattr__(self, "stops", check_texts(self.stops, "stops"))

    @property
    def labels(self) -> tuple[str, ...]:
        return self.stops
