# SPDX-License-Identifier: Apache-2.0
"""Partition by one attribute against a quadratic program; tiny cases are searched through in test_cuts.py."""

from __future__ import annotations

import datetime
import itertools
import math
import random
import unicodedata
from collections import Counter
from decimal import Decimal
from fractions import Fraction

import numba
import numpy as np
import pyarrow as pa
import pytest
from scipy import stats
from tests.builders import a_policy

import dunnage as dn
from dunnage.arrays import kernel
from dunnage.errors import ParameterError, Refusal
from dunnage.mechanisms import partition as partition_module
from dunnage.mechanisms.classes import class_means
from dunnage.tables.finest import Finest

TOLERANCE = 1e-9


def policy(domain=(0, 100), *, resolution=None, public=(), small="suppress", **more):
    weight = {"role": "quasi-identifier", "kind": "numeric", "domain": list(domain), "unit": "kg"}
    weight |= {} if resolution is None else {"resolution": Decimal(resolution)}
    attributes = {"weight": weight, **{name: {"role": "public"} for name in public}, **more}
    return a_policy({"name": "partition", "k": 2}, attributes, small=small)


def dataset(weights, domain=(0, 100), *, public=None, **rules):
    """Make a dataset of weights and public columns."""
    public = public or {}
    table = pa.table({"weight": pa.array(weights, pa.float64()), **public})
    return dn.Dataset.from_table(table, policy(domain, public=tuple(public), **rules))


def publish(data, **parameters):
    return dn.Partition(**parameters).release(data, ledger=dn.Ledger(":memory:"), noise=dn.Noise())


def quadratic(values, k, price):
    """Least cost by trying every begin for every end: O(n^2), without any of the shortcuts."""
    distinct, counts = np.unique(values, return_counts=True)
    before = np.concatenate([[0], np.cumsum(counts)])
    best = np.zeros(len(distinct) + 1)
    for end in range(1, len(distinct) + 1):
        sizes = before[end] - before[:end]
        costs = np.where(sizes >= k, best[:end] + sizes * (distinct[end - 1] - distinct[:end]), np.inf)
        suppressed = best[end - 1] + price * counts[end - 1] if counts[end - 1] < k else np.inf
        best[end] = min(costs.min(), suppressed)
    return best[-1]


