# SPDX-License-Identifier: Apache-2.0
"""estimate: from reports, or their tallies, to a release of estimates with intervals and a certificate.

The release has one long table. ``quantity`` and ``purpose`` say what a line is about, and the cell columns of what:

==============  ==========================================  =================================
quantity        cell columns                                value
==============  ==========================================  =================================
mean            ``attribute``                               mean, in ``unit``
present         ``attribute``                               share of vehicles that have it
share           ``attribute``, ``bin_lower``, ``bin_upper``  share of a bin (square waves)
quantile 0.5    ``attribute``                               the median (0.25, 0.75 alike), in ``unit``
share           ``cell``, ``lon``, ``lat``                  share of a cell; the cell past the last: outside or missing
share           ``path``                                    share of a path: cells in order, ``12>13``
==============  ==========================================  =================================

``value`` lies between ``lower`` and ``upper``. A column that no purpose needs is left out; in a line that it does not
speak of it is empty. Estimates are made from perturbed reports alone: nothing private is read, nothing is drawn and
nothing is spent. What vehicles gave away is in their allowances, and the certificate says how much that may be.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dunnage.certificate import Certificate, certify
from dunnage.errors import InputError, ParameterError, Problem, Refusal
from dunnage.exact import plain, shown
from dunnage.folders import new_folder
from dunnage.guarantees import Neighbours, Promise
from dunnage.local.client import TaskLosses, check_task, mechanism_of
from dunnage.local.distribution import QUANTILES, fit_distribution, num_bins
from dunnage.local.estimators import COMBINATIONS, ONE_TIER, PRECISION, check_confidence
from dunnage.local.means import Mean, estimate_means
from dunnage.local.numeric import LocalNumeric
from dunnage.local.numeric_laws import SquareWave
from dunnage.local.planar import Planar
from dunnage.local.promises import estimates_promise
from dunnage.local.report import Report
from dunnage.local.shares import Shares, estimate_shares
from dunnage.local.subjects import Grid, Quantity
from dunnage.local.tally import Counts, Tallies, Tally
from dunnage.local.tally_checks import check_repeated, check_tally
from dunnage.local.task import Purpose, Task
from dunnage.local.trajectory import LocalTrajectory
from dunnage.release import CERTIFICATE_FILE, ESTIMATES, RELEASE_FILES, Release

MOST_LISTED = 1000
"""Paths that are listed at most, besides those whose interval lies above 0."""
LEFT_OUT = ("damaged", "other_task", "impossible", "duplicate", "conflicting")
"""Kinds of reports that are left out: no report at all, made for another task, none that a device of the task can have
made, sent again, with the id of another one but other content."""
OUTSIDE, OTHER = "outside", "other"
"""In column ``path``: a place (or path) outside the grid or missing; all paths that are not listed."""

_TYPES: Mapping[str, pa.DataType] = {
    "quantity": pa.string(),
    "purpose": pa.string(),
    "attribute": pa.string(),
    "bin_lower": pa.float64(),
    "bin_upper": pa.float64(),
    "cell": pa.int64(),
    "lon": pa.float64(),
    "lat": pa.float64(),
    "path": pa.string(),
    "value": pa.float64(),
    "lower": pa.float64(),
    "upper": pa.float64(),
    "unit": pa.string(),
}
_ALWAYS = ("quantity", "purpose", "value", "lower", "upper", "unit")


@dataclass
class _Lines:
    """Lines of the table as they are found, and what is said of each purpose."""

    lines: list[dict[str, Any]] = field(default_factory=list)
    combined: dict[str, Any] = field(default_factory=dict)
    verdicts: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    paths: dict[str, dict[str, int]] = field(default_factory=dict)

    def add(self, quantity: str, purpose: str, value: float | None, lower: float, upper: float, **cells: Any) -> None:
        """Add a line."""
        ends = {"value": value, "lower": lower, "upper": upper}
        self.lines.append({"quantity": quantity, "purpose": purpose, **ends, **cells})

    def table(self, columns: Sequence[str]) -> pa.Table:
        """Return the lines as a table; what a line does not speak of is empty."""
        empty = {name: "" if _TYPES[name] == pa.string() else None for name in columns}
        found = {name: [line.get(name, empty[name]) for line in self.lines] for name in columns}
        return pa.table({name: pa.array(values, _TYPES[name]) for name, values in found.items()})


def estimate(
    reports: Tallies | Iterable[Tally] | Iterable[Report],
    task: Task,
    *,
    confidence: float = 0.95,
    combine: str = "auto",
    allow_noise: bool = False,
    void: str = "",
    left_out: Mapping[str, int] | None = None,
) -> Release:
    """Estimate what the reports of a task tell, and certify it.

    Parameters
    ----------
    reports
        Reports (each counted once; those that the task cannot have made are left out), or tallies of them.
    task
        The task that they were made for.
    confidence
        How likely each interval is to hold the truth, by itself.
    combine
        How tiers are put together. ``"stratify"``: each weighs as much as it has reports. ``"precision"``: as much as
        it is sure, which assumes that tiers have nothing to do with values. ``"auto"``: values by precision unless
        tiers are found to differ; intervals that hold either way
        (:func:`~dunnage.local.estimators.combine_tiers`).
    allow_noise
        Make a map, or table of paths, even if it is noise.
    void
        Why the reports protect nobody, if so (their noise was seeded, say); the certificate is then void.
    left_out
        How many reports whoever brought them together left out, by kind (of :data:`LEFT_OUT`), for the certificate;
        what ``reports`` itself left out if None.

    Returns
    -------
    Release
        Of kind ``estimates``.

    Raises
    ------
    InputError
        If there is no report of the task, a tally cannot be one of it, or one is given twice.
    Refusal
        If a map or table of paths would be noise.

    Examples
    --------
    >>> from dunnage.local.batch import perturb_column
    >>> from dunnage.local.task import Limits, Schedule, Tier
    >>> from dunnage.noise import Noise
    >>> speed = Quantity(name="speed", low=0, high=120, unit="km/h")
    >>> duty = Purpose(name="telemetry", mechanism="local-numeric", tiers=(Tier(name="all", epsilon=2),),
    ...                quantities=(speed,))
    >>> task = Task(dataset="fleet", purposes=(duty,), schedule=Schedule(), limits=Limits(lifetime=730))
    >>> tally = perturb_column(mechanism_of(task, duty), "all", [np.full(900, 60.0)], Noise(), purpose="telemetry")
    >>> release = estimate([tally], task)
    >>> release.kind, release.data.column("attribute").to_pylist()
    ('estimates', ['speed'])
    """
    level = check_confidence(confidence)
    if combine not in COMBINATIONS:
        raise ParameterError(f"combine must be one of {', '.join(COMBINATIONS)}. Got {shown(combine)}. Use auto, say.")
    losses, mechanisms = check_task(task), [mechanism_of(task, purpose) for purpose in task.purposes]
    tallies, found_out = _tallied(reports, task)
    told_out = found_out if left_out is None else _checked_left_out(left_out)
    check_repeated(tallies)
    held = [_of_purpose(tallies, task, purpose) for purpose in task.purposes]
    for mechanism, of_purpose in zip(mechanisms, held, strict=True):
        for tally in of_purpose:
            check_tally(mechanism, tally)
    if not any(held):
        raise InputError("the reports", [Problem("there is none of this task", remedy="Give reports of the task.")])
    lines = _Lines()
    for purpose, mechanism, of_purpose in zip(task.purposes, mechanisms, held, strict=True):
        _check_noise(lines, purpose, mechanism, of_purpose, allow_noise=allow_noise)
        _add_purpose(lines, purpose, mechanism, of_purpose, level, combine)
    certificate = _certificate(task, losses, mechanisms, held, lines, level, combine, told_out, void)
    return Release(certificate=certificate, data=lines.table(columns_of(task, mechanisms)))


def write_estimates(
    release: Release,  # What :func:`estimate` made
    folder: str | os.PathLike[str],  # Where to; must not exist
    *,
    sign: str | os.PathLike[str] | None = None,  # Ed25519 private key (PEM file) to sign the certificate with
    force: bool = False,  # Replace a release that is there
) -> Path:
    """Write a release of estimates; the folder appears whole or not at all. There is no key."""
    with new_folder(folder, marker=CERTIFICATE_FILE, force=force, may_hold=RELEASE_FILES) as work:
        release.write_files(work, sign=sign)
    return Path(folder)


def columns_of(task: Task, mechanisms: Sequence[Any]) -> list[str]:
    """Return the columns that the table of a task has."""
    wanted = set(_ALWAYS)
    for mechanism in mechanisms:
        if isinstance(mechanism, LocalNumeric):
            wanted |= {"attribute"} | ({"bin_lower", "bin_upper"} if mechanism.method == "square-wave" else set())
        else:
            wanted |= {"path"} if isinstance(mechanism, LocalTrajectory) else {"cell", "lon", "lat"}
    return [name for name in _TYPES if name in wanted]


def _tallied(reports: Any, task: Task) -> tuple[list[Tally], dict[str, int]]:
    """Return tallies of reports, and how many reports were left out of them."""
    if not isinstance(reports, Tallies):
        given = list(reports.values() if isinstance(reports, Mapping) else reports)
        if all(isinstance(item, Tally) for item in given):
            return given, {}
        if not all(isinstance(item, Report) for item in given):
            raise ParameterError("give reports, or tallies of reports, not both or something else.")
        reports = Tally.of_reports(task, given)
    elif reports.task.digest != task.digest:
        raise ParameterError("the tallies are of another task. Give the task that they were made for.")
    left_out = {
        "duplicate": reports.num_duplicates,
        "conflicting": reports.num_conflicting,
        "impossible": reports.num_bad,
    }
    return list(reports.by_tier.values()), _checked_left_out(left_out)


def _checked_left_out(given: Mapping[str, int]) -> dict[str, int]:
    """Return how many reports were left out, by every kind there is."""
    if not given.keys() <= set(LEFT_OUT) or not all(type(num) is int and num >= 0 for num in given.values()):
        raise ParameterError(f"left_out must be whole numbers by kind: {', '.join(LEFT_OUT)}. Got others. Mend it.")
    return {kind: given.get(kind, 0) for kind in LEFT_OUT}


def _of_purpose(tallies: Sequence[Tally], task: Task, purpose: Purpose) -> list[Tally]:
    """Return one tally for each tier of a purpose that has reports."""
    known = {(duty.name, tier.name) for duty in task.purposes for tier in duty.tiers}
    found: dict[str, Tally] = {}
    for tally in tallies:
        if (tally.purpose, tally.tier) not in known:
            problem = Problem("a tally of a purpose or tier that the task does not have", remedy="Give the right task.")
            raise InputError("the tallies", [problem])
        if tally.purpose == purpose.name:
            found.setdefault(tally.tier, Tally(purpose=purpose.name, tier=tally.tier)).merge(tally)
    return [found[tier.name] for tier in purpose.tiers if tier.name in found and found[tier.name].num_reports]


def _num_reports(tallies: Sequence[Tally]) -> int:
    return sum(tally.num_reports for tally in tallies)


def _check_noise(
    lines: _Lines, purpose: Purpose, mechanism: Any, tallies: Sequence[Tally], *, allow_noise: bool
) -> None:
    """Refuse a map that would be noise, unless it is allowed; then say so."""
    if isinstance(mechanism, LocalNumeric) or not tallies:
        return
    verdict = mechanism.noise_verdict(_num_reports(tallies))
    lines.verdicts[purpose.name] = verdict.message
    if verdict.is_noise and not allow_noise:
        raise Refusal(
            f"{purpose.name} would be noise. {verdict.message}. Change the task so, collect more, or allow noise."
        )
    if verdict.is_noise:
        lines.warnings.append(f"{purpose.name} is noise: {verdict.message}")


def _add_purpose(
    lines: _Lines, purpose: Purpose, mechanism: Any, tallies: Sequence[Tally], confidence: float, rule: str
) -> None:
    """Estimate one purpose and add its lines."""
    if isinstance(mechanism, LocalNumeric):
        _add_numbers(lines, purpose.name, mechanism, tallies, confidence, rule)
    elif tallies:
        shares = estimate_shares(mechanism, tallies, confidence=confidence, rule=rule)
        lines.combined[purpose.name] = {"shares": shares.combination.to_dict()}
        if isinstance(mechanism, LocalTrajectory):
            _add_paths(lines, purpose.name, mechanism, shares)
        else:
            _add_cells(lines, purpose.name, mechanism.grid, shares)


def _add_numbers(
    lines: _Lines, purpose: str, mechanism: LocalNumeric, tallies: Sequence[Tally], confidence: float, rule: str
) -> None:
    means, presences = estimate_means(mechanism, tallies, confidence=confidence, rule=rule)
    units = {quantity.name: quantity.unit for quantity in mechanism.quantities}
    for mean in means:
        lines.add("mean", purpose, mean.value, mean.lower, mean.upper, attribute=mean.name, unit=units[mean.name])
    for share in presences:
        lines.add("present", purpose, share.value, share.lower, share.upper, attribute=share.name)
    lines.combined[purpose] = {mean.name: _told(mean) for mean in means}
    if mechanism.method == "square-wave" and not mechanism.as_published:
        for place, (quantity, mean) in enumerate(zip(mechanism.quantities, means, strict=True)):
            _add_distribution(lines, purpose, mechanism, tallies, place, quantity, mean, confidence, rule)


def _told(mean: Mean) -> dict[str, Any]:
    return {**mean.combination.to_dict(), "reports": mean.num_told}


def _add_distribution(
    lines: _Lines,
    purpose: str,
    mechanism: LocalNumeric,
    tallies: Sequence[Tally],
    place: int,
    quantity: Quantity,
    mean: Mean,
    confidence: float,
    rule: str,
) -> None:
    """Add the bins and quantiles of a number reported by square waves, if anybody did."""
    found = [(tally, tally.parts.get((place, SquareWave.key))) for tally in tallies]
    told = [(tally, part) for tally, part in found if isinstance(part, Counts) and part.num]
    if not told:
        return
    laws = [mechanism.reading(tally.tier, place, SquareWave.key) for tally, _ in told]
    num = _num_reports([tally for tally, _ in told])
    together = mean.combination.rule in (PRECISION, ONE_TIER)
    fitted = fit_distribution(
        [law for law in laws if isinstance(law, SquareWave)],
        [part.counts for _, part in told],
        [tally.num_reports / num for tally, _ in told],
        confidence,
        fit_together=together,
        bound_together=rule == PRECISION,
    )
    edges = [quantity.low + (quantity.high - quantity.low) * at / num_bins(quantity.steps) for at in _range(quantity)]
    shares = fitted.shares
    for at, ends in enumerate(itertools.pairwise(edges)):
        bins = {"bin_lower": float(ends[0]), "bin_upper": float(ends[1])}
        line = (float(array[at]) for array in (shares.value, shares.lower, shares.upper))
        lines.add("share", purpose, *line, attribute=quantity.name, **bins)
    for at, level in enumerate(QUANTILES):
        points = (fitted.quantiles.value, fitted.quantiles.lower, fitted.quantiles.upper)
        line = (quantity.in_units(float(array[at])) for array in points)
        lines.add(f"quantile {level}", purpose, *line, attribute=quantity.name, unit=quantity.unit)


def _range(quantity: Quantity) -> range:
    return range(num_bins(quantity.steps) + 1)


def _add_cells(lines: _Lines, purpose: str, grid: Grid, shares: Shares) -> None:
    for cell in range(shares.value.size):
        place = dict(zip(("lon", "lat"), grid.centre(cell), strict=True)) if cell < grid.num_cells else {}
        line = (float(array[cell]) for array in (shares.value, shares.lower, shares.upper))
        lines.add("share", purpose, *line, cell=cell, **place)


def _add_paths(lines: _Lines, purpose: str, mechanism: LocalTrajectory, shares: Shares) -> None:
    """Add the paths whose interval lies above 0, the most frequent ones, and all others as one line."""
    order = np.argsort(-shares.value, kind="stable")
    listed = [int(at) for place, at in enumerate(order) if place < MOST_LISTED or shares.lower[at] > 0]
    for at in listed:
        line = (float(array[at]) for array in (shares.value, shares.lower, shares.upper))
        lines.add("share", purpose, *line, path=path_text(mechanism, at))
    lines.paths[purpose] = {"paths": shares.value.size, "listed": len(listed)}
    if len(listed) < shares.value.size:
        rest = np.delete(shares.value, listed).sum()
        # Others are what the listed ones leave over.
        lower, upper = (1 - float(ends[listed].sum()) for ends in (shares.upper, shares.lower))
        ends = min(max(lower, 0.0), float(rest)), max(min(upper, 1.0), float(rest))
        lines.add("share", purpose, float(rest), *ends, path=OTHER)


def path_text(mechanism: LocalTrajectory, index: int) -> str:
    """Write a path as its cells in order, ``12>13``; ``outside`` for a place, or all of it, outside or missing."""
    cells = mechanism.paths.cells(index)
    if cells is None:
        return OUTSIDE
    return ">".join(OUTSIDE if cell == mechanism.grid.outside else str(cell) for cell in cells)


def _certificate(
    task: Task,
    losses: TaskLosses,
    mechanisms: Sequence[Any],
    held: Sequence[Sequence[Tally]],
    lines: _Lines,
    confidence: float,
    combine: str,
    left_out: Mapping[str, int],
    void: str,
) -> Certificate:
    rules = {item["rule"] for of_purpose in lines.combined.values() for item in of_purpose.values()}
    promise = estimates_promise(
        task, losses, mechanisms, confidence=confidence, combine=combine, rules=rules, warnings=tuple(lines.warnings)
    )
    if void:
        promise = promise.voided(void)
    measures = {
        "task": task.to_dict(),
        "task_digest": task.digest,
        "reports": {
            purpose.name: {tally.tier: tally.num_reports for tally in of_purpose}
            for purpose, of_purpose in zip(task.purposes, held, strict=True)
        },
        "lines": len(lines.lines),
        "combined": lines.combined,
        "loss": loss_measures(task, losses),
        **({"maps": lines.verdicts} if lines.verdicts else {}),
        **({"paths": lines.paths} if lines.paths else {}),
        **({"left_out": dict(left_out)} if left_out else {}),
    }
    return certify(
        promise,
        kind=ESTIMATES,
        dataset=task.dataset,
        period=None,
        attributes=describe_subjects(task, mechanisms),
        measures=measures,
        spend={
            "id": f"allowances of task {task.digest}",
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "composed": _composed(task, losses, promise),
        },
    )


def loss_measures(task: Task, losses: TaskLosses) -> dict[str, Any]:
    """Give what a vehicle of each tier gives away: by report of each purpose, by slot, by day, and in its lifetime."""
    told = {
        tier: {
            "reports": {purpose.name: _plain(losses.by_report[tier, purpose.name]) for purpose in task.purposes},
            "slot": _plain(losses.of_slot(tier)),
            "day": _plain(losses.of_day(tier)),
        }
        for tier in task.tier_names
    }
    bounded = all(losses.of_day(tier) is not None for tier in task.tier_names)
    return {"tiers": told, "lifetime": plain(task.limits.lifetime) if bounded else None}


def _plain(loss: Any) -> int | float | str | None:
    return None if loss is None else plain(loss)


def _composed(task: Task, losses: TaskLosses, promise: Promise) -> dict[str, Any]:
    """State what adds up: over a day, and over the lifetime of a vehicle, if that has a bound."""
    days = [losses.of_day(tier) for tier in task.tier_names]
    known = [day for day in days if day is not None]
    neighbours = Neighbours.REPLACE_ONE
    if len(known) < len(days) or not promise.true_loss(neighbours).bounded:
        return {"neighbours": str(neighbours), "total": "none", "total_per_period": "none"}
    return {
        "neighbours": str(neighbours),
        "total": {"epsilon": plain(task.limits.lifetime), "delta": 0},
        "total_per_period": {"epsilon": plain(max(known)), "delta": 0},
    }


def describe_subjects(task: Task, mechanisms: Sequence[Any]) -> list[dict[str, Any]]:
    """Describe in public what is estimated: numbers with their domains, grids, paths."""
    found: list[dict[str, Any]] = []
    for purpose, mechanism in zip(task.purposes, mechanisms, strict=True):
        if purpose.grid is None:
            found += [_described_number(purpose.name, mechanism, quantity) for quantity in purpose.quantities]
            continue
        paths = isinstance(mechanism, LocalTrajectory)
        domain: dict[str, Any] = {"kind": "paths" if paths else "grid", **purpose.grid.to_dict()}
        law = mechanism.channel(mechanism.levels[0])
        if paths:
            domain |= {"steps": mechanism.steps, "hops": mechanism.hops, "num_paths": law.num_inputs}
        else:
            domain |= {"outside": not isinstance(law, Planar)}
        found.append({"name": purpose.name, "role": "estimate", "purpose": purpose.name, "domain": domain})
    return found


def _described_number(purpose: str, mechanism: LocalNumeric, quantity: Quantity) -> dict[str, Any]:
    domain = {
        "kind": "numeric",
        "lower": plain(quantity.low),
        "upper": plain(quantity.high),
        "unit": quantity.unit,
    }
    bins = {"bins": num_bins(quantity.steps)} if mechanism.method == "square-wave" else {}
    return {
        "name": quantity.name,
        "role": "estimate",
        "purpose": purpose,
        "missing": quantity.missing,
        "domain": {**domain, **bins},
    }
