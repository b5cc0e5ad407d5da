# SPDX-License-Identifier: Apache-2.0
"""Policy: what the owner allows, as a TOML file that can be read, written and digested.

A policy is data. It names a mechanism and its parameters; which class that is, is decided in
``publishing``. All problems of a file are reported at once.
"""

from __future__ import annotations

import hashlib
import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from dunnage.errors import ParameterError, PolicyError, Problem
from dunnage.exact import shown
from dunnage.guarantees import Budget, Neighbours, Purpose
from dunnage.policy.attributes import ROLE_SYNONYMS, read_attribute
from dunnage.policy.carriers import (
    CARRIER_MECHANISMS,
    CarrierPolicy,
    carriers_of,
    for_devices_error,
    is_for_devices,
)
from dunnage.policy.draft import draft_policy
from dunnage.policy.options import PERIOD_FORMATS, PeriodRule, ReadOptions
from dunnage.policy.tables import Context, Table, attempt, canonical, close_word, plain_data, suggestion
from dunnage.policy.trips import check_dates, read_city, read_contribution, read_trip
from dunnage.schema import Schema, check_person, trip_problems

__all__ = [
    "MOST_POLICY_BYTES",
    "PERIOD_FORMATS",
    "ROLE_SYNONYMS",
    "CarrierPolicy",
    "PeriodRule",
    "Policy",
    "ReadOptions",
    "carriers_from_text",
    "close_word",
    "draft_policy",
    "policy_document",
    "policy_text",
    "read_carriers",
    "suggestion",
]

MOST_POLICY_BYTES = 1 << 20


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
    read_options: ReadOptions = field(default_factory=ReadOptions)
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
        text, file = policy_text(path)
        return cls.from_text(text, path=file)

    @classmethod
    def from_text(cls, text: str, *, path: Path | None = None) -> Policy:
        """Read a policy from TOML text; files it names are relative to ``path``."""
        return cls.from_dict(policy_document(text, path), path=path)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], *, path: Path | None = None) -> Policy:
        """Read a policy from plain data, in the shape of the TOML file."""
        copy = _checked_copy(document, path)
        if is_for_devices(copy):
            raise for_devices_error(path)
        return _read_policy(copy, path)

    def to_toml(self) -> str:
        """Write the policy as TOML text."""
        import tomli_w

        return tomli_w.dumps(dict(self.document))

    def digest(self) -> str:
        """Return the SHA-256 of what the policy says, and of the files it names; comments do not count."""
        content = {"document": canonical(self.document), "files": dict(self.files)}
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


def read_carriers(path: str | os.PathLike[str]) -> CarrierPolicy:
    """Read a policy file for devices.

    Parameters
    ----------
    path
        The file, with tables ``[mechanisms.NAME]``.

    Raises
    ------
    PolicyError
        With all problems found, if it is not a usable policy for devices.
    """
    text, file = policy_text(path)
    return carriers_from_text(text, path=file)


def carriers_from_text(text: str, *, path: Path | None = None) -> CarrierPolicy:
    """Read a policy for devices from TOML text."""
    return carriers_of(_checked_copy(policy_document(text, path), path), path)


def policy_text(path: str | os.PathLike[str]) -> tuple[str, Path]:
    """Read the text of a policy file, whatever it says; also return its path."""
    try:
        file = Path(path)
        with file.open("rb") as stream:
            content = stream.read(MOST_POLICY_BYTES + 1)
    except OSError as error:
        raise PolicyError(str(path), [f"cannot be read: {error.strerror}. Check the path."]) from None
    except (TypeError, ValueError):
        raise ParameterError(f"policy must be a Policy or the path of one. Got {shown(path)}. Give a path.") from None
    return _decoded(content, file), file


def policy_document(text: str, path: Path | None = None) -> dict[str, Any]:
    """Read TOML text as plain data, numbers as exact decimals; what it says is not judged."""
    try:
        return tomllib.loads(text, parse_float=Decimal)
    except (ValueError, ArithmeticError) as error:
        # Besides its own error, the parser lets out those of numbers that are too long.
        what = str(error) if isinstance(error, tomllib.TOMLDecodeError) else "a number is too long"
        raise PolicyError(str(path or "policy"), [f"is not valid TOML: {what}. Mend that line."]) from None
    except RecursionError:
        raise PolicyError(str(path or "policy"), ["is nested too deeply. Write it flat."]) from None


def _checked_copy(document: Mapping[str, Any], path: Path | None) -> dict[str, Any]:
    """Copy a document, which must be plain data that TOML can hold."""
    problems: list[Problem] = []
    copy: dict[str, Any] = plain_data(document, "", problems) if isinstance(document, Mapping) else {}
    if not isinstance(document, Mapping):
        problems.append(Problem(f"must be a table; got {type(document).__name__}", remedy="Give a mapping."))
    if problems:  # one of each: all items of a list are at the same place
        raise PolicyError(str(path or "policy"), list(dict.fromkeys(problems)))
    return copy


def _decoded(content: bytes, file: Path) -> str:
    if len(content) > MOST_POLICY_BYTES:
        raise PolicyError(str(file), ["is larger than 1 MiB. A policy is a short text file."])
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise PolicyError(str(file), [f"is not UTF-8 text (line {line}). Save it as UTF-8."]) from None


