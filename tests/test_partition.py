# SPDX-License-Identifier: Apache-2.0
"""Partition against slow, independent code: exhaustive search on tiny cases, a quadratic program on larger ones.

Everything goes the public way: dataset, release, tables and key.
"""

from __future__ import annotations

import datetime
import itertools
import math
import random
import unicodedata
from collections import Counter, defaultdict
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

import numba
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dunnage.arrays import kernel
from dunnage.errors import ParameterError, Refusal
from dunnage.ledger import Ledger
from dunnage.mechanisms import partition as partition_module
from dunnage.mechanisms.classes import class_means
from dunnage.mechanisms.partition import Partition
from dunnage.model.policy import Policy
from dunnage.noise.source import Noise
from dunnage.tables.dataset import Dataset
from dunnage.verification import verify

TOLERANCE = 1e-9
NUM_CASES = 1200


def policy(domain=(0, 100), *, resolution=None, public=(), small="suppress", **more):
    weight = {"role": "quasi-identifier", "kind": "numeric", "domain": list(domain), "unit": "kg"}
    if resolution is not None:
        weight["resolution"] = Decimal(resolution)
    attributes = {"weight": weight, **{name: {"role": "public"} for name in public}, **more}
    return Policy.from_dict(
        {
            "dataset": "parcels",
            "protects": "package",
            "small": small,
            "attributes": attributes,
            "mechanism": {"name": "partition", "k": 2},
        }
    )


def dataset(weights, domain=(0, 100), *, public=None, **rules):
    """Make a dataset of weights and public columns."""
    public = public or {}
    table = pa.table({"weight": pa.array(weights, pa.float64()), **public})
    return Dataset.from_table(table, policy(domain, public=tuple(public), **rules))


def publish(data, **parameters):
    return Partition(**parameters).release(data, ledger=Ledger(":memory:"), noise=Noise())


# Exhaustive search


@dataclass(frozen=True)
class Case:
    """A tiny problem; numbers are decimals or doubles, read by their decimal text."""

    weights: tuple[float, ...]
    strata: tuple[str, ...]
    lower: Decimal
    upper: Decimal
    resolution: Decimal
    k: int
    alpha: Decimal
    bounds: str

    @property
    def span(self):
        return float(self.upper - self.lower)

    def pair(self, weight):
        """Give the smallest interval a weight may be released as."""
        if self.bounds == "class":
            return weight, weight
        step = Fraction(self.resolution)
        steps = (Fraction(repr(weight)) - Fraction(self.lower)) / step
        return tuple(float(Fraction(self.lower) + end(steps) * step) for end in (math.floor, math.ceil))

    def data(self):
        return dataset(
            self.weights, (self.lower, self.upper), public={"place": self.strata}, resolution=self.resolution
        )


def least_loss(case):
    """Eq. 7, minimised over all ways to cut the distinct values of each stratum into intervals."""
    members = defaultdict(list)
    for weight, stratum in zip(case.weights, case.strata, strict=True):
        members[stratum].append(weight)
    return sum(least_loss_of_stratum(case, Counter(weights)) for weights in members.values())


def least_loss_of_stratum(case, counts):
    values = sorted(counts)
    return min(
        sum(interval_loss(case, counts, values[a:b]) for a, b in itertools.pairwise((0, *cuts, len(values))))
        for num in range(len(values))
        for cuts in itertools.combinations(range(1, len(values)), num)
    )


def interval_loss(case, counts, values):
    """A class of its own (rounded) width if it has k records, else suppressed."""
    size = sum(counts[value] for value in values)
    if size < case.k:
        return size * float(case.alpha)
    return size * (case.pair(values[-1])[1] - case.pair(values[0])[0]) / case.span


# What every release must satisfy


def check_case(case):
    """Publish, compare with the exhaustive search, check every constraint; return what happened."""
    best = least_loss(case)
    try:
        release, key = publish(case.data(), k=case.k, alpha=case.alpha, bounds=case.bounds, statistic="multiset")
    except Refusal:
        assert math.isclose(best, float(case.alpha) * len(case.weights), abs_tol=TOLERANCE)
        return "refused"
    rows, keys, classes = release.data.to_pylist(), key.table.to_pylist(), release.classes.to_pylist()
    measures = release.certificate.plain()["measures"]
    assert math.isclose(measures["loss"]["sum"], best, abs_tol=TOLERANCE)
    assert math.isclose(measures["loss"]["total"], best / len(case.weights), abs_tol=TOLERANCE)
    assert math.isclose(released_loss(case, rows), best, abs_tol=TOLERANCE)
    check_k(rows, case.k, measures)
    check_truth(case, rows, keys)
    check_fates(case, keys)
    check_classes(case, classes, keys, release.members.to_pylist())
    return "suppressed" if len(rows) < len(case.weights) else "whole"


