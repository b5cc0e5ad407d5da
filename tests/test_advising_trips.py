# SPDX-License-Identifier: Apache-2.0
"""Advice on counts of trips, on fleets of shuttles, on numbers and on devices: what is measured, against oracles."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import typer
from tests.builders import a_policy
from typer.testing import CliRunner

from dunnage.advising import vehicles
from dunnage.advising.advice import COUNT_ERROR, NUMBER_ERROR, REPORT_ERROR, SHUTTLES, goal_of
from dunnage.advising.frontier import Measure, Point
from dunnage.advising.rows import release_in_memory, row_errors
from dunnage.advising.sweep import AdviceRequest, BasePolicy, Candidate, attempt, measure_point
from dunnage.advising.trips import (
    MIN_MINUTES,
    FleetDraw,
    ShuttleSubject,
    Slice,
    TripSubject,
    count_candidates,
    count_errors,
    draw_fleets,
    membership_guess,
    narrow_trips,
    open_trips,
)
from dunnage.advising.vehicles import FleetSubject, measure_fleet, open_fleet, payable_candidates
from dunnage.auditing.carriers import channel_matrix
from dunnage.cli.auditing import advise
from dunnage.collecting.batch import find_inputs
from dunnage.collecting.tasks import read_task
from dunnage.devices.places import LocalLocation
from dunnage.devices.subjects import Grid
from dunnage.errors import ParameterError, Refusal, UserError
from dunnage.ledger import Ledger
from dunnage.mechanisms.counts import true_counts
from dunnage.model.city import City
from dunnage.model.policy import Policy
from dunnage.noise.source import Noise
from dunnage.publishing import mechanism_of, publish
from dunnage.samples.shape import deterred, like, like_reports
from dunnage.tables.dataset import Dataset

STOPS = """stop,zone,lat,lon
A,west,48.000,9.000
B,west,48.003,9.001
C,west,48.001,9.004
D,east,48.000,9.060
E,east,48.003,9.062
F,east,48.001,9.065
"""
TRIPS = """
dataset = "small"
protects = "trip"

[trip]
origin = "from"
destination = "to"
time = "at"

[attributes.card]
role = "identifier"

[attributes.from]
role = "quasi-identifier"
kind = "stop"

[attributes.to]
role = "quasi-identifier"
kind = "stop"

[attributes.at]
role = "quasi-identifier"
kind = "time"
window_minutes = 30
domain = ["06:00", "12:00"]

