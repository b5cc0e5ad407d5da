# SPDX-License-Identifier: Apache-2.0
"""Generated datasets for demos, documents, tests and benchmarks. Illustrations, not evidence.

Nothing here protects anyone, so ordinary seeded random numbers are used.
"""

from __future__ import annotations

import heapq
import itertools
import json
import os
import re
import string
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from dunnage.errors import OutputError, ParameterError

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

LAWS = ("uniform", "normal", "unequal")
_SETTING = re.compile(r"^(?P<size>[1-9]\d*)-(?P<items>[LS])(-(?P<law>U|N|Un))?$")
_CITIES = ("Antwerp", "Bremen", "Calais", "Dover", "Esbjerg", "Felixstowe", "Gdansk", "Hamburg", "Imatra", "Jakobstad")


@dataclass(frozen=True, kw_only=True)
class PackageSetting:
    """How package weights are drawn.

    Parameters
    ----------
    size
        Number of packages.
    law
        ``uniform`` on [low, high]; ``normal`` with mean and sd, truncated to [low, high]; ``unequal``: three quarters
        uniform on the lower half of [low, high], the rest on the upper half.
    low, high, mean, sd
        Parameters of the law.
    capacity
        Capacity of a truck in the paper the setting comes from.
    destinations
        Number of destinations; 0 leaves the column out.
    decimals
        Decimals a weight is recorded with.
    """

    size: int = 200
    law: str = "uniform"
    low: float = 125.0
    high: float = 375.0
    mean: float = 250.0
    sd: float = 100.0
    capacity: float = 500.0
    destinations: int = 0
    decimals: int = 0

    def __post_init__(self) -> None:
        if self.size < 1 or self.destinations < 0 or not 0 <= self.decimals <= 6:
            raise ParameterError(
                "size must be at least 1, destinations at least 0, decimals 0 to 6. "
                f"Got {self.size}, {self.destinations}, {self.decimals}."
            )
        if self.law not in LAWS:
            raise ParameterError(f"law must be one of {', '.join(LAWS)}. Got {self.law!r}.")
        if not 0 <= self.low < self.high < float("inf") or (self.law == "normal" and not self.sd > 0):
            raise ParameterError(
                f"weights need 0 <= low < high and sd > 0. Got low {self.low:g}, high {self.high:g}, sd {self.sd:g}."
            )
        if self.law == "normal" and not self.low - 4 * self.sd <= self.mean <= self.high + 4 * self.sd:
            raise ParameterError(f"the mean must lie within 4 sd of [low, high]. Got {self.mean:g}. Move it.")


def package_setting(name: str) -> PackageSetting:
    """Return a setting of the papers by its name.

    Parameters
    ----------
    name
        ``25-L-U``: number of packages, Large (capacity 500) or Small (2500) relative to the truck, and the law:
        ``U`` uniform on [125, 375], ``N`` normal(250, 100) on [0, 500], ``Un`` unequal halves. ``200-L`` is the
        hard instance of Scholl: uniform on [20000, 35000], capacity 100000.

    References
    ----------
    Hoogervorst et al. 2019, Table 2 (25-L-U, 50-L-U, 25-S-U, 50-S-U, 25-L-Un); Li et al. 2022, Tables 1 and 2.

    Examples
    --------
    >>> package_setting("25-S-U").capacity
    2500.0
    """
    match = _SETTING.match(name)
    if not match or (match["law"] is None and match["items"] == "S"):
        raise ParameterError(
            f"no setting {name!r}. Write packages-items-law, such as 25-L-U, 50-S-U, 25-L-N, 25-L-Un, or 200-L."
        )
    size = int(match["size"])
    if match["law"] is None:
        return PackageSetting(size=size, low=20_000.0, high=35_000.0, capacity=100_000.0)
    if match["law"] == "N":
        if match["items"] == "S":
            raise ParameterError(f"no setting {name!r}: the papers have normal weights for large items only. Use L-N.")
        return PackageSetting(size=size, law="normal", low=0.0, high=500.0)
    law = {"U": "uniform", "Un": "unequal"}[match["law"]]
    return PackageSetting(size=size, law=law, capacity=500.0 if match["items"] == "L" else 2500.0)


