# SPDX-License-Identifier: Apache-2.0
"""Frontier: policies against what they cost, as a value that can be written, read back and shown. Private."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Literal, Self

import pyarrow as pa
import pyarrow.csv as pacsv
from pydantic import JsonValue, field_validator, model_validator

from dunnage._version import __version__
from dunnage.errors import OutputError, ParameterError
from dunnage.folders import check_new_folder, new_folder
from dunnage.model.documents import Listed, Model, Software, read, to_text
from dunnage.notebooks import Displayed, Tabular
from dunnage.text import large_percent, percent, several

FRONTIER_FILE = "frontier.json"
TABLE_FILE = "frontier.csv"
PAGE_FILE = "frontier.html"
POLICY_FILE = "policy.toml"
MAX_FRONTIER_BYTES = 1 << 26
CONFIDENCE = 0.99  # of one figure, so that most figures agree if several points are measured again
DATA, GENERATED, SAMPLE = "data", "generated", "sample"
"""What a point is measured on. A sample has random rows: with all rows its classes would differ."""
OVERLOADED = "overloaded before repair"  # the figure with the share of a plan's trucks that did not fit the truth
PROVEN = "optimum proven"
"""The figure with the share of draws in which the decision without privacy was proven to be the best."""
SHARES = frozenset(
    {
        *(OVERLOADED, PROVEN, "worst truck linkage", "worst record linkage", "not released"),
        *("distortion by generalisation", "signed_error", "unserved", "predicted_at_worst", "wrongly_placed"),
    }
)
"""Figures that are shares; errors relative to the truth ("error of ...") are shares too."""
MAX_OVERLOADED = 0.1
"""A plan that overloads more of its trucks is not recommended: its owner must plan again, with the true weights."""
MAX_LATE = 1.5  # times the wait that a fleet is sized for
WEAK_RISK = 0.9  # A point with a larger risk protects hardly anybody: only a limit on the risk can allow it
VAGUE = 0.8
"""Width of an interval, in whole figures or in the figure itself, from which on it says nothing: 0 % to 100 %."""
ROUGH = 0.2  # width of an interval from 0 on, from which on only its upper end says something: 7 % (0 % to 24 %)
SAME = 1e-9  # figures that differ by less are equal: 0.2 and 0.20000000000000004 are the same risk
_BASES = {"proved": 0, "claimed": 1}  # others promise nothing
Table = Mapping[str, JsonValue]  # A table of a policy, or the options of a command: TOML values by name


class Measure(Model):
    """A measured figure, and the interval that contains a second, independent measurement with 99 % confidence."""

    value: int | float  # mean over the draws
    lower: int | float  # lower, upper: equal to the value if every draw must give the same
    upper: int | float

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not (self.lower <= self.value <= self.upper and math.isfinite(self.upper - self.lower)):
            raise ParameterError(
                "a measure needs finite figures, with its value between its ends. Got others. Measure again."
            )
        return self

    @property
    def vague(self) -> bool:
        """Whether its interval is so wide that it says nothing."""
        return self.upper - self.lower >= VAGUE * max(1.0, self.value)

    @property
    def caveat(self) -> str:
        """What to say after an interval that says nothing, or only that the figure is not larger."""
        if self.vague:
            return ", which says nothing"
        return ", which only says that it is not more" if self.lower <= SAME and self.upper >= ROUGH else ""

    @classmethod
    def of(
        cls,
        draws: Sequence[float],
        *,
        step: float = 0.0,  # the smallest difference between two draws that differ; 0 if all must be the same
        reach: float = 0.0,  # the smallest reach of the interval, for errors that do not average out over draws
        least: float = -math.inf,
        most: float = math.inf,
    ) -> Measure:
        """Make a measure from the figures of several draws.

        Two means of as many draws differ by less than ``t * s * sqrt(2 / draws)`` with 99 % confidence: ``s`` is the
        standard deviation of the draws, ``t`` the 99.5 % point of Student's law. The interval reaches at least one
        step divided by the number of draws to either side: as far as one different draw would move the mean.
        """
        mean, num = fmean(draws), len(draws)
        reach = max(reach, step / num)
        if num > 1:
            from scipy.special import stdtrit

            t = float(stdtrit(num - 1, (1 + CONFIDENCE) / 2))
            reach = max(reach, t * stdev(draws) * math.sqrt(2 / num))
        return cls(value=mean, lower=min(mean, max(mean - reach, least)), upper=max(mean, min(mean + reach, most)))


class Point(Model):
    """One policy, with its cost and its risk."""

    name: str  # unique in its frontier: "partition k=5, sealed plan"
    mechanism: str  # its name in a policy; one colour each on a page
    parameters: Table  # the contents of [mechanism] besides the name (for carriers: of the purpose's table)
    plan: Table  # how the plan was made, {"model": "sealed"}; empty if there is no plan
    cost: Measure  # in the goal's unit, above the decision without privacy: 0.05 is 5 % more trucks
    risk: Measure  # probability that the goal's attacker succeeds
    guarantee: str  # guarantee, basis: the promise in words, and "proved", "claimed" or "void"
    basis: str
    measured_on: str  # "data", "sample" or "generated"
    num_records: int | None = None  # rows, trips or vehicles that each draw was measured on
    draws: int
    figures: Mapping[str, int | float]  # further figures, such as "trucks" and "optimum": means over the draws
    seconds: float
    useless: bool = False  # whether planning on it is no better than on an empty release
    # Whether another point beats it (see `beats`). The frontier sets it.
    dominated: bool = False

    @property
    def mended(self) -> bool:
        """Whether its plan overloaded many trucks, so that the repair is a new plan, with the true weights."""
        return self.figures.get(OVERLOADED, 0.0) > MAX_OVERLOADED

    @property
    def late(self) -> bool:
        """Whether its fleet is overloaded: queues then grow all day, and the wait cannot be predicted."""
        return self.figures.get("wait_seconds", 0.0) > MAX_LATE * self.figures.get("wait_target_seconds", math.inf)

    @property
    def weak(self) -> bool:
        """Whether the attacker is right so often that it protects hardly anybody."""
        return self.risk.value > WEAK_RISK

    @property
    def vague(self) -> bool:
        """Whether nobody can say how often the attacker is right."""
        return self.risk.vague


class Failure(Model):
    name: str  # of the point
    why: str  # a sentence without private figures


class Limit(Model):
    """The owner's limits; at least one of the two is given."""

    max_cost: float | None = None  # in the goal's unit: 0.05
    max_risk: float | None = None
    asked: bool = True  # false if the owner gave no limit, so that a default applies


