# SPDX-License-Identifier: Apache-2.0
"""Release: what leaves the owner, in memory and as a folder.

A release is tables plus a certificate. The folder holds each table as Parquet and CSV, the certificate, a
Frictionless ``datapackage.json`` and a ``README.md`` for whoever receives it.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from dunnage.arrays import FloatArray, IntArray
from dunnage.certificate import MOST_CERTIFICATE_BYTES, Certificate
from dunnage.errors import CheckFailed, ParameterError, ReleaseError
from dunnage.guarantees import Basis
from dunnage.release_words import (
    COUNTS_TABLE_WORDS,
    ESTIMATES_TABLE_WORDS,
    count_column_words,
    counts_readme,
    estimate_column_words,
    estimate_loss_words,
    estimates_readme,
    loss_words,
)
from dunnage.trips import Universe

CERTIFICATE_FILE = "certificate.json"
DATAPACKAGE_FILE = "datapackage.json"
README_FILE = "README.md"
TABLES = ("data", "classes", "members")
ROWS, COUNTS, ESTIMATES = "rows", "counts", "estimates"
"""Kinds of release."""

RELEASE_FILES = frozenset(
    {
        CERTIFICATE_FILE,
        DATAPACKAGE_FILE,
        README_FILE,
        *(f"{name}.{end}" for name in TABLES for end in ("csv", "parquet")),
    }
)
# The wide forms of = + - @ are run too, by spreadsheets of East Asian languages.
_RUNS_IN_SPREADSHEET = r"^[=+\-@\t\r\n\x{FF1D}\x{FF0B}\x{FF0D}\x{FF20}]"
_PLAIN_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"


@dataclass(frozen=True, eq=False)
class Uncertain:
    """One released quantity over all rows: what is known of it. The seam between privacy and planning.

    Parameters
    ----------
    name, unit
        The attribute and its unit.
    lower, upper
        Closed bounds for each row.
    nominal
        A single best value for each row (the class mean, or the noisy value); None if none was released.
    class_id
        Class of each row; rows of one class are exchangeable. A noisy row is a class of its own.
    scenarios
        For each class the released values of its members, in order; None without multisets.
    """

    name: str
    unit: str
    lower: FloatArray
    upper: FloatArray
    nominal: FloatArray | None
    class_id: IntArray
    scenarios: tuple[FloatArray, ...] | None

    def __len__(self) -> int:
        return len(self.lower)


@dataclass(frozen=True, eq=False, kw_only=True)
class Release:
    """Tables that may leave the owner, with their certificate.

    Parameters
    ----------
    certificate
        What is promised about the tables.
    data
        One line a released record (or count, or estimate).
    classes
        One line a class, for k-anonymous releases.
    members
        One line a class member, when multisets were released.
    """

    certificate: Certificate
    data: pa.Table
    classes: pa.Table | None = None
    members: pa.Table | None = None

    def __post_init__(self) -> None:
        for name, table in self.tables.items():
            object.__setattr__(self, name, _portable(table))

    def __repr__(self) -> str:
        body = self.certificate.body
        model = body["guarantee"]["model"]
        return f"Release({body['dataset']!r}, {model}, {self.certificate.basis}, {self.data.num_rows} rows)"

    def __len__(self) -> int:
        return int(self.data.num_rows)

    @property
    def tables(self) -> dict[str, pa.Table]:
        """The tables at hand, by file name."""
        held = {name: getattr(self, name) for name in TABLES}
        return {name: table for name, table in held.items() if table is not None}

    @property
    def kind(self) -> str:
        """What a line of ``data`` is: ``rows`` (a record), ``counts`` (a type of trips), ``estimates`` (a value)."""
        return str(self.certificate.body["kind"])

    def check_rows(self, verb: str) -> None:
        """Refuse what needs released rows on a release that has none.

        Raises
        ------
        ParameterError
            If the release is one of counts or estimates.
        """
        if self.kind != ROWS:
            raise ParameterError(
                f"{verb} needs released rows, one a record. Got a release of {self.kind}, which has none. Give another."
            )

    @cached_property
    def universe(self) -> Universe:
        """All types of trips that a release of counts is about, without zones and modes."""
        if self.kind != COUNTS:
            raise ParameterError(f"types of trips are those of a release of counts. Got one of {self.kind}.")
        return Universe.from_description(self.certificate.body["attributes"])

    def counted(self) -> tuple[IntArray, IntArray]:
        """Return the cells that a release of counts lists, by their number in its universe, and their counts.

        Raises
        ------
        ReleaseError
            If a label is not one of the universe.
        """
        universe = self.universe
        codes = {name: _codes(self.data.column(name), universe.labels(name)) for name in universe.cell_columns}
        strange = [name for name, found in codes.items() if (found < 0).any()]
        if strange:
            raise ReleaseError(f"data: a label of {', '.join(strange)} is not in the public domain.")
        slots = codes["window"] + codes.get("day", 0) * len(universe.windows)
        counts: IntArray = self.data.column("count").combine_chunks().to_numpy(zero_copy_only=False)
        return universe.cells(codes["origin"], codes["destination"], slots), counts

    @property
    def attributes(self) -> dict[str, dict[str, Any]]:
        """Public description of each released attribute, by name."""
        return {item["name"]: item for item in self.certificate.body["attributes"]}

    @property
    def quantities(self) -> list[str]:
        """Names of the released numbers that are known by bounds."""
        return [name for name in self.attributes if f"{name}_lower" in self.data.column_names]

    @property
    def noisy(self) -> bool:
        """Whether rows were released by noise, so that their intervals may miss the truth."""
        measures = self.certificate.body["measures"]
        return self.kind == ROWS and ("noise" in measures or "published_intervals" in measures)

    @property
    def class_of_row(self) -> IntArray:
        """Class of each row; a noisy row is in none, so it is one by itself, numbered after all others."""
        if "class_id" not in self.data.column_names:
            return np.arange(len(self))
        found: IntArray = self.data.column("class_id").combine_chunks().to_numpy(zero_copy_only=False)
        alone = found < 0
        return np.where(alone, found.max(initial=-1) + np.cumsum(alone), found) if alone.any() else found

    def uncertain(self, name: str) -> Uncertain:
        """Return what is known of one generalised or perturbed number.

        Raises
        ------
        ParameterError
            If no such quantity was released.
        """
        columns = self.data.column_names
        if name not in self.quantities:
            known = ", ".join(self.quantities) or "none"
            raise ParameterError(f"the release has no quantity {name!r}. It has: {known}.")
        nominal = next((c for c in (f"{name}_mean", name) if c in columns), None)
        return Uncertain(
            name=name,
            unit=self.attributes.get(name, {}).get("domain", {}).get("unit", ""),
            lower=_floats(self.data, f"{name}_lower"),
            upper=_floats(self.data, f"{name}_upper"),
            nominal=_floats(self.data, nominal) if nominal else None,
            class_id=self.class_of_row,
            scenarios=self._scenarios(name),
        )

    def _scenarios(self, name: str) -> tuple[FloatArray, ...] | None:
        if self.members is None:
            return None
        class_id = self.members.column("class_id").to_numpy()
        starts = np.flatnonzero(np.diff(class_id)) + 1
        return tuple(np.split(_floats(self.members, name), starts))

    def texts(self, folder: Path) -> dict[str, bytes]:
        """Return what is written for programs and people, by file name; the tables stand in the folder already."""
        datapackage = json.dumps(_datapackage(self, folder), indent=2, ensure_ascii=False) + "\n"
        return {DATAPACKAGE_FILE: datapackage.encode(), README_FILE: _readme(self).encode()}

    def write_files(self, folder: Path, *, sign: str | os.PathLike[str] | None = None) -> Certificate:
        """Write all files into an existing, empty folder and return the finished certificate.

        ``Publication.write`` is the safe way to do this: under a temporary name, after the key.
        """
        for name, table in self.tables.items():
            pq.write_table(table, folder / f"{name}.parquet", compression="zstd")
            write_csv(table, folder / f"{name}.csv")
        for name, content in self.texts(folder).items():
            (folder / name).write_bytes(content)
        digests = {path.name: file_digest(path) for path in sorted(folder.iterdir())}
        certificate = self.certificate.with_files(digests)
        if sign is not None:
            certificate = certificate.signed(sign)
        (folder / CERTIFICATE_FILE).write_bytes(certificate.to_bytes())
        return certificate

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> Release:
        """Read a release folder for planning; digests are checked before anything is parsed.

        Raises
        ------
        ReleaseError
            If the folder is no release or was altered. :func:`dunnage.verify` says more.
        """
        path = Path(folder)
        try:
            certificate = read_certificate(path)
            for name, digest in certificate.files.items():
                if not is_plain_file(path, name) or file_digest(path / name) != digest:
                    raise CheckFailed(f"{printable(name)}: its digest does not match the certificate.")
        except (CheckFailed, OSError) as error:
            raise ReleaseError(f"{path} is not a usable release: {error} Run dunnage verify on it.") from None
        return cls(certificate=certificate, **read_tables(path, certificate))


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


def _portable(table: pa.Table) -> pa.Table:
    """Give columns types that Parquet and CSV both bring back, and drop metadata, which nobody looks through."""
    schema = [pa.field(item.name, _portable_type(item.type)) for item in table.schema]
    return table.cast(pa.schema(schema)).replace_schema_metadata(None)


def _portable_type(kind: pa.DataType) -> pa.DataType:
    return next((made(kind) for check, made in _PORTABLE_TYPES if check(kind)), kind)


def _codes(column: pa.ChunkedArray, labels: tuple[str, ...]) -> IntArray:
    """Return the position of each value among labels, -1 for one that is none of them."""
    encoded = column.combine_chunks().dictionary_encode()
    position = {label: code for code, label in enumerate(labels)}
    codes = np.array([position.get(label, -1) for label in encoded.dictionary.to_pylist()], dtype=np.int64)
    return codes[encoded.indices.to_numpy(zero_copy_only=False)] if len(codes) else codes


def _floats(table: pa.Table, name: str) -> FloatArray:
    # Through one array: a chunked one asks pandas, where it is installed, at the price of its import.
    values: FloatArray = table.column(name).combine_chunks().to_numpy(zero_copy_only=False)
    return values


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_certificate(folder: Path) -> Certificate:
    """Read the certificate of a folder."""
    if not folder.is_dir():
        raise ReleaseError(f"{folder} is not a folder, so it is not a release. Give the folder that publish wrote.")
    if not is_plain_file(folder, CERTIFICATE_FILE):
        raise ReleaseError(f"{folder} has no {CERTIFICATE_FILE}, so it is not a release.")
    with (folder / CERTIFICATE_FILE).open("rb") as stream:
        return Certificate.from_bytes(stream.read(MOST_CERTIFICATE_BYTES + 1))


def is_plain_file(folder: Path, name: str) -> bool:
    """Return whether a name is that of a regular file of the folder: no link, no folder, no way out of it."""
    if not name.isprintable() or Path(name).name != name:
        return False
    try:
        return stat.S_ISREG((folder / name).lstat().st_mode)
    except OSError:
        return False


def printable(name: str) -> str:
    """Return a file name as it may be printed: one that could steer a terminal is quoted."""
    return name if name.isprintable() else ascii(name)


def read_tables(folder: Path, certificate: Certificate) -> dict[str, pa.Table]:
    """Read the Parquet tables that the certificate lists."""
    listed = [name for name in TABLES if f"{name}.parquet" in certificate.files]
    if "data" not in listed:
        raise ReleaseError(f"{folder}: the certificate lists no data.parquet. Ask for the release again.")
    try:
        return {name: _read_table(folder, name) for name in listed}
    except (pa.ArrowException, OSError):
        raise ReleaseError(f"{folder}: a Parquet table cannot be read. Ask for the release again.") from None


def _read_table(folder: Path, name: str) -> pa.Table:
    with pq.ParquetFile(folder / f"{name}.parquet") as file:
        # A few compressed bytes can claim any number of cells; in CSV each takes a character and a separator.
        cells = _num_cells(file.metadata)
        if 2 * cells > (folder / f"{name}.csv").stat().st_size:
            raise ReleaseError(f"{folder}: {name}.parquet claims more cells than {name}.csv has room for.")
        return file.read()


def _num_cells(metadata: Any) -> int:
    """Return how many values a Parquet file claims to hold, those of sets one by one."""
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    values = sum(group.column(index).num_values for group in groups for index in range(metadata.num_columns))
    return max(int(values), int(metadata.num_rows * metadata.num_columns))


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


_FRICTIONLESS_TYPES = (
    (pa.types.is_integer, "integer"),
    (pa.types.is_floating, "number"),
    (pa.types.is_decimal, "number"),
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_date, "date"),
    (pa.types.is_timestamp, "datetime"),
)


def _frictionless_type(kind: pa.DataType) -> str:
    return next((name for check, name in _FRICTIONLESS_TYPES if check(kind)), "string")


def _describe_column(name: str, release: Release, table: str = "data") -> str:
    """Say in a few words what a column of a released table is."""
    if release.kind == COUNTS:
        return count_column_words(name, release.universe)
    if release.kind == ESTIMATES:
        return estimate_column_words(name, release.certificate.body)
    noisy = _noise_words(release)
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
        if name.endswith(ending) and base in release.attributes:
            closed = " (closed interval)" if ending != "_mean" else ""
            if base in noisy and table == "data":
                words, closed = f"{ending[1:]} end of the interval for", f" (closed interval{noisy[base]})"
            return f"{words} {base}{_in_unit(base, release)}{closed}{_clamped(base, release)}"
    if name in noisy:
        return f"{name}{_in_unit(name, release)} with noise, on the public grid{_clamped(name, release)}"
    role = release.attributes.get(name, {}).get("role", "")
    if role in ("public", "sensitive"):
        return f"{role} attribute, released as it is{_clamped(name, release)}"
    base = name.removesuffix("_diameter")
    if base != name and role == "" and base in release.attributes:
        return f"longest of the shortest paths between the vertices in {base}"
    if role == "quasi-identifier" and is_set(release.tables[table].schema.field(name).type):
        return f"sorted set of the values of {name} that occur in the class"
    if role == "quasi-identifier" and table != "members":
        return f"{name} or what generalises it: a node of its public hierarchy"
    return f"{name} of a class member{_clamped(name, release)}"


def _noise_words(release: Release) -> dict[str, str]:
    """Say for each attribute that was released by noise how sure its intervals are."""
    measures = release.certificate.body["measures"]
    described = measures.get("noise") or measures.get("published_intervals") or {}
    confidence = release.certificate.body["mechanism"].get("confidence", 0)
    with_classes = release.classes is not None
    sure = f"; of a noisy row, at confidence {confidence}" if with_classes else f" at confidence {confidence}"
    return dict.fromkeys(described, sure if confidence else "; without a confidence, the noisy value itself")


def _in_unit(name: str, release: Release) -> str:
    unit = release.attributes[name].get("domain", {}).get("unit", "")
    return f" in {unit}" if unit else ""


def _clamped(name: str, release: Release) -> str:
    moved = release.attributes.get(name, {}).get("outside") == "clamp"
    return "; values outside the domain were moved to its nearest end" if moved else ""


def _datapackage(release: Release, folder: Path) -> dict[str, Any]:
    resources = []
    for name, table in release.tables.items():
        columns = [
            {"name": f.name, "type": _frictionless_type(f.type), "description": _describe_column(f.name, release, name)}
            for f in table.schema
        ]
        resources.append(
            {
                "name": name,
                "path": f"{name}.csv",
                "profile": "tabular-data-resource",
                "format": "csv",
                "encoding": "utf-8",
                "hash": f"sha256:{file_digest(folder / f'{name}.csv')}",
                "schema": {"fields": columns},
            }
        )
    body = release.certificate.body
    title = f"{body['dataset']}" + (f", {body['period']}" if "period" in body else "")
    return {"profile": "tabular-data-package", "name": "release", "title": title, "resources": resources}


_TABLE_WORDS = {
    "data": "one line a released record",
    "classes": "one line a class of records that look alike, with its size",
    "members": "one line a class member: the values that occur in the class, in no order that tells whose they are",
}


def _label_words(release: Release) -> str:
    """Explain nodes of hierarchies and sets of labels, if any are released."""
    generalised = {name for name, item in release.attributes.items() if item["role"] == "quasi-identifier"}
    named = generalised & set(release.data.column_names) - set(release.quantities)
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


def _interval_words(release: Release) -> str:
    """Say what the intervals promise, and what they do not."""
    if not _noise_words(release):
        return "Intervals are closed: both ends are possible."
    beside = "" if release.classes is None else "Intervals of classes hold every value of the class.\n"
    sides = f"{beside}A noisy value may lie on either side of the true one."
    if not release.certificate.body["mechanism"].get("confidence"):
        return f"{sides} No intervals around it were asked for."
    return (
        f"{sides} Its interval is closed and holds the true value with\n"
        "at least the stated confidence, each by itself: that all of them do at once is far less likely."
    )


def _row_words(release: Release) -> str:
    """Say what it means that there is no row, or that rows are of a sample."""
    if release.certificate.body["guarantee"]["model"] != "sampled-dp" or _noise_words(release):
        return ""
    none = " This time there is none." if not len(release) else ""
    return f"\nRows are of a secret sample: a record is here only if it was drawn and enough look like it.{none}\n"


def _readme(release: Release) -> str:
    columns = "\n".join(f"- `{name}`: {_describe_column(name, release)}" for name in release.data.column_names)
    if release.kind == COUNTS:
        rest = counts_readme(release.certificate.body, release.universe, columns)
        return _readme_head(release, {"data": COUNTS_TABLE_WORDS}, loss_words(release.certificate.body)) + rest
    if release.kind == ESTIMATES:
        rest = estimates_readme(release.certificate.body, columns)
        head = _readme_head(release, {"data": ESTIMATES_TABLE_WORDS}, estimate_loss_words(release.certificate.body))
        return head + rest
    return _readme_head(release, _TABLE_WORDS) + _readme_of_rows(release, columns)


def _readme_head(release: Release, words: Mapping[str, str], more: tuple[str, ...] = ()) -> str:
    body = release.certificate.body
    tables = "\n".join(f"- `{name}.parquet`, `{name}.csv`: {words[name]}" for name in release.tables)
    sentences = "\n".join(f"- {sentence}" for sentence in [*body["meaning"]["sentences"], *more])
    clear = "\n".join(f"- {item}" for item in body["in_clear"])
    return f"""# {body["dataset"]}: a private release

