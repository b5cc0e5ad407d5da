# SPDX-License-Identifier: Apache-2.0
"""The riders story: trips are counted with noise, a planner sizes a fleet, and the owner runs it on the true trips."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.csv as pacsv

from dunnage.auditing.audit import Audit, audit
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
from dunnage.pages import write_audit
from dunnage.pages.city_map import CityMap, Flows
from dunnage.pages.counts import count_pictures
from dunnage.pages.demo import Chapter, Claim, KeyFigure, Part, Picture, Told, Traced, bars_picture
from dunnage.pages.fleet_pictures import Running, wait_picture
from dunnage.pages.fleets import plan_page, settlement_page
from dunnage.planning.fleet import planned_task, size
from dunnage.planning.plan import FleetPlan
from dunnage.proving.desk import checks
from dunnage.publishing import publish
from dunnage.release import Release
from dunnage.samples import CitySetting, TripSetting, generate_city, generate_city_trips
from dunnage.settle.fleets import FleetSettlement, apply_fleet
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
    """Run the story in a folder that is there and empty."""
    tell("riders: generating city and trips")
    generate_city(CitySetting(stops=40 if quick else 60, zones=3), folder / "city")
    trips = TripSetting(size=2_000 if quick else None, window=HOURS)
    source, policy = generate_city_trips(trips, folder / "city", folder / "trips.csv", seed=SEED)
    starter = _for_riders(policy.read_text("utf-8"))
    policy.write_text(starter, encoding="utf-8")
    write_text(folder / f"{LAPLACE}.toml", _with_plain_noise(starter))
    city = load_city(folder / "city")
    run = _sized(folder, city, ("trips.toml", "release", "plan", "settlement"), tell)
    names = (f"{LAPLACE}.toml", LAPLACE, f"{LAPLACE}-plan", f"{LAPLACE}-settlement")
    _sized(folder, city, names, lambda stage: tell(f"{stage}, plain noise"))
    tell("riders: attacking release and plan")
    found = audit(folder / "release", load(source, policy), run.plan, city=city, shuttle_hour=SHUTTLE_HOUR)
    write_audit(found, folder / "audit")
    tell("riders: what noise in floating point gives away")
    _write_proof(folder)
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


def _write_proof(folder: Path) -> None:
    """Keep what the proof desk finds of noise that is drawn in floating point."""
    found = next(one for one in checks()["noisy-counts"](False) if one.variant == "floating-point Laplace")
    write_json(folder / PROOF, {"format": 1, "mechanisms": [found.to_dict()]})


def _for_riders(policy: str) -> str:
    """Let a starter policy protect whole riders: at most two trips of each are counted."""
    bound = '[contribution]\nperson = "card"\nmax = 2\nper = "period"\n\n[trip]'
    return re.sub(r'protects = "trip".*', 'protects = "rider"', policy).replace("[trip]", bound)


def _with_plain_noise(policy: str) -> str:
    """Take noise on every cell, and nothing else, at the same epsilon."""
    return re.sub(r"features = .*\n", "", policy.replace('"constrained-counts"', '"noisy-counts"'))


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
    trips = numbers.finding(AUDIT, "error of the total", "details/true")
    epsilon = numbers.read("epsilon", CERTIFICATE, "/guarantee/epsilon")
    most = numbers.read("trips of a rider that are counted", CERTIFICATE, "/measures/contribution/max")
    planned = numbers.read("shuttles planned", SETTLEMENT, "/shuttles")
    needed = numbers.read("shuttles that the true trips need", SETTLEMENT, "/sized_on_truth/shuttles")
    error = numbers.read("shuttles more or fewer", SETTLEMENT, "/relative_error/shuttles", signed)
    wait = numbers.read("true mean wait", SETTLEMENT, "/wait_seconds", seconds)
    guess = numbers.finding(AUDIT, "membership guess")
    coin = numbers.finding(AUDIT, "membership guess", "baseline")
    target = numbers.read("longest mean wait", SETTLEMENT, "/max_wait_seconds", seconds)
    chapter = Chapter(
        name=NAME,
        title="A shuttle fleet for riders nobody can point at",
        lead=Told(
            "A transit operator publishes how many trips go from where to where in each half-hour of a morning, "
            "{trips} in all. A planner sizes a fleet of shuttles on the counts, so that riders wait at most {target} "
            "on average in each zone; the operator runs it on the true trips.",
            trips=trips,
            target=target,
        ),
        tile=(
            planned,
            Told(
                "shuttles planned, where the true trips need {needed}; riders then wait {wait}",
                needed=needed,
                wait=wait,
            ),
        ),
        figures=[
            KeyFigure(name="trips", value=trips, note=Told("of a morning")),
            KeyFigure(
                name="epsilon", value=epsilon, note=Told("for a whole rider, {most} trips counted at most", most=most)
            ),
            KeyFigure(name="shuttles, no privacy", value=needed, note=Told("sized on the true trips")),
            KeyFigure(name="shuttles, private", value=planned, note=Told("{error} against those", error=error)),
            KeyFigure(name="true wait", value=wait, note=Told("on average, target {target} a zone", target=target)),
            KeyFigure(name="rider guessed", value=guess, note=Told("at best, a coin gets {coin}", coin=coin)),
        ],
        parts=[
            _protected(numbers, city, run),
            _cost(numbers, run, found),
            _attacked(numbers),
            frontier_part(
                numbers,
                cost="of the shuttles too many or missing",
                risk="whether somebody rode is guessed, by the certificate's bound, with",
            ),
            _claims(numbers, epsilon, most),
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
    line = Told(
        "Riders    {trips} trips, epsilon {epsilon} a rider: {planned} shuttles, {needed} without privacy; whether "
        "somebody rode is guessed with {guess}",
        trips=trips,
        epsilon=epsilon,
        planned=planned,
        needed=needed,
        guess=guess,
    )
    return Story(chapter, numbers, line)


def _protected(numbers: Numbers, city: City, run: _Run) -> Part:
    before = numbers.read("a suspicion before", CERTIFICATE, "/meaning/odds/1/before", percent)
    after = numbers.read("a suspicion after, at most", CERTIFICATE, "/meaning/odds/1/at_most", percent)
    cells = numbers.read("types of trips", CERTIFICATE, "/measures/cells")
    return Part(
        title="What was protected",
        words=[
            Told(
                "Whether any one rider travelled at all that morning, with all trips of that rider together. Who "
                "suspects it with {before} suspects it with {after} at most after the release, whatever else is known. "
                "Each of {cells} types of trips got noise, whether anybody travels so or not.",
                before=before,
                after=after,
                cells=cells,
            )
        ],
        pictures=_maps(numbers, city, run),
    )


def _maps(numbers: Numbers, city: City, run: _Run) -> list[Picture]:
    """Draw the largest flows, as they are and as they were told, in one scale."""
    counts = run.release.data
    stop = {name: place for place, name in enumerate(city.stops)}
    origin, destination = (
        np.array([stop[name] for name in counts.column(side).to_pylist()]) for side in ("origin", "destination")
    )
    told = Flows.of(origin, destination, counts.column("count").to_numpy().astype(np.float64), len(stop))
    day = run.done.task.days[0].trips
    true = Flows.of(day.origin, day.destination, np.ones(len(day)), len(stop))
    drawing, most = CityMap(city), max(told.most, true.most) or 1.0
    largest = {
        "truth": numbers.compute("largest true flow", true.most, "trips of the busiest pair, both ways", ["trips.csv"]),
        "release": numbers.compute(
            "largest flow told", told.most, "trips of the busiest pair, both ways", ["release/data.csv"]
        ),
    }
    titles = {"truth": "True flows", "release": "Flows as published"}
    found = []
    for side, flows, source in (("truth", true, "trips.csv"), ("release", told, "release/data.csv")):
        caption = Told("The thickest line is {most} trips, both ways.", most=largest[side])
        svg = drawing.drawn(flows, most=most, style=side, label=f"{titles[side]}. {caption}")
        legend = [(side, "trips"), ("stop", "stop"), ("hub", "hub")]
        found.append(
            Picture(title=titles[side], svg=svg, caption=caption, sources=[numbers.place(source)], legend=legend)
        )
    return found


def _cost(numbers: Numbers, run: _Run, found: Audit) -> Part:
    planned = numbers.read("shuttles planned", SETTLEMENT, "/shuttles")
    needed = numbers.read("shuttles that the true trips need", SETTLEMENT, "/sized_on_truth/shuttles")
    plain = numbers.read("shuttles on plain noise", f"{LAPLACE}-settlement/settlement.json", "/shuttles")
    ours = numbers.read("cost a day", SETTLEMENT, "/cost/planned_per_day")
    theirs = numbers.read("cost a day without privacy", SETTLEMENT, "/cost/needed_per_day")
    told = numbers.finding(AUDIT, "error of the total", "details/released")
    made = numbers.compute(
        "share of trips in empty cells",
        _share(numbers.finding(AUDIT, "trips created in empty cells"), told),
        "trips created in empty cells over all trips told",
        [numbers.finding(AUDIT, "trips created in empty cells"), told],
        percent,
    )
    hour = numbers.read("cost of a shuttle and hour", SETTLEMENT, "/cost/per_shuttle_hour")
    bars = bars_picture(
        "Shuttles",
        [
            ("the true trips need", needed, "true-bar"),
            ("sized on the release", planned, "bar"),
            ("sized on plain noise, same epsilon", plain, "made"),
        ],
        Told("Smallest fleets found that keep every zone's mean wait within its target."),
    )
    return Part(
        title="What it cost",
        words=[
            Told(
                "{planned} shuttles were planned; the same method finds {needed} on the true trips. At {hour} for a "
                "shuttle and hour that is {ours} a day instead of {theirs}. Sums by zone, mode and half-hour are "
                "nearly right, and they decide the fleet. Single counts are not: of {told} trips told, {made} are of "
                "types that nobody travelled.",
                planned=planned,
                needed=needed,
                hour=hour,
                ours=ours,
                theirs=theirs,
                told=told,
                made=made,
            ),
            _waited(numbers),
        ],
        pictures=[bars, *_waits(numbers, run), *_flow_tables(numbers, found)],
    )


def _waited(numbers: Numbers) -> Told:
    """Say how long riders wait: a fleet that is too small is cheap, and its riders pay."""
    wait, ideal = (numbers.finding(AUDIT, "wait", part, seconds) for part in ("value", "baseline"))
    in_time = numbers.finding(AUDIT, "zones in time")
    return Told(
        "Fleet and wait belong together: a fleet that is too small is cheap, and its riders wait. With the planned one "
        "the true riders wait {wait} on average, and {in_time} of the zones keep to the target; with the needed one "
        "{ideal}.",
        wait=wait,
        in_time=in_time,
        ideal=ideal,
    )


def _share(part: Traced, whole: Traced) -> float:
    return float(part.value) / max(float(whole.value), 1.0)


def _waits(numbers: Numbers, run: _Run) -> list[Picture]:
    """Draw how long riders wait, as planned and in truth, if every zone with riders has a shuttle in both."""
    told = planned_task(run.release, run.done.task.ground, run.plan)
    fleet = run.done.planned
    if not all(fleet[zone] for task in (told, run.done.task) for zone in task.served):
        return []
    expected, really = (Running.of(task, fleet) for task in (told, run.done.task))
    drawn = wait_picture(expected, really, target=run.done.task.max_wait)
    said = numbers.read("mean wait as planned", "plan/plan.json", "/operation/wait_seconds/mean", seconds)
    wait = numbers.read("true mean wait", SETTLEMENT, "/wait_seconds", seconds)
    shown = Picture(
        title="How long riders wait",
        svg=drawn["svg"],
        caption=Told("Planned for a mean of {said}; the true riders wait {wait}.", said=said, wait=wait),
        sources=[numbers.place("plan/plan.json"), numbers.place("settlement/events.csv")],
        legend=drawn["legend"],
    )
    return [shown]


def _flow_tables(numbers: Numbers, found: Audit) -> list[Picture]:
    """Show trips by zone, true and released."""
    tables = [one for one in count_pictures(found) if one["title"].endswith("by zone")]
    captions = ("True trips from zone (rows) to zone (columns).", "The same as published.")
    return [
        Picture(title=one["title"], svg=one["svg"], caption=Told(words), sources=[numbers.place(AUDIT)])
        for one, words in zip(tables, captions, strict=False)
    ]


def _attacked(numbers: Numbers) -> Part:
    coin = numbers.finding(AUDIT, "membership guess", "baseline")
    guess = numbers.finding(AUDIT, "membership guess")
    bound = numbers.finding(AUDIT, "membership bound")
    return Part(
        title="What an attacker got",
        words=[
            Told(
                "Somebody who knows every trip of that morning but those of one rider, and sees even the noise before "
                "it was smoothed, guesses whether that rider travelled right with {guess}. A coin gets {coin}, and "
                "more than {bound} is impossible, proved.",
                guess=guess,
                coin=coin,
                bound=bound,
            )
        ],
        pictures=[
            bars_picture(
                "How often the attacker is right",
                [
                    ("by a coin", coin, "range"),
                    ("from the release, at best", guess, "bar"),
                    ("bound of the certificate", bound, "range"),
                ],
                Told("Did this rider travel? The best possible test, against the rider who is easiest to see."),
                most=1.0,
            )
        ],
    )


def _claims(numbers: Numbers, epsilon: Traced, most: Traced) -> Part:
    paper = "Fioretto, Lee and Van Hentenryck, 2018"
    return Part(
        title="What the paper claimed, and what is true",
        claims=[
            _fleet_claim(numbers, paper),
            _rider_claim(numbers, paper, epsilon, most),
            _noise_claim(numbers, paper),
        ],
    )


def _fleet_claim(numbers: Numbers, paper: str) -> Claim:
    needed = numbers.read("shuttles that the true trips need", SETTLEMENT, "/sized_on_truth/shuttles")
    planned = numbers.read("shuttles planned", SETTLEMENT, "/shuttles")
    plain = numbers.read("shuttles on plain noise", f"{LAPLACE}-settlement/settlement.json", "/shuttles")
    how = "shuttles over those that the true trips need"
    ratio = numbers.compute("fleet on plain noise", _share(plain, needed), how, [plain, needed], times)
    ours = numbers.compute("fleet on the release", _share(planned, needed), how, [planned, needed], times)
    return Claim(
        paper=paper,
        claimed=Told("Plain noise makes fleets far too large; counts made consistent with sums do not."),
        found=Told(
            "Rounded Laplace noise at the same epsilon asks for {ratio} the shuttles that are needed, for people who "
            "do not exist; constrained counts for {ours}.",
            ratio=ratio,
            ours=ours,
        ),
        holds=True if float(ratio.value) > 1 + FAR_OFF and abs(float(ours.value) - 1) < FAR_OFF else None,
    )


def _rider_claim(numbers: Numbers, paper: str, epsilon: Traced, most: Traced) -> Claim:
    cards = pacsv.read_csv(numbers.folder / "trips.csv").column("card").to_pylist()
    busiest = numbers.compute(
        "trips of the busiest card", max(Counter(cards).values()), "most rows with one card", ["trips.csv"]
    )
    loss = numbers.compute(
        "loss of the busiest card as published",
        float(busiest.value) * float(epsilon.value),
        "trips of the busiest card times epsilon",
        [busiest, epsilon],
    )
    return Claim(
        paper=paper,
        claimed=Told("Epsilon {epsilon} protects the people whose trips are counted.", epsilon=epsilon),
        found=Told(
            "The paper's epsilon is for one trip. The busiest card here made {busiest} trips that morning and would "
            "lose {loss} in that form. Here whole riders are protected: {most} trips of each count at most, and the "
            "noise is larger for it.",
            busiest=busiest,
            loss=loss,
            most=most,
        ),
        holds=None,
    )


def _noise_claim(numbers: Numbers, paper: str) -> Claim:
    claimed = numbers.read("epsilon claimed for Laplace noise", PROOF, "/mechanisms/0/claimed")
    found = numbers.read("loss of noise in floating point", PROOF, "/mechanisms/0/measured")
    sentence = numbers.read("why", PROOF, "/mechanisms/0/sentence")
    return Claim(
        paper=paper,
        claimed=Told("Laplace noise on a count keeps epsilon, {claimed} say.", claimed=claimed),
        found=Told(
            "On paper. Drawn in floating point, as programs do, its loss is {found}. {sentence} Here noise is drawn in "
            "whole trips, exactly.",
            found=found,
            sentence=sentence,
        ),
        holds=None,
    )
