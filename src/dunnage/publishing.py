# SPDX-License-Identifier: Apache-2.0
"""publish: what an owner does with a policy. Promise, spend, release, write."""

from __future__ import annotations

import contextlib
import csv
import io
import logging
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from dunnage.arrays import IntArray
from dunnage.errors import InternalError, OutputError, ParameterError, PolicyError, Problem
from dunnage.ledger import Ledger, Rehearsed, Statement
from dunnage.mechanisms import MECHANISMS
from dunnage.mechanisms.base import Foresight, Mechanism, Progress
from dunnage.model.documents import suggestion
from dunnage.model.domains import Category
from dunnage.model.guarantees import Loss, Promise
from dunnage.model.policy import Policy
from dunnage.noise.source import Noise
from dunnage.publication import Key, Publication, check_output
from dunnage.tables.dataset import Dataset
from dunnage.tables.reader import CSV_ENDINGS

LEDGER_FILE = "dunnage-ledger.sqlite"
POOL_ENDINGS = {True: ".pool.csv", False: ".pool.parquet"}
MANY_LABELS, FEW_TIMES = 50, 25
"""A column of so many labels, each so few times on average, may tell persons apart."""
_NO_TRIPS = "there are no trips: what is released is noise alone. Check the file and the period before you spend on it."
_log = logging.getLogger("dunnage")


def mechanism_of(policy: Policy) -> Mechanism:
    source = str(policy.path or "policy")
    parameters = {name: value for name, value in policy.mechanism.items() if name != "name"}
    name = str(policy.mechanism["name"])
    kind = MECHANISMS.get(name)
    if kind is None:
        what, remedy = f"no mechanism {name!r} in this version", suggestion(name, MECHANISMS)
        raise PolicyError(source, [Problem(what, where="mechanism.name", remedy=remedy)])
    problems = [
        Problem(f"is not a parameter of {name}", where=f"mechanism.{key}", remedy=suggestion(key, kind.model_fields))
        for key in parameters
        if key not in kind.model_fields
    ]
    for key, parameter in kind.model_fields.items():
        if parameter.is_required() and key not in parameters:
            remedy = f"Write {key} = ... in [mechanism]: what it promises is yours to choose, so it has no default."
            problems.append(Problem("is missing", where=f"mechanism.{key}", remedy=remedy))
    if policy.schema.person is not None and not kind.counts_persons:
        able = ", ".join(key for key, other in MECHANISMS.items() if other.counts_persons)
        remedy = f"Use {able}, or leave [contribution] out."
        problems.append(Problem(f"{name} counts records, not persons", where="contribution.person", remedy=remedy))
    if policy.schema.trip is not None and not kind.counts_trips:
        able = ", ".join(key for key, other in MECHANISMS.items() if other.counts_trips)
        remedy = f"Use {able}, or leave [trip] out."
        problems.append(Problem(f"{name} releases rows, not counts of trips", where="trip", remedy=remedy))
    if not problems:
        try:
            made = kind(**parameters)
            made.promise(policy.schema)
            problems = list(made.problems(policy.schema))
        except ParameterError as error:
            problems = [Problem(str(error), where="mechanism")]
    if problems:
        raise PolicyError(source, problems)
    return made


@contextlib.contextmanager
def _blaming_policy(data: Dataset) -> Iterator[None]:
    """Name the policy where its mechanism of counts is refused only now that all cells of the period are known."""
    if data.schema.trip is None:
        yield
        return
    data.schema.universe(data.period)  # what is wrong with the period is not the mechanism's fault
    try:
        yield
    except ParameterError as error:
        where = "mechanism.features" if "features" in str(error) else "mechanism"
        raise PolicyError(str(data.policy.path or "policy"), [Problem(str(error), where=where)]) from None


def promise(policy: Policy) -> Promise:
    """Return what a policy promises; no data is needed.

    Parameters
    ----------
    policy
        The policy whose mechanism is asked.
    """
    return mechanism_of(policy).promise(policy.schema)


