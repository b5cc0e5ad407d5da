# SPDX-License-Identifier: Apache-2.0
"""Time limits hold: whenever the time runs out, a planner returns a true plan and begins nothing more.

The clock of these tests ticks when it is read, and jumps past the limit at a chosen reading, so that nothing depends on
how busy the machine is.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
import scipy.optimize

import dunnage as dn
from dunnage.errors import ParameterError
from dunnage.kernels.bins import certified, covering, fills
from dunnage.kernels.bins.certified import BinKind, ChancePacker, mix_classes, pack_types, pack_vectors
from dunnage.kernels.bins.chances import Chances, Members, _distinct, draw_sums
from dunnage.kernels.bins.fills import FillSlots, Items, count_fills, estimate_chances
from dunnage.kernels.bins.first_fit import MAX_TYPES, fit_types
from dunnage.kernels.bins.scalar import pack_bins
from dunnage.kernels.deadline import NEVER, Deadline
from dunnage.planning import linkage, noisy, packing, spreading
from dunnage.planning.plan import Slots
from dunnage.text import for_unit

LIMIT = 3.0
MAX_LATE_READINGS = 400
LINKAGE_READINGS = 12_000  # there is always a quarter of a second to count fills, which read the clock at each state
MODELS = {
    "standard": dn.Standard(),
    "mean": dn.Standard(statistic="mean"),
    "largest": dn.Robust(),
    "items": dn.Robust(budget="items"),
    "stochastic": dn.Stochastic(),
    "published": dn.Stochastic(as_published=True),
    "sealed": dn.Sealed(),
}


class Jumping:
    """A clock that ticks when it is read, and jumps far ahead at one reading."""

    def __init__(self, at: int) -> None:
        self.at, self.readings = at, 0

    def __call__(self) -> float:
        self.readings += 1
        return self.readings * 1e-4 + (1e6 if self.late else 0.0)

    @property
    def late(self) -> bool:
        return self.readings >= self.at


@functools.cache
def released(num: int, *, several: bool, k: int = 4) -> dn.Release:
    generator = np.random.default_rng(num)
    weight = np.round(generator.lognormal(1.5, 0.8, num).clip(0.2, 25), 1)
    columns: dict[str, Any] = {"weight": weight, "zone": [str(i % 2) for i in range(num)]}
    number = {"role": "quasi-identifier", "kind": "numeric"}
    attributes: dict[str, Any] = {"weight": {**number, "domain": [0, 25], "unit": "kg"}, "zone": {"role": "public"}}
    if several:
        columns["volume"] = np.rint(weight * generator.lognormal(0.8, 0.6, num)).clip(1, 90)
        attributes["volume"] = {**number, "domain": [0, 90], "unit": "l"}
    mechanism = {"name": "partition", "k": k, "statistic": "multiset"}
    document = {"dataset": "loads", "protects": "parcel", "attributes": attributes, "mechanism": mechanism}
    data = dn.Dataset.from_table(pa.table(columns), dn.Policy.from_dict(document))
    made = dn.Partition(k=k, statistic="multiset")
    return made.release(data, ledger=dn.Ledger(":memory:"), noise=dn.Noise(seed=1)).release


def trucks(several: bool, mixed: bool) -> list[dn.Truck]:
    room = {"weight": 30.0, **({"volume": 110.0} if several else {})}
    large = {name: 1.7 * capacity for name, capacity in room.items()}
    kinds = [dn.Truck(name="small", capacity=room), dn.Truck(name="large", capacity=large, cost=1.6)]
    return kinds if mixed else kinds[:1]


def check_true(release: dn.Release, plan: dn.Plan) -> None:
    """Check that every row has a place, groups are apart, upper bounds fit, and the bound is at most the objective."""
    assert 0 <= plan.bound <= plan.objective
    if plan.slots is not None:
        placed = np.bincount(plan.slots.class_id, weights=plan.slots.count)
        assert np.array_equal(placed, np.bincount(release.class_of_row))
        return
    assert len(plan.assignment) == len(release)
    if plan.by is not None:
        zones = np.array(release.data.column(plan.by).to_pylist())
        assert all(len(set(zones[plan.assignment == bin_])) <= 1 for bin_ in range(plan.num_bins))
    if plan.model.name == "standard" and plan.model.statistic == "upper":
        for name in plan.quantities:
            loads = np.bincount(plan.assignment, weights=release.uncertain(name).upper, minlength=plan.num_bins)
            assert (loads <= plan.capacity_of_bins(name) + 1e-9).all()


def planned_late(release: dn.Release, at: int, **options: Any) -> tuple[dn.Plan, Jumping]:
    """Make a plan with a clock that jumps; no solver may be started after the jump."""
    clock = Jumping(at)

    def timely(solver: Callable[..., Any]) -> Callable[..., Any]:
        def solve(*arguments: Any, **more: Any) -> Any:
            assert not clock.late, "a solver was started after the deadline"
            return solver(*arguments, **more)

        return solve

    with mock.patch.object(time, "monotonic", clock), pytest.MonkeyPatch.context() as patch:
        for name in ("linprog", "milp"):
            patch.setattr(scipy.optimize, name, timely(getattr(scipy.optimize, name)))
        return dn.pack(release, seconds=LIMIT, **options), clock


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("several", [False, True])
def test_plans_are_true_and_nothing_begins_after_the_limit(name: str, several: bool) -> None:
    simple = name in ("items", "published")
    if simple and several:
        return  # these pack one quantity
    release = released(32, several=several)
    for mixed, at in itertools.product((False, True), (2, 9, 60)):
        if simple and mixed:
            continue
        by = "zone" if mixed else None
        plan, clock = planned_late(release, at, trucks=trucks(several, mixed), by=by, model=MODELS[name])
        check_true(release, plan)
        assert clock.readings - at <= (LINKAGE_READINGS if name == "sealed" else MAX_LATE_READINGS)


@pytest.mark.parametrize("model", [dn.Stochastic(), dn.Robust(), dn.Sealed()])
def test_a_limit_of_a_tenth_of_a_second_gives_a_plan(model: Any) -> None:
    for several in (False, True):
        release = released(400, several=several)
        check_true(release, dn.pack(release, trucks=trucks(several, False), model=model, seconds=0.1))


@pytest.mark.parametrize("model", [dn.Stochastic(), dn.Robust(), dn.Standard()])
def test_a_rest_of_time_is_never_negative_wherever_the_clock_jumps(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It died with "capacity and seconds must be at least 0. Got 2500 and -0.66"."""
    release, moments, clock = released(60, several=False), set[int](), Jumping(200)

    def noted(*arguments: Any, **more: Any) -> Any:
        moments.update((clock.readings - 1, clock.readings))
        return pack_bins(*arguments, **more)

    with mock.patch.object(time, "monotonic", clock):
        for module in (certified, packing):
            monkeypatch.setattr(module, "pack_bins", noted)
        dn.pack(release, seconds=LIMIT, capacity=80, model=model)
        monkeypatch.undo()
    assert moments
    for at in sorted(moments):  # the clock ticks when it is read, so everything is as before until it jumps
        check_true(release, planned_late(release, max(at, 1), capacity=80, model=model)[0])


