# SPDX-License-Identifier: Apache-2.0
"""Li, Erkin, Lagendijk 2022: its worked numbers exactly, and a miniature of everything that is reproduced."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom

from dunnage.kernels.bins.scalar import pack_bins
from dunnage.noise.sampling import sampling_delta, sampling_epsilon

PAPER = "li2022"
BETA = Fraction(7, 10)
LEAST_CHANCE = 1e-9
TABLE_1 = {"I": 50, "II": 80, "III": 50, "IV": 80, "V": 50, "VI": 50, "VII": 200}
TABLE_2 = {"I": 25, "II": 50, "III": 25, "IV": 50, "V": 25, "VI": 25, "VII": 200}
CAPACITY = {"I": 500, "II": 500, "III": 2500, "IV": 2500, "V": 500, "VI": 500, "VII": 100_000}
SHARES_OF_CAPACITY = {
    "I": (0.25, 0.75),
    "II": (0.25, 0.75),
    "III": (0.05, 0.15),
    "IV": (0.05, 0.15),
    "V": (0, 1),
    "VI": (0.25, 0.75),
    "VII": (0.2, 0.35),
}
TINY = """
from dataclasses import replace
from pathlib import Path
import sys
from dunnage.kernels.bins import spreading as items
from dunnage.planning import spreading
from papers import li2022, li2022_runs as runs, li2022_beside as beside

items.MIN_STEPS, items.FLAT_STEPS, items.LAST_IDLE, items.MAX_IDLE = 8_000, 1_000, 8, 1
spreading.NOISY_STEPS, spreading.NOISY_IDLE, spreading.CHECKED_STEPS, spreading.CHECKED_IDLE = 50, 12, 4_000, 500
runs.QUICK = replace(
    runs.QUICK, runs=1, hard_runs=1, ks=(2, 4), hard_ks=(4,), epsilons=(1.0, 5.0), confidences=(0.5, 0.7), seconds=0.1,
    beside_runs=1, beside_epsilons=(5.0,), attacks=5, risk_draws=2, cargo_seconds=0.1,
)
beside.CARGO_SIZE = 12
if __name__ == "__main__":
    li2022.in_parallel = lambda work, todo, **_: [item for job in todo for item in work(job)]
    li2022.reproduce(Path(sys.argv[1]), quick=True, workers=1)
"""


@pytest.fixture(scope="module")
def beside(paper):
    """What stands beside the figures."""
    return paper("beside")


@pytest.fixture(scope="module")
def tiny(runs):
    """An effort of a moment."""
    return replace(runs.QUICK, ks=(2, 6), epsilons=(1.0, 5.0), confidences=(0.0, 0.5, 0.9), cargo_seconds=0.2)


def measured(runs, effort, figure, setting, instance=0):
    return runs.measure(runs.Job(figure, runs.settings_of(figure)[setting], instance, effort))


# Worked numbers


def test_epsilon_of_eq_33():
    """Section VI-C.2: k = 4, |D| = 40, beta = 0.7, epsilon' = 3 is about 1.8."""
    assert float(sampling_epsilon(BETA) + 2 * Fraction(3) * Fraction(4, 40)) == pytest.approx(1.804, abs=5e-4)


def test_delta_of_the_text():
    """Section VI-C.3: at most 6.8e-4, below 1/|D|, for |D| = 1000, beta = 0.7, k = 40."""
    assert float(sampling_delta(40, BETA)) == pytest.approx(6.790e-4, abs=5e-8)


def test_delta_of_eq_14_is_less_than_that_of_the_theorem_it_cites():
    assert float(sampling_delta(40, BETA, "1.3")) == pytest.approx(2.526e-4, abs=5e-8)
    assert float(sampling_delta(40, BETA, "1.3", as_published=True)) == pytest.approx(2.270e-4, abs=5e-8)


