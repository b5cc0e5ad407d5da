# SPDX-License-Identifier: Apache-2.0
"""Verify a release with nothing but its folder.

Digests come before parsing. Then the mechanism is made again from its stated parameters. What it promises about the
stated columns must be what the certificate states: guarantee, basis, assumptions and odds. Whatever the tables allow is
recomputed, by the kind of release and by the mechanism: k, class sizes, bounds, sums, laws of noise, every figure in
the certificate. The result says what cannot be checked this way. Private rows, budgets and keys are out of reach.

Another version may have used other words. So sentences must be equal only if this version wrote the certificate;
numbers, names and guarantees must always be equal.
"""

from __future__ import annotations

import datetime
import hashlib
import itertools
import json
import math
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, NamedTuple

import pyarrow.parquet as pq
from pydantic import Field, computed_field

from dunnage._version import __version__
from dunnage.collecting import promises
from dunnage.devices.client import TaskLosses, check_task, mechanisms_of
from dunnage.devices.numbers import LocalNumeric
from dunnage.devices.paths import LocalTrajectory
from dunnage.devices.places import LocalLocation, NoiseVerdict
from dunnage.devices.task import Mechanism as DeviceMechanism
from dunnage.devices.task import Task
from dunnage.errors import CheckFailed, EngineError, ParameterError, ReleaseError, UserError, check_kind
from dunnage.exact import decimal_text, exact, plain, shown
from dunnage.folds import Rows
from dunnage.mechanisms import MECHANISMS
from dunnage.mechanisms.base import Mechanism
from dunnage.model.certificate import (
    DIGESTS_SAY,
    PRINTED_FORMS,
    Certificate,
    CombinedTiers,
    Total,
    composition_rule,
    load_public_keys,
    load_revoked,
    meaning,
)
from dunnage.model.documents import Listed, Model
from dunnage.model.domains import KINDS, domain_from
from dunnage.model.guarantees import (
    CHECKED_FILE,
    KEYED_CHOICE,
    KEYED_STREAMS,
    ONE_PERIOD_PER_RECORD,
    PROJECT,
    STREAMS_NOTE,
    Assumption,
    Basis,
    KAnonymity,
    Loss,
    Neighbours,
    Promise,
)
from dunnage.model.periods import is_label
from dunnage.model.schema import Attribute, Contribution, Role, Schema
from dunnage.model.trips import END_COLUMNS, Level, Trip
from dunnage.release import (
    DATAPACKAGE_FILE,
    PAGE_FILE,
    README_FILE,
    VERIFY_FILE,
    Release,
    check_files,
    read_certificate,
    read_tables,
)
from dunnage.release.kinds import COUNTS, ESTIMATES, NAMES_NOT_CHECKED, ROWS, kind_of, require, same
from dunnage.release.kinds.estimates import OTHER, QUANTILES, SUM_TOLERANCE
from dunnage.release.kinds.rows import NOT_CHECKED
from dunnage.tables.parquet import is_gapless
from dunnage.text import several

_HIDDEN = "identifier that is not released"  # stands for a private column that a promise depends on
_RULE = r"(values of [^;]{1,80} outside its domain were moved to the nearest end( before counting)?|"
_RULE += r"records (with [^;]{1,80} outside its domain|without [^;]{1,80}) were left out)"
_LEFT_OUT = re.compile(rf"{_RULE}(; {_RULE})?")  # as attributes say it
_ARROW = re.compile(r"parquet-cpp-arrow version (\d{1,3}\.\d{1,3}\.\d{1,3})")
_PART_BYTES = 1 << 22
RELEASE_TEXTS = frozenset({DATAPACKAGE_FILE, PAGE_FILE, README_FILE, VERIFY_FILE})


class Verification(Model):
    """What was checked, what failed, and what cannot be checked with the folder alone."""

    folder: str = Field(serialization_alias="release")
    basis: str = ""  # what the certificate states: proved, claimed or void; empty if it cannot be read
    checks: list[str] = Field(default_factory=list)  # the checks that passed
    # the checks that failed; if there are none, the release is in order
    problems: list[str] = Field(default_factory=list)
    not_checked: Listed[str] = NOT_CHECKED  # what nobody can see from the folder alone

    def __repr__(self) -> str:
        state = "in order" if self.ok else f"{several(len(self.problems), 'problem')}"
        return f"Verification({Path(self.folder).name!r}, {state}, {self.basis or 'no basis'})"

    __str__ = __repr__

    @computed_field  # type: ignore[prop-decorator]
    @property
    def ok(self) -> bool:
        return not self.problems

    def to_dict(self) -> dict[str, Any]:
        return self.model_dump(mode="json", by_alias=True)

    def summary(self) -> str:
        void = ", but void: nothing is promised" if self.basis == Basis.VOID else ""
        lines = [f"In order{void}: {self.folder}" if self.ok else f"NOT in order: {self.folder}"]
        lines += [f"  failed  {problem}" for problem in self.problems]
        for check in self.checks:  # without a trusted signature, a check is only a note
            lines.append(f"  {'note' if check.startswith(('not signed', 'signed, but')) else 'ok':<6}  {check}")
        lines += ["Cannot be checked with the folder alone:", *(f"  -       {item}" for item in self.not_checked)]
        return "\n".join(lines)


