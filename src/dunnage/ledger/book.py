# SPDX-License-Identifier: Apache-2.0
"""The owner's append-only book of what was spent on each dataset, by whom, and what became of it.

A mechanism spends before it draws any noise. A spend is one transaction: it is refused or it stands. Two processes
cannot spend the same budget, and a crash can waste budget but never overspend it. Nothing is ever refunded, changed or
deleted.

Each spend keeps its true loss under both kinds of neighbours as exact text ("1/10", or null if no bound exists), so
that a ledger never has to be interpreted again. Losses add up over all periods. The smaller figure per period holds
only under the assumption "one period per protected record"; both are always shown.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn, Self

from pydantic import ValidationError

from dunnage.errors import BudgetError, CheckFailed, LedgerError, ParameterError, Refusal
from dunnage.exact import plain
from dunnage.ledger.entries import (
    ALTERED,
    NO_TOTALS,
    Content,
    Entry,
    Kind,
    budget_from,
    budget_table,
    check_chain,
    loss_from,
    loss_table,
    next_entry,
    running_loss,
)
from dunnage.ledger.store import (
    MEMORY,
    FileStore,
    Identity,
    MemoryStore,
    PostgresStore,
    Session,
    Store,
    Witness,
    readable,
    store_at,
    write_anchor,
)
from dunnage.model.guarantees import (
    NO_LOSS,
    ONE_PERIOD_PER_RECORD,
    UNBOUNDED,
    Accounting,
    Budget,
    KAnonymity,
    Loss,
    Neighbours,
    Promise,
    SpendPurpose,
)
from dunnage.model.guarantees import total as sum_of
from dunnage.model.periods import LABEL, LENGTHS, length_of
from dunnage.text import one_line, several, time_text

JSON_FORMAT = 1  # of to_dict
RELEASED, STOPPED = "released", "stopped"  # outcomes of a spend
_NONE = "none"
_log = logging.getLogger("dunnage")


def _loss_data(loss: Loss) -> dict[str, int | float | str] | str:
    return _NONE if loss.epsilon is None else {"epsilon": plain(loss.epsilon), "delta": plain(loss.delta)}


def _named(loss: Loss) -> str:
    return str(loss) if loss.bounded else _NONE


# The contents of a ledger


@dataclass(frozen=True, kw_only=True)
class Spend:
    id: str  # Random name of the spend; the certificate repeats it
    at: str  # Time in UTC
    who: str  # Who spent it
    dataset: str
    period: str | None
    policy_digest: str  # Of what the policy means; in ledgers of 0.1.0 of its text
    promise_digest: str
    guarantee: Mapping[str, object]  # What was promised
    basis: str  # How far it can be relied on
    loss_add_remove: Loss  # The true cost, under either kind of neighbours
    loss_replace_one: Loss
    note: str = ""  # The owner's words
    number: int = 0  # of its entry
    head: str = ""  # the hash of its entry: with the number it says which ledger the spend is in

    @classmethod
    def of(cls, entry: Entry) -> Spend:
        content = entry.content
        return cls(
            id=entry.id,
            at=entry.at,
            who=entry.who,
            dataset=entry.dataset,
            period=content["period"],
            policy_digest=content["policy"],
            promise_digest=content["promise"],
            guarantee={**content["guarantee"], "model": str(content["guarantee"]["model"])},
            basis=content["basis"],
            loss_add_remove=loss_from(content["loss"][str(Neighbours.ADD_REMOVE)]),
            loss_replace_one=loss_from(content["loss"][str(Neighbours.REPLACE_ONE)]),
            note=content["note"],
            number=entry.number,
            head=entry.hash,
        )

    def loss(self, neighbours: Neighbours) -> Loss:
        return self.loss_add_remove if neighbours is Neighbours.ADD_REMOVE else self.loss_replace_one

    def to_dict(self) -> dict[str, object]:
        values = {name: getattr(self, name) for name in ("id", "at", "who", "dataset", "period")}
        digests = {"policy_digest": self.policy_digest, "promise_digest": self.promise_digest}
        promised = {"guarantee": dict(self.guarantee), "basis": self.basis}
        losses = {str(kind): _loss_data(self.loss(kind)) for kind in Neighbours}
        return {**values, **digests, **promised, "loss": losses, "note": self.note}


@dataclass(frozen=True, kw_only=True)
class BudgetEntry:
    at: str
    who: str
    budget: Budget
    note: str

    def to_dict(self) -> dict[str, object]:
        return {"at": self.at, "who": self.who, **_budget_data(self.budget), "note": self.note}


def _budget_data(budget: Budget) -> dict[str, object]:
    terms = {"epsilon": plain(budget.epsilon), "delta": plain(budget.delta), "neighbours": str(budget.neighbours)}
    return {**terms, **({} if budget.accounting is Accounting.SUM else {"accounting": str(budget.accounting)})}


@dataclass(frozen=True, kw_only=True)
class Statement:
    dataset: str
    budgets: tuple[BudgetEntry, ...] = ()  # Oldest first
    spends: tuple[Spend, ...] = ()  # Oldest first

    @property
    def budget(self) -> Budget | None:
        return self.budgets[-1].budget if self.budgets else None

    @cached_property
    def neighbours(self) -> Neighbours:
        """The neighbours of all totals: the budget's, or add-remove, unless only replace-one bounds every spend."""
        return _neighbours(
            self.budget, {kind: sum_of(spend.loss(kind) for spend in self.spends) for kind in Neighbours}
        )

    @cached_property
    def units(self) -> tuple[str, ...]:
        """The units that the spends protect; losses of different units do not add up."""
        return _units(self.spends)

    @property
    def _losses(self) -> list[Loss]:
        return [spend.loss(self.neighbours) for spend in self.spends]

    @cached_property
    def total(self) -> Loss:
        """The sum of the losses of all spends and periods, without any assumption."""
        return UNBOUNDED if len(self.units) > 1 else sum_of(self._losses)

    @cached_property
    def counted(self) -> Loss:
        """What all spends amount to, as the budget counts them."""
        return self.total if self.budget is None or len(self.units) > 1 else self.budget.spent(self._losses)

    @cached_property
    def total_per_period(self) -> Loss:
        """The largest loss over single periods, under "one period per protected record"."""
        if len(self.units) > 1:
            return UNBOUNDED
        by_period: dict[str | None, Loss] = {}
        for spend in self.spends:
            by_period[spend.period] = by_period.get(spend.period, NO_LOSS) + spend.loss(self.neighbours)
        of_every_period = by_period.pop(None, NO_LOSS)  # about the records of every period: it counts in each
        losses = list(by_period.values())
        epsilons = [loss.epsilon for loss in losses if loss.epsilon is not None]
        if len(epsilons) < len(losses):
            return UNBOUNDED
        # The smallest loss that covers each of them: the larger epsilon and the larger delta.
        largest = Loss(max(epsilons, default=Fraction(0)), max((loss.delta for loss in losses), default=Fraction(0)))
        return of_every_period + largest

    @property
    def concentrated(self) -> bool:
        return self.budget is not None and self.budget.accounting is Accounting.CONCENTRATED

    @property
    def left(self) -> Loss | None:
        if self.budget is None or not self.counted.bounded:
            return None if self.budget is None else NO_LOSS
        return self.budget.left(self._losses)

    @property
    def overspent(self) -> bool:
        """Whether more was spent than the budget now allows, for example after it was lowered."""
        return self.budget is not None and not self.counted.within(self.budget.limit)

    def summary(self) -> str:
        scope = f"{self.neighbours} neighbours"
        if len(self.units) > 1:
            scope = f"the losses of one {' and one '.join(self.units)} do not add up: look at each spend"
        elif not self.total.bounded:
            scope = f"a release has no bound between {self.neighbours} neighbours"
        assumption = f'"{ONE_PERIOD_PER_RECORD.name}" ({ONE_PERIOD_PER_RECORD.says})'
        lines = [
            f"dataset: {self.dataset}",
            f"budget: {self.budget or _NONE}",
            f"total over all periods: {_named(self.total)} ({scope})",
            f"total per period: {_named(self.total_per_period)}, assuming {assumption}",
            *([f"concentrated: {self.counted}"] if self.concentrated and self.counted.bounded else []),
            *([f"left: {self.left_text()}"] if self.budget is not None else []),
            f"spends: {len(self.spends)}",
        ]
        for spend in self.spends:
            period = f"period {spend.period}" if spend.period is not None else "no period"
            promised = f"{spend.guarantee['model']}, {spend.basis}"
            losses = ", ".join(f"{kind} {_named(spend.loss(kind))}" for kind in Neighbours)
            note = f"; {spend.note}" if spend.note else ""
            lines.append(f"  {spend.at} {spend.who}: {period}; {promised}; {losses}; {spend.id}{note}")
        return "\n".join(map(one_line, lines))

    def left_text(self) -> str:
        if self.budget is None:
            return "no budget is set"
        if len(self.units) > 1:
            return f"nothing: releases protect one {' and one '.join(self.units)}, which do not add up"
        if not self.total.bounded:
            return "nothing: a release has no bound"
        if not self.counted.bounded:
            return "nothing: a release has a delta of its own, which concentrated accounting does not count"
        if self.overspent:
            return "nothing: the budget is below what was spent"
        if not self.spends:
            return str(self.left)
        num, length = self.budget.num_more(self._losses), length_of(self.spends[-1].period or "")
        more = several(num, "more release" if length == LABEL else f"more {length}")
        return f"{self.left} for one more release, or enough for {more} like the last one"

    def composed(self) -> dict[str, object]:
        return _composed(self.neighbours, self.total, self.total_per_period)

    def to_dict(self) -> dict[str, object]:
        return {
            "dataset": self.dataset,
            "budget": _budget_data(self.budget) if self.budget is not None else None,
            **self.composed(),
            **({"concentrated": _loss_data(self.counted)} if self.concentrated else {}),
            "left": _loss_data(self.left) if self.left is not None else None,
            "overspent": self.overspent,
            "budgets": [entry.to_dict() for entry in self.budgets],
            "spends": [spend.to_dict() for spend in self.spends],
        }


