# SPDX-License-Identifier: Apache-2.0
"""Bhati et al. 2021, section IV: draw rides, cluster them as published and by growth, and measure the distortion.

The paper's day of rides is not public, so rides are generated: about 150 stations of a metro-like network, three
passenger types, two rush hours. Distortion is the paper's (eqs. 14-20). The range of start times is that of the drawn
table, as in eq. 20. Class costs are weighed by the scenario's own importance where classes are formed; totals are
given under it, under automatic importance (as the paper does, below eq. 15) and under equal importance.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

import dunnage as dn
from dunnage import samples
from dunnage.kernels.clusters.growth import Constraints, Metric, distance_deviations, grow
from dunnage.kernels.clusters.published import published_density, published_greedy
from dunnage.kernels.clusters.refine import dissolve, refine
from papers.hoogervorst2019_runs import mean_sd

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
class Job:
    """One way to cluster one table."""

    draw: int  # draw, size: Which table, and its records
    size: int
    scenario: str  # scenario, method, scaling, k: How it is clustered
    method: str
    scaling: str
    k: int
    limit: float = math.inf  # largest generalisation of the attributes that the scenario limits; none without one
    refine_seconds: float = 0.0  # time for local search


@dataclass(frozen=True, kw_only=True)
class Run:
    """What came of a job."""

    draw: int  # draw, size, scenario, method, scaling, k, limit: Of the job
    size: int
    scenario: str
    method: str
    scaling: str
    k: int
    limit: float
    type: float  # type, board, alight, start: Distortion of the attributes (eq. 18)
    board: float
    alight: float
    start: float
    total: float  # total distortion (eq. 14) under the scenario's own importance
    total_auto: float  # total_auto, total_equal: The same under automatic and under equal importance
    total_equal: float
    suppressed: float  # share of records that are left out
    classes: int  # classes, smallest: Number of classes, and records of the smallest
    smallest: int
    persons: int  # distinct cards of the class that has fewest
    too_few: float  # share of classes with fewer than k distinct cards
    one_type: float  # share of classes in which all passengers are of one type
    # od_spread, od_possible, od_certain: Mean absolute difference of passengers between the original's top pairs of
    # stations, by reading of a set: a record spread evenly over the pairs it may be; counted with every pair it may
    # be; counted only if its pair is certain
    od_spread: float
    od_possible: float
    od_certain: float
    # start_lower, start_middle: Absolute difference of the mean start time, in seconds, from lower ends (as the
    # paper) and from middles
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


COLUMNS = tuple(field.name for field in fields(Run))
MEASURES = COLUMNS[COLUMNS.index("type") :]


def clustered(rides: Rides, job: Job) -> tuple[IntArray, float]:
    """Cluster rides; return the class of each record and the CPU seconds taken."""
    metric = rides.metric(job.scenario, job.scaling)
    limits = limits_of(job)
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


def limits_of(job: Job) -> FloatArray | None:
    """Return the limit of each attribute, or nothing if there is none."""
    if math.isinf(job.limit):
        return None
    return np.array([job.limit if name in LIMITED[job.scenario] else math.inf for name in ATTRIBUTES])


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
    said = asdict(job)
    del said["refine_seconds"]
    return Run(
        **said,
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
        found.append(
            Histogram(
                draw=job.draw,
                size=job.size,
                k=job.k,
                scenario=job.scenario,
                method=job.method,
                attribute=name,
                shares=shares,
            )
        )
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
    from_, to = (_members(of_record, column, len(sizes), num) for column in (board, alight))
    pairs = from_.sum(axis=1) * to.sum(axis=1)
    possible = from_[:, best // num] & to[:, best % num]
    readings = {"spread": sizes / np.maximum(pairs, 1), "possible": sizes, "certain": sizes * (pairs == 1)}
    return {f"od_{name}": float(np.abs(each @ possible - counts[best]).mean()) for name, each in readings.items()}


def _members(of_record: IntArray, codes: IntArray, num_classes: int, num: int) -> npt.NDArray[np.bool_]:
    """Say which codes each class has. Shape: classes, codes."""
    found = np.zeros((num_classes, num), dtype=bool)
    inside = of_record >= 0
    found[of_record[inside], codes[inside]] = True
    return found


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
    todo: dict[Job, None] = {}
    for draw in range(effort.draws):
        for method, scenario, k in _ways(effort):
            todo[_job(effort, draw, scenario, method, k)] = None
        for method in PUBLISHED:
            for k in effort.ks:
                todo[_job(effort, draw, AUTO, method, k, scaling=MAXIMUM)] = None
                for size in effort.sizes:
                    todo[_job(effort, draw, AUTO, method, k, size=size)] = None
        for scenario, limits in effort.limits.items():
            for limit in limits:
                for method in (DENSITY, GROWTH):
                    todo[_job(effort, draw, scenario, method, effort.limit_k, limit=limit)] = None
            todo[_job(effort, draw, scenario, DISSOLVED, effort.limit_k)] = None
    return sorted(todo, key=lambda job: (-job.refine_seconds, -job.size, job.method != DENSITY))


def _ways(effort: Effort) -> Iterable[tuple[str, str, int]]:
    for k in effort.ks:
        yield from ((method, scenario, k) for scenario in FACTORS for method in (DENSITY, GROWTH, REFINED))
        yield from ((method, AUTO, k) for method in (GREEDY, PERSONS, DISSOLVED))


def _job(
    effort: Effort,
    draw: int,
    scenario: str,
    method: str,
    k: int,
    *,
    scaling: str = UNIT,
    size: int | None = None,
    limit: float = math.inf,
) -> Job:
    return Job(
        draw=draw,
        size=size or effort.size,
        scenario=scenario,
        method=method,
        scaling=scaling,
        k=k,
        limit=limit,
        refine_seconds=effort.refine_seconds if method == REFINED else 0.0,
    )


def warm_up() -> None:
    """Compile before anything is timed."""
    for method in (GREEDY, DENSITY, DISSOLVED, GROWTH, PERSONS, REFINED):
        small = Job(draw=0, size=200, scenario=OD, method=method, scaling=UNIT, k=5, refine_seconds=0.2)
        measure(small)
        if method in (DENSITY, GROWTH):
            measure(replace(small, limit=8.0))


@dataclass(frozen=True, eq=False)
class Results:
    """All runs."""

    runs: Sequence[Run]
    histograms: Sequence[Histogram]
    effort: Effort

    @classmethod
    def of(cls, found: Iterable[Run | Histogram], effort: Effort) -> Results:
        """Sort what was measured."""
        items = list(found)
        runs = [item for item in items if isinstance(item, Run)]
        keys = COLUMNS[: COLUMNS.index("type")]
        runs.sort(key=lambda run: tuple(str(getattr(run, key)).rjust(12) for key in keys))
        bars = [item for item in items if isinstance(item, Histogram)]
        return cls(runs, bars, effort)

    def values(
        self,
        column: str,
        *,
        k: int,
        scenario: str = AUTO,
        method: str = DENSITY,
        scaling: str = UNIT,
        limit: float = math.inf,
        size: int | None = None,
    ) -> FloatArray:
        """Return one measure of the runs of a configuration, one a draw."""
        wanted = (size or self.effort.size, scenario, method, scaling, k, limit)
        rows = [r for r in self.runs if (r.size, r.scenario, r.method, r.scaling, r.k, r.limit) == wanted]
        return np.array([getattr(run, column) for run in sorted(rows, key=lambda run: run.draw)], dtype=np.float64)

    def mean(self, column: str, **which: object) -> float:
        """Return the mean of a measure over draws."""
        return mean_sd(self.values(column, **which))[0]  # type: ignore[arg-type]

    def row(self, columns: Sequence[str], **which: object) -> dict[str, object]:
        """Return means and standard deviations of some measures as a line of a table."""
        line: dict[str, object] = dict(which)
        for column in columns:
            line[column], line[f"{column}_sd"] = mean_sd(self.values(column, **which))  # type: ignore[arg-type]
        return line

    def shares(self, scenario: str, method: str, attribute: str) -> FloatArray:
        """Return the mean histogram of an attribute, at the k of the limits."""
        wanted = (self.effort.size, self.effort.limit_k, scenario, method, attribute)
        found = [b.shares for b in self.histograms if (b.size, b.k, b.scenario, b.method, b.attribute) == wanted]
        return np.mean(found, axis=0)