LAWS = {
    "uniform": lambda g, n: g.uniform(0, 100, n),
    "decimals": lambda g, n: np.round(g.uniform(0, 100, n), 1),
    "few values": lambda g, n: g.integers(0, 30, n).astype(float),
    "clusters": lambda g, n: np.clip(g.choice(g.uniform(0, 100, 12), n) + g.normal(0, 0.3, n), 0, 100),
    "clusters of one and a half k": lambda g, n: np.clip(np.arange(n) // 30 * 1.5 + g.uniform(0, 0.1, n), 0, 100),
    "skewed": lambda g, n: np.clip(g.exponential(5, n), 0, 100),
    "gaps that double": lambda g, n: np.sort(100 * 2.0 ** -g.uniform(0, 40, n)),
}


def test_quadratic_program_agrees():
    generator = np.random.default_rng(7)
    for law, size, k, alpha in itertools.product(LAWS, (300,), (2, 5, 20, 150), ("0.001", "0.03", "1")):
        values = LAWS[law](generator, size)
        loss = classes_of(values, k=k, alpha=alpha)[1]
        expected = quadratic(values, k, float(alpha) * 100) / 100
        assert math.isclose(loss, expected, rel_tol=TOLERANCE, abs_tol=TOLERANCE), (law, k, alpha)


def classes_of(values, *, public=None, **parameters):
    """Return classes and loss; nothing if every record would be suppressed."""
    try:
        classes = dn.Partition(**parameters).classes(dataset(values, public=public, resolution="0.5"))
    except Refusal:
        return None, float(Fraction(parameters["alpha"])) * len(values)
    return classes.of_row, classes.loss_sum


def test_compiled_and_plain_programs_agree(monkeypatch):
    generator, tried = np.random.default_rng(11), []
    for law, k, alpha, bounds in itertools.product(LAWS, (2, 30), ("0.01", "1"), ("class", "grid")):
        values, public = LAWS[law](generator, 700), {"place": generator.integers(0, 3, 700)}
        tried.append((values, {"public": public, "k": k, "alpha": alpha, "bounds": bounds}))
    found = []
    for threshold in (0, 10**9):
        monkeypatch.setattr(partition_module, "_COMPILE_FROM_RUNS", threshold)
        found.append([classes_of(values, **parameters) for values, parameters in tried])
    for compiled, plain in zip(*found, strict=True):
        assert np.array_equal(compiled[0], plain[0])
        assert compiled[1] == plain[1]


def test_compiles_where_no_cache_can_be_written(monkeypatch):
    def without_cache(*, cache=False, **_options):
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return lambda function: ("compiled without cache", function)

    monkeypatch.setattr(numba, "njit", without_cache)
    assert kernel(lambda number: number).compiled[0] == "compiled without cache"


def test_enormous_and_tiny_domains():
    generator = np.random.default_rng(3)
    for domain, unit in (((-8e307, 8e307), 1e15), ((0, 1e305), 1), ((0, 1e-300), 1e-300)):
        values = np.round(generator.uniform(0, 1, 300), 3) * unit
        release, _ = publish(dataset(values, domain), k=5, alpha=10**9)
        expected = quadratic(values / unit, 5, math.inf) / (domain[1] / unit - domain[0] / unit)
        assert math.isclose(release.certificate.plain()["measures"]["loss"]["sum"], expected, rel_tol=TOLERANCE)
    data = dataset([0.123456789, 0.2, 0.3, 5.0, 6.0], (0, 1e305), public={"place": list("aaaab")})
    classes = dn.Partition(k=2, alpha=10**9).classes(data)
    assert classes.of_row.tolist() == [0, 0, 1, 1, -1]
    assert classes.loss_sum == pytest.approx(10**9)


def refused(data, mechanism, error=Refusal):
    """Assert that a release is refused before anything is spent or drawn; return the message."""
    ledger, noise = dn.Ledger(":memory:"), dn.Noise()
    with pytest.raises(error) as caught:
        mechanism.release(data, ledger=ledger, noise=noise)
    assert noise.bytes_drawn == 0
    assert ledger.datasets() == []
    return str(caught.value)


def test_what_cannot_be_k_anonymous_is_refused():
    refused(dataset([1.0, 2.0]), dn.Partition(k=3))
    message = refused(dataset([1.0, 2.0, 3.0], public={"place": list("aab")}, small="refuse"), dn.Partition(k=2))
    assert "(place)" in message
    assert '"suppress"' in message
    for small in ("refuse", "suppress"):
        message = refused(dataset([1.0, 2.0, 3.0, 4.0], public={"place": list("aabb")}, small=small), dn.Partition(k=3))
        assert "(place)" in message
        assert "suppress" not in message  # it would not help
    assert "alpha" in refused(dataset([1.0, 50.0, 99.0]), dn.Partition(k=2, alpha="0.001"))
    assert "'wieght'" in refused(dataset([1.0, 2.0]), dn.Partition(k=2, importance={"wieght": 2}), ParameterError)
    assert "'weight'" in refused(dataset([1.0, 2.0]), dn.Partition(k=2, bounds="grid"), ParameterError)
    number = {"role": "quasi-identifier", "kind": "numeric", "domain": [0, 10]}
    category = {"role": "quasi-identifier", "kind": "category", "domain": ["x", "y"]}
    for attributes, says in (
        ({"colour": category}, "colour (category)"),
        ({"weight": number, "colour": category}, "weight (numeric), colour (category)"),
        ({"weight": {**number, "role": "public"}}, ""),
    ):
        columns = {"weight": [1.0, 2.0], "colour": ["x", "y"]}
        table = pa.table({name: columns[name] for name in attributes})
        data = dn.Dataset.from_table(table, a_policy({"name": "partition", "k": 2}, attributes))
        assert says in refused(data, dn.Partition(k=2), ParameterError)
        with pytest.raises(ParameterError):
            dn.Partition(k=2).promise(data.schema)


def test_bad_parameters():
    for parameters in (
        {},
        *({"k": k} for k in (1, True, 2.5, "5")),
        *({"k": 2, "alpha": alpha} for alpha in (0, -1, float("nan"), float("inf"), True, 10**400)),
        {"k": 2, "statistic": "median"},
        {"k": 2, "bounds": "tight"},
        *({"k": 2, "importance": table} for table in (3, "weight", {1: 1, "weight": 2})),
        *({"k": 2, "importance": {"weight": weight}} for weight in (0, -1, "1e-600", 10**10, "much")),
    ):
        with pytest.raises(ParameterError):
            dn.Partition(**parameters)
    with pytest.raises(TypeError):
        dn.Partition(5)


def test_importance_is_kept_exactly_and_cannot_be_changed():
    given = {"weight": Decimal("0.1"), "volume": "1/3"}
    mechanism = dn.Partition(k=2, importance=given)
    given["weight"] = 5
    assert mechanism.importance == (("volume", Fraction(1, 3)), ("weight", Fraction(1, 10)))
    assert mechanism.describe()["importance"] == {"volume": "1/3", "weight": 0.1}
    assert hash(mechanism) == hash(dn.Partition(**dict(mechanism)))
    assert mechanism == dn.Partition(k=2, importance={"volume": Fraction(1, 3), "weight": "0.1"})


def test_importance_of_one_attribute_multiplies_the_sum_alone(tmp_path):
    data = dataset([1.0, 2.0, 5.0, 9.0, 9.5])
    plain_release, _ = publish(data, k=2)
    publication = publish(data, k=2, importance={"weight": Decimal("2.5")})
    losses = [release.certificate.plain()["measures"]["loss"] for release in (plain_release, publication.release)]
    assert losses[1]["sum"] == pytest.approx(2.5 * losses[0]["sum"])
    assert losses[1]["total"] == pytest.approx(losses[0]["total"])
    assert losses[1]["attributes"] == losses[0]["attributes"]
    assert "importance" not in plain_release.certificate.plain()["mechanism"]
    assert publication.release.certificate.plain()["mechanism"]["importance"] == {"weight": 2.5}
    publication.write(tmp_path / "release")
    assert dn.verify(tmp_path / "release").problems == []
    described = dn.Partition(k=2, importance={"weight": 1}).promise(policy().schema).mechanism
    assert described == dn.Partition(k=2).describe()  # that one counts one is not worth a word
    for statistic, told in (("bounds", False), ("mean", True), ("multiset", True)):
        release, _ = publish(data, k=2, statistic=statistic)
        assert ("weight_mean" in release.data.column_names) is ("weight_mean" in release.classes.column_names) is told
        assert (release.members is not None) is (statistic == "multiset")
    found = dn.Partition(k=2, importance={"weight": 4}).search(data)
    assert found.proven
    assert found.loss == found.bound == found.classes.loss_sum
    assert found.gap == 0


def test_suppressed_records_leave_no_gap_in_the_order():
    data = dataset([1.0, 1.0, 50.0, 99.0, 99.0])
    firsts = Counter(publish(data, k=2, alpha="0.1").key.table["source_row"][0].as_py() for _ in range(150))
    assert set(firsts) == {1, 2, 4, 5}
    assert stats.chisquare(list(firsts.values())).pvalue > 1e-9


AWKWARD = [0.1 + 0.2, 1 / 3, 2 / 3, math.pi, math.e, 1e-17, 100 / 7, 99.99999999999999, 33.1, 1e-300]


def test_tables_do_not_depend_on_the_order_of_the_input():
    generator = random.Random(5)
    for weights, bounds in itertools.product((AWKWARD * 4, [round(0.1 * i, 1) for i in range(50)]), ("class", "grid")):
        places = [random.Random(number).choice(["x", "y", "z"]) for number in range(len(weights))]
        found = []
        for _ in range(8):
            rows = generator.sample(range(len(weights)), len(weights))
            public = {"place": [places[row] for row in rows]}
            data = dataset([weights[row] for row in rows], public=public, resolution="0.25")
            release, _ = publish(data, k=3, alpha="0.2", bounds=bounds, statistic="multiset")
            found.append((release.classes, release.members))
            assert found[-1][0].equals(found[0][0])
            assert found[-1][1].equals(found[0][1])


def test_means_do_not_depend_on_the_order_of_their_terms():
    generator = np.random.default_rng(2)
    values = generator.uniform(0, 1, 1000) * 10.0 ** generator.integers(-8, 8, 1000)
    class_id = generator.integers(0, 7, 1000)
    means = class_means(class_id, values)
    for _ in range(20):
        order = generator.permutation(1000)
        assert class_means(class_id[order], values[order]).tobytes() == means.tobytes()
    for number in range(7):
        assert math.isclose(means[number], math.fsum(values[class_id == number]) / (class_id == number).sum())


def test_strata_of_text_whole_numbers_and_dates():
    days = [datetime.date(2026, 11, 15), datetime.date(1969, 12, 31)]
    composed = "\N{LATIN CAPITAL LETTER A WITH RING ABOVE}rhus"
    places = [composed, unicodedata.normalize("NFD", composed), "北京", "a,b", "🚚"]
    combinations = list(itertools.product(places, [-3, 2**60], days))
    rows = [(*combination, number) for combination in combinations for number in (1.0, 2.0, 40.0, 41.0)]
    random.Random(1).shuffle(rows)
    place, number, day, weights = zip(*rows, strict=True)
    public = {"place": list(place), "number": pa.array(number, pa.int64()), "day": list(day)}
    release, key = publish(dataset(weights, public=public), k=2, statistic="multiset")
    assert release.data.column("day").type == pa.date32()
    assert release.classes.num_rows == 2 * len(combinations)
    for row, item in zip(release.data.to_pylist(), key.table.to_pylist(), strict=True):
        true = rows[item["source_row"] - 1]
        assert (row["place"], row["number"], row["day"]) == true[:3]
        assert (row["weight_lower"], row["weight_upper"]) == ((1.0, 2.0) if true[3] < 3 else (40.0, 41.0))
    first = release.data.filter(pa.array(release.data.column("class_id").to_numpy() == 0)).to_pylist()
    assert {(row["place"], row["number"], row["day"]) for row in first} == {min(combinations)}


def test_negative_zero_tells_nobody_apart(tmp_path):
    zeros = np.array([0.0, -0.0] * 3)
    kinds, roles = ("float64", "float32", "float16"), ("public", "sensitive")
    for number, (kind, role) in enumerate(itertools.product(kinds, roles)):
        rules, column = policy(extra={"role": role}), pa.array(zeros.astype(kind))
        data = dn.Dataset.from_table(pa.table({"weight": [1.0, 1.0, 1.0, 9.0, 9.0, 9.0], "extra": column}), rules)
        publication = publish(data, k=3)
        looks = Counter((str(row["extra"]), row["weight_lower"]) for row in publication.release.data.to_pylist())
        assert looks == {("0.0", 1.0): 3, ("0.0", 9.0): 3}
        publication.write(tmp_path / f"{number}")
        assert dn.verify(tmp_path / f"{number}").ok


def test_columns_of_any_plain_type():
    columns = (
        pa.array([True, False] * 3),
        pa.array([Decimal("1.5"), Decimal("-2.5")] * 3),
        pa.array([1, 2**64 - 1] * 3, pa.uint64()),
        pa.array([datetime.datetime(2026, 1, 1), datetime.datetime(2025, 1, 1)] * 3),
        pa.array([datetime.time(1), datetime.time(2)] * 3),
        pa.array(["x", "y"] * 3).dictionary_encode(),
    )
    for column, role in itertools.product(columns, ("public", "sensitive")):
        rules = policy(extra={"role": role})
        data = dn.Dataset.from_table(pa.table({"weight": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "extra": column}), rules)
        release, key = publish(data, k=3)
        true = column.to_pylist()
        released = release.data.column("extra").to_pylist()
        assert [true[row - 1] for row in key.table.column("source_row").to_pylist()] == released
        assert release.classes.num_rows == 2


def test_on_the_grid_values_that_round_alike_may_part_and_classes_that_look_alike_are_one():
    """1 x 5, 4 x 3, 7 x 2 on a grid of 5: [0, 5] for the first five and [0, 10] for the rest loses least."""
    weights = [1.0] * 5 + [4.0] * 3 + [7.0] * 2
    release, _ = publish(dataset(weights, resolution=Decimal(5)), k=5, alpha=3, bounds="grid")
    assert release.certificate.plain()["measures"]["loss"]["sum"] == 0.75
    found = release.classes.select(["size", "weight_lower", "weight_upper"]).to_pylist()
    assert [tuple(item.values()) for item in found] == [(5, 0.0, 5.0), (5, 0.0, 10.0)]
    release, _ = publish(dataset([1.0, 1.0, 2.0, 2.0], resolution=Decimal(5)), k=2, bounds="grid")
    assert release.classes.to_pylist() == [{"class_id": 0, "size": 4, "weight_lower": 0.0, "weight_upper": 5.0}]


def test_combinations_are_those_that_sorting_gives():
    rng = np.random.default_rng(3)
    for size, num_strata, decimals in ((1, 1, 0), (500, 1, 1), (500, 7, 0), (2000, 3, 2), (300, 2, 15)):
        values = np.round(rng.normal(0, 20, size), decimals) + 0.0
        stratum = rng.integers(0, num_strata, size)
        columns = {"town": pa.array([f"t{number}" for number in stratum]), "weight": pa.array(values)}
        finest = Finest.merged([Finest.of({name: column[i::3] for name, column in columns.items()}) for i in range(3)])
        expected, counts = np.unique(np.stack([stratum, values]), axis=1, return_counts=True)
        np.testing.assert_array_equal(finest.numbers("weight"), expected[1])
        np.testing.assert_array_equal(finest.counts, counts)
        assert finest.column("town").to_pylist() == [f"t{int(number)}" for number in expected[0]]
        of_row = finest.of_rows(columns, "frame")
        np.testing.assert_array_equal(finest.numbers("weight")[of_row], values)
        np.testing.assert_array_equal(np.bincount(of_row), counts)
        again = Finest.load(finest.dump())
        assert again.dump() == finest.dump() == Finest.of(columns).dump()
        with pytest.raises(dn.UserError, match="changed"):
            finest.of_rows({**columns, "weight": pa.array(values + 1000)}, "frame")
