# SPDX-License-Identifier: Apache-2.0
"""Reading files and frames: every way a file can be bad gets one error with the right row, and no cell in it."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import json
import random
import tomllib
import traceback
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dunnage
from dunnage.errors import InputError, ParameterError, PolicyError, UserError
from dunnage.model.policy import Policy
from dunnage.tables.dataset import Dataset, draft, load

KEY = b"k" * 32
BASE = """
dataset = "parcels"
protects = "package"
[attributes.id]
role = "identifier"
[attributes.town]
role = "public"
[attributes.weight]
role = "quasi-identifier"
kind = "numeric"
domain = [0, 500]
[mechanism]
name = "partition"
k = 2
"""
POLICY = Policy.from_text(BASE)
HEADER = b"id,town,weight\n"
CANARY = "canary-83721"


@pytest.fixture
def file(tmp_path: Path) -> Callable[..., Path]:
    """Write bytes to a file and give its path."""

    def write(content: bytes, name: str = "data.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return write


def with_read(lines: str) -> Policy:
    return Policy.from_text(f"{BASE}[read]\n{lines}\n")


def refused(data: Any, policy: Policy = POLICY) -> str:
    """Load what must be refused; check that nothing of its cells is told, and give the message."""
    with pytest.raises(InputError) as caught:
        load(data, policy)
    assert caught.value.exit_code == 2
    printed = "".join(traceback.format_exception(caught.value)) + repr(caught.value) + repr(vars(caught.value))
    assert CANARY not in printed
    return str(caught.value)


def test_a_plain_file(file: Callable[..., Path]) -> None:
    data = load(file(HEADER + b"007,A,1.5\n008,B,2\n"), POLICY)
    assert data.column("id").to_pylist() == ["007", "008"]
    assert data.numbers("weight").tolist() == [1.5, 2.0]
    assert data.source.endswith("data.csv")
    assert dunnage.load is load


# --- CSV that is fine ---------------------------------------------------------------------------------------------

ROWS = "007,A,1.5\n008,B,2\n"


def test_ways_to_write_the_same(file: Callable[..., Path]) -> None:
    plain = f"id,town,weight\n{ROWS}"
    for content, read in (
        (plain.encode(), ""),
        (plain.rstrip().encode(), ""),
        (plain.replace("\n", "\r\n").encode(), ""),
        (plain.replace("\n", "\r").encode(), ""),
        (plain.encode("utf-8-sig"), ""),
        (plain.encode("utf-8-sig"), 'encoding = "UTF8"'),
        (plain.encode("utf-16"), 'encoding = "utf-16"'),
        (f"\ufeff{plain}".encode("utf-16-le"), 'encoding = "utf-16-le"'),
        (f"\n\nid,town,weight\n\n{ROWS}\n\n".encode(), ""),
        (plain.replace(",", "\t").encode(), 'delimiter = "\\t"'),
        (plain.replace(",", ";").replace(".", ",").encode(), 'delimiter = ";"\ndecimal = ","'),
        (b'"id","town","weight"\n"007","A","1.5"\n"008","B","2"\n', ""),
    ):
        data = load(file(content), with_read(read) if read else POLICY)
        assert data.column("id").to_pylist() == ["007", "008"]
        assert data.column("town").to_pylist() == ["A", "B"]
        assert data.numbers("weight").tolist() == [1.5, 2.0]
        assert data.source_rows.tolist() == [0, 1]
    content = "id,town,weight\n1,Zürich,1\n".encode("latin-1")
    assert load(file(content), with_read('encoding = "latin-1"')).column("town").to_pylist() == ["Zürich"]
    assert len(load(file(gzip.compress(plain.encode()), "DATA.CSV.GZ"), POLICY)) == 2


def test_quoted_cells(file: Callable[..., Path]) -> None:
    content = b'id,town,weight\n1,"a ""b"", c\n\nd",1\n2,"",3\n3,5" pipe,3\n'
    policy = Policy.from_text(BASE.replace('role = "public"', 'role = "public"\nmissing = "leave-out"'))
    data = load(file(content), policy)
    assert data.column("town").to_pylist() == ['a "b", c\n\nd', '5" pipe']
    assert data.source_rows.tolist() == [0, 2]


# --- CSV that is not ----------------------------------------------------------------------------------------------


def test_files_without_rows(file: Callable[..., Path]) -> None:
    for content in (b"", b"\n", b" \n\r\n\t", b"\xef\xbb\xbf"):
        assert "is empty" in refused(file(content))
    for content in (b"id,town,weight", HEADER, HEADER + b"\n\n", HEADER.replace(b"\n", b"\r\n")):
        assert "has a header but no rows" in refused(file(content))


def test_ragged_rows_are_counted_below_the_header(file: Callable[..., Path]) -> None:
    for content, rows in (
        (b"1,a,1\n2,b\n3,c,1\n", "row 2"),
        (b"1,a,1\n2,b,1,canary-83721\n3,c,1\n", "row 2"),
        (b"\n1,a,1\n\n\n2,b\n3\n4,d,1\n", "2 rows: 2, 3"),
        (b'1,"a\n\n\na",1\n2,b\n3,"c\n",1\n4,"x\ny"\n', "2 rows: 2, 4"),
        (b"   \n1,a,1\n", "row 1"),
        (b"1\r\n\r\n2\r\n", "2 rows: 1, 2"),
    ):
        message = refused(file(HEADER + content))
        assert f"has more or fewer cells than the header's 3 in {rows}. Mend or quote" in message
    with pytest.raises(InputError) as caught:
        load(file(HEADER + b"1,a,1\n2\n" * 5000), POLICY)
    (problem,) = caught.value.problems
    assert (problem.num_rows, problem.rows) == (5000, tuple(range(2, 41, 2)))


def test_ragged_rows_and_cells_in_one_error(file: Callable[..., Path]) -> None:
    content = HEADER + b"1,a,1\n2,b\n3,c,canary-83721\n\n4\n5,,900\n6,f,6\n"
    with pytest.raises(InputError) as caught:
        load(file(content), POLICY)
    found = [(problem.where, problem.rows) for problem in caught.value.problems]
    assert found == [
        ("", (2, 4)),
        ("column 'town'", (5,)),
        ("column 'weight'", (3,)),
        ("column 'weight'", (5,)),
    ]


def test_quotes_that_do_not_close(file: Callable[..., Path]) -> None:
    for content, row in (
        (b'1,a,1\n2,"canary-83721,2\n3,c,3\n', 2),
        (b'1,a,1\n2,b,"canary-83721\n3,c,3\n', 2),
        (b'1,a,1\n2,b,"', 2),
        (b'\n1,"a\nb",1\n\n2,"b"canary-83721,2\n', 2),
        (b'1,"' + b"x" * 200_000 + b'",1\n', 1),
    ):
        message = refused(file(HEADER + content))
        assert "has a quote that is not closed" in message
        assert f"in row {row}" in message
    assert "header: has a quote" in refused(file(b'id,"town,weight\n1,2,3\n'))
    assert "is not a readable CSV file" in refused(file(HEADER + b"1,2,3\n4," + b"x" * (1 << 25) + b",5\n"))


def test_the_wrong_encoding_names_the_line(file: Callable[..., Path]) -> None:
    for content, encoding, line in (
        ("id,town,weight\n1,a,1\n2,Zürich canary-83721,2\n".encode("latin-1"), "utf-8", 3),
        ("id,town,weight\n1,a,1\n".encode("utf-16"), "utf-8", 1),
        ("id,town,weight\n1,a,ö\n".encode(), "ascii", 2),
        (b"id,town,weight\n1,a,10", "utf-16", 2),
        (b"\x89PNG\r\n\x1a\n\0\0\xff", "utf-8", 1),
    ):
        message = refused(file(content), with_read(f'encoding = "{encoding}"'))
        assert f"is not {encoding} text (line {line})" in message
        assert "[read] encoding" in message
    assert "line 2 holds a NUL character" in refused(file(HEADER + b"1,canary-83721\0,2\n"))
    assert 'encoding = "utf-16"' in refused(file("id,town,weight\n1,a,1\n".encode("utf-16-le")))


def test_other_formats_under_the_name_of_csv(file: Callable[..., Path]) -> None:
    assert "no CSV file but gzip (.csv.gz)" in refused(file(gzip.compress(HEADER)))
    assert "no CSV file but Parquet" in refused(file(b"PAR1 and so on"))
    assert "workbook" in refused(file(b"PK\x03\x04 and so on"))
    whole = gzip.compress(HEADER + b"1,a,1\n" * 100)
    for content in (HEADER, whole[:-5], whole[:20], whole[:30] + b"\0\0\0\0" + whole[34:], b""):
        message = refused(file(content, "data.csv.gz"))
        assert "gzip file" in message or "is empty" in message


def test_headers(file: Callable[..., Path]) -> None:
    assert "column 'town': appears 2 times" in refused(file(b"id,town,town,weight\n1,2,3,4\n"))
    message = refused(file(b"id,Town,weight,\n1,2,3,4\n"))
    assert "column 'town': is declared in the policy but not in the data. Did you mean 'Town'?" in message
    assert "column '': is not declared" in message
    message = refused(file(b"canary-83721,canary-83721,5\n1,2,3\n"))  # no header
    assert "column 'weight': is declared in the policy but not in the data. Check that the first line" in message
    assert "delimiter and encoding in [read]" in refused(file(b"id;town;weight\ncanary-83721;2;3\n"))


def test_cells_print_nothing(file: Callable[..., Path]) -> None:
    content = HEADER + b"canary-83721,canary-83721,canary-83721\n,canary-83721,1\ncanary-83721, ,837210\n"
    message = refused(file(content))
    for says in (
        "'weight': is not a finite number in row 1",
        "'id': has no value in row 2",
        "'town': has no value in row 3",
        "'weight': lies outside the public domain in row 3",
    ):
        assert says in message
    assert "837210" not in message


# --- paths --------------------------------------------------------------------------------------------------------


def test_paths(file: Callable[..., Path], tmp_path: Path) -> None:
    assert "does not exist" in refused(tmp_path / "no.csv")
    assert "does not exist" in refused("no\0file.csv")
    assert "is a folder" in refused(tmp_path)
    assert "is not a file" in refused("/dev/null")
    assert "neither CSV nor Parquet by its name. Use one of .csv, .csv.gz, .tsv, .tsv.gz, .parquet, .pq" in refused(
        file(b"", "x.xls")
    )


def test_no_permission(file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    for name in ("data.csv", "data.csv.gz", "data.parquet"):
        path = file(HEADER, name)
        with monkeypatch.context() as patched:
            for place in ("builtins.open", "gzip.open", "pathlib.Path.open"):
                patched.setattr(place, denied)
            with pytest.raises(InputError) as caught:
                load(path, POLICY)
        assert "cannot be read: Permission denied" in str(caught.value)


def test_the_policy_may_be_a_path(file: Callable[..., Path]) -> None:
    data = file(HEADER + ROWS.encode())
    assert len(load(str(data), str(file(BASE.encode(), "p.toml")))) == 2
    with pytest.raises(PolicyError, match="cannot be read"):
        load(data, "no.toml")
    with pytest.raises(ParameterError, match="policy must be"):
        load(data, 5)  # type: ignore[arg-type]


# --- Parquet ------------------------------------------------------------------------------------------------------


def parquet(path: Path, **columns: Any) -> Path:
    given = {"id": ["a", "b"], "town": ["x", "y"], "weight": [1.5, 2.0], **columns}
    pq.write_table(pa.table(given), path)
    return path


def test_parquet_cells(tmp_path: Path) -> None:
    texts = pa.array(["1.5", "2"])
    decimals = pa.array([Decimal("1.5"), Decimal(2)], pa.decimal128(10, 4))
    for weight in (pa.array([1.5, 2.0], pa.float32()), decimals, texts, texts.dictionary_encode()):
        data = load(parquet(tmp_path / "d.parquet", weight=weight), POLICY)
        assert data.numbers("weight").tolist() == [1.5, 2.0]
    days = pa.array([date(2026, 1, 1), None])
    assert "'town': has no value in row 2" in refused(parquet(tmp_path / "d.pq", town=days))
    for weight, says in (
        (pa.array([1, 2**60]), "lies outside the public domain in row 2"),
        (pa.array([None, 1.0]), "has no value in row 1"),
        (pa.array([1.0, float("inf")]), "is not a finite number in row 2"),
        (pa.array([datetime(2026, 1, 1)] * 2, pa.timestamp("us", tz="UTC")), "has type timestamp[us, tz=UTC]"),
        (pa.array([[1.0], [2.0]]), "has type list<"),
        (pa.array(["1", CANARY]), "is not a finite number in row 2"),
    ):
        assert f"column 'weight': {says}" in refused(parquet(tmp_path / "d.parquet", weight=weight))


def test_parquet_that_is_none(file: Callable[..., Path], tmp_path: Path) -> None:
    whole = parquet(tmp_path / "f.parquet").read_bytes()
    for content in (HEADER + b"canary-83721,a,1\n", b"", whole[:-20]):
        assert "is not a readable Parquet file" in refused(file(content, "d.parquet"))


def test_folders_named_like_partitions_add_no_column(tmp_path: Path) -> None:
    folder = tmp_path / "day=2026-11-15"
    folder.mkdir()
    assert len(load(parquet(folder / "d.parquet"), POLICY)) == 2


def test_parquet_with_two_columns_of_one_name(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array(["a"])] * 4, names=["id", "town", "town", "weight"])
    pq.write_table(table, tmp_path / "d.parquet")
    assert "column 'town': appears 2 times" in refused(tmp_path / "d.parquet")


# --- frames -------------------------------------------------------------------------------------------------------


def test_frames() -> None:
    columns = {"id": ["007", "008"], "town": ["A", "B"], "weight": [1.5, 2.0]}
    table = pa.table(columns)
    frames = [table, pl.DataFrame(columns), table.to_reader(), pl.DataFrame(columns).cast({"town": pl.Categorical})]
    digests = {load(frame, POLICY).keyed_digest(KEY) for frame in frames}
    assert len(digests) == 1
    assert load(table, POLICY).source == "frame"


class Failing:
    """A frame whose own code fails and quotes a cell, as pandas does with mixed columns."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> None:
        raise RuntimeError(f"could not convert {CANARY}")


