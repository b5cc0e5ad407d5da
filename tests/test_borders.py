# SPDX-License-Identifier: Apache-2.0
"""Borders that pack well, against all partitions and all packings of tiny cases."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pyarrow as pa
import pytest
from tests.builders import a_policy

import dunnage as dn
from dunnage.errors import ParameterError, PolicyError, Refusal
from dunnage.kernels.bins.scalar import pack_bins
from dunnage.mechanisms import partition as borders
from dunnage.mechanisms.partition import Loads, Partition, best_borders, count_bins
from dunnage.samples import draw_weights, package_setting


def policy(domain=(0, 1000), public=(), resolution=None, **mechanism):
    weight = {"role": "quasi-identifier", "kind": "numeric", "domain": list(domain), "unit": "kg"}
    weight |= {} if resolution is None else {"resolution": resolution}
    attributes = {"weight": weight, **{name: {"role": "public"} for name in public}}
    return a_policy({"name": "partition", "k": 2, **mechanism}, attributes, small="suppress")


def dataset(weights, public=None, **rules):
    public = public or {}
    table = pa.table({"weight": pa.array(weights, pa.float64()), **public})
    return dn.Dataset.from_table(table, policy(public=tuple(public), **rules))


def packed(tops, capacity):
    """Bins by the solver, one more for each record that does not fit."""
    whole = tops.astype(np.int64)
    fits = whole <= capacity
    return pack_bins(whole[fits], capacity, seconds=600).objective + int((~fits).sum())


def bins_of(classes, capacity):
    """Bins of what is kept, one more for each record that is suppressed."""
    kept = classes.of_row >= 0
    return packed(classes.generalised[0].upper[classes.of_row[kept]], capacity) + int((~kept).sum())


def all_partitions(counts, k):
    """Every way to cut runs into classes of k records, without suppression."""
    num = len(counts)
    for some in range(num):
        for chosen in itertools.combinations(range(1, num), some):
            parts = list(itertools.pairwise((0, *chosen, num)))
            if all(sum(counts[a:b]) >= k for a, b in parts):
                yield parts


def test_no_partition_without_suppression_packs_better():
    generator = random.Random(1)
    fewer = 0
    for _ in range(60):
        capacity, k = generator.choice([40, 50]), generator.randint(2, 4)
        weights = [float(generator.randint(12, 38)) for _ in range(generator.randint(6, 12))]
        data = dataset(weights)
        found = bins_of(Partition(k=k, goal="packing", capacity=capacity).classes(data), capacity)
        values, counts = np.unique(weights, return_counts=True)
        sizes = counts.tolist()
        least = min(
            packed(np.repeat(values[[b - 1 for _, b in parts]], [sum(sizes[a:b]) for a, b in parts]), capacity)
            for parts in all_partitions(sizes, k)
        )
        usual = bins_of(Partition(k=k).classes(data), capacity)
        assert found <= min(least, usual)
        fewer += found < usual
    assert fewer >= 3


def test_settings_of_the_paper_need_fewer_bins():
    """Setting I at k = 10 falls from about 1.45 to about 1.35 times the true optimum, and none rises."""
    for name in ("25-L-U", "50-L-U", "25-L-Un"):
        setting, generator = package_setting(name), np.random.default_rng(1)
        saved = 0
        for _ in range(8):
            data = dataset(draw_weights(setting, generator), domain=(setting.low, setting.high))
            usual = bins_of(Partition(k=10).classes(data), 500)
            found = bins_of(Partition(k=10, goal="packing", capacity=500).classes(data), 500)
            assert found <= usual
            saved += usual - found
        assert saved > 0, name


def loads(items, k, capacity, counts=None):
    items = np.array(items, dtype=np.int64)
    before = np.append(0, np.cumsum(np.ones(len(items), dtype=np.int64) if counts is None else counts))
    ends = items.astype(np.float64)
    return Loads(items=items, capacity=capacity, before=before, lower=ends, upper=ends, k=k, price=1e3)


def test_candidates_cannot_be_cut_in_two_and_miss_none():
    generator = random.Random(2)
    for _ in range(40):
        num, k = generator.randint(2, 9), generator.randint(2, 4)
        counts = np.array([generator.randint(1, 3) for _ in range(num)])
        problem = loads(range(1, num + 1), k, 10, counts)
        whole = {
            tuple(parts)
            for parts in all_partitions(counts.tolist(), k)
            if not any(sum(counts[a:c]) >= k and sum(counts[c:b]) >= k for a, b in parts for c in range(a + 1, b))
        }
        listed = borders.few_partitions(problem, len(whole))
        assert set(listed) == whole
        assert len(listed) == len(whole)
        assert borders.few_partitions(problem, len(whole) - 1) is None


def test_where_there_are_many_partitions_some_are_proposed(monkeypatch):
    """Proposals and moves come near the best of all partitions, and never behind the partition of least loss."""
    generator = np.random.default_rng(3)
    gained = []
    for _ in range(10):
        items = np.sort(generator.integers(125, 375, 25))
        problem = loads(items, 4, 500)
        start = tuple(itertools.pairwise([0, 4, 8, 12, 16, 20, 25]))
        best = problem.num_bins(best_borders(problem, start))
        with monkeypatch.context() as patch:
            patch.setattr(borders, "few_partitions", lambda loads, max_num: None)
            proposed = problem.num_bins(best_borders(problem, start))
        assert best <= proposed <= problem.num_bins(start)
        gained.append(proposed - best)
    assert sum(gained) <= 4


def test_effort_is_limited_and_the_least_loss_kept():
    problem = loads(range(1, 2001), 3, 4000)
    start = tuple((begin, min(begin + 3, 2000)) for begin in range(0, 1998, 3))
    assert problem.num_bins(best_borders(problem, start, max_packed=1)) <= problem.num_bins(start)
    problem = loads(range(1, 3001), 2, 5000, np.full(3000, 2))  # runs of k records: one partition of many classes
    assert borders.few_partitions(problem, 1) == [tuple((i, i + 1) for i in range(3000))]


def test_count_bins_against_the_solver():
    generator = np.random.default_rng(4)
    near = 0
    for _ in range(100):
        items = generator.integers(0, 60, generator.integers(1, 30))
        counted, best = count_bins(items, 100), pack_bins(items, 100, seconds=600).objective
        assert best <= counted
        near += counted - best
    assert near <= 5
    assert count_bins(np.zeros(0, dtype=np.int64), 100) == 0
    assert count_bins(np.zeros(3, dtype=np.int64), 100) == 1


def test_records_that_fit_no_bin_and_strata_travel_alone():
    problem = loads([1, 2, 11, 12], 2, 10)
    assert [problem.num_bins(parts) for parts in (((0, 2), (2, 4)), ((0, 2),), ((0, 4),))] == [3, 3, 4]
    weights = [100.0, 240.0, 260.0, 400.0] * 2 + [5.0]
    strata = dataset(weights, public={"place": list("aaaabbbbc")})
    for data, capacity, expected in (
        (dataset([1.0, 2.0, 11.0, 12.0]), 10, [0, 0, 1, 1]),
        (strata, 500, [0, 0, 1, 1, 2, 2, 3, 3, -1]),  # small strata are suppressed
        (dataset([1.0, 2.0, 3.0, 4.0]), "22/3", [0, 0, 1, 1]),  # a capacity that is no double
    ):
        mechanism = Partition(k=2, goal="packing", capacity=capacity)
        assert mechanism.describe()["capacity"] == capacity
        assert mechanism.classes(data).of_row.tolist() == expected
    with pytest.raises(Refusal):
        Partition(k=5, goal="packing", capacity=500).classes(strata)


def test_certificate_says_that_borders_were_chosen_for_packing(tmp_path):
    weights = draw_weights(package_setting("25-L-U"), np.random.default_rng(7))
    for bounds in ("class", "grid"):
        data = dataset(weights, resolution=25, goal="packing", capacity=500, bounds=bounds, k=5)
        release, _ = dn.publish(data, ledger=dn.Ledger(":memory:"), out=tmp_path / bounds)
        body = release.certificate.plain()
        assert dn.verify(tmp_path / bounds).problems == []
        assert (body["mechanism"]["goal"], body["mechanism"]["capacity"]) == ("packing", 500)
        assert any("500 kg" in line for line in body["in_clear"])
        assert "500 kg" in body["assumptions"]["class borders depend on data"]
        found = Partition(k=5, goal="packing", capacity=500, bounds=bounds).search(data)
        assert found.bound == pytest.approx(Partition(k=5, bounds=bounds).search(data).loss)
        assert found.loss >= found.bound
        assert found.proven == (found.loss == found.bound)
    weights = draw_weights(package_setting("50-L-U"), np.random.default_rng(8))
    tables = set()  # the same records in any order give the same borders
    for seed in range(3):
        data = dataset(np.random.default_rng(seed).permutation(weights), goal="packing", capacity=500, k=3)
        tables.add(str(dn.publish(data, ledger=":memory:").release.classes.to_pylist()))
    assert len(tables) == 1


def test_bad_parameters():
    for parameters in (
        {"goal": "packing"},
        {"capacity": 500},
        {"goal": "fewest"},
        *({"goal": "packing", "capacity": capacity} for capacity in (0, -5, "1e-400", float("nan"), "500kg")),
    ):
        with pytest.raises(ParameterError, match="capacity" if "capacity" in parameters else "goal"):
            Partition(k=2, **parameters)
    packing = {"goal": "packing", "capacity": 5}
    one = policy(**packing)
    attributes = {**one.document["attributes"], "volume": one.document["attributes"]["weight"]}
    for made in (policy(domain=(-1, 10), **packing), a_policy(one.mechanism, attributes)):
        with pytest.raises(PolicyError):  # it takes one attribute of at least nothing
            dn.promise(made)
