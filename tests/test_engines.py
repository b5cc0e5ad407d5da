# SPDX-License-Identifier: Apache-2.0
"""Engines: one set of test bodies for all places where rows live. States, releases and messages are the same."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import hmac
import importlib.util
import io
import os
import pickle
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from tests.builders import PARCEL, QUASI, RIDERS, STOP, WEEKDAYS, Repeated, a_policy, a_trip_policy, town, trips
from tests.commands import fine

import dunnage as dn
from dunnage import engines, folds
from dunnage.collecting.frames import Source, tally_reports
from dunnage.engines import sources
from dunnage.engines.rows import CheckedFold
from dunnage.errors import InputError, ParameterError
from dunnage.folds import Rows, numbered
from dunnage.kernels.clusters import growth
from dunnage.mechanisms import cells as folding
from dunnage.mechanisms import cluster_blocks
from dunnage.mechanisms.counts import true_counts
from dunnage.noise import priorities as keyed
from dunnage.noise.priorities import digests, priorities
from dunnage.noise.streams import Stream
from dunnage.publishing import mechanism_of
from dunnage.tables import reader

LEAVE_OUT = {"outside": "leave-out", "missing": "leave-out", "unreadable": "leave-out"}
MECHANISMS = (
    {"name": "noisy-counts", "epsilon": 1},
    {"name": "constrained-counts", "epsilon": 1},
    {"name": "hierarchical-counts", "epsilon": 1},
    {"name": "fitted-counts", "epsilon": 1},
)
MODES = ("memory", "files", "csv", "duckdb", "spark", "spark-files")
CORRECTED = {"protects": "rider", "contribution": {"person": "card", "max": 2, "per": "period", "total_max": 8}}
ROW_MECHANISMS = (
    {"name": "partition", "k": 3, "statistic": "mean"},
    {"name": "partition", "k": 4, "goal": "packing", "capacity": 120},
    {"name": "full-domain", "k": 3, "statistic": "multiset"},
    {"name": "noisy-values", "epsilon": 1},
)
Maker = Callable[[pa.Table], Rows]


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    if importlib.util.find_spec("pyspark") is None or shutil.which("java") is None:
        pytest.skip("needs PySpark and Java")
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Two cores, and three attempts at each task.
    builder = SparkSession.builder.master("local[2,3]").config("spark.ui.enabled", "false")
    session = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(params=MODES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def rows_of(engine: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Maker:
    """Put a table where an engine reads it, in several parts."""
    monkeypatch.setattr(sources, "NUM_BATCH_ROWS", 7)
    monkeypatch.setattr(reader, "_STREAM_BYTES", 512)
    session = request.getfixturevalue("spark") if engine.startswith("spark") else None
    if engine == "duckdb":
        pytest.importorskip("duckdb")
    numbers = iter(range(1000))

    def make(table: pa.Table) -> Rows:
        path = tmp_path / f"{next(numbers)}.parquet"
        if engine == "memory":
            return engines.MemoryRows(table)
        if engine == "csv":
            pacsv.write_csv(table, path.with_suffix(".csv"))
            return engines.FileRows(path.with_suffix(".csv"))
        if engine == "spark":
            return engines.rows_of(session.createDataFrame(table), None, "spark")
        half = table.num_rows // 2
        path.mkdir()
        pq.write_table(table.slice(0, half), path / "a.parquet", row_group_size=11)
        pq.write_table(table.slice(half), path / "b.parquet", row_group_size=13)
        if engine == "duckdb":
            return engines.QueryRows(f"SELECT * FROM read_parquet('{path}/*.parquet')")
        if engine == "spark-files":
            from dunnage.engines import spark as module

            monkeypatch.setattr(module, "_TASK_ROWS", 20)
        return engines.rows_of(path, reader.ReadOptions(), engine.removesuffix("-files"))

    return make


def tries(engine: str) -> range:
    return range(20 if engine == "files" or os.environ.get("DUNNAGE_LONG") else 4)


def fold_of(policy: dn.Policy, rows: Rows) -> CheckedFold:
    return CheckedFold.of(policy, None, rows, mechanism_of(policy).fold(policy.schema, None))


def folded(rows: Rows, policy: dn.Policy) -> bytes:
    fold = fold_of(policy, rows)
    return fold.dump(rows.fold(fold)).replace(rows.source.encode(), b"")


def released(data: dn.Dataset) -> str:
    """Return a digest of a release, without the id and the time of its spend."""
    made = dn.publish(data, ledger=dn.Ledger(":memory:"), noise=Repeated(seed=5)).release
    stated = {name: value for name, value in made.certificate.plain().items() if name not in ("spend", "time")}
    return hashlib.sha256(repr((made.data.to_pydict(), stated)).encode()).hexdigest()


def refusal(data: Any, policy: dn.Policy, engine: str | None = None) -> InputError:
    with pytest.raises(InputError) as refused:
        dn.load(data, policy, engine=engine)
    return refused.value


def damaged(table: pa.Table, draw: random.Random, num: int) -> pa.Table:
    """Put cells that do not fit into some rows."""
    columns = table.to_pydict()
    for _ in range(num):
        name, cell = draw.choice(
            [
                ("from", "S9"),
                ("from", ""),
                ("to", "?"),
                ("at", "noon"),
                ("at", "2026-11-12T03:00"),
                ("at", ""),
                ("card", ""),
            ]
        )
        columns[name][draw.randrange(table.num_rows)] = cell
    return pa.table(columns)


def test_states_and_releases_are_those_of_memory(engine: str, rows_of: Maker) -> None:
    lenient = {"card": {"role": "identifier", **LEAVE_OUT}, "from": {**STOP, **LEAVE_OUT}, "to": {**STOP, **LEAVE_OUT}}
    for number in tries(engine):
        draw = random.Random(number)
        mechanism, time = MECHANISMS[number % 4], draw.choice([{}, WEEKDAYS])
        riders = {} if number % 2 else draw.choice([RIDERS, CORRECTED])
        policy = a_trip_policy(mechanism, {**time, **LEAVE_OUT}, attributes=lenient, **riders)
        table = damaged(trips(draw.randrange(40, 90)), draw, draw.randrange(12))
        table = table.take(pa.array(draw.choices(range(table.num_rows), k=table.num_rows)))
        rows, truth = rows_of(table), dn.load(table, policy)
        assert folded(rows, policy) == folded(engines.MemoryRows(table), policy)
        data = dn.load(rows, policy)
        assert (len(data), data.left_out) == (len(truth), truth.left_out)
        assert number > (3 if engine == "memory" else 0) or released(data) == released(truth)
        left = np.array(sorted(truth.left_out), dtype=np.int64)
        assert pa.table(data.cells(left, ["card"])).equals(pa.table(truth.cells(left, ["card"])))


def test_problems_are_those_of_memory(engine: str, rows_of: Maker) -> None:
    refused = 0
    for number in tries(engine):
        draw = random.Random(number)
        policy = a_trip_policy(MECHANISMS[0], WEEKDAYS)
        table = damaged(trips(draw.randrange(30, 80)), draw, draw.randrange(1, 30))
        if number % 3 == 1:
            table = table.rename_columns(["card", "from", "towards", "at"])
        problems = refusal(table, policy).problems
        assert refusal(rows_of(table), policy).problems == problems
        refused += len(problems) > 1
    assert refused > 1


def some_parcels(draw: random.Random, num: int) -> pa.Table:
    weights = [round(draw.choice([draw.gammavariate(3, 8), 2.0]) % 100, draw.choice([0, 1])) for _ in range(num)]
    columns = {"parcel": [f"p{i}" for i in range(num)], "destination": draw.choices(["Ä", "B", "C"], k=num)}
    return pa.table({**columns, "content": draw.choices(["toys", "tea"], k=num), "weight": map(str, weights)})


def alike(release: dn.Release) -> list[tuple[Any, ...]]:
    """Rows without their order."""
    return sorted(zip(*release.data.drop_columns(["row"]).to_pydict().values(), strict=True))


def test_rows_are_released_as_in_memory(
    engine: str, rows_of: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in tries(engine):
        draw, given = random.Random(number), ROW_MECHANISMS[number % 4]
        lenient = {**PARCEL, "weight": {**PARCEL["weight"], **LEAVE_OUT}}
        dropped = number % 8 > 3 or given["name"] == "noisy-values"
        lenient["content"] = {"role": "drop"} if dropped else PARCEL["content"]
        policy = a_policy(given, lenient, small="suppress")
        table = some_parcels(draw, draw.randrange(30, 60))
        cells = table.column("weight").to_pylist()
        for _ in range(draw.randrange(4)):
            cells[draw.randrange(len(cells))] = draw.choice(["", "heavy", "101", "-1"])
        table = table.set_column(3, "weight", pa.array(cells))
        rows, memory = rows_of(table), engines.MemoryRows(table)
        assert folded(rows, policy) == folded(memory, policy)
        truth = dn.load(table, policy)
        if engine == "spark":
            with pytest.raises(ParameterError, match="Parquet"):
                dn.load(rows, policy)
            continue
        data = dn.load(rows, policy)
        assert (len(data), data.left_out) == (len(truth), truth.left_out)
        made = dn.publish(truth, ledger=dn.Ledger(":memory:"), noise=Repeated(seed=5))
        out = tmp_path / f"release{number}"
        other = dn.publish(data, ledger=dn.Ledger(":memory:"), noise=Repeated(seed=5), out=out if number < 4 else None)
        assert other.release.data.schema.equals(made.release.data.schema)
        assert other.key.belongs_to(truth)
        assert not other.key.belongs_to(dn.load(table.slice(1), policy))
        assert "keyed streams" in other.release.certificate.assumptions
        assert number > 3 or dn.verify(out).ok
        assert other.key.table.schema.equals(made.key.table.schema)
        if made.release.classes is not None:
            assert other.release.classes.equals(made.release.classes)
            assert made.release.members is None or other.release.members.equals(made.release.members)
            assert alike(other.release) == alike(made.release)
            assert other.key.left_out == {why: sorted(own) for why, own in made.key.left_out.items()}
            measures = [one.release.certificate.measures for one in (other, made)]
            assert measures[0] == measures[1]
        # Every row of the release is that of its line in the key.
        parcels = dict(zip(table["parcel"].to_pylist(), table["destination"].to_pylist(), strict=True))
        lines = zip(other.key.table["parcel"].to_pylist(), other.release.data["destination"].to_pylist(), strict=True)
        assert all(parcels[parcel] == place for parcel, place in lines)
        if engine == "spark-files":  # the same bytes as on one machine, in batches of the size that workers use
            with monkeypatch.context() as patched:
                patched.setattr(sources, "NUM_BATCH_ROWS", folds.NUM_BATCH_ROWS)
                local = dn.load(engines.FileRows(rows.source), policy)
                again = dn.publish(local, ledger=dn.Ledger(":memory:"), noise=Repeated(seed=5))
            assert again.release.data.equals(other.release.data)


def some_rides(draw: random.Random, num: int) -> pa.Table:
    columns = {"card": [f"c{i}" for i in range(num)], "town": draw.choices(["A", "B", "C"], [8, 3, 0.1], k=num)}
    columns |= {"board": draw.choices([f"S{i}" for i in range(7)], k=num), "bag": draw.choices(["box", "none"], k=num)}
    columns |= {"start": [float(draw.randrange(96)) for _ in range(num)], "rating": draw.choices("pfg", k=num)}
    return pa.table({**columns, "place": draw.choices("abcd", k=num)})


def test_clusters_are_those_of_memory(
    engine: str, rows_of: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records are cut where they live, and clustered in blocks: the same classes, sensitive values and figures."""
    small = functools.partial(growth.num_blocks, size=30)
    monkeypatch.setattr(growth, "grow_in_blocks", functools.partial(growth.grow_in_blocks, size=30))
    monkeypatch.setattr(cluster_blocks, "num_blocks", small)
    parents = {"a": "Z0", "b": "Z0", "c": "Z1", "d": "Z1", "Z0": "*", "Z1": "*"}
    every = {
        "card": {"role": "identifier"},
        "board": {"role": QUASI, "kind": "graph", "edges": "edges.csv"},
        "start": {"role": QUASI, "kind": "numeric", "domain": [0, 96], **LEAVE_OUT},
        "bag": {"role": QUASI, "kind": "category", "domain": ["box", "none"]},
        "place": {"role": QUASI, "kind": "tree", "parents": parents},
        "rating": {"role": "sensitive", "kind": "ordinal", "domain": ["p", "f", "g"]},
        "town": {"role": "public"},
    }
    for number in tries(engine)[: None if os.environ.get("DUNNAGE_LONG") else 3]:
        draw = random.Random(number)
        monkeypatch.setattr(cluster_blocks, "_ROWS_AT_ONCE", draw.choice([25, 60, 1 << 20]))
        chosen = {name: {"role": "drop"} if draw.random() < 0.3 else item for name, item in every.items()}
        chosen |= {"start": every["start"]} if number % 4 else {"bag": every["bag"]}
        given = {
            "name": "utility-clusters",
            "k": draw.choice([2, 3, 5]),
            "scaling": draw.choice(["maximum", "unit-variance"]),
        }
        given["importance"] = draw.choice(["entropy", "entropy-normalised", {}])
        if draw.random() < 0.4 and chosen["start"] is every["start"]:
            given |= {"limits": {"start": draw.choice([20, 60])}, "buckets": {"start": {"quantiles": 7}}, "price": 0.5}
        policy = a_policy(given, chosen, small="suppress")
        table = some_rides(draw, draw.randrange(60, 260))
        if number % 3 == 0:
            cells = table["start"].to_pylist()
            cells[draw.randrange(len(cells))] = 1000.0
            table = table.set_column(table.column_names.index("start"), "start", pa.array(cells))
        truth = dn.load(table, policy)
        if engine == "spark":
            with pytest.raises(ParameterError, match="Parquet"):
                dn.load(rows_of(table), policy)
            continue
        made = dn.publish(truth, ledger=dn.Ledger(":memory:"), noise=Repeated(seed=5))
        data, out = dn.load(rows_of(table), policy), tmp_path / f"release{number}"
        other = dn.publish(data, ledger=dn.Ledger(":memory:"), noise=Repeated(seed=5), out=out)
        assert other.release.classes.equals(made.release.classes)
        assert alike(other.release) == alike(made.release)
        assert other.release.certificate.measures == made.release.certificate.measures
        assert other.key.left_out == {why: sorted(own) for why, own in made.key.left_out.items()}
        lines = [
            sorted(zip(*(one.key.table[name].to_pylist() for name in ("source_row", "class_id")), strict=True))
            for one in (made, other)
        ]
        assert lines[0] == lines[1]  # every row is in the same class
        assert not dn.verify(out).problems