def test_delta_of_the_experiments_promises_nothing(runs):
    deltas = [runs.stated(k, 50)["delta by the theorem"] for k in range(2, 7)]
    assert deltas[0] == pytest.approx(0.49)
    assert deltas[-1] == pytest.approx(0.118, abs=5e-4)
    assert deltas == sorted(deltas, reverse=True)
    stated = runs.stated(4, 40)
    assert stated["epsilon stated"] == pytest.approx(1.804, abs=5e-4)
    assert stated["epsilon that holds"] == pytest.approx(7.204, abs=5e-4)
    assert stated["delta by eq. 14"] < stated["delta by the theorem"] < stated["delta that holds"]


# Tables 1 and 2


@pytest.mark.parametrize(("name", "sizes"), [("TABLE_1", TABLE_1), ("TABLE_2", TABLE_2)])
def test_settings_are_those_of_the_tables(runs, name, sizes):
    table = getattr(runs, name)
    assert {setting.numeral: setting.law.size for setting in table} == sizes
    for setting in table:
        law, (low, high) = setting.law, SHARES_OF_CAPACITY[setting.numeral]
        assert law.capacity == CAPACITY[setting.numeral]
        assert (law.low, law.high) == pytest.approx((low * law.capacity, high * law.capacity))
    assert len(runs.setting_table()) == 14


def test_setting_vii_has_the_law_of_the_hard_instances(runs, data_folder):
    folder = data_folder / "bpplib" / "scholl_hard"
    if not folder.is_dir():
        pytest.skip("no instances of Scholl at hand")
    law = runs.TABLE_1[-1].law
    for path in sorted(folder.glob("HARD*.txt")):
        size, capacity, *weights = map(int, path.read_text().split())
        assert (size, capacity) == (law.size, law.capacity)
        assert law.low <= min(weights) <= max(weights) <= law.high


# The figures in miniature


@pytest.mark.parametrize("setting", [0, 2, 4, 5])
@pytest.mark.parametrize("figure", [5, 8])
def test_upper_bounds_of_classes_always_fit(runs, tiny, figure, setting):
    found = measured(runs, tiny, figure, setting)
    assert {run.x for run in found} == {2, 6}
    upper = [run for run in found if run.method == runs.MOST and run.rows]
    assert all(run.plan_feasible == 1 and run.bins >= run.optimum for run in upper)
    for run in found:
        assert run.optimum <= run.optimum_all
        assert run.kept == run.rows / runs.settings_of(figure)[setting].law.size
        assert run.proved or run.rows > 100
    if figure == 8:
        assert all(run.kept == 1 for run in found)


def test_algorithm_1_runs_on_the_whole_draw_and_keeps_classes_of_k(runs, tiny):
    judge = runs.Judge.of(runs.Job(runs.LATTICE, runs.TABLE_1[1], 0, tiny))
    for attempt in range(10):
        found = runs.whole_sample(replace_seed(runs, judge, attempt), 4, runs.DOUBLING)
        assert found.facts["unsampled"] == 0
        assert found.facts["suppressed"] == 80 - len(found.release)
        known = found.release.uncertain("weight")
        truth = judge.weights[found.record]
        assert ((known.lower <= truth) & (truth <= known.upper)).all()
        assert len(found.release) == 0 or np.bincount(known.class_id).min() >= 4


def replace_seed(runs, judge, instance):
    return runs.Judge(replace(judge.job, instance=instance), judge.weights)


def test_algorithm_2_prints_the_lightest_and_the_heaviest_package_exactly(runs, tiny):
    found = measured(runs, tiny, runs.CLUSTERS, 0)
    assert {run.exact for run in found} == {2}
    law = runs.TABLE_2[0].law
    weights = runs.Judge.of(runs.Job(runs.CLUSTERS, runs.TABLE_2[0], 0, tiny)).weights.astype(np.int64)
    value, lower, upper = runs.published_sizes(law, weights, runs.SHARES, Fraction(1), Fraction(7, 10), 1)
    for end in (weights.argmin(), weights.argmax()):
        assert lower[end] == value[end] == upper[end] == weights[end]
    assert (law.low <= lower).all()
    assert (upper <= law.high).all()
    assert (lower <= value).all()
    assert (value <= upper).all()


