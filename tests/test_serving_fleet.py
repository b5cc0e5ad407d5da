# SPDX-License-Identifier: Apache-2.0
"""A simulated fleet against the collector: outages, restarts, lost answers; long forms of faults and fuzzing."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.collector_help import Api, Server, body_of, made, postgres_server, running
from tests.estimates_help import HOURLY, SPEED, TELEMETRY, truck_task

from dunnage.collecting.collector import split_frames
from dunnage.collecting.store import Period, Store
from dunnage.collecting.vault import Vault
from dunnage.devices.allowance import Allowance
from dunnage.devices.client import Client
from dunnage.devices.report import Report
from dunnage.devices.sending import Collector, send_stored
from dunnage.devices.task import Tier
from dunnage.noise.source import Noise
from dunnage.release import Release
from dunnage.serving.service import FRAMES, Service, hashed
from dunnage.serving.settings import Settings

FIRST_DAY, NUM_DAYS = 20_773, 3
SCHEDULE = replace(HOURLY, slots_per_day=2, lateness_minutes=180)
TIERS = (Tier(name="basic", epsilon="5"), Tier(name="strict", epsilon="4"))
QUANTITIES = (replace(SPEED, missing="middle"),)
TASK = truck_task(replace(TELEMETRY, quantities=QUANTITIES, tiers=TIERS), schedule=SCHEDULE)


class Radio(Collector):
    """A device's connection to the routes, which fails at times: before the request, or after it."""

    def __init__(self, api, chances):
        super().__init__("https://collector.example.org", TASK, wait=lambda seconds: None)
        self.api, self.chances, self.away = api, chances, False

    def request(self, method, path, body, kind, token=""):
        luck = self.chances.random()
        if self.away or luck < 0.1:
            raise OSError
        status, answer, _ = self.api.call(
            method, f"/v1/tasks/{TASK.digest}{path}", body, token=token or None, kind=kind
        )
        if luck < 0.2:
            raise OSError  # the answer is lost
        return status, answer, 0.0


def fleet(folder: Path, num: int) -> None:
    chances, api = np.random.default_rng(1), Api(folder / "data", requests_per_minute=1_000_000)
    speeds = chances.uniform(20, 100, num)
    api.now = FIRST_DAY * 86_400.0
    base = api.add_task(task=TASK)
    codes = api.call("POST", f"{base}/codes", {"names": [f"t{at}" for at in range(num)]}, token=api.operator)[1]
    radio, trucks, enrolled = Radio(api, chances), [], dict(codes["codes"])
    owed: dict[bytes, tuple[int, float]] = {}
    for at in range(num):
        start = {"enrol": True, "tier": ("basic", "strict")[at % 2], "now": api.now, "durable": False}
        trucks.append(Allowance.open(folder / f"truck{at}", TASK, **start))
    try:
        for hour in range(24 * NUM_DAYS + 5):
            api.now = FIRST_DAY * 86_400.0 + hour * 3600 + 60
            radio.away = hour % 24 in (7, 8)  # nobody reaches it for two hours, less than the lateness
            for at, truck in enumerate(trucks):
                if hour % 24 == 5 and at % 7 == 0:  # power was lost
                    truck.close()
                    truck = trucks[at] = Allowance.open(folder / f"truck{at}", TASK, durable=False)
                client = Client(TASK, truck) if truck.due(api.now) else None
                for data in client.reports({"telemetry": {"speed": speeds[at]}}, api.now) if client else ():
                    report = Report.from_bytes(data)
                    owed[report.report_id] = report.day, speeds[at]
                if client is not None or (hour % 24 == 10):
                    name = f"t{at}"
                    try:
                        send_stored(truck, radio, code=enrolled.get(name))
                        enrolled.pop(name, None)
                    except Exception as error:
                        if name in enrolled:  # the answer with the token was lost: a new code
                            made = {"names": [name]}
                            codes = api.call("POST", f"{base}/codes", made, token=api.operator)[1]["codes"]
                            enrolled.update(codes)
                        else:
                            raise AssertionError from error
            api.service.do_due()
        store, stored = api.service.store, {}
        for day in range(FIRST_DAY, FIRST_DAY + NUM_DAYS):
            period = Period(TASK.digest, day)
            assert api.service.collector.states(TASK.digest)[day] == "closed"
            ids = [
                Report.from_bytes(one).report_id
                for block, _ in store.blocks(period)
                for one in split_frames(block.frames)
            ]
            assert len(ids) == len(set(ids))
            stored |= {name: owed[name] for name in ids}  # and nothing that nobody made
        assert len(stored) >= 0.9 * len(owed)
        last = FIRST_DAY + NUM_DAYS - 1
        done = api.service.make_estimate(TASK.digest, FIRST_DAY, last, 1 - 1e-10)
        assert done["reports"] == len(stored)
        release = Release.read(folder / "data" / "releases" / TASK.digest / str(done["days"]))
        (row,) = [row for row in release.data.to_pylist() if row["quantity"] == "mean"]
        truth = float(np.mean([speed for _, speed in stored.values()]))
        assert row["lower"] <= truth <= row["upper"]
        assert row["upper"] - row["lower"] < (60 if num < 1_000 else 10)
    finally:
        for truck in trucks:
            truck.close()
        api.close()


