# SPDX-License-Identifier: Apache-2.0
"""Attacks on carriers: every closed form against all sequences of symbols, and audits of estimates end to end."""

from __future__ import annotations

import csv
import math
import random
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import permutations, product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest
from tests.commands import fine, run

import dunnage as dn
from dunnage.auditing import carriers as tracking
from dunnage.auditing.carriers import (
    EstimatesTruth,
    EstimatesView,
    Fleet,
    FleetTruth,
    Guess,
    MapEstimate,
    MeanEstimate,
    NumberGuess,
    guess_tuple,
    locate,
    movement,
    truth_figures,
    view_figures,
)
from dunnage.auditing.findings import written
from dunnage.auditing.run import Audit, audit
from dunnage.collecting.estimate import estimate, write_estimates
from dunnage.collecting.files import FileColumns, collect
from dunnage.collecting.fleet import simulate
from dunnage.collecting.tasks import carriers_from_text, read_task, task_of
from dunnage.devices import numbers as laws
from dunnage.devices.paths import Independent
from dunnage.devices.places import (
    HadamardResponse,
    InClear,
    LocalLocation,
    OptimisedUnary,
    Planar,
    ProjectiveResponse,
    PublishedUnary,
    RandomisedResponse,
    SubsetSelection,
    SymmetricUnary,
)
from dunnage.devices.subjects import Grid, Quantity
from dunnage.errors import InputError, ParameterError, ReleaseError
from dunnage.model.certificate import Certificate
from dunnage.noise.source import Noise
from dunnage.samples import PackageSetting, generate_packages
from dunnage.showing.audit import audit_page
from dunnage.text import several

ORACLES = (RandomisedResponse, SymmetricUnary, OptimisedUnary, PublishedUnary, HadamardResponse)
ORACLES += (SubsetSelection, ProjectiveResponse)
HALF, ONE, TWO = Fraction(1, 2), Fraction(1), Fraction(2)
GRID = Grid(box=(0, 0, 4, 4), levels=3, area_levels=2)


# Oracles of the tests: slow, and written another way


def rows_of(law):
    """Return the probabilities of a law, from what its own samplers do rather than from its exponents."""
    if isinstance(law, InClear):
        inner, rows = rows_of(law.oracle), []
        for index in range(law.num_inputs):
            group, place = law.split(index)
            row = [0.0] * law.num_symbols
            row[group * law.oracle.num_symbols : (group + 1) * law.oracle.num_symbols] = inner[place]
            rows.append(row)
        return rows
    k, e = law.num_inputs, math.exp(law.epsilon)
    if isinstance(law, RandomisedResponse):
        return [[(e if symbol == index else 1) / (e + k - 1) for symbol in range(k)] for index in range(k)]
    if isinstance(law, HadamardResponse):
        half, symbols = law.num_columns // 2, range(law.num_symbols)
        total = half * e + law.num_symbols - half
        return [[(e if law.score(symbol, index) == 1 else 1) / total for symbol in symbols] for index in range(k)]
    if isinstance(law, SubsetSelection | ProjectiveResponse):
        symbols = range(law.num_symbols)
        rows = [[law.possible(s) * (e if law.score(s, index) else 1) for s in symbols] for index in range(k)]
        return [[chance / sum(row) for chance in row] for row in rows]
    root = math.sqrt(e)
    own, other = {
        OptimisedUnary: (0.5, 1 / (e + 1)),
        SymmetricUnary: (root / (root + 1), 1 / (root + 1)),
        PublishedUnary: (e / (e + 1), 1 / (e + 1)),
    }[type(law)]
    rows = []
    for index in range(k):
        ones = [own if bit == index else other for bit in range(k)]
        rows.append([math.prod(c if s >> bit & 1 else 1 - c for bit, c in enumerate(ones)) for s in range(1 << k)])
    return rows


def found_by_all_sequences(rows, prior, num_reports):
    """Add up, over all sequences of symbols, the joint probability with the likeliest input."""
    return math.fsum(
        max(chance * math.prod(row[symbol] for symbol in sequence) for chance, row in zip(prior, rows, strict=True))
        for sequence in product(range(len(rows[0])), repeat=num_reports)
    )


