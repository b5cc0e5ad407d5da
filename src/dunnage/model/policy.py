# SPDX-License-Identifier: Apache-2.0
"""Policy: what the owner allows, as a TOML file that can be read, written and digested.

A policy is data. It names a mechanism and its parameters; ``publishing`` decides which class that is. Every table of
the file is a model below, and the description of a key says what it must be. All problems of a file are reported at
once. What devices may report is a policy too (``dunnage.collecting.tasks`` has its tables).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, Literal, Self, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    create_model,
    field_validator,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema

from dunnage.errors import ParameterError, PolicyError, Problem, UserError
from dunnage.exact import exact, plain, shown
from dunnage.model.documents import Flaws, Model, problems_of, suggestion, type_name
from dunnage.model.domains import Category, Domain, Graph, Numeric, Ordinal, Stops, Tree, Windows
from dunnage.model.guarantees import Accounting, Budget, Neighbours, SpendPurpose
from dunnage.model.hierarchies import Prefixes
from dunnage.model.periods import LABEL, LENGTHS, MAX_LABEL, DateFormat, dates_of, is_label, length_of
from dunnage.model.schema import (
    CONTRIBUTION_SPANS,
    RESERVED_NAMES,
    Attribute,
    Contribution,
    Missing,
    Outside,
    Role,
    Schema,
    Span,
)
from dunnage.model.trips import Level, Trip
from dunnage.tables.reader import MAX_FILE_BYTES, ReadOptions

if TYPE_CHECKING:
    from dunnage.model.city import City

MAX_POLICY_BYTES = 1 << 20
DEVICE_PREFIX = "local-"  # The names of mechanisms on devices begin with this
ROLE_SYNONYMS = {"identifying": "identifier", "quasi-identifying": "quasi-identifier", "insensitive": "public"}
_ADVISED = ("k", "epsilon")  # Parameters that a draft leaves blank and that dunnage advise chooses
_MAX_DEPTH = 16
V = TypeVar("V")
Document = Mapping[str, Any]  # Plain data as in TOML; the tables below check it


@dataclass(frozen=True, kw_only=True)
class PeriodRule:
    """How a growing dataset is cut into periods; without a column the whole file is one period."""

    length: str
    column: str | None = None
    format: str | None = None  # how dates are written in the column, if not as 2026-11-15

    def __post_init__(self) -> None:
        if self.length not in LENGTHS:
            raise ParameterError(f"a period must be one of {', '.join(LENGTHS)}. Got {self.length!r}.")
        if self.format is not None:
            DateFormat(self.format)
            if self.column is None or self.length == LABEL:
                raise ParameterError("format is for a column with dates. Write column = ..., or leave format out.")

    def check(self, period: str | None) -> None:
        """Refuse a period that is not of this length."""
        wanted = f"the policy releases one {self.length} at a time, such as {LENGTHS[self.length]}"
        if period is None:
            raise ParameterError(f"{wanted}. Give --period.")
        if not is_label(period):
            raise ParameterError(f"{wanted}. Got period {shown(period)}, which is not a name.")
        if (length := length_of(period)) != self.length:
            remedy = f"Write a {self.length}" if self.length != LABEL else "Choose another label"
            like = "" if length == LABEL else f", which looks like a {length}"
            change = f'write length = "{length}" in [period] of the policy'
            raise ParameterError(f"{wanted}. Got period {shown(period)}{like}. {remedy}, or {change}.")
        dates_of(period)  # the calendar must have it


@dataclass(frozen=True, kw_only=True)
class Loading:
    """What lists for the dock show besides identifiers: any columns, because only the owner reads these lists."""

    columns: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Expect:
    """What is publicly expected of the data: the owner's estimate, never counted in the rows."""

    trips: int | None = None  # in one release, over all its dates
    records: int | None = None  # in one release, where records are counted that are not trips
    riders: int | None = None  # who make them
    dates: int | None = None  # how many dates one release covers
    days: Mapping[str, int] | None = None  # of each label of days, if they are counted separately

    def __post_init__(self) -> None:
        named = (("trips", self.trips), ("records", self.records), ("riders", self.riders), ("dates", self.dates))
        for name, value in (*named, *(self.days or {}).items()):
            if value is not None and value < 1:
                raise ParameterError(f"{name} must be at least 1. Got {value}.")

    @property
    def size(self) -> int | None:
        """How many trips, or other records, a release is expected to count."""
        return self.records if self.trips is None else self.trips


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What the owner allows: who is protected, what each column is, which mechanism, which budget.

    Make one with :meth:`read` (a file), :meth:`from_text` (TOML) or :meth:`from_dict` (plain data).
    """

    dataset: str
    schema: Schema
    mechanism: Mapping[str, object]
    small: str = "refuse"
    allow_unbounded: bool = False
    read_options: ReadOptions = field(default_factory=ReadOptions)
    period: PeriodRule | None = None
    budget: Budget | None = None
    expect: Expect = field(default_factory=Expect)
    loading: Loading = field(default_factory=lambda: Loading(columns=()))
    path: Path | None = field(default=None, compare=False)
    document: Document = field(default_factory=dict, repr=False, compare=False)
    files: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    def __repr__(self) -> str:
        return f"Policy({self.dataset!r}, protects {self.schema.protects!r}, {self.mechanism.get('name')})"

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Policy:
        written = Written.read(path)
        return cls.from_dict(written.document, path=written.path)

    @classmethod
    def from_text(cls, text: str, *, path: Path | None = None) -> Policy:
        """Read a policy from TOML text; the files that it names are relative to ``path``."""
        return cls.from_dict(Written.from_text(text, path).document, path=path)

    @classmethod
    def from_dict(cls, document: Document, *, path: Path | None = None) -> Policy:
        document = checked_copy(document, path)
        if is_for_devices(document):
            what = f"this policy is for devices. Use dunnage device task {path or 'POLICY'} -o TASK"
            raise PolicyError(str(path or "policy"), [what])
        reading = PolicyReading(document=document, base=path.parent if path else Path())
        tables, problems = read_tables(PolicyTables, reading)
        schema = reading.schema
        dated = reading.table("period").get("length", LABEL) != LABEL  # the period says which dates it has
        if schema is not None and schema.trip is not None and not dated and schema.time.dates is None:
            time = f"attributes.{schema.trip.time}"
            remedy = f'Write dates = ["2026-11-01", "2026-11-30"] in [{time}], or add [period].'
            if schema.time.day == "date":
                problems.append(Problem("needs the possible dates", where=f"{time}.day", remedy=remedy))
            if schema.contribution is not None and schema.contribution.per == "day":
                what = "= day needs the number of days, to state how much one rider can change in total"
                problems.append(Problem(what, where="contribution.per", remedy=remedy))
        if schema is not None and tables is not None and not problems:
            expect = tables.expect.made
            if schema.trip is not None and expect.records is not None:
                what = "is for a policy without [trip]"
                problems.append(Problem(what, where="expect.records", remedy="Write trips = ... instead."))
            try:
                schema = replace(schema, dates=expect.dates if expect.days is None else expect.days)
                if schema.trip is not None and tables.period is None:
                    schema.num_dates()
            except ParameterError as error:
                problems.append(Problem(str(error), where="expect.dates" if expect.days is None else "expect.days"))
        if problems or tables is None or schema is None:
            raise PolicyError(str(path or "policy"), problems)
        return cls(
            dataset=tables.dataset,
            schema=schema,
            mechanism=tables.mechanism,
            small=tables.small,
            allow_unbounded=tables.allow_unbounded,
            read_options=tables.read.made,
            period=tables.period.made if tables.period else None,
            budget=tables.budget.made if tables.budget else None,
            expect=tables.expect.made,
            loading=tables.loading.made,
            path=path,
            document=document,
            files=reading.files,
        )

    def to_toml(self) -> str:
        import tomli_w

        return tomli_w.dumps(dict(self.document))

    @property
    def listed_columns(self) -> list[str]:
        """The columns that lists for the owner show: identifiers, then those of ``[loading]``."""
        return list(dict.fromkeys([*(item.name for item in self.schema.identifiers), *self.loading.columns]))

    def digest(self) -> str:
        """Return the SHA-256 of the policy without comments, and of the files that it names.

        ``[loading]`` does not count: it changes nothing that is released.
        """
        document = {name: table for name, table in self.document.items() if name != "loading"}
        return digest_of({"document": canonical(document), "files": dict(self.files)})

    def schema_digest(self) -> str:
        """Return the SHA-256 of the columns and rules as they are understood: defaults written down change nothing."""
        schema = self.schema
        bound = schema.contribution
        parts: tuple[object, ...] = (schema.protects, schema.together, schema.person, schema.trip, bound, schema.dates)
        if bound is not None and (bound.total_max, bound.per_cell) != (None, None):  # earlier digests stay the same
            parts += (bound.total_max, bound.per_cell)
        columns = [{**column.describe(), "cells": repr(column.cells)} for column in schema]
        return digest_of({"columns": columns, "rules": repr((parts, self.small)), "files": dict(self.files)})

    def purpose(self, period: str | None = None) -> SpendPurpose:
        return SpendPurpose(
            dataset=self.dataset,
            period=period,
            policy_digest=self.digest(),
            schema_digest=self.schema_digest(),
            budget=self.budget,
            allow_unbounded=self.allow_unbounded,
        )


def is_for_devices(document: Document) -> bool:
    tables = document.get("mechanisms")
    # [mechanisms] with a name and parameters is a misspelt [mechanism].
    return isinstance(tables, Mapping) and bool(tables) and all(isinstance(item, Mapping) for item in tables.values())


# Text and plain data


@dataclass(frozen=True, kw_only=True)
class Written:
    """A policy as it was written, with or without a mechanism, not yet checked."""

    text: str = field(repr=False)
    document: Document = field(repr=False)  # The text as plain data with exact decimals
    path: Path | None = None  # Its file; the files that it names are relative to it

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        try:
            file = Path(path)
            with file.open("rb") as stream:
                content = stream.read(MAX_POLICY_BYTES + 1)
        except OSError as error:
            raise PolicyError(str(path), [f"cannot be read: {error.strerror}. Check the path."]) from None
        except (TypeError, ValueError):
            raise ParameterError(
                "policy must be a Policy, such as dn.Policy.from_dict(DICTIONARY), or the path of one. "
                f"Got a {type(path).__name__}."
            ) from None
        if len(content) > MAX_POLICY_BYTES:
            raise PolicyError(str(file), ["is larger than 1 MiB. Check the path: a policy is a short text file."])
        try:
            return cls.from_text(content.decode("utf-8-sig"), file)
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            raise PolicyError(str(file), [f"is not UTF-8 text (line {line}). Save it as UTF-8."]) from None

    @classmethod
    def from_text(cls, text: str, path: Path | None = None) -> Self:
        try:
            return cls(text=text, document=tomllib.loads(text, parse_float=Decimal), path=path)
        except (ValueError, ArithmeticError) as error:
            # The parser also raises errors of its own for numbers that are too long.
            what = str(error) if isinstance(error, tomllib.TOMLDecodeError) else "a number is too long"
            raise PolicyError(str(path or "policy"), [f"is not valid TOML: {what}. Fix that line."]) from None
        except RecursionError:
            raise PolicyError(str(path or "policy"), ["is nested too deeply. Use fewer levels."]) from None


def checked_copy(document: Document, path: Path | None) -> dict[str, object]:
    """Copy a document of plain data that TOML allows, with numbers as exact decimals."""
    problems: list[Problem] = []

    def copied(value: object, where: str = "", depth: int = 0) -> Any:
        if depth > _MAX_DEPTH:
            problems.append(Problem("is nested too deeply", where=where, remedy="Use fewer levels."))
        elif isinstance(value, Mapping):
            places = {str(key): f"{where}.{key}" if where and str(key) else where or str(key) for key in value}
            return {str(key): copied(item, places[str(key)], depth + 1) for key, item in value.items()}
        elif isinstance(value, list | tuple):
            return [copied(item, where, depth + 1) for item in value]
        elif isinstance(value, bool | str):
            return value
        elif isinstance(value, Decimal | Real):
            try:
                written = plain(exact(value))  # type: ignore[arg-type]
            except ParameterError as error:
                problems.append(Problem(str(error), where=where))
                return None
            if isinstance(value, Integral | Decimal):
                return int(value) if isinstance(value, Integral) else value
            return written if isinstance(written, str) else Decimal(repr(written))
        else:
            remedy = "Use text, numbers, true, false, lists and tables; put dates and times in quotes."
            problems.append(Problem(f"cannot be of type {type(value).__name__}", where=where, remedy=remedy))
        return None

    if not isinstance(document, Mapping):
        problems.append(Problem(f"must be a table; got {type(document).__name__}"))
    copy: dict[str, object] = copied(document) if not problems else {}
    if problems:  # only once each: all items of a list have the same place
        raise PolicyError(str(path or "policy"), list(dict.fromkeys(problems)))
    return copy


def canonical(value: Any) -> Any:
    """Return plain data in which equal numbers are written in the same way."""
    if isinstance(value, Mapping):
        return {key: canonical(item) for key, item in value.items()}
    if isinstance(value, list):
        return [canonical(item) for item in value]
    return plain(exact(value)) if isinstance(value, Decimal) else value


def digest_of(content: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


# Tables


@dataclass(kw_only=True)
class PolicyReading:
    """The state of reading one policy: the context of its validators."""

    document: Document
    base: Path = Path()  # Folder of the files that the policy names
    files: dict[str, str] = field(default_factory=dict)  # Their digests
    city: City | None = None
    schema: Schema | None = None
    column: str = ""  # Name of the current column

    def table(self, name: str) -> Document:
        table = self.document.get(name)
        return table if isinstance(table, Mapping) else {}

    def file(self, name: str, max_bytes: int = MAX_FILE_BYTES) -> Path:
        """Return a file that the policy names and remember its digest."""
        path = self.base / name
        if not path.is_file():
            what = "is not a file" if path.exists() else "does not exist"
            raise ParameterError(f"{path} {what}. Paths are relative to the policy file.")
        try:
            with path.open("rb") as stream:
                content = stream.read(max_bytes + 1)
        except OSError as error:
            raise ParameterError(f"{path} cannot be read: {error.strerror}. Check its permissions.") from None
        self.files[name] = hashlib.sha256(content).hexdigest()  # its reader refuses a longer file
        return path


Info = ValidationInfo[PolicyReading]


class Table(Model):
    """A table of a policy, which refuses the blanks of a draft."""

    @field_validator("*", mode="before")
    @classmethod
    def _filled_in(cls, value: object, info: Info) -> object:
        declared = cls.model_fields[info.field_name or ""]
        if declared.exclude:  # see refused()
            raise Flaws(Problem(declared.title or "", remedy=declared.description or ""))
        if isinstance(value, str | list) and not value and declared.annotation is not object:
            raise Flaws(Problem("is blank", remedy="Fill in {says}."))
        return value


def key(says: str, default: Any = ...) -> Any:
    return Field(default, description=says)


def refused(what: str, remedy: str) -> Any:
    return Field(default=None, exclude=True, title=what, description=remedy)


T = TypeVar("T", bound=Table)


class MadeTable(Table, Generic[V]):
    """A table that makes one value; an error of the value is a problem of the table."""

    of: ClassVar[Callable[..., Any]]

    @cached_property
    def made(self) -> V:
        made: V = type(self).of(**dict(self))
        return made

    @model_validator(mode="after")
    def _can_be_made(self) -> Self:
        with problems_of_table():
            _ = self.made
        return self


def read_tables(model: type[T], reading: PolicyReading) -> tuple[T | None, list[Problem]]:
    try:
        return model.model_validate(reading.document, context=reading), []
    except ValidationError as error:
        return None, list(problems_of(error, model, public=True))


@contextmanager
def problems_of_table() -> Iterator[None]:
    try:
        yield
    except Flaws:
        raise
    except UserError as error:
        raise Flaws(Problem(str(error))) from None


def number_of(value: object, says: str = "{says}") -> Fraction:
    if isinstance(value, bool) or not isinstance(value, int | Decimal | str):
        raise Flaws(Problem(f"must be {says}; got {type_name(value)}", remedy="Fix the value."))
    if isinstance(value, str) and not re.fullmatch(r"-?\d{1,700}/[1-9]\d{0,699}", value, re.ASCII):
        raise Flaws(Problem(f"must be {says}; got text", remedy="Write it like 500 or 0.1, without quotes."))
    return exact(value)


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise Flaws(Problem(f"must be {{says}}; got {type_name(value)}", remedy="Fix the value."))
    if not all(isinstance(item, str) for item in value):
        raise Flaws(Problem("must be {says}", remedy="Put each value in quotes."))
    return tuple(value)


def numbers_of(value: object, num: int, says: str) -> tuple[Fraction, ...]:
    if not isinstance(value, list):
        raise Flaws(Problem(f"must be {{says}}; got {type_name(value)}", remedy="Fix the value."))
    try:
        numbers = tuple(number_of(item) for item in value)
    except Flaws:
        numbers = ()
    if len(numbers) != num:
        raise Flaws(Problem(f"must be {says}", remedy="Fix the value."))
    return numbers


def _bounds(value: object) -> tuple[Fraction, ...]:
    return numbers_of(value, 2, "two numbers [lowest, highest]")


def role_of(value: object) -> object:
    """Translate the role names of ARX."""
    return ROLE_SYNONYMS.get(value, value) if isinstance(value, str) else value


Number = Annotated[Fraction, BeforeValidator(lambda value: number_of(value))]
Texts = Annotated[tuple[str, ...], BeforeValidator(_texts)]
AnyRole = Annotated[
    Role, Field(strict=False), BeforeValidator(role_of), WithJsonSchema({"enum": [*map(str, Role), *ROLE_SYNONYMS]})
]


# Columns


class DeclaredColumn(Table):
    role: AnyRole
    missing: Missing = "refuse"
    outside: Outside = "refuse"
    unreadable: Missing = "refuse"

    def domain_in(self, reading: PolicyReading) -> Domain | None:
        return None

    def cells(self) -> Prefixes | Windows | None:
        """Return how cells become values of the domain, if they are written differently."""
        return None


class NumericColumn(DeclaredColumn):
    kind: Literal["numeric"]
    domain: Annotated[tuple[Fraction, ...], BeforeValidator(_bounds)] | None = key(
        "[lowest, highest], public bounds", None
    )
    resolution: Number | None = key("the step of the public grid", None)
    unit: str = key('a unit such as "kg"', "")
    doubling: Number | None = key("the width of the narrowest intervals in its hierarchy", None)

    @model_validator(mode="before")
    @classmethod
    def _without_blank(cls, data: dict[str, object]) -> dict[str, object]:
        """Ignore a domain that a draft left blank, unless the column is a quasi-identifier, which needs one."""
        if data.get("domain") == [] and role_of(data.get("role")) not in ("", Role.QUASI_IDENTIFIER):
            return {key: value for key, value in data.items() if key != "domain"}
        return data

    def domain_in(self, reading: PolicyReading) -> Domain | None:
        if self.domain is None:
            return None
        lower, upper = self.domain
        return Numeric(lower=lower, upper=upper, resolution=self.resolution, unit=self.unit, doubling=self.doubling)


class OrdinalColumn(DeclaredColumn):
    kind: Literal["ordinal"]
    domain: Texts = key('a list of texts ["a", "b"]')

    def domain_in(self, reading: PolicyReading) -> Domain:
        return Ordinal(levels=self.domain)


class CategoryColumn(DeclaredColumn):
    kind: Literal["category"]
    domain: Texts | None = key('a list of texts ["a", "b"]', None)

    def domain_in(self, reading: PolicyReading) -> Domain | None:
        return Category(values=self.domain) if self.domain is not None else None


class TreeColumn(DeclaredColumn):
    kind: Literal["tree"]
    hierarchy: str | None = key('"hierarchy.csv" or another file with one row for each leaf', None)
    parents: dict[str, Any] | None = key("a table child = parent", None)

    def domain_in(self, reading: PolicyReading) -> Domain:
        if (self.hierarchy is None) == (not self.parents):
            remedy = 'A tree needs either hierarchy = "file.csv" or a table parents.'
            what = "and parents are both given" if self.parents else "is missing"
            raise Flaws(Problem(what, where="hierarchy", remedy=remedy))
        if self.hierarchy is None:
            return Tree(parents=self.parents or {})
        return Tree.from_csv(reading.file(self.hierarchy), column=reading.column)


class PrefixColumn(DeclaredColumn):
    """Codes such as postcodes, shortened to their first characters; the values are the leaves of a tree."""

    kind: Literal["prefix"]
    length: int = key("the number of characters of a full code, such as 5")
    prefix: list[int] = key("[3, 2] or other numbers of first characters that remain, level by level")
    domain: Texts | None = key('a list of all full codes ["80331", "80333"], if not all numbers are possible', None)

    def domain_in(self, reading: PolicyReading) -> Domain:
        return self.cells().tree()

    def cells(self) -> Prefixes:
        return Prefixes(length=self.length, kept=tuple(self.prefix), codes=self.domain)


class ClockColumn(DeclaredColumn):
    """Times of day, HH:MM; the values are minutes of the service day."""

    kind: Literal["clock"]
    domain: Texts = key('["04:00", "28:00"] or another service day')
    resolution: Number = key("the step of the public grid in minutes", Fraction(1))
    doubling: Number | None = key("the width of the narrowest intervals in its hierarchy, in minutes", None)
    zone: str | None = key('the time zone, such as "America/Detroit"', None)

    def domain_in(self, reading: PolicyReading) -> Domain:
        day = self.cells()
        ends = {"lower": day.lower_seconds // 60, "upper": day.upper_seconds // 60}
        return Numeric(**ends, resolution=self.resolution, doubling=self.doubling, unit="min", clock=True)

    def cells(self) -> Windows:
        if len(self.domain) != 2:
            raise ParameterError(f'domain must be two times, such as ["04:00", "28:00"]. Got {len(self.domain)}.')
        return Windows(lower=self.domain[0], upper=self.domain[1], window_minutes=1, zone=self.zone)


class GraphColumn(DeclaredColumn):
    kind: Literal["graph"]
    edges: str = key('"edges.csv" or another file with columns from,to[,length]')
    directed: bool = key("true or false", False)

    def domain_in(self, reading: PolicyReading) -> Domain:
        if self.edges.lower().endswith(".zip"):
            remedy = f"Make one from the feed: dunnage generate network {self.edges} -o edges.csv."
            raise Flaws(Problem("must be an edge list", where="edges", remedy=remedy))
        return Graph.from_csv(reading.file(self.edges), directed=self.directed)


class StopColumn(DeclaredColumn):
    kind: Literal["stop"]

    def domain_in(self, reading: PolicyReading) -> Domain | None:
        if "city" not in reading.document:
            what = "is stop, but the policy names no stops"
            raise Flaws(Problem(what, where="kind", remedy='Write [city] stops = "stops.csv".'))
        return Stops(stops=reading.city.stops) if reading.city is not None else None


class TimeColumn(DeclaredColumn):
    kind: Literal["time"]
    domain: Texts = key('["04:00", "28:00"] or another service day')
    window_minutes: int = key("a whole number of minutes, such as 30")
    zone: str | None = key('the time zone, such as "America/Detroit"', None)
    day: str | None = key('"date", "weekday" or "day-type"', None)
    dates: Texts | None = key("the first and the last service date, in quotes", None)
    holidays: Texts = key("a list of dates, in quotes", ())
    format: str | None = key('how dates are written, such as "day.month.year"', None)

    def domain_in(self, reading: PolicyReading) -> Domain:
        if len(self.domain) != 2:
            raise ParameterError(f'domain must be two times, such as ["04:00", "28:00"]. Got {len(self.domain)}.')
        return Windows(
            lower=self.domain[0],
            upper=self.domain[1],
            window_minutes=self.window_minutes,
            zone=self.zone,
            day=self.day,
            dates=self.dates,
            holidays=self.holidays,
        )


_Kind = Literal["numeric", "ordinal", "category", "tree", "prefix", "clock", "graph", "stop", "time"]


class _Unkinded(DeclaredColumn):
    """A column without a kind, or with an unknown one: keys that need a kind are not reported as unknown."""

    kind: Annotated[_Kind | None, WithJsonSchema({"type": "null"})] = None

    def domain_in(self, reading: PolicyReading) -> None:
        if given := sorted(self.model_fields_set - _Unkinded.model_fields.keys()):
            what = f"is missing, and {', '.join(given)} needs it"
            raise Flaws(Problem(what, where="kind", remedy='Write, for example, kind = "numeric".'))


_OTHER_KEYS: Any = {
    key: (SkipJsonSchema[object], None)
    for made in DeclaredColumn.__subclasses__()
    for key in made.model_fields.keys() - _Unkinded.model_fields.keys()
}
UnkindedColumn = create_model("UnkindedColumn", __base__=_Unkinded, **_OTHER_KEYS)


def _kind_of(data: object) -> str:
    kind = data.get("kind") if isinstance(data, Mapping) else None
    return kind if isinstance(kind, str) and kind in get_args(_Kind) else "UnkindedColumn"


def note_name(name: str, info: Info) -> str:
    info.context.column = name
    return name


def _attribute(column: DeclaredColumn, info: Info) -> Attribute | None:
    """Make an attribute; None if its stops are unknown because of a problem with the city, which is reported."""
    reading = info.context
    with problems_of_table():
        domain, kind = column.domain_in(reading), getattr(column, "kind", None)
        cells = column.cells()
        if cells is not None and domain is not None:  # the kind is only another way to write values of this one
            kind = domain.kind
        if kind == Stops.kind and domain is None:
            return None
        return Attribute(
            name=reading.column,
            role=column.role,
            kind=kind,
            domain=domain,
            missing=column.missing,
            outside=column.outside,
            unreadable=column.unreadable,
            counts=reading.column == reading.table("trip").get("count"),
            format=getattr(column, "format", None),
            cells=cells,
        )


AnyColumn = Annotated[
    Annotated[NumericColumn, Tag("numeric")]
    | Annotated[OrdinalColumn, Tag("ordinal")]
    | Annotated[CategoryColumn, Tag("category")]
    | Annotated[TreeColumn, Tag("tree")]
    | Annotated[PrefixColumn, Tag("prefix")]
    | Annotated[ClockColumn, Tag("clock")]
    | Annotated[GraphColumn, Tag("graph")]
    | Annotated[StopColumn, Tag("stop")]
    | Annotated[TimeColumn, Tag("time")]
    | Annotated[UnkindedColumn, Tag("UnkindedColumn")],
    Discriminator(_kind_of),
    AfterValidator(_attribute),
]


# Other tables


class ContributionTable(MadeTable[Contribution | None]):
    """Which identifier names persons, and how many trips of a rider are counted if that is bounded."""

    person: str = key('"card" or another identifier of a person')
    max: int | None = key("a whole number of trips, such as 3", None)
    per: Span | None = None
    total_max: int | None = key("a whole number of trips, several times max", None)
    per_cell: int | None = key("a whole number of trips, such as 1", None)

    @cached_property
    def made(self) -> Contribution | None:
        if all(bound is None for bound in (self.max, self.per, self.total_max, self.per_cell)):
            return None
        if self.max is None:
            raise Flaws(Problem("is missing", where="max", remedy="Write max = a whole number of trips, such as 3."))
        if self.per is None:
            raise Flaws(Problem("is missing", where="per", remedy=f"Write per = {' | '.join(CONTRIBUTION_SPANS)}."))
        more = {"total_max": self.total_max, "per_cell": self.per_cell}
        return Contribution(person=self.person, max=self.max, per=self.per, **more)


def _in_stops(column: str) -> Any:
    return refused("is not a key this version knows", f"Put it into a column {column} of the stops file.")


class CityTable(Table):
    stops: str = key('"stops.csv" or another list of all stops')
    modes: str | None = key('"modes.csv" or another file with columns origin,destination,mode', None)
    zones: SkipJsonSchema[None] = _in_stops("zone")
    zone: SkipJsonSchema[None] = _in_stops("zone")
    hubs: SkipJsonSchema[None] = _in_stops("hub")
    hub: SkipJsonSchema[None] = _in_stops("hub")
    lat: SkipJsonSchema[None] = _in_stops("lat")
    lon: SkipJsonSchema[None] = _in_stops("lon")

    @model_validator(mode="after")
    def _read(self, info: Info) -> Self:
        from dunnage.model.city import MAX_PAIRS_BYTES, City  # rows do not need it

        reading = info.context
        with problems_of_table():
            modes = None if self.modes is None else reading.file(self.modes, MAX_PAIRS_BYTES)
            reading.city = City.read(reading.file(self.stops), modes)
        return self


class TripTable(MadeTable[Trip]):
    of = Trip
    origin: str = key('"board_stop" or another column with the start')
    destination: str | None = key('"alight_stop" or another column with the end; left out for boardings', None)
    time: str = key('"tap_in" or another column with the start time')
    count: str | None = key('"trips" or another column with the number of trips of a row', None)
    day: str | None = key('"day" or another column with the label of the day', None)
    level: Level = "stop"


class ReadTable(MadeTable[ReadOptions]):
    of = ReadOptions
    null: Texts | None = key('a list of words ["NA", "-"]', None)
    delimiter: str = key("one character", ",")
    decimal: str = key('"." or ","', ".")
    encoding: str = key('"utf-8"', "utf-8")
    sheet: str | None = key('"Parcels" or another sheet of a workbook', None)


class PeriodTable(MadeTable[PeriodRule]):
    of = PeriodRule
    length: Literal["day", "week", "month", "label"]
    column: str | None = key('"day" or another column with the date or label', None)
    format: str | None = key('how dates are written, such as "day.month.year"', None)


class BudgetTable(MadeTable[Budget]):
    of = Budget
    epsilon: Number = key("a positive number")
    delta: Number = key("a small probability", Fraction(0))
    neighbours: Annotated[Neighbours, Field(strict=False)]
    accounting: Annotated[Accounting, Field(strict=False)] = Accounting.SUM


class ExpectTable(MadeTable[Expect]):
    of = Expect
    trips: int | None = key("a whole number of trips that you expect in one release, such as 30000", None)
    records: int | None = key("a whole number of records that you expect in one release, such as 5000", None)
    riders: int | None = key("a whole number of riders who make them, such as 8000", None)
    dates: int | None = key("a whole number of dates that one release covers, such as 5", None)
    days: dict[str, int] | None = key("a table with the number of dates of each label, such as weekday = 20", None)


class LoadingTable(MadeTable[Loading]):
    of = Loading
    columns: Texts = key('a list of columns for the dock, such as ["address", "door"]', ())


def _mechanism(table: dict[str, object]) -> dict[str, object]:
    """Check what all mechanisms need; they check their own parameters."""
    name, says = table.get("name"), '"partition" or another mechanism'
    problems = []
    if name is None:
        problems.append(Problem("is missing", where="name", remedy=f"Write name = {says}."))
    elif name in ("", []):
        problems.append(Problem("is blank", where="name", remedy=f"Fill in {says}."))
    elif not isinstance(name, str):
        problems.append(Problem(f"must be {says}; got {type_name(name)}", where="name", remedy="Fix the value."))
    elif name.startswith(DEVICE_PREFIX):
        remedy = "Put its parameters into a table [mechanisms.NAME], and use dunnage device task."
        problems.append(Problem(f"{name!r} is for devices", where="name", remedy=remedy))
    for key, value in table.items():
        if key != "name" and isinstance(value, str | list) and not value:
            remedy = "let dunnage advise choose" if key in _ADVISED else "delete the line"
            problems.append(Problem("is blank", where=key, remedy=f"Fill it in, or {remedy}."))
    if problems:
        raise Flaws(*problems)
    return table


def _printable(name: str) -> str:
    if not is_label(name):
        raise Flaws(Problem(f"is blank, unprintable or longer than {MAX_LABEL} characters", remedy="Write a name."))
    return name


class PolicyTables(Table):
    dataset: Annotated[str, AfterValidator(_printable)] = key('"parcels" or another name for the ledger')
    small: Literal["refuse", "suppress"] = "refuse"
    allow_unbounded: bool = key("true or false", False)
    protects: str = key('"package" or another name for one record')
    together: str | None = key('"consignment" or another column that rows travelling together share', None)
    contribution: ContributionTable | None = key("a table [contribution]", None)
    city: CityTable | None = key("a table [city]", None)
    trip: TripTable | None = key("a table [trip]", None)
    attributes: dict[Annotated[str, AfterValidator(note_name)], AnyColumn] = key(
        "tables [attributes.NAME], one for each column"
    )
    mechanism: Annotated[dict[str, object], AfterValidator(_mechanism)] = key(
        "a table [mechanism] with its name and parameters"
    )
    read: ReadTable = key("a table [read]", ReadTable())
    period: PeriodTable | None = key("a table [period]", None)
    budget: BudgetTable | None = key("a table [budget]", None)
    expect: ExpectTable = key("a table [expect]", ExpectTable())
    loading: LoadingTable = key("a table [loading]", LoadingTable())

    @field_validator("attributes")
    @classmethod
    def _make_schema(cls, made: Any, info: Info) -> Any:
        """Make the schema, unless its parts already have problems."""
        reading = info.context
        attributes: tuple[Attribute | None, ...] = tuple(made.values())
        parts = info.data
        unbounded = "contribution" not in parts  # there is a bound, and its problem is reported
        if "protects" not in parts or "trip" not in parts or None in attributes:
            return made
        contribution: ContributionTable | None = parts.get("contribution")
        trip: TripTable | None = parts["trip"]
        try:
            reading.schema = Schema(
                attributes=attributes,  # type: ignore[arg-type]
                protects=parts["protects"],
                together=parts.get("together"),
                person=contribution.person if contribution else None,
                trip=trip.made if trip else None,
                city=reading.city,
                contribution=contribution.made if contribution else None,
            )
        except ParameterError as error:
            problems = [problem for problem in error.problems if not (unbounded and problem.where == "contribution")]
            raise Flaws(*problems, beside=True) from None
        if unbounded:
            reading.schema = None
        return made

    @field_validator("period")
    @classmethod
    def _is_declared(cls, period: PeriodTable | None, info: Info) -> PeriodTable | None:
        schema = info.context.schema
        if period and period.column and schema and period.column not in [a.name for a in schema]:
            what = f"{period.column!r} is not a declared attribute"
            raise Flaws(Problem(what, where="column", remedy='Declare it, for example with role = "drop".'))
        if period and schema and schema.trip is not None and period.column == schema.trip.time:
            place = f"[attributes.{period.column}]"
            if period.format is not None:
                what = f"belongs to the column {period.column!r}, which has the times of trips"
                raise Flaws(Problem(what, where="format", remedy=f"Write it in {place}."))
            if period.length == LABEL:
                what = f"is label, but {period.column!r} has times"
                raise Flaws(Problem(what, where="length", remedy="Use day, week or month, or leave column out."))
        return period

    @field_validator("loading")
    @classmethod
    def _are_declared(cls, loading: LoadingTable, info: Info) -> LoadingTable:
        schema = info.context.schema
        names = [] if schema is None else [a.name for a in schema]
        if reserved := [name for name in loading.columns if name in RESERVED_NAMES]:
            what, remedy = f"{reserved[0]!r} is a column of the loading list itself", "Rename it in data and policy."
            raise Flaws(Problem(what, where="columns", remedy=remedy))
        if unknown := [name for name in loading.columns if schema is not None and name not in names]:
            what = f"{unknown[0]!r} is not a declared attribute"
            raise Flaws(Problem(what, where="columns", remedy=suggestion(unknown[0], names)))
        return loading
