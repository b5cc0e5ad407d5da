# SPDX-License-Identifier: Apache-2.0
"""Read tables: CSV and TSV (plain or gzip), Parquet (a file or a folder of files) and Excel workbooks.

A CSV file is read as text; blank lines are not rows, unless the file has only one column. Messages of Arrow, calamine
or Python about an unreadable file may quote its cells, so they are never repeated.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import datetime
import gzip
import io
import string
import sys
import time
import traceback
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple
from xml.parsers import expat

import numpy as np

from dunnage.arrays import IntArray
from dunnage.errors import InputError, ParameterError, Problem
from dunnage.folds import Piece
from dunnage.tables.parquet import BATCH_ROWS, Oversized, Parquet, max_decoded
from dunnage.text import several

if TYPE_CHECKING:  # imported when a table is read: policies do not need it
    import pyarrow as pa
    import pyarrow.csv as pacsv

CSV_ENDINGS = (".csv", ".csv.gz")
TAB_ENDINGS = (".tsv", ".tsv.gz")
PARQUET_ENDINGS = (".parquet", ".pq")
EXCEL_ENDINGS = (".xlsx",)
ENDINGS = CSV_ENDINGS + TAB_ENDINGS + PARQUET_ENDINGS + EXCEL_ENDINGS
MAX_FILE_BYTES = 64 * 2**20  # of a hierarchy, edge file or other short public list
_CELL_BYTES = 40  # of a blank cell of a workbook, while it is read
MAX_LINES_NAMED = 20
MAX_TITLE_LINES = 50  # The header of a sheet must be within these lines
_BLOCK_BYTES = 1 << 24  # of a row in a CSV file
_STREAM_BYTES = 1 << 22  # of a row in a CSV file that is streamed: Arrow reads up to 32 blocks ahead
_RELEASE_SECONDS = 1.0  # longest wait for Arrow's threads after an error in a row
_DELIMITERS = frozenset(string.punctuation + " \t") - {'"'}
_GUESSED_DELIMITERS = ",;\t|"
_OVERSIZED = "is damaged, or unpacks to far more than files of its size usually do"
_BYTE_ORDERS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)  # that of UTF-32-LE begins as UTF-16's
_SIGNATURES = {b"PAR1": "Parquet (.parquet)", b"\x1f\x8b": "gzip (.csv.gz)", b"PK\x03\x04": "a zip archive or workbook"}


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    delimiter: str = ","
    decimal: str = "."
    encoding: str = "utf-8"
    null: tuple[str, ...] | None = None  # words that mean "missing"
    sheet: str | None = field(default=None, repr=False)  # of a workbook; needed if several have a table

    def __post_init__(self) -> None:
        if self.delimiter not in _DELIMITERS:
            raise ParameterError(
                f'delimiter must be a tab, a space or a mark such as "," or ";". Got {self.delimiter!r}.'
            )
        if self.decimal not in (".", ",") or self.decimal == self.delimiter:
            raise ParameterError(
                f'decimal must be "." or "," and differ from the delimiter. Got {self.decimal!r}. '
                'Use decimal = "," with delimiter = ";".'
            )
        try:
            ",".encode(self.encoding)
        except (LookupError, ValueError):
            raise ParameterError(f'unknown encoding {self.encoding!r}. Try "utf-8" or "latin-1".') from None

    def delimiter_in(self, path: Path) -> str:
        """Return the delimiter of a file: tabs in a ``.tsv`` file, unless the options set another than the comma."""
        return "\t" if is_named(path, TAB_ENDINGS) and self.delimiter == "," else self.delimiter


FIRST_ROW = 1  # The number of the first line below the header, wherever a person or a file names a row


class Source(NamedTuple):
    table: pa.Table  # Text from a CSV file, otherwise with its own types
    rows: IntArray | None = None  # Positions of its rows, from 0, if some had to be skipped
    problems: tuple[Problem, ...] = ()  # The problems of skipped rows


def is_named(path: Path, endings: tuple[str, ...]) -> bool:
    return path.name.lower().endswith(endings)


def checked_path(path: Path, endings: tuple[str, ...] = ENDINGS) -> Path:
    """Refuse a path that is not a file or a folder of Parquet files, or has another ending."""
    if path.is_dir():
        _check_folder(path)
    elif not path.is_file():
        raise InputError(str(path), [f"{'is not a file' if path.exists() else 'does not exist'}. Check the path."])
    if not (path.is_dir() or is_named(path, endings)):
        raise InputError(str(path), [f"has an unknown ending. Use one of {', '.join(endings)}."])
    return path


def parquet_files(path: Path) -> list[Path]:
    """Return the Parquet files of a folder by name, or the file itself; an empty list if there are none."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    return [file for file in files if is_named(file, PARQUET_ENDINGS) and file.name[0] not in "._" and file.is_file()]


def _check_folder(path: Path) -> None:
    """Refuse a folder without Parquet files, and one with other rows, which nobody would read."""
    files, others = parquet_files(path), []
    for entry in sorted(path.iterdir()):
        of_rows = is_named(entry, ENDINGS) if entry.is_file() else any(map(parquet_files, (entry, *entry.rglob("*/"))))
        if entry not in files and entry.name[0] not in "._~" and of_rows:
            others.append(entry)
    if files and not others:
        return
    what, remedy = "is a folder without Parquet files", "Name a file, or a folder of Parquet files."
    if files:
        what, remedy = f"also has {others[0].name!r}, which is not read", "Move it away."
    elif others and others[0].is_dir():
        what, remedy = "has only folders of Parquet files", "Put all files into one folder, with all columns."
    elif others:
        what, remedy = "is a folder, and only Parquet files are read from folders", f"Name a file: {others[0]}."
    raise InputError(str(path), [Problem(what, remedy=remedy)])


