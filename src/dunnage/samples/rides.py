# SPDX-License-Identifier: Apache-2.0
"""Generated rides on a metro."""

from __future__ import annotations

import heapq
import itertools
import json
import os
import string
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from dunnage.arrays import FloatArray, IntArray
from dunnage.errors import ParameterError
from dunnage.exact import shown
from dunnage.samples.common import MAX_ROWS, card_names, choose, starter_policy, targets, texts

PASSENGER_TYPES = ("Adult", "Child/Student", "Senior Citizen")
PASSENGER_PARENTS = {
    "Child/Student": "Not Adult",
    "Senior Citizen": "Not Adult",
    "Not Adult": "Person",
    "Adult": "Person",
}
"""Parent of each passenger type (Bhati et al. 2021, Figure 2)."""
SERVICE_DAY = (5 * 3600, 24 * 3600)
"""First and last second at which a ride may start; public, and independent of the generated rides."""

_TYPE_SHARES = (0.86, 0.08, 0.06)
_RIDES_OF_CARD = (0.25, 0.55, 0.1, 0.1)
_TO_WORK = np.array([0.6, 0.75, 0.05])
_THERE = np.array([(8.1, 1.0), (7.5, 0.5), (10.5, 2.0)]) * 3600
_BACK = np.array([(17.9, 1.4), (14.6, 1.2), (14.0, 2.0)]) * 3600
_ERRAND = np.array((12.8, 3.8)) * 3600
_LAST_DEPARTURE = 21 * 3600
_SHORTEST_STAY = 900
_RING, _OFFSET, _SAME_PLACE = 0.45, 0.17, 0.07


@dataclass(frozen=True, kw_only=True)
class RideSetting:
    size: int = 10_000  # rides
    stations: int = 150
    lines: int = 8  # one ring, and others that cross it and each other

    def __post_init__(self) -> None:
        if not 1 <= self.size <= MAX_ROWS:
            raise ParameterError(f"size must be from 1 to {MAX_ROWS:,}. Got {shown(self.size)}.")
        if not 3 <= self.lines <= 12 or not 10 * self.lines <= self.stations <= 2_000:
            raise ParameterError(
                "a network must have 3 to 12 lines, at least 10 stations per line, and at most 2000 stations. "
                f"Got {self.lines} lines and {self.stations} stations."
            )


class _Metro(NamedTuple):
    """A network: names of stations, their places in a disc of radius 1, and pairs of neighbours."""

    names: tuple[str, ...]
    places: FloatArray
    edges: tuple[tuple[str, str], ...]


def metro_edges(stations: int = 150, lines: int = 8) -> tuple[tuple[str, str], ...]:
    """Return the pairs of neighbouring stations; ``C07`` is the seventh station of line C."""
    setting = RideSetting(stations=stations, lines=lines)
    return _metro(setting.stations, setting.lines).edges


@lru_cache(maxsize=8)
def _metro(num_stations: int, num_lines: int) -> _Metro:
    """Draw lines across a ring, with stations where they meet and end, and further stations in the widest gaps."""
    places, courses = _crossings(num_lines - 1)
    gaps: list[tuple[float, int, int, int]] = []
    for line, course in enumerate(courses):
        for number, pair in enumerate(itertools.pairwise(course)):
            heapq.heappush(gaps, (-float(np.linalg.norm(places[pair[0]] - places[pair[1]])), 0, line, number))
    for _ in range(num_stations - len(places)):
        width, inside, line, number = heapq.heappop(gaps)
        # The width of a gap is that between two of the stations already in it.
        heapq.heappush(gaps, (width * (inside + 1) / (inside + 2), inside + 1, line, number))
    filled = [[[first] for first in course[:-1]] for course in courses]
    for _, inside, line, number in gaps:
        start, end = (places[courses[line][number + step]] for step in (0, 1))
        for share in np.arange(1, inside + 1) / (inside + 1):
            filled[line][number].append(len(places))
            places.append(start + share * (end - start))
    routes = [
        [*itertools.chain.from_iterable(parts), course[-1]] for parts, course in zip(filled, courses, strict=True)
    ]
    names = [""] * len(places)  # each station has the name of its first line and its place there
    for letter, route in zip(string.ascii_uppercase, routes, strict=False):
        for place, station in enumerate(route, 1):
            names[station] = names[station] or f"{letter}{place:02d}"
    pairs = {(min(a, b), max(a, b)) for route in routes for a, b in itertools.pairwise(route)}
    return _Metro(tuple(names), np.array(places), tuple((names[a], names[b]) for a, b in sorted(pairs)))


