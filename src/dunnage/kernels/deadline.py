# SPDX-License-Identifier: Apache-2.0
"""When a search must end: the one place that computes how much time is left, so that no rest is ever negative.

A search always has a first plan, and asks for the time before each step that takes some. A compiled loop is called in
pieces of less than about a quarter of a second. Solvers get the time that is left, and are not started without any.
"""

from __future__ import annotations

import math
import time


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