def data_files(path: Path) -> list[Path]:
    """Return the files of readings: the file, or those of a folder by name; a folder of Parquet files counts as one."""
    if not path.is_dir():
        return [path]
    files = [file for file in sorted(path.iterdir()) if is_named(file, ENDINGS) and file.name[0] not in "._~"]
    files = [file for file in files if file.is_file()]
    if not files:
        raise InputError(str(path), [f"is a folder without files that end in {', '.join(ENDINGS)}. Check the path."])
    return [path] if files == parquet_files(path) else files


def read_table(path: Path, options: ReadOptions, wanted: Iterable[str] = (), limit: int | None = None) -> Source:
    """Read a CSV file as text, other tables with their own types; refuse one that needs more than ``limit`` bytes."""
    checked_path(path)
    if is_named(path, EXCEL_ENDINGS):
        return _read_workbook(path, options, wanted, limit)
    import pyarrow as pa

    if not path.is_dir() and not is_named(path, PARQUET_ENDINGS):
        content, delimiter = csv_content(path, options.encoding), options.delimiter_in(path)
        with _refusing_csv(path, _BLOCK_BYTES):
            names = _csv_names(
                path, lambda: io.BytesIO(content), delimiter, quoted=not _plain_quotes(content, delimiter)
            )
            table, bad_rows = _parse_csv(content, names, delimiter)
        return _without(table, bad_rows, len(names), "Fix or quote the cells.")
    tables: list[pa.Table] = []
    for part in parquet_files(path):
        with _refusing_parquet(part), part.open("rb") as stream:
            table = Parquet.open(stream, limit or max_decoded(part.stat().st_size)).read()
            tables.append(table.rename_columns(table.column_names))  # names that are not UTF-8 fail here
        _check_columns(path, part, tables[0].schema, table.schema)
    return Source(tables[0] if len(tables) == 1 else pa.concat_tables(tables))


@contextlib.contextmanager
def _refusing_parquet(part: Path) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
        return
    except Oversized:
        what = _OVERSIZED
    except OSError as error:
        what = f"cannot be read: {error.strerror}" if error.strerror else "is not a readable Parquet file"
    except (pa.ArrowException, ValueError):
        what = "is not a readable Parquet file"
    raise InputError(str(part), [f"{what}. Check it, or write it again."]) from None


def _check_columns(path: Path, part: Path, first: pa.Schema, own: pa.Schema) -> None:
    if not first.equals(own):
        what = f"has different columns or types from {parquet_files(path)[0].name} in the same folder"
        kinds, others = (dict(zip(schema.names, schema.types, strict=True)) for schema in (first, own))
        for name in {**kinds, **others}:
            if kinds.get(name) != others.get(name):
                words = "is missing" if name not in others else "has another type" if name in kinds else "is new"
                what += f": {name!r} {words}"
                break
        raise InputError(str(part), [f"{what}. Check it, or write it again."])


@contextlib.contextmanager
def _refusing_csv(path: Path, max_bytes: int) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, csv.Error, StopIteration):
        remedy = f"Check quotes, [read] delimiter, and that no row is larger than {max_bytes >> 20} MiB."
        raise InputError(str(path), [Problem("is not a readable CSV file", remedy=remedy)]) from None


def _plain_quotes(content: bytes, delimiter: str) -> bool:
    """Return whether all quotes are pairs around whole cells of usual length: no need to read row by row."""
    data = np.frombuffer(content, dtype=np.uint8)
    quotes = np.flatnonzero(data == ord('"'))
    if len(quotes) % 2 or len(delimiter) != 1:
        return False
    ends = np.zeros(257, dtype=bool)
    ends[[*map(ord, delimiter), *b"\r\n", 256]] = True  # 256: where the file begins and ends
    around = np.full(len(data) + 2, 256, dtype=np.uint16)
    around[1:-1] = data
    opened, closed = quotes[::2], quotes[1::2]
    plain = ends[around[opened]].all() and ends[around[closed + 2]].all()
    return bool(plain and (closed - opened).max(initial=0) < csv.field_size_limit() and ord(delimiter) < 256)


def _csv_names(path: Path, opened: Callable[[], BinaryIO], delimiter: str, *, quoted: bool) -> list[str]:
    """Return the names in the header, after checking all quotes."""
    # Quotes that are not closed or not at the ends of a cell: Arrow would read the rest of the file as one cell.
    num_rows = 0
    try:
        for _ in csv_rows(opened(), delimiter, strict=True) if quoted else ():
            num_rows += 1
    except csv.Error:
        problem = Problem(
            "has a quote that is not closed, text after a closing quote, or a cell of more than 100,000 characters",
            where="" if num_rows else "header",
            rows=(num_rows,) if num_rows else (),
            remedy='Fix the quotes; write a quote inside a quoted cell as "".',
        )
        raise InputError(str(path), [problem]) from None
    return next(csv_rows(opened(), delimiter, strict=True))[1]


def csv_content(path: Path, encoding: str) -> bytes:
    """Return the content of a CSV file in UTF-8, after checking that it is text."""
    return b"".join(csv_chunks(path, encoding))


