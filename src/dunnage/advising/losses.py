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

from collections.abc import Iterator

import numpy as np

from dunnage.advising.common import KS, QUICK_KS, Opened, checked_tasks, codes_of, opened, released, sampled_says
from dunnage.advising.sweep import Asked, Drawn, Goal, Reference, Task, Tasks
from dunnage.arrays import FloatArray
from dunnage.auditing.classes import ClassesTruth, ClassesView, record_linkage
from dunnage.auditing.noisy import NoisyTruth, NoisyView
from dunnage.auditing.rides import ClassDistortion
from dunnage.dataset import Dataset
from dunnage.domains import Numeric
from dunnage.errors import NoPlanError, ParameterError, Refusal
from dunnage.mechanisms.full_domain import FullDomain
from dunnage.mechanisms.noisy_values import NoisyValues
from dunnage.mechanisms.partition import Partition
from dunnage.mechanisms.sampled_lattice import SampledLattice
from dunnage.mechanisms.utility_clusters import UtilityClusters
from dunnage.noise import Noise
from dunnage.publication import Publication

DISTORTIONS, QUICK_DISTORTIONS = (0.05, 0.1, 0.2, 0.3), (0.1,)
SAMPLED_EPSILONS, QUICK_SAMPLED_EPSILONS, DELTA = (1, 2, 4), (2,), 1e-3
MOST_ATTRIBUTES = 4
"""A partition by more attributes than this takes too long to be measured again and again."""
EPSILONS, QUICK_EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0), (1.0, 4.0)
LAWS = ("laplace", "piecewise")
_MOST_PAIRS = 2_000_000
"""Pairs of records and rows that are compared in one attack at most; of more records some are attacked."""


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
    """Measure a release by what its owner knows: how many records are not in it is told to nobody else."""
    noise = Noise()
    data = case.rows(task, noise)
    release, key = released(data, noise)
    if not len(release):
        raise NoPlanError("nothing was released, so that everything is lost.")
    view = ClassesView.of(release)
    names = list(view.names)
    inside = ClassDistortion.of(view).by_generalisation(dict.fromkeys(names, 1 / len(names)))
    lost = 1 - len(release) / len(data)
    inner = ClassesTruth.of(view, data, key)
    linkage = record_linkage(inner.view, inner.known).probability[inner.released]
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
            "classes": float(len(view.sizes)),
        },
    )


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
        yield Task.of(UtilityClusters, f"k={k}", {"k": k})
    for most in QUICK_DISTORTIONS if quick else DISTORTIONS:
        yield Task.of(UtilityClusters, f"distortion={most:g}", {"max_distortion": most})
    few = len(case.policy.schema.quasi_identifiers) <= MOST_ATTRIBUTES
    for kind in (FullDomain, Partition) if few else (FullDomain,):
        for k in ks:
            yield Task.of(kind, f"k={k}", {"k": k})
    for epsilon in QUICK_SAMPLED_EPSILONS if quick else SAMPLED_EPSILONS:
        parameters = {"epsilon": epsilon, "delta": DELTA, "epsilon_choice": epsilon / 4}
        yield Task.of(SampledLattice, f"epsilon={epsilon:g}, delta={DELTA:g}", parameters)


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


# Numbers of records


def _open_rows(asked: Asked) -> Opened:
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
        for kind in (Partition, FullDomain):
            yield Task.of(kind, f"k={k}", {"k": k, "statistic": "mean"})
    for law in LAWS[:1] if quick else LAWS:
        for epsilon in QUICK_EPSILONS if quick else EPSILONS:
            yield Task.of(NoisyValues, f"{law} epsilon={epsilon:g}", {"epsilon": epsilon, "law": law})


def row_errors(publication: Publication, data: Dataset) -> Drawn:
    """Compare the numbers of a release with the true ones, and link its rows to records."""
    errors: dict[str, float] = {}
    if publication.release.noisy:
        noisy = NoisyTruth.of(NoisyView.of(publication.release), data, publication.key)
        if noisy.view.rows is None:
            raise Refusal("how noise was drawn is not stated, so that nobody knows what it tells.")
        for name, truth in zip(noisy.view.domains, noisy.values, strict=True):
            errors[name] = _relative(noisy.view.column(name) - truth, truth)
        risk = float(noisy.attack(noisy.some(_MOST_PAIRS)).hit.mean())
    else:
        case = ClassesTruth.of(ClassesView.of(publication.release), data, publication.key)
        if not case.released.any():
            raise Refusal("nothing was released.")
        for axis, told in enumerate(case.view.attributes):
            if told.numeric is not None:
                guesses = (told.lower + told.upper) / 2 if told.means is None else told.means
                truth = case.known.low[axis, case.released]
                errors[told.name] = _relative(guesses[case.of_record[case.released]] - truth, truth)
        risk = float(record_linkage(case.view, case.known).probability[case.released].mean())
    return Drawn(
        cost=float(np.mean(list(errors.values()))),
        risk=risk,
        cost_step=1 / len(data),
        cost_least=0.0,
        risk_step=1 / len(data),
        figures={f"error of {name}": error for name, error in errors.items()},
    )


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
