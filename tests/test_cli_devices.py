"""The commands of carriers: tasks, reports of a vehicle or a fleet, estimates, sealed identities."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.commands import run, snapshot

from dunnage.cli.devices import device_keys
from dunnage.collecting.identity import KeyRing
from dunnage.samples import PositionSetting, TelemetrySetting, generate_positions, generate_telemetry

VEHICLES = 40


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with telemetry and positions of a small fleet, and their tasks."""
    with contextlib.chdir(folder := tmp_path_factory.mktemp("made")):
        generate_telemetry(TelemetrySetting(size=VEHICLES), "telemetry.csv", seed=1)
        generate_positions(PositionSetting(size=VEHICLES, epochs=288), "positions.parquet", seed=1)
        for name in ("telemetry", "positions"):
            assert run(f"device task {name}.toml -o {name}.json").code == 0
    return folder


@pytest.fixture
def place(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(made, tmp_path / "place")
    monkeypatch.chdir(tmp_path / "place")
    return tmp_path / "place"


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


# Tasks


def test_tasks_that_cannot_be_written(place: Path) -> None:
    before = snapshot(place)
    run("device task positions.toml -o positions.json").refused("exists already")
    run("device task positions.toml -o task.txt").refused(".json")
    run("device task positions.toml -o none/task.json").refused("could not be written")
    run("device task none.toml -o t.json").refused("cannot be read")
    (place / "publish.toml").write_text('dataset = "x"\nprotects = "y"\n[mechanism]\nname = "partition"\n')
    run("device task publish.toml -o t.json").refused("for publishing")
    (place / "publish.toml").unlink()
    assert snapshot(place) == before
    (place / "other.json").write_text("{}")
    run("show other.json").refused("a task lacks")
    (place / "broken.toml").write_text("[mechanisms.x]\nname = 3\n")
    run("show broken.toml").refused("problems")


# One vehicle


PERTURB = "device perturb telemetry.csv --task telemetry.json --allowance truck.allowance"
OWN = "--vehicle V0000007 --max-age 60"
ENROL = f"--enrol --tier basic {OWN}"


def test_a_vehicle_reports_and_again(place: Path) -> None:
    result = run(f"{PERTURB} {ENROL} -o reports.jsonl --json").json()
    assert (result["reports"], result["slots"], result["again"]) == (1, 1, 0)
    assert stat.S_IMODE((place / "truck.allowance").stat().st_mode) == 0o600
    again = run(f"{PERTURB} {OWN} -o again.jsonl")
    assert "as made before" in again.out
    assert (place / "again.jsonl").read_bytes() == (place / "reports.jsonl").read_bytes()
    assert "Reports   1" in run("show again.jsonl").out


def test_a_vehicle_at_a_time(place: Path) -> None:
    first = run(f"{PERTURB} {ENROL} --now 2026-10-14T00:00:00 -o a.bin --json").json()
    assert first["reports"] in (0, 1)
    zoned = run(f"{PERTURB} {OWN} --now 2026-10-14T08:00:00+08:00 -o b.bin --json").json()
    assert zoned["reports"] == first["reports"]
    run(f"{PERTURB} {OWN} --now 2026-10-13T00:00:00 -o c.bin").refused("clock went back")
    run(f"{PERTURB} {OWN} --now teatime -o c.bin").refused("2026-10-14T08:05:00")
    assert not (place / "c.bin").exists()


def test_a_vehicle_takes_on_another_task(place: Path) -> None:
    assert run(f"{PERTURB} {ENROL} -o a.bin").code == 0
    policy = (place / "telemetry.toml").read_text()
    (place / "second.toml").write_text("version = 2\n" + policy)
    assert run("device task second.toml -o second.json").code == 0
    words = f"{PERTURB} {OWN} --now 2026-10-20T00:00:00 -o b.bin".replace("telemetry.json", "second.json")
    run(words).refused("another task")
    assert run(f"{words} --adopt").code == 0


def change_cells(place: Path, change: Callable[[list[str]], list[str]]) -> None:
    lines = (place / "telemetry.csv").read_text().splitlines()
    (place / "telemetry.csv").write_text("\n".join(change(lines)) + "\n")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda lines: [], "is empty"),
        (lambda lines: lines[:1], "no rows"),
        (lambda lines: [lines[0].replace("speed", "velocity"), *lines[1:]], "speed: there is no such column"),
        (lambda lines: [lines[0].replace("time", "when"), *lines[1:]], "time: there is no such column"),
        (lambda lines: [*lines[:5], lines[5].replace("2026-10-14T", "on "), *lines[6:]], "in row 5"),
        (lambda lines: [*lines[:5], lines[5] + ",1", *lines[6:]], "more or fewer cells"),
    ],
)
def test_rows_that_cannot_be_used(place: Path, change: Any, says: str) -> None:
    change_cells(place, change)
    before = snapshot(place)
    run(f"{PERTURB} {ENROL} -o reports.jsonl").refused(says)
    run(f"{TELEMETRY} -o r.bin").refused(says)
    assert snapshot(place) == before


