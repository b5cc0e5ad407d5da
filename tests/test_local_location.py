# SPDX-License-Identifier: Apache-2.0
"""Frequency oracles, the planar law and places: what a report gives away, exactly; what is estimated from it."""

from __future__ import annotations

import math
from collections import Counter
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.chance_help import chance_of
from tests.estimates_help import refuses

from dunnage.devices import places
from dunnage.devices.places import (
    DIRECTIONS,
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
    best_oracle,
    enumerated_loss,
    first_oracle,
)
from dunnage.devices.subjects import Grid
from dunnage.devices.task import Tier
from dunnage.errors import ParameterError
from dunnage.model.guarantees import Basis, LocalDP, MetricLocalDP, Neighbours, WithinCluster
from dunnage.noise.source import Noise

KINDS = (RandomisedResponse, SymmetricUnary, OptimisedUnary, HadamardResponse, PublishedUnary)
KINDS += (SubsetSelection, ProjectiveResponse)
UNARY = SymmetricUnary | OptimisedUnary
EPSILONS = tuple(Fraction(text) for text in ("0.01", "0.5", "0.7", "1", "7/3", "5", "20"))
BOX = ("103.9", "30.5", "104.2", "30.8")
GRID = Grid(box=BOX, levels=5, area_levels=3)
SMALL = Grid(box=BOX, levels=3, area_levels=2)
UNLIKELY = 1e-9
PLACE = (104.01, 30.61)
ONE = Fraction(1)


def law_of(channel, index, ratio):
    """Return the law of an input with e^-unit replaced by any rational number: every law is rational in it.

    Exponents are whole multiples of the unit. Up to a factor that depends on the symbol alone, which is found from the
    channel's own form: unary symbols have one more factor of the ratio for each bit that is 1.
    """
    weights = {}
    for symbol in filter(channel.possible, channel.symbols()):
        power = channel.exponent(index, symbol) / channel.ratio_epsilon
        assert power.denominator == 1
        ones = symbol.bit_count() if isinstance(channel, UNARY) else 0
        weights[symbol] = ratio ** (ones - power.numerator)
    total = sum(weights.values())
    return {symbol: weight / total for symbol, weight in weights.items()}


def check_law(draws, expected):
    """Chi-square test of draws against probabilities, rare outcomes put together."""
    seen, num = Counter(draws), len(draws)
    rarest_first = sorted(expected, key=expected.__getitem__)
    wanted = [float(expected[outcome]) * num for outcome in rarest_first]
    assert chance_of([seen[outcome] for outcome in rarest_first], wanted) > UNLIKELY


def test_the_worst_loss_by_looking_everywhere_is_the_closed_form():
    for kind, epsilon, num_inputs in product(KINDS, EPSILONS, [2, 3, 5, 8]):
        oracle = kind(num_inputs=num_inputs, epsilon=epsilon)
        assert enumerated_loss(oracle) == oracle.loss == (2 if kind is PublishedUnary else 1) * epsilon, oracle


