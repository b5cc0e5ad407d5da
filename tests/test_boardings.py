# SPDX-License-Identifier: Apache-2.0
"""Boardings: trips whose destination nobody knows, from a file to a checked release."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.commands import fine, rows, run, snapshot
from tests.refusals import refusal
from tests.verify_page_help import examined

import dunnage as dn
from dunnage.errors import ParameterError
from dunnage.mechanisms.counts import Feature, kept_rows, read_features, record_cells, true_counts
from dunnage.model.draft import draft_policy, likely_story
from dunnage.model.trips import Universe
from dunnage.noise.source import Noise
from dunnage.usefulness import levels_of

STOPS = [f"S{number}" for number in range(6)]
HOURS = range(6, 12)


def boardings(path: Path, num: int = 900) -> Path:
    lines = [
        f"c{row % 200},{STOPS[row * row % 7 % 6]},2026-11-16 {HOURS[row % 5]:02}:{row % 60:02}" for row in range(num)
    ]
    path.write_text("\n".join(["card,boarding_stop,tap_time", *lines]) + "\n")
    return path


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of boardings, its stops, and the draft with every blank filled in."""
    monkeypatch.chdir(tmp_path)
    boardings(Path("taps.csv"))
    zones = [f"{stop},{'east' if number % 2 else 'west'}" for number, stop in enumerate(STOPS)]
    Path("stops.csv").write_text("\n".join(["stop,zone", *zones]) + "\n")
    fine("draft taps.csv -o draft.toml")
    filled = {
        'epsilon = "" ': "epsilon = 2 ",
        'role = "" ': 'role = "identifier" ',
        "domain = [] ": 'domain = ["06:00", "12:00"] ',
        'stops = "" ': 'stops = "stops.csv" ',
        'dates = "" ': "dates = 1 ",
        'trips = "" ': "trips = 1000 ",
    }
    text = Path("draft.toml").read_text()
    for blank, value in filled.items():
        assert blank in text
        text = text.replace(blank, value)
    Path("policy.toml").write_text(text)
    return tmp_path


def test_from_a_file_to_a_checked_release(place: Path) -> None:
    run("publish taps.csv --policy policy.toml -o release --dry-run", code=0)
    assert "stops by window" in run("show policy.toml", code=0).out
    fine("publish taps.csv --policy policy.toml --ledger ledger.db -o release")
    listed = rows("release/data.csv")
    assert list(listed[0]) == ["origin", "window", "count"]
    assert abs(sum(int(row["count"]) for row in listed) - 900) < 150
    measures = json.loads(Path("release/certificate.json").read_text())["measures"]
    assert measures["cells"] == len(STOPS) * len(HOURS)
    run("verify release", code=0)
    assert examined(Path("release"))["ok"]
    readme = Path("release/README.md").read_text()
    assert "where they end is not known" in readme
    assert "destination" not in readme
    assert "36 types" in run("show release", code=0).out
    fine("audit release taps.csv --policy policy.toml -o audit")


def test_the_bound_of_riders_holds(place: Path) -> None:
    text = Path("policy.toml").read_text().replace('protects = "trip"', 'protects = "rider"')
    Path("riders.toml").write_text(text + '\n[contribution]\nperson = "card"\nmax = 2\nper = "period"\n')
    fine("publish taps.csv --policy riders.toml --ledger ledger.db -o release --allow-noise")
    assert "for at most 2 trips of a rider" in run("verify release", code=0).out
    data = dn.load("taps.csv", policy="riders.toml")
    kept = kept_rows(data, Noise(seed=1))
    assert data.persons is not None
    assert np.bincount(data.persons[kept]).max() == 2


def test_no_fleet_without_destinations(place: Path) -> None:
    fine("publish taps.csv --policy policy.toml --ledger ledger.db -o release")
    fine("generate city -o city --stops 40 --zones 2")
    before = snapshot(place)
    run("size release --city city -o plan").refused("boardings have no destination")
    assert snapshot(place) == before
    run("advise taps.csv --policy policy.toml --goal shuttles --city city -o found").refused("no destination")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('name = "noisy-counts"', 'name = "fitted-counts"', "boardings have no destination"),
        ('name = "noisy-counts"', 'name = "constrained-counts"\nfeatures = [["destination"]]', "boardings have none."),
        ('origin = "boarding_stop"', 'origin = "nowhere"', "nowhere"),
        ('origin = "boarding_stop"', 'origin = "tap_time"', "different columns"),
        ('# destination = ""', 'destination = ""', "blank"),
    ],
)
def test_bad_policies_are_refused(place: Path, old: str, new: str, says: str) -> None:
    Path("bad.toml").write_text(Path("policy.toml").read_text().replace(old, new))
    before = snapshot(place)
    run("publish taps.csv --policy bad.toml --ledger ledger.db -o release").refused(says)
    assert snapshot(place) == before