def verify(
    folder: str | os.PathLike[str],
    *,
    signed_by: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    revoked: str | os.PathLike[str] | None = None,
    require: str = Basis.CLAIMED,
    engine: str | None = None,
) -> Verification:
    """Check a release folder.

    Parameters
    ----------
    folder
        The release folder.
    signed_by
        Public keys (PEM files, each with one key or several), one of which must have signed the certificate.
    revoked
        List of keys that no longer count, whatever the time of the certificate.
    require
        The weakest basis that passes: ``proved``, ``claimed`` or, for rehearsals with a seed, ``void``.
    engine
        Where rows are counted: ``files`` (the default; ``memory`` is the same), or ``spark``.

    Returns
    -------
    Verification
        ``ok`` is true if every check passed.

    Raises
    ------
    ReleaseError
        If there is no release in that place.
    """
    check_kind(folder, str | os.PathLike, "verify takes the folder that publish wrote")
    path = Path(folder)
    if not path.is_dir():
        raise ReleaseError(f"{path} is not a folder, so it is not a release. Give the folder that publish wrote.")
    if require not in tuple(Basis):
        raise ParameterError(f"require must be {', '.join(Basis)}. Got {shown(require)}.")
    paths = [signed_by] if isinstance(signed_by, str | os.PathLike) else signed_by or []
    trusted, no_longer = load_public_keys(paths), [] if revoked is None else load_revoked(revoked)
    if engine not in (None, "memory", "files"):
        _check_engine(engine)
    basis = ""
    not_checked = list(NOT_CHECKED)
    checks: list[str] = []
    problems: list[str] = []
    try:
        certificate = read_certificate(path)
        basis, kind = str(certificate.basis), kind_of(certificate)
        if kind is not None:
            not_checked = [*kind.not_checked(certificate), NAMES_NOT_CHECKED]
        if not _is_own(certificate):
            texts = ", ".join(sorted(RELEASE_TEXTS & certificate.files.keys()))
            other = f"Dunnage {shown(certificate.software.dunnage)} wrote: read them, or verify with that version"
            not_checked.append(f"all sentences of the certificate and all of {texts}, which {other}")
        checks.append("the certificate is readable, in canonical form, and matches its own digest")
        checks.append(certificate.check_signature(trusted, no_longer))
        check_files(path, certificate)
        checks.append(f"{len(certificate.files)} files match their digests, and there are no others")
        release = Release(certificate=certificate, **read_tables(path, certificate), rows=rows_of_release(path, engine))
        checks += _check_contents(release, path, not_checked)
        accepted = tuple(Basis)[: tuple(Basis).index(Basis(require)) + 1]
        if certificate.basis not in accepted:
            why = "nothing is promised" if basis == Basis.VOID else "what really holds is stated in the certificate"
            problems.append(f"the basis is {basis}, so {why}; {' or '.join(accepted)} is required")
    except (CheckFailed, ReleaseError) as failure:
        problems.append(str(failure))
    except OSError as failure:
        problems.append(f"a file cannot be read: {failure.strerror or type(failure).__name__}")
    except (MemoryError, EngineError):
        raise
    except Exception as failure:
        # Any other error means that the folder is malformed: never pass, never crash.
        problems.append(f"the contents are not those of a release ({type(failure).__name__})")
    return Verification(folder=str(path), basis=basis, checks=checks, problems=problems, not_checked=tuple(not_checked))


def _check_engine(engine: str) -> None:
    """Refuse an engine that cannot verify, before anything is said about the release."""
    from dunnage.engines.sources import check_engine

    check_engine(engine)
    if engine != "spark":
        raise ParameterError(f"releases are verified with the engine files or spark. Got {shown(engine)}.")
    from dunnage.engines.spark import session

    session()


def rows_of_release(folder: Path, engine: str | None) -> Rows | None:
    """Return how an engine reads the rows of a release; None to read them here."""
    if engine != "spark":
        return None
    from dunnage.engines.spark import SparkFiles

    return SparkFiles(folder / "data.parquet")


def check_release(release: Release) -> None:
    """Check everything that follows from certificate and tables; raise :class:`CheckFailed`."""
    try:
        list(_check_contents(release))
    except (CheckFailed, MemoryError):
        raise
    except Exception as failure:  # the release is malformed
        raise CheckFailed(f"the contents are not those of a release ({type(failure).__name__})") from None


def _check_contents(release: Release, folder: Path | None = None, notes: list[str] | None = None) -> Iterator[str]:
    """Yield the checks that pass; ``notes`` gets what another version of Arrow keeps from being checked."""
    certificate, estimates = release.certificate, release.kind == ESTIMATES
    yield from _check_statement(certificate)
    yield check_estimate_columns(release) if estimates else release.owner.check_columns(release)
    if folder is not None and notes is not None:
        for name in release.tables:
            with (folder / f"{name}.csv").open("rb") as stream:
                as_written = all(stream.read(len(part)) == part for part in release.csv_parts(name))
                as_written = as_written and not stream.read(1)
            require(as_written, f"{name}.csv is not {name}.parquet in the form that releases use")
        yield "CSV files have the same tables as Parquet files, and no other byte"
        unsure = list(_unchecked_parquet(release, folder))
        notes += unsure
        yield "Parquet files have the same tables and no other byte" if not unsure else "Parquet files have no gaps"
        yield from _check_texts(release, folder)
    if estimates:
        yield check_estimate_lines(release)
        yield _check_estimate_loss(release)
    else:
        # First what every release of the kind has, then what the mechanism states.
        yield from release.owner.recount(release)
        yield from mechanism_of(certificate).recount(release, _schema_of(certificate))
    yield from _check_proof(certificate)


