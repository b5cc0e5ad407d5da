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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

import dunnage as dn
from dunnage.arrays import FloatArray
from dunnage.errors import InternalError
from dunnage.kernels.bins.chances import clopper_pearson, fits_by_permutation
from dunnage.kernels.bins.scalar import pack_bins
from dunnage.samples import draw_weights
from dunnage.samples.packages import PackageSetting, package_setting
from papers import report
from papers.measuring import Run, column_of, efforts, in_parallel, mean_sd, means, written
from papers.report import Curve, Quoted, Statements, Svg

RISK: Any = 0.05
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


class Setting(NamedTuple):
    """A line of Table 2."""

    number: int  # number, numeral: Its number, in both forms
    numeral: str
    name: str  # as :func:`dunnage.samples.package_setting` names it

    @property
    def law(self) -> PackageSetting:
        return package_setting(self.name)


NAMES = {"I": "25-L-U", "II": "50-L-U", "III": "25-S-U", "IV": "50-S-U", "V": "25-L-Un"}
SETTINGS = tuple(Setting(number, *item) for number, item in enumerate(NAMES.items(), start=1))
if TYPE_CHECKING:  # the class is made from what is written
    Effort: TypeAlias = Any
    FULL: Any
    QUICK: Any
else:
    Effort, FULL, QUICK = efforts(__name__)


@dataclass(frozen=True)
class Job:
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
        hits, tries, bins, interval = 1, 1, 1.0, (1.0, 1.0)
        if plan.bin_of_row is not None:
            known, tries = self.release.uncertain("weight"), self.job.effort.permutations
            values = np.empty(len(known))
            values[np.argsort(known.class_id, kind="stable")] = np.concatenate(known.scenarios or ())
            rooms, law = np.array([self.job.setting.law.capacity]), {"permutations": tries, "seed": HELD_OUT_SEED}
            fits = np.concatenate(list(fits_by_permutation(values, known.class_id, plan.bin_of_row, rooms, **law)))
            hits, bins = int(fits.all(axis=1).sum()), float(fits.mean())
            interval = clopper_pearson(hits, tries)
        linkage = plan.truck_linkage
        assert linkage is not None  # every packing plan states it
        return Run(
            setting=self.job.setting.numeral,
            instance=self.job.instance,
            k=self.job.k,
            method=method,
            bins=plan.num_bins,
            bound=plan.bound,
            optimum=self.optimum,  # bins of the true weights
            ratio=plan.num_bins / self.optimum,  # o / o_n
            plan_feasible=hits / tries,  # share of permutations for which every bin fits: the paper's f_k
            plan_low=interval[0],
            plan_high=interval[1],
            bins_feasible=bins,  # mean share of bins that fit
            anonymise_seconds=self.seconds,  # anonymise_seconds, solve_seconds: the paper's t_a and t_o
            solve_seconds=plan.seconds,
            linkage_mean=linkage.mean,
            linkage_worst=linkage.worst,
            linkage_kind=linkage.kind,
        )


def spread_name(method: str, spread: int | None) -> str:
    return method if spread is None else f"{method}, spread {spread}"


def weights_of(setting: Setting, instance: int) -> FloatArray:
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
    given = {"k": job.k, "alpha": job.setting.law.size, "statistic": "multiset"}
    return dn.Partition(**given), dn.FullDomain(**given)


def anonymise(job: Job, mechanism: Any, *, doubling: float = DOUBLING) -> Anonymised:
    law, weights = job.setting.law, weights_of(job.setting, job.instance)
    weight = {"role": "quasi-identifier", "kind": "numeric", "domain": [law.low, law.high], "doubling": doubling}
    document = {"dataset": "packages", "protects": "package", "attributes": {"weight": weight}}
    policy = dn.Policy.from_dict({**document, "mechanism": {"name": mechanism.name, "k": mechanism.k}})
    data = dn.Dataset.from_table(pa.table({"weight": weights}), policy)
    start = time.monotonic()
    # Seeded so that figures can be repeated: these weights are nobody's.
    release, _ = mechanism.release(data, ledger=dn.Ledger(":memory:"), noise=dn.Noise(seed=job.instance))
    seconds = time.monotonic() - start
    if len(release) != len(weights):
        raise InternalError("a package was suppressed, so ratios would not be comparable.")
    return Anonymised(job, release, seconds, fewest_bins(job.setting, weights))