@pytest.mark.parametrize("figure", [6, 7])
def test_more_confidence_needs_more_bins(runs, tiny, figure):
    found = measured(runs, tiny, figure, 1)
    for epsilon in tiny.epsilons:
        bins = [run.bins for run in found if run.x == epsilon]
        assert bins == sorted(bins), "each confidence widens the same noise"
    assert {run.method for run in found} == {"c = 0", "c = 0.5", "c = 0.9"}


def test_the_optimum_is_that_of_the_same_packages(runs, tiny):
    run = next(run for run in measured(runs, tiny, runs.CLUSTERS, 5) if run.method == "c = 0.9")
    weights = runs.weights_of(runs.TABLE_2[5], 0).astype(np.int64)
    assert run.optimum == pack_bins(weights, 500, seconds=5.0).objective == run.optimum_all


def test_equal_jobs_have_equal_results(runs, tiny):
    first, second = (measured(runs, tiny, runs.LATTICE, 0) for _ in range(2))
    told = [[(run.x, run.method, run.rows, run.bins, run.bins_feasible) for run in found] for found in (first, second)]
    assert str(told[0]) == str(told[1])  # where nothing was kept there is no number, and that equals nothing


# Beside the figures


def test_every_form_states_its_model_and_covers_what_it_should(beside, runs, tiny):
    effort = replace(tiny, beside_epsilons=(5.0,))
    found = [
        one
        for number in range(4)
        for one in beside.measure_forms(beside.FormJob(runs.Job(runs.CLUSTERS, runs.TABLE_2[1], number, effort)))
    ]
    by_form = {form.name: [one for one in found if one.form == form.name] for form in beside.FORMS}
    assert {form: found[0].model.split(",")[0] for form, found in by_form.items()} == {
        "algorithm 2, as published": beside.NOT_PRIVATE,
        "clusters with public borders": "within-cluster",
        "clusters with private borders": "within-published-borders",
        "Laplace by the range of the data, as published": beside.NOT_PRIVATE,
        "Laplace by the public domain": "dp",
        "piecewise by the public domain": "dp",
    }
    for name, rows in by_form.items():
        covered = round(sum(50 * one.covered for one in rows))
        assert binom.cdf(covered, 200, 0.7) > LEAST_CHANCE, name
    width = {name: np.mean([one.width for one in rows]) for name, rows in by_form.items()}
    assert width["clusters with public borders"] < width["Laplace by the public domain"]
    assert len(beside.form_summary(found, by_setting=True)) == len(beside.FORMS)


def test_public_borders_do_not_come_from_the_data(beside, runs):
    for setting in runs.TABLE_2:
        borders = beside.public_borders(setting)
        assert borders == sorted(set(borders)) == beside.public_borders(setting)
        assert setting.law.low < borders[0]
        assert borders[-1] < setting.law.high
    assert beside.public_borders(runs.TABLE_2[0]) == pytest.approx([137.5, 212.5, 287.5, 362.5], abs=2)


def test_best_guesses_by_hand(beside):
    posterior = np.array([[0.5, 0.5, 0.0], [0.1, 0.7, 0.2], [0.6, 0.3, 0.1]])
    stated, hit = beside.stated_and_hit(posterior)
    assert stated == pytest.approx((0.5 + 0.7 + 0.6) / 3)
    assert hit == pytest.approx((0.5 + 1 + 0) / 3)


@pytest.mark.parametrize("form", ["clusters with public borders", "Laplace by the public domain"])
def test_corrected_identification_hits_as_often_as_it_states(beside, tiny, form):
    row = beside.identification(form, replace(tiny, attacks=150))[0]
    assert abs(row["corrected off by, standard errors"]) < 6.2  # p > 1e-9
    assert row["corrected hits"] > row["guess without the release"]