def csv_chunks(path: Path, encoding: str) -> Iterator[bytes]:
    """Yield the content of a CSV file in UTF-8, part by part; what is not text is refused, at its end at the latest."""
    name = codecs.lookup(encoding).name
    is_utf8 = name in ("utf-8", "utf-8-sig")
    decoder = codecs.getincrementaldecoder("utf-8" if is_utf8 else encoding)()
    size = num_lines = num_decoded = nul_line = 0  # so far: bytes, lines as they are in the file and in UTF-8
    blank, content = True, b"?"
    try:
        with gzip.open(path) if path.name.lower().endswith(".gz") else path.open("rb") as stream:
            limit = max_decoded(path.stat().st_size)  # a plain file is shorter
            while content:
                content = stream.read(_BLOCK_BYTES)
                for signature, kind in _SIGNATURES.items() if not size else ():
                    if content.startswith(signature):
                        raise InputError(str(path), [f"is not a CSV file but {kind}. Convert it, or rename it."])
                if not size and name in ("utf-16", "utf-32") and not content.startswith(_BYTE_ORDERS):
                    decoder = codecs.getincrementaldecoder(f"{name}-{sys.byteorder[0]}e")()  # as decode() reads it
                size += len(content)
                if size > limit:
                    raise InputError(str(path), [f"{_OVERSIZED}. Check it, or unpack it first."])
                try:
                    decoded = decoder.decode(content, final=not content)
                except UnicodeError as error:
                    before = getattr(error, "object", content)[: getattr(error, "start", 0)]
                    line = num_lines + before.count(b"\n") + 1
                    remedy = 'Save it as UTF-8, or set its encoding, for example [read] encoding = "latin-1".'
                    what = f"is not {encoding} text (line {line})"
                    raise InputError(str(path), [Problem(what, remedy=remedy)]) from None
                text = content if is_utf8 else decoded.encode("utf-8")
                if size == len(content):
                    text = text.removeprefix(codecs.BOM_UTF8)
                if not nul_line and b"\0" in text:
                    nul_line = num_decoded + text.count(b"\n", 0, text.index(0)) + 1
                num_lines, num_decoded = num_lines + content.count(b"\n"), num_decoded + text.count(b"\n")
                blank = blank and not text.strip()
                yield text
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise InputError(str(path), ["is not a complete gzip file. Compress it again."]) from None
    except OSError as error:
        remedy = "Check the file and its permissions."
        raise InputError(str(path), [f"cannot be read: {error.strerror}. {remedy}"]) from None
    if blank:
        raise InputError(str(path), ["is empty. It needs a header line and at least one row."])
    if nul_line:
        what = f"is not text: line {nul_line} has a NUL character"
        remedy = 'Save it as UTF-8, or set its encoding, for example [read] encoding = "utf-16".'
        raise InputError(str(path), [Problem(what, remedy=remedy)])


def _line(content: bytes, position: int) -> int:
    return content.count(b"\n", 0, position) + 1


def csv_rows(content: bytes | BinaryIO, delimiter: str, *, strict: bool = False) -> Iterator[tuple[int, list[str]]]:
    """Read rows one by one, each with its last line; blank lines are not rows."""
    binary = io.BytesIO(content) if isinstance(content, bytes) else content
    text = io.TextIOWrapper(binary, encoding="utf-8", newline="")
    reader = csv.reader(text, delimiter=delimiter, strict=strict)
    return ((reader.line_num, cells) for cells in reader if cells)


def _without(table: pa.Table, bad_rows: list[int], width: int, remedy: str) -> Source:
    """Return a table with the rows, counted from 1, that were skipped because their length is not the header's."""
    if not bad_rows:
        return Source(table)
    everything = np.arange(table.num_rows + len(bad_rows), dtype=np.int64)
    rows = np.delete(everything, np.asarray(bad_rows) - FIRST_ROW)
    return Source(table, rows, (_other_length(bad_rows, width, remedy),))


def _other_length(bad_rows: list[int], width: int, remedy: str) -> Problem:
    return Problem.in_rows(f"has more or fewer cells than the header's {width}", bad_rows, remedy=remedy)


def _parse_csv(content: bytes, names: list[str], delimiter: str) -> tuple[pa.Table, list[int]]:
    """Read all cells as text; return the table and the data rows, from 1, with a wrong number of cells."""
    import pyarrow as pa
    import pyarrow.csv as pacsv

    bad_rows: list[int] = []
    text = pa.BufferReader(content.strip(b"\r\n") if len(names) == 1 else content)
    table = pacsv.read_csv(text, **_csv_options(names, delimiter, bad_rows, _BLOCK_BYTES))
    if 0 in bad_rows:
        raise csv.Error
    return table.slice(1), bad_rows


def _csv_options(names: list[str], delimiter: str, bad_rows: list[int], block_bytes: int) -> dict[str, object]:
    import pyarrow as pa
    import pyarrow.csv as pacsv

    def note(row: pacsv.InvalidRow) -> str:
        bad_rows.append(int(row.number) - 1)  # Arrow counts rows, not lines, and the header is its row 1
        return "skip"

    # In a file with one column, an empty line is a missing cell.
    as_text, keep_empty = dict.fromkeys(names, pa.string()), len(names) == 1
    return {
        # With threads the number of a row is unknown. The header is read as a row, so that Arrow guesses nothing.
        "read_options": pacsv.ReadOptions(column_names=names, use_threads=False, block_size=block_bytes),
        "parse_options": pacsv.ParseOptions(
            delimiter=delimiter, newlines_in_values=True, invalid_row_handler=note, ignore_empty_lines=not keep_empty
        ),
        "convert_options": pacsv.ConvertOptions(column_types=as_text, strings_can_be_null=False, null_values=[]),
    }


def line_of_row(path: Path, options: ReadOptions, row: int) -> int:
    """Return the line of a data row in a CSV file, counted from 1 as in editors; a row may span several lines."""
    rows = csv_rows(csv_content(path, options.encoding), options.delimiter_in(path))
    return next((line for number, (line, _) in enumerate(rows) if number == row), 0)


