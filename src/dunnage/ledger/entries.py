# SPDX-License-Identifier: Apache-2.0
"""Entries: what a ledger consists of. Each has the digest of the one before it, and the running totals of its dataset.

The hash of an entry covers all its fields and the hash of the entry before, so that nothing can be changed, removed or
put between without changing every later hash. The totals make a spend independent of how many there were before. They
are exact fractions, and a database that can compute (PostgreSQL) checks both for itself.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from functools import cached_property
from typing import Any

from dunnage.errors import LedgerError
from dunnage.model.guarantees import (
    UNBOUNDED,
    Accounting,
    Budget,
    ConcentratedDP,
    Loss,
    Neighbours,
    concentrated_epsilon,
)

FORMAT = 2
Content = dict[str, Any]  # of an entry, as JSON has it: what each kind holds is in `book`
GENESIS = "0" * 64  # what stands before the first entry of a dataset
_FRAME = f"dunnage ledger {FORMAT}"


class Kind(StrEnum):
    BUDGET = "budget"  # the terms of a dataset: budget, and whose approval a release needs
    SPEND = "spend"
    PROPOSAL = "proposal"
    APPROVAL = "approval"
    REFUSAL = "refusal"
    OUTCOME = "outcome"  # what became of a spend


@dataclass(frozen=True, kw_only=True)
class Entry:
    dataset: str
    number: int  # from 1, without gaps
    kind: str
    id: str
    at: str  # time in UTC
    who: str
    body: str  # JSON
    totals: str  # JSON: what was spent up to and with this entry
    prev: str
    hash: str = ""

    @cached_property
    def content(self) -> Content:
        return _object(self.body)

    @cached_property
    def running(self) -> Content:
        return _object(self.totals)

    def digest(self) -> str:
        fields = (self.prev, self.dataset, str(self.number), self.kind, self.id, self.at, self.who)
        framed = "".join(f"{len(text)}:{text}," for text in (_FRAME, *fields, self.body, self.totals))
        return hashlib.sha256(framed.encode()).hexdigest()

    def sealed(self) -> Entry:
        return replace(self, hash=self.digest())


COLUMNS = ("dataset", "number", "kind", "id", "at", "who", "body", "totals", "prev", "hash")


def _object(text: str) -> Content:
    content = json.loads(text)
    if not isinstance(content, dict):
        raise TypeError
    return content


def written(content: Content) -> str:
    return json.dumps(content, sort_keys=True, allow_nan=False, ensure_ascii=False, separators=(",", ":"))


def fraction_text(value: Fraction) -> str:
    return f"{value.numerator}/{value.denominator}"


# Losses and totals, as JSON keeps them: "1/10", or null where there is no bound

_AMOUNTS = ("epsilon", "delta")


def loss_table(loss: Loss) -> dict[str, str | None] | None:
    if loss.epsilon is None:
        return None
    rho = None if loss.rho is None else fraction_text(loss.rho)
    return {"epsilon": fraction_text(loss.epsilon), "delta": fraction_text(loss.delta), "rho": rho}


def loss_from(table: Mapping[str, str | None] | None, prefix: str = "") -> Loss:
    if table is None or table[f"{prefix}epsilon"] is None:
        return UNBOUNDED
    epsilon, delta = (Fraction(str(table[f"{prefix}{name}"])) for name in _AMOUNTS)
    # Half the square of epsilon is what a loss without a rho of its own amounts to: it is not stated again.
    rho = None if prefix or table.get("rho") is None else Fraction(str(table["rho"]))
    return Loss(epsilon, delta, None if not delta and rho == epsilon**2 / 2 else rho)


def budget_table(budget: Budget) -> dict[str, str | None]:
    """Return a budget as entries keep it; a concentrated one with the rho it allows, which databases can compare."""
    amounts = {name: fraction_text(getattr(budget, name)) for name in _AMOUNTS}
    rho = fraction_text(_largest_rho(budget)) if budget.accounting is Accounting.CONCENTRATED else None
    return {**amounts, "neighbours": str(budget.neighbours), "accounting": str(budget.accounting), "rho": rho}


def _largest_rho(budget: Budget) -> Fraction:
    low = ConcentratedDP.largest_rho(budget.epsilon, budget.delta)  # to a millionth; closer, so that nothing is lost
    high = low * (1 + Fraction(1, 10**5))
    for _ in range(60):
        middle = (low + high) / 2
        fits = concentrated_epsilon(middle, budget.delta) <= budget.epsilon
        low, high = (middle, high) if fits else (low, middle)
    return low


def budget_from(table: Content) -> Budget:
    return Budget(**{name: table[name] for name in (*_AMOUNTS, "neighbours", "accounting")})


def running_loss(totals: Content, neighbours: Neighbours) -> Loss:
    """Return what was spent, as one loss: a budget counts it like the list of all."""
    table = totals[str(neighbours)]
    loss = loss_from(table)
    rho = None if table["rho"] is None else Fraction(table["rho"])
    return loss if loss.epsilon is None else Loss(loss.epsilon, loss.delta, rho)


_ZERO = dict.fromkeys(("epsilon", "delta", "rho"), "0/1")
_SUMS = {f"{of}_{name}": "0/1" for of in ("every", "period", "largest") for name in _AMOUNTS}
NO_TOTALS: Content = {"spends": 0, "units": [], **{str(kind): {**_ZERO, **_SUMS} for kind in Neighbours}}


def _plus(one: str | None, other: str | None) -> str | None:
    return None if one is None or other is None else fraction_text(Fraction(one) + Fraction(other))


def _larger(one: str | None, other: str | None) -> str | None:
    return None if one is None or other is None else max(one, other, key=Fraction)


def totals_after(before: Content, same_period: Content, content: Content) -> Content:
    """Return the totals after a spend; ``same_period`` are those of the last spend on its period.

    ``every`` sums spends without a period, which count in each; ``period`` those of this spend's period; ``largest`` is
    the largest sum of a period so far: sums only grow, so one spend can only raise it to its own.
    """
    unit = str(content["guarantee"].get("protects", ""))
    units = before["units"] if unit in before["units"] else [*before["units"], unit]
    after: Content = {"spends": before["spends"] + 1, "units": units}
    for kind in map(str, Neighbours):
        old, loss = before[kind], content["loss"][kind] or dict.fromkeys(_ZERO)
        new = {**old, **{name: _plus(old[name], loss[name]) for name in _ZERO}}
        for name in _AMOUNTS:
            if content["period"] is None:
                new[f"every_{name}"] = new[f"period_{name}"] = _plus(old[f"every_{name}"], loss[name])
            else:
                new[f"period_{name}"] = _plus(same_period[kind][f"period_{name}"], loss[name])
                new[f"largest_{name}"] = _larger(old[f"largest_{name}"], new[f"period_{name}"])
        after[kind] = new
    return after


def next_entry(
    head: Entry | None,
    *,
    dataset: str,
    kind: Kind,
    at: str,
    who: str,
    content: Content,
    same_period: Content = NO_TOTALS,
    name: str | None = None,
) -> Entry:
    """Return the entry that follows the head of a dataset."""
    totals = NO_TOTALS if head is None else head.running
    return Entry(
        dataset=dataset,
        number=1 if head is None else head.number + 1,
        kind=str(kind),
        id=name or secrets.token_hex(16),
        at=at,
        who=who,
        body=written(content),
        totals=written(totals_after(totals, same_period, content) if kind is Kind.SPEND else totals),
        prev=GENESIS if head is None else head.hash,
    ).sealed()


def check_chain(entries: Iterable[Entry]) -> None:
    """Check that the entries of one dataset follow each other, and that hashes and totals are what they must be."""
    head: Entry | None = None
    periods: dict[str | None, Content] = {}
    for entry in entries:
        what = f"entry {entry.number} of dataset {entry.dataset!r}"
        totals = NO_TOTALS if head is None else head.running
        if entry.kind == Kind.SPEND:
            period = entry.content["period"]
            totals = periods[period] = totals_after(totals, periods.get(period, NO_TOTALS), entry.content)
        if (entry.number, entry.prev) != ((1, GENESIS) if head is None else (head.number + 1, head.hash)):
            raise LedgerError(f"{what} does not follow the entry before it. {ALTERED}")
        if entry.hash != entry.digest():
            raise LedgerError(f"{what} does not match its hash. {ALTERED}")
        if entry.running != totals:
            raise LedgerError(f"{what} states totals that do not add up. {ALTERED}")
        head = entry


ALTERED = (
    "The ledger was changed by something other than Dunnage. Nothing was spent. Go back to a copy that is whole: "
    "dunnage ledger check LEDGER RELEASES... shows which releases it lacks."
)
