# SPDX-License-Identifier: Apache-2.0
"""Certified plans, compared with all plans there are and all orders inside the classes, in fractions."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest

from dunnage.kernels.bins import certified
from dunnage.kernels.bins.certified import BinKind, ChancePacker, ClassPacking
from dunnage.kernels.bins.chances import Between, Members

RISKS = [Fraction(0), Fraction(1, 20), Fraction(1, 6), Fraction(1, 3), Fraction(1, 2)]
Class = tuple[tuple[int, ...], ...]
Bin = tuple[int, tuple[int, ...]]
"""Kind of a bin, and how many items of each class it takes."""


@dataclass(frozen=True)
class Problem:
    """A problem small enough to try every plan and every order of members."""

    classes: tuple[Class, ...]
    kinds: tuple[BinKind, ...]
    risk: Fraction
    caps: tuple[int, ...]
    groups: tuple[int, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(len(members) for members in self.classes)

    def packer(self) -> ChancePacker:
        classes = [Members(np.array(members)) for members in self.classes]
        return ChancePacker(
            classes, np.array(self.caps), self.kinds, risk=self.risk, groups=np.array(self.groups), seed=1
        )

    def patterns(self) -> list[Bin]:
        """Every pattern that caps and groups allow."""
        found = []
        most = [min(cap, size) for cap, size in zip(self.caps, self.sizes, strict=True)]
        for pattern in itertools.product(*(range(number + 1) for number in most)):
            inside = {group for group, number in zip(self.groups, pattern, strict=True) if number}
            if len(inside) == 1:
                found += [(kind, pattern) for kind in range(len(self.kinds))]
        return found

    def plans(self) -> Iterator[tuple[Bin, ...]]:
        """Every multiset of patterns that places each item once, with no more bins of a kind than there are."""
        patterns = self.patterns()

        def go_on(first: int, left: tuple[int, ...], chosen: tuple[Bin, ...]) -> Iterator[tuple[Bin, ...]]:
            if not any(left):
                yield chosen
                return
            for position in range(first, len(patterns)):
                kind, pattern = patterns[position]
                count = self.kinds[kind].count
                if count is not None and sum(other == kind for other, _ in chosen) >= count:
                    continue
                if self.fit_chance(patterns[position]) < 1 - self.risk:
                    continue  # a plan never fits more often than each of its bins
                rest = tuple(have - taken for have, taken in zip(left, pattern, strict=True))
                if min(rest) >= 0:
                    yield from go_on(position, rest, (*chosen, patterns[position]))

        yield from go_on(0, self.sizes, ())

    def cost(self, plan: Sequence[Bin]) -> int:
        return sum(int(self.kinds[kind].cost) for kind, _ in plan)

    def fit_chance(self, one: Bin) -> Fraction:
        """Share of the choices of members that fit into one bin."""
        return joint_chance(self.classes, ((self.kinds[one[0]].capacity, one[1]),))

    def joint(self, plan: Sequence[Bin]) -> Fraction:
        return joint_chance(self.classes, tuple((self.kinds[kind].capacity, pattern) for kind, pattern in plan))

    def least_cost(self) -> int | None:
        """Cost of the cheapest plan that fits often enough; None if there is none."""
        best: int | None = None
        for plan in self.plans():
            if (best is None or self.cost(plan) < best) and self.joint(plan) >= 1 - self.risk:
                best = self.cost(plan)
        return best


@cache
def joint_chance(classes: tuple[Class, ...], bins: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]) -> Fraction:
    """Share of the ways to hand out members, bin by bin, in which every bin fits."""
    if not bins:
        return Fraction(1)
    (capacity, pattern), rest = bins[0], bins[1:]
    good, ways = Fraction(0), 0
    choices = [itertools.combinations(range(len(m)), number) for m, number in zip(classes, pattern, strict=True)]
    for chosen in itertools.product(*choices):
        ways += 1
        taken = [members[i] for members, where in zip(classes, chosen, strict=True) for i in where]
        if all(sum(member[r] for member in taken) <= room for r, room in enumerate(capacity)):
            left = tuple(
                tuple(member for i, member in enumerate(members) if i not in where)
                for members, where in zip(classes, chosen, strict=True)
            )
            good += joint_chance(left, rest)
    return good / ways


def random_problem(seed: int) -> Problem:
    """Draw a tiny problem with ties, full bins, several kinds, limits, caps, groups, one or two resources."""
    draw = random.Random(seed)
    resources = draw.choice([1, 1, 1, 2])
    capacity = draw.randint(4, 12)
    num_classes = draw.choice([1, 2, 2, 3])
    left = draw.randint(num_classes + 1, 7 if resources == 1 else 6)
    sizes = [1] * num_classes
    for _ in range(left - num_classes):
        sizes[draw.randrange(num_classes)] += 1
    values = draw.choice([range(1, capacity + 1), range(capacity // 3, capacity // 2 + 2), [0, 1, 2, 3, capacity]])
    classes = []
    for size in sizes:
        few = [tuple(draw.choice(values) for _ in range(resources)) for _ in range(draw.choice([2, size, size]))]
        classes.append(tuple(sorted(draw.choice(few) for _ in range(size))))
    kinds = [BinKind(capacity=(capacity,) * resources, cost=draw.choice([1, 1, 2]))]
    if draw.random() < 0.4:
        other = tuple(draw.choice([0, capacity // 2, capacity + 2]) for _ in range(resources))
        kinds.append(BinKind(capacity=other, cost=draw.choice([1, 2, 3])))
    if draw.random() < 0.4:
        kinds = [BinKind(capacity=k.capacity, cost=k.cost, count=draw.choice([None, 1, 2, 3])) for k in kinds]
    caps = [draw.choice([size, size, max(1, size // 2)]) for size in sizes]
    groups = [draw.choice([0, 0, 0, 1]) for _ in sizes]
    return Problem(tuple(classes), tuple(kinds), draw.choice(RISKS), tuple(caps), tuple(groups))


def lines(plan: ClassPacking) -> list[Bin]:
    return [(kind, tuple(line)) for kind, line in zip(plan.kinds.tolist(), plan.counts.tolist(), strict=True)]


def check(problem: Problem) -> tuple[int | None, ClassPacking | None]:
    """Solve a problem and compare what is said of it with the truth."""
    least, found = problem.least_cost(), problem.packer().solve(seconds=600)
    if found is None:
        assert least is None
        return least, found
    bins = lines(found)
    assert found.counts.sum(axis=0).tolist() == list(problem.sizes)
    assert set(bins) <= set(problem.patterns())
    for kind, limit in enumerate(problem.kinds):
        assert limit.count is None or found.kinds.tolist().count(kind) <= limit.count
    truth = problem.joint(bins)
    assert truth >= 1 - problem.risk
    assert Fraction(found.at_least) <= truth <= Fraction(found.at_most)
    assert found.cost == problem.cost(bins)
    assert least is not None
    assert found.bound <= least <= found.cost
    return least, found


@pytest.mark.parametrize("first", range(0, 250, 50))
def test_plans_hold_and_bounds_bracket_the_best_of_all_plans(first: int) -> None:
    met = 0
    for seed in range(first, first + 50):
        least, found = check(random_problem(seed))
        met += least == (None if found is None else found.cost)
    assert met >= 47


def test_one_resource_is_nearly_always_proven() -> None:
    """With one resource the two programs differ by the square of the risk at most."""
    proven = total = 0
    for seed in range(400, 500):
        problem = random_problem(seed)
        if len(problem.kinds[0].capacity) == 1:
            least, found = check(problem)
            total += least is not None
            proven += found is not None and found.bound == found.cost == least
    assert proven >= 0.95 * total > 30


@pytest.mark.parametrize("first", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(45, 315, 45))])
def test_rounded_sizes_never_prove_what_is_not_so(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As above, where patterns count as too many to list: only sizes on a coarse grid, and no search for plans.

    A bound is then lower and a plan may be missed, but neither may be wrong.
    """
    monkeypatch.setattr(certified, "EXACT_WORK", 0)
    monkeypatch.setattr(certified, "SEARCHES", 0)
    for seed in range(first, first + 45):
        monkeypatch.setattr(certified, "FINE_CELLS", (2, 3, 4, 5, 7)[seed % 5])
        monkeypatch.setattr(certified, "COARSE_CELLS", (1, 2, 3)[seed % 3])
        problem = random_problem(seed)
        if problem.packer().solve(seconds=600) is not None:
            check(problem)
    # What fits by rounded sizes alone was taken for all that it contains, and then ruled out with them.
    for cells in range(1, 8):
        monkeypatch.setattr(certified, "FINE_CELLS", cells)
        for classes, capacity, risk, caps in (
            ([[4, 4, 4, 5, 5, 5, 5]], 9, Fraction(1, 2), (3,)),
            ([[4, 4], [0, 0, 2, 3]], 4, Fraction(1, 6), (2, 4)),
        ):
            members = tuple(tuple((size,) for size in own) for own in classes)
            check(Problem(members, (BinKind(capacity=(capacity,)),), risk, caps, (0,) * len(classes)))


