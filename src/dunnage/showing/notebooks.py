# SPDX-License-Identifier: Apache-2.0
"""Summaries and pictures for notebooks. They show what a page shows, and no private row."""

from __future__ import annotations

import base64
import html
import os
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np

from dunnage.advising.frontier import Frontier
from dunnage.auditing.run import Audit
from dunnage.errors import ParameterError
from dunnage.planning.plan import FleetPlan, Plan
from dunnage.release import Release
from dunnage.release.kinds import COUNTS, ESTIMATES
from dunnage.showing import figures as draw
from dunnage.showing.estimates import estimate_pictures
from dunnage.showing.frontier import frontier_figure, summary_of
from dunnage.text import number_text, percent, plural, several, share_text

WIDTH, MAX_ROWS = 760.0, 5
_LEFT, _LETTERS = 56.0, 100  # room beside a figure, and letters of a caption in a line
_KEYS = {"load": "bar"}  # style in a figure of an entry of a legend, where it differs


@dataclass(frozen=True, repr=False)
class Drawing:
    pictures: Sequence[draw.Picture]

    def __repr__(self) -> str:
        return f"Drawing({', '.join(repr(one.title) for one in self.pictures)})"

    def _repr_svg_(self) -> str:
        return self.svg()

    def svg(self) -> str:
        """Return all pictures below each other, as one SVG document with its style."""
        style = resources.files("dunnage.showing").joinpath("templates", "page.css").read_text("utf-8")
        parts, y = [draw.tag("rect", class_="sheet-back", width="100%", height="100%")], 30.0
        for one in self.pictures:
            parts.append(draw.tag("text", one.title, class_="group", x=12, y=y))
            x = 12.0
            for key, words in one.legend:
                parts.append(draw.tag("rect", class_=_KEYS.get(key, key), x=x, y=y + 12, width=16, height=10))
                parts.append(draw.tag("text", words, x=x + 22, y=y + 21))
                x += 40 + 6.5 * len(words)
            y += 34 if one.legend else 12
            # The height of a figure: stated, or by the proportions of its view.
            head, room = one.svg[: one.svg.index(">")], WIDTH - _LEFT - 20
            if 'viewBox="' in head:
                _, _, wide, high = map(float, head.split('viewBox="')[1].split('"')[0].split())
                height = room * high / wide
            else:
                height = float(head.split('height="')[1].split('"')[0])
            place: dict[str, float | str] = {"x": _LEFT, "y": y, "width": room, "height": height}
            parts.append(draw.tag("svg", one.svg, overflow="visible", **place))
            y += height + 24
            for line in textwrap.wrap(str(one.caption), _LETTERS):
                parts.append(draw.tag("text", line, x=12, y=y))
                y += 17
            y += 30
        own = f"svg {{ font: 13px system-ui, sans-serif; }} .sheet-back {{ fill: var(--back); }} {style}"
        size: dict[str, float | str] = {"width": WIDTH, "height": y, "viewBox": f"0 0 {WIDTH:g} {y:g}"}
        label = "; ".join(str(one.caption) for one in self.pictures)
        sheet = draw.tag("g", *parts, class_="chart")
        return draw.tag(
            "svg",
            draw.tag("style", draw.Svg(own)),
            draw.PATTERNS,
            sheet,
            xmlns="http://www.w3.org/2000/svg",
            role="img",
            aria_label=label,
            **size,
        )

    def save(self, path: str | os.PathLike[str]) -> Path:
        file = Path(path)
        if file.suffix != ".svg":
            raise ParameterError(f"pictures are written as SVG. Got {file.name!r}. Choose a name that ends with .svg.")
        file.write_text(self.svg() + "\n", encoding="utf-8")
        return file


# What is drawn


