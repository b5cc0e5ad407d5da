# SPDX-License-Identifier: Apache-2.0
"""Where a ledger is kept: a SQLite file that appears whole, private and only once, or memory.

This module knows files, locks and transactions; what the rows mean is the business of ``ledger``.
"""

from __future__ import annotations

import os
import re
import secrets
import sqlite3
import threading
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from dunnage.errors import LedgerError

FORMAT = 1
BUSY_SECONDS = 60.0
MEMORY = ":memory:"

_APPLICATION_ID = 0x44554E4C  # "DUNL", in the header of every ledger
_SUPPORTED = 'a path, "sqlite:///path" or ":memory:"'

# REPLACE would delete a row without firing the delete trigger, so a second row of one number or id is refused too.
_APPEND_ONLY = """
CREATE TRIGGER {table}_keep BEFORE UPDATE ON {table}
BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END;
CREATE TRIGGER {table}_hold BEFORE DELETE ON {table}
BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END;
CREATE TRIGGER {table}_once BEFORE INSERT ON {table}
WHEN EXISTS (SELECT 1 FROM {table} WHERE {key})
BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END;
"""

_SCHEMA = f"""
BEGIN;
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
INSERT INTO meta VALUES ('kind', 'dunnage ledger'), ('format', '{FORMAT}');
CREATE TABLE budgets (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  at TEXT NOT NULL, who TEXT NOT NULL, dataset TEXT NOT NULL,
  epsilon TEXT NOT NULL, delta TEXT NOT NULL, neighbours TEXT NOT NULL, note TEXT NOT NULL
);
CREATE TABLE spends (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE, at TEXT NOT NULL, who TEXT NOT NULL, dataset TEXT NOT NULL, period TEXT,
  policy_digest TEXT NOT NULL, promise_digest TEXT NOT NULL, guarantee TEXT NOT NULL, basis TEXT NOT NULL,
  epsilon_add_remove TEXT NOT NULL, delta_add_remove TEXT NOT NULL,
  epsilon_replace_one TEXT NOT NULL, delta_replace_one TEXT NOT NULL,
  note TEXT NOT NULL
);
CREATE INDEX budgets_of ON budgets (dataset, number);
CREATE INDEX spends_of ON spends (dataset, period, policy_digest);
{_APPEND_ONLY.format(table="budgets", key="number = NEW.number")}
{_APPEND_ONLY.format(table="spends", key="number = NEW.number OR id = NEW.id")}
PRAGMA application_id = {_APPLICATION_ID};
PRAGMA user_version = {FORMAT};
COMMIT;
"""


def location(url: str | os.PathLike[str]) -> Path | None:
    """Return the path a URL names; None is memory."""
    text = os.fspath(url)
    scheme = re.match(r"[A-Za-z][A-Za-z0-9+.-]*://|file:|sqlite:", text)
    if text in (MEMORY, f"sqlite:///{MEMORY}"):
        return None
    # A query would silently become part of the name, and so start a second, empty ledger.
    if scheme and (not text.startswith("sqlite:///") or "?" in text):
        raise LedgerError(f"a ledger cannot be kept at {text!r}. Got an unknown kind of address. Name {_SUPPORTED}.")
    path = text.removeprefix("sqlite:///")
    if not path.strip() or "\0" in path:
        raise LedgerError(f"a ledger needs a file name. Got {text!r}. Name {_SUPPORTED}.")
    return Path(path).absolute()  # a later change of folder must not lead to a second ledger


_MEANINGS: Mapping[int, str] = {
    sqlite3.SQLITE_READONLY: "cannot be written. Give yourself the right to write it, or copy it to where you may",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened. See that it is there and that you may write it and its folder",
    sqlite3.SQLITE_FULL: "cannot be written: the disk is full. Make room and try again",
    sqlite3.SQLITE_NOTADB: "is not a Dunnage ledger. It was left as it is. Name another file",
    sqlite3.SQLITE_CORRUPT: "is damaged. Restore it from a copy; do not start a new one, which would forget its spends",
}


@contextmanager
def _reported(name: str) -> Iterator[None]:
    """Turn whatever the file or the database says into a ledger error."""
    try:
        yield
    except sqlite3.Error as error:
        raise LedgerError(_meaning(name, error)) from error
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise LedgerError(f"the ledger {name} cannot be used. Got: {reason}. Check the file and its folder.") from error


def _meaning(name: str, error: sqlite3.Error) -> str:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # without the extended part
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return (
            f"the ledger {name} stayed locked by another process for {BUSY_SECONDS:g} seconds. Nothing was spent. "
            "Let that process finish, or end it, and try again."
        )
    meaning = _MEANINGS.get(code, "cannot be used. Check the file and its folder")
    return f"the ledger {name} {meaning}. Got: {error}."


