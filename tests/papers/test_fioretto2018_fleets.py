# SPDX-License-Identifier: Apache-2.0
"""Fioretto, Lee, Van Hentenryck 2018: fleets sized on private counts, run on the true trips, and how they are told."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

PAPER = "fioretto2018"


@pytest.fixture(scope="module")
def fleeting(paper):
    """How fleets are measured."""
    return paper("fleets")


@pytest.fixture(scope="module")
def text(paper):
    """How fleets are told."""
    return paper()


@pytest.fixture(scope="module")
def o5(fleeting):
    """Two fleets sized on O5."""
    return [fleeting.measure(fleeting._job("weekday", 1.0, "O5", run))[0] for run in range(2)]


def test_a_fleet_on_o5_is_near_the_true_one(o5):
    """Judged at a fifth on the mean of five; each of two draws is far from that."""
    for run in o5:
        assert abs(run.more_shuttles) < 0.2
        assert run.expansions == 5
        assert run.trips == pytest.approx(4_878, rel=0.05)
    assert o5[0].true_shuttles == o5[1].true_shuttles
    assert o5[0].true_wait <= 180


def test_the_true_fleet_meets_the_target_and_waits_are_those_of_the_true_trips(fleeting):
    here = fleeting.scene("town", "weekday", 0)
    needed = here.needed  # sizing sets where the shuttles of the true trips wait
    run = here.truth.operate(needed.fleet)[0]
    found = here.operated(needed.fleet, needed.parking)
    assert found["wait"] == pytest.approx(float((run.picked_up - run.requested).mean()))
    assert found["worst_wait"] <= 180
    assert found["unserved"] == 0
    assert len(here.truth.days) == 1
    assert len(here.truth.days[0].trips) == 4_878
    assert ((here.truth.days[0].trips.seconds // 3600) < 10).all()


def test_riders_of_a_zone_without_shuttles_are_counted_as_unserved(fleeting):
    here = fleeting.scene("town", "weekday", 0)
    fleet = (0, *here.needed.fleet[1:])
    found = here.operated(fleet)
    assert found["unserved"] >= here.truth.legs[0, 0] > 0
    assert found["wait"] > 0
    nobody = here.operated((0,) * len(fleet))
    assert math.isnan(nobody["wait"])
    assert nobody["unserved"] == here.truth.legs.sum()


@pytest.mark.parametrize("epsilon", [1.0, 0.1, 0.01])
def test_thresholds_are_the_least_that_noise_seldom_reaches(fleeting, epsilon):
    """Chance of rounded Laplace noise to reach t: exp(-epsilon (t - 1/2)) / 2."""
    reached = [67_600 * math.exp(-epsilon * (fleeting.threshold(67_600, epsilon) - less - 0.5)) / 2 for less in (0, 1)]
    assert reached[0] <= 1 < reached[1]


def test_a_threshold_keeps_large_counts_only(fleeting):
    own = fleeting.scene("town", "weekday", 0).own
    told = fleeting.released(own, fleeting._job("weekday", 1.0, fleeting.THRESHOLDED, 0))
    assert told.counts.min() >= fleeting.threshold(own.num_cells, 1.0)
    assert 0.5 * own.counted.num_trips < told.counts.sum() < own.counted.num_trips


def test_what_has_too_many_trips_is_counted_and_left_out(fleeting):
    job = replace(fleeting._job("weekday", 0.1, fleeting.LAPLACE, 0), most_trips=fleeting.MOST_TRIPS)
    (run,) = fleeting.measure(job)
    assert run.expansions == 0
    assert run.trips > 300_000
    assert math.isnan(run.shuttles)
    rows = fleeting.left_out(fleeting.Fleets([run], fleeting.QUICK))
    assert rows == [{"day": "weekday", "mechanism": "Laplace", "epsilon": 0.1, "trips": float(run.trips)}]


@pytest.mark.parametrize("effort", ["FULL", "QUICK"])
def test_every_fleet_has_noise_of_its_own(fleeting, effort):
    todo = fleeting.jobs(getattr(fleeting, effort))
    assert len({fleeting.seed_of(job) for job in todo}) == len(set(todo)) == len(todo)
    large = [job for job in todo if job.most_trips > fleeting.MOST_TRIPS]
    assert len(large) == (2 if effort == "FULL" else 0)


def test_full_form_has_five_draws_of_everything_that_is_sized(fleeting):
    todo = fleeting.jobs(fleeting.FULL)
    for day in ("weekday", "weekend"):
        for method in fleeting.METHODS:
            at_1 = [
                job
                for job in todo
                if (job.day, job.method, job.epsilon, job.place, job.draw, job.form)
                == (day, method, 1.0, "town", 0, "sound")
            ]
            assert len(at_1) == 5
    for place, draw in fleeting.FULL.places:
        assert sum(job.method == "O5" and (job.place, job.draw) == (place, draw) for job in todo) == 5


def test_relative_errors_have_signs(o5):
    run = o5[0].but(shuttles=150.0, true_shuttles=100, wait=90.0, true_wait=180.0, idle=5.0, true_idle=4.0)
    assert (run.more_shuttles, run.more_wait, run.more_idle) == (0.5, -0.5, 0.25)


def test_means_leave_out_what_is_not_known(fleeting, o5):
    three = [o5[0].but(wait=wait) for wait in (100.0, math.nan, 140.0)]
    assert fleeting.mean_of(three, "wait")[0] == 120
    assert np.isnan(fleeting.mean_of(three[1:2], "wait")).all()
    assert fleeting.mean_of(three[:1], "wait")[0] == 100


def fleets_made_up(fleeting, run, *, o5=1.15, laplace=2.5):
    """Make up fleets of every method on both days; the true one has 100 shuttles."""
    runs = []
    for day in ("weekday", "weekend"):
        for method in (fleeting.EXACT, *fleeting.METHODS):
            ratio = {"O5": o5, fleeting.LAPLACE: laplace}.get(method, 1.3)
            for number in range(2):
                figures = {"shuttles": 100 * ratio + number, "true_shuttles": 100, "wait": 140.0, "true_wait": 135.0}
                runs.append(run.but(day=day, method=method, run=number, **figures))
    runs += [run.but(method="O5", epsilon=0.1, shuttles=98.0, true_shuttles=100, wait=150.0, true_wait=135.0)]
    runs += [run.but(method="H5", epsilon=0.01, expansions=0, shuttles=math.nan, wait=math.nan)]
    return fleeting.Fleets.of(runs, replace(fleeting.FULL, epsilons=(1.0, 0.1)))


def test_verdicts_follow_the_fleets(fleeting, text, o5):
    near = {line.what: line.verdict for line in text.quoted_fleets(fleets_made_up(fleeting, o5[0]))}
    assert near["relative error in shuttles (wait, idle) of O5, weekday, epsilon 1"] == "agrees"
    assert near["relative error in shuttles (wait, idle) of Laplace, weekday, epsilon 1"] == "agrees"
    assert near["relative error in shuttles (wait, idle) of Laplace, weekend, epsilon 1"].startswith("differs")
    assert near["O5 has the smallest relative error in shuttles, weekday"] == "agrees"
    assert near["all mechanisms preserve waits with great accuracy, weekday"].startswith("not comparable")
    far = {line.what: line.verdict for line in text.quoted_fleets(fleets_made_up(fleeting, o5[0], o5=1.6))}
    assert far["relative error in shuttles (wait, idle) of O5, weekday, epsilon 1"].startswith("differs")
    assert far["O5 has the smallest relative error in shuttles, weekday"].startswith("differs")


def test_findings_say_whether_o5_is_within_a_fifth(fleeting, text, o5):
    assert "all within 20%" in text.fleet_findings(fleets_made_up(fleeting, o5[0]))[0]
    assert "not all within 20%" in text.fleet_findings(fleets_made_up(fleeting, o5[0], o5=1.4))[0]


def test_fleets_and_waits_stand_together_in_every_table(fleeting, o5):
    tables = fleeting.tables_of(fleets_made_up(fleeting, o5[0]))
    assert set(tables) == {"table1", "fleets", "weekdays", "left-out"}
    for name in ("table1", "fleets", "weekdays"):
        assert len({tuple(row) for row in tables[name]}) == 1
        assert {"shuttles", "wait"} <= set(tables[name][0])
    printed = {row["mechanism"]: row["shuttles off, printed"] for row in tables["table1"] if row["day"] == "weekday"}
    assert (printed["O5"], printed["H3"], printed["Laplace"]) == (0.158, 1.394, 1.518)