[city]
stops = "stops.csv"
"""
PLAIN = {"name": "noisy-counts", "epsilon": 1}
DAYS = (
    "",
    'day = "weekday"',
    'day = "day-type"\ndates = ["2026-10-01", "2026-10-31"]',
    'day = "date"\ndates = ["2026-10-22", "2026-10-27"]\nzone = "Europe/Madrid"',
    'dates = ["2026-10-01", "2026-10-05"]',
)


def _base(folder: Path, text: str = TRIPS) -> BasePolicy:
    (folder / "stops.csv").write_text(STOPS)
    (folder / "small.toml").write_text(text)
    return BasePolicy.read(folder / "small.toml")


def _policy(folder: Path, text: str = TRIPS) -> Policy:
    return _base(folder, text).policy(PLAIN)


def _trips_file(folder: Path, size: int) -> Path:
    """Write trips of the small city."""
    policy = _policy(folder)
    data = like(Slice.of(policy, size).policy, size, seed=1)
    rows = [["card", "from", "to", "at"]]
    stamps = data.column("at").to_numpy() % 86400
    for number, (origin, destination, second) in enumerate(
        zip(data.column("from").to_pylist(), data.column("to").to_pylist(), stamps.tolist(), strict=True)
    ):
        rows.append([f"c{number}", origin, destination, f"{second // 3600:02d}:{second // 60 % 60:02d}"])
    path = folder / "trips.csv"
    path.write_text("\n".join(",".join(row) for row in rows) + "\n")
    return path


# Generated trips


def test_generated_trips_are_what_the_policy_says(tmp_path):
    for days in DAYS:
        text = TRIPS.replace("window_minutes = 30", f"window_minutes = 30\n{days}")
        policy = Slice.of(_policy(tmp_path, text), 400).policy
        data = like(policy, 400, seed=1)
        counted = true_counts(data)
        assert len(data) + data.num_left_out == 400
        assert data.num_left_out <= 20  # what a clock skips
        assert counted.num_trips == len(data)
        pairs, _ = counted.universe.split(counted.cells)
        assert (pairs // 6 != pairs % 6).all()
        again, other = (true_counts(like(policy, 400, seed)) for seed in (1, 2))
        assert np.array_equal(again.cells, counted.cells)
        assert not (np.array_equal(other.cells, counted.cells) and np.array_equal(other.counts, counted.counts))


def test_rows_are_generated_of_a_policy_alone():
    """Without any data: quasi-identifiers from their domains, public and sensitive columns made up."""
    policy = a_policy({"name": "partition", "k": 3})
    data = like(policy, 60, seed=4)
    assert 50 <= len(publish(data, ledger=":memory:").release) <= 60  # some towns have too few
    assert 0 <= data.numbers("weight").min() < 20 < 80 < data.numbers("weight").max() <= 100
    assert len(set(data.column("destination").to_pylist())) <= 10
    assert like(policy, 60, seed=4).numbers("weight").tolist() == data.numbers("weight").tolist()


def test_generated_trips_count_riders_labels_and_rows_that_stand_for_trips(tmp_path):
    text = TRIPS.replace('"trip"', '"rider"') + '[contribution]\nperson = "card"\nmax = 2\nper = "period"\n'
    data = like(Slice.of(_policy(tmp_path, text), 300).policy, 300)
    assert data.persons is not None
    assert 100 < data.persons.max() < 200
    labelled = TRIPS.replace('time = "at"', 'time = "at"\nday = "kind"\ncount = "number"') + (
        '[attributes.kind]\nrole = "quasi-identifier"\nkind = "ordinal"\ndomain = ["work", "rest"]\n'
        '[attributes.number]\nrole = "quasi-identifier"\nkind = "numeric"\ndomain = [0, 99]\nresolution = 1\n'
    )
    counted = true_counts(like(Slice.of(_policy(tmp_path, labelled), 300).policy, 300))
    assert counted.num_trips == 300
    assert counted.universe.days == ("work", "rest")


def test_near_stops_are_ridden_between_less(tmp_path):
    """Distances are those of the city: from one zone to the other people ride, within one they rather walk."""
    universe = _policy(tmp_path).schema.universe()
    found = deterred(universe, np.arange(6), City.read(tmp_path / "stops.csv"))
    same_zone = np.equal.outer(np.arange(6) // 3, np.arange(6) // 3)
    assert found[same_zone].min() > found[~same_zone].max()
    assert not deterred(universe, np.arange(6), None).any()


def test_a_slice_is_the_busiest_part_that_fits(tmp_path):
    policy = _policy(tmp_path)
    whole = Slice.of(policy, 1000, limit=1000)
    assert (whole.size, whole.says) == (1000, "")
    part = Slice.of(policy, 1000, limit=400)
    time = part.policy.schema.time
    assert MIN_MINUTES * 60 <= time.upper_seconds - time.lower_seconds < 6 * 3600
    assert 150 <= part.size <= 400
    assert time.lower in part.says
    least = Slice.of(policy, 10**6, limit=1).policy.schema.time
    assert least.upper_seconds - least.lower_seconds == 3600


def test_a_slice_of_true_trips_has_their_counts(tmp_path):
    policy = _policy(tmp_path)
    data = like(Slice.of(policy, 500).policy, 500)
    part = Slice.of(policy, 500, limit=150)
    narrow = true_counts(narrow_trips(data, part.policy))
    counted = true_counts(data)
    first = counted.universe.windows.index(narrow.universe.windows[0])
    kept = (counted.cells // 36 >= first) & (counted.cells // 36 < first + len(narrow.universe.windows))
    assert 0 < narrow.num_trips < 500
    np.testing.assert_array_equal(narrow.cells, counted.cells[kept] - 36 * first)
    np.testing.assert_array_equal(narrow.counts, counted.counts[kept])


# Counts


def _asked(folder: Path, data: Any, base: BasePolicy, **more: Any) -> AdviceRequest:
    return AdviceRequest(data=data, base=base, draws=2, **more)


def test_errors_of_counts_are_those_of_dense_tables(tmp_path):
    data = like(Slice.of(_policy(tmp_path), 300).policy, 300)
    release, truth = release_in_memory(data, Noise()).release, true_counts(data)
    found = count_errors(release, truth)
    dense = np.zeros((2, truth.universe.num_slots, 6, 6))
    for table, cells, counts in zip(
        dense, *zip(release.counted(), (truth.cells, truth.counts), strict=True), strict=True
    ):
        table.reshape(-1)[cells] = counts
    apart = dense[0] - dense[1]
    assert found["counts"] == pytest.approx(np.abs(apart).mean() / dense[1].mean())
    assert found["windows"] == pytest.approx(np.abs(apart.sum(axis=(1, 2))).sum() / 300)
    assert found["pairs of stops"] == pytest.approx(np.abs(apart.sum(axis=0)).sum() / 300)
    zones = apart.reshape(-1, 2, 3, 2, 3).sum(axis=(2, 4))
    assert found["zone to zone"] == pytest.approx(np.abs(zones).sum() / 300)
    assert "modes" not in found


def test_the_membership_guess_is_the_bound_of_the_promise():
    assert membership_guess(0) == 0.5
    for epsilon in (0.1, 1.0, 10.0):
        assert membership_guess(epsilon) == pytest.approx(math.exp(epsilon) / (1 + math.exp(epsilon)))


def test_candidates_of_counts_are_all_accepted_and_need_no_more_than_is_known(tmp_path):
    base = _base(tmp_path)
    case = open_trips(_asked(tmp_path, _trips_file(tmp_path, 300), base))
    tasks, failed = count_candidates(case)
    assert not failed
    assert {task.parameters["features"] for task in tasks if "features" in task.parameters} == {"O4", "H4"}
    assert len({task.name for task in tasks}) == len(tasks) >= 25
    assert all(task.on == "generated" and task.basis == "proved" for task in tasks)
    quick, _ = count_candidates(replace(case, request=replace(case.request, quick=True)))
    assert len(quick) < len(tasks) / 2
    on_data, _ = count_candidates(replace(case, request=replace(case.request, on="data")))
    assert {task.on for task in on_data} == {"data"}
    loud = [task for task in tasks if "threshold" in task.parameters]
    assert loud
    assert all(task.parameters["threshold"] > 1 for task in loud)


def test_the_goal_error_measures_counts(tmp_path):
    goal = goal_of("error", _base(tmp_path))
    assert goal is COUNT_ERROR
    asked = _asked(tmp_path, _trips_file(tmp_path, 300), _base(tmp_path))
    case = goal.open(asked)
    assert isinstance(case, TripSubject)
    assert "private" not in repr(case)
    tasks = {task.name: task for task in goal.candidates(case)[0]}
    measuring = pickle.loads(pickle.dumps(partial(measure_point, goal, case)))
    strict, loose = (
        attempt(measuring, tasks[f"constrained-counts O4 uniform epsilon={epsilon}"]) for epsilon in ("0.1", "10")
    )
    assert isinstance(strict, Point)
    assert isinstance(loose, Point)
    assert strict.cost.value > loose.cost.value
    assert strict.risk == Measure(value=membership_guess(0.1), lower=membership_guess(0.1), upper=membership_guess(0.1))
    assert strict.figures["error of windows"] > loose.figures["error of windows"]
    assert goal.tables(case, loose) == {
        "mechanism": {"name": "constrained-counts", "epsilon": 10.0, "features": "O4", "budget_shares": "uniform"}
    }
    assert goal.reference(case).risk_of_chance == 0.5
    on_data = goal.open(replace(asked, on="data"))
    assert goal.measure(on_data, replace(tasks["noisy-counts epsilon=10"], on="data")).cost < 0.2


def test_other_stops_are_another_run(tmp_path):
    data, base = _trips_file(tmp_path, 100), _base(tmp_path)
    first = open_trips(_asked(tmp_path, data, base)).digest
    assert open_trips(_asked(tmp_path, data, base)).digest == first
    (tmp_path / "stops.csv").write_text(STOPS.replace("F,east", "F,west"))
    assert open_trips(_asked(tmp_path, data, base)).digest != first


# Shuttles


def _shuttle_case(folder: Path, **more: Any) -> ShuttleSubject:
    data, base = _trips_file(folder, 200), _base(folder)
    city = folder / "city"
    city.mkdir(exist_ok=True)
    (city / "stops.csv").write_text(STOPS)
    case = SHUTTLES.open(_asked(folder, data, base, city=city, **more))
    assert isinstance(case, ShuttleSubject)
    return case


def _task(name: str, **parameters: Any) -> Candidate:
    return Candidate(name=name, mechanism=name, parameters=parameters, guarantee="dp", basis="proved", on="generated")


def test_shuttles_too_many_and_missing_both_count():
    drawn = FleetDraw(planned=(3, 5, 0), needed=(5, 4, 1), wait_seconds=200.0, unserved=0.1)
    assert drawn.apart == pytest.approx(4 / 10)
    assert drawn.signed == pytest.approx(-2 / 10)


def test_without_noise_privacy_costs_no_shuttle(tmp_path):
    case = _shuttle_case(tmp_path)
    drawn = SHUTTLES.measure(case, _task("noisy-counts", epsilon=60.0))
    assert drawn.cost == 0
    assert drawn.figures["signed_error"] == drawn.figures["unserved"] == 0
    assert 0 < drawn.figures["wait_seconds"] <= 180
    assert 0 < drawn.cost_step <= 1 / 3
    assert drawn.risk == pytest.approx(1.0)


def test_noise_costs_shuttles_and_too_much_of_it_is_refused(tmp_path):
    case = pickle.loads(pickle.dumps(_shuttle_case(tmp_path, quick=True)))
    point = measure_point(SHUTTLES, case, _task("constrained-counts", epsilon=0.1, features="O4"))
    assert point.cost.value >= abs(point.figures["signed_error"]) - 1e-9
    assert point.figures["shuttles_needed"] >= 1
    assert point.risk.value == membership_guess(0.1)
    with pytest.raises(Refusal, match="times the trips"):
        SHUTTLES.measure(case, _task("noisy-counts", epsilon=0.01))
    goal = SHUTTLES
    assert goal.tables(case, point)["mechanism"]["features"] == "O4"
    assert "seconds" in " ".join(goal.reference(case).says)


def test_true_trips_are_sized_for_where_that_is_asked(tmp_path):
    case = _shuttle_case(tmp_path, on="data", quick=True)
    task = replace(_task("noisy-counts", epsilon=60.0), on="data")
    first, second = (draw_fleets(case, case.trips(task)) for _ in range(2))
    assert first.planned == first.needed
    assert max(abs(one - other) for one, other in zip(first.needed, second.needed, strict=True)) <= 2


def test_what_shuttles_need_is_said(tmp_path):
    base = _base(tmp_path)
    with pytest.raises(ParameterError, match="--city"):
        SHUTTLES.open(_asked(tmp_path, None, base))
    city = tmp_path / "city"
    city.mkdir()
    (city / "stops.csv").write_text(STOPS.replace("F,east,48.001,9.065\n", ""))
    data = _trips_file(tmp_path, 100)
    with pytest.raises(ParameterError, match="lacks stops of the policy, such as 'F'"):
        SHUTTLES.open(_asked(tmp_path, data, base, city=city))
    with pytest.raises(ParameterError, match="number of seats"):
        SHUTTLES.open(_asked(tmp_path, data, base, city=city, capacity=("500kg",)))
    rows = BasePolicy.of(Policy.from_dict(_PACKAGES))
    with pytest.raises(ParameterError, match="no trips"):
        open_trips(_asked(tmp_path, data, rows))


@pytest.mark.parametrize("goal", ["shuttles", "error"])
def test_the_command_says_how_to_publish_trips(tmp_path, monkeypatch, goal):
    monkeypatch.setattr("dunnage.advising.trips.QUICK_EPSILONS", (4.0,))
    (tmp_path / "city").mkdir()
    (tmp_path / "city" / "stops.csv").write_text(STOPS)
    _base(tmp_path)
    city = ["--city", tmp_path / "city"] if goal == "shuttles" else []
    told = _commanded(_trips_file(tmp_path, 150), tmp_path / "small.toml", goal, tmp_path / "f", *city)
    assert f"dunnage publish {tmp_path}/trips.csv --policy {tmp_path}/f/policy.toml --ledger" in told
    assert f"dunnage size RELEASE --city {tmp_path}/city" in (tmp_path / "f" / "policy.toml").read_text() or not city
    assert mechanism_of(Policy.read(tmp_path / "f" / "policy.toml"))


def _commanded(data: Path, policy: Path, goal: str, out: Path, *more: Any) -> str:
    """Run the command in this process; return what it prints."""
    app = typer.Typer()
    app.command()(advise)
    given = [data, "--policy", policy, "--goal", goal, "-o", out, "--jobs", 1, "--draws", 2, "--quick", *more]
    result = CliRunner().invoke(app, [str(item) for item in given])
    assert result.exit_code == 0, result.output
    return result.stdout


# Numbers of records

_PACKAGES: dict[str, Any] = {
    "dataset": "packages",
    "protects": "package",
    "attributes": {
        "weight": {"role": "quasi-identifier", "kind": "numeric", "domain": [0, 100], "resolution": 1, "unit": "kg"}
    },
    "mechanism": {"name": "partition", "k": 3, "statistic": "mean"},
}


def _published(weights: list[int], mechanism: dict[str, Any]) -> tuple[Any, Dataset]:
    policy = Policy.from_dict({**_PACKAGES, "mechanism": mechanism})
    data = Dataset.from_table(pa.table({"weight": pa.array(weights, pa.float64())}), policy)
    with Ledger(":memory:") as ledger:
        return publish(data, ledger=ledger), data


def test_errors_of_classes_are_distances_from_their_means():
    weights = [1, 2, 3, 50, 52, 60]
    drawn = row_errors(*_published(weights, {"name": "partition", "k": 3, "statistic": "mean"}))
    means = [2, 2, 2, 54, 54, 54]
    assert drawn.cost == pytest.approx(sum(abs(w - m) for w, m in zip(weights, means, strict=True)) / sum(weights))
    assert drawn.risk == pytest.approx(1 / 3)


def test_errors_of_noisy_numbers_are_those_of_the_release():
    weights = list(range(10, 90))
    publication, data = _published(weights, {"name": "noisy-values", "epsilon": 1, "law": "laplace"})
    drawn = row_errors(publication, data)
    rows = publication.key.table.to_pydict()
    noisy = dict(zip(range(len(weights)), publication.release.data.column("weight").to_pylist(), strict=True))
    errors = [abs(noisy[row] - weights[source]) for row, source in zip(rows["row"], rows["source_row"], strict=True)]
    assert drawn.cost == pytest.approx(sum(errors) / sum(weights))
    assert 0 <= drawn.risk < 0.5


def test_the_goal_error_measures_numbers(tmp_path):
    base = BasePolicy.of(Policy.from_dict(_PACKAGES))
    frame = pa.table({"weight": pa.array([float(w % 97) for w in range(200)])})
    goal = goal_of("error", base)
    assert goal is NUMBER_ERROR
    case = goal.open(_asked(tmp_path, frame, base, quick=True))
    tasks, _ = goal.candidates(case)
    assert {task.mechanism for task in tasks} >= {"partition", "noisy-values"}
    assert {task.on for task in tasks} == {"data", "generated"}
    points = [attempt(partial(measure_point, goal, case), task) for task in tasks]
    found = {point.name: point for point in points if isinstance(point, Point)}
    assert len(found) == len(tasks)
    assert found["partition k=2"].cost.value < found["partition k=20"].cost.value
    assert found["partition k=2"].risk.value > found["partition k=20"].risk.value
    loose = found["noisy-values laplace epsilon=4"].cost.value
    assert found["noisy-values laplace epsilon=1"].cost.value > loose
    words = {**_PACKAGES, "attributes": {"city": {"role": "quasi-identifier", "kind": "ordinal", "domain": ["a", "b"]}}}
    asked = _asked(tmp_path, pa.table({"city": ["a", "b"]}), BasePolicy.of(Policy.from_dict(words)))
    with pytest.raises(UserError, match="numbers"):
        goal.open(asked)


# Devices

DEVICES = """
dataset = "fleet"
protects = "vehicle"

