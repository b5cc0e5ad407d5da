# SPDX-License-Identifier: Apache-2.0
"""Trips that are counted where they live: the fold of their cells, and the dataset that it gives."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dunnage.arrays import IntArray
from dunnage.errors import MOST_ROWS_NAMED, InputError, ParameterError, Problem
from dunnage.folds import ROW, Rows
from dunnage.mechanisms.counts import MAX_TRIPS, true_counts
from dunnage.model.domains import Category
from dunnage.model.guarantees import SpendPurpose
from dunnage.model.policy import Policy
from dunnage.model.schema import Role
from dunnage.tables.columns import Private, decoded
from dunnage.tables.dataset import Dataset, LeftOut, Original, Parts, check_period, check_rows, column_problems
from dunnage.tables.reader import FIRST_ROW

MAX_TABLE_CELLS = 1 << 25  # up to here the sums are a table of all cells, beyond it a list of those that occur
_MIN_PENDING = 1 << 22


class CellSums(Private):
    """How many trips each cell has, at most :data:`~dunnage.mechanisms.counts.MAX_TRIPS`."""

    def __init__(self, num_cells: int) -> None:
        self._table = np.zeros(num_cells, dtype=np.int64) if num_cells <= MAX_TABLE_CELLS else None
        self._lists = [(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))]

    def add(self, cells: IntArray, counts: IntArray) -> None:
        """Add the counts of cells that all differ."""
        if self._table is not None:
            self._table[cells] = np.minimum(self._table[cells] + counts, MAX_TRIPS)
            return
        self._lists.append((cells, counts))
        if sum(len(more) for more, _ in self._lists[1:]) > max(_MIN_PENDING, len(self._lists[0][0])):
            self._lists = [self.listed()]

    def listed(self) -> tuple[IntArray, IntArray]:
        """Return the cells that have trips, rising, and how many each has."""
        if self._table is not None:
            cells = np.flatnonzero(self._table)
            return cells, self._table[cells]
        cells, counts = (np.concatenate(parts) for parts in zip(*self._lists, strict=True))
        order = np.argsort(cells, kind="stable")
        occupied, starts = np.unique(cells[order], return_index=True)
        sums = np.add.reduceat(counts[order], starts) if len(starts) else counts
        return occupied, np.minimum(sums, MAX_TRIPS)


@dataclass(eq=False, repr=False, kw_only=True)
class TripState(Private):
    sums: CellSums
    num_rows: int = 0  # that are counted
    num_read: int = 0
    dates: set[int] = field(default_factory=set)  # service dates of the trips, by number
    times: dict[str, Counter[str]] = field(default_factory=dict)  # how often each label occurs
    faults: dict[tuple[int, int], Problem] = field(default_factory=dict)
    left_out: LeftOut = field(default_factory=LeftOut)
    cells: list[pa.Table] = field(default_factory=list)  # the rows left out, as they were read, with their numbers

    def add_faults(self, faults: dict[tuple[int, int], Problem]) -> None:
        for place, problem in faults.items():
            known = self.faults.get(place, replace(problem, rows=(), num_rows=0))
            rows = tuple(sorted((*known.rows, *problem.rows))[:MOST_ROWS_NAMED])
            self.faults[place] = replace(problem, rows=rows, num_rows=known.num_rows + problem.num_rows)


@dataclass(frozen=True)
class TripFold:
    """Check trips, and count them by cell."""

    policy: Policy
    period: str | None
    source: str  # in errors
    listed: tuple[str, ...]  # columns of lists for the owner
    columns: tuple[str, ...]
    problems: tuple[Problem, ...]  # with the columns

    @classmethod
    def of(cls, policy: Policy, period: str | None, rows: Rows) -> TripFold:
        rule, every = policy.period, list(rows.schema.names)
        needed = {item.name for item in policy.schema if item.role is not Role.DROP} | set(policy.listed_columns)
        needed |= {rule.column} if rule is not None and rule.column is not None else set()
        once = tuple(name for name in every if name in needed and every.count(name) == 1)
        listed = tuple(name for name in policy.listed_columns if name in once)
        return cls(policy, period, rows.source, listed, (*once, ROW), tuple(column_problems(every, policy.schema)))

    def start(self) -> TripState:
        sums = CellSums(self.policy.schema.universe(self.period).num_cells)
        return TripState(sums=sums, faults={(-2, place): problem for place, problem in enumerate(self.problems)})

    def add(self, state: TripState, batch: pa.RecordBatch) -> None:
        table = pa.Table.from_batches([batch])
        numbers = FIRST_ROW + table.column(ROW).to_numpy()
        table = table.drop_columns([ROW])
        checked = check_rows(table, self.policy, self.period, source=self.source, numbers=numbers)
        state.add_faults(checked.faults)
        if state.faults:  # nothing will be released
            return
        rows = checked.rows[checked.keep]
        kept = pa.table(checked.columns).filter(pa.array(checked.keep))
        data = Dataset(
            table=kept,
            policy=self.policy,
            period=self.period,
            source=self.source,
            parts=Parts(table=kept, source_rows=rows, starts=np.arange(len(rows) + 1)),
            original=Original(table.slice(0, 0), rows[:0]),
        )
        counted = true_counts(data)
        state.sums.add(counted.cells, counted.counts)
        state.num_rows, state.num_read = state.num_rows + len(rows), state.num_read + len(numbers)
        state.dates.update(np.unique(data.service_dates).tolist())
        for item in self.policy.schema:
            if item.kind in (None, Category.kind) and item.role not in (Role.DROP, Role.IDENTIFIER):
                labels = data.column(item.name).cast(pa.string()).value_counts()
                own = dict(zip(labels.field("values").to_pylist(), labels.field("counts").to_pylist(), strict=True))
                state.times.setdefault(item.name, Counter()).update(own)
        if checked.left_out:
            state.left_out |= checked.left_out
            chosen = np.isin(numbers, list(checked.left_out))
            cells = {name: decoded(table.column(name).combine_chunks()) for name in self.listed}
            state.cells.append(pa.table({**cells, ROW: numbers}).filter(pa.array(chosen)))

    def merge(self, state: TripState, other: TripState) -> None:
        state.add_faults(other.faults)
        state.sums.add(*other.sums.listed())
        state.num_rows, state.num_read = state.num_rows + other.num_rows, state.num_read + other.num_read
        state.dates |= other.dates
        for name, times in other.times.items():
            state.times.setdefault(name, Counter()).update(times)
        state.left_out |= other.left_out
        state.cells += other.cells

    def dump(self, state: TripState) -> bytes:
        if state.faults:
            return json.dumps([[*place, asdict(problem)] for place, problem in sorted(state.faults.items())]).encode()
        cells, counts = state.sums.listed()
        sink = pa.BufferOutputStream()
        if state.cells:
            rows = pa.concat_tables(state.cells)
            rows = rows.take(pc.sort_indices(rows.column(ROW))).combine_chunks()
            with pa.ipc.new_stream(sink, rows.schema) as stream:
                stream.write_table(rows)
        own = sink.getvalue().to_pybytes()
        figures = {
            "num_cells": len(cells),
            "num_bytes": len(own),
            "num_rows": state.num_rows,
            "num_read": state.num_read,
            "dates": sorted(state.dates),
            "times": {name: sorted(times.items(), key=str) for name, times in sorted(state.times.items())},
            "left_out": sorted((row, *why) for row, why in state.left_out.items()),
        }
        return b"".join([json.dumps(figures).encode(), b"\n", cells.tobytes(), counts.tobytes(), own])

    def load(self, data: bytes) -> TripState:
        state, (head, _, content) = self.start(), data.partition(b"\n")
        figures = json.loads(head)
        if isinstance(figures, list):
            for place, number, fault in figures:
                state.faults[place, number] = Problem(**{**fault, "rows": tuple(fault["rows"])})
            return state
        size, num = 8 * figures["num_cells"], figures["num_cells"]
        state.sums.add(*np.frombuffer(content[: 2 * size], dtype=np.int64).reshape(2, num))
        state.num_rows, state.num_read = figures["num_rows"], figures["num_read"]
        state.dates = set(figures["dates"])
        state.times = {name: Counter(dict(times)) for name, times in figures["times"].items()}
        state.left_out.update({row: (reason, column) for row, reason, column in figures["left_out"]})
        if figures["num_bytes"]:
            state.cells = [pa.ipc.open_stream(pa.py_buffer(content[2 * size :])).read_all()]
        return state


class FoldedTrips(Dataset):
    """Trips that were checked and counted where they live. No row of them is here but those that were left out."""

    def __init__(self, fold: TripFold, state: TripState) -> None:
        rows, none = np.zeros(0, dtype=np.int64), pa.table({})
        nothing = pa.table({**{name: pa.array([], pa.string()) for name in fold.listed}, ROW: rows})
        cells = pa.concat_tables(state.cells or [nothing])
        cells = cells.take(pc.sort_indices(cells.column(ROW)))
        super().__init__(
            table=none,
            policy=fold.policy,
            period=fold.period,
            source=fold.source,
            parts=Parts(table=none, source_rows=rows, starts=np.zeros(1, dtype=np.int64)),
            original=Original(cells, cells.column(ROW).to_numpy()),
            left_out=state.left_out,
        )
        self.folded, self._num_rows, self._times = state.sums.listed(), state.num_rows, state.times
        self._dates = np.array(sorted(state.dates), dtype=np.int64)

    def __len__(self) -> int:
        return self._num_rows

    @property
    def purpose(self) -> SpendPurpose:
        return self.policy.purpose(self.period)  # whether rows are those of an earlier spend is not known

    @property
    def service_dates(self) -> IntArray:
        """The numbers of all service dates, each once."""
        return self._dates

    def column(self, name: str) -> pa.Array:
        raise ParameterError("this needs the rows themselves, and they are elsewhere. Load them without an engine.")

    def label_times(self, name: str) -> IntArray:
        return np.array(list(self._times.get(name, Counter()).values()), dtype=np.int64)

    def keyed_digest(self, key: bytes) -> str:
        """Return a digest of the counts, whatever the order of the rows."""
        return true_counts(self).keyed_digest(key)


def count_rows(opened: Callable[[], Rows], policy: Policy, period: str | None) -> Dataset:
    """Check and count trips where they live."""
    schema = policy.schema
    if schema.trip is None:
        raise ParameterError(
            "engines count trips, and this policy has no [trip]. Leave the engine out: its rows must fit into memory."
        )
    if schema.contribution is not None:
        raise ParameterError(
            "[contribution] limits the trips of each rider, which needs all rows in memory. Leave the engine out."
        )
    check_period(policy, period)
    rows = opened()
    fold = TripFold.of(policy, period, rows)
    state = rows.fold(fold)
    if problems := [*rows.problems, *(problem for _, problem in sorted(state.faults.items()))]:
        raise InputError(rows.source, problems)
    return FoldedTrips(fold, state)
