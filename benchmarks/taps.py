# SPDX-License-Identifier: Apache-2.0
"""How often inferred destinations are right, on a feed with riders whose destinations are known and then hidden.

Riders live and work at stops of a GTFS feed, go to work and back on weekdays, some with an errand in between, some with
a way back that is not by bus. A journey takes the vehicles of the timetable by which one is there first, walking
included, from stops and to stops within 400 m, with at most one change and at most 20 minutes of waiting for it.
Run it with: python -m benchmarks.taps FEED [RIDERS]
"""

from __future__ import annotations

import csv
import json
import sys
import tempfile
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dunnage.model.city import haversine
from dunnage.tables import gtfs
from dunnage.tables.taps import TapSetting, infer_trips

WALK_KM, WALK, CHANGE_SECONDS, MAX_WAIT = 0.4, 3600 / 4.5, 120.0, 20 * 60  # seconds; WALK for a km


class Ride(NamedTuple):
    board: int
    alight: int
    starts: float  # seconds of the service day
    ends: float
    route: str


class Day:
    """The timetable of one day, searched for journeys with at most one change."""

    def __init__(self, path: Path, day: date) -> None:
        feed = gtfs._Feed.read(path)
        self.stops = gtfs._read_stops(feed)
        timetable = gtfs._read_timetable(feed, self.stops, day)
        self.trips = [
            (np.array(visits.stops), np.array(visits.arrivals) + delay, np.array(visits.departures) + delay, trip)
            for trip, visits in timetable.trips.items()
            for delay in timetable.starts[trip]
        ]
        self.routes, self.served = timetable.routes, sorted(timetable.served)
        self.apart = haversine(self.stops.lat, self.stops.lon)

    def ride(self, ready: Mapping[int, float]) -> dict[int, Ride]:
        """Return the ride that arrives first at each stop, from stops at which one is ready at some time."""
        best: dict[int, Ride] = {}
        times = np.full(len(self.stops.ids), np.inf)
        for stop, second in ready.items():
            times[stop] = second
        for stops, arrivals, departures, trip in self.trips:
            able = np.flatnonzero((departures >= times[stops]) & (departures <= times[stops] + MAX_WAIT))
            if not len(able):
                continue
            start = int(able[np.argmin(times[stops[able]])])  # where it takes least to get to
            for end in range(start + 1, len(stops)):
                stop = int(stops[end])
                if stop not in best or arrivals[end] < best[stop].ends:
                    found = (int(stops[start]), stop, float(departures[start]), float(arrivals[end]))
                    best[stop] = Ride(*found, self.routes[trip])
        return best

    def near(self, stop: int) -> list[int]:
        return [other for other in self.served if self.apart[stop, other] <= WALK_KM]

    def journey(self, origin: int, destination: int, second: float) -> list[Ride]:
        """Return the rides from near one stop to near another; empty if there is no way."""
        goals = self.near(destination)
        first = self.ride({stop: second + WALK * self.apart[origin, stop] for stop in self.near(origin)})
        changes: dict[int, tuple[float, Ride]] = {}
        for stop, ride in first.items():
            for other in np.flatnonzero(self.apart[stop] <= 0.2).tolist():
                when = ride.ends + CHANGE_SECONDS + WALK * self.apart[stop, other]
                if other not in changes or when < changes[other][0]:
                    changes[other] = when, ride
        after = self.ride({stop: when for stop, (when, _) in changes.items()})
        ways = [[first[goal]] for goal in goals if goal in first]
        ways += [[changes[after[goal].board][1], after[goal]] for goal in goals if goal in after]
        there = {goal: WALK * self.apart[goal, destination] for goal in goals}
        return min(ways, key=lambda rides: (rides[-1].ends + there[rides[-1].alight], len(rides)), default=[])


class Known(NamedTuple):
    card: str
    time: str
    origin: str
    destination: str


