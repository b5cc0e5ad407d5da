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
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.refusals import found, refusal

from dunnage.errors import InputError, ParameterError, UserError
from dunnage.model.policy import Policy
from dunnage.tables.dataset import Dataset

KEY = b"k" * 32
CANARY = 73829.164553
QUASI = 'role = "quasi-identifier"\nkind = "numeric"\ndomain = '
NUMBERS = QUASI + "[0, 500]"
SENSITIVE = 'role = "sensitive"\nkind = "numeric"'
TEXT = 'role = "public"'
IDENTIFIER = 'role = "identifier"'
LABELS = 'role = "sensitive"\nkind = "category"\ndomain = ["red", "blue", "1", "true"]'
UNREADABLE = '\nunreadable = "leave-out"'
MISSING, OUTSIDE, CLAMP = '\nmissing = "leave-out"', '\noutside = "leave-out"', '\noutside = "clamp"'


def policy(read: str = "", period: str = "", **attributes: str) -> Policy:
    """A policy from the lines of each attribute's table; ``x`` is a quasi-identifier from 0 to 500."""
    text = "".join(f"[attributes.{name}]\n{lines}\n" for name, lines in {"x": NUMBERS, **attributes}.items() if lines)
    options = (f"[read]\n{read}\n" if read else "") + (f"[period]\n{period}\n" if period else "")
    return Policy.from_text(
        f'dataset = "d"\nprotects = "package"\n{text}[mechanism]\nname = "partition"\nk = 2\n{options}'
    )


def read(values: Any, rules: Policy | None = None, kind: Any = None) -> Dataset:
    column = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values, kind)
    return Dataset.from_table(pa.table({"x": column}), rules or policy())


def wrong(values: Any, rules: Policy | None = None, kind: Any = None) -> list[tuple[Any, ...]]:
    return found(refusal(InputError, read, values, rules, kind))


def wrong_table(columns: Any, rules: Policy, **options: Any) -> list[tuple[Any, ...]]:
    return found(refusal(InputError, Dataset.from_table, pa.table(columns), rules, **options))


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
    cells = ["abc", "1,234", "1,5", "1.2.3", "1e", "0x1F", "inf", "-Infinity", "1e999", "1 000", "--1", "٣", "1_0", "½"]
    for cell in cells:
        assert wrong(["1", cell, "2", cell]) == [("x", 2, 4)], cell
    for rule in ("", OUTSIDE, CLAMP):  # infinities are no numbers under any rule
        assert wrong([float("inf"), 1.0], policy(x=NUMBERS + rule)) == [("x", 1)]
    rules = policy(read='decimal = ","\ndelimiter = ";"')
    assert read(["1,5", ",5", "2", "1,5e2"], rules).numbers("x").tolist() == [1.5, 0.5, 2, 150]
    for cell in ("1.5", "1.500", "1.234,5", "1,2,3"):
        assert wrong([cell, "1"], rules) == [("x", 1)]