class Frontier(Displayed, Tabular, Model):
    """Policies against what they cost: points, those that failed, and the recommended one. Private."""

    format: Literal[1] = 1
    kind: Literal["frontier"] = "frontier"
    dataset: str  # dataset, goal: what it is about: the policy's dataset; `trucks`, `shuttles`, `distortion` or `error`
    goal: str
    cost_name: str  # cost_name, cost_unit: what the cost is, `trucks`; and its unit, `more trucks`
    cost_unit: str
    cost_baseline: str  # what the cost is compared with, in words
    risk_name: str  # what the risk is, `truck linkage`
    # risk_without_privacy, risk_of_chance: the risk with the true table, and without any release
    risk_without_privacy: int | float
    risk_of_chance: int | float
    recommended: str | None = None  # name of the recommended point; None if no point keeps to the limit
    meets_limit: bool = False  # whether the recommended point keeps to the limit
    closest: str | None = None  # if nothing is recommended: name of the point that comes closest to the limit
    noise: bool = False  # whether publishing under the recommended policy takes --allow-noise
    unit: str = "record"  # what the data count: `record`, `trip` or `vehicle`
    policy: str = ""  # the recommended policy as TOML text, ready to publish with; empty if nothing is recommended
    # identifies what was measured: a run with the same data and options, and other limits, takes the points over
    run: str = ""
    seconds: int | float = 0.0  # time taken
    # plain sentences: what was measured on which data, that choosing by the data is not private, and so on
    says: Listed[str] = ()
    limit: Limit = Limit()  # the owner's limits
    points: Listed[Point]  # points, failed: the measured points, by mechanism; and what could not be measured
    failed: Listed[Failure] = ()
    software: Software = Software(dunnage=__version__)  # version of Dunnage

    @field_validator("points")
    @classmethod
    def _mark_dominated(cls, points: tuple[Point, ...]) -> tuple[Point, ...]:
        return tuple(p.model_copy(update={"dominated": any(beats(other, p) for other in points)}) for p in points)

    @model_validator(mode="after")
    def _check(self) -> Self:
        names = [point.name for point in self.points]
        if len(set(names)) < len(names):
            raise ParameterError("points of a frontier need different names. Got one twice. Rename it.")
        if self.choice is not None and self.choice not in names:
            raise ParameterError(f"the chosen point {self.choice!r} is not among the points. Name one that is.")
        return self

    @property
    def choice(self) -> str | None:
        """Name of the recommended point, or of the closest one if nothing is recommended."""
        return self.closest if self.recommended is None else self.recommended

    def __repr__(self) -> str:
        return f"Frontier({self.dataset!r}, {self.goal}, {len(self.points)} points, private)"

    __str__ = __repr__

    def point(self, name: str) -> Point:
        """Return a point by its name."""
        for item in self.points:
            if item.name == name:
                return item
        names = ", ".join(item.name for item in self.points)
        raise ParameterError(f"the frontier has no point {name!r}. It has: {names}.")

    def to_dict(self) -> dict[str, JsonValue]:
        """Give the frontier as plain data."""
        return self.model_dump(mode="json")

    def summary(self) -> str:
        """Describe the frontier for its owner: the points that no other beats, the recommended one, and its basis."""
        shown = [point for point in self.points if not point.dominated or point.name == self.choice]
        best = sorted(shown, key=lambda point: point.cost.value)
        width = max((len(point.name) for point in best), default=0)
        lines = [f"Frontier of {self.dataset}: {self.cost_unit} against {self.risk_name}. Private."]
        for point in best:
            doubtful = any(getattr(point, flaw) for flaw in _FLAWS)
            mark = "*" if point.name == self.recommended else "!" if doubtful else " "
            lines.append(
                f"{mark} {point.name:<{width}}  {with_ends(point.cost)} {self.cost_unit}, {self.risk_name} "
                f"{with_ends(point.risk)}; on {self.measured_on(point)}"
            )
        if flaws := [words for flaw, words in _FLAWS.items() if any(getattr(point, flaw) for point in best)]:
            lines.append(f"! is not recommended: {', or '.join(flaws)}")
        others, failed = len(self.points) - len(best), len(self.failed)
        if others or failed:
            verb = "is" if others == 1 else "are"
            lines.append(f"  {others} more {verb} beaten by another point; {failed} could not be measured")
        return "\n".join([*lines, "", *self.says])

    def measured_on(self, point: Point) -> str:
        """Say what a point was measured on: ``1,200 true packages``."""
        if point.num_records is None:
            words = {GENERATED: "generated data", SAMPLE: "a sample of the true data"}
            return words.get(point.measured_on, "the true data")
        kind = "generated" if point.measured_on == GENERATED else "true"
        sample = "a sample of " if point.measured_on == SAMPLE else ""
        return f"{sample}{several(point.num_records, f'{kind} {self.unit}')}"

    def to_arrow(self) -> pa.Table:
        """Give the points as an Arrow table, with all figures."""
        return pacsv.read_csv(io.BytesIO(self.table().encode()))

    def table(self) -> str:
        """Give the points as CSV text, one line each, with all figures."""
        more = list(dict.fromkeys(name for point in self.points for name in point.figures))
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, [*_COLUMNS, *more], restval="", lineterminator="\n")
        writer.writeheader()
        for point in self.points:
            line = {name: getattr(point, name) for name in _COLUMNS if name in Point.model_fields}
            for name, measure in (("cost", point.cost), ("risk", point.risk)):
                line |= {name: measure.value, f"{name}_lower": measure.lower, f"{name}_upper": measure.upper}
            line |= {
                "parameters": json.dumps(dict(point.parameters), ensure_ascii=False),
                "plan": json.dumps(dict(point.plan), ensure_ascii=False) if point.plan else "",
                "dominated": "yes" if point.dominated else "no",
                "recommended": "yes" if point.name == self.recommended else "no",
                "seconds": round(point.seconds, 3),
            }
            writer.writerow({**line, **point.figures})
        return text.getvalue()

    def write(self, folder: str | os.PathLike[str], *, page: str = "", force: bool = False) -> Path:
        """Write ``frontier.json``, ``frontier.csv``, ``policy.toml`` and, if given, the page, for you alone to read."""
        texts = {FRONTIER_FILE: to_text(self), TABLE_FILE: self.table(), PAGE_FILE: page, POLICY_FILE: self.policy}
        with new_folder(
            folder, marker=FRONTIER_FILE, force=force, private=True, may_hold=(PAGE_FILE, POLICY_FILE)
        ) as work:
            for name, text in texts.items():
                if text:
                    (work / name).write_text(text, encoding="utf-8")
        return Path(folder)

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> Frontier:
        """Read a frontier folder."""
        path, what = Path(folder) / FRONTIER_FILE, "a frontier folder"
        return read(path, cls, what=what, remedy="Make it again.", max_bytes=MAX_FRONTIER_BYTES)


