# SPDX-License-Identifier: Apache-2.0
"""Views of closed periods, by day or by tier; and alarms at the level of the fleet.

Views and alarms are made from frozen tallies: they read no report, and nothing in them is about a single vehicle. What
would be noise is refused, as in a release.

An alarm states how many false alarms it may raise in a year. On each day it is raised with at most that number over 365
if the truth does not exceed its limit: the end of the interval of that day, at the confidence that this takes, must lie
beyond the limit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from dunnage.collecting.collector import CLOSED, ERASED, ESTIMATED, Collector
from dunnage.collecting.estimate import estimate
from dunnage.collecting.periods import frozen
from dunnage.collecting.store import Period
from dunnage.collecting.tally import Tallies
from dunnage.devices.client import mechanisms_of
from dunnage.devices.numbers import LocalNumeric
from dunnage.devices.report import day_text
from dunnage.devices.task import Task
from dunnage.errors import InputError, ParameterError, Refusal
from dunnage.model.documents import Model

DAYS_PER_YEAR = 365
_FIGURES = ("value", "lower", "upper")
Row = Mapping[str, Any]


def estimated_rows(task: Task, tallies: Tallies, senders: str, confidence: float) -> tuple[list[Row], dict[str, str]]:
    """Estimate each purpose by itself; return the lines of all, and why purposes are left out."""
    rows, noise = list[Row](), dict[str, str]()
    for purpose in task.purposes:
        own = [tally for (name, _), tally in tallies.by_tier.items() if name == purpose.name]
        try:
            release = estimate(own, task, confidence=confidence, senders=senders) if own else None
        except (Refusal, InputError) as error:
            noise[purpose.name] = str(error)
            continue
        rows += [row for row in release.data.to_pylist() if row["purpose"] == purpose.name] if release else []
    return rows, noise


def view(
    collector: Collector, digest: str, by: str, first: int, last: int, confidence: float = 0.95
) -> list[dict[str, object]]:
    """Estimate the closed days from a first to a last one, by ``day`` or by ``tier``."""
    task, groups = collector.tasks[digest], list[tuple[str, Tallies]]()
    if by == "day":
        states = collector.states(digest)
        days = [day for day in states if first <= day <= last and states[day] in (CLOSED, ESTIMATED, ERASED)]
        groups = [(day_text(day), frozen(collector, digest, day, day)) for day in days]
    elif by == "tier":
        together = frozen(collector, digest, first, last)
        for tier in task.tier_names:
            of_tier = Tallies(task)
            of_tier.by_tier = {names: tally for names, tally in together.by_tier.items() if names[1] == tier}
            groups.append((tier, of_tier))
    else:
        raise ParameterError("a view is by day or by tier.")
    result = []
    for name, tallies in groups:
        rows, noise = estimated_rows(task, tallies, collector.senders[digest], confidence)
        plain = [{key: cell for key, cell in row.items() if cell not in (None, "")} for row in rows]
        result.append({by: name, "reports": tallies.num_reports, "estimates": plain, "noise": noise})
    return result


class Alarm(Model):
    """A limit for the whole fleet, and how often it may be reported falsely."""

    purpose: str
    attribute: str | None = Field(None, description="a number of the purpose")
    cell: int | None = Field(None, description="a cell of its grid: the alarm is about its share")
    direction: Literal["above", "below"]
    limit: float
    false_alarms_per_year: float = Field(gt=0, le=50)

    @model_validator(mode="after")
    def _one_subject(self) -> Alarm:
        if (self.attribute is None) == (self.cell is None):
            raise ValueError("must name an attribute, for its mean, or a cell, for its share")
        return self

    def check(self, task: Task) -> None:
        """Refuse an alarm about something that the task does not estimate."""
        mechanism = mechanisms_of(task).get(self.purpose)
        if mechanism is None:
            raise ParameterError(f"the task has no purpose {self.purpose!r}.")
        names = [quantity.name for quantity in mechanism.quantities] if isinstance(mechanism, LocalNumeric) else []
        if self.attribute is not None and self.attribute not in names:
            raise ParameterError(f"{self.purpose} does not report {self.attribute!r}. It reports: {', '.join(names)}.")
        if self.cell is not None and (names or not 0 <= self.cell < mechanism.grid.num_cells):  # type: ignore[union-attr]
            raise ParameterError(f"{self.purpose} has no cell {self.cell}.")

    @property
    def confidence(self) -> float:
        """Of an interval whose one end may be wrong as often as the alarm may be false on a day."""
        return 1 - 2 * self.false_alarms_per_year / DAYS_PER_YEAR

    def judge(self, task: Task, tallies: Tallies, senders: str) -> dict[str, object]:
        """Return whether the fleet is beyond the limit, with the interval that says so."""
        rows, noise = estimated_rows(task, tallies, senders, self.confidence)
        own = [row for row in rows if row["purpose"] == self.purpose]
        if self.cell is not None:
            own = [row for row in own if row.get("cell") == self.cell]
        else:
            own = [row for row in own if row["quantity"] == "mean" and row["attribute"] == self.attribute]
        if not own or own[0]["value"] is None:
            return {"raised": False, "unknown": noise.get(self.purpose, "no report says anything about it")}
        row = own[0]
        raised = row["lower"] > self.limit if self.direction == "above" else row["upper"] < self.limit
        return {"raised": bool(raised), **{name: row[name] for name in _FIGURES}}


def set_alarm(collector: Collector, digest: str, name: str, alarm: Alarm) -> None:
    alarm.check(collector.tasks[digest])
    collector.store.book.write(
        "INSERT INTO alarms VALUES (?, ?, ?) ON CONFLICT (task, name) DO UPDATE SET rule = excluded.rule",
        digest,
        name,
        json.dumps(alarm.plain()),
    )


def drop_alarm(collector: Collector, digest: str, name: str) -> bool:
    with collector.store.book.turn() as book:
        book.execute("DELETE FROM judged WHERE task = ? AND name = ?", (digest, name))
        return bool(book.execute("DELETE FROM alarms WHERE task = ? AND name = ?", (digest, name)).rowcount)


def alarms_of(collector: Collector, digest: str) -> dict[str, Alarm]:
    rows = collector.store.book.rows("SELECT name, rule FROM alarms WHERE task = ? ORDER BY name", digest)
    return {name: Alarm.model_validate(json.loads(rule)) for name, rule in rows}


def judge_day(collector: Collector, period: Period) -> list[str]:
    """Judge all alarms on a period that has just closed; return the names of those that are raised."""
    raised, alarms = [], alarms_of(collector, period.task)
    tallies = (
        frozen(collector, period.task, period.day, period.day) if alarms else Tallies(collector.tasks[period.task])
    )
    for name, alarm in alarms.items():
        result = alarm.judge(collector.tasks[period.task], tallies, collector.senders[period.task])
        collector.store.book.write(
            "INSERT INTO judged VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
            period.task,
            name,
            period.day,
            json.dumps(result),
        )
        raised += [name] if result["raised"] else []
    return raised


def judged(collector: Collector, digest: str) -> list[dict[str, object]]:
    """Return alarms with what they said of the latest days."""
    told: dict[str, list[dict[str, object]]] = {}
    sql = "SELECT name, day, result FROM judged WHERE task = ? ORDER BY day DESC LIMIT 2000"
    for name, day, result in collector.store.book.rows(sql, digest):
        told.setdefault(name, []).append({"day": day_text(day), **json.loads(result)})
    found = alarms_of(collector, digest)
    return [{"name": name, "alarm": alarm.plain(), "days": told.get(name, [])} for name, alarm in found.items()]
