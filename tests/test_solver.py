# SPDX-License-Identifier: Apache-2.0
"""Covers by linear and integer programming, on tables small enough to check by hand."""

from __future__ import annotations

import itertools
import subprocess
import sys

import numpy as np
import pytest

from dunnage.solver import _checked, affordable, relax_cover, whole_cover

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


def test_relaxation_by_hand() -> None:
    relaxed = relax_cover(PAIRS, ONCE, seconds=5)
    assert relaxed is not None
    assert relaxed.objective == pytest.approx(1.5)
    assert relaxed.values == pytest.approx([0.5] * 3)
    assert relaxed.prices == pytest.approx([0.5] * 3)


def test_cover_by_hand() -> None:
    cover = whole_cover(PAIRS, ONCE, seconds=5)
    assert cover.values is not None
    assert cover.values.sum() == cover.bound == 2


def test_relaxation_and_cover_bracket_the_optimum() -> None:
    generator = np.random.default_rng(1)
    for _ in range(150):
        patterns = np.vstack([generator.integers(0, 3, (4, 3)), np.eye(3)]).astype(np.int32)
        demand = generator.integers(1, 4, 3)
        optimum = fewest(patterns, demand, 9)
        relaxed, cover = relax_cover(patterns, demand, seconds=5), whole_cover(patterns, demand, seconds=5)
        assert relaxed is not None
        assert cover.values is not None
        assert (relaxed.values @ patterns >= demand - 1e-7).all()
        assert (patterns @ relaxed.prices <= 1 + 1e-7).all()
        assert relaxed.prices @ demand == pytest.approx(relaxed.objective)
        assert relaxed.objective <= optimum + 1e-7
        assert (cover.values @ patterns >= demand).all()
        assert cover.values.sum() == cover.bound == optimum


def test_no_relative_gap_is_left_when_there_are_many_bins() -> None:
    cover = whole_cover(PAIRS, np.full(3, 30_001), seconds=10)
    assert cover.values is not None
    assert cover.values.sum() == cover.bound == 45_002


def test_a_goal_is_met_or_not_and_gives_no_bound() -> None:
    met = whole_cover(PAIRS, ONCE, seconds=5, at_most=2)
    assert met.values is not None
    assert met.values.sum() <= 2
    assert met.bound == 0
    missed = whole_cover(PAIRS, ONCE, seconds=5, at_most=1)
    assert missed.values is None
    assert missed.bound == 0


def test_a_row_that_no_pattern_covers_has_no_cover() -> None:
    short = PAIRS[:1]
    assert relax_cover(short, ONCE, seconds=5) is None
    assert whole_cover(short, ONCE, seconds=5).values is None


def test_rounded_values_are_kept_only_if_they_cover() -> None:
    kept = _checked(np.array([1.0 - 1e-7, 1e-9, 1.0]), PAIRS, ONCE)
    assert kept is not None
    assert kept.tolist() == [1, 0, 1]
    assert _checked(np.array([0.4, 0.4, 0.4]), PAIRS, ONCE) is None
    assert _checked(None, PAIRS, ONCE) is None


def test_a_first_import_counts_and_later_ones_do_not() -> None:
    whole_cover(PAIRS, ONCE, seconds=5)
    assert affordable(0.05)
    assert not affordable(0.0)
    program = "from dunnage.solver import affordable; assert affordable(1) and not affordable(0.3)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)
