# SPDX-License-Identifier: Apache-2.0
"""A schematic map of a network: places for its vertices, and the sets of some of them drawn upon it.

References
----------
Gansner, Koren, North 2004, Graph Drawing by Stress Majorization.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dunnage.arrays import FloatArray
from dunnage.svg import Svg, tag

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
