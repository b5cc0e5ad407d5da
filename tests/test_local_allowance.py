# SPDX-License-Identifier: Apache-2.0
"""A device's own budget file: spends once, forgets nothing, survives crashes and clocks."""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
import threading
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dunnage.devices.allowance import Allowance, Slot
from dunnage.devices.task import Grid, Limits, Purpose, Schedule, Task, Tier
from dunnage.errors import AllowanceError, Refusal, TaskError

DAY = 20_000
MIDNIGHT = DAY * 86_400
GRID = Grid(box=("103.9", "30.5", "104.2", "30.8"), levels=3)
TIERS = (Tier(name="basic", epsilon="1"), Tier(name="strict", epsilon="0.5"))
PLACES = Purpose(name="places", mechanism="local-location", tiers=TIERS, grid=GRID)
PATHS = Purpose(name="paths", mechanism="local-trajectory", tiers=TIERS, grid=GRID, steps=2)
HOURLY = Schedule(slots_per_day=24, slot_minutes=60, lateness_minutes=30, skew_seconds=60)
ONE = Fraction(1)


def make_task(**changes: object) -> Task:
    """A task that reports every hour."""
    given: dict[str, object] = {
        "dataset": "fleet",
        "purposes": (PLACES, PATHS),
        "schedule": HOURLY,
        "limits": Limits(lifetime="1000"),
    }
    return Task(**{**given, **changes})


TASK = make_task()


def enrol(path: Path, task: Task = TASK, **changes: object) -> Allowance:
    """A new vehicle in tier basic, without waiting for the disk."""
    return Allowance.open(path, task, **{"tier": "basic", "enrol": True, "now": MIDNIGHT, "durable": False, **changes})


