# SPDX-License-Identifier: Apache-2.0
"""Policy: what the owner allows, as a TOML file that can be read, written and digested.

A policy is data. It names a mechanism and its parameters; which class that is, is decided in
``publishing``. All problems of a file are reported at once.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import string
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from functools import partial
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from dunnage.domains import MOST_FILE_BYTES, Category, Domain, Graph, Numeric, Ordinal, Tree
from dunnage.errors import ParameterError, PolicyError, Problem, UserError
from dunnage.exact import exact, plain, shown
from dunnage.guarantees import Budget, Neighbours, Purpose
from dunnage.schema import MISSING_RULES, OUTSIDE_RULES, Attribute, Role, Schema

MOST_POLICY_BYTES = 1 << 20
ROLE_SYNONYMS = {"identifying": "identifier", "quasi-identifying": "quasi-identifier", "insensitive": "public"}
PERIOD_FORMATS = {"day": "%Y-%m-%d", "month": "%Y-%m"}
_DELIMITERS = frozenset(string.punctuation + " \t") - {'"'}
_DEEPEST = 16
_MISSING: Any = object()


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """How a CSV file is written: delimiter, decimal mark, encoding, and the words that mean "missing"."""

    delimiter: str = ","
    decimal: str = "."
    encoding: str = "utf-8"
    null: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.delimiter not in _DELIMITERS:
            raise ParameterError(
                f'delimiter must be a tab, a space or one mark. Got {self.delimiter!r}. Use "," or ";", say.'
            )
        if self.decimal not in (".", ",") or self.decimal == self.delimiter:
            raise ParameterError(
                f'decimal must be "." or "," and differ from the delimiter. Got {self.decimal!r}. '
                'Use decimal = "," with delimiter = ";".'
            )
        try:
            ",".encode(self.encoding)
        except (LookupError, ValueError):
            raise ParameterError(f'unknown encoding {self.encoding!r}. Use "utf-8" or "latin-1", say.') from None


@dataclass(frozen=True, kw_only=True)
class PeriodRule:
    """How a dataset that grows is cut into periods; without a column the whole file is one period."""

    length: str
    column: str | None = None

    def __post_init__(self) -> None:
        if self.length not in PERIOD_FORMATS:
            raise ParameterError(f"a period is one of {', '.join(PERIOD_FORMATS)}. Got {self.length!r}.")


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What the owner allows: who is protected, what each column is, which mechanism, which budget.

    Make one with :meth:`read` (a file), :meth:`from_text` (TOML) or :meth:`from_dict` (plain data).
    """

    dataset: str
    schema: Schema
    mechanism: Mapping[str, Any]
    small: str = "refuse"
    allow_unbounded: bool = False
    read_options: ReadOptions = ReadOptions()
    period: PeriodRule | None = None
    budget: Budget | None = None
    path: Path | None = field(default=None, compare=False)
    document: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    files: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Policy:
        """Read a policy file.

        Raises
        ------
        PolicyError
            With all problems found, if it is not a usable policy.
        """
        try:
            file = Path(path)
            with file.open("rb") as stream:
                content = stream.read(MOST_POLICY_BYTES + 1)
        except OSError as error:
            raise PolicyError(str(path), [f"cannot be read: {error.strerror}. Check the path."]) from None
        except (TypeError, ValueError):
            raise ParameterError(
                f"policy must be a Policy or the path of one. Got {shown(path)}. Give a path."
            ) from None
        return cls.from_text(_decoded(content, file), path=file)

    @classmethod
    def from_text(cls, text: str, *, path: Path | None = None) -> Policy:
        """Read a policy from TOML text; files it names are relative to ``path``."""
        try:
            document = tomllib.loads(text, parse_float=Decimal)
        except (ValueError, ArithmeticError) as error:
            # Besides its own error, the parser lets out those of numbers that are too long.
            what = str(error) if isinstance(error, tomllib.TOMLDecodeError) else "a number is too long"
            raise PolicyError(str(path or "policy"), [f"is not valid TOML: {what}. Mend that line."]) from None
        except RecursionError:
            raise PolicyError(str(path or "policy"), ["is nested too deeply. Write it flat."]) from None
        return cls.from_dict(document, path=path)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], *, path: Path | None = None) -> Policy:
        """Read a policy from plain data, in the shape of the TOML file."""
        problems: list[Problem] = []
        copy = _plain_data(document, "", problems) if isinstance(document, Mapping) else {}
        if not isinstance(document, Mapping):
            problems.append(Problem(f"must be a table; got {type(document).__name__}", remedy="Give a mapping."))
        if problems:
            raise PolicyError(str(path or "policy"), problems)
        return _read_policy(copy, path)

    def to_toml(self) -> str:
        """Write the policy as TOML text."""
        import tomli_w

        return tomli_w.dumps(dict(self.document))

    def digest(self) -> str:
        """Return the SHA-256 of what the policy says, and of the files it names; comments do not count."""
        content = {"document": _canonical(self.document), "files": dict(self.files)}
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def purpose(self, period: str | None = None) -> Purpose:
        """Say what a spend under this policy is for."""
        return Purpose(
            dataset=self.dataset,
            period=period,
            policy_digest=self.digest(),
            budget=self.budget,
            allow_unbounded=self.allow_unbounded,
        )