def test_what_is_no_frame() -> None:
    for frame in (None, 5, [1], {"id": [1]}, b"data.csv", object(), pl.LazyFrame({"id": [1]})):
        with pytest.raises(ParameterError, match=f"Got {type(frame).__name__}"):
            load(frame, POLICY)
    for frame in (Failing(), pl.Series([1, 2]), pa.chunked_array([[1]])):
        with pytest.raises(ParameterError, match=f"the {type(frame).__name__} could not be turned into") as caught:
            load(frame, POLICY)
        assert CANARY not in "".join(traceback.format_exception(caught.value))


# --- the same content ---------------------------------------------------------------------------------------------


def test_the_same_content_has_the_same_digest(file: Callable[..., Path], tmp_path: Path) -> None:
    path = file(HEADER + b"7,A,0.1\n8,B,2\n")
    expected = load(path, POLICY).keyed_digest(KEY)
    assert load(path, POLICY).keyed_digest(KEY) == expected
    typed = {"id": [7, 8], "town": ["A", "B"], "weight": pa.array([0.1, 2], pa.float32())}
    assert load(parquet(tmp_path / "d.parquet", **typed), POLICY).keyed_digest(KEY) == expected
    assert load(pl.DataFrame(pa.table(typed)), POLICY).keyed_digest(KEY) == expected


CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6).filter(str.strip)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(CELLS, CELLS, st.integers(0, 5000)), min_size=1, max_size=6), st.sampled_from(",;\t|"))
def test_what_csv_writes_is_read_back(file: Callable[..., Path], rows: list[Any], delimiter: str) -> None:
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter)
    writer.writerow(["id", "town", "weight"])
    writer.writerows([id_, town, number / 10] for id_, town, number in rows)
    data = load(file(text.getvalue().encode()), with_read(f"delimiter = {json.dumps(delimiter)}"))
    assert data.column("id").to_pylist() == [row[0] for row in rows]
    assert data.column("town").to_pylist() == [row[1] for row in rows]
    assert data.numbers("weight").tolist() == [row[2] / 10 for row in rows]


# --- fuzzing ------------------------------------------------------------------------------------------------------

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
            taken += isinstance(load(path, POLICY), Dataset)
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


# --- drafts -------------------------------------------------------------------------------------------------------


def test_a_draft_from_a_file(file: Callable[..., Path], tmp_path: Path) -> None:
    csv_text = draft(file(HEADER + b"x1,canary-83721,83721\nx2,B,\n", "parcels.2026.csv"))
    assert "83721" not in csv_text
    document = tomllib.loads(csv_text)
    assert document["dataset"] == "parcels"
    kinds = {name: table.get("kind") for name, table in document["attributes"].items()}
    assert kinds == {"id": None, "town": None, "weight": "numeric"}
    from_parquet = tomllib.loads(draft(parquet(tmp_path / "d.parquet")))
    assert from_parquet["attributes"] == document["attributes"]


