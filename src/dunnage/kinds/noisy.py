# SPDX-License-Identifier: Apache-2.0
"""Releases of noisy rows: each record with noise on its numbers, and intervals around them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa

from dunnage.certificate import Certificate, NoiseCell, RowMeasures
from dunnage.exact import exact
from dunnage.kinds.common import (
    GENERALISED,
    PUBLIC,
    SENSITIVE,
    Columns,
    Kind,
    floats,
    generalised,
    numeric_domain,
    require,
    with_role,
)
from dunnage.tables.columns import is_set

if TYPE_CHECKING:
    from dunnage.release import Release

MOST_LINES = 24
"""Classes, cells of noise or estimates that are listed to a person."""
NOT_CHECKED = (
    "that the rows are the owner's true records, and all of them",
    "that domains and hierarchies were chosen without looking at the data",
    "that what is said to be in clear and assumed is complete",
    "that the order of rows was drawn at random",
    "that the ledger holds the spend, and what else was released about the same records",
)
NOISE_NOT_CHECKED = ("that the noise was drawn as stated, afresh for every row and column",)


class NoisyRows(Kind):
    """Rows told by noise."""

    table_words: ClassVar = {
        "data": "one line a released record",
        "classes": "one line a class of records that look alike, with its size",
        "members": "one line a class member: the values that occur in the class, in no order that tells whose they are",
    }

    def tables(self, release: Release) -> dict[str, Columns]:
        """Return the columns: row, public ones, then per attribute the noisy value and its interval."""
        as_is: Columns = dict.fromkeys(with_role(release, PUBLIC, SENSITIVE))
        noisy = {f"{name}{end}": pa.float64() for name in generalised(release) for end in ("", "_lower", "_upper")}
        return {"data": {"row": pa.int64(), **as_is, **noisy}}

    def recount(self, release: Release) -> Iterator[str]:
        """Count rows, and check that values and intervals lie in the public domain, on its grid."""
        check_unchanged(release)
        yield check_rows(release)
        require(release.certificate.rows.records == len(release), "certificate.json: another number of records")
        for name in generalised(release):
            domain = numeric_domain(release, name)
            value, lower, upper = (floats(release.data, f"{name}{end}") for end in ("", "_lower", "_upper"))
            inside = domain.contains(lower) & domain.contains(upper) & (lower <= value) & (value <= upper)
            wrong = f"data: an interval of {name} misses its value or leaves the public domain"
            require(bool(inside.all()), wrong)
            require(bool(domain.on_grid(value).all()), f"data: a value of {name} is not on the public grid")

    def not_checked(self, certificate: Certificate) -> tuple[str, ...]:
        """Say what nobody can see from noisy rows alone."""
        return (*NOT_CHECKED, *NOISE_NOT_CHECKED)

    def column_words(self, name: str, release: Release, table: str = "data") -> str:
        """Say what a column of rows is."""
        return row_column_words(name, release, table)

    def readme(self, release: Release, columns: str) -> str:
        """Explain rows, intervals, nodes and sets."""
        return readme_of_rows(release, columns)

    def figures(self, release: Release) -> list[str]:
        """Describe the noise of each attribute."""
        measures = release.certificate.rows
        if measures.noise is None:
            return []
        return [f"Records     {measures.records}", *noise_lines(measures.noise)]

    def headline(self, certificate: Certificate, num_rows: int, num_left_out: int) -> list[str]:
        """Say how many records were released."""
        measures = certificate.rows
        noisy = num_rows - measures.records
        return [f"Records   {measures.records} released" + (f", {noisy} more by noise" if noisy else "")]


def check_unchanged(release: Release) -> None:
    """Refuse columns that are released as they are where differential privacy is stated."""
    wrong = "certificate.json: sensitive columns as they are, which differential privacy does not cover"
    require(not with_role(release, SENSITIVE), wrong)


def check_rows(release: Release) -> str:
    """Check that rows are numbered, and say how many there are."""
    rows = release.data.column("row").to_numpy()
    require(bool(np.array_equal(rows, np.arange(release.data.num_rows))), "data: column row is not 0, 1, 2 ...")
    return f"{release.data.num_rows} rows"


def noise_lines(noise: Mapping[str, list[NoiseCell]]) -> list[str]:
    """Describe the noise of each attribute, cell by cell."""
    return [
        f"Noise       {name} {cell.lower:g} to {cell.upper:g}: {cell.law}, epsilon {cell.epsilon}"
        + (f", within {cell.radius:g} with at least {cell.coverage:.4g}" if cell.coverage else "")
        for name, cells in noise.items()
        for cell in cells[:MOST_LINES]
    ]


# What READMEs of released rows say, by noise or by classes


def _confidence(release: Release) -> str:
    """Return the confidence of intervals as it is stated; empty if none were asked for."""
    given = release.certificate.mechanism.get("confidence")
    return "" if given in (None, 0) or not exact(str(given)) else str(given)


def noisy_names(measures: RowMeasures) -> list[str]:
    """Return the attributes that were released by noise."""
    return list(measures.noise or measures.published_intervals or {})


def row_column_words(name: str, release: Release, table: str) -> str:
    """Say in a few words what a column of released rows is."""
    noisy, attributes = noisy_names(release.certificate.rows), release.attributes
    fixed = {
        "row": "number of the released row; the order is random and unrelated to the owner's",
        "class_id": "class of records that look alike" + ("; -1 for a noisy row, which is in none" if noisy else ""),
        "size": "number of released records in the class",
    }
    if name in fixed:
        return fixed[name]
    endings = {"_lower": "smallest possible", "_upper": "largest possible", "_mean": "mean over the class of"}
    for ending, words in endings.items():
        base = name[: -len(ending)]
        if name.endswith(ending) and base in attributes:
            closed = " (closed interval)" if ending != "_mean" else ""
            if base in noisy and table == "data":
                confidence = _confidence(release)
                sure = f" at confidence {confidence}"
                sure = f"; of a noisy row, at confidence {confidence}" if release.classes is not None else sure
                sure = sure if confidence else "; without a confidence, the noisy value itself"
                words, closed = f"{ending[1:]} end of the interval for", f" (closed interval{sure})"
            return f"{words} {base}{_in_unit(base, release)}{closed}{_clamped(base, release)}"
    if name in noisy:
        return f"{name}{_in_unit(name, release)} with noise, on the public grid{_clamped(name, release)}"
    role = attributes[name].role if name in attributes else ""
    if role in (PUBLIC, SENSITIVE):
        return f"{role} attribute, released as it is{_clamped(name, release)}"
    base = name.removesuffix("_diameter")
    if base != name and role == "" and base in attributes:
        return f"longest of the shortest paths between the vertices in {base}"
    if role == GENERALISED and is_set(release.tables[table].schema.field(name).type):
        return f"sorted set of the values of {name} that occur in the class"
    if role == GENERALISED and table != "members":
        return f"{name} or what generalises it: a node of its public hierarchy"
    return f"{name} of a class member{_clamped(name, release)}"


def _in_unit(name: str, release: Release) -> str:
    unit = release.attributes[name].unit
    return f" in {unit}" if unit else ""


def _clamped(name: str, release: Release) -> str:
    moved = name in release.attributes and release.attributes[name].outside == "clamp"
    return "; values outside the domain were moved to its nearest end" if moved else ""


def readme_of_rows(release: Release, columns: str) -> str:
    """Write what follows after promise and files in the README of released rows."""
    return f"""{_sample_words(release)}
