# SPDX-License-Identifier: Apache-2.0
"""Covers by linear and integer programming, on tables small enough to check by hand."""

from __future__ import annotations

import itertools
import subprocess
import sys

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.sparse import csr_matrix

from dunnage.kernels.solver import CoverTable, affordable, relax_cover, solve_prices, solve_program, whole_cover

# Three rows, every two of them together: each once needs two patterns, or three halves.
PAIRS = np.array([[1, 1, 0], [1, 0, 1], [0, 1, 1]], dtype=np.int32)
ONCE = np.ones(3, dtype=np.int64)


def fewest(patterns: np.ndarray, demand: np.ndarray, most: int) -> int | None:
    """Try all multisets of patterns."""
    for num in range(most + 1):
        for chosen in itertools.combinations_with_replacement(range(len(patterns)), num):
            if (patterns[list(chosen)].sum(axis=0) >= demand).all():
                return num
    return None


def test_covers_by_hand() -> None:
    relaxed = relax_cover(PAIRS, ONCE, seconds=600)
    assert (relaxed.objective, relaxed.values) == (pytest.approx(1.5), pytest.approx([0.5] * 3))
    assert relaxed.prices == pytest.approx([0.5] * 3)
    cover = whole_cover(PAIRS, ONCE, seconds=600)
    assert cover.values.sum() == cover.bound == 2
    cover = whole_cover(PAIRS, np.full(3, 30_001), seconds=600)  # no relative gap is left
    assert cover.values.sum() == cover.bound == 45_002
    met, missed = (whole_cover(PAIRS, ONCE, seconds=600, at_most=most) for most in (2, 1))  # goals give no bound
    assert (met.values.sum() <= 2, met.bound, missed.values, missed.bound) == (True, 0, None, 0)
    assert relax_cover(PAIRS[:1], ONCE, seconds=600) is None  # a row that no pattern covers
    assert whole_cover(PAIRS[:1], ONCE, seconds=600).values is None


def test_relaxation_and_cover_bracket_the_optimum() -> None:
    generator = np.random.default_rng(1)
    for _ in range(60):
        patterns = np.vstack([generator.integers(0, 3, (4, 3)), np.eye(3)]).astype(np.int32)
        demand = generator.integers(1, 4, 3)
        optimum = fewest(patterns, demand, 9)
        relaxed, cover = relax_cover(patterns, demand, seconds=600), whole_cover(patterns, demand, seconds=600)
        assert (relaxed.values @ patterns >= demand - 1e-7).all()
        assert (patterns @ relaxed.prices <= 1 + 1e-7).all()
        assert relaxed.prices @ demand == pytest.approx(relaxed.objective)
        assert relaxed.objective <= optimum + 1e-7
        assert (cover.values @ patterns >= demand).all()
        assert cover.values.sum() == cover.bound == optimum


def test_budgets_and_first_imports() -> None:
    whole_cover(PAIRS, ONCE, seconds=600)
    assert affordable(0.05)
    assert not affordable(0.0)
    program = "from dunnage.kernels.solver import affordable; assert affordable(1) and not affordable(0.3)"
    subprocess.run([sys.executable, "-c", program], check=True)
    # The solver's tolerance lets a budget be overdrawn by a hair; what is returned never is.
    for hair in (1e-7, 1e-9, 1e-12):
        one, use = np.array([1]), np.array([0.05 * (1 + hair)])
        table = CoverTable(csr_matrix(np.array([[1.0]])), one, np.ones(1), np.array([0]), {}, use, 0.05)
        assert solve_program(table, at_most=None, seconds=600).values is None


class Priced:
    """A covering program with kinds, limits and a budget, small enough for the plain linear program."""

    def __init__(self, seed: int) -> None:
        draw = np.random.default_rng(seed)
        self.patterns = np.vstack([draw.integers(0, 3, (5, 3)), np.eye(3, dtype=np.int64)])
        self.demand = draw.integers(1, 4, 3)
        self.kinds = draw.integers(0, 2, len(self.patterns))
        self.cost = np.array([2.0, 3.0])[self.kinds]
        self.limits = {0: int(draw.integers(0, 4))} if draw.random() < 0.7 else {}
        self.use = draw.choice([0.0, 0.01, 0.02, 0.05], len(self.patterns)) if draw.random() < 0.7 else None
        self.budget = float(draw.choice([0.02, 0.05, 0.1]))

    @property
    def table(self) -> CoverTable:
        patterns = csr_matrix(self.patterns.astype(np.float64))
        return CoverTable(patterns, self.demand, self.cost, self.kinds, self.limits, self.use, self.budget)

    def fractional(self) -> float | None:
        """Solve the fractional cover itself, not its dual; None if nothing covers."""
        rows, most = [-self.patterns.T], [-self.demand.astype(np.float64)]
        for kind, count in self.limits.items():
            rows.append((self.kinds == kind).astype(np.int64).reshape(1, -1))
            most.append(np.array([float(count)]))
        if self.use is not None:
            rows.append(self.use.reshape(1, -1))
            most.append(np.array([self.budget]))
        result = linprog(self.cost, A_ub=np.vstack(rows), b_ub=np.concatenate(most), method="highs")
        return float(result.fun) if result.status == 0 else None


def test_prices_bound_the_fractional_cover_and_meet_it() -> None:
    covered = 0
    for seed in range(120):
        problem = Priced(seed)
        prices = solve_prices(problem.table, seconds=600)
        allowed = problem.cost + sum(price * (problem.kinds == kind) for kind, price in prices.limits.items())
        if problem.use is not None:
            allowed = allowed + prices.budget * problem.use
        assert min([*prices.cover, prices.budget, *prices.limits.values()]) >= 0
        # Large prices, where nothing covers, come with errors in proportion.
        assert (problem.patterns @ prices.cover <= allowed + 1e-9 * max(1.0, prices.cover.max())).all()
        truth = problem.fractional()
        if truth is None:
            assert prices.objective > problem.demand.sum() * problem.cost.max()
        else:
            covered += 1
            assert prices.objective == pytest.approx(truth)
    assert covered > 40
