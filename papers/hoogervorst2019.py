# SPDX-License-Identifier: Apache-2.0
"""Hoogervorst et al. 2019: bin packing on k-anonymous weights. Figures 3 and 4, Table 3, every figure in the text.

Measured in ``hoogervorst2019_runs``, compared with the text in ``hoogervorst2019_text``; written here.

References
----------
Hoogervorst, Zhang, Tillem, Erkin, Verwer 2019, Solving bin-packing problems under privacy preservation: Possibilities
and trade-offs. Information Sciences 500.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from papers import hoogervorst2019_runs as runs
from papers import report
from papers.hoogervorst2019_text import ALL_BINS_ABOVE, paper_points, quoted, says
from papers.report import Curve, Svg

PAGE = says.page(runs=runs)

FIGURE_3 = (runs.FLASH_UPPER, runs.UPPER, runs.FLASH_MEAN, runs.MEAN)
SAMPLED_TITLE = "The published sample beside exact probabilities, same draws"
STYLES = {
    runs.UPPER: (0, False),
    runs.MEAN: (2, False),
    runs.FLASH_UPPER: (5, True),
    runs.FLASH_MEAN: (4, True),
    runs.ROBUST: (7, True),
    runs.ROBUST_ITEMS: (4, False),
    runs.ROBUST_LARGEST: (2, False),
    runs.STOCHASTIC: (1, False),
    runs.SAMPLED: (3, True),
    runs.SEALED: (6, False),
}
"""Number of the colour, and whether dashed (where curves coincide)."""
FRONTIER = (runs.UPPER, runs.STOCHASTIC, runs.SEALED)


def reproduce(out: Path, *, quick: bool, workers: int) -> Path:
    """Measure everything and write tables, a report and a page, as :class:`report.Reproduce` says."""
    effort = runs.QUICK if quick else runs.FULL
    out.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    results = runs.Results(runs.measure_all(effort, workers=workers), effort, runs.optima_by_law(effort))
    widths = [row for s in runs.SETTINGS if s.numeral in ALL_BINS_ABOVE for row in runs.by_hierarchy(effort, s)]
    lines = quoted(results, widths)
    figure_4 = [method for method in results.methods if method not in FIGURE_3 and ", spread" not in method]
    figure_4 = [runs.UPPER, *figure_4]
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


def _note(effort: runs.Effort, quick: bool, seconds: float) -> str:
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


def _figure_sections(results: runs.Results, figure_4: Sequence[str]) -> list[Svg]:
    upper, mean = (runs.FLASH_UPPER, runs.UPPER), (runs.FLASH_MEAN, runs.MEAN)
    useful = [method for method in figure_4 if method != runs.SEALED]
    all_draws = [method for method in figure_4 if method != runs.SAMPLED]  # its few draws have another mean
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
                "(b) Feasibility, held out: every bin fits (95 % is asked)",
                "plan_feasible",
                useful,
                least=(0.85, 1),
                limit=1 - runs.RISK,
            ),
            *_row(results, "(c) Solving time, powers of ten of seconds", "solve_seconds", figure_4),
        ),
        report.section(
            SAMPLED_TITLE,
            report.paragraph(
                "The sampled model labels items that cannot be told apart, so it can choose labels that its 100 "
                "permutations happen to like. Feasibility is held out: a plan made for 95 % should reach it."
            ),
            report.html_table(results.sampled_beside_certified()),
        ),
        report.section(
            "Not in the paper: trucks against truck linkage",
            report.paragraph(
                "Going right, a thief who knows a package's weight names its truck more often. A number L beside a "
                "point: no truck takes more than one part in L of a class (spread). A sealed plan's linkage may be an "
                "estimate (linkage_kind in runs.csv)."
            ),
            *_frontier(results),
        ),
    ]


def _width_section(widths: Sequence[Mapping[str, object]]) -> Svg:
    charts, shown = [], {}
    for setting, above in ALL_BINS_ABOVE.items():
        curves = [
            Curve(
                f"first width {width:g}",
                [
                    (float(str(row["k"])), float(str(row["bins"])), 0.0)
                    for row in widths
                    if row["setting"] == setting and row["first_width"] == width
                ],
                style,
            )
            for style, width in enumerate(runs.DOUBLINGS)
        ]
        figure = report.line_chart(
            curves, label=f"bins by hierarchy, setting {setting}", x_title="k", y_title="bins on upper bounds"
        )
        charts.append(report.panel(f"Setting {setting}", figure, f"the paper: all bins for k > {above}"))
        shown.update({curve.name: curve for curve in curves})
    why = (
        "Flash depends on its hierarchy, which the paper does not publish: intervals that double from a first width. "
        f"Figure 3 above has {runs.DOUBLING}, which was not chosen by how well it agrees."
    )
    return report.section(
        "What Flash's hierarchy decides", report.paragraph(why), report.legend(shown.values()), report.panels(charts)
    )


def _row(
    results: runs.Results,
    title: str,
    column: str,
    methods: Sequence[str],
    *,
    least: tuple[float, float] | None = None,
    limit: float | None = None,
) -> list[Svg]:
    """Draw one measure over k, one panel a setting, as a row of the paper's figures."""
    charts, shown = [], {}
    for setting in runs.SETTINGS:
        curves = [_curve(results, column, setting.numeral, method) for method in methods]
        curves = [curve for curve in curves if curve.points]
        points = [point for method in methods for point in paper_points(setting.numeral, column, method)]
        figure = report.line_chart(
            curves,
            label=f"{title}, setting {setting.numeral}",
            x_title="k",
            y_title="log10 s" if column == "solve_seconds" else "",
            paper=points,
            least=least,
            limit=limit,
        )
        law = setting.law
        charts.append(
            report.panel(f"Setting {setting.numeral}", figure, f"{law.size} items, capacity {law.capacity:g}")
        )
        shown.update({curve.name: curve for curve in curves})
    quotes = any(paper_points(s.numeral, column, m) for s in runs.SETTINGS for m in methods)
    return [
        report.tag("h3", title, class_="measure"),
        report.legend(shown.values(), paper=quotes),
        report.panels(charts),
    ]


