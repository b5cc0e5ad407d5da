# SPDX-License-Identifier: Apache-2.0
"""Store: what a collector keeps, in SQLite files or in PostgreSQL, behind one interface.

Reports are kept in *blocks*, one for all requests that were committed together, or one for each public group of their
senders. Blocks are only ever appended, and each carries the SHA-256 of its reports, joined to that of the block before
it: the *chain*. A block has no address, no time and no sender. How many reports a sender sent in a period is counted in
a table of its own, until the period closes.

SQLite keeps tasks, periods, devices and people in ``collector.sqlite``, and the blocks of each task and period in a
file of their own. A commit is on disk when it returns (write-ahead log, ``synchronous=FULL``). PostgreSQL keeps
everything in the schema ``collector``.

The number of a block in its period is its primary key. A second collector on the same store therefore fails at its
first block, finds a chain there that is not its own, and stops.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from dunnage.devices.report import day_text
from dunnage.errors import StoreError
from dunnage.folders import lock, sync_folder

BOOK_FILE, LOCK_FILE, PERIODS_FOLDER = "collector.sqlite", "collector.lock", "periods"
POSTGRES = ("postgresql://", "postgres://")
FORMAT = 1
_CHAIN = b"dunnage blocks 1\n"
ALONE_SECONDS = 5  # how long to wait for another process to end
_PART = 64  # blocks that are read at once
_PART_BYTES = 1 << 24

_BOOK = """
CREATE TABLE IF NOT EXISTS about (format INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS tasks (digest TEXT PRIMARY KEY, task TEXT NOT NULL, senders TEXT NOT NULL,
    retention_days INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS periods (task TEXT NOT NULL, day INTEGER NOT NULL, state TEXT NOT NULL, statement TEXT,
    tallies TEXT, closed_at INTEGER, PRIMARY KEY (task, day));
CREATE TABLE IF NOT EXISTS codes (hash BYTES PRIMARY KEY, task TEXT NOT NULL, name TEXT NOT NULL,
    vehicles INTEGER NOT NULL, expires INTEGER NOT NULL, public_group TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS devices (task TEXT NOT NULL, name TEXT NOT NULL, hash BYTES, vehicles INTEGER NOT NULL,
    public_group TEXT NOT NULL, PRIMARY KEY (task, name));
CREATE TABLE IF NOT EXISTS alarms (task TEXT PRIMARY KEY, rules TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS looks (task TEXT NOT NULL, day INTEGER NOT NULL, result TEXT NOT NULL,
    PRIMARY KEY (task, day));
CREATE TABLE IF NOT EXISTS people (hash BYTES PRIMARY KEY, name TEXT NOT NULL, roles TEXT NOT NULL);
"""
_PERIOD = """
CREATE TABLE IF NOT EXISTS blocks (task TEXT NOT NULL, day INTEGER NOT NULL, seq INTEGER NOT NULL, num INTEGER NOT NULL,
    public_group TEXT NOT NULL, digest BYTES NOT NULL, chain BYTES NOT NULL, left_digest BYTES, frames BYTES NOT NULL,
    PRIMARY KEY (task, day, seq));
CREATE TABLE IF NOT EXISTS erased (task TEXT NOT NULL, day INTEGER NOT NULL, id BYTES NOT NULL,
    PRIMARY KEY (task, day, id));
CREATE TABLE IF NOT EXISTS sent (task TEXT NOT NULL, day INTEGER NOT NULL, sender TEXT NOT NULL, num INTEGER NOT NULL,
    PRIMARY KEY (task, day, sender));
"""


class Period(NamedTuple):
    task: str  # digest
    day: int  # counted from 1 January 1970


class Part(NamedTuple):
    """Reports that are to be one block."""

    group: str  # public; empty if none is known
    num: int
    frames: bytes


class Head(NamedTuple):
    """The last block of a period; the first one follows number 0."""

    seq: int
    chain: bytes

    @classmethod
    def first(cls, period: Period) -> Head:
        return cls(0, hashlib.sha256(_CHAIN + f"{period.task} {period.day}".encode()).digest())

    def next(self, num: int, digest: bytes, group: str = "") -> Head:
        line = f" {self.seq + 1} {num} ".encode()
        return Head(self.seq + 1, hashlib.sha256(self.chain + line + digest + group.encode()).digest())

    def after(self, parts: Iterable[Part]) -> Head:
        head = self
        for group, num, frames in parts:
            head = head.next(num, hashlib.sha256(frames).digest(), group)
        return head


class Block(NamedTuple):
    seq: int
    num: int
    frames: bytes


class Database(ABC):
    """One connection, opened when needed; whatever fails closes it, which undoes what was not committed."""

    def __init__(self, *tables: str) -> None:
        self._tables, self._turn = tables, threading.RLock()
        self._connection: Any = None

    @contextmanager
    def turn(self) -> Iterator[Database]:
        """Do all that is done in the block, or nothing of it; it is on disk when the block ends."""
        with self._turn:
            try:
                if self._connection is None:
                    self._connection = self._open()
                self.execute("BEGIN")
                yield self
                self.execute("COMMIT")
            except BaseException as error:
                self.close()
                if isinstance(error, self.errors):
                    raise StoreError(f"the store cannot be used now: {self._reason(error)}.") from None
                raise

    def execute(self, sql: str, values: Sequence[object] = ()) -> Any:
        return self._connection.execute(sql, values)

    def rows(self, sql: str, *values: object) -> list[Any]:
        with self.turn():
            return list(self.execute(sql, values).fetchall())

    def write(self, sql: str, *values: object) -> int:
        with self.turn():
            return int(self.execute(sql, values).rowcount)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(*self.errors):
                connection.close()

    def purge(self) -> None:
        """Overwrite what was deleted, where the database would keep it for later readers of its files."""
        with self._turn, suppress(*self.errors):
            if self._connection is not None and self._overwrite:
                self.execute(self._overwrite)

    _overwrite = ""
    errors: tuple[type[Exception], ...] = (OSError,)

    @abstractmethod
    def _open(self) -> Any:
        """Connect, and create the tables that are missing."""

    def _reason(self, error: BaseException) -> str:
        return type(error).__name__  # its words may hold what was to be stored


class SqliteFile(Database):
    errors = (sqlite3.Error, OSError)
    _overwrite = "PRAGMA wal_checkpoint(TRUNCATE)"

    def __init__(self, path: Path, *tables: str) -> None:
        super().__init__(*tables)
        self.path = path

    def _open(self) -> Any:
        is_new = not self.path.exists()
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=10)
        try:
            if is_new:
                connection.execute("PRAGMA page_size = 16384")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA secure_delete = ON")  # what is erased is overwritten
            for table in self._tables:
                connection.executescript(table.replace("BYTES", "BLOB"))
        except BaseException:
            connection.close()
            raise
        if is_new:
            sync_folder(self.path.parent)
        return connection

    def _reason(self, error: BaseException) -> str:
        return str(error) if isinstance(error, sqlite3.OperationalError) else super()._reason(error)


class Postgres(Database):
    def __init__(self, url: str, *tables: str, schema: str = "collector", alone: bool = False) -> None:
        super().__init__(*tables)
        self._schema, self._alone = schema, alone  # alone: no other process may use the schema
        try:
            import psycopg
        except ImportError:
            raise StoreError("PostgreSQL needs psycopg. Install dunnage[postgres].") from None
        self._url, self._psycopg = url, psycopg
        self.errors = (psycopg.Error, OSError)

    def _open(self) -> Any:
        connection = self._psycopg.connect(self._url, autocommit=True, connect_timeout=5)
        try:
            if self._alone:  # for as long as the connection lives; one that just ended is waited for
                connection.execute(f"SET lock_timeout TO '{ALONE_SECONDS}s'")
                connection.execute("SELECT pg_advisory_lock(743513)")
                connection.execute("RESET lock_timeout")
            # Two collectors that start at once would both create the tables.
            connection.execute("SELECT pg_advisory_lock(743512)")
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {self._schema}")
            connection.execute(f"SET search_path TO {self._schema}")
            connection.execute("SET synchronous_commit TO on")
            for table in self._tables:
                connection.execute(table.replace("BYTES", "BYTEA").replace("INTEGER", "BIGINT"))
            connection.execute("SELECT pg_advisory_unlock(743512)")
        except BaseException:
            connection.close()
            raise
        return connection

    def execute(self, sql: str, values: Sequence[object] = ()) -> Any:
        return self._connection.execute(sql.replace("?", "%s"), values or None)

    def _reason(self, error: BaseException) -> str:
        taken = isinstance(error, self._psycopg.errors.LockNotAvailable)
        return "another studio uses this database" if taken else super()._reason(error)


class Store(ABC):
    """Tasks, periods, devices and people in ``book``; blocks in the database of their period."""

    book: Database

    @classmethod
    def open(cls, place: str | os.PathLike[str]) -> Store:
        """Open a folder, or a database by its ``postgresql://`` address."""
        store = PostgresStore(str(place)) if str(place).startswith(POSTGRES) else SqliteStore(Path(place))
        try:
            known = store.book.rows("SELECT format FROM about")
            if not known:
                store.book.write("INSERT INTO about VALUES (?)", FORMAT)
            elif known[0][0] != FORMAT:
                raise StoreError("the store has a format that this version does not know. Update Dunnage.")
        except BaseException:
            store.close()
            raise
        return store

    @abstractmethod
    def of(self, period: Period) -> Database:
        """Return the database of a period; it appears when it is first used."""

    @abstractmethod
    def drop(self, period: Period) -> None:
        """Erase all blocks of a period."""

    def close(self) -> None:
        self.book.close()

    def append(self, period: Period, head: Head, parts: Sequence[Part], by_sender: Mapping[str, int]) -> Head:
        """Append blocks, all or none; when this returns, they are on disk."""
        with self.of(period).turn() as database:
            for group, num, frames in parts:
                digest = hashlib.sha256(frames).digest()
                head = head.next(num, digest, group)
                database.execute(
                    "INSERT INTO blocks (task, day, seq, num, public_group, digest, chain, frames) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    (*period, head.seq, num, group, digest, head.chain, frames),
                )
            for sender, count in by_sender.items():
                database.execute(
                    "INSERT INTO sent (task, day, sender, num) VALUES (?, ?, ?, ?) "
                    "ON CONFLICT (task, day, sender) DO UPDATE SET num = sent.num + excluded.num",
                    (*period, sender, count),
                )
        return head

    def chain_at(self, period: Period, seq: int) -> bytes | None:
        rows = self.of(period).rows("SELECT chain FROM blocks WHERE task = ? AND day = ? AND seq = ?", *period, seq)
        return bytes(rows[0][0]) if rows else None

    def frames_at(self, period: Period, seq: int) -> bytes:
        rows = self.of(period).rows("SELECT frames FROM blocks WHERE task = ? AND day = ? AND seq = ?", *period, seq)
        return bytes(rows[0][0]) if rows else b""

    def groups(self, period: Period) -> dict[str, int]:
        """Return how many reports of each public group came in a period; empty: of senders without one."""
        sql = "SELECT public_group, sum(num) FROM blocks WHERE task = ? AND day = ? GROUP BY public_group"
        return {group: int(num) for group, num in self.of(period).rows(sql, *period)}

    def blocks(self, period: Period, group: str | None = None) -> Iterator[tuple[Block, Head]]:
        """Yield the blocks of a period, checked against their digests and the chain; of one group, digests alone."""
        head, database = Head.first(period), self.of(period)
        own, names = ("", period) if group is None else (" AND public_group = ?", (*period, group))
        where = f"FROM blocks WHERE task = ? AND day = ?{own} AND seq > ?"
        sizes = f"SELECT seq, length(frames) {where} ORDER BY seq LIMIT ?"
        some = f"SELECT seq, num, public_group, digest, chain, left_digest, frames {where} AND seq <= ? ORDER BY seq"
        while True:
            last, total = head.seq, 0
            for seq, size in database.rows(sizes, *names, head.seq, _PART):
                total += size
                if total > _PART_BYTES and last > head.seq:
                    break
                last = seq
            if last == head.seq:
                return
            for seq, num, of, digest, chain, left, frames in database.rows(some, *names, head.seq, last):
                content = bytes(frames)
                fits = hashlib.sha256(content).digest() == bytes(digest if left is None else left)
                head = head.next(num, bytes(digest), of) if group is None else Head(seq, bytes(chain))
                if not fits or (head.seq, head.chain) != (seq, bytes(chain)):
                    raise StoreError(
                        f"block {seq} of {day_text(period.day)} was changed outside the collector, or one is missing. "
                        "Restore the store from a backup."
                    )
                yield Block(seq, num, content), head

    def erased(self, period: Period) -> list[bytes]:
        rows = self.of(period).rows("SELECT id FROM erased WHERE task = ? AND day = ? ORDER BY id", *period)
        return [bytes(one) for (one,) in rows]

    def sent(self, period: Period) -> dict[str, int]:
        return dict(self.of(period).rows("SELECT sender, num FROM sent WHERE task = ? AND day = ?", *period))

    def rewrite(self, period: Period, seq: int, frames: bytes, erased: bytes) -> None:
        """Replace the reports of a block by those that are left, and note the id of the one that is erased."""
        with self.of(period).turn() as database:
            database.execute(
                "UPDATE blocks SET frames = ?, left_digest = ? WHERE task = ? AND day = ? AND seq = ?",
                (frames, hashlib.sha256(frames).digest(), *period, seq),
            )
            database.execute(
                "INSERT INTO erased (task, day, id) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", (*period, erased)
            )
        self.of(period).purge()

    def forget_senders(self, period: Period, sender: str | None = None) -> None:
        """Forget how many reports a sender sent, or all of them."""
        one, values = (" AND sender = ?", (sender,)) if sender is not None else ("", ())
        self.of(period).write(f"DELETE FROM sent WHERE task = ? AND day = ?{one}", *period, *values)
        self.of(period).purge()


class SqliteStore(Store):
    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._folder = folder / PERIODS_FOLDER
            self._folder.mkdir(mode=0o700, exist_ok=True)
            sync_folder(folder)
            self._lock = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StoreError(f"{folder} cannot be used: {error.strerror}. Name another folder with --data.") from None
        try:
            lock(self._lock)
        except OSError:
            os.close(self._lock)
            raise StoreError(f"another collector uses {folder}. Stop it first, or name another folder.") from None
        self.book = SqliteFile(folder / BOOK_FILE, _BOOK)
        self._periods: dict[Period, SqliteFile] = {}
        self._turn = threading.Lock()

    def of(self, period: Period) -> Database:
        with self._turn:
            if period not in self._periods:
                folder = self._folder / period.task
                if not folder.exists():
                    folder.mkdir(mode=0o700)
                    sync_folder(self._folder)
                self._periods[period] = SqliteFile(folder / f"{day_text(period.day)}.sqlite", _PERIOD)
            return self._periods[period]

    def drop(self, period: Period) -> None:
        database = self.of(period)
        assert isinstance(database, SqliteFile)
        database.close()
        with self._turn:
            del self._periods[period]
        for ending in ("", "-wal", "-shm"):
            Path(f"{database.path}{ending}").unlink(missing_ok=True)
        sync_folder(database.path.parent)

    def close(self) -> None:
        super().close()
        for database in self._periods.values():
            database.close()
        os.close(self._lock)


class PostgresStore(Store):
    def __init__(self, url: str) -> None:
        self.book = Postgres(url, _BOOK)
        self._blocks = Postgres(url, _PERIOD)  # of its own, so that nobody waits for the writer

    def of(self, period: Period) -> Database:
        return self._blocks

    def drop(self, period: Period) -> None:
        with self._blocks.turn() as database:
            for table in ("blocks", "erased", "sent"):
                database.execute(f"DELETE FROM {table} WHERE task = ? AND day = ?", (*period,))

    def close(self) -> None:
        super().close()
        self._blocks.close()
