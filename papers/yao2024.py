# SPDX-License-Identifier: Apache-2.0
"""Yao et al. 2024: local differential privacy for carriers. Figures 6 to 9, and what sections 3 to 5 state.

Measured in ``yao2024_runs``, compared with the text in ``yao2024_text``; written here. Every method is shown at the
budget that it declares and, beside it, with reports that all give away the same.

References
----------
Yao, Tan, Yi, Fu, Zhang, Tan, Xie, She, Yang, Wu, Ye, Yu 2024, Sensitive data privacy protection of carrier in
intelligent logistics system. Symmetry 16(1), 68.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path

from dunnage.devices.task import Tier
from papers import report
from papers import yao2024_runs as runs
from papers.fioretto2018 import short
from papers.hoogervorst2019_runs import in_parallel
from papers.report import Curve, Row, Svg
from papers.yao2024_runs import (
    CENSUS,
    CENSUS_DIMENSIONS,
    DECLARED,
    DIMENSIONS,
    DUCHI,
    EPSILON,
    EQUAL,
    FLEET,
    GAUSS,
    GRID_EPSILONS,
    GRID_LEVELS,
    GRIDS,
    HARMONY,
    L_LDP,
    L_LDP_WEIGHED,
    LT_LDP,
    NUMBER_METHODS,
    NUMBERS,
    OURS,
    OURS_ALIKE,
    OURS_CLEAR,
    PAPERS_SHARES,
    PATHS,
    PLACES,
    PM,
    QJLP,
    QLP,
    RAISED,
    SHARE_METHODS,
    STEPS,
    TERMS,
    UNIFORM,
    Results,
)
from papers.yao2024_text import CHECKED, findings, number_gains, quoted, says, share_gains

PAGE = says.page()

STYLES = {
    HARMONY: (7, False),
    DUCHI: (4, False),
    PM: (3, False),
    L_LDP: (1, False),
    L_LDP_WEIGHED: (1, True),
    OURS: (0, False),
    OURS_ALIKE: (0, True),
    QLP: (4, True),
    QJLP: (3, False),
    LT_LDP: (1, False),
    OURS_CLEAR: (2, False),
}
"""Number of the colour, and whether dashed."""
TERM_NAMES = {
    DECLARED: "as declared",
    EQUAL: "equal true loss",
    RAISED: "equal true loss, as much as e-L_LDP gives away",
}
_MEASURES = {"mape": "MAPE", "rmse": "RMSE", "rmse_projected": "RMSE after projection"}


def reproduce(out: Path, *, quick: bool, workers: int) -> Path:
    """Measure everything and write tables, a report and a page, as :class:`report.Reproduce` says."""
    effort = runs.QUICK if quick else runs.FULL
    out.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    found = in_parallel(runs.measure, runs.jobs(effort), workers=workers, warm_up=runs.warm_up)
    results = Results.of(found, effort)
    tables = tables_of(results)
    drawings = {
        "figure6": lambda: _draw_6(results),
        "figure7": lambda: _draw_7(results),
        "figure8": lambda: _draw_8(results),
        "figure9": lambda: _draw_9(results),
    }
    return report.Reproduction(
        page=PAGE,
        note=_note(results, quick, time.monotonic() - start),
        data="carriers",
        lines=quoted(results),
        findings=findings(results),
        files={
            "runs": [asdict(run) for run in results.runs],
            **{name: report.intervals_named(rows) for name, rows in tables.items()},
        },
        markdown=[(PAGE.titles[name], PAGE.why[name], short(rows)) for name, rows in tables.items()],
        sections=report.table_sections(PAGE, tables, lambda name, rows: short(_across(name, rows)), drawings),
    ).write(out)


def _note(results: Results, quick: bool, seconds: float) -> str:
    effort, form = results.effort, "Quick form" if quick else "Full form"
    return (
        f"{form}: {effort.number_runs} repetitions of each method on numbers, {effort.runs} on places and paths "
        f"({effort.long_runs} with three steps); means with 95 % intervals (Student's). Every method at the budget it "
        "declares, and at equal true loss. Took "
        f"{seconds:.0f} s."
    )


def true_loss(method: str, terms: str, kind: str, size: int) -> str:
    """Say what one report of a method really gives away."""
    own = "ε" if terms == DECLARED and method in runs.ONE_BUDGET else "ε_i"
    if kind == NUMBERS:
        times = size if terms == RAISED or (terms == DECLARED and method == L_LDP) else 1
        return f"{times} {own}" if times > 1 else own
    times = runs.place_factor(size, method, kind) if terms == DECLARED else 1
    within = f"{times} {own}" if times > 1 else own
    return within if method == OURS else f"{within} in an area, ∞ across"


# Tables


def tables_of(results: Results) -> dict[str, list[dict[str, object]]]:
    """Return everything measured as tables by name."""
    return {
        "losses": _losses(),
        "thresholds": _thresholds(),
        "figure6": _figure_6(results),
        "equal-numbers": _equal_numbers(results),
        "figure7": _figure_7(results),
        "figure8": _shares(results, PATHS),
        "figure9": _shares(results, PLACES),
        "equal-shares": _equal_shares(results),
        "grids": _grids(results),
    }


def _losses() -> list[dict[str, object]]:
    found = runs.exact_losses(Fraction(1, 2))
    return [
        {"report": name, "declared": 0.5, "true loss": "no bound" if loss is None else float(loss), "found by": way}
        for name, way, loss in found
    ]


def _thresholds() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for epsilon in CHECKED:
        printed = runs.printed_thresholds(float(epsilon))
        rows.append(
            {
                "epsilon": float(epsilon),
                **{f"threshold, {where}": value for where, value in printed.items()},
                "density integrates to": runs.density_integral(float(epsilon)),
                "corrected to": runs.density_integral(float(epsilon), corrected=True),
                "Algorithm 1: mean of t = 1": runs.printed_slope(float(epsilon)),
                "exact discrete form": runs.literal_slope(epsilon),
                "worst variance": runs.piecewise_variance(float(epsilon), 1.0),
            }
        )
    return rows


def _number_row(results: Results, method: str, terms: str, data: str, epsilon: float, size: int) -> dict[str, object]:
    mean, half = results.interval("mse", method, epsilon, size, kind=NUMBERS, data=data, terms=terms)
    loss = true_loss(method, terms, NUMBERS, size)
    return {"terms": TERM_NAMES[terms], "method": method, "true loss": loss, "MSE": mean, "MSE_sd": half}


def _figure_6(results: Results) -> list[dict[str, object]]:
    return [
        {"data": data, "d": size, **_number_row(results, method, terms, data, EPSILON, size)}
        for data in (GAUSS, UNIFORM)
        for terms in TERMS
        for size in DIMENSIONS
        for method in NUMBER_METHODS[terms]
    ]


def _figure_7(results: Results) -> list[dict[str, object]]:
    return [
        {"epsilon": epsilon, **_number_row(results, method, terms, CENSUS, epsilon, CENSUS_DIMENSIONS)}
        for terms in NUMBER_METHODS
        for epsilon in results.effort.epsilons
        for method in NUMBER_METHODS[terms]
    ]


def _equal_numbers(results: Results) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for data in (GAUSS, UNIFORM):
        for terms in (EQUAL, RAISED):
            gains = number_gains(results, data, terms)
            for size, gain in zip(DIMENSIONS, gains, strict=True):
                row: dict[str, object] = {"data": data, "d": size}
                row |= {"a report gives away": true_loss(OURS, terms, NUMBERS, size), "e-L_LDP by ours": gain}
                own = runs.budgets(EPSILON, size, L_LDP, terms)
                spent = [runs.spent(budget, size, L_LDP, terms) for budget in own]
                row["expected, e-L_LDP"] = runs.expected_mse(runs.numbers(data, size), spent)
                for method in (L_LDP, L_LDP_WEIGHED, OURS):
                    mean, half = results.interval("mse", method, EPSILON, size, kind=NUMBERS, data=data, terms=terms)
                    row |= {method: mean, f"{method}_sd": half}
                rows.append(row)
    return rows


def _shares(results: Results, kind: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for steps in STEPS:
        for terms in TERMS:
            for epsilon in results.effort.epsilons:
                for method in SHARE_METHODS:
                    row: dict[str, object] = {"steps": steps, "terms": TERM_NAMES[terms], "epsilon": epsilon}
                    row |= {"method": method, "true loss": true_loss(method, terms, kind, steps)}
                    for column in ("mape", "rmse", "mape_projected", "rmse_projected"):
                        mean, half = results.interval(
                            column, method, epsilon, steps, kind=kind, data=FLEET, terms=terms
                        )
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
            hidden = runs.share_mechanism(OURS, runs.grid(levels), 1, [one])
            judged = hidden.noise_verdict(runs.NUM_VEHICLES)
            row: dict[str, object] = {"cells": 4 ** (levels - 1), "epsilon": epsilon}
            row |= {"noise": "yes" if judged.is_noise else "no", "predicted, ours": judged.predicted_sd}
            row["all alike"] = runs.nothing(GRIDS, levels, results.effort.runs)["rmse"]
            for method, terms in ways:
                name = method + (f", {TERM_NAMES[terms]}" if method == LT_LDP else "")
                for suffix, column in _FORMS:
                    mean, half = results.interval(column, method, epsilon, levels, kind=GRIDS, data=FLEET, terms=terms)
                    row |= {f"{name}{suffix}": mean, f"{name}{suffix}_sd": half}
            rows.append(row)
    return rows


def _across(name: str, rows: Sequence[Row]) -> Sequence[Row]:
    """Put what is drawn across a figure beside each other, one measure a line."""
    shares = "epsilon", ("MAPE", "RMSE", "RMSE, projected")
    spread: dict[str, tuple[str, tuple[str, ...]]] = {"figure8": shares, "figure9": shares}
    spread |= {"figure6": ("d", ("MSE",)), "figure7": ("epsilon", ("MSE",))}
    if name not in spread:
        return rows
    across, measures = spread[name]
    found: dict[tuple[object, ...], dict[str, object]] = {}
    for row in rows:
        for measure in measures:
            kept = {key: row[key] for key in ("data", "steps", "terms", "method") if key in row}
            kept |= {"true loss": row["true loss"]} if across == "epsilon" else {}
            line = found.setdefault((*kept.values(), measure), {**kept, "measure": measure})
            label = f"{across} {row[across]:g}"
            line |= {label: row[measure], f"{label}_sd": row[f"{measure}_sd"]}
    return list(found.values())


def _draw_6(results: Results) -> list[Svg]:
    parts = [_legend(NUMBERS, (DECLARED, EQUAL), "d")]
    for data in (GAUSS, UNIFORM):
        charts = []
        for terms in TERMS:
            curves = [
                _curve(method, [(size, *_mse(results, method, terms, data, EPSILON, size)) for size in DIMENSIONS])
                for method in NUMBER_METHODS[terms]
            ]
            charts.append(_panel(f"{data.upper()}, {TERM_NAMES[terms]}", curves, "attributes (d)", "MSE"))
        parts.append(report.panels(charts, wide=True))
    return parts


def _mse(results: Results, method: str, terms: str, data: str, epsilon: float, size: int) -> tuple[float, float]:
    return results.interval("mse", method, epsilon, size, kind=NUMBERS, data=data, terms=terms)


def _draw_7(results: Results) -> list[Svg]:
    charts = []
    for terms in TERMS:
        curves = [
            _curve(
                method,
                [(e, *_mse(results, method, terms, CENSUS, e, CENSUS_DIMENSIONS)) for e in results.effort.epsilons],
            )
            for method in NUMBER_METHODS[terms]
        ]
        charts.append(_panel(f"five skewed numbers, {TERM_NAMES[terms]}", curves, "epsilon", "MSE"))
    return [_legend(NUMBERS, (DECLARED, EQUAL), str(CENSUS_DIMENSIONS)), report.panels(charts, wide=True)]


def _draw_8(results: Results) -> list[Svg]:
    return _draw_shares(results, PATHS)


def _draw_9(results: Results) -> list[Svg]:
    return _draw_shares(results, PLACES)


def _draw_shares(results: Results, kind: str) -> list[Svg]:
    parts = []
    for steps in reversed(STEPS):
        what = f"paths of {steps}" if kind == PATHS else f"places, QJLP from paths of {steps}"
        parts += [report.tag("h3", what, class_="measure"), _legend(kind, TERMS, str(steps))]
        limits = runs.nothing(kind, steps, results.effort.long_runs)
        for column, title in _MEASURES.items():
            charts = []
            for terms in TERMS:
                # QLP last and dashed: at equal true loss it lies on e-LT_LDP.
                ordered = sorted(SHARE_METHODS, key=lambda method: method == QLP)
                curves = [_share_curve(results, column, method, kind, steps, terms) for method in ordered]
                name = f"{title}, {TERM_NAMES[terms]}"
                charts.append(_panel(name, curves, "epsilon", title.split(" ")[0], limit=limits[column]))
            parts.append(report.panels(charts, wide=True))
    return parts


def _share_curve(results: Results, column: str, method: str, kind: str, steps: int, terms: str) -> Curve:
    points = [
        (e, *results.interval(column, method, e, steps, kind=kind, data=FLEET, terms=terms))
        for e in results.effort.epsilons
    ]
    return _curve(method, points)


def _curve(method: str, points: Sequence[tuple[float, float, float]]) -> Curve:
    return Curve(method, points, *STYLES[method])


def _panel(title: str, curves: Sequence[Curve], x_title: str, y_title: str, limit: float | None = None) -> Svg:
    figure = report.log_chart(
        curves, label=f"{title}: {y_title} against {x_title}", x_title=x_title, y_title=y_title, limit=limit
    )
    return report.panel(title, figure)


def _legend(kind: str, terms: Sequence[str], size: str) -> Svg:
    """Name the colours, each with what a report really gives away on the left and on the right."""
    methods = dict.fromkeys(
        method for one in terms for method in (NUMBER_METHODS[one] if kind == NUMBERS else SHARE_METHODS)
    )
    curves = []
    for method in methods:
        told = [_told(method, one, kind, size) for one in terms if kind != NUMBERS or method in NUMBER_METHODS[one]]
        name = f"{method} (true loss {', then '.join(dict.fromkeys(told))})"
        curves.append(Curve(name, [], *STYLES[method]))
    return report.legend(curves, limit="" if kind == NUMBERS else "a table that says nothing")


def _told(method: str, terms: str, kind: str, size: str) -> str:
    if size == "d":  # along a curve of Figure 6 it changes
        return true_loss(method, terms, kind, 2).replace("2", "d")
    return true_loss(method, terms, kind, int(size))
