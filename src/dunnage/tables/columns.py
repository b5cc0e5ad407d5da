# SPDX-License-Identifier: Apache-2.0
"""Columns of released tables: types that Parquet and CSV both bring back, and text that no spreadsheet runs."""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from dunnage.errors import OutputError, ParameterError
from dunnage.folders import new_file
from dunnage.tables.reader import ReadOptions, read_table

# The wide forms of = + - @ are run too, by spreadsheets of East Asian languages.
_RUNS_IN_SPREADSHEET = r"^[=+\-@\t\r\n\x{FF1D}\x{FF0B}\x{FF0D}\x{FF20}]"
_PLAIN_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
MAX_SHEET_ROWS = 1_048_576  # of Excel, its header included
SET_TYPE = pa.list_(pa.string())  # of a column of sets of labels


def portable(table: pa.Table) -> pa.Table:
    """Give columns types that Parquet and CSV both bring back, and drop metadata, which nobody looks through."""
    schema = [pa.field(item.name, _portable_type(item.type)) for item in table.schema]
    return table.cast(pa.schema(schema)).replace_schema_metadata(None)


def _portable_type(kind: pa.DataType) -> pa.DataType:
    if is_set(kind):
        return SET_TYPE
    if pa.types.is_timestamp(kind) and kind.unit == "s":
        return pa.timestamp("ms", kind.tz)
    if pa.types.is_decimal(kind) and kind.precision <= 38:
        return pa.decimal128(kind.precision, kind.scale)
    plain = {"date64[ms]": pa.date32(), "halffloat": pa.float32(), "time32[s]": pa.time32("ms")}
    return {**plain, "large_string": pa.string(), "string_view": pa.string()}.get(str(kind), kind)


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


def write_workbook(folder: str | os.PathLike[str], path: str | os.PathLike[str]) -> list[str]:
    """Write the tables of a release, a plan or a settlement as an Excel workbook, a sheet each; return their names.

    A settlement is private, and so is the workbook then: only its owner may read it.
    """
    try:
        import xlsxwriter
    except ImportError:
        raise ParameterError(
            "Excel workbooks are written with XlsxWriter, which is not installed. "
            "Install it with: pip install 'dunnage[excel]'."
        ) from None
    place, target = Path(folder), Path(path)
    files = sorted(place.glob("*.csv"))
    if not files or not any((place / name).is_file() for name in ("certificate.json", "plan.json", "settlement.json")):
        raise ParameterError(f"{place} is no folder of a release, plan or settlement, which have tables. Give one.")
    if target.suffix.lower() != ".xlsx" or os.path.lexists(target):
        what = "exists already" if os.path.lexists(target) else "does not end in .xlsx"
        raise OutputError(f"{target} {what}. Choose another name.")
    content = io.BytesIO()
    # Text stays text: nothing that a cell holds is run or made a link.
    with xlsxwriter.Workbook(content, {"strings_to_formulas": False, "strings_to_urls": False}) as book:
        for file in files:
            table = read_table(file, ReadOptions()).table
            if table.num_rows >= MAX_SHEET_ROWS:
                raise ParameterError(
                    f"{file} has more rows than a sheet holds, {MAX_SHEET_ROWS - 1:,}. Use it as it is."
                )
            sheet = book.add_worksheet(file.stem[:31])
            sheet.write_row(0, 0, table.column_names)
            sheet.freeze_panes(1, 0)
            for number, column in enumerate(table.columns):
                sheet.write_column(1, number, _as_numbers(column).to_pylist())
    with new_file(target, private=(place / "settlement.json").is_file()) as stream:
        stream.write(content.getvalue())
    return [file.stem for file in files]


def _as_numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of text as numbers, if not a character is lost: 007 is no number."""
    text = pc.if_else(pc.equal(column, ""), None, column)
    for kind in (pa.int64(), pa.float64()):
        with contextlib.suppress(pa.ArrowInvalid):
            numbers = text.cast(kind)
            if numbers.cast(pa.string()).equals(text):
                return numbers
    return column
