# SPDX-License-Identifier: Apache-2.0
"""Yao et al. 2024, section 5: perturb generated numbers, places and paths by every method, and measure the errors.

The census records and taxis of the paper are not ours to use. Numbers follow the laws that it states (``dunnage
generate telemetry --law gauss|uniform|census``); the fleet is as large as its own, 9,858 vehicles and 265 moments, and
drives through a made-up city (``dunnage generate positions``). Reports are drawn by the laws of :mod:`dunnage.devices`,
exactly and seeded, so that everything comes out the same again.

Every method is run on *terms*: at the budget that it declares, and with reports that all give away the same.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property, lru_cache

import numpy as np

from dunnage.arrays import FloatArray, IntArray
from dunnage.collecting import batch
from dunnage.collecting.estimate import project_shares, walsh_hadamard
from dunnage.collecting.kernels import split_cells
from dunnage.collecting.tally import Counts, Sums, Tally
from dunnage.devices.numbers import (
    JointReport,
    LiteralPiecewise,
    LocalNumeric,
    PublishedPiecewise,
    ReportedNumber,
    SampledReport,
    attributes_of,
    joint_report,
    num_sampled,
    published_report,
)
from dunnage.devices.paths import Independent, LocalTrajectory, ReachablePaths
from dunnage.devices.places import Channel, HadamardResponse, InClear, LocalLocation, PublishedUnary, enumerated_loss
from dunnage.devices.subjects import Grid, Quantity
from dunnage.devices.task import Tier
from dunnage.noise.source import Noise
from dunnage.samples.telemetry import CITY_BOX, PositionSetting, TelemetrySetting, positions, telemetry
from papers.measuring import Runs, fields_of, mean_interval, seed_of

NumberReport = SampledReport | JointReport
Shared = LocalLocation | LocalTrajectory

SEED = 2024
NUMBERS, PLACES, PATHS, GRIDS = "numbers", "places", "paths", "grids"

DECLARED, EQUAL, RAISED = "declared", "equal", "raised"
"""Terms: as each method declares; a report of vehicle i gives away epsilon_i, by every method; or d epsilon_i."""
TERMS = (DECLARED, EQUAL)

HARMONY, DUCHI, PM, L_LDP, OURS = "Harmony", "Duchi", "PM", "e-L_LDP", "ours"
OURS_ALIKE, L_LDP_WEIGHED = "ours, one budget", "e-L_LDP, weighed"
"""Ours at epsilon for all, as the baselines are run; e-L_LDP with the weights of ours instead of a plain mean."""
NUMBER_METHODS = {
    DECLARED: (HARMONY, DUCHI, PM, L_LDP, OURS, OURS_ALIKE),
    EQUAL: (HARMONY, DUCHI, PM, L_LDP, OURS, L_LDP_WEIGHED),
    RAISED: (HARMONY, DUCHI, PM, L_LDP, OURS, L_LDP_WEIGHED),
}
PAPERS_NUMBERS = (HARMONY, DUCHI, PM, L_LDP)
QLP, QJLP, LT_LDP, OURS_CLEAR, NOTHING = "QLP", "QJLP", "e-LT_LDP", "ours, area in clear", "nothing"
SHARE_METHODS = (QLP, QJLP, LT_LDP, OURS, OURS_CLEAR)
PAPERS_SHARES = (QLP, QJLP, LT_LDP)
ONE_BUDGET = (HARMONY, DUCHI, PM, OURS_ALIKE, QLP, QJLP)
"""Methods that have one budget for all at what they declare; on other terms every vehicle has its own."""

GAUSS, UNIFORM, CENSUS = "gauss", "uniform", "census"
FLEET = "fleet"
NUM_CARRIERS, NUM_VEHICLES, NUM_EPOCHS = 5_000, 9_858, 265
DIMENSIONS = (2, 4, 6, 8, 10)
CENSUS_DIMENSIONS = 5
EPSILON = 0.5  # budget of Figure 6
EPSILONS = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0)
STEPS = (2, 3)
NUM_TIERS = 5  # budgets uniform in an interval are the middles of so many equal parts of it: budgets are public tiers
COORDINATES = 2  # what d is taken to be in the budgets of places and paths, for which the paper does not say
LEVELS, AREA_LEVELS = 4, 2  # quadtree of places and paths: 64 cells, 4 areas of 16
GRID_LEVELS = (3, 4, 5)
GRID_EPSILONS = (0.5, 1.0, 2.0, 5.0)
FLOOR = 0.001  # least share that an absolute error is divided by in MAPE: ten vehicles


def budgets(epsilon: float, dimensions: int, method: str, terms: str) -> tuple[Fraction, ...]:
    """Return the budgets of vehicles: tiers between epsilon by the root of d and epsilon, or epsilon for all."""
    if terms == DECLARED and method in ONE_BUDGET:
        return (_rational(epsilon),)
    low = epsilon / math.sqrt(dimensions)
    return tuple(_rational(low + (epsilon - low) * (part + 0.5) / NUM_TIERS) for part in range(NUM_TIERS))


def _rational(number: float) -> Fraction:
    return Fraction(round(number * 10**6), 10**6)


def spent(budget: Fraction, dimensions: int, method: str, terms: str) -> Fraction:
    """Return the epsilon that a method for numbers is run at: it is given away d times by e-L_LDP, else once."""
    published = method in (L_LDP, L_LDP_WEIGHED)
    if terms == EQUAL and published:
        return budget / dimensions
    return budget * dimensions if terms == RAISED and not published else budget


def place_factor(steps: int, method: str, kind: str = PATHS) -> int:
    """Return how often a report of places gives epsilon away at least, between places of one area."""
    if method in (OURS, OURS_CLEAR):
        return 1
    return 2 * steps if method == LT_LDP and kind == PATHS else 2


@cache
def numbers(law: str, dimensions: int) -> tuple[tuple[ReportedNumber, FloatArray], ...]:
    """Generate what carriers report: for each attribute its column."""
    setting = TelemetrySetting(size=NUM_CARRIERS, readings=1, attributes=dimensions, law=law)
    table = telemetry(setting, seed=SEED)
    quantities = [
        Quantity(name=sensor.name, low=Fraction(sensor.low), high=Fraction(sensor.high)) for sensor in setting.sensors
    ]
    columns = (table[quantity.name].to_numpy().astype(np.float64) for quantity in quantities)
    return tuple(zip(attributes_of(quantities), columns, strict=True))


def normalised(attribute: ReportedNumber, column: FloatArray) -> FloatArray:
    """Return values in units of [-1, 1], as they are reported: clamped to the public domain."""
    low, high = float(attribute.quantity.low), float(attribute.quantity.high)
    return np.asarray((np.clip(column, low, high) - low) * 2 / (high - low) - 1)


def number_report(method: str, attributes: Sequence[ReportedNumber], epsilon: Fraction) -> NumberReport:
    if method in (L_LDP, L_LDP_WEIGHED):
        return published_report(attributes, epsilon)
    if method == DUCHI:
        return joint_report(attributes, epsilon)
    if method == PM:
        num = num_sampled(epsilon, len(attributes))
        laws = (PublishedPiecewise(epsilon=epsilon / num, steps=attribute.steps) for attribute in attributes)
        return SampledReport(tuple(laws), num)
    way = "harmony" if method == HARMONY else "hybrid"
    return LocalNumeric(quantities=[a.quantity for a in attributes], epsilon=epsilon, method=way).channel("all")


def tiers_of(num: int, num_tiers: int, generator: np.random.Generator) -> list[IntArray]:
    """Deal vehicles out to tiers, all alike, without looking at them."""
    chosen = generator.integers(0, num_tiers, num)
    return [np.flatnonzero(chosen == tier) for tier in range(num_tiers)]


def estimate_means(
    columns: Sequence[tuple[ReportedNumber, FloatArray]],
    reports: Sequence[NumberReport],
    members: Sequence[IntArray],
    noise: Noise,
    *,
    plain: bool,
) -> FloatArray:
    """Perturb, tally and estimate all means in units of [-1, 1]."""
    total, whole = np.zeros(len(columns)), np.zeros(len(columns))
    for report, rows in zip(reports, members, strict=True):
        tally = Tally(purpose=NUMBERS, tier="all")
        batch.add_numbers(tally, report, [(attribute, column[rows]) for attribute, column in columns], noise)
        for (place, key), part in tally.parts.items():
            assert isinstance(place, int)
            assert isinstance(part, Sums)
            reading = report.reading(place, str(key))
            constant, square = reading.quadratic
            weight = part.num if plain else part.num / (constant + square / 3)  # as for evenly spread numbers
            total[place] += weight * reading.scale * part.total / max(part.num, 1)
            whole[place] += weight
    return total / whole


def expected_mse(columns: Sequence[tuple[ReportedNumber, FloatArray]], epsilons: Sequence[Fraction]) -> float:
    """Return the expected MSE of e-L_LDP in closed form: the mean over attributes of the variance of a plain mean."""
    found = []
    for epsilon in epsilons:  # tiers are alike in size
        laws = published_report([attribute for attribute, _ in columns], epsilon).laws
        for law, (attribute, column) in zip(laws, columns, strict=True):
            constant, square = law.quadratic
            found.append(constant + (square - 1) * float(np.mean(normalised(attribute, column) ** 2)))
    return float(np.mean(found)) / NUM_CARRIERS


@lru_cache(maxsize=4)
def grid(levels: int = LEVELS, area_levels: int = AREA_LEVELS) -> Grid:
    west, south, east, north = (Fraction(str(side)) for side in CITY_BOX)
    return Grid(box=(west, south, east, north), levels=levels, area_levels=area_levels)


@lru_cache(maxsize=1)
def fleet() -> tuple[FloatArray, FloatArray]:
    """Generate longitudes and latitudes of all vehicles, a row for each moment."""
    table = positions(PositionSetting(size=NUM_VEHICLES, epochs=NUM_EPOCHS), seed=SEED)
    longitudes, latitudes = (table[name].to_numpy().reshape(NUM_EPOCHS, NUM_VEHICLES) for name in ("lon", "lat"))
    return longitudes, latitudes


@lru_cache(maxsize=4)
def fleet_cells(levels: int) -> IntArray:
    """Return the cells of all vehicles, a row for each moment."""
    longitudes, latitudes = fleet()
    found = batch.find_cells(grid(levels), longitudes.ravel(), latitudes.ravel())
    return found.reshape(NUM_EPOCHS, NUM_VEHICLES).astype(np.int16)


def walked(run: int, runs: int, steps: int, levels: int = LEVELS) -> IntArray:
    """Return the cells of one run: a row for each step, from a moment of its own, all over the day."""
    first = round((run + 0.5) * (NUM_EPOCHS - steps) / runs)
    return fleet_cells(levels)[first : first + steps].astype(np.int64)


def share_mechanism(method: str, on: Grid, steps: int, tiers: Sequence[Tier]) -> Shared:
    """Return a method for places (one step) or paths."""
    clear, published = method == OURS_CLEAR, method in PAPERS_SHARES
    if steps == 1:
        return LocalLocation(grid=on, tiers=tuple(tiers), area_in_clear=clear, as_published=published)
    way = {QLP: "qlp", QJLP: "qjlp", LT_LDP: "product"}.get(method, "auto")
    if clear and steps == max(STEPS):
        way = "optimised-unary"  # one bit over what is chosen by itself, and as long as QJLP's reports
    return LocalTrajectory(
        grid=on, steps=steps, tiers=tuple(tiers), method=way, area_in_clear=clear, as_published=published
    )


@dataclass(frozen=True)
class Estimated:
    mechanism: Shared  # what made the reports
    value: FloatArray  # unbiased shares, in the mechanism's own numbering of inputs
    of_groups: FloatArray  # where areas are in clear, the share of reports of each sequence of areas; else empty

    @cached_property
    def projected(self) -> FloatArray:
        """The nearest shares that are not negative and add up; within each sequence of areas if these are in clear."""
        if not self.of_groups.size:
            return project_shares(self.value)
        found, size = np.zeros(self.value.size), (self.value.size - 1) // self.of_groups.size
        for group in np.flatnonzero(self.of_groups):
            places = np.arange(group * size, (group + 1) * size)
            places = np.append(places, found.size - 1) if group == 0 else places  # where missing ones are counted
            found[places] = project_shares(self.value[places], float(self.of_groups[group]))
        return found


def estimate_shares(mechanism: Shared, cells: IntArray, members: Sequence[IntArray], noise: Noise) -> Estimated:
    """Perturb, tally and estimate; tiers are weighed by the precision of an even share."""
    value, whole, groups = np.zeros(1), 0.0, np.zeros(0)
    for tier, rows in zip(mechanism.levels, members, strict=True):
        law, tally = mechanism.channel(tier), Tally(purpose=PATHS, tier=tier.name, num_reports=len(rows))
        if isinstance(mechanism, LocalTrajectory):
            batch.add_paths(tally, law, mechanism, cells[:, rows], noise)
        else:
            batch.add_places(tally, law, cells[0, rows], noise)
        share = 1 / law.num_inputs
        precision = len(rows) / (law.variance(share, 1) + share * (1 - share))
        value, whole = value + precision * unbiased(law, tally), whole + precision
        if isinstance(law, InClear):
            nums = np.zeros(law.num_groups)
            for (group,), part in tally.parts.items():
                nums[int(group)] = part.num
            groups = nums + groups if groups.size else nums
    return Estimated(mechanism, value / whole, groups / groups.sum() if groups.size else groups)


def unbiased(law: object, tally: Tally) -> FloatArray:
    """Return unbiased shares of all inputs of a law from the reports of one tier."""
    if isinstance(law, Independent):
        return _product_shares(law, tally)
    if not isinstance(law, InClear):
        (part,) = tally.parts.values()
        return _oracle_shares(law, part, tally.num_reports)
    found = np.zeros(law.num_inputs)
    for (group,), part in tally.parts.items():
        inner = _oracle_shares(law.oracle, part, tally.num_reports)
        found[int(group) * law.group_size : (int(group) + 1) * law.group_size] = inner[:-1]
        found[-1] += inner[-1] if group == 0 else 0.0
    return found


def _oracle_shares(oracle: object, part: object, num: int) -> FloatArray:
    assert isinstance(part, Counts)
    if isinstance(oracle, HadamardResponse):
        rows, blocks = np.divmod(np.arange(oracle.num_inputs), oracle.num_blocks)
        scores = walsh_hadamard(part.counts.reshape(oracle.num_blocks, oracle.num_columns))
        return np.asarray(oracle.scale * scores[blocks, rows + 1] / num)
    return np.asarray((part.counts - oracle.offset * part.num) * oracle.scale / num)  # type: ignore[attr-defined]


def _product_shares(law: Independent, tally: Tally) -> FloatArray:
    """Return means over reports of products of what each place estimates; inputs are numbered place by place."""
    oracle, size = law.place.oracle, law.place.group_size
    found = np.zeros((law.place.num_inputs,) * law.steps)
    for key, part in tally.parts.items():
        assert isinstance(part, Counts)
        sums = part.counts.astype(np.float64)
        for axis in range(law.steps):
            bits = np.moveaxis(sums, axis, 0)
            sums = np.moveaxis(oracle.scale * (bits[:-1] - oracle.offset * bits[-1:]), 0, axis)
        # "outside or missing" is reported in the first area
        inner = [np.arange(size + (area == 0)) for area in key]
        whole = [
            np.where(own == size, law.place.num_inputs - 1, int(area) * size + own)
            for area, own in zip(key, inner, strict=True)
        ]
        found[np.ix_(*whole)] += sums[np.ix_(*inner)]
    return found.ravel() / tally.num_reports


def places_in(mechanism: Shared, paths: IntArray) -> IntArray:
    """Return where a mechanism has the estimates of paths (a column each); -1 for one that it cannot report."""
    if isinstance(mechanism, LocalLocation):
        return np.asarray(paths[0])
    on, code = mechanism.grid, mechanism.paths
    if mechanism.method in ("product", "qlp"):
        return np.asarray(np.ravel_multi_index(tuple(paths), (on.num_cells + 1,) * len(paths)))
    found = batch.find_paths(code, paths)
    if isinstance(code, ReachablePaths):
        corners = np.stack([split_cells(np.ascontiguousarray(row)) for row in paths])
        return np.where(np.abs(np.diff(corners, axis=0)).max(axis=(0, 1)) > code.hops, -1, found)
    return found


def share_errors(estimated: Estimated, cells: IntArray) -> dict[str, float]:
    """Measure the estimated shares of all places, or paths, that occur and are inside the box."""
    outside = estimated.mechanism.grid.outside
    inside = (cells != outside).all(axis=0)
    paths, counts = np.unique(cells[:, inside], axis=1, return_counts=True)
    return _errors(estimated, places_in(estimated.mechanism, paths), counts / cells.shape[1])


def _errors(estimated: Estimated, places: IntArray, true: FloatArray) -> dict[str, float]:
    found: dict[str, float] = {}
    for suffix, values in (("", estimated.value), ("_projected", estimated.projected)):
        off = np.abs(np.where(places < 0, 0.0, values[places]) - true)
        found[f"rmse{suffix}"] = math.sqrt(float((off**2).mean()))
        found[f"mape{suffix}"] = float((off / np.maximum(true, FLOOR)).mean())
    return found


def first_places(estimated: Estimated) -> Estimated:
    """Return the shares of the first place of paths that were reported as one, areas in clear (QJLP)."""
    assert isinstance(estimated.mechanism, LocalTrajectory)
    on, steps = estimated.mechanism.grid, estimated.mechanism.steps
    shape = (on.num_areas,) * steps + (on.num_inner,) * steps
    others = tuple(axis for axis in range(2 * steps) if axis not in (0, steps))
    value = estimated.value[:-1].reshape(shape).sum(axis=others).ravel()
    of_areas = estimated.of_groups.reshape((on.num_areas,) * steps).sum(axis=tuple(range(1, steps)))
    places = LocalLocation(grid=on, epsilon=1, area_in_clear=True)
    return Estimated(places, np.append(value, estimated.value[-1]), of_areas)


def saying_nothing(cells: IntArray, steps: int, levels: int = LEVELS) -> dict[str, float]:
    """Return the errors of a table that says that all reachable paths are alike."""
    mechanism = share_mechanism(OURS, grid(levels), steps, (Tier(name="all", epsilon=Fraction(1)),))
    num = mechanism.channel("all").num_inputs
    return share_errors(Estimated(mechanism, np.full(num, 1 / num), np.zeros(0)), cells)


@dataclass(frozen=True, kw_only=True)
class Effort:
    # runs, number_runs, long_runs: Repetitions of each method, budget and size; on numbers; where paths of three
    # steps are reported
    runs: int
    number_runs: int
    long_runs: int
    epsilons: tuple[float, ...]  # budgets of Figures 7 to 9


FULL = Effort(runs=100, number_runs=100, long_runs=40, epsilons=EPSILONS)
QUICK = Effort(runs=4, number_runs=20, long_runs=3, epsilons=(0.5, 1.5, 3.0, 5.0))


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is reported, and how."""

    kind: str  # ``numbers``, ``places``, ``paths`` or ``grids``
    data: str  # law of the numbers, or ``fleet``
    method: str
    terms: str
    epsilon: float
    # numbers of a report (``numbers``), steps (``places``: of the paths that QJLP reports), or levels (``grids``)
    size: int