def test_reports_are_tallied_as_in_memory(engine: str, rows_of: Maker) -> None:
    from tests.test_local_batch import TASK, some_reports

    if engine == "csv":
        pytest.skip("reports are bytes")
    for number in tries(engine):
        draw = random.Random(number)
        frames = [report.to_bytes() for report in some_reports(draw.randrange(20, 60))]
        frames += draw.choices(frames, k=draw.choice([0, 5]))  # copies
        for at in draw.sample(range(len(frames)), draw.choice([0, 4])):
            damaged = bytearray(frames[at])
            damaged[draw.randrange(len(damaged))] ^= 1 << draw.randrange(8)
            frames.append(bytes(damaged))
        draw.shuffle(frames)
        rows = rows_of(pa.table({"report": pa.array(frames, pa.binary())}))
        found = tally_reports(TASK, rows)
        memory = engines.MemoryRows(pa.table({"report": pa.array(frames, pa.binary())}), rows.source)
        content = b"".join(len(data).to_bytes(4, "big") + data for data in frames)
        for other in (tally_reports(TASK, memory), tally_reports(TASK, [Source("x", lambda c=content: io.BytesIO(c))])):
            assert found.to_dict() == other.to_dict()
            assert (found.left_out, found.days, found.num_read) == (other.left_out, other.days, other.num_read)
        assert found.first_bad == tally_reports(TASK, memory).first_bad