def draw_weights(setting: PackageSetting, generator: np.random.Generator) -> FloatArray:
    """Draw the weights of a setting, rounded to its decimals and kept within [low, high]."""
    low, high = setting.low, setting.high
    if setting.law == "normal":
        weights = _truncated_normal(setting, generator)
    elif setting.law == "unequal":
        num_light = round(0.75 * setting.size)
        middle = (low + high) / 2
        light = generator.uniform(low, middle, num_light)
        weights = generator.permutation(
            np.concatenate([light, generator.uniform(middle, high, setting.size - num_light)])
        )
    else:
        weights = generator.uniform(low, high, setting.size)
    return np.clip(np.round(weights, setting.decimals), low, high)


def _truncated_normal(setting: PackageSetting, generator: np.random.Generator) -> FloatArray:
    weights = np.empty(0)
    while len(weights) < setting.size:
        drawn = generator.normal(setting.mean, setting.sd, 2 * setting.size)
        weights = np.concatenate([weights, drawn[(drawn >= setting.low) & (drawn <= setting.high)]])
    return weights[: setting.size]


def packages(setting: PackageSetting, *, seed: int | None = None) -> pa.Table:
    """Generate packages: ``parcel_id``, ``destination`` if asked for, ``weight``.

    Examples
    --------
    >>> packages(package_setting("25-L-U"), seed=1).num_rows
    25
    """
    generator = np.random.default_rng(seed)
    weights = draw_weights(setting, generator)
    columns: dict[str, object] = {"parcel_id": [f"P{number:07d}" for number in range(1, setting.size + 1)]}
    if setting.destinations:
        names = np.array([_destination(number) for number in range(setting.destinations)])
        columns["destination"] = generator.permutation(names[np.arange(setting.size) % setting.destinations])
    columns["weight"] = weights
    return pa.table(columns)


def _destination(number: int) -> str:
    return (
        _CITIES[number] if number < len(_CITIES) else f"{_CITIES[number % len(_CITIES)]} {number // len(_CITIES) + 1}"
    )


def packages_policy(setting: PackageSetting, dataset: str) -> str:
    """Write the starter policy for generated packages."""
    destination = '\n[attributes.destination]\nrole = "public"\n' if setting.destinations else ""
    return f"""# Starter policy for generated packages. k is an example: choose your own.
dataset = {json.dumps(dataset)}
protects = "package"

[attributes.parcel_id]
role = "identifier"
{destination}
[attributes.weight]
role = "quasi-identifier"
kind = "numeric"
domain = [{setting.low:g}, {setting.high:g}]
resolution = {10.0**-setting.decimals:g}
unit = "kg"

[mechanism]
name = "partition"
k = 5
statistic = "multiset"
"""


def generate_packages(
    setting: PackageSetting, out: str | os.PathLike[str], *, seed: int | None = None, force: bool = False
) -> tuple[Path, Path]:
    """Write generated packages as CSV, and a starter policy beside it.

    Returns
    -------
    tuple
        The paths of the CSV file and of the policy.
    """
    path, policy = _targets(out, (".csv", ".toml"), force)
    pacsv.write_csv(packages(setting, seed=seed), str(path))
    policy.write_text(packages_policy(setting, path.stem), encoding="utf-8")
    return path, policy


def _targets(out: str | os.PathLike[str], endings: tuple[str, ...], force: bool) -> list[Path]:
    """Name the files to write, the first as it was asked for; refuse to write over others."""
    path = Path(out)
    if path.suffix != ".csv":
        raise OutputError(f"{path} must end in .csv. Choose such a name.")
    targets = [path.with_suffix(ending) for ending in endings]
    for target in targets:
        if target.exists() and not force:
            raise OutputError(f"{target} exists already. Choose another name, or replace it with --force.")
    if not path.parent.is_dir():
        raise OutputError(f"{path.parent} is not a folder. Make it first.")
    return targets


