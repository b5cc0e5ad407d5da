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
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from dunnage import __version__
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
from papers.measuring import written

Row = Mapping[str, object]

CHART_HEIGHT = 200
_PLOT_TOP, _PLOT_BOTTOM = 34.0, 160.0
_TALL_HEIGHT, _TALL_BOTTOM = 360, 320.0
_MAX_STYLES = 8


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
    verdict: str  # ``agrees``, or one of ``CAUSES`` and why


# Why a value is not the paper's. Statements name the cause by its key.
CAUSES = {
    "paper": "the paper cannot be right",
    "ours": "differs by a choice or by data of ours",
    "none": "not comparable",
}


def _style(kind: str) -> str:
    return next((f"cause-{key}" for key, cause in CAUSES.items() if cause == kind), kind)


def kind(verdict: str) -> str:
    """Return which of the four verdicts it is."""
    return next((cause for cause in CAUSES.values() if verdict.startswith(cause)), "agrees")


@dataclass(frozen=True)
class Curve:
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
    return tag("figure", tag("h3", title), figure, tag("figcaption", caption or Svg("")))


def panels(parts: Sequence[Svg], *, wide: bool = False) -> Svg:
    return tag("div", *parts, class_="panels two" if wide else "panels")


def figure(
    by_title: Mapping[str, Sequence[Curve]],  # curves of each panel
    *,
    x_title: str,
    y_title: str = "",
    title: str = "",
    draw: Callable[..., Svg] = line_chart,
    captions: Mapping[str, str] = {},
    paper: Mapping[str, Sequence[tuple[float, float]]] = {},
    limits: Mapping[str, float] = {},
    limit: str = "",  # what the limits are
    named: bool = True,  # whether the colours are named
    wide: bool = False,
    **options: Any,
) -> list[Svg]:
    """Draw panels beside each other, under a heading if there is one and names for all colours."""
    drawn, shown = [], dict[str, Curve]()
    for name, curves in by_title.items():
        given: dict[str, Any] = {
            "x_title": x_title,
            "y_title": y_title,
            "paper": paper.get(name, ()),
            "limit": limits.get(name),
        }
        chart_ = draw(curves, label=f"{title or y_title}, {name}, against {x_title}", **given, **options)
        drawn.append(panel(name, chart_, captions.get(name, "")))
        shown |= {curve.name: curve for curve in curves}
    head = [tag("h3", title, class_="measure")] if title else []
    colours = [legend(shown.values(), paper=any(paper.values()), limit=limit)] if named else []
    return [*head, *colours, panels(drawn, wide=wide)]


def section(title: str, *parts: str) -> Svg:
    return tag("section", tag("h2", title), *parts)


def explained(title: str, text: str, *parts: str) -> Svg:
    return section(title, tag("p", text), *parts)


def shown(value: object) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return f"{value:.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def mean_and_sd(mean: object, sd: object) -> str:
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


def short_intervals(rows: Sequence[Row]) -> list[dict[str, object]]:
    """Put means and intervals into one column each, to the second digit of an interval, or four digits without one."""

    def written(value: float, half: object) -> str:
        width = half if isinstance(half, float) and half > 0 else 0.0
        if math.isnan(value) or not width:
            return "" if math.isnan(value) else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
        decimals = 1 - math.floor(math.log10(width))
        return " ± ".join(f"{round(number, decimals):,.{max(0, decimals)}f}" for number in (value, width))

    return [
        {
            key: written(value, row.get(f"{key}_sd", math.nan)) if isinstance(value, float) else value
            for key, value in row.items()
            if not key.endswith("_sd")
        }
        for row in rows
    ]


def intervals_named(rows: Sequence[Row]) -> list[dict[str, object]]:
    """Name what stands beside a mean: half of its 95 % interval."""
    return [{re.sub("_sd$", ", half of the 95 % interval", key): row[key] for key in row} for row in rows]


def verdict(agrees: bool, why: str) -> str:
    return "agrees" if agrees else f"differs: {why}"


class PageText(NamedTuple):
    """What a page says around its tables."""

    title: str
    limits: Sequence[str]  # what cannot be reproduced, and why
    rules: str = ""  # how verdicts are given
    titles: Mapping[str, str] = {}  # of tables, by name
    why: Mapping[str, str] = {}  # what a table shows
    explained: Mapping[Any, str] = {}  # what a figure shows


