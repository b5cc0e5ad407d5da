# SPDX-License-Identifier: Apache-2.0
"""The owner's append-only list of what was spent on each dataset.

A mechanism spends before it draws any noise. A spend is one transaction on a SQLite file: it is refused or it stands.
Two processes cannot spend the same budget, and a crash can waste budget but never overspend it. Nothing is ever
refunded, changed or deleted; triggers in the file prevent it.

Each spend keeps its true loss under both kinds of neighbours as exact text ("1/10", or "none" if no bound exists), so
that a ledger never has to be interpreted again. Losses add up over all periods. The smaller figure per period holds
only under the assumption "one period per protected record"; both are always shown.

The file is private (mode 0600; modes mean nothing on Windows). The first spend or budget creates it.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import logging
import os
import re
import secrets
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import NoReturn, Self

from dunnage.errors import BudgetError, LedgerError, ParameterError, Refusal
from dunnage.exact import plain
from dunnage.folders import sync_folder
from dunnage.model.guarantees import (
    NO_LOSS,
    ONE_PERIOD_PER_RECORD,
    UNBOUNDED,
    Accounting,
    Budget,
    ConcentratedDP,
    KAnonymity,
    Loss,
    Neighbours,
    Promise,
    SpendPurpose,
    guarantee_from,
)
from dunnage.model.guarantees import total as sum_of
from dunnage.model.periods import LABEL, LENGTHS, length_of
from dunnage.text import several

# --- Where a ledger is kept: in memory, or in a SQLite file that appears complete, private and only once

FORMAT = 1
BUSY_SECONDS = 60.0
MEMORY = ":memory:"

_APPLICATION_ID = 0x44554E4C  # "DUNL", in the header of every ledger
_SUPPORTED = 'a path, "sqlite:///path" or ":memory:"'
_OLD_COPY = "A copy forgets what was spent since it was made: use one only if nothing was published after that"

# Format 1. A second row of one number or id is refused too: REPLACE would delete a row without the delete trigger.
_SCHEMA = Path(__file__).with_name("ledger.sql").read_text(encoding="utf-8")


def location(url: str | os.PathLike[str]) -> Path | None:
    """Return the path that a URL names; None stands for memory."""
    text = os.fspath(url)
    scheme = re.match(r"[A-Za-z][A-Za-z0-9+.-]*://|file:|sqlite:", text)
    if text in (MEMORY, f"sqlite:///{MEMORY}"):
        return None
    # A query would silently become part of the name, and so start a second, empty ledger.
    if scheme and (not text.startswith("sqlite:///") or "?" in text):
        raise LedgerError(f"a ledger cannot be kept at {text!r}, an unknown kind of address. Give {_SUPPORTED}.")
    path = text.removeprefix("sqlite:///")
    if not path.strip() or "\0" in path:
        raise LedgerError(f"a ledger needs a file name. Got {text!r}. Give {_SUPPORTED}.")
    return Path(path).absolute()  # a later change of the working folder must not lead to a second ledger


_MEANINGS: Mapping[int, str] = {
    sqlite3.SQLITE_READONLY: "cannot be written. Get permission to write it; a copy would be a second budget",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened. Check that it exists and that you may write the file and its folder",
    sqlite3.SQLITE_FULL: "cannot be written: the disk is full. Free some space and try again",
    sqlite3.SQLITE_NOTADB: "is not a Dunnage ledger. It was not touched. Name another file",
    sqlite3.SQLITE_CORRUPT: f"is damaged. {_OLD_COPY}",
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
def _transaction(database: sqlite3.Connection, begin: str) -> Iterator[None]:
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


class MemoryStore:
    name = MEMORY

    def __init__(self) -> None:
        self.database = _fresh()
        self.database.executescript(_SCHEMA)
        self._turn = threading.RLock()
        self.close = weakref.finalize(self, self.database.close)

    def exists(self) -> bool:
        return True

    @contextmanager
    def reading(self, begin: str = "BEGIN") -> Iterator[sqlite3.Connection]:
        with self._turn, _reported(self.name), _transaction(self.database, begin):
            yield self.database

    def writing(self) -> AbstractContextManager[sqlite3.Connection]:
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
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Give a consistent view of the database; an empty one before the first spend."""
        with _reported(self.name):
            self._seen = self.exists()
            if not self._seen:
                with closing(MemoryStore()) as empty, empty.reading() as database:
                    yield database
                return
            with closing(_opened(self.path)) as database, _transaction(database, "BEGIN"):
                yield database

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        if self.read_only:
            raise LedgerError(f"the ledger {self.name} was opened for reading only. Open it with Ledger(...) to spend.")
        with _reported(self.name):
            # A ledger that was there once is never created again: its spends would be forgotten.
            if not self._seen and not self.path.exists():
                _create(self.path)
            self._seen = True
            with closing(_opened(self.path)) as database:
                database.execute("PRAGMA query_only = OFF")
                database.execute("PRAGMA journal_mode = DELETE").close()  # leaves no second file behind
                with _transaction(database, "BEGIN IMMEDIATE"):
                    yield database