[attributes.vehicle]
role = "identifier"

[attributes.speed]
role = "quasi-identifier"
kind = "numeric"
domain = [0, 130]
missing = "symbol"

[attributes.load]
role = "quasi-identifier"
kind = "numeric"
domain = [0, 40]

[attributes.place]
role = "quasi-identifier"
kind = "grid"
box = [9.0, 48.0, 9.4, 48.2]
levels = 3

[tiers]
basic = 1.0
strict = 0.5

[schedule]
slots_per_day = 2

[allowance]
day = 12
lifetime = 100
"""
NUMBERS = '[mechanisms.telemetry]\nname = "local-numeric"\nas_published = true\n'
PLACES = '[mechanisms.places]\nname = "local-location"\ntiers = ["basic"]\n'


def _carriers(folder: Path, duties: str, **more: Any) -> FleetSubject:
    (folder / "fleet.toml").write_text(DEVICES + duties)
    rows = [
        f"v{number % 300},{(number * 7) % 131},{number % 41},{9.01 + number % 39 / 100},48.1" for number in range(600)
    ]
    (folder / "fleet.csv").write_text("\n".join(["vehicle,speed,load,lon,lat", *rows]) + "\n")
    return open_fleet(_asked(folder, folder / "fleet.csv", BasePolicy.read(folder / "fleet.toml"), **more))


def _chosen(case: FleetSubject, name: str) -> Candidate:
    return next(task for task in payable_candidates(case)[0] if task.name == name)


def test_generated_vehicles_are_of_the_public_domain(tmp_path):
    case = _carriers(tmp_path, NUMBERS + PLACES)
    speed, load = like_reports(case.purpose, 2000, Noise())
    assert 0 < np.isnan(speed).mean() < 0.1
    assert np.nanmin(speed) >= 0
    assert np.nanmax(speed) <= 130
    assert 0 <= load.min() <= load.max() <= 40


def test_errors_of_means_are_within_what_is_predicted_at_worst(tmp_path):
    case = _carriers(tmp_path, NUMBERS + PLACES)
    drawn = measure_fleet(case, _chosen(case, "telemetry: hybrid epsilon=1"))
    # 20 fleets of two numbers: a mean square of five times its mean comes up less than once in 1e9 times.
    assert drawn.cost < math.sqrt(5) * drawn.figures["predicted_at_worst"]
    assert drawn.figures["vehicles"] == 300
    assert drawn.figures["days"] == 25  # lifetime 100; a day has two slots of epsilon 1 and 1
    assert 0.1 < drawn.risk < 0.2
    private = _carriers(tmp_path, NUMBERS + PLACES, on="data")
    assert "telemetry" in repr(private)
    assert "array" not in repr(private)
    strict, loose = (
        measure_fleet(private, _chosen(private, f"telemetry: laplace epsilon={epsilon}")) for epsilon in ("0.5", "4")
    )
    assert strict.cost > loose.cost
    assert strict.risk < loose.risk


def test_what_the_allowance_does_not_pay_for_is_told(tmp_path):
    tasks, failed = payable_candidates(_carriers(tmp_path, NUMBERS + PLACES))
    assert {task.parameters["epsilon"] for task in tasks} == {0.5, 1.0, 2.0, 4.0}
    assert len(failed) == len(vehicles.METHODS["local-numeric"])
    assert all("limit" in item.why for item in failed)


def test_a_policy_for_devices_is_written_so_that_it_makes_a_task(tmp_path):
    case = _carriers(tmp_path, PLACES + NUMBERS.replace("as_published = true\n", ""))
    goal = goal_of("error", case.request.base)
    assert goal.open is REPORT_ERROR.open
    task = _chosen(case, "places: auto epsilon=2, 2 levels")
    point = measure_point(goal, case, task)
    text = case.request.base.text_with(goal.tables(case, point), place=tmp_path)
    (tmp_path / "chosen.toml").write_text(text)
    made = read_task(tmp_path / "chosen.toml")
    purpose = made.purposes[0]
    assert (purpose.name, purpose.tiers[0].epsilon) == ("places", 2)
    assert purpose.grid is not None
    assert purpose.grid.levels == 2
    assert {tier.name for tier in made.purposes[1].tiers} == {"basic", "strict"}


def test_the_command_says_how_to_make_a_task(tmp_path):
    _carriers(tmp_path, NUMBERS + PLACES)
    told = _commanded(tmp_path / "fleet.csv", tmp_path / "fleet.toml", "error", tmp_path / "f")
    assert f"dunnage device task {tmp_path}/f/policy.toml -o TASK.json" in told
    assert "dunnage publish" not in told
    assert read_task(tmp_path / "f" / "policy.toml").purposes


def test_kinds_of_report_that_are_blank_are_advised_on_one_after_the_other(tmp_path):
    numbers = NUMBERS.replace("as_published = true", "epsilon = 1")
    _carriers(tmp_path, numbers.replace("= 1", '= ""') + PLACES.replace('tiers = ["basic"]', 'epsilon = ""'))
    told = _commanded(tmp_path / "fleet.csv", tmp_path / "fleet.toml", "error", tmp_path / "f")
    assert "Only telemetry was advised on." in told
    assert "Still blank: places." in told
    onward = f"dunnage advise {tmp_path}/fleet.csv --policy {tmp_path}/f/policy.toml --goal error -o NEXT"
    assert onward in told
    first = BasePolicy.read(tmp_path / "f" / "policy.toml")
    assert first.blank_kinds == ("places",)
    told = _commanded(tmp_path / "fleet.csv", tmp_path / "f" / "policy.toml", "error", tmp_path / "g")
    assert "Only places was advised on." in told
    assert "As they were: telemetry." in told
    assert f"dunnage device task {tmp_path}/g/policy.toml -o TASK.json" in told
    made = read_task(tmp_path / "g" / "policy.toml")
    assert made.purposes[0].tiers[0].epsilon == first.document["mechanisms"]["telemetry"]["epsilon"]


def test_too_few_vehicles_for_any_map_are_told_at_once(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "DEVICES", DEVICES.replace("levels = 3", "levels = 6"))
    duties = PLACES + NUMBERS.replace("as_published = true\n", "")
    case = _carriers(tmp_path, duties, size=2)
    goal = goal_of("error", case.request.base)
    with pytest.raises(Refusal, match=r"About [\d,]+ are needed at least") as error:
        goal.candidates(case)
    needed = int(str(error.value).split("About ")[1].split(" ")[0].replace(",", ""))
    assert 2 < needed < 100_000
    assert goal.candidates(_carriers(tmp_path, duties, size=needed))[0]


def test_coarser_cells_hold_the_cells_inside_them():
    fine, coarse = (Grid(box=("9.0", "48.0", "9.4", "48.2"), levels=levels) for levels in (4, 2))
    laws = [LocalLocation(grid=grid, epsilon=1) for grid in (fine, coarse)]
    rng = np.random.default_rng(1)
    places = 8.98 + 0.44 * rng.random(500), 47.99 + 0.22 * rng.random(500)
    shares = [
        np.bincount(find_inputs(law.channel("all"), law.grid, *places), minlength=law.grid.num_cells + 1)
        for law in laws
    ]
    np.testing.assert_array_equal(shares[0][:-1].reshape(4, -1).sum(axis=1), shares[1][:-1])
    spread = vehicles._spread(shares[1] / 500, coarse, fine)
    assert spread.sum() == pytest.approx(1)
    np.testing.assert_allclose(spread[:-1].reshape(4, -1).sum(axis=1), shares[1][:-1] / 500)


def test_the_risk_on_a_coarser_grid_is_that_of_naming_a_cell_of_the_policy(tmp_path):
    """Bayes by brute force: all pairs of reports, and every cell of the policy's grid as a guess."""
    case = _carriers(tmp_path, PLACES + NUMBERS.replace("as_published = true\n", ""))
    drawn = measure_fleet(case, _chosen(case, "places: auto epsilon=2, 2 levels"))
    grid = Grid(box=("9.0", "48.0", "9.4", "48.2"), levels=2)
    matrix = channel_matrix(LocalLocation(grid=grid, epsilon=2).channel("all"))
    rows = np.vstack([np.repeat(matrix[:-1], 4, axis=0), matrix[-1:]])  # of the 16 cells, and of outside
    joint = (rows[:, :, None] * rows[:, None, :]).reshape(17, -1) / 17
    assert drawn.risk == pytest.approx(joint.max(axis=0).sum())


def test_a_map_that_would_be_noise_is_refused(tmp_path):
    case = _carriers(tmp_path, PLACES + NUMBERS.replace("as_published = true\n", ""), size=20)
    with pytest.raises(Refusal, match="noise"):
        measure_fleet(case, _chosen(case, "places: auto epsilon=0.5"))
    with pytest.raises(ParameterError, match="path"):
        open_fleet(replace(case.request, data=pa.table({"vehicle": ["a"]})))
