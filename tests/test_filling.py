# SPDX-License-Identifier: Apache-2.0
"""Filling sealed slots: the law of the draw, its label, and that all randomness is noise."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dunnage.kernels.bins import fills as kernel
from dunnage.kernels.bins.fills import FillEstimate, FillSlots, Items, count_fills, is_feasible
from dunnage.noise.source import Noise
from dunnage.settle import repair
from dunnage.settle.repair import noise_words, walked_fill

TWO_PAIRS = Items(np.array([0, 0, 1, 1]), np.array([[1], [2], [3], [4]]))
TWO_BINS = FillSlots(np.array([[1, 1], [1, 1]]), np.array([[5], [5]]))


def nine_parcels() -> tuple[Items, FillSlots]:
    """Nine parcels of three classes, three bins with one of each; the plan's own packing is i -> i mod 3."""
    sizes = np.array([11, 14, 17, 24, 21, 22, 33, 35, 31])[:, None]
    return Items(np.arange(9) // 3, sizes), FillSlots(np.ones((3, 3), dtype=np.int64), np.full((3, 1), 70))


def feasible_fills(items: Items, slots: FillSlots) -> list[tuple[int, ...]]:
    """All fills of three classes of three, in each bin one of each class."""
    fills = (sum(parts, ()) for parts in itertools.product(itertools.permutations(range(3)), repeat=3))
    return [fill for fill in fills if is_feasible(items, slots, np.array(fill))]


def p_value(met: Counter[tuple[int, ...]], fills: list[tuple[int, ...]]) -> float:
    assert set(met) <= set(fills)
    return float(stats.chisquare([met[fill] for fill in fills]).pvalue)


def test_a_counted_draw_is_uniform() -> None:
    """100 draws per fill: a fill at half or double rate is found with near certainty."""
    items, slots = nine_parcels()
    fills = feasible_fills(items, slots)
    assert len(fills) == 18
    noise, counted = Noise(seed=11), count_fills(items, slots)
    assert counted.number == len(fills)
    assert np.array_equal(
        counted.chances(), [[sum(fill[i] == b for fill in fills) / len(fills) for b in range(3)] for i in range(9)]
    )
    drawn = Counter(tuple(counted.draw(noise.below).tolist()) for _ in range(100 * len(fills)))
    assert p_value(drawn, fills) > 1e-9


def test_the_walk_draws_nearly_uniformly_too() -> None:
    items, slots = nine_parcels()
    fills = feasible_fills(items, slots)
    noise = Noise(seed=12)
    met: Counter[tuple[int, ...]] = Counter()
    for _ in range(12 * len(fills)):
        estimate = kernel.estimate_chances(items, slots, seconds=60, words=noise_words(noise), most_rounds=8)
        met[tuple(estimate.drawn.tolist())] += 1
    assert p_value(met, fills) > 1e-9


def test_both_fills_come_up_where_no_exchange_joins_them() -> None:
    noise = Noise(seed=2)
    drawn: set[tuple[int, ...]] = set()
    for _ in range(60):  # as many as it takes: all alike with probability 2e-18
        drawn.add(tuple(walked_fill(TWO_PAIRS, TWO_BINS, noise, 0.08).bin_of_row.tolist()))
        if len(drawn) == 2:
            break
    assert drawn == {(0, 1, 1, 0), (1, 0, 0, 1)}


def test_what_is_not_counted_is_an_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "MAX_ROUNDS", 500)  # rounds decide, not the clock
    items, slots = nine_parcels()
    done = walked_fill(items, slots, Noise(seed=3), 600)
    truth = count_fills(items, slots)
    assert not done.exact
    assert done.number is None
    assert is_feasible(items, slots, done.bin_of_row)
    assert np.abs(done.best_guess - truth.chances().max(axis=1)).max() < 0.05
    assert "0." not in repr(done)


def test_if_walks_meet_nothing_they_start_from_a_fill_solved_for(monkeypatch: pytest.MonkeyPatch) -> None:
    starts: list[Any] = []

    def blind(items: Items, slots: FillSlots, **options: Any) -> FillEstimate | None:
        starts.append(options.get("start"))
        return None if starts[-1] is None else kernel.estimate_chances(items, slots, **options)

    monkeypatch.setattr(repair, "estimate_chances", blind)
    items, slots = nine_parcels()
    done = walked_fill(items, slots, Noise(seed=4), 0.5)
    assert len(starts) == 2
    assert is_feasible(items, slots, starts[1])
    assert is_feasible(items, slots, done.bin_of_row)
    assert not done.exact


def test_no_feasible_fill_is_said() -> None:
    hopeless = FillSlots(TWO_BINS.counts, np.array([[5], [4]]))
    assert walked_fill(TWO_PAIRS, hopeless, Noise(seed=5), 0.12).bin_of_row is None


def test_all_randomness_is_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object) -> None:
        raise AssertionError("randomness that is not noise")

    monkeypatch.setattr(np.random, "default_rng", forbidden)
    noise = Noise(seed=6)
    walked_fill(*nine_parcels(), noise, 0.12)
    assert noise.bytes_drawn > 0