# Rides on a metro

PASSENGER_TYPES = ("Adult", "Child/Student", "Senior Citizen")
PASSENGER_PARENTS = {
    "Child/Student": "Not Adult",
    "Senior Citizen": "Not Adult",
    "Not Adult": "Person",
    "Adult": "Person",
}
"""Parent of each passenger type (Bhati et al. 2021, Figure 2)."""
SERVICE_DAY = (5 * 3600, 24 * 3600)
"""First and last second at which a ride may start: public, whatever was drawn."""

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
    """How rides are drawn.

    Parameters
    ----------
    size
        Number of rides.
    stations, lines
        Stations of the network, and its lines: one ring, and others across it that meet it and each other.
    """

    size: int = 10_000
    stations: int = 150
    lines: int = 8

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ParameterError(f"size must be at least 1. Got {self.size}.")
        if not 3 <= self.lines <= 12 or not 10 * self.lines <= self.stations <= 2_000:
            raise ParameterError(
                "a network has 3 to 12 lines, and 10 stations a line or more, at most 2000. "
                f"Got {self.lines} lines and {self.stations} stations."
            )


@dataclass(frozen=True, eq=False)
class _Metro:
    """A network: names and places of its stations, in a disc of radius 1, and which are next to each other."""

    names: tuple[str, ...]
    places: FloatArray
    edges: tuple[tuple[str, str], ...]


def metro_edges(stations: int = 150, lines: int = 8) -> tuple[tuple[str, str], ...]:
    """Return which stations of the generated network are next to each other; the same for every seed.

    A station is called by a line that it is on and its place there: ``C07``.

    Examples
    --------
    >>> len({station for edge in metro_edges() for station in edge})
    150
    """
    setting = RideSetting(stations=stations, lines=lines)
    return _metro(setting.stations, setting.lines).edges


@lru_cache(maxsize=8)
def _metro(num_stations: int, num_lines: int) -> _Metro:
    """Lay lines across a ring, make stations where they meet and at their ends, and the others in the widest gaps."""
    places, courses = _crossings(num_lines - 1)
    gaps: list[tuple[float, int, int, int]] = []
    for line, course in enumerate(courses):
        for number, pair in enumerate(itertools.pairwise(course)):
            heapq.heappush(gaps, (-float(np.linalg.norm(places[pair[0]] - places[pair[1]])), 0, line, number))
    for _ in range(num_stations - len(places)):
        width, inside, line, number = heapq.heappop(gaps)
        # A gap that holds so many stations already is as wide as what is left between two of them.
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
    names = _station_names(routes, len(places))
    pairs = {(min(a, b), max(a, b)) for route in routes for a, b in itertools.pairwise(route)}
    return _Metro(tuple(names), np.array(places), tuple((names[a], names[b]) for a, b in sorted(pairs)))


def _crossings(num_chords: int) -> tuple[list[FloatArray], list[list[int]]]:
    """Return the places where lines end or meet, and those that each line passes, in order; the ring comes last."""
    angles = np.pi * np.arange(num_chords) / num_chords
    along = np.column_stack([np.cos(angles), np.sin(angles)])
    across = np.column_stack([-np.sin(angles), np.cos(angles)])
    offsets = (
        _OFFSET * np.where(np.arange(num_chords) % 2, -1.0, 1.0) * (0.4 + 0.6 * np.arange(num_chords) / num_chords)
    )
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


def _station_names(routes: list[list[int]], num: int) -> list[str]:
    """Call each station by the first line it is on and its place there."""
    names = [""] * num
    for letter, route in zip(string.ascii_uppercase, routes, strict=False):
        for place, station in enumerate(route, 1):
            names[station] = names[station] or f"{letter}{place:02d}"
    return names


