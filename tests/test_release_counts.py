# SPDX-License-Identifier: Apache-2.0
"""Releases of counts as whoever receives them sees them: tables, README, datapackage, show, and what is refused."""

from __future__ import annotations

import json
import math
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import dunnage as dn
from dunnage.cli import app
from dunnage.errors import ParameterError, ReleaseError
from dunnage.kernels.counts.laplace import DiscreteLaplace, FloatingLaplace, FlooredLaplace, RoundedLaplace, surplus
from dunnage.ledger import Ledger
from dunnage.model.domains import Windows
from dunnage.model.laws import count_noise_spread, count_noise_surplus
from dunnage.model.trips import Universe
from dunnage.noise.source import Noise
from dunnage.release import Release
from dunnage.release.kinds.counts import amount
from dunnage.showing import release_text

STOPS = ["Mill", "=Quay", "Hill, east", "Dock", "Ärea", "Old town"]
PLAIN = {"name": "noisy-counts", "epsilon": 2}
TREE = {"name": "hierarchical-counts", "epsilon": 1}
FITTED = {"name": "constrained-counts", "epsilon": 1}
RIDERS = {"protects": "rider", "contribution": {"person": "card", "max": 2, "per": "period"}}


def city(folder: Path) -> dict[str, str]:
    """Write the files of a city: three zones, and a mode for every pair."""
    quoted = [f'"{stop}"' for stop in STOPS]
    zones = "".join(f"{stop},{'NSW'[place % 3]}\n" for place, stop in enumerate(quoted))
    (folder / "stops.csv").write_text(f"stop,zone\n{zones}", encoding="utf-8")
    modes = "".join(f"{a},{b},{'bus' if a < b else 'tram'}\n" for a in quoted for b in quoted)
    (folder / "modes.csv").write_text(f"origin,destination,mode\n{modes}", encoding="utf-8")
    return {"stops": "stops.csv", "modes": "modes.csv"}


def policy_of(folder: Path, mechanism: dict[str, Any], time: dict[str, Any] | None = None, **more: Any) -> dn.Policy:
    """Give a policy for trips; ``time`` adds to what is said of the time, ``more`` to the policy."""
    stop = {"role": "quasi-identifier", "kind": "stop"}
    clock = {"role": "quasi-identifier", "kind": "time", "domain": ["08:00", "10:00"], "window_minutes": 30}
    return dn.Policy.from_dict(
        {
            "dataset": "trips",
            "protects": "trip",
            "trip": {"origin": "from", "destination": "to", "time": "at"},
            "city": city(folder),
            "attributes": {"card": {"role": "identifier"}, "from": stop, "to": stop, "at": {**clock, **(time or {})}},
            "mechanism": mechanism,
            **more,
        },
        path=folder / "trips.toml",
    )


def trips(num: int = 300) -> pa.Table:
    """Make trips between few of the pairs, on the days of a week in November 2026."""
    number = np.arange(num)
    clock = [f"2026-11-{9 + i % 7:02d}T{8 + i % 2:02d}:{i * 7 % 60:02d}" for i in number]
    return pa.table(
        {
            "card": [f"C{i % 40}" for i in number],
            "from": [STOPS[i % 4] for i in number],
            "to": [STOPS[i * i % 6] for i in number],
            "at": clock,
        }
    )


def released(folder: Path, mechanism: dict[str, Any], *, num: int = 300, **more: Any) -> Release:
    """Publish trips in memory."""
    period = more.pop("of_period", None)
    data = dn.load(trips(num), policy_of(folder, mechanism, **more), period=period)
    return dn.publish(data, ledger=Ledger(":memory:"), noise=Noise()).release


def written(release: Release, folder: Path, name: str = "release") -> Path:
    """Write a release without a key."""
    target = folder / name
    target.mkdir()
    release.write_files(target)
    return target


WEEKDAYS = {"day": "weekday", "dates": ["2026-11-09", "2026-11-22"], "zone": "Europe/Madrid"}


def test_counts_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    release = released(tmp_path, PLAIN, time=WEEKDAYS)
    folder = written(release, tmp_path)
    back = Release.read(folder)
    assert back.kind == "counts"
    assert back.data.equals(release.data)
    assert back.data.column_names == ["origin", "destination", "window", "day", "count"]
    assert pq.read_table(folder / "data.parquet").schema.field("count").type == pa.int64()
    assert {path.name for path in folder.iterdir()} == {
        "data.parquet",
        "data.csv",
        "certificate.json",
        "datapackage.json",
        "README.md",
    }
    assert not back.noisy
    assert back.classes is back.members is None
    cells, counts = back.counted()
    assert (np.diff(cells) > 0).all()
    universe = back.universe
    for name in universe.cell_columns:
        labels = np.asarray(universe.labels(name), dtype=object)[universe.column_codes(name, cells)]
        assert labels.tolist() == back.data.column(name).to_pylist()
    assert counts.tolist() == back.data.column("count").to_pylist()


