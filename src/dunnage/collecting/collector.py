# SPDX-License-Identifier: Apache-2.0
"""Collector: takes in reports, and answers only when they are on disk.

Requests wait in one queue. One thread, the writer, takes all that wait, decodes and checks them together, appends one
block for each period and answers: so an answer means that the reports are stored, also for a request with nothing but
copies. Everything that changes a period runs in this thread, one after the other.

If a block cannot be stored, its requests are told to come again. Whether it was stored all the same (the connection was
lost during the commit) is looked up before anything else is taken in: the chain of the block is there, or it is not and
its ids are forgotten. If another chain is there, a second collector writes to the store, and this one stops.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeVar

from dunnage.collecting.intake import CODES, Intake, Piece, Sent
from dunnage.collecting.kernels import DAMAGED
from dunnage.collecting.store import Head, Period, Store
from dunnage.devices.client import check_task
from dunnage.devices.report import ID_BYTES, Report, day_text
from dunnage.devices.task import Task
from dunnage.errors import ParameterError, ReportError, StoreError
from dunnage.model.guarantees import SENT_BY
from dunnage.noise.source import Noise

OPEN, TALLYING, CLOSED, ESTIMATED, ERASED = "open", "tallying", "closed", "estimated", "erased"
# Who sends reports: gateways for many vehicles, each vehicle with a token, or vehicles that nobody can tell apart
GATEWAY, TOKEN, UNLINKABLE = SENT_BY
DEFAULT_RETENTION = 30  # days after closing until the reports of a period are erased
MAX_GROUP_BYTES = 1 << 25  # that one commit takes
MAX_CLOCK_JUMP = 300  # seconds that the clock may differ from the time that has passed
_T = TypeVar("_T")


def _steady() -> float:
    """Return seconds since some moment, also those during which the machine slept."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Answer(NamedTuple):
    accepted: int
    failures: list[tuple[str, str]]  # id, or nothing if it cannot be read, and code


class Request(NamedTuple):
    task: str
    body: bytes
    sender: str  # its name; empty if it has none
    limit: int  # reports that the sender may send in a day
    handle: Any  # what the caller recognises it by
    group: str = ""  # public group of the sender, to be kept with its reports


class Stored(NamedTuple):
    """A block that was to be stored, and may have been."""

    intake: Intake
    period: Period
    head: Head
    piece: Piece


