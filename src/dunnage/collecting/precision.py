# SPDX-License-Identifier: Apache-2.0
"""Precision: how many reports, and so how many days or vehicles, intervals of a wanted width take.

Before anything is collected, the law of the noise gives the largest variance of one report's estimate, however the
values are spread, so that an interval from N reports is about z sqrt(variance / N) wide on either side, or less. Once
there are estimates, the width of their own intervals counts instead.

A law's estimate of a number t in [-1, 1] has the second moment a + b t^2. If only a share s of the slots has a reading,
with the mean r, a number with ``missing = "symbol"`` is estimated as T / S: T has the mean s r and at most the variance
a + b s - (s r)^2, and S, from signs of the scale c, has (c^2 - (2 s - 1)^2) / 4. The ratio's variance is that of T plus
r^2 times that of S, over s^2, all divided by the share of the reports that cover the attribute. It is largest at r = 0
or at r = 1.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

from dunnage.collecting.estimate import normal_quantile
from dunnage.devices.client import check_task, mechanism_of
from dunnage.devices.numbers import LocalNumeric, SampledReport
from dunnage.devices.subjects import Quantity, Tier
from dunnage.devices.task import Task
from dunnage.errors import ParameterError
from dunnage.exact import exact, shown
from dunnage.release import Release
from dunnage.text import number_text, rounded_percent, several

DEFAULT_SHARE = Fraction(5, 100)  # half the width of an interval, as a share of the number's domain
_MIN_PRESENT = 0.01  # a smaller share of slots with a reading is as good as none


@dataclass(frozen=True, kw_only=True)
class Precision:
    share: Fraction = DEFAULT_SHARE  # of the domain of each number
    by_name: Mapping[str, Fraction] = field(default_factory=dict)  # of some numbers, in their unit

    @classmethod
    def read(cls, text: str | None) -> Precision:
        """Read ``5%`` (of the domain), ``speed=1`` (in its unit), or several of them, separated by commas."""
        share, by_name = DEFAULT_SHARE, dict[str, Fraction]()
        for part in text.split(",") if text is not None else ():
            name, equals, number = (piece.strip() for piece in part.rpartition("="))
            is_share = not equals and number.endswith("%")
            try:
                amount = exact(number.removesuffix("%").strip() if is_share else number, what="a precision")
            except ParameterError:
                amount = Fraction(0)
            if amount <= 0 or not (is_share or name) or (is_share and amount > 100):
                raise ParameterError(
                    f"a precision must be a share of the domain, such as 5%, or a number in its unit, such as speed=1. "
                    f"Got {shown(text)}."
                )
            if is_share:
                share = amount / 100
            else:
                by_name[name] = amount
        return cls(share=share, by_name=by_name)

    def check(self, task: Task) -> None:
        names = list(dict.fromkeys(quantity.name for purpose in task.purposes for quantity in purpose.quantities))
        for name in self.by_name:
            if name not in names:
                known = f"It reports {', '.join(names)}" if names else "It reports no numbers"
                raise ParameterError(f"--precision names {shown(name)}, which the task does not report. {known}.")

    def half_width(self, quantity: Quantity) -> float:
        return float(self.by_name.get(quantity.name, self.share * (quantity.high - quantity.low)))


@dataclass(frozen=True, kw_only=True)
class Need:
    purpose: str
    quantity: Quantity
    half_width: float  # wanted, in the unit of the number
    num_reports: int  # reports that it takes
    num_now: int = 0  # reports that there are
    half_width_now: float | None = None  # of the interval that there is
    at_least: bool = False  # whether it takes more if slots have no reading, which is not known yet

    def to_dict(self) -> dict[str, object]:
        return {
            "purpose": self.purpose,
            "attribute": self.quantity.name,
            "half_width": self.half_width,
            "reports": self.num_reports,
            **({"reports_now": self.num_now} if self.num_now else {}),
            **({"half_width_now": self.half_width_now} if self.half_width_now is not None else {}),
        }

    @property
    def goal(self) -> str:
        unit = f" {self.quantity.unit}" if self.quantity.unit else ""
        filled = ", missing as the middle," if self.quantity.missing == "middle" else ""
        return f"{self.quantity.name}{filled} to ±{number_text(self.half_width)}{unit}"

    @property
    def share(self) -> str:
        return rounded_percent(self.half_width / float(self.quantity.high - self.quantity.low))


def needed_reports(
    mechanism: LocalNumeric, at: int, half_width: float, *, confidence: float = 0.95, present: float = 1.0
) -> int:
    """Return how many reports make the interval of a mean narrow enough, whatever the values."""
    # Tiers have as many reports each, and weigh alike in the interval, which is right even if they differ.
    variances = [report_variance(mechanism, tier, at, present) for tier in mechanism.levels]
    variance, quantity = math.fsum(variances) / len(variances), mechanism.quantities[at]
    widths = float(quantity.high - quantity.low) / 2 * normal_quantile(confidence) / half_width
    return max(1, math.ceil(variance * widths**2))


def report_variance(mechanism: LocalNumeric, tier: Tier, at: int, present: float = 1.0) -> float:
    report, quantity = mechanism.channel(tier), mechanism.quantities[at]

    def quadratic(attribute: int) -> tuple[float, float]:
        return report.laws[attribute].quadratic if isinstance(report, SampledReport) else report.quadratic

    constant, square = quadratic(at)
    places = [n for n, item in enumerate(mechanism.attributes) if item.presence and item.quantity == quantity]
    if not places:
        return (constant + max(square, 0.0)) / report.share
    share = min(max(present, _MIN_PRESENT), 1.0)
    of_share = (quadratic(places[0])[0] - (2 * share - 1) ** 2) / 4
    return (constant + max(square, 0.0) * share + max(of_share - share**2, 0.0)) / (report.share * share**2)


def needs_of_task(task: Task, precision: Precision, *, confidence: float = 0.95) -> list[Need]:
    precision.check(task)
    needs = []
    for purpose in task.purposes:
        for at, quantity in enumerate(purpose.quantities):
            width = precision.half_width(quantity)
            num = needed_reports(mechanism_of(task, purpose), at, width, confidence=confidence)
            needs.append(Need(purpose=purpose.name, quantity=quantity, half_width=width, num_reports=num))
    return needs


def needs_of_release(release: Release, task: Task, precision: Precision) -> list[Need]:
    """Say what each released mean takes: its interval shrinks with the root of the number of reports."""
    precision.check(task)
    stated, lines = release.certificate, release.data.to_pylist()
    confidence = float(str(stated.mechanism["confidence"]))
    present = {(line["purpose"], line["attribute"]): line for line in lines if line["quantity"] == "present"}
    ends = {(line["purpose"], line["attribute"]): line for line in lines if line["quantity"] == "mean"}
    needs = []
    for purpose in task.purposes:
        num = sum(stated.estimates.reports[purpose.name].values())
        for at, quantity in enumerate(purpose.quantities):
            key, wanted = (purpose.name, quantity.name), precision.half_width(quantity)
            value, lower, upper = (ends[key][name] for name in ("value", "lower", "upper"))
            now, total, at_least = None, 0, False
            # An end at the border of the domain is cut off, and says nothing about the width.
            sides = [value - lower] if value is not None and lower > quantity.low else []
            sides += [upper - value] if value is not None and upper < quantity.high else []
            if sides:
                now = max(sides)
                total = max(1, math.ceil(num * (now / wanted) ** 2))
            else:
                # Until it is clear that a slot has a reading at all, assume that all have one.
                law, slots, share = mechanism_of(task, purpose), present.get(key), 1.0
                if slots is not None:
                    at_least = not slots["lower"] > 0
                    share = 1.0 if at_least else slots["value"]
                total = needed_reports(law, at, wanted, confidence=confidence, present=share)
            need = Need(purpose=key[0], quantity=quantity, half_width=wanted, num_reports=total, num_now=num)
            needs.append(replace(need, half_width_now=now, at_least=at_least))
    return needs


def lasting_days(task: Task) -> int | None:
    losses = check_task(task)
    days = [losses.of_day(tier) for tier in task.tier_names]
    return None if None in days else min(int(task.limits.lifetime // day) for day in days if day)


def plan_lines(needs: list[Need], task: Task, devices: int) -> Iterator[str]:
    slots, lasting = task.schedule.slots_per_day, lasting_days(task)
    for (_, share), group in itertools.groupby(needs, lambda need: (need.num_reports, need.share)):
        alike = list(group)
        need, its = alike[0], "its range" if len(alike) == 1 else "their range"
        goal = f"{', '.join(each.goal for each in alike)} ({share} of {its})"
        days, vehicles = -(-need.num_reports // (devices * slots)), -(-need.num_reports // slots)
        if days <= 1:
            yield f"{goal}: one day is enough, from {_vehicles(vehicles)} on"
            continue
        text = f"{goal}: {several(days, 'day')} of {several(devices, 'vehicle')}, or {_vehicles(vehicles)} on one day"
        yield text + _beyond(need, days, lasting, slots)
    if any(need.quantity.missing == "symbol" for need in needs):
        yield "if every slot has a reading: where half of the slots have none, these are four times as many"


def more_lines(needs: list[Need], task: Task, days: int | None) -> Iterator[str]:
    """Say what the wanted precision still takes, in days and vehicles if the number of days so far is known."""
    slots, lasting = task.schedule.slots_per_day, lasting_days(task)
    for need in needs:
        goal = f"{need.goal} ({need.share} of its range)"
        least = "at least " if need.at_least else ""
        if need.half_width_now is not None and need.half_width_now <= need.half_width:
            yield f"{goal}: reached, it is ±{number_text(need.half_width_now)}"
            continue
        if not days or not need.num_now:
            more = several(_rounded_up(max(need.num_reports - need.num_now, 1)), "more report")
            yield f"{goal}: {least or 'about '}{more} than the {need.num_now:,} there are"
            continue
        fleet = max(1, round(need.num_now / (days * slots)))
        more_days = max(1, -(-need.num_reports // (fleet * slots)) - days)
        vehicles = -(-need.num_reports // (days * slots))
        text = f"{goal}: {least}{several(_rounded_up(more_days), 'more day')} of {several(fleet, 'vehicle')}, "
        text += f"or {_vehicles(vehicles)} on {several(days, 'day')}"
        yield text + _beyond(need, days + more_days, lasting, slots)


def _beyond(need: Need, days: int, lasting: int | None, slots: int) -> str:
    if lasting is None or days <= lasting:
        return ""
    fewest = _vehicles(-(-need.num_reports // (max(lasting, 1) * slots)))
    return f". The allowance lasts for {several(lasting, 'day')}, which takes {fewest}"


def _vehicles(num: int) -> str:
    return f"{_rounded_up(num):,} vehicles" if num != 1 else "1 vehicle"


def _rounded_up(num: int) -> int:
    """Round up to two digits: the third would promise more than a prediction can."""
    unit = int(10 ** max(len(str(num)) - 2, 0))
    return -(-num // unit) * unit
