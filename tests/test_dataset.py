# SPDX-License-Identifier: Apache-2.0
"""Datasets: cells are read as they were meant or named by row; no private value is ever printed."""

from __future__ import annotations

import traceback
from datetime import date, datetime, time
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dunnage.errors import InputError, ParameterError, UserError
from dunnage.model.policy import Policy
from dunnage.tables.dataset import Dataset

KEY = b"k" * 32
CANARY = 73829.164553


def policy(read: str = "", period: str = "", **attributes: str) -> Policy:
    """A policy from the lines of each attribute's table; ``x`` is a quasi-identifier from 0 to 500."""
    tables = {"x": 'role = "quasi-identifier"\nkind = "numeric"\ndomain = [0, 500]', **attributes}
    text = "".join(f"[attributes.{name}]\n{lines}\n" for name, lines in tables.items() if lines)
    options = (f"[read]\n{read}\n" if read else "") + (f"[period]\n{period}\n" if period else "")
    return Policy.from_text(
        f'dataset = "d"\nprotects = "package"\n{text}[mechanism]\nname = "partition"\nk = 2\n{options}'
    )


NUMBERS = 'role = "quasi-identifier"\nkind = "numeric"\ndomain = [0, 500]'
SENSITIVE = 'role = "sensitive"\nkind = "numeric"'
TEXT = 'role = "public"'
LABELS = 'role = "sensitive"\nkind = "category"\ndomain = ["red", "blue", "1", "true"]'


def read(values: Any, rules: Policy | None = None, kind: Any = None) -> Dataset:
    column = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values, kind)
    return Dataset.from_table(pa.table({"x": column}), rules or policy())


def refused(values: Any, rules: Policy | None = None, kind: Any = None) -> str:
    with pytest.raises(InputError) as caught:
        read(values, rules, kind)
    assert caught.value.exit_code == 2
    return str(caught.value)


# --- numbers ------------------------------------------------------------------------------------------------------


def test_numbers_mean_the_same_whatever_holds_them() -> None:
    decimals, texts = [Decimal("0.1"), Decimal(2), Decimal(500)], ["0.1", "2", "500"]
    expected = read([0.1, 2.0, 500.0]).keyed_digest(KEY)
    for column in (
        pa.array(["0.1", " 2.0 ", "+5e2"]),
        *(pa.array(texts, kind) for kind in (pa.large_string(), pa.string_view())),
        pa.array([0.1, 2, 500], pa.float32()),
        *(pa.array(decimals, kind) for kind in (pa.decimal128(20, 5), pa.decimal256(60, 5))),
        pa.array(texts).dictionary_encode(),
        pa.array([0.1, 2, 500]).dictionary_encode(),
        pa.chunked_array([[0.1], [], [2.0, 500.0]]),
    ):
        dataset = read(column)
        assert dataset.numbers("x").tolist() == [0.1, 2.0, 500.0], column.type
        assert dataset.keyed_digest(KEY) == expected
    for kind in (pa.int8(), pa.uint8(), pa.int16(), pa.int64(), pa.uint64(), pa.float16()):
        assert read(pa.array([0, 1, 100], pa.int64()).cast(kind)).numbers("x").tolist() == [0, 1, 100]
    column = pa.array([Decimal(i) / 1000 for i in range(50_000)], pa.decimal128(12, 3))
    assert np.array_equal(read(column).numbers("x"), np.arange(50_000) / 1000), "the doubles of their text"
    assert read([-0.0, 1.0]).keyed_digest(KEY) == read([0.0, 1.0]).keyed_digest(KEY)


def test_text_that_is_no_number() -> None:
    remedy = 'Mend the cells, or set [read] decimal = "," or null = ["n/a"] in the policy.'
    cells = ["abc", "1,234", "1,5", "1.2.3", "1e", "0x1F", "inf", "-Infinity", "1e999", "1 000", "--1", "٣", "1_0", "½"]
    for cell in cells:
        message = refused(["1", cell, "2", cell])
        assert message == f"frame: column 'x': is not a finite number in 2 rows: 2, 4. {remedy}", cell
    for rule in ("refuse", "leave-out", "clamp"):  # infinities are no numbers under any rule
        infinite = refused([float("inf"), 1.0], policy(x=f'{NUMBERS}\noutside = "{rule}"'))
        assert "not a finite number in row 1" in infinite
    rules = policy(read='decimal = ","\ndelimiter = ";"')
    assert read(["1,5", ",5", "2", "1,5e2"], rules).numbers("x").tolist() == [1.5, 0.5, 2, 150]
    for cell in ("1.5", "1.500", "1.234,5", "1,2,3"):
        assert "not a finite number in row 1" in refused([cell, "1"], rules)


