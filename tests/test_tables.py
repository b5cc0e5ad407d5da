# SPDX-License-Identifier: Apache-2.0
"""Workbooks, folders of Parquet files and other formats: the same rows in all of them, and what cannot be read."""

from __future__ import annotations

import datetime as dt
import gzip
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import python_calamine
import xlsxwriter

import dunnage as dn
from dunnage.errors import InputError, OutputError, ParameterError
from dunnage.planning.plan import told_fleet_plan
from dunnage.planning.trucks import read_trucks
from dunnage.showing import shown
from dunnage.tables import reader
from dunnage.tables.columns import write_workbook
from dunnage.tables.reader import ReadOptions, TableStream, read_table

POLICY = """
dataset = "parcels"
protects = "package"
[attributes.id]
role = "identifier"
[attributes.weight]
role = "quasi-identifier"
kind = "numeric"
domain = [0, 100]
[attributes.depot]
role = "public"
kind = "category"
domain = ["1001", "1002"]
[mechanism]
name = "partition"
k = 2
statistic = "mean"
"""
HEADER = ["id", "weight", "depot"]
ROWS: list[list[Any]] = [["a", 1.5, 1001], ["b", 2, 1002], ["c", 30.25, 1001]]


def workbook(path: Path, **sheets: list[list[Any]]) -> Path:
    """Write sheets; a string ``merge:A1:C1`` in front of a cell's text merges these cells."""
    with xlsxwriter.Workbook(str(path)) as book:
        date = book.add_format({"num_format": "dd.mm.yyyy hh:mm"})
        for name, lines in sheets.items():
            sheet = book.add_worksheet(name)
            for row, cells in enumerate(lines):
                for column, cell in enumerate(cells):
                    if isinstance(cell, str) and cell.startswith("merge:"):
                        sheet.merge_range(cell.split("|")[0][6:], cell.split("|")[1])
                    elif cell is not None:
                        sheet.write(row, column, cell, date if isinstance(cell, dt.datetime) else None)
    return path


def policy(**changes: str) -> dn.Policy:
    read = "".join(f'{name} = "{value}"\n' for name, value in changes.items())
    return dn.Policy.from_text(POLICY + (f"[read]\n{read}" if read else ""))


def loaded(path: Path, **changes: str) -> list[Any]:
    data = dn.load(path, policy(**changes))
    return [data.column(name).to_pylist() for name in HEADER]


def refused(path: Path, **changes: str) -> str:
    with pytest.raises((InputError, ParameterError)) as caught:
        dn.load(path, policy(**changes))
    return str(caught.value)


