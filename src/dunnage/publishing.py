# SPDX-License-Identifier: Apache-2.0
"""Publish a dataset under its policy: state the promise, spend the budget, release, write."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import json
import logging
import os
import platform
import secrets
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dunnage.arrays import IntArray
from dunnage.errors import (
    CheckFailed,
    DunnageError,
    InternalError,
    OutputError,
    ParameterError,
    PolicyError,
    Problem,
    Refusal,
    ReleaseError,
    check_kind,
)
from dunnage.folders import new_file
from dunnage.ledger import RELEASED, STOPPED, Ledger, Rehearsed, Statement
from dunnage.mechanisms import MECHANISMS
from dunnage.mechanisms.base import Foresight, Mechanism, Progress
from dunnage.mechanisms.classes import ClassMechanism, EquivalenceClasses
from dunnage.model.certificate import Certificate
from dunnage.model.documents import suggestion, to_text
from dunnage.model.domains import Category
from dunnage.model.guarantees import Loss, Neighbours, Promise
from dunnage.model.house import Clearance, House
from dunnage.model.policy import Policy
from dunnage.model.schema import TRIP
from dunnage.noise.source import Noise
from dunnage.publication import (
    KEY_ENDING,
    Key,
    Place,
    Publication,
    check_output,
    finish,
    has_remains,
    key_path,
    reserved,
    tokens_of,
    unplanned_rows,
)
from dunnage.release import CERTIFICATE_FILE, Release
from dunnage.tables.columns import write_csv
from dunnage.tables.dataset import Dataset, dropped_shares, dropped_text, may_be_persons
from dunnage.tables.reader import CSV_ENDINGS
from dunnage.text import percent, plural, several, time_text

if TYPE_CHECKING:  # only counts of trips need it
    from dunnage.ledger.entries import Entry
    from dunnage.usefulness import Usefulness

LEDGER_FILE = "dunnage-ledger.sqlite"
# Room to look for before anything is spent: about four times what releases were seen to take.
_CELL_BYTES, _FIXED_BYTES = 64, 1 << 20
_MAX_LINES = 100_000  # of counts: how many types of trips get a line is not known before there is noise
MANY_DROPPED = 0.1  # share of trips above which a bound on the trips of a rider is worth a warning
_NO_ROWS = "there are no {}s, so the release would be noise alone. Check the file and the period before you spend."
ALLOW_NOISE = "If the receiver will use nothing but useful sums, publish all the same with --allow-noise."
MAX_OFF = 2  # times by which the number of trips may differ from the expected one before the owner is warned
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
    if "expected_trips" in kind.model_fields and policy.expect.trips is not None:
        parameters.setdefault("expected_trips", policy.expect.trips)
    if policy.schema.person is not None and not kind.counts_persons:
        trips = policy.schema.trip is not None
        fitting = (key for key, other in MECHANISMS.items() if other.counts_persons and other.counts_trips == trips)
        remedy = f"Use {', '.join(fitting)}, or leave [contribution] out."
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
    if data.schema.trip is None:  # a policy without trips always has the same cells
        yield
        return
    data.schema.universe(data.period)  # a wrong period is not the mechanism's fault
    try:
        yield
    except ParameterError as error:
        where = "mechanism.features" if "features" in str(error) else "mechanism"
        raise PolicyError(str(data.policy.path or "policy"), [Problem(str(error), where=where)]) from None


def promise(policy: Policy | Dataset | str | os.PathLike[str]) -> Promise:
    """Return what a policy promises; no data are needed.

    Parameters
    ----------
    policy
        The policy, its file, or data that were loaded under it.
    """
    if isinstance(policy, Dataset):
        return mechanism_of(policy.policy).promise_for(policy)
    if not isinstance(policy, Policy):
        policy = Policy.read(policy)
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
    allow_noise: bool = False,
    house: House | None = None,
    exception: str | None = None,
    known_rows: str = "",
    anchor: str | os.PathLike[str] | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    warn: Callable[[str], None] | None = None,
) -> Publication:
    """Release a dataset under its policy: state the promise, spend the budget, release, write.

    Parameters
    ----------
    data
        The rows, with their policy.
    out
        Folder for the release; the key goes beside it, and the list of rows that are not released, if there are any
        (``OUT.unplanned.csv``, private). None keeps everything in memory.
    ledger
        A ledger or its path; by default ``dunnage-ledger.sqlite`` beside the policy.
    noise
        Source of randomness; by default that of the operating system. A seed voids the certificate.
    sign
        Ed25519 private key (PEM file) to sign with.
    force
        Replace an existing release at ``out``.
    again
        Spend again on the same dataset and period: under the same policy, or for a second k-anonymous release.
    allow_noise
        Also publish counts of trips that are predicted to be hardly better than an empty table.
    house
        The limits of your organisation; by default those of the ``house.toml`` nearest to the policy. Nothing is spent
        if one of them is exceeded.
    exception
        Who granted an exception to such a limit, and why; the ledger keeps it as a note.
    known_rows
        Why rows that were published under another dataset name may be spent on under this one.
    anchor
        File, best on another disk, to which the ledger's head is added after the spend and before any noise.
    resume
        Finish a run that was stopped while it wrote to ``out``. If it had spent and nothing of the release was
        complete, this is said (:class:`CheckFailed`) and kept in the ledger; nothing is drawn again. If it had not
        spent, publish from the beginning.
    progress
        Function that is called with the name of each stage as it begins.
    warn
        Function that is called, before anything is spent, with what two k-anonymous releases of the same records
        reveal together; by default it is a Python warning. Private.

    Returns
    -------
    Publication
        ``release`` and ``key``.

    Raises
    ------
    Refusal
        If the policy says how many trips to expect, and the counts would be noise. Public facts alone decide.
    """
    tell = progress or (lambda stage: None)
    check_kind(data, Dataset, "publish takes a Dataset: dn.publish(dn.load(FILE, policy=POLICY))")
    mechanism = mechanism_of(data.policy)
    if sign is not None:
        from dunnage.model.certificate import load_private_key

        load_private_key(sign)  # fail before any budget is spent
    if resume:
        if out is None:
            raise ParameterError("only a release that was written to a folder can be resumed. Pass out=.")
        with _opened(ledger, data.policy, again=again) as book:
            if (finished := _resumed(data, book, mechanism, out, warn or warnings.warn)) is not None:
                return finished
    if out is not None:
        _check_places(mechanism, data, out, force=force)
    usefulness = predicted(data, helpful=not allow_noise, progress=tell)
    if usefulness is not None and usefulness.is_noise and not allow_noise:
        raise Refusal(f"{usefulness.message}\n{ALLOW_NOISE}")
    expected = None if usefulness is None else usefulness.expected
    tell("finding classes")
    options = {"note": exception or "", "known_rows": known_rows, "anchor": anchor}
    with contextlib.ExitStack() as stack:
        book = stack.enter_context(_opened(ledger, data.policy, again=again, **options))
        place = None if out is None else stack.enter_context(reserved(out, force=force))
        stack.enter_context(_blaming_policy(data))
        if (clearance := _clearance(data, book, house, exception, noise)) is not None:
            clearance.require()

        def review(promise: Promise, prepared: object) -> None:
            together = _correspondence(data, book, promise, prepared, out)
            if together and not book.again:
                raise Refusal(" ".join([book.repeat(promise, data.purpose), *together]))
            for sentence in together:
                (warn or warnings.warn)(sentence)

        if place is not None:
            stack.enter_context(_outcome_kept(book, data, place))
        publication = mechanism.release(
            data, ledger=book, noise=noise or Noise(), progress=tell, expected=expected, review=review
        )
        _log.info("released %s", data.policy.dataset)
        if place is None:
            return publication
        tell("writing the release")
        written = publication.write(place.target, sign=sign, place=place)
        _write_lists(data, written, mechanism, place.target, force=force)
        return written


@contextlib.contextmanager
def _outcome_kept(book: Ledger, data: Dataset, place: Place) -> Iterator[None]:
    """Keep in the ledger what became of the spend of this run, if it spends."""
    book.out = {"place": str(place.target), "token": place.token, "machine": platform.node()}
    if place.force:
        book.out = {**book.out, "force": "yes"}
    try:
        yield
    except BaseException:
        with contextlib.suppress(DunnageError):  # the first error is the one to see; --resume keeps the outcome later
            _keep_outcome(book, data, place)
        raise
    finally:
        book.out = None
    try:
        _keep_outcome(book, data, place)
    except DunnageError as error:
        what = f"the release is complete, but the ledger could not keep that: {error} Publish with --resume."
        warnings.warn(what, stacklevel=2)


def _keep_outcome(book: Ledger, data: Dataset, place: Place) -> None:
    certificate = None
    with contextlib.suppress(DunnageError, OSError):
        certificate = Certificate.from_bytes((place.target / CERTIFICATE_FILE).read_bytes())
    for spend in book.open_spends(data.policy.dataset, str(place.target)):
        if certificate is not None and certificate.spend.id == spend.id:
            book.record_outcome(spend.id, spend.dataset, RELEASED, certificate=certificate.digest)
        elif spend.content["out"]["token"] == place.token or not has_remains(
            place.target, spend.content["out"]["token"]
        ):
            # An earlier run that left nothing to resume, or whose remains this one has cleared. A server lets only
            # officers say what became of the run of somebody else; who made it can still resume it.
            with contextlib.suppress(Refusal) if spend.who != book.who else contextlib.nullcontext():
                book.record_outcome(spend.id, spend.dataset, STOPPED)


def _resumed(
    data: Dataset, book: Ledger, mechanism: Mechanism, out: str | os.PathLike[str], warn: Callable[[str], None]
) -> Publication | None:
    """Finish what a stopped run had completed, or say that nothing left the machine; None if it had not spent."""
    target, dataset = Path(os.path.abspath(out)), data.policy.dataset
    tokens = tokens_of(target) if target.parent.is_dir() else []
    book.await_turn(dataset)
    runs = book.runs_at(dataset, str(target), tokens)
    spend = next((one for one, outcome in runs if outcome is None), None)
    if spend is None:
        last, outcome = runs[0] if runs else (None, None)
        is_stopped = outcome is not None and outcome.content["state"] == STOPPED
        if last is not None and is_stopped and not book.again and last.content["period"] == data.period:
            raise CheckFailed(_nothing_left(last, target))  # whoever resumed it before was killed, or did not listen
        if os.path.lexists(target / CERTIFICATE_FILE) and key_path(target).exists():
            warn(f"there was nothing to finish: {target} is complete, and nothing was spent now.")
            return Publication(Release.read(target), Key.read(key_path(target)))
        return None
    run, when = spend.content["out"], time_text(spend.at)
    if spend.content["period"] != data.period:
        raise Refusal(f"the run of {when} that was stopped published period {spend.content['period']}. Name it.")
    finished = finish(target, run["token"], spend.id, force=run.get("force") == "yes")
    if finished is not None and not finished.key.belongs_to(data):
        what = f"{target} is complete, but these are not the rows of the run of {when}. Give the same file and policy."
        raise Refusal(what)
    if finished is None:
        if run["machine"] != platform.node() and not target.parent.exists():
            raise Refusal(f"the run of {when} was on machine {run['machine']}. Resume it there.")
        book.record_outcome(spend.id, dataset, STOPPED)
        raise CheckFailed(_nothing_left(spend, target))
    _write_lists(data, finished, mechanism, target, force=True)
    try:
        book.record_outcome(spend.id, dataset, RELEASED, certificate=finished.release.certificate.digest)
    except Refusal:
        warn(f"{target} is complete. {spend.who} or an officer should run --resume too, so that the ledger keeps it.")
    return finished


def _nothing_left(spend: Entry, target: Path) -> str:
    return (
        f"the run of {time_text(spend.at)} that was to write {target} was stopped after it had spent ({spend.id}), and "
        "nothing of the release was complete: nothing left this machine. The budget is not refunded. To publish, spend "
        "again with --again."
    )


def _write_lists(data: Dataset, written: Publication, mechanism: Mechanism, target: Path, *, force: bool) -> None:
    """Write the pool and the list of rows that are not released, beside the folder."""
    if mechanism.pools:
        write_pool(data, written.key, pool_path(target, data), force=force)
    rows, sink = unplanned_rows(data, written.key), io.BytesIO()
    if rows.num_rows:
        write_csv(rows, sink)
        _write_beside(unplanned_path(target), sink.getvalue(), force=force)
    elif force:
        unplanned_path(target).unlink(missing_ok=True)  # it would be about the release that was replaced


def _correspondence(
    data: Dataset, book: Ledger, promise: Promise, prepared: object, out: str | os.PathLike[str] | None
) -> list[str]:
    """Measure what a k-anonymous release and each earlier one of the same records reveal together. Private."""
    spends = book.k_anonymous_spends(promise, data.purpose)
    if not spends or not isinstance(prepared, EquivalenceClasses):
        return []
    if data.elsewhere:
        return ["What this release and an earlier one reveal together was not measured: the rows are not here."]
    # Earlier releases and their keys may be beside the new one, the ledger and the policy.
    places = [Path(os.path.abspath(out)).parent] if out is not None else []
    places += [path.parent for path in (book.path, data.policy.path) if path is not None]
    keys: dict[str, Path] = {}
    for certificate in (found for place in dict.fromkeys(places) for found in place.glob(f"*/{CERTIFICATE_FILE}")):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
            spent = json.loads(certificate.read_bytes())["spend"]["id"]
            keys.setdefault(str(spent), key_path(certificate.parent))
    unit, k, sentences = data.schema.protects, getattr(promise.guarantee, "k", 0), []
    for spend in spends:
        which = f"the release of {time_text(spend.at)}"
        try:
            key = Key.read(keys[spend.id])
        except (KeyError, ReleaseError):
            where = "its folder and its key are not beside this release, the ledger or the policy"
            sentences.append(f"What this release and {which} reveal together was not measured: {where}.")
            continue
        if not key.belongs_to(data) and not _same_rows(data, key):
            sentences.append(f"What this release and {which} reveal together was not measured: it has other rows.")
            continue
        # shared : for each record in both releases, how many are in its class in both
        records, earlier = data.parts.records_of(key.table.column("source_row").to_numpy()), np.full(len(data), -1)
        earlier[records[records >= 0]] = key.table.column("class_id").to_numpy()[records >= 0]
        both = np.flatnonzero((earlier >= 0) & (prepared.of_row >= 0))
        pairs = np.stack([earlier[both], prepared.of_row[both]])
        _, pair, sizes = np.unique(pairs, axis=1, return_inverse=True, return_counts=True)
        shared = sizes[pair.reshape(-1)]
        fewest = f", at worst with {int(shared.min()):,}" if len(shared) else ""
        sentences.append(
            f"{several(len(shared), unit)} would be in both this release and {which}. To someone who has both, "
            f"{int((shared < k).sum()):,} of them look alike with fewer than k = {k}{fewest} (counting themselves)."
        )
    return sentences


def _same_rows(data: Dataset, key: Key) -> bool:
    """Return whether identifiers show that a key is about the same rows, read under another policy."""
    rows = key.table.column("source_row").to_numpy()
    names = [item.name for item in data.schema.identifiers if item.name in key.table.column_names]
    if not names or not np.isin(rows, data.original.source_rows).all():
        return False
    own = pa.table(data.cells(rows, names)).cast(pa.schema([(name, pa.string()) for name in names]))
    return bool(own.equals(key.table.select(names).replace_schema_metadata(None).cast(own.schema)))


def clear(
    data: Dataset,
    *,
    ledger: Ledger | str | os.PathLike[str] | None = None,
    house: House | None = None,
    exception: str | None = None,
    noise: Noise | None = None,
) -> Clearance | None:
    """Return whether a release would keep the limits of the house, by public facts alone; None if it sets none."""
    with _opened(ledger, data.policy, again=False) as book:
        return _clearance(data, book, house, exception, noise)


def _clearance(
    data: Dataset, book: Ledger, house: House | None, exception: str | None, noise: Noise | None
) -> Clearance | None:
    policy = data.policy
    house = house or (House.find(policy.path.parent) if policy.path is not None else None)
    rule = book.rule(policy.dataset)
    if rule is not None and rule.signed_house:
        if house is None:
            raise Refusal(f"dataset {policy.dataset!r} needs a house.toml that one of {', '.join(rule.people)} signed.")
        house.check_signed(rule.people)
    if house is None:
        return None
    if rule is None and house.is_signed:
        house.check_signed()
    promise = mechanism_of(policy).promise(policy.schema)
    if noise is not None and noise.seeded:
        promise = promise.voided("the noise comes from a seed")
    neighbours = Neighbours(str(promise.guarantee.to_dict().get("neighbours", Neighbours.ADD_REMOVE)))
    spends = [(spend.guarantee, spend.loss(neighbours)) for spend in book.spends_this_month(policy.dataset)]
    return house.clear(house.of_promise(promise, spends), exception)


@dataclass(frozen=True)
class Proposed:
    """A proposal in the ledger, for others to approve or refuse."""

    id: str
    dataset: str
    run: DryRun
    facts: dict[str, str | None]  # digests of what people look at before they decide
    repeats: bool = False  # the same was published before, so that publishing it needs ``again``

    def to_dict(self) -> dict[str, object]:
        told = {"proposal": self.id, "dataset": self.dataset, "repeats": self.repeats}
        return {**told, **self.facts, "preview": self.run.to_dict()}


def propose(
    data: Dataset,
    *,
    sign: str | os.PathLike[str],
    ledger: Ledger | str | os.PathLike[str] | None = None,
    house: House | None = None,
    exception: str | None = None,
    preview: str | os.PathLike[str] | None = None,
    audit: str | os.PathLike[str] | None = None,
    note: str = "",
) -> Proposed:
    """Propose a release, for others to approve before it is paid for; nothing is spent.

    Parameters
    ----------
    data, ledger, house, exception
        As for :func:`publish`.
    sign
        Your Ed25519 private key (PEM file); the rule of the dataset names its public half.
    preview
        File to write what ``publish --dry-run`` shows, for those who decide.
    audit
        An audit folder that they should look at.
    note
        What else they should know.
    """
    from dunnage.model.certificate import load_private_key

    load_private_key(sign)
    with _opened(ledger, data.policy, again=True) as book:
        run = rehearse(data, ledger=book)
        if (clearance := _clearance(data, book, house, exception, None)) is not None:
            clearance.require()
        content = to_text(run.to_dict()).encode()
        facts = {
            "policy_text": data.policy.digest(),
            "preview": hashlib.sha256(content).hexdigest(),
            "audit": None if audit is None else audit_digest(audit),
            "exception": exception,
            "note": note,
        }
        entry = book.propose(run.promise, data.purpose, key=sign, facts=facts)
        repeats = book.repeat(run.promise, data.purpose)
    if preview is not None:
        with new_file(preview, private=True) as stream:
            stream.write(content)
    return Proposed(entry.id, entry.dataset, run, facts, bool(repeats))


def audit_digest(folder: str | os.PathLike[str]) -> str:
    """Return the digest of an audit, by which a proposal names it."""
    try:
        return hashlib.sha256((Path(folder) / "audit.json").read_bytes()).hexdigest()
    except OSError as error:
        raise ParameterError(f"{folder} is not an audit: {error.strerror}. Give the folder of dunnage audit.") from None


def predicted(
    data: Dataset, *, helpful: bool = True, bounds: bool = False, progress: Progress | None = None
) -> Usefulness | None:
    """Predict how useful counts will be, from the policy alone; None if it does not say what to expect."""
    if (mechanism := mechanism_of(data.policy)).kind != "counts":
        return None
    from dunnage.usefulness import predict_usefulness

    with _blaming_policy(data):
        options = {"helpful": helpful, "bounds": bounds}
        return predict_usefulness(data.policy, mechanism, period=data.period, progress=progress, **options)


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
    if len(data) == 0 and not isinstance(mechanism, ClassMechanism):  # which refuses them
        yield _NO_ROWS.format(data.schema.protects if data.schema.trip is None else TRIP)
    if mechanism.kind == "counts":
        yield from _size_warnings(data)
    if data.schema.trip is not None:
        yield from _trip_warnings(data)
    else:
        yield from _identifier_warnings(mechanism, data)
    if data.schema.person is not None or not mechanism.counts_persons or mechanism.kind == "counts":
        return
    for attribute in (*data.schema.public, *data.schema.sensitive, *data.schema.quasi_identifiers):
        if attribute.kind not in (None, Category.kind):
            continue
        times = data.label_times(attribute.name)
        if may_be_persons(times):
            yield (
                f"{attribute.name!r} has {len(times):,} values, and most occur more than once. If it identifies "
                f"persons, everyone can link their {data.schema.protects}s, and k does not count persons: give it the "
                'role "identifier" and name it in [contribution].'
            )


def _size_warnings(data: Dataset) -> Iterator[str]:
    """Warn if the number of trips or records is not stated, or far from the file's. Private; refuses nothing."""
    from dunnage.mechanisms.counts import true_counts
    from dunnage.usefulness import unchecked

    expected, trips, unit = data.policy.expect.size, true_counts(data).num_trips, data.schema.universe(data.period).unit
    if expected is None:
        yield unchecked(data.schema)
    elif trips and not expected / MAX_OFF <= trips <= expected * MAX_OFF:
        side = "fewer" if trips < expected else "more"
        yield (
            f"the file has {several(trips, unit)}, far {side} than the {expected:,} that the policy expects, so the "
            "predicted errors do not hold for it. If you change the number, it becomes public: base it on public "
            "knowledge."
        )


