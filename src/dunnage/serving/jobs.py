# SPDX-License-Identifier: Apache-2.0
"""Jobs: commands that run in processes of their own, with progress, limits and an end that survives a restart.

A job is a module of the product with its arguments, most often a command, so that a page can show the very command
that ran. **A job is never started twice.** One that was stopped is marked; if it spends, the ledger knows what became
of it, and ``publish --resume`` finishes it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dunnage.collecting.store import Database
from dunnage.processes import EARLY, STAGES
from dunnage.serving.web import log

TABLE = """
CREATE TABLE IF NOT EXISTS jobs (id TEXT PRIMARY KEY, project TEXT NOT NULL, kind TEXT NOT NULL, argv TEXT NOT NULL,
    spends INTEGER NOT NULL, place TEXT NOT NULL,
    role TEXT NOT NULL, by_whom TEXT NOT NULL, state TEXT NOT NULL, stage TEXT NOT NULL,
    result TEXT NOT NULL, message TEXT NOT NULL, created INTEGER NOT NULL, ended INTEGER);
"""
WAITING, RUNNING, DONE, FAILED, CANCELLED, STOPPED = "waiting", "running", "done", "failed", "cancelled", "stopped"
_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
_STAGE = "progress: "
_STOPPED = "The studio ended while this ran. It was not started again."
_MAX_RESULT = 1 << 26  # bytes of what a job prints
_MAX_LINES = 200  # of what it says
_DAY = 86_400
_COLUMNS = "id, project, kind, argv, spends, place, role, by_whom, state, stage, result, message, created, ended"


@dataclass(frozen=True)
class Job:
    id: str
    project: str
    kind: str
    argv: tuple[str, ...] = field(repr=False)  # module and arguments
    spends: bool
    place: str  # the page to go to when it is done
    role: str  # who may see it
    by: str
    state: str
    stage: str
    result: Any = field(repr=False)  # what it printed as JSON, or while it runs a part of it; private
    message: str = field(repr=False)  # why it failed; private
    created: int
    ended: int | None

    @property
    def is_over(self) -> bool:
        return self.state not in (WAITING, RUNNING)

    @property
    def command(self) -> str:
        """The command line that does the same; empty for work that only the studio does."""
        return shlex.join(self.argv) if self.argv[0] == "dunnage" else ""


class _Worker:
    """A process that has loaded what jobs need, and waits for one; what it prints goes to a file without a name."""

    def __init__(self, memory_mb: int) -> None:
        self.said = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-m", "dunnage.serving.worker", str(memory_mb)], text=True, encoding="utf-8",
            env={**os.environ, STAGES: "1", "PYTHONUNBUFFERED": "1"}, errors="replace", start_new_session=True,
            stdin=subprocess.PIPE, stdout=self.said, stderr=subprocess.PIPE,
        )  # fmt: skip

    def begin(self, argv: list[str], folder: Path) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):  # it was killed; its end says so
            self.process.stdin.write(json.dumps([str(folder), *argv]) + "\n")
            self.process.stdin.flush()

    def kill(self) -> None:
        """End the process and what it started."""
        if self.process.poll() is None:
            with contextlib.suppress(OSError):
                os.killpg(self.process.pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            assert self.process.stdin is not None
            self.process.stdin.close()

    def close(self) -> None:
        self.kill()
        self.process.wait()
        self.said.close()
        assert self.process.stderr is not None
        self.process.stderr.close()


class Jobs:
    def __init__(self, book: Database, *, parallel: int = 2, memory_mb: int = 8192, seconds: int = 3600) -> None:
        self._book, self._memory, self._seconds = book, memory_mb, seconds
        self._pool = ThreadPoolExecutor(parallel, thread_name_prefix="job")
        self._workers: dict[str, _Worker] = {}
        self._spare: _Worker | None = None
        self._cancelled, self._stages, self._lock = set[str](), dict[str, str](), threading.Lock()
        self._early: dict[str, object] = {}  # parts of results, while jobs run
        self._closing = False
        self._mark_stopped()

    def prepare(self) -> None:
        """Have a process ready for the next job."""
        with self._lock:
            if self._spare is None and not self._closing:
                self._spare = _Worker(self._memory)

    def _take(self, job_id: str) -> _Worker | None:
        with self._lock:
            if job_id in self._cancelled or self._closing:
                return None
            worker, self._spare = self._spare, None
            if worker is not None and worker.process.poll() is not None:
                worker.close()
                worker = None
            worker = worker or _Worker(self._memory)
            self._workers[job_id] = worker
            return worker

    def _mark_stopped(self) -> None:
        for (job_id,) in self._book.rows("SELECT id FROM jobs WHERE state IN (?, ?)", WAITING, RUNNING):
            self._end(job_id, STOPPED, message=_STOPPED)

    def start(
        self,
        project: str,
        kind: str,
        argv: Sequence[str],
        folder: Path,
        *,
        role: str,
        place: str,
        by: str,
        spends: bool = False,
    ) -> str:
        """Start a job in a folder, or let it wait for its turn; return its id."""
        job_id = f"{time.time_ns():016x}{secrets.token_hex(4)}"  # in the order in which they began
        line = job_id, project, kind, json.dumps(list(argv)), int(spends), place, role, by, WAITING, "", "", ""
        marks = ", ".join("?" * 14)
        self._book.write(f"INSERT INTO jobs ({_COLUMNS}) VALUES ({marks})", *line, int(time.time()), None)
        log("job", kind=kind, state=WAITING)
        self._pool.submit(self._run, job_id, list(argv), folder)
        return job_id

    def get(self, job_id: str) -> Job | None:
        rows = self._book.rows(f"SELECT {_COLUMNS} FROM jobs WHERE id = ?", job_id) if _ID.fullmatch(job_id) else []
        return self._made(rows[0]) if rows else None

    def of(self, project: str, *kinds: str, limit: int = 50) -> list[Job]:
        """Return the jobs of a project, the newest first."""
        which = f"AND kind IN ({', '.join('?' * len(kinds))})" if kinds else ""
        sql = f"SELECT {_COLUMNS} FROM jobs WHERE project = ? {which} ORDER BY created DESC, id DESC LIMIT ?"
        return list(map(self._made, self._book.rows(sql, project, *kinds, limit)))

    def forget(self, days: Mapping[str, int], *, usually: int, now: float) -> None:
        """Delete jobs that ended long ago, by kind. What spends stays: it says from which file a release was made."""
        marks = ", ".join("?" * len(days))
        rule = f"DELETE FROM jobs WHERE spends = 0 AND ended < ? AND kind NOT IN ({marks})"
        with self._book.turn() as book:
            book.execute(rule, (int(now) - usually * _DAY, *days))
            for kind, kept in days.items():
                sql = "DELETE FROM jobs WHERE spends = 0 AND ended < ? AND kind = ?"
                book.execute(sql, (int(now) - kept * _DAY, kind))
        self._book.purge()

    def _made(self, row: Any) -> Job:
        job_id, project, kind, argv, spends, place, role, by, state, stage, result, message, created, ended = row
        content = json.loads(result) if result else self._early.get(job_id, {})
        stage = self._stages.get(job_id, stage)
        return Job(
            job_id, project, kind, tuple(json.loads(argv)), bool(spends), place, role, by, state, stage, content,
            message, created, ended,
        )  # fmt: skip

    def cancel(self, job_id: str) -> None:
        with self._lock:
            self._cancelled.add(job_id)
            worker = self._workers.get(job_id)
        if worker is not None:
            worker.kill()

    def close(self) -> None:
        """End all jobs, and mark those that ran or waited."""
        self._closing = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            workers, spare = list(self._workers.values()), self._spare
        for worker in workers:
            worker.kill()
        if spare is not None:
            spare.close()
        self._pool.shutdown(wait=True)
        self._mark_stopped()

    def _end(self, job_id: str, state: str, *, result: str = "", message: str = "") -> None:
        sql = "UPDATE jobs SET state = ?, result = ?, message = ?, stage = '', ended = ? WHERE id = ?"
        self._book.write(sql, state, result, message.replace("\0", ""), int(time.time()), job_id)
        self._stages.pop(job_id, None)
        self._early.pop(job_id, None)

    def _run(self, job_id: str, argv: list[str], folder: Path) -> None:
        try:
            state, result, message = self._watched(job_id, argv, folder)
        except Exception as error:  # the studio goes on; its words may hold private values
            log("failed", work="job", error=type(error).__name__)
            state, result, message = FAILED, "", f"The job could not run: {type(error).__name__}."
        with contextlib.suppress(Exception):
            self._end(job_id, state, result=result, message=message)
            log("job", state=state)

    def _watched(self, job_id: str, argv: list[str], folder: Path) -> tuple[str, str, str]:
        lines, began, worker = deque[str](maxlen=_MAX_LINES), time.monotonic(), self._take(job_id)
        if worker is None:
            return (STOPPED, "", _STOPPED) if self._closing else (CANCELLED, "", "It was cancelled before it began.")
        self._book.write("UPDATE jobs SET state = ? WHERE id = ?", RUNNING, job_id)
        worker.begin(argv, folder)
        late = threading.Timer(self._seconds, worker.kill)
        late.start()
        try:
            assert worker.process.stderr is not None
            for line in worker.process.stderr:
                if line.startswith(EARLY):
                    with contextlib.suppress(ValueError):
                        self._early[job_id] = json.loads(line.removeprefix(EARLY))
                    continue
                text = line.rstrip()[:4000]
                if text.startswith(_STAGE):
                    self._stages[job_id] = text.removeprefix(_STAGE)
                elif text:
                    lines.append(text)
            code = worker.process.wait()
            worker.said.seek(0)
            result = worker.said.read(_MAX_RESULT)
        finally:
            late.cancel()
            worker.close()
            with self._lock:
                self._workers.pop(job_id, None)
            self.prepare()
        if job_id in self._cancelled:
            return CANCELLED, "", "It was cancelled."
        if self._closing and code:
            return STOPPED, "", _STOPPED
        if time.monotonic() - began >= self._seconds:
            return FAILED, "", f"It took longer than {self._seconds:,} seconds, and was ended."
        with contextlib.suppress(ValueError):
            content = json.loads(result)
            if "error" in content and code:
                return FAILED, "", str(content["error"].get("message", ""))
            warnings = [line.removeprefix("WARNING: ") for line in lines if line.startswith("WARNING: ")]
            return DONE, json.dumps({**content, "warnings": warnings, "exit_code": code}), ""
        what = "It needed more memory than it may have. Try fewer rows, or one period at a time."
        memory = any("MemoryError" in line or "out of memory" in line for line in lines) or code in (-9, 137)
        said_last = next((line.removeprefix("error: ") for line in reversed(lines) if line.startswith("error: ")), "")
        return FAILED, "", what if memory else said_last or f"It ended without an answer (code {code})."
