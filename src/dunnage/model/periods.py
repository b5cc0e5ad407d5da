# SPDX-License-Identifier: Apache-2.0
"""Periods: the days, weeks, months or labels that a growing dataset is published by, and how its dates are written.

A period is text: a day ``2026-11-15``, an ISO week ``2026-W47``, a month ``2026-11``, or any other text as a label.
"""

from __future__ import annotations

import re
from calendar import monthrange
from dataclasses import dataclass
from datetime import date
from functools import cached_property

from dunnage.errors import ParameterError
from dunnage.exact import shown

LENGTHS = {"day": "2026-11-15", "week": "2026-W47", "month": "2026-11", "label": "autumn-a"}
"""The lengths of a period, each with an example."""
LABEL = "label"
MAX_LABEL = 80
_FORMS = {"day": r"\d{4}-\d{2}-\d{2}", "week": r"\d{4}-W\d{2}", "month": r"\d{4}-\d{2}"}


def is_label(text: object) -> bool:
    """Return whether a text can name a period or a dataset: short and printable."""
    return isinstance(text, str) and bool(text.strip()) and text.isprintable() and len(text) <= MAX_LABEL


def length_of(period: str) -> str:
    """Return what a period looks like: a day, week, month or label."""
    return next((length for length, form in _FORMS.items() if re.fullmatch(form, period, re.ASCII)), LABEL)


def dates_of(period: str) -> range | None:
    """Return the numbers of the dates in a period; None if it is a label."""
    length = length_of(period)
    try:
        if length == "day":
            first, num = date.fromisoformat(period), 1
        elif length == "week":
            first, num = date.fromisocalendar(int(period[:4]), int(period[6:]), 1), 7
        elif length == "month":
            first = date.fromisoformat(f"{period}-01")
            num = monthrange(first.year, first.month)[1]
        else:
            return None
    except ValueError:
        raise ParameterError(f"the calendar has no {length} {period}. Check the period.") from None
    return range(first.toordinal(), first.toordinal() + num)


def period_of(day: date, length: str) -> str:
    """Return the day, week or month that a date belongs to."""
    if length == "week":
        year, week, _ = day.isocalendar()
        return f"{year:04d}-W{week:02d}"
    return day.isoformat()[: 7 if length == "month" else None]


# How dates are written

_WORDS = {"day": "%d", "month": "%m", "year": "%Y", "hour": "%H", "minute": "%M", "second": "%S"}
_PARTS = {
    "%d": ("day", r"\d{1,2}"),
    "%m": ("month", r"\d{1,2}"),
    "%Y": ("year", r"\d{4}"),
    "%y": ("year", r"\d{2}"),
    "%H": ("hour", r"\d{1,2}"),
    "%I": ("hour", r"\d{1,2}"),
    "%M": ("minute", r"\d{2}"),
    "%S": ("second", r"\d{2}(?:[.,]\d+)?"),
    "%p": ("half", r"(?i:[ap]\.?m\.?)"),
}
_CLOCK = r"\d{1,2}:\d{2}.*"
_FORMAT_EXAMPLES = '"day.month.year", "month/day/year" or "%d.%m.%Y %H:%M"'


@dataclass(frozen=True)
class DateFormat:
    """How dates are written in text cells: in words (``day.month.year``) or as for strptime (``%d.%m.%Y``)."""

    text: str  # a time of day may follow; unless the format has one, it is read as everywhere (8:12, 08:12:30)

    def __post_init__(self) -> None:
        names = [name for name, _ in self._tokens if name]
        problem = ""
        if unknown := [part for name, part in self._tokens if not name and re.search(r"[a-z%]", part)]:
            problem = f"{shown(unknown[0])} is not a part of a date"
        elif missing := [name for name in ("day", "month", "year") if names.count(name) != 1]:
            problem = f"it needs the {missing[0]} once"
        elif len(set(names)) < len(names):
            problem = "it has a part twice"
        elif ("hour" in names) != ("minute" in names) or ("second" in names and "minute" not in names):
            problem = "a time of day needs hour and minute"
        elif ("half" in names) != ("%I" in self.text):
            problem = "%I and %p need each other"
        if problem:
            raise ParameterError(f"format {shown(self.text)} cannot be used: {problem}. Write {_FORMAT_EXAMPLES}.")

    @cached_property
    def _tokens(self) -> list[tuple[str, str]]:
        """The name and pattern of each part; text between parts has no name."""
        parts = (_WORDS.get(part, part) for part in re.findall(r"%.?|[a-z]+|[^a-z%]+", self.text))
        return [_PARTS.get(part, ("", part)) for part in parts]

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(name for name, _ in self._tokens if name)

    @cached_property
    def pattern(self) -> str:
        """A regular expression with a group for each part, and one for what follows."""
        parts = [f"(?P<{name}>{pattern})" if name else re.escape(pattern) for name, pattern in self._tokens]
        rest = r"\s?(?:Z|[+-]\d{2}:?\d{2})?" if "hour" in self.names else rf"(?:(?:T|[ ,]+){_CLOCK})?"
        return f"^{''.join(parts)}(?P<rest>{rest})$"
