# SPDX-License-Identifier: Apache-2.0
"""publish: what an owner does with a policy. Promise, spend, release, write."""

from __future__ import annotations

import contextlib
import csv
import io
import logging
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa
import pyarrow.parquet as pq

from dunnage.dataset import Dataset
from dunnage.documents import suggestion
from dunnage.domains import Category
from dunnage.errors import InternalError, OutputError, ParameterError, PolicyError, Problem
from dunnage.guarantees import Loss, Promise
from dunnage.io import CSV_ENDINGS
from dunnage.ledger import Ledger, Rehearsed, Statement
from dunnage.mechanisms.constrained_counts import ConstrainedCounts
from dunnage.mechanisms.foresight import Foresight
from dunnage.mechanisms.full_domain import FullDomain
from dunnage.mechanisms.hierarchical_counts import HierarchicalCounts
from dunnage.mechanisms.noisy_clusters import NoisyClusters
from dunnage.mechanisms.noisy_counts import NoisyCounts
from dunnage.mechanisms.noisy_values import NoisyValues
from dunnage.mechanisms.partition import Partition
from dunnage.mechanisms.sampled_lattice import SampledLattice, left_out_rows
from dunnage.mechanisms.utility_clusters import UtilityClusters
from dunnage.noise import Noise
from dunnage.policy import Policy
from dunnage.publication import Key, Publication, check_output
from dunnage.schema import Schema

LEDGER_FILE = "dunnage-ledger.sqlite"
POOL_ENDINGS = {True: ".pool.csv", False: ".pool.parquet"}
MANY_LABELS, FEW_TIMES = 50, 25
"""A column of so many labels, each so few times on average, may tell persons apart."""
Progress = Callable[[str], None]
_NO_TRIPS = "there are no trips: what is released is noise alone. Check the file and the period before you spend on it."
_log = logging.getLogger("dunnage")


class Mechanism(Protocol):
    """Frozen parameters with two verbs."""

    def promise(self, schema: Schema) -> Promise:
        """State the guarantee; needs no data."""

    def release(self, dataset: Dataset, *, ledger: Any, noise: Noise) -> Publication:
        """Spend once, then release."""


@runtime_checkable
class Foreseeing(Protocol):
    """A mechanism that has something to tell its owner before it spends."""

    def foresee(self, dataset: Dataset) -> Foresight:
        """Tell everything that helps to choose parameters; draws nothing."""


# The one table from policy names to classes.
MECHANISMS: Mapping[str, Any] = {
    kind.name: kind
    for kind in (
        ConstrainedCounts,
        FullDomain,
        HierarchicalCounts,
        NoisyClusters,
        NoisyCounts,
        NoisyValues,
        Partition,
        SampledLattice,
        UtilityClusters,
    )
}


def mechanism_of(policy: Policy) -> Mechanism:
    """Build the mechanism a policy names."""
    source = str(policy.path or "policy")
    parameters = {name: value for name, value in policy.mechanism.items() if name != "name"}
    name = policy.mechanism["name"]
    if name not in MECHANISMS:
        what = Problem(
            f"no mechanism {name!r} in this version", where="mechanism.name", remedy=suggestion(name, MECHANISMS)
        )
        raise PolicyError(source, [what])
    problems = _parameter_problems(MECHANISMS[name], parameters)
    if policy.schema.person is not None and not getattr(MECHANISMS[name], "counts_persons", False):
        able = ", ".join(key for key, kind in MECHANISMS.items() if getattr(kind, "counts_persons", False))
        remedy = f"Use {able}, or leave [contribution] out."
        problems.append(Problem(f"{name} counts records, not persons", where="contribution.person", remedy=remedy))
    if policy.schema.trip is not None and not getattr(MECHANISMS[name], "counts_trips", False):
        able = ", ".join(key for key, kind in MECHANISMS.items() if getattr(kind, "counts_trips", False))
        remedy = f"Use {able}, or leave [trip] out."
        problems.append(Problem(f"{name} releases rows, not counts of trips", where="trip", remedy=remedy))
    if not problems:
        try:
            made: Mechanism = MECHANISMS[name](**parameters)
            made.promise(policy.schema)
            problems = list(_feature_problems(made, policy.schema))
        except ParameterError as error:
            problems = [Problem(str(error), where="mechanism")]
    if problems:
        raise PolicyError(source, problems)
    return made


def _feature_problems(mechanism: Any, schema: Schema) -> Iterator[Problem]:
    """Find features by columns that nothing tells."""
    if schema.trip is None or not hasattr(mechanism, "queries"):
        return
    zoned = schema.city is not None and schema.city.zones is not None
    has_modes = schema.city is not None and schema.city.modes is not None
    day = f'Write day = "weekday", say, in [attributes.{schema.trip.time}]'
    fewer = f'write features = "{"H3" if mechanism.name == "hierarchical-counts" else "O3"}", which needs none'
    needs = (
        (
            zoned,
            {"origin_zone", "destination_zone"},
            "the zone of each stop",
            f"Add a column zone to the stops file, or {fewer}",
        ),
        (has_modes, {"mode"}, "the mode of each pair of stops", f'Write [city] modes = "modes.csv", or {fewer}'),
        (schema.tells_days, {"day"}, "days that are told apart", f"{day}, or choose features without days"),
    )
    asked = [query for query in mechanism.queries(schema) if query.columns is not None]
    for known, columns, what, remedy in needs:
        needing = [query.name for query in asked if columns & set(query.columns)]
        if needing and not known:
            told = f"the feature {needing[0]} needs {what}, which the policy does not tell"
            yield Problem(told, where="mechanism.features", remedy=f"{remedy}.")


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