def _opened(path: Path) -> sqlite3.Connection:
    if path.exists() and not path.is_file():
        raise LedgerError(f"{path} is not a Dunnage ledger but a folder or a device. Name a file.")
    database = _fresh(f"{path.as_uri()}?mode=rw")  # never creates a file; rolls back what a crash left unfinished
    try:
        database.execute("PRAGMA query_only = ON")
        ((kind,),) = database.execute("PRAGMA application_id").fetchall()
        ((version,),) = database.execute("PRAGMA user_version").fetchall()
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


def _create(path: Path) -> None:
    """Create an empty ledger that appears complete, private and only once; another process may be first."""
    draft = path.with_name(f".dunnage-{secrets.token_hex(8)}")
    os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    try:
        with closing(_fresh(f"{draft.as_uri()}?mode=rw")) as database:
            database.execute("PRAGMA synchronous = EXTRA")
            database.executescript(_SCHEMA)
        # Unlike a rename, a link never replaces a ledger that another process has created and spent from.
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    sync_folder(path.parent)


_NONE = "none"
_log = logging.getLogger("dunnage")


def _fraction_text(value: Fraction) -> str:
    return f"{value.numerator}/{value.denominator}"


def _loss_from(epsilon: str, delta: str, guarantee: Mapping[str, object], neighbours: Neighbours) -> Loss:
    if epsilon == _NONE:
        return UNBOUNDED
    # A row has no column for rho: it is that of the guarantee, whose loss is charged unless there is none.
    concentrated = guarantee["model"] == ConcentratedDP.model
    rho = guarantee_from(guarantee).plain_loss(neighbours).rho if concentrated else None
    return Loss(Fraction(epsilon), Fraction(delta), rho)


def _loss_data(loss: Loss) -> dict[str, int | float | str] | str:
    return _NONE if loss.epsilon is None else {"epsilon": plain(loss.epsilon), "delta": plain(loss.delta)}


def _named(loss: Loss) -> str:
    return str(loss) if loss.bounded else _NONE


# The contents of a ledger


@dataclass(frozen=True, kw_only=True)
class Spend:
    id: str  # Random name of the spend; the certificate repeats it
    at: str  # Time in UTC
    who: str  # Who spent it
    dataset: str
    period: str | None
    policy_digest: str  # Of what the policy means; in ledgers of 0.1.0 of its text
    promise_digest: str
    guarantee: Mapping[str, object]  # What was promised
    basis: str  # How far it can be relied on
    loss_add_remove: Loss  # The true cost, under either kind of neighbours
    loss_replace_one: Loss
    note: str = ""  # The owner's words

    def loss(self, neighbours: Neighbours) -> Loss:
        return self.loss_add_remove if neighbours is Neighbours.ADD_REMOVE else self.loss_replace_one

    def to_dict(self) -> dict[str, object]:
        values = {name: getattr(self, name) for name in ("id", "at", "who", "dataset", "period")}
        digests = {"policy_digest": self.policy_digest, "promise_digest": self.promise_digest}
        promised = {"guarantee": dict(self.guarantee), "basis": self.basis}
        losses = {str(kind): _loss_data(self.loss(kind)) for kind in Neighbours}
        return {**values, **digests, **promised, "loss": losses, "note": self.note}


