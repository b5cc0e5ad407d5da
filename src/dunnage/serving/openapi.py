# SPDX-License-Identifier: Apache-2.0
"""The OpenAPI document of the routes, made from their table and the types of their bodies."""

from __future__ import annotations

import re

import msgspec

from dunnage._version import __version__
from dunnage.collecting.periods import AlarmRules
from dunnage.serving import identity
from dunnage.serving import service as routes
from dunnage.serving.web import ANYONE

_SAYS = {  # what each route does, the body it takes, and the status of success
    "GET /v1/tasks/{task}": ("The task, byte for byte as devices need it", None, 200),
    "POST /v1/tasks/{task}/enrol": ("Exchange a one-time code for a token", routes.Enrolment, 201),
    "POST /v1/tasks/{task}/reports": ("Send reports; the answer means that they are stored", None, 200),
    "GET /v1/tasks/{task}/tokens/{day}": ("The key of blind tokens of a day, the same for all vehicles", None, 200),
    "POST /v1/tasks/{task}/tokens/{day}": ("Have blinded report ids signed", routes.Blinded, 200),
    "DELETE /v1/tasks/{task}/reports/{report}": ("Erase a report of an open period", None, 200),
    "GET /v1/tasks": ("All tasks", None, 200),
    "POST /v1/tasks": ("Take in reports of a task", routes.NewTask, 201),
    "PUT /v1/tasks/{task}/retention": ("Days after closing until reports are erased", routes.Retention, 200),
    "POST /v1/tasks/{task}/codes": ("Make one-time codes for devices", routes.NewCodes, 201),
    "GET /v1/tasks/{task}/devices": ("Devices that are enrolled", None, 200),
    "DELETE /v1/tasks/{task}/devices/{device}": (
        "Erase a device: token, enrolment, counts, identity record",
        None,
        200,
    ),
    "GET /v1/tasks/{task}/periods": ("Periods and their states", None, 200),
    "GET /v1/tasks/{task}/periods/{day}": ("Counts of an open period, or the closing statement", None, 200),
    "POST /v1/tasks/{task}/periods/{day}/close": ("Close a period, once and for ever", routes.Closing, 200),
    "POST /v1/tasks/{task}/periods/{day}/erase": ("Erase the reports of a closed period", None, 200),
    "POST /v1/tasks/{task}/estimates": ("Estimate closed days and certify the release", routes.Days, 201),
    "GET /v1/tasks/{task}/estimates/{days}/{file}": ("A file of a release", None, 200),
    "GET /v1/tasks/{task}/views/{by}": ("Estimates of closed days, by day, hour, tier or public group", None, 200),
    "GET /v1/tasks/{task}/alarms": ("Alarms, and what they said of each day", None, 200),
    "PUT /v1/tasks/{task}/alarms": ("Set the alarms of the fleet", AlarmRules, 200),
    "GET /v1/identity": ("Vehicles with an identity record, custodians, and requests that wait", None, 200),
    "GET /v1/identity/log": ("Who opened which records, when and why", None, 200),
    "POST /v1/identity/records": ("Seal identity records", identity.Records, 201),
    "POST /v1/identity/records/{vehicle}/erase": ("Delete the key of a record", identity.Erasure, 200),
    "POST /v1/identity/openings": ("Ask to open records, with the own share", identity.Opening, 202),
    "POST /v1/identity/openings/{opening}": ("Open what another officer requested", identity.SecondShare, 200),
    "DELETE /v1/identity/openings/{opening}": ("Withdraw a request to open records", None, 200),
    "GET /v1/health": ("Whether the process is alive", None, 200),
    "GET /v1/ready": ("Whether reports can be stored now", None, 200),
    "GET /v1/metrics": ("Counters for Prometheus", None, 200),
    "GET /v1/openapi.json": ("This document", None, 200),
}
_ERRORS = {
    400: "not a valid request",
    401: "no token, or one that may not do this",
    403: "the code is not right",
    404: "not found",
    408: "too slow",
    409: "refused: it would break a promise, or comes too early",
    413: "too large",
    415: "another content type, or compressed",
    422: "the body does not fit",
    429: "too many requests",
    503: "cannot be stored now; come again later",
}


def document() -> dict[str, object]:
    kinds = [kind for _, kind, _ in _SAYS.values() if kind not in (None, AlarmRules)]
    schemas, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    schema_of = dict(zip(kinds, schemas, strict=True)) | {AlarmRules: AlarmRules.model_json_schema()}
    paths: dict[str, dict[str, object]] = {}
    for line, (says, kind, status) in _SAYS.items():
        method, path = line.split(" ")
        names = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in re.findall(r"\{(\w+)\}", path)
        ]
        queries = {"/reports/{report}": ["checksum"], "/views/{by}": ["from", "to"]}
        for query in next((own for end, own in queries.items() if path.endswith(end)), []):
            names.append({"name": query, "in": "query", "required": True, "schema": {"type": "string"}})
        responses = {str(code): {"description": text} for code, text in _ERRORS.items()}
        responses |= {str(code): {"description": "done"} for code in {200, status}}
        operation: dict[str, object] = {
            "summary": says,
            "description": f"Roles: {', '.join(routes.MAY[line])}.",
            "parameters": names,
            "responses": responses,
        }
        if ANYONE not in routes.MAY[line]:
            operation["security"] = [{"token": []}]
        if kind is not None:
            operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema_of[kind]}}}
        elif path.endswith("/reports"):
            binary = {"schema": {"type": "string", "format": "binary"}}
            operation["requestBody"] = {
                "required": True,
                "content": dict.fromkeys((routes.FRAMES, routes.LINES, routes.WITH_TOKENS), binary),
            }
        paths.setdefault(path, {})[method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "Dunnage collector", "version": __version__},
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }
