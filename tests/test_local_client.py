# SPDX-License-Identifier: Apache-2.0
"""What runs on a device: one report for each slot and purpose, whatever the value, the clock and the crashes."""

from __future__ import annotations

import math
import os
import subprocess
import tempfile
import venv
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.estimates_help import GRID, HOURLY, PLACES, TELEMETRY, refuses, truck_task

from dunnage.devices.allowance import Allowance, Slot
from dunnage.devices.client import Client, check_task, mechanism_of
from dunnage.devices.places import LocalLocation
from dunnage.devices.report import Report
from dunnage.devices.task import Limits, Schedule, Tier
from dunnage.errors import AllowanceError, TaskError
from dunnage.noise.source import Noise

DAY = 20_000
MIDNIGHT = DAY * 86_400
# At epsilon 40 the symbol is the input, but for a chance of 1e-16.
SHARP = replace(PLACES, tiers=(Tier(name="sharp", epsilon="40"),), parameters={"method": "randomised-response"})
VALUES = {"telemetry": {"speed": 61.5, "load": 7}, "places": (104.0, 30.6), "paths": [(104.0, 30.6), (104.1, 30.6)]}
TASK = truck_task()


@pytest.fixture
def make_client(tmp_path):
    """A client of a new vehicle; ``reopened=True`` gives the same vehicle after a restart."""
    opened = []

    def make(task=TASK, *, tier="basic", reopened=False, **changes):
        for old in opened:
            old.close()
        start = {} if reopened else {"enrol": True, "tier": tier, "now": MIDNIGHT, "cap": "none"}
        opened.append(Allowance.open(tmp_path / "truck", task, durable=False, **start))
        return Client(task, opened[-1], **{"clock": lambda: MIDNIGHT, **changes})

    yield make
    for old in opened:
        old.close()


def slot_of(message):
    return Report.from_bytes(message).slot


def cells_of(task, message):
    payload = Report.from_bytes(message, task=task).payload
    return [symbol for _, symbol in mechanism_of(task, SHARP).read(payload, tier=SHARP.tiers[0])]


def test_one_report_for_each_purpose_of_a_slot(make_client):
    client = make_client(tier="strict")
    assert client.due() == (Slot(DAY, 0),)
    made = [Report.from_bytes(data, task=TASK) for data in client.reports(VALUES)]
    assert [(r.purpose, r.tier, r.day, r.slot) for r in made] == [(number, 1, DAY, 0) for number in range(3)]
    assert len({report.report_id for report in made}) == 3
    for report in made:
        purpose = TASK.purposes[report.purpose]
        assert mechanism_of(TASK, purpose).read(report.payload, tier=TASK.slot_tiers(purpose)[report.tier])
    assert client.due() == ()
    assert client.reports(VALUES) == []  # all made: nothing is left to do
    assert client.allowance.spent_on(DAY).loss == Fraction(3, 2)
    shown = repr(client) + repr(client.allowance) + repr(made)
    assert not any(value in shown for value in ("104.0", "61.5"))


def test_sent_again_byte_for_byte(make_client):
    noise = Noise()
    client = make_client(noise=noise)
    first = client.report("places", VALUES["places"])
    drawn = noise.bytes_drawn
    assert client.report("places", (103.95, 30.75)) == first  # another value changes nothing
    assert noise.bytes_drawn == drawn
    again = make_client(reopened=True)
    assert again.report("places", None) == first
    assert again.resend(DAY) == [first]
    assert again.allowance.spent_in_all().num_reports == 1


def test_every_slot_of_a_day(make_client):
    client = make_client()
    made = [data for hour in range(24) for data in client.reports(VALUES, now=MIDNIGHT + hour * 3600)]
    slots = Counter((report.purpose, report.slot) for report in map(Report.from_bytes, made))
    assert slots == {(purpose, slot): 1 for purpose in range(3) for slot in range(24)}
    assert client.resend(DAY) == made
    assert client.allowance.spent_on(DAY).loss == 72 == client.losses.of_day("basic")
    for attempt in (lambda: client.reports(VALUES), lambda: client.report("places", None), client.due):
        with pytest.raises(AllowanceError):  # the clock went back: nothing new
            attempt()
    assert client.report("places", None, slot=Slot(DAY, 23)) == made[-2]
    assert client.allowance.spent_in_all().num_reports == 72
    assert len(client.reports(VALUES, now=MIDNIGHT + 30 * 86_400)) == 3


