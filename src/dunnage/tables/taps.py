# SPDX-License-Identifier: Apache-2.0
"""Trips from taps: where riders who only tap on got off, and which rides are one trip.

The next boarding tells where a ride ended: at the stop that its line reaches nearest to it. The last ride of a day
leads back to the first boarding of that day, or to the first one of the next day. A ride that begins soon after the one
before it ended continues the same trip, unless it leads back.

Each trip follows from the taps of one card alone, and each tap is in at most one trip. So a bound on the trips of a
rider holds as it does for recorded trips. A single tap can change two trips: its own and the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa

from dunnage.arrays import FloatArray
from dunnage.errors import InputError, ParameterError, Problem
from dunnage.model.city import haversine
from dunnage.tables.gtfs import FeedRides
from dunnage.tables.reader import ReadOptions, read_table
from dunnage.text import percent, several

NEXT, RETURN, NEXT_DAY = "the next boarding", "the first boarding of the day", "the first boarding of the next day"
RULES = (NEXT, RETURN, NEXT_DAY)
_DAY_SECONDS = 86_400


@dataclass(frozen=True, kw_only=True)
class TapSetting:
    """Columns of the taps, and what is assumed about riders."""

    card: str = "card"
    stop: str = "stop"
    time: str = "time"
    route: str | None = None  # column with the route_id that was boarded, if it is known
    walk_km: float = 1.0  # longest walk between getting off and the next boarding
    transfer_minutes: float = 30.0  # longest time between two rides of one trip
    day_starts: int = 4  # hour at which a service day begins
    days_ahead: int = 7  # how far away the next day with a boarding may be

    def __post_init__(self) -> None:
        for name, low, high in (
            ("walk_km", 0.0, 20.0),
            ("transfer_minutes", 0.0, 240.0),
            ("day_starts", 0, 23),
            ("days_ahead", 0, 31),
        ):
            if not low <= getattr(self, name) <= high:
                raise ParameterError(f"{name} must be from {low:g} to {high:g}. Got {getattr(self, name)}.")


@dataclass(frozen=True, kw_only=True)
class InferredTrips:
    """Trips that were inferred from taps, and how many were not. Private."""

    table: pa.Table  # card, origin, destination, time, legs
    taps: int
    trips: int  # all trips, with those whose end is not known
    rules: Mapping[str, int] = field(repr=False)  # rides whose end was inferred, by rule
    unknown_stops: int  # taps at stops that the feed lacks

    @property
    def not_inferred(self) -> float:
        """Share of trips whose destination could not be inferred."""
        return 1 - self.table.num_rows / self.trips if self.trips else 0.0

    def __repr__(self) -> str:
        return "InferredTrips(private)"

    def to_dict(self) -> dict[str, object]:
        counts = {"taps": self.taps, "trips": self.trips, "inferred": self.table.num_rows, "rules": dict(self.rules)}
        return {**counts, "not_inferred": self.not_inferred, "unknown_stops": self.unknown_stops}

    def summary(self) -> str:
        lines = [
            f"Taps      {self.taps:,}, in {several(self.trips, 'trip')} after joining transfers",
            f"Trips     {self.table.num_rows:,} with a destination; {percent(self.not_inferred)} of trips could not be "
            "inferred and are left out",
            *(f"Rides     {num:,} end near {rule}" for rule, num in self.rules.items()),
        ]
        if self.unknown_stops:
            lines.append(f"Unknown   {several(self.unknown_stops, 'tap')} at stops that the feed lacks")
        return "\n".join([*lines, "Only you  keep these numbers to yourself: they come from the rows"])


def read_taps(path: str | Path, setting: TapSetting) -> tuple[pa.Table, list[int]]:
    """Read cards, stops, times and routes as texts, and times in seconds too."""
    source = read_table(Path(path), ReadOptions())
    names = [name for name in (setting.card, setting.stop, setting.time, setting.route) if name]
    missing = [name for name in names if name not in source.table.column_names]
    if missing:
        what = f"has no column {', '.join(map(repr, missing))}"
        raise InputError(str(path), [Problem(what, remedy="Name the columns with --card, --stop, --time and --route.")])
    table = source.table.select(names)
    table = pa.table({name: [str(cell or "").strip() for cell in table.column(name).to_pylist()] for name in names})
    seconds, wrong, blank = [], [], []
    for row, (card, text) in enumerate(zip(*(table.column(name).to_pylist() for name in names[::2]), strict=True)):
        try:
            moment = datetime.fromisoformat(text)
            seconds.append(int((moment.replace(tzinfo=None) - datetime(1970, 1, 1)).total_seconds()))
        except ValueError:
            wrong.append(row + 1)
        blank += [] if card else [row + 1]
    problems = []
    if wrong:
        remedy = "Write moments of local time such as 2026-11-18 07:45:00."
        problems.append(Problem.in_rows("is not a date with a time", wrong, where=setting.time, remedy=remedy))
    if blank:
        problems.append(Problem.in_rows("is blank", blank, where=setting.card, remedy="Leave such rows out."))
    if problems:
        raise InputError(str(path), problems)
    return table, seconds


def infer_trips(path: str | Path, rides: FeedRides, setting: TapSetting | None = None) -> InferredTrips:
    """Infer trips from a file of taps and the rides of a GTFS feed."""
    setting = setting or TapSetting()
    table, seconds = read_taps(path, setting)
    cards, stops, times = (table.column(name).to_pylist() for name in (setting.card, setting.stop, setting.time))
    routes = table.column(setting.route).to_pylist() if setting.route else [""] * len(cards)
    places = [rides.place_of.get(stop, -1) for stop in stops]
    days = [(second - setting.day_starts * 3600) // _DAY_SECONDS for second in seconds]
    alight, near = _alighting(rides, setting)
    of_card: dict[str, list[int]] = {}
    for tap in sorted(range(len(cards)), key=lambda tap: (seconds[tap], tap)):
        of_card.setdefault(cards[tap], []).append(tap)
    rows: list[tuple[str, str, str, str, int]] = []
    rules, num_trips = dict.fromkeys(RULES, 0), 0
    for card, taps in of_card.items():
        # ends : for each tap, where its ride ended, how long it took, and by which rule; None if that is not known
        ends: list[tuple[int, float, str] | None] = []
        for at, tap in enumerate(taps):
            ends.append(None)
            for rule, target in _targets(at, taps, days, places, setting):
                if target >= 0 and places[tap] >= 0 and (found := alight(places[tap], routes[tap], target)) is not None:
                    ends[-1] = (*found, rule)
                    rules[rule] += 1
                    break
        at = 0
        while at < len(taps):
            first, last = at, at
            while (end := ends[last]) is not None and end[2] == NEXT:
                wait, following = seconds[taps[last + 1]] - seconds[taps[last]] - end[1], ends[last + 1]
                if wait > 60 * setting.transfer_minutes:
                    break
                if following is not None and near(following[0], places[taps[first]]):
                    break  # it leads back: something was done in between
                last += 1
            num_trips += 1
            if end is not None:
                origin, destination = rides.ids[places[taps[first]]], rides.ids[end[0]]
                rows.append((card, origin, destination, times[taps[first]], last - first + 1))
            at = last + 1
    names = (setting.card, "origin", "destination", setting.time, "legs")
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    types = [*[pa.string()] * 4, pa.int64()]
    arrays = {name: pa.array(column, kind) for name, column, kind in zip(names, columns, types, strict=True)}
    unknown = sum(place < 0 for place in places)
    return InferredTrips(table=pa.table(arrays), taps=len(cards), trips=num_trips, rules=rules, unknown_stops=unknown)


def _targets(
    at: int, taps: list[int], days: list[int], places: list[int], setting: TapSetting
) -> list[tuple[str, int]]:
    """Return the boardings that tell where a ride ended, each with its rule, in the order in which they are tried."""
    tap, day = taps[at], days[taps[at]]
    if at + 1 < len(taps) and days[taps[at + 1]] == day:
        return [(NEXT, places[taps[at + 1]])]
    first = next(other for other in taps if days[other] == day)
    targets = [(RETURN, places[first])] if first != tap else []
    if at + 1 < len(taps) and days[taps[at + 1]] - day <= setting.days_ahead:
        targets.append((NEXT_DAY, places[taps[at + 1]]))
    return targets


def _alighting(
    rides: FeedRides, setting: TapSetting
) -> tuple[Callable[[int, str, int], tuple[int, float] | None], Callable[[int, int], bool]]:
    """Return what finds the stop of a line nearest to a target, and whether two stops are a walk apart."""
    distances: dict[int, FloatArray] = {}
    known: dict[tuple[int, str, int], tuple[int, float] | None] = {}

    def from_stop(stop: int) -> FloatArray:
        if stop not in distances:
            distances[stop] = haversine(rides.lat, rides.lon, np.array([stop]))[0]
        return distances[stop]

    def alight(stop: int, route: str, target: int) -> tuple[int, float] | None:
        if (stop, route, target) not in known:
            ways, apart = rides.after.get((stop, route), {}), from_stop(target)
            best = min((way for way in ways if way != stop), key=lambda way: (apart[way], way), default=None)
            within = best is not None and target != stop and apart[best] <= setting.walk_km
            known[stop, route, target] = (best, ways[best]) if best is not None and within else None
        return known[stop, route, target]

    return alight, lambda one, other: bool(from_stop(one)[other] <= setting.walk_km)
