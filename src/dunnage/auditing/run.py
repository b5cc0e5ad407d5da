# SPDX-License-Identifier: Apache-2.0
"""audit: what an attacker can still learn from a release, and what privacy cost, as findings.

Each finding has a value, an interval, a baseline (what the attacker, or the planner, has without the release) and a
sentence. Most figures are counted over all records, so their intervals are points; an estimate has a 95 % interval. An
audit compares with the truth and is private. An external audit uses only the release and the plan: its code never
receives the data.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, PlainSerializer, SerializerFunctionWrapHandler, model_serializer

from dunnage._version import __version__
from dunnage.auditing import carriers, classes, counts, findings, noisy, plans, rides
from dunnage.auditing.carriers import EstimatesTruth, EstimatesView, Fleet
from dunnage.auditing.classes import ClassesTruth, ClassesView, Knowledge
from dunnage.auditing.counts import CountsTruth, CountsView
from dunnage.auditing.findings import AtRisk, Finding, KeyFigure, Progress, by_severity, words, worst_risks, written
from dunnage.auditing.noisy import NoisyTruth, NoisyView
from dunnage.errors import DunnageError, ParameterError, ReleaseError, check_kind
from dunnage.folders import new_folder
from dunnage.mechanisms.counts import Feature
from dunnage.model.certificate import Composition, JsonObject, Meaning, StatedGuarantee
from dunnage.model.city import City
from dunnage.model.documents import Listed, Model, Software, canonical, read, to_text
from dunnage.model.house import Clearance, House
from dunnage.notebooks import Displayed, Tabular
from dunnage.planning.plan import FleetPlan, Plan, states_fleet_plan
from dunnage.publication import Key, key_path
from dunnage.publishing import mechanism_of
from dunnage.release import Release
from dunnage.release.kinds import COUNTS, ESTIMATES, same
from dunnage.settle import matched_records
from dunnage.tables.dataset import Dataset
from dunnage.text import percent, several

AUDIT_FILE = "audit.json"
PAGE_FILE = "audit.html"
SIGNOFF_FILE = "sign-off.html"
MAX_AUDIT_BYTES = 1 << 26
MAX_APPROVER = 120
_STATED = ("guarantee", "mechanism", "claim", "why", "holds", "assumptions", "in_clear", "warnings", "time")
_SAYS = {
    True: "Made from the release and the plan alone: anyone who has them can compute it. You may share it.",
    False: "Private: it compares the release with the true data. It is for the owner only; do not share it.",
}
AS_STATED = PlainSerializer(lambda part: None if part is None else part.plain())
SLOTS = "slots"  # Stands for a release of slots, likewise
NOISE = "noise"  # Stands for a noisy release where a release of classes has a statistic

Place = Release | str | os.PathLike[str]
Other = tuple[Place, Dataset] | tuple[Place, Dataset, Key | None]
AnyPlan = Plan | FleetPlan


# What is written


class Approval(Model):
    """Who approved a release, and when."""

    name: str
    time: str


class ComparedPolicy(Model):
    """The policy that the data were read under, and where it differs from the release."""

    digest: str
    differs: Listed[str]


class ComparedPlan(Model):
    """The result of the plan that was audited."""

    minimises: str
    objective: int | float
    model: str


class ReleaseStatement(Model):
    """What a release promises, as its certificate states it, and what it was compared with: public facts to sign."""

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
        """Leave out what the certificate does not state."""
        return {name: value for name, value in write(self).items() if name in self.model_fields_set}

    @classmethod
    def of(cls, draft: Draft) -> ReleaseStatement:
        """Gather facts of release, policy and plan; none depends on the data beyond what was released."""
        certificate = draft.release.certificate
        compared = draft.packing if draft.shuttles is None else draft.shuttles
        policy = plan = None
        if draft.data is not None:
            differs = tuple(other_parameters(draft.release, draft.data))
            policy = ComparedPolicy(digest=draft.data.policy.digest(), differs=differs)
        elif draft.fleet is not None:
            policy = ComparedPolicy(digest=draft.fleet.policy_digest, differs=())
        if compared is not None:
            kind = compared.minimises if isinstance(compared, Plan) else "shuttles"
            model = compared.model.name if compared.model is not None else ""
            plan = ComparedPlan(minimises=kind, objective=compared.objective, model=model)
        return cls(
            **{name: getattr(certificate, name) for name in _STATED if name in certificate.model_fields_set},
            basis=str(certificate.basis),
            meaning=certificate.meaning,
            composition=certificate.composition,
            signed=certificate.signature is not None,
            policy=policy,
            plan=plan,
        )


class Audit(Displayed, Tabular, Model):
    """Findings about one release. Private unless ``external``; its ``repr`` shows no figure."""

    format: Literal[1] = 1
    kind: Literal["audit"] = "audit"
    dataset: str  # dataset, period: what was released
    period: str | None
    release: str  # digest of its certificate
    protects: str  # what one record stands for
    statistic: str  # what the release states about a class, or `noise`, `counts`, `estimates`
    external: bool  # whether it was made without the data, so that you may share it
    says: str = Field(default_factory=lambda fields: _SAYS[fields["external"]])  # who may see it
    # what to know before any figure: that most slots had no reading, for example
    cautions: Annotated[Listed[str], Field(exclude_if=lambda texts: not texts)] = ()
    findings: Listed[Finding]  # the findings, by topic
    # the records most at risk, the worst first, each with its `source_row` (as in the key). Records have `rows` that
    # could be them, `record_linkage`, and `attribute_linkage` by sensitive column. Trips have `suspicion`, `alike` and
    # `released`; riders `guess`, `trips` and `types`; vehicles `stays` and `found_if_it_stays`
    at_risk: Listed[AtRisk]
    risk_says: str = Field(default="", alias="at_risk_says")  # what that list means, or why nobody is on it
    notes: Listed[str]  # what could not be computed, and why
    # what the release promises, and the policy it was compared with, for the sign-off: only public facts
    statement: ReleaseStatement = ReleaseStatement()
    approved: Approval | None = None  # who approved it, and when: `name`, `time`; None if nobody has yet
    # whether the release may leave under the limits of the house; None without such limits
    clearance: Clearance | None = None
    first_row: Literal[1] = 1  # the number of the first row below the header in `source_row`
    seconds: float  # time taken
    software: Software = Software(dunnage=__version__)  # version of Dunnage that made it

    def __repr__(self) -> str:
        return f"Audit({self.dataset!r}, {len(self.findings)} findings, {'external' if self.external else 'private'})"

    __str__ = __repr__

    def finding(self, name: str) -> Finding:
        """Return a finding by its name; a :class:`ParameterError` lists all names if there is none."""
        for item in self.findings:
            if item.name == name:
                return item
        names = ", ".join(item.name for item in self.findings)
        raise ParameterError(f"the audit has no finding {name!r}. It has: {names}.")

    def to_arrow(self) -> pa.Table:
        """Give the findings as an Arrow table, the figures of each in one line."""
        names = ("name", "value", "baseline", "unit", "topic", "risk", "severity", "private", "sentence", "remedy")
        columns = {name: [getattr(item, name) for item in self.findings] for name in names}
        ends = {end: [item.interval[at] for item in self.findings] for at, end in enumerate(("lower", "upper"))}
        numbers = {name: pa.array(columns[name], pa.float64()) for name in ("value", "baseline", "severity")}
        return pa.table({**columns, **numbers, **{end: pa.array(ends[end], pa.float64()) for end in ends}})

    def to_dict(self) -> dict[str, Any]:
        """Give the audit as plain data."""
        return self.model_dump(mode="json", by_alias=True)

    @property
    def risks(self) -> list[Finding]:
        """The findings about risks, the worst of each of the three risks first, then the worst."""
        return by_severity(self.findings)

    @property
    def num_leading(self) -> int:
        """How many of the risks matter most: at most one for each of the three."""
        return len({item.risk for item in self.risks if item.severity})

    def summary(self, *, every: bool = False) -> str:
        """Describe the audit for a person: verdict, main risks, what privacy cost; and ``every`` finding if wanted."""
        lines = [f"Audit of {self.dataset}" + (f", {self.period}" if self.period else ""), self.says, ""]
        lines += [part for text in self.cautions for part in (f"CAUTION: {text}", "")]
        if self.clearance is not None:
            lines += [self.clearance.text(), ""]
        leading, others = self.risks[: self.num_leading], self.risks[self.num_leading :]
        if leading:
            lines.append("What matters most (risk: 0 % = no better than without the release, 100 % = certain)")
        for item in leading:
            lines.append(f"  {item.risk:<12}  {percent(item.severity or 0.0):>6}  {item.name}: {item.sentence}")
            lines += [f"  {'':<20}  Remedy: {item.remedy}"] if item.remedy else []
        lines += ["", *self._lines([item for item in self.findings if item.risk is None])]
        if every and others:
            lines += ["", "Other risks, worst first", *self._lines(others)]
        elif others:
            lines += ["", f"And {several(len(others), 'other finding')} about risks: see {PAGE_FILE}, or add --all."]
        return "\n".join([*lines, *(["", *self.notes] if self.notes else [])])

    @staticmethod
    def _lines(findings: Sequence[Finding]) -> list[str]:
        """Describe findings: each with its baseline, then its sentence."""
        lines, width = [], max((len(item.name) for item in findings), default=0)
        for item in findings:
            low, high = item.interval
            between = f" ({item.text(low)} to {item.text(high)})" if low < high else ""
            lines.append(f"{item.name:<{width}}  {item.text(item.value)}{between}, baseline {item.text(item.baseline)}")
            lines.append(f"{'':<{width}}  {item.sentence}")
        return lines

    def write(self, folder: str | os.PathLike[str], *, page: str = "", sign_off: str = "", force: bool = False) -> Path:
        """Write ``audit.json`` and, if given, its pages; only their owner can read them unless it is external."""
        pages, private = (PAGE_FILE, SIGNOFF_FILE), not self.external
        with new_folder(folder, marker=AUDIT_FILE, force=force, private=private, may_hold=pages) as work:
            for name, text in ((AUDIT_FILE, to_text(self)), (PAGE_FILE, page), (SIGNOFF_FILE, sign_off)):
                if text:
                    (work / name).write_text(text, encoding="utf-8")
        return Path(folder)

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> Audit:
        """Read an audit folder; an :class:`InputError` says what is wrong."""
        path, what = Path(folder) / AUDIT_FILE, "an audit folder"
        audit = read(path, cls, what=what, remedy="Make it again.", max_bytes=MAX_AUDIT_BYTES)
        if "first_row" in audit.model_fields_set:
            return audit
        shifted = [item.model_copy(update={"source_row": item.source_row + 1}) for item in audit.at_risk]  # 0.1.0
        return audit.model_copy(update={"at_risk": tuple(shifted)})


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
    house: House | None = None,
    exception: str | None = None,
    seconds: float = plans.DEFAULT_SECONDS,
    progress: Progress | None = None,
) -> Audit:
    """Attack a release of classes, noisy rows, counts or estimates, and score it against the truth.

    The audit is private unless it is external.

    Parameters
    ----------
    release
        The release, or its folder; the key beside a folder is read with it.
    data
        The rows that were published, or for estimates the :class:`~dunnage.auditing.carriers.Fleet` that reported. An
        external audit does not need them, and does not use them.
    plan
        A plan made on the release, of packages or of shuttles, or its folder.
    key
        Which row is which record. Needed to apply a packing plan; without it records are matched to classes by value.
    city, shuttle_hour
        For a plan of shuttles: the city it was sized in, and what an hour of a shuttle costs, in any currency.
    population
        Everyone the records may come from, under the same policy: for the journalist's risk.
    also
        Other releases of the same records: ``(release, data)`` or ``(release, data, key)`` each.
    tolerance
        Also attack with values that are known only to within this share of themselves on either side.
    external
        Compute only what anyone who has the release and the plan can compute.
    approved_by
        Name and role of the person who approves the release, for the sign-off.
    house
        The limits of your organisation; by default those of the ``house.toml`` nearest to the policy of the data.
    exception
        Who granted an exception to a limit that is exceeded, and why.
    seconds
        Time limit for the plan on the true weights.
    progress
        Called with a line as each attack begins.

    Raises
    ------
    UserError
        If the release has neither classes nor noisy rows, counts or estimates, or if release, data, key, plan and city
        do not belong together.
    """
    start = time.monotonic()
    if not external and data is None:
        raise ParameterError("an audit compares with the true data. Got none. Give the data, or make it external.")
    if tolerance is not None and not 0 < tolerance < 1:
        raise ParameterError(f"tolerance must be between 0 and 1, a share of the value. Got {tolerance}.")
    approved = approval(approved_by)
    allowed = ((release, Release | str | os.PathLike), (plan, Plan | FleetPlan | str | os.PathLike | None))
    for one, kind in (*allowed, (key, Key | None)):
        check_kind(one, kind, "audit takes a release and the data, and perhaps key= a Key and plan= a plan")
    document, key = opened(release, key, with_key=not external)
    of_devices, given = document.kind == ESTIMATES, None if external else data
    if given is not None and not isinstance(given, Fleet if of_devices else Dataset):
        what = "devices, so give the Fleet that reported" if of_devices else "an owner's rows, so give those rows"
        raise ParameterError(f"the release comes from {what}. Got {type(given).__name__}.")
    if isinstance(given, Dataset) and document.kind != COUNTS:  # which have other attributes
        refuse_other_policy(document, given)
    planned = plan_of(plan, document, external=external)
    if isinstance(planned, FleetPlan) and city is None and not external:
        raise ParameterError("the audit of a plan of shuttles needs the city. Got none. Give --city CITY, as for size.")
    draft = Draft(
        release=document,
        data=given if isinstance(given, Dataset) else None,
        fleet=given if isinstance(given, Fleet) else None,
        packing=planned if isinstance(planned, Plan) else None,
        shuttles=planned if isinstance(planned, FleetPlan) else None,
        city=city,
        shuttle_hour=shuttle_hour,
        key=key,
        population=population,
        also=also,
        tolerance=tolerance,
        seconds=seconds,
        tell=progress or (lambda line: None),
    )
    draft.attack()
    certificate = document.certificate
    if house is None and isinstance(given, Dataset) and given.policy.path is not None:
        house = House.find(given.policy.path.parent)
    clearance = None
    if house is not None:
        linkage = draft.packing.truck_linkage if draft.packing is not None else None
        plan_figures = (
            []
            if draft.packing is None
            else house.of_linkage(linkage.mean if linkage else None, certificate.guarantee.protects)
        )
        figures = [*house.of_certificate(certificate), *plan_figures, *house.of_risks(worst_risks(draft.findings))]
        clearance = house.clear([*house.of_statement(certificate), *figures], exception)
    return Audit(
        dataset=certificate.dataset,
        period=certificate.period,
        release=certificate.digest,
        protects=certificate.guarantee.protects,
        statistic=draft.statistic,
        cautions=tuple(draft.cautions),
        findings=tuple(sorted(draft.findings, key=lambda item: findings.TOPICS.index(item.topic))),
        at_risk=tuple(draft.at_risk),
        notes=tuple(draft.notes),
        external=draft.external,
        seconds=round(time.monotonic() - start, 3),
        at_risk_says=draft.risk_says,
        statement=ReleaseStatement.of(draft),
        approved=approved,
        clearance=clearance,
    )


def approval(approved_by: str | None, clock: datetime | None = None) -> Approval | None:
    if approved_by is None:
        return None
    name = approved_by.strip()
    if not name or len(name) > MAX_APPROVER or not name.isprintable():
        raise ParameterError(
            f"the approver's name must have 1 to {MAX_APPROVER} printable characters. For example: "
            '--approved-by "Ada Example, data protection officer".'
        )
    return Approval(name=name, time=(clock or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ"))


def opened(release: Place, key: Key | None, *, with_key: bool = True) -> tuple[Release, Key | None]:
    """Read a release folder, and the key beside it if there is one."""
    if isinstance(release, Release):
        return release, key
    beside = key_path(release)
    return Release.read(release), Key.read(beside) if with_key and key is None and beside.is_file() else key


def plan_of(plan: AnyPlan | str | os.PathLike[str] | None, release: Release, *, external: bool) -> AnyPlan | None:
    """Read a plan, and check that it fits the release: shuttles go with counts of trips, packages with rows."""
    if plan is None:
        return None
    if not isinstance(plan, Plan | FleetPlan):
        path = Path(plan)
        of_shuttles = path.exists() and states_fleet_plan(path)
        if not of_shuttles and not path.is_dir():
            remedy = "Give the folder that pack or size wrote, or a CSV file with the columns zone,shuttles."
            raise ParameterError(f"{os.fspath(path)} is not a plan folder. {remedy}")
        plan = FleetPlan.read(path) if of_shuttles else Plan.read(path)
    if release.kind == ESTIMATES:
        raise ParameterError("a release of estimates from devices has no plan. Got a plan. Leave --plan out.")
    if isinstance(plan, FleetPlan) != (release.kind == COUNTS):
        wanted = "shuttles, made by size" if release.kind == COUNTS else "packages, made by pack"
        raise ParameterError(f"this release needs a plan of {wanted}. Got another kind. Give the plan made on it.")
    if plan.release != release.certificate.digest and (plan.release or not plan.external):
        raise ReleaseError("the plan was made on another release. Give that release, or plan on this one.")
    if external and isinstance(plan, Plan) and plan.private:
        raise ParameterError("the plan was made on true weights, so it contains private values. Leave --plan out.")
    return plan


# What is audited and with what, and which attacks and measures fit a release


@dataclass(kw_only=True, eq=False, repr=False)
class Draft:
    """What is audited, and with what, as for :func:`audit`; and the audit so far. No data for an external audit."""

    release: Release
    data: Dataset | None  # data, fleet: the true rows, or the vehicles that reported
    fleet: Fleet | None
    packing: Plan | None  # packing, shuttles: a plan of packages, or of shuttles
    shuttles: FleetPlan | None
    city: City | None
    shuttle_hour: float | None
    key: Key | None
    population: Dataset | None
    also: Sequence[Other]
    tolerance: float | None
    seconds: float
    tell: Progress
    statistic: str = NOISE  # What the release states about a class, or `noise`, `counts`, `estimates`
    findings: list[Finding] = field(default_factory=list)
    at_risk: Sequence[AtRisk] = ()
    risk_says: str = ""  # What that means, or why nobody is at risk
    notes: list[str] = field(default_factory=list)  # What could not be computed
    cautions: Sequence[str] = ()  # What to know before any figure

    @property
    def external(self) -> bool:
        return self.data is None and self.fleet is None

    def attack(self) -> None:
        if self.release.kind == ESTIMATES:
            return self._add_estimates()
        if self.release.kind == COUNTS:
            return self._add_counts()
        if self.data is not None:
            self.data.require_rows()
        if self.release.certificate.rows.slots is not None:
            return self._add_slots()
        if "class_id" in self.release.data.column_names:
            return self._add_classes(ClassesView.of(self.release))
        self._add_noisy()
        if self.data is not None:
            self._add_lacks(NOISE)
            self._add_plan(self.data)
        return None

    def add(self, figures: Iterable[KeyFigure], notes: Iterable[str] = ()) -> None:
        self.findings += written(figures, self.release.certificate.guarantee.protects)
        self.notes += notes

    def _add_lacks(self, kind: str) -> None:
        """Note the questions that do not apply to a release without classes, or that cannot be answered."""
        self.statistic = kind
        wanted = {
            "truth": self.external,
            "tolerance": self.tolerance is not None,
            "population": self.population is not None,
            "also": bool(self.also),
        }
        self.notes += [words(f"{kind}: {what}") for what, is_wanted in wanted.items() if is_wanted]

    def _add_estimates(self) -> None:
        view = EstimatesView.of(self.release)
        outside, notes = carriers.view_figures(view.task, self.tell)
        self.cautions = self.release.owner.cautions(self.release)
        self.add(outside, notes)
        if self.fleet is not None:
            truth = EstimatesTruth.of(view, self.fleet)
            public, self.findings = self.findings, []
            self.add(*carriers.truth_figures(truth, self.tell))
            self.at_risk, self.risk_says = carriers.at_risk(truth)
            names = {item.name for item in self.findings}  # someone who knows the fleet guesses numbers better
            self.findings = [item for item in public if item.name not in names] + self.findings
        self._add_lacks(ESTIMATES)

    def _add_counts(self) -> None:
        view, data = CountsView.of(self.release), self.data
        self.add(*counts.view_figures(view, self.tell))
        noise = [item for item in self.findings if item.topic == "utility"]
        self.findings = [item for item in self.findings if item.topic != "utility"]
        if data is not None:
            refuse_other_universe(view, data)
            # Say where the policy of the data would release other counts; the audit goes by the release.
            differ = other_parameters(self.release, data)
            bounds = (self.release.certificate.counts.contribution, data.schema.contribution)
            stated, read = (None if bound is None else (bound.max, bound.per) for bound in bounds)
            differ += ["contribution"] if stated != read else []
            differ += ["protects"] if view.protects != data.schema.protects else []
            self.notes += [words("policy differs", names=", ".join(differ))] if differ else []
            truth = CountsTruth.of(view, data, self.key)
            if self.shuttles is not None and self.city is not None:
                parts = (self.shuttles, data, self.release, self.city, self.key, self.shuttle_hour, self.tell)
                self.add(*plans.fleet_figures(*parts))
            self.add(*counts.truth_figures(truth, self.tell))
            self.at_risk, self.risk_says = counts.at_risk(truth)
        self.findings += noise  # errors against the truth say more than the noise that was added, so they come first
        if self.external and self.shuttles is not None:
            self.notes.append(words("fleet planned", num=self.shuttles.objective))
        self._add_lacks(COUNTS)
        if not view.universe.of_trips:
            self._say_of_records(view.protects)

    def _say_of_records(self, unit: str) -> None:
        """Say of records what the table of findings says of trips."""
        self.statistic = "categories"
        for at, item in enumerate(self.findings):  # names stay: they are the same for every table
            texts = {name: counts.in_units(getattr(item, name), unit) for name in ("sentence", "unit", "remedy")}
            self.findings[at] = item.model_copy(update=texts)
        self.notes = [counts.in_units(note, unit) for note in self.notes]
        self.risk_says = counts.in_units(self.risk_says, unit)

    def _add_classes(self, view: ClassesView) -> None:
        data, key, self.statistic = self.data, self.key, view.statistic
        if len(view.sizes):
            self.add(classes.view_figures(view, self.tell))
            self.add(plans.truck_figures(self.release, self.packing))
        else:
            self.notes.append(words("no class"))
        if view.clustered:
            self.add(rides.view_figures(view))
        if view.sampled:
            self.add(classes.sample_figures(view))
        if data is not None and len(view.sizes):
            truth = ClassesTruth.of(view, data, key)
            figures, self.at_risk = classes.truth_figures(truth, self.tolerance, self.tell)
            self.risk_says = words("rows at risk")
            self.add(figures, [] if truth.certain else [words("no key for classes")])
            if self.population is not None:
                self.findings = [item for item in self.findings if item.name != "journalist risk"]
                self.add(classes.population_figures(truth, self.population))
            if view.clustered:
                self.add(*rides.truth_figures(truth, self.tell))
            for number, (place, rows, *keys) in enumerate(self.also, 1):
                self.tell("comparing with another release")
                other, its_key = opened(place, keys[0] if keys else None)
                refuse_other_policy(other, rows)
                other_truth = ClassesTruth.of(ClassesView.of(other), rows, its_key)
                self.add(*classes.correspondence_figures(truth, other_truth, number))
            self._add_plan(data)
        elif data is not None:
            self.risk_says = words("no class")
        if data is not None and view.sampled:
            self.tell("taking the sample again")
            Knowledge.of_records(view, data)  # refuses other data; a release without rows allows no further check
            if key is not None and not key.belongs_to(data):
                raise ReleaseError(classes.OTHER_KEY_ROWS)
            self.add(classes.sampled_again(view, data, key))
        if self.release.certificate.rows.noise is not None:
            self._add_noisy()

    def _add_slots(self) -> None:
        unit = self.release.certificate.guarantee.protects
        for row in self.release.certificate.meaning.odds:  # what the certificate states for a suspicion of 50 %
            if row.before == 0.5 and row.at_most is not None:
                self.add([findings.figure("membership bound", row.at_most, 0.5, odds=row.sentence, record=unit)])
        if len(self.release):
            self.add(plans.truck_figures(self.release, self.packing))
        if self.data is not None and self.key is not None:
            self.add(_slot_figures(self.release, self.data, self.key))
        if self.data is not None:
            self.notes += [] if self.key is not None else [words("no key for slots")]
            self.risk_says = words("nobody: slots")
            if len(self.release):
                self._add_plan(self.data)
        self._add_lacks(SLOTS)

    def _add_noisy(self) -> None:
        view = NoisyView.of(self.release)
        self.add(noisy.view_figures(view, self.packing, self.tell), [words("no law")] if view.rows is None else [])
        if self.data is not None:
            truth = NoisyTruth.of(view, self.data, self.key)
            figures, at_risk, notes = noisy.truth_figures(truth, self.packing, self.tell)
            self.add(figures, notes)
            self.at_risk = self.at_risk or at_risk
            self.risk_says = self.risk_says or words("rows at risk" if at_risk else "no row known")

    def _add_plan(self, data: Dataset) -> None:
        if self.packing is not None:
            self.add(*plans.plan_figures(self.release, data, self.key, self.packing, self.seconds, self.tell))


# Whether data were read as they were published: under the same policy, city and period. Messages name public facts.


def refuse_other_policy(release: Release, data: Dataset) -> None:
    """Refuse data read under a policy with other public facts than the release."""
    stated = {name: item.plain() for name, item in release.attributes.items()}
    described = data.schema.universe().describe() if release.kind == COUNTS else data.schema.describe()
    read = {str(item["name"]): dict(item) for item in described}
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


def refuse_other_universe(view: CountsView, data: Dataset) -> None:
    """Refuse data read under a policy that counts trips of other types than the release, naming what differs."""
    stated = view.universe
    if not stated.of_trips and data.schema.trip is None:
        refuse_other_policy(view.release, data)
        return
    if data.schema.trip is None or not stated.of_trips:
        what = "does not define a trip" if stated.of_trips else "defines a trip"
        raise ReleaseError(f"the policy {what}. Give the policy that the counts were made under.")
    read = data.schema.universe(data.period)
    pairs = {"stops": (stated.stops, read.stops), "windows": (stated.windows, read.windows)}
    if stated.level != read.level:
        pairs["stops"] = ((stated.level,), (read.level,))
    if stated.arrives != read.arrives:
        pairs["destinations"] = (("known",), ("unknown",))
    differ = [name for name, (one, other) in pairs.items() if one != other]
    if stated.time is not None and read.time is not None and not differ:
        first, second = stated.time.describe(), read.time.describe()
        words = {"lower": "windows", "upper": "windows", "window_minutes": "windows", "day": "days"}
        differ += [words.get(fact, fact) for fact in first if first[fact] != second[fact]]
    known = stated.num_dates and read.num_dates  # an owner may add the number of dates later
    if stated.days != read.days or (known and stated.num_dates != read.num_dates):
        differ.append("days")
    if not differ:  # zones and modes differ if they split cells into another number of groups than is stated
        words = {"origin_zone": "zones", "destination_zone": "zones", "mode": "modes"}
        for item in view.noisy[1:]:
            columns = counts.columns_of(item.name)
            absent = [words[name] for name in columns if name not in read.columns]
            if absent or Feature.of(read, columns).size != item.groups:
                differ += absent or [words[name] for name in columns if name in words]
    if differ:
        raise ReleaseError(
            f"the release was made under another policy, or of another period: it has other "
            f"{', '.join(dict.fromkeys(differ))}. Give policy, city and period as they were published."
        )


def _slot_figures(release: Release, data: Dataset, key: Key) -> Iterator[KeyFigure]:
    """Compute how many records have a slot, how many slots are empty, and how much larger slots are than needed."""
    records = matched_records(data, release, key)
    filled = np.flatnonzero(records >= 0)
    share = len(filled) / max(len(data), 1)
    stated, num = release.certificate.rows.slots, len(release)
    assert stated is not None
    facts = {"num": len(data) - len(filled), "in_all": len(data), "risk": float(str(stated.risk))}
    yield findings.figure("records with a slot", share, 1.0, **facts)
    if num:
        yield findings.figure("slots filled", len(filled) / num, 1.0, num=num - len(filled), in_all=num)
    for name in release.bounded if len(filled) else ():
        known, truth = release.uncertain(name), data.numbers(name)[records[filled]]
        span = float(known.upper.max() - known.lower.min()) or 1.0
        spare = float((known.upper[filled] - truth).mean())
        yield findings.figure("spare size ({column})", spare / span, 1.0, column=name, spare=spare, unit=known.unit)


def other_parameters(release: Release, data: Dataset) -> list[str]:
    """Name the parameters in which the policy of the data differs from the release."""
    stated = release.certificate.mechanism
    try:
        read = dict(mechanism_of(data.policy).promise(data.schema).mechanism)
    except DunnageError:  # nothing can be published under this policy
        read = dict(data.policy.mechanism)
    differ = [name for name in {**stated, **read} if not same(stated.get(name), read.get(name))]
    return ["mechanism"] if "name" in differ else differ