def test_odd_cells_are_reported_as_the_task_says(place: Path) -> None:
    def spoil(lines: list[str]) -> list[str]:
        rows = [line.split(",") for line in lines[1:]]
        return [lines[0], *(",".join([*row[:2], "fast", "NaN", "1e999", *row[5:]]) for row in reversed(rows))]

    change_cells(place, spoil)
    done = run(f"{PERTURB} {ENROL} -o reports.jsonl")
    assert done.code == 0
    assert "cells are no numbers" in done.out
    assert run("device simulate telemetry.csv --task telemetry.json -o r.bin").code == 0


def test_refused_for_other_reasons(place: Path) -> None:
    before = snapshot(place)
    run(f"{PERTURB} --vehicle V0000001 -o r.jsonl").refused("no allowance")
    error = json.loads(run(f"{PERTURB} --vehicle V0000001 -o r.jsonl --json").out)["error"]
    assert error["kind"] == "AllowanceError"
    run(f"{PERTURB} --vehicle V0000001 --enrol -o r.jsonl").refused("needs a tier")
    run(f"{PERTURB} --enrol --tier basic -o r.jsonl").refused("--vehicle")
    run(f"{PERTURB} {ENROL} -o r.txt").refused(".jsonl or .bin")
    run(f"{PERTURB} {ENROL} --place-columns lon -o r.bin").refused("two names")
    run(f"{PERTURB} {ENROL} --max-age 0 -o r.bin").refused("max-age")
    (place / "truncated.json").write_text((place / "telemetry.json").read_text()[:-40])
    words = PERTURB.replace("telemetry.json", "truncated.json")
    run(f"{words} {ENROL} -o r.bin").refused("JSON that we wrote")
    (place / "truncated.json").unlink()
    left = {name: data for name, data in snapshot(place).items() if not name.endswith(".lock")}
    assert left == before


def test_outputs_that_are_inputs(place: Path) -> None:
    (place / "task.jsonl").symlink_to("telemetry.json")
    before = snapshot(place)
    run(f"{PERTURB} {ENROL} -o task.jsonl --force").refused("which is needed")
    words = PERTURB.replace("truck.allowance", "y.jsonl")
    run(f"{words} {ENROL} -o y.jsonl --force").refused("which is needed")
    assert snapshot(place) == before


def test_a_bad_time_is_told_and_silences_nobody(place: Path) -> None:
    change_cells(place, lambda lines: [*lines[:5], lines[5].replace("2026-10-14T", "on "), *lines[6:]])
    done = run(f"{PERTURB} {ENROL} --now 2026-10-14T00:00:00 -o a.bin")
    assert done.code == 0
    assert "WARNING: telemetry.csv: 1 row was skipped" in done.err
    (place / "telemetry.csv").unlink()
    done = run(f"{PERTURB} {OWN} --now 2026-10-14T01:00:00 -o b.bin")
    assert (done.code, "the file is not there" in done.err) == (0, True)
    late = "--now 2036-10-14T01:00:00 -o c.bin"
    run(f"{PERTURB} {OWN} {late}").refused("--accept-clock")
    assert run(f"{PERTURB} {OWN} {late} --accept-clock").code == 0
    run(f"{PERTURB} {ENROL} {late} --force").refused("Leave out --enrol")


