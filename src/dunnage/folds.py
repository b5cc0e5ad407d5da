# SPDX-License-Identifier: Apache-2.0
"""Folds: what is summed up over rows, wherever the rows live.

A fold is a commutative monoid over Arrow batches: however rows are divided into batches, and in whichever order states
are merged, the result is the same, byte for byte. It has no randomness, no input and no output, and can be pickled. So
a task that an engine runs twice changes nothing, and everything after the fold is one code for all engines. Noise is
sampled there, once, at the driver, after the merge and after the spend.

Where rows are needed together that are apart (all reports of one id, all trips of one rider), a *sorting* sends each
part of a batch to the bucket of its name. Noise for each row is sampled in tasks over *pieces*, parts of the rows that
never change, from streams of one key: :mod:`dunnage.noise.streams`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, runtime_checkable

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from dunnage.arrays import IntArray
    from dunnage.errors import Problem

S = TypeVar("S")
T = TypeVar("T")
ROW = "\0row"  # a column that an engine adds for a fold that names it: the position of each row in its source, from 0
NUM_BATCH_ROWS = 1 << 18  # rows in a batch, at most
_HELD_BYTES = 1 << 17  # of a bucket in memory


class Fold(Protocol[S]):
    @property
    def columns(self) -> Sequence[str]:
        """The columns that it needs."""

    def start(self) -> S: ...

    def add(self, state: S, batch: pa.RecordBatch) -> None: ...

    def merge(self, state: S, other: S) -> None: ...

    def dump(self, state: S) -> bytes:
        """Return equal bytes for equal states."""

    def load(self, data: bytes) -> S: ...


class Sorting(Protocol):
    """Rows that belong together: spread by bucket, then gathered bucket by bucket, in any order inside it."""

    @property
    def columns(self) -> Sequence[str]: ...

    @property
    def num_buckets(self) -> int: ...

    def spread(self, batch: pa.RecordBatch) -> Iterable[tuple[int, bytes]]: ...

    def gather(self, content: bytes) -> bytes: ...


class Piece(NamedTuple):
    """A part of the rows that never changes, and its name."""

    name: bytes
    first: int  # position of its first row
    path: Path | None = None  # a Parquet file, and one of its row groups
    group: int = 0
    stamp: tuple[int, int] = (0, 0)  # size and time of the file: if it changes meanwhile, the run fails
    classes: IntArray | None = None  # of its rows, where they were found before


@runtime_checkable
class Rows(Protocol):
    """Where rows live."""

    source: str  # its name in errors
    schema: pa.Schema  # all columns
    problems: Sequence[Problem]  # of reading; complete after a fold

    def fold(self, fold: Fold[S]) -> S: ...

    def sort(self, sorting: Sorting) -> Iterable[bytes]:
        """Yield what each bucket with content gathers."""

    def pieces(self) -> Sequence[Piece]: ...

    def run(
        self,
        pieces: Iterable[Piece],
        columns: Sequence[str],
        task: Callable[[Piece, Iterable[tuple[pa.RecordBatch, IntArray]]], Iterable[T]],
    ) -> Iterable[T]:
        """Yield what a task makes of each piece, in order; it may run several times, and must do the same each time."""


class Buckets:
    """Bytes by bucket, in files without names that end with the process."""

    def __init__(self, num: int) -> None:
        self._held: list[list[bytes]] = [[] for _ in range(num)]
        self._sizes, self._files = [0] * num, dict[int, IO[bytes]]()

    def add(self, bucket: int, content: bytes) -> None:
        self._held[bucket].append(content)
        self._sizes[bucket] += len(content)
        if self._sizes[bucket] >= _HELD_BYTES:
            if bucket not in self._files:
                self._files[bucket] = tempfile.TemporaryFile()  # noqa: SIM115
            self._files[bucket].write(b"".join(self._held[bucket]))
            self._held[bucket], self._sizes[bucket] = [], 0

    def __iter__(self) -> Iterator[bytes]:
        """Yield the content of each bucket once, and forget it."""
        for bucket, held in enumerate(self._held):
            content = b"".join(held)
            if file := self._files.pop(bucket, None):
                with file:
                    file.seek(0)
                    content = file.read() + content
            self._held[bucket] = []
            yield content


def numbered(batch: pa.RecordBatch, positions: IntArray) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.RecordBatch.from_arrays([*batch.columns, pa.array(positions)], [*batch.schema.names, ROW])


def gathered(sorting: Sorting, batches: Iterable[Any]) -> Iterator[bytes]:
    """Sort in one process."""
    buckets = Buckets(sorting.num_buckets)
    for batch in batches:
        for bucket, content in sorting.spread(batch):
            buckets.add(bucket, content)
    yield from (sorting.gather(content) for content in buckets if content)