@dataclass(frozen=True, kw_only=True)
class Job(Case):
    runs: int  # repetitions


@dataclass(frozen=True, kw_only=True)
class Run(Case):
    run: int
    mse: float = math.nan  # mean over attributes of the squared error of the estimated mean, in units of [-1, 1]
    # rmse, mape: Root mean square, and mean, of the errors of unbiased shares, for MAPE relative to the share or
    # 0.001
    rmse: float = math.nan
    mape: float = math.nan
    # rmse_projected, mape_projected: The same after shares are brought to the nearest ones that are not negative and
    # add up to 1
    rmse_projected: float = math.nan
    mape_projected: float = math.nan


def jobs(effort: Effort) -> list[Job]:
    """Return everything to do, long ones first."""
    cases = [(data, EPSILON, size) for data in (GAUSS, UNIFORM) for size in DIMENSIONS]
    cases += [(CENSUS, epsilon, CENSUS_DIMENSIONS) for epsilon in effort.epsilons]
    # What is the same on two terms is run once.
    ways = [(m, terms) for terms, methods in NUMBER_METHODS.items() for m in methods if runs_apart(m, terms)]
    todo = [(NUMBERS, data, way, epsilon, size) for data, epsilon, size in cases for way in ways]
    ways = [(method, terms) for terms in TERMS for method in SHARE_METHODS if runs_apart(method, terms)]
    shares = itertools.product((PATHS, PLACES), (FLEET,), ways, effort.epsilons, STEPS)
    todo += [case for case in shares if case[0] == PATHS or case[4] == STEPS[0] or case[2][0] == QJLP]
    ways = [(LT_LDP, DECLARED), (LT_LDP, EQUAL), (OURS, DECLARED), (OURS_CLEAR, DECLARED)]
    todo += itertools.product((GRIDS,), (FLEET,), ways, GRID_EPSILONS, GRID_LEVELS)
    found = []
    for kind, data, (method, terms), epsilon, size in todo:
        runs = effort.long_runs if kind != GRIDS and size == max(STEPS) else effort.runs
        runs = effort.number_runs if kind == NUMBERS else runs
        found.append(Job(kind=kind, data=data, method=method, terms=terms, epsilon=epsilon, size=size, runs=runs))
    return sorted(found, key=lambda job: (job.kind != PATHS, -job.size, job.kind == NUMBERS))