def _check_statement(certificate: Certificate) -> Iterator[str]:
    if certificate.kind != ESTIMATES:
        _check_promise(certificate)
    basis, why = certificate.basis, certificate.why or ""
    wrong = "gives a reason why it is not" if why else "does not say why"
    _check((basis is Basis.PROVED) != bool(why), f"the basis is {basis}, but it {wrong}")
    may_hold = certificate.holds is None or basis is Basis.CLAIMED
    _check(may_hold, f"the basis is {basis}, but it states what holds instead")
    stated = Promise(
        guarantee=certificate.guarantee,
        basis=basis,
        mechanism={},
        holds=certificate.holds,
        why=why,
        assumptions=tuple(Assumption(name, says) for name, says in certificate.assumptions.items()),
    )
    meanings: list[Any] = [certificate.meaning.plain(), meaning(stated).plain()]
    if not _is_own(certificate):
        meanings = [[{**row, "sentence": ""} for row in item["odds"]] for item in meanings]
    _check(same(*meanings), "the odds do not follow from the guarantee")
    composed = certificate.composition
    fits = composed.rule == composition_rule(certificate.guarantee) or not _is_own(certificate)
    _check(fits, "the composition rule does not follow from the guarantee")
    _check(composed.neighbours in tuple(Neighbours), "totals between unknown neighbours")
    own = stated.true_loss(Neighbours(str(composed.neighbours)))
    _check(None not in (composed.total, composed.total_per_period), "the totals are missing")
    assumes = None if certificate.kind == ESTIMATES else ONE_PERIOD_PER_RECORD.name
    fits = composed.total_per_period_assumes == assumes and None not in composed.plain().values()
    _check(fits, "another assumption of the total per period")
    totals = [total for total in (composed.total, composed.total_per_period) if isinstance(total, Total)]
    in_form = all(same(plain(exact(part)), part) for total in totals for part in (total.epsilon, total.delta))
    _check(in_form, "a total is not in the form that certificates use")
    _check(own.bounded or not totals, "states a total, but none exists after this release")
    fits = all(own.within(Loss(exact(total.epsilon), exact(total.delta))) for total in totals)
    _check(fits, "a total is below the loss of this release")
    _check(certificate.time == certificate.spend.at, "its time is not the time of the spend")
    spend = certificate.spend
    printed = {
        "time": certificate.time,
        "software": certificate.software.dunnage,
        "spend by devices" if certificate.kind == ESTIMATES else "spend": spend.id,
        "entry": f"{spend.number} {spend.head}",
    }
    unusual = [name for name, text in printed.items() if not re.fullmatch(PRINTED_FORMS[name], text, re.ASCII)]
    if "time" not in unusual:
        try:
            datetime.datetime.fromisoformat(certificate.time)
        except ValueError:
            unusual.append("time")
    unusual += ["dataset"] if not is_label(certificate.dataset) else []
    unusual += ["period"] if certificate.period is not None and not is_label(certificate.period) else []
    unusual += ["why"] if certificate.basis is Basis.VOID and not is_label(certificate.why) else []
    _check(not unusual, f"not in the form that certificates use: {', '.join(unusual)}")
    _check(certificate.digests_say == DIGESTS_SAY or not _is_own(certificate), "says something else about digests")
    if _is_own(certificate):
        yield "the odds and composition rule follow from the guarantee"
    else:
        yield "the odds follow from the guarantee; another version wrote the sentences, which were not compared"
    if certificate.kind != ESTIMATES:
        yield "guarantee, basis and assumptions are what the mechanism promises with these parameters and columns"


def _check(holds: bool, otherwise: str) -> None:
    require(holds, f"certificate.json: {otherwise}")


def _is_own(certificate: Certificate) -> bool:
    """Return whether this version wrote the certificate, so that its words must be ours."""
    return certificate.software.dunnage == __version__


def mechanism_of(certificate: Certificate) -> Mechanism:
    kind = MECHANISMS.get(certificate.mechanism_name)
    if kind is None:
        raise CheckFailed("certificate.json: this version does not know the mechanism")
    try:
        made = kind.from_description(certificate.mechanism)
    except ParameterError as error:
        raise CheckFailed(f"certificate.json: {kind.name} cannot have these parameters: {error}") from None
    in_form = same(made.describe(), certificate.mechanism)
    _check(in_form, f"parameters of {kind.name} are not in the form that certificates use")
    return made


