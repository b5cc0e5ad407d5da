# SPDX-License-Identifier: Apache-2.0
"""Hoogervorst et al. 2019: bin packing on k-anonymous weights. Figures 3 and 4, Table 3, every figure in the text.

Settings of Table 2 are sampled again, because the paper's ten draws of each are unpublished. Every plan is judged on
permutations inside classes that no planner has seen.

A mean agrees if it lies within what two means of independent draws differ by in 99 of 100 cases, theirs of ten draws
and ours of as many as were measured, both with our standard deviation; and half a digit for rounding. This tolerance is
part of the verdict. Where it is as large as the effect that the paper quotes, agreement would show nothing, so the
verdict is that so few draws cannot tell.

References
----------
Hoogervorst, Zhang, Tillem, Erkin, Verwer 2019, Solving bin-packing problems under privacy preservation: Possibilities
and trade-offs. Information Sciences 500.
"""

from __future__ import annotations

import itertools
import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import dunnage as dn
from dunnage.arrays import FloatArray, IntArray
from dunnage.errors import InternalError
from dunnage.kernels.bins.chances import clopper_pearson, fits_by_permutation
from dunnage.kernels.bins.scalar import pack_bins
from dunnage.samples import draw_weights
from dunnage.samples.packages import PackageSetting, package_setting
from papers import report
from papers.measuring import column_of, in_parallel, mean_sd, means
from papers.report import Curve, Quoted, Statements, Svg

RISK = 0.05
DOUBLING = 4
"""First width of our hierarchy for full-domain generalisation. The paper's is unpublished; this one was not chosen by
how well it agrees with the paper."""
DOUBLINGS = (1, 3.90625, 4, 10, 25, 62.5)
"""First widths that are compared, to show how much hangs on the hierarchy; 3.90625 and 62.5 cut at half a bin."""
HELD_OUT_SEED = 2019  # not a seed that planners use

UPPER, MEAN = "partition, upper bound", "partition, mean"
FLASH_UPPER, FLASH_MEAN = "full-domain, upper bound", "full-domain, mean"
ROBUST, ROBUST_ITEMS = "robust, published budget", "robust, budget by rows of a bin"
ROBUST_LARGEST = "robust, largest members"
STOCHASTIC, SAMPLED = "stochastic, certified", "stochastic, 100 scenarios"
SEALED = "sealed"


@dataclass(frozen=True)
class Setting:
    """A line of Table 2."""

    number: int  # number, numeral: Its number, in both forms
    numeral: str
    name: str  # as :func:`dunnage.samples.package_setting` names it

    @property
    def law(self) -> PackageSetting:
        """The law of its weights, and its capacity."""
        return package_setting(self.name)


SETTINGS = tuple(
    Setting(number + 1, numeral, name)
    for number, (numeral, name) in enumerate(
        [("I", "25-L-U"), ("II", "50-L-U"), ("III", "25-S-U"), ("IV", "50-S-U"), ("V", "25-L-Un")]
    )
)


@dataclass(frozen=True, kw_only=True)
class Effort:
    instances: int  # draws of each setting
    ks: tuple[int, ...]  # values of k
    permutations: int  # on which a plan is judged
    seconds: float  # time limit of a plan
    # sampled_instances, sampled_ks, sampled_seconds: Draws, values of k and time limit for the published sampled
    # model, which often uses its time up
    sampled_instances: int
    sampled_ks: tuple[int, ...]
    sampled_seconds: float
    spreads: dict[int, tuple[int, ...]]  # for some k, the spreads at which plans are also made
    law_draws: int  # draws from which the law of the true optimum is estimated


FULL = Effort(
    instances=10,
    ks=tuple(range(2, 11)),
    permutations=20_000,
    seconds=10.0,
    sampled_instances=3,
    sampled_ks=(2, 5, 8, 10),
    sampled_seconds=20.0,
    spreads={5: (3, 5), 10: (3, 5, 10)},
    law_draws=300,
)
QUICK = replace(
    FULL,
    instances=3,
    ks=(2, 5, 8, 10),
    permutations=10_000,
    seconds=2.0,
    sampled_instances=1,
    sampled_ks=(8, 10),
    sampled_seconds=3.0,
    spreads={10: (3, 5, 10)},
    law_draws=100,
)


@dataclass(frozen=True, kw_only=True)
class Run:
    """One plan of one draw, judged."""

    setting: str  # setting, instance, k: What was anonymised: numeral of the setting, number of the draw, k
    instance: int
    k: int
    method: str  # how it was anonymised and planned
    bins: int  # bins, bound, optimum, ratio: Bins of the plan, its proven bound, bins of the true weights, and o / o_n
    bound: float
    optimum: int
    ratio: float
    # plan_feasible, plan_low, plan_high: Share of permutations for which every bin fits, with its interval: the
    # paper's f_k
    plan_feasible: float
    plan_low: float
    plan_high: float
    bins_feasible: float  # mean share of bins that fit
    anonymise_seconds: float  # anonymise_seconds, solve_seconds: The paper's t_a and t_o
    solve_seconds: float
    linkage_mean: float  # linkage_mean, linkage_worst, linkage_kind: Truck linkage of the plan
    linkage_worst: float
    linkage_kind: str


