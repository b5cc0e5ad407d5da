# SPDX-License-Identifier: Apache-2.0
"""The planar law: its norm, its loss per kilometre, and that draws follow it."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from dunnage.devices.places import DIRECTIONS, LocalLocation, Planar, enumerated_loss
from dunnage.devices.subjects import Grid
from dunnage.errors import ParameterError
from dunnage.noise.source import Noise

GRID = Grid(box=("103.9", "30.5", "104.2", "30.8"), levels=3)
UNLIKELY = 1e-9
steps = st.fractions(-1000, 1000, max_denominator=50)


def norm(across: Fraction, along: Fraction) -> Fraction:
    """Return the longest scalar product of a displacement with one of the 36 directions."""
    return max((a * abs(across) + b * abs(along)) / c for a, b, c in DIRECTIONS)


def planar(epsilon: str = "0.25", grid: Grid = GRID) -> Planar:
    return Planar(grid=grid, epsilon=Fraction(epsilon))


def test_directions_lie_on_the_circle_and_are_mirrored() -> None:
    assert all(a * a + b * b == c * c for a, b, c in DIRECTIONS)
    assert {(b, a, c) for a, b, c in DIRECTIONS} == set(DIRECTIONS)
    angles = [math.degrees(math.atan2(b, a)) for a, b, _ in DIRECTIONS]
    assert angles == sorted(angles)
    assert (angles[0], angles[-1]) == (0, 90)
    assert max(later - sooner for sooner, later in pairwise(angles)) < 11.5


@given(steps, steps)
def test_the_norm_is_the_length_or_a_little_less(across: Fraction, along: Fraction) -> None:
    squared = across**2 + along**2
    assert norm(across, along) ** 2 <= squared
    assert norm(across, along) ** 2 >= Fraction(99, 100) * squared  # cos(11.5 / 2 degrees) squared


@given(steps, steps, steps, steps, st.fractions(-5, 5, max_denominator=9))
def test_it_is_a_norm(a: Fraction, b: Fraction, c: Fraction, d: Fraction, factor: Fraction) -> None:
    assert norm(a + c, b + d) <= norm(a, b) + norm(c, d)
    assert norm(factor * a, factor * b) == abs(factor) * norm(a, b)
    assert (norm(a, b) == 0) == (a == b == 0)
    assert norm(-a, b) == norm(a, -b) == norm(a, b)


def test_the_loss_between_two_cells_is_epsilon_per_kilometre_on_any_lattice_point() -> None:
    law, size = planar(), GRID.num_columns
    width, height = GRID.pitch_km
    cells = list(product(range(size), repeat=2))
    window = list(product(range(-size, 2 * size), repeat=2))
    for here, there in product(cells, repeat=2):
        gaps = [
            law.displacement_exponent(x - here[0], y - here[1]) - law.displacement_exponent(x - there[0], y - there[1])
            for x, y in window
        ]
        across, along = (here[0] - there[0]) * width, (here[1] - there[1]) * height
        worst = law.epsilon * norm(across, along)
        assert max(gaps) == worst  # reached at the cell itself
        assert worst**2 <= law.epsilon**2 * (across**2 + along**2)
        assert worst <= law.loss
    assert law.loss == law.epsilon * norm(3 * width, 3 * height)


def clamped_law(law: Planar, index: int, margin: int) -> dict[int, float]:
    """Return the chance of each cell, summed over a window that holds all but nothing of the law."""
    size = law.grid.num_columns
    column, row = law._at(index)
    chances: Counter[int] = Counter()
    for x, y in product(range(-margin, size + margin), repeat=2):
        chance = math.exp(float(law.displacement_exponent(x - column, y - row)))
        chances[law.grid.cell_at(min(max(x, 0), size - 1), min(max(y, 0), size - 1))] += chance  # type: ignore[assignment]
    total = sum(chances.values())
    return {cell: chance / total for cell, chance in chances.items()}


def test_after_clamping_the_promise_still_holds() -> None:
    law = planar("0.5")
    width, height = (float(side) for side in GRID.pitch_km)
    laws = {index: clamped_law(law, index, 12) for index in range(GRID.num_cells)}
    for one, other in product(laws, repeat=2):
        columns, rows = (a - b for a, b in zip(GRID.column_row(one), GRID.column_row(other), strict=True))
        distance = math.hypot(columns * width, rows * height)
        ratio = max(laws[one][cell] / laws[other][cell] for cell in laws[one])
        assert math.log(ratio) <= 0.5 * distance + 1e-9


def test_reports_are_drawn_by_the_law() -> None:
    for epsilon in ["0.1", "0.5"]:
        law, noise, num = planar(epsilon), Noise(seed=1), 8000
        for index in (0, 9, GRID.outside):
            expected = clamped_law(law, index, 12 if epsilon == "0.5" else 40)
            drawn = Counter(law.perturb(index, noise) for _ in range(num))
            often = [cell for cell, chance in expected.items() if chance * num >= 5]
            rare = num - sum(drawn[cell] for cell in often)
            seen, wanted = [drawn[cell] for cell in often], [expected[cell] * num for cell in often]
            if len(often) < len(expected):
                seen, wanted = [*seen, rare], [*wanted, num - sum(wanted)]
            assert chisquare(seen, [each * num / sum(wanted) for each in wanted]).pvalue > UNLIKELY


def test_displacements_have_the_exact_law() -> None:
    law, noise, num = planar("0.4"), Noise(seed=2), 20_000
    window = list(product(range(-25, 26), repeat=2))
    weights = {at: math.exp(float(law.displacement_exponent(*at))) for at in window}
    total = sum(weights.values())
    drawn = Counter(law.displacement(noise) for _ in range(num))
    often = [at for at in window if weights[at] / total * num >= 5]
    seen = [drawn[at] for at in often]
    wanted = [weights[at] / total * num for at in often]
    seen, wanted = [*seen, num - sum(seen)], [*wanted, num - sum(wanted)]
    assert chisquare(seen, wanted).pvalue > UNLIKELY


def test_a_proposal_is_never_likelier_than_the_law_allows() -> None:
    law = planar()
    across, along = law.rates
    for columns, rows in product(range(-9, 10), repeat=2):
        assert across * abs(columns) + along * abs(rows) <= -law.displacement_exponent(columns, rows)


def test_outside_goes_to_the_border_and_missing_to_the_middle() -> None:
    mechanism = LocalLocation(grid=GRID, epsilon=1, method="planar")
    law = planar()
    assert mechanism.index((0, 30.65)) == GRID.cell(103.9, 30.65)
    assert mechanism.index((math.inf, -math.inf)) == GRID.cell(104.2, 30.5)
    assert mechanism.index((104.0, 30.6)) == GRID.cell(104.0, 30.6)
    for missing in (None, (math.nan, 30.6), ("a", "b")):
        assert mechanism.index(missing) == GRID.outside
    assert GRID.column_row(law.centre) == (2, 2)
    assert law.exponent(GRID.outside, 3) == law.exponent(law.centre, 3)


def test_exponents_are_epsilon_times_the_norm() -> None:
    law, (width, height) = planar("0.3"), GRID.pitch_km
    for columns, rows in product(range(-7, 8), repeat=2):
        assert law.displacement_exponent(columns, rows) == -law.epsilon * norm(columns * width, rows * height)


def test_symbols_cannot_be_listed() -> None:
    with pytest.raises(ParameterError, match="endless"):
        enumerated_loss(planar())
    with pytest.raises(ParameterError):
        planar("0")


def test_reports_lie_about_as_far_off_as_stated() -> None:
    fine = Grid(box=("103.9", "30.5", "104.2", "30.8"), levels=8)
    law, noise = planar("2", fine), Noise(seed=3)
    width, height = (float(side) for side in fine.pitch_km)
    far = [math.hypot(x * width, y * height) for x, y in (law.displacement(noise) for _ in range(2000))]
    assert abs(sum(far) / len(far) - float(2 / law.epsilon)) < 0.15


def test_a_blur_as_wide_as_the_box_is_noise() -> None:
    verdict = LocalLocation(grid=GRID, epsilon="0.05", method="planar").noise_verdict(100_000)
    assert verdict.is_noise
    assert verdict.levels is None
    assert verdict.epsilon == Fraction(1, 2)
    assert not LocalLocation(grid=GRID, epsilon=1, method="planar").noise_verdict(100_000).is_noise