def test_a_draft_finds_the_delimiter(file: Callable[..., Path]) -> None:
    for delimiter in (";", "\t", "|"):
        document = tomllib.loads(draft(file((HEADER + ROWS.encode()).replace(b",", delimiter.encode()))))
        assert list(document["attributes"]) == ["id", "town", "weight"]
        assert document["read"] == {"delimiter": delimiter}


def test_a_draft_of_odd_columns(file: Callable[..., Path]) -> None:
    names = ['a "b"', "a.b", "[x]", "größe", "😀", "a\\b", "x\x7f", "", "line\nline"]
    text = io.StringIO()
    csv.writer(text).writerow(names)
    assert list(tomllib.loads(draft(file(text.getvalue().encode())))["attributes"]) == names


def test_a_draft_of_what_is_no_file(file: Callable[..., Path], tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "no.csv", file(b"x", "x.txt"), file(b"", "y.csv"), file(b"", "y.parquet")):
        with pytest.raises(InputError):
            draft(path)
    with pytest.raises(ParameterError, match="data must be the path of a file"):
        draft(pa.table({"a": [1]}))  # type: ignore[arg-type]


# --- speed --------------------------------------------------------------------------------------------------------


def test_a_quarter_million_rows_take_no_time(file: Callable[..., Path], within: Callable[..., Any]) -> None:
    num_rows = 250_000
    weights = np.random.default_rng(1).integers(0, 5000, num_rows) / 10
    lines = "\n".join(f'p{i},"town {i % 40}",{weight}' for i, weight in enumerate(weights.tolist()))
    path = file(HEADER + lines.encode())
    with within(2.0):  # about 0.2 s, with quotes
        data = load(path, POLICY)
    assert np.array_equal(data.numbers("weight"), weights)