@pytest.mark.parametrize("kind", ORACLES)
def test_places_that_are_alike_against_all_sequences(kind):
    cases = [(2, 1), (2, 4), (3, 1), (3, 2), (3, 3), (4, 2), (5, 1)]
    for epsilon, (places, reports) in product((HALF, TWO), cases):
        law = kind(num_inputs=places, epsilon=epsilon)
        found = locate(law, reports)
        slow = found_by_all_sequences(rows_of(law), [1 / places] * places, reports)
        assert found.computed
        assert (found.value, found.baseline) == (pytest.approx(slow, rel=1e-12), pytest.approx(1 / places))
    law = kind(num_inputs=3, epsilon=ONE)
    assert tracking.channel_matrix(law) == pytest.approx(np.array(rows_of(law)), rel=1e-12)
    assert locate(law, 2, np.array([0.0, 1.0, 0.0])).value == 1.0  # one possible place is known


def check_any_prior(law, weights, reports):
    prior = [weight / sum(weights) for weight in weights]
    found = locate(law, reports, np.array(prior))
    assert found.computed
    assert found.baseline == pytest.approx(max(prior))
    assert found.value == pytest.approx(found_by_all_sequences(rows_of(law), prior, reports), rel=1e-9)


@pytest.mark.parametrize("kind", ORACLES)
@settings(max_examples=12, deadline=None)
@given(weights=st.lists(st.integers(0, 6), min_size=3, max_size=3).filter(any), reports=st.integers(1, 3))
def test_any_prior_against_all_sequences(kind, weights, reports):
    check_any_prior(kind(num_inputs=3, epsilon=ONE), weights, reports)


