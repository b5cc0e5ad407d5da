# SPDX-License-Identifier: Apache-2.0
"""What follows for one report if nobody can tell whose it is: the central epsilon of shuffled reports.

Feldman, McMillan, Talwar (FOCS 2021): reports of a loss of epsilon each, in random order, hide one of them at least as
well as the pair of counts (A + D, C - A + 1 - D) hides which of two values D prefers: C ~ Bin(num - 1, e^-epsilon)
other reports look like one of the two, A ~ Bin(C, 1/2) of them like the first, and D ~ Bernoulli(e^epsilon / (e^epsilon
+ 1)). Its delta is computed here in double precision, with all rare cases counted in full; ``docs/proofs/shuffling.md``
says why the result is ``claimed``.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

DELTA = 1e-7  # the delta that certificates state
RARE = 1e-4  # counts of lookalikes that are rarer than this part of delta are given up
DIGITS = 4  # decimals of a stated epsilon, rounded up


def shuffled_delta(epsilon: float, of_report: float, num: int) -> float:
    """Return the delta of one of ``num`` shuffled reports at a central epsilon."""
    from scipy.special import bdtr, bdtrc
    from scipy.stats import binom

    if epsilon >= of_report:
        return 0.0
    likely = math.exp(of_report) / (math.exp(of_report) + 1)
    alike = math.exp(-of_report)
    low, high = (int(binom.ppf(tail, num - 1, alike)) for tail in (RARE * DELTA, 1 - RARE * DELTA))
    counts = np.arange(low, high + 1)
    given_up = float(bdtr(low - 1, num - 1, alike) if low else 0.0) + float(bdtrc(high, num - 1, alike))
    # With c lookalikes, x of one kind is r = x / (c - x + 1) times as likely under the first value, before D is known.
    # So the events to count are those above one x.
    growth = math.exp(epsilon)
    least = (growth * likely - (1 - likely)) / (likely - growth * (1 - likely))  # of r
    first = np.floor(least * (counts + 1) / (1 + least)) + 1
    above = [np.where(at <= 0, 1.0, bdtrc(np.minimum(at - 1, counts), counts, 0.5)) for at in (first - 1, first)]
    above = [np.where(at > counts, 0.0, tail) for at, tail in zip((first - 1, first), above, strict=True)]
    one = likely * above[0] + (1 - likely) * above[1]
    other = (1 - likely) * above[0] + likely * above[1]
    return float(np.maximum(one - growth * other, 0.0) @ binom.pmf(counts, num - 1, alike)) + given_up


def shuffled_epsilon(of_report: Fraction, num: int, delta: float = DELTA) -> float:
    """Return the central epsilon of one of ``num`` shuffled reports, rounded up; at most that of the report itself."""
    low, high = 0.0, float(of_report)
    if num < 2 or shuffled_delta(low, high, num) <= delta:
        return high if num < 2 else low
    step = 10.0**-DIGITS
    while high - low > step / 4:
        middle = (low + high) / 2
        low, high = (middle, high) if shuffled_delta(middle, float(of_report), num) > delta else (low, middle)
    return min(round(math.ceil(high / step) * step, DIGITS), float(of_report))
