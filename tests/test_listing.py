# SPDX-License-Identifier: Apache-2.0
"""Listed patterns, compared with all patterns there are and their exact risks."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

from dunnage.kernels.bins.chances import ROUNDING, Members, draw_sums
from dunnage.kernels.bins.covering import PatternList, list_patterns

Member = tuple[int, ...]
Pattern = tuple[int, ...]


class Case:
    """Classes of members, caps and a capacity, small enough to list every choice."""

    def __init__(self, classes: Sequence[Sequence[Member]], caps: Sequence[int], capacity: Sequence[int]) -> None:
        self.classes, self.caps, self.capacity = classes, caps, capacity

    @classmethod
    def drawn(cls, seed: int, *, resources: int) -> Case:
        draw = random.Random(seed)
        values = draw.choice([[0, 1, 2, 3], [3, 4, 5], list(range(1, 13)), [2, 7]])
        sizes = [draw.randint(1, 4) for _ in range(draw.randint(1, 3))]
        classes = [[tuple(draw.choice(values) for _ in range(resources)) for _ in range(size)] for size in sizes]
        caps = [draw.randint(1, size) for size in sizes]
        return cls(classes, caps, [draw.randint(2, 20) for _ in range(resources)])

    def every(self) -> list[Pattern]:
        return [p for p in itertools.product(*(range(cap + 1) for cap in self.caps)) if any(p)]

    def window(self, pattern: Pattern, least: int | None = None) -> Fraction:
        """Share of all choices whose sum is at most the capacity, and at least ``least``."""
        good = total = 0
        for chosen in itertools.product(
            *(itertools.combinations(own, number) for own, number in zip(self.classes, pattern, strict=True))
        ):
            held = [sum(member[r] for part in chosen for member in part) for r in range(len(self.capacity))]
            total += 1
            good += all(have <= room for have, room in zip(held, self.capacity, strict=True)) and (
                least is None or held[0] >= least
            )
        return Fraction(good, total)

    def surely(self, pattern: Pattern) -> bool:
        """Whether the largest members of each class fit, each resource by itself."""
        return all(
            sum(
                sum(sorted((member[r] for member in own), reverse=True)[:number])
                for own, number in zip(self.classes, pattern, strict=True)
            )
            <= room
            for r, room in enumerate(self.capacity)
        )

    def listed(self, risk: Fraction, *, step: int = 1, **options: int) -> PatternList:
        classes = [Members(np.array(own)) for own in self.classes]
        draws = [draw_sums(known.values // step, cap) for known, cap in zip(classes, self.caps, strict=True)]
        worst = [-(-known.largest(cap) // step) for known, cap in zip(classes, self.caps, strict=True)]
        listing = list_patterns(
            [sums for sums in draws if sums is not None],
            worst,
            np.array(self.capacity) // step,
            most_risk=float(risk),
            **options,
        )
        assert listing is not None
        return listing


def risks(listing: PatternList) -> dict[Pattern, float]:
    """Return the listed patterns with their risks; none is listed twice."""
    table = listing.matrix().toarray().astype(int)
    found = dict(zip(map(tuple, table.tolist()), listing.risk.tolist(), strict=True))
    assert len(found) == len(listing) == len(table)
    return found


def contains(large: Pattern, small: Pattern) -> bool:
    return all(more >= less for more, less in zip(large, small, strict=True))


RISKS = [Fraction(0), Fraction(1, 20), Fraction(1, 6), Fraction(1, 4), Fraction(1, 2), Fraction(9, 10)]


@pytest.mark.parametrize("resources", [1, 2, 3])
def test_all_useful_patterns_are_listed_with_their_risks(resources: int) -> None:
    for seed in range(120):
        case = Case.drawn(seed, resources=resources)
        risk = RISKS[seed % len(RISKS)]
        found = risks(case.listed(risk))
        chance = {pattern: case.window(pattern) for pattern in case.every()}
        for pattern, own in found.items():
            assert 1 - chance[pattern] <= risk
            assert own == pytest.approx(float(1 - chance[pattern]), abs=1e-12)
            assert (own == 0) == case.surely(pattern)
        for pattern, fits in chance.items():
            if 1 - fits > risk or pattern in found:
                continue
            # What is left out fits surely, and a listed pattern that contains it does so too.
            assert case.surely(pattern)
            assert any(contains(other, pattern) and own == 0 for other, own in found.items())


def test_windows_list_exactly_what_may_be_that_full() -> None:
    """Turning back early never loses a pattern."""
    listed = 0
    for seed in range(300):
        case = Case.drawn(seed, resources=1)
        risk, capacity = RISKS[seed % len(RISKS)], case.capacity[0]
        least = random.Random(seed).randint(1, capacity)
        found = risks(case.listed(risk, least=least))
        listed += len(found)
        for pattern in case.every():
            inside = case.window(pattern, least) >= 1 - risk
            assert pattern not in found or inside
            if inside and pattern not in found:
                assert case.surely(pattern)
                assert any(contains(other, pattern) and own == 0 for other, own in found.items())
    assert listed > 100


def test_windows_on_a_grid_lose_nothing() -> None:
    """Sizes rounded down, with slack for what rounding took: every pattern of the true window is still there."""
    for seed in range(200):
        draw = random.Random(seed)
        case = Case.drawn(seed, resources=1)
        risk, step, capacity = RISKS[seed % len(RISKS)], draw.randint(2, 5), case.capacity[0]
        least = draw.randint(1, capacity)
        found = risks(case.listed(risk, step=step, least=least // step, slack=sum(case.caps)))
        for pattern in case.every():
            if case.window(pattern, least) < 1 - risk:
                continue
            if pattern in found:
                assert found[pattern] <= float(1 - case.window(pattern)) + ROUNDING
            else:
                assert case.surely(pattern)
                assert any(contains(other, pattern) and own == 0 for other, own in found.items())


def test_a_risk_met_exactly_is_listed() -> None:
    """One choice of twenty does not fit."""
    case = Case([[(1,)] * 3 + [(2,)] * 3], [3], [5])
    assert math.comb(6, 3) == 20
    assert (3,) in risks(case.listed(Fraction(1, 20)))
    assert (3,) not in risks(case.listed(Fraction(1, 21)))


def test_a_risk_too_small_for_a_double_is_not_nothing() -> None:
    """Thirty of sixty do not fit in one choice of 10**17."""
    case = Case([[(1,)] * 30 + [(2,)] * 30], [30], [59])
    found = risks(case.listed(Fraction(1, 20)))
    assert found[30,] > 0
    assert found[29,] == 0


def test_too_much_is_given_up() -> None:
    case = Case([[(1,)], [(2,)], [(3,)], [(4,)]], [1] * 4, [10])
    sums = [draw_sums(np.array(own), 1) or [] for own in case.classes]
    worst = [Members(np.array(own)).largest(1) for own in case.classes]
    for limit in ({"most_patterns": 3}, {"most_work": 5}):
        assert list_patterns(sums, worst, np.array([10]), most_risk=0.0, **limit) is None


def test_listings_of_different_classes_join() -> None:
    one, other = Case([[(1,), (2,)]], [2], [3]), Case([[(2,)], [(3,)]], [1, 1], [3])
    both = PatternList.together(
        [(one.listed(Fraction(0)), np.array([1])), (other.listed(Fraction(0)), np.array([0, 2]))], 3
    )
    assert risks(both) == {(0, 2, 0): 0.0, (1, 0, 0): 0.0, (0, 0, 1): 0.0}


def test_nothing_fits_nothing_is_listed() -> None:
    case = Case([[(5,), (6,)]], [1], [4])
    assert (len(case.listed(Fraction(0))), case.listed(Fraction(0)).matrix().shape) == (0, (0, 1))
