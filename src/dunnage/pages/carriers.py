# SPDX-License-Identifier: Apache-2.0
"""Pictures of estimates from devices: means and maps beside the truth, and how soon a vehicle is found.

Means, maps and sequences of areas compare with the truth and are private; how soon a parked truck is found follows from
the task alone, so that an external audit has it as well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from dunnage.auditing.audit import Audit
from dunnage.auditing.finding import Finding
from dunnage.svg import Scale, Svg, chart, tag, x_axis, y_axis
from dunnage.text import number_text, percent

ROW, DOT = 44.0, 5.0
HEIGHT = 220.0
MAP_HEIGHT = 300.0
FAINTEST = 0.05
"""How much of the colour a cell with a share above 0 has at least."""
_MEAN, _FOUND, _UNIQUE, _MAP = (
    "error of the mean (",
    "localisation, 1 day (",
    "unique by areas, 1 hour (",
    "total variation distance (",
)


def carrier_pictures(audit: Audit) -> dict[str, list[dict[str, Any]]]:
    """Draw what an audit found about estimates from devices."""
    found = audit.findings
    means = [item for item in found if item.name.startswith(_MEAN)]
    maps = [item for item in found if item.name.startswith(_MAP) and "map" in item.details]
    located = [item for item in found if item.name.startswith(_FOUND) and "curve" in item.details]
    unique = [item for item in found if item.name.startswith(_UNIQUE) and "curve" in item.details]
    pictures = {
        "utility": [*(p for item in maps for p in _map_pictures(item)), *([_means_picture(means)] if means else [])],
        "attributes": [_found_picture(item) for item in located],
        "records": [_unique_picture(item) for item in unique],
    }
    return {topic: drawn for topic, drawn in pictures.items() if drawn}


def _inside(name: str) -> str:
    """Return what stands in the brackets of a name."""
    return name[name.index("(") + 1 : -1]


# Means


def _means_picture(items: Sequence[Finding]) -> dict[str, Any]:
    """Draw each mean with its interval, and the truth, all on the width of its domain."""
    x = Scale(0.0, 100.0)
    height = ROW * len(items) + 6
    parts = x_axis(x, height, "per cent of the domain")
    for number, item in enumerate(items):
        parts += _mean_line(item, ROW * number)
    held = sum(item.details["lower"] <= item.details["truth"] <= item.details["upper"] for item in items)
    caption = (
        f"Estimated means with their intervals, on their domains. {held} of {len(items)} intervals hold the truth."
    )
    return {
        "title": "Means, estimated and true",
        "svg": chart(height + 40, parts, label=caption, kind="flat"),
        "caption": caption,
        "legend": [("range", "interval"), ("first", "estimate"), ("limit", "truth")],
    }


def _mean_line(item: Finding, top: float) -> list[Svg]:
    facts = item.details
    domain = Scale(float(facts["low"]), float(facts["high"]))
    unit = "" if item.unit == "ratio" else f" {item.unit}"
    value = "no estimate" if facts["value"] is None else f"{number_text(facts['value'])}{unit}"
    says = f"{facts['label']}: {value} (truth {number_text(facts['truth'])})"
    low, high = (domain.at(float(facts[end])) for end in ("lower", "upper"))
    parts = [
        tag("rect", class_="range", x=f"{low:.2f}%", width=f"{max(high - low, 0.1):.2f}%", y=top + 24, height=10),
        tag(
            "line",
            class_="limit",
            x1=_at(domain, facts["truth"]),
            x2=_at(domain, facts["truth"]),
            y1=top + 19,
            y2=top + 39,
        ),
    ]
    if facts["value"] is not None:
        parts.append(
            tag("circle", tag("title", says), class_="first", cx=_at(domain, facts["value"]), cy=top + 29, r=DOT)
        )
    return [*parts, tag("text", says, class_="halo", x="0", y=top + 16)]


def _at(scale: Scale, value: float) -> str:
    return scale.across(float(value))


# Maps


def _map_pictures(item: Finding) -> list[dict[str, Any]]:
    """Draw a map twice, in one scale of colour: as it is in truth, and as it was estimated."""
    shares = item.details["map"]
    most = max((share for name in ("true", "released") for line in shares[name] for share in line), default=0.0) or 1.0
    words = {"true": "True", "released": "Estimated"}
    return [_map(shares[name], most, f"{words[name]} shares of {_inside(item.name)}") for name in words]


def _map(lines: Sequence[Sequence[float]], most: float, title: str) -> dict[str, Any]:
    size = len(lines)
    wide, high = 100 / size, MAP_HEIGHT / size
    parts = []
    for row, line in enumerate(lines):
        for column, share in enumerate(line):
            tip = f"column {column + 1} from the west, row {size - row} from the south: {percent(share)}"
            depth = FAINTEST + (1 - FAINTEST) * min(1.0, share / most)
            parts.append(
                tag(
                    "rect",
                    tag("title", tip),
                    class_="heat" if share > 0 else "none-here",
                    x=f"{column * wide:.3f}%",
                    y=row * high,
                    width=f"{wide:.3f}%",
                    height=high,
                    fill_opacity=f"{depth:.3f}" if share > 0 else "1",
                )
            )
    inside = sum(map(sum, lines))
    caption = f"{title}, north above. {percent(inside)} of all are inside the box."
    return {
        "title": title,
        "svg": chart(MAP_HEIGHT, parts, label=caption, kind="flat"),
        "caption": caption,
        "legend": [("load", f"darkest: {percent(most)}, in both maps")],
    }


# Curves


def _found_picture(item: Finding) -> dict[str, Any]:
    """Draw how often a parked truck is found by the number of its reports, on a scale of powers."""
    curve = item.details["curve"]
    x = Scale(math.log10(float(curve[0][0])), math.log10(float(curve[-1][0])), 2.0, 96.0)
    y = Scale(0.0, 100.0, HEIGHT, 22.0)
    points = [(x.at(math.log10(float(num))), y.at(100 * value)) for num, value, *_ in curve]
    parts = [*y_axis(y, "found, per cent"), *_polyline(points)]
    parts.append(
        tag("line", class_="limit", x1="0", x2="100%", y1=y.at(100 * item.baseline), y2=y.at(100 * item.baseline))
    )
    for (across, down), (num, value, low, high) in zip(points, curve, strict=True):
        if low < high:
            place = {"x1": f"{across:.2f}%", "x2": f"{across:.2f}%"}
            parts.append(tag("line", class_="axis", y1=y.at(100 * low), y2=y.at(100 * high), **place))
        tip = tag("title", f"{int(num):,} reports: {percent(value)}")
        parts.append(tag("circle", tip, class_="first", cx=f"{across:.2f}%", cy=down, r=DOT))
        parts.append(tag("text", f"{int(num):,}", x=f"{across:.2f}%", y=HEIGHT + 18, text_anchor="middle"))
    parts.append(tag("text", "reports of one place", class_="name", x="100%", y=HEIGHT + 36, text_anchor="end"))
    last = curve[-1]
    caption = (
        f"How often a truck that does not move is found: {percent(curve[0][1])} by one report, {percent(last[1])} by "
        f"{int(last[0]):,}. At one slot a day 30 reports take a month; at one every five minutes 12 take an hour."
    )
    return {
        "title": f"Finding a parked truck by its {_inside(item.name)}",
        "svg": chart(HEIGHT + 42, parts, label=caption),
        "caption": caption,
        "legend": [("first", "likeliest place is the true one"), ("limit", "without reports")],
    }


def _polyline(points: Sequence[tuple[float, float]]) -> list[Svg]:
    """Draw straight lines between points; a line may end in per cent, a path may not."""
    return [
        tag("line", class_="mean", x1=f"{x1:.2f}%", y1=y1, x2=f"{x2:.2f}%", y2=y2)
        for (x1, y1), (x2, y2) in pairwise(points)
    ]


def _unique_picture(item: Finding) -> dict[str, Any]:
    """Draw how many vehicles are alone with their sequence of areas, by hours."""
    curve: Sequence[Sequence[float]] = item.details["curve"]
    facts: Mapping[str, Any] = item.details
    x = Scale(0.0, max(hours for hours, _ in curve), 0.0, 96.0)
    y = Scale(0.0, 100.0, HEIGHT, 22.0)
    points = [(x.at(hours), y.at(100 * share)) for hours, share in ([0.0, 0.0], *curve)]
    parts = [*y_axis(y, "unique, per cent"), *x_axis(x, HEIGHT, "hours"), *_polyline(points)]
    for (across, down), (hours, share) in zip(points[1:], curve, strict=True):
        tip = tag("title", f"{number_text(hours)} hours: {percent(share)}")
        parts.append(tag("circle", tip, class_="first", cx=f"{across:.2f}%", cy=down, r=DOT))
    caption = (
        f"Vehicles whose sequence of {facts['areas']:,} areas, in clear at every slot from {facts['starts']} UTC on, "
        f"no other vehicle has: {percent(curve[0][1])} after {number_text(curve[0][0])} h, {percent(curve[-1][1])} "
        f"after {number_text(curve[-1][0])} h."
    )
    return {
        "title": f"Unique by areas of {_inside(item.name)}",
        "svg": chart(HEIGHT + 42, parts, label=caption),
        "caption": caption,
        "legend": [("first", "vehicles that are alone with their areas")],
    }