def test_areas_in_clear_against_all_sequences():
    kinds = (RandomisedResponse, OptimisedUnary, PublishedUnary, HadamardResponse)
    for kind, weights, reports in product(kinds, [(1,) * 7, (3, 0, 1, 2, 1)], (1, 2)):  # in the first, areas are alike
        law = InClear(oracle=kind(num_inputs=3, epsilon=ONE), num_groups=len(weights) // 2)
        check_any_prior(law, weights, reports)
        assert locate(law, 0, np.array(weights) / sum(weights)).value == pytest.approx(max(weights) / sum(weights))


def test_other_laws_against_all_sequences():
    place = InClear(oracle=PublishedUnary(num_inputs=3, epsilon=ONE), num_groups=1)
    pairs = product(rows_of(place), repeat=2)  # paths of independent places are found place by place
    rows = [[one * other for one, other in product(*pair)] for pair in pairs]
    slow = found_by_all_sequences(rows, [1 / 9] * 9, 1)
    assert locate(Independent(place=place, steps=2), 1).value == pytest.approx(slow, rel=1e-12)
    # 3 places out of 5 symbols, 4 reports: the numbers of each symbol, by brute force.
    p, q, slow = 0.4, 0.15, 0.0
    for sequence in product(range(5), repeat=4):
        counts = Counter(sequence)
        slow += max(p ** counts[place] * q ** (4 - counts[place]) for place in range(3)) / 3
    assert tracking.response_guess(3, 5, p, 4) == pytest.approx(slow, rel=1e-12)
    law = Planar(grid=Grid(box=("103.9", "30.5", "104.2", "30.8"), levels=2), epsilon=Fraction(1, 20))
    matrix = tracking.channel_matrix(law)
    assert matrix.shape == (5, 4)
    assert matrix[4].tolist() == matrix[law.centre].tolist()
    noise, num = Noise(), 4000
    drawn = Counter(law.perturb(0, noise) for _ in range(num))  # rows are what the sampler does
    assert all(binomtest(drawn[cell], num, float(matrix[0, cell])).pvalue > 1e-9 for cell in range(4))
    slow = found_by_all_sequences(matrix.tolist(), [0.2] * 5, 3)
    assert locate(law, 3).value == pytest.approx(slow, rel=1e-12)


def test_draws_agree_with_closed_forms(monkeypatch):
    prior = np.array([0.4, 0.3, 0.2, 0.1])
    kinds = (RandomisedResponse, HadamardResponse, SubsetSelection, ProjectiveResponse)
    for law in (
        kind(num_inputs=4, epsilon=epsilon) for kind, epsilon in zip(kinds, (ONE, TWO, HALF, HALF), strict=True)
    ):
        exact = tracking.enumerated_guess(np.array(rows_of(law)), prior, 4)
        monkeypatch.setattr(tracking, "MAX_ENUMERATED", 0)
        found = locate(law, 4, prior, noise=Noise(seed=5))
        monkeypatch.undo()
        assert not found.computed
        hits = round(found.value * tracking.SIMULATIONS)
        assert binomtest(hits, tracking.SIMULATIONS, exact).pvalue > 1e-9
        assert found.interval[0] < found.value < found.interval[1]


def test_hadamard_response_of_one_report_has_a_closed_form():
    law = SubsetSelection(num_inputs=9, epsilon=ONE)
    assert locate(law, 1).value == pytest.approx(found_by_all_sequences(rows_of(law), [1 / 9] * 9, 1), rel=1e-12)
    law = HadamardResponse(num_inputs=29, epsilon=TWO)
    slow = found_by_all_sequences(rows_of(law), [1 / 29] * 29, 1)
    assert locate(law, 1).value == pytest.approx(slow, rel=1e-12)
    law = SubsetSelection(num_inputs=17, epsilon=ONE)  # 131,072 symbols, of which few are possible: not listed
    assert locate(law, 1).computed
    assert not locate(law, 1, np.arange(1.0, 18.0)).computed
    large = locate(HadamardResponse(num_inputs=4097, epsilon=ONE), 1)
    assert large.computed
    assert large.baseline < large.value < math.e * large.baseline


def test_the_published_form_finds_a_parked_truck():
    """Epsilon 0.5 each five minutes: with the area in clear, 16 places of it are left; see the notes on the paper."""
    for places, hour, eight_hours in [(16, 0.4907, 0.9964), (64, 0.2775, 0.9885), (256, 0.1399, 0.9703)]:
        law = PublishedUnary(num_inputs=places, epsilon=HALF)
        assert [locate(law, num).value for num in (12, 96)] == pytest.approx([hour, eight_hours], abs=5e-5)
    chances = [locate(OptimisedUnary(num_inputs=257, epsilon=HALF), num).value for num in (0, 1, 2, 12, 30, 96, 365)]
    assert chances == sorted(chances)
    assert chances[0] == 1 / 257
    assert chances[1] < 0.0053
    assert chances[4] == pytest.approx(0.0849, abs=5e-5)


@given(num=st.integers(2, 40), first=st.floats(0, 1), second=st.floats(0, 1))
def test_mixed_powers_are_the_plain_sum(num, first, second):
    plain = math.fsum(first**i * second ** (num - 1 - i) for i in range(num))
    found = tracking.mixed_powers(np.array([first]), np.array([second]), num, np.multiply)
    assert found[0] == pytest.approx(plain, rel=1e-12, abs=1e-300)


def test_a_prior_must_fit_and_a_guess_is_never_worse_than_its_baseline():
    law = RandomisedResponse(num_inputs=3, epsilon=ONE)
    for prior in ([0.5, 0.5], [0.0, 0.0, 0.0], [1.0, -1.0, 1.0]):
        with pytest.raises(ParameterError, match="prior"):
            locate(law, 1, np.array(prior))
    assert [Guess.exactly(value, 0.2).value for value in (0.1999999, 1.0000001)] == [0.2, 1.0]


def test_moves_against_all_pairs_of_symbols():
    for kind, (places, epsilon) in product(ORACLES, [(3, HALF), (5, ONE), (5, TWO)]):
        law = kind(num_inputs=places, epsilon=epsilon)
        rows, fresh, kept = rows_of(law), 0.0, 0.0
        pairs = list(product(range(len(rows[0])), repeat=2))
        for one, other in permutations(range(places), 2):
            # Fresh: the first report says nothing about the move. Kept: both are seen, alike if it stayed.
            fresh = max(fresh, math.fsum(abs(a - b) for a, b in zip(rows[one], rows[other], strict=True)) / 2)
            stayed = [rows[one][a] if a == b else 0.0 for a, b in pairs]
            moved = [rows[one][a] * rows[other][b] for a, b in pairs]
            kept = max(kept, math.fsum(abs(a - b) for a, b in zip(stayed, moved, strict=True)) / 2)
        assert movement(law) == (pytest.approx(fresh, rel=1e-9), pytest.approx(kept, rel=1e-9))
    oracle = OptimisedUnary(num_inputs=5, epsilon=ONE)
    assert movement(InClear(oracle=oracle, num_groups=4)).fresh == 1.0
    assert movement(InClear(oracle=oracle, num_groups=1)) == movement(oracle)


@given(st.lists(st.lists(st.integers(0, 2), min_size=4, max_size=4), min_size=1, max_size=12))
def test_unique_sequences_of_areas_by_plain_counting(rows):
    found = tracking.unique_shares(np.array(rows), [4, 0, 2])
    for length, share in zip((4, 0, 2), found, strict=True):
        counts = Counter(tuple(row[:length]) for row in rows)
        assert share == sum(counts[tuple(row[:length])] == 1 for row in rows) / len(rows)


def test_unique_by_the_slots_that_were_drawn():
    areas = np.array([[0, 1, 2], [0, 1, 3], [0, 2, 3]])
    seen = np.array([[True, True, False], [False, True, True], [True, False, False]])
    assert tracking.unique_by_slots(areas, seen) == pytest.approx(1 / 3)


def chances_of_symbols(law, point):
    """Return the law of a symbol for a point, index by index; Laplace noise is cut off far out."""
    m = law.steps
    if isinstance(law, laws.Hybrid):
        parts = ((law.share, law.piecewise), (1 - law.share, law.duchi))
        return {
            (part.key, symbol): share * chance
            for share, part in parts
            for symbol, chance in chances_of_symbols(part, point).items()
        }
    if isinstance(law, laws.Duchi | laws.Warner):
        keep = 1 / (1 + math.exp(-law.epsilon))
        plus = (1 + point / m) / 2
        up = plus * keep + (1 - plus) * (1 - keep)
        return {1: up, -1: 1 - up}
    symbols = range(-400, 401) if isinstance(law, laws.LaplaceNumber) else law.symbols()
    weights = {symbol: math.exp(law.exponent(point + m, symbol)) for symbol in symbols}
    total = math.fsum(weights.values())
    return {symbol: weight / total for symbol, weight in weights.items()}


KINDS = [laws.Duchi, laws.Warner, laws.Piecewise, laws.PublishedPiecewise, laws.SquareWave, laws.LaplaceNumber]


@pytest.mark.parametrize("kind", [*KINDS, laws.Hybrid, laws.PublishedHybrid])
def test_number_guesses_against_all_points_and_symbols(kind):
    values = np.array([-1.0, -0.9, -0.4, -0.35, 0.0, 0.2, 0.21, 0.7, 1.0, math.nan])
    weights = tracking.bucket_weights(values, 4, 3)
    assert weights.sum() == pytest.approx(1)
    for epsilon in (ONE, Fraction(3)):
        law, joint = kind(epsilon=epsilon, steps=3), Counter()
        for value in values[:-1].tolist():
            bucket, below = min(int((value + 1) * 2), 3), math.floor(value * 3)
            for point, chance in ((below, 1 - (value * 3 - below)), (below + 1, value * 3 - below)):
                for symbol, of_symbol in chances_of_symbols(law, point).items() if chance else ():
                    joint[bucket, symbol] += chance * of_symbol / 9
        symbols = {symbol for _, symbol in joint}
        slow = math.fsum(max(joint[bucket, symbol] for bucket in range(4)) for symbol in symbols)
        assert tracking.number_guess(law, weights) == pytest.approx(slow, rel=1e-9)
    for steps in (1, 7, 1024):
        assert tracking.even_weights(10, steps).sum(axis=1) == pytest.approx(np.full(10, 0.1))


def test_the_published_form_tells_more_of_every_number_and_of_the_tuple():
    quantities = tuple(Quantity(name=name, low=0, high=1, steps=16) for name in "abcd")
    weights = [tracking.even_weights(5, 16)] * 4
    forms = (laws.LocalNumeric(quantities=quantities, epsilon=1, as_published=form) for form in (False, True))
    one, all_of = (tracking.guess_numbers(form.channel("all"), weights) for form in forms)
    assert [guess.baseline for guess in one] == pytest.approx([0.2] * 4)
    assert all(0.2 < a.value < b.value for a, b in zip(one, all_of, strict=True))
    assert guess_tuple(all_of, 4) == pytest.approx(math.prod(guess.if_covered for guess in all_of))
    # No more than the loss allows: e for one report, e^4 for the published one.
    assert 0.2**4 < guess_tuple(one, 1) <= math.e * 0.2**4
    assert guess_tuple(one, 1) < guess_tuple(all_of, 4) <= math.e**4 * 0.2**4


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=5), st.data())
def test_tuples_by_listing_all_sets(pairs, data):
    num_told = data.draw(st.integers(1, len(pairs)))
    guesses = [NumberGuess(if_covered=told, share=num_told / len(pairs), baseline=low) for told, low in pairs]
    sets = [chosen for chosen in product((0, 1), repeat=len(pairs)) if sum(chosen) == num_told]
    slow = math.fsum(
        math.prod(pair[0] if told else pair[1] for pair, told in zip(pairs, chosen, strict=True)) for chosen in sets
    ) / len(sets)
    assert guess_tuple(guesses, num_told) == pytest.approx(slow, rel=1e-9, abs=1e-15)


