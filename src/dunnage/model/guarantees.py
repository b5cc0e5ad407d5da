# SPDX-License-Identifier: Apache-2.0
"""What a release promises, as plain values.

A guarantee states its model and parameters, what it ``protects`` and against which ``neighbours``. It is a value, not a
claim that it holds: the :class:`Basis` of a :class:`Promise` says that. Others interpret these values; the meaning of
an existing one never changes.

Composition follows three rules. Only equal protection and equal neighbours add up. Adding or removing one record at
epsilon implies replacing one at twice epsilon, never the reverse. A guarantee inside clusters adds only to others
inside the same clusters. Anything else (k-anonymity, borders that each release chooses for itself) refuses to compose,
because no bound is proved.
"""

from __future__ import annotations

import hashlib
import json
import math
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from decimal import ROUND_CEILING, Context, Decimal
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

from dunnage._version import __version__
from dunnage.errors import CompositionError, ParameterError
from dunnage.exact import Exact, decimal_text, exact, plain, shown

MOST_EPSILON = 700  # maximum epsilon: beyond it e to the epsilon is not a double, and no promise either


class Neighbours(StrEnum):
    """Which two datasets must look alike."""

    ADD_REMOVE = "add-remove"
    REPLACE_ONE = "replace-one"


class Basis(StrEnum):
    """How far a printed guarantee can be relied on."""

    PROVED = "proved"
    CLAIMED = "claimed"
    VOID = "void"


@dataclass(frozen=True)
class Loss:
    """A plain (epsilon, delta) loss; ``epsilon`` is None when no bound exists."""

    epsilon: Fraction | None
    delta: Fraction = Fraction(0)
    stated_rho: Fraction | None = None  # of a release that is rho-concentrated by its own noise

    @property
    def bounded(self) -> bool:
        return self.epsilon is not None

    @property
    def rho(self) -> Fraction | None:
        """Its zero-concentrated loss: the stated one, or half the square of a plain epsilon; None if there is none."""
        if self.stated_rho is not None:
            return self.stated_rho
        return None if self.epsilon is None or self.delta else self.epsilon**2 / 2

    def __add__(self, other: Loss) -> Loss:
        if self.epsilon is None or other.epsilon is None:
            return UNBOUNDED
        return Loss(self.epsilon + other.epsilon, self.delta + other.delta)

    def within(self, limit: Loss) -> bool:
        if limit.epsilon is None:
            return True
        return self.epsilon is not None and self.epsilon <= limit.epsilon and self.delta <= limit.delta

    def __str__(self) -> str:
        if self.epsilon is None:
            return "no bound"
        text = f"epsilon {decimal_text(self.epsilon, up=True)}"
        return text + (f", delta {decimal_text(self.delta, up=True)}" if self.delta else "")


NO_LOSS = Loss(Fraction(0))
UNBOUNDED = Loss(None)
_LARGEST_EXPONENT = 700


def exp_upper(exponent: Fraction) -> Fraction:
    """Return a rational number just above e to the exponent (outward rounding, 40 digits)."""
    context = Context(prec=40)
    numerator, denominator = Decimal(exponent.numerator), Decimal(exponent.denominator)
    above = context.divide(numerator, denominator).next_plus(context)
    return Fraction(above.exp(context).next_plus(context))


