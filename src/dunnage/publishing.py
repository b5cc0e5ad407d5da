# SPDX-License-Identifier: Apache-2.0
"""Publish a dataset under its policy: state the promise, spend the budget, release, write."""

from __future__ import annotations

import contextlib
import csv
import io
import json
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
from dunnage.tables.dataset import Dataset, dropped_shares, dropped_text, may_be_persons
from dunnage.tables.reader import CSV_ENDINGS
from dunnage.text import percent, several

LEDGER_FILE = "dunnage-ledger.sqlite"
MANY_DROPPED = 0.1  # share of trips above which a bound on the trips of a rider is worth a warning
_NO_TRIPS = "there are no trips, so the release would be noise alone. Check the file and the period before you spend."
_log = logging.getLogger("dunnage")


def mechanism_of(policy: Policy) -> Mechanism:
    source = str(policy.path or "policy")
    parameters = {name: value for name, value in policy.mechanism.items() if name != "name"}
    name = str(policy.mechanism["name"])
    kind = MECHANISMS.get(name)
    if kind is None:
        what, remedy = f"this version has no mechanism {name!r}", suggestion(name, MECHANISMS)
        raise PolicyError(source, [Problem(what, where="mechanism.name", remedy=remedy)])
    problems = [
        Problem(f"is not a parameter of {name}", where=f"mechanism.{key}", remedy=suggestion(key, kind.model_fields))
        for key in parameters
        if key not in kind.model_fields
    ]
    for key, parameter in kind.model_fields.items():
        if parameter.is_required() and key not in parameters:
            remedy = f"Write {key} = ... in [mechanism]. It has no default, because the promise is your choice."
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
    """Blame the policy where a mechanism of counts fails only now, when all cells of the period are known."""
    if data.schema.trip is None:
        yield
        return
    data.schema.universe(data.period)  # a wrong period is not the mechanism's fault
    try:
        yield
    except ParameterError as error:
        where = "mechanism.features" if "features" in str(error) else "mechanism"
        raise PolicyError(str(data.policy.path or "policy"), [Problem(str(error), where=where)]) from None


