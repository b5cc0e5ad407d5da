# SPDX-License-Identifier: Apache-2.0
"""Client: what runs on a device. It validates a value, spends, perturbs, encodes and stores, in that order.

At each slot of its allowance, and for each purpose of the task, a device sends exactly one report, whatever the value:
a number outside its domain is clamped; a place outside the grid, a missing or unreadable value, NaN and None are
separate inputs or the middle of the domain, as the task says. So only the schedule and the allowance decide whether a
report is sent.
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
from dunnage.devices.tokens import Wallet
from dunnage.errors import AllowanceError, ParameterError, TaskError
from dunnage.exact import decimal_text
from dunnage.noise.source import Noise


def mechanism_of(task: Task, purpose: Purpose, *, tiers: Sequence[Tier] | None = None) -> Any:
    """Build the mechanism of a purpose, with the epsilon of one slot in each tier."""
    kind = MECHANISMS[purpose.mechanism]
    subject: dict[str, object] = {kind.subject: purpose.grid or purpose.quantities}
    if purpose.steps > 1:
        subject["steps"] = purpose.steps
    if unknown := sorted(set(purpose.parameters) - set(kind.parameters)):
        raise TaskError(f"{purpose.name}: {purpose.mechanism} has no parameter {unknown[0]!r}. Leave it out.")
    try:
        return kind(**subject, tiers=tuple(tiers or task.slot_tiers(purpose)), **purpose.parameters)  # type: ignore[arg-type]
    except ParameterError as error:
        raise TaskError(f"{purpose.name}: {error}") from None


def mechanisms_of(task: Task) -> dict[str, Mechanism]:
    return {purpose.name: mechanism_of(task, purpose) for purpose in task.purposes}


@dataclass(frozen=True)
class TaskLosses:
    task: Task
    # For each tier of a vehicle and each purpose, the true loss of one report; None if it has no bound
    by_report: Mapping[tuple[str, str], Fraction | None]

    def of_slot(self, tier: str) -> Fraction | None:
        bounded = all(self.by_report[tier, purpose.name] is not None for purpose in self.task.purposes)
        return self.bounded_of_slot(tier) if bounded else None

    def bounded_of_slot(self, tier: str) -> Fraction:
        losses = (self.by_report[tier, purpose.name] for purpose in self.task.purposes)
        return sum((loss for loss in losses if loss is not None), Fraction(0))

    def of_day(self, tier: str) -> Fraction | None:
        slot = self.of_slot(tier)
        return None if slot is None else slot * self.task.schedule.slots_per_day

    def statements(self) -> list[str]:
        lines, schedule, lifetime = [], self.task.schedule, self.task.limits.lifetime
        num, width = schedule.slots_per_day, schedule.window
        for tier in self.task.tier_names:
            slot, day, name = self.of_slot(tier), self.of_day(tier), f"tier {tier}"
            if slot is None or day is None:
                lines.append(f"{name}: the loss of one slot has no bound, nor has that of a day, window or lifetime")
                continue
            lines += [
                f"{name}: one slot, all purposes: at most epsilon {decimal_text(slot, up=True)}",
                f"{name}: a day of {num} slot{'s' if num > 1 else ''}: at most epsilon {decimal_text(day, up=True)}",
                f"{name}: a lifetime: at most epsilon {decimal_text(lifetime, up=True)}. It lasts for "
                f"{lifetime // day} days, then the vehicle stops reporting",
            ]
            if width is not None:
                lines.append(
                    f"{name}: any {width} consecutive slots: at most epsilon {decimal_text(slot * width, up=True)}. "
                    f"This is a promise for {width} slots. The loss of a day is {decimal_text(Fraction(num, width))} "
                    "times as much, and the loss of a lifetime grows with every slot up to the limit"
                )
        return lines


def check_task(task: Task) -> TaskLosses:
    """Check that mechanisms accept their parameters, and that the true loss of a day has a bound and fits the limit."""
    losses: dict[tuple[str, str], Fraction | None] = {}
    for purpose, mechanism in zip(task.purposes, mechanisms_of(task).values(), strict=True):
        for name in task.tier_names:
            losses[name, purpose.name] = mechanism.true_loss(task.slot_tier(purpose, name))
    result = TaskLosses(task, losses)
    for (tier, name), loss in losses.items():
        if loss is None and not task.limits.allow_unbounded:
            raise TaskError(
                f"the loss of {name} in tier {tier} has no bound, and the task does not allow that. "
                "Use a mechanism with a bound, or set allow_unbounded in the task."
            )
    for tier in task.tier_names:
        limit = task.limits.lifetime if task.limits.day is None else task.limits.day
        if (day := result.bounded_of_slot(tier) * task.schedule.slots_per_day) > limit:
            raise TaskError(
                f"the scheduled slots of a day exceed the limit of epsilon {decimal_text(limit)}. Their true loss is "
                f"{decimal_text(day)} in tier {tier}. Report less often, at a smaller epsilon, or raise the limit."
            )
    return result


class _Duty(NamedTuple):
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
        Returns the time in seconds after 1 January 1970, for calls without a time.
    noise
        Source of all randomness. A seeded one protects nobody, so its reports count as having no bound.
    wallet
        Tokens, if the collector accepts reports without a sender: a report then gets the id of its token.

    Raises
    ------
    TaskError
        If the task is impossible (see :func:`check_task`).
    AllowanceError
        If the allowance is for another task.

    Examples
    --------
    >>> with Allowance.open("truck.allowance", task) as allowance:  # doctest: +SKIP
    ...     messages = Client(task, allowance).reports({"telemetry": {"speed": 61.5}, "places": (104.06, 30.66)})
    """

    def __init__(
        self,
        task: Task,
        allowance: Allowance,
        *,
        clock: Callable[[], float] = time.time,
        noise: Noise | None = None,
        wallet: Wallet | None = None,
    ) -> None:
        if allowance.task.digest != task.digest:
            raise AllowanceError("the allowance is open for another task. Open it with the client's task.")
        self.task, self.allowance = task, allowance
        self.losses = check_task(task)
        self._clock, self._noise, self._wallet = clock, noise or Noise(), wallet
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
        """Make the report of one purpose, or return the stored one.

        A value is ``{name: number}`` for numbers, ``(longitude, latitude)`` for a place, a sequence of such places for
        a path; anything else counts as missing, and still makes a report. The default slot is the earliest due one
        without a report, else the latest due one. If none is due, or the allowance is used up, nothing is spent.
        """
        self.task.purpose_index(purpose)  # refuses an unknown name
        moment = self._now(now)
        with self.allowance.turn():
            if slot is None:
                slots = self.allowance.due(moment)
                if not slots:
                    following = self.allowance.next_moment(moment)
                    when = "" if following is None else f" The next one begins in {following - int(moment)} seconds."
                    raise AllowanceError(f"no slot is due, so there is nothing to report.{when} Call due() first.")
                slot = next((each for each in slots if self.allowance.stored(each, purpose) is None), slots[-1])
            slot = Slot(*slot)
            stored = self.allowance.stored(slot, purpose)
            return stored if stored is not None else self._make(self._duties[purpose], value, slot, moment)

    def reports(self, values: Mapping[str, object], now: float | None = None) -> list[bytes]:
        """Make one report for each due slot and purpose that has none; a value that is left out counts as missing.

        If the allowance is used up, or the clock went back, the reports made until then are stored, and :meth:`resend`
        returns them.
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
        """Return all stored reports of a day that has not closed; this spends nothing, whatever the time."""
        return list(self.allowance.stored_of(day))

    def _now(self, now: float | None) -> float:
        return self._clock() if now is None else now

    def _make(self, duty: _Duty, value: object, slot: Slot, now: float) -> bytes:
        """Spend, perturb, encode, store. A slot that was spent earlier without a report reports the missing input."""
        report_id = b""
        if self._wallet is not None:  # refuses before anything is spent
            place = self.allowance.slots(slot.day).index(slot.slot) * len(self._duties) + duty.number
            report_id = self._wallet.report_id(slot.day, place)
        if self.allowance.is_spent(slot, duty.name):
            value = None
            if slot not in self.allowance.due(now):
                raise AllowanceError(
                    "the slot has lapsed: no collector accepts its report any more. Wait for the next one."
                )
        else:
            self.allowance.spend(slot, duty.name, duty.loss, now)
        try:
            payload = duty.mechanism.perturb(value, tier=duty.tier, noise=self._noise)
        except Exception:  # a value that raises when it is read must not silence the slot
            payload = duty.mechanism.perturb(None, tier=duty.tier, noise=self._noise)
        report = Report(
            task=self.task.prefix,
            purpose=duty.number,
            tier=duty.tier_index,
            day=slot.day,
            slot=slot.slot,
            report_id=report_id or self._noise.draw_bytes(ID_BYTES),
            payload=payload,
        ).to_bytes()
        self.allowance.store(slot, duty.name, report)
        return report

    def __repr__(self) -> str:
        return f"<Client of task {self.task.digest[:16]}, tier {self.allowance.tier}>"