def _units(spends: Iterable[Spend]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(spend.guarantee.get("protects", "")) for spend in spends))


def _neighbours(budget: Budget | None, sums: Mapping[Neighbours, Loss]) -> Neighbours:
    if budget is not None:
        return budget.neighbours
    only_replaced = sums[Neighbours.REPLACE_ONE].bounded and not sums[Neighbours.ADD_REMOVE].bounded
    return Neighbours.REPLACE_ONE if only_replaced else Neighbours.ADD_REMOVE


def _composed(neighbours: Neighbours, total: Loss, per_period: Loss) -> dict[str, object]:
    return {
        "neighbours": str(neighbours),
        "total": _loss_data(total),
        "total_per_period": _loss_data(per_period),
        "total_per_period_assumes": ONE_PERIOD_PER_RECORD.name,
    }


# Approvals: a dataset's rule may ask that somebody else agrees to a release before it is paid for. The rule names
# people and their public keys. A proposal is signed by one of them and states digests of the policy, the promise, the
# rows, the preview and the audit. Others approve or refuse it. A spend must match its proposal in every digest, and
# uses it up.

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
    clause, terms = "dataset = ? AND kind = 'budget'", list[Entry]()  # the newest first
    entry = session.last(clause, dataset)
    while entry is not None:  # one by one: a database would go through all entries to list the few
        terms.append(entry)
        entry = session.last(f"{clause} AND number < ?", dataset, entry.number)
    with readable():
        for after, before in pairwise(terms):
            check_terms(before, after)
        return terms[0].content if terms else {}


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
    about = f"kind <> 'budget' AND {session.field('about')} = ?"
    clause = f"dataset = ? AND kind IN ('approval', 'refusal', 'spend') AND {about}"  # not what others propose about it
    for other in session.where(clause, entry.dataset, entry.id):
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