@dataclass(frozen=True, kw_only=True)
class BudgetEntry:
    at: str
    who: str
    budget: Budget
    note: str

    def to_dict(self) -> dict[str, object]:
        return {"at": self.at, "who": self.who, **_budget_data(self.budget), "note": self.note}


def _budget_data(budget: Budget) -> dict[str, object]:
    terms = {"epsilon": plain(budget.epsilon), "delta": plain(budget.delta), "neighbours": str(budget.neighbours)}
    return {**terms, **({} if budget.accounting is Accounting.SUM else {"accounting": str(budget.accounting)})}


@dataclass(frozen=True, kw_only=True)
class Statement:
    dataset: str
    budgets: tuple[BudgetEntry, ...] = ()  # Oldest first
    spends: tuple[Spend, ...] = ()  # Oldest first

    @property
    def budget(self) -> Budget | None:
        return self.budgets[-1].budget if self.budgets else None

    @cached_property
    def neighbours(self) -> Neighbours:
        """The neighbours of all totals: the budget's, or add-remove, unless only replace-one bounds every spend."""
        if self.budget is not None:
            return self.budget.neighbours
        add_remove, replace_one = (sum_of(spend.loss(kind) for spend in self.spends) for kind in Neighbours)
        return Neighbours.REPLACE_ONE if replace_one.bounded and not add_remove.bounded else Neighbours.ADD_REMOVE

    @cached_property
    def units(self) -> tuple[str, ...]:
        """The units that the spends protect; losses of different units do not add up."""
        return _units(self.spends)

    @property
    def _losses(self) -> list[Loss]:
        return [spend.loss(self.neighbours) for spend in self.spends]

    @cached_property
    def total(self) -> Loss:
        """The sum of the losses of all spends and periods, without any assumption."""
        return UNBOUNDED if len(self.units) > 1 else sum_of(self._losses)

    @cached_property
    def counted(self) -> Loss:
        """What all spends amount to, as the budget counts them."""
        return self.total if self.budget is None or len(self.units) > 1 else self.budget.spent(self._losses)

    @cached_property
    def total_per_period(self) -> Loss:
        """The largest loss over single periods, under "one period per protected record"."""
        if len(self.units) > 1:
            return UNBOUNDED
        by_period: dict[str | None, Loss] = {}
        for spend in self.spends:
            by_period[spend.period] = by_period.get(spend.period, NO_LOSS) + spend.loss(self.neighbours)
        of_every_period = by_period.pop(None, NO_LOSS)  # about the records of every period: it counts in each
        losses = list(by_period.values())
        epsilons = [loss.epsilon for loss in losses if loss.epsilon is not None]
        if len(epsilons) < len(losses):
            return UNBOUNDED
        # The smallest loss that covers each of them: the larger epsilon and the larger delta.
        largest = Loss(max(epsilons, default=Fraction(0)), max((loss.delta for loss in losses), default=Fraction(0)))
        return of_every_period + largest

    @property
    def concentrated(self) -> bool:
        return self.budget is not None and self.budget.accounting is Accounting.CONCENTRATED

    @property
    def left(self) -> Loss | None:
        if self.budget is None or not self.counted.bounded:
            return None if self.budget is None else NO_LOSS
        return self.budget.left(self._losses)

    @property
    def overspent(self) -> bool:
        """Whether more was spent than the budget now allows, for example after it was lowered."""
        return self.budget is not None and not self.counted.within(self.budget.limit)

    def summary(self) -> str:
        scope = f"{self.neighbours} neighbours"
        if len(self.units) > 1:
            scope = f"the losses of one {' and one '.join(self.units)} do not add up: look at each spend"
        elif not self.total.bounded:
            scope = f"a release has no bound between {self.neighbours} neighbours"
        assumption = f'"{ONE_PERIOD_PER_RECORD.name}" ({ONE_PERIOD_PER_RECORD.says})'
        lines = [
            f"dataset: {self.dataset}",
            f"budget: {self.budget or _NONE}",
            f"total over all periods: {_named(self.total)} ({scope})",
            f"total per period: {_named(self.total_per_period)}, assuming {assumption}",
            *([f"concentrated: {self.counted}"] if self.concentrated and self.counted.bounded else []),
            *([f"left: {self.left_text()}"] if self.budget is not None else []),
            f"spends: {len(self.spends)}",
        ]
        for spend in self.spends:
            period = f"period {spend.period}" if spend.period is not None else "no period"
            promised = f"{spend.guarantee['model']}, {spend.basis}"
            losses = ", ".join(f"{kind} {_named(spend.loss(kind))}" for kind in Neighbours)
            note = f"; {spend.note}" if spend.note else ""
            lines.append(f"  {spend.at} {spend.who}: {period}; {promised}; {losses}; {spend.id}{note}")
        return "\n".join(lines)

    def left_text(self) -> str:
        if self.budget is None:
            return "no budget is set"
        if len(self.units) > 1:
            return f"nothing: releases protect one {' and one '.join(self.units)}, which do not add up"
        if not self.total.bounded:
            return "nothing: a release has no bound"
        if not self.counted.bounded:
            return "nothing: a release has a delta of its own, which concentrated accounting does not count"
        if self.overspent:
            return "nothing: the budget is below what was spent"
        if not self.spends:
            return str(self.left)
        num, length = self.budget.num_more(self._losses), length_of(self.spends[-1].period or "")
        more = several(num, "more release" if length == LABEL else f"more {length}")
        return f"{self.left} for one more release, or enough for {more} like the last one"

    def composed(self) -> dict[str, object]:
        return {
            "neighbours": str(self.neighbours),
            "total": _loss_data(self.total),
            "total_per_period": _loss_data(self.total_per_period),
            "total_per_period_assumes": ONE_PERIOD_PER_RECORD.name,
        }

    def to_dict(self) -> dict[str, object]:
        return {
            "dataset": self.dataset,
            "budget": _budget_data(self.budget) if self.budget is not None else None,
            **self.composed(),
            **({"concentrated": _loss_data(self.counted)} if self.concentrated else {}),
            "left": _loss_data(self.left) if self.left is not None else None,
            "overspent": self.overspent,
            "budgets": [entry.to_dict() for entry in self.budgets],
            "spends": [spend.to_dict() for spend in self.spends],
        }


