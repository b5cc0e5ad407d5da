# SPDX-License-Identifier: Apache-2.0
"""A device's own budget file: spends once, forgets nothing, survives crashes and clocks."""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
import tempfile
import threading
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.estimates_help import GRID, HOURLY, PATHS, PLACES, refuses, truck_task

from dunnage.devices.allowance import Allowance, Slot
from dunnage.devices.report import Report
from dunnage.devices.task import Limits, Purpose, Schedule, Tier
from dunnage.errors import AllowanceError, ParameterError, TaskError

DAY = 20_000
MIDNIGHT = DAY * 86_400
ONE = Fraction(1)


def make_task(**changes):
    return truck_task(PLACES, PATHS, **changes)


TASK = make_task()


def enrol(path, task=TASK, **changes):
    """A new vehicle in tier basic, without waiting for the disk."""
    return Allowance.open(
        path, task, **{"tier": "basic", "enrol": True, "now": MIDNIGHT, "cap": "none", "durable": False, **changes}
    )


def reopen(path, task=TASK, **changes):
    """The same vehicle later."""
    return Allowance.open(path, task, **{"durable": False, **changes})


def spend(allowance, day=DAY, hour=0, purpose="places", loss=ONE, now=None):
    """Spend a slot at its moment, or at another time."""
    allowance.spend(Slot(day, hour), purpose, loss, day * 86_400 + hour * 3600 if now is None else now)


def spend_and_store(allowance, day=DAY, hour=0):
    report = b"report of %d" % day
    spend(allowance, day, hour)
    allowance.store(Slot(day, hour), "places", report)
    return report


@pytest.fixture
def path(tmp_path):
    """Where the allowance is kept."""
    return tmp_path / "truck.allowance"


def names_in(folder):
    return {file.name for file in folder.iterdir()}


def test_a_vehicle_is_enrolled_once_and_a_missing_file_counts_as_spent(path):
    with pytest.raises(AllowanceError):
        reopen(path)
    assert not names_in(path.parent)
    old = os.umask(0)
    try:
        with enrol(path) as allowance:
            spend(allowance)
    finally:
        os.umask(old)
    assert names_in(path.parent) == {path.name, f"{path.name}.lock", f"{path.name}.enrolled"}
    assert {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()} == {0o600}
    with pytest.raises(AllowanceError):
        enrol(path)
    reopen(path).close()
    path.unlink()  # the file is lost; its counter stays
    for attempt in (enrol, reopen):
        with pytest.raises(AllowanceError):
            attempt(path)


def test_what_is_no_allowance_is_left_alone(path, tmp_path):
    path.write_text("time,speed\n0,1\n")
    for attempt in (enrol, reopen):
        with refuses(AllowanceError, attempt):  # another file gets no lock
            attempt(path)
        with refuses(AllowanceError, attempt):
            attempt(tmp_path)
    with pytest.raises(AllowanceError):
        enrol(tmp_path / "no" / "truck")
    assert names_in(tmp_path) == {path.name}
    assert not Path(f"{tmp_path}.lock").exists()
    path.unlink()
    for now in (None, math.nan, math.inf, -1, "now", True, 1e30, 7_289_654_400):  # the last is in the year 2201
        with refuses(AllowanceError, now):
            enrol(path, now=now)
    enrol(path, now=7_289_654_399).close()


def test_a_damaged_file_counts_as_spent(path):
    task = make_task(schedule=Schedule())
    with enrol(path, task) as allowance:
        allowance.advance(MIDNIGHT)
    content = path.read_bytes()
    damaged = [b"", b"{}", b"\xff" * 50, b"null\nsha256 0\n"]
    for at in range(len(content)):  # a flipped bit in any byte
        flipped = bytearray(content)
        flipped[at] ^= 1 << at % 8
        damaged.append(bytes(flipped))
    data = json.loads(content.split(b"\n")[0])
    lifetimes = [{"lifetime": {"places": [loss, 1, 0]}} for loss in ("-1", "1/0")]
    for change in ({"format": 3}, {"kind": "x"}, {"days": []}, {"seen": None}, {"days": {"1": {}}}, *lifetimes):
        line = json.dumps({**data, **change}).encode()  # a sound checksum over nonsense
        damaged.append(line + b"\nsha256 " + hashlib.sha256(line).hexdigest().encode() + b"\n")
    for wrong in damaged:
        path.write_bytes(wrong)
        with refuses(AllowanceError, wrong):
            reopen(path, task)
        assert path.read_bytes() == wrong


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_one_process_at_a_time(path):
    with enrol(path) as allowance:
        with pytest.raises(AllowanceError):
            reopen(path)
        child = os.fork()
        if child == 0:
            try:
                spend(allowance)
            except AllowanceError:
                os._exit(0)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    allowance.close()  # again
    with pytest.raises(AllowanceError):
        allowance.due(MIDNIGHT)
    assert "closed" in repr(allowance)
    reopen(path).close()


