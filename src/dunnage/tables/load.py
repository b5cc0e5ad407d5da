# SPDX-License-Identifier: Apache-2.0
"""Load private rows under a policy, from a file or any frame that offers the Arrow C stream; and draft a policy."""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from dunnage.errors import InputError, ParameterError, Problem
from dunnage.exact import shown
from dunnage.model.draft import draft_policy
from dunnage.model.policy import Policy
from dunnage.tables.cells import is_text, numbers_of_text
from dunnage.tables.dataset import Dataset
from dunnage.tables.reader import EXCEL_ENDINGS, ReadOptions, guess_options, is_named, line_of_row, read_table

_NUM_DRAFT_ROWS = 1000
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")
_DRAFT_FORMS = {
    "time": re.compile(
        r"\d{4}-\d\d-\d\d([T ]\d{1,2}:\d\d(:\d\d([.,]\d+)?)?\s?(Z|[+-]\d\d:?\d\d)?)?|\d{1,2}:\d\d(:\d\d([.,]\d+)?)?"
    ),
    "date": re.compile(r"\d{1,4}[./-]\d{1,2}[./-]\d{1,4}([T ,].*)?"),
    "flag": re.compile("true|false|yes|no|y|n|t|f|ja|nein|oui|non|si", re.IGNORECASE),
}
_NUMBERS = {  # ways to write numbers; what may be meant by two of them counts as the first
    "comma": re.compile(r"[+-]?\d*,\d+"),
    "point": re.compile(r"[+-]?\d*\.\d+"),
    "thousands": re.compile(r"[+-]?\d{1,3}([.,' \u00a0\u202f]\d{3})+([.,]\d+)?"),
    "whole": re.compile(r"[+-]?\d+"),
}
_WITH_OFFSET = re.compile(r".*\d\d:\d\d.*(Z|[+-]\d\d:?\d\d)")


def load(data: Any, policy: Policy | str | os.PathLike[str], *, period: str | None = None) -> Dataset:
    """Load private rows under a policy.

    Parameters
    ----------
    data
        Path of a CSV or Parquet file, a folder of Parquet files or an Excel workbook, or a frame with the Arrow C
        stream (polars, pandas, DuckDB, pyarrow ...). A file named ``.tsv`` is CSV with tabs.
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
    if isinstance(data, str | os.PathLike):
        table, rows, problems = read_table(Path(data), rules.read_options, [item.name for item in rules.schema])
        return Dataset.from_table(table, rules, period=period, source=str(data), rows=rows, problems=problems)
    if not hasattr(data, "__arrow_c_stream__"):
        raise ParameterError(
            "data must be a path or a frame with the Arrow C stream interface. "
            f"Got {type(data).__name__}. Pass a pyarrow table, a polars or a pandas (2.2+) frame."
        )
    try:
        table = pa.table(data)
        table = table.rename_columns(table.column_names)  # names that are not UTF-8 fail here and not later
        # pandas brings its row index along as columns of these names; it is no data
        table = table.drop_columns([name for name in table.column_names if _PANDAS_INDEX.fullmatch(name)])
    except Exception:  # the frame's own code runs here, and what it says may quote cells
        raise ParameterError(
            f"the {type(data).__name__} could not be turned into an Arrow table. Pass a frame with one type a column."
        ) from None
    return Dataset.from_table(table, rules, period=period)


def draft(data: str | os.PathLike[str], *, story: str | None = None) -> str:
    """Write a policy for a file, to be filled in: from its column names and types only.

    Parameters
    ----------
    data
        Path of a CSV (or ``.tsv``) or Parquet file, a folder of Parquet files or an Excel workbook.
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
    options = guess_options(path)
    table, _, skipped = read_table(path, options)
    # What no policy could be about: two columns of one name, rows that are longer or shorter than others.
    names = table.column_names
    problems = [
        Problem("appears several times", where=f"column {shown(name)}", remedy="Give each column a name of its own.")
        for name in dict.fromkeys(names)
        if names.count(name) > 1
    ]
    forms = (*_NUMBERS.values(), _DRAFT_FORMS["time"], _DRAFT_FORMS["date"])
    if problems and any(form.fullmatch(name.strip()) for form in forms for name in names):
        problems = [Problem("its first line seems to hold values, not names", remedy="Put a line of names before it.")]
    is_workbook = is_named(path, EXCEL_ENDINGS)
    for problem in skipped:
        line = "" if is_workbook else f"Look at line {line_of_row(path, options, problem.rows[0])} of the file. "
        problems.append(replace(problem, remedy=f"{line}{problem.remedy}"))
    if problems:
        raise InputError(str(path), problems)
    # The first cells tell what a column is like; nothing of the values is kept.
    first = {name: table.column(name).slice(0, _NUM_DRAFT_ROWS).combine_chunks() for name in names}
    counts = {name: _forms(column) for name, column in first.items() if is_text(column.type)}
    if options.delimiter != "," or is_workbook:
        # The decimal mark that more columns have in most of their cells; a point, if neither.
        most = {mark: sum(n[mark] > n["all"] / 2 for n in counts.values()) for mark in ("comma", "point")}
        if most["comma"] > most["point"]:
            options = replace(options, decimal=",", delimiter=";" if is_workbook else options.delimiter)
    kinds = {name: _kind(column, options) for name, column in first.items()}
    seen = {name: what for name in counts if (what := _seen(first[name], kinds[name], counts[name], options))}
    return draft_policy(path.name.split(".")[0], kinds, options=options, story=story, seen=seen)


def _words(cells: pa.Array) -> list[str]:
    return [text for cell in cells.to_pylist() if cell and (text := cell.strip())]


def _forms(cells: pa.Array) -> Counter[str]:
    """Count how cells are written."""
    words = _words(cells)
    forms = (next((what for what, form in _NUMBERS.items() if form.fullmatch(word)), "") for word in words)
    return Counter(forms) + Counter(all=len(words))


def _kind(cells: pa.Array, options: ReadOptions) -> str:
    if is_text(cells.type):
        numbers, unreadable = numbers_of_text(cells, options)
        if unreadable.any():
            words = set(_words(cells))
            fits = (kind for kind, form in _DRAFT_FORMS.items() if all(form.fullmatch(word) for word in words))
            return next(fits, "text")
        return "text" if numbers.null_count == len(numbers) else "numeric"
    if pa.types.is_temporal(cells.type):
        return "time"
    if pa.types.is_boolean(cells.type):
        return "flag"
    checks = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return "numeric" if any(check(cells.type) for check in checks) else "text"


def _seen(cells: pa.Array, kind: str, forms: Counter[str], options: ReadOptions) -> str:
    """Say what cells look like that are not read as they seem to be meant; empty, if nothing is to be said."""
    if kind == "time":
        return "offset" if any(_WITH_OFFSET.fullmatch(word) for word in _words(cells)) else ""
    if kind != "text":
        return ""
    if not len(cells):
        return "nothing"
    if 2 * sum(forms[what] for what in _NUMBERS) <= forms["all"]:
        return ""
    other = "point" if options.decimal == "," else "comma"
    return next((what for what in (other, "thousands") if forms[what]), "words")