def _curve(results: runs.Results, column: str, setting: str, method: str) -> Curve:
    points = []
    for k in results.effort.ks:
        values = results.values(column, setting, method, k=k)
        if len(values):
            if column == "solve_seconds":
                values = _log10(values)
            mean, sd = runs.mean_sd(values)
            points.append((float(k), mean, 0.0 if math.isnan(sd) else sd))
    return Curve(method, points, *STYLES.get(method, (7, False)))


def _log10(seconds: runs.FloatArray) -> runs.FloatArray:
    return np.log10(np.maximum(seconds, 1e-4))


def _frontier(results: runs.Results) -> Iterator[Svg]:
    for k, spreads in results.effort.spreads.items():
        charts, shown = [], {}
        for setting in runs.SETTINGS:
            curves = [_frontier_curve(results, setting.numeral, method, k, spreads) for method in FRONTIER]
            figure = report.line_chart(
                curves,
                label=f"trucks against linkage at k = {k}, setting {setting.numeral}",
                x_title="truck linkage, mean",
                y_title="ratio of bins",
                least=(1.0, 1.0),
                from_zero=True,
            )
            charts.append(report.panel(f"Setting {setting.numeral}", figure))
            shown.update({curve.name: curve for curve in curves})
        yield report.tag("h3", f"k = {k}", class_="measure")
        yield report.legend(shown.values())
        yield report.panels(charts)


def _frontier_curve(results: runs.Results, setting: str, method: str, k: int, spreads: Sequence[int]) -> Curve:
    points, labels = [], []
    for spread in (None, *spreads):
        name = runs.spread_name(method, spread)
        if results.of(setting, name, k=k):
            labels.append("" if spread is None else str(spread))
            linkage, ratio = (runs.mean_sd(results.values(c, setting, name, k=k))[0] for c in ("linkage_mean", "ratio"))
            points.append((linkage, ratio, 0.0))
    return Curve(method, points, STYLES[method][0], False, labels)
