# SPDX-License-Identifier: Apache-2.0
"""Views of a fleet by day, hour, tier and file: what each group says, and what groups say about each other."""

from __future__ import annotations

import csv
import itertools
import math

import numpy as np
import pytest
from tests.commands import run
from tests.estimates_help import refuses

from dunnage.collecting.estimate import estimate
from dunnage.collecting.frames import Source
from dunnage.collecting.views import MIN_GROUPS, critical_value, pool, view
from dunnage.devices.client import mechanisms_of
from dunnage.devices.report import Report, write_reports
from dunnage.devices.task import Grid, Limits, Purpose, Quantity, Schedule, Task, Tier
from dunnage.errors import ParameterError, ReportError
from dunnage.noise.source import Noise

DAY = 20_000
TIERS = (Tier(name="wide", epsilon="4"), Tier(name="narrow", epsilon="2"))
SPEED = Quantity(name="speed", low=0, high=100, unit="km/h")
TASK = Task(
    dataset="fleet",
    purposes=(
        Purpose(name="telemetry", mechanism="local-numeric", tiers=TIERS, quantities=(SPEED,)),
        Purpose(
            name="places",
            mechanism="local-location",
            tiers=TIERS,
            grid=Grid(box=("103.9", "30.5", "104.2", "30.8"), levels=6),
        ),
    ),
    schedule=Schedule(slot_minutes=30),
    limits=Limits(lifetime="1000"),
)


def _place(number):
    """Places all over the box, so that none stands out."""
    return 103.9 + 0.3 * (number * 0.6180339887 % 1), 30.5 + 0.3 * (number * 0.7548776662 % 1)


def reports_of(days=2, num=25, seed=0):
    """Reports of both tiers at 8 hours of each day; trucks drive at 20 km/h in the morning and 80 in the evening."""
    noise, mechanisms = Noise(seed=seed), mechanisms_of(TASK)
    made = []
    for day, hour, tier, at in itertools.product(range(days), range(6, 22, 2), (0, 1), range(num)):
        for purpose, (name, mechanism) in enumerate(mechanisms.items()):
            value = {"speed": 20 if hour < 14 else 80} if name == "telemetry" else _place(len(made))
            payload = mechanism.perturb(value, tier=TASK.slot_tiers(TASK.purposes[purpose])[tier], noise=noise)
            slot = 2 * hour + at % 2
            head = {"task": TASK.prefix, "purpose": purpose, "tier": tier, "day": DAY + day, "slot": slot}
            made.append(Report(**head, report_id=noise.draw_bytes(16), payload=payload))
    return made


