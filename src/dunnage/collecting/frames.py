# SPDX-License-Identifier: Apache-2.0
"""Reports in bulk: binary reports decoded, checked and tallied a batch at a time, each one counted once.

*Copies.* What counts does not depend on the order in which reports come: equal copies of a report count once, and an id
with two different contents counts never. Reports that are damaged, of another task or time, or impossible take no part
in this. The first pass tallies everything and keeps eight bytes of each id; sorted, they show which ids may repeat.
Only if some do, a second pass compares ids and contents of these reports, and a third tallies again: what came c times
goes into a tally of its own, which is divided by c, exactly, because tallies are sums over reports.
"""

from __future__ import annotations

import hashlib
import io
import math
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dunnage.arrays import BoolArray, IntArray
from dunnage.collecting.kernels import (
    COUNTED,
    DAMAGED,
    IMPOSSIBLE,
    OTHER_TASK,
    OTHER_TIME,
    decode_frames,
    decode_requests,
    gather_rows,
)
from dunnage.collecting.tally import BITS, BITS_OF_BYTE, SYMBOLS, Packed, Tallies, Tally
from dunnage.devices.client import mechanism_of
from dunnage.devices.numbers import JointReport, LocalNumeric, SampledReport, combination
from dunnage.devices.paths import Independent
from dunnage.devices.places import InClear, SubsetSelection
from dunnage.devices.report import (
    CUT_OFF,
    MAX_BAD_NAMED,
    MAX_INDEX,
    MAX_PAYLOAD,
    MAX_REPORT,
    Report,
    ReportFile,
    day_text,
)
from dunnage.devices.subjects import Tier
from dunnage.devices.task import MAX_DAYS, MINUTES_PER_DAY, Task
from dunnage.errors import InputError, InternalError, Problem, ReportError
from dunnage.noise.source import ceil_divide

KINDS = {DAMAGED: "damaged", OTHER_TASK: "other_task", IMPOSSIBLE: "impossible", OTHER_TIME: "other_time"}
_CHUNK = 1 << 24  # bytes that are read at once
_LEAST = 26  # bytes of the shortest report, without its length
_LIMITS = (MAX_REPORT, MAX_INDEX, MAX_DAYS, MINUTES_PER_DAY - 1, MAX_PAYLOAD)
_KINDS = "qqBqqqQQq"  # of the fields of a batch
_WORD = 8  # payloads up to here are read as one number

Words = NDArray[np.uint64]
Names = tuple[str, str, int]  # purpose, tier, and the label of a group of reports


@cache
def _crc_tables() -> NDArray[np.uint32]:
    """Return the tables of the CRC-32 of zlib, eight bytes at a time."""
    first = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        first = np.where(first & 1, first >> 1 ^ np.uint32(0xEDB88320), first >> 1).astype(np.uint32)
    tables = [first]
    for _ in range(7):
        tables.append(tables[-1] >> np.uint32(8) ^ first[tables[-1] & np.uint32(0xFF)])
    return np.stack(tables)


class Source:
    """Binary reports that can be read several times; JSON lines are turned into them once."""

    def __init__(self, name: str, opened: Callable[[], IO[bytes]]) -> None:
        self.name, self.open = name, opened
        self.num_unread, self.unread = 0, list[str]()  # lines that are no reports, and where the first of them are
        self.num_bad, self.first_bad = 0, list[str]()  # these, and where a file is cut off

    @classmethod
    def of_file(cls, path: str) -> Source:
        file = ReportFile(path)
        if path.endswith(".bin"):
            return cls(path, lambda: open(path, "rb"))
        spool = tempfile.TemporaryFile()  # noqa: SIM115 - without a name; it lives as long as the source

        def again() -> IO[bytes]:
            spool.seek(0)
            return io.BufferedReader(io.FileIO(spool.fileno(), closefd=False))

        source = cls(path, again)
        weakref.finalize(source, spool.close)
        for report in file:
            data = report.to_bytes()
            spool.write(len(data).to_bytes(4, "big") + data)
        source.num_unread, source.unread = file.num_bad, [f"{path}, {bad}" for bad in file.first_bad]
        return source

    @classmethod
    def of_reports(cls, reports: Iterable[Report]) -> Source:
        made = [report.to_bytes() for report in reports]
        data = b"".join(part for one in made for part in (len(one).to_bytes(4, "big"), one))
        return cls("the reports", lambda: io.BytesIO(data))