def runs_apart(method: str, terms: str) -> bool:
    """Return whether a method is anything else on these terms than on those that it declares."""
    same = {EQUAL: (OURS, OURS_CLEAR), RAISED: (L_LDP,)}
    return method not in same.get(terms, ())


def measure(job: Job) -> list[Run]:
    noise, generator = Noise(seed=seed_of(job)), np.random.default_rng(seed_of(job))
    of_kind = _number_runs if job.kind == NUMBERS else _share_runs
    case = fields_of(job, Case)
    return [Run(**case, run=run, **measured) for run, measured in enumerate(of_kind(job, noise, generator))]


def _number_runs(job: Job, noise: Noise, generator: np.random.Generator) -> Iterable[dict[str, float]]:
    columns = numbers(job.data, job.size)
    attributes = [attribute for attribute, _ in columns]
    own = budgets(job.epsilon, job.size, job.method, job.terms)
    reports = [number_report(job.method, attributes, spent(b, job.size, job.method, job.terms)) for b in own]
    true = np.array([normalised(attribute, column).mean() for attribute, column in columns])
    for _ in range(job.runs):
        members = tiers_of(NUM_CARRIERS, len(own), generator)
        means = estimate_means(columns, reports, members, noise, plain=job.method == L_LDP)
        yield {"mse": float(((means - true) ** 2).mean())}


