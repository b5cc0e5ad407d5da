# SPDX-License-Identifier: Apache-2.0
"""The stochastic model: held-out permutations fit as certified, brute force never does better, edges."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import binom
from tests.oracles.bins import partitions
from tests.settle_help import published, setting_weights

import dunnage as dn
from dunnage.errors import NoPlanError, ParameterError
from dunnage.planning.plan import Plan
from dunnage.release import Release
from dunnage.samples import package_setting

SETTINGS = ("25-L-U", "50-S-U", "25-L-Un")
TRIES = 20_000
IMPROBABLE = 1e-9


def times_fitting(release: Release, plan: Plan, tries: int, seed: int) -> int:
    """Try a plan on random orders inside classes and count those that fit, with nothing but numpy."""
    generator = np.random.default_rng(seed)
    members = release.members
    class_id = release.data.column("class_id").to_numpy()
    known = members.column("class_id").to_numpy(), np.rint(members.column("weight").to_numpy() * 10)
    drawn = np.empty((tries, len(class_id)))
    for class_ in np.unique(class_id).tolist():
        values = known[1][known[0] == class_]
        drawn[:, class_id == class_] = generator.permuted(np.tile(values, (tries, 1)), axis=1)
    loads = np.zeros((tries, plan.num_bins))
    for row, bin_ in enumerate(plan.assignment.tolist()):
        loads[:, bin_] += drawn[:, row]
    return int((loads <= np.rint(plan.capacity_of_bins("weight") * 10)).all(axis=1).sum())


def check_certificate(release: Release, plan: Plan, risk: float, seed: int) -> None:
    low, high = plan.certified.at_least, plan.certified.at_most
    assert 1 - risk - 1e-12 <= low <= high <= 1
    hits = times_fitting(release, plan, TRIES, seed)
    assert binom.cdf(hits, TRIES, low) > IMPROBABLE
    assert binom.sf(hits - 1, TRIES, high) > IMPROBABLE


@pytest.mark.parametrize("name", SETTINGS)
def test_held_out_orders_fit_as_certified_in_every_setting(name: str) -> None:
    setting = package_setting(name)
    optimal = []
    for k in (2, 5, 10):
        release = published(setting_weights(name, 100 + k), k)
        plan = dn.pack(release, capacity=setting.capacity, model=dn.Stochastic(risk=0.05), seconds=20)
        upper = dn.pack(release, capacity=setting.capacity)
        assert plan.objective <= upper.objective
        assert sorted(set(plan.assignment.tolist())) == list(range(plan.num_bins))
        check_certificate(release, plan, 0.05, seed=k)
        optimal.append(plan.status == "optimal")
    assert sum(optimal) >= 2


def test_risks_bounds_and_groups() -> None:
    release = published(setting_weights("25-L-U", 1), 10)
    plans = [dn.pack(release, capacity=600, model=dn.Stochastic(risk=risk)) for risk in ("0", "0.05", "0.3", "0.7")]
    bins = [plan.objective for plan in plans]
    assert [plan.status for plan in plans] == ["optimal"] * 4
    assert bins == sorted(bins, reverse=True)
    assert bins[0] > bins[1] > bins[2]
    for plan, risk in zip(plans[1:], (0.05, 0.3, 0.7), strict=True):
        check_certificate(release, plan, risk, seed=9)
    rests_on = set()
    for statistic in ("multiset", "bounds", "mean"):
        release = published(setting_weights("25-L-U", 3), 5, statistic)
        plan = dn.pack(release, capacity=500, model=dn.Stochastic(risk="0.2"), seconds=1)
        assert plan.objective <= dn.pack(release, capacity=500).objective
        assert 0.8 <= plan.certified.at_least <= plan.certified.at_most <= 1
        rests_on.add(plan.certified.rests_on)
    assert len(rests_on) == 3
    weights = setting_weights("50-L-U", 8)
    release = published(weights, 4, town=["A", "B"] * 25, day=["mon", "mon", "tue", "tue", "tue"] * 10)
    together = dn.pack(release, capacity=500, model=dn.Stochastic())
    apart = dn.pack(release, capacity=500, model=dn.Stochastic(), by="town", apart="day")
    town, day = (release.data.column(name).to_pylist() for name in ("town", "day"))
    for bin_ in range(apart.num_bins):
        rows = np.flatnonzero(apart.assignment == bin_).tolist()
        assert len({(town[row], day[row]) for row in rows}) == 1
    assert apart.objective >= together.bound
    check_certificate(release, apart, 0.05, seed=1)


def probability(bins: Sequence[int], classes: Sequence[Sequence[int]], capacity: int) -> Fraction:
    """Count the orders inside classes for which every bin fits; rows come class by class."""
    fits = total = 0
    for parts in itertools.product(*(itertools.permutations(members) for members in classes)):
        weights = itertools.chain.from_iterable(parts)
        loads = [0] * (max(bins) + 1)
        for weight, bin_ in zip(weights, bins, strict=True):
            loads[bin_] += weight
        fits += max(loads) <= capacity
        total += 1
    return Fraction(fits, total)


def classes_of(release: Release) -> list[list[int]]:
    found: dict[int, list[int]] = {}
    for line in release.members.to_pylist():
        found.setdefault(line["class_id"], []).append(int(line["weight"]))
    return [found[class_] for class_ in sorted(found)]


def fewest_bins(classes: Sequence[Sequence[int]], capacity: int, risk: Fraction) -> int:
    """List all plans. Patterns are equal for exchangeable rows, so each multiset of patterns is looked at once."""
    class_of = [class_ for class_, members in enumerate(classes) for _ in members]
    best, seen = len(class_of), set()
    for bins in partitions(len(class_of)):
        number = max(bins) + 1
        if number >= best:
            continue
        counts = [[0] * len(classes) for _ in range(number)]
        for class_, bin_ in zip(class_of, bins, strict=True):
            counts[bin_][class_] += 1
        pattern = tuple(sorted(map(tuple, counts)))
        if pattern not in seen:
            seen.add(pattern)
            if probability(bins, classes, capacity) >= 1 - risk:
                best = number
    return best


@pytest.mark.parametrize("risk", ["0", "0.05", "1/3", "0.5", "0.9"])
def test_nothing_listed_needs_fewer_bins(risk: str) -> None:
    """The certificate uses bounds between which the probability lies, so a gap is allowed; a false proof is not."""
    generator = np.random.default_rng(6)
    met = 0
    for _ in range(6):
        weights = generator.integers(1, 12, 6).tolist()
        capacity = int(generator.integers(max(weights), 2 * max(weights) + 2))
        release = published(weights, int(generator.integers(2, 4)))
        plan = dn.pack(release, capacity=capacity, model=dn.Stochastic(risk=risk))
        least = fewest_bins(classes_of(release), capacity, Fraction(risk))
        assert plan.bound <= least <= plan.objective
        met += int(plan.objective == least)
        bins = plan.assignment[np.argsort(release.uncertain("weight").class_id, kind="stable")].tolist()
        truth = probability(bins, classes_of(release), capacity)
        assert plan.certified.at_least - 1e-9 <= truth <= plan.certified.at_most + 1e-9
        assert truth >= 1 - Fraction(risk)
    assert met >= 5


@pytest.mark.parametrize("seed", range(2))
def test_no_risk_is_packing_by_the_largest_members(seed: int) -> None:
    release = published(setting_weights("25-L-U", seed), 3 + 4 * seed)
    sure = dn.pack(release, capacity=600, model=dn.Stochastic(risk=0))
    largest = dn.pack(release, capacity=600, model=dn.Robust(budget="largest"))
    assert sure.status == largest.status == "optimal"
    assert sure.objective == largest.objective <= dn.pack(release, capacity=600).objective
    assert (sure.certified.at_least, largest.certified.at_least) == (1, 1)
    assert times_fitting(release, sure, 2000, seed) == 2000


def test_edges() -> None:
    for weights, k, capacity, bins in (
        ([7.0] * 6, 6, 7, 6),  # as heavy as a bin
        ([7.0] * 6, 2, 14, 3),
        ([1, 2, 3, 4, 5, 6], 6, 21, 1),  # one class, one bin
        ([1, 2, 3, 4], 4, 9.5, 2),  # n = k
        ([5.5, 5.5, 5.5, 4.5, 4.5, 4.5], 3, 10, 3),  # ties; one of each class
        ([0.1] * 3 + [0.2] * 3, 2, 0.3, 3),  # not 0.1 + 0.2 > 0.3
        ([0, 0, 0, 9], 2, 9, 1),
    ):
        plan = dn.pack(published(weights, k), capacity=capacity, model=dn.Stochastic())
        assert (plan.objective, plan.status) == (bins, "optimal"), weights
    with pytest.raises(NoPlanError, match="500 kg"):
        dn.pack(published([10, 11, 890, 900], 2), capacity=500, model=dn.Stochastic())
    # A risk that is met exactly is met. Class {1 x 19, 2}: a bin with one of them and room for 1 fails in 1 of 20.
    release = published([1] * 19 + [2] + [9] * 20, 20)
    exactly, below = (dn.pack(release, capacity=10, model=dn.Stochastic(risk=risk)) for risk in ("0.05", "0.0499"))
    assert exactly.objective <= below.objective
    assert exactly.certified.at_least >= 0.95


def test_sensitive_values_do_not_decide_who_goes_where() -> None:
    """They may tell of weights inside a class; only row numbers are random for sure."""
    weights = [10, 10, 10, 10, 20, 20] + [80] * 5
    release = published(weights, 5, fragile=list("aabbccddddd"), roles={"fragile": "sensitive"})
    at = release.data.column_names.index("fragile")
    plans = []
    for seed in range(4):
        values = pa.array(np.random.default_rng(seed).permutation(release.data.column("fragile").to_pylist()).tolist())
        changed = replace(release, data=release.data.set_column(at, "fragile", values))
        plans.append(dn.pack(changed, capacity=100, model=dn.Stochastic(risk="0.6")))
    assert (plans[0].objective, plans[0].certified.at_least) == (5, pytest.approx(0.4))
    assert all(plan.assignment.tolist() == plans[0].assignment.tolist() for plan in plans)


@pytest.mark.parametrize(("k", "name"), [(5, "200-L-U"), (10, "200-S-U")])
def test_two_hundred_packages_are_quick(k: int, name: str, within: Callable[..., Any]) -> None:
    setting = package_setting(name)
    release = published(setting_weights(name, 2), k)
    with within(10):
        plan = dn.pack(release, capacity=setting.capacity, model=dn.Stochastic(), seconds=300)
    assert plan.objective <= dn.pack(release, capacity=setting.capacity, seconds=10).objective
    assert plan.status == "optimal"
    check_certificate(release, plan, 0.05, seed=3)


def test_the_published_model_overfits_and_says_so() -> None:
    release = published(setting_weights("25-L-U", 0), 6)
    plan = dn.pack(release, capacity=500, model=dn.Stochastic(as_published=True, scenarios=40, seed=3), seconds=8)
    sound = dn.pack(release, capacity=500, model=dn.Stochastic())
    assert plan.model.as_published is True
    assert plan.objective < sound.objective
    assert plan.certified.at_most < 0.95 <= sound.certified.at_least
    hits = times_fitting(release, plan, TRIES, 4)
    assert binom.sf(hits - 1, TRIES, plan.certified.at_most) > IMPROBABLE
    assert binom.cdf(hits, TRIES, plan.certified.at_least) > IMPROBABLE
    worst = plan.truck_linkage.worst / plan.certified.at_least
    assert plan.truck_linkage.if_seen_to_fit == pytest.approx(min(1, worst))


def test_the_published_model_keeps_to_the_trucks_there_are_and_packs_one_quantity_only() -> None:
    few = [dn.Truck(name="van", capacity={"weight": 100}, count=3)]
    model = dn.Stochastic(as_published=True, scenarios=5)
    with pytest.raises(NoPlanError, match="3"):
        dn.pack(published([60, 61, 62, 63], 2), trucks=few, model=model)
    release = published([10, 11, 12, 13], 2, part=["x", "x", "y", "y"])
    for more in ({"by": "part"}, {"apart": "part"}, {"spread": 2}):
        with pytest.raises(ParameterError, match="as_published"):
            dn.pack(release, capacity=30, model=model, **more)
    with pytest.raises(ParameterError, match="multiset"):
        dn.pack(published([10, 11, 12, 13], 2, "bounds"), capacity=30, model=model)
    assert dn.pack(release, capacity=30, model=model).objective >= 2