def test_streams_and_priorities_are_those_of_their_key(monkeypatch: pytest.MonkeyPatch) -> None:
    key, rng = bytes(range(32)), random.Random(3)
    parts = [rng.randbytes(size) for size in (1, 16, 127, 128, 129, 300)]
    ends = np.cumsum([len(part) for part in parts])
    content = np.frombuffer(b"".join(parts), dtype=np.uint8)
    monkeypatch.setattr(keyed, "_COMPILE_FROM", 0)
    if not os.environ.get("DUNNAGE_LONG"):
        monkeypatch.setattr(keyed, "_digests", keyed._digests.plain)
        monkeypatch.setattr(keyed, "compress", keyed.compress.plain)
    with np.errstate(over="ignore"):
        found = digests(key, content, ends)
    monkeypatch.undo()
    for part, words in zip(parts, found, strict=True):
        assert hashlib.blake2b(part, key=key, digest_size=16).digest() == words.tobytes()
    content = (7).to_bytes(8, "little") + (1).to_bytes(8, "little")
    assert priorities(key, np.array([7]), 1).tobytes() == hashlib.blake2b(content, key=key, digest_size=16).digest()
    # RFC 5869 with SHA-256, and RFC 8439 with a counter and a nonce of zeros, by hand.
    middle = hmac.digest(bytes(32), key, "sha256")
    own = hmac.digest(middle, b"dunnage rows\0part:1\x01", "sha256")
    stream = Stream(key, b"part:1")
    assert stream.draw_bytes(100) + stream.draw_bytes(28) == chacha(own, 0) + chacha(own, 1)
    assert Stream(key, b"part:2").draw_bytes(16) != Stream(key, b"part:1").draw_bytes(16)
    with pytest.raises(TypeError):
        pickle.dumps(stream)


