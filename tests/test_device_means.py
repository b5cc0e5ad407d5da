# SPDX-License-Identifier: Apache-2.0
"""Means of devices are means of readings: missing ones, working hours, precision, and files as their owner has them."""

from __future__ import annotations

import itertools
import threading
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.commands import fine, run
from tests.estimates_help import LOAD, SPEED, TIERS, fleet_tallies, fleet_task, refuses, truck_task
from tests.refusals import refusal

from dunnage.auditing.carriers import EstimatesTruth, EstimatesView, Fleet
from dunnage.auditing.run import audit
from dunnage.collecting.batch import perturb_column
from dunnage.collecting.estimate import among_present, estimate
from dunnage.collecting.files import RowFile, collect
from dunnage.collecting.fleet import simulate
from dunnage.collecting.precision import Precision, more_lines, needed_reports, needs_of_release, plan_lines
from dunnage.collecting.tasks import read_task
from dunnage.devices.client import mechanism_of
from dunnage.devices.report import ReportFile
from dunnage.devices.subjects import Grid, Tier
from dunnage.devices.task import FileColumns, Limits, Purpose, Schedule, Task
from dunnage.errors import InputError, ParameterError, Refusal, ReleaseError, ReportError
from dunnage.noise.source import Noise
from dunnage.release import Release
from dunnage.tables import reader
from dunnage.tables.reader import data_files
from dunnage.text import time_text
from dunnage.verification import verify

TRUE_MEAN = 40.7  # km/h, of a domain from 0 to 120
NEARLY_SURE = 1 - 1e-10  # confidence of intervals that must contain the truth


def speed_task(missing, *, method="hybrid", lifetime=60, **schedule):
    quantity = replace(SPEED, missing=missing)
    duty = Purpose(
        name="numbers",
        mechanism="local-numeric",
        tiers=TIERS[:1],
        quantities=(quantity,),
        parameters={"method": method},
    )
    return Task(dataset="fleet", purposes=(duty,), schedule=Schedule(**schedule), limits=Limits(lifetime=lifetime))


def speeds(num, present, seed=1):
    """Speeds with the true mean, in a share of the slots only."""
    generator = np.random.default_rng(seed)
    values = TRUE_MEAN + generator.uniform(-20, 20, num)
    return np.where(np.arange(num) < present * num, values, np.nan)


@cache
def speed_release(missing, num=40_000, present=0.45, confidence=NEARLY_SURE):
    task = speed_task(missing)
    values = speeds(num, present)
    (tier,) = task.slot_tiers(task.purposes[0])
    tally = perturb_column(mechanism_of(task, task.purposes[0]), tier, [values], Noise(), purpose="numbers")
    return task, estimate([tally], task, confidence=confidence)


def mean_of(release):
    return next(line for line in release.data.to_pylist() if line["quantity"] == "mean")


def test_many_missing_slots_do_not_pull_the_mean():
    """A fleet of 40.7 km/h was estimated at 55.1 with missing slots counted as the middle."""
    _, release = speed_release("symbol")
    mean = mean_of(release)
    assert mean["lower"] < TRUE_MEAN < mean["upper"] < 55
    (caution,) = release.owner.cautions(release)
    assert "speed in about 5" in caution
    _, filled = speed_release("middle")
    assert not mean_of(filled)["lower"] < TRUE_MEAN < mean_of(filled)["upper"]
    (caution,) = filled.owner.cautions(filled)
    assert "speed 60 km/h" in caution
    assert "60 km/h" in next(line for line in filled.owner.figures(filled) if line.startswith("  speed"))
    _, whole = speed_release("symbol", present=1.0)
    assert whole.owner.cautions(whole) == ()
    few = [dict(line, value=0.5, lower=0.0, upper=1.0) for line in release.data.to_pylist()]
    few[0] |= {"value": 60.0, "lower": 20.0, "upper": 90.0}
    few = Release(certificate=release.certificate, data=pa.Table.from_pylist(few, schema=release.data.schema))
    noise, caution = few.owner.cautions(few)
    assert "speed in 0 % to 100 %" in caution
    assert noise.startswith("Mostly noise: speed.")
    for value, upper, is_noise in ((0.0, 46.3, True), (2.0, 7.0, False)):  # cut off at the end of the range
        cut = [dict(release.data.to_pylist()[0], value=value, lower=0.0, upper=upper)]
        cut = Release(certificate=release.certificate, data=pa.Table.from_pylist(cut, schema=release.data.schema))
        assert bool(cut.owner.cautions(cut)) == is_noise


