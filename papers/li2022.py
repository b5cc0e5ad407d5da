# SPDX-License-Identifier: Apache-2.0
"""Li, Erkin, Lagendijk 2022: bin packing with differential privacy. Tables 1-2, Figures 5-8, every figure in the text.

Measured in ``li2022_runs`` (as published) and ``li2022_beside`` (sound forms, attacks, plan-level risks, several
quantities), compared with the text in ``li2022_text``; written here.

References
----------
Li, Erkin, Lagendijk 2022, Privacy-Preserving Bin-Packing With Differential Privacy. IEEE Open Journal of Signal
Processing 3.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from papers import li2022_beside as beside
from papers import li2022_runs as runs
from papers import report
from papers.hoogervorst2019_runs import in_parallel, mean_sd
from papers.li2022_text import quoted, says
from papers.report import Curve, Row, Svg

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
_OF_LATTICE = ("kept", "ratio_all")


def reproduce(out: Path, *, quick: bool, workers: int) -> Path:
    """Measure everything and write tables, a report and a page, as :class:`report.Reproduce` says."""
    effort = runs.QUICK if quick else runs.FULL
    out.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    results, tables = measure_all(effort, workers=workers)
    figures = {figure: results.summary(figure) for figure in runs.FIGURES}
    names = {figure: f"Figure {figure}: {name}" for figure, name in runs.METHODS.items()}
    drawn = [
        report.section(
            title,
            report.paragraph(PAGE.explained[str(figure)]),
            *_stated_table(results, figure),
            *_rows_of_panels(results, figure),
        )
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


Job = runs.Job | beside.FormJob | beside.Part
Tables = dict[str, list[dict[str, object]]]


def measure(job: Job) -> list[Any]:
    """Do one job of any kind."""
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


def _stated_table(results: runs.Results, figure: int) -> list[Svg]:
    """Write epsilon and delta at every k of algorithm 1, for samples of 50, or of 200 beyond the usual k."""
    if figure != runs.LATTICE:
        return []
    hard = [k for k in results.effort.hard_ks if k not in results.effort.ks]
    lines = [(k, 50) for k in results.effort.ks] + [(k, 200) for k in hard]
    rows = [{"k": k, "|D|": size, **runs.stated(k, size)} for k, size in lines]
    return [report.html_table(_rounded(rows))]


def _rows_of_panels(results: runs.Results, figure: int) -> list[Svg]:
    shown = {m: title for m, title in MEASURES.items() if figure == runs.LATTICE or m not in _OF_LATTICE}
    return [part for column, title in shown.items() for part in _row(results, figure, column, title)]


_LEAST = {"anonymise_seconds": None, "ratio": (1.0, 1.0), "ratio_all": (1.0, 1.0)}


def _row(results: runs.Results, figure: int, column: str, title: str) -> list[Svg]:
    """Draw one measure, one panel a setting, as a row of the paper's figures."""
    across = "epsilon" if figure in (runs.CLUSTERS, runs.LAPLACE) else "k"
    same = column in ("kept", "anonymise_seconds")  # nothing that planning changes
    charts, shown = [], {}
    for setting in runs.settings_of(figure):
        methods = results.methods(figure)[:1] if same else results.methods(figure)
        curves = [_curve(results, figure, column, setting.numeral, method) for method in methods]
        figure_ = report.line_chart(
            [curve for curve in curves if curve.points],
            label=f"{title}, setting {setting.numeral}",
            x_title=across,
            y_title="log10 s" if column == "anonymise_seconds" else "",
            least=_LEAST.get(column, (0.0, 1.0)),
        )
        law = setting.law
        caption = f"{law.size} packages, capacity {law.capacity:g}"
        charts.append(report.panel(f"Setting {setting.numeral}", figure_, caption))
        shown.update({curve.name: curve for curve in curves})
    named = [] if same else [report.legend(shown.values())]
    return [report.tag("h3", title, class_="measure"), *named, report.panels(charts)]


def _curve(results: runs.Results, figure: int, column: str, setting: str, method: str) -> Curve:
    points = []
    for x in results.xs(figure, setting):
        values = results.values(column, figure, method, settings=[setting], x=x)
        if len(values):
            mean, sd = mean_sd(np.log10(np.maximum(values, 1e-6)) if column == "anonymise_seconds" else values)
            points.append((x, mean, 0.0 if math.isnan(sd) else sd))
    style = STYLES.get(method) or (results.methods(figure).index(method), False)
    return Curve(method, points, *style)


def _form_panels(rows: Sequence[Row]) -> list[Svg]:
    """Draw what each form of noise costs, one panel a setting."""
    parts = []
    for column in ("ratio", "bins_feasible"):
        charts = []
        for setting in dict.fromkeys(str(row["setting"]) for row in rows):
            curves = [_form_curve(rows, setting, number, column) for number in range(len(beside.FORMS))]
            label = f"{MEASURES[column]}, setting {setting}"
            figure = report.line_chart(curves, label=label, x_title="epsilon", y_title="", least=_LEAST.get(column))
            charts.append(report.panel(f"Setting {setting}", figure))
        parts += [report.tag("h3", MEASURES[column], class_="measure"), report.legend(curves), report.panels(charts)]
    return parts


def _form_curve(rows: Sequence[Row], setting: str, number: int, column: str) -> Curve:
    form = beside.FORMS[number]
    own = [row for row in rows if (row["setting"], row["form"]) == (setting, form.name)]
    points = [(float(str(row["epsilon"])), float(str(row[column])), 0.0) for row in own]
    return Curve(f"{form.name} ({form.model})", points, number, form.model == beside.NOT_PRIVATE)
