# SPDX-License-Identifier: Apache-2.0
"""Planning on noisy releases: chances by enumeration, bounds by all partitions, promises by simulation, margins."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from papers.li2022_naive import naive_chance
from scipy.stats import binom
from tests.builders import QUASI, a_policy
from tests.commands import fine, run
from tests.oracles.bins import partitions
from tests.settle_help import cut, noisy_release, published

import dunnage as dn
from dunnage.errors import NoPlanError, ParameterError
from dunnage.kernels.bins.exchanges import Exchanges, settled, without_bin
from dunnage.model.domains import Numeric
from dunnage.model.laws import Cells
from dunnage.noise.source import Noise
from dunnage.planning import noisy
from dunnage.planning.models import Prior
from dunnage.planning.noisy import Beliefs, all_hold, item_risk, odds_of, simultaneous_sizes
from dunnage.planning.plan import Plan
from dunnage.planning.problem import PackingProblem
from dunnage.planning.trucks import Truck
from dunnage.release import Release

FloatArray = npt.NDArray[np.float64]
IMPROBABLE = 1e-9


def weights_release(cells: Cells, seen: npt.ArrayLike, **more: Any) -> Release:
    return noisy_release({"weight": (cells, seen)}, **more)


def test_noisy_rows_are_classes_of_their_own_numbered_after_others() -> None:
    release = weights_release(cut(0, 500, "1", "5"), [100, 200, 200, 300, 400])
    known = release.uncertain("weight")
    assert (release.noisy, known.class_id.tolist(), known.scenarios) == (True, [0, 1, 2, 3, 4], None)
    assert known.nominal.tolist() == [100, 200, 200, 300, 400]
    assert (known.lower < known.nominal).all()
    data = release.data.append_column("class_id", pa.array([1, -1, 0, -1, 1]))
    mixed = replace(release, data=data, classes=pa.table({"class_id": [0, 1]}))
    assert mixed.uncertain("weight").class_id.tolist() == [1, 2, 0, 3, 1]
    one = cut(0, 500, "1", "5").cells[0].law
    assert dn.pack(mixed, capacity=500).certified.at_least == pytest.approx(float(1 - one.miss(one.radius)) ** 2)
    with pytest.raises(ParameterError):
        dn.pack(mixed, capacity=500, model=dn.Stochastic(prior="uniform"))


@pytest.mark.parametrize("confidence", ["0", "0.9", "0.999"])
def test_sizes_from_intervals_alone_are_never_smaller(confidence: str) -> None:
    cells = cut(0, 100, "1", "12", confidence=confidence, borders=(40,))
    release = weights_release(cells, np.arange(101.0))
    classes = pa.array([-1] * 100 + [0])
    data = release.data.append_column("class_id", classes)
    for risk in (Fraction(1, 2), Fraction(1, 20), Fraction(1, 10**6)):
        told, intervals = (
            simultaneous_sizes(problem_of(replace(release, data=table), 200), risk)[0][0]
            for table in (data, data.drop_columns(["weight"]))
        )
        cut_off = release.uncertain("weight").upper == cells.upper(np.arange(101.0), Fraction(0))
        assert (intervals >= told).all()
        assert (intervals == told)[~cut_off].all()
        assert intervals[100] == release.uncertain("weight").upper[100]  # of a class, so sure


def test_rows_that_no_truck_takes_and_models_that_do_not_fit_are_refused(noisy_free: Release) -> None:
    release = weights_release(cut(0, 500, "1", "5"), [100, 200])
    for model in (dn.Sealed(), dn.Robust(), dn.Robust(budget="items"), dn.Stochastic(as_published=True)):
        with pytest.raises(ParameterError, match="stochastic"):
            dn.pack(release, capacity=500, model=model)
    with pytest.raises(ParameterError, match="spread"):
        dn.pack(release, capacity=500, spread=2)
    with pytest.raises(ParameterError, match="prior"):
        dn.pack(noisy_free, capacity=1000, model=dn.Stochastic(prior="uniform"))
    lawless = {"published_intervals": {"weight": {"confidence": 0.9}}}
    release = weights_release(cut(0, 500, "1", "5"), [100, 200], measures=lawless)
    plan = dn.pack(release, capacity=500)
    assert (plan.certified, plan.truck_linkage) == (None, None)
    for model in (dn.Stochastic(risk="0.05"), dn.Stochastic(prior="uniform")):
        with pytest.raises(ParameterError):
            dn.pack(release, capacity=500, model=model)
    release = weights_release(cut(0, 500, "1", "50"), [450, 20])
    for model in (dn.Standard(), dn.Stochastic(risk="0.05")):
        with pytest.raises(NoPlanError, match="row 0"):
            dn.pack(release, capacity=300, model=model)
    with pytest.raises(NoPlanError, match=r"0\.95"):
        dn.pack(release, capacity=300, model=dn.Stochastic(risk="0.05", prior="uniform"))


@pytest.fixture(scope="module")
def noisy_free() -> Release:
    """Six weights in classes of three."""
    return published([100.0, 120.0, 130.0, 400.0, 410.0, 450.0], 3)


@pytest.mark.parametrize("law", ["laplace", "piecewise"])
def test_upper_ends_are_certified_by_their_coverage(law: str) -> None:
    cells = cut(0, 300, "1", "8", law=law, confidence="0.95")
    seen = cells.perturb(np.linspace(20, 280, 12), Noise(seed=1))
    release = weights_release(cells, seen)
    plan = dn.pack(release, capacity=600)
    one = cells.cells[0].law
    covered = (1 - one.miss(one.radius)) ** 12
    assert plan.certified.at_least <= covered
    assert (plan.certified.at_least, plan.certified.at_most) == (pytest.approx(float(covered), rel=1e-9), 1)
    assert (np.bincount(plan.assignment, weights=release.uncertain("weight").upper) <= 600).all()
    mean = dn.pack(release, capacity=600, model=dn.Standard(statistic="mean"))
    assert mean.certified is None
    assert (np.bincount(mean.assignment, weights=seen) <= 600).all()
    assert mean.num_bins <= plan.num_bins
    none = weights_release(cut(0, 300, "1", "8", confidence="0"), [10, 20])
    assert dn.pack(none, capacity=600).certified.at_least == 0


@given(st.fractions(0, Fraction(999, 1000)), st.integers(1, 40))
def test_shares_of_a_risk_hold_together_and_are_the_largest(risk: Fraction, num: int) -> None:
    share = item_risk(risk, num)
    assert (1 - share) ** num >= 1 - risk
    assert (1 - share - Fraction(1, 10**30)) ** num < 1 - risk or risk == 0


def test_shares_of_very_many_and_what_holds_together_is_rounded_down() -> None:
    share = item_risk(Fraction(1, 20), 10**6)
    assert float(share) == pytest.approx(-math.expm1(math.log1p(-0.05) / 10**6), rel=1e-12)
    assert item_risk(Fraction(1, 10**30), 10**6) == Fraction(1, 10**36)
    assert [all_hold([case]) for case in ((Fraction(0), 10), (Fraction(1), 0), (Fraction(1), 1))] == [1, 1, 0]
    assert Fraction(all_hold([(Fraction(1, 10), 3)])) <= Fraction(729, 1000)
    assert all_hold([(Fraction(1, 10), 3)]) == pytest.approx(0.729)


@pytest.mark.parametrize(
    ("cells", "truth"),
    [
        (cut(0, 500, "1", "20"), np.full(30, 260.0)),
        (cut(0, 500, "1", "20"), np.full(30, 500.0)),
        (cut(0, 500, "1", "20"), np.linspace(0.49, 499.49, 30)),  # off the grid
        (cut(0, 500, "1", "12", borders=(100, 300)), np.tile([99.0, 100.0, 299.0], 10)),
        (cut(0, 500, "5", "12", law="piecewise", confidence="0.99"), np.full(30, 300.0)),
    ],
)
def test_any_data_and_any_plan_keep_the_simultaneous_promise(cells: Cells, truth: FloatArray) -> None:
    tries, risk, held, noise = 500, Fraction(1, 5), 0, Noise(seed=5)
    seen = cells.perturb(np.tile(truth, tries), noise).reshape(tries, len(truth))
    for line in seen:
        problem = problem_of(weights_release(cells, line), 1000)
        sizes, certified = simultaneous_sizes(problem, risk)
        held += bool((truth <= sizes[0]).all())
    assert certified.at_least >= 1 - risk
    assert binom.cdf(held, tries, certified.at_least) > IMPROBABLE


def problem_of(release: Release, capacity: Any, **more: Any) -> PackingProblem:
    settings = {"trucks": None, "by": None, "apart": None, "quantity": None, "spread": None, **more}
    return PackingProblem.of(release, capacity=capacity, **settings)


def test_a_plan_on_simultaneous_sizes_says_so() -> None:
    cells = cut(0, 500, "0.1", "40")
    release = weights_release(cells, cells.perturb(np.linspace(100, 400, 20), Noise(seed=2)))
    plan = dn.pack(release, capacity=600, model=dn.Stochastic(risk="0.05"))
    sizes, certified = simultaneous_sizes(problem_of(release, 600), Fraction(1, 20))
    assert plan.certified == certified
    assert 0.95 <= plan.certified.at_least < 0.97
    assert (np.bincount(plan.assignment, weights=sizes[0]) <= 600).all()
    assert plan.model.plain() == {"name": "stochastic", "risk": 0.05}
    assert (plan.truck_linkage.kind, plan.unplanned.count) == ("estimate", 0)
    none = dn.pack(release, capacity=600, model=dn.Stochastic(risk=0))
    assert (none.certified.at_least, none.num_bins) == (1, 20)


def laws_by_hand(cells: Cells, seen: npt.ArrayLike, prior: Prior) -> list[dict[int, float]]:
    """Weigh every grid point of each row's cell."""
    found = []
    for step in cells.steps(np.asarray(seen, dtype=np.float64)).tolist():
        cell = cells.cells[int(cells.index(np.array([step]))[0])]
        weights = {}
        for truth in range(cell.first, cell.end + 1):
            value = float(cells.domain.grid_values([truth])[0])
            likely = math.exp(float(cell.law.log_likelihood(step - cell.first, truth - cell.first)))
            if prior.mean is not None and prior.deviation is not None:
                likely *= math.exp(-(((value - float(prior.mean)) / float(prior.deviation)) ** 2) / 2)
            weights[truth] = likely
        total = sum(weights.values())
        found.append({truth: weight / total for truth, weight in weights.items()})
    return found


