"""What leaves the owner: nothing private in any byte, and the same tables however they are read."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import os
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.builders import a_policy
from tests.refusals import refusal

import dunnage as dn
from dunnage.errors import ParameterError, ReleaseError
from dunnage.release import CERTIFICATE_FILE, Release
from dunnage.tables.columns import escape_text

NOON = dt.datetime(2026, 11, 15, 12, 30, 5, 123456)
PARIS = pa.timestamp("us", "Europe/Paris")


def policy_of(statistic: str = "multiset", **roles: str) -> dn.Policy:
    """A policy for a numeric weight, and other columns by role."""
    attributes = {name: {"role": role} for name, role in roles.items()}
    weight = {"role": "quasi-identifier", "kind": "numeric", "domain": [0, 500], "unit": "kg"}
    mechanism = {"name": "partition", "k": 3, "statistic": statistic}
    return a_policy(mechanism, {**attributes, "weight": weight}, small="suppress")


def published(folder: Path, columns: dict[str, Any], statistic: str = "multiset", **roles: str) -> Release:
    weights = [float(number) for number in range(len(next(iter(columns.values()))))]
    data = dn.load(pa.table({**columns, "weight": weights}), policy_of(statistic, **roles))
    return dn.publish(data, out=folder, ledger=":memory:").release


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "release"


def decoded(file: Path) -> str:
    """All that a Parquet file says once it is decompressed: cells, schema, metadata, statistics."""
    reader = pq.ParquetFile(file)
    groups = [reader.metadata.row_group(number).to_dict() for number in range(reader.metadata.num_row_groups)]
    table = reader.read()
    return f"{table.to_pydict()} {table.schema.metadata} {reader.metadata.metadata} {reader.schema} {groups}"


def test_no_identifier_is_in_any_byte_of_the_folder(folder: Path) -> None:
    names = [f"CANARY-{number:05d}" for number in range(40)]
    metadata = pa.table({"parcel": names, "note": ["DROPPED"] * 40}).replace_schema_metadata({"made by": "SECRET"})
    weights = pa.array([float(number % 13) for number in range(40)])
    data = dn.load(metadata.append_column("weight", weights), policy_of(parcel="identifier", note="drop"))
    dn.publish(data, out=folder, ledger=":memory:")
    other = dn.load(pa.table({"weight": weights}), policy_of())
    dn.publish(other, out=folder.with_name("other"), ledger=":memory:")
    page = (folder.with_name("other") / "verify.html").read_bytes()
    for file in folder.iterdir():
        text = file.read_bytes() + (decoded(file).encode() if file.suffix == ".parquet" else b"")
        if file.name == "verify.html":  # the same for all releases
            text = b"".join(text.split(page))
        for word in (b"CANARY", b"SECRET", b"DROPPED", b'parcel"', b"source_row", b"note"):
            assert word not in text, (file.name, word)
    key = dn.Key.read(folder.with_name("release.key.parquet"))
    assert sorted(key.table.column("parcel").to_pylist()) == names


def test_the_order_of_rows_is_not_that_of_the_input(folder: Path) -> None:
    serial = [f"S{number:03d}" for number in range(200)]
    orders = []
    for name in ("one", "two"):
        release = published(folder.with_name(name), {"serial": serial}, serial="sensitive")
        orders.append([int(text[1:]) for text in release.data.column("serial").to_pylist()])
        assert release.data.column("row").to_pylist() == list(range(200))
    assert orders[0] != orders[1]
    for order in orders:
        assert sorted(order) == list(range(200))
        # Under a random order the correlation has sd 1 / sqrt(199); 7 sd is p < 1e-11.
        assert abs(float(np.corrcoef(order, np.arange(200))[0, 1])) < 7 / 199**0.5


def test_a_release_comes_back_from_its_folder(tmp_path: Path) -> None:
    for statistic in ("bounds", "mean", "multiset"):
        folder = tmp_path / f"statistic={statistic}"  # which looks like a partition, and adds no column
        release = published(folder, {"place": ["A", "B"] * 10}, statistic, place="public")
        again = Release.read(folder)
        assert again.certificate == release.certificate
        assert list(again.tables) == list(release.tables)
        for name, table in again.tables.items():
            assert table.equals(release.tables[name], check_metadata=True)
        assert len(again) == 20
        assert repr(again) == "Release('parcels', k-anonymity, proved, 20 rows)"
        weight = again.uncertain("weight")
        assert (weight.name, weight.unit, len(weight)) == ("weight", "kg", 20)
        assert (weight.nominal is None) == (statistic == "bounds")
        if weight.nominal is not None:
            assert ((weight.lower <= weight.nominal) & (weight.nominal <= weight.upper)).all()
        assert (weight.scenarios is None) == (statistic != "multiset")
    assert weight.scenarios is not None
    assert sorted(float(x) for values in weight.scenarios for x in values) == [float(x) for x in range(20)]
    assert "weight" in str(refusal(ParameterError, release.uncertain, "volume"))


TYPES: dict[str, pa.Array] = {
    "int8": pa.array([-3, 4], pa.int8()),
    "uint64": pa.array([2**64 - 1, 0], pa.uint64()),
    "bool": pa.array([True, False]),
    "float16": pa.array(np.array([0.5, 1.5], np.float16)),
    "float32": pa.array([0.1, 1e30], pa.float32()),
    "float64": pa.array([1e-300, -0.1]),
    "decimal32": pa.array([Decimal("-1.50"), Decimal("2.00")], pa.decimal128(5, 2)),
    "decimal128": pa.array([Decimal("-1.50"), Decimal(10) ** 20], pa.decimal128(38, 10)),
    "decimal256": pa.array([Decimal("-1.50"), Decimal("2.00")], pa.decimal256(60, 2)),
    "date32": pa.array([NOON.date(), dt.date(1900, 1, 1)]),
    "date64": pa.array([NOON.date(), dt.date(1900, 1, 1)], pa.date64()),
    "seconds": pa.array([0, 1_800_000_000], pa.timestamp("s")),
    "nanoseconds": pa.array([1, 1_800_000_000_123_456_789], pa.timestamp("ns")),
    "utc": pa.array([NOON, NOON.replace(year=1969)], pa.timestamp("us", "UTC")),
    "zone": pa.array([NOON, NOON.replace(month=7)], PARIS),
    # The two instants that both read 02:30 on the night clocks go back.
    "zone twice": pa.array([1_792_888_200_000_000, 1_792_891_800_000_000], PARIS),
    "offset": pa.array([0, 5], pa.timestamp("s", "+05:30")),
    "time32": pa.array([0, 86_399], pa.time32("s")),
    "time64": pa.array([1, 86_399_999_999_999], pa.time64("ns")),
    "dictionary": pa.array(["b", "a"]).dictionary_encode(),
    "large_string": pa.array(["b", "a"], pa.large_string()),
}


def test_every_type_survives_parquet_and_csv(tmp_path: Path) -> None:
    columns = {name: pa.concat_arrays([values] * 10) for name, values in TYPES.items() if name != "dictionary"}
    columns["dictionary"] = pa.array(["b", "a"] * 10)
    for role in ("public", "sensitive"):
        release = published(tmp_path / role, columns, **dict.fromkeys(columns, role))
        assert dn.verify(tmp_path / role).problems == []
        assert Release.read(tmp_path / role).data.equals(release.data)


NASTY = ["=1+1", "+1-800", "-x", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1", "'=1", 'quote " and ""', " x ", "NA"]  # noqa: RUF001
NASTY += ["comma, semicolon; bar|", "line\nbreak", "line\r\nbreak", "漢字 é \N{PILE OF POO}", "null", "nan", "None"]
NASTY += ["true", "\\N", "-5", "-1.5e3", "+7", "-1\n=2", "zero\0byte"]


def test_text_that_a_spreadsheet_would_run_is_escaped_in_csv_only(tmp_path: Path) -> None:
    for role in ("public", "sensitive"):
        folder = tmp_path / role
        release = published(folder, {"text": NASTY * 3}, text=role)
        assert dn.verify(folder).problems == []
        truth = release.data.column("text").to_pylist()
        assert Release.read(folder).data.column("text").to_pylist() == truth
        content = (folder / "data.csv").read_bytes().decode()
        lines = list(csv.DictReader(io.StringIO(content, newline="")))
        for line, true in zip(lines, truth, strict=True):
            assert line["text"] in (true, "'" + true)
            runs = true[0] in "=+-@\t\r\n＝" and true not in ("-5", "-1.5e3", "+7")  # noqa: RUF001
            assert (line["text"] != true) == runs, true
    assert escape_text(pa.chunked_array([["=1", "a"], ["-2"]])).to_pylist() == ["'=1", "a", "-2"]
    numbers = {"change": [-5, 7] * 5, "rate": [-0.5, 0.25] * 5}
    published(tmp_path / "numbers", numbers, change="sensitive", rate="sensitive")
    assert "'" not in (tmp_path / "numbers" / "data.csv").read_text(encoding="utf-8")
    assert dn.verify(tmp_path / "numbers").ok


def test_an_empty_text_survives(folder: Path) -> None:
    release = published(folder, {"text": ["x", "y"] * 5}, text="sensitive")
    blank = pa.array([{"x": "", "y": " "}[text] for text in release.data.column("text").to_pylist()])
    data = release.data.set_column(release.data.column_names.index("text"), "text", blank)
    other = folder.with_name("other")
    other.mkdir()
    replace(release, data=data).write_files(other)
    assert dn.verify(other).problems == []
    assert Release.read(other).data.equals(data)


def test_files_are_utf8_whatever_the_locale(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("locale.getpreferredencoding", lambda *_: "ascii")
    monkeypatch.setattr("io.text_encoding", lambda *_: "ascii")
    rules = {**policy_of(städt="public").document, "dataset": "Pakete nach Düsseldorf"}
    table = pa.table({"städt": ["Köln"] * 10, "weight": [float(number) for number in range(10)]})
    dn.publish(dn.load(table, dn.Policy.from_dict(rules)), out=folder, ledger=":memory:")
    assert "Düsseldorf" in (folder / "README.md").read_bytes().decode("utf-8")
    assert dn.verify(folder).ok


def test_the_package_describes_each_csv_column(folder: Path) -> None:
    release = published(folder, {"day": [NOON.date()] * 9, "paid": [True] * 9}, day="public", paid="sensitive")
    package = json.loads((folder / "datapackage.json").read_bytes())
    data = package["resources"][0]["schema"]["fields"]
    assert [item["name"] for item in data] == release.data.column_names
    types = {item["name"]: item["type"] for item in data}
    assert types["day"] == "date"
    assert types["paid"] == "boolean"
    assert types["weight_lower"] == "number"
    assert all(item["description"] for item in data)


@pytest.mark.parametrize("case", ["missing", "file", "empty", "altered", "link", "pipe", "linked certificate"])
def test_reading_refuses_what_is_no_release(folder: Path, case: str) -> None:
    published(folder, {"place": ["A"] * 9}, place="public")
    empty, moved = folder.with_name("empty"), folder.with_name("moved")
    empty.mkdir()
    file = folder / (CERTIFICATE_FILE if "certificate" in case else "data.csv")
    if case == "altered":
        file.write_bytes(file.read_bytes() + b"\n")
    elif "link" in case:
        file.rename(moved)
        file.symlink_to(moved)
    elif case == "pipe":
        file.unlink()
        os.mkfifo(file)
    refusal(ReleaseError, Release.read, {"missing": folder / "none", "file": file, "empty": empty}.get(case, folder))
