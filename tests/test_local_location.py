# SPDX-License-Identifier: Apache-2.0
"""Frequency oracles and places: what a report gives away, exactly; what is estimated from it; what is refused."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from dunnage.devices.places import (
    Channel,
    HadamardResponse,
    InClear,
    LocalLocation,
    OptimisedUnary,
    Oracle,
    PublishedUnary,
    RandomisedResponse,
    SymmetricUnary,
    best_blocks,
    chance_digits,
    choose_oracle,
    draw_bits,
    draw_chance,
    enumerated_loss,
)
from dunnage.devices.subjects import Grid
from dunnage.devices.task import Tier
from dunnage.errors import ParameterError, ReportError
from dunnage.model.guarantees import Basis, LocalDP, MetricLocalDP, Neighbours, WithinCluster
from dunnage.noise.source import Noise

KINDS: tuple[type[Oracle], ...] = (
    RandomisedResponse,
    SymmetricUnary,
    OptimisedUnary,
    HadamardResponse,
    PublishedUnary,
)
EPSILONS = tuple(Fraction(text) for text in ("0.01", "0.5", "0.7", "1", "7/3", "5", "20"))
BOX = ("103.9", "30.5", "104.2", "30.8")
GRID = Grid(box=BOX, levels=5, area_levels=3)
SMALL = Grid(box=BOX, levels=3, area_levels=2)
UNLIKELY = 1e-9
PLACE = (104.01, 30.61)


def law_of(channel: Channel, index: int, ratio: Fraction, unit: Fraction) -> dict[int, Fraction]:
    """Return the law of an input with e^-unit replaced by any rational number: every law is rational in it.

    Exponents are whole multiples of the unit. Up to a factor that depends on the symbol alone, which is found from the
    channel's own form: unary symbols have one more factor of the ratio for each bit that is 1.
    """
    weights = {}
    for symbol in channel.symbols():
        exponent = channel.exponent(index, symbol)
        assert exponent is not None
        power = exponent / unit
        assert power.denominator == 1
        ones = symbol.bit_count() if isinstance(channel, SymmetricUnary | OptimisedUnary) else 0
        weights[symbol] = ratio ** (ones - power.numerator)
    total = sum(weights.values())
    return {symbol: weight / total for symbol, weight in weights.items()}


def test_the_worst_loss_by_looking_everywhere_is_the_closed_form() -> None:
    for kind, epsilon, num_inputs in itertools.product(KINDS, EPSILONS, [2, 3, 5, 8]):
        oracle = kind(num_inputs=num_inputs, epsilon=epsilon)
        assert enumerated_loss(oracle) == oracle.loss == (2 if kind is PublishedUnary else 1) * epsilon


def test_the_exponents_belong_to_the_law_that_the_paper_prints() -> None:
    """Bit by bit with p and q, or by counting symbols: the same law as the exponents give."""
    for kind in KINDS:
        for num_inputs, ratio in product((2, 3, 5), (Fraction(1, 3), Fraction(2, 7))):
            oracle = kind(num_inputs=num_inputs, epsilon=Fraction(3, 2))
            p, q = oracle.chances(ratio)
            for index in range(num_inputs):
                law = law_of(oracle, index, ratio, oracle.ratio_epsilon)
                for symbol, chance in law.items():
                    if isinstance(oracle, SymmetricUnary | OptimisedUnary):
                        ones = [p if j == index else q for j in range(num_inputs)]
                        printed = math.prod(one if symbol >> j & 1 else 1 - one for j, one in enumerate(ones))
                    else:
                        half = oracle.num_columns // 2 if isinstance(oracle, HadamardResponse) else 1
                        printed = (p if oracle.score(symbol, index) == 1 else q) / half
                    assert chance == printed


def test_estimates_are_unbiased_exactly() -> None:
    """An identity of rational functions in e^-epsilon, checked at more points than its degree allows for chance."""
    for kind, num_inputs in itertools.product(KINDS, [2, 3, 5, 6]):
        oracle = kind(num_inputs=num_inputs, epsilon=Fraction(2))
        for ratio in (Fraction(1, n) for n in range(2, 26)):
            p, q = oracle.chances(ratio)
            offset, scale = (0 if isinstance(oracle, HadamardResponse) else q), 1 / (p - q)
            for index in range(num_inputs):
                law = law_of(oracle, index, ratio, oracle.ratio_epsilon)
                for asked in range(num_inputs):
                    mean = sum((oracle.score(symbol, asked) * chance for symbol, chance in law.items()), Fraction(0))
                    assert scale * (mean - offset) == (asked == index)


def test_variances_are_those_of_the_law() -> None:
    for kind, counts in itertools.product(KINDS, [(1, 0, 0, 0, 0), (2, 3, 0, 1, 4), (0, 0, 7, 0, 1)]):
        oracle, ratio, num = kind(num_inputs=5, epsilon=Fraction(2)), Fraction(1, 7), sum(counts)
        p, q = oracle.chances(ratio)
        scale = 1 / (p - q)
        for asked in range(5):
            summed = Fraction(0)
            for index, count in enumerate(counts):
                law = law_of(oracle, index, ratio, oracle.ratio_epsilon)
                mean, square = (sum(oracle.score(s, asked) ** power * c for s, c in law.items()) for power in (1, 2))
                summed += count * (square - mean**2)
            share = Fraction(counts[asked], num)
            if isinstance(oracle, HadamardResponse):
                own = sum(
                    count
                    for index, count in enumerate(counts)
                    if index % oracle.num_blocks == asked % oracle.num_blocks
                )
                stated = oracle.block_variance(share, Fraction(own, num), ratio)
            else:
                stated = oracle.variance_of_one(share, ratio)
            assert stated / num == scale**2 * summed / num**2


def test_the_variance_of_hadamard_response_takes_all_others_alike_by_default() -> None:
    oracle = HadamardResponse(num_inputs=8, epsilon=Fraction(2))
    assert oracle.num_blocks == 4
    assert oracle.variance(0, 10) == pytest.approx(oracle.block_variance(0.0, 1 / 7, oracle.ratio) / 10)
    assert oracle.variance(0, 10) < oracle.block_variance(0.0, 1.0, oracle.ratio) / 10


def test_reports_are_drawn_by_the_law() -> None:
    for kind, epsilon in itertools.product(KINDS, [Fraction(1, 2), Fraction(5, 2)]):
        oracle, num = kind(num_inputs=6, epsilon=epsilon), 20_000
        noise = Noise(seed=1)
        ratio = Fraction(oracle.ratio)
        for index in (0, 3, 5):
            law = law_of(oracle, index, ratio, oracle.ratio_epsilon)
            drawn = Counter(oracle.perturb(index, noise) for _ in range(num))
            assert set(drawn) <= set(law)
            rare = [symbol for symbol, chance in law.items() if chance * num < 5]
            often = [symbol for symbol in law if symbol not in set(rare)]
            seen = [drawn[symbol] for symbol in often] + [sum(drawn[symbol] for symbol in rare)]
            expected = [float(law[symbol]) * num for symbol in often] + [float(sum(law[s] for s in rare)) * num]
            if not rare:
                seen, expected = seen[:-1], expected[:-1]
            assert chisquare(seen, [e * num / sum(expected) for e in expected]).pvalue > UNLIKELY


def test_large_reports_are_unbiased_in_practice() -> None:
    for kind in KINDS:
        oracle, num, noise = kind(num_inputs=257, epsilon=Fraction(2)), 3000, Noise(seed=2)
        reports = [oracle.perturb(200, noise) for _ in range(num)]
        for asked, share in ((200, 1.0), (7, 0.0), (256, 0.0)):
            mean = sum(oracle.score(symbol, asked) for symbol in reports) / num
            if isinstance(oracle, HadamardResponse):
                same = asked % oracle.num_blocks == 200 % oracle.num_blocks
                variance = oracle.block_variance(share, float(same), oracle.ratio) / num
            else:
                variance = oracle.variance(share, num)
            assert abs(oracle.scale * (mean - oracle.offset) - share) < 6.5 * math.sqrt(variance)


def test_p_and_q_are_the_chances_of_support() -> None:
    p, q = OptimisedUnary(num_inputs=9, epsilon=Fraction(1)).p, OptimisedUnary(num_inputs=9, epsilon=Fraction(1)).q
    assert (p, q) == (0.5, pytest.approx(1 / (math.e + 1)))
    response = RandomisedResponse(num_inputs=9, epsilon=Fraction(1))
    assert (response.p, response.q) == pytest.approx((math.e / (math.e + 8), 1 / (math.e + 8)))
    assert SymmetricUnary(num_inputs=9, epsilon=Fraction(2)).p == pytest.approx(math.e / (math.e + 1))
    assert PublishedUnary(num_inputs=9, epsilon=Fraction(1)).p == pytest.approx(math.e / (math.e + 1))


@given(
    weight=st.integers(1, 1 << 40),
    x=st.fractions(Fraction(1, 1000), 60, max_denominator=1000),
    bits=st.sampled_from([8, 64, 200]),
)
@settings(max_examples=100, deadline=None)
def test_digits_of_a_chance_are_right(weight: int, x: Fraction, bits: int) -> None:
    digits, known = chance_digits(weight, x, bits)
    with localcontext() as context:
        context.prec = 150
        chance = weight / ((Decimal(x.numerator) / x.denominator).exp() + weight)
        assert known <= bits
        assert digits == int(chance * 2**known)


def test_a_chance_is_drawn_to_the_last_digit(monkeypatch: pytest.MonkeyPatch) -> None:
    """With as few digits at a time as can be, ties go on and on: the law must not change."""
    from dunnage.devices import places

    def few(weight: int, x: Fraction, bits: int) -> tuple[int, int]:
        return chance_digits(weight, x, (bits // 64).bit_length())

    monkeypatch.setattr(places, "chance_digits", few)
    noise, num, chance = Noise(seed=3), 40_000, 3 / (math.exp(0.5) + 3)
    hits = sum(draw_chance(3, Fraction(1, 2), noise) for _ in range(num))
    assert abs(hits - num * chance) < 6.5 * math.sqrt(num * chance * (1 - chance))
    ones = sum(draw_bits(100, Fraction(1, 2), noise).bit_count() for _ in range(400))
    chance = 1 / (math.exp(0.5) + 1)
    assert abs(ones - num * chance) < 6.5 * math.sqrt(num * chance * (1 - chance))


@given(st.fractions(Fraction(1, 100), 40, max_denominator=500), st.integers(2, 1 << 30))
@settings(max_examples=100, deadline=None)
def test_blocks_have_the_least_variance_of_all_powers_of_two(x: Fraction, most: int) -> None:
    chosen = best_blocks(x, most)
    odds = math.exp(x)
    variances = {
        1 << power: (odds + (2 << power) - 1) ** 2 / (1 << power) / (odds - 1) ** 2
        for power in range(most.bit_length())
        if 1 << power <= most
    }
    assert variances[chosen] <= 1.002 * min(variances.values())


@given(st.integers(2, 5000), st.sampled_from(EPSILONS))
def test_hadamard_response_has_a_row_for_every_input(num_inputs: int, epsilon: Fraction) -> None:
    oracle = HadamardResponse(num_inputs=num_inputs, epsilon=epsilon)
    last_row = 1 + (num_inputs - 1) // oracle.num_blocks
    assert last_row < oracle.num_columns <= 2 * last_row
    assert oracle.num_symbols == 1 << oracle.payload_bits


def test_the_choice_follows_variance_then_size() -> None:
    for epsilon in EPSILONS:
        for num_inputs in (2, 5, 17, 65, 257, 1025, 4097, 4098, 100_000):
            chosen = choose_oracle(num_inputs, epsilon)
            rivals = [
                kind(num_inputs=num_inputs, epsilon=epsilon)
                for kind in (RandomisedResponse, OptimisedUnary, HadamardResponse)
            ]
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


def test_the_choice_is_the_known_one() -> None:
    for epsilon in (Fraction(1), Fraction(2), Fraction(3)):
        border = 3 * math.exp(epsilon) + 2
        assert choose_oracle(math.floor(border), epsilon).name == "randomised-response"
        assert choose_oracle(math.ceil(1.2 * border), epsilon).name == "optimised-unary"
        assert choose_oracle(5000, epsilon).name == "hadamard"


def test_bad_oracles_cannot_be_made() -> None:
    for kind in KINDS:
        for num_inputs, epsilon in ((1, Fraction(1)), (0, Fraction(1)), (5, Fraction(0)), (5, Fraction(1, 10**7))):
            with pytest.raises(ParameterError):
                kind(num_inputs=num_inputs, epsilon=epsilon)
        with pytest.raises(ParameterError):
            kind(num_inputs=5, epsilon=0.5)  # type: ignore[arg-type]
        with pytest.raises(ParameterError, match="inputs"):
            kind(num_inputs=1 << 60, epsilon=Fraction(1))
        with pytest.raises(ParameterError, match="too many"):
            kind(num_inputs=5000, epsilon=Fraction(1)).symbols()


# Areas in clear.


def area_channel(oracle: type[Oracle], areas: int) -> InClear:
    return InClear(oracle=oracle(num_inputs=5, epsilon=Fraction(1)), num_groups=areas)


def test_an_area_in_clear_has_no_bound_and_the_same_check_finds_it() -> None:
    for kind in KINDS:
        channel = area_channel(kind, 4)
        assert channel.num_inputs == 17
        assert enumerated_loss(channel) is channel.loss is None
        single = area_channel(kind, 1)
        assert enumerated_loss(single) == single.loss == single.loss_within == channel.loss_within


def test_within_an_area_the_loss_is_that_of_the_oracle() -> None:
    for kind in KINDS:
        channel = area_channel(kind, 3)
        for area in range(3):
            inputs = [i for i in range(channel.num_inputs) if channel.split(i)[0] == area]
            assert len(inputs) == 4 + (area == 0)  # a missing place counts for the first area
            worst = Fraction(0)
            for symbol in channel.symbols():
                exponents = [channel.exponent(i, symbol) for i in inputs]
                if symbol // channel.oracle.num_symbols == area:
                    known = [exponent for exponent in exponents if exponent is not None]
                    assert len(known) == len(inputs)
                    worst = max(worst, max(known) - min(known))
                else:
                    assert exponents == [None] * len(inputs)
            assert worst == channel.loss_within


def test_symbols_of_an_area_are_of_that_area() -> None:
    channel, noise = area_channel(HadamardResponse, 4), Noise(seed=4)
    for index in range(channel.num_inputs):
        for _ in range(20):
            assert channel.perturb(index, noise) // channel.oracle.num_symbols == channel.split(index)[0]


# LocalLocation.

METHODS = ("auto", "randomised-response", "symmetric-unary", "optimised-unary", "hadamard", "planar")
FORMS = [
    *({"method": method} for method in METHODS),
    {"area_in_clear": True},
    {"area_in_clear": True, "method": "symmetric-unary"},
    {"as_published": True},
]


def test_every_value_makes_one_report_that_can_be_read() -> None:
    for form in FORMS:
        mechanism, noise = LocalLocation(grid=GRID, epsilon="0.5", **form), Noise(seed=5)  # type: ignore[arg-type]
        tier = mechanism.levels[0]
        values = [
            *(PLACE, None, (None, None), (math.nan, 30.6), (104.0, math.inf), (0.0, 0.0), (10**400, 0)),
            *("104,30", 5, (1, 2, 3), object(), [Fraction(104), Decimal("30.6")], {"lon": 104}, b"ab", (104.2, 30.8)),
        ]
        for value in values:
            payload = mechanism.perturb(value, tier=tier, noise=noise)
            assert len(payload) == -(-mechanism.payload_bits(tier) // 8)
            ((area, symbol),) = mechanism.read(payload, tier=tier)
            assert (area is None) == (not (mechanism.area_in_clear or mechanism.as_published))
            assert 0 <= symbol < mechanism.oracle(tier).num_symbols


@pytest.mark.parametrize("form", FORMS)
@given(payload=st.binary(max_size=80))
@settings(max_examples=30, deadline=None)
def test_any_payload_is_read_or_refused(form: dict[str, object], payload: bytes) -> None:
    mechanism = LocalLocation(grid=GRID, epsilon="0.5", **form)  # type: ignore[arg-type]
    law = mechanism.channel("all")
    fits = len(payload) == -(-law.payload_bits // 8) and int.from_bytes(payload, "little") < law.num_symbols
    if fits:
        mechanism.read(payload, tier="all")
    else:
        with pytest.raises(ReportError):
            mechanism.read(payload, tier="all")


def test_payloads_are_exactly_the_symbols() -> None:
    mechanism = LocalLocation(grid=SMALL, epsilon=1, method="randomised-response")
    for symbol in range(256):
        if symbol < 17:
            assert mechanism.read(bytes([symbol]), tier="all") == [(None, symbol)]
        else:
            with pytest.raises(ReportError, match="no report of this task"):
                mechanism.read(bytes([symbol]), tier="all")
    with pytest.raises(ReportError, match="1 bytes"):
        mechanism.read("a", tier="all")  # type: ignore[arg-type]


def test_missing_and_outside_are_one_input() -> None:
    mechanism = LocalLocation(grid=GRID, epsilon=1)
    for value in (None, (math.nan, 30.6), (0, 0), "x", (104.0,)):
        assert mechanism.index(value) == GRID.num_cells == mechanism.channel("all").num_inputs - 1
    assert mechanism.index(PLACE) == GRID.cell(*PLACE)
    clear = LocalLocation(grid=GRID, epsilon=1, area_in_clear=True)
    channel = clear.channel("all")
    assert isinstance(channel, InClear)
    assert channel.split(clear.index(None)) == (0, GRID.num_inner)
    cell = GRID.cell(*PLACE)
    assert channel.split(cell) == (GRID.area(cell), GRID.inner(cell))


def test_promises_say_what_holds() -> None:
    sound = LocalLocation(grid=GRID, epsilon="0.5").promise()
    assert sound.basis is Basis.PROVED
    assert sound.guarantee == LocalDP(epsilon=Fraction(1, 2), protects="report", neighbours=Neighbours.REPLACE_ONE)
    assert sound.true_loss(Neighbours.REPLACE_ONE).epsilon == Fraction(1, 2)
    clear = LocalLocation(grid=GRID, epsilon="0.5", area_in_clear=True).promise()
    assert clear.basis is Basis.PROVED
    assert isinstance(clear.guarantee, WithinCluster)
    assert "16 areas" in clear.guarantee.clusters
    assert "16 areas" in clear.in_clear[0]
    assert not clear.true_loss(Neighbours.REPLACE_ONE).bounded
    published = LocalLocation(grid=GRID, epsilon="0.5", as_published=True).promise()
    assert published.basis is Basis.CLAIMED
    assert isinstance(published.holds, WithinCluster)
    assert published.holds.epsilon == 1
    assert not published.true_loss(Neighbours.REPLACE_ONE).bounded
    planar = LocalLocation(grid=GRID, epsilon="0.5", method="planar").promise()
    assert isinstance(planar.guarantee, MetricLocalDP)
    assert planar.guarantee.distance == "1 km"
    for promise in (sound, clear, published, planar):
        assert promise.digest()
        assert {a.name for a in promise.assumptions} >= {"public tiers", "every slot reports"}


def test_a_published_map_of_one_area_gives_away_twice_epsilon() -> None:
    whole = Grid(box=BOX, levels=2, area_levels=1)
    mechanism = LocalLocation(grid=whole, epsilon="0.5", as_published=True)
    assert enumerated_loss(mechanism.channel("all")) == mechanism.true_loss("all") == 1
    holds = mechanism.promise().holds
    assert isinstance(holds, LocalDP)
    assert holds.epsilon == 1


def test_published_reports_turn_every_bit_over_at_epsilon() -> None:
    mechanism = LocalLocation(grid=SMALL, epsilon=1, as_published=True)
    law = mechanism.channel("all")
    assert isinstance(law, InClear)
    assert isinstance(law.oracle, PublishedUnary)
    assert (law.oracle.num_inputs, law.num_groups, law.loss, law.loss_within) == (5, 4, None, 2)
    assert law.payload_bits == 2 + 5
    assert enumerated_loss(law) is None


def test_tiers_have_laws_of_their_own() -> None:
    tiers = (Tier(name="basic", epsilon="2"), Tier(name="strict", epsilon="0.5"))
    mechanism = LocalLocation(grid=GRID, tiers=tiers)
    assert mechanism.levels == tiers
    assert [mechanism.true_loss(tier) for tier in tiers] == [2, Fraction(1, 2)]
    assert mechanism.promise().guarantee.epsilon == 2  # type: ignore[union-attr]
    assert mechanism.channel("strict") == mechanism.channel(tiers[1])
    for wrong in ("other", Tier(name="basic", epsilon="3")):
        with pytest.raises(ParameterError, match="is not one of this mechanism"):
            mechanism.channel(wrong)


def test_bad_parameters_are_refused() -> None:
    for wrong in [
        {},
        {"epsilon": 1, "tiers": (Tier(name="a", epsilon="1"),)},
        {"tiers": ("basic",)},
        {"tiers": (Tier(name="a", epsilon="1"), Tier(name="a", epsilon="2"))},
        {"epsilon": "one"},
        {"epsilon": 1, "method": "laplace"},
        {"epsilon": 1, "area_in_clear": "false"},
        {"epsilon": 1, "method": "planar", "area_in_clear": True},
        {"epsilon": 1, "method": "hadamard", "as_published": True},
        {"epsilon": 1, "grid": Grid(box=BOX, levels=1)},
        {"epsilon": 1, "grid": None},
    ]:
        with pytest.raises(ParameterError):
            LocalLocation(**{"grid": GRID, **wrong})  # type: ignore[arg-type]


def test_the_predicted_error_is_the_error() -> None:
    """All cells alike and many devices: the estimates scatter as predicted."""
    mechanism, noise, num = LocalLocation(grid=SMALL, epsilon=2, method="optimised-unary"), Noise(seed=6), 17 * 200
    oracle = mechanism.oracle("all")
    assert isinstance(oracle, OptimisedUnary)
    reports = [oracle.perturb(at % 17, noise) for at in range(num)]
    means = [sum(report >> cell & 1 for report in reports) / num for cell in range(17)]
    errors = [oracle.scale * (mean - oracle.offset) - 1 / 17 for mean in means]
    seen = sum(error**2 for error in errors) / 17
    assert 0.2 < seen / mechanism.predicted_sd("all", num) ** 2 < 3


def test_an_area_in_clear_is_predicted_area_by_area() -> None:
    clear = LocalLocation(grid=GRID, epsilon=1, area_in_clear=True)
    inner = clear.oracle("all").variance(16 / 257, 9858 / 16)
    assert clear.predicted_sd("all", 9858) == pytest.approx(math.sqrt(inner) / 16)


def test_a_map_that_would_be_noise_is_named_with_what_would_do() -> None:
    verdict = LocalLocation(grid=GRID, epsilon="0.5").noise_verdict(9858)
    assert verdict.is_noise
    assert verdict.message == "9,858 vehicles at epsilon 0.5: use level 3 or epsilon >= 2"
    assert (verdict.levels, verdict.epsilon) == (3, 2)
    assert not LocalLocation(grid=Grid(box=BOX, levels=3), epsilon="0.5").noise_verdict(9858).is_noise
    assert LocalLocation(grid=Grid(box=BOX, levels=4), epsilon="0.5").noise_verdict(9858).is_noise
    assert not LocalLocation(grid=GRID, epsilon=2).noise_verdict(9858).is_noise
    assert LocalLocation(grid=GRID, epsilon="1.5").noise_verdict(9858).is_noise
    hopeless = LocalLocation(grid=GRID, epsilon="0.01").noise_verdict(1)
    assert hopeless.levels is hopeless.epsilon is None
    assert "more vehicles" in hopeless.message
    with pytest.raises(ParameterError):
        LocalLocation(grid=GRID, epsilon=1).noise_verdict(0)


def test_tiers_are_judged_together() -> None:
    tiers = (Tier(name="basic", epsilon="2"), Tier(name="strict", epsilon="0.5"))
    verdict = LocalLocation(grid=GRID, tiers=tiers).noise_verdict(9858)
    alone = LocalLocation(grid=GRID, epsilon=2).predicted_sd("all", 4929)
    assert verdict.predicted_sd < alone
    assert "epsilon 2, 0.5" in verdict.message


def test_nothing_private_is_printed() -> None:
    mechanism = LocalLocation(grid=GRID, epsilon=1)
    mechanism.perturb((104.0123, 30.6543), tier="all", noise=Noise(seed=7))
    assert "104.0123" not in repr(mechanism)


def test_epsilon_has_bounds() -> None:
    for form in [*({"method": method} for method in LocalLocation.methods), {"as_published": True}]:
        grid = Grid(box=("103.9", "30.5", "104.2", "30.8"), levels=3, area_levels=2)
        for wrong in ("0.0000001", "100.1", "180", 10**40):
            with pytest.raises(ParameterError, match=r"between 0\.000001 and 100"):
                LocalLocation(grid=grid, epsilon=wrong, **form)
        for epsilon in ("0.000001", 40, 60, 100):
            mechanism = LocalLocation(grid=grid, epsilon=epsilon, **form)
            assert mechanism.predicted_sd("all", 10) > 0
            assert mechanism.noise_verdict(10).message
            assert mechanism.read(mechanism.perturb((104.0, 30.6), tier="all", noise=Noise()), tier="all")


def test_the_variance_of_hadamard_responses_does_not_vanish_by_rounding() -> None:
    for epsilon, num_inputs in product((1, 10, 36, 40, 100), (2, 5, 17, 257)):
        oracle = HadamardResponse(num_inputs=num_inputs, epsilon=Fraction(epsilon))
        share = Fraction(1, num_inputs)
        exactly = oracle.variance_of_one(share, Fraction(oracle.ratio))
        assert oracle.variance(float(share), 1) == pytest.approx(float(exactly), rel=1e-9)
        p, q = oracle.chances(Fraction(oracle.ratio))
        block = share + (1 - share) * (math.ceil(Fraction(num_inputs, oracle.num_blocks)) - 1) / (num_inputs - 1)
        assert exactly == (block * (p + q) + (1 - block) * 2 * q) / (p - q) ** 2 - share
