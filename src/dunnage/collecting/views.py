# SPDX-License-Identifier: Apache-2.0
"""Views: estimates of a fleet by day, hour of the day, tier or file, and what groups say about each other.

Day, slot and tier of a report are readable, so a view gives nothing away that the reports do not: it is computed from
them alone. A public group, such as a company or a region, is a file of its own: its gateway delivers it. There is no
view of a vehicle, because reports do not say whose they are.

A map that would be noise in a group is not made there (the rule of :func:`~dunnage.collecting.estimate.estimate`).

*Partial pooling.* A group with few reports says little, and the others say something about it: the mean of a group is
moved towards that of all groups, the more the less certain it is (empirical Bayes, normal means). The interval is that
of Armstrong, Kolesár and Plagborg-Møller (Econometrica 2022): whatever the distribution of the groups, with its second
moment alone, intervals contain the truth as often as stated *on average over the groups*, not in each of them. That is
the assumption named :data:`ALIKE`. The spread of the groups is estimated from them, so it takes :data:`MIN_GROUPS`.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dunnage.arrays import FloatArray, IntArray
from dunnage.collecting.estimate import Lines, normal_quantile
from dunnage.collecting.frames import Batch, Label, Source, TierReader, tally_groups
from dunnage.collecting.promises import AUTO
from dunnage.collecting.tally import Packed, Tallies, Tally
from dunnage.devices.client import mechanisms_of
from dunnage.devices.numbers import LocalNumeric
from dunnage.devices.report import day_text
from dunnage.devices.task import Task
from dunnage.errors import ParameterError, Refusal, ReportError
from dunnage.exact import shown
from dunnage.release.kinds.estimates import COLUMN_TYPES

BY = ("day", "hour", "tier", "file")
GROUP = "group"  # a collector's name for files, one for each public group of senders
MIN_GROUPS = 6
ALIKE = "groups are alike: pooled values lean on the other groups, and intervals hold on average over groups"
POOLED = ("pooled", "pooled_lower", "pooled_upper")
Cell = str | float | None


@dataclass(frozen=True, kw_only=True)
class View:
    """Estimates of groups of reports, one line for each group and quantity."""

    by: str
    lines: list[dict[str, Cell]]  # the group under the name ``by``, its number of reports, then as in a release
    noise: dict[str, list[str]]  # groups in which a map would be noise, by purpose
    num_groups: int

    def to_csv(self) -> str:
        names = [*COLUMN_TYPES, *POOLED]
        used = [name for name in names if any(line.get(name) not in (None, "") for line in self.lines)]
        sink = io.StringIO()
        writer = csv.writer(sink, lineterminator="\n")
        writer.writerow([self.by, "reports", *used])
        for line in self.lines:
            cells = [line[self.by], line["reports"], *(line.get(name) for name in used)]
            writer.writerow(["" if cell is None else cell for cell in cells])
        return sink.getvalue()

    def sentences(self) -> list[str]:
        told = [
            f"{purpose}: still noise in {len(groups)} of {self.num_groups}" for purpose, groups in self.noise.items()
        ]
        if any("pooled" in line for line in self.lines):
            told.append(f"pooled values assume that {ALIKE}")
        return told


def view(
    task: Task,
    sources: Sequence[Source],
    by: str,
    *,
    days: tuple[int, int] | None = None,
    received: float | None = None,
    confidence: float = 0.95,
    combine: str = AUTO,
) -> View:
    """Estimate each group of the reports by itself, and the means of numbers also with the help of the others."""
    groups = dict(_grouped(task, sources, by, days, received))
    if not groups:
        raise ReportError("no report can be used. Name files of the task.")
    lines: list[dict[str, Cell]] = []
    noise: dict[str, list[str]] = {}
    for group, tallies in groups.items():
        for name, mechanism in mechanisms_of(task).items():
            own = [tally for tally in tallies if tally.purpose == name]
            if not own:
                continue
            made, num = Lines(), sum(tally.num_reports for tally in own)
            try:
                made.add_purpose(name, mechanism, own, confidence, combine, allow_noise=False)
            except Refusal:
                noise.setdefault(name, []).append(group)
                continue
            units = {quantity.name: quantity.unit for quantity in getattr(mechanism, "quantities", ())}
            for line in made.lines:
                unit = units.get(str(line.get("attribute", "")), "") if line["quantity"] != "present" else ""
                lines.append({by: group, "reports": num, "unit": unit, **line})
    _pool(task, lines, by, confidence)
    return View(by=by, lines=lines, noise=noise, num_groups=len(groups))


def _grouped(
    task: Task, sources: Sequence[Source], by: str, days: tuple[int, int] | None, received: float | None
) -> Iterator[tuple[str, list[Tally]]]:
    def label_of(values: Any) -> Label:
        def label(reader: TierReader, batch: Batch, own: IntArray, rows: Packed) -> IntArray:
            return np.asarray(np.broadcast_to(values(batch, own), len(own)), dtype=np.int64)

        return label

    def tallied(values: Any) -> dict[int, Tallies]:
        return dict(sorted(tally_groups(task, sources, label_of(values), days=days, received=received).items()))

    minutes = task.schedule.slot_minutes
    if by == "day":
        for day, tallies in tallied(lambda batch, own: batch.day[own]).items():
            yield day_text(day), list(tallies.by_tier.values())
    elif by == "hour":
        for hour, tallies in tallied(lambda batch, own: batch.slot[own] * minutes // 60).items():
            yield f"{hour:02d}:00", list(tallies.by_tier.values())
    elif by in ("file", GROUP):
        names = [source.name for source in sources]
        for at, tallies in tallied(lambda batch, _: names.index(batch.source)).items():
            yield sources[at].name, list(tallies.by_tier.values())
    elif by == "tier":
        for tallies in tallied(lambda batch, own: 0).values():
            for tier in task.tier_names:
                own = [tally for tally in tallies.by_tier.values() if tally.tier == tier]
                if own:
                    yield tier, own
    else:
        raise ParameterError(f"a view is by {', '.join(BY)}. Got {shown(by)}.")


def _pool(task: Task, lines: Sequence[dict[str, Cell]], by: str, confidence: float) -> None:
    """Add pooled means to the lines of numbers that enough groups have."""
    series: dict[tuple[Cell, ...], list[dict[str, Cell]]] = {}
    for line in lines:
        if line["quantity"] in ("mean", "present") and line["value"] is not None:
            series.setdefault((line["purpose"], line["quantity"], line["attribute"]), []).append(line)
    numbers = {name: m for name, m in mechanisms_of(task).items() if isinstance(m, LocalNumeric)}
    for (purpose, quantity, attribute), own in series.items():
        if len(own) < MIN_GROUPS:
            continue
        value, lower, upper = (
            np.array([line[key] for line in own], dtype=float) for key in ("value", "lower", "upper")
        )
        errors = np.maximum(value - lower, upper - value) / normal_quantile(confidence)
        ends = (0.0, 1.0)
        if quantity == "mean":
            (domain,) = (q for q in numbers[str(purpose)].quantities if q.name == attribute)
            ends = float(domain.low), float(domain.high)
        pooled = pool(value, errors, confidence)
        for line, *figures in zip(own, *pooled, strict=True):
            line.update(zip(POOLED, (min(max(float(one), ends[0]), ends[1]) for one in figures), strict=True))


def pool(values: FloatArray, errors: FloatArray, confidence: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the means of groups, moved towards each other, with intervals that hold on average over the groups."""
    variances = np.maximum(errors**2, 1e-300)
    # The spread of the groups: what their estimates vary more than their errors explain, and not less than is
    # plausible by chance if they do not differ at all (Armstrong et al., section 4).
    least = 2 * float(np.mean(variances**2)) / (float(np.mean(variances)) * values.size)
    spread = max(float(values.var(ddof=1)) - float(np.mean(variances)), least)
    weights = 1 / (spread + variances)
    middle = float((weights * values).sum() / weights.sum())
    kept = spread / (spread + variances)
    pooled = middle + kept * (values - middle)
    # A bias of (1 - kept) times a group's distance from the middle, in standard errors: its mean square is v / spread.
    ratios, place = np.unique(variances / spread, return_inverse=True)
    critical = np.array([critical_value(float(ratio), 1 - confidence) for ratio in ratios])[place]
    of_middle = normal_quantile(confidence) * (1 - kept) / math.sqrt(float(weights.sum()))
    width = np.hypot(critical * kept * np.sqrt(variances), of_middle)
    return pooled, pooled - width, pooled + width


def critical_value(ratio: float, risk: float) -> float:
    """Return how many standard errors contain an estimate with a mean squared bias of ``ratio``, with this risk."""
    from scipy.special import ndtr

    def largest_risk(reach: float) -> float:
        # The worst distribution of the bias has two points, one of them 0: the concave hull of the risk, at the ratio.
        squares = ratio * np.geomspace(1.0, max((reach + 8) ** 2 / ratio, 1.0), 100)
        biases = np.sqrt(squares)
        missed = ndtr(biases - reach) + ndtr(-biases - reach)
        none = 2 * float(ndtr(-reach))
        return float(np.max(none + (missed - none) * (ratio / squares)))

    low, high = 0.0, math.sqrt((1 + ratio) / risk)  # Chebyshev's inequality
    for _ in range(30):
        reach = (low + high) / 2
        low, high = (low, reach) if largest_risk(reach) <= risk else (reach, high)
    return high
