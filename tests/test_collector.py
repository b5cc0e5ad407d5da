# SPDX-License-Identifier: Apache-2.0
"""The collector: what is answered is stored, once; blocks are chained; periods close once; both stores behave alike."""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.collector_help import DAY, NOON, PERIOD, SCHEDULE, TASK, Bench, body_of, emptied, made
from tests.estimates_help import PLACES, TELEMETRY, truck_task

from dunnage.collecting import intake, periods
from dunnage.collecting import store as stores
from dunnage.collecting.collector import CLOSED, ESTIMATED, split_frames
from dunnage.collecting.estimate import estimate
from dunnage.collecting.files import collect
from dunnage.collecting.intake import IdSet
from dunnage.collecting.kernels import COUNTED, REPLAYED
from dunnage.collecting.periods import (
    AlarmRules,
    alarms_of,
    close_period,
    due_work,
    erase_period,
    estimate_days,
    look_at_period,
    looks_of,
    note_estimated,
    set_alarms,
    statement_of,
    stored_sources,
)
from dunnage.collecting.store import Head, Period, Store
from dunnage.collecting.views import view
from dunnage.devices.client import mechanism_of
from dunnage.devices.report import Report, write_reports
from dunnage.devices.task import Tier
from dunnage.errors import CheckFailed, ParameterError, Refusal, StoreError
from dunnage.noise.source import Noise


@pytest.fixture(params=["sqlite", "postgres"])
def place(request, tmp_path):
    """An empty store: one body of a test for both kinds."""
    return tmp_path / "data" if request.param == "sqlite" else emptied(request.getfixturevalue("postgres")())


@pytest.fixture
def bench(place):
    made = Bench(place)
    yield made
    made.collector.stop()


def codes(answer):
    return Counter(code for _, code in answer.failures)


