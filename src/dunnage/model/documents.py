# SPDX-License-Identifier: Apache-2.0
"""Documents: every file of ours that says something is a typed model, and is read and written here.

A model is closed (no unknown key), strict (no silent conversion) and frozen. Reading bounds the size, checks the format
number and reports every problem at once, with its place, in one error; a value is never printed, since some documents
are private. Writing gives one canonical form. Devices use the standard library alone and so have dataclasses instead.
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

MAX_BYTES = 1 << 30
"""Largest document that is read, unless its reader allows less."""
_TYPE_NAMES = {str: "text", bool: "true or false", list: "a list", dict: "a table", type(None): "nothing"}


class Model(BaseModel):
    """What all documents share: closed, strict, frozen."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, hide_input_in_errors=True)

    def plain(self) -> dict[str, Any]:
        """Give what was stated as plain data; what was left to its default is left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)


class Software(Model):
    """What made a document."""

    dunnage: str


def _read_amount(value: object) -> Fraction:
    """Read a number in the form that :func:`dunnage.exact.plain` writes; an exact one from Python is taken as it is."""
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

Number = int | float
"""A number that stays whole if it is written as one."""
T = TypeVar("T")
Listed = Annotated[tuple[T, ...], Field(strict=False)]
"""Several items: a list in a file, a tuple in Python."""

M = TypeVar("M", bound=BaseModel)


OrEmpty = Annotated[
    M | None,
    BeforeValidator(lambda value: None if value == {} else value),
    WrapSerializer(lambda value, write: {} if value is None else write(value)),
]
"""A part that a document may lack: None here, an empty table in the file."""


def canonical(content: Mapping[str, Any]) -> bytes:
    """Write plain data in the one form that is digested and stored."""
    return (json.dumps(content, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def to_text(content: Mapping[str, Any] | BaseModel) -> str:
    """Write a document for a file that people read too: keys in the order of the model."""
    if isinstance(content, BaseModel):
        content = content.model_dump(mode="json", by_alias=True)
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def read(path: Path, model: type[M], *, what: str, remedy: str = "", max_bytes: int = MAX_BYTES) -> M:
    """Read a document: bounded, of a known format, with every problem in one :class:`InputError`.

    ``what`` names the document ("a packing plan"); ``remedy`` says what to do about one that cannot be used.
    """
    return check(load_json(path, what=what, remedy=remedy, max_bytes=max_bytes), model, path, what=what, remedy=remedy)


def load_json(path: Path, *, what: str, remedy: str = "", max_bytes: int = MAX_BYTES) -> Any:
    """Read JSON of a bounded size, whatever it says."""
    try:
        with path.open("rb") as stream:
            content = stream.read(max_bytes + 1)
    except OSError as error:
        raise InputError(str(path), [f"cannot be read: {error.strerror}. Give {what}."]) from None
    if len(content) > max_bytes:
        raise InputError(str(path), [f"is too large to be {what}. Check the path."])
    try:
        return json.loads(content)
    except (ValueError, RecursionError):  # a number too long to read is a ValueError too
        raise InputError(str(path), [f"is not JSON. {remedy}".rstrip()]) from None


def check(content: Any, model: type[M], source: Path | str, *, what: str, remedy: str = "") -> M:
    """Make a model of plain data, or raise one :class:`InputError` with every problem."""
    if not isinstance(content, dict) or not _fits_format(content, model):
        raise InputError(str(source), [f"is not {what} of a format that this version reads. {remedy}".rstrip()])
    try:
        return model.model_validate(content)
    except ValidationError as error:
        problems = list(problems_of(error, model))
        raise InputError(
            str(source), [*problems, *([f"It is not {what} as it stands. {remedy}"] if remedy else [])]
        ) from None
    except (RecursionError, OverflowError):
        raise InputError(str(source), [f"is not {what}. {remedy}".rstrip()]) from None


def _fits_format(content: Mapping[str, Any], model: type[BaseModel]) -> bool:
    """Tell whether format number and kind, where the model fixes them, are those of the content."""
    for name in ("format", "kind"):
        field = model.model_fields.get(name)
        if field is None or typing.get_origin(field.annotation) is not Literal:
            continue
        # True and 1.0 equal 1 in Python, but are other files.
        if not any(
            type(content.get(name)) is type(v) and content.get(name) == v for v in typing.get_args(field.annotation)
        ):
            return False
    return True


class Flaws(ValueError):
    """What a validator finds wrong, as problems whose places are below its own: all of them at once.

    ``{says}`` in a problem stands for the description of the field. With ``beside`` places are those of the table that
    has the field, for a validator that compares fields.
    """

    def __init__(self, *problems: Problem, beside: bool = False) -> None:
        self.problems, self.beside = problems, beside
        super().__init__("; ".join(map(str, problems)))


def problems_of(
    error: ValidationError, model: type[BaseModel], where: str = "", *, public: bool = False
) -> Iterator[Problem]:
    """Say every problem of a document in our words: its place, what is wrong, and what to do about it.

    Words of a ``public`` document, such as a policy, may be printed.
    """
    for item in error.errors(include_url=False):
        owner, field, path = _place(model, [part for part in item["loc"] if isinstance(part, str | int)])
        place = ".".join(part for part in (where, *path) if part)
        choices = choices_of(field)
        key, says = (path[-1] if path else ""), (field.description or " | ".join(choices)) if field is not None else ""
        kind, given = item["type"], item.get("input")
        cause = item.get("ctx", {}).get("error")
        if kind == "missing":
            yield Problem("is missing", where=place, remedy=f"Write {key} = {says}." if says else "")
        elif kind == "extra_forbidden":
            keys = [f.alias or name for name, f in owner.model_fields.items() if not f.exclude]
            yield Problem("is not a key this version knows", where=place, remedy=suggestion(key, keys))
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
            needs = f"must be {says}" if says else f"is not as it must be ({item['msg'][:1].lower()}{item['msg'][1:]})"
            yield Problem(f"{needs}; got {type_name(given)}", where=place, remedy="Mend the value." if public else "")


def _place(model: type[BaseModel], loc: list[str | int]) -> tuple[type[BaseModel], FieldInfo | None, list[str]]:
    """Follow a place through models: who has the last key, that key's field, and the place as people write it."""
    owner, field, path = model, None, []
    current: Any = model
    for part in loc:
        if part == "[key]":  # what is wrong is the key of a table, which the place names already
            break
        current = _core(current)
        members = [member for member in typing.get_args(current) if member is not type(None)]
        if typing.get_origin(current) in (Union, UnionType):
            # pydantic's places name the member of a union; files do not
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
    """Look through annotations, and through unions with nothing."""
    while True:
        members = [member for member in typing.get_args(annotation) if member is not type(None)]
        optional = typing.get_origin(annotation) in (Union, UnionType) and len(members) == 1
        if not optional and typing.get_origin(annotation) is not Annotated:
            return annotation
        annotation = members[0]


def _is_model(annotation: Any) -> TypeGuard[type[BaseModel]]:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _tag(model: type[BaseModel]) -> str:
    """Return the word by which a union tells this model from others; pydantic's places have it, files do not."""
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
    """Say of which type a value is, without printing it."""
    return _TYPE_NAMES.get(type(value), "a number")


def suggestion(word: str, known: Collection[str]) -> str:
    """Return a "did you mean" for a mistyped word, or the list of known ones."""
    return close_word(word, known) or f"Known: {', '.join(sorted(known)) or 'none'}."


def close_word(word: str, known: Iterable[str]) -> str:
    """Return a "did you mean" for a mistyped word if a known one is close, else nothing."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"Did you mean {str(close[0])!r}?" if close else ""  # the repr of a member of an enum is not its word