def test_tiers(path):
    for tier in (None, "gold"):
        with refuses(TaskError, tier):
            enrol(path, tier=tier)
    enrol(path, tier="strict").close()  # neither refusal left anything that stands in the way
    with reopen(path) as allowance:
        assert allowance.tier == "strict"
    with pytest.raises(AllowanceError, match="strict"):
        reopen(path, tier="basic")


def test_slots_are_drawn_for_today_and_tomorrow_and_never_moved(path):
    task = make_task(schedule=Schedule(slots_per_day=3))
    with enrol(path, task) as allowance:
        drawn = [allowance.slots(day) for day in (DAY, DAY + 1)]
        assert all(len(slots) == 3 for slots in drawn)
        assert allowance.slots(DAY + 2) == ()
        allowance.advance(MIDNIGHT + 500)
    with reopen(path, task) as allowance:
        assert [allowance.slots(day) for day in (DAY, DAY + 1)] == drawn
        allowance.advance(MIDNIGHT + 86_400)
        assert allowance.slots(DAY + 1) == drawn[1]
        following = allowance.slots(DAY + 2)
    with reopen(path, task) as allowance:
        assert allowance.slots(DAY + 2) == following


def test_when_slots_are_due(path, tmp_path):
    with enrol(path) as allowance:
        assert allowance.next_moment(MIDNIGHT) == MIDNIGHT + 3600
        due = [allowance.due(MIDNIGHT + seconds) for seconds in (0, 1800, 1801, 3599, 3600)]
        assert due == [(Slot(DAY, 0),), (Slot(DAY, 0),), (), (), (Slot(DAY, 1),)]
        assert allowance.next_moment(MIDNIGHT + 10**7) is None
    several = make_task(schedule=Schedule(slots_per_day=24, slot_minutes=60, lateness_minutes=150))
    with enrol(tmp_path / "several", several) as allowance:
        assert [slot.slot for slot in allowance.due(MIDNIGHT + 5 * 3600)] == [3, 4, 5]
        assert allowance.due(MIDNIGHT + 86_400) == (Slot(DAY, 22), Slot(DAY, 23), Slot(DAY + 1, 0))
    schedule = Schedule(slots_per_day=24, slot_minutes=60, lateness_minutes=600, closing="01:00", skew_seconds=60)
    with enrol(tmp_path / "closing", make_task(schedule=schedule)) as allowance:
        after = MIDNIGHT + 86_400 + 3600
        assert Slot(DAY, 23) in allowance.due(after)
        assert Slot(DAY, 23) not in allowance.due(after + 1)
        assert allowance.slots(DAY)  # kept while clocks may still differ
        allowance.advance(after + 61)
        assert allowance.slots(DAY) == ()
        with pytest.raises(AllowanceError):
            allowance.stored(Slot(DAY, 23), "places")


def test_spent_then_stored_then_the_same_for_ever(path):
    slot = Slot(DAY, 0)
    with enrol(path) as allowance:
        assert not allowance.is_spent(slot, "places")
        spend(allowance)
        assert (allowance.is_spent(slot, "places"), allowance.stored(slot, "places")) == (True, None)
        allowance.store(slot, "places", b"secret report")
        assert "secret" not in repr(allowance) + allowance.summary()
    with reopen(path) as allowance:
        assert allowance.stored_of(DAY) == (b"secret report",)
        assert not allowance.is_spent(slot, "paths")
        assert allowance.spent_on(DAY).loss == allowance.spent_in_all().loss == 1
        for attempt in (
            lambda: spend(allowance),
            lambda: allowance.store(slot, "places", b"another"),
            lambda: allowance.store(slot, "paths", b"another"),  # it was not spent
        ):
            with pytest.raises(AllowanceError):
                attempt()
        assert allowance.stored(slot, "places") == b"secret report"
        assert allowance.spent_in_all().num_reports == 1