@dataclass(frozen=True)
class Job:
    """One draw at one k."""

    setting: Setting
    instance: int
    k: int
    effort: Effort


@dataclass(frozen=True, eq=False)
class Anonymised:
    """A release of one draw, and what it takes to plan on it and to judge plans."""

    job: Job
    release: dn.Release
    seconds: float
    optimum: int

    def plan(self, method: str, model: Any, *, seconds: float | None = None, spread: int | None = None) -> list[Run]:
        """Plan and judge; nothing if no plan exists, as when a class is smaller than the requested spread."""
        capacity, limit = self.job.setting.law.capacity, seconds or self.job.effort.seconds
        try:
            plan = dn.pack(self.release, capacity=capacity, model=model, seconds=limit, spread=spread)
        except dn.NoPlanError:
            return []
        return [self.judge(spread_name(method, spread), plan)]

    def judge(self, method: str, plan: dn.Plan) -> Run:
        # A sealed plan is filled by the owner, who knows the weights: it fits.
        hits, tries, bins = (1, 1, 1.0) if plan.bin_of_row is None else self._tried(plan.bin_of_row)
        low, high = (1.0, 1.0) if plan.bin_of_row is None else clopper_pearson(hits, tries)
        return Run(
            setting=self.job.setting.numeral,
            instance=self.job.instance,
            k=self.job.k,
            method=method,
            bins=plan.num_bins,
            bound=plan.bound,
            optimum=self.optimum,
            ratio=plan.num_bins / self.optimum,
            plan_feasible=hits / tries,
            plan_low=low,
            plan_high=high,
            bins_feasible=bins,
            anonymise_seconds=self.seconds,
            solve_seconds=plan.seconds,
            linkage_mean=plan.truck_linkage.mean,
            linkage_worst=plan.truck_linkage.worst,
            linkage_kind=plan.truck_linkage.kind,
        )

    def _tried(self, bin_of_row: IntArray) -> tuple[int, int, float]:
        """Return for how many permutations every bin fits, how many were tried, and the mean share of bins that fit."""
        known = self.release.uncertain("weight")
        values = np.empty(len(known))
        values[np.argsort(known.class_id, kind="stable")] = np.concatenate(known.scenarios or ())
        capacities, tries = np.array([self.job.setting.law.capacity]), self.job.effort.permutations
        drawn = fits_by_permutation(
            values, known.class_id, bin_of_row, capacities, permutations=tries, seed=HELD_OUT_SEED
        )
        fits = np.concatenate(list(drawn))
        return int(fits.all(axis=1).sum()), tries, float(fits.mean())


def spread_name(method: str, spread: int | None) -> str:
    return method if spread is None else f"{method}, spread {spread}"


def weights_of(setting: Setting, instance: int) -> FloatArray:
    """Draw the weights of one instance; equal arguments, equal weights."""
    return draw_weights(setting.law, np.random.default_rng([setting.number, instance]))


def fewest_bins(setting: Setting, weights: FloatArray) -> int:
    packing = pack_bins(weights.astype(np.int64), int(setting.law.capacity), seconds=60.0)
    if packing.gap:
        print(f"setting {setting.numeral}: an optimum is not proved", file=sys.stderr)
    return packing.objective


def mechanisms(job: Job) -> tuple[Any, Any]:
    """Return K-Optimize's problem and Flash's, with multisets, from which upper bounds and means follow too.

    The paper gives no price of suppression. Ours is so high that nothing is suppressed: a ratio of bins makes no sense
    if packages are left out on one side.
    """
    alpha = job.setting.law.size
    return (
        dn.Partition(k=job.k, alpha=alpha, statistic="multiset"),
        dn.FullDomain(k=job.k, alpha=alpha, statistic="multiset"),
    )


def anonymise(job: Job, mechanism: Any, *, doubling: float = DOUBLING) -> Anonymised:
    law, weights = job.setting.law, weights_of(job.setting, job.instance)
    weight = {"role": "quasi-identifier", "kind": "numeric", "domain": [law.low, law.high], "doubling": doubling}
    document = {
        "dataset": "packages",
        "protects": "package",
        "attributes": {"weight": weight},
        "mechanism": {"name": mechanism.name, "k": mechanism.k},
    }
    data = dn.Dataset.from_table(pa.table({"weight": weights}), dn.Policy.from_dict(document))
    start = time.monotonic()
    # Seeded so that figures can be repeated: these weights are nobody's.
    release, _ = mechanism.release(data, ledger=dn.Ledger(":memory:"), noise=dn.Noise(seed=job.instance))
    seconds = time.monotonic() - start
    if len(release) != len(weights):
        raise InternalError("a package was suppressed, so ratios would not be comparable.")
    return Anonymised(job, release, seconds, fewest_bins(job.setting, weights))


