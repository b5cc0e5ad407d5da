# SPDX-License-Identifier: Apache-2.0
"""Certificates for tests: what a test does not care about is filled in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from dunnage.model.certificate import Certificate, composition_rule, meaning
from dunnage.model.guarantees import Basis, Promise, guarantee_from
from dunnage.release import CERTIFICATE_FILE, Release, file_digest
from dunnage.verification import Verification, verify

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


def restated(body: dict[str, Any]) -> None:
    """Let words, odds and the rule of composition follow again from the guarantee that a body states."""
    promise = Promise(
        guarantee=guarantee_from(body["guarantee"]),
        basis=Basis(body["basis"]),
        mechanism=body["mechanism"],
        holds=guarantee_from(body["holds"]) if "holds" in body else None,
        why=body.get("why", ""),
    )
    body["meaning"] = meaning(promise).plain()
    body["composition"] = {**body["composition"], "rule": composition_rule(promise.guarantee)}


def with_body(release: Release, change: Callable[[dict[str, Any]], Any]) -> Release:
    """Change what the certificate of a release says."""
    body = release.certificate.plain()
    change(body)
    return replace(release, certificate=Certificate.model_validate(body))


def with_column(release: Release, name: str, values: Any, table: str = "data") -> Release:
    held = release.tables[table]
    return replace(release, **{table: held.set_column(held.column_names.index(name), name, pa.array(values))})


def verified(release: Release, folder: Path) -> Verification:
    """Write a release into a new folder, with all digests computed again, and verify it."""
    folder.mkdir()
    release.write_files(folder)
    return verify(folder)


def relisted(folder: Path) -> None:
    """Compute the digests of whatever is in a folder again."""
    file = folder / CERTIFICATE_FILE
    names = sorted(path.name for path in folder.iterdir() if path != file)
    certificate = Certificate.from_bytes(file.read_bytes())
    file.write_bytes(certificate.with_files({name: file_digest(folder / name) for name in names}).to_bytes())
