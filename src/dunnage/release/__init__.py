# SPDX-License-Identifier: Apache-2.0
"""Release: what leaves the owner, in memory and as a folder.

A release is tables plus a certificate. The folder has each table as Parquet and CSV, the certificate, a Frictionless
``datapackage.json``, and for the receiver a ``README.md`` and two pages, one to read and one that checks the folder.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dunnage._version import __version__
from dunnage.arrays import FloatArray, IntArray
from dunnage.errors import CheckFailed, ParameterError, ReleaseError
from dunnage.folds import NUM_BATCH_ROWS, ROW, Fold, Rows, S, numbered
from dunnage.model.certificate import MAX_CERTIFICATE_BYTES, AttributeStatement, Certificate
from dunnage.model.documents import to_text
from dunnage.model.domains import clock_text
from dunnage.model.guarantees import PROJECT, Basis
from dunnage.model.trips import Universe
from dunnage.notebooks import Displayed, Tabular
from dunnage.release.kinds import COUNTS, ROWS, Kind, fill, floats, kind_of
from dunnage.release.page import certificate_page, verify_page
from dunnage.tables.columns import portable, write_csv
from dunnage.tables.parquet import Oversized, Parquet
from dunnage.text import time_text

CERTIFICATE_FILE = "certificate.json"
DATAPACKAGE_FILE = "datapackage.json"
README_FILE = "README.md"
PAGE_FILE = "certificate.html"
VERIFY_FILE = "verify.html"
CERTIFICATE_SCHEMA = "docs/schemas/certificate.schema.json"
"""The JSON Schema of certificates, by its path in the project."""
TABLES = ("data", "classes", "members")
SPREAD_STEPS = 0  # by default records are spread evenly: multisets need no more, and many steps follow chance
MAX_SPREAD, MAX_STEPS = 3, 1_000
MIN_TABLE_BYTES, BYTES_PER_CHARACTER = 1 << 20, 32
"""What a Parquet table may need in memory, by the size of the same table as CSV."""
RELEASE_FILES = frozenset(
    {
        CERTIFICATE_FILE,
        DATAPACKAGE_FILE,
        README_FILE,
        PAGE_FILE,
        VERIFY_FILE,
        *(f"{name}.{end}" for name in TABLES for end in ("csv", "parquet")),
    }
)


@dataclass(frozen=True, eq=False)
class Uncertain:
    """What is known about one released quantity in all rows: the interface between privacy and planning."""

    name: str  # name, unit: the attribute and its unit
    unit: str
    lower: FloatArray  # lower, upper: closed bounds for each row
    upper: FloatArray
    # the best single value for each row (the class mean, or the noisy value); None if none was released
    nominal: FloatArray | None
    class_id: IntArray  # class of each row; rows of one class are exchangeable. A noisy row is its own class
    scenarios: tuple[FloatArray, ...] | None  # for each class the sorted values of its members; None without multisets

    def __len__(self) -> int:
        return len(self.lower)


TIMES = "*"  # between the names of numbers that are multiplied, such as the sides of a box


def product(numbers: Iterable[FloatArray | float]) -> FloatArray:
    """Multiply numbers; twelve digits are the decimals that they mean, and sums of those do not exceed a full truck."""
    values = np.asarray(np.prod(np.array(list(numbers)), axis=0))
    steps = 10.0 ** (11 - np.floor(np.log10(np.where(values > 0, values, 1.0))))
    return np.asarray(np.rint(values * steps) / steps)


@dataclass(frozen=True, eq=False, kw_only=True)
class Release(Displayed, Tabular):
    """Tables that may leave the owner, with their certificate."""

    certificate: Certificate  # what is promised about the tables
    data: pa.Table  # one line for each released record (or count, or estimate)
    classes: pa.Table | None = None  # one line for each class, in k-anonymous releases
    members: pa.Table | None = None  # one line for each class member, if multisets were released
    rows: Rows | None = None  # where an engine counts the rows of ``data``

    def __post_init__(self) -> None:
        for name, table in self.tables.items():
            object.__setattr__(self, name, portable(table))

    def __repr__(self) -> str:
        stated = self.certificate
        return f"Release({stated.dataset!r}, {stated.guarantee.model}, {stated.basis}, {self.data.num_rows} rows)"

    def __len__(self) -> int:
        return int(self.data.num_rows)

    def to_arrow(self) -> pa.Table:
        """Give the table ``data`` as an Arrow table."""
        return self.data

    @property
    def tables(self) -> dict[str, pa.Table]:
        tables = {name: getattr(self, name) for name in TABLES}
        return {name: table for name, table in tables.items() if table is not None}

    @property
    def kind(self) -> str:
        """What a line of ``data`` is: ``rows`` (a record), ``counts`` (a type of trips), ``estimates`` (a value)."""
        return self.certificate.kind

    @property
    def owner(self) -> Kind:
        """The kind of release, which owns columns, checks and words."""
        kind = kind_of(self.certificate)
        if kind is None:
            raise CheckFailed("certificate.json: this version does not know the kind of release.")
        return kind

    def check_rows(self, verb: str) -> None:
        if self.kind != ROWS:
            raise ParameterError(f"{verb} needs a release of rows. Got a release of {self.kind}.")

    @cached_property
    def universe(self) -> Universe:
        """All types of trips (without zones and modes), or combinations of labels, of a release of counts."""
        if self.kind != COUNTS:
            raise ParameterError(f"only a release of counts has types of trips. Got a release of {self.kind}.")
        attributes = self.certificate.attributes
        if self.certificate.counts_trips:
            return Universe.from_description([item.plain() for item in attributes])
        from dunnage.model.categories import Categories

        return Categories.stated(attributes, self.certificate.guarantee.protects)

    def counted(self) -> tuple[IntArray, IntArray]:
        """Return the listed cells of a release of counts, by their number in the universe, and their counts."""
        universe = self.universe
        codes = {name: _codes(self.data.column(name), universe.labels(name)) for name in universe.cell_columns}
        if strange := [name for name, positions in codes.items() if (positions < 0).any()]:
            raise ReleaseError(f"data: a label of {', '.join(strange)} is not in the public domain.")
        counts: IntArray = self.data.column("count").combine_chunks().to_numpy(zero_copy_only=False)
        return universe.cells_of(codes), counts

    @property
    def attributes(self) -> dict[str, AttributeStatement]:
        return {item.name: item for item in self.certificate.attributes}

    @property
    def bounded(self) -> list[str]:
        """Names of the released numbers with bounds."""
        return [name for name in self.attributes if f"{name}_lower" in self.data.column_names]

    @property
    def quantities(self) -> list[str]:
        """Names of the released numbers with bounds that can be added up: times of day cannot."""
        return [name for name in self.bounded if not self.attributes[name].clock]

    def as_text(self, table: str, part: slice = slice(None)) -> pa.Table:
        """Return a table, or some of its rows, as CSV has it for people: times of day as HH:MM instead of minutes."""
        made: pa.Table = self.tables[table][part]
        endings = {"_lower": np.floor, "_upper": np.ceil, "_mean": np.rint, "": np.rint}
        rounds = {f"{n}{end}": by for n, item in self.attributes.items() if item.clock for end, by in endings.items()}
        for index, item in enumerate(made.schema):
            if item.name in rounds and pa.types.is_floating(item.type):
                minutes = rounds[item.name](floats(made, item.name)).astype(np.int64).tolist()
                made = made.set_column(index, item.name, pa.array(map(clock_text, minutes), pa.string()))
        return made

    def csv_parts(self, table: str) -> Iterator[bytes]:
        """Yield a table as CSV, part by part."""
        for first in range(0, max(1, self.tables[table].num_rows), NUM_BATCH_ROWS):
            sink = io.BytesIO()
            write_csv(self.as_text(table, slice(first, first + NUM_BATCH_ROWS)), sink, header=not first)
            yield sink.getvalue()

    def fold(self, fold: Fold[S]) -> S:
        """Fold the rows of ``data``, where they live."""
        if self.rows is not None:
            return self.rows.fold(fold)
        state, first = fold.start(), 0
        for batch in self.data.select([name for name in fold.columns if name != ROW]).to_batches(NUM_BATCH_ROWS):
            fold.add(state, numbered(batch, np.arange(first, first + len(batch))) if ROW in fold.columns else batch)
            first += len(batch)
        return state

    @property
    def noisy(self) -> bool:
        """Whether rows were released with noise, so that their intervals may miss the true value."""
        return self.kind == ROWS and self.certificate.rows.noisy

    @property
    def class_of_row(self) -> IntArray:
        """Class of each row; a noisy row is its own class, numbered after all others."""
        if "class_id" not in self.data.column_names:
            return np.arange(len(self))
        class_id: IntArray = self.data.column("class_id").combine_chunks().to_numpy(zero_copy_only=False)
        alone = class_id < 0
        return np.where(alone, class_id.max(initial=-1) + np.cumsum(alone), class_id) if alone.any() else class_id

    def uncertain(self, name: str) -> Uncertain:
        """Return what is known about one generalised or perturbed number, a public number, or a product of such."""
        columns = self.data.column_names
        if name not in columns and len(parts := name.split(TIMES)) > 1 and name not in self.bounded:
            factors = [self.uncertain(part) for part in parts]
            low, high = (product(getattr(one, end) for one in factors) for end in ("lower", "upper"))
            units = [one.unit for one in factors]
            unit = f"{units[0]}{len(units)}" if units[0] and len(set(units)) == 1 else TIMES.join(filter(None, units))
            return Uncertain(name, unit, low, high, None, self.class_of_row, None)
        item = self.attributes.get(name)
        if item is not None and item.role == "public" and pa.types.is_primitive(self.data.schema.field(name).type):
            exact = floats(self.data, name)
            return Uncertain(name, item.unit, exact, exact, exact, self.class_of_row, None)
        if name not in self.bounded:
            names = ", ".join(self.bounded) or "none"
            raise ParameterError(f"the release has no quantity {name!r}. It has: {names}.")
        nominal = next((c for c in (f"{name}_mean", name) if c in columns), None)
        scenarios = None
        if self.members is not None:
            starts = np.flatnonzero(np.diff(self.members.column("class_id").to_numpy())) + 1
            scenarios = tuple(np.split(floats(self.members, name), starts))
        return Uncertain(
            name=name,
            unit=self.attributes[name].unit,
            lower=floats(self.data, f"{name}_lower"),
            upper=floats(self.data, f"{name}_upper"),
            nominal=floats(self.data, nominal) if nominal else None,
            class_id=self.class_of_row,
            scenarios=scenarios,
        )

    def columns_of(self, table: str) -> list[dict[str, str]]:
        """Return name, type and description of each column of a table, as a data package has them."""
        return [
            {
                "name": column.name,
                "type": next((name for check, name in _FRICTIONLESS_TYPES if check(column.type)), "string"),
                "description": self.owner.column_words(column.name, self, table),
            }
            for column in self.as_text(table, slice(0, 0)).schema
        ]

    def spread(self, *names: str, width: float | None = None, steps: int = SPREAD_STEPS) -> pa.Table:
        """Count records by some generalised attributes, as far as classes tell.

        Parameters
        ----------
        names
            One to three attributes, such as ``"board", "alight"``.
        width
            The step by which a number is counted, in its unit: 3600 for hours of a start in seconds.
        steps
            Steps of expectation-maximisation, which look for the combinations that fit all classes together; 0 spreads
            each record evenly over the values of its class.

        Returns
        -------
        pyarrow.Table
            One line for each combination that may occur: its values (of a number, where the step begins) and ``count``.
        """
        from dunnage.release.spreading import axis_of, spread_counts

        if not 1 <= len(set(names)) == len(names) <= MAX_SPREAD or steps not in range(MAX_STEPS + 1):
            raise ParameterError(
                f"spread needs one to {MAX_SPREAD} different attributes, and 0 to {MAX_STEPS} steps. Got "
                f"{', '.join(names) or 'none'} and {steps}."
            )
        self.check_rows("spread")
        axes = [axis_of(self, name, width) for name in names]
        counts = spread_counts(self, axes, steps)
        places = np.nonzero(counts)
        cells = {n: [a.cells[p] for p in own.tolist()] for n, a, own in zip(names, axes, places, strict=True)}
        return pa.table({**cells, "count": counts[places]})

    def texts(self, folder: Path) -> dict[str, bytes]:
        """Return the texts for programs and people, by file name; the tables are already in the folder."""
        resources = []
        for name in self.tables:
            resource = {
                "name": name,
                "path": f"{name}.csv",
                "profile": "tabular-data-resource",
                "format": "csv",
                "encoding": "utf-8",
                "hash": f"sha256:{file_digest(folder / f'{name}.csv')}",
                "schema": {"fields": self.columns_of(name)},
            }
            resources.append(resource)
        certificate = self.certificate
        title = certificate.dataset + (f", {certificate.period}" if certificate.period is not None else "")
        schema = {"path": CERTIFICATE_FILE, "schema": CERTIFICATE_SCHEMA, "project": PROJECT, "version": __version__}
        package = {
            "profile": "tabular-data-package",
            "name": "release",
            "title": title,
            "resources": resources,
            "documents": [schema],
        }
        page = certificate_page(certificate, self.owner.loss_words(certificate))
        texts = {DATAPACKAGE_FILE: to_text(package), README_FILE: _readme(self), PAGE_FILE: page}
        texts[VERIFY_FILE] = verify_page(tuple(sorted(RELEASE_FILES)), tuple(sorted({*texts, VERIFY_FILE})), TABLES)
        return {name: text.encode() for name, text in texts.items()}

    def write_files(self, folder: Path, *, sign: str | os.PathLike[str] | None = None) -> Certificate:
        """Write all files into an existing, empty folder and return the finished certificate.

        ``Publication.write`` is the safe way to do this: under a temporary name, after the key.
        """
        for name, table in self.tables.items():
            pq.write_table(table, folder / f"{name}.parquet", compression="none")
            with (folder / f"{name}.csv").open("wb") as stream:
                stream.writelines(self.csv_parts(name))
        for name, content in self.texts(folder).items():
            (folder / name).write_bytes(content)
        certificate = self.certificate.with_files({path.name: file_digest(path) for path in sorted(folder.iterdir())})
        if sign is not None:
            certificate = certificate.signed(sign)
        (folder / CERTIFICATE_FILE).write_bytes(certificate.to_bytes())
        return certificate

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> Release:
        """Read a release folder for planning, after the checks of its shape that ``verify`` begins with."""
        path = Path(folder)
        try:
            certificate = read_certificate(path)
            check_files(path, certificate)
            release = cls(certificate=certificate, **read_tables(path, certificate))
            release.owner.check_columns(release)
        except (CheckFailed, OSError) as error:
            what = str(error).rstrip(".")
            raise ReleaseError(f"{path} is not a usable release: {what}. Run dunnage verify on it.") from None
        return release


def _codes(column: pa.ChunkedArray, labels: tuple[str, ...]) -> IntArray:
    """Return the position of each value among labels; -1 for any other value."""
    encoded = column.combine_chunks().dictionary_encode()
    position = {label: code for code, label in enumerate(labels)}
    codes = np.array([position.get(label, -1) for label in encoded.dictionary.to_pylist()], dtype=np.int64)
    return codes[encoded.indices.to_numpy(zero_copy_only=False)] if len(codes) else codes


def file_digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_certificate(folder: Path) -> Certificate:
    if not folder.is_dir():
        raise ReleaseError(f"{folder} is not a folder, so it is not a release. Give the folder that publish wrote.")
    if not is_plain_file(folder, CERTIFICATE_FILE):
        raise ReleaseError(f"{folder} has no {CERTIFICATE_FILE}, so it is not a release.")
    with (folder / CERTIFICATE_FILE).open("rb") as stream:
        return Certificate.from_bytes(stream.read(MAX_CERTIFICATE_BYTES + 1))


def is_plain_file(folder: Path, name: str) -> bool:
    """Return whether a name is that of a regular file in the folder: no link, no folder, no path out of it."""
    if not name.isprintable() or Path(name).name != name:
        return False
    try:
        return stat.S_ISREG((folder / name).lstat().st_mode)
    except OSError:
        return False


def printable(name: str) -> str:
    """Return a file name for printing; a name with control characters is quoted."""
    return name if name.isprintable() else ascii(name)


def check_files(folder: Path, certificate: Certificate) -> None:
    """Check that the files are those that the certificate lists, unchanged, and no others."""
    listed = certificate.files
    present = {path.name for path in folder.iterdir()} - {CERTIFICATE_FILE}
    problems = [f"{name}: listed in the certificate, but missing" for name in set(listed) - present]
    problems += [f"{name}: not listed in the certificate" for name in present - set(listed)]
    problems += [f"{name}: not a file of a release" for name in (present & set(listed)) - RELEASE_FILES]
    for name in present & set(listed) & RELEASE_FILES:
        if not is_plain_file(folder, name) or file_digest(folder / name) != listed[name]:
            problems.append(f"{name}: does not match its digest, so it was changed or damaged")
    if problems:
        raise CheckFailed("; ".join(printable(problem) for problem in sorted(problems)))


def read_tables(folder: Path, certificate: Certificate) -> dict[str, pa.Table]:
    listed = [name for name in TABLES if f"{name}.parquet" in certificate.files]
    if "data" not in listed:
        raise ReleaseError(f"{folder}: the certificate lists no data.parquet. Request the release again.")
    tables = {}
    try:
        for name in listed:
            # In CSV each cell takes a character and a separator at least, and here few bytes more than its text.
            limit = MIN_TABLE_BYTES + BYTES_PER_CHARACTER * (folder / f"{name}.csv").stat().st_size
            with (folder / f"{name}.parquet").open("rb") as stream:
                tables[name] = Parquet.open(stream, limit).spooled()
    except Oversized:
        raise ReleaseError(f"{folder}: {name}.parquet claims more cells than {name}.csv can have.") from None
    except (pa.ArrowException, OSError, ValueError):  # a name in the footer may not be UTF-8
        raise ReleaseError(f"{folder}: a Parquet table cannot be read. Request the release again.") from None
    return tables


_FRICTIONLESS_TYPES = (
    (pa.types.is_integer, "integer"),
    (pa.types.is_floating, "number"),
    (pa.types.is_decimal, "number"),
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_date, "date"),
    (pa.types.is_timestamp, "datetime"),
)


def _readme(release: Release) -> str:
    certificate, kind = release.certificate, release.owner
    columns = "\n".join(f"- `{name}`: {kind.column_words(name, release)}" for name in release.data.column_names)
    tables = "\n".join(f"- `{name}.parquet`, `{name}.csv`: {kind.table_words[name]}" for name in release.tables)
    words = [*certificate.meaning.sentences, *kind.loss_words(certificate)]
    sentences = "\n".join(f"- {sentence}" for sentence in words)
    clear = "\n".join(f"- {item}" for item in certificate.in_clear)
    proof = ""
    if certificate.proof is not None:
        notes = ", ".join(f"`{note}`" for note in certificate.proof.sections)
        title = "The proof" if certificate.basis is Basis.PROVED else "What holds and what does not"
        proof = f"\n{title}: {notes} in the source of Dunnage {certificate.proof.version}."
    return fill(
        "release",
        dataset=certificate.dataset,
        version=certificate.software.dunnage,
        time=time_text(certificate.time),
        cautions="".join(f"**{text}**\n\n" for text in kind.cautions(release)),
        model=certificate.guarantee.model,
        basis=certificate.basis,
        proof=proof,
        sentences=sentences,
        clear=clear,
        tables=tables,
        rest=kind.readme(release, columns),
    )


def describe_release(release: Release) -> Mapping[str, object]:
    first = ("kind", "dataset", "period", "guarantee", "basis", "proof", "mechanism", "measures")
    stated, keys = release.certificate.plain(), (*first, "in_clear", "meaning", "spend", "time")
    return {**{key: stated[key] for key in keys if key in stated}, "digest": release.certificate.digest}
