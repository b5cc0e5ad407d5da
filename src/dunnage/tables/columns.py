# SPDX-License-Identifier: Apache-2.0
"""The cells of a column: numbers, times of a service day, moments, names. One normaliser for all rows.

Times in text are split into a date and a clock, and each distinct part is read once. If the policy names a zone, the
seconds of a service day count from twelve hours before its noon (the rule of GTFS). On all but two days of the year
that is what the clock shows, and on those two it is still unambiguous.

The clock of a zone is looked up once for each date: the difference from UTC before and after, and the moment of change.
That is enough unless a clock changes twice within three days, which has not happened since 1900. (Arrow's
``assume_timezone`` would work too, up to 2037, where its zones end.)

A *moment* of a device is UTC unless it has a zone or an offset, in which case it is converted to UTC. A plain number is
seconds after 1 January 1970.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import BinaryIO
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from dunnage.arrays import BoolArray, FloatArray, IntArray
from dunnage.errors import OutputError, ParameterError
from dunnage.folders import new_file
from dunnage.model.domains import DAY_SECONDS, Windows, stamps_of
from dunnage.model.periods import DateFormat
from dunnage.tables.reader import ReadOptions, read_table

NUMBER_NULL_WORDS = ("NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None")
MICROS = 1_000_000
_EPOCH = date(1970, 1, 1).toordinal()
_FIRST, _LAST = date(1900, 1, 1).toordinal(), date(2199, 12, 31).toordinal()
_CHUNK = 1 << 20  # times read at once; bounds the memory
_NEVER = np.int64(-(2**62))
_NO_OFFSET = np.int64(2**31)
_DATED = r"^\d{4}-\d{2}-\d{2}[Tt ]$"
_CLOCK = (
    r"^(?P<hour>\d{1,2}):(?P<minute>[0-5]\d)(?::(?P<second>[0-5]\d)(?:[.,]\d+)?)? ?"
    r"(?P<utc>[Zz]?)(?:(?P<sign>[+-])(?P<hours>[0-2]\d)(?::?(?P<minutes>[0-5]\d))?)?$"
)
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_MAX_SECONDS = (date.max.toordinal() - _EPOCH) * DAY_SECONDS  # moments are before the last day of 9999
_MISSING_WORDS = ("", "na", "n/a", "nan", "null", "none", "-")


class Private:
    """What shows nothing of its content where it is printed."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(private)"


def mask_of(condition: pa.Array) -> BoolArray:
    mask: BoolArray = condition.to_numpy(zero_copy_only=False).astype(bool)
    return mask


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def decoded(column: pa.Array) -> pa.Array:
    """Return a column without dictionary and with one type for text; a column of nulls is text."""
    column.validate(full=True)  # text that is not UTF-8 would fail later, with a worse message
    if pa.types.is_dictionary(column.type):
        return decoded(column.dictionary).take(column.indices)  # text views can be cast but not taken from
    if pa.types.is_null(column.type) or is_text(column.type):
        column = column.cast(pa.string())
    kinds = (pa.types.is_integer, pa.types.is_boolean, pa.types.is_date, pa.types.is_timestamp, pa.types.is_time)
    numbers = pa.types.is_floating(column.type) or pa.types.is_decimal(column.type)
    if not (is_text(column.type) or numbers or any(check(column.type) for check in kinds)):
        raise pa.ArrowTypeError("nested, binary or unknown")
    return column


def null_words(trimmed: pa.Array, words: Sequence[str]) -> pa.Array:
    value_set = pa.array(["", *(word.strip() for word in words)], pa.string())
    return pc.or_(pc.is_null(trimmed), pc.is_in(trimmed, value_set=value_set))


def numbers_of_text(column: pa.Array, options: ReadOptions) -> tuple[pa.Array, BoolArray]:
    """Read numbers from text. Shapes: text column -> float column with nulls, mask of unreadable cells."""
    text = pc.utf8_trim_whitespace(column.cast(pa.string()))
    null = null_words(text, NUMBER_NULL_WORDS if options.null is None else options.null)
    mark = re.escape(options.decimal)
    pattern = rf"^[+-]?(\d+{mark}?\d*|{mark}\d+)([eE][+-]?\d+)?$"
    number = pc.fill_null(pc.match_substring_regex(text, pattern), False)
    unreadable = ~mask_of(number) & ~mask_of(null)
    if options.decimal == ",":
        text = pc.replace_substring(text, ",", ".", max_replacements=1)
    return pc.if_else(pc.and_(number, pc.invert(null)), text, None).cast(pa.float64()), unreadable


