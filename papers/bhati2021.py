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
from dunnage.kernels.clusters.growth import Constraints, Metric, distance_deviations, grow
from dunnage.kernels.clusters.published import published_density, published_greedy
from dunnage.kernels.clusters.refine import dissolve, refine
from papers import bhati2021_example as example
from papers import report
from papers.measuring import Runs, fields_of, in_parallel
from papers.report import Curve, Quoted, Statements, Svg, verdict

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
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
    """How much to measure."""

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
        """Return the metric of a scenario."""
        weights = self.weights(scenario)
        scale = self.deviations() if scaling == UNIT else self.diameters
        return Metric(self.start[None], self.codes, self.tables, weights / self.diameters, weights / scale)


def entropy(counts: IntArray) -> float:
    """Return the Shannon entropy of counts, in bits (eq. 1)."""
    share = counts[counts > 0] / counts.sum()
    return float(-(share * np.log2(share)).sum())


@lru_cache(maxsize=4)
def drawn(size: int, draw: int) -> Rides:
    """Draw a table of rides."""
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
    """What came of a job."""

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
        """Mean distortion of the two station attributes."""
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
    """Do a job and measure what came of it."""
    rides = drawn(job.size, job.draw)
    of_record, seconds = clustered(rides, job)
    run = measured(rides, job, of_record, seconds)
    wanted = math.isinf(job.limit) and job.scaling == UNIT
    return [run, *(histograms(rides, job, of_record) if wanted else [])]


def measured(rides: Rides, job: Job, of_record: IntArray, seconds: float) -> Run:
    """Measure a partition."""
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
    """Return how many different values each class has."""
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
    told = {"start_lower": low, "start_middle": (low + high) / 2}
    truth = rides.start.mean()
    return {name: float(abs(values[of_record[inside]].mean() - truth)) for name, values in told.items()}


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
    """Compile before anything is timed."""
    for method in (GREEDY, DENSITY, DISSOLVED, GROWTH, PERSONS, REFINED):
        small = Job(draw=0, size=200, scenario=OD, method=method, scaling=UNIT, k=5, refine_seconds=0.2)
        measure(small)
        if method in (DENSITY, GROWTH):
            measure(replace(small, limit=8.0))


@dataclass(frozen=True, eq=False)
class Results(Runs):
    """All runs and histograms."""

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


says = Statements("bhati2021")

NEAR = 0.03
SHARE = 1 / 3
RULE = "A quoted distortion agrees if ours is within 0.03 or a third of it; orders and directions must hold as stated."
_DATA = "the rides are generated; the paper's day of one city is not public"
_LOST = "a suppressed record costs 1, as much as a class costs at most"
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
    yield says(
        "distances-senior-citizen-to",
        ours=(
            "; ".join(
                f"{d:g}"
                for d in (
                    example.TYPES.distance("SeC", "C/S"),
                    example.STATIONS.distance("A", "B"),
                    example.STATIONS.distance("A", "D"),
                )
            ),
        ),
        agrees=(
            example.TYPES.distance("SeC", "C/S"),
            example.STATIONS.distance("A", "B"),
            example.STATIONS.distance("A", "D"),
        )
        == (1, 1, 2),
    )
    rows = example.table()
    found = " ".join("{" + str(row["records"]).replace("r", "").replace(" ", "") + "}" for row in rows)
    yield says("classes-of-the-eight", ours=(found,), agrees=found == "{1,2} {3,6} {4,7} {5,8}")
    as_printed = [row["as printed"] for row in rows]
    yield says("generalised-values-of-these", ours=(as_printed.count("yes"),), agrees=as_printed == ["yes"] * 4)
    for scenario, printed in TABLE_4.items():
        weights = _weights(results, scenario)
        automatic = FACTORS[scenario] is None
        # The paper cuts digits off (5/12 is printed as 0.416); automatic weights depend on the rides.
        off = max(abs(weights[name] - value) for name, value in zip(IN_TABLE_4, printed, strict=True))
        yield says(
            "importance-in-2",
            what=(scenario, ", ".join(IN_TABLE_4), " (entropy in bits)" if automatic else ""),
            paper=(", ".join(f"{value:g}" for value in printed),),
            ours=(", ".join(f"{weights[name]:.3f}" for name in IN_TABLE_4),),
            verdict=(_automatic(off) if automatic else verdict(off < 0.001, "arithmetic"),),
        )