MODELS: dict[str, Any] = {
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
    todo = [Job(*draw, effort) for draw in itertools.product(SETTINGS, range(effort.instances), effort.ks)]
    # The long ones (larger settings, sampled models) first, so that no core waits at the end.
    todo.sort(key=lambda job: (job.instance, -job.setting.law.size))
    runs = in_parallel(measure, todo, workers=workers, warm_up=_warm_up)
    return sorted(runs, key=lambda run: ([*NAMES].index(run.setting), run.k, run.method, run.instance))


def _warm_up() -> None:
    measure(Job(SETTINGS[0], 0, 5, replace(QUICK, permutations=10, seconds=1.0, sampled_ks=(), spreads={})))


@dataclass(frozen=True, eq=False)
class Results:
    runs: Sequence[Run]
    effort: Effort
    optima: dict[str, FloatArray]  # of many draws of each setting, which tell the law of the true optimum

    def of(self, setting: str, method: str, *, k: int | None = None) -> list[Run]:
        return [r for r in self.runs if r.setting == setting and r.method == method and k in (None, r.k)]

    def values(self, column: str, setting: str, method: str, *, k: int | None = None) -> FloatArray:
        return column_of(self.of(setting, method, k=k), column)

    def misses(self, run: Run) -> bool:
        """Return whether a plan fits less often than requested: by more than chance in many plans can explain."""
        return run.plan_feasible < 1 - RISK - 4 * math.sqrt(RISK * (1 - RISK) / self.effort.permutations)

    def summary(self, methods: Sequence[str]) -> list[dict[str, object]]:
        columns = ("ratio", "plan_feasible", "bins_feasible", "anonymise_seconds", "solve_seconds", "linkage_mean")
        rows = []
        for setting, k, method in itertools.product(NAMES, self.effort.ks, methods):
            if own := self.of(setting, method, k=k):
                measured = means(mean_sd, {column: column_of(own, column) for column in columns})
                rows.append({"setting": setting, "k": k, "method": method, "instances": len(own), **measured})
        return rows

    def sampled_beside_certified(self) -> list[dict[str, object]]:
        """Return bins and held-out feasibility of the published sampled model and of the certified one, same draws."""
        rows: list[dict[str, object]] = []
        ways = {"upper": UPPER, "sampled": SAMPLED, "certified": STOCHASTIC}
        for setting, k in itertools.product(NAMES, self.effort.ks):
            drawn = {run.instance for run in self.of(setting, SAMPLED, k=k)}
            own = {name: [r for r in self.of(setting, m, k=k) if r.instance in drawn] for name, m in ways.items()}
            row: dict[str, object] = {"setting": setting, "k": k, "draws": len(drawn)}
            row |= {f"bins {name}": mean_sd(column_of(runs, "bins"))[0] for name, runs in own.items()}
            for name in ("sampled", "certified") if drawn else ():
                row[f"least feasibility {name}"] = min(run.plan_feasible for run in own[name])
                row[f"seconds {name}"] = mean_sd(column_of(own[name], "solve_seconds"))[0]
            row["sampled plans below 95 %"] = sum(map(self.misses, own["sampled"]))
            rows += [row] if drawn else []
        return rows


def by_hierarchy(effort: Effort, setting: Setting) -> list[dict[str, object]]:
    """Return how many bins Flash uses on upper bounds, by first width of the hierarchy and k."""
    rows: list[dict[str, object]] = []
    for doubling, k in itertools.product(DOUBLINGS, effort.ks):
        drawn = [Job(setting, instance, k, effort) for instance in range(effort.instances)]
        released = [anonymise(job, mechanisms(job)[1], doubling=doubling) for job in drawn]
        bins = np.array([run.bins for one in released for run in one.plan(FLASH_UPPER, dn.Standard())])
        row = {"setting": setting.numeral, "first_width": doubling, "k": k, "bins": float(bins.mean())}
        rows.append({**row, "all_bins_used": float(np.mean(bins == setting.law.size))})
    return rows


STANDARD_ERRORS = 2.58
PAPER = written("hoogervorst2019")["values"]
MEAN_INCREASE, STOCHASTIC_INCREASE = PAPER["mean increase at 10"], PAPER["stochastic increase"]
MEAN_FEASIBILITY, ALL_BINS_ABOVE = PAPER["mean feasibility at 8"], PAPER["all bins above"]
POINTS: dict[tuple[str, str, str], list[tuple[float, float]]] = {
    **{(s, "ratio", MEAN): [(10.0, 1 + x)] for s, x in MEAN_INCREASE.items()},
    ("I", "plan_feasible", MEAN): [(8.0, MEAN_FEASIBILITY)],
    ("I", "ratio", STOCHASTIC): [(float(k), 1 + x) for k, x in STOCHASTIC_INCREASE.items()],
}
"""Points (k, value) that the text quotes for a curve: setting, measure and method."""

_DRAWS = "the paper's draws are unpublished"
says = Statements("hoogervorst2019", draws=_DRAWS)


def quoted(results: Results, widths: Sequence[Mapping[str, Any]]) -> list[Quoted]:
    """Compare everything that the text states; ``widths`` is what hierarchies decide."""
    return [*_anonymised(results, widths), *_planned(results), *_stochastic(results), *_table_3()]


def _verdict_of_mean(
    paper: float, values: FloatArray, half_digit: float, why: str = _DRAWS, *, no_effect: float = 0.0
) -> str:
    """Compare a mean with the paper's; ``no_effect`` is what there would be to see if there were nothing."""
    mean, sd = mean_sd(values)
    spread = 0.0 if math.isnan(sd) else sd * math.sqrt(1 / PAPER["draws"] + 1 / len(values))
    tolerance, off = half_digit + STANDARD_ERRORS * spread, abs(paper - mean)
    if off > tolerance and len(values) >= PAPER["draws"]:
        return f"differs: not within ± {tolerance:.2g}; {why}"
    if off > tolerance or tolerance >= abs(paper - no_effect):
        return f"not comparable: {len(values)} draws tell it to ± {tolerance:.2g} only, ours is {off:.2g} off"
    return f"agrees (within ± {tolerance:.2g})"


def _with_sd(values: FloatArray) -> str:
    mean, sd = mean_sd(values)
    spread = "" if math.isnan(sd) else f", sd {sd:.2f}"
    return f"{mean:.2f}{spread} ({len(values)} draws)"


def _increase(ratios: FloatArray) -> str:
    mean, sd = mean_sd(ratios)
    spread = "" if math.isnan(sd) else f", sd {100 * sd:.0f}"
    return f"{100 * (mean - 1):+.1f} %{spread} ({len(ratios)} draws)"


def _anonymised(results: Results, widths: Sequence[Mapping[str, Any]]) -> Iterator[Quoted]:
    for setting, paper in PAPER["optima"].items():
        own = results.optima[setting]
        ours, agrees = _with_sd(own), _verdict_of_mean(paper, own, 0.05)
        yield says("bins-of-the-true", what=setting, paper=paper, ours=ours, verdict=agrees)
    for flash, partition, name in ((FLASH_UPPER, UPPER, "upper bounds"), (FLASH_MEAN, MEAN, "means")):
        yield _flash_compared(results, "flash-needs-more-bins", "ratio", flash, partition, NAMES, what=name)
    yield _flash_compared(results, "plans-on-means-fit", "plan_feasible", FLASH_MEAN, MEAN, ("I", "II", "V"))
    for setting, k in ALL_BINS_ABOVE.items():
        found = []
        for width in DOUBLINGS:
            rows = [row for row in widths if (row["setting"], row["first_width"]) == (setting, width)]
            full = itertools.takewhile(lambda row: row["all_bins_used"] >= 1, sorted(rows, key=lambda row: -row["k"]))
            found.append(f"first width {width:g}: {min((row['k'] for row in full), default='none')}")
        ours = "; ".join(found), ", ".join(map(str, results.effort.ks))
        yield says("least-k-from-which", what=setting, paper=k + 1, ours=ours)


def _flash_compared(
    results: Results, name: str, column: str, flash: str, partition: str, settings: Iterable[str], **given: Any
) -> Quoted:
    pairs = {s: [float(results.values(column, s, m).mean()) for m in (flash, partition)] for s in settings}
    exceptions = ", ".join(setting for setting, (theirs, ours) in pairs.items() if theirs <= ours)
    verdict = says.sentence("flash-differs" if exceptions else "flash-agrees", exceptions, DOUBLING)
    return says(
        name, ours="; ".join(f"{s} {a:.3f} and {b:.3f}" for s, (a, b) in pairs.items()), verdict=verdict, **given
    )


def _increased(name: str, paper: float, ratios: FloatArray, half_digit: float, **given: Any) -> Quoted:
    agrees = _verdict_of_mean(1 + paper, ratios, half_digit, no_effect=1)
    return says(name, paper=100 * paper, ours=_increase(ratios), verdict=agrees, **given)


def _planned(results: Results) -> Iterator[Quoted]:
    for setting, paper in MEAN_INCREASE.items():
        ratios = results.values("ratio", setting, MEAN, k=10)
        yield _increased("bins-on-means-at", paper, ratios, 0.005, what=setting)
    for setting in ("III", "IV"):
        by_k = [mean_sd(results.values("ratio", setting, MEAN, k=k))[0] - 1 for k in results.effort.ks]
        worst = max(by_k, key=abs)
        agrees = abs(worst) < PAPER["most deviation"]
        yield says("largest-deviation-over-k", what=setting, ours=100 * worst, agrees=agrees)
    whole, bins = (results.values(column, "I", MEAN, k=8) for column in ("plan_feasible", "bins_feasible"))
    why = f"{_DRAWS}; of equally good plans on means any may be returned"
    ours, agrees = (_with_sd(whole), np.mean(bins)), _verdict_of_mean(MEAN_FEASIBILITY, whole, 0.005, why)
    yield says("feasibility-of-plans-on", paper=MEAN_FEASIBILITY, ours=ours, verdict=agrees)
    pairs = list[tuple[Any, Any]]()
    for setting, k in itertools.product(NAMES, results.effort.ks):
        pairs += zip(results.of(setting, ROBUST, k=k), results.of(setting, UPPER, k=k), strict=True)
    equal = sum(a.bins == b.bins and a.plan_feasible == b.plan_feasible for a, b in pairs)
    budgets = [math.sqrt(-2 * n * math.log(RISK / n)) for n in (25, 50)]
    yield says("robust-with-the-published", ours=(equal, len(pairs), *budgets), agrees=equal == len(pairs))


def _stochastic(results: Results) -> Iterator[Quoted]:
    for k, paper in STOCHASTIC_INCREASE.items():
        ratios = results.values("ratio", "I", STOCHASTIC, k=k)
        yield _increased("stochastic-against-the-true", paper, ratios, 0.005, what=k)
    over_mean = results.values("bins", "I", STOCHASTIC, k=8) / results.values("bins", "I", MEAN, k=8)
    yield _increased("stochastic-against-the-mean", PAPER["stochastic over mean at 8"], over_mean, 0.01)
    own = results.values("ratio", "III", STOCHASTIC)
    ours = own.min(), own.max(), own.mean()
    yield says("stochastic-has-no-trade", ours=ours, agrees=own.max() == 1.0, differs=np.mean(own > 1))
    # Values of k at which a plan needs more bins than one on upper bounds.
    worse = {
        s: sum(
            results.values("bins", s, STOCHASTIC, k=k).mean() > results.values("bins", s, UPPER, k=k).mean()
            for k in results.effort.ks
        )
        for s in NAMES
    }
    ours = ", ".join(f"{setting} {'no' if num else 'yes'}" for setting, num in worse.items())
    yield says("stochastic-needs-no-more", ours=ours, agrees=not any(worse[s] for s in ("I", "III", "V")))
    for setting, paper in PAPER["worse than upper"].items():
        ours, agrees = (worse[setting], len(results.effort.ks)), worse[setting] == paper
        yield says("values-of-k-at", what=setting, paper=paper, ours=ours, agrees=agrees)
    certified = [r for r in results.runs if r.method == STOCHASTIC]
    worst, missed = min(r.plan_feasible for r in certified), sum(map(results.misses, certified))
    yield says("stochastic-plans-fit-with", ours=(len(certified) - missed, len(certified), worst), agrees=not missed)
    sampled = [r for r in results.runs if r.method == SAMPLED]
    # A plan that surely fits was not improved by the solver; only the others can overfit.
    improved = [r for r in sampled if r.plan_feasible < 1]
    failed = [r for r in improved if results.misses(r)]
    least = min((r.plan_feasible for r in failed), default=1.0)
    ours = len(failed), len(sampled), least, len(sampled) - len(improved)
    yield says("stochastic-plans-fit-with-95", ours=ours, agrees=len(failed) <= 0.1 * len(sampled))
    seconds, gaps = column_of(certified, "solve_seconds"), sum(r.bins > r.bound for r in certified)
    ours = seconds.max(), np.median(seconds), gaps, len(seconds)
    yield says("solving-the-stochastic-model", paper=PAPER["solving minutes"], ours=ours, agrees=False)


def _table_3() -> Iterator[Quoted]:
    risks, known, table, bob = {}, {}, PAPER["table 3"], PAPER["bob"]
    attributes: dict[str, dict[str, Any]] = {"disease": {"role": "sensitive"}}
    attributes["age"] = {"role": "quasi-identifier", "kind": "numeric", "domain": [0, 120]}
    document = {"dataset": "patients", "protects": "person", "attributes": attributes}
    for statistic in ("bounds", "multiset"):
        policy = dn.Policy.from_dict({**document, "mechanism": {"name": "partition", "k": 6, "statistic": statistic}})
        data, mechanism = dn.Dataset.from_table(pa.table(table), policy), dn.Partition(k=6, statistic=statistic)
        release, _ = mechanism.release(data, ledger=dn.Ledger(":memory:"), noise=dn.Noise(seed=1))
        risks[statistic] = release.certificate.plain()["measures"]["risks"]["prosecutor_highest"]
        if release.members is not None:
            known[statistic] = bob not in release.members.column("age").to_pylist()
        else:
            ages = release.uncertain("age")
            known[statistic] = not bool(((ages.lower <= bob) & (ages.upper >= bob)).any())
    agrees = all(math.isclose(risk, 1 / 6) for risk in risks.values())
    yield says("record-linkage-at-k", ours=(risks["bounds"], risks["multiset"]), agrees=agrees)
    ours = ", ".join(f"{statistic} {'yes' if absent else 'no'}" for statistic, absent in known.items())
    yield says("bob-33-is-surely", ours=ours, agrees=known == {"bounds": False, "multiset": True})


PAGE = says.page(DOUBLING=DOUBLING)

FIGURE_3 = (FLASH_UPPER, UPPER, FLASH_MEAN, MEAN)
STYLES = written("hoogervorst2019")["styles"]  # number of the colour, and whether dashed (where curves coincide)
FRONTIER = (UPPER, STOCHASTIC, SEALED)


def reproduce(out: Path, *, quick: bool, workers: int) -> Path:
    effort, start = QUICK if quick else FULL, time.monotonic()
    optima = {
        s.numeral: np.array([fewest_bins(s, weights_of(s, i)) for i in range(effort.law_draws)]) for s in SETTINGS
    }
    results = Results(measure_all(effort, workers=workers), effort, optima)
    widths = [row for s in SETTINGS if s.numeral in ALL_BINS_ABOVE for row in by_hierarchy(effort, s)]
    methods = list(dict.fromkeys(run.method for run in results.runs))
    figure_4 = [UPPER, *(method for method in methods if method not in FIGURE_3 and ", spread" not in method)]
    tables = {
        "figure3": results.summary(FIGURE_3),
        "figure4": results.summary(figure_4),
        "sampled": results.sampled_beside_certified(),
        "frontier": results.summary([m for m in methods if m.split(", spread")[0] in FRONTIER]),
    }
    markdown = []
    for name, rows in tables.items():
        kept = ("ratio", "plan_feasible", "bins_feasible", "solve_seconds", "linkage_mean")
        short = [
            {key: row[key] for key in ("setting", "k", "method", "instances")}
            | {name: report.mean_and_sd(row[name], row[f"{name}_sd"]) for name in kept}
            for row in ([] if name == "sampled" else rows)
        ]
        markdown.append((PAGE.titles[name], "", short or rows))
    ks = f"{effort.ks[0]} to {effort.ks[-1]}" if len(effort.ks) > 4 else ", ".join(map(str, effort.ks))
    return report.Reproduction(
        page=PAGE,
        note=says.note(quick, start, effort=effort, ks=ks),
        data="weights",
        lines=quoted(results, widths),
        files={"runs": [vars(run) for run in results.runs], **tables, "hierarchies": widths},
        markdown=markdown,
        sections=[*_figure_sections(results, figure_4, tables["sampled"]), _width_section(widths)],
    ).write(out)


def _figure_sections(results: Results, figure_4: Sequence[str], sampled: Sequence[report.Row]) -> list[Svg]:
    upper, mean = (FLASH_UPPER, UPPER), (FLASH_MEAN, MEAN)
    fits = "(b) Feasibility, held out: every bin fits (95 % is the target)"
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
            *_row(results, fits, "plan_feasible", useful, least=(0.85, 1), limit=1 - RISK),
            *_row(results, "(c) Solving time, powers of ten of seconds", "solve_seconds", figure_4),
        ),
        report.explained(PAGE.titles["sampled"], says.sentence("sampled"), report.html_table(sampled)),
        report.explained(
            "Not in the paper: trucks against truck linkage", says.sentence("frontier"), *_frontier(results)
        ),
    ]