def test_never_more_than_packing_the_largest_members() -> None:
    for seed in range(60):
        problem = random_problem(seed)
        found = problem.packer().solve(seconds=600)
        upper = tuple(
            tuple(tuple(max(member[r] for member in own) for r in range(len(own[0]))) for _ in own)
            for own in problem.classes
        )
        surely = replace(problem, classes=upper, risk=Fraction(0)).least_cost()
        assert surely is None or (found is not None and found.cost <= surely)


def scalar_classes(*classes: Sequence[int]) -> list[Members]:
    return [Members(np.array(own).reshape(-1, 1)) for own in classes]


def test_a_risk_at_its_border() -> None:
    """One choice of twenty does not fit: three of six, three of which are heavy, with room for five."""
    kinds = [BinKind(capacity=(5,), cost=2), BinKind(capacity=(6,), cost=3, count=1)]
    risk = Fraction(1, 20)
    exactly, below = (
        ChancePacker(scalar_classes((1, 1, 1, 2, 2, 2)), np.array([6]), kinds, risk=own).solve(seconds=600)
        for own in (risk, risk - Fraction(1, 10**15))
    )
    assert (exactly.cost, exactly.bound, exactly.at_least) == (5, 5, 0.95)
    assert Fraction(exactly.at_least) <= Fraction(19, 20) <= Fraction(exactly.at_most)
    assert (below.cost, below.at_least) == (6, 1.0)
    # What is stated is rounded down: so many members are too heavy to go with the other item.
    for risk in (Fraction(1, 3), Fraction(1, 6), Fraction(2, 3), Fraction(1, 7)):
        class_ = [1] * (risk.denominator - risk.numerator) + [2] * risk.numerator
        kinds = [BinKind(capacity=(2,)), BinKind(capacity=(100,))]
        packer = ChancePacker(scalar_classes([1], class_), np.array([1, len(class_)]), kinds, risk=risk)
        plan = packer.planned(np.array([[1, 1], [0, len(class_) - 1]]), np.array([0, 1]))
        assert Fraction(plan.at_least) <= 1 - risk <= Fraction(plan.at_most)
        assert plan.at_least == pytest.approx(float(1 - risk))


