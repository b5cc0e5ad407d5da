# SPDX-License-Identifier: Apache-2.0
"""Spreading classes over bins: what comes out always fits, and is never worse than what went in."""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt
import pytest

from dunnage.kernels.bins.certified import mix_classes
from dunnage.kernels.bins.chances import Between, Members
from dunnage.kernels.bins.exchanges import over_caps, spread_items

IntArray = npt.NDArray[np.int64]


class Packed:
    """Random items in random bins that hold them, with some room to spare and some bins empty."""

    def __init__(self, seed: int) -> None:
        draw = np.random.default_rng(seed)
        self.n, self.resources = int(draw.integers(2, 40)), int(draw.integers(1, 4))
        num_bins, num_groups = int(draw.integers(2, 9)), int(draw.integers(1, 4))
        self.class_of = draw.integers(0, int(draw.integers(1, 7)), self.n)
        group_of_class = draw.integers(0, num_groups, self.class_of.max() + 1)
        self.group_of = group_of_class[self.class_of]
        self.sizes = draw.integers(0, 20, (self.n, self.resources))
        group_of_bin = np.concatenate([np.arange(num_groups), draw.integers(0, num_groups, num_bins)])
        self.bin_of = np.array([draw.choice(np.flatnonzero(group_of_bin == group)) for group in self.group_of])
        self.room = self.loads(self.bin_of, len(group_of_bin)) + draw.integers(0, 25, (len(group_of_bin), 1))
        self.caps = draw.integers(1, 6, self.class_of.max() + 1)

    def loads(self, bin_of: IntArray, num_bins: int) -> IntArray:
        loads = np.zeros((num_bins, self.resources), dtype=np.int64)
        np.add.at(loads, bin_of, self.sizes)
        return loads

    def measure(self, bin_of: IntArray) -> tuple[int, int]:
        """Items above the caps, and the sum over classes of the most in one bin: counted one by one."""
        together = Counter(zip(self.class_of.tolist(), bin_of.tolist(), strict=True))
        over = sum(max(0, times - int(self.caps[kind])) for (kind, _), times in together.items())
        most = {kind: max(t for (k, _), t in together.items() if k == kind) for kind in set(self.class_of.tolist())}
        return over, sum(most.values())

    def spread(self, seed: int = 0, seconds: float = 5) -> IntArray:
        return spread_items(
            self.sizes,
            self.class_of,
            self.group_of,
            self.bin_of,
            self.room,
            caps=self.caps,
            seconds=seconds,
            seed=seed,
        )


def test_what_is_spread_fits_and_is_never_worse() -> None:
    better = 0
    for seed in range(40):
        packed = Packed(seed)
        before = packed.bin_of.copy()
        found = packed.spread(seed)
        assert (packed.bin_of == before).all()
        assert found.shape == before.shape
        assert (packed.loads(found, len(packed.room)) <= packed.room).all()
        groups = {(int(bin_), int(group)) for bin_, group in zip(found, packed.group_of, strict=True)}
        assert len(groups) == len({bin_ for bin_, _ in groups})
        assert packed.measure(found) <= packed.measure(before)
        assert over_caps(packed.class_of, found, packed.caps, len(packed.room)) == packed.measure(found)[0]
        better += packed.measure(found) < packed.measure(before)
    assert better > 10


def test_no_more_bins_than_there_are_and_every_used_one_stays_used() -> None:
    """An item alone in its bin stays: emptying bins is no goal, and groups keep their bins."""
    for seed in range(10):
        packed = Packed(seed)
        assert set(packed.bin_of.tolist()) <= set(packed.spread(seed).tolist())


def test_room_for_all_is_used() -> None:
    """Two classes of four in two bins, each class in a bin of its own; everything fits everywhere."""
    class_of = np.array([0] * 4 + [1] * 4)
    found = spread_items(
        np.ones((8, 1), dtype=np.int64),
        class_of,
        np.zeros(8, dtype=np.int64),
        class_of.copy(),
        np.array([[4], [4]]),
        caps=np.array([2, 2]),
        seconds=5,
    )
    assert over_caps(class_of, class_of, np.array([2, 2]), 2) == 4
    assert (over_caps(class_of, found, np.array([2, 2]), 2), np.bincount(found).tolist()) == (0, [4, 4])


def test_no_time_or_one_bin_changes_nothing() -> None:
    packed = Packed(1)
    assert packed.spread(seconds=0) is packed.bin_of
    alone = np.zeros(packed.n, dtype=np.int64)
    room = packed.sizes.sum(axis=0, keepdims=True)
    kept = spread_items(packed.sizes, packed.class_of, alone, alone, room, caps=packed.caps, seconds=1)
    assert kept is alone


class TestMixing:
    @pytest.mark.parametrize("seed", range(12))
    def test_counts_add_up_and_caps_hold(self, seed: int) -> None:
        draw = np.random.default_rng(seed)
        resources, bins = int(draw.integers(1, 4)), int(draw.integers(1, 7))
        classes: list[Members | Between] = []
        for _ in range(int(draw.integers(1, 6))):
            size = int(draw.integers(1, 9))
            lower = draw.integers(0, 9, resources)
            if draw.random() < 0.3:
                classes.append(Between(lower, lower + draw.integers(0, 9, resources), size))
            else:
                classes.append(Members(draw.integers(0, 10, (size, resources))))
        sizes = np.array([known.count for known in classes])
        caps = np.minimum(-(-sizes // bins) + draw.integers(0, 3, len(sizes)), sizes)
        room = draw.integers(0, 40, (bins, resources))
        found = mix_classes(classes, caps, room, seed=seed, steps=5000)
        assert found.shape == (bins, len(classes))
        assert (found >= 0).all()
        assert (found <= caps).all()
        assert (found.sum(axis=0) == sizes).all()
        again = mix_classes(classes, caps, room, seed=seed, steps=5000)
        assert again is not None
        assert (again == found).all()

    def test_caps_that_leave_no_place(self) -> None:
        classes = [Members(np.array([[1], [2], [3]]))]
        assert mix_classes(classes, np.array([1]), np.array([[9], [9]]), seed=0, steps=100) is None
        spread = mix_classes(classes, np.array([1]), np.array([[9]] * 3), seed=0, steps=100)
        assert spread.tolist() == [[1]] * 3

    def test_finds_the_only_plan_that_fits_surely(self) -> None:
        """Two light and two heavy classes: a heavy one goes with a light one."""
        classes = [Members(np.array([[size]] * 2)) for size in (7, 6, 4, 3)]
        found = mix_classes(classes, np.array([2] * 4), np.array([[10]] * 4), seed=1, steps=40_000)
        assert found is not None
        loads = found @ np.array([7, 6, 4, 3])
        assert (loads <= 10).all()