def _decoded(content: bytes, file: Path) -> str:
    if len(content) > MOST_POLICY_BYTES:
        raise PolicyError(str(file), ["is larger than 1 MiB. A policy is a short text file."])
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise PolicyError(str(file), [f"is not UTF-8 text (line {line}). Save it as UTF-8."]) from None


def _plain_data(value: Any, where: str, problems: list[Problem], depth: int = 0) -> Any:
    """Copy plain data as TOML can hold it, numbers as exact decimals; note what it cannot hold."""
    if depth > _DEEPEST:
        problems.append(Problem("is nested too deeply", where=where, remedy="Write it flat."))
    elif isinstance(value, Mapping):
        return {str(key): _plain_data(item, _at(where, str(key)), problems, depth + 1) for key, item in value.items()}
    elif isinstance(value, list | tuple):
        return [_plain_data(item, where, problems, depth + 1) for item in value]
    elif isinstance(value, bool | str):
        return value
    elif isinstance(value, Decimal | Real):
        return _plain_number(value, where, problems)
    else:
        remedy = "Use text, numbers, true and false, lists and tables; put a date in quotes."
        problems.append(Problem(f"cannot be of type {type(value).__name__}", where=where, remedy=remedy))
    return None


def _plain_number(value: Any, where: str, problems: list[Problem]) -> int | str | Decimal | None:
    try:
        number = exact(value)
    except ParameterError as error:
        problems.append(Problem(str(error), where=where))
        return None
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Decimal):
        return value
    written = plain(number)
    return written if isinstance(written, str) else Decimal(repr(written))


