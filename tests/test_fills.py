# SPDX-License-Identifier: Apache-2.0
"""Fills of sealed slots: every count and chance is compared with all fills listed one by one."""

from __future__ import annotations

import itertools
import math
import random
import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.oracles import bins as oracle
from tests.oracles.fills import find_fill

from dunnage.errors import NoPlanError, ParameterError
from dunnage.kernels.bins import fills as sweep
from dunnage.kernels.bins.fills import (
    FillEstimate,
    FillSlots,
    Items,
    count_fills,
    estimate_chances,
    is_feasible,
    seeded_words,
    solve_fill,
)
from dunnage.kernels.bins.scalar import pack_bins
from dunnage.kernels.deadline import Deadline
from dunnage.noise.source import Noise
from dunnage.settle import repair
from dunnage.settle.repair import noise_words, walked_fill

TWO_PAIRS = Items(np.array([0, 0, 1, 1]), np.array([[1], [2], [3], [4]]))
"""Two light and two heavy items: one of each in a bin of 5 is possible in two ways that no single exchange joins."""
TWO_BINS = FillSlots(np.array([[1, 1], [1, 1]]), np.array([[5], [5]]))


def all_fills(items: Items, slots: FillSlots) -> list[tuple[int, ...]]:
    return oracle.all_fills(*(part.tolist() for part in (items.class_of, items.sizes, slots.counts, slots.capacities)))


def shares(fills: list[tuple[int, ...]], num_items: int, num_bins: int) -> np.ndarray:
    met = [Counter(fill[i] for fill in fills) for i in range(num_items)]
    found = [met[i][b] / len(fills) for i in range(num_items) for b in range(num_bins)]
    return np.array(found).reshape(num_items, num_bins)


def slots_of_packing(class_of: np.ndarray, bin_of: np.ndarray, num_bins: int, num_classes: int) -> np.ndarray:
    counts = np.zeros((num_bins, num_classes), dtype=np.int64)
    np.add.at(counts, (bin_of, class_of), 1)
    return counts


def tiny_problem(rng: np.random.Generator) -> tuple[Items, FillSlots]:
    """A random fill of random items, and slots and capacities around it: often tight, sometimes hopeless."""
    num_items, num_bins = int(rng.integers(0, 9)), int(rng.integers(1, 5))
    num_classes, num_resources = int(rng.integers(1, 4)), int(rng.integers(1, 3))
    largest = int(rng.choice([1, 2, 4, 20]))  # few values: ties
    class_of, bin_of = rng.integers(0, num_classes, num_items), rng.integers(0, num_bins, num_items)
    sizes = rng.integers(0, largest + 1, (num_items, num_resources))
    loads = np.zeros((num_bins, num_resources), dtype=np.int64)
    np.add.at(loads, bin_of, sizes)
    spare = rng.integers(-1 if rng.random() < 0.2 else 0, rng.choice([1, 2, largest + 1]), loads.shape)
    capacities = np.maximum(loads + spare, 0)
    if rng.random() < 0.4:
        capacities[:] = capacities.max(axis=0)
    return Items(class_of, sizes), FillSlots(slots_of_packing(class_of, bin_of, num_bins, num_classes), capacities)


