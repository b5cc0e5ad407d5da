# SPDX-License-Identifier: Apache-2.0
"""Carriers: tasks, reports of one vehicle and of a fleet, estimates, sealed records."""

from __future__ import annotations

from pathlib import Path

from tests.scenarios.harness import Here, check

PERTURB = "device perturb telemetry.csv --task task.json --allowance truck.own"
VEHICLE = "--vehicle V0000003 --tier basic"
DAYS = "--from 2026-10-14 --to 2026-10-15"


def numbers(here: Here) -> None:
    here.line("generate telemetry -o telemetry.csv --size 40 --days 2 --readings 3 --seed 1", quiet=True)
    here.leave_out("telemetry.csv", "*.lock")
    here.lines(f"""
        show telemetry.toml --devices 40
        device task telemetry.toml -o task.json --devices 40
        device task telemetry.toml -o task.json
        device task telemetry.toml -o other.json --json
        show task.json --devices 500
        show task.json --json
        {PERTURB} --enrol {VEHICLE} -o truck.jsonl
        {PERTURB} --enrol {VEHICLE} {DAYS} -o truck.jsonl
        {PERTURB} {VEHICLE} {DAYS} -o again.jsonl
        {PERTURB} {VEHICLE} -o later.bin --now 2026-10-20T08:00:00 --json
        {PERTURB} {VEHICLE} -o back.bin --now 2026-10-01T08:00:00
        {PERTURB} {VEHICLE} -o back.bin --now 2026-10-19T08:00:00 --accept-clock
        {PERTURB} --vehicle V0000003 {DAYS} -o again.jsonl
        {PERTURB} {VEHICLE} {DAYS} --cap 0.5 -o capped.jsonl
        show truck.jsonl
        show truck.own
        show truck.own --json
        device simulate telemetry.csv --task task.json --seed 3 -o fleet.jsonl
        device simulate telemetry.csv --task task.json --seed 3 {DAYS} -o fleet.bin --json
        device simulate telemetry.csv --task task.json --seed 3 --tally --every-row -o tallies.json
        show fleet.jsonl
        show fleet.bin --json
        show tallies.json
        estimate fleet.jsonl --task task.json -o estimates
        estimate fleet.bin --task task.json --confidence 0.8 --combine stratify -o stratified --json
        estimate tallies.json --task task.json -o tallied
        verify estimates
        verify tallied
        show estimates
        show estimates --json
        estimate fleet.jsonl --task task.json --combine none -o never
        estimate fleet.jsonl --task task.json --from 2026-10-16 --to 2026-10-16 -o never
        audit estimates --external -o audit
    """)


def test_numbers(tmp_path: Path, record: bool) -> None:
    check("carriers-numbers", numbers, tmp_path, record=record)


def published(here: Here) -> None:
    here.line("generate telemetry -o telemetry.csv --size 40 --readings 3 --attributes 3 --seed 1", quiet=True)
    policy, starter = (here.folder / "telemetry.toml").read_text(), 'method = "designed"'
    here.write("published.toml", policy.replace(starter, "as_published = true"))
    here.write("piecewise.toml", policy.replace(starter, 'method = "piecewise"\nsampled = 2'))
    here.leave_out("telemetry.csv", "telemetry.toml")
    for name in ("published", "piecewise"):
        here.lines(f"""
            show {name}.toml
            device task {name}.toml -o {name}.json
            device simulate telemetry.csv --task {name}.json --seed 3 -o {name}.jsonl
            estimate {name}.jsonl --task {name}.json -o {name}
            verify {name}
        """)
    here.lines("estimate piecewise.jsonl --task published.json -o never")


def test_published_numbers(tmp_path: Path, record: bool) -> None:
    check("carriers-numbers-as-published", published, tmp_path, record=record)


def places(here: Here) -> None:
    here.line("generate positions -o positions.csv --size 40 --epochs 24 --seed 1", quiet=True)
    here.leave_out("positions.csv", "*.lock")
    policy = (here.folder / "positions.toml").read_text()
    here.write("published.toml", policy.replace('attributes = ["', 'as_published = true\nattributes = ["'))
    here.write(
        "clear.toml",
        "allow_unbounded = true\n"
        + policy.replace("levels = 2 ", "levels = 3\narea_levels = 2 ").replace(
            'attributes = ["place"]', 'attributes = ["place"]\narea_in_clear = true'
        ),
    )
    simulate = "device simulate positions.csv --max-age 1440 --seed 3"
    here.lines(f"""
        show positions.toml
        device task positions.toml -o task.json
        {simulate} --task task.json -o fleet.jsonl
        {simulate} --task task.json --tally -o tallies.json --json
        estimate fleet.jsonl --task task.json -o never
        estimate fleet.jsonl --task task.json --allow-noise -o estimates
        estimate tallies.json --task task.json --allow-noise -o tallied --json
        show estimates
        verify estimates
        device task published.toml -o published.json
        {simulate} --task published.json -o published.bin
        estimate published.bin --task published.json --allow-noise -o published
        verify published
        device task clear.toml -o clear.json
        {simulate} --task clear.json -o clear.bin
        estimate clear.bin --task clear.json --allow-noise -o clear
        show clear
    """)


def test_places(tmp_path: Path, record: bool) -> None:
    check("carriers-places", places, tmp_path, record=record)


def identities(here: Here) -> None:
    here.write("vehicles.csv", "vehicle,plate,owner\nV1,AB-1,Ann\nV2,CD-2,Ben\n")
    here.lines("""
        device keys fleet.keys
        device keys fleet.keys --json
        device seal vehicles.csv --keys fleet.keys -o sealed.jsonl
        show sealed.jsonl
        show fleet.keys
        device open sealed.jsonl --keys fleet.keys -o opened.csv
        device open sealed.jsonl --keys fleet.keys --at-least 2 -o never.csv
        device keys fleet.keys --renew
        device seal sealed.jsonl --keys fleet.keys -o anew.jsonl --json
        device open anew.jsonl --keys fleet.keys -o opened2.csv --json
        device keys other.keys --algorithm SM4-GCM
        device open sealed.jsonl --keys other.keys -o never.csv
        device keys third.keys --algorithm ROT13
    """)
    here.leave_out("*.keys", "sealed.jsonl", "anew.jsonl")


def test_identities(tmp_path: Path, record: bool) -> None:
    check("carriers-identities", identities, tmp_path, record=record)
