# SPDX-License-Identifier: Apache-2.0
"""What runs on a device: one report for each slot and purpose, whatever the value, the clock and the crashes."""

from __future__ import annotations

import math
import os
import subprocess
import venv
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dunnage.devices.allowance import Allowance, Slot
from dunnage.devices.client import Client, check_task, mechanism_of
from dunnage.devices.report import Report
from dunnage.devices.task import Grid, Limits, Purpose, Quantity, Schedule, Task, Tier
from dunnage.errors import AllowanceError, TaskError
from dunnage.noise.source import Noise

DAY = 20_000
MIDNIGHT = DAY * 86_400
GRID = Grid(box=("103.9", "30.5", "104.2", "30.8"), levels=3, area_levels=2)
TIERS = (Tier(name="basic", epsilon="1"), Tier(name="strict", epsilon="0.5"))
NUMBERS = Purpose(
    name="telemetry",
    mechanism="local-numeric",
    tiers=TIERS,
    quantities=(
        Quantity(name="speed", low="0", high="120", unit="km/h", steps=16),
        Quantity(name="load", low="0", high="20", unit="t", steps=16, missing="symbol"),
    ),
)
PLACES = Purpose(name="places", mechanism="local-location", tiers=TIERS, grid=GRID)
PATHS = Purpose(name="paths", mechanism="local-trajectory", tiers=TIERS, grid=GRID, steps=2)
HOURLY = Schedule(slots_per_day=24, slot_minutes=60, lateness_minutes=30, skew_seconds=60)
VALUES = {"telemetry": {"speed": 61.5, "load": 7}, "places": (104.0, 30.6), "paths": [(104.0, 30.6), (104.1, 30.6)]}


def make_task(**changes: object) -> Task:
    """A task with three purposes, every hour."""
    given: dict[str, object] = {
        "dataset": "fleet",
        "purposes": (NUMBERS, PLACES, PATHS),
        "schedule": HOURLY,
        "limits": Limits(lifetime="10000"),
    }
    return Task(**{**given, **changes})


TASK = make_task()
MakeClient = Callable[..., Client]


@pytest.fixture
def make_client(tmp_path: Path) -> Iterator[MakeClient]:
    """A client of a new vehicle; ``reopened=True`` gives the same vehicle after a restart."""
    opened: list[Allowance] = []

    def make(task: Task = TASK, *, tier: str = "basic", reopened: bool = False, **changes: Any) -> Client:
        for old in opened:
            old.close()
        start: dict[str, Any] = {} if reopened else {"enrol": True, "tier": tier, "now": MIDNIGHT}
        opened.append(Allowance.open(tmp_path / "truck", task, durable=False, **start))
        return Client(task, opened[-1], **{"clock": lambda: MIDNIGHT, **changes})

    yield make
    for old in opened:
        old.close()