def released_loss(case, rows):
    suppressed = len(case.weights) - len(rows)
    return sum(row["weight_upper"] - row["weight_lower"] for row in rows) / case.span + suppressed * float(case.alpha)


def check_k(rows, k, measures):
    looks = Counter((row["place"], row["weight_lower"], row["weight_upper"]) for row in rows)
    assert min(looks.values()) >= k
    assert measures["k_reached"] == min(looks.values())
    assert len(looks) == len({row["class_id"] for row in rows}) == measures["classes"]


def check_truth(case, rows, keys):
    """Every released row covers its true record; suppressed records are nowhere."""
    assert [item["row"] for item in keys] == [row["row"] for row in rows] == list(range(len(rows)))
    assert len({item["source_row"] for item in keys}) == len(keys)
    for row, item in zip(rows, keys, strict=True):
        true = case.weights[item["source_row"]]
        assert row["weight_lower"] <= true <= row["weight_upper"]
        assert row["place"] == case.strata[item["source_row"]]
        assert row["class_id"] == item["class_id"]


def check_fates(case, keys):
    """Equal values share their fate; classes are intervals of values, numbered by stratum and value.

    On the grid two neighbours may be rounded to the same interval and are then one class, perhaps around a suppressed
    value.
    """
    class_of = {item["source_row"]: item["class_id"] for item in keys}
    fates = defaultdict(set)
    for row, (weight, stratum) in enumerate(zip(case.weights, case.strata, strict=True)):
        fates[stratum, weight].add(class_of.get(row, -1))
    assert all(len(fate) == 1 for fate in fates.values())
    in_order = [min(fates[place]) for place in sorted(fates)]
    seen = [fate for fate, _ in itertools.groupby(in_order) if fate >= 0]
    if case.bounds == "grid":
        seen = [fate for fate, _ in itertools.groupby(seen)]
    assert seen == sorted(set(seen)) == list(range(len(seen)))


def check_classes(case, classes, keys, members):
    true = defaultdict(list)
    for item in keys:
        true[item["class_id"]].append(case.weights[item["source_row"]])
    told = defaultdict(list)
    for member in members:
        told[member["class_id"]].append(member["weight"])
    assert told == {class_id: sorted(weights) for class_id, weights in true.items()}
    for item in classes:
        weights = true[item["class_id"]]
        assert item["size"] == len(weights)
        assert math.isclose(item["weight_mean"], math.fsum(weights) / len(weights), rel_tol=1e-12, abs_tol=1e-12)
        assert item["weight_lower"] == min(case.pair(weight)[0] for weight in weights)
        assert item["weight_upper"] == max(case.pair(weight)[1] for weight in weights)


def random_case(generator):
    """Draw a tiny problem with ties, decimals or awkward doubles, and one to three strata."""
    resolution = Decimal(generator.choice(["0.01", "0.05", "0.1", "0.5", "1", "2.5"]))
    lower = Decimal(generator.choice(["0", "-1", "2.5", "-0.3", "100"]))
    steps = generator.randint(1, 20)
    upper = lower + resolution * steps
    unit = generator.choice([resolution, resolution / 2, Decimal("0.01")])
    num = int((upper - lower) / unit)
    spread = generator.choice([num, min(num, 4)])
    size = generator.randint(2, 9)
    weights = [float(lower + unit * generator.randint(num - spread, num)) for _ in range(size)]
    if generator.random() < 0.2:  # doubles that no short decimal names
        weights = [min(max(weight * generator.uniform(0.9, 1.1), float(lower)), float(upper)) for weight in weights]
        weights += generator.choices(weights, k=min(2, 9 - size))
    return Case(
        weights=tuple(weights),
        strata=tuple(generator.choices("abc"[: generator.randint(1, 3)], k=len(weights))),
        lower=lower,
        upper=upper,
        resolution=resolution,
        k=generator.randint(2, 4),
        alpha=round(Decimal(math.exp(generator.uniform(math.log(0.01), math.log(3)))), 2),
        bounds=generator.choice(["class", "grid"]),
    )