def drawing_of(thing: object) -> Drawing:
    match thing:
        case Release() if thing.kind == ESTIMATES:
            return Drawing(estimate_pictures(thing))
        case Release():
            return Drawing([_sums_picture(thing) if thing.kind == COUNTS else _sizes_picture(thing)])
        case Plan():
            from dunnage.showing.packing import counts_picture

            return Drawing([counts_picture(thing)])
        case FleetPlan():
            title, scale, axis = "Shuttles by zone", draw.Scale(0.0, 1.05 * max([1, *thing.shuttles])), "shuttles"
            rows = [(f"{zone}: {several(num, 'shuttle')}", [[("bar", float(num))]]) for zone, num in _by_zone(thing)]
            caption = f"{several(int(thing.objective), 'shuttle')} in {several(len(thing.zones), 'zone')}."
        case Audit():
            title, scale, axis = f"Risks of {thing.dataset}", draw.Scale(0.0, 1.0), "risk"
            rows = [
                (f"{item.risk}: {percent(item.severity or 0.0)} ({item.name})", [[("bar", item.severity or 0.0)]])
                for item in thing.risks[: max(thing.num_leading, 1)]
            ]
            caption = (
                f"The worst finding of each risk, from 0 % (no better than without the release) to 100 %. {thing.says}"
            )
        case Frontier():
            title = f"Frontier of {thing.dataset}"
            return Drawing([draw.Picture(title=title, svg=frontier_figure(thing), caption=summary_of(thing))])
        case _:
            raise ParameterError(f"there is no picture of {type(thing).__name__}.")
    svg = draw.bars(scale, rows, label=caption, axis=axis, shares=axis == "risk")
    return Drawing([draw.Picture(title=title, svg=svg, caption=caption)])


def _by_zone(plan: FleetPlan) -> Iterable[tuple[str, int]]:
    return sorted(zip(plan.zones, plan.shuttles, strict=True), key=lambda item: -item[1])[:40]


def _sizes_picture(release: Release) -> draw.Picture:
    """Draw the released intervals of the first quantity by their middle, or the sizes of classes."""
    if release.noisy or release.classes is None:
        name = next(iter(release.quantities), "")
        known = release.uncertain(name)
        values = known.nominal if known.nominal is not None else (known.lower + known.upper) / 2
        counts, edges = np.histogram(values, bins=20)
        caption = f"Released values of {name}, {len(release):,} rows."
        axis = f"{name}, {known.unit}".strip(", ")
        return _columns_picture(f"Released {name}", counts.tolist(), edges.tolist(), axis, caption)
    sizes = np.asarray(release.classes.column("size").to_numpy())
    counts, edges = np.histogram(sizes, bins=min(20, max(1, int(np.ptp(sizes)) + 1)))
    caption = f"{len(sizes):,} class{'' if len(sizes) == 1 else 'es'} of {sizes.min():,} to {sizes.max():,} rows."
    return _columns_picture("Sizes of classes", counts.tolist(), edges.tolist(), "rows in a class", caption)


def _columns_picture(
    title: str, counts: Sequence[int], edges: Sequence[float], axis: str, caption: str
) -> draw.Picture:
    x, y = draw.Scale(edges[0], edges[-1]), draw.Scale(0.0, 1.05 * max([1, *counts]), draw.BASE, draw.TOP)
    stacks = [
        draw.StackedColumn(low, high, [("bar", float(num))], f"{number_text(low)} to {number_text(high)}: {num:,}")
        for num, low, high in zip(counts, edges, edges[1:], strict=False)
    ]
    svg = draw.columns(x, y, stacks, y_title="number", whole=True, below=draw.x_axis(x, draw.BASE, axis), label=caption)
    return draw.Picture(title=title, svg=svg, caption=caption)


