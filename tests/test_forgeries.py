# SPDX-License-Identifier: Apache-2.0
"""Forgeries: one value of a genuine release is changed, all else made to match, and verify must object.

Every leaf of every certificate is changed in every way its type allows, every table in one cell of each column and in
its lines. The folder stays consistent (canonical form, digests, README), so that only the meaning is forged. What
verify accepts is on a short list, with the reason why nobody can see it from outside.
"""

from __future__ import annotations

import copy
import hashlib
import io
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.builders import CASES, LARGER_CASES
from tests.certificates_help import relisted, restated
from tests.estimates_help import fleet_tallies, fleet_task

import dunnage as dn
from dunnage._version import __version__
from dunnage.collecting.estimate import estimate
from dunnage.errors import CheckFailed
from dunnage.model.certificate import AttributeStatement, Certificate, Composition, OddsRow
from dunnage.model.documents import canonical
from dunnage.release import Release
from dunnage.release.kinds import same
from dunnage.verification import check_release

FLEETS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "estimates": ((), {}),
    "estimates of numbers": (("telemetry",), {"telemetry": {"method": "square-wave"}}),
    "estimates of areas": (("places",), {"places": {"area_in_clear": True}}),
    "estimates of numbers as published": (("telemetry",), {"telemetry": {"as_published": True}}),
    "estimates of paths as published": (("paths",), {"paths": {"as_published": True, "method": "qlp"}}),
}
ROWS = {str(case): case for case in (*CASES, *LARGER_CASES)}
LIKE_OTHERS = r"partition-(3|4-.*)|sampled-lattice-3-0.3.*|utility-clusters-(3|4-published-d.*)|noisy-counts-1"
LIKE_OTHERS += r"|hierarchical-counts-1-H3.*|constrained-counts-1(-cells.*|-\[\['mode.*)?|estimates of numbers as.*"
NAMES = [
    pytest.param(name, id=name, marks=[pytest.mark.long] if re.fullmatch(LIKE_OTHERS, name) else [])
    for name in (*ROWS, *FLEETS)
]
"""All releases; some that are much like others are forged in long runs alone."""


GROSS = ("full-domain-3-0.5-{'weight': 2}-multiset", "noisy-counts-0.5-floor-2", "estimates of areas")
assert set(GROSS) <= {*ROWS, *FLEETS}


@cache
def genuine(name: str) -> Release:
    """A release in order; never changed."""
    if name in FLEETS:
        purposes, parameters = FLEETS[name]
        task = fleet_task(*purposes, **parameters)
        return estimate(fleet_tallies(task, 500), task, allow_noise=True)
    return ROWS[name].release()


# What is changed in a certificate

Way = tuple[str | int, ...]
REMOVED = object()


def others(value: Any, *, gross: bool) -> Iterator[Any]:
    """Give what a forger might write instead: the smallest changes, nothing, and, if gross, what models refuse."""
    if value is None:
        yield from (REMOVED, 1, "x")
    else:
        yield from (REMOVED, *((None, "x" if not isinstance(value, str) else 7) if gross else ()))
    if isinstance(value, bool):
        yield from (not value, int(value))
    elif isinstance(value, int):
        yield from (value + 1, value - 1, 10 * value + 7, float(value))
    elif isinstance(value, float):
        yield from (value * 1.001 + 1e-6, value * 0.999 - 1e-6, 10**30)
    elif isinstance(value, str):
        yield from (f"{value} ", "x")
        if re.fullmatch(r"\d+/\d+", value):
            above, below = value.split("/")
            yield from (f"{int(above) + 1}/{below}", f"{2 * int(above)}/{2 * int(below)}")
    elif isinstance(value, list):
        yield from ([*value, value[-1] if value else "x"], *([value[1:], value[:-1], []] if value else []))
        if len(value) > 1 and value[0] != value[1]:
            yield [value[1], value[0], *value[2:]]
    elif isinstance(value, dict):
        yield from ({**value, "more": 1}, {}, *([[]] if gross else []))