def test_only_what_is_due(path):
    with enrol(path) as allowance:
        for slot in (Slot(DAY, 1), Slot(DAY, 24), Slot(DAY + 1, 0), Slot(DAY + 9, 0), Slot(DAY - 1, 23)):
            with refuses(AllowanceError, slot):
                allowance.spend(slot, "places", ONE, MIDNIGHT)
        with pytest.raises(AllowanceError):
            spend(allowance, now=MIDNIGHT + 1801)  # late
        assert allowance.spent_in_all().num_reports == 0


def test_limits(path, tmp_path):
    with enrol(path, make_task(limits=Limits(day="48", lifetime="50"))) as allowance:
        spend(allowance, loss=Fraction(95, 2))
        with pytest.raises(AllowanceError) as caught:
            spend(allowance, purpose="paths", loss=Fraction(501, 1000))
        assert all(number in str(caught.value) for number in ("0.501", "47.5", "48"))  # asked, spent, limit of the day
        spend(allowance, purpose="paths", loss=Fraction(1, 2))  # to the last drop
        assert allowance.spent_on(DAY).loss == 48
        with pytest.raises(AllowanceError, match="50"):  # of the lifetime
            spend(allowance, DAY + 1, loss=2 + Fraction(1, 10**9))
        assert allowance.spent_on(DAY + 1).num_reports == 0
        spend(allowance, DAY + 1, loss=Fraction(2))
    with enrol(tmp_path / "bounded") as allowance:
        with pytest.raises(AllowanceError):
            spend(allowance, loss=None)  # no bound
        assert not allowance.is_spent(Slot(DAY, 0), "places")
    with enrol(tmp_path / "unbounded", make_task(limits=Limits(lifetime="48", allow_unbounded=True))) as allowance:
        spend(allowance, loss=None)
        spend(allowance, purpose="paths")
        spent = allowance.spent_in_all()
        assert (spent.loss, spent.num_reports, spent.num_unbounded) == (1, 2, 1)


def test_lifetime_outlives_the_days(path):
    with enrol(path) as allowance:
        for day in range(DAY, DAY + 10):
            spend(allowance, day, loss=Fraction(1, 3))
            allowance.store(Slot(day, 0), "places", b"x" * 100)
        assert path.stat().st_size < 4000  # closed days are forgotten
    with reopen(path) as allowance:
        assert allowance.spent_in_all().loss == Fraction(10, 3)
        assert allowance.spent_on(DAY).num_reports == 0
        assert {name: spent.num_reports for name, spent in allowance.spent_by_purpose().items()} == {"places": 10}
        assert "3.33333" in allowance.summary()