def test_a_chosen_slot(make_client):
    client = make_client(truck_task(schedule=replace(HOURLY, lateness_minutes=120)))
    now = MIDNIGHT + 2 * 3600
    assert [slot.slot for slot in client.due(now)] == [0, 1, 2]
    assert slot_of(client.report("places", None, now, slot=Slot(DAY, 1))) == 1
    # The earliest without a report; the latest again when all are made.
    assert [slot_of(client.report("places", None, now)) for _ in range(3)] == [0, 2, 2]
    assert len(client.reports(VALUES, now)) == 6  # the other two purposes of three slots
    with pytest.raises(AllowanceError):
        client.report("places", None, now, slot=Slot(DAY, 3))


def test_what_is_refused_spends_nothing(make_client):
    client = make_client()
    with pytest.raises(AllowanceError, match="1700"):  # seconds to the next slot
        client.report("places", None, now=MIDNIGHT + 1900)
    assert client.reports(VALUES, now=MIDNIGHT + 1900) == []
    for attempt in (lambda: client.report("map", None), lambda: client.reports({"map": None})):
        with pytest.raises(TaskError, match="map"):
            attempt()
    for now in (math.nan, -5, "noon"):
        with refuses(AllowanceError, now):
            client.reports(VALUES, now=now)
    with pytest.raises(AllowanceError):
        Client(truck_task(version=2), client.allowance)
    seeded = Client(TASK, client.allowance, clock=lambda: MIDNIGHT + 3600, noise=Noise(seed=7))
    with pytest.raises(AllowanceError):  # seeded noise has no bound
        seeded.reports(VALUES)
    assert client.allowance.spent_in_all().num_reports == 0


class Hostile:
    """A value whose own code raises, whatever is asked of it."""

    def __getattribute__(self, name):
        raise RuntimeError("no")


class HostileMapping(dict):
    def get(self, key, default=None):
        raise OSError("sensor gone")


def test_any_value_makes_exactly_one_report(make_client):
    client = make_client()
    for hour, strange in enumerate(
        [None, Hostile(), HostileMapping(), {"speed": 10**400, "load": Hostile()}, object()]
    ):
        values = {purpose.name: strange for purpose in TASK.purposes}
        made = client.reports(values, now=MIDNIGHT + hour * 3600)
        assert [Report.from_bytes(data, task=TASK).purpose for data in made] == [0, 1, 2]
    assert len(client.reports({}, now=MIDNIGHT + 6 * 3600)) == 3  # a missing value reports too


def test_an_outside_place_is_reported_as_outside(make_client):
    client = make_client(truck_task(SHARP), tier="sharp")
    found = []
    for hour, value in enumerate([(0.0, 0.0), None, (math.nan, 1.0), (104.2, 30.8), (103.9, 30.5)]):
        found += cells_of(client.task, client.report("places", value, now=MIDNIGHT + hour * 3600))
    assert found == [16, 16, 16, 15, 0]


def test_used_up(make_client):
    client = make_client(truck_task(limits=Limits(day="72", lifetime="74")))
    for hour in range(24):
        client.reports(VALUES, now=MIDNIGHT + hour * 3600)
    with pytest.raises(AllowanceError):
        client.reports(VALUES, now=MIDNIGHT + 86_400)
    assert len(client.resend(DAY + 1)) == 2  # made before the refusal, and stored
    assert client.allowance.spent_in_all().loss == 74


def test_the_true_loss_of_published_forms(make_client):
    numbers, places = (replace(purpose, parameters={"as_published": True}) for purpose in (TELEMETRY, PLACES))
    losses = check_task(truck_task(numbers, places, limits=Limits(lifetime="10000", allow_unbounded=True)))
    assert losses.by_report["basic", "telemetry"] == 3  # speed, load, and whether there is a load
    assert losses.by_report["basic", "places"] is None
    assert losses.of_slot("basic") is losses.of_day("basic") is None
    assert losses.bounded_of_slot("strict") == Fraction(3, 2)
    task = truck_task(numbers, limits=Limits(day="71", lifetime="1000"))  # 24 stated, 72 in truth
    with pytest.raises(TaskError, match="72"):
        check_task(task)
    assert check_task(replace(task, limits=Limits(day="72", lifetime="1000"))).of_day("basic") == 72
    clear = replace(PLACES, parameters={"area_in_clear": True})
    with pytest.raises(TaskError):  # no bound must be allowed
        check_task(truck_task(clear))
    client = make_client(truck_task(clear, limits=Limits(lifetime="100", allow_unbounded=True)))
    assert len(client.reports({"places": VALUES["places"]})) == 1
    assert client.allowance.spent_in_all().num_unbounded == 1


