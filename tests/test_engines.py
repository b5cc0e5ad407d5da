# SPDX-License-Identifier: Apache-2.0
"""Engines: one set of test bodies for all places where rows live. States, releases and messages are the same."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import pickle
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from tests.builders import RIDERS, STOP, WEEKDAYS, Repeated, a_policy, a_trip_policy, town, trips
from tests.commands import fine

import dunnage as dn
from dunnage import engines
from dunnage.engines import trips as folding
from dunnage.engines.trips import TripFold
from dunnage.errors import InputError, ParameterError
from dunnage.folds import Rows
from dunnage.mechanisms.counts import true_counts
from dunnage.tables import reader

LEAVE_OUT = {"outside": "leave-out", "missing": "leave-out", "unreadable": "leave-out"}
MECHANISMS = (
    {"name": "noisy-counts", "epsilon": 1},
    {"name": "constrained-counts", "epsilon": 1},
    {"name": "hierarchical-counts", "epsilon": 1},
    {"name": "fitted-counts", "epsilon": 1},
)
MODES = ("memory", "files", "csv", "duckdb", "spark", "spark-files")
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
    monkeypatch.setattr(engines, "NUM_BATCH_ROWS", 7)
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
    return range(3 if engine.startswith("spark") else 20)


def folded(rows: Rows, policy: dn.Policy) -> bytes:
    fold = TripFold.of(policy, None, rows)
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
        policy = a_trip_policy(mechanism, {**time, **LEAVE_OUT}, attributes=lenient)
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


def test_how_rows_are_divided_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """States, sent and merged in any order, have the bytes of one pass; sums in tables and in lists as well."""
    policy = a_trip_policy(MECHANISMS[0], LEAVE_OUT, trip={"origin": "from", "destination": "to", "time": "at"})
    for number in range(12):
        draw = random.Random(number)
        table = damaged(trips(200), draw, draw.choice([0, 3]))
        whole = engines.MemoryRows(table)
        fold = pickle.loads(pickle.dumps(TripFold.of(policy, None, whole)))
        dumped = fold.dump(whole.fold(fold))
        assert fold.dump(fold.load(dumped)) == dumped
        if number == 6:
            monkeypatch.setattr(folding, "MAX_TABLE_CELLS", 0)
            monkeypatch.setattr(folding, "_MIN_PENDING", 5)
        batches = [engines.numbered(batch, rows) for batch, rows in whole.batches(table.column_names)]
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
    riders, rows = a_trip_policy(MECHANISMS[0], **RIDERS), a_policy({"name": "partition", "k": 3})
    plain = a_trip_policy(MECHANISMS[0])
    for data, policy, engine, word in (
        (path, riders, "files", "contribution"),
        (path, rows, "files", "trip"),
        (path, plain, "dask", "memory, files, duckdb, spark"),
        (trips(), plain, "files", "path"),
        (trips(), plain, "spark", "DataFrame"),
        (tmp_path / "trips.csv", plain, "spark", "not Parquet"),
        (tmp_path / "none.parquet", plain, "files", "does not exist"),
    ):
        with pytest.raises(dn.UserError, match=word):
            dn.load(data, policy, engine=engine)


def test_a_task_that_fails_and_runs_again_changes_nothing(spark: Any, tmp_path: Path) -> None:
    pq.write_table(trips(90), tmp_path / "trips.parquet", row_group_size=20)
    policy = a_trip_policy(MECHANISMS[0])
    rows = engines.rows_of(tmp_path / "trips.parquet", reader.ReadOptions(), "spark")

    class Failing(TripFold):
        def dump(self, state: Any) -> bytes:
            from pyspark import TaskContext

            context = TaskContext.get()
            if context is not None and context.attemptNumber() == 0:
                raise OSError
            return super().dump(state)

    fold = TripFold.of(policy, None, rows)
    failing = Failing(fold.policy, fold.period, fold.source, fold.listed, fold.columns, fold.problems)
    assert failing.dump(rows.fold(failing)) == fold.dump(rows.fold(fold))
