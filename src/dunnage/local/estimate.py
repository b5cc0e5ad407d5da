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

from dunnage.certificate import EstimateMeasures, SpendStatement, certify
from dunnage.errors import InputError, ParameterError, Problem, Refusal
from dunnage.exact import shown
from dunnage.folders import new_folder
from dunnage.kinds import ESTIMATES
from dunnage.local import promises
from dunnage.local.client import check_task, mechanisms_of
from dunnage.local.estimators import (
    Estimates,
    Mean,
    Shares,
    check_confidence,
    estimate_means,
    estimate_shares,
    fit_distribution,
)
from dunnage.local.location import NoiseVerdict
from dunnage.local.numeric import LocalNumeric
from dunnage.local.numeric_laws import SquareWave
from dunnage.local.report import Report
from dunnage.local.subjects import Quantity
from dunnage.local.tally import Counts, Tallies, Tally, check_repeated, check_tally
from dunnage.local.task import Task
from dunnage.local.trajectory import LocalTrajectory
from dunnage.release import CERTIFICATE_FILE, RELEASE_FILES, Release

MOST_LISTED = 1000  # Paths that are listed at most, besides those whose interval lies above 0


@dataclass
class _Lines:
    """Lines of the table as they are found, and what is said of each purpose."""

    lines: list[dict[str, str | float | None]] = field(default_factory=list)
    combined: dict[str, dict[str, dict[str, str | float]]] = field(default_factory=dict)
    verdicts: dict[str, NoiseVerdict] = field(default_factory=dict)
    paths: dict[str, dict[str, int]] = field(default_factory=dict)

    def add(self, quantity: str, purpose: str, ends: Iterable[float | None], **cells: str | float) -> None:
        """Add a line; its value and the ends of its interval in order."""
        told = dict(zip(("value", "lower", "upper"), ends, strict=True))
        self.lines.append({"quantity": quantity, "purpose": purpose, **told, **cells})

    def table(self, columns: Mapping[str, pa.DataType]) -> pa.Table:
        found = {name: [line.get(name, promises.EMPTY[name]) for line in self.lines] for name in columns}
        return pa.table({name: pa.array(found[name], kind) for name, kind in columns.items()})


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
    >>> from dunnage.local.task import Limits, Purpose, Schedule, Tier
    >>> from dunnage.noise import Noise
    >>> speed = Quantity(name="speed", low=0, high=120, unit="km/h")
    >>> duty = Purpose(name="telemetry", mechanism="local-numeric", tiers=(Tier(name="all", epsilon=2),),
    ...                quantities=(speed,))
    >>> task = Task(dataset="fleet", purposes=(duty,), schedule=Schedule(), limits=Limits(lifetime=730))
    >>> numbers = mechanisms_of(task)["telemetry"]
    >>> tally = perturb_column(numbers, "all", [np.full(900, 60.0)], Noise(), purpose="telemetry")
    >>> release = estimate([tally], task)
    >>> release.kind, release.data.column("attribute").to_pylist()
    ('estimates', ['speed'])
    """
    level = check_confidence(confidence)
    if combine not in promises.COMBINATIONS:
        raise ParameterError(
            f"combine must be one of {', '.join(promises.COMBINATIONS)}. Got {shown(combine)}. Use auto, say."
        )
    losses, mechanisms = check_task(task), mechanisms_of(task)
    tallies, found_out = _tallied(reports, task)
    told_out = found_out if left_out is None else _checked_left_out(left_out)
    check_repeated(tallies)
    held: dict[str, list[Tally]] = {}
    merged: dict[tuple[str, str], Tally] = {}
    known = {(duty.name, tier.name) for duty in task.purposes for tier in duty.tiers}
    for tally in tallies:
        names = tally.purpose, tally.tier
        if names not in known:
            problem = Problem("a tally of a purpose or tier that the task does not have", remedy="Give the right task.")
            raise InputError("the tallies", [problem])
        merged.setdefault(names, Tally(purpose=tally.purpose, tier=tally.tier)).merge(tally)
    for duty in task.purposes:
        of_tiers = (merged.get((duty.name, tier.name)) for tier in duty.tiers)
        held[duty.name] = [tally for tally in of_tiers if tally is not None and tally.num_reports]
    for name, of_purpose in held.items():
        for tally in of_purpose:
            check_tally(mechanisms[name], tally)
    if not any(held.values()):
        raise InputError("the reports", [Problem("there is none of this task", remedy="Give reports of the task.")])
    lines = _Lines()
    for name, mechanism in mechanisms.items():
        of_purpose = held[name]
        if isinstance(mechanism, LocalNumeric):
            _add_numbers(lines, name, mechanism, of_purpose, level, combine)
            continue
        if not of_purpose:
            continue
        verdict = mechanism.noise_verdict(_num_reports(of_purpose))
        lines.verdicts[name] = verdict
        if verdict.is_noise and not allow_noise:
            raise Refusal(
                f"{name} would be noise. {verdict.message}. Change the task so, collect more, or allow noise."
            )
        shares = estimate_shares(mechanism, of_purpose, confidence=level, rule=combine)
        lines.combined[name] = {"shares": shares.combination.to_dict()}
        if isinstance(mechanism, LocalTrajectory):
            _add_paths(lines, name, mechanism, shares)
        else:
            for cell in range(shares.value.size):
                lines.add("share", name, _ends(shares, cell), cell=cell, **promises.place_of(mechanism.grid, cell))
    rules = {str(item["rule"]) for of_purpose in lines.combined.values() for item in of_purpose.values()}
    promise = promises.estimates_promise(
        task, losses, mechanisms, confidence=level, combine=combine, rules=rules, verdicts=lines.verdicts
    )
    if void:
        promise = promise.voided(void)
    measures = {
        "task": task.to_dict(),
        "task_digest": task.digest,
        "reports": {name: {tally.tier: tally.num_reports for tally in of_purpose} for name, of_purpose in held.items()},
        "lines": len(lines.lines),
        "combined": lines.combined,
        "loss": promises.loss_measures(task, losses).plain(),
        **({"maps": {name: verdict.message for name, verdict in lines.verdicts.items()}} if lines.verdicts else {}),
        **({"paths": lines.paths} if lines.paths else {}),
        **({"left_out": dict(told_out)} if told_out else {}),
    }
    certificate = certify(
        promise,
        kind=ESTIMATES,
        dataset=task.dataset,
        period=None,
        attributes=[subject.plain() for subject in promises.describe_subjects(mechanisms)],
        measures=EstimateMeasures.model_validate(measures),
        spend=SpendStatement(id=promises.spend_id(task), at=datetime.now(UTC).isoformat(timespec="seconds")),
        composed=promises.composed(task, losses, promise).plain(),
    )
    return Release(certificate=certificate, data=lines.table(promises.columns_of(mechanisms)))


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
    if not given.keys() <= set(promises.LEFT_OUT) or not all(type(num) is int and num >= 0 for num in given.values()):
        raise ParameterError(
            f"left_out must be whole numbers by kind: {', '.join(promises.LEFT_OUT)}. Got others. Mend it."
        )
    return {kind: given.get(kind, 0) for kind in promises.LEFT_OUT}


def _num_reports(tallies: Sequence[Tally]) -> int:
    return sum(tally.num_reports for tally in tallies)


def _add_numbers(
    lines: _Lines, purpose: str, mechanism: LocalNumeric, tallies: Sequence[Tally], confidence: float, rule: str
) -> None:
    means, presences = estimate_means(mechanism, tallies, confidence=confidence, rule=rule)
    units = {quantity.name: quantity.unit for quantity in mechanism.quantities}
    for mean in means:
        lines.add("mean", purpose, (mean.value, mean.lower, mean.upper), attribute=mean.name, unit=units[mean.name])
    for share in presences:
        lines.add("present", purpose, (share.value, share.lower, share.upper), attribute=share.name)
    lines.combined[purpose] = {mean.name: {**mean.combination.to_dict(), "reports": mean.num_told} for mean in means}
    if promises.has_bins(mechanism):
        for place, (quantity, mean) in enumerate(zip(mechanism.quantities, means, strict=True)):
            _add_distribution(lines, purpose, mechanism, tallies, place, quantity, mean, confidence, rule)


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
    together = mean.combination.rule in (promises.PRECISION, promises.ONE_TIER)
    fitted = fit_distribution(
        [law for law in laws if isinstance(law, SquareWave)],
        [part.counts for _, part in told],
        [tally.num_reports / num for tally, _ in told],
        confidence,
        fit_together=together,
        bound_together=rule == promises.PRECISION,
    )
    for at, (low, high) in enumerate(itertools.pairwise(promises.bin_edges(quantity))):
        ends = _ends(fitted.shares, at)
        lines.add("share", purpose, ends, attribute=quantity.name, bin_lower=low, bin_upper=high)
    for at, level in enumerate(promises.QUANTILES):
        points = map(quantity.in_units, _ends(fitted.quantiles, at))
        lines.add(f"quantile {level}", purpose, points, attribute=quantity.name, unit=quantity.unit)


def _ends(found: Estimates | Shares, at: int) -> tuple[float, float, float]:
    return float(found.value[at]), float(found.lower[at]), float(found.upper[at])


def _add_paths(lines: _Lines, purpose: str, mechanism: LocalTrajectory, shares: Shares) -> None:
    """Add the paths whose interval lies above 0, the most frequent ones, and all others as one line."""
    order = np.argsort(-shares.value, kind="stable")
    listed = [int(at) for place, at in enumerate(order) if place < MOST_LISTED or shares.lower[at] > 0]
    for at in listed:
        lines.add("share", purpose, _ends(shares, at), path=promises.path_text(mechanism, at))
    lines.paths[purpose] = {"paths": shares.value.size, "listed": len(listed)}
    if len(listed) < shares.value.size:
        rest = np.delete(shares.value, listed).sum()
        # Others are what the listed ones leave over.
        lower, upper = (1 - float(ends[listed].sum()) for ends in (shares.upper, shares.lower))
        ends = min(max(lower, 0.0), float(rest)), max(min(upper, 1.0), float(rest))
        lines.add("share", purpose, (float(rest), *ends), path=promises.OTHER)
