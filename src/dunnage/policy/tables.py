# SPDX-License-Identifier: Apache-2.0
"""Tables of a policy, read key by key; all problems are collected."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from dunnage.city import City
from dunnage.domains import MOST_FILE_BYTES
from dunnage.errors import ParameterError, Problem, UserError
from dunnage.exact import exact, plain

_DEEPEST = 16
_MISSING: Any = object()


def plain_data(value: Any, where: str, problems: list[Problem], depth: int = 0) -> Any:
    """Copy plain data as TOML can hold it, numbers as exact decimals; note what it cannot hold."""
    if depth > _DEEPEST:
        problems.append(Problem("is nested too deeply", where=where, remedy="Write it flat."))
    elif isinstance(value, Mapping):
        return {str(key): plain_data(item, _at(where, str(key)), problems, depth + 1) for key, item in value.items()}
    elif isinstance(value, list | tuple):
        return [plain_data(item, where, problems, depth + 1) for item in value]
    elif isinstance(value, bool | str):
        return value
    elif isinstance(value, Decimal | Real):
        return _plain_number(value, where, problems)
    else:
        remedy = "Use text, numbers, true and false, lists and tables; put dates and times in quotes."
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


def canonical(value: Any) -> Any:
    """Return plain data in which equal numbers look the same, however they were written."""
    if isinstance(value, Mapping):
        return {key: canonical(item) for key, item in value.items()}
    if isinstance(value, list):
        return [canonical(item) for item in value]
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


class Table:
    """One table of a policy, read key by key; problems are collected, leftovers are unknown keys."""

    def __init__(self, data: Any, where: str, problems: list[Problem]) -> None:
        self.where, self.problems = where, problems
        self.seen: set[str] = set()
        self.data: Mapping[str, Any] = data if isinstance(data, Mapping) else {}
        if not isinstance(data, Mapping):
            self.problem("", "must be a table", f"Write [{where}].")

    def problem(self, key: str, what: str, remedy: str) -> None:
        """Note what is wrong with a key, or with the table itself."""
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
        """Return the text of a key."""
        value: str | None = self.take(key, (str,), says, default)
        return value

    def choice(self, key: str, choices: Sequence[str], default: Any = _MISSING) -> str | None:
        """Return the text of a key, one of some words."""
        says = " | ".join(choices)
        value = self.text(key, says, default)
        if value is not None and value is not default and value not in choices:
            self.problem(key, f"{value!r} is not one of {says}", close_word(value, choices) or "Choose one of them.")
            return None
        return value

    def number(self, key: str, says: str, default: Any = _MISSING) -> Fraction | None:
        """Return the number of a key, exactly as it is written."""
        value = self.take(key, (int, Decimal, str), says, default)
        number = number_of(value)
        if value is not None and number is None:
            self.problem(key, f"must be {says}; got {_type_name(value)}", "Write it like 500 or 0.1, without quotes.")
        return number

    def flag(self, key: str, default: bool) -> bool:
        """Return the truth value of a key."""
        return bool(self.take(key, (bool,), "true or false", default))

    def items(self, key: str, says: str, default: Any = _MISSING) -> list[Any] | None:
        """Return the list of a key."""
        value: list[Any] | None = self.take(key, (list,), says, default)
        return value

    def texts(self, key: str, says: str, default: Any = _MISSING) -> tuple[str, ...] | None:
        """Return the texts of a key."""
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


def number_of(value: Any) -> Fraction | None:
    """Read a number, or the text "p/q" of one that has no decimal."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal | str):
        return None
    if isinstance(value, str) and not re.fullmatch(r"-?\d{1,700}/[1-9]\d{0,699}", value, re.ASCII):
        return None
    return exact(value)


_TYPE_NAMES = {str: "text", bool: "true or false", list: "a list", dict: "a table"}


def _type_name(value: Any) -> str:
    return _TYPE_NAMES.get(type(value), "a number")


def attempt(problems: list[Problem], where: str, make: Callable[[], Any]) -> Any:
    """Build a value; turn its refusal into a problem at a place."""
    try:
        return make()
    except UserError as error:
        problems.append(Problem(str(error), where=where))
        return None


@dataclass
class Context:
    """What reading one policy collects on its way."""

    base: Path
    problems: list[Problem] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    city: City | None = None
    city_named: bool = False
    count_column: str | None = None

    def file(self, name: str, most_bytes: int = MOST_FILE_BYTES) -> Path:
        """Return a file the policy names and remember its digest."""
        path = self.base / name
        if not path.is_file():
            what = "is not a file" if path.exists() else "does not exist"
            raise ParameterError(f"{path} {what}. Paths are relative to the policy.")
        try:
            with path.open("rb") as stream:
                content = stream.read(most_bytes + 1)
        except OSError as error:
            raise ParameterError(f"{path} cannot be read: {error.strerror}. Check its permissions.") from None
        self.files[name] = hashlib.sha256(content).hexdigest()  # its reader refuses what is longer
        return path