# A fleet and its estimates


POSITIONS = "device simulate positions.parquet --task positions.json"
TELEMETRY = "device simulate telemetry.csv --task telemetry.json"


def test_a_fleet_reports(place: Path) -> None:
    result = run(f"{POSITIONS} -o reports.jsonl --seed 1 --json").json()
    assert (result["vehicles"], result["reports"]) == (VEHICLES, 2 * VEHICLES)
    assert result["days"] == ["2026-10-14", "2026-10-14"]
    run(f"{POSITIONS} -o reports.jsonl").refused("exists already")
    text = run(f"{POSITIONS} -o tallies.json --tally --every-row").out
    assert "288 slots of a vehicle compose to epsilon" in text
    assert "beyond the limit" in text
    assert "Tallies" in run("show tallies.json").out


def test_tiers_are_public(place: Path) -> None:
    table = pq.read_table("positions.parquet")
    tiers = np.where(np.array(table["vehicle"].to_pylist()) < "V0000011", "strict", "basic")
    pq.write_table(table.append_column("level", [tiers.tolist()]), "tiers.parquet")
    words = "device simulate tiers.parquet --task positions.json --tiers-column"
    assert run(f"{words} level -o r.bin").code == 0
    groups = run("show r.bin --json").json()["groups"]
    assert {(g["purpose"], g["tier"]): g["reports"] for g in groups} == {
        (p, t): n for p in (0, 1) for t, n in ((0, 30), (1, 10))
    }
    run(f"{words} vehicle -o s.bin").refused("no tier of the task")
    run(f"{words} level --every-row --seed 1 -o s.bin").refused("--seed")


@pytest.fixture
def reports(place: Path) -> Path:
    """Reports of telemetry."""
    done = run(f"{TELEMETRY} -o reports.bin --max-age 60")
    assert done.code == 0
    return place / "reports.bin"


def test_the_same_tallies_are_refused_and_others_warned_of(place: Path) -> None:
    for name in ("one", "two"):
        assert run(f"{TELEMETRY} --tally -o {name}.json").code == 0
    common = ("--task", "telemetry.json", "-o", "estimates")
    run("estimate", "one.json", "one.json", *common).refused("count twice")
    done = run("estimate", "one.json", "two.json", *common)
    assert done.code == 0
    assert "WARNING: tallies hold no ids" in done.err


def test_the_certificate_tells_what_was_left_out(place: Path) -> None:
    assert run(f"{TELEMETRY} -o reports.jsonl").code == 0
    path = place / "reports.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines, lines[0], *["{}"] * 50]))
    assert run("estimate reports.jsonl --task telemetry.json -o estimates").code == 0
    told = json.loads(Path("estimates/certificate.json").read_text())["measures"]["left_out"]
    assert told == {"damaged": 50, "other_task": 0, "impossible": 0, "duplicate": 1, "conflicting": 0}
    assert run("verify estimates").code == 0


def write_clear_policy(name: str, switch: str) -> str:
    """Write the policy of positions with the areas of places in clear, or as published."""
    text = Path("positions.toml").read_text().replace("levels = 2 ", "levels = 3\narea_levels = 2 ", 1)
    text = text.replace('name = "local-location"', f'name = "local-location"\n{switch} = true')
    Path(name).write_text(f"allow_unbounded = true\n{text}")
    return name