@contextmanager
def _transaction(database: sqlite3.Connection, begin: str) -> Iterator[None]:
    """Commit what happens inside, or undo all of it."""
    database.execute(begin)
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


def _fresh(name: str = MEMORY) -> sqlite3.Connection:
    return sqlite3.connect(
        name, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, uri=name != MEMORY
    )


def _empty() -> sqlite3.Connection:
    database = _fresh()
    database.executescript(_SCHEMA)
    return database


class MemoryStore:
    """A ledger without a file, for tests and rehearsals."""

    name = MEMORY

    def exists(self) -> bool:
        """Return whether rows can be kept without making anything first: always."""
        return True

    def __init__(self) -> None:
        self.database = _empty()
        self._turn = threading.RLock()
        self.close = weakref.finalize(self, self.database.close)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Give a database whose rows do not change meanwhile."""
        with self._turn, _reported(self.name), _transaction(self.database, "BEGIN"):
            yield self.database

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Give a database in one transaction."""
        with self._turn, _reported(self.name), _transaction(self.database, "BEGIN IMMEDIATE"):
            yield self.database


class FileStore:
    """A ledger in a file.

    It is opened anew for each use: no connection crosses a fork or a thread, and a file that was moved away is
    missed instead of written to unseen. Nothing but SQLite opens the file, because closing it elsewhere in this
    process would drop SQLite's locks.
    """

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
            raise LedgerError(f"a ledger cannot be made at {path}: there is no folder {path.parent}. Create it first.")

    def exists(self) -> bool:
        """Return whether the file is there, or ever was."""
        return self._seen or self.path.exists()

    def close(self) -> None:
        """Do nothing: no connection is kept."""

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Give a database whose rows do not change meanwhile; an empty one before the first spend."""
        with _reported(self.name):
            self._seen = self.exists()
            database = _opened(self.path) if self._seen else _empty()
            try:
                with _transaction(database, "BEGIN"):
                    yield database
            finally:
                database.close()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Give a database in one transaction."""
        if self.read_only:
            raise LedgerError(f"the ledger {self.name} was opened to be read only. Open it with Ledger(...) to spend.")
        with _reported(self.name):
            # Once seen it is never made again: a ledger that is gone took its spends with it.
            if not self._seen:
                _create(self.path)
                self._seen = True
            database = _opened(self.path)
            try:
                database.execute("PRAGMA query_only = OFF")
                database.execute("PRAGMA journal_mode = DELETE").close()  # leaves no second file behind
                with _transaction(database, "BEGIN IMMEDIATE"):
                    yield database
            finally:
                database.close()


def _opened(path: Path) -> sqlite3.Connection:
    """Open a ledger that exists, after looking whether it is one; to be read until told otherwise."""
    if path.exists() and not path.is_file():
        raise LedgerError(f"{path} is not a Dunnage ledger. Got a folder or a device. Name a file.")
    database = _fresh(f"{path.as_uri()}?mode=rw")  # never creates; also rolls back what a crash left half done
    try:
        database.execute("PRAGMA query_only = ON")
        _check_kind(path, database)
        # A spend must outlive a power cut once noise is drawn; EXTRA is FULL and syncs the folder as well.
        for setting in ("synchronous = EXTRA", "fullfsync = ON"):
            database.execute(f"PRAGMA {setting}").close()
    except BaseException:
        database.close()
        raise
    return database


def _check_kind(path: Path, database: sqlite3.Connection) -> None:
    ((kind,),) = database.execute("PRAGMA application_id").fetchall()
    ((version,),) = database.execute("PRAGMA user_version").fetchall()
    if kind != _APPLICATION_ID or version < 1:
        raise LedgerError(
            f"{path} is not a Dunnage ledger. Got an empty file or another program's database. "
            "It was left as it is. Name another file."
        )
    if version > FORMAT:
        raise LedgerError(
            f"the ledger {path} has format {version}; this version of Dunnage reads formats up to {FORMAT}. "
            "Install a newer version."
        )


def _create(path: Path) -> None:
    """Make an empty ledger appear complete, private and only once; another process may be first."""
    if path.exists():
        return
    draft = path.with_name(f".dunnage-{secrets.token_hex(8)}")
    os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    try:
        _write_schema(draft)
        # Unlike a rename, a link never replaces the ledger that another process has made and spent from.
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    _sync_folder(path.parent)


def _write_schema(path: Path) -> None:
    database = _fresh(f"{path.as_uri()}?mode=rw")
    try:
        database.execute("PRAGMA synchronous = EXTRA")
        database.executescript(_SCHEMA)
    finally:
        database.close()


def _sync_folder(folder: Path) -> None:
    """See that the file's name outlives a power cut."""
    if os.name == "nt":  # folders cannot be opened there
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