def _canonical(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _canonical(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_canonical(item) for item in value]
    return plain(exact(value)) if isinstance(value, Decimal) else value


def _at(where: str, key: str) -> str:
    return f"{where}.{key}" if where and key else where or key


def suggestion(word: str, known: Collection[str]) -> str:
    """Return a "did you mean" for a mistyped word, or the list of known ones."""
    return close_word(word, known) or f"Known: {', '.join(sorted(known)) or 'none'}."


def close_word(word: str, known: Iterable[str]) -> str:
    """Return a "did you mean" for a mistyped word if a known one is close, else nothing."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"Did you mean {str(close[0])!r}?" if close else ""  # the repr of a member of an enum is not its word


class _Table:
    """One table of a policy, read key by key; problems are collected, leftovers are unknown keys."""

    def __init__(self, data: Any, where: str, problems: list[Problem]) -> None:
        self.where, self.problems = where, problems
        self.seen: set[str] = set()
        self.data: Mapping[str, Any] = data if isinstance(data, Mapping) else {}
        if not isinstance(data, Mapping):
            self.problem("", "must be a table", f"Write [{where}].")

    def problem(self, key: str, what: str, remedy: str) -> None:
        self.problems.append(Problem(what, where=_at(self.where, key), remedy=remedy))

    def take(self, key: str, kinds: tuple[type, ...], says: str, default: Any = _MISSING) -> Any:
        """Return the value of a key, or None after noting what is wrong with it."""
        self.seen.add(key)
        value = self.data.get(key, _MISSING)
        if value is _MISSING:
            if default is _MISSING:
                self.problem(key, "is missing", f"Write {key} = {says}.")
                return None
            return default
        if isinstance(value, str | list) and not value:
            self.problem(key, "is blank", f"Fill in {says}.")
            return None
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            self.problem(key, f"must be {says}; got {_type_name(value)}", "Mend the value.")
            return None
        return value

    def text(self, key: str, says: str, default: Any = _MISSING) -> str | None:
        value: str | None = self.take(key, (str,), says, default)
        return value

    def choice(self, key: str, choices: Sequence[str], default: Any = _MISSING) -> str | None:
        says = " | ".join(choices)
        value = self.text(key, says, default)
        if value is not None and value is not default and value not in choices:
            self.problem(key, f"{value!r} is not one of {says}", close_word(value, choices) or "Choose one of them.")
            return None
        return value

    def number(self, key: str, says: str, default: Any = _MISSING) -> Fraction | None:
        value = self.take(key, (int, Decimal, str), says, default)
        number = _number(value)
        if value is not None and number is None:
            self.problem(key, f"must be {says}; got {_type_name(value)}", "Write it like 500 or 0.1, without quotes.")
        return number

    def flag(self, key: str, default: bool) -> bool:
        return bool(self.take(key, (bool,), "true or false", default))

    def items(self, key: str, says: str, default: Any = _MISSING) -> list[Any] | None:
        value: list[Any] | None = self.take(key, (list,), says, default)
        return value

    def texts(self, key: str, says: str, default: Any = _MISSING) -> tuple[str, ...] | None:
        items = self.items(key, says, default)
        if items is not None and not all(isinstance(item, str) for item in items):
            self.problem(key, f"must be {says}", "Put each value in quotes.")
            return None
        return tuple(items) if items is not None else None

    def finish(self) -> None:
        """Note the keys that nobody asked for."""
        for key in self.data:
            if key not in self.seen:
                self.problem(key, "is not a key this version knows", suggestion(key, self.seen))


def _number(value: Any) -> Fraction | None:
    """Read a number, or the text "p/q" of one that has no decimal."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal | str):
        return None
    if isinstance(value, str) and not re.fullmatch(r"-?\d{1,700}/[1-9]\d{0,699}", value, re.ASCII):
        return None
    return exact(value)


_TYPE_NAMES = {str: "text", bool: "true or false", list: "a list", dict: "a table"}


def _type_name(value: Any) -> str:
    return _TYPE_NAMES.get(type(value), "a number")


def _attempt(problems: list[Problem], where: str, make: Callable[[], Any]) -> Any:
    """Build a value; turn its refusal into a problem at a place."""
    try:
        return make()
    except UserError as error:
        problems.append(Problem(str(error), where=where))
        return None


@dataclass
class _Context:
    """What reading one policy collects on its way."""

    base: Path
    problems: list[Problem] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)

    def file(self, name: str) -> Path:
        """Return a file the policy names and remember its digest."""
        path = self.base / name
        if not path.is_file():
            what = "is not a file" if path.exists() else "does not exist"
            raise ParameterError(f"{path} {what}. Paths are relative to the policy.")
        try:
            with path.open("rb") as stream:
                content = stream.read(MOST_FILE_BYTES + 1)
        except OSError as error:
            raise ParameterError(f"{path} cannot be read: {error.strerror}. Check its permissions.") from None
        self.files[name] = hashlib.sha256(content).hexdigest()  # its reader refuses what is longer
        return path


