# SPDX-License-Identifier: Apache-2.0
"""Spread: no truck takes more than its part of a class, whatever the model; what cannot be spread is refused."""

from __future__ import annotations

import time
from collections import Counter

import numpy as np
import numpy.typing as npt
import pytest
from tests.settle_help import Published, published, setting_weights

import dunnage as dn
from dunnage.errors import NoPlanError, ParameterError
from dunnage.kernels.bins.certified import mix_classes
from dunnage.kernels.bins.chances import Between, Members
from dunnage.kernels.bins.spreading import TypeLoads, over_caps, spread_items
from dunnage.planning import packing, spreading
from dunnage.planning.plan import Plan, Slots
from dunnage.release import Release
from dunnage.samples import package_setting

MODELS = {
    "upper": dn.Standard(),
    "mean": dn.Standard(statistic="mean"),
    "stochastic": dn.Stochastic(),
    "largest": dn.Robust(),
    "items": dn.Robust(budget="items"),
    "sealed": dn.Sealed(),
}


def setting_release(name: str, k: int, seed: int = 1) -> Release:
    return published(setting_weights(name, seed), k)


def most_of_each_class(release: Release, plan: Plan) -> tuple[list[int], list[int]]:
    """Return the size of each class and its most rows in one bin."""
    class_id = release.uncertain("weight").class_id
    slots = plan.slots or Slots.of_assignment(plan.assignment, class_id)
    table = slots.table(plan.num_bins, int(class_id.max()) + 1)
    assert table.sum(axis=0).tolist() == np.bincount(class_id).tolist()
    return table.sum(axis=0).tolist(), table.max(axis=0).tolist()


def check_spread(release: Release, plan: Plan, spread: int) -> None:
    sizes, most = most_of_each_class(release, plan)
    assert all(held <= size // spread for size, held in zip(sizes, most, strict=True))
    assert plan.spread == spread


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("name", "k", "spread"), [("25-S-U", 5, 3), ("25-L-U", 5, 5)])
def test_no_truck_takes_more_than_its_part(model: str, name: str, k: int, spread: int) -> None:
    release = setting_release(name, k)
    capacity = package_setting(name).capacity
    plan = dn.pack(release, capacity=capacity, model=MODELS[model], spread=spread, seconds=10)
    free = dn.pack(release, capacity=capacity, model=MODELS[model], seconds=10)
    check_spread(release, plan, spread)
    assert plan.bound <= plan.objective
    assert plan.objective >= free.bound
    if model != "sealed":
        assert plan.truck_linkage.worst <= 1 / spread
        if model not in ("mean", "items"):
            assert plan.certified.at_least >= 0.95


@pytest.mark.parametrize("spread", [2, 5])
def test_small_packages_are_named_less_often(spread: int) -> None:
    release = setting_release("25-S-U", 5, seed=spread)
    plan = dn.pack(release, capacity=2500, spread=spread)
    assert plan.truck_linkage.worst <= 1 / spread
    assert plan.truck_linkage.mean <= 1 / spread
    upper = release.uncertain("weight").upper
    assert np.bincount(plan.assignment, weights=np.rint(10 * upper)).max() <= 25_000


def test_spreads_of_one_more_than_there_are_or_no_whole_number() -> None:
    release = setting_release("25-L-U", 5)
    assert dn.pack(release, capacity=500, spread=1).objective == dn.pack(release, capacity=500).objective
    smallest = int(np.bincount(release.uncertain("weight").class_id).min())
    for model in MODELS.values():
        with pytest.raises(NoPlanError, match=rf"\b{smallest}\b"):
            dn.pack(release, capacity=500, model=model, spread=smallest + 1)
    for spread in (0, -2, 1.5, "3", True):
        with pytest.raises(ParameterError, match="spread"):
            dn.pack(published([1, 2, 3, 4], 2), capacity=50, spread=spread)


