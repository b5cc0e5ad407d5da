# SPDX-License-Identifier: Apache-2.0
"""Pictures of clustered records: distortion by attribute, what classes cost, and sets of stations on a map.

All of it follows from the release, so that an external audit shows it too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from dunnage.arrays import FloatArray
from dunnage.auditing.audit import Audit
from dunnage.auditing.finding import Finding
from dunnage.svg import Scale, Svg, chart, tag, y_axis
from dunnage.text import number_text, percent

# --- A schematic map of a network: places for its vertices, and the sets of some of them drawn upon it.
#
# References
# ----------
# Gansner, Koren, North 2004, Graph Drawing by Stress Majorization.


ROUNDS = 200
NUDGE = 0.01
"""Vertices that would lie on each other are moved apart by so much of an edge, before places are improved."""
GOLDEN_ANGLE = 2.399963229728653
MARKS = ("first", "second")
"""Styles of sets: a dot, and a ring around it."""


@dataclass(frozen=True, eq=False)
class Map:
    """Places of the vertices of a network, the same whenever it is drawn."""

    places: Mapping[str, tuple[float, float]]  # Across and down of each vertex, as shares of the width
    edges: tuple[tuple[str, str], ...]  # Pairs of neighbours

    @classmethod
    def of(cls, edges: Sequence[Sequence[str]]) -> Map:
        """Lay out a network by its edges, each as long as the others as far as possible."""
        return _laid_out(tuple((start, end) for start, end, *_ in edges))

    @property
    def height(self) -> float:
        """Its height, over its width."""
        return max(down for _, down in self.places.values())

    def drawn(self, sets: Mapping[str, Sequence[str]], *, width: float, room: float = 10.0) -> Svg:
        """Draw the network and some sets of its vertices; the first two have marks."""
        at = {name: (room + x * width, room + y * width) for name, (x, y) in self.places.items()}
        lines = " ".join(f"M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" for (x1, y1), (x2, y2) in self._ends(at))
        parts = [tag("path", class_="edge", d=lines)]
        parts += [tag("circle", class_="vertex", cx=x, cy=y, r=1.8) for x, y in at.values()]
        for kind, radius, (name, members) in zip(MARKS, (4.5, 7.5), sets.items(), strict=False):
            for vertex in members:
                tip = tag("title", f"{vertex}: {name}")
                parts.append(tag("circle", tip, class_=kind, cx=at[vertex][0], cy=at[vertex][1], r=radius))
        return tag("g", *parts)

    def size(self, *, width: float, room: float = 10.0) -> tuple[float, float]:
        """Return width and height of what is drawn, in pixels."""
        return width + 2 * room, self.height * width + 2 * room

    def _ends(self, at: Mapping[str, tuple[float, float]]) -> list[tuple[tuple[float, float], tuple[float, float]]]:
        return [(at[start], at[end]) for start, end in self.edges]


@lru_cache(maxsize=4)
def _laid_out(edges: tuple[tuple[str, str], ...]) -> Map:
    names = sorted({name for edge in edges for name in edge})
    places = _places(_hops(edges, names))
    low = places.min(axis=0)
    width = float(np.ptp(places[:, 0])) or 1.0
    scaled = ((places - low) / width).tolist()
    return Map({name: (x, y) for name, (x, y) in zip(names, scaled, strict=True)}, edges)


def _hops(edges: Sequence[tuple[str, str]], names: Sequence[str]) -> FloatArray:
    """Count the edges of the shortest way between any two vertices, whichever way an edge leads."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import shortest_path

    code = {name: number for number, name in enumerate(names)}
    ends = np.array([(code[start], code[end]) for start, end in edges]).T
    table = csr_matrix((np.ones(len(edges)), (ends[0], ends[1])), shape=(len(names), len(names)))
    return np.asarray(shortest_path(table, directed=False, unweighted=True))


def _places(hops: FloatArray) -> FloatArray:
    """Find places whose distances are near those given; near vertices count most. Shape: vertices, 2."""
    num = len(hops)
    places = _projected(hops)
    turns = GOLDEN_ANGLE * np.arange(num)
    places += NUDGE * np.stack([np.cos(turns), np.sin(turns)], axis=1)
    apart = np.where(hops > 0, hops, 1.0)
    weights = np.where(hops > 0, apart**-2, 0.0)
    solved = np.linalg.pinv(np.diag(weights.sum(axis=1)) - weights)
    for _ in range(ROUNDS):
        now = np.linalg.norm(places[:, None] - places, axis=2)
        pull = -weights * apart / np.where(now > 0, now, np.inf)
        np.fill_diagonal(pull, 0.0)
        np.fill_diagonal(pull, -pull.sum(axis=1))
        places = solved @ (pull @ places)
    return _turned(places)


def _projected(hops: FloatArray) -> FloatArray:
    """Return the plane that shows most of the distances (classical scaling)."""
    middle = np.eye(len(hops)) - 1 / len(hops)
    values, vectors = np.linalg.eigh(-middle @ hops**2 @ middle / 2)
    return np.asarray(vectors[:, -2:] * np.sqrt(np.maximum(values[-2:], 0.0)))


def _turned(places: FloatArray) -> FloatArray:
    """Turn the longest side across; the first vertex lies in the left upper quarter."""
    centred = places - places.mean(axis=0)
    _, axes = np.linalg.eigh(centred.T @ centred)
    turned = centred @ axes[:, ::-1]
    return np.asarray(turned * np.where(turned[0] > 0, -1.0, 1.0))


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
    return [_attribute_picture(found), _cost_picture(inside, audit.protects), *_map_pictures(inside, audit.protects)]


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