def _check_promise(certificate: Certificate) -> None:
    try:
        mechanism = mechanism_of(certificate)
        due = mechanism.promise(_schema_of(certificate))
    except ParameterError as error:
        raise CheckFailed(f"certificate.json: the mechanism has no promise for these columns: {error}") from None
    if KEYED_STREAMS.name in certificate.assumptions and certificate.kind == ROWS:  # rows were released elsewhere
        due = due.with_streams()
    if certificate.basis is Basis.VOID:
        due = due.voided(mechanism.seeded)
    expected, stated = due.to_dict(), certificate.plain()
    wrong = [name for name in ("guarantee", "basis", "holds") if not same(expected.get(name), stated.get(name))]
    if bool(due.warnings) != bool(certificate.warnings):
        wrong.append("warnings")
    names = {item.name for item in due.assumptions}
    # Version 0.1.0 did not name these.
    unnamed = set() if _is_own(certificate) else names & {CHECKED_FILE.name, KEYED_CHOICE.name}
    wrong += ["assumptions"] if names - unnamed != certificate.assumptions.keys() - unnamed else []
    if _is_own(certificate):
        for name in ("assumptions", "numerics", "claim", "why", "warnings"):
            wrong += [name] if (expected.get(name) or "") != (stated.get(name) or "") else []
        # Rows may be left out because of columns that are not released: those lines come last.
        first = certificate.in_clear[: len(due.in_clear)]
        more = certificate.in_clear[len(due.in_clear) :]
        usual = len(set(certificate.in_clear)) == len(certificate.in_clear)
        usual &= all(_LEFT_OUT.fullmatch(item) for item in more)
        wrong += ["in_clear"] if first != list(due.in_clear) or not usual else []
    wrong = list(dict.fromkeys(wrong))
    _check(not wrong, f"the mechanism promises something else: {', '.join(wrong)}")


def _schema_of(certificate: Certificate) -> Schema:
    try:
        if certificate.kind == COUNTS:
            attributes = [
                Attribute(name=item.name, role=Role.QUASI_IDENTIFIER, domain=domain_from(item.domain or {}))
                for item in certificate.attributes
            ]
            if not certificate.counts_trips:
                return Schema(attributes=tuple(attributes), protects=certificate.guarantee.protects)
            by_name = {item.name: item for item in attributes}
            time = by_name["window"].domain if "window" in by_name else None
            # Days that follow from the calendar are not a column of their own.
            own_days = "day" in by_name and getattr(time, "day", None) is None
            kept = [item for item in attributes if item.name != "day" or own_days]
            bound = certificate.counts.contribution
            hidden = [Attribute(name=_HIDDEN, role=Role.IDENTIFIER)] if bound is not None else []
            level: Level = "zone" if END_COLUMNS["zone"][0] in by_name else "stop"
            origin, arrival = END_COLUMNS[level]
            destination = arrival if arrival in by_name else None
            day = "day" if own_days else None
            return Schema(
                attributes=(*kept, *hidden),
                protects=certificate.guarantee.protects,
                trip=Trip(origin=origin, destination=destination, time="window", day=day, level=level),
                contribution=None
                if bound is None
                else Contribution(
                    person=_HIDDEN,
                    max=bound.max,
                    per=bound.per,
                    total_max=getattr(certificate.counts.correction, "total_max", None),
                    per_cell=bound.per_cell,
                ),
            )
        _check(all(item.kind in (None, *KINDS) for item in certificate.attributes), "an attribute has an unknown kind")
        attributes = [
            Attribute(
                name=item.name,
                role=Role(item.role) if item.role in tuple(Role) else item.role,  # type: ignore[arg-type]
                kind=item.kind,
                domain=domain_from(item.domain) if item.domain is not None else None,
                missing=item.missing or "refuse",
                outside=item.outside or "refuse",
                unreadable=item.unreadable or "refuse",
            )
            for item in certificate.attributes
        ]
        persons = certificate.rows.persons is not None
        merged = any(item.merged for item in certificate.attributes)
        hidden = [Attribute(name=_HIDDEN, role=Role.IDENTIFIER)] if persons or merged else []
        schema = Schema(
            attributes=(*attributes, *hidden),
            protects=certificate.guarantee.protects,
            together=_HIDDEN if merged else None,
            person=_HIDDEN if persons else None,
        )
    except ParameterError as error:
        raise CheckFailed(f"certificate.json: no release can have these attributes: {error}") from None
    as_stated = same(schema.describe(), [item.plain() for item in certificate.attributes])
    _check(as_stated, "the attributes are not in the form that releases use")
    return schema


def _check_proof(certificate: Certificate) -> Iterator[str]:
    """Check that a proof, if one is named, is that of the mechanism; sections may differ between versions."""
    proof = certificate.proof
    if proof is None:  # older versions named no proof
        return
    same_software = proof.project == PROJECT and proof.version == certificate.software.dunnage
    _check(same_software, "the proof is not that of its software")
    if certificate.kind == ESTIMATES:
        sections = Rebuilt.of(certificate).promise().notes
    elif certificate.kind == COUNTS:  # a correction for dropped trips has a proof of its own
        sections = mechanism_of(certificate).promise(_schema_of(certificate)).notes
    else:
        streams = (STREAMS_NOTE,) if KEYED_STREAMS.name in certificate.assumptions else ()
        sections = (*mechanism_of(certificate).notes(), *streams)
    notes, due = proof.sections, [f"docs/proofs/{note}" for note in sections]
    if proof.version != __version__:
        notes, due = (list(dict.fromkeys(note.partition("#")[0] for note in each)) for each in (notes, due))
    _check(notes == due, "the proof is not that of its mechanism")
    yield "the proof is that of the mechanism"