MODELS = {
    ROBUST: dn.Robust(budget="published", risk=RISK),
    ROBUST_ITEMS: dn.Robust(budget="items", risk=RISK),
    ROBUST_LARGEST: dn.Robust(budget="largest"),
    STOCHASTIC: dn.Stochastic(risk=RISK),
    SEALED: dn.Sealed(),
}
"""The models of Figure 4 and ours beside them; the published robust one first."""
SPREAD_MODELS = {UPPER: dn.Standard(), STOCHASTIC: MODELS[STOCHASTIC], SEALED: MODELS[SEALED]}  # made with spread too


def measure(job: Job) -> list[Run]:
    partition, full_domain = (anonymise(job, mechanism) for mechanism in mechanisms(job))
    runs = []
    for statistic, ours, flash in (("upper", UPPER, FLASH_UPPER), ("mean", MEAN, FLASH_MEAN)):
        runs += partition.plan(ours, dn.Standard(statistic=statistic))
        runs += full_domain.plan(flash, dn.Standard(statistic=statistic))
    for method, model in MODELS.items():
        runs += partition.plan(method, model)
    if job.k in job.effort.sampled_ks and job.instance < job.effort.sampled_instances:
        model = dn.Stochastic(risk=RISK, as_published=True)
        runs += partition.plan(SAMPLED, model, seconds=job.effort.sampled_seconds)
    for spread in job.effort.spreads.get(job.k, ()):
        for method, model in SPREAD_MODELS.items():
            runs += partition.plan(method, model, spread=spread)
    return runs


def measure_all(effort: Effort, *, workers: int) -> list[Run]:
    # The long ones (larger settings, sampled models) first, so that no core waits at the end.
    draws = itertools.product(SETTINGS, range(effort.instances), effort.ks)
    todo = [Job(*draw, effort) for draw in draws]
    todo.sort(key=lambda job: (job.instance, -job.setting.law.size))
    runs = in_parallel(measure, todo, workers=workers, warm_up=_warm_up)
    order = {setting.numeral: setting.number for setting in SETTINGS}
    return sorted(runs, key=lambda run: (order[run.setting], run.k, run.method, run.instance))


def _warm_up() -> None:
    small = replace(QUICK, permutations=10, seconds=1.0, sampled_ks=(), spreads={})
    measure(Job(SETTINGS[0], 0, 5, small))


@dataclass(frozen=True, eq=False)
class Results:
    """All runs, and what the law of the true optimum is."""

    runs: Sequence[Run]
    effort: Effort
    optima: dict[str, FloatArray]

    def of(self, setting: str, method: str, *, k: int | None = None) -> list[Run]:
        """Return the runs of a setting and method, at one k or all."""
        return [r for r in self.runs if r.setting == setting and r.method == method and k in (None, r.k)]

    def values(self, column: str, setting: str, method: str, *, k: int | None = None) -> FloatArray:
        return column_of(self.of(setting, method, k=k), column)

    @property
    def methods(self) -> list[str]:
        return list(dict.fromkeys(run.method for run in self.runs))

    def misses(self, run: Run) -> bool:
        """Return whether a plan fits less often than requested: by more than chance in many plans can explain."""
        return run.plan_feasible < 1 - RISK - 4 * math.sqrt(RISK * (1 - RISK) / self.effort.permutations)

    def summary(self, methods: Sequence[str]) -> list[dict[str, object]]:
        """Return mean and standard deviation of each measure, by setting, k and method."""
        columns = ("ratio", "plan_feasible", "bins_feasible", "anonymise_seconds", "solve_seconds", "linkage_mean")
        rows = []
        for setting, k, method in self._cells(methods):
            own = self.of(setting, method, k=k)
            measured = means(mean_sd, {column: column_of(own, column) for column in columns})
            rows.append({"setting": setting, "k": k, "method": method, "instances": len(own), **measured})
        return rows

    def sampled_beside_certified(self) -> list[dict[str, object]]:
        """Return bins and held-out feasibility of the published sampled model and of the certified one, same draws."""
        rows: list[dict[str, object]] = []
        for setting, k, _ in self._cells([SAMPLED]):
            sampled = self.of(setting, SAMPLED, k=k)
            drawn = {run.instance for run in sampled}
            certified, upper = (
                [r for r in self.of(setting, m, k=k) if r.instance in drawn] for m in (STOCHASTIC, UPPER)
            )
            row: dict[str, object] = {"setting": setting, "k": k, "draws": len(drawn)}
            for name, runs in (("upper", upper), ("sampled", sampled), ("certified", certified)):
                row[f"bins {name}"] = float(np.mean([run.bins for run in runs]))
            for name, runs in (("sampled", sampled), ("certified", certified)):
                row[f"least feasibility {name}"] = min(run.plan_feasible for run in runs)
                row[f"seconds {name}"] = float(np.mean([run.solve_seconds for run in runs]))
            row["sampled plans below 95 %"] = sum(map(self.misses, sampled))
            rows.append(row)
        return rows

    def _cells(self, methods: Sequence[str]) -> Iterator[tuple[str, int, str]]:
        for setting in SETTINGS:
            for k in self.effort.ks:
                yield from ((setting.numeral, k, m) for m in methods if self.of(setting.numeral, m, k=k))