def _parameter_problems(kind: Any, given: Mapping[str, Any]) -> list[Problem]:
    known = {item.name: item for item in fields(kind)}
    problems = [
        Problem(f"is not a parameter of {kind.name}", where=f"mechanism.{name}", remedy=suggestion(name, known))
        for name in given
        if name not in known
    ]
    for name, item in known.items():
        required = item.default is MISSING and item.default_factory is MISSING
        if required and name not in given:
            remedy = f"Write {name} = ... in [mechanism]: what it promises is yours to choose, so it has no default."
            problems.append(Problem("is missing", where=f"mechanism.{name}", remedy=remedy))
    return problems


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
        from dunnage.certificate import load_private_key

        load_private_key(sign)  # an unusable key must be found before anything is spent
    if out is not None:
        _check_places(mechanism, data, out, force=force)
    tell("finding classes")
    with _opened(ledger, data.policy, again=again) as book:
        told = {"progress": tell} if getattr(mechanism, "tells_progress", False) else {}
        with _blaming_policy(data):
            publication = mechanism.release(data, ledger=book, noise=noise or Noise(), **told)
    _log.info("released %s", data.policy.dataset)
    if out is None:
        return publication
    tell("writing the release")
    written = publication.write(out, sign=sign, force=force)
    if getattr(mechanism, "left_out", "") == "pool":
        write_pool(data, written.key, pool_path(out, data), force=force)
    return written


def owner_warnings(data: Dataset) -> tuple[str, ...]:
    """Say what the owner should not overlook about publishing these rows. For the owner's eyes only."""
    mechanism = mechanism_of(data.policy)
    if isinstance(mechanism, SampledLattice):  # whose foresight costs as much as a release
        return mechanism.warnings(data)
    return foresee(data).warnings


def foresee(data: Dataset) -> Foresight:
    """Tell the owner what publishing these rows would be like; nothing is drawn. For the owner's eyes only.

    Parameters
    ----------
    data
        The rows, with their policy.
    """
    mechanism = mechanism_of(data.policy)
    with _blaming_policy(data):
        found = mechanism.foresee(data) if isinstance(mechanism, Foreseeing) else Foresight()
    if len(data) == 0:
        found = replace(found, warnings=(*found.warnings, _NO_TRIPS))
    if data.schema.person is None and getattr(mechanism, "counts_persons", False):
        found = replace(found, warnings=(*found.warnings, *_pseudonym_warnings(data)))
    return found


def _pseudonym_warnings(data: Dataset) -> Iterator[str]:
    """Warn of released labels that are many and mostly repeat, as those of cards and vehicles do."""
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
    if getattr(mechanism, "left_out", "") == "pool" and os.path.lexists(pool) and not force:
        raise OutputError(f"{pool} exists already. Choose another name, or replace it with --force.")


def pool_path(folder: str | os.PathLike[str], data: Dataset) -> Path:
    """Return where the rows that a release left out go, to wait for the next: beside its folder, like the key."""
    path = Path(os.path.abspath(folder))
    return path.with_name(path.name + POOL_ENDINGS[_is_csv(data)])


def _is_csv(data: Dataset) -> bool:
    return data.source.lower().endswith(CSV_ENDINGS)


def write_pool(data: Dataset, key: Key, path: Path, *, force: bool = False) -> None:
    """Write the rows that a release left out just as they were read, in a file that its owner alone can read.

    All columns are there, and CSV is written as the policy says it is read, so that the file can be read under the
    same policy. Rows that the policy itself left out are not in it.
    """
    _, positions = data.parts.of(left_out_rows(data, key))
    assert data.original is not None
    rows = data.original.take(data.parts.source_rows[positions])
    work = path.with_name(f".{path.name}.{secrets.token_hex(6)}.partial")
    try:
        with os.fdopen(os.open(work, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
            stream.write(_csv_text(rows, data.policy) if _is_csv(data) else _parquet_content(rows))
        os.replace(work, path) if force else os.link(work, path)
    except OSError as error:
        reason = error.strerror or "the disk failed"
        raise OutputError(
            f"{path} could not be written: {reason}. The release itself was; move the file away."
        ) from None
    finally:
        work.unlink(missing_ok=True)


def _csv_text(rows: pa.Table, policy: Policy) -> bytes:
    """Write cells that were read as text, as they were."""
    text, options = io.StringIO(newline=""), policy.read_options
    writer = csv.writer(text, delimiter=options.delimiter, lineterminator="\n")
    writer.writerow(rows.column_names)
    writer.writerows(zip(*(column.to_pylist() for column in rows.columns), strict=True))
    return text.getvalue().encode(options.encoding)


def _parquet_content(rows: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows, sink, compression="zstd")
    return sink.getvalue()


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

    def to_dict(self) -> dict[str, Any]:
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
        try:
            with _blaming_policy(data):
                mechanism.release(data, ledger=book.rehearsal(), noise=noise or Noise())
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
    """Return where the ledger of a policy is: beside it."""
    if policy.path is None:
        raise ParameterError("a policy without a file has no default ledger. Pass ledger= (a path, or a Ledger).")
    return policy.path.parent / LEDGER_FILE