COLUMNS = FileColumns(vehicle="truck", time="at", places=("x", "y"))
UNBOUNDED = {"allow_unbounded": True, "lifetime": 100_000}
CLEAR, PUBLISHED = {"area_in_clear": True}, {"as_published": True}


def policy_text(*, places=(), paths=(), slots=1, minutes=60, lifetime=300, **more):
    quasi = {"role": "quasi-identifier"}
    number = {**quasi, "kind": "numeric", "steps": 8}
    grid = {"box": [0, 0, 4, 4], "levels": 3, "area_levels": 2, "columns": ["x", "y"]}
    attributes = {
        "truck": {"role": "identifier"},
        "at": {"role": "drop"},
        "speed": {**number, "domain": [0, 100], "unit": "km/h", "missing": "middle"},
        "load": {**number, "domain": [-10, 10], "missing": "symbol"},
        "place": {**quasi, "kind": "grid", **grid},
    }
    mechanisms = {
        "numbers": {"name": "local-numeric", "epsilon": 1},
        "places": {"name": "local-location", "epsilon": 1, **dict(places)},
        "paths": {"name": "local-trajectory", "epsilon": 1, "steps": 2, **dict(paths)},
    }
    document = {"dataset": "fleet", "protects": "vehicle", "attributes": attributes, "mechanisms": mechanisms, **more}
    document["schedule"] = {"time": "at", "slot_minutes": minutes, "slots_per_day": slots}
    return tomli_w.dumps({**document, "allowance": {"lifetime": lifetime}})


