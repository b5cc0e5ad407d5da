# SPDX-License-Identifier: Apache-2.0
"""Damage genuine files and arguments, run commands on them in this process, and judge how they end.

``python -m tests.fuzzing FIRST LAST`` plays a range of numbers and prints what went wrong; each number is one input,
always the same.
"""

from __future__ import annotations

import contextlib
import copy
import csv
import hashlib
import io
import json
import os
import random
import re
import shutil
import sqlite3
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import typer.main
import xlsxwriter
from tests.scenarios.harness import run_main

import dunnage.cli
from dunnage.errors import CheckFailed, OutputError
from dunnage.model.documents import canonical

OLD = Path(__file__).parent / "fixtures" / "v0.1.0"
WRITTEN = ("dunnage-ledger.sqlite", "fleet.keys", "truck.own", "truck.own.enrolled")
CHECKS = ("verify", "prove")  # commands that are checks themselves
HOUSE = '[limits]\nmin_k = 2\n[exceptions]\nmin_k = "Ada Example"\n'
HIERARCHY = """dataset = "parcels"
protects = "package"
[attributes.parcel]
role = "identifier"
[attributes.destination]
role = "quasi-identifier"
kind = "tree"
hierarchy = "hierarchy.csv"
[attributes.content]
role = "drop"
[attributes.weight]
role = "drop"
[mechanism]
name = "full-domain"
k = 2
max_suppressed = 0.5
"""

TRUTH = "parcels.csv --policy partition.toml --release partition"
RELEASES = ("partition", "full-domain", "noisy-values", "noisy-clusters", "sampled-lattice", "utility-clusters")
COUNTS = ("noisy-counts", "hierarchical-counts", "constrained-counts", "city-counts")
PLANS = ("standard", "sealed", "trucks", "stochastic", "noisy", "robust")


class Case(NamedTuple):
    """A command that works, and the files that may be damaged under it."""

    line: str
    files: tuple[str, ...] = ()
    times: int = 1  # how often it comes


def _release(name: str) -> tuple[str, ...]:
    return tuple(f"{name}/{path.name}" for path in sorted((OLD / name).iterdir()))