def test_stops_that_a_spreadsheet_would_run_are_quoted_in_csv(tmp_path: Path) -> None:
    folder = written(released(tmp_path, PLAIN), tmp_path)
    text = pacsv.read_csv(str(folder / "data.csv"))
    assert "'=Quay" in text.column("origin").to_pylist()
    assert "=Quay" not in text.column("origin").to_pylist()
    assert dn.verify(folder).ok


@pytest.mark.parametrize(
    ("days", "period"),
    [({}, None), (WEEKDAYS, None), ({"day": "date"}, "2026-11"), ({"dates": ["2026-11-01", "2026-11-30"]}, None)],
)
def test_the_certificate_tells_the_whole_domain(tmp_path: Path, days: dict[str, Any], period: str | None) -> None:
    more = {"period": {"column": "at", "length": "month"}} if period else {}
    release = released(tmp_path, PLAIN, time=days, of_period=period, **more)
    schema = policy_of(tmp_path, PLAIN, days, **more).schema
    told, true = release.universe, schema.universe(period)
    facts = ("stops", "windows", "window_minutes", "days", "num_dates", "time", "num_cells")
    assert all(getattr(told, name) == getattr(true, name) for name in facts)
    assert told.describe() == list(release.certificate.plain()["attributes"])
    window = told.describe()[2]
    assert window["kind"] == "time"
    assert window["domain"]["window_minutes"] == 30
    assert window["domain"]["zone"] == days.get("zone")


def test_a_universe_without_a_service_day_is_described_by_its_windows() -> None:
    universe = Universe(stops=("A", "B"), windows=("08:00", "09:00"), window_minutes=60, days=("x", "y"))
    back = Universe.from_description(json.loads(json.dumps(universe.describe())))
    assert back.describe() == universe.describe()
    assert back.time is None
    wrong = [{**item, "domain": {"kind": "category", "values": ["A"]}} for item in universe.describe()]
    with pytest.raises(ParameterError, match="stops"):
        Universe.from_description(wrong)


def test_a_label_outside_the_domain_is_an_error(tmp_path: Path) -> None:
    release = released(tmp_path, PLAIN)
    data = release.data.set_column(0, "origin", pa.array(["Nowhere"] * len(release)))
    with pytest.raises(ReleaseError, match="origin is not in the public domain"):
        Release(certificate=release.certificate, data=data).counted()


