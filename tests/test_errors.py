# SPDX-License-Identifier: Apache-2.0
"""How commands end when something is wrong: bad files are refused with 2, bugs end with 70, and 1 is a failed check."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from tests.commands import run
from tests.fuzzing import OLD, a_place, restated
from tests.settle_help import Published

import dunnage as dn
from dunnage.errors import InternalError, ParameterError
from dunnage.exact import decimal, exact, whole
from dunnage.ledger import store

COMMAND = [sys.executable, "-m", "dunnage"]
LEDGER = "dunnage-ledger.sqlite"
NUM_FUZZED, NUM_FUZZED_LONG = 450, 100_000
ODD = ("\x1c5", "5\x1c", "\u0663", "1_0", "\u00b2", "\u20035", "0x5", "5.", "+5", "-5", "", " ", "9" * 19)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Genuine files of every kind."""
    shutil.copytree(OLD, tmp_path / "old")
    monkeypatch.chdir(tmp_path / "old")
    return tmp_path / "old"


# Errors that nobody expected


class Panic(BaseException):
    """What a library in Rust raises."""


@pytest.mark.parametrize("kind", [KeyError, AssertionError, RecursionError, Panic, InternalError])
def test_a_bug_has_its_own_exit_code_and_tells_nothing_private(
    kind: type[BaseException], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*given: object, **options: object) -> None:
        raise kind("weight 17.3" if kind is not InternalError else "a class is too small")

    monkeypatch.setattr("dunnage.showing.shown", broken)
    done = run("show", "partition", code=70)
    assert done.err.count("\n") == 1
    assert "17.3" not in done.err
    assert ("a class is too small" if kind is InternalError else kind.__name__) in done.err
    assert "dunnage/cli/__init__.py, line " in done.err  # the last place of ours
    told = json.loads(run("show", "partition", "--json", code=70).out)
    assert told["error"]["kind"] == "InternalError"
    monkeypatch.setenv("DUNNAGE_TRACEBACK", "1")
    assert "Traceback" in run("show", "partition", code=70).err  # on request


