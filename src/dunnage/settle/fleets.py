# SPDX-License-Identifier: Apache-2.0
"""apply for fleets: the owner runs the planned fleet on the true trips, and compares it with one sized on these trips.

Single trips keep their seconds and dates. Counts of trips get random seconds, as for the planner; see
:mod:`dunnage.planning.demand`. Everything here is private.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from datetime import date
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from dunnage.arrays import FloatArray, IntArray
from dunnage.errors import ParameterError, ReleaseError
from dunnage.folders import new_folder
from dunnage.mechanisms.counts import record_cells, true_counts
from dunnage.model import documents
from dunnage.model.city import City
from dunnage.model.documents import Number, OrEmpty
from dunnage.model.domains import split_stamps
from dunnage.model.routes import Routes
from dunnage.model.trips import Universe
from dunnage.noise.source import Noise
from dunnage.notebooks import Summarised
from dunnage.planning import demand
from dunnage.planning import fleet as sizing
from dunnage.planning.buses import bus_loads
from dunnage.planning.dispatch import EVENTS, Operation, Parking, Requests, Service
from dunnage.planning.fleet import FleetTask, Reach
from dunnage.planning.plan import BusLoads, Demand, FleetModel, FleetPlan, Run
from dunnage.publication import Key
from dunnage.release import Release
from dunnage.release.kinds import COUNTS
from dunnage.settle import SETTLEMENT_FILE, SETTLEMENT_PAGE, SettlementDocument, check_key
from dunnage.settle.repair import PrivateModel
from dunnage.tables.columns import write_csv
from dunnage.tables.dataset import Dataset
from dunnage.text import Progress, percent_change, several

EVENTS_FILE = "events.csv"
MAX_SETTLEMENT_BYTES = 1 << 26
MAX_SHUTTLE_HOUR = 1e9  # maximum cost of a shuttle per hour, in any currency
_MAX_ZONES_NAMED = 5
_EXPANSIONS = 2  # days of the release that are simulated to park the shuttles of a plan made elsewhere


class RelativeError(PrivateModel):
    """Relative errors of the planned fleet, compared with the needed fleet; None if they are undefined."""

    shuttles: float | None
    wait_seconds: float | None
    idle_seconds: float | None


class SettledZone(PrivateModel):
    zone: str
    shuttles: int
    needed: int | None
    wait_seconds: float | None
    meets_target: bool


class SizedOnTruth(PrivateModel):
    shuttles: int
    wait_seconds: float
    idle_seconds: float
    fleet: dict[str, int]
    operation: OrEmpty[Run]


class FleetCost(PrivateModel):
    """The costs of the planned and the needed fleet, with every shuttle in service for the whole service day.

    The difference is what privacy costs. If the planned fleet misses the target, there is none: it is another service.
    """

    per_shuttle_hour: Number
    hours_a_day: float
    planned_per_day: float
    needed_per_day: float | None
    difference_per_day: float | None


class FleetSettlementDocument(PrivateModel):
    format: Literal[1]
    kind: Literal["fleet"]
    release: str
    external: bool
    checked: bool
    shuttles: int
    wait_seconds: float
    idle_seconds: float
    max_wait_seconds: float
    meets_target: bool | None = None  # whether every zone does; not stated before 0.2
    relative_error: RelativeError
    unserved: float
    fleet: dict[str, int]
    zones: list[SettledZone]
    operation: OrEmpty[Run]
    sized_on_truth: SizedOnTruth | None
    reach: list[Reach] = Field(default=[])  # without a fleet that meets the target
    demand: Demand
    cost: FleetCost | None
    buses: BusLoads | None = None  # with the true trips, if the city has seats
    days: int
    seconds: Number

    def text(self) -> str:
        ideal, errors, cost = self.sized_on_truth, self.relative_error, self.cost
        target, missed = self.max_wait_seconds, [zone for zone in self.zones if not zone.meets_target]
        wait, idle = f"{self.wait_seconds:.0f} s", f"{self.idle_seconds:.0f} s per shuttle and day"
        lines = []
        if missed:  # before any figure that could look like a saving
            zones = f"{several(len(missed), 'zone')} {'misses' if len(missed) == 1 else 'miss'}"
            shortfalls = []
            for zone in missed[:_MAX_ZONES_NAMED]:
                mean = zone.wait_seconds or 0.0  # with enough digits to see that it is above the target
                late = f"{mean:.0f} s" if round(mean) > target else f"{mean:.4f} s"
                late = late if mean > target else "not all served"
                needed = "" if zone.needed is None else f", {zone.shuttles} of {several(zone.needed, 'shuttle')}"
                if zone.needed is not None and zone.shuttles >= zone.needed:
                    would = "would do if they waited where the true trips begin"
                    needed = f", though {several(zone.needed, 'shuttle')} {would}"
                shortfalls.append(f"{zone.zone} ({late}{needed})")
            names = ", ".join(shortfalls)
            more = f" and {len(missed) - _MAX_ZONES_NAMED} more" if len(missed) > _MAX_ZONES_NAMED else ""
            lines.append(f"WARNING     {zones} the target of {target:g} s: {names}{more}")
            if ideal is not None:
                fleet = f"the true trips need {several(ideal.shuttles, 'shuttle')}; {self.shuttles} are planned"
                lines.append(f"Needed      {fleet}")
        lines += [
            f"Reach       {own.zone}: no fleet meets the target on the true trips; {several(own.most, 'shuttle')} "
            f"reach {own.wait_seconds:.0f} s, {several(own.shuttles, 'shuttle')} reach {own.near_seconds} s"
            for own in self.reach
        ]
        if ideal is None and not self.reach:
            lines.append(f"Note        no fleet meets the target of {target:g} s on the true trips")
        lines += [
            _compared("Shuttles", f"{self.shuttles}", f"{ideal.shuttles}" if ideal else None, errors.shuttles),
            _compared("Wait", wait, f"{ideal.wait_seconds:.0f} s" if ideal else None, errors.wait_seconds),
            _compared("Idle", idle, f"{ideal.idle_seconds:.0f} s" if ideal else None, errors.idle_seconds),
        ]
        for zone in self.zones:
            needed = "" if zone.needed is None else f", {zone.needed} needed"
            waits = "" if zone.wait_seconds is None else f"; wait {zone.wait_seconds:.0f} s as planned"
            lines.append(f"Zone        {zone.zone}: {zone.shuttles} planned{needed}{waits}")
        lines += self.buses.text_lines if self.buses is not None else []
        if self.unserved:
            lines.append(f"Unserved    {self.unserved:,.1f} rides a day, because their zone has no shuttle")
        if cost is not None:
            text = f"{cost.planned_per_day:,.2f} a day at {cost.per_shuttle_hour:g} per shuttle and hour"
            if cost.needed_per_day is not None:
                text += f"; {cost.needed_per_day:,.2f} for the needed fleet: "
                if missed:
                    text += "no price of privacy, because the planned fleet misses the target"
                else:
                    text += f"privacy costs {cost.difference_per_day:,.2f}"
            lines.append(f"Cost        {text}")
        if not self.checked:
            lines.append("Note        without the key, it was not checked that these are the trips that were published")
        return "\n".join([*lines, f"Seconds     {self.seconds:.2f}"])


def _compared(word: str, planned: str, needed: str | None, error: float | None) -> str:
    compared = "" if needed is None else f"; {needed} with the fleet that the true trips need"
    return f"{word:<11} {planned} as planned{compared}" + ("" if error is None else f" ({percent_change(error)})")


@dataclass(frozen=True, eq=False, kw_only=True)
class FleetSettlement(Summarised):
    """A planned fleet on the true trips. Private; its ``repr`` shows no data."""

    plan: FleetPlan
    release: str  # digest of the release
    zones: tuple[str, ...]
    planned: tuple[int, ...]  # planned shuttles of each zone
    needed: tuple[int, ...] | None  # shuttles that the true trips need, by the same method; None if no fleet does
    zone_waits: tuple[float | None, ...]  # mean wait of each zone's true riders; None if nobody is served
    unserved_by_zone: tuple[float, ...]  # rides on an average day that are not served, because a zone has no shuttle
    operation: Run | None  # operation, ideal: results of the planned and the needed fleet on the true trips
    ideal: Run | None
    demand: Demand  # of the true trips
    cost: FleetCost | None  # None without a cost per hour
    buses: BusLoads | None  # how full buses are with the true trips; None if the city has no seats
    events: pa.Table  # of the planned shuttles: shuttle, seconds, stop, event, rider; and day, if there are several
    task: FleetTask  # the true days, for pages, with the parking of the needed fleet
    served: FleetTask  # the rides that the planned fleet serves, with its parking
    checked: bool  # whether a key proves that these trips were published
    seconds: float  # time taken
    reach: tuple[Reach, ...] = ()  # of zones that miss the target with any fleet, if there is no needed fleet

    def __repr__(self) -> str:
        return f"FleetSettlement({len(self.zones)} zones, private)"

    @property
    def shuttles(self) -> int:
        return sum(self.planned)

    @property
    def wait_seconds(self) -> float:
        """Mean wait of the true riders with the planned fleet; 0 without riders."""
        return self.operation.wait_seconds.mean if self.operation else 0.0

    @property
    def unserved(self) -> float:
        return round(sum(self.unserved_by_zone), 6)

    @property
    def meets_target(self) -> tuple[bool, ...]:
        """Whether each zone serves all its true riders and meets the target."""
        return _meet(self.task.max_wait, self.zone_waits, self.unserved_by_zone)

    @property
    def idle_seconds(self) -> float:
        """Mean seconds per day in which a planned shuttle carries nobody."""
        return self._idle(self.operation, self.shuttles)

    def _idle(self, run: Run | None, shuttles: int) -> float:
        """Return the idle seconds of a shuttle; without rides it is idle all day."""
        if run is not None:
            return run.idle_seconds
        return float(self.task.span[1] - self.task.span[0]) if shuttles else 0.0

    @property
    def sized_on_truth(self) -> SizedOnTruth | None:
        """The fleet that the true trips need, and its results; None if no fleet meets the target."""
        if self.needed is None:
            return None
        return SizedOnTruth(
            shuttles=sum(self.needed),
            wait_seconds=self.ideal.wait_seconds.mean if self.ideal else 0.0,
            idle_seconds=self._idle(self.ideal, sum(self.needed)),
            fleet=dict(zip(self.zones, self.needed, strict=True)),
            operation=self.ideal,
        )

    @property
    def relative_error(self) -> RelativeError:
        """Relative errors of the planned fleet, compared with the needed fleet; positive if larger."""
        ideal = self.sized_on_truth
        if ideal is None:
            return RelativeError(shuttles=None, wait_seconds=None, idle_seconds=None)
        pairs = {name: (getattr(self, name), getattr(ideal, name)) for name in RelativeError.model_fields}
        return RelativeError(**{name: _relative(*pair) for name, pair in pairs.items()})

    @property
    def document(self) -> FleetSettlementDocument:
        needed = self.needed or [None] * len(self.zones)
        rows = zip(self.zones, self.planned, needed, self.zone_waits, self.meets_target, strict=True)
        zones = [dict(zip(SettledZone.model_fields, row, strict=True)) for row in rows]
        stated = {name: getattr(self, name) for name in FleetSettlementDocument.model_fields if hasattr(self, name)}
        derived = {
            "format": 1,
            "kind": "fleet",
            "external": self.plan.external,
            "max_wait_seconds": self.task.max_wait,
            "meets_target": all(self.meets_target),
            "reach": list(self.reach),
            "fleet": dict(zip(self.zones, self.planned, strict=True)),
            "zones": zones,
            "days": len(self.task.days),
            "seconds": round(self.seconds, 3),
        }
        return FleetSettlementDocument.model_validate(stated | derived)

    def to_dict(self) -> dict[str, Any]:
        """Return everything except the events as plain data."""
        return {name: value for name, value in self.document.plain().items() if value is not None or name != "buses"}

    def summary(self) -> str:
        """Describe the settlement for its owner."""
        return self.document.text()

    def write(self, folder: str | os.PathLike[str], *, page: str = "", force: bool = False) -> Path:
        """Write ``settlement.json``, ``events.csv`` and, if given, a page; readable only by their owner."""
        files = (EVENTS_FILE, SETTLEMENT_PAGE)
        with new_folder(folder, marker=SETTLEMENT_FILE, force=force, private=True, may_hold=files) as work:
            (work / SETTLEMENT_FILE).write_text(documents.to_text(self.to_dict()), encoding="utf-8")
            write_csv(self.events, work / EVENTS_FILE)
            if page:
                (work / SETTLEMENT_PAGE).write_text(page, encoding="utf-8")
        return Path(folder)


def _meet(target: float, waits: Sequence[float | None], unserved: Sequence[float]) -> tuple[bool, ...]:
    return tuple(not some and (wait is None or wait <= target) for wait, some in zip(waits, unserved, strict=True))


def _relative(value: float, wanted: float) -> float | None:
    if wanted:
        return (value - wanted) / wanted
    return 0.0 if value == wanted else None  # nothing to compare with


def read_settlement(folder: str | os.PathLike[str]) -> FleetSettlementDocument | SettlementDocument:
    path = Path(folder) / SETTLEMENT_FILE
    what, remedy = "a settlement", "Apply the plan again."
    content = documents.load_json(path, what=what, remedy=remedy, max_bytes=MAX_SETTLEMENT_BYTES)
    if isinstance(content, dict) and content.get("kind") == "fleet":
        return documents.check(content, FleetSettlementDocument, path, what=what, remedy=remedy)
    return documents.check(content, SettlementDocument, path, what=what, remedy=remedy)


def apply_fleet(
    plan: FleetPlan | str | os.PathLike[str],
    data: Dataset,
    release: Release,
    city: City,
    key: Key | None = None,
    *,
    shuttle_hour: float | None = None,
    routes: Routes | None = None,
    service: Service | None = None,
    noise: Noise | None = None,
    progress: Progress | None = None,
) -> FleetSettlement:
    """Run a planned fleet on the true trips, and size the fleet that these trips need.

    Parameters
    ----------
    plan
        A plan, a plan folder, or a CSV file ``zone,shuttles`` from any program, whose shuttles then wait where the
        release suggests.
    data, release, city
        The true trips, the release, and the city for which the fleet was sized.
    key
        The key of the release, to check that these trips were published.
    shuttle_hour
        The cost of a shuttle per hour, in any currency.
    routes, service
        The route of each pair of stops, and the service of shuttles; by default as in the plan.
    noise
        The randomness of seconds for counted trips, by default from the operating system.
    progress
        Called with a line of text as each stage begins.

    Raises
    ------
    UserError
        If plan, release, city, data and key do not belong together.
    """
    start = time.monotonic()
    tell = progress or (lambda line: None)
    chosen, source = (plan, "plan") if isinstance(plan, FleetPlan) else (FleetPlan.read(plan), str(plan))
    # Parts that do not belong together are refused before any trip is used.
    if release.kind != COUNTS or data.schema.trip is None:
        raise ParameterError(
            "a fleet needs trips, and a release of counts of these trips. Use the release for which it was sized."
        )
    if not chosen.external and chosen.release != release.certificate.digest:
        raise ReleaseError(f"{source} was made from another release. Use that release, or size a fleet on this one.")
    if key is not None:
        check_key(key, release, data)
    if shuttle_hour is not None and not 0 <= shuttle_hour <= MAX_SHUTTLE_HOUR:
        raise ParameterError(
            f"the cost of a shuttle per hour must be from 0 to {MAX_SHUTTLE_HOUR:,.0f}. Got {shuttle_hour:g}. Correct "
            "--shuttle-hour."
        )
    tell("finding routes")
    ground = demand.Ground.of(city, routes)
    if not chosen.external and (chosen.city is None or chosen.city.digest != ground.digest()):
        raise ParameterError(f"{source} was sized for another city. Use that city.")
    fleet = tuple(chosen.shuttles_of(ground.zones, source))
    task = _true_task(chosen, data, ground, service, noise or Noise(), tell)
    tell("running the planned fleet on the true trips")
    if chosen.external:  # its shuttles wait where released trips suggest
        released = FleetModel(
            name="", max_wait_seconds=task.max_wait, expansions=_EXPANSIONS, seed=0, service=task.service
        )
        parking = served_task(sizing.released_task(release, ground, released), fleet).parked_best(fleet)
    else:
        parking = sizing.planned_parking(chosen, ground)
    served = served_task(task, fleet, parking)
    operations = served.operate(fleet)
    runs = [sizing.DayRun.of(day, run, len(fleet)) for day, run in zip(served.days, operations, strict=True)]
    sums = [sizing.zone_sums(day, run.waits, len(fleet)) for day, run in zip(served.days, runs, strict=True)]
    waits = served.means_of(sums).tolist()
    tell("sizing the fleet that the true trips need")
    sized: sizing.Sized | None = None
    reach: tuple[Reach, ...] = ()
    try:
        sized = task.size()
    except sizing.UnreachableError as error:  # its message reveals something about the trips, so it is not shown
        reach, task.parking = error.zones, served.parking
    needed, cost = None if sized is None else sized.fleet, None
    zone_waits = tuple(wait if zone in served.served else None for zone, wait in enumerate(waits))
    unserved = tuple((_rides(task) - _rides(served)).round(6).tolist())
    meets_target = all(_meet(task.max_wait, zone_waits, unserved))
    if shuttle_hour is not None:
        hours = (task.span[1] - task.span[0]) / 3600
        ours = sum(fleet) * hours * shuttle_hour
        theirs = None if needed is None else sum(needed) * hours * shuttle_hour
        cost = FleetCost(
            per_shuttle_hour=shuttle_hour,
            hours_a_day=hours,
            planned_per_day=ours,
            needed_per_day=theirs,
            difference_per_day=ours - theirs if theirs is not None and meets_target else None,
        )
    return FleetSettlement(
        plan=chosen,
        release=release.certificate.digest,
        zones=ground.zones,
        planned=fleet,
        needed=needed,
        zone_waits=zone_waits,
        unserved_by_zone=unserved,
        operation=sizing.run_facts(served, fleet, runs),
        ideal=None if sized is None else sizing.run_facts(task, sized.fleet, sized.runs),
        demand=sizing.demand_facts(task),
        cost=cost,
        buses=bus_loads(ground, task.days, true_universe(chosen, data)),
        events=_events(served, operations),
        task=task,
        served=served,
        checked=key is not None,
        seconds=time.monotonic() - start,
        reach=reach,
    )


def _rides(task: FleetTask) -> FloatArray:
    return np.asarray(task.weights @ task.legs / (float(task.weights.sum()) or 1.0))


def _true_task(
    plan: FleetPlan, data: Dataset, ground: demand.Ground, service: Service | None, noise: Noise, tell: Progress
) -> FleetTask:
    model, universe = plan.model or FleetModel(name=""), true_universe(plan, data)
    wait = sizing.MAX_WAIT_SECONDS if model.max_wait_seconds is None else model.max_wait_seconds
    expansions, day = sizing.EXPANSIONS if model.expansions is None else model.expansions, model.day
    sizing.check_max_wait(wait)
    labels = universe.days or (demand.WHOLE_DAY,)
    if day is not None and day not in labels:
        raise ParameterError(
            f"the plan was sized for a day that the release does not have. It has: {', '.join(labels)}. Size the fleet "
            "again."
        )
    days = true_days(data, universe, ground, day)
    if days is None:
        counted = true_counts(data, level="stop")
        _check_true_stops(universe, counted.cells, ground.city)
        counts = demand.counted_trips(universe, counted.cells, counted.counts, ground.city)
        # These counts are private, so the seed is not that of the plan, which others know.
        days = sizing.expanded_days(counts, ground, expansions=expansions, seed=noise.bits(32), day=day)
    span = demand.service_seconds(universe)
    return FleetTask(
        ground, days, service=service or model.service or Service(), max_wait=float(wait), span=span, progress=tell
    )


def true_universe(plan: FleetPlan, data: Dataset) -> Universe:
    """Return the universe of the data with the number of its dates: as stated, as planned, or those in the data."""
    universe, trip = data.schema.universe(data.period, level="stop"), data.schema.trip
    if universe.num_dates:
        return universe
    if plan.model is not None and plan.model.dates is not None:
        return demand.with_dates(universe, plan.model.dates)
    num = np.ones(max(1, len(universe.days)), dtype=np.int64)
    if trip is not None and trip.count is None:  # the owner may count dates; times without a date are of one
        ordinals, _ = split_stamps(data.column(trip.time).to_numpy(zero_copy_only=False))
        labels = universe.split(record_cells(data, universe))[1] // len(universe.windows)
        pairs = np.unique(np.column_stack((labels, ordinals)), axis=0)
        num = np.maximum(num, np.bincount(pairs[:, 0], minlength=len(num)))
    return replace(universe, num_dates=tuple(num.tolist()))


def true_days(data: Dataset, universe: Universe, ground: demand.Ground, day: str | None) -> list[demand.Day] | None:
    """Make a day of each date with its single trips; None if there are only counts for several dates together."""
    trip = data.schema.trip
    assert trip is not None  # checked
    if trip.count is not None:
        return None
    cells = record_cells(data, universe)
    _check_true_stops(universe, cells, ground.city)
    pairs, slots = universe.split(cells)
    ordinals, seconds = split_stamps(data.column(trip.time).to_numpy(zero_copy_only=False))
    labels, dates = slots // len(universe.windows), demand.dates_of_days(universe)
    if max(dates) > 1 and not ordinals.all():  # times without dates: it is unknown which trips share a date
        return None
    number = demand.stop_numbers(universe.stops, ground.city)
    origins, destinations = (number[end] for end in universe.pair_ends(pairs))
    days = []
    for label in range(len(dates)):
        name = universe.days[label] if universe.days else ""
        if day not in (None, name or demand.WHOLE_DAY):
            continue
        rows = np.flatnonzero(labels == label)
        parts = [(name, rows)]
        if dates[label] > 1:
            own_dates = ordinals[rows]
            parts = [(date.fromordinal(int(d)).isoformat(), rows[own_dates == d]) for d in np.unique(own_dates)]
        for title, own in parts:
            trips = demand.Trips.in_order(origins[own], destinations[own], seconds[own])
            days.append(replace(demand.Day.of(trips, ground), label=title))
        if dates[label] > len(parts):  # dates without any trip
            days.append(demand.Day.of(demand.Trips.none(), ground, dates[label] - len(parts)))
    return days


def _check_true_stops(universe: Universe, cells: IntArray, city: City) -> None:
    """Refuse trips at stops that the city lacks; the message names a public stop, whether or not it has trips."""
    number = demand.stop_numbers(universe.stops, city)
    ends = universe.pair_ends(universe.split(cells)[0])
    if any((number[end] < 0).any() for end in ends):
        missing = [stop for stop, place in zip(universe.stops, number, strict=True) if place < 0]
        raise ParameterError(
            f"the city lacks stops of the policy, such as {missing[0]!r}. Use a city with all of them."
        )


def served_task(task: FleetTask, fleet: tuple[int, ...], parking: Sequence[Parking | None] | None = None) -> FleetTask:
    """Leave out the rides of zones without a shuttle, and rides that follow them; shuttles wait as stated."""
    some = np.array(fleet) > 0
    days = [] if task.legs[:, ~some].any() else list(task.days)
    for day in () if days else task.days:
        requests = day.requests
        kept, follows = some[requests.zone], requests.after >= 0
        kept[follows] &= kept[requests.after[follows]]
        rest = {item.name: getattr(requests, item.name)[kept] for item in fields(requests)}
        rest["after"] = np.where(rest["after"] >= 0, (np.cumsum(kept) - 1)[rest["after"]], -1)
        days.append(replace(day, requests=Requests(**rest)))
    return FleetTask(task.ground, days, service=task.service, max_wait=task.max_wait, span=task.span, parking=parking)


def _events(task: FleetTask, operations: tuple[Operation, ...]) -> pa.Table:
    names = np.array(task.ground.city.stops, dtype=object)
    parts = []
    for number, (day, run) in enumerate(zip(task.days, operations, strict=True), 1):
        events, riders = run.events, day.requests.rider
        leg = events.leg
        rider = np.where(leg >= 0, riders[leg], -1) if len(riders) else np.full(len(leg), -1)
        columns = {
            "shuttle": pa.array(events.shuttle.astype(np.int64)),
            "seconds": pa.array(events.seconds),
            "stop": pa.array(names[events.stop].tolist(), pa.string()),
            "event": pa.array([EVENTS[kind] for kind in events.event.tolist()], pa.string()),
            "rider": pa.array(rider, pa.int64(), mask=leg < 0),
        }
        if len(task.days) > 1:
            columns["day"] = pa.array([day.label or str(number)] * len(leg), pa.string())
        parts.append(pa.table(columns))
    return pa.concat_tables(parts)