def chacha(key: bytes, counter: int) -> bytes:
    """One block of ChaCha20, slowly."""
    start = [0x61707865, 0x3320646E, 0x79622D32, 0x6B206574, *struct.unpack("<8I", key), counter, 0, 0, 0]
    state = list(start)

    def turn(word: int, by: int) -> int:
        return (word << by | word >> 32 - by) & 0xFFFFFFFF

    columns = [(i, i + 4, i + 8, i + 12) for i in range(4)]
    diagonals = [(0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)]
    for a, b, c, d in (columns + diagonals) * 10:
        for x, y, z, by in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            state[x] = (state[x] + state[y]) & 0xFFFFFFFF
            state[z] = turn(state[z] ^ state[x], by)
    return struct.pack("<16I", *((one + two) & 0xFFFFFFFF for one, two in zip(state, start, strict=True)))


def test_a_task_that_runs_twice_makes_the_same_rows_and_files_must_not_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = some_parcels(random.Random(1), 60)
    policy = a_policy({"name": "noisy-values", "epsilon": 1}, {**PARCEL, "content": {"role": "drop"}})
    path = tmp_path / "rows.parquet"
    pq.write_table(table, path, row_group_size=20)

    class Twice(engines.FileRows):
        """An engine that runs every task twice, in any order, and uses one result."""

        def run(self, pieces: Any, columns: Any, task: Any) -> Any:
            assert len(pieces) == 3
            sent = pickle.dumps(task)
            for piece in pieces[::-1]:
                first, second = (list(pickle.loads(sent)(piece, sources.piece_batches(piece, columns))) for _ in "ab")
                assert first == second
                yield from first

    spent, releases = dn.Ledger(":memory:"), []
    for rows in (Twice(path), engines.FileRows(path)):
        data = dn.load(rows, policy)
        releases.append(dn.publish(data, ledger=spent, noise=Repeated(seed=5), again=True).release.data)
    assert releases[0].equals(releases[1])
    assert len(spent.statement("parcels").spends) == 2
    data = dn.load(path, policy, engine="files")
    pq.write_table(some_parcels(random.Random(2), 60), path, row_group_size=20)
    os.utime(path, ns=(1, 1))
    with pytest.raises(InputError, match="changed"):
        dn.publish(data, ledger=dn.Ledger(":memory:"))


