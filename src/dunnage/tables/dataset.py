# SPDX-License-Identifier: Apache-2.0
"""Dataset: the only type with private rows.

A dataset is made from an Arrow table and a policy. Every declared column is normalised and checked. One error reports
all problems; it names rows and columns, never values. If the policy says ``together``, rows are then merged into
records.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, fields, replace
from datetime import date
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dunnage.arrays import BoolArray, FloatArray, IntArray
from dunnage.errors import InputError, InternalError, ParameterError, Problem
from dunnage.exact import nearest_float, shown
from dunnage.model.documents import close_word, suggestion
from dunnage.model.domains import DAY_SECONDS, Graph, Numeric, Stops, Tree, Windows, decimal_scale, split_stamps
from dunnage.model.guarantees import SpendPurpose
from dunnage.model.hierarchies import Prefixes
from dunnage.model.periods import LABEL, DateFormat, dates_of, length_of, period_of
from dunnage.model.policy import PeriodRule, Policy, Written
from dunnage.model.schema import Attribute, Role, Schema
from dunnage.release import TIMES, product
from dunnage.tables import reader
from dunnage.tables.columns import (
    Private,
    TimeReadings,
    decoded,
    is_text,
    iso_times,
    mask_of,
    null_words,
    numbers_of_text,
    read_times,
)
from dunnage.text import percent, several

if TYPE_CHECKING:
    from dunnage.model.draft import LikeDraft

NO_VALUE, OUTSIDE, UNREADABLE = "missing value", "outside the domain", "cannot be read"  # Reasons to leave out a row
_FIRST_INEXACT = 2.0**53
Words = NDArray[np.uint64]
_INEXACT = "2^53 or more, where whole numbers are no longer exact"
_OUTSIDE = "lies outside the public domain"
_LEAVE_OUT = 'or set outside = "leave-out".'
_NUMBER_REMEDY = 'Widen the domain, or set outside = "leave-out" or "clamp".'
_LABEL_REMEDIES = {
    Stops.kind: "Add it to the stops file",
    Tree.kind: "Add it to the hierarchy",
    Graph.kind: "Add it to the edges",
}
_PAST_MIDNIGHT_REMEDY = "Write 2026-11-15T25:30 as 2026-11-16T01:30, or as 25:30 alone if days do not matter."
_EXTRA_HOUR = "lies in the 25th hour of a service day on which clocks were put back, which no domain has,"
_MEND = 'Fix the cells, or set unreadable = "leave-out".'
_FORMAT_REMEDY = 'Fix the cells or format in the policy, or set unreadable = "leave-out".'
_NO_FORMAT_REMEDY = (
    'Fix the cells, say how dates are written: format = "day.month.year", or set unreadable = "leave-out".'
)
_ASTRAY = 'states its difference from UTC, but the policy names no time zone (such as zone = "Europe/Madrid"),'
_DATED = r"^\d{4}-(W\d{2}|\d{2}(-\d{2}([T ]\d{2}:\d{2}.*)?)?)$"


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Parts(Private):
    """The source rows of each record, record by record."""

    table: pa.Table  # The checked rows; those of one record are neighbours
    source_rows: IntArray  # Number of each in the source
    starts: IntArray  # The first row of each record, and the end of the last

    def __len__(self) -> int:
        return len(self.starts) - 1

    @cached_property
    def records(self) -> IntArray:
        return np.repeat(np.arange(len(self)), np.diff(self.starts))

    def column(self, name: str) -> pa.Array:
        return self.table.column(name).combine_chunks()

    def of(self, records: IntArray) -> tuple[IntArray, IntArray]:
        """Return the rows of some records, in their order: the index of the record, and the position of the row."""
        sizes = np.diff(self.starts)[records]
        which = np.repeat(np.arange(len(records)), sizes)
        shifts = self.starts[records] - (np.cumsum(sizes) - sizes)
        return which, np.arange(len(which)) + np.repeat(shifts, sizes)

    def take(self, records: IntArray) -> Parts:
        which, positions = self.of(records)
        starts = np.concatenate(([0], np.cumsum(np.bincount(which, minlength=len(records))))).astype(np.int64)
        return Parts(table=self.table.take(pa.array(positions)), source_rows=self.source_rows[positions], starts=starts)

    def records_of(self, source_rows: IntArray) -> IntArray:
        """Return the record of each row of the source; -1 if it has none."""
        order = np.argsort(self.source_rows)
        places = order[np.searchsorted(self.source_rows[order], source_rows).clip(max=len(order) - 1)]
        return np.where(self.source_rows[places] == source_rows, self.records[places], -1)


@dataclass(frozen=True, eq=False, repr=False)
class Original(Private):
    """Rows as they were read, before any check or change."""

    table: pa.Table  # Some or all columns: text from a CSV file, otherwise with their own types
    source_rows: IntArray  # Number of each row in the source, rising

    def take(self, source_rows: IntArray) -> pa.Table:
        return self.table.take(pa.array(np.searchsorted(self.source_rows, source_rows)))


class LeftOut(Private, dict[int, tuple[str, str]]):
    """The source rows that a policy leaves out: why, and the column it is about."""

    def add(self, source_rows: IntArray, reason: str, column: str) -> None:
        for row in source_rows.tolist():
            self.setdefault(row, (reason, column))


class Dataset:
    """Private rows with their policy and period. Its ``repr`` shows no row, count or value.

    Use :func:`dunnage.load` or :meth:`from_table`.

    Attributes
    ----------
    policy, schema, period
        The rules for the rows.
    source
        The file or frame that they come from.
    parts
        The source rows of each record: one, unless the policy says ``together``.
    source_rows
        For each record, the number of its first row in the source; 1 is the first line below the header.
    left_out, num_left_out
        The source rows that the policy left out, with the reasons, and how many they are; for the owner only.
    original
        Cells as they were read, for lists of the owner: identifiers and the columns of ``[loading]``; all columns if
        the policy keeps rows that are not released for the next time.
    """

    elsewhere = False  # whether the rows stay where they live: :mod:`dunnage.engines`
    folded: Any = None  # then, what the fold of the policy's mechanism gave
    _as_read: tuple[pa.Table, IntArray] | None = None  # all cells before any rule, and which rows are of the period

    def __init__(
        self,
        *,
        table: pa.Table,
        policy: Policy,
        period: str | None,
        source: str,
        parts: Parts,
        original: Original,
        left_out: LeftOut | None = None,
    ) -> None:
        self._table = table
        self.original = original
        self.policy, self.schema = policy, policy.schema
        self.period = period
        self.source = source
        self.parts = parts
        self.source_rows = parts.source_rows[parts.starts[:-1]]
        self.left_out = left_out or LeftOut()
        self.num_left_out = len(self.left_out)

    @property
    def cuts(self) -> Sequence[int]:
        """The first row of each batch of which there is a digest, where rows live elsewhere."""
        return ()

    def draw_rows(self, maker: Any, noise: Any, classes: Any = None) -> Any:
        """Release rows that stay where they live."""
        raise InternalError("these rows are here.")

    def sort_rows(self, sorting: Any) -> Any:
        """Bring rows together that stay where they live."""
        raise InternalError("these rows are here.")

    def fold_rows(self, fold: Any) -> Any:
        """Fold rows once more that stay where they live."""
        raise InternalError("these rows are here.")

    def under(self, policy: Policy) -> Dataset:
        """Return the same rows under a policy that reads the same columns in the same way."""
        other = copy(self)
        other.policy, other.schema = policy, policy.schema
        return other

    @classmethod
    def from_table(
        cls,
        table: pa.Table,
        policy: Policy,
        *,
        period: str | None = None,
        source: str = "frame",  # its name in errors
        rows: IntArray | None = None,  # position of each row in the source, from 0, if reading had to skip some
        problems: Sequence[Problem] = (),  # of reading, to report together with the rest
    ) -> Dataset:
        """Check a table against a policy and keep what the policy allows; one :class:`InputError` has all problems."""
        # Rows that `together` cannot merge are reported once every row is in order.
        check_period(policy, period)
        # Rows get their numbers here and in :mod:`dunnage.engines`: errors, keys, lists and audits repeat them.
        numbers = reader.FIRST_ROW + (np.arange(table.num_rows, dtype=np.int64) if rows is None else rows)
        checked = check_rows(table, policy, period, source=source, numbers=numbers)
        if faults := [*problems, *column_problems(table.column_names, policy.schema), *checked.faults.values()]:
            raise InputError(source, faults)
        columns, left_out = pa.table(checked.columns), checked.left_out
        records, parts = _records(columns, checked.rows, checked.keep, policy.schema, source, left_out)
        cells = table if policy.mechanism.get("left_out") == "pool" else table.select(policy.listed_columns)
        dataset = cls(
            table=records,
            policy=policy,
            period=period,
            source=source,
            parts=parts,
            left_out=left_out,
            original=Original(cells, numbers),
        )
        dataset._as_read = table, np.searchsorted(numbers, checked.rows)
        return dataset

    def __repr__(self) -> str:
        names = ", ".join(a.name for a in self.schema)
        return f"Dataset({self.policy.dataset!r}, period={self.period!r}, attributes=[{names}])"

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def require_rows(self) -> None:
        """Refuse a dataset without records. Only what may depend on records calls it: others release it too."""
        if len(self):
            return
        what, remedy = "has a header but no rows", "Add at least one row."
        if self.left_out:
            what, remedy = "no row is left, because all were left out", "Check missing, outside and unreadable."
        elif len(self.original.source_rows):
            what, remedy = f"has no row of period {self.period}", "Check --period."
        raise InputError(self.source, [Problem(what, remedy=remedy)])

    @cached_property
    def purpose(self) -> SpendPurpose:
        return replace(self.policy.purpose(self.period), row_digests=self.row_digests)

    def column(self, name: str) -> pa.Array:
        """Return one column, one value for each record; identifiers of merged rows are in ``parts``."""
        return self._table.column(name).combine_chunks()

    def numbers(self, name: str) -> FloatArray:
        """Return a column of numbers, or the product of several, as a release names it."""
        if name not in self._table.column_names and len(parts := name.split(TIMES)) > 1:
            return product(map(self.numbers, parts))
        values: FloatArray = self.column(name).to_numpy(zero_copy_only=False)
        return values

    def label_times(self, name: str) -> IntArray:
        """Return how often each label of a column occurs, in any order."""
        times: IntArray = self.column(name).value_counts().field("counts").to_numpy()
        return times

    @cached_property
    def persons(self) -> IntArray | None:
        """The number of the person of each record, from 0; None if the policy does not name persons."""
        if self.schema.person is None:
            return None
        codes: IntArray = self.rider_labels().indices.to_numpy(zero_copy_only=False).astype(np.int64)
        return codes

    def rider_labels(self) -> pa.DictionaryArray:
        """Return who each record is of."""
        column = self.column(str(self.schema.person))
        # A space after a name does not make another person.
        return _coded(pc.utf8_trim_whitespace(column) if is_text(column.type) else column)

    def cells(self, source_rows: IntArray, names: Sequence[str]) -> dict[str, pa.Array]:
        """Return columns of a list for the owner, as they were read, for some rows of the source."""
        places = pa.array(np.searchsorted(self.original.source_rows, source_rows))
        columns = {name: self.original.table.column(name).combine_chunks() for name in names}
        return {name: decoded(column).take(places) for name, column in columns.items()}

    @property
    def trip_groups(self) -> IntArray | None:
        """The number of the group of each trip that a bound limits: its rider, or its rider and service day."""
        bound, riders = self.schema.contribution, self.persons
        if bound is None or riders is None or bound.per == "period":
            return None if bound is None else riders
        ordinals = self.service_dates
        return riders * (int(ordinals.max(initial=0)) + 1) + ordinals

    @property
    def service_dates(self) -> IntArray:
        """The number of the service date of each trip; 0 for a time without a date."""
        trip = self.schema.trip
        assert trip is not None  # rows are trips
        ordinals, _ = split_stamps(self.column(trip.time).to_numpy(zero_copy_only=False))
        return ordinals

    @cached_property
    def _fingerprints(self) -> tuple[bytes, bytes] | None:
        if self._as_read is None or not len(self._as_read[1]):
            return None
        table, rows = self._as_read
        return fingerprints(table if len(rows) == table.num_rows else table.take(pa.array(rows)))

    def row_digests(self, key: bytes) -> tuple[str, str] | None:
        """Return digests of the rows as they were read, in this order and in any order; None without rows."""
        # They are of cells before any rule, so that another policy, which drops or rounds, does not hide the rows.
        if self._fingerprints is None:
            return None
        in_order, in_any_order = (hmac.digest(key, one, "sha256").hex() for one in self._fingerprints)
        return in_order, in_any_order

    def keyed_digest(self, key: bytes) -> str:
        """Return a digest of all rows that only the owner of the key can compute."""
        state = hmac.new(key, digestmod=hashlib.sha256)
        numbers = self.parts.source_rows - reader.FIRST_ROW  # as keys of 0.1.0 have them
        state.update(np.ascontiguousarray(numbers).tobytes())
        if self.schema.together is not None:
            state.update(b"together\0" + self.parts.starts.tobytes())
        for name in sorted(self.parts.table.column_names):
            state.update(name.encode() + b"\0")
            for piece in _content(self.parts.column(name)):
                state.update(piece)
        return state.hexdigest()

    def digest_at(self, key: bytes, cuts: Sequence[int]) -> str:
        """Return the digest of rows that were released elsewhere, in batches that begin at these source rows."""
        rows, starts = self.parts.source_rows, self.parts.starts
        if len(starts) != len(rows) + 1:
            return ""  # rows are merged only in memory
        ends, digests = np.searchsorted(rows, [*cuts, sys.maxsize]), []
        for first, (start, end) in zip(cuts, pairwise(ends.tolist()), strict=True):
            digests.append((first, content_digest(self.parts.take(np.arange(start, end)))))
        return batches_digest(key, digests)


def content_digest(parts: Parts) -> bytes:
    """Return a digest of rows and their numbers."""
    state = hashlib.sha256(np.ascontiguousarray(parts.source_rows).tobytes())
    for name in sorted(parts.table.column_names):
        state.update(name.encode() + b"\0")
        for piece in _content(parts.column(name)):
            state.update(piece)
    return state.digest()


def batches_digest(key: bytes, digests: Iterable[tuple[int, bytes]]) -> str:
    content = b"".join(first.to_bytes(8, "little") + digest for first, digest in sorted(digests))
    return hmac.digest(key, b"batches\0" + content, "sha256").hex()


def check_period(policy: Policy, period: str | None) -> None:
    if policy.period is not None:
        policy.period.check(period)
    elif period is not None:
        raise ParameterError(f"period {shown(period)} has no meaning without [period] in the policy. Leave it out.")


class RowCheck(NamedTuple):
    """Rows of a table, normalised, and everything that is wrong with them."""

    columns: dict[str, pa.Array]  # of the rows of the period
    rows: IntArray  # the number of each in the source
    keep: BoolArray  # which of them the policy does not leave out
    left_out: LeftOut
    faults: dict[tuple[int, int], Problem]  # by their place among all messages, in this order


def check_rows(table: pa.Table, policy: Policy, period: str | None, *, source: str, numbers: IntArray) -> RowCheck:
    """Check and normalise each row on its own, so that parts of a table can be checked one after the other."""
    left_out = LeftOut()
    chosen, problems = _rows_of_period(table, numbers, policy, period, left_out)
    faults = {(-1, place): problem for place, problem in enumerate(problems)}
    rows, columns, times = numbers[chosen], dict[str, pa.Array](), Counter(table.column_names)
    keep = np.ones(len(rows), dtype=bool)
    for place, attribute in enumerate(policy.schema):
        if attribute.role is Role.DROP or times[attribute.name] != 1:
            continue
        column, where = table.column(attribute.name), _named(attribute.name)
        try:
            values = decoded(column.combine_chunks())
            values = values if chosen.all() else values.filter(pa.array(chosen))
            part = attribute
            if attribute.merged == "sum":  # a row may be anything from nothing to the whole
                nothing, whole = Fraction(0), attribute.numeric
                domain = Numeric(lower=min(whole.lower, nothing), upper=max(whole.upper, nothing))
                part = replace(attribute, domain=domain)
            checked = _normalise(values, part, policy, period)
        except pa.ArrowException:  # its text may quote cells, so do not repeat it
            fault = _type_problem(column.type, where)
            if attribute.kind == Windows.kind and source.lower().endswith(reader.EXCEL_ENDINGS):
                remedy = "Give the cells a date or time format in the workbook, or use text."
                fault = replace(fault, remedy=remedy)
            faults[place, -1] = fault
            continue
        columns[attribute.name] = checked.values
        missing = "has no value"
        if policy.schema.contribution is not None and policy.schema.contribution.person == attribute.name:
            missing += ", so the rider of these trips is unknown and cannot be protected,"
        of_column = [(attribute.unreadable, UNREADABLE, fault) for fault in checked.unreadable]
        remedy = 'Fill it in, or set missing = "leave-out".'
        of_column.append((attribute.missing, NO_VALUE, _Fault(checked.missing, missing, remedy)))
        of_column += [(attribute.outside, OUTSIDE, fault) for fault in checked.outside]
        for number, (rule, reason, (mask, what, remedy)) in enumerate(of_column):
            if rule == "leave-out":
                left_out.add(rows[mask], reason, attribute.name)
                keep &= ~mask
            elif rule == "refuse" and mask.any():
                faults[place, number] = Problem.in_rows(what, rows[mask], where=where, remedy=remedy)
    for place, name in enumerate(policy.loading.columns, len(policy.schema.attributes)):
        if times[name] == 1:
            try:
                decoded(table.column(name).combine_chunks()).slice(0, 1).cast(pa.string())
            except pa.ArrowException:  # no list can show it
                faults[place, -1] = _type_problem(table.column(name).type, _named(name))
    return RowCheck(columns, rows, keep, left_out, faults)


_BOUNDS = (1, 2, 3, 5, 10, 20, 50, 100)


def dropped_shares(sizes: IntArray, *chosen: int) -> dict[int, float]:
    """Return the share of trips that each bound on the trips of a rider would drop, up to one that drops none."""
    enough = next((bound for bound in _BOUNDS if bound >= sizes.max(initial=0)), _BOUNDS[-1])
    needed = sorted({*chosen, *(bound for bound in _BOUNDS if bound <= enough)})
    return {bound: float(np.maximum(sizes - bound, 0).sum() / max(1, sizes.sum())) for bound in needed}


def dropped_text(shares: Mapping[int, float], chosen: int | None = None) -> str:
    each = (f"{bound}{' (yours)' if bound == chosen else ''}: {percent(share)}" for bound, share in shares.items())
    return f"share of the trips that [contribution] max would drop, {'; '.join(each)}"


def bound_preview(data: Dataset) -> str | None:
    """Say what bounds on the trips of a rider would drop; None if the policy sets none. Private."""
    groups, bound = data.trip_groups, data.schema.contribution
    if groups is None or bound is None:
        return None
    return dropped_text(dropped_shares(np.unique(groups, return_counts=True)[1], bound.max), bound.max)


def _records(
    table: pa.Table, rows: IntArray, keep: BoolArray, schema: Schema, source: str, left_out: LeftOut
) -> tuple[pa.Table, Parts]:
    """Make records from checked rows. Shapes: n rows, m of them kept -> a table of records, and parts (m rows)."""
    if schema.together is None:
        kept = table.filter(pa.array(keep))
        return kept, Parts(table=kept, source_rows=rows[keep], starts=np.arange(len(kept) + 1))
    # If one row is left out, its whole group is: the rest would be planned too light.
    codes = _codes(table.column(schema.together).combine_chunks())
    broken = np.zeros(int(codes.max(initial=-1)) + 1, dtype=bool)
    broken[codes[~keep]] = True
    left_out.add(rows[broken[codes]], "travels with a row that is left out", schema.together)
    whole = np.flatnonzero(~broken[codes])
    # Codes, and so records, are numbered by their first appearance.
    _, group = np.unique(codes[whole], return_inverse=True)
    order = whole[np.argsort(group, kind="stable")]
    starts = np.concatenate(([0], np.cumsum(np.bincount(group)))).astype(np.int64)
    parts = Parts(table=table.take(pa.array(order)), source_rows=rows[order], starts=starts)
    lost = np.zeros(len(parts), dtype=bool)
    columns: dict[str, pa.Array | FloatArray] = {}
    problems: list[Problem] = []

    def apply(rule: str, reason: str, what: str, column: str, mask: BoolArray, remedy: str) -> None:
        affected = np.sort(parts.source_rows[mask[parts.records]])
        if rule == "leave-out":
            left_out.add(affected, reason, column)
            lost[mask] = True
        elif rule == "refuse" and len(affected):
            problems.append(Problem.in_rows(what, affected, where=_named(column), remedy=remedy))

    for attribute in schema:
        name = attribute.name
        if attribute.merged == "sum":
            # Add up a column by record, in decimals: 0.1 and 0.2 make 0.3.
            values = parts.column(name).to_numpy(zero_copy_only=False)
            # Sums of whole numbers below 2^53 are exact at every step, and one division rounds once.
            firsts, scale = parts.starts[:-1], decimal_scale(values) if len(values) else None
            whole = values if scale is None else np.rint(values * scale)
            small = scale is not None and bool((np.add.reduceat(np.abs(whole), firsts) < _FIRST_INEXACT).all())
            if scale is not None and small and (whole / scale == values).all():
                sums = np.asarray(np.add.reduceat(whole, firsts) / scale)
            else:
                sums = values[firsts]
                for record in np.flatnonzero(np.diff(parts.starts) > 1).tolist():
                    terms = values[parts.starts[record] : parts.starts[record + 1]].tolist()
                    sums[record] = nearest_float(sum((Fraction(repr(term)) for term in terms), Fraction()))
            outside = ~attribute.numeric.contains(sums)
            inexact = (np.abs(sums) >= _FIRST_INEXACT) & ~outside
            apply(attribute.unreadable, UNREADABLE, f"adds up to {_INEXACT}", name, inexact, "Use a larger unit.")
            if attribute.outside == "clamp":
                sums = np.where(outside, attribute.numeric.clamp(sums), sums)
            beyond = "adds up to a value outside the public domain"
            apply(attribute.outside, OUTSIDE, beyond, name, outside, _NUMBER_REMEDY)
            columns[name] = sums
        elif attribute.merged == "same" or name in (schema.together, schema.person):
            column = parts.column(name)
            columns[name] = column.take(pa.array(parts.starts[:-1]))
            codes = _codes(column)
            differs = np.zeros(len(parts), dtype=bool)
            differs[parts.records[codes != codes[parts.starts[:-1]][parts.records]]] = True
            what = f"differs between rows that share a value of {schema.together!r}"
            remedy = 'Make it the same, give it the role "identifier" or "drop", or merge fewer rows.'
            apply(attribute.unreadable, "differs within what travels together", what, name, differs, remedy)
    if problems:
        raise InputError(source, problems)
    return pa.table(columns).filter(pa.array(~lost)), parts.take(np.flatnonzero(~lost))


def _codes(column: pa.Array) -> IntArray:
    """Give equal values equal numbers, in the order of their first appearance."""
    codes: IntArray = _coded(column).indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes


def _coded(column: pa.Array) -> pa.DictionaryArray:
    if pa.types.is_floating(column.type):
        column = pc.add(column.cast(pa.float64()), 0.0)  # negative zero is zero
    if pa.types.is_decimal(column.type) and column.type.bit_width < 128:
        column = column.cast(pa.decimal128(column.type.precision, column.type.scale))
    return column.dictionary_encode(null_encoding="encode")


def _content(column: pa.Array) -> Iterator[Any]:
    """Yield the content of a column in a form that is independent of its storage."""
    if pa.types.is_floating(column.type):
        yield column.to_numpy(zero_copy_only=False).tobytes()
        return
    text = pc.fill_null(column.cast(pa.large_string()), "")
    _, offsets, content = text.buffers()
    ends = np.frombuffer(offsets, dtype=np.int64)[text.offset : text.offset + len(text) + 1]
    yield np.diff(ends).tobytes()
    if content is not None:
        yield memoryview(content)[ends[0] : ends[-1]]


_LANES = (0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93)  # two odd numbers, each for 64 of 128 bits
_CHUNK_BYTES, _SAMPLE = 1 << 21, 4096


def _mixed(values: Words) -> Words:
    """Spread each bit over all others (splitmix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _text_hashes(texts: pa.Array) -> list[Words]:
    """Return hashes of each text, by lane: its bytes as digits of a number in an odd base, modulo 2^64."""
    _, offsets, content = texts.buffers()
    ends = np.frombuffer(offsets, dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]
    lengths, hashes = np.diff(ends), [np.zeros(len(texts), dtype=np.uint64) for _ in _LANES]
    if content is None or not len(texts) or ends[-1] == ends[0]:
        return hashes
    data = np.frombuffer(content, dtype=np.uint8)
    powers = [
        np.cumprod(np.append(np.uint64(1), np.full(int(lengths.max()), lane, dtype=np.uint64))) for lane in _LANES
    ]
    first = 0
    while first < len(texts):  # a few megabytes at a time
        last = max(first + 1, int(np.searchsorted(ends, ends[first] + _CHUNK_BYTES)) - 1)
        some = np.flatnonzero(lengths[first:last]) + first
        if len(some):
            starts = ends[some] - ends[some[0]]
            total = int(lengths[some].sum())
            place = np.arange(total) - np.repeat(starts, lengths[some])
            digits = data[ends[some[0]] : ends[some[0]] + total].astype(np.uint64) + np.uint64(1)
            for own, power in zip(hashes, powers, strict=True):
                own[some] = np.add.reduceat(digits * power[place], starts)
        first = last
    for own, power in zip(hashes, powers, strict=True):
        own += lengths.astype(np.uint64) * power[-1]
    return hashes


def fingerprints(table: pa.Table) -> tuple[bytes, bytes]:
    """Return fingerprints of the rows of a table, in their order and in any order, whatever the order of columns."""
    # They recognise rows that did not change; they are no digest that withstands somebody who looks for collisions.
    lanes = [np.zeros(table.num_rows, dtype=np.uint64) for _ in _LANES]
    for name, column in zip(table.column_names, table.columns, strict=True):
        seed = np.uint64(int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big"))
        values = decoded(column.combine_chunks())
        missing = mask_of(pc.is_null(values))
        if pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
            numbers = pc.fill_null(values, 0).to_numpy(zero_copy_only=False)
            hashes = [numbers.astype(np.float64 if numbers.dtype.kind == "f" else np.int64).view(np.uint64)] * len(
                lanes
            )
        else:
            texts = pc.fill_null(values.cast(pa.large_string()), "")
            if 2 * pc.count_distinct(texts[:_SAMPLE]).as_py() > min(len(texts), _SAMPLE):
                hashes = _text_hashes(texts)
            else:  # few distinct texts
                encoded = texts.dictionary_encode()
                places = encoded.indices.to_numpy(zero_copy_only=False)
                hashes = [own[places] for own in _text_hashes(encoded.dictionary)]
        for lane, (rows, own) in enumerate(zip(lanes, hashes, strict=True)):
            rows += _mixed(_mixed(own ^ seed) + missing.astype(np.uint64) * np.uint64(_LANES[lane]))
    lanes = [_mixed(rows) for rows in lanes]
    in_order = hashlib.sha256(b"".join(lane.tobytes() for lane in lanes)).digest()
    sums = b"".join(int(lane.sum(dtype=np.uint64)).to_bytes(8, "big") for lane in lanes)
    return in_order, len(lanes[0]).to_bytes(8, "big") + sums


def column_problems(names: list[str], schema: Schema) -> list[Problem]:
    times, declared = Counter(names), {a.name for a in schema}
    absent = [a.name for a in schema if a.name not in times]
    what = "is declared in the policy, but is not in the data"
    if len(absent) == len(declared):
        # The first line may be a record instead of a header: name nothing of it except close matches.
        check = "Check that the first line is a header, and check delimiter and encoding in [read]."
        return [Problem(what, where=_named(name), remedy=close_word(name, times) or check) for name in absent]
    problems = [Problem(what, where=_named(name), remedy=suggestion(name, times)) for name in absent]
    for name, number in times.items():
        if number > 1:
            problems.append(Problem(f"appears {number} times", where=_named(name), remedy="Rename or remove some."))
        if name not in declared:
            remedy = 'Declare it; role = "drop" leaves it out.'
            problems.append(Problem("is not declared in the policy", where=_named(name), remedy=remedy))
    return problems


def _named(column: str) -> str:
    return f"column {column!r}"


def _rows_of_period(
    table: pa.Table, rows: IntArray, policy: Policy, period: str | None, left_out: LeftOut
) -> tuple[BoolArray, list[Problem]]:
    """Select the rows of the requested period. Shapes: table of n rows -> mask of n rows."""
    rule, trip = policy.period, policy.schema.trip
    if rule is None or period is None or rule.column is None or table.column_names.count(rule.column) != 1:
        return np.ones(table.num_rows, dtype=bool), []
    column, where = table.column(rule.column), _named(rule.column)
    by_service_day = trip is not None and trip.time == rule.column
    try:
        cells = decoded(column.combine_chunks())
        if by_service_day:  # a trip past midnight belongs to the service day before
            domain = policy.schema.time
            readings = read_times(cells, domain, policy.read_options.null or (), policy.schema[rule.column].format)
            dates = dates_of(period)
            assert dates is not None  # a label cannot be about times
            ordinals, _ = split_stamps(readings.stamps)
            blank, unreadable = readings.missing, readings.missing | readings.unreadable | readings.undated
            # A time of an unknown zone may have any date; it must be fixed whatever the period.
            chosen = ((ordinals >= dates.start) & (ordinals < dates.stop) & ~unreadable) | readings.astray
        else:
            periods, blank = _periods(cells, rule, policy.read_options.null or ())
            chosen, unreadable = mask_of(pc.fill_null(pc.equal(periods, period), False)), mask_of(pc.is_null(periods))
    except pa.ArrowException:
        return np.zeros(table.num_rows, dtype=bool), [_type_problem(column.type, where)]
    # Rows that are in no period: every period names them.
    if policy.schema[rule.column].missing == "leave-out":
        left_out.add(rows[blank], NO_VALUE, rule.column)
        unreadable &= ~blank
    if policy.schema[rule.column].unreadable == "leave-out":
        left_out.add(rows[unreadable & ~blank], UNREADABLE, rule.column)
        unreadable &= blank
    if unreadable.any():
        form = rule.format or (policy.schema[rule.column].format if by_service_day else None)
        remedy = _FORMAT_REMEDY if form else _NO_FORMAT_REMEDY
        clock = " with a time of day up to 23:59" if by_service_day else ""
        what = f"has no date ({form or 'year-month-day'}){clock}"
        if rule.length == LABEL:
            what, remedy = "has no label of a period", _MEND
        return chosen, [Problem.in_rows(what, rows[unreadable], where=where, remedy=remedy)]
    return chosen, []


def _periods(column: pa.Array, rule: PeriodRule, words: Sequence[str]) -> tuple[pa.Array, BoolArray]:
    """Return the period of each row as text, null if it has none, and which cells are blank."""
    if rule.length != LABEL and (pa.types.is_date(column.type) or pa.types.is_timestamp(column.type)):
        column = pc.strftime(column, format="%Y-%m-%d")
    elif rule.format is not None:
        column = iso_times(column.cast(pa.string()), DateFormat(rule.format), words)
    text = pc.utf8_trim_whitespace(column.cast(pa.string()))
    blank = mask_of(null_words(text, words))
    if rule.length == LABEL:
        return pc.if_else(pa.array(blank), None, text), blank
    dated = pc.if_else(pc.match_substring_regex(text, _DATED), text, None)
    days = pc.utf8_slice_codeunits(dated, 0, 10).dictionary_encode()
    periods: list[str | None] = []
    for day in days.dictionary.to_pylist():  # a day, or a period already; not necessarily in the calendar
        try:
            dates = dates_of(day)
            assert dates is not None
            whole = length_of(day) == rule.length
            periods.append(day if whole else period_of(date.fromordinal(dates.start), rule.length))
            if not whole and len(dates) > 1:  # a month has no one day or week
                periods[-1] = None
        except ParameterError:
            periods.append(None)
    return pa.array(periods, pa.string()).take(days.indices), blank


class _Fault(NamedTuple):
    mask: BoolArray
    what: str
    remedy: str = _MEND


class _Checked(NamedTuple):
    """A normalised column and its problems; the attribute says what to do about ``missing`` and ``outside``."""

    values: pa.Array
    missing: BoolArray
    outside: Sequence[_Fault] = ()
    unreadable: Sequence[_Fault] = ()


def _type_problem(kind: pa.DataType, where: str) -> Problem:
    remedy = "Convert it to UTF-8 text, numbers or dates, depending on its kind."
    return Problem(f"has type {kind}, which does not fit, or is damaged", where=where, remedy=remedy)


def _normalise(column: pa.Array, attribute: Attribute, policy: Policy, period: str | None) -> _Checked:
    options = policy.read_options
    if isinstance(attribute.cells, Windows):  # minutes of the service day; seconds are dropped
        readings = read_times(column, attribute.cells, options.null or ())
        beyond, unreadable = _time_faults(readings, attribute.cells)
        minutes = (split_stamps(readings.stamps)[1] // 60).astype(np.float64)
        return _Checked(pa.array(minutes), readings.missing, beyond, unreadable)
    if attribute.kind == Numeric.kind:
        return _normalise_numbers(column, attribute, options)
    if attribute.kind == Windows.kind:
        domain, bound = policy.schema.time, policy.schema.contribution
        readings = read_times(column, domain, options.null or (), attribute.format)
        beyond, unreadable = _time_faults(readings, domain, attribute.format)
        if domain.day is not None or (bound is not None and bound.per == "day"):
            ordinals, _ = split_stamps(readings.stamps)
            usable = ~(readings.missing | readings.unreadable | readings.astray | readings.unclear)
            elsewhere = ~domain.in_calendar(ordinals, period) & domain.in_calendar(ordinals) & usable
            beyond.append(_Fault(elsewhere, "has a service date outside the period", f"Check --period, {_LEAVE_OUT}"))
            unreadable.append(_Fault(readings.undated, "is a time without a date, but the policy counts days,"))
        return _Checked(pa.array(readings.stamps), readings.missing, beyond, unreadable)
    labels = is_text(column.type) or pa.types.is_integer(column.type) or pa.types.is_boolean(column.type)
    if attribute.kind is not None and not labels:
        raise pa.ArrowTypeError("not labels")
    if attribute.kind is None and not is_text(column.type):
        column.slice(0, 1).cast(pa.string())  # an unknown time zone would fail later
        return _Checked(column, mask_of(pc.is_null(column, nan_is_null=True)))
    codes, is_whole = attribute.cells, pa.types.is_integer(column.type)
    column = column.cast(pa.string())
    missing = mask_of(null_words(pc.utf8_trim_whitespace(column), options.null or ()))
    if attribute.domain is None:
        return _Checked(column, missing)
    if isinstance(codes, Prefixes):
        if is_whole:  # a column of numbers has no leading zeros
            column = pc.utf8_lpad(column, codes.length, "0")
        written = column.dictionary_encode()
        column = pa.array([codes.cut(cell) for cell in written.dictionary.to_pylist()], pa.string()).take(
            written.indices
        )
    encoded = pc.fill_null(column, "").dictionary_encode()
    is_known = attribute.domain.contains(np.asarray(encoded.dictionary.to_pylist(), dtype=object))
    outside = ~is_known[encoded.indices.to_numpy(zero_copy_only=False)] & ~missing
    remedy = f"{_LABEL_REMEDIES.get(attribute.domain.kind, 'Add it to the domain')}, {_LEAVE_OUT}"
    if isinstance(codes, Prefixes):
        remedy = f"Write codes with all {codes.length} characters (leading zeros too), add them to domain, {_LEAVE_OUT}"
    return _Checked(column, missing, [_Fault(outside, _OUTSIDE, remedy)])


def _time_faults(readings: TimeReadings, domain: Windows, form: str | None = None) -> tuple[list[_Fault], list[_Fault]]:
    """Return what is outside the service day and its dates, and what cannot be read as a time."""
    usable = ~(readings.missing | readings.unreadable | readings.astray | readings.unclear)
    what, remedy = "is not a time such as 2026-11-15T08:12 or 08:12", _NO_FORMAT_REMEDY
    if form is not None:
        what, remedy = f"is not a time with a date written as {form}", _FORMAT_REMEDY
    unreadable = [
        _Fault(readings.unreadable & ~readings.past_midnight, what, remedy),
        _Fault(readings.past_midnight, "has an hour past 23 after a date", _PAST_MIDNIGHT_REMEDY),
        _Fault(readings.astray, _ASTRAY),
    ]
    ordinals, seconds = split_stamps(readings.stamps)
    extra = (ordinals != 0) & (seconds >= domain.lower_seconds + DAY_SECONDS)
    off_dates = ~domain.in_calendar(ordinals)
    beyond = ~domain.contains(readings.stamps) & ~extra & ~off_dates
    widen = "Begin the domain later (it has 24 hours)" if domain.diameter == DAY_SECONDS else "Widen the domain"
    unclear = "does not exist on the clock of its zone, or occurs twice"
    outside = [
        _Fault(readings.unclear, unclear, f"State the difference from UTC in the cells, {_LEAVE_OUT}"),
        _Fault(beyond & usable, _OUTSIDE, f"{widen}, {_LEAVE_OUT}"),
        _Fault(extra & ~off_dates & usable, _EXTRA_HOUR, 'Set outside = "leave-out".'),
        _Fault(off_dates & usable, "has a service date that is not in dates,", f"Widen dates, {_LEAVE_OUT}"),
    ]
    return outside, unreadable


def _normalise_numbers(column: pa.Array, attribute: Attribute, options: reader.ReadOptions) -> _Checked:
    unreadable = np.zeros(len(column), dtype=bool)
    if is_text(column.type):
        column, unreadable = numbers_of_text(column, options)
    elif pa.types.is_decimal(column.type) or pa.types.is_float32(column.type):
        # Through decimals, so that 0.1 is the same double as 0.1 in a CSV file.
        column = column.cast(pa.string()).cast(pa.float64())
    elif pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        column = column.cast(pa.float64(), safe=False)
    else:
        raise pa.ArrowTypeError("not numbers")
    values: FloatArray = pc.fill_null(column, float("nan")).to_numpy(zero_copy_only=False)
    values = values + 0.0  # a new array, without negative zero
    missing = np.isnan(values) & ~unreadable
    infinite = np.isinf(values)
    outside = np.zeros(len(values), dtype=bool)
    if attribute.domain is not None:
        outside = ~attribute.numeric.contains(values) & np.isfinite(values)
    inexact = (np.abs(values) >= _FIRST_INEXACT) & ~infinite & ~outside
    comma = 'decimal = "," (with delimiter = ";") or ' if options.decimal == "." else ""
    remedy = f'Fix the cells, or set unreadable = "leave-out", or [read] {comma}null = ["n/a"] in the policy.'
    wrong = [_Fault(unreadable | infinite, "is not a finite number", remedy), _Fault(inexact, f"is {_INEXACT}")]
    faults = [_Fault(outside, _OUTSIDE, _NUMBER_REMEDY)]
    if attribute.counts:
        negative = outside & (values < 0)
        remedy = 'Fix the cells, or set outside = "leave-out" or "clamp".'
        below = _Fault(negative, "is below 0, but counts are 0 or more,", remedy)
        faults = [below, _Fault(outside & ~negative, _OUTSIDE, _NUMBER_REMEDY)]
    if attribute.outside == "clamp":
        values = np.where(outside, attribute.numeric.clamp(values), values)
    if attribute.counts:
        wrong.append(_Fault(np.isfinite(values) & (values != np.floor(values)), "is not a whole number"))
    return _Checked(pa.array(values), missing, faults, wrong)


# --- Load rows, and draft a policy for them

_NUM_DRAFT_ROWS = 1000
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")
_DRAFT_FORMS = {
    "time": re.compile(
        r"\d{4}-\d\d-\d\d([T ]\d{1,2}:\d\d(:\d\d([.,]\d+)?)?\s?(Z|[+-]\d\d:?\d\d)?)?|\d{1,2}:\d\d(:\d\d([.,]\d+)?)?"
    ),
    "date": re.compile(r"\d{1,4}[./-]\d{1,2}[./-]\d{1,4}([T ,].*)?"),
    "flag": re.compile("true|false|yes|no|y|n|t|f|ja|nein|oui|non|si", re.IGNORECASE),
}
_NUMBERS = {  # ways to write numbers; an ambiguous number counts as the first
    "comma": re.compile(r"[+-]?\d*,\d+"),
    "point": re.compile(r"[+-]?\d*\.\d+"),
    "thousands": re.compile(r"[+-]?\d{1,3}([.,' \u00a0\u202f]\d{3})+([.,]\d+)?"),
    "whole": re.compile(r"[+-]?\d+"),
}
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_WITH_OFFSET = re.compile(r".*\d\d:\d\d.*(Z|[+-]\d\d:?\d\d)")


def load(data: Any, policy: Policy | str | os.PathLike[str], *, period: str | None = None) -> Dataset:
    """Load rows into memory: :func:`dunnage.load` without an engine."""
    rules = policy if isinstance(policy, Policy) else Policy.read(policy)
    if isinstance(data, str | os.PathLike):
        table, rows, problems = reader.read_table(Path(data), rules.read_options, [item.name for item in rules.schema])
        return Dataset.from_table(table, rules, period=period, source=str(data), rows=rows, problems=problems)
    if not hasattr(data, "__arrow_c_stream__"):
        raise ParameterError(
            "data must be a path or a frame with the Arrow C stream interface. "
            f"Got {type(data).__name__}. Pass a pyarrow table, a pandas (2.2+) or a polars frame (of a lazy one, its "
            ".collect()); pyarrow.table(...) makes one of a dictionary of columns."
        )
    try:
        table = pa.table(data)
        table = table.rename_columns(table.column_names)  # names that are not UTF-8 fail here
        # The row index of pandas comes as columns with these names; it is not data.
        table = table.drop_columns([name for name in table.column_names if _PANDAS_INDEX.fullmatch(name)])
    except Exception:  # this runs the code of the frame, and its errors may quote cells
        raise ParameterError(
            f"the {type(data).__name__} does not convert to Arrow. Use one type in each column, and each name once."
        ) from None
    return Dataset.from_table(table, rules, period=period)


def draft(data: str | os.PathLike[str], *, story: str | None = None, like: str | os.PathLike[str] | None = None) -> str:
    """Draft a policy for a file from its column names and types alone, for you to fill in.

    Parameters
    ----------
    data
        Path of a CSV (or ``.tsv``) or Parquet file, a folder of Parquet files or an Excel workbook; for readings of
        devices, also of a folder of such files.
    story
        What rows stand for: ``rows`` (records), ``trips`` (to be counted) or ``devices`` (readings that devices
        perturb). By default guessed from the names of the columns.
    like
        The policy of an earlier file with the same columns. The draft is this policy, with a ``[period]`` if it has
        none, and blanks for new columns only. The files that it names are relative to the same folder.

    Returns
    -------
    str
        TOML text with blank roles, domains, k and epsilon.

    Raises
    ------
    InputError
        With all problems of the file; also if a column of ``like`` is not in it.
    """
    if like is not None:
        if story is not None:
            raise ParameterError("a draft is like another policy, or for a story. Leave out one of like and story.")
        return draft_like(data, like).text
    return drafted(data, story=story).text


class Drafted(NamedTuple):
    text: str  # the policy, from names and types alone
    remarks: tuple[str, ...]  # what the rows say that helps to fill it in. Private: for the owner only


def drafted(data: str | os.PathLike[str], *, story: str | None = None) -> Drafted:
    from dunnage.model.draft import draft_policy, likely_story

    columns, whole = surveyed(data), Path(data)
    told = story or likely_story(columns.kinds)
    if reader.data_files(whole)[0] != whole and told != "devices":
        what = "is a folder, and only readings of devices may lie in several files. Name a file, or --story devices."
        raise InputError(str(whole), [what])
    name = whole.name.split(".")[0]
    text = draft_policy(name, columns.kinds, options=columns.options, story=story, seen=columns.seen)
    return Drafted(text, tuple(remarks_of(columns.table, columns.kinds, told)))


def draft_like(data: str | os.PathLike[str], like: str | os.PathLike[str], folder: Path | None = None) -> LikeDraft:
    """Draft a policy like that of an earlier file, to be written into a folder, and say what differs."""
    from dunnage.model.draft import declared_columns, policy_like

    written = Written.read(like)
    stated = written.document.get("read")
    known = {item.name for item in fields(reader.ReadOptions)}
    given = {name: value for name, value in (stated if isinstance(stated, dict) else {}).items() if name in known}
    last = reader.ReadOptions(**given | ({"null": tuple(given["null"])} if "null" in given else {}))
    wanted = set(declared_columns(written.document))
    # The file may be written as before, or in another format; read it in the one that has more of the columns.
    surveys, failure = [], None
    for options in (last, None):
        try:
            surveys.append(surveyed(data, options))
        except InputError as error:
            failure = error
    columns = max(surveys, key=lambda survey: len(wanted & survey.kinds.keys()), default=None)  # the first of equals
    if failure is not None and (columns is None or wanted.isdisjoint(columns.kinds)):
        raise failure
    assert columns is not None
    names = list(columns.kinds)
    what = f"is declared in {written.path}, but is not in the file"
    if absent := [name for name in declared_columns(written.document) if name not in columns.kinds]:
        raise InputError(str(data), [Problem(what, where=_named(n), remedy=suggestion(n, names)) for n in absent])
    options = replace(columns.options, null=last.null)
    changed = options if options != last else None
    return policy_like(written, columns.kinds, columns.seen, source=Path(data).name, read=changed, folder=folder)


class Survey(NamedTuple):
    kinds: dict[str, str]  # what the cells of each column look like
    seen: dict[str, str]  # how, where they are probably not read as intended
    options: reader.ReadOptions
    table: pa.Table  # private: its rows are looked at for remarks to the owner


def surveyed(data: str | os.PathLike[str], options: reader.ReadOptions | None = None) -> Survey:
    """Look at the first cells of each column; no value is kept. Without options the format is guessed."""
    if not isinstance(data, str | os.PathLike):
        raise ParameterError(f"data must be the path of a file. Got {shown(type(data).__name__)}.")
    whole, given = Path(data), options
    path = reader.data_files(whole)[0]  # the files of a folder have the same columns
    options = reader.guess_options(path) if given is None else given
    table, _, skipped = reader.read_table(path, options)
    # No policy fits two columns of the same name, or rows that are longer or shorter than others.
    names = table.column_names
    problems = [
        Problem("appears several times", where=f"column {shown(name)}", remedy="Give each column a different name.")
        for name in dict.fromkeys(names)
        if names.count(name) > 1
    ]
    forms = (*_NUMBERS.values(), _DRAFT_FORMS["time"], _DRAFT_FORMS["date"])
    if problems and any(form.fullmatch(name.strip()) for form in forms for name in names):
        problems = [Problem("the first line seems to have values, not names", remedy="Add a line of names before it.")]
    is_workbook = reader.is_named(path, reader.EXCEL_ENDINGS)
    for problem in skipped:
        line = "" if is_workbook else f"Look at line {reader.line_of_row(path, options, problem.rows[0])} of the file. "
        problems.append(replace(problem, remedy=f"{line}{problem.remedy}"))
    if problems:
        raise InputError(str(path), problems)
    first = {name: table.column(name).slice(0, _NUM_DRAFT_ROWS).combine_chunks() for name in names}
    counts = {name: _forms(column) for name, column in first.items() if is_text(column.type)}
    if given is None and (options.delimiter != "," or is_workbook):
        # The decimal mark of most cells in more columns; a point at a tie.
        most = {mark: sum(n[mark] > n["all"] / 2 for n in counts.values()) for mark in ("comma", "point")}
        if most["comma"] > most["point"]:
            options = replace(options, decimal=",", delimiter=";" if is_workbook else options.delimiter)
    kinds = {name: _kind(column, options) for name, column in first.items()}
    seen = {name: what for name in counts if (what := _seen(first[name], kinds[name], counts[name], options))}
    return Survey(kinds, seen, options, table)


# A column with at least this many labels, each at most this many times on average, may identify persons.
MANY_LABELS, FEW_TIMES = 50, 25


def may_be_persons(times: IntArray) -> bool:
    """Return whether labels that occur so many times each look like cards or customers: many, and repeated."""
    return len(times) >= MANY_LABELS and times.sum() <= FEW_TIMES * len(times) and bool((times > 1).mean() > 1 / 2)


def remarks_of(table: pa.Table, kinds: Mapping[str, str], story: str) -> Iterator[str]:
    """Tell the owner what the rows say about persons with several rows, and about dates."""
    from dunnage.model.draft import likely_persons

    persons = likely_persons(kinds)
    times: dict[str, IntArray] = {}
    for name, kind in kinds.items():
        if name in persons or kind == "text":
            with contextlib.suppress(pa.ArrowException):  # a policy refuses columns of such types later, with a reason
                cells = decoded(table.column(name).combine_chunks()).drop_null()
                times[name] = cells.value_counts().field("counts").to_numpy()
    if story == "trips":
        for name in persons[:1]:
            if name in times and len(times[name]):
                yield f"{name!r}: {dropped_text(dropped_shares(times[name]))}"
        moment = next((name for name, kind in kinds.items() if kind == "time"), None)
        texts = None if moment is None else decoded(table.column(moment).combine_chunks()).cast(pa.string())
        days = () if texts is None else pc.unique(pc.utf8_slice_codeunits(pc.utf8_trim_whitespace(texts), 0, 10))
        if num := sum(bool(day.as_py() and _DAY.fullmatch(day.as_py())) for day in days):
            yield f"{moment!r}: the times are on {several(num, 'date')}"
    elif story == "rows":
        for name, own in times.items():
            if (again := int((own > 1).sum())) and (name in persons or may_be_persons(own)):
                yield (
                    f"{name!r}: {again:,} of {several(len(own), 'value')} occur more than once, up to "
                    f'{int(own.max()):,} times. If it names persons, give it the role "identifier" and write '
                    f"[contribution] person = {json.dumps(name, ensure_ascii=False)}; dunnage advise then tries only "
                    "mechanisms that count persons"
                )


def _words(cells: pa.Array) -> list[str]:
    return [text for cell in cells.to_pylist() if cell and (text := cell.strip())]


def _forms(cells: pa.Array) -> Counter[str]:
    words = _words(cells)
    forms = (next((what for what, form in _NUMBERS.items() if form.fullmatch(word)), "") for word in words)
    return Counter(forms) + Counter(all=len(words))


def _kind(cells: pa.Array, options: reader.ReadOptions) -> str:
    if is_text(cells.type):
        numbers, unreadable = numbers_of_text(cells, options)
        if unreadable.any():
            words = set(_words(cells))
            fits = (kind for kind, form in _DRAFT_FORMS.items() if all(form.fullmatch(word) for word in words))
            return next(fits, "text")
        return "text" if numbers.null_count == len(numbers) else "numeric"
    if pa.types.is_temporal(cells.type):
        return "time"
    if pa.types.is_boolean(cells.type):
        return "flag"
    checks = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return "numeric" if any(check(cells.type) for check in checks) else "text"


def _seen(cells: pa.Array, kind: str, forms: Counter[str], options: reader.ReadOptions) -> str:
    """Return what cells look like if they are probably not read as intended; otherwise nothing."""
    if kind == "time":
        if is_text(cells.type) and not any("-" in word for word in _words(cells)):
            return "clock"  # times of day, without dates
        return "offset" if any(_WITH_OFFSET.fullmatch(word) for word in _words(cells)) else ""
    if kind != "text":
        return ""
    if not len(cells):
        return "nothing"
    if 2 * sum(forms[what] for what in _NUMBERS) <= forms["all"]:
        return ""
    other = "point" if options.decimal == "," else "comma"
    return next((what for what in (other, "thousands") if forms[what]), "words")
