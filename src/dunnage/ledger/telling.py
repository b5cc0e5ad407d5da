# SPDX-License-Identifier: Apache-2.0
"""What a ledger says in words, and whether it is whole: ``dunnage ledger show`` and ``dunnage ledger check``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dunnage.errors import CheckFailed, DunnageError
from dunnage.ledger.book import (
    EXACT,
    RELEASED,
    Ledger,
    Proposal,
    Rule,
    Spend,
    Statement,
    check_terms,
    read_proposal,
)
from dunnage.ledger.entries import Content, Entry, Kind, budget_from, running_loss
from dunnage.ledger.store import Witness, read_anchor, readable
from dunnage.model.certificate import Certificate
from dunnage.model.guarantees import Loss
from dunnage.text import one_line, several, time_text


@dataclass(frozen=True, kw_only=True)
class Told:
    """Everything about one dataset of a ledger, for its owner."""

    statement: Statement
    rule: Rule | None
    spends: Mapping[str, str]  # id -> what became of it, in words
    proposals: Mapping[str, str]  # id -> where it stands, in words
    periods: Mapping[str, tuple[Loss, Loss]]  # spent on it, and left, if no record is in two periods
    years: Mapping[str, tuple[Loss, Loss]]
    entries: Sequence[Entry]

    def to_dict(self) -> dict[str, object]:
        def amounts(parts: Mapping[str, tuple[Loss, Loss]]) -> dict[str, dict[str, str]]:
            return {name: {"spent": str(spent), "left": str(left)} for name, (spent, left) in parts.items()}

        head = self.entries[-1] if self.entries else None
        return {
            **self.statement.to_dict(),
            "rule": None if self.rule is None else self.rule.to_dict(),
            "outcomes": dict(self.spends),
            "proposals": dict(self.proposals),
            "periods": amounts(self.periods),
            "years": amounts(self.years),
            "head": None if head is None else {"number": head.number, "hash": head.hash},
        }

    def text(self) -> str:
        statement = self.statement
        lines = [f"dataset {statement.dataset}", f"  budget    {statement.budget or 'none'}"]
        if self.rule is not None:
            house = ", and a house.toml that one of them has signed" if self.rule.signed_house else ""
            needs = f"{several(self.rule.approvals, 'approval')} before each release"
            lines.append(f"  rule      {needs}, by {', '.join(self.rule.people)}{house}")
        lines.append(f"  spent     {statement.total} over all periods ({several(len(statement.spends), 'spend')})")
        lines += [f"  left      {statement.left_text()}"] if statement.budget is not None else []
        for word, parts in (("period", self.periods), ("year", self.years)):
            for name, (spent, left) in parts.items():
                rest = f"; {left} left, if no record is in two {word}s" if statement.budget is not None else ""
                lines.append(f"  {word:<9} {name}: {spent} spent{rest}")
        head = f"; head {self.entries[-1].hash}" if self.entries else ""
        lines.append(f"  entries   {len(self.entries)}, a whole chain{head}")
        lines += [f"  {entry.number:>4}  {time_text(entry.at)}  {self._sentence(entry)}" for entry in self.entries]
        return "\n".join(map(one_line, lines))

    def _sentence(self, entry: Entry) -> str:
        content, who = entry.content, entry.who
        note = f" ({content['note']})" if content.get("note") else ""
        if entry.kind == Kind.BUDGET:
            terms = budget_from(content["budget"]) if content["budget"] else "none"
            rule = Rule.of(content)
            asks = f", {several(rule.approvals, 'approval')}" if rule is not None else ""
            return f"{who} set the terms: budget {terms}{asks}{note}"
        if entry.kind == Kind.SPEND:
            loss = Spend.of(entry).loss(self.statement.neighbours)
            period = f" on period {content['period']}" if content["period"] is not None else ""
            return f"{who} spent {loss}{period} as {entry.id}{note}: {self.spends[entry.id]}"
        if entry.kind == Kind.PROPOSAL:
            return f"{who} proposed {entry.id}: {self.proposals.get(entry.id, 'no rule asks for it any more')}"
        if entry.kind == Kind.OUTCOME:
            return f"spend {content.get('about')} was {content.get('state')}"
        return f"{who} gave {entry.kind} of {content.get('about')}{note}"


def told(ledger: Ledger, dataset: str) -> Told:
    with readable():
        return _told(ledger, dataset)


def _told(ledger: Ledger, dataset: str) -> Told:
    entries, statement, rule = ledger.history(dataset), ledger.statement(dataset), ledger.rule(dataset)
    outcomes = {entry.content.get("about"): entry for entry in entries if entry.kind == Kind.OUTCOME}
    spends = {entry.id: _became(entry, outcomes.get(entry.id)) for entry in entries if entry.kind == Kind.SPEND}
    proposals = {}
    if rule is not None:
        with ledger._store.reading() as session:
            for entry in entries:
                if entry.kind == Kind.PROPOSAL:
                    try:
                        proposals[entry.id] = read_proposal(session, entry, rule).state(rule)
                    except DunnageError as error:
                        proposals[entry.id] = f"does not count: {error}"
    periods = dict.fromkeys(spend.period for spend in statement.spends if spend.period is not None)
    years = dict.fromkeys(sorted(map(_year, statement.spends)))
    return Told(
        statement=statement,
        rule=rule,
        spends=spends,
        proposals=proposals,
        periods={name: _part(statement, lambda spend, name=name: spend.period in (name, None)) for name in periods},
        years={name: _part(statement, lambda spend, name=name: _year(spend) == name) for name in years},
        entries=entries,
    )


def _year(spend: Spend) -> str:
    """Return the year of a spend: that of its period, or in which it was made."""
    match = re.match(r"\d{4}(?!\d)", spend.period or "")
    return match[0] if match else spend.at[:4]


def _part(statement: Statement, belongs: Any) -> tuple[Loss, Loss]:
    part = Statement(
        dataset=statement.dataset, budgets=statement.budgets, spends=tuple(filter(belongs, statement.spends))
    )
    return part.counted, part.left or Loss(None)


def _became(spend: Entry, outcome: Entry | None) -> str:
    out = spend.content.get("out")
    where = f" in {out['place']}" if out else ""
    if outcome is not None:
        if outcome.content.get("state") == RELEASED:
            return f"released{where} (certificate {str(outcome.content.get('certificate'))[:16]})"
        return "the run was stopped and nothing left the machine"
    if spend.content.get("format") == 1:
        return "an earlier version, which kept no outcomes, made this spend"
    if out is None:
        return "released in Python; where the release went is not known here"
    return (
        f"a run on {out['machine']} has spent, and is still writing{where} or was stopped: "
        f"dunnage publish ... -o {out['place']} --resume finishes it, or says that nothing left the machine"
    )


# Whether a ledger is whole


@dataclass
class LedgerCheck:
    """What was checked in a ledger, and what is wrong."""

    ledger: str
    passed: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.problems

    def to_dict(self) -> dict[str, object]:
        return {"ledger": self.ledger, "ok": self.ok, "checks": self.passed, "problems": self.problems}

    def summary(self) -> str:
        lines = [f"{'OK' if self.ok else 'FAILED'}: {self.ledger}", *(f"  ok       {text}" for text in self.passed)]
        return "\n".join(map(one_line, [*lines, *(f"  PROBLEM  {text}" for text in self.problems)]))


def check_ledger(ledger: Ledger, releases: Iterable[Path] = (), anchors: Iterable[Path] = ()) -> LedgerCheck:
    """Check chains, sums, budgets, signatures, and that nothing is missing that others have seen."""
    result, chains, released = LedgerCheck(ledger.name), dict[str, list[Entry]](), dict[str, object]()
    witness = Witness(ledger.name)
    with ledger._store.reading() as session:
        name = session.identity().id
        gone = [one for one in witness.datasets(name) if session.may_read(one)]  # unless it is there
    for dataset in sorted({*ledger.datasets(), *gone}):
        try:
            entries = chains[dataset] = ledger.history(dataset)
            over = list(_overspent(entries))
            _check_signed(ledger, entries)
            with ledger._store.reading() as session:
                witness.check(session, dataset)
        except DunnageError as error:
            result.problems.append(str(error))
            continue
        result.problems += over
        head = f"entry {entries[-1].number}, {entries[-1].hash[:16]}" if entries else "none"
        result.passed.append(f"dataset {dataset!r}: {several(len(entries), 'entry')}, head {head}")
    for path in anchors:
        known = read_anchor(path)
        lines = [line for line in known if line["ledger"] == name]
        if known and not lines:
            others = several(len({line["ledger"] for line in known}), "other ledger")
            result.problems.append(f"the anchor {path} knows {others} and not this one: was it replaced?")
            continue
        _check_seen(result, chains, lines, f"the anchor {path}")
    for folder in releases:
        try:
            certificate = Certificate.from_bytes((folder / "certificate.json").read_bytes())
        except (OSError, CheckFailed) as error:
            result.problems.append(f"{folder} is not a release: {getattr(error, 'strerror', None) or error}")
            continue
        spend = certificate.spend
        entries = chains.get(certificate.dataset, [])
        ids = {entry.id: entry for entry in entries if entry.kind == Kind.SPEND}
        digests = {one.content.get("certificate") for one in entries if one.content.get("about") == spend.id}
        first = released.setdefault(spend.id, certificate.digest)  # of the releases that are compared
        if spend.id not in ids:
            what = (
                f"{folder} was paid for by spend {spend.id} of dataset {certificate.dataset!r}, which the ledger lacks"
            )
            result.problems.append(f"{what}: it is an old copy, or its end was cut off")
        elif spend.head is not None and (ids[spend.id].number, ids[spend.id].hash) != (spend.number, spend.head):
            result.problems.append(f"{folder} saw another entry {spend.number} than the ledger has: it was altered")
        elif first != certificate.digest or not digests <= {certificate.digest}:
            what = f"{folder} was not paid for: spend {spend.id} paid for another release, or for none"
            result.problems.append(what)
        else:
            result.passed.append(f"{folder}: paid for by entry {ids[spend.id].number}")
    return result


def _check_seen(
    result: LedgerCheck, chains: Mapping[str, Sequence[Entry]], lines: Iterable[Content], where: str
) -> None:
    count = 0
    for line in lines:
        entries = chains.get(str(line["dataset"]), ())
        number = line["number"]
        if not isinstance(number, int) or number > len(entries) or entries[number - 1].hash != line["hash"]:
            result.problems.append(
                f"{where} saw an entry {number} of dataset {line['dataset']!r} that the ledger lacks"
            )
        count += 1
    result.passed.append(f"{where}: {several(count, 'line')} compared")


def _overspent(entries: Sequence[Entry]) -> Iterable[str]:
    budget = None
    for entry in entries:
        if entry.kind == Kind.BUDGET:
            budget = budget_from(entry.content["budget"]) if entry.content["budget"] else None
        elif entry.kind == Kind.SPEND and budget is not None and entry.content.get("format") != 1:
            counted = budget.spent([running_loss(entry.running, budget.neighbours)])
            bounded = counted.bounded and len(entry.running["units"]) < 2
            if not (counted.within(budget.limit) if bounded else entry.content.get("allow_unbounded")):
                yield f"entry {entry.number} of dataset {entry.dataset!r} spends more than the budget allowed"


def _check_signed(ledger: Ledger, entries: Sequence[Entry]) -> None:
    """Check that terms were signed and spends approved, wherever a rule asked for it."""
    terms: Entry | None = None
    used = set()
    for entry in entries:
        if entry.kind == Kind.BUDGET:
            check_terms(terms, entry)
            terms = entry
        rule = None if terms is None else Rule.of(terms.content)
        if entry.kind == Kind.SPEND and rule is not None and rule.approvals:
            proposal = _proposal(ledger, entries, entry, rule)
            if proposal is None or proposal.entry.id in used or proposal.refusals:
                raise CheckFailed(f"entry {entry.number} of dataset {entry.dataset!r} was not approved.")
            early = [one for one in proposal.approvals.values() if one.number < entry.number]
            if len(early) < rule.approvals:
                raise CheckFailed(f"entry {entry.number} of dataset {entry.dataset!r} was not approved before.")
            used.add(proposal.entry.id)


def _proposal(ledger: Ledger, entries: Sequence[Entry], spend: Entry, rule: Rule) -> Proposal | None:
    for entry in entries:
        if entry.id == spend.content.get("about") and entry.kind == Kind.PROPOSAL:
            if any(entry.content.get(name) != spend.content[name] for name in EXACT):
                return None
            with ledger._store.reading() as session:
                return read_proposal(session, entry, rule)
    return None
