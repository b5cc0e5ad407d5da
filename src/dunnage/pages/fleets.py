# SPDX-License-Identifier: Apache-2.0
"""Pages of fleets: ``plan.html``, public, of a fleet that was sized; ``settlement.html``, private, of what it does.

All figures follow from simulated days. That of a plan needs release and city alone; that of a settlement puts the true
trips beside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dunnage._version import __version__
from dunnage.city import City
from dunnage.kinds.counts import CountsKind
from dunnage.pages.city_map import CityMap, Flows
from dunnage.pages.common import Figure, render
from dunnage.pages.fleet_pictures import (
    Curves,
    Running,
    curve_picture,
    fleets_around,
    hours_picture,
    modes_picture,
    wait_picture,
)
from dunnage.planning.demand import Ground
from dunnage.planning.fleet import EXPANSIONS, FleetTask, demand_facts, planned_task, released_task
from dunnage.planning.plan import FleetPlan
from dunnage.release import Release
from dunnage.routes import Routes
from dunnage.settle.fleets import FleetSettlement
from dunnage.svg import Picture
from dunnage.text import percent, several

MOST_CURVES = 12
"""Zones whose waits are drawn, those with most rides first."""
PUBLIC_SAYS = "Public: made from the release and the city alone."
PRIVATE_SAYS = "Owner's view: shows true trips. Do not hand out."
_NONE = "-"


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of a page: words, pictures, a table, a list; each may be left out."""

    title: str
    lead: str = ""
    legend: Sequence[tuple[str, str]] = ()
    pictures: Sequence[Picture] = ()
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    sentences: Sequence[str] = ()
    note: str = ""

    @property
    def wide(self) -> bool:
        """Whether its picture has the width for itself."""
        return len(self.pictures) == 1


# The plan


def plan_page(plan: FleetPlan, release: Release, city: City, *, routes: Routes | None = None) -> str:
    """Write the page of a fleet that was sized. Needs only what the planner has, and may be handed out."""
    task = planned_task(release, Ground.of(city, routes), plan)
    fleet = tuple(plan.shuttles_of(task.ground.zones))
    target = task.max_wait
    sections = [_zones_section(plan, task, fleet)]
    if task.served:
        running = Running.of(task, fleet)
        sections.append(Section(title="How long riders wait", pictures=[wait_picture(running, None, target=target)]))
        sections.append(Section(title="What shuttles do", pictures=[hours_picture(running)]))
    sections.append(_trips_section({"release": task}, [modes_picture(plan.demand.modes if plan.demand else {})]))
    sections += _closing_sections(plan, release)
    return _rendered(
        release,
        private=False,
        title=f"Shuttle fleet for {release.certificate.dataset}",
        lead=f"The smallest fleet found whose riders wait at most {target:g} s on average in each zone, sized on "
        "counts of trips that were published with privacy.",
        figures=_plan_figures(plan),
        sections=sections,
    )


def _plan_figures(plan: FleetPlan) -> list[Figure]:
    run, demand = plan.operation, plan.demand
    found = [Figure("Shuttles", f"{plan.objective:,}", f"at least {plan.bound:,}, proved")]
    if run is not None:
        wait = run.wait_seconds
        found += [
            Figure("Mean wait", f"{wait.mean:.0f} s", f"median {wait.median:.0f} s"),
            Figure("95 % wait at most", f"{wait.p95:.0f} s", "of the rides"),
            Figure("With riders", percent(run.busy_share), f"{percent(run.empty_share)} driving empty"),
            Figure("Riders aboard", f"{run.occupancy:.1f}", "of a shuttle that has some"),
        ]
    if demand is not None:
        found.append(Figure("Rides a day", f"{demand.legs:,.0f}", f"of {demand.trips:,.0f} trips"))
    return found