def test_a_small_fleet_with_outages(tmp_path):
    fleet(tmp_path, 40)


@pytest.mark.long
def test_a_fleet_of_two_thousand_with_outages(tmp_path):
    fleet(tmp_path, 2_000)


def prepared(server: Server) -> tuple[str, str, dict[str, str]]:
    """Register a task whose reports of today are in time, and enrol a gateway; returns base, token and headers."""
    task = now_task()
    operator = {"authorization": f"Bearer {(server.folder / 'operator.token').read_text()}"}
    as_json = {**operator, "content_type": "application/json"}
    given = json.dumps({"task": json.loads(task.to_json()), "senders": "gateway"}).encode()
    assert server.call("POST", "/v1/tasks", given, **as_json)[0] in (200, 201)
    base = f"/v1/tasks/{task.digest}"
    codes = json.loads(server.call("POST", f"{base}/codes", b'{"names":["g"],"vehicles":1000000}', **as_json)[1])
    given = json.dumps({"code": codes["codes"]["g"]}).encode()
    token = json.loads(server.call("POST", f"{base}/enrol", given, **as_json)[1])["token"]
    return base, token, {"authorization": f"Bearer {token}", "content_type": FRAMES}


def now_task():
    schedule = replace(HOURLY, slots_per_day=24, lateness_minutes=1440, skew_seconds=43_200)
    return truck_task(TELEMETRY, schedule=schedule)