def places(value: Any, path: Way = ()) -> Iterator[tuple[Way, Any]]:
    """Give every value of plain data, with the way to it."""
    if path:
        yield path, value
    items: list[tuple[str | int, Any]] = list(value.items()) if isinstance(value, dict) else []
    if isinstance(value, list):
        items = list(enumerate(value))
        items = items if len(items) <= 8 else [*items[:4], *items[-2:]]  # of many alike, some
    for key, item in items:
        yield from places(item, (*path, key))


def additions(certificate: Certificate, body: dict[str, Any]) -> Iterator[tuple[Way, Any]]:
    """Give what a certificate may state, and this one does not."""
    models: list[tuple[Way, Any, Any]] = [
        ((), Certificate, body),
        (("measures",), type(certificate.measures), body["measures"]),
        (("composition",), Composition, body["composition"]),
        *((("attributes", i), AttributeStatement, item) for i, item in enumerate(body["attributes"])),
        *((("meaning", "odds", i), OddsRow, item) for i, item in enumerate(body["meaning"]["odds"])),
    ]
    for path, model, stated in models:
        for name in model.model_fields.keys() - stated.keys() - {"signature"}:
            yield from (((*path, name), value) for value in (None, "x", {}))


def replaced(content: Any, path: Way, value: Any) -> Any:
    """Copy plain data with another value in one place."""
    (key, *rest), changed = path, copy.copy(content)
    if rest:
        changed[key] = replaced(changed[key], tuple(rest), value)
    elif value is REMOVED:
        del changed[key]
    else:
        changed[key] = value
    return changed


def forgeries(certificate: Certificate, *, gross: bool) -> Iterator[tuple[Way, Any]]:
    body = certificate.plain()
    for path, old in places(body):
        if path[0] != "files":  # which are worked out anew
            yield from ((path, value) for value in others(old, gross=gross) if value is REMOVED or not same(value, old))
    yield from additions(certificate, body)


def seen(body: dict[str, Any], release: Release) -> bool:
    """Whether verify objects to a release with another certificate, whose form and digest are made right."""
    try:
        digest = hashlib.sha256(canonical(body)).hexdigest()
        certificate = Certificate.from_bytes(canonical({**body, "digest": digest}))
        check_release(Release(certificate=certificate, **release.tables))
    except CheckFailed:
        return True
    return False


# What nobody can see from outside, by the place in a certificate, with the mechanisms or kinds that it is about

UNSEEN: dict[str, tuple[str, str]] = {
    "dataset": ("rows|counts", "a name"),
    "period": ("rows|counts", "which period the rows are of, unless service dates follow from it"),
    r"spend\.(id|number|head)": ("rows|counts", "the ledger is the owner's"),
    "proof": (".*", "older certificates name none"),
    "guarantee.protects": ("noisy-clusters|sampled", "a word for the unit, where no sentence has it"),
    r"composition\.(total|total_per_period)(\.\w+)?": ("rows|counts", "what other releases lose is added"),
    "attributes": ("rows", "columns are listed role by role, whatever their order in the policy"),
    r"attributes\.\d\.kind": ("rows", "of a column without a domain"),
    r"attributes\.\d\.domain\.(unit|doubling|resolution)": ("rows", "what the mechanism makes no use of"),
    r"attributes\.\d\.domain\.(lower|upper)": ("noisy-clusters|sampled", "noise is not stated, or no row released"),
    r"attributes\.\d\.(outside|missing)": ("rows", "the line that says so may be about a column that is not released"),
    r"attributes\.\d\.domain\.zone": ("counts", "a word for people"),
    r"mechanism\.(symmetrise|refine_seconds|price|max_risk|keep|buckets|limits|l|t|max_distortion|max_suppressed).*": (
        "utility-clusters|full-domain",
        "how classes were looked for, or a limit that they keep to as well",
    ),
    r"mechanism\.alpha": ("partition|full-domain", "a price that nothing was sold for"),
    r"mechanism\.quantiles\.\d": ("noisy-clusters", "at which shares of private values they were cut"),
    r"mechanism\.(epsilon|delta)": ("sampled", "more was asked for than was met"),
    r"mechanism\.(workload.*|expected_trips)": ("fitted", "what shares were chosen by; they are stated"),
    r"attributes\.\d\.domain\.window_minutes": ("fitted", "of no rows"),
    r"mechanism\.prune": ("hierarchical", "whether sums that were cut off had been looked at"),
    r"mechanism\.threshold": ("noisy-counts", "a lower one, which no count falls below either"),
    r"mechanism\.confidence": ("estimates", "reports are not at hand"),
    r"measures\.importance\.factors\.\w+": ("utility-clusters", "entropy of the private values"),
    r"attributes\.\d\.domain\.parents\.\w+": ("sampled", "a leaf below a node that is told instead"),
    r"measures\.k_chosen": ("utility-clusters", "from which k it was searched"),
    r"measures\.features\.\d\.groups": ("counts", "how many zones and modes there are"),
    r"measures\.levels\.\w+": ("sampled", "of no rows"),
    r"measures\.contribution\.correction\.(kept|dropped)": ("counts", "noisy sums that lead to the same share"),
    r"measures\.contribution\.per_cell": (
        "noisy-counts|gaussian-counts",
        "the trips of one rider in a cell, if noise is alike",
    ),
    r"mechanism\.accounting": ("sampled", "how delta was computed, where both ways give the same"),
    r"measures\.kkt_residual": ("constrained|gaussian", "how near to the nearest, within what is allowed"),
    r"measures\.(reports|combined)\..*": ("estimates", "how many reports there were, and how tiers differed"),
}