def _zones_section(plan: FleetPlan, task: FleetTask, fleet: tuple[int, ...]) -> Section:
    columns = ["Zone", "Shuttles", "Rides a day", "Mean wait", "Median", "95 % at most", "Single days", "At least"]
    rows = []
    for zone, number in zip(plan.zones, plan.shuttles, strict=True):
        facts = plan.by_zone[zone]
        wait, spread = facts.wait_seconds, facts.spread
        waits = [f"{part:.0f} s" for part in (wait.mean, wait.median, wait.p95)] if wait else [_NONE] * 3
        ends = dict.fromkeys((spread.smallest, spread.largest)) if spread else ()
        between = " to ".join(f"{end:,}" for end in ends) or _NONE
        rows.append([zone, f"{number:,}", f"{facts.legs:,.0f}", *waits, between, f"{facts.bound:,}"])
    note = (
        "Single days: the fleets that each simulated day would need, the zone by itself. At least: no smaller fleet "
        "can do, proved and weak."
    )
    if not task.served:
        return Section(
            title="How many shuttles", lead="No trip needs a shuttle: no fleet is needed.", columns=columns, rows=rows
        )
    curves = Curves.of(task, fleets_around(fleet))
    drawn = _most_ridden(task)
    pictures = [
        curve_picture(
            task.ground.zones[zone],
            {"release": (curves.points[zone], fleet[zone])},
            target=task.max_wait,
            words={"release": "planned"},
        )
        for zone in drawn
    ]
    lead = (
        f"Mean wait against the fleet, all zones changed at once; {several(curves.days, 'simulated day')} each. "
        f"The filled mark is the plan.{_not_drawn(task, drawn)}"
    )
    return Section(title="How many shuttles", lead=lead, pictures=pictures, columns=columns, rows=rows, note=note)


def _most_ridden(task: FleetTask) -> list[int]:
    """Return the zones whose waits are drawn, in the order of the city."""
    rides = task.weights @ task.legs
    return sorted(sorted(task.served, key=lambda zone: -rides[zone])[:MOST_CURVES])


def _not_drawn(task: FleetTask, drawn: Sequence[int]) -> str:
    left = len(task.served) - len(drawn)
    return f" {several(left, 'zone')} with fewer rides not drawn." if left else ""


def _closing_sections(plan: FleetPlan, release: Release) -> list[Section]:
    stated = release.certificate
    losses = CountsKind().loss_words(stated) or (f"No loss is proved: the basis of the release is {stated.basis}.",)
    assumed = Section(title="What was assumed", sentences=[*plan.assumed, *plan.notes])
    promised = Section(title="What the release promises", sentences=losses)
    return [assumed, promised] if assumed.sentences else [promised]


# The settlement


def settlement_page(settlement: FleetSettlement, release: Release) -> str:
    """Write the owner's page of a fleet run on the true trips. It shows them: keep the file private (mode 0600)."""
    plan, true, planned = settlement.plan, settlement.task, settlement.planned
    if not plan.external:  # days of the release are drawn again, as the plan's were
        told = planned_task(release, true.ground, plan)
    else:
        told = released_task(release, true.ground, max_wait=true.max_wait, expansions=EXPANSIONS, service=true.service)
    sections = [_cost_section(settlement), _compared_zones(settlement, told)]
    sections += _running_sections(settlement, told)
    shares = [modes_picture(demand_facts(told).modes, settlement.demand.modes)]
    sections.append(_trips_section({"truth": true, "release": told}, shares))
    sections += _closing_sections(settlement.plan, release)
    return _rendered(
        release,
        private=True,
        title=f"Shuttle fleet on the true {release.certificate.dataset}",
        lead=f"{several(sum(planned), 'shuttle')}, sized on the release, run on the true trips; beside them the fleet "
        "that the same method finds on the true trips.",
        figures=_settlement_figures(settlement),
        sections=sections,
    )


def _settlement_figures(settlement: FleetSettlement) -> list[Figure]:
    ideal, errors, cost = settlement.sized_on_truth, settlement.relative_error, settlement.cost
    needs = "no fleet meets the target"
    if ideal:
        needs = f"{ideal.shuttles:,} needed" + ("" if errors.shuttles is None else f" ({_signed(errors.shuttles)})")
    missed = settlement.meets_target.count(False)
    by = f"; {several(missed, 'zone')} {'misses' if missed == 1 else 'miss'} it" if missed else ""
    minutes = round(settlement.idle_seconds / 60)
    idle = f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"
    found = [
        Figure("Shuttles planned", f"{settlement.shuttles:,}", needs),
        Figure(
            "Mean wait", f"{settlement.wait_seconds:.0f} s", f"target {settlement.task.max_wait:g} s in each zone{by}"
        ),
        Figure("Idle", idle, "of a shuttle and day"),
        Figure("Rides a day", f"{settlement.demand.legs:,.0f}", f"of {settlement.demand.trips:,.0f} trips"),
    ]
    if cost is not None:
        extra = cost.difference_per_day
        note = "of the planned fleet" if extra is None else f"privacy: {extra:+,.0f}"
        found.append(Figure("Cost a day", f"{cost.planned_per_day:,.0f}", note))
    if settlement.unserved:
        found.append(Figure("Rides unserved", f"{settlement.unserved:,.0f}", "a day: no shuttle in a zone"))
    return found