def test_a_single_column(tmp_path: Path) -> None:
    """An empty line is a missing cell then, and the index that pandas brings along is no second one."""
    path = tmp_path / "one.csv"
    path.write_text("w\n1\n\n2\n3\n\n")
    attributes = {"w": {"role": "quasi-identifier", "kind": "numeric", "domain": [0, 9]}}
    document = {"dataset": "one", "protects": "package", "attributes": attributes}
    policy = Policy.from_dict({**document, "mechanism": {"name": "partition", "k": 2}})
    with pytest.raises(InputError, match="'w': has no value in row 2"):
        load(path, policy)
    assert len(load(pa.table({"w": [1.0, 2.0, 3.0], "__index_level_0__": [4, 7, 9]}), policy)) == 3


def test_a_draft_finds_out_how_a_european_file_is_written(tmp_path: Path) -> None:
    path = tmp_path / "pakete.csv"
    path.write_bytes("nr;gew;ort\n1;1,5;Köln\n2;2,25;Bonn\n".encode("latin-1"))
    text = draft(path)
    for line in ('delimiter = ";"', 'decimal = ","', 'encoding = "latin-1"'):
        assert line in text
    filled = text.replace('role = ""', 'role = "public"').replace('k = ""', "k = 2")
    assert len(load(path, Policy.from_text(filled))) == 2


def test_a_public_file_with_a_cell_as_long_as_a_file_is_refused(tmp_path: Path) -> None:
    from dunnage.tables.reader import read_lines

    path = tmp_path / "stops.csv"
    path.write_text("stop," + "x" * 200_000 + "\n")
    with pytest.raises(InputError, match="line 1: this is not CSV"):
        read_lines(path)
