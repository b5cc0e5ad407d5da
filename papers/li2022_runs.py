# SPDX-License-Identifier: Apache-2.0
"""Li, Erkin, Lagendijk 2022, section VI: draw the settings of Tables 1 and 2, anonymise as published, plan and judge.

Everything here is the paper's own form, so that its figures can be compared; ``li2022_beside`` has the sound forms. Ten
draws a setting, unpublished: ours are sampled again. The instances of Table 1 are samples already ("after the beta
sampling"), so algorithm 1 runs on them without sampling again.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

import dunnage as dn
from dunnage.arrays import FloatArray, IntArray
from dunnage.exact import exact
from dunnage.kernels.bins.scalar import pack_bins, whole_numbers
from dunnage.mechanisms.noisy import exposed_records, published_noise
from dunnage.mechanisms.sampled_lattice import SampledLattice
from dunnage.model.guarantees import SampledDP
from dunnage.noise.sampling import sampling_delta, sampling_epsilon
from dunnage.samples.packages import PackageSetting
from papers.hoogervorst2019 import Setting, weights_of
from papers.measuring import Run, column_of, efforts, mean_sd, means

BETA = Fraction(7, 10)
WHOLE = 1 - Fraction(1, 10**6)  # A rate at which a sample is most likely everything
CHOICE = Fraction(3)  # the paper's epsilon'
SHARES = (Fraction(5, 100), Fraction(35, 100), Fraction(65, 100), Fraction(95, 100))
"""Where clusters of 5, 30, 30, 30 and 5 % end."""
DOUBLING = 4
"""First width of the hierarchy of algorithm 1. The paper's is unpublished; 4 is the least interval it names elsewhere
(for K-Optimize), and was not chosen by how well it agrees."""

LATTICE, CLUSTERS, LAPLACE, K_OPTIMIZE = 5, 6, 7, 8  # the methods, by the figure that shows them
METHODS = {
    LATTICE: "algorithm 1: sampled lattice, as published",
    CLUSTERS: "algorithm 2: noise by clusters, as published",
    LAPLACE: "Laplace noise without clusters, as published",
    K_OPTIMIZE: "K-Optimize (exact partition)",
}
AVERAGE, MOST, CLASS_MEAN = "avg", "max", "mean of the class"
HARD = "VII"


NUMERALS = ("I", "II", "III", "IV", "V", "VI", HARD)
_NAMES = ("50-L-U", "80-L-U", "50-S-U", "80-S-U", "50-L-N", "50-L-Un", "200-L")
TABLE_1 = tuple(map(Setting, range(101, 108), NUMERALS, _NAMES))
_NAMES = ("25-L-U", "50-L-U", "25-S-U", "50-S-U", "25-L-N", "25-L-Un", "200-L")
TABLE_2 = tuple(map(Setting, range(201, 208), NUMERALS, _NAMES))


def settings_of(figure: int) -> tuple[Setting, ...]:
    return TABLE_1 if figure == LATTICE else TABLE_2


if TYPE_CHECKING:  # the class is made from what is written
    Effort: TypeAlias = Any
    FULL: Any
    QUICK: Any
else:
    Effort, FULL, QUICK = efforts(__name__)


@dataclass(frozen=True)
class Job:
    figure: int
    setting: Setting
    instance: int
    effort: Effort

    @property
    def ks(self) -> tuple[int, ...]:
        hard = self.setting.numeral == HARD and self.figure == LATTICE
        return self.effort.hard_ks if hard else self.effort.ks


@dataclass(frozen=True, eq=False)
class Disclosed:
    """What an anonymisation discloses of some packages."""

    rows: IntArray  # which packages
    sizes: FloatArray  # as which weight each of them is planned
    method: str
    seconds: float
    exact: int = 0


@dataclass(frozen=True, eq=False)
class Judge:
    """One draw: plans what is disclosed of it, and compares with the true weights of the same packages."""

    job: Job
    weights: FloatArray
    known: dict[bytes, tuple[int, bool]] = field(default_factory=dict)  # optima found so far, by packages

    @classmethod
    def of(cls, job: Job) -> Judge:
        return cls(job, weights_of(job.setting, job.instance))

    @property
    def seed(self) -> tuple[int, int]:
        return self.job.setting.number, self.job.instance

    def packed(self, sizes: FloatArray) -> tuple[list[list[int]], bool]:
        """Pack numbers; return the items of each bin, and whether no packing needs fewer."""
        if not len(sizes):
            return [], True
        numbers = whole_numbers(sizes, self.job.setting.law.capacity)
        found = pack_bins(numbers.items, numbers.capacity, seconds=self.job.effort.seconds)
        return found.bins, not found.gap

    def optimum(self, rows: IntArray) -> tuple[int, bool]:
        """Return the bins that the true weights of some packages need, and whether that is proved."""
        key = np.sort(rows).tobytes()
        if key not in self.known:
            bins, proved = self.packed(self.weights[np.sort(rows)])
            self.known[key] = len(bins), proved
        return self.known[key]

    def run(self, x: float, disclosed: Disclosed) -> Run:
        start = time.monotonic()
        bins, proved = self.packed(disclosed.sizes)
        seconds = time.monotonic() - start
        optimum, known = self.optimum(disclosed.rows)
        everything = self.optimum(np.arange(len(self.weights)))[0]
        fits = [self.weights[disclosed.rows[items]].sum() <= self.job.setting.law.capacity for items in bins]
        return Run(
            figure=self.job.figure,
            setting=self.job.setting.numeral,
            instance=self.job.instance,
            x=x,  # k, or epsilon
            method=disclosed.method,  # ``avg`` or ``max`` of the intervals, or the confidence
            rows=len(disclosed.rows),
            kept=len(disclosed.rows) / len(self.weights),
            bins=len(bins),
            optimum=optimum,  # optimum, optimum_all: bins of the true weights of the packages planned, and of all
            optimum_all=everything,
            # Where nothing is left there is no plan to judge.
            ratio=len(bins) / optimum if bins else math.nan,
            ratio_all=len(bins) / everything,
            proved=proved and known,
            bins_feasible=float(np.mean(fits)) if bins else math.nan,  # the paper's f
            plan_feasible=float(all(fits)) if bins else math.nan,
            anonymise_seconds=disclosed.seconds,  # the paper's t_a
            solve_seconds=seconds,
            exact=disclosed.exact,  # packages printed as they are because their cluster has no range
        )


def policy_of(law: PackageSetting, mechanism: Any, *, doubling: float = DOUBLING) -> dn.Policy:
    """Write the policy of a setting: the public domain is that of its law, in whole numbers."""
    weight = {"role": "quasi-identifier", "kind": "numeric", "domain": [law.low, law.high], "resolution": 1}
    document = {"dataset": "packages", "protects": "package", "mechanism": {"name": mechanism.name}}
    return dn.Policy.from_dict({**document, "attributes": {"weight": {**weight, "doubling": doubling}}})


def dataset_of(law: PackageSetting, weights: FloatArray, mechanism: Any, *, doubling: float = DOUBLING) -> dn.Dataset:
    return dn.Dataset.from_table(pa.table({"weight": weights}), policy_of(law, mechanism, doubling=doubling))


@dataclass(frozen=True, eq=False)
class Published:
    """A release, the record of each of its rows, what only the owner knows of it, and how long it took."""

    release: dn.Release
    record: IntArray
    facts: Mapping[str, Any]
    seconds: float


def published(mechanism: Any, data: dn.Dataset, seed: Sequence[int]) -> Published:
    """Release once. Seeded so that figures can be repeated, which voids the release: these weights are nobody's."""
    noise, ledger = dn.Noise(seed=seed_of(seed)), dn.Ledger(":memory:")
    start = time.monotonic()
    release, key = mechanism.release(data, ledger=ledger, noise=noise)
    seconds = time.monotonic() - start
    record = np.empty(len(release), dtype=np.int64)
    record[key.table.column("row").to_numpy()] = key.table.column("source_row").to_numpy() - 1
    return Published(release, record, key.facts, seconds)


