# SPDX-License-Identifier: Apache-2.0
"""What must be refused: the kind of error, and the facts its message holds, not its sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

import pytest

from dunnage.errors import DunnageError, InputError, ParameterError

E = TypeVar("E", bound=Exception)


class Named(NamedTuple):
    """A case, and words of its own that the message holds: names, numbers, labels."""

    given: Any
    words: tuple[str, ...]


def refusal(kind: type[E], make: Callable[..., Any], *given: Any, **options: Any) -> E:
    """Give the error of this kind that a call raises, or fail with what was called."""
    try:
        make(*given, **options)
    except kind as error:
        return error
    pytest.fail(f"taken: {[repr(value)[:200] for value in given]} {options}")


def refused(
    make: Callable[[Any], Any], cases: Iterable[Any], *words: str, kind: type[DunnageError] = ParameterError
) -> None:
    """Every case is refused with all these words in the message, and with those of its own."""
    for case in cases:
        given, own = case if isinstance(case, Named) else (case, ())
        message = str(refusal(kind, make, given))
        missing = [word for word in (*words, *own) if word not in message]
        assert not missing, (case, missing, message)


def found(error: InputError) -> list[tuple[Any, ...]]:
    """Say of each problem of a table which column it is about, if any, and in which rows."""
    assert error.exit_code == 2
    columns = [problem.where.split("'")[1] if "'" in problem.where else problem.where for problem in error.problems]
    return [(column, *problem.rows) for column, problem in zip(columns, error.problems, strict=True)]
