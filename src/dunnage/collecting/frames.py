# SPDX-License-Identifier: Apache-2.0
"""Reports in bulk: binary reports decoded, checked and tallied a batch at a time, each one counted once.

*Copies.* What counts does not depend on the order in which reports come: equal copies of a report count once, and an id
with two different contents counts never. Reports that are damaged, of another task or time, or impossible take no part
in this. The first pass tallies everything and sorts eight bytes of each id, bucket by bucket on the disk, which shows
which ids may repeat. Only if some do, a second pass compares ids and contents of these reports, and a third tallies
again: what came c times goes into a tally of its own, which is divided by c, exactly, because tallies are sums over
reports.

*Engines.* Reports are also the column ``report`` of rows that live anywhere: :class:`ReportFold` tallies them there,
and :class:`IdSorting` and :class:`CopySorting` bring those together that may be copies.
"""

from __future__ import annotations

import io
import json
import math
import tempfile
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, ClassVar, NamedTuple

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
from dunnage.folds import NUM_BATCH_ROWS, ROW, Rows, gathered, numbered
from dunnage.noise.priorities import digests
from dunnage.noise.source import ceil_divide
from dunnage.tables.reader import FIRST_ROW, ReadOptions, RowStream

if TYPE_CHECKING:
    import pyarrow as pa

KINDS = {DAMAGED: "damaged", OTHER_TASK: "other_task", IMPOSSIBLE: "impossible", OTHER_TIME: "other_time"}
_CHUNK = 1 << 24  # bytes that are read at once
_LEAST = 26  # bytes of the shortest report, without its length
_LIMITS = (MAX_REPORT, MAX_INDEX, MAX_DAYS, MINUTES_PER_DAY - 1, MAX_PAYLOAD)
_KINDS = "qqBqqqQQq"  # of the fields of a batch
_WORD = 8  # payloads up to here are read as one number

Words = NDArray[np.uint64]
REPORT = "report"  # the column of reports in rows
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

    def batches(self, fold: ReportFold, first: int) -> Iterator[Batch]:
        return fold.reading.batches(self, first)

    @classmethod
    def of_reports(cls, reports: Iterable[Report]) -> Source:
        made = [report.to_bytes() for report in reports]
        data = b"".join(part for one in made for part in (len(one).to_bytes(4, "big"), one))
        return cls("the reports", lambda: io.BytesIO(data))