def _trip_warnings(data: Dataset) -> Iterator[str]:
    """Warn about dates that are not stated, and about trips that a bound drops. Private; refuses nothing."""
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
    groups, bound = data.trip_groups, data.schema.contribution
    if groups is None or bound is None or not len(groups):
        return
    sizes = np.unique(groups, return_counts=True)[1]
    if (dropped := float(np.maximum(sizes - bound.max, 0).sum() / sizes.sum())) >= MANY_DROPPED:
        yield (
            f"max = {bound.max} in [contribution] drops {percent(dropped)} of these trips, and "
            + (
                "every count is too low by about that. Write total_max, several times max, to have counts corrected; "
                if bound.total_max is None
                else "counts are corrected for it, on average over all places. "
            )
            + "dunnage publish --dry-run shows what other bounds drop."
        )


def _spread_warnings(data: Dataset, usefulness: Usefulness) -> Iterator[str]:
    """Warn if the trips are spread far more thinly than predicted. Private; refuses nothing."""
    from dunnage.mechanisms.counts import true_counts

    counted = true_counts(data)
    assumed = usefulness.expected.finest.trips
    each = counted.num_trips / max(1, len(counted.cells))
    if 0 < each * MAX_OFF < assumed and not usefulness.is_noise:
        yield (
            f"types that occur have {each:.3g} {plural(counted.universe.unit)} on average, and {assumed:.3g} were "
            "predicted. The errors will be larger than predicted; dunnage audit measures them after publishing."
        )


