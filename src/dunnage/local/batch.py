# SPDX-License-Identifier: Apache-2.0
"""Perturb whole columns, and stream them from Parquet: what a gateway does for many vehicles, or a simulation.

One row is one report. Its law is that of the device exactly (:mod:`dunnage.local.batch_laws`), with the entropy of the
system; what is kept is the :class:`~dunnage.local.tally.Tally`. Rows are perturbed :data:`CHUNK_ROWS` at a time, so
that memory does not grow with them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dunnage.arrays import FloatArray, IntArray
from dunnage.errors import InputError, ParameterError, Problem
from dunnage.local import batch_laws
from dunnage.local.location import LocalLocation
from dunnage.local.numeric import Attribute, JointReport, LocalNumeric, SampledReport
from dunnage.local.numeric_laws import SquareWave
from dunnage.local.oracles import HadamardResponse, InClear, Law, OptimisedUnary, RandomisedResponse
from dunnage.local.planar import Planar
from dunnage.local.subjects import Grid
from dunnage.local.tally import BITS, SYMBOLS, Key, Tally
from dunnage.local.task import Tier
from dunnage.local.trajectory import Independent, LocalTrajectory
from dunnage.noise import Noise, integer

Mechanism = LocalNumeric | LocalLocation | LocalTrajectory

CHUNK_ROWS = 1 << 16
"""Rows perturbed at a time: their reports stay in the processor's cache, or nearly."""


def perturb_column(
    mechanism: Mechanism,
    tier: Tier | str,  # The tier of all rows
    values: Any,
    noise: Noise,  # Where the randomness comes from
    *,
    tally: Tally | None = None,  # A tally to go on with; a new one if left out
    purpose: str | None = None,  # Name of the purpose for a new tally; that of the mechanism if left out
) -> Tally:
    """Perturb a column of values, one report for each row, and keep the tally of the reports.

    Examples
    --------
    >>> from dunnage.local.location import LocalLocation
    >>> grid = Grid(box=("103.9", "30.5", "104.2", "30.8"), levels=3)
    >>> places = LocalLocation(grid=grid, epsilon=1, method="randomised-response")
    >>> perturb_column(places, "all", (np.full(9, 104.0), np.full(9, 30.6)), Noise()).num_reports
    9
    """
    name = tier if isinstance(tier, str) else tier.name
    if tally is None:
        tally = Tally(purpose=purpose or mechanism.name, tier=name)
    columns = [np.asarray(column, dtype=np.float64) for column in values]
    if {column.shape for column in columns} != {(columns[0].size,)} or len(columns) != _num_columns(mechanism):
        raise ParameterError(f"the values must be {_num_columns(mechanism)} columns of one length. Give them in order.")
    tallied = _tallier(mechanism, tier)
    for start in range(0, columns[0].size, CHUNK_ROWS):
        tallied(tally, [column[start : start + CHUNK_ROWS] for column in columns], noise)
    tally.num_reports += columns[0].size
    return tally


def _num_columns(mechanism: Mechanism) -> int:
    if isinstance(mechanism, LocalNumeric):
        return len(mechanism.quantities)
    return 2 * mechanism.steps if isinstance(mechanism, LocalTrajectory) else 2


def _tallier(mechanism: Mechanism, tier: Tier | str) -> Callable[[Tally, list[FloatArray], Noise], None]:
    """Return what perturbs a chunk of columns and adds it to a tally, but for the number of reports."""
    if isinstance(mechanism, LocalNumeric):
        report = mechanism.channel(tier)
        return lambda tally, columns, noise: add_numbers(tally, report, _attributes(mechanism, columns), noise)
    law = mechanism.channel(tier)
    if isinstance(mechanism, LocalTrajectory):
        return lambda tally, columns, noise: add_paths(tally, law, mechanism, _path_cells(mechanism, columns), noise)
    return lambda tally, columns, noise: add_places(tally, law, find_inputs(law, mechanism.grid, *columns), noise)


def _attributes(mechanism: LocalNumeric, columns: list[FloatArray]) -> list[tuple[Attribute, FloatArray]]:
    """Return each attribute with the column that it is made of."""
    of_quantity = {quantity.name: column for quantity, column in zip(mechanism.quantities, columns, strict=True)}
    return [(attribute, of_quantity[attribute.quantity.name]) for attribute in mechanism.attributes]