def _unchecked_parquet(release: Release, folder: Path) -> Iterator[str]:
    # Every byte of a file must be what a release writes for its table. Another version of Arrow may write a table in
    # other bytes: such a file must have no metadata and no gaps, and be hardly larger than it would be here.
    for name, table in release.tables.items():
        path, wrong = folder / f"{name}.parquet", f"{name}.parquet has more than a table"
        with path.open("rb") as opened, pq.ParquetFile(opened) as file:  # a name may look like an address
            stated, schema = file.metadata, file.schema_arrow
        groups = [stated.row_group(index) for index in range(stated.num_row_groups)]
        chunks = [group.column(index) for group in groups for index in range(stated.num_columns)]
        writer, packings = _ARROW.fullmatch(stated.created_by or ""), {chunk.compression for chunk in chunks}
        packed = packings == {"ZSTD"} and not _is_own(release.certificate)  # as 0.1 wrote it
        if writer is None or not (packed or packings <= {"UNCOMPRESSED"}):
            raise CheckFailed(wrong)
        with tempfile.TemporaryFile() as again, path.open("rb") as stream:
            pq.write_table(table, again, compression="zstd" if packed else "none")
            own = pq.read_metadata(again).created_by
            # The name of the writer is the one part of a footer that differs between versions as such.
            own_words, words = (bytes([len(text)]) + text.encode() for text in (own, writer[0]))
            bodies, (made, content) = (again, stream), (_footer(again), _footer(stream))
            head, _, tail = made.rpartition(own_words)
            length = int.from_bytes(tail[-8:-4], "little") + len(words) - len(own_words)
            if content == head + words + tail[:-8] + length.to_bytes(4, "little") + tail[-4:] and _same_start(
                *bodies, len(made), len(content)
            ):
                continue
            in_form = schema.equals(table.schema, check_metadata=True) and is_gapless(stream)
            in_form &= (stated.metadata or {}).keys() <= {b"ARROW:schema"}
            in_form &= stream.seek(0, 2) <= 1.02 * again.seek(0, 2) + 64 * (1 + len(chunks))
            in_form &= writer[0] != own or packed  # zstd itself has versions
        require(in_form, wrong)
        yield f"every byte of {name}.parquet, which pyarrow {writer[1]} wrote: verify with that version of it"


def _footer(stream: IO[bytes]) -> bytes:
    """Return the footer of a Parquet file, with its length and mark."""
    size = stream.seek(0, 2)
    stream.seek(max(0, size - 8))
    length = int.from_bytes(stream.read(4), "little")
    stream.seek(max(0, size - 8 - length))
    return stream.read()


def _same_start(one: IO[bytes], other: IO[bytes], but_one: int, but_other: int) -> bool:
    """Return whether two files are the same but for some bytes at their ends."""
    left, right = one.seek(0, 2) - but_one, other.seek(0, 2) - but_other
    one.seek(0), other.seek(0)
    while left == right and left > 0:
        part = one.read(min(left, _PART_BYTES))
        if not part or part != other.read(len(part)):
            return False
        left, right = left - len(part), right - len(part)
    return left == right


def _check_texts(release: Release, folder: Path) -> Iterator[str]:
    texts = release.texts(folder)
    if not _is_own(release.certificate):
        sizes = {name: (folder / name).stat().st_size for name in texts if name in release.certificate.files}
        long = [name for name, size in sizes.items() if size > 2 * len(texts[name]) + 4096]
        require(not long, f"{', '.join(long)}: far longer than this version writes it")
        return
    for name, content in texts.items():
        require(name in release.certificate.files, f"{name} is missing")
        require((folder / name).read_bytes() == content, f"{name} does not describe this release")
    yield f"{', '.join(sorted(texts))} describe this release"


# --- Estimates: the task is made again, then lines and figures are recomputed
#
# The certificate has the whole task; its digest shows that devices agreed to it. From the task follow the mechanisms,
# what a report, a slot and a day give away, the promise, the columns and the lines. The figures of the reports do not:
# these can only be checked for their possible range.

_WORDS = ("in_clear", "assumptions", "claim", "why", "warnings", "numerics")
_Line = Mapping[str, Any]


@lru_cache(maxsize=4)
def _made_again(task: str) -> tuple[Task, TaskLosses, Mapping[str, DeviceMechanism]]:
    """Make a task again, once for all checks: some laws take long."""
    made = Task.from_json(task)
    return made, check_task(made), mechanisms_of(made)


