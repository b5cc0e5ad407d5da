"""Bombs: small files that would unpack to gigabytes are refused before anything is decoded."""

from __future__ import annotations

import gzip
import io
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.builders import a_policy, parcels
from tests.certificates_help import relisted

import dunnage as dn
from dunnage.tables.parquet import Oversized, Parquet, _pages, _place, is_gapless

ENTRY, ROWS = 1_000_000, 5_000
LIMIT_MB = 500  # more than the program and the smaller limit that is set here, far less than most bombs


def repeated(rows: int = ROWS) -> pa.Array:
    """One long text for all rows, as a dictionary with one entry."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array(["x" * ENTRY]))


def in_struct() -> pa.Table:
    text = pa.array(["x" * ENTRY] * 150)
    return pa.table({"parcel": pa.StructArray.from_arrays([text], ["inside"])})


PARQUET: dict[str, tuple[Callable[[], pa.Table], dict[str, object]]] = {
    "one entry": (lambda: pa.table({"parcel": repeated()}), {}),
    "one entry, as text": (lambda: pa.table({"parcel": repeated(150).cast(pa.string())}), {"store_schema": False}),
    "one entry in a list": (
        lambda: pa.table({"parcel": pa.ListArray.from_arrays(pa.array([0, ROWS], pa.int32()), repeated())}),
        {},
    ),
    "one prefix": (
        lambda: pa.table({"parcel": ["x" * ENTRY] * 150}),
        {"use_dictionary": False, "column_encoding": "DELTA_BYTE_ARRAY"},
    ),
    "one entry in a structure": (in_struct, {}),
    "plain text": (lambda: pa.table({"parcel": ["x" * ENTRY] * 150}), {"use_dictionary": False}),
    "many numbers": (lambda: pa.table({"parcel": np.zeros(20_000_000, np.int8)}), {}),
    "nothing, often": (lambda: pa.table({"parcel": pa.nulls(20_000_000)}), {}),
    "wide cells": (lambda: pa.table({"parcel": pa.nulls(150, pa.binary(ENTRY))}), {"use_dictionary": False}),
}


@pytest.fixture
def small(tmp_path: Path) -> Path:
    pq.write_table(pa.table({"parcel": ["a", "b"]}), tmp_path / "small.parquet")
    return tmp_path / "small.parquet"


@pytest.fixture(scope="module")
def bombs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder, paths = tmp_path_factory.mktemp("bombs"), {}
    for number, (name, (table, options)) in enumerate(PARQUET.items()):
        paths[name] = folder / f"{number}.parquet"
        pq.write_table(table(), paths[name], **{"compression": "zstd", **options})
        assert paths[name].stat().st_size < 3_000_000
    return paths


def sheet_bomb(path: Path, cells: str, shared: str = "") -> Path:
    """Write a workbook by hand: one sheet with the given cells."""
    main = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    kinds = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006"
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{package}/content-types"/>',
        "_rels/.rels": f'<Relationships xmlns="{package}/relationships">'
        f'<Relationship Id="rId1" Type="{kinds}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook {main} xmlns:r="{kinds}"><sheets><sheet name="S" sheetId="1" r:id="rId1"/>'
        "</sheets></workbook>",
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{package}/relationships">'
        f'<Relationship Id="rId1" Type="{kinds}/worksheet" Target="worksheets/sheet1.xml"/>'
        f'<Relationship Id="rId2" Type="{kinds}/sharedStrings" Target="sharedStrings.xml"/></Relationships>',
        "xl/worksheets/sheet1.xml": f"<worksheet {main}><sheetData>{cells}</sheetData></worksheet>",
        "xl/sharedStrings.xml": f"<sst {main}><si><t>parcel</t></si><si><t>weight</t></si>{shared}</sst>",
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in parts.items():
            archive.writestr(name, text)
    return path


HEADER = '<row r="1"><c r="A1" t="s"><v>0</v></c><c r="B1" t="s"><v>1</v></c></row>'
FAR = f'{HEADER}<row r="1048576"><c r="XFD1048576"><v>1</v></c></row>'
ALIKE = HEADER + "".join(f'<row r="{n}"><c r="A{n}" t="s"><v>2</v></c></row>' for n in range(2, 5_002))


EACH = """
import os, re, resource
status = Path("/proc/self/status")  # what a process ever had itself; elsewhere its parent's may be counted
attempt(Path(sys.argv[1]))  # loads what is loaded late, once for all children
print(end="\\0", flush=True)
for path in sys.argv[2:]:
    if not os.fork():
        try:
            attempt(Path(path))
            own = re.search(r"VmHWM:\\s+(\\d+) kB", status.read_text()) if status.exists() else None
            print(int(own[1]) if own else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, end="\\0", flush=True)
        finally:
            os._exit(0)
    os.wait()