def chance_by_hand(
    cells: Cells, laws: Sequence[Mapping[int, float]], bins: Sequence[int], capacity: Mapping[int, Fraction] | Fraction
) -> float:
    """Add up the probabilities of all true values for which every bin fits."""
    resolution, total = cells.domain.resolution, 0.0
    for truth in itertools.product(*(law.items() for law in laws)):
        loads: dict[int, Fraction] = {}
        for bin_, (step, _) in zip(bins, truth, strict=True):
            loads[bin_] = loads.get(bin_, Fraction(0)) + cells.domain.lower + step * resolution
        room = capacity if isinstance(capacity, Mapping) else dict.fromkeys(loads, capacity)
        if all(load <= room[bin_] for bin_, load in loads.items()):
            total += math.prod(weight for _, weight in truth)
    return total


@st.composite
def tiny_cases(draw: st.DrawFn) -> tuple[Cells, list[float], Prior, Fraction, Fraction]:
    """Up to five rows on up to six grid points, any law, cells, prior, capacity and risk."""
    lower, resolution = draw(st.sampled_from([("0", "1"), ("2", "0.5"), ("0.3", "0.1"), ("10", "7")]))
    points = draw(st.integers(2, 6))
    domain = Numeric(lower=lower, upper=Fraction(lower) + (points - 1) * Fraction(resolution), resolution=resolution)
    borders = [domain.lower + Fraction(resolution)] if draw(st.booleans()) else []
    law = draw(st.sampled_from(["laplace", "piecewise"]))
    epsilon = Fraction(draw(st.sampled_from(["0.5", "2", "6", "15"])))
    cells = Cells.cut(domain, borders, law=law, epsilon=epsilon, confidence=Fraction(1, 2))
    num = draw(st.integers(1, 5 if points < 5 else 4))
    seen = domain.grid_values(draw(st.lists(st.integers(0, points - 1), min_size=num, max_size=num))).tolist()
    prior = Prior.parse(draw(st.sampled_from(["uniform", "normal:2:3", "normal:0.5:2.4"])))
    capacity = draw(st.sampled_from([Fraction(1, 2), Fraction(4, 5), 1, 1, 2, 3])) * domain.upper
    capacity += draw(st.integers(0, 2)) * Fraction(resolution) / 3
    return cells, seen, prior, capacity, Fraction(draw(st.sampled_from(["0", "0.01", "0.1", "0.4", "0.8"])))


