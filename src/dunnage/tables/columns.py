# SPDX-License-Identifier: Apache-2.0
"""Columns of released tables: types that Parquet and CSV both bring back, and text that no spreadsheet runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

# The wide forms of = + - @ are run too, by spreadsheets of East Asian languages.
_RUNS_IN_SPREADSHEET = r"^[=+\-@\t\r\n\x{FF1D}\x{FF0B}\x{FF0D}\x{FF20}]"
_PLAIN_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"


SET_TYPE = pa.list_(pa.string())
"""Type of a column of sets of labels."""

_PORTABLE_TYPES: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], pa.DataType]], ...] = (
    (lambda kind: is_set(kind), lambda kind: SET_TYPE),
    (pa.types.is_date64, lambda kind: pa.date32()),
    (pa.types.is_float16, lambda kind: pa.float32()),
    (lambda kind: str(kind) in ("large_string", "string_view"), lambda kind: pa.string()),
    (lambda kind: kind == pa.time32("s"), lambda kind: pa.time32("ms")),
    (
        lambda kind: pa.types.is_timestamp(kind) and kind.unit == "s",
        lambda kind: pa.timestamp("ms", kind.tz),
    ),
    (
        lambda kind: pa.types.is_decimal(kind) and kind.precision <= 38,
        lambda kind: pa.decimal128(kind.precision, kind.scale),
    ),
)


def portable(table: pa.Table) -> pa.Table:
    """Give columns types that Parquet and CSV both bring back, and drop metadata, which nobody looks through."""
    schema = [pa.field(item.name, _portable_type(item.type)) for item in table.schema]
    return table.cast(pa.schema(schema)).replace_schema_metadata(None)


def _portable_type(kind: pa.DataType) -> pa.DataType:
    return next((made(kind) for check, made in _PORTABLE_TYPES if check(kind)), kind)


def escape_text(column: pa.Array) -> pa.Array:
    """Put a quote before text that a spreadsheet would run; plain numbers stay as they are."""
    runs = pc.match_substring_regex(column, _RUNS_IN_SPREADSHEET)
    number = pc.match_substring_regex(column, _PLAIN_NUMBER)
    return pc.if_else(pc.and_(runs, pc.invert(number)), pc.binary_join_element_wise("'", column, ""), column)


def is_text(kind: pa.DataType) -> bool:
    """Return whether a column holds text."""
    return bool(pa.types.is_string(kind))


def is_set(kind: pa.DataType) -> bool:
    """Return whether a column holds sets of labels."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind)) and is_text(kind.value_type)


def set_text(column: pa.Array) -> pa.Array:
    r"""Write sets of labels as texts such as ``{A,B}``.

    A comma, brace or backslash that belongs to a label has a backslash before it: different lists are different texts.

    Examples
    --------
    >>> set_text(pa.array([["A", "B"], ["Dover, east"]])).to_pylist()
    ['{A,B}', '{Dover\\, east}']
    """
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([set_text(column.combine_chunks())])
    labels = pc.replace_substring_regex(column.flatten(), r"([\\,{}])", r"\\\1")
    # Offsets of their own, from 0: those of a slice begin elsewhere.
    ends = np.concatenate(([0], np.cumsum(pc.list_value_length(column).to_numpy(zero_copy_only=False))))
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(ends, pa.int32()), labels), ",")
    return pc.binary_join_element_wise("{", joined, "}", "")


def as_text(column: pa.Array) -> pa.Array:
    """Return a column as CSV holds it, if it is one of sets or texts; else the column itself."""
    if is_set(column.type):
        return set_text(column)
    return escape_text(column) if is_text(column.type) else column


def write_csv(table: pa.Table, path: Path) -> None:
    """Write a table as CSV that a spreadsheet can open without running anything."""
    for index, item in enumerate(table.schema):
        table = table.set_column(index, item.name, as_text(table.column(index)))
    pacsv.write_csv(table, str(path))
