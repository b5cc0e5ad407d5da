# SPDX-License-Identifier: Apache-2.0
"""Finding: one figure of an audit, with its interval, its baseline and a sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dunnage.errors import ParameterError
from dunnage.text import number_text, percent

CONFIDENCE = 0.95
TOPICS = ("records", "attributes", "table", "several releases", "trucks", "utility")
NO_UNIT = "units"
"""What a number of a column is in that has no unit."""
_SHARES = ("probability", "share")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One figure of an audit.

    Parameters
    ----------
    name
        Such as ``record linkage``; with the column in brackets where there may be several.
    value
        The figure.
    interval
        Closed bounds it lies in: a point if it was counted, at 95 % confidence if it was estimated.
    baseline
        The same figure without the release: what guessing gives an attacker, or what a planner has.
    unit
        ``probability``, ``share``, ``ratio`` or a unit of measurement.
    sentence
        What it means.
    topic
        ``records``, ``attributes``, ``table``, ``several releases``, ``trucks`` or ``utility``.
    private
        Whether it takes the true data to compute, so that it must not be handed out.
    details
        More figures, as plain data.
    """

    name: str
    value: float
    interval: tuple[float, float]
    baseline: float
    unit: str
    sentence: str
    topic: str
    private: bool
    details: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        low, high = self.interval
        if not (all(map(math.isfinite, (low, high, self.baseline))) and low <= self.value <= high):
            raise ParameterError(f"finding {self.name!r} needs finite figures, its value in its interval.")

    @property
    def is_share(self) -> bool:
        """Whether the figure is between 0 and 1."""
        return self.unit in _SHARES

    def text(self, figure: float) -> str:
        """Write a figure of this finding for a person."""
        if self.is_share:
            return percent(figure)
        # Units of counts are plural words; those of measures, such as ms, are short.
        unit = self.unit.removesuffix("s") if figure == 1 and len(self.unit) > 3 else self.unit
        return number_text(figure) + ("" if self.unit == "ratio" else f" {unit}")

    def to_dict(self) -> dict[str, Any]:
        """Give the finding as plain data."""
        return {
            "name": self.name,
            "value": self.value,
            "interval": list(self.interval),
            "baseline": self.baseline,
            "unit": self.unit,
            "sentence": self.sentence,
            "topic": self.topic,
            "private": self.private,
            "details": dict(self.details),
        }


def wilson(successes: float, trials: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return Wilson's interval for a share.

    Examples
    --------
    >>> [round(end, 4) for end in wilson(0, 10)], [round(end, 4) for end in wilson(5, 10)]
    ([0.0, 0.2775], [0.2366, 0.7634])
    """
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share, weight = successes / trials, z * z / trials
    centre = (share + weight / 2) / (1 + weight)
    reach = z * math.sqrt(share * (1 - share) / trials + weight / trials / 4) / (1 + weight)
    return max(0.0, min(centre - reach, share)), min(1.0, max(centre + reach, share))


def mean_interval(shares: NDArray[np.float64]) -> tuple[float, float]:
    """Return the 95 % interval of the mean of which some shares were drawn; equal ones do not tell their spread."""
    mean, num = float(shares.mean()), len(shares)
    if shares.min() == shares.max():
        return wilson(mean * num, num)
    reach = NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * float(shares.std(ddof=1)) / math.sqrt(num)
    return max(0.0, mean - reach), min(1.0, mean + reach)


def counted(name: str, value: float, baseline: float, sentence: str, **more: Any) -> Finding:
    """Make a finding that was counted, not estimated: its interval is a point."""
    value = float(value)
    return Finding(name=name, value=value, interval=(value, value), baseline=float(baseline), sentence=sentence, **more)