def publish(
    data: Dataset,
    *,
    out: str | os.PathLike[str] | None = None,
    ledger: Ledger | str | os.PathLike[str] | None = None,
    noise: Noise | None = None,
    sign: str | os.PathLike[str] | None = None,
    force: bool = False,
    again: bool = False,
    progress: Progress | None = None,
) -> Publication:
    """Release a dataset under its policy: promise, spend, release, write.

    Parameters
    ----------
    data
        The rows, with their policy.
    out
        Folder to write the release to; its key goes beside it. None keeps both in memory.
    ledger
        A ledger, or the path of one; by default ``dunnage-ledger.sqlite`` beside the policy.
    noise
        Source of randomness; by default the operating system's. A seeded one voids the certificate.
    sign
        Ed25519 private key (PEM file) to sign with.
    force
        Replace an existing release at ``out``.
    again
        Spend once more on the same dataset, period and policy.
    progress
        Called with the name of each stage as it begins.

    Returns
    -------
    Publication
        ``release`` and ``key``.
    """
    tell = progress or (lambda stage: None)
    mechanism = mechanism_of(data.policy)
    if sign is not None:
        from dunnage.model.certificate import load_private_key

        load_private_key(sign)  # an unusable key must be found before anything is spent
    if out is not None:
        _check_places(mechanism, data, out, force=force)
    tell("finding classes")
    with _opened(ledger, data.policy, again=again) as book, _blaming_policy(data):
        publication = mechanism.release(data, ledger=book, noise=noise or Noise(), progress=tell)
    _log.info("released %s", data.policy.dataset)
    if out is None:
        return publication
    tell("writing the release")
    written = publication.write(out, sign=sign, force=force)
    if mechanism.pools:
        write_pool(data, written.key, pool_path(out, data), force=force)
    return written


def owner_warnings(data: Dataset) -> tuple[str, ...]:
    """Say what the owner should not overlook about publishing these rows. For the owner's eyes only."""
    mechanism = mechanism_of(data.policy)
    with _blaming_policy(data):
        return (*mechanism.warnings(data), *_data_warnings(mechanism, data))


def foresee(data: Dataset) -> Foresight:
    """Tell the owner what publishing these rows would be like; nothing is drawn. For the owner's eyes only."""
    mechanism = mechanism_of(data.policy)
    with _blaming_policy(data):
        preview = mechanism.preview(data)
    return replace(preview, warnings=(*preview.warnings, *_data_warnings(mechanism, data)))


def _data_warnings(mechanism: Mechanism, data: Dataset) -> Iterator[str]:
    """Warn of no rows, and of released labels that are many and mostly repeat, as those of cards and vehicles do."""
    if len(data) == 0:
        yield _NO_TRIPS
    if data.schema.person is not None or not mechanism.counts_persons:
        return
    for attribute in (*data.schema.public, *data.schema.sensitive, *data.schema.quasi_identifiers):
        if attribute.kind not in (None, Category.kind):
            continue
        times = data.column(attribute.name).value_counts().field("counts").to_numpy()
        if len(times) >= MANY_LABELS and len(data) <= FEW_TIMES * len(times) and (times > 1).mean() > 1 / 2:
            yield (
                f"{attribute.name!r} has {len(times):,} values, most of which come again. If it tells persons apart, "
                f"it links their {data.schema.protects}s for everyone, and k does not count persons: give it the role "
                '"identifier" and name it in [contribution].'
            )


def _check_places(mechanism: Mechanism, data: Dataset, out: str | os.PathLike[str], *, force: bool) -> None:
    """Check, before anything is spent, that everything may be written where it is to go."""
    check_output(out, force=force)
    pool = pool_path(out, data)
    if mechanism.pools and os.path.lexists(pool) and not force:
        raise OutputError(f"{pool} exists already. Choose another name, or replace it with --force.")


def pool_path(folder: str | os.PathLike[str], data: Dataset) -> Path:
    """Return where the rows that a release left out go, to wait for the next: beside its folder, like the key."""
    path = Path(os.path.abspath(folder))
    return path.with_name(path.name + POOL_ENDINGS[_is_csv(data)])


def _is_csv(data: Dataset) -> bool:
    return data.source.lower().endswith(CSV_ENDINGS)


def left_out_rows(dataset: Dataset, key: Key) -> IntArray:
    """Return the positions of records that a release does not tell of: what goes into the pool of the next."""
    released = np.zeros(len(dataset), dtype=bool)
    records = dataset.parts.records_of(key.table.column("source_row").to_numpy())
    released[records[records >= 0]] = True
    return np.flatnonzero(~released)


