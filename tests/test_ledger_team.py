# SPDX-License-Identifier: Apache-2.0
"""A ledger for teams: history that moves, entries that cannot be altered unseen, rows known again, two people."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.commands import fine, run
from tests.refusals import refusal
from tests.test_ledger import budget, dp, purpose

import dunnage as dn
from dunnage.errors import BudgetError, LedgerError, ParameterError, Refusal
from dunnage.ledger import Ledger, Rehearsed, Rule
from dunnage.ledger.book import payload
from dunnage.ledger.entries import COLUMNS, Entry, Kind, fraction_text, next_entry
from dunnage.ledger.store import STATE
from dunnage.ledger.telling import check_ledger, told
from dunnage.model.certificate import load_public_key
from dunnage.model.envelopes import sign

OLD = Path(__file__).parent / "fixtures" / "v0.1.0"
POLICY = """
dataset = "parcels"
protects = "parcel"
[attributes.id]
role = "identifier"
[attributes.weight]
role = "quasi-identifier"
kind = "numeric"
domain = [0, 100]
resolution = 1
[mechanism]
name = "noisy-values"
epsilon = 50
[budget]
epsilon = 200
neighbours = "replace-one"
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with parcels and a policy, of a machine that remembers nothing yet."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(STATE, str(tmp_path / "state"))
    (tmp_path / "parcels.toml").write_text(POLICY)
    (tmp_path / "parcels.csv").write_text("id,weight\n" + "".join(f"p{n},{n}\n" for n in range(20)))
    return tmp_path


@pytest.fixture
def keys(place: Path) -> Callable[[str], Path]:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    for name in ("ann", "bo", "cy", "eve"):
        key = Ed25519PrivateKey.generate()
        pem = serialization.Encoding.PEM
        secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        (place / f"{name}.pem").write_bytes(secret)
        (place / f"{name}.pem").chmod(0o600)
        public = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
        (place / f"{name}.pub.pem").write_bytes(public)
    return lambda name: place / f"{name}.pem"


# History of 0.1.0, and moving


def test_ledgers_of_version_0_1_0_are_read_upgraded_and_moved(place, postgres):
    for name in ("dunnage-ledger.sqlite", "city.sqlite"):
        file = Path(shutil.copy(OLD / name, place / name))
        old, content = Ledger.open_existing(file), file.read_bytes()
        before = old.to_dict()
        assert "upgrade" in str(refusal(LedgerError, Ledger(file).spend, dp(1), purpose(1)))
        refusal(Rehearsed, Ledger(file).rehearsal().spend, dp(1), purpose(1))
        assert file.read_bytes() == content
        assert fine("ledger", "upgrade", name)["before"] == 1
        with Ledger(file) as book:
            assert book.to_dict() == before
            assert "an earlier version" in "".join(told(book, dataset).text() for dataset in book.datasets())
            book.spend(dp(1), purpose("new"))
            here, history = book.to_dict(), book.history("rides")
            url = postgres()
            moved = book.move(url)
        assert moved.to_dict() == here
        assert moved.history("rides") == history, "with the same hashes"
        refusal(LedgerError, Ledger.open_existing, file)
        left = Ledger(file.with_name(f"{name}.moved"), witness=False)
        assert left.to_dict() == here
        assert "was moved" in str(refusal(LedgerError, left.spend, dp(1), purpose("late")))
        moved.spend(dp(1), purpose("later"))
        refusal(LedgerError, moved.move, url)
        back = moved.move(place / f"back-{name}")
        assert len(back.history("rides")) == len(history) + 1
        refusal(LedgerError, moved.spend, dp(1), purpose("too late"))
        refusal(LedgerError, Ledger(":memory:").move, place / "x.sqlite")


# Tampering


def altered(place: str, *changes: str, **values: object) -> None:
    """Change a ledger as somebody with all rights over the file or the server can."""
    if place.startswith("postgresql"):
        import psycopg

        with psycopg.connect(place) as connection:
            connection.execute("SET session_replication_role = replica")
            connection.execute("ALTER TABLE dunnage.entries DROP CONSTRAINT IF EXISTS hash_is_true")
            for change in changes:
                connection.execute(change.replace("entries", "dunnage.entries"), values)
        return
    with closing(sqlite3.connect(place)) as database:
        for name in ("keep", "hold", "follow"):
            database.execute(f"DROP TRIGGER IF EXISTS entries_{name}")
        for change in changes:
            database.execute(change.replace("%(", ":").replace(")s", ""), values)
        database.commit()


def restore(place: str, entries: list[Entry]) -> None:
    """Put entries back as they were, whatever they were."""
    columns = "dataset, number, kind, id, at, who, body, totals, prev, hash"
    marks = ", ".join(f"%({name})s" for name in columns.split(", "))
    altered(place, "DELETE FROM entries")
    for entry in entries:
        values = {name: getattr(entry, name) for name in columns.split(", ")}
        altered(place, f"INSERT INTO entries ({columns}) VALUES ({marks})", **values)
    if place.startswith("postgresql"):
        altered(
            place, "UPDATE dunnage.heads SET number = %(n)s, hash = %(h)s", n=entries[-1].number, h=entries[-1].hash
        )


