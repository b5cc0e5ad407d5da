# SPDX-License-Identifier: Apache-2.0
"""The pages of the officer, who decides on proposals, and of the auditor, who reads. Neither sees a private row.

An officer's decision is an entry in the ledger, signed with the officer's own key; nobody decides on a proposal of
their own. Findings of audits are shown without the records they are about.
"""

from __future__ import annotations

import contextlib
import shlex
import tomllib
from dataclasses import dataclass
from typing import NamedTuple

from starlette.responses import Response

from dunnage.auditing.run import AUDIT_FILE, Audit
from dunnage.errors import DunnageError, LedgerError
from dunnage.ledger import Ledger, Rule
from dunnage.ledger.book import signer
from dunnage.ledger.entries import Entry, Kind
from dunnage.ledger.telling import Told, told
from dunnage.model import documents
from dunnage.model.certificate import load_public_key, meaning
from dunnage.model.guarantees import Neighbours, Promise
from dunnage.model.house import RISKS, Exceeded, House
from dunnage.model.policy import Policy
from dunnage.publishing import promise as promise_of
from dunnage.serving.planner import releases_of
from dunnage.serving.projects import SAFE, Project, policy_name
from dunnage.serving.studio import Routes, Visit
from dunnage.serving.web import AUDITOR, OFFICER, OWNER, HttpError
from dunnage.showing.loads import guarantee_words
from dunnage.text import percent, time_text

MAX_NOTE = 500
HIGH, MIDDLE = 0.5, 0.2  # what a release adds to a risk, for the colours of findings
_DEEDS = {"approve": True, "refuse": False}


@dataclass(frozen=True)
class Asked:
    """A proposal, and what the project has about it."""

    id: str
    state: str
    by: str  # who signed it
    entry: Entry
    policy: Policy | None  # the version of the policy that it is about; None if this project has no such version
    file: str

    @property
    def is_open(self) -> bool:
        return self.state.startswith("waits")

    @property
    def facts(self) -> dict[str, str]:
        content = self.entry.content
        return {name: str(content.get(name) or "") for name in ("period", "note", "exception")}

    @property
    def at(self) -> str:
        return time_text(self.entry.at)


class Compared(NamedTuple):
    """A promise beside the limits of a house."""

    headline: str
    may_leave: bool
    lines: list[tuple[str, object, Exceeded | None, bool]]  # limit, its value, how it is exceeded, if it was checked


class Line(NamedTuple):
    """A finding of an audit."""

    level: str
    share: str
    sentence: str
    remedy: str


def _dataset(project: Project) -> str:
    return str(tomllib.loads(project.policy_text()).get("dataset", ""))


def _book(visit: Visit, dataset: str) -> Told | None:
    try:
        with Ledger.open_existing(visit.studio.ledger) as book:
            return told(book, dataset) if dataset in book.datasets() else None
    except LedgerError:
        return None


def _policies(project: Project) -> dict[str, tuple[str, Policy]]:
    """Return every version of the policy by its digest."""
    found = {}
    for number in range(1, project.version + 1):
        path = project.folder / policy_name(number)
        if path.is_file():
            try:
                policy = Policy.read(path)
                found[policy.digest()] = policy_name(number), policy
            except DunnageError:
                continue
    return found


def _proposals(project: Project, book: Told | None) -> list[Asked]:
    """Return all proposals about the dataset of a project, the newest first."""
    if book is None:
        return []
    policies = _policies(project)
    made = []
    for entry in book.entries:
        if entry.kind == Kind.PROPOSAL:
            file, policy = policies.get(str(entry.content.get("policy_text")), ("", None))
            state, by = book.proposals.get(entry.id, "no rule asks for it any more"), entry.who
            with contextlib.suppress(LedgerError):  # of somebody whom the rule does not name any more
                by = signer(entry, {} if book.rule is None else book.rule.people)
            made.append(Asked(entry.id, state, by, entry, policy, file))
    return made[::-1]


