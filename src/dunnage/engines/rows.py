# SPDX-License-Identifier: Apache-2.0
"""Rows that stay where they live: the fold that checks them, the dataset that it gives, and rows released from it."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dunnage.arrays import IntArray
from dunnage.errors import MOST_ROWS_NAMED, InputError, ParameterError, Problem
from dunnage.folds import ROW, Buckets, Piece, Rows
from dunnage.mechanisms.base import DrawnRows, Mechanism, RowMaker
from dunnage.model.domains import Category
from dunnage.model.guarantees import SpendPurpose
from dunnage.model.policy import Policy
from dunnage.model.schema import Role
from dunnage.noise.priorities import KEY_BYTES
from dunnage.noise.source import Noise
from dunnage.noise.streams import Stream
from dunnage.tables.columns import Private, decoded
from dunnage.tables.dataset import (
    Dataset,
    LeftOut,
    Original,
    Parts,
    batches_digest,
    check_period,
    check_rows,
    column_problems,
    content_digest,
)
from dunnage.tables.finest import CHANGED
from dunnage.tables.parquet import Spool
from dunnage.tables.reader import FIRST_ROW

_BUCKET_ROWS = 1 << 19  # of a release that are sorted at once
_HIGH, _LOW, _SOURCE, _REASON = "\0high", "\0low", "\0source", "\0reason"


@dataclass(eq=False, repr=False, kw_only=True)
class CheckedState(Private):
    inner: Any
    num_rows: int = 0  # that are kept
    num_read: int = 0
    dates: set[int] = field(default_factory=set)  # service dates of trips, by number
    times: dict[str, Counter[str]] = field(default_factory=dict)  # how often each label occurs
    faults: dict[tuple[int, int], Problem] = field(default_factory=dict)
    left_out: LeftOut = field(default_factory=LeftOut)
    cells: list[pa.Table] = field(default_factory=list)  # the rows left out, as they were read, with their numbers

    def add_faults(self, faults: dict[tuple[int, int], Problem]) -> None:
        for place, problem in faults.items():
            known = self.faults.get(place, replace(problem, rows=(), num_rows=0))
            rows = tuple(sorted((*known.rows, *problem.rows))[:MOST_ROWS_NAMED])
            self.faults[place] = replace(problem, rows=rows, num_rows=known.num_rows + problem.num_rows)


@dataclass(frozen=True, eq=False, repr=False)
class CheckedBatch(Private):
    """Rows of a batch as a dataset, and those that the policy leaves out."""

    data: Dataset
    left_out: LeftOut
    faults: dict[tuple[int, int], Problem]
    table: pa.Table  # as it was read
    numbers: IntArray  # of all its rows

    def cells(self, names: Iterable[str], chosen: Any) -> pa.Table:
        columns = {name: decoded(self.table.column(name).combine_chunks()) for name in names}
        return pa.table({**columns, ROW: self.numbers}).filter(pa.array(chosen))


@dataclass(frozen=True)
class CheckedFold:
    """Check rows, and fold those that are kept as a mechanism needs them."""

    policy: Policy
    period: str | None
    source: str  # in errors
    listed: tuple[str, ...]  # columns of lists for the owner
    columns: tuple[str, ...]
    problems: tuple[Problem, ...]  # with the columns
    inner: Any  # a fold over datasets

    @classmethod
    def of(cls, policy: Policy, period: str | None, rows: Rows, inner: Any) -> CheckedFold:
        rule, every = policy.period, list(rows.schema.names)
        needed = {item.name for item in policy.schema if item.role is not Role.DROP} | set(policy.listed_columns)
        needed |= {rule.column} if rule is not None and rule.column is not None else set()
        once = tuple(name for name in every if name in needed and every.count(name) == 1)
        listed = tuple(name for name in policy.listed_columns if name in once)
        problems = tuple(column_problems(every, policy.schema))
        return cls(policy, period, rows.source, listed, (*once, ROW), problems, inner)

    def start(self) -> CheckedState:
        faults = {(-2, place): problem for place, problem in enumerate(self.problems)}
        return CheckedState(inner=self.inner.start(), faults=faults)

    def check(self, table: pa.Table, numbers: IntArray) -> CheckedBatch:
        checked = check_rows(table, self.policy, self.period, source=self.source, numbers=numbers)
        rows = checked.rows[checked.keep]
        kept = pa.table(checked.columns) if not checked.faults else pa.table({})
        kept = kept.filter(pa.array(checked.keep)) if kept.num_columns else kept
        data = Dataset(
            table=kept,
            policy=self.policy,
            period=self.period,
            source=self.source,
            parts=Parts(table=kept, source_rows=rows, starts=np.arange(len(rows) + 1)),
            original=Original(table.slice(0, 0), rows[:0]),
        )
        return CheckedBatch(data, checked.left_out, checked.faults, table, numbers)

    def add(self, state: CheckedState, batch: pa.RecordBatch) -> None:
        table = pa.Table.from_batches([batch])
        numbers = FIRST_ROW + table.column(ROW).to_numpy()
        checked = self.check(table.drop_columns([ROW]), numbers)
        state.add_faults(checked.faults)
        if state.faults:  # nothing will be released
            return
        data = checked.data
        self.inner.add(state.inner, data)
        state.num_rows, state.num_read = state.num_rows + len(data.source_rows), state.num_read + len(numbers)
        if self.policy.schema.trip is not None:
            state.dates.update(np.unique(data.service_dates).tolist())
        for item in self.policy.schema:
            if item.kind in (None, Category.kind) and item.role not in (Role.DROP, Role.IDENTIFIER):
                labels = data.column(item.name).cast(pa.string()).value_counts()
                own = dict(zip(labels.field("values").to_pylist(), labels.field("counts").to_pylist(), strict=True))
                state.times.setdefault(item.name, Counter()).update(own)
        if checked.left_out:
            state.left_out |= checked.left_out
            state.cells.append(checked.cells(self.listed, np.isin(numbers, list(checked.left_out))))

    def merge(self, state: CheckedState, other: CheckedState) -> None:
        state.add_faults(other.faults)
        self.inner.merge(state.inner, other.inner)
        state.num_rows, state.num_read = state.num_rows + other.num_rows, state.num_read + other.num_read
        state.dates |= other.dates
        for name, times in other.times.items():
            state.times.setdefault(name, Counter()).update(times)
        state.left_out |= other.left_out
        state.cells += other.cells

    def dump(self, state: CheckedState) -> bytes:
        if state.faults:
            return json.dumps([[*place, asdict(problem)] for place, problem in sorted(state.faults.items())]).encode()
        inner, own = self.inner.dump(state.inner), b""
        if state.cells:
            rows = pa.concat_tables(state.cells)
            own = _dumped(rows.take(pc.sort_indices(rows.column(ROW))).combine_chunks())
        figures = {
            "num_inner": len(inner),
            "num_bytes": len(own),
            "num_rows": state.num_rows,
            "num_read": state.num_read,
            "dates": sorted(state.dates),
            "times": {name: sorted(times.items(), key=str) for name, times in sorted(state.times.items())},
            "left_out": sorted((row, *why) for row, why in state.left_out.items()),
        }
        return b"".join([json.dumps(figures).encode(), b"\n", inner, own])

    def load(self, data: bytes) -> CheckedState:
        state, (head, _, content) = self.start(), data.partition(b"\n")
        figures = json.loads(head)
        if isinstance(figures, list):
            for place, number, fault in figures:
                state.faults[place, number] = Problem(**{**fault, "rows": tuple(fault["rows"])})
            return state
        state.inner = self.inner.load(content[: figures["num_inner"]])
        state.num_rows, state.num_read = figures["num_rows"], figures["num_read"]
        state.dates = set(figures["dates"])
        state.times = {name: Counter(dict(times)) for name, times in figures["times"].items()}
        state.left_out.update({row: (reason, column) for row, reason, column in figures["left_out"]})
        if figures["num_bytes"]:
            state.cells = [_loaded(content[figures["num_inner"] :])]
        return state


def _dumped(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _loaded(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(pa.py_buffer(data)).read_all()


class FoldedRows(Dataset):
    """Rows that were checked and folded where they live. No row of them is here but those that were left out."""

    elsewhere = True

    def __init__(self, fold: CheckedFold, state: CheckedState, rows: Rows) -> None:
        numbers, none = np.zeros(0, dtype=np.int64), pa.table({})
        super().__init__(
            table=none,
            policy=fold.policy,
            period=fold.period,
            source=fold.source,
            parts=Parts(table=none, source_rows=numbers, starts=np.zeros(1, dtype=np.int64)),
            original=self._listed(fold, state.cells),
            left_out=state.left_out,
        )
        self.folded, self._num_rows, self._times = fold.inner.result(state.inner), state.num_rows, state.times
        self._dates = np.array(sorted(state.dates), dtype=np.int64)
        self._fold, self._rows, self._state_cells, self.num_read = fold, rows, state.cells, state.num_read
        self._digests: list[tuple[int, bytes]] = []

    @staticmethod
    def _listed(fold: CheckedFold, cells: list[pa.Table]) -> Original:
        nothing = {name: pa.array([], pa.string()) for name in fold.listed}
        table = pa.concat_tables(cells or [pa.table({**nothing, ROW: np.zeros(0, dtype=np.int64)})])
        table = table.take(pc.sort_indices(table.column(ROW)))
        return Original(table, table.column(ROW).to_numpy())

    def __len__(self) -> int:
        return self._num_rows

    @property
    def purpose(self) -> SpendPurpose:
        return self.policy.purpose(self.period)  # whether rows are those of an earlier spend is not known

    @property
    def service_dates(self) -> IntArray:
        """The numbers of all service dates, each once."""
        return self._dates

    @property
    def trip_groups(self) -> None:
        return None

    @cached_property
    def persons(self) -> None:
        return None

    def column(self, name: str) -> pa.Array:
        raise ParameterError("this needs the rows themselves, and they are elsewhere. Load them without an engine.")

    def label_times(self, name: str) -> IntArray:
        return np.array(list(self._times.get(name, Counter()).values()), dtype=np.int64)

    def keyed_digest(self, key: bytes) -> str:
        """Return a digest of the rows as they were released, batch by batch, or of the counts of trips."""
        if self.schema.trip is not None:
            from dunnage.mechanisms.counts import true_counts

            return true_counts(self).keyed_digest(key)
        return batches_digest(key, self._digests)

    @property
    def cuts(self) -> list[int]:
        return [first for first, _ in sorted(self._digests)]

    def fold_rows(self, inner: Any) -> Any:
        """Fold the kept rows once more."""
        fold = replace(self._fold, inner=inner)
        state = self._rows.fold(fold)
        if state.faults or state.num_rows != len(self):
            raise InputError(self.source, [CHANGED])
        return inner.result(state.inner)

    def sort_rows(self, sorting: Any) -> Iterable[bytes]:
        """Bring kept rows together: a sorting over datasets."""
        return self._rows.sort(_CheckedSorting(self._fold, sorting))

    def draw_rows(self, maker: RowMaker, noise: Noise, classes: Any = None) -> DrawnRows:
        """Release rows in random order, with noise from streams of one key, which is then forgotten.

        ``classes`` are those of all rows by their position, if rows alone do not tell.
        """
        task = _RowTask(self._fold, maker, noise.draw_bytes(KEY_BYTES))
        pieces: Iterable[Piece] = self._rows.pieces()
        if classes is not None:
            pairs = zip(pieces, [*(piece.first for piece in pieces), self.num_read][1:], strict=True)
            pieces = (piece._replace(classes=np.asarray(classes[piece.first : end])) for piece, end in pairs)
        bits = min(16, max(0, math.ceil(math.log2(max(1, len(self)) / _BUCKET_ROWS))))
        buckets, cells, reasons, num = Buckets(1 << bits), list(self._state_cells), dict[str, list[int]](), 0
        for first, digest, released, left in self._rows.run(pieces, self._fold.columns[:-1], task):
            self._digests.append((first, digest))
            table = _loaded(released)
            high = table.column(_HIGH).to_numpy()
            own = (high >> np.uint64(64 - bits)).astype(np.uint16) if bits else np.zeros(len(high), dtype=np.uint16)
            table = table.take(pa.array(np.argsort(own, kind="stable")))
            ends = np.cumsum(np.bincount(own, minlength=1 << bits))
            for bucket, (start, end) in enumerate(zip((0, *ends), ends, strict=False)):
                if end > start:
                    part = _dumped(table.slice(start, end - start))
                    buckets.add(bucket, len(part).to_bytes(8, "little") + part)
            num += table.num_rows
            if left:
                table = _loaded(left)
                num += table.num_rows
                for reason, row in zip(table.column(_REASON).to_pylist(), table.column(ROW).to_pylist(), strict=True):
                    reasons.setdefault(reason, []).append(row)
                cells.append(table.drop_columns([_REASON]))
        if num != len(self):
            raise InputError(self.source, [CHANGED])
        self.original = self._listed(self._fold, cells)
        return self._ordered(buckets, {reason: sorted(rows) for reason, rows in sorted(reasons.items())})

    def _ordered(self, buckets: Buckets, left_out: dict[str, list[int]]) -> DrawnRows:
        data, key, first = Spool(), Spool(), 0
        own = [item.name for item in self.schema.identifiers]
        for content in buckets:
            parts, at = [], 0
            while at < len(content):
                size = int.from_bytes(content[at : at + 8], "little")
                parts.append(_loaded(content[at + 8 : at + 8 + size]))
                at += 8 + size
            if not parts:
                continue
            table = pa.concat_tables(parts).combine_chunks()
            order = np.lexsort((table.column(_LOW).to_numpy(), table.column(_HIGH).to_numpy()))
            table = table.take(pa.array(order))
            row = pa.array(np.arange(first, first + table.num_rows, dtype=np.int64))
            first += table.num_rows
            names = [name for name in table.column_names if not name.startswith("\0")]
            data.add(pa.table({"row": row, **{name: table.column(name) for name in names}}))
            classes = {"class_id": table.column("class_id")} if "class_id" in names else {}
            listed = {name: table.column(f"\0{name}") for name in own}
            key.add(pa.table({"row": row, "source_row": table.column(_SOURCE), **classes, **listed}))
        return DrawnRows(data.table(), key.table(), left_out)


@dataclass(frozen=True)
class _CheckedSorting:
    fold: CheckedFold
    inner: Any

    @property
    def columns(self) -> tuple[str, ...]:
        return self.fold.columns

    @property
    def num_buckets(self) -> int:
        num: int = self.inner.num_buckets
        return num

    def spread(self, batch: pa.RecordBatch) -> Iterable[tuple[int, bytes]]:
        table = pa.Table.from_batches([batch])
        checked = self.fold.check(table.drop_columns([ROW]), FIRST_ROW + table.column(ROW).to_numpy())
        if checked.faults:
            raise InputError(self.fold.source, [CHANGED])
        pairs: Iterable[tuple[int, bytes]] = self.inner.spread(checked.data)
        return pairs

    def gather(self, content: bytes) -> bytes:
        gathered: bytes = self.inner.gather(content)
        return gathered


@dataclass(frozen=True)
class _RowTask:
    """Release the rows of a piece. It runs in tasks, perhaps several times, and does the same each time."""

    fold: CheckedFold
    maker: RowMaker
    key: bytes = field(repr=False)

    def __call__(
        self, piece: Piece, batches: Iterable[tuple[pa.RecordBatch, IntArray]]
    ) -> Iterator[tuple[int, bytes, bytes, bytes]]:
        stream = Stream(self.key, piece.name)
        for batch, positions in batches:
            checked = self.fold.check(pa.Table.from_batches([batch]), FIRST_ROW + positions)
            if checked.faults:
                raise InputError(self.fold.source, [CHANGED])
            data = checked.data
            maker: Any = self.maker
            if piece.classes is not None:
                maker = replace(maker, own=piece.classes[data.source_rows - FIRST_ROW - piece.first].astype(np.int64))
            made = maker.make(data, stream)
            words = np.frombuffer(stream.draw_bytes(16 * len(made.rows)), dtype="<u8").reshape(-1, 2)
            columns: dict[str, object] = {_HIGH: words[:, 0].copy(), _LOW: words[:, 1].copy(), **made.columns}
            columns[_SOURCE] = data.source_rows[made.rows]
            for item in data.schema.identifiers:
                columns[f"\0{item.name}"] = data.column(item.name).take(pa.array(made.rows))
            left = b""
            if made.left_out:
                reason = np.full(len(checked.numbers), None, dtype=object)
                for why, rows in made.left_out.items():
                    reason[np.searchsorted(checked.numbers, data.source_rows[rows])] = why
                chosen = np.array([why is not None for why in reason])
                if chosen.any():
                    table = checked.cells(self.fold.listed, chosen)
                    left = _dumped(table.append_column(_REASON, pa.array(reason[chosen].tolist(), pa.string())))
            first = int(checked.numbers[0]) if len(checked.numbers) else FIRST_ROW + piece.first
            yield first, content_digest(data.parts), _dumped(pa.table(columns)), left


def check_elsewhere(opened: Callable[[], Rows], policy: Policy, period: str | None, mechanism: Mechanism) -> Dataset:
    """Check rows where they live, and fold what the mechanism of the policy needs."""
    check_period(policy, period)
    inner = mechanism.fold(policy.schema, period)
    if inner is None:
        raise ParameterError(
            f"{mechanism.name} needs all rows in memory with this policy. Leave the engine out: they must fit."
        )
    if mechanism.kind == "counts" and policy.schema.trip is None:
        raise ParameterError("a table of categories is counted in memory. Leave the engine out.")
    if policy.schema.together is not None:
        raise ParameterError("together merges rows, which needs all of them in memory. Leave the engine out.")
    rows = opened()
    if mechanism.kind != "counts":
        rows.pieces()  # refuses rows that cannot be released where they are, before anything is spent
    fold = CheckedFold.of(policy, period, rows, inner)
    state = rows.fold(fold)
    if problems := [*rows.problems, *(problem for _, problem in sorted(state.faults.items()))]:
        raise InputError(rows.source, problems)
    return FoldedRows(fold, state, rows)