class Collector:
    """Open periods of some tasks on one store."""

    def __init__(
        self,
        store: Store,
        # Called by the writer with requests and their answers; None in place of an answer: come again later
        deliver: Callable[[list[tuple[Request, Answer | None]]], None],
        *,
        stopped: Callable[[str], None] = lambda reason: None,  # called with the reason if the collector must stop
        # Seconds after 1 January 1970, and seconds that never jump
        clock: tuple[Callable[[], float], Callable[[], float]] = (time.time, _steady),
        noise: Noise | None = None,
    ) -> None:
        self.store, self._deliver, self._stopped = store, deliver, stopped
        self._clock, self._noise = clock, noise or Noise()
        self._offset = clock[0]() - clock[1]()
        self._queue: SimpleQueue[Request | Callable[[], None] | None] = SimpleQueue()
        self._heads: dict[Period, Head] = {}
        self._doubtful: list[Stored] = []
        self.tasks: dict[str, Task] = {}
        self.senders: dict[str, str] = {}
        self._intakes: dict[str, Intake] = {}
        self._submitted = self._done = 0  # bytes; each is written by one thread only
        self.failed = ""  # why it stopped
        self.counts: Counter[str] = Counter()  # of reports and groups, since the start
        self._turn, self.closing = threading.Lock(), threading.Lock()  # closings come one after the other
        try:
            for digest, text, senders in store.book.rows("SELECT digest, task, senders FROM tasks ORDER BY digest"):
                self._know(Task.from_json(text), senders, digest)
        except BaseException:
            store.close()
            raise
        self._writer = threading.Thread(target=self._write, name="writer", daemon=True)
        self._writer.start()

    def _know(self, task: Task, senders: str, digest: str) -> None:
        if task.digest != digest:
            raise StoreError("a task in the store does not match its digest. Restore the store from a backup.")
        intake = Intake(task, self._noise)
        if not self.tasks:  # it is the same for all of them
            intake.prepare()
        for day, state in self.states(digest).items():
            if state == OPEN:
                period = Period(digest, day)
                self._heads[period] = Head.first(period)
                frames = self._frames(period)
                intake.load(day, frames, self.store.erased(period), self.store.sent(period))
            else:
                intake.close(day)
        self.tasks[digest], self.senders[digest], self._intakes[digest] = task, senders, intake

    def _frames(self, period: Period) -> Iterator[bytes]:
        """Yield stored reports in large parts, and follow the chain to its head."""
        parts, size = list[bytes](), 0
        for block, head in self.store.blocks(period):
            self._heads[period] = head
            parts.append(block.frames)
            size += len(block.frames)
            if size > MAX_GROUP_BYTES:
                yield b"".join(parts)
                parts, size = [], 0
        yield b"".join(parts)

    def now(self) -> float:
        return self._clock[0]()

    def clock_jumped(self) -> bool:
        """Return whether the clock was set, so that it does not say which reports are in time."""
        return abs(self._clock[0]() - self._clock[1]() - self._offset) > MAX_CLOCK_JUMP

    @property
    def is_ready(self) -> bool:
        return not (self.failed or self._doubtful or self.clock_jumped())

    def add_task(self, task: Task, senders: str, retention_days: int = DEFAULT_RETENTION) -> bool:
        """Take in reports of a task from now on; return whether it is new."""
        check_task(task)
        if senders not in SENT_BY:
            raise ParameterError(f"senders must be one of {', '.join(SENT_BY)}.")
        with self._turn:
            if task.digest in self.tasks:
                if self.senders[task.digest] != senders:
                    raise ParameterError(f"the task is known, with senders = {self.senders[task.digest]}.")
                return False
            self.store.book.write(
                "INSERT INTO tasks VALUES (?, ?, ?, ?)", task.digest, task.to_bytes().decode(), senders, retention_days
            )
            self._know(task, senders, task.digest)
            return True

    def states(self, task: str) -> dict[int, str]:
        return dict(self.store.book.rows("SELECT day, state FROM periods WHERE task = ? ORDER BY day", task))

    def submit(self, request: Request) -> None:
        self._submitted += len(request.body)
        self._queue.put(request)

    @property
    def pending_bytes(self) -> int:
        return self._submitted - self._done

    def run(self, work: Callable[[], _T]) -> Future[_T]:
        """Do something in the writer's thread, between two groups."""
        future: Future[_T] = Future()

        def do() -> None:
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)

        self._queue.put(do)
        return future

    def stop(self) -> None:
        """Answer all that waits, then stop."""
        self._queue.put(None)
        self._writer.join()
        self.store.close()

    def _write(self) -> None:
        item = self._queue.get()
        while item is not None:
            group, size = list[Request](), 0
            while isinstance(item, Request) and size < MAX_GROUP_BYTES:
                group.append(item)
                size += len(item.body)
                try:
                    item = self._queue.get_nowait()
                except Empty:
                    item = _NOTHING
            if group:
                try:
                    answers = self._take(group)
                except Exception as error:
                    # Ids may be known that are not stored, and their reports would be refused as copies for ever. A
                    # new start takes the ids from what is stored.
                    self._fail(f"an error that nobody expected: {type(error).__name__}")
                    answers = [None] * len(group)
                self._done += size
                self._deliver(list(zip(group, answers, strict=True)))
            elif callable(item):
                item()
                item = _NOTHING
            if item is _NOTHING:
                item = self._queue.get()

    def _take(self, group: Sequence[Request]) -> list[Answer | None]:
        answers: list[Answer | None] = [None] * len(group)
        self.look_up()
        if self._doubtful or self.failed or self.clock_jumped():
            return answers
        now = self.now()
        for digest in {request.task for request in group}:
            places = [place for place, request in enumerate(group) if request.task == digest]
            own, intake = [group[place] for place in places], self._intakes[digest]
            senders = [Sent(one.sender, one.limit, one.group) for one in own]
            taken, pieces = intake.take([one.body for one in own], senders, now)
            # Each is stored or forgotten, also after one that failed.
            failed = [piece for piece in pieces if not self._store(intake, Period(digest, piece.day), piece)]
            if failed:
                continue
            self.counts["groups"] += 1
            for place, (accepted, failures) in zip(places, taken.answers(len(own)), strict=True):
                answers[place] = Answer(accepted, failures)
                self.counts["accepted"] += accepted
                for _, code in failures:
                    self.counts[code] += 1
        return answers

    def _store(self, intake: Intake, period: Period, piece: Piece) -> bool:
        head = self._heads.get(period)
        try:
            if head is None:  # its first block: the period is known before anything is in it
                self.store.book.write(
                    "INSERT INTO periods (task, day, state) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", *period, OPEN
                )
                head = Head.first(period)
            self._heads[period] = self.store.append(period, head, piece.parts, piece.by_sender)
        except StoreError:
            self.counts["failed commits"] += 1
            self._doubtful.append(Stored(intake, period, head or Head.first(period), piece))
            self.look_up()
            return False
        return True

    def look_up(self) -> None:
        """Find out whether doubtful blocks were stored; those that were not are forgotten, and may come again."""
        while self._doubtful and not self.failed:
            intake, period, head, piece = self._doubtful[0]
            due = head.after(piece.parts[:1])  # all blocks of a piece are stored, or none
            try:
                chain = self.store.chain_at(period, due.seq)
            except StoreError:
                return
            if chain is None:
                intake.undo(piece)
            elif chain == due.chain:
                self._heads[period] = head.after(piece.parts)
            else:
                self._fail("another collector writes to this store")
                return
            del self._doubtful[0]

    def _fail(self, reason: str) -> None:
        """Take in nothing more, and say that the collector must stop."""
        self.failed = reason
        self._stopped(reason)

    def day_is_over(self, digest: str, day: int, now: float | None = None) -> bool:
        """Return whether no report of a day can be in time any more."""
        schedule = self.tasks[digest].schedule
        return (self.now() if now is None else now) > schedule.closes(day) + schedule.skew_seconds

    @property
    def num_ids(self) -> int:
        return sum(ids.num for intake in self._intakes.values() for ids in intake.ids.values())

    def progress(self, period: Period) -> dict[str, object]:
        """Return how many reports of an open period there are by purpose and tier, and by slot, and the last block."""
        intake, head = self._intakes[period.task], self._heads.get(period) or Head.first(period)
        slots = {str(slot): num for slot, num in intake.by_slot(period.day).items()}
        reports = intake.by_tier(period.day)
        return {"reports": reports, "slots": slots, "blocks": head.seq, "chain": head.chain.hex()}

    def forget_sender(self, digest: str, sender: str) -> None:
        """Forget how many reports a sender sent in open periods."""

        def forget() -> None:
            for day, sent in self._intakes[digest].sent.items():
                if sent.pop(sender, None) is not None:
                    self.store.forget_senders(Period(digest, day), sender)

        self.run(forget).result()

    def seal(self, period: Period) -> bool:
        """Take in no more reports of a period; return whether it was open. Runs in the writer's thread."""
        self.look_up()
        if self._doubtful or self.failed:
            raise StoreError("the store cannot be used now. Try again.")
        sealed = bool(
            self.store.book.write(
                "UPDATE periods SET state = ? WHERE task = ? AND day = ? AND state = ?", TALLYING, *period, OPEN
            )
        )
        if sealed:
            self._intakes[period.task].close(period.day)
            self._heads.pop(period, None)
        return sealed

    def erase_report(self, digest: str, report_id: bytes, checksum: bytes) -> str:
        """Erase one report of an open period, for somebody who knows its id and checksum; return its day, or ""."""
        for day in (day for day, state in self.states(digest).items() if state == OPEN):
            period = Period(digest, day)
            for block, _ in self.store.blocks(period):
                if report_id in block.frames and _without(block.frames, report_id, checksum) is not None:
                    erase = partial(self._erase, period, block.seq, report_id, checksum)
                    return day_text(day) if self.run(erase).result() else ""
        return ""

    def _erase(self, period: Period, seq: int, report_id: bytes, checksum: bytes) -> bool:
        """Rewrite a block without a report; in the writer's thread, as somebody else may have rewritten it."""
        if period.day in self._intakes[period.task].closed:
            return False
        left = _without(self.store.frames_at(period, seq), report_id, checksum)
        if left is not None:
            self.store.rewrite(period, seq, left, report_id.ljust(ID_BYTES, b"\0"))
        return left is not None