class Statements:
    """What the text of a paper states: sentences are data beside its module, which gives what is measured."""

    def __init__(self, paper: str, **shared: str) -> None:  # phrases that several statements name
        self._shared = shared
        self._texts = written(paper)

    def __call__(self, name: str, *, agrees: bool | None = None, cause: str | None = None, **values: object) -> Quoted:
        """Fill in a statement, with a value or a tuple of them for each of its texts.

        With ``agrees`` the verdict follows from it, and ``differs`` says why if it does not. The cause of a difference
        is that of the statement, unless another ``cause`` is given.
        """
        given = {key: value if isinstance(value, tuple) else (value,) for key, value in values.items()}
        texts = {key: text.format(*given.get(key, ()), **self._shared) for key, text in self._texts[name].items()}
        if agrees is not None:
            texts["verdict"] = verdict(agrees, texts.pop("differs"))
        stated = texts.pop("cause", None)
        if texts["verdict"].startswith("differs: "):
            why = CAUSES[cause or stated or "ours"]
            texts["verdict"] = why + texts["verdict"].removeprefix("differs")
        return Quoted(**texts)

    def sentence(self, name: str, *values: object) -> str:
        return self._texts["sentences"][name].format(*values)

    def note(self, quick: bool, start: float, **values: object) -> str:
        """Say how much was measured, and how long it took since a start."""
        stated = self._texts["note"].format(**values)
        return f"{'Quick' if quick else 'Full'} form: {stated} Took {time.monotonic() - start:.0f} s."

    def page(self, **values: object) -> PageText:
        """Fill in what stands around the tables, by name."""

        def filled(text: Any) -> Any:
            if isinstance(text, str):
                return text.format(**values)
            return [*map(filled, text)] if isinstance(text, tuple) else {key: filled(one) for key, one in text.items()}

        return PageText(**filled(self._texts["page"]))


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    page: PageText
    note: str  # how it was measured
    data: str  # what was generated
    lines: Sequence[Quoted]
    files: Mapping[str, Sequence[Row]]  # tables as CSV, by name
    markdown: Iterable[tuple[str, str, Sequence[Row]]]  # title, what it shows, rows
    sections: Sequence[Svg]
    findings: Sequence[str] = ()  # what else came out

    @classmethod
    def of_tables(
        cls,
        page: PageText,
        tables: Mapping[str, Sequence[Row]],
        short: Callable[[Sequence[Row]], Sequence[Row]],
        *,
        on_page: Mapping[str, Callable[[Sequence[Row]], Sequence[Row]]] = {},
        drawings: Mapping[str, Callable[[], Iterable[Svg]]],
        **given: Any,
    ) -> Reproduction:
        """Write every table, shortened, under its title; on the page some are drawn, and one without rows only that."""
        sections = []
        for name, rows in tables.items():
            drawing, kept = [*drawings[name]()] if name in drawings else [], on_page.get(name, short)(rows)
            table = [html_table(kept)] if kept else []
            sections.append(explained(page.titles[name], page.why[name], *drawing, *table))
        markdown = [(page.titles[name], page.why[name], short(rows)) for name, rows in tables.items()]
        return cls(page=page, markdown=markdown, sections=sections, **given)

    def write(self, out: Path) -> Path:
        """Write tables, a report and a page; say on stderr how many statements have which verdict."""
        out.mkdir(parents=True, exist_ok=True)
        quoted, limits = [line._asdict() for line in self.lines], self.page.limits
        for name, rows in {**self.files, "quoted": quoted}.items():
            with (out / f"{name.replace(' ', '-')}.csv").open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, fieldnames=list(rows[0]))
                writer.writeheader()
                writer.writerows(dict(row) for row in rows)
        counted = Counter(kind(line.verdict) for line in self.lines)
        split = f"Of {len(self.lines)} statements of the text: " + "; ".join(
            f"{counted[name]} {name}" for name in ("agrees", *CAUSES.values())
        )
        parts = [f"# {self.page.title}", f"**{split}.**", self.note, self.page.rules]
        parts += ["## What the text states", markdown_table(quoted)]
        parts += ["## What cannot be reproduced", "\n".join(f"- {limit}" for limit in limits)]
        if self.findings:
            parts += ["## What else came out", "\n".join(f"- {finding}" for finding in self.findings)]
        for title, why, rows in self.markdown:
            parts += [f"## {title}", why, markdown_table(rows)]
        (out / "report.md").write_text("\n\n".join(part for part in parts if part) + "\n", encoding="utf-8")
        cells = [
            tag("div", tag("dt", name), tag("dd", f"{counted[name]}", class_=_style(name)))
            for name in ("agrees", *CAUSES.values())
        ]
        first = [tag("dl", *cells, class_="figures")]
        first += [explained("How verdicts are given", self.page.rules)] if self.page.rules else []
        first.append(section("What the text states, beside ours", html_table(quoted)))
        first.append(section("What cannot be reproduced", tag("ul", *(tag("li", limit) for limit in limits))))
        if self.findings:
            first.append(section("What else came out", tag("ul", *(tag("li", finding) for finding in self.findings))))
        self._write_page(out / "report.html", [*first, *self.sections])
        print(split, file=sys.stderr)
        return out / "report.html"

    def _write_page(self, path: Path, sections: Sequence[Svg]) -> None:
        templates = resources.files("dunnage.showing") / "templates" / "page.css"
        css = templates.read_text("utf-8") + (resources.files("papers") / "report.css").read_text("utf-8")
        digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
        policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
        head = "".join(
            [
                '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
                f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n',
                '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
                '<meta name="color-scheme" content="light dark">\n',
                f"<title>{html.escape(self.page.title)}</title>\n<style>{css}</style>\n</head>\n",
            ]
        )
        lead = tag("header", tag("h1", self.page.title), tag("p", self.note, class_="lead"))
        foot = tag("footer", tag("p", f"Made with Dunnage {__version__}. Generated {self.data}: nobody's data."))
        path.write_text(f"{head}{tag('body', lead, *sections, foot)}\n</html>\n", encoding="utf-8")


def html_table(rows: Sequence[Row]) -> Svg:
    """Write rows as a table; a verdict is coloured by its first word."""
    columns = list(rows[0])
    head = tag("thead", tag("tr", *(tag("th", column) for column in columns)))
    lines = []
    for row in rows:
        style = _style(kind(str(row["verdict"]))) if "verdict" in row else ""
        cells = [tag("td", shown(row[c]) or Svg(""), class_=style if c == "verdict" else "") for c in columns]
        lines.append(tag("tr", *cells))
    return tag("div", tag("table", head, tag("tbody", *lines)), class_="scroll")


def markdown_table(rows: Sequence[Row]) -> str:
    columns = list(rows[0])
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(shown(row[c]).replace("|", "\\|") for c in columns) + " |" for row in rows]
    return "\n".join(lines)
