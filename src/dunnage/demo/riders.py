# SPDX-License-Identifier: Apache-2.0
"""The riders story: trips are counted with noise, a planner sizes a fleet, and the owner runs it on the true trips."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow.csv as pacsv

from dunnage.auditing.run import Audit, audit
from dunnage.city import City
from dunnage.demo.story import (
    SEED,
    Numbers,
    Progress,
    Story,
    check,
    frontier_part,
    seconds,
    signed,
    times,
    write_frontier,
    write_json,
    write_text,
)
from dunnage.gtfs import load_city
from dunnage.io import load
from dunnage.mechanisms.constrained_counts import ConstrainedCounts
from dunnage.mechanisms.noisy_counts import NoisyCounts
from dunnage.pages import write_audit
from dunnage.pages.city_map import CityMap, Flows
from dunnage.pages.counts import count_pictures
from dunnage.pages.demo import Chapter, Claim, Part, Told, Traced, bars_picture
from dunnage.pages.fleet_pictures import Running, wait_picture
from dunnage.pages.fleets import plan_page, settlement_page
from dunnage.planning.fleet import planned_task, size
from dunnage.planning.plan import FleetPlan
from dunnage.proving.desk import checks
from dunnage.publishing import publish
from dunnage.release import Release
from dunnage.samples import CitySetting, TripSetting, generate_city, generate_city_trips
from dunnage.settle.fleets import FleetSettlement, apply_fleet
from dunnage.svg import Picture
from dunnage.text import percent

NAME = "riders"
HOURS = ("07:00", "09:00")
MAX_WAIT, SHUTTLE_HOUR = 180.0, 60.0
CERTIFICATE, SETTLEMENT, AUDIT = "release/certificate.json", "settlement/settlement.json", "audit/audit.json"
PROOF = "proof.json"
FAR_OFF = 0.3
"""By what part of the needed fleet another is far too large, or too small."""
LAPLACE = "laplace"
"""What the fleet would be on counts with plain noise; a comparison that is handed to nobody."""
WRITTEN = frozenset(
    {
        "city",
        "trips.csv",
        "trips.toml",
        "dunnage-ledger.sqlite",
        "release",
        "release.key.parquet",
        "plan",
        "settlement",
        "audit",
        "frontier",
        "frontier.partial",
        "laplace.toml",
        "laplace",
        "laplace.key.parquet",
        "laplace-plan",
        "laplace-settlement",
        "proof.json",
        "figures.json",
    }
)


@dataclass(frozen=True, eq=False)
class _Run:
    """A release of counts, the fleet sized on it, and what became of that."""

    release: Release
    plan: FleetPlan
    done: FleetSettlement


def tell_riders(folder: Path, *, quick: bool, tell: Progress) -> Story:
    tell("riders: generating city and trips")
    generate_city(CitySetting(stops=40 if quick else 60, zones=3), folder / "city")
    trips = TripSetting(size=2_000 if quick else None, window=HOURS)
    source, policy = generate_city_trips(trips, folder / "city", folder / "trips.csv", seed=SEED)
    # The starter policy is to protect whole riders: at most two trips of each are counted.
    bound = '[contribution]\nperson = "card"\nmax = 2\nper = "period"\n\n[trip]'
    starter = re.sub(r'protects = "trip".*', 'protects = "rider"', policy.read_text("utf-8")).replace("[trip]", bound)
    policy.write_text(starter, encoding="utf-8")
    # The comparison has noise on every cell, and nothing else, at the same epsilon.
    plain_noise = starter.replace(f'"{ConstrainedCounts.name}"', f'"{NoisyCounts.name}"')
    write_text(folder / f"{LAPLACE}.toml", re.sub(r"features = .*\n", "", plain_noise))
    city = load_city(folder / "city")
    run = _sized(folder, city, ("trips.toml", "release", "plan", "settlement"), tell)
    names = (f"{LAPLACE}.toml", LAPLACE, f"{LAPLACE}-plan", f"{LAPLACE}-settlement")
    _sized(folder, city, names, lambda stage: tell(f"{stage}, plain noise"))
    tell("riders: attacking release and plan")
    found = audit(folder / "release", load(source, policy), run.plan, city=city, shuttle_hour=SHUTTLE_HOUR)
    write_audit(found, folder / "audit")
    tell("riders: what noise in floating point gives away")
    desk = checks()[NoisyCounts.name](False)
    proof = next(one for one in desk if one.variant == "floating-point Laplace")
    write_json(folder / PROOF, {"format": 1, "mechanisms": [proof.to_dict()]})
    write_frontier(
        folder,
        source,
        policy,
        goal="shuttles",
        city=folder / "city",
        max_risk="3/4",
        quick=quick,
        tell=lambda stage: tell(f"riders: frontier, {stage}"),
    )
    return _told(Numbers(folder), city, run, found)


def _sized(folder: Path, city: City, names: tuple[str, str, str, str], tell: Progress) -> _Run:
    """Publish, verify, size a fleet and run it; everything is written under these names."""
    policy, release_name, plan_name, settlement_name = names
    tell("riders: publishing and verifying")
    data = load(folder / "trips.csv", folder / policy)
    # The comparison is not handed out, so that the ledger does not count it.
    ledger = None if release_name == "release" else ":memory:"
    release, key = publish(data, out=folder / release_name, ledger=ledger)
    check(folder / release_name)
    tell("riders: sizing the fleet")
    plan = size(release, city, max_wait=MAX_WAIT)
    plan.write(folder / plan_name, page=plan_page(plan, release, city))
    tell("riders: running it on the true trips")
    done = apply_fleet(plan, data, release, city, key, shuttle_hour=SHUTTLE_HOUR)
    done.write(folder / settlement_name, page=settlement_page(done, release))
    return _Run(release, plan, done)


# The chapter


def _told(numbers: Numbers, city: City, run: _Run, found: Audit) -> Story:
    _name_numbers(numbers)
    figures = [
        ("trips", "trips", "of a morning"),
        ("epsilon", "epsilon", "for a whole rider, {most} trips counted at most"),
        ("shuttles, no privacy", "needed", "sized on the true trips"),
        ("shuttles, private", "planned", "{error} against those"),
        ("true wait", "wait", "on average, target {target} a zone"),
        ("rider guessed", "guess", "at best, a coin gets {coin}"),
    ]
    chapter = Chapter(
        name=NAME,
        title="A shuttle fleet for riders nobody can point at",
        lead=numbers.say(
            "A transit operator publishes how many trips go from where to where in each half-hour of a morning, "
            "{trips} in all. A planner sizes a fleet of shuttles on the counts, so that riders wait at most {target} "
            "on average in each zone; the operator runs it on the true trips."
        ),
        tile=(
            numbers["planned"],
            numbers.say("shuttles planned, where the true trips need {needed}; riders then wait {wait}"),
        ),
        figures=[numbers.key_figure(*figure) for figure in figures],
        parts=[
            _protected(numbers, city, run),
            _cost(numbers, run, found),
            _attacked(numbers),
            frontier_part(
                numbers,
                cost="of the shuttles too many or missing",
                risk="whether somebody rode is guessed, by the certificate's bound, with",
            ),
            _claims(numbers),
        ],
        links=[
            ("Plan", "riders/plan/plan.html"),
            ("The fleet on the true trips", "riders/settlement/settlement.html"),
            ("Audit", "riders/audit/audit.html"),
            ("Sign-off", "riders/audit/sign-off.html"),
            ("Frontier", "riders/frontier/frontier.html"),
            ("Certificate", "riders/release/certificate.json"),
            ("The fleet on plain noise", "riders/laplace-settlement/settlement.html"),
        ],
    )
    line = numbers.say(
        "Riders    {trips} trips, epsilon {epsilon} a rider: {planned} shuttles, {needed} without privacy; whether "
        "somebody rode is guessed with {guess}"
    )
    return Story(chapter, numbers, line)


def _name_numbers(numbers: Numbers) -> None:
    """Read every number of the chapter, by the name that its sentences use."""
    made = numbers.finding(AUDIT, "trips created in empty cells")
    told = numbers.finding(AUDIT, "error of the total", "details/released")
    epsilon = numbers.read("epsilon", CERTIFICATE, "/guarantee/epsilon")
    planned = numbers.read("shuttles planned", SETTLEMENT, "/shuttles")
    needed = numbers.read("shuttles that the true trips need", SETTLEMENT, "/sized_on_truth/shuttles")
    laplace = numbers.read("shuttles on plain noise", f"{LAPLACE}-settlement/settlement.json", "/shuttles")
    cards = Counter(pacsv.read_csv(numbers.folder / "trips.csv").column("card").to_pylist())
    busiest = numbers.compute(
        "trips of the busiest card", max(cards.values()), "most rows with one card", ["trips.csv"]
    )
    ratio = "shuttles over those that the true trips need"
    numbers.name(
        trips=numbers.finding(AUDIT, "error of the total", "details/true"),
        told=told,
        made=numbers.compute(
            "share of trips in empty cells",
            _share(made, told),
            "trips created in empty cells over all trips told",
            [made, told],
            percent,
        ),
        epsilon=epsilon,
        most=numbers.read("trips of a rider that are counted", CERTIFICATE, "/measures/contribution/max"),
        cells=numbers.read("types of trips", CERTIFICATE, "/measures/cells"),
        before=numbers.read("a suspicion before", CERTIFICATE, "/meaning/odds/1/before", percent),
        after=numbers.read("a suspicion after, at most", CERTIFICATE, "/meaning/odds/1/at_most", percent),
        planned=planned,
        needed=needed,
        laplace=laplace,
        error=numbers.read("shuttles more or fewer", SETTLEMENT, "/relative_error/shuttles", signed),
        laplace_ratio=numbers.compute("fleet on plain noise", _share(laplace, needed), ratio, [laplace, needed], times),
        ratio=numbers.compute("fleet on the release", _share(planned, needed), ratio, [planned, needed], times),
        target=numbers.read("longest mean wait", SETTLEMENT, "/max_wait_seconds", seconds),
        wait=numbers.read("true mean wait", SETTLEMENT, "/wait_seconds", seconds),
        said_wait=numbers.read("mean wait as planned", "plan/plan.json", "/operation/wait_seconds/mean", seconds),
        true_wait=numbers.finding(AUDIT, "wait", "value", seconds),
        ideal_wait=numbers.finding(AUDIT, "wait", "baseline", seconds),
        in_time=numbers.finding(AUDIT, "zones in time"),
        hour=numbers.read("cost of a shuttle and hour", SETTLEMENT, "/cost/per_shuttle_hour"),
        cost=numbers.read("cost a day", SETTLEMENT, "/cost/planned_per_day"),
        ideal_cost=numbers.read("cost a day without privacy", SETTLEMENT, "/cost/needed_per_day"),
        guess=numbers.finding(AUDIT, "membership guess"),
        coin=numbers.finding(AUDIT, "membership guess", "baseline"),
        bound=numbers.finding(AUDIT, "membership bound"),
        busiest=busiest,
        loss=numbers.compute(
            "loss of the busiest card as published",
            float(busiest.value) * float(epsilon.value),
            "trips of the busiest card times epsilon",
            [busiest, epsilon],
        ),
        claimed=numbers.read("epsilon claimed for Laplace noise", PROOF, "/mechanisms/0/claimed"),
        measured=numbers.read("loss of noise in floating point", PROOF, "/mechanisms/0/measured"),
        sentence=numbers.read("why", PROOF, "/mechanisms/0/sentence"),
    )


def _share(part: Traced, whole: Traced) -> float:
    return float(part.value) / max(float(whole.value), 1.0)


def _protected(numbers: Numbers, city: City, run: _Run) -> Part:
    """Draw the largest flows besides, as they are and as they were told, in one scale."""
    words = numbers.say(
        "Whether any one rider travelled at all that morning, with all trips of that rider together. Who suspects it "
        "with {before} suspects it with {after} at most after the release, whatever else is known. Each of {cells} "
        "types of trips got noise, whether anybody travels so or not."
    )
    counts, stop = run.release.data, {name: place for place, name in enumerate(city.stops)}
    origin, destination = (
        np.array([stop[name] for name in counts.column(side).to_pylist()]) for side in ("origin", "destination")
    )
    told = Flows.of(origin, destination, counts.column("count").to_numpy().astype(np.float64), len(stop))
    day = run.done.task.days[0].trips
    true = Flows.of(day.origin, day.destination, np.ones(len(day)), len(stop))
    drawing, most = CityMap(city), max(told.most, true.most) or 1.0
    pictures = []
    for side, title, flows, name, source in (
        ("truth", "True flows", true, "largest true flow", "trips.csv"),
        ("release", "Flows as published", told, "largest flow told", "release/data.csv"),
    ):
        largest = numbers.compute(name, flows.most, "trips of the busiest pair, both ways", [source])
        caption = Told("The thickest line is {most} trips, both ways.", most=largest)
        pictures.append(
            Picture(
                title=title,
                svg=drawing.drawn(flows, most=most, style=side, label=f"{title}. {caption}"),
                caption=caption,
                sources=[numbers.place(source)],
                legend=[(side, "trips"), ("stop", "stop"), ("hub", "hub")],
            )
        )
    return Part(title="What was protected", words=[words], pictures=pictures)


def _cost(numbers: Numbers, run: _Run, found: Audit) -> Part:
    pictures = [
        bars_picture(
            "Shuttles",
            [
                ("the true trips need", numbers["needed"], "true-bar"),
                ("sized on the release", numbers["planned"], "bar"),
                ("sized on plain noise, same epsilon", numbers["laplace"], "made"),
            ],
            Told("Smallest fleets found that keep every zone's mean wait within its target."),
        )
    ]
    # How long riders wait, as planned and in truth, if every zone with riders has a shuttle in both.
    true, fleet = run.done.task, run.done.planned
    told = planned_task(run.release, true.ground, run.plan)
    if all(fleet[zone] for task in (told, true) for zone in task.served):
        waits = wait_picture(Running.of(told, fleet), Running.of(true, fleet), target=true.max_wait)
        caption = numbers.say("Planned for a mean of {said_wait}; the true riders wait {wait}.")
        sources = [numbers.place("plan/plan.json"), numbers.place("settlement/events.csv")]
        pictures.append(replace(waits, title="How long riders wait", caption=caption, sources=sources))
    tables = [one for one in count_pictures(found) if one.title.endswith("by zone")]
    captions = ("True trips from zone (rows) to zone (columns).", "The same as published.")
    pictures += [
        replace(one, caption=Told(words), sources=[numbers.place(AUDIT)], legend=())
        for one, words in zip(tables, captions, strict=False)
    ]
    words = (
        "{planned} shuttles were planned; the same method finds {needed} on the true trips. At {hour} for a shuttle "
        "and hour that is {cost} a day instead of {ideal_cost}. Sums by zone, mode and half-hour are nearly right, and "
        "they decide the fleet. Single counts are not: of {told} trips told, {made} are of types that nobody "
        "travelled.",
        "Fleet and wait belong together: a fleet that is too small is cheap, and its riders wait. With the planned one "
        "the true riders wait {true_wait} on average, and {in_time} of the zones keep to the target; with the needed "
        "one {ideal_wait}.",
    )
    return Part(title="What it cost", words=[numbers.say(sentence) for sentence in words], pictures=pictures)


def _attacked(numbers: Numbers) -> Part:
    words = numbers.say(
        "Somebody who knows every trip of that morning but those of one rider, and sees even the noise before it was "
        "smoothed, guesses whether that rider travelled right with {guess}. A coin gets {coin}, and more than {bound} "
        "is impossible, proved."
    )
    bars = bars_picture(
        "How often the attacker is right",
        [
            ("by a coin", numbers["coin"], "range"),
            ("from the release, at best", numbers["guess"], "bar"),
            ("bound of the certificate", numbers["bound"], "range"),
        ],
        Told("Did this rider travel? The best possible test, against the rider who is easiest to see."),
        most=1.0,
    )
    return Part(title="What an attacker got", words=[words], pictures=[bars])


def _claims(numbers: Numbers) -> Part:
    paper = "Fioretto, Lee and Van Hentenryck, 2018"
    plain_ratio, ratio = (float(numbers[name].value) for name in ("laplace_ratio", "ratio"))
    return Part(
        title="What the paper claimed, and what is true",
        claims=[
            Claim(
                paper=paper,
                claimed=Told("Plain noise makes fleets far too large; counts made consistent with sums do not."),
                found=numbers.say(
                    "Rounded Laplace noise at the same epsilon asks for {laplace_ratio} the shuttles that are needed, "
                    "for people who do not exist; constrained counts for {ratio}."
                ),
                holds=True if plain_ratio > 1 + FAR_OFF and abs(ratio - 1) < FAR_OFF else None,
            ),
            Claim(
                paper=paper,
                claimed=numbers.say("Epsilon {epsilon} protects the people whose trips are counted."),
                found=numbers.say(
                    "The paper's epsilon is for one trip. The busiest card here made {busiest} trips that morning and "
                    "would lose {loss} in that form. Here whole riders are protected: {most} trips of each count at "
                    "most, and the noise is larger for it."
                ),
                holds=None,
            ),
            Claim(
                paper=paper,
                claimed=numbers.say("Laplace noise on a count keeps epsilon, {claimed} say."),
                found=numbers.say(
                    "On paper. Drawn in floating point, as programs do, its loss is {measured}. {sentence} Here noise "
                    "is drawn in whole trips, exactly."
                ),
                holds=None,
            ),
        ],
    )
