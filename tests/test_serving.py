# SPDX-License-Identifier: Apache-2.0
"""The collector over HTTP: roles, limits, hostile requests, pages; as a process that is killed, stopped and sent to."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import logging
import re
import signal
import socket
import sqlite3
import subprocess
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from tests.collector_help import (
    DAY,
    NOON,
    SCHEDULE,
    TASK,
    Api,
    Bench,
    Nursery,
    Server,
    body_of,
    emptied,
    made,
    postgres_server,
    running,
)
from tests.commands import fine, run
from tests.estimates_help import HOURLY, PLACES, TELEMETRY, truck_task

from dunnage.collecting.collector import split_frames
from dunnage.collecting.store import Period, Store
from dunnage.collecting.vault import Vault
from dunnage.devices.allowance import Allowance
from dunnage.devices.client import Client
from dunnage.devices.report import Report, packed
from dunnage.devices.sending import Collector, send_stored
from dunnage.devices.task import Tier
from dunnage.devices.tokens import Wallet, with_token
from dunnage.errors import AllowanceError, InputError, InternalError, ParameterError
from dunnage.noise.source import Noise
from dunnage.serving import identity
from dunnage.serving import service as routes
from dunnage.serving.openapi import document
from dunnage.serving.service import ANYONE, DEVICE, FRAMES, LINES, MAY, guarded, hashed
from dunnage.serving.settings import Settings, read_settings


@pytest.fixture
def api(tmp_path):
    made = Api(tmp_path / "data")
    yield made
    made.close()


@pytest.fixture
def base(api):
    return api.add_task()


def test_every_route_names_who_may_use_it(api):
    for change in (lambda lines: lines.pop("GET /v1/tasks"), lambda lines: lines.update({"GET /new": None})):
        lines = dict.fromkeys(MAY)
        change(lines)
        with pytest.raises(InternalError, match="every route must name"):
            guarded(api.service, lines)
    assert {f"{method} {route.path}" for route in api.app.routes for method in route.methods - {"HEAD"}} == set(MAY)
    tokens = {None: None, "wrong": "wrong", **{role: api.service.invite(role, role) for role in routes.PEOPLE}}
    device = api.enrol(api.add_task(), "truck")
    for line, roles in MAY.items():
        method, path = line.split(" ")
        path = path.replace("{task}", TASK.digest).replace("{day}", "2026-11-16").replace("{days}", "2026-11-16")
        path = (
            path.replace("{by}", "day")
            .replace("{alarm}", "none")
            .replace("{report}", "00" * 16)
            .replace("{device}", "nobody")
            .replace("{file}", "none")
        )
        for role, token in {**tokens, DEVICE: device}.items():
            status, content, _ = api.call(method, path, b"", token=token, kind=FRAMES)
            allowed = ANYONE in roles or role in roles
            assert (status != 401) == allowed, (line, role, content)
            assert status < 500, (line, role, content)
    # A cookie reads, and changes nothing.
    status, _, said = api.call("GET", api.service.link.partition("8443")[2])
    assert status == 303
    cookie = [(b"cookie", said["set-cookie"].partition(";")[0].encode())]
    assert "httponly" in said["set-cookie"].lower()
    assert "samesite=lax" in said["set-cookie"].lower()
    assert api.call("GET", "/v1/tasks", headers=cookie)[0] == 200
    assert api.call("POST", "/v1/tasks", {}, headers=cookie)[0] == 401
    assert api.call("GET", "/sign-in?code=")[0] == 403  # the link works once


def test_the_life_of_a_period(api, base):
    noise = Noise()
    token, other = api.enrol(base, "truck-1"), api.enrol(base, "truck-2")
    assert api.call("GET", base)[1]["dataset"] == "fleet"
    reports = [made(noise, purpose=at % 2) for at in range(8)]
    assert api.send(base, token, *reports[:4])[1] == {"accepted": 4, "refused": {}, "failures": []}
    lines = "\n".join(report.to_json() for report in reports[4:]) + "\nno report\n"
    status, content, _ = api.call("POST", f"{base}/reports", lines.encode(), token=other, kind=LINES)
    assert (status, content["accepted"], content["refused"]) == (200, 4, {"malformed": 1})
    status, content, _ = api.send(base, token, reports[0], made(noise, slot=20))
    assert content["refused"] == {"replayed": 1, "too_early": 1}
    assert {item["code"] for item in content["failures"]} == {"replayed", "too_early"}
    day = f"{base}/periods/2026-11-16"
    status, content, _ = api.call("GET", day, token=api.operator)
    assert content["state"] == "open"
    assert content["reports"] == {"telemetry": {"basic": 4, "strict": 0}, "places": {"basic": 4, "strict": 0}}
    gone = reports[0]
    erase = f"{base}/reports/{gone.report_id.hex()}?checksum={gone.to_bytes()[-4:].hex()}"
    assert api.call("DELETE", erase, token=token)[0] == 200
    assert api.call("DELETE", erase, token=token)[0] == 404
    assert api.call("POST", f"{day}/close", {}, token=api.operator)[0] == 409
    estimate = {"from": "2026-11-16", "to": "2026-11-16", "allow_noise": True}
    assert api.call("POST", f"{base}/estimates", estimate, token=api.operator)[0] == 409
    api.now = SCHEDULE.closes(DAY) + 100.0
    assert api.call("GET", f"{base}/periods", token=api.operator)[1]["periods"] == [
        {"day": "2026-11-16", "state": "closing"}
    ]
    api.service.do_due()
    status, content, _ = api.call("GET", day, token=api.operator)
    assert (content["state"], content["statement"]["ids"]["num"]) == ("closed", 7)
    status, content, _ = api.call("POST", f"{base}/estimates", estimate, token=api.operator)
    assert (status, content["reports"], content["verified"]) == (201, 7, True)
    assert api.call("GET", day, token=api.operator)[1]["state"] == "estimated"
    for name in (*content["files"], "cells.geojson"):
        assert api.call("GET", f"{base}/estimates/2026-11-16/{name}", token=api.operator)[0] == 200
    for name in ("..%2f..%2foperator.token", "none", ".."):
        assert api.call("GET", f"{base}/estimates/2026-11-16/{name}", token=api.operator)[0] == 404
    span = "?from=2026-11-16&to=2026-11-16"
    status, content, _ = api.call("GET", f"{base}/views/hour{span}", token=api.operator)
    assert (status, content["by"], content["lines"][0]["hour"]) == (200, "hour", "11:00")
    assert api.call("GET", f"{base}/views/truck{span}", token=api.operator)[0] == 422
    assert api.call("GET", f"{base}/views/day", token=api.operator)[0] == 422
    rules = {"rules": ["mean of speed > 90"], "sure": 0.99, "looks": 365}
    assert api.call("PUT", f"{base}/alarms", rules, token=api.operator)[0] == 200
    for wrong in (rules | {"sure": 1}, rules | {"more": 1}, [], rules | {"rules": ["<b>"]}, rules | {"looks": 0}):
        assert api.call("PUT", f"{base}/alarms", wrong, token=api.operator)[0] == 422
    assert api.call("GET", f"{base}/alarms", token=api.operator)[1] == {"alarms": rules, "looks": []}
    status, page, said = api.call("GET", f"/tasks/{TASK.digest}", token=api.operator)
    assert status == 200
    assert "default-src 'none'" in said["content-security-policy"]
    assert "2026-11-16" in page.decode()
    assert "30 more days" in page.decode()
    assert "2030-04-19" in page.decode()  # a lifetime of 10,000 at 8 a day, from the first day on
    assert not re.search(r'(?:src|href)="(?!/)', page.decode())
    assert api.call("GET", "/", token=api.operator)[0] == 200
    assert api.call("POST", f"{day}/erase", b"", token=api.operator)[0] == 200
    assert api.call("PUT", f"{base}/retention", {"days": 3}, token=api.operator)[0] == 200
    assert [item["name"] for item in api.call("GET", f"{base}/devices", token=api.operator)[1]["devices"]] == [
        "truck-1",
        "truck-2",
    ]


def test_tokens_are_for_one_task_and_can_be_taken_away(api, base):
    noise, other = Noise(), truck_task(TELEMETRY, schedule=HOURLY)
    elsewhere = api.add_task("gateway", other)
    token = api.enrol(base, "truck")
    assert api.send(base, token, made(noise))[0] == 200
    assert api.send(elsewhere, token, made(noise))[0] == 401
    new = api.enrol(base, "truck")  # a new code replaces the token
    assert api.send(base, token, made(noise))[0] == 401
    assert api.send(base, new, made(noise))[0] == 200
    codes = api.call("POST", f"{base}/codes", {"names": ["late"]}, token=api.operator)[1]["codes"]
    assert api.call("POST", f"{elsewhere}/enrol", {"code": codes["late"]})[0] == 403
    api.now += 8 * 86_400
    assert api.call("POST", f"{base}/enrol", {"code": codes["late"]})[0] == 403  # expired
    api.now = NOON
    assert api.call("POST", f"{base}/enrol", {"code": codes["late"]})[0] == 201
    assert api.call("POST", f"{base}/enrol", {"code": codes["late"]})[0] == 403  # used
    status, content, _ = api.call("DELETE", f"{base}/devices/truck", token=api.operator)
    assert status == 200
    assert "nobody can find them" in content["kept"]
    assert api.send(base, new, made(noise))[0] == 401
    assert api.call("DELETE", f"{base}/devices/truck", token=api.operator)[0] == 404
    assert api.service.store.sent(Period(TASK.digest, DAY)) == {}
    assert api.call("POST", f"{base}/codes", {"names": ["a"], "vehicles": 2}, token=api.operator)[0] == 422
    gateway = api.enrol(elsewhere, "gateway", vehicles=3)
    reports = [made(noise, task=other, purpose=0, slot=12) for _ in range(73)]
    refused = api.send(elsewhere, gateway, *reports)[1]["refused"]
    assert refused == {"too_many": 1}  # three vehicles with 24 slots a day
    again = Api(Path(api.service.settings.data).parent / "again")
    try:
        assert again.call("POST", f"{base}/enrol", {"code": "x"})[0] == 404
    finally:
        again.close()


def test_hostile_requests(api, base):
    noise, token = Noise(), api.enrol(base, "truck")
    reports, good = f"{base}/reports", body_of(made(noise))
    bearer = (b"authorization", f"Bearer {token}".encode())
    bomb = gzip.compress(bytes(1 << 20))
    for expected, how in (
        (415, {"content": bomb, "token": token, "kind": FRAMES, "headers": [(b"content-encoding", b"gzip")]}),
        (415, {"content": good, "token": token, "kind": "text/plain"}),
        (413, {"content": good, "token": token, "kind": FRAMES, "headers": [(b"content-length", b"99999999999")]}),
        (413, {"content": good, "token": token, "kind": FRAMES, "headers": [(b"content-length", b"-1")]}),
        (413, {"parts": [bytes(1 << 20)] * 9, "token": token, "kind": FRAMES}),
        (413, {"content": b"\0\0\0\0" * 100_000, "token": token, "kind": FRAMES}),
        (413, {"content": b"{}\n" * 1_001, "token": token, "kind": LINES}),
        (401, {"content": good, "kind": FRAMES}),
        (401, {"content": good, "token": token, "kind": FRAMES, "headers": [bearer]}),  # two of them
        (401, {"content": good, "token": f"{token} ", "kind": FRAMES}),
        (401, {"content": good, "kind": FRAMES, "headers": [(b"authorization", b"Basic " + token.encode())]}),
        (401, {"content": good, "token": "\x00\x01'; DROP TABLE devices; --", "kind": FRAMES}),
        (415, {"content": good, "token": token, "kind": FRAMES, "headers": [(b"content-type", FRAMES.encode())]}),
    ):
        assert api.call("POST", reports, **how)[0] == expected, how
    assert api.call("POST", reports, token=token, kind=FRAMES, parts=[good[:9], b""][:0])[0] == 0  # gone meanwhile
    for path in ("/v1/tasks/x", f"/v1/tasks/{'0' * 64}", "/v1/tasks/'%20OR%201=1", f"{base}/periods/2026-13-01"):
        assert api.call("GET", path, token=api.operator)[0] == 404
    tricks = [
        "<script>alert(1)</script>",
        "'; DROP TABLE devices; --",
        "",
        "x" * 65,
        "..",
        "\u202etruck",
        "a\nb",
        "%00",
    ]
    for name in tricks:
        assert api.call("POST", f"{base}/codes", {"names": [name]}, token=api.operator)[0] == 422
        assert api.call("POST", f"{base}/enrol", {"code": name})[0] == 403
        assert api.call("POST", f"{base}/estimates", {"from": name, "to": name}, token=api.operator)[0] == 422
        assert api.call("DELETE", f"{base}/devices/{name}", token=api.operator)[0] in (404, 405)
    for content in ({"names": 1}, {"names": ["a"], "more": 1}, {"names": []}, [], b"{", b"[" * 100_000, b"\xff"):
        assert api.call("POST", f"{base}/codes", content, token=api.operator)[0] == 422
    for task in ({}, {"format": 9}, json.loads(TASK.to_json()) | {"dataset": 7}):
        assert api.call("POST", "/v1/tasks", {"task": task, "senders": "token"}, token=api.operator)[0] == 422
    given = {"task": json.loads(TASK.to_json()), "senders": "anybody"}
    assert api.call("POST", "/v1/tasks", given, token=api.operator)[0] == 422
    assert (
        api.call("POST", "/v1/tasks", given | {"senders": "gateway"}, token=api.operator)[0] == 422
    )  # known otherwise
    hostile = replace(TASK, dataset="<b>&'\"; DROP TABLE tasks", version=2)
    api.add_task(task=hostile)
    page = api.call("GET", "/", token=api.operator)[1].decode()
    assert "<b>&'" not in page
    assert "&lt;b&gt;" in page
    assert api.send(base, token, made(noise))[1]["accepted"] == 1


def test_limits_of_rate_and_of_what_waits(tmp_path, monkeypatch):
    noise, api = Noise(), Api(tmp_path / "data", requests_per_minute=5, max_pending=1 << 12)
    try:
        base = api.add_task()
        token, other = api.enrol(base, "one"), api.enrol(base, "two")
        monkeypatch.setattr(routes.time, "monotonic", lambda: 1000.0)
        assert [api.send(base, token, made(noise))[0] for _ in range(6)] == [200] * 5 + [429]
        assert api.send(base, other, made(noise))[0] == 200
        monkeypatch.setattr(routes.time, "monotonic", lambda: 1013.0)
        assert api.send(base, token, made(noise))[0] == 200
        api.service.collector._submitted += 1 << 13
        status, _, said = api.send(base, other, made(noise))
        assert (status, said["retry-after"]) == (503, "5")
        api.service.collector._submitted -= 1 << 13
        assert api.send(base, other, made(noise))[0] == 200
        api.service.collector._clock = (lambda: NOON + 9999.0, lambda: float(NOON))
        assert api.send(base, other, made(noise))[0] == 503
        assert api.call("GET", "/v1/ready")[0] == 503
        assert api.call("GET", "/v1/health")[0] == 200
    finally:
        api.close()


def test_logs_and_metrics_are_clean(api, base, caplog):
    caplog.set_level(logging.INFO, "dunnage")
    noise = Noise()
    token = api.enrol(base, "truck-of-Ann")
    report = made(noise)
    api.send(base, token, report, made(noise, slot=20))
    api.call("POST", f"{base}/periods/2026-11-16/close", {"early": True}, token=api.operator)
    _, metrics, _ = api.call("GET", "/v1/metrics", token=api.operator)
    said = caplog.text + metrics.decode()
    assert 'dunnage_reports_total{answer="accepted"} 1' in said
    assert '"event": "closed"' in said
    for secret in (token, api.operator, "Ann", report.report_id.hex(), report.to_json(), "127.0.0.1:1"):
        assert secret not in said


def test_the_document_of_the_routes():
    described = document()
    lines = {f"{method.upper()} {path}" for path, own in described["paths"].items() for method in own}
    assert lines == {line for line in MAY if "/v1/" in line}
    assert "NewTask" in described["components"]["schemas"]


def test_settings_come_from_flags_environment_and_file(tmp_path, monkeypatch):
    file = tmp_path / "serve.toml"
    file.write_text('listen = "127.0.0.1:1"\nmax_reports = 7\ndata = "a"\n')
    monkeypatch.setenv("DUNNAGE_SERVE_LISTEN", "127.0.0.1:2")
    monkeypatch.setenv("DUNNAGE_SERVE_TLS_IN_FRONT", "yes")
    given = read_settings({"data": "b", "database": None}, file)
    assert (given.listen, given.max_reports, given.data, given.tls_in_front) == ("127.0.0.1:2", 7, "b", True)
    for text in ("max_reports = 0", 'listen = 7\nwhat = "x"', "no toml", "max_bytes = true"):
        file.write_text(text)
        with pytest.raises(InputError):
            read_settings({}, file)
    with pytest.raises(InputError):
        read_settings({}, tmp_path / "none.toml")
    for listen in ("here", "127.0.0.1", "127.0.0.1:99999"):
        with pytest.raises(ParameterError, match="address and a port"):
            Settings(listen=listen).is_loopback  # noqa: B018
    for listen, loopback in (("localhost:1", True), ("[::1]:1", True), ("0.0.0.0:1", False), ("example.org:1", False)):
        assert Settings(listen=listen).is_loopback == loopback
    open_one = Settings(listen="0.0.0.0:8443")
    with pytest.raises(ParameterError, match=r"TLS.*nobody can sign in"):
        open_one.check_exposure(has_people=False)
    with pytest.raises(ParameterError, match="TLS"):
        open_one.check_exposure(has_people=True)
    with pytest.raises(ParameterError, match="nobody can sign in"):
        open_one.model_copy(update={"tls_in_front": True}).check_exposure(has_people=False)
    open_one.model_copy(update={"tls_in_front": True}).check_exposure(has_people=True)


def test_deploy_files_say_what_the_command_understands(tmp_path):
    deploy, data = Path(__file__).parent.parent / "deploy", tmp_path / "data"
    (tmp_path / "serve.toml").write_text('listen = "127.0.0.1:8443"\n')
    checked, started = re.findall(
        r"^ExecStart(?:Pre)?=/opt/dunnage/bin/dunnage (.+)$", (deploy / "dunnage.service").read_text(), re.MULTILINE
    )
    assert checked == f"{started} --check"
    run(checked.replace("/etc/dunnage", str(tmp_path)).replace("/var/lib/dunnage", str(data)), code=0)
    compose = (deploy / "compose.yaml").read_text()
    (line,) = re.findall(r"command: \[dunnage, (serve.+)\]", compose)
    words = [*line.replace('"', "").replace("/data", str(data)).split(", "), "--check"]
    assert "--invite" in run(*words, code=2).err  # it can be reached from elsewhere, and nobody can sign in
    (invite,) = re.findall(r"collector dunnage (serve .+ --role operator)", compose)
    run(invite.replace("/data", str(data)), code=0)
    assert "1 people" in run(*words, code=0).out


# The device's side


class Wires(Collector):
    """A collector whose network is a list of what happens next."""

    def __init__(self, *events):
        self.waits = []
        super().__init__("https://collector.example.org", TASK, wait=self.waits.append)
        self.events, self.bodies = list(events), []

    def request(self, method, path, body, kind, token=""):
        self.bodies.append(body)
        event = self.events.pop(0)
        if isinstance(event, Exception):
            raise event
        if callable(event):
            event = event(body)
        return (*event, 0.0) if len(event) == 2 else event


def accepts(body):
    return 200, {"accepted": len(list(split_frames(body))), "failures": []}


@pytest.fixture
def truck(tmp_path):
    """An allowance with the reports of a slot, and how to open it again."""
    task = replace(TASK, schedule=replace(SCHEDULE, slots_per_day=24))

    def opened(**start):
        return Allowance.open(tmp_path / "truck", TASK, durable=False, **start)

    assert task.digest != TASK.digest
    with opened(enrol=True, tier="basic", now=NOON - 12 * 3600 + 1, cap="none") as allowance:
        client = Client(TASK, allowance)
        for slot in allowance.slots(DAY):
            client.reports({}, SCHEDULE.moment(DAY, slot))
    (tmp_path / "truck.token").write_text("token")
    return opened


def test_a_device_sends_until_it_is_answered_and_never_draws_again(truck, tmp_path, monkeypatch):
    def no_noise(*given, **more):
        raise AssertionError("sending draws nothing")

    before = (tmp_path / "truck").read_bytes()
    with truck() as allowance:
        for purpose in TASK.purposes:
            monkeypatch.setattr(type(Client(TASK, allowance)._duties[purpose.name].mechanism), "perturb", no_noise)
        lost = Wires(*[OSError()] * 3, (503, None, 7.0), (200, {"accepted": 8, "failures": []}))
        done = send_stored(allowance, lost)
        assert (done.num_sent, done.num_waiting) == (8, 0)
        assert len(lost.waits) == 4
        assert all(wait >= least for wait, least in zip(lost.waits, (1, 2, 4, 8), strict=True))
        assert len(set(lost.bodies)) == 1  # the same bytes each time
        assert send_stored(allowance, Wires()).num_sent == 0  # acknowledged: nothing to send
    assert (tmp_path / "truck").read_bytes() == before
    (tmp_path / "truck.sent").unlink()  # power was lost before the answer was noted
    with truck() as allowance:
        ids = [Report.from_bytes(one).report_id.hex() for one in allowance.stored_of(DAY)]
        failures = [{"id": ids[0], "code": "late"}, {"id": ids[1], "code": "too_early"}]
        failures += [{"id": name, "code": "replayed"} for name in ids[2:]]
        again = Wires((200, {"accepted": 0, "failures": failures}), accepts)
        done = send_stored(allowance, again)
        assert again.bodies[0] == lost.bodies[0]
        assert (done.num_known, done.refused, done.num_waiting) == (6, {"late": 1}, 1)
        assert send_stored(allowance, again).num_sent == 1  # the one that was too early
        away = Wires(*[OSError()] * 6)
        (tmp_path / "truck.sent").unlink()
        assert send_stored(allowance, away).num_waiting == 8
        with pytest.raises(AllowanceError, match="refuses this device: gone"):
            send_stored(allowance, Wires((401, {"error": {"message": "gone"}})))
        with pytest.raises(AllowanceError, match="did not enrol"):
            send_stored(allowance, Wires((403, None)), code="x")
        (tmp_path / "truck.token").unlink()
        with pytest.raises(AllowanceError, match="no token"):
            send_stored(allowance, Wires())
        assert send_stored(allowance, Wires((201, {"token": "new"}), accepts), code="x").num_sent == 8
    assert (tmp_path / "truck.token").stat().st_mode & 0o777 == 0o600
    for address in ("http://example.org", "ftp://x", "example.org", "https://"):
        with pytest.raises(ParameterError):
            Collector(address, TASK)


class Radio(Collector):
    """A collector that is reached through the routes themselves."""

    def __init__(self, api):
        super().__init__("https://collector.example.org", TASK)
        self.api, self.headers = api, []

    def request(self, method, path, body, kind, token=""):
        self.headers.append((path, bool(token)))
        status, answer, _ = self.api.call(
            method, f"/v1/tasks/{TASK.digest}{path}", body, token=token or None, kind=kind
        )
        return status, answer, 0.0


def test_reports_without_a_name(api, tmp_path):
    base = api.add_task("unlinkable")
    codes = api.call("POST", f"{base}/codes", {"names": ["secret-truck"]}, token=api.operator)[1]["codes"]
    radio, wallet = Radio(api), Wallet(tmp_path / "wallet", TASK)
    start = {"enrol": True, "tier": "basic", "now": NOON - 12 * 3600 + 1, "cap": "none", "durable": False}
    with Allowance.open(tmp_path / "truck", TASK, **start) as allowance:
        client = Client(TASK, allowance, wallet=wallet)
        due = [slot for slot in allowance.slots(DAY) if SCHEDULE.accepts(DAY, slot, NOON)]
        slot = due[0] if due else allowance.slots(DAY)[0]
        api.now = SCHEDULE.moment(DAY, slot) + 1.0
        with pytest.raises(AllowanceError, match="no token"):
            client.reports({}, api.now)
        assert allowance.spent_in_all().num_reports == 0
        assert send_stored(allowance, radio, code=codes["secret-truck"], wallet=wallet).num_sent == 0
        num = len(client.reports({}, api.now))
        done = send_stored(allowance, radio, wallet=wallet)
        assert (done.num_sent, done.refused) == (num, {})
        assert ("/reports", False) in radio.headers  # no name on reports
        assert ("/reports", True) not in radio.headers
        reports = list(allowance.stored_of(DAY))
    token = (tmp_path / "truck.token").read_text()
    # A token is for one id of one day; copies, names and forged tokens are refused.
    kind, (report, *_) = routes.WITH_TOKENS, map(Report.from_bytes, reports)
    signature = wallet.signature(DAY, report.report_id)
    other = made(Noise(), slot=report.slot)
    for content, how in (
        (with_token(reports[0], signature), {"refused": {"replayed": 1}}),
        (with_token(other.to_bytes(), signature), {"refused": {"no_token": 1}}),
        (with_token(other.to_bytes(), bytes(256)), {"refused": {"no_token": 1}}),
        (with_token(b"no report at all", signature), {"refused": {"malformed": 1}}),
    ):
        status, answer, _ = api.call("POST", f"{base}/reports", content, kind=kind)
        assert (status, answer["accepted"], {"refused": answer["refused"]}) == (200, 0, how)
    assert api.call("POST", f"{base}/reports", b"\0\0\0\x09cut", kind=kind)[0] == 422
    assert api.call("POST", f"{base}/reports", reports[0], kind=FRAMES)[0] == 415
    assert api.call("POST", f"{base}/reports", with_token(reports[0], signature), kind=kind, token=token)[0] == 400
    keys = f"{base}/tokens/2026-11-16"
    assert api.call("POST", keys, {"blinded": ["AAAA"]})[0] == 401
    assert api.call("POST", keys, {"blinded": ["AAAA"]}, token=token)[0] == 422
    blinded = [packed(bytes([0, at, *range(1, 255)])) for at in range(2)]
    assert api.call("POST", keys, {"blinded": blinded}, token=token)[0] == 409  # it has its tokens
    assert api.call("GET", f"{base}/tokens/2027-11-16")[0] == 404
    # The store does not tell who sent what, not even while the period is open.
    folder = Path(api.service.settings.data) / "periods"
    assert not any(b"secret-truck" in path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert api.call("DELETE", f"{base}/devices/secret-truck", token=api.operator)[0] == 200
    api.now = NOON + 5 * 86_400.0
    api.service.do_due()
    done = api.service.make_estimate(TASK.digest, DAY, DAY, allow_noise=True)
    certificate = api.call("GET", f"{base}/estimates/{done['days']}/certificate.json", token=api.operator)[1]
    assert "senders are unlinkable" in certificate["assumptions"]
    assert not list((Path(api.service.settings.data) / "tokens").rglob("*.pem"))  # keys of closed days are destroyed


def test_two_officers_open_an_identity_record(api, base, caplog, monkeypatch):
    caplog.set_level(logging.INFO, "dunnage")
    officers = {name: api.service.invite(name, "officer") for name in ("anna", "ben", "eva")}
    shares = dict[str, dict[str, object]]()

    def call(name, method, path, content=None):
        return api.call(method, f"/v1/identity{path}", content, token=officers.get(name, api.operator))

    def keep(made):
        for share in made:
            share.write(Path(api.service.settings.data) / "share")
            shares[share.custodian] = json.loads((Path(api.service.settings.data) / "share").read_text())
            (Path(api.service.settings.data) / "share").unlink()

    assert call("anna", "GET", "")[0] == 409  # no vault yet
    Vault.create(Path(api.service.settings.data) / "vault", ["anna", "ben", "chen"], keep)
    records = {"truck-17": {"owner": "Frau Huber"}, "truck-18": {"owner": "Herr Moser", "plate": "L 8 Q"}}
    assert call("operator", "POST", "/records", {"records": records})[:2] == (201, {"sealed": 2})
    for wrong in ({"records": {}}, {"records": {" ": {}}}, {"records": {"x": {"a": 1}}}, {}):
        assert call("operator", "POST", "/records", wrong)[0] == 422
    assert call("anna", "GET", "")[1]["vehicles"] == ["truck-17", "truck-18"]
    asked = {"vehicles": ["truck-17"], "reason": "claim 44", "share": shares["anna"]}
    for status, wrong in (
        (409, {"share": shares["ben"]}),  # somebody else's
        (422, {"share": shares["anna"] | {"share": ""}}),
        (422, {"share": {"custodian": "anna"}}),
        (422, {"share": shares["anna"] | {"platform": "another"}}),
        (422, {"vehicles": []}),
        (422, {"vehicles": ["truck-99"]}),
        (422, {"reason": " "}),
    ):
        assert call("anna", "POST", "/openings", asked | wrong)[0] == status, wrong
    status, content, _ = call("anna", "POST", "/openings", asked)
    assert status == 202
    opening = f"/openings/{content['opening']}"
    assert call("ben", "GET", "")[1]["waiting"] == [
        {"opening": content["opening"], "by": "anna", "vehicles": ["truck-17"], "reason": "claim 44"}
    ]
    other = shares["ben"] | {"share": shares["anna"]["share"]}
    for status, name, share in (
        (409, "anna", shares["anna"]),  # nobody opens a record alone
        (409, "anna", shares["ben"]),
        (409, "eva", shares["ben"]),
        (422, "eva", shares["ben"] | {"custodian": "eva"}),  # no custodian
        (422, "ben", other),  # the first share again, under another name
    ):
        assert call(name, "POST", opening, {"share": share})[0] == status, (name, share)
    assert call("operator", "POST", opening, {"share": shares["ben"]})[0] == 401
    status, content, said = call("ben", "POST", opening, {"share": shares["ben"]})
    assert (status, content) == (200, {"records": {"truck-17": {"owner": "Frau Huber"}}})
    assert said["cache-control"] == "no-store"
    assert call("ben", "POST", opening, {"share": shares["ben"]})[0] == 409  # once
    log = call("eva", "GET", "/log")[1]["log"]
    assert [(entry["what"], entry.get("by"), entry.get("reason")) for entry in log] == [
        ("created", None, None),
        ("sealed", ["operator"], None),
        ("opened", ["anna", "ben"], "claim 44"),
    ]
    again = [call("anna", "POST", "/openings", asked)[1]["opening"] for _ in range(2)]
    assert call("ben", "DELETE", f"/openings/{again[0]}")[0] == 200
    assert call("ben", "DELETE", f"/openings/{again[0]}")[0] == 409
    with monkeypatch.context() as patch:
        later = time.monotonic() + 3601
        patch.setattr(identity.time, "monotonic", lambda: later)
        assert call("ben", "POST", f"/openings/{again[1]}", {"share": shares["ben"]})[0] == 409
    # Erasing a device erases its record, unless another task knows the device too.
    elsewhere = api.add_task("token", truck_task(TELEMETRY, schedule=HOURLY))
    for place in (base, elsewhere):
        api.enrol(place, "truck-17")
    gone = [api.call("DELETE", f"{place}/devices/truck-17", token=api.operator)[1] for place in (base, elsewhere)]
    assert ["identity record" in one["erased"] for one in gone] == [False, True]
    assert call("anna", "POST", "/records/truck-18/erase", {"reason": "sold"})[0] == 200
    assert call("anna", "POST", "/records/truck-18/erase", {"reason": "sold"})[0] == 422
    assert call("anna", "GET", "")[1]["vehicles"] == []
    assert call("anna", "GET", "/log")[1]["log"][-1]["by"] == ["anna"]
    for secret in ("truck-17", "Huber", "anna", "claim", str(shares["ben"]["share"])):
        assert secret not in caplog.text


def test_public_groups(api, base):
    """Reports are kept with a group that many vehicles have, and with no other; small groups are not shown."""
    noise, sizes = Noise(), {"north": 20, "south": 25, "tiny": 19}
    tokens = {
        group: [api.enrol(base, f"{group}-{at}", group=group) for at in range(size)] for group, size in sizes.items()
    }
    kept = api.service.senders.kept_group
    assert [kept(api.service.senders.get(hashed(own[0]))) for own in tokens.values()] == ["north", "south", ""]
    for group, own in tokens.items():
        for token in own:
            reports = [made(noise, purpose=at % 2, slot=10 + at // 4) for at in range(8)]
            assert api.send(base, token, *(reports if group != "south" else reports[:2]))[1]["refused"] == {}
    api.call("POST", f"{base}/periods/2026-11-16/close", {"early": True}, token=api.operator)
    assert api.service.store.groups(Period(TASK.digest, DAY)) == {"": 152, "north": 160, "south": 50}
    status, content, _ = api.call("GET", f"{base}/views/group?from=2026-11-16&to=2026-11-16", token=api.operator)
    assert status == 200
    assert {line["group"] for line in content["lines"]} == {"north", "(other senders)"}
    assert [line["reports"] for line in content["lines"] if line["quantity"] == "mean"][::2] == [76, 80]
    assert "south" in content["says"][-1]
    assert api.call("GET", f"{base}/views/file?from=2026-11-16&to=2026-11-16", token=api.operator)[0] == 422
    devices = api.call("GET", f"{base}/devices", token=api.operator)[1]["devices"]
    assert Counter(device["group"] for device in devices) == sizes
    assert api.call("POST", f"{base}/codes", {"names": ["a"], "group": "<b>"}, token=api.operator)[0] == 422
    assert api.call("DELETE", f"{base}/devices/north-0", token=api.operator)[0] == 200
    assert kept(api.service.senders.get(hashed(tokens["north"][1]))) == ""  # 19 are left
    nameless = api.add_task("unlinkable", truck_task(TELEMETRY, schedule=HOURLY))
    assert api.call("POST", f"{nameless}/codes", {"names": ["a"], "group": "x"}, token=api.operator)[0] == 422


def test_a_robust_estimate_stands_beside_the_plain_one(api):
    unary = replace(PLACES, tiers=(Tier(name="basic", epsilon="2.5"),), parameters={"method": "optimised-unary"})
    noise, task = Noise(), truck_task(unary, schedule=SCHEDULE)
    base = api.add_task("gateway", task)
    token = api.enrol(base, "gateway", vehicles=1_000)
    reports = [made(noise, task=task, purpose=0) for _ in range(1_600)]
    width = len(reports[0].payload)
    forged = (0b11111111100000).to_bytes(width, "little")  # more bits than devices set, in cells where nobody is
    reports += [made(noise, task=task, purpose=0, payload=forged) for _ in range(400)]
    assert api.send(base, token, *reports)[1]["accepted"] == 2_000
    api.call("POST", f"{base}/periods/2026-11-16/close", {"early": True}, token=api.operator)
    given = {"from": "2026-11-16", "to": "2026-11-16", "allow_noise": True}
    status, content, _ = api.call("POST", f"{base}/estimates", given, token=api.operator)
    assert status == 201
    assert "do not come from honest devices" in content["robust"][0]
    robust = api.call("GET", f"{base}/estimates/2026-11-16/robust.json", token=api.operator)[1]["places"]
    (check,), shares = robust["checks"], [robust[kind]["value"][3] for kind in ("plain", "robust")]
    assert check["alarm"]
    assert 5 in robust["differing"]
    assert shares[0] < 0.5 < shares[1]  # all honest vehicles are there
    page = api.call("GET", f"/tasks/{task.digest}", token=api.operator)[1].decode()
    assert "not those of honest devices" in page
    assert "some reports are forged" in page
    # Erased reports cannot be weighed again; the plain estimate stays.
    assert api.call("POST", f"{base}/periods/2026-11-16/erase", b"", token=api.operator)[0] == 200
    status, content, _ = api.call("POST", f"{base}/estimates", given, token=api.operator)
    assert (status, content["robust"]) == (201, [])


# A real process


def now_task():
    """A task whose reports of the last days are in time now, whenever the test runs."""
    schedule = replace(HOURLY, slots_per_day=24, lateness_minutes=1440, skew_seconds=43_200)
    return truck_task(TELEMETRY, schedule=schedule)


def test_a_real_server(tmp_path, monkeypatch):
    """Register, enrol and send by commands; slow and cut requests; a signal drains, and kills lose nothing."""
    _killed(tmp_path, None, kills=10, per_kill=6)


def test_a_real_server_on_postgres(tmp_path, postgres):
    _killed(tmp_path, emptied(postgres()), kills=10, per_kill=6)


@pytest.mark.long
def test_a_hundred_kills(tmp_path):
    _killed(tmp_path, None, kills=100, per_kill=40)


@pytest.mark.long
def test_a_hundred_kills_on_postgres(tmp_path):
    with postgres_server() as postgres:
        _killed(tmp_path, postgres.get_uri(), kills=100, per_kill=40)


@pytest.mark.long
def test_kills_and_crashes_of_postgres(tmp_path):
    with postgres_server() as postgres:
        _killed(tmp_path, postgres.get_uri(), kills=40, per_kill=10, crashes=20)


def _killed(tmp_path, database, *, kills, per_kill, crashes=0):
    """Send from several threads while the server is killed; every acknowledged report is stored, none twice."""
    task = now_task()
    day, slot = divmod(int(time.time()) // 3600, 24)
    server, acknowledged, sent, lock = Server(tmp_path / "data", database), set[bytes](), set[bytes](), threading.Lock()
    server.environment["DUNNAGE_SERVE_REQUESTS_PER_MINUTE"] = "1000000"
    server.environment["DUNNAGE_SERVE_BODY_SECONDS"] = "1"
    server.nursery = Nursery(server.environment) if database else None
    with running(server):
        operator = {"authorization": f"Bearer {(tmp_path / 'data' / 'operator.token').read_text()}"}
        given = json.dumps({"task": json.loads(task.to_json()), "senders": "gateway"}).encode()
        as_json = {**operator, "content_type": "application/json"}
        assert server.call("POST", "/v1/tasks", given, **as_json)[0] == 201
        base = f"/v1/tasks/{task.digest}"
        codes = json.loads(server.call("POST", f"{base}/codes", b'{"names":["g"],"vehicles":100000}', **as_json)[1])
        given = json.dumps({"code": codes["codes"]["g"]}).encode()
        token = json.loads(server.call("POST", f"{base}/enrol", given, **as_json)[1])["token"]
        head = f"POST {base}/reports HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Type: {FRAMES}\r\n"
        with socket.create_connection(("127.0.0.1", server.port)) as slow:
            slow.sendall(f"{head}Content-Length: 1000\r\n\r\nabc".encode())
            assert b" 408 " in slow.recv(1000)
        with socket.create_connection(("127.0.0.1", server.port)) as cut:
            cut.sendall(f"{head}Content-Length: 1000\r\n\r\nabc".encode())
        assert server.call("GET", "/v1/health")[0] == 200
        server.nursery = server.nursery or Nursery(server.environment)  # the first start was that of a user
        if database is None:
            codes = json.loads(server.call("POST", f"{base}/codes", b'{"names":["truck"]}', **as_json)[1])
            sent |= _sent_by_commands(tmp_path, task, server, codes["codes"]["truck"])
        stop = threading.Event()

        def send() -> None:
            own, waiting = Noise(), list[Report]()
            while not stop.is_set() or waiting:
                if not waiting:
                    waiting = [made(own, task=task, purpose=0, day=day, slot=slot) for _ in range(3)]
                    with lock:
                        sent.update(report.report_id for report in waiting)
                with contextlib.suppress(OSError, http.client.HTTPException):
                    body = body_of(*waiting)
                    status, content = server.call(
                        "POST", f"{base}/reports", body, authorization=f"Bearer {token}", content_type=FRAMES
                    )
                    answer = json.loads(content)
                    if status == 200 and {item["code"] for item in answer["failures"]} <= {"replayed"}:
                        with lock:
                            acknowledged.update(report.report_id for report in waiting)
                        waiting = []
                        continue
                time.sleep(0.02)

        threads = [threading.Thread(target=send, daemon=True) for _ in range(3)]
        for thread in threads:
            thread.start()
        due = 0
        for number in range(kills):
            due = len(acknowledged) + per_kill
            while len(acknowledged) < due:
                time.sleep(0.01)
            if number < crashes:
                _crash_postgres(database)
            if number % 2 and number < crashes:  # this time the collector itself lives through it
                continue
            server.stop(signal.SIGKILL)
            server.start()
        stop.set()
        for thread in threads:
            thread.join()
        assert server.stop() == 0
    assert '"stopped"' in server.log.read_text()
    store = Store.open(database or tmp_path / "data")
    try:
        frames = (one for block, _ in store.blocks(Period(task.digest, day)) for one in split_frames(block.frames))
        stored = Counter(Report.from_bytes(one).report_id for one in frames)
    finally:
        store.close()
    assert acknowledged <= set(stored) <= sent  # nothing that was acknowledged is lost
    assert set(stored.values()) == {1}
    assert len(acknowledged) >= kills * per_kill


def _sent_by_commands(folder, task, server, code):
    """Make and send a report as the documents say; return the ids."""
    (folder / "task.json").write_text(task.to_json())
    (folder / "truck.csv").write_text("vehicle,time,speed,load\nt,2026-01-01T00:00,50,5\n")
    own = ["--task", folder / "task.json", "--allowance", folder / "truck.own"]
    start = ["--enrol", "--tier", "basic", "--cap", "none", "--now", "now", "-o", folder / "reports.bin"]
    run("device", "perturb", folder / "truck.csv", *own, *start, code=0)
    again = [fine("device", "send", f"http://127.0.0.1:{server.port}", *own, *more) for more in (["--code", code], [])]
    ids = {Report.from_bytes(one).report_id for one in split_frames((folder / "reports.bin").read_bytes())}
    assert [one["sent"] for one in again] == [len(ids), 0]  # acknowledged: nothing is left to send
    return ids


def _crash_postgres(database):
    """Kill a backend: the whole server starts again, with what was committed."""
    import psycopg

    with contextlib.suppress(psycopg.Error), psycopg.connect(database) as connection:
        ((pid,),) = connection.execute("SELECT pg_backend_pid()").fetchall()
        subprocess.run(["kill", "-9", str(pid)], check=False)


def test_no_sqlite_file_is_readable_by_others(tmp_path):
    bench = Bench(tmp_path / "data")
    bench.send(made(Noise()))
    bench.collector.stop()
    for path in (tmp_path / "data").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path
    assert sqlite3.sqlite_version_info >= (3, 35)  # RETURNING
