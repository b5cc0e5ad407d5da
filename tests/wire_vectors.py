# SPDX-License-Identifier: Apache-2.0
"""Make the test vectors of the wire format: ``python -m tests.wire_vectors docs/wire-vectors.json``."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

from dunnage.devices import numbers, places
from dunnage.devices.report import Report
from dunnage.devices.subjects import Grid, Quantity, Tier
from dunnage.devices.task import Limits, Purpose, Schedule, Task

BOX = ("103.9", "30.5", "104.2", "30.8")
PLACES = (
    (103.9, 30.5),
    (104.2, 30.8),
    (103.95, 30.74),
    (104.1, 30.55),
    (104.05, 30.65),
    (103.89, 30.6),
    (104.0, 30.81),
)


def digits(number: float) -> float:
    return float(f"{number:.12g}")


def law_of(name: str, law: Any, base: Callable[[int], float] = lambda symbol: 1.0, **more: object) -> dict[str, object]:
    rows = []
    for index in range(law.num_inputs):
        exponents = [(symbol, law.exponent(index, symbol)) for symbol in law.symbols()]
        weights = [0.0 if e is None else base(symbol) * math.exp(float(e)) for symbol, e in exponents]
        rows.append([digits(weight / math.fsum(weights)) for weight in weights])
    return {"law": name, "epsilon": str(law.epsilon), "inputs": law.num_inputs, "chances": rows, **more}


def vectors() -> dict[str, object]:
    grid = Grid(box=BOX, levels=3)
    speed = Quantity(name="speed", low="0", high="120", unit="km/h", steps=4)
    tiers = {epsilon: (Tier(name="all", epsilon=epsilon),) for epsilon in (1, 2)}
    place = Purpose(name="places", mechanism="local-location", tiers=tiers[1], grid=grid, parameters={"method": "best"})
    piecewise = {"method": "piecewise"}
    number = Purpose(name="speed", mechanism="local-numeric", tiers=tiers[2], quantities=(speed,), parameters=piecewise)
    task = Task(dataset="vectors", purposes=(place, number), schedule=Schedule(), limits=Limits(lifetime=730))
    reports = []
    for purpose, day, slot, report_id, payload in (
        (0, 20773, 7, bytes(range(16)), b"\x0b"),
        (1, 20773, 1439, bytes(range(16, 32)), b"\x05"),
        (0, 18262, 0, b"\xff" * 16, bytes(range(200))),
    ):
        fields: dict[str, Any] = {"purpose": purpose, "tier": 0, "day": day, "slot": slot}
        report = Report(task=task.prefix, report_id=report_id, payload=payload, **fields)
        written = {"binary": report.to_bytes().hex(), "json": report.to_json()}
        reports.append({**fields, "id": report_id.hex(), "payload": payload.hex(), **written})
    one = Fraction(1)
    laws = [
        law_of(kind.name, kind(num_inputs=5, epsilon=one))
        for kind in (places.RandomisedResponse, places.SubsetSelection, places.HadamardResponse)
    ]
    space = places.ProjectiveResponse(num_inputs=5, epsilon=one)
    laws.append(law_of(space.name, space, geometry=list(space.geometry)))
    for kind in (places.OptimisedUnary, places.SymmetricUnary):
        unary = kind(num_inputs=3, epsilon=one)
        odds = unary.q / (1 - unary.q)
        laws.append(law_of(kind.name, unary, lambda symbol, odds=odds: odds ** symbol.bit_count()))  # type: ignore[misc]
    disk = places.Disk(grid=Grid(box=BOX, levels=2), epsilon=Fraction(1, 2))
    reach = [[row, column] for row, column in sorted(disk.reach.items())]
    laws.append(law_of("disk", disk, lambda s: disk.size if s == disk.starts[-1] else 1.0, columns=2, reach=reach))
    for window in (numbers.Piecewise, numbers.SquareWave):
        law = window(epsilon=one, steps=2)
        laws.append(law_of(law.key, law, steps=2, stride=law.stride, half=law.half))
    laws.append(law_of("duchi", numbers.Duchi(epsilon=one, steps=1)))
    designed = numbers.Designed(epsilon=one, steps=1)
    intervals = [[arc.start, arc.stop, weight] for arc, weight in zip(designed.arcs, designed.weights, strict=True)]
    values = [digits(value) for value in designed.values]
    laws.append(law_of("designed", designed, lambda s: designed.weights[s], intervals=intervals, values=values))
    return {
        "task": json.loads(task.to_bytes()),
        "digest": task.digest,
        "reports": reports,
        "cells": [[*at, grid.cell(*at)] for at in PLACES],
        "laws": laws,
    }


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(vectors(), separators=(",", ":")) + "\n", encoding="ascii")