def is_unseen(release: Release, path: Way) -> bool:
    certificate, place = release.certificate, ".".join(map(str, path))
    about = f"{certificate.kind} {certificate.mechanism_name}"
    return any(re.fullmatch(pattern, place) and re.search(whom, about) for pattern, (whom, _) in UNSEEN.items())


@pytest.mark.parametrize("name", NAMES)
def test_every_changed_leaf_of_a_certificate_is_seen(name: str, thorough: bool) -> None:
    release = genuine(name)
    check_release(release)
    body = release.certificate.plain()
    # What the typed model refuses by itself is the same for all releases of a kind: one of each suffices.
    tried = list(forgeries(release.certificate, gross=name in GROSS))
    assert len(tried) > 240
    if not thorough and name not in GROSS:  # a tenth of them, another one for each release of a mechanism
        tried = tried[[*ROWS, *FLEETS].index(name) % 10 :: 10]
    missed = [
        change for change in tried if not (is_unseen(release, change[0]) or seen(replaced(body, *change), release))
    ]
    assert not missed


@pytest.mark.parametrize("name", ["partition-3", "noisy-counts-1", "estimates of areas"])
def test_a_folder_is_judged_as_its_contents_are(name: str, tmp_path: Path) -> None:
    """Written with all digests and words that follow, forgeries fail and what nobody can see passes."""
    release = genuine(name)
    plain, wrong = release.certificate.plain(), {"guarantee.protects": "", "measures": {}, "dataset": "x", "time": "x"}
    for number, (place, value) in enumerate({**wrong, "basis": "void", "in_clear": ["nothing"]}.items()):
        try:
            body = replaced(plain, tuple(place.split(".")), value)
            forged = Release(certificate=Certificate.model_validate(body), **release.tables)
        except ValueError:
            assert seen(body, release)
            continue
        (tmp_path / str(number)).mkdir()
        forged.write_files(tmp_path / str(number))
        assert dn.verify(tmp_path / str(number)).ok != seen(body, release), place


# What is changed in a table


def other_cells(column: list[Any]) -> Iterator[Any]:
    """Give what one cell might hold instead; the last is none of the public domain, if there is one."""
    cell = column[0]
    yield from (other for other in column if other not in (cell, None))  # of another line
    if isinstance(cell, int):
        yield from (cell + 1, -7, 2**62)
    elif isinstance(cell, float):
        yield from (cell + 1e-3, cell - 0.5, -1.0, 1e9, float("nan"))
    elif isinstance(cell, list):
        yield from (cell[1:], [*cell, cell[-1]], [*cell, "x"], [])
    elif isinstance(cell, str):
        yield from (f"{cell} ", "x", "")
    yield None


