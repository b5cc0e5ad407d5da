# SPDX-License-Identifier: Apache-2.0
"""The proof desk: what it must find, that broken mechanisms are caught, and that its enumeration is right."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import product
from unittest import mock

import numpy as np
import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from typer.testing import CliRunner

from dunnage.cli.auditing import prove as prove_command
from dunnage.devices.task import MECHANISMS as LOCAL_MECHANISMS
from dunnage.errors import ParameterError
from dunnage.kernels.counts.laplace import DiscreteLaplace, floating_noise
from dunnage.ledger import book as ledger_module
from dunnage.mechanisms import MECHANISMS, counts, noisy
from dunnage.mechanisms.clusters import UtilityClusters
from dunnage.mechanisms.counts import HierarchicalCounts, NoisyCounts, true_counts
from dunnage.mechanisms.full_domain import FullDomain
from dunnage.mechanisms.noisy import NoisyColumns, NoisyValues, cut_cells, noisy_domains
from dunnage.mechanisms.partition import Partition
from dunnage.mechanisms.sampled_lattice import SampledLattice, _Lattice
from dunnage.model.certificate import RowMeasures
from dunnage.model.domains import Numeric
from dunnage.model.guarantees import NO_LOSS
from dunnage.model.laws import Cells
from dunnage.noise import arrays as noise_arrays
from dunnage.noise.source import Noise
from dunnage.proving import counts as counts_desk
from dunnage.proving import examining, local, rows
from dunnage.proving import statistical as primitives
from dunnage.proving import verdict as desk
from dunnage.proving.counts import TABLES, counts_case, examine_extremes, examine_large_universe, examine_shares
from dunnage.proving.examining import (
    NeighbourCase,
    examine,
    examine_count_law,
    sentence_of,
    unreachable_share,
)
from dunnage.proving.replay import (
    Decisions,
    NotEnumerable,
    Outcomes,
    Reach,
    delta_between,
    diverted,
    epsilon_between,
    outcomes,
)
from dunnage.proving.rows import examine_border_shares, lattice_case, numbers, values_case
from dunnage.proving.statistical import agrees
from dunnage.proving.verdict import FAILS, HOLDS, NOISE, UNBOUNDED, VOID, Proof, Verdict, checks, judge, prove, within

FORMS = {"product": {2: 4, 3: 6}, "qlp": {2: 2, 3: 2}, "qjlp": {2: 2, 3: 2}}
"""What published forms of paths lose, by their steps."""


@pytest.fixture(scope="module")
def proof(thorough: bool) -> Proof:
    """The short form on everything, with fewer draws: that draws follow laws has tests of its own."""
    with pytest.MonkeyPatch.context() as patch:
        if not thorough:
            for name in ("FEW", "SOME", "MANY"):
                patch.setattr(primitives, name, getattr(primitives, name) // 10)
            patch.setitem(NeighbourCase.__init__.__kwdefaults__, "draws", examining.DRAWS // 10)
            patch.setattr(counts_desk, "_LAZY_DRAWS", counts_desk._LAZY_DRAWS // 6)
            reports, boxes = local._real_reports, local._from_draws
            patch.setattr(local, "_real_reports", lambda draws, num: reports(draws, num // 24))
            patch.setattr(local, "_from_draws", lambda of: boxes(replace(of, num_drawn=of.num_drawn // 4)))
        return prove()


def found(proof: Proof, mechanism: str, variant: str) -> Verdict:
    (verdict,) = [v for v in proof.verdicts if v.mechanism == mechanism and v.variant == variant]
    return verdict


# What the desk must find


def test_every_mechanism_has_a_check():
    assert set(checks()) == {*MECHANISMS, *LOCAL_MECHANISMS, NOISE}


class UnlistedClasses(Partition):
    name = "unlisted-classes"


class UnlistedNoise(NoisyValues):
    name = "unlisted-noise"


class TooLittle(NoisyValues):
    """Draws with twice the epsilon that it promises."""

    name = "too-little"

    def perturb(self, dataset, prepared, noise):
        return NoisyValues(epsilon=2 * self.epsilon).perturb(dataset, prepared, noise)


class UnlistedCounts(NoisyCounts):
    name = "unlisted-counts"


def test_a_mechanism_without_a_check_of_its_own_is_examined_by_its_kind(monkeypatch):
    """The first verdict on each: conformance looks at one of every kind, and the desk at all."""
    for kind in (UnlistedClasses, UnlistedNoise, UnlistedCounts, TooLittle):
        monkeypatch.setitem(MECHANISMS, kind.name, kind)
        verdict = next(checks()[kind.name](False))
        assert verdict.mechanism == kind.name
        assert verdict.as_expected == (kind is not TooLittle)


def test_the_short_desk_is_as_expected(proof):
    assert proof.surprises == ()
    assert proof.as_expected
    assert {verdict.mechanism for verdict in proof.verdicts} == set(checks())
    for verdict in proof.verdicts:
        if verdict.basis == "proved":  # void: what is shown in clear, of which nothing is promised
            assert verdict.verdict in (HOLDS, VOID)
            assert verdict.within_promise


def test_every_published_form_is_checked_and_fails_where_it_must(proof):
    fields = {name: kind.model_fields.get("as_published") for name, kind in MECHANISMS.items()}
    forms = {name for name, item in fields.items() if item is not None and item.annotation is bool}
    assert "noisy-counts" in forms
    published = {v.mechanism for v in proof.verdicts if "as published" in v.variant}
    assert forms <= published
    for name in ("noisy-clusters", "noisy-counts", "hierarchical-counts", "constrained-counts"):
        verdict = found(proof, name, "as published")
        assert (verdict.verdict, verdict.measured, verdict.holds) == (FAILS, UNBOUNDED, UNBOUNDED)
    floating = found(proof, "noisy-counts", "floating-point Laplace")
    assert floating.measured == UNBOUNDED


def test_published_sampling_is_off_by_what_the_notes_say(proof):
    published = found(proof, "sampled-lattice", "as published")
    assert published.claimed == pytest.approx(0.343)
    assert published.measured == pytest.approx(0.5784, abs=1e-4)
    assert published.measured <= published.holds
    chosen = found(proof, "sampled-lattice", "node chosen on the released sample")
    assert chosen.claimed == pytest.approx(0.49)
    assert chosen.measured == pytest.approx(0.5317, abs=1e-4)
    assert found(proof, "sampled-lattice", "2 flags, k 2").measured == pytest.approx(0.4011, abs=1e-4)


def test_bounds_are_reached_where_they_are_tight(proof):
    assert found(proof, "noisy-values", "laplace, 2 columns, 1 record").measured == pytest.approx(3)
    assert found(proof, "noisy-values", "piecewise, 1 column, 2 records").measured == pytest.approx(2)
    assert found(proof, "noisy-counts", "round, 2 cells").measured == pytest.approx(4, abs=1e-3)
    assert found(proof, "noisy-counts", "riders of at most 2 trips").measured == pytest.approx(6, abs=1e-3)
    assert found(proof, "noisy-counts", "2 trips of one rider, promised for one trip").measured == pytest.approx(
        6, abs=1e-3
    )
    assert found(proof, "sampled-lattice", "1 number, k 2").measured == pytest.approx(0.49)


def test_devices_lose_what_the_notes_say(proof):
    """What is proved is reached, and published forms lose what they must; forms of several areas have no bound."""
    devices = {(v.mechanism, v.variant): v for v in proof.verdicts if v.mechanism in LOCAL_MECHANISMS}
    numbers = [v for (name, _), v in devices.items() if name == "local-numeric" and v.basis == "proved"]
    assert len(numbers) > 10
    assert all(verdict.measured == verdict.claimed for verdict in numbers)  # no slack: each loss is reached
    for num, verdict in ((1, HOLDS), (2, FAILS), (3, FAILS)):
        found = devices["local-numeric", f"as published (e-L_LDP), {num} number{'s' * (num > 1)}"]
        assert (found.claimed, found.measured, found.verdict, found.exact) == (1, num, verdict, True)
        assert found.holds == (num if num > 1 else None)
    assert devices["local-location", "area in clear, across areas"].verdict == VOID
    losses = {
        ("local-location", "as published (e-LT_LDP), across areas"): UNBOUNDED,
        ("local-location", "as published (L-RR), one area"): 2,
        **{("local-trajectory", f"as published ({form}), 2 steps, across areas"): UNBOUNDED for form in FORMS},
        **{
            ("local-trajectory", f"as published ({form}), {steps} steps, within areas"): loss[steps]
            for form, loss in FORMS.items()
            for steps in (2, 3)
        },
    }
    for name, loss in losses.items():
        found = devices[name]
        assert (found.claimed, found.holds, found.measured, found.verdict) == (1, loss, loss, FAILS)
    box = devices["local-location", "as published (L-RR), one area"].method
    assert float(box.split("at least ")[1].split()[0]) > 1  # a closed box shows most of it


def test_classes_are_counted_and_bound_no_epsilon(proof):
    for kind in (FullDomain, Partition, UtilityClusters):
        own = {v.variant: v for v in proof.verdicts if v.mechanism == kind.name}
        for k in (2, 3):
            found = own[f"k = {k}"]
            assert (found.quantity, found.claimed, found.measured) == ("k", k, k)
            assert int(found.method.split()[0]) > 50  # releases, not refusals
        assert (own["no epsilon"].measured, own["no epsilon"].verdict) == (UNBOUNDED, VOID)
        assert (own["order of rows"].measured, own["order of rows"].problems) == (3, ())


def test_proof_is_told_worst_first_and_as_data(proof):
    told = proof.to_dict()
    assert list(told["mechanisms"][0])[:5] == ["mechanism", "basis", "claimed", "measured", "verdict"]
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    verdicts = [item["verdict"] for item in told["mechanisms"]]
    assert verdicts == sorted(verdicts)  # fails before holds
    text = proof.summary()
    assert text.splitlines()[0].split()[:5] == ["verdict", "mechanism", "variant", "basis", "claimed"]
    assert f"{len(proof.verdicts)} checks" in text


def test_laplace_in_floating_point_does_not_reach_every_number():
    assert unreachable_share(Fraction(1)) > 0.5
    # The last word gives the largest noise there is: a count of 0 rounds to 36 at most, a count of 1 to 37.
    last = floating_noise(np.array([(1 << 52) - 1]), Fraction(1))[0]
    assert [round(last), round(last + 1)] == [36, 37]
    verdict = examine_extremes(NoisyCounts(epsilon=1, as_published=True))
    assert "A count of 37 " in verdict.sentence


def test_strange_names_are_refused():
    with pytest.raises(ParameterError, match="no mechanism 'noisy-cuonts'"):
        prove(["noisy-cuonts"])


# Deliberately broken mechanisms


class HalfNoise(NoisyValues):
    def perturb(self, data, prepared, source):
        domains = noisy_domains(data.schema, self.name)
        cells = cut_cells(domains, {}, law=self.law, epsilon=2 * self.epsilon, confidence=self.confidence)
        return NoisyColumns.of(cells, data, source)


class ForgottenColumn(NoisyValues):
    def perturb(self, data, prepared, source):
        drawn = super().perturb(data, prepared, source)
        true = data.numbers("length")
        return replace(drawn, columns={**drawn.columns, "length": (true, true, true)})


class EpsilonForEachColumn(NoisyValues):
    def perturb(self, data, prepared, source):
        domains = noisy_domains(data.schema, self.name)
        cells = {
            name: cut_cells({name: domain}, {}, law=self.law, epsilon=self.epsilon, confidence=self.confidence)[name]
            for name, domain in domains.items()
        }
        return NoisyColumns.of(cells, data, source)


class DomainFromData(NoisyValues):
    def perturb(self, data, prepared, source):
        values = data.numbers("weight")
        domain = Numeric(lower=0, upper=int(values.max()) + 1, resolution=1)
        cells = Cells.cut(domain, (), law=self.law, epsilon=self.epsilon, confidence=self.confidence)
        return NoisyColumns.of({"weight": cells}, data, source)


class SeededNoise(NoisyValues):
    def release(self, dataset, *, ledger, noise):
        return super().release(dataset, ledger=ledger, noise=Noise(seed=4))


class ConstantNoise(NoisyValues):
    def perturb(self, data, prepared, source):
        told = np.clip(data.numbers("weight") + 1, 0, 4)
        return NoisyColumns({"weight": (told, told, told)}, RowMeasures(records=len(data)))


class OwnNoise(NoisyValues):
    def release(self, dataset, *, ledger, noise):
        return super().release(dataset, ledger=ledger, noise=Noise())


class SpendsHalf(NoisyValues):
    def release(self, dataset, *, ledger, noise):
        class Cheaper(NoisyValues):
            def promise(self, schema):
                promise = super().promise(schema)
                return replace(promise, guarantee=replace(promise.guarantee, epsilon=self.epsilon / 2))

        return Cheaper(**dict(self)).release(dataset, ledger=ledger, noise=noise)


class SpendsTwice(NoisyValues):
    def release(self, dataset, *, ledger, noise):
        ledger.spend(self.promise(dataset.schema), dataset.purpose)
        return super().release(dataset, ledger=ledger, noise=noise)


class DrawsFirst(NoisyValues):
    def release(self, dataset, *, ledger, noise):
        drawn = self.draw(dataset, None, noise)

        class Given(NoisyValues):
            def draw(self, dataset, prepared, noise):
                return drawn

        return Given(**dict(self)).release(dataset, ledger=ledger, noise=noise)


class RefusesTheHeavy(NoisyValues):
    def release(self, dataset, *, ledger, noise):
        if dataset.numbers("weight").max() > 3:
            raise ParameterError("too heavy.")
        return super().release(dataset, ledger=ledger, noise=noise)


class InOrder(NoisyValues):
    def release(self, dataset, *, ledger, noise):
        release, key = super().release(dataset, ledger=ledger, noise=noise)
        table = release.data.take(np.argsort(key.table["source_row"].to_numpy()))
        return replace(release, data=table.set_column(0, "row", [np.arange(len(table))])), key


def values(kind, **more):
    """Return a case whose values 0 and 4 at the ends are neighbours, and the worst of all."""
    return values_case(epsilon=1, last=more.pop("last", 4), law="laplace", mechanism=kind(epsilon=1), **more)


def test_the_mechanism_that_is_broken_below_is_sound():
    verdict = examine(values(NoisyValues))
    assert verdict.as_expected
    assert verdict.measured == pytest.approx(1)


@pytest.mark.parametrize(
    ("kind", "measured", "problem"),
    [
        (HalfNoise, 2.0, ""),
        (DomainFromData, UNBOUNDED, ""),
        (SeededNoise, UNBOUNDED, "its certificate says void, its promise proved"),
        (ConstantNoise, UNBOUNDED, ""),
        (OwnNoise, None, "draws do not follow"),
        (SpendsHalf, 1.0, "it does not spend what it promises"),
        (DrawsFirst, 1.0, "draws before it spends"),
        (RefusesTheHeavy, UNBOUNDED, ""),
        (SpendsTwice, 1.0, "it spends 2 times for one release"),
    ],
)
def test_broken_mechanisms_are_caught(kind, measured, problem):
    verdict = examine(values(kind))
    assert verdict.verdict == FAILS
    assert not verdict.as_expected
    assert measured is None or verdict.measured == (pytest.approx(measured) if measured != UNBOUNDED else UNBOUNDED)
    assert problem in "; ".join(verdict.problems)
    assert ("it spends less than it loses" in verdict.problems) == (kind is SpendsHalf)  # the spend is at fault
    # The loss is stated first, then what else is wrong.
    factor = {HalfNoise: "7.39, where 2.72 is claimed.", SpendsHalf: "at most 2.72, as promised."}
    assert factor.get(kind, "") in verdict.sentence


def test_a_column_without_its_share_of_noise_is_caught():
    assert examine(values(ForgottenColumn, last=(1, 1))).measured == UNBOUNDED
    verdict = examine(values(EpsilonForEachColumn, last=(1, 1)))
    assert (verdict.verdict, verdict.measured) == (FAILS, pytest.approx(2.0))


def test_bounds_from_draws_say_at_least():
    held = sentence_of("trip", 2.0, 1.0, exact=False)
    assert held == "One trip changes the odds of a release by a factor of at least 2.71; 7.39 is promised."
    assert "by a factor of at least 2.71, where 1.65 is claimed" in sentence_of("trip", 0.5, 1.0, exact=False)


class Raises(NoisyValues):
    def release(self, dataset, *, ledger, noise):
        raise TypeError("no such thing")


def test_what_raises_fails_by_name():
    verdict = examine(values(Raises, variant="this one"))
    assert (verdict.mechanism, verdict.variant, verdict.verdict) == ("noisy-values", "this one", FAILS)
    assert verdict.problems == ("it raised TypeError: no such thing",)
    assert not verdict.as_expected


def test_a_check_that_raises_does_not_end_the_desk(monkeypatch):
    def check(long: bool) -> Iterator[Verdict]:
        yield verdict()
        raise ZeroDivisionError

    monkeypatch.setattr(desk, "checks", lambda: {"noisy-counts": check, "noisy-values": lambda long: iter([verdict()])})
    proof = prove()
    assert [item.problems for item in proof.surprises] == [("it raised ZeroDivisionError",)]
    assert len(proof.verdicts) == 3
    assert "unbounded" in proof.summary()


def test_spends_that_do_not_add_up_are_caught(monkeypatch):
    monkeypatch.setattr(
        ledger_module, "sum_of", lambda losses: max(losses, key=lambda loss: loss.epsilon or 0, default=NO_LOSS)
    )
    assert "two releases do not add up in the ledger" in examine(values(NoisyValues)).problems


def test_rows_in_the_order_of_the_data_are_caught():
    """Two records in the order they came in: the first row is the first record's, so epsilon is not kept for pairs."""
    lawful = examine(values(NoisyValues, last=1, num=2))
    assert lawful.as_expected
    case = values(InOrder, last=1, num=2)
    swapped = [{"weight": [0.0, 1.0]}, {"weight": [1.0, 0.0]}]  # the same records: nobody may tell them apart
    verdict = examine(replace(case, tables=swapped, pairs=[(0, 1)], claimed=1e-6))
    assert verdict.measured == pytest.approx(2)
    kept = examine(replace(values(NoisyValues, last=1, num=2), tables=swapped, pairs=[(0, 1)], claimed=1e-6))
    assert kept.measured == pytest.approx(0, abs=1e-9)