def fresh(noise: Noise, num: int) -> list[Report]:
    day, slot = divmod(int(time.time()) // 3600, 24)
    return [made(noise, task=now_task(), purpose=0, day=day, slot=slot) for _ in range(num)]


def stored_ids(place) -> list[bytes]:
    store, digest = Store.open(place), now_task().digest
    try:
        days = [day for (day,) in store.book.rows("SELECT day FROM periods WHERE task = ?", digest)]
        return [
            Report.from_bytes(one).report_id
            for day in days
            for block, _ in store.blocks(Period(digest, day))
            for one in split_frames(block.frames)
        ]
    finally:
        store.close()


@pytest.mark.long
def test_answers_come_after_the_sync(tmp_path):
    """What a power cut needs and a kill does not show: the order of system calls."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    server, noise = Server(tmp_path / "data"), Noise()
    with running(server):
        _, _, headers = prepared(server)
        base = f"/v1/tasks/{now_task().digest}"
        server.call("POST", f"{base}/reports", body_of(*fresh(noise, 2)), **headers)
        trace = tmp_path / "trace"
        calls = "trace=fsync,fdatasync,sendto,sendmsg,write,writev"
        tracer = subprocess.Popen(
            ["strace", "-f", "-q", "-s", "40", "-e", calls, "-o", str(trace), "-p", str(server.process.pid)]
        )
        try:
            time.sleep(2)
            for _ in range(50):
                status, content = server.call("POST", f"{base}/reports", body_of(*fresh(noise, 2)), **headers)
                assert (status, json.loads(content)["accepted"]) == (200, 2)
        finally:
            tracer.send_signal(signal.SIGINT)
            tracer.wait(60)
        synced, answers = 0, []
        for line in trace.read_text().splitlines():
            if re.search(r"fdatasync\(\d+\)\s+= 0|fsync\(\d+\)\s+= 0|<\.\.\. f(data)?sync resumed>.* = 0", line):
                synced += 1
            elif "HTTP/1.1 200" in line:
                answers.append(synced)
        assert len(answers) == 50
        assert all(later > before for before, later in zip([0, *answers], answers, strict=False))


@pytest.mark.long
def test_a_disk_that_is_full(tmp_path):
    """The process may not write files beyond a size: reports get 503, none is lost, and then it goes on."""
    server, noise, acknowledged = Server(tmp_path / "data"), Noise(), set()
    with running(server):
        base, _, headers = prepared(server)
        limits = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (1 << 19, limits[1]))
        statuses = []
        for part in range(60):
            if part == 40:
                resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, limits)
            reports = fresh(noise, 400)
            status, content = server.call("POST", f"{base}/reports", body_of(*reports), **headers)
            statuses.append(status)
            if status == 200:
                assert json.loads(content)["accepted"] == 400
                acknowledged |= {report.report_id for report in reports}
        assert set(statuses) == {200, 503}
        assert statuses[-1] == 200
        assert server.stop() == 0
    ids = stored_ids(tmp_path / "data")
    assert len(ids) == len(set(ids))
    assert acknowledged <= set(ids)


@pytest.mark.long
def test_a_database_that_is_away(tmp_path):
    """PostgreSQL is stopped for a minute: 503 meanwhile, nothing lost, nothing twice."""
    noise, acknowledged, statuses = Noise(), set(), []
    with postgres_server() as postgres:
        server = Server(tmp_path / "data", postgres.get_uri())
        with running(server):
            base, _, headers = prepared(server)
            for seconds in range(90):
                if seconds == 10:
                    os.kill(postgres.get_pid(), signal.SIGINT)  # fast shutdown
                if seconds == 70:
                    postgres.ensure_postgres_running()
                reports = fresh(noise, 3)
                status, content = server.call("POST", f"{base}/reports", body_of(*reports), **headers)
                statuses.append(status)
                if status == 200 and json.loads(content)["accepted"] == 3:
                    acknowledged |= {report.report_id for report in reports}
                time.sleep(1)
            assert set(statuses[15:65]) == {503}
            assert statuses[-1] == 200
            assert server.stop() == 0
        ids = stored_ids(postgres.get_uri())
    assert len(ids) == len(set(ids))
    assert acknowledged <= set(ids)


@pytest.mark.long
def test_a_small_disk_fills_up(tmp_path):
    """A file system of 16 MiB runs full while reports come, and is cleared: 503 meanwhile, nothing lost or twice."""
    disk, noise, acknowledged, statuses = tmp_path / "disk", Noise(), set(), []
    disk.mkdir()
    mounted = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(disk)]
    if subprocess.run(mounted, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount a file system")
    try:
        server = Server(disk / "data")
        server.log = tmp_path / "serve.log"
        with running(server):
            base, _, headers = prepared(server)
            ballast = disk / "ballast"
            for part in range(120):
                if part == 20:
                    with contextlib.suppress(OSError), ballast.open("wb") as sink:
                        while True:
                            sink.write(bytes(1 << 16))
                            sink.flush()
                if part == 80:
                    ballast.unlink()
                reports = fresh(noise, 400)
                status, content = server.call("POST", f"{base}/reports", body_of(*reports), **headers)
                statuses.append(status)
                if status == 200:
                    assert json.loads(content)["accepted"] == 400
                    acknowledged |= {report.report_id for report in reports}
            assert set(statuses) == {200, 503}
            assert statuses[-1] == 200
            assert server.stop() == 0
        ids = stored_ids(disk / "data")
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    assert len(ids) == len(set(ids))
    assert acknowledged <= set(ids)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_two_collectors_on_one_store(tmp_path, kind):
    """The second one does not start (SQLite), or stops at its first report (PostgreSQL); the first goes on."""
    noise, acknowledged = Noise(), set()
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(postgres_server()).get_uri() if kind == "postgres" else None
        first = stack.enter_context(running(Server(tmp_path / "data", place)))
        base, _, headers = prepared(first)
        command = [sys.executable, "-m", "dunnage", "serve", "--data", str(tmp_path / "data"), "--check"]
        if kind == "sqlite":
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert (done.returncode, "another collector uses" in done.stderr) == (2, True)
        else:
            other = Server(tmp_path / "other", place)
            other.log = tmp_path / "other.log"
            second = stack.enter_context(running(other))
        for number in range(40):
            reports = fresh(noise, 3)
            server = second if kind == "postgres" and number % 4 == 3 and second.process.poll() is None else first
            with contextlib.suppress(OSError, http.client.HTTPException):
                status, content = server.call("POST", f"{base}/reports", body_of(*reports), **headers)
                if status == 200:
                    assert json.loads(content)["accepted"] == 3
                    acknowledged |= {report.report_id for report in reports}
        if kind == "postgres":
            assert second.process.wait(60) == 1
            assert "another collector writes to this store" in second.log.read_text()
        assert first.stop() == 0
        ids = stored_ids(place or tmp_path / "data")
    assert len(ids) == len(set(ids))
    assert acknowledged <= set(ids)
    assert len(acknowledged) >= 90


_FUZZ = """
import os, sys
from collections import Counter

import requests, schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

address, num, number = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
content = open("reports.bin", "rb").read()
frames, at = [], 0
while at < len(content):
    size = 4 + int.from_bytes(content[at : at + 4], "big")
    frames.append(content[at : at + size])
    at += size


@st.composite
def bodies(draw):
    body = bytearray(b"".join(draw(st.lists(st.sampled_from(frames), max_size=5))))
    for _ in range(draw(st.integers(0, 3))):  # damaged, cut off, longer
        if body:
            body[draw(st.integers(0, len(body) - 1))] = draw(st.integers(0, 255))
    cut = draw(st.integers(0, len(body)))
    return bytes(body[:cut] if draw(st.booleans()) else body) + draw(st.binary(max_size=9))


texts = st.one_of(st.text(max_size=60), st.sampled_from(open("lines").read().splitlines()))
lines = st.lists(texts, max_size=5).map(lambda own: "\\n".join(own).encode(errors="replace"))
for kind in ("application/vnd.dunnage.reports", "application/vnd.dunnage.reports-with-tokens"):
    schemathesis.openapi.media_type(kind, st.one_of(bodies(), st.binary(max_size=300)))
schemathesis.openapi.media_type("application/x-ndjson", lines)
session, statuses = requests.Session(), Counter()


def send(case):
    how = case.as_transport_kwargs(base_url=address)
    if "reports-with-tokens" not in str(case.media_type):
        token = os.environ["TRUCK" if "/tokens/" in case.path else "ANN"]
        how["headers"]["Authorization"] = f"Bearer {token}"
    for _ in range(5):
        try:
            status = session.request(**how, timeout=600).status_code
            break
        except requests.exceptions.ConnectionError:
            continue  # the connection was idle for seconds, and the server had closed it
        except (requests.exceptions.InvalidHeader, requests.exceptions.InvalidURL, UnicodeError):
            return  # what the client cannot send
    else:
        raise AssertionError("no answer")
    statuses[status] += 1
    assert status < 500, (case.method, case.path, status)


for result in schemathesis.openapi.from_path("openapi.json").get_all_operations():
    operation = result.ok()
    for mode, share in ((schemathesis.GenerationMode.POSITIVE, 3), (schemathesis.GenerationMode.NEGATIVE, 1)):
        how = settings(max_examples=num * share, phases=[Phase.generate], deadline=None, database=None,
                       suppress_health_check=list(HealthCheck))
        try:
            seed(number)(how(given(case=operation.as_strategy(generation_mode=mode))(send)))()
        except BaseException as error:
            if type(error).__name__ != "Unsatisfiable":  # a route that takes nothing can be called in one way
                raise
print(dict(statuses))
"""


@pytest.mark.long
def test_random_requests_end_in_no_error(tmp_path):
    """Schemathesis on the OpenAPI document, 50,000 requests; it is no dependency, so this is skipped without it."""
    found = shutil.which("schemathesis") or str(Path(sys.executable).parent / "schemathesis")
    if not Path(found).exists():
        pytest.skip("schemathesis is not installed")
    program = str(Path(found).parent / "python")
    data, tasks = tmp_path / "data", [now_task(), replace(now_task(), version=2)]
    service = Service(Settings(data=str(data), listen="127.0.0.1:0"))
    token, truck = service.invite("ann", "operator"), "truck"  # who has all roles, and is a gateway too
    for task, senders, own in zip(tasks, ("gateway", "unlinkable"), (token, truck), strict=True):
        service.collector.add_task(task, senders)
        service.store.book.write("INSERT INTO devices VALUES (?, 'g', ?, 9999, 'north')", task.digest, hashed(own))
    service.store.book.write("UPDATE people SET roles = 'operator analyst officer monitor'")
    service.collector.stop()
    kept = []
    Vault.create(data / "vault", ["ann", "ben"], kept.extend).seal_rows([("truck", {"owner": "Huber"})])
    noise = Noise()
    reports = fresh(noise, 300)
    (tmp_path / "reports.bin").write_bytes(body_of(*reports))
    (tmp_path / "lines").write_text("\n".join(report.to_json() for report in reports[:20]))
    environment = {**os.environ, "ANN": token, "TRUCK": truck}
    server = Server(data, DUNNAGE_SERVE_REQUESTS_PER_MINUTE="1000000000")
    with running(server):
        described = json.loads(server.call("GET", "/v1/openapi.json")[1])
        days = [time.strftime("%Y-%m-%d", time.gmtime(time.time() - 86_400 * ago)) for ago in range(3)]
        known = {"task": [task.digest for task in tasks], "day": days, "vehicle": ["truck", "none"], "from": days}
        known |= {"by": ["day", "hour", "tier", "group", "truck"], "to": days, "days": days}
        for operations in described["paths"].values():
            for operation in operations.values():
                for parameter in operation["parameters"]:
                    if parameter["name"] in known:
                        values = {"enum": known[parameter["name"]]}
                        other = parameter["name"] != "task"  # which would only end in 404
                        parameter["schema"] = {"anyOf": [values, {"type": "string"}]} if other else values
        (tmp_path / "openapi.json").write_text(json.dumps(described))
        total, seed = 0, 0
        while total < 50_000:
            # As scripts, which send ten times as many requests a second as the command.
            command, seed = [program, "-c", _FUZZ, f"http://127.0.0.1:{server.port}", "160"], seed + 3
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "cwd": tmp_path, "env": environment}
            scripts = [subprocess.Popen([*command, str(seed + at)], **pipes) for at in range(3)]
            said = [script.communicate()[0][-4000:] for script in scripts]
            assert [script.returncode for script in scripts] == [0, 0, 0], said
            status, metrics = server.call("GET", "/v1/metrics", authorization=f"Bearer {token}")
            assert status == 200
            counts = re.findall(r'dunnage_requests_total{route="(\S+)",status="(\d+)"} (\d+)', metrics.decode())
            total = sum(int(num) for _, _, num in counts)
            (tmp_path / "counts.txt").write_text(metrics.decode())
        assert not [line for line in counts if line[1] >= "500"]
        assert server.stop() == 0
    assert '"event": "error"' not in server.log.read_text()