def test_threads_cannot_spend_twice(path):
    done = []

    def attempt():
        try:
            spend(allowance)
            done.append("spent")
        except AllowanceError:
            done.append("refused")

    with enrol(path) as allowance:
        threads = [threading.Thread(target=attempt) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert allowance.spent_in_all().num_reports == 1
    assert Counter(done) == {"spent": 1, "refused": 7}


def test_a_clock_that_goes_back(path):
    five = MIDNIGHT + 5 * 3600
    with enrol(path) as allowance:
        report = spend_and_store(allowance, hour=5)
        with pytest.raises(AllowanceError, match="61"):
            allowance.due(five - 61)
        with pytest.raises(AllowanceError):
            spend(allowance, hour=4)
        assert allowance.due(five - 60) == (Slot(DAY, 5),)  # a little back carries on
        spend(allowance, hour=5, purpose="paths", now=five - 60)
        assert (allowance.seen, allowance.stored_of(DAY)) == (five, (report,))
    with reopen(path) as allowance, pytest.raises(AllowanceError):
        spend(allowance, hour=4)  # a restart does not help
    with pytest.raises(AllowanceError):
        reopen(path, make_task(version=2), adopt=True, now=MIDNIGHT)


def test_a_day_that_was_forgotten_is_not_drawn_again(path):
    with enrol(path) as allowance:
        spend(allowance, hour=23)
        allowance.advance(MIDNIGHT + 86_400)
        allowance.advance(MIDNIGHT + 86_400 + 4 * 3600)  # the day has closed; nothing else is written
        assert allowance.slots(DAY) == ()
        with pytest.raises(AllowanceError):
            allowance.due(MIDNIGHT + 23 * 3600)
    with reopen(path) as allowance, pytest.raises(AllowanceError):
        spend(allowance, hour=23, now=MIDNIGHT + 86_400 - 60)  # its mark is still on the disk


def test_jumps_forwards_and_of_years_with_consent(path):
    with enrol(path) as allowance:
        spend(allowance)
        assert allowance.due((DAY + 400) * 86_400) == (Slot(DAY + 400, 0),)
        assert (allowance.slots(DAY), allowance.spent_in_all().loss) == ((), 1)
    before, wrong = path.read_bytes(), (DAY + 801) * 86_400
    with reopen(path) as allowance:
        for attempt in (allowance.due, lambda now: spend(allowance, DAY + 801)):
            with pytest.raises(AllowanceError, match="401"):
                attempt(wrong)
        assert path.read_bytes() == before
        assert allowance.due((DAY + 400) * 86_400) == (Slot(DAY + 400, 0),)
    with pytest.raises(AllowanceError):  # adopting does not vouch for the clock
        reopen(path, make_task(version=2), adopt=True, now=wrong)
    with reopen(path, accept_clock=True) as allowance:
        assert allowance.due(wrong) == (Slot(DAY + 801, 0),)
        with pytest.raises(AllowanceError):  # consent is for one jump
            allowance.due(wrong + 401 * 86_400)


def test_a_clock_that_was_wrong_once_does_not_silence_a_vehicle(path):
    wrong = (DAY + 399) * 86_400
    with enrol(path) as allowance:
        spend(allowance)
        spend_and_store(allowance, DAY + 399)  # the clock is ahead for a moment
    tomorrow = MIDNIGHT + 86_400
    with reopen(path) as allowance, pytest.raises(AllowanceError, match="accept"):
        allowance.due(tomorrow)
    with reopen(path, accept_clock=True) as allowance:
        assert allowance.due(tomorrow) == ()  # that day had slots before, and nobody knows what was spent of it
        assert allowance.seen == tomorrow
        with pytest.raises(AllowanceError):  # consent is for one change
            allowance.due(MIDNIGHT)
    assert json.loads(path.read_bytes().split(b"\n")[0])["clocks"] == [[wrong, tomorrow]]
    with reopen(path) as allowance:
        spend(allowance, DAY + 2)
        assert allowance.spent_in_all().num_reports == 3  # nothing is refunded
        for day in range(DAY + 3, DAY + 399, 30):
            spend(allowance, day)
        with pytest.raises(AllowanceError):  # what was spent ahead stays spent when its day comes
            spend(allowance, DAY + 399)
        assert allowance.stored(Slot(DAY + 399, 0), "places") == b"report of %d" % (DAY + 399)
        spend(allowance, DAY + 399, hour=1)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 60 * 24), st.booleans(), st.booleans()), max_size=25))
def test_no_clock_spends_a_slot_twice_even_if_its_owner_vouches_for_it(steps):
    spent = set()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "truck"
        enrol(path).close()
        for hour, accept, adopt in steps:
            now, task = MIDNIGHT + hour * 3600, TASK
            with reopen(path, task, accept_clock=accept) as allowance:
                try:
                    due = allowance.due(now)
                except AllowanceError:
                    assert not accept
                    continue
                for slot in due:
                    if not allowance.is_spent(slot, "places"):
                        allowance.spend(slot, "places", ONE, now)
                        assert slot not in spent
                        spent.add(slot)
                assert allowance.spent_in_all().num_reports == len(spent)
            if adopt and accept:  # and a change of tasks does not forget either
                for version in (2, 1):
                    reopen(path, make_task(version=version), adopt=True, now=now).close()


def test_many_spans_of_days_become_fewer_and_never_forget(path):
    with enrol(path) as allowance:
        for day in range(DAY, DAY + 900, 3):
            allowance.advance(day * 86_400)
        spans = json.loads(path.read_bytes().split(b"\n")[0])["spans"]
    assert len(spans) == 64
    assert all(any(first <= day <= last for first, last in spans) for day in range(DAY, DAY + 900, 3))


def test_a_link_is_the_same_allowance(path, tmp_path):
    enrol(path).close()
    (tmp_path / "elsewhere").mkdir()
    link, folder = tmp_path / "elsewhere" / "link", tmp_path / "folder"
    link.symlink_to(path)
    folder.symlink_to(tmp_path)
    with reopen(link) as allowance:
        spend(allowance)
        for other in (path, folder / path.name):
            with refuses(AllowanceError, other):
                reopen(other)
    assert link.is_symlink()
    for other in (path, link, folder / path.name):
        with reopen(other) as allowance, refuses(AllowanceError, other):
            spend(allowance)
    for other in (path, link):  # nor does a link enrol a vehicle twice
        with refuses(AllowanceError, other):
            enrol(other)
    second = tmp_path / "second"
    second.hardlink_to(path)
    Path(f"{second}.enrolled").write_bytes(Path(f"{path}.enrolled").read_bytes())
    for other in (path, second):
        with refuses(AllowanceError, other):
            reopen(other)
    second.unlink()
    reopen(path).close()


