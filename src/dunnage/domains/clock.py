# SPDX-License-Identifier: Apache-2.0
"""Times as they are written in data, read on the clock of a service day. Imports Arrow: only datasets need this module.

Text is taken apart into a date and a clock, and each distinct one is read once. Where the policy names a zone, the
seconds of a service day are those since twelve hours before its noon (the rule of GTFS): on all but two days of the
year that is what the clock shows, and on those two it never stands for two moments.

A zone's clock is looked up once a date: the difference from UTC before and after, and the moment it changes. That is
enough unless a clock changes twice within three days, which none has done since 1900.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dunnage.arrays import BoolArray, IntArray
from dunnage.domains.windows import Windows, stamps_of

_DAY = 86_400
_EPOCH = date(1970, 1, 1).toordinal()
_YEARS = (1900, 2199)
_FIRST, _LAST = date(_YEARS[0], 1, 1).toordinal(), date(_YEARS[1], 12, 31).toordinal()
_CHUNK = 1 << 20  # rows read at a time; bounds the memory
_NEVER = np.int64(-(2**62))
_NO_OFFSET = np.int64(2**31)
_DATED = r"^\d{4}-\d{2}-\d{2}[Tt ]$"
_CLOCK = (
    r"^(?P<hour>\d{1,2}):(?P<minute>[0-5]\d)(?::(?P<second>[0-5]\d)(?:[.,]\d+)?)? ?"
    r"(?P<utc>[Zz]?)(?:(?P<sign>[+-])(?P<hours>[0-2]\d)(?::?(?P<minutes>[0-5]\d))?)?$"
)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Readings:
    """What a column of times says, row by row. Private: its ``repr`` shows none of it."""

    # Service date and second of the service day, as :func:`dunnage.domains.windows.stamps_of` puts them together
    stamps: IntArray
    missing: BoolArray  # missing, unreadable: rows without a value, and rows whose value is no time
    unreadable: BoolArray
    # Rows among the unreadable whose value is a date with an hour past 23, as only times without a date may have
    past_midnight: BoolArray
    undated: BoolArray  # Rows with a time of day alone
    astray: BoolArray  # Rows whose difference from UTC is stated, although no zone is named to bring them to
    unclear: BoolArray  # Rows whose time does not exist on the clock of the zone, or occurs twice

    def __repr__(self) -> str:
        return "Readings(private)"


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class _Parsed:
    """Times as written: number of the date (0 without one), second of the day, and difference from UTC if stated."""

    ordinals: IntArray
    seconds: IntArray
    offsets: IntArray
    missing: BoolArray
    unreadable: BoolArray
    past_midnight: BoolArray


def read_times(column: pa.Array, domain: Windows, null_words: Sequence[str] = ()) -> Readings:
    pieces = [
        _placed(_parsed(column.slice(start, _CHUNK), null_words), domain) for start in range(0, len(column), _CHUNK)
    ] or [_placed(_parsed(column, null_words), domain)]
    if len(pieces) == 1:
        return pieces[0]
    names = [item.name for item in fields(Readings)]
    return Readings(**{name: np.concatenate([getattr(piece, name) for piece in pieces]) for name in names})


def _parsed(column: pa.Array, null_words: Sequence[str]) -> _Parsed:
    if pa.types.is_timestamp(column.type):
        days, seconds = np.divmod(_whole_seconds(column, pa.int64()), _DAY)
        missing = _mask(pc.is_null(column))
        ordinals = np.where(missing, _EPOCH, days + _EPOCH)
        unreadable = (ordinals < _FIRST) | (ordinals > _LAST)
        return _Parsed(
            ordinals=np.clip(ordinals, _FIRST, _LAST),
            seconds=seconds,
            offsets=np.full(len(days), _NO_OFFSET if column.type.tz is None else 0, dtype=np.int64),
            missing=missing,
            unreadable=unreadable,
            past_midnight=np.zeros(len(days), dtype=bool),
        )
    if pa.types.is_time(column.type):
        return _of_times(column)
    if pa.types.is_string(column.type):
        return _of_text(column, null_words)
    raise pa.ArrowTypeError("not times")


_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def _whole_seconds(column: pa.Array, kind: pa.DataType) -> IntArray:
    return np.floor_divide(_integers(column.cast(kind)), _UNITS[column.type.unit])


def _integers(column: pa.Array) -> IntArray:
    values: IntArray = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
    return values.astype(np.int64, copy=False)


def _of_times(column: pa.Array) -> _Parsed:
    narrow = column.type.bit_width == 32
    seconds = _whole_seconds(column, pa.int32() if narrow else pa.int64())
    return _Parsed(
        ordinals=np.zeros(len(seconds), dtype=np.int64),
        seconds=seconds,
        offsets=np.full(len(seconds), _NO_OFFSET, dtype=np.int64),
        missing=_mask(pc.is_null(column)),
        unreadable=np.zeros(len(seconds), dtype=bool),
        past_midnight=np.zeros(len(seconds), dtype=bool),
    )


def _of_text(column: pa.Array, null_words: Sequence[str]) -> _Parsed:
    text = pc.fill_null(pc.utf8_trim_whitespace(column), "")
    missing = _mask(pc.is_in(text, value_set=pa.array(["", *(word.strip() for word in null_words)], pa.string())))
    heads = pc.utf8_slice_codeunits(text, 0, 11).dictionary_encode()
    ordinals = _read_dates(heads.dictionary)[_indices(heads)]
    dated = ordinals != 0
    clocks = (_rest(text, dated)).dictionary_encode()
    seconds, offsets = (values[_indices(clocks)] for values in _read_clocks(clocks.dictionary))
    stated = offsets != _NO_OFFSET
    past_midnight = (ordinals > 0) & (seconds >= _DAY)
    wrong = (ordinals < 0) | (seconds < 0) | past_midnight | (~dated & stated)
    return _Parsed(
        ordinals=np.where(wrong, 0, ordinals),
        seconds=np.where(wrong, 0, seconds),
        offsets=np.where(wrong, _NO_OFFSET, offsets),
        missing=missing,
        unreadable=wrong & ~missing,
        past_midnight=past_midnight & ~missing,
    )


def _rest(text: pa.Array, dated: BoolArray) -> pa.Array:
    """Return what follows the date, where there is one."""
    if not dated.any():
        return text
    rest = pc.utf8_slice_codeunits(text, 11)
    return rest if dated.all() else pc.if_else(pa.array(dated), rest, text)


def _read_dates(heads: pa.Array) -> IntArray:
    """Read the first eleven characters of times: number of the date, 0 if it is none, -1 if no calendar has it."""
    ordinals = np.zeros(len(heads), dtype=np.int64)
    for place in np.flatnonzero(_mask(pc.match_substring_regex(heads, _DATED))).tolist():
        try:
            ordinal = date.fromisoformat(heads[place].as_py()[:10]).toordinal()
        except ValueError:
            ordinal = -1
        ordinals[place] = ordinal if _FIRST <= ordinal <= _LAST else -1
    return ordinals


def _read_clocks(clocks: pa.Array) -> tuple[IntArray, IntArray]:
    """Read times of day: seconds, -1 if it is none, and difference from UTC if one is stated."""
    found = pc.extract_regex(clocks, _CLOCK)
    parts = {name: _part(found, name) for name in ("hour", "minute", "second", "hours", "minutes")}
    seconds = 3600 * parts["hour"] + 60 * parts["minute"] + parts["second"]
    sign = pc.struct_field(found, "sign")
    negative, signed = _equals(sign, "-"), _equals(sign, "-") | _equals(sign, "+")
    utc = ~_equals(pc.struct_field(found, "utc"), "")
    size = 3600 * parts["hours"] + 60 * parts["minutes"]
    wrong = _mask(pc.is_null(found)) | (utc & signed) | (size >= _DAY)
    offsets = np.where(signed, np.where(negative, -size, size), np.where(utc, 0, _NO_OFFSET))
    return np.where(wrong, -1, seconds), np.where(wrong, _NO_OFFSET, offsets)


def _part(found: pa.Array, name: str) -> IntArray:
    text = pc.struct_field(found, name)
    return _integers(pc.if_else(pc.equal(text, ""), "0", text).cast(pa.int64()))


def _equals(text: pa.Array, word: str) -> BoolArray:
    """Tell where text is a word; where there is none it is the empty word."""
    return _mask(pc.equal(pc.fill_null(text, ""), word))


def _indices(encoded: Any) -> IntArray:
    indices: IntArray = encoded.indices.to_numpy(zero_copy_only=False)
    return indices


def _mask(condition: pa.Array) -> BoolArray:
    mask: BoolArray = condition.to_numpy(zero_copy_only=False).astype(bool)
    return mask


def _placed(parsed: _Parsed, domain: Windows) -> Readings:
    """Find the service day of each time, and its second in it."""
    undated = parsed.ordinals == 0
    stated = parsed.offsets != _NO_OFFSET
    unclear = np.zeros(len(undated), dtype=bool)
    early = parsed.seconds < domain.lower_seconds
    ordinals = parsed.ordinals - (early & ~undated)
    seconds = parsed.seconds + _DAY * early
    known = ~undated
    if domain.zone is not None and known.any():
        clock = _ZoneClock(domain.zone, parsed.ordinals[known])
        moments, unclear[known] = clock.moments(parsed, known)
        ordinals[known], seconds[known] = clock.service(moments, domain.lower_seconds)
    return Readings(
        stamps=stamps_of(ordinals, seconds),
        missing=parsed.missing,
        unreadable=parsed.unreadable,
        past_midnight=parsed.past_midnight,
        undated=undated & ~parsed.missing & ~parsed.unreadable,
        astray=stated if domain.zone is None else np.zeros(len(stated), dtype=bool),
        unclear=unclear & ~parsed.missing & ~parsed.unreadable,
    )


class _ZoneClock:
    """Differences of a zone's clock from UTC around some dates.

    For each day from ``first`` (counted from 1970): the difference a day before it, the one two days after it, and the
    moment between them at which the clock changes.
    """

    def __init__(self, zone: str, ordinals: IntArray) -> None:
        # Three days more at each end: a stated difference from UTC, the zone's own and the service day before.
        self.first = int(ordinals.min()) - _EPOCH - 3
        num = int(ordinals.max()) - _EPOCH + 4 - self.first
        info = ZoneInfo(zone)
        at_midnight = [_offset(info, (self.first + day) * _DAY) for day in range(-1, num + 2)]
        around = np.array(at_midnight, dtype=np.int64)
        self.before, self.after = around[:-3], around[3:]
        self.turns = np.full(num, _NEVER)
        for day in np.flatnonzero(self.before != self.after).tolist():
            start = (self.first + day - 1) * _DAY
            self.turns[day] = _turn(info, start, start + 3 * _DAY)
        noons = (self.first + np.arange(num)) * _DAY + _DAY // 2
        morning = noons - self.before < self.turns
        self.starts = noons - np.where(morning, self.before, self.after) - _DAY // 2

    def moments(self, parsed: _Parsed, known: BoolArray) -> tuple[IntArray, BoolArray]:
        """Return the moment of each time in seconds since 1970 (UTC), and which have none or two."""
        offsets = parsed.offsets[known]
        days = parsed.ordinals[known] - _EPOCH
        written, places = days * _DAY + parsed.seconds[known], days - self.first
        turns = self.turns[places]
        one, other = written - self.before[places], written - self.after[places]
        is_one, is_other = one < turns, other >= turns
        stated = offsets != _NO_OFFSET
        moments = np.where(stated, written - offsets, np.where(is_one, one, other))
        return moments, ~stated & (is_one == is_other)

    def service(self, moments: IntArray, lower_seconds: int) -> tuple[IntArray, IntArray]:
        """Return number of the service date, and second of the service day, of each moment."""
        places = moments // _DAY - self.first
        offsets = np.where(moments < self.turns[places], self.before[places], self.after[places])
        days = (moments + offsets) // _DAY
        days = days - (moments - self.starts[days - self.first] < lower_seconds)
        return days + _EPOCH, moments - self.starts[days - self.first]


def _offset(zone: ZoneInfo, moment: int) -> int:
    local = datetime.fromtimestamp(0, UTC) + timedelta(seconds=moment)
    difference = local.astimezone(zone).utcoffset()
    assert difference is not None  # a zone's time always has one
    return int(difference.total_seconds())


def _turn(zone: ZoneInfo, start: int, end: int) -> int:
    """Return the first moment, after the start and up to the end, at which the clock is no longer that of the start."""
    before = _offset(zone, start)
    while end - start > 1:
        middle = (start + end) // 2
        start, end = (middle, end) if _offset(zone, middle) == before else (start, middle)
    return end