def add_numbers(
    tally: Tally, report: SampledReport | JointReport, attributes: Sequence[tuple[Attribute, FloatArray]], noise: Noise
) -> None:
    """Perturb numbers, a column for each attribute, and add the reports to a tally, but for their number."""
    if isinstance(report, JointReport):
        _add_joint(tally, report, attributes, noise)
        return
    num_rows = len(attributes[0][1])
    told = batch_laws.draw_sets(noise, len(attributes), report.num_sampled, num_rows)
    for place, ((attribute, column), rows) in enumerate(zip(attributes, told, strict=True)):
        points = find_points(attribute, column[rows], noise)
        for key, symbols in batch_laws.number_symbols(noise, report.laws[place], points):
            _add_symbols(tally, place, key, report.reading(place, key), symbols)


def _add_symbols(tally: Tally, place: int, key: str, law: Any, symbols: IntArray) -> None:
    if isinstance(law, SquareWave):
        tally.counts((place, key), SYMBOLS, 2 * law.last + 1).add_symbols(symbols + law.last)
    elif symbols.size:
        tally.sums(place, key).add(symbols)


def _add_joint(
    tally: Tally, report: JointReport, attributes: Sequence[tuple[Attribute, FloatArray]], noise: Noise
) -> None:
    signs = np.zeros(len(attributes[0][1]), dtype=np.int64)
    for place, (attribute, column) in enumerate(attributes):
        points = find_points(attribute, column, noise)
        signs |= batch_laws.draw_signs(noise, points, attribute.steps).astype(np.int64) << place
    drawn = batch_laws.joint_signs(noise, signs, report.law)
    for place in range(len(attributes)):
        tally.sums(place, report.law.key).add(2 * (drawn >> place & 1) - 1)


def find_points(attribute: Attribute, column: FloatArray, noise: Noise) -> IntArray:
    """Round values at random to points of an attribute, 0 at its low end."""
    if attribute.presence:
        return np.where(np.isnan(column), 0, 2)
    quantity = attribute.quantity
    return batch_laws.round_at_random(noise, column, quantity.low, quantity.high, quantity.steps)


def _path_cells(mechanism: LocalTrajectory, columns: list[FloatArray]) -> IntArray:
    places = zip(columns[::2], columns[1::2], strict=True)
    return np.stack([batch_laws.find_cells(mechanism.grid, *place) for place in places])


def find_inputs(law: Law, grid: Grid, longitudes: FloatArray, latitudes: FloatArray) -> IntArray:
    """Return the input of each position, as :meth:`~dunnage.local.location.LocalLocation.index` does."""
    if isinstance(law, Planar):  # puts what is outside on the border
        west, south, east, north = map(float, grid.box)
        longitudes, latitudes = longitudes.clip(west, east), latitudes.clip(south, north)
    return batch_laws.find_cells(grid, longitudes, latitudes)


def add_places(tally: Tally, law: Law, indices: IntArray, noise: Noise) -> None:
    """Perturb inputs of a place or a path, and add the reports to a tally, but for their number."""
    if not isinstance(law, InClear):
        _count(tally, (), law, _draw(law, indices, noise))
        return
    groups, inner = _split(law, indices)
    drawn = _draw(law.oracle, inner, noise)
    for group, members in _members(groups):
        _count(tally, (group,), law.oracle, drawn[members])


def add_paths(tally: Tally, law: Law, mechanism: LocalTrajectory, cells: IntArray, noise: Noise) -> None:
    """Perturb paths, each row of ``cells`` a place of theirs, and add the reports to a tally, but for their number."""
    if not isinstance(law, Independent):
        add_places(tally, law, batch_laws.find_paths(mechanism.paths, cells), noise)
        return
    oracle, num_groups = law.place.oracle, law.place.num_groups
    groups, inner = _split(law.place, cells)
    rows = [_draw(oracle, places, noise) for places in inner]
    for group, members in _members(np.ravel_multi_index(tuple(groups), (num_groups,) * law.steps)):
        key = tuple(int(area) for area in np.unravel_index(group, (num_groups,) * law.steps))
        counts = tally.counts(key, BITS, *((oracle.num_inputs + 1,) * law.steps))
        counts.add_together([of_place[members] for of_place in rows])