# Refusals


def _resolved(promise: Promise, purpose: SpendPurpose) -> str:
    """Return the digest of what a policy means, with defaults; that of its text if the meaning is not given."""
    if purpose.schema_digest is None:
        return purpose.policy_digest
    meaning = json.dumps([dict(promise.mechanism), purpose.schema_digest], sort_keys=True, allow_nan=False)
    return hashlib.sha256(meaning.encode()).hexdigest()


def _rows_of(purpose: SpendPurpose, key: bytes) -> dict[str, str] | None:
    """Return the digests of the rows, as they are and in any order, under the key of a ledger."""
    digests = purpose.row_digests(key) if purpose.row_digests is not None else None
    return None if digests is None else dict(zip(("as_is", "any_order"), digests, strict=True))


def _k_anonymous(session: Session, promise: Promise, purpose: SpendPurpose) -> list[Spend]:
    """Return earlier spends on k-anonymous releases that may be of the same records, if the promise is one too."""
    if not isinstance(promise.guarantee, KAnonymity):
        return []
    same = f"{session.field('guarantee', 'model')} = ? AND {session.field('period')} {session.same} ?"
    clause, values = f"kind = 'spend' AND dataset = ? AND {same}", (purpose.dataset, KAnonymity.model, purpose.period)
    with readable():
        return [Spend.of(entry) for entry in session.where(clause, *values)]


def _repeat(session: Session, promise: Promise, purpose: SpendPurpose) -> str:
    """Say that the same was spent on before in the same way, and what to do; otherwise nothing."""
    # The way is the same if columns, rules and every parameter of the mechanism are, or the text of the policy, which
    # ledgers of 0.1.0 have. Any two k-anonymous releases of the same records are alike in what they risk.
    # That it is a repeat never depends on rows; only the remedy does, which the owner alone sees.
    digests = (purpose.policy_digest, _resolved(promise, purpose))
    same = f"{session.field('policy')} IN (?, ?) AND {session.field('period')} {session.same} ?"
    clause = f"kind = 'spend' AND dataset = ? AND {same}"
    spends = session.where(clause, purpose.dataset, *digests, purpose.period, last=100, few=True)
    if not spends:
        if alike := _k_anonymous(session, promise, purpose):
            return (
                f"dataset {purpose.dataset!r} already has a k-anonymous release: spend {alike[-1].id} at "
                f"{alike[-1].at}. Together, two releases of the same records can single out a record that neither "
                "singles out alone. To release again all the same, pass --again (again=True)."
            )
        return ""
    with readable():
        own = [entry.content["rows"]["as_is"] for entry in spends if entry.content.get("rows")]
    rows = _rows_of(purpose, session.identity().key)
    is_same = rows is not None and rows["as_is"] in own
    other = rows is not None and not is_same and len(own) == len(spends)
    period = f"period {purpose.period!r}" if purpose.period is not None else "no period"
    which = ", for the same rows" if is_same else ", for other rows" if other else ""
    what = f"dataset {purpose.dataset!r}, {period}, was already spent on under this policy{which}: spend "
    what += f"{spends[0].id} at {spends[0].at}."
    again = (
        "If a run was interrupted, --resume (resume=True) finishes it, or says that nothing left the machine. "
        "Nothing is refunded. To spend again, pass --again (again=True)."
    )
    outcome = session.last(f"kind = 'outcome' AND {session.field('about')} = ?", spends[0].id)
    with readable():
        if outcome is not None and outcome.content.get("state") == STOPPED:
            again = (
                "That run was stopped, and nothing left the machine. Nothing is refunded. To spend again, pass --again."
            )
    if purpose.period is None:
        period = (
            'give each file a period: write [period] and length = "week" (or day, month, label) in the policy, and '
        )
        period += f"publish with --period {LENGTHS['week']}"
    else:
        period = "name its own period with --period"
    if is_same:
        return f"{what} {again}"
    if other:
        replaces = "If it replaces the earlier rows, pass --again (again=True): that spends again and refunds nothing."
        return f"{what} If this is the next file, {period}. {replaces}"
    return f"{what} {again} If this is the next file, {period}."


