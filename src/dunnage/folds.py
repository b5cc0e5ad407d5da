# SPDX-License-Identifier: Apache-2.0
"""Folds: what is summed up over rows, wherever the rows live.

A fold is a commutative monoid over Arrow batches: however rows are divided into batches, and in whichever order states
are merged, the result is the same, byte for byte. It has no randomness, no input and no output, and can be pickled. So
a task that an engine runs twice changes nothing, and everything after the fold is one code for all engines. Noise is
sampled there, once, at the driver, after the merge and after the spend.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

if TYPE_CHECKING:
    import pyarrow as pa

    from dunnage.errors import Problem

S = TypeVar("S")
ROW = "\0row"  # a column that an engine adds for a fold that names it: the position of each row in its source, from 0
NUM_BATCH_ROWS = 1 << 18  # rows in a batch, at most


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


@runtime_checkable
class Rows(Protocol):
    """Where rows live."""

    source: str  # its name in errors
    schema: pa.Schema  # all columns
    problems: Sequence[Problem]  # of reading; complete after a fold

    def fold(self, fold: Fold[S]) -> S: ...
