# SPDX-License-Identifier: Apache-2.0
"""Counts of riders' trips are corrected for the trips that the bound drops."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.refusals import refusal

import dunnage as dn
from dunnage.errors import CheckFailed, ParameterError
from dunnage.mechanisms import counts as mechanisms
from dunnage.mechanisms.counts import kept_share, true_counts
from dunnage.proving.counts import examine_correction
from dunnage.publishing import mechanism_of
from dunnage.release.kinds.counts import correction_words
from dunnage.showing.text import usefulness_lines
from dunnage.usefulness import level_errors, predict_usefulness

NUM_STOPS, NUM_ZONES = 12, 3
CELLS = {"name": "constrained-counts", "epsilon": 1, "features": "O3", "budget_shares": "cells"}


def rider_policy(folder: Path, mechanism: dict[str, Any], *, expect: Any = None, **bound: Any) -> dn.Policy:
    """Make a policy for two days of riders' trips between zones."""
    stops = "".join(f"s{i},z{i % NUM_ZONES}\n" for i in range(NUM_STOPS))
    (folder / "stops.csv").write_text(f"stop,zone\n{stops}")
    stop = {"role": "quasi-identifier", "kind": "stop"}
    time = {"role": "quasi-identifier", "kind": "time", "window_minutes": 360, "domain": ["00:00", "24:00"]}
    document: dict[str, Any] = {
        "dataset": "riders",
        "protects": "rider",
        "contribution": {"person": "card", "per": "period", **bound},
        "trip": {"origin": "from", "destination": "to", "time": "at", "level": "zone"},
        "attributes": {
            "card": {"role": "identifier"},
            "from": stop,
            "to": stop,
            "at": {**time, "dates": ["2026-11-02", "2026-11-03"]},
        },
        "city": {"stops": "stops.csv"},
        "mechanism": mechanism,
        **({} if expect is None else {"expect": expect}),
    }
    return dn.Policy.from_dict(document, path=folder / "policy.toml")


def rides(num_riders: int, seed: int, spread: float = 1.2, mean: float = 6.0) -> pa.Table:
    """Make trips of which a few riders make most."""
    draw = np.random.default_rng(seed)
    rates = draw.lognormal(0, spread, num_riders)
    riders = np.repeat(np.arange(num_riders), draw.poisson(rates * mean / rates.mean()))
    num = len(riders)
    ends = draw.choice(NUM_STOPS, (2, num), p=np.arange(1, NUM_STOPS + 1) / (NUM_STOPS * (NUM_STOPS + 1) / 2))
    days, hours = draw.integers(2, 4, num), draw.integers(0, 24, num)
    return pa.table(
        {
            "card": [f"c{rider}" for rider in riders],
            "from": [f"s{stop}" for stop in ends[0]],
            "to": [f"s{stop}" for stop in ends[1]],
            "at": [f"2026-11-{day:02d}T{hour:02d}:00" for day, hour in zip(days, hours, strict=True)],
        }
    )


def test_one_rider_changes_both_sums_by_no_more_than_the_stated_number(tmp_path, monkeypatch):
    """Without noise the two sums are what the proof says; with one rider more they change by at most total_max."""
    sums: list[int] = []
    real = mechanisms.kept_share
    monkeypatch.setattr(mechanisms, "kept_share", lambda kept, dropped, *more: sums.extend((kept, dropped)))
    monkeypatch.setattr(mechanisms.DiscreteLaplace, "draw", lambda self, noise, size: np.zeros(size, dtype=np.int64))
    assert real(0, 0, Fraction(1), Fraction(1)) is None
    for seed, (per, most, total) in enumerate([("period", 3, 8), ("period", 1, 2), ("day", 2, 7), ("day", 1, 50)]):
        policy = rider_policy(tmp_path, CELLS, per=per, max=most, total_max=total)
        table, changes = rides(9, seed), []
        cards = np.array(table["card"].to_pylist())
        days = np.array([when[:10] for when in table["at"].to_pylist()])
        for without in [None, *np.unique(cards)]:
            data = dn.Dataset.from_table(table.filter(pa.array(cards != without)), policy)
            made = mechanism_of(policy)
            made.draw_table(data, made.prepare(data), dn.Noise())
            groups = cards if per == "period" else np.char.add(cards, days)
            kept = dropped = 0
            for card in np.unique(cards[cards != without]):
                own = np.unique(groups[cards == card], return_counts=True)[1]
                kept += int(np.minimum(own, most).sum())
                dropped += min(int(np.maximum(own - most, 0).sum()), total - most * (2 if per == "day" else 1))
            assert sums[-2:] == [kept, dropped]
            changes.append(abs(sums[-2] - sums[0]) + abs(sums[-1] - sums[1]))
        assert max(changes) <= total
        sums.clear()


def test_all_outputs_of_a_tiny_release_keep_epsilon():
    verdict = examine_correction(mechanisms.NoisyCounts(epsilon=24), long=False)
    assert not verdict.problems
    assert 12 < float(verdict.measured) <= 24