def cases() -> list[Case]:
    """Return every command with each kind of file that it reads."""
    shown = [path.name for path in sorted(OLD.iterdir()) if path.is_file() and not path.name.endswith(".key.parquet")]
    made = [Case(f"show {name}", (name,), 2) for name in [*shown, "feed.zip", "house.toml"]]
    for folder in ("audit", "audit-external", "frontier", "settlement-standard", "settlement-sealed", "city"):
        made.append(Case(f"show {folder}", _release(folder), 4))
    made.append(Case("show settlement-fleet", _release("settlement-fleet"), 4))
    for name in (*RELEASES, *COUNTS, "positions-estimates", "telemetry-estimates"):
        made += [Case(f"show {name}", _release(name), 5), Case(f"verify {name}", _release(name), 5)]
        made.append(Case(f"show {name}/certificate.json", (f"{name}/certificate.json",), 2))
    for name in RELEASES[:5]:
        made.append(Case(f"pack {name} --capacity 300kg -o out --time-limit 0.1", _release(name), 8))
    made += [
        Case("verify signed --signed-by owner.pub.pem", ("signed/certificate.json", "owner.pub.pem"), 4),
        Case("pack partition --trucks trucks.csv -o out --time-limit 0.1", ("trucks.csv",), 12),
        Case("pack partition --capacity 300kg --model sealed -o out --time-limit 0.1", _release("partition"), 6),
        Case("audit partition --external --plan plan-standard -o out --time-limit 0.1", _release("partition"), 3),
        Case("audit partition --external --plan plan-standard -o out --time-limit 0.1", _release("plan-standard"), 3),
        Case("size city-counts --city city --max-wait 900 --expansions 1 --dates 5 -o out", _release("city"), 6),
        Case("size city-counts --city city --max-wait 900 --expansions 1 --dates 5 -o out", _release("city-counts"), 6),
        Case("size city-counts --city feed.zip --max-wait 900 --expansions 1 --dates 5 -o out", ("feed.zip",), 12),
    ]
    for name in PLANS:
        release = "noisy-values" if name == "noisy" else "partition"
        truth = TRUTH.replace("partition", release)
        files = (*_release(f"plan-{name}"), f"{release}.key.parquet", f"{release}.toml", "parcels.csv")
        made.append(Case(f"apply plan-{name} {truth} -o out", files, 6))
        made.append(Case(f"show plan-{name}", _release(f"plan-{name}"), 4))
    made += [
        Case("apply bare.csv --capacity 300kg " + TRUTH + " --repair -o out", ("bare.csv",), 12),
        Case(
            "apply fleet ride-trips.csv --policy ride-trips.toml --release city-counts --city city -o out",
            (*_release("fleet"), "ride-trips.csv", "ride-trips.toml", "city-counts.key.parquet"),
            4,
        ),
        Case("show fleet", _release("fleet"), 6),
        Case("show posts", ("posts/parking.csv", "posts/plan.json"), 8),
        Case("show parcels.xlsx", ("parcels.xlsx",), 4),
        Case("publish parcels.xlsx --policy partition.toml --again -o out", ("parcels.xlsx",), 4),
        Case("audit partition parcels.csv --policy partition.toml -o out --time-limit 0.1", _release("partition"), 2),
        Case("show bare.csv", ("bare.csv",), 4),
        Case("budget show dunnage-ledger.sqlite", ("dunnage-ledger.sqlite",), 16),
        Case(
            "budget set dunnage-ledger.sqlite --dataset x --epsilon 1 --neighbours add-remove --note y",
            ("dunnage-ledger.sqlite",),
            12,
        ),
    ]
    for name in (*RELEASES[:5], *COUNTS[:3]):
        data = "trips.csv" if name in COUNTS else "parcels.csv"
        line = f"publish {data} --policy {name}.toml --again"
        files = (f"{name}.toml", data, "dunnage-ledger.sqlite", "house.toml")
        made += [Case(f"{line} -o out", files, 6), Case(f"{line} --dry-run", files, 6)]
        made.append(Case(f"show {name}.toml", (f"{name}.toml",), 6))
    made += [
        Case("publish rides.csv --policy utility-clusters.toml --again -o out", ("rides.csv", "edges.csv"), 4),
        Case("publish trips.csv --policy noisy-counts.toml --again --dry-run", ("stops.csv", "modes.csv"), 4),
        Case("publish parcels.csv --policy hierarchy.toml -o out", ("hierarchy.csv", "hierarchy.toml"), 12),
        Case("publish parcels.parquet --policy partition.toml --again -o out", ("parcels.parquet",), 12),
        Case("publish parcels.csv --policy partition.toml --again --sign own.pem -o out", ("own.pem",), 4),
        Case("draft parcels.csv -o out.toml", ("parcels.csv",), 6),
        Case("draft parcels.parquet -o out.toml", ("parcels.parquet",), 6),
        Case("draft parcels.csv --like partition.toml -o out.toml", ("parcels.csv", "partition.toml"), 4),
    ]
    for name in ("telemetry", "positions"):
        made += [
            Case(f"device task {name}.toml -o out.json", (f"{name}.toml",), 8),
            Case(f"show {name}-task.json", (f"{name}-task.json",), 4),
            Case(
                f"device simulate {name}.csv --task {name}-task.json --max-age 1440 -o out.jsonl",
                (f"{name}.csv", f"{name}-task.json"),
                4,
            ),
        ]
        for ending in ("reports.jsonl", "reports.bin", "tallies.json"):
            files = (f"{name}-{ending}", f"{name}-task.json")
            made.append(Case(f"estimate {name}-{ending} --task {name}-task.json --allow-noise -o out", files, 6))
    made += [
        Case(
            "device perturb telemetry.csv --task telemetry-task.json --allowance truck.own --vehicle V0000003 --tier "
            "basic --max-age 1440 -o out.jsonl",
            ("truck.own", "truck.own.enrolled", "telemetry.csv", "telemetry-task.json"),
            8,
        ),
        Case("device keys fleet.keys", ("fleet.keys",), 4),
        Case("device seal vehicles.csv --keys fleet.keys -o out.jsonl", ("vehicles.csv", "fleet.keys"), 4),
        Case("device open sealed.jsonl --keys fleet.keys -o out.csv", ("sealed.jsonl", "fleet.keys"), 6),
    ]
    return made