def test_a_biased_sampler_is_caught_though_its_law_is_right(monkeypatch):
    """Noise without a sign, and noise of a scale that is a tenth too large: found on 40,000 numbers."""
    honest, law = noise_arrays._laplace_by_table, DiscreteLaplace(Fraction(2))
    monkeypatch.setattr(noise_arrays, "_laplace_by_table", lambda *given: np.abs(honest(*given)))
    verdict = examine(values(NoisyValues))
    assert verdict.measured == pytest.approx(1)  # by its decisions
    assert verdict.verdict == FAILS
    assert verdict.problems == ("its draws do not follow the law that its decisions have",)
    assert examine_count_law("noisy-counts", law, reach=20).verdict == FAILS
    monkeypatch.setattr(
        noise_arrays, "_laplace_by_table", lambda noise, scale, size: honest(noise, scale * Fraction(11, 10), size)
    )
    assert examine_count_law("noisy-counts", law, reach=40).problems


class HalfCountNoise(NoisyCounts):
    def law(self, dataset):
        law = super().law(dataset)
        return replace(law, scale=law.scale / 2)


class BareCell(NoisyCounts):
    def draw_counts(self, counted, law, noise):
        drawn = super().draw_counts(counted, law, noise)
        rest = drawn.cells != 0
        true = counted.cells == 0
        return replace(
            drawn,
            cells=np.append(counted.cells[true], drawn.cells[rest]),
            counts=np.append(counted.counts[true], drawn.counts[rest]),
        )