def test_loss_and_constraints_against_exhaustive_search():
    generator = random.Random(0)
    outcomes = Counter(check_case(random_case(generator)) for _ in range(NUM_CASES))
    assert min(outcomes[name] for name in ("whole", "suppressed", "refused")) > NUM_CASES // 10


@st.composite
def cases(draw):
    steps = draw(st.integers(1, 12))
    resolution = draw(st.sampled_from(["0.1", "0.25", "1"]))
    lower, upper = Decimal(-1), Decimal(-1) + Decimal(resolution) * steps
    rows = draw(st.lists(st.tuples(st.integers(0, 4 * steps), st.sampled_from("ab")), min_size=2, max_size=9))
    return Case(
        weights=tuple(float(lower + Decimal(resolution) / 4 * number) for number, _ in rows),
        strata=tuple(stratum for _, stratum in rows),
        lower=lower,
        upper=upper,
        resolution=Decimal(resolution),
        k=draw(st.integers(2, 4)),
        alpha=draw(st.decimals("0.01", "3", places=2)),
        bounds=draw(st.sampled_from(["class", "grid"])),
    )


@settings(max_examples=80, deadline=None)
@given(cases())
def test_exhaustive_search_on_chosen_cases(case):
    check_case(case)


# Larger cases


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
    for law, size, k, alpha in itertools.product(LAWS, (300, 1000), (2, 5, 20, 150), ("0.001", "0.03", "1")):
        values = LAWS[law](generator, size)
        loss = classes_of(values, k=k, alpha=alpha)[1]
        expected = quadratic(values, k, float(alpha) * 100) / 100
        assert math.isclose(loss, expected, rel_tol=TOLERANCE, abs_tol=TOLERANCE)


def classes_of(values, *, public=None, **parameters):
    """Return classes and loss; nothing if every record would be suppressed."""
    try:
        classes = Partition(**parameters).classes(dataset(values, public=public, resolution="0.5"))
    except Refusal:
        return None, float(Fraction(parameters["alpha"])) * len(values)
    return classes.of_row, classes.loss_sum


def test_compiled_and_plain_programs_agree(monkeypatch):
    generator = np.random.default_rng(11)
    for law, size, k, alpha, bounds in itertools.product(LAWS, (50, 700), (2, 30), ("0.01", "1"), ("class", "grid")):
        values, public = LAWS[law](generator, size), {"place": generator.integers(0, 3, size)}
        found = []
        for threshold in (0, 10**9):
            monkeypatch.setattr(partition_module, "_COMPILE_FROM_RUNS", threshold)
            found.append(classes_of(values, public=public, k=k, alpha=alpha, bounds=bounds))
        assert np.array_equal(found[0][0], found[1][0])
        assert found[0][1] == found[1][1]


def test_compiles_where_no_cache_can_be_written(monkeypatch):
    def without_cache(*, cache=False, **_options):
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return lambda function: ("compiled without cache", function)

    monkeypatch.setattr(numba, "njit", without_cache)
    assert kernel(partition_module._solve.plain).compiled[0] == "compiled without cache"


def test_enormous_and_tiny_domains():
    generator = np.random.default_rng(3)
    for domain, unit in (((-8e307, 8e307), 1e15), ((0, 1e305), 1), ((0, 1e-300), 1e-300)):
        values = np.round(generator.uniform(0, 1, 300), 3) * unit
        release, _ = publish(dataset(values, domain), k=5, alpha=10**9)
        expected = quadratic(values / unit, 5, math.inf) / (domain[1] / unit - domain[0] / unit)
        assert math.isclose(release.certificate.plain()["measures"]["loss"]["sum"], expected, rel_tol=TOLERANCE)


def test_a_far_bound_and_many_decimals():
    data = dataset([0.123456789, 0.2, 0.3, 5.0, 6.0], (0, 1e305), public={"place": list("aaaab")})
    classes = Partition(k=2, alpha=10**9).classes(data)
    assert classes.of_row.tolist() == [0, 0, 1, 1, -1]
    assert classes.loss_sum == pytest.approx(10**9)


# Refusals


def refused(data, mechanism, error=Refusal):
    """Assert that a release is refused before anything is spent or drawn; return the message."""
    ledger, noise = Ledger(":memory:"), Noise()
    with pytest.raises(error) as caught:
        mechanism.release(data, ledger=ledger, noise=noise)
    assert noise.bytes_drawn == 0
    assert ledger.datasets() == []
    return str(caught.value)


