# SPDX-License-Identifier: Apache-2.0
"""Pictures of clustered records: distortion by attribute, what classes cost, and sets of stations on a map.

All of it follows from the release, so that an external audit shows it too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dunnage.auditing.audit import Audit
from dunnage.auditing.finding import Finding, percent
from dunnage.pages.network import MARKS, Map
from dunnage.svg import Scale, Svg, chart, number_text, tag, y_axis

ROW, BAR = 40.0, 14.0
BASE = 178.0
MAP_WIDTH = 440.0
MOST_LABELS_NAMED = 4


def ride_pictures(audit: Audit) -> list[dict[str, Any]]:
    """Draw what an audit found about clustered records."""
    found = {item.name: item for item in audit.findings}
    inside = found.get("distortion by generalisation")
    if inside is None or "costs" not in inside.details or "total distortion" not in found:
        return []
    return [
        _attribute_picture(found),
        _cost_picture(inside, audit.protects),
        *_map_pictures(inside, audit.protects),
    ]


# Distortion by attribute


def _attribute_picture(found: Mapping[str, Finding]) -> dict[str, Any]:
    total = found["total distortion"]
    weights = total.details["weights"]
    lines = [("in total", total)]
    lines += [(f"{name}, weight {percent(weight)}", found[f"distortion ({name})"]) for name, weight in weights.items()]
    x = Scale(0.0, 1.04 * max(item.value for _, item in lines) or 1.0)
    height = ROW * len(lines) + 4
    parts = _percent_axis(x, height, "distortion")
    for number, (words, item) in enumerate(lines):
        parts += _attribute_bar(x, ROW * number, words, item)
    most = max(weights, key=lambda name: found[f"distortion ({name})"].value)
    caption = (
        f"{percent(total.value)} is lost in total, most of {most}: {percent(found[f'distortion ({most})'].value)}."
    )
    legend = [("load", "by generalisation")]
    if total.details["by_suppression"]:
        legend.append(("range", "by suppression"))
    return {
        "title": "Distortion by attribute",
        "svg": chart(height + 40, parts, label=caption, kind="flat"),
        "caption": caption,
        "legend": legend,
    }


def _attribute_bar(x: Scale, top: float, words: str, item: Finding) -> list[Svg]:
    """Draw the distortion of one attribute: that of released records, then the share of suppressed ones."""
    lost = float(item.details["by_suppression"])
    inside = item.value - lost
    says = f"{words}: {percent(item.value)}"
    parts = [
        tag("text", says, class_="halo", x="0", y=top + 15),
        tag("rect", class_="bar", x="0", y=top + 20, width=x.across(inside), height=BAR),
    ]
    if lost:
        parts.append(tag("rect", class_="range", x=x.across(inside), y=top + 20, width=x.across(lost), height=BAR))
    return parts


def _percent_axis(x: Scale, y: float, title: str) -> list[Svg]:
    """Draw an axis of shares below, in per cent."""
    parts = [tag("line", class_="axis", x1="0", x2="100%", y1=y, y2=y)]
    for value in x.ticks(6):
        place = x.across(value)
        parts.append(tag("line", class_="grid", x1=place, x2=place, y1="0", y2=y + 4))
        anchor = "start" if value == x.low else "middle"
        parts.append(tag("text", percent(value), x=place, y=y + 17, text_anchor=anchor))
    return [*parts, tag("text", title, class_="name", x="100%", y=y + 34, text_anchor="end")]


# What classes cost


def _cost_picture(inside: Finding, record: str) -> dict[str, Any]:
    costs = inside.details["costs"]
    step, records = float(costs["step"]), [int(number) for number in costs["records"]]
    x = Scale(0.0, step * max(len(records), 4))
    y = Scale(0.0, 1.05 * max(records), BASE, 38.0)
    bars = [_cost_bar(x, y, step, place, number, record) for place, number in enumerate(records) if number]
    line = tag("line", class_="limit", x1=x.across(inside.value), x2=x.across(inside.value), y1=20, y2=BASE)
    name = tag("text", f"mean {percent(inside.value)}", class_="halo", x=x.across(inside.value), dx="5", y=30)
    axis = _percent_axis(x, BASE, f"cost of the class of a {record}")
    caption = (
        f"Half of the {record}s are in classes that leave at most {percent(costs['median'])} of them open; the "
        f"dearest class leaves {percent(costs['highest'])}."
    )
    parts = [*y_axis(y, f"{record}s", whole=True), *axis, *bars, line, name]
    return {
        "title": "What classes cost",
        "svg": chart(218, parts, label=caption),
        "caption": caption,
        "legend": [("load", f"{record}s in classes of this cost")],
    }


def _cost_bar(x: Scale, y: Scale, step: float, place: int, number: int, record: str) -> Svg:
    tip = tag("title", f"{number:,} {record}s: {percent(step * place)} to {percent(step * (place + 1))}")
    top, width = y.at(number), x.at(step) - x.at(0.0)
    left = f"{(place + 0.06) * width:.2f}%"
    return tag("rect", tip, class_="bar", x=left, width=f"{0.88 * width:.2f}%", y=top, height=BASE - top)


# Sets of stations


def _map_pictures(inside: Finding, record: str) -> list[dict[str, Any]]:
    """Draw the sets of some classes, from cheap to dear, on a map of their network."""
    network = inside.details.get("network")
    if network is None:
        return []
    names = network["attributes"][: len(MARKS)]
    map_ = Map.of(network["edges"])
    return [_map_picture(map_, names, item, inside.details["units"], record) for item in inside.details["classes"]]


def _map_picture(
    map_: Map, names: list[str], item: Mapping[str, Any], units: Mapping[str, str], record: str
) -> dict[str, Any]:
    told = item["told"]
    sets = {name: told[name] for name in names}
    width, height = map_.size(width=MAP_WIDTH)
    caption = f"{told['size']:,} {record}s look alike: {'; '.join(_told_texts(told, units))}."
    picture = tag(
        "svg",
        map_.drawn(sets, width=MAP_WIDTH),
        class_="chart map",
        viewBox=f"0 0 {width:.0f} {height:.0f}",
        role="img",
        aria_label=caption,
    )
    return {
        "title": f"Class {told['class_id']:,}, cost {percent(item['cost'])}",
        "svg": picture,
        "caption": caption,
        "legend": list(zip(MARKS, names, strict=False)),
    }


def _told_texts(told: Mapping[str, Any], units: Mapping[str, str]) -> list[str]:
    """Write what a class tells, attribute by attribute."""
    texts = []
    for column, value in told.items():
        name = column.removesuffix("_lower")
        if isinstance(value, list):
            texts.append(f"{name} {_labels(value)}")
        elif name in units and name != column:
            end = f"{number_text(told[f'{name}_upper'])} {units[name]}".rstrip()
            texts.append(f"{name} {number_text(value)} to {end}")
        elif isinstance(value, str):
            texts.append(f"{name} {value}")
    return texts


def _labels(labels: list[str]) -> str:
    named = ", ".join(labels[:MOST_LABELS_NAMED])
    return named if len(labels) <= MOST_LABELS_NAMED else f"one of {len(labels)} ({named}, …)"