def test_broken_counts_are_caught():
    for kind, least in ((HalfCountNoise, 7.9), (BareCell, 10)):
        verdict = examine(replace(counts_case(kind(epsilon=4), TABLES[:2], steps=3), draws=60))
        assert verdict.verdict == FAILS
        assert verdict.measured == UNBOUNDED or verdict.measured > least
        assert not verdict.problems  # it spends what is promised: the noise is at fault


class SmallClasses(SampledLattice):
    def draw(self, dataset, prepared, noise):
        classes = _Lattice.classes
        # The node is chosen for k = 2, and classes of any size are released.
        with mock.patch.object(_Lattice, "classes", lambda lattice, rows, node, k: classes(lattice, rows, node, 1)):
            return super().draw(dataset, prepared, noise)


def test_classes_below_k_are_caught():
    mechanism = SmallClasses(k=2, beta=Fraction(7, 10), epsilon_choice=Fraction(1))
    tables = [numbers([0]), numbers([0, 3])]
    verdict = examine(replace(lattice_case(mechanism, tables), draws=40))
    assert verdict.verdict == FAILS
    assert verdict.measured > 0.6  # whoever is sampled is told, but for a node at which all look alike


class BareBits:
    """Draws bare bits, of which nothing can be enumerated."""

    def perturb(self, data, prepared, source):
        source.bits(40)
        return super().perturb(data, prepared, source)


