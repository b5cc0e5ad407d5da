# SPDX-License-Identifier: Apache-2.0
"""Figures of an audit, and the one place that makes findings of them: sentences are data, in ``findings.toml``.

Attacks and measures return figures, which are numbers with a name. What a name means (its sentence, unit and
topic, who may see it, and what the figure would be without the release) stands in the table.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.resources import files
from statistics import NormalDist
from string import Formatter
from typing import Annotated, Any, NamedTuple, Self

from pydantic import Field, model_validator

from dunnage.arrays import FloatArray
from dunnage.errors import ParameterError
from dunnage.model.documents import Model
from dunnage.text import number_text, percent, several

CONFIDENCE = 0.95
MAX_AT_RISK = 10
TOPICS = ("records", "attributes", "table", "several releases", "trucks", "utility")
_SHARES = ("probability", "share")
Details = Mapping[str, Any]  # More figures of a finding, as plain data: each kind of finding has its own
NOTHING: Details = {}
Progress = Callable[[str], None]
Interval = tuple[float, float]


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


# Figures, and the findings they become


class KeyFigure(NamedTuple):
    """What an attack or a measure comes to, in numbers. Made by :func:`figure`."""

    key: str  # Which line of the table it is
    value: float
    baseline: float
    interval: Interval | None  # None if it was counted, not estimated: then it is a point
    details: Details
    # What its name, unit, topic and sentence say besides details; `private` overrides the table
    facts: Mapping[str, object]


def figure(
    key: str,
    value: float,
    baseline: float,
    interval: Interval | None = None,
    details: Details = NOTHING,
    /,
    **facts: object,
) -> KeyFigure:
    """Make a figure; further facts are what its sentence says."""
    return KeyFigure(key, value, baseline, interval, details, facts)


class _Entry(NamedTuple):
    """A line of the table; all but ``seen_by`` are templates."""

    unit: str
    topic: str
    seen_by: str  # `anyone`, or `owner` if it takes the true data to compute
    sentence: str
    baseline: str = ""  # The end of the sentence: what the figure is without the release, or without privacy


class _Writer(Formatter):
    """Fill in templates: ``%`` is a share in per cent, ``n`` a number for a person, ``#trip`` so many trips."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec == "%":
            return percent(value)
        if format_spec == "n":
            return number_text(value)
        if format_spec.startswith("#"):
            return several(value, format_spec[1:])
        return str(format(value, format_spec))


_WRITER = _Writer()


@cache
def _tables() -> tuple[dict[str, _Entry], dict[str, str]]:
    document = tomllib.loads((files("dunnage.auditing") / "findings.toml").read_text(encoding="utf-8"))
    return {key: _Entry(*parts) for key, parts in document["findings"].items()}, document["words"]


def words(key: str, **facts: object) -> str:
    """Write a note, or a part of a sentence, from the table."""
    return _WRITER.vformat(_tables()[1][key], (), facts)


def written(figures: Iterable[KeyFigure], record: str) -> list[Finding]:
    """Say what figures mean; ``record`` is the word for what is protected."""
    findings = []
    for key, value, baseline, interval, details, facts in figures:
        entry = _tables()[0][key]
        known = {**details, "record": record, "value": value, "baseline": baseline, **facts}
        if interval is None:
            value, baseline = float(value), float(baseline)
            interval = value, value
        findings.append(
            Finding(
                name=_WRITER.vformat(key.partition(" | ")[0], (), known),
                value=value,
                interval=interval,
                baseline=baseline,
                unit=_WRITER.vformat(entry.unit, (), known) or "units",
                sentence=_WRITER.vformat(entry.sentence + entry.baseline, (), known),
                topic=_WRITER.vformat(entry.topic, (), known),
                private=bool(facts.get("private", entry.seen_by == "owner")),
                details=details,
            )
        )
    return findings


def with_unit(number: float, unit: str) -> str:
    """Write a number with its unit, if it has one."""
    return f"{number_text(number)} {unit}".strip()


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


# Intervals

NORMAL_REACH = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)  # standard deviations on either side that hold 95 %


def wilson(successes: float, trials: int) -> Interval:
    """Return Wilson's 95 % interval for a share."""
    share, weight = successes / trials, NORMAL_REACH * NORMAL_REACH / trials
    centre = (share + weight / 2) / (1 + weight)
    reach = NORMAL_REACH * math.sqrt(share * (1 - share) / trials + weight / trials / 4) / (1 + weight)
    return max(0.0, min(centre - reach, share)), min(1.0, max(centre + reach, share))


def mean_interval(shares: FloatArray) -> Interval:
    """Return the 95 % interval of the mean that some sampled shares have; equal ones do not show their spread."""
    mean, num = float(shares.mean()), len(shares)
    if shares.min() == shares.max():
        return wilson(mean * num, num)
    reach = NORMAL_REACH * float(shares.std(ddof=1)) / math.sqrt(num)
    return max(0.0, mean - reach), min(1.0, mean + reach)
