# SPDX-License-Identifier: Apache-2.0
"""Paths: numbering without listing, clipping, and what whole reports and published forms give away."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.chance_help import chance_of
from tests.estimates_help import refuses

from dunnage.devices.paths import PUBLISHED, AreaPaths, Independent, LocalTrajectory, PlaceByPlace, ReachablePaths
from dunnage.devices.places import (
    InClear,
    LocalLocation,
    OptimisedUnary,
    PublishedUnary,
    RandomisedResponse,
    enumerated_loss,
)
from dunnage.devices.subjects import Grid
from dunnage.devices.task import Tier
from dunnage.errors import ParameterError
from dunnage.model.guarantees import Basis, LocalDP, Neighbours, WithinCluster
from dunnage.noise.source import Noise

BOX = ("103.9", "30.5", "104.2", "30.8")
TINY, SMALL = Grid(box=BOX, levels=2, area_levels=1), Grid(box=BOX, levels=3, area_levels=2)
TINY_AREAS = Grid(box=BOX, levels=2, area_levels=2)
LARGE = Grid(box=BOX, levels=9)
EPSILONS = ("0.5", "1", "3")
FACTORS = {"product": 4, "qlp": 2, "qjlp": 2}  # what two steps give away of one area, as published


def trajectory(grid=SMALL, steps=2, epsilon=1, **more):
    return LocalTrajectory(grid=grid, steps=steps, epsilon=epsilon, **more)


def listed(grid, steps, hops):
    """List all reachable paths by trying every one."""
    at = [grid.column_row(cell) for cell in range(grid.num_cells)]
    near = [{j for j, b in enumerate(at) if max(abs(a[0] - b[0]), abs(a[1] - b[1])) <= hops} for a in at]
    paths = product(range(grid.num_cells), repeat=steps)
    return {path for path in paths if all(b in near[a] for a, b in pairwise(path))}


def test_numbers_of_paths_are_one_to_one():
    for (grid, hops), steps in product([(TINY, 1), (SMALL, 1), (SMALL, 2), (SMALL, 3)], [1, 2, 3]):
        paths = ReachablePaths(grid=grid, steps=steps, hops=hops)
        reachable = listed(grid, steps, hops)
        assert paths.num_paths == len(reachable)
        assert sorted(paths.index(path) for path in reachable) == list(range(paths.num_paths))
        assert all(paths.cells(paths.index(path)) == path for path in reachable)
        assert paths.cells(paths.num_paths) is None
    for steps in (2, 3):
        areas = AreaPaths(grid=SMALL, steps=steps)
        every = list(product(range(SMALL.num_cells), repeat=steps))
        assert sorted(areas.index(path) for path in every) == list(range(len(every)))
        assert all(areas.cells(areas.index(path)) == path for path in every)
        assert areas.cells(areas.index((SMALL.outside,) * steps)) is None
        groups = {(areas.index(path) // areas.group_size, tuple(map(SMALL.area, path))) for path in every}
        assert len(groups) == SMALL.num_areas**steps  # a group is one sequence of areas
        places = PlaceByPlace(grid=TINY, steps=steps)
        with_missing = list(product(range(TINY.num_cells + 1), repeat=steps))
        assert sorted(places.index(path) for path in with_missing) == list(range(len(with_missing)))
        assert all(places.cells(places.index(path)) == path for path in with_missing)


@given(st.integers(1, 255), st.sampled_from([2, 3]), st.data())
@settings(max_examples=60, deadline=None)
def test_large_grids_are_numbered_without_listing(hops, steps, data):
    paths = ReachablePaths(grid=LARGE, steps=steps, hops=hops)
    index = data.draw(st.integers(0, paths.num_paths - 1))
    assert paths.index(paths.cells(index)) == index


def gap(one, other):
    (a, b), (c, d) = SMALL.column_row(one), SMALL.column_row(other)
    return abs(a - c), abs(b - d)


@given(st.lists(st.integers(0, 15), min_size=2, max_size=3))
def test_clipping_moves_each_cell_towards_the_one_before(path):
    paths = ReachablePaths(grid=SMALL, steps=len(path), hops=1)
    clipped = paths.cells(paths.index(tuple(path)))
    assert clipped in listed(SMALL, len(path), 1)
    assert clipped[0] == path[0]
    for before, wanted, got in zip(clipped, path[1:], clipped[1:], strict=False):
        gaps = [gap(cell, wanted) for cell in SMALL.neighbours(before)]
        assert gap(got, wanted) == tuple(min(each[axis] for each in gaps) for axis in (0, 1))
    missing = [
        tuple(SMALL.outside if at == lost else cell for at, cell in enumerate(path)) for lost in range(len(path))
    ]
    assert {paths.index(each) for each in missing} == {paths.num_paths}  # a missing place makes the path missing


def test_a_whole_report_gives_away_epsilon():
    for epsilon, method in product(EPSILONS, ["auto", "randomised-response", "hadamard"]):
        for grid, steps in ((TINY, 2), (TINY, 3), (SMALL, 2)):
            mechanism = trajectory(grid, steps, epsilon, method=method)
            channel = mechanism.channel("all")
            assert channel.loss == mechanism.true_loss("all") == Fraction(epsilon)
            assert isinstance(channel, OptimisedUnary) or enumerated_loss(channel) == channel.loss
    assert trajectory(epsilon=3).oracle("all").num_inputs == 101  # the oracle is chosen for the number of paths
    assert isinstance(trajectory(TINY, epsilon=3).oracle("all"), RandomisedResponse)
    assert trajectory(TINY, hops=50).channel("all").num_inputs == 17  # hops as wide as the grid reach everything


def test_published_forms_give_away_more_and_the_same_check_finds_it():
    """One area, so that there is a bound at all: places of one bit each keep the enumeration small."""
    for stated in map(Fraction, EPSILONS):
        place = InClear(oracle=PublishedUnary(num_inputs=3, epsilon=stated), num_groups=1)
        joint = Independent(place=place, steps=2)
        assert enumerated_loss(joint) == joint.loss == joint.loss_within == 4 * stated
        for method, factor in FACTORS.items():
            channel = trajectory(TINY, epsilon=stated, method=method, as_published=True).channel("all")
            assert channel.loss == factor * stated
            if method != "qjlp" and stated == 1:
                assert enumerated_loss(channel) == channel.loss
        joined = InClear(oracle=PublishedUnary(num_inputs=5, epsilon=stated), num_groups=1)
        assert enumerated_loss(joined) == 2 * stated


def test_areas_in_clear_have_no_bound():
    for method, steps in product(FACTORS, [2, 3]):
        mechanism = trajectory(TINY_AREAS, steps, method=method, as_published=True)
        channel, promise = mechanism.channel("all"), mechanism.promise()
        assert channel.loss is mechanism.true_loss("all") is None
        assert steps == 3 or enumerated_loss(channel) is None
        within = 2 * steps if method == "product" else 2
        assert channel.loss_within == promise.holds.epsilon == within
        assert promise.basis is Basis.CLAIMED
        assert isinstance(promise.holds, WithinCluster)
        assert not promise.true_loss(Neighbours.REPLACE_ONE).bounded
    mechanism = trajectory(area_in_clear=True)  # soundly
    channel, promise = mechanism.channel("all"), mechanism.promise()
    assert (channel.num_groups, channel.oracle.num_inputs, channel.loss, channel.loss_within) == (16, 17, None, 1)
    assert promise.basis is Basis.PROVED
    assert isinstance(promise.guarantee, WithinCluster)


def test_within_the_same_areas_the_loss_of_a_product_is_the_sum():
    channel = trajectory(TINY_AREAS, as_published=True).channel("all")
    num_places, groups = channel.place.num_inputs, {}
    for index in range(channel.num_inputs):
        areas = tuple(channel.place.split(place)[0] for place in divmod(index, num_places))
        groups.setdefault(areas, []).append(index)
    worst = Fraction(0)
    for inputs, symbol in product(groups.values(), channel.symbols()):
        exponents = [e for e in (channel.exponent(i, symbol) for i in inputs) if e is not None]
        assert len(exponents) in (0, len(inputs))
        worst = max(worst, max(exponents) - min(exponents)) if exponents else worst
    assert worst == channel.loss_within == 4


def test_a_sound_promise_says_how_paths_are_clipped():
    promise = trajectory(epsilon="0.5").promise()
    assert promise.guarantee == LocalDP(epsilon=Fraction(1, 2), protects="report", neighbours=Neighbours.REPLACE_ONE)
    assert promise.basis is Basis.PROVED
    assert promise.warnings


def test_areas_of_a_published_report_are_the_true_ones():
    path, noise = [(103.95, 30.55), (104.19, 30.79)], Noise()
    areas = [SMALL.area(SMALL.cell(*place)) for place in path]
    told = {}
    for method in FACTORS:
        mechanism = trajectory(method=method, as_published=True)
        payload = mechanism.perturb(path, tier="all", noise=noise)
        told[method] = [area for area, _ in mechanism.read(payload, tier="all")]
    assert told == {"product": areas, "qlp": areas, "qjlp": [areas[0] * SMALL.num_areas + areas[1]]}


def test_whole_reports_are_drawn_by_the_law():
    mechanism, noise, num = trajectory(TINY, epsilon=2), Noise(), 10_000
    channel, index = mechanism.channel("all"), mechanism.index([(103.95, 30.55), (104.19, 30.79)])
    weights = [math.exp(channel.exponent(index, symbol)) for symbol in channel.symbols()]
    drawn = Counter(channel.perturb(index, noise) for _ in range(num))
    wanted = [weight * num / sum(weights) for weight in weights]
    assert chance_of([drawn[symbol] for symbol in channel.symbols()], wanted) > 1e-9


def test_products_estimate_paths_without_bias_and_with_the_stated_variance():
    """Exactly, in fractions: the mean of products, and its variance if places are spread evenly."""
    oracle, ratio = PublishedUnary(num_inputs=3, epsilon=Fraction(1)), Fraction(1, 3)
    p, q = oracle.chances(ratio)
    ones = [[p if j == i else q for j in range(3)] for i in range(3)]
    chances = [[math.prod(c if s >> j & 1 else 1 - c for j, c in enumerate(row)) for s in range(8)] for row in ones]
    squares = Fraction(0)
    for inputs in product(range(3), repeat=2):
        mean = square = Fraction(0)
        for symbols in product(range(8), repeat=2):
            chance = chances[inputs[0]][symbols[0]] * chances[inputs[1]][symbols[1]]
            value = math.prod((oracle.score(symbol, 1) - q) / (p - q) for symbol in symbols)
            mean, square = mean + chance * value, square + chance * value**2
        assert mean == (inputs == (1, 1))
        squares += square - mean**2
    one = oracle.variance_of_one(Fraction(1, 3), ratio) + Fraction(1, 3)
    assert squares / 9 == one**2 - Fraction(1, 9)
    channel = Independent(place=InClear(oracle=oracle, num_groups=1), steps=2)
    stated = (oracle.variance(1 / 3, 1) + 1 / 3) ** 2 - 1 / 9
    assert channel.variance(1 / 9, 10) == pytest.approx(stated / 10)


def test_predictions_and_verdicts():
    grid = Grid(box=BOX, levels=5, area_levels=3)
    mechanism = trajectory(grid, 3, "0.5")
    verdict = mechanism.noise_verdict(9858)
    assert (verdict.is_noise, verdict.levels, verdict.epsilon) == (True, None, None)
    assert verdict.predicted_sd == pytest.approx(mechanism.predicted_sd("all", 9858))
    assert trajectory(grid, 2, "0.5").noise_verdict(9858).levels == 2
    assert not trajectory(TINY).noise_verdict(9858).is_noise
    assert mechanism.predicted_sd("all", 40_000) == pytest.approx(mechanism.predicted_sd("all", 10_000) / 2)
    # No share of a path is larger than evenly spread places make it, however many paths are reachable.
    for method, levels, epsilon in product(PUBLISHED, (2, 3, 5, 7), ("0.1", 1, 5, 20, 60, 100)):
        if method != "qjlp" or levels <= 5:
            grid = Grid(box=BOX, levels=levels, area_levels=min(levels, 3) - 1)
            form = trajectory(grid, epsilon=epsilon, as_published=True, method=method)
            assert form.predicted_sd("all", 100) > 0
            assert form.noise_verdict(100).message
    # One area: each place at a quarter of epsilon and twice that, against the whole path at epsilon.
    grid = Grid(box=BOX, levels=4, area_levels=1)
    for epsilon, (method, factor) in product(map(Fraction, ("1/2", "1", "2", "4")), FACTORS.items()):
        published = trajectory(grid, epsilon=epsilon / factor, method=method, as_published=True)
        assert published.true_loss("all") == epsilon
        assert trajectory(grid, epsilon=epsilon).predicted_sd("all", 10_000) <= published.predicted_sd("all", 10_000)


def test_verdicts_on_maps_are_those_of_trying():
    """Noise is what is farther off than 2.5 even shares; fewer levels and larger epsilons are tried one by one."""
    forms = [(LocalLocation, form) for form in ({}, {"area_in_clear": True}, {"as_published": True})]
    forms += [(LocalTrajectory, {"steps": 2, **form}) for form in ({}, {"as_published": True, "method": "qlp"})]
    tiers = (Tier(name="basic", epsilon="2"), Tier(name="strict", epsilon="1"))
    for (kind, form), depth, num in product(forms, (3, 5), (4, 300, 30_000)):

        def is_noise(levels, of=tiers, kind=kind, form=form, num=num):
            grid = Grid(box=BOX, levels=levels, area_levels=2)
            mechanism, sound = (
                kind(grid=grid, tiers=of, **form),
                ReachablePaths(grid=grid, steps=2, hops=1).num_paths + 1,
            )
            precision = sum(mechanism.predicted_sd(tier, num // len(of)) ** -2 for tier in of)
            return precision**-0.5 > 2.5 / (grid.num_cells + 1 if kind is LocalLocation else sound)

        verdict = kind(grid=Grid(box=BOX, levels=depth, area_levels=2), tiers=tiers, **form).noise_verdict(num)
        assert verdict.is_noise == is_noise(depth), (kind, form, depth, num)
        assert verdict.levels == next((at for at in range(depth - 1, 1, -1) if not is_noise(at)), None)
        larger = [Fraction(half, 2) for half in range(5, 11)]
        enough = (each for each in larger if not is_noise(depth, (Tier(name="all", epsilon=each),)))
        assert verdict.epsilon == next(enough, None), (kind, form, depth, num)


def test_bad_parameters_are_refused():
    wrong = [{"steps": steps} for steps in (1, 4, "2")] + [{"hops": hops} for hops in (0, "1")]
    wrong += [{"method": "planar"}, {"method": "product"}, {"method": "hadamard", "as_published": True}]
    wrong += [{"as_published": "false"}, {"grid": Grid(box=BOX, levels=1)}]
    wrong += [{"grid": LARGE, "method": "qjlp", "as_published": True}]
    for parameters in wrong:
        with refuses(ParameterError, parameters):
            trajectory(**parameters)
    with pytest.raises(ParameterError):
        ReachablePaths(grid=TINY, steps=2, hops=2)
