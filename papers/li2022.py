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
from dataclasses import asdict
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
    TABLE_1,
    Results,
    stated,
)
from papers.measuring import in_parallel, mean_sd
from papers.report import Curve, Quoted, Row, Statements, Svg, verdict

Job = runs.Job | beside.FormJob | beside.Part
Tables = dict[str, list[dict[str, Any]]]

AROUND = 0.1
BEYOND = 0.05
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


# Arithmetic


def _arithmetic(results: Results, tables: Tables) -> Iterator[Quoted]:
    epsilon = float(sampling_epsilon(BETA) + 2 * runs.CHOICE * Fraction(4, 40))
    yield says("epsilon-for-k-4", ours=epsilon, agrees=round(epsilon, 1) == 1.8)
    holds = stated(4, 40)
    yield says(
        "the-score-has-sensitivity",
        paper=(holds["epsilon stated"], holds["delta by eq. 14"]),
        ours=(holds["epsilon that holds"], holds["delta that holds"]),
    )
    delta = float(sampling_delta(40, BETA))
    yield says("delta-for-d-1000", ours=(delta, float(sampling_epsilon(BETA))), agrees=0.00067 < delta <= 0.00068)
    theirs, ours = (float(sampling_delta(40, BETA, "1.3", as_published=form)) for form in (True, False))
    yield says("the-same-at-epsilon", paper=theirs, ours=ours)
    deltas = [float(sampling_delta(k, BETA)) for k in (2, 6)]
    yield says("delta-of-the-experiments", ours=(deltas[0], deltas[1], float(sampling_delta(35, BETA))))


# Algorithm 1


def _by_setting(results: Results, column: str, figure: int, method: str, settings: Sequence[str], **at: float) -> Any:
    return {s: results.mean(column, figure, method, s, **at) for s in settings}


def _listed(found: Mapping[str, float], form: str = ".2f") -> str:
    return ", ".join(f"{setting} {value:{form}}" for setting, value in found.items())


def _outside(found: Mapping[str, float], low: float, high: float) -> list[str]:
    """Return the settings that are beyond a range by more than is allowed."""
    return [s for s, value in found.items() if not low - BEYOND <= value <= high + BEYOND]


def _range_verdict(found: Mapping[str, float], low: float, high: float, why: str) -> str:
    outside = _outside(found, low, high)
    return verdict(not outside, f"not in {', '.join(outside)}; {why}")


def _lattice(results: Results, tables: Tables) -> Iterator[Quoted]:
    most = max(results.effort.ks)
    found = _by_setting(results, "ratio", LATTICE, MOST, [s.numeral for s in TABLE_1[:-1]], x=most)
    yield says(
        "objective-ratio-on-upper",
        what=most,
        ours=(most, _listed(found)),
        verdict=_range_verdict(found, 1.0, 1.2, _HIERARCHY),
    )
    fits = results.values("plan_feasible", LATTICE, MOST)
    yield says("plans-on-upper-bounds", ours=(int(fits.sum()), len(fits)), agrees=bool(fits.all()))
    broken = {s: 1 - f for s, f in _by_setting(results, "bins_feasible", LATTICE, AVERAGE, _all_settings()).items()}
    yield says("share-of-bins-that", ours=_listed(broken), verdict=_range_verdict(broken, 0.1, 0.2, _HIERARCHY))
    rising = {s: _slope(results, s) for s in _all_settings()}
    up = [s for s, slope in rising.items() if slope > 0]
    yield says(
        "the-ratio-on-upper",
        ours=_listed(rising, ".3f"),
        agrees=len(up) > len(rising) / 2,
        differs=(len(up), len(rising)),
    )
    hard = results.values("ratio", LATTICE, MOST, settings=[HARD])
    yield says(
        "objective-ratio-on-upper-bounds",
        ours=f"mean {hard.mean():.2f}, largest {hard.max():.2f}" if len(hard) else "nothing was kept",
        agrees=bool(len(hard)) and abs(hard.mean() - 1) <= AROUND,
    )
    for settings, low, high, paper in (
        (_UNIFORM, 0.10, 0.25, "around 10 to 25 %"),
        (("V",), 0.30, 0.30, "around 30 %"),
        (("VI",), 0.20, 0.30, "20 to 30 %"),
    ):
        found = {s: 1 - kept for s, kept in _by_setting(results, "kept", LATTICE, MOST, settings).items()}
        yield says(
            "share-suppressed-setting",
            what=("s" * (len(settings) > 1), ", ".join(settings)),
            paper=paper,
            ours=_listed(found),
            verdict=_range_verdict(found, low, high, _HIERARCHY),
        )
    most = max(results.effort.hard_ks)
    left = 1 - results.mean("kept", LATTICE, MOST, HARD, x=most)
    others = [
        f"{row['first width']:g}: {1 - row['kept']:.2f}" for row in tables["hierarchies"] if row["setting"] == HARD
    ]
    yield says(
        "share-suppressed-setting-vii", what=most, ours=(left, ", ".join(others)), agrees=abs(left - 0.1) <= BEYOND
    )


