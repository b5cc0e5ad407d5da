# SPDX-License-Identifier: Apache-2.0
"""Fleet and Truth: the private rows of many vehicles, and what devices would have reported of them without noise.

Rows are read, and slots find their rows, by the same code that devices' files go through. The truth is an average: over
all slots of all vehicles and days, of which any is as likely to be drawn as another, or over all rows.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dunnage.arrays import FloatArray, IntArray
from dunnage.auditing.tracking import bucket_weights
from dunnage.collecting import batch
from dunnage.collecting.batch import find_inputs
from dunnage.collecting.estimate import MAX_SHARES
from dunnage.collecting.reading import FileColumns, Log, Readings, RowFile, Rows, Window, most_steps
from dunnage.collecting.tasks import CarrierPolicy, read_carriers, task_of
from dunnage.devices.client import mechanism_of
from dunnage.devices.paths import LocalTrajectory, PlaceByPlace
from dunnage.devices.places import LocalLocation, Planar
from dunnage.devices.subjects import Grid
from dunnage.devices.task import SECONDS_PER_DAY, Purpose, Task
from dunnage.errors import InputError

NUM_BUCKETS = 10  # Buckets of equal width that a number is guessed in
_CHUNK_SLOTS = 1 << 21


@dataclass(frozen=True, eq=False, repr=False)
class Fleet:
    """The private rows of many vehicles, as devices would have read them.

    Make one with :meth:`read`. Its ``repr`` shows no figure.

    Parameters
    ----------
    task
        What was reported.
    columns
        Names of the columns.
    vehicles
        Number of the vehicle of each row.
    micros
        Moments of the rows; None if the policy names no column of time.
    numbers
        Columns of numbers, NaN where there is none.
    notes, policy_digest
        What reading found, and the digest of the policy.
    """

    task: Task
    columns: FileColumns
    vehicles: IntArray
    micros: IntArray | None
    numbers: Mapping[str, FloatArray]
    notes: tuple[str, ...] = ()
    policy_digest: str = ""

    def __repr__(self) -> str:
        return f"Fleet({self.task.dataset!r}, private)"

    @classmethod
    def read(cls, path: str | os.PathLike[str], policy: CarrierPolicy | str | os.PathLike[str]) -> Fleet:
        """Read the rows of a CSV or Parquet file under a policy for devices.

        Raises
        ------
        InputError
            If the file cannot be used.
        PolicyError
            If the policy is none for devices.
        """
        rules = policy if isinstance(policy, CarrierPolicy) else read_carriers(policy)
        task = task_of(rules)
        places = next(iter(rules.place_columns.values()), FileColumns().places)
        columns = FileColumns(vehicle=rules.vehicle, time=rules.time or FileColumns().time, places=places)
        source = RowFile(Path(path), numbers=columns.numbers_of(task), time=rules.time, labels=[columns.vehicle])
        codes: dict[str, int] = {}
        pieces = []
        for rows in source:  # vehicles are numbered as they come
            labels = rows.labels[columns.vehicle]
            known = [codes.setdefault(text, len(codes)) for text in labels.dictionary.to_pylist()]
            pieces.append((np.array(known, dtype=np.int64)[labels.indices.to_numpy(zero_copy_only=False)], rows))
        if not pieces:
            raise InputError(str(path), ["has no rows. Give those that devices reported from."])
        return cls(
            task=task,
            columns=columns,
            vehicles=np.concatenate([vehicles for vehicles, _ in pieces]),
            micros=np.concatenate([rows.micros for _, rows in pieces]) if rules.time else None,
            numbers={name: np.concatenate([rows.numbers[name] for _, rows in pieces]) for name in source.numbers},
            notes=tuple(source.notes()),
            policy_digest=rules.digest(),
        )

    @property
    def num_vehicles(self) -> int:
        """Number of vehicles."""
        return int(self.vehicles.max()) + 1

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self.vehicles)

    @cached_property
    def _log(self) -> Log:
        log = Log(Window(task=self.task), self.columns)
        log.add(self.vehicles, Rows(1, self.num_rows, dict(self.numbers), self.micros))
        log.close()
        return log

    @cached_property
    def days(self) -> range:
        """The days of the rows, counted from 1 January 1970."""
        assert self.micros is not None
        per_day = SECONDS_PER_DAY * 1_000_000
        return range(int(self.micros.min()) // per_day, int(self.micros.max()) // per_day + 1)

    @property
    def num_slots(self) -> int:
        """Slots of all vehicles, of all moments of all days, drawn or not."""
        return self.num_vehicles * len(self.days) * self.task.schedule.num_moments if self.micros is not None else 0

    def by_slot(self) -> Iterator[Readings]:
        """Yield what every vehicle would report at every moment of every day: one of these is as likely as another."""
        moments = self.task.schedule.num_moments
        step = max(1, _CHUNK_SLOTS // moments)
        for day in self.days:
            slots = day * moments + np.arange(moments)
            for start in range(0, self.num_vehicles, step):
                some = np.arange(start, min(start + step, self.num_vehicles))
                vehicles = np.repeat(some, moments)
                yield self._log.readings(vehicles, np.zeros_like(vehicles), np.tile(slots, len(some)))

    @cached_property
    def order(self) -> IntArray:
        """Rows in the order of vehicles and moments: that of :meth:`by_row`."""
        return np.lexsort((self.vehicles,) if self.micros is None else (self.micros, self.vehicles))

    def by_row(self) -> Iterator[Readings]:
        """Yield every row as a reading; its path is made of the vehicle's rows before it."""
        order = self.order
        vehicles, steps = self.vehicles[order], []
        for back in range(most_steps(self.task) - 1, -1, -1):
            rows = np.arange(len(order)) - back
            same = (rows >= 0) & (vehicles[np.maximum(rows, 0)] == vehicles)
            steps.append(
                {
                    name: np.where(same, column[order[np.maximum(rows, 0)]], np.nan)
                    for name, column in self.numbers.items()
                }
            )
        yield Readings(tiers=np.zeros_like(vehicles), slots=None, steps=steps)

    def areas(self, grid: Grid) -> IntArray:
        """Return the area of each vehicle (rows) at each moment (columns), as reports in clear show it."""
        pieces: dict[int, list[IntArray]] = {}
        for readings in self.by_slot():
            assert readings.slots is not None
            longitudes, latitudes = (readings.steps[-1][name] for name in self.columns.places)
            cells = batch.find_cells(grid, longitudes, latitudes)
            # A place that is missing shows as the first area.
            areas = np.where(cells == grid.outside, 0, cells >> grid.inner_bits)
            day = int(readings.slots[0]) // self.task.schedule.num_moments
            pieces.setdefault(day, []).append(areas.reshape(-1, self.task.schedule.num_moments))
        return np.concatenate([np.concatenate(parts) for _, parts in sorted(pieces.items())], axis=1)


