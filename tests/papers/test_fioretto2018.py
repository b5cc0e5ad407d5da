# SPDX-License-Identifier: Apache-2.0
"""Fioretto, Lee, Van Hentenryck 2018: sizes, formulas against brute force, bounds, and a miniature of everything."""

from __future__ import annotations

import math
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

PAPER = "fioretto2018"
TINY = """
from dataclasses import replace
from pathlib import Path
import sys
from papers import fioretto2018, fioretto2018_fleets as fleets, fioretto2018_runs as runs

runs.QUICK = replace(runs.QUICK, runs=2, draws=1, draw_runs=1)
fleets.QUICK = replace(fleets.QUICK, runs=1, large=(0, 0))
if __name__ == "__main__":
    fioretto2018.in_parallel = lambda work, todo, **_: [item for job in todo for item in work(job)]
    fioretto2018.reproduce(Path(sys.argv[1]), quick=True, workers=1)
"""


@pytest.fixture(scope="module")
def weekday(runs):
    """Two hours of the weekday."""
    return runs.trips(runs.WEEKDAY)


def measured(runs, method, epsilon=1.0, *, num=4, **given):
    job = runs.Job(day=runs.WEEKDAY, epsilon=epsilon, method=method, runs=num, **{"form": runs.SOUND, **given})
    return runs.measure(job)


def mean(found, column):
    return np.mean([getattr(run, column) for run in found])


# Sizes and formulas


def test_trips_have_the_stated_counts(runs, weekday):
    assert (weekday.num_cells, weekday.counted.num_trips, len(weekday.counted.cells)) == (67_600, 4_878, 591)
    assert len(weekday.counted.universe.stops) ** 2 == 16_900
    whole = runs.trips(runs.WHOLE_DAY)
    assert (whole.num_cells, whole.counted.num_trips) == (811_200, 37_714)
    assert runs.num_answers(weekday, "O5") == [67_600, 1, 4, 64, 48]


@pytest.mark.parametrize("method", ["Laplace", "Laplace, floor"])
@pytest.mark.parametrize("epsilon", [1.0, 0.1])
def test_expected_trips_are_those_of_the_laplace_law(runs, method, epsilon):
    """Against the probabilities of Laplace numbers between whole numbers, summed one by one."""
    counts = np.array([0, 0, 0, 1, 2, 7, 40])

    def below(x: float) -> float:
        return math.exp(epsilon * x) / 2 if x < 0 else 1 - math.exp(-epsilon * x) / 2

    shift = 0.0 if method == runs.FLOOR else 0.5
    values = range(1, 700)
    expected = sum(k * (below(k + 1 - shift - c) - below(k - shift - c)) for c in counts for k in values)
    own = SimpleNamespace(counted=SimpleNamespace(counts=counts[counts > 0]), num_cells=len(counts))
    assert runs.expected_trips(own, epsilon, method) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("method", ["Laplace", "Laplace, floor"])
@pytest.mark.parametrize("form", ["as published", "sound"])
def test_trips_created_are_as_many_as_expected(runs, weekday, method, form):
    """Twenty releases; the tolerance is eight standard errors, of a deviation of at most 10 a cell."""
    found = measured(runs, method, 0.1, form=form, num=20)
    tolerance = 8 * 10 * math.sqrt(weekday.num_cells / 20)
    assert mean(found, "trips") == pytest.approx(runs.expected_trips(weekday, 0.1, method), abs=tolerance)


def test_half_hours_that_fit_the_printed_trips(runs):
    whole = runs.trips(runs.WHOLE_DAY)
    windows = {method: runs.implied_windows(whole, 1.0, method, 261_032) for method in (runs.LAPLACE, runs.FLOOR)}
    assert 27 < windows[runs.LAPLACE] < 28
    assert 45 < windows[runs.FLOOR] < 47
    for method, number in windows.items():
        cells = number * whole.counted.universe.num_pairs
        assert runs.expected_trips(whole, 1.0, method, num_cells=cells) == pytest.approx(261_032)


def test_unweighted_ablations_are_bounded_by_the_noise(runs, weekday):
    bounds = [runs.largest_rmse(weekday, "O5(a)", epsilon) for epsilon in (1.0, 0.1, 0.01)]
    assert bounds[0] == pytest.approx(math.sqrt(50), rel=0.01)
    assert all(b == pytest.approx(10 * a) for a, b in pairwise(bounds))
    assert bounds[0] + 0.5 < 35.6
    assert 13.4 < runs.largest_rmse(weekday, "O5(b)", 1.0) == pytest.approx(math.sqrt(250))
    for method in ("O5(a)", "O5(c)"):
        assert max(run.rmse for run in measured(runs, method, form=runs.PUBLISHED)) < bounds[0]