def _all_settings() -> list[str]:
    return [setting.numeral for setting in TABLE_1]


def _slope(results: Results, setting: str) -> float:
    xs = results.xs(LATTICE, setting)
    means = [results.mean("ratio", LATTICE, MOST, setting, x=x) for x in xs]
    points = [(x, mean) for x, mean in zip(xs, means, strict=True) if not math.isnan(mean)]
    return float(np.polyfit(*zip(*points, strict=True), 1)[0]) if len(points) > 1 else math.nan


# Algorithm 2 and the noise without clusters


def _around(paper: float, values: runs.FloatArray, why: str) -> str:
    off = abs(float(values.mean()) - paper)
    return f"agrees (within {AROUND:g})" if off <= AROUND else f"differs: {off:.2f} off; {why}"


def _over(results: Results, column: str, figure: int, method: str) -> runs.FloatArray:
    """Return the means of the settings over all epsilons."""
    return np.array([results.mean(column, figure, method, s.numeral) for s in TABLE_1])


def _noise(results: Results, tables: Tables) -> Iterator[Quoted]:
    ratios, fits = (_over(results, column, CLUSTERS, RECOMMENDED) for column in ("ratio", "bins_feasible"))
    yield says(
        "algorithm-2-c-0", ours=(ratios.mean(), ratios.min(), ratios.max()), verdict=_around(1.2, ratios, _DRAWS)
    )
    yield says("algorithm-2-c-0-7", ours=(fits.mean(), fits.min(), fits.max()), verdict=_around(0.9, fits, _DRAWS))
    whole = {c: float(results.values("plan_feasible", CLUSTERS, c).mean()) for c in results.methods(CLUSTERS)}
    yield says(
        "plans-of-algorithm-2",
        ours=", ".join((f"{name}: {share:.2f}" for name, share in whole.items())),
        agrees=all((share >= float(name.removeprefix("c = ")) for name, share in whole.items())),
    )
    least, most = min(results.effort.epsilons), max(results.effort.epsilons)
    away, fits = (
        {e: float(np.mean(np.abs(results.values(column, CLUSTERS, RECOMMENDED, x=e) - 1))) for e in (least, most)}
        for column in ("ratio", "bins_feasible")
    )
    yield says(
        "as-epsilon-grows-the",
        ours=(away[least], away[most], fits[least], fits[most], least, most),
        agrees=away[most] < away[least] and fits[most] <= fits[least],
    )
    every = results.values("ratio", CLUSTERS)
    yield says(
        "objective-ratio-of-algorithm",
        ours=(every.min(), every.max(), np.mean((every >= 1) & (every <= 1.2))),
        agrees=bool(((every >= 1) & (every <= 1.2)).all()),
    )
    ratios, clustered = (_over(results, "ratio", figure, RECOMMENDED) for figure in (LAPLACE, CLUSTERS))
    yield says(
        "without-clusters-c-0",
        ours=(ratios.mean(), ratios.min(), ratios.max(), clustered.mean()),
        verdict=_around(1.4, ratios, _DRAWS),
    )
    packages = {"large packages": ("I", "II"), "small packages": ("III", "IV")}
    sizes = {name: [results.mean("ratio", LAPLACE, RECOMMENDED, s) for s in pair] for name, pair in packages.items()}
    yield says(
        "without-clusters-c-0-7",
        ours="; ".join((f"{name} {a:.2f}, {b:.2f}" for name, (a, b) in sizes.items())),
        agrees=all((b > a for a, b in sizes.values())),
    )
    two = {"clusters": CLUSTERS, "without": LAPLACE}
    fits = {name: float(_over(results, "bins_feasible", figure, RECOMMENDED).mean()) for name, figure in two.items()}
    yield says(
        "feasibility-is-closer-to",
        ours=", ".join((f"{name} {value:.3f}" for name, value in fits.items())),
        agrees=fits["clusters"] > fits["without"],
    )


# K-Optimize


