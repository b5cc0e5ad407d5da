# SPDX-License-Identifier: Apache-2.0
"""Read datasets: CSV and Parquet files through Arrow, and any frame that offers the Arrow C stream.

A CSV file is read as text; blank lines are no rows, unless the file has but one column. What Arrow or Python say
about a file they cannot read may quote its cells, so their words are never repeated.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import os
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from dunnage.dataset import Dataset, is_text, numbers_of_text
from dunnage.errors import MOST_ROWS_NAMED, InputError, ParameterError, Problem
from dunnage.exact import shown
from dunnage.policy import Policy, ReadOptions
from dunnage.policy.draft import draft_policy

CSV_ENDINGS = (".csv", ".csv.gz")
TAB_ENDINGS = (".tsv", ".tsv.gz")
PARQUET_ENDINGS = (".parquet", ".pq")
_LARGEST_ROW_BYTES = 1 << 24
_NUM_DRAFT_ROWS = 1000
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")
_DRAFT_DELIMITERS = ",;\t|"
_DRAFT_FORMS = {
    "time": re.compile(
        r"\d{4}-\d\d-\d\d([T ]\d{1,2}:\d\d(:\d\d([.,]\d+)?)?\s?(Z|[+-]\d\d:?\d\d)?)?|\d{1,2}:\d\d(:\d\d([.,]\d+)?)?"
    ),
    "date": re.compile(r"\d{1,4}[./-]\d{1,2}[./-]\d{1,4}([T ,].*)?"),
    "flag": re.compile("true|false|yes|no|y|n|t|f|ja|nein|oui|non|si", re.IGNORECASE),
}
_NUMBERS = {
    "comma": re.compile(r"[+-]?\d*,\d+"),
    "point": re.compile(r"[+-]?\d*\.\d+"),
    "thousands": re.compile(r"[+-]?\d{1,3}([.,' \u00a0\u202f]\d{3})+([.,]\d+)?"),
    "whole": re.compile(r"[+-]?\d+"),
}
"""Ways to write numbers; what may be meant by two of them counts as the first."""
_WITH_OFFSET = re.compile(r".*\d\d:\d\d.*(Z|[+-]\d\d:?\d\d)")
_SIGNATURES = {b"PAR1": "Parquet (.parquet)", b"\x1f\x8b": "gzip (.csv.gz)", b"PK\x03\x04": "a zip archive or workbook"}


def load(data: Any, policy: Policy | str | os.PathLike[str], *, period: str | None = None) -> Dataset:
    """Load private rows under a policy.

    Parameters
    ----------
    data
        Path of a CSV or Parquet file, or a frame with the Arrow C stream (polars, pandas, DuckDB, pyarrow ...).
        A file named ``.tsv`` is CSV with tabs.
    policy
        A policy or the path of one.
    period
        Which period to take, if the policy has ``[period]``.

    Returns
    -------
    Dataset
        The checked rows.

    Raises
    ------
    InputError, PolicyError
        With all problems of the file.
    """
    rules = policy if isinstance(policy, Policy) else Policy.read(policy)
    if not isinstance(data, str | os.PathLike):
        if not hasattr(data, "__arrow_c_stream__"):
            raise ParameterError(
                "data must be a path or a frame with the Arrow C stream interface. "
                f"Got {type(data).__name__}. Pass a pyarrow table, a polars or a pandas (2.2+) frame."
            )
        try:
            table = _with_names(pa.table(data))
            # pandas brings its row index along as columns of these names; it is no data
            table = table.drop_columns([name for name in table.column_names if _PANDAS_INDEX.fullmatch(name)])
        except Exception:  # the frame's own code runs here, and what it says may quote cells
            raise ParameterError(
                f"the {type(data).__name__} could not be turned into an Arrow table. "
                "Pass a frame with one type a column."
            ) from None
        return Dataset.from_table(table, rules, period=period)
    source = _read_file(Path(data), rules.read_options)
    return Dataset.from_table(
        source.table, rules, period=period, source=str(data), rows=source.rows, problems=source.problems
    )


def _with_names(table: pa.Table) -> pa.Table:
    """Return the same table; column names that are not UTF-8 fail here and not later."""
    return table.rename_columns(table.column_names)


@dataclass(frozen=True)
class _Source:
    """What a file holds: a table, where its rows were if some had to be skipped, and what was wrong with those."""

    table: pa.Table
    rows: npt.NDArray[np.int64] | None = None
    problems: tuple[Problem, ...] = ()


def _read_file(path: Path, options: ReadOptions) -> _Source:
    """Read a CSV file as text columns, or a Parquet file with its own types."""
    if not path.is_file():
        what = "is a folder, not a file" if path.is_dir() else "is not a file" if path.exists() else "does not exist"
        raise InputError(str(path), [f"{what}. Check the path."])
    name = path.name.lower()
    if name.endswith(PARQUET_ENDINGS):
        try:
            with path.open("rb") as stream, pq.ParquetFile(stream) as file:
                return _Source(_with_names(file.read(use_threads=False)))
        except OSError as error:
            what = f"cannot be read: {error.strerror}" if error.strerror else "is not a readable Parquet file"
        except (pa.ArrowException, ValueError):
            what = "is not a readable Parquet file"
        raise InputError(str(path), [f"{what}. Check it, or write it again."])
    if name.endswith(CSV_ENDINGS + TAB_ENDINGS):
        # A comma is what a policy says that says nothing.
        tabs = name.endswith(TAB_ENDINGS) and options.delimiter == ReadOptions().delimiter
        return _read_csv(path, _csv_content(path, options.encoding), "\t" if tabs else options.delimiter)
    known = ", ".join(CSV_ENDINGS + TAB_ENDINGS + PARQUET_ENDINGS)
    raise InputError(str(path), [f"is neither CSV nor Parquet by its name. Use one of {known}."])


def _csv_content(path: Path, encoding: str) -> bytes:
    opened = gzip.open if path.name.lower().endswith(".gz") else open
    try:
        with opened(path, "rb") as stream:
            content: bytes = stream.read()
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise InputError(str(path), ["is not a whole gzip file. Compress it again."]) from None
    except OSError as error:
        raise InputError(
            str(path), [f"cannot be read: {error.strerror}. Check the file and its permissions."]
        ) from None
    for signature, kind in _SIGNATURES.items():
        if content.startswith(signature):
            raise InputError(str(path), [f"is no CSV file but {kind}. Convert it, or name it so."])
    try:
        if codecs.lookup(encoding).name in ("utf-8", "utf-8-sig"):
            content.decode("utf-8")
            text = content.removeprefix(codecs.BOM_UTF8)
        else:
            text = content.decode(encoding).removeprefix("\ufeff").encode("utf-8")
    except UnicodeError as error:
        line = _line(content, getattr(error, "start", 0))
        remedy = 'Save it as UTF-8, or name its encoding: [read] encoding = "latin-1", say.'
        raise InputError(str(path), [Problem(f"is not {encoding} text (line {line})", remedy=remedy)]) from None
    if not text.strip():
        raise InputError(str(path), ["is empty. Give a header line and at least one row."])
    if b"\0" in text:
        what = f"is no text: line {_line(text, text.index(0))} holds a NUL character"
        remedy = 'Save it as UTF-8, or name its encoding: [read] encoding = "utf-16", say.'
        raise InputError(str(path), [Problem(what, remedy=remedy)])
    return text


def _line(content: bytes, position: int) -> int:
    return content.count(b"\n", 0, position) + 1


def _csv_rows(content: bytes, delimiter: str) -> Iterator[list[str]]:
    """Read rows the slow and strict way; blank lines are no rows."""
    text = io.TextIOWrapper(io.BytesIO(content), encoding="utf-8", newline="")
    return (cells for cells in csv.reader(text, delimiter=delimiter, strict=True) if cells)


def _read_csv(path: Path, content: bytes, delimiter: str) -> _Source:
    # Quotes that are not closed or not at the ends of a cell: Arrow would take the rest of the file for one.
    num_rows = 0
    try:
        for _ in _csv_rows(content, delimiter) if b'"' in content else ():
            num_rows += 1
    except csv.Error:
        problem = Problem(
            "has a quote that is not closed, text after a closing quote, or a cell of over 100,000 characters",
            where="" if num_rows else "header",
            rows=(num_rows,) if num_rows else (),
            remedy='Mend the quotes; a quote inside a quoted cell is written "".',
        )
        raise InputError(str(path), [problem]) from None
    try:
        names = next(_csv_rows(content, delimiter))
        table, bad_rows = _parse_csv(content, names, delimiter)
    except (pa.ArrowException, csv.Error, StopIteration):
        remedy = f"Check quotes, delimiter ([read] delimiter) and that no row is over {_LARGEST_ROW_BYTES >> 20} MiB."
        raise InputError(str(path), [Problem("is not a readable CSV file", remedy=remedy)]) from None
    if not bad_rows:
        return _Source(table)
    problem = Problem(
        f"has more or fewer cells than the header's {len(names)}",
        rows=tuple(bad_rows[:MOST_ROWS_NAMED]),
        num_rows=len(bad_rows),
        remedy="Mend or quote the cells.",
    )
    everything = np.arange(table.num_rows + len(bad_rows), dtype=np.int64)
    return _Source(table, np.delete(everything, np.asarray(bad_rows) - 1), (problem,))


def _parse_csv(content: bytes, names: list[str], delimiter: str) -> tuple[pa.Table, list[int]]:
    """Read all cells as text. Returns the table and the data rows, from 1, that have another number of cells."""
    bad_rows: list[int] = []

    def note(row: pacsv.InvalidRow) -> str:
        bad_rows.append(int(row.number) - 1)  # Arrow counts rows, not lines, and the header is its row 1
        return "skip"

    # In a file of one column an empty line is a missing cell, not a gap between rows.
    single = len(names) == 1
    table = pacsv.read_csv(
        pa.BufferReader(content.strip(b"\r\n") if single else content),
        # Threads would leave the number of a row unknown. The header is read as a row, so that nothing is guessed.
        read_options=pacsv.ReadOptions(column_names=names, use_threads=False, block_size=_LARGEST_ROW_BYTES),
        parse_options=pacsv.ParseOptions(
            delimiter=delimiter, newlines_in_values=True, invalid_row_handler=note, ignore_empty_lines=not single
        ),
        convert_options=pacsv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False, null_values=[]
        ),
    )
    if 0 in bad_rows:
        raise csv.Error
    return table.slice(1), bad_rows


def draft(data: str | os.PathLike[str], *, story: str | None = None) -> str:
    """Write a policy for a file, to be filled in: from its column names and types only.

    Parameters
    ----------
    data
        Path of a CSV (or ``.tsv``) or Parquet file.
    story
        What rows stand for: ``rows`` (records of their own), ``trips`` (to be counted) or ``devices`` (readings that
        devices perturb). By default what the names of the columns look like.

    Returns
    -------
    str
        TOML text with roles, domains, k and epsilon left blank.
    """
    if not isinstance(data, str | os.PathLike):
        raise ParameterError(f"data must be the path of a file. Got {shown(type(data).__name__)}. Give a path.")
    path = Path(data)
    options = _drafted_options(path)
    source = _read_file(path, options)
    # What no policy could be about: two columns of one name, rows that are longer or shorter than others.
    names = source.table.column_names
    problems = [
        Problem("appears several times", where=f"column {shown(name)}", remedy="Give each column a name of its own.")
        for name in dict.fromkeys(names)
        if names.count(name) > 1
    ]
    forms = (*_NUMBERS.values(), _DRAFT_FORMS["time"], _DRAFT_FORMS["date"])
    if problems and any(form.fullmatch(name.strip()) for form in forms for name in names):
        problems = [Problem("its first line seems to hold values, not names", remedy="Put a line of names before it.")]
    for problem in source.problems:
        line = _line_of(path, options, problem.rows[0])
        problems.append(replace(problem, remedy=f"Look at line {line} of the file. {problem.remedy}"))
    if problems:
        raise InputError(str(path), problems)
    table = source.table
    if options.delimiter != ",":
        options = replace(options, decimal=_decimal(table))
    kinds = {name: _kind(column, options) for name, column in zip(table.column_names, table.columns, strict=True)}
    seen = {name: what for name, kind in kinds.items() if (what := _seen(table.column(name), kind, options))}
    return draft_policy(path.name.split(".")[0], kinds, options=options, story=story, seen=seen)


def _line_of(path: Path, options: ReadOptions, row: int) -> int:
    """Return the line of a data row, counted from 1 as editors do; a row may span several."""
    text = io.StringIO(_csv_content(path, options.encoding).decode("utf-8"), newline="")
    reader = csv.reader(text, delimiter=options.delimiter)
    number = -1
    for cells in reader:
        number += bool(cells)
        if number == row:
            break
    return reader.line_num


def _decimal(table: pa.Table) -> str:
    """Say which decimal mark more columns have in most of their cells; a point, if neither."""
    forms = [_forms(column) for column in table.columns if is_text(column.type)]
    columns = {what: sum(found[what] > found["all"] / 2 for found in forms) for what in ("comma", "point")}
    return "," if columns["comma"] > columns["point"] else "."


def _forms(column: pa.ChunkedArray) -> Counter[str]:
    """Count how the first cells of a column are written; nothing of the values is kept."""
    words = _words(column.slice(0, _NUM_DRAFT_ROWS).combine_chunks())
    found = Counter(next((what for what, form in _NUMBERS.items() if form.fullmatch(word)), "") for word in words)
    return found + Counter(all=len(words))


def _words(cells: pa.Array) -> list[str]:
    return [text for cell in cells.to_pylist() if cell and (text := cell.strip())]


def _seen(column: pa.ChunkedArray, kind: str, options: ReadOptions) -> str:
    """Say what cells look like that are not read as they seem to be meant; empty, if nothing is to be said."""
    if not is_text(column.type):
        return ""
    if kind == "time":
        words = _words(column.slice(0, _NUM_DRAFT_ROWS).combine_chunks())
        return "offset" if any(_WITH_OFFSET.fullmatch(word) for word in words) else ""
    if kind != "text":
        return ""
    found = _forms(column)
    if not len(column):
        return "nothing"
    if 2 * sum(found[what] for what in _NUMBERS) <= found["all"]:
        return ""
    other = "point" if options.decimal == "," else "comma"
    return next((what for what in (other, "thousands") if found[what]), "words")


def _drafted_options(path: Path) -> ReadOptions:
    """Guess how a CSV file is written: UTF-8 or Latin-1, and the delimiter that cuts the header into most names."""
    if not path.is_file() or not path.name.lower().endswith(CSV_ENDINGS + TAB_ENDINGS):
        return ReadOptions()
    try:
        encoding = "utf-8"
        content = _csv_content(path, encoding)
    except InputError:
        encoding = "latin-1"
        content = _csv_content(path, encoding)  # an empty file or one with NULs is refused again
    header = content.lstrip().splitlines()[0].decode()
    tabs = path.name.lower().endswith(TAB_ENDINGS)
    return ReadOptions(delimiter="\t" if tabs else max(_DRAFT_DELIMITERS, key=header.count), encoding=encoding)


def _kind(column: pa.ChunkedArray, options: ReadOptions) -> str:
    if is_text(column.type):
        # What the first cells are written like; nothing of the values is kept.
        cells = column.slice(0, _NUM_DRAFT_ROWS).combine_chunks()
        numbers, unreadable = numbers_of_text(cells, options)
        if unreadable.any():
            words = set(_words(cells))
            fits = (kind for kind, form in _DRAFT_FORMS.items() if all(form.fullmatch(word) for word in words))
            return next(fits, "text")
        return "text" if numbers.null_count == len(numbers) else "numeric"
    if pa.types.is_temporal(column.type):
        return "time"
    if pa.types.is_boolean(column.type):
        return "flag"
    checks = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return "numeric" if any(check(column.type) for check in checks) else "text"
