# SPDX-License-Identifier: Apache-2.0
"""Array laws equal scalar laws, positions fall into the same cells, streams add up; laws fail only below p = 1e-9."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dunnage.collecting import batch
from dunnage.collecting.tally import Counts, Sums, Tally
from dunnage.devices.client import mechanism_of
from dunnage.devices.numbers import (
    Duchi,
    Hybrid,
    JointDuchi,
    LaplaceNumber,
    LiteralPiecewise,
    LocalNumeric,
    Piecewise,
    PublishedPiecewise,
    SquareWave,
    Warner,
)
from dunnage.devices.paths import AreaPaths, LocalTrajectory, PlaceByPlace, ReachablePaths
from dunnage.devices.places import LocalLocation, Planar
from dunnage.devices.report import Report
from dunnage.devices.task import Grid, Limits, Purpose, Quantity, Schedule, Task, Tier
from dunnage.errors import InputError, ParameterError
from dunnage.noise import arrays as noise_arrays
from dunnage.noise.source import Noise

ALPHA = 1e-9
NUM = 100_000
EPSILONS = [Fraction(1, 4), Fraction(1), Fraction(5, 2)]
LAYOUTS = [(16, 64, 12), (2, 4, 2), (4, 8, 3), (3, 3, 1)]


@pytest.fixture(params=LAYOUTS, ids=["full", "tiny-4", "tiny-8", "tiny-3"])
def layout(request, monkeypatch):
    """Run with the usual tables, and with so few digits that ties come up all the time."""
    monkeypatch.setattr(noise_arrays, "_LAYOUT", noise_arrays._Layout(*request.param))
    return NUM if request.param == LAYOUTS[0] else 20_000


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


def numbers(rows):
    """Read packed rows of bits as whole numbers."""
    return rows.astype(np.int64) @ 256 ** np.arange(rows.shape[1])


def indices(index, size):
    return np.full(size, index, dtype=np.int64)


class TestLaws:
    """Every law against its probabilities, by chi-square on all symbols."""

    def test_randomised_response(self, layout):
        for epsilon, k in itertools.product(EPSILONS, [2, 3, 8, 37]):
            for index in {0, k // 2, k - 1}:
                weights = [math.exp(epsilon) if symbol == index else 1 for symbol in range(k)]
                assert pvalue(batch.randomised_response(Noise(), indices(index, layout), k, epsilon), weights) > ALPHA

    def test_packed_bits(self, layout):
        for x, num_bits in itertools.product(
            [Fraction(0), Fraction(1, 3), Fraction(2), Fraction(-1), Fraction(30)], [1, 5, 8, 11]
        ):
            rows = noise_arrays.packed_bits(Noise(), x, num_bits, layout)
            assert rows.shape == (layout, -(-num_bits // 8))
            symbols = numbers(rows)
            assert pvalue(symbols, [math.exp(-x * symbol.bit_count()) for symbol in range(1 << num_bits)]) > ALPHA

    def test_unary(self, layout):
        for (own, other), (k, index) in itertools.product(
            [(0, 1), (Fraction(1, 2), Fraction(1, 2)), (2, 2), (0, Fraction(1, 4))], [(1, 0), (3, 1), (9, 8), (10, 0)]
        ):
            rows = batch.unary(Noise(), indices(index, layout), k, own=Fraction(own), other=Fraction(other))
            symbols = numbers(rows)
            weights = [
                math.exp(own * (symbol >> index & 1) - other * (symbol & ~(1 << index)).bit_count())
                for symbol in range(1 << k)
            ]
            assert pvalue(symbols, weights) > ALPHA

    def test_hadamard(self, layout):
        for epsilon, (num_blocks, num_columns) in itertools.product(EPSILONS, [(1, 2), (1, 8), (2, 4), (4, 8)]):
            for index in {0, num_blocks * (num_columns - 1) - 1, num_blocks * (num_columns - 1) // 2}:
                row, block = divmod(index, num_blocks)
                weights = [
                    math.exp(epsilon)
                    if symbol // num_columns == block and not (symbol % num_columns & (row + 1)).bit_count() % 2
                    else 1
                    for symbol in range(num_blocks * num_columns)
                ]
                drawn = batch.hadamard(Noise(), indices(index, layout), num_blocks, num_columns, epsilon)
                assert pvalue(drawn, weights) > ALPHA

    def test_windowed(self, layout):
        for epsilon, (k, stride, half) in itertools.product(
            EPSILONS, [(3, 2, 1), (5, 1, 2), (9, 3, 0), (2, 1, 0), (1, 3, 2)]
        ):
            num_symbols = (k - 1) * stride + 2 * half + 1
            for index in {0, k // 2, k - 1}:
                inside = range(index * stride, index * stride + 2 * half + 1)
                weights = [math.exp(epsilon) if symbol in inside else 1 for symbol in range(num_symbols)]
                drawn = batch.windowed(Noise(), indices(index, layout), k, stride=stride, half=half, epsilon=epsilon)
                assert pvalue(drawn, weights) > ALPHA

    def test_different_inputs_in_one_column(self, layout):
        # Rows must not be mixed up: each input's reports have the law of that input.
        drawn = np.tile(np.arange(6, dtype=np.int64), layout // 6)
        laws = {
            "response": batch.randomised_response(Noise(), drawn, 6, Fraction(2)),
            "hadamard": batch.hadamard(Noise(), drawn, 1, 8, Fraction(2)),
            "windowed": batch.windowed(Noise(), drawn, 6, stride=2, half=1, epsilon=Fraction(2)),
        }
        for index in range(6):
            near = {
                "response": {index},
                "hadamard": {column for column in range(8) if not (column & (index + 1)).bit_count() % 2},
                "windowed": set(range(2 * index, 2 * index + 3)),
            }
            for name, num_symbols in (("response", 6), ("hadamard", 8), ("windowed", 13)):
                weights = [math.exp(2) if symbol in near[name] else 1 for symbol in range(num_symbols)]
                assert pvalue(laws[name][drawn == index], weights) > ALPHA

    def test_wrong_laws_are_rejected(self):
        drawn = batch.randomised_response(Noise(), indices(1, NUM), 5, Fraction(1))
        assert pvalue(drawn, [1, math.exp(1.1), 1, 1, 1]) < ALPHA
        assert pvalue(drawn, [math.exp(1), 1, 1, 1, 1]) < ALPHA
        assert pvalue(drawn == 1, [0.999999, 0.000001]) < ALPHA  # also if nearly all of it should be rare


class TestRounding:
    """Numbers become points at random with exactly the chance of their distance."""

    @pytest.fixture(params=[16, 3, 1], ids=["full", "3 digits", "1 digit"])
    def digits(self, request, monkeypatch):
        monkeypatch.setattr(batch, "_ROUNDING_BITS", request.param)
        return NUM if request.param == 16 else 8_000

    def test_law(self, digits):
        for value, steps in itertools.product(
            [0.1, 0.5, 7.0, 1 / 3, 9.999999, 0.0, 10.0, -0.0, 5.0, 1e-300], [1, 3, 1024]
        ):
            low, high = Fraction(0), Fraction(10)
            exact = (Fraction(value) - low) / (high - low) * 2 * steps
            down = math.floor(exact)
            drawn = batch.round_at_random(Noise(), np.full(digits, value), low, high, steps)
            assert set(np.unique(drawn)) <= ({down} if exact == down else {down, down + 1})
            assert pvalue(drawn - down, [float(1 - (exact - down)), float(exact - down)]) > ALPHA

    def test_awkward_domains(self, digits):
        for bounds in [
            (10**9, 10**9 + 1),
            (Fraction(1, 3), Fraction(2, 3)),
            (-(10**15), 10**15),
            (10**15 + Fraction(1, 3), 10**15 + Fraction(4, 3)),  # doubles know neither end
        ]:
            low, high = map(Fraction, bounds)
            for share in (Fraction(1, 5), Fraction(4, 5)):
                value = float(low + (high - low) * share)
                exact = (Fraction(value) - low) / (high - low) * 14
                drawn = batch.round_at_random(Noise(), np.full(min(digits, 10_000), value), low, high, 7)
                weights = [max(0.0, 1 - abs(float(exact - point))) for point in range(15)]
                assert pvalue(drawn, weights) > ALPHA

    def test_domains_beyond_doubles(self):
        for bounds in [(0, 10**400), (-(10**400), 0), (0, Fraction(1, 10**400)), (-(10**308), 10**308)]:
            low, high = map(Fraction, bounds)
            values = np.array([-np.inf, -1e308, -1.0, 0.0, 5e-324, 1.0, 1e308, np.inf, np.nan])
            drawn = batch.round_at_random(Noise(), values, low, high, 4)
            for value, point in zip(values.tolist(), drawn.tolist(), strict=True):
                share = {math.inf: 1, -math.inf: 0}.get(value, Fraction(1, 2) if math.isnan(value) else None)
                exact = min(max((Fraction(value) - low) / (high - low), 0), 1) * 8 if share is None else share * 8
                assert math.floor(exact) <= point <= math.ceil(exact)

    @settings(deadline=None, max_examples=150)
    @given(st.data())
    def test_never_leaves_the_neighbours(self, data):
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

    def test_refuses_an_empty_domain(self):
        with pytest.raises(ParameterError, match="rising order"):
            batch.round_at_random(Noise(), np.zeros(1), Fraction(1), Fraction(1), 3)


BOXES = [("103.9", "30.5", "104.2", "30.8"), ("-0.1", "-0.3", "0.2", "0.7"), ("-180", "-89", "180", "89")]


class TestCells:
    """Cells are those of the scalar, bit for bit."""

    def test_borders_and_their_neighbours(self):
        for box, levels in itertools.product(BOXES, [1, 2, 5, 12]):
            grid = Grid(box=tuple(map(Fraction, box)), levels=levels)
            west, south, east, north = grid.box
            slots = sorted({0, 1, grid.num_columns // 3, grid.num_columns // 2, grid.num_columns - 1, grid.num_columns})
            lons, lats = (
                [
                    place
                    for slot in slots
                    for at in [float(low + (high - low) * slot / grid.num_columns)]
                    for place in (at, math.nextafter(at, -math.inf), math.nextafter(at, math.inf))
                ]
                for low, high in ((west, east), (south, north))
            )
            odd = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1e300, 5e-324]
            pairs = list(itertools.product(lons + odd, lats + odd))
            found = batch.find_cells(grid, *np.array(pairs).T)
            assert found.tolist() == [grid.cell(lon, lat) for lon, lat in pairs]

    @settings(deadline=None, max_examples=200)
    @given(st.lists(st.tuples(st.floats(103.8, 104.3), st.floats(30.4, 30.9)), min_size=1), st.integers(1, 12))
    def test_anywhere(self, pairs, levels):
        grid = Grid(box=BOXES[0], levels=levels)
        found = batch.find_cells(grid, *np.array(pairs).T)
        assert found.tolist() == [grid.cell(lon, lat) for lon, lat in pairs]


def mixed_points(steps, size):
    """Points of all kinds in one column."""
    return np.arange(size, dtype=np.int64) % (2 * steps + 1)


class TestNumbers:
    """Symbols of every law of numbers, by chi-square against the exponents of the scalar law."""

    def test_windows(self, layout):
        for kind, epsilon in itertools.product(
            [Piecewise, PublishedPiecewise, SquareWave], [Fraction(1, 2), Fraction(3)]
        ):
            law = kind(epsilon=epsilon, steps=3)
            points = mixed_points(3, layout)
            ((key, symbols),) = batch.number_symbols(Noise(), law, points)
            assert key == law.key
            for index in range(law.num_inputs):
                weights = [math.exp(law.exponent(index, symbol)) for symbol in law.symbols()]
                assert pvalue(symbols[points == index] + law.last, weights) > ALPHA

    def test_signs(self, layout):
        for kind, steps in itertools.product([Duchi, Warner], [1, 4]):
            law, points = kind(epsilon=Fraction(3, 2), steps=steps), mixed_points(steps, layout)
            ((_, symbols),) = batch.number_symbols(Noise(), law, points)
            odds = math.exp(1.5)
            for point in range(2 * steps + 1):
                plus = point / (2 * steps)
                weights = [plus + odds * (1 - plus), 0, odds * plus + 1 - plus]
                assert pvalue(symbols[points == point] + 1, weights) > ALPHA

    def test_hybrid(self, layout):
        law = Hybrid(epsilon=Fraction(2), steps=2)
        for point in range(5):
            drawn = dict(batch.number_symbols(Noise(), law, indices(point, layout)))
            assert set(drawn) == {"duchi", "piecewise"}
            joined = np.concatenate([drawn["duchi"] * law.last, drawn["piecewise"]])
            inputs = {2 * point: 1 - point / 4, 2 * point + 1: point / 4}  # with the sign that is drawn from the point
            weights = sum(share * np.array(self.hybrid_weights(law, index)) for index, share in inputs.items())
            assert pvalue(joined + law.last, weights) > ALPHA

    @staticmethod
    def hybrid_weights(law, index):
        """Return the probabilities of all symbols of an input, from those of the two laws."""
        by_key = {"duchi": 1 - law.share, "piecewise": law.share}
        weights = {symbol: math.exp(law.exponent(index, symbol)) for symbol in law.symbols()}
        totals = {key: sum(w for s, w in weights.items() if law.split(s)[0] == key) for key in by_key}
        return [by_key[law.split(s)[0]] * w / totals[law.split(s)[0]] for s, w in weights.items()]

    def test_laplace(self, layout):
        law = LaplaceNumber(epsilon=Fraction(4), steps=3)
        for point in (0, 4):
            ((_, symbols),) = batch.number_symbols(Noise(), law, indices(point, layout))
            clipped = np.clip(symbols, -12, 12) + 12
            weights = [math.exp(law.exponent(point, symbol)) for symbol in range(-400, 401)]
            weights = [sum(weights[:389]), *weights[389:412], sum(weights[412:])]
            assert pvalue(clipped, weights) > ALPHA

    def test_joint_signs(self, layout):
        for dimensions in [1, 2, 3, 4]:
            law = JointDuchi(epsilon=Fraction(1), dimensions=dimensions)
            inputs = np.arange(layout, dtype=np.int64) % law.num_inputs
            drawn = batch.joint_signs(Noise(), inputs, law)
            for index in range(law.num_inputs):
                weights = [math.exp(law.exponent(index, symbol)) for symbol in law.symbols()]
                assert pvalue(drawn[inputs == index], weights) > ALPHA

    def test_sets(self, layout):
        for num, size in [(1, 1), (4, 1), (5, 2), (4, 4), (6, 5)]:
            drawn = np.zeros(layout, dtype=np.int64)
            for member, rows in enumerate(batch.draw_sets(Noise(), num, size, layout)):
                drawn[rows] |= 1 << member
            assert pvalue(drawn, [int(taken.bit_count() == size) for taken in range(1 << num)]) > ALPHA

    def test_refusals(self):
        literal = LiteralPiecewise(epsilon=Fraction(1), steps=2)
        with pytest.raises(ParameterError, match="biased"):
            list(batch.number_symbols(Noise(), literal, indices(0, 3)))
        with pytest.raises(ParameterError, match="at most 62"):
            batch.joint_signs(Noise(), indices(0, 3), JointDuchi(epsilon=Fraction(1), dimensions=63))


class TestPaths:
    """Paths have the numbers that the scalar gives them."""

    def test_numbers(self):
        for steps, hops, levels in itertools.product([2, 3], [1, 2], [2, 4]):
            grid = Grid(box=BOXES[0], levels=levels, area_levels=2)
            cells = np.random.default_rng(1).integers(0, grid.num_cells + 1, (steps, 2000))
            reachable = ReachablePaths(grid=grid, steps=steps, hops=min(hops, grid.num_columns - 1))
            for code in (reachable, AreaPaths(grid=grid, steps=steps)):
                assert batch.find_paths(code, cells).tolist() == [code.index(tuple(path)) for path in cells.T.tolist()]

    def test_place_by_place_has_none(self):
        code = PlaceByPlace(grid=Grid(box=BOXES[0], levels=2), steps=2)
        with pytest.raises(ParameterError, match="place by place"):
            batch.find_paths(code, np.zeros((2, 3), dtype=np.int64))


class TestPlanar:
    """The planar law on arrays is that of the scalar."""

    @pytest.fixture(params=[16, 2], ids=["full", "2 digits"])
    def size(self, request, monkeypatch):
        monkeypatch.setattr(batch, "_ROUNDING_BITS", request.param)
        return 100_000 if request.param == 16 else 5_000

    @pytest.mark.parametrize("epsilon", [Fraction(1, 5), Fraction(2)])
    def test_displacements(self, size, epsilon):
        law = Planar(grid=Grid(box=BOXES[0], levels=5), epsilon=epsilon)
        columns, rows = batch.displacements(Noise(), law, size)
        most = 6
        inside = np.maximum(np.abs(columns), np.abs(rows)) <= most
        side = range(-most, most + 1)
        weights = [math.exp(law.displacement_exponent(c, r)) for c in side for r in side]
        assert inside.sum() > size // 50
        assert pvalue(((columns + most) * 13 + rows + most)[inside], weights) > ALPHA
        if epsilon > 1:  # the far ones come up as often as they should
            far = range(-60, 61)
            total = sum(math.exp(law.displacement_exponent(c, r)) for c in far for r in far)
            assert stats.binomtest(int(inside.sum()), size, sum(weights) / total).pvalue > ALPHA

    def test_moves_are_clamped(self):
        law = Planar(grid=Grid(box=BOXES[0], levels=3), epsilon=Fraction(1, 2))
        cells = np.arange(17, dtype=np.int64).repeat(2000)
        drawn = batch.planar(Noise(), cells, law)
        noise = Noise()
        for index in (0, 5, 16):
            ours = np.bincount(drawn[cells == index], minlength=16)
            scalar = np.bincount([law.perturb(index, noise) for _ in range(2000)], minlength=16)
            assert pvalue_alike(ours, scalar) > ALPHA


SPEED = Quantity(name="speed", low="0", high="120", steps=8)
LOAD = Quantity(name="load", low="-1", high="3", steps=4, missing="symbol")
SMALL = Grid(box=BOXES[0], levels=3, area_levels=2)
MECHANISMS = {
    "hybrid": LocalNumeric(quantities=(SPEED, LOAD), epsilon=6),
    "published": LocalNumeric(quantities=(SPEED, LOAD), epsilon=1, as_published=True),
    "joint": LocalNumeric(quantities=(SPEED, LOAD), epsilon=1, method="duchi"),
    "laplace": LocalNumeric(quantities=(SPEED, LOAD), epsilon=2, method="laplace"),
    "wave": LocalNumeric(quantities=(SPEED, LOAD), epsilon=2, method="square-wave"),
    "response": LocalLocation(grid=SMALL, epsilon=2, method="randomised-response"),
    "symmetric": LocalLocation(grid=SMALL, epsilon=2, method="symmetric-unary"),
    "optimised": LocalLocation(grid=SMALL, epsilon=2, method="optimised-unary"),
    "hadamard": LocalLocation(grid=SMALL, epsilon=2, method="hadamard"),
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
    assert one.kind == other.kind
    assert one.counts.shape == other.counts.shape
    if one.kind == "symbols":
        assert pvalue_alike(one.counts, other.counts) > ALPHA
        return
    shares = (one.counts + other.counts) / (one.num + other.num)
    errors = np.sqrt(shares * (1 - shares) * (1 / one.num + 1 / other.num))
    few = 10 / min(one.num, other.num)  # counts of a few are not normal
    assert (np.abs(one.counts / one.num - other.counts / other.num) <= 7.5 * errors + few).all()


class TestColumns:
    """Whole columns through every mechanism have the law of device reports that were written and read."""

    def test_same_law_as_devices(self):
        for name in MECHANISMS:
            mechanism = MECHANISMS[name]
            ours = batch.perturb_column(mechanism, "all", some_values(mechanism, 80_000), Noise())
            theirs = scalar_tally(mechanism, 2000)
            assert ours.num_reports == 80_000
            assert theirs.num_reports == 2000
            assert set(ours.parts) == set(theirs.parts)
            for key, part in ours.parts.items():
                other = theirs.parts[key]
                assert abs(part.num / 80_000 - other.num / 2000) < 7 * math.sqrt(0.25 / 2000)
                assert_same_law(part, other)

    def test_goes_on_with_a_tally(self):
        mechanism = MECHANISMS["optimised"]
        tally = batch.perturb_column(mechanism, "all", some_values(mechanism, 10), Noise(), purpose="places")
        again = batch.perturb_column(mechanism, "all", some_values(mechanism, 7), Noise(), tally=tally)
        assert again is tally
        assert (tally.purpose, tally.tier, tally.num_reports, tally.parts[()].num) == ("places", "all", 17, 17)

    def test_chunks_do_not_matter(self, monkeypatch):
        monkeypatch.setattr(batch, "CHUNK_ROWS", 3)
        for mechanism in MECHANISMS.values():
            assert batch.perturb_column(mechanism, "all", some_values(mechanism, 10), Noise()).num_reports == 10
            assert batch.perturb_column(mechanism, "all", some_values(mechanism, 0), Noise()).num_reports == 0

    def test_refuses_other_shapes(self):
        for values in [[np.zeros(3)], [np.zeros(3), np.zeros(4)], [np.zeros((3, 1))] * 2]:
            with pytest.raises(ParameterError, match="2 columns of one length"):
                batch.perturb_column(MECHANISMS["response"], "all", values, Noise())

    def test_planar_inputs_are_those_of_the_device(self):
        law = MECHANISMS["planar"].channel("all")
        places = [103.0, 103.9, 104.05, 104.2, 105.0, -math.inf, math.inf, math.nan]
        pairs = [(lon, lat) for lon in places for lat in (20.0, 30.5, 30.65, 30.8, 31.0, math.inf, math.nan)]
        found = batch.find_inputs(law, SMALL, *np.array(pairs).T)
        assert found.tolist() == [law.index(lon, lat) for lon, lat in pairs]


TIERS = (Tier(name="basic", epsilon="1"), Tier(name="strict", epsilon="0.5"))
TASK = Task(
    dataset="fleet",
    purposes=(
        Purpose(name="telemetry", mechanism="local-numeric", tiers=TIERS, quantities=(SPEED, LOAD)),
        Purpose(name="places", mechanism="local-location", tiers=TIERS, grid=SMALL, parameters={"area_in_clear": True}),
        Purpose(name="paths", mechanism="local-trajectory", tiers=TIERS, grid=SMALL, steps=2),
    ),
    schedule=Schedule(),
    limits=Limits(lifetime="1000", allow_unbounded=True),
)
VALUES = ((30.0, None), (104.0, 30.6), ((104.0, 30.6), (104.1, 30.6)))


def some_reports(num, task=TASK):
    noise, reports = Noise(), []
    mechanisms = [mechanism_of(task, purpose) for purpose in task.purposes]
    for number in range(num):
        purpose, tier = number % 3, number // 3 % 2
        level = task.slot_tiers(task.purposes[purpose])[tier]
        payload = mechanisms[purpose].perturb(VALUES[purpose], tier=level, noise=noise)
        report_id = noise.draw_bytes(8)
        reports.append(
            Report(
                task=task.prefix, purpose=purpose, tier=tier, day=20000, slot=1, report_id=report_id, payload=payload
            )
        )
    return reports


class TestTally:
    """Tallies add up, travel, and count each report once."""

    def test_reports_by_purpose_and_tier(self):
        tallies = Tally.of_reports(TASK, some_reports(60))
        names = {(purpose, tier.name) for purpose in ("telemetry", "places", "paths") for tier in TIERS}
        assert set(tallies.by_tier) == names
        assert {tally.num_reports for tally in tallies.by_tier.values()} == {10}
        assert tallies.num_reports == 60
        numbers = tallies.by_tier["telemetry", "basic"].parts
        assert sum(part.num for part in numbers.values()) == 10
        assert {attribute for attribute, _ in numbers} <= {0, 1, 2}
        assert [part.num for part in tallies.by_tier["paths", "strict"].parts.values()] == [10]
        assert list(tallies.by_tier["places", "basic"].parts) == [(SMALL.area(SMALL.cell(104.0, 30.6)),)]

    def test_a_report_counts_once(self):
        reports = some_reports(30)
        tallies = Tally.of_reports(TASK, [*reports, *reports, reports[3]])
        assert (tallies.num_reports, tallies.num_duplicates, tallies.num_conflicting) == (30, 31, 0)
        once = Tally.of_reports(TASK, reports)
        assert tallies.to_dict() == once.to_dict()

    def test_another_content_under_the_same_id(self):
        reports = some_reports(30)
        tallies = Tally.of_reports(TASK, [*reports, replace(reports[0], slot=2)])
        assert (tallies.num_reports, tallies.num_duplicates, tallies.num_conflicting) == (30, 0, 1)

    def test_bad_reports_are_counted_and_left_out(self):
        good = some_reports(6)
        bad = [
            replace(good[0], task=bytes(8), report_id=b"another."),
            replace(good[1], payload=b"", report_id=b"no bytes"),
            replace(good[2], payload=b"\xff" * 40, report_id=b"too many"),
            replace(good[3], purpose=7, report_id=b"purpose7"),
            replace(good[4], tier=9, report_id=b"tier9..."),
        ]
        tallies = Tally.of_reports(TASK, [*bad, *good])
        assert (tallies.num_bad, tallies.num_reports, len(tallies.first_bad)) == (5, 6, 5)
        assert "another task" in tallies.first_bad[0]
        assert Tally.of_reports(TASK, bad).by_tier == {}
        # A damaged report does not take the place of the right one with its id.
        mended = Tally.of_reports(TASK, [replace(good[1], payload=b""), good[1]])
        assert (mended.num_bad, mended.num_reports) == (1, 1)

    def test_names_no_more_than_20_bad_ones(self):
        good = some_reports(1)[0]
        tallies = Tally.of_reports(TASK, [replace(good, payload=b"", report_id=bytes([n] * 8)) for n in range(50)])
        assert (tallies.num_bad, len(tallies.first_bad)) == (50, 20)

    def test_travels_as_json_and_adds_up(self):
        for name in MECHANISMS:
            mechanism = MECHANISMS[name]
            parts = [batch.perturb_column(mechanism, "all", some_values(mechanism, size), Noise()) for size in (50, 30)]
            read = [Tally.from_dict(json.loads(json.dumps(part.to_dict()))) for part in parts]
            assert [tally.to_dict() for tally in read] == [part.to_dict() for part in parts]
            before = read[1].to_dict()
            read[0].merge(read[1])
            assert read[0].num_reports == 80
            for key in read[0].parts:
                assert read[0].parts[key].num == sum(part.parts[key].num for part in parts if key in part.parts)
            parts[1].merge(parts[0])
            assert parts[1].to_dict() == read[0].to_dict()  # in either order
            assert read[1].to_dict() == before  # what was added is left alone
            read[0].merge(read[1])
            assert read[1].to_dict() == before

    def test_merges_only_what_fits(self):
        one, other = Tally(purpose="a", tier="t"), Tally(purpose="a", tier="s")
        with pytest.raises(ParameterError, match="one purpose and tier"):
            one.merge(other)
        counted, longer = Tally(purpose="a", tier="t"), Tally(purpose="a", tier="t")
        one.sums(0, "duchi").add(np.array([1]))
        one.counts((), "bits", 4).add_rows(np.array([[5]], dtype=np.uint8))
        counted.counts((0, "duchi"), "symbols", 3)
        longer.sums(0, "duchi").add(np.array([-1]))
        longer.counts((), "bits", 5)
        before = one.to_dict()
        for wrong in (counted, longer):
            with pytest.raises(ParameterError, match="different laws"):
                one.merge(wrong)
        assert one.to_dict() == before  # all or nothing
        with pytest.raises(ParameterError, match="different laws"):
            one.parts[()].merge(longer.parts[()])

    def test_a_part_is_of_one_kind(self):
        tally = Tally(purpose="a", tier="t")
        tally.counts((1,), "bits", 4)
        with pytest.raises(ParameterError, match="holds counts"):
            tally.sums(1)
        for kind, shape in (("symbols", (4,)), ("bits", (5,)), ("bits", (2, 2))):
            with pytest.raises(ParameterError, match="something else"):
                tally.counts((1,), kind, *shape)

    def test_refuses_to_fill_the_memory(self):
        for shape in [(0,), (1 << 27,), (1 << 40, 1 << 40)]:
            with pytest.raises(ParameterError, match="coarser grid"):
                Counts.zeros("symbols", *shape)

    def test_reads_nothing_else(self):
        for change in [
            {"num_reports": -1},
            {"num_reports": 1.5},
            {"purpose": 3},
            {"parts": 7},
            {"parts": [{}]},
            {"parts": [3]},
            {"parts": [{"key": [0], "kind": "sums", "num": 1, "total": 0.5, "squares": 1}]},
            {"parts": [{"key": [0.5], "kind": "sums", "num": 1, "total": 1, "squares": 1}]},
            {"parts": [{"key": [0], "kind": "sums", "num": 1, "total": 1, "squares": -1}]},
            {"parts": [{"key": [0], "kind": "bits", "num": 1, "shape": [2], "counts": [1]}]},
            {"parts": [{"key": [0], "kind": "bits", "num": 1, "shape": [1 << 50], "counts": [1]}]},
            {"parts": [{"key": [0], "kind": "bits", "num": 1, "shape": [1], "counts": [1 << 70]}]},
            {"parts": [{"key": [0], "kind": "other", "num": 1, "shape": [1], "counts": [1]}]},
            {"parts": [{"key": [0], "kind": "sums", "num": 1, "total": 1, "squares": 1}] * 2},
        ]:
            good = Tally(purpose="a", tier="t").to_dict()
            assert Tally.from_dict(good).num_reports == 0
            with pytest.raises(InputError, match="not a tally"):
                Tally.from_dict({**good, **change})
            for data in ({}, [], None, "tally"):
                with pytest.raises(InputError, match="not a tally"):
                    Tally.from_dict(data)

    @given(st.lists(st.integers(-(2**62), 2**62)))
    def test_sums_never_overflow(self, numbers):
        sums = Sums()
        sums.add(np.array(numbers, dtype=np.int64))
        one_by_one = Sums()
        for number in numbers:
            one_by_one.add_one(number)
        assert sums == one_by_one == Sums(len(numbers), sum(numbers), sum(number**2 for number in numbers))

    @given(st.integers(1, 40), st.lists(st.integers(0, 2**40 - 1)))
    @settings(deadline=None)
    def test_counts_of_bits(self, num_bits, symbols):
        symbols = [symbol % (1 << num_bits) for symbol in symbols]
        counts, size = Counts.zeros("bits", num_bits), -(-num_bits // 8)
        rows = np.frombuffer(b"".join(symbol.to_bytes(size, "little") for symbol in symbols), dtype=np.uint8)
        counts.add_rows(rows.reshape(len(symbols), size))
        assert counts.counts.tolist() == [sum(symbol >> bit & 1 for symbol in symbols) for bit in range(num_bits)]
        assert counts.num == len(symbols)

    def test_counts_of_bits_together(self):
        for steps in [2, 3]:
            drawn = np.random.default_rng(1).integers(0, 1 << 3, (50, steps))
            counts = Counts.zeros("bits", *((4,) * steps))
            counts.add_together([row[:, None].astype(np.uint8) for row in drawn.T])
            bits = [[*(bit for bit in range(3) if symbol >> bit & 1), 3] for symbol in range(8)]
            expected = np.zeros((4,) * steps, dtype=np.int64)
            for report in drawn:
                for place in itertools.product(*(bits[symbol] for symbol in report)):
                    expected[place] += 1
            assert np.array_equal(counts.counts, expected)
            assert counts.counts[(3,) * steps] == counts.num == 50