def _signed(error: float | None) -> str:
    return _NONE if error is None else f"{100 * error:+.1f}\u00a0%"


def _cost_section(settlement: FleetSettlement) -> Section:
    """Tell what privacy cost: the plan, what became of it, and the fleet that the truth needs."""
    ideal, errors = settlement.sized_on_truth, settlement.relative_error
    said, cost = settlement.plan.operation, settlement.cost
    columns = ["", "The plan said", "On the true trips", "Fleet the truth needs", "Relative error"]
    here = f"{settlement.shuttles:,}"
    rows = [["Shuttles", here, here, f"{ideal.shuttles:,}" if ideal else _NONE, _signed(errors.shuttles)]]
    waits = (said.wait_seconds.mean if said else None, settlement.wait_seconds, ideal.wait_seconds if ideal else None)
    idles = (said.idle_seconds if said else None, settlement.idle_seconds, ideal.idle_seconds if ideal else None)
    rows.append(["Mean wait", *(_seconds(value) for value in waits), _signed(errors.wait_seconds)])
    rows.append(["Idle, a shuttle and day", *(_seconds(value) for value in idles), _signed(errors.idle_seconds)])
    notes = ["Relative error: on the true trips, against the fleet that these need. Idle: nobody aboard."]
    if cost is None:
        notes.append("What it costs is told if apply is given --shuttle-hour.")
    else:
        ours, theirs = cost.planned_per_day, cost.needed_per_day
        relative = None if not theirs else (ours - theirs) / theirs
        needed = _NONE if theirs is None else f"{theirs:,.0f}"
        rows.append(["Cost a day", f"{ours:,.0f}", f"{ours:,.0f}", needed, _signed(relative)])
        notes.append(
            f"Cost: {cost.per_shuttle_hour:g} for an hour of a shuttle, each out {cost.hours_a_day:g} hours a day."
        )
    if settlement.needed is None:
        notes.append(f"No fleet meets {settlement.task.max_wait:g} s on the true trips.")
    if settlement.unserved:
        notes.append(f"{settlement.unserved:,.1f} rides a day are not served: a zone has no shuttle.")
    if not settlement.checked:
        notes.append("Without the key, nobody checked that these are the trips that were published.")
    return Section(title="What privacy cost", columns=columns, rows=rows, note=" ".join(notes))


def _seconds(value: float | None) -> str:
    return _NONE if value is None else f"{value:,.0f} s"


def _compared_zones(settlement: FleetSettlement, told: FleetTask) -> Section:
    true, planned, needed = settlement.task, settlement.planned, settlement.needed
    columns = ["Zone", "Planned", "Needed", "Rides told", "True rides", "True mean wait", f"Target {true.max_wait:g} s"]
    rides = [np.average(task.legs, axis=0, weights=task.weights) for task in (told, true)]
    rows = [
        [
            zone,
            f"{planned[place]:,}",
            _NONE if needed is None else f"{needed[place]:,}",
            *(f"{side[place]:,.0f}" for side in rides),
            _NONE if settlement.zone_waits[place] is None else f"{settlement.zone_waits[place]:.0f} s",
            "met" if settlement.meets_target[place] else "missed",
        ]
        for place, zone in enumerate(settlement.zones)
    ]
    if not (true.served or told.served):
        return Section(title="How many shuttles", lead="No trip needs a shuttle.", columns=columns, rows=rows)
    curves = {
        "release": (_curves(told, [planned]), planned),
        "truth": (_curves(true, [planned if needed is None else needed, planned]), needed),
    }
    drawn = _most_ridden(true if true.served else told)
    pictures = []
    for zone in drawn:
        sides = {
            side: (own.points[zone], None if chosen is None else chosen[zone])
            for side, (own, chosen) in curves.items()
            if zone in own.points
        }
        words = {"release": "planned", "truth": "needed"}
        pictures.append(curve_picture(settlement.zones[zone], sides, target=true.max_wait, words=words))
    lead = (
        "Mean wait against the fleet, all zones changed at once: on "
        f"{several(curves['release'][0].days, 'day')} drawn from the release, and on the true trips. "
        f"The filled marks are the planned and the needed fleet.{_not_drawn(true, drawn) if true.served else ''}"
    )
    legend = [("release", "trips of the release"), ("truth", "true trips")]
    return Section(title="How many shuttles", lead=lead, legend=legend, pictures=pictures, columns=columns, rows=rows)