class Unlisted(BareBits, ConstantNoise):
    pass


class UnlistedButSound(BareBits, NoisyValues):
    pass


def test_what_leaves_out_too_much_is_drawn(monkeypatch):
    monkeypatch.setattr(examining, "_BLIND_DRAWS", 60)
    verdict = examine(counts_case(NoisyCounts(epsilon=1), TABLES[:2], steps=2))
    assert not verdict.exact
    assert verdict.as_expected


def test_what_cannot_be_enumerated_is_drawn(monkeypatch):
    monkeypatch.setattr(examining, "_BLIND_DRAWS", 200)
    verdict = examine(replace(values(Unlisted), pairs=[(0, 4)]))
    assert not verdict.exact
    assert verdict.confidence > 0.99
    assert verdict.verdict == FAILS
    assert 1 < verdict.measured < math.inf
    assert "at least" in Proof(verdicts=(verdict,), seconds=1.0).summary()
    assert examine(replace(values(UnlistedButSound), pairs=[(0, 4)])).as_expected


# The engine


def table(*chances: float, missed: float = 0.0) -> Outcomes:
    return Outcomes(chances={at: chance for at, chance in enumerate(chances) if chance}, missed=missed, runs=1)


def test_losses_by_hand():
    fair, loaded = table(0.5, 0.5), table(0.75, 0.25)
    assert epsilon_between(fair, loaded) == pytest.approx(math.log(2))
    assert epsilon_between(fair, table(1.0)) == UNBOUNDED
    assert epsilon_between(fair, table(1.0), lambda output: output == 0) == pytest.approx(math.log(2))
    assert epsilon_between(fair, table(0.9, missed=0.1)) == pytest.approx(math.log(5))
    assert delta_between(fair, loaded, 0.0) == pytest.approx(0.25)
    assert delta_between(fair, loaded, math.log(2)) == pytest.approx(0)
    assert delta_between(fair, table(1.0), 5.0) == pytest.approx(0.5)