def _recognised(session: Session, dataset: str, rows: Mapping[str, str] | None) -> str:
    """Say that the same rows, in any order, were spent on under another name; otherwise nothing."""
    others = [] if rows is None else [item for item in session.recognised(rows["any_order"]) if item[0] != dataset]
    if not others:
        return ""
    name, at = others[-1]
    return (
        f"these rows were published before, as dataset {name!r} at {time_text(at)}. What releases of the same rows "
        f"reveal adds up, but a budget counts one dataset alone. Write dataset = {json.dumps(name)} in the policy, or "
        'say why both may spend on them: --known-rows "REASON" (known_rows=).'
    )


def _overspend(
    budget: Budget, spent: Loss, cost: Loss, then: Loss, dataset: str, others: list[str], *, has_delta: bool
) -> BudgetError:
    """Say why a budget does not cover a spend; ``others`` are units that only earlier releases protect."""
    counted = budget.spent([spent])
    if then.bounded and not others:
        problem = "does not cover this release. Request less, or change the budget with `dunnage budget set --note`."
    else:
        who = "an earlier release had" if not counted.bounded and budget.spent([cost]).bounded else "the release has"
        why = f"{who} no bound between {budget.neighbours} neighbours"
        if budget.accounting is Accounting.CONCENTRATED and has_delta:
            why = f"{who} a delta of its own, which concentrated accounting does not count"
        if others:
            units = " and one ".join(others)
            why = f"an earlier release protects one {units}, and losses of different units do not add up"
        problem = f"cannot be kept: {why}. Write `allow_unbounded = true` in the policy to release anyway."
    what = f"the budget of dataset {dataset!r}, {budget}, {problem}"
    return BudgetError(what, asked=str(cost), spent=str(counted), left=str(budget.left([spent])))


# The ledger


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # some containers have no user name
        return "unknown"