def test_parameters_that_a_mechanism_refuses():
    for parameters, says in (({"colour": 1}, "colour"), ({"method": "magic"}, "magic"), ({"method": 5}, "method")):
        for purpose in TASK.purposes:
            with pytest.raises(TaskError, match=says):
                check_task(truck_task(replace(purpose, parameters=parameters)))


def test_windows(make_client):
    client = make_client(truck_task(schedule=replace(HOURLY, window=4)))
    losses = check_task(client.task)
    # Any 4 consecutive slots give away what was stated; a day of 24 gives away six times that.
    assert (losses.of_slot("basic"), losses.of_day("basic")) == (Fraction(3, 4), 18)
    assert any("4" in line and "3" in line for line in losses.statements())
    for hour in range(4):
        client.reports(VALUES, now=MIDNIGHT + hour * 3600)
    assert client.allowance.spent_on(DAY).loss == 3
    lines = check_task(truck_task(schedule=Schedule(), limits=Limits(lifetime="300"))).statements()
    assert len(lines) == 6
    assert ("100" in lines[2], "200" in lines[5]) == (True, True)  # days that the allowance lasts for


class Crash(BaseException):
    """The power fails."""


def test_a_spent_slot_without_a_report_sends_the_missing_input_or_lapses(make_client):
    task = truck_task(SHARP)
    client = make_client(task, tier="sharp")
    client.allowance.spend(Slot(DAY, 0), "places", Fraction(40), MIDNIGHT)  # and here the power fails
    again = make_client(task, reopened=True)
    assert again.due() == (Slot(DAY, 0),)
    data = again.report("places", (104.0, 30.6))
    assert cells_of(task, data) == [GRID.outside]
    assert again.allowance.spent_in_all().loss == 40  # once
    assert again.report("places", (104.0, 30.6)) == data
    again.allowance.spend(Slot(DAY, 1), "places", Fraction(40), MIDNIGHT + 3600)
    again = make_client(task, reopened=True)
    with pytest.raises(AllowanceError):
        again.report("places", None, now=MIDNIGHT + 2 * 3600, slot=Slot(DAY, 1))
    assert again.resend(DAY) == [data]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from(["spend", "perturb", "store", "none"]), min_size=1, max_size=8))
def test_no_slot_is_missed_and_none_is_spent_twice(crashes):
    def crash(*given, **named):
        raise Crash

    task = truck_task(PLACES)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "truck"
        Allowance.open(path, task, enrol=True, tier="basic", now=MIDNIGHT, cap="none", durable=False).close()
        for hour, failing in enumerate(crashes):
            for step in (failing, "none"):
                with Allowance.open(path, task, durable=False) as allowance, pytest.MonkeyPatch.context() as patch:
                    client = Client(task, allowance)
                    if step != "none":
                        patch.setattr(LocalLocation if step == "perturb" else Allowance, step, crash)
                    try:
                        client.reports({"places": VALUES["places"]}, MIDNIGHT + hour * 3600)
                    except Crash:
                        assert step != "none"
                    num_stored = len(client.resend(DAY))
            assert num_stored == hour + 1
        with Allowance.open(path, task, durable=False) as allowance:
            assert len(allowance.stored_of(DAY)) == len(crashes)
            assert allowance.spent_in_all().loss == len(crashes)


BARE = """
import sys
from dunnage.devices.allowance import Allowance
from dunnage.devices.client import Client
from dunnage.devices.task import Task
task = Task.from_json(open(sys.argv[1], "rb").read())
with Allowance.open(sys.argv[2], task, tier="basic", enrol=True, now=1728000000, cap="none") as allowance:
    made = Client(task, allowance, clock=lambda: 1728000000).reports({"places": (104.0, 30.6)})
assert len(made) == 3, made
try:
    import numpy
except ImportError:
    print("bare")
"""


def test_in_an_environment_without_any_dependency(tmp_path):
    """The standard library is enough to import the client, make its reports and store them."""
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    (tmp_path / "task.json").write_text(TASK.to_json())
    source = Path(__file__).resolve().parents[1] / "src"
    done = subprocess.run(
        [tmp_path / "bare" / "bin" / "python", "-c", BARE, tmp_path / "task.json", tmp_path / "truck"],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "bare\n", "numpy is there, so this environment proves nothing"