@given(st.lists(st.fractions(-9, 9, max_denominator=50), min_size=1, max_size=6), st.integers(1, 6))
@settings(max_examples=30)
def test_all_ways_are_found_and_their_chances_add_up(scores, n):
    def run(noise):
        first = noise.exponential_choice(scores)
        return first, noise.below(n) if first else noise.bernoulli(Fraction(1, 3)), noise.discrete_laplace(2)

    law = outcomes(run, Reach(steps=2))
    assert math.fsum(law.chances.values()) == pytest.approx(1)
    assert law.missed == 0
    assert law.runs == len(law) == 7 * (2 + n * (len(scores) - 1))


def test_tails_that_are_left_out_are_counted():
    law = outcomes(lambda noise: noise.geometric(2), Reach(steps=4, beyond="left out"))
    assert sorted(law.chances) == [0, 1, 2, 3, 4]
    assert law.missed == pytest.approx(math.exp(-2.5))
    far = outcomes(lambda noise: noise.geometric(2), Reach(steps=1, beyond="left out", tail=1e-4))
    assert 0 < far.missed <= 1e-4
    whole = outcomes(lambda noise: noise.geometric(2), Reach(steps=4))
    assert max(whole.chances) > 1000
    assert whole.missed == 0


DRAWS = [
    ("below", (3,)),
    ("bernoulli", (Fraction(1, 3),)),
    ("bernoulli_exp", (Fraction(1, 2),)),
    ("bernoulli_logistic", (Fraction(-2, 3),)),
    ("bernoulli_odds", (3, 2, Fraction(1, 2))),
    ("geometric", (Fraction(3, 2),)),
    ("discrete_laplace", (Fraction(3, 2),)),
    ("exponential_choice", ([Fraction(1), Fraction(0), Fraction(1, 2)],)),
]


