# SPDX-License-Identifier: Apache-2.0
"""Every exception Dunnage raises.

::

    DunnageError
    ├── UserError                 exit 2: the caller can fix it; nothing was written
    │   ├── InputError            a data file or frame: lists all its problems
    │   ├── PolicyError           a policy: lists all its problems
    │   ├── ParameterError        an argument (also a ValueError)
    │   ├── EngineError           an engine that does not start, or stopped on the way
    │   ├── OutputError           the place to write to: already exists, or cannot be written
    │   ├── ReleaseError          a release folder or key that cannot be used
    │   ├── LedgerError           a ledger that cannot be opened or read
    │   ├── TaskError             a task that device and platform cannot agree on
    │   ├── ReportError           a report that is damaged, or belongs to another task
    │   ├── StoreError            the store of a collector: away, full, damaged, or used by another collector
    │   ├── SealError             a sealed record that cannot be opened: wrong key, or tampered with
    │   └── Refusal               a valid request that would break a promise
    │       ├── CompositionError  guarantees that do not compose
    │       ├── AllowanceError    a device may not report: allowance used up, lost, or the clock went back
    │       └── BudgetError       the request exceeds what is left of the budget; has asked, spent, left
    ├── CheckFailed               exit 1: a check was made and failed
    │   └── NoPlanError           no plan exists, or the search did not reach one
    └── InternalError             our bug, never the user's

A message says what is wrong and where, what the value was, and what to do. It never contains a private value: problems
with data name file, row and column only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import UnionType

MOST_ROWS_NAMED = 20


class DunnageError(Exception):
    """Root of all errors raised on purpose."""

    exit_code = 2


class UserError(DunnageError):
    """Something the caller can fix."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, and where."""

    what: str  # What is wrong, without any private value
    where: str = ""  # The column, key or part of the file
    rows: tuple[int, ...] = ()  # Data rows with the problem, counted from 1 below the header; the first 20 at most
    num_rows: int = 0  # Number of rows with the problem
    remedy: str = ""  # What to do about it

    @classmethod
    def in_rows(cls, what: str, rows: Any, *, where: str = "", remedy: str = "") -> Problem:
        """Name the first of many rows, given as a list or an array."""
        return cls(what, where, tuple(map(int, rows[:MOST_ROWS_NAMED])), len(rows), remedy)

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        if self.rows:
            rows = self.rows[:MOST_ROWS_NAMED]
            total, named = max(self.num_rows, len(self.rows)), ", ".join(map(str, rows))
            if total > len(rows):
                text += f" in {total} rows, first {named}"
            else:
                text += f" in row {named}" if total == 1 else f" in {total} rows: {named}"
        return f"{text}. {self.remedy}" if self.remedy else text


class _ProblemList(UserError):
    """A file with all its problems at once."""

    def __init__(self, source: str, problems: Sequence[Problem | str]) -> None:
        self.source = source
        self.problems = tuple(p if isinstance(p, Problem) else Problem(p) for p in problems)
        text = f"{self.source}: {self.problems[0]}" if len(self.problems) == 1 else ""
        lines = [f"{self.source}: {len(self.problems)} problems", *(f"  - {problem}" for problem in self.problems)]
        super().__init__(text or "\n".join(lines))

    def __reduce__(self) -> Any:  # tasks of engines return it
        return type(self), (self.source, self.problems)


class InputError(_ProblemList):
    """A data file or frame that cannot be used; ``problems`` lists everything that is wrong."""


class PolicyError(_ProblemList):
    """A policy that cannot be used; ``problems`` lists everything that is wrong."""


class ParameterError(UserError, ValueError):
    """An argument that is out of range or of the wrong kind; ``problems`` may list several."""

    def __init__(self, message: str = "", *, problems: Sequence[Problem] = ()) -> None:
        self.problems = tuple(problems)
        super().__init__(message)


class EngineError(UserError):
    """An engine that does not start, or stopped on the way: nothing was found out about the rows."""


class OutputError(UserError):
    """The place to write to already exists or cannot be written."""

    @classmethod
    def taken(cls, path: object) -> OutputError:
        return cls(f"{path} already exists. Choose another name, or replace it with --force.")


class ReleaseError(UserError):
    """A release folder or key that cannot be used for the request."""


class LedgerError(UserError):
    """A ledger that cannot be opened or read."""


class TaskError(UserError):
    """A task that device and platform cannot agree on."""


class ReportError(UserError):
    """A report that is damaged, or belongs to another task."""


class StoreError(UserError):
    """The store of a collector cannot be used: it is away, full, damaged, or used by another collector."""


class SealError(UserError):
    """A sealed record that cannot be opened: wrong key, wrong owner, or tampered with."""


class Refusal(UserError):
    """A valid request that would break a promise."""


class CompositionError(Refusal):
    """Guarantees about different things, which do not add up."""


class AllowanceError(Refusal):
    """A device may not report: its allowance is used up or lost, or its clock went back."""


class BudgetError(Refusal):
    """The request exceeds what is left of the budget.

    Attributes
    ----------
    asked, spent, left
        What the release would cost, what was spent before and what is left, as printable amounts.
    """

    def __init__(self, message: str, *, asked: str, spent: str, left: str) -> None:
        self.asked, self.spent, self.left = asked, spent, left
        super().__init__(f"{message} Requested {asked}, spent {spent}, left {left}.")


class CheckFailed(DunnageError):
    """A check was made and failed."""

    exit_code = 1


class NoPlanError(CheckFailed):
    """No plan exists for the request, or the search did not reach one in time."""


class InternalError(DunnageError):
    """A bug in Dunnage."""

    exit_code = 70


def check_kind(given: object, kind: type | UnionType, takes: str) -> None:
    """Refuse an argument of another kind, such as swapped ones; ``takes`` says what the function takes, and whence."""
    if not isinstance(given, kind):
        raise ParameterError(f"{takes}. Got {type(given).__name__}.")