def reopen(path: Path, task: Task = TASK, **changes: object) -> Allowance:
    """The same vehicle later."""
    return Allowance.open(path, task, **{"durable": False, **changes})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the allowance is kept."""
    return tmp_path / "truck.allowance"


class TestOpening:
    def test_a_missing_file_counts_as_spent(self, path: Path) -> None:
        with pytest.raises(AllowanceError, match="counts as spent"):
            reopen(path)
        assert list(path.parent.iterdir()) == []
        assert issubclass(AllowanceError, Refusal)

    def test_enrolled_once(self, path: Path) -> None:
        enrol(path).close()
        with pytest.raises(AllowanceError, match=r"allowance already.*Leave out --enrol"):
            enrol(path)
        path.unlink()  # the file is lost; its marker stays
        with pytest.raises(AllowanceError, match="before"):
            enrol(path)
        with pytest.raises(AllowanceError, match="no allowance"):
            reopen(path)

    def test_an_enrolment_that_crashed_before_its_marker(self, path: Path) -> None:
        enrol(path).close()
        marker = Path(f"{path}.enrolled")
        marker.unlink()
        reopen(path).close()
        assert marker.exists()
        marker.unlink()
        with pytest.raises(AllowanceError):
            enrol(path)

    def test_a_folder(self, tmp_path: Path) -> None:
        for attempt in (enrol, reopen):
            with pytest.raises(AllowanceError, match="is a folder"):
                attempt(tmp_path)
        assert not Path(f"{tmp_path}.lock").exists()

    def test_another_file_gets_no_lock(self, path: Path) -> None:
        path.write_text("time,speed\n0,1\n")
        for attempt in (enrol, reopen):
            with pytest.raises(AllowanceError, match="is another file"):
                attempt(path)
        assert [file.name for file in path.parent.iterdir()] == [path.name]

    def test_files_are_private(self, path: Path) -> None:
        old = os.umask(0)
        try:
            with enrol(path) as allowance:
                allowance.spend(Slot(DAY, 0), "places", ONE, MIDNIGHT)
        finally:
            os.umask(old)
        assert {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()} == {0o600}
        assert {file.name for file in path.parent.iterdir()} == {
            path.name,
            f"{path.name}.lock",
            f"{path.name}.enrolled",
        }

    def test_a_damaged_file_counts_as_spent(self, path: Path) -> None:
        enrol(path).close()
        for content in (b"", b"{}", b"\xff" * 50, b"null\nsha256 0\n"):
            path.write_bytes(content)
            with pytest.raises(AllowanceError, match="damaged"):
                reopen(path)
            assert path.read_bytes() == content

    def test_a_flipped_bit_in_any_byte_is_found(self, path: Path) -> None:
        with enrol(path, make_task(schedule=Schedule())) as allowance:
            allowance.advance(MIDNIGHT)
        content = path.read_bytes()
        for at in range(len(content)):
            flipped = bytearray(content)
            flipped[at] ^= 1 << at % 8
            path.write_bytes(flipped)
            with pytest.raises(AllowanceError):
                reopen(path, make_task(schedule=Schedule()))

    def test_a_sound_checksum_over_nonsense(self, path: Path) -> None:
        enrol(path).close()
        data = json.loads(path.read_bytes().split(b"\n")[0])
        lifetimes = [{"lifetime": {"places": [loss, 1, 0]}} for loss in ("-1", "1/0")]
        for change in ({"format": 2}, {"kind": "x"}, {"days": []}, {"seen": None}, {"days": {"1": {}}}, *lifetimes):
            line = json.dumps({**data, **change}).encode()
            path.write_bytes(line + b"\nsha256 " + hashlib.sha256(line).hexdigest().encode() + b"\n")
            with pytest.raises(AllowanceError, match="damaged"):
                reopen(path)

    def test_in_use(self, path: Path) -> None:
        with enrol(path), pytest.raises(AllowanceError, match="in use"):
            reopen(path)
        reopen(path).close()

    @pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
    def test_a_forked_child_may_not_write(self, path: Path) -> None:
        with enrol(path) as allowance:
            child = os.fork()
            if child == 0:
                try:
                    allowance.spend(Slot(DAY, 0), "places", ONE, MIDNIGHT)
                except AllowanceError:
                    os._exit(0)
                os._exit(1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    def test_closed(self, path: Path) -> None:
        allowance = enrol(path)
        allowance.close()
        allowance.close()
        with pytest.raises(AllowanceError, match="not open"):
            allowance.due(MIDNIGHT)
        assert "closed" in repr(allowance)

    def test_tiers(self, path: Path) -> None:
        with pytest.raises(TaskError, match="needs a tier"):
            enrol(path, tier=None)
        with pytest.raises(TaskError, match="no such tier"):
            enrol(path, tier="gold")
        enrol(path, tier="strict").close()  # neither refusal left anything that stands in the way
        with reopen(path) as allowance:
            assert allowance.tier == "strict"
        with pytest.raises(AllowanceError, match="tier strict"):
            reopen(path, tier="basic")

    def test_no_folder(self, tmp_path: Path) -> None:
        with pytest.raises(AllowanceError, match="cannot be used"):
            enrol(tmp_path / "no" / "truck")

    def test_an_unusable_clock(self, path: Path) -> None:
        for now in (None, math.nan, math.inf, -1, "now", True, 1e30):
            with pytest.raises(AllowanceError, match="clock"):
                enrol(path, now=now)


class TestSlots:
    def test_drawn_for_today_and_tomorrow_and_never_moved(self, path: Path) -> None:
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

    def test_uniform_over_the_day(self, path: Path) -> None:
        task = make_task(schedule=Schedule(slot_minutes=360))  # four moments
        with enrol(path, task) as allowance:
            drawn: Counter[int] = Counter()
            for day in range(DAY, DAY + 2000):
                allowance.advance(day * 86_400)
                drawn.update(allowance.slots(day))
        chi = sum((drawn[slot] - 500) ** 2 / 500 for slot in range(4))
        assert chi < 44.9  # 3 degrees of freedom: p < 1e-9 beyond

    def test_due_from_its_moment_to_its_deadline(self, path: Path) -> None:
        with enrol(path) as allowance:
            due = [allowance.due(MIDNIGHT + seconds) for seconds in (0, 1800, 1801, 3599, 3600)]
        assert due == [(Slot(DAY, 0),), (Slot(DAY, 0),), (), (), (Slot(DAY, 1),)]

    def test_several_may_be_due(self, path: Path) -> None:
        task = make_task(schedule=Schedule(slots_per_day=24, slot_minutes=60, lateness_minutes=150))
        with enrol(path, task) as allowance:
            assert [slot.slot for slot in allowance.due(MIDNIGHT + 5 * 3600)] == [3, 4, 5]
            assert allowance.due(MIDNIGHT + 86_400) == (Slot(DAY, 22), Slot(DAY, 23), Slot(DAY + 1, 0))

    def test_closing_ends_a_day(self, path: Path) -> None:
        schedule = Schedule(slots_per_day=24, slot_minutes=60, lateness_minutes=600, closing="01:00", skew_seconds=60)
        with enrol(path, make_task(schedule=schedule)) as allowance:
            after = MIDNIGHT + 86_400 + 3600
            assert Slot(DAY, 23) in allowance.due(after)
            assert Slot(DAY, 23) not in allowance.due(after + 1)
            assert allowance.slots(DAY)  # kept while clocks may still differ
            allowance.advance(after + 61)
            assert allowance.slots(DAY) == ()
            with pytest.raises(AllowanceError, match="not open"):
                allowance.stored(Slot(DAY, 23), "places")

    def test_next_moment(self, path: Path) -> None:
        with enrol(path) as allowance:
            assert allowance.next_moment(MIDNIGHT) == MIDNIGHT + 3600
            assert allowance.next_moment(MIDNIGHT + 10**7) is None


class TestSpending:
    def test_spent_then_stored_then_the_same_for_ever(self, path: Path) -> None:
        slot = Slot(DAY, 0)
        with enrol(path) as allowance:
            assert not allowance.is_spent(slot, "places")
            allowance.spend(slot, "places", ONE, MIDNIGHT)
            assert (allowance.is_spent(slot, "places"), allowance.stored(slot, "places")) == (True, None)
            allowance.store(slot, "places", b"report")
        with reopen(path) as allowance:
            assert allowance.stored(slot, "places") == b"report"
            assert allowance.stored_of(DAY) == (b"report",)
            assert not allowance.is_spent(slot, "paths")
            assert allowance.spent_on(DAY).loss == allowance.spent_in_all().loss == 1
            with pytest.raises(AllowanceError, match="before"):
                allowance.spend(slot, "places", ONE, MIDNIGHT)
            with pytest.raises(AllowanceError, match="Spend it first"):
                allowance.store(slot, "places", b"another")
            with pytest.raises(AllowanceError, match="Spend it first"):
                allowance.store(slot, "paths", b"another")
            assert allowance.stored(slot, "places") == b"report"
            assert allowance.spent_in_all().num_reports == 1

    def test_only_what_is_due(self, path: Path) -> None:
        with enrol(path) as allowance:
            for slot in (Slot(DAY, 1), Slot(DAY, 24), Slot(DAY + 1, 0), Slot(DAY + 9, 0), Slot(DAY - 1, 23)):
                with pytest.raises(AllowanceError, match="not due"):
                    allowance.spend(slot, "places", ONE, MIDNIGHT)
            assert allowance.spent_in_all().num_reports == 0

    def test_a_late_slot_is_never_spent(self, path: Path) -> None:
        with enrol(path) as allowance, pytest.raises(AllowanceError, match="lapsed"):
            allowance.spend(Slot(DAY, 0), "places", ONE, MIDNIGHT + 1801)

    def test_day_and_lifetime_limits(self, path: Path) -> None:
        limits = Limits(day="48", lifetime="48")
        with enrol(path, make_task(limits=limits)) as allowance:
            allowance.spend(Slot(DAY, 0), "places", Fraction(95, 2), MIDNIGHT)
            with pytest.raises(AllowanceError, match="the day's allowance is used up"):
                allowance.spend(Slot(DAY, 0), "paths", Fraction(501, 1000), MIDNIGHT)
            allowance.spend(Slot(DAY, 0), "paths", Fraction(1, 2), MIDNIGHT)  # to the last drop
            assert allowance.spent_on(DAY).loss == 48
            with pytest.raises(AllowanceError, match="the lifetime's allowance is used up"):
                allowance.spend(Slot(DAY + 1, 0), "paths", Fraction(1, 10**9), MIDNIGHT + 86_400)
            assert allowance.spent_on(DAY + 1).num_reports == 0

    def test_lifetime_outlives_the_days(self, path: Path) -> None:
        with enrol(path) as allowance:
            for day in range(DAY, DAY + 10):
                allowance.spend(Slot(day, 0), "places", Fraction(1, 3), day * 86_400)
                allowance.store(Slot(day, 0), "places", b"x" * 100)
            size = path.stat().st_size
        with reopen(path) as allowance:
            assert allowance.spent_in_all().loss == Fraction(10, 3)
            assert allowance.spent_on(DAY).num_reports == 0
            assert {name: spent.num_reports for name, spent in allowance.spent_by_purpose().items()} == {"places": 10}
            assert "epsilon about 3.33333 in 10 reports" in allowance.summary()
        assert size < 4000  # closed days are forgotten

    def test_no_bound(self, path: Path) -> None:
        with enrol(path) as allowance:
            with pytest.raises(AllowanceError, match="any bound"):
                allowance.spend(Slot(DAY, 0), "places", None, MIDNIGHT)
            assert not allowance.is_spent(Slot(DAY, 0), "places")

    def test_no_bound_allowed(self, path: Path) -> None:
        with enrol(path, make_task(limits=Limits(lifetime="48", allow_unbounded=True))) as allowance:
            allowance.spend(Slot(DAY, 0), "places", None, MIDNIGHT)
            allowance.spend(Slot(DAY, 0), "paths", ONE, MIDNIGHT)
            spent = allowance.spent_in_all()
            assert (spent.loss, spent.num_reports, spent.num_unbounded) == (1, 2, 1)
            assert "no bound (1 of 2 reports have none)" in allowance.summary()

    def test_threads_cannot_spend_twice(self, path: Path) -> None:
        done: list[str] = []

        def spend() -> None:
            try:
                allowance.spend(Slot(DAY, 0), "places", ONE, MIDNIGHT)
                done.append("spent")
            except AllowanceError:
                done.append("refused")

        with enrol(path) as allowance:
            threads = [threading.Thread(target=spend) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert allowance.spent_in_all().num_reports == 1
        assert Counter(done) == {"spent": 1, "refused": 7}


class TestClock:
    def test_going_back(self, path: Path) -> None:
        with enrol(path) as allowance:
            allowance.spend(Slot(DAY, 5), "places", ONE, MIDNIGHT + 5 * 3600)
            allowance.store(Slot(DAY, 5), "places", b"report")
            with pytest.raises(AllowanceError, match="went back by 61 seconds"):
                allowance.due(MIDNIGHT + 5 * 3600 - 61)
            with pytest.raises(AllowanceError, match="went back"):
                allowance.spend(Slot(DAY, 4), "places", ONE, MIDNIGHT + 4 * 3600)
            assert allowance.stored_of(DAY) == (b"report",)
        with reopen(path) as allowance, pytest.raises(AllowanceError, match="went back"):
            allowance.spend(Slot(DAY, 4), "places", ONE, MIDNIGHT + 4 * 3600)  # a restart does not help

    def test_a_little_back_carries_on(self, path: Path) -> None:
        with enrol(path) as allowance:
            allowance.spend(Slot(DAY, 5), "places", ONE, MIDNIGHT + 5 * 3600)
            assert allowance.due(MIDNIGHT + 5 * 3600 - 60) == (Slot(DAY, 5),)
            allowance.spend(Slot(DAY, 5), "paths", ONE, MIDNIGHT + 5 * 3600 - 60)
            assert allowance.seen == MIDNIGHT + 5 * 3600

    def test_a_jump_forwards(self, path: Path) -> None:
        with enrol(path) as allowance:
            allowance.spend(Slot(DAY, 0), "places", ONE, MIDNIGHT)
            later = (DAY + 400) * 86_400
            assert allowance.due(later) == (Slot(DAY + 400, 0),)
            assert allowance.slots(DAY) == ()
            assert allowance.spent_in_all().loss == 1

    def test_a_jump_of_years_needs_consent(self, path: Path) -> None:
        wrong = MIDNIGHT + 401 * 86_400
        enrol(path).close()
        before = path.read_bytes()
        with reopen(path) as allowance:
            for attempt in (allowance.due, lambda now: allowance.spend(Slot(DAY + 401, 0), "places", ONE, now)):
                with pytest.raises(AllowanceError, match=r"forwards by 401 days.*--accept-clock"):
                    attempt(wrong)
            assert path.read_bytes() == before
            assert allowance.due(MIDNIGHT) == (Slot(DAY, 0),)
        with reopen(path, accept_clock=True) as allowance:
            assert allowance.due(wrong) == (Slot(DAY + 401, 0),)
            with pytest.raises(AllowanceError, match="forwards"):  # consent is for one jump
                allowance.due(wrong + 401 * 86_400)

    def test_adopting_does_not_vouch_for_the_clock(self, path: Path) -> None:
        enrol(path).close()
        with pytest.raises(AllowanceError, match="forwards"):
            reopen(path, make_task(version=2), adopt=True, now=MIDNIGHT + 500 * 86_400)

    def test_years_after_2200(self, path: Path) -> None:
        last = 7_289_654_399  # 2200-12-31T23:59:59
        with pytest.raises(AllowanceError, match="a year after 2200"):
            enrol(path, now=last + 1)
        enrol(path, now=last).close()

    def test_a_day_that_was_forgotten_is_not_drawn_again(self, path: Path) -> None:
        with enrol(path) as allowance:
            allowance.spend(Slot(DAY, 23), "places", ONE, MIDNIGHT + 23 * 3600)
            allowance.advance(MIDNIGHT + 86_400)
            allowance.advance(MIDNIGHT + 86_400 + 4 * 3600)  # the day has closed; nothing else is written
            assert allowance.slots(DAY) == ()
            with pytest.raises(AllowanceError, match="went back"):
                allowance.due(MIDNIGHT + 23 * 3600)
        with reopen(path) as allowance, pytest.raises(AllowanceError):
            allowance.spend(Slot(DAY, 23), "places", ONE, MIDNIGHT + 86_400 - 60)  # its mark is still on the disk

    @settings(max_examples=60, deadline=None)
    @given(
        st.lists(st.tuples(st.integers(0, 4 * 86_400), st.sampled_from(["places", "paths"])), max_size=30), st.data()
    )
    def test_no_slot_is_ever_spent_twice(self, moments: list[tuple[int, str]], data: st.DataObject) -> None:
        import tempfile

        handed_out: dict[tuple[Slot, str], bytes] = {}
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
                        report = b"%d" % number
                        allowance.store(slot, purpose, report)
                        handed_out[slot, purpose] = report
                    assert allowance.stored(slot, purpose) == handed_out[slot, purpose]
            assert allowance.spent_in_all().num_reports == len(handed_out)
            allowance.close()


class TestAdopting:
    def test_another_task_needs_consent(self, path: Path) -> None:
        other = make_task(version=2)
        enrol(path).close()
        with pytest.raises(AllowanceError, match="another task"):
            reopen(path, other)
        with pytest.raises(AllowanceError, match="clock"):
            reopen(path, other, adopt=True)
        reopen(path, TASK).close()

    def test_what_was_spent_stays_spent(self, path: Path) -> None:
        other = make_task(version=2, limits=Limits(lifetime="49"))
        with enrol(path) as allowance:
            allowance.spend(Slot(DAY, 0), "places", Fraction(40), MIDNIGHT)
            allowance.store(Slot(DAY, 0), "places", b"old")
        with reopen(path, other, adopt=True, now=MIDNIGHT + 60) as allowance:
            assert allowance.due(MIDNIGHT + 60) == ()  # the new task's slots begin tomorrow
            assert allowance.slots(DAY + 1)
            assert allowance.stored_of(DAY) == (b"old",)
            with pytest.raises(AllowanceError, match="used up"):
                allowance.spend(Slot(DAY + 1, 0), "paths", Fraction(10), MIDNIGHT + 86_400)
        with pytest.raises(AllowanceError, match="another task"):
            reopen(path, TASK)

    def test_the_tier_must_be_one_of_the_new_task(self, path: Path) -> None:
        gold = (Tier(name="gold", epsilon="1"), Tier(name="silver", epsilon="2"))
        other = make_task(purposes=(Purpose(name="places", mechanism="local-location", tiers=gold, grid=GRID),))
        enrol(path).close()
        with pytest.raises(TaskError, match="no such tier"):
            reopen(path, other, adopt=True, now=MIDNIGHT)
        with reopen(path, other, adopt=True, now=MIDNIGHT, tier="gold") as allowance:
            assert allowance.tier == "gold"

    def test_not_with_a_clock_that_went_back(self, path: Path) -> None:
        enrol(path).close()
        with pytest.raises(AllowanceError, match="went back"):
            reopen(path, make_task(version=2), adopt=True, now=MIDNIGHT - 3600)


class TestKeeping:
    def spend(self, allowance: Allowance, day: int) -> bytes:
        report = b"report of %d" % day
        allowance.spend(Slot(day, 0), "places", ONE, day * 86_400)
        allowance.store(Slot(day, 0), "places", report)
        return report

    def play(self, path: Path, days: range, **changes: object) -> list[bytes]:
        with reopen(path, keep_from=days[0], **changes) as allowance:
            return [self.spend(allowance, day) for day in days]

    def test_reports_of_closed_days_until_they_are_forgotten(self, path: Path) -> None:
        enrol(path).close()
        days = range(DAY, DAY + 9)
        made = self.play(path, days)
        with reopen(path, keep_from=DAY) as allowance:
            assert [allowance.stored(Slot(day, 0), "places") for day in days] == made
            assert [allowance.stored_of(day) for day in days] == [(report,) for report in made]
            assert all(len(allowance.slots(day)) == 24 for day in days)
            with pytest.raises(AllowanceError, match="not due"):
                allowance.spend(Slot(DAY, 1), "places", ONE, days[-1] * 86_400)
            with pytest.raises(AllowanceError, match="has its report"):
                allowance.store(Slot(DAY, 0), "places", b"another")
            assert allowance.spent_in_all().num_reports == 9
            allowance.forget_kept(DAY + 3)
            assert allowance.stored_of(DAY + 2) == ()
            assert allowance.stored_of(DAY + 3) == (made[3],)
        with reopen(path, keep_from=DAY) as allowance:
            assert [len(allowance.stored_of(day)) for day in days] == [0] * 3 + [1] * 6
            allowance.forget_kept(DAY + 9)
        assert not Path(f"{path}.closed").exists()

    def test_nothing_is_kept_unasked(self, path: Path) -> None:
        with enrol(path) as allowance:
            for day in range(DAY, DAY + 4):
                self.spend(allowance, day)
            assert allowance.stored_of(DAY) == ()
        assert not Path(f"{path}.closed").exists()

    @pytest.mark.parametrize("cut", [1, 40, 10**6])
    def test_a_line_that_was_cut_off(self, path: Path, cut: int) -> None:
        enrol(path).close()
        made = self.play(path, range(DAY, DAY + 5))
        kept = Path(f"{path}.closed")
        content = kept.read_bytes()
        kept.write_bytes(content[: max(len(content) - cut, 0)])
        with reopen(path, keep_from=DAY) as allowance:
            assert allowance.stored_of(DAY) == (() if cut > 100 else (made[0],))
            with pytest.raises(AllowanceError, match=r"not due|went back"):  # what is lost stays spent
                allowance.spend(Slot(DAY + 2, 0), "places", ONE, (DAY + 4) * 86_400)
            self.spend(allowance, DAY + 9)
        with reopen(path, keep_from=DAY) as allowance:
            assert len(allowance.stored_of(DAY + 4)) == 1
            assert allowance.stored_of(DAY) == (() if cut > 100 else (made[0],))

    def test_room(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        enrol(path).close()
        made = self.play(path, range(DAY, DAY + 4))
        monkeypatch.setattr("dunnage.devices.allowance.MAX_KEPT_BYTES", Path(f"{path}.closed").stat().st_size)
        with reopen(path, keep_from=DAY) as allowance:
            with pytest.raises(AllowanceError, match="fewer days"):
                self.spend(allowance, DAY + 5)
            assert allowance.stored_of(DAY) == (made[0],)
        assert self.play(path, range(DAY + 5, DAY + 6))  # earlier days make room
        with reopen(path, keep_from=DAY) as allowance:
            assert allowance.stored_of(DAY) == ()

    def test_of_another_task_or_vehicle(self, path: Path) -> None:
        enrol(path).close()
        self.play(path, range(DAY, DAY + 4))
        other = make_task(version=2)
        with reopen(path, other, adopt=True, now=(DAY + 4) * 86_400, keep_from=DAY) as allowance:
            assert allowance.slots(DAY) == ()
        for file in (path, Path(f"{path}.enrolled")):
            file.unlink()
        with enrol(path, now=(DAY + 9) * 86_400, keep_from=DAY) as allowance:
            assert allowance.slots(DAY) == ()


class Crash(BaseException):
    """The power fails."""


class TestCrashes:
    @pytest.mark.parametrize("step", ["open", "write", "fsync", "rename", "close"])
    @pytest.mark.parametrize("times", [1, 2])
    def test_a_crash_at_any_step_wastes_but_never_forgets(
        self, path: Path, monkeypatch: pytest.MonkeyPatch, step: str, times: int
    ) -> None:
        slot = Slot(DAY, 0)
        allowance = enrol(path, durable=True)
        calls = 0
        really = getattr(os, step)

        def crash(*given: object, **named: object) -> object:
            nonlocal calls
            calls += 1
            if calls >= times:
                raise Crash
            return really(*given, **named)

        monkeypatch.setattr(os, step, crash)
        handed_out = None
        try:
            allowance.spend(slot, "places", ONE, MIDNIGHT)
            allowance.store(slot, "places", b"report")
            handed_out = b"report"
        except Crash:
            assert handed_out is None
        monkeypatch.setattr(os, step, really)
        allowance.close()
        with reopen(path) as allowance:
            if not allowance.is_spent(slot, "places"):  # the crash came before the spend: nothing was drawn
                assert handed_out is None
                allowance.spend(slot, "places", ONE, MIDNIGHT)
            if allowance.stored(slot, "places") is None:
                allowance.store(slot, "places", b"report of the missing input")
            assert handed_out in (None, allowance.stored(slot, "places"))
            assert allowance.spent_in_all().num_reports == 1

    def test_a_full_disk_is_a_refusal(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(*given: object) -> int:
            raise OSError(28, "No space left on device")

        with enrol(path) as allowance:
            monkeypatch.setattr(os, "write", full)
            with pytest.raises(AllowanceError, match="No space left"):
                allowance.spend(Slot(DAY, 0), "places", ONE, MIDNIGHT)
            assert allowance.is_spent(Slot(DAY, 0), "places")  # it may have reached the disk
            with pytest.raises(AllowanceError, match="No space left"):
                allowance.store(Slot(DAY, 0), "places", b"report")
            assert allowance.stored(Slot(DAY, 0), "places") is None
            monkeypatch.undo()
            allowance.store(Slot(DAY, 0), "places", b"report")

    @pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
    def test_a_killed_process(self, path: Path) -> None:
        enrol(path).close()
        child = os.fork()
        if child == 0:
            killed = reopen(path, durable=True)
            killed.spend(Slot(DAY, 0), "places", ONE, MIDNIGHT)
            os._exit(9)
        os.waitpid(child, 0)
        with reopen(path) as allowance:
            assert allowance.is_spent(Slot(DAY, 0), "places")
            assert allowance.stored(Slot(DAY, 0), "places") is None
            assert allowance.spent_in_all().loss == 1

    def test_synchronised_before_the_rename(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        order: list[str] = []
        for name in ("fsync", "rename"):
            really = getattr(os, name)
            monkeypatch.setattr(os, name, lambda *a, n=name, r=really: (order.append(n), r(*a))[1])
        with enrol(path, durable=True) as allowance:
            order.clear()
            allowance.spend(Slot(DAY, 0), "places", ONE, MIDNIGHT)
        assert order == ["fsync", "rename", "fsync"]

    def test_remains_of_a_crash_are_overwritten(self, path: Path) -> None:
        enrol(path).close()
        Path(f"{path}.partial").write_bytes(b"half")
        with reopen(path) as allowance:
            allowance.spend(Slot(DAY, 0), "places", ONE, MIDNIGHT)
        assert not Path(f"{path}.partial").exists()


def test_nothing_of_a_report_is_printed(path: Path) -> None:
    with enrol(path) as allowance:
        allowance.spend(Slot(DAY, 0), "places", ONE, MIDNIGHT)
        allowance.store(Slot(DAY, 0), "places", b"secret payload")
        assert "secret" not in repr(allowance) + allowance.summary()