class TestReports:
    def test_one_report_for_each_purpose_of_a_slot(self, make_client: MakeClient) -> None:
        client = make_client()
        assert client.due() == (Slot(DAY, 0),)
        made = [Report.from_bytes(data, task=TASK) for data in client.reports(VALUES)]
        assert [(report.purpose, report.tier, report.day, report.slot) for report in made] == [
            (number, 0, DAY, 0) for number in range(3)
        ]
        assert len({report.report_id for report in made}) == 3
        assert client.due() == ()
        assert client.reports(VALUES) == []  # all made: nothing is left to do
        assert client.allowance.spent_on(DAY).loss == 3

    def test_payloads_are_read_by_their_mechanism(self, make_client: MakeClient) -> None:
        client = make_client(tier="strict")
        for data in client.reports(VALUES):
            report = Report.from_bytes(data, task=TASK)
            purpose = TASK.purposes[report.purpose]
            assert report.tier == 1
            assert mechanism_of(TASK, purpose).read(report.payload, tier=TASK.slot_tiers(purpose)[report.tier])

    def test_sent_again_byte_for_byte(self, make_client: MakeClient) -> None:
        client = make_client()
        first = client.report("places", VALUES["places"])
        drawn = client._noise.bytes_drawn
        assert client.report("places", (103.95, 30.75)) == first  # another value changes nothing
        assert client._noise.bytes_drawn == drawn
        again = make_client(reopened=True)
        assert again.report("places", None) == first
        assert again.resend(DAY) == [first]
        assert again.allowance.spent_in_all().num_reports == 1

    def test_every_slot_of_a_day(self, make_client: MakeClient) -> None:
        client = make_client()
        made = [data for hour in range(24) for data in client.reports(VALUES, now=MIDNIGHT + hour * 3600)]
        slots = Counter((report.purpose, report.slot) for report in map(Report.from_bytes, made))
        assert slots == {(purpose, slot): 1 for purpose in range(3) for slot in range(24)}
        assert client.resend(DAY) == made
        assert client.allowance.spent_on(DAY).loss == 72 == client.losses.of_day("basic")

    def test_a_chosen_slot(self, make_client: MakeClient) -> None:
        client = make_client(make_task(schedule=replace(HOURLY, lateness_minutes=120)))
        now = MIDNIGHT + 2 * 3600
        assert [slot.slot for slot in client.due(now)] == [0, 1, 2]
        assert Report.from_bytes(client.report("places", None, now, slot=Slot(DAY, 1))).slot == 1
        assert Report.from_bytes(client.report("places", None, now)).slot == 0  # the earliest without a report
        assert Report.from_bytes(client.report("places", None, now)).slot == 2
        assert len(client.reports(VALUES, now)) == 6  # the other two purposes of three slots
        assert Report.from_bytes(client.report("places", None, now)).slot == 2  # all made: the latest again
        with pytest.raises(AllowanceError, match="not due"):
            client.report("places", None, now, slot=Slot(DAY, 3))

    def test_no_slot_is_due(self, make_client: MakeClient) -> None:
        client = make_client()
        with pytest.raises(AllowanceError, match="begins in 1700 seconds"):
            client.report("places", None, now=MIDNIGHT + 1900)
        assert client.reports(VALUES, now=MIDNIGHT + 1900) == []

    def test_no_such_purpose(self, make_client: MakeClient) -> None:
        client = make_client()
        with pytest.raises(TaskError, match="no such purpose"):
            client.report("map", None)
        with pytest.raises(TaskError, match="no such purpose"):
            client.reports({"map": None})
        assert client.allowance.spent_in_all().num_reports == 0

    def test_a_missing_value_reports_too(self, make_client: MakeClient) -> None:
        assert len(make_client().reports({})) == 3


