# SPDX-License-Identifier: Apache-2.0
"""Where one starts: generated data, drafts, advice, proofs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.scenarios.harness import Here, check
from tests.scenarios.inputs import parcel_policy, parcels


def generating(here: Here) -> None:
    here.lines("""
        generate packages -o parcels.csv --size 12 --destinations 2 --decimals 1 --seed 1
        generate packages -o normal.csv --size 12 --law normal --mean 50 --sd 9 --low 10 --high 90 --seed 1 --json
        generate packages -o setting.csv --setting 25-L-U --seed 1
        generate packages -o unequal.csv --setting 50-S-Un --seed 1
        generate rides -o rides.csv --size 12 --stations 30 --lines 3 --seed 1
        generate city -o city --stops 32 --zones 2 --seed 1
        generate trips -o trips.csv --size 12 --city city --from 08:00 --to 09:00 --seed 1
        generate trips -o weekend.csv --size 12 --weekend --from 20:00 --seed 1 --json
        generate telemetry -o telemetry.csv --size 4 --readings 2 --days 2 --seed 1
        generate telemetry -o census.parquet --size 4 --readings 2 --attributes 3 --law census --seed 1
        generate positions -o positions.csv --size 4 --epochs 3 --seed 1
        generate positions -o positions.parquet --size 4 --epochs 3 --seed 2 --json
        show parcels.csv
        show parcels.toml --json
        show city
        show city --json
        show telemetry.toml --json
        show census.parquet
    """)
    here.leave_out("city/modes.csv", "city/times.csv", "*modes.csv", "setting.csv", "unequal.csv")


def drafting(here: Here) -> None:
    for name, options in (
        ("packages", "--size 12 --destinations 2"),
        ("rides", "--size 12 --stations 30 --lines 3"),
        ("trips", "--size 12 --from 08:00 --to 09:00"),
        ("telemetry", "--size 4 --readings 2"),
        ("positions", "--size 4 --epochs 3"),
    ):
        here.line(f"generate {name} -o {name}.csv {options} --seed 1", quiet=True)
        here.line(f"draft {name}.csv -o draft-{name}.toml")
        here.line(f"show draft-{name}.toml")
    here.lines("""
        draft packages.csv -o rows.toml --story rows --json
        draft packages.csv -o rows.toml
        draft trips.csv -o devices.toml --story devices
        publish packages.csv --policy draft-packages.toml -o release
    """)
    here.leave_out(*(f"{name}*" for name in ("packages", "rides", "trips", "telemetry", "positions")))


@pytest.mark.parametrize("scenario", [generating, drafting], ids=lambda item: item.__name__)
def test_starting(scenario: object, tmp_path: Path, record: bool) -> None:
    check(scenario.__name__, scenario, tmp_path, record=record)  # type: ignore[attr-defined, arg-type]


def advising(here: Here, goal: str, options: str) -> None:
    here.write("data.csv", parcels(24))
    here.write("policy.toml", parcel_policy("partition", sensitive=False, k=4).replace("doubling = 5\n", ""))
    here.line(
        f"advise data.csv --policy policy.toml --goal {goal} {options} --quick --draws 2 --size 20 --jobs 1 -o frontier"
    )
    here.lines("""
        show frontier
        show frontier/policy.toml
        publish data.csv --policy frontier/policy.toml --dry-run
    """)


def test_advising(tmp_path: Path, record: bool) -> None:
    check("advise-error", lambda here: advising(here, "error", "--max-cost 20%"), tmp_path, record=record)


def advised_shape(here: Here, goal: str, options: str) -> None:
    """Noise is drawn in other processes, so costs vary: tell what is measured, and of which points."""
    here.write("data.csv", parcels(24))
    here.write("policy.toml", parcel_policy("partition", sensitive=False, k=4).replace("doubling = 5\n", ""))
    common = f"advise data.csv --policy policy.toml --goal {goal} {options} --quick --draws 2 --size 20 --jobs 1"
    here.line(f"{common} -o frontier", quiet=True)
    here.line("show frontier", quiet=True)
    here.line("show frontier/policy.toml", quiet=True)
    document = json.loads((here.folder / "frontier" / "frontier.json").read_text())
    for point in sorted(document["points"], key=lambda item: item["name"]):
        here.say(point["name"], "|", point["guarantee"], "|", point["basis"], "|", json.dumps(point["parameters"]))
    here.say(sorted(document), sorted(document["points"][0]))
    here.leave_out("frontier/*", "frontier.partial/*")


@pytest.mark.long
@pytest.mark.parametrize(
    ("goal", "options"),
    [("trucks", "--capacity 200kg"), ("distortion", "--max-risk 1/4")],
)
def test_advice(goal: str, options: str, tmp_path: Path, record: bool) -> None:
    check(f"advise-{goal}", lambda here: advised_shape(here, goal, options), tmp_path, record=record)


def proving(here: Here) -> None:
    """Which verdicts there are, and that all are as expected; how long they took and what was drawn is left out."""
    told = json.loads(here.line("prove full-domain --jobs 1 --json", quiet=True))
    here.say(sorted(told))
    for part in sorted(told):
        if isinstance(told[part], list):
            for item in told[part]:
                here.say(part, {key: value for key, value in item.items() if isinstance(value, (str, bool))})


@pytest.mark.long
def test_proving(tmp_path: Path, record: bool) -> None:
    check("prove", proving, tmp_path, record=record)
