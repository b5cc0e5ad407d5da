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

import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import dunnage as dn
from dunnage import samples
from dunnage.arrays import FloatArray, IntArray
from dunnage.kernels.clusters.growth import Constraints, Metric, distance_deviations, grow
from dunnage.kernels.clusters.published import published_density, published_greedy
from dunnage.kernels.clusters.refine import dissolve, refine
from papers import bhati2021_example as example
from papers import report
from papers.measuring import Runs, fields_of, in_parallel, mean_sd
from papers.report import Curve, Quoted, Statements, Svg, verdict

CodeArray = npt.NDArray[np.int32]

ATTRIBUTES = ("start", "type", "board", "alight")  # in the order of a metric: numeric ones first
TYPE, BOARD, ALIGHT, START = "type", "board", "alight", "start"
IN_TABLE_4 = (TYPE, BOARD, ALIGHT, START)
BUCKET = 900  # seconds of a bucket of start times, for entropy

OD, RST, PT, EQ, AUTO = "S_OD", "S_RST", "S_PT", "S_EQ", "S_AUTO"
FACTORS: dict[str, dict[str, int] | None] = {
    OD: {TYPE: 1, BOARD: 5, ALIGHT: 5, START: 1},
    RST: {TYPE: 1, BOARD: 1, ALIGHT: 1, START: 5},
    PT: {TYPE: 5, BOARD: 1, ALIGHT: 1, START: 1},
    EQ: {TYPE: 1, BOARD: 1, ALIGHT: 1, START: 1},
    AUTO: None,
}
"""Utility factors of the scenarios; automatic ones are entropies."""
TABLE_4 = {
    OD: (0.083, 0.416, 0.416, 0.083),
    RST: (0.125, 0.125, 0.125, 0.625),
    PT: (0.625, 0.125, 0.125, 0.125),
    EQ: (0.25, 0.25, 0.25, 0.25),
    AUTO: (0.036, 0.328, 0.325, 0.309),
}
"""As printed, in the order of ``IN_TABLE_4``."""

UNIT, MAXIMUM = "unit variance", "maximum"
GREEDY, DENSITY, GROWTH, REFINED = "greedy", "density", "growth", "growth, refined"
DISSOLVED, PERSONS = "density, dissolved", "growth, k persons"
PUBLISHED = (GREEDY, DENSITY)
LIMITED = {OD: (BOARD, ALIGHT), RST: (START,)}  # attributes that suppression limits are set on
TOP = 20  # pairs of stations that the application metric looks at
BINS = 20  # bars of a histogram of attribute distortion


@dataclass(frozen=True, kw_only=True)
class Effort:
    draws: int  # drawn tables
    size: int  # records of a table
    ks: tuple[int, ...]  # values of k
    sizes: tuple[int, ...]  # records of the tables on which time is taken
    limits: Mapping[str, tuple[float, ...]]  # suppression limits of the two scenarios: hops and seconds
    limit_k: int  # k at which limits are tried, and of which histograms are drawn
    refine_seconds: float  # time for local search


FULL = Effort(
    draws=3,
    size=10_000,
    ks=(5, 10, 20, 50),
    sizes=(2_500, 5_000, 10_000, 20_000),
    limits={OD: (4, 6, 8, 10, 12, 14, 16), RST: (3600, 5400, 7200, 9000, 10800, 12600, 14400)},
    limit_k=5,
    refine_seconds=10.0,
)
QUICK = replace(
    FULL,
    draws=1,
    sizes=(2_500, 10_000),
    limits={OD: (4, 8, 12, 16), RST: (3600, 7200, 10800, 14400)},
    refine_seconds=3.0,
)


# Rides


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

    def deviations(self) -> FloatArray:
        """Return the standard deviation of the distances of all pairs of records, for each attribute."""
        return distance_deviations(self.start[None], self.codes, self.tables)

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
        weights = self.weights(scenario)
        scale = self.deviations() if scaling == UNIT else self.diameters
        return Metric(self.start[None], self.codes, self.tables, weights / self.diameters, weights / scale)


def entropy(counts: IntArray) -> float:
    """Return the Shannon entropy of counts, in bits (eq. 1)."""
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


# Measures of a partition


