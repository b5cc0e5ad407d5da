# SPDX-License-Identifier: Apache-2.0
"""Forgeries: one value of a genuine release is changed, all else made to match, and verify must object.

Every leaf of every certificate is changed in every way its type allows, every table in one cell of each column and in
its lines. The folder stays consistent (canonical form, digests, README), so that only the meaning is forged. What
verify accepts is on a short list, with the reason why nobody can see it from outside.
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.builders import CASES, LARGER_CASES
from tests.estimates_help import fleet_tallies, fleet_task

import dunnage as dn
from dunnage.certificate import (
    AttributeStatement,
    Certificate,
    Composition,
    CountMeasures,
    EstimateMeasures,
    OddsRow,
    RowMeasures,
)
from dunnage.columns import is_set
from dunnage.documents import canonical
from dunnage.errors import CheckFailed
from dunnage.local.estimate import estimate
from dunnage.release import Release
from dunnage.verification import check_release

FLEETS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "estimates": ((), {}),
    "estimates of numbers": (("telemetry",), {"telemetry": {"method": "square-wave"}}),
    "estimates of areas": (("places",), {"places": {"area_in_clear": True}}),
    "estimates of numbers as published": (("telemetry",), {"telemetry": {"as_published": True}}),
    "estimates of paths as published": (("paths",), {"paths": {"as_published": True, "method": "qlp"}}),
}
ROWS = {str(case): case for case in (*CASES, *LARGER_CASES)}
NAMES = [*ROWS, *FLEETS]


@cache
def genuine(name: str) -> Release:
    """A release in order; never changed."""
    if name in FLEETS:
        purposes, parameters = FLEETS[name]
        task = fleet_task(*purposes, **parameters)
        return estimate(fleet_tallies(task, 500), task, allow_noise=True)
    return ROWS[name].release()


# What is changed in a certificate

Path_ = tuple[str | int, ...]
REMOVED = object()


def others(value: Any) -> Iterator[Any]:
    """Give what a forger might write instead: the smallest changes, gross ones, and nothing."""
    yield from (None, REMOVED) if value is not None else (REMOVED, 1, "x")
    if isinstance(value, bool):
        yield from (not value, int(value))
    elif isinstance(value, int):
        yield from (value + 1, value - 1, 10 * value + 7, float(value), str(value), True)
    elif isinstance(value, float):
        yield from (value * 1.001 + 1e-6, value * 0.999 - 1e-6, -value - 1, str(value), 10**30)
    elif isinstance(value, str):
        yield from (f"{value} ", "x", "", 7)
        if re.fullmatch(r"\d+/\d+", value):
            above, below = value.split("/")
            yield from (f"{int(above) + 1}/{below}", f"{2 * int(above)}/{2 * int(below)}")
    elif isinstance(value, list):
        yield from ([*value, value[-1] if value else "x"], *([value[1:], value[:-1], []] if value else []))
        if len(value) > 1 and value[0] != value[1]:
            yield [value[1], value[0], *value[2:]]
    elif isinstance(value, dict):
        yield from ({**value, "more": 1}, {}, [])


def places(value: Any, path: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    """Give every value of plain data, with the way to it."""
    if path:
        yield path, value
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


def additions(certificate: Certificate, body: dict[str, Any]) -> Iterator[tuple[Path_, Any]]:
    """Give what a certificate may state, and this one does not."""
    models: list[tuple[Path_, Any, Any]] = [
        ((), Certificate, body),
        (("measures",), type(certificate.measures), body["measures"]),
        (("composition",), Composition, body["composition"]),
        *((("attributes", i), AttributeStatement, item) for i, item in enumerate(body["attributes"])),
        *((("meaning", "odds", i), OddsRow, item) for i, item in enumerate(body["meaning"]["odds"])),
    ]
    for path, model, stated in models:
        for name in model.model_fields.keys() - stated.keys() - {"signature"}:
            yield from (((*path, name), value) for value in (None, "x", 1, 0.5, ["x"], {}))


def forged_bodies(certificate: Certificate) -> Iterator[tuple[Path_, Any, dict[str, Any]]]:
    body = certificate.plain()
    pairs = [(path, value) for path, before in places(body) if path[0] != "files" for value in others(before)]
    for path, value in (*pairs, *additions(certificate, body)):
        changed = copy.deepcopy(body)
        inner: Any = changed
        for key in path[:-1]:
            inner = inner[key]
        if value is REMOVED:
            del inner[path[-1]]
        else:
            inner[path[-1]] = value
        yield path, value, changed


def seen(body: dict[str, Any], release: Release) -> bool:
    """Whether verify objects to a release with another certificate, whose form and digest are made right."""
    try:
        digest = hashlib.sha256(canonical(body)).hexdigest()
        certificate = Certificate.from_bytes(canonical({**body, "digest": digest}))
        check_release(Release(certificate=certificate, **release.tables))
    except CheckFailed:
        return True
    return False


@pytest.mark.parametrize("name", NAMES)
def test_every_changed_leaf_of_a_certificate_is_seen(name: str) -> None:
    release = genuine(name)
    check_release(release)
    tried = 0
    for path, value, body in forged_bodies(release.certificate):
        tried += 1
        if not seen(body, release):
            print("ACC", "|", name[:40], "|", ".".join(map(str, path)), "|", "REMOVED" if value is REMOVED else str(value)[:60], "|", release.certificate.plain().get(path[0]) if len(path)==1 else '')
    print("TRIED", tried)