def with_cell(table: pa.Table, name: str, value: Any) -> pa.Table:
    kind = table.schema.field(name).type
    cells = [value, *table.column(name).to_pylist()[1:]]
    return table.set_column(table.column_names.index(name), name, pa.array(cells, kind))


def forged_tables(table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Give tables in which one cell, line or column is forged, with a name for what was done."""
    num = table.num_rows
    for item in table.schema:
        cells = table.column(item.name).to_pylist()[:6]
        for text, value in {repr(value): value for value in other_cells(cells)}.items() if num else ():
            if text != repr(cells[0]):
                yield item.name, with_cell(table, item.name, value)
        yield "columns", table.drop_columns([item.name])
        yield "columns", table.rename_columns([f"{n}{'_' * (n == item.name)}" for n in table.column_names])
    yield "columns", table.append_column("more", pa.array(range(num)))
    yield "lines", table.slice(1) if num else pa.table({name: [None] for name in table.column_names})
    if num:
        yield "lines", table.slice(0, num - 1)
        yield "lines", pa.concat_tables([table.slice(0, 1), table])
        yield "lines", pa.concat_tables([table, table.slice(num - 1)])
    if num > 1:
        yield "lines", table.take([1, 0, *range(2, num)])


UNSEEN_CELLS: dict[str, tuple[str, str]] = {
    "destination": ("noisy|sampled", "a public column of one record, which is in no class"),
    "weight.*": ("noisy-(values|clusters)", "a value whose interval is all of its range; as published, any interval"),
    "origin|destination|window|day": ("counts", "trips of another type, where no such type is listed yet"),
    "content|rating": ("rows", "another sensitive value by which l and t stay what they are"),
    "value|lower|upper": ("estimates", "within what shares, order and domains allow: reports are not at hand"),
}


@pytest.mark.parametrize("name", NAMES)
def test_every_changed_cell_and_line_of_a_table_is_seen(name: str) -> None:
    release = genuine(name)
    about = f"{release.kind} {release.certificate.mechanism_name}"
    missed: list[Any] = []
    for table in release.tables:
        for place, forged in forged_tables(release.tables[table]):
            try:
                check_release(Release(certificate=release.certificate, **{**release.tables, table: forged}))
            except CheckFailed:
                continue
            if not any(
                re.fullmatch(cells, place) and re.search(whom, about) for cells, (whom, _) in UNSEEN_CELLS.items()
            ):
                missed.append((table, place, forged.slice(0, 1).to_pylist()))
    assert not missed


# What is hidden in the files themselves: every byte of a folder belongs to a release, or verify objects

SECRET = b"Ada Example,12 Quay Street,17.5\n" * 4


def gaps(content: bytes) -> Iterator[tuple[str, bytes]]:
    """Insert bytes before, between and behind the columns of a Parquet file; every offset in the footer stays right."""
    stated = pq.read_metadata(io.BytesIO(content))
    starts = sorted(
        min(offset for offset in (chunk.dictionary_page_offset, chunk.data_page_offset) if offset)
        for chunk in (stated.row_group(0).column(index) for index in range(stated.num_columns))
    )
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    yield "before the footer", content[:footer] + SECRET + content[footer:]
    yield "behind the footer", content + SECRET
    yield "behind the footer, closed again", content + SECRET + content[footer:]
    for start in starts:  # the pages stay where they are, only another byte of them is used as a page
        flipped = bytearray(content)
        flipped[start + 1] ^= 8
        yield f"in the page at {start}", bytes(flipped)
    longer = (int.from_bytes(content[-8:-4], "little") + len(SECRET)).to_bytes(4, "little")
    yield "inside the footer", content[:-8] + SECRET + longer + b"PAR1"
    end = content[:-9]  # a field that no reader knows: thrift skips it
    more = end + b"\x08\xc8\x01" + bytes([len(SECRET) & 127 | 128, len(SECRET) >> 7]) + SECRET + b"\x00"
    yield "a new field of the footer", more + (len(more) - footer).to_bytes(4, "little") + b"PAR1"


def moved_columns(table: pa.Table) -> bytes:
    """Write the columns after some other bytes, by a writer that does not know of them."""
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="none")
    content = sink.getvalue()
    return b"PAR1" + SECRET + content[4:]


def hidden_parquet(table: pa.Table) -> Iterator[tuple[str, bytes]]:
    def written(table: pa.Table, **options: Any) -> bytes:
        sink = io.BytesIO()
        pq.write_table(table, sink, **{"compression": "none", **options})
        return sink.getvalue()

    fields = [item.with_metadata({"note": SECRET}) for item in table.schema]
    yield "metadata of a field", written(table.cast(pa.schema([fields[0], *list(table.schema)[1:]])))
    yield "metadata of all fields", written(table.cast(pa.schema(fields)), store_schema=False)
    yield "metadata of the table", written(table.replace_schema_metadata({"note": SECRET}))
    yield (
        "another field id",
        written(table.cast(pa.schema([item.with_metadata({"PARQUET:field_id": "1234567"}) for item in table.schema]))),
    )
    codes = pa.table(
        {
            n: c.dictionary_encode() if pa.types.is_string(c.type) else c
            for n, c in zip(table.column_names, table.columns, strict=True)
        }
    )
    if codes.schema != table.schema:
        yield "codes", written(codes)
    for options in (
        {"write_page_index": True},
        {"write_page_checksum": True},
        {"write_statistics": False},
        {"use_dictionary": False},
        {"row_group_size": max(1, table.num_rows // 2)},
        {"compression": "zstd"},
        {"compression": "gzip"},
        {"data_page_version": "2.0"},
        {"version": "1.0"},
        {"store_schema": False},
    ):
        yield str(options), written(table, **options)
    content = written(table)
    yield from gaps(content)
    yield "moved columns", moved_columns(table)
    for name in (b"Ada Example, Quay Street 12, 17x", b"parquet-cpp-arrow version 9.9.9x"):
        stated = pq.read_metadata(io.BytesIO(content)).created_by.encode()
        yield "another writer", content.replace(stated, name[: len(stated)].ljust(len(stated), b"x"))


def lax_csv(text: bytes) -> Iterator[tuple[str, bytes]]:
    head, _, rest = text.partition(b"\n")
    first, _, others = rest.partition(b"\n")
    yield "byte order mark", b"\xef\xbb\xbf" + text
    yield "Windows lines", text.replace(b"\n", b"\r\n")
    yield "a blank line at the end", text + b"\n"
    yield "a blank line inside", head + b"\n\n" + rest
    yield "no last line end", text.rstrip(b"\n")
    yield "spaces at the end", text + b" " * 10
    yield "a space in a line", head + b"\n" + first + b" \n" + others
    yield "a space before a cell", head + b"\n " + rest
    yield "names without quotes", head.replace(b'"', b"") + b"\n" + rest
    yield "a number in quotes", head + b'\n"' + first.partition(b",")[0].strip(b'"') + b'x"\n' + others
    yield "zeros before a number", head + b"\n0" + rest
    yield "a plus sign", head + b"\n+" + rest
    yield "an empty cell more", head + b"\n" + first + b",\n" + others
    yield "a comment", b"# x\n" + text


@pytest.mark.parametrize("name", ["partition-3", "noisy-counts-1", "estimates of areas"])
@pytest.mark.parametrize("version", [__version__, "9.8.7"])
def test_nothing_hides_in_the_files(name: str, version: str, tmp_path: Path) -> None:
    """Bytes that belong to no table are seen, whatever version is said to have written them; all digests are right."""
    release, folder = genuine(name), tmp_path / "release"
    body = release.certificate.plain()
    body["software"]["dunnage"] = body["proof"]["version"] = version
    release = Release(certificate=Certificate.model_validate(body), **release.tables)
    folder.mkdir()
    release.write_files(folder)
    result = dn.verify(folder)
    assert result.ok
    assert any(version in item for item in result.not_checked) == (version != __version__)
    missed: list[str] = []
    for table in release.tables:
        changes = [(f"{table}.parquet", *item) for item in hidden_parquet(release.tables[table])]
        changes += [(f"{table}.csv", *item) for item in lax_csv((folder / f"{table}.csv").read_bytes())]
        for file, what, content in changes:
            before = {path.name: path.read_bytes() for path in folder.iterdir()}
            if content == before[file] or ("zstd" in what and version != __version__):  # the form of 0.1
                continue
            (folder / file).write_bytes(content)
            for text, words in release.texts(folder).items():
                (folder / text).write_bytes(words)
            relisted(folder)
            result = dn.verify(folder)
            if result.ok and not any(file in item for item in result.not_checked):
                missed.append(f"{file}: {what}")
            for path, old in before.items():
                (folder / path).write_bytes(old)
    assert dn.verify(folder).ok
    assert missed == []


def test_another_version_of_arrow_is_named(tmp_path: Path) -> None:
    """A file that differs only in the name of its writer is compared; one that differs more is named, or refused."""
    release = genuine("partition-3")
    release.write_files(tmp_path)
    file = tmp_path / "data.parquet"
    true, own = file.read_bytes(), pq.read_metadata(file).created_by
    older = re.sub(r"\d+\.\d+\.\d+", "15.0.0", own)
    assert own != older
    assert len(own) == len(older)
    file.write_bytes(true.replace(own.encode(), older.encode()))
    relisted(tmp_path)
    assert dn.verify(tmp_path).ok
    assert not any("parquet" in item for item in dn.verify(tmp_path).not_checked)
    pq.write_table(release.data, file, compression="none", write_statistics=False)
    file.write_bytes(file.read_bytes().replace(own.encode(), older.encode()))
    relisted(tmp_path)
    result = dn.verify(tmp_path)
    assert result.ok
    assert any("data.parquet" in item and "15.0.0" in item for item in result.not_checked)
    pq.write_table(release.data, file, compression="none", use_dictionary=False, row_group_size=1)
    file.write_bytes(file.read_bytes().replace(own.encode(), older.encode()))
    relisted(tmp_path)
    assert not dn.verify(tmp_path).ok


@pytest.mark.parametrize("name", ["partition-3", "noisy-counts-1", "estimates of areas"])
@pytest.mark.parametrize("version", [__version__, "9.8.7"])
def test_every_object_of_a_certificate_is_closed(name: str, version: str) -> None:
    release = genuine(name)
    body = release.certificate.plain()
    body["software"]["dunnage"] = body["proof"]["version"] = version
    objects = [(), *(path for path, value in places(body) if isinstance(value, dict) and path[0] != "files")]
    assert len(objects) > 12
    for path in objects:
        inside = body
        for key in path:
            inside = inside[key]  # type: ignore[index]
        changed = {**inside, "note": "12 Quay Street"}
        assert seen(replaced(body, path, changed) if path else changed, release), path


FREE_TEXT = "Ada Example, 12 Quay Street, 17.5 kg; " * 30
NAMED = {
    "time": "yesterday",
    "spend.id": FREE_TEXT,
    "spend.head": FREE_TEXT,
    "dataset": FREE_TEXT,
    "period": FREE_TEXT,
    "software.dunnage": FREE_TEXT,
    "guarantee.protects": "person, for ever",
    "mechanism.name": "perfect-privacy",
    "numerics": "magic",
    "composition.total": {"epsilon": f"1{'0' * 300}/3", "delta": 0},
    "in_clear.0": "Ada Example and 12 Quay Street were left out",
}


@pytest.mark.parametrize("name", ["partition-3", "noisy-counts-1"])
def test_free_words_are_short_or_known(name: str) -> None:
    """Also if everything that follows from them is made to match."""
    release = genuine(name)
    missed = []
    for place, value in NAMED.items():
        path = tuple(int(part) if part.isdigit() else part for part in place.split("."))
        body = replaced(release.certificate.plain(), path, value)
        if place == "time":
            body["spend"] = {**body["spend"], "at": value}
        if place == "software.dunnage":
            body["proof"] = {**body["proof"], "version": value}
        if place == "guarantee.protects":
            restated(body)
        missed += [place] if not seen(body, release) else []
    more = replaced(release.certificate.plain(), ("in_clear",), [*release.certificate.in_clear, NAMED["in_clear.0"]])
    assert seen(more, release)
    assert missed == []
