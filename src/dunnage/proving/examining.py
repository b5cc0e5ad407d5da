# SPDX-License-Identifier: Apache-2.0
"""Examine one mechanism on tiny neighbouring datasets: what it claims, what it reveals, what it spends.

There are four checks. All outputs of neighbouring datasets are enumerated through the real ``release``, and the largest
ratio of their chances is the loss. The same releases, made with real entropy, must follow the enumerated law.
The ledger must be charged once, before any draw, and with no less than was measured. And where a mechanism draws too
much to be enumerated, draws alone bound the loss from below.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import combinations, pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dunnage.auditing.counts import reachable
from dunnage.errors import DunnageError, InputError
from dunnage.exact import bounded_text
from dunnage.exact import exact as read_exact
from dunnage.kernels.counts.laplace import FLOATING_BITS, CountLaw, floating_noise
from dunnage.ledger import Ledger, Statement
from dunnage.model.guarantees import Basis, Neighbours, Promise
from dunnage.model.laws import LAWS
from dunnage.model.policy import Policy
from dunnage.noise.source import Noise
from dunnage.proving import replay
from dunnage.proving.statistical import CONFIDENCE, UNLIKELY, agrees, lower_bound
from dunnage.proving.verdict import FAILS, HOLDS, UNBOUNDED, VOID, Verdict, as_sentence, judge, verdict_on_error, within
from dunnage.release import Release
from dunnage.tables.dataset import Dataset

Rows = Mapping[str, Sequence[Any]]
Separates = Callable[[Hashable, Rows, Rows], bool]
"""Whether an output distinguishes two neighbours by what is shown in clear, so that nothing is promised there."""

_NO_OUTPUT = frozenset({"spend", "time", "composition", "software", "digests_say", "files"})
"""Parts of a certificate that do not depend on the rows."""
_TYPES = {float: pa.float64(), str: pa.string(), int: pa.int64()}
DRAWS, MANY_DRAWS = 80, 400
_BLIND_DRAWS = 3_000
_MAX_MISSED = 1e-3
LAW_DRAWS = 40_000
_OFF_LAW = "its draws do not follow the law that its decisions have"


@dataclass(frozen=True, kw_only=True)
class NeighbourCase:
    """A mechanism, and the neighbouring datasets to examine it on."""

    mechanism: Any  # anything with `promise(schema)` and `release(dataset, *, ledger, noise)`
    policy: Policy
    tables: Sequence[Rows]  # tiny datasets, column by column
    reach: replay.Reach  # how far endless laws are followed
    pairs: Sequence[tuple[int, int]] | None = None  # which of them are neighbours, by position; all by default
    name: str = ""  # the mechanism's name in a policy; by default its own
    variant: str = ""  # what is special about this case
    expected: str = HOLDS  # the expected verdict
    claimed: float | None = None  # claimed, basis, holds: where they differ from the promise
    basis: str = ""
    holds: float | str | None = None
    epsilon: float | None = None  # the epsilon of a claimed delta
    separates: Separates | None = None  # which outputs the promise does not cover
    draws: int = DRAWS  # real releases of either dataset of the worst pair
    sentence: str = ""  # for a person; by default made from the figures

    @property
    def neighbours(self) -> list[tuple[int, int]]:
        return list(self.pairs if self.pairs is not None else combinations(range(len(self.tables)), 2))

    @property
    def mechanism_name(self) -> str:
        return self.name or str(getattr(self.mechanism, "name", type(self.mechanism).__name__))


def dataset_of(rows: Rows, policy: Policy) -> Dataset:
    """Make a dataset of a few rows; the policy decides the type of a column without rows."""
    columns = {}
    for name, values in rows.items():
        numeric = policy.schema[name].kind == "numeric"
        kind = _TYPES[type(values[0])] if len(values) else pa.float64() if numeric else pa.string()
        columns[name] = pa.array(list(values), kind)
    return Dataset.from_table(pa.table(columns), policy)


def shown(release: Release, *, ordered: bool) -> Hashable:
    """Return all that a release shows: its tables, and the parts of its certificate that depend on rows."""
    body = {name: value for name, value in release.certificate.plain().items() if name not in _NO_OUTPUT}
    tables = []
    for name, table in release.tables.items():
        columns = [column for column in table.column_names if ordered or column != "row"]
        lines = list(zip(*(table[column].to_pylist() for column in columns), strict=True))
        tables.append((name, tuple(columns), tuple(lines if ordered else sorted(lines, key=repr))))
    return tuple(tables), json.dumps(body, sort_keys=True)


class _Receipt(NamedTuple):
    id: str = "0" * 32
    at: str = "2000-01-01T00:00:00Z"
    number: int = 1
    head: str = "0" * 64


class Till:
    """A ledger that only notes how much noise was used before each spend."""

    def __init__(self, noise: Noise) -> None:
        self.noise, self.before = noise, _num_drawn(noise)
        self.used: list[int] = []

    def spend(self, promise: Promise, purpose: object) -> _Receipt:
        self.used.append(_num_drawn(self.noise) - self.before)
        return _Receipt()

    def composed(self, dataset: str) -> dict[str, object]:
        return Statement(dataset=dataset).composed()


def _num_drawn(noise: Noise) -> int:
    return noise.num_decisions if isinstance(noise, replay.Decisions) else noise.bytes_drawn


class _Examined:
    """One case under examination: the datasets, the claim, and the outcomes so far."""

    def __init__(self, case: NeighbourCase) -> None:
        self.case = case
        self.data: list[Dataset | InputError] = []
        for rows in case.tables:
            try:
                self.data.append(dataset_of(rows, case.policy))
            except InputError as refusal:
                self.data.append(refusal)
        self.promise: Promise = case.mechanism.promise(case.policy.schema)
        self.laws: dict[int, replay.Outcomes] = {}
        self.problems: dict[str, None] = {}
        guarantee, basis = self.promise.guarantee, self.promise.basis
        self.quantity = "delta" if getattr(guarantee, "delta", None) is not None else "epsilon"
        # The epsilon of a claimed delta, the claim, and what holds instead where it is only claimed.
        self.epsilon = float(getattr(guarantee, "epsilon", 0)) if case.epsilon is None else case.epsilon
        self.claimed: float | str = UNBOUNDED
        if basis is not Basis.VOID:
            self.claimed = float(getattr(guarantee, self.quantity)) if case.claimed is None else case.claimed
        self.holds = case.holds
        if self.holds is None and basis is not Basis.PROVED:
            stated = getattr(self.promise.holds, self.quantity, None)
            self.holds = UNBOUNDED if stated is None else float(stated)

    def run(self, which: int, noise: Noise) -> Hashable:
        """Release a dataset once; a refusal is an output like any other, also that of the file itself."""
        till, data = Till(noise), self.data[which]
        try:
            if isinstance(data, InputError):
                raise data
            release, _ = self.case.mechanism.release(data, ledger=till, noise=noise)
        except DunnageError as refusal:
            return "refused", type(refusal).__name__
        if len(till.used) != 1:
            self.problems[f"it spends {len(till.used)} times for one release"] = None
        elif till.used[0]:
            self.problems["it draws before it spends"] = None
        return shown(release, ordered=self.case.reach.orders)

    def sample(self, which: int, size: int) -> list[Hashable]:
        noise = Noise()
        return [self.run(which, noise) for _ in range(size)]

    def law(self, which: int) -> replay.Outcomes:
        if which not in self.laws:
            with replay.diverted():
                self.laws[which] = replay.outcomes(lambda noise: self.run(which, noise), self.case.reach)
            if self.laws[which].missed > _MAX_MISSED:  # real draws could not be compared with the rest
                raise replay.NotEnumerable
        return self.laws[which]

    def loss(self, one: int, other: int) -> float | str:
        if self.quantity == "delta":
            return replay.delta_between(self.law(one), self.law(other), self.epsilon)
        separates, rows = self.case.separates, self.case.tables
        kept = None if separates is None else lambda output: not separates(output, rows[one], rows[other])
        return replay.epsilon_between(self.law(one), self.law(other), kept)

    def check_spend(self, measured: float | str) -> None:
        ledger, noise, data = Ledger(":memory:", again=True), Noise(), self.data[0]
        try:
            if isinstance(data, InputError):
                raise data
            release, _ = self.case.mechanism.release(data, ledger=ledger, noise=noise)
        except DunnageError:
            return
        dataset = self.case.policy.dataset
        spends = ledger.statement(dataset).spends
        neighbours = getattr(self.promise.guarantee, "neighbours", Neighbours.ADD_REMOVE)
        stated = self.claimed if self.holds is None else self.holds
        for spend in spends:
            spent = spend.loss(neighbours)
            if spent.epsilon is None:
                continue
            charged = float(spent.delta if self.quantity == "delta" else spent.epsilon)
            # A charge for the stated loss is right: then the loss itself is too large.
            if not any(within(loss, charged, self.quantity) for loss in (measured, stated)):
                self.problems["it spends less than it loses"] = None
        # Spend once more, as for a release under another policy: the two costs must add up.
        ledger.spend(self.promise, replace(data.purpose, policy_digest="0" * 64))
        statement = ledger.statement(dataset)
        each = [spend.loss(statement.neighbours) for spend in statement.spends]
        epsilons = [loss.epsilon for loss in each if loss.epsilon is not None]
        total = statement.total
        if total.epsilon is not None and (
            len(epsilons) < len(each) or total.epsilon < sum(epsilons) or total.delta < sum(loss.delta for loss in each)
        ):
            self.problems["two releases do not add up in the ledger"] = None
        if [spend.promise_digest for spend in spends] != [self.promise.digest()]:
            self.problems["it does not spend what it promises"] = None
        if release.certificate.basis is not self.promise.basis:
            self.problems[f"its certificate says {release.certificate.basis}, its promise {self.promise.basis}"] = None

    def verdict(self, measured: float | str, method: str, confidence: float | None = None) -> Verdict:
        case = self.case
        protects, parts = getattr(self.promise.guarantee, "protects", "record"), (measured, self.quantity, self.holds)
        meaning = case.sentence or sentence_of(protects, self.claimed, *parts, exact=confidence is None)
        if self.problems:  # say first what is lost, then the other problems
            meaning = f"{meaning} In addition, {'; '.join(self.problems)}."
        return Verdict.of(
            case.mechanism_name,
            case.variant,
            self.claimed,
            measured,
            basis=case.basis or self.promise.basis,
            holds=self.holds,
            quantity=self.quantity,
            confidence=confidence,
            method=method,
            expected=case.expected,
            sentence=meaning,
            problems=tuple(self.problems),
        )


def examine(case: NeighbourCase, *, long: bool = False) -> Verdict:
    try:
        work = _Examined(replace(case, draws=max(case.draws, MANY_DRAWS)) if long else case)
        try:
            losses = [(work.loss(*pair), pair) for pair in case.neighbours]
        except replay.NotEnumerable:
            # Bound the loss from below with draws alone.
            granted = float(getattr(work.promise.guarantee, "delta", 0))
            bounds = [
                lower_bound(work.sample(one, _BLIND_DRAWS), work.sample(other, _BLIND_DRAWS), delta=granted)
                for one, other in case.neighbours
            ]
            best = max(bounds, key=lambda bound: bound.epsilon)
            work.check_spend(best.epsilon if work.quantity == "epsilon" else 0.0)
            return work.verdict(
                best.epsilon, f"{best.num_drawn:,} releases sampled, which show {best.event}", CONFIDENCE
            )
        measured, worst = max(losses, key=lambda item: math.inf if isinstance(item[0], str) else item[0])
        for which in worst:
            if agrees(Counter(work.sample(which, work.case.draws)), work.law(which).chances) < UNLIKELY:
                work.problems[_OFF_LAW] = None
        if case.claimed is None:  # otherwise the examined promise is not the one that is spent
            work.check_spend(measured)
        laws, pairs = work.laws.values(), len(case.neighbours)
        missed = max(law.missed for law in laws)
        rest = f", except for a chance of {missed:.0e}" if missed else ""
        method = (
            f"all {sum(map(len, laws)):,} outputs of {pairs:,} pair{'s' * (pairs > 1)} of neighbours enumerated in "
            f"{sum(law.runs for law in laws):,} runs{rest}; {2 * work.case.draws} releases sampled"
        )
        return work.verdict(measured, method)
    except Exception as error:  # a broken mechanism may raise anything; the other examinations go on
        return verdict_on_error(case.mechanism_name, case.variant, error)


def sentence_of(
    protects: str,
    claimed: float | str,
    measured: float | str,
    quantity: str = "epsilon",
    holds: float | str | None = None,
    *,
    exact: bool = True,
) -> str:
    """Say in one sentence what a verdict means for the protected unit; "at least" if not everything was counted."""
    verdict = judge(measured, claimed, quantity)
    if verdict == VOID:
        return f"Nothing is claimed, and nothing keeps one {protects} secret."
    if quantity == "delta":
        more = f"With a chance of {measured:.3g}, a release reveals more about one {protects} than epsilon allows"
        if verdict == HOLDS:
            return f"{more}; {claimed:.3g} is promised."
        stated = f" What holds is {holds:.3g}." if isinstance(holds, float) else ""
        return f"{more}, where {claimed:.3g} is claimed.{stated}"
    if isinstance(measured, str):
        return f"One {protects} can be detected for certain: only one of two neighbours can lead to some releases."
    factor = _factor(measured) if exact else f"at least {_factor(measured, up=False)}"
    allowed = _factor(float(claimed))
    changes = f"One {protects} changes the odds of a release by a factor of {factor}"
    if verdict == FAILS:
        return f"{changes}, where {allowed} is claimed."
    if not exact:
        return f"{changes}; {allowed} is promised."
    if within(measured, float(claimed), quantity) and measured < float(claimed) * 0.999:
        return f"{changes}, less than the {allowed} promised."
    return f"One {protects} changes the odds of any release by a factor of at most {factor}, as promised."


def _factor(epsilon: float, *, up: bool = True) -> str:
    """Write a bound on a factor, rounded to the safe side after the digits that floating point leaves uncertain."""
    number = math.exp(epsilon) if epsilon < 20 else epsilon
    return f"{'' if epsilon < 20 else 'e^'}{bounded_text(read_exact(f'{number:.12g}'), up=up)}"


# Laws by themselves, on larger ranges than whole releases allow. Replaying the drawing code, number by number, gives
# the probabilities of a law; many numbers that it really draws are then compared with them.
def examine_point_law(mechanism: str, law: str, *, last: int, epsilon: Any) -> Verdict:
    """Examine a law on the points of a grid: between any two points, with draws at both ends."""
    made = LAWS[law](last=last, epsilon=Fraction(str(epsilon)), confidence=Fraction(9, 10))

    def sample(point: int, noise: Noise, size: int = 1) -> list[int]:
        return [int(value) for value in made.perturb(np.full(size, point, dtype=np.int64), noise)]

    def first(point: int, noise: Noise) -> int:
        return sample(point, noise)[0]

    with replay.diverted():
        tables = [replay.outcomes(partial(first, point), replay.Reach(steps=last)) for point in range(last + 1)]
    measured = replay.largest(replay.epsilon_between(one, other) for one, other in combinations(tables, 2))
    ends = [(tables[point], sample(point, Noise(), LAW_DRAWS)) for point in (0, last)]
    variant = f"law {law}, {last + 1} points"
    return _law_verdict(mechanism, variant, float(made.epsilon), measured, ends, protects="package")


def examine_count_law(mechanism: str, law: CountLaw, *, reach: int) -> Verdict:
    """Examine a law of noise on counts: between any two counts that differ by one."""
    with replay.diverted():
        masses = replay.outcomes(lambda noise: int(law.draw(noise, 1)[0]), replay.Reach(steps=reach, beyond="left out"))
    inside = range(1 - reach, reach)  # beyond, tails are geometric, so their ratios do not change
    measured = max(abs(math.log(masses.chances[b] / masses.chances[a])) for a, b in pairwise(inside))
    sample = [int(value) for value in law.draw(Noise(), LAW_DRAWS)]
    variant = f"law {law.name}, scale {float(law.scale):.3g}"
    return _law_verdict(mechanism, variant, 1 / float(law.scale), measured, [(masses, sample)], protects="trip")


def _law_verdict(
    mechanism: str,
    variant: str,
    claimed: float,
    measured: float | str,
    samples: Sequence[tuple[replay.Outcomes, list[int]]],
    *,
    protects: str,
) -> Verdict:
    problems = {_OFF_LAW for law, values in samples if agrees(Counter(values), law.chances) < UNLIKELY}
    num = sum(len(law) for law, _ in samples)
    return Verdict.of(
        mechanism,
        variant,
        claimed,
        measured,
        method=f"chances of {num:,} numbers from the drawing code; {len(samples) * LAW_DRAWS:,} numbers sampled",
        sentence=as_sentence(_OFF_LAW) if problems else sentence_of(protects, claimed, measured),
        problems=tuple(problems),
    )


def unreachable_share(scale: Fraction, *, size: int = 2_000) -> float:
    """Return the share of noisy numbers around a count of 1 that no noise makes from a count of 0."""
    # Floating-point noise takes 2^52 irregularly spaced values: a number that one count can give usually lies between
    # two that the next can give (Mironov 2012).
    last = 1 << FLOATING_BITS
    words = np.linspace(last // 1000, last - last // 1000, size).astype(np.int64)
    return 1.0 - float(reachable(floating_noise(words, scale) + 1.0, 0, scale).mean())


def examine_floating_noise(mechanism: str, scale: Fraction) -> Verdict:
    """Examine floating-point noise before rounding: which noisy numbers can come from which count."""
    share = unreachable_share(scale)
    return Verdict.of(
        mechanism,
        "floating-point Laplace",
        1 / float(scale),
        UNBOUNDED if share > 0 else 1 / float(scale),
        basis="claimed",
        holds=UNBOUNDED,
        method="for 2,000 noisy numbers of a count of 1, a search for the words that a count of 0 would need",
        expected=FAILS,
        sentence=f"Of the noisy numbers that a count of 1 gives, {100 * share:.0f} % cannot come from a count of 0: "
        "their last digits reveal the count.",
    )
