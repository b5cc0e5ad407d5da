# SPDX-License-Identifier: Apache-2.0
"""Fill sealed slots: the owner, who knows every weight, draws a feasible fill at random.

A sealed plan says only how many packages of each class a bin takes. Whoever fills it by the weights tells something of
them by where packages go, and whoever follows the planner's own packing tells all of it. So the fill is drawn:

1. exactly uniformly among all feasible fills, where they can be counted;
2. else among the feasible fills that random walks from random starts meet;
3. if those meet none, among those that walks meet from a fill that an integer program with random prices finds.

Only in the first case is the law known, so only then is truck linkage exact. Every random bit comes from ``Noise``:
which fills are met is part of what is told.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dunnage.arrays import FloatArray, IntArray
from dunnage.bins.fills import Estimate, Items, Slots, Words, count_fills, estimate_chances, sealed_linkage, solve_fill
from dunnage.errors import NoPlanError, ParameterError
from dunnage.noise import Noise

DEFAULT_SECONDS = 12.0
MOST_STATES = 200_000

LINKAGE_NOTE = (
    "the best guess of someone who knows all released weights, the weight of one package and the slots, when every "
    "feasible fill is equally likely; seeing that everything fitted adds nothing, knowing where others are does"
)
ESTIMATE_NOTE = "fills were too many to count: taken from those that random walks met, which may have missed some"


@dataclass(frozen=True, eq=False, kw_only=True)
class Filling:
    """A fill that was drawn, and what it tells."""

    bin_of_item: IntArray  # The bin of each package
    exact: bool  # Whether all feasible fills were equally likely, and chances are exact
    chances: FloatArray  # How likely each package was to be in each bin. Shape: packages x bins
    number: int | None  # How many feasible fills there are; None if they were not counted
    error: float = 0.0  # How far independent walks disagree about the chances, at most; 0 if they are exact

    def __repr__(self) -> str:
        return f"<Filling of {len(self.bin_of_item)} packages, {'exact' if self.exact else 'estimate'}>"

    @property
    def linkage(self) -> FloatArray:
        """The best guess of each package's bin."""
        return sealed_linkage(self.chances)

    def truck_linkage(self) -> dict[str, Any]:
        """Return ``mean``, ``worst``, ``kind`` and ``note`` as plans and settlements state them."""
        best = self.linkage
        return {
            "mean": float(best.mean()) if len(best) else 0.0,
            "worst": float(best.max(initial=0.0)),
            "kind": "exact" if self.exact else "estimate",
            "note": LINKAGE_NOTE if self.exact else f"{LINKAGE_NOTE}; {ESTIMATE_NOTE}",
        }


def noise_words(noise: Noise) -> Words:
    """Return a source of random 64-bit words that draws on noise."""

    def words(size: int) -> npt.NDArray[np.uint64]:
        return np.frombuffer(noise.draw_bytes(8 * size), dtype=np.uint64)

    return words


def draw_fill(
    items: Items, slots: Slots, noise: Noise, *, seconds: float = DEFAULT_SECONDS, most_states: int = MOST_STATES
) -> Filling:
    """Draw a feasible fill: uniformly where all can be counted, else from those that random walks meet.

    Examples
    --------
    >>> items = Items(np.array([0, 0, 1, 1]), np.array([[1], [2], [3], [4]]))
    >>> slots = Slots(np.array([[1, 1], [1, 1]]), np.array([[5], [5]]))
    >>> done = draw_fill(items, slots, Noise(seed=1))
    >>> done.number, done.linkage.tolist()
    (2, [0.5, 0.5, 0.5, 0.5])
    """
    if not seconds >= 0:
        raise ParameterError(f"seconds must be at least 0. Got {seconds}.")
    counted = count_fills(items, slots, most_states=most_states, deadline=time.monotonic() + seconds / 2)
    if counted is not None:
        return Filling(
            bin_of_item=counted.draw(noise.below), exact=True, chances=counted.chances(), number=counted.number
        )
    met = _walked(items, slots, noise_words(noise), seconds / 4)
    return Filling(
        bin_of_item=met.drawn, exact=False, chances=met.chances, number=None, error=float(met.error.max(initial=0.0))
    )


def _walked(items: Items, slots: Slots, words: Words, seconds: float) -> Estimate:
    """Walk from random starts; if that meets nothing feasible, from a fill found by the integer program."""
    met = estimate_chances(items, slots, seconds=seconds, words=words)
    if met is None:
        found = solve_fill(items, slots, seconds=seconds / 2, words=words)
        if found is not None:
            met = estimate_chances(items, slots, seconds=seconds / 2, words=words, start=found)
    if met is None:
        raise NoPlanError("no feasible fill of the slots was found in time. Allow more seconds, or plan anew.")
    return met