def test_a_removed_lock_opens_nothing_twice(path):
    with enrol(path) as first:
        Path(f"{path}.lock").unlink()
        with pytest.raises(AllowanceError, match="in use"):
            reopen(path)
        spend(first)
        Path(f"{path}.lock").unlink()
        with pytest.raises(AllowanceError, match="in use"):
            reopen(path)
        content = path.read_bytes()
        path.unlink()
        path.write_bytes(content)  # another file under the same name: somebody else may have it
        with reopen(path) as second:
            for attempt in (lambda: spend(first, purpose="paths"), lambda: first.store(Slot(DAY, 0), "places", b"x")):
                with pytest.raises(AllowanceError, match="replaced"):
                    attempt()
            spend(second, purpose="paths")
    with reopen(path) as allowance:
        assert allowance.spent_in_all().num_reports == 2


def copy_of(path, *, to=None):
    files = [path, Path(f"{path}.enrolled")]
    kept = [file.read_bytes() for file in files]

    def put_back(*numbers):
        for number in numbers:
            (files if to is None else [to, Path(f"{to}.enrolled")])[number].write_bytes(kept[number])

    return put_back


def test_an_older_copy_is_refused(path, tmp_path):
    enrol(path).close()
    for day in (DAY, DAY + 1):
        put_back = copy_of(path)
        with reopen(path) as allowance:
            spend(allowance, day)
        now = path.read_bytes()
        put_back(0)
        with pytest.raises(AllowanceError, match="older copy"):
            reopen(path)
        path.write_bytes(now)
    copied = tmp_path / "copy"
    copied.write_bytes(path.read_bytes())  # without its counter
    with pytest.raises(AllowanceError, match="copy"):
        reopen(copied)
    enrol(tmp_path / "other").close()
    Path(f"{copied}.enrolled").write_bytes((tmp_path / "other.enrolled").read_bytes())
    with pytest.raises(AllowanceError):
        reopen(copied)
    for wrong in (b"", b"x", b"\xff 1", b"a b\n"):
        Path(f"{path}.enrolled").write_bytes(wrong)
        with refuses(AllowanceError, wrong):
            reopen(path)


def test_a_second_counter_finds_a_copy_of_the_whole_folder(path, tmp_path):
    (tmp_path / "disk").mkdir()
    counter = tmp_path / "disk" / "counter"
    enrol(path, counter=counter).close()
    put_back = copy_of(path)
    with reopen(path) as allowance:  # it remembers where
        spend(allowance)
    put_back(0, 1)
    with pytest.raises(AllowanceError, match="disk"):
        reopen(path)
    with pytest.raises(AllowanceError):  # one counter for one vehicle
        enrol(tmp_path / "other", counter=counter)
    twin = tmp_path / "twin"
    enrol(twin, counter=tmp_path / "disk" / "twin").close()
    copy = tmp_path / "disk" / "copy"
    copy_of(twin, to=copy)(0, 1)
    with reopen(twin) as one, reopen(copy) as other:  # two copies open at once, with one counter
        spend(one)
        with pytest.raises(AllowanceError, match="older"):
            spend(other)
    late = tmp_path / "late"
    enrol(late).close()
    put_back = copy_of(late)
    with reopen(late, counter=tmp_path / "disk" / "late") as allowance:
        spend(allowance)
    put_back(0, 1)
    reopen(late).close()  # a copy from before the second counter does not know it ...
    put_back(0, 1)
    with pytest.raises(AllowanceError, match="older"):  # ... unless its owner names it
        reopen(late, counter=tmp_path / "disk" / "late")
    with enrol(tmp_path / "third", counter=tmp_path / "disk" / "third") as allowance:
        spend(allowance)
    (tmp_path / "disk" / "third").unlink()
    with pytest.raises(AllowanceError, match="no counter"):
        reopen(tmp_path / "third")


@pytest.mark.parametrize("old", [True, False])
@pytest.mark.parametrize("times", range(1, 4))
def test_a_crash_while_a_vehicle_enrols_leaves_a_place_to_enrol(path, monkeypatch, times, old):
    calls, really = 0, os.rename
    if old:
        as_format_1(path)

    def crash(*given):
        nonlocal calls
        calls += 1
        if calls == times:
            raise Crash
        really(*given)

    monkeypatch.setattr(os, "rename", crash)
    with pytest.raises(Crash):
        reopen(path, cap="48") if old else enrol(path)
    monkeypatch.undo()
    with enrol(path) if times < 3 and not old else reopen(path, cap="48") as allowance:
        spend(allowance)