def write_fleet(folder, *, trucks=7, hours=24, **options):
    """Write rows of trucks, one an hour, some cells missing, some outside; and their policy."""
    draw, lines = random.Random(1), []
    for truck in range(trucks):
        x, y = draw.uniform(0, 4), draw.uniform(0, 4)
        for hour in range(hours):
            x, y = (min(max(side + draw.uniform(-0.8, 0.8), -0.4), 4.4) for side in (x, y))
            speed = "" if draw.random() < 0.1 else f"{draw.uniform(-5, 80):.3f}"
            load = "" if draw.random() < 0.2 else f"{draw.uniform(-4, 12):.3f}"
            place = "," if draw.random() < 0.05 else f"{x:.4f},{y:.4f}"
            if draw.random() < 0.95:  # a row is missing now and then
                lines.append(f"truck {truck},2026-10-14T{hour:02}:00:00,{speed},{load},{place}")
    lines.sort(key=lambda line: line.split(",")[1])  # by time; vehicles of one moment in their order
    (folder / "rows.csv").write_text("\n".join(["truck,at,speed,load,x,y", *lines]) + "\n")
    (folder / "policy.toml").write_text(policy_text(**options))
    return folder / "rows.csv", folder / "policy.toml"


def slow_truth(path, *, by_row):
    """Work the truth out cell by cell, in plain Python."""
    with path.open() as source:
        rows = list(csv.DictReader(source))
    at = {(row["truck"], int(row["at"][11:13])): row for row in rows}
    trucks = sorted({row["truck"] for row in rows})
    asked = sorted(at) if by_row else [(truck, hour) for truck in trucks for hour in range(24)]
    nothing = dict.fromkeys(("speed", "load", "x", "y"), "")
    speeds, loads, places = [], [], Counter()
    for key in asked:
        row = at.get(key, nothing)
        speeds += [min(max(float(row["speed"]), 0), 100)] if row["speed"] else []
        loads += [min(max(float(row["load"]), -10), 10)] if row["load"] else []
        places[GRID.cell(float(row["x"]), float(row["y"])) if row["x"] else GRID.outside] += 1
    return {
        "speed": sum(speeds) / len(speeds),
        "load": sum(loads) / len(loads),
        "present": len(loads) / len(asked),
        "places": [places[index] for index in range(17)],
    }


class SmallFleet(NamedTuple):
    rows: Path
    fleet: Fleet
    truth: FleetTruth  # slot by slot
    slow: dict  # the same, worked out by hand


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    rows, policy = write_fleet(tmp_path_factory.mktemp("fleet"))
    fleet = Fleet.read(rows, policy)
    return SmallFleet(rows, fleet, FleetTruth.of(fleet, by_row=False), slow_truth(rows, by_row=False))


