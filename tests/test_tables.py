# SPDX-License-Identifier: Apache-2.0
"""Tables in every format: the same rows in all of them, one error with the right row for every fault, no cell in it."""

from __future__ import annotations

import contextlib
import csv
import datetime as dt
import gzip
import io
import random
import sys
import tomllib
import traceback
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import python_calamine
import xlsxwriter
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.builders import a_policy, a_trip_policy
from tests.refusals import found, refusal

import dunnage as dn
from dunnage.errors import InputError, OutputError, ParameterError, PolicyError, UserError
from dunnage.planning.plan import states_fleet_plan
from dunnage.planning.trucks import read_trucks
from dunnage.showing import shown
from dunnage.tables import finest, reader
from dunnage.tables.columns import write_workbook
from dunnage.tables.dataset import draft, load
from dunnage.tables.reader import ReadOptions, TableStream, read_lines, read_table

KEY = b"k" * 32
TOWNS = {
    "id": {"role": "identifier"},
    "town": {"role": "public"},
    "weight": {"role": "quasi-identifier", "kind": "numeric", "domain": [0, 500]},
}
PARTITION = {"name": "partition", "k": 2}
POLICY = a_policy(PARTITION, TOWNS)
HEADER = b"id,town,weight\n"
ROWS = "007,A,1.5\n008,B,2\n"
PLAIN = f"id,town,weight\n{ROWS}"
CANARY = "canary-83721"