def test_no_risk_means_none() -> None:
    """Half of a class do not fit in exactly one choice, too rare for a double or for the rounding allowance."""
    for half in (20, 30, 60):
        kinds = [BinKind(capacity=(2 * half - 1,))]
        packer = ChancePacker(scalar_classes([1] * half + [2] * half), np.array([2 * half]), kinds, risk=Fraction(0))
        found = packer.solve(seconds=600)
        assert (found.cost, found.at_least) == (3, 1.0)
        assert found.counts.max() < half
    # Sure patterns are found beside: the other group is packed best in two bins, largest first in three.
    singles = [[size] for size in (17, 14, 12, 9, 9, 6, 5, 5)]
    classes = scalar_classes([1] * 20 + [2] * 20, *singles)
    caps, groups = np.array([40] + [1] * len(singles)), np.array([1] + [0] * len(singles))
    packer = ChancePacker(classes, caps, [BinKind(capacity=(39,))], risk=Fraction(0), groups=groups)
    found = packer.solve(seconds=600)
    assert (found.cost, found.at_least) == (5, 1.0)


def test_weights_of_any_plan_bracket_the_truth() -> None:
    for seed in range(80):
        problem = replace(random_problem(seed), risk=Fraction(1))
        packer = replace(problem, risk=Fraction(1, 2)).packer()
        for plan in itertools.islice(problem.plans(), 0, 60, 7):
            counts, kinds = np.array([pattern for _, pattern in plan]), np.array([kind for kind, _ in plan])
            low, high = packer.weighed(counts, kinds)
            assert Fraction(low) <= problem.joint(plan) <= Fraction(high)
    # Members (3, 1) and (1, 3), limits (3, 1) and (1, 3): both bins fit in one order of two, a quarter by product.
    classes = [Members(np.array([[3, 1], [1, 3]]))]
    kinds = [BinKind(capacity=(3, 1), count=1), BinKind(capacity=(1, 3), count=1)]
    packer = ChancePacker(classes, np.array([1]), kinds, risk=Fraction(1, 2))
    low, high = packer.weighed(np.array([[1], [1]]), np.array([0, 1]))
    truth = joint_chance((((3, 1), (1, 3)),), (((3, 1), (1,)), ((1, 3), (1,))))
    assert truth == Fraction(1, 2)
    assert low <= truth <= high
    assert high == pytest.approx(0.5)