def _share_runs(job: Job, noise: Noise, generator: np.random.Generator) -> Iterable[dict[str, float]]:
    mechanism = mechanism_of(job)
    levels, steps = mechanism.grid.levels, mechanism.steps if isinstance(mechanism, LocalTrajectory) else 1
    for run in range(job.runs):
        cells = walked(run, job.runs, steps, levels)
        members = tiers_of(NUM_VEHICLES, len(mechanism.levels), generator)
        estimated = estimate_shares(mechanism, cells, members, noise)
        if job.kind == PLACES and steps > 1:
            estimated, cells = first_places(estimated), cells[:1]
        yield share_errors(estimated, cells)


def mechanism_of(job: Job) -> Shared:
    """Return the mechanism of a job on places or paths, with its tiers."""
    on = grid(job.size) if job.kind == GRIDS else grid()
    steps = job.size if job.kind == PATHS or job.method == QJLP else 1
    factor = place_factor(steps, job.method, job.kind) if job.terms == EQUAL else 1
    own = budgets(job.epsilon, COORDINATES, job.method, job.terms)
    tiers = [Tier(name=f"tier {number}", epsilon=budget / factor) for number, budget in enumerate(own)]
    return share_mechanism(job.method, on, steps, tiers)


def warm_up() -> None:
    for method in (DUCHI, OURS):
        measure(Job(kind=NUMBERS, data=GAUSS, method=method, terms=DECLARED, epsilon=1.0, size=2, runs=1))
    for method in SHARE_METHODS:
        measure(Job(kind=PATHS, data=FLEET, method=method, terms=DECLARED, epsilon=1.0, size=2, runs=1))