def test_words_for_missing_numbers() -> None:
    for cell in (None, "", "  ", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None", "\u00a0"):
        assert "column 'x': has no value in row 2" in refused(["1", cell, "2"])
        dataset = read(["1", cell, "2"], policy(x=f'{NUMBERS}\nmissing = "leave-out"'))
        assert (dataset.source_rows.tolist(), dataset.num_left_out) == ([0, 2], 1)
    rules = policy(read='null = ["-", " unknown"]', x=f'{NUMBERS}\nmissing = "leave-out"', t=TEXT)
    table = pa.table({"x": ["1", "-", "2", ""], "t": ["a", "b", "c", "d"]})
    assert Dataset.from_table(table, rules).source_rows.tolist() == [0, 2]
    with pytest.raises(InputError, match="not a finite number in row 1"):
        Dataset.from_table(pa.table({"x": ["NA", "1"], "t": ["a", "b"]}), rules)
    with pytest.raises(InputError, match="'t': has no value in 3 rows: 1, 2, 3"):
        Dataset.from_table(pa.table({"x": ["1", "1", "1"], "t": ["unknown", "-", ""]}), rules)
    for values in ([1.0, float("nan")], [1.0, None], [1, None]):
        assert "has no value in row 2" in refused(values)
    assert "has no value in 2 rows: 1, 2" in refused(pa.nulls(2))
    with pytest.raises(InputError, match="'t': has no value in 2 rows"):
        Dataset.from_table(pa.table({"t": pa.nulls(2)}), policy(x="", t=TEXT))


def test_values_outside_the_domain() -> None:
    values = [-1.0, 0.0, 500.0, 500.1, 1e300]
    assert "lies outside the public domain in 3 rows: 1, 4, 5" in refused(values)
    left = read(values, policy(x=f'{NUMBERS}\noutside = "leave-out"'))
    assert left.numbers("x").tolist() == [0, 500]
    assert (left.source_rows.tolist(), left.num_left_out) == ([1, 2], 3)
    clamped = read(values, policy(x=f'{NUMBERS}\noutside = "clamp"'))
    assert clamped.numbers("x").tolist() == [0, 0, 500, 500, 500]
    assert clamped.num_left_out == 0
    rules = policy(x=f'{NUMBERS}\nmissing = "leave-out"\noutside = "clamp"')
    assert read([None, 600.0, 1.0], rules).numbers("x").tolist() == [500, 1], "each by its own rule"
    assert "has no value in row 1" in refused([None, 600.0, 1.0], policy(x=f'{NUMBERS}\noutside = "leave-out"'))


def test_numbers_too_large_to_be_exact() -> None:
    columns = [pa.array(values) for values in ([2**53, 1], [-(2**60), 1], ["9007199254740993", "1"], [2.0**53, 1.0])]
    for column in (*columns, pa.array([2**64 - 1, 1], pa.uint64())):
        message = refused(column, policy(x=SENSITIVE))
        assert "is 2^53 or more, where not every whole number can be kept in row 1" in message
        assert "outside the public domain in row 1" in refused(column)
        assert len(read(column, policy(x=f'{NUMBERS}\noutside = "leave-out"'))) == 1


# --- text and labels, and what a column cannot be -----------------------------------------------------------------


def test_labels() -> None:
    for values, text in (
        (pa.array(["red", "blue"], pa.large_string()), ["red", "blue"]),
        (pa.array(["red", "blue"]).dictionary_encode(), ["red", "blue"]),
        (pa.array([1, 1], pa.int16()), ["1", "1"]),
        ([True, True], ["true", "true"]),
    ):
        assert read(values, policy(x=LABELS)).column("x").to_pylist() == text
    values = ["red", "Red", " red", None, "blue"]
    message = refused(values, policy(x=LABELS))
    assert "has no value in row 4" in message
    assert "lies outside the public domain in 2 rows: 2, 3" in message
    left = read(values, policy(x=f'{LABELS}\noutside = "leave-out"\nmissing = "leave-out"'))
    assert left.source_rows.tolist() == [0, 4]


def test_plain_columns_stay_as_they_are() -> None:
    for values in (
        pa.array([1, 2]),
        pa.array([1.5, 2.5]),
        pa.array([True, False]),
        pa.array([Decimal("1.5"), Decimal(2)]),
        pa.array([date(2026, 1, 1), date(2026, 1, 2)]),
        pa.array([time(1), time(2)]),
        pa.array([1, 2], pa.timestamp("ns")),
        pa.array([1, 2], pa.timestamp("us", tz="America/Detroit")),
    ):
        dataset = read(values, policy(x=TEXT))
        assert dataset.column("x").equals(values)
        assert dataset.keyed_digest(KEY) != read(values.take(pa.array([1, 0])), policy(x=TEXT)).keyed_digest(KEY)
        assert "has no value in row 2" in refused(values.take(pa.array([0, None])), policy(x=TEXT))


def test_columns_that_cannot_be_used() -> None:
    not_utf8 = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")])
    binary_codes = pa.array(["x"]).dictionary_encode().cast(pa.dictionary(pa.int8(), pa.binary()))
    anywhere = [pa.array([[1]]), pa.array([{"a": 1}]), pa.array([b"1"]), pa.array([5], pa.duration("s")), not_utf8]
    anywhere += [pa.array([0], pa.timestamp("us", tz="Mars/Olympus")), binary_codes]
    days = [pa.array([date(2026, 1, 1)]), pa.array([datetime(2026, 1, 1)])]
    cases = {TEXT: anywhere, LABELS: [*anywhere, *days, pa.array([1.5]), pa.array([Decimal("1.5")])]}
    cases[NUMBERS] = [*anywhere, *days, pa.array([True, False]), pc.run_end_encode(pa.array([1, 1]))]
    for role, columns in cases.items():
        for column in columns:
            what = f"column 'x': has type {column.type}, which cannot be used here, or is damaged"
            assert what in refused(column, policy(x=role))
    table = pa.table({"x": [1.0], "n": [[{"a": 1}]]})  # a column that is dropped may hold anything
    assert Dataset.from_table(table, policy(n='role = "drop"'))._table.column_names == ["x"]


# --- columns ------------------------------------------------------------------------------------------------------


def column_message(names: list[str], rules: Policy) -> str:
    table = pa.Table.from_arrays([pa.array(["1"])] * len(names), names=names)
    with pytest.raises(InputError) as caught:
        Dataset.from_table(table, rules)
    return str(caught.value)


def test_missing_undeclared_and_doubled_columns() -> None:
    message = column_message(["t", "weigth", "extra"], policy(x="", weight=NUMBERS, t=TEXT))
    assert "column 'weight': is declared in the policy but not in the data. Did you mean 'weigth'?" in message
    assert "column 'weigth': is not declared in the policy" in message
    assert "column 'extra': is not declared in the policy. Give it a role" in message
    message = column_message(["x", "t", "x", "u", "u"], policy(t=TEXT))
    assert "column 'x': appears 2 times" in message
    assert "column 'u': appears 2 times" in message
    # A record in place of the header is not printed.
    message = column_message([str(CANARY), "Smith", "Smith"], policy(t=TEXT))
    assert "Check that the first line is a header" in message
    assert str(CANARY) not in message
    assert "Smith" not in message
    assert "Did you mean 'weigth'?" in column_message(["weigth"], policy(x="", weight=NUMBERS))


def test_columns_and_cells_in_one_error() -> None:
    table = pa.table({"x": [1.0, None, 900.0], "t": ["", "a", " "], "v": [1, 2, 3]})
    with pytest.raises(InputError) as caught:
        Dataset.from_table(table, policy(t=TEXT, u=TEXT))
    found = [(problem.where, problem.num_rows) for problem in caught.value.problems]
    assert found == [("column 'u'", 0), ("column 'v'", 0), ("column 'x'", 1), ("column 'x'", 1), ("column 't'", 2)]
    with pytest.raises(InputError) as caught:
        read([None] * 50 + [1.0])
    (problem,) = caught.value.problems
    assert (problem.num_rows, problem.rows) == (50, tuple(range(1, 21)))
    assert "in 50 rows, first 1, 2, 3" in str(problem)


def test_views_of_text_may_be_cut_and_left_out() -> None:
    table = pa.table(pl.DataFrame({"x": ["1", "", "2", "3"], "t": ["a", "b", None, "d"], "day": DAYS[1:]}))
    lenient = 'missing = "leave-out"'
    rules = policy(period=DAY, x=f"{NUMBERS}\n{lenient}", t=f"{TEXT}\n{lenient}", day='role = "drop"')
    assert Dataset.from_table(table, rules, period="2026-11-15").source_rows.tolist() == [0, 3]


def test_no_rows() -> None:
    assert "has a header but no rows" in refused(pa.array([], pa.float64()))
    assert "no row is left" in refused([900.0], policy(x=f'{NUMBERS}\noutside = "leave-out"'))


# --- periods ------------------------------------------------------------------------------------------------------

DAYS = ["2026-11-14", "2026-11-15", "2026-11-15T23:59:00-05:00", " 2026-12-01 00:00", "2026-11-15"]
DAY = 'column = "day"\nlength = "day"'
MONTH = 'column = "day"\nlength = "month"'


def of_period(days: Any, period: Any, rule: str = DAY, day: str = 'role = "drop"', **changes: Any) -> Dataset:
    column = days if isinstance(days, pa.Array) else pa.array(days)
    table = pa.table({"x": changes.get("x", [float(i) for i in range(len(column))]), "day": column})
    return Dataset.from_table(table, policy(period=rule, x=changes.get("attribute", NUMBERS), day=day), period=period)


def test_the_rows_of_a_day_and_of_a_month() -> None:
    assert of_period(DAYS, "2026-11-15").source_rows.tolist() == [1, 2, 4]
    assert of_period(DAYS, "2026-11", MONTH).source_rows.tolist() == [0, 1, 2, 4]
    assert of_period(["2026-11", "2026-12"], "2026-11", MONTH).source_rows.tolist() == [0]


def test_dates_and_timestamps() -> None:
    for kind in (pa.date32(), pa.date64(), pa.timestamp("s"), pa.timestamp("ns")):
        days = pa.array([date(2026, 11, 14), date(2026, 11, 15), date(2026, 11, 15)]).cast(kind)
        assert of_period(days, "2026-11-15").source_rows.tolist() == [1, 2]
        assert of_period(days.dictionary_encode(), "2026-11-15").source_rows.tolist() == [1, 2]
        assert len(of_period(days, "2026-11", MONTH)) == 3
    # Those of a zone count by its clock.
    late = pa.array([datetime(2026, 11, 16, 3), datetime(2026, 11, 16, 6)], pa.timestamp("us", tz="America/Detroit"))
    assert of_period(late, "2026-11-15").source_rows.tolist() == [0]
    with pytest.raises(InputError, match="column 'day': has type timestamp"):
        of_period(late.cast(pa.timestamp("us", tz="Mars/Olympus")), "2026-11-15")


def test_what_is_no_date_is_named_by_row() -> None:
    cells = ["yesterday", "15.11.2026", "2026-11-31", "2026-13-01", "2026-1-1", "20261115", "2026-11-15x", "", None]
    for cell in cells:
        for rule, period in ((DAY, "2026-11-15"), (MONTH, "2026-11")):
            with pytest.raises(InputError, match=r"column 'day': holds no date \(YYYY-MM-DD\) in row 2\. Mend"):
                of_period(["2026-11-15", cell, "2026-11-15"], period, rule)
    for values in ([20261115], [1.5], [True], [[1]], [b"\xff"], [None]):
        with pytest.raises(InputError, match="column 'day': h"):
            of_period(pa.array(values), "2026-11-15")


def test_rows_without_a_date_may_be_left_out() -> None:
    day = 'role = "drop"\nmissing = "leave-out"'
    assert of_period(["2026-11-15", None, " ", "2026-11-15"], "2026-11-15", day=day).source_rows.tolist() == [0, 3]
    with pytest.raises(InputError, match="holds no date"):
        of_period(["2026-11-15", "x"], "2026-11-15", day=day)


def test_periods_that_cannot_be_meant() -> None:
    with pytest.raises(InputError, match="column 'day': has no row of period 2020-01-01"):
        of_period(DAYS, "2020-01-01")
    for period in ("2026-11", "15.11.2026", "2026-11-31", "2026-11-1", "", 20261115, date(2026, 11, 15)):
        with pytest.raises(ParameterError, match=r"one day at a time \(YYYY-MM-DD\)\. Got period"):
            of_period(DAYS, period)
    with pytest.raises(ParameterError, match=r"one month at a time .* Got no period"):
        of_period(DAYS, None, MONTH)
    with pytest.raises(ParameterError, match=r"the policy has no \[period\]"):
        Dataset.from_table(pa.table({"x": [1.0]}), policy(), period="2026-11")


def test_a_file_that_is_one_period() -> None:
    dataset = Dataset.from_table(pa.table({"x": [1.0]}), policy(period='length = "day"'), period="2026-11-15")
    assert dataset.period == dataset.purpose.period == "2026-11-15"


def test_only_the_period_is_checked_and_rows_count_in_the_source() -> None:
    numbers = [None, 900.0, 1.0, None, 2.0]
    with pytest.raises(InputError) as caught:
        of_period(DAYS, "2026-11-15", x=numbers)
    assert [problem.rows for problem in caught.value.problems] == [(2,)]
    left = of_period(DAYS, "2026-11-15", x=numbers, attribute=f'{NUMBERS}\noutside = "leave-out"')
    assert left.source_rows.tolist() == [2, 4]
    assert left.num_left_out == 1


# --- digests ------------------------------------------------------------------------------------------------------


BASE = {"x": ["1", "2", "3"], "t": ["a", "bc", "d"]}


def test_the_digest_changes_with_any_cell_order_or_row() -> None:
    rules = policy(t=TEXT)
    others: list[dict[str, list[str]]] = [
        {"x": ["1", "2.5", "3"]},
        {"t": ["a", "b", "d"]},
        {"t": ["ab", "c", "d"]},  # a moved border
        {"x": ["2", "1", "3"], "t": ["bc", "a", "d"]},
        {"x": ["1", "2"], "t": ["a", "bc"]},
        {"x": ["1", "2", "3", "3"], "t": ["a", "bc", "d", "d"]},
    ]
    tables = [pa.table({**BASE, **other}) for other in ({}, *others)]
    digests = {Dataset.from_table(table, rules).keyed_digest(KEY) for table in tables}
    assert len(digests) == len(tables)
    assert Dataset.from_table(tables[0], rules).keyed_digest(b"other" * 8) not in digests
    lenient = policy(x=f'{NUMBERS}\nmissing = "leave-out"')
    first, second = read([1.0, None, 2.0], lenient), read([None, 1.0, 2.0], lenient)
    assert first.numbers("x").tolist() == second.numbers("x").tolist()
    assert first.keyed_digest(KEY) != second.keyed_digest(KEY), "which row was left out"


def test_the_digest_does_not_depend_on_storage() -> None:
    rules, base = policy(t=TEXT), pa.table(BASE)
    expected = Dataset.from_table(base, rules).keyed_digest(KEY)
    chunked = pa.concat_tables([base.slice(0, 1), base.slice(1, 2)])
    turned = base.select(["t", "x"])
    typed = pa.table({"x": [1, 2, 3], "t": pa.array(["a", "bc", "d"]).dictionary_encode()})
    longer = pa.concat_tables([base, base]).slice(3, 3)
    polars = pl.DataFrame(base.to_pydict())
    categorical = polars.with_columns(pl.col("t").cast(pl.Categorical), pl.col("x").cast(pl.Decimal(10, 2)))
    for table in (chunked, turned, typed, longer, pa.table(polars), pa.table(categorical)):
        assert Dataset.from_table(table, rules).keyed_digest(KEY) == expected


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=5), min_size=1, max_size=6), st.data())
def test_any_changed_text_changes_the_digest(cells: list[str], data: st.DataObject) -> None:
    rules = policy(x='role = "public"\nmissing = "leave-out"')
    other = list(cells)
    index = data.draw(st.integers(0, len(cells) - 1))
    other[index] = data.draw(st.text(st.characters(codec="utf-8"), max_size=5))
    if not any(cell.strip() for cell in cells) or not any(cell.strip() for cell in other):
        return
    kept = [[(i, cell) for i, cell in enumerate(some) if cell.strip()] for some in (cells, other)]
    same = read(cells, rules).keyed_digest(KEY) == read(other, rules).keyed_digest(KEY)
    assert same == (kept[0] == kept[1])