@dataclass(frozen=True, kw_only=True)
class Case:
    """One way to cluster one table."""

    draw: int  # draw, size: which table, and its records
    size: int
    scenario: str
    method: str
    scaling: str
    k: int
    limit: float = math.inf  # largest generalisation of the attributes that the scenario limits; none without one


@dataclass(frozen=True, kw_only=True)
class Job(Case):
    refine_seconds: float = 0.0  # time for local search


@dataclass(frozen=True, kw_only=True)
class Run(Case):
    type: float  # type, board, alight, start: distortion of the attributes (eq. 18)
    board: float
    alight: float
    start: float
    total: float  # total distortion (eq. 14) under the scenario's own importance
    total_auto: float  # total_auto, total_equal: the same under automatic and under equal importance
    total_equal: float
    suppressed: float  # share of records that are left out
    classes: int
    smallest: int  # records of the smallest class
    persons: int  # distinct cards of the class that has fewest
    too_few: float  # share of classes with fewer than k distinct cards
    one_type: float  # share of classes in which all passengers are of one type
    # Mean absolute difference of passengers between the original's top pairs of stations, by reading of a set: a record
    # spread evenly over the pairs it may be; counted with every pair it may be; counted only if its pair is certain.
    od_spread: float
    od_possible: float
    od_certain: float
    # Absolute difference of the mean start time, in seconds, from lower ends (as the paper) and from middles.
    start_lower: float
    start_middle: float
    seconds: float  # CPU seconds of clustering

    @property
    def stations(self) -> float:
        return (self.board + self.alight) / 2


@dataclass(frozen=True, kw_only=True)
class Histogram:
    """Shares of records by the distortion of an attribute, in equal bars from 0 to 1; suppressed records count 1."""

    draw: int
    size: int
    k: int
    scenario: str
    method: str
    attribute: str
    shares: tuple[float, ...]


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


def measure(job: Job) -> list[Run | Histogram]:
    rides = drawn(job.size, job.draw)
    of_record, seconds = clustered(rides, job)
    run = measured(rides, job, of_record, seconds)
    wanted = math.isinf(job.limit) and job.scaling == UNIT
    return [run, *(histograms(rides, job, of_record) if wanted else [])]