def readme(release: Release, folder: Path) -> str:
    return (written(release, folder) / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("mechanism", [PLAIN, TREE, FITTED], ids=lambda item: str(item["name"]))
def test_the_readme_says_what_the_receiver_needs(tmp_path: Path, mechanism: dict[str, Any]) -> None:
    release = released(tmp_path, mechanism, time=WEEKDAYS)
    text = readme(release, tmp_path)
    measures = release.certificate.plain()["measures"]
    assert "Every other type has a count of 0" in text
    assert f"{measures['trips']:,} trips in all" in text
    assert f"{measures['cells']:,} types of trips" in text
    assert "on all calendar days of a label together" in text
    assert "monday 2, tuesday 2" in text
    assert "local time of Europe/Madrid" in text
    assert "One trip loses at most epsilon" in text
    assert "Send a plan back" not in text
    assert "class" not in text
    assert "`row`" not in text
    assert max(map(len, text.splitlines())) <= 140
    commands = set(re.findall(r"`dunnage (\w+)", text))
    assert commands <= {command.callback.__name__ for command in app.registered_commands if command.callback}
    for item in measures.get("features", []):
        assert f"| {item['feature']} | {item['groups']:,} |" in text


def test_the_readme_says_how_far_the_total_of_plain_noise_is_off(tmp_path: Path) -> None:
    release = released(tmp_path, {**PLAIN, "epsilon": "0.5"})
    text = readme(release, tmp_path)
    made = 0.5 * math.exp(-0.25) * (1 + 1 / math.expm1(0.5)) * release.universe.num_cells
    assert "**Expect the total to be too large.**" in text
    assert f"up to about\n{amount(made)} trips" in text


def test_the_readme_does_not_call_a_total_large_that_a_threshold_may_make_small(tmp_path: Path) -> None:
    text = readme(released(tmp_path, {**PLAIN, "threshold": 3}), tmp_path)
    assert "too large" not in text
    assert "A noisy count of less than 3, noise or not, became 0" in text


@pytest.mark.parametrize(
    ("days", "words"),
    [
        ({}, "on all calendar days that were counted. How many these were is not stated"),
        ({"day": "weekday"}, "on all calendar days of a label together. How many days each label stands for is not"),
        ({"dates": ["2026-11-09", "2026-11-15"]}, "trips on 7 calendar days together"),
        ({"day": "date", "dates": ["2026-11-09", "2026-11-15"]}, "trips on one calendar day."),
    ],
)
def test_the_readme_states_the_unit(tmp_path: Path, days: dict[str, Any], words: str) -> None:
    assert words in readme(released(tmp_path, PLAIN, time=days), tmp_path)


def test_the_readme_of_protected_riders_says_that_trips_were_left_out(tmp_path: Path) -> None:
    release = released(tmp_path, FITTED, **RIDERS)
    text = readme(release, tmp_path)
    assert "One rider loses at most epsilon 1: of each rider at most 2 trips were counted in all." in text
    assert "One trip loses at most epsilon 1." in text
    assert "Of each rider at most 2 trips were counted in all, chosen at random" in text
    shown = release_text(release)
    assert "One rider loses at most epsilon 1: of each rider at most 2 trips were counted in all." in shown


def test_the_readme_of_riders_by_day_says_on_how_many(tmp_path: Path) -> None:
    bound = {"person": "card", "max": 3, "per": "day"}
    monthly = {"period": {"column": "at", "length": "month"}, "of_period": "2026-11"}
    release = released(tmp_path, PLAIN, protects="rider", contribution=bound, **monthly)
    words = "of each rider at most 3 trips a day were counted, on 30 days: 90 in all"
    text = readme(release, tmp_path)
    assert f"One rider loses at most epsilon 2: {words}." in text
    assert f"{words[0].upper()}{words[1:]}, chosen at random" in text
    assert "The period is **2026-11**." in text
    assert words in release_text(release)
    claimed = released(tmp_path, {**PLAIN, "as_published": True}, protects="rider", contribution=bound, **monthly)
    assert f"Riders      {words}" in release_text(claimed)


def test_one_of_a_thing_has_no_ending(tmp_path: Path) -> None:
    clock = {"domain": ["08:00", "08:01"], "window_minutes": 1, "dates": ["2026-11-09", "2026-11-09"], "day": "date"}
    table = trips(1).set_column(3, "at", pa.array(["2026-11-09T08:00"]))
    data = dn.load(table, policy_of(tmp_path, {**PLAIN, "epsilon": 100, "threshold": 1}, clock))
    release = dn.publish(data, ledger=Ledger(":memory:"), noise=Noise()).release
    folder = written(release, tmp_path)
    words = (folder / "README.md").read_text(encoding="utf-8") + release_text(release) + dn.verify(folder).summary()
    assert "6 stops and 1 window, on 1 day or kind of day" in words
    assert "1 of them is listed, with 1 trip in all" in words
    assert "1 window of 1 minute from 08:00, 1 day or kind of day; 1 calendar day in all" in words
    assert "1 trip of 1 type" in words
    assert not re.search(r"\b1 (trips|windows|minutes|days|types)\b", words)


def test_the_snippet_makes_an_origin_destination_matrix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas")
    release = released(tmp_path, {**PLAIN, "threshold": 6})
    folder = written(release, tmp_path)
    (snippet,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(encoding="utf-8"), re.S)
    monkeypatch.chdir(folder)
    found: dict[str, Any] = {}
    exec(snippet, found)
    matrix = found["matrix"]
    assert list(matrix.index) == list(matrix.columns) == STOPS
    true = np.zeros((len(STOPS), len(STOPS)), dtype=np.int64)
    for row in release.data.to_pylist():
        true[STOPS.index(row["origin"]), STOPS.index(row["destination"])] += row["count"]
    assert (matrix.to_numpy() == true).all()


def test_the_datapackage_describes_every_column(tmp_path: Path) -> None:
    folder = written(released(tmp_path, PLAIN, time={"domain": ["08:00", "32:00"]}), tmp_path)
    (resource,) = json.loads((folder / "datapackage.json").read_text(encoding="utf-8"))["resources"]
    fields = {item["name"]: item for item in resource["schema"]["fields"]}
    assert {name: item["type"] for name, item in fields.items()} == {
        "origin": "string",
        "destination": "string",
        "window": "string",
        "count": "integer",
    }
    assert "window of 30 minutes" in fields["window"]["description"]
    assert "from 24:00 on it is the next calendar day" in fields["window"]["description"]


@pytest.mark.parametrize("mechanism", [PLAIN, TREE, FITTED], ids=lambda item: str(item["name"]))
def test_show_says_trips_cells_losses_noise_and_odds(tmp_path: Path, mechanism: dict[str, Any]) -> None:
    release = released(tmp_path, mechanism, time=WEEKDAYS)
    measures, text = release.certificate.plain()["measures"], release_text(release)
    num_trips, listed, cells = (f"{measures[name]:,}" for name in ("trips", "cells_with_trips", "cells"))
    assert f"Trips       {num_trips}, of {listed} of {cells} types" in text
    assert "6 stops, 4 windows of 30 minutes from 08:00, 7 days or kinds of day; 14 calendar days in all" in text
    assert "suspicion becomes at most" in text
    assert f"One trip loses at most epsilon {mechanism['epsilon']}." in text
    assert "One rider loses at most" in text
    for item in measures.get("features", []):
        assert f"Noise       {item['feature']}: epsilon" in text
    assert len(text.splitlines()) < 45


def test_nothing_is_said_of_losses_that_are_not_proved(tmp_path: Path) -> None:
    release = released(tmp_path, {**FITTED, "as_published": True})
    assert "loses at most" not in release_text(release)
    assert "loses at most" not in readme(release, tmp_path)


def test_a_release_without_any_trip_is_one(tmp_path: Path) -> None:
    release = released(tmp_path, {**PLAIN, "threshold": 10**6}, num=1)
    assert len(release) == 0
    folder = written(release, tmp_path)
    assert dn.verify(folder).ok
    assert Release.read(folder).counted()[0].tolist() == []
    assert "Trips       0, of 0 of 144 types" in release_text(release)


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(5), Fraction(700)])
def test_spread_of_noise_is_that_of_its_law(scale: Fraction) -> None:
    # A second statement: sums over the law itself, as the difference of two geometric numbers or a rounded number.
    reach = np.arange(-40 * int(scale + 1), 40 * int(scale + 1) + 1)
    ratio = math.exp(-1 / scale)
    chances = {"discrete": (1 - ratio) / (1 + ratio) * ratio ** np.abs(reach)}
    for name, shift in (("round", 0.5), ("floor", 0.0)):
        ends = (np.append(reach, reach[-1] + 1) - shift) / float(scale)
        below = np.where(ends < 0, 0.5 * np.exp(-np.abs(ends)), 1 - 0.5 * np.exp(-np.abs(ends)))
        chances[name] = np.diff(below)
    for law in (DiscreteLaplace, RoundedLaplace, FlooredLaplace):
        second_moment = float((chances[law.name] * reach**2).sum())
        assert law(scale).spread == count_noise_spread(law.name, scale) == pytest.approx(math.sqrt(second_moment))
        for threshold in (1, 4):
            above = reach >= threshold
            assert law(scale).above(threshold) == pytest.approx(float(chances[law.name][above].sum()), rel=1e-6)
            gain = float((chances[law.name] * reach)[above].sum())
            assert surplus(law(scale), threshold) == pytest.approx(gain, rel=1e-6)
    assert FloatingLaplace(scale).spread == pytest.approx(math.sqrt(2) * float(scale))