# --- nothing private is printed -----------------------------------------------------------------------------------

SECRETS = {
    "x": [CANARY, CANARY + 1e6, float("inf")],
    "c": ["canary-one", "canary-two", ""],
    "t": ["canary-three", None, "canary-four"],
    "i": ["canary-five", "canary-six", "canary-seven"],
    "d": ["canary-eight", "2026-11-15", "canary-nine"],
    "n": ["canary-ten", str(CANARY), "1e999"],
}


def everything_printed(error: BaseException) -> str:
    parts = [str(error), repr(error), repr(vars(error)), "".join(traceback.format_exception(error))]
    return "".join(parts)


def test_errors_and_datasets_print_no_value() -> None:
    rules = policy(
        period='column = "d"\nlength = "day"',
        c=LABELS,
        t=TEXT,
        i='role = "identifier"',
        d='role = "drop"',
        n=SENSITIVE,
    )
    with pytest.raises(InputError) as caught:
        Dataset.from_table(pa.table(SECRETS), rules, period="2026-11-15")
    seen = everything_printed(caught.value)
    assert "canary" not in seen
    assert "73829" not in seen
    fine = policy(x=SENSITIVE, i='role = "identifier"')
    dataset = Dataset.from_table(pa.table({"x": [CANARY], "i": ["canary"]}), fine)
    printed = repr(dataset) + str(dataset) + f"{dataset}" + repr(dataset.purpose) + repr(dataset.policy)
    assert "canary" not in printed
    assert "73829" not in printed
    assert repr(dataset) == "Dataset('d', period=None, attributes=[x, i])"


