# SPDX-License-Identifier: Apache-2.0
"""Witness: what this machine remembers of ledgers, and lines about them that are kept elsewhere.

A ledger cannot tell that it is an old copy, or that its end was cut off. So each machine that spends remembers the last
entry it saw of each dataset, and refuses a ledger that does not have it. An anchor is a file on another disk or
machine, to which the head after each spend is added; ``dunnage ledger check`` compares it.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from dunnage.errors import InputError, LedgerError
from dunnage.ledger.entries import Entry
from dunnage.ledger.store import Session
from dunnage.text import time_text

STATE = "DUNNAGE_STATE"
_log = logging.getLogger("dunnage")
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