def test_how_rows_are_divided_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """States, sent and merged in any order, have the bytes of one pass; sums in tables and in lists as well."""
    policy = a_trip_policy(MECHANISMS[0], LEAVE_OUT, trip={"origin": "from", "destination": "to", "time": "at"})
    for number in range(12):
        draw = random.Random(number)
        table = damaged(trips(200), draw, draw.choice([0, 3]))
        whole = engines.MemoryRows(table)
        fold = pickle.loads(pickle.dumps(fold_of(policy, whole)))
        dumped = fold.dump(whole.fold(fold))
        assert fold.dump(fold.load(dumped)) == dumped
        if number == 6:
            monkeypatch.setattr(folding, "MAX_TABLE_CELLS", 0)
            monkeypatch.setattr(folding, "_MIN_PENDING", 5)
        batches = [numbered(batch, rows) for batch, rows in whole.batches(table.column_names)]
        pieces = [piece.slice(at, 9) for piece in batches for at in range(0, len(piece), 9)]
        draw.shuffle(pieces)
        states = []
        for at in range(0, len(pieces), 3):
            states.append(fold.start())
            for piece in pieces[at : at + 3]:
                fold.add(states[-1], piece)
        merged = fold.start()
        for state in states:
            fold.merge(merged, fold.load(fold.dump(state)))
        assert fold.dump(merged) == dumped