def _read_policy(document: Mapping[str, Any], path: Path | None) -> Policy:
    context = _Context(base=path.parent if path else Path())
    top = _Table(document, "", context.problems)
    dataset = top.text("dataset", '"name", the name the ledger accounts for')
    if dataset is not None and not (dataset.strip() and dataset.isprintable()):
        top.problem("dataset", "is blank or unprintable", "Write a name.")
    small = top.choice("small", ("refuse", "suppress"), default="refuse")
    allow_unbounded = top.flag("allow_unbounded", False)
    schema, mechanism = _read_schema(top, context), _read_mechanism(top)
    options, period, budget = _read_options(top), _read_period(top), _read_budget(top)
    top.finish()
    if period and period.column and schema and period.column not in [a.name for a in schema]:
        top.problem(
            "period.column", f"{period.column!r} is not a declared attribute", 'Declare it (role = "drop", say).'
        )
    if context.problems or dataset is None or schema is None or mechanism is None or small is None:
        raise PolicyError(str(path or "policy"), context.problems)
    return Policy(
        dataset=dataset,
        schema=schema,
        mechanism=mechanism,
        small=small,
        allow_unbounded=allow_unbounded,
        read_options=options,
        period=period,
        budget=budget,
        path=path,
        document=document,
        files=context.files,
    )


def _read_schema(top: _Table, context: _Context) -> Schema | None:
    protects = top.text("protects", '"package", what one protected record is')
    together = top.text("together", '"consignment", the column that says which rows travel together', default=None)
    person = _read_person(top)
    table = top.take("attributes", (Mapping,), "tables [attributes.NAME], one for each column")
    read = [_read_attribute(name, data, context) for name, data in (table or {}).items()]
    attributes = [attribute for attribute in read if attribute is not None]
    if protects is None or table is None or len(attributes) < len(read):
        return None
    made: Schema | None = _attempt(
        context.problems, "attributes", lambda: Schema(attributes=tuple(attributes), protects=protects)
    )
    made = _with_column(top, made, "together", "together", together)
    return _with_column(top, made, "person", "contribution.person", person)


def _read_person(top: _Table) -> str | None:
    data = top.take("contribution", (Mapping,), "a table [contribution]", default=None)
    if data is None:
        return None
    table = _Table(data, "contribution", top.problems)
    person = table.text("person", '"card", the identifier that tells persons apart')
    table.finish()
    return person


def _with_column(top: _Table, schema: Schema | None, field_name: str, where: str, column: str | None) -> Schema | None:
    """Return the schema with a column named for some purpose, which must be a declared one."""
    if schema is None or column is None:
        return schema
    names = [attribute.name for attribute in schema]
    if column not in names:
        top.problem(where, f"{column!r} is not a declared attribute", suggestion(column, names))
        return None
    made: Schema | None = _attempt(top.problems, where, lambda: replace(schema, **{field_name: column}))  # type: ignore[arg-type]
    return made


def _read_attribute(name: str, data: Any, context: _Context) -> Attribute | None:
    before = len(context.problems)
    where = f"attributes.{name}"
    table = _Table(_with_role_synonyms(data), where, context.problems)
    role = table.choice("role", tuple(Role))
    domain = _read_domain(table, context)
    missing = table.choice("missing", MISSING_RULES, default="refuse")
    outside = table.choice("outside", OUTSIDE_RULES, default="refuse")
    table.finish()
    if len(context.problems) > before or role is None or missing is None or outside is None:
        return None
    make = partial(Attribute, name=name, role=Role(role), domain=domain, missing=missing, outside=outside)
    made: Attribute | None = _attempt(context.problems, where, partial(make, kind=table.data.get("kind")))
    return made