# Arguments: commands whose options get odd values. What takes long with honest large numbers is not among them.
OPTIONS = {
    "pack partition --capacity 300kg -o out --time-limit 0.1": (
        "--capacity --trucks --by --apart --model --statistic --risk --prior --budget --spread --margin --extra-trucks "
        "--max-linkage --time-limit --house --exception -o"
    ),
    "size city-counts --city city --max-wait 900 --expansions 1 --dates 5 -o out": (
        "--city --max-wait --expansions --capacity --day --dates --export --seed -o"
    ),
    "publish parcels.csv --policy partition.toml --again --dry-run": (
        "--policy --period --ledger --sign --seed --house --exception -o"
    ),
    f"apply plan-standard {TRUTH} -o out": "--policy --release --key --period --capacity --trucks --city -o",
    "audit partition --external --plan plan-standard -o out --time-limit 0.1": (
        "--plan --known-within --time-limit --house --exception --approved-by -o"
    ),
    "show positions-task.json": "--devices --precision --xlsx",
    "show partition": "--devices --precision",
    "verify partition": "--signed-by",
    "budget show dunnage-ledger.sqlite": "--dataset",
    "budget set other.sqlite --dataset x --epsilon 1 --neighbours add-remove --note y": (
        "--dataset --epsilon --delta --neighbours --note"
    ),
    "draft parcels.csv -o out.toml": "--story --like -o",
    "generate packages -o out.csv --size 20": (
        "--setting --law --low --high --mean --sd --destinations --decimals --seed -o"
    ),
    "device simulate telemetry.csv --task telemetry-task.json --max-age 1440 -o out.jsonl": (
        "--task --tier-column --seed --max-age -o"
    ),
    "estimate telemetry-reports.jsonl --task telemetry-task.json --allow-noise -o out": "--task --confidence -o",
    "device keys fleet.keys": "--drop --algorithm",
}
# fmt: off
WORDS = (
    "", " ", "0", "-1", "1", "3", "0.5", "-0", "1e400", "-1e400", "1e-400", "nan", "inf", "-inf", "1e9", "10000000000",
    "9" * 30, "9" * 5000, "1_000", "\u0663", "\u00b2", "\x1c5", " 5", "5 ", "0x10", "1/3", "1/0", "5%", "%", "=",
    "weight=", "=5", "weight=nan", "500kg", "500 kg", "true", "null", "none", "standard", "robust", "weight",
    "destination", "2026-11", "2026-W99", "2026-02-30", "caf\u00e9", "\u202e", "a\tb", "\x00", "\ud800", ".", "..", "/",
    "city", "partition", "parcels.csv", "nothing", "/dev/null", "nothing/inside", "x" * 300, "--json", "normal:0:0",
    "normal:1e400:1", "a,b", "weekday=5", "5,weekday=2", "speed=1", "{}", "[]", "'", '"', "$(x)", "\\", "%s", "{0}",
    "sqlite:///", ":memory:",
)
# fmt: on


def damaged_arguments(line: str, options: list[str], rng: random.Random) -> list[str]:
    words = line.split(" ")
    for _ in range(rng.choice((1, 1, 1, 2))):
        option, value = rng.choice(options), rng.choice(WORDS)
        if option in words:
            words[words.index(option) + 1] = value
        elif rng.random() < 0.2:
            place = rng.randrange(1, len(words))
            words[place] = value
        else:
            words += [option, value]
    return words


# How files are damaged