def _width_section(widths: Sequence[Mapping[str, Any]]) -> Svg:
    by_title: dict[str, list[Curve]] = {}
    for setting in ALL_BINS_ABOVE:
        for style, width in enumerate(DOUBLINGS):
            own = [row for row in widths if (row["setting"], row["first_width"]) == (setting, width)]
            points = [(float(row["k"]), float(row["bins"]), 0.0) for row in own]
            by_title.setdefault(f"Setting {setting}", []).append(Curve(f"first width {width:g}", points, style))
    captions = {f"Setting {s}": f"the paper: all bins for k > {above}" for s, above in ALL_BINS_ABOVE.items()}
    drawn = report.figure(by_title, x_title="k", y_title="bins on upper bounds", captions=captions)
    return report.explained("What Flash's hierarchy decides", says.sentence("hierarchy", DOUBLING), *drawn)


def _row(results: Results, title: str, column: str, methods: Sequence[str], **options: Any) -> list[Svg]:
    """Draw one measure over k, one panel a setting, as a row of the paper's figures."""
    by_title, paper = {}, {}
    for name, setting in _SETTINGS.items():
        curves = [_curve(results, column, setting.numeral, method) for method in methods]
        by_title[name] = [curve for curve in curves if curve.points]
        paper[name] = [point for m in methods for point in POINTS.get((setting.numeral, column, m), [])]
    captions = {name: f"{s.law.size} items, capacity {s.law.capacity:g}" for name, s in _SETTINGS.items()}
    y_title, limit = "log10 s" if column == "solve_seconds" else "", options.pop("limit", None)
    options |= {} if limit is None else {"limits": dict.fromkeys(by_title, limit)}
    given: dict[str, Any] = {"x_title": "k", "y_title": y_title, "title": title, "captions": captions, "paper": paper}
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
        given: dict[str, Any] = {"x_title": "truck linkage, mean", "y_title": "ratio of bins", "title": f"k = {k}"}
        yield from report.figure(by_title, **given, least=(1.0, 1.0), from_zero=True)