def test_a_map_of_hardly_any_places_is_noise():
    """180 reports, few of them with a place, made a map with busy cells where no truck ever was."""
    grid = Grid(box=(8, 52, 12, 55), levels=4)
    duty = Purpose(name="places", mechanism="local-location", tiers=(Tier(name="all", epsilon=Fraction(4)),), grid=grid)
    task = truck_task(duty)

    def release(present, **options):
        lon = np.where(np.arange(180) < present * 180, 10.1, np.nan)
        tally = perturb_column(mechanism_of(task, duty), "all", [lon, lon * 0 + 53.4], Noise(), purpose="places")
        return estimate([tally], task, **options)

    assert release(1.0).owner.cautions(release(1.0)) == ()
    with pytest.raises(Refusal, match=r"of the reports have no place in the box.*state working hours in \[schedule\]"):
        release(0.02)
    (caution,) = (thin := release(0.02, allow_noise=True)).owner.cautions(thin)
    assert caution.startswith("Many slots had no place in the box: places in about")
    paths = Purpose(name="paths", mechanism="local-trajectory", tiers=duty.tiers, grid=replace(grid, levels=2), steps=2)
    task, tallies = truck_task(duty, paths), []
    for purpose in (duty, paths):  # all on one path, beside a map: a busy path is not a missing one
        columns = [np.full(3000, 10.1), np.full(3000, 53.4)] * purpose.steps
        tallies.append(perturb_column(mechanism_of(task, purpose), "all", columns, Noise(), purpose=purpose.name))
    both = estimate(tallies, task)
    assert both.owner.cautions(both) == ()


@pytest.mark.parametrize("present", [1.0, 0.6])
def test_bins_and_quantiles_are_those_of_the_readings(present):
    """Speeds from 20.7 to 60.7: missing ones, reported as 60, would fill bins around it and lift the median."""
    task = speed_task("symbol", method="square-wave")
    purpose, values = task.purposes[0], speeds(20_000, present)
    (tier,) = task.slot_tiers(purpose)
    tally = perturb_column(mechanism_of(task, purpose), tier, [values], Noise(), purpose="numbers")
    lines = estimate([tally], task, confidence=NEARLY_SURE).data.to_pylist()
    there = values[~np.isnan(values)]
    bins = [line for line in lines if line["quantity"] == "share"]
    assert sum(line["value"] for line in bins) == pytest.approx(1)
    for line in bins:
        true = np.mean((there >= line["bin_lower"]) & (there < line["bin_upper"]))
        assert line["lower"] <= true <= line["upper"], line
        assert line["value"] == pytest.approx(true, abs=0.2), line
    for line in lines:
        if line["quantity"].startswith("quantile"):
            true = np.quantile(there, float(line["quantity"].split()[1]))
            assert line["lower"] <= true <= line["upper"], line
            assert line["value"] == pytest.approx(true, abs=8), line


@given(st.lists(st.floats(0.01, 1), min_size=4, max_size=4), st.floats(0.05, 1), st.floats(0, 1))
def test_shares_without_the_missing_against_plain_sums(weights, present, side):
    """Whatever the shares of numbers that are present, and on whichever side of the middle the others were put."""
    true = np.array(weights) / sum(weights)
    observed = present * true + (1 - present) * np.array([0, side, 1 - side, 0])
    ranges = [(first, last) for first in range(4) for last in range(first + 1, 5)]
    for slack, (first, last) in itertools.product((0.0, 0.05), ranges):
        share, due = observed[first:last].sum(), true[first:last].sum()
        slots = max(present - slack, 0.0), min(present + slack, 1.0)
        least, most = among_present((max(share - slack, 0), min(share + slack, 1)), first / 4, last / 4, slots)
        assert least <= due + 1e-9
        assert due <= most + 1e-9