def test_the_truth_is_that_of_plain_loops(small):
    assert "7" not in repr(small.fleet)
    assert (small.fleet.num_vehicles, small.fleet.num_slots) == (7, 7 * 24)
    quantities = {quantity.name: quantity for quantity in small.fleet.task.purposes[0].quantities}
    by_row = FleetTruth.of(small.fleet, by_row=True), slow_truth(small.rows, by_row=True)
    for truth, slow in ((small.truth, small.slow), by_row):
        speed, load = truth.numbers["numbers", "speed"], truth.numbers["numbers", "load"]
        num = speed.num + speed.num_missing
        assert quantities["speed"].in_units(speed.total / speed.num) == pytest.approx(slow["speed"])
        assert quantities["load"].in_units(load.total / load.num) == pytest.approx(slow["load"])
        assert load.num / num == pytest.approx(slow["present"])
        assert truth.maps["places"].tolist() == slow["places"]
        assert truth.maps["paths"].sum() == num
        assert load.weights.sum() == pytest.approx(load.num)
    # Areas are those that reports show.
    areas = small.fleet.areas(GRID)
    assert areas.shape == (7, 24)
    law, expected = InClear(oracle=OptimisedUnary(num_inputs=5, epsilon=ONE), num_groups=4), Counter()
    for index, num in enumerate(small.slow["places"]):
        expected[law.split(index)[0]] += num
    assert Counter(areas.ravel().tolist()) == expected


def made_view(fleet, truth, off=0.0):
    """Make the view of a release whose estimates are the truth, all off by so much."""
    means = []
    for purpose in fleet.task.purposes:
        for quantity in purpose.quantities:
            known = truth.numbers[purpose.name, quantity.name]
            value = quantity.in_units(known.total / known.num) + off
            means.append(MeanEstimate(purpose.name, quantity, False, value, value - 1, value + 1))
    shares = truth.maps["places"] / truth.maps["places"].sum()
    value, everywhere = shares[::-1].copy() if off else shares, (np.zeros(17), np.ones(17))
    maps = {"places": MapEstimate("place", fleet.task.purposes[1].grid, 17, np.arange(17), value, *everywhere)}
    return EstimatesView(fleet.task, 0, 0.95, tuple(means), maps)


def findings_beside(view, fleet):
    figures, notes = truth_figures(EstimatesTruth.of(view, fleet), lambda line: None)
    return {item.name: item for item in written(figures, "vehicle")}, notes


def test_errors_of_estimates(small):
    slow = small.slow
    shares = np.array(slow["places"]) / sum(slow["places"])
    for off in (0.0, 3.0):
        found, notes = findings_beside(made_view(small.fleet, small.truth, off), small.fleet)
        assert notes
        speed, load = (found[f"error of the mean ({name})"] for name in ("speed", "load"))
        assert (speed.value, load.value) == (pytest.approx(off, abs=1e-9), pytest.approx(off, abs=1e-9))
        assert speed.baseline == pytest.approx(abs(50 - slow["speed"]))
        assert (speed.unit, load.unit) == ("km/h", "units")
        assert found["coverage (numbers)"].value == (0.0 if off else 1.0)
        apart = np.abs(shares - (shares[::-1] if off else shares))
        rmse = found["RMSE of shares (places)"]
        assert found["total variation distance (places)"].value == pytest.approx(apart.sum() / 2)
        assert rmse.value == pytest.approx(math.sqrt((apart**2).mean()))
        same = np.append(np.full(16, (1 - shares[-1]) / 16), shares[-1])  # what is missing is no part of a map
        assert rmse.baseline == pytest.approx(math.sqrt(((shares - same) ** 2).mean()))
        assert found["MAE of shares (places)"].value == pytest.approx(apart.mean())
        assert all(item.private for item in found.values())
    # Shares that are not listed share the remainder.
    best = np.argsort(-shares)[:4]
    listed = MapEstimate("place", None, 17, best, shares[best], shares[best], shares[best], 1 - shares[best].sum())
    view = made_view(small.fleet, small.truth)._replace(maps={"places": listed})
    found, _ = findings_beside(view, small.fleet)
    rest = np.delete(shares, best)
    assert found["total variation distance (places)"].value == pytest.approx(np.abs(rest - rest.mean()).sum() / 2)
    assert found["coverage (places)"].value == 1.0


