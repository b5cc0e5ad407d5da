# SPDX-License-Identifier: Apache-2.0
"""The ledger: exact sums, refusals that leave nothing, and many processes at once."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.refusals import refusal

from dunnage.errors import BudgetError, LedgerError, ParameterError, Refusal, UserError
from dunnage.ledger import Ledger, Rehearsed, Statement
from dunnage.ledger import store as store_module
from dunnage.ledger.telling import told
from dunnage.model.guarantees import (
    ONE_PERIOD_PER_RECORD,
    UNBOUNDED,
    ApproximateDP,
    Basis,
    Budget,
    Guarantee,
    KAnonymity,
    Loss,
    Neighbours,
    Promise,
    PureDP,
    SpendPurpose,
    WithinCluster,
)

ADD, REPLACE = Neighbours.ADD_REMOVE, Neighbours.REPLACE_ONE
K_ANONYMOUS = Promise(guarantee=KAnonymity(k=5, protects="trip"), basis=Basis.PROVED, mechanism={})
CLOCK = {"who": "ann", "clock": lambda: datetime(2026, 11, 15, 10, 30, tzinfo=UTC)}


def promise(guarantee: Guarantee, basis: Basis = Basis.PROVED, holds: Guarantee | None = None) -> Promise:
    return Promise(guarantee=guarantee, basis=basis, holds=holds, mechanism={"name": "test"})


def dp(epsilon: object, neighbours: Neighbours = ADD, protects: str = "trip") -> Promise:
    return promise(PureDP(epsilon=epsilon, protects=protects, neighbours=neighbours))


def approximate(epsilon: object, delta: object) -> Promise:
    return promise(ApproximateDP(epsilon=epsilon, delta=delta, protects="trip", neighbours=ADD))


def loss(epsilon: object, delta: object = 0) -> Loss:
    return Loss(Fraction(str(epsilon)), Fraction(str(delta)))


def budget(epsilon: object, delta: object = 0, neighbours: Neighbours = ADD) -> Budget:
    return Budget(epsilon=epsilon, delta=delta, neighbours=neighbours)


def purpose(
    policy: object = "p", limit: Budget | None = None, *, period: str | None = None, allow: bool = False
) -> SpendPurpose:
    return SpendPurpose(dataset="rides", policy_digest=str(policy), period=period, budget=limit, allow_unbounded=allow)


@pytest.fixture
def book(address: str) -> Iterator[Ledger]:
    """An empty ledger on either store."""
    with Ledger(address, **CLOCK) as book:
        yield book


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.sqlite"


@pytest.fixture
def ledger(path: Path) -> Ledger:
    return Ledger(path, **CLOCK)


def refused(book: Ledger, stated: Promise, what: SpendPurpose, kind: type[Refusal] = BudgetError) -> Refusal:
    return refusal(kind, book.spend, stated, what)


def test_sums_are_exact(book, address):
    for number in range(10):
        book.spend(dp("0.1"), purpose(number, budget(1)))
    statement = book.statement("rides")
    assert (statement.total, statement.left) == (loss(1), loss(0))
    error = refused(book, dp("1e-30"), purpose(10))
    assert (error.spent, error.left) == ("epsilon 1", "epsilon 0")
    for number in range(3):
        what = SpendPurpose(dataset="thirds", policy_digest=str(number), budget=budget(1))
        book.spend(dp("1/3"), what)
    assert Ledger(address).statement("thirds").total == loss(1)
    assert book.history("thirds")[1].content["loss"] == {
        "add-remove": {"epsilon": "1/3", "delta": "0/1", "rho": "1/18"},
        "replace-one": {"epsilon": "2/3", "delta": "0/1", "rho": "2/9"},
    }, "in the database too"


def test_epsilon_and_delta_are_limited(book):
    book.spend(approximate("0.5", "1e-6"), purpose(1, budget(1, "1e-6")))
    error = refused(book, dp("0.75"), purpose(2))
    assert (error.asked, error.left) == ("epsilon 0.75", "epsilon 0.5")
    refused(book, approximate("0.1", "1e-9"), purpose(2))
    book.spend(dp("0.1"), purpose(3))
    assert book.statement("rides").total == loss("0.6", "1e-6")
    # A budget below what was spent leaves nothing.
    statement = book.set_budget("rides", budget(2, "1e-7"), note="less")
    assert (statement.overspent, statement.left) == (True, loss(0))
    refused(book, dp("1e-9"), purpose(4))


def test_neighbours_are_converted_where_that_is_proved(book):
    """Adding or removing costs twice under replacing; replacing has no bound under adding, nor has a cluster."""
    refused(book, dp("0.1", REPLACE), purpose(1, budget(1)))
    spend = book.spend(dp("0.4"), purpose(1, budget(1, neighbours=REPLACE)))
    assert (spend.loss_add_remove, spend.loss_replace_one) == (loss("2/5"), loss("4/5"))
    refused(book, dp("0.11"), purpose(2))
    book.spend(dp("0.1", REPLACE), purpose(3))
    assert book.statement("rides").total == loss("0.9")
    cluster = WithinCluster(epsilon="0.1", protects="trip", neighbours=REPLACE, clusters="c")
    refused(book, promise(cluster), purpose(4))


def test_true_loss_is_charged():
    for stated, charged in (
        (dp("0.1"), loss("0.1")),
        (promise(dp("0.1").guarantee, Basis.CLAIMED, dp("0.3").guarantee), loss("0.3")),
        (promise(dp("0.1").guarantee, Basis.CLAIMED), UNBOUNDED),
        (dp("0.1").voided("seeded"), UNBOUNDED),
    ):
        with Ledger(":memory:") as book:
            assert book.spend(stated, purpose(1, budget(1), allow=True)).loss(ADD) == charged
            assert book.statement("rides").total == charged


def test_losses_of_different_units_do_not_add_up(book):
    rider = dp(1, protects="rider")
    book.spend(dp(1), purpose("a", budget(5)))
    assert "trip" in str(refused(book, rider, purpose("b", budget(5))))
    assert book.statement("rides").total == loss(1)
    book.spend(rider, purpose("b", budget(5), allow=True))
    statement = book.statement("rides")
    assert statement.total == statement.total_per_period == UNBOUNDED


def test_k_anonymity_ends_the_total_and_under_a_budget_needs_consent(book):
    book.spend(dp("0.1"), purpose(1))
    book.spend(K_ANONYMOUS, purpose(2))
    statement = book.statement("rides")
    assert statement.total == statement.total_per_period == UNBOUNDED
    assert statement.to_dict()["total"] == "none"
    book.spend(dp("0.1"), purpose(3))
    refused(book, dp("0.1"), purpose(4, budget(1)))
    with Ledger(":memory:") as book:
        assert "allow_unbounded" in str(refused(book, K_ANONYMOUS, purpose(1, budget(1))))
        refused(book, dp(2), purpose(1, budget(1), allow=True))  # consent does not cover a bounded overspend
        book.spend(K_ANONYMOUS, purpose(1, budget(1), allow=True))
        refused(book, dp("0.1"), purpose(2))  # an earlier release had no bound
        book.spend(dp("0.1"), purpose(2, allow=True))
        assert book.statement("rides").left == loss(0)


def test_repeat_is_refused_unless_again(address):
    for period in (None, "2026-11-15"):
        ledger = Ledger(address)
        first = ledger.spend(dp("0.1"), purpose(1, period=period))
        error = str(refused(ledger, dp("0.2"), purpose(1, period=period), Refusal))
        assert all(part in error for part in (first.id, first.at, "--again", "again=True"))
        ledger.spend(dp("0.1"), purpose(1, period=f"{period}-other"))
        ledger.spend(dp("0.1"), purpose(2, period=period))
        Ledger(address, again=True).spend(dp("0.1"), purpose(1, period=period))
    assert len(ledger.statement("rides").spends) == 8


def test_first_budget_is_fixed(book):
    book.spend(dp("0.7"), purpose(1))
    refused(book, dp("0.7"), purpose(2, budget(1)))
    assert book.statement("rides").budget is None
    book.spend(dp("0.2"), purpose(2, budget(1)))  # it can come after spends, and counts them
    error = str(refused(book, dp("0.1"), purpose(3, budget(2)), Refusal))
    assert all(part in error for part in ("epsilon 1 ", "epsilon 2 ", "dunnage budget set --note"))
    refused(book, dp("0.1"), purpose(3, budget(1, neighbours=REPLACE)), Refusal)
    refused(book, dp("0.2"), purpose(3))
    book.spend(dp(5), SpendPurpose(dataset="parcels", policy_digest="1"))  # another dataset has no part in it
    assert book.datasets() == ["parcels", "rides"]
    assert book.statement("rides").total == loss("0.9")


def test_set_budget_keeps_history_and_needs_a_note(book, path):
    for note in ("", " \n"):
        refusal(ParameterError, book.set_budget, "rides", budget(2), note=note)
    book.spend(dp(1), purpose(1, budget(1)))
    book.set_budget("rides", budget(4, neighbours=REPLACE), note="board, 3 May")
    book.spend(dp(1), purpose(2, budget(4, neighbours=REPLACE)))
    statement = book.statement("rides")
    assert len(statement.budgets) == 2
    assert statement.budgets[1].note == "board, 3 May"
    assert statement.total == loss(4)
    for dataset in ("", "  "):
        refusal(ParameterError, Ledger(path).spend, dp(1), SpendPurpose(dataset=dataset, policy_digest="1"))


def test_concentrated_budgets_last_longer(book, address):
    book.spend(dp("0.1"), purpose(0, period="2026-W01"))
    limit = Budget(epsilon=4, delta="1e-6", neighbours=ADD, accounting="concentrated")
    book.set_budget("rides", limit, note="a year of weeks")
    more = limit.num_more([loss("0.1")])
    assert more > 4 / 0.1  # more than the sum allows
    assert f"{more} more weeks" in book.statement("rides").left_text()
    refused(book, approximate("0.1", "1e-9"), purpose("d"))
    refused(book, dp("0.1", protects="rider"), purpose("u"))
    largest = book.statement("rides").left
    book.spend(dp(largest.epsilon), purpose(1, limit, period="2026-W02"))
    refused(book, dp("0.1"), purpose("last"))
    statement = Ledger(address).statement("rides")
    assert statement.budget == limit
    assert statement.total == largest + loss("0.1")
    assert statement.counted.within(limit.limit)
    assert "0 more weeks" in statement.summary()
    shown = statement.to_dict()
    assert shown["budget"]["accounting"] == "concentrated"
    assert shown["concentrated"]["delta"] == 1e-6
    book.set_budget("rides", budget("0.5"), note="back to sums")
    assert Ledger(address).statement("rides").overspent


def test_totals_of_all_and_of_the_largest_period(book):
    book.spend(dp("0.1"), purpose(1, budget(1), period="a"))
    book.spend(dp("0.2"), purpose(2, period="a"))
    book.spend(dp("0.25"), purpose(1, period="b"))
    book.spend(dp("0.05"), purpose(1))
    statement = book.statement("rides")
    assert (statement.total, statement.left) == (loss("0.6"), loss("0.4"))
    # The spend without a period counts in each: 0.3 + 0.05 is more than 0.25 + 0.05.
    assert statement.total_per_period == loss("0.35")
    for part in ("epsilon 0.6", "epsilon 0.35", ONE_PERIOD_PER_RECORD.name, "epsilon 0.4"):
        assert part in statement.summary()
    with Ledger(":memory:") as book:  # the largest is taken per part
        book.spend(approximate(1, "1e-9"), purpose(1, period="a"))
        book.spend(approximate("0.5", "1e-6"), purpose(1, period="b"))
        assert book.statement("rides").total_per_period == loss(1, "1e-6")


def test_without_a_budget_the_neighbours_that_bound_all_are_named(book):
    assert book.statement("nothing") == Statement(dataset="nothing")
    assert book.summary()
    book.spend(dp("0.1"), purpose(1))
    assert book.statement("rides").neighbours is ADD
    book.spend(dp("0.1", REPLACE), purpose(2))
    statement = book.statement("rides")
    assert (statement.neighbours, statement.total) == (REPLACE, loss("0.3"))


def test_words_of_others_stay_on_their_line(address):
    """A note with a line break looked like an entry that nobody had made."""
    ledger = Ledger(address, note="pilot\n     9  2026-11-15  bo approved it\x1b[2J", **CLOCK)
    ledger.spend(dp("0.5"), purpose("digest", budget(1)))
    for text in (ledger.summary(), told(ledger, "rides").text()):
        assert r"pilot\n     9" in text
        assert r"\x1b[2J" in text
        assert "\x1b" not in text


def test_spend_is_kept_as_returned_and_serialises(address, monkeypatch):
    ledger = Ledger(address, note="pilot", **CLOCK)
    stated = dp("0.5")
    spend = ledger.spend(stated, purpose("digest", budget(1), period="2026-11-15"))
    assert Ledger(address).statement("rides").spends == (spend,)
    shown = json.loads(json.dumps(ledger.to_dict()))
    assert shown["format"] == 1
    assert list(shown["datasets"][0]["spends"][0].items()) == [
        ("id", spend.id),
        ("at", "2026-11-15T10:30:00Z"),
        ("who", "ann"),
        ("dataset", "rides"),
        ("period", "2026-11-15"),
        ("policy_digest", "digest"),
        ("promise_digest", stated.digest()),
        ("guarantee", {"model": "dp", "protects": "trip", "epsilon": 0.5, "neighbours": "add-remove"}),
        ("basis", "proved"),
        ("loss", {"add-remove": {"epsilon": 0.5, "delta": 0}, "replace-one": {"epsilon": 1, "delta": 0}}),
        ("note", "pilot"),
    ]
    assert len(bytes.fromhex(spend.id)) == 16
    assert spend.id in ledger.summary()
    if address.startswith("postgresql"):
        assert Ledger(address).spend(dp("0.1"), purpose(1)).who == "postgres", "who is connected"
        return
    monkeypatch.setattr("getpass.getuser", lambda: "bob\udce9")
    assert Ledger(address).spend(dp("0.1"), purpose(1)).who == "bob?"

    def nobody() -> str:
        raise KeyError

    if address.startswith("postgresql"):
        assert Ledger(address).spend(dp("0.1"), purpose(1)).who == "postgres", "who is connected"
        return
    monkeypatch.setattr("getpass.getuser", nobody)
    assert Ledger(address).spend(dp("0.1"), purpose(2)).who == "unknown"


def test_refused_spends_leave_the_rows_as_they_were(book, address):
    refused(book, dp(2), purpose(1, budget(1)))
    assert book.datasets() == []  # not even a budget
    book.spend(dp(1), purpose(1, budget(1)))
    path = Path(address)
    before, content = book.history("rides"), path.read_bytes() if path.exists() else b""
    for what in (purpose(1), purpose(2), purpose(3, budget(9))):
        refused(book, dp(1), what, Refusal)
    refused(book, K_ANONYMOUS, purpose(4))
    assert book.history("rides") == before
    assert not content or path.read_bytes() == content


def test_rows_cannot_be_changed(path, ledger):
    ledger.spend(dp(1), purpose(1, budget(1)))
    columns = "'rides', {0}, 'spend', '{1}', '', '', '{{}}', '{{}}', {2}, ''"
    for change in (
        "UPDATE entries SET who = 'x'",
        "DELETE FROM entries",
        "INSERT OR REPLACE INTO entries SELECT * FROM entries",
        f"INSERT OR REPLACE INTO entries VALUES ({columns.format(2, 'x', 'hash')})",
        f"INSERT INTO entries VALUES ({columns.format(4, 'x', 0)})",
        f"INSERT INTO entries VALUES ({columns.format(3, 'x', 0)})",
        "UPDATE ledger SET id = 'x'",
        "DELETE FROM ledger",
        "INSERT INTO ledger VALUES ('x', 'y')",
    ):
        with (
            closing(sqlite3.connect(path)) as database,
            pytest.raises(sqlite3.IntegrityError, match=r"append-only|keeps"),
        ):
            database.execute(change.replace("hash", "''"))
    assert len(ledger.statement("rides").spends) == 1


def test_file_is_private_and_alone(path, ledger, monkeypatch):
    """It is private before the database is written, whatever the mask, and nothing else is left there."""
    seen, connect = [], sqlite3.connect

    def watched(*arguments: Any, **options: Any) -> sqlite3.Connection:
        for draft in path.parent.glob(".dunnage-*"):
            seen.append((stat.S_IMODE(draft.stat().st_mode), draft.stat().st_size, path.exists()))
        return connect(*arguments, **options)

    monkeypatch.setattr(sqlite3, "connect", watched)
    assert ledger.statement("rides").total == loss(0)
    assert os.listdir(path.parent) == []  # looking creates nothing
    old = os.umask(0)
    try:
        ledger.spend(dp(1), purpose(1))
    finally:
        os.umask(old)
    assert seen == [(0o600, 0, False)]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(path.parent) == [path.name]
    path.unlink()  # a ledger that vanished is not begun again
    refusal(LedgerError, ledger.spend, dp(1), purpose(2))
    assert not path.exists()


def test_losing_the_race_to_create_keeps_the_other_ledger(path, ledger, monkeypatch):
    link = os.link

    def late(draft: Path, final: Path) -> None:
        monkeypatch.setattr(os, "link", link)
        Ledger(path).spend(dp("0.6"), purpose(1, budget(1)))
        link(draft, final)

    monkeypatch.setattr(os, "link", late)
    refused(ledger, dp("0.6"), purpose(2))
    assert os.listdir(path.parent) == [path.name]


def test_addresses(tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    others = ["mysql://host/db", "sqlite://x", "file:x", "http://x", "sqlite:///x?mode=ro", "", "sqlite:///"]
    for url in [*others, "a\0b"]:
        assert "sqlite:///path" in str(refusal(LedgerError, Ledger, url))
    assert os.listdir(tmp_path / "empty") == []
    monkeypatch.chdir(tmp_path)
    Ledger(f"sqlite:///{tmp_path}/a b%#.sqlite").spend(dp(1), purpose(1))
    assert (tmp_path / "a b%#.sqlite").exists()
    relative = Ledger("sqlite:///b.sqlite")
    monkeypatch.chdir("/")
    relative.spend(dp(1), purpose(1))
    assert Ledger.open_existing(str(tmp_path / "b.sqlite")).datasets() == ["rides"]


def foreign_database(path: Path, *settings: str) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE other (x)")
        for setting in settings:
            database.execute(f"PRAGMA {setting}")
        database.commit()


def test_foreign_files_are_refused_untouched(tmp_path, path, ledger):
    ledger.spend(dp(1), purpose(1))
    with closing(sqlite3.connect(path)) as database:
        ((ours,),) = database.execute("PRAGMA application_id").fetchall()
    newer = f"application_id = {ours}", "user_version = 3"
    contents = [b"", b"hello", b"weight,destination\n" * 1000, b"SQLite format 3\0"]
    databases = [(), ("user_version = 1",), ("journal_mode = WAL",), newer]
    for number, kind in enumerate([*contents, *databases]):
        folder = tmp_path / str(number)
        folder.mkdir()
        foreign = folder / "ledger.sqlite"
        foreign.write_bytes(kind) if isinstance(kind, bytes) else foreign_database(foreign, *kind)
        content, status = foreign.read_bytes(), foreign.stat()
        for opening in (Ledger, Ledger.open_existing):
            message = str(refusal(LedgerError, opening, foreign)).replace(str(foreign), "")
            assert kind is not newer or "3" in message
        assert foreign.read_bytes() == content
        assert (foreign.stat().st_mode, foreign.stat().st_mtime_ns) == (status.st_mode, status.st_mtime_ns)
        assert os.listdir(folder) == [foreign.name]


def test_places_where_no_ledger_can_be(tmp_path, path, ledger):
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path, tmp_path / "pipe", "/dev/null", tmp_path / "missing" / "ledger.sqlite"):
        refusal(LedgerError, Ledger, place)
    assert not (tmp_path / "missing").exists()
    path.write_bytes(b"a,b\n")  # appears after the ledger was opened
    refusal(LedgerError, ledger.spend, dp(1), purpose(1))
    assert path.read_bytes() == b"a,b\n"


def test_open_existing_reads_only(address, path):
    refusal(LedgerError, Ledger.open_existing, ":memory:")
    refusal(LedgerError, Ledger.open_existing, address)
    assert not path.exists()
    Ledger(address).spend(dp(1), purpose(1))
    reader, content = Ledger.open_existing(address), path.read_bytes() if path.exists() else b""
    assert reader.statement("rides").total == loss(1)
    refusal(LedgerError, reader.spend, dp(1), purpose(2))
    refusal(LedgerError, reader.set_budget, "rides", budget(1), note="x")
    assert not content or path.read_bytes() == content


def test_damaged_rows_are_reported(path, ledger):
    ledger.spend(dp(1), purpose(1, budget(9)))
    for number, column in ((2, "body"), (1, "totals")):
        with closing(sqlite3.connect(path)) as database:
            database.execute("DROP TRIGGER IF EXISTS entries_keep")
            database.execute(f"UPDATE entries SET {column} = replace({column}, '1/1', '1/0') WHERE number = {number}")
            database.commit()
        refusal(LedgerError, ledger.statement, "rides")
        refusal(LedgerError, ledger.spend, dp(1), purpose(2))


def test_a_locked_ledger_is_waited_for_and_then_given_up(path, ledger, monkeypatch):
    ledger.spend(dp(1), purpose(1))
    monkeypatch.setattr(store_module, "BUSY_SECONDS", 0.05)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        for attempt in (ledger.spend, ledger.rehearsal().spend):
            assert "0.05" in str(refusal(LedgerError, attempt, dp(1), purpose(2)))
    ledger.spend(dp(1), purpose(2))


def test_opening_a_second_time_keeps_the_lock_of_the_first(path, ledger):
    """Closing a file drops all POSIX locks a process holds on it, unless only SQLite touches the file."""
    ledger.spend(dp(1), purpose(1))
    locked = []

    def amid() -> datetime:
        """Look, while the budget is written, whether another process could write."""
        Ledger(path).statement("rides")
        script = (
            "import sqlite3, sys\nd = sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None)\n"
            "try:\n    d.execute('BEGIN IMMEDIATE')\nexcept sqlite3.OperationalError:\n    sys.exit(7)"
        )
        locked.append(subprocess.run([sys.executable, "-c", script, str(path)], check=False).returncode)
        return datetime(2026, 11, 15, tzinfo=UTC)

    Ledger(path, clock=amid).set_budget("rides", budget(9), note="x")
    assert locked == [7]


def test_threads_share_a_ledger(address):
    for place in (address, ":memory:"):
        with Ledger(place) as ledger:
            ledger.set_budget("rides", budget(1), note="test")
            errors: list[BudgetError] = []

            def work(number: int, ledger: Ledger = ledger, errors: list[BudgetError] = errors) -> None:
                for turn in range(3):
                    try:
                        ledger.spend(dp("0.2"), purpose((number, turn)))
                    except BudgetError as error:
                        errors.append(error)

            threads = [threading.Thread(target=work, args=[number]) for number in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert (len(errors), ledger.statement("rides").total) == (7, loss(1))
    assert repr(ledger) == "Ledger(':memory:')"
    refusal(LedgerError, ledger.datasets)


def rehearsed(ledger: Ledger, stated: Promise, what: SpendPurpose) -> Rehearsed:
    return refusal(Rehearsed, ledger.rehearsal().spend, stated, what)


def test_rehearsal_changes_nothing_and_says_what_would_be(book, address, path):
    assert rehearsed(book, dp("0.25"), purpose(1, budget(1))).statement.left == loss("3/4")
    assert os.listdir(path.parent) == []
    refusal(LedgerError, Ledger.open_existing, address)
    book.spend(dp("0.5"), purpose(1, budget(2, neighbours=REPLACE)))
    content = book.history("rides")
    stop = rehearsed(book, dp("0.25"), purpose(2))
    assert (stop.promise, stop.loss, stop.statement.left) == (dp("0.25"), loss("1/2"), loss("1/2"))
    assert not isinstance(stop, UserError)
    assert book.history("rides") == content


def test_rehearsal_is_allowed_and_says_what_the_spend_would_refuse(book, address):
    book.spend(dp("0.5"), purpose(1, budget(1)))
    for stated, what, error in (
        (dp("0.1"), purpose(1), Refusal),
        (dp("0.1"), purpose(2, budget(2)), Refusal),
        (dp("0.6"), purpose(2), BudgetError),
        (K_ANONYMOUS, purpose(2), BudgetError),
    ):
        assert rehearsed(book, stated, what).refusals == (str(refusal(error, book.spend, stated, what)),)
    assert len(rehearsed(book, dp("0.6"), purpose(1)).refusals) == 2
    assert rehearsed(Ledger(address, again=True), dp("0.1"), purpose(1)).refusals == ()
    rehearsed(Ledger.open_existing(address), dp("0.1"), purpose(2))
    with Ledger(":memory:") as memory:
        rehearsed(memory, dp("0.25"), purpose(1, budget(1)))
        assert memory.datasets() == []


SPENDER = """
import sys
from dunnage.errors import BudgetError
from dunnage.model.guarantees import Basis, Budget, Neighbours, Promise, PureDP, SpendPurpose
from dunnage.ledger import Ledger

