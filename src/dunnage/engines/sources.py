# SPDX-License-Identifier: Apache-2.0
"""Where rows live on one machine: memory, files and DuckDB; and how to find what reads them."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dunnage.errors import InputError, ParameterError, Problem
from dunnage.exact import shown
from dunnage.folds import NUM_BATCH_ROWS, ROW, Fold, Piece, Rows, S, Sorting, T, gathered, numbered

if TYPE_CHECKING:
    import pyarrow as pa

    from dunnage.arrays import IntArray
    from dunnage.tables.reader import ReadOptions


ENGINES = ("memory", "files", "duckdb", "spark")


def check_engine(engine: str | None) -> None:
    if engine is not None and engine not in ENGINES:
        raise ParameterError(f"engine must be one of {', '.join(ENGINES)}. Got {shown(engine)}.")


def rows_of(data: Any, options: ReadOptions, engine: str | None) -> Rows:
    """Return the rows of a file, query or frame as an engine reads them; rows stay as they are."""
    check_engine(engine)
    if isinstance(data, Rows):
        return data
    if engine == "duckdb":
        if isinstance(data, os.PathLike):  # the command line gives paths
            raise ParameterError("the engine duckdb reads a query, in Python only. Use the engine files for a path.")
        return QueryRows(data)
    if engine == "spark":
        from dunnage.engines.spark import SparkFiles, SparkRows

        return SparkFiles(data) if isinstance(data, str | os.PathLike) else SparkRows(data)
    return FileRows(data, options)


class _Batches(ABC):
    """Rows that one process reads, batch after batch."""

    source: str
    schema: pa.Schema
    problems: Sequence[Problem] = ()

    @abstractmethod
    def batches(self, columns: Sequence[str]) -> Iterable[tuple[pa.RecordBatch, IntArray]]:
        """Yield batches with the positions of their rows."""

    def fold(self, fold: Fold[S]) -> S:
        state = fold.start()
        for batch, positions in self.batches([name for name in fold.columns if name != ROW]):
            fold.add(state, numbered(batch, positions) if ROW in fold.columns else batch)
        return state

    def sort(self, sorting: Sorting) -> Iterator[bytes]:
        every = self.batches([name for name in sorting.columns if name != ROW])
        return gathered(sorting, (numbered(*one) if ROW in sorting.columns else one[0] for one in every))

    def pieces(self) -> Sequence[Piece]:
        return [Piece(b"all", 0)]

    def run(
        self,
        pieces: Iterable[Piece],
        columns: Sequence[str],
        task: Callable[[Piece, Iterable[tuple[pa.RecordBatch, IntArray]]], Iterable[T]],
    ) -> Iterator[T]:
        for piece in pieces:
            yield from task(piece, self.batches(columns) if piece.path is None else piece_batches(piece, columns))


def piece_batches(piece: Piece, columns: Sequence[str]) -> Iterator[tuple[pa.RecordBatch, IntArray]]:
    """Read a row group of a Parquet file, which must not have changed."""
    import numpy as np

    from dunnage.tables.reader import file_stamp, parquet_batches

    assert piece.path is not None
    if file_stamp(piece.path) != piece.stamp:
        raise InputError(str(piece.path), ["changed while it was read. Publish a copy that stays as it is."])
    first = piece.first
    for batch in parquet_batches(piece.path, columns, NUM_BATCH_ROWS, [piece.group]):
        yield batch, first + np.arange(len(batch))
        first += len(batch)


def _counted(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[pa.RecordBatch, IntArray]]:
    import numpy as np

    first = 0
    for batch in batches:
        yield batch, first + np.arange(len(batch))
        first += len(batch)


class MemoryRows(_Batches):
    def __init__(self, table: pa.Table, source: str = "frame") -> None:
        self.source, self.schema, self._table = source, table.schema, table

    def batches(self, columns: Sequence[str]) -> Iterable[tuple[pa.RecordBatch, IntArray]]:
        return _counted(self._table.select(list(columns)).to_batches(NUM_BATCH_ROWS))


class FileRows(_Batches):
    """Rows of a CSV or Parquet file, or a folder of Parquet files, of any size."""

    def __init__(self, path: str | os.PathLike[str], options: ReadOptions | None = None) -> None:
        from dunnage.tables.reader import ReadOptions, RowStream

        if not isinstance(path, str | os.PathLike):
            raise ParameterError(f"the engine files reads a path. Got {type(path).__name__}. Leave the engine out.")
        self.source, self._stream = str(path), RowStream(Path(path), options or ReadOptions())
        self.schema, self.problems = self._stream.schema, self._stream.problems
        self._row_groups = self._stream.row_groups()  # of the files as they are now

    def batches(self, columns: Sequence[str]) -> Iterable[tuple[pa.RecordBatch, IntArray]]:
        return self._stream.batches(columns, NUM_BATCH_ROWS)

    def pieces(self) -> Sequence[Piece]:
        return self._row_groups or super().pieces()


class QueryRows(_Batches):
    """The rows that a query returns in DuckDB, which must be in the same order each time."""

    def __init__(self, query: str, connection: Any = None) -> None:
        try:
            import duckdb
        except ImportError:
            raise ParameterError("the engine duckdb needs DuckDB. Install it: pip install 'dunnage[duckdb]'.") from None
        self.source, self._error = "query", duckdb.Error
        try:
            self._relation = (connection or duckdb).sql(query)
            self.schema = self._reader(self._relation.limit(0)).schema
        except (duckdb.Error, AttributeError, TypeError):  # its text may quote cells
            example = "SELECT * FROM read_parquet('taps/*.parquet')"
            raise ParameterError(f"DuckDB cannot run this as a query of rows. Write one such as {example}.") from None

    @staticmethod
    def _reader(relation: Any) -> pa.RecordBatchReader:
        renamed = getattr(relation, "to_arrow_reader", None)  # since DuckDB 1.4
        return (renamed or relation.fetch_record_batch)(NUM_BATCH_ROWS)

    def batches(self, columns: Sequence[str]) -> Iterator[tuple[pa.RecordBatch, IntArray]]:
        chosen = ", ".join('"' + name.replace('"', '""') + '"' for name in columns)
        try:
            yield from _counted(self._reader(self._relation.project(chosen)))
        except self._error:
            raise InputError(self.source, [Problem("DuckDB cannot read its rows", remedy="Run it there.")]) from None
