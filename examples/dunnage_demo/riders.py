# SPDX-License-Identifier: Apache-2.0
"""The riders story: an owner publishes noisy counts of trips, a planner sizes a fleet, and the owner runs it."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.csv as pacsv

from dunnage.auditing.run import Audit, audit
from dunnage.mechanisms.counts import ConstrainedCounts, NoisyCounts
from dunnage.model.city import City
from dunnage.planning.fleet import planned_task, size
from dunnage.planning.plan import FleetPlan
from dunnage.proving.verdict import checks
from dunnage.publishing import publish
from dunnage.release import Release
from dunnage.samples import CitySetting, TripSetting, generate_city, generate_city_trips
from dunnage.settle.fleets import FleetSettlement, apply_fleet
from dunnage.showing.audit import count_pictures, write_audit
from dunnage.showing.figures import CityMap, Flows, Picture
from dunnage.showing.fleets import Running, plan_page, settlement_page, wait_picture
from dunnage.tables.dataset import load
from dunnage.tables.gtfs import load_city
from dunnage.text import percent, percent_at_most
from dunnage_demo import story

HOURS = ("07:00", "09:00")
MAX_WAIT, SHUTTLE_HOUR = 180.0, 60.0
CERTIFICATE, SETTLEMENT, AUDIT = "release/certificate.json", "settlement/settlement.json", "audit/audit.json"
PROOF = "proof.json"
FAR_OFF = 0.3  # relative error at which a fleet is far too large or too small
LAPLACE = "laplace"  # names of the comparison: a fleet on counts with plain noise, which is not published
WRITTEN = {
    *("city", "trips.csv", "trips.toml", "dunnage-ledger.sqlite", "release", "release.key.parquet", "plan"),
    *("settlement", "audit", "frontier", "frontier.partial", "laplace.toml", "laplace", "laplace.key.parquet"),
    *("laplace-plan", "laplace-settlement", "proof.json", "figures.json"),
    *("release.unplanned.csv", "laplace.unplanned.csv"),
}


class _FleetRun(NamedTuple):
    release: Release
    plan: FleetPlan
    done: FleetSettlement


def tell_riders(folder: Path, *, quick: bool, tell: story.Progress) -> story.Story:
    tell("riders: generating city and trips")
    generate_city(CitySetting(stops=40 if quick else 60, zones=3), folder / "city")
    trips = TripSetting(size=2_000 if quick else None, window=HOURS, level="stop")
    source, policy = generate_city_trips(trips, folder / "city", folder / "trips.csv", seed=story.SEED)
    # Change the starter policy to protect whole riders: at most two trips of each are counted.
    bound = '[contribution]\nperson = "card"\nmax = 2\nper = "period"\n\n[trip]'
    starter = re.sub(r'protects = "trip".*', 'protects = "rider"', policy.read_text("utf-8")).replace("[trip]", bound)
    policy.write_text(starter, encoding="utf-8")
    # The comparison has only noise on every cell, at the same epsilon.
    plain_noise = starter.replace(f'"{ConstrainedCounts.name}"', f'"{NoisyCounts.name}"')
    story.write_text(folder / f"{LAPLACE}.toml", re.sub(r"features = .*\n", "", plain_noise))
    city = load_city(folder / "city")
    run = _run(folder, city, ("trips.toml", "release", "plan", "settlement"), tell)
    names = (f"{LAPLACE}.toml", LAPLACE, f"{LAPLACE}-plan", f"{LAPLACE}-settlement")
    _run(folder, city, names, lambda stage: tell(f"{stage}, plain noise"))
    tell("riders: attacking release and plan")
    result = audit(folder / "release", load(source, policy), run.plan, city=city, shuttle_hour=SHUTTLE_HOUR)
    write_audit(result, folder / "audit")
    tell("riders: what noise in floating point gives away")
    proof = next(one for one in checks()[NoisyCounts.name](False) if one.variant == "floating-point Laplace")
    story.write_json(folder / PROOF, {"format": 1, "mechanisms": [proof.to_dict()]})
    city_folder = folder / "city"
    story.write_frontier(
        folder, source, policy, quick=quick, tell=tell, goal="shuttles", city=city_folder, max_risk="3/4"
    )
    return _chapter(story.Numbers(folder), city, run, result)


def _run(folder: Path, city: City, names: tuple[str, str, str, str], tell: story.Progress) -> _FleetRun:
    policy, release_name, plan_name, settlement_name = names
    tell("riders: publishing and verifying")
    data = load(folder / "trips.csv", folder / policy)
    # The comparison is not published, so the ledger does not count it.
    ledger = None if release_name == "release" else ":memory:"
    # Single counts would be noise at this epsilon. A fleet adds them up, and the story measures how well that works.
    release, key = publish(data, out=folder / release_name, ledger=ledger, allow_noise=True)
    story.check(folder / release_name)
    tell("riders: sizing the fleet")
    plan = size(release, city, max_wait=MAX_WAIT)
    plan.write(folder / plan_name, page=plan_page(plan, release, city))
    tell("riders: running it on the true trips")
    done = apply_fleet(plan, data, release, city, key, shuttle_hour=SHUTTLE_HOUR)
    done.write(folder / settlement_name, page=settlement_page(done, release))
    return _FleetRun(release, plan, done)


def _chapter(n: story.Numbers, city: City, run: _FleetRun, result: Audit) -> story.Story:
    _name_numbers(n)
    # The largest true and published flows, in one scale.
    pictures: dict[str, Picture] = {}
    counts, stop = run.release.data, {name: place for place, name in enumerate(city.stops)}
    origin, destination = (
        np.array([stop[name] for name in counts.column(side).to_pylist()]) for side in ("origin", "destination")
    )
    published = Flows.of(origin, destination, counts.column("count").to_numpy().astype(np.float64), len(stop))
    day = run.done.task.days[0].trips
    true = Flows.of(day.origin, day.destination, np.ones(len(day)), len(stop))
    drawing, most = CityMap(city), max(published.most, true.most) or 1.0
    for side, title, flows, name, source in (
        ("truth", "True flows", true, "largest true flow", "trips.csv"),
        ("release", "Flows as published", published, "largest published flow", "release/data.csv"),
    ):
        largest = n.compute(name, flows.most, "trips of the busiest pair of stops, both ways together", [source])
        n.name(**{f"largest_{side}": largest})
        label = f"{title}. The thickest line stands for {largest} trips, both ways together."
        pictures[side] = Picture(
            title=title,
            svg=drawing.drawn(flows, most=most, style=side, label=label),
            caption="",
            sources=[n.place(source)],
            legend=[(side, "trips"), ("stop", "stop"), ("hub", "hub")],
        )
    pictures["shuttles"] = story.bars_picture(
        "Shuttles",
        [
            ("sized on the true trips", n["needed"], "true-bar"),
            ("sized on the release", n["planned"], "bar"),
            ("sized on plain noise, same epsilon", n["laplace"], "made"),
        ],
        "Fleets that meet the target for the mean wait in every zone, as small as the search could make them.",
    )
    # Planned and true waits, if every zone with riders has a shuttle in both.
    task, fleet = run.done.task, run.done.planned
    released = planned_task(run.release, task.ground, run.plan)
    if all(fleet[zone] for side in (released, task) for zone in side.served):
        waits = wait_picture(Running.of(released, fleet), Running.of(task, fleet), target=task.max_wait)
        sources = [n.place("plan/plan.json"), n.place("settlement/events.csv")]
        pictures["waits"] = replace(waits, title="How long riders wait", sources=sources)
    tables = [one for one in count_pictures(result) if one.title.endswith("by zone")]
    for side, one in zip(("true_zones", "released_zones"), tables, strict=False):
        pictures[side] = replace(one, sources=[n.place(AUDIT)], legend=())
    pictures["attack"] = story.bars_picture(
        "How often an attacker is right",
        [
            ("by a coin toss", n["coin"], "range"),
            ("from the release, at best", n["guess"], "bar"),
            ("bound in the certificate", n["bound"], "range"),
        ],
        "Did this rider travel? The best possible test, for the rider who is easiest to detect.",
        most=1.0,
    )
    pictures["frontier"], frontier, _ = story.read_frontier(n)
    holds = True if float(n["laplace_ratio"]) > 1 + FAR_OFF and abs(float(n["ratio"]) - 1) < FAR_OFF else None
    line = (
        f"Riders    {n['trips']} trips, epsilon {n['epsilon']} per rider: {n['planned']} shuttles, {n['needed']} "
        f"without privacy; an attacker guesses correctly whether someone travelled {n['guess']} of the time"
    )
    return story.Story(n, line, pictures, {"frontier": frontier, "fleets_hold": holds})


def _name_numbers(n: story.Numbers) -> None:
    made = n.finding(AUDIT, "trips created in empty cells")
    released = n.finding(AUDIT, "error of the total", "details/released")
    epsilon = n.read("epsilon", CERTIFICATE, "/guarantee/epsilon")
    planned = n.read("shuttles planned", SETTLEMENT, "/shuttles")
    needed = n.read("shuttles needed for the true trips", SETTLEMENT, "/sized_on_truth/shuttles")
    laplace = n.read("shuttles on plain noise", f"{LAPLACE}-settlement/settlement.json", "/shuttles")
    cards = Counter(pacsv.read_csv(n.folder / "trips.csv").column("card").to_pylist())
    busiest = n.compute(
        "trips of the busiest card", max(cards.values()), "the largest number of rows with one card", ["trips.csv"]
    )
    of_busiest = float(busiest) * float(epsilon), "trips of the busiest card times epsilon", [busiest, epsilon]
    in_empty = (
        float(made) / max(float(released), 1.0),
        "trips created in empty cells / all released trips",
        [made, released],
    )
    fleet, over = max(float(needed), 1.0), "shuttles divided by those needed for the true trips"
    seconds, times = "{:.0f} s".format, "{:.2f} times".format
    n.name(
        trips=n.finding(AUDIT, "error of the total", "details/true"),
        told=released,
        made=n.compute("share of trips in empty cells", *in_empty, percent),
        epsilon=epsilon,
        most=n.read("trips of a rider that are counted", CERTIFICATE, "/measures/contribution/max"),
        cells=n.read("types of trips", CERTIFICATE, "/measures/cells"),
        before=n.read("a suspicion before", CERTIFICATE, "/meaning/odds/1/before", percent),
        after=n.read("a suspicion after, at most", CERTIFICATE, "/meaning/odds/1/at_most", percent_at_most),
        planned=planned,
        needed=needed,
        laplace=laplace,
        error=n.read("relative error of shuttles", SETTLEMENT, "/relative_error/shuttles", story.signed),
        laplace_ratio=n.compute("fleet on plain noise", float(laplace) / fleet, over, [laplace, needed], times),
        ratio=n.compute("fleet on the release", float(planned) / fleet, over, [planned, needed], times),
        target=n.read("longest mean wait", SETTLEMENT, "/max_wait_seconds", seconds),
        wait=n.read("true mean wait", SETTLEMENT, "/wait_seconds", seconds),
        said_wait=n.read("mean wait as planned", "plan/plan.json", "/operation/wait_seconds/mean", seconds),
        true_wait=n.finding(AUDIT, "wait", "value", seconds),
        ideal_wait=n.finding(AUDIT, "wait", "baseline", seconds),
        in_time=n.finding(AUDIT, "zones in time"),
        hour=n.read("cost per shuttle and hour", SETTLEMENT, "/cost/per_shuttle_hour"),
        cost=n.read("cost a day", SETTLEMENT, "/cost/planned_per_day"),
        ideal_cost=n.read("cost a day without privacy", SETTLEMENT, "/cost/needed_per_day"),
        guess=n.finding(AUDIT, "membership guess"),
        coin=n.finding(AUDIT, "membership guess", "baseline"),
        bound=n.finding(AUDIT, "membership bound"),
        busiest=busiest,
        loss=n.compute("loss of the busiest card as published", *of_busiest),
        claimed=n.read("epsilon claimed for Laplace noise", PROOF, "/mechanisms/0/claimed"),
        measured=n.read("loss of noise in floating point", PROOF, "/mechanisms/0/unbounded/1"),
        sentence=n.read("why", PROOF, "/mechanisms/0/sentence"),
    )