def test_cautions_come_first(tmp_path):
    _, release = speed_release("symbol")
    (caution,) = release.owner.cautions(release)
    release.write_files(tmp_path)
    readme = (tmp_path / "README.md").read_text()
    assert readme.index(caution) < readme.index("Made with")
    text = run(f"show {tmp_path}").out
    assert text.index(caution) < text.index("Guarantee")
    assert "+00:00" not in text + readme
    shown = fine(f"show {tmp_path} --precision speed=1")
    assert shown["cautions"] == [caution]
    (need,) = shown["precision"]
    assert (need["attribute"], need["half_width"], need["reports_now"]) == ("speed", 1.0, 40_000)
    assert not verify(tmp_path).problems


def write_trucks(folder, *, trucks=6, days=2, columns="truck_id,when,kmh,lat_deg,lon_deg"):
    """One file a truck, with a row every ten minutes from six to ten; a note and a hidden file beside them."""
    folder.mkdir()
    generator = np.random.default_rng(2)
    for truck in range(trucks):
        lines = [columns]
        for day in range(days):
            for minute in range(6 * 60, 10 * 60, 10):
                moment = f"2026-10-{14 + day}T{minute // 60:02}:{minute % 60:02}:00"
                lines.append(f"T{truck},{moment},{generator.uniform(20.7, 60.7):.2f},{0.1 * truck},{0.1 * truck}")
        (folder / f"T{truck}.csv").write_text("\n".join(lines) + "\n")
    (folder / "notes.txt").write_text("not rows")
    (folder / ".T9.csv").write_text("not rows")
    return folder


POLICY = """dataset = "fleet"
protects = "vehicle"
allowance = { lifetime = 100 }
schedule = { time = "when", slot_minutes = 60, slots_per_day = 2%s }
[attributes]
truck_id = { role = "identifier" }
when = { role = "drop" }
kmh = { role = "quasi-identifier", kind = "numeric", domain = [0, 120], unit = "km/h"%s }
place = { role = "quasi-identifier", kind = "grid", box = [0, 0, 1, 1], levels = 2, columns = ["lon_deg", "lat_deg"] }
[mechanisms]
numbers = { name = "local-numeric", epsilon = 2 }
places = { name = "local-location", epsilon = 2 }
"""
HOURS = ', hours = ["06:00", "10:00"]'


def write_policy(path, hours="", missing=""):
    path.write_text(POLICY % (hours, missing))
    return path


def test_a_folder_of_files_under_the_names_of_the_policy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_trucks(Path("trucks"))
    write_policy(Path("fleet.toml"), HOURS)
    fine("draft trucks -o draft.toml")
    assert 'dataset = "trucks"' in Path("draft.toml").read_text()
    run("draft trucks --story rows -o rows.toml").refused("folder")
    fine("device task fleet.toml -o task.json")
    simulated = fine("device simulate trucks --task task.json -o reports.jsonl")
    assert (simulated["vehicles"], simulated["rows"], simulated["missing"]) == (6, 6 * 2 * 24, 0)
    assert {report.slot for report in ReportFile("reports.jsonl")} <= {7, 8, 9, 10}
    done = fine("estimate reports.jsonl --task task.json --allow-noise -o estimates")
    (need,) = done["precision"]
    assert (need["attribute"], need["reports_now"]) == ("kmh", 24)
    fine("audit estimates trucks --policy fleet.toml -o audit")
    days = "--from 2026-10-14 --to 2026-10-15"
    fine(f"device perturb trucks --vehicle T3 --task task.json --allowance t3 --enrol {days} -o t3.jsonl")
    # A given name wins over that of the policy.
    assert run("device simulate trucks --task task.json --vehicle-column lorry -o r.bin").code == 2
    for command in ("estimate reports.jsonl --task task.json -o e", "show task.json", "show fleet.toml"):
        for wrong in ("mass=1", "0%", "5", "speed=", "101%", "kmh=-1", "a=b=c"):
            assert run(f"{command} --precision {wrong}").code == 2, (command, wrong)
    assert not Path("e").exists()


