# SPDX-License-Identifier: Apache-2.0
"""Guarantees: what adds up, what does not, and what is charged."""

from __future__ import annotations

import dataclasses
import itertools
import json
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dunnage.errors import CompositionError, ParameterError
from dunnage.model.guarantees import (
    NO_LOSS,
    UNBOUNDED,
    ApproximateDP,
    Assumption,
    Basis,
    Budget,
    Guarantee,
    KAnonymity,
    LocalDP,
    Loss,
    MetricLocalDP,
    Neighbours,
    Promise,
    PureDP,
    SampledDP,
    WithinCluster,
    WithinPublishedBorders,
    compose,
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


def name_of(guarantee: Guarantee) -> str:
    return type(guarantee).__name__


# --- losses -------------------------------------------------------------------------------------------------------

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
    words = [str(Loss(HALF)), str(Loss(HALF, TINY)), str(UNBOUNDED)]
    assert words == ["epsilon 0.5", "epsilon 0.5, delta 0.001", "no bound"]


@settings(deadline=None)
@given(st.fractions(-5, 700, max_denominator=10**9))
def test_the_exponential_is_rounded_up_but_barely(exponent: Fraction) -> None:
    above = exp_upper(exponent)
    with localcontext() as context:
        context.prec = 80
        truth = (Decimal(exponent.numerator) / Decimal(exponent.denominator)).exp()
        assert Decimal(above.numerator) / Decimal(above.denominator) > truth
        assert Decimal(above.numerator) / Decimal(above.denominator) < truth * (1 + Decimal("1e-35"))


# --- what each implies --------------------------------------------------------------------------------------------


def test_add_remove_implies_replace_at_twice_epsilon_and_never_the_reverse() -> None:
    for guarantee in (*PLAIN, LocalDP(**ONE)):
        assert guarantee.plain_loss(ADD).epsilon == HALF
        assert guarantee.plain_loss(REPLACE).epsilon == 1
        replacing = dataclasses.replace(guarantee, neighbours=REPLACE)
        assert replacing.plain_loss(ADD) == UNBOUNDED
        assert replacing.plain_loss(REPLACE).epsilon == HALF
    for guarantee in (EVERY[0], EVERY[4], EVERY[5], EVERY[7]):
        assert guarantee.plain_loss(ADD) == guarantee.plain_loss(REPLACE) == UNBOUNDED


@pytest.mark.parametrize("guarantee", PLAIN[1:], ids=name_of)
def test_delta_grows_with_the_conversion(guarantee: ApproximateDP) -> None:
    loss = guarantee.plain_loss(REPLACE)
    assert loss.epsilon == 1
    assert loss.delta >= TINY * (1 + Fraction(16487212707, 10**10))  # e^0.5 = 1.64872127070...
    assert loss.delta < TINY * (1 + Fraction(16487212708, 10**10))
    everything = dataclasses.replace(guarantee, epsilon=Fraction(8), delta=HALF)
    assert everything.plain_loss(REPLACE) == UNBOUNDED
    assert dataclasses.replace(everything, epsilon=Fraction(10**6)).plain_loss(REPLACE) == UNBOUNDED


def test_a_delta_of_zero_stays_zero() -> None:
    assert ApproximateDP(**ONE, delta=0).plain_loss(REPLACE) == Loss(Fraction(1))
    assert PureDP(**{**ONE, "epsilon": 10**6}).plain_loss(REPLACE) == Loss(Fraction(2 * 10**6))


# --- composition --------------------------------------------------------------------------------------------------


def test_equal_guarantees_add_up() -> None:
    for guarantee in EVERY:
        assert compose([guarantee]) == guarantee
    for guarantee in (PURE, EVERY[4], EVERY[6], EVERY[7]):
        assert compose([guarantee] * 3) == dataclasses.replace(guarantee, epsilon=3 * HALF)


def test_deltas_add_up() -> None:
    both = compose([PURE, ApproximateDP(**ONE, delta=TINY)])
    assert both == ApproximateDP(protects="trip", neighbours=ADD, epsilon=2 * HALF, delta=TINY)
    sampled = SampledDP(**ONE, delta=TINY, beta=HALF)
    together = compose([sampled, sampled])
    assert type(together) is ApproximateDP  # the rate of a sample says nothing about two samples
    assert (together.epsilon, together.delta) == (1, 2 * TINY)
    big = ApproximateDP(**ONE, delta=HALF)
    with pytest.raises(CompositionError, match="nothing is promised"):
        compose([big, big])


def test_some_do_not_compose() -> None:
    for guarantee in (EVERY[0], EVERY[5]):  # nor does a second release with borders of its own
        with pytest.raises(CompositionError, match="does not compose"):
            compose([guarantee, guarantee])
    with pytest.raises(ParameterError, match="at least one guarantee"):
        compose([])


def test_different_models_compose_only_if_both_are_plain() -> None:
    for a, b in itertools.permutations(EVERY, 2):
        if a in PLAIN and b in PLAIN:
            assert compose([a, b]).plain_loss(ADD).epsilon == 1
        else:
            with pytest.raises(CompositionError):
                compose([a, b])


def test_different_units_neighbours_and_scopes_do_not_add_up() -> None:
    changes = [(one, change) for one in WITH_EPSILON for change in ({"protects": "rider"}, {"neighbours": REPLACE})]
    for first, change in (*changes, (EVERY[4], {"clusters": "town"}), (EVERY[7], {"distance": "minutes"})):
        with pytest.raises(CompositionError, match="speak of different things"):
            compose([first, dataclasses.replace(first, **change)])


def test_a_group_pays_for_each_record() -> None:
    rider = PURE.for_group(3, protects="rider")
    assert rider == PureDP(protects="rider", epsilon=3 * HALF, neighbours=ADD)
    assert PURE.for_group(1, protects="trip") == PURE
    for size in (0, -1, 1.5, True):
        with pytest.raises(ParameterError, match="group size"):
            PURE.for_group(size, protects="rider")


def test_parallel_takes_the_largest_under_a_named_rule() -> None:
    larger = dataclasses.replace(PURE, epsilon=Fraction(2))
    assert parallel([PURE, larger, PURE], disjoint_by="one period per protected record") == larger
    with pytest.raises(CompositionError, match="needs the public rule"):
        parallel([PURE, larger], disjoint_by="")
    with pytest.raises(CompositionError, match="different things"):
        parallel([PURE, dataclasses.replace(PURE, protects="rider")], disjoint_by="day")
    with pytest.raises(ParameterError, match="at least one"):
        parallel([], disjoint_by="day")

    # A record that is replaced may move to another part: two parts change, and the largest epsilon is not enough.
    for guarantee in (*(g for g in EVERY if g is not PURE), dataclasses.replace(PURE, neighbours=REPLACE)):
        with pytest.raises(CompositionError, match="plain epsilon and add-remove neighbours only"):
            parallel([guarantee, guarantee], disjoint_by="day")


# --- implication --------------------------------------------------------------------------------------------------


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


def test_implication_between_neighbours() -> None:
    replacing = PureDP(protects="trip", epsilon=1, neighbours=REPLACE)
    assert implies(PURE, replacing)
    assert not implies(PURE, dataclasses.replace(replacing, epsilon=Fraction(9, 10)))
    assert not implies(replacing, dataclasses.replace(PURE, epsilon=Fraction(100)))


# --- promises -----------------------------------------------------------------------------------------------------


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
    full = promise(
        assumptions=(Assumption("system entropy", "is unpredictable"),),
        in_clear=("record count",),
        claim="0.5",
        holds=EVERY[2],
        why="shown wrong",
        warnings=("delta is large",),
    )
    data = json.loads(json.dumps(full.to_dict()))
    assert guarantee_from(data["guarantee"]) == PURE
    assert guarantee_from(data["holds"]) == EVERY[2]
    assert data["assumptions"] == {"system entropy": "is unpredictable"}
    assert "claim" not in promise().to_dict()


def test_the_digest_of_a_promise_covers_it() -> None:
    changes = {"basis": Basis.CLAIMED, "guarantee": EVERY[2], "mechanism": {"name": "other"}, "numerics": "idealised"}
    changes |= {"in_clear": ("sizes",), "why": "so", "holds": PURE, "warnings": ("w",)}
    variants = [promise(), *(promise(**{name: value}) for name, value in changes.items())]
    assert len({variant.digest() for variant in variants}) == len(variants)
    assert promise().digest() == promise().digest()


# --- plain data and validation ------------------------------------------------------------------------------------


def test_plain_data_and_back() -> None:
    for guarantee in EVERY:
        data = json.loads(json.dumps(guarantee.to_dict()))
        assert guarantee_from(data) == guarantee
        assert type(guarantee_from(data)) is type(guarantee)


@given(st.fractions(min_value=Fraction(1, 10**6), max_value=100), st.sampled_from(Neighbours))
def test_epsilon_survives_exactly(epsilon: Fraction, neighbours: Neighbours) -> None:
    guarantee = PureDP(protects="trip", epsilon=epsilon, neighbours=neighbours)
    assert guarantee_from(json.loads(json.dumps(guarantee.to_dict()))) == guarantee


def test_what_is_no_guarantee() -> None:
    trip = {"model": "dp", "protects": "trip", "epsilon": 1}
    for data in (
        {},
        [1],
        {"model": "l-diversity", "protects": "trip"},
        {"model": None},
        {"model": ["dp"]},
        {"model": "dp", "protects": "trip"},
        trip,
        {**trip, "neighbours": "swap"},
        {**trip, "neighbours": "add-remove", "k": 5},
        {**trip, "neighbours": "add-remove", "epsilon": "one"},
        {"model": "k-anonymity", "protects": "trip", "k": "5"},
    ):
        with pytest.raises(ParameterError):
            guarantee_from(data)  # type: ignore[arg-type]
    for k in (1, 0, -5, True, 2.0, "5", None):
        with pytest.raises(ParameterError, match="k must be a whole number of at least 2"):
            KAnonymity(k=k, protects="trip")  # type: ignore[arg-type]


def test_fields_are_checked() -> None:
    bad = {"epsilon": (0, -1, float("nan"), float("inf"), "x", None, True, [1]), "protects": ("", " ", 5, None)}
    bad["neighbours"] = ("replace", "", None, 3)
    cases = [(guarantee, name, value) for guarantee in WITH_EPSILON for name in bad for value in bad[name]]
    cases += [(EVERY[4], "clusters", value) for value in (" ", 5, None)]
    cases += [(EVERY[7], "distance", value) for value in (" ", 5, None)]
    for guarantee, name, value in cases:
        with pytest.raises(ParameterError):
            dataclasses.replace(guarantee, **{name: value})
    for guarantee in WITH_EPSILON:
        assert dataclasses.replace(guarantee, epsilon=0.1).epsilon == Fraction(1, 10)
        assert dataclasses.replace(guarantee, neighbours="replace-one").neighbours is REPLACE


def test_probabilities_are_checked() -> None:
    for bad in (-TINY, 1, 2, "x"):
        with pytest.raises(ParameterError, match="delta must be"):
            ApproximateDP(**ONE, delta=bad)
    for bad in (0, 1, -1):
        with pytest.raises(ParameterError, match="beta must be"):
            SampledDP(**ONE, delta=TINY, beta=bad)
    assert ApproximateDP(**ONE, delta=0).delta == 0


def test_frozen_and_keyword_only() -> None:
    for guarantee in EVERY:
        with pytest.raises(dataclasses.FrozenInstanceError):
            guarantee.protects = "x"  # type: ignore[misc]
        with pytest.raises(TypeError):
            type(guarantee)("trip", 5)  # type: ignore[call-arg, misc]


def test_budgets() -> None:
    budget = Budget(epsilon=0.1, delta="1e-5", neighbours="add-remove")  # type: ignore[arg-type]
    assert budget.limit == Loss(Fraction(1, 10), Fraction(1, 10**5))
    assert str(budget) == "epsilon 0.1, delta 1e-05 (add-remove)"
    with pytest.raises(ParameterError, match="epsilon must be more than 0"):
        Budget(epsilon=Fraction(-1), neighbours=ADD)
    with pytest.raises(ParameterError, match="delta must be below 1"):
        Budget(epsilon=HALF, delta=Fraction(1), neighbours=ADD)
    with pytest.raises(TypeError):
        Budget(epsilon=HALF)  # type: ignore[call-arg]
    with pytest.raises(ParameterError, match="add-remove or replace-one"):
        Budget(epsilon=HALF, neighbours="replace")  # type: ignore[arg-type]