def _storable(text: str) -> str:
    """Replace characters that are not Unicode; a command line or an account name may have some."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", "?")


def _check_dataset(dataset: str) -> None:
    if not dataset.strip() or _storable(dataset) != dataset:
        raise ParameterError(f"a ledger needs the name of the dataset. Got {dataset!r}. Name it in the policy.")


def _checked_head(session: Session, dataset: str) -> Entry | None:
    head = session.head(dataset)
    if head is not None and head.hash != head.digest():
        raise LedgerError(f"the last entry of dataset {dataset!r} does not match its hash. {ALTERED}")
    return head


class Ledger:
    """The owner's append-only list of what was spent on each dataset; private.

    Safe to construct in each process, and to use from several threads.

    Parameters
    ----------
    url
        A path, "sqlite:///path", "postgresql://user@host/database" or ":memory:". The folder must exist; the first
        spend or budget creates the file with mode 0600, or the tables.
    again
        Whether the same dataset and period may be spent on again under the same policy, or for a second k-anonymous
        release.
    note
        Kept with each spend.
    who
        Kept with each spend; by default the user of this process, and in PostgreSQL that of the connection.
    clock
        Function that returns the time; for tests.
    known_rows
        Why rows that were published under another dataset name may be spent on under this one.
    anchor
        File, best on another disk, to which the head after each spend is added.
    witness
        Whether this machine remembers the last entry, and refuses a ledger that lacks it.

    Raises
    ------
    LedgerError
        If the address is not supported, or the file is not a ledger; it is not touched.

    Examples
    --------
    >>> from dunnage.model.guarantees import Basis, PureDP
    >>> guarantee = PureDP(epsilon="0.5", protects="trip", neighbours="add-remove")
    >>> promise = Promise(guarantee=guarantee, basis=Basis.PROVED, mechanism={"name": "noisy-counts"})
    >>> with Ledger(":memory:") as ledger:
    ...     spend = ledger.spend(promise, SpendPurpose(dataset="rides", policy_digest="2f..."))
    ...     print(ledger.statement("rides").total)
    epsilon 0.5
    """

    def __init__(
        self,
        url: str | os.PathLike[str],
        *,
        again: bool = False,
        note: str = "",
        who: str | None = None,
        clock: Callable[[], datetime] | None = None,
        known_rows: str = "",
        anchor: str | os.PathLike[str] | None = None,
        witness: bool = True,
    ) -> None:
        self._use(store_at(url), who=who, clock=clock, witness=witness)
        self.again, self.note, self.known_rows = again, _storable(note), _storable(known_rows)
        self.anchor = None if anchor is None else Path(anchor).absolute()
        self.out: Mapping[str, str] | None = None  # where the run that spends writes to, for --resume
        self.lacks: list[str] | None = None  # of a rehearsal: approvals that are missing, which do not end it

    def _use(
        self, store: Store, *, who: str | None = None, clock: Callable[[], datetime] | None = None, witness: bool = True
    ) -> None:
        self._store = store
        self.who = _storable(who or getattr(store, "user", "") or _user())
        self._clock = clock or (lambda: datetime.now(UTC))
        self._witness = None if isinstance(store, MemoryStore) or not witness else Witness(store.name)

    @classmethod
    def open_existing(cls, url: str | os.PathLike[str]) -> Self:
        """Open an existing ledger for reading only; nothing is created."""
        ledger = cls(MEMORY)
        ledger._use(store_at(url, read_only=True))
        return ledger

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Ledger({self._store.name!r})"

    @property
    def name(self) -> str:
        return self._store.name

    def close(self) -> None:
        """Close a ledger in memory or on a server; a ledger in a file keeps nothing open."""
        self._store.close()

    def spend(self, promise: Promise, purpose: SpendPurpose) -> Spend:
        """Charge the true loss of a promise to a dataset, in one transaction, before there is any noise.

        The spend is refused (:class:`Refusal`, :class:`BudgetError`) if the same was spent on before or the budget does
        not cover it. The first budget is fixed. A refused or failed spend leaves no row.
        """
        _check_dataset(purpose.dataset)
        if not self._store.exists():
            if self._witness is not None:
                self._witness.check(None, purpose.dataset)
            with self._copy() as copy:  # a refused first spend must leave no file behind
                copy._record(promise, purpose)
        _rows_of(purpose, b"")  # digest the rows before the turn is taken
        name, entry = self._record(promise, purpose)
        # Commit, anchor, noise: the anchor is never ahead of the ledger, and no noise is ahead of the anchor.
        self._remember(name, entry)
        _log.info("spend %s on dataset %s", entry.id, entry.dataset)
        return Spend.of(entry)

    def _remember(self, name: str, entry: Entry) -> None:
        if self._witness is not None:
            self._witness.remember(name, entry)
        if self.anchor is not None:
            write_anchor(self.anchor, name, entry)

    def _record(self, promise: Promise, purpose: SpendPurpose) -> tuple[str, Entry]:
        dataset = purpose.dataset
        with self._store.writing(dataset) as session:
            head, identity = _checked_head(session, dataset), session.identity()
            if self._witness is not None:
                self._witness.check(session, dataset)
            rows = _rows_of(purpose, identity.key)
            if not self.again and (repeat := _repeat(session, promise, purpose)):
                raise Refusal(repeat)
            if not self.known_rows and (known := _recognised(session, dataset, rows)):
                raise Refusal(known)
            content = {
                **proposed(promise, purpose, rows),
                "guarantee": promise.guarantee.to_dict(),
                "basis": str(promise.basis),
                "note": "; ".join(filter(None, (self.note, self.known_rows))),
                "allow_unbounded": purpose.allow_unbounded,
                "about": None,
                "out": None if self.out is None else dict(self.out),
            }
            terms = signed_terms(session, dataset)
            with readable():
                budget = budget_from(terms["budget"]) if terms.get("budget") else None
                rule = Rule.of(terms)
            if budget is not None and purpose.budget not in (None, budget):
                raise Refusal(
                    f"the budget of dataset {dataset!r} is fixed at {budget}, but the policy says "
                    f"{purpose.budget}. Write the fixed budget there, or change it with `dunnage budget set --note`."
                )
            if rule is not None and budget is None and purpose.budget is not None:
                raise Refusal(
                    f"dataset {dataset!r} has a rule and no budget yet, so that of the policy does not count. Set one "
                    "with dunnage budget set --sign KEY."
                )
            if budget is None and purpose.budget is not None:  # the first is fixed, unless the owner sets one
                budget = purpose.budget
                head = self._append_terms(session, head, dataset, budget, rule, "first budget, from the policy", None)
            if rule is not None:
                try:
                    content["about"] = approved_proposal(session, rule, dataset, content)
                except Refusal as error:
                    if self.lacks is None:
                        raise
                    self.lacks.append(str(error))
            period = f"dataset = ? AND kind = 'spend' AND {session.field('period')} = ?"
            before = None if purpose.period is None else session.last(period, dataset, purpose.period)
            with readable():
                same_period = NO_TOTALS if before is None else before.running
                entry = self._entry(head, dataset, Kind.SPEND, content, same_period)
                if budget is not None:
                    old = NO_TOTALS if head is None else head.running
                    spent, after = (running_loss(totals, budget.neighbours) for totals in (old, entry.running))
                    others = [unit for unit in old["units"] if unit != content["guarantee"].get("protects", "")]
                    cost = loss_from(content["loss"][str(budget.neighbours)])
            if budget is not None:
                then = budget.spent([after])
                if not (then.within(budget.limit) if then.bounded and not others else purpose.allow_unbounded):
                    delta = after.bounded and bool(after.delta)
                    raise _overspend(budget, spent, cost, then, dataset, others, has_delta=delta)
            session.append(entry)
        return identity.id, entry

    def _entry(
        self,
        head: Entry | None,
        dataset: str,
        kind: Kind,
        content: Content,
        same_period: Content = NO_TOTALS,
    ) -> Entry:
        return next_entry(
            head, dataset=dataset, kind=kind, at=self._time(), who=self.who, content=content, same_period=same_period
        )

    @property
    def path(self) -> Path | None:
        """The file of the ledger; None if it is in memory or on a server."""
        return self._store.path

    def repeat(self, promise: Promise, purpose: SpendPurpose) -> str:
        """Return why a spend would be refused without ``again``; empty if it repeats nothing."""
        with self._store.reading() as session:
            return _repeat(session, promise, purpose)

    def k_anonymous_spends(self, promise: Promise, purpose: SpendPurpose) -> list[Spend]:
        """Return spends on k-anonymous releases that may be of the same records as another one."""
        with self._store.reading() as session:
            return _k_anonymous(session, promise, purpose)

    def rehearsal(self) -> Rehearsal:
        return Rehearsal(self)

    # Terms, proposals, outcomes

    def set_budget(
        self, dataset: str, budget: Budget, *, note: str, sign: str | os.PathLike[str] | None = None
    ) -> Statement:
        """Set or change the budget of a dataset; earlier budgets are kept. A dataset with a rule needs a signature."""
        self._set_terms(dataset, note, sign, budget=budget)
        return self.statement(dataset)

    def set_rule(
        self, dataset: str, rule: Rule | None, *, note: str, sign: str | os.PathLike[str] | None = None
    ) -> None:
        """Set whose approval releases of a dataset need; a rule that exists changes only with a signature under it."""
        self._set_terms(dataset, note, sign, rule=rule)

    def accept(self, dataset: str, *, note: str, sign: str | os.PathLike[str] | None = None) -> None:
        """Continue with a ledger that lacks what this machine saw; the note stays in it."""
        identity = None
        if self._store.exists():
            with self._store.reading() as session:
                identity = session.identity().id
        witness, self._witness = self._witness, None
        try:
            self._set_terms(dataset, note, sign)
        finally:
            self._witness = witness
        if witness is not None:
            witness.forget(identity)

    def _set_terms(self, dataset: str, note: str, sign: str | os.PathLike[str] | None, **changes: Any) -> None:
        _check_dataset(dataset)
        if not note.strip():
            raise ParameterError(f"a budget needs a note that says why you set it. Got {note!r}.")
        if self._witness is not None and not self._store.exists():
            self._witness.check(None, dataset)
        with self._store.writing(dataset) as session:
            if self._witness is not None:
                self._witness.check(session, dataset)
            old = signed_terms(session, dataset)
            with readable():
                kept = {
                    "budget": budget_from(old["budget"]) if old.get("budget") else None,
                    "rule": Rule.of(old),
                    **changes,
                }
            head = _checked_head(session, dataset)
            entry = self._append_terms(session, head, dataset, kept["budget"], kept["rule"], _storable(note), sign)
            name = session.identity().id
        self._remember(name, entry)

    def _append_terms(
        self,
        session: Session,
        head: Entry | None,
        dataset: str,
        budget: Budget | None,
        rule: Rule | None,
        note: str,
        key: str | os.PathLike[str] | None,
    ) -> Entry:
        content: Content = {
            "budget": None if budget is None else budget_table(budget),
            "rule": None if rule is None else rule.to_dict(),
            "note": note,
        }
        if key is not None:
            from dunnage.model.envelopes import sign

            content["after"] = "" if head is None else head.hash  # a signature is for one place in the chain
            content["signature"] = sign(Kind.BUDGET, payload(Kind.BUDGET, dataset, content), key)
        entry = self._entry(head, dataset, Kind.BUDGET, content)
        check_terms(session.last("dataset = ? AND kind = 'budget'", dataset), entry)
        session.append(entry)
        return entry

    def propose(self, promise: Promise, purpose: SpendPurpose, *, key: str | os.PathLike[str], facts: Content) -> Entry:
        """Propose a release for others to approve; ``facts`` are digests and words that they should see."""

        def content(session: Session, rule: Rule) -> Content:
            rows = _rows_of(purpose, session.identity().key)
            stated = {"guarantee": promise.guarantee.to_dict(), "basis": str(promise.basis), **facts}
            return {**proposed(promise, purpose, rows), **stated}

        return self._append_signed(purpose.dataset, Kind.PROPOSAL, content, key)

    def decide(
        self,
        proposal: str,
        *,
        approve: bool,
        key: str | os.PathLike[str],
        note: str = "",
        facts: Content | None = None,
    ) -> Entry:
        """Approve or refuse a proposal of somebody else; ``facts`` must match what it states."""
        with self._store.reading() as session:
            found = session.where("kind = 'proposal' AND id = ?", proposal)
        if not found:
            raise ParameterError(f"the ledger {self.name} has no proposal {proposal!r}. See dunnage ledger show.")
        (entry,) = found
        for name, value in (facts or {}).items():
            if entry.content.get(name) != value:
                raise Refusal(f"the proposal is for another {name} than the one you gave. Nothing was decided.")

        def content(session: Session, rule: Rule) -> Content:
            state = read_proposal(session, entry, rule)
            if state.spend is not None:
                raise Refusal(f"the proposal was already used by spend {state.spend.id}.")
            return {"about": entry.id, "hash": entry.hash, "note": _storable(note)}

        return self._append_signed(entry.dataset, Kind.APPROVAL if approve else Kind.REFUSAL, content, key, entry)

    def _append_signed(
        self,
        dataset: str,
        kind: Kind,
        make: Callable[[Session, Rule], Content],
        key: str | os.PathLike[str],
        about: Entry | None = None,
    ) -> Entry:
        _check_dataset(dataset)
        with self._store.writing(dataset) as session:
            if self._witness is not None:
                self._witness.check(session, dataset)
            head, rule = _checked_head(session, dataset), self._rule(session, dataset)
            if rule is None:
                raise Refusal(f"dataset {dataset!r} has no rule, so nobody has to approve. See dunnage ledger rule.")
            from dunnage.model.envelopes import sign

            content = make(session, rule)
            content["signature"] = sign(kind, payload(kind, dataset, content), key)
            entry = self._entry(head, dataset, kind, content)
            try:
                name = signer(entry, rule.people)
            except LedgerError:
                people = ", ".join(rule.people)
                raise Refusal(f"this key belongs to nobody whom the rule of the dataset names: {people}.") from None
            if about is not None and name == signer(about, rule.people):
                raise Refusal(f"{name} made this proposal, so somebody else has to decide on it.")
            session.append(entry)
            identity = session.identity().id
        self._remember(identity, entry)
        return entry

    @staticmethod
    def _rule(session: Session, dataset: str) -> Rule | None:
        terms = signed_terms(session, dataset)
        with readable():
            return Rule.of(terms)

    def rule(self, dataset: str) -> Rule | None:
        with self._store.reading() as session:
            return self._rule(session, dataset)

    def record_outcome(self, spend: str, dataset: str, state: str, **facts: str) -> None:
        """Keep what became of a spend; once released, with the digest of the certificate."""
        with self._store.writing(dataset) as session:
            content = {"about": spend, "state": state, **facts}
            entry = self._entry(_checked_head(session, dataset), dataset, Kind.OUTCOME, content)
            session.append(entry)
            name = session.identity().id
        self._remember(name, entry)

    def open_spends(self, dataset: str, place: str, tokens: Sequence[str] = ()) -> list[Entry]:
        """Return the last spends of runs that wrote to a place and have no outcome, the newest first."""
        return [spend for spend, outcome in self.runs_at(dataset, place, tokens) if outcome is None]

    def runs_at(self, dataset: str, place: str, tokens: Sequence[str] = ()) -> list[tuple[Entry, Entry | None]]:
        """Return the last spends of runs that wrote to a place, the newest first, and what became of each.

        A folder may have been moved since: ``tokens`` of runs that left something there name their spends too.
        """
        with self._store.reading() as session:
            marks = ", ".join("?" * (len(tokens) + 1))
            where = f"({session.field('out', 'place')} = ? OR {session.field('out', 'token')} IN ({marks}))"
            about = f"kind = 'outcome' AND {session.field('about')} = ?"
            spends = session.where(f"dataset = ? AND kind = 'spend' AND {where}", dataset, place, "", *tokens, last=20)
            return [(spend, session.last(about, spend.id)) for spend in spends]

    def await_turn(self, dataset: str) -> None:
        """Wait until a run that was killed while it spent has no transaction left on a server."""
        if self._store.exists():
            with self._store.writing(dataset):
                return

    # Reading

    def history(self, dataset: str) -> list[Entry]:
        """Return all entries of a dataset, after checking that they are a whole chain."""
        with self._store.reading() as session, readable():
            entries = session.where("dataset = ?", dataset)
            check_chain(entries)
            if (head := session.head(dataset)) != (entries[-1] if entries else None) and head is not None:
                raise LedgerError(f"the head of dataset {dataset!r} is not its last entry. {ALTERED}")
            return entries

    def statement(self, dataset: str) -> Statement:
        """Return budget, spends, totals and what is left of one dataset; empty if the ledger does not know it."""
        entries = self.history(dataset)
        with readable():
            terms = [entry for entry in entries if entry.kind == Kind.BUDGET and entry.content["budget"] is not None]
            budgets = tuple(
                BudgetEntry(
                    at=entry.at, who=entry.who, note=entry.content["note"], budget=budget_from(entry.content["budget"])
                )
                for entry in terms
            )
            spends = tuple(Spend.of(entry) for entry in entries if entry.kind == Kind.SPEND)
            return Statement(dataset=dataset, budgets=budgets, spends=spends)

    def composed(self, dataset: str) -> dict[str, object]:
        """Return what all releases lose together, from the running totals: however many there are."""
        with self._store.reading() as session, readable():
            head = _checked_head(session, dataset)
            terms = signed_terms(session, dataset)
            budget = budget_from(terms["budget"]) if terms.get("budget") else None
            totals = NO_TOTALS if head is None else head.running
            sums = {kind: loss_from(totals[str(kind)]) for kind in Neighbours}
            neighbours = _neighbours(budget, sums)
            table, several_units = totals[str(neighbours)], len(totals["units"]) > 1
            per_period = loss_from(table, "every_") + loss_from(table, "largest_")
            total = sums[neighbours] + NO_LOSS
        return _composed(neighbours, *((UNBOUNDED, UNBOUNDED) if several_units else (total, per_period)))

    def spends_this_month(self, dataset: str) -> tuple[Spend, ...]:
        """Return what was spent on a dataset in the current calendar month (UTC)."""
        month = self._time()[:7]
        with self._store.reading() as session, readable():
            entries = session.where("dataset = ? AND at >= ? AND kind = 'spend'", dataset, month)
            return tuple(Spend.of(entry) for entry in entries if entry.at.startswith(month))

    def datasets(self) -> list[str]:
        with self._store.reading() as session:
            return session.datasets()

    def summary(self) -> str:
        return "\n\n".join(self.statement(name).summary() for name in self.datasets()) or "nothing was spent"

    def to_dict(self) -> dict[str, object]:
        return {"format": JSON_FORMAT, "datasets": [self.statement(name).to_dict() for name in self.datasets()]}

    def _time(self) -> str:
        return self._clock().astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")

    def upgrade(self) -> int:
        """Bring a ledger of an earlier format to this one, with its history; return the format it had."""
        if not isinstance(self._store, FileStore):
            raise LedgerError(f"only a ledger in a file can have an earlier format. {self.name} is up to date.")
        return self._store.upgrade()

    def move(self, url: str | os.PathLike[str]) -> Ledger:
        """Move everything to a place where there is no ledger; what is left here can be read but not spent from."""
        if isinstance(self._store, MemoryStore):
            raise LedgerError("a ledger in memory cannot be moved. Name a file or a server.")
        store = store_at(url)
        if isinstance(store, MemoryStore) or store.exists():
            raise LedgerError(f"there is a ledger at {store.name} already, and two cannot be merged. Name a new place.")
        for dataset in self.datasets():
            self.history(dataset)  # only a whole ledger moves
        with self._store.retiring() as contents:
            store.create(*contents)
        return Ledger(url)

    def grant(self, dataset: str, person: str, role: str) -> None:
        """Let a person of a PostgreSQL database read, spend or decide on a dataset ("*" for all)."""
        if not isinstance(self._store, PostgresStore):
            raise LedgerError("roles are for PostgreSQL. Whoever may write a ledger file can do everything with it.")
        if role not in ("reader", "spender", "officer", "none"):
            raise ParameterError(f"role must be reader, spender, officer or none. Got {role!r}.")
        if not self._store.exists():
            self._store.create()
        self._store.grant(dataset, person, role)

    def contents(self) -> tuple[Identity, list[Entry]]:
        """Return everything in the ledger that its reader may see."""
        with self._store.reading() as session:
            return session.contents()

    def _copy(self) -> Ledger:
        copy = Ledger(
            MEMORY, again=self.again, note=self.note, who=self.who, clock=self._clock, known_rows=self.known_rows
        )
        copy._store = MemoryStore(*self.contents())
        copy.out = self.out
        return copy


def proposed(promise: Promise, purpose: SpendPurpose, rows: Mapping[str, str] | None) -> Content:
    """Return what a proposal and its spend must agree on."""
    return {
        "policy": _resolved(promise, purpose),
        "promise": promise.digest(),
        "period": purpose.period,
        "rows": rows,
        "loss": {str(kind): loss_table(promise.true_loss(kind)) for kind in Neighbours},
    }


class Rehearsed(Exception):
    """Stops a mechanism at its spend, before any noise: control flow, not an error."""

    def __init__(self, promise: Promise, statement: Statement, refusals: Iterable[str] = ()) -> None:
        self.promise, self.statement, self.refusals = promise, statement, tuple(refusals)
        self.loss = promise.true_loss(statement.neighbours)
        super().__init__("the spend was rehearsed; nothing was spent")


class Rehearsal:
    """Stands in for a ledger where nothing may be spent (``publish --dry-run``)."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def spend(self, promise: Promise, purpose: SpendPurpose) -> NoReturn:
        """Make all checks of a spend on a copy in memory, then stop, and say what would be refused."""
        refusals = []
        with self._ledger._store.reading() as session:
            rows = _rows_of(purpose, session.identity().key)
            repeat, known = _repeat(session, promise, purpose), _recognised(session, purpose.dataset, rows)
            refusals += [repeat] if repeat and not self._ledger.again else []
            refusals += [known] if known and not self._ledger.known_rows else []
        with self._ledger._copy() as copy:
            copy.again, copy.known_rows, copy.lacks = True, copy.known_rows or "rehearsed", []
            try:
                copy._record(promise, purpose)
            except Refusal as error:
                refusals.append(str(error))
            refusals += copy.lacks
            statement = copy.statement(purpose.dataset)
        raise Rehearsed(promise, statement, refusals)
