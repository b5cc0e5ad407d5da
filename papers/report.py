# SPDX-License-Identifier: Apache-2.0
"""What every reproduction writes: tables as CSV, a report in Markdown, and one self-contained page with figures.

The page carries its own style and no script, and loads nothing.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import html
import math
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from dunnage.showing.figures import (
    LogScale,
    Scale,
    Svg,
    chart,
    dot,
    joined,
    level,
    lower_axis,
    short,
    span,
    tag,
    x_axis,
    y_axis,
)
from dunnage.text import number_text

Row = Mapping[str, object]

CHART_HEIGHT = 200
_PLOT_TOP, _PLOT_BOTTOM = 34.0, 160.0
_TALL_HEIGHT, _TALL_BOTTOM = 360, 320.0
_MAX_STYLES = 8
_STYLE = """
body { max-width: 1360px; }
.panels { display: grid; grid-template-columns: repeat(5, minmax(0, 1fr)); gap: 18px 22px; margin-bottom: 34px; }
.panels h3 { margin-left: 44px; font-weight: 600; font-size: .875rem; }
.panels figcaption { margin: 0 0 0 44px; font-size: .75rem; line-height: 1.35; color: var(--quiet); }
.panels .chart text { font-size: 11px; }
.measure { margin-top: 10px; font-size: 1.0625rem; }
.panels.two { grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 18px 60px; padding-left: 20px; }
@media screen and (max-width: 1100px) { .panels { grid-template-columns: repeat(2, minmax(0, 1fr)); } }
@media screen and (max-width: 560px) { .panels, .panels.two { grid-template-columns: minmax(0, 1fr); } }
.scroll { overflow-x: auto; margin-bottom: 14px; }
.scroll table { font-size: .8125rem; }
.scroll td, .scroll th { padding: 5px 8px; text-align: left; overflow-wrap: normal; vertical-align: top; }
.scroll td:first-child { white-space: nowrap; }
.agrees { color: var(--good); }
.differs { color: var(--void); }
.not { color: var(--warn); }
.curve { stroke-width: 2; fill: none; stroke-linecap: round; }
.spread { stroke-width: 1; opacity: .5; }
.dash { stroke-dasharray: 5 4; }
.point { stroke-width: 1.6; }
.hollow { fill: var(--back) !important; }
.paper { fill: none; stroke: var(--text); stroke-width: 1.6; }
.key.line { height: 0; border-top: 3px solid; border-radius: 0; }
.key.line.broken { border-top-style: dashed; }
.key.quoted { width: 9px; height: 9px; border: 1.6px solid var(--text); border-radius: 0; transform: rotate(45deg); }
.s0 { stroke: #0072b2; fill: #0072b2; color: #0072b2; }
.s1 { stroke: #d55e00; fill: #d55e00; color: #d55e00; }
.s2 { stroke: #00805c; fill: #00805c; color: #00805c; }
.s3 { stroke: #a3478a; fill: #a3478a; color: #a3478a; }
.s4 { stroke: #e69f00; fill: #e69f00; color: #e69f00; }
.s5 { stroke: #56b4e9; fill: #56b4e9; color: #56b4e9; }
.s6 { stroke: #806000; fill: #806000; color: #806000; }
.s7 { stroke: #59626d; fill: #59626d; color: #59626d; }
"""


class Reproduce(Protocol):
    """What each paper's module has: a function that measures everything and writes tables, a report and a page."""

    def __call__(self, out: Path, *, quick: bool, workers: int) -> Path:
        """Reproduce a paper."""


class Quoted(NamedTuple):
    """One figure or finding that a paper states in its text, beside ours: a line of a table."""

    where: str  # where the paper says it
    what: str  # what it says
    paper: str  # paper, ours: its value and ours, as text
    ours: str
    verdict: str  # ``agrees``, ``differs: why`` or ``not reproducible: why``

    def row(self) -> dict[str, object]:
        return self._asdict()


@dataclass(frozen=True)
class Curve:
    """Points of a line chart."""

    name: str  # for the legend
    points: Sequence[tuple[float, float, float]]  # across, mean and standard deviation, from left to right
    style: int  # number of the colour
    dashed: bool = False  # draw the line dashed and the points hollow
    labels: Sequence[str] = ()  # what to write beside each point; nothing if empty


def line_chart(
    curves: Sequence[Curve],
    *,
    label: str,
    x_title: str,
    y_title: str,
    paper: Sequence[tuple[float, float]] = (),
    least: tuple[float, float] | None = None,  # values down that must be within the picture
    limit: float | None = None,  # where to draw a line across
    from_zero: bool = False,
) -> Svg:
    """Draw curves with their standard deviations, and the points that the paper quotes as empty diamonds."""
    points = [*((x, y) for curve in curves for x, y, _ in curve.points), *paper]
    x, y = [x for x, _ in points] + [0.0] * from_zero, [y for _, y in points] + list(least or ())
    across, down = Scale(*span(min(x), max(x))), Scale(*span(min(y), max(y)), _PLOT_BOTTOM, _PLOT_TOP)
    axes = [*y_axis(down, y_title), *x_axis(across, _PLOT_BOTTOM, x_title)]
    tips = [[f"{curve.name}: {mean:.3f}, sd {sd:.3f}" for _, mean, sd in curve.points] for curve in curves]
    return _drawn(curves, tips, across, down, axes, paper, limit, label=label, height=CHART_HEIGHT)


def log_chart(
    curves: Sequence[Curve],
    *,
    label: str,
    x_title: str,
    y_title: str,
    paper: Sequence[tuple[float, float]] = (),
    limit: float | None = None,
    falling: bool = False,  # large values are on the left
) -> Svg:
    """Draw curves of positive values on two logarithmic axes, a number at each place that is measured."""
    points = [*((x, y) for curve in curves for x, y, _ in curve.points), *paper]
    ends = [[math.log10(point[side]) for point in points] for side in (0, 1)]
    ends[1] += [] if limit is None else [math.log10(limit)]
    (left, right), (low, high) = ([10.0**end for end in span(min(one), max(one))] for one in ends)
    across = LogScale(left, right, *((100.0, 0.0) if falling else (0.0, 100.0)))
    down = LogScale(low, high, _TALL_BOTTOM, _PLOT_TOP)
    axes = [tag("text", y_title, class_="name", x="-40", y="12")]
    for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1):
        for value in (factor * 10.0**power for factor in (1, 2, 5)):
            if low <= value <= high:
                y = down.at(value)
                axes.append(tag("line", class_="grid", x1="0", x2="100%", y1=y, y2=y))
                axes.append(tag("text", number_text(value), x="-6", y=y + 4, text_anchor="end"))
    places = dict.fromkeys(x for curve in curves for x, _, _ in curve.points)
    axes += lower_axis(_TALL_BOTTOM, x_title, [(across.across(x), number_text(x)) for x in places], grid=0)
    tips = [
        [f"{curve.name}: {y:.3g}" + (f" ± {sd:.2g}" if sd else "") for _, y, sd in curve.points] for curve in curves
    ]
    bare = [replace(curve, points=[(x, y, 0.0) for x, y, _ in curve.points]) for curve in curves]
    return _drawn(bare, tips, across, down, axes, paper, limit, label=label, height=_TALL_HEIGHT)


def _drawn(
    curves: Sequence[Curve],
    tips: Sequence[Sequence[str]],
    across: Scale,
    down: Scale,
    axes: Sequence[Svg],
    paper: Sequence[tuple[float, float]],
    limit: float | None,
    *,
    label: str,
    height: float,
) -> Svg:
    parts = [*axes, *([] if limit is None else level(down, limit))]
    for curve, texts in zip(curves, tips, strict=True):
        colour = f"s{curve.style % _MAX_STYLES}"
        dash, hollow = (" dash", " hollow") if curve.dashed else ("", "")
        places = [(across.at(x), down.at(y)) for x, y, _ in curve.points]
        parts += joined(places, f"curve {colour}{dash}")
        for (x, y), (_, mean, sd), tip in zip(places, curve.points, texts, strict=True):
            if sd:
                ends = [min(max(down.at(mean + sign * sd), _PLOT_TOP), _PLOT_BOTTOM) for sign in (-1, 1)]
                parts += joined([(x, end) for end in ends], f"spread {colour}")
            parts.append(dot(x, y, tip, style=f"point {colour}{hollow}", radius=3))
        for (x, y), text in zip(places, curve.labels, strict=False):
            parts.append(tag("text", text, x=f"{short(x)}%", y=y - 7, text_anchor="middle", class_="halo"))
    parts += [_diamond(across.across(x), down.at(y)) for x, y in paper]
    return chart(height, parts, label=label)


def _diamond(x: str, y: float) -> Svg:
    """Draw an empty diamond: a square in a nested picture, for only that can be placed in per cent."""
    square = tag("rect", class_="paper", x=-4, y=-4, width=8, height=8, transform="rotate(45)")
    return tag("svg", square, x=x, y=short(y), overflow="visible")


def legend(curves: Iterable[Curve], *, paper: bool = False, limit: str = "") -> Svg:
    """Name the colours of a group of charts, and what the line across is, if there is one."""
    parts = []
    for curve in curves:
        look = f"key line s{curve.style % _MAX_STYLES}{' broken' if curve.dashed else ''}"
        parts.append(tag("span", tag("i", Svg(""), class_=look), curve.name))
    if paper:
        parts.append(tag("span", tag("i", Svg(""), class_="key quoted"), "quoted by the paper"))
    if limit:
        parts.append(tag("span", tag("i", Svg(""), class_="key limit"), limit))
    return tag("p", *parts, class_="legend")


def panel(title: str, figure: Svg, caption: str = "") -> Svg:
    """Put a chart under its title."""
    return tag("figure", tag("h3", title), figure, tag("figcaption", caption or Svg("")))


def panels(parts: Sequence[Svg], *, wide: bool = False) -> Svg:
    """Put charts beside each other, five or, if they are wide, two."""
    return tag("div", *parts, class_="panels two" if wide else "panels")


def paragraph(text: str) -> Svg:
    """Write a paragraph of plain text."""
    return tag("p", text)


def section(title: str, *parts: str) -> Svg:
    """Put parts under a heading."""
    return tag("section", tag("h2", title), *parts)


def shown(value: object) -> str:
    """Write a cell for a person."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return f"{value:.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def mean_and_sd(mean: object, sd: object) -> str:
    """Put a mean and its standard deviation into one cell."""
    spread = shown(sd)
    return f"{shown(mean)} ± {spread}" if spread else shown(mean)


def small_shown(value: object) -> object:
    """Keep the digits of small numbers, which three decimals would lose."""
    return f"{value:.2g}" if isinstance(value, float) and 0 < abs(value) < 0.01 else value


def short_rows(rows: Sequence[Row]) -> list[dict[str, object]]:
    """Put means and standard deviations (columns that end in ``_sd``) into one column each."""
    return [
        {
            key: mean_and_sd(value, row[f"{key}_sd"]) if f"{key}_sd" in row else small_shown(value)
            for key, value in row.items()
            if not key.endswith("_sd")
        }
        for row in rows
    ]


def verdict(agrees: bool, why: str) -> str:
    """Say whether a figure agrees, and why if it does not."""
    return "agrees" if agrees else f"differs: {why}"


class PageText(NamedTuple):
    """What a page says around its tables."""

    title: str
    limits: Sequence[str]  # what cannot be reproduced, and why
    rules: str = ""  # how verdicts are given
    titles: Mapping[str, str] = {}  # of tables, by name
    why: Mapping[str, str] = {}  # what a table shows
    explained: Mapping[str, str] = {}  # what a figure shows


class Statements:
    """What the text of a paper states: sentences are data beside its module, which gives what is measured."""

    def __init__(self, paper: str) -> None:
        self._texts = tomllib.loads((resources.files("papers") / f"{paper}.toml").read_text(encoding="utf-8"))

    def __call__(self, name: str, *, agrees: bool | None = None, **values: tuple[object, ...]) -> Quoted:
        """Fill in a statement; with ``agrees`` the verdict follows from it, and ``differs`` says why if it does not."""
        texts = {key: text.format(*values.get(key, ())) for key, text in self._texts[name].items()}
        if agrees is not None:
            texts["verdict"] = verdict(agrees, texts.pop("differs"))
        return Quoted(**texts)

    def page(self, **values: object) -> PageText:
        """Fill in what stands around the tables, by name."""

        def filled(text: Any) -> Any:
            if isinstance(text, str):
                return text.format(**values)
            return [*map(filled, text)] if isinstance(text, list) else {key: filled(one) for key, one in text.items()}

        return PageText(**filled(self._texts["page"]))


def tell_verdicts(lines: Iterable[Quoted]) -> None:
    """Say on stderr how many lines agree, differ and cannot be reproduced."""
    counted = Counter(line.verdict.split(":")[0].split(" (")[0] for line in lines)
    print("; ".join(f"{verdict}: {number}" for verdict, number in counted.items()), file=sys.stderr)


def text_sections(lines: Sequence[Quoted], limits: Sequence[str]) -> list[Svg]:
    """Write what the text states beside ours, and what cannot be reproduced, for the page."""
    return [
        section("What the text states, beside ours", html_table([line.row() for line in lines])),
        section("What cannot be reproduced", tag("ul", *(tag("li", limit) for limit in limits))),
    ]


def text_markdown(title: str, note: str, lines: Sequence[Quoted], limits: Sequence[str]) -> list[str]:
    """Write the same in Markdown, under the title."""
    return [
        f"# {title}",
        note,
        "## What the text states",
        markdown_table([line.row() for line in lines]),
        "## What cannot be reproduced",
        "\n".join(f"- {limit}" for limit in limits),
    ]


def html_table(rows: Sequence[Row]) -> Svg:
    """Write rows as a table; a verdict is coloured by its first word."""
    columns = list(rows[0])
    head = tag("thead", tag("tr", *(tag("th", column) for column in columns)))
    lines = []
    for row in rows:
        verdict = str(row.get("verdict", "")).split(":")[0].split(" ")[0]
        cells = [tag("td", shown(row[c]) or Svg(""), class_=verdict if c == "verdict" else "") for c in columns]
        lines.append(tag("tr", *cells))
    return tag("div", tag("table", head, tag("tbody", *lines)), class_="scroll")


def markdown_table(rows: Sequence[Row]) -> str:
    """Write rows as a Markdown table."""
    columns = list(rows[0])
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(shown(row[c]).replace("|", "\\|") for c in columns) + " |" for row in rows]
    return "\n".join(lines)


def write_table(path: Path, rows: Sequence[Row]) -> None:
    """Write rows as CSV."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(dict(row) for row in rows)


def write_page(path: Path, *, title: str, lead: str, sections: Sequence[str], foot: str) -> None:
    """Write one HTML document that needs no other file."""
    css = resources.files("dunnage.showing").joinpath("templates", "page.css").read_text("utf-8") + _STYLE
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    head = "".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            '<meta name="color-scheme" content="light dark">\n',
            f"<title>{html.escape(title)}</title>\n<style>{css}</style>\n</head>\n",
        ]
    )
    body = tag("body", tag("header", tag("h1", title), tag("p", lead, class_="lead")), *map(Svg, sections))
    foot = tag("footer", tag("p", foot))
    path.write_text(f"{head}{body[: -len('</body>')]}{foot}</body>\n</html>\n", encoding="utf-8")
