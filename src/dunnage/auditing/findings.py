# SPDX-License-Identifier: Apache-2.0
"""Figures of an audit, and the one place that turns them into findings. The sentences are data, in ``findings.toml``.

Attacks and measures return figures: numbers with a name. The table says what a name means: its sentence, unit and
topic, who may see it, and what the figure would be without the release.
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
from dunnage.exact import bounded_text, exact
from dunnage.model.documents import Model
from dunnage.model.house import INFERENCE, LINKABILITY, RISKS, SINGLING_OUT
from dunnage.text import number_text, percent, percent_at_least, percent_at_most, several

CONFIDENCE = 0.95
MAX_AT_RISK = 10
TOPICS = ("records", "attributes", "table", "several releases", "trucks", "utility")
RISK_OF_TOPIC = {
    "records": SINGLING_OUT,
    "attributes": INFERENCE,
    "table": INFERENCE,  # whether someone is in the data
    "several releases": LINKABILITY,
    "trucks": LINKABILITY,
}
_SHARES = ("probability", "share")
_NO_ATTACK = ("certain absence", "t reached", "suspicion at its bound")  # shares, but not of attacks that succeed
Details = Mapping[str, Any]  # More figures of a finding, as plain data: each kind of finding has its own
NOTHING: Details = {}
Progress = Callable[[str], None]
Interval = tuple[float, float]


class Finding(Model):
    """One figure of an audit."""

    name: str  # for example `record linkage`; with the column in brackets if there can be several
    value: int | float  # the figure
    # closed bounds: a point if the figure was counted, with 95 % confidence if it was estimated
    interval: Annotated[tuple[int | float, int | float], Field(strict=False)]
    # the same figure without the release: what an attacker gets by guessing, or what a planner has
    baseline: int | float
    unit: str  # `probability`, `share`, `ratio` or a unit of measurement
    sentence: str  # what the figure means
    topic: str  # `records`, `attributes`, `table`, `several releases`, `trucks` or `utility`
    private: bool  # whether the figure takes the true data to compute, so that you must keep it to yourself
    remedy: str = ""  # what would lower the risk; empty for what privacy costs, and in audits of earlier versions
    details: Details = NOTHING  # further figures, as plain data

    @model_validator(mode="after")
    def _check(self) -> Self:
        low, high = self.interval
        if not (all(map(math.isfinite, (low, high, self.baseline))) and low <= self.value <= high):
            raise ParameterError(f"finding {self.name!r} needs finite figures, and its value must lie in its interval.")
        return self

    @property
    def is_share(self) -> bool:
        """Whether the figure is between 0 and 1."""
        return self.unit in _SHARES

    @property
    def risk(self) -> str | None:
        """Which of the three risks of regulators it belongs to; None for what privacy costs."""
        return RISK_OF_TOPIC.get(self.topic)

    @property
    def severity(self) -> float | None:
        """What the release adds to a risk: 0 if an attacker does no better than without it, 1 if certain.

        None if the figure is not a chance or share, so that it has no place on this scale.
        """
        if self.risk is None or not self.is_share or self.name.startswith(_NO_ATTACK):
            return None
        return min(1.0, max(0.0, (self.value - self.baseline) / (1 - self.baseline))) if self.baseline < 1 else 0.0

    def text(self, figure: float) -> str:
        """Write a figure of this finding for a person."""
        if self.is_share:  # a bound as its sentence writes it: rounded up
            bound = percent_at_most(figure)
            return bound if bound in self.sentence else percent(figure)
        # Units of counts are plural words; those of measures, such as ms, are short.
        unit = self.unit.removesuffix("s") if figure == 1 and len(self.unit) > 3 else self.unit
        return number_text(figure) + ("" if self.unit == "ratio" else f" {unit}")

    def to_dict(self) -> dict[str, Any]:
        """Give the finding as plain data."""
        return self.model_dump(mode="json")


# Figures, and the findings they become


class KeyFigure(NamedTuple):
    """The result of an attack or a measure, in numbers. Made by :func:`figure`."""

    key: str  # Line of the table
    value: float
    baseline: float
    interval: Interval | None  # None if the figure was counted, not estimated: then it is a point
    details: Details
    # What its name, unit, topic and sentence need besides details; `private` overrides the table
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
    """Make a figure; its sentence uses the further facts."""
    return KeyFigure(key, value, baseline, interval, details, facts)


def by_severity(findings: Iterable[Finding]) -> list[Finding]:
    """Order the findings about risks: the worst of each of the three risks first, then all others, worst first."""
    risks = sorted((item for item in findings if item.risk is not None), key=lambda item: -(item.severity or 0.0))
    first = [next((item for item in risks if item.risk == risk and item.severity), None) for risk in RISKS]
    leading = sorted((item for item in first if item is not None), key=lambda item: -(item.severity or 0.0))
    return [*leading, *(item for item in risks if item not in leading)]


def worst_risks(findings: Iterable[Finding]) -> dict[str, tuple[str, float]]:
    """Return the worst finding of each of the three risks: its name, and its risk from 0 to 1."""
    worst: dict[str, tuple[str, float]] = {}
    for item in by_severity(findings):
        if item.risk is not None and item.severity is not None:
            worst.setdefault(item.risk, (item.name, item.severity))
    return worst


class _Entry(NamedTuple):
    """A line of the table; all but ``seen_by`` are templates."""

    unit: str
    topic: str
    seen_by: str  # `anyone`, or `owner` if the figure takes the true data to compute
    sentence: str
    baseline: str = ""  # The end of the sentence: what the figure is without the release, or without privacy


_PERCENT = {"%": percent, "%<": percent_at_most, "%>": percent_at_least}


class _Writer(Formatter):
    """Fill in templates as the head of ``findings.toml`` says."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec in _PERCENT:
            return _PERCENT[format_spec](value)
        if format_spec == "n":
            return number_text(value)
        if format_spec == "n<":
            return bounded_text(exact(value), up=True, digits=4)
        if format_spec.startswith("#"):
            return several(value, format_spec[1:])
        return str(format(value, format_spec))