def test_rows_that_are_rarer_than_slots_count_alike_and_another_task_is_refused(tmp_path):
    rows, policy = write_fleet(tmp_path, hours=10, minutes=5)
    fleet = Fleet.read(rows, policy)
    view = made_view(fleet, FleetTruth.of(fleet, by_row=True))
    truth = EstimatesTruth.of(view, fleet)
    assert truth.truth.by_row
    assert not truth.slots_known
    assert truth.notes
    # Rows as close as slots that end at ten are those of trucks that rest.
    policy.write_text(policy_text())
    fleet = Fleet.read(rows, policy)
    truth = EstimatesTruth.of(made_view(fleet, FleetTruth.of(fleet, by_row=False)), fleet)
    assert (truth.truth.by_row, truth.slots_known) == (False, True)
    policy.write_text(policy_text(slots=2))
    with pytest.raises(ReleaseError):
        EstimatesTruth.of(view, Fleet.read(rows, policy))
    rows.write_text(rows.read_text().splitlines()[0] + "\n")
    with pytest.raises(InputError):
        Fleet.read(rows, policy)


def findings_of(text):
    figures, notes = view_figures(task_of(carriers_from_text(text)), lambda line: None)
    findings = written(figures, "vehicle")
    assert len(notes) == 1
    assert not any(item.private for item in findings)
    return {item.name: item for item in findings}


def test_the_task_alone_tells_how_soon_a_truck_is_found():
    found = findings_of(policy_text(lifetime=300))
    oracle = LocalLocation(grid=GRID, epsilon=1).channel("all")
    for words, reports in (("1 day", 1), ("30 days", 30), ("1 year", 100)):  # 300 pays for 100 slots of three reports
        item = found[f"localisation, {words} (places)"]
        assert (item.details["reports"], item.baseline) == (reports, pytest.approx(1 / 17))
        assert item.value == pytest.approx(locate(oracle, reports).value, abs=0.05)
    assert found["suspicion at most, one slot"].value == pytest.approx(1 / (1 + math.exp(-3)))
    lifetime = found["suspicion at most, lifetime"]
    assert lifetime.value < 1
    assert lifetime.text(lifetime.value) == "100 %"  # a bound is rounded up
    assert found["movement seen (places)"].value < found["movement seen if reports were kept (places)"].value
    details = found["tuple guess (numbers)"].details
    assert (details["published_true_loss"], details["true_loss"]) == (3.0, 1.0)
    assert found["number guess (speed)"].value < found["number guess (speed)"].details["published"]
    assert not any("present" in name for name in found)
    clear = findings_of(policy_text(places=CLEAR, **UNBOUNDED))
    assert clear["suspicion at most, one slot"].value == clear["movement seen (places)"].value == 1.0  # no bound
    assert clear["localisation, 1 day (places)"].value > 0.25  # one of four places, at least


def test_vehicles_that_are_alone_with_their_areas(tmp_path):
    rows, policy = write_fleet(tmp_path, trucks=9, places=CLEAR, **UNBOUNDED)
    fleet = Fleet.read(rows, policy)
    found, _ = findings_beside(made_view(fleet, FleetTruth.of(fleet, by_row=False)), fleet)
    areas = fleet.areas(GRID).tolist()
    for hours in (1, 2, 4):
        most = 0.0
        for start in range(24 - 4 + 1):
            counts = Counter(tuple(row[start : start + hours]) for row in areas)
            most = max(most, sum(num == 1 for num in counts.values()) / 9)
        item = found[f"unique by areas, {several(hours, 'hour')} (places)"]
        assert item.value == most if hours == 4 else item.value <= most
    assert 0 <= found["unique by areas, as scheduled (places)"].value <= item.value + 0.5
    assert len(found["unique by areas, 1 hour (places)"].details["curve"]) == 4


def made_release(folder, *, trucks=60, every_row=False, **options):
    """Let a small fleet report, and estimate."""
    rows, policy = write_fleet(folder, trucks=trucks, **options)
    task = read_task(policy)
    simulate(rows, task, folder / "tallies.json", columns=COLUMNS, every_row=every_row, tally=True)
    collected = collect([folder / "tallies.json"], task)
    return estimate(collected.tallies, task, allow_noise=True), rows, policy


@pytest.fixture(scope="module")
def sixty(tmp_path_factory):
    return made_release(tmp_path_factory.mktemp("sixty"))


