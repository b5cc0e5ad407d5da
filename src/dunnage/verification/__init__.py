# SPDX-License-Identifier: Apache-2.0
"""verify: check a release folder from outside, with nothing but the folder.

Digests come before parsing. Then the mechanism is made again from its stated parameters and asked what it promises
about the stated columns: guarantee, basis, assumptions and odds must be those. What can be counted is counted again
from the tables, by the kind of release and by the mechanism: k, class sizes, bounds, sums, laws of noise, every figure
that the certificate prints. What cannot be seen from outside is said. Private rows, budgets and keys are out of reach.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from pydantic import Field, computed_field

from dunnage._version import __version__
from dunnage.certificate import DIGESTS_SAY, Certificate, Total, composition_rule, load_public_key, meaning
from dunnage.documents import Listed, Model
from dunnage.domains import KINDS, domain_from
from dunnage.errors import CheckFailed, ParameterError, ReleaseError
from dunnage.exact import exact, plain
from dunnage.guarantees import (
    ONE_PERIOD_PER_RECORD,
    PROJECT,
    Assumption,
    Basis,
    Loss,
    Neighbours,
    Promise,
)
from dunnage.kinds import COUNTS, ESTIMATES, kind_of
from dunnage.kinds.common import require, same
from dunnage.kinds.noisy import NOT_CHECKED
from dunnage.mechanisms import MECHANISMS
from dunnage.mechanisms.base import Mechanism
from dunnage.release import (
    CERTIFICATE_FILE,
    RELEASE_FILES,
    Release,
    file_digest,
    is_plain_file,
    printable,
    read_certificate,
    read_tables,
)
from dunnage.schema import Attribute, Contribution, Role, Schema
from dunnage.tables.columns import as_text, is_set, is_text
from dunnage.trips import Trip
from dunnage.verification.estimates import (
    Rebuilt,
    check_estimate_columns,
    check_estimate_lines,
    check_estimate_loss,
)

_HIDDEN = "identifier that is not released"
"""Name for a column of the owner that a promise depends on, and that a release does not name."""


class Verification(Model):
    """What was checked, what failed, and what cannot be checked from outside.

    Attributes
    ----------
    checks
        What was checked and held.
    problems
        What did not hold; empty means the release is in order.
    basis
        What the certificate states: proved, claimed or void; empty if it cannot be read.
    not_checked
        What nobody can see from the folder alone.
    """

    folder: str = Field(serialization_alias="release")
    basis: str = ""
    checks: list[str] = Field(default_factory=list)
    problems: list[str] = Field(default_factory=list)
    not_checked: Listed[str] = NOT_CHECKED

    @computed_field  # type: ignore[prop-decorator]
    @property
    def ok(self) -> bool:
        """Whether every check held."""
        return not self.problems

    def to_dict(self) -> dict[str, Any]:
        """Give the result as plain data."""
        return self.model_dump(mode="json", by_alias=True)

    def summary(self) -> str:
        """Print the result for a person."""
        void = ", but void: nothing is promised" if self.basis == Basis.VOID else ""
        lines = [f"In order{void}: {self.folder}" if self.ok else f"NOT in order: {self.folder}"]
        lines += [f"  failed  {problem}" for problem in self.problems]
        lines += [f"  {'note' if _is_caveat(check) else 'ok':<6}  {check}" for check in self.checks]
        lines += ["Cannot be checked from outside:", *(f"  -       {item}" for item in self.not_checked)]
        return "\n".join(lines)


def _is_caveat(check: str) -> bool:
    """Return whether a check held only as far as an unsigned folder can."""
    return check.startswith(("not signed", "signed, but"))


def verify(folder: str | os.PathLike[str], *, signed_by: str | os.PathLike[str] | None = None) -> Verification:
    """Check a release folder.

    Parameters
    ----------
    folder
        The folder that was handed over.
    signed_by
        Public key (PEM file) the certificate must be signed with.

    Returns
    -------
    Verification
        ``ok`` tells whether everything held.

    Raises
    ------
    ReleaseError
        If there is no release at that place at all.
    """
    path = Path(folder)
    if not path.is_dir():
        raise ReleaseError(f"{path} is not a folder, so it is not a release. Give the folder that publish wrote.")
    trusted = load_public_key(signed_by) if signed_by is not None else None
    basis = ""
    not_checked: tuple[str, ...] = NOT_CHECKED
    checks: list[str] = []
    problems: list[str] = []
    try:
        certificate = read_certificate(path)
        basis, kind = str(certificate.basis), kind_of(certificate)
        if kind is not None:
            not_checked = kind.not_checked(certificate)
        checks.append("the certificate is readable, in canonical form, and fits its own digest")
        checks.append(certificate.check_signature(trusted))
        _check_digests(path, certificate)
        checks.append(f"{len(certificate.files)} files fit their digests, and there are no others")
        release = Release(certificate=certificate, **read_tables(path, certificate))
        checks += check_statement(release)
        checks.append(check_columns(release))
        checks.append(_check_csv(release, path))
        checks.append(_check_texts(release, path))
        checks += check_tables(release)
        checks += _check_proof(release)
    except (CheckFailed, ReleaseError) as failure:
        problems.append(str(failure))
    except OSError as failure:
        problems.append(f"a file cannot be read: {failure.strerror or type(failure).__name__}")
    except MemoryError:
        raise
    except Exception as failure:
        # Whatever goes wrong from here on, whoever made the folder made it malformed: never pass, never crash.
        problems.append(f"the contents do not have the form of a release ({type(failure).__name__})")
    return Verification(folder=str(path), basis=basis, checks=checks, problems=problems, not_checked=not_checked)


def _check_digests(folder: Path, certificate: Certificate) -> None:
    listed = certificate.files
    present = {path.name for path in folder.iterdir()} - {CERTIFICATE_FILE}
    problems = [f"{name}: listed in the certificate but missing" for name in set(listed) - present]
    problems += [f"{name}: not listed in the certificate" for name in present - set(listed)]
    problems += [f"{name}: no file of a release" for name in (present & set(listed)) - RELEASE_FILES]
    for name in present & set(listed) & RELEASE_FILES:
        if not is_plain_file(folder, name) or file_digest(folder / name) != listed[name]:
            problems.append(f"{name}: does not fit its digest, so it was changed or damaged")
    if problems:
        raise CheckFailed("; ".join(printable(problem) for problem in sorted(problems)))


def check_release(release: Release) -> None:
    """Check all that follows from certificate and tables, wherever they came from; raise :class:`CheckFailed`."""
    try:
        for _ in (
            *check_statement(release),
            check_columns(release),
            *check_tables(release),
            *_check_proof(release),
        ):
            continue  # each check raises if it does not hold
    except (CheckFailed, MemoryError):
        raise
    except Exception as failure:  # whatever goes wrong, whoever made the release made it malformed
        raise CheckFailed(f"the contents do not have the form of a release ({type(failure).__name__})") from None


def check_columns(release: Release) -> str:
    """Check that tables and columns are those that the certificate speaks of; of estimates, those of the task."""
    return check_estimate_columns(release) if release.kind == ESTIMATES else release.owner.check_columns(release)


def check_tables(release: Release) -> Iterator[str]:
    """Count again what the tables tell, first what any release of the kind has, then what the mechanism states."""
    if release.kind == ESTIMATES:
        yield check_estimate_lines(release)
        yield check_estimate_loss(release)
        return
    yield from release.owner.recount(release)
    yield from mechanism_of(release.certificate).recount(release, schema_of(release.certificate))


def check_statement(release: Release) -> Iterator[str]:
    """Check that everything the certificate promises is what its mechanism promises about its columns."""
    certificate = release.certificate
    if certificate.kind != ESTIMATES:
        check_promise(certificate, _promise_of(certificate))
    basis, why = certificate.basis, certificate.why or ""
    wrong = "gives a reason why it is not" if why else "does not say why"
    require((basis is Basis.PROVED) != bool(why), f"certificate.json: {basis}, but {wrong}")
    held = certificate.holds is None or basis is Basis.CLAIMED
    require(held, f"certificate.json: {basis}, but states what holds instead")
    stated = Promise(
        guarantee=certificate.guarantee,
        basis=basis,
        mechanism={},
        holds=certificate.holds,
        why=why,
        assumptions=tuple(Assumption(name, says) for name, says in certificate.assumptions.items()),
    )
    odds_follow = same(certificate.meaning.plain(), meaning(stated).plain())
    require(odds_follow, "certificate.json: the odds do not follow from the guarantee")
    _check_composition(certificate, stated)
    require(certificate.time == certificate.spend.at, "certificate.json: its time is not that of the spend")
    said = certificate.digests_say == DIGESTS_SAY or certificate.software.dunnage != __version__
    require(said, "certificate.json: says something else of digests")
    yield "the odds and composition rule follow from the guarantee"
    if certificate.kind != ESTIMATES:
        yield "guarantee, basis and assumptions are what the mechanism promises with these parameters and columns"


def mechanism_of(certificate: Certificate) -> Mechanism:
    """Make the mechanism again from what the certificate states of it."""
    kind = MECHANISMS.get(certificate.mechanism_name)
    if kind is None:
        raise CheckFailed("certificate.json: a mechanism that this version does not know")
    try:
        made = kind.from_description(certificate.mechanism)
    except ParameterError as error:
        raise CheckFailed(f"certificate.json: parameters that {kind.name} cannot have: {error}") from None
    in_form = same(made.describe(), certificate.mechanism)
    require(in_form, f"certificate.json: parameters of {kind.name} in another form than certificates have")
    return made


def _promise_of(certificate: Certificate) -> Promise:
    """Ask the mechanism what it promises about the stated columns."""
    try:
        promise = mechanism_of(certificate).promise(schema_of(certificate))
    except ParameterError as error:
        raise CheckFailed(f"certificate.json: the mechanism cannot promise anything of this: {error}") from None
    return promise.voided(certificate.why or "") if certificate.basis is Basis.VOID else promise


def check_promise(certificate: Certificate, due: Promise) -> None:
    """Compare what is promised with what is due; words of another version may differ."""
    wrong = []
    if not same(due.guarantee.to_dict(), certificate.guarantee.to_dict()):
        wrong.append("guarantee")
    wrong += ["basis"] if due.basis is not certificate.basis else []
    held = due.holds.to_dict() if due.holds is not None else None
    if not same(held, certificate.holds.to_dict() if certificate.holds is not None else None):
        wrong.append("holds")
    if bool(due.warnings) != bool(certificate.warnings):
        wrong.append("warnings")
    names = {item.name for item in due.assumptions}
    wrong += ["assumptions"] if names != certificate.assumptions.keys() else []
    if certificate.software.dunnage == __version__:  # another one may have put it in other words
        words = {
            "assumptions": ({item.name: item.says for item in due.assumptions}, certificate.assumptions),
            "numerics": (due.numerics, certificate.numerics),
            "claim": (due.claim, certificate.claim or ""),
            "why": (due.why, certificate.why or ""),
            "warnings": (list(due.warnings), certificate.warnings or []),
        }
        wrong += [name for name, (one, other) in words.items() if one != other]
        # Columns that are not released may have been the reason for leaving rows out: their lines come last.
        shown = certificate.in_clear[: len(due.in_clear)]
        more = certificate.in_clear[len(due.in_clear) :]
        known = len(set(certificate.in_clear)) == len(certificate.in_clear)
        known &= all("were left out" in item or "were moved to the nearest end" in item for item in more)
        wrong += ["in_clear"] if shown != list(due.in_clear) or not known else []
    wrong = list(dict.fromkeys(wrong))
    require(not wrong, f"certificate.json: {', '.join(wrong)} not what the mechanism promises")


def schema_of(certificate: Certificate) -> Schema:
    """Make a schema of the released columns again, as far as promises depend on it."""
    try:
        schema = _trip_schema(certificate) if certificate.kind == COUNTS else _row_schema(certificate)
    except ParameterError as error:
        raise CheckFailed(f"certificate.json: attributes that no release can have: {error}") from None
    if certificate.kind != COUNTS:
        stated = [item.plain() for item in certificate.attributes]
        require(
            same(schema.describe(), stated), "certificate.json: the attributes are not stated as releases state them"
        )
    return schema


def _row_schema(certificate: Certificate) -> Schema:
    known = all(item.kind in (None, *KINDS) for item in certificate.attributes)
    require(known, "certificate.json: attributes of a kind that there is not")
    attributes = [
        Attribute(
            name=item.name,
            role=Role(item.role) if item.role in tuple(Role) else item.role,  # type: ignore[arg-type]
            kind=item.kind,
            domain=domain_from(item.domain) if item.domain is not None else None,
            missing=item.missing or "refuse",
            outside=item.outside or "refuse",
        )
        for item in certificate.attributes
    ]
    persons = certificate.rows.persons is not None
    merged = any(item.merged for item in certificate.attributes)
    hidden = [Attribute(name=_HIDDEN, role=Role.IDENTIFIER)] if persons or merged else []
    return Schema(
        attributes=(*attributes, *hidden),
        protects=certificate.guarantee.protects,
        together=_HIDDEN if merged else None,
        person=_HIDDEN if persons else None,
    )


def _trip_schema(certificate: Certificate) -> Schema:
    attributes = [
        Attribute(name=item.name, role=Role.QUASI_IDENTIFIER, domain=domain_from(item.domain or {}))
        for item in certificate.attributes
    ]
    by_name = {item.name: item for item in attributes}
    time = by_name["window"].domain if "window" in by_name else None
    # Days that follow from the calendar are not a column of their own.
    own_days = "day" in by_name and getattr(time, "day", None) is None
    kept = [item for item in attributes if item.name != "day" or own_days]
    bound = certificate.counts.contribution
    hidden = [Attribute(name=_HIDDEN, role=Role.IDENTIFIER)] if bound is not None else []
    return Schema(
        attributes=(*kept, *hidden),
        protects=certificate.guarantee.protects,
        trip=Trip(origin="origin", destination="destination", time="window", day="day" if own_days else None),
        contribution=None if bound is None else Contribution(person=_HIDDEN, max=bound.max, per=bound.per),
    )


def _check_proof(release: Release) -> Iterator[str]:
    """Check that the proof named, if any, is the mechanism's; another version may name its sections otherwise."""
    certificate = release.certificate
    proof = certificate.proof
    if proof is None:  # certificates of older versions name none
        return
    same_software = proof.project == PROJECT and proof.version == certificate.software.dunnage
    require(same_software, "certificate.json: the proof is not of its software")
    estimates = certificate.kind == ESTIMATES
    sections = Rebuilt.of(certificate).promise().notes if estimates else mechanism_of(certificate).notes()
    notes, due = proof.sections, [f"docs/proofs/{note}" for note in sections]
    if proof.version != __version__:
        notes, due = (list(dict.fromkeys(note.partition("#")[0] for note in each)) for each in (notes, due))
    require(notes == due, "certificate.json: names another proof than that of its mechanism")
    yield "the proof named is that of the mechanism"