class Results(Runs):
    KIND = ("kind", "data", "method", "terms", "epsilon", "size")

    @classmethod
    def of(cls, found: Iterable[Run], effort: Effort) -> Results:
        order = sorted(found, key=lambda r: (r.kind, r.data, r.size, r.epsilon, r.method, r.terms, r.run))
        return cls(order, effort)

    def interval(
        self, column: str, method: str, epsilon: float, size: int, *, kind: str, data: str, terms: str = DECLARED
    ) -> tuple[float, float]:
        """Return the mean of a measure, from the terms on which the method is run, and half of its 95 % interval."""
        if not runs_apart(method, terms):
            terms = DECLARED
        if kind == PLACES and method != QJLP:
            size = STEPS[0]  # one place is reported, whatever is compared with it
        case = {"method": method, "epsilon": epsilon, "size": size, "kind": kind, "data": data, "terms": terms}
        mean, half = mean_interval(self.values(column, **case))
        return mean, 0.0 if math.isnan(half) else half

    def mean(self, column: str, method: str, epsilon: float, size: int, **case: str) -> float:
        return self.interval(column, method, epsilon, size, **case)[0]


@lru_cache(maxsize=32)
def nothing(kind: str, size: int, runs: int) -> Mapping[str, float]:
    """Return the mean errors of a table that says nothing, over the moments that are measured."""
    steps, levels = (size, LEVELS) if kind == PATHS else (1, size if kind == GRIDS else LEVELS)
    walks = (walked(run, runs, steps, levels) for run in range(runs))
    each = [saying_nothing(walk, steps, levels) for walk in walks]
    return {name: float(np.mean([one[name] for one in each])) for name in each[0]}