def _identifier_warnings(mechanism: Mechanism, data: Dataset) -> Iterator[str]:
    """Warn about identifiers that occur several times: a person, or a consignment, with several records."""
    if data.schema.person is not None or data.schema.together is not None or data.elsewhere:  # they are not counted
        return
    for attribute in data.schema.identifiers:
        times = data.label_times(attribute.name)
        if (again := int((times > 1).sum())) == 0:
            continue
        person = "[contribution] person"
        if mechanism.kind == "counts":
            yield (
                f"{again:,} of {several(len(times), 'value')} of the identifier {attribute.name!r} occur more than "
                f"once, up to {int(times.max()):,} times. Epsilon is for one row: whoever has several is protected "
                "less. Merge rows of the same person before you publish, if that is not what you promise."
            )
            continue
        if not mechanism.counts_persons:  # all mechanisms are loaded only now
            able = [name for name, kind in MECHANISMS.items() if kind.counts_persons and not kind.counts_trips]
            person += f", which needs {' or '.join(able)}"
        yield (
            f"{again:,} of {several(len(times), 'value')} of the identifier {attribute.name!r} occur more than once, "
            f"up to {int(times.max()):,} times. If it names persons, those with several rows are protected less than "
            f"you promise: name it in {person}. If all rows with one value are one {data.schema.protects}, write "
            f"together = {json.dumps(attribute.name, ensure_ascii=False)}."
        )