def _largest(fits: Callable[[int], bool], most: int) -> int:
    """Return the largest number up to ``most`` that fits, if every smaller one does; 0 if none does."""
    low, high = 0, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def concentrated_epsilon(rho: Fraction, delta: Fraction) -> Fraction:
    """Return an epsilon, rounded up, such that rho-concentrated privacy is (epsilon, delta)-private.

    Bun and Steinke 2016 (zero-concentrated privacy); Canonne, Kamath and Steinke 2020, proposition 12, holds for every
    order above 1. Doubles only choose the order, near the best one; the bound itself is computed with 50 digits.
    """
    if not rho:
        return Fraction(0)
    spread, log_delta = float(rho), math.log(delta.numerator) - math.log(delta.denominator)

    def bound(log_excess: float) -> float:  # of the order 1 + excess
        excess = math.exp(log_excess)
        return (1 + excess) * spread - math.log1p(1 / excess) - (log_delta + math.log1p(excess)) / excess

    low, high = -40.0, 40.0  # the bound falls, then rises
    for _ in range(120):
        third = (high - low) / 3
        low, high = (low + third, high) if bound(low + third) > bound(high - third) else (low, high - third)
    context = Context(prec=50)
    excess = Decimal(math.exp(low))
    order = context.add(excess, 1)

    def ratio(number: Fraction) -> Decimal:
        return context.divide(Decimal(number.numerator), Decimal(number.denominator))

    rest = context.subtract(ratio(delta).ln(context).copy_negate(), order.ln(context))
    epsilon = context.add(context.multiply(order, ratio(rho)), context.divide(rest, excess))
    epsilon = context.add(epsilon, context.divide(excess, order).ln(context))
    # Each step errs in the 50th digit of numbers below 10^18, so this covers them all.
    above = context.add(epsilon, max(abs(epsilon), Decimal(1)) * Decimal("1e-30"))
    return max(Fraction(Context(prec=25, rounding=ROUND_CEILING).plus(above)), Fraction(0))


@dataclass(frozen=True, kw_only=True)
class _Value:
    model: ClassVar[str]
    protects: str

    def __post_init__(self) -> None:
        _check_text(self, "protects", "what it protects", '"package"')

    def to_dict(self) -> dict[str, object]:
        stated: dict[str, object] = {"model": self.model}
        for item in fields(self):
            value = getattr(self, item.name)
            if value is not None:
                stated[item.name] = plain(value) if isinstance(value, Fraction) else value
        return {name: str(value) if isinstance(value, StrEnum) else value for name, value in stated.items()}

    def plain_loss(self, neighbours: Neighbours) -> Loss:
        """Return the (epsilon, delta) loss between the given neighbours; by default there is no bound."""
        return UNBOUNDED


def _check_text(owner: object, name: str, says: str, example: str) -> None:
    value = getattr(owner, name)
    if not isinstance(value, str) or not value.strip():
        raise ParameterError(f"a guarantee must say {says}. Got {value!r}. Write, for example, {example}.")


def _set_neighbours(owner: object) -> None:
    value: Any = owner.neighbours  # type: ignore[attr-defined]
    if value not in tuple(Neighbours):
        raise ParameterError(f"neighbours must be {' or '.join(Neighbours)}. Got {value!r}.")
    object.__setattr__(owner, "neighbours", Neighbours(value))


def _set_amount(owner: object, name: str, *, positive: bool = True) -> None:
    value: Exact = getattr(owner, name)
    amount = exact(value, what=name)
    if amount < 0 or (positive and amount == 0):
        need = "more than 0" if positive else "at least 0"
        raise ParameterError(f"{name} must be {need}. Got {decimal_text(amount)}.")
    object.__setattr__(owner, name, amount)


def _set_probability(owner: object, name: str) -> None:
    _set_amount(owner, name, positive=False)
    if getattr(owner, name) >= 1:
        raise ParameterError(f"{name} must be below 1. Got {getattr(owner, name)}. Choose a small probability.")


@dataclass(frozen=True, kw_only=True)
class KAnonymity(_Value):
    """Each released record looks like at least k - 1 others. It does not compose.

    Examples
    --------
    >>> KAnonymity(k=5, protects="package").to_dict()
    {'model': 'k-anonymity', 'protects': 'package', 'k': 5}
    """

    model: ClassVar[str] = "k-anonymity"
    k: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.k, bool) or not isinstance(self.k, int) or self.k < 2:
            raise ParameterError(f"k must be a whole number of at least 2. Got {shown(self.k)}. Try k = 5.")