def promise(policy: Policy) -> Promise:
    """Return what a policy promises; no data are needed.

    Parameters
    ----------
    policy
        The policy.
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
    """Release a dataset under its policy: state the promise, spend the budget, release, write.

    Parameters
    ----------
    data
        The rows, with their policy.
    out
        Folder for the release; the key goes beside it. None keeps both in memory.
    ledger
        A ledger or its path; by default ``dunnage-ledger.sqlite`` beside the policy.
    noise
        Source of randomness; by default that of the operating system. A seed voids the certificate.
    sign
        Ed25519 private key (PEM file) to sign with.
    force
        Replace an existing release at ``out``.
    again
        Spend again on the same dataset, period and policy.
    progress
        Function that is called with the name of each stage as it begins.

    Returns
    -------
    Publication
        ``release`` and ``key``.
    """
    tell = progress or (lambda stage: None)
    mechanism = mechanism_of(data.policy)
    if sign is not None:
        from dunnage.model.certificate import load_private_key

        load_private_key(sign)  # fail before any budget is spent
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
    """Return what the owner should check before publishing these rows. Private."""
    mechanism = mechanism_of(data.policy)
    with _blaming_policy(data):
        return (*mechanism.warnings(data), *_data_warnings(mechanism, data))


def foresee(data: Dataset) -> Foresight:
    """Tell the owner what to expect from publishing these rows, without any noise. Private."""
    mechanism = mechanism_of(data.policy)
    with _blaming_policy(data):
        preview = mechanism.preview(data)
    warnings = (*preview.warnings, *_data_warnings(mechanism, data))
    if (groups := data.trip_groups) is None or data.schema.contribution is None:
        return replace(preview, warnings=warnings)
    bound = data.schema.contribution.max
    shares = dropped_shares(np.unique(groups, return_counts=True)[1], bound)
    line = f"{dropped_text(shares, bound)}. A larger max adds noise in proportion, and max is public"
    rows = [{"max": most, "dropped_share": share} for most, share in shares.items()]
    return replace(
        preview, warnings=warnings, lines=(*preview.lines, line), details={**preview.details, "trips_dropped": rows}
    )


def _data_warnings(mechanism: Mechanism, data: Dataset) -> Iterator[str]:
    """Warn about an empty dataset, and about released labels that look like cards or vehicles: many, and repeated."""
    if len(data) == 0:
        yield _NO_TRIPS
    if data.schema.trip is not None:
        yield from _date_warnings(data)
        yield from _bound_warnings(data)
    else:
        yield from _identifier_warnings(mechanism, data)
    if data.schema.person is not None or not mechanism.counts_persons:
        return
    for attribute in (*data.schema.public, *data.schema.sensitive, *data.schema.quasi_identifiers):
        if attribute.kind not in (None, Category.kind):
            continue
        times = data.column(attribute.name).value_counts().field("counts").to_numpy()
        if may_be_persons(times):
            yield (
                f"{attribute.name!r} has {len(times):,} values, and most occur more than once. If it identifies "
                f"persons, everyone can link their {data.schema.protects}s, and k does not count persons: give it the "
                'role "identifier" and name it in [contribution].'
            )


def _date_warnings(data: Dataset) -> Iterator[str]:
    """Warn if the policy does not state the number of dates, which a receiver needs, or states another one."""
    stated, dates = sum(data.schema.num_dates(data.period)), np.unique(data.service_dates)
    num = int((dates > 0).sum())
    seen = f"these trips are on {several(num, 'date')}" if num else "these trips have no dates"
    if not stated:
        yield (
            "the policy does not say how many dates one release covers, so nobody can tell the trips of one day, and "
            f"dunnage size refuses the release. {seen[0].upper()}{seen[1:]}. Write [expect] dates = N"
            f"{' (or days = {...} for each label)' if data.schema.tells_days else ''} from the timetable."
        )
    elif data.schema.dates is not None and num and num != stated:
        yield f"the policy states {several(stated, 'date')}, but {seen}. Receivers divide by the number stated."


def _bound_warnings(data: Dataset) -> Iterator[str]:
    """Warn if the bound on the trips of a rider drops many of them."""
    groups, bound = data.trip_groups, data.schema.contribution
    if groups is None or bound is None or not len(groups):
        return
    sizes = np.unique(groups, return_counts=True)[1]
    dropped = float(np.maximum(sizes - bound.max, 0).sum() / sizes.sum())
    if dropped >= MANY_DROPPED:
        yield (
            f"max = {bound.max} in [contribution] drops {percent(dropped)} of these trips, and every count is too low "
            "by about that. dunnage publish --dry-run shows what other bounds drop."
        )


def _identifier_warnings(mechanism: Mechanism, data: Dataset) -> Iterator[str]:
    """Warn about identifiers that occur several times: a person, or a consignment, with several records."""
    if data.schema.person is not None or data.schema.together is not None:
        return
    for attribute in data.schema.identifiers:
        times = data.column(attribute.name).value_counts().field("counts").to_numpy()
        if (again := int((times > 1).sum())) == 0:
            continue
        person = "[contribution] person"
        if not mechanism.counts_persons:  # all mechanisms are loaded only now
            able = [name for name, kind in MECHANISMS.items() if kind.counts_persons and not kind.counts_trips]
            person += f", which needs {' or '.join(able)}"
        yield (
            f"{again:,} of {several(len(times), 'value')} of the identifier {attribute.name!r} occur more than once, "
            f"up to {int(times.max()):,} times. If it names persons, those with several rows are protected less than "
            f"you promise: name it in {person}. If all rows with one value are one {data.schema.protects}, write "
            f"together = {json.dumps(attribute.name)}."
        )


def _check_places(mechanism: Mechanism, data: Dataset, out: str | os.PathLike[str], *, force: bool) -> None:
    """Check, before any budget is spent, that every file can be written."""
    check_output(out, force=force)
    pool = pool_path(out, data)
    if mechanism.pools and os.path.lexists(pool) and not force:
        raise OutputError(f"{pool} already exists. Choose another name, or replace it with --force.")


def pool_path(folder: str | os.PathLike[str], data: Dataset) -> Path:
    """Return the file for rows that a release left out and the next one may use: beside the folder, like the key."""
    path = Path(os.path.abspath(folder))
    return path.with_name(path.name + (".pool.csv" if _is_csv(data) else ".pool.parquet"))


def _is_csv(data: Dataset) -> bool:
    return data.source.lower().endswith(CSV_ENDINGS)


def left_out_rows(dataset: Dataset, key: Key) -> IntArray:
    """Return the positions of records that are not in a release: they go into the pool for the next one."""
    released = np.zeros(len(dataset), dtype=bool)
    records = dataset.parts.records_of(key.table.column("source_row").to_numpy())
    released[records[records >= 0]] = True
    return np.flatnonzero(~released)


def write_pool(data: Dataset, key: Key, path: Path, *, force: bool = False) -> None:
    """Write the rows that a release left out, unchanged, to a file that only its owner can read.

    The file has all columns, and CSV has the format that the policy reads, so that the same policy can read it. Rows
    that the policy itself left out are not in it.
    """
    _, positions = data.parts.of(left_out_rows(data, key))
    assert data.original is not None
    rows = data.original.take(data.parts.source_rows[positions])
    sink = io.BytesIO()
    if _is_csv(data):  # cells were read as text: write the same text
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
        raise OutputError(f"{path} could not be written: {reason}. The release is complete; move this file.") from None
    finally:
        work.unlink(missing_ok=True)


@dataclass(frozen=True)
class DryRun:
    """What publishing would promise and cost. Nothing was sampled, spent or written.

    Attributes
    ----------
    promise
        The promise of the release.
    num_rows, num_left_out
        Number of records that would be used, and that the policy leaves out; for the owner only.
    asked
        The cost.
    before, after
        The ledger's statement of the dataset, now and after publishing.
    foresight
        What the mechanism tells the owner in advance.
    """

    promise: Promise
    num_rows: int
    num_left_out: int
    asked: Loss
    before: Statement
    after: Statement
    foresight: Foresight = field(default_factory=Foresight)

    def to_dict(self) -> dict[str, object]:
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
    """Do everything up to the spend, and return what it would cost. Nothing is sampled, spent or written.

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
        rehearsal: Any = book.rehearsal()  # raises Rehearsed instead of spending
        try:
            with _blaming_policy(data):
                mechanism.release(data, ledger=rehearsal, noise=noise or Noise())
        except Rehearsed as stop:
            return DryRun(stop.promise, len(data), data.num_left_out, stop.loss, before, stop.statement, foresight)
    raise InternalError(f"mechanism {data.policy.mechanism['name']} released without spending")


@contextlib.contextmanager
def _opened(ledger: Ledger | str | os.PathLike[str] | None, policy: Policy, *, again: bool) -> Iterator[Ledger]:
    """Give the ledger of the caller, or open one for this call."""
    if isinstance(ledger, Ledger):
        before, ledger.again = ledger.again, ledger.again or again
        try:
            yield ledger
        finally:
            ledger.again = before
        return
    if ledger is None:
        if policy.path is None:
            raise ParameterError("a policy without a file has no default ledger. Pass ledger= (a path or a Ledger).")
        ledger = policy.path.parent / LEDGER_FILE
    with Ledger(ledger, again=again) as book:
        yield book