def test_changed_swapped_and_cut_entries_are_found(place, address):
    anchor = place / "anchor.jsonl"
    with Ledger(address, anchor=anchor) as book:
        for number in range(4):
            book.spend(dp("0.1"), purpose(number, budget(1)))
        whole = book.history("rides")
    swapped = [replace(whole[3], number=3), replace(whole[2], number=4)]
    for what, change in {
        "a cheaper spend": [replace(whole[2], body=whole[2].body.replace("1/10", "1/99"))],
        "its hash too": [replace(whole[2], body=whole[2].body.replace("1/10", "1/99")).sealed()],
        "somebody else": [replace(whole[2], who="eve")],
        "swapped": swapped,
        "swapped with hashes": [entry.sealed() for entry in swapped],
        "another total": [replace(whole[4], totals=whole[4].totals.replace("2/5", "1/5")).sealed()],
    }.items():
        restore(address, [{e.number: e for e in change}.get(entry.number, entry) for entry in whole])
        with Ledger(address, witness=False) as book:
            refusal(LedgerError, book.statement, "rides")
            assert not check_ledger(book).ok, what
    # Old copies and cut tails are whole chains: what was seen before tells them apart.
    for what, entries in {
        "restored backup": whole[:3],
        "deleted tail": whole[:4],
        "another history": forged(whole[:2], 3),
        "forged head": [*whole[:4], replace(whole[4], who="eve").sealed()],
    }.items():
        restore(address, entries)
        with Ledger(address) as book:
            assert len(book.statement("rides").spends) == len(entries) - 1
            assert "lacks entry" in str(refusal(LedgerError, book.spend, dp("0.1"), purpose("next"))), what
            refusal(LedgerError, book.set_budget, "rides", budget(9), note="more")
            assert not check_ledger(book).ok
        with Ledger(address, witness=False) as book:
            assert any("anchor" in problem for problem in check_ledger(book, anchors=[anchor]).problems), what
    restore(address, whole)
    with Ledger(address) as book:
        assert check_ledger(book, anchors=[anchor]).ok
        book.spend(dp("0.1"), purpose("next"))
    if address.startswith("postgresql"):
        altered(address, "UPDATE dunnage.heads SET number = 1")
        refusal(LedgerError, Ledger(address, witness=False).spend, dp("0.1"), purpose("last"))


def forged(start: list[Entry], num: int) -> list[Entry]:
    entries = list(start)
    for _ in range(num):
        head = entries[-1]
        content = {**head.content, "note": "forged"}
        entries.append(
            next_entry(
                head, dataset="rides", kind=Kind.SPEND, at=head.at, who="eve", content=content, same_period=head.running
            )
        )
    return entries


def test_a_ledger_that_was_deleted_or_replaced_is_asked_about(place):
    file = place / "ledger.sqlite"
    Ledger(file).spend(dp("0.5"), purpose(1, budget(1)))
    backup = Path(shutil.copy(file, place / "copy.sqlite"))
    Ledger(file).spend(dp("0.5"), purpose(2))
    for other in (backup, file):
        shutil.copy(place / "copy.sqlite", other) if other != backup else None
        refusal(LedgerError, Ledger(other).spend, dp("0.5"), purpose(3))
    file.unlink()
    refusal(LedgerError, Ledger(file).spend, dp("0.5"), purpose(3))
    refusal(LedgerError, Ledger(file).set_budget, "rides", budget(9), note="anew")
    assert not file.exists()
    fine("ledger", "accept", "ledger.sqlite", "--dataset", "rides", "--note", "the disk failed")
    with Ledger(file) as book:
        book.spend(dp("0.5"), purpose(3))
        assert "the disk failed" in told(book, "rides").text()
    # Where nothing can be remembered, the ledger still works.
    (place / "state" / "witness.sqlite").unlink()
    (place / "state" / "witness.sqlite").mkdir()
    Ledger(file).spend(dp("0.1"), purpose(4))


def test_check_compares_releases_with_the_ledger(place):
    for name in ("one", "two"):
        again = ["--again"] if name == "two" else []
        fine("publish", "parcels.csv", "--policy", "parcels.toml", "-o", name, "--anchor", "anchor", *again)
        shutil.copy("dunnage-ledger.sqlite", f"after-{name}.sqlite")
    spend = dn.Release.read("two").certificate.spend
    with Ledger.open_existing("dunnage-ledger.sqlite") as book:
        assert (spend.number, spend.head) in {(entry.number, entry.hash) for entry in book.history("parcels")}
    check = ["ledger", "check", "dunnage-ledger.sqlite", "one", "two"]
    assert fine(*check, "--anchor", "anchor")["ok"]
    shutil.copy("after-one.sqlite", "dunnage-ledger.sqlite")
    problems = json.loads(run(*check, "--json", code=1).out)["problems"]
    assert any("two was paid for" in problem for problem in problems)
    # A second draw under one spend: what the ledger kept of the first tells.
    shutil.copy("after-two.sqlite", "dunnage-ledger.sqlite")
    certificate = dn.Release.read("two").certificate
    shutil.copytree("two", "forged")
    forged = certificate.model_copy(update={"time": "2026-01-01T00:00:00Z"})
    Path("forged/certificate.json").write_bytes(forged.to_bytes())
    assert "forged was not paid for" in run("ledger", "check", "dunnage-ledger.sqlite", "forged", code=1).out
    # Another ledger in its place: the anchor knows none of its lines. A dataset that is gone as a whole is missed.
    Ledger("other.sqlite", witness=False).spend(dp(1), purpose(1))
    run("ledger", "check", "other.sqlite", "--anchor", "anchor", code=1)
    altered("dunnage-ledger.sqlite", "DELETE FROM entries")
    assert "lacks entry" in run("ledger", "check", "dunnage-ledger.sqlite", code=1).out
    shutil.copy("after-one.sqlite", "dunnage-ledger.sqlite")
    run("ledger", "check", "dunnage-ledger.sqlite", "nowhere", code=1)
    run("publish", "parcels.csv", "--policy", "parcels.toml", "-o", "three", "--again").refused("lacks")


# Roles in PostgreSQL