# --- Times of a service day


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TimeReadings(Private):
    stamps: IntArray  # Service date and second of the service day: :func:`dunnage.model.domains.stamps_of`
    missing: BoolArray  # No value
    unreadable: BoolArray  # Not a time
    past_midnight: BoolArray  # Unreadable because of a date with an hour past 23
    undated: BoolArray  # A time of day alone
    astray: BoolArray  # With a difference from UTC, although the policy names no zone
    unclear: BoolArray  # Does not exist on the clock of the zone, or occurs twice


def iso_times(column: pa.Array, form: DateFormat, words: Sequence[str]) -> pa.Array:
    """Rewrite dates as 2026-11-15 with the time that follows; other text but times of day and ``words`` becomes "?"."""
    text = pc.fill_null(pc.utf8_trim_whitespace(column), "")
    parts = pc.extract_regex(text, form.pattern)

    def part(name: str, width: int = 2) -> pa.Array:
        return pc.utf8_lpad(pc.struct_field(parts, name), width, "0")

    year = pc.struct_field(parts, "year")
    year = pc.if_else(pc.equal(pc.utf8_length(year), 2), pc.binary_join_element_wise("20", year, ""), year)
    day = pc.binary_join_element_wise(year, part("month"), part("day"), "-")
    if "hour" in form.names:
        hour = pc.struct_field(parts, "hour")
        if "half" in form.names:  # 12 is the first hour of each half
            number = hour.cast(pa.int64())
            later = pc.match_substring(pc.utf8_lower(pc.struct_field(parts, "half")), "p")
            inside = pc.and_(pc.greater(number, 0), pc.less_equal(number, 12))
            number = pc.add(pc.if_else(pc.equal(number, 12), 0, number), pc.if_else(later, 12, 0))
            hour = pc.if_else(inside, number, None).cast(pa.string())
        clock = [pc.utf8_lpad(hour, 2, "0"), part("minute")]
        clock += [part("second")] if "second" in form.names else []
        rest = pc.binary_join_element_wise(pc.binary_join_element_wise(*clock, ":"), pc.struct_field(parts, "rest"), "")
    else:
        rest = pc.utf8_ltrim(pc.struct_field(parts, "rest"), "T ,")
    iso = pc.if_else(pc.equal(rest, ""), day, pc.binary_join_element_wise(day, rest, "T"))
    as_written = pc.or_(null_words(text, words), pc.match_substring_regex(text, _CLOCK))
    return pc.if_else(pc.is_valid(iso), iso, pc.if_else(as_written, text, "?"))


def read_times(column: pa.Array, domain: Windows, words: Sequence[str] = (), form: str | None = None) -> TimeReadings:
    """Read times as text, timestamps or times of day; ``words`` mean "missing", and ``form`` says how dates look."""
    if form is not None and is_text(column.type):
        column = iso_times(column.cast(pa.string()), DateFormat(form), words)
    starts = range(0, max(len(column), 1), _CHUNK)
    pieces = [_read_times(column.slice(start, _CHUNK), domain, words) for start in starts]
    names = [item.name for item in fields(TimeReadings)]
    return TimeReadings(**{name: np.concatenate([getattr(piece, name) for piece in pieces]) for name in names})


