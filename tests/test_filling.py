# SPDX-License-Identifier: Apache-2.0
"""Filling sealed slots: the law of the draw, its label, and that all randomness is noise."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dunnage.bins import fills as kernel
from dunnage.bins.fills import Estimate, Items, Slots, count_fills, is_feasible
from dunnage.errors import NoPlanError, ParameterError
from dunnage.noise import Noise
from dunnage.settle import filling
from dunnage.settle.filling import Filling, draw_fill, noise_words

TWO_PAIRS = Items(np.array([0, 0, 1, 1]), np.array([[1], [2], [3], [4]]))
TWO_BINS = Slots(np.array([[1, 1], [1, 1]]), np.array([[5], [5]]))


def nine_parcels() -> tuple[Items, Slots]:
    """Nine parcels of three classes, three bins with one of each; the plan's own packing is i -> i mod 3."""
    sizes = np.array([11, 14, 17, 24, 21, 22, 33, 35, 31])[:, None]
    return Items(np.arange(9) // 3, sizes), Slots(np.ones((3, 3), dtype=np.int64), np.full((3, 1), 70))


def feasible_fills(items: Items, slots: Slots) -> list[tuple[int, ...]]:
    """All fills of three classes of three, in each bin one of each class."""
    fills = (sum(parts, ()) for parts in itertools.product(itertools.permutations(range(3)), repeat=3))
    return [fill for fill in fills if is_feasible(items, slots, np.array(fill))]


def p_value(met: Counter[tuple[int, ...]], fills: list[tuple[int, ...]]) -> float:
    assert set(met) <= set(fills)
    return float(stats.chisquare([met[fill] for fill in fills]).pvalue)


def test_the_draw_is_uniform_and_says_so() -> None:
    """100 draws per fill: a fill at half or double rate is found with near certainty."""
    items, slots = nine_parcels()
    fills = feasible_fills(items, slots)
    assert len(fills) == 18
    noise = Noise(seed=11)
    done = draw_fill(items, slots, noise)
    assert done.exact
    assert done.number == len(fills)
    assert done.error == 0
    assert np.array_equal(
        done.chances, [[sum(fill[i] == b for fill in fills) / len(fills) for b in range(3)] for i in range(9)]
    )
    drawn = Counter(tuple(draw_fill(items, slots, noise).bin_of_item.tolist()) for _ in range(100 * len(fills)))
    assert p_value(drawn, fills) > 1e-9


def test_the_walk_draws_nearly_uniformly_too() -> None:
    items, slots = nine_parcels()
    fills = feasible_fills(items, slots)
    noise = Noise(seed=12)
    met: Counter[tuple[int, ...]] = Counter()
    for _ in range(12 * len(fills)):
        estimate = kernel.estimate_chances(items, slots, seconds=60, words=noise_words(noise), most_rounds=8)
        assert estimate is not None
        met[tuple(estimate.drawn.tolist())] += 1
    assert p_value(met, fills) > 1e-9


def test_both_fills_come_up_where_no_exchange_joins_them() -> None:
    noise = Noise(seed=2)
    for most_states in (1000, 0):
        drawn: set[tuple[int, ...]] = set()
        for _ in range(60):  # as many as it takes: all alike with probability 2e-18
            found = draw_fill(TWO_PAIRS, TWO_BINS, noise, seconds=0.3, most_states=most_states)
            drawn.add(tuple(found.bin_of_item.tolist()))
            if len(drawn) == 2:
                break
        assert drawn == {(0, 1, 1, 0), (1, 0, 0, 1)}


def test_what_is_not_counted_is_an_estimate() -> None:
    items, slots = nine_parcels()
    done = draw_fill(items, slots, Noise(seed=3), seconds=3, most_states=0)
    truth = count_fills(items, slots)
    assert truth is not None
    assert not done.exact
    assert done.number is None
    assert 0 < done.error < 0.1
    assert is_feasible(items, slots, done.bin_of_item)
    assert np.abs(done.chances - truth.chances()).max() < 0.05
    assert done.truck_linkage()["kind"] == "estimate"


def test_if_walks_meet_nothing_they_start_from_a_fill_solved_for(monkeypatch: pytest.MonkeyPatch) -> None:
    starts: list[Any] = []

    def blind(items: Items, slots: Slots, **options: Any) -> Estimate | None:
        starts.append(options.get("start"))
        return None if starts[-1] is None else kernel.estimate_chances(items, slots, **options)

    monkeypatch.setattr(filling, "estimate_chances", blind)
    items, slots = nine_parcels()
    done = draw_fill(items, slots, Noise(seed=4), seconds=2, most_states=0)
    assert len(starts) == 2
    assert is_feasible(items, slots, starts[1])
    assert is_feasible(items, slots, done.bin_of_item)
    assert not done.exact


def test_no_feasible_fill_is_said() -> None:
    hopeless = Slots(TWO_BINS.counts, np.array([[5], [4]]))
    for most_states in (1000, 0):
        with pytest.raises(NoPlanError, match="feasible"):
            draw_fill(TWO_PAIRS, hopeless, Noise(seed=5), seconds=0.5, most_states=most_states)


def test_time_limit_is_checked() -> None:
    for seconds in (-1.0, float("nan")):
        with pytest.raises(ParameterError, match="seconds"):
            draw_fill(TWO_PAIRS, TWO_BINS, Noise(seed=5), seconds=seconds)


@pytest.mark.parametrize("most_states", [1000, 0])
def test_all_randomness_is_noise(monkeypatch: pytest.MonkeyPatch, most_states: int) -> None:
    def forbidden(*_: object) -> None:
        raise AssertionError("randomness that is not noise")

    monkeypatch.setattr(np.random, "default_rng", forbidden)
    noise = Noise(seed=6)
    draw_fill(*nine_parcels(), noise, seconds=0.5, most_states=most_states)
    assert noise.bytes_drawn > 0


def test_same_noise_same_fill() -> None:
    one, two = (draw_fill(*nine_parcels(), Noise(seed=7)).bin_of_item.tolist() for _ in range(2))
    assert one == two


def test_linkage_is_the_best_guess() -> None:
    done = Filling(bin_of_item=np.array([0, 1]), exact=True, chances=np.array([[0.75, 0.25], [0.5, 0.5]]), number=4)
    assert done.linkage.tolist() == [0.75, 0.5]
    stated = done.truck_linkage()
    assert (stated["mean"], stated["worst"], stated["kind"]) == (0.625, 0.75, "exact")
    assert "0.75" not in repr(done)


def test_no_packages() -> None:
    nothing = Items(np.empty(0, dtype=np.int64), np.empty((0, 1), dtype=np.int64))
    done = draw_fill(nothing, Slots(np.zeros((1, 1), dtype=np.int64), np.ones((1, 1), dtype=np.int64)), Noise(seed=8))
    assert done.number == 1
    assert done.truck_linkage()["mean"] == 0
