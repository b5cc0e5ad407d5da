# SPDX-License-Identifier: Apache-2.0
"""What tests of counts share: tiny universes, scripted noise, and the exact law of a release."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np

import dunnage as dn
from dunnage.kernels.counts.laplace import CountLaw
from dunnage.mechanisms.counts import Counted, NoisyQueries
from dunnage.model.trips import Universe

SCHEMA: Any = SimpleNamespace(
    tells_days=False, protects="trip", trip=True, level="stop", ends=("origin", "destination")
)
Outcome = tuple[tuple[int, int], ...]


def universe(num_stops: int = 1, num_windows: int = 2, *, city: bool = False) -> Universe:
    stops = tuple(f"S{i}" for i in range(num_stops))
    windows = tuple(f"{8 + i // 2:02d}:{30 * (i % 2):02d}" for i in range(num_windows))
    if not city:
        return Universe(stops=stops, windows=windows, window_minutes=30)
    zones = np.arange(num_stops, dtype=np.int32) % 2
    modes = ((np.add.outer(np.arange(num_stops), 2 * np.arange(num_stops))) % 3).astype(np.int16)
    facts = dn.City(stops=stops, zone_names=("a", "b"), zones=zones, mode_names=("x", "y", "z"), modes=modes)
    return Universe(stops=stops, windows=windows, window_minutes=30, city=facts)


def counted(of: Universe, counts: Sequence[int]) -> Counted:
    dense = np.asarray(counts, dtype=np.int64)
    cells = np.flatnonzero(dense)
    return Counted(universe=of, cells=cells, counts=dense[cells])


def asked(mechanism: Any, of: Universe, law: Callable[[Fraction], CountLaw]) -> NoisyQueries:
    return NoisyQueries.of(of, mechanism.queries(SCHEMA), mechanism.epsilon, 1, law)


@dataclass(frozen=True)
class Scripted:
    """Noise that is what a test says."""

    name: ClassVar[str] = "discrete"
    scale: Fraction
    values: tuple[int, ...]

    def draw(self, noise: dn.Noise, size: int) -> Any:
        assert size == len(self.values)
        return np.array(self.values)

    @property
    def spread(self) -> float:
        return 1.0

    def above(self, threshold: int) -> float:
        return 0.0


def outcome(mechanism: Any, question: NoisyQueries, noisy: Sequence[Sequence[int]]) -> Outcome:
    """Run a mechanism on noisy answers, the cells first; chance after the noise is the same in every run."""
    laws = tuple(Scripted(law.scale, tuple(row)) for law, row in zip(question.laws, noisy, strict=True))
    nothing = Counted(universe=question.universe, cells=np.zeros(0, np.int64), counts=np.zeros(0, np.int64))
    drawn = mechanism.draw_counts(nothing, replace(question, laws=laws), dn.Noise(seed=1))
    return tuple(zip(drawn.cells.tolist(), drawn.counts.tolist(), strict=True))


def outcomes(mechanism: Any, question: NoisyQueries, reach: int, most: int) -> dict[tuple[int, ...], Outcome]:
    """Return what is released for all noisy answers within ``reach`` of the sums of at most ``most`` trips."""
    span = range(-reach, reach + most + 1)
    sizes = question.sizes
    ends = list(itertools.accumulate(sizes))
    found = {}
    for flat in itertools.product(span, repeat=sum(sizes)):
        rows = [flat[end - size : end] for end, size in zip(ends, sizes, strict=True)]
        found[flat] = outcome(mechanism, question, rows)
    return found


def answers(question: NoisyQueries, counts: Sequence[int]) -> tuple[int, ...]:
    """Return the true answers to all queries, the cells first, in the order that the mechanism keeps them in."""
    from dunnage.mechanisms.counts import Layout

    table = counted(question.universe, counts)
    layout = Layout.of(question.universe, question.features)
    groups, ranks = layout.places(np.arange(question.universe.num_cells))
    dense = np.zeros(question.universe.num_cells, dtype=np.int64)
    dense[layout.starts[groups] + ranks] = counts
    pairs, slots = question.universe.split(table.cells)
    sums = [feature.sums(pairs, slots, table.counts) for feature in question.features]
    return tuple(int(value) for value in np.concatenate([dense, *sums]))


def law_of(
    found: Mapping[tuple[int, ...], Outcome], true: Sequence[int], chances: Sequence[Callable[[int], float]]
) -> dict[Outcome, float]:
    """Return the exact law of the release, as far as the tabulated answers reach."""
    law: dict[Outcome, float] = defaultdict(float)
    for flat, result in found.items():
        law[result] += math.prod(
            chance(value - exact) for value, exact, chance in zip(flat, true, chances, strict=True)
        )
    return dict(law)


def discrete_laplace(scale: Fraction) -> Callable[[int], float]:
    """Return the probabilities of discrete Laplace noise, worked out anew."""
    ratio = math.exp(-1 / float(scale))
    table: dict[int, float] = {}

    def chance(value: int) -> float:
        if value not in table:
            table[value] = (1 - ratio) / (1 + ratio) * ratio ** abs(value)
        return table[value]

    return chance
