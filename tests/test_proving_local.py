# SPDX-License-Identifier: Apache-2.0
"""Devices and classes on the proof desk: published forms at their exact loss, and broken ones that must be caught."""

from __future__ import annotations

import dataclasses
import itertools
import math
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

import dunnage as dn
from dunnage.devices.allowance import Allowance, Spent
from dunnage.devices.numbers import LaplaceNumber, LocalNumeric, Piecewise, SampledReport
from dunnage.devices.paths import LocalTrajectory
from dunnage.devices.places import (
    LocalLocation,
    OptimisedUnary,
    Planar,
    PublishedUnary,
    RandomisedResponse,
    SymmetricUnary,
    draw_chance,
)
from dunnage.devices.subjects import Grid, Quantity
from dunnage.devices.task import MECHANISMS, Purpose, Task, Tier
from dunnage.mechanisms.clusters import UtilityClusters
from dunnage.mechanisms.full_domain import FullDomain
from dunnage.mechanisms.partition import Partition
from dunnage.model.guarantees import KAnonymity
from dunnage.noise import arrays as noise_arrays
from dunnage.noise.source import Noise
from dunnage.proving import classes, local
from dunnage.proving.local import ACROSS, WITHIN, DeviceSetting, examine, examine_lifetime, examine_window
from dunnage.proving.replay import NotEnumerable, loss_between, replay_draws
from dunnage.proving.verdict import FAILS, HOLDS, UNBOUNDED, VOID

BOX = ("103.9", "30.5", "104.2", "30.8")
GRID = Grid(box=BOX, levels=2)
AREAS = Grid(box=BOX, levels=2, area_levels=2)
PLACES = [GRID.centre(cell) for cell in range(GRID.num_cells)]
ONE = Fraction(1)


def plain(value):
    return value if isinstance(value, bool | bytes) else int(value)


def test_replayed_laws_are_exact():
    law = replay_draws(lambda noise: (noise.bernoulli(Fraction(1, 4)), int(noise.below(3))))
    pairs = itertools.product(((True, 0.25), (False, 0.75)), range(3))
    assert law.chances == {(heads, at): pytest.approx(p / 3) for (heads, p), at in pairs}
    assert law.missed == 0
    assert replay_draws(lambda noise: noise.bernoulli_exp(2)).chances[True] == pytest.approx(math.exp(-2))
    logistic = replay_draws(lambda noise: noise.bernoulli_logistic(1))
    assert logistic.chances[True] == pytest.approx(1 / (1 + math.exp(-1)))
    laplace = replay_draws(lambda noise: noise.discrete_laplace(2))
    assert laplace.chances[3] / laplace.chances[0] == pytest.approx(math.exp(-1.5))
    assert 0 < laplace.missed < 1e-11
    digits = replay_draws(lambda noise: noise.bits(64) < 3 << 62)  # 64 digits are one decision
    assert (digits.chances, digits.runs) == ({True: 0.75, False: 0.25}, 2)
    chance = replay_draws(lambda noise: draw_chance(4, ONE, noise)).chances[True]
    assert chance == pytest.approx(4 / (math.e + 4), rel=1e-12)
    with pytest.raises(NotEnumerable):
        replay_draws(lambda noise: 1 | noise.bits(64))