Made with Dunnage {body["software"]["dunnage"]} on {body["time"]}. The guarantee is **{body["guarantee"]["model"]}**,
basis **{body["basis"]}**; `certificate.json` states it in full.{_proof_words(body)}

## What it promises

{sentences}

In clear:

{clear}

## Files

{tables}
- `certificate.json`: guarantee, assumptions, digests. Check it all with `dunnage verify FOLDER`.
- `datapackage.json`: the columns for programs (Frictionless).
"""


def _proof_words(body: Mapping[str, Any]) -> str:
    """Say where the proof is, if the certificate does."""
    if "proof" not in body:
        return ""
    notes = ", ".join(f"`{note}`" for note in body["proof"]["sections"])
    title = "Why it holds" if body["basis"] == Basis.PROVED else "What holds and what does not"
    return f"\n{title}: {notes} in the source of Dunnage {body['proof']['version']}."


def _readme_of_rows(release: Release, columns: str) -> str:
    return f"""{_row_words(release)}
## Columns of `data`

{columns}

{_interval_words(release)}{_label_words(release)} There are no missing values.

## Read it

```python
import pandas as pd

data = pd.read_parquet("data.parquet")
```
{_set_snippet(release)}{_plan_words(release)}"""


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


def describe_release(release: Release) -> Mapping[str, Any]:
    """Give what a person or program wants to know first about a release."""
    body = release.certificate.body
    first = ("kind", "dataset", "period", "guarantee", "basis", "proof", "mechanism", "measures")
    keys = (*first, "in_clear", "meaning", "spend", "time")
    return {**{key: body[key] for key in keys if key in body}, "digest": release.certificate.digest}
