# SPDX-License-Identifier: Apache-2.0
"""Boxes in trucks: placements are checked cube by cube, small ones against the fewest trucks by trying everything."""

from __future__ import annotations

import itertools
import math
import random
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmarks.boxes import ROOM, extreme_points, instance, placed
from tests.commands import run
from tests.oracles.boxes import Item, fewest, problems

import dunnage as dn
from dunnage.errors import InputError, ParameterError
from dunnage.kernels.bins.boxes import NO_LIMIT, TURNS, Boxes, TruckKinds, mixed_bound, scaled_bound
from dunnage.kernels.deadline import Deadline
from dunnage.planning.boxes import ALLOWED_TURNS, BoxRows, Placed, faults, place_boxes
from dunnage.planning.trucks import Truck

SIDES = ("length", "width", "height")


@pytest.fixture
def steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that counts how often it is read, so that a search takes as many steps on any machine."""
    reads = itertools.count()
    monkeypatch.setattr(time, "monotonic", lambda: next(reads) / 10_000)


def load(items: list[Item], room: tuple[int, ...], capacity: float, support: float = 1.0) -> tuple[Placed, BoxRows]:
    """Place items in as many trucks of one kind as they take, with a limit that the steady clock makes one on steps."""
    num, last = len(items), max(item.stop for item in items)
    layers = [NO_LIMIT if math.isinf(item.layers) else int(item.layers) for item in items]
    rows = BoxRows(
        sides=np.array([item.sides for item in items], dtype=float),
        amounts=np.array([[item.weight] for item in items], dtype=float),
        turns=np.array([ALLOWED_TURNS[item.turn] for item in items]),
        stop=np.array([last - item.stop for item in items]),
        layers=np.array(layers),
        bears=np.array([item.bears for item in items], dtype=float),
        group=np.zeros(num, dtype=np.int64),
        look=np.arange(num),
        support=support,
    )
    truck = Truck(name="truck", capacity={**dict(zip(SIDES, room, strict=True)), "weight": capacity})
    deadline = Deadline.after(0.05)
    result = place_boxes(rows, [truck], SIDES, ["weight"], [1], bound=1, start=None, deadline=deadline)
    assert result is not None
    return result, rows


def wrong(items: list[Item], result: Placed, room: tuple[int, ...], capacity: float, support: float) -> list[str]:
    found = []
    for number in range(len(result.kinds)):
        rows = np.flatnonzero(result.bin_of_row == number)
        cells = [tuple(map(int, result.cells[row])) for row in rows]
        assert np.array_equal(cells, result.cells[rows])  # whole sides give whole places
        found += problems([items[row] for row in rows], cells, room, capacity, support)
    return found


def some_items(draw: random.Random, most: int, side: int = 4) -> list[Item]:
    """Draw boxes of a few types; the rules of a truck load are drawn together, so that all mixes occur."""
    limits, weights, stops = draw.random() < 0.5, draw.random() < 0.5, draw.choice([1, 1, 3])
    types = [
        Item(
            (draw.randint(1, side), draw.randint(1, side), draw.randint(1, side)),
            turn=draw.choice(list(ALLOWED_TURNS)),
            weight=draw.randint(0, 9),
            layers=draw.choice([math.inf, 1, 2, 3]) if limits else math.inf,
            bears=draw.choice([math.inf, 0, 5, 20]) if weights else math.inf,
        )
        for _ in range(draw.randint(1, 6))
    ]
    return [draw.choice(types)._replace(stop=draw.randrange(stops)) for _ in range(draw.randint(2, most))]


def test_every_placement_passes_the_slow_check_and_ours(steady, thorough):
    for seed in range(60 if thorough else 8):
        draw = random.Random(seed)
        room = (draw.randint(6, 14), draw.randint(4, 8), draw.randint(4, 8))
        items, support, capacity = (
            some_items(draw, 35),
            draw.choice([1.0, 1.0, 0.75, 0.5, 0.0]),
            draw.choice([1000, 60]),
        )
        result, rows = load(items, room, capacity, support)
        assert wrong(items, result, room, capacity, support) == [], seed
        assert faults(result.cells, result.bin_of_row, np.array([room] * len(result.kinds), dtype=float), rows) == []
        assert result.bound <= len(result.kinds)


def test_few_boxes_take_the_fewest_trucks_and_bounds_are_below(steady):
    """Everything is tried: turns, places, orders and ways to divide. A search this short may miss one truck in some."""
    equal = num = 0
    for seed in range(40):
        draw = random.Random(seed)
        room = (draw.randint(2, 4), draw.randint(2, 3), 2)
        items = [item for item in some_items(draw, 5, side=3) if sorted(item.sides)[-1] <= 2]
        if not items:
            continue
        capacity = draw.choice([100, 12])
        least = fewest(items, room, capacity)
        result, _ = load(items, room, capacity)
        assert result.bound <= least <= len(result.kinds), seed
        num += 1
        equal += least == len(result.kinds)
    assert num > 20
    assert equal >= 0.9 * num


def test_the_bound_counts_what_volume_does_not():
    any_way = np.array([63])
    room = np.array([10, 10, 10])
    assert scaled_bound(np.array([[6, 6, 6]]), any_way, np.array([5]), room) == 5  # longer than half: alone
    assert scaled_bound(np.array([[4, 4, 4]]), any_way, np.array([9]), room) == 2  # eight cubes to a truck
    assert scaled_bound(np.array([[5, 5, 5]]), any_way, np.array([8]), room) == 1
    # Four in a layer, and two layers; then boxes that may not lie down.
    assert scaled_bound(np.array([[5, 5, 1]]), np.array([1]), np.array([9]), room, 2) == 2
    assert scaled_bound(np.array([[9, 4, 4]]), np.array([1]), np.array([5]), np.array([10, 10, 10])) == 2


def test_the_bound_of_several_kinds_knows_what_fits_into_which():
    """Vans of 2 x 2 x 2 cost 1, trucks of 3 x 3 x 3 cost 6; boxes may be turned in every way."""

    def bound(types: dict[tuple[int, int, int], int], costs: tuple[int, ...] = (1, 6)) -> int:
        sides, nothing = np.array(list(types)), np.zeros(len(types), dtype=np.int64)
        boxes = Boxes(sides, nothing + 63, nothing[:, None], nothing, nothing + NO_LIMIT, nothing + NO_LIMIT)
        rooms = np.array([[2, 2, 2], [3, 3, 3]])[: len(costs)]
        kinds = TruckKinds(rooms, np.zeros((len(costs), 1), dtype=np.int64), costs, [None] * len(costs))
        return mixed_bound(boxes, np.array(list(types.values())), kinds)

    assert bound({(3, 3, 3): 4}) == 24  # no van takes them, and volume alone would say 14
    assert bound({(2, 2, 2): 5}) == 5  # one in each van or truck: longer than half of both
    assert bound({(3, 3, 3): 2, (2, 2, 2): 3}) == 15
    assert bound({(1, 1, 1): 16}) == 2
    assert bound({(3, 1, 1): 9}) == 6  # too long for a van, nine fill a truck
    assert bound({(2, 2, 2): 5}, (1,)) == 5


def test_both_checks_find_what_is_wrong(steady):
    """Two layers of two boxes: each rule is broken once, and both checks must see it."""
    room, capacity = (4, 2, 4), 100.0
    items = [Item((2, 2, 2), turn="upright", weight=5, stop=stop) for stop in (0, 0, 1, 1)]
    good = np.array([[2, 0, 0], [2, 0, 2], [0, 0, 0], [0, 0, 2]])
    sides = np.full((4, 3), 2)
    rows = load(items, room, capacity)[1]
    bins = np.zeros(4, dtype=np.int64)

    def both(cells: np.ndarray, given: list[Item], rules: BoxRows) -> tuple[bool, bool]:
        slow = problems(given, [tuple(map(int, cell)) for cell in cells], room, capacity)
        return bool(slow), bool(faults(cells.astype(float), bins, np.array([room], dtype=float), rules))

    cells = np.hstack([good, sides])
    assert both(cells, items, rows) == (False, False)
    for row, axis, value in ((0, 0, 1), (0, 0, 3), (1, 2, 3), (0, 3, 1)):  # overlaps; is outside; hangs; is too short
        worse = cells.copy()
        worse[row, axis] = value
        assert both(worse, items, rows) == (True, True), (row, axis)
    swapped = cells[[2, 3, 0, 1]]  # what leaves first is at the front
    assert both(swapped, items, rows) == (True, True)
    for change, value in (("layers", 1), ("bears", 4.0)):
        limited = [item._replace(**{change: value}) for item in items]
        assert both(cells, limited, rows._replace(**{change: np.full(4, value)})) == (True, True)
    assert both(cells, [item._replace(bears=5) for item in items], rows._replace(bears=np.full(4, 5.0))) == (
        False,
        False,
    )


def test_no_more_trucks_than_extreme_points(steady):
    """On cargo of the published sets, ours needs at most as many trucks as the plain heuristic."""
    for number in (2, 12):
        sides, turns = instance(number, 1)
        peer = extreme_points(sides, turns)
        assert sum(map(len, peer)) == len(sides)
        for cells in peer:  # the peer follows the same rules
            table, num = np.array(cells, dtype=float), len(cells)
            nothing, free = np.zeros(num, dtype=np.int64), np.full(num, NO_LIMIT)
            heights = np.full(num, np.inf)
            rows = BoxRows(
                table[:, 3:], np.zeros((num, 0)), free * 0 + 1, nothing, free, heights, nothing, nothing, 1.0
            )
            assert faults(table, np.zeros(len(table), dtype=np.int64), np.array([ROOM], dtype=float), rows) == []
        assert placed(sides, turns, 0.05) <= len(peer)
    assert len(TURNS) == 6


POLICY = """
dataset = "{name}"
protects = "box"
attributes.box = {{role = "identifier"}}
attributes.stop = {{role = "public"}}
attributes.length = {{role = "{role}", kind = "numeric", domain = [0, 120], resolution = 1, unit = "cm"}}
attributes.width = {{role = "{role}", kind = "numeric", domain = [0, 120], resolution = 1, unit = "cm"}}
attributes.height = {{role = "{role}", kind = "numeric", domain = [0, 120], resolution = 1, unit = "cm"}}
attributes.weight = {{role = "quasi-identifier", kind = "numeric", domain = [0, 200], resolution = 1, unit = "kg"}}
mechanism = {{{mechanism}}}
"""
PARTITION, NOISE = 'name = "partition", k = 4', 'name = "noisy-values", epsilon = 40'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    draw = random.Random(5)
    lines = ["box,stop,length,width,height,weight"]
    for number in range(48):
        length, width, height = draw.choice([(60, 40, 40), (80, 60, 50), (35, 35, 35)])
        lines.append(f"{number},{1 + number % 2},{length},{width},{height},{draw.randint(5, 60)}")
    (tmp_path / "boxes.csv").write_text("\n".join(lines))
    for name, role, mechanism in (
        ("hidden", "quasi-identifier", PARTITION),
        ("public", "public", PARTITION),
        ("noisy", "quasi-identifier", NOISE),
    ):
        (tmp_path / f"{name}.toml").write_text(POLICY.format(name=name, role=role, mechanism=mechanism))
    return tmp_path


BOX = dn.Box(sides=SIDES, turn="any", unload="stop", stack="3")
ROOMY = ["200x160x160cm", "900kg"]


def test_a_plan_of_boxes_goes_round(folder):
    """Publish, pack, write, read, apply and audit, with sides as intervals and with public sides."""
    for name in ("hidden", "public"):
        data = dn.load(folder / "boxes.csv", folder / f"{name}.toml")
        release, key = dn.publish(data, ledger=folder / f"{name}.sqlite")
        plan = dn.pack(release, capacity=ROOMY, box=BOX, seconds=1)
        assert plan.certified.at_least == 1
        assert plan.bound <= plan.num_bins
        assert list(plan.quantities.values()) == ["kg", "cm3"]
        assert plan.cautions == ()
        again = dn.Plan.read(plan.write(folder / f"plan-{name}"))
        assert again.to_dict() == plan.to_dict()
        assert np.array_equal(again.cells, plan.cells)
        done = dn.apply(again, data, release, key)
        assert done.plan_feasible
        assert done.boxes.larger == 0
        assert done.boxes.misplaced == []
        assert {"x", "dz"} <= set(done.loading.column_names)
        found = {one.name: one for one in dn.audit(release, data, key=key, plan=plan).findings}
        assert found["objective ratio"].value >= 1
        # A plan from anywhere is checked again: two boxes in one place, or a box outside.
        for change in (lambda cells: np.copyto(cells[:, :3], 0), lambda cells: np.copyto(cells[:, 0], 190)):
            cells = plan.cells.copy()
            change(cells)
            with pytest.raises(InputError):
                dn.apply(replace(plan, cells=cells), data, release, key)
        # Smaller trucks than planned: the settlement says which boxes are outside.
        small = dn.apply(plan, data, release, key, capacity=["100x160x160cm"])
        assert not small.plan_feasible
        assert small.boxes.misplaced


def test_noisy_sides_are_not_certain(folder):
    data = dn.load(folder / "boxes.csv", folder / "noisy.toml")
    release, key = dn.publish(data)
    box = dn.Box(sides=SIDES, turn="any")
    upper = dn.pack(release, capacity=ROOMY, box=box, seconds=1)
    assert upper.certified.at_least < 1
    sure = dn.pack(release, capacity=ROOMY, box=box, seconds=1, model=dn.Stochastic(risk="0.01"))
    assert sure.certified.at_least >= 0.99
    assert sure.num_bins >= upper.num_bins
    done = dn.apply(upper, data, release, key)
    true = np.column_stack([data.numbers(side) for side in SIDES])
    records = data.parts.records_of(done.loading.column("source_row").to_numpy())
    rows = done.loading.column("row").to_numpy()
    inside = np.sort(true[records], axis=1) <= np.sort(upper.cells[rows, 3:], axis=1)
    assert done.boxes.larger == int((~inside.all(axis=1)).sum())
    with pytest.raises(ParameterError):
        dn.apply(upper, data, release, key, repair=True)


def test_what_boxes_do_not_take_is_refused(folder):
    release, _ = dn.publish(dn.load(folder / "boxes.csv", folder / "hidden.toml"))
    for more in (
        {"model": dn.Sealed()},
        {"model": dn.Standard(statistic="mean")},
        {"model": dn.Stochastic()},
        {"spread": 2},
        {"extra_trucks": 1},
        {"capacity": ["length=200", "width=160"]},
        {"box": replace(BOX, unload="weight")},
        {"box": replace(BOX, turn="sideways")},
        {"box": replace(BOX, stack="much")},
        {"box": replace(BOX, sides=("length", "width", "weight"))},
    ):
        with pytest.raises(ParameterError):
            dn.pack(release, **{"capacity": ROOMY, "box": BOX, "seconds": 0.2, **more})
    with pytest.raises(dn.NoPlanError):
        dn.pack(release, capacity=["30x30x30cm"], box=BOX, seconds=0.2)
    for wrong_box in ({"sides": ("length", "width", "width")}, {"sides": SIDES, "support": 2}):
        with pytest.raises(ParameterError):
            dn.Box(**wrong_box)


def test_groups_and_kinds_of_truck(folder):
    """Groups never share a truck; a cheap small truck is used where it is enough."""
    release, _ = dn.publish(dn.load(folder / "boxes.csv", folder / "hidden.toml"))
    kinds = [
        dn.Truck(name="van", capacity={"length": 130, "width": 100, "height": 100, "weight": 400}, cost=1, count=2),
        dn.Truck(name="lorry", capacity={"length": 400, "width": 160, "height": 160, "weight": 2000}, cost=5),
    ]
    plan = dn.pack(release, trucks=kinds, by="stop", box=dn.Box(sides=SIDES, turn="any"), seconds=1)
    assert plan.truck_of_bin.count("van") <= 2
    assert plan.bound <= plan.objective
    stops = np.array(release.data.column("stop").to_pylist())
    assert all(len(set(stops[plan.assignment == number])) == 1 for number in range(plan.num_bins))


def test_the_command_places_boxes_and_draws_them(folder):
    run("publish", folder / "boxes.csv", "--policy", folder / "hidden.toml", "-o", folder / "release")
    plan = run("pack", folder / "release", "--box", "length,width,height", "--capacity", "200x160x160cm", "--unload",
               "stop", "--time-limit", 1, "-o", folder / "plan")  # fmt: skip
    assert "adds them up" not in plan.out
    page = (folder / "plan" / "plan.html").read_text()
    assert page.count('class="cell') == 2 * 48  # from above and from the side
    assert "Boxes" in run("show", folder / "plan").out
    run("pack", folder / "release", "--capacity", "9kg", "--turn", "any", "-o", folder / "no").refused("--box")