def test_files_of_a_folder(tmp_path):
    folder = write_trucks(tmp_path / "trucks", trucks=3)
    files = data_files(folder)
    assert [file.name for file in files] == ["T0.csv", "T1.csv", "T2.csv"]
    numbers = {"numbers": ["kmh"], "time": "when", "labels": ["truck_id"]}
    assert sum(rows.size for rows in RowFile(folder, **numbers)) == 3 * 2 * 24
    lines = files[1].read_text().splitlines()
    files[1].write_text("\n".join([*lines[:3], lines[3].replace("2026-10-14T", "soon "), *lines[4:]]))
    with pytest.raises(InputError) as caught:
        list(RowFile(folder, **numbers))
    assert (caught.value.source, caught.value.problems[0].rows) == (str(files[1]), (3,))
    files[1].write_text(files[0].read_text().replace("kmh", "speed"))
    with pytest.raises(InputError) as caught:
        RowFile(folder, **numbers)
    assert (caught.value.source, caught.value.problems[0].where) == (str(files[1]), "kmh")
    # The column of the vehicle may be absent, but not from some files only.
    files[1].write_text(files[0].read_text().replace("truck_id", "lorry"))
    with pytest.raises(InputError):
        RowFile(folder, **numbers, optional=["truck_id"])
    for file in files:
        file.write_text(file.read_text().replace("truck_id", "lorry"))
    assert RowFile(folder, **numbers, optional=["truck_id"]).labels == []
    with pytest.raises(InputError):
        data_files(tmp_path)  # no file of rows
    empty = RowFile(tmp_path, **numbers, lenient=True)  # a device reports all the same
    assert (list(empty), len(empty.warnings())) == ([], 1)


def test_files_named_after_vehicles_with_semicolons_and_shifts_past_midnight(tmp_path, monkeypatch):
    """Such folders were refused, and the day after the last shift made most slots of it missing, also in audits."""
    monkeypatch.chdir(tmp_path)
    Path("gps").mkdir()
    moments = [f"2026-10-{14 + h // 24}T{h % 24:02}:30:00Z" for d in (0, 24, 48) for h in range(d + 16, d + 25)]
    for truck in range(4):
        lines = ["when;kmh;lon_deg;lat_deg", *(f"{moment};{40 + truck},5;0,5;0,5" for moment in moments)]
        Path(f"gps/T{truck}.csv").write_text("\n".join(lines) + "\n")
    fine("draft gps --story devices -o draft.toml")
    assert "[attributes.file]" in Path("draft.toml").read_text()
    days = '["2026-10-14", "2026-10-16"]'
    for name, schedule in (("fleet", ""), ("stated", f", days = {days}")):
        policy = write_policy(Path(f"{name}.toml"), schedule)
        policy.write_text(policy.read_text().replace("truck_id", "file"))
    fine("device task fleet.toml -o task.json")
    simulated = fine("device simulate gps --task task.json -o reports.jsonl")
    assert (simulated["vehicles"], simulated["rows"]) == (4, 4 * 27)
    assert sum("2026-10-17" in note for note in simulated["notes"]) == 1
    assert any(f"days = {days}" in note for note in simulated["notes"])
    source = RowFile(Path("gps"), numbers=["kmh"], time="when", labels=["file"])
    read = {name: rows.numbers["kmh"] for rows in source for name in rows.labels["file"].to_pylist()}
    assert {name: set(values) for name, values in read.items()} == {f"T{truck}": {40.5 + truck} for truck in range(4)}
    assert Fleet.read("gps", "fleet.toml").num_slots == 4 * 4 * 24
    assert Fleet.read("gps", "stated.toml").num_slots == 4 * 3 * 24
    # Devices reported some days of the file (--from, --to): the truth is that of the same days.
    some = Fleet.read("gps", "fleet.toml", days=("2026-10-14", "2026-10-15"))
    assert some.num_slots == 4 * 2 * 24
    assert "from 2026-10-14 to 2026-10-15," in some.compared_days
    assert len(next(some.by_row()).steps[0]["kmh"]) == len(some.order) < some.num_rows
    refusal(InputError, Fleet.read, "gps", "fleet.toml", days=("2026-11-14", "2026-11-15"))
    run("device simulate gps --task task.json --vehicle-column lorry -o r.bin").refused("'file'")