INSERT = f"INSERT INTO dunnage.entries ({', '.join(COLUMNS)}) VALUES ({', '.join(['%s'] * len(COLUMNS))})"
NO_TERMS = {"budget": None, "rule": None, "note": ""}
LIES = {"epsilon": "1/1000000", "delta": "0/1", "rho": "1/2000000000000"}


@pytest.fixture
def team(place: Path, postgres: Callable[[], str], keys: Callable[[str], Path]) -> dict[str, str]:
    """A ledger with a budget of 1 on "rides" (0.5 spent) and a rule on "ruled"; addresses by person."""
    import psycopg

    owner = postgres()
    people = {"reader": "reader", "ann": "spender", "bo": "officer", "cy": "officer", "eve": "none"}
    with psycopg.connect(owner, autocommit=True) as connection:
        for person in people:
            with suppress(psycopg.Error):  # it is there already: people are the same in all databases
                connection.execute(f"CREATE ROLE {person} LOGIN")
    with Ledger(owner) as book:
        for person, role in people.items():
            for dataset in ("rides", "ruled"):
                book.grant(dataset, person, role)
        book.set_budget("rides", budget(1), note="first")
        book.set_budget("secret", budget(1), note="of others")
        book.set_budget("ruled", budget(1), note="first")
        rule = Rule(people={name: load_public_key(place / f"{name}.pub.pem").hex() for name in ("ann", "bo", "cy")})
        book.set_rule("ruled", rule, note="board")
    return {"owner": owner, **{name: owner.replace("postgres:@", f"{name}@") for name in people}}


def entry_of(book: Ledger, dataset: str, of_kind: Kind, content: dict[str, Any], **changes: Any) -> list[object]:
    """A well-formed row: the right place in the chain, the right hash and totals, unless changes say otherwise."""
    with book._store.reading() as session:
        head = session.head(dataset)
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    facts: dict[str, Any] = {"dataset": dataset, "at": now, "who": "ann", "content": content}
    try:
        entry = next_entry(head, kind=of_kind, **facts)
    except (ArithmeticError, ValueError, LookupError, TypeError, AttributeError):  # it has no totals
        entry = replace(next_entry(head, kind=Kind.OUTCOME, **facts), kind=of_kind)
    entry = replace(entry, **changes)
    return [getattr(entry if "hash" in changes else entry.sealed(), name) for name in COLUMNS]


def spend_of(loss: Any, **changes: Any) -> dict[str, Any]:
    content = {
        "policy": "p",
        "promise": "q",
        "period": None,
        "basis": "proved",
        "note": "",
        "rows": None,
        "about": None,
    }
    guarantee = {"model": "dp", "protects": "trip"}
    return {**content, "guarantee": guarantee, "loss": {"add-remove": loss, "replace-one": loss}, **changes}


def exactly(epsilon: Fraction) -> dict[str, str]:
    return {"epsilon": fraction_text(epsilon), "delta": "0/1", "rho": fraction_text(epsilon**2 / 2)}


