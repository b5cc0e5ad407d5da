# SPDX-License-Identifier: Apache-2.0
"""Checks of laws by themselves, on larger ranges than whole releases can be enumerated on.

The probabilities of a law are read by replaying its own drawing code, number by number, and then compared with many
numbers that it really draws.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from dunnage.counting.laplace import FLOATING_BITS, CountLaw, floating_noise
from dunnage.laws import LAWS
from dunnage.noise import Noise
from dunnage.proving.examining import sentence_of
from dunnage.proving.losses import epsilon_between, largest
from dunnage.proving.replay import Outcomes, Reach, diverted, outcomes
from dunnage.proving.statistical import UNLIKELY, agrees
from dunnage.proving.verdict import FAILS, HOLDS, UNBOUNDED, Verdict, judged

LAW_DRAWS = 40_000
_PROBLEM = "its draws do not follow the law that its decisions have"
_WORDS = 1 << FLOATING_BITS


def examine_point_law(mechanism: str, law: str, *, last: int, epsilon: Any) -> Verdict:
    """Examine a law on the points of a grid: between any two points, and drawn at both ends."""
    start = time.perf_counter()
    made = LAWS[law](last=last, epsilon=Fraction(str(epsilon)), confidence=Fraction(9, 10))

    def seen(point: int, noise: Noise, size: int = 1) -> list[int]:
        return [int(value) for value in made.perturb(np.full(size, point, dtype=np.int64), noise)]

    def chances(point: int) -> Outcomes:
        return outcomes(lambda noise: seen(point, noise)[0], Reach(steps=last))

    with diverted():
        tables = [chances(point) for point in range(last + 1)]
    measured = largest(epsilon_between(tables[a], tables[b]) for a in range(last + 1) for b in range(a))
    ends = [(tables[point], seen(point, Noise(), LAW_DRAWS)) for point in (0, last)]
    return _law_verdict(
        mechanism, f"law {law}, {last + 1} points", float(made.epsilon), measured, ends, start, protects="package"
    )


def examine_count_law(mechanism: str, law: CountLaw, *, reach: int) -> Verdict:
    """Examine a law of noise on counts: between any two counts that differ by one."""
    start = time.perf_counter()
    with diverted():
        masses = outcomes(lambda noise: int(law.draw(noise, 1)[0]), Reach(steps=reach, beyond="left out"))
    inside = range(1 - reach, reach)  # beyond, the tails are geometric, and so are their ratios
    measured = max(abs(math.log(masses.chances[b] / masses.chances[a])) for a, b in pairwise(inside))
    drawn = [int(value) for value in law.draw(Noise(), LAW_DRAWS)]
    return _law_verdict(
        mechanism,
        f"law {law.name}, scale {float(law.scale):.3g}",
        1 / float(law.scale),
        measured,
        [(masses, drawn)],
        start,
        protects="trip",
    )


def _law_verdict(
    mechanism: str,
    variant: str,
    claimed: float,
    measured: float | str,
    drawn: Sequence[tuple[Outcomes, list[int]]],
    start: float,
    *,
    protects: str,
) -> Verdict:
    problems = tuple({_PROBLEM for law, values in drawn if agrees(Counter(values), law.chances) < UNLIKELY})
    verdict = FAILS if problems else judged(measured, claimed, "epsilon")
    num = sum(len(law) for law, _ in drawn)
    sentence = sentence_of(
        protects=protects, verdict=verdict, claimed=claimed, holds=None, measured=measured, quantity="epsilon"
    )
    return Verdict(
        mechanism=mechanism,
        variant=variant,
        basis="proved",
        claimed=claimed,
        holds=None,
        measured=measured,
        quantity="epsilon",
        exact=True,
        confidence=None,
        method=f"chances of {num:,} numbers read from the drawing code; {len(drawn) * LAW_DRAWS:,} numbers drawn",
        verdict=verdict,
        expected=HOLDS,
        sentence=f"{_PROBLEM[0].upper()}{_PROBLEM[1:]}." if problems else sentence,
        seconds=time.perf_counter() - start,
        problems=problems,
    )


def unreachable_share(scale: Fraction, *, size: int = 2_000) -> float:
    """Return the share of noisy numbers around a count of 1 that no noise makes of a count of 0.

    Floating-point noise takes 2^52 values, which lie irregularly: a number that one count can give is most often
    between two that the next can give (Mironov 2012). Noise rises with the word it is made of, so that the word that
    would be needed is found by bisection.
    """
    words = np.linspace(_WORDS // 1000, _WORDS - _WORDS // 1000, size).astype(np.int64)
    seen = floating_noise(words, scale) + 1.0
    low, high = np.zeros(size, dtype=np.int64), np.full(size, _WORDS - 1, dtype=np.int64)
    while np.any(high - low > 1):
        middle = (low + high) // 2
        below = floating_noise(middle, scale) < seen
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    # Rounding could put a match a few words away: all around are looked at.
    near = high[:, None] + np.arange(-16, 17)
    matched = (floating_noise(np.clip(near, 0, _WORDS - 1), scale) == seen[:, None]).any(axis=1)
    return 1.0 - float(matched.mean())


def examine_floating_noise(mechanism: str, scale: Fraction) -> Verdict:
    """Examine noise in floating point before it is rounded: which noisy numbers can come of which count."""
    start = time.perf_counter()
    share = unreachable_share(scale)
    measured: float | str = UNBOUNDED if share > 0 else 1 / float(scale)
    return Verdict(
        mechanism=mechanism,
        variant="floating-point Laplace",
        basis="claimed",
        claimed=1 / float(scale),
        holds=UNBOUNDED,
        measured=measured,
        quantity="epsilon",
        exact=True,
        confidence=None,
        method="for 2,000 noisy numbers of a count of 1, the words that a count of 0 would need looked up",
        verdict=judged(measured, 1 / float(scale), "epsilon"),
        expected=FAILS,
        sentence=f"Of the noisy numbers that a count of 1 gives, {100 * share:.0f} % cannot come of a count of 0: "
        "their last digits tell the count.",
        seconds=time.perf_counter() - start,
    )