def test_words_for_missing_numbers() -> None:
    lenient = policy(x=NUMBERS + MISSING)
    for cell in (None, "", "  ", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None", "\u00a0"):
        assert wrong(["1", cell, "2"]) == [("x", 2)]
        dataset = read(["1", cell, "2"], lenient)
        assert (dataset.source_rows.tolist(), dataset.num_left_out) == ([1, 3], 1)
    rules = policy(read='null = ["-", " unknown"]', x=NUMBERS + MISSING, t=TEXT)
    table = pa.table({"x": ["1", "-", "2", ""], "t": ["a", "b", "c", "d"]})
    assert Dataset.from_table(table, rules).source_rows.tolist() == [1, 3]
    assert wrong_table({"x": ["NA", "1"], "t": ["a", "b"]}, rules) == [("x", 1)]
    assert wrong_table({"x": ["1", "1", "1"], "t": ["unknown", "-", ""]}, rules) == [("t", 1, 2, 3)]
    for values in ([1.0, float("nan")], [1.0, None], [1, None]):
        assert wrong(values) == [("x", 2)]
    assert wrong(pa.nulls(2)) == wrong(pa.nulls(2), policy(x=TEXT)) == [("x", 1, 2)]


def test_values_outside_the_domain() -> None:
    values = [-1.0, 0.0, 500.0, 500.1, 1e300]
    assert wrong(values) == [("x", 1, 4, 5)]
    left = read(values, policy(x=NUMBERS + OUTSIDE))
    assert (left.numbers("x").tolist(), left.source_rows.tolist(), left.num_left_out) == ([0, 500], [2, 3], 3)
    clamped = read(values, policy(x=NUMBERS + CLAMP))
    assert (clamped.numbers("x").tolist(), clamped.num_left_out) == ([0, 0, 500, 500, 500], 0)
    both = policy(x=NUMBERS + MISSING + CLAMP)
    assert read([None, 600.0, 1.0], both).numbers("x").tolist() == [500, 1], "each by its own rule"
    assert wrong([None, 600.0, 1.0], policy(x=NUMBERS + OUTSIDE)) == [("x", 1)]
    large = [pa.array(values) for values in ([2**53, 1], [-(2**60), 1], ["9007199254740993", "1"], [2.0**53, 1.0])]
    for column in (*large, pa.array([2**64 - 1, 1], pa.uint64())):  # too large to be exact
        assert wrong(column, policy(x=SENSITIVE)) == wrong(column) == [("x", 1)]
        assert "2^53" in str(refusal(InputError, read, column, policy(x=SENSITIVE)))
        assert len(read(column, policy(x=NUMBERS + OUTSIDE))) == 1
    for nothing in (read(pa.array([], pa.float64())), read([900.0], policy(x=NUMBERS + OUTSIDE))):
        assert len(nothing) == 0  # a file without rows may be released with noise
        assert refusal(InputError, nothing.require_rows).problems


def test_what_cannot_be_read_may_be_left_out() -> None:
    cells = ["abc", "1", "inf", "1e400", "-1e999", "2", "9007199254740993", "nan", ""]
    assert wrong(cells, policy(x=SENSITIVE + MISSING)) == [("x", 1, 3, 4, 5), ("x", 7)]
    left = read(cells, policy(x=SENSITIVE + MISSING + UNREADABLE))
    assert (left.numbers("x").tolist(), left.source_rows.tolist()) == ([1.0, 2.0], [2, 6])
    assert {row: left.left_out[row] for row in (1, 7, 9)} == {
        1: ("cannot be read", "x"),
        7: ("cannot be read", "x"),
        9: ("missing value", "x"),
    }
    moved = read(["abc", "9e99", "-3"], policy(x=NUMBERS + UNREADABLE + '\noutside = "clamp"'))
    assert moved.numbers("x").tolist() == [500.0, 0.0]
    day = 'role = "drop"' + UNREADABLE
    dated = of_period(["2026-11-15", "yesterday", "2026-11-14", "2026-11-15"], "2026-11-15", day=day)
    assert (dated.source_rows.tolist(), list(dated.left_out)) == ([1, 4], [2])
    merged = merge([8e15, 1.0, 8e15, 1.0, 1.0], together(x=QUASI + "[0, 1e18]" + UNREADABLE))
    assert merged.numbers("x").tolist() == [2.0, 1.0]


def test_labels_and_plain_columns() -> None:
    for values, text in (
        (pa.array(["red", "blue"], pa.large_string()), ["red", "blue"]),
        (pa.array(["red", "blue"]).dictionary_encode(), ["red", "blue"]),
        (pa.array([1, 1], pa.int16()), ["1", "1"]),
        ([True, True], ["true", "true"]),
    ):
        assert read(values, policy(x=LABELS)).column("x").to_pylist() == text
    values = ["red", "Red", " red", None, "blue"]
    assert wrong(values, policy(x=LABELS)) == [("x", 4), ("x", 2, 3)]
    assert read(values, policy(x=LABELS + OUTSIDE + MISSING)).source_rows.tolist() == [1, 5]
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
        assert wrong(values.take(pa.array([0, None])), policy(x=TEXT)) == [("x", 2)]
    not_utf8 = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")])
    binary_codes = pa.array(["x"]).dictionary_encode().cast(pa.dictionary(pa.int8(), pa.binary()))
    anywhere = [pa.array([[1]]), pa.array([{"a": 1}]), pa.array([b"1"]), pa.array([5], pa.duration("s")), not_utf8]
    anywhere += [pa.array([0], pa.timestamp("us", tz="Mars/Olympus")), binary_codes]
    days = [pa.array([date(2026, 1, 1)]), pa.array([datetime(2026, 1, 1)])]
    cases = {TEXT: anywhere, LABELS: [*anywhere, *days, pa.array([1.5]), pa.array([Decimal("1.5")])]}
    cases[NUMBERS] = [*anywhere, *days, pa.array([True, False]), pc.run_end_encode(pa.array([1, 1]))]
    for role, columns in cases.items():
        for column in columns:
            error = refusal(InputError, read, column, policy(x=role))
            assert found(error) == [("x",)]
            assert str(column.type) in str(error)
    table = pa.table({"x": [1.0], "n": [[{"a": 1}]]})  # a column that is dropped may hold anything
    assert Dataset.from_table(table, policy(n='role = "drop"')).parts.table.column_names == ["x"]


def test_missing_undeclared_and_doubled_columns() -> None:
    def columns(*names: str, rules: Policy) -> InputError:
        table = pa.Table.from_arrays([pa.array(["1"])] * len(names), names=list(names))
        return refusal(InputError, Dataset.from_table, table, rules)

    error = columns("t", "weigth", "extra", rules=policy(x="", weight=NUMBERS, t=TEXT))
    assert found(error) == [("weight",), ("weigth",), ("extra",)]
    assert "'weigth'" in error.problems[0].remedy
    doubled = found(columns("x", "t", "x", "u", "u", rules=policy(t=TEXT)))
    assert {("x",), ("u",)} == set(doubled)
    # A record in place of the header is not printed.
    error = columns(str(CANARY), "Smith", "Smith", rules=policy(t=TEXT))
    assert found(error) == [("x",), ("t",)]
    assert str(CANARY) not in str(error)
    assert "Smith" not in str(error)
    assert "'weigth'" in str(columns("weigth", rules=policy(x="", weight=NUMBERS)))
    # Columns and cells in one error.
    cells = {"x": [1.0, None, 900.0], "t": ["", "a", " "], "v": [1, 2, 3]}
    assert wrong_table(cells, policy(t=TEXT, u=TEXT)) == [("u",), ("v",), ("x", 2), ("x", 3), ("t", 1, 3)]
    (problem,) = refusal(InputError, read, [None] * 50 + [1.0]).problems
    assert (problem.num_rows, problem.rows) == (50, tuple(range(1, 21)))
    assert "50" in str(problem)


def test_views_of_text_may_be_cut_and_left_out() -> None:
    table = pa.table(pl.DataFrame({"x": ["1", "", "2", "3"], "t": ["a", "b", None, "d"], "day": DAYS[1:]}))
    rules = policy(period=DAY, x=NUMBERS + MISSING, t=TEXT + MISSING, day='role = "drop"')
    assert Dataset.from_table(table, rules, period="2026-11-15").source_rows.tolist() == [1, 4]


DAYS = ["2026-11-14", "2026-11-15", "2026-11-15T23:59:00-05:00", " 2026-12-01 00:00", "2026-11-15"]
DAY = 'column = "day"\nlength = "day"'
MONTH = 'column = "day"\nlength = "month"'


def of_period(days: Any, period: Any, rule: str = DAY, day: str = 'role = "drop"', **changes: Any) -> Dataset:
    column = days if isinstance(days, pa.Array) else pa.array(days)
    table = pa.table({"x": changes.get("x", [float(i) for i in range(len(column))]), "day": column})
    return Dataset.from_table(table, policy(period=rule, x=changes.get("attribute", NUMBERS), day=day), period=period)


def test_the_rows_of_a_day_and_of_a_month() -> None:
    assert of_period(DAYS, "2026-11-15").source_rows.tolist() == [2, 3, 5]
    assert of_period(DAYS, "2026-11", MONTH).source_rows.tolist() == [1, 2, 3, 5]
    assert of_period(["2026-11", "2026-12"], "2026-11", MONTH).source_rows.tolist() == [1]
    for kind in (pa.date32(), pa.date64(), pa.timestamp("s"), pa.timestamp("ns")):
        days = pa.array([date(2026, 11, 14), date(2026, 11, 15), date(2026, 11, 15)]).cast(kind)
        assert of_period(days, "2026-11-15").source_rows.tolist() == [2, 3]
        assert of_period(days.dictionary_encode(), "2026-11-15").source_rows.tolist() == [2, 3]
        assert len(of_period(days, "2026-11", MONTH)) == 3
    # Those of a zone count by its clock.
    late = pa.array([datetime(2026, 11, 16, 3), datetime(2026, 11, 16, 6)], pa.timestamp("us", tz="America/Detroit"))
    assert of_period(late, "2026-11-15").source_rows.tolist() == [1]
    day = 'role = "drop"' + MISSING
    assert of_period(["2026-11-15", None, " ", "2026-11-15"], "2026-11-15", day=day).source_rows.tolist() == [1, 4]
    assert found(refusal(InputError, of_period, ["2026-11-15", "x"], "2026-11-15", day=day)) == [("day", 2)]
    whole = Dataset.from_table(pa.table({"x": [1.0]}), policy(period='length = "day"'), period="2026-11-15")
    assert whole.period == whole.purpose.period == "2026-11-15"
    # Only the period is checked, and rows count in the source.
    numbers = [None, 900.0, 1.0, None, 2.0]
    assert found(refusal(InputError, of_period, DAYS, "2026-11-15", x=numbers)) == [("x", 2)]
    left = of_period(DAYS, "2026-11-15", x=numbers, attribute=NUMBERS + OUTSIDE)
    assert (left.source_rows.tolist(), left.num_left_out) == ([3, 5], 1)


def test_dates_and_periods_refused() -> None:
    cells = ["yesterday", "15.11.2026", "2026-11-31", "2026-13-01", "2026-1-1", "20261115", "2026-11-15x", "", None]
    for cell in cells:
        for rule, period in ((DAY, "2026-11-15"), (MONTH, "2026-11")):
            error = refusal(InputError, of_period, ["2026-11-15", cell, "2026-11-15"], period, rule)
            assert found(error) == [("day", 2)], cell
    mars = pa.array([datetime(2026, 11, 16, 3)], pa.timestamp("us", tz="Mars/Olympus"))
    for values in ([20261115], [1.5], [True], [[1]], [b"\xff"], [None], mars):
        (problem,) = refusal(InputError, of_period, pa.array(values), "2026-11-15").problems
        assert "'day'" in problem.where, values
    assert "2020-01-01" in str(refusal(InputError, of_period(DAYS, "2020-01-01").require_rows))
    for period in ("2026-11", "15.11.2026", "2026-11-31", "2026-11-1", "", 20261115, date(2026, 11, 15)):
        assert "2026-11-" in str(refusal(ParameterError, of_period, DAYS, period))
    refusal(ParameterError, of_period, DAYS, None, MONTH)
    refusal(ParameterError, Dataset.from_table, pa.table({"x": [1.0]}), policy(), period="2026-11")


BASE = {"x": ["1", "2", "3"], "t": ["a", "bc", "d"]}


def test_digests() -> None:
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
    table = pa.table({"x": [0.1, None, 2.5], "t": ["m", "n", "é"]})
    dataset = Dataset.from_table(table, policy(x=NUMBERS + MISSING, t=TEXT))
    assert dataset.keyed_digest(KEY) == "41556685f25e2a7e903991b0a8185e6efb2d6dac86ae5f8262ae6e7837a8a032"


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


SECRETS = {
    "x": [CANARY, CANARY + 1e6, float("inf")],
    "c": ["canary-one", "canary-two", ""],
    "t": ["canary-three", None, "canary-four"],
    "i": ["canary-five", "canary-six", "canary-seven"],
    "d": ["canary-eight", "2026-11-15", "canary-nine"],
    "n": ["canary-ten", str(CANARY), "1e999"],
}


def test_errors_and_datasets_print_no_value() -> None:
    dropped = {"d": 'role = "drop"', "n": SENSITIVE}
    rules = policy(period='column = "d"\nlength = "day"', c=LABELS, t=TEXT, i=IDENTIFIER, **dropped)
    error = refusal(InputError, Dataset.from_table, pa.table(SECRETS), rules, period="2026-11-15")
    seen = "".join([str(error), repr(error), repr(vars(error)), *traceback.format_exception(error)])
    dataset = Dataset.from_table(pa.table({"x": [CANARY], "i": ["canary"]}), policy(x=SENSITIVE, i=IDENTIFIER))
    seen += repr(dataset) + str(dataset) + f"{dataset}" + repr(dataset.purpose) + repr(dataset.policy)
    seen += repr(dataset.parts)
    assert "canary" not in seen
    assert "73829" not in seen
    assert repr(dataset) == "Dataset('d', period=None, attributes=[x, i])"


ODD = st.sampled_from([NUMBERS, SENSITIVE, TEXT, LABELS, 'role = "identifier"'])
KINDS = [st.text(max_size=4), st.floats(), st.integers(-(2**63), 2**63 - 1), st.booleans(), st.dates(), st.datetimes()]
KINDS += [st.binary(max_size=3), st.lists(st.integers(0, 9), max_size=2)]
COLUMNS = st.one_of(*(st.lists(st.none() | kind, min_size=2, max_size=2) for kind in KINDS))


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
    assert 0 <= len(dataset) == len(dataset.source_rows) <= 2
    assert dataset.keyed_digest(KEY)


FIVE = {"c": ["a", "b", "a", "b", "c"], "i": ["p", "q", "r", "s", "t"]}


def together(**attributes: str) -> Policy:
    """A policy that merges rows of one ``c`` and adds ``x`` up; ``i`` is another identifier."""
    made = policy(**{"c": IDENTIFIER, "i": IDENTIFIER, **attributes})
    return Policy.from_text(f'together = "c"\n{made.to_toml()}')


def merge(x: Any, rules: Policy | None = None, **columns: Any) -> Dataset:
    return Dataset.from_table(pa.table({"x": x, **FIVE, **columns}), rules or together())


def not_merged(x: Any, rules: Policy | None = None, **columns: Any) -> list[tuple[Any, ...]]:
    return found(refusal(InputError, merge, x, rules, **columns))


def test_rows_that_travel_together() -> None:
    dataset = merge(["0.1", "0.7", "0.2", "0.1", "5"])
    assert len(dataset) == 3
    assert dataset.numbers("x").tolist() == [0.3, 0.8, 5.0], "as decimals, not as doubles"
    assert dataset.source_rows.tolist() == [1, 2, 5]
    assert dataset.column("c").to_pylist() == ["a", "b", "c"]
    parts = dataset.parts
    assert parts.source_rows.tolist() == [1, 3, 2, 4, 5]
    assert parts.starts.tolist() == [0, 2, 4, 5]
    assert parts.column("i").to_pylist() == ["p", "r", "q", "s", "t"]
    assert dataset.num_left_out == 0
    assert repr(parts) == "Parts(private)"
    which, positions = parts.of(np.array([2, 0]))
    assert which.tolist() == [0, 1, 1]
    assert parts.source_rows[positions].tolist() == [5, 1, 3]
    assert parts.records_of(np.array([4, 5, 1, 10, 0])).tolist() == [1, 2, 0, -1, -1]
    taken = parts.take(np.array([1]))
    assert (taken.source_rows.tolist(), taken.starts.tolist()) == ([2, 4], [0, 2])
    # Without together each row is its own record.
    dataset = read([3.0, None, 1.0], policy(x=NUMBERS + MISSING))
    assert dataset.parts.source_rows.tolist() == dataset.source_rows.tolist() == [1, 3]
    assert dataset.parts.starts.tolist() == [0, 1, 2]
    text = together(d='role = "drop"').to_toml() + '\n[period]\ncolumn = "d"\nlength = "day"\n'
    table = pa.table({"x": [1.0, 2.0, 4.0, 8.0, 16.0], **FIVE, "d": ["2026-11-15", *["2026-11-16"] * 3, "2026-11-15"]})
    dataset = Dataset.from_table(table, Policy.from_text(text), period="2026-11-16")
    assert dataset.numbers("x").tolist() == [10.0, 4.0]
    assert dataset.parts.source_rows.tolist() == [2, 4, 3]
    x = [1.0, 2.0, 3.0, 4.0, 5.0]
    digests = {merge(x).keyed_digest(KEY), merge([3.0, 2.0, 1.0, 4.0, 5.0]).keyed_digest(KEY)}  # the same sums
    for name, values in (("i", "rqpst"), ("c", "babac"), ("c", "ababb")):
        digests.add(merge(x, **{name: list(values)}).keyed_digest(KEY))
    assert len(digests) == 5
    assert merge(x).keyed_digest(KEY) in digests


RULES = st.sampled_from(["refuse", "leave-out", "clamp"])
CELLS = st.tuples(
    st.sampled_from(["a", "b", "c", "d", ""]),
    st.none() | st.decimals(-2, 12, places=1) | st.decimals(0, 9, places=3) | st.decimals(0, 9, places=14),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(CELLS, min_size=1, max_size=12), RULES, st.sampled_from([(0, 10), (3, 10), (-5, -1), (-1, 8)]))
def test_merging_is_adding_up_in_a_dictionary(cells: list[Any], rule: str, ends: tuple[int, int]) -> None:
    rules = together(x=f'{QUASI}{list(ends)}{MISSING}\noutside = "{rule}"', c=IDENTIFIER + MISSING, i="")
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
    if refused_rows:
        error = refusal(InputError, Dataset.from_table, table, rules)
        assert [row - 1 for row in error.problems[0].rows] == refused_rows
        return
    dataset = Dataset.from_table(table, rules)
    assert dataset.numbers("x").tolist() == [float(total) for _, total in expected]
    assert dataset.source_rows.tolist() == [rows[0] + 1 for rows, _ in expected]
    assert dataset.parts.source_rows.tolist() == [row + 1 for rows, _ in expected for row in rows]
    assert np.diff(dataset.parts.starts).tolist() == [len(rows) for rows, _ in expected]
    assert dataset.num_left_out == len(cells) - sum(len(rows) for rows, _ in expected)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 1e15)), min_size=1, max_size=12))
