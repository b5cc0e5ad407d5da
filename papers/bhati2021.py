# SPDX-License-Identifier: Apache-2.0
"""Bhati et al. 2021: k-anonymity by utility-driven clustering. Tables 2-4, Figures 3-10, every figure in the text.

The paper's day of rides is not public, so rides are generated: about 150 stations of a metro-like network, three
passenger types, two rush hours. Distortion is the paper's (eqs. 14-20). The range of start times is that of the
generated table, as in eq. 20. Class costs are weighted by the scenario's own importance where classes are formed;
totals are given under it, under automatic importance (as the paper does, below eq. 15) and under equal importance. The
worked example is in ``bhati2021_example``.

References
----------
Bhati, Ivanchev, Bojic, Datta, Eckhoff 2021, Utility-Driven k-Anonymization of Public Transport User Data. IEEE Access
9.
"""

from __future__ import annotations

import heapq
import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

import dunnage as dn
from dunnage import samples
from dunnage.arrays import FloatArray, IntArray
from dunnage.kernels.clusters.growth import Constraints, Metric, distance_deviations, grow
from dunnage.kernels.clusters.published import place_left_over, published_density, published_greedy
from dunnage.kernels.clusters.refine import dissolve, refine
from papers import bhati2021_example as example
from papers import report
from papers.measuring import Run, Runs, efforts, in_parallel, mean_sd, written
from papers.report import Curve, Quoted, Statements, Svg, verdict

CodeArray = npt.NDArray[np.int32]

ATTRIBUTES = ("start", "type", "board", "alight")  # in the order of a metric: numeric ones first
TYPE, BOARD, ALIGHT, START = "type", "board", "alight", "start"
IN_TABLE_4 = (TYPE, BOARD, ALIGHT, START)
BUCKET = 900  # seconds of a bucket of start times, for entropy

OD, RST, PT, EQ, AUTO = "S_OD", "S_RST", "S_PT", "S_EQ", "S_AUTO"
VALUES = written("bhati2021")["values"]
FACTORS: dict[str, dict[str, int] | None] = {**VALUES["factors"], AUTO: None}  # automatic ones are entropies
TABLE_4: dict[str, tuple[float, ...]] = VALUES["table 4"]  # as printed, in the order of ``IN_TABLE_4``

UNIT, MAXIMUM = "unit variance", "maximum"
GREEDY, DENSITY, GROWTH, REFINED = "greedy", "density", "growth", "growth, refined"
DISSOLVED, PERSONS = "density, dissolved", "growth, k persons"
WITHIN = "density, neighbours within limits"  # step 2b of the text: neighbours are chosen so that no limit breaks
PUBLISHED = (GREEDY, DENSITY)
LIMITED = {OD: (BOARD, ALIGHT), RST: (START,)}  # attributes that suppression limits are set on
TOP = 20  # pairs of stations that the application metric looks at
BINS = 20  # bars of a histogram of attribute distortion


if TYPE_CHECKING:  # the class is made from what is written
    Effort: TypeAlias = Any
    FULL: Any
    QUICK: Any
else:
    Effort, FULL, QUICK = efforts(__name__)


