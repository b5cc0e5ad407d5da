# SPDX-License-Identifier: Apache-2.0
"""Covers of least cost, compared with all multisets of patterns."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest

from dunnage.kernels.bins import covering
from dunnage.kernels.bins.chances import ROUNDING, Members, draw_sums
from dunnage.kernels.bins.covering import Cover, CoverProgram, KindPatterns, PatternList, list_patterns
from dunnage.kernels.deadline import Deadline

Pattern = tuple[int, ...]


def listing(patterns: Sequence[Pattern], risk: Sequence[float] | None = None) -> PatternList:
    """Put patterns into a listing."""
    table = np.array(patterns, dtype=np.int64)
    lines, kinds = np.nonzero(table)
    starts = np.concatenate([[0], np.cumsum((table > 0).sum(axis=1))])
    own = np.zeros(len(table)) if risk is None else np.array(risk, dtype=np.float64)
    return PatternList(starts, kinds, table[lines, kinds], own, table.shape[1])


@dataclass(frozen=True)
class Kind:
    """Patterns of one kind of bin with their share of the budget."""

    patterns: tuple[Pattern, ...]
    use: tuple[float, ...]
    cost: int
    count: int | None


def least_cost(demand: Pattern, kinds: Sequence[Kind], budget: float) -> int | None:
    """Try all multisets of patterns, in exact numbers; no cover needs more bins than items."""
    every = [
        (number, pattern, Fraction(use))
        for number, kind in enumerate(kinds)
        for pattern, use in zip(kind.patterns, kind.use, strict=True)
    ]
    best: int | None = None

    def go_on(first: int, left: Pattern, cost: int, spare: Fraction | float, used: tuple[int, ...]) -> None:
        nonlocal best
        if best is not None and cost >= best:
            return
        if max(left) <= 0:
            best = cost
            return
        for position in range(first, len(every)):
            kind, pattern, use = every[position]
            limit = kinds[kind].count
            more = tuple(times + (kind == number) for number, times in enumerate(used))
            if use > spare or (limit is not None and more[kind] > limit) or sum(more) > sum(demand):
                continue
            rest = tuple(have - taken for have, taken in zip(left, pattern, strict=True))
            go_on(position, rest, cost + kinds[kind].cost, spare - use, more)

    go_on(0, demand, 0, math.inf if math.isinf(budget) else Fraction(budget), (0,) * len(kinds))
    return best


def solve(demand: Pattern, kinds: Sequence[Kind], budget: float = math.inf, **options: float) -> Cover:
    program = CoverProgram(
        np.array(demand), [KindPatterns(listing(kind.patterns, kind.use), kind.cost, kind.count) for kind in kinds]
    )
    use = None if math.isinf(budget) else program.risk
    return program.solve(deadline=Deadline.after(600), use=use, budget=budget, **options)  # type: ignore[arg-type]


def check(cover: Cover, demand: Pattern, kinds: Sequence[Kind], budget: float) -> None:
    """Check that bins are of listed patterns, within limits and budget, and cover each class exactly."""
    assert cover.patterns.sum(axis=0).tolist() == list(demand)
    spent = Fraction(0)
    flat = [(pattern, use) for kind in kinds for pattern, use in zip(kind.patterns, kind.use, strict=True)]
    for kind, row, line in zip(cover.kinds.tolist(), cover.rows.tolist(), cover.patterns.tolist(), strict=True):
        pattern, use = flat[row]
        assert pattern in kinds[kind].patterns
        assert any(line)
        assert all(have <= listed for have, listed in zip(line, pattern, strict=True))
        spent += Fraction(use)
    assert math.isinf(budget) or spent <= Fraction(budget) * (1 + Fraction(1, 10**12))
    for number, kind in enumerate(kinds):
        assert kind.count is None or cover.kinds.tolist().count(number) <= kind.count
    assert cover.cost == sum(kinds[kind].cost for kind in cover.kinds.tolist())


def drawn(seed: int) -> tuple[Pattern, list[Kind], float]:
    draw = random.Random(seed)
    num = draw.randint(1, 3)
    demand = tuple(draw.randint(1, 3) for _ in range(num))
    budget = draw.choice([math.inf, 0.5, 0.25, 0.05])
    kinds = []
    for _ in range(draw.randint(1, 3)):
        patterns = {tuple(draw.randint(0, 2) for _ in range(num)) for _ in range(draw.randint(1, 5))}
        patterns = {pattern for pattern in patterns if any(pattern)} or {(1,) * num}
        shares = [0.0, 0.0, budget / 4, budget / 3, budget / 2, budget] if math.isfinite(budget) else [0.0]
        use = tuple(draw.choice(shares) for _ in patterns)
        kinds.append(
            Kind(tuple(sorted(patterns)), use, draw.choice([1, 2, 3, 10, 25]), draw.choice([None, None, 0, 1, 2]))
        )
    return demand, kinds, budget


def test_covers_are_the_cheapest_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adding patterns by their prices one by one must end at the same cover."""
    found = 0
    for seed in range(220):
        if seed == 150:
            monkeypatch.setattr(covering, "NEW_COLUMNS", 1)
        demand, kinds, budget = drawn(seed)
        least, cover = least_cost(demand, kinds, budget), solve(demand, kinds, budget)
        assert (cover.cost, cover.bound) == (least, least), seed
        if least is None:
            assert len(cover.kinds) == len(cover.patterns) == 0
            continue
        found += 1
        check(cover, demand, kinds, budget)
    assert 55 < found < 210