def rides(setting: RideSetting | int, seed: int | None = None) -> pa.Table:
    """Generate rides in the order of their start: ``card``, ``type``, ``board``, ``alight``, ``start`` (second of day).

    A card has one to four rides: from home to a place of work or an errand, back, and perhaps another errand. Homes
    lie rather outside, places to go to inside, near ones are chosen more often, and some stations are far busier than
    others. Most go to work in the morning and back in the evening. Shares are such that the entropies of type,
    stations and start (in buckets of 900 s) are about as those of the rides in Bhati et al. 2021, Table 4.

    Parameters
    ----------
    setting
        The setting, or the number of rides.
    seed
        Seed, for the same rides again.

    Examples
    --------
    >>> rides(100, seed=1).column_names
    ['card', 'type', 'board', 'alight', 'start']
    """
    if not isinstance(setting, RideSetting):
        setting = RideSetting(size=setting)
    generator = np.random.default_rng(seed)
    metro = _metro(setting.stations, setting.lines)
    # Every card has a ride at least, so that there are cards enough.
    times = 1 + generator.choice(len(_RIDES_OF_CARD), setting.size, p=_RIDES_OF_CARD)
    num_cards = int(np.searchsorted(np.cumsum(times), setting.size)) + 1
    kind = generator.choice(len(_TYPE_SHARES), num_cards, p=_TYPE_SHARES)
    to_work = generator.random(num_cards) < _TO_WORK[kind]
    # starts : (4, cards) ; stops : (5, cards), where a card is before, between and after its rides
    starts = _start_times(kind, to_work, generator)
    stops = _stops(metro, num_cards, generator)
    first = np.where((times[:num_cards] == 1) & (generator.random(num_cards) < 0.5), 1, 0)
    card = np.repeat(np.arange(num_cards), times[:num_cards])[: setting.size]
    turn = np.arange(setting.size) - np.repeat(np.cumsum(times) - times, times)[: setting.size] + first[card]
    order = np.argsort(starts[turn, card], kind="stable")
    card, turn = card[order], turn[order]
    return pa.table(
        {
            "card": _card_names(generator.permutation(num_cards)[card]),
            "type": _texts(PASSENGER_TYPES, kind[card]),
            "board": _texts(metro.names, stops[turn, card]),
            "alight": _texts(metro.names, stops[turn + 1, card]),
            "start": starts[turn, card],
        }
    )


def _texts(labels: tuple[str, ...], codes: IntArray) -> pa.Array:
    return pa.array(labels, pa.string()).take(pa.array(codes))


def _card_names(numbers: IntArray) -> pa.Array:
    text = pc.utf8_lpad(pa.array(numbers + 1).cast(pa.string()), 7, "0")
    return pc.binary_join_element_wise("C", text, "")


def _start_times(kind: IntArray, to_work: npt.NDArray[np.bool_], generator: np.random.Generator) -> IntArray:
    """Draw when each card's rides start, each after the one before. Shape: rides, cards."""
    opens, closes = map(float, SERVICE_DAY)
    there = np.where(to_work[:, None], _THERE[kind], _ERRAND)
    first = _between(generator, there, np.full(len(kind), opens), np.full(len(kind), _LAST_DEPARTURE))
    back = _between(
        generator, _BACK[kind], np.maximum(first + 3600, _BACK[kind, 0] - 3 * 3600), np.full(len(kind), closes)
    )
    starts = [first, np.where(to_work & (first < 13 * 3600), back, _later(first, closes, generator))]
    for _ in range(2):
        starts.append(_later(starts[-1], closes, generator))
    return np.asarray(np.floor(starts), dtype=np.int64)


def _later(before: FloatArray, closes: float, generator: np.random.Generator) -> FloatArray:
    stay = np.minimum(_SHORTEST_STAY, (closes - before) / 2)
    return np.asarray(before + stay + (closes - before - stay) * generator.beta(1.2, 2.8, len(before)))