@settings(max_examples=30, deadline=None)
@given(tiny_cases())
def test_chance_bound_and_plan_against_all_partitions(case: Any) -> None:
    cells, seen, prior, capacity, risk = case
    release = weights_release(cells, seen)
    truck = float(capacity)
    capacity = Fraction(repr(truck))
    laws = laws_by_hand(cells, seen, prior)
    model = dn.Stochastic(risk=risk, prior=prior.text)
    chances = {tuple(bins): chance_by_hand(cells, laws, bins, capacity) for bins in partitions(len(seen))}
    if risk == 0:  # floating point cannot tell a chance of 1 from one just below: only the largest truths do
        laws_of_tops = [{max(law): 1.0} for law in laws]
        chances = {bins: chance_by_hand(cells, laws_of_tops, bins, capacity) for bins in chances}
    rounding = 1e-7 if risk else -1e-7
    best = min((max(bins) + 1 for bins, chance in chances.items() if chance >= 1 - risk + rounding), default=None)
    if best is None and max(chances.values()) < 1 - risk - 1e-7:
        with pytest.raises(NoPlanError):
            dn.pack(release, capacity=truck, model=model, seconds=60)
    if best is None:
        return
    plan = dn.pack(release, capacity=truck, model=model, seconds=60)
    exact = chance_by_hand(cells, laws, plan.assignment.tolist(), capacity)
    assert plan.certified.at_least <= exact + 1e-12
    assert exact <= plan.certified.at_most + 1e-12
    assert plan.certified.at_most - plan.certified.at_least < 1e-7
    assert plan.certified.at_least >= 1 - risk
    possible = min(max(bins) + 1 for bins, chance in chances.items() if chance >= 1 - risk - 1e-7)
    assert plan.bound <= possible <= plan.num_bins
    assert plan.num_bins == best  # tiny searches have always found the best


