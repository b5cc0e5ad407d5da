# SPDX-License-Identifier: Apache-2.0
"""Allowance: a device's own account of what its vehicle has given away, in one small private file.

The file contains the tier, the digest of the task, the last known time, the slots of each day, what each purpose has
spent (true composed loss, as exact fractions) in each open day and in the lifetime, and the reports of the days that
have not closed. Its rules:

- *Spend, then perturb.* The device marks a slot as spent in one atomic write before it samples any noise, and stores
  the report in a second write before it hands the report out. A crash between the two leaves the slot spent; its report
  is then made from the ``missing`` input, so that nothing is spent twice and no slot stays silent.
- *Sending again is free.* A slot with a report hands out the same bytes for ever, without new noise.
- *What is lost counts as spent.* An empty file never replaces a missing or damaged one. A new vehicle enrols once
  (``enrol=True``), and the counter ``<file>.enrolled`` beside the file outlives it.
- *An older copy is refused where it can be seen.* Each write is counted, in the file and then in the counter beside it,
  and in a second one elsewhere if the owner names it (``counter``). Nothing is sampled or handed out before both are on
  disk, so a file that is behind its counters is an older copy, or one under another name. A copy of the file together
  with all its counters looks like the original; :meth:`Allowance.check_received` asks what the collector has.
- *One file, one vehicle.* The file keeps a digest of the vehicle's name, once it is known: rows of another vehicle are
  refused. A vehicle with a new name is confirmed like a new task (``adopt``).
- *One file, one process.* Links are resolved, a second name of the file is refused, and the file itself is locked: if
  it was replaced, or its lock removed, nothing more is spent through the old one.
- *The owner's cap comes first.* A day gives away at most epsilon 10 unless the vehicle's owner sets another cap. No
  task can raise it.
- *Slots are chosen before the day*, for today and tomorrow at the first contact of a day, and never moved. A slot of
  today that passed before the first contact lapses: nothing is spent, nothing is sent.
- *Time goes forwards.* If the clock goes back by more than the task's ``skew_seconds``, nothing new is spent until it
  has caught up; stored reports may still be sent again. A jump forwards of more than 400 days is refused. The owner may
  vouch for the clock in both cases (``accept_clock``), so a clock that was wrong once does not silence a vehicle. That
  is recorded, and refunds nothing: the slots of a day are chosen once, whatever the clock says later.
- *Late is never.* A collector refuses a report after its slot's deadline, so the device does not make one, and nothing
  is spent.
- *Closed days are forgotten*, unless the caller keeps their reports (``keep_from``) because it has yet to write them
  elsewhere. They then move to ``<file>.closed``. This file records past reports, not what may still be spent: without
  it nothing is spent again, and only reports that were not written elsewhere are lost. :meth:`Allowance.forget_kept`
  deletes them.

Anyone who may write all these files can also reset them: they belong to the vehicle, and protect against accidents and
crashes, not against its owner. This module runs on Linux and macOS.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

from dunnage.devices.report import Report, packed, unpacked
from dunnage.devices.task import FIRST_DAY, LAST_DAY, SECONDS_PER_DAY, Task
from dunnage.errors import AllowanceError, ParameterError, TaskError
from dunnage.exact import Exact, decimal_text, exact
from dunnage.folders import lock as lock_file
from dunnage.folders import sync_folder, unlock
from dunnage.noise.source import Noise

FORMAT = 2  # format 1 had no counter, cap or list of days
MAX_BYTES = 1 << 26
MAX_KEPT_BYTES = 1 << 28  # size of the reports of closed days
MAX_JUMP_DAYS = 400  # how far a clock may go forwards at once
# What a day may give away if the owner of the vehicle states no cap. It is no default of an epsilon, which tasks state:
# it only refuses.
MAX_DAY_LOSS = Fraction(10)
NO_CAP = "none"
_MAX_SPANS = 64
_MAX_CLOCKS = 20
_KIND = "dunnage allowance"
_COUNTER, _CLOSED = ".enrolled", ".closed"
LOST = (
    "What is lost counts as spent. Do not put an older copy in its place, which would spend again. Retire the "
    "vehicle's place in the fleet."
)

OTHER_VEHICLE = (
    "the allowance of another vehicle. Each vehicle has its own: name that file, or start one with --enrol. If it is "
    "the same vehicle under a new name, confirm it once with --adopt: what was spent stays spent."
)


class Slot(NamedTuple):
    day: int
    slot: int


@dataclass
class Spent:
    loss: Fraction = Fraction(0)
    num_reports: int = 0
    num_unbounded: int = 0

    def add(self, loss: Fraction | None) -> None:
        self.num_reports += 1
        if loss is None:
            self.num_unbounded += 1
        else:
            self.loss += loss

    def __str__(self) -> str:
        if self.num_unbounded:
            return f"no bound ({self.num_unbounded} of {self.num_reports} reports have no bound)"
        return f"epsilon {decimal_text(self.loss)} in {self.num_reports} report{'s' * (self.num_reports != 1)}"

    def to_list(self) -> tuple[str, int, int]:
        return str(self.loss), self.num_reports, self.num_unbounded

    @classmethod
    def from_list(cls, data: tuple[str, int, int]) -> Spent:
        loss, reports, unbounded = data
        spent = cls(Fraction(loss), int(reports), int(unbounded))
        if spent.loss < 0 or not 0 <= spent.num_unbounded <= spent.num_reports:
            raise ValueError
        return spent


@dataclass
class _Day:
    """A day that has not closed: its slots, its spends by purpose, its reports (None: spent, no report yet)."""

    slots: tuple[int, ...]
    spent: dict[str, Spent] = field(default_factory=dict)
    reports: dict[tuple[int, str], bytes | None] = field(default_factory=dict)

    def to_dict(self) -> dict[str, object]:
        reports = [(slot, name, None if data is None else packed(data)) for (slot, name), data in self.reports.items()]
        spent = {name: spent.to_list() for name, spent in self.spent.items()}
        return {"slots": list(self.slots), "spent": spent, "reports": reports}

    @classmethod
    def from_dict(cls, data: Any) -> _Day:
        reports = {
            (int(slot), str(name)): None if text is None else unpacked(text) for slot, name, text in data["reports"]
        }
        spent = {str(name): Spent.from_list(item) for name, item in data["spent"].items()}
        return cls(tuple(int(slot) for slot in data["slots"]), spent, reports)


@dataclass
class _Book:
    task: str
    earlier_tasks: list[str]
    tier: str
    seen: int
    lifetime: dict[str, Spent]
    days: dict[int, _Day]
    cap: Fraction | None  # the owner's limit of a day; None: none
    name: str = ""  # random; "" in files of format 1, which were not counted
    num_writes: int = 0
    counter: str = ""  # where else writes are counted
    vehicle: str = ""  # digest of the vehicle's name; "" while nobody has stated it
    spans: list[tuple[int, int]] = field(default_factory=list)  # days with slots, also those forgotten since
    clocks: list[tuple[int, int]] = field(default_factory=list)  # times that the owner set back, from and to

    def to_bytes(self) -> bytes:
        data = {
            "format": FORMAT,
            "kind": _KIND,
            **vars(self),
            "lifetime": {name: spent.to_list() for name, spent in self.lifetime.items()},
            "days": {str(day): own.to_dict() for day, own in self.days.items()},
            "cap": NO_CAP if self.cap is None else str(self.cap),
        }
        line = json.dumps(data, separators=(",", ":")).encode("ascii")
        return b"%s\nsha256 %s\n" % (line, _checksum(line))

    @classmethod
    def from_bytes(cls, content: bytes) -> _Book:
        line, _, checksum = content.partition(b"\n")
        if checksum != b"sha256 %s\n" % _checksum(line):
            raise ValueError
        data = json.loads(line)
        if data["kind"] != _KIND or data["format"] not in (1, FORMAT):
            raise ValueError
        if data["format"] == 1:  # nobody knows any more which days had slots: all until now
            last = max([int(data["seen"]) // SECONDS_PER_DAY, *map(int, data["days"])])
            data |= {"cap": MAX_DAY_LOSS, "spans": [(0, last)], "clocks": []}
            data |= {"name": "", "num_writes": 0, "counter": ""}
        return cls(
            task=str(data["task"]),
            earlier_tasks=[str(digest) for digest in data["earlier_tasks"]],
            tier=str(data["tier"]),
            seen=int(data["seen"]),
            lifetime={str(name): Spent.from_list(item) for name, item in data["lifetime"].items()},
            days={int(day): _Day.from_dict(own) for day, own in data["days"].items()},
            cap=None if data["cap"] == NO_CAP else Fraction(data["cap"]),
            name=str(data["name"]),
            num_writes=int(data["num_writes"]),
            counter=str(data["counter"]),
            vehicle=str(data.get("vehicle", "")),  # earlier files have none
            spans=[(int(first), int(last)) for first, last in data["spans"]],
            clocks=[(int(before), int(after)) for before, after in data["clocks"]],
        )

    def chose(self, day: int) -> bool:
        """Return whether slots were chosen for a day, also if the day is forgotten since."""
        return any(first <= day <= last for first, last in self.spans)

    def choose(self, day: int, slots: tuple[int, ...]) -> None:
        self.days[day] = _Day(slots)
        spans: list[tuple[int, int]] = []
        for first, last in sorted([*self.spans, (day, day)]):
            if spans and first <= spans[-1][1] + 1:
                spans[-1] = spans[-1][0], max(last, spans[-1][1])
            else:
                spans.append((first, last))
        while len(spans) > _MAX_SPANS:  # days between the oldest two then count as if they had had slots
            spans[:2] = [(spans[0][0], spans[1][1])]
        self.spans = spans


class _Kept:
    """Stored reports of closed days: a file with a line for each day, so that one more day costs one line."""

    def __init__(self, path: str, task: str, first: int, *, durable: bool) -> None:
        self._path, self._task, self._first, self._durable = path, task, first, durable
        self._lines: dict[tuple[str, int], bytes] = {}
        self.days: dict[int, _Day] = {}
        try:
            content = _content(path, 2 * MAX_KEPT_BYTES) if os.path.lexists(path) else b""
        except ValueError:
            raise AllowanceError(
                f"{path} is larger than Dunnage would write it. Remove it: only stored reports are lost."
            ) from None
        for line in content.splitlines(keepends=True):
            checksum, _, text = line.partition(b" ")
            if line.endswith(b"\n") and checksum == _checksum(text):  # a damaged line is lost
                with suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError, ArithmeticError):
                    data = json.loads(text)
                    of_task, day, own = str(data["task"]), int(data["day"]), _Day.from_dict(data)
                    self._lines[of_task, day] = line
                    if of_task == task:
                        self.days[day] = own
        if sum(map(len, self._lines.values())) < len(content):
            self._write()  # a crash cut off a line, which must not damage the next one, or a line was replaced

    def add(self, day: int, own: _Day) -> None:
        text = json.dumps({"task": self._task, "day": day, **own.to_dict()}, separators=(",", ":")).encode("ascii")
        line = b"%s %s\n" % (_checksum(text + b"\n"), text)
        if not any(own.reports.values()) or self._lines.get((self._task, day)) == line:
            return
        if self._size + len(line) > MAX_KEPT_BYTES:
            self.forget(self._first)
        if self._size + len(line) > MAX_KEPT_BYTES:
            raise AllowanceError(
                f"the reports of closed days that are not written elsewhere yet exceed {MAX_KEPT_BYTES} bytes. The "
                "reports made so far are kept. Play back fewer days at a time, from the same first day."
            )
        is_new = not os.path.lexists(self._path)
        os.close(_write_file(self._path, line, os.O_APPEND, durable=self._durable))
        if self._durable and is_new:
            sync_folder(os.path.dirname(self._path))
        self._lines[self._task, day], self.days[day] = line, own

    @property
    def _size(self) -> int:
        return sum(map(len, self._lines.values()))

    def forget(self, before: int) -> None:
        lines = {key: line for key, line in self._lines.items() if key[1] >= before}
        if len(lines) < len(self._lines):
            self._lines = lines
            self.days = {day: own for day, own in self.days.items() if day >= before}
            self._write()

    def _write(self) -> None:
        if self._lines:
            os.close(_replace_file(self._path, b"".join(self._lines.values()), durable=self._durable))
        else:
            os.unlink(self._path)


def _checksum(line: bytes) -> bytes:
    return hashlib.sha256(line).hexdigest().encode("ascii")


class Allowance:
    """What one vehicle may still give away; open it with :meth:`open`, close it or use it in a ``with`` block.

    Examples
    --------
    >>> with Allowance.open(path, task, enrol=True, now=0) as allowance:  # doctest: +SKIP
    ...     allowance.due(now=0)
    """

    def __init__(self, path: str, task: Task, lock: int, *, durable: bool, noise: Noise) -> None:
        self.path, self.task = path, task
        self._lock, self._durable, self._noise = lock, durable, noise
        self._file = -1  # the file itself, locked: its lock may be removed
        self._process, self._turn = os.getpid(), threading.RLock()
        self._book: _Book
        self._kept: _Kept | None = None
        self._accept_clock = self._renamed = False

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],  # the file; .lock, .enrolled and, with keep_from, .closed lie beside it
        task: Task,  # the task of the vehicle's reports
        *,
        tier: str | None = None,  # the vehicle's public tier; needed to enrol if the task has several
        enrol: bool = False,  # start the allowance of a vehicle that never had one
        adopt: bool = False,  # change to another task, or name of the vehicle: what was spent stays spent
        vehicle: str | None = None,  # name of the vehicle, to refuse the file of another; remembered as a digest
        now: float | None = None,  # seconds after 1 January 1970; needed to enrol and to adopt
        accept_clock: bool = False,  # accept once that the clock goes back, or forwards by more than 400 days
        cap: Exact | None = None,  # the owner's own limit of a day, or "none"; remembered
        counter: str | os.PathLike[str] | None = None,  # a second place to count writes in; remembered
        keep_from: int | None = None,  # keep the reports of this day and later ones, until forget_kept
        noise: Noise | None = None,  # source of the random slots
        durable: bool = True,  # synchronise each write with the disk; switch it off in simulations only
    ) -> Allowance:
        """Open the allowance of a vehicle, or start one."""
        # The first write would replace a link, and leave what it points to unspent.
        name = os.path.realpath(os.fspath(path))
        if os.name == "nt":  # a file that is open cannot be replaced there
            raise AllowanceError(
                "an allowance can be kept on Linux and macOS only. Perturb readings on such a machine."
            )
        with _reported(name):
            _check_place(name, enrol)  # before a lock appears beside a file that is not an allowance
            # The file itself is replaced at each write, so the lock is on another one.
            lock = os.open(name + ".lock", os.O_RDWR | os.O_CREAT, 0o600)
            try:
                lock_file(lock)
            except OSError:
                os.close(lock)
                raise _in_use(name) from None
            allowance = cls(name, task, lock, durable=durable, noise=noise or Noise())
            allowance._accept_clock = accept_clock
            try:
                place = None if counter is None else os.path.realpath(os.fspath(counter))
                if enrol:
                    allowance._start(tier, now, _cap(cap), place)
                else:
                    allowance._resume(tier, adopt, now, cap, place, vehicle)
                if vehicle is not None:
                    allowance.recognise(vehicle)
                if keep_from is not None:
                    allowance._kept = _Kept(name + _CLOSED, task.digest, keep_from, durable=durable)
            except BaseException:
                allowance.close()
                raise
        return allowance

    def _start(self, tier: str | None, now: float | None, cap: Fraction | None, counter: str | None) -> None:
        _check_place(self.path, enrol=True)
        moment = _moment(now)
        names = self.task.tier_names
        if tier is None and len(names) > 1:
            raise TaskError(f"a vehicle needs a tier to enrol. The task has: {', '.join(names)}.")
        self.task.tier_index(self.task.purposes[0], tier or names[0])  # refuses an unknown tier
        self._check_cap(tier or names[0], cap)
        self._book = _Book(self.task.digest, [], tier or names[0], moment, {}, {}, cap)
        self._check_counters(counter)
        self._draw_days(moment)
        with suppress(FileNotFoundError):
            os.unlink(self.path + _CLOSED)  # left over from a deleted allowance
        self._begin_counting(counter)

    def _resume(
        self,
        tier: str | None,
        adopt: bool,
        now: float | None,
        cap: Exact | None,
        counter: str | None,
        vehicle: str | None,
    ) -> None:
        self._file = os.open(self.path, os.O_RDONLY)
        try:
            lock_file(self._file)
        except OSError:
            raise _in_use(self.path) from None
        self._check_held()
        if os.fstat(self._file).st_nlink != 1:  # the next write would leave the other name unspent
            raise AllowanceError(
                f"{self.path} is also stored under another name (a hard link). Remove that name first."
            )
        self._book = book = _read_book(self.path)
        self._check_counters(counter)
        # One thing at a time: a run that changes to another task accepts no new name of the vehicle.
        self._renamed = adopt and book.task == self.task.digest
        if vehicle is not None and book.vehicle not in ("", self._digest(vehicle)) and not self._renamed:
            raise AllowanceError(f"{self.path} is {OTHER_VEHICLE} Nothing was spent.")
        before = book.to_bytes()
        chosen = tier or book.tier
        if book.task == self.task.digest and chosen != book.tier:
            raise AllowanceError(f"the vehicle is in tier {book.tier}. Got {tier}. A tier is fixed for a task.")
        if book.task != self.task.digest:
            if not adopt:
                raise AllowanceError(
                    f"the allowance {self.path} belongs to another task: {book.task[:16]}, not "
                    f"{self.task.digest[:16]}. Use that task, or adopt the new one (what was spent stays spent)."
                )
            self.task.tier_index(self.task.purposes[0], chosen)
        book.cap = book.cap if cap is None else _cap(cap)
        self._check_cap(chosen, book.cap)
        if book.task != self.task.digest:
            moment = self._forwards(now)
            book.earlier_tasks.append(book.task)
            book.task, book.tier, book.seen = self.task.digest, chosen, moment
            today = moment // SECONDS_PER_DAY
            # Today keeps its spends and reports. Its slots belong to the other task, so it has none left. Days ahead
            # without a report get slots of the new task.
            for day, own in book.days.items():
                own.slots = () if day <= today or own.reports else self._drawn(day)
            if not book.chose(today):
                book.choose(today, ())
            self._draw_days(moment)
        if not book.name or counter not in (None, book.counter):
            self._begin_counting(counter)
        elif book.to_bytes() != before:
            self._write()

    def recognise(self, vehicle: str) -> bool:
        """Return whether this is the allowance of a vehicle; remember it if nobody has stated one yet."""
        with self.turn(), _reported(self.path):
            digest = self._digest(vehicle)
            if self._book.vehicle not in ("", digest) and not self._renamed:
                return False
            if self._book.vehicle != digest:
                self._book.vehicle = digest
                self._write()
            return True

    def _digest(self, vehicle: str) -> str:
        return hashlib.sha256(f"{self._book.name} {vehicle}".encode(errors="surrogateescape")).hexdigest()

    def _check_cap(self, tier: str, cap: Fraction | None) -> None:
        from dunnage.devices.client import check_task  # the client imports this module

        day = check_task(self.task).of_day(tier)
        if cap is not None and (day is None or day > cap):
            asked = "a loss without a bound" if day is None else f"epsilon {decimal_text(day)}"
            raise AllowanceError(
                f"the task asks for {asked} a day in tier {tier}, but this device gives away at most "
                f"{decimal_text(cap)}. Nothing was spent. Only the vehicle's owner may raise that (--cap)."
            )

    def _check_counters(self, counter: str | None) -> None:
        """Refuse a file that is behind its counters, or lacks one: it is an older copy, or a copy elsewhere."""
        book, own = self._book, (self.path + _COUNTER, self._book.counter)
        for place in filter(None, {*own, counter}):
            known, needed = _counted(place), bool(book.name) and place in own
            if known is None and needed:
                raise AllowanceError(f"{self.path} has no counter at {place}, so it may be a copy. {LOST}")
            # A start that crashed leaves a counter at 0, and a file of format 1 one without a name.
            if known is None or (known[1] == 0 and not needed):
                continue
            if known[0] != book.name or (known[0] and known[1] > book.num_writes):
                raise AllowanceError(
                    f"{place} counts writes that {self.path} does not have: this is an older copy, or the counter of "
                    f"another vehicle. {LOST}"
                )

    def _begin_counting(self, counter: str | None) -> None:
        """Write the counters before the file, so that a file without them is never the remains of a crash."""
        self._book.counter = counter or self._book.counter
        self._book.name = self._book.name or self._noise.draw_bytes(8).hex()
        self._count()
        self._write()

    def _count(self) -> None:
        for place in filter(None, (self.path + _COUNTER, self._book.counter)):
            content = f"{self._book.name} {self._book.num_writes}\n".encode("ascii")
            os.close(_replace_file(place, content, durable=self._durable))

    def _check_held(self) -> None:
        """Refuse to write if another file has taken this one's place: somebody else may have it."""
        held, name = (self._lock, self.path + ".lock") if self._file < 0 else (self._file, self.path)
        same = False
        with suppress(FileNotFoundError):
            same = os.path.samestat(os.fstat(held), os.lstat(name))
        if not same:
            raise AllowanceError(f"{name} was removed or replaced while the allowance was open. Open it again.")

    @property
    def tier(self) -> str:
        return self._book.tier

    @property
    def seen(self) -> int:
        return self._book.seen

    def slots(self, day: int) -> tuple[int, ...]:
        """Return the slots of a day; none if the day is forgotten or its slots are not chosen yet."""
        own = self._day(day)
        return own.slots if own else ()

    def _day(self, day: int) -> _Day | None:
        own = self._book.days.get(day)
        return own if own is not None or self._kept is None else self._kept.days.get(day)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Exclude other threads; refuse a process that was forked from the one that opened the file."""
        with self._turn:
            if self._lock < 0 or os.getpid() != self._process:
                raise AllowanceError(f"the allowance {self.path} is not open in this process. Open it here.")
            yield

    def advance(self, now: float) -> int:
        """Record the time, choose the slots of today and tomorrow if necessary, and forget closed days."""
        with self.turn(), _reported(self.path):
            moment = self._forwards(now)
            schedule = self.task.schedule
            closed = [day for day in self._book.days if moment > schedule.closes(day) + schedule.skew_seconds]
            for day in closed:
                if self._kept is not None:
                    self._kept.add(day, self._book.days[day])
                del self._book.days[day]
                self._book.seen = moment  # otherwise, if the clock went back, the day would get new slots
            if self._draw_days(moment):
                self._book.seen = moment
                self._write()
            return moment

    def _forwards(self, now: float | None) -> int:
        moment, seen, book = _moment(now), self._book.seen, self._book
        if moment < seen - self.task.schedule.skew_seconds:
            if not self._accept_clock:
                raise AllowanceError(
                    f"the clock went back by {seen - moment} seconds. Nothing new is spent until it has caught up. "
                    "Set the clock, or send stored reports again. If it is right now and was wrong before, confirm it "
                    "with --accept-clock (accept_clock=True): what was spent stays spent."
                )
            self._accept_clock = False
            book.clocks = [*book.clocks, (seen, moment)][-_MAX_CLOCKS:]
            book.seen = moment
            self._write()
        elif moment > seen + MAX_JUMP_DAYS * SECONDS_PER_DAY:
            if not self._accept_clock:
                raise AllowanceError(
                    f"the clock went forwards by {(moment - seen) // SECONDS_PER_DAY} days. Nothing was spent or "
                    "written. Set the clock. If it is right, confirm it with --accept-clock (accept_clock=True)."
                )
            self._accept_clock = False
        return max(moment, book.seen)

    def _draw_days(self, moment: int) -> bool:
        # Invariant: slots are chosen once for a day, and a slot is spent once for a purpose. A day is in spans from the
        # moment its slots are chosen, for ever, and such a day never gets slots again: either the book still has it,
        # with the marks of what is spent, or it has closed and nothing of it is due. This holds whatever the clock
        # does, so the owner may set it back without a refund.
        today = moment // SECONDS_PER_DAY
        fresh = [day for day in (today, today + 1) if not self._book.chose(day)]
        for day in fresh:
            self._book.choose(day, self._drawn(day))
        return bool(fresh)

    def _drawn(self, day: int) -> tuple[int, ...]:
        schedule = self.task.schedule
        return schedule.draw_slots(self._noise) if schedule.covers(day) else ()

    def due(self, now: float) -> tuple[Slot, ...]:
        """Return the slots with reports that may be sent now, the earliest first, made already or not."""
        moment, schedule = self.advance(now), self.task.schedule
        return tuple(
            Slot(day, slot)
            for day in sorted(self._book.days)
            for slot in self._book.days[day].slots
            if schedule.moment(day, slot) <= moment <= schedule.deadline(day, slot)
        )

    def next_moment(self, now: float) -> int | None:
        """Return when the next slot begins; None if no later slot is chosen yet."""
        schedule = self.task.schedule
        moments = (schedule.moment(day, slot) for day, own in self._book.days.items() for slot in own.slots)
        return min((moment for moment in moments if moment > now), default=None)

    @property
    def open_days(self) -> tuple[int, ...]:
        return tuple(sorted(self._book.days))

    def is_open(self, day: int) -> bool:
        return day in self._book.days

    def is_spent(self, slot: Slot, purpose: str) -> bool:
        return (slot.slot, purpose) in self._open_day(slot).reports

    def stored(self, slot: Slot, purpose: str) -> bytes | None:
        return self._open_day(slot).reports.get((slot.slot, purpose))

    def _open_day(self, slot: Slot) -> _Day:
        own = self._day(slot.day)
        if own is None:
            raise AllowanceError(f"day {slot.day} is not open. It has closed, or its slots are not chosen yet.")
        return own

    def spend(self, slot: Slot, purpose: str, loss: Fraction | None, now: float) -> None:
        """Spend a due slot for one purpose, before any noise is sampled for it; a refusal spends nothing."""
        with self.turn(), _reported(self.path):
            if slot not in self.due(now):
                raise AllowanceError(
                    "the slot is not due: it lies ahead, has lapsed or was never chosen. Wait for one that is due."
                )
            if self.is_spent(slot, purpose):
                raise AllowanceError(f"the slot is already spent for {purpose}. Send the stored report again.")
            self.check_limits(slot.day, loss)
            day = self._open_day(slot)
            day.spent.setdefault(purpose, Spent()).add(loss)
            self._book.lifetime.setdefault(purpose, Spent()).add(loss)
            day.reports[slot.slot, purpose] = None
            self._book.seen = max(self._book.seen, _moment(now))
            # If this write fails, memory keeps the spend: it may have reached the disk.
            self._write()

    def check_limits(self, day: int, loss: Fraction | None) -> None:
        """Refuse a loss that the task's limits, or the owner's cap, do not allow any more."""
        limits, cap = self.task.limits, self._book.cap
        if loss is None:
            if not limits.allow_unbounded or cap is not None:
                who = "the task does not allow that" if not limits.allow_unbounded else "the owner's cap forbids that"
                raise AllowanceError(
                    f"the loss of the report has no bound, and {who}. Use a mechanism with a bound, or a task with "
                    "allow_unbounded and the cap none."
                )
            return
        for what, limit, spent, following in (
            ("day", limits.day, self.spent_on(day).loss, "The next day has a new one."),
            ("day", cap, self.spent_on(day).loss, "The next day has a new one."),
            ("lifetime", limits.lifetime, self.spent_in_all().loss, "The vehicle may not report any more."),
        ):
            if limit is not None and spent + loss > limit:
                raise AllowanceError(
                    f"the {what}'s allowance is used up: the report needs epsilon {decimal_text(loss)}, but "
                    f"{decimal_text(spent)} of {decimal_text(limit)} is spent. {following}"
                )

    def store(self, slot: Slot, purpose: str, report: bytes) -> None:
        """Store the report of a spent slot, before it is handed out."""
        with self.turn(), _reported(self.path):
            reports = self._open_day(slot).reports if slot.day in self._book.days else {}
            if reports.get((slot.slot, purpose), b"") is not None:
                raise AllowanceError(f"the slot is not spent for {purpose}, or has a report. Spend it first.")
            reports[slot.slot, purpose] = report
            try:
                self._write()
            except BaseException:
                reports[slot.slot, purpose] = None  # not safely stored, so not to be handed out
                raise

    def check_received(self, reports: Iterable[Report]) -> None:
        """Compare with the reports that the collector has of this vehicle: an unknown one means an older copy."""
        for report in reports:
            if report.task != self.task.prefix:
                continue
            report.check(self.task)
            own, name = self._day(report.day), self.task.purposes[report.purpose].name
            closed = own is None and self._book.chose(report.day)
            if not closed and (own is None or own.reports.get((report.slot, name)) != report.to_bytes()):
                raise AllowanceError(
                    f"the collector has a report that {self.path} does not know: this is an older copy, or the report "
                    f"is of another vehicle. Nothing was spent. {LOST}"
                )

    def stored_of(self, day: int) -> tuple[bytes, ...]:
        """Return all stored reports of a day, in the order in which they were made; sending them again is free."""
        own = self._day(day)
        return tuple(data for data in own.reports.values() if data is not None) if own else ()

    def forget_kept(self, before: int) -> None:
        """Forget the reports of closed days before a day. Call it when they are safely written elsewhere."""
        with self.turn(), _reported(self.path):
            if self._kept is not None:
                self._kept.forget(before)

    def spent_on(self, day: int) -> Spent:
        own = self._book.days.get(day)
        return _total(own.spent) if own else Spent()

    def spent_in_all(self) -> Spent:
        """Return what all purposes have spent in the vehicle's lifetime, for all its tasks."""
        return _total(self._book.lifetime)

    def spent_by_purpose(self) -> dict[str, Spent]:
        return {name: Spent(own.loss, own.num_reports, own.num_unbounded) for name, own in self._book.lifetime.items()}

    def summary(self) -> str:
        """Say what is spent and what is left. Private to the vehicle."""
        limits, spent = self.task.limits, self.spent_in_all()
        lines = [
            f"vehicle in tier {self.tier}: {spent} in its lifetime, limit epsilon {decimal_text(limits.lifetime)}",
            *(f"  {name}: {own}" for name, own in self.spent_by_purpose().items()),
            *(f"  day {day}: {self.spent_on(day)}" for day in sorted(self._book.days) if self._book.days[day].spent),
        ]
        return "\n".join(lines)

    def _write(self) -> None:
        self._check_held()
        self._check_counters(None)  # a copy elsewhere may have written meanwhile
        self._book.num_writes += 1
        before, content = self._file, self._book.to_bytes()
        self._file = _replace_file(self.path, content, durable=self._durable)
        if before >= 0:
            os.close(before)
        self._count()

    def close(self) -> None:
        """Let other processes have the file."""
        with self._turn:
            held, self._file, self._lock = (self._file, self._lock), -1, -1
            for descriptor in held:
                if descriptor >= 0:
                    os.close(descriptor)

    def __enter__(self) -> Allowance:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Allowance of a vehicle in tier {self.tier}, {'open' if self._lock >= 0 else 'closed'}>"