def optima_by_law(effort: Effort) -> dict[str, FloatArray]:
    """Return the true optima of many draws of each setting."""
    return {
        setting.numeral: np.array([fewest_bins(setting, weights_of(setting, i)) for i in range(effort.law_draws)])
        for setting in SETTINGS
    }


def by_hierarchy(effort: Effort, setting: Setting) -> list[dict[str, object]]:
    """Return how many bins Flash uses on upper bounds, by first width of the hierarchy and k."""
    rows: list[dict[str, object]] = []
    for doubling, k in itertools.product(DOUBLINGS, effort.ks):
        drawn = [Job(setting, instance, k, effort) for instance in range(effort.instances)]
        released = [anonymise(job, mechanisms(job)[1], doubling=doubling) for job in drawn]
        bins = np.array([run.bins for one in released for run in one.plan(FLASH_UPPER, dn.Standard())])
        all_used = float(np.mean(bins == setting.law.size))
        row = {"setting": setting.numeral, "first_width": doubling, "k": k, "bins": float(bins.mean())}
        rows.append({**row, "all_bins_used": all_used})
    return rows


PAPER_DRAWS = 10
STANDARD_ERRORS = 2.58
OPTIMA = {"I": 13.5, "II": 27.8, "III": 3.0, "IV": 5.5, "V": 12.2}
MEAN_INCREASE_AT_10 = {"I": 0.07, "II": 0.05, "V": 0.07}
STOCHASTIC_INCREASE = {2: 0.04, 8: 0.27, 10: 0.41}
STOCHASTIC_OVER_MEAN_AT_8 = 0.20
MEAN_FEASIBILITY_AT_8 = 0.13
MOST_DEVIATION = 0.02
ALL_BINS_ABOVE = {"I": 7, "V": 4}
WORSE_THAN_UPPER = {"II": 2, "IV": 5}
SOLVING_MINUTES = 12
TABLE_3 = {
    "disease": [
        "Hepatitis",
        "HIV",
        "Flu",
        "HIV",
        "Hepatitis",
        "Cancer",
        "Cancer",
        "Cancer",
        "Cancer",
        "Flu",
        "HIV",
        "Hepatitis",
    ],
    "age": [21, 22, 23, 23, 24, 25, 31, 31, 31, 32, 34, 35],
}
BOB = 33

_DRAWS = "the paper's draws are unpublished"
says = Statements("hoogervorst2019", draws=_DRAWS)
_HIERARCHY = (
    f"the paper's hierarchy and suppression limit are unpublished; ours doubles from a width of {DOUBLING} and "
    "suppresses nothing"
)


def quoted(results: Results, widths: Sequence[Mapping[str, Any]]) -> list[Quoted]:
    """Compare everything that the text states; ``widths`` is what hierarchies decide."""
    return [*_anonymised(results, widths), *_planned(results), *_stochastic(results), *_table_3()]


def paper_points(setting: str, column: str, method: str) -> list[tuple[float, float]]:
    """Return the points (k, value) that the paper's text quotes for a curve."""
    points: dict[tuple[str, str, str], list[tuple[float, float]]] = {
        **{(s, "ratio", MEAN): [(10.0, 1 + x)] for s, x in MEAN_INCREASE_AT_10.items()},
        ("I", "plan_feasible", MEAN): [(8.0, MEAN_FEASIBILITY_AT_8)],
        ("I", "ratio", STOCHASTIC): [(float(k), 1 + x) for k, x in STOCHASTIC_INCREASE.items()],
    }
    return points.get((setting, column, method), [])


