# SPDX-License-Identifier: Apache-2.0
"""Times of a service day, in windows of equal length, and the days that are told apart.

A service day may go past midnight: with the domain 04:00 to 28:00, half past one at night is 25:30 of the day before,
as in GTFS. A time is held as a *stamp*: the number of its service date times 200,000, plus its second of the service
day. The number of a date is its proleptic Gregorian ordinal; a time without a date has the number 0.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from numbers import Integral
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dunnage.arrays import BoolArray, IntArray
from dunnage.errors import ParameterError
from dunnage.exact import shown
from dunnage.model.domains.labels import Domain

STAMPS_PER_DATE = 200_000
DAYS = ("date", "weekday", "day-type")
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
DAY_TYPES = ("weekday", "saturday", "sunday")
MAX_DATES = 3_700  # Most dates from the first to the last that may be told apart: ten years
DAY_SECONDS = 86_400

_NO_ZONES = ("localtime", "posixrules", "Factory")
_CLOCK = re.compile(r"(\d{1,2}):([0-5]\d)", re.ASCII)


def stamps_of(ordinals: IntArray, seconds: IntArray) -> IntArray:
    """Put service dates and seconds of the service day together. Shapes: (n,) each -> (n,)."""
    return ordinals * STAMPS_PER_DATE + np.clip(seconds, 0, STAMPS_PER_DATE - 1)


def split_stamps(stamps: IntArray) -> tuple[IntArray, IntArray]:
    """Return number of the service date and second of the service day of each stamp."""
    ordinals, seconds = np.divmod(stamps, STAMPS_PER_DATE)
    return ordinals, seconds


def _clock_text(minutes: int) -> str:
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


@dataclass(frozen=True, kw_only=True)
class Windows(Domain):
    """Times of a service day in windows, with the days that are told apart."""

    kind: ClassVar[str] = "time"
    lower: str  # First minute of the service day, HH:MM; an earlier time of day belongs to the service day before
    upper: str  # The minute after its last, at most 24 hours later; hours may go past 24
    window_minutes: int  # How long a window is; the last may be shorter
    # IANA name of the zone whose clock is meant. Seconds are then counted from twelve hours before noon, so that they
    # are unambiguous on days when clocks change.
    zone: str | None = None
    # Days that are told apart: each ``date``, the seven days of the week (``weekday``) or ``day-type`` (weekday,
    # saturday, sunday); None tells none apart.
    day: str | None = None
    dates: tuple[str, str] | None = None  # First and last service date there can be, YYYY-MM-DD: a public fact
    holidays: tuple[str, ...] = ()  # Dates that count as a sunday; for ``day-type`` only

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            lower: str,
            upper: str,
            window_minutes: int,
            zone: str | None = None,
            day: str | None = None,
            dates: Sequence[str] | None = None,
            holidays: Iterable[str] = (),
        ) -> None: ...

    def __post_init__(self) -> None:
        minutes = self.window_minutes
        if isinstance(minutes, bool) or not isinstance(minutes, Integral) or not 1 <= minutes <= 1440:
            raise ParameterError(f"window_minutes must be a whole number from 1 to 1440. Got {shown(minutes)}.")
        object.__setattr__(self, "window_minutes", int(minutes))
        lower, upper = _minutes(self.lower, "lower"), _minutes(self.upper, "upper")
        if not (lower < upper <= lower + 1440 and lower < 1440):
            raise ParameterError(
                "a service day begins before 24:00, ends after it began and has at most 24 hours. "
                f"Got {self.lower} to {self.upper}. Write 04:00 and 28:00, say."
            )
        object.__setattr__(self, "lower", _clock_text(lower))
        object.__setattr__(self, "upper", _clock_text(upper))
        if self.zone is not None:
            zone = self.zone
            import zoneinfo

            if zone in _NO_ZONES:
                raise ParameterError(
                    f"zone {zone} means something else on each machine. Write the IANA name of a time zone, "
                    "Europe/Madrid, say."
                )
            try:
                if not isinstance(zone, str):
                    raise ValueError
                zoneinfo.ZoneInfo(zone)
            except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
                raise ParameterError(
                    f"zone must be the IANA name of a time zone. Got {shown(zone)}. Write it as Europe/Madrid, say; if "
                    "it is one, this machine has no list of zones: install tzdata."
                ) from None
        if self.day not in (None, *DAYS):
            raise ParameterError(f"day must be one of {', '.join(DAYS)}. Got {shown(self.day)}. Or leave it out.")
        if self.dates is not None:
            dates = self.dates
            ends = tuple(dates) if isinstance(dates, Iterable) and not isinstance(dates, str) else ()
            if len(ends) != 2:
                raise ParameterError(
                    f"dates must be the first and the last service date. Got {shown(dates)}. Give two."
                )
            first, last = (_checked_ordinal(day, "dates") for day in ends)
            if not 0 <= last - first < MAX_DATES:
                raise ParameterError(
                    f"dates must be the first and the last service date, at most {MAX_DATES} days. Got {ends[0]} and "
                    f"{ends[1]}. Mend them."
                )
            object.__setattr__(self, "dates", (ends[0], ends[1]))
        if isinstance(self.holidays, str) or not isinstance(self.holidays, Iterable):
            raise ParameterError(f"holidays must be a list of dates. Got {shown(self.holidays)}.")
        holidays = tuple(self.holidays)
        for day in holidays:
            _checked_ordinal(day, "holidays")
        object.__setattr__(self, "holidays", tuple(sorted(set(holidays))))
        if self.holidays and self.day != "day-type":
            raise ParameterError(
                'holidays count as sundays, which needs day = "day-type". Got another. Leave them out.'
            )

    @cached_property
    def lower_seconds(self) -> int:
        return 60 * _minutes(self.lower, "lower")

    @cached_property
    def upper_seconds(self) -> int:
        return 60 * _minutes(self.upper, "upper")

    @cached_property
    def labels(self) -> tuple[str, ...]:
        minutes = range(self.lower_seconds // 60, self.upper_seconds // 60, self.window_minutes)
        return tuple(_clock_text(start) for start in minutes)

    def calendar(self, period: str | None = None) -> range | None:
        """Return the numbers of the service dates there can be, as far as they are public; None if nothing is said."""
        spans = []
        if period is not None and len(period) == len("YYYY-MM-DD"):
            spans.append((_ordinal(period), _ordinal(period)))
        elif period is not None:
            month = date.fromisoformat(f"{period}-01")
            days = monthrange(month.year, month.month)[1]
            spans.append((month.toordinal(), month.toordinal() + days - 1))
        if self.dates is not None:
            spans.append((_ordinal(self.dates[0]), _ordinal(self.dates[1])))
        if not spans:
            return None
        first, last = max(start for start, _ in spans), min(end for _, end in spans)
        if first > last:
            raise ParameterError(f"period {period} has none of the service dates that the policy names. Check dates.")
        return range(first, last + 1)

    def days(self, period: str | None = None) -> tuple[str, ...]:
        """Return the labels of the days that are told apart: those that occur in the calendar, where it is known."""
        return tuple(self._labelled(period))

    def num_dates(self, period: str | None = None) -> tuple[int, ...]:
        """Return how many dates each label stands for; without labels one number for all; nothing if unknown."""
        dates = self.calendar(period)
        if dates is None:
            return ()
        return tuple(self._labelled(period).values()) if self.day is not None else (len(dates),)

    def _labelled(self, period: str | None) -> dict[str, int]:
        """Return labels of days in order, with the number of dates of each (0 if unknown)."""
        dates = self.calendar(period)
        if self.day is None:
            return {}
        if self.day == "date":
            if dates is None:
                raise ParameterError(
                    'day = "date" needs to know which dates there are. Got none. Write dates = ["2026-11-01", '
                    '"2026-11-30"], say, or [period].'
                )
            return {date.fromordinal(ordinal).isoformat(): 1 for ordinal in dates}
        names = WEEKDAYS if self.day == "weekday" else DAY_TYPES
        if dates is None:
            return dict.fromkeys(names, 0)
        times = np.bincount(self._kinds(np.arange(dates.start, dates.stop)), minlength=len(names)).tolist()
        return {name: num for name, num in zip(names, times, strict=True) if num}

    def _kinds(self, ordinals: IntArray) -> IntArray:
        weekday = (ordinals + 6) % 7
        if self.day == "weekday":
            return weekday
        holidays = np.array([_ordinal(day) for day in self.holidays], dtype=np.int64)
        return np.where(np.isin(ordinals, holidays), 2, np.maximum(weekday - 4, 0))

    def day_codes(self, ordinals: IntArray, period: str | None = None) -> IntArray:
        """Return the position in :meth:`days` of each date; 0 throughout if no days are told apart."""
        if self.day is None:
            return np.zeros(len(ordinals), dtype=np.int64)
        if self.day == "date":
            dates = self.calendar(period)
            assert dates is not None  # days() has refused
            return ordinals - dates.start
        names = WEEKDAYS if self.day == "weekday" else DAY_TYPES
        labels = self.days(period)
        place = np.array([labels.index(name) if name in labels else -1 for name in names], dtype=np.int64)
        return place[self._kinds(ordinals)]

    def slots(self, stamps: ArrayLike, period: str | None = None) -> IntArray:
        """Return the slot of each time: position of its day times the number of windows, plus its window."""
        ordinals, seconds = split_stamps(np.asarray(stamps, dtype=np.int64))
        windows = (seconds - self.lower_seconds) // (60 * self.window_minutes)
        return self.day_codes(ordinals, period) * len(self.labels) + windows

    @property
    def diameter(self) -> float:
        return float(self.upper_seconds - self.lower_seconds)

    def contains(self, values: ArrayLike) -> BoolArray:
        """Tell for each stamp whether it lies in the service day and its date, if it has one, in ``dates``."""
        ordinals, seconds = split_stamps(np.asarray(values, dtype=np.int64).reshape(-1))
        inside: BoolArray = (seconds >= self.lower_seconds) & (seconds < self.upper_seconds)
        return inside & self.in_calendar(ordinals)

    def in_calendar(self, ordinals: IntArray, period: str | None = None) -> BoolArray:
        """Tell for each date whether it can be; where there is none, or nothing is said, it can."""
        dates = self.calendar(period)
        if dates is None:
            return np.ones(len(ordinals), dtype=bool)
        inside: BoolArray = (ordinals == 0) | ((ordinals >= dates.start) & (ordinals < dates.stop))
        return inside

    def distance(self, a: int, b: int) -> float:
        return float(abs(a % STAMPS_PER_DATE - b % STAMPS_PER_DATE))

    def generalise(self, values: ArrayLike) -> tuple[int, int]:
        seconds = split_stamps(np.asarray(values, dtype=np.int64).reshape(-1))[1]
        if not seconds.size:
            raise ParameterError("Only one or more values can be generalised. Got none.")
        return int(seconds.min()), int(seconds.max())

    def width(self, generalised: tuple[int, int]) -> float:
        first, last = generalised
        if first > last:
            raise ParameterError("A range of times must be (first, last). Got the later one first.")
        return (last - first) / self.diameter


def _minutes(text: object, name: str) -> int:
    clock = _CLOCK.fullmatch(text) if isinstance(text, str) else None
    if clock is None or (minutes := 60 * int(clock[1]) + int(clock[2])) > 48 * 60:
        raise ParameterError(f"{name} must be a time HH:MM up to 48:00. Got {shown(text)}. Write it as 04:00, say.")
    return minutes


def _ordinal(day: str) -> int:
    return date.fromisoformat(day).toordinal()


def _checked_ordinal(day: object, name: str) -> int:
    try:
        if isinstance(day, str) and date.fromisoformat(day).isoformat() == day:
            return _ordinal(day)
    except ValueError:
        pass
    raise ParameterError(f"{name} must be dates YYYY-MM-DD. Got {shown(day)}. Put each in quotes.")