class ParquetSource(Source):
    """Reports in the column ``report`` of Parquet files."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), lambda: io.BytesIO())
        self._stream = RowStream(path, ReadOptions())
        check_reports(str(path), self._stream.schema)

    def batches(self, fold: ReportFold, first: int) -> Iterator[Batch]:
        own = replace(fold, source=self.name)
        for rows, positions in self._stream.batches([REPORT], NUM_BATCH_ROWS):
            batch = own.decoded(numbered(rows, positions))
            yield batch._replace(first=first + batch.first)


def check_reports(source: str, schema: pa.Schema) -> None:
    """Refuse rows without a column of reports."""
    import pyarrow as pa

    kinds = [item.type for item in schema if item.name == REPORT]
    if len(kinds) != 1 or not (pa.types.is_binary(kinds[0]) or pa.types.is_large_binary(kinds[0])):
        what = f"has no column {REPORT!r} of bytes" if len(kinds) < 2 else f"has several columns {REPORT!r}"
        raise InputError(source, [Problem(what, remedy="Put each report, as devices send it, into one row.")])


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


class Batch(NamedTuple):
    source: str
    at: int  # of its first byte in the source; -1 if it has rows
    first: int  # number of its first report in all
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

    def decode(self, source: str, at: int, first: int, data: Packed, places: IntArray) -> tuple[Batch, int, bool]:
        """Decode reports; return also how many bytes were used, and whether the rest is damaged."""
        most = len(data) // (4 + _LEAST) + 1 if not len(places) else len(places) - 1
        out = tuple(np.empty(most, dtype=kind) for kind in _KINDS)
        facts = (self._prefix, self._chosen, self._first, self._widths, _crc_tables(), _LIMITS)
        num, used, broken = decode_frames(data, places, *facts, out)
        batch = Batch(source, at, first, data, *(array[:num] for array in out))
        self._check(batch)
        return batch, used, broken

    def batches(self, source: Source, first: int = 0) -> Iterator[Batch]:
        at, rest, none = 0, b"", np.zeros(0, dtype=np.int64)
        try:
            with source.open() as file:
                while True:
                    more = file.read(_CHUNK)
                    content = rest + more
                    if not content:
                        return
                    data = np.frombuffer(content, dtype=np.uint8)
                    batch, used, broken = self.decode(source.name, at, first, data, none)
                    yield batch
                    at, rest, first = at + used, content[used:], first + len(batch.start)
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
        batch = Batch("the request", 0, 0, data, *fields)
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
        in_rows = f", row {FIRST_ROW + batch.first + place}" if batch.at < 0 else ""
        if status == OTHER_TASK:
            return f"{batch.source}{in_rows}: made for another task"
        if status == OTHER_TIME:
            when = f"{day_text(int(batch.day[place]))}, slot {batch.slot[place]}"
            return f"{batch.source}{in_rows}: a report of {when}"
        try:
            report = Report.from_bytes(data, task=None if status == DAMAGED else self.task)
            purpose = self.task.purposes[report.purpose]
            tier = self.task.slot_tiers(purpose)[report.tier]
            mechanism_of(self.task, purpose).read(report.payload, tier=tier)
        except ReportError as error:
            at_byte = f", byte {batch.at + batch.start[place] - 4}" if status == DAMAGED and not in_rows else in_rows
            return f"{batch.source}{at_byte}: {error}"
        raise InternalError("a report was refused that is right.")


@dataclass
class ReportState:
    """What is known of some reports."""

    by_times: dict[int, dict[Names, Tally]] = field(default_factory=dict)  # tallies of what came so often
    num_read: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    first_bad: list[tuple[int, str]] = field(default_factory=list)  # by the number of the report
    days: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class ReportFold:
    """Check and tally the reports of a task."""

    task: str
    days: tuple[int, int]
    received: float | None
    source: str  # in messages about rows
    copies: Copies | None = None  # where they are, once they are known
    label: Label | None = None  # says which group each report belongs to

    columns: ClassVar = (REPORT, ROW)

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name not in ("reading", "_last")}

    @cached_property
    def reading(self) -> Reading:
        return Reading(Task.from_json(self.task), self.days, self.received, self.label)

    def decoded(self, rows: pa.RecordBatch | Batch) -> Batch:
        """Decode the rows of a batch; the last one is remembered, as several ask for it."""
        if isinstance(rows, Batch):
            return rows
        last: tuple[pa.RecordBatch, Batch] | None = self.__dict__.get("_last")
        if last is None or last[0] is not rows:
            import pyarrow as pa

            column = rows.column(0).cast(pa.large_binary())
            _, ends, content = column.buffers()
            places = np.frombuffer(ends, dtype=np.int64)[column.offset : column.offset + len(column) + 1]
            data = np.frombuffer(content or b"", dtype=np.uint8)
            # The rows of a batch follow each other, except where a row was skipped, and rows of reports never are.
            first = rows.column(1)[0].as_py() if len(rows) else 0
            batch = self.reading.decode(self.source, -1, first, data, places)[0] if len(column) else None
            if batch is None:
                batch = self.reading.decode(self.source, -1, 0, data, np.zeros(0, dtype=np.int64))[0]
            self.__dict__["_last"] = last = (rows, batch)
        return last[1]

    def start(self) -> ReportState:
        return ReportState()

    def add(self, state: ReportState, rows: pa.RecordBatch | Batch) -> None:
        batch = self.decoded(rows)
        state.num_read += len(batch.start)
        for status, kind in KINDS.items():
            bad = np.flatnonzero(batch.status == status)
            state.left_out[kind] += len(bad)
            named = [(batch.first + int(place), self.reading.why(batch, int(place))) for place in bad[:MAX_BAD_NAMED]]
            state.first_bad = sorted([*state.first_bad, *named])[:MAX_BAD_NAMED]
        times = batch.counted.astype(np.int64) if self.copies is None else self.copies.times(batch)
        state.days.update(np.flatnonzero(np.bincount(batch.day[times > 0])).tolist())
        for num in (1 + np.flatnonzero(np.bincount(times)[1:])).tolist():
            self.reading.add(state.by_times.setdefault(num, {}), batch, times == num)

    def merge(self, state: ReportState, other: ReportState) -> None:
        for num, tallies in other.by_times.items():
            merge_tallies(state.by_times.setdefault(num, {}), tallies)
        state.num_read += other.num_read
        state.left_out.update(other.left_out)
        state.first_bad = sorted([*state.first_bad, *other.first_bad])[:MAX_BAD_NAMED]
        state.days |= other.days

    def dump(self, state: ReportState) -> bytes:
        tallies = {
            num: [(names[2], tally.to_dict()) for names, tally in sorted(own.items())]
            for num, own in sorted(state.by_times.items())
        }
        left_out, days = sorted((+state.left_out).items()), sorted(state.days)
        return json.dumps([tallies, state.num_read, left_out, state.first_bad, days]).encode()

    def load(self, data: bytes) -> ReportState:
        tallies, num_read, left_out, first_bad, days = json.loads(data)
        by_times: dict[int, dict[Names, Tally]] = {}
        for num, each in tallies.items():
            for label, own in each:
                tally = Tally.from_dict(own)
                by_times.setdefault(int(num), {})[tally.purpose, tally.tier, label] = tally
        return ReportState(
            by_times,
            num_read,
            Counter(dict(left_out)),
            [(place, why) for place, why in first_bad],
            set(days),
        )


def merge_tallies(into: dict[Names, Tally], more: dict[Names, Tally]) -> None:
    for names, tally in more.items():
        if names in into:
            into[names].merge(tally)
        else:
            into[names] = tally


_NUM_BUCKETS = 256
_CONTENTS = bytes(32)  # the key of digests that compare contents: none
_SUSPECT = np.dtype([("id", "<u8", 2), ("content", "<u8", 2), ("place", "<i8")])


def _in_buckets(high: Words, lines: NDArray[Any]) -> Iterator[tuple[int, bytes]]:
    own = (high >> np.uint64(56)).astype(np.uint8)  # of bytes, numpy makes a radix sort
    ordered, ends = lines[np.argsort(own, kind="stable")], np.cumsum(np.bincount(own, minlength=_NUM_BUCKETS))
    for bucket, (start, end) in enumerate(zip((0, *ends), ends, strict=False)):
        if end > start:
            yield bucket, ordered[start:end].tobytes()


@dataclass(frozen=True)
class IdSorting:
    """Find first halves of ids that occur more than once."""

    fold: ReportFold
    columns: ClassVar = (REPORT, ROW)
    num_buckets: ClassVar = _NUM_BUCKETS

    def spread(self, rows: pa.RecordBatch | Batch) -> Iterator[tuple[int, bytes]]:
        batch = self.fold.decoded(rows)
        high = batch.high[batch.counted]
        return _in_buckets(high, high)

    def gather(self, content: bytes) -> bytes:
        ids = np.frombuffer(content, dtype=np.uint64).copy()
        ids.sort()
        repeated: Words = ids[1:][ids[1:] == ids[:-1]]
        each: bytes = repeated[np.append(True, repeated[1:] != repeated[:-1])[: len(repeated)]].tobytes()
        return each


@dataclass(frozen=True)
class CopySorting:
    """Compare reports whose ids may repeat: how often each came; 0 if its copies differ."""

    fold: ReportFold
    repeated: Words  # first halves of ids, sorted
    columns: ClassVar = (REPORT, ROW)
    num_buckets: ClassVar = _NUM_BUCKETS

    def spread(self, rows: pa.RecordBatch | Batch) -> Iterator[tuple[int, bytes]]:
        batch = self.fold.decoded(rows)
        near = np.minimum(np.searchsorted(self.repeated, batch.high), self.repeated.size - 1)
        suspects = np.flatnonzero(batch.counted & (self.repeated[near] == batch.high))
        starts = batch.start[suspects]
        lines = np.empty(suspects.size, dtype=_SUSPECT)
        lines["id"] = np.stack([batch.high[suspects], batch.low[suspects]], axis=1)
        lines["content"] = digests(_CONTENTS, batch.data, starts + batch.size[suspects], starts)
        lines["place"] = batch.first + suspects
        return _in_buckets(batch.high[suspects], lines)

    def gather(self, content: bytes) -> bytes:
        lines = np.frombuffer(content, dtype=_SUSPECT)
        words = np.concatenate([lines["id"], lines["content"]], axis=1)
        order = np.argsort(words[:, 0])
        lines, words = lines[order], words[order]
        starts = np.flatnonzero(np.append(True, words[1:, 0] != words[:-1, 0]))
        num = np.diff(np.append(starts, len(lines)))
        times = np.repeat(num, num)
        # Halves of ids that are equal, but of several ids or contents, are rare.
        differ = np.any(words != words[np.repeat(starts, num)], axis=1)
        if differ.any():
            unsure = np.flatnonzero(np.repeat(np.logical_or.reduceat(differ, starts), num))
            times[unsure] = _times(words[unsure])
        return np.stack([lines["place"], times]).astype(np.int64).tobytes()


def _times(words: Words) -> IntArray:
    """Return how often each report came, by its id and content, as two words each; 0 if its copies differ."""
    order = np.lexsort(words.T[::-1])
    ids, contents = words[order, :2], words[order, 2:]
    is_first = np.append(True, np.any(ids[1:] != ids[:-1], axis=1))
    other = np.append(False, np.any(contents[1:] != contents[:-1], axis=1)) & ~is_first
    starts = np.flatnonzero(is_first)
    num = np.diff(np.append(starts, order.size))
    times = np.empty(order.size, dtype=np.int64)
    times[order] = np.repeat(np.where(np.add.reduceat(other, starts) > 0, 0, num), num)
    return times


@dataclass(frozen=True)
class Copies:
    """The reports whose ids repeat, rising, and how often each came; 0 if it must not count."""

    places: IntArray
    num: IntArray

    @classmethod
    def of(cls, parts: Iterable[bytes]) -> Copies:
        lines = [np.frombuffer(part, dtype=np.int64).reshape(2, -1) for part in parts]
        places, num = np.concatenate(lines, axis=1)
        order = np.argsort(places)
        return cls(places[order], num[order])

    def times(self, batch: Batch) -> IntArray:
        times = batch.counted.astype(np.int64)
        start, end = np.searchsorted(self.places, [batch.first, batch.first + len(times)])
        times[self.places[start:end] - batch.first] = self.num[start:end]
        return times

    @property
    def num_duplicates(self) -> int:
        return round(sum((times - 1) * num / times for times, num in self._counted if times))

    @property
    def num_conflicting(self) -> int:
        return sum(num for times, num in self._counted if not times)

    @property
    def _counted(self) -> list[tuple[int, int]]:
        counts = np.bincount(self.num)
        return [(int(times), int(counts[times])) for times in np.flatnonzero(counts)]


class Reports:
    """Reports of several sources, one after the other."""

    source = "the reports"

    def __init__(self, sources: Sequence[Source], progress: Callable[[str], None] | None = None) -> None:
        self._sources, self._progress = sources, progress

    def batches(self, fold: ReportFold) -> Iterator[Batch]:
        first = 0
        for source in self._sources:
            source.num_bad, source.first_bad = source.num_unread, list(source.unread)
            for batch in source.batches(fold, first):
                if self._progress is not None and len(batch.start):
                    self._progress(f"reading: {batch.first + len(batch.start):,} reports")
                yield batch
                first = batch.first + len(batch.start)

    def fold(self, fold: ReportFold) -> ReportState:
        state = fold.start()
        for batch in self.batches(fold):
            fold.add(state, batch)
        return state

    def sort(self, sorting: IdSorting | CopySorting) -> Iterator[bytes]:
        return gathered(sorting, self.batches(sorting.fold))

    def fold_and_sort(self, fold: ReportFold, sorting: IdSorting) -> tuple[ReportState, Iterable[bytes]]:
        """Do both while reports are read once."""
        state = fold.start()

        def batches() -> Iterator[Batch]:
            for batch in self.batches(fold):
                fold.add(state, batch)
                yield batch

        return state, list(gathered(sorting, batches()))


def tally_reports(
    task: Task,
    reports: Sequence[Source] | Rows,
    *,
    days: tuple[int, int] | None = None,  # first and last, counted from 1 January 1970
    received: float | None = None,
    progress: Callable[[str], None] | None = None,
) -> Tallies:
    """Tally reports, each once, wherever they live."""
    live = reports if isinstance(reports, Rows) else Reports(reports, progress)
    fold = ReportFold(task.to_json(), days or task.schedule.span, received, live.source)
    result, by_names = _tally(task, live, fold)
    for source in () if isinstance(reports, Rows) else reports:
        result.left_out["damaged"] += source.num_bad
        result.first_bad = [*result.first_bad, *source.first_bad][:MAX_BAD_NAMED]
    result.by_tier = {(purpose, tier): tally for (purpose, tier, _), tally in by_names.items()}
    result.left_out = +result.left_out  # without zeros
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
    fold = ReportFold(task.to_json(), days or task.schedule.span, received, Reports.source, label=label)
    groups: dict[int, Tallies] = {}
    for (purpose, tier, group), tally in sorted(_tally(task, Reports(sources), fold)[1].items()):
        groups.setdefault(group, Tallies(task)).by_tier[purpose, tier] = tally
    return groups


def _tally(task: Task, live: Any, fold: ReportFold) -> tuple[Tallies, dict[Names, Tally]]:
    if isinstance(live, Reports):
        state, parts = live.fold_and_sort(fold, IdSorting(fold))
    else:
        state, parts = live.fold(fold), live.sort(IdSorting(fold))
    repeated = np.sort(np.frombuffer(b"".join(parts), dtype=np.uint64))
    result, by_names = Tallies(task), dict[Names, Tally]()
    result.num_read, result.left_out = state.num_read, state.left_out
    result.first_bad = [why for _, why in state.first_bad]
    if repeated.size:
        copies = Copies.of(live.sort(CopySorting(fold, repeated)))
        state = live.fold(replace(fold, copies=copies))
        result.left_out["duplicate"] += copies.num_duplicates
        result.left_out["conflicting"] += copies.num_conflicting
    result.days = state.days
    for num, tallies in state.by_times.items():
        for tally in tallies.values():
            tally.divide(num)
        merge_tallies(by_names, tallies)
    return result, by_names