# fmt: off
BYTES = (
    b"", b"\x00", b"\xff", b"\xfe\xff", b"\xef\xbb\xbf", b"\x1c", b"\x1c5", b"\n", b"\r", b"\r\n\r\n", b",", b";", b'"',
    b"'", b"{", b"}", b"[", b"]", b"=", b"-", b"nan", b"inf", b"1e400", b"-1", b"0", b"1_0", b"9" * 25, b"9" * 5000,
    b"null", b"true", b"1/0", "\u0663".encode(), "\u00b2".encode(), "\u202e".encode(), b"PAR1", b"PK\x03\x04", b"#",
    b"%", b"SQLite format 3\x00", b"\\u0000",
)
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 7, 10**9, 10**18, 10**30, -(10**30), 0.5, -0.5, 1e308, 5e-324, "", " ", "x", "0",
    "1/0", "1/3", "nan", "1e400", "9" * 5000, "\x1c5", "\u0663", "caf\u00e9", [], {}, [[]], [None], {"x": 1}, [1, 2, 3],
    "a" * 3000, float("nan"), float("inf"), "2026-11-15", "proved", "rows", "counts", "packing", "../x", "/etc/passwd",
)
TOML = (
    '""', "0", "-1", "1", "2", "nan", "inf", "1e400", "true", "[]", "{}", '"x"', "[1, 2]", "2026-11-15", "10000000000",
    "'\\u0663'",
)
# fmt: on


def odd(rng: random.Random) -> Any:
    return copy.deepcopy(rng.choice(VALUES))


def damaged_bytes(data: bytes, rng: random.Random) -> bytes:
    for _ in range(rng.choice((1, 1, 2, 5))):
        at, to = sorted((rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)))
        to = min(to, at + rng.choice((1, 2, 8, 100, 10**9)))
        way = rng.randrange(6)
        if way == 0:
            data = data[:at]
        elif way == 1 and data:
            at = min(at, len(data) - 1)
            data = data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
        elif way == 2:
            data = data[:at] + rng.choice(BYTES) + data[at:]
        elif way == 3:
            data = data[:at] + data[to:]
        elif way == 4:
            data = data[:to] + data[at:to] + data[to:]
        else:
            data = data[:at] + rng.choice(BYTES) + data[to:]
    return data


def places(content: Any, parents: tuple[Any, ...] = ()) -> Iterator[tuple[Any, Any]]:
    """Yield each container with each of its keys or positions."""
    keys = content if isinstance(content, dict) else range(len(content)) if isinstance(content, list) else ()
    for key in keys:
        yield content, key
        yield from places(content[key])


def damaged_json(content: Any, rng: random.Random) -> Any:
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        found = list(places(content))
        if not found:
            return odd(rng)
        holder, key = rng.choice(found)
        way = rng.randrange(6)
        if way == 0:
            del holder[key]
        elif way == 1 and isinstance(holder, dict):
            holder[rng.choice(("extra", "format", "kind", "", "name"))] = odd(rng)
        elif way == 2 and isinstance(holder, list):
            holder.append(holder[key])
        elif way == 3:
            other, place = rng.choice(found)
            with contextlib.suppress(LookupError):  # it was inside what is gone
                holder[key] = json.loads(json.dumps(other[place]))
        elif way == 4 and type(holder[key]) in (int, float):
            holder[key] = rng.choice((-holder[key], holder[key] + 1, holder[key] * 10**6, holder[key] / 3))
        else:
            holder[key] = odd(rng)
    return content


def damaged_table(text: str, rng: random.Random) -> str:
    """Damage cells, lines or columns of a CSV text."""
    lines = list(csv.reader(io.StringIO(text)))
    for _ in range(rng.choice((1, 1, 2, 4))):
        if not lines or not any(lines):
            break
        line = rng.choice([line for line in lines if line])
        at, way = rng.randrange(len(line)), rng.randrange(8)
        if way == 0:
            lines.remove(line)
        elif way == 1:
            lines.insert(rng.randrange(len(lines) + 1), list(line))
        elif way == 2:
            del line[at]
        elif way == 3:
            line.insert(at, str(odd(rng)))
        elif way == 4:
            for other in lines:
                del other[at : at + 1]
        elif way == 5:
            del lines[1:]
        else:
            line[at] = rng.choice((str(odd(rng)), rng.choice(BYTES).decode("latin-1"), line[at] * 2))
    sink = io.StringIO()
    csv.writer(sink, lineterminator="\n").writerows(lines)
    return sink.getvalue()