def _verdict_of_mean(
    paper: float, values: FloatArray, half_digit: float, why: str = _DRAWS, *, no_effect: float = 0.0
) -> str:
    """Compare a mean with the paper's; ``no_effect`` is what there would be to see if there were nothing."""
    mean, sd = mean_sd(values)
    spread = 0.0 if math.isnan(sd) else sd * math.sqrt(1 / PAPER_DRAWS + 1 / len(values))
    tolerance, off = half_digit + STANDARD_ERRORS * spread, abs(paper - mean)
    if off > tolerance and len(values) >= PAPER_DRAWS:
        return f"differs: not within ± {tolerance:.2g}; {why}"
    if off > tolerance or tolerance >= abs(paper - no_effect):
        return f"not reproducible: {len(values)} draws tell it to ± {tolerance:.2g} only, ours is {off:.2g} off"
    return f"agrees (within ± {tolerance:.2g})"


def _with_sd(values: FloatArray, form: str = ".2f") -> str:
    mean, sd = mean_sd(values)
    spread = "" if math.isnan(sd) else f", sd {sd:{form}}"
    return f"{mean:{form}}{spread} ({len(values)} draws)"


def _increase(ratios: FloatArray) -> str:
    mean, sd = mean_sd(ratios)
    spread = "" if math.isnan(sd) else f", sd {100 * sd:.0f}"
    return f"{100 * (mean - 1):+.1f} %{spread} ({len(ratios)} draws)"


def _anonymised(results: Results, widths: Sequence[Mapping[str, Any]]) -> Iterator[Quoted]:
    for setting, paper in OPTIMA.items():
        values = results.optima[setting]
        yield says(
            "bins-of-the-true",
            what=setting,
            paper=paper,
            ours=_with_sd(values),
            verdict=_verdict_of_mean(paper, values, 0.05),
        )
    for flash, ours, name in ((FLASH_UPPER, UPPER, "upper bounds"), (FLASH_MEAN, MEAN, "means")):
        pairs = _compared(results, "ratio", flash, ours)
        no_worse = [setting for setting, (a, b) in pairs.items() if a <= b]
        yield says("flash-needs-more-bins", what=name, ours=_pairs_text(pairs), verdict=_verdict_of_flash(no_worse))
    pairs = {s: p for s, p in _compared(results, "plan_feasible", FLASH_MEAN, MEAN).items() if s in ("I", "II", "V")}
    no_higher = [setting for setting, (a, b) in pairs.items() if a <= b]
    yield says("plans-on-means-fit", ours=_pairs_text(pairs), verdict=_verdict_of_flash(no_higher))
    for setting, k in ALL_BINS_ABOVE.items():
        found = {
            width: _always_full_from(
                [row for row in widths if (row["setting"], row["first_width"]) == (setting, width)]
            )
            for width in DOUBLINGS
        }
        yield says(
            "least-k-from-which",
            what=setting,
            paper=k + 1,
            ours=(
                "; ".join((f"first width {width:g}: {least or 'none'}" for width, least in found.items())),
                ", ".join(map(str, results.effort.ks)),
            ),
        )


def _compared(results: Results, column: str, first: str, second: str) -> dict[str, tuple[float, float]]:
    return {
        s.numeral: tuple(float(results.values(column, s.numeral, m).mean()) for m in (first, second))  # type: ignore[misc]
        for s in SETTINGS
    }


def _pairs_text(pairs: dict[str, tuple[float, float]]) -> str:
    return "; ".join(f"{setting} {a:.3f} and {b:.3f}" for setting, (a, b) in pairs.items())


def _verdict_of_flash(exceptions: list[str]) -> str:
    if exceptions:
        return f"differs: not in {', '.join(exceptions)}; {_HIERARCHY}"
    return f"agrees (with intervals that double from a width of {DOUBLING}; others may not)"