class TierReader:
    """How the payloads of one tier of a purpose are checked and tallied, many at a time."""

    def __init__(self, mechanism: Any, purpose: str, tier: Tier) -> None:
        self.mechanism, self.tier, self.names = mechanism, tier, (purpose, tier.name)
        self.law = law = mechanism.channel(tier)
        laws = law.laws if isinstance(law, SampledReport) else ()
        self.width = -1 if any(own.num_symbols is None for own in laws) else ceil_divide(law.payload_bits, 8)
        # One by one: endless laws, numbers that fill no machine word, and places that are counted together.
        self.one_by_one = self.width < 0 or isinstance(law, Independent)
        if isinstance(mechanism, LocalNumeric):
            self.one_by_one |= self.width > _WORD or law.payload_bits > 63
        elif not self.one_by_one:
            self.one_by_one = not mechanism.oracle(tier).counts_bits and law.payload_bits > 63

    def possible(self, rows: Packed) -> BoolArray:
        """Return which payloads, all of the right length, a device of the task can have written."""
        if self.one_by_one:
            distinct, inverse, _ = _distinct(rows)
            return np.array([self._reads(payload) for payload in distinct], dtype=np.bool_)[inverse]
        if isinstance(self.law, SampledReport):
            number, rank = np.divmod(_values(rows), self.law.num_sets)
            sets, inverse = np.unique(rank, return_inverse=True)
            sizes = [math.prod(self.law.laws[at].num_symbols or 1 for at in self._members(one)) for one in sets]
            return number < np.array(sizes, dtype=np.int64)[inverse]
        limit = self.law.num_inputs if isinstance(self.law, JointReport) else self.law.num_symbols
        last = (limit - 1).to_bytes(self.width, "little")
        possible, equal = np.ones(len(rows), dtype=np.bool_), np.ones(len(rows), dtype=np.bool_)
        for byte in range(self.width - 1, -1, -1):  # compared like numbers, the highest byte first
            possible &= ~equal | (rows[:, byte] <= last[byte])
            equal &= rows[:, byte] == last[byte]
        oracle = law.oracle if isinstance(law := self.law, InClear) else law
        if isinstance(oracle, SubsetSelection):
            possible &= np.unpackbits(rows, axis=1, count=oracle.num_inputs, bitorder="little").sum(1) == oracle.size
        return possible

    def add(self, tally: Tally, rows: Packed) -> None:
        """Tally payloads that are possible."""
        law, mechanism = self.law, self.mechanism
        if self.one_by_one:
            distinct, _, times = _distinct(rows)
            for payload, num in zip(distinct, times.tolist(), strict=True):
                tally.add_payload(mechanism, self.tier, payload, num)
            return
        tally.num_reports += len(rows)
        if isinstance(law, JointReport):
            signs = _values(rows)
            for attribute in range(law.dimensions):
                tally.sums(attribute, law.key).add(2 * (signs >> attribute & 1) - 1)
        elif isinstance(law, SampledReport):
            numbers, ranks = np.divmod(_values(rows), law.num_sets)
            for rank in np.unique(ranks):
                number = numbers[ranks == rank]
                for attribute in self._members(rank):
                    own = law.laws[attribute]
                    number, codes = np.divmod(number, own.num_symbols or 1)
                    for code, num in zip(*map(np.ndarray.tolist, np.unique(codes, return_counts=True)), strict=True):
                        tally.add_number(law, attribute, *own.split(own.symbol(code)), num)
        else:
            self._add_places(tally, rows)

    def _add_places(self, tally: Tally, rows: Packed) -> None:
        oracle, in_clear = self.mechanism.oracle(self.tier), isinstance(self.law, InClear)
        groups = np.zeros(0, dtype=np.int64)
        if not oracle.counts_bits:
            groups, symbols = np.divmod(_values(rows), oracle.num_symbols)
        elif in_clear:  # the area is above the bits
            whole, bits = divmod(oracle.num_inputs, 8)
            groups = _values(rows[:, whole:]) >> bits
            rows = self._bits(rows)
        for group in np.unique(groups).tolist() if in_clear else [None]:
            members = slice(None) if group is None else groups == group
            kind = BITS if oracle.counts_bits else SYMBOLS
            counts = tally.counts(() if group is None else (group,), kind, oracle.num_counts)
            if oracle.counts_bits:
                counts.add_rows(rows[members])
            else:
                counts.add_symbols(symbols[members])

    def _bits(self, rows: Packed) -> Packed:
        whole, bits = divmod(self.mechanism.oracle(self.tier).num_inputs, 8)
        rows = rows[:, : whole + (bits > 0)].copy()
        rows[:, whole:] &= (1 << bits) - 1
        return rows

    @property
    def has_bits(self) -> bool:
        """Whether each payload has one row of bits, one for each place, each sampled by itself."""
        if self.one_by_one or isinstance(self.mechanism, LocalNumeric):
            return False
        oracle = self.mechanism.oracle(self.tier)
        return oracle.counts_bits and not isinstance(oracle, SubsetSelection)

    def bits_set(self, rows: Packed) -> IntArray:
        return np.asarray(BITS_OF_BYTE[self._bits(rows)].sum(axis=1))

    def _members(self, rank: Any) -> Iterator[int]:
        return combination(int(rank), len(self.law.laws), self.law.num_sampled)

    def _reads(self, payload: bytes) -> bool:
        try:
            self.mechanism.read(payload, tier=self.tier)
        except ReportError:
            return False
        return True