def test_decisions_have_the_law_of_the_draws_they_stand_for():
    """20,000 real numbers of each law; a chance of 0.3 that is off by 0.03 is found, all but surely."""
    for name, parameters in DRAWS:

        def draw(noise, size, name=name, parameters=parameters):
            return getattr(noise_arrays, name)(noise, *parameters, size)

        with diverted():
            law = outcomes(lambda noise, draw=draw: draw(noise, 1)[0].item(), Reach(steps=40, beyond="left out"))
            drawn = draw(Noise(), 20_000)  # real noise stays what it is
        assert agrees(Counter(drawn.tolist()), law.chances) > 1e-9
        assert drawn.dtype == draw(Noise(), 1).dtype


def test_orders_are_tried_where_they_count():
    with diverted():
        all_orders = outcomes(lambda noise: tuple(noise_arrays.permutation(noise, 3)), Reach(steps=1, orders=True))
        kept = outcomes(lambda noise: tuple(noise_arrays.permutation(noise, 3)), Reach(steps=1))
    assert len(all_orders) == 6
    assert kept.chances == {(0, 1, 2): 1.0}


def test_functions_are_put_back_and_what_is_too_large_is_refused():
    before = {name: getattr(noise_arrays, name) for name, _ in DRAWS}
    with pytest.raises(NotEnumerable), diverted():
        outcomes(lambda noise: noise_arrays.below(noise, 1 << 40, 1)[0], Reach(steps=1))
    assert before == {name: getattr(noise_arrays, name) for name, _ in DRAWS}
    with pytest.raises(NotEnumerable):
        outcomes(lambda noise: [noise.bernoulli(Fraction(1, 2)) for _ in range(9)] and 0, Reach(steps=1), most=100)
    with pytest.raises(NotEnumerable), diverted():
        outcomes(lambda noise: noise_arrays.binomial(noise, 3, Fraction(1, 2), 1)[0], Reach(steps=1))


def test_extremes_are_the_first_and_the_last_and_scripts_end():
    law = outcomes(lambda noise: noise.below(1 << 52), Reach(steps=1, beyond="extremes"))
    assert sorted(law.chances) == [0, (1 << 52) - 1]
    noise = Decisions([], Reach(steps=1))
    assert noise.following() is None
    noise.bernoulli(Fraction(1, 2))
    assert noise.following() == [1]


# Noise itself


def test_every_draw_has_a_check():
    for kind, names in primitives.public_draws().items():
        assert set(names) == set(primitives.trials()[kind])
        assert len(names) > 10
    missing = primitives.examine_draws("numbers", "gaussian", [])
    assert not missing.as_expected


def failing_draws(kind: str, name: str) -> bool:
    return not primitives.examine_draws(kind, name, primitives.trials()[kind][name]).as_expected