def generate_taps(path: Path, first: date, num_days: int, riders: int, seed: int, out: Path) -> list[Known]:
    """Write taps of riders, without destinations, and return their trips."""
    generator, day = np.random.default_rng(seed), Day(path, first)
    ids, trips, taps = day.stops.ids, list[Known](), list[tuple[str, str, str, str]]()
    for rider in range(riders):
        home, work, shop = generator.choice(day.served, 3, replace=False).tolist()
        leave, stay = generator.uniform(6.5, 9.5) * 3600, generator.uniform(6, 9) * 3600
        for number in range(num_days):
            stops = [home, work, home]
            if generator.random() < 0.25:
                stops.insert(2, shop)
            if generator.random() < 0.1:
                stops = stops[:2]
            second = leave + generator.normal(0, 600)
            for here, there in pairwise(stops):
                rides = day.journey(here, there, second)
                if not rides:
                    break
                midnight = datetime.combine(first + timedelta(days=number), datetime.min.time())
                moments = [f"{midnight + timedelta(seconds=ride.starts)}" for ride in rides]
                card = f"c{rider}"
                taps += [(card, ids[r.board], when, r.route) for r, when in zip(rides, moments, strict=True)]
                trips.append(Known(card, moments[0], ids[rides[0].board], ids[rides[-1].alight]))
                second = rides[-1].ends + (stay if there == work else generator.uniform(0.5, 2) * 3600)
    with out.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(("card", "stop", "time", "route"))
        writer.writerows(sorted(taps, key=lambda tap: (tap[2], tap[0])))
    return trips


def measure(path: Path, first: date, num_days: int, riders: int, seed: int) -> dict[str, float]:
    """Return shares of trips, and how many are right: by us with and without routes, and by two simpler rules."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "taps.csv"
        trips = generate_taps(path, first, num_days, riders, seed, file)
        rides = gtfs.feed_rides(path)
        truth = {(trip.card, trip.time): trip for trip in trips}
        with file.open(encoding="utf-8") as stream:
            taps = list(csv.DictReader(stream))
        result: dict[str, float] = {"trips": len(trips), "taps": len(taps)}
        apart = haversine(rides.lat, rides.lon)

        def score(name: str, guesses: list[tuple[str, str, str]]) -> None:
            """Count guesses of (card, time, destination): those of no true trip are wrong."""
            near = [
                apart[rides.place_of[guess], rides.place_of[truth[card, time].destination]]
                for card, time, guess in guesses
                if (card, time) in truth
            ]
            result[f"{name}: guessed, of all trips"] = len(guesses) / len(trips)
            result[f"{name}: right stop"] = sum(one == 0 for one in near) / max(1, len(guesses))
            result[f"{name}: within 400 m"] = sum(one <= 0.4 for one in near) / max(1, len(guesses))

        for name, setting in (("taps", TapSetting()), ("taps with routes", TapSetting(route="route"))):
            found = infer_trips(file, rides, setting)
            rows = found.table.to_pylist()
            score(name, [(row["card"], row["time"], row["destination"]) for row in rows])
            result[f"{name}: not inferred"] = found.not_inferred
        following: dict[str, dict[str, str]] = {}
        plain = []
        for tap in reversed(taps):  # each tap is a trip to the next boarding, wherever that is
            if tap["card"] in following:
                plain.append((tap["card"], tap["time"], following[tap["card"]]["stop"]))
            following[tap["card"]] = tap
        score("next boarding itself", plain)
        served = sorted({place for place, _ in rides.after})
        closest = {
            place: min((other for other in served if other != place), key=lambda other: apart[place, other])
            for place in served
        }
        score(
            "nearest stop",
            [(tap["card"], tap["time"], rides.ids[closest[rides.place_of[tap["stop"]]]]) for tap in taps],
        )
    return result


if __name__ == "__main__":
    feed, riders = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 100
    print(json.dumps(measure(feed, date(2014, 6, 2), 5, riders, seed=1), indent=2))