def guess_options(path: Path) -> ReadOptions:
    """Guess the encoding (UTF-8 or Latin-1) and delimiter (most frequent in the header) of CSV, or the sheet."""
    if is_named(path, EXCEL_ENDINGS) and path.is_file():
        sheets = _tables_of_workbook(path, ReadOptions(), set())
        return ReadOptions(sheet=next(iter(sheets)) if len(sheets) > 1 else None)
    if not path.is_file() or not is_named(path, CSV_ENDINGS + TAB_ENDINGS):
        return ReadOptions()
    try:
        encoding, content = "utf-8", csv_content(path, "utf-8")
    except InputError:
        encoding, content = "latin-1", csv_content(path, "latin-1")  # an empty file or one with NULs is refused again
    header = content.lstrip().splitlines()[0].decode()
    delimiter = "\t" if is_named(path, TAB_ENDINGS) else max(_GUESSED_DELIMITERS, key=header.count)
    return ReadOptions(delimiter=delimiter, encoding=encoding)


# --- Workbooks

_Cell = str | float | bool | datetime.datetime | datetime.date | datetime.time | datetime.timedelta


class _Sheet(NamedTuple):
    lines: list[list[_Cell]]
    top: int  # number of the header line
    merged: list[tuple[tuple[int, int], tuple[int, int]]]  # areas, by two corners each


def _tables_of_workbook(
    path: Path, options: ReadOptions, wanted: set[str], limit: int | None = None
) -> dict[str, _Sheet]:
    try:
        import python_calamine as calamine
    except ImportError:
        raise ParameterError("reading Excel needs python-calamine. Install it: pip install 'dunnage[excel]'.") from None
    tables = {}
    try:
        book = calamine.CalamineWorkbook.from_filelike(_unpacked(path, limit or max_decoded(path.stat().st_size)))
        hidden = {item.name: item.visible != calamine.SheetVisibleEnum.Visible for item in book.sheets_metadata}
        if options.sheet is not None and options.sheet not in hidden:
            where, named = f"sheet {options.sheet!r}", ", ".join(map(repr, hidden))
            raise InputError(str(path), [Problem("is not in the workbook", where, remedy=f"It has {named}.")])
        names = [name for name in hidden if not hidden[name]] if options.sheet is None else [options.sheet]
        for name in names:
            sheet = book.get_sheet_by_name(name)
            lines = sheet.to_python(skip_empty_area=False)
            if (top := _header_line(lines, wanted, alone=len(names) == 1)) is not None:
                tables[name] = _Sheet(lines, top, sheet.merged_cell_ranges or [])
    except OSError as error:
        remedy = "Check the file and its permissions."
        raise InputError(str(path), [f"cannot be read: {error.strerror or 'it is damaged'}. {remedy}"]) from None
    except Oversized:
        what = f"{_OVERSIZED}; a cell far below or beside the table may be the reason"
        raise InputError(str(path), [f"{what}. Save the table as CSV."]) from None
    except (
        calamine.CalamineError,
        zipfile.BadZipFile,
        expat.ExpatError,
        NotImplementedError,
        RuntimeError,
        ValueError,
    ):
        what = "is not a readable Excel workbook, or needs a password. Save it again as .xlsx without a password."
        raise InputError(str(path), [what]) from None
    return tables


def _unpacked(path: Path, limit: int) -> io.BytesIO:
    """Unpack the parts of a workbook that are read, with no more cells and text than fit into memory."""
    # A few bytes can place a cell in the last corner of a sheet, or repeat a long text in every cell. A zip file may
    # also state wrong sizes, so only what was really unpacked is read further.
    content, left, lengths, uses, dense = io.BytesIO(), limit, list[int](), Counter[str](), 0
    row = column = rows = columns = 0
    inside = ""  # what the text at hand belongs to

    def start(name: str, given: dict[str, str]) -> None:
        nonlocal row, column, rows, columns, inside
        if (tag := name.rpartition(":")[2]) == "row":
            row, column = int(given.get("r", row + 1)), 0
        elif tag == "c":
            letters = given.get("r", "").rstrip(string.digits)
            row = int(given["r"][len(letters) :]) if letters else row
            place = sum((ord(letter) - 64) * 26**power for power, letter in enumerate(reversed(letters.upper())))
            column = place if letters else column + 1
            rows, columns = max(rows, row), max(columns, column)
            inside = "of cell" if given.get("t") == "s" else ""
        elif tag == "si":
            lengths.append(0)
            inside = "shared"
        elif tag == "v":
            inside = "value" if inside == "of cell" else ""

    def text(words: str) -> None:
        if inside == "shared":
            lengths[-1] += len(words)
        elif inside == "value":
            uses[words] += 1

    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(content, "w") as plain:
        for member in archive.infolist():
            if not member.filename.lower().endswith((".xml", ".rels")):
                continue
            with archive.open(member) as stream:
                part = stream.read(left + 1)
            left -= len(part)
            if left < 0:
                raise Oversized
            parser, row, column, rows, columns = expat.ParserCreate(), 0, 0, 0, 0
            parser.buffer_text, parser.StartElementHandler, parser.CharacterDataHandler = True, start, text
            parser.Parse(part, True)
            dense += rows * columns
            plain.writestr(member.filename, part)
    repeated = sum(
        num * lengths[int(word)] for word, num in uses.items() if word.isdigit() and int(word) < len(lengths)
    )
    if dense * _CELL_BYTES + repeated > limit:
        raise Oversized
    content.seek(0)
    return content