def _read_policy(document: Mapping[str, Any], path: Path | None) -> Policy:
    context = Context(base=path.parent if path else Path())
    top = Table(document, "", context.problems)
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
    if schema is not None:
        check_dates(top, schema, period)
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


def _read_schema(top: Table, context: Context) -> Schema | None:
    protects = top.text("protects", '"package", what one protected record is')
    together = top.text("together", '"consignment", the column that says which rows travel together', default=None)
    before = len(context.problems)
    person, contribution = read_contribution(top)
    unbounded = len(context.problems) > before  # there is a bound, and what is wrong with it has been noted
    read_city(top, context)
    trip = read_trip(top, context)
    table = top.take("attributes", (Mapping,), "tables [attributes.NAME], one for each column")
    read = [read_attribute(name, data, context) for name, data in (table or {}).items()]
    attributes = tuple(attribute for attribute in read if attribute is not None)
    if protects is None or table is None or len(attributes) < len(read) or ("trip" in top.data and trip is None):
        return None
    facts: dict[str, Any] = {"protects": protects, "trip": trip, "contribution": contribution}
    told = [
        (where, what)
        for where, what in trip_problems(attributes, together=together, person=person, **facts)
        if not (unbounded and where == "contribution")
    ]
    context.problems += [Problem(what, where=where) for where, what in told]
    known = {attribute.name: attribute for attribute in attributes}
    before = len(context.problems)
    if contribution is not None and contribution.person in known:
        attempt(context.problems, "contribution.person", lambda: check_person(known[contribution.person]))
    if told or unbounded or len(context.problems) > before:
        return None
    made: Schema | None = attempt(
        context.problems, "attributes", lambda: Schema(attributes=attributes, city=context.city, **facts)
    )
    made = _with_column(top, made, "together", "together", together)
    return _with_column(top, made, "person", "contribution.person", person)


def _with_column(top: Table, schema: Schema | None, field_name: str, where: str, column: str | None) -> Schema | None:
    """Return the schema with a column named for some purpose, which must be a declared one."""
    if schema is None or column is None:
        return schema
    names = [attribute.name for attribute in schema]
    if column not in names:
        top.problem(where, f"{column!r} is not a declared attribute", suggestion(column, names))
        return None
    made: Schema | None = attempt(top.problems, where, lambda: replace(schema, **{field_name: column}))  # type: ignore[arg-type]
    return made


_ADVISED = ("k", "epsilon")
"""Parameters that a draft leaves blank, and that advice chooses."""


def _read_mechanism(top: Table) -> Mapping[str, Any] | None:
    data = top.take("mechanism", (Mapping,), "a table [mechanism] with its name and parameters")
    if data is None:
        return None
    table = Table(data, "mechanism", top.problems)
    name = table.text("name", '"partition", the name of a mechanism')
    if name in CARRIER_MECHANISMS:
        remedy = "Write its parameters in a table [mechanisms.NAME], and use dunnage device task."
        table.problem("name", f"{name!r} is for devices", remedy)
    for key, value in data.items():
        if key != "name" and isinstance(value, str | list) and not value:
            remedy = "let dunnage advise choose" if key in _ADVISED else "delete the line"
            table.problem(key, "is blank", f"Fill it in, or {remedy}.")
    return {**data, "name": name}


def _read_options(top: Table) -> ReadOptions:
    table = Table(top.take("read", (Mapping,), "a table [read]", default={}) or {}, "read", top.problems)
    null = table.texts("null", 'a list of words ["NA", "-"]', default=None)
    delimiter = table.text("delimiter", "one character", default=",")
    decimal = table.text("decimal", '"." or ","', default=".")
    encoding = table.text("encoding", '"utf-8"', default="utf-8")
    table.finish()
    if delimiter is None or decimal is None or encoding is None:
        return ReadOptions()
    options: ReadOptions | None = attempt(
        top.problems,
        "read",
        lambda: ReadOptions(delimiter=delimiter, decimal=decimal, encoding=encoding, null=null),
    )
    return options or ReadOptions()


def _read_period(top: Table) -> PeriodRule | None:
    data = top.take("period", (Mapping,), "a table [period]", default=None)
    if data is None:
        return None
    table = Table(data, "period", top.problems)
    length = table.choice("length", tuple(PERIOD_FORMATS))
    column = table.text("column", '"day", the column that holds the date', default=None)
    table.finish()
    return PeriodRule(length=length, column=column) if length else None


def _read_budget(top: Table) -> Budget | None:
    data = top.take("budget", (Mapping,), "a table [budget]", default=None)
    if data is None:
        return None
    table = Table(data, "budget", top.problems)
    epsilon = table.number("epsilon", "a positive number")
    delta = table.number("delta", "a small probability", default=0)
    neighbours = table.choice("neighbours", tuple(Neighbours))
    table.finish()
    if epsilon is None or neighbours is None:
        return None
    made: Budget | None = attempt(
        top.problems,
        "budget",
        lambda: Budget(epsilon=epsilon, delta=delta or Fraction(0), neighbours=Neighbours(neighbours)),
    )
    return made