# What follows without any run


def printed_thresholds(epsilon: float) -> dict[str, float]:
    """Return the three thresholds of L-PM that are printed: in 4.2.1, in 4.2.2 and in Algorithm 1."""
    half, odds = math.exp(epsilon / 2), math.exp(epsilon)
    return {"4.2.1": half / (half - 1), "4.2.2": half / (half + 1), "Algorithm 1": half / (odds + 1)}


def density_integral(epsilon: float, *, corrected: bool = False) -> float:
    """Integrate the density of eq. 22 over [-C, C], with its denominator as printed or corrected."""
    half, odds = math.exp(epsilon / 2), math.exp(epsilon)
    reach = (half + 1) / (half - 1)
    density = (odds - half) / (2 * (half if corrected else odds) + 2)
    return density * (reach - 1) + density / odds * (reach + 1)


def printed_slope(epsilon: float) -> float:
    """Return the mean of a report of Algorithm 1 as printed, as a multiple of the number: 1 would be unbiased."""
    half = math.exp(epsilon / 2)
    reach, inside = (half + 1) / (half - 1), printed_thresholds(epsilon)["Algorithm 1"]
    # The middle of the window is (C + 1)/2 t, that of all else -(C - 1)/2 t.
    return inside * (reach + 1) / 2 - (1 - inside) * (reach - 1) / 2