def _read_workbook(path: Path, options: ReadOptions, wanted: Iterable[str], limit: int | None = None) -> Source:
    """Read the sheet with a table: its header may be below title lines, and cells keep their types."""
    import pyarrow as pa

    names = set(wanted)
    tables = _tables_of_workbook(path, options, names, limit)
    if len(tables) != 1:
        what = f"has several sheets with a table: {', '.join(map(repr, tables))}"
        remedy = f'Choose one in the policy, for example [read] sheet = "{next(iter(tables), "")}", or save one as CSV.'
        if not tables:
            what = "has no sheet with a header line" + (" that has the required columns" if names else "")
            remedy = "Put the names of the columns into one line, one name in each cell, and the rows below it."
        raise InputError(str(path), [Problem(what, remedy=remedy)])
    ((name, (lines, top, merged)),) = tables.items()
    where = f"sheet {name!r}"
    filled = [place for place, cell in enumerate(lines[top]) if cell != ""]
    span = range(filled[0], filled[-1] + 1)
    problems = []
    if len(filled) < len(span):
        column = _column_name(next(place for place in span if lines[top][place] == ""))
        remedy = "Name the column, or delete it."
        problems.append(Problem(f"has a blank header in line {top + 1}, column {column}", where, remedy=remedy))
    if inside := [area for area in merged if area[1][0] >= top and area[0][1] <= span[-1] and area[1][1] >= span[0]]:
        (first, left), (last, right) = min(inside)
        corners = f"{_column_name(left)}{first + 1}:{_column_name(right)}{last + 1}"
        what = f"has {several(len(inside), 'merged area')} at or below its header, first {corners}"
        problems.append(Problem(what, where, remedy="Unmerge and fill in every cell."))
    if problems:
        raise InputError(str(path), problems)
    rows = [line for line in lines[top + 1 :] if any(cell != "" for cell in line)]
    is_beside = [any(cell != "" for cell in [*line[: span[0]], *line[span[-1] + 1 :]]) for line in rows]
    beside = [row for row, wrong in enumerate(is_beside, 1) if wrong]
    kept = [line for line, wrong in zip(rows, is_beside, strict=True) if not wrong]
    columns = [_typed([line[place] for line in kept], options.decimal) for place in span]
    table = pa.table(columns, names=[str(lines[top][place]).strip() for place in span])
    return _without(table, beside, len(span), "Clear the cells beside the table.")


def _header_line(lines: list[list[_Cell]], wanted: set[str], *, alone: bool) -> int | None:
    """Return the first line with most of the wanted names, or else most cells; None if there is no header."""
    best, header = 0, None
    for number, cells in enumerate(lines[:MAX_TITLE_LINES]):
        texts = [cell.strip() for cell in cells if isinstance(cell, str) and cell != ""]
        if (score := len(wanted.intersection(texts)) if wanted else sum(cell != "" for cell in cells)) > best:
            best, header = score, number if wanted or len(texts) == score else None
    # A single cell may be a title or a remark, unless one name is all that is wanted.
    return header if best >= min(2, len(wanted) or (1 if alone else 2)) else None


