# SPDX-License-Identifier: Apache-2.0
"""Approvals: a dataset's rule may ask that somebody else agrees to a release before it is paid for.

The rule names people and their public keys. A proposal is signed by one of them and states digests of the policy, the
promise, the rows, the preview and the audit. Others approve or refuse it. A spend must match its proposal in every
digest, and uses it up.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from pydantic import ValidationError

from dunnage.errors import CheckFailed, LedgerError, ParameterError, Refusal
from dunnage.ledger.entries import ALTERED, Content, Entry, Kind
from dunnage.ledger.store import Session, readable
from dunnage.text import several

EXACT = ("policy", "promise", "period", "rows", "loss")  # what a spend and its proposal must agree on


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What a dataset asks for besides its budget."""

    people: Mapping[str, str]  # name -> Ed25519 public key, in hexadecimal
    approvals: int = 1  # of people other than the proposer
    signed_house: bool = False  # releases need a house.toml that one of these people has signed

    def __post_init__(self) -> None:
        if (
            self.approvals < 0
            or len(self.people) <= self.approvals
            or len(set(self.people.values())) < len(self.people)
        ):
            raise ParameterError(
                f"a rule of {several(self.approvals, 'approval')} needs at least {self.approvals + 1} people with keys "
                f"of their own: one proposes, the others approve. Got {len(set(self.people.values()))}."
            )

    def to_dict(self) -> Content:
        return {"people": dict(self.people), "approvals": self.approvals, "signed_house": self.signed_house}

    @classmethod
    def of(cls, terms: Content) -> Rule | None:
        return None if terms.get("rule") is None else cls(**terms["rule"])


def payload(kind: Kind, dataset: str, content: Content) -> Content:
    """Return what is signed: the content of an entry with its dataset."""
    return {"dataset": dataset, "kind": str(kind), **{name: content[name] for name in content if name != "signature"}}


def signer(entry: Entry, people: Mapping[str, str]) -> str:
    """Return which of these people signed the content of an entry."""
    from dunnage.model.envelopes import Envelope

    what = f"entry {entry.number} of dataset {entry.dataset!r}"
    try:
        envelope = Envelope.model_validate(entry.content.get("signature"))
        content, names = envelope.signers(entry.kind, people)
        if json.loads(content) != payload(Kind(entry.kind), entry.dataset, entry.content):
            raise CheckFailed("the signature is for other content.")
    except (ValidationError, ValueError, CheckFailed):
        raise LedgerError(f"{what} ({entry.kind}) has no valid signature. {ALTERED}") from None
    if not names:
        raise LedgerError(f"{what} ({entry.kind}) is signed by nobody whom the rule of the dataset names. {ALTERED}")
    return names[0]


def check_terms(before: Entry | None, after: Entry) -> None:
    """Check that new terms of a dataset with a rule are signed by somebody whom that rule names."""
    rule = None if before is None else Rule.of(before.content)
    if rule is None:
        return
    if after.content.get("signature") is None:
        raise Refusal(
            f"dataset {after.dataset!r} has a rule, so its terms change only with the signature of one of "
            f"{', '.join(rule.people)}. Sign with --sign KEY."
        )
    signer(after, rule.people)
    if after.content.get("after") != after.prev:  # signed terms of another time are not those of today
        raise LedgerError(f"entry {after.number} of dataset {after.dataset!r} was signed for another place. {ALTERED}")


def signed_terms(session: Session, dataset: str) -> Content:
    """Return the terms of a dataset, after checking that each change under a rule was signed under that rule."""
    terms = session.where("dataset = ? AND kind = 'budget'", dataset)
    with readable():
        for before, after in pairwise(terms):
            check_terms(before, after)
        return terms[-1].content if terms else {}


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """A proposal and what people said to it."""

    entry: Entry
    by: str
    approvals: Mapping[str, Entry]  # by name
    refusals: Mapping[str, Entry]
    spend: Entry | None

    def state(self, rule: Rule) -> str:
        """Say in words where the proposal stands; "approved" if it can be published."""
        if self.spend is not None:
            return f"used by spend {self.spend.id}"
        if self.refusals:
            return f"refused by {', '.join(self.refusals)}"
        missing = rule.approvals - len(self.approvals)
        return "approved" if missing <= 0 else f"waits for {several(missing, 'more approval')}"


def read_proposal(session: Session, entry: Entry, rule: Rule) -> Proposal:
    by = signer(entry, rule.people)
    decisions: dict[str, dict[str, Entry]] = {Kind.APPROVAL: {}, Kind.REFUSAL: {}}
    spend = None
    for other in session.where(
        f"dataset = ? AND kind <> 'budget' AND {session.field('about')} = ?", entry.dataset, entry.id
    ):
        if other.kind == Kind.SPEND:
            spend = other
        elif (name := signer(other, rule.people)) != by and other.content.get("hash") == entry.hash:
            decisions[other.kind][name] = other
    return Proposal(
        entry=entry, by=by, approvals=decisions[Kind.APPROVAL], refusals=decisions[Kind.REFUSAL], spend=spend
    )


def approved_proposal(session: Session, rule: Rule, dataset: str, content: Content) -> str | None:
    """Return the approved, unused proposal of exactly this spend; refuse if the rule asks for one and there is none."""
    if not rule.approvals:
        return None
    states = []
    clause = f"dataset = ? AND kind = 'proposal' AND {session.field('promise')} = ?"
    for entry in session.where(clause, dataset, content["promise"]):
        if all(entry.content.get(name) == content[name] for name in EXACT):
            try:
                state = read_proposal(session, entry, rule).state(rule)
            except LedgerError:  # anybody can write a proposal, not sign it
                state = "has no valid signature"
            if state == "approved":
                return entry.id
            states.append(f"proposal {entry.id} {state}")
    why = "; ".join(states) or "nobody has proposed exactly this: these rows, policy, period and parameters"
    raise Refusal(
        f"dataset {dataset!r} needs {several(rule.approvals, 'approval')} of a release before it is paid for: {why}. "
        "Use dunnage propose and dunnage approve."
    )