@pytest.mark.parametrize("rounding", ["round", "floor"])
@pytest.mark.parametrize(("scale", "threshold"), [(0.5, 1), (2.0, 1), (2.0, 5), (1.0, 12), (6.0, 4)])
def test_no_cell_gains_more_than_one_without_trips(rounding: str, scale: float, threshold: int) -> None:
    ends = np.arange(-400, 401)
    lower = ends - (0.5 if rounding == "round" else 0.0)

    def below(x: Any) -> Any:
        return np.where(x < 0, 0.5 * np.exp(-np.abs(x) / scale), 1 - 0.5 * np.exp(-np.abs(x) / scale))

    chance = below(lower + 1) - below(lower)
    gains = [float(((c + ends >= threshold) * (c + ends) * chance).sum()) - c for c in range(30)]
    assert gains[0] == pytest.approx(count_noise_surplus(rounding, Fraction(scale), threshold), rel=1e-6)
    assert max(gains) == gains[0]


def test_amounts_are_short() -> None:
    assert [amount(value) for value in (0.123456, 99.96, 1234.5)] == ["0.123", "100", "1,234"]


def run(*arguments: Any) -> Any:
    return CliRunner().invoke(app, [str(item) for item in arguments])


@pytest.fixture
def at_home(tmp_path: Path) -> Path:
    """A folder with trips, a policy and the files of a city."""
    pacsv.write_csv(trips(), str(tmp_path / "trips.csv"))
    city(tmp_path)
    (tmp_path / "trips.toml").write_text(
        """dataset = "trips"
protects = "rider"
[contribution]
person = "card"
max = 2
per = "period"
[trip]
origin = "from"
destination = "to"
time = "at"
[city]
stops = "stops.csv"
modes = "modes.csv"
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
domain = ["08:00", "10:00"]
[mechanism]
name = "constrained-counts"
epsilon = 1
features = [[], ["window"]]
""",
        encoding="utf-8",
    )
    return tmp_path