def _automatic(off: float) -> str:
    """Judge automatic importance, which the generator of rides was made to come near."""
    return f"agrees (within {NEAR:g}, for rides are drawn with such entropies)" if off <= NEAR else f"differs: {_DATA}"


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
        yield says("total-distortion-is-lower", what=(k,), ours=(_listed(found),), agrees=better, differs=(_DATA,))
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
            what=(k,),
            ours=(_listed(one), _listed(other)),
            agrees=not missed,
            differs=(", ".join(missed), _DATA),
        )
    for k in _shown(results, (5, 20)):
        found = {method: results.mean("total", k=k, method=method) for method in (GREEDY, DENSITY, GROWTH, REFINED)}
        beside = ", ".join(f"{m} {found[m]:.3f} ({found[m] / found[DENSITY] - 1:+.0%})" for m in (GROWTH, REFINED))
        yield says(
            "total-distortion-is-lower-with",
            what=(k,),
            ours=(found[GREEDY], found[DENSITY], beside),
            agrees=found[DENSITY] < found[GREEDY],
            differs=(_DATA,),
        )
    best = {
        f"{m}, {s}": float(np.mean([results.mean("total", k=k, method=m, scaling=s) for k in results.effort.ks]))
        for m in PUBLISHED
        for s in (UNIT, MAXIMUM)
    }
    yield says(
        "the-best-of-the",
        ours=(_listed(best),),
        agrees=min(best, key=lambda name: best[name]) == f"{DENSITY}, {UNIT}",
        differs=(_DATA,),
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
        "each-scenario-distorts-least",
        ours=("in each" if not missed else f"not {', '.join(missed)}",),
        agrees=not missed,
        differs=(_DATA,),
    )
    k = results.effort.limit_k
    own = _attributes(results, k=k, scenario=OD)
    yield says(
        "s-od-distorts-stations",
        what=(k,),
        ours=(_listed(own),),
        agrees=max(own[BOARD], own[ALIGHT]) < min(own[TYPE], own[START]),
        differs=(_DATA,),
    )
    for scenario, figures in {PT: {5: 0.0, 50: 0.007}, AUTO: {5: 0.31, 50: 0.91}}.items():
        for k in _shown(results, list(figures)):
            ours = results.mean(TYPE, k=k, scenario=scenario)
            yield says(
                "distortion-of-the-passenger",
                what=(scenario, k),
                paper=(figures[k],),
                ours=(ours, _beside(results, TYPE, k, scenario)),
                verdict=(_near(figures[k], ours),),
            )
    for k in _shown(results, (5, 50)):
        own = _attributes(results, k=k)
        yield says(
            "s-auto-distorts-types",
            what=(k,),
            ours=(_listed(own),),
            agrees=own[TYPE] > own[START] > max(own[BOARD], own[ALIGHT]),
            differs=(_DATA,),
        )
    figures = {OD: 0.04, AUTO: 0.06, RST: 0.12}
    k = results.effort.limit_k
    found = {scenario: results.mean("stations", k=k, scenario=scenario) for scenario in figures}
    for scenario, paper in figures.items():
        yield says(
            "distortion-of-stations-k",
            what=(scenario, k),
            paper=(paper,),
            ours=(found[scenario], _beside(results, "stations", k, scenario)),
            verdict=(_near(paper, found[scenario]),),
        )
    for k in results.effort.ks:
        found = {scenario: results.mean("stations", k=k, scenario=scenario) for scenario in figures}
        yield says(
            "stations-s-auto-lies",
            what=(k,),
            ours=(_listed(found),),
            agrees=found[OD] < found[AUTO] < found[RST],
            differs=(_DATA,),
        )
    readings = {"total_auto": "automatic", "total": "its own", "total_equal": "equal"}
    for k in results.effort.ks:
        found = {c: {s: results.mean(c, k=k, scenario=s) for s in FACTORS} for c in readings}
        least = {c: min(values, key=lambda s, v=values: v[s]) for c, values in found.items()}
        most = {c: max(values, key=lambda s, v=values: v[s]) for c, values in found.items()}
        told = "; ".join(f"{name} importance: {_listed(found[column])}" for column, name in readings.items())
        grown = {s: results.mean("total_auto", k=k, scenario=s, method=GROWTH) for s in FACTORS}
        yield says(
            "total-distortion-is-lowest",
            what=(k,),
            ours=(told, _listed(grown)),
            agrees=least["total_auto"] == AUTO and most["total_auto"] == OD,
            differs=(
                _why_not_lowest(found["total_auto"], grown, f"{least['total']} lowest and {most['total']} highest"),
            ),
        )


