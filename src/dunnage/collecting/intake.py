# SPDX-License-Identifier: Apache-2.0
"""Intake: what a collector does with the requests of a moment, all at once, before they are stored.

Reports are decoded and checked in one pass over all requests that wait. A report is accepted if it is sound, made for
the task, possible, in time, of a period that is open, and if its id is new. The ids of an open period are in memory, 17
bytes in each place of a table that is at most two thirds full; what is stored can always rebuild them.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dunnage.arrays import BoolArray, IntArray
from dunnage.collecting.frames import Batch, Reading, Words
from dunnage.collecting.kernels import (
    CLOSED,
    COUNTED,
    DAMAGED,
    IMPOSSIBLE,
    LATE,
    OTHER_TASK,
    REPLAYED,
    TOO_EARLY,
    TOO_MANY,
    USED,
    admit_ids,
    forget_ids,
    gather_frames,
    gather_rows,
)
from dunnage.collecting.store import Part
from dunnage.devices.task import MINUTES_PER_DAY, SECONDS_PER_DAY, Task
from dunnage.noise import arrays as noise_arrays
from dunnage.noise.source import Noise

CODES = {
    DAMAGED: "malformed",
    IMPOSSIBLE: "malformed",
    OTHER_TASK: "wrong_task",
    TOO_EARLY: "too_early",
    LATE: "late",
    CLOSED: "closed",
    REPLAYED: "replayed",
    TOO_MANY: "too_many",
}
NEAR = 3  # days around today that a report can be of: a day closes within two days


class IdSet:
    """Ids of 16 bytes: a table with open addressing."""

    def __init__(self) -> None:
        self._key = np.uint64(secrets.randbits(64))
        self._table, self._state = np.zeros((1 << 12, 2), dtype=np.uint64), np.zeros(1 << 12, dtype=np.uint8)
        self.num = self._num_freed = 0

    def admit(self, high: Words, low: Words, status: NDArray[np.uint8], own: BoolArray) -> int:
        self._make_room(len(high))
        num = int(admit_ids(high, low, status, own, self._key, self._table, self._state))
        self.num += num
        return num

    def forget(self, high: Words, low: Words) -> None:
        forget_ids(high, low, self._key, self._table, self._state)
        self.num, self._num_freed = self.num - len(high), self._num_freed + len(high)

    def _make_room(self, num: int) -> None:
        if 3 * (self.num + self._num_freed + num) <= 2 * len(self._state):
            return
        size = len(self._state)
        while 3 * (self.num + num) > 2 * size:
            size *= 2
        high, low = (self._table[self._state == USED, half] for half in (0, 1))
        self._table, self._state = np.zeros((size, 2), dtype=np.uint64), np.zeros(size, dtype=np.uint8)
        self._num_freed = 0
        admitted = np.zeros(len(high), dtype=np.uint8), np.ones(len(high), dtype=np.bool_)
        admit_ids(high, low, *admitted, self._key, self._table, self._state)


class Sent(NamedTuple):
    """Who sent a request."""

    name: str  # empty if it has none
    limit: int  # reports in a day
    group: str  # public; empty if none is to be kept


class Piece(NamedTuple):
    """What is to be stored in one period."""

    day: int
    parts: list[Part]
    high: Words
    low: Words
    cells: IntArray  # number of tier and slot of each report
    by_sender: dict[str, int]  # how many reports of each sender


class Group:
    """The requests of a moment: what becomes of their reports."""

    def __init__(self, batch: Batch, request: IntArray, broken: BoolArray) -> None:
        self.batch, self.request, self.broken = batch, request, broken

    def answers(self, num: int) -> list[tuple[int, list[tuple[str, str]]]]:
        """Return for each request how many reports were accepted, and id and code of the others."""
        batch = self.batch
        accepted = np.bincount(self.request[batch.counted], minlength=num).tolist()
        answers: list[tuple[int, list[tuple[str, str]]]] = [(count, []) for count in accepted]
        for place in np.flatnonzero(~batch.counted).tolist():
            status = int(batch.status[place])
            ids = "" if status == DAMAGED else f"{int(batch.high[place]):016x}{int(batch.low[place]):016x}"
            answers[self.request[place]][1].append((ids, CODES[status]))
        for which in np.flatnonzero(self.broken).tolist():
            answers[which][1].append(("", CODES[DAMAGED]))
        return answers


def _parts(batch: Batch, request: IntArray, order: IntArray, groups: Sequence[str]) -> Iterator[Part]:
    """Yield the reports in an order, those of each group apart."""
    names = sorted(set(groups))
    number = np.array([names.index(name) for name in groups])[request[order]] if len(names) > 1 else None
    for at, name in enumerate(names):
        own = order if number is None else order[number == at]
        if own.size:
            yield Part(name, own.size, gather_frames(batch.data, batch.start, batch.size, own).tobytes())


class Intake:
    """The open periods of one task, and who has sent how much in them."""

    def __init__(self, task: Task, noise: Noise) -> None:
        self.task, self._noise = task, noise
        self._reading = Reading(task, task.schedule.span, None)
        self._times: dict[int, tuple[IntArray, IntArray]] = {}
        self.ids: dict[int, IdSet] = {}  # by day, of the periods that are open
        self.sent: dict[int, dict[str, int]] = {}  # by day and sender
        self.nums: dict[int, IntArray] = {}  # by day: reports by tier of a purpose, and slot
        self.closed: set[int] = set()

    def prepare(self) -> None:
        """Compile what the first request would wait for, or load it from the disk."""
        ids, one = IdSet(), np.zeros(1, dtype=np.uint64)
        ids.admit(one, one, np.zeros(1, dtype=np.uint8), np.ones(1, dtype=np.bool_))
        ids.forget(one, one)
        batch, _, _ = self._reading.requests([b""])
        gather_frames(batch.data, batch.start, batch.size, np.zeros(0, dtype=np.int64))
        gather_rows(batch.data, np.zeros(0, dtype=np.int64), 1)

    def take(self, bodies: Sequence[bytes], senders: Sequence[Sent], now: float) -> tuple[Group, list[Piece]]:
        """Check all reports and admit their ids; return what is to be stored."""
        batch, request, broken = self._reading.requests(bodies)
        pieces = []
        for day in np.unique(batch.day[batch.counted]).tolist():
            own = batch.counted & (batch.day == day)
            self._check_times(batch, own, day, now)
            if not (batch.counted & own).any():
                continue
            ids = self.ids.setdefault(day, IdSet())
            if ids.admit(batch.high, batch.low, batch.status, own):
                by_sender = self._count(batch, request, own, day, senders, ids)
                chosen = np.flatnonzero(batch.counted & own)
                # The order in which reports came must not show which of them one sender sent.
                order = chosen[noise_arrays.permutation(self._noise, chosen.size)]
                if chosen.size:
                    high, low = batch.high[chosen], batch.low[chosen]
                    cells = self._add(day, batch, chosen)
                    parts = list(_parts(batch, request, order, [sent.group for sent in senders]))
                    pieces.append(Piece(day, parts, high, low, cells, by_sender))
        return Group(batch, request, broken), pieces

    def _add(self, day: int, batch: Batch, chosen: IntArray) -> IntArray:
        cells = batch.group[chosen] * MINUTES_PER_DAY + batch.slot[chosen]
        if day not in self.nums:
            self.nums[day] = np.zeros(len(self._reading.readers) * MINUTES_PER_DAY, dtype=np.int64)
        np.add.at(self.nums[day], cells, 1)
        return cells

    def by_tier(self, day: int) -> dict[str, dict[str, int]]:
        """Return how many reports there are by purpose and tier."""
        nums, found = self.nums.get(day), dict[str, dict[str, int]]()
        for number, reader in enumerate(self._reading.readers):
            own = 0 if nums is None else int(nums.reshape(-1, MINUTES_PER_DAY)[number].sum())
            found.setdefault(reader.names[0], {})[reader.names[1]] = own
        return found

    def by_slot(self, day: int) -> dict[int, int]:
        nums = self.nums.get(day, np.zeros(MINUTES_PER_DAY, dtype=np.int64)).reshape(-1, MINUTES_PER_DAY).sum(axis=0)
        return {slot: int(nums[slot]) for slot in np.flatnonzero(nums).tolist()}

    def _check_times(self, batch: Batch, own: BoolArray, day: int, now: float) -> None:
        today = int(now) // SECONDS_PER_DAY
        if abs(day - today) > NEAR or not self.task.schedule.covers(day):
            batch.status[own] = LATE if day < today else TOO_EARLY
            return
        if day not in self._times:
            times = [self.task.schedule.accepted_times(day, slot) for slot in range(MINUTES_PER_DAY)]
            early, late = np.array(times, dtype=np.int64).T
            self._times = {near: own for near, own in self._times.items() if abs(near - today) <= NEAR}
            self._times[day] = early, late
        early, late = self._times[day]
        batch.status[own & (now < early[batch.slot])] = TOO_EARLY
        batch.status[own & (now > late[batch.slot])] = LATE
        if day in self.closed:
            batch.status[own & batch.counted] = CLOSED

    def _count(
        self,
        batch: Batch,
        request: IntArray,
        own: BoolArray,
        day: int,
        senders: Sequence[Sent],
        ids: IdSet,
    ) -> dict[str, int]:
        """Count new reports by sender; those beyond the limit of a day are refused, and may come again."""
        sent, added = self.sent.setdefault(day, {}), dict[str, int]()
        new = np.flatnonzero(own & batch.counted)
        nums = np.bincount(request[new], minlength=len(senders)).tolist()
        for which, num in enumerate(nums):
            name, limit, _ = senders[which]
            if not num or not name:
                continue
            room = limit - sent.get(name, 0)
            if num > room:
                excess = new[request[new] == which][max(room, 0) :]
                batch.status[excess] = TOO_MANY
                ids.forget(batch.high[excess], batch.low[excess])
                num = max(room, 0)
            if num:
                sent[name] = sent.get(name, 0) + num
                added[name] = added.get(name, 0) + num
        return added

    def undo(self, piece: Piece) -> None:
        """Forget what could not be stored, so that it may come again."""
        self.ids[piece.day].forget(piece.high, piece.low)
        np.subtract.at(self.nums[piece.day], piece.cells, 1)
        for name, num in piece.by_sender.items():
            self.sent[piece.day][name] -= num

    def load(self, day: int, frames: Iterator[bytes], erased: Sequence[bytes], sent: Mapping[str, int]) -> int:
        """Rebuild the ids of a period from what is stored; return how many reports it has."""
        ids, self.sent[day] = self.ids.setdefault(day, IdSet()), dict(sent)
        num = 0
        for part in frames:
            batch, _, _ = self._reading.requests([part], stored=True)
            status = np.where(batch.status == COUNTED, COUNTED, DAMAGED).astype(np.uint8)
            num += ids.admit(batch.high, batch.low, status, np.ones(len(status), dtype=np.bool_))
            self._add(day, batch, np.flatnonzero(status == COUNTED))
        gone = np.frombuffer(b"".join(erased), dtype=">u8").astype(np.uint64).reshape(-1, 2)
        ids.admit(gone[:, 0].copy(), gone[:, 1].copy(), np.zeros(len(gone), np.uint8), np.ones(len(gone), np.bool_))
        return num

    def close(self, day: int) -> None:
        self.closed.add(day)
        self.ids.pop(day, None)
        self.sent.pop(day, None)
        self.nums.pop(day, None)