def test_methods_are_those_of_the_paper(runs):
    described = {m: runs.mechanism(m, 0.1, runs.PUBLISHED).describe() for m in (*runs.ABLATIONS, "O4", "H3")}
    ways = {m: (described[m]["structure"], described[m]["feature_weights"]) for m in runs.ABLATIONS}
    assert ways == {
        "O5(a)": ("hierarchical", "uniform"),
        "O5(b)": ("hierarchical", "size"),
        "O5(c)": ("flat", "uniform"),
    }
    assert described["O4"]["features"] == "O4"
    assert described["O4"]["as_published"]
    assert (described["H3"]["budget"], described["H3"]["prune"]) == ("geometric", True)
    other = runs.mechanism("H5, uniform, unpruned", 1.0, runs.SOUND)
    assert (other.budget, other.prune, other.as_published) == ("uniform", False, False)


# Errors


def test_errors_of_publishing_nothing(runs, weekday):
    one = runs.nothing(runs.WEEKDAY)[0]
    counts = weekday.counted.counts.astype(float)
    assert one.rmse == pytest.approx(math.sqrt((counts**2).sum() / weekday.num_cells))
    assert one.mae == pytest.approx(counts.sum() / weekday.num_cells)
    assert (one.rmse_empty, one.mae_full, one.total, one.trips) == (0, pytest.approx(counts.mean()), 4_878, 0)


def test_errors_add_up(runs, weekday):
    dense = weekday.true.copy()
    dense[[0, weekday.counted.cells[0]]] += [3, -1]
    found = runs.errors(weekday, dense)
    assert found["mae"] * weekday.num_cells == pytest.approx(4)
    assert found["rmse"] ** 2 * weekday.num_cells == pytest.approx(10)
    assert (found["total"], found["mae_empty"]) == (2, pytest.approx(3 / (weekday.num_cells - 591)))


def test_what_o5_wins_and_what_it_does_not(runs):
    """Margins are ten times what four releases vary by."""
    o3, o5, laplace, cells = (measured(runs, method) for method in ("O3", "O5", runs.LAPLACE, runs.CELLS))
    assert mean(o5, "rmse") < mean(laplace, "rmse")
    assert mean(o3, "rmse") < mean(o5, "rmse")
    assert mean(laplace, "mae_full") < mean(o5, "mae_full") / 2
    assert mean(o5, "modes") < mean(o3, "modes") / 2
    assert mean(cells, "rmse") < mean(o5, "rmse") / 1.5


def test_same_noise_again(runs):
    first, again = (measured(runs, "O5", num=1)[0] for _ in range(2))
    assert (first.rmse, first.trips) == (again.rmse, again.trips)


def test_every_job_has_noise_of_its_own(runs):
    todo = runs.jobs(runs.QUICK)
    assert len({runs.seed_of(job) for job in todo}) == len(set(todo)) == len(todo)


@pytest.mark.parametrize("method", ["O5", "O5(a)", "O5(c)"])
@pytest.mark.parametrize("epsilon", [1.0, 0.01])
def test_projection_never_adds_to_the_error(runs, method, epsilon):
    (found,) = measured(runs, method, epsilon, check=runs.CONTRACTION)
    assert 0 < found.mean <= found.number <= 1


def test_hierarchical_counts_are_often_negative(runs):
    (found,) = measured(runs, "H5", 0.1, form=runs.PUBLISHED, check=runs.NEGATIVE)
    assert found.number > 1_000
    assert found.mean < -1


def test_without_a_root_and_with_negative_counts_h5_is_nearer_to_the_printed_errors(runs):
    """Printed are 5.11 and 56.6; negative counts stay, so that the total is not far off."""
    for epsilon, printed in ((1.0, 5.11), (0.1, 56.6)):
        found = measured(runs, runs.SIGNED, epsilon, num=3, form=runs.PUBLISHED)
        assert mean(found, "rmse") == pytest.approx(printed, rel=0.12)
        assert mean(found, "trips") == pytest.approx(4_878, abs=500 / epsilon)


def test_interval_of_a_mean(runs):
    assert runs.mean_interval(np.array([1.0, 2.0, 3.0])) == (2.0, pytest.approx(4.302653 / math.sqrt(3), rel=1e-6))
    assert math.isnan(runs.mean_interval(np.array([1.0]))[1])


# Everything


@pytest.mark.long  # what it is made of is tested above; the miniatures of the other papers always run
def test_everything_in_miniature(miniature):
    out, lines, page = miniature
    assert len(lines) >= 40
    assert len({line["verdict"].split(":")[0].split(" (")[0] for line in lines}) == 4
    impossible = [line["what"] for line in lines if "impossible at epsilon 1:" in line["verdict"]]
    assert [what.split(",")[0] for what in impossible] == ["error of O5(a)"] * 2
    assert page.count("<svg") > 12
    assert "publishing nothing" in page
    names = ("created", "figure5", "table2", "bounds", "readings", "cells", "sums", "draws", "seconds")
    for name in (*names, "table1", "fleets", "weekdays", "fleet-runs"):
        assert (out / f"{name}.csv").exists()