def _units(spends: Iterable[Spend]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(spend.guarantee.get("protects", "")) for spend in spends))


# Reading and writing rows


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except (ValueError, TypeError, LookupError, ArithmeticError) as error:
        raise LedgerError(f"the ledger has a row that cannot be read. {_OLD_COPY}.") from error


def _check_texts(rows: Iterable[Iterable[object]]) -> None:
    """Refuse cells that are no text: SQLite keeps whatever it is given."""
    if not all(isinstance(cell, str) for row in rows for cell in row):
        raise TypeError


def _budgets(database: sqlite3.Connection, dataset: str) -> tuple[BudgetEntry, ...]:
    kept = "accounting" if _counts_otherwise(database) else f"'{Accounting.SUM}'"
    rows = database.execute(
        f"SELECT at, who, note, epsilon, delta, neighbours, {kept} FROM budgets WHERE dataset = ? ORDER BY number",
        [dataset],
    ).fetchall()
    with _readable():
        _check_texts(rows)
        names = ("epsilon", "delta", "neighbours", "accounting")
        return tuple(
            BudgetEntry(at=at, who=who, note=note, budget=Budget(**dict(zip(names, terms, strict=True))))
            for at, who, note, *terms in rows
        )


def _counts_otherwise(database: sqlite3.Connection) -> bool:
    """Return whether the ledger has a column for the accounting of budgets; one is added when it is needed."""
    return any(column[1] == "accounting" for column in database.execute("PRAGMA table_info(budgets)").fetchall())


_PLAIN_COLUMNS = ("id", "at", "who", "dataset", "period", "policy_digest", "promise_digest", "basis", "note")
_LOSS_COLUMNS = tuple(f"{part}_{kind.replace('-', '_')}" for kind in Neighbours for part in ("epsilon", "delta"))