def packed_problem(n: int, k: int, seed: int, *, capacity: int = 500) -> tuple[Items, FillSlots]:
    """Weights in classes of k or more neighbours, and the slots of a packing of the true weights: a tight plan."""
    weights = np.sort(np.random.default_rng(seed).integers(125, 376, n))
    class_of = np.minimum(np.arange(n) // k, max(n // k - 1, 0))
    bins = pack_bins(weights, capacity, seconds=600).bins
    bin_of = np.empty(n, dtype=np.int64)
    for b, members in enumerate(bins):
        bin_of[members] = b
    counts = slots_of_packing(class_of, bin_of, len(bins), int(class_of.max()) + 1)
    return Items(class_of, weights[:, None]), FillSlots(counts, np.full((len(bins), 1), capacity))


def check_exactly(items: Items, slots: FillSlots) -> int:
    """Compare number and chances with the list of all fills, to the last bit; return how many there are."""
    found, fills = all_fills(items, slots), count_fills(items, slots)
    assert fills.number == len(found)
    if found:
        assert np.array_equal(fills.chances(), shares(found, len(items.class_of), len(slots.counts)))
        assert tuple(fills.draw(random.Random(1).randrange).tolist()) in set(found)
    return len(found)


def test_number_and_chances_are_those_of_all_fills_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(20)
    numbers = [check_exactly(*tiny_problem(rng)) for _ in range(250)]
    assert numbers.count(0) > 2
    assert sum(number > 20 for number in numbers) > 10
    monkeypatch.setattr(sweep, "MAX_SUMS", 1)  # rooms are rounded less
    assert sum(check_exactly(*tiny_problem(rng)) for _ in range(120)) > 500


def number_bin_by_bin(items: Items, slots: FillSlots) -> int:
    """Count in another way: bin after bin takes a subset of what is left. For up to 14 or so items."""
    sizes, class_of = items.sizes[:, 0].tolist(), items.class_of.tolist()

    @cache
    def ways(b: int, left: tuple[int, ...]) -> int:
        if b == len(slots.counts):
            return int(not left)
        choices = [
            itertools.combinations([i for i in left if class_of[i] == c], int(num))
            for c, num in enumerate(slots.counts[b])
        ]
        total = 0
        for picked in itertools.product(*choices):
            taken = set(itertools.chain(*picked))
            if sum(sizes[i] for i in taken) <= slots.capacities[b, 0]:
                total += ways(b + 1, tuple(i for i in left if i not in taken))
        return total

    return ways(0, tuple(range(len(sizes))))


def test_tight_plans_of_true_packings(within: Callable[..., Any]) -> None:
    for k, capacity in ((2, 500), (4, 500), (7, 500), (14, 500), (3, 900), (7, 900)):
        items, slots = packed_problem(14, k, k + capacity, capacity=capacity)
        assert count_fills(items, slots).number == number_bin_by_bin(items, slots) > 0
    for k in (2, 5, 10):
        for n, seed in itertools.product((25, 50), range(3)):
            with within(20):
                fills = count_fills(*packed_problem(n, k, seed))
                chances = fills.chances()
            assert fills.number >= 1
            assert np.allclose(chances.sum(axis=1), 1, atol=1e-12)


def test_fills_counted_by_hand() -> None:
    fills = count_fills(TWO_PAIRS, TWO_BINS)
    assert fills.number == 2
    assert (fills.chances() == 0.5).all()
    drawn = {tuple(fills.draw(random.Random(seed).randrange).tolist()) for seed in range(50)}
    assert drawn == {(0, 1, 1, 0), (1, 0, 0, 1)}
    # Bins with room for anything are shared out in closed form.
    items = Items(np.zeros(100, dtype=np.int64), np.arange(100)[:, None])
    fills = count_fills(items, FillSlots(np.array([[30], [30], [40]]), np.full((3, 1), 10**6)))
    assert fills.number == math.factorial(100) // math.factorial(30) ** 2 // math.factorial(40)
    assert np.array_equal(fills.chances(), np.tile([0.3, 0.3, 0.4], (100, 1)))
    assert np.bincount(fills.draw(random.Random(3).randrange)).tolist() == [30, 30, 40]
    # Equal items take room but do not matter.
    items = Items(np.array([0, 0, 1, 1]), np.array([[4], [4], [1], [2]]))
    fills = count_fills(items, FillSlots(np.array([[1, 1], [1, 1]]), np.array([[5], [6]])))
    assert (fills.number, fills.chances().tolist()) == (2, [[0.5, 0.5], [0.5, 0.5], [1.0, 0.0], [0.0, 1.0]])
    # Parts multiply.
    classes = np.concatenate([TWO_PAIRS.class_of + 2 * part for part in range(40)])
    slots = FillSlots(np.kron(np.eye(40, dtype=np.int64), TWO_BINS.counts), np.tile(TWO_BINS.capacities, (40, 1)))
    assert count_fills(Items(classes, np.tile(TWO_PAIRS.sizes, (40, 1))), slots).number == 2**40


def test_nothing_to_fill_nothing_feasible_and_limits_kept() -> None:
    nothing = Items(np.empty(0, dtype=np.int64), np.empty((0, 1), dtype=np.int64))
    for num_bins in (0, 2):
        slots = FillSlots(np.zeros((num_bins, 1), dtype=np.int64), np.ones((num_bins, 1), dtype=np.int64))
        fills = count_fills(nothing, slots)
        assert (fills.number, fills.chances().shape) == (1, (0, num_bins))
        assert fills.draw(random.randrange).shape == (0,)
    estimate = estimate_chances(nothing, slots, seconds=60, most_rounds=2)
    assert estimate.chances.shape == (0, 2)
    assert find_fill(nothing, slots, seconds=60) is not None
    assert solve_fill(nothing, slots, seconds=60, words=seeded_words(0)) is not None
    tight = FillSlots(TWO_BINS.counts, np.array([[5], [4]]))
    fills = count_fills(TWO_PAIRS, tight)
    assert fills.number == 0
    for use in (fills.chances, lambda: fills.draw(random.randrange)):
        with pytest.raises(NoPlanError):
            use()
    assert estimate_chances(TWO_PAIRS, tight, seconds=0.2, most_rounds=20) is None
    assert find_fill(TWO_PAIRS, tight, seconds=0.1) is None
    assert solve_fill(TWO_PAIRS, tight, seconds=1, words=seeded_words(0)) is None
    items, slots = packed_problem(25, 10, 0)
    assert count_fills(items, slots, most_states=5) is None
    assert count_fills(items, slots, deadline=Deadline.after(-1)) is None


def p_value(draw: Callable[[], np.ndarray], fills: list[tuple[int, ...]], num_draws: int) -> float:
    met = Counter(tuple(draw().tolist()) for _ in range(num_draws))
    assert set(met) <= set(fills)
    return float(stats.chisquare([met[fill] for fill in fills]).pvalue)


def problems_with_fills(least: int, most: int, count: int) -> list[tuple[Items, FillSlots, list[tuple[int, ...]]]]:
    rng = np.random.default_rng(77)
    found = []
    while len(found) < count:
        items, slots = tiny_problem(rng)
        least_load, most_load = sweep.extremes(items.class_of, items.sizes, slots.counts)
        if (most_load > slots.capacities).any() and (least_load <= slots.capacities).all():
            fills = all_fills(items, slots)
            if least <= len(fills) <= most:
                found.append((items, slots, fills))
    return found


def test_draws_are_uniform() -> None:
    # With 40 draws per fill, a fill drawn at half or double rate is found with near certainty.
    for items, slots, fills in problems_with_fills(5, 60, 12):
        made = count_fills(items, slots)
        source = random.Random(5)
        assert p_value(lambda made=made, source=source: made.draw(source.randrange), fills, 40 * len(fills)) > 1e-9
    # Negative control: one item after another into any bin from which one can go on is not uniform.
    items, _, fills = problems_with_fills(5, 60, 1)[0]
    source = random.Random(6)

    def careless() -> np.ndarray:
        left = fills
        for item in range(len(items.class_of)):
            bin_ = source.choice(sorted({fill[item] for fill in left}))
            left = [fill for fill in left if fill[item] == bin_]
        return np.array(left[0])

    assert p_value(careless, fills, 40 * len(fills)) < 1e-9


def test_walks_join_what_exchanges_do_not_and_treat_equal_items_alike() -> None:
    estimate = estimate_chances(TWO_PAIRS, TWO_BINS, seconds=60, seed=3, most_rounds=400)
    assert estimate.num_starts == 4
    assert max(np.abs(estimate.chances - 0.5).max(), estimate.error.max()) < 0.03
    items = Items(np.array([0, 0, 0, 1, 1]), np.array([[3], [3], [1], [2], [5]]))
    slots = FillSlots(np.array([[1, 1], [2, 1]]), np.array([[8], [9]]))
    for chances in (estimate_chances(items, slots, seconds=60, most_rounds=50), count_fills(items, slots)):
        table = chances.chances() if callable(chances.chances) else chances.chances
        assert np.array_equal(table[0], table[1])


def test_walks_come_close_to_the_truth() -> None:
    for n, k, capacity in ((25, 3, 500), (25, 10, 500), (25, 10, 2500)):
        items, slots = packed_problem(n, k, 4, capacity=capacity)
        truth = count_fills(items, slots).chances()
        estimate = estimate_chances(items, slots, seconds=60, seed=1, most_rounds=400)
        assert np.abs(estimate.chances - truth).max() < 0.05
        assert abs(estimate.chances.max(axis=1).mean() - truth.max(axis=1).mean()) < 0.02
        assert np.allclose(estimate.chances.sum(axis=1), 1)
        assert is_feasible(items, slots, estimate.fill)
    rng = np.random.default_rng(8)
    bin_of, class_of, sizes = np.arange(12) % 4, np.arange(12) % 3, rng.integers(1, 30, (12, 2))
    loads = np.zeros((4, 2), dtype=np.int64)
    np.add.at(loads, bin_of, sizes)
    items, slots = Items(class_of, sizes), FillSlots(slots_of_packing(class_of, bin_of, 4, 3), loads + 4)
    truth = count_fills(items, slots)
    estimate = estimate_chances(items, slots, seconds=60, seed=2, most_rounds=400)
    assert truth.number == len(all_fills(items, slots)) > 1
    assert np.abs(estimate.chances - truth.chances()).max() < 0.05


def test_walks_depend_on_the_seed_and_not_on_the_unit() -> None:
    items, slots = packed_problem(25, 5, 6)
    finer = Items(items.class_of, items.sizes * 10**14), FillSlots(slots.counts, slots.capacities * 10**14)
    one, two, other = (estimate_chances(*finer, seconds=60, seed=s, most_rounds=200) for s in (1, 1, 2))
    assert np.abs(one.chances - count_fills(items, slots).chances()).max() < 0.05
    assert (one.chances.tobytes(), one.fill.tobytes()) == (two.chances.tobytes(), two.fill.tobytes())
    assert one.chances.tobytes() != other.chances.tobytes()
    wide = packed_problem(25, 10, 1)
    drawn = [estimate_chances(*wide, seconds=60, seed=seed, most_rounds=8).fill.tobytes() for seed in range(5)]
    assert len(set(drawn)) == 5


def test_fills_are_found_and_every_fault_is_seen() -> None:
    for k in (2, 5, 10):
        items, slots = packed_problem(25, k, 2)
        for found in (
            find_fill(items, slots, seconds=10, seed=k),
            solve_fill(items, slots, seconds=10, words=seeded_words(k)),
        ):
            assert found is not None
            assert is_feasible(items, slots, found)
            started = estimate_chances(items, slots, seconds=60, start=found, most_rounds=4)
            assert started.num_starts == 4
    good = np.array([0, 1, 1, 0])
    assert is_feasible(TWO_PAIRS, TWO_BINS, good)
    for bad in ([0, 1, 0, 1], [0, 0, 1, 1], [-1, 1, 1, 0], [0, 2, 1, 0], [0, 1, 1]):
        assert not is_feasible(TWO_PAIRS, TWO_BINS, np.array(bad))


def test_what_does_not_match_is_refused_and_nothing_private_is_printed() -> None:
    other_slots = [
        FillSlots(np.array([[1, 1], [1, 0]]), np.array([[5], [5]])),  # too few slots
        FillSlots(np.array([[2], [2]]), np.array([[5], [5]])),  # of other classes
        FillSlots(np.array([[1, 1], [1, 1]]), np.array([[5, 1], [5, 1]])),  # of other resources
    ]
    huge = Items(np.array([0, 0, 0]), np.full((3, 1), 2**61)), FillSlots(np.array([[3]]), np.array([[2**62]]))
    for items, slots in (*((TWO_PAIRS, slots) for slots in other_slots), huge):
        for use in (
            lambda pair: count_fills(*pair),
            lambda pair: estimate_chances(*pair, seconds=0.1),
            lambda pair: find_fill(*pair, seconds=0.1),
            lambda pair: solve_fill(*pair, seconds=0.1, words=seeded_words(0)),
        ):
            with pytest.raises(ParameterError):
                use((items, slots))
    items = Items(np.array([0, 0]), np.array([[7777], [8888]]))
    slots = FillSlots(np.array([[1], [1]]), np.array([[9000], [8000]]))
    estimate = estimate_chances(items, slots, seconds=10, most_rounds=2)
    shown = "".join(map(repr, (items, count_fills(items, slots), estimate)))
    assert not {"7777", "8888"} & set(re.findall(r"\d+", shown))


def nine_parcels() -> tuple[Items, FillSlots]:
    """Nine parcels of three classes, three bins with one of each; the plan's own packing is i -> i mod 3."""
    sizes = np.array([11, 14, 17, 24, 21, 22, 33, 35, 31])[:, None]
    return Items(np.arange(9) // 3, sizes), FillSlots(np.ones((3, 3), dtype=np.int64), np.full((3, 1), 70))


def test_draws_by_noise_and_by_walks_are_uniform_too() -> None:
    items, slots = nine_parcels()
    fills, made, noise = all_fills(items, slots), count_fills(items, slots), Noise(seed=12)
    assert p_value(lambda: made.draw(noise.below), fills, 40 * len(fills)) > 1e-9

    def walked() -> np.ndarray:
        return estimate_chances(items, slots, seconds=60, words=noise_words(noise), most_rounds=8).fill

    assert p_value(walked, fills, 6 * len(fills)) > 1e-9


def test_walks_are_estimates_and_both_fills_come_up(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = Noise(seed=2)
    drawn: set[tuple[int, ...]] = set()
    for _ in range(60):  # as many as it takes: all alike with probability 2e-18
        drawn.add(tuple(walked_fill(TWO_PAIRS, TWO_BINS, noise, 0.08).bin_of_row.tolist()))
        if len(drawn) == 2:
            break
    assert drawn == {(0, 1, 1, 0), (1, 0, 0, 1)}
    hopeless = FillSlots(TWO_BINS.counts, np.array([[5], [4]]))
    assert walked_fill(TWO_PAIRS, hopeless, Noise(seed=5), 0.12).bin_of_row is None
    monkeypatch.setattr(sweep, "MAX_ROUNDS", 500)  # rounds decide, not the clock
    items, slots = nine_parcels()
    done = walked_fill(items, slots, Noise(seed=3), 600)
    truth = count_fills(items, slots)
    assert (done.exact, done.number) == (False, None)
    assert is_feasible(items, slots, done.bin_of_row)
    assert np.abs(done.best_guess - truth.chances().max(axis=1)).max() < 0.05
    assert "0." not in repr(done)


def test_all_randomness_is_noise_also_from_a_fill_solved_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object) -> None:
        raise AssertionError("randomness that is not noise")

    monkeypatch.setattr(np.random, "default_rng", forbidden)
    noise = Noise(seed=6)
    walked_fill(*nine_parcels(), noise, 0.12)
    assert noise.bytes_drawn > 0
    starts: list[Any] = []

    def blind(items: Items, slots: FillSlots, **options: Any) -> FillEstimate | None:
        starts.append(options.get("start"))
        return None if starts[-1] is None else sweep.estimate_chances(items, slots, **options)

    monkeypatch.setattr(repair, "estimate_chances", blind)
    items, slots = nine_parcels()
    done = walked_fill(items, slots, Noise(seed=4), 0.5)
    assert len(starts) == 2
    assert is_feasible(items, slots, starts[1])
    assert is_feasible(items, slots, done.bin_of_row)
    assert not done.exact