def damaged_toml(text: str, rng: random.Random) -> str:
    lines = text.split("\n")
    for _ in range(rng.choice((1, 1, 2, 3))):
        at, way = rng.randrange(len(lines)), rng.randrange(5)
        name, equals, _ = lines[at].partition("=")
        if equals and way < 3:
            lines[at] = f"{name}= {rng.choice(TOML)}"
        elif way == 3:
            lines.insert(rng.randrange(len(lines) + 1), lines[at])
        else:
            lines[at] = rng.choice(("", "[x]", "x = 1", lines[at][::-1], lines[at] + '"'))
    return "\n".join(lines)


def damaged_parquet(data: bytes, rng: random.Random) -> bytes:
    table = pq.read_table(pa.BufferReader(data))
    at, way = rng.randrange(max(1, table.num_columns)), rng.randrange(7)
    name = table.column_names[at]
    if way == 0:
        table = table.remove_column(at)
    elif way == 1:
        table = table.slice(rng.randrange(table.num_rows + 1), rng.randrange(table.num_rows + 1))
    elif way == 2:
        table = table.rename_columns(
            [rng.choice(("", "x", name, table.column_names[0])) for _ in range(table.num_columns)]
        )
    elif way == 3:
        kinds = (pa.string(), pa.int8(), pa.float32(), pa.bool_(), pa.date32(), pa.list_(pa.int64()), pa.binary())
        table = table.set_column(at, name, pa.nulls(table.num_rows, rng.choice(kinds)))
    elif way == 4:
        values = [rng.choice((-1, 0, 1, 2**62, 7)) for _ in range(table.num_rows)]
        table = table.set_column(at, name, pa.array(values, pa.int64()))
    elif way == 5:
        values = [rng.choice((float("nan"), float("inf"), -1e308, 0.5)) for _ in range(table.num_rows)]
        table = table.set_column(at, name, pa.array(values))
    else:
        metadata = dict(table.schema.metadata or {})
        for key in metadata:
            if rng.random() < 0.5:
                metadata[key] = damaged_bytes(metadata[key], rng)
        table = table.replace_schema_metadata(metadata)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return sink.getvalue().to_pybytes()


def damage_ledger(path: Path, rng: random.Random) -> None:
    with contextlib.closing(sqlite3.connect(path)) as base:
        for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            base.execute(f"DROP TRIGGER {name}")
        for _ in range(rng.choice((1, 1, 2))):
            tables = [row[0] for row in base.execute("SELECT name FROM sqlite_master WHERE type='table'").fetchall()]
            table = rng.choice([name for name in tables if not name.startswith("sqlite_")])
            columns = [row[1] for row in base.execute(f"PRAGMA table_info({table})").fetchall()]
            column, way = rng.choice(columns), rng.randrange(5)
            value = rng.choice([value for value in VALUES if isinstance(value, int | float | str)])
            value = (
                b"\xff"
                if rng.random() < 0.1
                else str(value)
                if isinstance(value, int) and abs(value) > 2**60
                else value
            )
            with contextlib.suppress(sqlite3.Error):
                if way == 0:
                    base.execute(f"DROP TABLE {table}")
                    break
                if way == 1:
                    base.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
                elif way == 2:
                    base.execute(
                        f"PRAGMA {rng.choice(('user_version', 'application_id'))} = {rng.choice((0, 2, -1, 99))}"
                    )
                else:
                    base.execute(f"UPDATE {table} SET {column} = ?", [value])
        base.commit()


def damaged_zip(data: bytes, rng: random.Random) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as source:
        members = {name: source.read(name) for name in source.namelist()}
    name, sink = rng.choice(sorted(members)), io.BytesIO()
    way = rng.randrange(4)
    if way == 0:
        del members[name]
    elif way == 1:
        members[name] = damaged_bytes(members[name], rng)
    else:
        members[name] = damaged_table(members[name].decode(), rng).encode("utf-8", "replace")
    with zipfile.ZipFile(sink, "w") as target:
        for member, content in members.items():
            target.writestr(member, content)
    return sink.getvalue()