def test_the_commands_know_counts(at_home: Path) -> None:
    data, policy, out = (at_home / name for name in ("trips.csv", "trips.toml", "release"))
    rules = run("show", policy)
    assert rules.exit_code == 0, rules.exception
    assert "Counts trips  from from to to at at; 4 windows of 30 minutes\n" in rules.output
    assert "Of a rider    at most 2 a period, told apart by card" in rules.output
    assert json.loads(run("show", policy, "--json").output)["promise"]["guarantee"]["protects"] == "rider"
    dry = run("publish", data, "--policy", policy, "--dry-run")
    assert dry.exit_code == 0, dry.output
    assert "on each of 4 sums" in dry.output
    assert "publishing nothing would be off by" in dry.output
    done = run("publish", data, "--policy", policy, "-o", out)
    assert done.exit_code == 0, done.output
    assert re.search(r"Trips     [\d,]+, of [\d,]+ of 144 types; the others have none", done.output)
    assert "Only you  220 trips dropped; tell nobody these numbers" in done.output
    again = run("publish", data, "--policy", policy, "-o", at_home / "second", "--again", "--json")
    told = json.loads(again.output)
    assert (told["kind"], told["measures"]["loss"]["rider"], told["owner"]["trips_dropped"]) == ("counts", 1, 220)
    assert run("verify", out).exit_code == 0
    shown = run("show", out)
    assert shown.exit_code == 0
    assert "Universe    6 stops, 4 windows" in shown.output
    assert json.loads(run("show", out, "--json").output)["measures"]["cells"] == 144


def test_what_needs_rows_refuses_counts(at_home: Path) -> None:
    data, policy, out = (at_home / name for name in ("trips.csv", "trips.toml", "release"))
    run("publish", data, "--policy", policy, "-o", out)
    plan = at_home / "plan.csv"
    plan.write_text("row,bin\n0,0\n", encoding="utf-8")
    for command in (
        ("pack", out, "--capacity", "5", "-o", at_home / "plan"),
        ("apply", plan, data, "--policy", policy, "--release", out, "--capacity", "5", "-o", at_home / "settlement"),
    ):
        result = run(*command)
        assert isinstance(result.exception, ParameterError)
        assert result.exception.exit_code == 2
        assert "needs released rows" in str(result.exception)
    release = Release.read(out)
    with pytest.raises(ParameterError):
        dn.pack(release, capacity=5)


def test_rows_have_no_universe_and_rows_are_needed_by_none_else(tmp_path: Path) -> None:
    number = {"role": "quasi-identifier", "kind": "numeric", "domain": [0, 9]}
    rules = {"dataset": "d", "protects": "p", "attributes": {"x": number}, "mechanism": {"name": "partition", "k": 2}}
    data = dn.load(pa.table({"x": [1.0, 2.0, 3.0]}), dn.Policy.from_dict(rules))
    release = dn.publish(data, ledger=Ledger(":memory:")).release
    release.check_rows("pack")
    with pytest.raises(ParameterError, match="release of counts"):
        _ = release.universe


def test_windows_of_a_description_are_those_of_the_service_day() -> None:
    time = Windows(lower="04:00", upper="28:00", window_minutes=90, zone="America/Detroit")
    universe = Universe(stops=("A",), windows=time.labels, window_minutes=90, time=time)
    back = Universe.from_description(universe.describe())
    assert back.windows == time.labels
    assert back.time == time