ODD = st.sampled_from([NUMBERS, SENSITIVE, TEXT, LABELS, 'role = "identifier"'])
COLUMNS = st.one_of(
    st.lists(st.none() | st.text(max_size=4), min_size=2, max_size=2),
    st.lists(st.none() | st.floats(), min_size=2, max_size=2),
    st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=2, max_size=2),
    st.lists(st.none() | st.booleans(), min_size=2, max_size=2),
    st.lists(st.none() | st.dates(), min_size=2, max_size=2),
    st.lists(st.none() | st.datetimes(), min_size=2, max_size=2),
    st.lists(st.none() | st.binary(max_size=3), min_size=2, max_size=2),
    st.lists(st.lists(st.integers(0, 9), max_size=2), min_size=2, max_size=2),
)


@settings(max_examples=200, deadline=None)
@given(COLUMNS, ODD, st.sampled_from(["refuse", "leave-out"]), st.booleans())
def test_any_column_is_taken_or_refused(column: list[Any], role: str, rule: str, dated: bool) -> None:
    try:
        rules = policy(
            x=f'{role}\nmissing = "{rule}"\noutside = "{rule}"', period='column = "x"\nlength = "day"' if dated else ""
        )
        dataset = Dataset.from_table(pa.table({"x": column}), rules, period="2026-11-15" if dated else None)
    except UserError:
        return
    assert 1 <= len(dataset) == len(dataset.source_rows) <= 2
    assert dataset.keyed_digest(KEY)