def test_rows_that_stand_for_several_trips(tmp_path: Path) -> None:
    table = trips(60).append_column("num", pa.array([(7 * i) % 5 for i in range(60)]))
    count = {"role": "quasi-identifier", "kind": "numeric", "domain": [0, 9]}
    trip = {"origin": "from", "destination": "to", "time": "at", "count": "num"}
    policy = a_trip_policy(MECHANISMS[0], trip=trip, attributes={"num": count})
    pq.write_table(table, tmp_path / "trips.parquet")
    data, truth = dn.load(tmp_path / "trips.parquet", policy, engine="files"), dn.load(table, policy)
    assert true_counts(data).num_trips == true_counts(truth).num_trips == sum((7 * i) % 5 for i in range(60))
    assert released(data) == released(truth)


TEXTS = {
    "rows of other lengths": (b"card,from,to,at\n1,S0,S1,08:10\n2,S0\n3,S9,S1,08:10\n\n4,S0,S1,9,9\n5,S0,S1,x\n", {}),
    "quotes": (b'card,from,to,at\n"1","S0",S1,08:10\n2,"S0\n"",",S1,08:10\n', {}),
    "open quote": (b'card,from,to,at\n1,S0,S1,08:10\n2,"S0,S1,08:10\n', {}),
    "long header": (b'card,from,to,at,"at\n1,S0,S1,08:10\n', {}),
    "latin": ("card,from,to,at\n1,S0,S1,08:10\n2,Sé,S1,08:10\n".encode("latin-1"), {}),
    "latin read as such": (
        "card;from;to;at\n1;S0;Sé;08:10\n".encode("latin-1"),
        {"encoding": "latin-1", "delimiter": ";"},
    ),
    "utf-16": ("card,from,to,at\n1,S0,S1,08:10\n2,S8,S1,08:10\n".encode("utf-16"), {"encoding": "utf-16"}),
    "utf-16 by default": ("card,from,to,at\n1,S0,S1,08:10\n".encode("utf-16-le"), {}),
    "byte order mark": (b"\xef\xbb\xbfcard,from,to,at\n1,S7,S1,08:10\n", {}),
    "empty": (b"\n\n", {}),
    "header alone": (b"card,from,to,at\n", {}),
    "Parquet": (b"PAR1card,from\n", {}),
    "one column": (b"\n\ncard\n1\n\n2\n\n\n", {}),
    "many lines": (
        b"card,from,to,at\n" + b"".join(b"%d,S%d,S1,08:10%s\n" % (i, i % 7, b",2" * (i % 9 == 0)) for i in range(400)),
        {},
    ),
    "line ends": (b'card,from,to,at\r\n1,S0,"S1",08:10\r\n\r\n2,S2,S1,"08:40"\r\n', {}),
    "missing words": (b"card,from,to,at\n1,-,S1,08:10\n", {"null": ["-"]}),
}


def test_text_is_read_as_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_BLOCK_BYTES", "_STREAM_BYTES"):
        monkeypatch.setattr(reader, name, 256)
    for number, (name, (content, read)) in enumerate(TEXTS.items()):
        path, policy = tmp_path / f"{number}.csv", a_trip_policy(MECHANISMS[0], read=read)
        path.write_bytes(content)
        if name in ("header alone", "line ends"):
            assert released(dn.load(path, policy, engine="files")) == released(dn.load(path, policy))
        else:
            assert str(refusal(path, policy, "files")) == str(refusal(path, policy))


def test_a_key_proves_the_data_whatever_the_engine(tmp_path: Path) -> None:
    policy, table = a_trip_policy(MECHANISMS[0]), trips(80)
    pq.write_table(table, tmp_path / "trips.parquet")
    data = dn.load(tmp_path / "trips.parquet", policy, engine="files")
    release, key = dn.publish(data, ledger=dn.Ledger(":memory:"), out=tmp_path / "release")
    assert dn.audit(release, dn.load(table, policy), key=key).findings
    with pytest.raises(dn.UserError, match="key"):
        dn.audit(release, dn.load(table.slice(1), policy), key=key)
    with pytest.raises(ParameterError, match="without an engine"):
        dn.audit(release, data, key=key)
    assert "S0" not in repr(data)
    assert dn.rehearse(data, ledger=dn.Ledger(":memory:")).num_rows == 80