def _check_places(mechanism: Mechanism, data: Dataset, out: str | os.PathLike[str], *, force: bool) -> None:
    """Check, before any budget is spent, that every file can be written."""
    # Each line is in CSV, in Parquet and in the key; noise may give a line to each type of trip.
    lines = len(data) if mechanism.kind != "counts" else data.schema.universe(data.period).num_cells
    cells = min(lines, max(len(data), _MAX_LINES)) * (len(data.schema.attributes) + 1)
    check_output(out, force=force, num_bytes=_CELL_BYTES * cells + _FIXED_BYTES)
    for path in (unplanned_path(out), *([pool_path(out, data)] if mechanism.pools else [])):
        if os.path.lexists(path) and not force:
            raise OutputError.taken(path)


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
    """Write the rows that the mechanism left out, unchanged and private, so that the same policy can read them."""
    _, positions = data.parts.of(left_out_rows(data, key))
    rows = data.original.take(np.sort(data.parts.source_rows[positions]))
    sink = io.BytesIO()
    if _is_csv(data):  # cells were read as text: write the same text
        options, text = data.policy.read_options, io.StringIO(newline="")
        writer = csv.writer(text, delimiter=options.delimiter, lineterminator="\n")
        writer.writerow(rows.column_names)
        writer.writerows(zip(*(column.to_pylist() for column in rows.columns), strict=True))
        sink.write(text.getvalue().encode(options.encoding))
    else:
        pq.write_table(rows, sink, compression="zstd")
    _write_beside(path, sink.getvalue(), force=force)