def _curves(task: FleetTask, fleets: Sequence[Sequence[int]]) -> Curves:
    """Run fleets around the first, and the others; a zone with rides has a shuttle at least."""
    served = np.isin(np.arange(len(task.ground.zones)), task.served)
    first, *others = [np.where(served, np.maximum(fleet, 1), 0).tolist() for fleet in fleets]
    return Curves.of(task, [*fleets_around(first), *others])


def _running_sections(settlement: FleetSettlement, told: FleetTask) -> list[Section]:
    """Draw waits and half-hours of the planned fleet, where every zone with rides has a shuttle."""
    planned, true = settlement.planned, settlement.task
    if not true.served:
        return []
    if settlement.unserved:
        says = "Not drawn: some rides are in zones without a shuttle, and nobody knows how long they would wait."
        return [Section(title="How long riders wait", lead=says)]
    all_served = bool(told.served) and all(planned[zone] for zone in told.served)
    expected = Running.of(told, planned) if all_served else None
    really = Running.of(true, planned)
    return [
        Section(title="How long riders wait", pictures=[wait_picture(expected, really, target=true.max_wait)]),
        Section(title="What shuttles do", pictures=[hours_picture(really, expected)]),
    ]


# Parts of both


def _trips_section(tasks: Mapping[str, FleetTask], shares: list[Picture]) -> Section:
    """Draw flows on a map, for each side one, in one scale; where stops have coordinates."""
    titles = {"release": "Flows of the release", "truth": "True flows"}
    city = next(iter(tasks.values())).ground.city
    title = "Where trips go, and how"
    if city.lat is None or city.lon is None:
        return Section(title=title, pictures=shares, note="No map: the city does not say where its stops are.")
    drawing, flows = CityMap(city), {side: _flows(task) for side, task in tasks.items()}
    most = max(own.most for own in flows.values()) or 1.0
    maps = []
    for side, own in flows.items():
        caption = (
            f"The {several(own.shown, 'pair')} of stops with most trips, {percent(own.shown_share)} of all trips "
            f"between stops; the thickest is {own.most:,.0f} trips a day, both ways."
            if own.shown
            else "No trip goes from a stop to another."
        )
        svg = drawing.drawn(own, most=most, style=side, label=f"{titles[side]}. {caption}")
        legend = [(side, "trips"), ("stop", "stop"), ("hub", "hub")]
        maps.append(Picture(title=titles[side], svg=svg, caption=caption, legend=legend))
    return Section(title=title, pictures=[*maps, *shares])


def _flows(task: FleetTask) -> Flows:
    days, num = task.days, len(task.ground.city.stops)
    origin, destination = (
        np.concatenate([getattr(day.trips, end) for day in days]) for end in ("origin", "destination")
    )
    weights = np.repeat(task.weights / (task.weights.sum() or 1.0), [len(day.trips) for day in days])
    return Flows.of(origin, destination, weights, num)


def _rendered(
    release: Release, *, private: bool, title: str, lead: str, figures: list[Figure], sections: list[Section]
) -> str:
    content = {
        "private": private,
        "says": PRIVATE_SAYS if private else PUBLIC_SAYS,
        "version": __version__,
        "release": release.certificate.digest,
        "title": title,
        "lead": lead,
        "figures": figures,
        "sections": sections,
    }
    return render("fleet.html", content)