def _spends(database: sqlite3.Connection, dataset: str) -> tuple[Spend, ...]:
    rows = database.execute(
        f"SELECT guarantee, {', '.join(_LOSS_COLUMNS)}, {', '.join(_PLAIN_COLUMNS)} FROM spends WHERE dataset = ? "
        "ORDER BY number",
        [dataset],
    ).fetchall()
    with _readable():
        guarantees = [json.loads(row[0]) for row in rows]
        _check_texts(
            (*row[5:9], *row[10:], guarantee["model"]) for row, guarantee in zip(rows, guarantees, strict=True)
        )
        return tuple(
            Spend(
                guarantee=guarantee,
                loss_add_remove=_loss_from(row[1], row[2], guarantee, Neighbours.ADD_REMOVE),
                loss_replace_one=_loss_from(row[3], row[4], guarantee, Neighbours.REPLACE_ONE),
                **dict(zip(_PLAIN_COLUMNS, row[5:], strict=True)),
            )
            for row, guarantee in zip(rows, guarantees, strict=True)
        )


def _insert(database: sqlite3.Connection, table: str, values: Mapping[str, str | None]) -> None:
    marks = ", ".join("?" * len(values))
    database.execute(f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})", list(values.values()))


# Refusals

# Which rows a spend was for: a digest under a key of its own, so that it tells a file from the next one and no more.
_INPUTS = (
    "CREATE TABLE IF NOT EXISTS inputs (id TEXT PRIMARY KEY, salt TEXT NOT NULL, digest TEXT NOT NULL)",
    *(
        f"CREATE TRIGGER IF NOT EXISTS inputs_{name} BEFORE {event} ON inputs {when}"
        "BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END"
        for name, event, when in (
            ("keep", "UPDATE", ""),
            ("hold", "DELETE", ""),
            ("once", "INSERT", "WHEN EXISTS (SELECT 1 FROM inputs WHERE id = NEW.id) "),
        )
    ),
)


def _repeat(database: sqlite3.Connection, promise: Promise, purpose: SpendPurpose) -> str:
    """Say that the same was spent on before in the same way, and what to do; otherwise nothing."""
    # The way is the same if columns, rules and every parameter of the mechanism are, or the text of the policy, which
    # ledgers of 0.1.0 have. Any two k-anonymous releases of the same records are alike in what they risk.
    # That it is a repeat never depends on rows; only the remedy does, which the owner alone sees.
    spends = database.execute(
        "SELECT id, at FROM spends WHERE dataset = ? AND period IS ? AND policy_digest IN (?, ?) ORDER BY number DESC",
        [purpose.dataset, purpose.period, purpose.policy_digest, _resolved(promise, purpose)],
    ).fetchall()
    if not spends:
        if alike := _k_anonymous(_spends(database, purpose.dataset), promise, purpose.period):
            return (
                f"dataset {purpose.dataset!r} already has a k-anonymous release: spend {alike[-1].id} at "
                f"{alike[-1].at}. Together, two releases of the same records can single out a record that neither "
                "singles out alone. To release again all the same, pass --again (again=True)."
            )
        return ""
    stored = database.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'inputs'").fetchone()
    inputs = database.execute("SELECT id, salt, digest FROM inputs").fetchall() if stored else []
    with _readable():
        digests = {spend: (bytes.fromhex(salt), digest) for spend, salt, digest in inputs}
    digest_of, own = purpose.input_digest, [digests[spend] for spend, _ in spends if spend in digests]
    same = digest_of is not None and any(digest_of(salt) == digest for salt, digest in own)
    other = digest_of is not None and not same and len(own) == len(spends)
    period = f"period {purpose.period!r}" if purpose.period is not None else "no period"
    rows = ", for the same rows" if same else ", for other rows" if other else ""
    what = f"dataset {purpose.dataset!r}, {period}, was already spent on under this policy{rows}: spend {spends[0][0]} "
    what += f"at {spends[0][1]}."
    again = "An interrupted run may have been the cause; it is not refunded. To spend again, pass --again (again=True)."
    if purpose.period is None:
        period = (
            'give each file a period: write [period] and length = "week" (or day, month, label) in the policy, and '
        )
        period += f"publish with --period {LENGTHS['week']}"
    else:
        period = "name its own period with --period"
    if same:
        return f"{what} {again}"
    if other:
        replaces = "If it replaces the earlier rows, pass --again (again=True): that spends again and refunds nothing."
        return f"{what} If this is the next file, {period}. {replaces}"
    return f"{what} {again} If this is the next file, {period}."


