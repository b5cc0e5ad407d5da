# SPDX-License-Identifier: Apache-2.0
"""Parquet files from anywhere: how much memory they need is known before anything is decoded.

A few compressed bytes can stand for any number of cells, and one long entry of a dictionary for the text of every row.
The sizes in the footer may be wrong, so the headers of all pages are read, which are what Arrow allocates by.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np

if TYPE_CHECKING:  # imported when a table is read: policies do not need it
    import pyarrow as pa

BATCH_ROWS = 1 << 20
GROUP_ROWS = 1 << 20  # rows in a row group of Parquet, as Arrow writes it
MIN_LIMIT, MAX_RATIO = 512 << 20, 128
_HEADER_BYTES = 1 << 16  # of a page: statistics repeat its smallest and largest cell
_WIDTHS = {"BOOLEAN": 8, "INT32": 8, "FLOAT": 8, "INT64": 8, "DOUBLE": 8, "INT96": 12}  # in an Arrow array, at most
_DICTIONARY, _BY_CODES, _BY_PREFIXES = 2, (2, 8), 7  # a type of page, and encodings
_CELL_BYTES = 8  # levels, offsets and codes of a cell


class Oversized(ValueError):
    """A file that needs more memory than it may."""


def max_decoded(size: int) -> int:
    """Return how many bytes a compressed file of a size may need: data from practice is far below that."""
    return max(MIN_LIMIT, MAX_RATIO * size)


class _Page(NamedTuple):
    kind: int
    size: int  # uncompressed
    num_values: int
    encoding: int


class Parquet(NamedTuple):
    """An open file whose cells fit into memory, as far as they can be counted before they are read."""

    file: Any  # pyarrow has no types
    limit: int
    labels: Sequence[str]  # columns that stay codes

    @classmethod
    def open(
        cls, stream: BinaryIO, limit: int, *, labels: Sequence[str] = (), batch_rows: int | None = None
    ) -> Parquet:
        """Open a file that needs at most ``limit`` bytes, or each batch of it; ``labels`` come as codes."""
        import pyarrow.parquet as pq

        stated = pq.read_metadata(stream)
        schema, groups = stated.schema, [stated.row_group(index) for index in range(stated.num_row_groups)]
        if stated.num_rows * _CELL_BYTES > limit and batch_rows is None:
            raise Oversized
        total, codes, counted = 0, list(labels), list[tuple[str, int]]()
        for index in range(stated.num_columns):
            column, fixed, by_entry, by_prefix, largest = schema.column(index), 0, 0, 0, 0
            width = (
                int(column.length)
                if column.physical_type == "FIXED_LEN_BYTE_ARRAY"
                else _WIDTHS.get(column.physical_type, 0)
            )
            for group in groups:
                entry, chunk = 0, group.column(index)
                for page in _pages(stream, *_place(chunk)):
                    largest = max(largest, page.size)
                    cells = page.num_values * (width + _CELL_BYTES)
                    if page.kind == _DICTIONARY:
                        entry = page.size
                        fixed += page.size + cells
                        continue
                    fixed += cells + (0 if width else page.size)
                    by_entry += page.num_values * entry if page.encoding in _BY_CODES and not width else 0
                    by_prefix += page.num_values * page.size if page.encoding == _BY_PREFIXES else 0
            if batch_rows is not None:  # as much of it as a batch has, and the page at hand
                share = min(1.0, batch_rows / max(1, stated.num_rows))
                fixed, by_entry = int(fixed * share) + 2 * largest, int(by_entry * share)
            # Texts that share entries or prefixes most likely need far less than that: they are counted.
            if by_entry + by_prefix > limit // 8 and column.path not in labels:
                if not by_prefix and (simple := re.fullmatch(r"[^.]+(\.list\.(element|item))?", column.path)):
                    codes.append(simple[0])
                elif column.max_repetition_level:
                    raise Oversized
                else:
                    counted.append((column.path, limit // (8 * largest)))
                by_entry = by_prefix = 0
            total += fixed + (0 if column.path in labels else by_entry + by_prefix)
            if total + largest > limit:  # Arrow makes room for what the header of a page states
                raise Oversized
        reading = {"buffer_size": 1 << 20, "pre_buffer": False}  # no reading ahead: a row group may be large
        file = pq.ParquetFile(stream, read_dictionary=codes, **reading)
        for path, num in counted:
            for batch in file.iter_batches(max(1, min(num, BATCH_ROWS)), columns=[path], use_threads=False):
                total += batch.nbytes
                if total > limit:
                    raise Oversized
        return cls(file, limit, labels)

    def read(self) -> pa.Table:
        import pyarrow as pa

        if self.file.num_row_groups < 2:
            return self.dense(self.file.read(use_threads=False))
        groups, total = [], 0
        for index in range(self.file.num_row_groups):  # Arrow joins no lists of codes from several of them
            groups.append(self.dense(self.file.read_row_group(index, use_threads=False)))
            total += groups[-1].nbytes
            if total > self.limit:
                raise Oversized
        return pa.concat_tables(groups)

    def spooled(self) -> pa.Table:
        """Return the table as it lies on the disk, if it has many rows."""
        if self.file.metadata.num_rows <= GROUP_ROWS:
            return self.read()
        spool, total = Spool(), 0
        for index in range(self.file.num_row_groups):
            group = self.dense(self.file.read_row_group(index, use_threads=False))
            total += group.nbytes
            if total > self.limit:
                raise Oversized
            spool.add(group)
        return spool.table()

    def dense(self, table: Any) -> Any:
        """Give columns of codes the type of their entries, if these fit into memory; labels stay codes."""
        import pyarrow as pa
        import pyarrow.compute as pc

        total, columns = 0, dict[int, Any]()
        for place, item in enumerate(table.schema):
            inside = item.type.value_type if pa.types.is_list(item.type) else item.type
            if item.name in self.labels or not pa.types.is_dictionary(inside):
                continue
            column = table.column(place)
            for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
                codes = chunk if inside is item.type else chunk.flatten()
                if pa.types.is_string(inside.value_type) or pa.types.is_binary(inside.value_type):
                    lengths = np.asarray(pc.fill_null(pc.binary_length(codes.dictionary), 0), dtype=np.int64)
                    used = codes.indices.drop_null().to_numpy(zero_copy_only=False)
                    total += int(lengths[used].sum()) if len(used) else 0
            kind = inside.value_type
            columns[place] = kind if inside is item.type else pa.list_(item.type.value_field.with_type(kind))
        if total > self.limit:
            raise Oversized
        for place, kind in columns.items():
            table = table.set_column(place, table.schema.field(place).with_type(kind), table.column(place).cast(kind))
        return table


class Spool:
    """A table on the disk that is read where it lies: the system keeps of it in memory what there is room for."""

    def __init__(self) -> None:
        descriptor, self._path = tempfile.mkstemp(suffix=".arrow")
        os.close(descriptor)
        self._writer: Any = None
        self._waiting: list[pa.Table] = []

    def add(self, table: pa.Table) -> None:
        self._waiting.append(table)
        while sum(part.num_rows for part in self._waiting) >= GROUP_ROWS:
            self._write(GROUP_ROWS)

    def _write(self, num: int) -> None:
        import pyarrow as pa

        whole = pa.concat_tables(self._waiting)
        if self._writer is None:
            self._writer = pa.ipc.new_file(self._path, whole.schema)
        self._writer.write_table(whole.slice(0, num).combine_chunks(), GROUP_ROWS)
        self._waiting = [whole.slice(num)]

    def table(self) -> pa.Table:
        import pyarrow as pa

        try:
            if self._waiting:
                self._write(GROUP_ROWS)
                self._writer.close()
            if self._writer is None:
                return pa.table({})
            with pa.memory_map(self._path) as source:
                return pa.ipc.open_file(source).read_all()
        finally:
            os.unlink(self._path)  # the table keeps what it needs


def is_gapless(stream: BinaryIO) -> bool:
    """Return whether a file has nothing between, before and after the pages of its columns but the footer."""
    import pyarrow.parquet as pq

    stated, at = pq.read_metadata(stream), 4
    for group in (stated.row_group(index) for index in range(stated.num_row_groups)):
        for chunk in (group.column(index) for index in range(stated.num_columns)):
            start, end = _place(chunk)
            if start != at or sum(1 for _ in _pages(stream, start, end)) == 0:
                return False
            at = end
    stream.seek(-8, os.SEEK_END)
    return at == stream.tell() - int.from_bytes(stream.read(4), "little")


def _place(chunk: Any) -> tuple[int, int]:
    """Return where the pages of a column begin and end, as Arrow reads it."""
    offsets = [chunk.data_page_offset, chunk.dictionary_page_offset if chunk.has_dictionary_page else 0]
    start = min((int(offset) for offset in offsets if offset and offset > 0), default=0)
    if not start or (chunk.num_values and offsets[0] <= 0):  # a column without cells has no page of data
        raise Oversized
    return start, start + int(chunk.total_compressed_size)


def _pages(stream: BinaryIO, at: int, end: int) -> Iterator[_Page]:
    """Yield the pages of a column, one after the other without a gap."""
    while at < end:
        stream.seek(at)
        head = stream.read(min(_HEADER_BYTES, end - at))
        try:
            fields, length = _struct(head, 0)
            kind, size, compressed = (fields[number] for number in (1, 2, 3))
            of_page = next(fields[number] for number in (5, 7, 8) if number in fields)
            num_values, encoding = of_page[1], of_page[4 if 8 in fields else 2]
        except (IndexError, KeyError, TypeError, StopIteration, RecursionError):
            raise Oversized from None  # no page that Arrow could read, or a header of any length
        if min(size, compressed, num_values) < 0 or compressed > end - at - length:
            raise Oversized
        yield _Page(kind, size, num_values, encoding)
        at += length + compressed


def _struct(data: bytes, at: int, depth: int = 0) -> tuple[dict[int, Any], int]:
    """Read a structure in Thrift's compact form: its fields by number, and where it ends."""
    fields, number = dict[int, Any](), 0
    if depth > 8:
        raise RecursionError
    while head := data[at]:
        at, step = at + 1, head >> 4
        if step:
            number += step
        else:
            number, at = _whole(data, at)
        fields[number], at = _value(data, at, head & 15, depth)
    return fields, at + 1


def _value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in (1, 2):
        return kind == 1, at
    if kind == 3:
        return data[at], at + 1
    if kind in (4, 5, 6):
        return _whole(data, at)
    if kind == 7:
        return None, at + 8
    if kind == 8:
        length, at = _varint(data, at)
        return None, at + length
    if kind == 12:
        return _struct(data, at, depth + 1)
    raise TypeError  # headers of pages have no lists


def _whole(data: bytes, at: int) -> tuple[int, int]:
    value, at = _varint(data, at)
    return (value >> 1) ^ -(value & 1), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise TypeError