def measured(rides: Rides, job: Job, of_record: IntArray, seconds: float) -> Run:
    by_attribute = distortions(rides, of_record)
    values = dict(zip(ATTRIBUTES, by_attribute.tolist(), strict=True))
    sizes = np.bincount(of_record[of_record >= 0])
    persons = distinct(of_record, rides.person)
    types = distinct(of_record, rides.codes[0])
    return Run(
        **fields_of(job, Case),
        **values,
        total=float(rides.weights(job.scenario) @ by_attribute),
        total_auto=float(rides.weights(AUTO) @ by_attribute),
        total_equal=float(by_attribute.mean()),
        suppressed=float((of_record < 0).mean()),
        classes=len(sizes),
        smallest=int(sizes.min(initial=len(of_record))),
        persons=int(persons.min(initial=len(of_record))),
        too_few=float((persons < job.k).mean()) if len(persons) else 0.0,
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


def histograms(rides: Rides, job: Job, of_record: IntArray) -> list[Histogram]:
    """Return how the distortion of each attribute is spread over records."""
    wide = shares_of_diameter(rides, of_record)
    found = []
    for name, row in zip(ATTRIBUTES, wide, strict=True):
        of_each = np.where(of_record >= 0, row[of_record], 1.0)
        counts, _ = np.histogram(of_each, bins=BINS, range=(0.0, 1.0))
        shares = tuple((counts / len(of_record)).tolist())
        case = {key: getattr(job, key) for key in ("draw", "size", "k", "scenario", "method")}
        found.append(Histogram(**case, attribute=name, shares=shares))
    return found


def distinct(of_record: IntArray, values: npt.NDArray[np.integer]) -> IntArray:
    inside = of_record >= 0
    pairs = np.unique(np.stack([of_record[inside], values[inside].astype(np.int64)]), axis=1)
    return np.bincount(pairs[0]).astype(np.int64)


def top_pairs(rides: Rides, of_record: IntArray) -> dict[str, float]:
    """Return the mean difference of passengers between the original's top pairs, by reading of a set of stations."""
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
    """Return how far the mean start time of what is published is from that of the original."""
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


# Everything


def jobs(effort: Effort) -> list[Job]:
    """Return what has to be done, each thing once, long ones first."""
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
    seconds = {REFINED: effort.refine_seconds}
    todo = dict.fromkeys(
        Job(
            **{"size": effort.size, "scaling": UNIT, "refine_seconds": seconds.get(one["method"], 0.0), **one},
            draw=draw,
        )
        for draw in range(effort.draws)
        for one in cases
    )
    return sorted(todo, key=lambda job: (-job.refine_seconds, -job.size, job.method != DENSITY))


def warm_up() -> None:
    for method in (GREEDY, DENSITY, DISSOLVED, GROWTH, PERSONS, REFINED):
        small = Job(draw=0, size=200, scenario=OD, method=method, scaling=UNIT, k=5, refine_seconds=0.2)
        measure(small)
        if method in (DENSITY, GROWTH):
            measure(replace(small, limit=8.0))


@dataclass(frozen=True, eq=False)
class Results(Runs):
    histograms: Sequence[Histogram] = ()
    KIND = ("size", "scenario", "method", "scaling", "k", "limit")

    @classmethod
    def of(cls, found: Iterable[Run | Histogram], effort: Effort) -> Results:
        items = list(found)
        runs = [item for item in items if isinstance(item, Run)]
        runs.sort(key=lambda run: tuple(str(value).rjust(12) for value in fields_of(run, Case).values()))
        return cls(runs, effort, [item for item in items if isinstance(item, Histogram)])

    def usual(self) -> dict[str, object]:
        usual = {"scenario": AUTO, "method": DENSITY, "scaling": UNIT, "limit": math.inf}
        return {**usual, "size": self.effort.size}

    def shares(self, scenario: str, method: str, attribute: str) -> FloatArray:
        """Return the mean histogram of an attribute, at the k of the limits."""
        wanted = (self.effort.size, self.effort.limit_k, scenario, method, attribute)
        found = [b.shares for b in self.histograms if (b.size, b.k, b.scenario, b.method, b.attribute) == wanted]
        return np.mean(found, axis=0)


# What the text states


NEAR = 0.03
SHARE = 1 / 3
RULE = "A quoted distortion agrees if ours is within 0.03 or a third of it; orders and directions must hold as stated."
_DATA = "the rides are generated; the paper's day of one city is not public"
_LOST = "a suppressed record costs 1, as much as a class costs at most"
says = Statements("bhati2021", data=_DATA, lost=_LOST)
_READING = "the paper does not say how a record with sets of stations is counted"


def quoted(results: Results) -> list[Quoted]:
    """Compare everything that the text states."""
    parts = (_worked_example, _figures_3_4, _figures_5_7, _figures_8_10, _formulas)
    return [line for part in parts for line in part(results)]


def _near(paper: float, ours: float, why: str = _DATA) -> str:
    return verdict(abs(ours - paper) <= max(NEAR, SHARE * paper), why)


def _listed(values: dict[str, float], form: str = ".3f") -> str:
    return ", ".join(f"{name} {value:{form}}" for name, value in values.items())


# Arithmetic and examples


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
        weights = _weights(results, scenario)
        automatic = FACTORS[scenario] is None
        # The paper cuts digits off (5/12 is printed as 0.416); automatic weights depend on the rides.
        off = max(abs(weights[name] - value) for name, value in zip(IN_TABLE_4, printed, strict=True))
        # Rides are generated to come near to the automatic importance.
        near = says.sentence("automatic", NEAR) if off <= NEAR else f"differs: {_DATA}"
        yield says(
            "importance-in-2",
            what=(scenario, ", ".join(IN_TABLE_4), " (entropy in bits)" if automatic else ""),
            paper=", ".join(f"{value:g}" for value in printed),
            ours=", ".join(f"{weights[name]:.3f}" for name in IN_TABLE_4),
            verdict=near if automatic else verdict(off < 0.001, "arithmetic"),
        )


def _weights(results: Results, scenario: str) -> dict[str, float]:
    """Return the importance of each attribute, the mean over draws."""
    found = [drawn(results.effort.size, draw).weights(scenario) for draw in range(results.effort.draws)]
    return dict(zip(ATTRIBUTES, np.mean(found, axis=0).tolist(), strict=True))


# Figures 3 and 4


def _figures_3_4(results: Results) -> Iterator[Quoted]:
    for k in _shown(results, (5, 20)):
        found = {
            f"{method}, {scaling}": results.mean("total", k=k, method=method, scaling=scaling)
            for method in PUBLISHED
            for scaling in (UNIT, MAXIMUM)
        }
        better = all(found[f"{m}, {UNIT}"] < found[f"{m}, {MAXIMUM}"] for m in PUBLISHED)
        yield says("total-distortion-is-lower", what=k, ours=_listed(found), agrees=better)
        one, other = (_attributes(results, k=k, scaling=scaling) for scaling in (UNIT, MAXIMUM))
        as_said = {
            TYPE: one[TYPE] > other[TYPE],
            BOARD: one[BOARD] < other[BOARD],
            ALIGHT: one[ALIGHT] < other[ALIGHT],
            START: one[START] > other[START],
        }
        missed = [name for name, holds in as_said.items() if not holds]
        yield says(
            "unit-variance-distorts-types",
            what=k,
            ours=(_listed(one), _listed(other)),
            agrees=not missed,
            differs=", ".join(missed),
        )
    for k in _shown(results, (5, 20)):
        found = {method: results.mean("total", k=k, method=method) for method in (GREEDY, DENSITY, GROWTH, REFINED)}
        beside = ", ".join(f"{m} {found[m]:.3f} ({found[m] / found[DENSITY] - 1:+.0%})" for m in (GROWTH, REFINED))
        yield says(
            "total-distortion-is-lower-with",
            what=k,
            ours=(found[GREEDY], found[DENSITY], beside),
            agrees=found[DENSITY] < found[GREEDY],
        )
    best = {
        f"{m}, {s}": float(np.mean([results.mean("total", k=k, method=m, scaling=s) for k in results.effort.ks]))
        for m in PUBLISHED
        for s in (UNIT, MAXIMUM)
    }
    yield says(
        "the-best-of-the", ours=_listed(best), agrees=min(best, key=lambda name: best[name]) == f"{DENSITY}, {UNIT}"
    )
    most = max(results.effort.sizes)
    taken = {
        f"{method}, k = {k}": results.mean("seconds", k=k, method=method, size=most)
        for method in PUBLISHED
        for k in (results.effort.ks[0], results.effort.ks[-1])
    }
    ratios = [
        results.mean("seconds", k=k, method=DENSITY, size=size) / results.mean("seconds", k=k, method=GREEDY, size=size)
        for size in results.effort.sizes
        for k in results.effort.ks
    ]
    yield says(
        "run-time-of-greedy",
        ours=(min(ratios), max(ratios), most, _listed(taken, ".2f")),
        agrees=min(ratios) >= 0.5 and max(ratios) <= 2,
    )


# Figures 5 to 7


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
    yield says(
        "the-distortion-of-every",
        ours=(len(lines) - len(falling), len(lines), f"; not {', '.join(falling)}" if falling else ""),
        agrees=not falling,
    )
    preferred = {OD: (BOARD, ALIGHT), RST: (START,), PT: (TYPE,)}
    missed = []
    for k in results.effort.ks:
        for scenario, names in preferred.items():
            for name in names:
                others = [results.mean(name, k=k, scenario=other) for other in FACTORS if other != scenario]
                if results.mean(name, k=k, scenario=scenario) > min(others):
                    missed.append(f"{name} in {scenario}, k = {k}")
    yield says(
        "each-scenario-distorts-least", ours="in each" if not missed else f"not {', '.join(missed)}", agrees=not missed
    )
    k = results.effort.limit_k
    own = _attributes(results, k=k, scenario=OD)
    yield says(
        "s-od-distorts-stations",
        what=k,
        ours=_listed(own),
        agrees=max(own[BOARD], own[ALIGHT]) < min(own[TYPE], own[START]),
    )
    for scenario, figures in {PT: {5: 0.0, 50: 0.007}, AUTO: {5: 0.31, 50: 0.91}}.items():
        for k in _shown(results, list(figures)):
            ours = results.mean(TYPE, k=k, scenario=scenario)
            yield says(
                "distortion-of-the-passenger",
                what=(scenario, k),
                paper=figures[k],
                ours=(ours, _beside(results, TYPE, k, scenario)),
                verdict=_near(figures[k], ours),
            )
    for k in _shown(results, (5, 50)):
        own = _attributes(results, k=k)
        yield says(
            "s-auto-distorts-types",
            what=k,
            ours=_listed(own),
            agrees=own[TYPE] > own[START] > max(own[BOARD], own[ALIGHT]),
        )
    figures = {OD: 0.04, AUTO: 0.06, RST: 0.12}
    k = results.effort.limit_k
    found = {scenario: results.mean("stations", k=k, scenario=scenario) for scenario in figures}
    for scenario, paper in figures.items():
        yield says(
            "distortion-of-stations-k",
            what=(scenario, k),
            paper=paper,
            ours=(found[scenario], _beside(results, "stations", k, scenario)),
            verdict=_near(paper, found[scenario]),
        )
    for k in results.effort.ks:
        found = {scenario: results.mean("stations", k=k, scenario=scenario) for scenario in figures}
        yield says("stations-s-auto-lies", what=k, ours=_listed(found), agrees=found[OD] < found[AUTO] < found[RST])
    readings = {"total_auto": "automatic", "total": "its own", "total_equal": "equal"}
    for k in results.effort.ks:
        found = {c: {s: results.mean(c, k=k, scenario=s) for s in FACTORS} for c in readings}
        least = {c: min(values, key=lambda s, v=values: v[s]) for c, values in found.items()}
        most = {c: max(values, key=lambda s, v=values: v[s]) for c, values in found.items()}
        stated = "; ".join(f"{name} importance: {_listed(found[column])}" for column, name in readings.items())
        grown = {s: results.mean("total_auto", k=k, scenario=s, method=GROWTH) for s in FACTORS}
        yield says(
            "total-distortion-is-lowest",
            what=k,
            ours=(stated, _listed(grown)),
            agrees=least["total_auto"] == AUTO and most["total_auto"] == OD,
            differs=_why_not_lowest(found["total_auto"], grown, f"{least['total']} lowest and {most['total']} highest"),
        )


def _beside(results: Results, column: str, k: int, scenario: str) -> str:
    return ", ".join(f"{m} {results.mean(column, k=k, scenario=scenario, method=m):.3f}" for m in (GROWTH, REFINED))


def _why_not_lowest(found: dict[str, float], grown: dict[str, float], own: str) -> str:
    """Say by how much another scenario is lower than the automatic one, or which is highest."""
    least, most = (choose(found, key=lambda scenario: found[scenario]) for choose in (min, max))
    reasons = [f"{least} is lower than {AUTO} by {found[AUTO] - found[least]:.3f}"] if least != AUTO else []
    reasons += [f"{most} is highest"] if most != OD else []
    if least != AUTO and min(grown, key=lambda scenario: grown[scenario]) == AUTO:
        reasons.append(says.sentence("by-distance"))
    return "; ".join([*reasons, f"under their own importance {own}, but such totals do not compare"])


# Figures 8 to 10


def _beside_pairs(results: Results) -> str:
    """Say how growth does at what the paper's own application counts, without limits."""
    stated = []
    for reading in ("spread", "possible", "certain"):
        theirs, grown = (_by_limit(results, f"od_{reading}", OD, method)[math.inf] for method in (DENSITY, GROWTH))
        stated.append(
            f"{reading} {grown:.2f}, {'worse' if grown > theirs else 'not worse'} than density's {theirs:.2f}"
        )
    return f"beside the paper, growth without limits: {'; '.join(stated)}"


def _by_limit(results: Results, column: str, scenario: str, method: str = DENSITY) -> dict[float, float]:
    k = results.effort.limit_k
    limits = (*results.effort.limits[scenario], math.inf)
    return {at: results.mean(column, k=k, scenario=scenario, method=method, limit=at) for at in limits}


def _told(found: dict[float, float], form: str = ".3f") -> str:
    return ", ".join(f"{'without' if math.isinf(at) else f'{at:g}'}: {value:{form}}" for at, value in found.items())


def _gains(found: dict[float, float]) -> list[float]:
    """Return the limits that are better than none."""
    return [at for at, value in found.items() if value < found[math.inf]]


def _from(limits: Sequence[float], found: dict[float, float]) -> bool:
    """Say whether limits from a value on are better than none, and tighter ones are not."""
    return _gains(found) == [at for at in limits if not math.isinf(at)]


def _figures_8_10(results: Results) -> Iterator[Quoted]:
    found = _by_limit(results, "stations", OD)
    lost = _by_limit(results, "suppressed", OD)
    yield says(
        "distortion-of-stations-with",
        ours=(_told(found), _told(lost), _told(_kept_alone(found, lost))),
        agrees=_from([at for at in results.effort.limits[OD] if at >= 8], found),
        differs=_limits(_gains(found)),
    )
    tight = min(results.effort.limits[OD])
    yield says(
        "distortion-is-high-when",
        ours=(tight, found[tight], lost[tight]),
        agrees=found[tight] > found[math.inf] and lost[tight] == max(lost.values()),
    )
    readings = {c: _by_limit(results, f"od_{c}", OD) for c in ("spread", "possible", "certain")}
    agree = [c for c, values in readings.items() if _from([at for at in results.effort.limits[OD] if at >= 8], values)]
    yield says(
        "mean-difference-of-passengers",
        ours="; ".join([*(f"{c}: {_told(values, '.1f')}" for c, values in readings.items()), _beside_pairs(results)]),
        verdict=f"agrees (counted as {', '.join(agree)})" if agree else f"differs: {_READING}; {_DATA}",
    )
    found = _by_limit(results, START, RST)
    lost = _by_limit(results, "suppressed", RST)
    yield says(
        "distortion-of-start-times",
        ours=(_told(found, ".4f"), _told(lost, ".4f"), _told(_kept_alone(found, lost), ".4f")),
        agrees=_from([at for at in results.effort.limits[RST] if at >= 10800], found),
        differs=_limits(_gains(found)),
    )
    lower, middle = (_by_limit(results, f"start_{end}", RST) for end in ("lower", "middle"))
    yield says(
        "the-mean-start-time",
        ours=(_told(lower, ".1f"), _told(middle, ".1f")),
        agrees=len(_gains(lower)) == len(results.effort.limits[RST]),
        differs=_limits(_gains(lower)),
    )
    for scenario in LIMITED:
        found = _by_limit(results, "total", scenario)
        automatic = _by_limit(results, "total_auto", scenario)
        grown = _by_limit(results, "total", scenario, GROWTH)
        best = min(found, key=lambda at: found[at])
        yield says(
            "suppression-lowers-the-total",
            what=scenario,
            ours=(_told(found, ".4f"), _told(automatic, ".4f"), _told(grown, ".4f")),
            agrees=not math.isinf(best),
        )


def _kept_alone(found: dict[float, float], lost: dict[float, float]) -> dict[float, float]:
    """Return distortion by generalisation alone (eq. 19): that of published records."""
    return {at: (value - lost[at]) / (1 - lost[at]) if lost[at] < 1 else math.nan for at, value in found.items()}


def _limits(limits: Sequence[float]) -> str:
    return ", ".join(f"{at:g}" for at in limits) or "no limit"


# What the formulas say


def _formulas(results: Results) -> Iterator[Quoted]:
    yield says("subtracting-the-mean-of")
    yield says("the-term-1-distortion")
    yield says("c-multiplies-the-numeric")
    few = results.values("too_few", k=results.effort.limit_k)
    one = results.values("one_type", k=results.effort.limit_k)
    yield says("k-rides-are-k", ours=(mean_sd(few)[0], mean_sd(one)[0]))


PAGE = says.page()

ATTRIBUTE_NAMES = {"type": "passenger type", "board": "boarding", "alight": "alighting", "start": "start time"}
CONFIGURATIONS = tuple((m, s) for s in (MAXIMUM, UNIT) for m in (GREEDY, DENSITY))
BESIDE = (DENSITY, GROWTH, REFINED)
SCENARIO_STYLES = {scenario: number for number, scenario in enumerate(FACTORS)}
METHOD_STYLES = {GREEDY: 7, DENSITY: 0, GROWTH: 1, REFINED: 2}
QUOTED_POINTS = {
    PT: [(5, 0.0), (50, 0.007)],
    AUTO: [(5, 0.31), (50, 0.91), (5, 0.06)],
    OD: [(5, 0.04)],
    RST: [(5, 0.12)],
}
"""What the text reads off Figure 5."""
LIMIT_MEASURES = {
    OD: {"stations": "stations", "od_spread": "top 20 pairs, spread", "od_certain": "top 20 pairs, certain"},
    RST: {START: "start time", "start_lower": "mean start, lower ends, s", "start_middle": "mean start, middles, s"},
}


def reproduce(out: Path, *, quick: bool, workers: int) -> Path:
    """Measure everything and write tables, a report and a page, as :class:`report.Reproduce` says."""
    effort = QUICK if quick else FULL
    out.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    results = Results.of(in_parallel(measure, jobs(effort), workers=workers, warm_up=warm_up), effort)
    tables = tables_of(results)
    draws = "one generated table" if effort.draws == 1 else f"{effort.draws} generated tables"
    note = (
        f"{'Quick' if quick else 'Full'} form: {draws} of {effort.size:,} rides, k = {', '.join(map(str, effort.ks))}. "
        f"Local search for {effort.refine_seconds:g} s each. Means with standard deviations over draws. {RULE} Took "
        f"{time.monotonic() - start:.0f} s."
    )
    return report.Reproduction(
        page=PAGE,
        note=note,
        data="rides",
        lines=quoted(results),
        files={"runs": [asdict(run) for run in results.runs], **tables},
        markdown=[(PAGE.titles[name], PAGE.why[name], report.short_rows(rows)) for name, rows in tables.items()],
        sections=report.table_sections(
            PAGE,
            tables,
            lambda name, rows: [] if name == "figure6" else report.short_rows(rows),
            {name: (lambda draw=draw: draw(results)) for name, draw in DRAWINGS.items()},
        ),
    ).write(out)


def tables_of(results: Results) -> dict[str, list[dict[str, object]]]:
    """Return everything measured as tables by name."""
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
        "beside": gains,
        "persons": [row(persons, k=k, method=m) for k in ks for m in (DENSITY, GROWTH, PERSONS)],
        "dissolved": [
            row(["total", "suppressed"], method=m, **case) for case in dissolved for m in (DENSITY, DISSOLVED)
        ],
    }