@pytest.mark.parametrize("model", MODELS)
def test_a_class_of_one_size_needs_as_many_trucks_as_its_spread(model: str) -> None:
    """Seven equal packages that one truck could take: at most two of them in each; or six, at most one of them."""
    release, how = published([10.0] * 7, 7), MODELS[model]
    plan = dn.pack(release, capacity=100, model=how, spread=3)
    check_spread(release, plan, 3)
    assert plan.objective == 4
    vans = {count: [dn.Truck(name="van", capacity={"weight": 100}, count=count)] for count in (3, 4)}
    assert dn.pack(release, trucks=vans[4], model=how, spread=3).objective == 4
    six = published([10.0] * 6, 6)
    assert dn.pack(six, trucks=vans[3], model=how, spread=3).objective == 3
    with pytest.raises(NoPlanError, match=r"6.*3"):
        dn.pack(six, trucks=vans[3], model=how, spread=6)


def test_spread_groups_stay_apart() -> None:
    weights = setting_weights("50-S-U", 2)
    release = published(weights, 5, town=["A", "B"] * 25)
    town = release.data.column("town").to_pylist()
    for model in ("upper", "stochastic", "sealed"):
        plan = dn.pack(release, capacity=2500, model=MODELS[model], spread=4, by="town")
        check_spread(release, plan, 4)
        if plan.slots is None:
            pairs = set(zip(plan.assignment.tolist(), town, strict=True))
        else:
            of_class = dict(zip(release.uncertain("weight").class_id.tolist(), town, strict=True))
            pairs = {
                (b, of_class[c]) for b, c in zip(plan.slots.bin.tolist(), plan.slots.class_id.tolist(), strict=True)
            }
        assert len(pairs) == plan.num_bins


def test_spread_without_multisets_and_with_several_kinds_of_truck() -> None:
    for statistic in ("bounds", "mean"):
        release = published(setting_weights("25-S-U", 2), 5, statistic)
        for model in ("upper", "stochastic", "sealed"):
            check_spread(release, dn.pack(release, capacity=2500, model=MODELS[model], spread=4), 4)
    release = setting_release("25-S-U", 5)
    van = dn.Truck(name="van", capacity={"weight": 900}, cost=2)
    kinds = [van, dn.Truck(name="lorry", capacity={"weight": 2500}, cost=4)]
    for model in ("upper", "stochastic", "largest", "sealed"):
        plan = dn.pack(release, trucks=kinds, model=MODELS[model], spread=4, seconds=10)
        check_spread(release, plan, 4)
        assert plan.bound <= plan.objective


def test_less_linkage_never_costs_a_truck(monkeypatch: pytest.MonkeyPatch) -> None:
    releases = [setting_release(name, 5, seed=5) for name in ("25-S-U", "50-S-U")]
    less = [dn.pack(release, capacity=2500, seconds=10) for release in releases]
    monkeypatch.setattr(spreading, "spread_items", lambda *given, **more: given[4])
    monkeypatch.setattr(packing, "MAX_TIGHTENED_CLASSES", 0)
    for release, found in zip(releases, less, strict=True):
        plain = dn.pack(release, capacity=2500, seconds=10)
        assert found.objective == plain.objective
        assert found.truck_linkage.mean < 0.6 * plain.truck_linkage.mean


def test_stated_linkage_is_counted() -> None:
    for model in ("upper", "mean", "stochastic", "largest", "items"):
        release = setting_release("25-S-U", 5, seed=6)
        plan = dn.pack(release, capacity=2500, model=MODELS[model])
        class_id = release.uncertain("weight").class_id.tolist()
        held = Counter(zip(class_id, plan.assignment.tolist(), strict=True))
        sizes = Counter(class_id)
        guesses = [max(held[class_, bin_] for bin_ in range(plan.num_bins)) / sizes[class_] for class_ in class_id]
        assert plan.truck_linkage.mean == pytest.approx(sum(guesses) / len(guesses))
        assert (plan.truck_linkage.worst, plan.truck_linkage.kind) == (pytest.approx(max(guesses)), "exact")