def test_the_exponents_belong_to_the_law_that_the_paper_prints():
    """Bit by bit with p and q, or by counting symbols: the same law as the exponents give."""
    for kind, num_inputs, ratio in product(KINDS, (2, 3, 5), (Fraction(1, 3), Fraction(2, 7))):
        oracle = kind(num_inputs=num_inputs, epsilon=Fraction(3, 2))
        p, q = oracle.chances(ratio)
        for index in range(num_inputs):
            for symbol, chance in law_of(oracle, index, ratio).items():
                if isinstance(oracle, UNARY):
                    ones = [p if j == index else q for j in range(num_inputs)]
                    printed = math.prod(one if symbol >> j & 1 else 1 - one for j, one in enumerate(ones))
                elif isinstance(oracle, HadamardResponse):
                    printed = (p if oracle.score(symbol, index) == 1 else q) / (oracle.num_columns // 2)
                else:  # uniform among the symbols that support the input, and among the others
                    printed = p if oracle.score(symbol, index) == 1 else (1 - p) / oracle.rarity
                    printed /= oracle.num_supporting
                assert chance == printed
    for kind, epsilon, p, q in [
        (OptimisedUnary, ONE, 0.5, 1 / (math.e + 1)),
        (RandomisedResponse, ONE, math.e / (math.e + 8), 1 / (math.e + 8)),
        (SymmetricUnary, Fraction(2), math.e / (math.e + 1), 1 / (math.e + 1)),
        (PublishedUnary, ONE, math.e / (math.e + 1), 1 / (math.e + 1)),
    ]:
        oracle = kind(num_inputs=9, epsilon=epsilon)
        assert (oracle.p, oracle.q) == pytest.approx((p, q))


def test_estimates_are_unbiased_exactly():
    """An identity of rational functions in e^-epsilon, checked at more points than its degree allows for chance."""
    for kind, num_inputs in product(KINDS, [2, 3, 5, 6]):
        oracle = kind(num_inputs=num_inputs, epsilon=Fraction(2))
        for ratio in (Fraction(1, n) for n in range(2, 26 if num_inputs < 6 else 5)):
            p, q = oracle.chances(ratio)
            offset, scale = (0 if isinstance(oracle, HadamardResponse) else q), 1 / (p - q)
            for index in range(num_inputs):
                law = law_of(oracle, index, ratio)
                for asked in range(num_inputs):
                    mean = sum((oracle.score(symbol, asked) * chance for symbol, chance in law.items()), Fraction(0))
                    assert scale * (mean - offset) == (asked == index)


def test_variances_are_those_of_the_law():
    for kind, counts in product(KINDS, [(1, 0, 0, 0, 0), (2, 3, 0, 1, 4), (0, 0, 7, 0, 1)]):
        oracle, ratio, num = kind(num_inputs=5, epsilon=Fraction(2)), Fraction(1, 7), sum(counts)
        p, q = oracle.chances(ratio)
        laws = [law_of(oracle, index, ratio) for index in range(5)]
        for asked in range(5):
            summed = Fraction(0)
            for law, count in zip(laws, counts, strict=True):
                mean, square = (sum(oracle.score(s, asked) ** power * c for s, c in law.items()) for power in (1, 2))
                summed += count * (square - mean**2)
            share = Fraction(counts[asked], num)
            if isinstance(oracle, HadamardResponse):
                own = sum(counts[index] for index in range(5) if not (index - asked) % oracle.num_blocks)
                stated = oracle.block_variance(share, Fraction(own, num), ratio)
            else:
                stated = oracle.variance_of_one(share, ratio)
            assert stated / num == summed / (p - q) ** 2 / num**2


def test_designs_support_all_inputs_evenly():
    for kind, epsilon, num_inputs in product((SubsetSelection, ProjectiveResponse), EPSILONS, (2, 3, 6, 8)):
        oracle = kind(num_inputs=num_inputs, epsilon=epsilon)
        symbols = [symbol for symbol in oracle.symbols() if oracle.possible(symbol)]
        supporting = [{s for s in symbols if oracle.score(s, index)} for index in range(num_inputs)]
        assert {len(own) for own in supporting} == {oracle.num_supporting}
        assert Fraction(len(symbols), oracle.num_supporting) - 1 == oracle.rarity
        together = {len(one & other) for one, other in product(supporting, repeat=2) if one is not other}
        assert together == {oracle.overlap * oracle.num_supporting}
        if kind is SubsetSelection:  # no other size has less variance
            ratio = Fraction(oracle.ratio)
            sizes = range(1, num_inputs)
            designs = [(Fraction(num_inputs - d, d), Fraction(d - 1, num_inputs - 1)) for d in sizes]
            variances = [places.variance_of_pair(*places.design_chances(*d, ratio), Fraction(0)) for d in designs]
            assert variances[oracle.size - 1] <= Fraction(11, 10) * min(variances)
    for epsilon, num_inputs in product((ONE / 2, ONE, 2 * ONE, 5 * ONE), (65, 257, 4097, 65_537, 10**6)):
        oracle = ProjectiveResponse(num_inputs=num_inputs, epsilon=epsilon)
        prime, dimension = oracle.geometry
        assert all(prime % divisor for divisor in range(2, prime))
        assert num_inputs <= oracle.num_symbols == sum(prime**power for power in range(dimension)) <= places.MAX_POINTS
        for index in (0, num_inputs // 2, num_inputs - 1):  # the first coordinate that is not 0 is 1
            point = oracle.input_point(index)
            assert len(point) == dimension
            assert next(filter(None, point[1:]), 1) == 1


def test_the_best_oracle_is_no_worse_than_any_other():
    for epsilon, num_inputs in product(map(Fraction, ("0.5", "1", "2", "3", "4", "5")), (2, 5, 17, 65, 257, 4097)):
        best, share = best_oracle(num_inputs, epsilon), 1 / num_inputs
        rivals = [kind(num_inputs=num_inputs, epsilon=epsilon) for kind in KINDS if kind is not PublishedUnary]
        least = min(oracle.variance(share, 1) for oracle in rivals)
        assert best.variance(share, 1) <= 1.0301 * least
        near = [oracle for oracle in rivals if oracle.variance(share, 1) < 1.0299 * least]
        assert best.payload_bits <= min(oracle.payload_bits for oracle in near)
    assert best_oracle(65, Fraction(3)).name == "subset-selection"  # version 0.1.0 chose one 40 % worse
    large = best_oracle(65_537, Fraction(5))
    assert (large.name, large.payload_bits) == ("projective", 22)
    assert large.variance(0, 1) * 1.9 < first_oracle(65_537, Fraction(5)).variance(0, 1)
    assert best_oracle(1 << 40, ONE).name == "hadamard"  # the points of a projective space would be too many to count


def test_the_variance_of_hadamard_response():
    """All others alike by default; and it does not vanish by rounding."""
    oracle = HadamardResponse(num_inputs=8, epsilon=Fraction(2))
    assert oracle.num_blocks == 4
    assert oracle.variance(0, 10) == pytest.approx(oracle.block_variance(0.0, 1 / 7, oracle.ratio) / 10)
    assert oracle.variance(0, 10) < oracle.block_variance(0.0, 1.0, oracle.ratio) / 10
    for epsilon, num_inputs in product((1, 10, 36, 40, 100), (2, 5, 17, 257)):
        oracle = HadamardResponse(num_inputs=num_inputs, epsilon=Fraction(epsilon))
        share = Fraction(1, num_inputs)
        exactly = oracle.variance_of_one(share, Fraction(oracle.ratio))
        assert oracle.variance(float(share), 1) == pytest.approx(float(exactly), rel=1e-9)
        p, q = oracle.chances(Fraction(oracle.ratio))
        block = share + (1 - share) * (math.ceil(Fraction(num_inputs, oracle.num_blocks)) - 1) / (num_inputs - 1)
        assert exactly == (block * (p + q) + (1 - block) * 2 * q) / (p - q) ** 2 - share


def test_reports_are_drawn_by_the_law():
    noise = Noise()
    for kind, epsilon, index in product(KINDS, [Fraction(1, 2), Fraction(5, 2)], (0, 3, 5)):
        oracle = kind(num_inputs=6, epsilon=epsilon)
        law, draws = (
            law_of(oracle, index, Fraction(oracle.ratio)),
            [oracle.perturb(index, noise) for _ in range(6_000)],
        )
        assert set(draws) <= set(law)
        check_law(draws, law)
    for kind in KINDS:  # large ones
        oracle, num = kind(num_inputs=257, epsilon=Fraction(2)), 1500
        reports = [oracle.perturb(200, noise) for _ in range(num)]
        for asked, share in ((200, 1.0), (7, 0.0), (256, 0.0)):
            mean = sum(oracle.score(symbol, asked) for symbol in reports) / num
            if isinstance(oracle, HadamardResponse):
                same = asked % oracle.num_blocks == 200 % oracle.num_blocks
                variance = oracle.block_variance(share, float(same), oracle.ratio) / num
            else:
                variance = oracle.variance(share, num)
            assert abs(oracle.scale * (mean - oracle.offset) - share) < 8.5 * math.sqrt(
                variance
            )  # some scores are rare


@given(
    weight=st.integers(1, 1 << 40),
    x=st.fractions(Fraction(1, 1000), 60, max_denominator=1000),
    bits=st.sampled_from([8, 64, 200]),
)
@settings(max_examples=100, deadline=None)
def test_digits_of_a_chance_are_right(weight, x, bits):
    digits, known = places.chance_digits(weight, x, bits)
    assert places.chance_digits(Fraction(weight), x, bits) == (digits, known)
    with localcontext() as context:
        context.prec = 150
        chance = weight / ((Decimal(x.numerator) / x.denominator).exp() + weight)
        assert known <= bits
        assert digits == int(chance * 2**known)


def test_a_chance_is_drawn_to_the_last_digit(monkeypatch):
    """With as few digits at a time as can be, ties go on and on: the law must not change."""
    digits = places.chance_digits
    monkeypatch.setattr(places, "chance_digits", lambda weight, x, bits: digits(weight, x, (bits // 64).bit_length()))
    noise, num, half = Noise(), 40_000, Fraction(1, 2)
    hits = sum(places.draw_chance(3, half, noise) for _ in range(num))
    ones = sum(places.draw_bits(100, half, noise).bit_count() for _ in range(400))
    for seen, chance in ((hits, 3 / (math.exp(0.5) + 3)), (ones, 1 / (math.exp(0.5) + 1))):
        assert abs(seen - num * chance) < 6.5 * math.sqrt(num * chance * (1 - chance))


@given(st.fractions(Fraction(1, 100), 40, max_denominator=500), st.integers(2, 1 << 30))
@settings(max_examples=100, deadline=None)
def test_blocks_have_the_least_variance_of_all_powers_of_two(x, most):
    odds, powers = math.exp(x), [1 << power for power in range(most.bit_length()) if 1 << power <= most]
    variances = {num: (odds + 2 * num - 1) ** 2 / num / (odds - 1) ** 2 for num in powers}
    assert variances[places.best_blocks(x, most)] <= 1.002 * min(variances.values())


@given(st.integers(2, 5000), st.sampled_from(EPSILONS))
def test_hadamard_response_has_a_row_for_every_input(num_inputs, epsilon):
    oracle = HadamardResponse(num_inputs=num_inputs, epsilon=epsilon)
    last_row = 1 + (num_inputs - 1) // oracle.num_blocks
    assert last_row < oracle.num_columns <= 2 * last_row
    assert oracle.num_symbols == 1 << oracle.payload_bits


def test_the_choice_follows_variance_then_size():
    for epsilon, num_inputs in product(EPSILONS, (2, 5, 17, 65, 257, 1025, 4097, 4098, 100_000)):
        chosen = first_oracle(num_inputs, epsilon)
        kinds = (RandomisedResponse, OptimisedUnary, HadamardResponse)
        rivals = [kind(num_inputs=num_inputs, epsilon=epsilon) for kind in kinds]
        fitting = [oracle for oracle in rivals if oracle.payload_bits <= 4097]
        least = min(oracle.variance(0, 1) for oracle in fitting)
        assert chosen in fitting
        assert chosen.variance(0, 1) <= 1.1001 * least
        bound = 1.0999 * least
        if num_inputs <= 4097:  # no worse than the published form at equal loss
            published = PublishedUnary(num_inputs=num_inputs, epsilon=epsilon / 2)
            assert published.loss == chosen.loss
            assert chosen.variance(0, 1) <= published.variance(0, 1) * (1 + 1e-9)
            bound = min(bound, published.variance(0, 1) * (1 - 1e-9))
        near = [oracle for oracle in fitting if oracle.variance(0, 1) < bound] or [chosen]
        assert chosen.payload_bits <= min(oracle.payload_bits for oracle in near)
    for epsilon in (ONE, Fraction(2), Fraction(3)):  # the known borders
        border = 3 * math.exp(epsilon) + 2
        names = [first_oracle(num, epsilon).name for num in (math.floor(border), math.ceil(1.2 * border), 5000)]
        assert names == ["randomised-response", "optimised-unary", "hadamard"]


def test_bad_oracles_cannot_be_made():
    for kind in KINDS:
        for num_inputs, epsilon in [(1, ONE), (0, ONE), (5, ONE * 0), (5, ONE / 10**7), (5, 0.5), (1 << 60, ONE)]:
            with refuses(ParameterError, (kind, num_inputs, epsilon)):
                kind(num_inputs=num_inputs, epsilon=epsilon)
        with refuses(ParameterError, kind):  # too many to list
            kind(num_inputs=5000, epsilon=ONE).symbols()


def area_channel(oracle, areas):
    return InClear(oracle=oracle(num_inputs=5, epsilon=ONE), num_groups=areas)


def test_an_area_in_clear_has_no_bound_and_the_same_check_finds_it():
    for kind in KINDS:
        channel, single = area_channel(kind, 4), area_channel(kind, 1)
        assert channel.num_inputs == 17
        assert enumerated_loss(channel) is channel.loss is None
        assert enumerated_loss(single) == single.loss == single.loss_within == channel.loss_within


def test_within_an_area_the_loss_is_that_of_the_oracle():
    noise = Noise()
    for kind in KINDS:
        channel = area_channel(kind, 3)
        for area in range(3):
            inputs = [i for i in range(channel.num_inputs) if channel.split(i)[0] == area]
            assert len(inputs) == 4 + (area == 0)  # a missing place counts for the first area
            worst = Fraction(0)
            for symbol in filter(channel.possible, channel.symbols()):
                exponents = [channel.exponent(i, symbol) for i in inputs]
                if symbol // channel.oracle.num_symbols == area:
                    worst = max(worst, max(exponents) - min(exponents))
                else:
                    assert exponents == [None] * len(inputs)
            assert worst == channel.loss_within
            for index in inputs * 20:
                assert channel.perturb(index, noise) // channel.oracle.num_symbols == area


def norm(across, along):
    """Return the longest scalar product of a displacement with one of the 36 directions."""
    return max((a * abs(across) + b * abs(along)) / c for a, b, c in DIRECTIONS)


def planar(epsilon="0.25", grid=SMALL):
    return Planar(grid=grid, epsilon=Fraction(epsilon))


def test_directions_lie_on_the_circle_and_are_mirrored():
    assert all(a * a + b * b == c * c for a, b, c in DIRECTIONS)
    assert {(b, a, c) for a, b, c in DIRECTIONS} == set(DIRECTIONS)
    angles = [math.degrees(math.atan2(b, a)) for a, b, _ in DIRECTIONS]
    assert angles == sorted(angles)
    assert (angles[0], angles[-1]) == (0, 90)
    # So that the norm is the length, or less by 1 - cos(11.5 / 2 degrees) at most.
    assert max(later - sooner for sooner, later in pairwise(angles)) < 11.5


def test_the_loss_between_two_cells_is_epsilon_per_kilometre_on_any_lattice_point():
    law, size, (width, height) = planar(), SMALL.num_columns, SMALL.pitch_km
    cells, window = (list(product(range(*ends), repeat=2)) for ends in ((size,), (-size, 2 * size)))
    exponents = {at: law.displacement_exponent(*at) for at in product(range(-2 * size, 2 * size + 1), repeat=2)}
    for (columns, rows), exponent in exponents.items():
        assert exponent == -law.epsilon * norm(columns * width, rows * height)
        # A proposal is never likelier than the law allows.
        assert law.rates[0] * abs(columns) + law.rates[1] * abs(rows) <= -exponent
    for here, there in product(cells, repeat=2):
        gaps = [exponents[x - here[0], y - here[1]] - exponents[x - there[0], y - there[1]] for x, y in window]
        worst = law.epsilon * norm((here[0] - there[0]) * width, (here[1] - there[1]) * height)
        assert max(gaps) == worst <= law.loss  # reached at the cell itself
    assert law.loss == law.epsilon * norm(3 * width, 3 * height)


def clamped_law(law, index, margin):
    """Return the chance of each cell, summed over a window that holds all but nothing of the law."""
    size = law.grid.num_columns
    column, row = law.grid.column_row(law.centre if index == law.grid.outside else index)
    chances = Counter()
    for x, y in product(range(-margin, size + margin), repeat=2):
        chance = math.exp(float(law.displacement_exponent(x - column, y - row)))
        chances[law.grid.cell_at(min(max(x, 0), size - 1), min(max(y, 0), size - 1))] += chance
    total = sum(chances.values())
    return {cell: chance / total for cell, chance in chances.items()}


def test_after_clamping_the_promise_still_holds():
    law, (width, height) = planar("0.5"), (float(side) for side in SMALL.pitch_km)
    laws = {index: clamped_law(law, index, 12) for index in range(SMALL.num_cells)}
    for one, other in product(laws, repeat=2):
        columns, rows = (a - b for a, b in zip(SMALL.column_row(one), SMALL.column_row(other), strict=True))
        distance = math.hypot(columns * width, rows * height)
        ratio = max(laws[one][cell] / laws[other][cell] for cell in laws[one])
        assert math.log(ratio) <= 0.5 * distance + 1e-9


def test_places_by_the_planar_law_are_drawn_by_it():
    noise = Noise()
    for (epsilon, margin), index in product([("0.1", 40), ("0.5", 12)], (0, 9, SMALL.outside)):
        law = planar(epsilon)
        check_law([law.perturb(index, noise) for _ in range(4000)], clamped_law(law, index, margin))
    law = planar("0.4")
    weights = {at: math.exp(float(law.displacement_exponent(*at))) for at in product(range(-25, 26), repeat=2)}
    total = sum(weights.values())
    draws = [law.displacement(noise) for _ in range(12_000)]
    check_law(draws, {at: weight / total for at, weight in weights.items()})
    fine = Grid(box=BOX, levels=8)  # reports lie about as far off as stated
    law, (width, height) = planar("2", fine), (float(side) for side in fine.pitch_km)
    far = [math.hypot(x * width, y * height) for x, y in (law.displacement(noise) for _ in range(2000))]
    assert abs(sum(far) / len(far) - float(2 / law.epsilon)) < 0.15


def test_the_planar_mechanism():
    mechanism, law = LocalLocation(grid=SMALL, epsilon=1, method="planar"), planar()
    assert mechanism.index((0, 30.65)) == SMALL.cell(103.9, 30.65)  # outside goes to the border
    assert mechanism.index((math.inf, -math.inf)) == SMALL.cell(104.2, 30.5)
    assert mechanism.index((104.0, 30.6)) == SMALL.cell(104.0, 30.6)
    for missing in (None, (math.nan, 30.6), ("a", "b")):
        assert mechanism.index(missing) == SMALL.outside
    assert SMALL.column_row(law.centre) == (2, 2)
    assert law.exponent(SMALL.outside, 3) == law.exponent(law.centre, 3)
    with pytest.raises(ParameterError):  # its symbols cannot be listed
        enumerated_loss(law)
    with pytest.raises(ParameterError):
        planar("0")
    wide = LocalLocation(grid=SMALL, epsilon="0.05", method="planar").noise_verdict(100_000)
    assert (wide.is_noise, wide.levels, wide.epsilon) == (True, None, Fraction(1, 2))
    assert not mechanism.noise_verdict(100_000).is_noise


def test_missing_and_outside_are_one_input():
    mechanism = LocalLocation(grid=GRID, epsilon=1)
    for value in (None, (math.nan, 30.6), (0, 0), "x", (104.0,)):
        assert mechanism.index(value) == GRID.num_cells == mechanism.channel("all").num_inputs - 1
    cell = GRID.cell(*PLACE)
    assert mechanism.index(PLACE) == cell
    clear = LocalLocation(grid=GRID, epsilon=1, area_in_clear=True)
    channel = clear.channel("all")
    assert channel.split(clear.index(None)) == (0, GRID.num_inner)
    assert channel.split(cell) == (GRID.area(cell), GRID.inner(cell))


def test_promises_say_what_holds():
    half = Fraction(1, 2)
    sound, clear, published, blurred = (
        LocalLocation(grid=GRID, epsilon="0.5", **form).promise()
        for form in ({}, {"area_in_clear": True}, {"as_published": True}, {"method": "planar"})
    )
    assert [promise.basis is Basis.PROVED for promise in (sound, clear, published)] == [True, True, False]
    assert sound.guarantee == LocalDP(epsilon=half, protects="report", neighbours=Neighbours.REPLACE_ONE)
    assert sound.true_loss(Neighbours.REPLACE_ONE).epsilon == half
    assert isinstance(clear.guarantee, WithinCluster)
    assert all("16" in text for text in (clear.guarantee.clusters, clear.in_clear[0]))
    assert isinstance(published.holds, WithinCluster)
    assert published.holds.epsilon == 1
    assert not any(promise.true_loss(Neighbours.REPLACE_ONE).bounded for promise in (clear, published))
    assert isinstance(blurred.guarantee, MetricLocalDP)
    assert blurred.guarantee.distance == "1 km"


def test_published_reports_turn_every_bit_over_at_epsilon():
    law = LocalLocation(grid=SMALL, epsilon=1, as_published=True).channel("all")
    assert isinstance(law.oracle, PublishedUnary)
    assert (law.oracle.num_inputs, law.num_groups, law.loss, law.loss_within) == (5, 4, None, 2)
    assert law.payload_bits == 2 + 5
    assert enumerated_loss(law) is None
    # A map of one area gives away twice epsilon.
    whole = LocalLocation(grid=Grid(box=BOX, levels=2, area_levels=1), epsilon="0.5", as_published=True)
    assert enumerated_loss(whole.channel("all")) == whole.true_loss("all") == 1
    assert isinstance(whole.promise().holds, LocalDP)
    assert whole.promise().holds.epsilon == 1


def test_bad_parameters_are_refused():
    wrong = [{"method": "laplace"}, {"area_in_clear": "false"}, {"method": "planar", "area_in_clear": True}]
    wrong += [{"method": "hadamard", "as_published": True}, {"grid": Grid(box=BOX, levels=1)}, {"grid": None}]
    for parameters in wrong:
        with refuses(ParameterError, parameters):
            LocalLocation(**{"grid": GRID, "epsilon": 1, **parameters})


def test_the_predicted_error_is_the_error():
    """All cells alike and many devices: the estimates scatter as predicted."""
    mechanism, noise, num = LocalLocation(grid=SMALL, epsilon=2, method="optimised-unary"), Noise(seed=6), 17 * 200
    oracle = mechanism.oracle("all")
    reports = [oracle.perturb(at % 17, noise) for at in range(num)]
    means = [sum(report >> cell & 1 for report in reports) / num for cell in range(17)]
    seen = sum((oracle.scale * (mean - oracle.offset) - 1 / 17) ** 2 for mean in means) / 17
    assert 0.2 < seen / mechanism.predicted_sd("all", num) ** 2 < 3
    clear = LocalLocation(grid=GRID, epsilon=1, area_in_clear=True)  # predicted area by area
    inner = clear.oracle("all").variance(16 / 257, 9858 / 16)
    assert clear.predicted_sd("all", 9858) == pytest.approx(math.sqrt(inner) / 16)


def test_a_map_that_would_be_noise_is_named_with_what_would_do():
    verdict = LocalLocation(grid=GRID, epsilon="0.5").noise_verdict(9858)
    assert (verdict.is_noise, verdict.levels, verdict.epsilon) == (True, 3, 2)
    assert all(fact in verdict.message for fact in ("9,858", "0.5", "3", "2"))
    for levels, epsilon, is_noise in [(3, "0.5", False), (4, "0.5", True), (5, 2, False), (5, "1.5", True)]:
        mechanism = LocalLocation(grid=Grid(box=BOX, levels=levels), epsilon=epsilon)
        assert mechanism.noise_verdict(9858).is_noise == is_noise, (levels, epsilon)
    hopeless = LocalLocation(grid=GRID, epsilon="0.01").noise_verdict(1)
    assert hopeless.levels is hopeless.epsilon is None
    with pytest.raises(ParameterError):
        LocalLocation(grid=GRID, epsilon=1).noise_verdict(0)
    tiers = (Tier(name="basic", epsilon="2"), Tier(name="strict", epsilon="0.5"))  # judged together
    verdict = LocalLocation(grid=GRID, tiers=tiers).noise_verdict(9858)
    assert verdict.predicted_sd < LocalLocation(grid=GRID, epsilon=2).predicted_sd("all", 4929)
    assert "2, 0.5" in verdict.message
