# SPDX-License-Identifier: Apache-2.0
"""Labels that are the stops of a city, in the order of its file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dunnage.arrays import FloatArray, IntArray
from dunnage.domains.labels import Coded, check_texts, share


@dataclass(frozen=True, kw_only=True)
class Stops(Coded):
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
        """The stops, in their own order."""
        return self.stops

    @property
    def diameter(self) -> float:
        """One, or zero if there is a single stop."""
        return float(len(self.stops) > 1)

    def distance(self, a: str, b: str) -> float:
        """Zero for the same stop, else one."""
        return float(self._code(a) != self._code(b))

    def generalise(self, values: ArrayLike) -> tuple[str, ...]:
        """Distinct stops, in their order."""
        return self._distinct(values)

    def width(self, generalised: Iterable[str]) -> float:
        """Other stops that a set leaves possible as a share of all others."""
        return share(len(self._distinct(list(generalised))) - 1, len(self.stops) - 1)

    def _measure(self, codes: IntArray) -> FloatArray:
        return 1.0 - np.eye(len(codes))

    def describe(self) -> dict[str, Any]:
        """Plain description."""
        return {"kind": self.kind, "stops": list(self.stops)}
