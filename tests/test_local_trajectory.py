# SPDX-License-Identifier: Apache-2.0
"""Paths: numbering without listing, clipping, and what whole reports and published forms give away."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction
from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from dunnage.devices.paths import PUBLISHED, AreaPaths, Independent, LocalTrajectory, PlaceByPlace, ReachablePaths
from dunnage.devices.places import InClear, OptimisedUnary, PublishedUnary, RandomisedResponse, enumerated_loss
from dunnage.devices.subjects import Grid
from dunnage.devices.task import Tier
from dunnage.errors import ParameterError, ReportError
from dunnage.model.guarantees import Basis, LocalDP, Neighbours, WithinCluster
from dunnage.noise.source import Noise

BOX = ("103.9", "30.5", "104.2", "30.8")
TINY, SMALL = Grid(box=BOX, levels=2, area_levels=1), Grid(box=BOX, levels=3, area_levels=2)
TINY_AREAS = Grid(box=BOX, levels=2, area_levels=2)
LARGE = Grid(box=BOX, levels=9)
UNLIKELY = 1e-9


def listed(grid: Grid, steps: int, hops: int) -> set[tuple[int, ...]]:
    """List all reachable paths by trying every one."""
    at = [grid.column_row(cell) for cell in range(grid.num_cells)]
    near = [{j for j, b in enumerate(at) if max(abs(a[0] - b[0]), abs(a[1] - b[1])) <= hops} for a in at]
    paths = product(range(grid.num_cells), repeat=steps)
    return {path for path in paths if all(b in near[a] for a, b in pairwise(path))}


def test_numbers_of_paths_are_one_to_one() -> None:
    for (grid, hops), steps in itertools.product([(TINY, 1), (SMALL, 1), (SMALL, 2), (SMALL, 3)], [1, 2, 3]):
        paths = ReachablePaths(grid=grid, steps=steps, hops=hops)
        reachable = listed(grid, steps, hops)
        assert paths.num_paths == len(reachable) == paths.num_inputs - 1
        assert sorted(paths.index(path) for path in reachable) == list(range(paths.num_paths))
        assert all(paths.cells(paths.index(path)) == path for path in reachable)
        assert paths.cells(paths.num_paths) is None


@given(st.integers(1, 255), st.sampled_from([2, 3]), st.data())
@settings(max_examples=60, deadline=None)
def test_large_grids_are_numbered_without_listing(hops: int, steps: int, data: st.DataObject) -> None:
    paths = ReachablePaths(grid=LARGE, steps=steps, hops=hops)
    index = data.draw(st.integers(0, paths.num_paths - 1))
    path = paths.cells(index)
    assert path is not None
    assert paths.index(path) == index


@given(st.lists(st.integers(0, 15), min_size=2, max_size=3))
def test_clipping_moves_each_cell_towards_the_one_before(path: list[int]) -> None:
    paths = ReachablePaths(grid=SMALL, steps=len(path), hops=1)
    clipped = paths.cells(paths.index(tuple(path)))
    assert clipped is not None
    assert clipped in listed(SMALL, len(path), 1)
    assert clipped[0] == path[0]
    for before, wanted, got in zip(clipped, path[1:], clipped[1:], strict=False):
        options = SMALL.neighbours(before)
        far = {cell: Counter(dict(enumerate(_gap(cell, wanted)))) for cell in options}
        assert all(_gap(got, wanted)[axis] == min(gap[axis] for gap in far.values()) for axis in (0, 1))


def _gap(one: int, other: int) -> tuple[int, int]:
    (a, b), (c, d) = SMALL.column_row(one), SMALL.column_row(other)
    return abs(a - c), abs(b - d)


def test_a_missing_place_makes_the_path_missing() -> None:
    paths = ReachablePaths(grid=SMALL, steps=2, hops=1)
    assert paths.index((SMALL.outside, 3)) == paths.index((3, SMALL.outside)) == paths.num_paths


def test_other_numberings_are_one_to_one() -> None:
    for steps in [2, 3]:
        areas = AreaPaths(grid=SMALL, steps=steps)
        every = list(product(range(SMALL.num_cells), repeat=steps))
        assert sorted(areas.index(path) for path in every) == list(range(len(every)))
        assert all(areas.cells(areas.index(path)) == path for path in every)
        assert areas.cells(areas.index((SMALL.outside,) * steps)) is None
        same = {}
        for path in every:
            group = areas.index(path) // areas.group_size
            assert same.setdefault(group, sequence := tuple(SMALL.area(cell) for cell in path)) == sequence
        places = PlaceByPlace(grid=TINY, steps=steps)
        with_missing = list(product(range(TINY.num_cells + 1), repeat=steps))
        assert sorted(places.index(path) for path in with_missing) == list(range(len(with_missing)))
        assert all(places.cells(places.index(path)) == path for path in with_missing)


EPSILONS = ("0.5", "1", "3")


def test_a_whole_report_gives_away_epsilon() -> None:
    for epsilon, method in itertools.product(EPSILONS, ["auto", "randomised-response", "hadamard"]):
        for grid, steps in ((TINY, 2), (TINY, 3), (SMALL, 2)):
            mechanism = LocalTrajectory(grid=grid, steps=steps, epsilon=epsilon, method=method)
            channel = mechanism.channel("all")
            if isinstance(channel, OptimisedUnary):
                assert channel.loss == Fraction(epsilon)
            else:
                assert enumerated_loss(channel) == channel.loss == Fraction(epsilon) == mechanism.true_loss("all")


def test_the_oracle_is_chosen_for_the_number_of_paths() -> None:
    mechanism = LocalTrajectory(grid=SMALL, steps=2, epsilon=3)
    assert mechanism.oracle("all").num_inputs == 101
    assert isinstance(LocalTrajectory(grid=TINY, steps=2, epsilon=3).oracle("all"), RandomisedResponse)


def test_published_forms_give_away_more_and_the_same_check_finds_it() -> None:
    """One area, so that there is a bound at all: places of one bit each keep the enumeration small."""
    for epsilon in EPSILONS:
        stated = Fraction(epsilon)
        place = InClear(oracle=PublishedUnary(num_inputs=3, epsilon=stated), num_groups=1)
        joint = Independent(place=place, steps=2)
        assert enumerated_loss(joint) == joint.loss == joint.loss_within == 4 * stated
        for method, factor in (("product", 4), ("qlp", 2), ("qjlp", 2)):
            mechanism = LocalTrajectory(grid=TINY, steps=2, epsilon=epsilon, method=method, as_published=True)
            channel = mechanism.channel("all")
            assert channel.loss == factor * stated
            if method != "qjlp":
                assert enumerated_loss(channel) == channel.loss
        joined = InClear(oracle=PublishedUnary(num_inputs=5, epsilon=stated), num_groups=1)
        assert enumerated_loss(joined) == 2 * stated


def test_areas_in_clear_have_no_bound() -> None:
    for method, steps in itertools.product(["product", "qlp", "qjlp"], [2, 3]):
        mechanism = LocalTrajectory(grid=TINY_AREAS, steps=steps, epsilon=1, method=method, as_published=True)
        channel = mechanism.channel("all")
        assert channel.loss is mechanism.true_loss("all") is None
        if steps == 2:
            assert enumerated_loss(channel) is None
        within = {"product": 2 * steps, "qlp": 2, "qjlp": 2}[method]
        assert channel.loss_within == within  # type: ignore[attr-defined]
        promise = mechanism.promise()
        assert promise.basis is Basis.CLAIMED
        assert isinstance(promise.holds, WithinCluster)
        assert promise.holds.epsilon == within
        assert not promise.true_loss(Neighbours.REPLACE_ONE).bounded


def test_within_the_same_areas_the_loss_of_a_product_is_the_sum() -> None:
    channel = LocalTrajectory(grid=TINY_AREAS, steps=2, epsilon=1, as_published=True).channel("all")
    assert isinstance(channel, Independent)
    groups = {}
    for index in range(channel.num_inputs):
        key = tuple(channel.place.split(place)[0] for place in channel._inputs(index))
        groups.setdefault(key, []).append(index)
    worst = Fraction(0)
    for inputs in groups.values():
        for symbol in channel.symbols():
            exponents = [e for e in (channel.exponent(i, symbol) for i in inputs) if e is not None]
            assert len(exponents) in (0, len(inputs))
            if exponents:
                worst = max(worst, max(exponents) - min(exponents))
    assert worst == channel.loss_within == 4


def test_areas_in_clear_soundly() -> None:
    mechanism = LocalTrajectory(grid=SMALL, steps=2, epsilon=1, area_in_clear=True)
    channel = mechanism.channel("all")
    assert isinstance(channel, InClear)
    assert (channel.num_groups, channel.oracle.num_inputs) == (16, 17)
    assert (channel.loss, channel.loss_within) == (None, 1)
    promise = mechanism.promise()
    assert promise.basis is Basis.PROVED
    assert isinstance(promise.guarantee, WithinCluster)


def test_a_sound_promise_says_how_paths_are_clipped() -> None:
    promise = LocalTrajectory(grid=SMALL, steps=2, epsilon="0.5").promise()
    assert promise.guarantee == LocalDP(epsilon=Fraction(1, 2), protects="report", neighbours=Neighbours.REPLACE_ONE)
    assert promise.basis is Basis.PROVED
    assert any("moved to a reachable one" in warning for warning in promise.warnings)


FORMS = [
    *({"method": method} for method in ("auto", "randomised-response", "symmetric-unary", "hadamard")),
    {"area_in_clear": True},
    *({"method": method, "as_published": True} for method in ("product", "qlp", "qjlp")),
]


def test_every_value_makes_one_report_that_can_be_read() -> None:
    for form, steps in itertools.product(FORMS, [2, 3]):
        mechanism = LocalTrajectory(grid=SMALL, steps=steps, epsilon=1, **form)  # type: ignore[arg-type]
        noise, tier = Noise(seed=1), mechanism.levels[0]
        path = [(103.95, 30.55), (104.1, 30.7), (104.19, 30.79)][:steps]
        for value in (path, tuple(path), [None] * steps, None, 5, "path", path[:1], [(math.nan, 0)] * steps, path * 2):
            payload = mechanism.perturb(value, tier=tier, noise=noise)
            assert len(payload) == -(-mechanism.payload_bits(tier) // 8)
            pairs = mechanism.read(payload, tier=tier)
            assert len(pairs) == (steps if form.get("method") in ("product", "qlp") else 1)
            for area, symbol in pairs:
                assert (area is None) == (not (mechanism.area_in_clear or mechanism.as_published))
                assert 0 <= symbol < mechanism.oracle(tier).num_symbols


@pytest.mark.parametrize("form", FORMS)
@given(payload=st.binary(max_size=20))
@settings(max_examples=30, deadline=None)
def test_any_payload_is_read_or_refused(form: dict[str, object], payload: bytes) -> None:
    mechanism = LocalTrajectory(grid=SMALL, steps=2, epsilon=1, **form)  # type: ignore[arg-type]
    law = mechanism.channel("all")
    if len(payload) == -(-law.payload_bits // 8) and int.from_bytes(payload, "little") < law.num_symbols:
        mechanism.read(payload, tier="all")
    else:
        with pytest.raises(ReportError):
            mechanism.read(payload, tier="all")


def test_areas_of_a_published_report_are_the_true_ones() -> None:
    grid, noise = SMALL, Noise(seed=2)
    path = [(103.95, 30.55), (104.19, 30.79)]
    areas = [grid.area(grid.cell(*place)) for place in path]
    product_form = LocalTrajectory(grid=grid, steps=2, epsilon=1, as_published=True)
    pairs = product_form.read(product_form.perturb(path, tier="all", noise=noise), tier="all")
    assert [area for area, _ in pairs] == areas
    joined = LocalTrajectory(grid=grid, steps=2, epsilon=1, method="qjlp", as_published=True)
    ((group, _),) = joined.read(joined.perturb(path, tier="all", noise=noise), tier="all")
    assert group == areas[0] * grid.num_areas + areas[1]


def test_whole_reports_are_drawn_by_the_law() -> None:
    mechanism, noise, num = LocalTrajectory(grid=TINY, steps=2, epsilon=2), Noise(seed=3), 10_000
    channel = mechanism.channel("all")
    index = mechanism.index([(103.95, 30.55), (104.19, 30.79)])
    weights = [math.exp(float(channel.exponent(index, symbol) or 0)) for symbol in channel.symbols()]
    drawn = Counter(channel.perturb(index, noise) for _ in range(num))
    wanted = [weight * num / sum(weights) for weight in weights]
    assert chisquare([drawn[symbol] for symbol in channel.symbols()], wanted).pvalue > UNLIKELY


def test_products_estimate_paths_without_bias_and_with_the_stated_variance() -> None:
    """Exactly, in fractions: the mean of products, and its variance if places are spread evenly."""
    oracle, ratio = PublishedUnary(num_inputs=3, epsilon=Fraction(1)), Fraction(1, 3)
    p, q = oracle.chances(ratio)
    offset, scale = q, 1 / (p - q)
    chances = [
        {
            symbol: math.prod((p if j == i else q) if symbol >> j & 1 else 1 - (p if j == i else q) for j in range(3))
            for symbol in range(8)
        }
        for i in range(3)
    ]
    squares = Fraction(0)
    for inputs in product(range(3), repeat=2):
        mean = square = Fraction(0)
        for symbols in product(range(8), repeat=2):
            chance = chances[inputs[0]][symbols[0]] * chances[inputs[1]][symbols[1]]
            value = math.prod(scale * (oracle.score(symbol, 1) - offset) for symbol in symbols)
            mean, square = mean + chance * value, square + chance * value**2
        assert mean == (inputs == (1, 1))
        squares += square - mean**2
    one = oracle.variance_of_one(Fraction(1, 3), ratio) + Fraction(1, 3)
    assert squares / 9 == one**2 - Fraction(1, 9)
    channel = Independent(place=InClear(oracle=oracle, num_groups=1), steps=2)
    stated = (oracle.variance(1 / 3, 1) + 1 / 3) ** 2 - 1 / 9
    assert channel.variance(1 / 9, 10) == pytest.approx(stated / 10)


def test_predictions_and_verdicts() -> None:
    grid = Grid(box=BOX, levels=5, area_levels=3)
    mechanism = LocalTrajectory(grid=grid, steps=3, epsilon="0.5")
    verdict = mechanism.noise_verdict(9858)
    assert verdict.is_noise
    assert verdict.levels is verdict.epsilon is None
    assert "use more vehicles" in verdict.message
    assert LocalTrajectory(grid=grid, steps=2, epsilon="0.5").noise_verdict(9858).levels == 2
    assert verdict.predicted_sd == pytest.approx(mechanism.predicted_sd("all", 9858))
    assert not LocalTrajectory(grid=TINY, steps=2, epsilon=1).noise_verdict(9858).is_noise
    assert mechanism.predicted_sd("all", 40_000) == pytest.approx(mechanism.predicted_sd("all", 10_000) / 2)
    for method in ("product", "qlp", "qjlp"):
        published = LocalTrajectory(grid=grid, steps=2, epsilon=1, method=method, as_published=True)
        assert published.predicted_sd("all", 9858) > 0
        assert published.noise_verdict(9858).message


def test_equal_true_loss_favours_the_whole_report() -> None:
    """One area, two steps: each place at a quarter of epsilon and twice that, against the whole path at epsilon."""
    grid = Grid(box=BOX, levels=4, area_levels=1)
    for epsilon in (Fraction(1, 2), Fraction(1), Fraction(2), Fraction(4)):
        sound = LocalTrajectory(grid=grid, steps=2, epsilon=epsilon).predicted_sd("all", 10_000)
        for method, factor in (("product", 4), ("qlp", 2), ("qjlp", 2)):
            published = LocalTrajectory(grid=grid, steps=2, epsilon=epsilon / factor, method=method, as_published=True)
            assert published.true_loss("all") == epsilon
            assert sound <= published.predicted_sd("all", 10_000)


def test_tiers_have_laws_of_their_own() -> None:
    tiers = (Tier(name="basic", epsilon="2"), Tier(name="strict", epsilon="0.5"))
    mechanism = LocalTrajectory(grid=SMALL, steps=2, tiers=tiers)
    assert [mechanism.true_loss(tier) for tier in tiers] == [2, Fraction(1, 2)]
    with pytest.raises(ParameterError, match="is not one of"):
        mechanism.channel("other")


def test_bad_parameters_are_refused() -> None:
    for wrong in [
        {"steps": 1},
        {"steps": 4},
        {"steps": "2"},
        {"epsilon": None},
        {"method": "planar"},
        {"method": "product"},
        {"method": "hadamard", "as_published": True},
        {"hops": 0},
        {"as_published": "false"},
        {"hops": "1"},
        {"grid": Grid(box=BOX, levels=1)},
        {"grid": Grid(box=BOX, levels=9), "method": "qjlp", "as_published": True},
    ]:
        with pytest.raises(ParameterError):
            LocalTrajectory(**{"grid": SMALL, "steps": 2, "epsilon": 1, **wrong})  # type: ignore[arg-type]


def test_hops_as_wide_as_the_grid_reach_everything() -> None:
    mechanism = LocalTrajectory(grid=TINY, steps=2, epsilon=1, hops=50)
    assert mechanism.channel("all").num_inputs == 17
    with pytest.raises(ParameterError, match="below the 2 columns"):
        ReachablePaths(grid=TINY, steps=2, hops=2)


def test_epsilon_has_bounds() -> None:
    for form in [{}, {"area_in_clear": True}, *({"as_published": True, "method": m} for m in PUBLISHED)]:
        for wrong in ("0.0000001", "100.1", "180", 10**40):
            with pytest.raises(ParameterError, match=r"between 0\.000001 and 100"):
                LocalTrajectory(grid=SMALL, steps=2, epsilon=wrong, **form)
        largest = LocalTrajectory(grid=SMALL, steps=2, epsilon=100, **form)
        assert largest.predicted_sd("all", 10) > 0
        assert not largest.noise_verdict(10).is_noise
        assert largest.read(largest.perturb(None, tier="all", noise=Noise()), tier="all")


@pytest.mark.parametrize("method", PUBLISHED)
@pytest.mark.parametrize("levels", [2, 3, 5, 7])
def test_published_paths_are_judged_at_every_epsilon(method: str, levels: int) -> None:
    """No share of a path is larger than evenly spread places make it, however many paths are reachable."""
    if method == "qjlp" and levels > 5:
        return
    for epsilon in ("0.1", 1, 5, 20, 60, 100):
        grid = Grid(box=BOX, levels=levels, area_levels=min(levels, 3) - 1)
        form = LocalTrajectory(grid=grid, steps=2, epsilon=epsilon, as_published=True, method=method)
        assert form.predicted_sd("all", 100) > 0
        assert form.noise_verdict(100).message
