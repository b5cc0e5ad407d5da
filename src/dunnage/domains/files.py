# SPDX-License-Identifier: Apache-2.0
"""Public CSV files: hierarchies and edge lists, with the line of every problem."""

from __future__ import annotations

import csv
import io
from os import PathLike
from pathlib import Path

from dunnage.errors import InputError, Problem

MOST_FILE_BYTES = 64 * 2**20  # Largest hierarchy or edge file that is read

MOST_LINES = 20  # Most lines of a file that an error names


def read_csv(path: str | PathLike[str], delimiter: str | None) -> list[tuple[int, list[str]]]:
    """Read the lines of a public CSV file that are not blank, each with its number."""
    text = read_text(path)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter or delimiter_of(text))
    lines: list[tuple[int, list[str]]] = []
    try:
        lines.extend((reader.line_num, cells) for cells in reader if any(cells))
    except csv.Error as error:
        refuse_lines(path, [(reader.line_num, f"this is not CSV ({error}). Mend the line.")])
    if not lines:
        raise InputError(str(path), [Problem("the file has no lines", remedy="Fill it or name another.")])
    return lines


def read_text(path: str | PathLike[str], most_bytes: int | None = None) -> str:
    """Read a public file of UTF-8 text, up to :data:`MOST_FILE_BYTES` long unless said otherwise."""
    most_bytes = MOST_FILE_BYTES if most_bytes is None else most_bytes
    try:
        with Path(path).open("rb") as file:
            content = file.read(most_bytes + 1)
    except OSError as error:
        what = f"the file cannot be read ({error.strerror})"
        raise InputError(str(path), [Problem(what, remedy="Check its name and permissions.")]) from None
    if len(content) > most_bytes:
        what = f"the file is larger than {most_bytes // 2**20} MB"
        raise InputError(str(path), [Problem(what, remedy="Use a coarser domain.")])
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(str(path), [Problem("not UTF-8", f"line {line}", remedy="Save it so.")]) from None


def delimiter_of(text: str) -> str:
    """Return the delimiter of a CSV file: a comma, or a semicolon if its first line has one."""
    first = text.lstrip("\r\n").partition("\n")[0]
    try:
        return ";" if len(next(csv.reader([first], delimiter=";"), [])) > 1 else ","
    except csv.Error:  # a cell as long as a file: who reads the line will say so
        return ","


def refuse_lines(path: str | PathLike[str], problems: list[tuple[int, str]]) -> None:
    """Raise all problems of a file at once, if there are any."""
    if problems:
        raise InputError(str(path), line_problems(problems))


def line_problems(problems: list[tuple[int, str]]) -> list[Problem]:
    """Name the lines of problems, up to :data:`MOST_LINES` of them."""
    listed = [Problem(what.rstrip("."), where=f"line {line}") for line, what in problems[:MOST_LINES]]
    if len(problems) > MOST_LINES:
        listed.append(Problem(f"and {len(problems) - MOST_LINES} more"))
    return listed
