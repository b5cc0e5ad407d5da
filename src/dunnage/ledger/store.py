# SPDX-License-Identifier: Apache-2.0
"""Where a ledger is kept: in memory, in a SQLite file that appears complete, private and only once, or in PostgreSQL.

All three give the same :class:`Session`, in which a spend is one transaction. A writer takes its turn first: of the
whole file in SQLite, of one dataset in PostgreSQL.
"""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from dunnage.errors import InputError, LedgerError, ParameterError, Refusal
from dunnage.folders import sync_folder
from dunnage.ledger.entries import COLUMNS, FORMAT, Entry
from dunnage.text import time_text

BUSY_SECONDS, _TURN_SECONDS = 60.0, 0.02
MEMORY = ":memory:"
OLD_COPY = "A copy forgets what was spent since it was made: use one only if nothing was published after that"
_APPLICATION_ID = 0x44554E4C  # "DUNL", in the header of every ledger
_SUPPORTED = 'a path, "sqlite:///path", "postgresql://user@host/database" or ":memory:"'
_POSTGRES = ("postgresql://", "postgres://")
_SCHEMAS = Path(__file__).with_name("sql")
_log = logging.getLogger("dunnage")


def is_postgres(url: str | os.PathLike[str]) -> bool:
    return os.fspath(url).startswith(_POSTGRES)


def location(url: str | os.PathLike[str]) -> Path | None:
    """Return the path that a URL names; None stands for memory or a server."""
    text = os.fspath(url)
    scheme = re.match(r"[A-Za-z][A-Za-z0-9+.-]*://|file:|sqlite:", text)
    if text in (MEMORY, f"sqlite:///{MEMORY}") or is_postgres(text):
        return None
    # A query would silently become part of the name, and so start a second, empty ledger.
    if scheme and (not text.startswith("sqlite:///") or "?" in text):
        raise LedgerError(f"a ledger cannot be kept at {text!r}, an unknown kind of address. Give {_SUPPORTED}.")
    path = text.removeprefix("sqlite:///")
    if not path.strip() or "\0" in path:
        raise LedgerError(f"a ledger needs a file name. Got {text!r}. Give {_SUPPORTED}.")
    return Path(path).absolute()  # a later change of the working folder must not lead to a second ledger


class Identity(NamedTuple):
    id: str  # random name of the ledger; it stays when the ledger is moved
    key: bytes  # under which digests of rows are kept


def new_identity() -> Identity:
    return Identity(secrets.token_hex(16), secrets.token_bytes(32))


class Session:
    """Entries of a ledger, within one transaction. The two databases differ in how they say a few things."""

    entries, same = "entries", "IS"

    def __init__(self, run: Callable[[str, Sequence[object]], list[Any]]) -> None:
        self.run = run

    @staticmethod
    def field(*names: str) -> str:
        return f"json_extract(body, '$.{'.'.join(names)}')"

    def identity(self) -> Identity:
        rows = self.run("SELECT id, key FROM ledger", [])
        with readable():
            ((name, key),) = rows
            return Identity(name, bytes.fromhex(key))

    def datasets(self) -> list[str]:
        rows = self.run(f"SELECT DISTINCT dataset FROM {self.entries}", [])
        with readable():
            return sorted(_text(name) for (name,) in rows)

    def where(self, clause: str, *values: object, last: int | None = None, few: bool = False) -> list[Entry]:
        """Return entries in their order; with ``last``, only so many of the last ones, the newest first.

        If ``few`` entries are expected, they are found by the clause and sorted then: PostgreSQL would otherwise look
        through all entries from the newest on.
        """
        by = "number + 0" if few else "number"
        order = f"ORDER BY {by}" if last is None else f"ORDER BY {by} DESC LIMIT {last}"
        rows = self.run(f"SELECT {', '.join(COLUMNS)} FROM {self.entries} WHERE {clause} {order}", values)
        with readable():
            return [
                Entry(
                    number=int(row[1]),
                    **{name: _text(cell) for name, cell in zip(COLUMNS, row, strict=True) if name != "number"},
                )
                for row in rows
            ]

    def last(self, clause: str, *values: object) -> Entry | None:
        return next(iter(self.where(clause, *values, last=1)), None)

    def head(self, dataset: str) -> Entry | None:
        return self.last("dataset = ?", dataset)

    def recognised(self, digest: str) -> list[tuple[str, str]]:
        """Return datasets that have spends on rows with this digest, and when."""
        entries = self.where(f"kind = 'spend' AND {self.field('rows', 'any_order')} = ?", digest)
        return [(entry.dataset, entry.at) for entry in entries]

    def may_read(self, dataset: str) -> bool:
        return True

    def contents(self) -> tuple[Identity, list[Entry]]:
        return self.identity(), [entry for name in self.datasets() for entry in self.where("dataset = ?", name)]

    def append(self, entry: Entry) -> None:
        marks = ", ".join("?" * len(COLUMNS))
        values = [getattr(entry, name) for name in COLUMNS]
        self.run(f"INSERT INTO {self.entries} ({', '.join(COLUMNS)}) VALUES ({marks})", values)


