# SPDX-License-Identifier: Apache-2.0
"""Alarms about a fleet: they are raised when they should, and false ones are as rare as promised."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom
from tests.commands import run
from tests.estimates_help import refuses

from dunnage.collecting.alarms import FORMS, Rule, bounds, look_at, number_bounds
from dunnage.collecting.batch import perturb_column
from dunnage.collecting.frames import Source
from dunnage.collecting.tally import Sums
from dunnage.devices.client import mechanisms_of
from dunnage.devices.report import Report, write_reports
from dunnage.devices.task import Grid, Limits, Purpose, Quantity, Schedule, Task, Tier
from dunnage.errors import ParameterError, ReportError
from dunnage.noise.source import Noise

DAY = 20_000
TIERS = (Tier(name="all", epsilon="2"),)
WARM = Quantity(name="too warm", low=0, high=1, steps=1)
TEMPERATURE = Quantity(name="temperature", low=0, high=32, unit="C", steps=64, missing="symbol")
SPEED = Quantity(name="speed", low=0, high=100)
GRID = Grid(box=("103.9", "30.5", "104.2", "30.8"), levels=3)


def purpose(name, quantity=None, **parameters):
    kind = {"mechanism": "local-location", "grid": GRID} if quantity is None else {"mechanism": "local-numeric"}
    own = {} if quantity is None else {"quantities": (quantity,)}
    return Purpose(name=name, tiers=TIERS, parameters=parameters, **kind, **own)


TASK = Task(
    dataset="fleet",
    purposes=(
        purpose("warm", WARM, method="warner"),
        purpose("cold chain", TEMPERATURE, method="square-wave"),
        purpose("telemetry", SPEED, method="piecewise"),
        purpose("places", method="optimised-unary"),
        purpose("more places", method="hadamard"),
        purpose("planes", method="projective"),
    ),
    schedule=Schedule(slot_minutes=60),
    limits=Limits(lifetime="10000"),
)
MECHANISMS = mechanisms_of(TASK)


def test_rules_are_read():
    rules = ["mean of speed > 80", "share of temperature above 8 > 5%", "readings of temperature < 90%"]
    rules += ["cell 15 of places > 5%", "mean of too warm > 5%", "share of temperature below 2 < 50%"]
    made = [Rule.read(rule, TASK) for rule in rules]
    assert [(rule.kind, rule.purpose, rule.over) for rule in made] == [
        ("mean", "telemetry", True),
        ("share", "cold chain", True),
        ("readings", "cold chain", False),
        ("cell", "places", True),
        ("mean", "warm", True),
        ("share", "cold chain", False),
    ]
    assert made[1].limit == 0.05
    assert (made[1].edge, made[5].edge) == (4, 1)
    bad = ["", "speed > 80", "mean of height > 3", "share of speed above 50 > 5%", "share of temperature above 7 > 5%"]
    bad += ["cell 16 of places > 1%", "readings of speed < 9%", "mean of speed > x", "cell 1 of speed > 1%", FORMS[3]]
    for text in bad:
        with refuses(ParameterError, text):
            Rule.read(text, TASK)


def test_false_alarms_of_counts_exactly():
    """Yes or no, and cells: at the limit itself, the chance of an alarm over all counts is at most the risk."""
    num, risk = 150, 0.01
    reading = MECHANISMS["warm"].reading("all", 0, "warner")
    oracle = MECHANISMS["places"].oracle("all")
    for limit in (0.05, 0.3):
        mean, chance = 2 * limit - 1, oracle.q + limit * (oracle.p - oracle.q)
        ups = np.arange(num + 1)
        lowers = [number_bounds(reading, Sums(num, int(2 * up - num), num), risk) for up in ups]
        alarm = np.array([one.lower > mean for one in lowers])
        assert 0 < binom.pmf(ups, num, (mean / reading.scale + 1) / 2)[alarm].sum() <= risk
        quiet = np.array([one.upper < mean for one in lowers])
        assert binom.pmf(ups, num, (mean / reading.scale + 1) / 2)[quiet].sum() <= risk
        rule, raised = Rule.read(f"cell 3 of places > {limit:.0%}", TASK), []
        tally = perturb_column(MECHANISMS["places"], "all", [np.full(num, 104.0), np.full(num, 30.6)], Noise())
        tally.purpose = "places"
        for up in ups:
            tally.parts[()].counts[3] = up
            raised.append(bounds(MECHANISMS["places"], [tally], rule, risk).lower > limit)
        assert 0 < binom.pmf(ups, num, chance)[np.array(raised)].sum() <= risk


@pytest.mark.parametrize("name", ["telemetry", "cold chain", "more places", "planes"])
def test_false_alarms_of_other_laws(name):
    """Figures just at the limit, with a risk of 20 % a look: alarms are no more frequent, at 1e-9."""
    rules = {"telemetry": "mean of speed > 70", "cold chain": "share of temperature above 8 > 50%"}
    rule, num, looks = Rule.read(rules.get(name, f"cell 5 of {name} > 0%"), TASK), 60, 40
    columns = {"telemetry": [np.full(num, 70.0)], "cold chain": [np.repeat([4.0, 12.0], num // 2)]}
    values = columns.get(name, [np.full(num, 103.91), np.full(num, 30.51)])
    raised = 0
    for _ in range(looks):
        tally = perturb_column(MECHANISMS[name], "all", values, Noise(), purpose=name)
        raised += bounds(MECHANISMS[name], [tally], rule, 0.2).lower > rule.limit
    assert binom.sf(raised - 1, looks, 0.2) > 1e-9


def made_reports(days):
    """Reports of yes or no and of temperatures: 2 % too warm, on the last day 40 %."""
    noise, made = Noise(seed=4), []
    for day in range(days):
        warm = 2 if day < days - 1 else 40
        for at in range(500):
            values = {
                "warm": {"too warm": at % 100 < warm},
                "cold chain": {"temperature": 12 if at % 100 < warm else 3},
            }
            for number, name in enumerate(values):
                payload = MECHANISMS[name].perturb(values[name], tier=TIERS[0], noise=noise)
                head = {"task": TASK.prefix, "purpose": number, "tier": 0, "day": DAY + day, "slot": 9}
                made.append(Report(**head, report_id=noise.draw_bytes(16), payload=payload))
    return made


def test_alarms_of_a_fleet(tmp_path):
    source = Source.of_reports(made_reports(3))
    rules = ["mean of too warm > 5%", "readings of temperature < 50%"]
    done = look_at(TASK, [source], rules, sure=0.99, num_looks=365)
    assert [(look.day, look.alarm) for look in done.looks if look.rule == rules[0]] == [
        ("2024-10-04", False),
        ("2024-10-05", False),
        ("2024-10-06", True),
    ]
    assert not any(look.alarm for look in done.looks if look.rule == rules[1])
    assert all(look.reports == 500 for look in done.looks)
    assert "365 looks at 2 rules is at most 1 %" in done.promise()
    surer = look_at(TASK, [source], rules[:1], sure=0.999999, num_looks=365)
    assert surer.looks[2].bound < done.looks[4].bound  # more looks, or surer: a wider margin
    for wrong in ({"sure": 1.0}, {"num_looks": 2}, {"sure": 0.2}):
        with refuses(ParameterError, wrong):
            look_at(TASK, [source], rules, **{"sure": 0.99, "num_looks": 365, **wrong})
    with refuses(ReportError, "no reports"):
        look_at(TASK, [Source.of_reports([])], rules, sure=0.9, num_looks=9)
    write_reports(tmp_path / "r.bin", made_reports(1))
    (tmp_path / "task.json").write_text(TASK.to_json())
    given = [tmp_path / "r.bin", "--task", tmp_path / "task.json"]
    told = run("alarms", *given, "--when", rules[0], "--when", "share of temperature above 8 > 5%")
    assert told.code == 0
    assert told.out.startswith("ALARM     2024-10-04: mean of too warm > 5%")
    run("alarms", *given, "--when", "mean of height > 3").refused("height")
    run("alarms", *given, "--when", rules[0], "--sure", "101%").refused()