def test_a_spender_with_a_raw_connection_can_only_spend(team, keys):
    import psycopg

    with Ledger(team["ann"]) as book, psycopg.connect(team["ann"], autocommit=True) as raw:
        first = book.spend(dp("0.4"), purpose(1))
        assert first.who == "ann"
        of_bo = Ledger(team["bo"]).spend(dp("0.1"), purpose("bo"))
        refusal(BudgetError, book.spend, dp("0.6"), purpose(2))

        def entry(content: dict[str, Any], of_kind: Kind = Kind.SPEND, dataset: str = "rides", **changes: Any) -> Any:
            return INSERT, entry_of(book, dataset, of_kind, content, **changes)

        tenth, half = spend_of(exactly(Fraction(1, 10))), spend_of(exactly(Fraction(1, 2)))
        small, more = entry(tenth), json.dumps(tenth)[:-1] + ',"x":%s}'
        proposal = book.propose(dp("0.1"), replace(purpose(1), dataset="ruled"), key=keys("ann"), facts={})
        approved = {"about": proposal.id, "hash": proposal.hash, "note": ""}
        of_other = next_entry(None, dataset="secret", kind=Kind.SPEND, at=small[1][4], who="ann", content=tenth)
        later = replace(next_entry(None, dataset="rides", kind=Kind.SPEND, at=small[1][4], who="ann", content=half))
        fitting = entry(half)[1]
        forged_totals = json.loads(small[1][7])
        forged_totals["add-remove"]["epsilon"] = "0/1"
        attacks: dict[str, Any] = {
            # alter
            "update": ("UPDATE dunnage.entries SET body = '{}'", None),
            "delete": ("DELETE FROM dunnage.entries", None),
            "truncate": ("TRUNCATE dunnage.entries", None),
            "truncate by cascade": ("TRUNCATE dunnage.members CASCADE", None),
            "drop": ("DROP TABLE dunnage.entries CASCADE", None),
            "drop the schema": ("DROP SCHEMA dunnage CASCADE", None),
            "drop the trigger": ("DROP TRIGGER admit ON dunnage.entries", None),
            "disable triggers": ("ALTER TABLE dunnage.entries DISABLE TRIGGER ALL", None),
            "disable security": ("ALTER TABLE dunnage.entries DISABLE ROW LEVEL SECURITY", None),
            "drop a check": ("ALTER TABLE dunnage.entries DROP CONSTRAINT hash_is_true", None),
            "a trigger of my own": (
                "CREATE TRIGGER a BEFORE INSERT ON dunnage.entries EXECUTE FUNCTION dunnage.keep()",
                None,
            ),
            "a rule of my own": ("CREATE RULE a AS ON INSERT TO dunnage.entries DO INSTEAD NOTHING", None),
            "a policy of my own": ("CREATE POLICY a ON dunnage.entries USING (true)", None),
            "another function": (
                "CREATE OR REPLACE FUNCTION dunnage.role_of(text) RETURNS text AS 'SELECT 1' LANGUAGE sql",
                None,
            ),
            "a table in the schema": ("CREATE TABLE dunnage.other (x int)", None),
            "replica": ("SET session_replication_role = replica", None),
            "no row security": ("SET row_security = off; SELECT * FROM dunnage.entries", None),
            "be the owner": ("SET ROLE postgres", None),
            "be an officer": ("SET SESSION AUTHORIZATION bo", None),
            "merge": (
                "MERGE INTO dunnage.entries e USING (SELECT 1) x ON true WHEN MATCHED THEN UPDATE SET who = 'x'",
                None,
            ),
            "conflict": (f"{INSERT} ON CONFLICT (id) DO UPDATE SET body = '{{}}'", small[1]),
            "copy": ("COPY dunnage.entries FROM PROGRAM 'true'", None),
            "the name of the ledger": ("UPDATE dunnage.ledger SET id = 'x'", None),
            "the format": ("UPDATE dunnage.version SET format = 1", None),
            # heads and members
            "move a head": ("UPDATE dunnage.heads SET number = 0", None),
            "delete a head": ("DELETE FROM dunnage.heads", None),
            "add a head": ("INSERT INTO dunnage.heads VALUES ('x', 0, '')", None),
            "lock heads": ("SELECT * FROM dunnage.heads FOR UPDATE", None),
            "lock all": ("BEGIN; LOCK TABLE dunnage.entries IN ACCESS EXCLUSIVE MODE", None),
            "promote myself": ("UPDATE dunnage.members SET role = 'officer'", None),
            "add myself": ("INSERT INTO dunnage.members VALUES ('*', 'ann', 'officer')", None),
            "read members": ("SELECT * FROM dunnage.members", None),
            "call the trigger": ("SELECT dunnage.admit()", None),
            "another's turn": ("SELECT dunnage.turn('secret')", None),
            "nobody's turn": ("SELECT dunnage.turn(NULL)", None),
            "the turn of a long name": ("SELECT dunnage.turn(repeat('x', 100000))", None),
            "the trigger on a table of my own": (
                "CREATE TEMP TABLE mine (LIKE dunnage.entries);"
                "CREATE TRIGGER a AFTER INSERT ON mine FOR EACH ROW EXECUTE FUNCTION dunnage.admit()",
                None,
            ),
            "sums of my own": ("SELECT dunnage.totals_after('{}', '{}', '{}')", None),
            "a member's owner": ("GRANT postgres TO ann", None),
            "a function with the owner's rights": (
                "CREATE FUNCTION pg_temp.f() RETURNS void LANGUAGE sql SECURITY DEFINER "
                "AS 'DELETE FROM dunnage.entries'; SELECT pg_temp.f()",
                None,
            ),
            "rows by COPY": ("COPY dunnage.entries FROM STDIN", None),
            "members by COPY": ("COPY dunnage.members TO STDOUT", None),
            "what others wait for": ("SELECT * FROM dunnage.entries FOR UPDATE", None),
            "share the table": ("BEGIN; LOCK TABLE dunnage.entries IN SHARE MODE", None),
            "a prepared transaction": ("BEGIN; SELECT dunnage.turn('rides'); PREPARE TRANSACTION 'x'", None),
            "inherit": ("CREATE TEMP TABLE child () INHERITS (dunnage.entries)", None),
            "refer": ("CREATE TEMP TABLE child (d text REFERENCES dunnage.heads)", None),
            "rename": ("ALTER SCHEMA dunnage RENAME TO gone", None),
            "own it": ("ALTER TABLE dunnage.entries OWNER TO ann", None),
            "comment": ("SECURITY LABEL ON TABLE dunnage.entries IS 'x'", None),
            # overspend
            "too much": entry(spend_of(exactly(Fraction(6, 10)))),
            "a little too much": entry(spend_of(exactly(Fraction(1, 2) + Fraction(1, 10**40)))),
            "too much delta": entry(spend_of({"epsilon": "1/10", "delta": "1/1000", "rho": None})),
            "less than nothing": entry(spend_of({**LIES, "epsilon": "-1/10"})),
            "no denominator": entry(spend_of({**LIES, "epsilon": "1/0"})),
            "not a number": entry(spend_of({**LIES, "epsilon": "NaN"}), totals=small[1][7]),
            "a number": entry(spend_of({**LIES, "epsilon": 0.1}), totals=small[1][7]),
            "not in lowest terms": entry(spend_of({**LIES, "epsilon": "2/2000000"})),
            "a cheap rho": entry(spend_of({"epsilon": "1/10", "delta": "0/1", "rho": "1/1000"})),
            "no loss": entry({**tenth, "loss": {}}, totals=small[1][7]),
            "one loss": entry({**tenth, "loss": {"add-remove": LIES}}, totals=small[1][7]),
            "unbounded": entry(spend_of(None)),
            "unbounded, allowed by myself": entry(spend_of(None, allow_unbounded=True)),
            "another unit": entry(
                {**tenth, "guarantee": {"model": "dp", "protects": "rider"}, "allow_unbounded": True}
            ),
            "no guarantee": entry({**tenth, "guarantee": {}}, totals=small[1][7]),
            "no text": entry({**tenth, "policy": 1}),
            "no promise": entry({name: tenth[name] for name in tenth if name != "promise"}),
            "one of two digests of rows": entry({**tenth, "rows": {"as_is": "a"}}),
            "no guarantee at all": entry({**tenth, "guarantee": None}, totals=small[1][7]),
            "a period that is a number": entry({**tenth, "period": 7}, totals=small[1][7]),
            "rows that are no digests": entry({**tenth, "rows": [1]}),
            "a place that is none": entry({**tenth, "out": {"place": 1}}),
            "about a list": entry({**tenth, "about": []}),
            "about nothing": entry({**tenth, "about": "0" * 32}),
            "maybe unbounded": entry({**tenth, "allow_unbounded": "yes"}),
            "deeper than readers follow": entry(tenth, body=more % ("[" * 900 + "]" * 900)),
            "a number that readers cannot read": entry(tenth, body=more % ("9" * 5000)),
            "sums with too many digits": entry(spend_of(exactly(Fraction(1, 10**1200 + 7)))),
            "a unit that is a book": entry({**tenth, "guarantee": {"model": "dp", "protects": "x" * 10_000}}),
            "a very long note": entry({**tenth, "note": "x" * 2_000_000}),
            "surrogates": entry(tenth, body=more % '"\\ud800"'),
            "a zero character": entry(tenth, body=more % '"\\u0000"'),
            "forged totals": entry(tenth, totals=json.dumps(forged_totals)),
            "a count that is no whole number": entry(tenth, totals=small[1][7].replace('"spends":3', '"spends":3.0')),
            "a count twice": entry(tenth, totals='{"spends":' + "9" * 5000 + "," + small[1][7][1:]),
            "old totals": entry(half, totals=book.history("rides")[-1].totals),
            "body that is no table": entry(tenth, body="[]"),
            "body that is no JSON": entry(tenth, body="x"),
            "two in one statement": (
                f"{INSERT}, ({', '.join(['%s'] * len(COLUMNS))})",
                [*fitting, *_following(fitting, half)],
            ),
            "a budget of my own": entry(NO_TERMS, Kind.BUDGET),
            # the chain
            "a gap": entry(tenth, number=9),
            "an old number": entry(tenth, number=1),
            "another past": entry(tenth, prev="0" * 64),
            "another hash": entry(tenth, hash="0" * 64),
            "a fork": (INSERT, [getattr(later, name) for name in COLUMNS]),
            "another name": entry(tenth, who="bo"),
            "yesterday": entry(tenth, at="2020-01-01T00:00:00Z"),
            "tomorrow": entry(tenth, at=later_time(hours=1)),
            "no such day": entry(tenth, at="2026-02-30T00:00:00Z"),
            "an hour that readers do not know": entry(tenth, at=f"{small[1][4][:11]}24:00:00Z"),
            "without a time": entry(tenth, at=None, hash="0" * 64),
            "without a body": entry(tenth, body=None, hash="0" * 64),
            "no such kind": entry(tenth, kind="gift"),
            "an id of my own": entry(tenth, id="x"),
            "another dataset": (INSERT, [getattr(of_other, name) for name in COLUMNS]),
            "an outcome of nothing": entry({"about": "0" * 32, "state": "released"}, Kind.OUTCOME),
            "no such outcome": entry({"about": first.id, "state": "lost"}, Kind.OUTCOME),
            "what became of another's spend": entry({"about": of_bo.id, "state": "stopped"}, Kind.OUTCOME),
            # approve
            "approve myself": entry(approved, Kind.APPROVAL, "ruled"),
            "refuse": entry(approved, Kind.REFUSAL, "ruled"),
            "spend without approval": entry({**tenth, "about": proposal.id}, Kind.SPEND, "ruled"),
            "spend without a proposal": entry(tenth, Kind.SPEND, "ruled"),
            "weaken the rule": entry(NO_TERMS, Kind.BUDGET, "ruled"),
        }
        before = {name: Ledger(team["owner"]).history(name) for name in ("rides", "ruled", "secret")}
        raw.execute("GRANT ALL ON dunnage.entries TO ann")  # only warns: there is nothing that ann may give
        said = {}
        for what, (sql, values) in attacks.items():
            try:
                raw.execute(sql, values)
            except psycopg.Error as error:
                said[what] = str(error)
                raw.rollback()
        assert said.keys() == attacks.keys(), "all are refused"
        assert "does not cover" in said["two in one statement"]
        assert {name: Ledger(team["owner"]).history(name) for name in before} == before
        # Objects of one's own that stand in front of the true ones change nothing.
        raw.execute("CREATE TEMP TABLE members (dataset text, person text, role text)")
        raw.execute("CREATE DOMAIN pg_temp.jsonb AS text; CREATE DOMAIN pg_temp.text AS varchar")
        raw.execute("CREATE FUNCTION pg_temp.sha256(bytea) RETURNS bytea LANGUAGE sql AS 'SELECT $1'")
        raw.execute("CREATE TEMP TABLE heads AS SELECT 'rides' AS dataset, 0 AS number, repeat('0', 64) AS hash")
        raw.execute("SET search_path = pg_temp, dunnage")
        with pytest.raises(psycopg.Error):
            raw.execute(*attacks["too much"])
        raw.execute("SET search_path = public")
        # A row that is dropped for its id must not move the head.
        row = entry(tenth, id=book.history("rides")[-1].id)
        raw.execute(f"{row[0]} ON CONFLICT DO NOTHING", row[1])
        assert Ledger(team["owner"]).history("rides") == before["rides"]
        assert raw.execute("SELECT count(*) FROM dunnage.entries WHERE dataset = 'secret'").fetchone() == (0,)
        assert Ledger(team["ann"]).datasets() == ["rides", "ruled"]
        # What is left is spent to the last bit, and by one of two who try at once.
        book.spend(dp("0.5"), purpose(2))
        refusal(BudgetError, book.spend, dp("1e-40"), purpose(3))
    for person in ("reader", "eve"):
        refusal((LedgerError, Refusal), Ledger(team[person]).spend, dp("0.1"), purpose(9))


