# SPDX-License-Identifier: Apache-2.0
"""Guarantees: what adds up, what does not, and what is charged."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from decimal import Decimal, localcontext
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.refusals import refusal, refused

from dunnage.errors import BudgetError, CompositionError, ParameterError
from dunnage.ledger import Ledger
from dunnage.model.guarantees import (
    NO_LOSS,
    UNBOUNDED,
    ApproximateDP,
    Assumption,
    Basis,
    Budget,
    ConcentratedDP,
    Guarantee,
    KAnonymity,
    LocalDP,
    Loss,
    MetricLocalDP,
    Neighbours,
    Promise,
    PureDP,
    SampledDP,
    SpendPurpose,
    WithinCluster,
    WithinPublishedBorders,
    compose,
    concentrated_epsilon,
    exp_upper,
    guarantee_from,
    implies,
    parallel,
    total,
)

ADD, REPLACE = Neighbours.ADD_REMOVE, Neighbours.REPLACE_ONE
HALF, TINY = Fraction(1, 2), Fraction(1, 1000)
ONE = {"protects": "trip", "epsilon": HALF, "neighbours": ADD}
PURE = PureDP(**ONE)
EVERY: list[Guarantee] = [
    KAnonymity(k=5, protects="trip"),
    PURE,
    ApproximateDP(**ONE, delta=TINY),
    SampledDP(**ONE, delta=TINY, beta=Fraction(1, 10)),
    WithinCluster(**ONE, clusters="weight class"),
    WithinPublishedBorders(**ONE),
    LocalDP(**ONE),
    MetricLocalDP(**ONE, distance="km"),
]
WITH_EPSILON = EVERY[1:]
PLAIN = EVERY[1:4]


LOSSES = st.builds(Loss, st.none() | st.fractions(0, 10), st.fractions(0, 1))


@given(LOSSES, LOSSES, LOSSES)
def test_losses_add_up(a: Loss, b: Loss, c: Loss) -> None:
    assert a + b == b + a
    assert (a + b) + c == a + (b + c) == total([a, b, c])
    assert (a + NO_LOSS).epsilon == a.epsilon
    assert a + UNBOUNDED == UNBOUNDED
    assert a.within(a + b) or not a.bounded
    assert a.within(UNBOUNDED)


def test_losses_within_limits_and_in_words() -> None:
    limit = Loss(Fraction(1), TINY)
    assert limit.within(limit)
    for more in (Loss(Fraction(1), 2 * TINY), Loss(Fraction(2), TINY), UNBOUNDED):
        assert not more.within(limit)
    assert total([]) == NO_LOSS
    assert [str(Loss(HALF)), str(Loss(HALF, TINY))] == ["epsilon 0.5", "epsilon 0.5, delta 0.001"]


@settings(deadline=None)
@given(st.fractions(-5, 700, max_denominator=10**9))
def test_the_exponential_is_rounded_up_but_barely(exponent: Fraction) -> None:
    above = exp_upper(exponent)
    with localcontext() as context:
        context.prec = 80
        truth = (Decimal(exponent.numerator) / Decimal(exponent.denominator)).exp()
        assert Decimal(above.numerator) / Decimal(above.denominator) > truth
        assert Decimal(above.numerator) / Decimal(above.denominator) < truth * (1 + Decimal("1e-35"))


def test_add_remove_implies_replace_at_twice_epsilon_and_never_the_reverse() -> None:
    for guarantee in (*PLAIN, LocalDP(**ONE)):
        assert guarantee.plain_loss(ADD).epsilon == HALF
        assert guarantee.plain_loss(REPLACE).epsilon == 1
        replacing = dataclasses.replace(guarantee, neighbours=REPLACE)
        assert replacing.plain_loss(ADD) == UNBOUNDED
        assert replacing.plain_loss(REPLACE).epsilon == HALF
    for guarantee in (EVERY[0], EVERY[4], EVERY[5], EVERY[7]):
        assert guarantee.plain_loss(ADD) == guarantee.plain_loss(REPLACE) == UNBOUNDED


def test_delta_grows_with_the_conversion() -> None:
    for guarantee in PLAIN[1:]:
        loss = guarantee.plain_loss(REPLACE)
        assert loss.epsilon == 1
        assert loss.delta >= TINY * (1 + Fraction(16487212707, 10**10))  # e^0.5 = 1.64872127070...
        assert loss.delta < TINY * (1 + Fraction(16487212708, 10**10))
        everything = dataclasses.replace(guarantee, epsilon=Fraction(8), delta=HALF)
        assert everything.plain_loss(REPLACE) == UNBOUNDED
        assert dataclasses.replace(everything, epsilon=Fraction(10**6)).plain_loss(REPLACE) == UNBOUNDED
    assert ApproximateDP(**ONE, delta=0).plain_loss(REPLACE) == Loss(Fraction(1))
    assert PureDP(**{**ONE, "epsilon": 10**6}).plain_loss(REPLACE) == Loss(Fraction(2 * 10**6))


def test_what_adds_up() -> None:
    for guarantee in EVERY:
        assert compose([guarantee]) == guarantee
    for guarantee in (PURE, EVERY[4], EVERY[6], EVERY[7]):
        assert compose([guarantee] * 3) == dataclasses.replace(guarantee, epsilon=3 * HALF)
    both = compose([PURE, ApproximateDP(**ONE, delta=TINY)])
    assert both == ApproximateDP(protects="trip", neighbours=ADD, epsilon=2 * HALF, delta=TINY)
    together = compose([SampledDP(**ONE, delta=TINY, beta=HALF)] * 2)
    assert type(together) is ApproximateDP  # the rate of a sample says nothing about two samples
    assert (together.epsilon, together.delta) == (1, 2 * TINY)


def test_what_does_not_add_up() -> None:
    big = ApproximateDP(**ONE, delta=HALF)
    for guarantee in (EVERY[0], EVERY[5], big):  # nor does a second release with borders of its own
        refusal(CompositionError, compose, [guarantee, guarantee])
    refusal(ParameterError, compose, [])
    for a, b in itertools.permutations(EVERY, 2):  # different models
        if a in PLAIN and b in PLAIN:
            assert compose([a, b]).plain_loss(ADD).epsilon == 1
        else:
            refusal(CompositionError, compose, [a, b])
    changes = [(one, change) for one in WITH_EPSILON for change in ({"protects": "rider"}, {"neighbours": REPLACE})]
    for first, change in (*changes, (EVERY[4], {"clusters": "town"}), (EVERY[7], {"distance": "minutes"})):
        refusal(CompositionError, compose, [first, dataclasses.replace(first, **change)])


def test_groups_and_parts() -> None:
    rider = PURE.for_group(3, protects="rider")
    assert rider == PureDP(protects="rider", epsilon=3 * HALF, neighbours=ADD)
    assert PURE.for_group(1, protects="trip") == PURE
    for size in (0, -1, 1.5, True):
        refusal(ParameterError, PURE.for_group, size, protects="rider")
    larger = dataclasses.replace(PURE, epsilon=Fraction(2))
    assert parallel([PURE, larger, PURE], disjoint_by="one period per protected record") == larger
    refusal(CompositionError, parallel, [PURE, larger], disjoint_by="")
    refusal(CompositionError, parallel, [PURE, dataclasses.replace(PURE, protects="rider")], disjoint_by="day")
    refusal(ParameterError, parallel, [], disjoint_by="day")
    # A record that is replaced may move to another part: two parts change, and the largest epsilon is not enough.
    for guarantee in (*(g for g in EVERY if g is not PURE), dataclasses.replace(PURE, neighbours=REPLACE)):
        refusal(CompositionError, parallel, [guarantee, guarantee], disjoint_by="day")


def test_implication() -> None:
    for guarantee in EVERY:
        assert implies(guarantee, guarantee)
        assert not implies(guarantee, dataclasses.replace(guarantee, protects="rider"))
    for guarantee in WITH_EPSILON:
        weaker = dataclasses.replace(guarantee, epsilon=Fraction(1))
        assert implies(guarantee, weaker)
        assert not implies(weaker, guarantee)
        assert not implies(EVERY[0], guarantee)
        assert not implies(guarantee, EVERY[0])
    assert not implies(EVERY[0], KAnonymity(k=6, protects="trip"))
    assert implies(KAnonymity(k=6, protects="trip"), EVERY[0])
    for inner in (EVERY[4], EVERY[5], EVERY[7]):
        assert not implies(inner, PureDP(protects="trip", epsilon=10**6, neighbours=ADD))
    replacing = PureDP(protects="trip", epsilon=1, neighbours=REPLACE)
    assert implies(PURE, replacing)
    assert not implies(PURE, dataclasses.replace(replacing, epsilon=Fraction(9, 10)))
    assert not implies(replacing, dataclasses.replace(PURE, epsilon=Fraction(100)))


def promise(**changes: Any) -> Promise:
    given = {"guarantee": PURE, "basis": Basis.PROVED, "mechanism": {"name": "noisy-counts", "epsilon": 0.5}}
    return Promise(**{**given, **changes})


def test_a_promise_costs_what_holds() -> None:
    assert promise().true_loss(ADD) == Loss(HALF)
    assert promise().true_loss(REPLACE) == Loss(Fraction(1))
    assert promise(guarantee=EVERY[0]).true_loss(ADD) == UNBOUNDED
    assert promise(basis=Basis.CLAIMED).true_loss(ADD) == UNBOUNDED
    holds = dataclasses.replace(PURE, epsilon=Fraction(7))
    assert promise(basis=Basis.CLAIMED, holds=holds).true_loss(ADD) == Loss(Fraction(7))
    assert promise(basis=Basis.CLAIMED, holds=EVERY[4]).true_loss(ADD) == UNBOUNDED
    assert promise(basis=Basis.VOID, holds=PURE).true_loss(ADD) == UNBOUNDED
    voided = promise(holds=PURE).voided("seeded noise")
    assert (voided.basis, voided.why, voided.holds) == (Basis.VOID, "seeded noise", None)
    assert voided.true_loss(ADD) == UNBOUNDED


def test_a_promise_as_plain_data() -> None:
    text = {"claim": "0.5", "why": "shown wrong", "warnings": ("delta is large",), "in_clear": ("record count",)}
    full = promise(assumptions=(Assumption("system entropy", "is unpredictable"),), holds=EVERY[2], **text)
    data = json.loads(json.dumps(full.to_dict()))
    assert guarantee_from(data["guarantee"]) == PURE
    assert guarantee_from(data["holds"]) == EVERY[2]
    assert data["assumptions"] == {"system entropy": "is unpredictable"}
    assert "claim" not in promise().to_dict()
    changes = {"basis": Basis.CLAIMED, "guarantee": EVERY[2], "mechanism": {"name": "other"}, "numerics": "idealised"}
    changes |= {"in_clear": ("sizes",), "why": "so", "holds": PURE, "warnings": ("w",)}
    variants = [promise(), *(promise(**{name: value}) for name, value in changes.items())]
    assert len({variant.digest() for variant in variants}) == len(variants), "the digest covers it"
    assert promise().digest() == promise().digest()
    for guarantee in EVERY:
        again = guarantee_from(json.loads(json.dumps(guarantee.to_dict())))
        assert (again, type(again)) == (guarantee, type(guarantee))
        with pytest.raises(dataclasses.FrozenInstanceError):
            guarantee.protects = "x"  # type: ignore[misc]
        with pytest.raises(TypeError):
            type(guarantee)("trip", 5)  # type: ignore[call-arg, misc]


@given(st.fractions(min_value=Fraction(1, 10**6), max_value=100), st.sampled_from(Neighbours))
def test_epsilon_survives_exactly(epsilon: Fraction, neighbours: Neighbours) -> None:
    guarantee = PureDP(protects="trip", epsilon=epsilon, neighbours=neighbours)
    assert guarantee_from(json.loads(json.dumps(guarantee.to_dict()))) == guarantee


def test_what_is_no_guarantee() -> None:
    trip = {"model": "dp", "protects": "trip", "epsilon": 1}
    adding = {**trip, "neighbours": "add-remove"}
    cases = [{}, [1], {"model": "l-diversity", "protects": "trip"}, {"model": None}, {"model": ["dp"]}, trip]
    cases += [{"model": "dp", "protects": "trip"}, {**trip, "neighbours": "swap"}, {**adding, "k": 5}]
    cases += [{**adding, "epsilon": "one"}, {"model": "k-anonymity", "protects": "trip", "k": "5"}]
    refused(guarantee_from, cases)
    refused(lambda k: KAnonymity(k=k, protects="trip"), (1, 0, -5, True, 2.0, "5", None), "2")


def test_fields_are_checked() -> None:
    bad = {"epsilon": (0, -1, float("nan"), float("inf"), "x", None, True, [1]), "protects": ("", " ", 5, None)}
    bad["neighbours"] = ("replace", "", None, 3)
    cases = [(guarantee, name, value) for guarantee in WITH_EPSILON for name in bad for value in bad[name]]
    cases += [(EVERY[4], "clusters", value) for value in (" ", 5, None)]
    cases += [(EVERY[7], "distance", value) for value in (" ", 5, None)]
    cases += [(EVERY[2], "delta", value) for value in (-TINY, 1, 2, "x")]
    cases += [(EVERY[3], "beta", value) for value in (0, 1, -1)]
    budget = Budget(epsilon=0.1, delta="1e-5", neighbours="add-remove")  # type: ignore[arg-type]
    cases += [(budget, "epsilon", -1), (budget, "delta", 1), (budget, "neighbours", "replace")]
    for guarantee, name, value in cases:
        refusal(ParameterError, dataclasses.replace, guarantee, **{name: value})
    for guarantee in WITH_EPSILON:
        assert dataclasses.replace(guarantee, epsilon=0.1).epsilon == Fraction(1, 10)
        assert dataclasses.replace(guarantee, neighbours="replace-one").neighbours is REPLACE
    assert ApproximateDP(**ONE, delta=0).delta == 0
    assert budget.limit == Loss(Fraction(1, 10), Fraction(1, 10**5))
    assert str(budget) == "epsilon 0.1, delta 1e-05 (add-remove)"
    with pytest.raises(TypeError):
        Budget(epsilon=HALF)  # type: ignore[call-arg]


CONCENTRATED = [("1/2", "1e-6"), ("1.825", "1e-6"), ("1e-9", "1e-6"), ("1000", "1e-9"), ("0.03", "0.001")]


def test_concentrated_accounting_is_that_of_an_independent_accountant() -> None:
    from dp_accounting import ZCDpEvent
    from dp_accounting.rdp import RdpAccountant

    for rho, delta in CONCENTRATED:
        ours = concentrated_epsilon(Fraction(rho), Fraction(delta))
        best = 1 + math.sqrt(-math.log(float(delta)) / float(Fraction(rho)))
        orders = [1 + (best - 1) * math.exp(step / 20_000) for step in range(-20_000, 10_000)]
        theirs = RdpAccountant(orders).compose(ZCDpEvent(float(Fraction(rho)))).get_epsilon(float(delta))
        assert float(ours) == pytest.approx(theirs, rel=1e-9)
        assert ours <= theirs * (1 + 1e-12)  # theirs has few orders to choose from
    assert concentrated_epsilon(Fraction(0), Fraction("1e-6")) == 0


def test_concentrated_budgets_cover_the_worst_releases_exactly() -> None:
    # Among epsilon-private releases, randomised response loses most; the loss of several follows from binomials.
    def true_delta(num: int, each: str, epsilon: Fraction) -> Decimal:
        with localcontext() as context:
            context.prec = 60
            odds, factor = Decimal(each).exp(), (Decimal(epsilon.numerator) / Decimal(epsilon.denominator)).exp()
            over = [odds**heads - factor * odds ** (num - heads) for heads in range(num + 1)]
            return sum(math.comb(num, k) * max(term, Decimal(0)) for k, term in enumerate(over)) / (1 + odds) ** num

    for num, each, delta in ((20, "0.3", "1e-6"), (365, "0.1", "1e-6"), (52, "0.5", "0.01")):
        limit = Budget(epsilon=100, delta=delta, neighbours="add-remove", accounting="concentrated")
        stated = limit.spent([Loss(Fraction(each))] * num).epsilon
        assert stated is not None
        assert true_delta(num, each, stated) <= Decimal(delta) < true_delta(num, each, stated * 4 / 5)


def test_concentrated_budgets_need_a_delta_and_count_no_other() -> None:
    refusal(ParameterError, Budget, epsilon=1, neighbours="add-remove", accounting="concentrated")
    refusal(ParameterError, Budget, epsilon=1, delta="1e-6", neighbours="add-remove", accounting="other")
    limit = Budget(epsilon=4, delta="1e-6", neighbours="add-remove", accounting="concentrated")
    assert limit.spent([]) == NO_LOSS
    assert limit.spent([Loss(Fraction(1), Fraction("1e-9"))]) == limit.spent([UNBOUNDED]) == UNBOUNDED
    losses = [Loss(Fraction("0.2"))] * 7
    for budget in (limit, dataclasses.replace(limit, accounting="sum")):
        left, more = budget.left(losses), budget.num_more(losses)
        assert budget.spent([*losses, Loss(left.epsilon)]).within(budget.limit)
        assert not budget.spent([*losses, Loss(left.epsilon + Fraction(1, 10**6))]).within(budget.limit)
        assert budget.spent(losses + losses[:1] * more).within(budget.limit)
        assert not budget.spent(losses + losses[:1] * (more + 1)).within(budget.limit)


def test_gaussian_releases_compose_as_an_independent_accountant_says() -> None:
    """Days of discrete Gaussian noise: rho adds up, also with plain releases; never below the exact curve."""
    from dp_accounting import GaussianDpEvent, SelfComposedDpEvent
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.rdp import RdpAccountant

    delta, rho = Fraction("1e-6"), ConcentratedDP.largest_rho(Fraction(1, 10), Fraction("1e-6"))
    assert Fraction("0.999") < concentrated_epsilon(rho, delta) * 10 <= 1
    one = ConcentratedDP(epsilon="0.1", delta=delta, rho=rho, protects="rider", neighbours="add-remove")
    limit = Budget(epsilon=4, delta=delta, neighbours="add-remove", accounting="concentrated")
    loss = one.plain_loss(Neighbours.ADD_REMOVE)
    sigma = 1 / math.sqrt(2 * float(rho))  # of noise on a count that one rider changes by 1
    for num in (1, 7, 365):
        ours = limit.spent([loss] * num).epsilon
        assert ours is not None
        best = 1 + math.sqrt(-math.log(1e-6) / (num * float(rho)))
        orders = [1 + (best - 1) * math.exp(step / 20_000) for step in range(-20_000, 10_000)]
        event = SelfComposedDpEvent(GaussianDpEvent(sigma), num)
        assert float(ours) == pytest.approx(RdpAccountant(orders).compose(event).get_epsilon(1e-6), rel=1e-9)
        exact = PLDAccountant().compose(event).get_epsilon(1e-6)
        assert 0.7 * float(ours) < exact < float(ours)
        assert compose([one] * num).epsilon == (one.epsilon if num == 1 else ours)
    # A plain release adds half its epsilon squared; what has a delta but no rho is not counted, nor another unit.
    both = limit.spent([loss, Loss(Fraction(1, 2))])
    assert both.epsilon == concentrated_epsilon(rho + Fraction(1, 8), delta)
    assert not limit.spent([loss, Loss(Fraction(1, 2), delta)]).bounded
    refusal(CompositionError, compose, [one, dataclasses.replace(one, protects="trip")])
    assert one.plain_loss(Neighbours.REPLACE_ONE).rho == 4 * rho
    assert guarantee_from(one.to_dict()) == one
    refusal(ParameterError, dataclasses.replace, one, rho=2 * rho)
    assert implies(one, ApproximateDP(epsilon="0.1", delta=delta, protects="rider", neighbours="add-remove"))


def test_a_ledger_keeps_rho(tmp_path: Path) -> None:
    delta = Fraction("1e-6")
    rho = ConcentratedDP.largest_rho(Fraction(1, 10), delta)
    limit = Budget(epsilon="0.3", delta=delta, neighbours="add-remove", accounting="concentrated")
    guarantee = ConcentratedDP(epsilon="0.1", delta=delta, rho=rho, protects="rider", neighbours="add-remove")
    promise = Promise(guarantee=guarantee, basis=Basis.PROVED, mechanism={"name": "toy"})
    allowed = max(num for num in range(1, 20) if concentrated_epsilon(num * rho, delta) <= Fraction("0.3"))
    assert allowed > 3  # the sum of epsilon would allow three
    for day in range(allowed):
        ledger = Ledger(tmp_path / "ledger.sqlite")
        ledger.spend(promise, SpendPurpose(dataset="taps", policy_digest="x", period=f"day {day}", budget=limit))
    counted = Ledger(tmp_path / "ledger.sqlite").statement("taps").counted
    assert counted.epsilon == concentrated_epsilon(allowed * rho, delta)
    again = SpendPurpose(dataset="taps", policy_digest="x", period="one more", budget=limit)
    refusal(BudgetError, Ledger(tmp_path / "ledger.sqlite").spend, promise, again)
    trips = dataclasses.replace(promise, guarantee=dataclasses.replace(guarantee, protects="trip"))
    refusal(BudgetError, Ledger(tmp_path / "ledger.sqlite").spend, trips, again)