def seed_of(numbers: Sequence[int]) -> int:
    return int(np.random.SeedSequence(list(numbers)).generate_state(1)[0])


def sampled_lattice(judge: Judge, *, doubling: float = DOUBLING) -> Iterator[Run]:
    """Run algorithm 1 on a draw that counts as a sample, at every k: plans on middles and upper ends of intervals."""
    for k in judge.job.ks:
        found = whole_sample(judge, k, doubling)
        known = found.release.uncertain("weight")
        yield judge.run(k, Disclosed(found.record, (known.lower + known.upper) / 2, AVERAGE, found.seconds))
        yield judge.run(k, Disclosed(found.record, known.upper, MOST, found.seconds))


def whole_sample(judge: Judge, k: int, doubling: float, *, standard: bool = False) -> Published:
    """Release as published a draw that is a sample already: at a rate so near 1 that all of it is sampled.

    Eq. 18 weighs a node of score u (0 to 1) by exp(epsilon' u). The standard exponential mechanism at epsilon', with
    the sensitivity k/|D| that the paper states, weighs it by exp(epsilon' u |D| / 2k).
    """
    choice = CHOICE * len(judge.weights) / (2 * k) if standard else CHOICE
    mechanism = SampledLattice(k=k, beta=WHOLE, epsilon_choice=choice, as_published=True)
    data = dataset_of(judge.job.setting.law, judge.weights, mechanism, doubling=doubling)
    for attempt in itertools.count():
        found = published(mechanism, data, (*judge.seed, k, attempt))
        if not found.facts["unsampled"]:
            return found
    raise AssertionError("unreachable")