@pytest.fixture
def file(tmp_path: Path) -> Callable[..., Path]:
    """Write bytes to a file and give its path."""

    def write(content: bytes, name: str = "data.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return write


def with_read(**options: Any) -> dn.Policy:
    return a_policy(PARTITION, TOWNS, read=options)


def refused(data: Any, policy: dn.Policy = POLICY) -> InputError:
    """Load what must be refused, check that nothing of its cells is told, and give the error."""
    error = refusal(InputError, load, data, policy)
    assert error.exit_code == 2
    printed = "".join(traceback.format_exception(error)) + repr(error) + repr(vars(error))
    assert CANARY not in printed
    return error


# --- CSV ----------------------------------------------------------------------------------------------------------


def test_ways_to_write_the_same(file: Callable[..., Path]) -> None:
    for content, read in (
        (PLAIN.encode(), {}),
        (PLAIN.rstrip().encode(), {}),
        (PLAIN.replace("\n", "\r\n").encode(), {}),
        (PLAIN.replace("\n", "\r").encode(), {}),
        (PLAIN.encode("utf-8-sig"), {}),
        (PLAIN.encode("utf-8-sig"), {"encoding": "UTF8"}),
        (PLAIN.encode("utf-16"), {"encoding": "utf-16"}),
        (f"\ufeff{PLAIN}".encode("utf-16-le"), {"encoding": "utf-16-le"}),
        (f"\n\nid,town,weight\n\n{ROWS}\n\n".encode(), {}),
        (PLAIN.replace(",", "\t").encode(), {"delimiter": "\t"}),
        (PLAIN.replace(",", ";").replace(".", ",").encode(), {"delimiter": ";", "decimal": ","}),
        (b'"id","town","weight"\n"007","A","1.5"\n"008","B","2"\n', {}),
    ):
        data = load(file(content), with_read(**read) if read else POLICY)
        assert data.column("id").to_pylist() == ["007", "008"]
        assert data.column("town").to_pylist() == ["A", "B"]
        assert data.numbers("weight").tolist() == [1.5, 2.0]
        assert data.source_rows.tolist() == [1, 2]
    assert data.source.endswith("data.csv")
    content = "id,town,weight\n1,Zürich,1\n".encode("latin-1")
    assert load(file(content), with_read(encoding="latin-1")).column("town").to_pylist() == ["Zürich"]
    assert len(load(file(gzip.compress(PLAIN.encode()), "DATA.CSV.GZ"), POLICY)) == 2
    quoted = b'id,town,weight\n1,"a ""b"", c\n\nd",1\n2,"",3\n3,5" pipe,3\n'
    lenient = {**TOWNS, "town": {"role": "public", "missing": "leave-out"}}
    data = load(file(quoted), a_policy(PARTITION, lenient))
    assert data.column("town").to_pylist() == ['a "b", c\n\nd', '5" pipe']
    assert data.source_rows.tolist() == [1, 3]
    # Of a single column an empty line is a missing cell, and the index that pandas brings along is no second one.
    one = a_policy(PARTITION, {"w": TOWNS["weight"]})
    assert found(refused(file(b"w\n1\n\n2\n3\n\n"), one)) == [("w", 2)]
    assert len(load(pa.table({"w": [1.0, 2.0, 3.0], "__index_level_0__": [4, 7, 9]}), one)) == 3


def test_ragged_rows_and_open_quotes_are_counted_below_the_header(file: Callable[..., Path]) -> None:
    for content, *rows in (
        (b"1,a,1\n2,b\n3,c,1\n", 2),
        (b"1,a,1\n2,b,1,canary-83721\n3,c,1\n", 2),
        (b"\n1,a,1\n\n\n2,b\n3\n4,d,1\n", 2, 3),
        (b'1,"a\n\n\na",1\n2,b\n3,"c\n",1\n4,"x\ny"\n', 2, 4),
        (b"   \n1,a,1\n", 1),
        (b"1\r\n\r\n2\r\n", 1, 2),
        (b'1,a,1\n2,"canary-83721,2\n3,c,3\n', 2),
        (b'1,a,1\n2,b,"canary-83721\n3,c,3\n', 2),
        (b'1,a,1\n2,b,"', 2),
        (b'\n1,"a\nb",1\n\n2,"b"canary-83721,2\n', 2),
        (b'1,"' + b"x" * 200_000 + b'",1\n', 1),
    ):
        (problem,) = refused(file(HEADER + content)).problems
        assert problem.rows == tuple(rows), content[:50]
    (problem,) = refused(file(HEADER + b"1,a,1\n2\n" * 5000)).problems
    assert (problem.num_rows, problem.rows) == (5000, tuple(range(2, 41, 2)))
    for content in (b'id,"town,weight\n1,2,3\n', HEADER + b"1,2,3\n4," + b"x" * (1 << 25) + b",5\n"):
        assert len(refused(file(content)).problems) == 1
    # Ragged rows and cells in one error, and nothing of them.
    content = HEADER + b"1,a,1\n2,b\n3,c,canary-83721\n\n4\n5,,900\n6,f,6\n"
    assert found(refused(file(content))) == [("", 2, 4), ("town", 5), ("weight", 3), ("weight", 5)]
    error = refused(file(HEADER + f"{CANARY},{CANARY},{CANARY}\n,{CANARY},1\n{CANARY}, ,837210\n".encode()))
    assert found(error) == [("id", 2), ("town", 3), ("weight", 1), ("weight", 3)]
    assert "837210" not in str(error)


def test_headers(file: Callable[..., Path]) -> None:
    assert found(refused(file(b"id,town,town,weight\n1,2,3,4\n"))) == [("town",)]
    error = refused(file(b"id,Town,weight,\n1,2,3,4\n"))
    assert found(error) == [("town",), ("Town",), ("",)]
    assert "'Town'" in error.problems[0].remedy
    for content in (b"canary-83721,canary-83721,5\n1,2,3\n", b"id;town;weight\ncanary-83721;2;3\n"):  # no header
        error = refused(file(content))
        assert found(error) == [("id",), ("town",), ("weight",)]


def test_files_that_cannot_be_read(file: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for content in (b"", b"\n", b" \n\r\n\t", b"\xef\xbb\xbf"):
        assert len(refused(file(content)).problems) == 1, "no table"
    for content in (HEADER[:-1], HEADER, HEADER + b"\n\n"):  # whether there are rows may be private
        assert len(load(file(content), POLICY)) == 0
    for content, encoding, line in (
        ("id,town,weight\n1,a,1\n2,Zürich canary-83721,2\n".encode("latin-1"), "utf-8", 3),
        ("id,town,weight\n1,a,1\n".encode("utf-16"), "utf-8", 1),
        ("id,town,weight\n1,a,ö\n".encode(), "ascii", 2),
        (b"id,town,weight\n1,a,10", "utf-16", 2),
        (b"\x89PNG\r\n\x1a\n\0\0\xff", "utf-8", 1),
    ):
        message = str(refused(file(content), with_read(encoding=encoding)))
        assert all(word in message for word in (encoding, f"line {line}", "encoding"))
    assert "line 2" in str(refused(file(HEADER + b"1,canary-83721\0,2\n")))
    assert 'encoding = "utf-16"' in str(refused(file("id,town,weight\n1,a,1\n".encode("utf-16-le"))))
    for content, word in (
        (gzip.compress(HEADER), ".csv.gz"),
        (b"PAR1 and so on", "Parquet"),
        (b"PK\x03\x04", "workbook"),
    ):
        assert word in str(refused(file(content)))
    whole = gzip.compress(HEADER + b"1,a,1\n" * 100)
    for content in (HEADER, whole[:-5], whole[:20], whole[:30] + b"\0\0\0\0" + whole[34:], b""):
        refused(file(content, "data.csv.gz"))
    for path in (tmp_path / "no.csv", "no\0file.csv", tmp_path, "/dev/null"):
        refused(path)
    assert all(word in str(refused(file(b"", "x.xls"))) for word in (".csv", ".tsv.gz", ".parquet"))
    data = file(PLAIN.encode())
    assert len(load(str(data), str(file(POLICY.to_toml().encode(), "p.toml")))) == 2
    refusal(PolicyError, load, data, "no.toml")
    refusal(ParameterError, load, data, 5)
    long = file(b"stop," + b"x" * 200_000 + b"\n", "stops.csv")  # a cell as long as a file, in a public one
    assert "line 1" in str(refusal(InputError, read_lines, long))

    def denied(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    for name in ("data.csv", "data.csv.gz", "data.parquet"):
        path = file(HEADER, name)
        with monkeypatch.context() as patched:
            for place in ("builtins.open", "gzip.open", "pathlib.Path.open"):
                patched.setattr(place, denied)
            error = refusal(InputError, load, path, POLICY)
        assert name in str(error)


# --- Parquet and frames -------------------------------------------------------------------------------------------


def parquet(path: Path, **columns: Any) -> Path:
    given = {"id": ["a", "b"], "town": ["x", "y"], "weight": [1.5, 2.0], **columns}
    pq.write_table(pa.table(given), path)
    return path


def test_parquet(file: Callable[..., Path], tmp_path: Path) -> None:
    path, texts = tmp_path / "d.parquet", pa.array(["1.5", "2"])
    decimals = pa.array([Decimal("1.5"), Decimal(2)], pa.decimal128(10, 4))
    for weight in (pa.array([1.5, 2.0], pa.float32()), decimals, texts, texts.dictionary_encode()):
        assert load(parquet(path, weight=weight), POLICY).numbers("weight").tolist() == [1.5, 2.0]
    days = pa.array([dt.date(2026, 1, 1), None])
    assert found(refused(parquet(tmp_path / "d.pq", town=days))) == [("town", 2)]
    for weight, *rows in (
        (pa.array([1, 2**60]), 2),
        (pa.array([None, 1.0]), 1),
        (pa.array([1.0, float("inf")]), 2),
        (pa.array([dt.datetime(2026, 1, 1)] * 2, pa.timestamp("us", tz="UTC")),),
        (pa.array([[1.0], [2.0]]),),
        (pa.array(["1", CANARY]), 2),
    ):
        assert found(refused(parquet(path, weight=weight))) == [("weight", *rows)]
    whole = parquet(path).read_bytes()
    for content in (HEADER + b"canary-83721,a,1\n", b"", whole[:-20]):
        assert len(refused(file(content, "bad.parquet")).problems) == 1
    folder = tmp_path / "day=2026-11-15"  # named like a partition, it adds no column
    folder.mkdir()
    assert len(load(parquet(folder / "d.parquet"), POLICY)) == 2
    table = pa.Table.from_arrays([pa.array(["a"])] * 4, names=["id", "town", "town", "weight"])
    pq.write_table(table, path)
    assert found(refused(path))[0] == ("town",)


class Failing:
    """A frame whose own code fails and quotes a cell, as pandas does with mixed columns."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> None:
        raise RuntimeError(f"could not convert {CANARY}")


def test_frames(file: Callable[..., Path], tmp_path: Path) -> None:
    typed = {"id": [7, 8], "town": ["A", "B"], "weight": pa.array([0.1, 2], pa.float32())}
    table = pa.table(typed)
    columns = pl.DataFrame(table)
    frames = [table, columns, table.to_reader(), columns.cast({"town": pl.Categorical})]
    files = [file(HEADER + b"7,A,0.1\n8,B,2\n"), parquet(tmp_path / "d.parquet", **typed)]
    assert len({load(data, POLICY).keyed_digest(KEY) for data in (*frames, *files, files[0])}) == 1
    assert load(table, POLICY).source == "frame"
    for frame in (None, 5, [1], {"id": [1]}, b"data.csv", object(), pl.LazyFrame({"id": [1]})):
        assert type(frame).__name__ in str(refusal(ParameterError, load, frame, POLICY))
    for frame in (Failing(), pl.Series([1, 2]), pa.chunked_array([[1]])):
        error = refusal(ParameterError, load, frame, POLICY)
        assert type(frame).__name__ in str(error)
        assert CANARY not in "".join(traceback.format_exception(error))


CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6).filter(str.strip)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(CELLS, CELLS, st.integers(0, 5000)), min_size=1, max_size=6), st.sampled_from(",;\t|"))
def test_what_csv_writes_is_read_back(file: Callable[..., Path], rows: list[Any], delimiter: str) -> None:
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter)
    writer.writerow(["id", "town", "weight"])
    writer.writerows([id_, town, number / 10] for id_, town, number in rows)
    data = load(file(text.getvalue().encode()), with_read(delimiter=delimiter))
    assert data.column("id").to_pylist() == [row[0] for row in rows]
    assert data.column("town").to_pylist() == [row[1] for row in rows]
    assert data.numbers("weight").tolist() == [row[2] / 10 for row in rows]


PIECES = [b",", b"\n", b'"', b"1", b"id", b"\r", b" ", b".", b"\xff", b"\0", HEADER, b"NaN", b"1e999", b"a,b,1\n"]


def test_random_bytes_are_taken_or_refused(tmp_path: Path) -> None:
    dice = random.Random(7)
    path = tmp_path / "data.csv"
    taken = 0
    for turn in range(600):
        head = HEADER if dice.random() < 0.8 else b""
        path.write_bytes(
            head + (b"".join(dice.choices(PIECES, k=turn % 12)) if turn % 4 else dice.randbytes(turn % 50))
        )
        with contextlib.suppress(UserError):
            taken += isinstance(load(path, POLICY), dn.Dataset)
        with contextlib.suppress(UserError):
            tomllib.loads(draft(path))
    assert taken > 4


def test_damaged_parquet_is_taken_or_refused(tmp_path: Path) -> None:
    dice = random.Random(8)
    whole = parquet(tmp_path / "d.parquet", town=pa.array(["é", "y"]).dictionary_encode()).read_bytes()
    path = tmp_path / "e.parquet"
    for _ in range(500):
        content = bytearray(whole)
        for _ in range(dice.choice([1, 1, 3])):
            content[dice.randrange(len(content))] = dice.randrange(256)
        path.write_bytes(content)
        with contextlib.suppress(UserError):
            load(path, POLICY)


def test_a_quarter_million_rows_take_no_time(file: Callable[..., Path], within: Callable[..., Any]) -> None:
    num_rows = 250_000
    weights = np.random.default_rng(1).integers(0, 5000, num_rows) / 10
    lines = "\n".join(f'p{i},"town {i % 40}",{weight}' for i, weight in enumerate(weights.tolist()))
    path = file(HEADER + lines.encode())
    with within(2.0):  # about 0.2 s, with quotes
        data = load(path, POLICY)
    assert np.array_equal(data.numbers("weight"), weights)


# --- workbooks and other formats ------------------------------------------------------------------------------------

DEPOT = {"role": "public", "kind": "category", "domain": ["1001", "1002"]}
DEPOTS = {"id": TOWNS["id"], "weight": TOWNS["weight"], "depot": DEPOT}
NAMES = ["id", "weight", "depot"]
LINES: list[list[Any]] = [["a", 1.5, 1001], ["b", 2, 1002], ["c", 30.25, 1001]]


def workbook(path: Path, **sheets: list[list[Any]]) -> Path:
    """Write sheets; a string ``merge:A1:C1`` in front of a cell's text merges these cells."""
    with xlsxwriter.Workbook(str(path)) as book:
        written = {dt.datetime: "dd.mm.yyyy hh:mm", dt.date: "dd.mm.yyyy", dt.time: "hh:mm", dt.timedelta: "[hh]:mm"}
        formats = {kind: book.add_format({"num_format": form}) for kind, form in written.items()}
        for name, lines in sheets.items():
            sheet = book.add_worksheet(name)
            for row, cells in enumerate(lines):
                for column, cell in enumerate(cells):
                    if isinstance(cell, str) and cell.startswith("merge:"):
                        sheet.merge_range(cell.split("|")[0][6:], cell.split("|")[1])
                    elif cell is not None:
                        sheet.write(row, column, cell, formats.get(type(cell)))
    return path


def of_depots(**read: str) -> dn.Policy:
    return a_policy(PARTITION, DEPOTS, **({"read": read} if read else {}))


def loaded(path: Path, **changes: str) -> list[Any]:
    data = dn.load(path, of_depots(**changes))
    return [data.column(name).to_pylist() for name in NAMES]


def test_the_same_rows_in_every_format(tmp_path):
    lines = [NAMES, *LINES]
    text = "\n".join(",".join(map(str, line)) for line in lines)
    (tmp_path / "rows.csv").write_text(text)
    (tmp_path / "rows.tsv").write_text(text.replace(",", "\t"))
    (tmp_path / "rows.csv.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "rows.tsv.gz").write_bytes(gzip.compress(text.replace(",", "\t").encode()))
    workbook(tmp_path / "rows.xlsx", Sheet=lines)
    table = pa.table({name: [row[place] for row in LINES] for place, name in enumerate(NAMES)})
    pq.write_table(table, tmp_path / "rows.parquet")
    folder = tmp_path / "rows"
    folder.mkdir()
    (folder / "_SUCCESS").write_text("")
    for start in range(3):
        pq.write_table(table.slice(start, 1), folder / f"part-{start}.parquet")
    expected = [["a", "b", "c"], [1.5, 2.0, 30.25], ["1001", "1002", "1001"]]
    for path in sorted(tmp_path.iterdir()):
        assert loaded(path) == expected, path.name
        stream = TableStream(path, NAMES)
        batches = list(stream.batches(["weight"], []))
        assert sum(batch.num_rows for batch in batches) == 3, path.name
        assert stream.num_rows in (None, 3)
    assert "role" in dn.draft(folder)


def test_a_real_looking_workbook_is_read(tmp_path):
    """Title lines above the header, merged title cells, decimal commas as text, a second sheet with remarks."""
    lines = [["merge:A1:C1|Parcels of November"], [], ["", *NAMES], ["", "a", "1,5", 1001], [], ["", "b", 2.5, 1002.0]]
    path = workbook(tmp_path / "book.xlsx", Parcels=lines, Notes=[["ask the depot about it"]])
    assert loaded(path, decimal=",", delimiter=";") == [["a", "b"], [1.5, 2.5], ["1001", "1002"]]
    assert found(refused(path, of_depots())) == [("weight", 1)]
    assert shown(path)[0]["columns"] == {"id": "text", "weight": "text", "depot": "number"}
    drafted = dn.draft(path)
    assert 'decimal = ","' in drafted
    assert "sheet" not in drafted.partition("[read]")[2].partition("[")[0]
    # Two sheets with tables: the draft names the first, and a policy must name one.
    path = workbook(tmp_path / "two.xlsx", Parcels=lines, Old=lines)
    assert 'sheet = "Parcels"' in dn.draft(path)
    assert loaded(path, decimal=",", delimiter=";", sheet="Old") == [["a", "b"], [1.5, 2.5], ["1001", "1002"]]
    for changes in ({}, {"sheet": "New"}):
        assert "'Parcels', 'Old'" in str(refused(path, of_depots(**changes)))


def test_workbooks_that_cannot_be_read(tmp_path, monkeypatch):
    def says(*lines: list[Any]) -> str:
        error = refused(workbook(tmp_path / "book.xlsx", S=list(lines)), of_depots())
        assert len(error.problems) == 1
        return str(error)

    assert "A3:B3" in says(NAMES, LINES[0], ["merge:A3:B3|x"])
    assert "line 1, column B" in says(["id", "", "weight", "depot"], ["a", "", 1, 1001])
    assert "book.xlsx" in says(["x", "y"], [1, 2])
    assert "book.xlsx" in says()
    assert "row 2" in says(NAMES, LINES[0], [*LINES[1], "note"])
    assert "'depot'" in says(["id", "weight"], ["a", 1])
    (tmp_path / "bad.xlsx").write_bytes(b"PK\x03\x04 nothing")
    refused(tmp_path / "bad.xlsx")
    path = workbook(tmp_path / "good.xlsx", S=[NAMES, *LINES])
    assert loaded(path)
    monkeypatch.setattr(reader, "max_decoded", lambda size: 100)
    assert "CSV" in str(refused(path, of_depots()))
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "python_calamine", None)
    monkeypatch.setitem(sys.modules, "xlsxwriter", None)
    for needed in (lambda: dn.load(path, of_depots()), lambda: write_workbook(tmp_path, tmp_path / "out.xlsx")):
        assert "dunnage[excel]" in str(refusal(ParameterError, needed))


def test_cells_of_a_workbook_keep_their_types(tmp_path):
    moment, clock = dt.datetime(2026, 11, 15, 8, 30), dt.time(7, 15)
    columns = {
        "whole": ([1, 2.0], pa.int64(), [1, 2]),
        "part": ([1, None, 2.5], pa.float64(), [1.0, None, 2.5]),
        "when": ([moment, None], pa.timestamp("us"), [moment, None]),
        "yes": ([True, False], pa.bool_(), [True, False]),
        "mixed": ([1.5, "x", True, 3], pa.string(), ["1,5", "x", "true", "3"]),
        "zip": (["01234"], pa.string(), ["01234"]),
        "clock": ([clock, None], pa.time64("us"), [clock, None]),
        "long": ([dt.timedelta(hours=25, minutes=30), clock], pa.string(), ["25:30:00", "07:15:00"]),
        "days": ([moment.date(), moment], pa.timestamp("us"), [dt.datetime(2026, 11, 15), moment]),
        "later": ([moment, "later"], pa.string(), ["2026-11-15T08:30:00", "later"]),
        "blank": ([], pa.string(), []),
    }
    height = max(len(cells) for cells, _, _ in columns.values())
    padded = [[*cells, *[None] * (height - len(cells))] for cells, _, _ in columns.values()]
    path = workbook(tmp_path / "types.xlsx", S=[list(columns), *(list(row) for row in zip(*padded, strict=True))])
    table = read_table(path, ReadOptions(delimiter=";", decimal=",")).table
    for name, (_, kind, values) in columns.items():
        assert table.column(name).type == kind, name
        assert table.column(name).to_pylist()[: len(values)] == values, name


def test_plain_numbers_are_no_times_of_a_workbook(tmp_path):
    trips = a_trip_policy({"name": "noisy-counts", "epsilon": 1})
    rows: list[list[Any]] = [["card", "from", "to", "at"], ["c", "S0", "S1", 45976.25]]
    assert found(refused(workbook(tmp_path / "plain.xlsx", S=rows), trips)) == [("at",)]
    rows[1][3] = dt.datetime(2026, 11, 15, 8, 30)
    assert len(dn.load(workbook(tmp_path / "dated.xlsx", S=rows), trips)) == 1


def test_folders_of_parquet_files(tmp_path):
    folder = tmp_path / "rows"
    folder.mkdir()
    refused(folder, of_depots())
    pq.write_table(pa.table({"id": ["a"], "weight": [1.0], "depot": ["1001"]}), folder / "a.parquet")
    assert len(dn.load(folder, of_depots())) == 1
    pq.write_table(pa.table({"id": ["a"], "weight": ["1"], "depot": ["1001"]}), folder / "b.parquet")
    assert all(name in str(refused(folder, of_depots())) for name in ("a.parquet", "b.parquet"))
    (folder / "b.parquet").write_bytes(b"PAR1")
    assert "b.parquet" in str(refused(folder, of_depots()))


def test_public_lists_may_be_workbooks_and_parquet_too(tmp_path):
    trucks = [["truck", "count", "cost", "weight"], ["van", 3, None, 500], ["lorry", None, 2.5, 9000]]
    path = workbook(tmp_path / "trucks.xlsx", S=trucks)
    assert [(truck.name, truck.count, truck.cost) for truck in read_trucks(path, ["weight"])] == [
        ("van", 3, 1.0),
        ("lorry", None, 2.5),
    ]
    fleet = workbook(tmp_path / "fleet.xlsx", S=[["zone", "shuttles"], ["north", 3], ["south", 2]])
    assert dn.FleetPlan.read(fleet).shuttles == (3, 2)
    assert states_fleet_plan(fleet)
    stops = workbook(tmp_path / "stops.xlsx", S=[["stop", "zone"], ["A", 1], ["B", 2]])
    pairs = [(a, b) for a in "AB" for b in "AB"]
    modes = {"origin": [a for a, _ in pairs], "destination": [b for _, b in pairs], "mode": ["bus"] * 4}
    pq.write_table(pa.table(modes), tmp_path / "modes.parquet")
    city = dn.City.read(stops, tmp_path / "modes.parquet")
    assert (city.stops, city.zone_names, city.mode_names) == (("A", "B"), ("1", "2"), ("bus",))
    (tmp_path / "tree.csv.gz").write_bytes(gzip.compress(b"a;all\nb;all\n"))
    assert dn.Tree.from_csv(tmp_path / "tree.csv.gz").labels == ("a", "b")
    (tmp_path / "half.csv.gz").write_bytes(gzip.compress(b"a;all\nb;all\n")[:-9])
    refusal(InputError, dn.Tree.from_csv, tmp_path / "half.csv.gz")


def test_tables_of_a_release_and_a_plan_as_workbooks(tmp_path):
    data = pa.table({"id": list("abcd"), "weight": [1.0, 2.0, 3.0, 4.0], "depot": ["1001", "1002"] * 2})
    release, _ = dn.publish(dn.load(data, of_depots()), out=tmp_path / "release", ledger=tmp_path / "ledger.sqlite")
    plan = dn.pack(release, capacity=500, seconds=1)
    plan.write(tmp_path / "plan")
    for name in ("release", "plan"):
        sheets = write_workbook(tmp_path / name, tmp_path / f"{name}.xlsx")
        book = python_calamine.CalamineWorkbook.from_path(str(tmp_path / f"{name}.xlsx"))
        assert book.sheet_names == sheets == sorted(file.stem for file in (tmp_path / name).glob("*.csv"))
    table = read_table(tmp_path / "release.xlsx", ReadOptions(sheet="data")).table
    assert table.column_names == release.tables["data"].column_names
    assert table.column("weight_lower").to_pylist() == release.tables["data"].column("weight_lower").to_pylist()
    refusal(ParameterError, write_workbook, tmp_path, tmp_path / "x.xlsx")
    for out in ("plan.xlsx", "plan.ods"):
        refusal(OutputError, write_workbook, tmp_path / "plan", tmp_path / out)


@given(st.lists(st.sampled_from(["a", "b", '"', '""', ",", "\n", "\r\n", '"a"', ',"b,c"']), max_size=14).map("".join))
def test_files_with_plain_quotes_need_no_reading_row_by_row(text):
    """Whatever looks plain at once is accepted row by row; a quote in a quote, or an open one, never looks plain."""
    content = text.encode()
    if reader._plain_quotes(content, ","):
        assert sum(1 for _ in reader.csv_rows(content, ",", strict=True)) >= 0  # would raise
    else:
        assert '"' in text
    assert reader._plain_quotes(b'a,b\n"1,5",2\n', ",")
    assert not reader._plain_quotes(b'a,b\n"1 ""x""",2\n', ",")
    assert not reader._plain_quotes(b'a,b\n"1,2\n', ",")


@pytest.mark.parametrize("distinct", [50, 10**9])
def test_values_are_ranked_the_same_by_sorting_and_by_counting(distinct):
    numbers = np.random.default_rng(3).integers(-distinct, distinct, 10_000) / 8
    numbers[:3] = [0.0, -0.0, 0.0]
    values, ranks = finest._ranked(pa.array(numbers))
    expected, places = np.unique(numbers, return_inverse=True)
    assert (values.to_numpy() == expected).all()
    assert (ranks == places).all()