def test_an_interrupt_is_130(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*given: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dunnage.showing.shown", interrupted)
    run("show", "partition", code=130)


def test_nobody_reads_the_output(place: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    for command in (["show", "partition"], ["--help"]):
        done = subprocess.run([*COMMAND, *command], stdout=write, stderr=subprocess.PIPE, text=True, check=False)
        assert (done.returncode, done.stderr) == (141, "")
    os.close(write)
    for command in (["show", "partition"], ["show", "nothing", "--json"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run([*COMMAND, *command], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert (done.returncode, done.stderr[:7], "Traceback" in done.stderr) == (2, "error: ", False)


# Damaged ledgers


def _edit(*statements: str) -> Callable[[Path], None]:
    def edit(path: Path) -> None:
        with closing(sqlite3.connect(path)) as base:
            for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
                base.execute(f"DROP TRIGGER {name}")
            for statement in statements:
                base.execute(statement)
            base.commit()

    return edit


DAMAGE: dict[str, Callable[[Path], object]] = {
    "cut off": lambda path: os.truncate(path, 5000),
    "cut off in the header": lambda path: os.truncate(path, 50),
    "empty": lambda path: os.truncate(path, 0),
    "no database": lambda path: path.write_text("a ledger\n" * 100),
    "no table": _edit("DROP TABLE spends"),
    "no column": _edit("ALTER TABLE spends DROP COLUMN note"),
    "blob as a name": _edit("UPDATE spends SET dataset = x'ff'"),
    "no number": _edit("UPDATE spends SET epsilon_add_remove = 'much'"),
    "endless number": _edit("UPDATE spends SET epsilon_add_remove = '1/0'"),
    "guarantee is a list": _edit("UPDATE spends SET guarantee = '[]'"),
    "guarantee is no JSON": _edit("UPDATE spends SET guarantee = '{'"),
    "guarantee says nothing": _edit("UPDATE spends SET guarantee = '{}'"),
    "blob as a note": _edit("UPDATE spends SET note = x'ff'"),
    "no neighbours": _edit("UPDATE budgets SET neighbours = 'next door'"),
    "another program's": _edit("PRAGMA application_id = 7"),
    "newer": _edit("PRAGMA user_version = 99"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_ledgers(damage: str, place: Path) -> None:
    DAMAGE[damage](place / LEDGER)
    before = (place / LEDGER).read_bytes()
    run(f"budget show {LEDGER}").refused("ledger")
    run(f"show {LEDGER}").refused()
    name = "other" if damage == "no neighbours" else "parcels"
    if damage != "no column":  # a spend writes none of the old rows
        run("budget", "show", LEDGER, "--dataset", name).refused("ledger")
    assert (place / LEDGER).read_bytes() == before


def test_a_locked_ledger(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "BUSY_SECONDS", 0.05)
    with closing(sqlite3.connect(LEDGER, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        run(f"budget show {LEDGER}").refused("locked")


# Edited certificates


@pytest.mark.parametrize(
    "line",
    [
        "pack partition --capacity 300kg -o out",
        "pack noisy-values --capacity 300kg -o out",
        "size city-counts --city city --dates 5 -o out",
        "apply plan-standard parcels.csv --policy partition.toml --release partition -o out",
        "audit partition parcels.csv --policy partition.toml -o out",
    ],
)
def test_edited_releases_are_refused_before_anyone_plans_on_them(line: str, place: Path) -> None:
    name = next(word for word in line.split() if (place / word / "certificate.json").exists())
    genuine = json.loads((place / name / "certificate.json").read_bytes())
    for part in ("schema", "measures", "mechanism", "guarantee"):
        for value in ({}, [], {"x": 1}, "x"):
            restated(place / name, {**genuine, part: value})
            run(line).refused()
    for table in sorted((place / name).glob("*.parquet")):
        restated(place / name, {**genuine, "files": {f: d for f, d in genuine["files"].items() if f != table.name}})
        run(line).refused()


# Numbers


def test_numbers_are_read_as_everybody_reads_them() -> None:
    assert [whole(text) for text in ("0", " 7\t", "999999999999999999")] == [0, 7, 10**18 - 1]
    assert [decimal(text) for text in ("-1.5", " .5", "2.", "1e3", "1e400")] == [-1.5, 0.5, 2, 1000, float("inf")]
    assert {whole(text) for text in ODD} == {None}
    for text in ("\x1c5", "\u0663", "1_0", "nan", "inf", "infinity", "\u00b2", "1/2", "", "5\u00a0"):
        assert decimal(text) != decimal(text)
        if text != "1/2":
            with pytest.raises(ParameterError):
                exact(text)
    for text in ("1_0/3", "\u0663/4", "1/\x1c3", "1/0"):
        with pytest.raises(ParameterError):
            exact(text)


@pytest.mark.parametrize("odd", [text for text in ODD if "\n" not in text])
def test_odd_numbers_in_plans(odd: str, place: Path) -> None:
    """They were taken: Python reads digits of all scripts, and treats control characters as blanks."""
    truth = "parcels.csv --policy partition.toml --release partition -o out"

    def changed(name: str, row: int, column: int) -> None:
        lines = [line.split(",") for line in (OLD / name).read_text().splitlines()]
        lines[row][column] = odd
        (place / name).write_text("\n".join(map(",".join, lines)) + "\n", encoding="utf-8")

    for name, row, column in (
        ("plan-standard/assignment.csv", 6, 0),
        ("plan-standard/assignment.csv", 6, 1),
        ("plan-standard/bins.csv", 1, 0),
        ("plan-sealed/slots.csv", 2, 2),
    ):
        changed(name, row, column)
        run(f"apply {name.split('/')[0]} {truth}").refused(name)
        shutil.copy(OLD / name, place / name)
    changed("fleet/fleet.csv", 1, 1)
    run("show fleet").refused("fleet.csv")
    for column in (1, 2, 3):
        changed("trucks.csv", 1, column)
        if odd.strip() or column == 3:  # a blank count or cost has a meaning
            if column > 1 and odd in ("5.", "+5"):  # such a cost is a number
                continue
            if column > 1 and odd == "9" * 19:
                continue
            run("pack partition --trucks trucks.csv -o out").refused("trucks.csv")
    if odd.strip(" ") and odd not in ("5.", "+5", "9" * 19):
        run("pack", "partition", "--capacity", odd, "-o", "out").refused("capacity")
    run("size", "city-counts", "--city", "city", "--dates", odd, "-o", "out").refused("--dates")


# Everything else


def test_fuzzed_files_and_arguments(thorough: bool) -> None:
    """Genuine files with damage, and odd arguments: a message and exit 2, or a failed check; never a traceback."""
    wrong = []
    with a_place() as fuzzed:
        for number in range(NUM_FUZZED_LONG if thorough else NUM_FUZZED):
            end = fuzzed.play(number)
            if end.wrong:
                wrong.append(f"{number}: {end.wrong}: {' '.join(end.words)[:200]!r}\n{end.err[:300]}")
    assert not wrong, "\n".join(wrong[:20])


def test_a_folder_whose_name_looks_like_an_address(place: Path) -> None:
    """Arrow took a folder "file:r" or "s3:r" for a place on the net."""
    shutil.copytree("partition", "s3:r")
    shutil.copy("partition.key.parquet", "s3:r.key.parquet")
    assert run("verify s3:r").code == 0
    assert dn.Release.read("s3:r").data.num_rows == 32
    dn.Key.read("s3:r.key.parquet")


@pytest.mark.parametrize(
    "line", ["packages -o out.csv --size", "packages -o out.csv --destinations", "rides -o out.csv --size"]
)
def test_samples_have_a_largest_size(line: str, place: Path) -> None:
    """They asked for all memory there is, and ended as a bug."""
    for number in ("10000000000", "9" * 30):
        run(f"generate {line} {number}").refused("from ")
    run("pack partition --capacity 300kg --extra-trucks 10000000000 -o out").refused("extra_trucks")


def test_a_column_whose_name_is_no_text(place: Path) -> None:
    """Arrow fails on it with an error of Python's own."""
    path = place / "partition" / "data.parquet"
    path.write_bytes(path.read_bytes().replace(b"weight_lower", b"weight_\xffower"))
    restated(place / "partition")
    for line in ("pack partition --capacity 300kg -o out", "audit partition --external -o out", "show partition"):
        run(line).refused("partition")
    assert run("verify partition").code == 1


def test_swapped_arguments_and_frames_are_refused_in_words() -> None:
    """Most ended in an AttributeError; an audit with a frame left it out, and looked like one that had compared."""
    shop = Published([10, 20, 60, 80])
    data, release, key = shop.data, shop.release, shop.key
    plan, frame = dn.pack(release, capacity=100, seconds=1), pa.table({"weight": [1]})
    wrong: list[Callable[[], object]] = [
        lambda: dn.publish(frame),
        lambda: dn.publish(release),
        lambda: dn.Partition(k=2).release(release, ledger=dn.Ledger(":memory:"), noise=dn.Noise()),
        lambda: dn.Partition(k=2).release(data, ledger="ledger.sqlite", noise=dn.Noise()),
        lambda: dn.Partition(k=2).release(data, ledger=dn.Ledger(":memory:"), noise=3),
        lambda: dn.pack(data, capacity=100),
        lambda: dn.pack(release, capacity=100, seconds="5"),
        lambda: dn.pack(release, capacity=100, quantity=["weight"]),
        lambda: dn.pack(release, trucks="trucks.csv"),
        lambda: dn.pack(release, trucks=dn.Truck(name="van", capacity={"weight": 100})),
        lambda: dn.pack(release, trucks=["van"]),
        lambda: dn.Truck(name="van", capacity=100),
        lambda: dn.apply(data, plan, release, key),
        lambda: dn.apply(plan, data, key, release),
        lambda: dn.apply(plan, release, data, key),
        lambda: dn.apply(plan, frame, release, key),
        lambda: dn.apply(plan, data, release, None),
        lambda: dn.audit(data, release),
        lambda: dn.audit(release, frame),
        lambda: dn.audit(release, key),
        lambda: dn.audit(release, data, key="key"),
        lambda: dn.audit(release, data, plan=release),
        lambda: dn.verify(release),
        lambda: dn.task_of(data.policy),
        lambda: dn.collect(["reports.jsonl"], frame),
        lambda: dn.perturb(frame, None, "truck.own", "reports.jsonl"),
        lambda: dn.Partition(k="5"),
    ]
    for call in wrong:
        with pytest.raises(ParameterError):
            call()


def test_no_error_shows_the_rows_of_a_frame_that_took_the_place_of_another_argument() -> None:
    """The policy "Got parcel weight 0 p0 4.5": whoever swapped two arguments had rows in the log."""
    shop = Published([10, 20, 60, 80])
    for frame in (pd.DataFrame({"weight": [8675309.0]}), pl.DataFrame({"weight": [8675309.0]})):
        wrong: list[Callable[[], object]] = [
            lambda: dn.load(shop.data.policy, policy=frame),  # noqa: B023
            lambda: dn.promise(frame),  # noqa: B023
            lambda: dn.pack(shop.release, capacity=100, seconds=frame),  # noqa: B023
            lambda: dn.pack(shop.release, capacity=100, by=frame),  # noqa: B023
            lambda: dn.pack(shop.release, capacity=100, spread=frame),  # noqa: B023
            lambda: dn.Partition(k=frame),  # noqa: B023
            lambda: dn.Stochastic(risk=frame),  # noqa: B023
        ]
        for call in wrong:
            with pytest.raises(ParameterError) as caught:
                call()
            assert "8675309" not in str(caught.value)
            assert "DataFrame" in str(caught.value)


def test_numbers_of_numpy_and_capacities_by_name_are_taken() -> None:
    release = Published([10, 20, 60, 80]).release
    plans = [
        dn.pack(release, capacity=given, seconds=1)  # type: ignore[arg-type]
        for given in (100, np.int64(100), np.float32(100), {"weight": 100}, "100kg")
    ]
    assert {plan.objective for plan in plans} == {plans[0].objective}
    assert dn.Partition(k=np.int64(5)) == dn.Partition(k=5)
    with pytest.raises(ParameterError):
        dn.pack(release, capacity={"volume": 100})