class Rebuilt(NamedTuple):
    """A certificate of estimates, with the task, losses and mechanisms made again from it."""

    stated: Certificate
    task: Task
    losses: TaskLosses
    mechanisms: Mapping[str, DeviceMechanism]  # By purpose

    @classmethod
    def of(cls, certificate: Certificate) -> Rebuilt:
        try:
            return cls(certificate, *_made_again(json.dumps(certificate.estimates.task)))
        except UserError:
            raise CheckFailed("certificate.json: devices would refuse the task") from None

    def promise(self) -> Promise:
        stated = self.stated
        due = promises.estimates_promise(
            self.task,
            self.losses,
            self.mechanisms,
            confidence=float(str(stated.mechanism["confidence"])),
            combine=str(stated.mechanism["combine"]),
            rules={item.rule for items in stated.estimates.combined.values() for item in items.values()},
            verdicts=self.verdicts(),
            senders=stated.estimates.senders,
        )
        return due.voided(stated.why or "") if stated.basis is Basis.VOID else due

    def verdicts(self) -> dict[str, NoiseVerdict]:
        nums = {name: sum(tiers.values()) for name, tiers in self.stated.estimates.reports.items()}
        verdicts = {
            name: mechanism.noise_verdict(nums[name])
            for name, mechanism in self.mechanisms.items()
            if not isinstance(mechanism, LocalNumeric) and nums[name]
        }
        # That reports show a crowded map cannot be seen in the released one.
        for name, verdict in verdicts.items():
            crowded = verdict.message + promises.CROWDED
            if verdict.is_noise and (self.stated.estimates.maps or {}).get(name) == crowded:
                verdicts[name] = replace(verdict, is_noise=False, message=crowded)
        return verdicts


def check_estimate_columns(release: Release) -> str:
    stated, measures = release.certificate, release.certificate.estimates
    canonical = json.dumps(measures.task, sort_keys=True, separators=(",", ":")).encode("ascii")
    _check(hashlib.sha256(canonical).hexdigest() == measures.task_digest, "the task does not match its digest")
    rebuilt = Rebuilt.of(stated)
    _check(rebuilt.task.dataset == stated.dataset, "the dataset is not that of the task")
    _check(stated.period is None, "estimates have no period")
    _check(stated.spend.id == promises.spend_id(rebuilt.task), "the spend is not that of the task")
    require(list(release.tables) == ["data"], "the tables are not those of the certificate")
    columns = [(item.name, item.type) for item in release.data.schema]
    fits = columns == list(promises.columns_of(rebuilt.mechanisms).items())
    require(fits, "data: the columns are not those of the certificate")
    # Parameters, laws and public domains must be those of the task.
    parameters, level = stated.mechanism, stated.mechanism.get("confidence")
    keys = {"name", "confidence", "combine", "purposes", "as_published"}
    _check(parameters.keys() == keys and parameters["name"] == promises.NAME, "not a mechanism of estimates")
    fits = isinstance(level, float) and 0.5 <= level < 1 and parameters["combine"] in promises.COMBINATIONS
    _check(fits, "an unknown confidence or combination of tiers")
    purposes = parameters["purposes"] if isinstance(parameters["purposes"], dict) else {}
    _check(purposes.keys() == rebuilt.mechanisms.keys(), "the purposes are not those of the task")
    for name, mechanism in rebuilt.mechanisms.items():
        _check(same(mechanism.describe(), purposes[name]), f"the mechanism of {name} is not that of the task")
    published = any(mechanism.as_published for mechanism in rebuilt.mechanisms.values())
    _check(parameters["as_published"] is published, "does not say if the published form was used")
    _check_reports(rebuilt)
    earlier = promises.describe_subjects(rebuilt.mechanisms)
    as_earlier = same([item.plain() for item in stated.attributes], [item.plain() for item in earlier])
    expected = earlier if as_earlier else promises.describe_subjects(rebuilt.mechanisms, stated.estimates.reports)
    names = [[(item.purpose, item.name) for item in items] for items in (stated.attributes, expected)]
    _check(names[0] == names[1], "the attributes are not those of the task")
    for item, due in zip(stated.attributes, expected, strict=True):
        _check(same(due.plain(), item.plain()), f"the domain of {item.name} is not that of the task")
    return "table, columns and domains are those of the task, which matches its digest"


def check_estimate_lines(release: Release) -> str:
    stated, lines, rebuilt = release.certificate, release.data.to_pylist(), Rebuilt.of(release.certificate)
    measures = stated.estimates
    _check(len(lines) == measures.lines, "the number of lines is wrong")
    _check_reports(rebuilt)
    rest = iter(lines)
    for name, mechanism in rebuilt.mechanisms.items():
        if isinstance(mechanism, LocalNumeric):
            bins = {item.name: (item.domain or {}).get("bins") for item in stated.attributes if item.purpose == name}
            _check_numbers(name, mechanism, measures.combined[name], bins, rest)
        elif measures.reports[name] and isinstance(mechanism, LocalTrajectory):
            _check_paths(name, mechanism, (measures.paths or {}).get(name, {}), rest)
        elif measures.reports[name] and isinstance(mechanism, LocalLocation):
            shares = []
            for cell in range(mechanism.grid.num_cells + promises.has_outside(mechanism)):
                expected = {
                    "quantity": "share",
                    "purpose": name,
                    "cell": cell,
                    **promises.place_of(mechanism.grid, cell),
                }
                shares.append(_check_line(next(rest, None), expected, 0.0, 1.0))
            _check_sum(shares, name)
    require(next(rest, None) is None, "data: more lines than the task has quantities")
    reports = sum(num for tiers in measures.reports.values() for num in tiers.values())
    pointed = sum(line["lower"] == line["upper"] for line in lines if line["quantity"] == "mean")
    rare = f"; {several(pointed, 'mean')} without any width, which is rare: request the reports" if pointed else ""
    return (
        f"{several(len(lines), 'line')} from {several(reports, 'report')}: each belongs to the task, its value lies in "
        f"its interval and the interval in the public domain; shares add up to 1{rare}"
    )