"""


def measured(code: str, harmless: Path, paths: Iterable[Path]) -> list[tuple[str, int]]:
    """Attempt something with each file in a process of its own: what it printed, and the most memory it had, in MB."""
    given = [str(harmless), *map(str, paths)]
    done = subprocess.run([sys.executable, "-c", code + EACH, *given], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    texts = done.stdout.split("\0")[:-1]
    assert len(texts) == len(given), done.stderr[-2000:]
    found = [text.rpartition("\n") for text in texts[1:]]
    return [(said, int(peak) // 1024) for said, _, peak in found]


READ = """
import sys
import dunnage as dn
from dunnage.errors import UserError
from pathlib import Path
from dunnage.tables import parquet
from dunnage.tables.reader import ReadOptions, TableStream, read_lines, read_table
parquet.MIN_LIMIT = 64 << 20
def attempt(path):
    for read in (
        lambda: read_table(path, ReadOptions()),
        lambda: dn.draft(path),
        lambda: read_lines(path),
        lambda: [batch.nbytes for batch in TableStream(path, ["parcel"]).batches(["parcel"], [])],
    ):
        try:
            read()
            print("read")
        except UserError as error:
            print("refused", len(str(error)))
"""


def test_parquet_bombs_are_refused_before_they_are_decoded(small: Path, bombs: dict[str, Path]) -> None:
    for name, (said, peak) in zip(bombs, measured(READ, small, bombs.values()), strict=True):
        lines = said.splitlines()
        assert lines[0].startswith("refused"), (name, said)
        assert lines[2].startswith("refused"), (name, said)
        assert peak < LIMIT_MB, (name, said, peak)


def test_other_bombs_are_refused_before_they_are_unpacked(small: Path, tmp_path: Path) -> None:
    names = [f"{name}.xlsx" for name in ("far", "text", "size")]
    packed, far, text, size = paths = [tmp_path / name for name in ("bomb.csv.gz", *names)]
    with gzip.open(packed, "wb", 1) as stream:
        stream.write(b"parcel,weight\n")
        for _ in range(150):
            stream.write(b"x,1\n" * (1 << 18))
    sheet_bomb(far, FAR, f"<si><t>{'x' * ENTRY}</t></si>")
    sheet_bomb(text, ALIKE, f"<si><t>{'x' * ENTRY}</t></si>")
    sheet_bomb(size, HEADER, f"<si><t>{'x' * (150 << 20)}</t></si>")
    content = size.read_bytes()  # the directory of the zip file states that the long text is short
    start = content.rindex(b"PK\1\2")
    size.write_bytes(content[: start + 24] + (100).to_bytes(4, "little") + content[start + 28 :])
    for path, (said, peak) in zip(paths, measured(READ, small, paths), strict=True):
        assert said.splitlines()[0].startswith("refused"), (path, said)
        assert peak < LIMIT_MB, (path, said, peak)


def test_ordinary_files_are_read_whatever_their_encoding(tmp_path: Path) -> None:
    """Long dictionaries, lists, prefixes, both versions of pages: the same table comes back."""
    numbers = np.arange(60_000)
    table = pa.table(
        {
            "parcel": [f"a rather long label of parcel {number % 9_000}" for number in numbers],
            "sets": [[f"label {number % 7}", None] if number % 3 else [] for number in numbers],
            "weight": numbers / 7,
            "blank": pa.nulls(len(numbers)),
            "a.b": pa.array(["x", None] * (len(numbers) // 2)),
            "flag": pa.array([True, None] * (len(numbers) // 2)),
        }
    )
    for number, options in enumerate(
        (
            {},
            {"data_page_version": "2.0", "compression": "zstd", "write_page_index": True},
            {"compression": "gzip", "row_group_size": 999, "write_page_checksum": True},
            {"use_dictionary": False, "column_encoding": {"parcel": "DELTA_BYTE_ARRAY"}},
        )
    ):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(table, path, **options)
        for limit in (1 << 30, 1 << 25):  # entries are counted only where they may be too long
            with path.open("rb") as stream:
                assert Parquet.open(stream, limit).read().equals(table)
        with path.open("rb") as stream:
            assert is_gapless(stream) == ("write_page_index" not in options)
        with path.open("rb") as stream:
            source = Parquet.open(stream, 1 << 25, labels=["flag" if number == 3 else "parcel"], batch_rows=10_000)
            batch = source.dense(next(source.file.iter_batches(10_000)))
            assert pa.types.is_dictionary(batch.schema.field("parcel").type) == (number != 3)
            assert pa.table(batch.select(["a.b"])).equals(table.select(["a.b"]).slice(0, batch.num_rows))
        with path.open("rb") as stream, pytest.raises(Oversized):
            Parquet.open(stream, 1 << 20).read()


def test_a_page_that_states_another_size_is_seen() -> None:
    """Arrow makes room for what the header of a page states, whatever the footer says."""
    sink = io.BytesIO()
    table = pa.table({"note": pa.array([b"x" * 1_200_000], pa.binary(1_200_000))})
    pq.write_table(table, sink, compression="zstd", use_dictionary=False)
    content = sink.getvalue()
    (page,) = _pages(sink, *_place(pq.read_metadata(sink).row_group(0).column(0)))
    stated, false = (varint(2 * num) for num in (page.size, 134_000_000))
    assert content.index(stated) < 16
    assert len(stated) == len(false)
    assert Parquet.open(io.BytesIO(content), 1 << 24).read().equals(table)
    with pytest.raises(Oversized):
        Parquet.open(io.BytesIO(content.replace(stated, false, 1)), 1 << 26)


def varint(value: int) -> bytes:
    return bytes([value & 127 | 128]) + varint(value >> 7) if value > 127 else bytes([value])


RELEASE = """
import sys
import dunnage as dn
from dunnage.errors import UserError
from pathlib import Path
def attempt(path):
    result = dn.verify(path)
    print(result.ok, result.problems)
    try:
        dn.Release.read(path)
        print("read")
    except UserError as error:
        print("refused")
"""


def test_a_release_with_a_bomb_is_a_failed_check(bombs: dict[str, Path], tmp_path: Path) -> None:
    policy = a_policy({"name": "partition", "k": 4})
    dn.publish(dn.load(parcels(), policy), out=tmp_path / "release", ledger=":memory:")
    places = [Path(shutil.copytree(tmp_path / "release", tmp_path / path.stem)) for path in bombs.values()]
    for place, path in zip(places, bombs.values(), strict=True):
        shutil.copy(path, place / "data.parquet")
        (place / "data.csv").write_text("row\n" + "0\n" * 20_000)  # as many cells as the bomb claims, but not its bytes
        relisted(place)
    for name, (said, peak) in zip(bombs, measured(RELEASE, tmp_path / "release", places), strict=True):
        assert re.fullmatch(r"False .*\nrefused", said), (name, said)
        assert peak < 400, (name, said, peak)
