# SPDX-License-Identifier: Apache-2.0
"""Pictures of counts of trips: flows true against released, error by feature, trips created. Private, all of them.

They compare with the truth, so that an external audit has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dunnage.auditing.audit import Audit
from dunnage.auditing.finding import Finding
from dunnage.svg import Scale, Svg, chart, tag, x_axis
from dunnage.text import number_text, percent, several

ROW, BAR = 44.0, 14.0
HEAT_TOP, STEEP_TOP, GUTTER = 26.0, 70.0, 13.0
"""Pixels above the cells of a table of flows, and where names stand upright; per cent of the width before them."""
MOST_LETTERS, MANY = 9, 6
"""Letters of a name that is written in full; columns whose names lie side by side, at most."""
FAINTEST = 0.06
"""How much of the colour a cell with trips has at least."""
_SUMS = "RMSE of sums ("
_ZONE_PAIR = ("origin_zone x destination_zone", "zone pair")
_TABLES = {"zones": "by zone", "stops": "between the busiest stops"}


def count_pictures(audit: Audit) -> list[dict[str, Any]]:
    """Draw what an audit found about counts."""
    found = {item.name: item for item in audit.findings}
    apart, created = found.get("total variation distance"), found.get("trips created in empty cells")
    if apart is None or created is None or "flows" not in apart.details:
        return []
    flows = apart.details["flows"]
    heat = [picture for name, words in _TABLES.items() if name in flows for picture in _flows(flows[name], words)]
    errors = _error_lines(audit.findings)
    return [*heat, *([_error_picture(errors)] if errors else []), _created_picture(created)]


# Flows


def _flows(table: Mapping[str, Any], words: str) -> list[dict[str, Any]]:
    """Draw a table of flows twice, in one scale of colour: as it is in truth, and as it was released."""
    named = len(table["names"]) - bool(table.get("with_rest"))  # the rest would outshine every single stop
    lines = [line[:named] for name in ("true", "released") for line in table[name][:named]]
    most = max(map(max, lines), default=0) or 1
    return [_heat(table["names"], table[name], most, name, words) for name in ("true", "released")]


def _heat(names: list[str], counts: list[list[int]], most: int, name: str, words: str) -> dict[str, Any]:
    size = len(names)
    wide, high = (100 - GUTTER) / size, max(24.0, 150.0 / size)
    top = HEAT_TOP if size <= MANY else STEEP_TOP
    parts = [tag("text", "to", class_="name", x=f"{GUTTER:.2f}%", dx="-8", y=top - 12, text_anchor="end")]
    for place, label in enumerate(names):
        parts.append(_head(label, GUTTER + (place + 0.5) * wide, steep=size > MANY))
        y = top + (place + 0.5) * high + 4
        parts.append(
            tag(
                "text",
                _short(label, MOST_LETTERS),
                tag("title", label),
                x=f"{GUTTER:.2f}%",
                dx="-8",
                y=y,
                text_anchor="end",
            )
        )
    for row, line in enumerate(counts):
        for column, number in enumerate(line):
            corner = (GUTTER + column * wide, top + row * high)
            tip = f"{names[row]} to {names[column]}: {several(number, 'trip')}"
            parts += _heat_cell(corner, (wide, high), number, most, tip)
    total = sum(map(sum, counts))
    caption = f"{'True' if name == 'true' else 'Released'} trips {words}: {total:,} in all, rows from, columns to."
    return {
        "title": f"{'True' if name == 'true' else 'Released'} trips {words}",
        "svg": chart(top + high * size + 4, parts, label=caption, kind="flat"),
        "caption": caption,
        "legend": [("load", f"darkest: {several(most, 'trip')} or more, in both tables")],
    }


def _head(label: str, middle: float, *, steep: bool) -> Svg:
    """Write the name of a column above it; upright where there are many, so that they stay apart on a phone."""
    head, tip, x = _short(label, MOST_LETTERS), tag("title", label), f"{middle:.2f}%"
    if not steep:
        return tag("text", head, tip, x=x, y="14", text_anchor="middle")
    return tag("svg", tag("text", head, tip, x=0, y=4, transform="rotate(-90)"), class_="spread", x=x, y=STEEP_TOP - 6)


def _heat_cell(place: tuple[float, float], size: tuple[float, float], number: int, most: int, tip: str) -> list[Svg]:
    (x, y), (wide, high) = place, size
    depth = FAINTEST + (1 - FAINTEST) * min(1.0, number / most)
    across = {"x": f"{x + 0.1:.2f}%", "width": f"{wide - 0.2:.2f}%"}
    cell = tag(
        "rect",
        tag("title", tip),
        class_="heat" if number else "none-here",
        y=y + 1,
        height=high - 2,
        fill_opacity=f"{depth:.3f}" if number else "1",
        **across,
    )
    narrow = wide < (100 - GUTTER) / MANY
    text = tag(
        "text",
        _figure(number, narrow),
        class_=("deep" if depth > 0.55 else "pale") + (" tight" if narrow else ""),
        x=f"{x + wide / 2:.2f}%",
        y=y + high / 2 + 4,
        text_anchor="middle",
    )
    return [cell, text] if number else [cell]


def _figure(number: int, narrow: bool) -> str:
    """Write a count into a cell, in thousands where they would not fit."""
    if number < 1000 or (number < 100_000 and not narrow):
        return f"{number:,}"
    return f"{number / 1000:.1f}k" if number < 9950 else f"{number / 1000:,.0f}k"


def _short(label: str, most: int) -> str:
    return label if len(label) <= most else label[: most - 1] + "…"


# Errors


def _error_lines(findings: tuple[Finding, ...]) -> list[tuple[str, Finding]]:
    """Return the errors of cells, total and sums by what they are of; none if there is no trip to be off by."""
    names = {"RMSE per cell": "cells", "error of the total": "total"}
    found = [(names[item.name], item) for item in findings if item.name in names]
    sums = [item for item in findings if item.name.startswith(_SUMS)]
    found += [(item.name[len(_SUMS) : -1].replace(*_ZONE_PAIR), item) for item in sums]  # short, for narrow screens
    return [(name, item) for name, item in found if item.baseline > 0]


def _error_picture(lines: list[tuple[str, Finding]]) -> dict[str, Any]:
    """Draw errors of cells and sums as a share of what publishing nothing would be off by."""
    shares = [item.value / item.baseline for _, item in lines]
    x = Scale(0.0, 104 * max([*shares, 0.01]))
    height = ROW * len(lines) + 6
    parts = x_axis(x, height, "error, publishing nothing is 100")
    legend = [("load", "released, in per cent of publishing nothing")]
    if x.high > 100:
        parts.append(tag("line", class_="limit", x1=x.across(100), x2=x.across(100), y1="0", y2=height))
        legend.append(("limit", "publishing nothing"))
    for number, ((name, item), share) in enumerate(zip(lines, shares, strict=True)):
        says = f"{name}: {number_text(item.value)} trips (nothing: {number_text(item.baseline)})"
        parts.append(tag("rect", class_="bar", x="0", y=ROW * number + 22, width=x.across(100 * share), height=BAR))
        parts.append(tag("text", says, class_="halo", x="0", y=ROW * number + 16))
    worst = max(zip(shares, lines, strict=True), key=lambda pair: pair[0])
    caption = (
        f"Root mean square error beside that of publishing nothing. Furthest off: {worst[1][0]}, {percent(worst[0])} "
        "of it."
    )
    return {
        "title": "Error by feature",
        "svg": chart(height + 40, parts, label=caption, kind="flat"),
        "caption": caption,
        "legend": legend,
    }


# Trips created


def _created_picture(created: Finding) -> dict[str, Any]:
    """Draw where true trips went, and where released ones come from."""
    kept, lost, added = (int(created.details[name]) for name in ("kept", "lost", "added"))
    made = int(created.value)
    bars = {
        f"truth: {several(kept + lost, 'trip')}": [("bar", kept), ("range", lost)],
        f"release: {several(kept + added + made, 'trip')}": [("bar", kept), ("more", added), ("made", made)],
    }
    x = Scale(0.0, 1.02 * max(kept + lost, kept + added + made, 1))
    height = ROW * len(bars) + 6
    parts = x_axis(x, height, "trips")
    for number, (says, pieces) in enumerate(bars.items()):
        at = 0
        for style, size in pieces:
            place = {"x": x.across(at), "width": x.across(size)}
            parts.append(tag("rect", class_=style, y=ROW * number + 22, height=BAR, **place) if size else Svg())
            at += size
        parts.append(tag("text", says, class_="halo", x="0", y=ROW * number + 16))
    caption = (
        f"{several(kept, 'trip')} {'is' if kept == 1 else 'are'} where {'it was' if kept == 1 else 'they were'}. Lost: "
        f"{lost:,}; added where there are some: {added:,}; created where nobody travelled: {made:,}, in "
        f"{several(int(created.details['cells']), 'cell')}."
    )
    return {
        "title": "Trips created",
        "svg": chart(height + 40, parts, label=caption, kind="flat"),
        "caption": caption,
        "legend": [("load", "kept"), ("range", "lost"), ("more", "added"), ("made", "created in empty cells")],
    }