def test_only_cheaper_covers_are_of_interest() -> None:
    for seed in range(80):
        demand, kinds, budget = drawn(seed)
        least = least_cost(demand, kinds, budget)
        if least is None:
            continue
        for at_most in (least - 1, least, least + 1, least + 7):
            cover = solve(demand, kinds, budget, at_most=at_most, known_bound=0)
            if least < at_most:
                check(cover, demand, kinds, budget)
                assert cover.cost == cover.bound == least
            else:  # what is known is that nothing cheaper than at_most exists
                assert cover.cost is None
                assert cover.bound is None or max(at_most, 0) <= cover.bound <= least


def test_nearly_equal_shares_are_told_apart_or_left_open() -> None:
    """A cheap and a dear pattern differ in their share by a hair: prices are then beyond any ceiling."""
    for hair in (1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-12):
        kinds = [Kind(((1,),), (0.01 + hair,), 1, None), Kind(((1,),), (0.01 - hair,), 2, None)]
        for budget in (0.02 - 3 * hair, 0.02 - hair, 0.02 + hair / 2, 0.02 + 3 * hair):
            least, cover = least_cost((2,), kinds, budget), solve((2,), kinds, budget)
            if cover.cost is not None:
                check(cover, (2,), kinds, budget)
            if least is not None:
                assert cover.bound is not None
                assert cover.bound <= least <= (math.inf if cover.cost is None else cover.cost)