def _total(spends: Mapping[str, Spent]) -> Spent:
    return Spent(*(sum(parts) for parts in zip(*map(astuple, spends.values()), strict=True)))


def _moment(now: float | None) -> int:
    usable = isinstance(now, int | float) and not isinstance(now, bool) and math.isfinite(now)
    if not usable or not FIRST_DAY <= now // SECONDS_PER_DAY <= LAST_DAY:  # type: ignore[operator]
        raise AllowanceError(
            "the clock gives no usable time: not seconds after 1 January 1970, or a year before 2020 or after 2200. "
            "Set the clock."
        )
    return math.floor(now)  # type: ignore[arg-type]


def _cap(given: Exact | None) -> Fraction | None:
    """Read the cap of an owner; without one, it is the largest that needs no owner."""
    if given is None:
        return MAX_DAY_LOSS
    cap = None if given == NO_CAP else exact(given, what="the cap of a day")
    if cap is not None and cap <= 0:
        raise ParameterError(f'the cap of a day must be above 0, such as 2, or "none". Got {decimal_text(cap)}.')
    return cap


def _in_use(name: str) -> AllowanceError:
    return AllowanceError(f"the allowance {name} is in use, so nothing was spent. Close it there first.")


@contextmanager
def _reported(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise AllowanceError(f"the allowance {name} cannot be used: {reason}. Fix the file or its folder.") from None


def _check_place(name: str, enrol: bool) -> None:
    if os.path.isdir(name):
        raise AllowanceError(f"{name} is a folder, but an allowance is a file. Choose a file, for example inside it.")
    if os.path.lexists(name):
        _read_book(name)
        if enrol:
            raise AllowanceError(f"there is already an allowance at {name}. Leave out --enrol to continue with it.")
    elif not enrol:
        raise AllowanceError(f"there is no allowance at {name}. {LOST} A new vehicle must enrol first (--enrol).")
    elif (_counted(name + _COUNTER) or ("", 0))[1]:  # a start that crashed leaves a counter at 0
        raise AllowanceError(f"a vehicle was enrolled at {name} before, but its allowance is gone. {LOST}")


def _read_book(name: str) -> _Book:
    try:
        return _Book.from_bytes(_content(name, MAX_BYTES))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, ArithmeticError):
        raise AllowanceError(f"{name} is damaged, or is not an allowance. {LOST}") from None