@dataclass(frozen=True, kw_only=True)
class _Epsilon(_Value):
    is_plain: ClassVar[bool] = False  # whether it bounds a plain loss
    epsilon: Fraction
    neighbours: Neighbours

    def __post_init__(self) -> None:
        super().__post_init__()
        _set_amount(self, "epsilon")
        _set_neighbours(self)

    def plain_loss(self, neighbours: Neighbours) -> Loss:
        if not self.is_plain:
            return UNBOUNDED
        delta: Fraction = getattr(self, "delta", Fraction(0))
        if self.neighbours == neighbours:
            return Loss(self.epsilon, delta)
        if self.neighbours is Neighbours.REPLACE_ONE:
            return UNBOUNDED  # replacing keeps the number of records, so it says nothing about adding one
        # To replace is to remove and to add: (2 epsilon, (1 + e^epsilon) delta). A delta of 1 promises nothing.
        if delta and self.epsilon > _LARGEST_EXPONENT:
            return UNBOUNDED
        delta = (1 + exp_upper(self.epsilon)) * delta if delta else delta
        return Loss(2 * self.epsilon, delta) if delta < 1 else UNBOUNDED


@dataclass(frozen=True, kw_only=True)
class PureDP(_Epsilon):
    """Epsilon-differential privacy between the stated neighbours."""

    model: ClassVar[str] = "dp"
    is_plain = True

    def for_group(self, size: int, *, protects: str) -> PureDP:
        """Return what holds for a unit of at most ``size`` records: a rider with m trips has m times epsilon."""
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ParameterError(f"the group size must be at least 1. Got {size}. Give the maximum number of records.")
        return replace(self, epsilon=self.epsilon * size, protects=protects)


@dataclass(frozen=True, kw_only=True)
class ApproximateDP(_Epsilon):
    """(epsilon, delta)-differential privacy between the stated neighbours."""

    model: ClassVar[str] = "dp"
    is_plain = True
    delta: Fraction

    def __post_init__(self) -> None:
        super().__post_init__()
        _set_probability(self, "delta")


@dataclass(frozen=True, kw_only=True)
class ConcentratedDP(ApproximateDP):
    """rho-zero-concentrated differential privacy, and so (epsilon, delta) between the stated neighbours.

    Examples
    --------
    >>> rho = ConcentratedDP.largest_rho(Fraction(1), Fraction("1e-6"))
    >>> f"{float(rho):.5f}"
    '0.02436'
    """

    model: ClassVar[str] = "concentrated-dp"
    rho: Fraction

    def __post_init__(self) -> None:
        super().__post_init__()
        _set_amount(self, "rho")
        if not self.delta or concentrated_epsilon(self.rho, self.delta) > self.epsilon:
            raise ParameterError("rho of a concentrated guarantee must imply its epsilon and delta. Lower rho.")

    @staticmethod
    def largest_rho(epsilon: Fraction, delta: Fraction) -> Fraction:
        """Return the largest rho, in steps of a millionth of it, that implies epsilon and delta."""
        unit = epsilon**2 / 2  # rho is below epsilon, and for small epsilon far below its square
        while concentrated_epsilon(unit, delta) > epsilon:
            unit /= 2
        unit = Fraction(f"{float(unit):.6g}") / 10**6
        return unit * _largest(lambda steps: concentrated_epsilon(steps * unit, delta) <= epsilon, 4 * 10**6)

    def plain_loss(self, neighbours: Neighbours) -> Loss:
        if self.neighbours == neighbours:
            return Loss(self.epsilon, self.delta, self.rho)
        if self.neighbours is Neighbours.REPLACE_ONE:
            return UNBOUNDED
        rho = 4 * self.rho  # two steps apart: rho grows with the square
        return Loss(concentrated_epsilon(rho, self.delta), self.delta, rho)


@dataclass(frozen=True, kw_only=True)
class SampledDP(ApproximateDP):
    """(epsilon, delta)-differential privacy that rests on a fresh, secret sample of rate beta."""

    model: ClassVar[str] = "sampled-dp"
    beta: Fraction

    def __post_init__(self) -> None:
        super().__post_init__()
        _set_amount(self, "beta")
        _set_probability(self, "beta")


@dataclass(frozen=True, kw_only=True)
class WithinCluster(_Epsilon):
    """Epsilon between values of one cluster; the cluster of each record is public."""

    model: ClassVar[str] = "within-cluster"
    clusters: str

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_text(self, "clusters", "which clusters it holds in", '"the public borders 0, 100, 500 kg"')