def _limits(project: Project, promise: Promise, book: Told | None) -> Compared | None:
    """Compare a promise with the limits of the house; None if there are none."""
    house = House.find(project.folder / "policies")
    if house is None:
        return None
    neighbours = Neighbours(str(promise.guarantee.to_dict().get("neighbours", Neighbours.ADD_REMOVE)))
    month = [] if book is None else [
        (spend.guarantee, spend.loss(neighbours)) for spend in book.statement.spends
        if spend.at[:7] == max(entry.at for entry in book.entries)[:7]
    ]  # fmt: skip
    clearance = house.clear(house.of_promise(promise, month))
    limits = {name: value for name, value in house.limits.model_dump(mode="json").items() if value is not None}
    exceeded = {item.limit: item for item in clearance.exceeded}
    lines = [(name, value, exceeded.get(name), name in clearance.checked) for name, value in limits.items()]
    return Compared(clearance.headline, clearance.may_leave, lines)


def _audits(project: Project) -> list[tuple[str, Audit]]:
    """Return the audits of a project, the newest first."""
    folder, found = project.folder / "audits", []
    for path in sorted(folder.iterdir(), key=lambda one: one.stat().st_mtime_ns, reverse=True):
        if SAFE.fullmatch(path.name) and (path / AUDIT_FILE).is_file():
            try:
                found.append((path.name, documents.read(path / AUDIT_FILE, Audit, what="an audit")))
            except DunnageError:
                continue
    return found


def findings_of(visit: Visit, audit: Audit) -> list[tuple[str, list[Line]]]:
    """Return findings by the three risks of regulators, the worst first; nothing about single records.

    Figures that take the true data to compute are for officers alone.
    """
    groups = []
    for risk in RISKS:
        own = [item for item in audit.findings if item.risk == risk and (visit.may(OFFICER) or not item.private)]
        own.sort(key=lambda item: -(item.severity if item.severity is not None else -1.0))
        shares = ["" if item.severity is None else percent(item.severity) for item in own]
        lines = [Line(_level(item.severity), share, item.sentence, item.remedy)
                 for item, share in zip(own, shares, strict=True)]  # fmt: skip
        groups.append((risk, lines))
    return groups


def _level(severity: float | None) -> str:
    if severity is None:
        return "note"
    return "high" if severity >= HIGH else "middle" if severity >= MIDDLE else "low"


# --- decide ------------------------------------------------------------------------------------------------------


def _decisions(visit: Visit) -> Response:
    project = visit.project
    dataset = _dataset(project)
    book = _book(visit, dataset)
    people = {person.name: person.roles for person in visit.studio.door.people.values()}
    people |= {visit.person.name: visit.person.roles}
    deciders = sorted(name for name, roles in people.items() if roles & {OWNER, OFFICER})
    return visit.page(
        "decisions", title="Decide", project=project, dataset=dataset, book=book, proposals=_proposals(project, book),
        rule=book.rule if book else None, deciders=deciders, house=House.find(project.folder / "policies"),
        command=f"dunnage ledger show {shlex.quote(visit.studio.ledger)}",
    )  # fmt: skip


def _asked(visit: Visit) -> tuple[Project, Told, Asked]:
    project = visit.project
    book = _book(visit, _dataset(project))
    asked = next((one for one in _proposals(project, book) if one.id == visit["proposal"]), None)
    if book is None or asked is None:
        raise HttpError(404, "no_proposal", "There is no such proposal.")
    return project, book, asked


def _decision(visit: Visit) -> Response:
    return _decision_page(visit, [], 200)


def _decision_page(visit: Visit, problems: list[str], status: int) -> Response:
    """Show what is asked to leave, against which limits, what it assumes, and what an audit found."""
    project, book, asked = _asked(visit)
    content: dict[str, object] = {"promise": None, "limits": None, "terms": []}
    if asked.policy is not None:
        stated = promise_of(asked.policy)
        columns = [(item.name, str(item.role), item.kind or "") for item in asked.policy.schema.attributes]
        content = {
            "promise": stated, "words": guarantee_words(stated.guarantee), "meaning": meaning(stated).sentences,
            "limits": _limits(project, stated, book), "columns": columns,
            "terms": [(item.name, item.says) for item in stated.assumptions],
        }  # fmt: skip
    audits = [(name, audit, findings_of(visit, audit)) for name, audit in _audits(project)[:3]]
    key = visit.studio.key_of(visit.person)
    line = ["dunnage", "approve", visit.studio.ledger, asked.id, "--sign", key.name, "--policy", asked.file]
    return visit.page(
        "decision", status, title="Decide on a proposal", project=project, asked=asked, book=book, audits=audits,
        problems=problems, sent=visit.form, ticked=visit.lists.get("assumption", []), may=visit.may(OFFICER),
        toml="" if asked.policy is None else (project.folder / asked.file).read_text(encoding="utf-8"),
        command=shlex.join(line), **content,
    )  # fmt: skip