def _k_optimize(results: Results, tables: Tables) -> Iterator[Quoted]:
    large = _by_setting(results, "ratio", K_OPTIMIZE, MOST, _LARGE)
    yield says(
        "k-optimize-upper-bounds",
        ours=_listed(large),
        verdict=_range_verdict(large, 1.1, 1.3, "its intervals are at least 4 wide, ours as narrow as the classes"),
    )
    small = _by_setting(results, "ratio", K_OPTIMIZE, MOST, _SMALL)
    yield says(
        "k-optimize-upper-bounds-objective",
        ours=_listed(small),
        verdict=_range_verdict(small, 1.0, 1.0, "now and then one bin more, of three or six"),
    )
    fits = _by_setting(results, "bins_feasible", K_OPTIMIZE, AVERAGE, _all_settings())
    most = {s: value for s, value in fits.items() if s not in ("III", "V")}
    within = [s for s in most if s not in _outside(most, 0.8, 0.9)]
    yield says("k-optimize-averages-feasibility", ours=_listed(most), agrees=len(within) > len(most) / 2)
    yield says(
        "k-optimize-averages-feasibility-settings",
        ours=(fits["III"], fits["V"]),
        agrees=fits["III"] >= 1 - AROUND and fits["V"] < 0.8,
    )
    least, largest = min(results.effort.ks), max(results.effort.ks)
    ends = {s: [results.mean("ratio", K_OPTIMIZE, MOST, s, x=k) for k in (least, largest)] for s in _all_settings()}
    flat = [s for s, (a, b) in ends.items() if b <= a]
    yield says(
        "k-optimize-upper-bounds-the",
        what=(least, largest),
        ours="; ".join((f"{s} {a:.2f}, {b:.2f}" for s, (a, b) in ends.items())),
        agrees=not flat,
        differs=", ".join(flat),
    )
    settings = [s for s in _all_settings() if s != HARD]
    ours = {c: [results.mean(c, CLUSTERS, "c = 0.5", s, x=1.0) for s in settings] for c in ("ratio", "bins_feasible")}
    theirs = {c: [results.mean(c, K_OPTIMIZE, AVERAGE, s, x=4) for s in settings] for c in ("ratio", "bins_feasible")}
    upper = float(np.mean([results.mean("ratio", K_OPTIMIZE, MOST, s, x=4) for s in settings]))
    mine, other = ({c: float(np.mean(v)) for c, v in found.items()} for found in (ours, theirs))
    yield says(
        "algorithm-2-at-epsilon",
        ours=(mine["ratio"], mine["bins_feasible"], other["ratio"], other["bins_feasible"], upper),
        agrees=mine["ratio"] <= other["ratio"] + AROUND and mine["bins_feasible"] > other["bins_feasible"],
    )
    costs = [
        float(np.mean([abs(results.mean(c, CLUSTERS, RECOMMENDED, s, x=1.0) - 1) for s in _all_settings()]))
        for c in mine
    ]
    yield says(
        "what-algorithm-2-costs",
        ours=(costs[0], costs[1]),
        agrees=all(0.1 - BEYOND <= cost <= 0.2 + BEYOND for cost in costs),
    )
    better = [
        k
        for k in results.effort.ks
        if results.mean("ratio", LATTICE, MOST, "I", x=k) <= results.mean("ratio", K_OPTIMIZE, MOST, "II", x=k)
    ]
    wanted = [k for k in results.effort.ks if k <= 4]
    yield says(
        "algorithm-1-setting-i",
        ours=f"at k = {', '.join(map(str, better))}" if better else "at no k",
        agrees=set(wanted) <= set(better),
    )


# Times


def _privacy(results: Results, tables: Tables) -> Iterator[Quoted]:
    for figure, what, limit, paper, unit in (
        (LATTICE, "algorithm 1", 0.1, "less than 0.1 s", 1.0),
        (CLUSTERS, "algorithm 2", 0.003, "within 3 ms", 1000.0),
    ):
        # The first method is the first to draw noise of its scale, for which exact tables are made.
        seconds = results.values("anonymise_seconds", figure, results.methods(figure)[0])
        name = "s" if unit == 1.0 else "ms"
        yield says(
            "time-to-anonymise",
            where="VI-C.3" if figure == LATTICE else "VI-D.2",
            what=what,
            paper=paper,
            ours=(unit * np.median(seconds), name, unit * seconds.max(), name),
            agrees=float(np.median(seconds)) <= limit,
        )
    seconds = results.values("anonymise_seconds", K_OPTIMIZE)
    yield says("time-of-k-optimize", ours=(np.median(seconds), seconds.max()))
    printed = {s: results.values("exact", CLUSTERS, settings=[s]) for s in ("I", "II")}
    yield says("clusters-of-5-30", ours=(printed["I"].mean(), printed["II"].mean()))
    for row in tables["identification"]:
        corrected = (
            ""
            if math.isnan(row["corrected states"])
            else (f"; with its denominators {row['corrected states']:.3f} and {row['corrected hits']:.3f}")
        )
        yield says(
            "probability-of-naming-a",
            what=(row["epsilon"], row["form"]),
            ours=(row["eq. 30 states"], row["eq. 30 hits"], corrected),
        )
    for row in tables["lattice identification"]:
        yield says(
            "probability-of-naming-a-package",
            what=(row["k"], row["beta"]),
            paper=row["beta/k"],
            ours=(row["before the release"], row["given that it is in it"], row["worst"]),
        )


