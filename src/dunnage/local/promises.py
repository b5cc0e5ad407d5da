# SPDX-License-Identifier: Apache-2.0
"""What a release of estimates promises: the reports of one slot, all purposes together.

A vehicle sends one report of each purpose at a slot, so that their losses add up. With one purpose its own promise
stands. With several, all that is proved is one bound for the slot: the sum of true losses in the tier that gives away
most; where an area is in clear, between values of the same area only.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from fractions import Fraction
from typing import Any

from dunnage.guarantees import (
    CLAMPED,
    HONEST_REPORTS,
    INDEPENDENT_TIERS,
    RANDOM_SLOTS,
    WEIGHED_VALUES,
    Assumption,
    Basis,
    Guarantee,
    LocalDP,
    Neighbours,
    Promise,
    WithinCluster,
)
from dunnage.local.client import TaskLosses
from dunnage.local.estimators import AUTO, PRECISION
from dunnage.local.task import Purpose, Task

ONE_SLOT = "slot of reports"
"""What is protected if there are several purposes."""


def estimates_promise(
    task: Task,  # task, losses, mechanisms: the task, what its reports give away, and the mechanism of each purpose
    losses: TaskLosses,
    mechanisms: Sequence[Any],
    *,
    confidence: float,  # confidence, combine: parameters of the estimate
    combine: str,
    rules: Collection[str],  # Ways in which tiers were put together
    warnings: tuple[str, ...],  # What else is to be said
) -> Promise:
    """State what a release of estimates promises to each vehicle, for the reports of one slot."""
    parts = [mechanism.promise() for mechanism in mechanisms]
    claimed = [part for part in parts if part.basis is Basis.CLAIMED]
    guarantee, holds = _guarantees(task, losses, mechanisms, parts)
    return Promise(
        guarantee=guarantee,
        basis=Basis.CLAIMED if claimed else Basis.PROVED,
        mechanism=_described(task, parts, confidence, combine),
        assumptions=_assumptions(parts, combine, rules),
        in_clear=(
            "how many reports there are of each purpose and tier, and in which tier and at which slot each was made",
            *dict.fromkeys(item for part in parts for item in part.in_clear),
        ),
        claim="; ".join(_named(task, parts, "claim")),
        holds=holds,
        why="; ".join(_named(task, parts, "why")),
        warnings=(*dict.fromkeys(item for part in parts for item in part.warnings), *warnings),
    )


def _named(task: Task, parts: Sequence[Promise], field: str) -> list[str]:
    """Return a text of those promises that have it, with the purpose before it if there are several."""
    told = [(purpose.name, getattr(part, field)) for purpose, part in zip(task.purposes, parts, strict=True)]
    return [f"{name}: {text}" if len(parts) > 1 else text for name, text in told if text]


def _described(task: Task, parts: Sequence[Promise], confidence: float, combine: str) -> dict[str, Any]:
    purposes = {purpose.name: dict(part.mechanism) for purpose, part in zip(task.purposes, parts, strict=True)}
    return {
        "name": "estimates",
        "confidence": confidence,
        "combine": combine,
        "purposes": purposes,
        "as_published": any(part.basis is Basis.CLAIMED for part in parts),
    }


def _assumptions(parts: Sequence[Promise], combine: str, rules: Collection[str]) -> tuple[Assumption, ...]:
    found = {item.name: item for part in parts for item in part.assumptions}
    more = [RANDOM_SLOTS, CLAMPED, HONEST_REPORTS]
    if PRECISION in rules:
        more.append(WEIGHED_VALUES if combine == AUTO else INDEPENDENT_TIERS)
    return (*found.values(), *more)


def _guarantees(
    task: Task, losses: TaskLosses, mechanisms: Sequence[Any], parts: Sequence[Promise]
) -> tuple[Guarantee, Guarantee | None]:
    """Return what is stated, and what holds instead if that is only claimed."""
    if len(parts) == 1:
        return parts[0].guarantee, parts[0].holds
    held = _held(task, losses, mechanisms, parts)
    if all(part.basis is Basis.PROVED for part in parts):
        return held, None
    stated = max(
        sum((_stated(task, purpose, tier) for purpose in task.purposes), Fraction(0)) for tier in task.tier_names
    )
    return LocalDP(epsilon=stated, protects=ONE_SLOT, neighbours=Neighbours.REPLACE_ONE), held


def _stated(task: Task, purpose: Purpose, tier: str) -> Fraction:
    return task.slot_tiers(purpose)[task.tier_index(purpose, tier)].epsilon


def _held(
    task: Task, losses: TaskLosses, mechanisms: Sequence[Any], parts: Sequence[Promise]
) -> LocalDP | WithinCluster:
    """Return the bound of a slot: the sum over purposes, in the tier that gives away most."""
    epsilon = max(
        sum(
            (
                _loss_within(task, losses, purpose, mechanism, tier)
                for purpose, mechanism in zip(task.purposes, mechanisms, strict=True)
            ),
            Fraction(0),
        )
        for tier in task.tier_names
    )
    common: dict[str, Any] = {"epsilon": epsilon, "protects": ONE_SLOT, "neighbours": Neighbours.REPLACE_ONE}
    clusters = [item for part in parts for item in (part.guarantee, part.holds) if isinstance(item, WithinCluster)]
    if not clusters:
        return LocalDP(**common)
    return WithinCluster(**common, clusters=" and ".join(dict.fromkeys(item.clusters for item in clusters)))


def _loss_within(task: Task, losses: TaskLosses, purpose: Purpose, mechanism: Any, tier: str) -> Fraction:
    """Return the loss of one report: between any two values, or between those of one area if that is in clear."""
    loss = losses.by_report[tier, purpose.name]
    if loss is not None:
        return loss
    law = mechanism.channel(task.slot_tiers(purpose)[task.tier_index(purpose, tier)])
    within: Fraction = law.loss_within
    return within