def test_each_group_is_estimated_as_if_alone():
    made = reports_of()
    north = {report.report_id for at, report in enumerate(made) if at // 2 % 2 == 0}
    halves = [[report for report in made if (report.report_id in north) == half] for half in (True, False)]
    sources = [Source.of_reports([*halves[0], *halves[0][:9]]), Source.of_reports(halves[1])]
    sources[0].name, sources[1].name = "north", "south"
    groups = {
        "day": lambda report: report.day,
        "hour": lambda report: report.slot // 2,
        "tier": lambda report: report.tier,
        "file": lambda report: report.report_id not in north,
    }
    for by, key in groups.items():
        found = view(TASK, sources, by)
        names = list(dict.fromkeys(line[by] for line in found.lines))
        members = [[*own] for _, own in itertools.groupby(sorted(made, key=key), key)]
        assert found.num_groups == len(members) == len(names), by
        for name, own in zip(names, members, strict=True):
            alone = estimate([report for report in own if report.purpose == 0], TASK).data.to_pylist()[0]
            (line,) = (line for line in found.lines if line[by] == name and line["quantity"] == "mean")
            assert [line[one] for one in ("value", "lower", "upper")] == [
                alone[one] for one in ("value", "lower", "upper")
            ]
            assert line["reports"] == sum(report.purpose == 0 for report in own)
            assert line["unit"] == "km/h"
    # A map of one tier, one hour or one day would be noise; nothing is made up for it.
    by_hour = view(TASK, sources, "hour")
    assert len(by_hour.noise["places"]) == by_hour.num_groups == 8
    assert not any(line["purpose"] == "places" for line in by_hour.lines)
    sure = view(TASK, sources, "hour", confidence=1 - 1e-10)
    means = [line for line in sure.lines if line["quantity"] == "mean"]
    assert all(line["lower"] <= 20 <= line["upper"] for line in means[:4])
    assert all(line["lower"] <= 80 <= line["upper"] for line in means[4:])
    assert all(line["pooled_lower"] <= line["pooled"] <= line["pooled_upper"] for line in means)
    assert all(line["pooled_lower"] >= 0 and line["pooled_upper"] <= 100 for line in means)
    assert "pooled" not in view(TASK, sources, "day").lines[0]  # too few groups
    with refuses(ParameterError, "vehicle"):
        view(TASK, sources, "vehicle")
    with refuses(ReportError, "nothing"):
        view(TASK, [Source.of_reports([])], "day")


def test_view_beside_a_release(tmp_path):
    write_reports(tmp_path / "r.bin", reports_of(days=1, num=20))
    (tmp_path / "task.json").write_text(TASK.to_json())
    given = [tmp_path / "r.bin", "--task", tmp_path / "task.json", "--allow-noise"]
    done = run("estimate", *given, "--by", "hour", "-o", tmp_path / "out", "--json").json()
    assert done["by"]["groups"] == 8
    rows = list(csv.DictReader((tmp_path / "out.by-hour.csv").read_text().splitlines()))
    assert [row["hour"] for row in rows] == [f"{hour:02d}:00" for hour in range(6, 22, 2)]
    assert all(float(row["pooled_lower"]) <= float(row["pooled_upper"]) for row in rows)
    run("estimate", *given, "--by", "truck", "-o", tmp_path / "two").refused("day, hour, tier, file")
    run("estimate", *given, "--by", "hour", "-o", tmp_path / "out").refused()
    assert not (tmp_path / "two").exists()


def test_critical_values():
    """No bias gives the normal quantile, a large one Chebyshev's; between them the values that the paper prints."""
    assert critical_value(1e-9, 0.05) == pytest.approx(1.96, abs=0.01)
    assert critical_value(1.0, 0.05) == pytest.approx(3.26, abs=0.03)
    assert critical_value(100.0, 0.05) < math.sqrt(101 / 0.05)
    values = [critical_value(ratio, 0.05) for ratio in (0.1, 0.5, 2, 8)]
    assert values == sorted(values)


def test_pooled_intervals_hold_on_average_over_groups():
    """Whatever the groups are: alike, spread, of two kinds, or all but one alike. Fails by chance below 1e-9."""
    generator = np.random.default_rng(3)
    kinds = {
        "alike": lambda num: np.zeros(num),
        "spread": lambda num: generator.normal(size=num),
        "two kinds": lambda num: np.sign(generator.normal(size=num)),
        "one apart": lambda num: np.append(np.zeros(num - 1), 4.0),
    }
    for kind, effects in kinds.items():
        hits, closer, num = [], [], 24
        for _ in range(20):
            truth, errors = effects(num), np.repeat([0.5, 1.0], num // 2)
            estimates = truth + errors * generator.normal(size=num)
            value, lower, upper = pool(estimates, errors, 0.95)
            hits.append(np.mean((lower <= truth) & (truth <= upper)))
            closer.append(np.mean((value - truth) ** 2) / np.mean((estimates - truth) ** 2))
        # Hits of one repetition hang together, so the repetitions are compared, not single groups.
        error = max(np.std(hits) / math.sqrt(len(hits)), 0.005)
        assert np.mean(hits) > 0.95 - 6.2 * error, kind
        assert np.mean(closer) < 0.95, kind
    assert MIN_GROUPS >= 4