_NOTHING: Any = object()


def split_frames(frames: bytes) -> Iterator[bytes]:
    """Yield the reports of length-prefixed frames that are whole."""
    at = 0
    while at < len(frames):
        size = int.from_bytes(frames[at : at + 4], "big")
        yield frames[at + 4 : at + 4 + size]
        at += 4 + size


def _without(frames: bytes, report_id: bytes, checksum: bytes) -> bytes | None:
    """Return frames without the report of an id, if one has this id and checksum."""
    kept = [
        one for one in split_frames(frames) if one[-4:] != checksum or Report.from_bytes(one).report_id != report_id
    ]
    left = b"".join(len(one).to_bytes(4, "big") + one for one in kept)
    return left if len(left) < len(frames) else None


def frames_of_lines(body: bytes, most: int) -> tuple[bytes, int]:
    """Turn JSON lines into frames; return them and the number of lines that are no reports."""
    made, num_bad = list[bytes](), 0
    for line in body.splitlines():
        if not line.strip():
            continue
        if len(made) + num_bad >= most:
            raise ParameterError(f"a request has at most {most} lines of JSON. Send several requests.")
        try:
            data = Report.from_json(line).to_bytes()
            made.append(len(data).to_bytes(4, "big") + data)
        except ReportError:
            num_bad += 1
    return b"".join(made), num_bad


MALFORMED = CODES[DAMAGED]