def _read_times(column: pa.Array, domain: Windows, words: Sequence[str]) -> TimeReadings:
    missing = mask_of(pc.is_null(column))
    unreadable = past_midnight = unclear = np.zeros(len(column), dtype=bool)
    # As written: number of the date (0 without one), second of the day, and difference from UTC if there is one.
    ordinals = np.zeros(len(column), dtype=np.int64)
    offsets = np.full(len(column), _NO_OFFSET)
    if pa.types.is_timestamp(column.type):
        days, seconds = np.divmod(_integers(column.cast(pa.int64())) // _PER_SECOND[column.type.unit], DAY_SECONDS)
        ordinals = np.where(missing, _EPOCH, days + _EPOCH)
        unreadable = (ordinals < _FIRST) | (ordinals > _LAST)
        ordinals = np.clip(ordinals, _FIRST, _LAST)
        offsets = offsets if column.type.tz is None else np.zeros_like(offsets)
    elif pa.types.is_time(column.type):
        kind = pa.int32() if column.type.bit_width == 32 else pa.int64()
        seconds = _integers(column.cast(kind)) // _PER_SECOND[column.type.unit]
    elif pa.types.is_string(column.type):
        text = pc.fill_null(pc.utf8_trim_whitespace(column), "")
        missing = mask_of(null_words(text, words))
        heads = pc.utf8_slice_codeunits(text, 0, 11).dictionary_encode()
        ordinals = _read_dates(heads.dictionary)[_integers(heads.indices)]
        dated = ordinals != 0
        if dated.any():  # the part after the date
            rest = pc.utf8_slice_codeunits(text, 11)
            text = rest if dated.all() else pc.if_else(pa.array(dated), rest, text)
        clocks = text.dictionary_encode()
        seconds, offsets = (values[_integers(clocks.indices)] for values in _read_clocks(clocks.dictionary))
        past_midnight = (ordinals > 0) & (seconds >= DAY_SECONDS)
        wrong = (ordinals < 0) | (seconds < 0) | past_midnight | (~dated & (offsets != _NO_OFFSET))
        ordinals, seconds = np.where(wrong, 0, ordinals), np.where(wrong, 0, seconds)
        offsets = np.where(wrong, _NO_OFFSET, offsets)
        unreadable, past_midnight = wrong & ~missing, past_midnight & ~missing
    else:
        raise pa.ArrowTypeError("not times")
    undated, stated = ordinals == 0, offsets != _NO_OFFSET
    early = seconds < domain.lower_seconds  # of the service day before
    service, second = ordinals - (early & ~undated), seconds + DAY_SECONDS * early
    if domain.zone is not None and not undated.all():
        clock, dated = _ZoneClock(domain.zone, ordinals[~undated]), ~undated
        unclear = np.zeros(len(column), dtype=bool)
        moments, unclear[dated] = clock.moments(ordinals[dated], seconds[dated], offsets[dated])
        service[dated], second[dated] = clock.service(moments, domain.lower_seconds)
    return TimeReadings(
        stamps=stamps_of(service, second),
        missing=missing,
        unreadable=unreadable,
        past_midnight=past_midnight,
        undated=undated & ~missing & ~unreadable,
        astray=stated if domain.zone is None else np.zeros(len(stated), dtype=bool),
        unclear=unclear & ~missing & ~unreadable,
    )


def _integers(column: pa.Array) -> IntArray:
    values: IntArray = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
    return values.astype(np.int64, copy=False)


def _read_dates(heads: pa.Array) -> IntArray:
    """Read the first eleven characters of times: the number of the date, 0 without a date, -1 if it is impossible."""
    ordinals = np.zeros(len(heads), dtype=np.int64)
    for place in np.flatnonzero(mask_of(pc.match_substring_regex(heads, _DATED))).tolist():
        try:
            ordinal = date.fromisoformat(heads[place].as_py()[:10]).toordinal()
        except ValueError:
            ordinal = -1
        ordinals[place] = ordinal if _FIRST <= ordinal <= _LAST else -1
    return ordinals


def _read_clocks(clocks: pa.Array) -> tuple[IntArray, IntArray]:
    """Read times of day: seconds, -1 if it is not a time, and the difference from UTC if there is one."""
    match = pc.extract_regex(clocks, _CLOCK)
    texts = {name: pc.fill_null(pc.struct_field(match, name), "") for name in ("utc", "sign")}
    parts = {}
    for name in ("hour", "minute", "second", "hours", "minutes"):
        text = pc.struct_field(match, name)
        parts[name] = _integers(pc.if_else(pc.equal(text, ""), "0", text).cast(pa.int64()))
    seconds = 3600 * parts["hour"] + 60 * parts["minute"] + parts["second"]
    size = 3600 * parts["hours"] + 60 * parts["minutes"]
    negative, signed = mask_of(pc.equal(texts["sign"], "-")), mask_of(pc.not_equal(texts["sign"], ""))
    utc = mask_of(pc.not_equal(texts["utc"], ""))
    wrong = mask_of(pc.is_null(match)) | (utc & signed) | (size >= DAY_SECONDS)
    offsets = np.where(signed, np.where(negative, -size, size), np.where(utc, 0, _NO_OFFSET))
    return np.where(wrong, -1, seconds), np.where(wrong, _NO_OFFSET, offsets)


class _ZoneClock:
    def __init__(self, zone: str, ordinals: IntArray) -> None:
        info, start_of_1970 = ZoneInfo(zone), datetime.fromtimestamp(0, UTC)

        def offset(moment: int) -> int:
            difference = (start_of_1970 + timedelta(seconds=moment)).astimezone(info).utcoffset()
            assert difference is not None  # a time with a zone always has one
            return int(difference.total_seconds())

        # Three more days at each end: for a stated difference from UTC, that of the zone, and the service day before.
        self.first = int(ordinals.min()) - _EPOCH - 3
        num = int(ordinals.max()) - _EPOCH + 4 - self.first
        around = np.array([offset((self.first + day) * DAY_SECONDS) for day in range(-1, num + 2)], dtype=np.int64)
        # For each day: the difference from UTC one day before it and two days after it, and the moment of change.
        self.before, self.after = around[:-3], around[3:]
        self.turns = np.full(num, _NEVER)
        for day in np.flatnonzero(self.before != self.after).tolist():
            start = (self.first + day - 1) * DAY_SECONDS
            end = start + 3 * DAY_SECONDS
            while end - start > 1:  # bisect for the moment of change
                middle = (start + end) // 2
                start, end = (middle, end) if offset(middle) == self.before[day] else (start, middle)
            self.turns[day] = end
        noons = (self.first + np.arange(num)) * DAY_SECONDS + DAY_SECONDS // 2
        self.starts = noons - np.where(noons - self.before < self.turns, self.before, self.after) - DAY_SECONDS // 2

    def moments(self, ordinals: IntArray, seconds: IntArray, offsets: IntArray) -> tuple[IntArray, BoolArray]:
        """Return the moment of each time in seconds since 1970 (UTC), and which times have none or two."""
        days = ordinals - _EPOCH
        written, places = days * DAY_SECONDS + seconds, days - self.first
        turns = self.turns[places]
        one, other = written - self.before[places], written - self.after[places]
        is_one, is_other = one < turns, other >= turns
        stated = offsets != _NO_OFFSET
        moments = np.where(stated, written - offsets, np.where(is_one, one, other))
        return moments, ~stated & (is_one == is_other)

    def service(self, moments: IntArray, lower_seconds: int) -> tuple[IntArray, IntArray]:
        """Return the number of the service date and the second of the service day of each moment."""
        places = moments // DAY_SECONDS - self.first
        offsets = np.where(moments < self.turns[places], self.before[places], self.after[places])
        days = (moments + offsets) // DAY_SECONDS
        days = days - (moments - self.starts[days - self.first] < lower_seconds)
        return days + _EPOCH, moments - self.starts[days - self.first]


# --- Data of devices: numbers without a domain, moments, names


def coded(column: pa.Array) -> pa.DictionaryArray:
    if not pa.types.is_dictionary(column.type):
        column = column.cast(pa.string()).dictionary_encode()
    if column.type.value_type != pa.string():
        column = pa.DictionaryArray.from_arrays(column.indices, column.dictionary.cast(pa.string()))
    return column


def is_blank(labels: pa.DictionaryArray) -> BoolArray:
    blank = pc.equal(labels.dictionary, "").fill_null(True).to_numpy(zero_copy_only=False)
    if not (labels.null_count or blank.any()):
        return np.zeros(len(labels), dtype=np.bool_)
    missing: BoolArray = labels.indices.fill_null(-1).to_numpy(zero_copy_only=False) < 0
    missing[~missing] = blank[labels.indices.drop_null().to_numpy(zero_copy_only=False)]
    return missing


def numbers_of(column: pa.Array) -> tuple[FloatArray, int]:
    """Return a column as doubles, NaN where it is blank, and how many cells are not numbers."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if not is_text(column.type):
        return column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), 0
    trimmed = pc.utf8_trim_whitespace(column.cast(pa.string()))
    trimmed = pc.if_else(pc.equal(trimmed, ""), pa.scalar(None, pa.string()), trimmed)
    try:
        return trimmed.cast(pa.float64()).to_numpy(zero_copy_only=False), 0
    except pa.ArrowInvalid:
        texts = trimmed.dictionary_encode()
    values, wrong = list[float](), list[bool]()
    for text in texts.dictionary.to_pylist():
        try:  # 1_000 is a number only in Python
            values.append(math.nan if text.lower() in _MISSING_WORDS else float(text.replace("_", "?")))
            wrong.append(False)
        except ValueError:
            values.append(math.nan)
            wrong.append(True)
    codes = texts.indices.fill_null(len(values)).to_numpy(zero_copy_only=False)
    return np.array([*values, math.nan])[codes], int(np.array([*wrong, False])[codes].sum())


def moments_of(column: pa.Array) -> tuple[IntArray, BoolArray]:
    """Return moments in microseconds after 1 January 1970, UTC, and which cells have none."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if is_text(column.type):
        texts = pc.utf8_trim_whitespace(column.cast(pa.string())).dictionary_encode()
        try:  # fast, if no text has a zone
            counted = texts.dictionary.cast(pa.timestamp("us")).cast(pa.int64()).to_numpy(zero_copy_only=False)
            read = np.where((counted >= 0) & (counted < _MAX_SECONDS * MICROS), counted, -1)
        except pa.ArrowInvalid:
            read = np.array([parse_moment(text) for text in texts.dictionary.to_pylist()], dtype=np.int64)
        micros = np.append(read, -1)[texts.indices.fill_null(len(read)).to_numpy(zero_copy_only=False)]
        return micros, micros < 0
    missing = column.is_null().to_numpy(zero_copy_only=False)
    if pa.types.is_floating(column.type):
        seconds = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
        wrong = missing | ~((seconds >= 0) & (seconds < _MAX_SECONDS))
        return np.where(wrong, 0, np.where(wrong, 0, seconds) * MICROS).astype(np.int64), wrong
    if pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("s"))
    per_second = _PER_SECOND[column.type.unit] if pa.types.is_timestamp(column.type) else 1
    if pa.types.is_uint64(column.type):
        column = pc.min_element_wise(column, pa.scalar(_MAX_SECONDS, pa.uint64()))
        missing = column.is_null().to_numpy(zero_copy_only=False) | missing
    counts = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    wrong = missing | (counts < 0) | (counts // per_second >= _MAX_SECONDS)
    inside = np.where(wrong, 0, counts)
    return inside * (MICROS // per_second) if per_second <= MICROS else inside // (per_second // MICROS), wrong


def parse_moment(text: str) -> int:
    """Read a moment as microseconds after 1 January 1970, UTC; -1 if it is not a moment."""
    try:
        # 20261014 is a date, not seconds, which would be in 1970.
        is_date = len(text) == 8 and text.isdigit() and text[:2] in ("19", "20")
        if text.isascii() and text.replace(".", "", 1).isdigit() and not is_date:
            seconds = float(text)
            return int(seconds * MICROS) if seconds < _MAX_SECONDS else -1
        moment = datetime.fromisoformat(text)
        since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    except (ValueError, OverflowError):
        return -1
    micros = (since.days * DAY_SECONDS + since.seconds) * MICROS + since.microseconds
    return micros if 0 <= micros < _MAX_SECONDS * MICROS else -1


# --- Released tables: types that Parquet and CSV both bring back, and text that no spreadsheet runs

# Spreadsheets in East Asian languages also run the wide forms of = + - @.
RUNS_IN_SPREADSHEET = r"^[=+\-@\t\r\n\x{FF1D}\x{FF0B}\x{FF0D}\x{FF20}]"
PLAIN_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
MAX_SHEET_ROWS = 1_048_576  # of Excel, including the header
SET_TYPE = pa.list_(pa.string())  # a column of sets of labels
COUNTS_TYPE = pa.list_(pa.int64())  # how often each label of a set occurs


def portable(table: pa.Table) -> pa.Table:
    """Give columns types that Parquet and CSV both restore, and drop metadata, which nobody checks."""
    schema = [pa.field(item.name, _portable_type(item.type)) for item in table.schema]
    return table.cast(pa.schema(schema)).replace_schema_metadata(None)


def _portable_type(kind: pa.DataType) -> pa.DataType:
    if is_set(kind):
        return SET_TYPE if is_text(kind.value_type) else COUNTS_TYPE
    if pa.types.is_timestamp(kind) and kind.unit == "s":
        return pa.timestamp("ms", kind.tz)
    if pa.types.is_decimal(kind) and kind.precision <= 38:
        return pa.decimal128(kind.precision, kind.scale)
    plain = {"date64[ms]": pa.date32(), "halffloat": pa.float32(), "time32[s]": pa.time32("ms")}
    return {**plain, "large_string": pa.string(), "string_view": pa.string()}.get(str(kind), kind)


def escape_text(column: pa.Array) -> pa.Array:
    """Put a quote before text that a spreadsheet would run; plain numbers do not change."""
    runs = pc.match_substring_regex(column, RUNS_IN_SPREADSHEET)
    number = pc.match_substring_regex(column, PLAIN_NUMBER)
    return pc.if_else(pc.and_(runs, pc.invert(number)), pc.binary_join_element_wise("'", column, ""), column)


def is_set(kind: pa.DataType) -> bool:
    is_list = bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))
    return is_list and (is_text(kind.value_type) or pa.types.is_integer(kind.value_type))


