# SPDX-License-Identifier: Apache-2.0
"""Bin packing: every plan is checked, every bound is compared with an independent search."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.oracles.instances import no_round_up

from dunnage.errors import ParameterError
from dunnage.kernels.bins import scalar as bins
from dunnage.kernels.bins.forced import glue_items
from dunnage.kernels.bins.scalar import Packing, Pricing, Sizes, pack_bins, whole_numbers
from dunnage.kernels.deadline import NEVER, Deadline


def fewest_bins(weights: list[int], capacity: int) -> int:
    """Slow and independent: item by item into every open bin or a new one, all packings of up to eight items."""
    best = len(weights)

    def place(i: int, loads: tuple[int, ...]) -> None:
        nonlocal best
        if len(loads) >= best:
            return
        if i == len(weights):
            best = len(loads)
            return
        for b in range(len(loads)):
            if loads[b] + weights[i] <= capacity:
                place(i + 1, tuple(sorted((*loads[:b], loads[b] + weights[i], *loads[b + 1 :]))))
        place(i + 1, tuple(sorted((*loads, weights[i]))))

    place(0, ())
    return best


def check(packing: Packing, weights: np.ndarray, capacity: int) -> None:
    """Every item once, no bin overfull or empty, and the figures say what the bins are."""
    placed = Counter(item for bin_ in packing.bins for item in bin_)
    assert placed == Counter(range(len(weights)))
    assert all(bin_ and sum(int(weights[i]) for i in bin_) <= capacity for bin_ in packing.bins)
    assert packing.objective == len(packing.bins)
    assert packing.bound <= packing.objective
    assert packing.gap == packing.objective - packing.bound
    assert packing.status == ("optimal" if packing.gap == 0 else "feasible")


def solved(weights: object, capacity: int, seconds: float = 600.0) -> Packing:
    array = np.asarray(weights, dtype=np.int64)
    packing = pack_bins(array, capacity, seconds=seconds)
    check(packing, array, capacity)
    return packing


def tiny(seed: int, num: int) -> list[tuple[list[int], int]]:
    """Small instances of several kinds: wide, narrow, thirds of the capacity, with zeros."""
    generator = np.random.default_rng(seed)
    cases = []
    for i in range(num):
        capacity = int(generator.integers(1, 40))
        low, high = [(0, capacity), (capacity // 4, capacity // 2), (capacity // 5, capacity // 3 + 1)][i % 3]
        weights = generator.integers(low, min(high, capacity) + 1, int(generator.integers(0, 9)))
        cases.append((weights.tolist(), capacity))
    return cases


def test_every_tiny_optimum_is_found_and_proved() -> None:
    for seed, (weights, capacity) in enumerate(tiny(1, 2000)):
        packing = pack_bins(np.array(weights, dtype=np.int64), capacity, seconds=600, seed=seed % 7)
        check(packing, np.array(weights, dtype=np.int64), capacity)
        assert packing.objective == packing.bound == fewest_bins(weights, capacity), (weights, capacity)


def test_l2_sees_what_the_sum_does_not_and_never_exceeds_the_optimum(monkeypatch: pytest.MonkeyPatch) -> None:
    assert bins.l2_bound(np.array([6, 6, 6, 4, 4, 3]), 10) == 3
    assert bins.l2_bound(np.array([6, 6, 6, 5, 5]), 10) == 4
    for most in (2000, 1):
        monkeypatch.setattr(bins, "MAX_THRESHOLDS", most)
        for weights, capacity in tiny(2, 600):
            positive = [w for w in weights if w]
            bound = bins.l2_bound(np.array(positive, dtype=np.int64), capacity)
            assert -(-sum(positive) // capacity) <= bound <= fewest_bins(positive, capacity)


def test_dominance_and_listed_patterns_lose_no_packing() -> None:
    shortened = 0
    for weights, capacity in tiny(3, 1500):
        items = np.array(weights, dtype=np.int64)
        positive = np.flatnonzero(items).tolist()
        fixed, rest = bins.fix_dominated(items, positive, capacity)
        assert sorted([i for bin_ in fixed for i in bin_] + rest) == positive
        assert all(sum(weights[i] for i in bin_) <= capacity for bin_ in fixed)
        left = fewest_bins([weights[i] for i in rest], capacity)
        assert len(fixed) + left == fewest_bins([weights[i] for i in positive], capacity)
        shortened += bool(fixed)
    assert shortened > 500
    for weights, capacity in tiny(7, 300):
        items = np.array([w for w in weights if w], dtype=np.int64)
        if not len(items):
            continue
        problem = Sizes.of(items, list(range(len(items))), capacity)
        grid = np.array(list(np.ndindex(*(problem.demand + 1))))
        room = capacity - grid @ problem.sizes
        could_grow = ((grid < problem.demand) & (problem.sizes <= room[:, None])).any(axis=1)
        listed = bins.list_patterns(problem, 10_000)
        assert listed is not None
        assert sorted(map(tuple, listed)) == sorted(map(tuple, grid[(room >= 0) & ~could_grow]))
    problem = Sizes.of(np.arange(1, 1500), list(range(1499)), 10_000)  # deeper than any recursion limit
    assert bins.list_patterns(problem, 50) is None
    assert bins.list_patterns(problem, 10**9, deadline=Deadline.after(0)) is None


@pytest.mark.parametrize("width", [200_000, 7, 3])
def test_farley_bound_holds_for_any_prices_and_rounding(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bins, "MAX_TABLE_WIDTH", width)
    generator = np.random.default_rng(4)
    for weights, capacity in tiny(4, 500):
        items = np.array([w for w in weights if w], dtype=np.int64)
        if len(items):
            problem = Sizes.of(items, list(range(len(items))), capacity)
            pricing = Pricing(problem)
            for scale in (1, 5, bins.PRICE_SCALE):
                prices = generator.integers(0, scale + 1, len(problem.sizes))
                assert pricing.bound(prices) <= fewest_bins(items.tolist(), capacity)
                for pattern in pricing.valuable(prices):
                    assert (pattern <= problem.demand).all()
                    assert pattern @ problem.sizes <= capacity


@pytest.mark.parametrize("width", [200_000, 11])
def test_column_generation_alone_never_exceeds_the_optimum(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """L2 and the quick heuristics are switched off, so that bound and packing come from patterns."""
    monkeypatch.setattr(bins, "MAX_TABLE_WIDTH", width)
    monkeypatch.setattr(bins, "l2_bound", lambda weights, capacity: 0)
    monkeypatch.setattr(bins, "best_fit_decreasing", lambda items, rest, capacity: [[i] for i in rest])
    monkeypatch.setattr(bins, "fill_by_subset_sums", lambda *args, **kwargs: None)
    for weights, capacity in tiny(5, 150):
        packing = solved(weights, capacity)
        assert packing.objective == packing.bound == fewest_bins(weights, capacity), (weights, capacity)


def test_patterns_near_the_bound_are_all_that_a_packing_could_use(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(8)
    for weights, capacity in tiny(8, 300):
        items = np.array([w for w in weights if w], dtype=np.int64)
        if not len(items):
            continue
        problem = Sizes.of(items, list(range(len(items))), capacity)
        grid = np.array(list(np.ndindex(*(problem.demand + 1))))
        prices = generator.integers(0, 9, len(problem.sizes))
        least = int(generator.integers(0, 20)), int(generator.integers(0, capacity + 1))
        loads, out = grid @ problem.sizes, np.zeros((5000, len(problem.sizes)), dtype=np.int32)
        given = problem.sizes, problem.most, prices
        num = bins._list_near(given, capacity, *least, out, 10**6)
        wanted = grid[(loads <= capacity) & (loads >= least[1]) & (grid @ prices >= least[0])]
        assert sorted(map(tuple, out[:num])) == sorted(map(tuple, wanted))
        assert len(wanted) < 2 or bins._list_near(given, capacity, *least, out[: len(wanted) - 1], 10**6) == -1
        assert bins._list_near(given, capacity, *least, out, 1) == -1
    # Edges of the Petersen graph: three perfect matchings in fractions, four in whole numbers
    edges = [*((i, (i + 1) % 5) for i in range(5)), *((i, i + 5) for i in range(5))]
    edges += [(5 + i, 5 + (i + 2) % 5) for i in range(5)]
    ends = [2**i for i in range(10)]
    odd = [ends[one] + ends[other] + 5000 for one, other in edges]
    assert pack_bins(np.array(odd), 25_000 + sum(ends), seconds=600).bound == 4
    monkeypatch.setattr(bins, "MAX_LISTED_PATTERNS", 0)
    assert solved(odd, 25_000 + sum(ends), 60).bound == 4  # now by the patterns near the bound
    monkeypatch.setattr(bins, "glue_items", lambda sizes, *args: [[i] for i in range(len(sizes))])
    monkeypatch.setattr(bins, "MAX_NEAR_STEPS", 0)
    assert solved(odd, 25_000 + sum(ends), 60).bound == 4  # by a flow over loads
    monkeypatch.setattr(bins, "_TRIES_BEFORE_PROGRAM", -1)
    monkeypatch.setattr(bins, "best_fit_decreasing", lambda items, rest, capacity: [[i] for i in rest])
    monkeypatch.setattr(bins, "fill_by_subset_sums", lambda *args, **kwargs: None)
    monkeypatch.setattr(bins, "l2_bound", lambda weights, capacity: 0)
    for weights, capacity in tiny(9, 60):
        assert solved(weights, capacity, 0.05).bound <= fewest_bins(weights, capacity)


def test_glued_items_share_a_bin_in_some_packing_at_the_bound() -> None:
    glued = refused = 0
    for weights, capacity in tiny(21, 400):
        items = [weight for weight in weights if weight]
        least = fewest_bins(items, capacity)
        for target in range(-(-sum(items) // capacity), least + 1):
            groups = glue_items(items, capacity, target * capacity - sum(items), NEVER)
            refused += groups is None
            if groups is None:
                assert target < least
                continue
            assert sorted(position for group in groups for position in group) == list(range(len(items)))
            sums = [sum(items[position] for position in group) for group in groups]
            glued += len(sums) < len(items)
            assert max(sums, default=0) <= capacity
            assert (fewest_bins(sums, capacity) <= target) == (least <= target)
    assert min(glued, 5 * refused) > 100


def test_a_gap_of_one_without_room_to_spare_is_proved_and_closed() -> None:
    weights, capacity = no_round_up(20, 1500, 0)
    assert sum(weights) == 23 * capacity
    assert solved(weights, capacity).bound == 24
    assert solved(*no_round_up(20, 1500, 0, split=True)).gap == 0


def test_coarsened_sizes_give_packings_but_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bins, "MAX_EASY_SIZES", 1)
    monkeypatch.setattr(bins, "COARSE_SIZES", 2)
    monkeypatch.setattr(bins, "best_fit_decreasing", lambda items, rest, capacity: [[i] for i in rest])
    monkeypatch.setattr(bins, "fill_by_subset_sums", lambda *args, **kwargs: None)
    for weights, capacity in tiny(6, 150):
        assert solved(weights, capacity).objective == fewest_bins(weights, capacity)
    monkeypatch.setattr(bins, "MAX_SIZES", 0)
    for weights, capacity in tiny(6, 150):
        packing = solved(weights, capacity)
        assert packing.bound <= fewest_bins(weights, capacity) <= packing.objective


def test_best_fit_takes_the_fullest_bin_that_fits() -> None:
    generator = np.random.default_rng(8)
    for num, capacity in (*((60, 50),) * 100, (4000, 10**6)):  # many different loads: blocks of them split and vanish
        items, loads = generator.integers(1, capacity, num), np.zeros(num, dtype=np.int64)
        for size in np.sort(items)[::-1]:  # empty bins are the least full
            loads[np.argmax(np.where(loads + size <= capacity, loads, -1))] += size
        found = bins.best_fit_decreasing(items, list(range(num)), capacity)
        assert sorted(int(items[bin_].sum()) for bin_ in found) == sorted(loads[loads > 0].tolist())


def test_subset_sums_fill_in_a_small_window_and_stop_when_late(monkeypatch: pytest.MonkeyPatch) -> None:
    items = np.random.default_rng(9).integers(10, 60, 300)
    order = list(range(300))
    for window in (4000, 5):
        monkeypatch.setattr(bins, "MAX_WINDOW", window)
        found = bins.fill_by_subset_sums(items, order, 100)
        check(Packing(found, 0, 0.0), items, 100)
    assert bins.fill_by_subset_sums(items, order, 100, deadline=Deadline.after(-1)) is None


def test_a_late_table_proves_nothing_and_a_large_one_does_not_overflow() -> None:
    problem = Sizes(np.array([5, 4, 3]), np.array([9, 9, 9]), 12)
    prices = np.array([5, 4, 3]) * 10**8
    assert Pricing(problem).bound(prices) == 9
    late = Pricing(problem, deadline=Deadline.after(-1))
    assert (late.bound(prices), late.valuable(prices)) == (0, [])
    problem = Sizes(np.array([7, 3]), np.array([40_003, 50_001]), 400_000)
    pricing = Pricing(problem)
    assert pricing.bound(np.array([7, 3])) == -(-430_024 // 400_000)
    assert max(int(pattern.max()) for pattern in pricing.valuable(np.array([10**9, 10**9]))) > 2**15


def test_edges_and_bad_arguments() -> None:
    cases: list[tuple[list[int], int, int]] = [
        *(([], 10, 0), ([], 0, 0), ([10], 10, 1), ([0], 10, 1), ([0, 0, 0], 0, 1), ([0, 5, 0, 5, 6], 10, 2)),
        *(([10, 10, 10], 10, 3), ([1] * 7, 10**18, 1), ([2**61] * 3, 2**62, 2), ([3, 3, 3, 3], 2**80, 1)),
        *(([1] * 100_000, 40_000, 3), ([3] * 50_001 + [7] * 40_003, 200_011, 3)),  # no sum overflows
    ]
    for weights, capacity, expected in cases:
        packing = solved(weights, capacity)
        assert (packing.objective, packing.bound) == (expected, expected), (weights[:5], capacity)
    cases = [
        *((np.array(weights), 10, 1.0) for weights in ([98765, 3], [-1], [1.0], [[1]])),
        (np.array([], dtype=np.int64), -1, 1.0),
        *((np.array([1]), 10, seconds) for seconds in (-1.0, float("nan"))),
        (np.array([2**63], dtype=np.uint64), 2**64, 1.0),
    ]
    for weights, capacity, seconds in cases:
        with pytest.raises(ParameterError) as caught:
            pack_bins(weights, capacity, seconds=seconds)
        assert "98765" not in str(caught.value)


def test_huge_capacities_pack_as_their_small_likes_and_never_overstate_the_bound() -> None:
    generator = np.random.default_rng(10)
    for _ in range(8):
        small = generator.integers(20, 101, 60)
        expected = solved(small, 150).objective
        assert solved(small << 46, 150 << 46).objective == expected
        # slightly lighter items in the same bins: no common divisor is left, and tables must round
        nudged = (small << 46) - generator.integers(0, 2**20, 60)
        packing = solved(nudged, 150 << 46)
        assert packing.bound <= packing.objective <= expected
    for _ in range(6):  # sums that fit to the last unit: rounded sizes must not claim that they do not
        cuts = np.sort(generator.integers(2**52, 2**54 - 2**52, (9, 2)), axis=1)
        weights = np.column_stack([cuts[:, 0], cuts[:, 1] - cuts[:, 0], 2**54 - cuts[:, 1]]).ravel()
        assert solved(weights, 2**54, seconds=0.5).bound <= 9


@pytest.mark.parametrize("num", [100_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_very_many_items_are_answered(num: int, within: Callable[..., Any]) -> None:
    generator = np.random.default_rng(12)
    assert solved(generator.integers(125, 376, num), 500).status == "optimal"
    with within(20):
        packing = solved(generator.integers(1, 2**54, num), 2**54, seconds=2)
    assert packing.gap <= packing.objective // 1000


def hard_items(num: int = 1000) -> np.ndarray:
    """All sizes distinct, three or four to a bin: not proved in a minute."""
    return np.random.default_rng(0).integers(20_000, 35_000, num)


@pytest.mark.parametrize("seconds", [0.0, 0.5, *(pytest.param(more, marks=pytest.mark.long) for more in (2.0, 5.0))])
def test_time_limit_is_honoured(seconds: float, within: Callable[..., Any]) -> None:
    pack_bins(hard_items(50), 100_000, seconds=60)  # the solver is loaded, so that even a short limit may use it
    with within(1.1 * seconds + 0.05):  # best fit is finished even in no time at all
        packing = pack_bins(hard_items(), 100_000, seconds=seconds)
    check(packing, hard_items(), 100_000)
    assert packing.gap > 0
    assert packing.status == "feasible"


def test_importing_is_cheap_and_a_short_limit_starts_no_solver() -> None:
    program = (
        "import sys, time; import numpy as np; from dunnage.kernels.bins.scalar import pack_bins;"
        "assert 'scipy' not in sys.modules;"
        "pack_bins(np.random.default_rng(0).integers(20000, 35000, 300), 100000, seconds=0.3);"
        "assert 'scipy.optimize' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_progress_only_improves_and_the_same_seed_packs_the_same() -> None:
    calls: list[tuple[str, int, int]] = []
    weights = np.random.default_rng(13).integers(20, 101, 120)
    packing = pack_bins(weights, 150, seconds=600, progress=lambda *call: calls.append(call))
    assert {stage for stage, _, _ in calls} == {"packing", "bound"}
    assert all(a[1] >= b[1] and a[2] <= b[2] for a, b in itertools.pairwise(calls))
    assert calls[-1][1:] == (packing.objective, packing.bound)
    weights = hard_items(100)
    first, again = (pack_bins(weights, 100_000, seconds=600, seed=5) for _ in range(2))
    assert (first.status, first.bins) == ("optimal", again.bins)


def scholl(folder: Path, name: str) -> tuple[np.ndarray, int, int]:
    """Read an instance (number of items, capacity, weights) and its published optimum."""
    _, capacity, *weights = map(int, (folder / "bpplib" / "scholl_hard" / f"{name}.txt").read_text().split())
    lines = (folder / "bpplib" / "optima.tsv").read_text().splitlines()
    optima = {line.split("\t")[0]: int(line.split("\t")[1]) for line in lines}
    return np.array(weights), capacity, optima[name]


@pytest.mark.data
@pytest.mark.parametrize(
    "name", ["HARD2", "HARD4", *(pytest.param(f"HARD{i}", marks=pytest.mark.long) for i in (0, 1, 3))]
)
def test_hard_instances_of_scholl_are_proved(name: str, data_folder: Path) -> None:
    weights, capacity, optimum = scholl(data_folder, name)
    packing = solved(weights, capacity)
    assert packing.objective == packing.bound == optimum


def triplets(num_bins: int, seed: int) -> np.ndarray:
    """Three items fill each bin of 1000 exactly (after Falkenauer 1996)."""
    generator = np.random.default_rng(seed)
    large = generator.integers(380, 491, num_bins)
    middle = generator.integers(250, (1000 - large) // 2 + 1)
    return generator.permutation(np.concatenate([large, middle, 1000 - large - middle]))


def test_triplets_and_benchmark_families_are_proved() -> None:
    for num_bins in (20, 83):
        packing = solved(triplets(num_bins, 1), 1000)
        assert packing.objective == packing.bound == num_bins
    families = [(20, 100, 150), (1, 100, 100), (100, 500, 1000), (1, 800, 1000)]
    for seed, (low, high, capacity) in enumerate(families):
        weights = np.random.default_rng(seed).integers(low, high + 1, 160)
        assert solved(weights, capacity).status == "optimal"


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=30), st.integers(0, 4))
def test_decimals_become_whole_numbers_exactly(numbers, decimals):
    scale = 10**decimals
    weights = np.array([number / scale for number in numbers])
    whole = whole_numbers(weights, 5000 / scale)
    assert whole.below is None
    for weight, item in zip(weights.tolist(), whole.items.tolist(), strict=True):
        assert Fraction(repr(weight)) / Fraction(repr(5000 / scale)) == Fraction(item, whole.capacity)


@given(st.lists(st.floats(1.0, 500.0), min_size=1, max_size=30))
def test_doubles_become_whole_numbers_exactly(numbers):
    whole = whole_numbers(np.array(numbers), 500.0)
    if whole.below is None:
        assert [Fraction(item, whole.capacity) for item in whole.items.tolist()] in (
            [Fraction(number) / 500 for number in numbers],
            [Fraction(repr(number)) / 500 for number in numbers],
        )


def test_numbers_of_any_size_are_rounded_outward_and_the_bound_still_holds() -> None:
    weights = np.array([1e-300, 250.0, 250.0, 0.1 + 1e-17, 499.9, 500.0])
    whole = whole_numbers(weights, 500.0)
    packing = pack_bins(whole.items, whole.capacity, seconds=2)
    for bin_ in packing.bins:
        assert sum(Fraction(weights[i]) for i in bin_) <= 500
    assert pack_bins(*whole.below, seconds=2).bound <= packing.objective
    for size in (1e-300, 1e-9, 1.0, 1e300):
        weights = np.array([0.3, 1 / 3, 0.5, 0.9, 2 / 7]) * size
        whole = whole_numbers(weights, size)
        packing = pack_bins(whole.items, whole.capacity, seconds=60)
        assert packing.objective == 3, size
        assert all(sum(Fraction(weights[i]) for i in bin_) <= Fraction(size) for bin_ in packing.bins)