@dataclass(frozen=True, kw_only=True)
class WithinPublishedBorders(_Epsilon):
    """Epsilon between values that the published, privately chosen borders do not separate."""

    model: ClassVar[str] = "within-published-borders"


@dataclass(frozen=True, kw_only=True)
class LocalDP(_Epsilon):
    """Epsilon between any two values that a device may have; for one report."""

    model: ClassVar[str] = "local-dp"
    is_plain = True


@dataclass(frozen=True, kw_only=True)
class MetricLocalDP(_Epsilon):
    """Epsilon per unit of distance between two values that a device may have."""

    model: ClassVar[str] = "metric-local-dp"
    distance: str

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_text(self, "distance", "what its unit of distance is", '"one kilometre"')


Guarantee = (
    KAnonymity
    | PureDP
    | ApproximateDP
    | ConcentratedDP
    | SampledDP
    | WithinCluster
    | WithinPublishedBorders
    | LocalDP
    | MetricLocalDP
)


def _named(guarantee: Guarantee) -> str:
    neighbours = getattr(guarantee, "neighbours", None)
    return f"{guarantee.model} for one {guarantee.protects}" + (f", {neighbours} neighbours" if neighbours else "")


_WHY_NOT = {
    "k-anonymity": "two k-anonymous releases of the same records can together single one out",
    "within-published-borders": "each release publishes its own borders",
}


def compose(guarantees: Sequence[Guarantee]) -> Guarantee:
    """Return what several releases of the same records promise together.

    Raises
    ------
    CompositionError
        If they protect different things, have different neighbours, or no bound is proved.

    Examples
    --------
    >>> one = PureDP(epsilon=Fraction(1, 2), protects="trip", neighbours=Neighbours.ADD_REMOVE)
    >>> compose([one, one]).epsilon
    Fraction(1, 1)
    """
    first = _comparable(guarantees)
    if len(guarantees) == 1:
        return first
    if isinstance(first, KAnonymity | WithinPublishedBorders):
        raise CompositionError(f"{first.model} does not compose: {_WHY_NOT[first.model]}. State each separately.")
    if isinstance(first, ConcentratedDP) and all(type(g) is ConcentratedDP for g in guarantees):
        rho = sum((g.rho for g in guarantees if isinstance(g, ConcentratedDP)), Fraction(0))
        delta = max(g.delta for g in guarantees if isinstance(g, ConcentratedDP))
        return replace(first, rho=rho, delta=delta, epsilon=concentrated_epsilon(rho, delta))
    epsilon = sum((g.epsilon for g in guarantees if isinstance(g, _Epsilon)), Fraction(0))
    if all(type(g) is type(first) for g in guarantees) and not isinstance(first, ApproximateDP):
        return replace(first, epsilon=epsilon)
    if not all(isinstance(g, PureDP | ApproximateDP) for g in guarantees):
        models = " and ".join(sorted({g.model for g in guarantees}))
        raise CompositionError(f"{models} do not add up: no common bound is proved. State each guarantee separately.")
    delta = sum((g.delta for g in guarantees if isinstance(g, ApproximateDP)), Fraction(0))
    if delta >= 1:
        raise CompositionError(f"deltas that add up to {decimal_text(delta)} promise nothing. Use smaller deltas.")
    return ApproximateDP(epsilon=epsilon, delta=delta, protects=first.protects, neighbours=first.neighbours)


def _comparable(guarantees: Sequence[Guarantee]) -> Guarantee:
    """Check that guarantees are about the same unit, neighbours and scope, and return the first."""
    if not guarantees:
        raise ParameterError("compose needs at least one guarantee. Got none.")
    first = guarantees[0]
    scope = [
        (getattr(g, "neighbours", None), getattr(g, "clusters", None), getattr(g, "distance", None)) for g in guarantees
    ]
    for other, its_scope in zip(guarantees, scope, strict=True):
        if other.protects != first.protects or its_scope != scope[0]:
            raise CompositionError(
                f"{_named(first)} and {_named(other)} are about different things and do not add up. Convert "
                "add-remove to replace-one first (twice epsilon), or state each guarantee separately."
            )
    return first


