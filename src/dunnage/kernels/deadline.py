# SPDX-License-Identifier: Apache-2.0
"""When a search must end: the one place that computes how much time is left, so that no rest is ever negative.

A search always has a first plan, and asks for the time before each step that takes some. A compiled loop is called in
pieces of less than about a quarter of a second. Solvers get the time that is left, and are not started without any.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
FIRST_SHARE = 0.5
MIN_SECONDS = 0.05


class Deadline(float):
    """A moment of the monotonic clock; a plain moment is a number, so both can be compared."""

    __slots__ = ()

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        return cls(time.monotonic() + seconds)

    @property
    def left(self) -> float:
        """Seconds until then, at least 0."""
        return max(float(self) - time.monotonic(), 0.0)

    @property
    def late(self) -> bool:
        return time.monotonic() >= self

    def part(self, share: float = 1.0, most: float = math.inf) -> Deadline:
        """Return the deadline of a step that may use a share of the time that is left, and at most some seconds."""
        now = time.monotonic()
        return Deadline(now + max(0.0, min((float(self) - now) * share, most)))


NEVER = Deadline(math.inf)


def solve_in_turn(
    num: int,
    solve: Callable[[int, Deadline, T | None], T],  # number of a problem, its deadline, the plan that it improves
    gap: Callable[[T], float],
    deadline: Deadline,
) -> list[T]:
    """Solve independent problems in a share of the time each; the rest goes to those with a gap, by its size."""
    plans: list[T] = []
    for number in range(num):
        share = (1 if num == 1 else FIRST_SHARE) / (num - number)
        plans.append(solve(number, deadline.part(share), None))
    wanting = sorted((i for i in range(num) if num > 1 and gap(plans[i]) > 0), key=lambda i: -gap(plans[i]))
    for at, number in enumerate(wanting):
        stop = deadline.part(gap(plans[number]) / sum(gap(plans[i]) for i in wanting[at:]))
        if stop.left > MIN_SECONDS:
            plans[number] = solve(number, stop, plans[number])
    return plans