@dataclass(eq=False)
class NumberTruth:
    """How a number is really spread over what may have been reported."""

    weights: FloatArray  # Chances of buckets and points, times `num`
    # total, num, num_missing: sum of the normalised numbers that are there, how many there are, and how many are
    # missing
    total: float = 0.0
    num: int = 0
    num_missing: int = 0

    def add(self, normalised: FloatArray) -> None:
        """Add numbers of [-1, 1], NaN for those that are missing."""
        kept = normalised[~np.isnan(normalised)]
        self.num_missing += len(normalised) - len(kept)
        if len(kept):
            self.total += float(kept.sum())
            self.num += len(kept)
            self.weights += len(kept) * bucket_weights(kept, len(self.weights), self.weights.shape[1] // 2)


@dataclass(eq=False)
class Truth:
    """What devices would have reported without noise."""

    by_row: bool  # Whether every row counts once; else every slot of the schedule does
    numbers: dict[tuple[str, str], NumberTruth] = field(default_factory=dict)  # By purpose and quantity
    maps: dict[str, IntArray] = field(default_factory=dict)  # By purpose: how often each input of its law came up

    @classmethod
    def of(cls, fleet: Fleet, *, by_row: bool) -> Truth:
        truth = cls(by_row)
        for readings in fleet.by_row() if by_row else fleet.by_slot():
            for purpose in fleet.task.purposes:
                columns = readings.columns(purpose, fleet.columns.places)
                if purpose.grid is None:
                    truth._add_numbers(purpose, columns)
                else:
                    truth._add_places(purpose, mechanism_of(fleet.task, purpose), columns)
        return truth

    def _add_numbers(self, purpose: Purpose, columns: Sequence[FloatArray]) -> None:
        for quantity, column in zip(purpose.quantities, columns, strict=True):
            low, high = float(quantity.low), float(quantity.high)
            key = purpose.name, quantity.name
            if key not in self.numbers:
                self.numbers[key] = NumberTruth(np.zeros((NUM_BUCKETS, 2 * quantity.steps + 1)))
            self.numbers[key].add((2 * np.clip(column, low, high) - low - high) / (high - low))

    def _add_places(self, purpose: Purpose, mechanism: Any, columns: Sequence[FloatArray]) -> None:
        law = mechanism.channel(mechanism.levels[0])
        if law.num_inputs > MAX_SHARES:  # nothing is estimated of so many, either
            return
        inputs = inputs_of(mechanism, law, columns)
        counts = np.bincount(inputs, minlength=law.num_inputs)
        if isinstance(law, Planar):  # a missing place counts as the middle
            counts[law.centre] += counts[-1]
            counts[-1] = 0
        self.maps[purpose.name] = self.maps.get(purpose.name, np.zeros_like(counts)) + counts


def inputs_of(mechanism: LocalLocation | LocalTrajectory, law: Any, columns: Sequence[FloatArray]) -> IntArray:
    if isinstance(mechanism, LocalLocation):
        return find_inputs(law, mechanism.grid, *columns)
    places = zip(columns[::2], columns[1::2], strict=True)
    cells = np.stack([batch.find_cells(mechanism.grid, *place) for place in places])
    if isinstance(mechanism.paths, PlaceByPlace):
        return np.asarray(np.ravel_multi_index(tuple(cells), (mechanism.grid.num_cells + 1,) * mechanism.steps))
    return batch.find_paths(mechanism.paths, cells)
