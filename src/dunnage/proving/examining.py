# SPDX-License-Identifier: Apache-2.0
"""Examine one mechanism on tiny neighbouring datasets: what it claims, what it gives away, what it spends.

Four things are looked at. All outputs of neighbouring datasets are enumerated through the real ``release``, and the
largest ratio of their chances is the loss. The same releases are drawn with real entropy, and must follow the
enumerated law. The ledger must be charged once, before anything is drawn, and with no less than was measured. And where
too much is drawn to be enumerated, draws alone bound the loss from below.
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from dunnage.counting.laplace import FLOATING_BITS, CountLaw, floating_noise
from dunnage.errors import DunnageError, ParameterError
from dunnage.guarantees import Basis, Loss, Neighbours, Promise
from dunnage.laws import LAWS
from dunnage.ledger import Ledger, Statement
from dunnage.noise import Noise
from dunnage.policy import Policy
from dunnage.proving.replay import (
    Decisions,
    NotEnumerable,
    Outcomes,
    Reach,
    delta_between,
    diverted,
    epsilon_between,
    largest,
    outcomes,
)
from dunnage.proving.statistical import CONFIDENCE, UNLIKELY, LowerBound, agrees, lower_bound
from dunnage.proving.verdict import FAILS, HOLDS, UNBOUNDED, VOID, Verdict, judged, raised, within
from dunnage.release import Release
from dunnage.tables.dataset import Dataset

Rows = Mapping[str, Sequence[Any]]
Separates = Callable[[Hashable, Rows, Rows], bool]
"""Whether an output tells two neighbours apart by what is shown in clear, so that nothing is promised there."""

_NO_OUTPUT = frozenset({"spend", "time", "composition", "software", "digests_say", "files"})
"""Words of a certificate that do not depend on the rows."""
_TYPES = {float: pa.float64(), str: pa.string(), int: pa.int64()}
DRAWS, MANY_DRAWS = 80, 400
_BLIND_DRAWS = 3_000
_MOST_MISSED = 1e-3
LAW_DRAWS = 40_000
_OFF_LAW = "its draws do not follow the law that its decisions have"
_WORDS = 1 << FLOATING_BITS


@dataclass(frozen=True, kw_only=True)
class Case:
    """A mechanism, and the neighbouring datasets to examine it on."""

    mechanism: Any  # Anything with `promise(schema)` and `release(dataset, *, ledger, noise)`
    policy: Policy  # What governs the rows
    tables: Sequence[Rows]  # Tiny datasets, column by column
    reach: Reach  # How far endless laws are followed
    pairs: Sequence[tuple[int, int]] | None = None  # Which of them are neighbours, by position; all pairs by default
    name: str = ""  # The mechanism's name in a policy; by default its own
    variant: str = ""  # What sets this case apart
    expected: str = HOLDS  # The verdict that must come out
    # claimed, epsilon: what is claimed where it is not what the promise states, and the epsilon that goes with a
    # claimed delta
    claimed: float | None = None
    epsilon: float | None = None
    basis: str = ""  # basis, holds: what is stated of it, and as true, where it is not what the promise states
    holds: float | str | None = None
    separates: Separates | None = None  # Which outputs the promise is not about
    draws: int = DRAWS  # How many real releases to draw of either dataset of the worst pair
    sentence: str = ""  # What to tell a person; by default it follows from the figures

    def __post_init__(self) -> None:
        if len(self.tables) < 2:
            raise ParameterError("A loss is between two datasets. Got fewer. Give neighbours.")

    @property
    def neighbours(self) -> list[tuple[int, int]]:
        return list(self.pairs if self.pairs is not None else combinations(range(len(self.tables)), 2))


def dataset_of(rows: Rows, policy: Policy) -> Dataset:
    """Make a dataset of a few rows; a column without any is one of numbers or labels as the policy says."""
    columns = {}
    for name, values in rows.items():
        numeric = policy.schema[name].kind == "numeric"
        kind = _TYPES[type(values[0])] if len(values) else pa.float64() if numeric else pa.string()
        columns[name] = pa.array(list(values), kind)
    return Dataset.from_table(pa.table(columns), policy)


def shown(release: Release, *, ordered: bool) -> Hashable:
    """Return all that a release shows: its tables, and its certificate without what does not depend on rows."""
    body = {name: value for name, value in release.certificate.plain().items() if name not in _NO_OUTPUT}
    tables = []
    for name, table in release.tables.items():
        columns = [column for column in table.column_names if ordered or column != "row"]
        lines = list(zip(*(table[column].to_pylist() for column in columns), strict=True))
        tables.append((name, tuple(columns), tuple(lines if ordered else sorted(lines, key=repr))))
    return tuple(tables), json.dumps(body, sort_keys=True)


@dataclass(frozen=True)
class _Receipt:
    id: str = "0" * 32
    at: str = "2000-01-01T00:00:00Z"


@dataclass
class _Till:
    """Takes spends without keeping books: what was spent, and what had been drawn before."""

    noise: Noise
    spent: list[tuple[Promise, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._before = self._drawn()

    def _drawn(self) -> int:
        return self.noise.num_decisions if isinstance(self.noise, Decisions) else self.noise.bytes_drawn

    def spend(self, promise: Promise, purpose: object) -> _Receipt:
        self.spent.append((promise, self._drawn() - self._before))
        return _Receipt()

    def statement(self, dataset: str) -> Statement:
        return Statement(dataset=dataset)


@dataclass
class _Examined:
    """One case at work: the datasets, and what has been found of each."""

    case: Case

    def __post_init__(self) -> None:
        self.data = [dataset_of(rows, self.case.policy) for rows in self.case.tables]
        self.promise: Promise = self.case.mechanism.promise(self.case.policy.schema)
        self.laws: dict[int, Outcomes] = {}
        self.problems: list[str] = []

    def run(self, which: int, noise: Noise) -> Hashable:
        """Release a dataset once; a refusal is an output like any other."""
        till = _Till(noise)
        try:
            release, _ = self.case.mechanism.release(self.data[which], ledger=till, noise=noise)
        except DunnageError as refusal:
            return "refused", type(refusal).__name__
        self._note(till)
        return shown(release, ordered=self.case.reach.orders)

    def _note(self, till: _Till) -> None:
        if len(till.spent) != 1:
            self._problem(f"it spends {len(till.spent)} times for one release")
        elif till.spent[0][1]:
            self._problem("it draws before it spends")

    def _problem(self, text: str) -> None:
        if text not in self.problems:
            self.problems.append(text)

    def law(self, which: int) -> Outcomes:
        if which not in self.laws:
            with diverted():
                self.laws[which] = outcomes(lambda noise: self.run(which, noise), self.case.reach)
            if self.laws[which].missed > _MOST_MISSED:  # real draws could not be compared with what is left
                raise NotEnumerable
        return self.laws[which]

    def loss(self, one: int, other: int) -> float | str:
        if self.quantity == "delta":
            return delta_between(self.law(one), self.law(other), self.epsilon)
        separates, rows = self.case.separates, self.case.tables
        kept = None if separates is None else lambda output: not separates(output, rows[one], rows[other])
        return epsilon_between(self.law(one), self.law(other), kept)

    @property
    def quantity(self) -> str:
        return "delta" if getattr(self.promise.guarantee, "delta", None) is not None else "epsilon"

    @property
    def epsilon(self) -> float:
        """The epsilon that a claimed delta goes with."""
        stated: Fraction = getattr(self.promise.guarantee, "epsilon", Fraction(0))
        return float(stated) if self.case.epsilon is None else self.case.epsilon

    @property
    def claimed(self) -> float | str:
        if self.promise.basis is Basis.VOID:
            return UNBOUNDED
        return float(getattr(self.promise.guarantee, self.quantity)) if self.case.claimed is None else self.case.claimed

    @property
    def holds(self) -> float | str | None:
        """What the promise says holds instead, where it is only claimed."""
        if self.case.holds is not None or self.promise.basis is Basis.PROVED:
            return self.case.holds
        held = getattr(self.promise.holds, self.quantity, None)
        return UNBOUNDED if held is None else float(held)

    def worst(self) -> tuple[float | str, tuple[int, int]]:
        found = [(self.loss(*pair), pair) for pair in self.case.neighbours]
        return max(found, key=lambda item: math.inf if isinstance(item[0], str) else item[0])

    def drawn(self, which: int, size: int) -> list[Hashable]:
        noise = Noise()
        return [self.run(which, noise) for _ in range(size)]

    def check_draws(self, pair: tuple[int, int]) -> None:
        for which in pair:
            p = agrees(Counter(self.drawn(which, self.case.draws)), self.law(which).chances)
            if p < UNLIKELY:
                self._problem(_OFF_LAW)

    def check_spend(self, measured: float | str) -> None:
        """Charge a real ledger, and compare what it was charged with what was measured."""
        ledger, noise = Ledger(":memory:"), Noise()
        try:
            release, _ = self.case.mechanism.release(self.data[0], ledger=ledger, noise=noise)
        except DunnageError:
            return
        spends = ledger.statement(self.case.policy.dataset).spends
        neighbours = getattr(self.promise.guarantee, "neighbours", Neighbours.ADD_REMOVE)
        stated = self.claimed if self.holds is None else self.holds
        for spend in spends:
            losses = [figure for figure in (measured, stated) if not self._spent(spend.loss(neighbours), figure)]
            if len(losses) == 2:  # what is spent for a loss as stated is right: it is the loss that is too large
                self._problem("it spends less than it loses")
        self._check_sum(ledger)
        if [spend.promise_digest for spend in spends] != [self.promise.digest()]:
            self._problem("it does not spend what it promises")
        if release.certificate.basis is not self.promise.basis:
            self._problem(f"its certificate says {release.certificate.basis}, its promise {self.promise.basis}")

    def _spent(self, spent: Loss, loss: float | str) -> bool:
        if spent.epsilon is None:
            return True
        return within(loss, float(spent.delta if self.quantity == "delta" else spent.epsilon), self.quantity)

    def _check_sum(self, ledger: Ledger) -> None:
        """Spend once more, as for a release under another policy: what the two cost must add up."""
        ledger.spend(self.promise, replace(self.data[0].purpose, policy_digest="0" * 64))
        statement = ledger.statement(self.case.policy.dataset)
        each = [spend.loss(statement.neighbours) for spend in statement.spends]
        known = [loss.epsilon for loss in each if loss.epsilon is not None]
        total = statement.total
        if total.epsilon is None:
            return
        if len(known) < len(each) or total.epsilon < sum(known) or total.delta < sum(loss.delta for loss in each):
            self._problem("two releases do not add up in the ledger")


def examine(case: Case, *, long: bool = False) -> Verdict:
    start = time.perf_counter()
    try:
        work = _Examined(replace(case, draws=max(case.draws, MANY_DRAWS)) if long else case)
        try:
            measured, pair = work.worst()
        except NotEnumerable:
            # Bound the loss from below by draws alone.
            best: LowerBound | None = None
            granted = float(getattr(work.promise.guarantee, "delta", 0))
            for one, other in work.case.neighbours:
                found = lower_bound(work.drawn(one, _BLIND_DRAWS), work.drawn(other, _BLIND_DRAWS), delta=granted)
                best = found if best is None or found.epsilon > best.epsilon else best
            assert best is not None  # a case has neighbours
            work.check_spend(best.epsilon if work.quantity == "epsilon" else 0.0)
            method = f"{best.num_drawn:,} releases drawn, which show {best.event}"
            return _verdict(work, best.epsilon, start, exact=False, confidence=CONFIDENCE, method=method)
        work.check_draws(pair)
        if case.claimed is None:  # otherwise it is another promise that is examined, not the one that is spent on
            work.check_spend(measured)
        return _verdict(work, measured, start, exact=True, confidence=None, method=_method(work))
    except Exception as error:  # a broken mechanism may raise anything; what else is examined goes on
        return raised(_name(case), case.variant, error, start)


def _method(work: _Examined) -> str:
    laws = work.laws.values()
    num = sum(len(law) for law in laws)
    pairs, runs = len(work.case.neighbours), sum(law.runs for law in laws)
    missed = max(law.missed for law in laws)
    but = f", all but a chance of {missed:.0e}" if missed else ""
    between = f"{pairs:,} pair{'s' * (pairs > 1)} of neighbours"
    return f"all {num:,} outputs of {between} enumerated in {runs:,} runs{but}; {2 * work.case.draws} releases drawn"


def _verdict(
    work: _Examined, measured: float | str, start: float, *, exact: bool, confidence: float | None, method: str
) -> Verdict:
    case, claimed = work.case, work.claimed
    verdict = judged(measured, claimed, work.quantity)
    meaning = case.sentence or sentence_of(
        protects=str(getattr(work.promise.guarantee, "protects", "record")),
        verdict=verdict,
        claimed=claimed,
        holds=work.holds,
        measured=measured,
        quantity=work.quantity,
        exact=exact,
    )
    if work.problems:  # say first what is lost, then what else was found
        meaning = f"{meaning} Besides, {'; '.join(work.problems)}."
    return Verdict.of(
        _name(case),
        case.variant,
        basis=case.basis or work.promise.basis,
        claimed=claimed,
        holds=work.holds,
        measured=measured,
        quantity=work.quantity,
        exact=exact,
        confidence=confidence,
        method=method,
        verdict=FAILS if work.problems and verdict == HOLDS else verdict,
        expected=case.expected,
        sentence=meaning,
        started=start,
        problems=work.problems,
    )


def _name(case: Case) -> str:
    return case.name or str(getattr(case.mechanism, "name", type(case.mechanism).__name__))


def sentence_of(
    *,
    protects: str,
    verdict: str,
    claimed: float | str,
    holds: float | str | None,
    measured: float | str,
    quantity: str,
    exact: bool = True,
) -> str:
    """Say in one sentence what a verdict means to the one protected; of what was not counted out, "at least"."""
    if verdict == VOID:
        return f"Nothing is claimed, and nothing keeps one {protects} secret."
    if quantity == "delta":
        return _delta_sentence(protects, verdict, float(claimed), float(measured), holds)
    if isinstance(measured, str):
        return f"One {protects} can be told for sure: there are releases that only one of two neighbours can lead to."
    found, allowed = f"{'' if exact else 'at least '}{_factor(measured)}", _factor(float(claimed))
    if verdict == FAILS:
        return f"One {protects} changes the odds of a release by a factor of {found}, where {allowed} is claimed."
    if not exact:
        return f"One {protects} changes the odds of a release by a factor of {found}; {allowed} is promised."
    if within(measured, float(claimed), quantity) and measured < float(claimed) * 0.999:
        return f"One {protects} changes the odds of a release by a factor of {found}, less than the {allowed} promised."
    return f"One {protects} changes the odds of any release by a factor of at most {found}, as promised."


def _delta_sentence(protects: str, verdict: str, claimed: float, measured: float, holds: float | str | None) -> str:
    found = f"With a chance of {measured:.3g} a release tells more of one {protects} than epsilon allows"
    if verdict == HOLDS:
        return f"{found}; {claimed:.3g} is promised."
    stated = f" {holds:.3g} is what holds." if isinstance(holds, float) else ""
    return f"{found}, where {claimed:.3g} is claimed.{stated}"


def _factor(epsilon: float) -> str:
    return f"{math.exp(epsilon):.3g}" if epsilon < 20 else f"e^{epsilon:.3g}"


# Laws by themselves, on larger ranges than whole releases can be enumerated on: the probabilities of a law are read by
# replaying its own drawing code, number by number, and then compared with many numbers that it really draws.


def examine_point_law(mechanism: str, law: str, *, last: int, epsilon: Any) -> Verdict:
    """Examine a law on the points of a grid: between any two points, and drawn at both ends."""
    start = time.perf_counter()
    made = LAWS[law](last=last, epsilon=Fraction(str(epsilon)), confidence=Fraction(9, 10))

    def seen(point: int, noise: Noise, size: int = 1) -> list[int]:
        return [int(value) for value in made.perturb(np.full(size, point, dtype=np.int64), noise)]

    def chances(point: int) -> Outcomes:
        return outcomes(lambda noise: seen(point, noise)[0], Reach(steps=last))

    with diverted():
        tables = [chances(point) for point in range(last + 1)]
    measured = largest(epsilon_between(tables[a], tables[b]) for a in range(last + 1) for b in range(a))
    ends = [(tables[point], seen(point, Noise(), LAW_DRAWS)) for point in (0, last)]
    return _law_verdict(
        mechanism, f"law {law}, {last + 1} points", float(made.epsilon), measured, ends, start, protects="package"
    )


def examine_count_law(mechanism: str, law: CountLaw, *, reach: int) -> Verdict:
    """Examine a law of noise on counts: between any two counts that differ by one."""
    start = time.perf_counter()
    with diverted():
        masses = outcomes(lambda noise: int(law.draw(noise, 1)[0]), Reach(steps=reach, beyond="left out"))
    inside = range(1 - reach, reach)  # beyond, the tails are geometric, and so are their ratios
    measured = max(abs(math.log(masses.chances[b] / masses.chances[a])) for a, b in pairwise(inside))
    drawn = [int(value) for value in law.draw(Noise(), LAW_DRAWS)]
    return _law_verdict(
        mechanism,
        f"law {law.name}, scale {float(law.scale):.3g}",
        1 / float(law.scale),
        measured,
        [(masses, drawn)],
        start,
        protects="trip",
    )


def _law_verdict(
    mechanism: str,
    variant: str,
    claimed: float,
    measured: float | str,
    drawn: Sequence[tuple[Outcomes, list[int]]],
    start: float,
    *,
    protects: str,
) -> Verdict:
    problems = tuple({_OFF_LAW for law, values in drawn if agrees(Counter(values), law.chances) < UNLIKELY})
    verdict, num = judged(measured, claimed, "epsilon"), sum(len(law) for law, _ in drawn)
    sentence = sentence_of(
        protects=protects, verdict=verdict, claimed=claimed, holds=None, measured=measured, quantity="epsilon"
    )
    return Verdict.of(
        mechanism,
        variant,
        claimed=claimed,
        measured=measured,
        method=f"chances of {num:,} numbers read from the drawing code; {len(drawn) * LAW_DRAWS:,} numbers drawn",
        sentence=f"{_OFF_LAW[0].upper()}{_OFF_LAW[1:]}." if problems else sentence,
        started=start,
        problems=problems,
    )


def unreachable_share(scale: Fraction, *, size: int = 2_000) -> float:
    """Return the share of noisy numbers around a count of 1 that no noise makes of a count of 0.

    Floating-point noise takes 2^52 values, which lie irregularly: a number that one count can give is most often
    between two that the next can give (Mironov 2012). Noise rises with the word it is made of, so that the word that
    would be needed is found by bisection.
    """
    words = np.linspace(_WORDS // 1000, _WORDS - _WORDS // 1000, size).astype(np.int64)
    seen = floating_noise(words, scale) + 1.0
    low, high = np.zeros(size, dtype=np.int64), np.full(size, _WORDS - 1, dtype=np.int64)
    while np.any(high - low > 1):
        middle = (low + high) // 2
        below = floating_noise(middle, scale) < seen
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    # Rounding could put a match a few words away: all around are looked at.
    near = high[:, None] + np.arange(-16, 17)
    matched = (floating_noise(np.clip(near, 0, _WORDS - 1), scale) == seen[:, None]).any(axis=1)
    return 1.0 - float(matched.mean())


def examine_floating_noise(mechanism: str, scale: Fraction) -> Verdict:
    """Examine noise in floating point before it is rounded: which noisy numbers can come of which count."""
    start = time.perf_counter()
    share = unreachable_share(scale)
    return Verdict.of(
        mechanism,
        "floating-point Laplace",
        basis="claimed",
        claimed=1 / float(scale),
        holds=UNBOUNDED,
        measured=UNBOUNDED if share > 0 else 1 / float(scale),
        method="for 2,000 noisy numbers of a count of 1, the words that a count of 0 would need looked up",
        expected=FAILS,
        sentence=f"Of the noisy numbers that a count of 1 gives, {100 * share:.0f} % cannot come of a count of 0: "
        "their last digits tell the count.",
        started=start,
    )