# Privacy


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
    """Measure everything and write tables, a report and a page, as :class:`report.Reproduce` says."""
    effort = runs.QUICK if quick else runs.FULL
    out.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    results, tables = measure_all(effort, workers=workers)
    figures = {figure: results.summary(figure) for figure in runs.FIGURES}
    names = {figure: f"Figure {figure}: {name}" for figure, name in runs.METHODS.items()}
    drawn = [
        report.section(title, report.paragraph(PAGE.explained[str(figure)]), *_drawn(results, figure))
        for figure, title in names.items()
    ]
    beside_drawn = {"forms by setting": lambda: _form_panels(tables["forms by setting"])}
    return report.Reproduction(
        page=PAGE,
        note=_note(results, quick, time.monotonic() - start),
        data="weights",
        lines=quoted(results, tables),
        files={
            "runs": [asdict(run) for run in results.runs],
            **{f"figure{figure}": rows for figure, rows in figures.items()},
            **tables,
        },
        markdown=[
            *((title, "", report.short_rows(figures[figure])) for figure, title in names.items()),
            *((PAGE.titles[name], PAGE.why[name], _rounded(rows)) for name, rows in tables.items()),
        ],
        sections=drawn
        + report.table_sections(
            PAGE, tables, lambda name, rows: [] if name in beside_drawn else _rounded(rows), beside_drawn
        ),
    ).write(out)


def measure(job: Job) -> list[Any]:
    if isinstance(job, runs.Job):
        return list(runs.measure(job))
    return list(beside.measure_forms(job) if isinstance(job, beside.FormJob) else beside.measure_part(job))


def measure_all(effort: runs.Effort, *, workers: int) -> tuple[runs.Results, Tables]:
    """Measure the figures, and what stands beside the paper as tables by name."""
    # Long jobs first, so that no core waits at the end.
    todo: list[Job] = [*beside.parts(effort), *runs.jobs(effort), *beside.form_jobs(effort)]
    found = in_parallel(measure, todo, workers=workers, warm_up=runs.warm_up)
    forms = [item for item in found if isinstance(item, beside.Beside)]
    tables: Tables = {
        "settings": runs.setting_table(),
        "forms": beside.form_summary(forms, by_setting=False),
        "forms by setting": beside.form_summary(forms, by_setting=True),
        **beside.by_name([item for item in found if isinstance(item, tuple)], effort),
    }
    figures = runs.sorted_runs(item for item in found if isinstance(item, runs.Run))
    return runs.Results(figures, effort), tables


def _note(results: runs.Results, quick: bool, seconds: float) -> str:
    effort, form = results.effort, "Quick form" if quick else "Full form"
    unproved = sum(not run.proved for run in results.runs)
    return (
        f"{form}: {effort.runs} draws of each setting ({effort.hard_runs} of setting VII), k = "
        f"{', '.join(map(str, effort.ks))} (VII up to {max(effort.hard_ks)}), epsilon = "
        f"{', '.join(f'{e:g}' for e in effort.epsilons)}. Plans and optima are proved to be least but in {unproved} of "
        f"{len(results.runs):,} cases. Means with standard deviations. Took {seconds:.0f} s."
    )


def _rounded(rows: Sequence[Row]) -> list[dict[str, object]]:
    return [{key: report.small_shown(value) for key, value in row.items()} for row in rows]


# The page


def _drawn(results: Results, number: int) -> list[Svg]:
    """Draw each measure, one panel a setting, as a row of the paper's figures."""
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
        values = results.values(column, number, method, settings=[setting], x=x)
        if len(values):
            mean, sd = mean_sd(np.log10(np.maximum(values, 1e-6)) if column == "anonymise_seconds" else values)
            points.append((x, mean, 0.0 if math.isnan(sd) else sd))
    return Curve(method, points, *(STYLES.get(method) or (results.methods(number).index(method), False)))


def _form_panels(rows: Sequence[Row]) -> list[Svg]:
    """Draw what each form of noise costs, one panel a setting."""
    parts = []
    for column in ("ratio", "bins_feasible"):
        by_title: dict[str, list[Curve]] = {}
        for setting in dict.fromkeys(str(row["setting"]) for row in rows):
            for number, form in enumerate(beside.FORMS):
                own = [row for row in rows if (row["setting"], row["form"]) == (setting, form.name)]
                points = [(row["epsilon"], row[column], 0.0) for row in own]
                curve = Curve(f"{form.name} ({form.model})", points, number, form.model == beside.NOT_PRIVATE)
                by_title.setdefault(f"Setting {setting}", []).append(curve)
        parts += report.figure(by_title, x_title="epsilon", title=MEASURES[column], least=_LEAST.get(column))
    return parts