def test_exact_chances_with_several_quantities_and_kinds() -> None:
    weight, volume = cut(1, 4, "1", "2"), cut(0, 2, "0.5", "3", law="piecewise")
    columns = {"weight": (weight, [1, 3, 2]), "volume": (volume, [0.5, 2, 1])}
    trucks = (
        Truck(name="van", capacity={"weight": 5, "volume": 2.5}, cost=2),
        Truck(name="lorry", capacity={"weight": 9, "volume": 4}, cost=3),
    )
    problem = problem_of(noisy_release(columns), None, trucks=trucks)
    odds = odds_of(problem, Prior())
    for bins in partitions(3):
        for kinds in itertools.product(range(2), repeat=max(bins) + 1):
            found = 1.0
            for name, (cells, seen) in columns.items():
                rooms = {bin_: Fraction(trucks[kind].capacity[name]) for bin_, kind in enumerate(kinds)}
                found *= chance_by_hand(cells, laws_by_hand(cells, seen, Prior()), bins, rooms)
            assigned, of_kind = np.array(bins), np.array(kinds)
            assert odds.at_least(assigned, of_kind) == pytest.approx(found, abs=1e-8)
            assert odds.at_least(assigned, of_kind) <= found + 1e-12
            assert found <= odds.at_most(assigned, of_kind) + 1e-12


@pytest.mark.parametrize("seed", range(8))
def test_two_quantities_and_groups_against_all_partitions(seed: int) -> None:
    generator = np.random.default_rng(seed)
    epsilon, risk = str(generator.choice([2, 5, 9])), Fraction(int(generator.integers(1, 6)), 10)
    columns = {
        name: (cut(1, 4, "1", epsilon, law=law), generator.integers(1, 5, 4).astype(np.float64))
        for name, law in (("weight", "laplace"), ("volume", "piecewise"))
    }
    towns = [("Ede", "Urk")[number] for number in generator.integers(0, 2, 4).tolist()]
    laws = {name: laws_by_hand(cells, seen, Prior()) for name, (cells, seen) in columns.items()}
    room = int(generator.integers(5, 13))
    likely = []
    for bins in partitions(4):
        mixed = any(a == b and s != t for (a, s), (b, t) in itertools.combinations(zip(bins, towns, strict=True), 2))
        chance = math.prod(chance_by_hand(own, laws[name], bins, Fraction(room)) for name, (own, _) in columns.items())
        likely += [max(bins) + 1] if chance >= 1 - risk - 1e-7 and not mixed else []
    release = noisy_release(columns, public={"town": towns})
    model = dn.Stochastic(risk=risk, prior="uniform")
    plan = dn.pack(release, capacity=[f"weight={room}", f"volume={room}"], by="town", model=model, seconds=60)
    assert plan.bound <= min(likely) == plan.num_bins


