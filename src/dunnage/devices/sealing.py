# SPDX-License-Identifier: Apache-2.0
"""Files of identity records: a CSV file of vehicles becomes sealed JSON lines, and comes back with the key ring.

Each line holds the vehicle's alias, which stays readable, and its sealed record. The files appear whole or not at all;
what is opened is readable by its owner alone.
"""

from __future__ import annotations

import csv
import io
import json
import os
from codecs import BOM_UTF8
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dunnage.devices.perturbing import check_new_file, check_not_input
from dunnage.errors import MOST_ROWS_NAMED, InputError, Problem, SealError
from dunnage.folders import new_file
from dunnage.local.identity import KeyRing, SealedRecord, open_record, rotate, seal

MOST_FILE_BYTES = 1 << 30
_KEYS = {"alias", "sealed"}


def seal_file(
    records: str | os.PathLike[str],  # CSV file, one row for each vehicle
    keyring: KeyRing,  # The key ring
    out: str | os.PathLike[str],  # File of JSON lines to write
    *,
    alias: str = "vehicle",
    force: bool = False,  # Replace a file that is there
) -> int:
    """Seal the rows of a CSV file, each bound to its alias; return how many."""
    check_not_input(out, [records])
    target = check_new_file(out, force=force)
    rows = _records(Path(records), alias)
    lines = (_line(name, seal(record, keyring, associated=name)) for name, record in rows)
    return _write(target, lines, private=False)


def rotate_file(
    sealed: str | os.PathLike[str], keyring: KeyRing, out: str | os.PathLike[str], *, force: bool = False
) -> int:
    """Seal all records of a file again under the ring's active key, also in place with ``force``; return how many."""
    target = check_new_file(out, force=force)
    held = _sealed(Path(sealed))
    lines = (_line(name, rotate(record, keyring, associated=name)) for name, record in held)
    return _write(target, lines, private=False)


def open_file(
    sealed: str | os.PathLike[str],
    keyring: KeyRing,
    out: str | os.PathLike[str],
    *,
    alias: str = "vehicle",
    force: bool = False,
) -> int:
    """Open all records of a file into a private CSV file; return how many."""
    check_not_input(out, [sealed])
    target = check_new_file(out, force=force)
    opened = [(name, open_record(record, keyring, associated=name)) for name, record in _sealed(Path(sealed))]
    names = list(dict.fromkeys(key for _, record in opened for key in record))
    if alias in names:
        raise SealError(f"a sealed record has a field {alias!r} itself. Name the alias otherwise, with --alias-column.")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([alias, *names])
    writer.writerows([name, *(_cell(record.get(key)) for key in names)] for name, record in opened)
    _write(target, iter([text.getvalue()]), private=True)
    return len(opened)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)


def _records(path: Path, alias: str) -> list[tuple[str, dict[str, str]]]:
    rows = list(_csv_rows(path))
    header = rows[0]
    problems = _header_problems(header, alias)
    uneven = [at for at, row in enumerate(rows[1:], 1) if len(row) != len(header)]
    if uneven:
        problems.append(_problem("has more or fewer cells than the header", "", uneven, "Mend or quote the cells."))
    if problems:
        raise InputError(str(path), problems)
    at = header.index(alias)
    aliases = [row[at] for row in rows[1:]]
    blank = [number for number, name in enumerate(aliases, 1) if not name.strip()]
    twice = _repeated(aliases)
    if blank or twice:
        raise InputError(str(path), list(_alias_problems(alias, blank, twice)))
    fields = [name for name in header if name != alias]
    own = ([cell for number, cell in enumerate(row) if number != at] for row in rows[1:])
    return [(name, dict(zip(fields, cells, strict=True))) for name, cells in zip(aliases, own, strict=True)]


def _repeated(aliases: list[str]) -> list[int]:
    """Return the places, counted from 1, of aliases that came before."""
    seen: set[str] = set()
    return [number for number, name in enumerate(aliases, 1) if name in seen or seen.add(name)]  # type: ignore[func-returns-value]


def _header_problems(header: list[str], alias: str) -> list[Problem]:
    problems = []
    if alias not in header:
        problems.append(Problem("there is no such column", where=alias, remedy="Name it with --alias-column."))
    if len(set(header)) < len(header):
        problems.append(Problem("the header names a column twice", remedy="Rename one."))
    return problems


def _alias_problems(alias: str, blank: list[int], twice: list[int]) -> Iterator[Problem]:
    if blank:
        yield _problem("is missing", alias, blank, "Every vehicle needs an alias.")
    if twice:
        yield _problem("comes twice", alias, twice, "Write one row for each vehicle.")


def _problem(what: str, where: str, rows: list[int], remedy: str) -> Problem:
    return Problem(what, where=where, rows=tuple(rows[:MOST_ROWS_NAMED]), num_rows=len(rows), remedy=remedy)


def _csv_rows(path: Path) -> Iterator[list[str]]:
    try:
        text = _content(path).decode("utf-8-sig")
        rows = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row]
    except (UnicodeError, csv.Error):
        problem = Problem("is not a CSV file in UTF-8, or has a quote that is not closed", remedy="Save it again.")
        raise InputError(str(path), [problem]) from None
    if len(rows) < 2:
        raise InputError(str(path), ["is empty. Give a header line and at least one row."])
    yield from rows


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as source:
            content = source.read(MOST_FILE_BYTES + 1)
    except OSError as error:
        raise InputError(str(path), [f"cannot be read: {error.strerror}. Check the path."]) from None
    if len(content) > MOST_FILE_BYTES:
        raise InputError(str(path), ["is larger than 1 GiB. Split it."])
    return content


def _sealed(path: Path) -> list[tuple[str, SealedRecord]]:
    lines = [line for line in _content(path).removeprefix(BOM_UTF8).split(b"\n") if line.strip()]
    if not lines:
        raise InputError(str(path), ["is empty. Name a file that dunnage device seal wrote."])
    held = [_sealed_line(path, number, line) for number, line in enumerate(lines, 1)]
    if twice := _repeated([name for name, _ in held]):
        problem = _problem("the alias of a sealed record comes twice", "", twice, "Keep one line for each vehicle.")
        raise InputError(str(path), [problem])
    return held


def _sealed_line(path: Path, number: int, line: bytes) -> tuple[str, SealedRecord]:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict) or set(data) != _KEYS or not isinstance(data["alias"], str):
        problem = Problem(f"line {number} is no sealed record, or is cut off", remedy="Use a copy of the file.")
        raise InputError(str(path), [problem])
    return data["alias"], SealedRecord.from_json(json.dumps(data["sealed"]))


def _line(alias: str, record: SealedRecord) -> str:
    return json.dumps({"alias": alias, "sealed": json.loads(record.to_json())}, separators=(",", ":")) + "\n"


def _write(target: Path, lines: Iterator[str], *, private: bool) -> int:
    """Write text to a file that appears whole or not at all."""
    count = 0
    with new_file(target, private=private) as sink:
        for count, line in enumerate(lines, 1):  # noqa: B007
            sink.write(line.encode())
    return count
