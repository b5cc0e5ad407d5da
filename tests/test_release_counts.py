# SPDX-License-Identifier: Apache-2.0
"""Releases of counts as whoever receives them sees them: tables, README, datapackage, show, and what is refused."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from tests.builders import RIDERS, WEEKDAYS, Case, a_trip_policy
from tests.refusals import refusal

import dunnage as dn
from dunnage.cli import _MODULE_OF
from dunnage.errors import ParameterError, ReleaseError
from dunnage.kernels.counts.laplace import DiscreteLaplace, FloatingLaplace, FlooredLaplace, RoundedLaplace, surplus
from dunnage.model.domains import Windows
from dunnage.model.laws import count_noise_spread, count_noise_surplus
from dunnage.model.trips import Universe
from dunnage.release.kinds.counts import amount
from dunnage.showing import release_text

STOPS = ["Mill", "=Quay", "Hill, east", "Dock", "Ärea", "Old town"]
PLAIN = {"name": "noisy-counts", "epsilon": 2}
TREE = {"name": "hierarchical-counts", "epsilon": 1}
FITTED = {"name": "constrained-counts", "epsilon": 1}


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
    policy = a_trip_policy(mechanism, time, city=city(folder), **more)
    return dn.Policy.from_dict(dict(policy.document), path=folder / "trips.toml")


def trips(num: int = 300) -> pa.Table:
    """Make trips between few of the pairs, on the days of a week in November 2026."""
    clock = [f"2026-11-{9 + i % 7:02d}T{8 + i % 2:02d}:{i * 7 % 60:02d}" for i in range(num)]
    ends = {"from": [STOPS[i % 4] for i in range(num)], "to": [STOPS[i * i % 6] for i in range(num)]}
    return pa.table({"card": [f"C{i % 40}" for i in range(num)], **ends, "at": clock})


def released(folder: Path, mechanism: dict[str, Any], *, num: int = 300, **more: Any) -> dn.Release:
    """Publish trips in memory."""
    period = more.pop("of_period", None)
    data = dn.load(trips(num), policy_of(folder, mechanism, **more), period=period)
    return dn.publish(data, ledger=dn.Ledger(":memory:"), noise=dn.Noise()).release


def written(release: dn.Release, folder: Path, name: str = "release") -> Path:
    """Write a release without a key."""
    target = folder / name
    target.mkdir()
    release.write_files(target)
    return target


def test_negative_counts_are_released_as_published_alone(tmp_path: Path) -> None:
    signed = {**TREE, "as_published": True, "root": False, "negatives": True, "prune": False}
    release = released(tmp_path, signed)
    counts, certificate = np.array(release.data["count"]), release.certificate
    assert counts.min() < 0 < counts.max()
    assert (counts != 0).all()
    assert (certificate.basis, certificate.guarantee.epsilon) == ("claimed", 1)
    assert [item.feature for item in certificate.counts.features or []][1] != "total"
    folder = written(release, tmp_path)
    assert dn.verify(folder).ok
    assert "negative ones were kept" in (folder / "README.md").read_text(encoding="utf-8")
    dn.audit(release, dn.load(trips(), policy_of(tmp_path, signed)))
    # Anything else refuses them, and an old certificate does not state them.
    plain = released(tmp_path, {**TREE, "as_published": True})
    assert {"root", "negatives"}.isdisjoint(plain.certificate.mechanism)
    forged = replace(release, certificate=plain.certificate)
    assert not dn.verify(written(forged, tmp_path, "forged")).ok
    assert "as_published" in str(refusal(ParameterError, dn.HierarchicalCounts, epsilon=1, negatives=True))


def test_counts_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    release = released(tmp_path, PLAIN, time=WEEKDAYS)
    folder = written(release, tmp_path)
    back = dn.Release.read(folder)
    assert back.kind == "counts"
    assert back.data.equals(release.data)
    assert back.data.column_names == ["origin", "destination", "window", "day", "count"]
    assert pq.read_table(folder / "data.parquet").schema.field("count").type == pa.int64()
    files = {
        "data.parquet",
        "data.csv",
        "certificate.html",
        "certificate.json",
        "datapackage.json",
        "README.md",
        "verify.html",
    }
    assert {path.name for path in folder.iterdir()} == files
    assert not back.noisy
    assert back.classes is back.members is None
    cells, counts = back.counted()
    assert (np.diff(cells) > 0).all()
    universe = back.universe
    for name in universe.cell_columns:
        labels = np.asarray(universe.labels(name), dtype=object)[universe.column_codes(name, cells)]
        assert labels.tolist() == back.data.column(name).to_pylist()
    assert counts.tolist() == back.data.column("count").to_pylist()
    data = back.data.set_column(0, "origin", pa.array(["Nowhere"] * len(back)))
    with pytest.raises(ReleaseError, match="origin"):
        dn.Release(certificate=back.certificate, data=data).counted()


def test_stops_that_a_spreadsheet_would_run_are_quoted_in_csv(tmp_path: Path) -> None:
    folder = written(released(tmp_path, PLAIN), tmp_path)
    text = pacsv.read_csv(str(folder / "data.csv"))
    assert "'=Quay" in text.column("origin").to_pylist()
    assert "=Quay" not in text.column("origin").to_pylist()
    assert dn.verify(folder).ok


def test_the_certificate_tells_the_whole_domain(tmp_path: Path) -> None:
    dates = {"dates": ["2026-11-01", "2026-11-30"]}
    for days, period in (({}, None), (WEEKDAYS, None), ({"day": "date"}, "2026-11"), (dates, None)):
        more = {"period": {"column": "at", "length": "month"}} if period else {}
        release = released(tmp_path, PLAIN, time=days, of_period=period, **more)
        told, true = release.universe, policy_of(tmp_path, PLAIN, days, **more).schema.universe(period)
        facts = ("stops", "windows", "window_minutes", "days", "num_dates", "time", "num_cells")
        assert all(getattr(told, name) == getattr(true, name) for name in facts)
        assert told.describe() == list(release.certificate.plain()["attributes"])
        window = told.describe()[2]
        assert (window["kind"], window["domain"]["window_minutes"]) == ("time", 30)
        assert window["domain"]["zone"] == days.get("zone")


def test_a_universe_without_a_service_day_is_described_by_its_windows() -> None:
    universe = Universe(stops=("A", "B"), windows=("08:00", "09:00"), window_minutes=60, days=("x", "y"))
    back = Universe.from_description(json.loads(json.dumps(universe.describe())))
    assert back.describe() == universe.describe()
    assert back.time is None
    wrong = [{**item, "domain": {"kind": "category", "values": ["A"]}} for item in universe.describe()]
    with pytest.raises(ParameterError, match="stops"):
        Universe.from_description(wrong)
    time = Windows(lower="04:00", upper="28:00", window_minutes=90, zone="America/Detroit")
    universe = Universe(stops=("A",), windows=time.labels, window_minutes=90, time=time)
    back = Universe.from_description(universe.describe())
    assert (back.windows, back.time) == (time.labels, time)


def readme(release: dn.Release, folder: Path) -> str:
    return (written(release, folder) / "README.md").read_text(encoding="utf-8")


def test_readme_and_show_have_the_figures_that_the_receiver_needs(tmp_path: Path) -> None:
    for mechanism in (PLAIN, TREE, FITTED):
        release = released(tmp_path, mechanism, time=WEEKDAYS)
        folder = written(release, tmp_path, mechanism["name"])
        text, shown = (folder / "README.md").read_text(encoding="utf-8"), release_text(release)
        measures = release.certificate.plain()["measures"]
        for name in ("trips", "cells"):
            assert f"{measures[name]:,}" in text
            assert f"{measures[name]:,}" in shown
        for fact in ("monday 2, tuesday 2", "Europe/Madrid"):
            assert fact in text
        assert "14 calendar days" in shown
        assert not re.search(r"\bclass|`row`", text)
        assert max(map(len, text.splitlines())) <= 140
        commands = set(re.findall(r"`dunnage (\w+)", text))
        assert commands <= set(_MODULE_OF)
        for item in measures.get("features", []):
            assert f"| {item['feature']} | {item['groups']:,} |" in text
            assert f"{item['feature']}: epsilon" in shown
        assert len(shown.splitlines()) < 45


def test_the_readme_says_how_far_the_total_of_plain_noise_is_off(tmp_path: Path) -> None:
    release = released(tmp_path, {**PLAIN, "epsilon": "0.5"})
    made = release.universe.num_cells / (2 * math.sinh(0.5))
    assert f"{amount(made)} trips" in readme(release, tmp_path)
    assert [amount(value) for value in (0.123456, 99.96, 1234.5)] == ["0.123", "100", "1,234"]


def test_the_readme_of_riders_by_day_says_on_how_many(tmp_path: Path) -> None:
    bound = {"person": "card", "max": 3, "per": "day"}
    monthly = {"period": {"column": "at", "length": "month"}, "of_period": "2026-11"}
    for name, mechanism in (("sound", PLAIN), ("claimed", {**PLAIN, "as_published": True})):
        release = released(tmp_path, mechanism, protects="rider", contribution=bound, **monthly)
        text = (written(release, tmp_path, name) / "README.md").read_text(encoding="utf-8")
        assert "2026-11" in text
        for words in (text, release_text(release)):
            assert re.search(r"3 trips .* 30 days: 90", words.replace("\n", " "))


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
    types = {"origin": "string", "destination": "string", "window": "string", "count": "integer"}
    assert {name: item["type"] for name, item in fields.items()} == types
    assert "30 minutes" in fields["window"]["description"]
    assert "24:00" in fields["window"]["description"]


def test_a_release_without_any_trip_is_one(tmp_path: Path) -> None:
    release = released(tmp_path, {**PLAIN, "threshold": 10**6}, num=1)
    assert len(release) == 0
    folder = written(release, tmp_path)
    assert dn.verify(folder).ok
    assert dn.Release.read(folder).counted()[0].tolist() == []
    assert "144" in release_text(release)


def test_spread_and_surplus_of_noise_are_those_of_its_law() -> None:
    # A second statement: sums over the law itself, as the difference of two geometric numbers or a rounded number.
    for scale in (Fraction(1, 3), Fraction(5), Fraction(700)):
        reach = np.arange(-40 * int(scale + 1), 40 * int(scale + 1) + 1)
        ratio = math.exp(-1 / scale)
        chances = {"discrete": (1 - ratio) / (1 + ratio) * ratio ** np.abs(reach)}
        for name, shift in (("round", 0.5), ("floor", 0.0)):
            ends = (np.append(reach, reach[-1] + 1) - shift) / float(scale)
            below = np.where(ends < 0, 0.5 * np.exp(-np.abs(ends)), 1 - 0.5 * np.exp(-np.abs(ends)))
            chances[name] = np.diff(below)
        for law in (DiscreteLaplace, RoundedLaplace, FlooredLaplace):
            moment = float((chances[law.name] * reach**2).sum())
            assert law(scale).spread == count_noise_spread(law.name, scale) == pytest.approx(math.sqrt(moment))
            for threshold in (1, 4):
                above = reach >= threshold
                assert law(scale).above(threshold) == pytest.approx(float(chances[law.name][above].sum()), rel=1e-6)
                gain = float((chances[law.name] * reach)[above].sum())
                assert surplus(law(scale), threshold) == pytest.approx(gain, rel=1e-6)
        assert FloatingLaplace(scale).spread == pytest.approx(math.sqrt(2) * float(scale))


def test_no_cell_gains_more_than_one_without_trips() -> None:
    ends = np.arange(-400, 401)
    for rounding in ("round", "floor"):
        lower = ends - (0.5 if rounding == "round" else 0.0)
        for scale, threshold in ((0.5, 1), (2.0, 1), (2.0, 5), (1.0, 12), (6.0, 4)):
            below = [
                np.where(x < 0, 0.5 * np.exp(-np.abs(x) / scale), 1 - 0.5 * np.exp(-np.abs(x) / scale))
                for x in (lower, lower + 1)
            ]
            chance = below[1] - below[0]
            gains = [float(((c + ends >= threshold) * (c + ends) * chance).sum()) - c for c in range(30)]
            assert gains[0] == pytest.approx(count_noise_surplus(rounding, Fraction(scale), threshold), rel=1e-6)
            assert max(gains) == gains[0]


def test_what_needs_rows_refuses_counts(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, {**FITTED, "features": [[], ["window"]]}, **RIDERS)
    data = dn.load(trips(), policy)
    release, key = dn.publish(data, ledger=dn.Ledger(":memory:"))
    assert key.facts["trips_dropped"] == 220
    assert release.certificate.plain()["measures"]["loss"]["rider"] == 1
    with pytest.raises(ParameterError):
        dn.pack(release, capacity=5)
    with pytest.raises(ParameterError, match="apply"):
        release.check_rows("apply")
    rows = Case("partition", {"k": 3}).release()
    rows.check_rows("pack")
    with pytest.raises(ParameterError):
        _ = rows.universe