def _read_domain(table: _Table, context: _Context) -> Domain | None:
    kind = table.choice("kind", tuple(_DOMAIN_READERS), default=None)
    if kind is not None:
        made: Domain | None = _attempt(context.problems, table.where, lambda: _DOMAIN_READERS[kind](table, context))
        return made
    # Keys that only mean something with a kind are no unknown keys.
    table.seen |= _DOMAIN_KEYS
    given = sorted(_DOMAIN_KEYS & table.data.keys())
    if given and "kind" not in table.data:
        table.problem("kind", f"is missing, but {', '.join(given)} needs it", 'Write kind = "numeric", say.')
    return None


def _with_role_synonyms(data: Any) -> Any:
    if not isinstance(data, Mapping):
        return data
    role = data.get("role")
    return {**data, "role": ROLE_SYNONYMS[role]} if isinstance(role, str) and role in ROLE_SYNONYMS else data


def _read_numeric(table: _Table, context: _Context) -> Domain | None:
    if table.data.get("domain") == [] and table.data.get("role") not in ("", Role.QUASI_IDENTIFIER):
        table.seen.add("domain")  # left blank in a draft, and only a quasi-identifier needs one
        bounds = None
    else:
        bounds = table.items("domain", "[lowest, highest], public bounds", default=None)
    resolution = table.number("resolution", "the step of the public grid", default=None)
    unit = table.text("unit", '"kg", say', default="")
    doubling = table.number("doubling", "the width of the narrowest intervals of its hierarchy", default=None)
    if bounds is None:
        return None
    ends = [_number(bound) for bound in bounds]
    if len(ends) != 2 or ends[0] is None or ends[1] is None:
        table.problem("domain", "must be two numbers [lowest, highest]", "Mend the value.")
        return None
    return Numeric(lower=ends[0], upper=ends[1], resolution=resolution, unit=unit or "", doubling=doubling)


_LABELS = 'a list of texts ["a", "b"]'


def _read_ordinal(table: _Table, context: _Context) -> Domain | None:
    labels = table.texts("domain", _LABELS)
    return Ordinal(levels=labels) if labels else None


def _read_category(table: _Table, context: _Context) -> Domain | None:
    labels = table.texts("domain", _LABELS, default=None)
    return Category(values=labels) if labels else None


def _read_tree(table: _Table, context: _Context) -> Domain | None:
    hierarchy = table.text("hierarchy", '"hierarchy.csv", one row a leaf', default=None)
    parents = table.take("parents", (Mapping,), "a table child = parent", default=None)
    if (hierarchy is None) == (not parents):
        remedy = 'A tree needs one of hierarchy = "file.csv" and a table parents.'
        table.problem("hierarchy", "and parents are both given" if parents else "is missing", remedy)
        return None
    return Tree.from_csv(context.file(hierarchy)) if hierarchy is not None else Tree(parents=parents)


def _read_graph(table: _Table, context: _Context) -> Domain | None:
    edges = table.text("edges", '"edges.csv" with columns from,to[,length]')
    directed = table.flag("directed", False)
    return Graph.from_csv(context.file(edges), directed=directed) if edges is not None else None


_DOMAIN_KEYS = {"domain", "resolution", "unit", "doubling", "hierarchy", "parents", "edges", "directed"}
_DOMAIN_READERS: Mapping[str, Callable[[_Table, _Context], Domain | None]] = {
    "numeric": _read_numeric,
    "ordinal": _read_ordinal,
    "category": _read_category,
    "tree": _read_tree,
    "graph": _read_graph,
}


def _read_mechanism(top: _Table) -> Mapping[str, Any] | None:
    data = top.take("mechanism", (Mapping,), "a table [mechanism] with its name and parameters")
    if data is None:
        return None
    table = _Table(data, "mechanism", top.problems)
    name = table.text("name", '"partition", the name of a mechanism')
    for key, value in data.items():
        if key != "name" and isinstance(value, str | list) and not value:
            table.problem(key, "is blank", f"Fill in {key}: what it promises is yours to choose, so it has no default.")
    return {**data, "name": name}