def test_what_a_session_chooses_changes_nothing(team, keys):
    """Its time zone, an old view of the tables, the order of rows in a statement, functions of its own."""
    import psycopg

    tenth = spend_of(exactly(Fraction(1, 10)))
    with Ledger(team["ann"]) as ann, Ledger(team["owner"]) as owner:
        before = {name: owner.history(name) for name in ("rides", "ruled")}
        with psycopg.connect(team["ann"], autocommit=True) as raw:
            raw.execute("SET TIME ZONE '<Z>+160'")  # "Z" is an abbreviation like others
            with pytest.raises(psycopg.Error, match="the time of the database"):
                raw.execute(INSERT, entry_of(ann, "rides", Kind.SPEND, tenth, at=later_time(hours=-160)))
            outcome = entry_of(ann, "rides", Kind.OUTCOME, {"about": "ab" * 16, "state": "released"})
            spend = _following(outcome, tenth, id="ab" * 16)
            with pytest.raises(psycopg.Error, match="about nothing"):
                raw.execute(f"{INSERT}, ({', '.join(['%s'] * len(COLUMNS))})", [*outcome, *spend])
        assert {name: owner.history(name) for name in before} == before
        proposal = ann.propose(dp("0.1"), replace(purpose(1), dataset="ruled"), key=keys("ann"), facts={})
        exact = {name: proposal.content[name] for name in ("policy", "promise", "period", "rows", "loss")}
        spend = entry_of(owner, "ruled", Kind.SPEND, {**tenth, **exact, "about": proposal.id}, who="bo")
        approval = _following(spend, {"about": proposal.id, "hash": proposal.hash, "note": ""}, kind=Kind.APPROVAL)
        terms = entry_of(owner, "rides", Kind.BUDGET, NO_TERMS, who="bo")
        with psycopg.connect(team["bo"]) as raw, psycopg.connect(team["ann"]) as other:
            with pytest.raises(psycopg.Error, match="unused approvals"):
                raw.execute(f"{INSERT}, ({', '.join(['%s'] * len(COLUMNS))})", [*spend, *approval])
            raw.rollback()
            raw.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            raw.execute("SELECT 1 FROM dunnage.heads")
            owner.grant("rides", "bo", "reader")
            with pytest.raises(psycopg.Error, match="READ COMMITTED"):
                raw.execute(INSERT, terms)
            raw.rollback()
            # An officer who waits for the turn, and is none any more when it comes.
            owner.grant("rides", "bo", "officer")
            raw.isolation_level = None
            other.execute("SELECT dunnage.turn('rides')")
            with ThreadPoolExecutor(1) as pool:
                waiting = pool.submit(raw.execute, INSERT, terms)
                with psycopg.connect(team["owner"], autocommit=True) as watch:
                    is_waiting = "SELECT 1 FROM pg_locks WHERE NOT granted AND pid = %s"
                    while not watch.execute(is_waiting, [raw.info.backend_pid]).fetchone():
                        assert not waiting.done()
                owner.grant("rides", "bo", "reader")
                other.rollback()
                with pytest.raises(psycopg.Error, match="may not write"):
                    waiting.result()
        assert owner.history("rides") == before["rides"]


