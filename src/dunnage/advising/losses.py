# SPDX-License-Identifier: Apache-2.0
"""The goals distortion and error: what is lost by what is released or estimated, for data that nothing is planned on.

============  =========================================================  ============================================
goal, of      cost                                                       risk
============  =========================================================  ============================================
distortion    total distortion of a table, all attributes alike          record linkage
error: trips  mean absolute error of a count, in mean counts             membership guess
records       mean absolute error of a number, in mean values            record linkage
devices       error of means in domains, or of shares in mean shares     naming a vehicle's cell, or a number's bucket
============  =========================================================  ============================================

Distortion is one measure for all mechanisms, whatever they minimise themselves: a record that was not released is lost
altogether. Record linkage is the chance to name the row of a released record all of whose values are known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
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
from dunnage.advising.common import KS, QUICK_KS, Opened, checked_tasks, codes_of, opened, released, sampled_says
from dunnage.advising.frontier import Point
from dunnage.advising.sweep import Asked, Drawn, Goal, Reference, Task, Tasks
from dunnage.arrays import FloatArray
from dunnage.auditing import attacks
from dunnage.auditing.inside import Case as ClassCase
from dunnage.auditing.noisy import NoisyCase, NoisySight
from dunnage.auditing.rides import Distortion
from dunnage.auditing.sight import Sight
from dunnage.dataset import Dataset
from dunnage.domains import Numeric
from dunnage.errors import NoPlanError, ParameterError, Refusal
from dunnage.local.numeric import LocalNumeric
from dunnage.mechanisms.counting import Counted
from dunnage.mechanisms.features import Feature
from dunnage.noise import Noise
from dunnage.publication import Publication
from dunnage.release import Release

DISTORTIONS, QUICK_DISTORTIONS = (0.05, 0.1, 0.2, 0.3), (0.1,)
SAMPLED_EPSILONS, QUICK_SAMPLED_EPSILONS, DELTA = (1, 2, 4), (2,), 1e-3
MOST_ATTRIBUTES = 4
"""A partition by more attributes than this takes too long to be measured again and again."""
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


# What a table loses


def _open_table(asked: Asked) -> Opened:
    policy, data, digest = opened(asked, "distortion")
    if not policy.schema.quasi_identifiers:
        raise ParameterError(
            "nothing can be distorted without a quasi-identifier. The policy has none. Give the columns that an "
            'outsider may know role = "quasi-identifier".'
        )
    return Opened(asked=asked, data=data, digest=digest, policy=policy)


def _table_tasks(case: Opened) -> Tasks:
    return checked_tasks(case, _table_candidates(case))


def _measure_table(case: Opened, task: Task) -> Drawn:
    noise = Noise()
    data = case.rows(task, noise)
    return _table_losses(data, released(data, noise))


def _table_reference(case: Opened) -> Reference:
    """See who is named in the true table, and by guessing."""
    data = case.rows_alike(Noise())
    told = [item.name for item in (*case.policy.schema.public, *case.policy.schema.quasi_identifiers)]
    return Reference(
        # Of records that are alike in the true table one is named right on average.
        risk_without_privacy=len(set(codes_of(data, told).tolist())) / len(data),
        risk_of_chance=1 / len(data),
        cost_baseline=f"the true table of {len(data):,} records: nothing is lost, 100 % would tell nothing",
        says=(_DISTORTION, *sampled_says(case, _table_tasks(case)[0])),
    )


_DISTORTION = (
    "Distortion is how much of its domain a record's intervals, sets or nodes span on average, all attributes counting "
    "alike; a record that was not released is lost altogether. Record linkage is of a released record all of whose "
    "quasi-identifiers are known exactly."
)


def _table_candidates(case: Opened) -> Iterator[Task]:
    quick = case.asked.quick
    ks = [k for k in (QUICK_KS if quick else KS) if k <= case.num_measured // 2]
    for k in ks:
        yield Task(name=f"utility-clusters k={k}", mechanism="utility-clusters", parameters={"k": k})
    for most in QUICK_DISTORTIONS if quick else DISTORTIONS:
        parameters = {"max_distortion": most}
        yield Task(name=f"utility-clusters distortion={most:g}", mechanism="utility-clusters", parameters=parameters)
    for k in ks:
        yield Task(name=f"full-domain k={k}", mechanism="full-domain", parameters={"k": k})
    if len(case.policy.schema.quasi_identifiers) <= MOST_ATTRIBUTES:
        for k in ks:
            yield Task(name=f"partition k={k}", mechanism="partition", parameters={"k": k})
    for epsilon in QUICK_SAMPLED_EPSILONS if quick else SAMPLED_EPSILONS:
        yield Task(
            name=f"sampled-lattice epsilon={epsilon:g}, delta={DELTA:g}",
            mechanism="sampled-lattice",
            parameters={"epsilon": epsilon, "delta": DELTA, "epsilon_choice": epsilon / 4},
        )


def _table_losses(data: Dataset, publication: Publication) -> Drawn:
    """Measure a release by what its owner knows: how many records are not in it is told to nobody else."""
    release, key = publication
    if not len(release):
        raise NoPlanError("nothing was released, so that everything is lost.")
    sight = Sight.of(release)
    names = list(sight.names)
    inside = Distortion.of(sight).by_generalisation(dict.fromkeys(names, 1 / len(names)))
    lost = 1 - len(release) / len(data)
    case = ClassCase.of(sight, data, key)
    linkage = attacks.record_linkage(case.sight, case.known).probability[case.released]
    return Drawn(
        cost=inside + (1 - inside) * lost,
        risk=float(linkage.mean()),
        cost_step=1 / len(data),
        risk_step=1 / len(data),
        cost_least=0.0,
        figures={
            "records": float(len(data)),
            "not released": lost,
            "distortion by generalisation": inside,
            "worst record linkage": float(linkage.max()),
            "classes": float(len(sight.sizes)),
        },
    )


DISTORTION = Goal(
    name="distortion",
    cost_name="total distortion",
    cost_unit="distortion",
    risk_name="record linkage",
    open=_open_table,
    tasks=_table_tasks,
    measure=_measure_table,
    reference=_table_reference,
    default_max_cost=0.25,
    draw_seconds=60.0,
)


# Counts of trips


def _open_counts(asked: Asked) -> TripCase:
    return open_trips(asked, most=MOST_TRIPS)


def _measure_counts(case: TripCase, task: Task) -> Drawn:
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


def _counts_reference(case: TripCase) -> Reference:
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


TRIP_ERROR = Goal(
    name="error",
    cost_name="error of a count",
    cost_unit="error of a count, in mean counts",
    risk_name="membership guess",
    open=_open_counts,
    tasks=count_tasks,
    measure=_measure_counts,
    reference=_counts_reference,
    default_max_cost=0.25,
)


# Numbers of records


def _open_rows(asked: Asked) -> Opened:
    """Read records, which must have numbers to protect."""
    policy, data, digest = opened(asked, "error")
    if not any(isinstance(item.domain, Numeric) for item in policy.schema.quasi_identifiers):
        raise ParameterError(
            "the goal error compares numbers. The policy has no quasi-identifier of kind numeric. Give one, or use "
            "--goal distortion."
        )
    return Opened(asked=asked, data=data, digest=digest, policy=policy)


def _row_tasks(case: Opened) -> Tasks:
    return checked_tasks(case, _row_candidates(case))


def _measure_rows(case: Opened, task: Task) -> Drawn:
    noise = Noise()
    data = case.rows(task, noise)
    return row_errors(released(data, noise), data)


def _rows_reference(case: Opened) -> Reference:
    return Reference(
        risk_without_privacy=1.0,
        risk_of_chance=1 / case.num_measured,
        cost_baseline="the true numbers",
        says=(
            "The cost is the mean absolute error of a number, in mean values of its column; classes are read by "
            "their means. The risk is that somebody who knows a record's values names its row.",
            *sampled_says(case, _row_tasks(case)[0]),
        ),
    )


def _row_candidates(case: Opened) -> Iterator[Task]:
    quick = case.asked.quick
    for k in [k for k in (QUICK_KS if quick else KS) if k <= case.num_measured // 2]:
        for name in ("partition", "full-domain"):
            yield Task(name=f"{name} k={k}", mechanism=name, parameters={"k": k, "statistic": "mean"})
    for law in LAWS[:1] if quick else LAWS:
        for epsilon in QUICK_EPSILONS if quick else EPSILONS:
            yield Task(
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


ROW_ERROR = Goal(
    name="error",
    cost_name="error of a number",
    cost_unit="error of a number, in mean values",
    risk_name="record linkage",
    open=_open_rows,
    tasks=_row_tasks,
    measure=_measure_rows,
    reference=_rows_reference,
    draw_seconds=60.0,
)


# Estimates from devices


def _checked_carriers(case: CarrierCase) -> Tasks:
    tasks, failed = carrier_tasks(case)
    check_maps(case, tasks)
    return tasks, failed


def _try_task(case: CarrierCase, point: Point) -> str:
    """Say how to try the task on rows of many vehicles; nothing while another kind of report is blank."""
    several = len(case.asked.base.blank_kinds) > 1
    return "" if several else "dunnage device simulate DATA --task TASK.json -o REPORTS.jsonl"


CARRIER_ERROR = Goal(
    name="error",
    cost_name="error of an estimate",
    cost_unit="error",
    risk_name="naming one vehicle's value",
    open=open_carriers,
    tasks=_checked_carriers,
    measure=measure_carriers,
    reference=carrier_reference,
    tables=carrier_tables,
    next_step=_try_task,
)


def error_goal(asked: Asked) -> Goal[Any]:
    """Return the goal for trips, records or devices, whichever the policy is about."""
    about = asked.base.about
    if about != "devices":
        return TRIP_ERROR if about == "trips" else ROW_ERROR
    kind = asked.base.document["mechanisms"][advised_kind(asked.base)]
    is_map = kind.get("name") != LocalNumeric.name
    return replace(CARRIER_ERROR, default_max_cost=MAP_COST) if is_map else CARRIER_ERROR
