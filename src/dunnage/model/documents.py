# SPDX-License-Identifier: Apache-2.0
"""Documents: each is a typed model that is read and written here.

A model is closed (no unknown key), strict (no silent conversion) and frozen. Reading limits the size, checks the format
number and reports all problems with their places in one error. It never prints a value, because some documents are
private. Writing gives one canonical form. Devices use the standard library alone, and so have dataclasses instead.
"""

from __future__ import annotations

import difflib
import json
import typing
from collections.abc import Collection, Iterable, Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeGuard, TypeVar, Union

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    WithJsonSchema,
    WrapSerializer,
)
from pydantic.fields import FieldInfo

from dunnage.errors import InputError, ParameterError, Problem
from dunnage.exact import exact, plain

MAX_BYTES = 1 << 30  # maximum size of a document, unless its reader allows less
_TYPE_NAMES = {str: "text", bool: "true or false", list: "a list", dict: "a table", type(None): "nothing"}


class Model(BaseModel):
    """What all documents share: closed, strict, frozen."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, hide_input_in_errors=True)

    def plain(self) -> dict[str, Any]:
        """Return the stated fields as plain data, without those left to their default."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)


class Software(Model):
    dunnage: str


def _read_amount(value: object) -> Fraction:
    """Read a number in the form that :func:`dunnage.exact.plain` writes, or an exact one from Python."""
    if isinstance(value, Fraction):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise ParameterError("must be a number, or the text p/q of one.")
    return exact(value)


Amount = Annotated[
    Fraction,
    BeforeValidator(_read_amount),
    PlainSerializer(plain),
    WithJsonSchema({"type": ["integer", "number", "string"]}),
]
"""An exact number: whole, decimal, or the text "p/q"."""

Number = int | float  # A number; a whole number stays whole
T = TypeVar("T")
Listed = Annotated[tuple[T, ...], Field(strict=False)]  # several items: a list in a file, a tuple in Python

M = TypeVar("M", bound=BaseModel)


OrEmpty = Annotated[
    M | None,
    BeforeValidator(lambda value: None if value == {} else value),
    WrapSerializer(lambda value, write: {} if value is None else write(value)),
]
"""An optional part of a document: None here, an empty table in the file."""


