# SPDX-License-Identifier: Apache-2.0
"""What a release promises, as its certificate states it, and which policy it was compared with: for the sign-off."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from dunnage.auditing.asked import Asked
from dunnage.auditing.belonging import other_parameters
from dunnage.errors import ParameterError

MOST_APPROVER = 120
_STATED = ("guarantee", "basis", "mechanism", "claim", "why", "holds", "assumptions", "in_clear", "warnings", "time")


def statement_of(asked: Asked) -> dict[str, Any]:
    """Gather public facts of release, policy and plan; nothing of it depends on the data beyond what was released."""
    certificate = asked.release.certificate
    body = certificate.body
    return {
        **{name: body[name] for name in _STATED if name in body},
        "meaning": body["meaning"],
        "composition": body["composition"],
        "signed": certificate.signature is not None,
        "policy": _policy(asked),
        "plan": _plan(asked),
    }


def _policy(asked: Asked) -> dict[str, Any] | None:
    """Give the digest of the policy that data were read under, and in what it differs from the release."""
    if asked.data is not None:
        return {"digest": asked.data.policy.digest(), "differs": other_parameters(asked.release, asked.data)}
    return None if asked.fleet is None else {"digest": asked.fleet.policy_digest, "differs": []}


def _plan(asked: Asked) -> dict[str, Any] | None:
    if (plan := asked.plan) is None:
        return None
    model = plan.model.name if plan.model is not None else ""
    return {"minimises": plan.minimises, "objective": plan.objective, "model": model}


def approval(approved_by: str | None, clock: datetime | None = None) -> Mapping[str, str] | None:
    """Record who approves a release, and when."""
    if approved_by is None:
        return None
    name = approved_by.strip()
    if not name or len(name) > MOST_APPROVER or not name.isprintable():
        raise ParameterError(
            f"who approves has a name of 1 to {MOST_APPROVER} printable characters. Got another. Write "
            '--approved-by "Ada Example, data protection officer", say.'
        )
    moment = clock or datetime.now(UTC)
    return {"name": name, "time": moment.strftime("%Y-%m-%dT%H:%M:%SZ")}