def k_optimize(judge: Judge) -> Iterator[Run]:
    """Partition at every k: what upper bounds, middles of intervals and class means cost."""
    for k in judge.job.ks:
        # The paper's K-Optimize leaves nothing out, so suppression costs more than anything it could save.
        mechanism = dn.Partition(k=k, alpha=len(judge.weights), statistic="mean")
        data = dataset_of(judge.job.setting.law, judge.weights, mechanism)
        found = published(mechanism, data, (*judge.seed, k))
        known = found.release.uncertain("weight")
        assert known.nominal is not None
        yield judge.run(k, Disclosed(found.record, (known.lower + known.upper) / 2, AVERAGE, found.seconds))
        yield judge.run(k, Disclosed(found.record, known.upper, MOST, found.seconds))
        yield judge.run(k, Disclosed(found.record, np.ceil(known.nominal * 1000) / 1000, CLASS_MEAN, found.seconds))


def noisy(judge: Judge, shares: Sequence[Fraction]) -> Iterator[Run]:
    """Add noise by the ranges of clusters at every epsilon; each confidence widens the same noise."""
    job, law = judge.job, judge.job.setting.law
    weights, rows = judge.weights.astype(np.int64), np.arange(len(judge.weights))
    printed = int(exposed_records(weights, shares).sum())
    for epsilon, confidence in itertools.product(job.effort.epsilons, job.effort.confidences):
        seed = seed_of((*judge.seed, job.figure, int(10 * epsilon)))
        start = time.monotonic()
        sizes = published_sizes(law, weights, shares, exact(epsilon), exact(confidence), seed)[2]
        disclosed = Disclosed(rows, sizes, f"c = {confidence:g}", time.monotonic() - start, printed)
        yield judge.run(epsilon, disclosed)