def _crossings(num_chords: int) -> tuple[list[FloatArray], list[list[int]]]:
    """Return the places where lines end or meet, and the places of each line in order; the ring comes last."""
    angles = np.pi * np.arange(num_chords) / num_chords
    along = np.column_stack([np.cos(angles), np.sin(angles)])
    across = np.column_stack([-np.sin(angles), np.cos(angles)])
    numbers = np.arange(num_chords)
    offsets = _OFFSET * np.where(numbers % 2, -1.0, 1.0) * (0.4 + 0.6 * numbers / num_chords)
    places: list[FloatArray] = []
    passed: list[set[int]] = [set() for _ in range(num_chords + 1)]

    def stop(place: FloatArray, *lines: int) -> None:
        near = [number for number, other in enumerate(places) if np.linalg.norm(place - other) < _SAME_PLACE]
        if not near:
            places.append(place)
        for line in lines:
            passed[line].add(near[0] if near else len(places) - 1)

    for line in range(num_chords):
        for radius, others in ((1.0, ()), (_RING, (num_chords,))):
            reach = np.sqrt(radius**2 - offsets[line] ** 2)
            for side in (-reach, reach):
                stop(offsets[line] * across[line] + side * along[line], line, *others)
    for one, other in itertools.combinations(range(num_chords), 2):
        met = np.linalg.solve(across[[one, other]], offsets[[one, other]])
        if np.linalg.norm(met) < 1 - _SAME_PLACE:
            stop(met, one, other)
    chords = [
        sorted(passed[line], key=(np.array(places) @ along[line]).tolist().__getitem__) for line in range(num_chords)
    ]
    ring = sorted(passed[num_chords], key=lambda n: float(np.arctan2(*places[n])))
    return places, [*chords, [*ring, ring[0]]]


def rides(setting: RideSetting | int, seed: int | None = None) -> pa.Table:
    """Generate rides in the order of their start: ``card``, ``type``, ``board``, ``alight``, ``start`` (second of day).

    A card has one to four rides. The entropies of type, stations and start (in buckets of 900 s) are close to those in
    Bhati et al. 2021, Table 4.
    """
    if not isinstance(setting, RideSetting):
        setting = RideSetting(size=setting)
    generator = np.random.default_rng(seed)
    metro = _metro(setting.stations, setting.lines)
    # Every card has at least one ride, so there are enough cards.
    times = 1 + generator.choice(len(_RIDES_OF_CARD), setting.size, p=_RIDES_OF_CARD)
    num_cards = int(np.searchsorted(np.cumsum(times), setting.size)) + 1
    kind = generator.choice(len(_TYPE_SHARES), num_cards, p=_TYPE_SHARES)
    to_work = generator.random(num_cards) < _TO_WORK[kind]
    # starts : (4, cards), in order
    opens, closes = map(float, SERVICE_DAY)
    there = np.where(to_work[:, None], _THERE[kind], _ERRAND)
    out = _between(generator, there, np.full(num_cards, opens), np.full(num_cards, _LAST_DEPARTURE))
    earliest = np.maximum(out + 3600, _BACK[kind, 0] - 3 * 3600)
    back, by_turn = _between(generator, _BACK[kind], earliest, np.full(num_cards, closes)), [out]
    for turn in range(3):
        before = by_turn[-1]
        stay = np.minimum(_SHORTEST_STAY, (closes - before) / 2)
        later = before + stay + (closes - before - stay) * generator.beta(1.2, 2.8, num_cards)
        by_turn.append(later if turn else np.where(to_work & (out < 13 * 3600), back, later))
    starts = np.floor(by_turn).astype(np.int64)
    stops = _stops(metro, num_cards, generator)
    first = np.where((times[:num_cards] == 1) & (generator.random(num_cards) < 0.5), 1, 0)
    card = np.repeat(np.arange(num_cards), times[:num_cards])[: setting.size]
    turns = np.arange(setting.size) - np.repeat(np.cumsum(times) - times, times)[: setting.size] + first[card]
    order = np.argsort(starts[turns, card], kind="stable")
    card, turns = card[order], turns[order]
    return pa.table(
        {
            "card": card_names(generator.permutation(num_cards)[card]),
            "type": texts(PASSENGER_TYPES, kind[card]),
            "board": texts(metro.names, stops[turns, card]),
            "alight": texts(metro.names, stops[turns + 1, card]),
            "start": starts[turns, card],
        }
    )