@pytest.mark.parametrize("switch", ["as_published", "area_in_clear"])
def test_areas_in_clear_are_in_the_headline(place: Path, switch: str) -> None:
    made = run("device", "task", write_clear_policy("clear.toml", switch), "-o", "clear.json")
    assert made.code == 0, made.err
    assert run("device simulate positions.parquet --task clear.json -o clear.jsonl").code == 0
    done = run("estimate clear.jsonl --task clear.json -o clear --allow-noise")
    assert done.code == 0, done.err
    claimed = switch == "as_published"
    titles = [line.split()[0] for line in done.out.splitlines()[:4]]
    assert titles[2:] == ["Claimed", "Holds"] if claimed else titles[2] == "Promises"
    held = next(line for line in done.out.splitlines() if line.startswith("Holds" if claimed else "Promises"))
    assert "model within-cluster" in held
    assert "across areas there is no bound" in held
    assert ("not proved" in done.out) == claimed
    checked = run("verify clear")
    assert checked.code == 0, checked.out
    line = next(line for line in checked.out.splitlines() if "slot of reports" in line)
    assert "without any bound across areas" in line
    assert ("as claimed" in line) == claimed
    shown = run("show clear").out
    assert "across areas there is no bound" in shown
    assert ("Stated " in shown) == claimed


def test_an_epsilon_too_large_is_refused(place: Path) -> None:
    text = Path("positions.toml").read_text().replace("basic = 2.0", "basic = 180")
    Path("large.toml").write_text(text.replace("lifetime = 120", "lifetime = 1e9"))
    run("device task large.toml -o large.json").refused("between 0.000001 and 100")
    run("show large.toml").refused("between 0.000001 and 100")
    task = json.loads(Path("positions.json").read_text())
    for purpose in task["purposes"]:
        purpose["tiers"][0]["epsilon"] = "180"
    task["limits"]["lifetime"] = "1000000000"
    Path("large.json").write_text(json.dumps(task))
    run("show large.json").refused("between 0.000001 and 100")


def test_bad_reports_are_told(reports: Path) -> None:
    whole = reports.read_bytes()
    reports.write_bytes(whole + whole[:30])
    done = run("estimate reports.bin --task telemetry.json -o estimates")
    assert done.code == 0
    assert "left out: damaged" in done.err
    reports.write_bytes(whole[:20])
    run("estimate reports.bin --task telemetry.json -o estimates --force").refused("no report can be used")
    reports.write_bytes(whole)
    run("estimate reports.bin --task positions.json -o estimates --force").refused("another task")


def test_estimates_that_are_refused(reports: Path) -> None:
    for more, says in (
        ("--confidence 1.5", "confidence"),
        ("--combine magic", "combine"),
        ("--sign none.pem", "none.pem"),
    ):
        run(f"estimate reports.bin --task telemetry.json -o estimates {more}").refused(says)
    assert not Path("estimates").exists()


# Identities


def test_identities_are_sealed_opened_and_rotated(empty: Path) -> None:
    text = "vehicle,plate\nV1,AB 1\nV2,CD 2\n"
    Path("vehicles.csv").write_text(text)
    first = run("device keys fleet.keys --json").json()["keys"][0]["id"]
    assert stat.S_IMODE(Path("fleet.keys").stat().st_mode) == 0o600
    assert run("device seal vehicles.csv --keys fleet.keys -o sealed.jsonl").code == 0
    assert "AB 1" not in Path("sealed.jsonl").read_text()
    assert run("device open sealed.jsonl --keys fleet.keys -o opened.csv").code == 0
    assert Path("opened.csv").read_text() == text
    assert stat.S_IMODE(Path("opened.csv").stat().st_mode) == 0o600
    renewed = run("device keys fleet.keys --renew --algorithm SM4-GCM --json").json()["keys"]
    assert [key["state"] for key in renewed] == ["retired", "active"]
    assert run("device seal sealed.jsonl --keys fleet.keys -o anew.jsonl").code == 0
    run("device", "keys", "fleet.keys", "--drop", renewed[1]["id"]).refused("active")
    assert run("device", "keys", "fleet.keys", "--drop", first).code == 0
    run("device open sealed.jsonl --keys fleet.keys -o x.csv").refused("not in the ring")
    assert run("device open anew.jsonl --keys fleet.keys -o again.csv").code == 0
    assert Path("again.csv").read_text() == text
    assert "SM4-GCM" in run("device keys fleet.keys").out


