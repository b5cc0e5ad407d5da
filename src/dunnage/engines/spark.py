# SPDX-License-Identifier: Apache-2.0
"""Rows in a cluster of Spark: a DataFrame, or Parquet files that every worker can read.

A task folds its part of the rows and returns one state. Spark may run a task twice, but uses one result of each; the
driver merges them. Noise of counts is sampled at the driver, after the merge and the spend. Noise of rows comes from
streams of one key: a task that runs twice makes the same rows. Tasks never use fresh noise.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dunnage.arrays import IntArray
from dunnage.engines.sources import piece_batches
from dunnage.errors import EngineError, InputError, InternalError, ParameterError, Problem, UserError
from dunnage.folds import NUM_BATCH_ROWS, ROW, Fold, Piece, S, Sorting, T, numbered
from dunnage.tables.reader import ReadOptions, RowStream, parquet_batches

_TASK_ROWS = 1 << 22  # of a file in one task, about
_RUN_PIECES = 16
_STATE, _SIZE = "state binary", "part int, num long"


def session() -> Any:
    """Return the session of Spark, and start one if there is none."""
    try:
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError:
        raise ParameterError("the engine spark needs PySpark. Install it: pip install 'dunnage[spark]'.") from None
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # of workers on this machine; a cluster sets its own
    try:
        return SparkSession.builder.getOrCreate()
    except PySparkException:
        remedy = "check that java -version runs, and that JAVA_HOME, if it is set, is where Java is"
        raise EngineError(f"Spark does not start. It needs Java 17: {remedy}.") from None


def _collected(made: Any) -> list[Any]:
    """Run tasks; errors that a task returns are raised here."""
    try:
        results = list(made.collect())
    except Exception as failure:  # its text may quote anything
        raise EngineError(f"Spark stopped ({type(failure).__name__}). Its log says why.") from None
    for result in results:
        if isinstance(result, UserError):
            raise result
    return results


@dataclass(frozen=True)
class _Task:
    """A task that returns what is wrong with a file at its last attempt: Spark would hide it in a text."""

    run: Callable[[Any], Iterable[Any]]
    attempts: int

    @classmethod
    def of(cls, run: Callable[[Any], Iterable[Any]], context: Any) -> _Task:
        local = re.fullmatch(r"local(\[[^,]*(,\s*(\d+))?\])?", context.master)
        stated = local[3] or "1" if local else context.getConf().get("spark.task.maxFailures", "4")
        return cls(run, int(stated))

    def __call__(self, piece: Any) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None  # it runs in a task
        try:
            yield from self.run(piece)
        except UserError as error:
            if context.attemptNumber() + 1 < self.attempts:
                raise
            yield error


def _merged(fold: Fold[S], states: Iterable[bytes]) -> S:
    state = fold.start()
    for data in states:
        fold.merge(state, fold.load(bytes(data)))
    return state


class SparkRows:
    """The rows of a Spark DataFrame. To name rows, it is counted first: it must be the same in both passes."""

    problems: Sequence[Problem] = ()

    def __init__(self, frame: Any) -> None:
        if not hasattr(frame, "mapInArrow"):
            what = f"a Spark DataFrame, or the path of Parquet files. Got {type(frame).__name__}"
            raise ParameterError(f"the engine spark reads {what}.")
        self.source, self._frame = "frame", frame
        kinds = {name: pa.binary() if kind == "binary" else pa.null() for name, kind in frame.dtypes}
        self.schema = pa.schema([(name, kinds[name]) for name in frame.columns])

    def fold(self, fold: Fold[S]) -> S:
        chosen, starts = self._numbered(fold.columns)

        def add_up(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            state, first = fold.start(), starts.get(_part(), 0)
            for batch in batches:
                positions = first + np.arange(len(batch))
                fold.add(state, numbered(batch, positions) if starts else batch)
                first += len(batch)
            yield pa.record_batch({"state": [fold.dump(state)]})

        return _merged(fold, (row["state"] for row in _collected(chosen.mapInArrow(add_up, _STATE))))

    def sort(self, sorting: Sorting) -> Iterator[bytes]:
        chosen, starts = self._numbered(sorting.columns)

        def spread(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            first = starts.get(_part(), 0)
            for batch in batches:
                for bucket, content in sorting.spread(
                    numbered(batch, first + np.arange(len(batch))) if starts else batch
                ):
                    yield pa.record_batch({"bucket": [bucket], "content": [content]})
                first += len(batch)

        pairs = chosen.mapInArrow(spread, "bucket long, content binary").rdd.map(lambda row: (row[0], bytes(row[1])))
        return _gathered(sorting, pairs)

    def pieces(self) -> Sequence[Piece]:
        raise ParameterError(
            "rows of a DataFrame cannot be released where they are: a task that runs twice may see them in another "
            "order. Write it to Parquet files, and publish these with the engine spark."
        )

    def run(
        self,
        pieces: Iterable[Piece],
        columns: Sequence[str],
        task: Callable[[Piece, Iterable[tuple[pa.RecordBatch, IntArray]]], Iterable[T]],
    ) -> Iterator[T]:
        raise InternalError("a DataFrame has no pieces.")

    def _numbered(self, columns: Sequence[str]) -> tuple[Any, dict[int, int]]:
        """Select columns; if rows are to be numbered, also count the rows before each part."""
        chosen = self._frame.select(*(f"`{name.replace('`', '``')}`" for name in columns if name != ROW))
        if ROW not in columns:
            return chosen, {}
        sizes = {row["part"]: row["num"] for row in _collected(chosen.mapInArrow(_count, _SIZE))}
        return chosen, {part: sum(sizes[other] for other in sizes if other < part) for part in sizes}


def _gathered(sorting: Sorting, pairs: Any) -> Iterator[bytes]:
    """Gather each bucket in a task; what comes back is small."""
    gathered = pairs.groupByKey().map(lambda pair: sorting.gather(b"".join(pair[1])))
    return iter(_collected(gathered))


def _part() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None  # it runs in a task
    return int(context.partitionId())


def _count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    num = sum(len(batch) for batch in batches)
    yield pa.record_batch({"part": pa.array([_part()], pa.int32()), "num": pa.array([num], pa.int64())})


class SparkFiles:
    """Parquet files that workers read themselves: their names are sent, and no row passes through Spark."""

    problems: Sequence[Problem] = ()

    def __init__(self, path: str | os.PathLike[str], session: Any = None) -> None:
        self.source, self._session = str(path), session
        stream = RowStream(Path(path), ReadOptions())
        self.schema, self._pieces, self._row_groups = (
            stream.schema,
            list(stream.pieces(_TASK_ROWS)),
            stream.row_groups(),
        )
        if not stream.parts:
            what, remedy = "is not Parquet, so that it cannot be divided among workers", "Use engine = files."
            raise InputError(self.source, [Problem(what, remedy=remedy)])

    def fold(self, fold: Fold[S]) -> S:
        columns = [name for name in fold.columns if name != ROW]

        def add_up(piece: tuple[Path, list[int], int]) -> Iterator[bytes]:
            part, groups, first = piece
            state = fold.start()
            for batch in parquet_batches(part.absolute(), columns, NUM_BATCH_ROWS, groups):
                positions = first + np.arange(len(batch))
                fold.add(state, numbered(batch, positions) if ROW in fold.columns else batch)
                first += len(batch)
            yield fold.dump(state)

        return _merged(fold, self._run(self._pieces, add_up))

    def sort(self, sorting: Sorting) -> Iterator[bytes]:
        columns = [name for name in sorting.columns if name != ROW]

        def spread(piece: tuple[Path, list[int], int]) -> Iterator[tuple[int, bytes]]:
            part, groups, first = piece
            for batch in parquet_batches(part.absolute(), columns, NUM_BATCH_ROWS, groups):
                positions = first + np.arange(len(batch))
                yield from sorting.spread(numbered(batch, positions) if ROW in sorting.columns else batch)
                first += len(batch)

        return _gathered(sorting, self._parts(self._pieces).flatMap(spread))

    def pieces(self) -> Sequence[Piece]:
        return self._row_groups

    def run(
        self,
        pieces: Iterable[Piece],
        columns: Sequence[str],
        task: Callable[[Piece, Iterable[tuple[pa.RecordBatch, IntArray]]], Iterable[T]],
    ) -> Iterator[T]:
        # Some at a time: what tasks make goes to the disk of the driver.
        waiting = iter(pieces)
        while some := list(itertools.islice(waiting, _RUN_PIECES)):
            yield from self._run(some, lambda piece: task(piece, piece_batches(piece, columns)))

    def _run(self, pieces: Sequence[Any], task: Callable[[Any], Iterable[Any]]) -> list[Any]:
        parts = self._parts(pieces)
        return _collected(parts.flatMap(_Task.of(task, parts.context)))

    def _parts(self, pieces: Sequence[Any]) -> Any:
        context = (self._session or session()).sparkContext
        return context.parallelize(pieces, max(1, len(pieces)))
