# SPDX-License-Identifier: Apache-2.0
"""Cuts of one or more attributes against exhaustive search over all sets of cuts, and the bounds against both."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter, defaultdict
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from tests.builders import a_policy

import dunnage as dn
from dunnage.mechanisms import partition as cuts
from dunnage.mechanisms.partition import CellBounds, Partition, Points, descend, local_optima, recut, uncut
from dunnage.text import percent_at_most

TOLERANCE = 1e-9
NAMES = ("weight", "volume", "height", "length")


@dataclass(frozen=True)
class Case:
    """A tiny problem; numbers are decimals or doubles, read by their decimal text."""

    rows: tuple[tuple[float, ...], ...]
    strata: tuple[str, ...]
    lower: Decimal
    upper: Decimal
    step: Decimal
    k: int
    alpha: Fraction
    importance: tuple[Fraction, ...]
    bounds: str

    @property
    def names(self):
        return NAMES[: len(self.importance)]

    def ends(self, value):
        """Give the smallest interval a value may be released as."""
        if self.bounds == "class":
            return value, value
        lower, step = Fraction(self.lower), Fraction(self.step)
        steps = (Fraction(repr(value)) - lower) / step
        return tuple(float(lower + end(steps) * step) for end in (math.floor, math.ceil))

    def data(self):
        domain = {"domain": [self.lower, self.upper], "resolution": self.step}
        attribute = {"role": "quasi-identifier", "kind": "numeric", **domain}
        attributes = {**dict.fromkeys(self.names, attribute), "place": {"role": "public"}}
        columns = {name: [row[i] for row in self.rows] for i, name in enumerate(self.names)}
        policy = a_policy({"name": "partition", "k": 2}, attributes, small="suppress")
        return dn.Dataset.from_table(pa.table({**columns, "place": list(self.strata)}), policy)

    def mechanism(self, **more):
        importance = dict(zip(self.names, self.importance, strict=True))
        return Partition(k=self.k, alpha=self.alpha, importance=importance, bounds=self.bounds, **more)


def least_loss(case):
    members = defaultdict(list)
    for row, stratum in zip(case.rows, case.strata, strict=True):
        members[stratum].append([(value, *case.ends(value)) for value in row])
    return sum(min(map_loss(case, rows, every) for every in all_cuts(rows)) for rows in members.values())


def all_cuts(rows):
    """Every set of cuts of every attribute: for each the values at which an interval begins."""
    choices = []
    for column in zip(*rows, strict=True):
        values = sorted({value for value, _, _ in column})[1:]
        subsets = [itertools.combinations(values, num) for num in range(len(values) + 1)]
        choices.append(list(itertools.chain.from_iterable(subsets)))
    return itertools.product(*choices)


def map_loss(case, rows, chosen):
    """Eq. 7: classes are the cells; each pays for its own extremes, or for suppression."""
    classes = defaultdict(list)
    for row in rows:
        classes[tuple(sum(v >= c for c in begins) for (v, _, _), begins in zip(row, chosen, strict=True))].append(row)
    return sum(class_loss(case, members) for members in classes.values())


def class_loss(case, members):
    if len(members) < case.k:
        return len(members) * float(case.alpha * sum(case.importance))
    columns = zip(case.importance, zip(*members, strict=True), strict=True)
    widths = (
        float(weight) * (max(upper for _, _, upper in column) - min(lower for _, lower, _ in column))
        for weight, column in columns
    )
    return len(members) * sum(widths) / float(case.upper - case.lower)


def random_case(generator):
    """Draw a tiny problem with ties, decimals or awkward doubles, and up to three attributes."""
    num = generator.choice([1, 1, 1, 2, 2, 3])
    step = Decimal(generator.choice(["0.01", "0.05", "0.1", "0.5", "1", "2.5"]))
    lower = Decimal(generator.choice(["0", "-1", "2.5", "-0.3", "100"]))
    upper = lower + step * generator.randint(1, 20)
    unit = generator.choice([step, step / 2, Decimal("0.01")])
    most = int((upper - lower) / unit)
    spread = min(most, generator.choice({1: [4, most], 2: [2, 4, 6], 3: [2, 3]}[num]))
    size = generator.randint(2, {1: 9, 2: 8, 3: 6}[num])
    rows = [[float(lower + unit * generator.randint(most - spread, most)) for _ in range(num)] for _ in range(size)]
    if num == 1 and generator.random() < 0.2:  # doubles that no short decimal names
        rows = [[min(max(row[0] * generator.uniform(0.9, 1.1), float(lower)), float(upper))] for row in rows]
        rows += generator.choices(rows, k=min(2, 9 - size))
    return Case(
        rows=tuple(map(tuple, rows)),
        strata=tuple(generator.choices("abc"[: generator.randint(1, 3)], k=len(rows))),
        lower=lower,
        upper=upper,
        step=step,
        k=generator.randint(2, 4),
        alpha=round(Fraction(math.exp(generator.uniform(math.log(0.01), math.log(3)))), 2),
        importance=tuple(Fraction(generator.choice(["1", "1", "1/3", "0.5", "100"])) for _ in range(num)),
        bounds=generator.choice(["class", "grid"]),
    )


def check_case(case):
    """Publish and compare with the exhaustive search; check every constraint; return what happened."""
    best = least_loss(case)
    try:
        mechanism, data = case.mechanism(statistic="multiset"), case.data()
        release, key = mechanism.release(data, ledger=dn.Ledger(":memory:"), noise=dn.Noise())
    except dn.Refusal:
        everything = float(case.alpha * sum(case.importance) * len(case.rows))
        assert math.isclose(best, everything, abs_tol=TOLERANCE)
        return "refused"
    assert mechanism.search(data).proven
    measures = release.certificate.plain()["measures"]
    loss = measures["loss"]
    assert math.isclose(loss["sum"], best, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    assert math.isclose(loss["total"], best / len(case.rows) / float(sum(case.importance)), abs_tol=TOLERANCE)
    check_release(case, release, key, measures)
    return "whole" if len(release) == len(case.rows) else "suppressed"


def check_release(case, release, key, measures):
    """Classes look different, have k rows each, and show exactly the ends of their true rows."""
    rows, classes, keys = release.data.to_pylist(), release.classes.to_pylist(), key.table.to_pylist()
    ends = [f"{name}_{end}" for name in case.names for end in ("lower", "upper")]
    looks = Counter(tuple(row[name] for name in ("place", *ends)) for row in rows)
    assert measures["k_reached"] == min(looks.values()) >= case.k
    assert len(looks) == len(classes) == len({row["class_id"] for row in rows}) == measures["classes"]
    # Rows are numbered, each is of another source, and equal sources share their fate.
    assert [item["row"] for item in keys] == [row["row"] for row in rows] == list(range(len(rows)))
    class_of = {item["source_row"] - 1: item["class_id"] for item in keys}
    assert len(class_of) == len(rows)
    fates = defaultdict(set)
    for source, record in enumerate(zip(case.strata, case.rows, strict=True)):
        fates[record].add(class_of.get(source, -1))
    assert all(len(fate) == 1 for fate in fates.values())
    true = defaultdict(list)
    for row, item in zip(rows, keys, strict=True):
        assert (row["class_id"], row["place"]) == (item["class_id"], case.strata[item["source_row"] - 1])
        true[item["class_id"]].append(item["source_row"] - 1)
    for item in classes:
        members = [case.rows[source] for source in true[item["class_id"]]]
        assert item["size"] == len(members)
        for name, column in zip(case.names, zip(*members, strict=True), strict=True):
            assert item[f"{name}_lower"] == min(case.ends(v)[0] for v in column)
            assert item[f"{name}_upper"] == max(case.ends(v)[1] for v in column)
            mean = math.fsum(column) / len(column)
            assert math.isclose(item[f"{name}_mean"], mean, rel_tol=1e-12, abs_tol=1e-12)
    if len(case.names) == 1:  # classes are numbered by stratum and value
        order = [
            (case.strata[true[number][0]], min(case.rows[s] for s in true[number])) for number in range(len(classes))
        ]
        assert order == sorted(order)
    told = [(m["class_id"], *(m[name] for name in case.names)) for m in release.members.to_pylist()]
    assert told == sorted((number, *case.rows[s]) for number, sources in true.items() for s in sources)


def test_against_exhaustive_search(thorough):
    generator, num = random.Random(0), 320 if thorough else 120
    outcomes = Counter(check_case(random_case(generator)) for _ in range(num))
    assert min(outcomes[name] for name in ("whole", "suppressed", "refused")) > num / 16


def drawn(num, num_attributes, k, *, seed=0, decimals=6, price=None, law="uniform", compiled=False):
    generator = np.random.default_rng(seed)
    values = generator.uniform(0, 1, (num, num_attributes))
    if law == "related":
        values = np.clip(values[:, :1] + generator.normal(0, 0.05, values.shape), 0, 1)
    values = np.round(values, decimals)
    price = float(num_attributes if price is None else price)
    return Points.of(values, values, values, factor=np.ones(num_attributes), k=k, price=price, compiled=compiled)[0]


def cost(points, chosen):
    return CellBounds.of(points, chosen).cost(points)


def random_cuts(points, generator):
    return tuple(
        np.array([0, *sorted(generator.sample(range(1, num), generator.randint(0, num - 1)))], dtype=np.int64)
        for num in points.num_pieces
    )


def test_one_attribute_is_cut_as_well_as_the_others_allow():
    """The program over one attribute against all subsets of its cuts, from random cuts of the others."""
    generator = random.Random(3)
    for num_attributes, decimals, seed in itertools.product((2, 3), (1, 6), range(6)):
        points = drawn(9, num_attributes, 2 + seed % 3, seed=seed, decimals=decimals, price=[None, 0.3][seed % 2])
        start = random_cuts(points, generator)
        for i in range(num_attributes):
            found = cost(points, (*start[:i], recut(points, start, i), *start[i + 1 :]))
            pieces = range(1, points.num_pieces[i])
            every = itertools.chain.from_iterable(itertools.combinations(pieces, num) for num in range(len(pieces) + 1))
            least = min(cost(points, (*start[:i], np.array([0, *chosen]), *start[i + 1 :])) for chosen in every)
            assert math.isclose(found, least, rel_tol=TOLERANCE, abs_tol=TOLERANCE)


def test_descent_is_monotone_and_branching_no_worse():
    generator = random.Random(4)
    for num_attributes, law, seed in itertools.product((2, 4), ("uniform", "related"), range(4)):
        points = drawn(14, num_attributes, 3, seed=seed, law=law, price=[None, 0.4][seed % 2], compiled=True)
        attributes = list(range(num_attributes))
        ends = []
        for start in (uncut(points), random_cuts(points, generator), random_cuts(points, generator)):
            chosen, loss = descend(points, start, attributes)
            assert loss <= cost(points, start)
            assert math.isclose(loss, cost(points, chosen), rel_tol=TOLERANCE)
            ends.append(loss)
        _, best = local_optima(points)[0]
        assert best <= ends[0] * (1 + TOLERANCE)
        found = cuts.search_cuts(points, max_steps=10**5)
        assert found.bound <= found.loss <= best
        assert math.isclose(found.loss, cost(points, found.cuts), rel_tol=TOLERANCE)
    points = drawn(40, 2, 4, law="related")  # no start is worse than an attribute alone
    nothing = np.zeros(1, dtype=np.int64)
    alone = [(recut(points, uncut(points), 0), nothing), (nothing, recut(points, uncut(points), 1))]
    assert local_optima(points)[0][1] <= min(cost(points, chosen) for chosen in alone)


def test_a_short_reach_never_loses_the_present_cuts(monkeypatch):
    """Beyond the limit of steps only short intervals are tried, and still nothing gets worse."""
    points = drawn(60, 2, 3)
    start = tuple(np.arange(0, num, num // 4) for num in points.num_pieces)
    exact = cost(points, (recut(points, start, 0), start[1]))
    monkeypatch.setattr(cuts, "MAX_PROGRAM_STEPS", 1)
    short = cost(points, (recut(points, start, 0), start[1]))
    assert exact <= short <= cost(points, start)
    assert local_optima(points)[0][1] <= cost(points, uncut(points))


def test_very_many_values_are_taken_together_by_quantiles(monkeypatch):
    monkeypatch.setattr(cuts, "MAX_PIECES", 8)
    values = np.concatenate([np.linspace(0, 0.01, 50), np.linspace(0.5, 1, 50)])
    costs = {"factor": np.ones(1), "k": 2, "price": 1.0, "compiled": False}
    piece = Points.of(values[:, None], values[:, None], values[:, None], **costs)[0].piece[:, 0]
    assert (np.diff(piece) >= 0).all()
    assert set(piece.tolist()) == set(range(8))
    assert np.bincount(piece).max() <= 14
    few = np.array([[3.0], [1.0], [3.0]])
    points, point_of = Points.of(few, few, few, **costs)
    assert points.piece[point_of, 0].tolist() == [1, 0, 1]


def exhaustive(points):
    choices = []
    for num in points.num_pieces:
        subsets = itertools.chain.from_iterable(itertools.combinations(range(1, num), some) for some in range(num))
        choices.append([np.array([0, *subset], dtype=np.int64) for subset in subsets])
    return min(cost(points, chosen) for chosen in itertools.product(*choices))


def test_bounds_hold_however_early_the_search_stops():
    for num, num_attributes in ((6, 2), (4, 3)):
        proven = 0
        for seed in range(10):
            points = drawn(num, num_attributes, 2, seed=seed, price=[None, 0.5][seed % 2])
            least = exhaustive(points)
            for max_steps in (0, 3000, 10_000, 10**7):
                found = cuts.search_cuts(points, max_steps=max_steps)
                assert found.bound <= least * (1 + TOLERANCE)
                assert found.loss >= least * (1 - TOLERANCE)
                assert not found.proven or math.isclose(found.loss, least, rel_tol=TOLERANCE)
                proven += found.proven
            assert found.proven
            assert cuts.neighbour_bound(points) <= least * (1 + TOLERANCE)
        assert proven < 40


def narrowest(points, t):
    """The narrowest box around a point with k records, over all subsets."""
    best = points.price
    for num in range(points.k):
        for others in itertools.combinations([i for i in range(len(points)) if i != t], num):
            rows = [t, *others]
            if points.counts[rows].sum() >= points.k:
                extent = points.upper[rows].max(axis=0) - points.lower[rows].min(axis=0)
                best = min(best, float(extent @ points.factor))
    return best


def test_narrowest_boxes(monkeypatch):
    for seed, k, decimals in itertools.product(range(4), (2, 3, 4), (1, 6)):
        points = drawn(10, 3, k, seed=seed, decimals=decimals, price=1.2)
        expected = sum(points.counts[t] * narrowest(points, t) for t in range(len(points)))
        assert math.isclose(cuts.neighbour_bound(points), expected, rel_tol=TOLERANCE)
    points = drawn(60, 2, 7)
    full = cuts.neighbour_bound(points)
    for name, value in (("NUM_NEIGHBOURS", 9), ("MAX_BOX_STEPS", 600)):  # few of them only lower the bound
        monkeypatch.setattr(cuts, name, value)
        assert 0 < cuts.neighbour_bound(points) <= full
    monkeypatch.setattr(cuts, "MAX_NEIGHBOURS", 10)
    assert cuts.neighbour_bound(points) == 0.0


def test_two_attributes_of_fifty_records_are_proven():
    for seed in range(3):
        found = cuts.search_cuts(drawn(50, 2, 5, seed=seed, compiled=True))
        assert found.proven
        assert math.isclose(found.bound, found.loss, rel_tol=2 * TOLERANCE)


def test_compiled_and_plain_searches_agree():
    for num_attributes, seed in itertools.product((2, 3), range(2)):
        found = [
            cuts.search_cuts(drawn(13, num_attributes, 3, seed=seed, compiled=compiled), max_steps=10**5)
            for compiled in (False, True)
        ]
        assert found[0].loss == pytest.approx(found[1].loss, rel=1e-12)
        assert found[0].bound == pytest.approx(found[1].bound, rel=1e-12)
        assert all(np.array_equal(a, b) for a, b in zip(found[0].cuts, found[1].cuts, strict=True))


def parcels(num, names=NAMES[:2], seed=0, **mechanism):
    generator = np.random.default_rng(seed)
    attribute = {"role": "quasi-identifier", "kind": "numeric", "domain": [0, 100], "resolution": Decimal("0.5")}
    attributes = {**dict.fromkeys(names, attribute), "place": {"role": "public"}, "content": {"role": "sensitive"}}
    columns = {name: np.round(generator.uniform(0, 100, num), 1) for name in names}
    columns |= {"place": generator.integers(0, 2, num), "content": generator.integers(0, 3, num)}
    return dn.load(pa.table(columns), a_policy({"name": "partition", "k": 5, **mechanism}, attributes))


def test_vectors_go_through_publish_and_verify(tmp_path, monkeypatch):
    monkeypatch.setattr(cuts, "MAX_STEPS", 10**5)
    for number, (names, bounds) in enumerate(itertools.product((NAMES[:2], NAMES), ("class", "grid"))):
        data = parcels(80, names, statistic="multiset", bounds=bounds, importance={"weight": Decimal("2.5")})
        release, key = dn.publish(data, ledger=dn.Ledger(":memory:"), out=tmp_path / f"{number}")
        assert dn.verify(tmp_path / f"{number}").problems == []
        body = release.certificate.plain()
        assert body["mechanism"]["importance"] == {name: 2.5 if name == "weight" else 1 for name in names}
        assert release.members.column_names == ["class_id", *names]
        loss = body["measures"]["loss"]
        expected = sum((2.5 if name == "weight" else 1) * loss["attributes"][name] for name in names)
        assert math.isclose(loss["sum"], 80 * expected, rel_tol=TOLERANCE)
        rows = release.data.to_pylist()
        for row, source in zip(rows, key.table.column("source_row").to_pylist(), strict=True):
            for name in names:
                assert row[f"{name}_lower"] <= data.numbers(name)[source - 1] <= row[f"{name}_upper"]


def test_classes_do_not_depend_on_the_order_of_the_input():
    data, found = parcels(60, k=4, statistic="multiset"), set()
    for seed in range(4):
        order = pa.array(np.random.default_rng(seed).permutation(60))
        table = pa.table({a.name: data.column(a.name).take(order) for a in data.schema})
        release, _ = dn.publish(dn.Dataset.from_table(table, data.policy), ledger=":memory:")
        found.add((str(release.classes.to_pylist()), str(release.members.to_pylist())))
    assert len(found) == 1


def test_an_attribute_that_counts_more_is_told_more_finely():
    data = parcels(60)
    even, skewed = (Partition(k=5, importance=importance).classes(data).losses for importance in ({}, {"volume": 1000}))
    assert skewed[1] < even[1]
    assert skewed[0] > even[0]
    table = pa.table({a.name: data.column(a.name) for a in data.schema})
    constant = table.set_column(1, "volume", pa.array([7.0] * 60))  # one value changes nothing
    both = Partition(k=3).search(dn.Dataset.from_table(constant, data.policy))
    alone = a_policy(data.policy.mechanism, {**data.policy.document["attributes"], "volume": {"role": "drop"}})
    one = Partition(k=3).search(dn.Dataset.from_table(constant, alone))
    assert both.proven
    assert both.loss == pytest.approx(one.loss, rel=TOLERANCE)


def test_the_owner_is_told_how_good_the_cuts_are(caplog, monkeypatch):
    caplog.set_level("INFO", logger="dunnage")
    found = Partition(k=5).search(parcels(60))
    assert found.proven
    assert found.gap == pytest.approx(0, abs=1e-8)
    assert len(caplog.records) == 1
    monkeypatch.setattr(cuts, "MAX_STEPS", 10**5)
    far = Partition(k=5).search(parcels(400))
    assert not far.proven
    assert 0 < far.bound < far.loss == far.classes.loss_sum
    assert percent_at_most(far.gap) in caplog.text