def unplanned_path(folder: str | os.PathLike[str]) -> Path:
    """Return the file that lists the rows outside a release for their owner: beside the folder, like the key."""
    key = key_path(folder)
    return key.with_name(f"{key.name.removesuffix(KEY_ENDING)}.unplanned.csv")


def _write_beside(path: Path, content: bytes, *, force: bool) -> None:
    work = path.with_name(f".{path.name}.{secrets.token_hex(6)}.partial")
    try:
        with os.fdopen(os.open(work, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
            stream.write(content)
        os.replace(work, path) if force else os.link(work, path)
    except OSError as error:
        reason = error.strerror or "the disk failed"
        raise OutputError(f"{path} could not be written: {reason}. The release is complete; move this file.") from None
    finally:
        work.unlink(missing_ok=True)


@dataclass(frozen=True)
class DryRun:
    """What publishing would promise and cost. Nothing was sampled, spent or written."""

    promise: Promise  # the promise of the release
    # num_rows, num_left_out: number of records that would be used, and that the policy leaves out; for the owner only
    num_rows: int
    num_left_out: int
    asked: Loss  # the cost
    before: Statement  # before, after: the ledger's statement of the dataset, now and after publishing
    after: Statement
    foresight: Foresight = field(default_factory=Foresight)  # what the mechanism tells the owner in advance
    # the predicted error of counts of trips, from public facts; None without them, or if the policy expects nothing
    usefulness: Usefulness | None = None
    # why publishing would be refused now: it was published before, the budget does not cover it, a file is in the way.
    # A dry run is not refused for such reasons
    refusals: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"DryRun({self.promise!r}, would spend {self.asked}, left after it {self.after.left_text()})"

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
            **({} if self.usefulness is None else {"usefulness": self.usefulness.to_dict()}),
            "refusals": list(self.refusals),
        }


def rehearse(
    data: Dataset,
    *,
    out: str | os.PathLike[str] | None = None,
    ledger: Ledger | str | os.PathLike[str] | None = None,
    noise: Noise | None = None,
    force: bool = False,
    again: bool = False,
    progress: Progress | None = None,
) -> DryRun:
    """Do everything up to the spend, and return what it would cost. Nothing is sampled, spent or written.

    It is allowed also where publishing would be refused: ``refusals`` says why it would be.

    Parameters
    ----------
    data, out, ledger, noise, force, again, progress
        As for :func:`publish`.
    """
    mechanism, refusals = mechanism_of(data.policy), []
    try:
        if out is not None:
            _check_places(mechanism, data, out, force=force)
    except OutputError as error:
        refusals.append(str(error))
    foresight, usefulness = foresee(data), predicted(data, bounds=True, progress=progress)
    if usefulness is not None:
        foresight = replace(foresight, warnings=(*foresight.warnings, *_spread_warnings(data, usefulness)))
    with _opened(ledger, data.policy, again=again) as book:
        before, together = book.statement(data.policy.dataset), list[str]()
        rehearsal: Any = book.rehearsal()  # raises Rehearsed instead of spending

        def review(promise: Promise, prepared: object) -> None:
            together.extend(_correspondence(data, book, promise, prepared, out))

        try:
            with _blaming_policy(data):
                mechanism.release(data, ledger=rehearsal, noise=noise or Noise(), review=review)
        except Rehearsed as stop:
            foresight = replace(foresight, warnings=(*foresight.warnings, *(together if book.again else ())))
            if together and not book.again:  # the first refusal is that of the repeat
                stop.refusals = (" ".join([stop.refusals[0], *together]), *stop.refusals[1:])
            return DryRun(
                promise=stop.promise,
                num_rows=len(data),
                num_left_out=data.num_left_out,
                asked=stop.loss,
                before=before,
                after=stop.statement,
                foresight=foresight,
                usefulness=usefulness,
                refusals=(*refusals, *stop.refusals),
            )
    raise InternalError(f"mechanism {data.policy.mechanism['name']} released without spending")


@contextlib.contextmanager
def _opened(
    ledger: Ledger | str | os.PathLike[str] | None, policy: Policy, *, again: bool, **options: Any
) -> Iterator[Ledger]:
    given = {name: value for name, value in options.items() if value}
    if isinstance(ledger, Ledger):
        given |= {"again": True} if again else {}
        before = {name: getattr(ledger, name) for name in given}
        for name, value in given.items():
            setattr(ledger, name, Path(value) if name == "anchor" else value)
        try:
            yield ledger
        finally:
            for name, value in before.items():
                setattr(ledger, name, value)
        return
    if ledger is None:
        if policy.path is None:
            raise ParameterError("a policy without a file has no default ledger. Pass ledger= (a path or a Ledger).")
        ledger = policy.path.parent / LEDGER_FILE
    with Ledger(ledger, again=again, **given) as book:
        yield book
