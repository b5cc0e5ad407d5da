# SPDX-License-Identifier: Apache-2.0
"""The carriers story: trucks hide what they measure before they send it, and a platform estimates means and a map."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

from dunnage.auditing.carriers import Fleet
from dunnage.auditing.run import Audit, audit
from dunnage.demo.story import FILE as FRONTIER
from dunnage.demo.story import (
    SEED,
    Numbers,
    Progress,
    Story,
    advised,
    check,
    frontier_part,
    write_frontier,
    write_json,
    write_text,
)
from dunnage.devices import collect, simulate
from dunnage.local.estimate import estimate, write_estimates
from dunnage.local.location import LocalLocation
from dunnage.local.oracles import enumerated_loss
from dunnage.local.subjects import Grid
from dunnage.local.tasks import read_task
from dunnage.pages import write_audit
from dunnage.pages.carriers import carrier_pictures
from dunnage.pages.demo import Chapter, Claim, Part, Told, bars_picture
from dunnage.samples import CITY_BOX, PositionSetting, TelemetrySetting, generate_positions, generate_telemetry
from dunnage.text import percent

NAME = "carriers"
NUMBERS, PLACES = "telemetry", "positions"
SOURCES = {NUMBERS: "telemetry.csv", PLACES: "positions.parquet"}
WRITTEN = frozenset(
    {
        *SOURCES.values(),
        *(f"{name}{ending}" for name in SOURCES for ending in (".toml", "-task.json", ".jsonl", "-audit")),
        *SOURCES,
        "frontier",
        "frontier.partial",
        "proof.json",
        "figures.json",
    }
)
CERTIFICATES = {name: f"{name}/certificate.json" for name in SOURCES}
AUDITS = {name: f"{name}-audit/audit.json" for name in SOURCES}
PROOF = "proof.json"

_HEAD = """dataset = "{name}"
protects = "vehicle"

[attributes.vehicle]
role = "identifier"        # stays on the device: no report names it

[attributes.time]
role = "drop"              # says which reading a slot reports

[tiers]                    # public: a truck's tier is chosen without looking at what it measures
basic = 2.0
strict = 1.0

[schedule]
time = "time"
slots_per_day = 1          # one moment a day, drawn before the day begins
slot_minutes = {minutes}

[allowance]                # what all reports of one truck may give away together
lifetime = 60
"""
_NUMBERS = """
[attributes.speed]
role = "quasi-identifier"
kind = "numeric"
domain = [0, 130]
unit = "km/h"

[attributes.load]
role = "quasi-identifier"
kind = "numeric"
domain = [0, 40]
unit = "t"

[mechanisms.telemetry]
name = "local-numeric"
"""
_PLACES = """
[attributes.place]
role = "quasi-identifier"
kind = "grid"
box = [{box}]
levels = {levels}
columns = ["lon", "lat"]