# --- together -----------------------------------------------------------------------------------------------------

FIVE = {"c": ["a", "b", "a", "b", "c"], "i": ["p", "q", "r", "s", "t"]}
IDENTIFIER = 'role = "identifier"'


def together(**attributes: str) -> Policy:
    """A policy that merges rows of one ``c`` and adds ``x`` up; ``i`` is another identifier."""
    made = policy(**{"c": IDENTIFIER, "i": IDENTIFIER, **attributes})
    return Policy.from_text(f'together = "c"\n{made.to_toml()}')


def merge(x: Any, rules: Policy | None = None, **columns: Any) -> Dataset:
    return Dataset.from_table(pa.table({"x": x, **FIVE, **columns}), rules or together())


def not_merged(x: Any, rules: Policy | None = None, **columns: Any) -> str:
    with pytest.raises(InputError) as caught:
        merge(x, rules, **columns)
    return str(caught.value)


def test_rows_that_travel_together_are_one_record() -> None:
    dataset = merge(["0.1", "0.7", "0.2", "0.1", "5"])
    assert len(dataset) == 3
    assert dataset.numbers("x").tolist() == [0.3, 0.8, 5.0], "as decimals, not as doubles"
    assert dataset.source_rows.tolist() == [0, 1, 4]
    assert dataset.column("c").to_pylist() == ["a", "b", "c"]
    assert dataset.parts.source_rows.tolist() == [0, 2, 1, 3, 4]
    assert dataset.parts.starts.tolist() == [0, 2, 4, 5]
    assert dataset.parts.column("i").to_pylist() == ["p", "r", "q", "s", "t"]
    assert dataset.num_left_out == 0
    assert repr(dataset.parts) == "Parts(private)"


