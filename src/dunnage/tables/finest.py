# SPDX-License-Identifier: Apache-2.0
"""Finest classes: how many records have each combination of values. Classes are unions of them, found without sorting.

Public columns come first, so that combinations are in the order of strata. A fold counts them wherever rows live.
"""

from __future__ import annotations

import abc
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dunnage.arrays import FloatArray, IntArray
from dunnage.errors import InputError
from dunnage.tables.columns import Private

MAX_KEY = 2**62
_DENSE, _MIN_DENSE = 4, 1024  # a table has at most so many cells for each row
_SAMPLE = 4096  # values that are looked at to see whether many are equal
_MIN_PENDING = 1 << 18  # combinations that are kept before they are merged
CHANGED = "changed while it was read. Nothing that depends on it can be used. Publish a copy that stays as it is."


def _ranked(column: pa.Array) -> tuple[pa.Array, IntArray]:
    """Return the distinct values of a column in order, nulls last, and which of them each row has."""
    if pa.types.is_float64(column.type) and not column.null_count and len(column) > _SAMPLE:
        numbers = column.to_numpy() + 0.0  # one zero, not two
        if 2 * len(np.unique(numbers[:_SAMPLE])) > _SAMPLE:  # hardly any value occurs twice: sorting is cheaper
            order = np.argsort(numbers)
            ordered = numbers[order]
            new = np.append(True, ordered[1:] != ordered[:-1])
            ranks = np.empty(len(numbers), dtype=np.int64)
            ranks[order] = np.cumsum(new) - 1
            return pa.array(ordered[new]), ranks
        column = pa.array(numbers)
    encoded = column.dictionary_encode(null_encoding="encode")
    order = pc.sort_indices(encoded.dictionary).to_numpy()
    places = np.empty(len(order), dtype=np.int64)
    places[order] = np.arange(len(order))
    return encoded.dictionary.take(pa.array(order)), places[encoded.indices.to_numpy(zero_copy_only=False)]


