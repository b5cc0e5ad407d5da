# SPDX-License-Identifier: Apache-2.0
"""Readings: what vehicles are to report at some slots, and which rows of a file these are.

The reading of a slot is the latest row at or before its moment that is not older than ``max_age``; without one it is
missing. The path of a slot is the readings of its moment and of those before it, ``slot_minutes`` apart. Rows need not
be in the order of time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dunnage.arrays import FloatArray, IntArray
from dunnage.devices.reading import MICROS, FileColumns, Rows
from dunnage.errors import ParameterError
from dunnage.local.task import MINUTES_PER_DAY, Purpose, Task


@dataclass(frozen=True, kw_only=True)
class Readings:
    """What some vehicles report, each of them all purposes."""

    tiers: IntArray  # For each reading, the vehicle's tier, as a number among the task's tier names
    slots: IntArray | None  # The slot, counted from 1 January 1970; None if nobody asks
    # Columns by name for each step of a path, the latest last; a reading that is no path is the last
    steps: Sequence[dict[str, FloatArray]]
    num_missing: int = 0  # How many readings no row was found for

    def columns(self, purpose: Purpose, places: tuple[str, str]) -> list[FloatArray]:
        """Return the columns that a purpose reports, in the order that ``perturb_column`` takes them."""
        if purpose.grid is None:
            return [self.steps[-1][quantity.name] for quantity in purpose.quantities]
        return [step[name] for step in self.steps[len(self.steps) - purpose.steps :] for name in places]


def value_of(purpose: Purpose, cells: Sequence[float]) -> Any:
    """Return what a device reports, of the cells of one row in the order of :meth:`Readings.columns`."""
    if purpose.grid is None:
        return {quantity.name: cell for quantity, cell in zip(purpose.quantities, cells, strict=True)}
    places = list(zip(cells[::2], cells[1::2], strict=True))
    return places[0] if purpose.steps == 1 else places


def most_steps(task: Task) -> int:
    """Return how many places the longest path of a task has; 1 if there is none."""
    return max(purpose.steps for purpose in task.purposes)


@dataclass(frozen=True, kw_only=True)
class Window:
    """How far back a slot looks for its reading."""

    task: Task  # The task, which says how far slots are apart
    max_age: int | None = None  # Minutes; by default the length of a slot

    def __post_init__(self) -> None:
        if self.max_age is not None and not 1 <= self.max_age <= MINUTES_PER_DAY:
            raise ParameterError(f"max-age must be 1 to 1440 minutes. Got {self.max_age}. Choose 60, say.")

    @property
    def slot_seconds(self) -> int:
        """Distance of slots."""
        return self.task.schedule.slot_minutes * 60

    @property
    def age_seconds(self) -> int:
        """Age from which on a row is too old."""
        return self.slot_seconds if self.max_age is None else self.max_age * 60

    @property
    def num_slots(self) -> int:
        """To how many slots, from the next one on, a row may matter."""
        return -(-self.age_seconds // self.slot_seconds) + most_steps(self.task) - 1

    def first_slots(self, micros: IntArray) -> IntArray:
        """Return the first slot, counted from 1 January 1970, that is not before each moment."""
        return -(-micros // (self.slot_seconds * MICROS))


class Log:
    """Rows that may be the reading of some slot, of one vehicle or many."""

    def __init__(self, window: Window, columns: FileColumns) -> None:
        self._window, self._names = window, columns.numbers_of(window.task)
        self._pieces: list[tuple[IntArray, IntArray, dict[str, FloatArray]]] = []

    def add(self, vehicles: IntArray, rows: Rows, kept: Any = slice(None)) -> None:
        """Keep some rows, with the numbers of their vehicles."""
        assert rows.micros is not None
        numbers = {name: rows.numbers[name][kept] for name in self._names}
        self._pieces.append((vehicles[kept], rows.micros[kept], numbers))

    def close(self) -> None:
        """Put all rows in order; of rows of one moment the last counts."""
        empty: dict[str, FloatArray] = {name: np.zeros(0) for name in self._names}
        pieces = self._pieces or [(np.zeros(0, np.int64), np.zeros(0, np.int64), empty)]
        vehicles, micros = (np.concatenate([piece[at] for piece in pieces]) for at in (0, 1))
        order = np.lexsort((micros, vehicles))
        # A row counts at whole seconds not before it, so seconds rounded up compare as the moments themselves do.
        seconds = -(-micros[order] // MICROS)
        self._start = int(seconds.min()) if seconds.size else 0
        self._span = int(seconds.max()) - self._start + 1 if seconds.size else 1
        self._vehicles, self._seconds = vehicles[order], seconds
        self._keys = self._vehicles * self._span + seconds - self._start
        self._numbers = {name: np.concatenate([piece[2][name] for piece in pieces])[order] for name in self._names}
        self._pieces = []

    def readings(self, vehicles: IntArray, tiers: IntArray, slots: IntArray) -> Readings:
        """Find what vehicles report at slots that are counted from 1 January 1970."""
        back = range(most_steps(self._window.task) - 1, -1, -1)
        found = [self._latest(vehicles, (slots - steps) * self._window.slot_seconds) for steps in back]
        steps = [{name: _taken(column, rows) for name, column in self._numbers.items()} for rows in found]
        return Readings(tiers=tiers, slots=slots, steps=steps, num_missing=int((found[-1] < 0).sum()))

    def _latest(self, vehicles: IntArray, moments: IntArray) -> IntArray:
        """Return the latest row of each vehicle at or before a moment that is not too old; -1 if there is none."""
        inside = (moments - self._start).clip(-1, self._span - 1)
        rows = np.searchsorted(self._keys, vehicles * self._span + inside, side="right") - 1
        known = np.flatnonzero((rows >= 0) & (inside >= 0))
        at = rows[known]
        fresh = (self._vehicles[at] == vehicles[known]) & (
            self._seconds[at] > moments[known] - self._window.age_seconds
        )
        latest = np.full(rows.size, -1, dtype=np.int64)
        latest[known[fresh]] = at[fresh]
        return latest


def _taken(column: FloatArray, rows: IntArray) -> FloatArray:
    """Take rows of a column; NaN for row -1."""
    return np.append(column, np.nan)[rows]
