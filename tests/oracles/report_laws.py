# SPDX-License-Identifier: Apache-2.0
"""The laws of reports as a task's text states them: what each purpose draws from, how far its shares are off.

A second statement of what :mod:`dunnage.devices` says, written from the public task alone, to compare the two.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

from dunnage.exact import shown_number
from dunnage.noise.source import ceil_divide, exp_interval

NUMBERS, PLACES, PATHS = "local-numeric", "local-location", "local-trajectory"
_NOISE_FACTOR = Fraction(5, 2)
_EPSILONS_TRIED = tuple(Fraction(half, 2) for half in range(1, 11))
_MOST_REPORT_BITS = 4097
_NEARLY_AS_GOOD = Fraction(11, 10)
_BITS = 256
_ROUNDING = 1e-9
_RESPONSE, _UNARY, _SYMMETRIC, _HADAMARD = "randomised-response", "optimised-unary", "symmetric-unary", "hadamard"


def is_published(purpose: Mapping[str, Any]) -> bool:
    """Return whether a purpose is the form of the paper."""
    return bool(purpose["parameters"].get("as_published", False))


def shows_areas(purpose: Mapping[str, Any]) -> bool:
    """Return whether reports of a purpose show the area."""
    return bool(is_published(purpose) or purpose["parameters"].get("area_in_clear", False))


def method_of(purpose: Mapping[str, Any]) -> str:
    """Return the method of a purpose as a mechanism states it."""
    numbers, given = purpose["mechanism"] == NUMBERS, purpose["parameters"].get("method")
    if numbers and is_published(purpose):
        return "published-piecewise"
    if purpose["mechanism"] == PATHS and is_published(purpose) and given in (None, "auto"):
        return "product"
    return str(given or ("hybrid" if numbers else "auto"))


@dataclass(frozen=True, kw_only=True)
class ReportLaw:
    """A law of reports: an oracle of ``size`` inputs, in each of ``groups`` shown as they are, ``places`` times."""

    oracle: str
    size: int
    epsilon: Fraction
    groups: int = 1
    places: int = 1

    def variance(self, share: float, num: float) -> float:
        """Return the variance of an estimated share, if groups are alike."""
        if self.oracle == "planar":
            return share * (1 - share) / num
        ratio = math.exp(-float(_ratio_epsilon(self.oracle, self.epsilon)))
        if self.places == 1:
            inside = min(share * self.groups, 1.0)
            return float(_variance_of_one(self.oracle, self.size, self.epsilon, inside, ratio)) / (num * self.groups)
        inner = 1 / self.size
        noise = float(_variance_of_one(self.oracle, self.size, self.epsilon, inner, ratio))
        even = inner**self.places
        powers = ((noise + inner) ** at * inner ** (self.places - 1 - at) for at in range(self.places))
        return (noise * sum(powers) + max(even - share * self.groups, 0.0)) / (self.groups * num)


def law_of(purpose: Mapping[str, Any], epsilon: Fraction, levels: int | None = None) -> ReportLaw:
    """Return the law of a report of a place or path, on the grid or on one of fewer levels."""
    depth = levels or purpose["grid"]["levels"]
    area_depth, method = min(purpose["grid"]["area_levels"], depth), method_of(purpose)
    areas, inner = 4 ** (area_depth - 1), 4 ** (depth - area_depth)
    steps = purpose["steps"] if purpose["mechanism"] == PATHS else 1
    if method in ("product", "qlp"):
        each = epsilon / steps if method == "qlp" else epsilon
        return ReportLaw(oracle="published-unary", size=inner + 1, epsilon=each, groups=areas, places=steps)
    if shows_areas(purpose):
        size, groups = inner**steps + 1, areas
    else:
        size, groups = _num_shares(purpose, depth), 1
    name = "published-unary" if is_published(purpose) else method
    return ReportLaw(oracle=_best(size, epsilon) if name == "auto" else name, size=size, epsilon=epsilon, groups=groups)


def _num_shares(purpose: Mapping[str, Any], levels: int) -> int:
    """Return the number of cells or reachable paths of a grid, and one more for what is outside or missing."""
    side = 1 << (levels - 1)
    if purpose["mechanism"] == PLACES:
        return side * side + 1
    hops = min(purpose["parameters"].get("hops", 1), side - 1)
    walks = [1] * side
    for _ in range(purpose["steps"] - 1):
        before = [0, *itertools.accumulate(walks)]
        walks = [before[min(at + hops + 1, side)] - before[max(at - hops, 0)] for at in range(side)]
    return int(sum(walks)) ** 2 + 1


def num_paths(purpose: Mapping[str, Any]) -> int:
    """Return how many paths are told apart."""
    cells, steps = 4 ** (purpose["grid"]["levels"] - 1), purpose["steps"]
    if not shows_areas(purpose):
        return _num_shares(purpose, purpose["grid"]["levels"])
    return int((cells + 1) ** steps if method_of(purpose) in ("product", "qlp") else cells**steps + 1)


def _best(size: int, epsilon: Fraction) -> str:
    """Return the oracle that devices choose: the smallest report among those of nearly the least variance."""
    bits = {_RESPONSE: (size - 1).bit_length(), _HADAMARD: _hadamard_bits(size, epsilon)}
    bits |= {_UNARY: size} if size <= _MOST_REPORT_BITS else {}
    variances = {name: _variance_at_zero(name, size, epsilon) for name in bits}
    bound = _NEARLY_AS_GOOD * min(variances.values())
    if size <= _MOST_REPORT_BITS:
        bound = min(bound, _variance_at_zero(_SYMMETRIC, size, epsilon))
    near = [name for name in bits if variances[name] <= bound]
    return min(near, key=lambda name: (bits[name], variances[name]))


def _ratio_epsilon(oracle: str, epsilon: Fraction) -> Fraction:
    return epsilon / 2 if oracle == _SYMMETRIC else epsilon


def _variance_at_zero(oracle: str, size: int, epsilon: Fraction) -> Fraction:
    ratio = Fraction(exp_interval(_ratio_epsilon(oracle, epsilon), _BITS)[0], 1 << _BITS)
    return Fraction(_variance_of_one(oracle, size, epsilon, Fraction(0), ratio))


@lru_cache(maxsize=512)
def _num_blocks(size: int, epsilon: Fraction) -> int:
    blocks, high = 1, exp_interval(epsilon, 2 * _BITS)[1]
    while blocks <= size and high * (1 + Fraction(17 * blocks, 6)) <= 1 << (2 * _BITS):
        blocks *= 2
    return blocks


def _hadamard_bits(size: int, epsilon: Fraction) -> int:
    blocks = _num_blocks(size, epsilon)
    columns = 1 << ceil_divide(size, blocks).bit_length()
    return (blocks * columns - 1).bit_length()


def _variance_of_one(oracle: str, size: int, epsilon: Fraction, share: Any, ratio: Any) -> Any:
    """Return the variance of the share that one report estimates, in the arithmetic of share and ratio."""
    if oracle == _HADAMARD:
        return _hadamard_variance(size, _num_blocks(size, epsilon), share, ratio)
    if oracle == _RESPONSE:
        p = 1 / (1 + (size - 1) * ratio)
        q = ratio * p
    else:
        p, q = (1 / (ratio / ratio + 1) if oracle == _UNARY else 1 / (1 + ratio)), ratio / (1 + ratio)
    return (share * p * (1 - p) + (1 - share) * q * (1 - q)) / (p - q) ** 2


def _hadamard_variance(size: int, blocks: int, share: Any, ratio: Any) -> Any:
    p = 1 / (1 + (2 * blocks - 1) * ratio)
    q = ratio * p
    others = (1 - share) * (ceil_divide(size, blocks) - 1) / (size - 1)  # share of the others of a largest block
    own = p * (2 * blocks - 1) * q + q * (1 - q) + 2 * p * q
    return (others * (p + q) + share * own + (1 - share - others) * 2 * q) / (p - q) ** 2


def verdict_fits(text: str, purpose: Mapping[str, Any], epsilons: Sequence[Fraction], num: int) -> bool:
    """Return whether a sentence about a map is the one that task and number of reports lead to."""
    head = f"{num:,} vehicles at epsilon {', '.join(shown_number(epsilon) for epsilon in epsilons)}: "
    if method_of(purpose) == "planar":  # a matter of distances, which are not measured again
        return text.startswith((f"{head}a share is off by about ", f"{head}use "))
    depth = purpose["grid"]["levels"]
    sd, noise = _judged(purpose, epsilons, num, depth)
    if not noise:
        return text in [f"{head}a share is off by about {sd * (1 + off):.2g}" for off in (-_ROUNDING, 0, _ROUNDING)]
    fewer = (at for at in range(depth - 1, 1, -1) if not _judged(purpose, epsilons, num, at)[1])
    tried = (epsilon for epsilon in _EPSILONS_TRIED if epsilon > max(epsilons))
    more = (epsilon for epsilon in tried if not _judged(purpose, [epsilon], num, depth)[1])
    advice = [f"level {at}" for at in itertools.islice(fewer, 1)]
    advice += [f"epsilon >= {shown_number(epsilon)}" for epsilon in itertools.islice(more, 1)]
    return text == f"{head}use {' or '.join(advice) or 'more vehicles'}"


def _judged(purpose: Mapping[str, Any], epsilons: Sequence[Fraction], num: int, levels: int) -> tuple[float, bool]:
    """Return the standard deviation of a mean share with all tiers alike in size, and whether a map is noise."""
    size, each = _num_shares(purpose, levels), num / len(epsilons)
    variances = [law_of(purpose, epsilon, levels).variance(1 / size, each) for epsilon in epsilons]
    sd = math.sqrt(1 / sum(1 / variance for variance in variances))
    return sd, sd > float(_NOISE_FACTOR / size)