@dataclass(frozen=True, eq=False, repr=False)
class Rides:
    """A table of rides as numbers and codes, with the distances of its codes."""

    start: FloatArray  # second of the day
    codes: CodeArray  # passenger type, boarding and alighting station. Shape: 3, records
    tables: tuple[FloatArray, FloatArray, FloatArray]  # distances of passenger types, and of stations twice
    person: IntArray  # code of the card

    def __len__(self) -> int:
        return len(self.start)

    @property
    def diameters(self) -> FloatArray:
        """Largest distance of each attribute, in the order of ``ATTRIBUTES``."""
        return np.array([np.ptp(self.start), *(table.max() for table in self.tables)])

    def entropies(self) -> FloatArray:
        """Return eq. 1 for each attribute, in bits; start times in buckets."""
        columns = [(self.start // BUCKET).astype(np.int64), *self.codes.astype(np.int64)]
        return np.array([entropy(np.bincount(column)) for column in columns])

    def weights(self, scenario: str) -> FloatArray:
        """Return the importance of each attribute in a scenario (eq. 2), in the order of ``ATTRIBUTES``."""
        factors = FACTORS[scenario]
        given = self.entropies() if factors is None else np.array([factors[name] for name in ATTRIBUTES], dtype=float)
        return given / given.sum()

    def metric(self, scenario: str, scaling: str = UNIT) -> Metric:
        weights, numbers = self.weights(scenario), self.start[None]
        scale = distance_deviations(numbers, self.codes, self.tables) if scaling == UNIT else self.diameters
        return Metric(numbers, self.codes, self.tables, weights / self.diameters, weights / scale)


def entropy(counts: IntArray) -> float:
    share = counts[counts > 0] / counts.sum()
    return float(-(share * np.log2(share)).sum())


@lru_cache(maxsize=4)
def drawn(size: int, draw: int) -> Rides:
    table = samples.rides(size, seed=int(np.random.SeedSequence([2021, draw]).generate_state(1)[0]))
    types = dn.Tree(parents=samples.PASSENGER_PARENTS)
    stations = dn.Graph(edges=samples.metro_edges())
    columns = [(types, TYPE), (stations, BOARD), (stations, ALIGHT)]
    codes = [domain.codes(table.column(name).to_pylist()) for domain, name in columns]
    return Rides(
        start=table.column(START).to_numpy().astype(np.float64),
        codes=np.array(codes, dtype=np.int32),
        tables=(types.distances(), stations.distances(), stations.distances()),
        person=np.unique(table.column("card").to_numpy(zero_copy_only=False), return_inverse=True)[1].astype(np.int64),
    )


@dataclass(frozen=True, kw_only=True)
class Job:
    draw: int  # draw, size: which table, and its records
    size: int
    scenario: str
    method: str
    scaling: str
    k: int
    limit: float = math.inf  # largest generalisation of the attributes that the scenario limits; none without one
    refine_seconds: float = 0.0  # time for local search


CASE = ("draw", "size", "scenario", "method", "scaling", "k", "limit")


class Clustered(Run):
    @property
    def stations(self) -> float:
        return (self.board + self.alight) / 2


def clustered(rides: Rides, job: Job) -> tuple[IntArray, float]:
    """Cluster rides; return the class of each record and the CPU seconds taken."""
    metric = rides.metric(job.scenario, job.scaling)
    limits = None
    if not math.isinf(job.limit):
        limits = np.array([job.limit if name in LIMITED[job.scenario] else math.inf for name in ATTRIBUTES])
    start = time.process_time()
    if job.method == GREEDY:
        order = np.random.default_rng([2021, job.draw]).permutation(len(rides))
        found = published_greedy(metric, job.k, order=order, limits=limits)
    elif job.method == WITHIN:
        found = within_limits(metric, job.k, np.full(len(ATTRIBUTES), math.inf) if limits is None else limits)
    elif job.method in (DENSITY, DISSOLVED):
        found = published_density(metric, job.k, limits=limits)
        if job.method == DISSOLVED:
            found = dissolve(metric, found, job.k, constraints=Constraints())  # records may be left out
    else:
        constraints = None if limits is None else Constraints(limits=limits)
        person = rides.person if job.method == PERSONS else None
        found = grow(metric, job.k, constraints=constraints, person=person)
        if job.method == REFINED:
            found = refine(metric, found, job.k, seconds=job.refine_seconds, constraints=constraints)
    return found, time.process_time() - start


def within_limits(metric: Metric, k: int, limits: FloatArray) -> IntArray:
    """Form density classes whose neighbours are the nearest that break no limit; a head without enough is suppressed.

    Algorithm 1 suppresses a head as soon as the class of its nearest neighbours breaks a limit; step 2b of the text
    passes over such neighbours instead. Plain and slow.
    """
    num, tables = len(metric), [None] * len(metric.numbers) + list(metric.tables)
    columns = [*metric.numbers, *metric.codes]

    def gaps(axis: int, record: int) -> FloatArray:
        column, table = columns[axis], tables[axis]
        return np.asarray(np.abs(column - column[record]) if table is None else table[column[record]][column])

    def nearest(head: int) -> tuple[float, list[int]]:
        apart = sum(near * gaps(axis, head) for axis, near in enumerate(metric.near))
        allowed, members, total = living.copy(), [head], 0.0
        allowed[head] = False
        while len(members) < k:
            for axis in np.flatnonzero(np.isfinite(limits)).tolist():
                allowed &= gaps(axis, members[-1]) <= limits[axis]
            if not allowed.any():
                return math.inf, members
            chosen = int(np.argmin(np.where(allowed, apart, math.inf)))
            allowed[chosen] = False
            members.append(chosen)
            total += float(apart[chosen])
        return total, members

    living, of_record, number = np.ones(num, dtype=bool), np.full(num, -1, dtype=np.int64), 0
    heap = [(-1.0, record) for record in range(num)]
    recorded: dict[int, list[int]] = {}
    while living.sum() >= k and heap:
        total, head = heap[0]
        if not living[head]:
            heapq.heappop(heap)
        elif math.isinf(total):  # no class within the limits is left for it
            living[head] = False
        elif head not in recorded or not living[recorded[head]].all():
            now, recorded[head] = nearest(head)
            heapq.heapreplace(heap, (now, head))
        else:
            of_record[recorded[head]], living[recorded[head]] = number, False
            number += 1
    left_over = np.flatnonzero(living)
    if len(left_over) and number:
        place_left_over(of_record, left_over, np.ascontiguousarray(metric.widths(of_record).T), limits, metric.arrays)
    return of_record


def measure(job: Job) -> list[Run]:
    """Cluster and measure; then, of each attribute, shares of records by distortion in equal bars from 0 to 1."""
    rides = drawn(job.size, job.draw)
    of_record, seconds = clustered(rides, job)
    found: list[Run] = [measured(rides, job, of_record, seconds)]
    if math.isinf(job.limit) and job.scaling == UNIT:
        case = {key: getattr(job, key) for key in ("draw", "size", "k", "scenario", "method")}
        for name, row in zip(ATTRIBUTES, shares_of_diameter(rides, of_record), strict=True):
            of_each = np.where(of_record >= 0, row[of_record], 1.0)  # suppressed records count 1
            counts, _ = np.histogram(of_each, bins=BINS, range=(0.0, 1.0))
            found.append(Run(**case, attribute=name, shares=tuple((counts / len(of_record)).tolist())))
    return found


def measured(rides: Rides, job: Job, of_record: IntArray, seconds: float) -> Clustered:
    by_attribute = distortions(rides, of_record)
    values = dict(zip(ATTRIBUTES, by_attribute.tolist(), strict=True))
    sizes, num = np.bincount(of_record[of_record >= 0]), len(of_record)
    persons, types = (distinct(of_record, own) for own in (rides.person, rides.codes[0]))
    return Clustered(
        **{name: getattr(job, name) for name in CASE},
        **{name: values[name] for name in IN_TABLE_4},  # eq. 18
        total=float(rides.weights(job.scenario) @ by_attribute),  # eq. 14, under the scenario's own importance
        total_auto=float(rides.weights(AUTO) @ by_attribute),
        total_equal=float(by_attribute.mean()),
        suppressed=float((of_record < 0).mean()),
        classes=len(sizes),
        smallest=int(sizes.min(initial=num)),
        persons=int(persons.min(initial=num)),  # distinct cards of the class that has fewest
        too_few=float((persons < job.k).mean()) if len(persons) else 0.0,  # share of classes with fewer than k cards
        one_type=float((types == 1).mean()) if len(types) else 0.0,
        **top_pairs(rides, of_record),
        **mean_start(rides, of_record),
        seconds=seconds,
    )


def shares_of_diameter(rides: Rides, of_record: IntArray) -> FloatArray:
    """Return eq. 20 for each attribute and class."""
    return rides.metric(EQ, MAXIMUM).widths(of_record) / rides.diameters[:, None]


def distortions(rides: Rides, of_record: IntArray) -> FloatArray:
    """Return the distortion of each attribute by generalisation and suppression (eqs. 18-20)."""
    kept = of_record[of_record >= 0]
    lost = len(of_record) - len(kept)
    sums = shares_of_diameter(rides, of_record) @ np.bincount(kept) if len(kept) else np.zeros(len(ATTRIBUTES))
    return np.asarray((sums + lost) / len(of_record))


def distinct(of_record: IntArray, values: npt.NDArray[np.integer]) -> IntArray:
    inside = of_record >= 0
    pairs = np.unique(np.stack([of_record[inside], values[inside].astype(np.int64)]), axis=1)
    return np.bincount(pairs[0]).astype(np.int64)


def top_pairs(rides: Rides, of_record: IntArray) -> dict[str, float]:
    """Return the mean difference of passengers between the original's top pairs, by reading of a set of stations.

    A record is spread evenly over the pairs it may be; counted with every pair it may be; or counted only if its pair
    is certain.
    """
    board, alight = rides.codes[1].astype(np.int64), rides.codes[2].astype(np.int64)
    num = len(rides.tables[1])
    counts = np.bincount(board * num + alight, minlength=num * num)
    best = np.argsort(-counts, kind="stable")[:TOP]
    sizes = np.bincount(of_record[of_record >= 0])
    inside, members = of_record >= 0, np.zeros((2, len(sizes), num), dtype=bool)  # stations of each class, both ends
    for own, column in zip(members, (board, alight), strict=True):
        own[of_record[inside], column[inside]] = True
    from_, to = members
    pairs = from_.sum(axis=1) * to.sum(axis=1)
    possible = from_[:, best // num] & to[:, best % num]
    readings = {"spread": sizes / np.maximum(pairs, 1), "possible": sizes, "certain": sizes * (pairs == 1)}
    return {f"od_{name}": float(np.abs(each @ possible - counts[best]).mean()) for name, each in readings.items()}


def mean_start(rides: Rides, of_record: IntArray) -> dict[str, float]:
    """Return how far the published mean start time is off, by lower ends of intervals (as the paper) and by middles."""
    inside = of_record >= 0
    num = int(of_record.max(initial=-1)) + 1
    low, high = np.full(num, np.inf), np.full(num, -np.inf)
    np.minimum.at(low, of_record[inside], rides.start[inside])
    np.maximum.at(high, of_record[inside], rides.start[inside])
    if not num:
        return {"start_lower": math.nan, "start_middle": math.nan}
    stated = {"start_lower": low, "start_middle": (low + high) / 2}
    truth = rides.start.mean()
    return {name: float(abs(values[of_record[inside]].mean() - truth)) for name, values in stated.items()}


def jobs(effort: Effort) -> list[Job]:
    cases: list[dict[str, Any]] = []
    for k in effort.ks:
        cases += [{"scenario": s, "method": m, "k": k} for s in FACTORS for m in (DENSITY, GROWTH, REFINED)]
        cases += [{"scenario": AUTO, "method": method, "k": k} for method in (GREEDY, PERSONS, DISSOLVED)]
        for method in PUBLISHED:
            cases.append({"scenario": AUTO, "method": method, "k": k, "scaling": MAXIMUM})
            cases += [{"scenario": AUTO, "method": method, "k": k, "size": size} for size in effort.sizes]
    for scenario, limits in effort.limits.items():
        at = {"scenario": scenario, "k": effort.limit_k}
        cases += [{**at, "method": method, "limit": limit} for limit in limits for method in (DENSITY, GROWTH)]
        cases.append({**at, "method": DISSOLVED})
        few = {**at, "size": min(effort.sizes)}  # the plain form is slow
        ends = (*limits, math.inf)
        cases += [{**few, "method": method, "limit": limit} for limit in ends for method in (DENSITY, WITHIN)]
    seconds = {REFINED: effort.refine_seconds}
    todo = dict.fromkeys(
        Job(**{"size": effort.size, "scaling": UNIT, **one}, draw=draw, refine_seconds=seconds.get(one["method"], 0.0))
        for draw, one in itertools.product(range(effort.draws), cases)
    )
    return sorted(todo, key=lambda job: (-job.refine_seconds, -job.size, job.method != DENSITY))


def warm_up() -> None:
    for method in (GREEDY, DENSITY, WITHIN, DISSOLVED, GROWTH, PERSONS, REFINED):
        small = Job(draw=0, size=200, scenario=OD, method=method, scaling=UNIT, k=5, refine_seconds=0.2)
        measure(small)
        if method in (DENSITY, GROWTH):
            measure(replace(small, limit=8.0))


@dataclass(frozen=True, eq=False)
class Results(Runs):
    histograms: Sequence[Run] = ()
    KIND = CASE[1:]

    @classmethod
    def of(cls, found: Sequence[Run], effort: Effort) -> Results:
        runs = [item for item in found if not hasattr(item, "shares")]
        runs.sort(key=lambda run: tuple(str(getattr(run, name)).rjust(12) for name in CASE))
        return cls(runs, effort, [item for item in found if hasattr(item, "shares")])

    def usual(self) -> dict[str, object]:
        usual = {"scenario": AUTO, "method": DENSITY, "scaling": UNIT, "limit": math.inf}
        return {**usual, "size": self.effort.size}

    def means(self, column: str, by: str, values: Iterable[Any], **kind: Any) -> dict[Any, float]:
        """Return the mean of a measure for each value of what tells kinds apart."""
        return {value: self.mean(column, **{**kind, by: value}) for value in values}

    def shares(self, scenario: str, method: str, attribute: str) -> FloatArray:
        """Return the mean histogram of an attribute, at the k of the limits."""
        wanted = (self.effort.size, self.effort.limit_k, scenario, method, attribute)
        found = [b.shares for b in self.histograms if (b.size, b.k, b.scenario, b.method, b.attribute) == wanted]
        return np.mean(found, axis=0)


# What the text states


NEAR = 0.03
SHARE = 1 / 3
_DATA = "the rides are generated; the paper's day of one city is not public"
_LOST = "a suppressed record costs 1, as much as a class costs at most"
says = Statements("bhati2021", data=_DATA, lost=_LOST)
_READING = "the paper does not say how a record with sets of stations is counted"


def quoted(results: Results) -> list[Quoted]:
    parts = (_worked_example, _figures_3_4, _figures_5_7, _figures_8_10, _formulas)
    return [line for part in parts for line in part(results)]


def _near(paper: float, ours: float, why: str = _DATA) -> str:
    return verdict(abs(ours - paper) <= max(NEAR, SHARE * paper), why)


def _listed(values: dict[str, float], form: str = ".3f") -> str:
    return ", ".join(f"{name} {value:{form}}" for name, value in values.items())


def _worked_example(results: Results) -> Iterator[Quoted]:
    distances = [example.TYPES.distance("SeC", "C/S"), *(example.STATIONS.distance("A", other) for other in "BD")]
    ours = "; ".join(f"{distance:g}" for distance in distances)
    yield says("distances-senior-citizen-to", ours=ours, agrees=distances == [1, 1, 2])
    rows = example.table()
    found = " ".join("{" + str(row["records"]).replace("r", "").replace(" ", "") + "}" for row in rows)
    yield says("classes-of-the-eight", ours=found, agrees=found == "{1,2} {3,6} {4,7} {5,8}")
    as_printed = [row["as printed"] for row in rows]
    yield says("generalised-values-of-these", ours=as_printed.count("yes"), agrees=as_printed == ["yes"] * 4)
    for scenario, printed in TABLE_4.items():
        drawn_ = [drawn(results.effort.size, draw).weights(scenario) for draw in range(results.effort.draws)]
        by_name = dict(zip(ATTRIBUTES, np.mean(drawn_, axis=0).tolist(), strict=True))
        weights, automatic = [by_name[name] for name in IN_TABLE_4], FACTORS[scenario] is None
        # The paper cuts digits off (5/12 is printed as 0.416); automatic weights depend on the rides.
        off = max(abs(weight - value) for weight, value in zip(weights, printed, strict=True))
        # Rides are generated to come near to the automatic importance.
        near = says.sentence("automatic", NEAR) if off <= NEAR else f"differs: {_DATA}"
        yield says(
            "importance-in-2",
            what=(scenario, ", ".join(IN_TABLE_4), " (entropy in bits)" if automatic else ""),
            paper=", ".join(f"{value:g}" for value in printed),
            ours=", ".join(f"{weight:.3f}" for weight in weights),
            verdict=near if automatic else verdict(off < 0.001, "arithmetic"),
        )


def _figures_3_4(results: Results) -> Iterator[Quoted]:
    ways = {f"{m}, {s}": {"method": m, "scaling": s} for m in PUBLISHED for s in (UNIT, MAXIMUM)}
    for k in _shown(results, (5, 20)):
        found = {name: results.mean("total", k=k, **way) for name, way in ways.items()}
        better = all(found[f"{m}, {UNIT}"] < found[f"{m}, {MAXIMUM}"] for m in PUBLISHED)
        yield says("total-distortion-is-lower", what=k, ours=_listed(found), agrees=better)
        one, other = (_attributes(results, k=k, scaling=scaling) for scaling in (UNIT, MAXIMUM))
        more = {TYPE: True, BOARD: False, ALIGHT: False, START: True}  # whether unit variance distorts it more
        missed = ", ".join(
            name for name in more if not (one[name] > other[name] if more[name] else one[name] < other[name])
        )
        ours = _listed(one), _listed(other)
        yield says("unit-variance-distorts-types", what=k, ours=ours, agrees=not missed, differs=missed)
    for k in _shown(results, (5, 20)):
        found = results.means("total", "method", (GREEDY, DENSITY, GROWTH, REFINED), k=k)
        beside = ", ".join(f"{m} {found[m]:.3f} ({found[m] / found[DENSITY] - 1:+.0%})" for m in (GROWTH, REFINED))
        ours, agrees = (found[GREEDY], found[DENSITY], beside), found[DENSITY] < found[GREEDY]
        yield says("total-distortion-is-lower-with", what=k, ours=ours, agrees=agrees)
    ks, sizes = results.effort.ks, results.effort.sizes
    best = {name: float(np.mean([results.mean("total", k=k, **way) for k in ks])) for name, way in ways.items()}
    yield says("the-best-of-the", ours=_listed(best), agrees=min(best, key=best.__getitem__) == f"{DENSITY}, {UNIT}")
    seconds = {
        (method, k, size): results.mean("seconds", k=k, method=method, size=size)
        for method, k, size in itertools.product(PUBLISHED, ks, sizes)
    }
    taken = {f"{m}, k = {k}": seconds[m, k, max(sizes)] for m in PUBLISHED for k in (ks[0], ks[-1])}
    ratios = [seconds[DENSITY, k, size] / seconds[GREEDY, k, size] for size in sizes for k in ks]
    ours = min(ratios), max(ratios), max(sizes), _listed(taken, ".2f")
    yield says("run-time-of-greedy", ours=ours, agrees=min(ratios) >= 0.5 and max(ratios) <= 2)


def _attributes(results: Results, **which: object) -> dict[str, float]:
    return {name: results.mean(name, **which) for name in IN_TABLE_4}


def _shown(results: Results, ks: Sequence[int]) -> list[int]:
    """Return the values of k that the text speaks of, of those measured."""
    return [k for k in ks if k in results.effort.ks]


def _figures_5_7(results: Results) -> Iterator[Quoted]:
    lines = {
        f"{scenario} {name}": [results.mean(name, k=k, scenario=scenario) for k in results.effort.ks]
        for scenario in FACTORS
        for name in IN_TABLE_4
    }
    falling = [name for name, values in lines.items() if np.any(np.diff(values) < 0)]
    ours = len(lines) - len(falling), len(lines), f"; not {', '.join(falling)}" if falling else ""
    yield says("the-distortion-of-every", ours=ours, agrees=not falling)
    missed = []
    for k, (scenario, name) in itertools.product(
        results.effort.ks, [(OD, BOARD), (OD, ALIGHT), (RST, START), (PT, TYPE)]
    ):
        found = results.means(name, "scenario", FACTORS, k=k)
        if found[scenario] > min(found.values()):
            missed.append(f"{name} in {scenario}, k = {k}")
    ours = f"not {', '.join(missed)}" if missed else "in each"
    yield says("each-scenario-distorts-least", ours=ours, agrees=not missed)
    k = results.effort.limit_k
    own = _attributes(results, k=k, scenario=OD)
    agrees = max(own[BOARD], own[ALIGHT]) < min(own[TYPE], own[START])
    yield says("s-od-distorts-stations", what=k, ours=_listed(own), agrees=agrees)
    for scenario, figures in {PT: {5: 0.0, 50: 0.007}, AUTO: {5: 0.31, 50: 0.91}}.items():
        for k in _shown(results, list(figures)):
            yield _beside("distortion-of-the-passenger", figures[k], results, TYPE, k, scenario)
    for k in _shown(results, (5, 50)):
        own = _attributes(results, k=k)
        agrees = own[TYPE] > own[START] > max(own[BOARD], own[ALIGHT])
        yield says("s-auto-distorts-types", what=k, ours=_listed(own), agrees=agrees)
    figures = {OD: 0.04, AUTO: 0.06, RST: 0.12}
    for scenario, paper in figures.items():
        yield _beside("distortion-of-stations-k", paper, results, "stations", results.effort.limit_k, scenario)
    for k in results.effort.ks:
        found = results.means("stations", "scenario", figures, k=k)
        yield says("stations-s-auto-lies", what=k, ours=_listed(found), agrees=found[OD] < found[AUTO] < found[RST])
    readings = {"total_auto": "automatic", "total": "its own", "total_equal": "equal"}
    for k in results.effort.ks:
        found = {c: results.means(c, "scenario", FACTORS, k=k) for c in readings}
        (least, most), own = (
            [choose(values, key=values.__getitem__) for choose in (min, max)]
            for values in (found["total_auto"], found["total"])
        )
        stated = "; ".join(f"{name} importance: {_listed(found[column])}" for column, name in readings.items())
        grown = results.means("total_auto", "scenario", FACTORS, k=k, method=GROWTH)
        reasons = [f"{least} is lower than {AUTO} by {found['total_auto'][AUTO] - found['total_auto'][least]:.3f}"]
        reasons = (reasons if least != AUTO else []) + ([f"{most} is highest"] if most != OD else [])
        if least != AUTO and min(grown, key=grown.__getitem__) == AUTO:
            reasons.append(says.sentence("by-distance"))
        why = "; ".join([*reasons, says.sentence("own-importance", *own)])
        ours, agrees = (stated, _listed(grown)), least == AUTO and most == OD
        yield says("total-distortion-is-lowest", what=k, ours=ours, agrees=agrees, differs=why)


def _beside(name: str, paper: float, results: Results, column: str, k: int, scenario: str) -> Quoted:
    found = results.means(column, "method", (DENSITY, GROWTH, REFINED), k=k, scenario=scenario)
    ours = found.pop(DENSITY)
    return says(name, what=(scenario, k), paper=paper, ours=(ours, _listed(found)), verdict=_near(paper, ours))


def _by_limit(results: Results, column: str, scenario: str, method: str = DENSITY, **kind: Any) -> dict[float, float]:
    k = results.effort.limit_k
    limits = (*results.effort.limits[scenario], math.inf)
    return {at: results.mean(column, k=k, scenario=scenario, method=method, limit=at, **kind) for at in limits}


def _told(found: dict[float, float], form: str = ".3f") -> str:
    return ", ".join(f"{'without' if math.isinf(at) else f'{at:g}'}: {value:{form}}" for at, value in found.items())


def _gains(found: dict[float, float]) -> list[float]:
    """Return the limits that are better than none."""
    return [at for at, value in found.items() if value < found[math.inf]]


def _figures_8_10(results: Results) -> Iterator[Quoted]:
    for name, column, scenario, wide, form in (
        ("distortion-of-stations-with", "stations", OD, 8, ".3f"),
        ("distortion-of-start-times", START, RST, 10800, ".4f"),
    ):
        # Limits from a value on must be better than none, and tighter ones must not.
        expected = [at for at in results.effort.limits[scenario] if at >= wide]
        found, lost = (_by_limit(results, one, scenario) for one in (column, "suppressed"))
        # Distortion by generalisation alone (eq. 19): that of published records.
        kept = {at: (own - lost[at]) / (1 - lost[at]) if lost[at] < 1 else math.nan for at, own in found.items()}
        few = {"size": min(results.effort.sizes)}
        letter, within = (_by_limit(results, column, scenario, m, **few) for m in (DENSITY, WITHIN))
        ours, gains = [_told(one, form) for one in (found, lost, kept, within)], _gains(found)
        line = says(name, ours=(*ours,), agrees=gains == expected, differs=(_limits(gains), _limits(_gains(within))))
        if gains != expected and _gains(within) == expected and _gains(letter) != expected:
            line = line._replace(verdict="agrees (with neighbours chosen within the limits, step 2b)")
        yield line
        if scenario == OD:
            tight = min(results.effort.limits[OD])
            agrees = found[tight] > found[math.inf] and lost[tight] == max(lost.values())
            yield says("distortion-is-high-when", ours=(tight, found[tight], lost[tight]), agrees=agrees)
            readings = {c: _by_limit(results, f"od_{c}", OD) for c in ("spread", "possible", "certain")}
            agree = ", ".join(c for c, values in readings.items() if _gains(values) == expected)
            ours, beside = [f"{c}: {_told(values, '.1f')}" for c, values in readings.items()], []
            for reading, values in readings.items():
                theirs, grown = values[math.inf], _by_limit(results, f"od_{reading}", OD, GROWTH)[math.inf]
                worse = "worse" if grown > theirs else "not worse"
                beside.append(f"{reading} {grown:.2f}, {worse} than density's {theirs:.2f}")
            ours.append(f"beside the paper, growth without limits: {'; '.join(beside)}")
            counted = f"agrees (counted as {agree})" if agree else f"differs: {_READING}; {_DATA}"
            yield says("mean-difference-of-passengers", ours="; ".join(ours), verdict=counted)
    lower, middle = (_by_limit(results, f"start_{end}", RST) for end in ("lower", "middle"))
    ours, agrees = (_told(lower, ".1f"), _told(middle, ".1f")), len(_gains(lower)) == len(results.effort.limits[RST])
    yield says("the-mean-start-time", ours=ours, agrees=agrees, differs=_limits(_gains(lower)))
    for scenario in LIMITED:
        ways = (("total", DENSITY), ("total_auto", DENSITY), ("total", GROWTH))
        found, automatic, grown = (_by_limit(results, column, scenario, method) for column, method in ways)
        ours, best = [_told(one, ".4f") for one in (found, automatic, grown)], min(found, key=found.__getitem__)
        yield says("suppression-lowers-the-total", what=scenario, ours=(*ours,), agrees=not math.isinf(best))


def _limits(limits: Sequence[float]) -> str:
    return ", ".join(f"{at:g}" for at in limits) or "no limit"


def _formulas(results: Results) -> Iterator[Quoted]:
    yield says("subtracting-the-mean-of")
    yield says("the-term-1-distortion")
    yield says("c-multiplies-the-numeric")
    ours = [results.mean(column, k=results.effort.limit_k) for column in ("too_few", "one_type")]
    yield says("k-rides-are-k", ours=(*ours,))


PAGE = says.page()

ATTRIBUTE_NAMES = {"type": "passenger type", "board": "boarding", "alight": "alighting", "start": "start time"}
CONFIGURATIONS = tuple((m, s) for s in (MAXIMUM, UNIT) for m in (GREEDY, DENSITY))
BESIDE = (DENSITY, GROWTH, REFINED)
METHOD_STYLES = {GREEDY: 7, DENSITY: 0, GROWTH: 1, REFINED: 2}
LIMIT_MEASURES = {
    OD: {"stations": "stations", "od_spread": "top 20 pairs, spread", "od_certain": "top 20 pairs, certain"},
    RST: {START: "start time", "start_lower": "mean start, lower ends, s", "start_middle": "mean start, middles, s"},
}


def reproduce(out: Path, *, quick: bool, workers: int) -> Path:
    effort, start = QUICK if quick else FULL, time.monotonic()
    results = Results.of(in_parallel(measure, jobs(effort), workers=workers, warm_up=warm_up), effort)
    tables = tables_of(results)
    draws = "one generated table" if effort.draws == 1 else f"{effort.draws} generated tables"
    note = says.note(quick, start, effort=effort, draws=draws, ks=", ".join(map(str, effort.ks)))
    return report.Reproduction.of_tables(
        PAGE,
        tables,
        report.short_rows,
        on_page={"figure6": lambda rows: []},
        drawings={name: partial(draw, results) for name, draw in DRAWINGS.items()},
        note=note,
        data="rides",
        lines=quoted(results),
        files={"runs": [vars(run) for run in results.runs], **tables},
    ).write(out)


def tables_of(results: Results) -> dict[str, list[dict[str, object]]]:
    row, effort = results.row, results.effort
    ks, beside = effort.ks, [{"scenario": s, "k": k, "method": m} for s in FACTORS for k in effort.ks for m in BESIDE]
    rides = [drawn(effort.size, draw) for draw in range(effort.draws)]
    weights: list[dict[str, object]] = []
    for scenario, printed in TABLE_4.items():
        weights.append({"scenario": scenario})
        for name, value in zip(IN_TABLE_4, printed, strict=True):
            own = [float(one.weights(scenario)[ATTRIBUTES.index(name)]) for one in rides]
            weights[-1] |= {f"{name}, paper": value, f"{name}, ours": sum(own) / len(own)}
    histograms = []
    for scenario, name in itertools.product(FACTORS, IN_TABLE_4):
        shares = results.shares(scenario, DENSITY, name)
        bars = {f"{bar / BINS:g}": float(share) for bar, share in enumerate(shares)}
        histograms.append({"scenario": scenario, "attribute": name, **bars})
    gains = []
    for k, method in itertools.product(ks, (GREEDY, *BESIDE)):
        gain = 1 - results.mean("total", k=k, method=method) / results.mean("total", k=k)
        gains.append({**row(["total", "total_equal", "seconds"], k=k, method=method), "gain": f"{gain:.1%}"})
    distortions_ = (*IN_TABLE_4, "total", "total_auto", "total_equal")
    persons = ["total", "persons", "too_few", "one_type"]
    dissolved = [{"k": k, "scenario": AUTO} for k in ks]
    dissolved += [{"k": effort.limit_k, "scenario": scenario} for scenario in LIMITED]
    return {
        "example": example.table(),
        "table4": weights,
        "figure3": [row(distortions_, k=k, method=m, scaling=s) for k in ks for m, s in CONFIGURATIONS],
        "figure4": [row(["seconds"], size=n, k=k, method=m) for n in effort.sizes for k in ks for m in PUBLISHED],
        "figure5": [row(IN_TABLE_4, **case) for case in beside],
        "figure6": histograms,
        "figure7": [row((START, "stations", TYPE, "total_auto", "total", "total_equal"), **case) for case in beside],
        "figure8": _limits_table(results, OD, ("stations", "od_spread", "od_possible", "od_certain")),
        "figure10": _limits_table(results, RST, (START, "start_lower", "start_middle")),
        "within": [
            row | {"limit": "none" if math.isinf(row["limit"]) else row["limit"]}
            for scenario, column in ((OD, "stations"), (RST, START))
            for limit in (*effort.limits[scenario], math.inf)
            for method in (DENSITY, WITHIN)
            for row in (_within_row(results, scenario, column, limit, method),)
        ],
        "beside": gains,
        "persons": [row(persons, k=k, method=m) for k in ks for m in (DENSITY, GROWTH, PERSONS)],
        "dissolved": [
            row(["total", "suppressed"], method=m, **case) for case in dissolved for m in (DENSITY, DISSOLVED)
        ],
    }


def _within_row(results: Results, scenario: str, column: str, limit: float, method: str) -> dict[str, Any]:
    case = {"scenario": scenario, "method": method, "limit": limit, "size": min(results.effort.sizes)}
    mean, lost = (results.mean(name, k=results.effort.limit_k, **case) for name in (column, "suppressed"))
    return {**case, "distortion of": column, "distortion": mean, "suppressed": lost}


def _limits_table(results: Results, scenario: str, own: Sequence[str]) -> list[dict[str, object]]:
    columns, rows = (*own, "total", "total_auto", "suppressed"), []
    for method, limit in itertools.product((DENSITY, GROWTH), (*results.effort.limits[scenario], math.inf)):
        row = results.row(columns, method=method, scenario=scenario, k=results.effort.limit_k, limit=limit)
        rows.append({**row, "limit": "none" if math.isinf(limit) else limit})
    return rows


def _curve(
    results: Results, column: str, name: str, style: int, cases: Mapping[float, Mapping[str, Any]], dashed: bool = False
) -> Curve:
    points = [(float(x), *mean_sd(results.values(column, **case))) for x, case in cases.items()]
    return Curve(name, [(x, mean, 0.0 if math.isnan(sd) else sd) for x, mean, sd in points], style, dashed)


def _by_k(results: Results, column: str, name: str, style: int, dashed: bool = False, **case: Any) -> Curve:
    return _curve(results, column, name, style, {k: {"k": k, **case} for k in results.effort.ks}, dashed)


def _panels(by_title: Mapping[str, Sequence[Curve]], x_title: str = "k", **options: Any) -> list[Svg]:
    return report.figure(by_title, x_title=x_title, least=(0.0, 0.0), **options)


def _draw_3(results: Results) -> list[Svg]:
    def curves(column: str) -> list[Curve]:
        return [
            _by_k(results, column, f"{m}, {s}", 0 if m == DENSITY else 1, s != UNIT, method=m, scaling=s)
            for m, s in CONFIGURATIONS
        ]

    return _panels({ATTRIBUTE_NAMES.get(column, column): curves(column) for column in (*IN_TABLE_4, "total")})


def _draw_4(results: Results) -> list[Svg]:
    def curve(k: int, method: str) -> Curve:
        cases = {size: {"size": size, "k": k, "method": method} for size in results.effort.sizes}
        return _curve(results, "seconds", method, METHOD_STYLES[method], cases)

    by_title = {f"k = {k}": [curve(k, method) for method in PUBLISHED] for k in results.effort.ks}
    return _panels(by_title, "records", y_title="CPU s")


def _draw_5(results: Results) -> list[Svg]:
    parts = []
    for method in BESIDE:
        by_title = {
            scenario: [
                _by_k(results, name, ATTRIBUTE_NAMES[name], number, scenario=scenario, method=method)
                for number, name in enumerate(IN_TABLE_4)
            ]
            for scenario in FACTORS
        }
        title = f"{method}, as published" if method == DENSITY else f"beside it: {method}"
        parts += _panels(by_title, title=title, paper=VALUES["figure 5"] if method == DENSITY else {})
    return parts


def _draw_6(results: Results) -> list[Svg]:
    def bars(scenario: str, method: str, name: str) -> Curve:
        shares = enumerate(results.shares(scenario, method, name))
        return Curve(method, [((bar + 0.5) / BINS, float(share), 0.0) for bar, share in shares], METHOD_STYLES[method])

    parts = []
    for name in IN_TABLE_4:
        by_title = {scenario: [bars(scenario, method, name) for method in (DENSITY, GROWTH)] for scenario in FACTORS}
        parts += _panels(by_title, "distortion", y_title="share", title=ATTRIBUTE_NAMES[name])
    return parts


def _draw_7(results: Results) -> list[Svg]:
    titles = {START: "start time", "stations": "stations, mean of both", TYPE: "passenger type"}
    titles |= {"total_auto": "total, automatic importance", "total": "total, own importance"}
    by_title = {
        title: [_by_k(results, column, s, style, scenario=s) for style, s in enumerate(FACTORS)]
        for column, title in titles.items()
    }
    return _panels(by_title)


def _draw_limits(results: Results, scenario: str) -> list[Svg]:
    """Draw measures with limits, and without any as a dashed line."""
    measures = LIMIT_MEASURES[scenario] | {"total": "total, own importance", "suppressed": "share suppressed"}
    limits, by_title = results.effort.limits[scenario], dict[str, list[Curve]]()
    for column, title in measures.items():
        by_title[title] = []
        for method in (DENSITY, GROWTH):
            case = {"k": results.effort.limit_k, "scenario": scenario, "method": method}
            within, without = {at: {**case, "limit": at} for at in limits}, {limits[0]: case, limits[-1]: case}
            style = METHOD_STYLES[method]
            by_title[title].append(_curve(results, column, f"{method}, with limits", style, within))
            by_title[title].append(_curve(results, column, f"{method}, without", style, without, True))
    return _panels(by_title, "limit, hops" if scenario == OD else "limit, s")


def _draw_beside(results: Results) -> list[Svg]:
    by_title = {
        scenario: [
            _by_k(results, "total", method, METHOD_STYLES[method], scenario=scenario, method=method)
            for method in ((GREEDY, *BESIDE) if scenario == AUTO else BESIDE)
        ]
        for scenario in FACTORS
    }
    return _panels(by_title, captions=dict.fromkeys(FACTORS, "total distortion under its own importance"))


DRAWINGS: dict[str, Callable[[Results], list[Svg]]] = {
    "figure3": _draw_3,
    "figure4": _draw_4,
    "figure5": _draw_5,
    "figure6": _draw_6,
    "figure7": _draw_7,
    "figure8": lambda results: _draw_limits(results, OD),
    "figure10": lambda results: _draw_limits(results, RST),
    "beside": _draw_beside,
}
