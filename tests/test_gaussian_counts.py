# SPDX-License-Identifier: Apache-2.0
"""Counts with Gaussian noise: its variance follows from rho and from what one rider changes, and it has its law."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pyarrow as pa
from tests.chance_help import chance_of
from tests.counts_help import counted, universe
from tests.refusals import refusal
from tests.test_dropped_trips import rider_policy, rides

import dunnage as dn
from dunnage.errors import ParameterError
from dunnage.kernels.counts.laplace import DiscreteGaussian
from dunnage.mechanisms import counts as counting
from dunnage.mechanisms.counts import kept_rows, true_counts
from dunnage.model.guarantees import ConcentratedDP, Neighbours, concentrated_epsilon
from dunnage.publishing import mechanism_of

GAUSSIAN = {"name": "gaussian-counts", "epsilon": 1, "delta": "1e-6"}


def test_a_rider_changes_cells_by_no_more_than_the_variance_assumes(tmp_path):
    """Over random files and all riders, squares of changes stay within 2 rho times the variance, and reach it."""
    for seed, (per, most, each) in enumerate([("period", 5, 1), ("period", 5, 2), ("day", 3, 2), ("period", 4, 9)]):
        policy = rider_policy(tmp_path, GAUSSIAN, per=per, max=most, per_cell=each)
        made, table = mechanism_of(policy), rides(25, seed, mean=20)
        whole = dn.Dataset.from_table(table, policy)
        (law,) = made.asked(whole).laws
        assert isinstance(law, DiscreteGaussian)
        rho = made.promise(policy.schema).guarantee.rho
        squares, cards = [], np.array(table["card"].to_pylist())
        for card in np.unique(cards):
            own = dn.Dataset.from_table(table.filter(pa.array(cards == card)), policy)
            counts = true_counts(own, rows=kept_rows(own, dn.Noise())).counts
            assert counts.max() <= each
            squares.append(int((counts**2).sum()))
        assert max(squares) <= 2 * rho * law.scale
        if (per, each) == ("period", 1):
            assert max(squares) == 2 * rho * law.scale == most


def test_each_choice_of_trips_in_a_cell_and_in_all_is_equally_likely(tmp_path, monkeypatch):
    """Three trips of one cell and two of another, at most two of a cell and three in all: by every order."""
    policy = rider_policy(tmp_path, GAUSSIAN, max=3, per_cell=2)
    rows = {"card": ["c"] * 5, "from": ["s0"] * 5, "to": ["s0"] * 3 + ["s1"] * 2, "at": ["2026-11-02T08:00"] * 5}
    data, seen = dn.Dataset.from_table(pa.table(rows), policy), Counter()
    for first, second in itertools.product(itertools.permutations(range(3)), itertools.permutations(range(4))):
        orders = iter((first, second))

        def priorities(key, rows, choice, orders=orders):
            return np.array([next(orders)] * 2)[:, : len(rows)].T

        monkeypatch.setattr(counting, "priorities", priorities)
        seen[tuple(np.flatnonzero(kept_rows(data, dn.Noise())).tolist())] += 1
    of_cell = [{*pair, 3, 4} for pair in itertools.combinations(range(3), 2)]
    expected = Counter(kept for four in of_cell for kept in itertools.combinations(sorted(four), 3))
    assert seen == {kept: num * 12 for kept, num in expected.items()}


def test_released_cells_have_the_law():
    """A cell of 9 trips and three empty ones; 4,000 releases at a variance of about 20."""
    of, made = universe(2, 1), dn.GaussianCounts(epsilon=1, delta="1e-6")
    variance = 1 / (2 * made.rho)
    law = DiscreteGaussian(variance)
    queries = counting.NoisyQueries(
        universe=of, queries=counting.even_shares([]), features=(), laws=(law,), whole=made.rho, part="rho"
    )
    seen, noise = np.zeros((4_000, 4), dtype=np.int64), dn.Noise()
    for row in seen:
        drawn = made.draw_counts(counted(of, [0, 9, 0, 0]), queries, noise)
        row[drawn.cells] = drawn.counts
    masses = {value: math.exp(-(value**2) / (2 * float(variance))) for value in range(-80, 81)}
    total = sum(masses.values())
    for cell, count in enumerate([0, 9, 0, 0]):
        chances = [sum(masses[value] for value in masses if value + count <= 0) / total]
        chances += [masses[value - count] / total for value in range(1, 16)]
        expected = np.array([*chances, 1 - sum(chances)]) * len(seen)
        assert chance_of(np.bincount(np.minimum(seen[:, cell], 16), minlength=17), expected) > 1e-9


def test_what_is_promised_and_charged(tmp_path):
    policy = rider_policy(tmp_path, {**GAUSSIAN, "features": [[]]}, max=4, total_max=40)
    made, data = mechanism_of(policy), dn.Dataset.from_table(rides(3000, 1), policy)
    guarantee = made.promise(policy.schema).guarantee
    assert isinstance(guarantee, ConcentratedDP)
    assert concentrated_epsilon(guarantee.rho, guarantee.delta) <= 1
    assert concentrated_epsilon(guarantee.rho * Fraction("1.00001"), guarantee.delta) > 1
    ledger = dn.Ledger(":memory:")
    release, _ = made.release(data, ledger=ledger, noise=dn.Noise())
    measures = release.certificate.counts
    assert measures.features is not None
    assert measures.correction is not None
    # The parts of rho, with half the square of the epsilon of the sums that correct counts, add up to rho exactly.
    parts = sum((Fraction(str(item.rho)) for item in measures.features), Fraction(0))
    assert parts + Fraction(str(measures.correction.epsilon)) ** 2 / 2 == guarantee.rho
    assert ledger.statement("riders").spends[0].loss(Neighbours.ADD_REMOVE).rho == guarantee.rho
    assert 0 < float(Fraction(str(measures.loss.trip))) < 1 / 2
    dn.publish(data, out=tmp_path / "out", ledger=tmp_path / "ledger.sqlite")
    assert dn.verify(tmp_path / "out").problems == []
    audit = dn.audit(dn.Release.read(tmp_path / "out"), data)
    assert 0.5 < audit.finding("membership guess").value < 0.75
    audit.write(tmp_path / "audit")
    refusal(ParameterError, dn.GaussianCounts, epsilon=1, delta=0)
    refusal(ParameterError, dn.GaussianCounts, epsilon=1)
    refusal(ParameterError, dn.GaussianCounts, epsilon=1, delta="1e-6", as_published=True)
    refusal(ParameterError, dn.GaussianCounts, epsilon=1, delta="1e-6", budget_shares="margins")
