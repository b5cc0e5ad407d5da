# SPDX-License-Identifier: Apache-2.0
"""Bhati et al. 2021: what is measured, against counting by hand, and a miniature of everything that is reproduced."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

PAPER = "bhati2021"
TINY = """
from dataclasses import replace
from pathlib import Path
import sys
from papers import bhati2021 as runs

runs.QUICK = replace(
    runs.QUICK, draws=1, size=400, ks=(5, 20), sizes=(200, 400), limits={runs.OD: (4, 16), runs.RST: (3600, 14400)},
    refine_seconds=0.05,
)
if __name__ == "__main__":
    runs.in_parallel = lambda work, todo, **_: [item for job in todo for item in work(job)]
    runs.reproduce(Path(sys.argv[1]), quick=True, workers=1)
"""


@pytest.fixture(scope="module")
def example(paper):
    """The eight rides."""
    return paper("example")


@pytest.fixture(scope="module")
def four_rides(runs):
    """Four rides between three stations in a line, the first two of one card."""
    line = np.abs(np.subtract.outer(np.arange(3), np.arange(3))).astype(np.float64)
    types = np.array([[0, 2, 2], [2, 0, 1], [2, 1, 0]], dtype=np.float64)
    codes = np.array([[0, 0, 1, 2], [0, 0, 1, 2], [1, 2, 2, 0]], dtype=np.int32)
    return runs.Rides(np.array([0.0, 10.0, 40.0, 100.0]), codes, (types, line, line), np.array([7, 7, 8, 9]))


def a_job(runs, **which):
    usual = {"draw": 0, "size": 300, "scenario": runs.AUTO, "method": runs.DENSITY, "scaling": runs.UNIT, "k": 5}
    return runs.Job(**{**usual, **which})


# The worked example


def test_the_eight_rides_come_out_as_printed(example):
    assert tuple(example.classes()) == example.CLASSES
    rows = example.table()
    assert [row["as printed"] for row in rows] == ["yes"] * 4
    assert tuple(tuple(row[name] for name in example.COLUMNS) for row in rows) == example.TABLE_3


def test_the_star_agrees_with_every_ride_distance(example):
    kilometres = {frozenset("AB"): 2.0, frozenset("BC"): 1.6, frozenset("BD"): 2.2}

    def far(start, end):
        direct = kilometres.get(frozenset((start, end)))
        return direct if direct is not None else kilometres[frozenset((start, "B"))] + kilometres[frozenset(("B", end))]

    assert {frozenset(edge) for edge in example.EDGES} == set(kilometres)
    for _, board, alight, _, _, distance in example.TABLE_2[:6]:
        assert far(board, alight) == pytest.approx(distance)


# Importance


def test_importance_of_manual_scenarios_is_that_of_table_4(runs, four_rides):
    for scenario, printed in runs.TABLE_4.items():
        weights = dict(zip(runs.ATTRIBUTES, four_rides.weights(scenario), strict=True))
        assert sum(weights.values()) == pytest.approx(1)
        if scenario != runs.AUTO:
            assert [weights[name] for name in runs.IN_TABLE_4] == pytest.approx(printed, abs=1e-3)


def test_entropy_by_hand(runs, four_rides):
    assert runs.entropy(np.array([2, 0, 1, 1])) == pytest.approx(1.5)
    # All four start within one bucket; two of the first station, or of the third, and one of each other.
    assert four_rides.entropies() == pytest.approx([0, 1.5, 1.5, 1.5])


# Measures


def test_distortion_of_attributes_by_hand(runs, four_rides):
    of_record = np.array([0, 0, 0, -1])
    found = dict(zip(runs.ATTRIBUTES, runs.distortions(four_rides, of_record), strict=True))
    assert found["start"] == pytest.approx((3 * 0.4 + 1) / 4)
    assert found["type"] == pytest.approx((3 * 1.0 + 1) / 4)
    assert found["board"] == pytest.approx((3 * 0.5 + 1) / 4)
    assert found["alight"] == pytest.approx((3 * 0.5 + 1) / 4)


def test_total_distortion_is_that_of_eq_14(runs, four_rides):
    job = a_job(runs, scenario=runs.OD, k=2)
    run = runs.measured(four_rides, job, np.array([0, 0, 1, -1]), 0.0)
    shares_of_first_class = np.array([0.1, 0, 0, 0.5])  # the second class is one ride
    generalised = float(four_rides.weights(runs.OD) @ shares_of_first_class * 2 / 3)
    assert run.total == pytest.approx(generalised + (1 - generalised) * 0.25)
    assert (run.suppressed, run.classes, run.smallest) == (0.25, 2, 1)


def test_cards_are_counted_not_rides(runs, four_rides):
    run = runs.measured(four_rides, a_job(runs, k=2), np.array([0, 0, 1, 1]), 0.0)
    assert (run.persons, run.too_few, run.one_type) == (1, 0.5, 0.5)


def test_top_pairs_by_hand(runs, four_rides):
    # Pairs 0-1, 0-2, 1-2 and 2-0 have one passenger, all others none: the top 20 are all nine pairs.
    found = runs.top_pairs(four_rides, np.array([0, 0, 1, -1]))
    assert found["od_spread"] == pytest.approx((0 + 0 + 0 + 1) / 9)
    assert found["od_possible"] == pytest.approx((1 + 1 + 0 + 1) / 9)
    # The third ride is in a class of its own; the pair of the first two is not certain.
    assert found["od_certain"] == pytest.approx((1 + 1 + 0 + 1) / 9)


def test_mean_start_by_hand(runs, four_rides):
    found = runs.mean_start(four_rides, np.array([0, 0, 1, -1]))
    assert found["start_lower"] == pytest.approx(37.5 - 40 / 3)
    assert found["start_middle"] == pytest.approx(37.5 - 50 / 3)


def test_nothing_published_is_total_distortion_1(runs, four_rides):
    run = runs.measured(four_rides, a_job(runs), np.full(4, -1), 0.0)
    assert (run.total, run.total_equal, run.suppressed, run.classes) == (pytest.approx(1), 1, 1, 0)
    assert math.isnan(run.start_lower)


def test_histograms_add_up_and_have_the_mean_distortion(runs):
    found = runs.measure(a_job(runs))
    run, bars = found[0], found[1:]
    assert [bar.attribute for bar in bars] == list(runs.ATTRIBUTES)
    for bar in bars:
        assert sum(bar.shares) == pytest.approx(1)
        least = sum(share * number / runs.BINS for number, share in enumerate(bar.shares))
        assert least - 1e-9 <= getattr(run, bar.attribute) <= least + 1 / runs.BINS + 1e-9


# Ways to cluster


@pytest.mark.parametrize("k", [5, pytest.param(20, marks=pytest.mark.long)])
def test_every_method_keeps_k_and_growth_is_not_worse(runs, k):
    total = {}
    for method in (runs.GREEDY, runs.DENSITY, runs.DISSOLVED, runs.GROWTH, runs.PERSONS, runs.REFINED):
        run = runs.measure(a_job(runs, method=method, k=k, refine_seconds=0.1))[0]
        assert run.smallest >= k
        assert run.total == pytest.approx(run.total_auto)
        total[method] = run.total
        if method == runs.PERSONS:
            assert run.persons >= k
            assert run.too_few == 0
    assert total[runs.REFINED] <= total[runs.GROWTH] + 1e-9 <= total[runs.DENSITY] + 2e-9
    assert total[runs.DISSOLVED] <= total[runs.DENSITY] + 1e-9


@pytest.mark.parametrize(("scenario", "limit"), [("S_OD", 6.0), ("S_RST", 5400.0)])
@pytest.mark.parametrize("method", ["density", "growth"])
def test_limits_hold_in_the_attributes_of_the_scenario(runs, scenario, limit, method):
    job = a_job(runs, scenario=scenario, method=method, limit=limit)
    rides = runs.drawn(job.size, job.draw)
    of_record, _ = runs.clustered(rides, job)
    widths = dict(zip(runs.ATTRIBUTES, rides.metric(scenario).widths(of_record), strict=True))
    assert (of_record < 0).any()
    for name in runs.ATTRIBUTES:
        inside = bool((widths[name] <= limit).all())
        assert inside or name not in runs.LIMITED[scenario]


def test_jobs_are_different_and_complete(runs):
    todo = runs.jobs(runs.FULL)
    assert len(set(todo)) == len(todo)
    drawn = [job for job in todo if job.draw == 0]
    assert len(todo) == runs.FULL.draws * len(drawn)
    for scenario, k in itertools.product(runs.FACTORS, runs.FULL.ks):
        assert a_job(runs, size=10_000, scenario=scenario, k=k) in drawn
    assert {job.limit for job in drawn if job.scenario == runs.OD} == {*runs.FULL.limits[runs.OD], math.inf}


def test_without_limits_both_readings_of_density_are_one(runs):
    """A plain second form of density: with limits it passes over neighbours, without any it forms the same classes."""
    job = a_job(runs, method=runs.DENSITY, scenario=runs.OD)
    kernel, plain = (
        runs.clustered(runs.drawn(job.size, job.draw), replace(job, method=m))[0] for m in (runs.DENSITY, runs.WITHIN)
    )
    assert (kernel == plain).all()
    letter, within = (runs.measure(replace(job, method=m, limit=4.0))[0] for m in (runs.DENSITY, runs.WITHIN))
    assert within.suppressed < letter.suppressed


def test_equal_jobs_have_equal_results(runs):
    first, second = (runs.measure(a_job(runs, method=runs.GROWTH, scenario=runs.RST))[0] for _ in range(2))
    assert first.but(seconds=0.0) == second.but(seconds=0.0)


# All of it


def test_a_tiny_reproduction_writes_every_table_with_the_papers_value_beside_ours(miniature):
    out, lines, page = miniature
    assert len(lines) >= 30
    exact = [line for line in lines if line["where"] in ("Tables 2 and 3", "Table 3", "III-B, examples 7 and 8")]
    assert [line["verdict"] for line in exact] == ["agrees"] * 3
    (smoother,) = [line["verdict"] for line in lines if line["where"] == "III-D, eq. 14"]
    assert smoother.startswith("the paper cannot be right")
    (pairs,) = [line["ours"] for line in lines if "top 20 pairs" in line["what"]]
    assert "growth without limits: spread" in pairs
    assert "within 0.03 or a third of it" in page
    titles = ("Tables 2 and 3", "Table 4", "Figure 3", "Figure 4", "Figure 5", "Figure 6", "Figure 7")
    for title in (*titles, "Figures 8 and 9", "Figures 9 and 10"):
        assert f"<h2>{title}:" in page
    for number in (3, 4, 5, 6, 7, 8, 10):
        assert (out / f"figure{number}.csv").exists()
    assert page.count("<svg") > 60