def test_without_together_each_row_is_its_own_record() -> None:
    dataset = read([3.0, None, 1.0], policy(x=f'{NUMBERS}\nmissing = "leave-out"'))
    assert dataset.parts.source_rows.tolist() == dataset.source_rows.tolist() == [0, 2]
    assert dataset.parts.starts.tolist() == [0, 1, 2]


def test_keys_of_earlier_versions_still_fit() -> None:
    table = pa.table({"x": [0.1, None, 2.5], "t": ["m", "n", "é"]})
    dataset = Dataset.from_table(table, policy(x=f'{NUMBERS}\nmissing = "leave-out"', t=TEXT))
    assert dataset.keyed_digest(KEY) == "41556685f25e2a7e903991b0a8185e6efb2d6dac86ae5f8262ae6e7837a8a032"


def test_the_parts_of_records() -> None:
    parts = merge([1.0, 2.0, 3.0, 4.0, 5.0]).parts
    which, positions = parts.of(np.array([2, 0]))
    assert which.tolist() == [0, 1, 1]
    assert parts.source_rows[positions].tolist() == [4, 0, 2]
    assert parts.records_of(np.array([3, 4, 0, 9, -1])).tolist() == [1, 2, 0, -1, -1]
    taken = parts.take(np.array([1]))
    assert (taken.source_rows.tolist(), taken.starts.tolist()) == ([1, 3], [0, 2])


RULES = st.sampled_from(["refuse", "leave-out", "clamp"])
CELLS = st.tuples(
    st.sampled_from(["a", "b", "c", "d", ""]),
    st.none() | st.decimals(-2, 12, places=1) | st.decimals(0, 9, places=3) | st.decimals(0, 9, places=14),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(CELLS, min_size=1, max_size=12), RULES, st.sampled_from([(0, 10), (3, 10), (-5, -1), (-1, 8)]))