def test_what_cannot_be_k_anonymous_is_refused():
    assert "lower k" in refused(dataset([1.0, 2.0]), Partition(k=3))
    data = dataset([1.0, 2.0, 3.0], public={"place": ["a", "a", "b"]}, small="refuse")
    message = refused(data, Partition(k=2))
    assert "1 of 2 combinations of public values (place)" in message
    assert 'small = "suppress"' in message
    for small in ("refuse", "suppress"):
        data = dataset([1.0, 2.0, 3.0, 4.0], public={"place": ["a", "a", "b", "b"]}, small=small)
        message = refused(data, Partition(k=3))
        assert "every combination of public values (place)" in message
        assert "suppress" not in message  # it would not help
    assert "Raise alpha" in refused(dataset([1.0, 50.0, 99.0]), Partition(k=2, alpha="0.001"))


NUMERIC = {"role": "quasi-identifier", "kind": "numeric", "domain": [0, 10]}
CATEGORY = {"role": "quasi-identifier", "kind": "category", "domain": ["x", "y"]}


def test_numeric_quasi_identifiers_with_a_grid_only():
    for attributes, says in (
        ({"colour": CATEGORY}, "Got colour (category)"),
        ({"weight": NUMERIC, "colour": CATEGORY}, "Got weight (numeric), colour (category)"),
        ({"weight": {**NUMERIC, "role": "public"}}, "Got none"),
    ):
        columns = {"weight": [1.0, 2.0], "colour": ["x", "y"]}
        table = pa.table({name: columns[name] for name in attributes})
        data = Dataset.from_table(table, Policy.from_dict({**policy().document, "attributes": attributes}))
        assert says in refused(data, Partition(k=2), ParameterError)
        with pytest.raises(ParameterError):
            Partition(k=2).promise(data.schema)
    message = refused(dataset([1.0, 2.0]), Partition(k=2, bounds="grid"), ParameterError)
    assert "'weight' has no resolution" in message


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
            Partition(**parameters)
    with pytest.raises(TypeError):
        Partition(5)


# Importance


def test_importance_is_kept_exactly_and_cannot_be_changed():
    given = {"weight": Decimal("0.1"), "volume": "1/3"}
    mechanism = Partition(k=2, importance=given)
    given["weight"] = 5
    assert mechanism.importance == (("volume", Fraction(1, 3)), ("weight", Fraction(1, 10)))
    assert mechanism.describe()["importance"] == {"volume": "1/3", "weight": 0.1}
    assert hash(mechanism) == hash(Partition(**dict(mechanism)))
    assert mechanism == Partition(k=2, importance={"volume": Fraction(1, 3), "weight": "0.1"})


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
    assert verify(tmp_path / "release").problems == []


def test_importance_of_one_that_counts_one_is_not_worth_a_word():
    described = Partition(k=2, importance={"weight": 1}).promise(policy().schema).mechanism
    assert described == Partition(k=2).describe()


def test_importance_of_an_unknown_attribute():
    message = refused(dataset([1.0, 2.0]), Partition(k=2, importance={"wieght": 2}), ParameterError)
    assert "Got 'wieght', and they are weight (numeric)" in message


def test_one_attribute_is_proven():
    found = Partition(k=2, importance={"weight": 4}).search(dataset([1.0, 2.0, 5.0, 9.0, 9.5]))
    assert found.proven
    assert found.loss == found.bound == found.classes.loss_sum
    assert found.gap == 0


def test_statistic_decides_what_is_told():
    for statistic, told in (("bounds", False), ("mean", True), ("multiset", True)):
        release, _ = publish(dataset([1.0, 2.0, 3.0, 4.0]), k=2, statistic=statistic)
        assert ("weight_mean" in release.data.column_names) is told
        assert ("weight_mean" in release.classes.column_names) is told
        assert (release.members is not None) is (statistic == "multiset")


# Order


def test_position_of_a_record_is_uniform():
    # A position taken with probability 0.34 instead of 0.20 would be found with probability 0.999.
    num, data = 800, dataset([10.0, 20.0, 30.0, 40.0, 50.0])
    positions = np.array(
        [publish(data, k=2)[1].table.column("source_row").to_pylist().index(0) for _ in range(num)], dtype=np.int64
    )
    assert stats.chisquare(np.bincount(positions, minlength=5)).pvalue > 1e-9


def test_suppressed_records_leave_no_gap_in_the_order():
    data = dataset([1.0, 1.0, 50.0, 99.0, 99.0])
    firsts = Counter()
    for _ in range(150):
        _, key = publish(data, k=2, alpha="0.1")
        firsts[key.table.column("source_row")[0].as_py()] += 1
    assert set(firsts) == {0, 1, 3, 4}
    assert stats.chisquare(list(firsts.values())).pvalue > 1e-9