def _values(rows: Packed) -> IntArray:
    """Return rows of at most eight bytes as numbers, the lowest byte first."""
    wide = np.zeros((len(rows), _WORD), dtype=np.uint8)
    wide[:, : rows.shape[1]] = rows
    return wide.view("<i8").ravel().astype(np.int64, copy=False)


def _distinct(rows: Packed) -> tuple[list[bytes], IntArray, IntArray]:
    if not rows.shape[1]:
        return [b""][: len(rows)], np.zeros(len(rows), dtype=np.int64), np.array([len(rows)][: len(rows)])
    joined = np.ascontiguousarray(rows).view(f"V{rows.shape[1]}").ravel()
    distinct, inverse, times = np.unique(joined, return_inverse=True, return_counts=True)
    return [one.tobytes() for one in distinct], inverse.ravel(), times


_SENT = Source("the request", io.BytesIO)


class Batch(NamedTuple):
    source: Source
    at: int  # of its first byte in the source
    data: Packed
    start: IntArray  # of each report, and so on
    size: IntArray
    status: NDArray[np.uint8]
    group: IntArray  # number of purpose and tier, or -1
    day: IntArray
    slot: IntArray
    high: Words  # first and last eight bytes of the id
    low: Words
    payload_at: IntArray

    @property
    def counted(self) -> BoolArray:
        return np.equal(self.status, COUNTED)

    def frame(self, place: int) -> bytes:
        return self.data[self.start[place] : self.start[place] + self.size[place]].tobytes()


Label = Callable[[TierReader, Batch, IntArray, Packed], IntArray]  # a number for each of the rows


