# SPDX-License-Identifier: Apache-2.0
"""The frontier of a story: other policies, what each would cost and what it would tell."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dunnage.advising.advice import advise, finish
from dunnage.advising.frontier import Frontier, Point
from dunnage.auditing.finding import percent
from dunnage.demo.numbers import Numbers
from dunnage.demo.story import Progress
from dunnage.pages.demo import Part, Picture, Told
from dunnage.pages.frontier import frontier_page
from dunnage.pages.frontier_chart import frontier_figure

FOLDER, FILE = "frontier", "frontier/frontier.json"
JOBS = 2
DRAWS, QUICK_DRAWS = 3, 2


def write_frontier(
    folder: Path, data: Path, policy: Path, *, goal: str, quick: bool, tell: Progress, **more: Any
) -> None:
    """Measure a small frontier and write it into a chapter's folder, with its page."""
    place = folder / FOLDER
    jobs = 1 if quick else min(JOBS, os.cpu_count() or 1)
    found = advise(
        data,
        policy=policy,
        goal=goal,
        out=place,
        on="generated",
        quick=True,
        draws=QUICK_DRAWS if quick else DRAWS,
        jobs=jobs,
        progress=tell,
        **more,
    )
    found.write(place, page=frontier_page(found))
    finish(place)


def frontier_part(numbers: Numbers, *, cost: str, risk: str, note: str = "", more: Sequence[Told] = ()) -> Part:
    """Tell of the frontier in a chapter's folder."""
    found = Frontier.read(numbers.folder / FOLDER)
    tried = numbers.compute("policies measured", len(found.points), "points of the frontier", [FILE])
    picture = Picture(
        title="Cost against risk",
        svg=frontier_figure(found),
        caption=Told("Each mark is a policy, measured several times; the nearer to the corner, the better." + note),
        sources=[numbers.place("frontier/frontier.csv")],
    )
    words = [Told("{tried} policies were measured: what each costs, and what it leaves an attacker.", tried=tried)]
    if found.recommended is not None:
        words += [_advice(numbers, found, cost, risk), *more]
    words.append(
        Told(
            "To choose a policy by looking at one's own data is itself not private, so that all were measured on "
            "generated data of the same public shape."
        )
    )
    return Part(title="What other policies would cost", words=words, pictures=[picture])


def advised(numbers: Numbers) -> tuple[Point, int] | None:
    """Return the recommended point of the frontier in a chapter's folder, and its place; None if there is none."""
    found = Frontier.read(numbers.folder / FOLDER)
    if found.recommended is None:
        return None
    return found.point(found.recommended), [point.name for point in found.points].index(found.recommended)


def _advice(numbers: Numbers, found: Frontier, cost: str, risk: str) -> Told:
    """Say what is recommended, and why."""
    place = [point.name for point in found.points].index(str(found.recommended))
    asked = (
        ("most that privacy may cost", "/limit/max_cost", f"at most {{asked}} {cost}")
        if found.limit.max_cost is not None
        else ("most that may be risked", "/limit/max_risk", f"that {risk} {{asked}} at most")
    )
    keeps = "the advice is {name}" if found.meets_limit else "no policy surely keeps to it; the closest is {name}"
    figures = {
        end: numbers.read(f"cost of the advice, {end}", FILE, f"/points/{place}/cost/{end}", percent)
        for end in ("value", "lower", "upper")
    }
    return Told(
        f"Asked for {asked[2]}, {keeps}: {{value}} {cost} ({{lower}} to {{upper}}), and {risk} {{risk}}. It is written "
        "as a policy, ready to publish with.",
        asked=numbers.read(asked[0], FILE, asked[1], percent),
        name=numbers.read("recommended policy", FILE, "/recommended"),
        risk=numbers.read("risk of the advice", FILE, f"/points/{place}/risk/value", percent),
        **figures,
    )
