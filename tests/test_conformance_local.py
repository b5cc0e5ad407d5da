# SPDX-License-Identifier: Apache-2.0
"""Rules that every mechanism on a device obeys, one test a rule, run on all of them.

A new mechanism adds one line to CASES.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from dunnage.devices.allowance import Allowance
from dunnage.devices.client import Client, check_task, mechanism_of
from dunnage.devices.numbers import LocalNumeric
from dunnage.devices.paths import LocalTrajectory
from dunnage.devices.places import LocalLocation
from dunnage.devices.report import Report
from dunnage.devices.task import MECHANISMS, Grid, Limits, Purpose, Quantity, Schedule, Task, Tier
from dunnage.errors import AllowanceError, ParameterError, ReportError
from dunnage.model.guarantees import Basis, Neighbours, guarantee_from
from dunnage.noise.source import Noise

GRID = Grid(box=("103.9", "30.5", "104.2", "30.8"), levels=3, area_levels=2)
SPEED = Quantity(name="speed", low=0, high=120, unit="km/h", steps=64)
LOAD = Quantity(name="load", low=0, high=40, unit="t", steps=64, missing="symbol")
PLACE, PATH = (104.05, 30.61), [(104.05, 30.61), (104.06, 30.62)]
NOON = 20_000 * 86_400


@dataclass(frozen=True)
class Case:
    """A mechanism as a purpose of a task has it, a value to report, and whether its stated epsilon is proved."""

    purpose: dict[str, Any]
    value: Any
    other: Any
    proved: bool = True

    def task(self, **limits: Any) -> Task:
        tiers = (Tier(name="all", epsilon="0.75"),)
        purpose = Purpose(name="duty", tiers=tiers, **self.purpose)
        given = {"lifetime": 100, "allow_unbounded": True, **limits}
        schedule = Schedule(slots_per_day=2, slot_minutes=720, lateness_minutes=720)
        return Task(dataset="fleet", purposes=(purpose,), schedule=schedule, limits=Limits(**given))

    def mechanism(self) -> Any:
        task = self.task()
        return mechanism_of(task, task.purposes[0])


def numbers(**parameters: Any) -> dict[str, Any]:
    return {"mechanism": "local-numeric", "quantities": (SPEED, LOAD), "parameters": parameters}


def places(**parameters: Any) -> dict[str, Any]:
    return {"mechanism": "local-location", "grid": GRID, "parameters": parameters}


def paths(**parameters: Any) -> dict[str, Any]:
    return {"mechanism": "local-trajectory", "grid": GRID, "steps": 2, "parameters": parameters}


READING, OTHER = {"speed": 83.25, "load": None}, {"speed": 3.5, "load": 40}
AWAY, LONG_WAY = (0.0, 0.0), [(103.9, 30.5), (104.2, 30.8)]
CASES = {
    "hybrid": Case(numbers(), READING, OTHER),
    "piecewise": Case(numbers(method="piecewise"), READING, OTHER),
    "duchi": Case(numbers(method="duchi"), READING, OTHER),
    "harmony": Case(numbers(method="harmony"), READING, OTHER),
    "laplace": Case(numbers(method="laplace"), READING, OTHER),
    "square-wave": Case(numbers(method="square-wave"), READING, OTHER),
    "numbers as published": Case(numbers(as_published=True), READING, OTHER, proved=False),
    "places": Case(places(), PLACE, AWAY),
    "randomised response": Case(places(method="randomised-response"), PLACE, AWAY),
    "symmetric unary": Case(places(method="symmetric-unary"), PLACE, AWAY),
    "optimised unary": Case(places(method="optimised-unary"), PLACE, AWAY),
    "hadamard": Case(places(method="hadamard"), PLACE, AWAY),
    "planar": Case(places(method="planar"), PLACE, AWAY),
    "area in clear": Case(places(area_in_clear=True), PLACE, AWAY),
    "places as published": Case(places(as_published=True), PLACE, AWAY, proved=False),
    "paths": Case(paths(), PATH, LONG_WAY),
    "paths as published": Case(paths(as_published=True), PATH, LONG_WAY, proved=False),
    "qlp": Case(paths(as_published=True, method="qlp"), PATH, LONG_WAY, proved=False),
    "qjlp": Case(paths(as_published=True, method="qjlp"), PATH, LONG_WAY, proved=False),
}
KINDS = {kind.name: kind for kind in (LocalNumeric, LocalLocation, LocalTrajectory)}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


def test_every_mechanism_is_tested() -> None:
    assert {case.purpose["mechanism"] for case in CASES.values()} == set(KINDS) == set(MECHANISMS)


def test_names_stand_in_the_modules_of_their_classes_alone() -> None:
    source = Path(inspect.getfile(LocalNumeric)).parent
    files = [
        *source.glob("*.py"),
        *(source.parent / "devices").glob("*.py"),
        source.parent / "verification.py",
    ]
    for file in files:
        found = {node.value for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Constant)}
        own = {name for name, kind in MECHANISMS.items() if inspect.getfile(kind) == str(file)}
        assert file.name == "tasks.py" or found & set(MECHANISMS) <= own, file.name


def test_mechanisms_name_their_parameters() -> None:
    for kind in MECHANISMS.values():
        given = {item.name for item in dataclasses.fields(kind) if item.init}
        assert given - {kind.subject, "epsilon", "tiers", "steps"} == set(kind.parameters)


@pytest.mark.parametrize("kind", KINDS.values())
def test_frozen_and_keyword_only(kind: type) -> None:
    parameters = inspect.signature(kind).parameters.values()
    assert all(parameter.kind is parameter.KEYWORD_ONLY for parameter in parameters)
    assert dataclasses.fields(kind)
    assert kind.__dataclass_params__.frozen  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", KINDS.values())
def test_refuses_to_be_made_without_epsilon(kind: type) -> None:
    subject = {"quantities": (SPEED,)} if kind is LocalNumeric else {"grid": GRID}
    with pytest.raises(ParameterError, match="epsilon"):
        kind(**subject, **({"steps": 2} if kind is LocalTrajectory else {}))


def test_promise_needs_no_data_and_serialises(case: Case) -> None:
    promise = case.mechanism().promise()
    told = json.loads(json.dumps(promise.to_dict()))
    assert guarantee_from(told["guarantee"]) == promise.guarantee
    assert promise.digest() == case.mechanism().promise().digest()
    assert (promise.basis is Basis.PROVED) == case.proved
    assert bool(promise.why) == (not case.proved)


def test_the_loss_charged_is_never_below_what_is_promised(case: Case) -> None:
    mechanism = case.mechanism()
    charged = mechanism.true_loss(mechanism.levels[0])
    promised = mechanism.promise().true_loss(Neighbours.REPLACE_ONE)
    if promised.bounded:
        assert charged is not None
        assert charged >= promised.epsilon
    if case.proved and charged is not None and promised.bounded:
        assert charged == Fraction(3, 4)


def test_every_value_makes_one_payload_that_reads_back(case: Case) -> None:
    mechanism, noise = case.mechanism(), Noise()
    tier = mechanism.levels[0]
    for value in (case.value, case.other, None, float("nan"), "text", object(), [], {}, float("inf"), (1e308, -1e308)):
        payload = mechanism.perturb(value, tier=tier, noise=noise)
        assert isinstance(payload, bytes)
        assert mechanism.read(payload, tier=tier)


def test_damaged_payloads_are_refused(case: Case) -> None:
    mechanism = case.mechanism()
    tier = mechanism.levels[0]
    payload = mechanism.perturb(case.value, tier=tier, noise=Noise())
    for damaged in (b"", payload + b"\0", payload + b"\xff" * 40):
        with pytest.raises(ReportError):
            mechanism.read(damaged, tier=tier)


def client(case: Case, tmp_path: Any, noise: Noise, **limits: Any) -> tuple[Client, Allowance]:
    task = case.task(**limits)
    allowance = Allowance.open(tmp_path / "truck.allowance", task, enrol=True, now=NOON - 86_400, noise=noise)
    return Client(task, allowance, noise=noise), allowance


def test_spends_once_before_any_noise_and_sends_the_same_again(case: Case, tmp_path: Any) -> None:
    device, allowance = client(case, tmp_path, Noise())
    with allowance:
        first = device.report("duty", case.value, NOON + 1)
        spent = (tmp_path / "truck.allowance").read_bytes()
        slot = Report.from_bytes(first)
        assert device.report("duty", case.other, NOON + 2, slot=(slot.day, slot.slot)) == first
        assert (tmp_path / "truck.allowance").read_bytes() == spent


def test_a_refused_spend_draws_no_noise(case: Case, tmp_path: Any) -> None:
    loss = check_task(case.task()).bounded_of_slot("all")
    if not loss:
        pytest.skip("nothing that has a bound is charged")
    noise = Noise()
    device, allowance = client(case, tmp_path, noise, lifetime=2 * loss)
    with allowance:
        made = device.reports({"duty": case.value}, NOON + 43_201)
        made += device.reports({"duty": case.value}, NOON + 86_400 + 1)
        made = [message for message in made if message]
        assert len(made) == 2
        device.due(NOON + 86_400 + 43_201)  # tomorrow's slots are drawn with the day, not with a report
        drawn = noise.bytes_drawn
        with pytest.raises(AllowanceError):
            device.report("duty", case.value, NOON + 86_400 + 43_201)
        assert noise.bytes_drawn == drawn


def test_seeded_noise_is_charged_without_bound(case: Case, tmp_path: Any) -> None:
    device, allowance = client(case, tmp_path, Noise(seed=1), allow_unbounded=case.task().limits.allow_unbounded)
    with allowance:
        assert all(duty.loss is None for duty in device._duties.values())


def test_nothing_printable_leaks_values(case: Case, tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    device, allowance = client(case, tmp_path, Noise())
    with allowance:
        report = device.report("duty", case.value, NOON + 1)
        texts = [repr(device), repr(allowance), repr(case.mechanism()), repr(Report.from_bytes(report))]
    texts += [(tmp_path / "truck.allowance").read_text(encoding="utf-8"), capsys.readouterr().out]
    assert not any(word in text for text in texts for word in ("83.25", "104.05", "30.61"))