[mechanisms.places]
name = "local-location"
attributes = ["place"]
"""


@dataclass(frozen=True, eq=False)
class _Size:
    """How large the fleet is, and how fine its map can be."""

    vehicles: int
    levels: int


FULL, QUICK = (_Size(vehicles=8_000, levels=4), _Size(vehicles=1_500, levels=3))


def tell_carriers(folder: Path, *, quick: bool, tell: Progress) -> Story:
    size = QUICK if quick else FULL
    tell("carriers: generating trucks")
    generate_telemetry(TelemetrySetting(size=size.vehicles), folder / SOURCES[NUMBERS], seed=SEED)
    generate_positions(PositionSetting(size=size.vehicles), folder / SOURCES[PLACES], seed=SEED)
    box = ", ".join(f"{side:g}" for side in CITY_BOX)
    write_text(folder / f"{NUMBERS}.toml", _HEAD.format(name=NUMBERS, minutes=60) + _NUMBERS)
    write_text(
        folder / f"{PLACES}.toml", _HEAD.format(name=PLACES, minutes=5) + _PLACES.format(box=box, levels=size.levels)
    )
    found = {name: _reported(folder, name, tell) for name in SOURCES}
    tell("carriers: what published reports give away")
    _write_proof(folder)
    write_frontier(
        folder,
        folder / SOURCES[PLACES],
        folder / f"{PLACES}.toml",
        goal="error",
        max_risk="1/10",
        quick=quick,
        tell=lambda stage: tell(f"carriers: frontier, {stage}"),
    )
    return _told(Numbers(folder), found)


def _reported(folder: Path, name: str, tell: Progress) -> Audit:
    """Let every truck report, estimate from the reports, verify, and attack."""
    task = read_task(folder / f"{name}.toml")
    write_text(folder / f"{name}-task.json", task.to_json())
    tell(f"carriers: reports, {name}")
    reports = folder / f"{name}.jsonl"
    simulate(folder / SOURCES[name], task, reports, seed=SEED)
    tell(f"carriers: estimating and verifying, {name}")
    received = collect([reports], task)
    write_estimates(estimate(received.tallies, task, left_out=received.left_out), folder / name)
    check(folder / name)
    tell(f"carriers: attacking, {name}")
    fleet = Fleet.read(folder / SOURCES[name], folder / f"{name}.toml")
    found = audit(folder / name, fleet)
    write_audit(found, folder / f"{name}-audit")
    return found


def _write_proof(folder: Path) -> None:
    """Go through every report that the published form of randomised response can send from a map of four places."""
    west, south, east, north = map(Fraction, CITY_BOX)
    grid = Grid(box=(west, south, east, north), levels=2, area_levels=1)
    claimed = 1
    published = LocalLocation(grid=grid, epsilon=claimed, as_published=True)
    sound = LocalLocation(grid=grid, epsilon=claimed)
    losses = {}
    for name, mechanism in (("published", published), ("sound", sound)):
        worst = enumerated_loss(mechanism.oracle(mechanism.levels[0]))
        losses[name] = None if worst is None else float(worst)
    content = {"mechanism": published.name, "claimed": claimed, "measured": losses}
    how = "the largest logarithm of a ratio of two probabilities of one report, all reports and places gone through"
    write_json(folder / PROOF, {"format": 1, "how": how, **content})


# The chapter


def _told(numbers: Numbers, found: dict[str, Audit]) -> Story:
    _name_numbers(numbers)
    figures = [
        ("trucks", "trucks", "each with one moment a day"),
        ("epsilon", "basic", "a day; {strict} in the strict tier"),
        ("speed off by", "speed", "the mean; knowing nothing {speed_blind}"),
        ("load off by", "load", "the mean; knowing nothing {load_blind}"),
        ("a share off by", "shares", "of the map; all places alike {alike}"),
        ("parked truck found", "known_day", "after a day, by who knows the fleet; {known_month} after a month"),
    ]
    chapter = Chapter(
        name=NAME,
        title="A platform that asks trucks, and knows none of them",
        lead=numbers.say(
            "A logistics platform would like to know how fast trucks go, what they carry and where they are. Each of "
            "{trucks} trucks hides what it measures by itself, before anything leaves it; the platform sees noise, and "
            "estimates means and a map from all of it."
        ),
        tile=(
            numbers["speed_value"],
            numbers.say("mean speed, estimated from reports that hide every truck; the truth is {speed_truth}"),
        ),
        figures=[numbers.key_figure(*figure) for figure in figures],
        parts=[
            _protected(numbers),
            _cost(numbers, found),
            _attacked(numbers, found),
            frontier_part(
                numbers,
                cost="error of a share",
                risk="a parked truck is found in a day, by who knows nothing of the fleet, with",
                more=_in_trucks(numbers),
            ),
            _claims(numbers),
        ],
        links=[
            ("Audit of means", "carriers/telemetry-audit/audit.html"),
            ("Audit of the map", "carriers/positions-audit/audit.html"),
            ("Sign-off of the map", "carriers/positions-audit/sign-off.html"),
            ("Frontier", "carriers/frontier/frontier.html"),
            ("Task of the devices", "carriers/telemetry-task.json"),
            ("Certificate of means", "carriers/telemetry/certificate.json"),
            ("Certificate of the map", "carriers/positions/certificate.json"),
        ],
    )
    line = numbers.say(
        "Carriers  {trucks} trucks, epsilon {basic} or {strict} a day: mean speed {speed_value}, truth {speed_truth}; "
        "who knows the fleet finds a parked truck with {known_day} in a day, {known_month} in a month"
    )
    return Story(chapter, numbers, line)


def _name_numbers(numbers: Numbers) -> None:
    """Read every number of the chapter, by the name that its sentences use."""
    means, places = CERTIFICATES[NUMBERS], CERTIFICATES[PLACES]
    reports = [
        numbers.read(f"reports, tier {tier}", means, f"/measures/reports/telemetry/{tier}")
        for tier in ("basic", "strict")
    ]
    total = sum(int(item.value) for item in reports)
    numbers.name(
        trucks=numbers.compute("trucks", total, "reports of both tiers, one a truck", reports),
        basic=numbers.read("epsilon, basic tier", places, "/measures/loss/tiers/basic/day"),
        strict=numbers.read("epsilon, strict tier", places, "/measures/loss/tiers/strict/day"),
        lifetime=numbers.read("epsilon of a lifetime", places, "/measures/loss/lifetime"),
        before=numbers.read("a suspicion before", places, "/meaning/odds/1/before", percent),
        after=numbers.read("a suspicion after one report, at most", places, "/meaning/odds/1/at_most", percent),
        claimed=numbers.read("epsilon claimed for published response", PROOF, "/claimed"),
        published=numbers.read("epsilon that holds for published response", PROOF, "/measured/published"),
        sound=numbers.read("epsilon that holds for ours", PROOF, "/measured/sound"),
    )
    for name, unit, digits in (("speed", "km/h", 1), ("load", "t", 2)):
        shown = {
            "": ("value", f"{{:.{digits}f}} {unit}"),
            "_blind": ("baseline", f"{{:.{digits}f}} {unit}"),
            "_value": ("details/value", f"{{:.1f}} {unit}"),
            "_truth": ("details/truth", f"{{:.1f}} {unit}"),
            "_lower": ("details/lower", "{:.1f}"),
            "_upper": ("details/upper", "{:.1f}"),
        }
        for suffix, (part, form) in shown.items():
            mean = numbers.finding(AUDITS[NUMBERS], f"error of the mean ({name})", part, form.format)
            numbers.name(**{f"{name}{suffix}": mean})
    of_places = {
        "shares": ("RMSE of shares (places)", "value"),
        "alike": ("RMSE of shares (places)", "baseline"),
        "covered": ("coverage (places)", "value"),
        "moved": ("total variation distance (places)", "value"),
        "unmoved": ("total variation distance (places)", "baseline"),
        "day": ("localisation, 1 day (places)", "value"),
        "chance": ("localisation, 1 day (places)", "baseline"),
        "known_day": ("localisation, fleet known, 1 day (places)", "value"),
        "busiest": ("localisation, fleet known, 1 day (places)", "baseline"),
        "known_month": ("localisation, fleet known, 30 days (places)", "value"),
        "shift": ("localisation, every slot for 8 hours (places)", "value"),
        "ever": ("suspicion at most, lifetime", "value"),
    }
    numbers.name(**{name: numbers.finding(AUDITS[PLACES], *place) for name, place in of_places.items()})
    guess, tuples = "number guess (load)", "tuple guess (telemetry)"
    numbers.name(
        guess=numbers.finding(AUDITS[NUMBERS], guess),
        blind_guess=numbers.finding(AUDITS[NUMBERS], guess, "baseline"),
        stated=numbers.finding(AUDITS[NUMBERS], tuples, "details/true_loss"),
        really=numbers.finding(AUDITS[NUMBERS], tuples, "details/published_true_loss"),
        ours=numbers.finding(AUDITS[NUMBERS], tuples),
        theirs=numbers.finding(AUDITS[NUMBERS], tuples, "details/published", percent),
    )


def _protected(numbers: Numbers) -> Part:
    words = numbers.say(
        "What one report says of its truck, against the platform itself. Who suspects with {before} where a truck was "
        "suspects it with {after} at most when its report is in. Reports add up: the allowance on each truck ends them "
        "at epsilon {lifetime} in all, where a suspicion of one half may be {ever}."
    )
    return Part(title="What was protected", words=[words])


def _cost(numbers: Numbers, found: dict[str, Audit]) -> Part:
    means = carrier_pictures(found[NUMBERS])["utility"][-1]
    maps = [one for one in carrier_pictures(found[PLACES])["utility"] if one.title.startswith(("True", "Estimated"))]
    captions = (
        "Where trucks really are: share of the slots in each cell, north above.",
        "The same as estimated. {moved} of all trucks would have to be elsewhere to make it true; on a map where "
        "all cells are alike, {unmoved}.",
    )
    legend = [("load", "the darker, the more trucks; one scale for both maps")]
    drawn = [
        replace(one, caption=numbers.say(words), sources=[numbers.place(AUDITS[PLACES])], legend=legend)
        for one, words in zip(maps, captions, strict=True)
    ]
    across = numbers.say("Each mean with its interval, and the truth, across its public domain.")
    said = [
        f"The mean {name} comes out at {{{name}_value}}, with an interval from {{{name}_lower}} to {{{name}_upper}}; "
        f"it is {{{name}_truth}}."
        for name in ("speed", "load")
    ]
    said.append("Of the map's intervals {covered} hold the true share of their cell.")
    return Part(
        title="What it cost",
        words=[numbers.say(words) for words in said],
        pictures=[*drawn, replace(means, caption=across, sources=[numbers.place(AUDITS[NUMBERS])])],
    )


def _in_trucks(numbers: Numbers) -> list[Told]:
    """Say what the error of the frontier is in the unit of the map's error above."""
    found = advised(numbers)
    if found is None:
        return []
    error = numbers.read("cost of the advice, value", FRONTIER, f"/points/{found[1]}/cost/value", percent)
    mean = numbers.read("mean share of a place", FRONTIER, "/risk_of_chance", percent)
    share = numbers.compute(
        "error of the advice, of all trucks",
        float(error.value) * float(mean.value),
        "cost of the advice times the mean share of a place",
        [error, mean],
        percent,
    )
    words = (
        "The frontier tells errors in mean shares, the figures above in shares of all trucks: a place has {mean} of "
        "them on average, so that {error} is a share off by {share}."
    )
    return [Told(words, mean=mean, error=error, share=share)]


