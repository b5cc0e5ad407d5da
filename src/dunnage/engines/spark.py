# SPDX-License-Identifier: Apache-2.0
"""Rows in a cluster of Spark: a DataFrame, or Parquet files that every worker can read.

A task folds its part of the rows and returns one state. Spark may run a task twice, but uses one result of each; the
driver merges them. Nothing random happens in a task: noise is sampled at the driver, after the merge and the spend.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dunnage.engines import numbered
from dunnage.errors import InputError, ParameterError, Problem
from dunnage.folds import NUM_BATCH_ROWS, ROW, Fold, S
from dunnage.tables.reader import ReadOptions, RowStream, parquet_batches

_TASK_ROWS = 1 << 22  # of a file in one task, about
_STATE, _SIZE = "state binary", "part int, num long"


def _session() -> Any:
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise ParameterError("the engine spark needs PySpark. Install it: pip install 'dunnage[spark]'.") from None
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # of workers on this machine; a cluster sets its own
    return SparkSession.builder.getOrCreate()


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
        self.schema = pa.schema([(name, pa.null()) for name in frame.columns])

    def fold(self, fold: Fold[S]) -> S:
        chosen = self._frame.select(*(f"`{name.replace('`', '``')}`" for name in fold.columns if name != ROW))
        starts = dict[int, int]()
        if ROW in fold.columns:
            sizes = {row["part"]: row["num"] for row in chosen.mapInArrow(_count, _SIZE).collect()}
            starts = {part: sum(sizes[other] for other in sizes if other < part) for part in sizes}

        def add_up(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            state, first = fold.start(), starts.get(_part(), 0)
            for batch in batches:
                positions = first + np.arange(len(batch))
                fold.add(state, numbered(batch, positions) if starts else batch)
                first += len(batch)
            yield pa.record_batch({"state": [fold.dump(state)]})

        return _merged(fold, (row["state"] for row in chosen.mapInArrow(add_up, _STATE).collect()))


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
        self.schema, self._pieces = stream.schema, list(stream.pieces(_TASK_ROWS))
        if not stream.parts:
            what, remedy = "is not Parquet, so that it cannot be divided among workers", "Use engine = files."
            raise InputError(self.source, [Problem(what, remedy=remedy)])

    def fold(self, fold: Fold[S]) -> S:
        columns = [name for name in fold.columns if name != ROW]

        def add_up(piece: tuple[Path, list[int], int]) -> bytes:
            part, groups, first = piece
            state = fold.start()
            for batch in parquet_batches(part.absolute(), columns, NUM_BATCH_ROWS, groups):
                positions = first + np.arange(len(batch))
                fold.add(state, numbered(batch, positions) if ROW in fold.columns else batch)
                first += len(batch)
            return fold.dump(state)

        context = (self._session or _session()).sparkContext
        return _merged(fold, context.parallelize(self._pieces, max(1, len(self._pieces))).map(add_up).collect())