def _limits_table(results: Results, scenario: str, own: Sequence[str]) -> list[dict[str, object]]:
    columns, rows = (*own, "total", "total_auto", "suppressed"), []
    for method, limit in itertools.product((DENSITY, GROWTH), (*results.effort.limits[scenario], math.inf)):
        row = results.row(columns, method=method, scenario=scenario, k=results.effort.limit_k, limit=limit)
        rows.append({**row, "limit": "none" if math.isinf(limit) else limit})
    return rows


# Figures


def _curve(
    results: Results, column: str, name: str, style: int, cases: Mapping[float, Mapping[str, Any]], dashed: bool = False
) -> Curve:
    """Draw mean and standard deviation of a measure, of a case at each place."""
    points = [(float(x), *mean_sd(results.values(column, **case))) for x, case in cases.items()]
    return Curve(name, [(x, mean, 0.0 if math.isnan(sd) else sd) for x, mean, sd in points], style, dashed)


def _by_k(results: Results, column: str, name: str, style: int, dashed: bool = False, **case: Any) -> Curve:
    return _curve(results, column, name, style, {k: {"k": k, **case} for k in results.effort.ks}, dashed)


def _panels(by_title: Mapping[str, Sequence[Curve]], x_title: str = "k", **options: Any) -> list[Svg]:
    return report.figure(by_title, x_title=x_title, least=(0.0, 0.0), **options)


def _draw_3(results: Results) -> list[Svg]:
    def curves(column: str) -> list[Curve]:
        ways = [(m, s, 0 if m == DENSITY else 1, s != UNIT) for m, s in CONFIGURATIONS]
        return [_by_k(results, column, f"{m}, {s}", *look, method=m, scaling=s) for m, s, *look in ways]

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
        parts += _panels(by_title, title=title, paper=QUOTED_POINTS if method == DENSITY else {})
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
    styles = SCENARIO_STYLES.items()
    return _panels(
        {
            title: [_by_k(results, column, s, style, scenario=s) for s, style in styles]
            for column, title in titles.items()
        }
    )


def _draw_limits(results: Results, scenario: str) -> list[Svg]:
    """Draw measures with limits, and without any as a dashed line."""
    measures = LIMIT_MEASURES[scenario] | {"total": "total, own importance", "suppressed": "share suppressed"}
    limits, by_title = results.effort.limits[scenario], {}
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
