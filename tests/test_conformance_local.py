# SPDX-License-Identifier: Apache-2.0
"""Rules that every mechanism on a device obeys, one test a rule, run on all of them.

A new mechanism adds one line to CASES.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.estimates_help import GRID, LOAD, SPEED, refuses

from dunnage.devices.allowance import Allowance
from dunnage.devices.client import Client, check_task, mechanism_of
from dunnage.devices.numbers import LocalNumeric
from dunnage.devices.paths import LocalTrajectory
from dunnage.devices.places import LocalLocation
from dunnage.devices.report import Report
from dunnage.devices.task import MECHANISMS, Limits, Purpose, Schedule, Task, Tier
from dunnage.errors import AllowanceError, ParameterError, ReportError
from dunnage.model.guarantees import Basis, Neighbours, guarantee_from
from dunnage.noise.source import Noise

NOON = 20_000 * 86_400
SUBJECTS = {
    LocalNumeric: {"quantities": (SPEED, LOAD)},
    LocalLocation: {"grid": GRID},
    LocalTrajectory: {"grid": GRID, "steps": 2},
}
KINDS = {kind.name: kind for kind in SUBJECTS}


@dataclass(frozen=True)
class Case:
    """A mechanism as a purpose of a task has it, two values to report, and whether its stated epsilon is proved."""

    kind: type
    parameters: dict[str, Any]
    value: Any
    other: Any
    proved: bool = True

    def task(self, **limits):
        subject = {"mechanism": self.kind.name, "parameters": self.parameters, **SUBJECTS[self.kind]}
        purpose = Purpose(name="duty", tiers=(Tier(name="all", epsilon="0.75"),), **subject)
        given = {"lifetime": 100, "allow_unbounded": True, **limits}
        schedule = Schedule(slots_per_day=2, slot_minutes=720, lateness_minutes=720)
        return Task(dataset="fleet", purposes=(purpose,), schedule=schedule, limits=Limits(**given))

    def mechanism(self):
        task = self.task()
        return mechanism_of(task, task.purposes[0])

    def made(self, **levels):
        return self.kind(**SUBJECTS[self.kind], **self.parameters, **levels)


def numbers(proved=True, **parameters):
    return Case(LocalNumeric, parameters, {"speed": 83.25, "load": None}, {"speed": 3.5, "load": 40}, proved)


def places(proved=True, **parameters):
    return Case(LocalLocation, parameters, (104.05, 30.61), (0.0, 0.0), proved)


def paths(proved=True, **parameters):
    near, far = [(104.05, 30.61), (104.06, 30.62)], [(103.9, 30.5), (104.2, 30.8)]
    return Case(LocalTrajectory, parameters, near, far, proved)


CASES = {
    "hybrid": numbers(),
    "hybrid as published": numbers(method="published-hybrid"),
    "piecewise": numbers(method="piecewise"),
    "duchi": numbers(method="duchi"),
    "harmony": numbers(method="harmony"),
    "laplace": numbers(method="laplace"),
    "square-wave": numbers(method="square-wave"),
    "numbers as published": numbers(as_published=True, proved=False),
    "places": places(),
    "randomised response": places(method="randomised-response"),
    "symmetric unary": places(method="symmetric-unary"),
    "optimised unary": places(method="optimised-unary"),
    "hadamard": places(method="hadamard"),
    "subset selection": places(method="subset-selection"),
    "projective": places(method="projective"),
    "planar": places(method="planar"),
    "area in clear": places(area_in_clear=True),
    "places as published": places(as_published=True, proved=False),
    "paths": paths(),
    "paths by hadamard": paths(method="hadamard"),
    "paths of areas in clear": paths(area_in_clear=True),
    "paths as published": paths(as_published=True, proved=False),
    "qlp": paths(as_published=True, method="qlp", proved=False),
    "qjlp": paths(as_published=True, method="qjlp", proved=False),
}


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


def test_every_mechanism_is_tested():
    assert {case.kind.name for case in CASES.values()} == set(KINDS) == set(MECHANISMS)


def test_names_stand_in_the_modules_of_their_classes_alone():
    source = Path(inspect.getfile(LocalNumeric)).parent
    for file in source.glob("*.py"):
        found = {node.value for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Constant)}
        own = {name for name, kind in MECHANISMS.items() if inspect.getfile(kind) == str(file)}
        assert found & set(MECHANISMS) <= own, file.name


def test_mechanisms_name_their_parameters_and_are_frozen_and_keyword_only():
    for kind in MECHANISMS.values():
        given = {item.name for item in dataclasses.fields(kind) if item.init}
        assert given - {kind.subject, "epsilon", "tiers", "steps"} == set(kind.parameters)
        assert all(item.kind is item.KEYWORD_ONLY for item in inspect.signature(kind).parameters.values())
        assert kind.__dataclass_params__.frozen


def test_levels(case):
    """Either epsilon or tiers, within bounds; each tier has a law of its own."""
    tiers = (Tier(name="basic", epsilon="2"), Tier(name="strict", epsilon="0.5"))
    wrong = [{}, {"epsilon": 1, "tiers": tiers}, {"tiers": ("basic",)}, {"epsilon": "one"}, {"tiers": (tiers[0],) * 2}]
    for levels in [*wrong, *({"epsilon": number} for number in ("0.0000001", 301, 10**40))]:
        with refuses(ParameterError, levels):
            case.made(**levels)
    mechanism = case.made(tiers=tiers)
    assert mechanism.levels == tiers
    ratio = 1 if mechanism.true_loss("basic") is None else mechanism.true_loss("basic") / mechanism.true_loss("strict")
    assert ratio in (1, 4)
    assert mechanism.promise().guarantee.epsilon == 2
    assert mechanism.channel("strict") == mechanism.channel(tiers[1]) != mechanism.channel("basic")
    for tier in ("other", Tier(name="basic", epsilon="3")):
        with refuses(ParameterError, tier):
            mechanism.channel(tier)
    for epsilon in ("0.00001", 40, 60, 100):
        mechanism = case.made(epsilon=epsilon)
        predicted = mechanism.predicted_sd("all", 10)
        assert min(predicted if isinstance(predicted, list | tuple) else [predicted]) > 0, epsilon
        assert mechanism.read(mechanism.perturb(case.value, tier="all", noise=Noise()), tier="all")
        assert case.kind is LocalNumeric or mechanism.noise_verdict(10).message


def test_promise_needs_no_data_and_serialises(case):
    promise = case.mechanism().promise()
    told = json.loads(json.dumps(promise.to_dict()))
    assert guarantee_from(told["guarantee"]) == promise.guarantee
    assert promise.digest() == case.mechanism().promise().digest()
    assert (promise.basis is Basis.PROVED) == case.proved
    assert bool(promise.why) == (not case.proved)
    assert {a.name for a in promise.assumptions} >= {"public tiers", "every slot reports"}


def test_the_loss_charged_is_never_below_what_is_promised(case):
    mechanism = case.mechanism()
    charged = mechanism.true_loss(mechanism.levels[0])
    promised = mechanism.promise().true_loss(Neighbours.REPLACE_ONE)
    if promised.bounded:
        assert charged is not None
        assert charged >= promised.epsilon
    if case.proved and charged is not None and promised.bounded:
        assert charged == Fraction(3, 4)


class HostileNumber(float):
    def __float__(self):
        raise RuntimeError("no")

    def as_integer_ratio(self):
        raise RuntimeError("no")


PLACE = (104.0, 30.6)
STRANGE = [None, 7, math.nan, math.inf, "text", b"bytes", [], {}, (), (1,), (1, 2, 3), [[]], {0.5}, object()]
STRANGE += [{"a": {}}, {"speed": math.nan, "load": "heavy"}, {"speed": math.inf, "load": -math.inf}]
STRANGE += [{"speed": 10**400}, {"speed": HostileNumber(1.0)}, {"other": 1}, (math.nan, 30.6)]
STRANGE += [(None, None), (104.0, math.inf), (10**400, 0), (1e308, -1e308), (math.inf, -math.inf), ("104", "30.6")]
STRANGE += [[Fraction(104), Decimal("30.6")], (complex(1, 1),) * 5, [1] * 99, [PLACE], [PLACE, None], [PLACE, (0, 0)]]
STRANGE += [[None, None], [PLACE] * 5, [(math.nan, 0)] * 2]


def check_reads(mechanism, value, noise):
    tier = mechanism.levels[0]
    payload = mechanism.perturb(value, tier=tier, noise=noise)
    assert isinstance(payload, bytes)
    symbols = mechanism.read(payload, tier=tier)
    assert symbols
    if not isinstance(mechanism, LocalNumeric):
        assert len(payload) == -(-mechanism.payload_bits(tier) // 8)
        for area, symbol in symbols:
            assert (area is None) == (not (mechanism.area_in_clear or mechanism.as_published))
            assert 0 <= symbol < mechanism.oracle(tier).num_symbols


def test_every_value_makes_one_payload_that_reads_back(case):
    mechanism, noise = case.mechanism(), Noise()
    for value in (case.value, case.other, *STRANGE):
        check_reads(mechanism, value, noise)


@settings(max_examples=40, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["speed", "load"]), inner),
        max_leaves=6,
    )
)
def test_any_plain_value_makes_a_payload(value):
    for case in CASES.values():
        check_reads(case.mechanism(), value, Noise())


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(CASES)), st.binary(max_size=12))
def test_any_payload_is_read_or_refused(name, payload):
    mechanism = CASES[name].mechanism()
    law = mechanism.channel("all")
    sizes = {"payload": payload}
    if not isinstance(mechanism, LocalNumeric):  # exactly the symbols, each written in one way
        num_bytes = -(-law.payload_bits // 8)
        sizes["a symbol"] = (law.num_symbols - 1).to_bytes(num_bytes, "little")
        sizes["cut"] = payload[:num_bytes].ljust(num_bytes, b"\0")
    for text in sizes.values():
        try:
            read = bool(mechanism.read(text, tier="all"))
        except ReportError:
            read = False
        if not isinstance(mechanism, LocalNumeric):
            assert read == (len(text) == num_bytes and int.from_bytes(text, "little") < law.num_symbols)


def test_damaged_payloads_are_refused(case):
    mechanism = case.mechanism()
    tier = mechanism.levels[0]
    payload = mechanism.perturb(case.value, tier=tier, noise=Noise())
    for damaged in (b"", payload + b"\0", payload + b"\xff" * 40):
        with refuses(ReportError, damaged):
            mechanism.read(damaged, tier=tier)


def client(case, tmp_path, noise, **limits):
    task = case.task(**limits)
    allowance = Allowance.open(
        tmp_path / "truck.allowance", task, enrol=True, now=NOON - 86_400, cap="none", noise=noise
    )
    return Client(task, allowance, noise=noise), allowance


def test_spends_once_sends_the_same_again_and_prints_no_value(case, tmp_path, capsys):
    device, allowance = client(case, tmp_path, Noise())
    with allowance:
        first = device.report("duty", case.value, NOON + 1)
        spent = (tmp_path / "truck.allowance").read_bytes()
        slot = Report.from_bytes(first)
        assert device.report("duty", case.other, NOON + 2, slot=(slot.day, slot.slot)) == first
        assert (tmp_path / "truck.allowance").read_bytes() == spent
        texts = [repr(device), repr(allowance), repr(case.mechanism()), repr(slot), allowance.summary()]
    texts += [spent.decode(), capsys.readouterr().out]
    assert not any(word in text for text in texts for word in ("83.25", "104.05", "30.61"))


def test_a_refused_spend_draws_no_noise(case, tmp_path):
    loss = check_task(case.task()).bounded_of_slot("all")
    if not loss:
        pytest.skip("nothing that has a bound is charged")
    noise = Noise()
    device, allowance = client(case, tmp_path, noise, lifetime=2 * loss)
    with allowance:
        made = device.reports({"duty": case.value}, NOON + 43_201)
        made += device.reports({"duty": case.value}, NOON + 86_400 + 1)
        assert len([message for message in made if message]) == 2
        device.due(NOON + 86_400 + 43_201)  # tomorrow's slots are drawn with the day, not with a report
        drawn = noise.bytes_drawn
        with pytest.raises(AllowanceError):
            device.report("duty", case.value, NOON + 86_400 + 43_201)
        assert noise.bytes_drawn == drawn


def test_seeded_noise_is_charged_without_bound(case, tmp_path):
    device, allowance = client(case, tmp_path, Noise(seed=1))
    with allowance:
        device.report("duty", case.value, NOON + 1)
        assert allowance.spent_in_all().num_unbounded == 1