def _check_reports(rebuilt: Rebuilt) -> None:
    """Check the numbers of reports, also those left out and those of each number, and the verdict on each map."""
    measures = rebuilt.stated.estimates
    reports, combined, left_out = measures.reports, measures.combined, measures.left_out or {}
    fits = (
        all(getattr(measures, name) is not None for name in measures.model_fields_set)
        and measures.left_out != {}
        and left_out.keys() <= set(promises.LEFT_OUT)
        and all(num >= 0 for num in left_out.values())
    )
    _check(fits, "impossible numbers of reports left out")
    _check(reports.keys() == rebuilt.mechanisms.keys(), "reports of other purposes")
    for purpose in rebuilt.task.purposes:
        tiers, by_tier = {tier.name for tier in purpose.tiers}, reports[purpose.name]
        fits = by_tier.keys() <= tiers and all(num > 0 for num in by_tier.values())
        _check(fits, f"impossible numbers of reports of {purpose.name}")
        _check_combined(rebuilt, purpose.name, combined.get(purpose.name, {}))
    _check(combined.keys() <= reports.keys(), "combined tiers of other purposes")
    _check(any(reports.values()), "there are no reports")
    due = promises.shuffled_loss(rebuilt.mechanisms, reports, measures.senders)
    stated = None if measures.shuffled is None else measures.shuffled.plain()
    _check(stated in (due, None), "the loss of shuffled reports does not follow from the task")
    maps, verdicts = measures.maps or {}, rebuilt.verdicts()
    _check(maps.keys() == verdicts.keys() and measures.maps != {}, "maps of other purposes")
    on_ways = {name for name in verdicts if isinstance(rebuilt.mechanisms[name], LocalTrajectory)}
    on_task = (measures.paths or {}).keys() == on_ways and (measures.paths is not None) == bool(on_ways)
    _check(on_task, "paths of other purposes")
    for name, verdict in verdicts.items():
        fits = maps[name] == verdict.message or not _is_own(rebuilt.stated)
        _check(fits, f"the verdict on the map of {name} does not follow from the task")


def _check_combined(rebuilt: Rebuilt, name: str, stated: Mapping[str, CombinedTiers]) -> None:
    """Check that tiers were combined by the requested rule, and how many reports each number has."""
    wrong = f"certificate.json: the combined tiers of {name} are impossible"
    mechanism, by_tier = rebuilt.mechanisms[name], rebuilt.stated.estimates.reports[name]
    rule = str(rebuilt.stated.mechanism["combine"])
    numbers = isinstance(mechanism, LocalNumeric)
    subjects = [item.name for item in mechanism.quantities] if isinstance(mechanism, LocalNumeric) else ["shares"]
    require(sorted(stated) == sorted(subjects if by_tier or numbers else []), wrong)
    for item in stated.values():
        require((item.reports is not None) is numbers, wrong)
        silent = item.reports == 0
        sound = "p_value" not in item.model_fields_set or (item.p_value is not None and 0 <= item.p_value <= 1)
        _check(sound, "a p-value is not a probability")
        require(
            item.rule == (promises.NO_TIER if silent else promises.chosen_rule(rule, len(by_tier), item.p_value)), wrong
        )
        require("p_value" not in item.model_fields_set or (len(by_tier) > 1 and not silent), wrong)
    if isinstance(mechanism, LocalNumeric):
        most = sum(num * mechanism.num_told(tier) for tier, num in by_tier.items())
        counts = [item.reports or 0 for item in stated.values()]
        require(all(0 <= num <= sum(by_tier.values()) for num in counts), wrong)
        whole = len(counts) == len(mechanism.attributes)
        require(sum(counts) == most if whole else sum(counts) <= most, wrong)


def _check_line(line: _Line | None, expected: Mapping[str, object], low: float, high: float) -> float:
    """Check what a line is about, and the range of its value and interval; return the value."""
    if line is None:
        raise CheckFailed("data: fewer lines than the task has quantities")
    words = " ".join(str(expected[key]) for key in ("quantity", "purpose", "attribute") if expected.get(key))
    figures = ("value", "lower", "upper")
    fits = all(same(line[name], expected.get(name, promises.EMPTY[name])) for name in line if name not in figures)
    require(fits and expected.keys() <= line.keys(), f"data: a line is not about {words}")
    value, lower, upper = (line[name] for name in figures)
    bounded = lower is not None and upper is not None and low <= lower <= upper <= high
    require(bounded, f"data: an interval of {words} is empty or leaves the public domain")
    if value is None:
        whole = lower == low and upper == high and expected["quantity"] in ("mean", "present")
        require(whole, f"data: {words} has no value, but an interval within the domain")
        return math.nan
    require(lower <= value <= upper, f"data: a value of {words} lies outside its interval")
    return float(value)