def test_functions_in_a_schema_for_all_are_not_called(team):
    """Databases of old servers let everybody create functions, which a better match would call with others' rights."""
    import psycopg

    Ledger(team["ann"]).spend(dp("0.1"), purpose(1))
    with psycopg.connect(team["owner"], autocommit=True) as owner, psycopg.connect(team["ann"], autocommit=True) as raw:
        owner.execute("GRANT CREATE ON SCHEMA public TO ann")
        try:
            raw.execute(
                "CREATE FUNCTION public.own(jsonb, jsonb) RETURNS text LANGUAGE plpgsql IMMUTABLE "
                "AS 'BEGIN RAISE EXCEPTION $x$called with the rights of %$x$, session_user; END'"
            )
            raw.execute("CREATE OPERATOR public.#>> (LEFTARG = jsonb, RIGHTARG = jsonb, FUNCTION = public.own)")
            with pytest.raises(psycopg.Error, match="the rights of postgres"):
                owner.execute("SELECT body::jsonb #>> '{}' FROM dunnage.entries")
            with Ledger(team["owner"]) as book:
                book.spend(dp("0.1"), purpose(2))
                assert told(book, "rides").statement.total.epsilon == Fraction(1, 5)
        finally:
            owner.execute("DROP OPERATOR IF EXISTS public.#>> (jsonb, jsonb); DROP FUNCTION IF EXISTS public.own")
            owner.execute("REVOKE CREATE ON SCHEMA public FROM ann")


def later_time(**when: float) -> str:
    return (datetime.now(UTC) + timedelta(**when)).isoformat(timespec="seconds").replace("+00:00", "Z")


def _following(row: list[Any], content: dict[str, Any], kind: Kind = Kind.SPEND, id: str | None = None) -> list[Any]:
    first = Entry(**dict(zip(COLUMNS, row, strict=True)))
    facts = {"dataset": first.dataset, "kind": kind, "at": first.at, "who": first.who}
    entry = next_entry(first, content=content, name=id, **facts)
    return [getattr(entry, name) for name in COLUMNS]


def test_a_turn_that_does_not_end_is_not_waited_for(team, monkeypatch):
    import psycopg

    monkeypatch.setattr("dunnage.ledger.store.BUSY_SECONDS", 0.2)
    with psycopg.connect(team["ann"]) as raw, Ledger(team["bo"]) as book:
        raw.execute("SELECT dunnage.turn('rides')")
        assert "kept its turn" in str(refusal(LedgerError, book.spend, dp("0.1"), purpose(1)))
        raw.rollback()
        book.spend(dp("0.1"), purpose(1))