def _column_name(place: int) -> str:
    return (_column_name(place // 26 - 1) if place >= 26 else "") + chr(ord("A") + place % 26)


def _typed(cells: list[_Cell], decimal: str) -> pa.Array:
    """Make a column from cells: numbers, dates or times if all cells are, otherwise text."""
    import pyarrow as pa

    kinds = {type(cell) for cell in cells if cell != ""}
    values = [None if cell == "" else cell for cell in cells]
    if kinds == {bool}:
        return pa.array(values, pa.bool_())
    if kinds and kinds <= {int, float}:
        numbers = pa.array(values, pa.float64())
        plain = numbers.drop_null().to_numpy()
        whole = bool((plain == np.floor(plain)).all() and (np.abs(plain) < 2.0**53).all())
        return (
            numbers.cast(pa.int64()) if whole else numbers
        )  # the number of a parcel is a name, without a decimal point
    if kinds and kinds <= {datetime.datetime, datetime.date}:
        start = datetime.time()  # a date alone means the start of the day
        moments = [datetime.datetime.combine(v, start) if type(v) is datetime.date else v for v in values]
        return pa.array(moments, pa.timestamp("us"))
    if kinds == {datetime.time}:
        return pa.array(values, pa.time64("us"))
    return pa.array([None if cell is None else _cell_text(cell, decimal) for cell in values], pa.string())


def _cell_text(cell: _Cell, decimal: str) -> str:
    if isinstance(cell, str):
        return cell
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, datetime.timedelta):  # the time of a service day may be past midnight
        minutes, seconds = divmod(round(cell.total_seconds()), 60)
        return f"{minutes // 60:02d}:{minutes % 60:02d}:{seconds:02d}"
    if isinstance(cell, int | float):
        return str(int(cell)) if float(cell).is_integer() else repr(cell).replace(".", decimal)
    return cell.isoformat() if isinstance(cell, datetime.date | datetime.time) else str(cell)


# --- Private rows, some at a time


class TableStream:
    """The rows of a file or folder in batches, except workbooks; the caller handles errors of Arrow, csv and zlib."""

    def __init__(self, path: Path, wanted: Iterable[str]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.path = checked_path(path)
        self.num_rows: int | None = None
        self.schema: pa.Schema | None = None  # None for text
        self.decimal_comma = False  # text with semicolons between cells; decimal points are read as well
        self.bad_rows: list[int] = []  # rows, from 1, with another number of cells than the header; -1 if unknown
        self._table: pa.Table | None = None
        if is_named(path, EXCEL_ENDINGS):
            source = _read_workbook(path, ReadOptions(), wanted)
            self.bad_rows += source.problems[0].rows if source.problems else ()
            self._table, self.schema, self.num_rows = source.table, source.table.schema, source.table.num_rows
        elif self.is_parquet:
            self.num_rows = 0
            for part in parquet_files(path):
                with pq.ParquetFile(part.absolute()) as file:
                    self.num_rows += int(file.metadata.num_rows)
                    self.schema = self.schema or file.schema_arrow
        if self.schema is not None:
            self.names = list(self.schema.names)
            return
        with pa.input_stream(str(path), compression="detect") as stream:
            text = bytes(stream.read(1 << 20)).decode("utf-8-sig", errors="replace")
        if not text.strip():
            raise InputError(str(path), ["is empty. It needs a header line and at least one row."])
        self.delimiter = ReadOptions().delimiter_in(path)
        header = next(line for line in text.splitlines() if line.strip())
        if self.delimiter not in header:
            self.delimiter = next((mark for mark in ";\t" if mark in header), self.delimiter)
        self.decimal_comma = self.delimiter == ";"
        self.names = next(cells for cells in csv.reader(text.splitlines(), delimiter=self.delimiter) if cells)

    @property
    def is_parquet(self) -> bool:
        return self.path.is_dir() or is_named(self.path, PARQUET_ENDINGS)

    def batches(self, columns: list[str], labels: list[str]) -> Iterator[pa.RecordBatch]:
        """Yield some columns; ``labels`` of a Parquet file come as codes."""
        if self._table is not None:
            yield from self._table.select(columns).to_batches(BATCH_ROWS)
        elif self.is_parquet:
            for part in parquet_files(self.path):
                try:
                    with part.open("rb") as stream:
                        limit = max_decoded(part.stat().st_size)
                        source = Parquet.open(stream, limit, labels=labels, batch_rows=BATCH_ROWS)
                        for batch in source.file.iter_batches(BATCH_ROWS, columns=columns, use_threads=False):
                            yield source.dense(batch)
                except Oversized:
                    raise InputError(str(part), [f"{_OVERSIZED}. Check it, or write it again."]) from None
        else:

            def note(row: pacsv.InvalidRow) -> str:
                self.bad_rows.append(-1 if row.number is None else int(row.number) - 1)
                return "skip"

            own = sys.getrefcount(note)
            try:
                yield from self._csv_batches(columns, note)
            except BaseException as error:
                traceback.clear_frames(error.__traceback__)  # they would hold the function as well
                raise
            finally:
                # A thread of Arrow that still holds the function when Python ends would abort the program.
                end = time.monotonic() + _RELEASE_SECONDS
                while sys.getrefcount(note) > own and time.monotonic() < end:
                    time.sleep(0.001)

    def _csv_batches(self, columns: list[str], note: Callable[[pacsv.InvalidRow], str]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        import pyarrow.csv as pacsv

        with (
            pa.input_stream(str(self.path), compression="detect") as stream,
            pacsv.open_csv(
                stream,
                read_options=pacsv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES),
                parse_options=pacsv.ParseOptions(
                    delimiter=self.delimiter, newlines_in_values=True, invalid_row_handler=note
                ),
                convert_options=pacsv.ConvertOptions(
                    include_columns=columns,
                    column_types=dict.fromkeys(columns, pa.string()),
                    strings_can_be_null=False,
                ),
            ) as source,
        ):
            yield from source


class RowStream:
    """The rows of a CSV or Parquet file, or of a folder of Parquet files, in batches.

    Rows, types and problems are those of :func:`read_table`, whatever the size of the file.
    """

    def __init__(self, path: Path, options: ReadOptions) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.path, self.problems = checked_path(path), list[Problem]()  # of reading: complete when all rows are read
        if is_named(path, EXCEL_ENDINGS):
            raise ParameterError("a workbook is read into memory as a whole. Leave the engine out, or save it as CSV.")
        self.parts = parquet_files(path)  # none of CSV
        if self.parts:
            schemas = list[pa.Schema]()
            for part in self.parts:
                with _refusing_parquet(part), pq.ParquetFile(part) as file:
                    schemas.append(pa.schema([file.schema_arrow.field(i) for i in range(len(file.schema_arrow))]))
                _check_columns(path, part, schemas[0], schemas[-1])
            self.schema = schemas[0]
            return
        self._delimiter, self._encoding, quoted = options.delimiter_in(path), options.encoding, False
        for chunk in csv_chunks(path, options.encoding):  # refuses what is not text before the first row is used
            quoted = quoted or b'"' in chunk
        with _refusing_csv(path, _STREAM_BYTES):
            names = _csv_names(path, self._opened, self._delimiter, quoted=quoted)
        self.schema = pa.schema([(name, pa.string()) for name in names])

    def pieces(self, num_rows: int) -> Iterator[tuple[Path, list[int], int]]:
        """Yield parts of Parquet files of about so many rows: the file, its row groups, and the position of a row."""
        import pyarrow.parquet as pq

        first = 0
        for part in self.parts:
            with _refusing_parquet(part), pq.ParquetFile(part) as file:
                sizes = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
            groups, size = list[int](), 0
            for group, own in enumerate(sizes):
                groups, size = [*groups, group], size + own
                if size >= num_rows or group + 1 == len(sizes):
                    yield part, groups, first
                    groups, size, first = [], 0, first + size

    def row_groups(self) -> list[Piece]:
        """Return every row group of Parquet files; names do not depend on where the files are."""
        return [
            Piece(f"{part.name}:{groups[0]}".encode(), first, part.absolute(), groups[0], file_stamp(part))
            for part, groups, first in self.pieces(0)
        ]

    def batches(self, columns: Sequence[str], num_rows: int) -> Iterator[tuple[pa.RecordBatch, IntArray]]:
        """Yield some columns and the position of each row in the source, from 0."""
        if not self.parts:
            yield from self._csv_batches(list(columns))
        for part, _, first in self.pieces(sys.maxsize):
            for batch in parquet_batches(part, columns, num_rows):
                yield batch, first + np.arange(len(batch))
                first += len(batch)

    def _opened(self) -> BinaryIO:
        return io.BufferedReader(_Chunks(csv_chunks(self.path, self._encoding)))

    def _csv_batches(self, columns: list[str]) -> Iterator[tuple[pa.RecordBatch, IntArray]]:
        import pyarrow as pa
        import pyarrow.csv as pacsv

        bad_rows, names, first = list[int](), self.schema.names, 0
        chunks = csv_chunks(self.path, self._encoding)
        text = pa.PythonFile(_Chunks(_stripped(chunks) if len(names) == 1 else chunks), mode="r")
        options = _csv_options(names, self._delimiter, bad_rows, _STREAM_BYTES)
        with _refusing_csv(self.path, _STREAM_BYTES), pacsv.open_csv(text, **options) as source:
            for batch in source:
                # Arrow reads ahead, so that all bad rows before the end of a batch are known.
                positions = np.arange(first, first + len(batch) + len(bad_rows))
                positions = positions[~np.isin(positions, bad_rows)][: len(batch)]
                if 0 in bad_rows:
                    raise csv.Error
                skip = int(first == 0)  # the header
                first = int(positions[-1]) + 1 if len(positions) else first
                yield batch.slice(skip).select(columns), positions[skip:] - 1
        if bad_rows:
            self.problems.append(_other_length(bad_rows, len(names), "Fix or quote the cells."))


def file_stamp(path: Path) -> tuple[int, int]:
    stated = path.stat()
    return stated.st_size, stated.st_mtime_ns


def parquet_batches(
    part: Path, columns: Sequence[str], num_rows: int, groups: list[int] | None = None
) -> Iterator[pa.RecordBatch]:
    with _refusing_parquet(part), part.open("rb") as stream:
        source = Parquet.open(stream, max_decoded(part.stat().st_size), batch_rows=num_rows)
        reading = {"row_groups": groups, "columns": list(columns), "use_threads": False}
        for batch in source.file.iter_batches(num_rows, **reading):
            yield source.dense(batch)


class _Chunks(io.RawIOBase):
    """A file of parts that are made when they are read."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks, self._rest = chunks, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = memoryview(chunk)
        num = min(len(buffer), len(self._rest))
        buffer[:num], self._rest = self._rest[:num], self._rest[num:]
        return num


def _stripped(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Leave out line ends at the beginning and at the end."""
    rest, begun = b"", False
    for chunk in chunks:
        text = rest + chunk if begun else chunk.lstrip(b"\r\n")
        begun = begun or bool(text)
        kept = text.rstrip(b"\r\n")
        rest = text[len(kept) :]
        yield kept


# --- Public lists


def public_content(path: str | PathLike[str], max_bytes: int | None = None) -> bytes:
    """Read a public file of UTF-8 text, by default up to :data:`MAX_FILE_BYTES` long."""
    max_bytes = MAX_FILE_BYTES if max_bytes is None else max_bytes
    try:
        with gzip.open(path) if str(path).lower().endswith(".gz") else Path(path).open("rb") as file:
            content: bytes = file.read(max_bytes + 1)
    except (OSError, EOFError, zlib.error) as error:
        what = f"the file cannot be read ({getattr(error, 'strerror', None) or 'it is not a complete gzip file'})"
        raise InputError(str(path), [Problem(what, remedy="Check its name and permissions.")]) from None
    if len(content) > max_bytes:
        what = f"the file is larger than {max_bytes // 2**20} MB"
        raise InputError(str(path), [Problem(what, remedy="Use a coarser domain.")])
    return checked_utf8(str(path), content, "Save it as UTF-8.")


def checked_utf8(source: str, content: bytes, remedy: str) -> bytes:
    """Return UTF-8 without a byte order mark; name the line that has another encoding."""
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(source, [Problem("not UTF-8", f"line {_line(content, error.start)}", remedy=remedy)]) from None
    return content.removeprefix(codecs.BOM_UTF8)


def delimiter_of(content: bytes, path: str | PathLike[str]) -> str:
    """Return the delimiter of a public list: a tab in ``.tsv``, a semicolon if the first line has one, or a comma."""
    if is_named(Path(path), TAB_ENDINGS):
        return "\t"
    first = content.lstrip(b"\r\n").partition(b"\n")[0].decode()
    try:
        return ";" if len(next(csv.reader([first], delimiter=";"), [])) > 1 else ","
    except csv.Error:  # a cell as long as a file: the reader of the line will report it
        return ","


def read_lines(path: str | PathLike[str], delimiter: str | None = None) -> list[tuple[int, list[str]]]:
    place, lines = Path(path), list[tuple[int, list[str]]]()
    if is_named(place, PARQUET_ENDINGS + EXCEL_ENDINGS):
        return _lines_of(place)
    content = public_content(path)
    reader = csv.reader(io.StringIO(content.decode(), newline=""), delimiter=delimiter or delimiter_of(content, path))
    try:
        lines.extend((reader.line_num, cells) for cells in reader if any(cells))
    except csv.Error as error:
        refuse_lines(path, [(reader.line_num, f"the line is not valid CSV ({error}).")])
    if not lines:
        raise InputError(str(path), [Problem("the file has no lines")])
    return lines


def _lines_of(path: Path) -> list[tuple[int, list[str]]]:
    table = read_table(path, ReadOptions(), limit=MAX_FILE_BYTES).table
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    lines = [["" if cell is None else _cell_text(cell, ".") for cell in row] for row in rows]
    return list(enumerate([table.column_names, *lines], 1))


class PublicTable(NamedTuple):
    source: str  # its name in errors
    content: bytes  # empty for tables that are not text
    delimiter: str
    columns: dict[str, pa.Array]  # of text

    def lines(self, rows: IntArray) -> list[int]:
        """Return the lines of some rows below the header, counted from 0."""
        wanted = set(rows.tolist())
        try:
            if self.content:
                lines = (line for line, cells in csv_rows(self.content, self.delimiter) if any(cells))
                return [line for row, line in enumerate(lines, -1) if row in wanted]
        except csv.Error:  # a cell as long as a file: assume one line for each row
            pass
        return [row + 2 for row in sorted(wanted)]

    def codes(self, name: str, values: Sequence[str]) -> IntArray:
        """Return the place of each cell among values; -1 if it is not one of them."""
        import pyarrow as pa
        import pyarrow.compute as pc

        places = pc.index_in(self.columns[name], value_set=pa.array(values, pa.string()))
        return np.asarray(pc.fill_null(places, -1))

    def numbers(self, name: str, read: Callable[[str], int]) -> IntArray:
        encoded = self.columns[name].dictionary_encode()
        codes = np.array([read(value.strip()) for value in encoded.dictionary.to_pylist()], dtype=np.int64)
        indices: IntArray = encoded.indices.to_numpy(zero_copy_only=False)
        return codes[indices] if len(codes) else np.zeros(0, dtype=np.int64)


def read_columns(source: str, content: bytes, check: Callable[[list[str]], str], delimiter: str = ",") -> PublicTable:
    """Read a long public list; ``check`` returns the problem with the names in its header, if there is one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    header_line, header = 1, list[str]()
    with contextlib.suppress(csv.Error):  # a cell as long as a file
        header_line, header = next(csv_rows(content, delimiter), (1, header))
    names = [name.strip() for name in header]
    if wrong := check(names):
        refuse_lines(source, [(header_line, wrong)])
    try:
        table, bad_rows = _parse_csv(content, names, delimiter)
    except (pa.ArrowException, csv.Error):
        table, bad_rows = None, [0]
    if bad_rows:
        what, problems, line = "the header has {} cells, but this line has {}.", [], header_line
        try:
            for line, cells in csv_rows(content, delimiter):
                if len(cells) != len(names) and any(cells):
                    problems.append((line, what.format(len(names), len(cells))))
        except csv.Error as error:
            problems.append((line + 1, f"the line is not valid CSV ({error})."))
        refuse_lines(source, problems)
        raise InputError(source, [Problem("is not a readable CSV file", remedy="Check it.")])
    assert table is not None
    columns = {name: table.column(name).combine_chunks() for name in names}
    # A line of nothing but delimiters is not a row; the last column alone shows that most lines are rows.
    blank = pc.equal(columns[names[-1]], "")
    if blank.true_count:
        for column in columns.values():
            blank = pc.and_(blank, pc.equal(column, ""))
        columns = {name: column.filter(pc.invert(blank)) for name, column in columns.items()}
    return PublicTable(source, content, delimiter, columns)


def read_pairs(path: str | PathLike[str], check: Callable[[list[str]], str], max_bytes: int | None) -> PublicTable:
    import pyarrow as pa

    place = Path(path)
    if not is_named(place, PARQUET_ENDINGS + EXCEL_ENDINGS):
        content = public_content(path, max_bytes)
        return read_columns(str(path), content, check, delimiter_of(content, path))
    (_, names), *lines = _lines_of(place)
    if wrong := check(names):
        refuse_lines(path, [(1, wrong)])
    columns = zip(*(cells for _, cells in lines), strict=True)
    return PublicTable(str(path), b"", "", {name: pa.array(cells) for name, cells in zip(names, columns, strict=False)})


def pair_batches(path: str | PathLike[str], header: Sequence[str], max_bytes: int) -> Iterator[PublicTable | None]:
    """Yield a plain CSV file of pairs part by part; None, as the last part, if it is not plain."""
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    place = Path(path)
    plain = place.is_file() and not is_named(place, (*PARQUET_ENDINGS, *EXCEL_ENDINGS, ".gz"))
    if not plain or place.stat().st_size > max_bytes:
        yield None
        return
    reading = arrow_csv.ReadOptions(block_size=_BLOCK_BYTES, use_threads=False)
    as_text = arrow_csv.ConvertOptions(column_types=dict.fromkeys(header, pa.string()), strings_can_be_null=False)
    try:
        with arrow_csv.open_csv(place, read_options=reading, convert_options=as_text) as stream:
            if stream.schema.names != list(header):
                yield None
                return
            for batch in stream:
                if len(batch):
                    yield PublicTable(str(path), b"", "", dict(zip(header, batch.columns, strict=True)))
    except (pa.ArrowException, OSError, ValueError):
        yield None


def refuse_lines(path: str | PathLike[str], problems: list[tuple[int, str]]) -> None:
    if problems:
        raise InputError(str(path), line_problems(problems))


def line_problems(problems: list[tuple[int, str]]) -> list[Problem]:
    listed = [Problem(what.rstrip("."), where=f"line {line}") for line, what in problems[:MAX_LINES_NAMED]]
    if len(problems) > MAX_LINES_NAMED:
        listed.append(Problem(f"and {len(problems) - MAX_LINES_NAMED} more"))
    return listed


def listing_rows(path: Path) -> Iterator[list[str]]:
    """Yield the rows of a small table that planners exchange, names first; the caller handles errors."""
    if is_named(path, PARQUET_ENDINGS + EXCEL_ENDINGS):
        yield from (cells for _, cells in _lines_of(path))
        return
    with path.open(newline="", encoding="utf-8-sig") as stream:
        yield from (cells for cells in csv.reader(stream, delimiter=ReadOptions().delimiter_in(path)) if cells)


def read_listing(path: Path, header: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Read the names and rows of a small table that planners exchange; it must begin with the given columns."""
    try:
        lines = list(listing_rows(path))
    except OSError as error:
        raise InputError(str(path), [f"cannot be read: {error.strerror}. Check the path."]) from None
    except (ValueError, csv.Error):  # not UTF-8, or an impossible path
        raise InputError(str(path), ["is not a CSV file in UTF-8. Save it as one."]) from None
    names = [name.strip() for name in lines[0]] if lines else []
    if names[: len(header)] != list(header):
        raise InputError(str(path), [f"must begin with the header {','.join(header)}."])
    if short := [number for number, line in enumerate(lines[1:], 1) if len(line) < len(header)]:
        raise InputError(str(path), [Problem("has too few cells", rows=tuple(short), remedy="Fix the lines.")])
    return names, lines[1:]


def write_lines(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