def test_scales_of_numbers_that_are_a_twentieth_off_are_caught(monkeypatch):
    for name in ("discrete_laplace", "geometric"):
        honest = getattr(Noise, name)
        with monkeypatch.context() as patch:
            patch.setattr(Noise, name, lambda noise, scale, honest=honest: honest(noise, scale * Fraction(19, 20)))
            assert failing_draws("numbers", name)


def test_odds_of_numbers_that_are_a_twentieth_off_are_caught(monkeypatch):
    logistic, choice, bits = Noise.bernoulli_logistic, Noise.exponential_choice, Noise.bits
    off = Fraction(21, 20)
    with monkeypatch.context() as patch:
        patch.setattr(Noise, "bernoulli_logistic", lambda noise, x: logistic(noise, x * off))
        patch.setattr(Noise, "exponential_choice", lambda noise, scores: choice(noise, [off * s for s in scores]))
        assert failing_draws("numbers", "bernoulli_logistic")
        assert failing_draws("numbers", "exponential_choice")
    calls = iter(range(1 << 40))

    def cleared(noise, n):
        word = bits(noise, n)
        return word if next(calls) % 20 or not n else word & (1 << (n - 1)) - 1

    monkeypatch.setattr(Noise, "bits", cleared)
    assert failing_draws("numbers", "bits")


def test_arrays_that_are_a_twentieth_off_are_caught(monkeypatch):
    ratio, tables = noise_arrays.exp_interval, ("_geometric_table", "_laplace_table", "_low_digit_table")
    monkeypatch.setattr(noise_arrays, "exp_interval", lambda x, bits: ratio(x * Fraction(21, 20), bits))
    for name in tables:  # not kept for what is drawn afterwards
        monkeypatch.setattr(noise_arrays, name, getattr(noise_arrays, name).__wrapped__)
    assert failing_draws("arrays", "geometric")
    assert failing_draws("arrays", "discrete_laplace")


def test_zeros_of_two_signs_are_caught(monkeypatch):
    def twice(noise, scale, size):
        signs = 1 - 2 * noise_arrays.below(noise, 2, size)
        return signs * noise_arrays._geometric(noise, scale, size)

    monkeypatch.setattr(noise_arrays, "_laplace_by_sign", twice)
    assert failing_draws("arrays", "discrete_laplace")


def test_numbers_that_a_law_does_not_have_are_caught():
    law = primitives.ExactLaw(np.array([0.5, 0.5]))
    assert primitives.off_by([0, 1] * 500 + [2], law) == math.inf
    assert primitives.off_by([0, 1] * 500, law) == 0
    assert primitives.off_by([0, 0, 1] * 500, law) > 0


def test_noise_is_checked_with_every_name(monkeypatch):
    noisy = lambda long: iter([verdict(mechanism=NOISE)])  # noqa: E731
    monkeypatch.setattr(desk, "checks", lambda: {"noisy-counts": lambda long: iter([verdict()]), NOISE: noisy})
    assert {item.mechanism for item in prove(["noisy-counts"]).verdicts} == {"noisy-counts", NOISE}


# Shares, riders and very many cells


def test_shares_beyond_epsilon_are_caught(monkeypatch):
    assert examine_shares([HierarchicalCounts(epsilon=1)]).as_expected
    grown = counts.growing_shares
    monkeypatch.setattr(
        counts,
        "growing_shares",
        lambda columns: tuple(replace(query, share=2 * query.share) for query in grown(columns)),
    )
    assert examine_shares([HierarchicalCounts(epsilon=1)]).measured == 2


def test_borders_that_cost_more_than_their_share_are_caught(monkeypatch):
    assert examine_border_shares().measured == pytest.approx(0.5)
    whole = property(lambda form: form.mechanism.epsilon * form.mechanism.border_share)
    monkeypatch.setattr(noisy._PrivateBorders, "border_epsilon", whole)
    assert examine_border_shares().measured == pytest.approx(2)


def test_a_k_and_a_rate_that_are_off_are_caught(monkeypatch):
    smallest, largest = rows.smallest_k, rows.sampling_beta
    monkeypatch.setattr(rows, "smallest_k", lambda beta, delta: max(2, smallest(beta, delta) - 1))
    monkeypatch.setattr(rows, "sampling_beta", lambda rest: largest(rest) * Fraction(21, 20))
    assert not rows.examine_smallest_k().as_expected
    assert not rows.examine_largest_rate().as_expected


def test_bare_cells_of_very_many_are_caught():
    made = NoisyCounts(epsilon=2)

    def lazily(data, noise):
        counted = true_counts(data)
        drawn = made.draw_counts(counted, made.law(data), noise)
        bare = counts.MAX_DENSE_CELLS == 1
        return replace(drawn, cells=counted.cells, counts=counted.counts) if bare else drawn

    found = examine_large_universe(made, lazily, steps=8, draws=200, variant="bare")
    assert found.verdict == FAILS
    assert counts.MAX_DENSE_CELLS > 1


