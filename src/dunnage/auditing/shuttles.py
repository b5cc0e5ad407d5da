# SPDX-License-Identifier: Apache-2.0
"""What privacy cost a fleet of shuttles: the planned one beside the one that the true trips need, by the same method.

Both are run on the true trips. Single trips have their own seconds, so figures are counted; seconds of trips that are
known as counts only are drawn, so waits are estimated. Private: only that there is a plan, and how large it is, may be
told without the truth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dunnage.auditing.finding import CONFIDENCE, About, Figure, Finding, Progress
from dunnage.city import City
from dunnage.planning.plan import FleetPlan
from dunnage.publication import Key
from dunnage.release import Release
from dunnage.settle.fleets import FleetSettlement, apply_fleet, served_task, true_days
from dunnage.tables.dataset import Dataset
from dunnage.text import number_text, percent, several

UNCHECKED = "Without the key nothing ties these trips to this release, so nobody checked that the fleet serves them."


def fleet_note(plan: FleetPlan) -> str:
    return (
        f"The plan has {several(plan.objective, 'shuttle')}. What it costs, and how long riders wait, cannot be told "
        "without the true trips."
    )


def fleet_findings(
    plan: FleetPlan,
    data: Dataset,
    release: Release,
    city: City,
    key: Key | None,
    *,
    shuttle_hour: float | None,
    tell: Progress,
) -> tuple[list[Finding], list[str]]:
    """Run planned shuttles on the true trips, beside those that these need; return findings and notes."""
    done = apply_fleet(plan, data, release, city, key, shuttle_hour=shuttle_hour, progress=tell)
    universe = data.schema.universe(data.period)
    # Seconds of trips were drawn where only their counts are known.
    drawn = true_days(data, universe, done.task.ground, done.plan.model.day if done.plan.model else None) is None
    target, wait, known = float(done.task.max_wait), done.wait_seconds, done.needed is not None
    notes = [] if done.checked else [UNCHECKED]
    if not known:
        notes.append(
            f"No fleet meets the target of {number_text(target)} s on the true trips by this method, so "
            "there is no fleet without privacy to compare with."
        )
    interval = wait, wait
    if drawn:
        notes.append("Trips are known as counts: seconds within windows were drawn, so waits are estimated.")
        waits = [run.waits for run in served_task(done.task, done.planned).operate(done.planned) if len(run.waits)]
        most = max((float(own.max()) for own in waits), default=0.0)
        interval = spread_interval([float(own.mean()) for own in waits], wait, most=most)
    ideal = done.ideal.wait_seconds.mean if known and done.ideal else (0.0 if known else target)
    without = f"with the fleet that they need {number_text(ideal)} s" if known else "no fleet was found that meets that"
    met, num = sum(done.meets_target), len(done.zones)
    best = "a fleet sized on the true trips does so in all" if known else "no fleet was found that does"
    return [
        *_sizes(done),
        About("s", "utility", private=True).finding(
            Figure("wait", wait, ideal, (min(interval[0], wait), max(interval[1], wait))),
            f"With the planned fleet true riders wait {number_text(wait)} s on average, where "
            f"{number_text(target)} s are allowed; {without}."
            + (f" {number_text(done.unserved)} rides a day are not served." if done.unserved else ""),
            {"max_wait_seconds": target, "unserved": done.unserved, "idle_seconds": done.idle_seconds},
        ),
        About("share", "utility", private=True).finding(
            Figure("zones in time", met / num, 1.0),
            f"In {met:,} of {several(num, 'zone')} all true riders are served and wait no longer on average "
            f"than they may; {best}.",
            {"missed": [zone for zone, in_time in zip(done.zones, done.meets_target, strict=True) if not in_time]},
        ),
    ], notes


def _sizes(done: FleetSettlement) -> list[Finding]:
    """Compare shuttles, and what they cost a day, with those that the true trips need."""
    if done.needed is None:
        return []
    needed, hours = sum(done.needed), (done.task.span[1] - done.task.span[0]) / 3600
    price = done.cost.per_shuttle_hour if done.cost is not None else None
    day, unit = (hours, "shuttle-hours a day") if price is None else (hours * price, "a day")
    by_zone = dict(zip(done.zones, zip(done.planned, done.needed, strict=True), strict=True))
    priced = "" if price is None else f" at {number_text(price)} an hour of one shuttle"
    more = (done.shuttles - needed) * day
    because = ""
    if done.shuttles != needed and needed:
        share = percent(abs(done.shuttles - needed) / needed)
        because = f": {share} {'more' if done.shuttles > needed else 'fewer'} because of privacy"
    return [
        About("shuttles", "utility", private=True).finding(
            Figure("shuttles", done.shuttles, needed),
            f"The plan has {several(done.shuttles, 'shuttle')}; planned on the true trips, without privacy, the same "
            f"method takes {needed:,}{because}.",
            {"zones": {zone: {"planned": ours, "needed": theirs} for zone, (ours, theirs) in by_zone.items()}},
        ),
        About(unit, "utility", private=True).finding(
            Figure("cost", done.shuttles * day, needed * day),
            f"The planned fleet costs {number_text(done.shuttles * day)} {unit}{priced}, the one without privacy "
            f"{number_text(needed * day)}: privacy {'costs' if more >= 0 else 'saves'} {number_text(abs(more))}"
            f"{' at the price of longer waits' if more < 0 else ''}.",
            {"hours_a_day": hours, "per_shuttle_hour": price},
        ),
    ]


def spread_interval(means: Sequence[float], value: float, *, most: float) -> tuple[float, float]:
    """Return Student's 95 % interval around a value by how some means differ; of a single one nothing is known.

    Examples
    --------
    >>> [round(end, 2) for end in spread_interval([9.0, 10.0, 11.0], 10.0, most=60)]
    [7.52, 12.48]
    >>> spread_interval([10.0], 10.0, most=60)
    (0.0, 60)
    """
    if len(means) < 2:
        return 0.0, max(most, value)
    from scipy.stats import t

    reach = float(t.ppf((1 + CONFIDENCE) / 2, len(means) - 1) * np.std(means, ddof=1)) / math.sqrt(len(means))
    return max(0.0, value - reach), value + reach
