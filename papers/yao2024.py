# SPDX-License-Identifier: Apache-2.0
"""Yao et al. 2024: local differential privacy for carriers. Figures 6 to 9, and what sections 3 to 5 state.

The census records and taxis of the paper are not ours to use. Numbers follow the laws that it states (``dunnage
generate telemetry --law gauss|uniform|census``); the fleet is as large as its own, 9,858 vehicles and 265 moments, and
drives through a made-up city (``dunnage generate positions``). Reports are drawn by the laws of :mod:`dunnage.devices`,
exactly and seeded, so that everything comes out the same again.

Every method is run on *terms*: at the budget that it declares, and with reports that all give away the same. Formulas
and losses are checked exactly. Of the figures only what the text says of them can be compared: an order or a direction
must hold for the means of every case named, and where it fails by less than the intervals show, the verdict says so.

References
----------
Yao, Tan, Yi, Fu, Zhang, Tan, Xie, She, Yang, Wu, Ye, Yu 2024, Sensitive data privacy protection of carrier in
intelligent logistics system. Symmetry 16(1), 68.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from dunnage.arrays import FloatArray, IntArray
from dunnage.collecting import batch
from dunnage.collecting.estimate import project_shares, walsh_hadamard
from dunnage.collecting.kernels import split_cells
from dunnage.collecting.tally import Counts, Sums, Tally
from dunnage.devices import numbers as number_laws
from dunnage.devices.numbers import LocalNumeric, PublishedPiecewise, ReportedNumber, SampledReport, published_report
from dunnage.devices.paths import Independent, LocalTrajectory, ReachablePaths
from dunnage.devices.places import Channel, HadamardResponse, InClear, LocalLocation, PublishedUnary, enumerated_loss
from dunnage.devices.subjects import Grid, Quantity, Tier
from dunnage.noise.source import Noise
from dunnage.samples.telemetry import CITY_BOX, PositionSetting, TelemetrySetting, positions, telemetry
from papers import report
from papers.measuring import Run, Runs, efforts, in_parallel, mean_interval, seed_of, written
from papers.report import Curve, Quoted, Row, Statements, Svg, short_intervals, verdict

NumberReport = SampledReport | number_laws.JointReport
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
    setting = TelemetrySetting(size=NUM_CARRIERS, readings=1, attributes=dimensions, law=law)
    table = telemetry(setting, seed=SEED)
    quantities = [
        Quantity(name=sensor.name, low=Fraction(sensor.low), high=Fraction(sensor.high)) for sensor in setting.sensors
    ]
    columns = (table[quantity.name].to_numpy().astype(np.float64) for quantity in quantities)
    return tuple(zip(number_laws.attributes_of(quantities), columns, strict=True))


def normalised(attribute: ReportedNumber, column: FloatArray) -> FloatArray:
    """Return values in units of [-1, 1], as they are reported: clamped to the public domain."""
    low, high = float(attribute.quantity.low), float(attribute.quantity.high)
    return np.asarray((np.clip(column, low, high) - low) * 2 / (high - low) - 1)


def number_report(method: str, attributes: Sequence[ReportedNumber], epsilon: Fraction) -> NumberReport:
    if method in (L_LDP, L_LDP_WEIGHED):
        return published_report(attributes, epsilon)
    if method == DUCHI:
        return number_laws.joint_report(attributes, epsilon)
    if method == PM:
        num = number_laws.num_sampled(epsilon, len(attributes))
        laws = (PublishedPiecewise(epsilon=epsilon / num, steps=attribute.steps) for attribute in attributes)
        return SampledReport(tuple(laws), num)
    way = "harmony" if method == HARMONY else "hybrid"
    return LocalNumeric(quantities=[a.quantity for a in attributes], epsilon=epsilon, method=way).channel("all")


def tiers_of(num: int, num_tiers: int, generator: np.random.Generator) -> list[IntArray]:
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
    for law, rows in zip(reports, members, strict=True):
        tally = Tally(purpose=NUMBERS, tier="all")
        batch.add_numbers(tally, law, [(attribute, column[rows]) for attribute, column in columns], noise)
        for (place, key), part in tally.parts.items():
            assert isinstance(place, int)
            assert isinstance(part, Sums)
            reading = law.reading(place, str(key))
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
    table = positions(PositionSetting(size=NUM_VEHICLES, epochs=NUM_EPOCHS), seed=SEED)
    longitudes, latitudes = (table[name].to_numpy().reshape(NUM_EPOCHS, NUM_VEHICLES) for name in ("lon", "lat"))
    return longitudes, latitudes


@lru_cache(maxsize=4)
def fleet_cells(levels: int) -> IntArray:
    longitudes, latitudes = fleet()
    found = batch.find_cells(grid(levels), longitudes.ravel(), latitudes.ravel())
    return found.reshape(NUM_EPOCHS, NUM_VEHICLES).astype(np.int16)


def walked(run: int, runs: int, steps: int, levels: int = LEVELS) -> IntArray:
    """Return the cells of one run: a row for each step, from a moment of its own, all over the day."""
    first = round((run + 0.5) * (NUM_EPOCHS - steps) / runs)
    return fleet_cells(levels)[first : first + steps].astype(np.int64)


def share_mechanism(method: str, on: Grid, steps: int, tiers: Sequence[Tier]) -> Shared:
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


if TYPE_CHECKING:  # the class is made from what is written
    Effort: TypeAlias = Any
    FULL: Any
    QUICK: Any
else:
    Effort, FULL, QUICK = efforts(__name__)


@dataclass(frozen=True, kw_only=True)
class Job:
    kind: str  # ``numbers``, ``places``, ``paths`` or ``grids``
    data: str  # law of the numbers, or ``fleet``
    method: str
    terms: str
    epsilon: float
    # numbers of a report (``numbers``), steps (``places``: of the paths that QJLP reports), or levels (``grids``)
    size: int
    runs: int  # repetitions


CASE = ("kind", "data", "method", "terms", "epsilon", "size")
# Mean over attributes of the squared error of the estimated mean, in units of [-1, 1]; errors of unbiased shares, for
# MAPE relative to the share or 0.001; the same after shares are brought to the nearest ones that are not negative and
# add up to 1.
ERRORS = ("mse", "rmse", "mape", "rmse_projected", "mape_projected")


def jobs(effort: Effort) -> list[Job]:
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
    case, unknown = {name: getattr(job, name) for name in CASE}, dict.fromkeys(ERRORS, math.nan)
    return [Run(**case, run=run, **{**unknown, **own}) for run, own in enumerate(of_kind(job, noise, generator))]


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
    KIND = CASE

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
    return number_laws.LiteralPiecewise(epsilon=epsilon, steps=steps).slope


def piecewise_variance(epsilon: float, number: float) -> float:
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


NEAR = 1.5  # errors within this factor are called close
LARGE = 2.0  # an error by which another is multiplied to be called significantly larger
CHECKED = (Fraction(1, 2), Fraction(1), Fraction(2), Fraction(5))  # budgets at which formulas are shown
_BUDGET = "e-L_LDP spends d times what it declares, the others once"
says = Statements("yao2024", budget=_BUDGET)


def quoted(results: Results) -> list[Quoted]:
    parts = (_section_3, _section_4, _setting_and_figure_6, _figure_7, _figures_8_9)
    return [line for part in parts for line in part(results)]


def listed(values: Iterable[float]) -> str:
    return ", ".join(f"{value:.3g}" for value in values)


def _section_3(results: Results) -> Iterator[Quoted]:
    yield says("mean-absolute-error-of")
    yield says("variance-of-laplace-noise")
    yield says("personalised-local-differential-privacy")
    two = loss_of_numbers(2, Fraction(1, 2))
    yield says("sequential-composition-budgets-add", ours=two, agrees=two == 1)
    cases = [(Fraction(share, 7), Fraction(truth, 9)) for share in range(8) for truth in (5, 6, 7, 8)]
    right = all(warner_estimate(share, truth) == share for share, truth in cases)
    yield says("warner-s-answers-and", ours=len(cases), agrees=right)
    yield says("likelihood-of-warner-s")
    yield says("p-0-75-is", ours=(math.log(0.75 / 0.25), math.log(3)))
    yield says("geo-indistinguishability-k-x")


def warner_estimate(share: Fraction, truth: Fraction) -> Fraction:
    """Return the mean of eq. 12 for a true share if answers are true with a probability."""
    yes = share * truth + (1 - share) * (1 - truth)
    return (truth - 1) / (2 * truth - 1) + yes / (2 * truth - 1)


def _section_4(results: Results) -> Iterator[Quoted]:
    speed = Quantity(name="speed", low=Fraction(0), high=Fraction(130), unit="km/h")
    values = (0, 26, 65, 130)
    scaled = [speed.normalised(value) for value in values]
    back = [speed.in_units(float(number)) for number in scaled]
    yield says("speed-of-0-26", ours=(", ".join(map(str, scaled)), listed(back)), agrees=back == list(values))
    shown = [printed_thresholds(float(epsilon)) for epsilon in CHECKED]
    at = f"at epsilon {listed(map(float, CHECKED))}"
    yield says("threshold-of-l-pm", ours=(listed(one["4.2.1"] for one in shown), at))
    laws = [PublishedPiecewise(epsilon=epsilon, steps=1024) for epsilon in CHECKED]
    odds = [
        law.window * number_laws.odds_of(law.epsilon) for law in laws
    ]  # of the published window in its exact discrete form
    inside = [float(inner / (inner + law.num_outside)) for inner, law in zip(odds, laws, strict=True)]
    right = [one["4.2.2"] for one in shown]
    agrees = all(math.isclose(a, b, rel_tol=0.01) for a, b in zip(right, inside, strict=True))
    yield says("threshold-of-l-pm-second", ours=(listed(right), listed(inside), at), agrees=agrees)
    slopes = [printed_slope(float(epsilon)) for epsilon in CHECKED]
    discrete = [literal_slope(epsilon) for epsilon in CHECKED]
    yield says("threshold-of-l-pm-third", ours=(listed(slopes), at, listed(discrete)))
    printed, whole = (listed(density_integral(float(e), corrected=c) for e in CHECKED) for c in (False, True))
    yield says("density-of-l-pm", ours=(printed, at, whole))
    laws_, checked = [number_laws.Duchi(epsilon=epsilon, steps=1) for epsilon in CHECKED], listed(map(float, CHECKED))
    at_zero, at_end = ([law.variance_at(number) for law in laws_] for number in (0.0, 1.0))
    yield says("duchi-s-values-are", ours=(listed(at_zero), listed(at_end), checked), agrees=min(at_end) >= 1)
    piecewise = [piecewise_variance(float(epsilon), 1.0) for epsilon in CHECKED]
    discrete = [law.variance_at(1.0) for law in laws]
    duchi = [*map(max, at_end, at_zero)]
    ours = listed(piecewise), listed(discrete), listed(duchi), checked
    yield says("pm-is-very-accurate", ours=ours, agrees=piecewise[-1] < duchi[-1] / 2)
    half = Fraction(1, 2)
    p, q = PublishedUnary(num_inputs=16, epsilon=half).chances(half)
    printed = [(z * (2 - 1) + 2 + 1) / (2 * Fraction(2) + 2) for z in (1, -1)]  # at e^eps = 2
    yield says("l-rr-chance-of", ours=(printed[0], printed[1]), agrees=[p, q] == printed)
    on = grid(3, 2)
    west, south, east, north = on.box
    place = west + (east - west) * Fraction(5, 8), south + (north - south) * Fraction(3, 8)
    area, inner, bit = paper_code(*place, on)
    cell = on.cell(*place)
    ours = f"{on.area(cell):02b}", f"{on.inner(cell):02b}", on.inner(cell) + 1
    yield says("area-code-h-inner", paper=(area, inner, bit), ours=ours, agrees=ours == (area, inner, bit))
    corner = on.cell(float(east), float(north))
    yield says("a-place-on-the", ours=(corner, on.num_cells - 1), agrees=corner == on.num_cells - 1)
    yield says("bits-of-m-and")
    epsilon = Fraction(1, 2)
    of_numbers = {d: loss_of_numbers(d, epsilon) for d in (1, 2, 3)}
    yield says("l-pm-on-one", ours=of_numbers[1], verdict=verdict(of_numbers[1] == epsilon, "another loss"))
    yield says("e-l-ldp-a", ours=", ".join(str(loss) for loss in of_numbers.values()))
    yield says("l-rr-largest-ratio", ours=loss_of_bits(9, epsilon))
    loss = loss_of_place(epsilon)
    ours = "no bound: a report of one area cannot come from another" if loss is None else str(loss)
    yield says("e-lt-ldp-area", ours=ours)
    yield says("with-min-epsilon-i")
    yield says("range-of-the-personal")


def _setting_and_figure_6(results: Results) -> Iterator[Quoted]:
    yield says("census-records-of-brazil")
    yield says("mean-square-error")
    yield says("budgets-of-figure-7", ours=listed(results.effort.epsilons))
    yield says("taxis-in-chengdu-vehicles", paper=(NUM_VEHICLES, NUM_EPOCHS), ours=fleet()[0].shape[::-1])
    yield says("mape-where-a-true", ours=FLOOR)
    yield says("what-qlp-and-qjlp")
    named = {GAUSS: "GAUSS", UNIFORM: "UNIFORM"}
    mse = {(data, method): _by_size(results, method, data) for data in named for method in PAPERS_NUMBERS}
    at = f"d = {listed(DIMENSIONS)}"
    falls = ", ".join(f"{method} ({named[data]})" for (data, method), own in mse.items() if own[-1] <= own[0])
    ours = _lines({method: mse[GAUSS, method] for method in PAPERS_NUMBERS}), at
    yield says("mse-of-all-four", ours=ours, agrees=not falls, differs=falls)
    growth = {data: {m: mse[data, m][-1] / mse[data, m][0] for m in PAPERS_NUMBERS} for data in named}
    most = {max(own, key=own.__getitem__) for own in growth.values()}
    parts = {data: ", ".join(f"{m} {by:.1f}" for m, by in own.items()) for data, own in growth.items()}
    ours = "; ".join(f"{named[data]}: {part}" for data, part in parts.items())
    yield says("that-of-harmony-grows", ours=ours, agrees=most == {HARMONY})
    near = {named[data]: [mse[data, method][0] for method in (PM, DUCHI, L_LDP)] for data in named}
    far = [f"{n}{_apart(results, data)}" for data, n in named.items() if max(near[n]) > LARGE * min(near[n])]
    yield says("at-d-2-pm", ours=_lines(near), agrees=not far, differs=(LARGE, ", ".join(far)))
    cases = [(data, place) for data in named for place in range(len(DIMENSIONS))]
    least = {(data, place): min(mse[data, m][place] for m in (HARMONY, DUCHI, PM)) for data, place in cases}
    lost = [case for case in cases if case[1] and mse[case[0], L_LDP][case[1]] >= least[case]]
    equal = {data: _by_size(results, L_LDP, data, EQUAL) for data in named}

    def named_cases(chosen: Iterable[tuple[str, int]]) -> str:
        return ", ".join(f"{named[data]} d = {DIMENSIONS[place]}" for data, place in chosen)

    ours = [_lines({named[d]: own[d] for d in named}) for own in ({d: mse[d, L_LDP] for d in named}, equal)]
    yield says("above-d-2-the", ours=(*ours,), verdict=verdict(not lost, f"not at {named_cases(lost)}"))
    others = {data: [_by_size(results, m, data, EQUAL) for m in (HARMONY, DUCHI, PM)] for data in named}
    worst = [case for case in cases if equal[case[0]][case[1]] <= max(own[case[1]] for own in others[case[0]])]
    ours = _lines({named[data]: _by_best(equal[data], others[data]) for data in named}), at
    not_all = f" (not below all others at {named_cases(worst)})" if worst else ": it is the worst of all"
    yield says("e-l-ldp-is", ours=ours, verdict=not_all)


def _lines(found: Mapping[Any, Iterable[float]]) -> str:
    return "; ".join(f"{name} {listed(own)}" for name, own in found.items())


def _mse(
    results: Results, method: str, size: int, data: str, *, epsilon: float = EPSILON, terms: str = DECLARED
) -> float:
    return results.mean("mse", method, epsilon, size, kind=NUMBERS, data=data, terms=terms)


def _by_size(results: Results, method: str, data: str, terms: str = DECLARED) -> list[float]:
    return [_mse(results, method, size, data, terms=terms) for size in DIMENSIONS]


def _apart(results: Results, data: str) -> str:
    """Say whether that Duchi and e-L_LDP are far apart at d = 2 may be chance."""
    high, low = (
        results.interval("mse", method, EPSILON, 2, kind=NUMBERS, data=data, terms=DECLARED)
        for method in (DUCHI, L_LDP)
    )
    return " (may be chance)" if high[0] - high[1] <= LARGE * (low[0] + low[1]) else ""


def _by_best(values: Sequence[float], others: Sequence[Sequence[float]]) -> list[float]:
    return [value / min(own) for value, own in zip(values, zip(*others, strict=True), strict=True)]


def _figure_7(results: Results) -> Iterator[Quoted]:
    epsilons = results.effort.epsilons
    mse = {
        method: {e: _mse(results, method, CENSUS_DIMENSIONS, CENSUS, epsilon=e) for e in epsilons}
        for method in PAPERS_NUMBERS
    }
    ours = _lines({m: own.values() for m, own in mse.items()}), listed(epsilons)
    agrees = all(own[epsilons[0]] > own[epsilons[-1]] for own in mse.values())
    yield says("mse-of-all-four-falls", ours=ours, agrees=agrees)
    ratios = {e: mse[PM][e] / mse[L_LDP][e] for e in epsilons}
    ends = ratios[0.5], ratios[1.5]
    ours, agrees = (listed(ratios.values()), listed(epsilons)), ends[0] < NEAR and ends[1] > LARGE
    yield says("e-l-ldp-against", ours=ours, agrees=agrees, differs=ends)
    lost = listed(e for e in epsilons if mse[L_LDP][e] >= min(mse[m][e] for m in (HARMONY, DUCHI, PM)))
    ours = f"smallest at all but {lost}" if lost else "smallest at all"
    yield says("the-mse-of-e", ours=ours, verdict=verdict(not lost, f"not at {lost}"))
    harmony = {e: mse[HARMONY][e] / mse[L_LDP][e] for e in epsilons if e <= 2}
    higher = listed(e for e, ratio in harmony.items() if ratio < LARGE)
    ours = listed(harmony.values()), listed(harmony)
    yield says("harmony-s-mse-is", ours=ours, agrees=not higher, differs=(LARGE, higher))
    ends = {e: (max(own[e] for own in mse.values()), min(own[e] for own in mse.values())) for e in epsilons}
    apart = {e: most - least for e, (most, least) in ends.items()}
    closer = max(apart[e] for e in epsilons if e >= 3) < min(apart[e] for e in epsilons if e < 3)
    ours = listed(apart.values()), listed(most / least for most, least in ends.values())
    yield says("above-epsilon-3-the", ours=ours, verdict=verdict(closer, "not so"))


def _shares(
    results: Results, column: str, method: str, steps: int, kind: str = PATHS, terms: str = DECLARED
) -> list[float]:
    return [
        results.mean(column, method, epsilon, steps, kind=kind, data=FLEET, terms=terms)
        for epsilon in results.effort.epsilons
    ]


def _all_fall(curves: Iterable[Sequence[float]]) -> bool:
    return all(curve[-1] < curve[0] for curve in curves)


READINGS = {"": "as they come, unbiased", "_projected": "projected to shares that add up to 1"}  # of estimates


def _by_readings(name: str, agree: Sequence[bool], **given: Any) -> Quoted:
    """Judge estimates as they come and projected: the paper does not say which it has."""
    line = says(name, agrees=any(agree), **given)
    return line._replace(verdict="agrees (on projected shares)") if agree[1] and not agree[0] else line


def _figures_8_9(results: Results) -> Iterator[Quoted]:
    epsilons = results.effort.epsilons
    at = f"epsilon {listed(epsilons)}"
    for steps, panels in ((3, "8a, 8b"), (2, "8c, 8d")):
        mape = {m: _shares(results, "mape", m, steps) for m in PAPERS_SHARES}
        rmse = {m: _shares(results, "rmse", m, steps) for m in PAPERS_SHARES}
        agrees = _all_fall(mape.values()) and _all_fall(rmse.values())
        yield says("mape-and-rmse-of", where=panels, what=steps, ours=(_lines(mape), at), agrees=agrees)
        lost = {}  # for both readings of the estimates: where another method is lower
        for reading in READINGS:
            own = {m: _shares(results, f"mape{reading}", m, steps) for m in PAPERS_SHARES}
            pairs = {m: zip(epsilons, own[LT_LDP], own[m], strict=True) for m in (QLP, QJLP)}
            below = {m: [e for e, a, b in pair if a >= b] for m, pair in pairs.items()}
            lost[reading] = "; ".join(f"{m} is lower at epsilon {listed(at)}" for m, at in below.items() if at)
        given = {"where": panels.split(",")[0], "what": steps, "differs": (steps, steps)}
        ours = tuple(text or "every" for text in lost.values())
        yield _by_readings("mape-of-e-lt", [not text for text in lost.values()], ours=ours, **given)
    rmse = {r: {m: _shares(results, f"rmse{r}", m, 2) for m in PAPERS_SHARES} for r in READINGS}
    ratios = [own[LT_LDP][0] / own[QJLP][0] for own in rmse.values()]
    ours = rmse[""][LT_LDP][0], rmse[""][QJLP][0], *ratios
    yield _by_readings("rmse-of-e-lt", [1 / NEAR <= ratio <= NEAR for ratio in ratios], ours=ours)
    off = [a / b for a, b in zip(rmse[""][QLP], rmse[""][LT_LDP], strict=True)]
    enough = verdict(min(off) >= LARGE, f"less than {LARGE:g} times somewhere")
    yield says("rmse-of-e-lt-ldp", ours=(listed(off), at), verdict=enough)
    falls = {}
    for reading in READINGS:
        long = {m: _shares(results, f"rmse{reading}", m, 3) for m in (LT_LDP, QJLP)}
        falls[reading] = {m: own[0] / own[-1] for m, own in long.items()}
    ours = tuple("; ".join(f"{m} falls by {fall:.3g} times" for m, fall in own.items()) for own in falls.values())
    yield _by_readings("the-budget-has-a", [max(own.values()) < LARGE for own in falls.values()], ours=ours)
    for steps, name in ((3, "9a"), (2, "9b")):
        mape = {m: _shares(results, "mape", m, steps, PLACES) for m in PAPERS_SHARES}
        broken = [
            (less, more, epsilon)
            for less, more in ((QLP, LT_LDP), (LT_LDP, QJLP))
            for epsilon, low, high in zip(results.effort.epsilons, mape[less], mape[more], strict=True)
            if low >= high
        ]
        kept = verdict(not broken, _broken(results, broken, steps))
        yield says("places-qlp-has-the", where=name, what=steps, ours=_lines(mape), verdict=kept)
    every = [_shares(results, "mape", m, steps, PLACES) for m in PAPERS_SHARES for steps in STEPS]
    yield says("mape-of-places-falls", agrees=_all_fall(every))
    gains = {data: number_gains(results, data, EQUAL) for data in (GAUSS, UNIFORM)}
    yield says("higher-usability-of-e", ours=(_lines(gains), listed(DIMENSIONS)))
    places = share_gains(results, LT_LDP, OURS_CLEAR, STEPS[0], PLACES)
    paths = {f"paths of {n}, our areas hidden": share_gains(results, LT_LDP, OURS, n, PATHS) for n in STEPS}
    yield says("higher-usability-of-e-lt", ours=(listed(results.effort.epsilons), listed(places), _lines(paths)))
    yield says("privacy-of-both-algorithms")


def _broken(results: Results, orders: Sequence[tuple[str, str, float]], steps: int) -> str:
    """Name the cases in which an order of places is broken, and whether that may be chance."""
    sentences = []
    for less, more, epsilon in orders:
        low, high = (
            results.interval("mape", method, epsilon, steps, kind=PLACES, data=FLEET, terms=DECLARED)
            for method in (less, more)
        )
        chance = " (may be chance)" if low[0] - low[1] <= high[0] + high[1] else ""
        sentences.append(f"{less} is not below {more} at epsilon {epsilon:g}{chance}")
    return "; ".join(sentences)


def number_gains(results: Results, data: str, terms: str) -> list[float]:
    """Return by what the MSE of e-L_LDP is a multiple of ours, at equal true loss, by the number of attributes."""
    published, ours = (_by_size(results, method, data, terms) for method in (L_LDP, OURS))
    return [a / b for a, b in zip(published, ours, strict=True)]


def share_gains(results: Results, method: str, ours: str, size: int, kind: str, column: str = "rmse") -> list[float]:
    """Return by what a published error is a multiple of ours, at equal true loss within areas, by epsilon."""
    published, own = (_shares(results, column, m, size, kind, EQUAL) for m in (method, ours))
    return [a / b for a, b in zip(published, own, strict=True)]


# What the paper does not look at


def findings(results: Results) -> list[str]:
    losses = [printed_duchi_loss(float(epsilon), 4) for epsilon in CHECKED]
    duchi = says.sentence("duchi", listed(losses), listed(map(float, CHECKED)))
    return [*_found(results), duchi]


def _found(results: Results) -> Iterator[str]:
    for data in (GAUSS, UNIFORM):
        lowered, raised = (number_gains(results, data, terms) for terms in (EQUAL, RAISED))
        weighed = [
            a / b
            for a, b in zip(
                _by_size(results, L_LDP_WEIGHED, data, EQUAL), _by_size(results, OURS, data, EQUAL), strict=True
            )
        ]
        honest = [a / b for a, b in zip(_by_size(results, OURS, data), _by_size(results, L_LDP, data), strict=True)]
        yield says.sentence("numbers", data, *map(listed, (DIMENSIONS, lowered, raised, weighed, honest)))
    best = [_by_size(results, method, GAUSS) for method in (HARMONY, DUCHI, PM)]
    one = _by_best(_by_size(results, OURS_ALIKE, GAUSS), best)
    yield says.sentence("one-budget", listed(one))
    epsilons = listed(results.effort.epsilons)
    for steps in STEPS:
        for method in (LT_LDP, QJLP):
            clear = share_gains(results, method, OURS_CLEAR, steps, PATHS)
            hidden = share_gains(results, method, OURS, steps, PATHS)
            yield says.sentence("paths", steps, method, listed(clear), listed(hidden), epsilons)
    clear = share_gains(results, LT_LDP, OURS_CLEAR, STEPS[0], PLACES)
    hidden = share_gains(results, LT_LDP, OURS, STEPS[0], PLACES)
    yield says.sentence("places", listed(clear), listed(hidden), epsilons)

    def rmse(column: str, method: str, levels: int) -> list[float]:
        return [results.mean(column, method, e, levels, kind=GRIDS, data=FLEET) for e in GRID_EPSILONS]

    finest = max(GRID_LEVELS)
    price = [a / b for a, b in zip(rmse("rmse", OURS, finest), rmse("rmse", OURS_CLEAR, finest), strict=True)]
    won = [a / b for a, b in zip(rmse("rmse", OURS, finest), rmse("rmse_projected", OURS, finest), strict=True)]
    yield says.sentence("grids", 4 ** (finest - 1), listed(GRID_EPSILONS), listed(price), listed(won))


PAGE = says.page()

STYLES, TERM_NAMES = written("yao2024")["styles"], written("yao2024")["terms"]
_MEASURES = {"mape": "MAPE", "rmse": "RMSE", "rmse_projected": "RMSE after projection"}


def reproduce(out: Path, *, quick: bool, workers: int) -> Path:
    effort, start = QUICK if quick else FULL, time.monotonic()
    found = in_parallel(measure, jobs(effort), workers=workers, warm_up=warm_up)
    found.sort(key=lambda r: (r.kind, r.data, r.size, r.epsilon, r.method, r.terms, r.run))
    results = Results(found, effort)
    tables = tables_of(results)
    named = {name: report.intervals_named(rows) for name, rows in tables.items()}
    spread = {name: (lambda rows, own=own: short_intervals(_across(rows, *own))) for name, own in _SPREAD.items()}
    return report.Reproduction.of_tables(
        PAGE,
        tables,
        short_intervals,
        on_page=spread,
        drawings={
            "figure6": lambda: _draw_6(results),
            "figure7": lambda: _draw_7(results),
            "figure8": lambda: _draw_shares(results, PATHS),
            "figure9": lambda: _draw_shares(results, PLACES),
        },
        note=says.note(quick, start, effort=effort),
        data="carriers",
        lines=quoted(results),
        findings=findings(results),
        files={"runs": [vars(run) for run in results.runs], **named},
    ).write(out)


def true_loss(method: str, terms: str, kind: str, size: int) -> str:
    """Say what one report of a method really gives away."""
    own = "ε" if terms == DECLARED and method in ONE_BUDGET else "ε_i"
    if kind == NUMBERS:
        times = size if terms == RAISED or (terms == DECLARED and method == L_LDP) else 1
        return f"{times} {own}" if times > 1 else own
    times = place_factor(size, method, kind) if terms == DECLARED else 1
    within = f"{times} {own}" if times > 1 else own
    return within if method == OURS else f"{within} in an area, ∞ across"


def tables_of(results: Results) -> dict[str, list[dict[str, object]]]:
    return {
        "losses": [
            {"report": name, "declared": 0.5, "true loss": "no bound" if loss is None else float(loss), "found by": way}
            for name, way, loss in exact_losses(Fraction(1, 2))
        ],
        "thresholds": _threshold_table(),
        "figure6": [
            {"data": data, "d": size, **_number_row(results, method, terms, data, EPSILON, size)}
            for data, terms, size in itertools.product((GAUSS, UNIFORM), TERMS, DIMENSIONS)
            for method in NUMBER_METHODS[terms]
        ],
        "equal-numbers": _equal_numbers(results),
        "figure7": [
            {"epsilon": epsilon, **_number_row(results, method, terms, CENSUS, epsilon, CENSUS_DIMENSIONS)}
            for terms, epsilon in itertools.product(NUMBER_METHODS, results.effort.epsilons)
            for method in NUMBER_METHODS[terms]
        ],
        "figure8": _share_table(results, PATHS),
        "figure9": _share_table(results, PLACES),
        "equal-shares": _equal_shares(results),
        "grids": _grids(results),
    }


def _threshold_table() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for epsilon in CHECKED:
        printed = printed_thresholds(float(epsilon))
        rows.append(
            {
                "epsilon": float(epsilon),
                **{f"threshold, {where}": value for where, value in printed.items()},
                "density integrates to": density_integral(float(epsilon)),
                "corrected to": density_integral(float(epsilon), corrected=True),
                "Algorithm 1: mean of t = 1": printed_slope(float(epsilon)),
                "exact discrete form": literal_slope(epsilon),
                "worst variance": piecewise_variance(float(epsilon), 1.0),
            }
        )
    return rows


def _number_row(results: Results, method: str, terms: str, data: str, epsilon: float, size: int) -> dict[str, object]:
    mean, half = results.interval("mse", method, epsilon, size, kind=NUMBERS, data=data, terms=terms)
    loss = true_loss(method, terms, NUMBERS, size)
    return {"terms": TERM_NAMES[terms], "method": method, "true loss": loss, "MSE": mean, "MSE_sd": half}


def _equal_numbers(results: Results) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for data, terms in itertools.product((GAUSS, UNIFORM), (EQUAL, RAISED)):
        for size, gain in zip(DIMENSIONS, number_gains(results, data, terms), strict=True):
            row: dict[str, object] = {"data": data, "d": size}
            row |= {"a report gives away": true_loss(OURS, terms, NUMBERS, size), "e-L_LDP by ours": gain}
            own = [spent(budget, size, L_LDP, terms) for budget in budgets(EPSILON, size, L_LDP, terms)]
            row["expected, e-L_LDP"] = expected_mse(numbers(data, size), own)
            for method in (L_LDP, L_LDP_WEIGHED, OURS):
                mean, half = results.interval("mse", method, EPSILON, size, kind=NUMBERS, data=data, terms=terms)
                row |= {method: mean, f"{method}_sd": half}
            rows.append(row)
    return rows


def _share_table(results: Results, kind: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for steps, terms, epsilon, method in itertools.product(STEPS, TERMS, results.effort.epsilons, SHARE_METHODS):
        row: dict[str, object] = {"steps": steps, "terms": TERM_NAMES[terms], "epsilon": epsilon}
        row |= {"method": method, "true loss": true_loss(method, terms, kind, steps)}
        for column in ("mape", "rmse", "mape_projected", "rmse_projected"):
            mean, half = results.interval(column, method, epsilon, steps, kind=kind, data=FLEET, terms=terms)
            name = column.replace("_", ", ").replace("mape", "MAPE").replace("rmse", "RMSE")
            row |= {name: mean, f"{name}_sd": half}
        rows.append(row)
    return rows


def _equal_shares(results: Results) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for kind, steps in ((PLACES, STEPS[0]), *((PATHS, steps) for steps in STEPS)):
        for method in PAPERS_SHARES:
            ways = {f"{name}{suffix}": (ours, column) for name, ours in _SIDES.items() for suffix, column in _FORMS}
            gains = {
                name: share_gains(results, method, ours, steps, kind, column) for name, (ours, column) in ways.items()
            }
            for place, epsilon in enumerate(results.effort.epsilons):
                row: dict[str, object] = {"what": kind if kind == PLACES else f"{kind} of {steps}", "published": method}
                rows.append({**row, "epsilon": epsilon, **{name: own[place] for name, own in gains.items()}})
    return rows


_SIDES = {"areas in clear": OURS_CLEAR, "ours hidden": OURS}
_FORMS = (("", "rmse"), (", projected", "rmse_projected"))


def _grids(results: Results) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    ways = [(LT_LDP, DECLARED), (LT_LDP, EQUAL), (OURS_CLEAR, DECLARED), (OURS, DECLARED)]
    for levels in GRID_LEVELS:
        for epsilon in GRID_EPSILONS:
            one = Tier(name="all", epsilon=Fraction(str(epsilon)))
            hidden = share_mechanism(OURS, grid(levels), 1, [one])
            judged = hidden.noise_verdict(NUM_VEHICLES)
            row: dict[str, object] = {"cells": 4 ** (levels - 1), "epsilon": epsilon}
            row |= {"noise": "yes" if judged.is_noise else "no", "predicted, ours": judged.predicted_sd}
            row["all alike"] = nothing(GRIDS, levels, results.effort.runs)["rmse"]
            for method, terms in ways:
                name = method + (f", {TERM_NAMES[terms]}" if method == LT_LDP else "")
                for suffix, column in _FORMS:
                    mean, half = results.interval(column, method, epsilon, levels, kind=GRIDS, data=FLEET, terms=terms)
                    row |= {f"{name}{suffix}": mean, f"{name}{suffix}_sd": half}
            rows.append(row)
    return rows


_SHARES = "epsilon", ("MAPE", "RMSE", "RMSE, projected")
_SPREAD: dict[str, tuple[str, tuple[str, ...]]] = {"figure6": ("d", ("MSE",)), "figure7": ("epsilon", ("MSE",))}
_SPREAD |= {"figure8": _SHARES, "figure9": _SHARES}


def _across(rows: Sequence[Row], across: str, measures: Sequence[str]) -> Sequence[Row]:
    """Put what is drawn across a figure beside each other, one measure a line."""
    found: dict[tuple[object, ...], dict[str, object]] = {}
    for row in rows:
        for measure in measures:
            kept = {key: row[key] for key in ("data", "steps", "terms", "method") if key in row}
            kept |= {"true loss": row["true loss"]} if across == "epsilon" else {}
            line = found.setdefault((*kept.values(), measure), {**kept, "measure": measure})
            label = f"{across} {row[across]:g}"
            line |= {label: row[measure], f"{label}_sd": row[f"{measure}_sd"]}
    return list(found.values())


def _curves(results: Results, column: str, methods: Iterable[str], xs: Mapping[Any, Any], **case: Any) -> list[Curve]:
    """Draw a measure of methods; ``xs`` has epsilon and size at each place."""
    return [
        Curve(m, [(x, *results.interval(column, m, *at, **case)) for x, at in xs.items()], *STYLES[m]) for m in methods
    ]


_LOG: dict[str, Any] = {"draw": report.log_chart, "wide": True, "named": False}


def _draw_6(results: Results) -> list[Svg]:
    parts, xs = [_legend(NUMBERS, (DECLARED, EQUAL), "d")], {size: (EPSILON, size) for size in DIMENSIONS}
    for data in (GAUSS, UNIFORM):
        by_title = {
            f"{data.upper()}, {TERM_NAMES[terms]}": _curves(
                results, "mse", NUMBER_METHODS[terms], xs, kind=NUMBERS, data=data, terms=terms
            )
            for terms in TERMS
        }
        parts += report.figure(by_title, x_title="attributes (d)", y_title="MSE", **_LOG)
    return parts


def _draw_7(results: Results) -> list[Svg]:
    xs = {epsilon: (epsilon, CENSUS_DIMENSIONS) for epsilon in results.effort.epsilons}
    by_title = {
        f"five skewed numbers, {TERM_NAMES[terms]}": _curves(
            results, "mse", NUMBER_METHODS[terms], xs, kind=NUMBERS, data=CENSUS, terms=terms
        )
        for terms in TERMS
    }
    named = _legend(NUMBERS, (DECLARED, EQUAL), str(CENSUS_DIMENSIONS))
    return [named, *report.figure(by_title, x_title="epsilon", y_title="MSE", **_LOG)]


def _draw_shares(results: Results, kind: str) -> list[Svg]:
    parts = []
    ordered = sorted(SHARE_METHODS, key=lambda method: method == QLP)  # dashed: at equal true loss it is on e-LT_LDP
    for steps in reversed(STEPS):
        what = f"paths of {steps}" if kind == PATHS else f"places, QJLP from paths of {steps}"
        parts += [report.tag("h3", what, class_="measure"), _legend(kind, TERMS, str(steps))]
        limits, xs = (
            nothing(kind, steps, results.effort.long_runs),
            {e: (e, steps) for e in results.effort.epsilons},
        )
        for column, title in _MEASURES.items():
            by_title = {
                f"{title}, {TERM_NAMES[terms]}": _curves(
                    results, column, ordered, xs, kind=kind, data=FLEET, terms=terms
                )
                for terms in TERMS
            }
            level = dict.fromkeys(by_title, limits[column])
            parts += report.figure(by_title, x_title="epsilon", y_title=title.split(" ")[0], limits=level, **_LOG)
    return parts


def _legend(kind: str, terms: Sequence[str], size: str) -> Svg:
    """Name the colours, each with what a report really gives away on the left and on the right."""
    methods = dict.fromkeys(
        method for one in terms for method in (NUMBER_METHODS[one] if kind == NUMBERS else SHARE_METHODS)
    )
    curves = []
    for method in methods:
        along = size == "d"  # along a curve of Figure 6 it changes
        own = [one for one in terms if kind != NUMBERS or method in NUMBER_METHODS[one]]
        losses = [true_loss(method, one, kind, 2 if along else int(size)) for one in own]
        losses = [loss.replace("2", "d") if along else loss for loss in losses]
        name = f"{method} (true loss {', then '.join(dict.fromkeys(losses))})"
        curves.append(Curve(name, [], *STYLES[method]))
    return report.legend(curves, limit="" if kind == NUMBERS else "a table that says nothing")