# Verdicts


def verdict(**changes) -> Verdict:
    usual = Verdict.of("noisy-counts", "", 1.0, 1.0, method="by hand", sentence="As promised.")
    return Verdict(**{**dict(usual), **changes})


def test_what_is_expected_of_a_verdict():
    assert verdict().as_expected
    assert not verdict(measured=1.01, verdict=FAILS).as_expected
    assert not verdict(measured=1.01, verdict=FAILS, expected=FAILS).as_expected  # our own certificate is exceeded
    assert verdict(measured=1.01, verdict=FAILS, expected=FAILS, holds=2.0).as_expected
    assert verdict(measured=UNBOUNDED, verdict=FAILS, expected=FAILS, holds=UNBOUNDED).as_expected
    assert not verdict(expected=FAILS, holds=UNBOUNDED).as_expected  # must fail, and does not
    assert not verdict(problems=("it spends twice",)).as_expected
    assert Verdict.model_validate(verdict().to_dict()) == verdict()


def test_verdicts_on_figures():
    assert judge(1.0, 1.0, "epsilon") == HOLDS
    assert judge(1.1, 1.0, "epsilon") == FAILS
    assert judge(UNBOUNDED, 1.0, "epsilon") == FAILS
    assert judge(1.0, UNBOUNDED, "epsilon") == VOID
    assert judge(4, 5, "k") == FAILS
    assert judge(5, 5, "k") == HOLDS
    assert within(UNBOUNDED, UNBOUNDED, "epsilon")


def test_senseless_verdicts_are_refused():
    wrong = {"verdict": "maybe", "basis": "sure", "quantity": "bits", "measured": "much", "expected": "?"}
    for name, value in wrong.items():
        with pytest.raises(ValidationError):
            verdict(**{name: value})


# The command


@pytest.fixture
def run(monkeypatch):
    """Run the command with checks that are made up."""

    def command(*verdicts: Verdict, arguments: tuple[str, ...] = ("--jobs", "1")):
        def check(long: bool) -> Iterator[Verdict]:
            yield from verdicts

        monkeypatch.setattr(desk, "checks", lambda: {"noisy-counts": check})
        app = typer.Typer()
        app.command()(prove_command)
        return CliRunner().invoke(app, arguments)

    return command


def test_the_command_tells_the_verdict(run):
    result = run(verdict())
    assert result.exit_code == 0
    assert "1 check in 0 s" in result.output
    told = json.loads(run(verdict(), arguments=("--json", "noisy-counts")).output)
    assert told["mechanisms"][0]["mechanism"] == "noisy-counts"
    assert told["as_expected"]


def test_the_command_fails_where_something_is_not_as_expected(run):
    exceeded = verdict(measured=2.0, verdict=FAILS, sentence="It loses twice what it says.")
    result = run(exceeded, verdict())
    assert result.exit_code == 1
    assert "! fails" in result.output
    assert '"holds"' in result.output
    result = run(verdict(variant="as published", holds=UNBOUNDED, basis="claimed", expected=FAILS))
    assert result.exit_code == 1
    assert '"fails"' in result.output


def test_progress_names_the_mechanisms(monkeypatch):
    told: list[str] = []
    monkeypatch.setattr(desk, "checks", lambda: {"noisy-counts": lambda long: iter([verdict(variant="as ever")])})
    prove(progress=told.append)
    assert told == ["noisy-counts: 1 of 1 mechanisms", "noisy-counts, as ever holds: 1 of 1 mechanisms"]


def test_pairs_differ_in_one_record():
    case = values_case(epsilon=1, last=2, law="laplace", num=2)
    for one, other in product(range(len(case.tables)), repeat=2):
        pair = Counter(case.tables[one]["weight"]), Counter(case.tables[other]["weight"])
        assert ((one, other) in case.pairs) == (one < other and (pair[0] - pair[1]).total() == 1)


def test_figures_are_numbers_or_null_in_a_file():
    given = {"method": "counted", "sentence": "It has no bound.", "holds": "unbounded"}
    verdict = Verdict.of("noisy-counts", "", 1.0, "unbounded", **given)
    plain = verdict.to_dict()
    assert (plain["claimed"], plain["measured"], plain["holds"]) == (1.0, None, None)
    assert plain["unbounded"] == ["holds", "measured"]
    assert Verdict.model_validate(plain) == verdict
    old = {name: value for name, value in plain.items() if name != "unbounded"} | {"measured": "unbounded"}
    assert Verdict.model_validate(old).measured == "unbounded"
