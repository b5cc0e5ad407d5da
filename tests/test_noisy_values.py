# SPDX-License-Identifier: Apache-2.0
"""NoisyValues: its law enumerated over all neighbours on tiny domains, its intervals, and what it refuses.

The enumeration computes the laws again, in decimals of 60 digits, and compares whole releases: unordered lists of
rows, since rows come in random order.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from tests.noisy_help import ALPHA, CONFIDENCES, NO_NOISE, SLACK, dataset, decimal, growth, numeric, policy, release_law

import dunnage as dn
from dunnage.errors import ParameterError
from dunnage.model.guarantees import Basis, Neighbours, PureDP
from dunnage.model.laws import Cells

LAWS = ("laplace", "piecewise")


def publish(data, noise=None, **parameters):
    return dn.NoisyValues(**parameters).release(data, ledger=dn.Ledger(":memory:"), noise=noise or dn.Noise())


def oracle_row(law, last, epsilon, confidence, truth):
    """Probabilities of seeing 0..last, from the definition of each law."""
    if law == "laplace":
        ratio = (-decimal(epsilon) / last).exp()
        row = [ratio ** abs(i - truth) for i in range(last + 1)]
        row[0] /= 1 - ratio
        row[-1] /= 1 - ratio
    else:
        growth = decimal(epsilon).exp()
        need = decimal(confidence) * last / (1 - decimal(confidence)) / growth
        half = next(h for h in range(last + 1) if 2 * h + 1 >= need or h == last)
        row = [Decimal(0)] * (last + 1)
        for outcome in range(-half, last + half + 1):
            row[min(max(outcome, 0), last)] += growth if abs(outcome - truth) <= half else 1
    total = sum(row)
    return [weight / total for weight in row]


def oracle(law, last, epsilon, confidence="0.9"):
    """All probabilities of one column as fractions, truth by seen."""
    with localcontext() as context:
        context.prec = 60
        rows = [oracle_row(law, last, epsilon, confidence, truth) for truth in range(last + 1)]
    return [[Fraction(chance) for chance in row] for row in rows]


def worst_ratio(table, others):
    """Largest ratio of the chances of any release between datasets that differ in one record."""
    laws = [release_law(table, (*others, record)) for record in range(len(table))]
    return max(max(law[out] for law in laws) / min(law[out] for law in laws) for out in laws[0])


def test_one_column_keeps_epsilon_and_wastes_none():
    for law, epsilon in itertools.product(LAWS, ("0.5", "1", "3")):
        table = oracle(law, 4, epsilon)
        ratios = [worst_ratio(table, others) for size in (0, 1) for others in itertools.product(range(5), repeat=size)]
        assert max(ratios) <= growth(epsilon) * (1 + SLACK)
        if law == "laplace" or epsilon == "3":  # a window as wide as the domain hides more than it must
            assert max(ratios) >= growth(epsilon) * (1 - SLACK)


def test_two_columns_share_epsilon():
    # One point of both columns: truth and seen run over all pairs.
    pairs = list(itertools.product(range(3), range(4)))
    for law in LAWS:
        shares = [oracle(law, 2, Fraction(3, 2)), oracle(law, 3, Fraction(3, 2))]
        table = [[shares[0][a][c] * shares[1][b][d] for c, d in pairs] for a, b in pairs]
        ratios = [worst_ratio(table, others) for others in ((), (0,), (6,))]
        assert max(ratios) <= growth(3) * (1 + SLACK)
        assert law != "laplace" or max(ratios) >= growth(3) * (1 - SLACK)


@pytest.mark.parametrize("law", LAWS)
def test_releases_follow_the_enumerated_law(law):
    """Two columns and 50,000 equal records: a share that is 0.05 off is found with probability above 0.999."""
    num = 50_000
    attributes = {"weight": numeric(0, 2), "length": numeric(0, 3)}
    data = dataset({"weight": np.full(num, 1.0), "length": np.full(num, 3.0)}, attributes)
    release, _ = publish(data, epsilon=3, law=law)
    first = np.array(oracle(law, 2, Fraction(3, 2))[1], dtype=float)
    second = np.array(oracle(law, 3, Fraction(3, 2))[3], dtype=float)
    seen = release.data["weight"].to_numpy().astype(int) * 4 + release.data["length"].to_numpy().astype(int)
    counts = np.bincount(seen, minlength=12)
    expected = np.outer(first, second).ravel()
    assert stats.chisquare(counts, num * expected / expected.sum()).pvalue > ALPHA
    stated = release.certificate.plain()["measures"]["noise"]
    assert [cell["epsilon"] for name in stated for cell in stated[name]] == [1.5, 1.5]


def test_intervals_hold_the_truth_as_often_as_stated():
    num = 20_000
    spread = np.random.default_rng(7)
    truth = {"weight": spread.beta(0.3, 0.8, num) * 50, "length": spread.integers(0, 11, num) * 0.3 + 1}
    truth["weight"][: num // 4] = spread.choice([0, 50, 0.05, 49.95, 25], num // 4)
    data = dataset(truth, {"weight": numeric(0, 50, 0.1), "length": numeric(1, 4, 0.3)})
    for law, confidence in itertools.product(LAWS, CONFIDENCES):
        release, key = publish(data, epsilon=6, law=law, confidence=confidence)
        source, row = key.table["source_row"].to_numpy() - 1, key.table["row"].to_numpy()
        for name, values in truth.items():
            lower, upper = (release.data[f"{name}_{side}"].to_numpy()[row] for side in ("lower", "upper"))
            stated = release.certificate.plain()["measures"]["noise"][name][0]["coverage"]
            assert stated >= float(confidence) - 1e-6
            held = int(((lower <= values[source]) & (values[source] <= upper)).sum())
            assert stats.binomtest(held, num, float(confidence), alternative="less").pvalue > ALPHA


def test_what_a_release_holds():
    spread = np.random.default_rng(3)
    columns = {
        "parcel": [f"P{i}" for i in range(200)],
        "place": spread.choice(["north", "south"], 200),
        "weight": spread.integers(0, 5, 200).astype(float),
        "length": spread.integers(0, 5, 200) / 2,
        "note": ["secret"] * 200,
    }
    roles = {"parcel": "identifier", "place": "public", "note": "drop"}
    attributes = {name: {"role": roles.get(name)} for name in columns}
    attributes |= {"weight": numeric(0, 4), "length": numeric(0, 2, 0.5)}
    release, key = publish(dataset(columns, attributes), epsilon=NO_NOISE)
    names = ["row", "place"] + [f"{name}{end}" for name in ("weight", "length") for end in ("", "_lower", "_upper")]
    assert release.data.column_names == names
    assert release.classes is release.members is None
    assert release.data["row"].to_pylist() == list(range(200))
    assert key.table.column_names == ["row", "source_row", "parcel"]
    assert sorted(key.table["source_row"].to_pylist()) == list(range(1, 201)) != key.table["source_row"].to_pylist()
    for line in key.table.to_pylist():  # at this epsilon there is no noise
        for name in ("place", "weight", "length"):
            assert release.data[name][line["row"]].as_py() == columns[name][line["source_row"] - 1]
        assert columns["parcel"][line["source_row"] - 1] == line["parcel"]
    body = release.certificate.plain()
    assert body["measures"]["records"] == 200
    assert set(body["measures"]) == {"records", "noise"}
    assert len(body["in_clear"]) == 2  # the number of records, and the public column
    assert dn.Certificate.from_bytes(release.certificate.to_bytes()) == release.certificate
    data = dataset({"weight": [0.0, 1.0, 4.0] * 20}, {"weight": numeric(0, 4)})
    release, _ = publish(data, epsilon=1, confidence=0)  # tells values alone
    assert release.data["weight_lower"].equals(release.data["weight"])
    assert release.data["weight_upper"].equals(release.data["weight"])


def test_the_certificate_gives_the_laws_back():
    data = dataset({"weight": [1.0, 2.5]}, {"weight": numeric(0, 5, 0.5)})
    mechanism = dn.NoisyValues(epsilon="4/3", law="piecewise", confidence="0.7")
    release, _ = mechanism.release(data, ledger=dn.Ledger(":memory:"), noise=dn.Noise())
    grid = data.schema["weight"].numeric
    cells = Cells.of(grid, release.certificate.plain()["measures"]["noise"]["weight"])
    assert cells == mechanism.cells(data.schema)["weight"]
    lower, upper = cells.interval(release.data["weight"].to_numpy())
    assert release.data["weight_lower"].to_numpy().tolist() == lower.tolist()
    assert release.data["weight_upper"].to_numpy().tolist() == upper.tolist()


def test_rows_that_travel_together_are_one_record():
    columns = {"order": list("abacba"), "parcel": [f"p{i}" for i in range(6)], "place": list("xyxxyx")}
    columns["weight"] = [1.0, 2, 1, 4, 1, 1]
    roles = {"order": "identifier", "parcel": "identifier", "place": "public"}
    attributes = {**{name: {"role": role} for name, role in roles.items()}, "weight": numeric(0, 8)}
    release, key = publish(dataset(columns, attributes, together="order"), epsilon=NO_NOISE)
    assert sorted(release.data["weight"].to_pylist()) == [3, 3, 4]
    assert key.table.column_names == ["row", "source_row", "order", "parcel"]
    assert sorted(Counter(key.table["row"].to_pylist()).values()) == [1, 2, 3]
    for line in key.table.to_pylist():
        assert columns["parcel"][line["source_row"] - 1] == line["parcel"]
        sums = sum(w for w, o in zip(columns["weight"], columns["order"], strict=True) if o == line["order"])
        assert release.data["weight"][line["row"]].as_py() == sums
    # Values outside are moved to the end or left out, and that is told.
    left_out = numeric(0, 4, outside="leave-out", missing="leave-out")
    data = dataset(
        {"weight": [9.0, 2.0, 1.0], "length": [1.0, 9.0, None]},
        {"weight": numeric(0, 4, outside="clamp"), "length": left_out},
    )
    other, _ = publish(data, epsilon=NO_NOISE)
    assert other.data["weight"].to_pylist() == [4]
    for told, least in ((release, 3), (other, 3)):
        assert len(told.certificate.plain()["in_clear"]) >= least


def test_promise_needs_no_data():
    schema = policy({"place": {"role": "public"}, "weight": numeric(0, 4), "length": numeric(0, 4)}).schema
    promise = dn.NoisyValues(epsilon=2, law="piecewise").promise(schema)
    assert promise.guarantee == PureDP(epsilon=2, protects="package", neighbours=Neighbours.REPLACE_ONE)
    assert promise.basis is Basis.PROVED
    names = {assumption.name for assumption in promise.assumptions}
    assert {"public domain", "public record count", "public columns are known", "system entropy"} <= names
    without = dn.NoisyValues(epsilon=2).promise(policy({"weight": numeric(0, 4)}).schema)
    assert "public columns are known" not in {assumption.name for assumption in without.assumptions}


def test_senseless_parameters_are_refused():
    for parameters in (
        {},
        *({"epsilon": epsilon} for epsilon in (0, -1, 10**6, "much")),
        *({"epsilon": 1, "confidence": confidence} for confidence in (1, -0.1)),
        {"epsilon": 1, "law": "gauss"},
    ):
        with pytest.raises(ParameterError):
            dn.NoisyValues(**parameters)


def test_attributes_that_get_no_noise_are_refused():
    for attributes, words in (
        ({"place": {"role": "public"}}, None),
        ({"weight": {"role": "quasi-identifier", "kind": "numeric", "domain": [0, 5]}}, "resolution"),
        ({"weight": {"role": "quasi-identifier", "kind": "category", "domain": ["a", "b"]}}, "category"),
        ({"weight": numeric(0, 4), "content": {"role": "sensitive"}}, "content"),
        ({"weight": numeric(0, 2**45, 1)}, "'weight'"),
    ):
        with pytest.raises(ParameterError, match=words):
            dn.NoisyValues(epsilon=1).promise(policy(attributes).schema)


def test_foresight_follows_from_public_facts():
    attributes = {"weight": numeric(0, 100, 0.5), "length": numeric(0, 1, 0.5)}
    light = dataset({"weight": [0.0, 1.0], "length": [0.0, 0.0]}, attributes)
    heavy = dataset({"weight": [99.0, 100.0], "length": [1.0, 1.0]}, attributes)
    noise = dn.NoisyValues(epsilon=20)
    told = noise.preview(light)
    assert told.to_dict() == noise.preview(heavy).to_dict()
    cells = noise.cells(light.schema)["weight"].describe()[0]
    assert f"{cells['radius']} kg" in told.lines[0]
    assert f"{math.ceil(100 * 2 * cells['radius'] / 100.5)} %" in told.lines[0]  # up to that much
    assert told.warnings == ()
    assert len(dn.NoisyValues(epsilon=1).preview(light).warnings) == 2
    assert dn.NoisyValues(epsilon=1, confidence=0).preview(light).warnings == ()
