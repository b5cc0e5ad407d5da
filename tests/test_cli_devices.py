"""The commands of carriers: tasks, reports of a vehicle or a fleet, estimates, sealed identities.

Sentences, and what is refused with no more to it, are recorded in the scenarios.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.commands import fine, run, snapshot

from dunnage.cli.devices import device_keys
from dunnage.collecting.identity import KeyRing
from dunnage.samples import PositionSetting, TelemetrySetting, generate_positions, generate_telemetry

VEHICLES = 40
PERTURB = "device perturb telemetry.csv --task telemetry.json --allowance truck.allowance"
OWN = "--vehicle V0000007 --max-age 60"
DAYS = "--from 2026-10-14 --to 2026-10-14"
ENROL = f"--enrol --tier basic {OWN}"
POSITIONS = "device simulate positions.parquet --task positions.json"
TELEMETRY = "device simulate telemetry.csv --task telemetry.json"
ESTIMATE = "--task telemetry.json -o estimates"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with telemetry and positions of a small fleet, and their tasks."""
    with contextlib.chdir(folder := tmp_path_factory.mktemp("made")):
        generate_telemetry(TelemetrySetting(size=VEHICLES), "telemetry.csv", seed=1)
        generate_positions(PositionSetting(size=VEHICLES, epochs=288), "positions.parquet", seed=1)
        for name in ("telemetry", "positions"):
            fine(f"device task {name}.toml -o {name}.json")
    return folder


@pytest.fixture
def place(made, tmp_path, monkeypatch):
    shutil.copytree(made, tmp_path / "place")
    monkeypatch.chdir(tmp_path / "place")
    return tmp_path / "place"


def change_lines(change):
    lines = Path("telemetry.csv").read_text().splitlines()
    Path("telemetry.csv").write_text("\n".join(change(lines)) + "\n")


def mode_of(name):
    return stat.S_IMODE(Path(name).stat().st_mode)


def test_a_vehicle_reports_and_again_and_takes_on_another_task(place):
    result = fine(f"{PERTURB} {ENROL} {DAYS} -o reports.jsonl")
    assert (result["reports"], result["slots"], result["again"]) == (1, 1, 0)
    assert mode_of("truck.allowance") == 0o600
    assert fine(f"{PERTURB} {OWN} {DAYS} -o again.jsonl")["again"] == 1
    assert Path("again.jsonl").read_bytes() == Path("reports.jsonl").read_bytes()
    assert fine("show again.jsonl")["reports"] == 1
    Path("second.toml").write_text("version = 2\n" + Path("telemetry.toml").read_text())
    fine("device task second.toml -o second.json")
    words = f"{PERTURB} {OWN} --now 2026-10-20T00:00:00 -o b.bin".replace("telemetry.json", "second.json")
    run(words).refused("adopt")
    fine(f"{words} --adopt")


def test_an_allowance_knows_its_vehicle(place):
    fine(f"{PERTURB} {ENROL} {DAYS} -o reports.jsonl")
    before = Path("truck.allowance").read_bytes()
    other, later = OWN.replace("V0000007", "V0000008"), "--from 2026-10-15 --to 2026-10-15"
    run(f"{PERTURB} {other} {later} -o other.jsonl").refused("vehicle")
    run(f"{PERTURB} {other} --now 2026-10-15T12:00:00 -o other.jsonl").refused("vehicle")
    change_lines(lambda lines: [line for line in lines if "vehicle" in line or "V0000008" in line])
    run(f"{PERTURB} {later} -o other.jsonl").refused("vehicle")  # the file alone says whose rows they are
    assert Path("truck.allowance").read_bytes() == before
    assert not Path("other.jsonl").exists()
    due = fine(f"{PERTURB} --now 2026-10-14T23:59:00 --max-age 1440 -o due.jsonl")
    assert "vehicle" in " ".join(due["warnings"])  # no cell silences a device: all rows count as missing
    Path("second.toml").write_text("version = 2\n" + Path("telemetry.toml").read_text())
    fine("device task second.toml -o second.json")
    second = f"{PERTURB} {other} {later} -o other.jsonl --adopt".replace("telemetry.json", "second.json")
    run(second).refused("vehicle")  # a new task is no new name
    assert fine(f"{PERTURB} {other} {later} -o other.jsonl --adopt")["reports"] == 1
    run(f"{PERTURB} {OWN} {later} -o again.jsonl").refused("vehicle")


def test_the_owner_caps_what_a_task_may_ask_and_finds_older_copies(place):
    greedy = Path("telemetry.toml").read_text().replace("basic = 1.0", "basic = 50")
    greedy = greedy.replace("lifetime = 30", "lifetime = 900")
    Path("greedy.toml").write_text(greedy)
    fine("device task greedy.toml -o greedy.json")
    words = f"{PERTURB.replace('telemetry.json', 'greedy.json')} {ENROL} {DAYS} -o r.bin"
    run(words).refused("--cap")
    run(f"{PERTURB} {ENROL} {DAYS} --cap 0.9 -o r.bin").refused("0.9")
    fine(f"{words} --cap 50 --counter disk.counter")
    assert fine("show truck.allowance")["cap"] == "50"
    run(f"{PERTURB} {OWN} --adopt --now 2026-10-16T00:00:00 --cap 0.5 -o b.bin").refused("0.5")
    for name in ("truck.allowance", "truck.allowance.enrolled", "disk.counter", "truck.allowance.lock"):
        Path(name).unlink()
    Path("r.bin").rename("sent.bin")
    fine(f"{words} --cap 50")  # as good as new, but the collector remembers
    run(f"{words.replace('--enrol', '')} --received sent.bin --force").refused("collector")