def check_place(folder: str | os.PathLike[str], *, force: bool = False) -> None:
    """Check, before anything is measured, that a frontier may be written here."""
    target = check_new_folder(folder, marker=FRONTIER_FILE, force=force)
    if others := sorted(path.name for path in target.iterdir() if path.name not in _FILES) if target.is_dir() else []:
        raise OutputError(f"{target} also contains {', '.join(others[:3])}. Nothing was changed. Choose another name.")


_FLAWS = {
    "weak": f"the attacker is right more than {percent(WEAK_RISK)} of the time (unless --max-risk allows it)",
    "vague": "nobody knows how often the attacker is right",
    "mended": f"more than {percent(MAX_OVERLOADED)} of the trucks are overloaded before repair",
    "late": "its fleet is overloaded, and how long riders wait cannot be predicted",
    "useless": "it is no better than publishing nothing",
}
_FILES = (FRONTIER_FILE, TABLE_FILE, PAGE_FILE, POLICY_FILE)
_COLUMNS = (
    *("name", "mechanism", "parameters", "plan"),
    *(f"{what}{end}" for what in ("cost", "risk") for end in ("", "_lower", "_upper")),
    *("guarantee", "basis", "measured_on", "num_records", "draws", "dominated", "recommended", "seconds"),
)


def beats(other: Point, point: Point) -> bool:
    """Whether a point has no more cost and no more risk than another, and less of one of the two."""
    # The upper ends of its intervals are no higher either: it keeps to every limit that the other keeps to. Points that
    # were measured on different data cannot be compared. A plan that needs many repairs and a fleet that is overloaded
    # beat none that is fine, a risk that is hardly known none that is known, and a claimed guarantee no proved one.
    if other.measured_on != point.measured_on or _BASES.get(other.basis, 2) > _BASES.get(point.basis, 2):
        return False
    if any(getattr(other, flaw) and not getattr(point, flaw) for flaw in ("mended", "late", "vague")):
        return False
    pairs = ((point.cost, other.cost), (point.risk, other.risk))
    less = [worse.value - better.value for worse, better in pairs]
    ends = [worse.upper - better.upper for worse, better in pairs]
    return min(*less, *ends) >= -SAME and max(less) > SAME


def with_ends(measure: Measure) -> str:
    ends = f" ({large_percent(measure.lower)} to {large_percent(measure.upper)}{measure.caveat})"
    return large_percent(measure.value) + (ends if measure.lower != measure.upper else "")