def test_a_plan_that_stays_open_leaves_time_for_linkage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linkage of 10,000 rows had not settled when the limit came: a second for each 2,000 was too short."""
    release, left, solve = released(32, several=False), list[float](), packing._Packer.solve

    def noted(packer: Any, model: Any) -> Any:
        left.append(packer.seconds_left)
        return solve(packer, model)

    monkeypatch.setattr(packing._Packer, "solve", noted)
    for seconds, most in ((12, 9), (60, 57)):
        dn.pack(release, capacity=80, seconds=seconds)
        assert left.pop() <= most


def test_several_quantities_keep_the_limit() -> None:
    release = released(400, several=True)
    options: dict[str, Any] = {"capacity": [120, "volume=360"], "model": dn.Stochastic(), "by": "zone"}
    dn.pack(release, seconds=0.2, **options)  # compiles
    start = time.process_time()
    plan = dn.pack(release, seconds=0.5, **options)
    assert time.process_time() - start < 5  # took 20 seconds
    check_true(release, plan)


def test_many_groups_share_the_time() -> None:
    release = released(120, several=True, k=2)
    everything = {"trucks": trucks(True, False), "model": dn.Stochastic(), "by": "zone"}
    for at in (5, 60, 300):
        plan, _ = planned_late(release, at, **everything)
        check_true(release, plan)


# The type


def test_deadlines() -> None:
    with mock.patch.object(time, "monotonic", return_value=100.0):
        late, soon = Deadline(90.0), Deadline.after(8)
        assert late.late
        assert late.left == 0.0
        assert late.part(0.5) == 100.0
        assert not soon.late
        assert soon.left == 8.0
        assert soon == 108.0
        assert soon.part(0.25) == 102.0
        assert soon.part(0.5, most=1) == 101.0
        assert not NEVER.late
        assert math.isinf(NEVER.part(0.5))
        assert NEVER.part(0.5, most=3) == 103.0


# First plans


def one_by_one(packer: ChancePacker) -> list[tuple[int, dict[int, int]]] | None:
    """Slow and independent: first fit, item by item."""
    largest = [sizes.largest(sizes.count) for sizes in packer.classes]
    rooms = np.array([kind.capacity for kind in packer.kinds])
    scale = rooms.max(axis=0)
    values = [cost / (room / scale).mean() for cost, room in zip(packer.costs, rooms, strict=True)]
    weight = [(table[1] / scale).max() for table in largest]
    items = [
        kind for kind in np.argsort([-w for w in weight], kind="stable").tolist() for _ in range(packer.demand[kind])
    ]
    left = [math.inf if kind.count is None else kind.count for kind in packer.kinds]
    bins: list[tuple[int, dict[int, int]]] = []
    for item in items:
        for kind, content in bins:
            same = {packer.groups[other] for other in content} == {packer.groups[item]}
            more = {**content, item: content.get(item, 0) + 1}
            load = sum(largest[other][number] for other, number in more.items())
            if same and more[item] <= packer.caps[item] and (load <= rooms[kind]).all():
                content[item] = more[item]
                break
        else:
            able = [
                k
                for k in np.argsort(values, kind="stable").tolist()
                if left[k] and (largest[item][1] <= rooms[k]).all()
            ]
            if not able:
                return None
            left[able[0]] -= 1
            bins.append((able[0], {item: 1}))
    return bins


@pytest.mark.parametrize("seed", range(40))
def test_first_fit_by_classes_is_first_fit_by_items(seed: int) -> None:
    chooser = random.Random(seed)
    resources, num = chooser.randint(1, 2), chooser.randint(1, 6)
    sizes = [chooser.randint(1, 6) for _ in range(num)]
    equal = seed % 2 == 0
    classes = [
        Members(np.array([[chooser.randint(1, 9) for _ in range(resources)]] * size))
        if equal
        else Members(np.array([[chooser.randint(1, 9) for _ in range(resources)] for _ in range(size)]))
        for size in sizes
    ]
    caps = np.array([chooser.randint(1, size) for size in sizes])
    groups = np.array([chooser.randint(0, 1) for _ in sizes])
    capacity = tuple(chooser.randint(9, 30) for _ in range(resources))
    kinds = [BinKind(capacity=capacity, count=chooser.choice([None, 12]))]
    if chooser.random() < 0.5:
        kinds.append(BinKind(capacity=tuple(2 * room for room in capacity), cost=3))
    packer = ChancePacker(classes, caps, kinds, risk=Fraction(0), groups=groups)
    expected, plan = one_by_one(packer), packer.greedy()
    if expected is None:
        assert plan is None
        return
    assert plan is not None
    lines = [[content.get(class_, 0) for class_ in range(num)] for _, content in expected]
    assert plan.counts.tolist() == lines
    assert plan.at_least == 1.0
    if equal:  # the packing for very many types
        table = np.array([own.values[0] for own in classes])
        costs, counts = [int(kind.cost) for kind in kinds], [kind.count for kind in kinds]
        rooms = np.array([kind.capacity for kind in kinds])
        given = (table, np.array(sizes), caps, groups, rooms, costs, counts)
        many = fit_types(*given, deadline=Deadline.after(-1))
        assert many is not None
        for type_, own in enumerate(sizes):
            mine = many.numbers[many.types == type_]
            assert mine.sum() == own
            assert (mine <= caps[type_]).all()
        loads = np.zeros((len(many.kinds), resources), dtype=np.int64)
        np.add.at(loads, many.bins, table[many.types] * many.numbers[:, None])
        assert (loads <= rooms[many.kinds]).all()
        for bin_ in range(len(many.kinds)):
            assert len(set(groups[many.types[many.bins == bin_]].tolist())) == 1
        if len(kinds) == 1 and kinds[0].count is None and not groups.any():
            assert len(many.kinds) == len(expected)
        better = fit_types(*given, deadline=NEVER)
        assert better is not None
        assert sum(costs[k] for k in better.kinds) <= sum(costs[k] for k in many.kinds)


def test_very_many_types_are_packed_without_a_table() -> None:
    generator = np.random.default_rng(5)
    items = generator.integers(1, 10**6, (MAX_TYPES + 500, 2))
    groups = np.arange(len(items)) % 3
    kinds = [BinKind(capacity=(4 * 10**6, 4 * 10**6), cost=Fraction(3, 2)), BinKind(capacity=(10**6, 10**6))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certified, "ChancePacker", mock.Mock(side_effect=AssertionError))
        packing = pack_vectors(items, kinds, seconds=0.0, groups=groups)
    assert sorted(itertools.chain(*packing.bins)) == list(range(len(items)))
    for bin_, kind in zip(packing.bins, packing.kind_of_bin, strict=True):
        assert (items[bin_].sum(axis=0) <= kinds[kind].capacity).all()
        assert len(set(groups[bin_].tolist())) == 1
    assert 0 < packing.bound <= packing.cost < 1.3 * packing.bound
    few = pack_types(items[:3], np.ones(3, int), np.ones(3, int), groups[:3], [BinKind(capacity=(1, 1))], seconds=0.0)
    assert few is None  # nothing fits


# Pieces


def test_a_walk_in_pieces_lists_the_same_patterns(monkeypatch: pytest.MonkeyPatch) -> None:
    chooser = random.Random(3)
    classes = [np.array([[chooser.randint(1, 20)] for _ in range(4)]) for _ in range(6)]
    draws = [draw_sums(members, 4) for members in classes]
    worst = [Members(members).largest(4) for members in classes]
    whole = covering.list_patterns(draws, worst, np.array([45]), most_risk=0.3)
    monkeypatch.setattr(covering, "_PIECE", 7.0)
    pieces = covering.list_patterns(draws, worst, np.array([45]), most_risk=0.3)
    assert len(whole) > 50
    for name in ("starts", "kinds", "numbers", "risk"):
        assert np.array_equal(getattr(whole, name), getattr(pieces, name))
    late = Deadline.after(-1)
    assert covering.list_patterns(draws, worst, np.array([45]), most_risk=0.3, deadline=late) is None


def test_annealing_in_pieces_ends_in_the_same_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(1)
    classes = [Members(generator.integers(1, 30, (6, 1))) for _ in range(8)]
    caps, rooms = np.full(8, 6), np.full((7, 1), 120)
    whole = mix_classes(classes, caps, rooms, seed=4, steps=20_000)
    monkeypatch.setattr(certified, "PIECE_STEPS", 333)
    assert np.array_equal(whole, mix_classes(classes, caps, rooms, seed=4, steps=20_000))
    late = mix_classes(classes, caps, rooms, seed=4, steps=20_000, deadline=Deadline.after(-1))
    assert np.array_equal(late.sum(axis=0), [6] * 8)  # the start is a plan too


def test_sums_of_several_quantities_are_merged_by_one_number() -> None:
    generator = np.random.default_rng(2)
    for lines in (
        generator.integers(-5, 6, (200, 2)),
        generator.integers(0, 3, (50, 3)) * 2**61,
        np.zeros((0, 2), dtype=np.int64),
    ):
        different, where = _distinct(lines)
        expected, places = np.unique(lines, axis=0, return_inverse=True)
        assert np.array_equal(different, expected)
        assert np.array_equal(where, places.reshape(-1))


def test_probabilities_are_unknown_after_the_deadline() -> None:
    members = np.random.default_rng(4).integers(1, 1000, (12, 2))
    assert draw_sums(members, 6, Deadline.after(-1)) is None
    chances = Chances([Members(members)] * 2, np.array([2000, 2000]))
    chances.deadline = Deadline.after(-1)
    assert chances.fits([1, 1]) == (1.0, 1.0)
    assert chances.fits([2, 2]) == (0.0, 1.0)
    chances.deadline = NEVER
    low, high = chances.fits([2, 2])
    assert 0 < low <= high < 1  # nothing wrong was remembered


# Fills without tables of items and bins


@pytest.mark.parametrize("seed", range(12))
def test_best_chances_are_the_largest_of_the_table(seed: int) -> None:
    generator = np.random.default_rng(seed)
    counts = generator.integers(0, 3, (3, 3))
    counts[0] = np.maximum(counts[0], 1)
    class_of = np.repeat(np.arange(3), counts.sum(axis=0))
    sizes = generator.integers(1, 6, (len(class_of), 1))
    items, slots = Items(class_of, sizes), FillSlots(counts, np.full((3, 1), int(sizes.sum() * 0.6)))
    counted = count_fills(items, slots)
    assert counted is not None
    if counted.number:
        assert np.allclose(counted.best_chances(), counted.chances().max(axis=1), rtol=1e-12)
        walked = estimate_chances(items, slots, seconds=60, seed=seed, most_rounds=20)
        assert walked is not None
        assert np.array_equal(walked.best_chances, walked.chances.max(axis=1))
        assert np.allclose(walked.chances.sum(axis=1), 1)


def test_parts_that_cross_too_often_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    items = Items(np.array([0, 0, 1, 1]), np.array([[1], [2], [3], [4]]))
    slots = FillSlots(np.array([[1, 1], [1, 1]]), np.array([[5], [6]]))
    assert count_fills(items, slots) is not None
    monkeypatch.setattr(fills, "MAX_CROSSINGS", 1)
    assert count_fills(items, slots) is None


# Shares and units


def test_shares_are_read_in_any_form() -> None:
    for text in ("5%", "5 %", "0.05", "1/20", 0.05):
        assert dn.Stochastic(risk=text).risk == Fraction(1, 20)
    assert dn.Robust(budget="items", risk="2.5%").risk == Fraction(1, 40)
    for wrong in ("%", "5%%", "five%", "5 percent", "105%"):
        with pytest.raises(ParameterError):
            dn.Stochastic(risk=wrong)
    release = released(32, several=False)
    plan = dn.pack(release, capacity=30, margin="10%", seconds=1)
    assert plan.margin == 0.1


def test_a_risk_for_the_largest_members_is_refused() -> None:
    with pytest.raises(ParameterError, match="items"):
        dn.Robust(risk="0.1")
    assert dn.Robust(budget="items").risk == Fraction(1, 20)


def test_plans_name_what_the_policy_protects() -> None:
    plan = dn.pack(released(32, several=False), capacity=30, seconds=1)
    assert plan.protects == "parcel"
    assert "a parcel's weight" in plan.summary()
    assert "package" not in str(plan.to_dict()) + plan.summary()
    assert for_unit("a package, packages", "urgent package") == "an urgent package, urgent packages"
    assert for_unit("a package, packages", "package") == "a package, packages"


def test_counting_fills_and_estimating_them_share_one_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sealed plans of 2,000 parcels took 12.5 s at a limit of 10: each of the two had all the time that was left."""
    clock, told = [100.0], []

    def counted(*problem: Any, deadline: Deadline) -> None:
        clock[0] = float(deadline)

    def estimated(*problem: Any, seconds: float) -> None:
        told.append(seconds)

    monkeypatch.setattr(linkage, "count_fills", counted)
    monkeypatch.setattr(linkage, "estimate_chances", estimated)
    slots = Slots(bin=np.array([0, 1]), class_id=np.array([0, 0]), count=np.array([1, 1]))
    with mock.patch.object(time, "monotonic", side_effect=lambda: clock[0]):
        linkage.slots_linkage(np.zeros(2, np.int64), np.ones((2, 1), np.int64), slots, np.full((2, 1), 9), seconds=4.0)
    assert told == [104.0 - clock[0]]
    assert 100 < clock[0] < 104