def test_costs_far_apart_and_covers_that_there_are_not() -> None:
    for dear in (10**3, 10**6, 10**9):
        kinds = [Kind(((1, 0), (0, 1)), (0.0, 0.0), 1, 2), Kind(((1, 1),), (0.0,), dear, None)]
        cover = solve((3, 4), kinds)
        assert cover.cost == cover.bound == 3 * dear + 1
        check(cover, (3, 4), kinds, math.inf)
    assert solve((1, 1), [Kind(((1, 0),), (0.0,), 1, None)]).bound is None  # a class in no pattern
    # Every two of three: a fractional cover needs three halves, a whole one two.
    pairs = tuple(sorted({*itertools.permutations((1, 1, 0))}))
    for use, count, budget, cost in ((0.0, 1, math.inf, None), (0.0, 2, math.inf, 2), (0.2, None, 0.35, None)):
        cover = solve((1, 1, 1), [Kind(pairs, (use,) * 3, 1, count)], budget)
        assert (cover.cost, cover.bound) == (cost, cost)
    for count, cost in ((99_999, None), (100_000, 100_000)):  # many items
        cover = solve((200_000,), [Kind(((2,),), (0.0,), 1, count)])
        assert (cover.cost, cover.bound) == (cost, cost)
    program = CoverProgram(np.array([3]), [KindPatterns(listing([(1,)]))])
    cover = program.solve(deadline=Deadline.after(-1), known_bound=2)  # no time leaves what was known
    assert (cover.cost, cover.bound) == (None, 2)
    program = CoverProgram(np.array([2]), [KindPatterns(listing([(1,), (2,)]))])
    cover = program.solve(deadline=Deadline.after(600), usable=np.array([True, False]))
    assert (cover.cost, cover.bound, cover.rows.tolist()) == (2, 2, [0, 0])  # patterns may be excluded


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
        return list_patterns(draws, worst, np.array(self.capacity) // step, most_risk=float(risk), **options)


def risks(listing: PatternList) -> dict[Pattern, float]:
    """Return the listed patterns with their risks; none is listed twice."""
    table = listing.matrix().toarray().astype(int)
    found = dict(zip(map(tuple, table.tolist()), listing.risk.tolist(), strict=True))
    assert len(found) == len(listing) == len(table)
    return found


def contains(large: Pattern, small: Pattern) -> bool:
    return all(more >= less for more, less in zip(large, small, strict=True))


RISKS = [Fraction(0), Fraction(1, 20), Fraction(1, 6), Fraction(1, 4), Fraction(1, 2), Fraction(9, 10)]


def left_out_surely(case: Case, pattern: Pattern, found: dict[Pattern, float]) -> bool:
    """What is left out fits surely, and a listed pattern that contains it does so too."""
    return case.surely(pattern) and any(contains(other, pattern) and own == 0 for other, own in found.items())


def test_all_useful_patterns_are_listed_with_their_risks() -> None:
    for seed in range(270):
        case = Case.drawn(seed, resources=1 + seed % 3)
        risk = RISKS[seed % len(RISKS)]
        found = risks(case.listed(risk))
        chance = {pattern: case.window(pattern) for pattern in case.every()}
        for pattern, own in found.items():
            assert 1 - chance[pattern] <= risk
            assert own == pytest.approx(float(1 - chance[pattern]), abs=1e-12)
            assert (own == 0) == case.surely(pattern)
        for pattern, fits in chance.items():
            assert 1 - fits > risk or pattern in found or left_out_surely(case, pattern, found), seed


def test_windows_list_exactly_what_may_be_that_full() -> None:
    """Turning back early never loses a pattern; nor do sizes rounded down, with slack for what rounding took."""
    listed = 0
    for seed in range(240):
        draw, case = random.Random(seed), Case.drawn(seed, resources=1)
        risk, least, step = RISKS[seed % len(RISKS)], draw.randint(1, case.capacity[0]), draw.randint(2, 5)
        found = risks(case.listed(risk, least=least))
        rounded = risks(case.listed(risk, step=step, least=least // step, slack=sum(case.caps)))
        listed += len(found)
        for pattern in case.every():
            inside = case.window(pattern, least) >= 1 - risk
            assert pattern not in found or inside, seed
            if inside:
                assert pattern in found or left_out_surely(case, pattern, found), seed
                assert pattern in rounded or left_out_surely(case, pattern, rounded), seed
                assert rounded.get(pattern, 0.0) <= float(1 - case.window(pattern)) + ROUNDING
    assert listed > 100


def test_listings_by_hand() -> None:
    case = Case([[(1,)] * 3 + [(2,)] * 3], [3], [5])  # one choice of twenty does not fit
    assert (3,) in risks(case.listed(Fraction(1, 20)))
    assert (3,) not in risks(case.listed(Fraction(1, 21)))
    case = Case([[(1,)] * 30 + [(2,)] * 30], [30], [59])  # thirty of sixty do not fit in one choice of 10**17
    found = risks(case.listed(Fraction(1, 20)))
    assert (found[30,] > 0, found[29,]) == (True, 0)
    case = Case([[(1,)], [(2,)], [(3,)], [(4,)]], [1] * 4, [10])
    for limit in ({"most_patterns": 3}, {"most_work": 5}):
        assert case.listed(Fraction(0), **limit) is None
    one, other = Case([[(1,), (2,)]], [2], [3]), Case([[(2,)], [(3,)]], [1, 1], [3])
    parts = [(one.listed(Fraction(0)), np.array([1])), (other.listed(Fraction(0)), np.array([0, 2]))]
    assert risks(PatternList.together(parts, 3)) == {(0, 2, 0): 0.0, (1, 0, 0): 0.0, (0, 0, 1): 0.0}
    nothing = Case([[(5,), (6,)]], [1], [4]).listed(Fraction(0))
    assert (len(nothing), nothing.matrix().shape) == (0, (0, 1))