def as_format_1(path):
    """Write an allowance as version 0.1.0 did: with an empty marker beside it."""
    enrol(path).close()
    data = json.loads(path.read_bytes().split(b"\n")[0])
    new = ("cap", "name", "num_writes", "counter", "spans", "clocks")
    line = json.dumps({**{key: data[key] for key in data if key not in new}, "format": 1}).encode()
    path.write_bytes(line + b"\nsha256 " + hashlib.sha256(line).hexdigest().encode() + b"\n")
    Path(f"{path}.enrolled").write_bytes(b"")


def test_a_file_of_format_1_goes_on_and_is_counted_from_then_on(path):
    as_format_1(path)
    put_back = copy_of(path)
    with reopen(path, cap="48") as allowance:
        spend(allowance)
    put_back(0)
    with pytest.raises(AllowanceError, match="older copy"):
        reopen(path)


def test_what_the_collector_has_shows_an_older_copy(path):
    def report(slot, payload=b"x"):
        prefix = {"task": TASK.prefix, "purpose": 0, "tier": 0}
        return Report(**prefix, day=slot.day, slot=slot.slot, report_id=bytes(8), payload=payload)

    slots = [Slot(DAY, 0), Slot(DAY, 1), Slot(DAY + 5, 0)]
    enrol(path).close()
    put_back = copy_of(path)
    with reopen(path) as allowance:
        for slot in slots:
            spend(allowance, *slot)
            allowance.store(slot, "places", report(slot).to_bytes())
        allowance.check_received([report(slot) for slot in slots])
        other = replace(report(slots[2]), task=bytes(8))
        allowance.check_received([other])  # of another task
        with pytest.raises(AllowanceError):
            allowance.check_received([report(slots[2], b"y")])
    put_back(0, 1)  # the file and its counter: nothing here can tell
    with reopen(path) as allowance:
        for slot in slots:
            with refuses(AllowanceError, slot):
                allowance.check_received([report(slot)])


def test_a_task_cannot_raise_the_cap_of_a_device(path, tmp_path):
    def once(epsilon, **changes):
        return truck_task(replace(PLACES, tiers=(Tier(name="all", epsilon=epsilon),)), **changes)

    daily = {"schedule": Schedule(slots_per_day=1, slot_minutes=720)}
    for task in (once("50", **daily), once("10.1", **daily), once("1")):  # the last 24 times a day
        with refuses(AllowanceError, task):
            enrol(path, task, tier=None, cap=None)
    assert names_in(tmp_path) <= {f"{path.name}.lock"}
    modest = once("2", **daily)
    enrol(path, modest, tier=None, cap="2.5").close()
    before, later = path.read_bytes(), {"adopt": True, "now": MIDNIGHT + 60}
    for task in (once("3", **daily), once("50", **daily)):
        with refuses(AllowanceError, task):
            reopen(path, task, **later)
    assert path.read_bytes() == before
    reopen(path, once("3", **daily), cap=3, **later).close()  # the owner can
    with reopen(path, once("3", **daily)) as allowance, pytest.raises(AllowanceError, match="3"):
        spend(allowance, DAY + 1, hour=allowance.slots(DAY + 1)[0], loss=Fraction(4), now=first_slot(allowance))
    for wrong in ("0", "-1", "much", "nan"):
        with refuses(ParameterError, wrong):
            reopen(path, once("3", **daily), cap=wrong)
    free = once("1", limits=Limits(lifetime="48", allow_unbounded=True), **daily)
    with enrol(tmp_path / "free", free, tier=None, cap=None) as allowance, pytest.raises(AllowanceError, match="cap"):
        spend(allowance, hour=allowance.slots(DAY)[0], loss=None, now=first_slot(allowance, DAY))


def first_slot(allowance, day=DAY + 1):
    return day * 86_400 + allowance.slots(day)[0] * 720 * 60


def test_no_slots_outside_the_days_of_a_task(path):
    task = make_task(schedule=replace(HOURLY, days=("2024-10-05", "2024-10-06")))
    assert task.schedule.span == (DAY + 1, DAY + 2)
    with enrol(path, task) as allowance:
        assert [len(allowance.slots(day)) for day in (DAY, DAY + 1)] == [0, 24]
        allowance.advance(MIDNIGHT + 2 * 86_400)
        assert [len(allowance.slots(day)) for day in (DAY + 2, DAY + 3)] == [24, 0]
    for now in (0, 86_400 * 18_261, 365 * 86_400):  # a clock that was never set
        with refuses(AllowanceError, now):
            enrol(path.parent / "other", task, now=now)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4 * 86_400), st.sampled_from(["places", "paths"])), max_size=30), st.data())