def test_a_fine_grid_is_coarsened_outward(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = cut(0, 30, "1", "5")
    seen = [10.0, 20.0, 15.0]
    release = weights_release(cells, seen)
    exact = chance_by_hand(cells, laws_by_hand(cells, seen, Prior()), [0, 0, 0], Fraction(53))
    monkeypatch.setattr("dunnage.planning.noisy.MAX_WIDTH", 12)
    monkeypatch.setattr("dunnage.planning.noisy.MIN_WIDTH", 12)
    odds = odds_of(problem_of(release, 53), Prior())
    bins, kinds = np.zeros(3, dtype=np.int64), np.zeros(1, dtype=np.int64)
    assert odds.at_least(bins, kinds) + 0.01 < exact < odds.at_most(bins, kinds) - 0.01


def test_means_quantiles_and_tables_by_hand() -> None:
    cells, prior = cut(2, 12, "0.5", "4", borders=(5,)), Prior.parse("normal:6:2")
    seen = np.array([2.5, 7.0, 7.0, 12.0])
    belief, laws = Beliefs.of(cells, seen, prior), laws_by_hand(cells, seen, prior)
    points = cells.domain.grid_values(np.arange(cells.domain.num_steps + 1))
    for row, law in enumerate(laws):
        mean = sum(points[step] * weight for step, weight in law.items())
        square = sum((points[step] - mean) ** 2 * weight for step, weight in law.items())
        assert belief.moments[0][row] == pytest.approx(mean)
        assert belief.moments[1][row] == pytest.approx(math.sqrt(square))
        high, low = belief.quantiles(Fraction(1, 10))[0][row], belief.low_quantiles(Fraction(1, 10))[row]
        assert sum(weight for step, weight in law.items() if points[step] > high) <= 0.1
        assert sum(weight for step, weight in law.items() if points[step] > high - 0.5) > 0.1
        assert sum(weight for step, weight in law.items() if points[step] < low) <= 0.1
        assert sum(weight for step, weight in law.items() if points[step] < low + 0.5) > 0.1
        near = belief.table(3, 30, "near")[belief.of_row[row]]
        assert near @ np.arange(31) * 3 * float(belief.measure) == pytest.approx(mean)
    assert belief.quantiles(Fraction(0))[1] == 1
    assert belief.quantiles(Fraction(1, 10))[1] >= 0.9**4


def test_priors_are_read_and_refused() -> None:
    assert dn.Stochastic(prior="normal:2.50e2:60").describe().prior == "normal:250:60"
    for text in ("", "flat", "normal", "normal:1", "normal:1:0", "normal:1:-2", "normal:x:1", "normal:1:1e300", 3):
        with pytest.raises(ParameterError, match="prior"):
            dn.Stochastic(prior=text)
    with pytest.raises(ParameterError, match="prior"):
        dn.Stochastic(prior="uniform", as_published=True)
    far = Prior.parse("normal:1e9:0.001").log_weights(np.array([1.0, 2.0, 3.0]))
    assert (far.argmax(), far.max()) == (2, 0)
    two = noisy_release({"weight": (cut(0, 5, "1", "3"), [1, 2]), "volume": (cut(0, 5, "1", "3"), [1, 2])})
    below, fine = (weights_release(cut(*domain, "3"), [1, 2]) for domain in ((-5, 5, "1"), (0, 500, "0.000001")))
    for release, capacity, prior in (
        (two, ["weight=9", "volume=9"], "normal:2:1"),  # one prior for two quantities
        (below, 9, "uniform"),  # sizes below 0
        (fine, 900, "uniform"),  # too fine a grid
    ):
        with pytest.raises(ParameterError):
            dn.pack(release, capacity=capacity, model=dn.Stochastic(prior=prior))


def fits(plan_bins: npt.NDArray[np.int64], truth: FloatArray, capacity: float) -> bool:
    return bool((np.bincount(plan_bins, weights=truth) <= capacity + 1e-9).all())


@pytest.mark.parametrize("prior", ["uniform", "normal:250:60"])
def test_draws_from_the_prior_keep_the_posterior_promise(prior: str, thorough: bool) -> None:
    cells, tries, num, risk = cut(0, 500, "5", "12"), 40 if thorough else 20, 12, 0.2
    points = cells.domain.grid_values(np.arange(cells.domain.num_steps + 1))
    weights = np.exp(Prior.parse(prior).log_weights(points))
    generator = np.random.default_rng(3)
    held, least, most = 0, [], []
    for _ in range(tries):
        truth = generator.choice(points, size=num, p=weights / weights.sum())
        release = weights_release(cells, cells.perturb(truth, Noise(seed=int(generator.integers(2**32)))))
        plan = dn.pack(release, capacity=1200, model=dn.Stochastic(risk=str(risk), prior=prior), seconds=5)
        held += fits(plan.assignment, truth, 1200)
        least.append(plan.certified.at_least)
        most.append(plan.certified.at_most)
    assert min(least) >= 1 - risk
    # Chances differ from draw to draw, so the number that holds varies less than for their mean.
    assert binom.cdf(held, tries, np.mean(least)) > IMPROBABLE
    assert binom.sf(held - 1, tries, np.mean(most)) > IMPROBABLE


def test_the_naive_chance_is_what_it_says() -> None:
    cells = cut(0, 100, "1", "10")
    release = weights_release(cells, [40.0, 30.0, 90.0])
    generator = np.random.default_rng(1)
    ratio = math.exp(-1 / 10)
    noise = generator.geometric(1 - ratio, (200_000, 3)) - generator.geometric(1 - ratio, (200_000, 3))
    first = np.array([70, 90]) - np.column_stack([noise[:, 0] + noise[:, 1], noise[:, 2]]) <= 95
    expected = naive_chance(release, capacity=95, bin_of_row=np.array([0, 0, 1]))
    assert abs(first.all(axis=1).mean() - expected) < 6.2 * math.sqrt(0.25 / 200_000)
    other = weights_release(cut(0, 100, "1", "10", law="piecewise"), [40.0, 30.0])
    with pytest.raises(ParameterError):
        naive_chance(other, capacity=95, bin_of_row=np.array([0, 0]))


def spread_weights(num: int, epsilon: str, seed: int, **more: Any) -> tuple[Cells, FloatArray]:
    cells = cut(100, 400, "0.1", epsilon, **more)
    truth = np.round(np.random.default_rng(seed).uniform(125, 375, num), 1)
    return cells, cells.perturb(truth, Noise(seed=seed))


@pytest.mark.parametrize("num_axes", [2, 4])
def test_several_quantities(num_axes: int) -> None:
    names = ["weight", "height", "width", "length"][:num_axes]
    columns = {name: spread_weights(9, "40", seed) for seed, name in enumerate(names)}
    capacity = [f"{name}=1500" for name in names]
    release = noisy_release(columns)
    for model in (dn.Standard(), dn.Stochastic(risk="0.1"), dn.Stochastic(risk="0.1", prior="uniform")):
        plan = dn.pack(release, capacity=capacity, model=model, seconds=0.4)
        assert sorted(set(plan.assignment.tolist())) == list(range(plan.num_bins))
        assert plan.bound <= plan.num_bins < 9
        if isinstance(model, dn.Stochastic):
            assert plan.certified.at_least >= Fraction(9, 10)


def test_several_kinds_of_truck() -> None:
    release = weights_release(*spread_weights(12, "20", 6))
    van, lorry = ({"name": "van", "capacity": {"weight": 800}}, {"name": "lorry", "capacity": {"weight": 2000}})
    for model in (dn.Standard(), dn.Stochastic(risk="0.1"), dn.Stochastic(risk="0.1", prior="uniform")):
        plan = dn.pack(release, trucks=[Truck(**van), Truck(**lorry, cost=2, count=1)], model=model, seconds=1)
        assert 0 < plan.bound <= plan.objective
        assert plan.truck_of_bin.count("lorry") <= 1
        with pytest.raises(NoPlanError):
            dn.pack(release, trucks=[Truck(**van, count=2)], model=model, seconds=5)


def test_many_rows_stay_fast(within: Callable[..., Any]) -> None:
    models = (dn.Standard(), dn.Stochastic(risk="0.05"), dn.Stochastic(risk="0.05", prior="uniform"))
    for model in models:  # compiled here, so that no limit below counts it
        dn.pack(weights_release(*spread_weights(300, "20", 7)), capacity=1500, model=model, seconds=0.1)
    release = weights_release(*spread_weights(600, "20", 7))
    with within(32):
        plans = [dn.pack(release, capacity=1500, model=model, seconds=16) for model in models]
    assert plans[2].num_bins < plans[1].num_bins
    assert plans[2].certified.at_least >= Fraction(19, 20)
    assert 0 < plans[2].bound <= plans[2].num_bins
    assert "if_seen_to_fit" not in plans[2].truck_linkage  # given the release that is another probability


def test_more_rows_than_are_searched_are_packed_with_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    release = weights_release(*spread_weights(24, "20", 8))
    model = dn.Stochastic(risk="0.05", prior="uniform")
    searched = dn.pack(release, capacity=1000, model=model, seconds=10)
    monkeypatch.setattr(noisy, "MAX_SEARCHED", 10)
    plain = dn.pack(release, capacity=1000, model=model, seconds=10)
    assert plain.certified.at_least >= Fraction(19, 20)
    assert plain.bound <= searched.bound <= searched.num_bins <= plain.num_bins


def test_exchanges_weigh_moves_and_swaps_as_they_turn_out() -> None:
    generator = np.random.default_rng(2)
    laws = [generator.dirichlet(np.ones(9), 7) * 0.95 for _ in range(2)]
    bins = np.array([0, 0, 1, 1, 2, 2, 2])
    state = Exchanges(laws, np.zeros(7, dtype=np.int64), bins.copy(), 3)
    moves, swaps, cost = state.gains_of_moves(), state.gains_of_swaps(), state.cost
    for row, bin_ in itertools.product(range(7), range(3)):
        if bins[row] != bin_:
            other = Exchanges(laws, state.group, np.where(np.arange(7) == row, bin_, bins), 3)
            assert cost - other.cost == pytest.approx(moves[bin_, row])
    for one, two in itertools.combinations(range(7), 2):
        if bins[one] != bins[two]:
            changed = bins.copy()
            changed[[one, two]] = bins[[two, one]]
            assert cost - Exchanges(laws, state.group, changed, 3).cost == pytest.approx(swaps[one, two])
    state.move({0: 2, 4: 0})
    assert state.cost == pytest.approx(Exchanges(laws, state.group, state.bin_of_row.copy(), 3).cost)
    laws = [np.full((3, 4), 0.25)]
    group = np.array([0, 0, 1])
    assert without_bin(laws, group, np.array([0, 1, 2]), 2) is None
    state = without_bin(laws, group, np.array([0, 1, 2]), 0)
    assert state.bin_of_row.tolist() == [0, 0, 1]
    assert not settled(state, -1.0, lambda bins: True, time.monotonic() + 5)


def test_margins_leave_room_in_exact_decimals(noisy_free: Release) -> None:
    release = weights_release(*spread_weights(20, "40", 9))
    upper = release.uncertain("weight").upper
    plan = dn.pack(release, capacity=1000, margin="0.1")
    assert (np.bincount(plan.assignment, weights=upper) <= 900).all()
    assert (plan.trucks[0].capacity, plan.margin) == ({"weight": 1000}, 0.1)
    assert plan.num_bins >= dn.pack(release, capacity=1000).num_bins
    assert dn.pack(noisy_free, capacity=1000, margin=0).margin == 0
    assert dn.pack(noisy_free, capacity=1000).margin is None
    problem = problem_of(noisy_free, 333.3)
    assert problem.with_margin("0.03").trucks[0].capacity == {"weight": 323.301}
    third = problem.with_margin("1/3").trucks[0].capacity["weight"]
    assert Fraction(repr(third)) <= Fraction("333.3") * 2 / 3
    assert third == pytest.approx(222.2)
    assert problem.with_margin(None) is problem
    for bad in (1, -0.1, "x", float("nan")):
        with pytest.raises(ParameterError, match="margin"):
            dn.pack(noisy_free, capacity=1000, margin=bad)


def test_margins_go_with_every_model(noisy_free: Release) -> None:
    models: list[Any] = [dn.Standard(), dn.Standard(statistic="mean"), dn.Stochastic(risk="0.3")]
    for model in (*models, dn.Robust(), dn.Robust(budget="items"), dn.Sealed()):
        plan = dn.pack(noisy_free, capacity=600, margin="0.05", model=model, seconds=60)
        same = dn.pack(noisy_free, capacity=570, model=model, seconds=60)
        assert (plan.num_bins, plan.bound) == (same.num_bins, same.bound)
        assert plan.trucks[0].capacity == {"weight": 600}
        if plan.certified:
            assert plan.certified.at_least >= same.certified.at_least
            assert plan.certified.at_most >= same.certified.at_most


def test_a_margin_makes_a_likely_plan_likelier(tmp_path: Path) -> None:
    release = weights_release(*spread_weights(20, "20", 10))
    model = dn.Stochastic(risk="0.3", prior="uniform")
    plan = dn.pack(release, capacity=1000, margin="0.1", model=model, seconds=5)
    again = Plan.read(plan.write(tmp_path / "plan"))
    assert (again.to_dict(), again.margin, again.model.prior) == (plan.to_dict(), 0.1, "uniform")
    bins, kinds = plan.assignment, np.zeros(plan.num_bins, dtype=np.int64)
    assert odds_of(problem_of(release, 900), Prior()).at_least(bins, kinds) >= Fraction(7, 10)
    assert plan.certified.at_least == odds_of(problem_of(release, 1000), Prior()).at_least(bins, kinds)
    assert plan.certified.at_least > 0.75


def test_a_sealed_plan_with_a_margin_states_the_linkage_of_the_true_trucks(noisy_free: Release) -> None:
    # With 480 free a truck only takes what the margin allows; all fills fit the trucks as they are.
    tight = dn.pack(noisy_free, capacity=580, model=dn.Sealed(), seconds=5)
    loose = dn.pack(noisy_free, capacity=2000, margin="0.71", model=dn.Sealed(), seconds=5)
    assert loose.num_bins == tight.num_bins
    held = np.zeros(int(loose.slots.class_id.max()) + 1)
    np.maximum.at(held, loose.slots.class_id, loose.slots.count / 3)
    assert loose.truck_linkage.worst == pytest.approx(held.max())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A noisy release in a folder, made by the owner's own way."""
    weight = {"role": QUASI, "kind": "numeric", "domain": [0, 500], "resolution": 1, "unit": "kg"}
    policy = a_policy({"name": "noisy-values", "epsilon": 20}, {"weight": weight})
    table = pa.table({"weight": np.random.default_rng(1).integers(125, 375, 15).astype(np.float64)})
    release, _ = dn.publish(dn.load(table, policy), ledger=":memory:")
    place = tmp_path_factory.mktemp("noisy") / "release"
    place.mkdir()
    release.write_files(place)
    return place


def test_the_command_chooses_the_model_by_risk_and_prior(folder: Path, tmp_path: Path) -> None:
    standard, base = {"name": "standard", "statistic": "upper"}, ("pack", folder, "--capacity", "1000kg")
    cases = [
        ((), standard),
        (("--risk", "0.1"), {"name": "stochastic", "risk": 0.1}),
        (("--prior", "uniform"), {"name": "stochastic", "risk": 0.05, "prior": "uniform"}),
        (("--margin", "0.05", "--model", "standard"), standard),
    ]
    for number, (options, model) in enumerate(cases):
        told = fine(*base, *options, "--time-limit", 5, "-o", tmp_path / str(number))
        assert (told["model"], told["margin"]) == (model, 0.05 if "--margin" in options else None)
    for options in ("--prior flat", "--prior uniform --model standard", "--margin 1", "--margin x"):
        run(*base, *options.split(), "-o", tmp_path / "plan").refused(options.split()[0].strip("-"))
    for options in ("--model sealed", "--spread 2"):
        run(*base, *options.split(), "-o", tmp_path / "plan").refused("noisy")
    assert not (tmp_path / "plan").exists()