def parallel(guarantees: Sequence[PureDP], *, disjoint_by: str) -> PureDP:
    """Return what releases of disjoint parts promise together: the largest epsilon."""
    if not disjoint_by:
        raise CompositionError("parallel composition needs the public rule that separates units: disjoint_by.")
    first = _comparable(guarantees)
    if not all(isinstance(g, PureDP) and g.neighbours is Neighbours.ADD_REMOVE for g in guarantees):
        # A replaced record may move to another part, and then two parts change.
        raise CompositionError(
            f"parallel composition is proved only for plain epsilon and add-remove neighbours. Got {_named(first)}."
        )
    return max(guarantees, key=lambda g: g.epsilon)


def implies(stronger: Guarantee, weaker: Guarantee) -> bool:
    """Return whether one guarantee, where it holds, proves the other.

    Examples
    --------
    >>> implies(KAnonymity(k=10, protects="package"), KAnonymity(k=5, protects="package"))
    True
    """
    if stronger.protects != weaker.protects:
        return False
    if isinstance(stronger, KAnonymity) or isinstance(weaker, KAnonymity):
        return isinstance(stronger, KAnonymity) and isinstance(weaker, KAnonymity) and stronger.k >= weaker.k
    if isinstance(weaker, PureDP | ApproximateDP):
        limit = Loss(weaker.epsilon, getattr(weaker, "delta", Fraction(0)))
        return stronger.plain_loss(weaker.neighbours).within(limit)
    same_scope = type(stronger) is type(weaker) and replace(stronger, epsilon=weaker.epsilon) == weaker
    return same_scope and stronger.epsilon <= weaker.epsilon


@dataclass(frozen=True)
class Assumption:
    """Something that a guarantee rests on; its name is fixed so that it can be looked up."""

    name: str
    says: str


_ASSUMPTIONS: dict[str, str] = tomllib.loads(Path(__file__).with_name("assumptions.toml").read_text(encoding="utf-8"))


def _assumed(name: str) -> Assumption:
    return Assumption(name, _ASSUMPTIONS[name])


PUBLIC_DOMAIN = _assumed("public domain")
RECORDS_NOT_PERSONS = _assumed("one record per protected unit")
COUNTS_PERSONS = "persons told apart"  # name of the assumption of a k that counts persons, not records
DATA_DEPENDENT_REFUSAL = _assumed("refusal may depend on data")
CHOICE_DEPENDS_ON_DATA = _assumed("class borders depend on data")
SINGLE_RELEASE = _assumed("released once")
SYSTEM_ENTROPY = _assumed("system entropy")
ONE_PERIOD_PER_RECORD = _assumed("one period per protected record")
PUBLIC_COUNT = _assumed("public record count")
PUBLIC_COLUMNS = _assumed("public columns are known")
PUBLIC_GROUPS = _assumed("public groups")
PUBLIC_BORDERS = _assumed("public cluster borders")
SHOWN_CLUSTERS = _assumed("clusters are shown")
SECRET_SAMPLE = _assumed("secret sample")
FRESH_SAMPLE = _assumed("sample drawn afresh")
CHECKED_FILE = _assumed("checked file")
EPSILON_PER_RECORD = _assumed("epsilon per record")
EPSILON_PER_TRIP = _assumed("epsilon per trip")
BOUNDED_CONTRIBUTION = _assumed("bounded contribution")
PUBLIC_FEATURES = _assumed("public features")
PUBLIC_TIERS = _assumed("public tiers")
EVERY_SLOT = _assumed("every slot reports")
NO_METADATA = _assumed("network not covered")
KEYED_STREAMS = _assumed("keyed streams")
STREAMS_NOTE = "noise.md#streams-of-one-key"
KEYED_CHOICE = _assumed("keyed choice of trips")
REPORT_ASSUMPTIONS = (PUBLIC_DOMAIN, PUBLIC_TIERS, EVERY_SLOT, NO_METADATA, SYSTEM_ENTROPY)  # of every report
SENT_BY = {  # who sent reports to a collector, if known
    "gateway": _assumed("senders are gateways"),
    "token": _assumed("senders have tokens"),
    "unlinkable": _assumed("senders are unlinkable"),
}
RANDOM_SLOTS = _assumed("random slots")
CLAMPED = _assumed("values within domains")
HONEST_REPORTS = _assumed("honest reports")
INDEPENDENT_TIERS = _assumed("tiers independent of values")
WEIGHED_VALUES = _assumed("values weigh tiers by precision")
PROJECT = "dunnage"


