# SPDX-License-Identifier: Apache-2.0
"""Bhati et al. 2021: k-anonymity by utility-driven clustering. Tables 2-4, Figures 3-10, every figure in the text.

Measured in ``bhati2021_runs``, the worked example in ``bhati2021_example``, compared with the text in
``bhati2021_text``; written here.

References
----------
Bhati, Ivanchev, Bojic, Datta, Eckhoff 2021, Utility-Driven k-Anonymization of Public Transport User Data. IEEE Access
9.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from papers import bhati2021_example as example
from papers import bhati2021_runs as runs
from papers import report
from papers.bhati2021_runs import AUTO, DENSITY, FACTORS, GREEDY, GROWTH, IN_TABLE_4, OD, REFINED, RST, START, UNIT
from papers.bhati2021_text import RULE, quoted, says
from papers.hoogervorst2019_runs import in_parallel
from papers.report import Curve, Svg

PAGE = says.page()

ATTRIBUTE_NAMES = {"type": "passenger type", "board": "boarding", "alight": "alighting", "start": "start time"}
CONFIGURATIONS = tuple((m, s) for s in (runs.MAXIMUM, UNIT) for m in (GREEDY, DENSITY))
BESIDE = (DENSITY, GROWTH, REFINED)
SCENARIO_STYLES = {scenario: number for number, scenario in enumerate(FACTORS)}
METHOD_STYLES = {GREEDY: (7, False), DENSITY: (0, False), GROWTH: (1, False), REFINED: (2, False)}
QUOTED_POINTS = {
    ("type", runs.PT): [(5, 0.0), (50, 0.007)],
    ("type", AUTO): [(5, 0.31), (50, 0.91)],
    ("board", OD): [(5, 0.04)],
    ("board", AUTO): [(5, 0.06)],
    ("board", RST): [(5, 0.12)],
}
"""What the text reads off Figure 5."""
_DISTORTIONS = (*IN_TABLE_4, "total", "total_auto", "total_equal")


def reproduce(out: Path, *, quick: bool, workers: int) -> Path:
    """Measure everything and write tables, a report and a page, as :class:`report.Reproduce` says."""
    effort = runs.QUICK if quick else runs.FULL
    out.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    found = in_parallel(runs.measure, runs.jobs(effort), workers=workers, warm_up=runs.warm_up)
    results = runs.Results.of(found, effort)
    tables = tables_of(results)
    drawings: dict[str, Callable[[], list[Svg]]] = {
        "figure3": lambda: _draw_3(results),
        "figure4": lambda: _draw_4(results),
        "figure5": lambda: _draw_5(results),
        "figure6": lambda: _draw_6(results),
        "figure7": lambda: _draw_7(results),
        "figure8": lambda: _draw_limits(results, OD),
        "figure10": lambda: _draw_limits(results, RST),
        "beside": lambda: _draw_beside(results),
    }
    return report.Reproduction(
        page=PAGE,
        note=_note(results, quick, time.monotonic() - start),
        data="rides",
        lines=quoted(results),
        files={"runs": [asdict(run) for run in results.runs], **tables},
        markdown=[(PAGE.titles[name], PAGE.why[name], report.short_rows(rows)) for name, rows in tables.items()],
        sections=report.table_sections(
            PAGE, tables, lambda name, rows: [] if name == "figure6" else report.short_rows(rows), drawings
        ),
    ).write(out)


def _note(results: runs.Results, quick: bool, seconds: float) -> str:
    effort, form = results.effort, "Quick form" if quick else "Full form"
    draws = "one drawn table" if effort.draws == 1 else f"{effort.draws} drawn tables"
    return (
        f"{form}: {draws} of {effort.size:,} rides, k = {', '.join(map(str, effort.ks))}. Local search for "
        f"{effort.refine_seconds:g} s each. Means with standard deviations over draws. {RULE} Took {seconds:.0f} s."
    )


# Tables


def tables_of(results: runs.Results) -> dict[str, list[dict[str, object]]]:
    """Return everything measured as tables by name."""
    return {
        "example": example.table(),
        "table4": _weights_table(results),
        "figure3": _figure_3(results),
        "figure4": _figure_4(results),
        "figure5": _figure_5(results),
        "figure6": _figure_6(results),
        "figure7": _figure_7(results),
        "figure8": _limits_table(results, OD),
        "figure10": _limits_table(results, RST),
        "beside": _beside_table(results),
        "persons": _persons_table(results),
        "dissolved": _dissolved_table(results),
    }


def _weights_table(results: runs.Results) -> list[dict[str, object]]:
    rides = [runs.drawn(results.effort.size, draw) for draw in range(results.effort.draws)]
    rows: list[dict[str, object]] = []
    for scenario, printed in runs.TABLE_4.items():
        row: dict[str, object] = {"scenario": scenario}
        for name, value in zip(IN_TABLE_4, printed, strict=True):
            place = runs.ATTRIBUTES.index(name)
            row[f"{name}, paper"] = value
            row[f"{name}, ours"] = sum(float(one.weights(scenario)[place]) for one in rides) / len(rides)
        rows.append(row)
    return rows


def _figure_3(results: runs.Results) -> list[dict[str, object]]:
    return [
        results.row(_DISTORTIONS, k=k, method=method, scaling=scaling)
        for k in results.effort.ks
        for method, scaling in CONFIGURATIONS
    ]


def _figure_4(results: runs.Results) -> list[dict[str, object]]:
    return [
        results.row(["seconds"], size=size, k=k, method=method)
        for size in results.effort.sizes
        for k in results.effort.ks
        for method in runs.PUBLISHED
    ]


def _figure_5(results: runs.Results) -> list[dict[str, object]]:
    return [
        results.row(IN_TABLE_4, scenario=scenario, k=k, method=method)
        for scenario in FACTORS
        for k in results.effort.ks
        for method in BESIDE
    ]


def _figure_6(results: runs.Results) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for scenario in FACTORS:
        for name in IN_TABLE_4:
            shares = results.shares(scenario, DENSITY, name)
            bars = {f"{bar / runs.BINS:g}": float(share) for bar, share in enumerate(shares)}
            rows.append({"scenario": scenario, "attribute": name, **bars})
    return rows


def _figure_7(results: runs.Results) -> list[dict[str, object]]:
    columns = ("start", "stations", "type", "total_auto", "total", "total_equal")
    return [
        results.row(columns, scenario=scenario, k=k, method=method)
        for scenario in FACTORS
        for k in results.effort.ks
        for method in BESIDE
    ]


def _limits_table(results: runs.Results, scenario: str) -> list[dict[str, object]]:
    own = ("stations", "od_spread", "od_possible", "od_certain") if scenario == OD else (START, *_STARTS)
    columns = (*own, "total", "total_auto", "suppressed")
    rows = []
    for method in (DENSITY, GROWTH):
        for limit in (*results.effort.limits[scenario], math.inf):
            row = results.row(columns, method=method, scenario=scenario, k=results.effort.limit_k, limit=limit)
            rows.append({**row, "limit": "none" if math.isinf(limit) else limit})
    return rows


_STARTS = ("start_lower", "start_middle")


def _beside_table(results: runs.Results) -> list[dict[str, object]]:
    rows = []
    for k in results.effort.ks:
        theirs = results.mean("total", k=k)
        for method in (GREEDY, *BESIDE):
            row = results.row(["total", "total_equal", "seconds"], k=k, method=method)
            rows.append({**row, "gain": f"{1 - results.mean('total', k=k, method=method) / theirs:.1%}"})
    return rows


def _persons_table(results: runs.Results) -> list[dict[str, object]]:
    return [
        results.row(["total", "persons", "too_few", "one_type"], k=k, method=method)
        for k in results.effort.ks
        for method in (DENSITY, GROWTH, runs.PERSONS)
    ]


def _dissolved_table(results: runs.Results) -> list[dict[str, object]]:
    columns = ["total", "suppressed"]
    which = [{"k": k, "scenario": AUTO} for k in results.effort.ks]
    which += [{"k": results.effort.limit_k, "scenario": scenario} for scenario in runs.LIMITED]
    return [results.row(columns, method=method, **one) for one in which for method in (DENSITY, runs.DISSOLVED)]


def _points(
    results: runs.Results, column: str, xs: Sequence[float], at: Callable[[float], dict[str, object]]
) -> list[tuple[float, float, float]]:
    """Return mean and standard deviation of a measure at each place."""
    found = []
    for x in xs:
        row = results.row([column], **at(x))
        mean, sd = (float(str(row[key])) for key in (column, f"{column}_sd"))
        found.append((x, mean, 0.0 if math.isnan(sd) else sd))
    return found


def _by_k(results: runs.Results, column: str, name: str, style: int, dashed: bool = False, **which: object) -> Curve:
    ks = [float(k) for k in results.effort.ks]
    return Curve(name, _points(results, column, ks, lambda k: {"k": int(k), **which}), style, dashed)


def _panel(
    title: str,
    curves: Sequence[Curve],
    x_title: str,
    *,
    y_title: str = "",
    paper: Sequence[tuple[float, float]] = (),
    caption: str = "",
    limit: float | None = None,
) -> Svg:
    figure = report.line_chart(
        curves,
        label=f"{title} against {x_title}",
        x_title=x_title,
        y_title=y_title,
        paper=paper,
        least=(0.0, 0.0),
        limit=limit,
    )
    return report.panel(title, figure, caption)


def _draw_3(results: runs.Results) -> list[Svg]:
    charts = []
    for column in (*IN_TABLE_4, "total"):
        curves = [
            _by_k(
                results, column, f"{m}, {s}", SCENARIO_STYLES[OD] if m == DENSITY else 1, s != UNIT, method=m, scaling=s
            )
            for m, s in CONFIGURATIONS
        ]
        charts.append(_panel(ATTRIBUTE_NAMES.get(column, "total"), curves, "k"))
    return [report.legend(curves), report.panels(charts)]


def _draw_4(results: runs.Results) -> list[Svg]:
    sizes = [float(size) for size in results.effort.sizes]
    charts = []
    for k in results.effort.ks:
        curves = [
            Curve(
                method,
                _points(results, "seconds", sizes, lambda n, k=k, m=method: {"size": int(n), "k": k, "method": m}),  # type: ignore[misc]
                *METHOD_STYLES[method],
            )
            for method in runs.PUBLISHED
        ]
        charts.append(_panel(f"k = {k}", curves, "records", y_title="CPU s"))
    return [report.legend(curves), report.panels(charts)]


def _draw_5(results: runs.Results) -> list[Svg]:
    parts = []
    for method in BESIDE:
        charts = []
        for scenario in FACTORS:
            curves = [
                _by_k(results, name, ATTRIBUTE_NAMES[name], number, scenario=scenario, method=method)
                for number, name in enumerate(IN_TABLE_4)
            ]
            paper = [point for name in IN_TABLE_4 for point in QUOTED_POINTS.get((name, scenario), [])]
            charts.append(_panel(scenario, curves, "k", paper=paper if method == DENSITY else ()))
        title = f"{method}, as published" if method == DENSITY else f"beside it: {method}"
        parts += [report.tag("h3", title, class_="measure"), report.legend(curves, paper=method == DENSITY)]
        parts.append(report.panels(charts))
    return parts


def _draw_6(results: runs.Results) -> list[Svg]:
    parts = []
    for name in IN_TABLE_4:
        charts = []
        for scenario in FACTORS:
            curves = [
                Curve(method, _bars(results, scenario, method, name), *METHOD_STYLES[method])
                for method in (DENSITY, GROWTH)
            ]
            charts.append(_panel(scenario, curves, "distortion", y_title="share"))
        parts += [
            report.tag("h3", ATTRIBUTE_NAMES[name], class_="measure"),
            report.legend(curves),
            report.panels(charts),
        ]
    return parts


def _bars(results: runs.Results, scenario: str, method: str, name: str) -> list[tuple[float, float, float]]:
    shares = results.shares(scenario, method, name)
    return [((bar + 0.5) / runs.BINS, float(share), 0.0) for bar, share in enumerate(shares)]


def _draw_7(results: runs.Results) -> list[Svg]:
    titles = {
        "start": "start time",
        "stations": "stations, mean of both",
        "type": "passenger type",
        "total_auto": "total, automatic importance",
        "total": "total, own importance",
    }
    charts = []
    for column, title in titles.items():
        curves = [
            _by_k(results, column, scenario, style, scenario=scenario) for scenario, style in SCENARIO_STYLES.items()
        ]
        charts.append(_panel(title, curves, "k"))
    return [report.legend(curves), report.panels(charts)]


def _draw_limits(results: runs.Results, scenario: str) -> list[Svg]:
    measures = {
        OD: {"stations": "stations", "od_spread": "top 20 pairs, spread", "od_certain": "top 20 pairs, certain"},
        RST: {
            START: "start time",
            "start_lower": "mean start, lower ends, s",
            "start_middle": "mean start, middles, s",
        },
    }[scenario] | {"total": "total, own importance", "suppressed": "share suppressed"}
    charts = []
    for column, title in measures.items():
        curves = [curve for method in (DENSITY, GROWTH) for curve in _limit_curves(results, column, scenario, method)]
        charts.append(_panel(title, curves, "limit, hops" if scenario == OD else "limit, s"))
    return [report.legend(curves), report.panels(charts)]


def _limit_curves(results: runs.Results, column: str, scenario: str, method: str) -> list[Curve]:
    """Draw a measure with limits, and without any as a dashed line."""
    which: dict[str, object] = {"k": results.effort.limit_k, "scenario": scenario, "method": method}
    limits = list(results.effort.limits[scenario])
    style = METHOD_STYLES[method][0]
    without = _points(results, column, [limits[0], limits[-1]], lambda _: which)
    return [
        Curve(f"{method}, with limits", _points(results, column, limits, lambda at: {**which, "limit": at}), style),
        Curve(f"{method}, without", without, style, True),
    ]


def _draw_beside(results: runs.Results) -> list[Svg]:
    charts = []
    for scenario in FACTORS:
        methods = (GREEDY, *BESIDE) if scenario == AUTO else BESIDE
        curves = [
            _by_k(results, "total", method, *METHOD_STYLES[method], scenario=scenario, method=method)
            for method in methods
        ]
        charts.append(_panel(scenario, curves, "k", caption="total distortion under its own importance"))
    return [report.legend(curves), report.panels(charts)]