def _resolved(promise: Promise, purpose: SpendPurpose) -> str:
    """Return the digest of what a policy means, with defaults; that of its text if the meaning is not given."""
    if purpose.schema_digest is None:
        return purpose.policy_digest
    meaning = json.dumps([dict(promise.mechanism), purpose.schema_digest], sort_keys=True, allow_nan=False)
    return hashlib.sha256(meaning.encode()).hexdigest()


def _k_anonymous(spends: Iterable[Spend], promise: Promise, period: str | None) -> list[Spend]:
    """Return earlier spends on k-anonymous releases that may be of the same records, if the promise is one too."""
    if not isinstance(promise.guarantee, KAnonymity):
        return []
    return [spend for spend in spends if spend.guarantee["model"] == KAnonymity.model and spend.period == period]


def _overspend(budget: Budget, losses: Sequence[Loss], cost: Loss, dataset: str, others: Sequence[str]) -> BudgetError:
    """Say why a budget does not cover a spend; ``others`` are units that only earlier releases protect."""
    spent = budget.spent(losses)
    if budget.spent([*losses, cost]).bounded and not others:
        problem = "does not cover this release. Request less, or change the budget with `dunnage budget set --note`."
    else:
        who = "an earlier release had" if not spent.bounded and budget.spent([cost]).bounded else "the release has"
        why = f"{who} no bound between {budget.neighbours} neighbours"
        with_delta = any(loss.delta and loss.rho is None for loss in (*losses, cost))
        if budget.accounting is Accounting.CONCENTRATED and with_delta:
            why = f"{who} a delta of its own, which concentrated accounting does not count"
        if others:
            units = " and one ".join(others)
            why = f"an earlier release protects one {units}, and losses of different units do not add up"
        problem = f"cannot be kept: {why}. Write `allow_unbounded = true` in the policy to release anyway."
    what = f"the budget of dataset {dataset!r}, {budget}, {problem}"
    return BudgetError(what, asked=str(cost), spent=str(spent), left=str(budget.left(losses)))


# The ledger


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # some containers have no user name
        return "unknown"