## Columns of `data`

{columns}

{_interval_words(release)}{_label_words(release)} There are no missing values.

## Read it

```python
import pandas as pd

data = pd.read_parquet("data.parquet")
```
{_set_snippet(release)}{_plan_words(release)}"""


def _sample_words(release: Release) -> str:
    """Say what it means that there is no row, or that rows are of a sample."""
    if release.certificate.guarantee.model != "sampled-dp" or noisy_names(release.certificate.rows):
        return ""
    none = " This time there is none." if not len(release) else ""
    return f"\nRows are of a secret sample: a record is here only if it was drawn and enough look like it.{none}\n"


def _interval_words(release: Release) -> str:
    """Say what the intervals promise, and what they do not."""
    if not noisy_names(release.certificate.rows):
        return "Intervals are closed: both ends are possible."
    beside = "" if release.classes is None else "Intervals of classes hold every value of the class.\n"
    sides = f"{beside}A noisy value may lie on either side of the true one."
    if not _confidence(release):
        return f"{sides} No intervals around it were asked for."
    return (
        f"{sides} Its interval is closed and holds the true value with\n"
        "at least the stated confidence, each by itself: that all of them do at once is far less likely."
    )


def _label_words(release: Release) -> str:
    """Explain nodes of hierarchies and sets of labels, if any are released."""
    named = set(generalised(release)) & set(release.data.column_names) - set(release.quantities)
    sets = {name for name in named if is_set(release.data.schema.field(name).type)}
    words = ""
    if named - sets:
        words += (
            " A node stands for every value below it, `*` for any value; the\n"
            "hierarchies are under `attributes` in `certificate.json`."
        )
    if sets:
        words += (
            "\nA set lists every value that occurs in the class: a list in Parquet, `{A,B}` in CSV, where a comma,\n"
            "brace or backslash that belongs to a value has a backslash before it."
        )
    return words


def _set_snippet(release: Release) -> str:
    """Show how sets are read from CSV, if there are any."""
    if not any(is_set(item.type) for item in release.data.schema):
        return ""
    return """
In Parquet a set is a list. From CSV:

```python
import re

def labels(text):
    return [re.sub(r"\\\\(.)", r"\\1", label) for label in re.findall(r"(?:[^\\\\,]|\\\\.)+", text[1:-1])]
```
"""


def _plan_words(release: Release) -> str:
    """Say how a plan is sent back, if there are numbers to plan with and rows of goods, not of clusters."""
    if any(is_set(item.type) for item in release.data.schema) or not release.quantities:
        return ""
    return """
## Send a plan back

A plan is a CSV file with the columns `row,bin`: for each `row` of `data` the bin (truck) it goes into. The owner, who
alone can tell which record a row is, applies it to the true records.
"""