@pytest.mark.parametrize("seed", range(2))
def test_a_settlement_says_whether_a_repair_kept_the_spread(seed: int) -> None:
    """Smaller trucks came than were planned for, so that packages must move."""
    case = Published(setting_weights("50-S-U", seed), 4, statistic="mean")
    release = case.release
    done = case.apply(dn.pack(release, capacity=2500, spread=2), capacity=1800, repair=True)
    held = Counter(zip(done.bin_of_row.tolist(), release.uncertain("weight").class_id.tolist(), strict=True))
    sizes = Counter(release.uncertain("weight").class_id.tolist())
    above = {pair for pair, count in held.items() if pair[0] >= 0 and count > sizes[pair[1]] // 2}
    stated = done.to_dict()["spread"]
    assert {(item["bin"], item["class_id"]) for item in stated["above"]} == above
    assert stated["kept"] == (not above)
    assert done.repair.moved > 0


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
        return self.spread_from(self.bin_of, self.group_of, self.room, seed, seconds)

    def spread_from(
        self, bin_of: IntArray, group_of: IntArray, room: IntArray, seed: int = 0, seconds: float = 5
    ) -> IntArray:
        types, type_of, times = np.unique(self.sizes, axis=0, return_inverse=True, return_counts=True)
        loads, deadline = TypeLoads.of_sizes(types, times), time.monotonic() + seconds
        given = (loads, type_of.reshape(-1), self.class_of, group_of, bin_of, room)
        return spread_items(*given, caps=self.caps, by_look=True, deadline=deadline, rounds=4, seed=seed)


def test_what_is_spread_fits_and_is_never_worse() -> None:
    better = 0
    for seed in range(40):
        packed = Packed(seed)
        before = packed.bin_of.copy()
        found = packed.spread(seed)
        assert found.shape == before.shape
        assert (packed.bin_of == before).all()
        assert (packed.loads(found, len(packed.room)) <= packed.room).all()
        groups = {(int(bin_), int(group)) for bin_, group in zip(found, packed.group_of, strict=True)}
        assert len(groups) == len({bin_ for bin_, _ in groups})
        assert packed.measure(found) <= packed.measure(before)
        assert over_caps(packed.class_of, found, packed.caps, len(packed.room)) == packed.measure(found)[0]
        better += packed.measure(found) < packed.measure(before)
        assert set(before.tolist()) <= set(found.tolist())  # an item alone in its bin stays: groups keep their bins
    assert better > 10


def test_room_for_all_is_used_and_no_time_changes_nothing() -> None:
    # Two classes of four in two bins, each class in a bin of its own; everything fits everywhere.
    class_of, caps = np.array([0] * 4 + [1] * 4), np.array([2, 2])
    loads, none = TypeLoads.of_sizes(np.ones((2, 1), dtype=np.int64), np.array([4, 4])), np.zeros(8, dtype=np.int64)
    room, deadline = np.array([[4], [4]]), time.monotonic() + 5
    found = spread_items(loads, class_of, class_of, none, class_of.copy(), room, caps=caps, deadline=deadline)
    assert [over_caps(class_of, bins, caps, 2) for bins in (class_of, found)] == [4, 0]
    assert np.bincount(found).tolist() == [4, 4]
    packed = Packed(1)
    assert packed.spread(seconds=0) is packed.bin_of
    alone = np.zeros(packed.n, dtype=np.int64)
    room = packed.sizes.sum(axis=0, keepdims=True)
    assert packed.spread_from(alone, alone, room) is alone


@pytest.mark.parametrize("seed", range(12))
def test_counts_add_up_and_caps_hold(seed: int) -> None:
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


def test_mixing_by_hand() -> None:
    classes = [Members(np.array([[1], [2], [3]]))]
    assert mix_classes(classes, np.array([1]), np.array([[9], [9]]), seed=0, steps=100) is None
    spread = mix_classes(classes, np.array([1]), np.array([[9]] * 3), seed=0, steps=100)
    assert spread.tolist() == [[1]] * 3
    # Two light and two heavy classes: a heavy one goes with a light one.
    classes = [Members(np.array([[size]] * 2)) for size in (7, 6, 4, 3)]
    found = mix_classes(classes, np.array([2] * 4), np.array([[10]] * 4), seed=1, steps=40_000)
    assert found is not None
    loads = found @ np.array([7, 6, 4, 3])
    assert (loads <= 10).all()