def test_no_slot_is_ever_spent_twice(moments, data):
    handed_out = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "truck"
        allowance = enrol(path)
        for number, (offset, purpose) in enumerate(moments):
            if data.draw(st.booleans()):  # a restart
                allowance.close()
                allowance = reopen(path)
            try:
                due = allowance.due(MIDNIGHT + offset)
            except AllowanceError:
                continue
            for slot in due:
                if not allowance.is_spent(slot, purpose):
                    assert (slot, purpose) not in handed_out
                    allowance.spend(slot, purpose, ONE, MIDNIGHT + offset)
                    handed_out[slot, purpose] = b"%d" % number
                    allowance.store(slot, purpose, handed_out[slot, purpose])
                assert allowance.stored(slot, purpose) == handed_out[slot, purpose]
        assert allowance.spent_in_all().num_reports == len(handed_out)
        allowance.close()


def test_another_task_needs_consent_and_what_was_spent_stays_spent(path):
    other = make_task(version=2, limits=Limits(lifetime="49"))
    with enrol(path) as allowance:
        spend(allowance, loss=Fraction(40))
        allowance.store(Slot(DAY, 0), "places", b"old")
    for more in ({}, {"adopt": True}):  # nor without a clock
        with refuses(AllowanceError, more):
            reopen(path, other, **more)
    reopen(path, TASK).close()
    with reopen(path, other, adopt=True, now=MIDNIGHT + 60) as allowance:
        assert allowance.due(MIDNIGHT + 60) == ()  # the new task's slots begin tomorrow
        assert allowance.slots(DAY + 1)
        assert allowance.stored_of(DAY) == (b"old",)
        with pytest.raises(AllowanceError):
            spend(allowance, DAY + 1, purpose="paths", loss=Fraction(10))
    with pytest.raises(AllowanceError):
        reopen(path, TASK)
    gold = (Tier(name="gold", epsilon="1"), Tier(name="silver", epsilon="2"))
    third = truck_task(Purpose(name="places", mechanism="local-location", tiers=gold, grid=GRID))
    with pytest.raises(TaskError):  # the tier must be one of the new task
        reopen(path, third, adopt=True, now=MIDNIGHT + 86_400)
    with reopen(path, third, adopt=True, now=MIDNIGHT + 86_400, tier="gold") as allowance:
        assert allowance.tier == "gold"


def play(path, days):
    with reopen(path, keep_from=days[0]) as allowance:
        return [spend_and_store(allowance, day) for day in days]


def test_reports_of_closed_days_are_kept_until_they_are_forgotten(path, tmp_path):
    enrol(path).close()
    days = range(DAY, DAY + 9)
    made = play(path, days)
    with reopen(path, keep_from=DAY) as allowance:
        assert [allowance.stored(Slot(day, 0), "places") for day in days] == made
        assert [allowance.stored_of(day) for day in days] == [(report,) for report in made]
        assert all(len(allowance.slots(day)) == 24 for day in days)
        with pytest.raises(AllowanceError):
            spend(allowance, hour=1, now=days[-1] * 86_400)
        with pytest.raises(AllowanceError):
            allowance.store(Slot(DAY, 0), "places", b"another")
        assert allowance.spent_in_all().num_reports == 9
        allowance.forget_kept(DAY + 3)
        assert (allowance.stored_of(DAY + 2), allowance.stored_of(DAY + 3)) == ((), (made[3],))
    with reopen(path, keep_from=DAY) as allowance:
        assert [len(allowance.stored_of(day)) for day in days] == [0] * 3 + [1] * 6
        allowance.forget_kept(DAY + 9)
    assert not Path(f"{path}.closed").exists()
    with enrol(tmp_path / "other") as allowance:  # nothing is kept unasked
        for day in days:
            spend_and_store(allowance, day)
        assert allowance.stored_of(DAY) == ()
    assert not (tmp_path / "other.closed").exists()


