# SPDX-License-Identifier: Apache-2.0
"""How far apart the outputs of two neighbouring datasets are."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable

from dunnage.proving.replay import Outcomes
from dunnage.proving.verdict import UNBOUNDED

Kept = Callable[[Hashable], bool]


def epsilon_between(one: Outcomes, other: Outcomes, kept: Kept | None = None) -> float | str:
    """Return the largest logarithm of the ratio of an output's chances, either way.

    What was not looked at is counted for the side that makes the ratio smaller, so that nothing is overstated.
    """
    found = [_one_way(*pair, kept) for pair in ((one, other), (other, one))]
    return UNBOUNDED if math.inf in found else max(found)


def _one_way(one: Outcomes, other: Outcomes, kept: Kept | None) -> float:
    worst = 0.0
    for output, chance in one.chances.items():
        if chance > 0 and (kept is None or kept(output)):
            against = other.chances.get(output, 0.0) + other.missed
            worst = max(worst, math.log(chance / against) if against else math.inf)
    return worst


def delta_between(one: Outcomes, other: Outcomes, epsilon: float) -> float:
    """Return the largest P(S) - e^epsilon P'(S) over all sets S of outputs, either way."""
    growth = math.exp(epsilon)
    return max(
        math.fsum(
            max(0.0, chance - growth * (b.chances.get(output, 0.0) + b.missed)) for output, chance in a.chances.items()
        )
        for a, b in ((one, other), (other, one))
    )


def largest(found: Iterable[float | str]) -> float | str:
    """Return the largest of some losses."""
    losses = list(found)
    return UNBOUNDED if UNBOUNDED in losses else max((float(loss) for loss in losses), default=0.0)