class Hostile:
    """A value whose own code raises, whatever is asked of it."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError("no")


class HostileMapping(dict[str, object]):
    """A table that cannot be read."""

    def get(self, key: object, default: object = None) -> object:
        raise OSError("sensor gone")


class HostileNumber(float):
    """A number that cannot be read."""

    def __float__(self) -> float:
        raise RuntimeError("no")

    def as_integer_ratio(self) -> tuple[int, int]:
        raise RuntimeError("no")


STRANGE: list[Any] = [None, math.nan, math.inf, "text", b"bytes", 5, [], {}, (), (1,), (1, 2, 3), [[]], object()]
STRANGE += [Hostile(), HostileMapping(), {"speed": math.nan, "load": "heavy"}, {"speed": math.inf, "load": -math.inf}]
STRANGE += [{"speed": 10**400, "load": Hostile()}, {"speed": HostileNumber(1.0)}, {"other": 1}, (math.nan, 30.6)]
STRANGE += [(math.inf, -math.inf), (0.0, 0.0), ("104", "30.6"), [(104.0, 30.6)], [(104.0, 30.6), None]]
STRANGE += [[(104.0, 30.6), (0, 0)], [None, None], [(103.9, 30.5), (104.2, 30.8)], [(104.0, 30.6)] * 5]


class TestValues:
    def test_any_value_makes_exactly_one_report(self, make_client: MakeClient) -> None:
        client = make_client(make_task(schedule=Schedule(slots_per_day=48, slot_minutes=30, lateness_minutes=20)))
        for number, strange in enumerate(STRANGE):
            values = {purpose.name: strange for purpose in TASK.purposes}
            made = client.reports(values, now=MIDNIGHT + number * 1800)
            assert [Report.from_bytes(data, task=client.task).purpose for data in made] == [0, 1, 2]

    @settings(max_examples=40, deadline=None)
    @given(
        st.recursive(
            st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=3),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["speed", "load"]), inner),
            max_leaves=6,
        )
    )
    def test_any_plain_value_makes_a_report(self, value: object) -> None:
        noise = Noise()
        for purpose in TASK.purposes:
            tier = TASK.slot_tiers(purpose)[0]
            mechanism = mechanism_of(TASK, purpose, tiers=(tier,))
            payload = mechanism.perturb(value, tier=tier, noise=noise)
            assert mechanism.read(payload, tier=tier)

    def test_an_outside_place_is_reported_as_outside(self, make_client: MakeClient) -> None:
        sharp = replace(PLACES, tiers=(Tier(name="sharp", epsilon="40"),), parameters={"method": "randomised-response"})
        client = make_client(make_task(purposes=(sharp,)), tier="sharp")
        mechanism, tier = mechanism_of(client.task, sharp), sharp.tiers[0]
        found = []
        for hour, value in enumerate([(0.0, 0.0), None, (math.nan, 1.0), (104.2, 30.8), (103.9, 30.5)]):
            report = Report.from_bytes(client.report("places", value, now=MIDNIGHT + hour * 3600))
            found += [symbol for _, symbol in mechanism.read(report.payload, tier=tier)]
        assert found == [16, 16, 16, 15, 0]  # at epsilon 40 the symbol is the input, but for a chance of 1e-16


class TestLimits:
    def test_used_up(self, make_client: MakeClient) -> None:
        client = make_client(make_task(limits=Limits(day="72", lifetime="74")))
        for hour in range(24):
            client.reports(VALUES, now=MIDNIGHT + hour * 3600)
        with pytest.raises(AllowanceError, match="lifetime's allowance is used up"):
            client.reports(VALUES, now=MIDNIGHT + 86_400)
        assert len(client.resend(DAY + 1)) == 2  # made before the refusal, and stored
        assert client.allowance.spent_in_all().loss == 74

    def test_the_true_loss_of_published_forms(self) -> None:
        published = {
            "telemetry": replace(NUMBERS, parameters={"as_published": True}),
            "places": replace(PLACES, parameters={"as_published": True}),
        }
        allowed = Limits(lifetime="10000", allow_unbounded=True)
        losses = check_task(make_task(purposes=tuple(published.values()), limits=allowed))
        assert losses.by_report["basic", "telemetry"] == 3  # speed, load, and whether there is a load
        assert losses.by_report["basic", "places"] is None
        assert losses.of_slot("basic") is losses.of_day("basic") is None
        assert losses.bounded_of_slot("strict") == Fraction(3, 2)
        assert "more than any bound" in losses.statements()[0]

    def test_a_task_that_cannot_fit_its_true_loss(self) -> None:
        published = replace(NUMBERS, parameters={"as_published": True})
        task = make_task(purposes=(published,), limits=Limits(day="71", lifetime="1000"))  # 24 stated, 72 in truth
        with pytest.raises(TaskError, match="true loss of 72"):
            check_task(task)
        assert check_task(replace(task, limits=Limits(day="72", lifetime="1000"))).of_day("basic") == 72

    def test_no_bound_must_be_allowed(self, make_client: MakeClient) -> None:
        clear = replace(PLACES, parameters={"area_in_clear": True})
        with pytest.raises(TaskError, match="more than any bound"):
            check_task(make_task(purposes=(clear,)))
        client = make_client(make_task(purposes=(clear,), limits=Limits(lifetime="100", allow_unbounded=True)))
        assert len(client.reports(VALUES_OF_PLACES)) == 1
        assert client.allowance.spent_in_all().num_unbounded == 1

    def test_seeded_noise_has_no_bound(self, make_client: MakeClient) -> None:
        client = make_client(noise=Noise(seed=7))
        with pytest.raises(AllowanceError, match="any bound"):
            client.reports(VALUES)

    def test_parameters_that_a_mechanism_refuses(self) -> None:
        for parameters, says in (({"colour": 1}, "colour"), ({"method": "magic"}, "magic"), ({"method": 5}, "method")):
            for purpose in TASK.purposes:
                with pytest.raises(TaskError, match=says):
                    check_task(make_task(purposes=(replace(purpose, parameters=parameters),)))

    def test_an_allowance_of_another_task(self, make_client: MakeClient) -> None:
        client = make_client()
        with pytest.raises(AllowanceError, match="another task"):
            Client(make_task(version=2), client.allowance)


VALUES_OF_PLACES = {"places": VALUES["places"]}


class TestWindows:
    def test_each_slot_has_its_share(self) -> None:
        losses = check_task(make_task(schedule=replace(HOURLY, window=4)))
        assert losses.of_slot("basic") == Fraction(3, 4)
        # Any 4 consecutive slots give away what was stated; a day of 24 gives away six times that.
        assert losses.of_slot("basic") * 4 == 3
        assert losses.of_day("basic") == 18
        text = "\n".join(losses.statements())
        assert "any 4 consecutive slots: at most epsilon 3" in text
        assert "6 times as much" in text
        assert "grows with every slot" in text

    def test_statements_without_a_window(self) -> None:
        lines = check_task(make_task(schedule=Schedule(), limits=Limits(lifetime="300"))).statements()
        assert len(lines) == 6
        assert "lasts for 100 days" in lines[2]
        assert "lasts for 200 days" in lines[5]
        assert not any("consecutive" in line for line in lines)

    def test_what_the_reports_spend(self, make_client: MakeClient) -> None:
        client = make_client(make_task(schedule=replace(HOURLY, window=4)))
        for hour in range(4):
            client.reports(VALUES, now=MIDNIGHT + hour * 3600)
        assert client.allowance.spent_on(DAY).loss == 3


class TestClock:
    def test_going_back_makes_nothing_new(self, make_client: MakeClient) -> None:
        client = make_client()
        made = client.reports(VALUES, now=MIDNIGHT + 5 * 3600)
        for attempt in (lambda: client.reports(VALUES), lambda: client.report("places", None), client.due):
            with pytest.raises(AllowanceError, match="went back"):
                attempt()
        assert client.resend(DAY) == made
        assert client.report("places", None, slot=Slot(DAY, 5)) == made[1]
        assert client.allowance.spent_in_all().num_reports == 3

    def test_a_jump_forwards(self, make_client: MakeClient) -> None:
        client = make_client()
        client.reports(VALUES)
        assert len(client.reports(VALUES, now=MIDNIGHT + 30 * 86_400)) == 3
        with pytest.raises(AllowanceError, match="went back"):
            client.reports(VALUES)

    def test_an_unusable_clock(self, make_client: MakeClient) -> None:
        client = make_client()
        for now in (math.nan, -5, "noon"):
            with pytest.raises(AllowanceError, match="clock"):
                client.reports(VALUES, now=now)


class TestCrashes:
    def test_a_spent_slot_without_a_report_sends_the_missing_input(self, make_client: MakeClient) -> None:
        sharp = replace(PLACES, tiers=(Tier(name="sharp", epsilon="40"),), parameters={"method": "randomised-response"})
        task = make_task(purposes=(sharp,))
        client = make_client(task, tier="sharp")
        client.allowance.spend(Slot(DAY, 0), "places", Fraction(40), MIDNIGHT)  # and here the power fails
        again = make_client(task, reopened=True)
        assert again.due() == (Slot(DAY, 0),)
        data = again.report("places", (104.0, 30.6))
        payload = Report.from_bytes(data, task=task).payload
        assert mechanism_of(task, sharp).read(payload, tier=sharp.tiers[0]) == [(None, GRID.outside)]
        assert again.allowance.spent_in_all().loss == 40  # once
        assert again.report("places", (104.0, 30.6)) == data

    def test_it_lapses_like_any_other(self, make_client: MakeClient) -> None:
        client = make_client()
        client.allowance.spend(Slot(DAY, 0), "places", Fraction(1), MIDNIGHT)
        again = make_client(reopened=True)
        with pytest.raises(AllowanceError, match="lapsed"):
            again.report("places", None, now=MIDNIGHT + 3600, slot=Slot(DAY, 0))
        assert again.resend(DAY) == []

    @settings(max_examples=25, deadline=None)
    @given(st.lists(st.sampled_from(["spend", "perturb", "store", "none"]), min_size=1, max_size=8))
    def test_no_slot_is_missed_and_none_is_spent_twice(self, crashes: list[str]) -> None:
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "truck"
            task = make_task(purposes=(PLACES,))
            Allowance.open(path, task, enrol=True, tier="basic", now=MIDNIGHT, durable=False).close()
            for hour, crash in enumerate(crashes):
                now = MIDNIGHT + hour * 3600
                for step in (crash, "none"):
                    with Allowance.open(path, task, durable=False) as allowance:
                        client = Client(task, allowance)
                        with _crashing(client, step):
                            client.reports(VALUES_OF_PLACES, now)
                        num_stored = len(client.resend(DAY))
                assert num_stored == hour + 1
            with Allowance.open(path, task, durable=False) as allowance:
                assert len(allowance.stored_of(DAY)) == len(crashes)
                assert allowance.spent_in_all().loss == len(crashes)


class Crash(BaseException):
    """The power fails."""


class _crashing:  # noqa: N801
    """Let the power fail at a step of making a report."""

    def __init__(self, client: Client, step: str) -> None:
        self.client, self.step = client, step

    def __enter__(self) -> None:
        def crash(*given: object, **named: object) -> None:
            raise Crash

        if self.step == "perturb":
            failing = SimpleNamespace(perturb=crash)
            duties = self.client._duties.items()
            self.client._duties = {name: duty._replace(mechanism=failing) for name, duty in duties}
        elif self.step != "none":
            setattr(self.client.allowance, self.step, crash)

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> bool:
        return kind is Crash


SOURCE = Path(__file__).resolve().parents[1] / "src"
BARE = """
import sys, time
before = time.process_time()
import dunnage.devices.client
imported = time.process_time() - before
from dunnage.errors import AllowanceError
from dunnage.devices.allowance import Allowance
from dunnage.devices.client import Client
from dunnage.devices.task import Task
task = Task.from_json(open(sys.argv[1], "rb").read())
with Allowance.open(sys.argv[2], task, tier="basic", enrol=True, now=1728000000) as allowance:
    made = Client(task, allowance, clock=lambda: 1728000000).reports({"places": (104.0, 30.6)})
assert len(made) == 3, made
foreign = sorted({name.split(".")[0] for name in sys.modules} & {"numpy", "pyarrow", "numba", "scipy", "cryptography"})
assert not foreign, foreign
try:
    import numpy
except ImportError:
    print("bare", imported)
"""


def test_in_an_environment_without_any_dependency(tmp_path: Path) -> None:
    """The standard library is enough to import the client, make its reports and store them."""
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    (tmp_path / "task.json").write_text(TASK.to_json())
    python = tmp_path / "bare" / "bin" / "python"
    done = subprocess.run(
        [python, "-c", BARE, tmp_path / "task.json", tmp_path / "truck"],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("bare"), "numpy is there, so this environment proves nothing"


def test_nothing_private_is_printed(make_client: MakeClient) -> None:
    client = make_client()
    made = client.reports(VALUES)
    shown = repr(client) + repr(client.allowance) + repr([Report.from_bytes(data) for data in made])
    assert "104.0" not in shown
    assert "61.5" not in shown
