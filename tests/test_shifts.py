# SPDX-License-Identifier: Apache-2.0
"""Drivers' shifts: the fewest of all, each with its break, and a driver for every shuttle at every moment."""

from __future__ import annotations

import itertools

import numpy as np
from tests.refusals import refusal

import dunnage as dn
from dunnage.errors import ParameterError
from dunnage.planning.shifts import QUARTER, drivers_of


def fewest(length: int, number: int, shift: int, rest: int, drive: int) -> int:
    """Slow and independent: every choice of shifts with every break that the rule allows."""
    lines = set()
    for begin, end in itertools.combinations(range(length + 1), 2):
        if end - begin > shift:
            continue
        for pause in (-1, *range(begin, end)):
            line = [int(begin <= t < end and not (0 <= pause <= t < pause + rest)) for t in range(length)]
            runs = "".join(map(str, line)).split("0")
            if max(map(len, runs)) <= drive or not rest:
                lines.add(tuple(line))
    for num in itertools.count(number):
        for chosen in itertools.combinations_with_replacement(sorted(lines), num):
            if (np.sum(chosen, axis=0) >= number).all():
                return num
    raise AssertionError


def test_shifts_are_the_fewest_obey_their_rule_and_leave_no_shuttle_alone() -> None:
    cases = ((6, 1, 4, 1, 2), (5, 2, 4, 1, 2), (4, 2, 2, 0, 1), (6, 1, 6, 2, 2), (3, 2, 3, 1, 3))
    for length, number, shift, rest, drive in cases:
        rule = dn.ShiftRule(shift_hours=shift / 4, break_minutes=15 * rest, drive_hours=drive / 4)
        span = 8 * 3600, 8 * 3600 + length * QUARTER - 100
        drivers = drivers_of({"a": number, "b": 0}, span, rule)
        assert drivers.number == drivers.bound == fewest(length, number, shift, rest, drive)
        wheel = np.zeros(length, dtype=int)
        for item in drivers.shifts:
            assert item.zone == "a"
            assert span[0] <= item.begin < item.end <= span[1]
            assert item.end - item.begin <= shift * QUARTER
            ends = sorted(time for time in item.times if time is not None)
            for begin, end in zip(ends[::2], ends[1::2], strict=True):
                assert end - begin <= drive * QUARTER or not rest
                wheel[(begin - span[0]) // QUARTER : -(-(end - span[0]) // QUARTER)] += item.drivers
            assert item.break_begin is None or item.break_end - item.break_begin == rest * QUARTER
        assert (wheel >= number).all()
    # A day of 18 hours: 45 minutes of break after at most 4.5 hours, as European drivers have
    day = drivers_of({"a": 12, "b": 3}, (5 * 3600, 23 * 3600), dn.ShiftRule(shift_hours=8.5, break_minutes=45))
    assert day.bound <= day.number <= 1.1 * day.bound
    assert day.number >= 15 * 18 / 7.75


def test_impossible_rules_are_refused() -> None:
    for rule in ({"shift_hours": 0}, {"shift_hours": 8, "break_minutes": -1}, {"shift_hours": 8, "drive_hours": 0.1}):
        refusal(ParameterError, dn.ShiftRule, **rule)
