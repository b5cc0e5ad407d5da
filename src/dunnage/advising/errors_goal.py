# SPDX-License-Identifier: Apache-2.0
"""The goal error: how far off what is released or estimated is, for data that nothing is planned on yet.

============  =========================================================  ============================================
policy of     cost                                                       risk
============  =========================================================  ============================================
trips         mean absolute error of a count, in mean counts             membership guess
records       mean absolute error of a number, in mean values            record linkage
devices       error of means in domains, or of shares in mean shares     naming a vehicle's cell, or a number's bucket
============  =========================================================  ============================================
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dunnage.advising.alike_fleet import (
    CarrierCase,
    advised_kind,
    carrier_reference,
    carrier_tables,
    carrier_tasks,
    check_maps,
    measure_carriers,
    open_carriers,
)
from dunnage.advising.alike_trips import (
    TripCase,
    count_tasks,
    membership_guess,
    membership_says,
    open_trips,
    released_counts_of,
)
from dunnage.advising.common import (
    KS,
    QUICK_KS,
    Candidate,
    Opened,
    checked_tasks,
    mechanism_table,
    opened,
    released,
    sampled_says,
)
from dunnage.advising.frontier import Failure, Point
from dunnage.advising.sweep import Asked, Case, Drawn, Goal, Reference, Task
from dunnage.arrays import FloatArray
from dunnage.auditing import attacks
from dunnage.auditing.inside import Case as ClassCase
from dunnage.auditing.noisy import NoisyCase, NoisySight
from dunnage.auditing.sight import Sight
from dunnage.dataset import Dataset
from dunnage.domains import Numeric
from dunnage.errors import ParameterError, Refusal
from dunnage.local.numeric import LocalNumeric
from dunnage.mechanisms.counting import Counted
from dunnage.mechanisms.features import Feature
from dunnage.noise import Noise
from dunnage.publication import Publication
from dunnage.release import Release

MOST_TRIPS = 20_000
"""Trips of a date that are counted, at most, unless one hour has more."""
EPSILONS, QUICK_EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0), (1.0, 4.0)
LAWS = ("laplace", "piecewise")
MAP_COST = 0.5
"""Error of a share that a map may have unless told: shares are small, and a mean over all of them is the unit."""
_MOST_PAIRS = 2_000_000
"""Pairs of records and rows that are compared in one attack at most; of more records some are attacked."""
_SUMS: Mapping[str, tuple[str, ...]] = {
    "windows": ("window",),
    "pairs of stops": ("origin", "destination"),
    "zone to zone": ("origin_zone", "destination_zone", "window"),
    "modes": ("mode", "window"),
}


# Counts of trips


@dataclass(frozen=True)
class TripError:
    """Error of counts of trips."""

    name: str = "error"
    cost_name: str = "error of a count"
    cost_unit: str = "error of a count, in mean counts"
    risk_name: str = "membership guess"
    default_max_cost: float = 0.25

    def open(self, asked: Asked) -> Case:
        """Read trips."""
        return open_trips(asked, most=MOST_TRIPS)

    def tasks(self, case: Case) -> tuple[Sequence[Task], Sequence[Failure]]:
        """Name the mechanisms of counts."""
        assert isinstance(case, TripCase)
        return count_tasks(case)

    def measure(self, case: Case, task: Task) -> Drawn:
        """Release trips once, and compare all counts with the true ones."""
        assert isinstance(case, TripCase)
        release, truth = released_counts_of(case.drawn({"name": task.mechanism, **task.parameters}, task.on))
        if not truth.num_trips:
            raise Refusal("there are no trips in the hours that are measured. Give --size, or other data.")
        errors = count_errors(release, truth)
        return Drawn(
            cost=errors.pop("counts"),
            risk=membership_guess(float(task.parameters["epsilon"])),
            cost_step=1 / truth.num_trips,
            cost_least=0.0,
            figures={f"error of {name}": error for name, error in errors.items()},
        )

    def reference(self, case: Case) -> Reference:
        """Compare with the true counts."""
        assert isinstance(case, TripCase)
        return Reference(
            risk_without_privacy=1.0,
            risk_of_chance=0.5,
            cost_baseline="true counts; publishing nothing has an error of 100 %",
            says=(
                *case.says,
                "The cost is the mean absolute error of a count over all trip types, in mean counts: trips that are "
                "missing or too many in some cell, as a part of all trips.",
                membership_says(case.part.policy),
            ),
        )

    def tables(self, case: Case, point: Point) -> Mapping[str, Mapping[str, Any]]:
        """Give the mechanism."""
        return mechanism_table(point)


def count_errors(release: Release, truth: Counted) -> dict[str, float]:
    """Return the mean absolute errors of counts and of some sums, each in means of what it is of."""
    cells, counts = release.counted()
    both = np.union1d(cells, truth.cells)
    differences = np.zeros(len(both), dtype=np.int64)
    differences[np.searchsorted(both, cells)] += counts
    differences[np.searchsorted(both, truth.cells)] -= truth.counts
    total, places = truth.num_trips, truth.universe.split(both)
    found = {"counts": float(np.abs(differences).sum()) / total, "the total": abs(int(differences.sum())) / total}
    for name, columns in _SUMS.items():
        if set(columns) <= set(truth.universe.columns):
            sums = Feature.of(truth.universe, columns).sums(*places, differences)
            found[name] = float(np.abs(sums).sum()) / total
    return found


# Numbers of records


@dataclass(frozen=True)
class RowError:
    """Error of numbers in released records."""

    name: str = "error"
    cost_name: str = "error of a number"
    cost_unit: str = "error of a number, in mean values"
    risk_name: str = "record linkage"
    draw_seconds: float = 60.0

    def open(self, asked: Asked) -> Case:
        """Read records, which must have numbers to protect."""
        policy, data, digest = opened(asked, self.name)
        if not any(isinstance(item.domain, Numeric) for item in policy.schema.quasi_identifiers):
            raise ParameterError(
                "the goal error compares numbers. The policy has no quasi-identifier of kind numeric. Give one, or use "
                "--goal distortion."
            )
        return Opened(asked=asked, data=data, digest=digest, policy=policy)

    def tasks(self, case: Case) -> tuple[Sequence[Task], Sequence[Failure]]:
        """Name mechanisms that release numbers, noisy or as means of classes."""
        assert isinstance(case, Opened)
        return checked_tasks(case, _row_candidates(case))

    def measure(self, case: Case, task: Task) -> Drawn:
        """Release records once, and compare numbers with the true ones."""
        assert isinstance(case, Opened)
        noise = Noise()
        data = case.rows(task, noise)
        return row_errors(released(data, noise), data)

    def reference(self, case: Case) -> Reference:
        """Compare with the true numbers."""
        assert isinstance(case, Opened)
        return Reference(
            risk_without_privacy=1.0,
            risk_of_chance=1 / case.num_measured,
            cost_baseline="the true numbers",
            says=(
                "The cost is the mean absolute error of a number, in mean values of its column; classes are read by "
                "their means. The risk is that somebody who knows a record's values names its row.",
                *sampled_says(case, self.tasks(case)[0]),
            ),
        )

    def tables(self, case: Case, point: Point) -> Mapping[str, Mapping[str, Any]]:
        """Give the mechanism."""
        return mechanism_table(point)


def _row_candidates(case: Opened) -> Iterator[Candidate]:
    quick = case.asked.quick
    for k in [k for k in (QUICK_KS if quick else KS) if k <= case.num_measured // 2]:
        for name in ("partition", "full-domain"):
            yield Candidate(name=f"{name} k={k}", mechanism=name, parameters={"k": k, "statistic": "mean"})
    for law in LAWS[:1] if quick else LAWS:
        for epsilon in QUICK_EPSILONS if quick else EPSILONS:
            yield Candidate(
                name=f"noisy-values {law} epsilon={epsilon:g}",
                mechanism="noisy-values",
                parameters={"epsilon": epsilon, "law": law},
            )


def row_errors(publication: Publication, data: Dataset) -> Drawn:
    """Compare the numbers of a release with the true ones, and link its rows to records."""
    if publication.release.certificate.body["mechanism"]["name"] == "noisy-values":
        errors, risk = _noisy_errors(NoisyCase.of(NoisySight.of(publication.release), data, publication.key))
    else:
        errors, risk = _class_errors(ClassCase.of(Sight.of(publication.release), data, publication.key))
    return Drawn(
        cost=float(np.mean(list(errors.values()))),
        risk=risk,
        cost_step=1 / len(data),
        cost_least=0.0,
        risk_step=1 / len(data),
        figures={f"error of {name}": error for name, error in errors.items()},
    )


def _noisy_errors(case: NoisyCase) -> tuple[dict[str, float], float]:
    if case.sight.rows is None:
        raise Refusal("how noise was drawn is not stated, so that nobody knows what it tells.")
    errors = {
        name: _relative(case.sight.column(name) - truth, truth)
        for name, truth in zip(case.sight.domains, case.values, strict=True)
    }
    return errors, float(case.attack(case.some(_MOST_PAIRS)).hit.mean())


def _class_errors(case: ClassCase) -> tuple[dict[str, float], float]:
    if not case.released.any():
        raise Refusal("nothing was released.")
    of_record, errors = case.of_record[case.released], {}
    for axis, told in enumerate(case.sight.told):
        if told.numeric is not None:
            guesses = (told.lower + told.upper) / 2 if told.means is None else told.means
            truth = case.known.low[axis, case.released]
            errors[told.name] = _relative(guesses[of_record] - truth, truth)
    linked = attacks.record_linkage(case.sight, case.known).probability[case.released]
    return errors, float(linked.mean())


def _relative(errors: FloatArray, truth: FloatArray) -> float:
    """Return the mean size of errors, in mean sizes of the true values."""
    mean = float(np.abs(truth).mean())
    return float(np.abs(errors).mean()) / mean if mean else float(np.abs(errors).mean())


# Estimates from devices


@dataclass(frozen=True)
class CarrierError:
    """Error of estimates that are made of devices' reports."""

    name: str = "error"
    cost_name: str = "error of an estimate"
    cost_unit: str = "error"
    risk_name: str = "naming one vehicle's value"
    default_max_cost: float = 0.05

    def open(self, asked: Asked) -> Case:
        """Read the policy, and count vehicles."""
        return open_carriers(asked)

    def tasks(self, case: Case) -> tuple[Sequence[Task], Sequence[Failure]]:
        """Name methods, epsilons and grids."""
        assert isinstance(case, CarrierCase)
        tasks, failed = carrier_tasks(case)
        check_maps(case, tasks)
        return tasks, failed

    def measure(self, case: Case, task: Task) -> Drawn:
        """Simulate collections."""
        assert isinstance(case, CarrierCase)
        return measure_carriers(case, task)

    def reference(self, case: Case) -> Reference:
        """Compare with estimates of all true values."""
        assert isinstance(case, CarrierCase)
        return carrier_reference(case)

    def tables(self, case: Case, point: Point) -> Mapping[str, Mapping[str, Any]]:
        """Give the kind of report, and its grid if that is another."""
        return carrier_tables(case, point)

    def next_step(self, case: Case, point: Point) -> str:
        """Say how to try the task on rows of many vehicles; nothing while another kind of report is blank."""
        return (
            ""
            if len(case.asked.base.blank_kinds) > 1
            else "dunnage device simulate DATA --task TASK.json -o REPORTS.jsonl"
        )


# The goal


def goal_for(asked: Asked) -> Goal:
    """Return the goal for trips, records or devices, whichever the policy is about."""
    about = asked.base.about
    if about == "devices":
        kind = asked.base.document["mechanisms"][advised_kind(asked.base)]
        is_map = kind.get("name") != LocalNumeric.name
        return CarrierError(default_max_cost=MAP_COST) if is_map else CarrierError()
    return TripError() if about == "trips" else RowError()