def _sums_picture(release: Release) -> draw.Picture:
    universe, (cells, counts) = release.universe, release.counted()
    name, units = "window" if universe.of_trips else universe.cell_columns[0], plural(universe.unit)
    labelled = universe.labels(name)
    sums = np.bincount(universe.column_codes(name, cells), weights=counts, minlength=len(labelled))
    x = draw.Scale(0.0, float(len(labelled)))
    y = draw.Scale(0.0, 1.05 * max(1.0, float(sums.max())), draw.BASE, draw.TOP)
    stacks = [
        draw.StackedColumn(place, place + 1, [("bar", float(num))], f"{labelled[place]}: {num:,.0f} {units}")
        for place, num in enumerate(sums.tolist())
    ]
    step = max(1, len(labelled) // 8)
    labels = [(x.across(place + 0.5), labelled[place]) for place in range(0, len(labelled), step)]
    by = "the time at which they begin" if universe.of_trips else name
    caption = f"{int(counts.sum()):,} released {units} by {by}."
    below = draw.lower_axis(draw.BASE, "", labels)
    svg = draw.columns(x, y, stacks, y_title=units, whole=True, below=below, label=caption)
    title = "Trips by time" if universe.of_trips else f"{units.capitalize()} by {name}"
    return draw.Picture(title=title, svg=svg, caption=caption)


# Summaries


def summary_html(thing: object) -> str:
    rest = ""
    match thing:
        case Release(certificate=certificate):
            terms = ", ".join(f"{name} {value}" for name, value in certificate.guarantee.to_dict().items())
            title, facts = f"Release of {certificate.dataset}", [("Promises", f"{terms}; basis {certificate.basis}")]
            facts += [("Mechanism", certificate.mechanism_name), ("Rows", f"{len(thing):,}")]
            head = thing.data.slice(0, MAX_ROWS)
            rest = _table(head.column_names, zip(*(column.to_pylist() for column in head.columns), strict=True))
        case Plan(truck_linkage=linkage):
            needed = f"{thing.num_bins:,}, at least {thing.bound:g} needed: {thing.status}"
            title, facts = "Packing plan", [("Trucks", needed), ("Model", thing.model.name)]
            if linkage is not None:
                words = f"{percent(linkage.mean)} on average, {percent(linkage.worst)} at worst"
                facts.append(("Truck linkage", words))
        case FleetPlan():
            title, facts = "Shuttle fleet", [("Shuttles", f"{thing.objective:g}, at least {thing.bound:g} needed")]
            if thing.operation is not None:
                facts.append(("Mean wait", f"{thing.operation.wait_seconds.mean:.0f} s"))
            rest = _table(["zone", "shuttles"], [(zone, f"{num:,}") for zone, num in _by_zone(thing)])
        case Audit():
            title, facts = f"Audit of {thing.dataset}", [("", thing.says)]
            if thing.clearance is not None:
                facts.append(("Verdict", thing.clearance.headline))
            leading = [
                (item.risk or "", percent(item.severity or 0.0), item.name, item.sentence)
                for item in thing.risks[: thing.num_leading]
            ]
            costs = [item for item in thing.findings if item.risk is None][:MAX_ROWS]
            priced = [("cost", item.text(item.value), item.name, item.sentence) for item in costs]
            rest = _table(["", "", "finding", ""], [*leading, *priced])
        case Frontier():
            title, words = f"Frontier of {thing.dataset}", summary_of(thing)
            facts, best = [("", words)], [point for point in thing.points if not point.dominated]
            if thing.points:
                image = base64.b64encode(drawing_of(thing).svg().encode()).decode()
                rest = f'<img alt="{html.escape(words)}" src="data:image/svg+xml;base64,{image}">'
            rest += _table(
                ["policy", thing.cost_unit, thing.risk_name, "basis"],
                [(one.name, share_text(one.cost.value), share_text(one.risk.value), one.basis) for one in best],
            )
        case _:
            return f"<pre>{html.escape(repr(thing))}</pre>"
    lines = "<br>".join(f"{f'{html.escape(name)}: ' if name else ''}{html.escape(str(value))}" for name, value in facts)
    return f"<p><strong>{html.escape(title)}</strong><br>{lines}</p>{rest}"


def _table(titles: Iterable[str], rows: Iterable[Sequence[object]]) -> str:
    head = "".join(f"<th>{html.escape(title)}</th>" for title in titles)
    body = "".join(f"<tr>{''.join(f'<td>{html.escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