def _attacked(numbers: Numbers, found: dict[str, Audit]) -> Part:
    curve = carrier_pictures(found[PLACES])["attributes"][0]
    words = numbers.say(
        "The platform itself looks for one truck that stays parked. If it knows how the whole fleet is spread, after a "
        "day it finds it with {known_day}, and with {busiest} by naming the busiest place. If it knows nothing of the "
        "fleet, with {day}, by chance with {chance}. After a month it is {known_month}: one report a day hides where a "
        "truck is, not where it sleeps. Had trucks reported every five minutes, one shift would do: {shift}. How much "
        "a truck carries is guessed with {guess} by a report, with {blind_guess} without."
    )
    bars = bars_picture(
        "How often the platform finds a parked truck",
        [
            ("by the busiest place", numbers["busiest"], "range"),
            ("after a day", numbers["known_day"], "bar"),
            ("after a day, fleet not known", numbers["day"], "bar"),
            ("after a month", numbers["known_month"], "bar"),
            ("a shift, every five minutes", numbers["shift"], "made"),
        ],
        Told("Trucks of the basic tier, the easier to find; the last is what the schedule forbids."),
        most=1.0,
    )
    reports = replace(
        curve,
        title="Finding a parked truck, report by report",
        caption=Told("One report tells little; many of one place tell it."),
        sources=[numbers.place(AUDITS[PLACES])],
    )
    return Part(title="What an attacker got", words=[words], pictures=[bars, reports])


def _claims(numbers: Numbers) -> Part:
    paper = "Yao et al., 2024"
    return Part(
        title="What the paper claimed, and what is true",
        claims=[
            Claim(
                paper=paper,
                claimed=numbers.say("Randomised response on each bit of a truck's place keeps epsilon, {claimed} say."),
                found=numbers.say(
                    "Two places differ in two bits. Going through every report there can be finds epsilon {published} "
                    "where {claimed} is claimed; ours keeps {sound}."
                ),
                holds=float(numbers["published"].value) <= float(numbers["claimed"].value),
            ),
            Claim(
                paper=paper,
                claimed=numbers.say("Numbers of a truck, each hidden at epsilon {stated}, keep epsilon {stated}."),
                found=numbers.say(
                    "They add up: speed and load together lose {really}. At {stated} both are guessed at once with "
                    "{theirs} in the published form, and with {ours} in ours, which tells one of them at random."
                ),
                holds=float(numbers["really"].value) <= float(numbers["stated"].value),
            ),
        ],
    )