def _split(law: InClear, indices: IntArray) -> tuple[IntArray, IntArray]:
    """Return groups and inner inputs, as :meth:`~dunnage.local.oracles.InClear.split` does."""
    missing = indices == law.num_inputs - 1
    groups = np.where(missing, 0, indices // law.group_size)
    return groups, np.where(missing, law.group_size, indices % law.group_size)


def _members(groups: IntArray) -> Iterator[tuple[int, IntArray]]:
    """Yield each group that comes up, and where."""
    order = np.argsort(groups, kind="stable")
    found, starts = np.unique(groups[order], return_index=True)
    yield from zip(found.tolist(), np.split(order, starts[1:]), strict=True)


def _draw(law: Any, indices: IntArray, noise: Noise) -> Any:
    """Draw symbols, or packed rows of bits."""
    if isinstance(law, RandomisedResponse):
        return batch_laws.randomised_response(noise, indices, law.num_inputs, law.epsilon)
    if isinstance(law, HadamardResponse):
        return batch_laws.hadamard(noise, indices, law.num_blocks, law.num_columns, law.epsilon)
    if isinstance(law, Planar):
        return batch_laws.planar(noise, indices, law)
    other = law.ratio_epsilon
    own = 0 * other if isinstance(law, OptimisedUnary) else other
    return batch_laws.unary(noise, indices, law.num_inputs, own=own, other=other)


def _count(tally: Tally, key: Key, law: Any, drawn: Any) -> None:
    if drawn.ndim == 1:
        tally.counts(key, SYMBOLS, law.num_symbols).add_symbols(drawn)
    else:
        tally.counts(key, BITS, law.num_inputs).add_rows(drawn)


def perturb_parquet(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],  # One file, or several of the same columns
    mechanism: Mechanism,
    tier: Tier | str,
    *,
    columns: Sequence[str],  # Names of the columns, in the order that :func:`perturb_column` takes them
    noise: Noise,
    purpose: str | None = None,
    batch_rows: int = 1 << 20,  # Rows read at a time
    progress: Callable[[int, int], None] | None = None,  # Called with rows done and rows in all, after each batch
) -> Tally:
    """Perturb the rows of Parquet files, one report for each row, without ever holding them all."""
    names = list(columns)
    if len(names) != _num_columns(mechanism):
        raise ParameterError(f"name {_num_columns(mechanism)} columns in order. Got {len(names)}.")
    files = [Path(path) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)]
    num_rows = sum(_checked_rows(path, names) for path in files)
    tally = perturb_column(mechanism, tier, [np.zeros(0)] * len(names), noise, purpose=purpose)
    for values in _batches(files, names, integer(batch_rows, "batch_rows", least=1)):
        perturb_column(mechanism, tier, values, noise, tally=tally)
        if progress is not None:
            progress(tally.num_reports, num_rows)
    return tally


def _checked_rows(path: Path, names: list[str]) -> int:
    """Check the columns of a file and return its number of rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as source:
            schema, num_rows = source.schema_arrow, int(source.metadata.num_rows)
    except (OSError, pa.ArrowInvalid) as error:
        raise _unreadable(path, error) from None
    problems = [problem for name in names for problem in _column_problems(schema, name)]
    if problems:
        raise InputError(str(path), problems)
    return num_rows


def _column_problems(schema: Any, name: str) -> Iterator[Problem]:
    import pyarrow.types as kinds

    if schema.names.count(name) != 1:
        yield Problem("there is no such column, or there are several", where=name, remedy="Name another one.")
    elif not _holds_numbers(kinds, schema.field(name).type):
        yield Problem("the column does not hold numbers", where=name, remedy="Write it as double, say.")


def _holds_numbers(kinds: Any, kind: Any) -> bool:
    return bool(kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_decimal(kind) or kinds.is_null(kind))


def _batches(files: list[Path], names: list[str], batch_rows: int) -> Iterator[list[FloatArray]]:
    """Yield columns of doubles, NaN where nothing is."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for path in files:
        try:
            # Not read ahead: a row group may be larger than the memory that is wanted.
            with pq.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False) as source:
                for rows in source.iter_batches(batch_rows, columns=names, use_threads=False):
                    columns = [rows.column(rows.schema.get_field_index(name)) for name in names]
                    yield [column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False) for column in columns]
        except (OSError, pa.ArrowInvalid) as error:
            raise _unreadable(path, error) from None


def _unreadable(path: Path, error: Exception) -> InputError:
    reason = getattr(error, "strerror", None) or "it is damaged, or not Parquet"
    return InputError(str(path), [Problem(f"the file cannot be read: {reason}", remedy="Name a Parquet file.")])