def test_undecided_numbers_behave_like_whole_ones():
    """Every expression over two draws, undecided as long as may be, has the law of all pairs of numbers."""
    expressions = [
        lambda a, b: a + b - 1,
        lambda a, b: (a & ~b | b << 2) ^ a >> 1,
        lambda a, b: 2 * a.bit_count() > b,
        lambda a, b: (a * 3) % 5 if a != b else -(a // 2),
        lambda a, b: [a, b].index(b) + (b <= a) + (a >= 2) - (b < 1),
        lambda a, b: bool(a & 1) + bool(b),
        lambda a, b: a.to_bytes(1, "little") + int(b).to_bytes(1, "little"),
    ]
    for expression in expressions:
        whole = [expression(a, b) for a, b in itertools.product(range(8), range(5))]
        found = replay_draws(lambda noise, f=expression: plain(f(noise.bits(3), noise.below(5))))
        assert found.chances == {output: pytest.approx(whole.count(output) / 40) for output in set(whole)}


def test_a_loop_that_refuses_is_followed_to_its_end():
    def until_many(noise):
        while (drawn := noise.bits(3)).bit_count() < 2:
            continue
        return int(drawn)

    def rounds(noise):
        while True:
            drawn = int(noise.below(4))
            if noise.bernoulli(Fraction(drawn, 4)):
                return drawn

    law = replay_draws(until_many)
    assert law.chances == {drawn: pytest.approx(1 / 4) for drawn in (3, 5, 6, 7)}
    assert law.missed < 1e-11
    assert replay_draws(rounds, most_draws=2).chances == {drawn: pytest.approx(drawn / 6) for drawn in (1, 2, 3)}


def test_losses_between_laws():
    fair, loaded = (replay_draws(lambda noise, p=p: noise.bernoulli(p)) for p in (Fraction(1, 2), Fraction(3, 4)))
    assert loss_between(fair, loaded) == pytest.approx(math.log(2))
    assert loss_between(fair, replay_draws(lambda noise: True)) == UNBOUNDED
    near, far = (replay_draws(lambda noise, m=m: m + noise.discrete_laplace(1)) for m in (0, 1))
    assert loss_between(near, far) == pytest.approx(1, abs=1e-9)
    mechanism = LocalLocation(grid=GRID, epsilon="0.5", method="randomised-response")

    def twice(place, noise):
        return tuple(mechanism.perturb(place, tier="all", noise=noise) for _ in range(2))

    laws = [replay_draws(lambda noise, place=place: twice(place, noise)) for place in PLACES[:2]]
    assert loss_between(*laws) == pytest.approx(1, abs=1e-9)  # two reports lose twice


def test_ties_in_both_halves_are_caught():
    """Duchi's law for two numbers as it is usually printed has the loss ln(e + 1)."""

    def printed(index, noise):
        upper = noise.bernoulli_logistic(1)
        while True:
            agreeing = (~(signs := noise.bits(2)) ^ index) & 3
            if (agreeing.bit_count() >= 1) if upper else (agreeing.bit_count() <= 1):
                return int(signs)

    one, other, between = (replay_draws(lambda noise, at=at: printed(at, noise)) for at in (0b11, 0b00, 0b01))
    assert loss_between(one, other) == pytest.approx(1, abs=1e-9)
    assert loss_between(one, between) == pytest.approx(math.log(math.e + 1), abs=1e-9)


@pytest.fixture
def settings_of(monkeypatch):
    """The settings in which the desk examines a mechanism, none of which is examined."""

    def listed(kind):
        with monkeypatch.context() as patch:
            patch.setattr(local, "examine", lambda setting: setting)
            patch.setattr(local, "examine_lifetime", lambda *given, **named: [])
            patch.setattr(local, "examine_window", lambda *given, **named: None)
            return [setting for setting in local.CHECKS[kind](False) if isinstance(setting, DeviceSetting)]

    return listed


def test_every_mechanism_and_method_is_looked_at(settings_of):
    assert {kind.name for kind in local.CHECKS} == set(MECHANISMS)
    assert set(classes.CHECKS) == {Partition, FullDomain, UtilityClusters}
    for kind in local.CHECKS:
        settings = settings_of(kind)
        assert {setting.mechanism.method for setting in settings} >= set(kind.methods)
        assert any(setting.mechanism.as_published for setting in settings)
        assert {setting.tier for setting in settings} >= {"all", "strict"}


def broken(kind, **methods):
    """A law whose methods are not its own."""
    return type("Broken", (kind,), methods)


def place_setting(mechanism, **more):
    return DeviceSetting(**{"mechanism": mechanism, "variant": "broken", "values": PLACES, **more})


def places_by(kind, **more):
    """Places through an oracle of the test's own."""

    class Broken(LocalLocation):
        def law(self, grid, epsilon):
            return kind(num_inputs=grid.num_cells + 1, epsilon=epsilon)

    return place_setting(Broken(grid=GRID, epsilon=1), **more)


def response(law, index, noise, factor):
    return RandomisedResponse(num_inputs=law.num_inputs, epsilon=factor * law.epsilon).perturb(index, noise)


def test_a_law_that_gives_away_more_than_it_states_is_caught():
    too_true = broken(RandomisedResponse, perturb=lambda law, index, noise: response(law, index, noise, 2))
    exponent = RandomisedResponse.exponent
    wrong_exponent = broken(RandomisedResponse, exponent=lambda law, index, symbol: 2 * exponent(law, index, symbol))
    too_seldom = broken(SymmetricUnary, ratio_epsilon=property(lambda law: law.epsilon))  # turns bits over
    for kind in (too_true, wrong_exponent):
        found = examine(places_by(kind))
        assert (found.measured, found.verdict, found.as_expected) == (2, FAILS, False), kind
        assert len(found.problems) == 1, kind  # exponents and code are not those of one law
    found = examine(places_by(too_seldom, replays=False, law_inputs=2, num_drawn=400))
    assert (found.measured, found.as_expected) == (pytest.approx(2), False)
    # Neither exponents nor replays: 2 * 3,000 draws show that epsilon 1 is wrong, all but once in 10^9 times.
    found = examine(places_by(too_true, replays=False, num_drawn=3000, most_pairs=0))
    assert 1 < found.measured <= 2
    assert (found.exact, found.confidence, found.verdict) == (False, 1 - 1e-9, FAILS)


def published_by(kind, grid, **more):
    """The published form through an oracle of the test's own, within areas."""
    mechanism = LocalLocation(grid=grid, epsilon=1, as_published=True)
    object.__setattr__(mechanism.channel("all"), "oracle", kind(num_inputs=grid.num_inner + 1, epsilon=ONE))
    return examine(place_setting(mechanism, scope=WITHIN, expected=FAILS, **more))


def test_a_published_form_is_not_convicted_by_its_own_word():
    """Its exponents say twice epsilon, and its code loses epsilon once; or its draws are not those of its law."""
    made_sound = broken(PublishedUnary, ratio_epsilon=property(lambda law: law.epsilon / 2))
    honest = PublishedUnary.perturb
    two_faced = broken(
        PublishedUnary, perturb=lambda law, at, noise: honest(law, at if type(noise) is not Noise else 0, noise)
    )
    two = {"values": [AREAS.centre(0), (0.0, 0.0)]}
    for grid, more in ((GRID, {"replays": False, "law_inputs": 2}), (AREAS, two)):
        found = published_by(made_sound, grid, num_drawn=100, **more)
        assert all(epsilon in found.problems[0] for epsilon in ("epsilon 1", "epsilon 2"))
        assert not found.as_expected
    found = published_by(two_faced, AREAS, **two)
    assert (found.verdict, len(found.problems), found.as_expected) == (FAILS, 1, False)
    found = examine(place_setting(LocalLocation(grid=GRID, epsilon=1), expected=FAILS))
    assert (found.verdict, found.as_expected) == (HOLDS, False)  # one that does not fail is a surprise


def test_five_per_cent_too_much_is_caught_for_paths(settings_of):
    def too_true(law, index, noise):
        more = OptimisedUnary(num_inputs=law.num_inputs, epsilon=law.epsilon * Fraction(21, 20))
        return more.perturb(index, noise)

    def bits(mechanism, grid, epsilon):
        num_inputs = LocalTrajectory.law(mechanism, grid, epsilon).num_inputs
        return broken(OptimisedUnary, perturb=too_true)(num_inputs=num_inputs, epsilon=epsilon)

    setting = next(each for each in settings_of(LocalTrajectory) if each.mechanism.method == "optimised-unary")
    kind = broken(LocalTrajectory, law=bits)
    mechanism = kind(grid=setting.mechanism.grid, steps=2, epsilon=1, method="optimised-unary")
    found = examine(dataclasses.replace(setting, mechanism=mechanism, num_drawn=100))
    assert (found.measured, found.as_expected) == (pytest.approx(1.05), False)


def test_the_planar_law_loses_epsilon_for_a_kilometre_and_no_less(settings_of):
    exponent = Planar.displacement_exponent

    def greedy(law, noise):
        moved = tuple(noise.discrete_laplace(1 / rate) for rate in law.rates)
        noise.bernoulli_exp(0)
        return moved

    kinds = {
        "sound": Planar,
        # Five per cent too much, which what is put on the border of a small box hides.
        "too large": broken(Planar, displacement_exponent=lambda law, x, y: exponent(law, x, y) * Fraction(21, 20)),
        "along": broken(Planar, displacement_exponent=lambda law, x, y: exponent(law, x, y) - Fraction(abs(y) > 9, 7)),
        "keeps every proposal": broken(Planar, displacement=greedy),
    }
    setting = next(each for each in settings_of(LocalLocation) if each.mechanism.method == "planar")
    for name, kind in kinds.items():
        places = broken(LocalLocation, law=lambda _, grid, epsilon, kind=kind: kind(grid=grid, epsilon=epsilon))
        mechanism = places(grid=setting.mechanism.grid, epsilon="0.1", method="planar")
        found = examine(dataclasses.replace(setting, mechanism=mechanism, values=setting.values[:2], num_drawn=100))
        assert (found.as_expected, found.claimed) == (name == "sound", 0.1), name
        assert found.problems if name.startswith("keeps") else (found.measured > 0.1) == (name != "sound"), name


def test_a_sampler_that_does_not_follow_its_law_is_caught():
    """It replays well, and draws from real entropy otherwise: less private or more, it is not what it says."""

    def two_faced(law, index, noise):
        return response(law, index, noise, 1 if type(noise) is not Noise else Fraction(1, 2))

    found = examine(places_by(broken(RandomisedResponse, perturb=two_faced)))
    assert (found.measured, found.verdict, found.as_expected) == (1, FAILS, False)


def test_an_area_in_clear_that_is_not_stated_is_caught():
    sound = LocalLocation(grid=GRID, epsilon=1).promise()
    silent = broken(LocalLocation, promise=lambda mechanism, task=None: sound)
    found = examine(place_setting(silent(grid=AREAS, epsilon=1, area_in_clear=True), scope=ACROSS))
    assert (found.claimed, found.measured, found.verdict) == (1, UNBOUNDED, FAILS)


def test_a_report_that_is_charged_too_little_is_caught():
    """e-L_LDP as published, whose vehicle is charged for what is claimed."""
    undercharged = broken(LocalNumeric, true_loss=lambda mechanism, tier: mechanism.levels[0].epsilon)
    two = [Quantity(name=name, low=-1, high=1, steps=1) for name in ("speed", "load")]
    mechanism = undercharged(quantities=two, epsilon=1, as_published=True)
    more = {"values": [(-1, -1), (1, 1)], "expected": FAILS, "replays": False, "witnesses": 200}
    found = examine(place_setting(mechanism, **more))
    assert (found.measured, found.holds) == (2, None)  # what is charged is what is claimed
    assert (len(found.problems), found.as_expected) == (1, False)


def numbers_by(kind):
    """One number through a law of the test's own."""

    class Broken(LocalNumeric):
        def channel(self, tier):
            return SampledReport((kind(epsilon=ONE, steps=2),), 1)

    mechanism = Broken(quantities=(Quantity(name="speed", low=-1, high=1, steps=2),), epsilon=1, method="laplace")
    values = [(Fraction(at, 2),) for at in range(-2, 3)]
    return examine(DeviceSetting(mechanism=mechanism, variant="broken", values=values))


def test_broken_laws_of_numbers_are_caught():
    drawn, scale = LaplaceNumber.perturb, LaplaceNumber.noise_scale

    def scaled(factor):
        return broken(LaplaceNumber, noise_scale=property(lambda law: factor * scale.__get__(law)))

    at_data = broken(LaplaceNumber, perturb=lambda law, at, noise: max(drawn(law, at, noise), at - law.steps))
    forgetful = broken(Piecewise, perturb=lambda law, at, noise: at * law.stride - law.last + noise.below(law.window))
    for name, kind, measured in [
        ("clipped at the data", at_data, UNBOUNDED),
        ("half the scale", scaled(Fraction(1, 2)), pytest.approx(2, abs=1e-8)),
        ("nearly the scale", scaled(Fraction(99, 100)), pytest.approx(100 / 99, abs=1e-8)),
        ("never outside the window", forgetful, UNBOUNDED),
    ]:
        found = numbers_by(kind)
        assert (found.as_expected, found.measured) == (False, measured), name
    # At public bounds noise may be clipped, and putting two symbols together gives nothing away.
    inside, window = lambda law, symbol: min(max(symbol, -law.steps), law.steps), Piecewise.perturb
    at_bounds = broken(LaplaceNumber, perturb=lambda law, at, noise: inside(law, drawn(law, at, noise)))
    cut = broken(Piecewise, perturb=lambda law, at, noise: min(window(law, at, noise), law.last - 1))
    assert numbers_by(at_bounds).as_expected
    assert numbers_by(cut).verdict == HOLDS


PURPOSE = Purpose(name="places", mechanism="local-location", tiers=(Tier(name="all", epsilon="0.5"),), grid=GRID)


def lifetime_by(opening):
    return list(examine_lifetime(PURPOSE, PLACES[0], loss=Fraction(1, 2), opening=opening))


def starting_anew(path, task, **more):
    """Open an allowance that is thrown away each time the device starts."""
    for ending in ("", ".enrolled", ".lock"):
        path.with_name(path.name + ending).unlink(missing_ok=True)
    return Allowance.open(path, task, **{"enrol": True, "now": 19_999 * 86_400, **more})


def test_a_vehicle_falls_silent_and_an_allowance_that_forgets_is_caught():
    found = lifetime_by(Allowance.open)
    assert [(verdict.measured, verdict.claimed) for verdict in found] == [(1, 1), (2.5, 2.5), (2, 2), (2.5, 2.5)]
    assert all(verdict.as_expected for verdict in found)
    forgetting = broken(Allowance, spent_in_all=lambda allowance: Spent())  # keeps the slots, not what they cost
    for opening in (forgetting.open, starting_anew):
        _, lifetime, _, of_two = lifetime_by(opening)
        for found in (lifetime, of_two):
            assert found.measured > found.claimed, opening
            assert (found.verdict, found.as_expected) == (FAILS, False), opening

    def largest(allowance):  # the purpose that spent most is compared with the limits, not all together
        return max(allowance.spent_by_purpose().values(), key=lambda spent: spent.loss, default=Spent())

    *of_one, day, lifetime = lifetime_by(broken(Allowance, spent_in_all=largest).open)
    assert all(verdict.as_expected for verdict in (*of_one, day))
    assert (lifetime.measured, lifetime.verdict) == (4.5, FAILS)  # five of one purpose, four of the other


def test_a_window_gives_away_what_is_stated_for_it(monkeypatch):
    found = examine_window(PURPOSE, PLACES)
    assert (found.claimed, found.measured, found.as_expected) == (0.5, 0.5, True)
    monkeypatch.setattr(Task, "slot_tiers", lambda self, purpose: purpose.tiers)
    found = examine_window(PURPOSE, PLACES)  # each slot has the epsilon of the window
    assert (found.measured, found.as_expected) == (1.5, False)


def weights(k, tables=({"weight": [0.0, 1.0, 5.0, 9.0, 16.0]}, {"weight": [0.0, 0.0, 1.0]}), **more):
    parameters = {"name": "partition", "k": k}
    return classes.ClassSetting(variant="broken", parameters=parameters, tables=list(tables), **more)


class OneShort(Partition):
    """Promises k, and makes classes of k - 1."""

    def promise(self, schema):
        promise = Partition(k=self.k + 1).promise(schema)
        return dataclasses.replace(promise, guarantee=KAnonymity(k=self.k + 1, protects=schema.protects))

    def release(self, dataset, *, ledger, noise):
        return Partition(k=self.k).release(dataset, ledger=ledger, noise=noise)


def test_classes_of_one_too_few_and_none_at_all():
    tables = list(classes.every_table(["a", "b"], [(0, "x"), (1, "y"), (2, "z")], 4))
    assert len(tables) == sum(math.comb(size + 2, 2) for size in range(2, 5))
    assert {"a": (0, 1), "b": ("x", "y")} in tables
    found = classes.examine(weights(2, mechanism=OneShort(k=2)))
    assert (found.claimed, found.measured, found.verdict, found.as_expected) == (3, 2, FAILS, False)
    found = classes.examine(weights(4, tables=[{"weight": [1.0, 2.0]}]))  # a mechanism that never releases
    assert (found.measured, found.as_expected) == (0, False)
    same = {"weight": [0.0, 0.0, 1.0, 16.0]}
    assert classes.examine_epsilon(weights(2, expected=VOID), same, same).measured == 0


def test_orders_that_are_kept_or_likelier_than_others_are_caught(monkeypatch):
    """Rows are left as they are, or only in half of the releases: each may then still be any record."""
    three, shuffled = {"weight": [0.0, 1.0, 1.0]}, noise_arrays.permutation
    assert classes.examine_order(weights(3), three).problems == ()
    monkeypatch.setattr(noise_arrays, "permutation", lambda noise, n: np.arange(n))
    verdict = classes.examine_order(weights(3), three)
    assert (verdict.measured, verdict.verdict) == (1, FAILS)
    monkeypatch.setattr(
        noise_arrays, "permutation", lambda noise, n: np.arange(n) if noise.bits(1) else shuffled(noise, n)
    )
    verdict = classes.examine_order(weights(3), three)
    assert (verdict.measured, bool(verdict.problems), verdict.as_expected) == (3, True, False)


def publication(rows, key):
    """A publication of rows (class and weight) that come from records and persons."""
    data = pa.table({"row": range(len(rows)), "class_id": [c for c, _ in rows], "w": [w for _, w in rows]})
    table = pa.table({name: [line[at] for line in key] for at, name in enumerate(("row", "source_row", "card"))})
    return SimpleNamespace(release=SimpleNamespace(data=data, members=None), key=SimpleNamespace(table=table))


def test_counting_from_outside():
    two = publication([(0, 1), (0, 1), (1, 2), (1, 2), (1, 2)], [(r, r, "AABBC"[r]) for r in range(5)])
    assert classes.smallest_class(two) == 2
    assert classes.smallest_class(two, person="card") == 1  # the first class has two records of one person
    twice = publication([(0, 1), (0, 1), (0, 1)], [(0, 4, "A"), (1, 4, "A"), (2, 5, "B")])
    assert classes.smallest_class(twice) == 2  # a record that was released twice counts once
    same_interval = publication([(0, 1), (1, 1)], [(0, 0, "A"), (1, 1, "B")])
    assert classes.smallest_class(same_interval) == 1  # told apart by the number of their class
    moved = publication([(0, 1), (0, 1), (1, 2)], [(0, 0, "A"), (1, 1, "B"), (2, 0, "A")])
    assert classes.smallest_class(moved) == 1


def test_records_are_not_persons():
    """The published way counts records: with few senders a class of two packages may be one sender's."""
    tables = [{"weight": [0.0, 0.0, 16.0, 16.0], "card": ["A", "A", "B", "C"]}]
    both = {"columns": ("weight", "card"), "tables": tables}
    parameters = {"name": "utility-clusters", "k": 2}
    published = {**parameters, "method": "published-greedy"}
    records = classes.ClassSetting(variant="records", parameters=published, **both)
    assert classes.examine(records).as_expected
    data = dn.load(pa.table(tables[0]), records.policy)
    counted = UtilityClusters(k=2, method="published-greedy")
    made = counted.release(data, ledger=dn.Ledger(":memory:"), noise=Noise())
    assert classes.smallest_class(made, person="card") == 1
    persons = classes.ClassSetting(variant="persons", parameters=parameters, person="card", **both)
    assert classes.examine(persons).measured >= 2
