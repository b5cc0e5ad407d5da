# SPDX-License-Identifier: Apache-2.0
"""Every exception Dunnage raises.

::

    DunnageError
    ├── UserError                 exit 2: the caller can mend it; nothing was written
    │   ├── InputError            a data file or frame: lists all its problems
    │   ├── PolicyError           a policy: lists all its problems
    │   ├── ParameterError        an argument (also a ValueError)
    │   ├── OutputError           the place to write to: exists already, or cannot be written
    │   ├── ReleaseError          a release folder or key that cannot be used
    │   ├── LedgerError           a ledger that cannot be opened or read
    │   ├── TaskError             a task that device and platform cannot agree on
    │   ├── ReportError           a report that is damaged, or not one of the task at hand
    │   ├── SealError             a sealed record that cannot be opened: another key, or tampered with
    │   └── Refusal               the request is well formed, the promise cannot be kept
    │       ├── CompositionError  guarantees that do not compose
    │       ├── AllowanceError    a device may not report: allowance used up, lost, or the clock went back
    │       └── BudgetError       more asked than is left; carries asked, spent, left
    ├── CheckFailed               exit 1: a check was made and did not hold
    │   └── NoPlanError           no plan exists, or none was found
    └── InternalError             our bug, never the user's

A message says what was wrong, where, what was got and what to do. It never holds a private value:
data problems name file, row and column only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MOST_ROWS_NAMED = 20


class DunnageError(Exception):
    """Root of all errors raised on purpose."""

    exit_code = 2


class UserError(DunnageError):
    """Something the caller can mend."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, and where."""

    what: str  # What is wrong, without any private value
    where: str = ""  # Column, key or file part it is about
    rows: tuple[int, ...] = ()  # Data rows concerned, counted from 1 below the header (at most the first 20 are kept)
    num_rows: int = 0  # How many rows are concerned in all
    remedy: str = ""  # What to do about it

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        if self.rows:
            text += " " + _rows_text(self.rows[:MOST_ROWS_NAMED], max(self.num_rows, len(self.rows)))
        return f"{text}. {self.remedy}" if self.remedy else text


def _rows_text(rows: Sequence[int], total: int) -> str:
    named = ", ".join(str(row) for row in rows)
    if total > len(rows):
        return f"in {total} rows, first {named}"
    return f"in row {named}" if total == 1 else f"in {total} rows: {named}"


class _ProblemList(UserError):
    """A file with all its problems at once."""

    def __init__(self, source: str, problems: Sequence[Problem | str]) -> None:
        self.source = source
        self.problems = tuple(p if isinstance(p, Problem) else Problem(p) for p in problems)
        super().__init__(self._text())

    def _text(self) -> str:
        if len(self.problems) == 1:
            return f"{self.source}: {self.problems[0]}"
        lines = "\n".join(f"  - {problem}" for problem in self.problems)
        return f"{self.source}: {len(self.problems)} problems\n{lines}"


class InputError(_ProblemList):
    """A data file or frame that cannot be used; ``problems`` lists everything found."""


class PolicyError(_ProblemList):
    """A policy that cannot be used; ``problems`` lists everything found."""


class ParameterError(UserError, ValueError):
    """An argument that is out of range or of the wrong kind; ``problems`` lists all where several were looked for."""

    def __init__(self, message: str = "", *, problems: Sequence[Problem] = ()) -> None:
        self.problems = tuple(problems)
        super().__init__(message)


class OutputError(UserError):
    """The place to write to exists already or cannot be written."""


class ReleaseError(UserError):
    """A release folder or key that cannot be used for what was asked."""


class LedgerError(UserError):
    """A ledger that cannot be opened or read."""


class TaskError(UserError):
    """A task that device and platform cannot agree on."""


class ReportError(UserError):
    """A report that is damaged, or was not made for the task at hand."""


class SealError(UserError):
    """A sealed record that cannot be opened: another key, another owner, or tampered with."""


class Refusal(UserError):
    """A well-formed request whose promise cannot be kept."""


class CompositionError(Refusal):
    """Guarantees that speak of different things and therefore do not add up."""


class AllowanceError(Refusal):
    """A device may not report: its allowance is used up or lost, or its clock went back."""


class BudgetError(Refusal):
    """More was asked than the budget has left.

    Attributes
    ----------
    asked, spent, left
        What the release would cost, what was spent before, what remains; as printable amounts.
    """

    def __init__(self, message: str, *, asked: str, spent: str, left: str) -> None:
        self.asked, self.spent, self.left = asked, spent, left
        super().__init__(f"{message} Asked {asked}, spent {spent}, left {left}.")


class CheckFailed(DunnageError):
    """A check was made and did not hold."""

    exit_code = 1


class NoPlanError(CheckFailed):
    """No plan exists for what was asked, or none was found in time."""


class InternalError(DunnageError):
    """A bug of ours."""

    exit_code = 70
