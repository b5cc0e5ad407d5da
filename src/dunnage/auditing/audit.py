# SPDX-License-Identifier: Apache-2.0
"""audit: what an attacker could still learn from a release, and what privacy cost, as findings.

Each finding has a value, an interval, a baseline (what the attacker, or the planner, has without the release) and a
sentence. Figures are counted over all records, so that most intervals are points; what is estimated has a 95 %
interval. An audit compares with the truth and is private; an external one is made from release and plan alone, by
code that is never given the data.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PlainSerializer, SerializerFunctionWrapHandler, model_serializer

from dunnage._version import __version__
from dunnage.auditing.carriers import (
    CarrierCase,
    EstimatesSight,
    carrier_inside_findings,
    carrier_outside_findings,
    vehicles_at_risk,
)
from dunnage.auditing.counts import (
    CountsCase,
    CountsSight,
    columns_of,
    counts_at_risk,
    counts_inside_findings,
    counts_outside_findings,
)
from dunnage.auditing.finding import TOPICS, AtRisk, Finding, Progress
from dunnage.auditing.fleet import Fleet
from dunnage.auditing.inside import Case, correspondence_findings, linkage_findings, plan_findings, population_findings
from dunnage.auditing.noisy import NoisyCase, NoisySight, noisy_inside_findings, noisy_outside_findings
from dunnage.auditing.outside import outside_findings
from dunnage.auditing.rides import ride_inside_findings, ride_outside_findings
from dunnage.auditing.sampled import NO_ROWS, sampled_inside_findings, sampled_outside_findings
from dunnage.auditing.shuttles import fleet_findings, fleet_note
from dunnage.auditing.sight import Known, Sight
from dunnage.auditing.utility import DEFAULT_SECONDS
from dunnage.certificate import Composition, JsonObject, Meaning, StatedGuarantee
from dunnage.city import City
from dunnage.documents import Listed, Model, Software, canonical, read, to_text
from dunnage.errors import DunnageError, ParameterError, ReleaseError
from dunnage.folders import new_folder
from dunnage.kinds import COUNTS, ESTIMATES
from dunnage.kinds.common import same
from dunnage.mechanisms.counts import Feature
from dunnage.planning.plan import FleetPlan, Plan, told_fleet_plan
from dunnage.publication import Key, key_path
from dunnage.publishing import mechanism_of
from dunnage.release import Release
from dunnage.tables.dataset import Dataset

AUDIT_FILE = "audit.json"
PAGE_FILE = "audit.html"
SIGNOFF_FILE = "sign-off.html"
MOST_AUDIT_BYTES = 1 << 26
MOST_APPROVER = 120
_STATED = ("guarantee", "mechanism", "claim", "why", "holds", "assumptions", "in_clear", "warnings", "time")
_SAYS = {
    True: "Made from release and plan alone: whoever has those can compute it. It may be handed out.",
    False: "Private: compares the release with the true data. For the owner's eyes only; do not hand out.",
}
AS_STATED = PlainSerializer(lambda part: None if part is None else part.plain())
NOISE = "noise"  # What a noisy release tells, in the place of a statistic of classes
ROWS_SAY = (
    "The records whose row is named most easily by who knows their values; of equally easy ones, those whose sensitive "
    "value is guessed most easily."
)
NO_ROW_KNOWN = "Nobody is listed: which noisy row is whose only the key tells."

Place = Release | str | os.PathLike[str]
Other = tuple[Place, Dataset] | tuple[Place, Dataset, Key | None]
AnyPlan = Plan | FleetPlan


# What is written


class Approval(Model):
    """Who approved a release, and when."""

    name: str
    time: str


class ComparedPolicy(Model):
    """The policy that data were read under, and in what it differs from the release."""

    digest: str
    differs: Listed[str]


class ComparedPlan(Model):
    """What a plan that was looked at came to."""

    minimises: str
    objective: int | float
    model: str


class Statement(Model):
    """What a release promises, as its certificate states it, and what it was compared with: public facts, to sign."""

    guarantee: StatedGuarantee | None = None
    basis: str = ""
    mechanism: JsonObject = Field(default_factory=dict)
    claim: str = ""
    why: str = ""
    holds: StatedGuarantee | None = None
    assumptions: dict[str, str] = Field(default_factory=dict)
    in_clear: Listed[str] = ()
    warnings: Listed[str] = ()
    time: str = "unknown"
    meaning: Annotated[Meaning | None, AS_STATED] = None
    composition: Annotated[Composition | None, AS_STATED] = None
    signed: bool = False
    policy: ComparedPolicy | None = None
    plan: ComparedPlan | None = None

    @model_serializer(mode="wrap")
    def _as_stated(self, write: SerializerFunctionWrapHandler) -> dict[str, object]:
        """Leave out what the certificate does not state, wherever the statement is written."""
        return {name: value for name, value in write(self).items() if name in self.model_fields_set}

    @classmethod
    def of(cls, asked: Asked) -> Statement:
        """Gather facts of release, policy and plan; none depends on the data beyond what was released."""
        certificate = asked.release.certificate
        policy = plan = None
        if asked.data is not None:
            differs = tuple(other_parameters(asked.release, asked.data))
            policy = ComparedPolicy(digest=asked.data.policy.digest(), differs=differs)
        elif asked.fleet is not None:
            policy = ComparedPolicy(digest=asked.fleet.policy_digest, differs=())
        if asked.plan is not None:
            kind = asked.plan.minimises if isinstance(asked.plan, Plan) else "shuttles"
            model = asked.plan.model.name if asked.plan.model is not None else ""
            plan = ComparedPlan(minimises=kind, objective=asked.plan.objective, model=model)
        return cls(
            **{name: getattr(certificate, name) for name in _STATED if name in certificate.model_fields_set},
            basis=str(certificate.basis),
            meaning=certificate.meaning,
            composition=certificate.composition,
            signed=certificate.signature is not None,
            policy=policy,
            plan=plan,
        )


class Audit(Model):
    """Findings about one release. Private unless ``external``; its ``repr`` shows no figure.

    Parameters
    ----------
    dataset, period
        What was released.
    release
        Digest of its certificate.
    protects
        What one record is.
    statistic
        What was told about a class, or ``noise``, ``counts``, ``estimates``.
    findings
        The findings, by topic.
    at_risk
        The records most at risk, most first, each with its ``source_row`` (from 0, as in the key). Of rows: ``rows``
        that may be it, ``record_linkage``, and ``attribute_linkage`` by sensitive column. Of trips: ``suspicion``,
        trips ``alike`` and ``released``. Of riders: ``guess``, ``trips``, ``types``. Of vehicles: ``stays``,
        ``found_if_it_stays``.
    risk_says
        What that list means, or why nobody is on it.
    notes
        What could not be computed, and why.
    external
        Whether it was made without the data, so that it may be handed out.
    seconds
        Time taken.
    statement
        What the release promises and the policy it was compared with, for the sign-off: public facts alone.
    approved
        Who approved it, and when: ``name``, ``time``; None if nobody did yet.
    says
        Who may see it.
    software
        Version of Dunnage that made it.
    """

    format: Literal[1] = 1
    kind: Literal["audit"] = "audit"
    dataset: str
    period: str | None
    release: str
    protects: str
    statistic: str
    external: bool
    says: str = Field(default_factory=lambda known: _SAYS[known["external"]])
    findings: Listed[Finding]
    at_risk: Listed[AtRisk]
    risk_says: str = Field(default="", alias="at_risk_says")
    notes: Listed[str]
    statement: Statement = Statement()
    approved: Approval | None = None
    seconds: float
    software: Software = Software(dunnage=__version__)

    def __repr__(self) -> str:
        return f"Audit({self.dataset!r}, {len(self.findings)} findings, {'external' if self.external else 'private'})"

    __str__ = __repr__

    def finding(self, name: str) -> Finding:
        """Return a finding by its name.

        Raises
        ------
        ParameterError
            If there is no such finding.
        """
        for item in self.findings:
            if item.name == name:
                return item
        known = ", ".join(item.name for item in self.findings)
        raise ParameterError(f"the audit has no finding {name!r}. It has: {known}.")

    def to_dict(self) -> dict[str, Any]:
        """Give the audit as plain data."""
        return self.model_dump(mode="json", by_alias=True)

    def summary(self) -> str:
        """Describe the audit for a person: each finding with its baseline, then its sentence."""
        lines = [f"Audit of {self.dataset}" + (f", {self.period}" if self.period else ""), self.says, ""]
        width = max((len(item.name) for item in self.findings), default=0)
        for item in self.findings:
            low, high = item.interval
            between = f" ({item.text(low)} to {item.text(high)})" if low < high else ""
            lines.append(f"{item.name:<{width}}  {item.text(item.value)}{between}, baseline {item.text(item.baseline)}")
            lines.append(f"{'':<{width}}  {item.sentence}")
        return "\n".join([*lines, *(["", *self.notes] if self.notes else [])])

    def write(self, folder: str | os.PathLike[str], *, page: str = "", sign_off: str = "", force: bool = False) -> Path:
        """Write ``audit.json`` and, if given, its pages; readable by their owner alone unless external."""
        held, private = (PAGE_FILE, SIGNOFF_FILE), not self.external
        with new_folder(folder, marker=AUDIT_FILE, force=force, private=private, may_hold=held) as work:
            for name, text in ((AUDIT_FILE, to_text(self)), (PAGE_FILE, page), (SIGNOFF_FILE, sign_off)):
                if text:
                    (work / name).write_text(text, encoding="utf-8")
        return Path(folder)

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> Audit:
        """Read an audit folder.

        Raises
        ------
        InputError
            If it is not one.
        """
        path, what = Path(folder) / AUDIT_FILE, "an audit folder"
        return read(path, cls, what=what, remedy="Make it anew.", max_bytes=MOST_AUDIT_BYTES)


def audit(
    release: Place,
    data: Dataset | Fleet | None = None,
    plan: AnyPlan | str | os.PathLike[str] | None = None,
    *,
    key: Key | None = None,
    city: City | None = None,
    shuttle_hour: float | None = None,
    population: Dataset | None = None,
    also: Sequence[Other] = (),
    tolerance: float | None = None,
    external: bool = False,
    approved_by: str | None = None,
    seconds: float = DEFAULT_SECONDS,
    progress: Progress | None = None,
) -> Audit:
    """Attack a release of classes, noisy rows, counts or estimates, and score it against the truth.

    The audit is private unless external.

    Parameters
    ----------
    release
        The release, or its folder; the key beside a folder is found by itself.
    data
        The rows that were published, or for estimates the :class:`~dunnage.auditing.fleet.Fleet` that reported; not
        needed, and not looked at, for an external audit.
    plan
        A plan made on the release, of packages or of shuttles, or its folder.
    key
        Which row is which record. Needed to apply a packing plan; without it records are matched to classes by value.
    city, shuttle_hour
        For a plan of shuttles: the city it was sized in, and what an hour of a shuttle costs, in any currency.
    population
        Everyone the records may have been drawn from, under the same policy: for the journalist's risk.
    also
        Other releases of the same records: ``(release, data)`` or ``(release, data, key)`` each.
    tolerance
        Also attack with values that are known only within this share of themselves on either side.
    external
        Compute only what anyone can who has release and plan.
    approved_by
        Name and role of who approves the release, for the sign-off.
    seconds
        Most time for the plan on the true weights.
    progress
        Called with a line as each attack begins.

    Raises
    ------
    UserError
        If the release has neither classes nor noisy rows, counts or estimates, or release, data, key, plan and city do
        not belong together.
    """
    start = time.monotonic()
    if not external and data is None:
        raise ParameterError("an audit compares with the true data. Got none. Give them, or ask for an external audit.")
    if tolerance is not None and not 0 < tolerance < 1:
        raise ParameterError(f"tolerance must be between 0 and 1, a share of the value. Got {tolerance}.")
    approved = approval(approved_by)
    found, key = opened(release, key, with_key=not external)
    of_devices, given = found.kind == ESTIMATES, None if external else data
    if given is not None and of_devices != isinstance(given, Fleet):
        what = "devices, so it is compared with a Fleet" if of_devices else "an owner's rows, so no Fleet made it"
        raise ParameterError(f"the release comes from {what}. Got {type(given).__name__}. Read the data anew.")
    if isinstance(given, Dataset) and found.kind != COUNTS:  # which have other attributes
        refuse_other_policy(found, given)
    planned = plan_of(plan, found, external=external)
    if isinstance(planned, FleetPlan) and city is None and not external:
        raise ParameterError("a plan of shuttles is audited in a city. Got none. Give --city CITY, as for size.")
    asked = Asked(
        release=found,
        data=given if isinstance(given, Dataset) else None,
        fleet=given if isinstance(given, Fleet) else None,
        plan=planned,
        city=city,
        shuttle_hour=shuttle_hour,
        key=key,
        population=population,
        also=also,
        tolerance=tolerance,
        seconds=seconds,
        tell=progress or (lambda line: None),
    )
    told, certificate = told_of(asked), found.certificate
    return Audit(
        dataset=certificate.dataset,
        period=certificate.period,
        release=certificate.digest,
        protects=certificate.guarantee.protects,
        statistic=told.statistic,
        findings=tuple(sorted(told.findings, key=lambda item: TOPICS.index(item.topic))),
        at_risk=tuple(told.at_risk),
        notes=tuple(told.notes),
        external=asked.external,
        seconds=round(time.monotonic() - start, 3),
        at_risk_says=told.risk_says,
        statement=Statement.of(asked),
        approved=approved,
    )


def approval(approved_by: str | None, clock: datetime | None = None) -> Approval | None:
    if approved_by is None:
        return None
    name = approved_by.strip()
    if not name or len(name) > MOST_APPROVER or not name.isprintable():
        raise ParameterError(
            f"who approves has a name of 1 to {MOST_APPROVER} printable characters. Got another. Write "
            '--approved-by "Ada Example, data protection officer", say.'
        )
    return Approval(name=name, time=(clock or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ"))


def opened(release: Place, key: Key | None, *, with_key: bool = True) -> tuple[Release, Key | None]:
    """Read a release folder, and the key beside it if there is one."""
    if isinstance(release, Release):
        return release, key
    beside = key_path(release)
    found = Release.read(release)
    return found, Key.read(beside) if with_key and key is None and beside.is_file() else key


def plan_of(plan: AnyPlan | str | os.PathLike[str] | None, release: Release, *, external: bool) -> AnyPlan | None:
    """Read a plan, and check that it may be looked at here: shuttles with counts of trips, packages with rows."""
    if plan is None:
        return None
    found = plan
    if not isinstance(found, Plan | FleetPlan):
        path = Path(found)
        of_shuttles = path.exists() and told_fleet_plan(path)
        if not of_shuttles and not path.is_dir():
            what = "Give the folder that pack or size wrote, or a CSV zone,shuttles."
            raise ParameterError(f"{os.fspath(path)} is not a plan folder. {what}")
        found = FleetPlan.read(path) if of_shuttles else Plan.read(path)
    if release.kind == ESTIMATES:
        raise ParameterError("nothing is planned on estimates from devices. Got a plan. Leave --plan out.")
    if isinstance(found, FleetPlan) != (release.kind == COUNTS):
        wanted = "shuttles, made by size" if release.kind == COUNTS else "packages, made by pack"
        raise ParameterError(f"this release goes with a plan of {wanted}. Got another. Give the plan made on it.")
    if found.release != release.certificate.digest and (found.release or not found.external):
        raise ReleaseError("the plan was made on another release. Give that release, or plan on this one.")
    if external and isinstance(found, Plan) and found.private:
        raise ParameterError("the plan was made on true weights, so nothing of it may be handed out. Leave it away.")
    return found


# What is audited and with what, and what was found so far: handed from one kind of attack to the next


@dataclass(frozen=True, eq=False, kw_only=True)
class Asked:
    """What is audited, and with what, as for :func:`audit`; no data for an external audit."""

    release: Release
    data: Dataset | None  # data, fleet: the true rows, or the vehicles that reported
    fleet: Fleet | None
    plan: AnyPlan | None
    city: City | None
    shuttle_hour: float | None
    key: Key | None
    population: Dataset | None
    also: Sequence[Other]
    tolerance: float | None
    seconds: float
    tell: Progress

    @property
    def external(self) -> bool:
        return self.data is None and self.fleet is None

    @property
    def packing(self) -> Plan | None:
        return self.plan if isinstance(self.plan, Plan) else None

    @property
    def shuttles(self) -> FleetPlan | None:
        return self.plan if isinstance(self.plan, FleetPlan) else None


@dataclass(eq=False)
class Told:
    """What was found so far."""

    statistic: str  # What was told about a class, or `noise`, `counts`, `estimates`
    findings: list[Finding] = field(default_factory=list)
    at_risk: Sequence[AtRisk] = ()
    risk_says: str = ""  # What that means, or why nobody is at risk
    notes: list[str] = field(default_factory=list)  # What could not be found

    def add(self, findings: Iterable[Finding], notes: Iterable[str] = ()) -> None:
        self.findings += findings
        self.notes += notes

    def add_lacks(self, asked: Asked, truth: str, tolerance: str, population: str, also: str) -> None:
        """Say which questions were not put to a release that has no classes, or cannot be answered."""
        wanted = {
            truth: asked.external,
            tolerance: asked.tolerance is not None,
            population: asked.population is not None,
            also: bool(asked.also),
        }
        self.notes += [note for note, was_asked in wanted.items() if note and was_asked]


# Which attacks and measures fit a release, by what it is of: classes, noisy rows, counts or estimates


def told_of(asked: Asked) -> Told:
    if asked.release.kind in (COUNTS, ESTIMATES):
        return _told_by_counts(asked) if asked.release.kind == COUNTS else _told_by_estimates(asked)
    return _told_by_classes(asked) if "class_id" in asked.release.data.column_names else _told_by_noise(asked)


def _told_by_estimates(asked: Asked) -> Told:
    sight, told = EstimatesSight.of(asked.release), Told(ESTIMATES)
    outside, notes = carrier_outside_findings(sight.task, asked.tell)
    inside: list[Finding] = []
    more: list[str] = []
    if asked.fleet is not None:
        case = CarrierCase.of(sight, asked.fleet)
        inside, more = carrier_inside_findings(case, asked.tell)
        told.at_risk, told.risk_says = vehicles_at_risk(case)
    known = {item.name for item in inside}  # numbers are guessed better by who knows the fleet: that counts
    told.add([item for item in outside if item.name not in known], notes)
    told.add(inside, more)
    told.add_lacks(
        asked,
        "How far estimates are off cannot be told without the truth.",
        "Reports are attacked by their laws: there are no values to know roughly.",
        "Estimates have no rows, so a population cannot be looked for in them.",
        "Estimates have no classes, so they were not compared with other releases; losses of reports add up.",
    )
    return told


def _told_by_counts(asked: Asked) -> Told:
    sight, told = CountsSight.of(asked.release), Told(COUNTS)
    outside, notes = counts_outside_findings(sight, asked.tell)
    told.add([item for item in outside if item.topic != "utility"], notes)
    if asked.data is not None:
        refuse_other_universe(sight, asked.data)
        told.add([], policy_notes(sight, asked.data))
        case = CountsCase.of(sight, asked.data, asked.key)
        if asked.shuttles is not None and asked.city is not None:
            parts = (asked.shuttles, asked.data, asked.release, asked.city, asked.key)
            told.add(*fleet_findings(*parts, shuttle_hour=asked.shuttle_hour, tell=asked.tell))
        told.add(*counts_inside_findings(case, asked.tell))
        told.at_risk, told.risk_says = counts_at_risk(case)
    # What counts lack in truth tells more than the noise they were given: it comes first.
    told.add([item for item in outside if item.topic == "utility"])
    if asked.external and asked.shuttles is not None:
        told.add([], [fleet_note(asked.shuttles)])
    told.add_lacks(
        asked,
        "How far counts are off, and how many trips were created, cannot be told without the truth.",
        "Counts are attacked by who knows all trips but one: there are no values to know roughly.",
        "Counts have no rows, so a population cannot be looked for in them.",
        "Counts have no classes, so they were not compared with other releases; losses of releases add up.",
    )
    return told


def _told_by_classes(asked: Asked) -> Told:
    sight, data, key = Sight.of(asked.release), asked.data, asked.key
    told = Told(sight.statistic)
    if len(sight.sizes):
        told.add(outside_findings(sight, asked.packing, asked.tell))
    else:
        told.add([], [NO_ROWS])
    if sight.clustered:  # what they lose is measured by their own distances
        told.findings = [item for item in told.findings if item.topic != "utility"]
        told.add(ride_outside_findings(sight))
    if sight.sampled:
        told.add(sampled_outside_findings(sight))
    if data is not None and len(sight.sizes):
        case = Case.of(sight, data, key)
        more, told.at_risk = linkage_findings(case, asked.tolerance, asked.tell)
        told.risk_says = ROWS_SAY
        told.add(more, case.notes)
        if asked.population is not None:
            known = population_findings(case, asked.population)
            told.findings = [item for item in told.findings if item.name != known[0].name] + known
        if sight.clustered:
            told.add(*ride_inside_findings(case, asked.tell))
        for number, (release, rows, *keys) in enumerate(asked.also, 1):
            asked.tell("comparing with another release")
            other, its_key = opened(release, keys[0] if keys else None)
            refuse_other_policy(other, rows)
            told.add(*correspondence_findings(case, Case.of(Sight.of(other), rows, its_key), number))
        _add_plan(told, asked, data)
    elif data is not None:
        told.risk_says = NO_ROWS
    if data is not None and sight.sampled:
        asked.tell("drawing the sample again")
        Known.of_records(sight, data)  # refuses other data: a release without rows tells no more
        if key is not None and not key.belongs_to(data):
            raise ReleaseError("the key was made from other rows. Give the data exactly as they were published.")
        told.add(sampled_inside_findings(sight, data, key))
    if asked.release.certificate.rows.noise is not None:
        _add_noisy(told, asked)
    return told


def _told_by_noise(asked: Asked) -> Told:
    told = Told(NOISE)
    _add_noisy(told, asked)
    if asked.data is not None:
        told.add_lacks(
            asked,
            "",
            "Noisy rows were attacked with values known exactly; not with values known roughly.",
            "A population tells nothing more of noisy rows: all records are in the release.",
            "Noisy rows have no classes, so they were not compared with other releases.",
        )
        _add_plan(told, asked, asked.data)
    return told


def _add_noisy(told: Told, asked: Asked) -> None:
    sight = NoisySight.of(asked.release)
    told.add(noisy_outside_findings(sight, asked.packing, asked.tell), sight.notes)
    if asked.data is not None:
        case = NoisyCase.of(sight, asked.data, asked.key)
        findings, at_risk, notes = noisy_inside_findings(case, asked.packing, asked.tell)
        told.add(findings, notes)
        told.at_risk = told.at_risk or at_risk
        told.risk_says = told.risk_says or (ROWS_SAY if at_risk else NO_ROW_KNOWN)


def _add_plan(told: Told, asked: Asked, data: Dataset) -> None:
    if asked.packing is not None:
        told.add(*plan_findings(asked.release, data, asked.key, asked.packing, asked.seconds, asked.tell))


# Whether data were read as they were published: under the same policy, city and period. Messages name public facts


def refuse_other_policy(release: Release, data: Dataset) -> None:
    """Refuse data read under a policy whose public facts are not those of the release."""
    stated = {name: item.plain() for name, item in release.attributes.items()}
    read = {str(item["name"]): dict(item) for item in data.schema.describe()}
    differ = []
    for name in {**stated, **read}:
        if name not in stated or name not in read:
            differ.append(f"{name!r} is only in the {'release' if name in stated else 'policy'}")
        elif canonical(read[name]) != canonical(stated[name]):
            first, second = stated[name], read[name]
            facts = [fact for fact in {**first, **second} if first.get(fact) != second.get(fact)]
            differ.append(f"{name!r} has another {' and '.join(facts)}")
    if differ:
        raise ReleaseError(
            f"the release was made under another policy: {'; '.join(differ)}. "
            "Give the policy, and the files that it names, as they were published."
        )


def refuse_other_universe(sight: CountsSight, data: Dataset) -> None:
    """Refuse data read under a policy that counts trips of other types than the release, naming what differs."""
    if data.schema.trip is None:
        raise ReleaseError("the policy does not say what a trip is. Give the policy that the counts were made under.")
    stated, read = sight.universe, data.schema.universe(data.period)
    pairs = {"stops": (stated.stops, read.stops), "windows": (stated.windows, read.windows)}
    differ = [name for name, (one, other) in pairs.items() if one != other]
    if stated.time is not None and read.time is not None and not differ:
        first, second = stated.time.describe(), read.time.describe()
        words = {"lower": "windows", "upper": "windows", "window_minutes": "windows", "day": "days"}
        differ += [words.get(fact, fact) for fact in first if first[fact] != second[fact]]
    if (stated.days, stated.num_dates) != (read.days, read.num_dates):
        differ.append("days")
    if not differ:  # zones and modes differ if by them cells fall into another number of groups than is stated
        words = {"origin_zone": "zones", "destination_zone": "zones", "mode": "modes"}
        for item in sight.asked[1:]:
            columns = columns_of(item.name)
            absent = [words[name] for name in columns if name not in read.columns]
            if absent or Feature.of(read, columns).size != item.groups:
                differ += absent or [words[name] for name in columns if name in words]
    if differ:
        raise ReleaseError(
            f"the release was made under another policy, or of another period: it has other "
            f"{', '.join(dict.fromkeys(differ))}. Give policy, city and period as they were published."
        )


def other_parameters(release: Release, data: Dataset) -> list[str]:
    """Name the parameters in which the policy that data were read under differs from what was released."""
    stated = release.certificate.mechanism
    try:
        read = dict(mechanism_of(data.policy).promise(data.schema).mechanism)
    except DunnageError:  # of a policy that could not be published under
        read = dict(data.policy.mechanism)
    differ = [name for name in {**stated, **read} if not same(stated.get(name), read.get(name))]
    return ["mechanism"] if "name" in differ else differ


def policy_notes(sight: CountsSight, data: Dataset) -> list[str]:
    """Say in what the policy that data were read under would release other counts, which does not matter here."""
    differ = other_parameters(sight.release, data)
    bounds = (sight.release.certificate.counts.contribution, data.schema.contribution)
    stated, read = (None if bound is None else (bound.max, bound.per) for bound in bounds)
    differ += ["contribution"] if stated != read else []
    differ += ["protects"] if sight.protects != data.schema.protects else []
    told = f"The policy says otherwise than the release of: {', '.join(differ)}. The release's own are used."
    return [told] if differ else []
