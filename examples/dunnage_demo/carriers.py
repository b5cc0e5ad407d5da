# SPDX-License-Identifier: Apache-2.0
"""The carriers story: trucks add noise to their measurements, and a platform estimates means and a map."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from importlib import resources
from pathlib import Path

from dunnage.auditing.carriers import Fleet
from dunnage.auditing.run import Audit, audit
from dunnage.collecting.estimate import estimate, write_estimates
from dunnage.collecting.files import collect
from dunnage.collecting.fleet import simulate
from dunnage.collecting.tasks import read_task
from dunnage.devices.places import LocalLocation, enumerated_loss
from dunnage.devices.subjects import Grid
from dunnage.samples import CITY_BOX, PositionSetting, TelemetrySetting, generate_positions, generate_telemetry
from dunnage.showing.audit import carrier_pictures, write_audit
from dunnage.showing.figures import Picture
from dunnage.text import percent, percent_at_most
from dunnage_demo import story

NUMBERS, PLACES = "telemetry", "positions"
SOURCES = {NUMBERS: "telemetry.csv", PLACES: "positions.parquet"}
WRITTEN = {
    *(*SOURCES, *SOURCES.values(), "frontier", "frontier.partial", "proof.json", "figures.json"),
    *(f"{name}{ending}" for name in SOURCES for ending in (".toml", "-task.json", ".jsonl", "-audit")),
}
PROOF = "proof.json"


def tell_carriers(folder: Path, *, quick: bool, tell: story.Progress) -> story.Story:
    vehicles, levels = (1_500, 3) if quick else (8_000, 4)  # size of the fleet, and resolution of its map
    tell("carriers: generating trucks")
    generate_telemetry(TelemetrySetting(size=vehicles), folder / SOURCES[NUMBERS], seed=story.SEED)
    generate_positions(PositionSetting(size=vehicles), folder / SOURCES[PLACES], seed=story.SEED)
    box = ", ".join(f"{side:g}" for side in CITY_BOX)
    texts = {
        path.name: path.read_text("utf-8") for path in resources.files("dunnage_demo").joinpath("policies").iterdir()
    }
    for name, minutes in ((NUMBERS, 60), (PLACES, 5)):
        policy = (texts["head.toml"] + texts[f"{name}.toml"]).format(name=name, minutes=minutes, box=box, levels=levels)
        story.write_text(folder / f"{name}.toml", policy)
    audits = {name: _report(folder, name, tell) for name in SOURCES}
    tell("carriers: what published reports give away")
    # Every report that the published form of randomised response can send on a map of four places.
    west, south, east, north = map(Fraction, CITY_BOX)
    grid = Grid(box=(west, south, east, north), levels=2, area_levels=1)
    claimed, losses = 1, {}
    for form in ("published", "sound"):
        mechanism = LocalLocation(grid=grid, epsilon=claimed, as_published=form == "published")
        worst = enumerated_loss(mechanism.oracle(mechanism.levels[0]))
        losses[form] = None if worst is None else float(worst)
    content = {"mechanism": LocalLocation.name, "claimed": claimed, "measured": losses}
    how = "the largest logarithm of the ratio of two probabilities of a report, over all reports and pairs of places"
    story.write_json(folder / PROOF, {"format": 1, "how": how, **content})
    source = folder / SOURCES[PLACES]
    story.write_frontier(
        folder, source, folder / f"{PLACES}.toml", goal="error", max_risk="1/10", quick=quick, tell=tell
    )
    return _chapter(story.Numbers(folder), audits)


def _report(folder: Path, name: str, tell: story.Progress) -> Audit:
    task = read_task(folder / f"{name}.toml")
    story.write_text(folder / f"{name}-task.json", task.to_json())
    tell(f"carriers: reports, {name}")
    reports = folder / f"{name}.jsonl"
    simulate(folder / SOURCES[name], task, reports, seed=story.SEED)
    tell(f"carriers: estimating and verifying, {name}")
    received = collect([reports], task)
    write_estimates(estimate(received.tallies, task, left_out=received.left_out), folder / name)
    story.check(folder / name)
    tell(f"carriers: attacking, {name}")
    result = audit(folder / name, Fleet.read(folder / SOURCES[name], folder / f"{name}.toml"))
    write_audit(result, folder / f"{name}-audit")
    return result


def _chapter(n: story.Numbers, audits: dict[str, Audit]) -> story.Story:
    _name_numbers(n)
    means = carrier_pictures(audits[NUMBERS])["utility"][-1]
    of_places = carrier_pictures(audits[PLACES])
    maps = [one for one in of_places["utility"] if one.title.startswith(("True", "Estimated"))]
    sources = [n.place(f"{PLACES}-audit/audit.json")]
    legend = [("load", "darker cells have more trucks; both maps share one scale")]
    pictures: dict[str, Picture] = {
        "means": replace(means, sources=[n.place(f"{NUMBERS}-audit/audit.json")]),
        "true_map": replace(maps[0], sources=sources, legend=legend),
        "map": replace(maps[1], sources=sources, legend=legend),
        "attack": story.bars_picture(
            "How often the platform locates a parked truck",
            [
                ("naming the busiest place", n["busiest"], "range"),
                ("after a day", n["known_day"], "bar"),
                ("after a day, knowing nothing", n["day"], "bar"),
                ("after a month", n["known_month"], "bar"),
                ("a shift, report every five minutes", n["shift"], "made"),
            ],
            "Trucks of the basic tier, which are easier to locate. The schedule forbids the last case.",
            most=1.0,
        ),
        "reports": replace(
            of_places["attributes"][0], title="Locating a parked truck, report by report", sources=sources
        ),
    }
    pictures["frontier"], frontier, advice = story.read_frontier(n)
    if advice is not None:  # convert the error of the frontier to the unit of the map's error
        mean = n.read("mean share of a place", story.FRONTIER, "/risk_of_chance", percent)
        how, error = "cost of the advice times the mean share of a place", n["advice_value"]
        share = float(error) * float(mean)
        n.name(mean=mean, share=n.compute("error of the advice, of all trucks", share, how, [error, mean], percent))
    line = (
        f"Carriers  {n['trucks']} trucks, epsilon {n['basic']} or {n['strict']} a day: mean speed {n['speed_value']}, "
        f"true mean {n['speed_truth']}; someone who knows the fleet locates a parked truck {n['known_day']} of the "
        f"time after a day, {n['known_month']} after a month"
    )
    facts = {
        "frontier": frontier,
        "response_holds": float(n["published"]) <= float(n["claimed"]),
        "sums_hold": float(n["really"]) <= float(n["stated"]),
    }
    return story.Story(n, line, pictures, facts)


def _name_numbers(n: story.Numbers) -> None:
    means, places = f"{NUMBERS}/certificate.json", f"{PLACES}/certificate.json"
    reports = [
        n.read(f"reports, tier {tier}", means, f"/measures/reports/telemetry/{tier}") for tier in ("basic", "strict")
    ]
    total = sum(int(float(item)) for item in reports)
    n.name(
        trucks=n.compute("trucks", total, "reports of both tiers, one per truck", reports),
        basic=n.read("epsilon, basic tier", places, "/measures/loss/tiers/basic/day"),
        strict=n.read("epsilon, strict tier", places, "/measures/loss/tiers/strict/day"),
        lifetime=n.read("epsilon of a lifetime", places, "/measures/loss/lifetime"),
        before=n.read("a suspicion before", places, "/meaning/odds/1/before", percent),
        after=n.read("a suspicion after one report, at most", places, "/meaning/odds/1/at_most", percent_at_most),
        claimed=n.read("epsilon claimed for published response", PROOF, "/claimed"),
        published=n.read("epsilon that holds for published response", PROOF, "/measured/published"),
        sound=n.read("epsilon that holds for ours", PROOF, "/measured/sound"),
    )
    of_numbers = f"{NUMBERS}-audit/audit.json"
    for name, unit, digits in (("speed", "km/h", 1), ("load", "t", 2)):
        parts = {
            "": ("value", f"{{:.{digits}f}} {unit}"),
            "_blind": ("baseline", f"{{:.{digits}f}} {unit}"),
            "_value": ("details/value", f"{{:.1f}} {unit}"),
            "_truth": ("details/truth", f"{{:.1f}} {unit}"),
            "_lower": ("details/lower", "{:.1f}"),
            "_upper": ("details/upper", "{:.1f}"),
        }
        for suffix, (part, form) in parts.items():
            mean = n.finding(of_numbers, f"error of the mean ({name})", part, form.format)
            n.name(**{f"{name}{suffix}": mean})
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
    n.name(**{name: n.finding(f"{PLACES}-audit/audit.json", *place) for name, place in of_places.items()})
    guess, tuples = "number guess (load)", "tuple guess (telemetry)"
    n.name(
        guess=n.finding(of_numbers, guess),
        blind_guess=n.finding(of_numbers, guess, "baseline"),
        stated=n.finding(of_numbers, tuples, "details/true_loss"),
        really=n.finding(of_numbers, tuples, "details/published_true_loss"),
        ours=n.finding(of_numbers, tuples),
        theirs=n.finding(of_numbers, tuples, "details/published", percent),
    )