def _check_sum(values: Sequence[float], what: str) -> None:
    require(abs(math.fsum(values) - 1) <= SUM_TOLERANCE, f"data: shares of {what} do not add up to 1")


def _check_numbers(
    name: str,
    mechanism: LocalNumeric,
    combined: Mapping[str, CombinedTiers],
    bins: Mapping[str, object],
    rest: Iterator[_Line],
) -> None:
    for item in mechanism.quantities:
        expected = {"quantity": "mean", "purpose": name, "attribute": item.name, "unit": item.unit}
        _check_line(next(rest, None), expected, float(item.low), float(item.high))
    for attribute in mechanism.attributes:
        if attribute.presence:
            expected = {"quantity": "present", "purpose": name, "attribute": attribute.quantity.name}
            _check_line(next(rest, None), expected, 0.0, 1.0)
    for item in mechanism.quantities:
        if not promises.has_bins(mechanism) or not combined[item.name].reports:
            continue
        common, shares, points = {"purpose": name, "attribute": item.name}, [], []
        num = bins.get(item.name)
        if not isinstance(num, int) or not 1 < num <= promises.MAX_BINS:
            raise CheckFailed(f"certificate: does not state the bins of {item.name}")
        for low, high in itertools.pairwise(promises.bin_edges(item, num)):
            of_bin = {"quantity": "share", **common, "bin_lower": low, "bin_upper": high}
            shares.append(_check_line(next(rest, None), of_bin, 0.0, 1.0))
        _check_sum(shares, f"bins of {item.name}")
        for level in QUANTILES:
            expected = {"quantity": f"quantile {level}", **common, "unit": item.unit}
            points.append(_check_line(next(rest, None), expected, float(item.low), float(item.high)))
        require(points == sorted(points), f"data: quantiles of {item.name} are not in order")


def _check_paths(name: str, mechanism: LocalTrajectory, counts: Mapping[str, int], rest: Iterator[_Line]) -> None:
    fits = counts.keys() == {"paths", "listed"} and counts["paths"] == promises.num_paths(mechanism)
    _check(fits and 0 < counts["listed"] <= counts["paths"], f"does not state the paths of {name}")
    shares, paths = [], []
    for _ in range(counts["listed"] + (counts["listed"] < counts["paths"])):
        line = next(rest, None)
        path = None if line is None else line.get("path")
        shares.append(_check_line(line, {"quantity": "share", "purpose": name, "path": path}, 0.0, 1.0))
        paths.append(str(path))
    if counts["listed"] < counts["paths"]:
        require(paths.pop() == OTHER, f"data: the last line of {name} is not that of all other paths")
    require(len(set(paths)) == len(paths), f"data: a path of {name} is listed twice")
    sound = all(promises.path_index(mechanism, path) is not None for path in paths)
    require(sound, f"data: a path of {name} is not on the grid")
    ordered = all(one >= other for one, other in itertools.pairwise(shares[: counts["listed"]]))
    require(ordered, f"data: the paths of {name} are not in the order of their shares")
    _check_sum(shares, name)


def _check_estimate_loss(release: Release) -> str:
    stated, rebuilt = release.certificate, Rebuilt.of(release.certificate)
    task, losses, measures = rebuilt.task, rebuilt.losses, stated.estimates
    fits = same(promises.loss_measures(task, losses).plain(), measures.loss.plain())
    _check(fits, "what vehicles give away does not follow from the task")
    promise = rebuilt.promise()
    _check(stated.basis is promise.basis, "the basis does not follow from the task")
    expected, printed = promise.to_dict(), stated.plain()
    wrong = [name for name in ("guarantee", "holds") if not same(expected.get(name), printed.get(name))]
    wrong += ["assumptions"] if {item.name for item in promise.assumptions} != stated.assumptions.keys() else []
    if _is_own(stated):
        wrong += [name for name in _WORDS if not same(expected.get(name), printed.get(name))]
    _check(not wrong, f"does not follow from the task: {', '.join(dict.fromkeys(wrong))}")
    totals = (made.plain() for made in (promises.composed(task, losses, promise), stated.composition))
    fits = same(*([made["total"], made["total_per_period"]] for made in totals))
    _check(fits, "the totals of a day and a lifetime do not follow from the task")
    within = f"epsilon {decimal_text(promises.loss_within(task, losses, rebuilt.mechanisms), up=True)}"
    words = f"a slot of reports gives away {within}"
    if any(losses.of_slot(tier) is None for tier in task.tier_names):
        words = f"a slot of reports shows areas unchanged, without any bound across areas; within areas {within}"
    claim = decimal_text(promise.guarantee.epsilon) if not isinstance(promise.guarantee, KAnonymity) else ""
    agrees = f"not epsilon {claim} as claimed" if promise.basis is Basis.CLAIMED else "as stated"
    return f"{words} at most, {agrees}, by the laws of the task"