def test_a_vehicle_at_a_time_whatever_the_file(place):
    change_lines(lambda lines: [*lines[:5], lines[5].replace("2026-10-14T", "on "), *lines[6:]])
    done = run(f"{PERTURB} {ENROL} --now 2026-10-14T00:00:00 -o a.bin --json")
    first = done.json()
    assert first["reports"] in (0, 1)
    assert "telemetry.csv" in done.err  # a row was skipped, and that is said
    zoned = fine(f"{PERTURB} {OWN} --now 2026-10-14T08:00:00+08:00 -o b.bin")
    assert zoned["reports"] == first["reports"]
    run(f"{PERTURB} {OWN} --now 2026-10-13T00:00:00 -o c.bin").refused()
    run(f"{PERTURB} {OWN} --now teatime -o c.bin").refused("teatime")
    assert not Path("c.bin").exists()
    Path("telemetry.csv").unlink()  # that silences nobody either
    done = run(f"{PERTURB} {OWN} --now 2026-10-14T01:00:00 -o d.bin")
    assert (done.code, "telemetry.csv" in done.err) == (0, True)
    late = "--now 2036-10-14T01:00:00 -o e.bin"
    run(f"{PERTURB} {OWN} {late}").refused("--accept-clock")
    fine(f"{PERTURB} {OWN} {late} --accept-clock")
    back = "--now 2026-10-15T01:00:00 -o f.bin"  # that clock was wrong
    run(f"{PERTURB} {OWN} {back}").refused("--accept-clock")
    fine(f"{PERTURB} {OWN} {back} --accept-clock")
    assert fine("show truck.allowance")["clock_set_back"] == [["2036-10-14T01:00:00", "2026-10-15T01:00:00"]]
    run(f"{PERTURB} {ENROL} {late} --force").refused("--enrol")


def test_what_is_refused_leaves_everything_as_it_was(place):
    Path("task.jsonl").symlink_to("telemetry.json")
    Path("truncated.json").write_text(Path("telemetry.json").read_text()[:-40])
    large = Path("positions.toml").read_text().replace("basic = 2.0", "basic = 180")
    Path("large.toml").write_text(large.replace("lifetime = 120", "lifetime = 1e9"))
    task = json.loads(Path("positions.json").read_text())
    for purpose in task["purposes"]:
        purpose["tiers"][0]["epsilon"] = "180"
    Path("large.json").write_text(json.dumps({**task, "limits": {**task["limits"], "lifetime": "1000000000"}}))
    Path("other.json").write_text("{}")
    before = snapshot(place)
    for words, says in [
        ("device task positions.toml -o positions.json", "positions.json"),
        ("device task positions.toml -o task.txt", ".json"),
        ("device task positions.toml -o none/task.json", "none"),
        ("device task large.toml -o t.json", "100"),  # the largest epsilon
        ("show large.toml", "100"),
        ("show large.json", "100"),
        ("show other.json", "task"),
        (f"{PERTURB} {ENROL} {DAYS} --place-columns lon -o r.bin", ""),
        (f"{PERTURB} {ENROL} {DAYS} --max-age 0 -o r.bin", "max-age"),
        (f"{PERTURB} {ENROL} -o r.bin", "--from 2026"),  # the days must not come from the rows
        (f"{PERTURB} {ENROL} --from 2026-10-14 -o r.bin", "--to"),
        (f"{PERTURB} {ENROL} --from 14.10.2026 --to 15.10.2026 -o r.bin", "14.10.2026"),
        (f"{PERTURB} {ENROL} {DAYS} --now now -o r.bin", "--now"),
        (f"{PERTURB.replace('telemetry.json', 'truncated.json')} {ENROL} {DAYS} -o r.bin", ""),
        (f"{PERTURB} {ENROL} {DAYS} -o task.jsonl --force", "task.jsonl"),  # outputs that are inputs
        (f"{PERTURB.replace('truck.allowance', 'y.jsonl')} {ENROL} {DAYS} -o y.jsonl --force", "y.jsonl"),
        (f"{POSITIONS} --tiers-column vehicle -o s.bin", "vehicle"),
        (f"{POSITIONS} --tiers-column vehicle --every-row --seed 1 -o s.bin", "--seed"),
    ]:
        run(words).refused(says)
    error = json.loads(run(f"{PERTURB} --vehicle V0000001 {DAYS} -o r.jsonl --json").out)["error"]
    assert error["kind"] == "AllowanceError"
    assert snapshot(place) == before