def test_eq_30_states_what_it_does_not_hit(beside, tiny):
    row = beside.identification("clusters with public borders", replace(tiny, attacks=150))[0]
    # 25 tries a release: far more than chance
    assert abs(row["eq. 30 states"] - row["eq. 30 hits"]) > 0.03
    published = beside.identification("algorithm 2, as published", replace(tiny, attacks=20))[0]
    assert math.isnan(published["corrected states"])
    assert published["eq. 30 hits"] > 2 / 25  # the lightest and the heaviest at least


def test_after_algorithm_1_a_row_is_named_with_at_most_one_in_k(beside, tiny):
    row = beside.lattice_identification(4, replace(tiny, attacks=200))[0]
    assert row["before the release"] < row["given that it is in it"] <= row["worst"] <= row["1/k"]
    assert row["before the release"] <= row["beta/k"]


def test_the_naive_bound_fails_where_simultaneous_sizes_hold(beside, tiny, monkeypatch):
    num = 30
    monkeypatch.setattr(beside, "PLANNERS", [beside.PLANNERS[at] for at in (2, 3)])  # the others are not compared
    case = next(i for i, case in enumerate(beside.RISKY) if case.weights == "all 251")
    failed = {row["planner"]: round(num * row["plans that fail"]) for row in risk_rows(beside, tiny, case, num)}
    naive = failed["noise taken as independent of the plan (naive)"]
    assert binom.sf(naive - 1, num, 0.05) < LEAST_CHANCE
    assert binom.sf(failed["simultaneous sizes"] - 1, num, 0.05) > LEAST_CHANCE


def test_the_posterior_holds_over_its_prior(beside, tiny, monkeypatch):
    """On a few draws: tests/test_noisy_planning.py counts how often such plans hold."""
    num = 8
    monkeypatch.setattr(beside, "PLANNERS", [beside.PLANNERS[at] for at in (0, 4)])
    failed = {row["planner"]: round(num * row["plans that fail"]) for row in risk_rows(beside, tiny, 0, num)}
    assert failed["noisy weights"] > failed["posterior, uniform prior"]


def risk_rows(beside, tiny, case, num):
    return beside.plan_risk(case, replace(tiny, risk_draws=num))


@pytest.mark.parametrize("name", ["two quantities", "four quantities"])
def test_several_quantities(beside, tiny, name, monkeypatch):
    monkeypatch.setattr(beside, "CARGO_SIZE", 20)
    effort = replace(tiny, beside_runs=1, cargo_seconds=0.05)
    rows = {form: beside.several(name, form, effort)[0] for form in beside.cargo_mechanisms(beside.CARGOES[name], 1)}
    assert [row["model"] for row in rows.values()] == ["sampled-dp", "k-anonymity", "within-cluster", "dp", "dp"]
    for form in ("sampled lattice, k = 4", "partition, k = 4"):
        if rows[form]["kept"]:  # of a small sample nothing may be kept
            assert rows[form]["bins_feasible"] == 1
            assert rows[form]["ratio"] >= 1
    assert rows["partition, k = 4"]["kept"] == 1 > rows["sampled lattice, k = 4"]["kept"]


def test_hierarchies_are_compared_on_the_same_draws(beside, tiny):
    rows = beside.hierarchies(2, replace(tiny, runs=2))
    assert [row["first width"] for row in rows] == [4, 250 / 16, 250 / 8, 250 / 4]
    assert all(0 <= row["kept"] <= 1 and row["runs"] == 2 for row in rows)


# All of it


def test_a_tiny_reproduction_writes_every_table_with_the_papers_value_beside_ours(miniature):
    out, lines, page = miniature
    assert len(lines) >= 30
    exact = [line for line in lines if line["what"].startswith(("epsilon for k = 4", "delta for |D| = 1000"))]
    assert [line["verdict"] for line in exact] == ["agrees", "agrees"]
    for figure in (5, 6, 7, 8):
        assert f"Figure {figure}" in page
        assert (out / f"figure{figure}.csv").exists()
    assert page.count("<svg") > 100