def set_text(column: pa.Array) -> pa.Array:
    """Write sets as texts such as ``{A,B}``; a backslash before marks inside a label keeps different sets different."""
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([set_text(column.combine_chunks())])
    labels = pc.replace_substring_regex(column.flatten().cast(pa.string()), r"([\\,{}])", r"\\\1")
    # New offsets from 0: those of a slice begin elsewhere.
    ends = np.concatenate(([0], np.cumsum(pc.list_value_length(column).to_numpy(zero_copy_only=False))))
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(ends, pa.int32()), labels), ",")
    return pc.binary_join_element_wise("{", joined, "}", "")


def as_text(column: pa.Array) -> pa.Array:
    """Return a column of sets or texts as it is in CSV, any other column unchanged."""
    if is_set(column.type):
        return set_text(column)
    return escape_text(column) if is_text(column.type) else column


def write_csv(table: pa.Table, sink: Path | BinaryIO, *, header: bool = True) -> None:
    """Write CSV that a spreadsheet can open without running anything."""
    for index, item in enumerate(table.schema):
        table = table.set_column(index, item.name, as_text(table.column(index)))
    options = pacsv.WriteOptions(include_header=header)
    pacsv.write_csv(table, str(sink) if isinstance(sink, Path) else sink, options)


def write_workbook(folder: str | os.PathLike[str], path: str | os.PathLike[str]) -> list[str]:
    """Write the tables of a release, plan or settlement as sheets of an Excel workbook; return their names."""
    try:
        import xlsxwriter
    except ImportError:
        raise ParameterError("writing Excel needs XlsxWriter. Install it: pip install 'dunnage[excel]'.") from None
    place, target = Path(folder), Path(path)
    files = sorted(place.glob("*.csv"))
    if not files or not any((place / name).is_file() for name in ("certificate.json", "plan.json", "settlement.json")):
        raise ParameterError(f"{place} is not the folder of a release, plan or settlement. Only these have tables.")
    if target.suffix.lower() != ".xlsx" or os.path.lexists(target):
        what = "already exists" if os.path.lexists(target) else "does not end in .xlsx"
        raise OutputError(f"{target} {what}. Choose another name.")
    content = io.BytesIO()
    # Text stays text: no cell becomes a formula or a link.
    with xlsxwriter.Workbook(content, {"strings_to_formulas": False, "strings_to_urls": False}) as book:
        for file in files:
            table = read_table(file, ReadOptions()).table
            if table.num_rows >= MAX_SHEET_ROWS:
                raise ParameterError(f"{file} has more than {MAX_SHEET_ROWS - 1:,} rows, too many for Excel.")
            sheet = book.add_worksheet(file.stem[:31])
            sheet.write_row(0, 0, table.column_names)
            sheet.freeze_panes(1, 0)
            for number, column in enumerate(table.columns):
                sheet.write_column(1, number, _as_numbers(column).to_pylist())
    with new_file(target, private=(place / "settlement.json").is_file()) as stream:  # for its owner only
        stream.write(content.getvalue())
    return [file.stem for file in files]


def _as_numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of text as numbers if no character is lost: 007 stays text."""
    text = pc.if_else(pc.equal(column, ""), None, column)
    for kind in (pa.int64(), pa.float64()):
        with contextlib.suppress(pa.ArrowInvalid):
            numbers = text.cast(kind)
            if numbers.cast(pa.string()).equals(text):
                return numbers
    return column