def test_a_fleet_reports(place):
    result = fine(f"{POSITIONS} -o reports.jsonl --seed 1")
    assert (result["vehicles"], result["reports"]) == (VEHICLES, 2 * VEHICLES)
    assert result["days"] == ["2026-10-14", "2026-10-14"]
    run(f"{POSITIONS} -o reports.jsonl").refused("reports.jsonl")
    assert "288" in run(f"{POSITIONS} -o tallies.json --tally --every-row").out  # slots of a vehicle
    assert fine("show tallies.json")["reports"] == 288 * 2 * VEHICLES
    table = pq.read_table("positions.parquet")
    tiers = np.where(np.array(table["vehicle"].to_pylist()) < "V0000011", "strict", "basic")
    pq.write_table(table.append_column("level", [tiers.tolist()]), "tiers.parquet")
    fine("device simulate tiers.parquet --task positions.json --tiers-column level -o r.bin")
    groups = {(group["purpose"], group["tier"]): group["reports"] for group in fine("show r.bin")["groups"]}
    assert groups == {(purpose, tier): num for purpose in (0, 1) for tier, num in ((0, 30), (1, 10))}


def test_estimates_say_what_was_left_out(place):
    fine(f"{TELEMETRY} -o reports.jsonl")
    lines = Path("reports.jsonl").read_text().splitlines()
    Path("reports.jsonl").write_text("\n".join([*lines, lines[0], *["{}"] * 50]))
    done = run(f"estimate reports.jsonl {ESTIMATE}")
    assert (done.code, bool(done.err)) == (0, True)
    told = json.loads(Path("estimates/certificate.json").read_text())["measures"]["left_out"]
    assert told == {"damaged": 50, "other_task": 0, "impossible": 0, "duplicate": 1, "conflicting": 0, "other_time": 0}
    fine("verify estimates")
    for name in ("one", "two"):
        fine(f"{TELEMETRY} --tally -o {name}.json")
    run(f"estimate one.json one.json {ESTIMATE} --force").refused("one.json")
    done = run(f"estimate one.json two.json {ESTIMATE} --force")
    assert (done.code, "WARNING" in done.err) == (0, True)  # tallies hold no ids
    before = snapshot(place)
    Path("nothing.jsonl").write_text("{}\n")
    for words in (
        f"nothing.jsonl {ESTIMATE} --force",
        "reports.jsonl --task positions.json -o estimates --force",
        *(f"one.json {ESTIMATE} --force {more}" for more in ("--combine magic", "--sign none.pem")),
    ):
        run(f"estimate {words}").refused()
    Path("nothing.jsonl").unlink()
    assert snapshot(place) == before


def test_rings_and_records_are_never_written_over(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("vehicles.csv").write_text("vehicle,plate\nV1,AB 1\n")
    Path("plates.csv").write_text("plate\nAB 1\n")
    for ring in ("k.jsonl", "r.csv", "open.keys"):
        fine(f"device keys {ring}")
    fine("device seal vehicles.csv --keys r.csv -o sealed.jsonl")
    Path("link.csv").symlink_to("r.csv")
    Path("vehicles.jsonl").hardlink_to("vehicles.csv")
    Path("sealed.csv").hardlink_to("sealed.jsonl")
    Path("open.keys").chmod(0o644)
    before = snapshot(tmp_path)
    for words, says in [
        ("seal vehicles.csv --keys k.jsonl -o k.jsonl --force", "k.jsonl"),
        ("seal vehicles.csv --keys r.csv -o vehicles.jsonl --force", "vehicles.jsonl"),
        *((f"open sealed.jsonl --keys r.csv -o {out} --force", out) for out in ("r.csv", "link.csv", "sealed.csv")),
        ("keys r.csv --drop nope", "nope"),
        ("keys new.keys --renew", "new.keys"),
        ("keys new.keys --algorithm ROT13", "SM4-GCM"),
        ("keys r.csv --algorithm SM4-GCM", "--renew"),
        ("keys r.csv --renew --drop x", ""),
        ("seal plates.csv --keys r.csv -o s.jsonl", "--alias-column"),
        ("seal vehicles.csv --keys r.csv -o s.txt", ".jsonl"),
        ("open vehicles.csv --keys r.csv -o o.csv", "vehicles.csv"),
        ("open sealed.jsonl --keys r.csv -o o.txt", ".csv"),
        ("seal vehicles.csv --keys open.keys -o s.jsonl", "chmod 600"),
    ]:
        run(f"device {words}").refused(says)
    assert snapshot(tmp_path) == before


def test_no_key_is_lost_when_several_renew(tmp_path, monkeypatch):
    ring = tmp_path / "fleet.keys"
    KeyRing.new().write(ring)
    renewed = KeyRing.renewed

    def slowly(self, algorithm=None):
        time.sleep(0.05)
        return renewed(self, algorithm)

    monkeypatch.setattr(KeyRing, "renewed", slowly)
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda _: device_keys(ring, renew=True), range(6)))
    assert len(KeyRing.read(ring).keys) == 7
    assert os.listdir(tmp_path) == ["fleet.keys"]