def _decide(visit: Visit) -> Response:
    """Keep a decision in the ledger, signed: an approval only with every assumption ticked, a refusal with a reason."""
    _, _, asked = _asked(visit)
    form, problems = visit.form, []
    approve, note = _DEEDS.get(form.get("decision", "")), form.get("note", "").strip()[:MAX_NOTE]
    if approve is None:
        problems.append("Choose whether you approve or refuse.")
    if approve is False and not note:
        problems.append("Say why you refuse: the ledger keeps the reason.")
    if approve and asked.policy is None:
        problems.append("This project does not have the policy of the proposal, so you cannot have looked at it.")
    if approve and asked.policy is not None:
        names = {item.name for item in promise_of(asked.policy).assumptions}
        if open_ones := sorted(names - set(visit.lists.get("assumption", []))):
            problems.append(f"Tick every assumption that you accept, or refuse. Not ticked: {', '.join(open_ones)}.")
    if problems:
        return _decision_page(visit, problems, 422)
    facts = {"policy_text": asked.policy.digest()} if approve and asked.policy is not None else {}
    with Ledger(visit.studio.ledger) as book:
        key = visit.studio.key_of(visit.person)
        book.decide(asked.id, approve=bool(approve), key=key, note=note, facts=facts)
    return visit.go(visit.at("decisions", asked.id))


def _set_rule(visit: Visit) -> Response:
    """Set whose approval the releases of the dataset need."""
    project = visit.project
    dataset, names = _dataset(project), visit.lists.get("person", [])
    known = {person.name: person for person in (*visit.studio.door.people.values(), visit.person)}
    if not dataset:
        raise HttpError(409, "no_policy", "The project has no policy yet, so it has no dataset.")
    if not set(names) <= known.keys() or not visit.form.get("note", "").strip():
        raise HttpError(422, "rule", "Choose people of the studio, and say why the rule is set.")
    keys = {name: visit.studio.key_of(known[name]).with_suffix(".pub.pem") for name in names}
    rule = Rule(people={name: load_public_key(path).hex() for name, path in keys.items()}, approvals=1)
    with Ledger(visit.studio.ledger) as book:
        signs = visit.studio.key_of(visit.person) if book.rule(dataset) is not None else None
        book.set_rule(dataset, rule, note=visit.form["note"].strip()[:MAX_NOTE], sign=signs)
    return visit.go(visit.at("decisions"))


# --- read --------------------------------------------------------------------------------------------------------


def _records(visit: Visit) -> Response:
    """Show what the ledger says, certificates, and findings of audits: nothing about single records."""
    project = visit.project
    dataset = _dataset(project)
    book = _book(visit, dataset)
    audits = [(name, audit, findings_of(visit, audit)) for name, audit in _audits(project)]
    return visit.page(
        "records", title="Records", project=project, dataset=dataset, told=book.text() if book else "",
        releases=releases_of(project), audits=audits,
        command=f"dunnage ledger check {shlex.quote(visit.studio.ledger)}",
    )  # fmt: skip


_P = "/studio/projects/{project}"
ROUTES: Routes = {
    f"GET {_P}/decisions": ((OFFICER,), _decisions),
    f"POST {_P}/rule": ((OFFICER,), _set_rule),
    f"GET {_P}/decisions/{{proposal}}": ((OFFICER, AUDITOR), _decision),
    f"POST {_P}/decisions/{{proposal}}": ((OFFICER,), _decide),
    f"GET {_P}/records": ((AUDITOR, OFFICER), _records),
}
NAV = [(f"{_P}/decisions", "Decide"), (f"{_P}/records", "Records")]