def _between(generator: np.random.Generator, law: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    """Draw from normal laws (mean and sd of each), truncated to bounds."""
    from scipy.special import ndtr, ndtri

    mean, sd = law[:, 0], law[:, 1]
    least, most = ndtr((low - mean) / sd), ndtr((high - mean) / sd)
    drawn = mean + sd * ndtri(least + (most - least) * generator.random(len(mean)))
    return np.asarray(np.clip(drawn, low, high))


def _stops(metro: _Metro, num: int, generator: np.random.Generator) -> IntArray:
    """Draw where each card is before, between and after its rides: home, a place, home, an errand, home."""
    far = np.linalg.norm(metro.places, axis=1)
    homes = np.exp(0.5 * far + 1.2 * generator.standard_normal(len(far)))
    goals = np.exp(-1.3 * far + 1.2 * generator.standard_normal(len(far)))
    apart = np.linalg.norm(metro.places[:, None] - metro.places[None], axis=2)
    drawn = homes[:, None] * goals[None] * np.exp(-apart / 0.8) * (apart > 0)
    home, place = np.divmod(_choose(drawn.ravel(), num, generator), len(far))
    errand = _errands(drawn, home, generator)
    return np.array([home, place, home, errand, home])


def _choose(weights: FloatArray, num: int, generator: np.random.Generator) -> IntArray:
    until = np.cumsum(weights)
    drawn = np.searchsorted(until, generator.random(num) * until[-1], side="right")
    return np.asarray(np.minimum(drawn, len(weights) - 1), dtype=np.int64)


def _errands(weights: FloatArray, home: IntArray, generator: np.random.Generator) -> IntArray:
    """Draw a place for each home, by the weights of its row."""
    shares = np.cumsum(weights / weights.sum(axis=1, keepdims=True), axis=1)
    shares[:, -1] = 1.0
    # All rows one after the other are one increasing list.
    found = np.searchsorted(
        (shares + np.arange(len(shares))[:, None]).ravel(), home + generator.random(len(home)), side="right"
    )
    return np.asarray(found - home * len(shares), dtype=np.int64)


def rides_policy(dataset: str, edges: str) -> str:
    """Write the starter policy for generated rides.

    Parameters
    ----------
    dataset
        Name for the ledger.
    edges
        Name of the file with the network, beside the policy.
    """
    parents = "\n".join(f"{json.dumps(child)} = {json.dumps(parent)}" for child, parent in PASSENGER_PARENTS.items())
    stations = "\n".join(
        f'[attributes.{name}]\nrole = "quasi-identifier"\nkind = "graph"\nedges = {json.dumps(edges)}\n'
        for name in ("board", "alight")
    )
    return f"""# Starter policy for generated rides. k is an example: choose your own.
dataset = {json.dumps(dataset)}
protects = "ride"

[contribution]
person = "card"            # a class holds rides of at least k cards

[attributes.card]
role = "identifier"

[attributes.type]
role = "quasi-identifier"
kind = "tree"
[attributes.type.parents]
{parents}

{stations}
[attributes.start]
role = "quasi-identifier"
kind = "numeric"
domain = [{SERVICE_DAY[0]}, {SERVICE_DAY[1]}]     # seconds of the service day
resolution = 1
unit = "s"

[mechanism]
name = "utility-clusters"
k = 10
"""


def generate_rides(
    setting: RideSetting, out: str | os.PathLike[str], *, seed: int | None = None, force: bool = False
) -> tuple[Path, Path, Path]:
    """Write generated rides as CSV, and beside it a starter policy and the edges of the network.

    Returns
    -------
    tuple
        The paths of the CSV file, of the policy and of the edges.
    """
    path, policy, edges = _targets(out, (".csv", ".toml", ".edges.csv"), force)
    pacsv.write_csv(rides(setting, seed=seed), str(path))
    lines = ("from,to", *(f"{start},{end}" for start, end in metro_edges(setting.stations, setting.lines)))
    edges.write_text("\n".join(lines) + "\n", encoding="utf-8")
    policy.write_text(rides_policy(path.stem, edges.name), encoding="utf-8")
    return path, policy, edges