def literal_slope(epsilon: Fraction, steps: int = 1024) -> float:
    """Return the same of its exact discrete form."""
    return LiteralPiecewise(epsilon=epsilon, steps=steps).slope


def piecewise_variance(epsilon: float, number: float) -> float:
    """Return the variance of the corrected L-PM in closed form."""
    half = math.exp(epsilon / 2)
    return number**2 / (half - 1) + (half + 3) / (3 * (half - 1) ** 2)


class _Coarse(PublishedPiecewise):
    """The published law with as few symbols as there can be, so that whole reports can be looked at."""

    def design(self) -> tuple[int, int]:
        """Return one symbol a point, and a window of one."""
        return 1, 0


def loss_of_numbers(dimensions: int, epsilon: Fraction) -> Fraction | None:
    """Enumerate what a whole report of e-L_LDP gives away, on a coarse grid of values."""
    return enumerated_loss(SampledReport((_Coarse(epsilon=epsilon, steps=1),) * dimensions, dimensions))


def loss_of_bits(num_inputs: int, epsilon: Fraction) -> Fraction | None:
    """Enumerate what a vector of L-RR gives away."""
    return enumerated_loss(PublishedUnary(num_inputs=num_inputs, epsilon=epsilon))


def loss_of_place(epsilon: Fraction, *, levels: int = 3, area_levels: int = 2) -> Fraction | None:
    """Enumerate what a report of e-LT_LDP gives away; None, for no bound, if there are several areas in clear."""
    law: Channel = LocalLocation(grid=grid(levels, area_levels), epsilon=epsilon, as_published=True).channel("all")
    return enumerated_loss(law)