_WRITER = _Writer()


class _Tables(NamedTuple):
    findings: dict[str, _Entry]
    words: dict[str, str]
    remedies: dict[str, str]  # by the name of a finding without what is in brackets, or by the topic


@cache
def _tables() -> _Tables:
    document = tomllib.loads((files("dunnage.auditing") / "findings.toml").read_text(encoding="utf-8"))
    entries = {key: _Entry(*parts) for key, parts in document["findings"].items()}
    return _Tables(entries, document["words"], document["remedies"])


def remedy_of(key: str, topic: str) -> str:
    """Return what would lower the risk of a finding: by its line of the table, its name, or its topic."""
    remedies = _tables().remedies
    lines = [key, *sorted((line for line in remedies if key.startswith(line)), key=len, reverse=True), topic]
    return next((remedies[line] for line in lines if line in remedies), "")


def words(key: str, **facts: object) -> str:
    """Write a note, or part of a sentence, from the table."""
    return filled(_tables().words[key], facts)


def filled(template: str, facts: Mapping[str, object]) -> str:
    """Fill in a template; see the head of ``findings.toml``."""
    return _WRITER.vformat(template, (), facts)


def written(figures: Iterable[KeyFigure], record: str) -> list[Finding]:
    """Turn figures into findings; ``record`` is the word for what is protected."""
    findings = []
    for key, value, baseline, interval, details, facts in figures:
        entry = _tables().findings[key]
        context = {**details, "record": record, "value": value, "baseline": baseline, **facts}
        if interval is None:
            value, baseline = float(value), float(baseline)
            interval = value, value
        topic = filled(entry.topic, context)
        findings.append(
            Finding(
                name=filled(key.partition(" | ")[0], context),
                value=value,
                interval=interval,
                baseline=baseline,
                unit=filled(entry.unit, context) or "units",
                sentence=filled(entry.sentence + entry.baseline, context),
                topic=topic,
                private=bool(facts.get("private", entry.seen_by == "owner")),
                remedy=filled(remedy_of(key, topic), context) if topic in RISK_OF_TOPIC else "",
                details=details,
            )
        )
    return findings


def with_unit(number: float, unit: str) -> str:
    """Write a number with its unit, if it has one."""
    return f"{number_text(number)} {unit}".strip()


# Records that are most at risk


class RecordAtRisk(Model):
    """A record that is easy to find in the release, or with a sensitive value that is easy to guess."""

    source_row: int  # as in the key: 1 is the first line below the header
    record_linkage: float
    rows: int | None = None  # rows that could be it
    attribute_linkage: Mapping[str, float] = NOTHING  # by sensitive column


class TripAtRisk(Model):
    """A trip that a release of counts reveals much about."""

    source_row: int
    suspicion: float  # what a suspicion of 50 % became
    alike: int  # alike, released: trips of its type in truth, and as released
    released: int


class RiderAtRisk(Model):
    """A rider who is easy to detect."""

    source_row: int  # one of the rider's trips
    guess: float
    trips: int
    types: int


class VehicleAtRisk(Model):
    """A vehicle that stays long in one place."""

    source_row: int  # the vehicle's first row
    stays: float  # share of its rows
    found_if_it_stays: float


AtRisk = RecordAtRisk | TripAtRisk | RiderAtRisk | VehicleAtRisk


# Intervals

NORMAL_REACH = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)  # standard deviations on either side that cover 95 %


def wilson(successes: float, trials: int) -> Interval:
    """Return Wilson's 95 % interval for a share."""
    share, weight = successes / trials, NORMAL_REACH * NORMAL_REACH / trials
    centre = (share + weight / 2) / (1 + weight)
    reach = NORMAL_REACH * math.sqrt(share * (1 - share) / trials + weight / trials / 4) / (1 + weight)
    return max(0.0, min(centre - reach, share)), min(1.0, max(centre + reach, share))


def mean_interval(shares: FloatArray) -> Interval:
    """Return the 95 % interval of the mean of sampled shares; equal shares do not show their spread."""
    mean, num = float(shares.mean()), len(shares)
    if shares.min() == shares.max():
        return wilson(mean * num, num)
    reach = NORMAL_REACH * float(shares.std(ddof=1)) / math.sqrt(num)
    return max(0.0, mean - reach), min(1.0, mean + reach)