def test_merging_is_adding_up_in_a_dictionary(cells: list[Any], rule: str, ends: tuple[int, int]) -> None:
    x = f'role = "quasi-identifier"\nkind = "numeric"\ndomain = {list(ends)}\nmissing = "leave-out"\noutside = "{rule}"'
    rules = together(x=x, c=f'{IDENTIFIER}\nmissing = "leave-out"', i="")
    table = pa.table({"x": [None if w is None else str(w) for _, w in cells], "c": [c for c, _ in cells]})
    low, high = (Fraction(end) for end in ends)
    least, most = min(low, Fraction(0)), max(high, Fraction(0))
    groups: dict[str, list[int]] = {}
    for row, (consignment, _) in enumerate(cells):
        groups.setdefault(consignment, []).append(row)
    expected: list[tuple[list[int], Fraction]] = []
    outside_parts, outside_sums = [], []
    for consignment, rows in groups.items():
        weights = [None if cells[row][1] is None else Fraction(cells[row][1]) for row in rows]
        wrong = [row for row, w in zip(rows, weights, strict=True) if w is not None and not least <= w <= most]
        outside_parts += wrong
        if not consignment or None in weights or (wrong and rule == "leave-out"):
            continue
        total = sum((min(max(w, least), most) if rule == "clamp" else w for w in weights), Fraction())
        if not low <= total <= high and rule != "clamp":
            outside_sums += rows if rule == "refuse" else []
            continue
        expected.append((rows, min(max(total, low), high)))
    refused_rows = sorted((outside_parts if rule == "refuse" else []) or outside_sums)
    if refused_rows or not expected:
        with pytest.raises(InputError) as caught:
            Dataset.from_table(table, rules)
        assert [row - 1 for row in caught.value.problems[0].rows] == refused_rows
        return
    dataset = Dataset.from_table(table, rules)
    assert dataset.numbers("x").tolist() == [float(total) for _, total in expected]
    assert dataset.source_rows.tolist() == [rows[0] for rows, _ in expected]
    assert dataset.parts.source_rows.tolist() == [row for rows, _ in expected for row in rows]
    assert np.diff(dataset.parts.starts).tolist() == [len(rows) for rows, _ in expected]
    assert dataset.num_left_out == len(cells) - sum(len(rows) for rows, _ in expected)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 1e15)), min_size=1, max_size=12))
def test_sums_of_any_doubles_are_those_of_what_they_print_as(cells: list[tuple[int, float]]) -> None:
    x = 'role = "quasi-identifier"\nkind = "numeric"\ndomain = [0, 9e18]'
    rules = together(x=x, i="")
    dataset = Dataset.from_table(pa.table({"x": [w for _, w in cells], "c": [c for c, _ in cells]}), rules)
    sums: dict[int, Fraction] = {}
    for consignment, weight in cells:
        sums[consignment] = sums.get(consignment, Fraction()) + Fraction(repr(weight))
    assert dataset.numbers("x").tolist() == [float(total) for total in sums.values()]


def test_sums_too_large_to_be_exact() -> None:
    x = 'role = "quasi-identifier"\nkind = "numeric"\ndomain = [0, 1e18]'
    message = not_merged([8e15, 1.0, 8e15, 1.0, 1.0], together(x=x))
    assert "column 'x': adds up to 2^53 or more, where not every whole number can be kept in 2 rows: 1, 3" in message


def test_a_sum_outside_the_domain_names_all_its_rows() -> None:
    message = not_merged([CANARY, 300.0, 1.0, 1.0, 1.0])
    assert message.startswith("frame: column 'x': lies outside the public domain in row 1.")
    message = not_merged([499.125, 300.0, 1.0, 200.5, 1.0])
    what = "adds up to a value outside the public domain in 4 rows: 1, 2, 3, 4. Widen the domain, or set outside"
    assert message.startswith(f"frame: column 'x': {what}")
    assert not any(value in message for value in ("499", "300", "500", "'a'"))


def test_a_part_may_be_smaller_than_any_record() -> None:
    x = 'role = "quasi-identifier"\nkind = "numeric"\ndomain = [10, 500]\nresolution = 5'
    assert merge([4, 10, 7, 1, 10], together(x=x)).numbers("x").tolist() == [11, 11, 10]
    assert "lies outside the public domain in row 3" in not_merged([20, 10, -4, 1, 10], together(x=x))
    assert "adds up to a value outside the public domain in row 5" in not_merged([4, 10, 7, 1, 9], together(x=x))


def test_one_row_left_out_leaves_its_record_out() -> None:
    dataset = merge([1.0, None, 2.0, 3.0, 4.0], together(x=f'{NUMBERS}\nmissing = "leave-out"'))
    assert dataset.numbers("x").tolist() == [3.0, 4.0]
    assert dataset.num_left_out == 2, "rows, not records"
    labels = 'role = "public"\nkind = "category"\ndomain = ["m", "n"]\noutside = "leave-out"'
    dataset = merge([1.0, 2.0, 2.0, 3.0, 4.0], together(t=labels), t=["m", "n", "m", "zzz", "n"])
    assert dataset.column("t").to_pylist() == ["m", "n"]
    assert dataset.parts.source_rows.tolist() == [0, 2, 4]


def test_nothing_left_to_merge() -> None:
    rules = together(x=f'{NUMBERS}\nmissing = "leave-out"\noutside = "leave-out"')
    for values in ([None, None, 1.0, 1.0, None], [400.0, 400.0, 400.0, 400.0, 501.0]):
        assert "no row is left" in not_merged(values, rules)


def test_a_row_that_belongs_nowhere() -> None:
    assert "column 'c': has no value in row 2" in not_merged([1.0] * 5, c=["a", None, "a", "b", "b"])
    rules = together(c=f'{IDENTIFIER}\nmissing = "leave-out"')
    dataset = merge([1.0] * 5, rules, c=["a", None, "a", " ", None])
    assert dataset.numbers("x").tolist() == [2.0]
    assert dataset.num_left_out == 3