path, name, epsilon, limit, turns = sys.argv[1:]
guarantee = PureDP(epsilon=epsilon, protects="trip", neighbours=Neighbours.ADD_REMOVE)
stated = Promise(guarantee=guarantee, basis=Basis.PROVED, mechanism={})
limit = Budget(epsilon=limit, neighbours=Neighbours.ADD_REMOVE)
for turn in range(int(turns)):
    purpose = SpendPurpose(dataset="rides", policy_digest=f"{name}.{turn}", budget=limit)
    try:
        print(Ledger(path).spend(stated, purpose).id, flush=True)
    except BudgetError:
        pass
"""


def spender(path: str, name: object, epsilon: str, limit: str, turns: int) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-c", SPENDER, str(path), str(name), epsilon, limit, str(turns)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)


def test_many_processes_never_overspend(address, path):
    processes = [spender(address, number, "0.2", "1", 3) for number in range(4)]
    outputs = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * 4
    printed = sorted(line for output in outputs for line in output.split())
    statement = Ledger.open_existing(address).statement("rides")
    assert printed == sorted(spend.id for spend in statement.spends)
    assert (len(printed), len(statement.budgets), statement.total) == (5, 1, loss(1))
    assert not path.exists() or os.listdir(path.parent) == [path.name]


@pytest.mark.long
def test_64_processes_never_overspend(address):
    """All try 10,000 spends together (DUNNAGE_SPENDS changes that), and half of them fit."""
    num, turns = 64, int(os.environ.get("DUNNAGE_SPENDS", "10000")) // 64
    fitting = num * turns // 2
    limit = str(Fraction(fitting, 1000))
    processes = [spender(address, number, "0.001", limit, turns) for number in range(num)]
    outputs = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * num
    statement = Ledger.open_existing(address).statement("rides")
    assert sorted(line for output in outputs for line in output.split()) == sorted(one.id for one in statement.spends)
    assert (len(statement.spends), statement.left) == (fitting, loss(0))


def test_killed_processes_leave_a_readable_ledger(address):
    rng = random.Random(5)
    printed: set[str] = set()
    for number in range(4):
        with spender(address, number, "0.001", "1000", 10**6) as process:
            assert process.stdout is not None
            printed.add(process.stdout.readline().strip())
            time.sleep(rng.uniform(0, 0.03))
            process.send_signal(signal.SIGKILL)
            # A line cut by the kill is shorter than an id.
            printed.update(line for line in process.stdout.read().split() if len(line) == 32)
        statement = Ledger.open_existing(address).statement("rides")
        assert printed <= {spend.id for spend in statement.spends}
        assert statement.total == Loss(Fraction(len(statement.spends), 1000))
    if Path(address).exists():
        with closing(sqlite3.connect(address)) as database:
            assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    Ledger(address).spend(dp("0.001"), purpose("last"))


def test_process_killed_amid_a_write_is_rolled_back(path, ledger):
    """A journal that a crash left behind is undone by the next reader, also one that only reads."""
    ledger.spend(dp("0.5"), purpose(1, budget(1)))
    script = (
        "import os, signal, sqlite3, sys\nd = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "d.execute('PRAGMA cache_size = 1')\nd.execute('PRAGMA cache_spill = 1')\nd.execute('BEGIN IMMEDIATE')\n"
        "for n in range(5000):\n"
        "    sql = \"INSERT INTO entries VALUES (?, 1, 'budget', ?, '', '', '{}', '{}', '', ?)\"\n"
        "    d.execute(sql, [f'd{n}', f'{n}', 'x' * 300])\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    size = path.stat().st_size
    subprocess.run([sys.executable, "-c", script, str(path)], check=False)
    assert path.stat().st_size > size
    assert len(os.listdir(path.parent)) == 2
    statement = Ledger.open_existing(path).statement("rides")
    assert (len(statement.budgets), statement.left) == (1, loss("1/2"))
    assert os.listdir(path.parent) == [path.name]


amounts = st.fractions(min_value=Fraction(1, 1000), max_value=2, max_denominator=1000)
asks = st.tuples(amounts, st.sampled_from([ADD, REPLACE]), st.sampled_from([None, "a", "b"]))


@given(limit=amounts, kind=st.sampled_from([ADD, REPLACE]), sequence=st.lists(asks, max_size=8))
@settings(max_examples=60, deadline=None)
def test_accepted_spends_never_exceed_the_budget(limit, kind, sequence):
    accepted: dict[str | None, Fraction] = {}
    spent = Fraction(0)
    with Ledger(":memory:") as ledger:
        ledger.set_budget("rides", budget(limit, neighbours=kind), note="test")
        for number, (epsilon, neighbours, period) in enumerate(sequence):
            cost = None if (neighbours, kind) == (REPLACE, ADD) else epsilon * (1 if neighbours == kind else 2)
            fits = cost is not None and spent + cost <= limit
            try:
                ledger.spend(dp(epsilon, neighbours), purpose(number, period=period))
            except BudgetError:
                assert not fits
            else:
                assert fits
                spent += cost
                accepted[period] = accepted.get(period, Fraction(0)) + cost
        statement = ledger.statement("rides")
        assert ledger.composed("rides") == statement.composed()
    every = accepted.pop(None, Fraction(0))
    assert statement.total == Loss(spent)
    assert statement.total.within(statement.budget.limit)
    assert statement.left == Loss(limit - spent)
    assert statement.total_per_period == Loss(every + max(accepted.values(), default=Fraction(0)))