def test_rings_and_records_are_never_written_over(empty: Path) -> None:
    Path("vehicles.csv").write_text("vehicle,plate\nV1,AB 1\n")
    for ring in ("k.jsonl", "r.csv"):
        assert run("device", "keys", ring).code == 0
    assert run("device seal vehicles.csv --keys r.csv -o sealed.jsonl").code == 0
    Path("link.csv").symlink_to("r.csv")
    Path("vehicles.jsonl").hardlink_to("vehicles.csv")
    Path("sealed.csv").hardlink_to("sealed.jsonl")
    before = snapshot(empty)
    run("device seal vehicles.csv --keys k.jsonl -o k.jsonl --force").refused("is needed")
    run("device seal vehicles.csv --keys r.csv -o vehicles.jsonl --force").refused("needed")
    for out in ("r.csv", "link.csv", "sealed.csv"):
        run("device", "open", "sealed.jsonl", "--keys", "r.csv", "-o", out, "--force").refused("is needed")
    run("device keys r.csv --drop nope").refused("no such key")
    assert snapshot(empty) == before


def test_a_sealed_line_twice_or_behind_a_mark(empty: Path) -> None:
    Path("vehicles.csv").write_text("vehicle,plate\nV1,AB 1\nV2,CD 2\n")
    assert run("device keys fleet.keys").code == 0
    assert run("device seal vehicles.csv --keys fleet.keys -o sealed.jsonl").code == 0
    lines = Path("sealed.jsonl").read_bytes().splitlines(keepends=True)
    Path("twice.jsonl").write_bytes(b"".join([*lines, lines[0]]))
    run("device open twice.jsonl --keys fleet.keys -o o.csv").refused("twice in row 3")
    Path("marked.jsonl").write_bytes(b"\xef\xbb\xbf" + b"".join(lines))
    assert run("device open marked.jsonl --keys fleet.keys -o o.csv").code == 0


def test_no_key_is_lost_when_several_renew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ring = tmp_path / "fleet.keys"
    KeyRing.new().write(ring)
    renewed = KeyRing.renewed

    def slowly(self: KeyRing, algorithm: str | None = None) -> KeyRing:
        time.sleep(0.05)
        return renewed(self, algorithm)

    monkeypatch.setattr(KeyRing, "renewed", slowly)
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda _: device_keys(ring, renew=True), range(6)))
    assert len(KeyRing.read(ring).keys) == 7
    assert os.listdir(tmp_path) == ["fleet.keys"]


def test_identities_that_are_refused(empty: Path) -> None:
    Path("vehicles.csv").write_text("plate\nAB 1\n")
    run("device keys fleet.keys --renew").refused("no key ring")
    run("device keys fleet.keys --algorithm ROT13").refused("algorithm")
    assert run("device keys fleet.keys").code == 0
    seal = "device seal vehicles.csv --keys fleet.keys -o"
    run(f"{seal} s.jsonl").refused("--alias-column")
    run(f"{seal} s.txt").refused(".jsonl")
    run("device keys fleet.keys --algorithm SM4-GCM").refused("--renew")
    run("device keys fleet.keys --renew --drop x").refused("two steps")
    run("device open vehicles.csv --keys fleet.keys -o o.csv").refused("no sealed record")
    run("device open vehicles.csv --keys fleet.keys -o o.txt").refused(".csv")
    Path("fleet.keys").chmod(0o644)
    run(f"{seal} s.jsonl").refused("chmod 600")
    assert sorted(os.listdir()) == ["fleet.keys", "vehicles.csv"]
