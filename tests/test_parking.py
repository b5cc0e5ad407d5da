# SPDX-License-Identifier: Apache-2.0
"""Where shuttles wait: posts chosen by demand, against exhaustive search; what plans record; targets out of reach."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from tests.fleet_help import SPAN, make, plane_times, policy_of, publish, simulate, some_trips, starts, trip_rows
from tests.oracles.operations import check_operation

import dunnage as dn
from dunnage.errors import InputError, NoPlanError, ParameterError
from dunnage.kernels.dispatch import LEVELS, choose_posts
from dunnage.model.city import City
from dunnage.planning.demand import Day, Ground, Trips
from dunnage.planning.dispatch import HOUR, Parking, Requests, Service
from dunnage.planning.fleet import FleetTask, UnreachableError, planned_task, size
from dunnage.planning.plan import FleetPlan
from dunnage.settle.fleets import apply_fleet, read_settlement

WAIT = 150


def wide_city(num: int = 40, seed: int = 0) -> City:
    """Make one zone of scattered stops with a single hub in a corner, 40 minutes across."""
    rng = np.random.default_rng(seed)
    places = np.vstack([[0.0, 0.0], rng.random((num - 1, 2))]) * 0.15
    hubs = np.arange(num) == 0
    zones = np.zeros(num, dtype=np.int32)
    stops = tuple(f"S{i}" for i in range(num))
    return City(stops=stops, zone_names=("all",), zones=zones, lat=42 + places[:, 0], lon=places[:, 1], hubs=hubs)


def wide_task(num: int = 150, *, max_wait: float = WAIT, shape: str = "spread", days: int = 2) -> FleetTask:
    """Make days of few rides from many stops, of tides from the outside to a centre, or of bursts at one stop."""
    ground, drawn = Ground.of(wide_city()), []
    for day in range(days):
        trips = some_trips(num, 40, day)
        origin, destination, seconds = trips.origin, trips.destination, trips.seconds
        if shape == "tide":
            early = seconds < sum(SPAN) // 2
            origin, destination = np.where(early, origin, 7), np.where(early, 7, destination)
        elif shape == "bursts":
            origin, seconds = np.full(num, 3), seconds // 900 * 900 + seconds % 60
        drawn.append(Day.of(Trips.in_order(origin, destination, seconds), ground))
    return FleetTask(ground, drawn, service=Service(), max_wait=max_wait, span=SPAN)


def reach_by_hand(times, rides, posts) -> float:
    """Return how long riders wait if each post in turn, the nearest first, is taken half of the time."""
    far, total = int(times.max()) + 1, 0.0
    for stop, weight in enumerate(rides):
        nearest = sorted([int(times[post, stop]) for post in posts] + [far] * LEVELS)[:LEVELS]
        total += weight * sum(time / 2 ** (level + 1) for level, time in enumerate(nearest))
    return total


@pytest.mark.parametrize("seed", range(6))
def test_posts_are_those_of_exhaustive_search_one_by_one_and_nearly_all_together(seed):
    rng = np.random.default_rng(seed)
    times, rides = plane_times(6, rng), rng.integers(0, 5, 6)
    rides[seed] = 9
    posts = choose_posts(times, rides, 4).tolist()
    for number in range(4):
        each = [reach_by_hand(times, rides, [*posts[:number], post]) for post in range(6)]
        assert each[posts[number]] == pytest.approx(min(each))
    best = min(reach_by_hand(times, rides, some) for some in itertools.combinations_with_replacement(range(6), 4))
    assert reach_by_hand(times, rides, posts) <= 1.1 * best
    # When every stop has as many posts as count, they begin again.
    many = choose_posts(times, np.ones(6, dtype=np.int64), 8 * LEVELS * 6)
    assert np.array_equal(many[: LEVELS * 6], many[LEVELS * 6 : 2 * LEVELS * 6])


def test_chosen_posts_are_nearly_as_good_as_the_best_of_all_choices_in_a_toy_city():
    chosen = best = 0.0
    for seed in range(5):
        rng = np.random.default_rng(seed)
        times, num = plane_times(5, rng), 400
        ends = rng.choice(5, (2, num), p=[0.4, 0.3, 0.1, 0.1, 0.1])
        ends[1] = np.where(ends[0] == ends[1], (ends[1] + 1) % 5, ends[1])
        requests = Requests.single(np.zeros(num, dtype=np.int64), *ends, np.sort(rng.integers(0, 60 * HOUR, num)))

        def wait(posts, requests=requests, times=times) -> float:
            own = Parking(posts=np.array([posts]), begin=0, follows=False)
            return simulate(requests, [2], times, [0], parking=[own]).mean_wait

        best += min(wait(posts) for posts in itertools.product(range(5), repeat=2))
        rides = np.bincount(requests.origin, minlength=5)[None]
        (posts,) = Parking.of(times, np.arange(5), rides, 2, begin=0, follows=False).posts
        chosen += wait(posts)
    assert chosen <= 1.15 * best


@pytest.mark.parametrize("shape", ["spread", "commute", "waves", "linked", "crowd"])
@pytest.mark.parametrize("follows", [False, True])
def test_fleets_with_posts_run_as_a_fleet_can(shape, follows):
    case, rng = make(shape, 150, 3), np.random.default_rng(1)
    own = [np.flatnonzero(np.arange(30) % 2 == zone) for zone in (0, 1)]
    parking = [
        Parking(posts=rng.choice(own[0], (3, 4)), begin=600, follows=follows),  # fewer posts than shuttles
        Parking(posts=rng.choice(own[1], (1, 30)), begin=600, follows=follows) if shape != "waves" else None,
    ]
    run = simulate(case.requests, [6, 6], case.times, case.homes, parking=parking)
    homes = starts(case.homes, parking)
    assert check_operation(case.requests, [6, 6], case.times, homes, Service(), run) == []
    again = simulate(case.requests, [6, 6], case.times, case.homes, parking=parking)
    assert np.array_equal(run.waits, again.waits)
    assert np.array_equal(run.events.stop, again.events.stop)


def test_shuttles_wait_at_the_posts_of_the_hour():
    times = np.array([[0, 100, 300], [100, 0, 200], [300, 200, 0]], dtype=np.int32)
    parking = [Parking(posts=np.array([[1], [2]]), begin=0, follows=False)]
    seconds = [10, 1500, HOUR + 1200, HOUR + 3000]
    requests = Requests.single([0, 0, 0, 0], [1, 0, 2, 0], [0, 1, 0, 1], seconds)
    run = simulate(requests, [1], times, [0], parking=parking)
    # From the post of the first hour, twice; then from that of the second, where it went and returned to.
    assert run.waits.tolist() == [0, 100, 0, 300]


def smallest_with(task: FleetTask, way: Parking | None) -> int | None:
    """Return the smallest fleet that waits in one way; None if the target is out of reach."""
    own = FleetTask(task.ground, task.days, service=task.service, max_wait=task.max_wait, span=SPAN, parking=[way])
    fleets = range(1, own.most_shuttles(0) + 1)
    return next((num for num in fleets if own.mean_waits([num])[0] <= task.max_wait), None)


def test_many_stops_with_few_rides_need_posts():
    task = wide_task(days=1)
    assert smallest_with(task, None) is None  # the hub is too far
    sized = task.size()
    assert sized.fleet[0] < task.most_shuttles(0) / 2
    assert sized.parking[0] is not None
    assert task.mean_waits(sized.fleet)[0] <= WAIT


@pytest.mark.parametrize("shape", ["spread", "tide", "bursts"])
def test_the_fleet_is_that_of_the_best_way_to_wait(shape):
    task = wide_task(80, shape=shape, max_wait=400, days=1)
    each = [num for way in task.ways(0) if (num := smallest_with(task, way)) is not None]
    sized = task.size()
    assert min(each) <= sized.fleet[0] <= min(each) + 1
    assert task.parking == sized.parking


def test_a_target_out_of_reach_is_refused_early_with_what_can_be_reached():
    task = wide_task(days=3, max_wait=2)
    with pytest.raises(UnreachableError) as caught:
        task.size()
    (zone,) = caught.value.zones
    assert isinstance(caught.value, NoPlanError)
    assert 2 < zone.wait_seconds <= zone.near_seconds == caught.value.near_seconds
    assert f"--max-wait to {zone.near_seconds}" in str(caught.value)
    assert task.probes < 60
    # The stated fleet reaches the stated wait.
    reachable = wide_task(days=3, max_wait=zone.near_seconds)
    assert reachable.size().fleet[0] <= zone.shuttles


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """Trips in the wide city, published with little noise, and a plan for them."""
    folder = tmp_path_factory.mktemp("wide")
    place = wide_city()
    data = dn.load(trip_rows(place, some_trips(150, 40, 5)), policy_of(folder, place, epsilon=50))
    release, key = publish(data)
    return place, data, release, key, size(release, place, max_wait=240, expansions=2)


def test_a_plan_records_where_shuttles_wait_and_apply_uses_it(planned, tmp_path):
    place, data, release, key, plan = planned
    (number,), posts = plan.shuttles, plan.posts["all"]
    assert (posts.begin, len(posts.stops)) == (SPAN[0], 2)
    assert {len(hour) for hour in posts.stops} == {number + number // 10}
    folder = plan.write(tmp_path / "plan")
    again = FleetPlan.read(folder)
    assert again.posts == dict(plan.posts)
    assert again.to_dict() == plan.to_dict()
    task = planned_task(release, Ground.of(place), again)
    assert task.mean_waits(plan.shuttles)[0] == pytest.approx(plan.by_zone["all"].wait_seconds.mean)
    done = apply_fleet(folder, data, release, place, key)
    starts_at = {row["stop"] for row in done.events.slice(0, 1).to_pylist()}
    assert starts_at <= set(posts.stops[0])
    # All posts at one far stop: the same fleet is simulated there, and riders wait longer.
    header, *lines = (folder / "parking.csv").read_text().splitlines()
    moved = [",".join([*line.split(",")[:3], "S0"]) for line in lines]
    (folder / "parking.csv").write_text("\n".join([header, *moved]) + "\n")
    content = json.loads((folder / "plan.json").read_text())
    (folder / "plan.json").write_text(json.dumps({**content, "parking": {"all": "posts"}}))
    assert apply_fleet(folder, data, release, place, key).wait_seconds > 1.5 * done.wait_seconds
    # A plan of an earlier version does not say, and its shuttles wait at hubs; one made elsewhere follows the release.
    old = {name: value for name, value in content.items() if name != "parking"}
    (folder / "plan.json").write_text(json.dumps(old))
    (folder / "parking.csv").unlink()
    assert apply_fleet(folder, data, release, place, key).served.parking == (None,)
    (tmp_path / "mine.csv").write_text(f"zone,shuttles\nall,{number}\n")
    mine = apply_fleet(tmp_path / "mine.csv", data, release, place)
    assert mine.served.parking[0] is not None
    assert mine.wait_seconds < 1.5 * done.wait_seconds


def test_parking_that_was_altered_is_refused(planned, tmp_path):
    place, data, release, key, plan = planned
    folder = plan.write(tmp_path / "plan")
    text = (folder / "parking.csv").read_text()
    header, first, *lines = text.splitlines()
    for altered in (
        header,
        "\n".join([header, first.replace("all", "none"), *lines]),
        "\n".join([header, first.replace(",1,", ",2,"), *lines]),
        "\n".join([header, first, *lines[:-1]]),
        text.replace("09:00", "9 am"),
        text.replace("09:00", "10:00"),
        "\n".join(["zone,stop", "all,S1"]),
        None,
    ):
        (folder / "parking.csv").unlink(missing_ok=True)
        if altered is not None:
            (folder / "parking.csv").write_text(f"{altered}\n")
        with pytest.raises(InputError):
            FleetPlan.read(folder)
    posts = replace(plan.posts["all"], stops=(("nowhere",),))
    with pytest.raises(ParameterError, match="'nowhere'"):
        apply_fleet(replace(plan, posts={"all": posts}), data, release, place, key)


def test_a_fleet_that_misses_its_target_is_no_saving(planned, tmp_path):
    place, data, release, *_ = planned
    (tmp_path / "few.csv").write_text("zone,shuttles\nall,2\n")
    few = apply_fleet(tmp_path / "few.csv", data, release, place, shuttle_hour=60)
    assert (few.to_dict()["meets_target"], few.cost.difference_per_day) == (False, None)
    assert sum(few.needed) > 2
    first, second, *_ = few.summary().splitlines()
    assert first.startswith("WARNING")
    assert f" {sum(few.needed)} shuttles" in second
    assert "privacy costs" not in few.summary()
    folder = few.write(tmp_path / "settlement")
    assert read_settlement(folder).text() == few.summary()
    # Settlements of earlier versions, without the new keys, are still read.
    content = few.to_dict()
    old = {name: value for name, value in content.items() if name not in ("meets_target", "reach")}
    (folder / "settlement.json").write_text(json.dumps(old))
    assert read_settlement(folder).text() == few.summary()
    (tmp_path / "many.csv").write_text("zone,shuttles\nall,80\n")
    many = apply_fleet(tmp_path / "many.csv", data, release, place, shuttle_hour=60)
    assert (many.to_dict()["meets_target"], many.cost.difference_per_day > 0) == (True, True)
    assert "WARNING" not in many.summary()