def test_a_row_that_cannot_be_read_leaves_no_thread_behind(tmp_path, monkeypatch):
    """A thread that held our function aborted the program at its end: exit code 134 in 4 of 40 runs, not 2."""
    opened, release, waited = pacsv.open_csv, threading.Event(), []

    def late(stream, *, parse_options, **options):
        note = parse_options.invalid_row_handler
        threading.Thread(target=lambda note: release.wait(60), args=(note,)).start()
        return opened(stream, parse_options=parse_options, **options)

    def sleep(seconds):
        waited.append(seconds)
        release.set()

    monkeypatch.setattr(pacsv, "open_csv", late)
    monkeypatch.setattr(reader.time, "sleep", sleep)
    path = tmp_path / "trucks.csv"
    path.write_text("truck,when,kmh\nA,12.10.2026 06:00:00,50\n")
    with pytest.raises(InputError, match="when: is missing, or not a moment"):
        list(RowFile(path, numbers=["kmh"], time="when", labels=["truck"]))
    release.set()
    assert waited  # for the thread that held the function


@pytest.mark.parametrize("hours", ["", HOURS])
def test_audits_compare_with_the_readings(tmp_path, hours):
    """An audit called a filled mean right, because it had filled its own truth as well."""
    trucks = write_trucks(tmp_path / "trucks")
    policy = write_policy(tmp_path / "fleet.toml", hours, ', missing = "middle"')
    task = read_task(policy)
    assert (task.file_columns.vehicle, task.file_columns.places) == ("truck_id", ("lon_deg", "lat_deg"))
    simulate(trucks, task, tmp_path / "reports.jsonl")
    collected = collect([tmp_path / "reports.jsonl"], task)
    assert collected.num_days == 2
    release = estimate(collected.tallies, task, allow_noise=True)
    fleet = Fleet.read(trucks, policy)
    assert fleet.num_slots == 6 * 2 * (4 if hours else 24)
    truth = EstimatesTruth.of(EstimatesView.of(release), fleet).truth.numbers["numbers", "kmh"]
    assert (truth.num, truth.num_missing) == ((48, 0) if hours else (60, 6 * 2 * 19))
    details = audit(release, fleet).finding("error of the mean (kmh)").details
    assert 20.7 < details["truth"] < 60.7
    readings = [float(line.split(",")[2]) for file in data_files(trucks) for line in file.read_text().split()[1:]]
    assert details["truth"] == pytest.approx(np.mean(readings), abs=5)  # the last row of each hour, not all of them
    # A policy that leaves it out made such tasks in version 0.1; one that differs otherwise did not.
    silent = Fleet.read(trucks, write_policy(tmp_path / "silent.toml", hours))
    assert silent.task.digest != task.digest
    assert EstimatesTruth.of(EstimatesView.of(release), silent).fleet.task.digest == task.digest
    other = Fleet.read(trucks, write_policy(tmp_path / "other.toml", ', hours = ["06:00", "11:00"]'))
    with pytest.raises(ReleaseError):
        EstimatesTruth.of(EstimatesView.of(release), other)


def test_reports_of_other_hours_are_impossible(tmp_path):
    trucks, day = write_trucks(tmp_path / "trucks"), write_policy(tmp_path / "fleet.toml", HOURS)
    task = read_task(day)
    simulate(trucks, task, tmp_path / "reports.jsonl")
    report = next(iter(ReportFile(tmp_path / "reports.jsonl")))
    report.check(task)
    # Rows at six, whose hour was before, are no slots either.
    for name, tally in (("r.jsonl", False), ("t.json", True)):
        done = simulate(trucks, task, tmp_path / name, every_row=True, tally=tally)
        assert (done.num_outside, done.num_reports) == (6 * 2, 2 * 6 * 2 * 23)
        assert not collect([tmp_path / name], task).left_out
    for slot in (0, 6, 11, 23):
        with refuses(ReportError, slot):
            replace(report, slot=slot).check(task)