def _always_full_from(rows: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the least k from which every draw used all bins."""
    least = None
    for row in sorted(rows, key=lambda row: -row["k"]):
        if row["all_bins_used"] < 1:
            break
        least = int(row["k"])
    return least


def _planned(results: Results) -> Iterator[Quoted]:
    for setting, paper in MEAN_INCREASE_AT_10.items():
        values = results.values("ratio", setting, MEAN, k=10)
        yield says(
            "bins-on-means-at",
            what=setting,
            paper=100 * paper,
            ours=_increase(values),
            verdict=_verdict_of_mean(1 + paper, values, 0.005, no_effect=1),
        )
    for setting in ("III", "IV"):
        by_k = [mean_sd(results.values("ratio", setting, MEAN, k=k))[0] - 1 for k in results.effort.ks]
        worst = max(by_k, key=abs)
        yield says("largest-deviation-over-k", what=setting, ours=100 * worst, agrees=abs(worst) < MOST_DEVIATION)
    values = results.values("plan_feasible", "I", MEAN, k=8)
    bins = results.values("bins_feasible", "I", MEAN, k=8)
    yield says(
        "feasibility-of-plans-on",
        paper=MEAN_FEASIBILITY_AT_8,
        ours=(_with_sd(values), np.mean(bins)),
        verdict=_verdict_of_mean(
            MEAN_FEASIBILITY_AT_8, values, 0.005, f"{_DRAWS}; of equally good plans on means any may be returned"
        ),
    )
    pairs = [
        (a, b)
        for s in SETTINGS
        for k in results.effort.ks
        for a, b in zip(results.of(s.numeral, ROBUST, k=k), results.of(s.numeral, UPPER, k=k), strict=True)
    ]
    equal = sum(a.bins == b.bins and a.plan_feasible == b.plan_feasible for a, b in pairs)
    budgets = [math.sqrt(-2 * n * math.log(RISK / n)) for n in (25, 50)]
    yield says(
        "robust-with-the-published", ours=(equal, len(pairs), budgets[0], budgets[1]), agrees=equal == len(pairs)
    )


def _stochastic(results: Results) -> Iterator[Quoted]:
    for k, paper in STOCHASTIC_INCREASE.items():
        values = results.values("ratio", "I", STOCHASTIC, k=k)
        yield says(
            "stochastic-against-the-true",
            what=k,
            paper=100 * paper,
            ours=_increase(values),
            verdict=_verdict_of_mean(1 + paper, values, 0.005, no_effect=1),
        )
    over_mean = results.values("bins", "I", STOCHASTIC, k=8) / results.values("bins", "I", MEAN, k=8)
    yield says(
        "stochastic-against-the-mean",
        paper=100 * STOCHASTIC_OVER_MEAN_AT_8,
        ours=_increase(over_mean),
        verdict=_verdict_of_mean(1 + STOCHASTIC_OVER_MEAN_AT_8, over_mean, 0.01, no_effect=1),
    )
    values = results.values("ratio", "III", STOCHASTIC)
    yield says(
        "stochastic-has-no-trade",
        ours=(values.min(), values.max(), values.mean()),
        agrees=values.max() == 1.0,
        differs=np.mean(values > 1),
    )
    lower = {
        s.numeral: all(
            np.mean(results.values("bins", s.numeral, STOCHASTIC, k=k))
            <= np.mean(results.values("bins", s.numeral, UPPER, k=k))
            for k in results.effort.ks
        )
        for s in SETTINGS
    }
    yield says(
        "stochastic-needs-no-more",
        ours=", ".join((f"{setting} {('yes' if holds else 'no')}" for setting, holds in lower.items())),
        agrees=all(lower[s] for s in ("I", "III", "V")),
    )
    for setting, paper in WORSE_THAN_UPPER.items():
        worse = sum(
            np.mean(results.values("bins", setting, STOCHASTIC, k=k))
            > np.mean(results.values("bins", setting, UPPER, k=k))
            for k in results.effort.ks
        )
        yield says(
            "values-of-k-at", what=setting, paper=paper, ours=(worse, len(results.effort.ks)), agrees=worse == paper
        )
    certified = [r for r in results.runs if r.method == STOCHASTIC]
    worst, missed = min(r.plan_feasible for r in certified), sum(map(results.misses, certified))
    yield says("stochastic-plans-fit-with", ours=(len(certified) - missed, len(certified), worst), agrees=not missed)
    sampled = [r for r in results.runs if r.method == SAMPLED]
    # A plan that surely fits was not improved by the solver; only the others can overfit.
    improved = [r for r in sampled if r.plan_feasible < 1]
    failed = [r for r in improved if results.misses(r)]
    least = min((r.plan_feasible for r in failed), default=1.0)
    yield says(
        "stochastic-plans-fit-with-95",
        ours=(len(failed), len(sampled), least, len(sampled) - len(improved)),
        agrees=len(failed) <= 0.1 * len(sampled),
    )
    seconds = np.array([r.solve_seconds for r in results.runs if r.method == STOCHASTIC])
    gaps = sum(r.bins > r.bound for r in results.runs if r.method == STOCHASTIC)
    yield says(
        "solving-the-stochastic-model",
        paper=SOLVING_MINUTES,
        ours=(seconds.max(), np.median(seconds), gaps, len(seconds)),
        agrees=False,
    )


def _table_3() -> Iterator[Quoted]:
    risks, known = {}, {}
    for statistic in ("bounds", "multiset"):
        release = table_3(statistic)
        risks[statistic] = release.certificate.plain()["measures"]["risks"]["prosecutor_highest"]
        if release.members is not None:
            known[statistic] = BOB not in release.members.column("age").to_pylist()
        else:
            ages = release.uncertain("age")
            known[statistic] = not bool(((ages.lower <= BOB) & (ages.upper >= BOB)).any())
    yield says(
        "record-linkage-at-k",
        ours=(risks["bounds"], risks["multiset"]),
        agrees=all(math.isclose(risk, 1 / 6) for risk in risks.values()),
    )
    yield says(
        "bob-33-is-surely",
        ours=", ".join((f"{statistic} {('yes' if absent else 'no')}" for statistic, absent in known.items())),
        agrees=known == {"bounds": False, "multiset": True},
    )


def table_3(statistic: str) -> dn.Release:
    """Release Table 3 with one of its two statistics."""
    document = {
        "dataset": "patients",
        "protects": "person",
        "attributes": {
            "disease": {"role": "sensitive"},
            "age": {"role": "quasi-identifier", "kind": "numeric", "domain": [0, 120]},
        },
        "mechanism": {"name": "partition", "k": 6, "statistic": statistic},
    }
    data = dn.Dataset.from_table(pa.table(TABLE_3), dn.Policy.from_dict(document))
    mechanism = dn.Partition(k=6, statistic=statistic)
    release, _ = mechanism.release(data, ledger=dn.Ledger(":memory:"), noise=dn.Noise(seed=1))
    return release


PAGE = says.page(DOUBLING=DOUBLING)

FIGURE_3 = (FLASH_UPPER, UPPER, FLASH_MEAN, MEAN)
SAMPLED_TITLE = "The published sample beside exact probabilities, same draws"
STYLES = {
    UPPER: (0, False),
    MEAN: (2, False),
    FLASH_UPPER: (5, True),
    FLASH_MEAN: (4, True),
    ROBUST: (7, True),
    ROBUST_ITEMS: (4, False),
    ROBUST_LARGEST: (2, False),
    STOCHASTIC: (1, False),
    SAMPLED: (3, True),
    SEALED: (6, False),
}
"""Number of the colour, and whether dashed (where curves coincide)."""
FRONTIER = (UPPER, STOCHASTIC, SEALED)


def reproduce(out: Path, *, quick: bool, workers: int) -> Path:
    """Measure everything and write tables, a report and a page, as :class:`report.Reproduce` says."""
    effort = QUICK if quick else FULL
    out.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    results = Results(measure_all(effort, workers=workers), effort, optima_by_law(effort))
    widths = [row for s in SETTINGS if s.numeral in ALL_BINS_ABOVE for row in by_hierarchy(effort, s)]
    lines = quoted(results, widths)
    figure_4 = [method for method in results.methods if method not in FIGURE_3 and ", spread" not in method]
    figure_4 = [UPPER, *figure_4]
    tables = {
        "figure3": results.summary(FIGURE_3),
        "figure4": results.summary(figure_4),
        "sampled": results.sampled_beside_certified(),
        "frontier": results.summary([m for m in results.methods if m.split(", spread")[0] in FRONTIER]),
    }
    titles = {
        "figure3": "Figure 3",
        "figure4": "Figure 4",
        "sampled": SAMPLED_TITLE,
        "frontier": "Trucks against linkage",
    }
    return report.Reproduction(
        page=PAGE,
        note=_note(effort, quick, time.monotonic() - start),
        data="weights",
        lines=lines,
        files={"runs": [asdict(run) for run in results.runs], **tables, "hierarchies": widths},
        markdown=[(titles[name], "", rows if name == "sampled" else _short(rows)) for name, rows in tables.items()],
        sections=[*_figure_sections(results, figure_4), _width_section(widths)],
    ).write(out)


def _note(effort: Effort, quick: bool, seconds: float) -> str:
    form = "Quick form" if quick else "Full form"
    ks = f"{effort.ks[0]} to {effort.ks[-1]}" if len(effort.ks) > 4 else ", ".join(map(str, effort.ks))
    return (
        f"{form}: {effort.instances} draws of each setting, k = {ks}, every plan judged on {effort.permutations:,} "
        f"permutations inside classes that no planner has seen. Means with standard deviations. The sampled model has "
        f"the first {effort.sampled_instances} of these draws and {effort.sampled_seconds:g} s a plan. Took "
        f"{seconds:.0f} s."
    )


def _short(rows: Sequence[dict[str, object]]) -> list[dict[str, object]]:
    """Put means and standard deviations into one column each."""
    kept = ("ratio", "plan_feasible", "bins_feasible", "solve_seconds", "linkage_mean")
    return [
        {key: row[key] for key in ("setting", "k", "method", "instances")}
        | {name: report.mean_and_sd(row[name], row[f"{name}_sd"]) for name in kept}
        for row in rows
    ]


# The page


def _figure_sections(results: Results, figure_4: Sequence[str]) -> list[Svg]:
    upper, mean = (FLASH_UPPER, UPPER), (FLASH_MEAN, MEAN)
    useful = [method for method in figure_4 if method != SEALED]
    all_draws = [method for method in figure_4 if method != SAMPLED]  # its few draws have another mean
    return [
        report.section(
            "Figure 3: two ways to anonymise, standard model",
            *_row(results, "(a) Ratio of bins, upper bound", "ratio", upper, least=(1, 1)),
            *_row(results, "(b) Ratio of bins, mean", "ratio", mean, least=(1, 1)),
            *_row(results, "(c) Feasibility, mean: every bin fits", "plan_feasible", mean, least=(0, 1)),
            *_row(results, "Beside it: share of bins that fit, mean", "bins_feasible", mean, least=(0, 1)),
        ),
        report.section(
            "Figure 4: ways to plan, on the same classes",
            *_row(results, "(a) Ratio of bins", "ratio", all_draws, least=(1, 1)),
            *_row(
                results,
                "(b) Feasibility, held out: every bin fits (95 % is the target)",
                "plan_feasible",
                useful,
                least=(0.85, 1),
                limit=1 - RISK,
            ),
            *_row(results, "(c) Solving time, powers of ten of seconds", "solve_seconds", figure_4),
        ),
        report.section(
            SAMPLED_TITLE,
            report.paragraph(says.sentence("sampled")),
            report.html_table(results.sampled_beside_certified()),
        ),
        report.section(
            "Not in the paper: trucks against truck linkage",
            report.paragraph(says.sentence("frontier")),
            *_frontier(results),
        ),
    ]


def _width_section(widths: Sequence[Mapping[str, Any]]) -> Svg:
    by_title: dict[str, list[Curve]] = {}
    for setting in ALL_BINS_ABOVE:
        for style, width in enumerate(DOUBLINGS):
            own = [row for row in widths if (row["setting"], row["first_width"]) == (setting, width)]
            points = [(float(row["k"]), float(row["bins"]), 0.0) for row in own]
            by_title.setdefault(f"Setting {setting}", []).append(Curve(f"first width {width:g}", points, style))
    captions = {
        f"Setting {setting}": f"the paper: all bins for k > {above}" for setting, above in ALL_BINS_ABOVE.items()
    }
    drawn = report.figure(by_title, x_title="k", y_title="bins on upper bounds", captions=captions)
    title = "What Flash's hierarchy decides"
    return report.section(title, report.paragraph(says.sentence("hierarchy", DOUBLING)), *drawn)


def _row(results: Results, title: str, column: str, methods: Sequence[str], **options: Any) -> list[Svg]:
    """Draw one measure over k, one panel a setting, as a row of the paper's figures."""
    by_title, paper = {}, {}
    for name, setting in _SETTINGS.items():
        curves = [_curve(results, column, setting.numeral, method) for method in methods]
        by_title[name] = [curve for curve in curves if curve.points]
        paper[name] = [point for method in methods for point in paper_points(setting.numeral, column, method)]
    laws = {name: setting.law for name, setting in _SETTINGS.items()}
    captions = {name: f"{law.size} items, capacity {law.capacity:g}" for name, law in laws.items()}
    y_title, limit = "log10 s" if column == "solve_seconds" else "", options.pop("limit", None)
    options |= {} if limit is None else {"limits": dict.fromkeys(by_title, limit)}
    given = {"x_title": "k", "y_title": y_title, "title": title, "captions": captions, "paper": paper}
    return report.figure(by_title, **given, **{"least": None, **options})


_SETTINGS = {f"Setting {setting.numeral}": setting for setting in SETTINGS}


def _curve(results: Results, column: str, setting: str, method: str) -> Curve:
    points = []
    for k in results.effort.ks:
        values = results.values(column, setting, method, k=k)
        if len(values):
            mean, sd = mean_sd(np.log10(np.maximum(values, 1e-4)) if column == "solve_seconds" else values)
            points.append((float(k), mean, 0.0 if math.isnan(sd) else sd))
    return Curve(method, points, *STYLES.get(method, (7, False)))


def _frontier(results: Results) -> Iterator[Svg]:
    for k, spreads in results.effort.spreads.items():
        by_title: dict[str, list[Curve]] = {}
        for title, setting in _SETTINGS.items():
            by_title[title] = []
            for method in FRONTIER:
                names = {spread_name(method, spread): str(spread or "") for spread in (None, *spreads)}
                names = {name: label for name, label in names.items() if results.of(setting.numeral, name, k=k)}
                columns = ("linkage_mean", "ratio")
                points = [[float(results.values(c, setting.numeral, n, k=k).mean()) for c in columns] for n in names]
                places = [(linkage, ratio, 0.0) for linkage, ratio in points]
                by_title[title].append(Curve(method, places, STYLES[method][0], False, list(names.values())))
        given = {"x_title": "truck linkage, mean", "y_title": "ratio of bins", "title": f"k = {k}"}
        yield from report.figure(by_title, **given, least=(1.0, 1.0), from_zero=True)
