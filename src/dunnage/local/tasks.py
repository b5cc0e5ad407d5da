# SPDX-License-Identifier: Apache-2.0
"""From a policy for devices to the task that devices and platform agree on."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import partial

from dunnage.errors import PolicyError, Problem, UserError
from dunnage.local.client import check_task, mechanism_of
from dunnage.local.task import Grid, Limits, Purpose, Quantity, Schedule, Task, Tier
from dunnage.policy import CarrierPolicy, read_carriers
from dunnage.policy.carriers import Duty, NumberRule, PlaceRule
from dunnage.policy.tables import attempt


def read_task(path: str | os.PathLike[str]) -> Task:
    """Read a policy file for devices and make its task."""
    return task_of(read_carriers(path))


def task_of(policy: CarrierPolicy) -> Task:
    """Make the task of a policy for devices.

    Parameters
    ----------
    policy
        The policy; names of columns do not become part of the task, except those of numbers.

    Raises
    ------
    PolicyError
        With all problems found: numbers out of range, parameters that a mechanism does not take, or a day whose
        reports give away more than the allowance.
    """
    problems: list[Problem] = []
    quantities = {
        rule.name: attempt(problems, f"attributes.{rule.name}", partial(_quantity, rule)) for rule in policy.numbers
    }
    grids = {rule.name: attempt(problems, f"attributes.{rule.name}", partial(_grid, rule)) for rule in policy.places}
    schedule = attempt(problems, "schedule", lambda: Schedule(**policy.schedule))  # type: ignore[arg-type]
    limits = attempt(problems, "allowance", partial(_limits, policy))
    _raise_any(policy, problems)  # what follows is made of these
    purposes = [
        attempt(problems, f"mechanisms.{duty.name}", partial(_purpose, duty, quantities, grids))
        for duty in policy.duties
    ]
    _raise_any(policy, problems)
    facts = {"dataset": policy.dataset, "protects": policy.protects, "version": policy.version}
    made: Task | None = attempt(
        problems,
        "",
        lambda: Task(**facts, purposes=tuple(purposes), schedule=schedule, limits=limits),  # type: ignore[arg-type]
    )
    _raise_any(policy, problems)
    assert made is not None
    problems += _mechanism_problems(made)
    _raise_any(policy, problems)
    attempt(problems, "", lambda: check_task(made))
    _raise_any(policy, problems)
    return made


def _mechanism_problems(task: Task) -> Iterator[Problem]:
    """Find parameters that mechanisms refuse."""
    for purpose in task.purposes:
        try:
            mechanism_of(task, purpose)
        except UserError as error:
            yield Problem(str(error).removeprefix(f"{purpose.name}: "), where=f"mechanisms.{purpose.name}")


def _raise_any(policy: CarrierPolicy, problems: list[Problem]) -> None:
    if problems:
        raise PolicyError(str(policy.path or "policy"), problems)


def _quantity(rule: NumberRule) -> Quantity:
    steps = {} if rule.steps is None else {"steps": rule.steps}
    return Quantity(name=rule.name, low=rule.low, high=rule.high, unit=rule.unit, missing=rule.missing, **steps)


def _grid(rule: PlaceRule) -> Grid:
    return Grid(box=rule.box, levels=rule.levels, area_levels=rule.area_levels)


def _limits(policy: CarrierPolicy) -> Limits:
    return Limits(lifetime=policy.lifetime, day=policy.day, allow_unbounded=policy.allow_unbounded)


def _purpose(duty: Duty, quantities: Mapping[str, Quantity], grids: Mapping[str, Grid]) -> Purpose:
    numeric = duty.mechanism == "local-numeric"
    return Purpose(
        name=duty.name,
        mechanism=duty.mechanism,
        tiers=tuple(Tier(name=name, epsilon=epsilon) for name, epsilon in duty.tiers),
        parameters=duty.parameters,
        quantities=tuple(quantities[name] for name in duty.attributes) if numeric else (),
        grid=None if numeric else grids[duty.attributes[0]],
        steps=duty.steps,
    )