@pytest.mark.parametrize(("missing", "method"), [("middle", "harmony"), ("symbol", "piecewise"), ("symbol", "duchi")])
def test_a_wanted_precision_takes_as_many_reports_as_predicted(missing, method):
    """Half of the values at either end vary most. With a symbol, a third of the slots has none."""
    task = speed_task(missing, method=method)
    purpose = task.purposes[0]
    mechanism, (tier,) = mechanism_of(task, purpose), task.slot_tiers(purpose)
    present = 2 / 3 if missing == "symbol" else 1.0
    num = needed_reports(mechanism, 0, 3.0, present=present)
    ends = np.where(np.arange(num) % 2, 120.0, 0.0)
    ends[np.arange(num) >= present * num] = np.nan
    tally = perturb_column(mechanism, tier, [ends], Noise(), purpose="numbers")
    (line, *_) = estimate([tally], task).data.to_pylist()
    width = max(line["value"] - line["lower"], line["upper"] - line["value"])
    assert 0.85 * 3 < width < 1.15 * 3
    # Values that are all alike vary less, and need no more.
    alike = np.where(np.isnan(ends), np.nan, 60.0)
    tally = perturb_column(mechanism, tier, [alike], Noise(), purpose="numbers")
    (line, *_) = estimate([tally], task).data.to_pylist()
    assert max(line["value"] - line["lower"], line["upper"] - line["value"]) < 1.1 * 3


def test_estimates_say_what_a_precision_still_takes():
    """An interval of 4,000 reports predicts how many make it half as wide, with a third of the slots missing."""
    task, release = speed_release("symbol", num=4_000, present=0.67, confidence=0.95)
    line = mean_of(release)
    now = max(line["value"] - line["lower"], line["upper"] - line["value"])
    (need,) = needs_of_release(release, task, Precision(by_name={"speed": now / 2}))
    assert (need.num_now, need.half_width_now) == (4_000, pytest.approx(now))
    assert need.num_reports == pytest.approx(16_000, abs=1)
    _, larger = speed_release("symbol", num=need.num_reports, present=0.67, confidence=0.95)
    line = mean_of(larger)
    assert max(line["value"] - line["lower"], line["upper"] - line["value"]) == pytest.approx(now / 2, rel=0.15)
    (text,) = more_lines([need], task, 20)  # 200 vehicles on 20 days, 60 more days, beyond an allowance of 30
    assert "60 more days of 200 vehicles, or 800 vehicles on 20 days" in text
    assert "lasts for 30 days" in text
    (text,) = more_lines([need], task, None)
    assert "12,000 more reports" in text
    (text,) = more_lines(needs_of_release(release, task, Precision(by_name={"speed": 100})), task, 20)
    assert "reached" in text
    # Without a usable interval, the law predicts it.
    task, few = speed_release("symbol", num=8, present=0.5, confidence=0.95)
    (need,) = needs_of_release(few, task, Precision())
    assert 100 < need.num_reports < 100_000


def test_fleets_before_they_report():
    task = speed_task("symbol")
    needs = [replace(need, num_reports=1_000) for need in needs_of_release(*speed_release("symbol")[::-1], Precision())]
    first, last = plan_lines(needs, task, 100)
    assert "10 days of 100 vehicles, or 1,000 vehicles on one day" in first
    assert "half of the slots" in last
    assert "one day is enough" in next(plan_lines(needs, task, 2_000))
    assert "lasts for 30 days, which takes 34 vehicles" in next(plan_lines(needs, task, 10))
    assert not list(plan_lines([], task, 10))
    assert not needs_of_release(estimate(fleet_tallies(places := fleet_task("places")), places), places, Precision())


def test_wanted_precisions():
    assert Precision.read(None) == Precision()
    assert Precision.read("2.5%, load=0.5") == Precision(share=Fraction(1, 40), by_name={"load": Fraction(1, 2)})
    wanted = Precision.read("10%,load=0.5")
    assert (wanted.half_width(SPEED), wanted.half_width(LOAD)) == (12.0, 0.5)
    wanted.check(truck_task())
    with pytest.raises(ParameterError):
        Precision.read("mass=1").check(truck_task())


def test_times_for_people():
    assert time_text("2026-11-17T18:20:59+00:00") == "2026-11-17 18:20 UTC"
    assert time_text("2026-11-17T20:20:00+02:00") == "2026-11-17 18:20 UTC"
    assert time_text("soon") == "soon"
    assert FileColumns() == Task.file_columns
