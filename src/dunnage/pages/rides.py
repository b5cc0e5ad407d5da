# SPDX-License-Identifier: Apache-2.0
"""Pictures of clustered records: distortion by attribute, what classes cost, and sets of stations on a map.

All of it follows from the release, so that an external audit shows it too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dunnage.arrays import FloatArray
from dunnage.auditing.findings import Finding
from dunnage.auditing.run import Audit
from dunnage.svg import Picture, Scale, Svg, bar_rows, chart, column, share_axis, tag, upright, y_axis
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
        return max(down for _, down in self.places.values())

    def drawn(self, sets: Mapping[str, Sequence[str]], *, width: float, room: float = 10.0) -> Svg:
        """Draw the network and some sets of its vertices; the first two have marks."""
        at = {name: (room + x * width, room + y * width) for name, (x, y) in self.places.items()}
        ends = [(*at[start], *at[end]) for start, end in self.edges]
        lines = " ".join(f"M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" for x1, y1, x2, y2 in ends)
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


@lru_cache(maxsize=4)
def _laid_out(edges: tuple[tuple[str, str], ...]) -> Map:
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import shortest_path

    names = sorted({name for edge in edges for name in edge})
    code = {name: number for number, name in enumerate(names)}
    ends = np.array([(code[start], code[end]) for start, end in edges]).T
    table = csr_matrix((np.ones(len(edges)), (ends[0], ends[1])), shape=(len(names), len(names)))
    # Edges of the shortest way between any two vertices, whichever way an edge leads.
    places = _places(np.asarray(shortest_path(table, directed=False, unweighted=True)))
    width = float(np.ptp(places[:, 0])) or 1.0
    scaled = ((places - places.min(axis=0)) / width).tolist()
    return Map({name: (x, y) for name, (x, y) in zip(names, scaled, strict=True)}, edges)


def _places(hops: FloatArray) -> FloatArray:
    """Find places whose distances are near those given; near vertices count most. Shape: vertices, 2."""
    num = len(hops)
    # Classical scaling: the plane that shows most of the distances.
    middle = np.eye(num) - 1 / num
    values, vectors = np.linalg.eigh(-middle @ hops**2 @ middle / 2)
    places = np.asarray(vectors[:, -2:] * np.sqrt(np.maximum(values[-2:], 0.0)))
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
    # The longest side lies across; the first vertex is in the left upper quarter.
    centred = places - places.mean(axis=0)
    _, axes = np.linalg.eigh(centred.T @ centred)
    turned = centred @ axes[:, ::-1]
    return np.asarray(turned * np.where(turned[0] > 0, -1.0, 1.0))


ROW, BASE, MAP_WIDTH = 40.0, 178.0, 440.0
MOST_LABELS_NAMED = 4


def ride_pictures(audit: Audit) -> list[Picture]:
    found = {item.name: item for item in audit.findings}
    inside = found.get("distortion by generalisation")
    if inside is None or "costs" not in inside.details or "total distortion" not in found:
        return []
    return [_attribute_picture(found), _cost_picture(inside, audit.protects), *_map_pictures(inside, audit.protects)]


def _attribute_picture(found: Mapping[str, Finding]) -> Picture:
    """Draw distortion by attribute: that of released records, then the share of suppressed ones."""
    total = found["total distortion"]
    weights = total.details["weights"]
    lines = [("in total", total)]
    lines += [(f"{name}, weight {percent(weight)}", found[f"distortion ({name})"]) for name, weight in weights.items()]
    x = Scale(0.0, 1.04 * max(item.value for _, item in lines) or 1.0)
    height = ROW * len(lines) + 4
    rows = []
    for words, item in lines:
        lost = float(item.details["by_suppression"])
        rows.append((f"{words}: {percent(item.value)}", [[("bar", item.value - lost), ("range", lost)]]))
    most = max(weights, key=lambda name: found[f"distortion ({name})"].value)
    caption = (
        f"{percent(total.value)} is lost in total, most of {most}: {percent(found[f'distortion ({most})'].value)}."
    )
    parts = [*share_axis(x, height, "distortion"), *bar_rows(x, rows, row=ROW)]
    return Picture(
        title="Distortion by attribute",
        svg=chart(height + 40, parts, label=caption, kind="flat"),
        caption=caption,
        legend=[("load", "by generalisation"), ("range", "by suppression")][
            : 1 + bool(total.details["by_suppression"])
        ],
    )


def _cost_picture(inside: Finding, record: str) -> Picture:
    """Draw how many records are in classes of which cost."""
    costs = inside.details["costs"]
    step, records = float(costs["step"]), [int(number) for number in costs["records"]]
    x = Scale(0.0, step * max(len(records), 4))
    y = Scale(0.0, 1.05 * max(records), BASE, 38.0)
    parts = [*y_axis(y, f"{record}s", whole=True), *share_axis(x, BASE, f"cost of the class of a {record}")]
    for place, number in enumerate(records):
        tip = f"{number:,} {record}s: {percent(step * place)} to {percent(step * (place + 1))}"
        parts += column(x.at(step * place), x.at(step), y, [("bar", number)], tip)
    parts += upright(x, inside.value, BASE, f"mean {percent(inside.value)}")
    caption = (
        f"Half of the {record}s are in classes that leave at most {percent(costs['median'])} of them open; the "
        f"dearest class leaves {percent(costs['highest'])}."
    )
    return Picture(
        title="What classes cost",
        svg=chart(218, parts, label=caption),
        caption=caption,
        legend=[("load", f"{record}s in classes of this cost")],
    )


def _map_pictures(inside: Finding, record: str) -> list[Picture]:
    """Draw the sets of some classes, from cheap to dear, on a map of their network."""
    network, units = inside.details.get("network"), inside.details["units"]
    if network is None:
        return []
    names = network["attributes"][: len(MARKS)]
    map_ = Map.of(network["edges"])
    width, height = map_.size(width=MAP_WIDTH)
    size = f"0 0 {width:.0f} {height:.0f}"
    pictures = []
    for item in inside.details["classes"]:
        told, texts = item["told"], []
        for name_of_column, value in told.items():
            name = name_of_column.removesuffix("_lower")
            if isinstance(value, list):
                named = ", ".join(value[:MOST_LABELS_NAMED])
                few = len(value) <= MOST_LABELS_NAMED
                texts.append(f"{name} {named if few else f'one of {len(value)} ({named}, …)'}")
            elif name in units and name != name_of_column:
                end = f"{number_text(told[f'{name}_upper'])} {units[name]}".rstrip()
                texts.append(f"{name} {number_text(value)} to {end}")
            elif isinstance(value, str):
                texts.append(f"{name} {value}")
        caption = f"{told['size']:,} {record}s look alike: {'; '.join(texts)}."
        drawing = map_.drawn({name: told[name] for name in names}, width=MAP_WIDTH)
        pictures.append(
            Picture(
                title=f"Class {told['class_id']:,}, cost {percent(item['cost'])}",
                svg=tag("svg", drawing, class_="chart map", viewBox=size, role="img", aria_label=caption),
                caption=caption,
                legend=list(zip(MARKS, names, strict=False)),
            )
        )
    return pictures
