"""FullDomain against exhaustive evaluation of every node of small lattices, by slow and independent code.

The oracle counts with a Counter and tries every combination of levels.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import QUASI, a_policy
from tests.oracles.lattice import FLAT, Levels, interval_levels, tree_levels

import dunnage as dn
from dunnage.errors import InputError, ParameterError, PolicyError, Refusal
from dunnage.publishing import mechanism_of

NUM_CASES = 250
TREES = (
    {"a": "A", "b": "A", "c": "B", "d": "B", "A": "*", "B": "*"},
    {"a": "A", "b": "A", "A": "X", "c": "X", "d": "all", "X": "all"},  # leaves at three depths
    {"a": "*", "b": "*"},
)


def dataset(columns, attributes, *, small="suppress", **parameters):
    policy = a_policy({"name": "full-domain", "k": 2, **parameters}, attributes, small=small)
    return dn.Dataset.from_table(pa.table(columns), policy)


def numeric(lower, upper, doubling, **more):
    return {"role": QUASI, "kind": "numeric", "domain": [lower, upper], "doubling": doubling, **more}


def tree(parents):
    return {"role": QUASI, "kind": "tree", "parents": parents}


def labels(kind, *values):
    return {"role": QUASI, "kind": kind, "domain": list(values)}


def publish(data, **parameters):
    return dn.FullDomain(**parameters).release(data, ledger=dn.Ledger(":memory:"), noise=dn.Noise())


@dataclass
class Case:
    """A small problem."""

    attributes: dict[str, Any] = field(default_factory=dict)
    columns: dict[str, list[Any]] = field(default_factory=dict)
    levels: dict[str, Levels] = field(default_factory=dict)
    parameters: dict[str, Any] = field(default_factory=dict)

    @property
    def num_rows(self) -> int:
        return len(next(iter(self.columns.values())))

    def data(self) -> dn.Dataset:
        return dataset(self.columns, self.attributes)


def draw_attribute(case: Case, name: str, num: int, generator: random.Random) -> None:
    kind = generator.choice(["numeric", "numeric", "tree", "category", "ordinal"])
    if kind == "numeric":
        lower, length = generator.choice([0, -3, 1]), generator.choice([5, 8, 10])
        doubling = generator.choice([Fraction(1), Fraction(3, 2), Fraction(7), Fraction(1, 10), Fraction(20)])
        values = [round(lower + generator.randint(0, 10 * length) / 10, 1) for _ in range(num)]
        case.attributes[name] = numeric(lower, lower + length, float(doubling))
        case.levels[name] = interval_levels(lower, lower + length, doubling)
    elif kind == "tree":
        parents = generator.choice(TREES)
        values = [generator.choice(sorted(parents.keys() - set(parents.values()))) for _ in range(num)]
        case.attributes[name], case.levels[name] = tree(parents), tree_levels(parents)
    else:
        values = [generator.choice("uvw") for _ in range(num)]
        case.attributes[name] = labels(kind, "u", "v", "w")
        case.levels[name] = FLAT
    case.columns[name] = values


def draw_case(generator: random.Random) -> Case:
    case, num = Case(), generator.randint(4, 24)
    for index in range(generator.randint(1, 3)):
        draw_attribute(case, f"x{index}", num, generator)
    if generator.random() < 0.5:
        case.attributes["place"] = {"role": "public"}
        case.columns["place"] = [generator.choice("NNNS") for _ in range(num)]
    case.parameters = {
        "k": generator.randint(2, 4),
        "alpha": generator.choice(["1", "0.3", "0.05", "2", "1/3", "0.6"]),
        "max_suppressed": generator.choice([None, None, 0, "0.2", "0.5"]),
        "importance": {n: generator.choice([1, 2, "0.5", "1/7"]) for n in case.levels if generator.random() < 0.5},
    }
    return case


@dataclass
class Answer:
    """What a node costs and releases: for each row what it looks like, None if suppressed."""

    cost: Fraction
    node: tuple[int, ...]
    rows: list[Any]

    @property
    def num_suppressed(self) -> int:
        return self.rows.count(None)


def evaluate(case: Case, node: tuple[int, ...]) -> Answer:
    told = [
        [levels.generalise(value, level) for value in case.columns[name]]
        for (name, levels), level in zip(case.levels.items(), node, strict=True)
    ]
    place = case.columns.get("place", [""] * case.num_rows)
    looks = [(place[row], *(column[row][0] for column in told)) for row in range(case.num_rows)]
    counts = Counter(looks)
    kept = [counts[look] >= case.parameters["k"] for look in looks]
    alpha, cost = Fraction(case.parameters["alpha"]), Fraction(0)
    for name, column in zip(case.levels, told, strict=True):
        weight = Fraction(case.parameters["importance"].get(name, 1))
        cost += weight * sum(column[row][1] if kept[row] else alpha for row in range(case.num_rows))
    return Answer(cost, node, [look if keep else None for look, keep in zip(looks, kept, strict=True)])


def exhaustive(case: Case) -> Answer | None:
    """Return the best of all nodes; None if each suppresses too many."""
    most = case.parameters["max_suppressed"]
    limit = case.num_rows if most is None else math.floor(Fraction(most) * case.num_rows)
    answers = [evaluate(case, node) for node in itertools.product(*(range(a.num) for a in case.levels.values()))]
    allowed = [answer for answer in answers if answer.num_suppressed <= limit]
    return min(allowed, key=lambda answer: (answer.cost, answer.node), default=None)


def test_equals_exhaustive_search_of_every_node():
    generator, num_found = random.Random(20261115), 0
    for _ in range(NUM_CASES):
        case = draw_case(generator)
        best = exhaustive(case)
        try:
            classes = dn.FullDomain(**case.parameters).classes(case.data())
        except Refusal:
            sizes = Counter(case.columns.get("place", [""] * case.num_rows)).values()
            hopeless = max(sizes) < case.parameters["k"]
            assert best is None or hopeless or best.num_suppressed == case.num_rows
            continue
        assert best is not None
        assert classes.levels == best.node
        assert classes.loss_sum == pytest.approx(float(best.cost), abs=1e-9)
        of_row = classes.of_row.tolist()
        assert [number < 0 for number in of_row] == [look is None for look in best.rows]
        assert len({pair for pair in zip(of_row, best.rows, strict=True) if pair[1]}) == max(of_row) + 1
        num_found += 1
    assert num_found > NUM_CASES / 2


def test_ties_go_to_the_lowest_levels_of_the_first_attribute_and_costs_are_exact():
    """A difference of one part in 10^30 decides, where a double or 64 bits would see none."""
    attributes = {"x": labels("category", "u", "v"), "y": labels("category", "u", "v")}
    data = dataset({"x": ["u", "u", "v", "v"] * 5, "y": ["u", "v", "u", "v"] * 5}, attributes)
    more = "1." + "0" * 30 + "1"
    for importance, levels in (({}, (0, 1)), ({"x": more}, (0, 1)), ({"y": more}, (1, 0))):
        assert dn.FullDomain(k=6, importance=importance).classes(data).levels == levels


def test_many_attributes_of_many_values_do_not_overflow():
    generator = np.random.default_rng(5)
    columns = {f"x{i}": generator.permutation(3000) / 8 for i in range(7)}  # 3000^7 combinations
    attributes = dict.fromkeys(columns, numeric(0, 400, 200))
    classes = dn.FullDomain(k=3).classes(dataset(columns, attributes))
    halves = np.stack([columns[name] >= 200 for name in columns])
    assert classes.levels == (1,) * 7
    assert len(np.unique(halves, axis=1).T) == classes.of_row.max() + 1


@st.composite
def tables(draw):
    num = draw(st.integers(4, 30))
    weights = draw(st.lists(st.integers(0, 1000).map(lambda tenth: tenth / 10), min_size=num, max_size=num))
    kinds = draw(st.lists(st.sampled_from("abcd"), min_size=num, max_size=num))
    return {"weight": weights, "kind": kinds}


@settings(max_examples=30, deadline=None)
@given(
    tables(),
    st.integers(2, 4),
    st.sampled_from(["bounds", "mean", "multiset"]),
    st.sampled_from(["0.1", "0.7", 3, 25, 100]),
    st.sampled_from(TREES[:2]),
)
def test_a_release_is_k_anonymous_and_tells_the_hierarchy(columns, k, statistic, doubling, parents):
    doubling = Fraction(doubling)
    attributes = {"weight": numeric(0, 100, float(doubling)), "kind": tree(parents)}
    release, key = publish(dataset(columns, attributes), k=k, alpha=5, statistic=statistic)
    rows = release.data.to_pylist()
    looks = Counter(tuple(row[name] for name in row if name not in ("row", "class_id")) for row in rows)
    assert min(looks.values()) >= k
    levels = release.certificate.plain()["measures"]["levels"]
    weights, kinds = interval_levels(0, 100, doubling), tree_levels(parents)
    for row, source in zip(rows, key.table["source_row"].to_pylist(), strict=True):
        weight, kind = columns["weight"][source - 1], columns["kind"][source - 1]
        assert row["weight_lower"] <= weight <= row["weight_upper"]
        (lower, upper), _ = weights.generalise(weight, levels["weight"])
        assert (row["weight_lower"], row["weight_upper"]) == (float(lower), float(upper))
        assert row["kind"] == kinds.generalise(kind, levels["kind"])[0]


def rides(num=60, **parameters):
    generator = random.Random(11)
    columns = {
        "card": ([f"C{i}" for i in range(num)], {"role": "identifier"}),
        "line": ([generator.choice("12") for _ in range(num)], {"role": "public"}),
        "kind": ([generator.choice("abcd") for _ in range(num)], tree(TREES[0])),
        "reason": ([generator.choice(["work", "home"]) for _ in range(num)], {"role": "sensitive"}),
        "minutes": ([round(abs(generator.gauss(30, 15)), 1) for _ in range(num)], numeric(0, 90, 2.5, unit="min")),
        "bag": ([generator.choice(["none", "hand"]) for _ in range(num)], labels("ordinal", "none", "hand", "trunk")),
    }
    values, attributes = ({name: pair[place] for name, pair in columns.items()} for place in (0, 1))
    return dataset(values, attributes, **parameters)


def test_columns_follow_the_schema_and_the_folder_verifies(tmp_path):
    data = rides()
    for statistic in ("bounds", "mean", "multiset"):
        folder = tmp_path / statistic
        made = publish(data, k=4, statistic=statistic, importance={"kind": 2, "bag": "0.25"}).write(folder)
        mean = [] if statistic == "bounds" else ["minutes_mean"]
        told = ["kind", "minutes_lower", "minutes_upper", *mean, "bag"]
        release = dn.Release.read(folder)
        assert release.data.column_names == ["row", "class_id", "line", "reason", *told]
        assert release.classes.column_names == ["class_id", "size", *told]
        assert release.quantities == ["minutes"]
        assert dn.verify(folder).problems == []
    members = release.members.to_pylist()
    assert list(members[0]) == ["class_id", "kind", "minutes", "bag"]
    source = made.key.table.sort_by("class_id")["source_row"].to_pylist()
    joint = Counter((data.column("kind")[i - 1].as_py(), data.numbers("minutes")[i - 1]) for i in source)
    assert Counter((member["kind"], member["minutes"]) for member in members) == joint
    # Classes are numbered by what is released.
    first = publish(data, k=3).release.classes.drop(["size"]).to_pylist()
    shuffled = np.random.default_rng(3).permutation(len(data))
    columns = {a.name: data.column(a.name).take(pa.array(shuffled)) for a in data.schema}
    other = dn.Dataset.from_table(pa.table(columns), data.policy)
    assert publish(other, k=3).release.classes.drop(["size"]).to_pylist() == first


def test_borders_belong_above_and_the_upper_end_to_the_last_interval():
    weights = [0.0, 0.3, 0.6, 0.9, 1.0] * 2  # 0.1 + 0.2 is not 0.3 in doubles
    release, _ = publish(dataset({"weight": weights}, {"weight": numeric(0, 1, 0.3)}), k=4)
    bounds = sorted(set(zip(*(release.data[f"weight_{end}"].to_pylist() for end in ("lower", "upper")), strict=True)))
    assert bounds == [(0.0, 0.6), (0.6, 1.0)]
    assert release.certificate.plain()["measures"]["levels"] == {"weight": 2}
    assert release.certificate.plain()["measures"]["loss"]["total"] == pytest.approx(0.4 * 0.6 + 0.6 * 0.4)
    release, _ = publish(dataset({"weight": [7.3] * 3}, {"weight": numeric(0, 10, 1)}), k=3)
    assert release.data["weight_lower"].to_pylist() == release.data["weight_upper"].to_pylist() == [7.3] * 3
    assert release.certificate.plain()["measures"]["levels"] == {"weight": 0}


def test_the_certificate_carries_hierarchies_levels_and_importance():
    release, _ = publish(rides(), k=4, importance={"kind": "1/3"}, max_suppressed=0.25)
    body = release.certificate.plain()
    assert body["mechanism"]["importance"] == {"kind": "1/3"}
    assert body["mechanism"]["max_suppressed"] == 0.25
    assert release.attributes["minutes"].domain["doubling"] == 2.5
    assert release.attributes["kind"].domain["parents"] == TREES[0]
    assert set(body["measures"]["levels"]) == {"kind", "minutes", "bag"}
    loss = body["measures"]["loss"]
    weights = {"kind": 1 / 3, "minutes": 1, "bag": 1}
    assert loss["total"] == pytest.approx(sum(weights[n] * x for n, x in loss["attributes"].items()) / (7 / 3))
    assert body["measures"]["suppressed"]["share"] <= 0.25
    assert "class borders depend on data" in body["assumptions"]


def test_small_strata_are_refused_or_suppressed_and_count_towards_the_limit():
    columns = {"weight": [1.0] * 8, "place": ["N"] * 7 + ["S"]}
    attributes = {"weight": numeric(0, 10, 1), "place": {"role": "public"}}
    data, strict = dataset(columns, attributes), dataset(columns, attributes, small="refuse")
    for limit in (None, "1/8"):
        assert dn.FullDomain(k=2, max_suppressed=limit).classes(data).of_row.tolist() == [0] * 7 + [-1]
    two = dataset({"weight": [1.0, 9.0]}, {"weight": numeric(0, 10, 1)})
    assert dn.FullDomain(k=2, alpha=0.1, max_suppressed=0.5).classes(two).levels == (5,)
    for refused, parameters, words in (
        (strict, {}, "place"),
        (data, {"max_suppressed": 0.124}, r"0\.124"),
        (data, {"k": 9}, "9"),
        (two, {"alpha": 0.1}, "alpha"),  # suppressing everything is refused
    ):
        with pytest.raises(Refusal, match=words):
            dn.FullDomain(**{"k": 2, **parameters}).classes(refused)


def test_what_has_no_hierarchy_is_refused_before_any_data():
    bare = {"role": QUASI, "kind": "numeric", "domain": [0, 1]}
    for attributes, words in (
        ({"x": bare}, "'x'"),
        ({"x": {"role": "public"}}, None),
        ({"size": labels("category", "u", "v")}, "'size'"),
        ({"x": labels("category", "u", "*")}, "'x'"),
        ({f"x{i}": numeric(0, 1000, 1) for i in range(6)}, "2,985,984"),
        ({"stop": {"role": QUASI, "kind": "graph", "edges": "edges.csv"}}, "'stop'"),
    ):
        with pytest.raises(PolicyError, match=words):
            mechanism_of(a_policy({"name": "full-domain", "k": 2}, attributes))
    with pytest.raises(InputError) as error:
        dataset({"kind": ["a", "robot", "b"]}, {"kind": tree(TREES[0])})
    (problem,) = error.value.problems
    assert "kind" in problem.where
    assert (problem.rows, "robot" in str(error.value)) == ((2,), False)


def test_parameters_are_checked():
    for parameters in (
        {"k": 1},
        {"alpha": 0},
        *({"max_suppressed": share} for share in (1.5, "half")),
        *({"importance": table} for table in ({"x": 0}, {"x": "much"}, ("x",), 3)),
        {"statistic": "median"},
    ):
        with pytest.raises(ParameterError):
            dn.FullDomain(**{"k": 2, **parameters})
    with pytest.raises(ParameterError, match="line"):
        dn.FullDomain(k=2, importance={"line": 2}).promise(rides().schema)


def test_the_example_of_the_policy_page(tmp_path):
    page = (Path(__file__).resolve().parents[1] / "docs" / "policy.md").read_text()
    example = page.partition("## `full-domain`")[2].partition("```text\n")[2].partition("```")[0]
    (tmp_path / "types.csv").write_text("adult;full fare;*\nchild;reduced;*\n")
    policy = dn.Policy.from_text(f'dataset = "rides"\nprotects = "ride"\n{example}', path=tmp_path / "rides.toml")
    assert mechanism_of(policy) == dn.FullDomain(k=5, max_suppressed=0.05, importance={"type": 2})