def canonical(content: Mapping[str, Any]) -> bytes:
    """Write plain data in the form that is digested and stored."""
    return (json.dumps(content, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def to_text(content: Mapping[str, Any] | BaseModel) -> str:
    """Write a document that people read too, with keys in the order of the model."""
    if isinstance(content, BaseModel):
        content = content.model_dump(mode="json", by_alias=True)
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def read(path: Path, model: type[M], *, what: str, remedy: str = "", max_bytes: int = MAX_BYTES) -> M:
    """Read a document of limited size and a known format, with all problems in one :class:`InputError`."""
    return check(load_json(path, what=what, remedy=remedy, max_bytes=max_bytes), model, path, what=what, remedy=remedy)


def load_json(path: Path, *, what: str, remedy: str = "", max_bytes: int = MAX_BYTES) -> Any:
    try:
        with path.open("rb") as stream:
            content = stream.read(max_bytes + 1)
    except OSError as error:
        raise InputError(str(path), [f"cannot be read: {error.strerror}. Give {what}."]) from None
    if len(content) > max_bytes:
        raise InputError(str(path), [f"is too large to be {what}. Check the path."])
    try:
        return json.loads(content)
    except (ValueError, RecursionError):  # a number that is too long is a ValueError too
        raise InputError(str(path), [f"is not valid JSON. {remedy}".rstrip()]) from None


def check(content: Any, model: type[M], source: Path | str, *, what: str, remedy: str = "") -> M:
    """Make a model from plain data, or raise one :class:`InputError` with all problems."""
    fits = isinstance(content, dict)
    for name in ("format", "kind") if fits else ():
        field = model.model_fields.get(name)
        if field is not None and typing.get_origin(field.annotation) is Literal:
            # True and 1.0 equal 1 in Python, but they are different files.
            given, fixed = content.get(name), typing.get_args(field.annotation)
            fits = fits and any(type(given) is type(value) and given == value for value in fixed)
    if not fits:
        raise InputError(str(source), [f"is not {what} in a format that this version reads. {remedy}".rstrip()])
    try:
        return model.model_validate(content)
    except ValidationError as error:
        problems = list(problems_of(error, model))
        raise InputError(
            str(source), [*problems, *([f"It is not a valid file, so not {what}. {remedy}"] if remedy else [])]
        ) from None
    except (RecursionError, OverflowError):
        raise InputError(str(source), [f"is not {what}. {remedy}".rstrip()]) from None


class Flaws(ValueError):
    """All problems that a validator reports, with places below its own; ``{says}`` is the field's description."""

    def __init__(self, *problems: Problem, beside: bool = False) -> None:
        # With `beside`, places are relative to the table that has the field, for a validator that compares fields.
        self.problems, self.beside = problems, beside
        super().__init__("; ".join(map(str, problems)))


def problems_of(
    error: ValidationError, model: type[BaseModel], where: str = "", *, public: bool = False
) -> Iterator[Problem]:
    """Yield the place, problem and remedy of each flaw of a document; messages may quote a ``public`` one."""
    for item in error.errors(include_url=False):
        owner, field, path = _place(model, [part for part in item["loc"] if isinstance(part, str | int)])
        place = ".".join(part for part in (where, *path) if part)
        choices = choices_of(field)
        key, says = (path[-1] if path else ""), (field.description or " | ".join(choices)) if field is not None else ""
        kind, given = item["type"], item.get("input")
        cause = item.get("ctx", {}).get("error")
        if kind == "missing":
            value = says if says.startswith(("a table ", "tables ")) else f"{key} = {says}"
            yield Problem("is missing", where=place, remedy=f"Write {value}." if says else "")
        elif kind == "extra_forbidden":
            keys = [f.alias or name for name, f in owner.model_fields.items() if not f.exclude]
            yield Problem("is not a key that this version knows", where=place, remedy=suggestion(key, keys))
        elif isinstance(cause, Flaws):
            base = [where, *path[:-1]] if cause.beside else [place]
            for problem in cause.problems:
                what, remedy = (text.replace("{says}", says) for text in (problem.what, problem.remedy))
                yield Problem(what, where=".".join(part for part in (*base, problem.where) if part), remedy=remedy)
        elif isinstance(cause, Exception):
            yield Problem(str(cause), where=place)
        elif kind in ("literal_error", "enum") and isinstance(given, str):
            what = f"is not one of {' | '.join(choices)}"
            if public:
                remedy = close_word(given, choices) or "Choose one of them."
                yield Problem(f"{given!r} {what}", where=place, remedy=remedy)
            else:
                yield Problem(what, where=place, remedy=close_word(given, choices))
        elif kind == "model_type" and not says:
            yield Problem("must be a table", where=place, remedy=f"Write [{place}]." if public else "")
        else:
            needs = f"must be {says}" if says else f"is not valid ({item['msg'][:1].lower()}{item['msg'][1:]})"
            yield Problem(f"{needs}; got {type_name(given)}", where=place, remedy="Fix the value." if public else "")


def _place(model: type[BaseModel], loc: list[str | int]) -> tuple[type[BaseModel], FieldInfo | None, list[str]]:
    """Follow a place through models: the model and the field of the last key, and the place as people write it."""
    owner, field, path = model, None, []
    current: Any = model
    for part in loc:
        if part == "[key]":  # the problem is the key of a table, which the place already names
            break
        current = _core(current)
        members = [member for member in typing.get_args(current) if member is not type(None)]
        if typing.get_origin(current) in (Union, UnionType):
            # The places of pydantic name the member of a union; files do not
            models = [m for m in map(_core, members) if _is_model(m)]
            tagged = [m for m in models if part == m.__name__] or [m for m in models if part == _tag(m)]
            current, owner = (tagged[0], tagged[0]) if tagged else (None, owner)
            continue
        if _is_model(current):
            owner = current
            field = {f.alias or name: f for name, f in owner.model_fields.items()}.get(str(part))
            current = field.annotation if field is not None else None
        else:
            field = None if isinstance(part, str) else field
            current = next((member for member in reversed(members) if member is not ...), None)
        path.append(str(part))
    return owner, field, path


def _core(annotation: Any) -> Any:
    """Unwrap annotations and optional types."""
    while True:
        members = [member for member in typing.get_args(annotation) if member is not type(None)]
        optional = typing.get_origin(annotation) in (Union, UnionType) and len(members) == 1
        if not optional and typing.get_origin(annotation) is not Annotated:
            return annotation
        annotation = members[0]


def _is_model(annotation: Any) -> TypeGuard[type[BaseModel]]:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _tag(model: type[BaseModel]) -> str:
    """Return the word that identifies this model in a union, in the places of pydantic but not in files."""
    for name in ("kind", "name"):
        if name in model.model_fields and typing.get_origin(model.model_fields[name].annotation) is Literal:
            return str(typing.get_args(model.model_fields[name].annotation)[0])
    return model.__name__


def choices_of(field: FieldInfo | None) -> list[str]:
    def words(annotation: Any) -> Iterator[str]:
        if typing.get_origin(annotation) is Literal:
            yield from map(str, typing.get_args(annotation))
        elif isinstance(annotation, type) and issubclass(annotation, str) and hasattr(annotation, "__members__"):
            yield from (str(member) for member in annotation.__members__.values())
        else:
            for part in typing.get_args(annotation):
                yield from words(part)

    return list(words(field.annotation)) if field is not None else []


def type_name(value: object) -> str:
    """Name the type of a value without printing the value."""
    return _TYPE_NAMES.get(type(value), "a number")


def suggestion(word: str, words: Collection[str]) -> str:
    """Return a "did you mean" for a mistyped word, or the list of possible words."""
    return close_word(word, words) or f"Possible: {', '.join(sorted(words)) or 'none'}."


def close_word(word: str, words: Iterable[str]) -> str:
    """Return a "did you mean" if a possible word is close, or nothing."""
    close = difflib.get_close_matches(word, list(words), n=1)
    return f"Did you mean {str(close[0])!r}?" if close else ""  # the repr of an enum member is not its word