def restated(folder: Path, content: Any = None) -> None:
    """Let a certificate state the digests of the files as they are, and its own: as an editor with skill would."""
    path = folder / "certificate.json"
    content = content if content is not None else json.loads(path.read_bytes())
    if isinstance(content, dict) and isinstance(content.get("files"), dict):
        for name in content["files"]:
            with contextlib.suppress(OSError, ValueError):
                content["files"][name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    with contextlib.suppress(ValueError, AttributeError, TypeError):
        body = {name: value for name, value in content.items() if name not in ("digest", "signature")}
        path.write_bytes(canonical({**content, "digest": hashlib.sha256(canonical(body)).hexdigest()}))


class End(NamedTuple):
    """How a command ended, and what is wrong with that, if anything."""

    words: list[str]
    code: int
    seconds: float
    wrong: str
    err: str


class Place:
    """A folder with genuine files, in which commands run on damaged ones; every file is itself again afterwards."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(OLD, folder, dirs_exist_ok=True)
        with contextlib.chdir(folder):
            self._add()
        for path in folder.glob("*"):
            if path.suffix in (".own", ".keys", ".sqlite", ".pem") or path.name.endswith(".key.parquet"):
                path.chmod(0o600)
        self.genuine = {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
        self.cases = [case for case in cases() for _ in range(case.times)]
        self.command = typer.main.get_command(dunnage.cli.app)
        self.names = set(os.listdir(folder))
        self.errors: list[BaseException] = []
        self.damaged: list[Path] = []

    def _add(self) -> None:
        """Write the kinds of files that the old ones lack."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
        from tests.test_gtfs import FEED

        Path("house.toml").write_text(HOUSE)
        Path("hierarchy.toml").write_text(HIERARCHY)
        Path("hierarchy.csv").write_text("Bremen;north;*\nAntwerp;west;*\n")
        Path("bare.csv").write_bytes(Path("plan-standard/assignment.csv").read_bytes())
        shutil.copytree("fleet", "posts")
        stated, zone = json.loads(Path("posts/plan.json").read_bytes()), "zone 1"
        Path("posts/plan.json").write_text(json.dumps({**stated, "parking": {zone: "posts"}}))
        Path("posts/parking.csv").write_text(f"zone,from,rank,stop\n{zone},08:00,1,Z1-02\n{zone},09:00,1,Z1-03\n")
        with zipfile.ZipFile("feed.zip", "w") as feed:
            for name, text in FEED.items():
                feed.writestr(f"{name}.txt", text)
        with Path("parcels.csv").open() as stream:
            rows = list(csv.DictReader(stream))
        columns = {name: [float(row[name]) if name == "weight" else row[name] for row in rows] for name in rows[0]}
        pq.write_table(pa.table(columns), "parcels.parquet")
        with xlsxwriter.Workbook("parcels.xlsx") as book:
            sheet = book.add_worksheet()
            for place, row in enumerate([list(columns), *zip(*columns.values(), strict=True)]):
                sheet.write_row(place, 0, row)
        key = Ed25519PrivateKey.from_private_bytes(bytes(32))
        Path("own.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))

    def play(self, number: int) -> End:
        """Run input ``number``."""
        rng = random.Random(f"dunnage {number}")
        with contextlib.chdir(self.folder):
            if rng.random() < 0.2:
                line = rng.choice(sorted(OPTIONS))
                words = damaged_arguments(line, OPTIONS[line].split(), rng)
            else:
                case = rng.choice(self.cases)
                words = case.line.split(" ")
                self._damage(self.folder / rng.choice(case.files), rng)
            if rng.random() < 0.3:
                words.append("--json")
            try:
                return self._run(words)
            finally:
                self._restore()

    def _damage(self, path: Path, rng: random.Random) -> None:
        data, way = self.genuine[path], rng.random()
        is_release = (certificate := path.with_name("certificate.json")) in self.genuine
        self.damaged += [path, certificate] if is_release else [path]
        if way < 0.03:
            path.unlink()
            if rng.random() < 0.5:
                path.mkdir()
        elif way < 0.06:
            path.write_bytes(self.genuine[rng.choice(list(self.genuine))])
        elif way < 0.3:
            path.write_bytes(damaged_bytes(data, rng))
        elif path.name == "certificate.json":
            restated(path.parent, damaged_json(json.loads(data), rng))
            return
        elif path.suffix == ".json" or path.suffix in (".own", ".keys"):
            lines = data.split(b"\n")
            content = damaged_json(json.loads(lines[0] if path.suffix == ".own" else data), rng)
            text = json.dumps(content, separators=(",", ":") if path.suffix == ".own" else None).encode()
            if path.suffix == ".own":  # with a checksum that fits
                text = text + b"\nsha256 " + hashlib.sha256(text).hexdigest().encode() + b"\n"
            path.write_bytes(text)
        elif path.suffix == ".jsonl":
            lines = data.decode().splitlines()
            at = rng.randrange(len(lines))
            lines[at] = json.dumps(damaged_json(json.loads(lines[at]), rng))
            path.write_text("\n".join(lines) + "\n")
        elif path.suffix == ".csv":
            path.write_text(damaged_table(data.decode(), rng), encoding="utf-8", errors="surrogateescape")
        elif path.suffix == ".toml":
            path.write_text(damaged_toml(data.decode(), rng))
        elif path.suffix == ".parquet":
            path.write_bytes(damaged_parquet(data, rng))
        elif path.suffix == ".sqlite":
            damage_ledger(path, rng)
        elif path.suffix == ".zip":
            path.write_bytes(damaged_zip(data, rng))
        else:
            path.write_bytes(damaged_bytes(data, rng))
        if is_release and path.is_file() and rng.random() < 0.7:
            with contextlib.suppress(ValueError):
                restated(path.parent)

    def _run(self, words: list[str]) -> End:
        self.errors.clear()
        fail = dunnage.cli._fail_as

        def failing(error: BaseException) -> int:
            self.errors.append(error)
            return fail(error)

        before, began = set(os.listdir()), time.process_time()
        with (
            mock.patch.object(dunnage.cli, "app", self.command),
            mock.patch.object(dunnage.cli, "_fail_as", failing),
        ):
            code, out, err = run_main(*words)
        seconds = time.process_time() - began
        error, wrong = self.errors[0] if self.errors else None, ""
        if code not in (0, 1, 2):
            wrong = f"exit {code}"
        elif "Traceback" in out + err:
            wrong = "traceback"
        elif code == 1 and error is not None and not isinstance(error, CheckFailed):
            wrong = f"exit 1 for {type(error).__name__}"
        elif code == 1 and error is None and words[0] not in CHECKS and not re.search("LEAVE|EXCEPTION|verdict", out):
            wrong = "exit 1 without a failed check"
        elif (
            code == 2
            and not isinstance(error, OutputError)
            and (new := [n for n in os.listdir() if n not in before and not n.endswith(".lock")])
        ):
            wrong = f"exit 2 left {new}"
        return End(words, code, seconds, wrong, err)

    def _restore(self) -> None:
        """Remove what is new, and write back what was damaged or can be written by a command."""
        for name in set(os.listdir(self.folder)) - self.names:
            path = self.folder / name
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        for path in (*self.damaged, *(self.folder / name for name in WRITTEN)):
            if path.is_dir():
                shutil.rmtree(path)
            path.write_bytes(self.genuine[path])
        self.damaged.clear()


@contextlib.contextmanager
def a_place() -> Iterator[Place]:
    """Give a place in memory where there is such a file system: ledgers wait for a disk at every write."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as name:
        yield Place(Path(name))


def tell(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(first: int, last: int) -> None:
    codes: dict[int, int] = {}
    with a_place() as place:
        for number in range(first, last):
            end = place.play(number)
            codes[end.code] = codes.get(end.code, 0) + 1
            if end.wrong or end.seconds > 10:
                line = " ".join(end.words)[:300]
                tell(f"{number}: {end.wrong or 'slow'} ({end.seconds:.1f} s): {line!r}\n  {end.err[:600]}")
    tell(f"{last - first} inputs, exit codes {dict(sorted(codes.items()))}, {time.process_time():.0f} CPU seconds")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