def content(table):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return sink.getvalue().to_pybytes()


AWKWARD = [0.1 + 0.2, 1 / 3, 2 / 3, math.pi, math.e, 1e-17, 100 / 7, 99.99999999999999, 33.1, 1e-300]


@pytest.mark.parametrize("weights", [AWKWARD * 4, [round(0.1 * i, 1) for i in range(50)]], ids=["awkward", "decimals"])
@pytest.mark.parametrize("bounds", ["class", "grid"])
def test_tables_do_not_depend_on_the_order_of_the_input(weights, bounds):
    places = [random.Random(number).choice(["x", "y", "z"]) for number in range(len(weights))]
    generator, contents = random.Random(5), set()
    for _ in range(8):
        rows = generator.sample(range(len(weights)), len(weights))
        public = {"place": [places[row] for row in rows]}
        data = dataset([weights[row] for row in rows], public=public, resolution="0.25")
        release, _ = publish(data, k=3, alpha="0.2", bounds=bounds, statistic="multiset")
        contents.add((content(release.classes), content(release.members)))
    assert len(contents) == 1


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


# Strata


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
        true = rows[item["source_row"]]
        assert (row["place"], row["number"], row["day"]) == true[:3]
        assert (row["weight_lower"], row["weight_upper"]) == ((1.0, 2.0) if true[3] < 3 else (40.0, 41.0))
    first = release.data.filter(pa.array(release.data.column("class_id").to_numpy() == 0)).to_pylist()
    assert {(row["place"], row["number"], row["day"]) for row in first} == {min(combinations)}


def test_negative_zero_tells_nobody_apart(tmp_path):
    zeros = np.array([0.0, -0.0] * 3)
    kinds, roles = ("float64", "float32", "float16"), ("public", "sensitive")
    for number, (kind, role) in enumerate(itertools.product(kinds, roles)):
        rules, column = policy(extra={"role": role}), pa.array(zeros.astype(kind))
        data = Dataset.from_table(pa.table({"weight": [1.0, 1.0, 1.0, 9.0, 9.0, 9.0], "extra": column}), rules)
        publication = publish(data, k=3)
        looks = Counter((str(row["extra"]), row["weight_lower"]) for row in publication.release.data.to_pylist())
        assert looks == {("0.0", 1.0): 3, ("0.0", 9.0): 3}
        publication.write(tmp_path / f"{number}")
        assert verify(tmp_path / f"{number}").ok


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
        data = Dataset.from_table(pa.table({"weight": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "extra": column}), rules)
        release, key = publish(data, k=3)
        true = column.to_pylist()
        released = release.data.column("extra").to_pylist()
        assert [true[row] for row in key.table.column("source_row").to_pylist()] == released
        assert release.classes.num_rows == 2


def test_verify_agrees_with_a_large_release(tmp_path):
    generator = np.random.default_rng(4)
    weights = np.round(generator.uniform(0, 100, 30_000), 2)
    public = {"place": generator.integers(0, 4000, 30_000)}
    data = dataset(weights, public=public, resolution="0.01")
    publish(data, k=4, alpha="0.05", bounds="grid", statistic="multiset").write(tmp_path / "release")
    assert verify(tmp_path / "release").problems == []


def test_on_the_grid_values_that_round_alike_may_part():
    """1 x 5, 4 x 3, 7 x 2 on a grid of 5: [0, 5] for the first five and [0, 10] for the rest loses least."""
    weights = [1.0] * 5 + [4.0] * 3 + [7.0] * 2
    release, _ = publish(dataset(weights, (0, 100), resolution=Decimal(5)), k=5, alpha=3, bounds="grid")
    assert release.certificate.plain()["measures"]["loss"]["sum"] == 0.75
    found = release.classes.select(["size", "weight_lower", "weight_upper"]).to_pylist()
    assert [tuple(item.values()) for item in found] == [(5, 0.0, 5.0), (5, 0.0, 10.0)]


def test_on_the_grid_classes_that_look_alike_are_one():
    release, _ = publish(dataset([1.0, 1.0, 2.0, 2.0], (0, 100), resolution=Decimal(5)), k=2, bounds="grid")
    assert release.classes.to_pylist() == [{"class_id": 0, "size": 4, "weight_lower": 0.0, "weight_upper": 5.0}]