class Reading:
    """Reports of a task, read from sources batch by batch; what is wrong with one is in its status."""

    def __init__(self, task: Task, days: tuple[int, int], received: float | None, label: Label | None = None) -> None:
        self.task, self._days, self._received, self._label = task, days, received, label
        self.readers: list[TierReader] = []
        first = [0]
        for purpose in task.purposes:
            mechanism = mechanism_of(task, purpose)
            self.readers += [TierReader(mechanism, purpose.name, tier) for tier in task.slot_tiers(purpose)]
            first.append(len(self.readers))
        self._first = np.array(first, dtype=np.int64)
        self._widths = np.array([reader.width for reader in self.readers], dtype=np.int64)
        self._chosen = np.array([task.schedule.chooses(slot) for slot in range(MINUTES_PER_DAY)])
        self._prefix = np.frombuffer(task.prefix, dtype=np.uint8)

    def batches(self, source: Source) -> Iterator[Batch]:
        at, rest = 0, b""
        try:
            with source.open() as file:
                while True:
                    more = file.read(_CHUNK)
                    content = rest + more
                    if not content:
                        return
                    data = np.frombuffer(content, dtype=np.uint8)
                    most = len(data) // (4 + _LEAST) + 1
                    out = tuple(np.empty(most, dtype=kind) for kind in _KINDS)
                    num, used, broken = decode_frames(
                        data, self._prefix, self._chosen, self._first, self._widths, _crc_tables(), _LIMITS, out
                    )
                    batch = Batch(source, at, data, *(array[:num] for array in out))
                    self._check(batch)
                    yield batch
                    at, rest = at + used, content[used:]
                    if broken or (not more and not used):
                        source.num_bad += 1
                        source.first_bad.append(f"{source.name}, byte {at}: {CUT_OFF}")
                        return
        except OSError as error:
            reason = error.strerror or type(error).__name__
            problem = Problem(f"the reports cannot be read: {reason}", remedy="Give the path of a report file.")
            raise InputError(source.name, [problem]) from None

    def requests(self, bodies: Sequence[bytes], *, stored: bool = False) -> tuple[Batch, IntArray, BoolArray]:
        """Read what several senders sent at once: the reports, whose each is, and who sent more than reports."""
        ends = np.cumsum([len(body) for body in bodies], dtype=np.int64)
        data = np.frombuffer(b"".join(bodies), dtype=np.uint8)
        out = tuple(np.empty(len(data) // (4 + _LEAST) + len(bodies), dtype=kind) for kind in _KINDS + "q")
        num, broken = decode_requests(
            data, ends, 4 + _LEAST, self._prefix, self._chosen, self._first, self._widths, _crc_tables(), _LIMITS, out
        )
        *fields, request = (array[:num] for array in out)
        batch = Batch(_SENT, 0, data, *fields)
        if not stored:  # what is stored was checked before
            self._check_payloads(batch)
        return batch, request, broken

    def _check(self, batch: Batch) -> None:
        """Mark reports of times that a collector of the task does not accept, and impossible payloads."""
        members = np.flatnonzero(batch.counted)
        times, inverse = np.unique(batch.day[members] * MINUTES_PER_DAY + batch.slot[members], return_inverse=True)
        accepted = [
            self._days[0] <= day <= self._days[1] and self.task.schedule.accepts(day, slot, self._received)
            for day, slot in (divmod(int(time), MINUTES_PER_DAY) for time in times)
        ]
        batch.status[members[~np.array(accepted, dtype=np.bool_)[inverse.ravel()]]] = OTHER_TIME
        self._check_payloads(batch)

    def _check_payloads(self, batch: Batch) -> None:
        for reader, own, rows in self.payloads(batch, batch.counted):
            batch.status[own[~reader.possible(rows)]] = IMPOSSIBLE

    def payloads(self, batch: Batch, chosen: BoolArray) -> Iterator[tuple[TierReader, IntArray, Packed]]:
        """Yield the payloads of some reports by tier and length."""
        members = np.flatnonzero(chosen)
        widths = (batch.start + batch.size - 4 - batch.payload_at)[members]
        for group in np.unique(batch.group[members]).tolist():
            of_group = batch.group[members] == group
            for width in np.unique(widths[of_group]).tolist():
                own = members[of_group & (widths == width)]
                yield self.readers[group], own, gather_rows(batch.data, batch.payload_at[own], width)

    def add(self, tallies: dict[Names, Tally], batch: Batch, chosen: BoolArray) -> None:
        for reader, own, rows in self.payloads(batch, chosen):
            labels = (
                np.zeros(len(own), dtype=np.int64) if self._label is None else self._label(reader, batch, own, rows)
            )
            for label in np.unique(labels).tolist():
                tally = tallies.setdefault((*reader.names, label), Tally(purpose=reader.names[0], tier=reader.names[1]))
                reader.add(tally, rows if self._label is None else rows[labels == label])

    def why(self, batch: Batch, place: int) -> str:
        """Say in words what is wrong with a report."""
        status, data = batch.status[place], batch.frame(place)
        if status == OTHER_TASK:
            return f"{batch.source.name}: made for another task"
        if status == OTHER_TIME:
            return f"{batch.source.name}: a report of {day_text(int(batch.day[place]))}, slot {batch.slot[place]}"
        try:
            report = Report.from_bytes(data, task=None if status == DAMAGED else self.task)
            purpose = self.task.purposes[report.purpose]
            tier = self.task.slot_tiers(purpose)[report.tier]
            mechanism_of(self.task, purpose).read(report.payload, tier=tier)
        except ReportError as error:
            where = f", byte {batch.at + batch.start[place] - 4}" if status == DAMAGED else ""
            return f"{batch.source.name}{where}: {error}"
        raise InternalError("a report was refused that is right.")


def tally_reports(
    task: Task,
    sources: Sequence[Source],
    *,
    days: tuple[int, int] | None = None,  # first and last, counted from 1 January 1970
    received: float | None = None,
    progress: Callable[[str], None] | None = None,
) -> Tallies:
    """Tally the reports of some sources, each report once."""
    result, by_names = _tally(Reading(task, days or task.schedule.span, received), sources, progress)
    result.by_tier = {(purpose, tier): tally for (purpose, tier, _), tally in by_names.items()}
    return result


def tally_groups(
    task: Task,
    sources: Sequence[Source],
    label: Label,  # Says which group each report belongs to, from what is readable in it
    *,
    days: tuple[int, int] | None = None,
    received: float | None = None,
) -> dict[int, Tallies]:
    """Tally the reports of some sources, each report once, by group."""
    _, by_names = _tally(Reading(task, days or task.schedule.span, received, label), sources, None)
    groups: dict[int, Tallies] = {}
    for purpose, tier, group in sorted(by_names):
        groups.setdefault(group, Tallies(task)).by_tier[purpose, tier] = by_names[purpose, tier, group]
    return groups


def _tally(
    reading: Reading, sources: Sequence[Source], progress: Callable[[str], None] | None
) -> tuple[Tallies, dict[Names, Tally]]:
    result, ids = Tallies(reading.task), [np.empty(0, dtype=np.uint64)]
    by_names: dict[Names, Tally] = {}

    def batches() -> Iterator[Batch]:
        for source in sources:
            source.num_bad, source.first_bad = source.num_unread, list(source.unread)
            yield from reading.batches(source)

    for batch in batches():
        result.num_read += len(batch.start)
        if progress is not None and result.num_read:
            progress(f"reading: {result.num_read:,} reports")
        for status, kind in KINDS.items():
            bad = np.flatnonzero(batch.status == status)
            result.left_out[kind] += len(bad)
            room = MAX_BAD_NAMED - len(result.first_bad)
            result.first_bad += [reading.why(batch, int(place)) for place in bad[:room]]
        ids.append(batch.high[batch.counted])
        result.days.update(np.unique(batch.day[batch.counted]).tolist())
        reading.add(by_names, batch, batch.counted)
    for source in sources:
        result.left_out["damaged"] += source.num_bad
        result.first_bad = [*result.first_bad, *source.first_bad][:MAX_BAD_NAMED]
    every = np.concatenate(ids)
    del ids
    every.sort()
    repeated = np.unique(every[1:][every[1:] == every[:-1]])
    del every
    if repeated.size:
        copies = _Copies(repeated)
        for batch in batches():
            copies.add(batch)
        copies.compare()
        by_times: dict[int, dict[Names, Tally]] = {}
        result.days.clear()
        for batch in batches():
            times = copies.times(batch)
            result.days.update(np.unique(batch.day[times > 0]).tolist())
            for num in np.unique(times[times > 0]).tolist():
                reading.add(by_times.setdefault(num, {}), batch, times == num)
        by_names = {}
        for num, tallies in by_times.items():
            for names, tally in tallies.items():
                tally.divide(num)
                if names in by_names:
                    by_names[names].merge(tally)
                else:
                    by_names[names] = tally
        result.left_out["duplicate"] += copies.num_duplicates
        result.left_out["conflicting"] += copies.num_conflicting
    result.left_out = +result.left_out  # without zeros
    return result, by_names


class _Copies:
    """Reports whose ids may repeat: how often each came, and whether all its copies are equal."""

    def __init__(self, repeated: Words) -> None:
        self._repeated = repeated  # first halves of ids, sorted
        self._seen: list[Words] = []  # one line for each: id and digest of the whole report, 16 bytes each
        self._at = 0

    def _suspects(self, batch: Batch) -> IntArray:
        near = np.minimum(np.searchsorted(self._repeated, batch.high), self._repeated.size - 1)
        return np.flatnonzero(batch.counted & (self._repeated[near] == batch.high))

    def add(self, batch: Batch) -> None:
        suspects, content = self._suspects(batch), batch.data.tobytes()
        starts = batch.start[suspects]
        ends = (starts + batch.size[suspects]).tolist()
        frames = (content[start:end] for start, end in zip(starts.tolist(), ends, strict=True))
        digests = b"".join([hashlib.blake2b(frame, digest_size=16).digest() for frame in frames])
        ids = np.stack([batch.high[suspects], batch.low[suspects]], axis=1)
        self._seen.append(np.hstack([ids, np.frombuffer(digests, dtype=np.uint64).reshape(-1, 2)]))

    def compare(self) -> None:
        lines = np.concatenate(self._seen)
        order = np.lexsort(lines.T[::-1])
        ordered = lines[order]
        is_first = np.append(True, np.any(ordered[1:, :2] != ordered[:-1, :2], axis=1))
        other = np.append(False, np.any(ordered[1:, 2:] != ordered[:-1, 2:], axis=1)) & ~is_first
        starts = np.flatnonzero(is_first)
        num = np.diff(np.append(starts, order.size))
        conflicting = np.add.reduceat(other, starts) > 0
        self.num_duplicates, self.num_conflicting = int((num - 1)[~conflicting].sum()), int(num[conflicting].sum())
        self._times = np.empty(order.size, dtype=np.int64)
        self._times[order] = np.repeat(np.where(conflicting, 0, num), num)

    def times(self, batch: Batch) -> IntArray:
        """Return how often each report comes in all; 0 if it must not count. Batches come in the same order again."""
        times, suspects = batch.counted.astype(np.int64), self._suspects(batch)
        times[suspects] = self._times[self._at : self._at + suspects.size]
        self._at += suspects.size
        return times
