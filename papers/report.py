# SPDX-License-Identifier: Apache-2.0
"""What every reproduction writes: tables as CSV, a report in Markdown, and one self-contained page with figures.

The page carries its own style and no script, and loads nothing.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import html
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from dunnage.svg import Scale, Svg, chart, short, span, tag, x_axis, y_axis

Row = Mapping[str, object]

CHART_HEIGHT = 200
_PLOT_TOP, _PLOT_BOTTOM = 34.0, 160.0
_MOST_STYLES = 8
_STYLE = """
body { max-width: 1360px; }
.panels { display: grid; grid-template-columns: repeat(5, minmax(0, 1fr)); gap: 18px 22px; margin-bottom: 34px; }
.panels h3 { margin-left: 44px; font-weight: 600; font-size: .875rem; }
.panels figcaption { margin: 0 0 0 44px; font-size: .75rem; line-height: 1.35; color: var(--quiet); }
.panels .chart text { font-size: 11px; }
.measure { margin-top: 10px; font-size: 1.0625rem; }
@media screen and (max-width: 1100px) { .panels { grid-template-columns: repeat(2, minmax(0, 1fr)); } }
@media screen and (max-width: 560px) { .panels { grid-template-columns: minmax(0, 1fr); } }
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
.s2 { stroke: #009e73; fill: #009e73; color: #009e73; }
.s3 { stroke: #cc79a7; fill: #cc79a7; color: #cc79a7; }
.s4 { stroke: #e69f00; fill: #e69f00; color: #e69f00; }
.s5 { stroke: #56b4e9; fill: #56b4e9; color: #56b4e9; }
.s6 { stroke: #7a5cff; fill: #7a5cff; color: #7a5cff; }
.s7 { stroke: #888; fill: #888; color: #888; }
"""


@dataclass(frozen=True, kw_only=True)
class Quoted:
    """One figure or finding that a paper states in its text, beside ours.

    Parameters
    ----------
    where
        Where the paper says it.
    what
        What it says.
    paper, ours
        Its value and ours, as text.
    verdict
        ``agrees``, ``differs: why`` or ``not reproducible: why``.
    """

    where: str
    what: str
    paper: str
    ours: str
    verdict: str

    def row(self) -> dict[str, object]:
        """Give it as a line of a table."""
        return {
            "where": self.where,
            "what": self.what,
            "paper": self.paper,
            "ours": self.ours,
            "verdict": self.verdict,
        }


@dataclass(frozen=True)
class Curve:
    """Points of a line chart.

    Parameters
    ----------
    name
        For the legend.
    points
        Across, mean and standard deviation, from left to right.
    style
        Number of the colour.
    dashed
        Draw the line dashed and the points hollow.
    labels
        What to write beside each point; nothing if empty.
    """

    name: str
    points: Sequence[tuple[float, float, float]]
    style: int
    dashed: bool = False
    labels: Sequence[str] = ()


def line_chart(
    curves: Sequence[Curve],
    *,
    label: str,
    x_title: str,
    y_title: str,
    paper: Sequence[tuple[float, float]] = (),
    least: tuple[float, float] | None = None,
    limit: float | None = None,
    from_zero: bool = False,
) -> Svg:
    """Draw curves with their standard deviations, and the points that the paper quotes as empty diamonds.

    Parameters
    ----------
    curves
        What to draw.
    label
        For who cannot see the figure.
    x_title, y_title
        Names of the axes.
    paper
        Points from the paper.
    least
        Values down that must be within the picture.
    limit
        Where to draw a line across.
    from_zero
        Start at 0 on the left.
    """
    across, down = _scales(curves, paper, least, from_zero)
    parts: list[str] = [*y_axis(down, y_title), *x_axis(across, _PLOT_BOTTOM, x_title)]
    if limit is not None:
        parts.append(tag("line", class_="limit", x1="0", x2="100%", y1=down.at(limit), y2=down.at(limit)))
    for curve in curves:
        parts += _curve(curve, across, down)
    parts += [_diamond(across.across(x), down.at(y)) for x, y in paper]
    return chart(CHART_HEIGHT, parts, label=label)


def _scales(
    curves: Sequence[Curve],
    paper: Sequence[tuple[float, float]],
    least: tuple[float, float] | None,
    from_zero: bool,
) -> tuple[Scale, Scale]:
    points = [point for curve in curves for point in curve.points]
    x = [point[0] for point in points] + [point[0] for point in paper] + [0.0] * from_zero
    y = [point[1] for point in points] + [point[1] for point in paper] + list(least or ())
    return Scale(*span(min(x), max(x))), Scale(*span(min(y), max(y)), _PLOT_BOTTOM, _PLOT_TOP)


def _curve(curve: Curve, across: Scale, down: Scale) -> list[Svg]:
    colour = f"s{curve.style % _MOST_STYLES}"
    dash, hollow = (" dash", " hollow") if curve.dashed else ("", "")
    places = [(across.across(x), down.at(y), y, sd) for x, y, sd in curve.points]
    parts = [
        tag("line", class_=f"curve {colour}{dash}", x1=a[0], y1=a[1], x2=b[0], y2=b[1])
        for a, b in itertools.pairwise(places)
    ]
    for x, y, mean, sd in places:
        if sd:
            ends = [min(max(down.at(mean + sign * sd), _PLOT_TOP), _PLOT_BOTTOM) for sign in (-1, 1)]
            parts.append(tag("line", class_=f"spread {colour}", x1=x, x2=x, y1=ends[0], y2=ends[1]))
        tip = tag("title", f"{curve.name}: {mean:.3f}, sd {sd:.3f}")
        parts.append(tag("circle", tip, class_=f"point {colour}{hollow}", cx=x, cy=y, r=3))
    for (x, y, _, _), label in zip(places, curve.labels, strict=False):
        parts.append(tag("text", label, x=x, y=y - 7, text_anchor="middle", class_="halo"))
    return parts


def _diamond(x: str, y: float) -> Svg:
    """Draw an empty diamond: a square in a nested picture, for only that can be placed in per cent."""
    square = tag("rect", class_="paper", x=-4, y=-4, width=8, height=8, transform="rotate(45)")
    return tag("svg", square, x=x, y=short(y), overflow="visible")


def legend(curves: Iterable[Curve], *, paper: bool = False) -> Svg:
    """Name the colours of a group of charts."""
    parts = []
    for curve in curves:
        look = f"key line s{curve.style % _MOST_STYLES}{' broken' if curve.dashed else ''}"
        parts.append(tag("span", tag("i", Svg(""), class_=look), curve.name))
    if paper:
        parts.append(tag("span", tag("i", Svg(""), class_="key quoted"), "quoted by the paper"))
    return tag("p", *parts, class_="legend")


def panel(title: str, figure: Svg, caption: str = "") -> Svg:
    """Put a chart under its title."""
    return tag("figure", tag("h3", title), figure, tag("figcaption", caption or Svg("")))


def panels(parts: Sequence[Svg]) -> Svg:
    """Put charts beside each other."""
    return tag("div", *parts, class_="panels")


def paragraph(text: str) -> Svg:
    """Write a paragraph of plain text."""
    return tag("p", text)


def section(title: str, *parts: str) -> Svg:
    """Put parts under a heading."""
    return tag("section", tag("h2", title), *parts)


def shown(value: object) -> str:
    """Write a cell for a person.

    Examples
    --------
    >>> shown(1.23456), shown(2.0), shown(float("nan")), shown(None)
    ('1.235', '2', '', '')
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return f"{value:.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def mean_and_sd(mean: object, sd: object) -> str:
    """Put a mean and its standard deviation into one cell."""
    spread = shown(sd)
    return f"{shown(mean)} ± {spread}" if spread else shown(mean)


def verdict(agrees: bool, why: str) -> str:
    """Say whether a figure agrees, and why if it does not.

    Examples
    --------
    >>> verdict(False, "its draws are unpublished")
    'differs: its draws are unpublished'
    """
    return "agrees" if agrees else f"differs: {why}"


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
    css = resources.files("dunnage").joinpath("templates", "page.css").read_text("utf-8") + _STYLE
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