def published_sizes(
    law: PackageSetting,
    weights: IntArray,
    shares: Sequence[Fraction],
    epsilon: Fraction,
    confidence: Fraction,
    seed: int,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Draw the published noise: noisy value, lower and upper end, each clamped to the public domain.

    The paper has no rule for weights below 0 or above what a truck holds.
    """
    noise = dn.Noise(seed=seed)
    disclosed, radius = published_noise(weights, shares, epsilon=epsilon, confidence=confidence, noise=noise)
    reach = np.maximum(radius, 0)
    value, lower, upper = (np.clip(disclosed + sign * reach, law.low, law.high) for sign in (0, -1, 1))
    return value, lower, upper


FIGURES: dict[int, Callable[[Judge], Iterator[Run]]] = {
    LATTICE: sampled_lattice,
    CLUSTERS: lambda judge: noisy(judge, SHARES),
    LAPLACE: lambda judge: noisy(judge, ()),
    K_OPTIMIZE: k_optimize,
}


def measure(job: Job) -> list[Run]:
    return list(FIGURES[job.figure](Judge.of(job)))


def jobs(effort: Effort) -> list[Job]:
    listed = [
        Job(figure, setting, instance, effort)
        for figure in FIGURES
        for setting in settings_of(figure)
        for instance in range(effort.hard_runs if setting.numeral == HARD else effort.runs)
    ]
    return sorted(listed, key=lambda job: -job.setting.law.size)


def warm_up() -> None:
    small = replace(QUICK, ks=(2,), epsilons=(1.0,), confidences=(0.7,))
    for figure in FIGURES:
        measure(Job(figure, settings_of(figure)[0], 0, small))


@dataclass(frozen=True, eq=False)
class Results:
    runs: Sequence[Run]
    effort: Effort

    def values(
        self, column: str, figure: int, method: str | None = None, setting: str | None = None, x: float | None = None
    ) -> FloatArray:
        """Return one column of the runs of a figure; runs that left nothing to plan have no number."""
        wanted = ((method, "method"), (setting, "setting"), (x, "x"))
        own = [r for r in self.runs if r.figure == figure and all(v in (None, getattr(r, name)) for v, name in wanted)]
        numbers = column_of(own, column)
        return numbers[~np.isnan(numbers)]

    def mean(self, column: str, figure: int, method: str, setting: str, x: float | None = None) -> float:
        return mean_sd(self.values(column, figure, method, setting, x))[0]

    def methods(self, figure: int) -> list[str]:
        return list(dict.fromkeys(run.method for run in self.runs if run.figure == figure))

    def xs(self, figure: int, setting: str) -> list[float]:
        return sorted({run.x for run in self.runs if run.figure == figure and run.setting == setting})

    def summary(self, figure: int) -> list[dict[str, object]]:
        cells = itertools.product([s.numeral for s in settings_of(figure)], self.methods(figure))
        columns = ("ratio", "bins_feasible", "plan_feasible", *(("kept", "ratio_all") if figure == LATTICE else ()))
        across, sizes = "epsilon" if figure in (CLUSTERS, LAPLACE) else "k", {s.numeral: s.law.size for s in TABLE_1}
        rows = []
        for setting, method in cells:
            for x in self.xs(figure, setting):
                values = partial(self.values, figure=figure, method=method, setting=setting, x=x)
                row = {"setting": setting, across: x, "method": method, "runs": len(values("kept"))}
                row |= stated(int(x), sizes[setting]) if figure == LATTICE else {}
                rows.append(row | means(mean_sd, {c: values(c) for c in (*columns, "anonymise_seconds")}))
        return rows


def stated(k: int, num_sampled: int) -> dict[str, object]:
    """Return what the paper states for algorithm 1, and what holds: epsilon and delta."""
    holds = SampledLattice(k=k, beta=BETA, epsilon_choice=CHOICE, as_published=True).promise(_SCHEMA).guarantee
    assert isinstance(holds, SampledDP)
    return {
        "epsilon stated": float(sampling_epsilon(BETA) + 2 * CHOICE * k / num_sampled),
        "delta by eq. 14": float(sampling_delta(k, BETA, as_published=True)),
        "delta by the theorem": float(sampling_delta(k, BETA)),
        "epsilon that holds": float(holds.epsilon),
        "delta that holds": float(holds.delta),
    }


_SCHEMA = policy_of(TABLE_1[0].law, SampledLattice).schema


def setting_table() -> list[dict[str, object]]:
    rows = []
    for number, setting in [*((1, one) for one in TABLE_1), *((2, one) for one in TABLE_2)]:
        row, law = {"table": number, "setting": setting.numeral, "name": setting.name}, setting.law
        rows.append(
            row | {"capacity": law.capacity, "packages": law.size, "law": law.law, "from": law.low, "to": law.high}
        )
    return rows