@pytest.mark.parametrize("every_row", [False, True])
def test_an_audit_of_estimates(sixty, tmp_path, every_row):
    release, rows, policy = made_release(tmp_path, every_row=True) if every_row else sixty
    found = audit(release, Fleet.read(rows, policy))
    assert (found.statistic, found.external) == ("estimates", False)
    names = [item.name for item in found.findings]
    assert len(set(names)) == len(names)
    slow, lines = slow_truth(rows, by_row=every_row), release.data.to_pylist()
    for line in lines[:3]:
        name, truth = line["attribute"], slow[line["attribute"]]
        if line["quantity"] == "present":
            name, truth = "load, share present", slow["present"]
        assert found.finding(f"error of the mean ({name})").value == pytest.approx(abs(line["value"] - truth))
    shares = np.array([line["value"] for line in lines if line["purpose"] == "places"])
    apart = np.abs(shares - np.array(slow["places"]) / sum(slow["places"])).sum() / 2
    assert found.finding("total variation distance (places)").value == pytest.approx(apart)
    assert 0 <= found.finding("total variation distance (paths)").value <= 1
    assert found.finding("number guess (speed)").private
    page = audit_page(found)
    assert Audit.read(found.write(tmp_path / "audit", page=page)).findings == found.findings
    # From outside nothing private is known: fewer findings, and fewer charts.
    outside = audit(release, external=True)
    assert outside.external
    assert not any(item.private or item.topic == "utility" for item in outside.findings)
    assert 0 < audit_page(outside).count("<svg") < page.count("<svg")


METHODS = [{"method": method} for method in ("randomised-response", "hadamard", "planar")]


@pytest.mark.parametrize("places", [*METHODS, PUBLISHED], ids=str)
def test_every_law_of_places_is_audited(tmp_path, places):
    release, rows, policy = made_release(tmp_path, places=places, **UNBOUNDED)
    found = audit(release, Fleet.read(rows, policy))
    day, month = (found.finding(f"localisation, {words} (places)") for words in ("1 day", "30 days"))
    # By the planar law one report says it all here, but for a missing place, which counts as the middle.
    assert day.baseline < day.value <= month.interval[1] + 0.05  # the month is drawn: its interval may miss
    assert places == {"method": "planar"} or day.value < month.value
    assert 0 <= found.finding("coverage (places)").value <= 1
    assert ("unique by areas, 1 hour (places)" in {item.name for item in found.findings}) == (places == PUBLISHED)


def test_published_paths_are_audited(tmp_path):
    for method in ("product", "qlp", "qjlp"):
        folder = tmp_path / method
        folder.mkdir()
        paths = {**PUBLISHED, "method": method}
        release, rows, policy = made_release(folder, trucks=30, paths=paths, **UNBOUNDED)
        found = audit(release, Fleet.read(rows, policy))
        day = found.finding("localisation, 1 day (paths)")
        assert day.value > day.baseline, method
        assert 0 <= found.finding("total variation distance (paths)").value <= 1, method


def test_what_does_not_belong_together_is_refused(sixty, tmp_path):
    release, rows, policy = sixty
    packages = dn.load(*generate_packages(PackageSetting(size=20), tmp_path / "parcels.csv", seed=1)[:2])
    published, _ = dn.publish(packages)
    for made, data in ((release, packages), (published, Fleet.read(rows, policy))):
        with pytest.raises(ParameterError):
            audit(made, data)
    body = release.certificate.plain()
    body["measures"]["task"]["schedule"]["slots_per_day"] = 24
    with pytest.raises(ReleaseError):  # its digest is another
        audit(replace(release, certificate=Certificate.model_validate(body)), external=True)


def test_a_quantity_that_nobody_told_of(tmp_path):
    release, rows, policy = made_release(tmp_path, trucks=1)
    found = audit(release, Fleet.read(rows, policy))
    lines = [line for line in release.data.to_pylist() if line["quantity"] == "mean" and line["value"] is None]
    assert lines
    for line in lines:
        item = found.finding(f"error of the mean ({line['attribute']})")
        assert item.value == item.baseline
    assert audit_page(found)


def test_the_command(sixty, tmp_path):
    release, rows, policy = sixty
    write_estimates(release, tmp_path / "release")
    base = ("audit", tmp_path / "release")
    done = fine(*base, rows, "--policy", policy, "-o", tmp_path / "audit")
    names = {item["name"] for item in done["findings"]}
    assert {"localisation, 1 day (places)", "tuple guess (numbers)", "coverage (places)"} <= names
    assert (tmp_path / "audit").stat().st_mode & 0o077 == 0
    fine(*base, "--external", "-o", tmp_path / "external")
    run(*base, "-o", tmp_path / "none").refused("--external")