def exact_losses(epsilon: Fraction) -> list[tuple[str, str, Fraction | float | None]]:
    """Return mechanisms, how what a report gives away is found, and what it is; None for no bound."""
    looked, closed, one_area = "every symbol and input", "closed form", grid(2, 1)
    two = [ReportedNumber(quantity=Quantity(name=name, low=Fraction(0), high=Fraction(1), steps=1)) for name in "ab"]
    reports = {method: number_report(method, two, epsilon) for method in (HARMONY, DUCHI, PM, OURS)}
    found: list[tuple[str, str, Fraction | float | None]] = [
        (f"{method}, d = 2", looked, enumerated_loss(report)) for method, report in reports.items()
    ]
    found.append(("Duchi as usually printed, d = 4", looked, printed_duchi_loss(float(epsilon), 4)))
    found += [(f"e-L_LDP, d = {d}", looked, loss_of_numbers(d, epsilon)) for d in (1, 2, 3)]
    found.append(("e-L_LDP, d = 10", closed, published_report(two * 5, epsilon).loss))
    found += [(f"L-RR, {k} bits", looked, loss_of_bits(k, epsilon)) for k in (2, 5, 9)]
    found.append(("e-LT_LDP, 4 areas", looked, loss_of_place(epsilon)))
    found.append(("e-LT_LDP, within its area", looked, loss_of_place(epsilon, levels=2, area_levels=1)))
    for method, way in ((LT_LDP, looked), (QLP, looked), (QJLP, closed), (OURS, closed)):
        path = share_mechanism(method, one_area, 2, [Tier(name="all", epsilon=epsilon)]).channel("all")
        loss = path.loss if way == closed else enumerated_loss(path)
        found.append((f"{method}, 2 steps" + (", within its areas" if method != OURS else ""), way, loss))
    place = share_mechanism(OURS, one_area, 1, [Tier(name="all", epsilon=epsilon)]).channel("all")
    found.append(("ours, a place", looked, enumerated_loss(place)))
    return found


def printed_duchi_loss(epsilon: float, dimensions: int) -> float:
    """Enumerate what Duchi's law gives away if vectors that agree in half of the places are in both halves."""
    odds, chances = math.exp(epsilon), []
    agreements = [2 * vector.bit_count() - dimensions for vector in range(1 << dimensions)]
    likely, unlikely = (sum(sign * a >= 0 for a in agreements) for sign in (1, -1))
    for agreement in agreements:
        of_likely = odds / (odds + 1) / likely if agreement >= 0 else 0.0
        chances.append(of_likely + (1 / (odds + 1) / unlikely if agreement <= 0 else 0.0))
    return math.log(max(chances) / min(chances))


def paper_code(longitude: Fraction, latitude: Fraction, on: Grid) -> tuple[str, str, int]:
    """Follow Algorithm 4, lines 3 to 10, on text: return area code H, inner code C, and the bit of B that is set."""
    west, south, east, north = on.box
    size, width = on.num_columns, on.levels - 1
    across = min(math.floor(size * (longitude - west) / (east - west)), size - 1)
    along = min(math.floor(size * (latitude - south) / (north - south)), size - 1)
    code = "".join(x + y for x, y in zip(f"{across:0{width}b}", f"{along:0{width}b}", strict=True))
    cut = 2 * (on.area_levels - 1)
    return code[:cut], code[cut:], int(code[cut:], 2) + 1
