# SPDX-License-Identifier: Apache-2.0
"""Fioretto, Lee, Van Hentenryck 2018: private trip counts under constraints, and fleets. Figure 5, Tables 1 and 2.

Counts are measured in ``fioretto2018_runs``, fleets in ``fioretto2018_fleets``; both are compared with the text in
``fioretto2018_text``, and written here.

References
----------
Fioretto, Lee, Van Hentenryck 2018, Constrained-based differential privacy for mobility services. AAMAS.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from papers import fioretto2018_fleets as fleeting
from papers import fioretto2018_runs as runs
from papers import report
from papers.fioretto2018_runs import (
    ABLATIONS,
    CELLS,
    CONSTRAINED,
    CONTRACTION,
    DAYS,
    EPSILONS,
    FLOOR,
    HIERARCHICAL,
    IN_TABLE_2,
    LAPLACE,
    MARGINS,
    NEGATIVE,
    NOTHING,
    PAPERS_OWN,
    PRESETS,
    PUBLISHED,
    READINGS,
    SOUND,
    SUM_COLUMNS,
    WEEKDAY,
    WHOLE_DAY,
)
from papers.fioretto2018_text import (
    DAY_TRIPS,
    FACTOR,
    FLEET_FACTOR,
    H5_TRIPS,
    LAPLACE_TRIPS,
    SIGMAS,
    TABLE_2,
    findings,
    fleet_findings,
    quoted,
    quoted_fleets,
    says,
)
from papers.hoogervorst2019_runs import in_parallel
from papers.report import Curve, Row, Svg

PAGE = says.page(FACTOR=FACTOR, FLEET_FACTOR=FLEET_FACTOR, SIGMAS=SIGMAS, fleeting=fleeting)

METHOD_STYLES = {
    LAPLACE: (7, False),
    "H3": (4, True),
    "H4": (3, True),
    "H5": (1, True),
    "O3": (5, False),
    "O4": (6, False),
    "O5": (0, False),
    CELLS: (2, False),
    MARGINS: (2, True),
}
"""Number of the colour, and whether dashed."""
FLEET_STYLES = {**METHOD_STYLES, fleeting.THRESHOLDED: (7, True)}
SHOWN = (*PAPERS_OWN, *PRESETS)
VIEWED = (NOTHING, LAPLACE, *CONSTRAINED, *PRESETS)  # what is compared cell by cell and sum by sum: sound forms


def reproduce(out: Path, *, quick: bool, workers: int) -> Path:
    """Measure everything and write tables, a report and a page, as :class:`report.Reproduce` says."""
    effort = runs.QUICK if quick else runs.FULL
    out.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    found = in_parallel(runs.measure, runs.jobs(effort), workers=workers, warm_up=runs.warm_up)
    results = runs.Results.of(found, effort)
    fleets = _fleets(quick, workers)
    tables = tables_of(results) | fleeting.tables_of(fleets)
    drawings = {
        "figure5": lambda: _draw_5(results),
        "sums": lambda: _draw_sums(results),
        "fleets": lambda: _draw_fleets(fleets),
    }
    return report.Reproduction(
        page=PAGE,
        note=_note(results, quick, time.monotonic() - start),
        data="trips",
        lines=[*quoted(results), *quoted_fleets(fleets)],
        findings=[*findings(results), *fleet_findings(fleets)],
        files={
            "runs": [asdict(run) for run in results.runs],
            **{name: report.intervals_named(rows) for name, rows in tables.items()},
            "fleet-runs": [asdict(run) for run in fleets.runs],
        },
        markdown=[(PAGE.titles[name], PAGE.why[name], short(rows)) for name, rows in tables.items()],
        sections=report.table_sections(
            PAGE, tables, lambda name, rows: short(_across(rows) if name == "figure5" else rows), drawings
        ),
    ).write(out)


def _fleets(quick: bool, workers: int) -> fleeting.Fleets:
    effort = fleeting.QUICK if quick else fleeting.FULL
    found = in_parallel(fleeting.measure, fleeting.jobs(effort), workers=workers, warm_up=fleeting.warm_up)
    return fleeting.Fleets.of(found, effort)


def _note(results: runs.Results, quick: bool, seconds: float) -> str:
    effort, form = results.effort, "Quick form" if quick else "Full form"
    return (
        f"{form}: {effort.runs} releases of each mechanism, epsilon and day; means with 95 % intervals (Student's) "
        f"over the noise. Generated trips, the same for all: {effort.draws} further generated "
        f"{'day stands' if effort.draws == 1 else 'days stand'} beside them. Took {seconds:.0f} s."
    )


# Tables


def tables_of(results: runs.Results) -> dict[str, list[dict[str, object]]]:
    """Return everything measured as tables by name."""
    return {
        "created": _created(results),
        "figure5": _figure_5(results),
        "table2": _table_2(results),
        "bounds": _bounds(),
        "readings": _readings(results),
        "cells": _by_cells(results),
        "sums": _by_sums(results),
        "draws": _draws(results),
        "projection": _checks(results, CONTRACTION),
        "negative": _checks(results, NEGATIVE),
        "seconds": _seconds(results),
    }


def _created(results: runs.Results) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    cases = [(WHOLE_DAY, 1.0, DAY_TRIPS), *((WEEKDAY, e, LAPLACE_TRIPS.get(e, math.nan)) for e in EPSILONS)]
    for day, epsilon, told in cases:
        for method in (LAPLACE, FLOOR):
            own = runs.trips(day)
            row: dict[str, object] = {"trips of": _span(day), "epsilon": epsilon, "mechanism": method, "paper": told}
            row |= {"true": own.counted.num_trips, "expected": runs.expected_trips(own, epsilon, method)}
            for form in (PUBLISHED, SOUND):
                found = results.row(["trips"], method, epsilon, day, form=form)
                row |= {form: found["trips"], f"{form}_sd": found["trips_sd"]}
            rows.append(row)
    others = [(WHOLE_DAY, 1.0, "O5"), *((WEEKDAY, e, m) for e in EPSILONS for m in ("H5", "O5", *PRESETS))]
    for day, epsilon, method in others:
        told = H5_TRIPS.get(epsilon, math.nan) if method == "H5" else math.nan
        row = {"trips of": _span(day), "epsilon": epsilon, "mechanism": method, "paper": told}
        row |= {"true": runs.trips(day).counted.num_trips, "expected": math.nan}
        for form in (PUBLISHED, SOUND):
            measured = form == SOUND or (method not in PRESETS and day != WHOLE_DAY)
            found = results.row(["trips"], method, epsilon, day, form=form) if measured else {}
            row |= {form: found.get("trips", math.nan), f"{form}_sd": found.get("trips_sd", math.nan)}
        rows.append(row)
    return rows


def _span(day: str) -> str:
    return "the day" if day == WHOLE_DAY else "8 to 10 am"


def _figure_5(results: runs.Results) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for day in DAYS:
        for form in (PUBLISHED, SOUND):
            for method in (NOTHING, FLOOR, *PAPERS_OWN, *(PRESETS if form == SOUND else ())):
                for epsilon in EPSILONS:
                    measured = results.row(("rmse", "mae"), method, epsilon, day, form=form)
                    rows.append({"day": day, "form": form, "mechanism": method, "epsilon": epsilon, **measured})
    return rows


def _table_2(results: runs.Results) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for day in DAYS:
        for method, printed in TABLE_2.items():
            row: dict[str, object] = {"day": day, "mechanism": method}
            for epsilon, told in zip(IN_TABLE_2, printed[day], strict=True):
                row[f"paper, {epsilon:g}"] = told
                for form in (PUBLISHED, SOUND):
                    found = results.row(["rmse"], method, epsilon, day, form=form)
                    row |= {f"{form}, {epsilon:g}": found["rmse"], f"{form}, {epsilon:g}_sd": found["rmse_sd"]}
            rows.append(row)
        own = results.mean("rmse", NOTHING, 1.0, day)
        alike = {f"{form}, {epsilon:g}" for form in (PUBLISHED, SOUND) for epsilon in IN_TABLE_2}
        rows.append({key: own if key in alike else math.nan for key in rows[-1]})
        rows[-1] |= {"day": day, "mechanism": "publishing nothing"}
    return rows


def _bounds() -> list[dict[str, object]]:
    own, rows = runs.trips(WEEKDAY), list[dict[str, object]]()
    for method in ("O5", *ABLATIONS):
        sizes = runs.num_answers(own, method)
        row: dict[str, object] = {"mechanism": method, "answers": " + ".join(f"{size:,}" for size in sizes)}
        for place, epsilon in enumerate(IN_TABLE_2):
            row[f"at most, {epsilon:g}"] = runs.largest_rmse(own, method, epsilon)
            row[f"paper, {epsilon:g}"] = max(TABLE_2[method][day][place] for day in DAYS)
        above = [
            f"{epsilon:g}"
            for epsilon in IN_TABLE_2
            if float(str(row[f"paper, {epsilon:g}"])) > float(str(row[f"at most, {epsilon:g}"])) + 0.5
        ]
        rows.append({**row, "impossible at epsilon": ", ".join(above) or "none"})
    return rows


def _readings(results: runs.Results) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for method in ("H5", *READINGS):
        for place, epsilon in enumerate(EPSILONS):
            found = results.row(("rmse", "mae", "trips"), method, epsilon, WEEKDAY, form=PUBLISHED)
            told = dict(zip(IN_TABLE_2, TABLE_2["H5"][WEEKDAY], strict=True)).get(EPSILONS[place], math.nan)
            paper = {"paper, rmse": told, "paper, trips": H5_TRIPS.get(epsilon, math.nan)}
            rows.append({"mechanism": method, "epsilon": epsilon, **found, **paper})
    return rows


def _by_cells(results: runs.Results) -> list[dict[str, object]]:
    columns = {
        "RMSE, all": "rmse",
        "MAE, all": "mae",
        "RMSE, with trips": "rmse_full",
        "MAE, with trips": "mae_full",
        "RMSE, empty": "rmse_empty",
        "MAE, empty": "mae_empty",
        "cells with trips": "cells",
    }
    return _viewed(results, columns)


def _by_sums(results: runs.Results) -> list[dict[str, object]]:
    return _viewed(results, SUM_COLUMNS)


def _viewed(results: runs.Results, columns: Mapping[str, str]) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for epsilon in EPSILONS:
        for method in VIEWED:
            found = results.row(columns.values(), method, epsilon, WEEKDAY, form=SOUND)
            row: dict[str, object] = {"epsilon": epsilon, "mechanism": method}
            for name, column in columns.items():
                row |= {name: found[column], f"{name}_sd": found[f"{column}_sd"]}
            rows.append(row)
    return rows


def _draws(results: runs.Results) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for epsilon in IN_TABLE_2:
        for draw in range(results.effort.draws + 1):
            row: dict[str, object] = {"epsilon": epsilon, "generated day": draw}
            for method in (NOTHING, *runs.ON_DRAWS):
                row[method] = results.mean("rmse", method, epsilon, form=SOUND, draw=draw)
            rows.append(row)
    return rows


def _checks(results: runs.Results, check: str) -> list[dict[str, object]]:
    names = ("largest", "mean") if check == CONTRACTION else ("negative counts", "their mean")
    return [
        {"day": one.day, "mechanism": one.method, "epsilon": one.epsilon, names[0]: one.number, names[1]: one.mean}
        for one in results.checked(check)
    ]


def _seconds(results: runs.Results) -> list[dict[str, object]]:
    told = {LAPLACE: "9.9 to 52.8 s", "H3": "30.1 to 543 s", "O3": "7.8 to 15.4 s"}
    told |= dict.fromkeys(HIERARCHICAL, told["H3"]) | dict.fromkeys(CONSTRAINED, told["O3"])
    rows: list[dict[str, object]] = []
    for method in SHOWN:
        row: dict[str, object] = {"mechanism": method, "paper": told.get(method, "")}
        for form in (PUBLISHED, SOUND):
            if form == SOUND or method not in PRESETS:
                means = [1000 * results.mean("seconds", method, e, day, form=form) for e in EPSILONS for day in DAYS]
                row[f"{form}, ms"] = f"{min(means):.3g} to {max(means):.3g}"
            else:
                row[f"{form}, ms"] = ""
        rows.append(row)
    return rows


def short(rows: Sequence[Row]) -> list[dict[str, object]]:
    """Put means and intervals into one column each, with as many digits as an interval tells."""
    return [
        {
            key: _with_interval(value, row.get(f"{key}_sd", math.nan)) if isinstance(value, float) else value
            for key, value in row.items()
            if not key.endswith("_sd")
        }
        for row in rows
    ]


def _with_interval(value: float, half: object) -> str:
    """Write a number to four digits, or to the second digit of its interval."""
    if math.isnan(value):
        return ""
    width = half if isinstance(half, float) and half > 0 else 0.0
    if not width:
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    decimals = 1 - math.floor(math.log10(width))
    shown = [f"{round(number, decimals):,.{max(0, decimals)}f}" for number in (value, width)]
    return " ± ".join(shown)


# The page


def _across(rows: Sequence[Row]) -> list[dict[str, object]]:
    """Put the epsilons of a mechanism beside each other."""
    found: dict[tuple[object, ...], dict[str, object]] = {}
    for row in rows:
        key = (row["day"], row["form"], row["mechanism"])
        line = found.setdefault(key, dict(zip(("day", "form", "mechanism"), key, strict=True)))
        for column in ("rmse", "mae"):
            name = f"{column.upper()}, {row['epsilon']:g}"
            line |= {name: row[column], f"{name}_sd": row[f"{column}_sd"]}
    order = [f"{column}, {epsilon:g}{sd}" for column in ("RMSE", "MAE") for epsilon in EPSILONS for sd in ("", "_sd")]
    return [
        {**{key: line[key] for key in ("day", "form", "mechanism")}, **{key: line[key] for key in order}}
        for line in found.values()
    ]


def _draw_5(results: runs.Results) -> list[Svg]:
    parts = []
    for column, title in (("rmse", "RMSE a cell"), ("mae", "MAE a cell")):
        charts = [_chart(results, column, title, day, form) for day in DAYS for form in (PUBLISHED, SOUND)]
        shown = [Curve(method, [], *METHOD_STYLES[method]) for method in SHOWN]
        parts += [
            report.tag("h3", f"{title}, log scale", class_="measure"),
            report.legend(shown, paper=column == "rmse", limit="publishing nothing"),
            report.panels(charts, wide=True),
        ]
    return parts


def _chart(results: runs.Results, column: str, title: str, day: str, form: str) -> Svg:
    methods = SHOWN if form == SOUND else PAPERS_OWN
    printed = [
        (epsilon, value)
        for method in ("O5", "H5")
        for epsilon, value in zip(IN_TABLE_2, TABLE_2[method][day], strict=True)
    ]
    figure = report.log_chart(
        [_curve(results, column, method, day, form) for method in methods],
        label=f"{title} against epsilon, {day}, {form}",
        x_title="epsilon",
        y_title=title,
        paper=printed if column == "rmse" else (),
        limit=results.mean(column, NOTHING, 1.0, day),
        falling=True,
    )
    caption = "diamonds: Table 2, H5 above and O5 below" if column == "rmse" else ""
    return report.panel(f"{day}, 8 to 10 am, {form}", figure, caption)


def _curve(results: runs.Results, column: str, method: str, day: str, form: str) -> Curve:
    points = []
    for epsilon in EPSILONS:
        mean, half = runs.mean_interval(results.values(column, method, epsilon, day, form=form))
        points.append((epsilon, mean, 0.0 if math.isnan(half) else half))
    return Curve(method, points, *METHOD_STYLES[method])


def _draw_fleets(fleets: fleeting.Fleets) -> list[Svg]:
    """Draw fleets beside the waits that they cause, day by day."""
    charts = []
    for day in fleets.days:
        true = fleets.truth(day)
        for column, title, level in (
            ("shuttles", "shuttles", true.true_shuttles),
            ("wait", "seconds of wait", true.true_wait),
        ):
            figure = report.log_chart(
                [_fleet_curve(fleets, column, method, day) for method in fleeting.METHODS],
                label=f"{title} against epsilon, {day}",
                x_title="epsilon",
                y_title=title,
                limit=level,
                falling=True,
            )
            charts.append(report.panel(f"{day}, 8 to 10 am: {title}", figure))
    shown = [Curve(method, [], *FLEET_STYLES[method]) for method in fleeting.METHODS]
    return [report.legend(shown, limit="the true trips' fleet"), report.panels(charts, wide=True)]


def _fleet_curve(fleets: fleeting.Fleets, column: str, method: str, day: str) -> Curve:
    points = []
    for epsilon in fleets.effort.epsilons:
        mean, half = fleeting.mean_of(fleets.sized(day, method, epsilon), column)
        if mean > 0:
            points.append((epsilon, mean, 0.0 if math.isnan(half) else half))
    return Curve(method, points, *FLEET_STYLES[method])


def _draw_sums(results: runs.Results) -> list[Svg]:
    charts, methods = [], [method for method in VIEWED if method != NOTHING]
    for name, column in {"cells": "rmse", **SUM_COLUMNS}.items():
        figure = report.log_chart(
            [_curve(results, column, method, WEEKDAY, SOUND) for method in methods],
            label=f"RMSE of {name} against epsilon",
            x_title="epsilon",
            y_title="RMSE",
            limit=results.mean(column, NOTHING, 1.0, WEEKDAY),
            falling=True,
        )
        charts.append(report.panel(f"sums by {name}" if column != "rmse" else "cells", figure))
    shown = [Curve(method, [], *METHOD_STYLES[method]) for method in methods]
    return [report.legend(shown, limit="publishing nothing"), report.panels(charts, wide=True)]