def test_counts_are_divided_by_the_kept_share(tmp_path):
    """With hardly any noise the share is that of the rows, and windows keep their sums to the next whole number."""
    policy = rider_policy(tmp_path, {**CELLS, "epsilon": 600}, max=2, total_max=30)
    data = dn.Dataset.from_table(rides(3000, 1), policy)
    sizes = np.unique(data.persons, return_counts=True)[1]
    release, key = mechanism_of(policy).release(data, ledger=dn.Ledger(":memory:"), noise=dn.Noise())
    stated = release.certificate.counts.correction
    assert stated is not None
    assert stated.share is not None
    kept, dropped = int(np.minimum(sizes, 2).sum()), int(np.minimum(np.maximum(sizes - 2, 0), 28).sum())
    assert max(abs(stated.kept - kept), abs(stated.dropped - dropped)) <= 30  # the scale of their noise is 1
    assert stated.share == pytest.approx(kept / (kept + dropped), rel=0.01)
    assert key.facts["trips_dropped"] == np.maximum(sizes - 2, 0).sum()
    assert abs(release.certificate.counts.trips - kept / stated.share) <= 5
    by_window = dict.fromkeys(range(4), 0)
    for window, count in zip(release.data["window"].to_pylist(), release.data["count"].to_pylist(), strict=True):
        by_window[int(window[:2]) // 6] += count
    hours = np.array([int(when[11:13]) for when in rides(3000, 1)["at"].to_pylist()])
    true = np.bincount(hours // 6)
    assert np.abs(np.array(list(by_window.values())) / true - (kept + dropped) / sizes.sum()).max() < 0.1
    assert len(correction_words(release.certificate)) == 2
    # Nothing is known where noise drowns the sums; then counts stay as they are.
    assert kept_share(10, 90, Fraction(10), Fraction(5)) is None
    assert kept_share(1000, -30, Fraction(10), Fraction(5)) == 1.0
    assert kept_share(1000, 9000, Fraction(10), Fraction(5)) == float(f"{1 / 6:.4g}")


def test_correcting_halves_the_errors_of_sums(tmp_path):
    table, errors = rides(4000, 2), {}
    for total in (None, 60):
        bound = {"max": 3, **({} if total is None else {"total_max": total})}
        data = dn.Dataset.from_table(table, rider_policy(tmp_path, CELLS, **bound))
        made, truth = mechanism_of(data.policy), true_counts(data)
        tables = [made.draw_table(data, made.prepare(data), dn.Noise(seed=seed)) for seed in range(3)]
        levels = [("origin_zone", "destination_zone"), ("origin_zone",)]
        errors[total] = np.mean([level_errors(truth, drawn, levels) for drawn in tables], axis=0)
    assert (errors[60] * 2 < errors[None]).all(), errors


def test_altered_corrections_and_bounds_that_leave_nothing_to_correct_are_refused(tmp_path):
    policy = rider_policy(tmp_path, CELLS, max=2, total_max=20)
    data = dn.Dataset.from_table(rides(3000, 3), policy)
    dn.publish(data, out=tmp_path / "out", ledger=tmp_path / "ledger.sqlite")
    assert dn.verify(tmp_path / "out").problems == []
    release = dn.Release.read(tmp_path / "out")
    measures = release.certificate.counts
    bound, stated = measures.contribution, measures.correction
    assert bound is not None
    assert stated is not None
    for name, value in {"share": 0.9, "kept": 5, "scale": 1, "epsilon": 0.06, "total_max": 30, "law": "round"}.items():
        assert getattr(stated, name) != value
        correction = stated.model_copy(update={name: value})
        altered = bound.model_copy(update={"correction": correction})
        certificate = release.certificate.model_copy(
            update={"measures": measures.model_copy(update={"contribution": altered})}
        )
        with pytest.raises(CheckFailed):
            list(mechanism_of(policy).recount(replace(release, certificate=certificate), policy.schema))
    for bound in ({"max": 5, "total_max": 5}, {"max": 3, "per": "day", "total_max": 6}):
        narrow = rider_policy(tmp_path, CELLS, **bound)
        refusal(ParameterError, mechanism_of(narrow).prepare, dn.Dataset.from_table(rides(5, 1), narrow))


def test_the_best_bound_is_predicted_from_public_facts(tmp_path):
    """More trips for each rider need a larger bound; a correction allows a smaller one."""
    best = {}
    for riders, total in ((7500, None), (1250, None), (1250, 50)):
        bound = {"max": 4, **({} if total is None else {"total_max": total})}
        policy = rider_policy(tmp_path, CELLS, expect={"trips": 10_000, "riders": riders}, **bound)
        predicted = predict_usefulness(policy, mechanism_of(policy), bounds=True)
        assert predicted is not None
        sums = [(item.levels[-1].error, item.max) for item in predicted.bounds]
        best[riders, total] = min(sums)
        assert any("Best" in line for line in usefulness_lines(predicted))
    assert best[7500, None][1] < best[1250, None][1]
    assert best[1250, 50][1] <= best[1250, None][1]
    assert best[1250, 50][0] < best[1250, None][0]