@pytest.mark.parametrize("cut", [1, 40, 10**6])
def test_a_line_that_was_cut_off(path, cut):
    enrol(path).close()
    made = play(path, range(DAY, DAY + 5))
    kept = Path(f"{path}.closed")
    content = kept.read_bytes()
    kept.write_bytes(content[: max(len(content) - cut, 0)])
    left = () if cut > 100 else (made[0],)
    with reopen(path, keep_from=DAY) as allowance:
        assert allowance.stored_of(DAY) == left
        with pytest.raises(AllowanceError):  # what is lost stays spent
            spend(allowance, DAY + 2, now=(DAY + 4) * 86_400)
        spend_and_store(allowance, DAY + 9)
    with reopen(path, keep_from=DAY) as allowance:
        assert (len(allowance.stored_of(DAY + 4)), allowance.stored_of(DAY)) == (1, left)


def test_room_for_kept_reports_and_whose_they_are(path, monkeypatch):
    enrol(path).close()
    made = play(path, range(DAY, DAY + 4))
    monkeypatch.setattr("dunnage.devices.allowance.MAX_KEPT_BYTES", Path(f"{path}.closed").stat().st_size)
    with reopen(path, keep_from=DAY) as allowance:
        with pytest.raises(AllowanceError):
            spend_and_store(allowance, DAY + 5)
        assert allowance.stored_of(DAY) == (made[0],)
    assert play(path, range(DAY + 5, DAY + 6))  # earlier days make room
    with reopen(path, keep_from=DAY) as allowance:
        assert allowance.stored_of(DAY) == ()
    with reopen(path, make_task(version=2), adopt=True, now=(DAY + 6) * 86_400, keep_from=DAY) as allowance:
        assert allowance.slots(DAY + 5) == ()  # of another task
    for file in (path, Path(f"{path}.enrolled")):
        file.unlink()
    with enrol(path, now=(DAY + 9) * 86_400, keep_from=DAY) as allowance:
        assert allowance.slots(DAY + 5) == ()  # of another vehicle


class Crash(BaseException):
    """The power fails."""


@pytest.mark.parametrize("step", ["open", "write", "fsync", "rename", "close"])
@pytest.mark.parametrize("times", [1, 2])
def test_a_crash_at_any_step_wastes_but_never_forgets(path, monkeypatch, step, times):
    slot, allowance = Slot(DAY, 0), enrol(path, durable=True)
    calls, really = 0, getattr(os, step)

    def crash(*given, **named):
        nonlocal calls
        calls += 1
        if calls >= times:
            raise Crash
        return really(*given, **named)

    monkeypatch.setattr(os, step, crash)
    handed_out = None
    try:
        spend(allowance)
        allowance.store(slot, "places", b"report")
        handed_out = b"report"
    except Crash:
        assert handed_out is None
    monkeypatch.setattr(os, step, really)
    allowance.close()
    Path(f"{path}.partial").write_bytes(b"half")  # remains of a crash are written over
    with reopen(path) as allowance:
        if not allowance.is_spent(slot, "places"):  # the crash came before the spend: nothing was drawn
            assert handed_out is None
            spend(allowance)
        if allowance.stored(slot, "places") is None:
            allowance.store(slot, "places", b"report of the missing input")
        assert handed_out in (None, allowance.stored(slot, "places"))
        assert allowance.spent_in_all().num_reports == 1
        spend(allowance, purpose="paths")
    assert not Path(f"{path}.partial").exists()


def test_a_full_disk_is_a_refusal(path, monkeypatch):
    def full(*given):
        raise OSError(28, "No space left on device")

    slot = Slot(DAY, 0)
    with enrol(path) as allowance:
        monkeypatch.setattr(os, "write", full)
        with pytest.raises(AllowanceError, match="No space left"):
            spend(allowance)
        assert allowance.is_spent(slot, "places")  # it may have reached the disk
        with pytest.raises(AllowanceError, match="No space left"):
            allowance.store(slot, "places", b"report")
        assert allowance.stored(slot, "places") is None
        monkeypatch.undo()
        allowance.store(slot, "places", b"report")


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_killed_process(path):
    enrol(path).close()
    child = os.fork()
    if child == 0:
        spend(reopen(path, durable=True))
        os._exit(9)
    os.waitpid(child, 0)
    with reopen(path) as allowance:
        assert allowance.is_spent(Slot(DAY, 0), "places")
        assert allowance.stored(Slot(DAY, 0), "places") is None
        assert allowance.spent_in_all().loss == 1


def test_synchronised_before_the_rename(path, monkeypatch):
    order = []
    for name in ("fsync", "rename"):
        really = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *a, n=name, r=really: (order.append(n), r(*a))[1])
    with enrol(path, durable=True) as allowance:
        order.clear()
        spend(allowance)
    assert order == ["fsync", "rename", "fsync"] * 2  # the file, then its counter
