# SPDX-License-Identifier: Apache-2.0
"""Design laws for one number by linear programming, and write the table that devices read.

A law reports one of some intervals of the points of a number, an interval with the point in it with odds e^epsilon
against any other of the same weight. Any law of this privacy loss can be split into such reports (they are the extreme
rays of all columns whose entries are within e^epsilon of each other), so the program over all intervals and values of a
report finds the least worst variance, up to its grid of values. The weights of intervals are a flow from the first
point to beyond the last: a mixture of ways to cut all points into intervals. Rounded to whole numbers, way by way, they
still cover every point equally, so the law is exact for every epsilon; values are then computed from it
(``dunnage.devices.numbers.Designed``).

    python -m benchmarks.designs > src/dunnage/devices/designs.py
"""

from __future__ import annotations

import math
import textwrap
from collections import defaultdict
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from dunnage.arrays import FloatArray

WEIGHT = 4096  # sum of the weights of the ways to cut all points into intervals
DIGITS = 4  # decimals of a value
VALUES = 81  # values of a report that the program tries
EPSILONS = [Fraction(quarter, 4) for quarter in (*range(2, 12), *range(12, 25, 2))]
FINE = 3  # from this epsilon on there are more points, and values are tried only near the middle of their interval
NEAR = 0.5

Arc = tuple[int, int]  # an interval of points, as its first one and the one after its last


class Designs(NamedTuple):
    variance: float
    weights: dict[Arc, float]
    values: dict[Arc, float]


def solve(epsilon: float, points: int, values: FloatArray) -> Designs:
    """Return the law of least worst variance on points -points .. points, with values on a grid."""
    from scipy.optimize import linprog

    odds, num = math.exp(epsilon), 2 * points + 1
    at = np.arange(-points, points + 1) / points
    arcs = [(first, stop) for first in range(num) for stop in range(first + 1, num + 1)]
    first, stop = (np.repeat([arc[end] for arc in arcs], len(values)) for end in (0, 1))
    value = np.tile(values, len(arcs))
    if epsilon >= FINE:
        near = np.abs(value - ((first + stop - 1) / 2 - points) / points) <= NEAR
        near &= stop - first <= points
        first, stop, value = first[near], stop[near], value[near]
    point = np.arange(num)[:, None]
    chance = 1 + (odds - 1) * ((point >= first) & (point < stop))
    squares = chance * value**2
    # Between two points the second moment is on a line, and less the square it is largest near the middle.
    rows = np.concatenate([squares, (squares[1:] + squares[:-1]) / 2])
    limits = np.concatenate([at, (at[1:] + at[:-1]) / 2]) ** 2
    equal = np.concatenate([chance, chance * value])
    answer = linprog(
        np.append(np.zeros(len(value)), 1.0),
        A_ub=np.column_stack([rows, -np.ones(len(rows))]),
        b_ub=limits,
        A_eq=np.column_stack([equal, np.zeros(len(equal))]),
        b_eq=np.concatenate([np.ones(num), at]),
        method="highs",
    )
    weights, sums = defaultdict[Arc, float](float), defaultdict[Arc, float](float)
    for column in np.flatnonzero(answer.x[:-1] > 1e-12).tolist():
        arc = int(first[column]), int(stop[column])
        for own, sign in ((arc, 1), ((num - arc[1], num - arc[0]), -1)):  # and its mirror image
            weights[own] += answer.x[column]
            sums[own] += sign * answer.x[column] * value[column]
    return Designs(answer.fun, weights, {arc: sums[arc] / weights[arc] for arc in weights})


def rounded(weights: dict[Arc, float], num: int) -> dict[Arc, int]:
    """Round the flow way by way, the widest first, to whole numbers."""
    left, ways = dict(weights), list[tuple[float, list[Arc]]]()
    whole = sum(weight for (first, _), weight in weights.items() if first == 0)
    while True:
        width, before = [math.inf] + [0.0] * num, list[Arc | None]([None] * (num + 1))
        for first, stop in sorted(left):  # by first point: widths before it are final
            through = min(width[first], left[first, stop])
            if through > width[stop]:
                width[stop], before[stop] = through, (first, stop)
        if width[num] < whole / (4 * WEIGHT):
            break
        way, at = list[Arc](), num
        while at:
            arc = before[at]
            assert arc is not None
            way, at = [arc, *way], arc[0]
        for arc in way:
            left[arc] -= width[num]
        ways.append((width[num], way))
    shares = np.array([width for width, _ in ways])
    shares = WEIGHT * shares / shares.sum()
    numbers = np.floor(shares).astype(int)
    numbers[np.argsort(numbers - shares)[: WEIGHT - numbers.sum()]] += 1
    counts = defaultdict[Arc, int](int)
    for number, (_, way) in zip(numbers.tolist(), ways, strict=True):
        for first, stop in way if number else ():
            counts[first, stop] += number
            counts[num - stop, num - first] += number
    return {arc: count for arc, count in sorted(counts.items()) if count}


def main() -> None:
    print("# SPDX-License-Identifier: Apache-2.0")
    print('"""Laws for one number by epsilon, from ``benchmarks/designs.py``."""\n')
    print("# By epsilon: the points on either side of the middle; and intervals with their weights and values: the")
    print("# first point, the one after the last, whole weight, value. Mirror images are left out.")
    print("# fmt: off")
    print("DESIGNS: dict[str, tuple[int, tuple[tuple[int, int, int, float], ...]]] = {")
    for epsilon in EPSILONS:
        points = 4 if epsilon < 1 else 8 if epsilon < FINE else 16
        end = (math.exp(epsilon) + 1) / (math.exp(epsilon) - 1) * 1.4 + 0.2
        best = solve(float(epsilon), points, np.linspace(-end, end, VALUES))
        num = 2 * points + 1
        arcs = [
            (first, stop, weight, round(best.values[first, stop], DIGITS))
            for (first, stop), weight in rounded(best.weights, num).items()
            if first + stop <= num
        ]
        lines = ", ".join(f"({a}, {b}, {w}, {v if abs(v) > 1e-9 else 0.0})" for a, b, w, v in arcs)
        entry = f'"{float(epsilon):g}": ({points}, ({lines})),'
        print("\n".join(textwrap.wrap(entry, 116, initial_indent="    ", subsequent_indent=" " * 8)))
    print("}")


if __name__ == "__main__":
    main()