def _counted(place: str) -> tuple[str, int] | None:
    """Read a counter: the name of its allowance, and the number of writes; None if there is none."""
    try:
        content = _content(place, 100)
        name, _, number = content.decode("ascii").partition(" ")
        return (name, int(number)) if content else ("", 1)  # earlier versions wrote an empty file
    except FileNotFoundError:
        return None
    except ValueError:
        raise AllowanceError(f"the counter {place} is damaged. {LOST}") from None


def _content(name: str, most: int) -> bytes:
    with open(name, "rb") as source:
        content = source.read(most + 1)
    if len(content) > most:
        raise ValueError
    return content


def _write_file(name: str, content: bytes, how: int, *, durable: bool) -> int:
    """Write a file; return it open and locked."""
    sink = os.open(name, os.O_WRONLY | os.O_CREAT | how, 0o600)
    try:
        lock_file(sink)
        while content:
            content = content[os.write(sink, content) :]
        if durable:
            os.fsync(sink)
    except BaseException:
        os.close(sink)
        raise
    return sink


def _replace_file(name: str, content: bytes, *, durable: bool) -> int:
    """Replace a file atomically: after a crash it is the complete old or new one. Return it open and locked."""
    work = name + ".partial"  # one name is enough: the writer has the lock, and overwrites what a crash left behind
    with suppress(FileNotFoundError):
        os.unlink(work)
    sink = _write_file(work, content, os.O_EXCL, durable=durable)
    try:
        os.rename(work, name)  # locked before it has its name, so nobody else can lock it first
        if durable:
            sync_folder(os.path.dirname(name))
    except BaseException:
        unlock(sink)
        os.close(sink)
        raise
    return sink