def test_noisy_rows_keep_the_limit_however_long_chances_and_linkage_take() -> None:
    number = {"role": "quasi-identifier", "kind": "numeric", "domain": [0, 20], "resolution": 1}
    mechanism = {"name": "noisy-values", "epsilon": 4}
    document = {
        "dataset": "loads",
        "protects": "parcel",
        "attributes": {"weight": number, "volume": number},
        "mechanism": mechanism,
    }
    values = np.random.default_rng(2).integers(1, 20, (2, 600))
    data = dn.Dataset.from_table(
        pa.table(dict(zip(("weight", "volume"), values, strict=True))), dn.Policy.from_dict(document)
    )
    release = dn.publish(data, noise=dn.Noise(seed=1), ledger=":memory:")[0]
    for seconds, model, margin in ((0.9, dn.Stochastic(risk=0.05, prior="uniform"), None), (0.9, dn.Standard(), "0.1")):
        now = [0.0]

        def slow(work: Callable[..., Any], takes: float, now: list[float] = now) -> Callable[..., Any]:
            def working(*arguments: Any, **more: Any) -> Any:
                now[0] += takes
                return work(*arguments, **more)

            return working

        def clock(now: list[float] = now) -> float:
            now[0] += 1e-3
            return now[0]

        with mock.patch.object(time, "monotonic", clock), pytest.MonkeyPatch.context() as patch:
            patch.setattr(noisy.Odds, "_chance", slow(noisy.Odds._chance, 2 * seconds))
            for module in (packing, spreading):
                patch.setattr(module, "noisy_linkage", slow(module.noisy_linkage, seconds))
            plan = dn.pack(release, capacity=[100, "volume=100"], model=model, margin=margin, seconds=10)
        check_true(release, plan)
        assert now[0] <= 11, (seconds, now[0])