def test_the_command_publishes_the_same(tmp_path: Path) -> None:
    path, lenient = tmp_path / "trips.csv", a_trip_policy(MECHANISMS[0], LEAVE_OUT)
    policy = town() / "engines.toml"
    policy.write_text(lenient.to_toml())
    pacsv.write_csv(
        damaged(trips(60), random.Random(1), 0).set_column(3, "at", pa.array(["08:10", "07:00"] * 30)), path
    )
    lists = []
    for engine in ("memory", "files"):
        out, ledger = tmp_path / engine, tmp_path / f"{engine}.sqlite"
        told = fine("publish", path, "--policy", policy, "--engine", engine, "--seed", 5, "-o", out, "--ledger", ledger)
        assert told["owner"]["left_out"] == 30
        lists.append(((out / "data.csv").read_bytes(), (tmp_path / f"{engine}.unplanned.csv").read_bytes()))
    assert lists[0] == lists[1]


def test_what_engines_refuse(tmp_path: Path) -> None:
    path = tmp_path / "trips.parquet"
    pq.write_table(trips(), path)
    (tmp_path / "trips.csv").write_text("card,from,to,at\n")
    rows = a_policy({"name": "utility-clusters", "k": 3, "max_distortion": 0.5})
    together = a_policy({"name": "partition", "k": 3}, together="parcel")
    plain = a_trip_policy(MECHANISMS[0])
    for data, policy, engine, word in (
        (path, rows, "files", "utility-clusters needs all rows"),
        (path, together, "files", "together"),
        (path, plain, "dask", "memory, files, duckdb, spark"),
        (trips(), plain, "files", "path"),
        (trips(), plain, "spark", "DataFrame"),
        (tmp_path / "trips.csv", plain, "spark", "not Parquet"),
        (tmp_path / "none.parquet", plain, "files", "does not exist"),
        (path, plain, "duckdb", "in Python only"),
    ):
        with pytest.raises(dn.UserError, match=word):
            dn.load(data, policy, engine=engine)


def test_folders_with_rows_that_nobody_would_read(tmp_path: Path) -> None:
    policy, table = a_policy({"name": "partition", "k": 3}), some_parcels(random.Random(1), 60)
    other = table.set_column(3, "weight", pa.array(range(60), pa.int32()))
    cases = {
        "nothing": ({}, "without Parquet"),
        "a CSV file": ({"a.parquet": table, "b.csv": table}, "'b.csv'"),
        "CSV files": ({"a.csv": table, "b.csv": table}, "a.csv"),
        "partitions": ({"day=1/a.parquet": table, "day=2/a.parquet": table}, "one folder"),
        "a partition": ({"a.parquet": table, "day=2/a.parquet": table}, "'day=2'"),
        "a column less": ({"a.parquet": table, "b.parquet": table.drop_columns(["weight"])}, "'weight' is missing"),
        "a column more": ({"a.parquet": table.drop_columns(["content"]), "b.parquet": table}, "'content' is new"),
        "another type": ({"a.parquet": table, "b.parquet": other}, "'weight' has another type"),
        "no rows": ({"a.parquet": table.slice(0, 0)}, "no rows"),
    }
    for name, (files, words) in cases.items():
        folder = tmp_path / name
        folder.mkdir()
        for file, content in files.items():
            (folder / file).parent.mkdir(exist_ok=True)
            writes = pacsv.write_csv if file.endswith(".csv") else pq.write_table
            writes(content, folder / file)
        for engine in (None, "files"):
            with pytest.raises(InputError, match=words):
                dn.publish(dn.load(folder, policy, engine=engine), ledger=dn.Ledger(":memory:"))
    (tmp_path / "partitions" / "_SUCCESS").touch()
    error = pickle.loads(pickle.dumps(refusal(tmp_path / "partitions", policy, "files")))
    assert (error.source, len(error.problems)) == (str(tmp_path / "partitions"), 1)