def _beside(results: Results, column: str, k: int, scenario: str) -> str:
    return ", ".join(f"{m} {results.mean(column, k=k, scenario=scenario, method=m):.3f}" for m in (GROWTH, REFINED))


def _why_not_lowest(found: dict[str, float], grown: dict[str, float], own: str) -> str:
    """Say by how much another scenario is lower than the automatic one, or which is highest."""
    least, most = (choose(found, key=lambda scenario: found[scenario]) for choose in (min, max))
    reasons = [f"{least} is lower than {AUTO} by {found[AUTO] - found[least]:.3f}"] if least != AUTO else []
    reasons += [f"{most} is highest"] if most != OD else []
    if least != AUTO and min(grown, key=lambda scenario: grown[scenario]) == AUTO:
        reasons.append(
            "classes are formed by distance to heads, not by what they are charged: with growth S_AUTO is lowest"
        )
    return "; ".join([*reasons, f"under their own importance {own}, but such totals do not compare"])


# Figures 8 to 10


def _beside_pairs(results: Results) -> str:
    """Say how growth does at what the paper's own application counts, without limits."""
    told = []
    for reading in ("spread", "possible", "certain"):
        theirs, grown = (_by_limit(results, f"od_{reading}", OD, method)[math.inf] for method in (DENSITY, GROWTH))
        told.append(f"{reading} {grown:.2f}, {'worse' if grown > theirs else 'not worse'} than density's {theirs:.2f}")
    return f"beside the paper, growth without limits: {'; '.join(told)}"


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
        differs=(_limits(_gains(found)), _LOST),
    )
    tight = min(results.effort.limits[OD])
    yield says(
        "distortion-is-high-when",
        ours=(tight, found[tight], lost[tight]),
        agrees=found[tight] > found[math.inf] and lost[tight] == max(lost.values()),
        differs=(_DATA,),
    )
    readings = {c: _by_limit(results, f"od_{c}", OD) for c in ("spread", "possible", "certain")}
    agree = [c for c, values in readings.items() if _from([at for at in results.effort.limits[OD] if at >= 8], values)]
    yield says(
        "mean-difference-of-passengers",
        ours=(
            "; ".join([*(f"{c}: {_told(values, '.1f')}" for c, values in readings.items()), _beside_pairs(results)]),
        ),
        verdict=(f"agrees (counted as {', '.join(agree)})" if agree else f"differs: {_READING}; {_DATA}",),
    )
    found = _by_limit(results, START, RST)
    lost = _by_limit(results, "suppressed", RST)
    yield says(
        "distortion-of-start-times",
        ours=(_told(found, ".4f"), _told(lost, ".4f"), _told(_kept_alone(found, lost), ".4f")),
        agrees=_from([at for at in results.effort.limits[RST] if at >= 10800], found),
        differs=(_limits(_gains(found)), _LOST),
    )
    lower, middle = (_by_limit(results, f"start_{end}", RST) for end in ("lower", "middle"))
    yield says(
        "the-mean-start-time",
        ours=(_told(lower, ".1f"), _told(middle, ".1f")),
        agrees=len(_gains(lower)) == len(results.effort.limits[RST]),
        differs=(_limits(_gains(lower)),),
    )
    for scenario in LIMITED:
        found = _by_limit(results, "total", scenario)
        automatic = _by_limit(results, "total_auto", scenario)
        grown = _by_limit(results, "total", scenario, GROWTH)
        best = min(found, key=lambda at: found[at])
        yield says(
            "suppression-lowers-the-total",
            what=(scenario,),
            ours=(_told(found, ".4f"), _told(automatic, ".4f"), _told(grown, ".4f")),
            agrees=not math.isinf(best),
            differs=(_LOST,),
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
    yield says("k-rides-are-k", ours=(_mean(few), _mean(one)))


def _mean(values: FloatArray) -> float:
    return float(values.mean()) if len(values) else math.nan


PAGE = says.page()

ATTRIBUTE_NAMES = {"type": "passenger type", "board": "boarding", "alight": "alighting", "start": "start time"}
CONFIGURATIONS = tuple((m, s) for s in (MAXIMUM, UNIT) for m in (GREEDY, DENSITY))
BESIDE = (DENSITY, GROWTH, REFINED)
SCENARIO_STYLES = {scenario: number for number, scenario in enumerate(FACTORS)}
METHOD_STYLES = {GREEDY: (7, False), DENSITY: (0, False), GROWTH: (1, False), REFINED: (2, False)}
QUOTED_POINTS = {
    ("type", PT): [(5, 0.0), (50, 0.007)],
    ("type", AUTO): [(5, 0.31), (50, 0.91)],
    ("board", OD): [(5, 0.04)],
    ("board", AUTO): [(5, 0.06)],
    ("board", RST): [(5, 0.12)],
}
"""What the text reads off Figure 5."""
_DISTORTIONS = (*IN_TABLE_4, "total", "total_auto", "total_equal")


def reproduce(out: Path, *, quick: bool, workers: int) -> Path:
    """Measure everything and write tables, a report and a page, as :class:`report.Reproduce` says."""
    effort = QUICK if quick else FULL
    out.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    found = in_parallel(measure, jobs(effort), workers=workers, warm_up=warm_up)
    results = Results.of(found, effort)
    tables = tables_of(results)
    drawings: dict[str, Callable[[], list[Svg]]] = {
        "figure3": lambda: _draw_3(results),
        "figure4": lambda: _draw_4(results),
        "figure5": lambda: _draw_5(results),
        "figure6": lambda: _draw_6(results),
        "figure7": lambda: _draw_7(results),
        "figure8": lambda: _draw_limits(results, OD),
        "figure10": lambda: _draw_limits(results, RST),
        "beside": lambda: _draw_beside(results),
    }
    return report.Reproduction(
        page=PAGE,
        note=_note(results, quick, time.monotonic() - start),
        data="rides",
        lines=quoted(results),
        files={"runs": [asdict(run) for run in results.runs], **tables},
        markdown=[(PAGE.titles[name], PAGE.why[name], report.short_rows(rows)) for name, rows in tables.items()],
        sections=report.table_sections(
            PAGE, tables, lambda name, rows: [] if name == "figure6" else report.short_rows(rows), drawings
        ),
    ).write(out)


def _note(results: Results, quick: bool, seconds: float) -> str:
    effort, form = results.effort, "Quick form" if quick else "Full form"
    draws = "one drawn table" if effort.draws == 1 else f"{effort.draws} drawn tables"
    return (
        f"{form}: {draws} of {effort.size:,} rides, k = {', '.join(map(str, effort.ks))}. Local search for "
        f"{effort.refine_seconds:g} s each. Means with standard deviations over draws. {RULE} Took {seconds:.0f} s."
    )


# Tables


def tables_of(results: Results) -> dict[str, list[dict[str, object]]]:
    """Return everything measured as tables by name."""
    return {
        "example": example.table(),
        "table4": _weights_table(results),
        "figure3": _figure_3(results),
        "figure4": _figure_4(results),
        "figure5": _figure_5(results),
        "figure6": _figure_6(results),
        "figure7": _figure_7(results),
        "figure8": _limits_table(results, OD),
        "figure10": _limits_table(results, RST),
        "beside": _beside_table(results),
        "persons": _persons_table(results),
        "dissolved": _dissolved_table(results),
    }


def _weights_table(results: Results) -> list[dict[str, object]]:
    rides = [drawn(results.effort.size, draw) for draw in range(results.effort.draws)]
    rows: list[dict[str, object]] = []
    for scenario, printed in TABLE_4.items():
        row: dict[str, object] = {"scenario": scenario}
        for name, value in zip(IN_TABLE_4, printed, strict=True):
            place = ATTRIBUTES.index(name)
            row[f"{name}, paper"] = value
            row[f"{name}, ours"] = sum(float(one.weights(scenario)[place]) for one in rides) / len(rides)
        rows.append(row)
    return rows


def _figure_3(results: Results) -> list[dict[str, object]]:
    return [
        results.row(_DISTORTIONS, k=k, method=method, scaling=scaling)
        for k in results.effort.ks
        for method, scaling in CONFIGURATIONS
    ]


def _figure_4(results: Results) -> list[dict[str, object]]:
    return [
        results.row(["seconds"], size=size, k=k, method=method)
        for size in results.effort.sizes
        for k in results.effort.ks
        for method in PUBLISHED
    ]


def _figure_5(results: Results) -> list[dict[str, object]]:
    return [
        results.row(IN_TABLE_4, scenario=scenario, k=k, method=method)
        for scenario in FACTORS
        for k in results.effort.ks
        for method in BESIDE
    ]


def _figure_6(results: Results) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for scenario in FACTORS:
        for name in IN_TABLE_4:
            shares = results.shares(scenario, DENSITY, name)
            bars = {f"{bar / BINS:g}": float(share) for bar, share in enumerate(shares)}
            rows.append({"scenario": scenario, "attribute": name, **bars})
    return rows


def _figure_7(results: Results) -> list[dict[str, object]]:
    columns = ("start", "stations", "type", "total_auto", "total", "total_equal")
    return [
        results.row(columns, scenario=scenario, k=k, method=method)
        for scenario in FACTORS
        for k in results.effort.ks
        for method in BESIDE
    ]


def _limits_table(results: Results, scenario: str) -> list[dict[str, object]]:
    own = ("stations", "od_spread", "od_possible", "od_certain") if scenario == OD else (START, *_STARTS)
    columns = (*own, "total", "total_auto", "suppressed")
    rows = []
    for method in (DENSITY, GROWTH):
        for limit in (*results.effort.limits[scenario], math.inf):
            row = results.row(columns, method=method, scenario=scenario, k=results.effort.limit_k, limit=limit)
            rows.append({**row, "limit": "none" if math.isinf(limit) else limit})
    return rows


_STARTS = ("start_lower", "start_middle")


def _beside_table(results: Results) -> list[dict[str, object]]:
    rows = []
    for k in results.effort.ks:
        theirs = results.mean("total", k=k)
        for method in (GREEDY, *BESIDE):
            row = results.row(["total", "total_equal", "seconds"], k=k, method=method)
            rows.append({**row, "gain": f"{1 - results.mean('total', k=k, method=method) / theirs:.1%}"})
    return rows


def _persons_table(results: Results) -> list[dict[str, object]]:
    return [
        results.row(["total", "persons", "too_few", "one_type"], k=k, method=method)
        for k in results.effort.ks
        for method in (DENSITY, GROWTH, PERSONS)
    ]


def _dissolved_table(results: Results) -> list[dict[str, object]]:
    columns = ["total", "suppressed"]
    which = [{"k": k, "scenario": AUTO} for k in results.effort.ks]
    which += [{"k": results.effort.limit_k, "scenario": scenario} for scenario in LIMITED]
    return [results.row(columns, method=method, **one) for one in which for method in (DENSITY, DISSOLVED)]


def _points(
    results: Results, column: str, xs: Sequence[float], at: Callable[[float], dict[str, object]]
) -> list[tuple[float, float, float]]:
    """Return mean and standard deviation of a measure at each place."""
    found = []
    for x in xs:
        row = results.row([column], **at(x))
        mean, sd = (float(str(row[key])) for key in (column, f"{column}_sd"))
        found.append((x, mean, 0.0 if math.isnan(sd) else sd))
    return found


def _by_k(results: Results, column: str, name: str, style: int, dashed: bool = False, **which: object) -> Curve:
    ks = [float(k) for k in results.effort.ks]
    return Curve(name, _points(results, column, ks, lambda k: {"k": int(k), **which}), style, dashed)


def _panel(
    title: str,
    curves: Sequence[Curve],
    x_title: str,
    *,
    y_title: str = "",
    paper: Sequence[tuple[float, float]] = (),
    caption: str = "",
    limit: float | None = None,
) -> Svg:
    figure = report.line_chart(
        curves,
        label=f"{title} against {x_title}",
        x_title=x_title,
        y_title=y_title,
        paper=paper,
        least=(0.0, 0.0),
        limit=limit,
    )
    return report.panel(title, figure, caption)


def _draw_3(results: Results) -> list[Svg]:
    charts = []
    for column in (*IN_TABLE_4, "total"):
        curves = [
            _by_k(
                results, column, f"{m}, {s}", SCENARIO_STYLES[OD] if m == DENSITY else 1, s != UNIT, method=m, scaling=s
            )
            for m, s in CONFIGURATIONS
        ]
        charts.append(_panel(ATTRIBUTE_NAMES.get(column, "total"), curves, "k"))
    return [report.legend(curves), report.panels(charts)]


def _draw_4(results: Results) -> list[Svg]:
    sizes = [float(size) for size in results.effort.sizes]
    charts = []
    for k in results.effort.ks:
        curves = [
            Curve(
                method,
                _points(results, "seconds", sizes, lambda n, k=k, m=method: {"size": int(n), "k": k, "method": m}),
                *METHOD_STYLES[method],
            )
            for method in PUBLISHED
        ]
        charts.append(_panel(f"k = {k}", curves, "records", y_title="CPU s"))
    return [report.legend(curves), report.panels(charts)]


def _draw_5(results: Results) -> list[Svg]:
    parts = []
    for method in BESIDE:
        charts = []
        for scenario in FACTORS:
            curves = [
                _by_k(results, name, ATTRIBUTE_NAMES[name], number, scenario=scenario, method=method)
                for number, name in enumerate(IN_TABLE_4)
            ]
            paper = [point for name in IN_TABLE_4 for point in QUOTED_POINTS.get((name, scenario), [])]
            charts.append(_panel(scenario, curves, "k", paper=paper if method == DENSITY else ()))
        title = f"{method}, as published" if method == DENSITY else f"beside it: {method}"
        parts += [report.tag("h3", title, class_="measure"), report.legend(curves, paper=method == DENSITY)]
        parts.append(report.panels(charts))
    return parts


def _draw_6(results: Results) -> list[Svg]:
    parts = []
    for name in IN_TABLE_4:
        charts = []
        for scenario in FACTORS:
            curves = [
                Curve(method, _bars(results, scenario, method, name), *METHOD_STYLES[method])
                for method in (DENSITY, GROWTH)
            ]
            charts.append(_panel(scenario, curves, "distortion", y_title="share"))
        parts += [
            report.tag("h3", ATTRIBUTE_NAMES[name], class_="measure"),
            report.legend(curves),
            report.panels(charts),
        ]
    return parts


def _bars(results: Results, scenario: str, method: str, name: str) -> list[tuple[float, float, float]]:
    shares = results.shares(scenario, method, name)
    return [((bar + 0.5) / BINS, float(share), 0.0) for bar, share in enumerate(shares)]


def _draw_7(results: Results) -> list[Svg]:
    titles = {
        "start": "start time",
        "stations": "stations, mean of both",
        "type": "passenger type",
        "total_auto": "total, automatic importance",
        "total": "total, own importance",
    }
    charts = []
    for column, title in titles.items():
        curves = [
            _by_k(results, column, scenario, style, scenario=scenario) for scenario, style in SCENARIO_STYLES.items()
        ]
        charts.append(_panel(title, curves, "k"))
    return [report.legend(curves), report.panels(charts)]


def _draw_limits(results: Results, scenario: str) -> list[Svg]:
    measures = {
        OD: {"stations": "stations", "od_spread": "top 20 pairs, spread", "od_certain": "top 20 pairs, certain"},
        RST: {
            START: "start time",
            "start_lower": "mean start, lower ends, s",
            "start_middle": "mean start, middles, s",
        },
    }[scenario] | {"total": "total, own importance", "suppressed": "share suppressed"}
    charts = []
    for column, title in measures.items():
        curves = [curve for method in (DENSITY, GROWTH) for curve in _limit_curves(results, column, scenario, method)]
        charts.append(_panel(title, curves, "limit, hops" if scenario == OD else "limit, s"))
    return [report.legend(curves), report.panels(charts)]


def _limit_curves(results: Results, column: str, scenario: str, method: str) -> list[Curve]:
    """Draw a measure with limits, and without any as a dashed line."""
    which: dict[str, object] = {"k": results.effort.limit_k, "scenario": scenario, "method": method}
    limits = list(results.effort.limits[scenario])
    style = METHOD_STYLES[method][0]
    without = _points(results, column, [limits[0], limits[-1]], lambda _: which)
    return [
        Curve(f"{method}, with limits", _points(results, column, limits, lambda at: {**which, "limit": at}), style),
        Curve(f"{method}, without", without, style, True),
    ]


def _draw_beside(results: Results) -> list[Svg]:
    charts = []
    for scenario in FACTORS:
        methods = (GREEDY, *BESIDE) if scenario == AUTO else BESIDE
        curves = [
            _by_k(results, "total", method, *METHOD_STYLES[method], scenario=scenario, method=method)
            for method in methods
        ]
        charts.append(_panel(scenario, curves, "k", caption="total distortion under its own importance"))
    return [report.legend(curves), report.panels(charts)]
