# SPDX-License-Identifier: Apache-2.0
"""Finding: one figure of an audit, with its interval, its baseline and a sentence."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from statistics import NormalDist
from typing import Annotated, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from dunnage.documents import Model
from dunnage.errors import ParameterError
from dunnage.text import number_text, percent

CONFIDENCE = 0.95
MOST_AT_RISK = 10
TOPICS = ("records", "attributes", "table", "several releases", "trucks", "utility")
NO_UNIT = "units"  # What a number of a column is in that has no unit
_SHARES = ("probability", "share")
Details = Mapping[str, Any]  # More figures of a finding, as plain data: each kind of finding has its own
NOTHING: Details = {}
Progress = Callable[[str], None]


class Finding(Model):
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
    value: int | float
    interval: Annotated[tuple[int | float, int | float], Field(strict=False)]
    baseline: int | float
    unit: str
    sentence: str
    topic: str
    private: bool
    details: Details = NOTHING

    @model_validator(mode="after")
    def _check(self) -> Self:
        low, high = self.interval
        if not (all(map(math.isfinite, (low, high, self.baseline))) and low <= self.value <= high):
            raise ParameterError(f"finding {self.name!r} needs finite figures, its value in its interval.")
        return self

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
        return self.model_dump(mode="json")


class Figure(NamedTuple):
    """The figure of a finding, by its name."""

    name: str
    value: float
    baseline: float
    interval: tuple[float, float] | None = None  # None if it was counted, not estimated: then it is a point


class About(NamedTuple):
    """What a finding is of: its unit, its topic, and whether it takes the true data to compute."""

    unit: str
    topic: str
    private: bool = False

    def finding(self, figure: Figure, sentence: str, details: Details = NOTHING) -> Finding:
        """Say what a figure means."""
        name, value, baseline, interval = figure
        if interval is None:
            value, baseline = float(value), float(baseline)
            interval = value, value
        return Finding(
            name=name,
            value=value,
            interval=interval,
            baseline=baseline,
            unit=self.unit,
            sentence=sentence,
            topic=self.topic,
            private=self.private,
            details=details,
        )


# Records that are most at risk


class RecordAtRisk(Model):
    """A record whose row, or whose sensitive value, is easily named."""

    source_row: int  # its place in the source, from 0, as in the key
    record_linkage: float
    rows: int | None = None  # rows that may be it
    attribute_linkage: Mapping[str, float] = NOTHING  # by sensitive column


class TripAtRisk(Model):
    """A trip of which a release of counts tells much."""

    source_row: int
    suspicion: float  # what one of one half became
    alike: int  # trips of its type: in truth, and as released
    released: int


class RiderAtRisk(Model):
    """A rider whose presence is easily guessed."""

    source_row: int  # of one of the trips
    guess: float
    trips: int
    types: int


class VehicleAtRisk(Model):
    """A vehicle that stays long in one place."""

    source_row: int  # the first one
    stays: float  # share of its rows
    found_if_it_stays: float


AtRisk = RecordAtRisk | TripAtRisk | RiderAtRisk | VehicleAtRisk


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