def _text(cell: object) -> str:
    """Refuse cells that are no text: SQLite keeps whatever it is given."""
    if not isinstance(cell, str):
        raise TypeError
    return cell


@contextmanager
def readable() -> Iterator[None]:
    try:
        yield
    except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError) as error:
        raise LedgerError(f"the ledger has a row that cannot be read. {OLD_COPY}.") from error


# SQLite

_MEANINGS: Mapping[int, str] = {
    sqlite3.SQLITE_READONLY: "cannot be written. Get permission to write it; a copy would be a second budget",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened. Check that it exists and that you may write the file and its folder",
    sqlite3.SQLITE_FULL: "cannot be written: the disk is full. Free some space and try again",
    sqlite3.SQLITE_NOTADB: "is not a Dunnage ledger. It was not touched. Name another file",
    sqlite3.SQLITE_CORRUPT: f"is damaged. {OLD_COPY}",
}


@contextmanager
def _reported(name: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # without the extended part
        meaning = _MEANINGS.get(code, "cannot be used. Check the file and its folder")
        if code not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise LedgerError(f"the ledger {name} {meaning}. Got: {error}.") from error
        raise LedgerError(
            f"the ledger {name} stayed locked by another process for {BUSY_SECONDS:g} seconds. Nothing was spent. "
            "Wait for that process or stop it, then try again."
        ) from error
    except UnicodeDecodeError as error:  # SQLite quotes what it cannot read
        raise LedgerError(f"the ledger {name} {_MEANINGS[sqlite3.SQLITE_CORRUPT]}.") from error
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise LedgerError(f"the ledger {name} cannot be used. Got: {reason}. Check the file and its folder.") from error


@contextmanager
def _transaction(database: sqlite3.Connection, begin: str) -> Iterator[Session]:
    # SQLite asks less and less often the longer it waits, so that newcomers are first. Here all have the same chance.
    database.execute("PRAGMA busy_timeout = 0")
    for tries in range(int(BUSY_SECONDS / _TURN_SECONDS) + 1):
        try:
            database.execute(begin)
            break
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or tries >= int(BUSY_SECONDS / _TURN_SECONDS):
                raise
            time.sleep(_TURN_SECONDS)
    database.execute(f"PRAGMA busy_timeout = {int(BUSY_SECONDS * 1000)}")
    try:
        yield Session(lambda sql, values: database.execute(sql, values).fetchall())
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


def _fresh(name: str = MEMORY) -> sqlite3.Connection:
    return sqlite3.connect(
        name, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, uri=name != MEMORY
    )


def _make_tables(database: sqlite3.Connection, identity: Identity, entries: Sequence[Entry] = ()) -> None:
    """Create the tables of this format in a database, within the transaction that is open there."""
    statement = ""
    for line in (_SCHEMAS / f"sqlite-{FORMAT}.sql").read_text(encoding="utf-8").splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            database.execute(statement)
            statement = ""
    database.execute("INSERT INTO ledger VALUES (?, ?)", [identity.id, identity.key.hex()])
    session = Session(lambda sql, values: database.execute(sql, values).fetchall())
    for entry in entries:
        session.append(entry)


class MemoryStore:
    name, path = MEMORY, None

    def __init__(self, identity: Identity | None = None, entries: Sequence[Entry] = ()) -> None:
        self.database = _fresh()
        _make_tables(self.database, identity or new_identity(), entries)
        self._turn = threading.RLock()
        self.close = weakref.finalize(self, self.database.close)

    def exists(self) -> bool:
        return True

    @contextmanager
    def reading(self, begin: str = "BEGIN") -> Iterator[Session]:
        with self._turn, _reported(self.name), _transaction(self.database, begin) as session:
            yield session

    def writing(self, dataset: str) -> AbstractContextManager[Session]:
        return self.reading("BEGIN IMMEDIATE")


class FileStore:
    # The file is opened for each use: no connection crosses a fork or a thread, and a file that was moved away is not
    # written to unseen. Only SQLite opens it, because closing it elsewhere in this process would drop SQLite's locks.
    def __init__(self, path: Path, *, read_only: bool) -> None:
        self.path, self.read_only, self.name = path, read_only, str(path)
        with _reported(self.name):
            self._seen = path.exists()
        if self._seen:
            with self.reading():
                pass
        elif read_only:
            raise LedgerError(f"there is no ledger at {path}. Nothing was created. Name an existing ledger.")
        elif not path.parent.is_dir():
            raise LedgerError(f"the ledger {path} cannot be created: its folder does not exist. Create it first.")

    def exists(self) -> bool:
        return self._seen or self.path.exists()

    def close(self) -> None:
        """Do nothing: no connection stays open."""

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """Give a consistent view of the ledger; an empty one before the first spend."""
        with _reported(self.name):
            self._seen = self.exists()
            if not self._seen:
                with closing(MemoryStore()) as empty, empty.reading() as session:
                    yield session
                return
            with closing(_opened(self.path)) as database, _transaction(database, "BEGIN") as session:
                if _format(database) == FORMAT:
                    yield session
                    return
                with closing(MemoryStore(entries=_upgraded(database))) as copy, copy.reading() as session:
                    yield session

    @contextmanager
    def writing(self, dataset: str) -> Iterator[Session]:
        self._check_writable()
        with _reported(self.name):
            # A ledger that was there once is never created again: its spends would be forgotten.
            if not self._seen and not self.path.exists():
                self.create()
            self._seen = True
            with self._write() as database, _transaction(database, "BEGIN IMMEDIATE") as session:
                if (number := _format(database)) < FORMAT:
                    raise LedgerError(
                        f"the ledger {self.name} has format {number}. Nothing was spent. Bring it to format {FORMAT} "
                        f"once, with its history: dunnage ledger upgrade {self.name}"
                    )
                yield session

    def _check_writable(self) -> None:
        if self.read_only:
            raise LedgerError(f"the ledger {self.name} was opened for reading only. Open it with Ledger(...) to spend.")

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        with closing(_opened(self.path)) as database:
            database.execute("PRAGMA query_only = OFF")
            database.execute("PRAGMA journal_mode = DELETE").close()  # leaves no second file behind
            yield database

    def create(self, identity: Identity | None = None, entries: Sequence[Entry] = ()) -> None:
        """Create a ledger that appears complete, private and only once; another process may be first."""
        draft = self.path.with_name(f".dunnage-{secrets.token_hex(8)}")
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        try:
            with closing(_fresh(f"{draft.as_uri()}?mode=rw")) as database:
                database.execute("PRAGMA synchronous = EXTRA")
                with _transaction(database, "BEGIN"):
                    _make_tables(database, identity or new_identity(), entries)
            # Unlike a rename, a link never replaces a ledger that another process has created and spent from.
            with suppress(FileExistsError):
                os.link(draft, self.path)
        finally:
            draft.unlink(missing_ok=True)
        sync_folder(self.path.parent)

    def upgrade(self) -> int:
        """Bring a ledger of an earlier format to this one, in one transaction; return the format it had."""
        self._check_writable()
        with _reported(self.name), self._write() as database, _transaction(database, "BEGIN IMMEDIATE"):
            if (number := _format(database)) < FORMAT:
                entries, tables = _upgraded(database), ("meta", "budgets", "spends", "inputs")
                for name in tables:
                    database.execute(f"DROP TABLE IF EXISTS {name}")
                _make_tables(database, new_identity(), entries)
            return number

    @contextmanager
    def retiring(self) -> Iterator[tuple[Identity, list[Entry]]]:
        """Give everything in the file; when the block ends without an error, nobody can spend from it any more."""
        self._check_writable()
        with _reported(self.name), self._write() as database, _transaction(database, "BEGIN IMMEDIATE") as session:
            if _format(database) == FORMAT:
                yield session.contents()
                tables = ["entries"]
            else:
                yield new_identity(), _upgraded(database)
                tables = ["budgets", "spends"]
            for name in tables:  # a writer that waits for its turn must not write either
                moved = "BEGIN SELECT RAISE(ABORT, 'this ledger was moved'); END"
                database.execute(f"CREATE TRIGGER {name}_moved BEFORE INSERT ON {name} {moved}")
        with _reported(self.name):
            os.rename(self.path, self.path.with_name(f"{self.path.name}.moved"))


def _upgraded(database: sqlite3.Connection) -> list[Entry]:
    from dunnage.ledger.format_1 import upgraded

    with readable():
        return upgraded(database)


def _format(database: sqlite3.Connection) -> int:
    ((number,),) = database.execute("PRAGMA user_version").fetchall()
    return int(number)


def _opened(path: Path) -> sqlite3.Connection:
    if path.exists() and not path.is_file():
        raise LedgerError(f"{path} is not a Dunnage ledger but a folder or a device. Name a file.")
    database = _fresh(f"{path.as_uri()}?mode=rw")  # never creates a file; rolls back what a crash left unfinished
    try:
        database.execute("PRAGMA query_only = ON")
        ((kind,),) = database.execute("PRAGMA application_id").fetchall()
        version = _format(database)
        if kind != _APPLICATION_ID or version < 1:
            raise LedgerError(
                f"{path} is not a Dunnage ledger but an empty file or the database of another program. "
                "It was not touched. Name another file."
            )
        if version > FORMAT:
            raise LedgerError(
                f"the ledger {path} has format {version}, above {FORMAT}. Install a newer version of Dunnage."
            )
        # Before there is any noise, the spend must be safe from a power cut. EXTRA is FULL and syncs the folder too.
        for setting in ("synchronous = EXTRA", "fullfsync = ON"):
            database.execute(f"PRAGMA {setting}").close()
    except BaseException:
        database.close()
        raise
    return database


# PostgreSQL


class _PostgresSession(Session):
    entries, same = "dunnage.entries", "IS NOT DISTINCT FROM"

    @staticmethod
    def field(*names: str) -> str:
        return f"(body::jsonb #>> '{{{','.join(names)}}}')"

    def identity(self) -> Identity:
        ((name, key),) = self.run("SELECT id, key FROM dunnage.ledger", [])
        return Identity(name, bytes.fromhex(key))

    def head(self, dataset: str) -> Entry | None:
        head, row = (
            super().head(dataset),
            self.run("SELECT number, hash FROM dunnage.heads WHERE dataset = ?", [dataset]),
        )
        if row and tuple(row[0]) != ((head.number, head.hash) if head is not None else (0, "0" * 64)):
            raise LedgerError(f"the head of dataset {dataset!r} is not its last entry. The ledger was altered.")
        return head

    def recognised(self, digest: str) -> list[tuple[str, str]]:
        return [(name, at) for name, at in self.run("SELECT * FROM dunnage.recognised(?)", [digest])]

    def may_read(self, dataset: str) -> bool:
        return bool(self.run("SELECT dunnage.role_of(?)", [dataset])[0][0])


class PostgresStore:
    """One connection, in turns; a forked child opens its own."""

    path = None
    _LOCK = 0x44554E4C  # advisory lock of migrations

    def __init__(self, url: str, *, read_only: bool) -> None:
        try:
            import psycopg
        except ImportError:
            raise LedgerError(
                "a ledger in PostgreSQL needs psycopg. Install it with: pip install 'dunnage[postgres]'"
            ) from None
        self._psycopg, self._url, self.read_only = psycopg, url, read_only
        self._turn, self._pid = threading.RLock(), 0
        self._connection: Any = None
        self.close: Callable[[], object] = lambda: None
        self.name, self.user = "in PostgreSQL", ""
        with self._connected() as connection:
            info = connection.info
            self.user = info.user
            self.name = f"postgresql://{info.user}@{info.host}:{info.port}/{info.dbname}"  # without a password
            if not self.exists() and read_only:
                raise LedgerError(f"there is no ledger at {self.name}. Nothing was created. Name an existing ledger.")

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        errors = self._psycopg.errors
        with self._turn:
            try:
                if self._connection is None or self._connection.closed or self._pid != os.getpid():
                    self._connection = self._psycopg.connect(
                        self._url, autocommit=True, prepare_threshold=2, connect_timeout=int(BUSY_SECONDS)
                    )
                    self._pid = os.getpid()
                    self._connection.isolation_level = self._psycopg.IsolationLevel.READ_COMMITTED
                    # What others put into a schema that all may write to is not called.
                    self._connection.execute("SET search_path = pg_catalog, pg_temp")
                    # Nobody waits for ever for a session that does not end its turn, nor keeps others waiting so.
                    for setting in ("lock_timeout", "idle_in_transaction_session_timeout"):
                        self._connection.execute(f"SET {setting} = '{BUSY_SECONDS:g}s'")
                    self.close = weakref.finalize(self, _close, self._connection, self._pid)
                yield self._connection
            except errors.InsufficientPrivilege as error:
                raise LedgerError(
                    f"the ledger {self.name} does not let you do this. Nothing was spent. Ask its owner for "
                    f"dunnage ledger grant. Got: {_said(error)}."
                ) from None
            except self._psycopg.Error as error:
                state = getattr(error, "sqlstate", None) or ""
                if isinstance(error, errors.LockNotAvailable):
                    raise LedgerError(
                        f"another session has kept its turn in the ledger {self.name} for {BUSY_SECONDS:g} seconds. "
                        "Nothing was spent. Try again; if it stays so, the owner of the database can end that session."
                    ) from None
                if state in ("DN001", "DN003"):
                    raise Refusal(f"the ledger {self.name} refuses: {_said(error)}. Nothing was spent.") from None
                raise LedgerError(
                    f"the ledger {self.name} cannot be used. Got: {_said(error)}. If the connection was lost, "
                    "dunnage ledger show tells what was spent."
                ) from None

    def exists(self) -> bool:
        with self._connected() as connection:
            # to_regclass may answer from what the session knew before another one made the tables.
            schema = "SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = 'dunnage'"
            return connection.execute(schema).fetchone() is not None

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[Session]:
        with self._connected() as connection, connection.transaction():
            if begin:
                connection.execute(begin)

            def run(sql: str, values: Sequence[object]) -> list[Any]:
                cursor = connection.execute(sql.replace("?", "%s"), values)
                return cursor.fetchall() if cursor.description else []

            ((version,),) = run("SELECT max(format) FROM dunnage.version", [])
            if version != FORMAT:
                raise LedgerError(f"the ledger {self.name} has format {version}, not {FORMAT}. Use a newer Dunnage.")
            yield _PostgresSession(run)

    @contextmanager
    def reading(self) -> Iterator[Session]:
        if not self.exists():
            with closing(MemoryStore()) as empty, empty.reading() as session:
                yield session
            return
        with self._transaction("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY") as session:
            yield session

    @contextmanager
    def writing(self, dataset: str) -> Iterator[Session]:
        if self.read_only:
            raise LedgerError(f"the ledger {self.name} was opened for reading only. Open it with Ledger(...) to spend.")
        if not self.exists():
            self.create()
        with self._transaction("") as session:
            session.run("SELECT dunnage.turn(?)", [dataset])
            yield session

    def create(self, identity: Identity | None = None, entries: Sequence[Entry] = ()) -> None:
        """Create the tables by numbered migrations; of several processes, one does it while the others wait."""
        with self._connected() as connection, connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", [self._LOCK])
            if not self.exists():
                connection.execute((_SCHEMAS / f"postgres-{FORMAT}.sql").read_text(encoding="utf-8"))
                made = identity or new_identity()
                connection.execute("INSERT INTO dunnage.ledger VALUES (%s, %s)", [made.id, made.key.hex()])
            with self._transaction("") as session:
                for entry in entries:
                    session.append(entry)

    @contextmanager
    def retiring(self) -> Iterator[tuple[Identity, list[Entry]]]:
        """Give everything; when the block ends without an error, nobody can spend from it any more."""
        with self._transaction("LOCK TABLE dunnage.heads IN EXCLUSIVE MODE") as session:
            yield session.contents()
            session.run("ALTER SCHEMA dunnage RENAME TO dunnage_moved", [])

    def grant(self, dataset: str, person: str, role: str) -> None:
        """Let a person of the database read, spend or decide on a dataset; ``none`` takes it back."""
        from psycopg import sql

        with self._connected() as connection, connection.transaction():
            if role == "none":
                connection.execute("DELETE FROM dunnage.members WHERE (dataset, person) = (%s, %s)", [dataset, person])
            else:
                connection.execute(
                    "INSERT INTO dunnage.members VALUES (%s, %s, %s) ON CONFLICT (dataset, person) "
                    "DO UPDATE SET role = excluded.role",
                    [dataset, person, role],
                )
            left = connection.execute("SELECT count(*) FROM dunnage.members WHERE person = %s", [person]).fetchone()
            verb, to = ("GRANT", "TO") if left[0] else ("REVOKE", "FROM")
            for rights in (
                "USAGE ON SCHEMA dunnage",
                "SELECT ON dunnage.entries, dunnage.heads, dunnage.ledger, dunnage.version",
                "INSERT ON dunnage.entries",
                "EXECUTE ON FUNCTION dunnage.role_of, dunnage.turn, dunnage.recognised",
            ):
                try:
                    connection.execute(sql.SQL(f"{verb} {rights} {to} {{}}").format(sql.Identifier(person)))
                except self._psycopg.errors.UndefinedObject:
                    what = (
                        f"the database has no user {person!r}. Whoever manages it creates one: CREATE ROLE ... LOGIN."
                    )
                    raise ParameterError(what) from None


def _close(connection: Any, pid: int) -> None:
    if pid == os.getpid():  # a forked child must not end the session of its parent
        connection.close()


def _said(error: Any) -> str:
    """Return the first line of what the database says, which has no private value."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


Store = MemoryStore | FileStore | PostgresStore


def store_at(url: str | os.PathLike[str], *, read_only: bool = False) -> Store:
    path = location(url)
    if path is not None:
        return FileStore(path, read_only=read_only)
    if is_postgres(url):
        return PostgresStore(os.fspath(url), read_only=read_only)
    if read_only:
        raise LedgerError("a ledger in memory cannot be opened again. Name a file.")
    return MemoryStore()


# What this machine remembers of ledgers, and lines about them that are kept elsewhere. A ledger cannot tell that it is
# an old copy, or that its end was cut off. So each machine that spends remembers the last entry it saw of each dataset,
# and refuses a ledger that does not have it. An anchor is a file on another disk or machine, to which the head after
# each spend is added; ``dunnage ledger check`` compares it.

STATE = "DUNNAGE_STATE"
_TABLES = """
CREATE TABLE IF NOT EXISTS seen (ledger TEXT, dataset TEXT, number INTEGER, hash TEXT, at TEXT,
  PRIMARY KEY (ledger, dataset));
CREATE TABLE IF NOT EXISTS places (place TEXT PRIMARY KEY, ledger TEXT);
"""


def state_folder() -> Path:
    """Return where this machine keeps what it remembers: $DUNNAGE_STATE, or the usual place for state."""
    if named := os.environ.get(STATE):
        return Path(named)
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "dunnage"


class Witness:
    def __init__(self, place: str, folder: Path | None = None) -> None:
        self.place, self.path = place, (folder or state_folder()).absolute() / "witness.sqlite"

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection | None]:
        """Give the database; None if this machine cannot remember anything, which is said in the log."""
        try:
            if not self.path.exists():
                self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
            with closing(sqlite3.connect(self.path, timeout=60, isolation_level=None)) as database:
                database.execute("PRAGMA synchronous = NORMAL")
                database.executescript(_TABLES)
                yield database
        except (OSError, sqlite3.Error) as error:
            _log.warning("this machine cannot remember ledgers in %s: %s", self.path, error)
            yield None

    def check(self, session: Session | None, dataset: str) -> None:
        """Refuse a ledger that lacks what this machine saw; None stands for a ledger that is not there."""
        ledger = None if session is None else session.identity().id
        with self._opened() as database:
            if database is None:
                return
            known = database.execute("SELECT ledger FROM places WHERE place = ?", [self.place]).fetchone()
            seen = database.execute(
                "SELECT number, hash, at, ledger FROM seen WHERE ledger IN (?, ?) AND dataset = ? ORDER BY ledger = ?",
                [ledger, known and known[0], dataset, ledger],
            ).fetchone()
        if seen is None:
            return
        number, digest, at, _ = seen
        here = session and session.where("dataset = ? AND number = ?", dataset, number)
        if not here or here[0].hash != digest:
            raise LedgerError(
                f"the ledger {self.place} lacks entry {number} of dataset {dataset!r}, which this machine saw at "
                f"{time_text(at)}. It is an old copy, a new file, or was altered. Nothing was spent. Go back to the "
                "newest ledger. If none is left, dunnage ledger check names releases it does not know, and "
                "dunnage ledger accept --note continues with this one."
            )

    def datasets(self, ledger: str) -> list[str]:
        """Return the datasets that this machine saw in a ledger."""
        with self._opened() as database:
            rows = [] if database is None else database.execute("SELECT dataset FROM seen WHERE ledger = ?", [ledger])
            return [str(name) for (name,) in rows]

    def remember(self, ledger: str, entry: Entry) -> None:
        with self._opened() as database:
            if database is None:
                return
            database.execute("BEGIN IMMEDIATE")
            database.execute("INSERT OR REPLACE INTO places VALUES (?, ?)", [self.place, ledger])
            # Of two processes that spend, the one that is first may remember last.
            database.execute(
                "INSERT INTO seen VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET number = excluded.number, "
                "hash = excluded.hash, at = excluded.at WHERE excluded.number > seen.number",
                [ledger, entry.dataset, entry.number, entry.hash, entry.at],
            )
            database.execute("COMMIT")

    def forget(self, ledger: str | None) -> None:
        with self._opened() as database:
            if database is None:
                return
            known = database.execute("SELECT ledger FROM places WHERE place = ?", [self.place]).fetchone()
            database.execute("DELETE FROM places WHERE place = ?", [self.place])
            for name in {ledger, known and known[0]}:
                database.execute("DELETE FROM seen WHERE ledger = ?", [name])


def write_anchor(path: Path, ledger: str, entry: Entry) -> None:
    """Add the head after a spend to a file, before any noise; it is never ahead of the ledger."""
    line = {"ledger": ledger, "dataset": entry.dataset, "number": entry.number, "hash": entry.hash, "at": entry.at}
    try:
        with open(path, "ab", opener=lambda name, flags: os.open(name, flags, 0o600)) as stream:
            stream.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise LedgerError(
            f"the anchor {path} cannot be written: {error.strerror}. The budget was spent, no noise was drawn and "
            "nothing left this machine. Make it writable, then publish with --again."
        ) from None


def read_anchor(path: Path) -> list[dict[str, str | int]]:
    lines = []
    try:
        with path.open("rb") as stream:
            for line in stream:
                if line.endswith(b"\n"):  # a crash may have cut the last one
                    lines.append(json.loads(line))
        if not all(isinstance(line, dict) and {"ledger", "dataset", "number", "hash"} <= line.keys() for line in lines):
            raise ValueError
    except OSError as error:
        raise InputError(str(path), [f"cannot be read: {error.strerror}. Give the file that --anchor wrote."]) from None
    except (ValueError, RecursionError):
        raise InputError(str(path), ["is not a file that --anchor wrote. Check the path."]) from None
    return lines