@dataclass(frozen=True, eq=False, repr=False)
class Finest(Private):
    values: Mapping[str, pa.Array]  # the distinct values of each column, in order, nulls last
    codes: tuple[IntArray, ...]  # for each column, which of them a combination has; combinations are in order
    counts: IntArray
    of_row: IntArray | None = None  # the combination of each row, if all rows are here

    @classmethod
    def of(cls, columns: Mapping[str, pa.Array], weights: IntArray | None = None, *, with_rows: bool = False) -> Finest:
        values, codes = {}, []
        for name, column in columns.items():
            values[name], ranks = _ranked(column)
            codes.append(ranks)
        sizes = [len(distinct) for distinct in values.values()]
        if len(codes) == 1:  # each value is a combination
            counts = np.bincount(codes[0], weights, minlength=sizes[0]).astype(np.int64)
            return cls(values, (np.arange(sizes[0]),), counts, codes[0] if with_rows else None)
        keys, num_keys = combined(list(zip(codes, sizes, strict=True)))
        if num_keys <= _DENSE * len(keys) + _MIN_DENSE:
            counts = np.bincount(keys, weights, minlength=num_keys).astype(np.int64)  # exact below 2^53
            first = np.empty(num_keys, dtype=np.int64)
            first[keys] = np.arange(len(keys))
            present = np.flatnonzero(counts)
            of_row = (np.cumsum(counts > 0) - 1)[keys] if with_rows else None
            first, counts = first[present], counts[present]
        else:
            _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
            of_row = inverse.reshape(-1)
            counts = np.bincount(of_row, weights, minlength=len(first)).astype(np.int64)
        return cls(values, tuple(code[first] for code in codes), counts, of_row if with_rows else None)

    @classmethod
    def merged(cls, parts: Sequence[Finest]) -> Finest:
        columns = {name: pa.concat_arrays([part.column(name) for part in parts]) for name in parts[0].values}
        return cls.of(columns, np.concatenate([part.counts for part in parts]))

    def __len__(self) -> int:
        return len(self.counts)

    def column(self, name: str) -> pa.Array:
        """Return the values of one column, combination by combination."""
        return self.values[name].take(pa.array(self.codes[list(self.values).index(name)]))

    def numbers(self, name: str) -> FloatArray:
        values: FloatArray = self.column(name).to_numpy(zero_copy_only=False)
        return values

    def strata(self, num_columns: int) -> tuple[IntArray, int]:
        """Return the number of the first columns' combination of each, in order, and how many there are."""
        if not num_columns:
            return np.zeros(len(self), dtype=np.int64), 1
        differs = np.zeros(max(0, len(self) - 1), dtype=bool)
        for codes in self.codes[:num_columns]:
            differs |= np.diff(codes) != 0
        numbers = np.cumsum(np.append(False, differs)[: len(self)])
        return numbers, int(numbers[-1]) + 1 if len(numbers) else 0

    def of_rows(self, columns: Mapping[str, pa.Array], source: str) -> IntArray:
        """Return the combination of each row; all of them must have been counted."""
        own, known = list[IntArray](), np.ones(len(next(iter(columns.values()))), dtype=bool)
        for name, column in columns.items():
            encoded = column.dictionary_encode(null_encoding="encode")
            places = pc.fill_null(pc.index_in(encoded.dictionary, value_set=self.values[name]), -1).to_numpy()
            own.append(places.astype(np.int64)[encoded.indices.to_numpy(zero_copy_only=False)])
            known &= own[-1] >= 0
        if not known.all():
            raise InputError(source, [CHANGED])
        keys, every, num = np.zeros(len(known), dtype=np.int64), np.zeros(len(self), dtype=np.int64), 1
        for of_row, codes, values in zip(own, self.codes, self.values.values(), strict=True):
            if num * len(values) >= MAX_KEY:
                present, every = np.unique(every, return_inverse=True)
                places = np.searchsorted(present, keys).clip(max=len(present) - 1)
                known &= present[places] == keys
                keys, num = places, len(present)
            keys, every, num = keys * len(values) + of_row, every * len(values) + codes, num * len(values)
        if num <= _DENSE * max(len(keys), len(self)) + _MIN_DENSE:
            number = np.full(num, -1, dtype=np.int64)
            number[every] = np.arange(len(self))
            found = number[keys]
        else:
            found = np.searchsorted(every, keys).clip(max=len(self) - 1)
            known &= every[found] == keys
        if not known.all() or (len(found) and found.min() < 0):
            raise InputError(source, [CHANGED])
        return found

    def dump(self) -> bytes:
        """Return the same bytes for the same counts."""
        tables = [_bytes_of(pa.record_batch({"": values})) for values in self.values.values()]
        head = {"num": len(self), "names": list(self.values), "sizes": [len(table) for table in tables]}
        codes = np.stack([*self.codes, self.counts]).astype(np.int64)
        return b"".join([json.dumps(head).encode(), b"\n", *tables, codes.tobytes()])

    @classmethod
    def load(cls, data: bytes) -> Finest:
        head, _, content = data.partition(b"\n")
        stated, values, at = json.loads(head), {}, 0
        for name, size in zip(stated["names"], stated["sizes"], strict=True):
            table = pa.ipc.open_stream(pa.py_buffer(content[at : at + size])).read_all()
            values[name], at = table.column(0).combine_chunks(), at + size
        *codes, counts = np.frombuffer(content[at:], dtype=np.int64).reshape(len(values) + 1, stated["num"])
        return cls(values, tuple(codes), counts)


class CountingFold(abc.ABC):
    """Count combinations of values; states are lists of counts that wait to be merged."""

    @abc.abstractmethod
    def columns_of(self, rows: Any) -> dict[str, pa.Array]: ...

    def start(self) -> list[Finest]:
        return []

    def add(self, state: list[Finest], rows: Any) -> None:
        self.merge(state, [Finest.of(self.columns_of(rows))])

    def merge(self, state: list[Finest], other: list[Finest]) -> None:
        state += other
        if state and sum(map(len, state[1:])) > max(_MIN_PENDING, len(state[0])):
            state[:] = [Finest.merged(state)]

    def dump(self, state: list[Finest]) -> bytes:
        return Finest.merged(state).dump() if state else b""

    def load(self, data: bytes) -> list[Finest]:
        return [Finest.load(data)] if data else []

    def result(self, state: list[Finest]) -> Finest:
        if not state:  # of no rows
            return Finest({}, (), np.zeros(0, dtype=np.int64))
        return state[0] if len(state) == 1 else Finest.merged(state)


def _bytes_of(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def combined(parts: Sequence[tuple[IntArray, int]]) -> tuple[IntArray, int]:
    """Combine several numbers, each below its bound, into one that keeps their order; also return its bound."""
    keys, num_keys = parts[0]
    for codes, num in parts[1:]:
        if num_keys * num >= MAX_KEY:
            present, keys = np.unique(keys, return_inverse=True)
            num_keys = len(present)
        keys, num_keys = keys * num + codes, num_keys * num
    return keys, num_keys
