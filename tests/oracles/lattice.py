# SPDX-License-Identifier: Apache-2.0
"""Levels of hierarchies by fractions and walks to the root."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any


@dataclass
class Levels:
    """One attribute: how many levels, and (generalisation, loss) of a value at a level."""

    num: int
    generalise: Callable[[Any, int], tuple[Any, Fraction]]


FLAT = Levels(2, lambda value, level: ("*" if level else value, Fraction(level)))


def interval_levels(lower: int, upper: int, doubling: Fraction) -> Levels:
    def generalise(value: float, level: int) -> tuple[Any, Fraction]:
        exact = Fraction(repr(value))
        if level == 0:
            return (exact, exact), Fraction(0)
        width = doubling * 2 ** (level - 1)
        last = math.ceil((upper - lower) / width) - 1
        start = lower + min((exact - lower) // width, last) * width
        end = min(start + width, Fraction(upper))
        return (start, end), (end - start) / (upper - lower)

    num = 2
    while doubling * 2 ** (num - 2) < upper - lower:
        num += 1
    return Levels(num, generalise)


def tree_levels(parents: dict[str, str]) -> Levels:
    paths = {}
    for leaf in parents.keys() - set(parents.values()):
        paths[leaf] = [leaf]
        while paths[leaf][-1] in parents:
            paths[leaf].append(parents[paths[leaf][-1]])
    depth = max(map(len, paths.values()))

    def generalise(value: str, level: int) -> tuple[Any, Fraction]:
        path = paths[value]
        node = path[max(0, level - (depth - len(path)))]
        below = sum(node in other for other in paths.values())
        return node, Fraction(below - 1, len(paths) - 1)

    return Levels(depth, generalise)