def _storable(text: str) -> str:
    """Replace characters that are not Unicode; a command line or an account name may have some."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _check_dataset(dataset: str) -> None:
    if not dataset.strip() or _storable(dataset) != dataset:
        raise ParameterError(f"a ledger needs the name of the dataset. Got {dataset!r}. Name it in the policy.")


class Ledger:
    """The owner's append-only list of what was spent on each dataset; private.

    Safe to construct in each process, and to use from several threads.

    Parameters
    ----------
    url
        A path, "sqlite:///path" or ":memory:". The folder must exist; the first spend or budget creates the file with
        mode 0600.
    again
        Whether the same dataset and period may be spent on again under the same policy, or for a second k-anonymous
        release.
    note
        Kept with each spend.
    who
        Kept with each spend; by default the user of this process.
    clock
        Function that returns the time; for tests.

    Raises
    ------
    LedgerError
        If the address is not supported, or the file is not a ledger; it is not touched.

    Examples
    --------
    >>> from dunnage.model.guarantees import Basis, PureDP
    >>> guarantee = PureDP(epsilon="0.5", protects="trip", neighbours="add-remove")
    >>> promise = Promise(guarantee=guarantee, basis=Basis.PROVED, mechanism={"name": "noisy-counts"})
    >>> with Ledger(":memory:") as ledger:
    ...     spend = ledger.spend(promise, SpendPurpose(dataset="rides", policy_digest="2f..."))
    ...     print(ledger.statement("rides").total)
    epsilon 0.5
    """

    def __init__(
        self,
        url: str | os.PathLike[str],
        *,
        again: bool = False,
        note: str = "",
        who: str | None = None,
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        path = location(url)
        self._store: MemoryStore | FileStore = MemoryStore() if path is None else FileStore(path, read_only=False)
        self.again = again
        self.note = _storable(note)
        self.who = _storable(who or _user())
        self._clock = clock or (lambda: datetime.now(UTC))

    @classmethod
    def open_existing(cls, url: str | os.PathLike[str]) -> Self:
        """Open an existing ledger for reading only; nothing is created."""
        path = location(url)
        if path is None:
            raise LedgerError("a ledger in memory cannot be opened again. Name a file.")
        store = FileStore(path, read_only=True)  # first, so that a missing file is refused before anything else
        ledger = cls(path)
        ledger._store = store
        return ledger

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Ledger({self._store.name!r})"

    def close(self) -> None:
        """Close a ledger in memory; a ledger in a file keeps nothing open."""
        self._store.close()

    def spend(self, promise: Promise, purpose: SpendPurpose) -> Spend:
        """Charge the true loss of a promise to a dataset, in one transaction, before there is any noise.

        The spend is refused (:class:`Refusal`, :class:`BudgetError`) if the same was spent on before or the budget does
        not cover it. The first budget is fixed. A refused or failed spend leaves no row.
        """
        _check_dataset(purpose.dataset)
        if not self._store.exists():
            with self._copy() as copy:  # a refused first spend must leave no file behind
                copy._record(promise, purpose)
        spend = self._record(promise, purpose)
        _log.info("spend %s on dataset %s", spend.id, spend.dataset)
        return spend

    def _record(self, promise: Promise, purpose: SpendPurpose) -> Spend:
        spend = Spend(
            id=secrets.token_hex(16),
            at=self._time(),
            who=self.who,
            dataset=purpose.dataset,
            period=purpose.period,
            policy_digest=_resolved(promise, purpose),
            promise_digest=promise.digest(),
            guarantee=promise.guarantee.to_dict(),
            basis=str(promise.basis),
            loss_add_remove=promise.true_loss(Neighbours.ADD_REMOVE),
            loss_replace_one=promise.true_loss(Neighbours.REPLACE_ONE),
            note=self.note,
        )
        salt = secrets.token_bytes(32)
        digest = purpose.input_digest(salt) if purpose.input_digest is not None else None
        with self._store.writing() as database:
            if not self.again and (repeat := _repeat(database, promise, purpose)):
                raise Refusal(repeat)
            entries = _budgets(database, purpose.dataset)
            budget = entries[-1].budget if entries else purpose.budget  # the first is fixed, unless the owner sets one
            if purpose.budget not in (None, budget):
                raise Refusal(
                    f"the budget of dataset {purpose.dataset!r} is fixed at {budget}, but the policy says "
                    f"{purpose.budget}. Write the fixed budget there, or change it with `dunnage budget set --note`."
                )
            if budget is not None:
                if not entries:
                    self._insert_budget(database, purpose.dataset, budget, "first budget, from the policy")
                earlier = _spends(database, purpose.dataset)
                losses = [item.loss(budget.neighbours) for item in earlier]
                others = [unit for unit in _units(earlier) if unit not in _units([spend])]
                cost = spend.loss(budget.neighbours)
                then = budget.spent([*losses, cost])
                if not (then.within(budget.limit) if then.bounded and not others else purpose.allow_unbounded):
                    raise _overspend(budget, losses, cost, purpose.dataset, others)
            stated = [(loss.epsilon, loss.delta if loss.bounded else None) for loss in map(spend.loss, Neighbours)]
            texts = [_NONE if part is None else _fraction_text(part) for loss in stated for part in loss]
            values = {name: getattr(spend, name) for name in _PLAIN_COLUMNS}
            guarantee = json.dumps(dict(spend.guarantee), sort_keys=True, allow_nan=False)
            amounts = dict(zip(_LOSS_COLUMNS, texts, strict=True))
            _insert(database, "spends", {**values, **amounts, "guarantee": guarantee})
            if digest is not None:
                for statement in _INPUTS:  # ledgers of 0.1.0 have no such table
                    database.execute(statement)
                _insert(database, "inputs", {"id": spend.id, "salt": salt.hex(), "digest": digest})
        return spend

    @property
    def path(self) -> Path | None:
        """The file of the ledger; None if it is in memory."""
        return getattr(self._store, "path", None)

    def repeat(self, promise: Promise, purpose: SpendPurpose) -> str:
        """Return why a spend would be refused without ``again``; empty if it repeats nothing."""
        with self._store.reading() as database:
            return _repeat(database, promise, purpose)

    def k_anonymous_spends(self, promise: Promise, purpose: SpendPurpose) -> list[Spend]:
        """Return spends on k-anonymous releases that may be of the same records as another one."""
        return _k_anonymous(self.statement(purpose.dataset).spends, promise, purpose.period)

    def rehearsal(self) -> Rehearsal:
        return Rehearsal(self)

    def set_budget(self, dataset: str, budget: Budget, *, note: str) -> Statement:
        """Set or change the budget of a dataset; earlier budgets are kept."""
        _check_dataset(dataset)
        if not note.strip():
            raise ParameterError(f"a budget needs a note that says why you set it. Got {note!r}.")
        with self._store.writing() as database:
            self._insert_budget(database, dataset, budget, note)
        return self.statement(dataset)

    def statement(self, dataset: str) -> Statement:
        """Return budget, spends, totals and what is left of one dataset; empty if the ledger does not know it."""
        with self._store.reading() as database:
            return Statement(dataset=dataset, budgets=_budgets(database, dataset), spends=_spends(database, dataset))

    def spends_this_month(self, dataset: str) -> tuple[Spend, ...]:
        """Return what was spent on a dataset in the current calendar month (UTC)."""
        return tuple(spend for spend in self.statement(dataset).spends if spend.at.startswith(self._time()[:7]))

    def datasets(self) -> list[str]:
        with self._store.reading() as database:
            rows = database.execute("SELECT dataset FROM spends UNION SELECT dataset FROM budgets").fetchall()
        with _readable():
            _check_texts(rows)
        return sorted(name for (name,) in rows)

    def summary(self) -> str:
        return "\n\n".join(self.statement(name).summary() for name in self.datasets()) or "nothing was spent"

    def to_dict(self) -> dict[str, object]:
        return {"format": FORMAT, "datasets": [self.statement(name).to_dict() for name in self.datasets()]}

    def _insert_budget(self, database: sqlite3.Connection, dataset: str, budget: Budget, note: str) -> None:
        values = {
            "at": self._time(),
            "who": self.who,
            "dataset": dataset,
            "epsilon": _fraction_text(budget.epsilon),
            "delta": _fraction_text(budget.delta),
            "neighbours": str(budget.neighbours),
            "note": _storable(note),
        }
        if budget.accounting is not Accounting.SUM or _counts_otherwise(database):
            if not _counts_otherwise(database):
                # Version 0.1.0 does not look at it and adds up, which refuses more, never less.
                database.execute(f"ALTER TABLE budgets ADD COLUMN accounting TEXT NOT NULL DEFAULT '{Accounting.SUM}'")
            values["accounting"] = str(budget.accounting)
        _insert(database, "budgets", values)

    def _time(self) -> str:
        return self._clock().astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")

    def _copy(self) -> Ledger:
        store = MemoryStore()
        with self._store.reading() as database:
            # The first read takes the lock within the timeout; a backup alone would wait for it for ever.
            database.execute("SELECT count(*) FROM meta").fetchall()
            database.backup(store.database)
        copy = Ledger(MEMORY, again=self.again, note=self.note, who=self.who, clock=self._clock)
        copy._store = store
        return copy


class Rehearsed(Exception):
    """Stops a mechanism at its spend, before any noise: control flow, not an error."""

    def __init__(self, promise: Promise, statement: Statement, refusals: Sequence[str] = ()) -> None:
        self.promise, self.statement, self.refusals = promise, statement, tuple(refusals)
        self.loss = promise.true_loss(statement.neighbours)
        super().__init__("the spend was rehearsed; nothing was spent")


class Rehearsal:
    """Stands in for a ledger where nothing may be spent (``publish --dry-run``)."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def spend(self, promise: Promise, purpose: SpendPurpose) -> NoReturn:
        """Make all checks of a spend on a copy in memory, then stop, and say what would be refused."""
        refusals = []
        with self._ledger._copy() as copy:
            with copy._store.reading() as database:
                refusals += [repeat for repeat in (_repeat(database, promise, purpose),) if repeat and not copy.again]
            copy.again = True
            try:
                copy._record(promise, purpose)
            except Refusal as error:
                refusals.append(str(error))
            statement = copy.statement(purpose.dataset)
        raise Rehearsed(promise, statement, refusals)