def write_pool(data: Dataset, key: Key, path: Path, *, force: bool = False) -> None:
    """Write the rows that a release left out just as they were read, in a file that its owner alone can read.

    All columns are there, and CSV is written as the policy says it is read, so that the file can be read under the
    same policy. Rows that the policy itself left out are not in it.
    """
    _, positions = data.parts.of(left_out_rows(data, key))
    assert data.original is not None
    rows = data.original.take(data.parts.source_rows[positions])
    sink = io.BytesIO()
    if _is_csv(data):  # cells that were read as text, as they were
        options, text = data.policy.read_options, io.StringIO(newline="")
        writer = csv.writer(text, delimiter=options.delimiter, lineterminator="\n")
        writer.writerow(rows.column_names)
        writer.writerows(zip(*(column.to_pylist() for column in rows.columns), strict=True))
        sink.write(text.getvalue().encode(options.encoding))
    else:
        pq.write_table(rows, sink, compression="zstd")
    work = path.with_name(f".{path.name}.{secrets.token_hex(6)}.partial")
    try:
        with os.fdopen(os.open(work, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
            stream.write(sink.getvalue())
        os.replace(work, path) if force else os.link(work, path)
    except OSError as error:
        reason = error.strerror or "the disk failed"
        raise OutputError(
            f"{path} could not be written: {reason}. The release itself was; move the file away."
        ) from None
    finally:
        work.unlink(missing_ok=True)


@dataclass(frozen=True)
class DryRun:
    """What publishing would promise and spend; nothing was drawn, spent or written.

    Attributes
    ----------
    promise
        What would be promised.
    num_rows, num_left_out
        How many records would be used, and left out as the policy says; for the owner only.
    asked
        What it would cost.
    before, after
        The ledger's statement of the dataset now, and as it would be then.
    foresight
        What the mechanism tells the owner beforehand.
    """

    promise: Promise
    num_rows: int
    num_left_out: int
    asked: Loss
    before: Statement
    after: Statement
    foresight: Foresight = field(default_factory=Foresight)

    def to_dict(self) -> dict[str, object]:
        """Give the result as plain data."""
        return {
            "dry_run": True,
            "promise": self.promise.to_dict(),
            "records": self.num_rows,
            "left_out": self.num_left_out,
            "asked": str(self.asked),
            "spent": str(self.before.total),
            "left": self.before.left_text(),
            "left_after": self.after.left_text(),
            "foresight": self.foresight.to_dict(),
        }


def rehearse(
    data: Dataset,
    *,
    out: str | os.PathLike[str] | None = None,
    ledger: Ledger | str | os.PathLike[str] | None = None,
    noise: Noise | None = None,
    force: bool = False,
    again: bool = False,
) -> DryRun:
    """Do everything up to the spend, and say what it would be. Nothing is drawn, spent or written.

    Parameters
    ----------
    data, out, ledger, noise, force, again
        As for :func:`publish`.
    """
    mechanism = mechanism_of(data.policy)
    if out is not None:
        _check_places(mechanism, data, out, force=force)
    foresight = foresee(data)
    with _opened(ledger, data.policy, again=again) as book:
        before = book.statement(data.policy.dataset)
        rehearsal: Any = book.rehearsal()  # stops where a ledger would spend
        try:
            with _blaming_policy(data):
                mechanism.release(data, ledger=rehearsal, noise=noise or Noise())
        except Rehearsed as stop:
            return DryRun(stop.promise, len(data), data.num_left_out, stop.loss, before, stop.statement, foresight)
    raise InternalError(f"mechanism {data.policy.mechanism['name']} released without spending")


@contextlib.contextmanager
def _opened(ledger: Ledger | str | os.PathLike[str] | None, policy: Policy, *, again: bool) -> Iterator[Ledger]:
    """Give the ledger to spend on: the caller's own, or one opened for this call."""
    if isinstance(ledger, Ledger):
        before, ledger.again = ledger.again, ledger.again or again
        try:
            yield ledger
        finally:
            ledger.again = before
        return
    with Ledger(ledger if ledger is not None else default_ledger(policy), again=again) as book:
        yield book


def default_ledger(policy: Policy) -> Path:
    if policy.path is None:
        raise ParameterError("a policy without a file has no default ledger. Pass ledger= (a path, or a Ledger).")
    return policy.path.parent / LEDGER_FILE