def test_who_was_removed_sees_nothing(team):
    import psycopg

    with Ledger(team["owner"]) as owner:
        refusal(ParameterError, owner.grant, "rides", "nobody_knows", "reader")
        for dataset in ("rides", "ruled"):
            owner.grant(dataset, "ann", "none")
    with psycopg.connect(team["ann"], autocommit=True) as raw:
        for sql in ("TABLE dunnage.ledger", "SELECT * FROM dunnage.recognised('x')", "SELECT dunnage.turn('rides')"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                raw.execute(sql)


def test_terms_count_only_if_signed_under_the_rule_before_them(team, keys):
    """An officer with a raw connection can write terms, but nobody spends under those that the rule did not sign."""
    with Ledger(team["bo"]) as bo, Ledger(team["ann"]) as ann:
        what = replace(purpose(1), dataset="ruled")
        bo.set_budget("ruled", budget(9), note="more", sign=keys("bo"))
        bo.set_budget("ruled", budget(1), note="less again", sign=keys("bo"))
        old = bo.history("ruled")[-2]
        for content in ({"budget": None, "rule": None, "note": "unsigned"}, old.content):
            with bo._store.writing("ruled") as session:
                session.append(bo._entry(session.head("ruled"), "ruled", Kind.BUDGET, content))
            refusal((LedgerError, Refusal), ann.spend, dp("0.1"), what)
            refusal((LedgerError, Refusal), bo.set_budget, "ruled", budget(2), note="next", sign=keys("bo"))
            assert not check_ledger(bo).ok
            left = bo.history("ruled")[:-1]  # whoever owns the tables can take it away
            moved = "UPDATE dunnage.heads SET number = %(n)s, hash = %(h)s WHERE dataset = 'ruled'"
            gone = "DELETE FROM entries WHERE dataset = 'ruled' AND number > %(n)s"
            altered(team["owner"], gone, moved, n=left[-1].number, h=left[-1].hash)


def test_a_proposal_without_a_signature_is_in_nobody_s_way(team, keys):
    stated, what = dp("0.4"), replace(purpose(1), dataset="ruled")
    with Ledger(team["ann"]) as ann, Ledger(team["bo"]) as bo, Ledger(team["cy"]) as cy:
        true = ann.propose(stated, what, key=keys("ann"), facts={})
        second = bo.propose(stated, what, key=keys("bo"), facts={})
        about = {"about": second.id, "hash": second.hash}
        about["signature"] = sign(Kind.PROPOSAL, payload(Kind.PROPOSAL, "ruled", about), keys("ann"))
        for content in (
            {},
            {**true.content, "signature": None},
            {**true.content, "signature": "x", "note": []},
            {"about": second.id},
            about,
        ):
            with ann._store.writing("ruled") as session:
                session.append(ann._entry(session.head("ruled"), "ruled", Kind.PROPOSAL, content))
        cy.decide(second.id, approve=True, key=keys("cy"))
        ann.spend(stated, what)
        assert "does not count" in told(ann, "ruled").text()
        assert check_ledger(bo).ok


def test_people_of_a_team_agree(team, keys):
    stated, what = dp("0.4"), replace(purpose(1), dataset="ruled")
    with Ledger(team["ann"]) as ann, Ledger(team["bo"]) as bo, Ledger(team["cy"]) as cy:
        made = ann.propose(stated, what, key=keys("ann"), facts={})
        refusal(Refusal, ann.spend, stated, what)
        # A key is not enough: the person who is connected must be an officer, and another one.
        refusal(Refusal, ann.decide, made.id, approve=True, key=keys("bo"))
        refusal(Refusal, bo.decide, made.id, approve=True, key=keys("ann"))
        bo.decide(made.id, approve=True, key=keys("bo"))
        refusal(Refusal, ann.spend, dp("0.3"), what)
        spend = ann.spend(stated, what)
        ann.again = True
        refusal(Refusal, ann.spend, stated, what)
        ann.record_outcome(spend.id, "ruled", "released", certificate="ab")
        refusal(LedgerError, ann.record_outcome, spend.id, "ruled", "stopped")
        refusal(Refusal, ann.set_budget, "rides", budget(9), note="more")
        cy.set_budget("rides", budget(2), note="more")
        assert check_ledger(bo).ok
    with Ledger(team["owner"]) as owner:
        owner.grant("ruled", "ann", "none")
    refusal((LedgerError, Refusal), Ledger(team["ann"]).spend, stated, replace(what, policy_digest="2"))


# Rows are known again


def load(
    policy: Path, rows: list[tuple[str, int]], name: str = "parcels", *, turned: bool = False, **changes: str
) -> dn.Dataset:
    text = POLICY.replace('"parcels"', f'"{name}"')
    for old, new in changes.items():
        text = text.replace(f"{old} = {50 if old == 'epsilon' else 1}\n", f"{old} = {new}\n")
    policy.write_text(text)
    table = pa.table({"id": [one for one, _ in rows], "weight": [str(two) for _, two in rows]})
    return dn.load(table.select(table.column_names[::-1]) if turned else table, policy)


def test_the_same_rows_under_another_name_are_asked_about(place, address):
    policy, rows = place / "parcels.toml", [(f"p{n}", n) for n in range(20)]
    with Ledger(address) as book:
        dn.publish(load(policy, rows), ledger=book)
        for what, same in {
            "another name": load(policy, rows, "renamed"),
            "another order": load(policy, rows[::-1], "renamed"),
            "another policy": load(policy, rows, "renamed", epsilon="20", resolution="5"),
            "other columns first": load(policy, rows, "renamed", turned=True),
        }.items():
            assert "'parcels'" in str(refusal(Refusal, dn.publish, same, ledger=book)), what
            assert any("'parcels'" in text for text in dn.rehearse(same, ledger=book).refusals), what
        assert book.datasets() == ["parcels"]
        # What a digest cannot see, and what it must not: another week, a changed cell, a part of the rows
        for name, other in {
            "week": [(f"q{n}", n) for n in range(20)],
            "cell": [*rows[:-1], ("p19", 18)],
            "part": rows[1:],
        }.items():
            dn.publish(load(policy, other, name), ledger=book)
        dn.publish(load(policy, rows, "renamed"), ledger=book, known_rows="both boards agreed")
        assert "both boards agreed" in told(book, "renamed").text()
        # Under the same name the message says whether it is the same file.
        assert "same rows" in str(refusal(Refusal, dn.publish, load(policy, rows), ledger=book))
        assert "other rows" in str(refusal(Refusal, dn.publish, load(policy, rows[::-1]), ledger=book))


# Two people


PUBLISH = ["publish", "parcels.csv", "--policy", "parcels.toml", "-o", "release"]
LEDGER = "dunnage-ledger.sqlite"


def test_a_release_needs_another_person(place, keys):
    people = [part for name in ("ann", "bo", "cy") for part in ("--person", f"{name}={name}.pub.pem")]
    rule = ["ledger", "rule", LEDGER, "--dataset", "parcels", "--note", "board"]
    run(*rule, "--person", "ann=ann.pub.pem").refused("2 people")
    fine(*rule, *people)
    run(*PUBLISH).refused("budget set --sign")
    terms = ["budget", "set", LEDGER, "--dataset", "parcels", "--epsilon", "200", "--neighbours", "replace-one"]
    fine(*terms, "--note", "first", "--sign", "ann.pem")
    run(*PUBLISH).refused("approval")
    made = ["propose", "parcels.csv", "--policy", "parcels.toml", "--preview", "preview.json", "--sign"]
    run(*made, "eve.pem").refused("nobody")
    first = fine(*made, "ann.pem")
    proposal = first["proposal"]
    assert (first["repeats"], first["preview"]["left_after"][:12]) == (False, "epsilon 150 ")
    approve = ["approve", LEDGER, proposal, "--preview", "preview.json", "--policy", "parcels.toml", "--sign"]
    assert fine(*PUBLISH, "--dry-run")["left_after"].startswith("epsilon 150 "), "as if it were approved"
    run(*PUBLISH).refused("waits for 1 more approval")
    run(*approve, "ann.pem").refused("somebody else")
    run(*approve, "eve.pem").refused("nobody")
    run("approve", LEDGER, proposal, "--sign", "bo.pem", "--preview", "parcels.toml").refused("preview")
    run("approve", LEDGER, "0" * 32, "--sign", "bo.pem").refused("no proposal")
    fine(*approve, "bo.pem")
    # Exactly these rows, this policy and these parameters
    text = (place / "parcels.csv").read_text()
    (place / "parcels.csv").write_text(text.replace("p1,1\n", "p1,2\n"))
    run(*PUBLISH).refused("nobody has proposed exactly this")
    (place / "parcels.csv").write_text(text)
    fine(*PUBLISH)
    run(*PUBLISH, "--again", "--force").refused("used by spend")
    # A refusal counts, and so does one that comes after an approval.
    again = fine(*made, "bo.pem")
    second, repeats = again["proposal"], again["repeats"]
    assert repeats
    fine("approve", LEDGER, second, "--sign", "ann.pem")
    fine("refuse", LEDGER, second, "--sign", "cy.pem", "--note", "too much")
    run(*PUBLISH, "--again", "--force").refused("refused by cy")
    shown = run("ledger", "show", LEDGER).out
    for words in ("1 approval before each release, by ann, bo, cy", "refused by cy", "used by spend", "too much"):
        assert words in shown
    # The terms change only with a signature under the rule.
    run(*terms, "--note", "more").refused("signature")
    run(*rule, "--none").refused("signature")
    run(*terms, "--note", "more", "--sign", "eve.pem").refused("rule")
    fine(*terms, "--note", "more", "--sign", "bo.pem")
    assert fine("ledger", "check", LEDGER, "release")["ok"]
    # Somebody who writes to the file can add an approval, but not a signature.
    with Ledger(LEDGER) as book:
        head = book.history("parcels")[-1]
        proposed = next(entry for entry in book.history("parcels") if entry.kind == Kind.PROPOSAL)
        approval = next(entry for entry in book.history("parcels") if entry.kind == Kind.APPROVAL)
        content = {**approval.content, "note": "changed"}
        entry = next_entry(head, dataset="parcels", kind=Kind.APPROVAL, at=head.at, who="bo", content=content)
        with book._store.writing("parcels") as session:
            session.append(entry)
        assert "no valid signature" in told(book, "parcels").proposals[proposed.id]
        assert not check_ledger(book).ok


def test_a_signed_house_is_enforced(place, keys):
    house = place / "house.toml"
    house.write_text("[limits]\nmax_epsilon = 50\n")
    fine("sign", "house.toml", "--sign", "eve.pem")
    fine(*PUBLISH[:-1], "one")  # without a rule any signature will do, as long as it matches
    house.write_text("[limits]\nmax_epsilon = 60\n")
    run(*PUBLISH[:-1], "two", "--again").refused("changed after it was signed")
    people = [part for name in ("ann", "bo") for part in ("--person", f"{name}={name}.pub.pem")]
    rule = ["ledger", "rule", LEDGER, "--dataset", "parcels", "--note", "board", "--approvals", "0", "--signed-house"]
    fine(*rule, *people)
    fine("sign", "house.toml", "--sign", "eve.pem")
    run(*PUBLISH[:-1], "two", "--again").refused("nobody")
    fine("sign", "house.toml", "--sign", "ann.pem")
    fine(*PUBLISH[:-1], "two", "--again")
    house.unlink()
    run(*PUBLISH[:-1], "three", "--again").refused("house.toml")
