# SPDX-License-Identifier: Apache-2.0
"""Client: what runs on a device. It validates a value, spends, perturbs, encodes and stores, in that order.

At each slot that its allowance has drawn, and for each purpose of the task, a device sends exactly one report, whatever
the value is: a number outside its domain is clamped; a place outside the grid, a missing or unreadable value, NaN and
None are inputs of their own or the middle of the domain, as the task says. So whether a report is sent depends on
the schedule and the allowance alone.

This module and all it imports use the standard library alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

from dunnage.devices.allowance import Allowance, Slot
from dunnage.devices.report import ID_BYTES, Report
from dunnage.devices.subjects import Tier
from dunnage.devices.task import MECHANISMS, Mechanism, Purpose, Task
from dunnage.errors import AllowanceError, ParameterError, TaskError
from dunnage.exact import decimal_text
from dunnage.noise.source import Noise


def mechanism_of(task: Task, purpose: Purpose, *, tiers: Sequence[Tier] | None = None) -> Any:
    """Make the mechanism of a purpose, with the epsilon of one slot in each tier."""
    kind = MECHANISMS[purpose.mechanism]
    subject: dict[str, object] = {kind.subject: purpose.grid or purpose.quantities}
    if purpose.steps > 1:
        subject["steps"] = purpose.steps
    unknown = sorted(set(purpose.parameters) - set(kind.parameters))
    if unknown:
        raise TaskError(f"{purpose.name}: {purpose.mechanism} has no parameter {unknown[0]!r}. Leave it out.")
    try:
        return kind(**subject, tiers=tuple(tiers or task.slot_tiers(purpose)), **purpose.parameters)  # type: ignore[arg-type]
    except ParameterError as error:
        raise TaskError(f"{purpose.name}: {error}") from None


def mechanisms_of(task: Task) -> dict[str, Mechanism]:
    return {purpose.name: mechanism_of(task, purpose) for purpose in task.purposes}


@dataclass(frozen=True)
class TaskLosses:
    task: Task  # The task
    # For each tier of a vehicle and each purpose, the true loss of one report; None if it has no bound
    by_report: Mapping[tuple[str, str], Fraction | None]

    def of_slot(self, tier: str) -> Fraction | None:
        """Return the loss of one slot: all purposes together; None if there is no bound."""
        bounded = all(self.by_report[tier, purpose.name] is not None for purpose in self.task.purposes)
        return self.bounded_of_slot(tier) if bounded else None

    def bounded_of_slot(self, tier: str) -> Fraction:
        """Return the loss of the purposes of one slot that have a bound."""
        losses = (self.by_report[tier, purpose.name] for purpose in self.task.purposes)
        return sum((loss for loss in losses if loss is not None), Fraction(0))

    def of_day(self, tier: str) -> Fraction | None:
        """Return the loss of one day; None if there is no bound."""
        slot = self.of_slot(tier)
        return None if slot is None else slot * self.task.schedule.slots_per_day

    def statements(self) -> list[str]:
        """Say, for each tier, what a slot, a day, a window and a lifetime of reports give away."""
        lines, schedule, lifetime = [], self.task.schedule, self.task.limits.lifetime
        num, width = schedule.slots_per_day, schedule.window
        for tier in self.task.tier_names:
            slot, day, name = self.of_slot(tier), self.of_day(tier), f"tier {tier}"
            if slot is None or day is None:
                lines.append(f"{name}: one slot gives away more than any bound; so do a day, a window and a lifetime")
                continue
            lines += [
                f"{name}: one slot, all purposes: at most epsilon {decimal_text(slot)}",
                f"{name}: a day of {num} slot{'s' if num > 1 else ''}: at most epsilon {decimal_text(day)}",
                f"{name}: a lifetime: at most epsilon {decimal_text(lifetime)}, which lasts for {lifetime // day} "
                "days; then the vehicle falls silent",
            ]
            if width is not None:
                lines.append(
                    f"{name}: any {width} consecutive slots: at most epsilon {decimal_text(slot * width)}. That is a "
                    f"promise for {width} slots, not for a day ({decimal_text(Fraction(num, width))} times as much) "
                    "and not for a lifetime, over which the loss grows with every slot up to the limit"
                )
        return lines


def check_task(task: Task) -> TaskLosses:
    """Check that a task's mechanisms can be made and that the true loss of a day fits its limits.

    Call it when a task is made, and before a device takes it on.

    Raises :class:`~dunnage.errors.TaskError` if a mechanism refuses its parameters, a purpose has no bound and the task
    does not allow that, or the scheduled slots of a day exceed the day's or the lifetime's limit.
    """
    losses: dict[tuple[str, str], Fraction | None] = {}
    for purpose, mechanism in zip(task.purposes, mechanisms_of(task).values(), strict=True):
        for name in task.tier_names:
            losses[name, purpose.name] = mechanism.true_loss(task.slot_tier(purpose, name))
    result = TaskLosses(task, losses)
    for (tier, name), loss in losses.items():
        if loss is None and not task.limits.allow_unbounded:
            raise TaskError(
                f"{name} gives away more than any bound in tier {tier}. Got no allow_unbounded. "
                "Use a mechanism with a bound, or allow it in the task."
            )
    for tier in task.tier_names:
        limit = task.limits.lifetime if task.limits.day is None else task.limits.day
        day = result.bounded_of_slot(tier) * task.schedule.slots_per_day
        if day > limit:
            raise TaskError(
                f"the scheduled slots of a day do not fit the limit epsilon {decimal_text(limit)}. Got a true loss of "
                f"{decimal_text(day)} in tier {tier}. Report less often, at a smaller epsilon, or raise the limit."
            )
    return result


class _Duty(NamedTuple):
    """What it takes to make the reports of one purpose."""

    name: str
    number: int
    tier_index: int
    tier: Tier
    mechanism: Mechanism
    loss: Fraction | None


class Client:
    """Makes the reports of one vehicle.

    Parameters
    ----------
    task
        The task.
    allowance
        The vehicle's allowance, open, for the same task.
    clock
        Gives the time in seconds after 1 January 1970 where a call does not say it.
    noise
        Source of all randomness. A seeded one protects nobody, so its reports are charged as having no bound.

    Raises
    ------
    TaskError
        If the task cannot be kept (see :func:`check_task`).
    AllowanceError
        If the allowance is for another task.

    Examples
    --------
    >>> with Allowance.open("truck.allowance", task) as allowance:  # doctest: +SKIP
    ...     messages = Client(task, allowance).reports({"telemetry": {"speed": 61.5}, "places": (104.06, 30.66)})
    """

    def __init__(
        self, task: Task, allowance: Allowance, *, clock: Callable[[], float] = time.time, noise: Noise | None = None
    ) -> None:
        if allowance.task.digest != task.digest:
            raise AllowanceError("the allowance was opened for another task. Open it with the client's task.")
        self.task, self.allowance = task, allowance
        self.losses = check_task(task)
        self._clock, self._noise = clock, noise or Noise()
        self._duties = {}
        for number, purpose in enumerate(task.purposes):
            index = task.tier_index(purpose, allowance.tier)
            tier = task.slot_tiers(purpose)[index]
            mechanism = mechanism_of(task, purpose, tiers=(tier,))
            loss = None if self._noise.seeded else self.losses.by_report[allowance.tier, purpose.name]
            self._duties[purpose.name] = _Duty(purpose.name, number, index, tier, mechanism, loss)

    def due(self, now: float | None = None) -> tuple[Slot, ...]:
        """Return the slots that still lack a report of some purpose and may be sent now, the earliest first."""
        slots = self.allowance.due(self._now(now))
        return tuple(s for s in slots if any(self.allowance.stored(s, name) is None for name in self._duties))

    def report(self, purpose: str, value: object, now: float | None = None, *, slot: Slot | None = None) -> bytes:
        """Make the report of one purpose, or give the stored one again.

        A value is ``{name: number}`` for numbers, ``(longitude, latitude)`` for a place, a sequence of such places for
        a path; anything else counts as missing, and still makes a report. Without a slot the earliest due one without a
        report is meant, else the latest due one. If none is due, or the allowance is used up, nothing is spent.
        """
        self.task.purpose_index(purpose)  # refuses a name that is not there
        moment = self._now(now)
        with self.allowance.turn():
            if slot is None:
                slots = self.allowance.due(moment)
                if not slots:
                    following = self.allowance.next_moment(moment)
                    when = "" if following is None else f" The next one begins in {following - int(moment)} seconds."
                    raise AllowanceError(f"no slot is due, so there is nothing to report.{when} Ask due() first.")
                slot = next((each for each in slots if self.allowance.stored(each, purpose) is None), slots[-1])
            slot = Slot(*slot)
            stored = self.allowance.stored(slot, purpose)
            return stored if stored is not None else self._make(self._duties[purpose], value, slot, moment)

    def reports(self, values: Mapping[str, object], now: float | None = None) -> list[bytes]:
        """Make all reports that are due and not made: one for each due slot and purpose; what is left out is missing.

        If the allowance is used up, or the clock went back, those made before that are stored: :meth:`resend` has them.
        """
        moment = self._now(now)
        for name in values:
            self.task.purpose_index(name)
        with self.allowance.turn():
            return [
                self._make(duty, values.get(name), slot, moment)
                for slot in self.due(moment)
                for name, duty in self._duties.items()
                if self.allowance.stored(slot, name) is None
            ]

    def resend(self, day: int) -> list[bytes]:
        """Return all stored reports of a day that has not closed; nothing is drawn or spent, whatever the time."""
        return list(self.allowance.stored_of(day))

    def _now(self, now: float | None) -> float:
        return self._clock() if now is None else now

    def _make(self, duty: _Duty, value: object, slot: Slot, now: float) -> bytes:
        """Spend, perturb, encode, store; a slot that was spent in vain before reports the missing input."""
        if self.allowance.is_spent(slot, duty.name):
            value = None
            if slot not in self.allowance.due(now):
                raise AllowanceError(
                    "the slot has lapsed: no collector takes its report any more. Wait for the next one."
                )
        else:
            self.allowance.spend(slot, duty.name, duty.loss, now)
        try:
            payload = duty.mechanism.perturb(value, tier=duty.tier, noise=self._noise)
        except Exception:  # a value that cannot even be looked at (its own code raises) must not silence the slot
            payload = duty.mechanism.perturb(None, tier=duty.tier, noise=self._noise)
        report = Report(
            task=self.task.prefix,
            purpose=duty.number,
            tier=duty.tier_index,
            day=slot.day,
            slot=slot.slot,
            report_id=self._noise.draw_bytes(ID_BYTES),
            payload=payload,
        ).to_bytes()
        self.allowance.store(slot, duty.name, report)
        return report

    def __repr__(self) -> str:
        return f"<Client of task {self.task.digest[:16]}, tier {self.allowance.tier}>"