def _check_composition(certificate: Certificate, promise: Promise) -> None:
    stated = certificate.composition
    rule = composition_rule(certificate.guarantee)
    require(stated.rule == rule, "certificate.json: the composition rule does not fit the guarantee")
    require(stated.neighbours in tuple(Neighbours), "certificate.json: totals between neighbours that there are not")
    own = promise.true_loss(Neighbours(str(stated.neighbours)))
    require(stated.total is not None and stated.total_per_period is not None, "certificate.json: states no totals")
    assumes = None if certificate.kind == ESTIMATES else ONE_PERIOD_PER_RECORD.name
    fits = stated.total_per_period_assumes == assumes and None not in stated.plain().values()
    require(fits, "certificate.json: the total per period rests on something else")
    totals = [total for total in (stated.total, stated.total_per_period) if isinstance(total, Total)]
    in_form = all(same(plain(exact(part)), part) for total in totals for part in (total.epsilon, total.delta))
    require(in_form, "certificate.json: states a total in another form than certificates have")
    require(own.bounded or not totals, "certificate.json: states a total, which does not exist after this release")
    fits = all(own.within(Loss(exact(total.epsilon), exact(total.delta))) for total in totals)
    require(fits, "certificate.json: states a total that is less than this release alone")


def _check_csv(release: Release, folder: Path) -> str:
    """Check that each CSV file holds the same table as its Parquet file."""
    for name, table in release.tables.items():
        # Arrow writes the widest decimals to CSV but does not read them: they are compared as text, and so are sets.
        wide = [item.name for item in table.schema if pa.types.is_decimal256(item.type) or is_set(item.type)]
        kinds = {item.name: pa.string() if item.name in wide else item.type for item in table.schema}
        text = pacsv.read_csv(
            str(folder / f"{name}.csv"),
            parse_options=pacsv.ParseOptions(newlines_in_values=True),
            convert_options=pacsv.ConvertOptions(column_types=kinds, strings_can_be_null=False),
        )
        columns = zip(table.column_names, table.itercolumns(), strict=True)
        expected = [as_text(c) if is_text(c.type) or is_set(c.type) else c.cast(kinds[n]) for n, c in columns]
        same = text.column_names == table.column_names and all(
            found.equals(wanted) for found, wanted in zip(text.itercolumns(), expected, strict=True)
        )
        require(same, f"{name}.csv does not hold the same table as {name}.parquet")
    return "CSV and Parquet files hold the same tables"


def _check_texts(release: Release, folder: Path) -> str:
    """Check that nothing is said of the tables, or hidden in them, that does not follow from them."""
    for name in release.tables:
        with pq.ParquetFile(folder / f"{name}.parquet") as file:
            require(not file.schema_arrow.metadata, f"{name}.parquet holds more than a table")
    if release.certificate.software.dunnage != __version__:  # which may have put it in other words
        return "Parquet files hold tables alone"
    for name, content in release.texts(folder).items():
        require((folder / name).read_bytes() == content, f"{name} does not describe this release")
    return "README.md and datapackage.json describe this release"