def test_bounds_alone() -> None:
    # Two items of each class sit at its ends, so that the members are known after all.
    draw = random.Random(3)
    for _ in range(25):
        ends = [sorted((draw.randint(1, 9), draw.randint(1, 9))) for _ in range(draw.randint(1, 3))]
        risk, capacity = draw.choice(RISKS), draw.randint(9, 14)
        problem = Problem(
            tuple(((low,), (high,)) for low, high in ends),
            (BinKind(capacity=(capacity,)),),
            risk,
            (2,) * len(ends),
            (0,) * len(ends),
        )
        classes = [Between(np.array([low]), np.array([high]), 2) for low, high in ends]
        packer = ChancePacker(classes, np.array(problem.caps), problem.kinds, risk=risk)
        found, least = packer.solve(seconds=600), problem.least_cost()
        assert least is not None
        truth = problem.joint(lines(found))
        assert truth >= 1 - risk
        assert Fraction(found.at_least) <= truth <= Fraction(found.at_most)
        assert found.bound <= least <= found.cost
    # Room for 560, one of each class from 100 to 200: too risky at one in twenty, whatever uniform items say.
    classes = [Between(np.array([100]), np.array([200]), 3) for _ in range(3)]
    packer = ChancePacker(classes, np.array([3] * 3), [BinKind(capacity=(560,))], risk=Fraction(1, 20))
    low, high = packer.weighed(np.array([[1, 1, 1]]), np.array([0]))
    assert 0.90 <= low <= high <= 0.92
    found = packer.solve(seconds=600)
    assert (found.counts.sum(axis=1) <= 2).all() or found.at_least >= 0.95


def test_time_is_kept_and_progress_never_goes_back(within: Callable[..., Any]) -> None:
    generator = np.random.default_rng(1)
    classes = [Members(np.sort(generator.integers(50, 900, 12)).reshape(-1, 1)) for _ in range(40)]
    packer = ChancePacker(classes, np.array([12] * 40), [BinKind(capacity=(2000,))], risk=Fraction(1, 20))
    with within(8):
        found = packer.solve(seconds=0.5)
    assert found.at_least >= 0.95
    assert found.bound <= found.cost
    seen: list[tuple[int, int]] = []
    classes = scalar_classes([3, 4, 5], [2, 6, 6], [1, 1, 7])
    packer = ChancePacker(classes, np.array([3] * 3), [BinKind(capacity=(10,))], risk=Fraction(1, 6))
    found = packer.solve(seconds=600, progress=lambda _, cost, bound: seen.append((cost, bound)))
    assert seen[-1] == (found.cost, found.bound)
    assert all(later[0] <= sooner[0] and later[1] >= sooner[1] for sooner, later in itertools.pairwise(seen))