def test_row_groups_without_rows_and_damaged_ones(engine: str, rows_of: Maker, tmp_path: Path) -> None:
    if engine not in ("files", "spark-files"):
        pytest.skip("of Parquet files")
    policy, table = a_policy({"name": "partition", "k": 3}), some_parcels(random.Random(1), 60)
    rows_of(table)  # sets up the engine
    path, name = tmp_path / "rows.parquet", engine.removesuffix("-files")
    with pq.ParquetWriter(path, table.schema) as writer:
        for part in (table.slice(0, 0), table.slice(0, 20), table.slice(0, 0), table.slice(20), table.slice(0, 0)):
            writer.write_table(part)
    release = dn.publish(dn.load(path, policy, engine=name), ledger=dn.Ledger(":memory:")).release
    assert sum(release.classes["size"].to_pylist()) == 60
    content = bytearray(path.read_bytes())
    start = pq.read_metadata(path).row_group(3).column(3).data_page_offset
    content[start : start + 40] = bytes(40)
    path.write_bytes(content)
    assert refusal(path, policy, name).source.endswith("rows.parquet")


def test_an_engine_that_is_not_there_says_nothing_about_a_release(tmp_path: Path) -> None:
    data = dn.load(some_parcels(random.Random(1), 60), a_policy({"name": "partition", "k": 3}))
    dn.publish(data, ledger=dn.Ledger(":memory:"), out=tmp_path / "release")
    for engine in ("sparkk", "duckdb", *(["spark"] if importlib.util.find_spec("pyspark") is None else [])):
        with pytest.raises(ParameterError):
            dn.verify(tmp_path / "release", engine=engine)
    from tests.test_local_batch import TASK

    with pytest.raises(ParameterError, match="memory, files, duckdb, spark"):
        dn.collect(tmp_path, TASK, engine="sparkk")


def test_releases_are_verified_on_spark(spark: Any, tmp_path: Path) -> None:
    """The same checks as on one machine, whatever was released, and the same findings in one that was changed."""
    assert spark is not None
    lenient = {**PARCEL, "content": {"role": "drop"}}
    for number, given in enumerate((*ROW_MECHANISMS, {"name": "utility-clusters", "k": 3})):
        policy = a_policy(given, lenient if given["name"] == "noisy-values" else PARCEL)
        out, data = tmp_path / f"release{number}", dn.load(some_parcels(random.Random(number), 90), policy)
        dn.publish(data, ledger=dn.Ledger(":memory:"), out=out)
        assert dn.verify(out, engine="spark").checks == dn.verify(out).checks
        assert dn.verify(out, engine="spark").ok
        table = pq.read_table(out / "data.parquet")
        place = next(name for name in table.column_names if name.startswith("weight"))
        changed = [0.0 if at == 5 else value for at, value in enumerate(table[place].to_pylist())]
        changed = table.set_column(table.column_names.index(place), place, pa.array(changed))
        made = tmp_path / f"changed{number}"
        made.mkdir()
        dataclasses.replace(dn.Release.read(out), data=changed).write_files(made)
        found = [dn.verify(made, engine=engine).problems for engine in ("spark", None)]
        assert found[0] == found[1]


def test_a_task_that_fails_and_runs_again_changes_nothing(spark: Any, tmp_path: Path) -> None:
    pq.write_table(trips(90), tmp_path / "trips.parquet", row_group_size=20)
    policy = a_trip_policy(MECHANISMS[0])
    rows = engines.rows_of(tmp_path / "trips.parquet", reader.ReadOptions(), "spark")

    class Failing(CheckedFold):
        def dump(self, state: Any) -> bytes:
            from pyspark import TaskContext

            context = TaskContext.get()
            if context is not None and context.attemptNumber() == 0:
                raise OSError
            return super().dump(state)

    fold = fold_of(policy, rows)
    failing = Failing(**vars(fold))
    assert failing.dump(rows.fold(failing)) == fold.dump(rows.fold(fold))


@pytest.mark.long
def test_executors_that_die_change_nothing(spark: Any) -> None:
    """Executors killed, speculation on, a stage tried again: spent once, drawn once. In a process of its own."""
    assert spark is not None
    root = Path(__file__).parents[1]
    done = subprocess.run([sys.executable, "-m", "tests.engines_killed"], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