def _between(generator: np.random.Generator, law: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    from scipy.special import ndtr, ndtri

    mean, sd = law.T
    start, stop = ndtr((low - mean) / sd), ndtr((high - mean) / sd)
    values = mean + sd * ndtri(start + (stop - start) * generator.random(len(mean)))
    return np.asarray(np.clip(values, low, high))


def _stops(metro: _Metro, num: int, generator: np.random.Generator) -> IntArray:
    """Generate the places of each card around its rides: home, a place, home, an errand, home. Shape: 5, cards."""
    far = np.linalg.norm(metro.places, axis=1)
    homes = np.exp(0.5 * far + 1.2 * generator.standard_normal(len(far)))
    goals = np.exp(-1.3 * far + 1.2 * generator.standard_normal(len(far)))
    apart = np.linalg.norm(metro.places[:, None] - metro.places[None], axis=2)
    weights = homes[:, None] * goals[None] * np.exp(-apart / 0.8) * (apart > 0)
    home, place = np.divmod(choose(weights.ravel(), generator.random(num)), len(far))
    # An errand for each home, by the weights of its row. All rows together are one increasing list.
    shares = np.cumsum(weights / weights.sum(axis=1, keepdims=True), axis=1)
    shares[:, -1] = 1.0
    until = (shares + np.arange(len(shares))[:, None]).ravel()
    errand = np.searchsorted(until, home + generator.random(num), side="right") - home * len(shares)
    return np.array([home, place, home, errand, home])


def rides_policy(dataset: str, edges: str) -> str:
    parents = "\n".join(f"{json.dumps(child)} = {json.dumps(parent)}" for child, parent in PASSENGER_PARENTS.items())
    stations = "\n".join(
        f'[attributes.{name}]\nrole = "quasi-identifier"\nkind = "graph"\nedges = {json.dumps(edges)}\n'
        for name in ("board", "alight")
    )
    start, end = SERVICE_DAY
    given = {"parents": parents, "stations": stations, "start": start, "end": end}
    return starter_policy("rides", dataset=json.dumps(dataset), **given)


def generate_rides(
    setting: RideSetting, out: str | os.PathLike[str], *, seed: int | None = None, force: bool = False
) -> tuple[Path, Path, Path]:
    """Write generated rides as CSV, with a starter policy and the edges of the network; return the paths."""
    path, policy, edges = targets(out, (".toml", ".edges.csv"), force)
    pacsv.write_csv(rides(setting, seed=seed), str(path))
    lines = ("from,to", *(f"{start},{end}" for start, end in metro_edges(setting.stations, setting.lines)))
    edges.write_text("\n".join(lines) + "\n", encoding="utf-8")
    policy.write_text(rides_policy(path.stem, edges.name), encoding="utf-8")
    return path, policy, edges