@dataclass(frozen=True, kw_only=True)
class Promise:
    """What a mechanism states before it sees data."""

    guarantee: Guarantee  # the stated guarantee
    basis: Basis  # whether it is proved, only claimed, or void
    mechanism: Mapping[str, object]  # name and all parameters, as plain data
    assumptions: tuple[Assumption, ...] = ()  # what the guarantee rests on
    in_clear: tuple[str, ...] = ()  # what the release shows unchanged
    numerics: str = "exact"  # how random numbers are made and rounded
    claim: str = ""  # the published claim, if it differs from the stated guarantee
    holds: Guarantee | None = None  # what really holds if the basis is not `proved`; None means that there is no bound
    why: str = ""  # why the basis is not `proved`
    warnings: tuple[str, ...] = ()
    # the proofs in `docs/proofs`, or the notes on what the published form does not keep
    notes: tuple[str, ...] = field(default=(), compare=False)

    def __repr__(self) -> str:
        terms = ", ".join(f"{name} {value}" for name, value in self.guarantee.to_dict().items() if name != "neighbours")
        return f"Promise({terms}; {self.basis})"

    def true_loss(self, neighbours: Neighbours) -> Loss:
        """Return the loss to charge: that of what really holds, never of what is only claimed."""
        if self.basis is Basis.VOID:
            return UNBOUNDED
        proved = self.guarantee if self.basis is Basis.PROVED else self.holds
        return proved.plain_loss(neighbours) if proved is not None else UNBOUNDED

    def voided(self, why: str) -> Promise:
        """Return the same promise marked as not private."""
        return replace(self, basis=Basis.VOID, holds=None, why=why)

    def with_streams(self) -> Promise:
        """Return the promise of rows whose noise comes from streams of one key: docs/proofs/noise.md."""
        assumptions, notes = (*self.assumptions, KEYED_STREAMS), (*self.notes, *([STREAMS_NOTE] if self.notes else []))
        return replace(self, assumptions=assumptions, notes=notes)

    def to_dict(self) -> dict[str, object]:
        """Return the promise as plain data, with the place of its proof, for certificates."""
        sections = [f"docs/proofs/{note}" for note in self.notes]
        proof = {"project": PROJECT, "version": __version__, "sections": sections}
        return {**self._stated(), **({"proof": proof} if sections else {})}

    def _stated(self) -> dict[str, object]:
        words = {"claim": self.claim, "why": self.why, "warnings": list(self.warnings)}
        return {
            "guarantee": self.guarantee.to_dict(),
            "basis": str(self.basis),
            "mechanism": dict(self.mechanism),
            "assumptions": {a.name: a.says for a in self.assumptions},
            "in_clear": list(self.in_clear),
            "numerics": self.numerics,
            **{name: value for name, value in words.items() if value},
            **({"holds": self.holds.to_dict()} if self.holds is not None else {}),
        }

    def digest(self) -> str:
        """Return the SHA-256 of the promise in canonical form, without the place of its proof."""
        text = json.dumps(self._stated(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()


class Accounting(StrEnum):
    """How the losses of several releases are put together."""

    SUM = "sum"
    CONCENTRATED = "concentrated"


_STEP = Fraction(1, 10**6)  # what is left under concentrated accounting is stated in these
_MAX_MORE = 10_000


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The maximum loss of one dataset over all its releases, between the stated neighbours.

    ``sum`` adds up epsilon and delta. ``concentrated`` adds up rho (half the square of epsilon, or what a release with
    Gaussian noise states), and says what that amounts to at the budget's delta: less than the sum for many small
    releases, more for a few large ones.
    """

    epsilon: Fraction
    delta: Fraction = Fraction(0)
    neighbours: Neighbours
    accounting: Accounting = Accounting.SUM

    def __post_init__(self) -> None:
        _set_amount(self, "epsilon")
        _set_probability(self, "delta")
        _set_neighbours(self)
        if self.accounting not in tuple(Accounting):
            raise ParameterError(f"accounting must be {' or '.join(Accounting)}. Got {self.accounting!r}.")
        object.__setattr__(self, "accounting", Accounting(self.accounting))
        if self.accounting is Accounting.CONCENTRATED and not self.delta:
            raise ParameterError("concentrated accounting needs a delta above 0. Write, for example, delta = 1e-6.")

    @property
    def limit(self) -> Loss:
        return Loss(self.epsilon, self.delta)

    def spent(self, losses: Sequence[Loss]) -> Loss:
        """Return what releases with these losses amount to, as this budget counts them."""
        if self.accounting is Accounting.SUM or not losses:
            return total(losses)
        # Only rho may decide: whether the sum would still fit must not, or what is spent next could choose the rule.
        known = [loss.rho for loss in losses if loss.rho is not None]
        if len(known) < len(losses):
            return UNBOUNDED
        return Loss(concentrated_epsilon(sum(known, Fraction(0)), self.delta), self.delta)

    def left(self, losses: Sequence[Loss]) -> Loss:
        """Return the largest loss that one more release may have, rounded down."""
        spent = self.spent(losses)
        if spent.epsilon is None or not spent.within(self.limit):
            return NO_LOSS
        if self.accounting is Accounting.SUM:
            return Loss(self.epsilon - spent.epsilon, self.delta - spent.delta)
        steps = _largest(lambda steps: self.spent([*losses, Loss(steps * _STEP)]).within(self.limit), 10**10)
        return Loss(steps * _STEP)

    def num_more(self, losses: Sequence[Loss]) -> int:
        """Return how many more releases like the last one fit, up to 10,000; there must be one."""
        return _largest(lambda num: self.spent([*losses, *[losses[-1]] * num]).within(self.limit), _MAX_MORE)

    def __str__(self) -> str:
        concentrated = ", concentrated" if self.accounting is Accounting.CONCENTRATED else ""
        return f"{self.limit} ({self.neighbours}{concentrated})"


@dataclass(frozen=True, kw_only=True)
class SpendPurpose:
    """What a spend is for: the dataset and period that pay, under which policy and budget."""

    dataset: str
    policy_digest: str
    # Of columns and rules as they were understood, with defaults: with the mechanism it says which releases repeat.
    schema_digest: str | None = None
    period: str | None = None
    budget: Budget | None = None
    allow_unbounded: bool = False  # the policy permits releases that no budget can bound
    # Digests of the rows under a key, as they are and in any order: by them a ledger knows rows again.
    row_digests: Callable[[bytes], tuple[str, str] | None] | None = field(default=None, repr=False, compare=False)


_MODELS: Mapping[str, type] = {
    "k-anonymity": KAnonymity,
    "concentrated-dp": ConcentratedDP,
    "sampled-dp": SampledDP,
    "within-cluster": WithinCluster,
    "within-published-borders": WithinPublishedBorders,
    "local-dp": LocalDP,
    "metric-local-dp": MetricLocalDP,
}


def guarantee_from(data: Mapping[str, object]) -> Guarantee:
    if not isinstance(data, Mapping):
        raise ParameterError(f"a guarantee must be a table of its parameters. Got {type(data).__name__}.")
    values = dict(data)
    model = values.pop("model", None)
    kind = (ApproximateDP if "delta" in values else PureDP) if model == "dp" else _MODELS.get(str(model))
    if kind is None:
        raise ParameterError(f"unknown guarantee model {model!r}. Use one of dp, {', '.join(_MODELS)}.")
    try:
        guarantee: Guarantee = kind(**values)
    except (TypeError, ValueError) as error:
        raise ParameterError(f"the {model} guarantee is malformed: {error}") from None
    return guarantee


def total(losses: Iterable[Loss]) -> Loss:
    return sum(losses, NO_LOSS)
