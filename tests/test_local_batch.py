# SPDX-License-Identifier: Apache-2.0
"""Array laws equal scalar laws, positions fall into the same cells, streams add up; laws fail only below p = 1e-9."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tests.estimates_help import PATHS, PLACES, TELEMETRY, refuses, truck_task

from dunnage.collecting import batch
from dunnage.collecting.frames import Source, TierReader, tally_reports
from dunnage.collecting.tally import Counts, Sums, Tally
from dunnage.devices import numbers as n
from dunnage.devices.client import mechanism_of
from dunnage.devices.numbers import LocalNumeric
from dunnage.devices.paths import AreaPaths, LocalTrajectory, PlaceByPlace, ReachablePaths
from dunnage.devices.places import LocalLocation, Planar, ProjectiveResponse, SubsetSelection
from dunnage.devices.report import Report
from dunnage.devices.task import Grid, Limits, Quantity
from dunnage.errors import InputError, ParameterError, ReportError
from dunnage.noise import arrays as noise_arrays
from dunnage.noise.source import Noise

ALPHA = 1e-9
NUM = 100_000
EPSILONS = [Fraction(1, 4), Fraction(1), Fraction(5, 2)]
LAYOUTS = [(16, 64, 12), (2, 4, 2), (4, 8, 3), (3, 3, 1)]
BOXES = [("103.9", "30.5", "104.2", "30.8"), ("-0.1", "-0.3", "0.2", "0.7"), ("-180", "-89", "180", "89")]


@pytest.fixture(params=LAYOUTS, ids=["full", "tiny-4", "tiny-8", "tiny-3"])
def layout(request, monkeypatch):
    """Run with the usual tables, and with so few digits that ties come up all the time."""
    monkeypatch.setattr(noise_arrays, "_LAYOUT", noise_arrays._Layout(*request.param))
    return NUM if request.param == LAYOUTS[0] else 10_000


def pvalue(symbols, weights):
    """Test symbols against a law given by weights; symbols without a chance must not come up.

    Symbols expected fewer than 8 times are counted together, exactly: chi-square would take one of them for a miracle.
    """
    shares = np.asarray(weights, dtype=float) / np.sum(weights)
    counts, num = np.bincount(symbols, minlength=len(shares)), len(symbols)
    if len(counts) > len(shares) or counts[shares == 0].any():
        return 0.0
    often = shares * num >= 8
    rare = stats.binomtest(int(counts[~often].sum()), num, min(shares[~often].sum(), 1.0)).pvalue
    if often.sum() < 2:
        return rare
    expected = shares[often] / shares[often].sum() * counts[often].sum()
    return min(rare, stats.chisquare(counts[often], expected).pvalue)


def pvalue_alike(ours, theirs):
    """Test whether two lists of counts have one law, likewise."""
    table = np.stack([ours, theirs])
    often = table.sum(axis=0) * min(table.sum(axis=1)) / table.sum() >= 8
    rare = stats.fisher_exact(np.stack([table[:, ~often].sum(axis=1), table[:, often].sum(axis=1)])).pvalue
    return rare if often.sum() < 2 else min(rare, stats.chi2_contingency(table[:, often]).pvalue)


def bits_of(rows):
    """Read packed rows of bits as whole numbers."""
    return rows.astype(np.int64) @ 256 ** np.arange(rows.shape[1])


def indices(index, size):
    return np.full(size, index, dtype=np.int64)


def likelier(epsilon, chosen, num):
    """Weights of a law that makes some of its symbols likelier than all others."""
    return [math.exp(epsilon) if symbol in chosen else 1 for symbol in range(num)]


def even_columns(row, num_columns):
    return {column for column in range(num_columns) if not (column & (row + 1)).bit_count() % 2}


def law_weights(law, index):
    return [math.exp(law.exponent(index, symbol)) for symbol in law.symbols()]


# Every law against its probabilities, by chi-square on all symbols


def test_randomised_response(layout):
    for epsilon, k in product(EPSILONS, [2, 3, 8, 37]):
        for index in {0, k // 2, k - 1}:
            drawn = batch.randomised_response(Noise(), indices(index, layout), k, epsilon)
            assert pvalue(drawn, likelier(epsilon, {index}, k)) > ALPHA


def test_bits(layout):
    for x, num_bits in product(map(Fraction, ("0", "1/3", "2", "-1", "30")), [1, 5, 8, 11]):
        rows = noise_arrays.packed_bits(Noise(), x, num_bits, layout)
        assert rows.shape == (layout, -(-num_bits // 8))
        assert pvalue(bits_of(rows), [math.exp(-x * symbol.bit_count()) for symbol in range(1 << num_bits)]) > ALPHA
    half, quarter = Fraction(1, 2), Fraction(1, 4)
    for (own, other), (k, index) in product(
        [(0, 1), (half, half), (2, 2), (0, quarter)], [(1, 0), (3, 1), (9, 8), (10, 0)]
    ):
        rows = batch.unary(Noise(), indices(index, layout), k, own=Fraction(own), other=Fraction(other))
        powers = [own * (s >> index & 1) - other * (s & ~(1 << index)).bit_count() for s in range(1 << k)]
        assert pvalue(bits_of(rows), np.exp(np.array(powers, dtype=float))) > ALPHA


def test_hadamard(layout):
    for epsilon, (num_blocks, num_columns) in product(EPSILONS, [(1, 2), (1, 8), (2, 4), (4, 8)]):
        num = num_blocks * (num_columns - 1)
        for index in {0, num - 1, num // 2}:
            row, block = divmod(index, num_blocks)
            chosen = {block * num_columns + column for column in even_columns(row, num_columns)}
            drawn = batch.hadamard(Noise(), indices(index, layout), num_blocks, num_columns, epsilon)
            assert pvalue(drawn, likelier(epsilon, chosen, num_blocks * num_columns)) > ALPHA


def test_designs(layout):
    cases = [(SubsetSelection, 2), (SubsetSelection, 7), (SubsetSelection, 9), (ProjectiveResponse, 5)]
    for epsilon, (kind, k) in product(EPSILONS, [*cases, (ProjectiveResponse, 7), (ProjectiveResponse, 40)]):
        law = kind(num_inputs=k, epsilon=epsilon)
        for index in {0, k - 1, k // 2}:
            drawn = batch.perturbed(law, indices(index, layout), Noise())
            if law.counts_bits:
                drawn = bits_of(drawn)
            odds = [math.exp(epsilon) if law.score(s, index) else 1.0 for s in range(law.num_symbols)]
            weights = [law.possible(symbol) * weight for symbol, weight in enumerate(odds)]
            assert pvalue(drawn, weights) > ALPHA, law


def test_windowed(layout):
    for epsilon, (k, stride, half) in product(EPSILONS, [(3, 2, 1), (5, 1, 2), (9, 3, 0), (2, 1, 0), (1, 3, 2)]):
        for index in {0, k // 2, k - 1}:
            inside = range(index * stride, index * stride + 2 * half + 1)
            drawn = batch.windowed(Noise(), indices(index, layout), k, stride=stride, half=half, epsilon=epsilon)
            assert pvalue(drawn, likelier(epsilon, inside, (k - 1) * stride + 2 * half + 1)) > ALPHA


def test_different_inputs_in_one_column(layout):
    """Rows must not be mixed up: each input's reports have the law of that input."""
    inputs, two = np.tile(np.arange(6, dtype=np.int64), layout // 6), Fraction(2)
    response = batch.randomised_response(Noise(), inputs, 6, two)
    hadamard = batch.hadamard(Noise(), inputs, 1, 8, two)
    law = ProjectiveResponse(num_inputs=6, epsilon=two)
    points = batch.perturbed(law, inputs, Noise())
    windowed = batch.windowed(Noise(), inputs, 6, stride=2, half=1, epsilon=two)
    for index in range(6):
        for drawn, chosen, num in [
            (response, {index}, 6),
            (hadamard, even_columns(index, 8), 8),
            (windowed, range(2 * index, 2 * index + 3), 13),
            (points, {s for s in range(law.num_symbols) if law.score(s, index)}, law.num_symbols),
        ]:
            assert pvalue(drawn[inputs == index], likelier(2, chosen, num)) > ALPHA


def test_wrong_laws_are_rejected():
    drawn = batch.randomised_response(Noise(), indices(1, NUM), 5, Fraction(1))
    assert pvalue(drawn, [1, math.exp(1.1), 1, 1, 1]) < ALPHA
    assert pvalue(drawn, [math.exp(1), 1, 1, 1, 1]) < ALPHA
    assert pvalue(drawn == 1, [0.999999, 0.000001]) < ALPHA  # also if nearly all of it should be rare


# Numbers become points at random with exactly the chance of their distance


@pytest.fixture(params=[16, 3, 1], ids=["full", "3 digits", "1 digit"])
def digits(request, monkeypatch):
    monkeypatch.setattr(batch, "_ROUNDING_BITS", request.param)
    return NUM if request.param == 16 else 5_000


def test_rounding(digits):
    for value, steps in product([0.1, 0.5, 7.0, 1 / 3, 9.999999, 0.0, 10.0, -0.0, 5.0, 1e-300], [1, 3, 1024]):
        low, high = Fraction(0), Fraction(10)
        exact = (Fraction(value) - low) / (high - low) * 2 * steps
        down = math.floor(exact)
        drawn = batch.round_at_random(Noise(), np.full(digits, value), low, high, steps)
        assert set(np.unique(drawn)) <= ({down} if exact == down else {down, down + 1})
        assert pvalue(drawn - down, [float(1 - (exact - down)), float(exact - down)]) > ALPHA
    third = Fraction(1, 3)
    awkward = [(10**9, 10**9 + 1), (third, 2 * third), (-(10**15), 10**15)]
    awkward += [(10**15 + third, 10**15 + 4 * third)]  # doubles know neither end
    for bounds, share in product(awkward, (Fraction(1, 5), Fraction(4, 5))):
        low, high = map(Fraction, bounds)
        value = float(low + (high - low) * share)
        exact = (Fraction(value) - low) / (high - low) * 14
        drawn = batch.round_at_random(Noise(), np.full(min(digits, 10_000), value), low, high, 7)
        assert pvalue(drawn, [max(0.0, 1 - abs(float(exact - point))) for point in range(15)]) > ALPHA


def test_domains_beyond_doubles():
    huge = 10**400
    for bounds in [(0, huge), (-huge, 0), (0, Fraction(1, huge)), (-(10**308), 10**308)]:
        low, high = map(Fraction, bounds)
        values = np.array([-np.inf, -1e308, -1.0, 0.0, 5e-324, 1.0, 1e308, np.inf, np.nan])
        drawn = batch.round_at_random(Noise(), values, low, high, 4)
        for value, point in zip(values.tolist(), drawn.tolist(), strict=True):
            share = {math.inf: 1, -math.inf: 0}.get(value, Fraction(1, 2) if math.isnan(value) else None)
            exact = min(max((Fraction(value) - low) / (high - low), 0), 1) * 8 if share is None else share * 8
            assert math.floor(exact) <= point <= math.ceil(exact)
    with pytest.raises(ParameterError):  # an empty domain
        batch.round_at_random(Noise(), np.zeros(1), Fraction(1), Fraction(1), 3)


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_rounding_never_leaves_the_neighbours(data):
    low = Fraction(data.draw(st.decimals(-(10**6), 10**6, places=3)))
    high = low + Fraction(data.draw(st.decimals("0.001", 10**6, places=3)))
    steps = data.draw(st.sampled_from([1, 2, 7, 1024, 1 << 20]))
    inner = st.fractions(low, high, max_denominator=10**6).map(float)
    values = data.draw(st.lists(inner | st.floats(), min_size=1, max_size=20))
    quantity = Quantity(name="x", low=low, high=high, steps=steps)
    drawn = batch.round_at_random(Noise(), np.array(values), low, high, steps)
    for value, point in zip(values, drawn.tolist(), strict=True):
        exact = (quantity.normalised(value) + 1) * steps
        assert math.floor(exact) <= point <= math.ceil(exact)


# Cells and paths are those of the scalar, bit for bit


def test_borders_of_cells_and_their_neighbours():
    for box, levels in product(BOXES, [1, 2, 5, 12]):
        grid = Grid(box=tuple(map(Fraction, box)), levels=levels)
        west, south, east, north = grid.box
        num = grid.num_columns
        sides = []
        for low, high in ((west, east), (south, north)):
            borders = [float(low + (high - low) * at / num) for at in {0, 1, num // 3, num // 2, num - 1, num}]
            sides.append([math.nextafter(at, to) for at in borders for to in (at, -math.inf, math.inf)])
            sides[-1] += [math.nan, math.inf, -math.inf, 0.0, -0.0, 1e300, 5e-324]
        pairs = list(product(*sides))
        assert batch.find_cells(grid, *np.array(pairs).T).tolist() == [grid.cell(lon, lat) for lon, lat in pairs]


@settings(deadline=None, max_examples=200)
@given(st.lists(st.tuples(st.floats(103.8, 104.3), st.floats(30.4, 30.9)), min_size=1), st.integers(1, 12))
def test_cells_anywhere(pairs, levels):
    grid = Grid(box=BOXES[0], levels=levels)
    assert batch.find_cells(grid, *np.array(pairs).T).tolist() == [grid.cell(lon, lat) for lon, lat in pairs]


def test_numbers_of_paths():
    for steps, hops, levels in product([2, 3], [1, 2], [2, 4]):
        grid = Grid(box=BOXES[0], levels=levels, area_levels=2)
        cells = np.random.default_rng(1).integers(0, grid.num_cells + 1, (steps, 2000))
        reachable = ReachablePaths(grid=grid, steps=steps, hops=min(hops, grid.num_columns - 1))
        for code in (reachable, AreaPaths(grid=grid, steps=steps)):
            assert batch.find_paths(code, cells).tolist() == [code.index(tuple(path)) for path in cells.T.tolist()]
    with pytest.raises(ParameterError):  # place by place they have none
        batch.find_paths(PlaceByPlace(grid=Grid(box=BOXES[0], levels=2), steps=2), np.zeros((2, 3), dtype=np.int64))


# Symbols of every law of numbers, by chi-square against the exponents of the scalar law


def mixed_points(steps, size):
    """Points of all kinds in one column."""
    return np.arange(size, dtype=np.int64) % (2 * steps + 1)


def test_windows_and_signs(layout):
    points = mixed_points(3, layout)
    for kind, epsilon in product([n.Piecewise, n.PublishedPiecewise, n.SquareWave], [Fraction(1, 2), Fraction(3)]):
        law = kind(epsilon=epsilon, steps=3)
        ((key, symbols),) = batch.number_symbols(Noise(), law, points)
        assert key == law.key
        for index in range(law.num_inputs):
            assert pvalue(symbols[points == index] + law.last, law_weights(law, index)) > ALPHA
    odds = math.exp(1.5)
    for kind, steps in product([n.Duchi, n.Warner], [1, 4]):
        law, points = kind(epsilon=Fraction(3, 2), steps=steps), mixed_points(steps, layout)
        ((_, symbols),) = batch.number_symbols(Noise(), law, points)
        for point in range(2 * steps + 1):
            plus = point / (2 * steps)
            assert pvalue(symbols[points == point] + 1, [plus + odds * (1 - plus), 0, odds * plus + 1 - plus]) > ALPHA


def hybrid_weights(law, index):
    """Return the probabilities of all symbols of an input, from those of the two laws."""
    by_key = {"duchi": 1 - law.share, "piecewise": law.share}
    weights = dict(zip(law.symbols(), law_weights(law, index), strict=True))
    totals = {key: sum(w for s, w in weights.items() if law.split(s)[0] == key) for key in by_key}
    return np.array([by_key[law.split(s)[0]] * w / totals[law.split(s)[0]] for s, w in weights.items()])


def test_hybrid_and_laplace(layout):
    law = n.Hybrid(epsilon=Fraction(2), steps=2)
    for point in range(5):
        drawn = dict(batch.number_symbols(Noise(), law, indices(point, layout)))
        assert set(drawn) == {"duchi", "piecewise"}
        joined = np.concatenate([drawn["duchi"] * law.last, drawn["piecewise"]])
        inputs = {2 * point: 1 - point / 4, 2 * point + 1: point / 4}  # with the sign that is drawn from the point
        weights = sum(share * hybrid_weights(law, index) for index, share in inputs.items())
        assert pvalue(joined + law.last, weights) > ALPHA
    law = n.LaplaceNumber(epsilon=Fraction(4), steps=3)
    for point in (0, 4):
        ((_, symbols),) = batch.number_symbols(Noise(), law, indices(point, layout))
        weights = [math.exp(law.exponent(point, symbol)) for symbol in range(-400, 401)]
        weights = [sum(weights[:389]), *weights[389:412], sum(weights[412:])]
        assert pvalue(np.clip(symbols, -12, 12) + 12, weights) > ALPHA


def test_joint_signs_and_sets(layout):
    for dimensions in (1, 2, 3, 4):
        law = n.JointDuchi(epsilon=Fraction(1), dimensions=dimensions)
        inputs = np.arange(layout, dtype=np.int64) % law.num_inputs
        drawn = batch.joint_signs(Noise(), inputs, law)
        for index in range(law.num_inputs):
            assert pvalue(drawn[inputs == index], law_weights(law, index)) > ALPHA
    for num, size in [(1, 1), (4, 1), (5, 2), (4, 4), (6, 5)]:
        drawn = np.zeros(layout, dtype=np.int64)
        for member, rows in enumerate(batch.draw_sets(Noise(), num, size, layout)):
            drawn[rows] |= 1 << member
        assert pvalue(drawn, [int(taken.bit_count() == size) for taken in range(1 << num)]) > ALPHA


def test_laws_that_arrays_do_not_draw():
    with pytest.raises(ParameterError):  # it is biased
        list(batch.number_symbols(Noise(), n.LiteralPiecewise(epsilon=Fraction(1), steps=2), indices(0, 3)))
    with pytest.raises(ParameterError, match="62"):
        batch.joint_signs(Noise(), indices(0, 3), n.JointDuchi(epsilon=Fraction(1), dimensions=63))


@pytest.mark.parametrize("bits", [16, 2])
def test_displacements(monkeypatch, bits):
    monkeypatch.setattr(batch, "_ROUNDING_BITS", bits)
    size, most = 100_000 if bits == 16 else 5_000, 6
    for epsilon in (Fraction(1, 5), Fraction(2)):
        law = Planar(grid=Grid(box=BOXES[0], levels=5), epsilon=epsilon)
        columns, rows = batch.displacements(Noise(), law, size)
        inside = np.maximum(np.abs(columns), np.abs(rows)) <= most
        side = range(-most, most + 1)
        weights = [math.exp(law.displacement_exponent(c, r)) for c in side for r in side]
        assert inside.sum() > size // 50
        assert pvalue(((columns + most) * 13 + rows + most)[inside], weights) > ALPHA
        if epsilon > 1:  # the far ones come up as often as they should
            far = range(-60, 61)
            total = sum(math.exp(law.displacement_exponent(c, r)) for c in far for r in far)
            assert stats.binomtest(int(inside.sum()), size, sum(weights) / total).pvalue > ALPHA


def test_planar_moves_are_clamped_and_inputs_those_of_the_device():
    law, noise = Planar(grid=Grid(box=BOXES[0], levels=3), epsilon=Fraction(1, 2)), Noise()
    cells = np.arange(17, dtype=np.int64).repeat(2000)
    drawn = batch.planar(Noise(), cells, law)
    for index in (0, 5, 16):
        ours = np.bincount(drawn[cells == index], minlength=16)
        scalar = np.bincount([law.perturb(index, noise) for _ in range(2000)], minlength=16)
        assert pvalue_alike(ours, scalar) > ALPHA
    places = [103.0, 103.9, 104.05, 104.2, 105.0, -math.inf, math.inf, math.nan]
    pairs = [(lon, lat) for lon in places for lat in (20.0, 30.5, 30.65, 30.8, 31.0, math.inf, math.nan)]
    assert batch.find_inputs(law, law.grid, *np.array(pairs).T).tolist() == [law.index(*pair) for pair in pairs]


# Whole columns through every mechanism have the law of device reports that were written and read

SMALL = Grid(box=BOXES[0], levels=3, area_levels=2)
QUANTITIES = (
    Quantity(name="speed", low="0", high="120", steps=8),
    Quantity(name="load", low="-1", high="3", steps=4, missing="symbol"),
)
ORACLES = ("randomised-response", "symmetric-unary", "optimised-unary", "hadamard", "subset-selection", "projective")
MECHANISMS = {
    "hybrid": LocalNumeric(quantities=QUANTITIES, epsilon=6),
    "published": LocalNumeric(quantities=QUANTITIES, epsilon=1, as_published=True),
    "joint": LocalNumeric(quantities=QUANTITIES, epsilon=1, method="duchi"),
    "laplace": LocalNumeric(quantities=QUANTITIES, epsilon=2, method="laplace"),
    "wave": LocalNumeric(quantities=QUANTITIES, epsilon=2, method="square-wave"),
    **{method: LocalLocation(grid=SMALL, epsilon=2, method=method) for method in ORACLES},
    "planar": LocalLocation(grid=SMALL, epsilon="0.3", method="planar"),
    "clear": LocalLocation(grid=SMALL, epsilon=2, method="randomised-response", area_in_clear=True),
    "published place": LocalLocation(grid=SMALL, epsilon=2, as_published=True),
    "path": LocalTrajectory(grid=SMALL, steps=2, epsilon=3, method="hadamard"),
    "clear path": LocalTrajectory(grid=SMALL, steps=2, epsilon=3, area_in_clear=True),
    "product": LocalTrajectory(grid=SMALL, steps=2, epsilon=2, as_published=True),
    "three": LocalTrajectory(grid=SMALL, steps=3, epsilon=2, as_published=True, method="qlp"),
    "qjlp": LocalTrajectory(grid=SMALL, steps=2, epsilon=2, as_published=True, method="qjlp"),
}


def some_values(mechanism, size):
    """Columns of the same few values over and over, of all kinds."""
    if isinstance(mechanism, LocalNumeric):
        few = [[30.0, math.nan, 119.0, 500.0], [math.nan, 0.3, -7.0, 2.9]]
    else:
        few = [[103.95, 104.19, math.nan, 104.0], [30.55, 30.79, 30.6, 20.0]]
        few += [[104.0, 104.1, 104.0, 104.0], [30.6, 30.6, 30.6, 30.6]] * (getattr(mechanism, "steps", 1) - 1)
    return [np.resize(column, size) for column in few]


def columns_of(mechanism, size, **more):
    return batch.perturb_column(mechanism, "all", some_values(mechanism, size), Noise(), **more)


def scalar_tally(mechanism, size):
    noise, tally = Noise(), Tally(purpose=mechanism.name, tier="all")
    for row in np.stack(some_values(mechanism, size), axis=1).tolist():
        pairs = list(zip(row[::2], row[1::2], strict=True))
        value = row if isinstance(mechanism, LocalNumeric) else pairs if len(pairs) > 1 else pairs[0]
        tally.add_payload(mechanism, "all", mechanism.perturb(value, tier="all", noise=noise))
    return tally


def assert_same_law(one, other):
    """Compare two parts of tallies: shares of symbols or bits, means and mean squares of numbers."""
    if isinstance(one, Sums):
        means, squares = ([getattr(part, name) / part.num for part in (one, other)] for name in ("total", "squares"))
        errors = math.sqrt(max(squares) * sum(1 / part.num for part in (one, other)))
        # Squares of squares are at most 100 times the square of their mean for all laws here.
        square_errors = 10 * max(squares) * math.sqrt(sum(1 / part.num for part in (one, other)))
        assert abs(means[0] - means[1]) < 7 * errors + 1e-9
        assert abs(squares[0] - squares[1]) < 7 * square_errors + 1e-9
        return
    assert (one.kind, one.counts.shape) == (other.kind, other.counts.shape)
    if one.kind == "symbols":
        assert pvalue_alike(one.counts, other.counts) > ALPHA
        return
    shares = (one.counts + other.counts) / (one.num + other.num)
    errors = np.sqrt(shares * (1 - shares) * (1 / one.num + 1 / other.num))
    few = 10 / min(one.num, other.num)  # counts of a few are not normal
    assert (np.abs(one.counts / one.num - other.counts / other.num) <= 7.5 * errors + few).all()


def test_columns_have_the_law_of_devices():
    for name, mechanism in MECHANISMS.items():
        ours, theirs = columns_of(mechanism, 40_000), scalar_tally(mechanism, 1500)
        assert (ours.num_reports, theirs.num_reports) == (40_000, 1500)
        assert set(ours.parts) == set(theirs.parts), name
        for key, part in ours.parts.items():
            assert abs(part.num / 40_000 - theirs.parts[key].num / 1500) < 7 * math.sqrt(0.25 / 1500), name
            assert_same_law(part, theirs.parts[key])


def test_columns_go_on_with_a_tally_in_chunks_of_any_size(monkeypatch):
    tally = columns_of(MECHANISMS["optimised-unary"], 10, purpose="places")
    assert columns_of(MECHANISMS["optimised-unary"], 7, tally=tally) is tally
    assert (tally.purpose, tally.tier, tally.num_reports, tally.parts[()].num) == ("places", "all", 17, 17)
    monkeypatch.setattr(batch, "CHUNK_ROWS", 3)
    for mechanism in MECHANISMS.values():
        assert [columns_of(mechanism, size).num_reports for size in (10, 0)] == [10, 0]
    for values in ([np.zeros(3)], [np.zeros(3), np.zeros(4)], [np.zeros((3, 1))] * 2):
        with pytest.raises(ParameterError):
            batch.perturb_column(MECHANISMS["hadamard"], "all", values, Noise())


# Tallies add up, travel, and count each report once

CLEAR = replace(PLACES, parameters={"area_in_clear": True})
TASK = truck_task(TELEMETRY, CLEAR, PATHS, limits=Limits(lifetime="1000", allow_unbounded=True))
VALUES = ((30.0, None), (104.0, 30.6), ((104.0, 30.6), (104.1, 30.6)))


def some_reports(num):
    noise, reports = Noise(), []
    mechanisms = [mechanism_of(TASK, purpose) for purpose in TASK.purposes]
    for number in range(num):
        purpose, tier = number % 3, number // 3 % 2
        level = TASK.slot_tiers(TASK.purposes[purpose])[tier]
        payload = mechanisms[purpose].perturb(VALUES[purpose], tier=level, noise=noise)
        facts = {"task": TASK.prefix, "purpose": purpose, "tier": tier, "day": 20000, "slot": 1}
        reports.append(Report(**facts, report_id=noise.draw_bytes(8), payload=payload))
    return reports


def test_reports_are_counted_by_purpose_and_tier_and_once():
    reports = some_reports(60)
    tallies = tally_reports(TASK, [Source.of_reports(reports)])
    assert set(tallies.by_tier) == set(product(("telemetry", "places", "paths"), ("basic", "strict")))
    assert {tally.num_reports for tally in tallies.by_tier.values()} == {10}
    assert tallies.num_reports == 60
    parts = tallies.by_tier["telemetry", "basic"].parts
    assert sum(part.num for part in parts.values()) == 10
    assert {attribute for attribute, _ in parts} <= {0, 1, 2}
    assert [part.num for part in tallies.by_tier["paths", "strict"].parts.values()] == [10]
    assert list(tallies.by_tier["places", "basic"].parts) == [(SMALL.area(SMALL.cell(104.0, 30.6)),)]
    again = tally_reports(TASK, [Source.of_reports([*reports, *reports, reports[3]])])
    assert (again.num_reports, again.left_out) == (60, {"duplicate": 61})
    assert again.to_dict() == tallies.to_dict()
    for order in ([*reports, replace(reports[0], slot=2)], [replace(reports[0], slot=2), *reports]):  # two contents
        other = tally_reports(TASK, [Source.of_reports(order)])
        assert (other.num_reports, other.left_out) == (59, {"conflicting": 2})


def test_bad_reports_are_counted_and_left_out():
    good = some_reports(6)
    bad = [
        replace(good[0], task=bytes(8), report_id=b"another."),
        replace(good[1], payload=b"", report_id=b"no bytes"),
        replace(good[2], payload=b"\xff" * 40, report_id=b"too many"),
        replace(good[3], purpose=7, report_id=b"purpose7"),
        replace(good[4], tier=9, report_id=b"tier9..."),
    ]
    tallies = tally_reports(TASK, [Source.of_reports([*bad, *good])])
    assert (tallies.left_out, tallies.num_reports) == ({"impossible": 4, "other_task": 1}, 6)
    assert len(tallies.first_bad) == 5
    assert tally_reports(TASK, [Source.of_reports(bad)]).by_tier == {}
    # A damaged report does not take the place of the right one with its id.
    both = tally_reports(TASK, [Source.of_reports([replace(good[1], payload=b""), good[1]])])
    assert (both.left_out, both.num_reports) == ({"impossible": 1}, 1)
    empty = (replace(good[0], payload=b"", report_id=bytes([at] * 8)) for at in range(50))
    many = tally_reports(TASK, [Source.of_reports(empty)])
    assert (many.left_out, len(many.first_bad)) == ({"impossible": 50}, 20)


def test_payloads_in_bulk_are_read_as_one_by_one():
    rng = np.random.default_rng(7)
    for name, mechanism in MECHANISMS.items():
        (tier,), noise = mechanism.levels, Noise()
        reader = TierReader(mechanism, "purpose", tier)
        values = np.stack(some_values(mechanism, 40), axis=1).tolist()
        pairs = [list(zip(row[::2], row[1::2], strict=True)) for row in values]
        if not isinstance(mechanism, LocalNumeric):
            values = [pair if len(pair) > 1 else pair[0] for pair in pairs]
        payloads = [mechanism.perturb(value, tier=tier, noise=noise) for value in values]
        by_width = {width: [p for p in payloads if len(p) == width] for width in {len(p) for p in payloads}}
        assert reader.width < 0 or set(by_width) == {reader.width}, name
        bulk, single = (Tally(purpose="purpose", tier=tier.name) for _ in range(2))
        for width, made in by_width.items():
            possible = set(made)
            for payload in [*made, *(rng.bytes(width) for _ in range(40))]:
                try:
                    mechanism.read(payload, tier=tier)
                    possible.add(payload)
                except ReportError:
                    assert payload not in possible
            rows = np.array([list(p) for p in [*made, *(rng.bytes(width) for _ in range(40)), *possible]], np.uint8)
            fits = reader.possible(rows)
            for row, fit in zip(rows, fits, strict=True):
                with nullcontext() if fit else pytest.raises(ReportError):
                    mechanism.read(row.tobytes(), tier=tier)
            reader.add(bulk, rows[fits])
            for row in rows[fits]:
                single.add_payload(mechanism, tier, row.tobytes())
        assert bulk.to_dict() == single.to_dict(), name


def slow_tallies(reports):
    """Count each id with one content once, by dictionaries; reports as bytes, some of them damaged."""
    left_out, contents, copies = Counter(), {}, Counter()
    for data in reports:
        try:
            report = Report.from_bytes(data)
        except ReportError:
            left_out["damaged"] += 1
            continue
        if report.task != TASK.prefix:
            left_out["other_task"] += 1
            continue
        try:
            report.check(TASK)
            mechanism, tier = mechanism_of(TASK, TASK.purposes[report.purpose]), report.tier
            mechanism.read(report.payload, tier=TASK.slot_tiers(TASK.purposes[report.purpose])[tier])
        except ReportError:
            left_out["impossible"] += 1
            continue
        key = report.report_id.ljust(16, b"\0")
        contents.setdefault(key, set()).add(data)
        copies[key] += 1
    tallies = {}
    for key, different in contents.items():
        if len(different) > 1:
            left_out["conflicting"] += copies[key]
            continue
        left_out["duplicate"] += copies[key] - 1
        report = Report.from_bytes(*different)
        purpose = TASK.purposes[report.purpose]
        tier = TASK.slot_tiers(purpose)[report.tier]
        tally = tallies.setdefault((purpose.name, tier.name), Tally(purpose=purpose.name, tier=tier.name))
        tally.add_payload(mechanism_of(TASK, purpose), tier, report.payload)
    return {names: tally.to_dict() for names, tally in tallies.items()}, +left_out


def test_bulk_counts_as_a_slow_reader_whatever_the_order(monkeypatch, tmp_path):
    rng = random.Random(5)
    good = some_reports(150)
    good = [replace(r, report_id=rng.randbytes(16)) if at % 2 else r for at, r in enumerate(good)]
    twin = replace(good[1], report_id=good[1].report_id[:8] + rng.randbytes(8))  # the same first half, another id
    short = replace(good[2], report_id=b"halfhalf")
    other = [
        *(replace(good[at], slot=2) for at in range(10, 16)),  # ids with two contents
        *(replace(good[at], payload=b"") for at in range(20, 23)),  # which take no part
        *(replace(good[at], task=bytes(8)) for at in range(30, 33)),
        *(replace(good[at], slot=23, tier=7) for at in range(40, 42)),
        *(twin, short, replace(short, report_id=b"halfhalf" + bytes(8), slot=3)),  # equal ids of two versions
    ]
    frames = [report.to_bytes() for report in [*good, *other, *good[:40], *good[12:18], *good[:3]]]
    for at in range(60, 75):
        damaged = bytearray(frames[at])
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        frames.append(bytes(damaged))
    frames += [b"", b"\x01", frames[0][:-1], frames[0] + b"x", b"\x03" + frames[0][1:], bytes(40)]
    expected = slow_tallies(frames)
    assert set(expected[1]) == {"damaged", "other_task", "impossible", "conflicting", "duplicate"}
    for chunk in (1 << 24, 1 << 11):
        monkeypatch.setattr("dunnage.collecting.frames._CHUNK", chunk)
        rng.shuffle(frames)
        parts = [frames[:100], frames[100:]]
        for at, part in enumerate(parts):
            (tmp_path / f"{at}.bin").write_bytes(b"".join(len(data).to_bytes(4, "big") + data for data in part))
        tallies = tally_reports(TASK, [Source.of_file(str(tmp_path / f"{at}.bin")) for at in (1, 0)])
        assert ({names: tally.to_dict() for names, tally in tallies.by_tier.items()}, tallies.left_out) == expected
        assert tallies.num_read == len(frames)
        assert len(tallies.first_bad) == 20
    text = [Report.from_bytes(data).to_json() for data in frames if slow_tallies([data])[0]]
    (tmp_path / "r.jsonl").write_text("\n".join([*text, "{"]))
    lines = tally_reports(TASK, [Source.of_file(str(tmp_path / "r.jsonl"))])
    assert {names: tally.to_dict() for names, tally in lines.by_tier.items()} == expected[0]
    assert lines.left_out["damaged"] == 1
    (tmp_path / "0.bin").write_bytes((tmp_path / "1.bin").read_bytes()[:-1])
    assert tally_reports(TASK, [Source.of_file(str(tmp_path / "0.bin"))]).first_bad
    days = tally_reports(TASK, [Source.of_reports(good)], days=(20001, 20002))
    assert (days.left_out, days.num_reports) == ({"other_time": 150}, 0)


def test_payloads_that_no_place_can_lead_to_are_found_in_bulk_as_one_by_one():
    generator, seen = np.random.default_rng(3), set()
    for method, clear in product(("subset-selection", "projective", "hadamard"), (False, True)):
        mechanism = LocalLocation(grid=SMALL, epsilon="0.5", method=method, area_in_clear=clear)
        reader = TierReader(mechanism, "places", mechanism.levels[0])
        rows = generator.integers(0, 256, (400, reader.width), dtype=np.uint8)
        rows[:, -1] &= 15 if method == "subset-selection" else 127
        assert reader.possible(rows).tolist() == [reader._reads(row.tobytes()) for row in rows]
        seen |= {(method, bool(answer)) for answer in reader.possible(rows)}
    assert {("subset-selection", True), ("subset-selection", False), ("projective", False)} <= seen


def test_tallies_travel_as_json_and_add_up():
    for name, mechanism in MECHANISMS.items():
        parts = [columns_of(mechanism, size) for size in (50, 30)]
        read = [Tally.from_dict(json.loads(json.dumps(part.to_dict()))) for part in parts]
        assert [tally.to_dict() for tally in read] == [part.to_dict() for part in parts], name
        before = read[1].to_dict()
        read[0].merge(read[1])
        assert read[0].num_reports == 80
        for key in read[0].parts:
            assert read[0].parts[key].num == sum(part.parts[key].num for part in parts if key in part.parts)
        parts[1].merge(parts[0])
        assert parts[1].to_dict() == read[0].to_dict(), name  # in either order
        read[0].merge(read[1])
        assert read[1].to_dict() == before, name  # what was added is left alone


def test_tallies_merge_only_what_fits():
    one, other, counted, longer = (Tally(purpose="a", tier=tier) for tier in "tstt")
    one.sums(0, "duchi").add(np.array([1]))
    one.counts((), "bits", 4).add_rows(np.array([[5]], dtype=np.uint8))
    counted.counts((0, "duchi"), "symbols", 3)
    longer.sums(0, "duchi").add(np.array([-1]))
    longer.counts((), "bits", 5)
    before = one.to_dict()
    for wrong in (other, counted, longer):
        with pytest.raises(ParameterError):
            one.merge(wrong)
    assert one.to_dict() == before  # all or nothing
    with pytest.raises(ParameterError):  # a part is of one kind
        one.sums()
    for kind, shape in (("symbols", (4,)), ("bits", (5,)), ("bits", (2, 2))):
        with refuses(ParameterError, (kind, shape)):
            one.counts((), kind, *shape)
    for shape in [(0,), (1 << 27,), (1 << 40, 1 << 40)]:  # refuses to fill the memory
        with refuses(ParameterError, shape):
            Counts.zeros("symbols", *shape)


def test_tallies_read_nothing_else():
    sums = {"key": [0], "kind": "sums", "num": 1, "total": 1, "squares": 1}
    bits = {"key": [0], "kind": "bits", "num": 1, "shape": [1], "counts": [1]}
    wrong = [{**sums, "total": 0.5}, {**sums, "key": [0.5]}, {**sums, "squares": -1}, {**bits, "shape": [2]}]
    wrong += [{**bits, "shape": [1 << 50]}, {**bits, "counts": [1 << 70]}, {**bits, "kind": "other"}, {}, 3]
    changes = [{"num_reports": -1}, {"num_reports": 1.5}, {"purpose": 3}, {"parts": 7}, {"parts": [sums] * 2}]
    good = Tally(purpose="a", tier="t").to_dict()
    assert Tally.from_dict({**good, "parts": [sums]}).parts
    changed = [{**good, **change} for change in [*changes, *({"parts": [part]} for part in wrong)]]
    for data in (*changed, {}, [], None, "tally"):
        with refuses(InputError, data):
            Tally.from_dict(data)


@given(st.lists(st.integers(-(2**62), 2**62)))
def test_sums_never_overflow(numbers):
    sums, one_by_one = Sums(), Sums()
    sums.add(np.array(numbers, dtype=np.int64))
    for number in numbers:
        one_by_one.add_one(number)
    assert sums == one_by_one == Sums(len(numbers), sum(numbers), sum(number**2 for number in numbers))


@given(st.integers(1, 40), st.lists(st.integers(0, 2**40 - 1)))
@settings(deadline=None)
def test_counts_of_bits(num_bits, symbols):
    symbols = [symbol % (1 << num_bits) for symbol in symbols]
    counts, size = Counts.zeros("bits", num_bits), -(-num_bits // 8)
    rows = np.frombuffer(b"".join(symbol.to_bytes(size, "little") for symbol in symbols), dtype=np.uint8)
    counts.add_rows(rows.reshape(len(symbols), size))
    assert counts.counts.tolist() == [sum(symbol >> bit & 1 for symbol in symbols) for bit in range(num_bits)]
    assert counts.num == len(symbols)


def test_counts_of_bits_together():
    for steps in (2, 3):
        drawn = np.random.default_rng(1).integers(0, 1 << 3, (50, steps))
        counts = Counts.zeros("bits", *((4,) * steps))
        counts.add_together([row[:, None].astype(np.uint8) for row in drawn.T])
        bits = [[*(bit for bit in range(3) if symbol >> bit & 1), 3] for symbol in range(8)]
        expected = np.zeros((4,) * steps, dtype=np.int64)
        for report in drawn:
            for place in product(*(bits[symbol] for symbol in report)):
                expected[place] += 1
        assert np.array_equal(counts.counts, expected)
        assert counts.counts[(3,) * steps] == counts.num == 50