def test_sums_of_any_doubles_are_those_of_what_they_print_as(cells: list[tuple[int, float]]) -> None:
    rules = together(x=QUASI + "[0, 9e18]", i="")
    dataset = Dataset.from_table(pa.table({"x": [w for _, w in cells], "c": [c for c, _ in cells]}), rules)
    sums: dict[int, Fraction] = {}
    for consignment, weight in cells:
        sums[consignment] = sums.get(consignment, Fraction()) + Fraction(repr(weight))
    assert dataset.numbers("x").tolist() == [float(total) for total in sums.values()]


def test_what_cannot_be_merged() -> None:
    ones = [1.0] * 5
    assert not_merged([8e15, 1.0, 8e15, 1.0, 1.0], together(x=QUASI + "[0, 1e18]")) == [("x", 1, 3)]
    assert not_merged([CANARY, 300.0, 1.0, 1.0, 1.0]) == [("x", 1)]
    # A sum outside the domain names all its rows, and no value.
    error = refusal(InputError, merge, [499.125, 300.0, 1.0, 200.5, 1.0])
    assert found(error) == [("x", 1, 2, 3, 4)]
    assert not any(value in str(error) for value in ("499", "300", "500", "'a'"))
    # A part may be smaller than any record.
    small = together(x=QUASI + "[10, 500]\nresolution = 5")
    assert merge([4, 10, 7, 1, 10], small).numbers("x").tolist() == [11, 11, 10]
    assert not_merged([20, 10, -4, 1, 10], small) == [("x", 3)]
    assert not_merged([4, 10, 7, 1, 9], small) == [("x", 5)]
    assert not_merged(ones, c=["a", None, "a", "b", "b"]) == [("c", 2)]
    for role in (TEXT, 'role = "sensitive"', LABELS.replace("sensitive", "quasi-identifier")):
        rules = together(t=role)
        fine = merge(ones, rules, t=["red", "blue", "red", "blue", "1"])
        assert fine.column("t").to_pylist() == ["red", "blue", "1"]
        error = refusal(InputError, merge, ones, rules, t=["red", "blue", "red", "red", "1"])
        assert found(error) == [("t", 2, 4)]
        assert "blue" not in str(error)
    several = not_merged([400.0] * 5, together(t=TEXT, u=SENSITIVE), t=["m", "m", "n", "m", "m"], u=[1, 2, 1, 3, 1])
    assert [name for name, *_ in several] == ["x", "t", "u"]


