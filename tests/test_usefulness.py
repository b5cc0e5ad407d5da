# SPDX-License-Identifier: Apache-2.0
"""How useful counts of trips will be: predicted from public facts, refused if they are noise."""

from __future__ import annotations

import csv
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest
from tests.builders import RIDERS, WEEKDAYS, a_trip_policy, trips
from tests.commands import fine, run, snapshot
from tests.counts_help import counted, universe
from tests.refusals import refusal

import dunnage as dn
from dunnage.mechanisms.counts import DrawnCounts, true_counts
from dunnage.model.certificate import ExpectedError, LevelError
from dunnage.planning.fleet import _notes
from dunnage.publishing import _spread_warnings, mechanism_of, owner_warnings, predicted
from dunnage.samples.shape import like
from dunnage.showing.text import usefulness_lines
from dunnage.usefulness import MAX_TRIPS, Usefulness, level_errors, levels_of, predict_usefulness

CONSTRAINED = {"name": "constrained-counts", "epsilon": 0.5, "features": "O3"}
STOP = {"role": "quasi-identifier", "kind": "stop"}
NUM_ZONES, MINUTES = 4, 30


def bike_policy(
    folder: Path, num_stops: int, expect: int | None, mechanism: dict[str, Any], ranks: Any = None, **trip: str
) -> dn.Policy:
    """Make a policy for a day of trips between stops in four zones, or in zones by rank; write its list of stops."""
    zones = [i % NUM_ZONES if ranks is None else ranks[i] * NUM_ZONES // num_stops for i in range(num_stops)]
    stops = "".join(f"s{i},z{zone}\n" for i, zone in enumerate(zones))
    (folder / "stops.csv").write_text(f"stop,zone\n{stops}")
    time = {"role": "quasi-identifier", "kind": "time", "window_minutes": MINUTES, "domain": ["00:00", "24:00"]}
    document: dict[str, Any] = {
        "dataset": "bikes",
        "protects": "trip",
        "trip": {"origin": "from", "destination": "to", "time": "at", **trip},
        "attributes": {"from": STOP, "to": STOP, "at": time},
        "city": {"stops": "stops.csv"},
        "mechanism": mechanism,
        "expect": {"dates": 1, **({} if expect is None else {"trips": expect})},
    }
    return dn.Policy.from_dict(document, path=folder / "policy.toml")


def bikes(num_stops: int, num_trips: int) -> pa.Table:
    """Make trips as skewed and sparse as those of shared bikes, by another model than the prediction's."""
    draw = np.random.default_rng(5)
    from_stop, to_stop = draw.lognormal(0, 1.1, (2, num_stops))
    pairs = np.outer(from_stop, to_stop) * draw.lognormal(0, 1, (num_stops, num_stops))
    chosen = draw.choice(num_stops**2, num_trips, p=pairs.reshape(-1) / pairs.sum())
    minutes = np.where(draw.random(num_trips) < 0.5, draw.normal(500, 90, num_trips), draw.normal(1050, 150, num_trips))
    minutes = np.clip(minutes, 0, 1439).astype(int)
    return pa.table(
        {
            "from": [f"s{pair // num_stops}" for pair in chosen],
            "to": [f"s{pair % num_stops}" for pair in chosen],
            "at": [f"{minute // 60:02d}:{minute % 60:02d}" for minute in minutes],
        }
    )


def true_errors(data: dn.Dataset, draws: int = 3) -> dict[str, float]:
    """Measure the errors that were predicted: those of real releases of these rows."""
    truth, mechanism = true_counts(data), mechanism_of(data.policy)
    levels, prepared = levels_of(truth.universe), mechanism.prepare(data)
    drawn = [mechanism.draw_counts(truth, prepared, dn.Noise(seed=seed)) for seed in range(draws)]
    errors = np.mean([level_errors(truth, one, levels.values()) for one in drawn], axis=0)
    return dict(zip(levels, errors.tolist(), strict=True))


def usefulness_of(policy: dn.Policy, *, helpful: bool = False) -> Usefulness:
    result = predict_usefulness(policy, mechanism_of(policy), helpful=helpful)
    assert result is not None
    return result


def test_errors_by_level_are_those_of_adding_up_by_hand():
    of, draw = universe(4, 3, city=True), np.random.default_rng(1)
    true, released = draw.integers(0, 3, (2, of.num_cells)) * (draw.random((2, of.num_cells)) < 0.3)
    table = counted(of, released)
    errors = level_errors(
        counted(of, true), DrawnCounts(cells=table.cells, counts=table.counts, figures={}), levels_of(of).values()
    )
    assert of.city is not None
    assert of.city.zones is not None
    keys: dict[str, Any] = {
        "stop pairs by window": lambda o, d, w: (o, d, w),
        "stop pairs": lambda o, d, w: (o, d),
        "zone pairs by window": lambda o, d, w: (of.city.zones[o], of.city.zones[d], w),
        "zone pairs": lambda o, d, w: (of.city.zones[o], of.city.zones[d]),
        "windows": lambda o, d, w: w,
        "total": lambda o, d, w: 0,
    }
    assert list(levels_of(of)) == list(keys)
    for key, error in zip(keys.values(), errors, strict=True):
        sums: dict[Any, int] = {}
        for cell in range(of.num_cells):
            group = key(cell // 4 % 4, cell % 4, cell // 16)
            sums[group] = sums.get(group, 0) + int(released[cell] - true[cell])
        assert error == pytest.approx(sum(map(abs, sums.values())) / true.sum())


def test_an_empty_table_has_an_error_of_one_at_every_level():
    of = universe(3, 2, city=True)
    truth, nothing = counted(of, [2, 0, 1] * 6), np.zeros(0, dtype=np.int64)
    empty = DrawnCounts(cells=nothing, counts=nothing, figures={})
    assert level_errors(truth, empty, levels_of(of).values()) == [1.0] * len(levels_of(of))


@pytest.mark.usefixtures("_rough_predictions")
def test_millions_of_types_are_refused_and_the_remedy_is_closer_to_the_truth_than_nothing(tmp_path):
    """With 3.5 million types and 29,497 trips, nearly all released trips were of types that nobody travelled."""
    policy = bike_policy(tmp_path, 270, 29_497, CONSTRAINED)
    data, ledger = dn.Dataset.from_table(bikes(270, 29_497), policy), dn.Ledger(":memory:")
    assert data.schema.universe().num_cells == 3_499_200
    error = refusal(dn.Refusal, dn.publish, data, ledger=ledger, out=tmp_path / "release")
    assert error.exit_code == 2
    assert 'level = "zone"' in str(error)
    assert "--allow-noise" in str(error)
    assert not ledger.datasets()
    assert not (tmp_path / "release").exists()
    assert true_errors(data, draws=1)["stop pairs by window"] >= 1
    coarser = bike_policy(tmp_path, 270, 29_497, CONSTRAINED, level="zone")
    release, _ = dn.publish(data.under(coarser), ledger=ledger)
    assert true_errors(data.under(coarser))["zone pairs by window"] < 0.9
    assert not release.certificate.counts.expected.is_noise


@pytest.mark.parametrize(
    "mechanism",
    [
        {"name": "constrained-counts", "epsilon": 1, "features": "O3"},
        {"name": "constrained-counts", "epsilon": 0.5, "features": "O3", "budget_shares": "margins"},
        {"name": "hierarchical-counts", "epsilon": 1, "features": "H3"},
        {"name": "noisy-counts", "epsilon": 1},
    ],
    ids=lambda mechanism: "-".join(map(str, mechanism.values())),
)
def test_predicted_errors_are_near_the_true_ones(mechanism, tmp_path):
    """Between zones and in sums the truth is dense enough for any model of demand; between stops it is noise."""
    table = bikes(60, 5_000)
    for level in ("stop", "zone"):
        policy = bike_policy(tmp_path, 60, 5_000, mechanism, level=level)
        result, truth = usefulness_of(policy), true_errors(dn.Dataset.from_table(table, policy))
        assert result.is_noise == (level == "stop") == (next(iter(truth.values())) >= 0.8)
        for item in result.expected.levels:
            if item.level.startswith("zone" if level == "zone" else "windows"):
                assert truth[item.level] / 2 <= item.error <= 2 * truth[item.level], item


def test_sums_that_nobody_measured_are_not_called_useful_in_a_city_with_a_centre(tmp_path):
    """Zone pairs of taxis in New York were predicted to be off by 24.6 % and "useful"; in truth it was 132 %."""
    table = bikes(60, 5_000)
    starts = table["from"].to_pylist()
    ranks = np.argsort(np.argsort([-starts.count(f"s{i}") for i in range(60)]))  # the busiest stops are in one zone
    for mechanism, is_noise in ((CONSTRAINED, True), ({**CONSTRAINED, "features": "O4"}, False)):
        policy = bike_policy(tmp_path, 60, 5_000, mechanism, ranks)
        result, truth = usefulness_of(policy), true_errors(dn.Dataset.from_table(table, policy))
        for item in result.expected.levels:
            if item.level.startswith("zone"):
                assert truth[item.level] / 2 <= item.error <= 2 * truth[item.level], item
        assert ("zone pairs" in result.message) != is_noise


@pytest.mark.usefixtures("_rough_predictions")
def test_public_facts_alone_decide(tmp_path):
    policy = bike_policy(tmp_path, 20, 200, CONSTRAINED)
    table = bikes(20, 200)
    messages = {
        str(refusal(dn.Refusal, dn.publish, dn.Dataset.from_table(rows, policy), ledger=dn.Ledger(":memory:")))
        for rows in (table, table.slice(0, 0))
    }
    assert len(messages) == 1


def test_noise_can_be_allowed_and_the_release_says_so(tmp_path):
    policy = bike_policy(tmp_path, 60, 2_000, CONSTRAINED)
    data = dn.Dataset.from_table(bikes(60, 2_000), policy)
    release, _ = dn.publish(data, ledger=dn.Ledger(":memory:"), out=tmp_path / "release", allow_noise=True)
    expected = release.certificate.counts.expected
    assert expected.is_noise
    assert expected.trips == 2_000
    assert dn.verify(tmp_path / "release").ok
    for name in ("README.md", "certificate.html"):
        assert "These counts are noise" in (tmp_path / "release" / name).read_text(), name
    again = dn.Release.read(tmp_path / "release").certificate.counts.expected
    assert [item.verdict for item in again.levels] == [item.verdict for item in expected.levels]
    assert "NOISE" in run("show", tmp_path / "release").out


def test_useful_counts_state_their_predicted_error(tmp_path):
    policy = bike_policy(tmp_path, 60, 20_000, {**CONSTRAINED, "epsilon": 1}, level="zone")
    data = dn.Dataset.from_table(bikes(60, 20_000), policy)
    release, _ = dn.publish(data, ledger=dn.Ledger(":memory:"), out=tmp_path / "release")
    levels = release.certificate.counts.expected.levels
    assert [item.level for item in levels] == ["zone pairs by window", "zone pairs", "windows", "total"]
    assert [item.sums for item in levels] == [16 * 48, 16, 48, 1]
    assert dn.verify(tmp_path / "release").ok
    assert owner_warnings(data) == ()


def test_without_an_expectation_nothing_is_refused_but_the_owner_is_warned(tmp_path):
    data = dn.Dataset.from_table(bikes(60, 2_000), bike_policy(tmp_path, 60, None, CONSTRAINED))
    (warning,) = owner_warnings(data)
    assert "[expect]" in warning
    run_through = dn.rehearse(data, ledger=dn.Ledger(":memory:"))
    assert run_through.usefulness is None
    assert run_through.foresight.warnings == (warning,)
    release, _ = dn.publish(data, ledger=dn.Ledger(":memory:"))
    assert "expected" not in release.certificate.plain()["measures"]


def test_the_owner_is_warned_of_rows_that_differ_from_the_expectation(tmp_path):
    def warnings(expect: int, num_trips: int) -> tuple[str, ...]:
        policy = bike_policy(tmp_path, 60, expect, {**CONSTRAINED, "epsilon": 8}, level="zone")
        return owner_warnings(dn.Dataset.from_table(bikes(60, num_trips), policy))

    assert not warnings(2_000, 1_500)
    for expect, trips_in_file in ((2_000, 900), (2_000, 4_100)):
        assert f"{trips_in_file:,}" in warnings(expect, trips_in_file)[0]
    # A workload that begins with coarser sums is compared at the level of types all the same.
    policy = bike_policy(tmp_path, 8, 4_000, {"name": "fitted-counts", "epsilon": 8})
    dry = dn.rehearse(dn.Dataset.from_table(bikes(8, 4_000), policy), ledger=dn.Ledger(":memory:"))
    assert dry.usefulness.expected.levels[0].level == "stop pairs"
    assert not dry.foresight.warnings
    # Each trip is of a type of its own: far thinner than usual.
    policy = bike_policy(tmp_path, 30, 20_000, {"name": "noisy-counts", "epsilon": 8})
    every = [(a, b, minute) for a in range(30) for b in range(30) for minute in range(0, 660, 30)]
    table = pa.table(
        {
            "from": [f"s{a}" for a, _, _ in every],
            "to": [f"s{b}" for _, b, _ in every],
            "at": [f"{minute // 60:02d}:{minute % 60:02d}" for *_, minute in every],
        }
    )
    dry = dn.rehearse(dn.Dataset.from_table(table, policy), ledger=dn.Ledger(":memory:"))
    assert not dry.usefulness.is_noise
    assert len(dry.foresight.warnings) == (dry.usefulness.expected.levels[0].trips > 2)


DAYS = {"day": "date", "dates": ["2026-11-09", "2026-11-22"], "zone": "Europe/Madrid"}
CLOCK_CHANGE = {"domain": ["01:00", "04:00"], "dates": ["2026-10-25", "2026-10-25"], "zone": "Europe/Madrid"}


@pytest.mark.usefixtures("_rough_predictions")
@pytest.mark.parametrize(
    ("time", "more"),
    [
        ({}, {}),
        (WEEKDAYS, {}),
        (DAYS, {}),
        (CLOCK_CHANGE, {}),
        (DAYS, {**RIDERS, "contribution": {"person": "card", "max": 1, "per": "day"}}),
        ({"day": "day-type"}, RIDERS),
        ({}, {"period": {"length": "day", "column": "at"}}),
        ({}, {"period": {"length": "month", "column": "month"}, "attributes": {"month": {"role": "drop"}}}),
    ],
    ids=["plain", "weekday", "date", "clock change", "rider a day", "rider", "period", "period of its own"],
)
def test_every_kind_of_policy_can_be_predicted(time, more):
    mechanism = {"name": "constrained-counts", "epsilon": 1, "features": "O4"}
    policy = a_trip_policy(mechanism, time, expect={"trips": 500}, **more)
    period = {"day": "2026-11-09", "month": "2026-11"}.get(more.get("period", {}).get("length"))
    result = predict_usefulness(policy, mechanism_of(policy), period=period)
    assert result is not None
    days = len(policy.schema.universe(period).days) > 1
    assert result.expected.levels[0].level == f"stop pairs by {'day and ' if days else ''}window"
    assert result.expected.levels[0].sums == policy.schema.universe(period).num_cells
    assert result.expected.levels[-1].level == "total"


def test_many_trips_are_predicted_for_the_busiest_hours(tmp_path):
    policy = bike_policy(tmp_path, 30, 20 * MAX_TRIPS, {**CONSTRAINED, "epsilon": 1})
    expected = usefulness_of(policy).expected
    assert not expected.is_noise
    assert expected.hours is not None
    assert expected.levels[0].sums == 30 * 30 * 48
    # Sums over the whole day also have the errors of quiet hours: a total was predicted at 4.7 % and was 12.8 % off.
    assert [item.level for item in expected.levels] == ["stop pairs by window", "zone pairs by window", "windows"]


def test_trips_spread_as_predicted_are_no_surprise(tmp_path):
    """The workload of fitted-counts begins with stop pairs, which have more trips than the released types."""
    policy = bike_policy(tmp_path, 12, 8_000, {"name": "fitted-counts", "epsilon": 1})
    usefulness = usefulness_of(policy)
    assert usefulness.expected.levels[0].level == "stop pairs"
    even, thin = like(policy, 8_000, seed=3), like(policy, 300, seed=3)
    assert list(_spread_warnings(even, usefulness)) == []
    assert len(list(_spread_warnings(thin, usefulness))) == 1


def test_a_city_without_zones_is_told_to_make_some(tmp_path):
    policy = bike_policy(tmp_path, 90, 8_000, CONSTRAINED)
    (tmp_path / "stops.csv").write_text("stop\n" + "".join(f"s{i}\n" for i in range(90)))
    result = usefulness_of(dn.Policy.from_dict(policy.document, path=policy.path), helpful=True)
    assert result.is_noise
    changes = [remedy.change for remedy in result.remedies]
    assert any("column zone" in change for change in changes)
    assert all(remedy.level.error < 0.9 for remedy in result.remedies)


def test_rough_counts_say_what_would_make_them_good(tmp_path):
    policy = bike_policy(tmp_path, 8, 4_000, {**CONSTRAINED, "epsilon": 1})
    result = predict_usefulness(policy, mechanism_of(policy), bounds=True)
    assert result is not None
    assert result.expected.levels[0].verdict == "rough"
    assert result.remedies
    assert all(remedy.level.verdict == "good" for remedy in result.remedies)
    assert result.remedies[0].change in "\n".join(usefulness_lines(result))


def test_rough_counts_point_only_to_sums_that_are_good():
    """Nobody was helped by "look only at coarser sums" where the total was off by 37 % too."""
    for error, named in ((0.05, True), (0.37, False)):
        levels = [LevelError(level="zone pairs", sums=36, trips=519, error=0.37)]
        levels.append(LevelError(level="total", sums=1, trips=18_000, error=error))
        lines = usefulness_lines(Usefulness(expected=ExpectedError(trips=18_000, levels=levels)))
        assert ("total" in lines[-1]) == named


def test_fleets_say_so_if_the_single_counts_that_they_simulate_are_noise():
    """Stop pairs over the whole day came first in the workload, and were only rough."""
    levels = [LevelError(level="stop pairs", sums=400, trips=1.9, error=0.4)]
    levels.append(LevelError(level="stop pairs by window", sums=9_600, trips=1.5, error=1.5))
    expected = ExpectedError(trips=18_000, levels=levels)
    assert not expected.is_noise
    release = SimpleNamespace(certificate=SimpleNamespace(counts=SimpleNamespace(expected=expected)))
    first, *_ = _notes(release, SimpleNamespace(served=()), None)
    assert "noise" in first


def test_generated_riders_make_no_more_trips_than_a_week_has_room_for(tmp_path):
    """A tenth of them made over 20 trips in five days, so a bound that dropped 0.6 % was predicted to drop 37 %."""
    document = bike_policy(tmp_path, 12, 9_000, {**CONSTRAINED, "epsilon": 1}).document
    document |= {"protects": "rider", "contribution": {"person": "card", "max": 10, "per": "period"}}
    document["attributes"] |= {"card": {"role": "identifier"}}
    document["expect"] |= {"dates": 5, "riders": 1_750}
    made = like(dn.Policy.from_dict(document, path=tmp_path / "policy.toml"), 9_000, 3)
    trips = np.bincount(np.asarray(made.persons))
    assert trips.sum() == 9_000
    assert 0.02 < np.maximum(trips - 10, 0).sum() / 9_000 < 0.22
    assert trips.max() < 35


@pytest.mark.usefixtures("_rough_predictions")
def test_changes_are_combined_if_none_helps_alone(tmp_path):
    result = usefulness_of(bike_policy(tmp_path, 20, 300, {**CONSTRAINED, "epsilon": 0.05}), helpful=True)
    assert result.is_noise
    assert len(result.remedies) <= 1
    assert all(";" in remedy.change for remedy in result.remedies)
    hopeless = usefulness_of(bike_policy(tmp_path, 20, 1, {**CONSTRAINED, "epsilon": 0.0001}), helpful=True)
    assert not hopeless.remedies
    assert "do not help" in hopeless.message


@pytest.mark.usefixtures("_rough_predictions")
def test_commands_refuse_noise_and_write_nothing(tmp_path, monkeypatch):
    policy = bike_policy(tmp_path, 20, 400, {**CONSTRAINED, "epsilon": 0.25})
    (tmp_path / "policy.toml").write_text(policy.to_toml())
    pacsv.write_csv(bikes(20, 400), tmp_path / "trips.csv")
    monkeypatch.chdir(tmp_path)
    before = snapshot(tmp_path)
    publish = "publish trips.csv --policy policy.toml"
    run(f"{publish} -o release").refused("noise")
    dry = run(f"{publish} --dry-run")
    assert dry.code == 0
    assert "NOISE" in dry.out
    assert "NOISE" in run("show policy.toml").out
    told = fine(f"{publish} --dry-run")["usefulness"]
    assert told["noise"]
    assert told["levels"][0]["verdict"] == "noise"
    assert told["remedies"]
    left = {name: content for name, content in snapshot(tmp_path).items() if "ledger" not in name}
    assert left == before
    assert fine(f"{publish} -o release --allow-noise")["release"] == "release"


@pytest.mark.data
def test_real_taxis(data_folder, tmp_path):
    """Trips between 213 places of New York, in 5 boroughs and 24 hours: noise by place, good by borough."""
    table = pacsv.read_csv(data_folder / "nyc_taxis_seaborn" / "taxis.csv")
    known = [row for row in table.to_pylist() if row["pickup_zone"] and row["dropoff_zone"]]
    zones = {row[f"{end}_zone"]: row[f"{end}_borough"] for row in known for end in ("pickup", "dropoff")}
    rows = pa.table(
        {
            "from": [row["pickup_zone"] for row in known],
            "to": [row["dropoff_zone"] for row in known],
            "at": [row["pickup"].strftime("%H:%M") for row in known],
        }
    )
    for level in ("stop", "zone"):
        policy = bike_policy(tmp_path, 9, 6_400, {**CONSTRAINED, "features": "O3"}, level=level)
        with (tmp_path / "stops.csv").open("w", newline="") as file:
            csv.writer(file).writerows([("stop", "zone"), *sorted(zones.items())])
        policy = dn.Policy.from_dict(policy.document, path=policy.path)
        data = dn.Dataset.from_table(rows, policy)
        truth, result = true_errors(data), predicted(data, helpful=False)
        assert result is not None
        assert result.is_noise == (level == "stop") == (next(iter(truth.values())) >= 0.8)
        for item in result.expected.levels:
            if level == "zone" and item.level != "total":
                assert truth[item.level] / 2 <= item.error <= 2 * truth[item.level], item


def test_rows_of_the_town_are_not_what_is_refused():
    """A few trips under a policy without an expectation are published as before."""
    policy = a_trip_policy({"name": "noisy-counts", "epsilon": 1}, {"day": "weekday"})
    release, _ = dn.publish(dn.Dataset.from_table(trips(), policy), ledger=dn.Ledger(":memory:"))
    assert release.certificate.counts.expected is None
