# SPDX-License-Identifier: Apache-2.0
"""Certificates for tests: what a test does not care about is filled in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dunnage.model.certificate import Certificate

_USUAL: Mapping[str, Any] = {
    "format": 1,
    "kind": "rows",
    "dataset": "parcels",
    "guarantee": {"model": "dp", "protects": "parcel", "epsilon": 1, "neighbours": "replace-one"},
    "basis": "proved",
    "mechanism": {"name": "any"},
    "assumptions": {},
    "in_clear": [],
    "numerics": "exact",
    "attributes": [],
    "measures": {},
    "meaning": {"sentences": [], "odds": []},
    "spend": {"id": "0" * 32, "at": "2026-11-15T10:00:00Z"},
    "composition": {"rule": "none"},
    "software": {"dunnage": "9.8.7"},
    "time": "2026-11-15T10:00:00Z",
    "digests_say": "Digests detect accidents.",
    "files": {},
}
_USUAL_LOSS = {"metric": "a loss", "sum": 0.0, "total": 0.0, "attributes": {}}
_USUAL_RISKS = {"prosecutor_highest": 0.2, "prosecutor_mean": 0.2, "marketer": 0.2, "journalist": "at most that"}


def certificate_of(stated: Mapping[str, Any]) -> Certificate:
    """Make a certificate of what is stated, and of what is usual."""
    body = {**_USUAL, **stated}
    guarantee = dict(body["guarantee"])
    if guarantee.get("model") == "dp":
        guarantee = {"epsilon": 1, "neighbours": "replace-one", "protects": "parcel", **guarantee}
    measures = dict(body["measures"])
    if body["kind"] == "rows":
        measures.setdefault("records", 0)
        if "loss" in measures and measures["loss"] is not None:
            measures["loss"] = {**_USUAL_LOSS, **measures["loss"]}
        if "risks" in measures:
            measures["risks"] = {**_USUAL_RISKS, **measures["risks"]}
    return Certificate.model_validate({**body, "guarantee": guarantee, "measures": measures})


def with_statements(stated: Mapping[str, Any]) -> Certificate:
    """Make a certificate of exactly what is stated; :class:`pydantic.ValidationError` if no certificate can say it."""
    return Certificate.model_validate(stated)