def _read_options(top: _Table) -> ReadOptions:
    table = _Table(top.take("read", (Mapping,), "a table [read]", default={}) or {}, "read", top.problems)
    null = table.texts("null", 'a list of words ["NA", "-"]', default=None)
    delimiter = table.text("delimiter", "one character", default=",")
    decimal = table.text("decimal", '"." or ","', default=".")
    encoding = table.text("encoding", '"utf-8"', default="utf-8")
    table.finish()
    if delimiter is None or decimal is None or encoding is None:
        return ReadOptions()
    options: ReadOptions | None = _attempt(
        top.problems,
        "read",
        lambda: ReadOptions(delimiter=delimiter, decimal=decimal, encoding=encoding, null=null),
    )
    return options or ReadOptions()


def _read_period(top: _Table) -> PeriodRule | None:
    data = top.take("period", (Mapping,), "a table [period]", default=None)
    if data is None:
        return None
    table = _Table(data, "period", top.problems)
    length = table.choice("length", tuple(PERIOD_FORMATS))
    column = table.text("column", '"day", the column that holds the date', default=None)
    table.finish()
    return PeriodRule(length=length, column=column) if length else None


def _read_budget(top: _Table) -> Budget | None:
    data = top.take("budget", (Mapping,), "a table [budget]", default=None)
    if data is None:
        return None
    table = _Table(data, "budget", top.problems)
    epsilon = table.number("epsilon", "a positive number")
    delta = table.number("delta", "a small probability", default=0)
    neighbours = table.choice("neighbours", tuple(Neighbours))
    table.finish()
    if epsilon is None or neighbours is None:
        return None
    made: Budget | None = _attempt(
        top.problems,
        "budget",
        lambda: Budget(epsilon=epsilon, delta=delta or Fraction(0), neighbours=Neighbours(neighbours)),
    )
    return made


def draft_policy(dataset: str, kinds: Mapping[str, str], *, options: ReadOptions | None = None) -> str:
    """Write a policy to be filled in, from column names and kinds alone.

    Parameters
    ----------
    dataset
        Name for the ledger.
    kinds
        Column name to ``numeric`` or ``text``.
    options
        How the CSV file is written, where it is not the usual way.

    Returns
    -------
    str
        TOML text with roles, domains and k left blank; reading it lists everything to fill in.
    """
    tables = "\n".join(_draft_attribute(name, kind) for name, kind in kinds.items())
    read = _draft_read(options or ReadOptions())
    return f"""# Fill in what is blank, then look before you publish:
#   dunnage publish DATA --policy THIS.toml --dry-run
dataset = {_toml_text(dataset)}
protects = "record"        # what one row stands for: "package", "trip" ...

{tables}
[mechanism]
name = "partition"         # intervals of at least k records of one numeric quasi-identifier
k = ""                     # fewest records that must look alike; no default, it is your promise
statistic = "bounds"       # bounds | mean | multiset: what is told about a class
bounds = "class"           # class (its own smallest and largest value) | grid (rounded to the resolution)
{read}"""


def _draft_read(options: ReadOptions) -> str:
    unusual = [
        f"{name} = {_toml_text(getattr(options, name))}"
        for name in ("delimiter", "decimal", "encoding")
        if getattr(options, name) != getattr(ReadOptions(), name)
    ]
    return "\n".join(["", "[read]", *unusual, ""]) if unusual else ""


_DRAFT_NUMBERS = [
    'kind = "numeric"',
    "domain = []                # public bounds [lowest, highest], never read from the data; or delete this line",
    "# resolution = 0.1         # step of the public grid",
    '# unit = "kg"',
]


def _draft_attribute(name: str, kind: str) -> str:
    key = name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _toml_text(name)
    lines = [
        f"[attributes.{key}]",
        'role = ""                  # identifier | quasi-identifier | sensitive | public | drop',
    ]
    return "\n".join(lines + (_DRAFT_NUMBERS if kind == "numeric" else [])) + "\n"


def _toml_text(text: str) -> str:
    # JSON's escapes are TOML's, but for pairs of surrogates and for DEL.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
