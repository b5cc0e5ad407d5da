# SPDX-License-Identifier: Apache-2.0
"""Pictures of estimates from devices: means and maps beside the truth, and how soon a vehicle is found.

Means, maps and sequences of areas compare with the truth and are private; how soon a parked truck is found follows from
the task alone, so that an external audit has it as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from dunnage.auditing.findings import Finding
from dunnage.auditing.run import Audit
from dunnage.svg import Picture, Scale, chart, dot, heat, joined, level, lower_axis, tag, x_axis, y_axis
from dunnage.text import number_text, percent

ROW, HEIGHT, MAP_HEIGHT = 44.0, 220.0, 300.0


def carrier_pictures(audit: Audit) -> dict[str, list[Picture]]:
    def named(start: str, detail: str) -> list[Finding]:
        return [item for item in audit.findings if item.name.startswith(f"{start} (") and detail in item.details]

    means = named("error of the mean", "truth")
    maps = named("total variation distance", "map")
    pictures = {
        "utility": [
            *(one for item in maps for one in _map_pictures(item)),
            *([_means_picture(means)] if means else []),
        ],
        "attributes": [_found_picture(item) for item in named("localisation, 1 day", "curve")],
        "records": [_unique_picture(item) for item in named("unique by areas, 1 hour", "curve")],
    }
    return {topic: drawn for topic, drawn in pictures.items() if drawn}


def _inside(name: str) -> str:
    """Return what stands in the brackets of a name."""
    return name[name.index("(") + 1 : -1]


def _means_picture(items: Sequence[Finding]) -> Picture:
    """Draw each mean with its interval, and the truth, all on the width of its domain."""
    height = ROW * len(items) + 6
    parts = x_axis(Scale(0.0, 100.0), height, "per cent of the domain")
    for number, item in enumerate(items):
        facts, y = item.details, ROW * number + 29
        domain = Scale(float(facts["low"]), float(facts["high"]))
        unit = "" if item.unit == "ratio" else f" {item.unit}"
        value = "no estimate" if facts["value"] is None else f"{number_text(facts['value'])}{unit}"
        says = f"{facts['label']}: {value} (truth {number_text(facts['truth'])})"
        low, high, truth = (domain.at(float(facts[name])) for name in ("lower", "upper", "truth"))
        width = f"{max(high - low, 0.1):.2f}%"
        parts.append(tag("rect", class_="range", x=f"{low:.2f}%", width=width, y=y - 5, height=10))
        parts += joined([(truth, y - 10), (truth, y + 10)], "limit")
        if facts["value"] is not None:
            parts.append(dot(domain.at(float(facts["value"])), y, says))
        parts.append(tag("text", says, class_="halo", x="0", y=y - 13))
    held = sum(item.details["lower"] <= item.details["truth"] <= item.details["upper"] for item in items)
    caption = (
        f"Estimated means with their intervals, on their domains. {held} of {len(items)} intervals hold the truth."
    )
    return Picture(
        title="Means, estimated and true",
        svg=chart(height + 40, parts, label=caption, kind="flat"),
        caption=caption,
        legend=[("range", "interval"), ("first", "estimate"), ("limit", "truth")],
    )


def _map_pictures(item: Finding) -> list[Picture]:
    """Draw a map twice, in one scale of colour: as it is in truth, and as it was estimated."""
    shares = item.details["map"]
    most = max((share for name in ("true", "released") for line in shares[name] for share in line), default=0.0) or 1.0
    pictures = []
    for name, word in (("true", "True"), ("released", "Estimated")):
        lines, title = shares[name], f"{word} shares of {_inside(item.name)}"
        size = len(lines)
        wide, high = 100 / size, MAP_HEIGHT / size
        parts = []
        for row, line in enumerate(lines):
            for column, share in enumerate(line):
                tip = f"column {column + 1} from the west, row {size - row} from the south: {percent(share)}"
                parts.append(heat(column * wide, row * high, wide, high, share / most, tip))
        caption = f"{title}, north above. {percent(sum(map(sum, lines)))} of all are inside the box."
        svg = chart(MAP_HEIGHT, parts, label=caption, kind="flat")
        legend = [("load", f"darkest: {percent(most)}, in both maps")]
        pictures.append(Picture(title=title, svg=svg, caption=caption, legend=legend))
    return pictures


def _found_picture(item: Finding) -> Picture:
    """Draw how often a parked truck is found by the number of its reports, on a scale of powers."""
    curve = item.details["curve"]
    x = Scale(math.log10(float(curve[0][0])), math.log10(float(curve[-1][0])), 2.0, 96.0)
    y = Scale(0.0, 100.0, HEIGHT, 22.0)
    points = [(x.at(math.log10(float(num))), y.at(100 * value)) for num, value, *_ in curve]
    labels = [(f"{across:.2f}%", f"{int(num):,}") for (across, _), (num, *_) in zip(points, curve, strict=True)]
    parts = [*y_axis(y, "found, per cent"), *lower_axis(HEIGHT, "reports of one place", labels)]
    parts += [*joined(points, "mean"), *level(y, 100 * item.baseline)]
    for (across, down), (num, value, low, high) in zip(points, curve, strict=True):
        if low < high:
            parts += joined([(across, y.at(100 * low)), (across, y.at(100 * high))], "axis")
        parts.append(dot(across, down, f"{int(num):,} reports: {percent(value)}"))
    last = curve[-1]
    caption = (
        f"How often a truck that does not move is found: {percent(curve[0][1])} by one report, {percent(last[1])} by "
        f"{int(last[0]):,}. At one slot a day 30 reports take a month; at one every five minutes 12 take an hour."
    )
    return Picture(
        title=f"Finding a parked truck by its {_inside(item.name)}",
        svg=chart(HEIGHT + 42, parts, label=caption),
        caption=caption,
        legend=[("first", "likeliest place is the true one"), ("limit", "without reports")],
    )


def _unique_picture(item: Finding) -> Picture:
    """Draw how many vehicles are alone with their sequence of areas, by hours."""
    facts, curve = item.details, item.details["curve"]
    x = Scale(0.0, max(hours for hours, _ in curve), 0.0, 96.0)
    y = Scale(0.0, 100.0, HEIGHT, 22.0)
    points = [(x.at(hours), y.at(100 * share)) for hours, share in ([0.0, 0.0], *curve)]
    parts = [*y_axis(y, "unique, per cent"), *x_axis(x, HEIGHT, "hours"), *joined(points, "mean")]
    for (across, down), (hours, share) in zip(points[1:], curve, strict=True):
        parts.append(dot(across, down, f"{number_text(hours)} hours: {percent(share)}"))
    caption = (
        f"Vehicles whose sequence of {facts['areas']:,} areas, in clear at every slot from {facts['starts']} UTC on, "
        f"no other vehicle has: {percent(curve[0][1])} after {number_text(curve[0][0])} h, {percent(curve[-1][1])} "
        f"after {number_text(curve[-1][0])} h."
    )
    return Picture(
        title=f"Unique by areas of {_inside(item.name)}",
        svg=chart(HEIGHT + 42, parts, label=caption),
        caption=caption,
        legend=[("first", "vehicles that are alone with their areas")],
    )