def test_what_is_accepted_and_what_is_not(bench):
    noise = Noise()
    first = [made(noise, purpose=at % 2, tier=at // 2 % 2, slot=10 + at % 2) for at in range(8)]
    assert bench.send(*first) == (8, [])
    assert bench.send(*first[:3], made(noise))[0] == 1  # copies and a new one
    again = bench.send(*first[:3])
    assert again.accepted == 0
    assert again.failures == [(report.report_id.hex(), "replayed") for report in first[:3]]
    changed = made(noise, report_id=first[0].report_id)  # the first that was stored counts
    assert codes(bench.send(changed)) == {"replayed": 1}
    other = truck_task(schedule=SCHEDULE)
    body = bytearray(body_of(made(noise)))
    body[-1] ^= 1
    for code, answer in (
        ("too_early", bench.send(made(noise, slot=13))),
        ("too_early", bench.send(made(noise, day=DAY + 1))),
        ("too_early", bench.send(made(noise, day=DAY + 400))),
        ("late", bench.send(made(noise, slot=9))),
        ("late", bench.send(made(noise, day=DAY - 1))),
        ("late", bench.send(made(noise, day=DAY - 400))),
        ("wrong_task", bench.send(made(noise, task=other))),
        ("malformed", bench.answer(bench.put(bytes(body)))),
        ("malformed", bench.answer(bench.put(body_of(made(noise))[:-5]))),
        ("malformed", bench.send(made(noise, payload=b"\xff" * 40))),
        ("late", bench.send(made(noise, slot=0))),
    ):
        assert (answer.accepted, codes(answer)) == (0, {code: 1}), code
    # A request is not harmed by what others of the same moment send, nor by frames that are shorter than any report.
    numbers = [bench.put(b"\0\0\0\0" * 500), bench.put(body_of(made(noise), made(noise))), bench.put(b"\xff" * 50)]
    answers = [bench.answer(number) for number in numbers]
    assert [answer.accepted for answer in answers] == [0, 2, 0]
    assert bench.answer(bench.put(b"")) == (0, [])
    assert len(bench.stored()) == len(set(bench.stored())) == 11


def test_a_sender_has_a_limit_for_each_day(bench):
    noise = Noise()
    reports = [made(noise) for _ in range(6)]
    assert codes(bench.send(*reports[:5], limit=4)) == {"too_many": 1}
    assert codes(bench.send(*reports, limit=4)) == {"replayed": 4, "too_many": 2}
    assert bench.send(*reports[4:], sender="another", limit=4) == (2, [])  # refused ones may come again
    assert bench.store.sent(PERIOD) == {"truck": 4, "another": 2}


def test_a_restart_knows_everything(place):
    noise, bench = Noise(), Bench(place)
    reports = [made(noise) for _ in range(40)]
    for at in range(0, 40, 4):
        assert bench.send(*reports[at : at + 4]).accepted == 4
    head = bench.collector.progress(PERIOD)
    order = bench.stored()
    assert sorted(order) == sorted(report.report_id for report in reports)
    bench.collector.stop()
    again = Bench(place, known=True)
    try:
        assert again.collector.progress(PERIOD) == head
        assert codes(again.send(*reports)) == {"replayed": 40}
        assert again.send(made(noise), limit=40) == (0, [(again._answers[2].failures[0][0], "too_many")])
        assert again.stored() == order
        assert again.collector.num_ids == 40
    finally:
        again.collector.stop()


def test_reports_are_shuffled_inside_a_block(bench):
    noise = Noise()
    reports = [made(noise) for _ in range(200)]
    assert bench.send(*reports).accepted == 200
    stored, sent = bench.stored(), [report.report_id for report in reports]
    assert sorted(stored) == sorted(sent)
    assert sum(a == b for a, b in zip(stored, sent, strict=True)) < 20


def test_a_changed_block_is_found(place):
    noise, bench = Noise(), Bench(place)
    for _ in range(3):
        bench.send(made(noise), made(noise))
    database = bench.store.of(PERIOD)
    ((content,),) = database.rows("SELECT frames FROM blocks WHERE seq = 2")
    worse = bytearray(content)
    worse[30] ^= 1
    for sql, worse_value, value in (
        ("UPDATE blocks SET frames = ? WHERE seq = 2", bytes(worse), bytes(content)),
        ("UPDATE blocks SET num = ? WHERE seq = 2", 3, 2),
        ("UPDATE blocks SET seq = ? WHERE num = 2 AND seq > 2", 4, 3),
    ):
        database.write(sql, worse_value)
        with pytest.raises(StoreError, match=r"block \d of 2026-11-16 was changed"):
            bench.stored()
        database.write(sql, value)
    assert len(bench.stored()) == 6
    database.write("UPDATE blocks SET frames = ? WHERE seq = 2", bytes(worse))
    bench.collector.stop()
    with pytest.raises(StoreError, match="Restore the store"):
        Bench(place, known=True)


def test_a_failed_commit_is_forgotten_and_one_that_went_through_is_not(bench, monkeypatch):
    """The disk is full, the database is away, or its connection is lost at the worst moment."""
    noise, append, chain_at = Noise(), type(bench.store).append, type(bench.store).chain_at
    reports = [made(noise) for _ in range(6)]
    assert bench.send(reports[0]).accepted == 1

    def full(*given):
        raise StoreError("full")

    def lost(*given):
        append(*given)
        raise StoreError("lost")

    for fails, left in ((full, 1), (lost, 0)):
        mine = reports[1:3] if fails is full else reports[3:5]
        with monkeypatch.context() as patch:
            patch.setattr(stores.Store, "append", fails)
            assert bench.send(*mine) is None
            with monkeypatch.context() as away:
                away.setattr(stores.Store, "chain_at", full)
                away.setattr(stores.Store, "append", lost if fails is lost else full)
                assert bench.send(made(noise)) is None  # nothing is taken in while something is in doubt
        assert codes(bench.send(*mine)) == ({} if left else {"replayed": 2})
    assert chain_at(bench.store, PERIOD, 1) is not None
    assert bench.collector.is_ready
    stored = bench.stored()
    assert len(stored) == len(set(stored))
    assert set(stored) >= {report.report_id for report in reports[:5]}


def test_a_second_collector_stops_itself(place, monkeypatch):
    noise, first = Noise(), Bench(place)
    assert first.send(made(noise)).accepted == 1
    if isinstance(place, Path):
        with pytest.raises(StoreError, match="another collector uses"):
            Store.open(place)
        monkeypatch.setattr(stores, "lock", lambda *given: None)  # as if it were another machine
    second = Bench(place, known=True)
    try:
        assert first.send(made(noise)).accepted == 1
        assert second.send(made(noise)) is None
        assert second.stopped == ["another collector writes to this store"]
        assert second.send(made(noise)) is None
        assert not second.collector.is_ready
        assert first.send(made(noise)).accepted == 1
        assert first.stopped == []
        assert len(first.stored()) == 3
    finally:
        first.collector.stop()
        second.collector.stop()


def test_an_error_that_nobody_expected_stops_it_before_anything_is_lost(bench, monkeypatch):
    """Ids that are known but not stored would make a report that comes again look like a copy."""
    noise, report = Noise(), made(Noise())
    bench.send(made(noise))

    def fails(*given):
        raise MemoryError

    monkeypatch.setattr(intake, "gather_frames", fails)
    assert bench.send(report) is None
    monkeypatch.undo()
    assert bench.send(report) is None  # not "replayed"
    assert bench.stopped == ["an error that nobody expected: MemoryError"]


def test_a_clock_that_was_set_stops_nothing_but_the_intake(bench):
    noise, report = Noise(), None
    report = made(noise)
    steady, bench.collector._clock = bench.collector._clock, (lambda: bench.now - 7200, lambda: bench.now)
    assert bench.collector.clock_jumped()
    assert bench.send(report) is None
    bench.collector._clock = steady
    assert bench.send(report).accepted == 1


def test_erasing_one_report(bench):
    noise = Noise()
    reports = [made(noise) for _ in range(10)]
    bench.send(*reports[:6])
    bench.send(*reports[6:])
    gone = reports[2]
    checksum, erase = gone.to_bytes()[-4:], bench.collector.erase_report
    assert erase(TASK.digest, gone.report_id, b"\0\0\0\0") == ""  # who does not know the report erases nothing
    assert erase(TASK.digest, gone.report_id, checksum) == "2026-11-16"
    assert erase(TASK.digest, gone.report_id, checksum) == ""
    assert codes(bench.send(gone)) == {"replayed": 1}  # it does not come back
    assert gone.report_id not in bench.stored()
    assert len(bench.stored()) == 9
    statement = close_period(bench.collector, PERIOD, early=True)
    assert (statement.erased, statement.ids.num) == (1, 9)
    assert erase(TASK.digest, reports[1].report_id, reports[1].to_bytes()[-4:]) == ""


def test_a_period_closes_once_and_its_estimate_is_that_of_a_file(bench, tmp_path):
    noise = Noise()
    reports = [made(noise, purpose=at % 2, tier=at // 2 % 2, slot=10 + at % 2) for at in range(60)]
    bench.send(*reports[:50])
    bench.send(*reports)
    with pytest.raises(Refusal, match="may still come"):
        close_period(bench.collector, PERIOD)
    with pytest.raises(Refusal, match="not closed"):
        statement_of(bench.store, PERIOD)
    with pytest.raises(ParameterError, match="no reports"):
        close_period(bench.collector, Period(TASK.digest, DAY + 1))
    with pytest.raises(Refusal, match="still needed"):
        erase_period(bench.collector, PERIOD)
    assert list(due_work(bench.collector)) == []
    late, bench.now = made(noise), SCHEDULE.closes(DAY) + 61.0
    assert list(due_work(bench.collector)) == [("close", PERIOD)]
    key = tmp_path / "key.pem"
    _write_key(key)
    statement = close_period(bench.collector, PERIOD, sign=key)
    total = 0
    for report in reports:
        total ^= int.from_bytes(hashlib.sha256(report.report_id).digest(), "big")
    assert statement.ids.xor == f"{total:064x}"
    assert sum(sum(tiers.values()) for tiers in statement.reports.values()) == statement.ids.num == 60
    statement.check_signature([bytes.fromhex(statement.signature.public_key)])
    with pytest.raises(CheckFailed):
        statement.check_signature([bytes(32)])
    with pytest.raises(CheckFailed):
        statement.model_copy(update={"blocks": 9}).check_signature([bytes.fromhex(statement.signature.public_key)])
    assert close_period(bench.collector, PERIOD) == statement
    bench.now = NOON
    assert codes(bench.send(late)) == {"closed": 1}
    assert bench.store.sent(PERIOD) == {}
    release = estimate_days(bench.collector, TASK.digest, DAY, DAY, allow_noise=True)
    write_reports(tmp_path / "all.bin", [*reports, *reports[:5]])
    of_file = estimate(collect([tmp_path / "all.bin"], TASK).tallies, TASK, allow_noise=True)
    assert release.data.equals(of_file.data)
    assert release.certificate.estimates.reports == of_file.certificate.estimates.reports
    assert "senders have tokens" in release.certificate.assumptions
    assert "network not covered" not in release.certificate.assumptions
    note_estimated(bench.collector, PERIOD)
    assert bench.collector.states(TASK.digest) == {DAY: ESTIMATED}
    bench.now = NOON + 40 * 86_400
    assert list(due_work(bench.collector)) == [("erase", PERIOD)]
    erase_period(bench.collector, PERIOD)
    assert list(due_work(bench.collector)) == []
    assert bench.stored() == []
    again = estimate_days(bench.collector, TASK.digest, DAY, DAY, allow_noise=True)  # tallies stay
    assert again.data.equals(release.data)


def _write_key(path):
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    private = Ed25519PrivateKey.generate()
    path.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    path.chmod(0o600)


def test_closing_that_was_interrupted_goes_on(place):
    noise, bench = Noise(), Bench(place)
    bench.send(made(noise), made(noise))
    bench.collector.run(lambda: bench.collector.seal(PERIOD)).result()
    bench.collector.stop()
    again = Bench(place, known=True)
    try:
        assert codes(again.send(made(noise))) == {"closed": 1}
        assert list(due_work(again.collector)) == [("close", PERIOD)]
        assert close_period(again.collector, PERIOD).ids.num == 2
        assert again.collector.states(TASK.digest) == {DAY: CLOSED}
    finally:
        again.collector.stop()


def test_a_period_is_tallied_once_however_many_close_it(bench, monkeypatch):
    noise, num, tally = Noise(), [], periods.tally_reports
    bench.send(*(made(noise) for _ in range(4)))

    def counted(*given, **more):
        num.append(None)
        return tally(*given, **more)

    monkeypatch.setattr(periods, "tally_reports", counted)
    with ThreadPoolExecutor(4) as pool:
        statements = list(pool.map(lambda _: close_period(bench.collector, PERIOD, early=True), range(4)))
    assert (len(num), len({statement.digest for statement in statements})) == (1, 1)


def test_a_full_disk_loses_nothing(tmp_path):
    """SQLite cannot grow, then can again."""
    noise, bench = Noise(), Bench(tmp_path / "data")
    try:
        assert bench.send(made(noise)).accepted == 1
        database = bench.store.of(PERIOD)
        ((pages,),) = database.rows("PRAGMA page_count")
        database._connection.execute(f"PRAGMA max_page_count = {pages}")
        reports = [made(noise) for _ in range(2_000)]
        assert bench.send(*reports) is None
        assert bench.send(*reports).accepted == 2_000  # the connection was opened again, without the limit
        assert len(set(bench.stored())) == 2_001
    finally:
        bench.collector.stop()


def test_the_store_of_another_version_is_refused(tmp_path):
    bench = Bench(tmp_path / "data")
    bench.store.book.write("UPDATE about SET format = 99")
    bench.collector.stop()
    with pytest.raises(StoreError, match="Update Dunnage"):
        Store.open(tmp_path / "data")
    with pytest.raises(StoreError, match="cannot be used"):
        Store.open(tmp_path / "data" / "collector.sqlite")
    with pytest.raises(StoreError):
        Store.open("postgresql://127.0.0.1:1/nowhere")


def test_after_closing_nothing_says_who_sent(tmp_path):
    noise, bench = Noise(), Bench(tmp_path / "data")
    for name in ("secret-truck-1", "secret-truck-2"):
        bench.send(made(noise), made(noise), sender=name)
    folder = tmp_path / "data" / "periods"
    assert any(b"secret-truck" in path.read_bytes() for path in folder.rglob("*") if path.is_file())
    close_period(bench.collector, PERIOD, early=True)
    bench.collector.stop()
    assert not any(b"secret-truck" in path.read_bytes() for path in folder.rglob("*") if path.is_file())
    ((columns,),) = [
        sqlite3.connect(path).execute("SELECT sql FROM sqlite_master WHERE name = 'blocks'").fetchall()
        for path in folder.rglob("*.sqlite")
    ]
    assert not any(word in columns[0].lower() for word in ("time", "address", "sender", "device"))


def dump(store):
    """Return all rows of all tables, of the book and of all periods."""
    tables = ("tasks", "periods", "codes", "devices", "alarms", "looks", "people", "blocks", "erased", "sent")
    rows = {}
    for table in tables:
        database = store.of(PERIOD) if table in ("blocks", "erased", "sent") else store.book
        plain = database.rows(f"SELECT * FROM {table}")
        rows[table] = sorted(tuple(bytes(x) if isinstance(x, memoryview) else x for x in row) for row in plain)
    return rows


@pytest.mark.parametrize("senders", ["token", "gateway", "unlinkable"])
def test_what_is_stored_does_not_depend_on_who_sent_what(place, senders):
    """Vehicles send each other's reports: after closing, every row of every table is the same."""
    noise, names = Noise(), [f"truck-{at}" for at in range(6)]
    reports = {name: [made(noise, purpose=at % 2) for at in range(4)] for name in names}
    dumps, open_dumps = [], []
    for shift in (0, 1, 5):
        bench = Bench(place, senders=senders, noise=Noise(seed=1))
        with bench.together():
            for at in range(6):  # requests come in the same order, from other vehicles
                sender = "" if senders == "unlinkable" else names[(at + shift) % 6]
                bench.put(body_of(*reports[names[at]]), sender=sender, group="north" if at % 2 else "")
        bench.collector.run(lambda: None).result()  # all of them are stored
        open_dumps.append(dump(bench.store))
        statement = close_period(bench.collector, PERIOD, early=True)
        assert statement.ids.num == 24
        dumps.append(dump(bench.store))
        bench.collector.stop()
        if isinstance(place, Path):
            shutil.rmtree(place)
        else:
            emptied(place)
    assert dumps[0] == dumps[1] == dumps[2]
    assert dumps[0]["sent"] == []
    assert len(dumps[0]["blocks"]) == 2  # one for each group, whoever is in it
    if senders == "unlinkable":
        assert open_dumps[0] == open_dumps[1]  # not even before
    else:  # while it is open: how many reports each sent, in a table of its own
        assert open_dumps[0]["blocks"] == open_dumps[1]["blocks"]
        assert [row[2:] for row in open_dumps[0]["sent"]] == [(name, 4) for name in names]


def test_groups_have_blocks_of_their_own(place, monkeypatch):
    noise, bench, append = Noise(), Bench(place), stores.Store.append
    mine = {name: [made(noise) for _ in range(3)] for name in ("", "north", "south")}

    def send():
        with bench.together():
            numbers = [bench.put(body_of(*own), group=name) for name, own in mine.items()]
        return [bench.answer(number) for number in numbers]

    def lost(*given):
        append(*given)
        raise StoreError("lost")

    with monkeypatch.context() as patch:
        patch.setattr(stores.Store, "append", lost)
        assert send() == [None] * 3
    assert [codes(answer) for answer in send()] == [{"replayed": 3}] * 3  # all three were stored
    gone = mine["north"][1]
    assert bench.collector.erase_report(TASK.digest, gone.report_id, gone.to_bytes()[-4:])
    left = {name: {report.report_id for report in own} - {gone.report_id} for name, own in mine.items()}
    for name, ids in left.items():
        blocks = [block.frames for block, _ in bench.store.blocks(PERIOD, name)]
        assert {Report.from_bytes(one).report_id for frames in blocks for one in split_frames(frames)} == ids
    assert bench.store.groups(PERIOD) == {"": 3, "north": 3, "south": 3}
    bench.collector.stop()
    again = Bench(place, known=True)
    try:
        assert again.collector.num_ids == 9
        assert again.collector.progress(PERIOD)["blocks"] == 3
        again.store.of(PERIOD).write("UPDATE blocks SET public_group = ? WHERE seq = 2", "west")
        with pytest.raises(StoreError, match="was changed"):  # the group is part of the chain
            again.stored()
        again.store.of(PERIOD).write("UPDATE blocks SET public_group = ? WHERE seq = 2", "north")
    finally:
        again.collector.stop()


def test_erased_reports_leave_the_files(tmp_path):
    noise, bench = Noise(), Bench(tmp_path / "data")
    reports = [made(noise) for _ in range(20)]
    bench.send(*reports)
    bench.collector.erase_report(TASK.digest, reports[3].report_id, reports[3].to_bytes()[-4:])
    bench.collector.stop()
    content = b"".join(path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file())
    assert reports[4].to_bytes() in content
    assert reports[3].to_bytes() not in content


@settings(max_examples=200)
@given(st.lists(st.tuples(st.sampled_from(["admit", "forget"]), st.lists(st.integers(0, 40), max_size=30))))
def test_ids_agree_with_a_set(steps):
    ids, known = IdSet(), set[int]()
    for kind, numbers in steps:
        high, low = np.array(numbers, dtype=np.uint64) // 7, np.array(numbers, dtype=np.uint64) % 7
        if kind == "admit":
            status = np.zeros(len(numbers), dtype=np.uint8)
            due = []
            for number in numbers:
                due.append(REPLAYED if number in known else COUNTED)
                known.add(number)
            ids.admit(high, low, status, np.ones(len(numbers), dtype=np.bool_))
            assert status.tolist() == due
        else:
            there = sorted(set(numbers) & known)
            known -= set(there)
            ids.forget(np.array(there, dtype=np.uint64) // 7, np.array(there, dtype=np.uint64) % 7)
        assert ids.num == len(known)


def test_many_ids_and_room_for_them():
    generator = np.random.default_rng(1)
    ids = IdSet()
    words = generator.integers(0, 2**64, (60_000, 2), dtype=np.uint64)
    own = np.ones(20_000, dtype=np.bool_)
    for at in range(0, 60_000, 20_000):
        part = words[at : at + 20_000]
        assert ids.admit(part[:, 0].copy(), part[:, 1].copy(), np.zeros(20_000, np.uint8), own) == 20_000
    assert ids.admit(words[:20_000, 0].copy(), words[:20_000, 1].copy(), np.zeros(20_000, np.uint8), own) == 0
    assert ids.num == 60_000


SHARP = (Tier(name="basic", epsilon="6"), Tier(name="strict", epsilon="4"))
BLUNT = (Tier(name="basic", epsilon="2.5"), Tier(name="strict", epsilon="2"))
UNARY = replace(PLACES, tiers=BLUNT, parameters={"method": "optimised-unary"})
SEEN = truck_task(replace(TELEMETRY, tiers=SHARP), UNARY, schedule=SCHEDULE)


@pytest.fixture(scope="module")
def closed():
    """Two closed days of a fleet that is a little faster on the second; a third with forged reports."""
    with tempfile.TemporaryDirectory() as folder:
        bench, noise = Bench(Path(folder) / "data"), Noise()
        bench.collector.add_task(SEEN, "gateway")
        mechanisms = [mechanism_of(SEEN, purpose) for purpose in SEEN.purposes]
        for day in range(DAY, DAY + 3):
            bench.now, reports = NOON + (day - DAY) * 86_400.0, []
            for at in range(400):
                speed = {"speed": 40.0 + 60 * (day > DAY) + at % 10, "load": 5.0}
                for number, value in enumerate((speed, (104.0, 30.6))):
                    tier = SEEN.slot_tiers(SEEN.purposes[number])[at % 2]
                    payload = mechanisms[number].perturb(value, tier=tier, noise=noise)
                    if day == DAY + 2 and number == 1 and at < 300:
                        payload = (1 << 5).to_bytes(len(payload), "little")  # one bit: a cell where nobody is
                    facts = {"purpose": number, "tier": at % 2, "day": day, "slot": 11, "payload": payload}
                    reports.append(Report(task=SEEN.prefix, report_id=noise.draw_bytes(16), **facts))
            assert bench.send(*reports, task=SEEN).accepted == 800
            if day == DAY:
                rules = {"rules": ["mean of speed > 60", "cell 5 of places > 1%"], "sure": 0.99, "looks": 2}
                set_alarms(bench.collector, SEEN.digest, AlarmRules(**rules))
            close_period(bench.collector, Period(SEEN.digest, day), early=True)
            look_at_period(bench.collector, Period(SEEN.digest, day))
        yield bench.collector
        bench.collector.stop()


def test_views_and_alarms_of_closed_days(closed):
    by_day = view(SEEN, stored_sources(closed, SEEN.digest, DAY, DAY + 2), "day")
    means = [line for line in by_day.lines if line["quantity"] == "mean" and line["attribute"] == "speed"]
    assert [line["day"] for line in means] == ["2026-11-16", "2026-11-17", "2026-11-18"]
    looks = looks_of(closed, SEEN.digest)
    assert [(look["day"], look["alarm"]) for look in looks if "speed" in look["rule"]] == [
        ("2026-11-17", True),  # the third day is beyond the stated number of looks
        ("2026-11-16", False),
    ]
    assert not any(look["alarm"] for look in looks if "cell" in look["rule"])
    with pytest.raises(Refusal, match="no day among these"):
        stored_sources(closed, SEEN.digest, DAY + 9, DAY + 9)
    with pytest.raises(ParameterError, match="a rule reads like"):
        set_alarms(closed, SEEN.digest, AlarmRules(rules=["truck 7 is late"], sure=0.99, looks=365))
    assert len(alarms_of(closed, SEEN.digest).rules) == 2


def test_forged_reports_are_noticed_at_closing(closed):
    cautions = [statement_of(closed.store, Period(SEEN.digest, day)).cautions for day in range(DAY, DAY + 3)]
    assert cautions[:2] == [[], []]
    assert cautions[2]
    over_days = estimate_days(closed, SEEN.digest, DAY, DAY + 1, confidence=1 - 1e-9)
    (mean,) = [row for row in over_days.data.to_pylist() if row["quantity"] == "mean" and row["attribute"] == "speed"]
    assert mean["lower"] <= 74.5 <= mean["upper"]
    assert sum(sum(tiers.values()) for tiers in over_days.certificate.estimates.reports.values()) == 1_600


def test_the_chain_is_what_the_documents_say():
    """Written out once more, so that others can check a store: docs/collector.md."""
    head = Head.first(PERIOD)
    assert head == (0, hashlib.sha256(f"dunnage blocks 1\n{TASK.digest} {DAY}".encode()).digest())
    digest = hashlib.sha256(b"frames").digest()
    assert head.next(2, digest) == (1, hashlib.sha256(head.chain + b" 1 2 " + digest).digest())
    assert head.next(2, digest, "north") == (1, hashlib.sha256(head.chain + b" 1 2 " + digest + b"north").digest())
    reports = [made(Noise()), made(Noise())]
    assert [Report.from_bytes(one) for one in split_frames(body_of(*reports))] == reports