def test_one_row_left_out_leaves_its_record_out() -> None:
    dataset = merge([1.0, None, 2.0, 3.0, 4.0], together(x=NUMBERS + MISSING))
    assert dataset.numbers("x").tolist() == [3.0, 4.0]
    assert dataset.num_left_out == 2, "rows, not records"
    labels = together(t='role = "public"\nkind = "category"\ndomain = ["m", "n"]' + OUTSIDE)
    dataset = merge([1.0, 2.0, 2.0, 3.0, 4.0], labels, t=["m", "n", "m", "zzz", "n"])
    assert dataset.column("t").to_pylist() == ["m", "n"]
    assert dataset.parts.source_rows.tolist() == [1, 3, 5]
    nowhere = merge([1.0] * 5, together(c=IDENTIFIER + MISSING), c=["a", None, "a", " ", None])
    assert (nowhere.numbers("x").tolist(), nowhere.num_left_out) == ([2.0], 3)
    rules = together(x=NUMBERS + MISSING + OUTSIDE)
    for values in ([None, None, 1.0, 1.0, None], [400.0, 400.0, 400.0, 400.0, 501.0]):
        assert refusal(InputError, merge(values, rules).require_rows).problems, "nothing is left"


AGAIN = [0, 1, 0, 1, 2]  # which of three values each of five rows has
WHOLE, DATES = [Decimal(1), Decimal(2), Decimal(3)], [datetime(2026, 1, 1), datetime(2026, 1, 2), None]
TYPED = [
    pa.array([0.0, 1.5, -0.0, 1.5, float("nan")], pa.float64()),
    pa.array(np.array([0.0, 1.5, -0.0, 1.5, 2.0], dtype=np.float16)),
    *(pa.array(values, kind).take(pa.array(AGAIN)) for values, kind in [
        ([0.5, 1.5, 2.0], pa.float32()), ([1, 2, 3], pa.uint64()), ([True, False, None], pa.bool_()),
        (WHOLE, pa.decimal32(5, 2)), (WHOLE, pa.decimal256(50, 2)), (DATES, pa.date32()),
        (DATES, pa.timestamp("us")), ([time(1), time(2), time(3)], pa.time64("us")),
        (["m", "n", "o"], pa.large_string()), (["m", "n", "o"], pa.dictionary(pa.int32(), pa.string())),
    ]),
]  # fmt: skip


def test_equal_is_equal_in_every_type() -> None:
    public, group = together(t=TEXT + MISSING), together(c=IDENTIFIER + MISSING)
    for column in TYPED:
        expected = [2.0, 2.0] if pc.is_null(column, nan_is_null=True)[4].as_py() else [2.0, 2.0, 1.0]
        for dataset in (merge([1.0] * 5, public, t=column), merge([1.0] * 5, group, c=column)):
            assert dataset.numbers("x").tolist() == expected, column.type
        swapped = column.take(pa.array([0, 1, 3, 2, 4]))
        assert not_merged([1.0] * 5, public, t=swapped) == [("t", 1, 2, 3, 4)], column.type
