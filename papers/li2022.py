# SPDX-License-Identifier: Apache-2.0
"""Li, Erkin, Lagendijk 2022: bin packing with differential privacy. Tables 1-2, Figures 5-8, every figure in the text.

Measured in ``li2022_runs`` (as published) and ``li2022_beside`` (sound forms, attacks, plan-level risks, several
quantities). The text states few numbers, most of them "around" or as a range, and figures have no tables. "Around"
agrees if our mean is within 0.1, a range if the mean of every setting that it is about is within it or at most 0.05
beyond.

References
----------
Li, Erkin, Lagendijk 2022, Privacy-Preserving Bin-Packing With Differential Privacy. IEEE Open Journal of Signal
Processing 3.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from dunnage.noise.sampling import sampling_delta, sampling_epsilon
from papers import li2022_beside as beside
from papers import li2022_runs as runs
from papers import report
from papers.li2022_runs import (
    AVERAGE,
    BETA,
    CLUSTERS,
    HARD,
    K_OPTIMIZE,
    LAPLACE,
    LATTICE,
    MOST,
    NUMERALS,
    Results,
    stated,
)
from papers.measuring import in_parallel, mean_sd
from papers.report import Curve, Quoted, Row, Statements, Svg, verdict

Job = runs.Job | beside.FormJob | beside.Part
Tables = dict[str, list[dict[str, Any]]]

AROUND = 0.1
BEYOND = 0.05
FEWEST_DRAWS = 3  # from which a mean over draws says anything
RECOMMENDED = "c = 0.7"
_UNIFORM = ("I", "II", "III", "IV")
_LARGE = ("I", "II", "V", "VI")
_SMALL = ("III", "IV")
_HIERARCHY = f"the hierarchy is unpublished and decides it; ours doubles from a width of {runs.DOUBLING}"
_DRAWS = "draws, and what is done with impossible weights, are unpublished"
says = Statements("li2022", hierarchy=_HIERARCHY, draws=_DRAWS)


def quoted(results: Results, tables: Tables) -> list[Quoted]:
    """Compare everything that the text states; ``tables`` are those of ``li2022_beside`` by name."""
    parts = (_arithmetic, _lattice, _noise, _k_optimize, _privacy)
    return [line for part in parts for line in part(results, tables)]


def _arithmetic(results: Results, tables: Tables) -> Iterator[Quoted]:
    epsilon = float(sampling_epsilon(BETA) + 2 * runs.CHOICE * Fraction(4, 40))
    yield says("epsilon-for-k-4", ours=epsilon, agrees=round(epsilon, 1) == 1.8)
    holds = stated(4, 40)
    ours = holds["epsilon that holds"], holds["delta that holds"]
    yield says("the-score-has-sensitivity", paper=(holds["epsilon stated"], holds["delta by eq. 14"]), ours=ours)
    delta = float(sampling_delta(40, BETA))
    yield says("delta-for-d-1000", ours=(delta, float(sampling_epsilon(BETA))), agrees=0.00067 < delta <= 0.00068)
    theirs, ours = (float(sampling_delta(40, BETA, "1.3", as_published=form)) for form in (True, False))
    yield says("the-same-at-epsilon", paper=theirs, ours=ours)
    deltas = [float(sampling_delta(k, BETA)) for k in (2, 6)]
    yield says("delta-of-the-experiments", ours=(deltas[0], deltas[1], float(sampling_delta(35, BETA))))


def _by_setting(results: Results, column: str, figure: int, method: str, settings: Sequence[str], **at: float) -> Any:
    return {s: results.mean(column, figure, method, s, **at) for s in settings}


def _listed(found: Mapping[str, float], form: str = ".2f") -> str:
    return ", ".join(f"{setting} {value:{form}}" for setting, value in found.items())


def _outside(found: Mapping[str, float], low: float, high: float) -> list[str]:
    return [s for s, value in found.items() if not low - BEYOND <= value <= high + BEYOND]


def _range_verdict(found: Mapping[str, float], low: float, high: float, why: str) -> str:
    outside = _outside(found, low, high)
    return verdict(not outside, f"not in {', '.join(outside)}; {why}")


def _lattice(results: Results, tables: Tables) -> Iterator[Quoted]:
    most = max(results.effort.ks)
    found = _by_setting(results, "ratio", LATTICE, MOST, NUMERALS[:-1], x=most)
    within = _range_verdict(found, 1.0, 1.2, _HIERARCHY)
    yield says("objective-ratio-on-upper", what=most, ours=(most, _listed(found)), verdict=within)
    fits = results.values("plan_feasible", LATTICE, MOST)
    yield says("plans-on-upper-bounds", ours=(int(fits.sum()), len(fits)), agrees=bool(fits.all()))
    broken = {s: 1 - f for s, f in _by_setting(results, "bins_feasible", LATTICE, AVERAGE, NUMERALS).items()}
    yield says("share-of-bins-that", ours=_listed(broken), verdict=_range_verdict(broken, 0.1, 0.2, _HIERARCHY))
    rising = {}
    for s in NUMERALS:
        points = [(x, results.mean("ratio", LATTICE, MOST, s, x)) for x in results.xs(LATTICE, s)]
        points = [(x, mean) for x, mean in points if not math.isnan(mean)]
        rising[s] = (
            float(np.polyfit([x for x, _ in points], [mean for _, mean in points], 1)[0])
            if len(points) > 1
            else math.nan
        )
    up, num = sum(slope > 0 for slope in rising.values()), len(rising)
    yield says("the-ratio-on-upper", ours=_listed(rising, ".3f"), agrees=up > num / 2, differs=(up, num))
    hard = results.values("ratio", LATTICE, MOST, HARD)
    num = len({run.instance for run in results.runs if run.figure == LATTICE and run.setting == HARD and run.rows})
    ours = f"mean {hard.mean():.2f}, largest {hard.max():.2f}, {num} draws" if len(hard) else "nothing was kept"
    if num < FEWEST_DRAWS:
        yield says(
            "objective-ratio-on-upper-bounds",
            ours=ours,
            agrees=False,
            cause="none",
            differs=f"{num} draws in which anything was kept are no evidence",
        )
    else:
        agrees = abs(hard.mean() - 1) <= AROUND
        yield says("objective-ratio-on-upper-bounds", ours=ours, agrees=agrees, differs=_HIERARCHY)
    for settings, low, high, paper in (
        (_UNIFORM, 0.10, 0.25, "around 10 to 25 %"),
        (("V",), 0.30, 0.30, "around 30 %"),
        (("VI",), 0.20, 0.30, "20 to 30 %"),
    ):
        letter, standard = (
            {row["setting"]: row[reading] for row in tables["readings"] if row["setting"] in settings}
            for reading in beside.READINGS
        )
        what, within = ("s" * (len(settings) > 1), ", ".join(settings)), _range_verdict(letter, low, high, _HIERARCHY)
        if within != "agrees" and not (outside := _outside(standard, low, high)):
            within = says.sentence("standard-fits")
        elif within != "agrees":
            within += f" (with the standard exponential mechanism not in {', '.join(outside)})"
        ours = _listed(letter), _listed(standard)
        yield says("share-suppressed-setting", what=what, paper=paper, ours=ours, verdict=within)
    most = max(results.effort.hard_ks)
    left = 1 - results.mean("kept", LATTICE, MOST, HARD, x=most)
    widths = {row["first width"]: 1 - row["kept"] for row in tables["hierarchies"] if row["setting"] == HARD}
    ours = left, ", ".join(f"{width:g}: {lost:.2f}" for width, lost in widths.items())
    yield says("share-suppressed-setting-vii", what=most, ours=ours, agrees=abs(left - 0.1) <= BEYOND)


# Algorithm 2 and the noise without clusters


def _around(paper: float, values: runs.FloatArray, why: str) -> str:
    off = abs(float(values.mean()) - paper)
    return f"agrees (within {AROUND:g})" if off <= AROUND else f"differs: {off:.2f} off; {why}"


def _over(results: Results, column: str, figure: int, method: str) -> runs.FloatArray:
    """Return the means of the settings over all epsilons."""
    return np.array([results.mean(column, figure, method, s) for s in NUMERALS])


def _noise(results: Results, tables: Tables) -> Iterator[Quoted]:
    ratios, fits = (_over(results, column, CLUSTERS, RECOMMENDED) for column in ("ratio", "bins_feasible"))
    for name, paper, own in (("algorithm-2-c-0", 1.2, ratios), ("algorithm-2-c-0-7", 0.9, fits)):
        yield says(name, ours=(own.mean(), own.min(), own.max()), verdict=_around(paper, own, _DRAWS))
    whole = {c: float(results.values("plan_feasible", CLUSTERS, c).mean()) for c in results.methods(CLUSTERS)}
    ours = ", ".join(f"{name}: {share:.2f}" for name, share in whole.items())
    agrees = all(share >= float(name.removeprefix("c = ")) for name, share in whole.items())
    yield says("plans-of-algorithm-2", ours=ours, agrees=agrees)
    least, most = min(results.effort.epsilons), max(results.effort.epsilons)
    away, fits = (
        {e: float(np.mean(np.abs(results.values(column, CLUSTERS, RECOMMENDED, x=e) - 1))) for e in (least, most)}
        for column in ("ratio", "bins_feasible")
    )
    agrees = away[most] < away[least] and fits[most] <= fits[least]
    ours = away[least], away[most], fits[least], fits[most], least, most
    yield says("as-epsilon-grows-the", ours=ours, agrees=agrees)
    every = results.values("ratio", CLUSTERS)
    inside = (every >= 1) & (every <= 1.2)
    ours = every.min(), every.max(), np.mean(inside)
    yield says("objective-ratio-of-algorithm", ours=ours, agrees=bool(inside.all()))
    ratios, clustered = (_over(results, "ratio", figure, RECOMMENDED) for figure in (LAPLACE, CLUSTERS))
    ours = ratios.mean(), ratios.min(), ratios.max(), clustered.mean()
    yield says("without-clusters-c-0", ours=ours, verdict=_around(1.4, ratios, _DRAWS))
    packages = {"large packages": ("I", "II"), "small packages": ("III", "IV")}
    sizes = {name: [results.mean("ratio", LAPLACE, RECOMMENDED, s) for s in pair] for name, pair in packages.items()}
    ours = "; ".join(f"{name} {a:.2f}, {b:.2f}" for name, (a, b) in sizes.items())
    yield says("without-clusters-c-0-7", ours=ours, agrees=all(b > a for a, b in sizes.values()))
    two = {"clusters": CLUSTERS, "without": LAPLACE}
    fits = {name: float(_over(results, "bins_feasible", figure, RECOMMENDED).mean()) for name, figure in two.items()}
    yield says("feasibility-is-closer-to", ours=_listed(fits, ".3f"), agrees=fits["clusters"] > fits["without"])


def _k_optimize(results: Results, tables: Tables) -> Iterator[Quoted]:
    large, small = (_by_setting(results, "ratio", K_OPTIMIZE, MOST, settings) for settings in (_LARGE, _SMALL))
    within = _range_verdict(large, 1.1, 1.3, "its intervals are at least 4 wide, ours as narrow as the classes")
    yield says("k-optimize-upper-bounds", ours=_listed(large), verdict=within)
    within = _range_verdict(small, 1.0, 1.0, "now and then one bin more, of three or six")
    yield says("k-optimize-upper-bounds-objective", ours=_listed(small), verdict=within)
    fits = _by_setting(results, "bins_feasible", K_OPTIMIZE, AVERAGE, NUMERALS)
    most = {s: value for s, value in fits.items() if s not in ("III", "V")}
    within = [s for s in most if s not in _outside(most, 0.8, 0.9)]
    yield says("k-optimize-averages-feasibility", ours=_listed(most), agrees=len(within) > len(most) / 2)
    agrees = fits["III"] >= 1 - AROUND and fits["V"] < 0.8
    yield says("k-optimize-averages-feasibility-settings", ours=(fits["III"], fits["V"]), agrees=agrees)
    ks = min(results.effort.ks), max(results.effort.ks)
    ends = {s: [results.mean("ratio", K_OPTIMIZE, MOST, s, k) for k in ks] for s in NUMERALS}
    flat = ", ".join(s for s, (a, b) in ends.items() if b <= a)
    ours = "; ".join(f"{s} {a:.2f}, {b:.2f}" for s, (a, b) in ends.items())
    yield says("k-optimize-upper-bounds-the", what=ks, ours=ours, agrees=not flat, differs=flat)

    def of_usual(column: str, figure: int, method: str, x: float) -> float:
        return float(np.mean([results.mean(column, figure, method, s, x) for s in NUMERALS if s != HARD]))

    columns = ("ratio", "bins_feasible")
    (bins, fit), (bins_there, fit_there) = (
        [of_usual(column, *way) for column in columns] for way in ((CLUSTERS, "c = 0.5", 1.0), (K_OPTIMIZE, AVERAGE, 4))
    )
    ours = bins, fit, bins_there, fit_there, of_usual("ratio", K_OPTIMIZE, MOST, 4)
    yield says("algorithm-2-at-epsilon", ours=ours, agrees=bins <= bins_there + AROUND and fit > fit_there)
    costs = [
        float(np.mean([abs(results.mean(c, CLUSTERS, RECOMMENDED, s, 1.0) - 1) for s in NUMERALS])) for c in columns
    ]
    agrees = all(0.1 - BEYOND <= cost <= 0.2 + BEYOND for cost in costs)
    yield says("what-algorithm-2-costs", ours=(*costs,), agrees=agrees)
    pairs = {
        k: [results.mean("ratio", *way, k) for way in ((LATTICE, MOST, "I"), (K_OPTIMIZE, MOST, "II"))]
        for k in results.effort.ks
    }
    better = [k for k, (lattice, partition) in pairs.items() if lattice <= partition]
    ours = f"at k = {', '.join(map(str, better))}" if better else "at no k"
    yield says("algorithm-1-setting-i", ours=ours, agrees={k for k in pairs if k <= 4} <= set(better))


def _privacy(results: Results, tables: Tables) -> Iterator[Quoted]:
    for figure, what, limit, paper, unit in (
        (LATTICE, "algorithm 1", 0.1, "less than 0.1 s", 1.0),
        (CLUSTERS, "algorithm 2", 0.003, "within 3 ms", 1000.0),
    ):
        # The first method is the first to draw noise of its scale, for which exact tables are made.
        seconds = results.values("anonymise_seconds", figure, results.methods(figure)[0])
        name, where = ("s", "VI-C.3") if figure == LATTICE else ("ms", "VI-D.2")
        ours = unit * np.median(seconds), name, unit * seconds.max(), name
        agrees = float(np.median(seconds)) <= limit
        yield says("time-to-anonymise", where=where, what=what, paper=paper, ours=ours, agrees=agrees)
    seconds = results.values("anonymise_seconds", K_OPTIMIZE)
    yield says("time-of-k-optimize", ours=(np.median(seconds), seconds.max()))
    yield says("clusters-of-5-30", ours=tuple(results.values("exact", CLUSTERS, None, s).mean() for s in ("I", "II")))
    for row in tables["identification"]:
        corrected = f"; with its denominators {row['corrected states']:.3f} and {row['corrected hits']:.3f}"
        corrected = "" if math.isnan(row["corrected states"]) else corrected
        ours = row["eq. 30 states"], row["eq. 30 hits"], corrected
        yield says("probability-of-naming-a", what=(row["epsilon"], row["form"]), ours=ours)
    for row in tables["lattice identification"]:
        what, ours = (row["k"], row["beta"]), (row["before the release"], row["given that it is in it"], row["worst"])
        yield says("probability-of-naming-a-package", what=what, paper=row["beta/k"], ours=ours)


PAGE = says.page(runs=runs)

STYLES = {runs.AVERAGE: (2, False), runs.MOST: (0, False), runs.CLASS_MEAN: (4, True)}
"""Number of the colour, and whether dashed."""
MEASURES = {
    "ratio": "objective ratio o/o_n",
    "bins_feasible": "feasibility f: share of bins that fit",
    "plan_feasible": "beside it: share of plans in which all bins fit",
    "anonymise_seconds": "time to anonymise, powers of ten of seconds",
    "kept": "share kept",
    "ratio_all": "bins by the optimum of all packages, those left out too",
}


def reproduce(out: Path, *, quick: bool, workers: int) -> Path:
    effort, start = runs.QUICK if quick else runs.FULL, time.monotonic()
    results, tables = measure_all(effort, workers=workers)
    figures = {figure: results.summary(figure) for figure in runs.FIGURES}
    names = {figure: f"Figure {figure}: {name}" for figure, name in runs.METHODS.items()}
    note = says.note(
        quick,
        start,
        effort=effort,
        ks=", ".join(map(str, effort.ks)),
        most=max(effort.hard_ks),
        epsilons=", ".join(f"{e:g}" for e in effort.epsilons),
        unproved=sum(not run.proved for run in results.runs),
        num=len(results.runs),
    )
    by_figure = {f"figure{figure}": rows for figure, rows in figures.items()}
    beside_paper = report.Reproduction.of_tables(
        PAGE,
        tables,
        _rounded,
        on_page={"forms by setting": lambda rows: []},
        drawings={"forms by setting": lambda: _form_panels(tables["forms by setting"])},
        note=note,
        data="weights",
        lines=quoted(results, tables),
        files={"runs": [vars(run) for run in results.runs], **by_figure, **tables},
    )
    drawn = [report.explained(title, PAGE.explained[at], *_drawn(results, at)) for at, title in names.items()]
    short = [(title, "", report.short_rows(figures[figure])) for figure, title in names.items()]
    own: dict[str, Any] = {"sections": [*drawn, *beside_paper.sections], "markdown": [*short, *beside_paper.markdown]}
    return replace(beside_paper, **own).write(out)


def measure(job: Job) -> list[Any]:
    if isinstance(job, runs.Job):
        return list(runs.measure(job))
    return list(beside.measure_forms(job) if isinstance(job, beside.FormJob) else beside.measure_part(job))


def measure_all(effort: runs.Effort, *, workers: int) -> tuple[runs.Results, Tables]:
    # Long jobs first, so that no core waits at the end.
    todo: list[Job] = [*beside.parts(effort), *runs.jobs(effort), *beside.form_jobs(effort)]
    found = in_parallel(measure, todo, workers=workers, warm_up=runs.warm_up)
    forms = [item for item in found if hasattr(item, "form")]
    tables: Tables = {
        "settings": runs.setting_table(),
        "forms": beside.form_summary(forms, by_setting=False),
        "forms by setting": beside.form_summary(forms, by_setting=True),
        **beside.by_name([item for item in found if isinstance(item, tuple)], effort),
    }
    figures = [item for item in found if hasattr(item, "figure")]
    figures.sort(key=lambda run: (run.figure, NUMERALS.index(run.setting), run.method, run.x, run.instance))
    return runs.Results(figures, effort), tables


def _rounded(rows: Sequence[Row]) -> list[dict[str, object]]:
    return [{key: report.small_shown(value) for key, value in row.items()} for row in rows]


def _drawn(results: Results, number: int) -> list[Svg]:
    parts: list[Svg] = []
    if number == LATTICE:  # epsilon and delta at every k, for samples of 50, or of 200 beyond the usual k
        hard = [k for k in results.effort.hard_ks if k not in results.effort.ks]
        lines = [(k, 50) for k in results.effort.ks] + [(k, 200) for k in hard]
        parts.append(report.html_table(_rounded([{"k": k, "|D|": size, **stated(k, size)} for k, size in lines])))
    settings = {f"Setting {setting.numeral}": setting for setting in runs.settings_of(number)}
    captions = {name: f"{s.law.size} packages, capacity {s.law.capacity:g}" for name, s in settings.items()}
    for column, title in MEASURES.items():
        if number != LATTICE and column in ("kept", "ratio_all"):
            continue
        planned = column not in ("kept", "anonymise_seconds")  # what planning changes
        methods = results.methods(number)[: None if planned else 1]
        parts += report.figure(
            {name: [_curve(results, number, column, s.numeral, m) for m in methods] for name, s in settings.items()},
            x_title="epsilon" if number in (CLUSTERS, LAPLACE) else "k",
            y_title="log10 s" if column == "anonymise_seconds" else "",
            title=title,
            captions=captions,
            named=planned,
            least=_LEAST.get(column, (0.0, 1.0)),
        )
    return parts


_LEAST = {"anonymise_seconds": None, "ratio": (1.0, 1.0), "ratio_all": (1.0, 1.0)}


def _curve(results: Results, number: int, column: str, setting: str, method: str) -> Curve:
    points = []
    for x in results.xs(number, setting):
        values = results.values(column, number, method, setting, x)
        if len(values):
            mean, sd = mean_sd(np.log10(np.maximum(values, 1e-6)) if column == "anonymise_seconds" else values)
            points.append((x, mean, 0.0 if math.isnan(sd) else sd))
    return Curve(method, points, *(STYLES.get(method) or (results.methods(number).index(method), False)))


def _form_panels(rows: Sequence[Row]) -> list[Svg]:
    parts = []
    for column in ("ratio", "bins_feasible"):
        by_title: dict[str, list[Curve]] = {}
        for setting in dict.fromkeys(str(row["setting"]) for row in rows):
            for number, form in enumerate(beside.FORMS):
                own = [row for row in rows if (row["setting"], row["form"]) == (setting, form.name)]
                points: list[Any] = [(row["epsilon"], row[column], 0.0) for row in own]
                curve = Curve(f"{form.name} ({form.model})", points, number, form.model == beside.NOT_PRIVATE)
                by_title.setdefault(f"Setting {setting}", []).append(curve)
        parts += report.figure(by_title, x_title="epsilon", title=MEASURES[column], least=_LEAST.get(column))
    return parts