def test_the_same_rows_in_every_format(tmp_path):
    lines = [HEADER, *ROWS]
    text = "\n".join(",".join(map(str, line)) for line in lines)
    (tmp_path / "rows.csv").write_text(text)
    (tmp_path / "rows.tsv").write_text(text.replace(",", "\t"))
    (tmp_path / "rows.csv.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "rows.tsv.gz").write_bytes(gzip.compress(text.replace(",", "\t").encode()))
    workbook(tmp_path / "rows.xlsx", Sheet=lines)
    table = pa.table({name: [row[place] for row in ROWS] for place, name in enumerate(HEADER)})
    pq.write_table(table, tmp_path / "rows.parquet")
    folder = tmp_path / "rows"
    folder.mkdir()
    (folder / "_SUCCESS").write_text("")
    for start in range(3):
        pq.write_table(table.slice(start, 1), folder / f"part-{start}.parquet")
    expected = [["a", "b", "c"], [1.5, 2.0, 30.25], ["1001", "1002", "1001"]]
    for path in sorted(tmp_path.iterdir()):
        assert loaded(path) == expected, path.name
        stream = TableStream(path, HEADER)
        batches = list(stream.batches(["weight"], []))
        assert sum(batch.num_rows for batch in batches) == 3, path.name
        assert stream.num_rows in (None, 3)
    assert "role" in dn.draft(folder)


def test_a_real_looking_workbook_is_read(tmp_path):
    """Title lines above the header, merged title cells, decimal commas as text, a second sheet with remarks."""
    lines = [["merge:A1:C1|Parcels of November"], [], ["", *HEADER], ["", "a", "1,5", 1001], [], ["", "b", 2.5, 1002.0]]
    path = workbook(tmp_path / "book.xlsx", Parcels=lines, Notes=[["ask the depot about it"]])
    assert loaded(path, decimal=",", delimiter=";") == [["a", "b"], [1.5, 2.5], ["1001", "1002"]]
    assert "column 'weight': is not a finite number in row 1" in refused(path)
    assert shown(path)[0]["columns"] == {"id": "text", "weight": "text", "depot": "number"}
    drafted = dn.draft(path)
    assert 'decimal = ","' in drafted
    assert "sheet" not in drafted.partition("[read]")[2].partition("[")[0]
    # Two sheets with tables: the draft names the first, and a policy must name one.
    path = workbook(tmp_path / "two.xlsx", Parcels=lines, Old=lines)
    assert 'sheet = "Parcels"' in dn.draft(path)
    assert loaded(path, decimal=",", delimiter=";", sheet="Old") == [["a", "b"], [1.5, 2.5], ["1001", "1002"]]
    says = refused(path)
    assert "'Parcels', 'Old'" in says
    assert '[read] sheet = "Parcels"' in says
    assert "It has 'Parcels', 'Old'." in refused(path, sheet="New")


def test_workbooks_that_cannot_be_read_say_what_to_do(tmp_path, monkeypatch):
    def says(**sheets: list[list[Any]]) -> str:
        return refused(workbook(tmp_path / "book.xlsx", **sheets))

    assert "merged areas at or below its header, first A3:B3. Unmerge them" in says(
        S=[HEADER, ROWS[0], ["merge:A3:B3|x"]]
    )
    assert "line 1, column B. Name the column" in says(S=[["id", "", "weight", "depot"], ["a", "", 1, 1001]])
    assert "no sheet with a header line" in says(S=[["x", "y"], [1, 2]])
    assert "no sheet with a header line" in says(S=[])
    beside = says(S=[HEADER, ROWS[0], [*ROWS[1], "note"]])
    assert "header's 3 in row 2. Clear the cells beside the table." in beside
    assert "is declared in the policy but not in the data" in says(S=[["id", "weight"], ["a", 1]])
    (tmp_path / "bad.xlsx").write_bytes(b"PK\x03\x04 nothing")
    assert "not a readable Excel workbook" in refused(tmp_path / "bad.xlsx")
    path = workbook(tmp_path / "good.xlsx", S=[HEADER, *ROWS])
    monkeypatch.setattr(reader, "MAX_WORKBOOK_BYTES", 100)
    assert "Save it as Parquet" in refused(path)
    monkeypatch.setitem(sys.modules, "python_calamine", None)
    assert "pip install 'dunnage[excel]'" in refused(path)
    monkeypatch.setitem(sys.modules, "xlsxwriter", None)
    with pytest.raises(ParameterError, match=r"dunnage\[excel\]"):
        write_workbook(tmp_path, tmp_path / "out.xlsx")


def test_cells_of_a_workbook_keep_their_types(tmp_path):
    moment, clock = dt.datetime(2026, 11, 15, 8, 30), dt.time(7, 15)
    columns = {
        "whole": ([1, 2.0], pa.int64(), [1, 2]),
        "part": ([1, None, 2.5], pa.float64(), [1.0, None, 2.5]),
        "when": ([moment, None], pa.timestamp("us"), [moment, None]),
        "yes": ([True, False], pa.bool_(), [True, False]),
        "mixed": ([1.5, "x", True, 3], pa.string(), ["1,5", "x", "true", "3"]),
        "zip": (["01234"], pa.string(), ["01234"]),
        "blank": ([], pa.string(), []),
    }
    height = max(len(cells) for cells, _, _ in columns.values())
    padded = [[*cells, *[None] * (height - len(cells))] for cells, _, _ in columns.values()]
    path = workbook(tmp_path / "types.xlsx", S=[list(columns), *(list(row) for row in zip(*padded, strict=True))])
    table = read_table(path, ReadOptions(delimiter=";", decimal=",")).table
    for name, (_, kind, values) in columns.items():
        assert table.column(name).type == kind, name
        assert table.column(name).to_pylist()[: len(values)] == values, name
    typed = reader._typed([clock, ""], ".")
    assert typed.to_pylist() == [clock, None]
    assert reader._typed([dt.timedelta(hours=25, minutes=30), clock], ".").to_pylist() == ["25:30:00", "07:15:00"]
    assert reader._typed([moment.date(), moment], ".").to_pylist() == [dt.datetime(2026, 11, 15), moment]
    assert reader._typed([moment, "later"], ".").to_pylist() == ["2026-11-15T08:30:00", "later"]


def test_plain_numbers_are_no_times_of_a_workbook(tmp_path):
    trips = dn.Policy.from_text(
        """
dataset = "trips"
protects = "trip"
[city]
stops = "stops.csv"
[trip]
origin = "from"
destination = "to"
time = "at"
[attributes.from]
role = "quasi-identifier"
kind = "stop"
[attributes.to]
role = "quasi-identifier"
kind = "stop"
[attributes.at]
role = "quasi-identifier"
kind = "time"
domain = ["04:00", "28:00"]
window_minutes = 60
[mechanism]
name = "noisy-counts"
epsilon = 1
""",
        path=_stops(tmp_path),
    )
    rows: list[list[Any]] = [["from", "to", "at"], ["A", "B", 45976.25]]
    with pytest.raises(InputError, match="Give the cells a date or time format"):
        dn.load(workbook(tmp_path / "plain.xlsx", S=rows), trips)
    rows[1][2] = dt.datetime(2026, 11, 15, 8, 30)
    assert len(dn.load(workbook(tmp_path / "dated.xlsx", S=rows), trips)) == 1


def _stops(folder: Path) -> Path:
    (folder / "stops.csv").write_text("stop\nA\nB\n")
    return folder / "policy.toml"


def test_folders_of_parquet_files(tmp_path):
    folder = tmp_path / "rows"
    folder.mkdir()
    assert "is a folder, not a file" in refused(folder)
    pq.write_table(pa.table({"id": ["a"], "weight": [1.0], "depot": ["1001"]}), folder / "a.parquet")
    pq.write_table(pa.table({"id": ["a"], "weight": ["1"], "depot": ["1001"]}), folder / "b.parquet")
    assert "b.parquet: has other columns or types than a.parquet" in refused(folder)
    (folder / "b.parquet").write_bytes(b"PAR1")
    assert "b.parquet: is not a readable Parquet file" in refused(folder)


def test_public_lists_may_be_workbooks_and_parquet_too(tmp_path):
    trucks = [["truck", "count", "cost", "weight"], ["van", 3, None, 500], ["lorry", None, 2.5, 9000]]
    path = workbook(tmp_path / "trucks.xlsx", S=trucks)
    assert [(truck.name, truck.count, truck.cost) for truck in read_trucks(path, ["weight"])] == [
        ("van", 3, 1.0),
        ("lorry", None, 2.5),
    ]
    fleet = workbook(tmp_path / "fleet.xlsx", S=[["zone", "shuttles"], ["north", 3], ["south", 2]])
    assert dn.FleetPlan.read(fleet).shuttles == (3, 2)
    assert told_fleet_plan(fleet)
    stops = workbook(tmp_path / "stops.xlsx", S=[["stop", "zone"], ["A", 1], ["B", 2]])
    pairs = [(a, b) for a in "AB" for b in "AB"]
    modes = {"origin": [a for a, _ in pairs], "destination": [b for _, b in pairs], "mode": ["bus"] * 4}
    pq.write_table(pa.table(modes), tmp_path / "modes.parquet")
    city = dn.City.read(stops, tmp_path / "modes.parquet")
    assert (city.stops, city.zone_names, city.mode_names) == (("A", "B"), ("1", "2"), ("bus",))
    (tmp_path / "tree.csv.gz").write_bytes(gzip.compress(b"a;all\nb;all\n"))
    assert dn.Tree.from_csv(tmp_path / "tree.csv.gz").labels == ("a", "b")
    (tmp_path / "half.csv.gz").write_bytes(gzip.compress(b"a;all\nb;all\n")[:-9])
    with pytest.raises(InputError, match="cannot be read"):
        dn.Tree.from_csv(tmp_path / "half.csv.gz")


def test_tables_of_a_release_and_a_plan_as_workbooks(tmp_path):
    data = pa.table({"id": list("abcd"), "weight": [1.0, 2.0, 3.0, 4.0], "depot": ["1001", "1002"] * 2})
    release, _ = dn.publish(dn.load(data, policy()), out=tmp_path / "release", ledger=tmp_path / "ledger.sqlite")
    plan = dn.pack(release, capacity=500, seconds=1)
    plan.write(tmp_path / "plan")
    for name in ("release", "plan"):
        sheets = write_workbook(tmp_path / name, tmp_path / f"{name}.xlsx")
        book = python_calamine.CalamineWorkbook.from_path(str(tmp_path / f"{name}.xlsx"))
        assert book.sheet_names == sheets == sorted(file.stem for file in (tmp_path / name).glob("*.csv"))
    table = read_table(tmp_path / "release.xlsx", ReadOptions(sheet="data")).table
    assert table.column_names == release.tables["data"].column_names
    assert table.column("weight_lower").to_pylist() == release.tables["data"].column("weight_lower").to_pylist()
    for folder, out, error in (
        (tmp_path, "x.xlsx", ParameterError),
        (tmp_path / "plan", "plan.xlsx", OutputError),
        (tmp_path / "plan", "plan.ods", OutputError),
    ):
        with pytest.raises(error):
            write_workbook(folder, tmp_path / out)
