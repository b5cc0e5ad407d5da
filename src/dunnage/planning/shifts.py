# SPDX-License-Identifier: Apache-2.0
"""Drivers for a fleet: the fewest shifts, with a break each, such that every shuttle has a driver at every moment.

Shuttles are in service for the whole service day, so a zone needs as many drivers at the wheel as it has shuttles, and
somebody relieves those who have their break. Time counts in quarters of an hour: a shift is rounded down to them, a
break up. Which shifts there are is a cover of the day by all possible ones, with a bound.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dunnage.errors import ParameterError
from dunnage.kernels.solver import whole_cover
from dunnage.planning.plan import Drivers, Shift

QUARTER = 900
COVER_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True)
class ShiftRule:
    """How long a driver works: hours of a shift, minutes of its break, and hours at the wheel without one.

    Parameters
    ----------
    shift_hours
        Longest shift, its break included.
    break_minutes
        Length of the break; 0 for none.
    drive_hours
        Longest time at the wheel before or after the break.
    """

    shift_hours: float
    break_minutes: float = 0.0
    drive_hours: float = 4.5

    def __post_init__(self) -> None:
        for name, least, most in (("shift_hours", 0.25, 24), ("break_minutes", 0, 480), ("drive_hours", 0.25, 24)):
            if not least <= getattr(self, name) <= most:
                raise ParameterError(f"{name} must be from {least:g} to {most:g}. Got {getattr(self, name)!r}.")

    @property
    def quarters(self) -> tuple[int, int, int]:
        """Shift, break and time at the wheel in quarters of an hour."""
        return int(4 * self.shift_hours), math.ceil(self.break_minutes / 15), int(4 * self.drive_hours)

    @property
    def words(self) -> str:
        if not self.break_minutes:
            return f"shifts of up to {self.shift_hours:g} h without a break"
        rest = f"with a break of {self.break_minutes:g} min after at most {self.drive_hours:g} h at the wheel"
        return f"shifts of up to {self.shift_hours:g} h {rest}"

    def possible(self, length: int) -> list[tuple[int, int, int]]:
        """All longest shifts of a day of so many quarters: begin, end, and begin of the break or -1 without one."""
        shift, rest, drive = self.quarters
        shifts = []
        for begin in range(length):
            shifts.append((begin, min(begin + (min(shift, drive) if rest else shift), length), -1))
            for at in range(begin + 1, begin + drive + 1 if rest else 0):
                end = min(begin + shift, at + rest + drive, length)
                shifts += [(begin, end, at)] if end > at + rest else []
        return shifts


def drivers_of(fleet: Mapping[str, int], span: tuple[int, int], rule: ShiftRule) -> Drivers:
    """Choose shifts for the shuttles of each zone, in service from one second of the day to another."""
    length, rest = -(-(span[1] - span[0]) // QUARTER), rule.quarters[1]
    possible = rule.possible(length)
    table = np.zeros((len(possible), length), dtype=np.int32)
    for line, (begin, end, at) in zip(table, possible, strict=True):
        line[begin:end] = 1
        line[at : at + rest if at >= 0 else at] = 0
    # One shuttle at a time, as often as there are shuttles, is a cover too if time is short.
    single = whole_cover(table, np.ones(length, dtype=np.int64), seconds=COVER_SECONDS)
    covers = {0: (np.zeros(len(possible), dtype=np.int64), 0)}
    for number in sorted(set(fleet.values()) - {0}):
        cover = whole_cover(table, np.full(length, number), seconds=COVER_SECONDS)
        values = cover.values if cover.values is not None or single.values is None else number * single.values
        if values is None:
            raise ParameterError("there was not enough time to choose shifts. Use fewer hours of service.")
        covers[number] = values, max(cover.bound, -(-number * length // max(table.sum(axis=1).max(), 1)))
    shifts = []
    for zone, number in fleet.items():
        for at in np.flatnonzero(covers[number][0]).tolist():
            begin, end, pause = (span[0] + QUARTER * quarter for quarter in possible[at])
            times = {"break_begin": pause, "break_end": pause + QUARTER * rest} if possible[at][2] >= 0 else {}
            drivers = int(covers[number][0][at])
            shifts.append(Shift(zone=zone, begin=begin, end=min(end, span[1]), drivers=drivers, **times))
    return Drivers(
        shift_hours=rule.shift_hours,
        break_minutes=rule.break_minutes,
        drive_hours=rule.drive_hours,
        number=sum(shift.drivers for shift in shifts),
        bound=sum(covers[number][1] for number in fleet.values()),
        shifts=tuple(shifts),
    )