def test_what_is_released_as_it_is_must_be_the_same() -> None:
    for role in (TEXT, 'role = "sensitive"', LABELS.replace("sensitive", "quasi-identifier")):
        rules = together(t=role)
        fine = merge([1.0] * 5, rules, t=["red", "blue", "red", "blue", "1"])
        assert fine.column("t").to_pylist() == ["red", "blue", "1"]
        message = not_merged([1.0] * 5, rules, t=["red", "blue", "red", "red", "1"])
        what = "is not the same in all rows that share a value of 'c' in 2 rows: 2, 4. Make it the same"
        assert message.startswith(f"frame: column 't': {what}")
        assert "blue" not in message


def test_all_that_cannot_be_merged_is_told_at_once() -> None:
    rules = together(t=TEXT, u='role = "sensitive"')
    message = not_merged([400.0] * 5, rules, t=["m", "m", "n", "m", "m"], u=[1, 2, 1, 3, 1])
    assert "3 problems" in message
    assert all(f"column {name!r}" in message for name in "xtu")


NAN = float("nan")
TYPED = [
    pa.array([0.0, 1.5, -0.0, 1.5, NAN], pa.float64()),
    pa.array(np.array([0.0, 1.5, -0.0, 1.5, 2.0], dtype=np.float16)),
    pa.array([0.5, 1.5, 0.5, 1.5, 2.0], pa.float32()),
    pa.array([1, 2, 1, 2, 3], pa.uint64()),
    pa.array([True, False, True, False, None]),
    pa.array([Decimal(1), Decimal(2), Decimal(1), Decimal(2), Decimal(3)], pa.decimal32(5, 2)),
    pa.array([Decimal(1), Decimal(2), Decimal(1), Decimal(2), Decimal(3)], pa.decimal256(50, 2)),
    pa.array([date(2026, 1, 1), date(2026, 1, 2), date(2026, 1, 1), date(2026, 1, 2), None]),
    pa.array([datetime(2026, 1, 1), datetime(2026, 1, 2), datetime(2026, 1, 1), datetime(2026, 1, 2), None]),
    pa.array([time(1), time(2), time(1), time(2), time(3)]),
    pa.array(["m", "n", "m", "n", "o"]).dictionary_encode(),
    pa.array(["m", "n", "m", "n", "o"], pa.large_string()),
]


@pytest.mark.parametrize("column", TYPED, ids=lambda column: str(column.type))
def test_equal_is_equal_in_every_type(column: pa.Array) -> None:
    leave_out = 'missing = "leave-out"'
    as_public = merge([1.0] * 5, together(t=f"{TEXT}\n{leave_out}"), t=column)
    as_group = merge([1.0] * 5, together(c=f"{IDENTIFIER}\n{leave_out}"), c=column)
    expected = [2.0, 2.0] if pc.is_null(column, nan_is_null=True)[4].as_py() else [2.0, 2.0, 1.0]
    assert as_public.numbers("x").tolist() == as_group.numbers("x").tolist() == expected
    swapped = column.take(pa.array([0, 1, 3, 2, 4]))
    with pytest.raises(InputError, match=r"column 't': is not the same .* in 4 rows: 1, 2, 3, 4"):
        merge([1.0] * 5, together(t=f"{TEXT}\n{leave_out}"), t=swapped)


def test_a_period_is_merged_on_its_own() -> None:
    text = together(d='role = "drop"').to_toml() + '\n[period]\ncolumn = "d"\nlength = "day"\n'
    table = pa.table({"x": [1.0, 2.0, 4.0, 8.0, 16.0], **FIVE, "d": ["2026-11-15", *["2026-11-16"] * 3, "2026-11-15"]})
    dataset = Dataset.from_table(table, Policy.from_text(text), period="2026-11-16")
    assert dataset.numbers("x").tolist() == [10.0, 4.0]
    assert dataset.parts.source_rows.tolist() == [1, 3, 2]


def test_the_digest_covers_every_part() -> None:
    digests = {
        merge(x, **columns).keyed_digest(KEY)
        for x, columns in [
            ([1.0, 2.0, 3.0, 4.0, 5.0], {}),
            ([3.0, 2.0, 1.0, 4.0, 5.0], {}),  # the same sums
            ([1.0, 2.0, 3.0, 4.0, 5.0], {"i": ["r", "q", "p", "s", "t"]}),
            ([1.0, 2.0, 3.0, 4.0, 5.0], {"c": ["b", "a", "b", "a", "c"]}),
            ([1.0, 2.0, 3.0, 4.0, 5.0], {"c": ["a", "b", "a", "b", "b"]}),
        ]
    }
    assert len(digests) == 5
    assert merge([1.0, 2.0, 3.0, 4.0, 5.0]).keyed_digest(KEY) in digests