def test_bad_rows_and_noise_are_refused(place: Path) -> None:
    Path("stray.csv").write_text(Path("taps.csv").read_text() + "c1,S99,2026-11-16 07:00\n")
    run("publish stray.csv --policy policy.toml --ledger ledger.db -o release").refused("row 901")
    Path("few.toml").write_text(Path("policy.toml").read_text().replace("epsilon = 2 ", "epsilon = 0.01 "))
    run("publish taps.csv --policy few.toml --ledger ledger.db -o release").refused("errors of stops by window")
    assert not Path("release").exists()


def test_a_release_with_another_policy_is_named(place: Path) -> None:
    fine("publish taps.csv --policy policy.toml --ledger ledger.db -o release")
    text = Path("taps.csv").read_text().replace("tap_time\n", "tap_time,off\n")
    head, *lines = text.splitlines()
    Path("both.csv").write_text("\n".join([head, *(f"{line},S1" for line in lines)]) + "\n")
    attribute = '[attributes.off]\nrole = "quasi-identifier"\nkind = "stop"\n'
    pairs = Path("policy.toml").read_text().replace('# destination = ""', 'destination = "off" #') + attribute
    Path("pairs.toml").write_text(pairs)
    run("audit release both.csv --policy pairs.toml -o audit").refused("other destinations")


def test_one_boarding_changes_one_cell_and_one_sum_of_each_feature(place: Path) -> None:
    data = dn.load("taps.csv", policy="policy.toml")
    universe, counted = data.schema.universe(data.period), true_counts(data)
    assert universe.num_cells == universe.num_pairs * universe.num_slots == 36
    every = np.ones(len(data), dtype=bool)
    for row in (0, 17, 899):
        every[row] = False
        fewer = np.zeros(36, dtype=np.int64)
        for table, sign in ((counted, 1), (true_counts(data, rows=every), -1)):
            np.add.at(fewer, table.cells, sign * table.counts)
        assert fewer.sum() == np.abs(fewer).sum() == 1
        assert fewer[record_cells(data, universe)[row]] == 1
        for columns in ((), *read_features("O5", days=False, ends=universe.ends), universe.cell_columns):
            assert np.abs(Feature.of(universe, columns).sums(*universe.split(np.arange(36)), fewer)).sum() == 1
        every[row] = True


def test_a_universe_of_boardings() -> None:
    of = Universe(stops=("a", "b", "c"), windows=("06:00", "07:00"), window_minutes=60, arrives=False)
    assert (of.num_pairs, of.num_cells, of.ends, of.cell_columns) == (3, 6, ("origin",), ("origin", "window"))
    assert of.columns == ("origin", "window")
    again = Universe.from_description(of.describe())
    assert (again.arrives, again.stops, again.num_cells) == (False, of.stops, 6)
    cells = of.cells(np.array([2, 0]), 0, np.array([1, 0]))
    assert cells.tolist() == [5, 0]
    assert of.column_codes("origin", cells).tolist() == [2, 0]
    assert of.column_codes("window", cells).tolist() == [1, 0]
    assert list(levels_of(of)) == ["stops by window", "stops", "windows", "total"]
    assert read_features("O5", days=True, ends=of.ends) == ((), ("day", "window"), ("origin_zone", "day", "window"))
    assert "Name the column of the destination" in str(refusal(ParameterError, Feature.of, of, ("mode",)))


def test_drafts_of_boardings() -> None:
    tables = {"stop": "text", "hour": "time", "boardings": "numeric"}
    assert likely_story(tables) == "trips"
    text = draft_policy("b", tables)
    assert 'origin = "stop"\n# destination' in text
    assert 'count = "boardings"' in text
    assert likely_story({"board_stop": "text", "alight_stop": "text", "time": "time"}) == "trips"
    assert likely_story({"stop": "text", "delivered": "time", "weight": "numeric"}) == "rows"
    assert 'destination = ""' in draft_policy("b", {"when": "time", "x": "text"}, story="trips")


def test_zones_and_modes_for_own_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.csv").write_text("stop,lat,lon\n" + "".join(f"S{n},47.{n},8.{n % 3}\n" for n in range(8)))
    done = fine("generate city -o city --own own.csv --zones 3")
    assert (done["stops"], done["zones"]) == (8, 3)
    assert len({row["zone"] for row in rows("city/stops.csv")}) == 3
    assert len(rows("city/modes.csv")) == 64
    assert fine("generate city -o again --own city")["zones"] == 3
    before = snapshot(tmp_path)
    Path("bare.csv").write_text("stop\nA\nB\n")
    run("generate city -o bare --own bare.csv").refused("lat and lon")
    run("generate city -o bare --own nowhere.csv").refused("nowhere.csv")
    run("generate city -o bare --own own.csv --zones 9").refused("1 to 8 zones")
    run("generate city -o bare --own own.csv --stops 9").refused("--own")
    run("generate city -o bare --own own.csv --gtfs feed.zip").refused("--gtfs cannot be used with --own")
    Path("bare.csv").unlink()
    assert snapshot(tmp_path) == before
