# SPDX-License-Identifier: Apache-2.0
"""Domains against slow, independent implementations of the same definitions."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import pickle
import random
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.refusals import Named, refusal, refused

from dunnage.errors import InputError, ParameterError
from dunnage.model import domains
from dunnage.model.domains import Category, CodedDomain, Graph, Numeric, Ordinal, Tree, decimal_scale, domain_from
from dunnage.model.hierarchies import IntervalHierarchy, NodeHierarchy, hierarchy_of

PASSENGER_PARENTS = {
    "Adult": "Person",
    "Not Adult": "Person",
    "Senior Citizen": "Not Adult",
    "Child/Student": "Not Adult",
}
PASSENGERS = Tree(parents=PASSENGER_PARENTS)  # Bhati's figure 2: three passenger types, two of them under 'Not Adult'
EVERY_KIND = [
    Numeric(lower=0, upper=500, resolution=0.1, unit="kg"),
    Numeric(lower="-1/3", upper="1/3", resolution="1/9"),
    Numeric(lower=-1, upper=1),
    Ordinal(levels=["small", "middle", "large"]),
    Category(values=["red", "green", "blue"]),
    Tree(parents=PASSENGER_PARENTS),
    Tree.from_levels([["a", "A", "A", "*"], ["b", "B", "AB", "*"]]),
    Graph(edges=[("A", "B", 0.1), ("B", "C", "1/3"), ("C", "A", 2)]),
    Graph(edges=[("A", "B"), ("B", "C"), ("C", "A")], directed=True),
]
CODED = [domain for domain in EVERY_KIND if not isinstance(domain, Numeric)]


def test_every_kind_is_a_frozen_value_that_can_be_described() -> None:
    for domain in EVERY_KIND:
        described = json.loads(json.dumps(domain.describe(), sort_keys=True, allow_nan=False))
        again = domain_from(described)
        assert again == domain
        assert hash(again) == hash(domain)
        assert again.describe() == domain.describe()
        assert pickle.loads(pickle.dumps(domain)) == domain
        assert dataclasses.replace(domain) == domain  # type: ignore[type-var]
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(domain, dataclasses.fields(domain)[0].name, None)
        with pytest.raises(TypeError):
            type(domain)(1, 2)  # type: ignore[call-arg]


@pytest.mark.parametrize("domain", CODED, ids=repr)
def test_coded(domain: CodedDomain) -> None:
    labels = domain.labels
    matrix = domain.distances()
    assert domain.codes(np.array(labels)).tolist() == list(range(len(labels)))
    assert matrix is domain.distances()
    assert matrix.dtype == np.float64
    with pytest.raises(ValueError, match="read-only"):
        matrix[0, 0] = 1
    for (i, a), (j, b) in itertools.product(enumerate(labels), repeat=2):
        assert domain.distance(a, b) == matrix[i, j]
    assert domain.diameter == matrix.max()
    assert (np.diag(matrix) == 0).all()
    for size in range(1, len(labels) + 1):
        for some in itertools.combinations(labels, size):
            width = domain.width(domain.generalise(list(some) * 2))
            assert 0 <= width <= 1
            assert (width == 0) == (size == 1)
            if domain.kind != "category":
                codes = domain.codes(some)
                assert width == pytest.approx(matrix[np.ix_(codes, codes)].max() / domain.diameter)
    assert domain.width(domain.generalise(labels)) == 1


@pytest.mark.parametrize("domain", CODED, ids=repr)
def test_coded_values_outside(domain: CodedDomain) -> None:
    label = domain.labels[0]
    values = np.array([label, "secret", None, math.nan, 1, label], dtype=object)
    assert domain.contains(values).tolist() == [True, False, False, False, False, True]
    assert domain.contains([]).shape == (0,)
    for ask in (domain.codes, domain.generalise):
        message = str(refusal(ParameterError, ask, values))
        assert "4" in message, "how many"
        assert "secret" not in message
    refused(domain.generalise, [[]])


@pytest.mark.parametrize("domain", CODED, ids=repr)
def test_distances_between_some_labels(domain: CodedDomain) -> None:
    for size in range(1, len(domain.labels) + 1):
        for some in itertools.combinations(range(len(domain.labels)), size):
            codes = np.array(some)
            assert (domain.distances_between(codes) == domain.distances()[np.ix_(codes, codes)]).all()


def test_limits_and_descriptions_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domains, "MOST_IN_MATRIX", 2)
    three = Category(values=["a", "b", "c"])
    assert three.distances_between(np.array([0, 2])).tolist() == [[0, 1], [1, 0]]
    line = Graph(edges=[("a", "b"), ("b", "c")])
    refused(lambda ask: ask(), [three.distances, lambda: line.diameter], "2")
    numeric = {"kind": "numeric", "lower": 0}
    cases = [Named({}, ("kind",)), Named({"kind": ["tree"]}, ("kind",)), {"kind": "tree"}]
    refused(domain_from, [*cases, Named(numeric, ("upper",)), Named({**numeric, "upper": 1, "step": 1}, ("step",))])


@settings(max_examples=200, deadline=None)
@given(
    lower=st.fractions() | st.floats(-1e300, 1e300) | st.integers() | st.decimals(-100, 100),
    extent=st.fractions(min_value="1/1000", max_value=10**6) | st.floats(1e-3, 1e300),
)
def test_numeric_round_trip(lower: Fraction | float | Decimal, extent: Fraction | float) -> None:
    exact = Fraction(Decimal(repr(lower))) if isinstance(lower, float) else Fraction(lower)
    upper = exact + (Fraction(Decimal(repr(extent))) if isinstance(extent, float) else extent)
    if not float(exact) < float(upper):
        return
    domain = Numeric(lower=lower, upper=upper)
    assert domain.lower == exact
    described = json.loads(json.dumps(domain.describe()))
    assert domain_from(described) == domain
    assert isinstance(described["lower"], int) == (exact.denominator == 1)


def test_numeric_values() -> None:
    tenth = Fraction(1, 10)
    for given_ in (0.1, "0.1", "1/10", Decimal("0.1"), tenth, np.float64(0.1)):
        assert Numeric(lower=given_, upper=1).lower == tenth
    assert Numeric(lower=np.int64(3), upper=4).lower == 3  # type: ignore[arg-type]
    described = Numeric(lower="1/3", upper=500, resolution=None).describe()
    expected = {"kind": "numeric", "lower": "1/3", "upper": 500, "resolution": None, "unit": "", "doubling": None}
    assert described == expected
    domain = Numeric(lower=0.1, upper=12.3, unit="kg")
    values = np.array([0.1, 12.3, np.nextafter(0.1, 0), np.nextafter(12.3, 13), np.nan, np.inf, -np.inf])
    assert domain.contains(values).tolist() == [True, True] + [False] * 5
    assert domain.clamp(values).tolist()[:4] == [0.1, 12.3, 0.1, 12.3]
    assert np.isnan(domain.clamp(values)[4])
    assert domain.clamp(values).tolist()[5:] == [12.3, 0.1]
    assert domain.contains(np.array([1, 13])).tolist() == [True, False]
    assert domain.contains(np.array([Decimal("0.1"), None], dtype=object)).tolist() == [True, False]
    assert domain.distance(1, 3.5) == domain.distance(3.5, 1) == 2.5
    assert domain.generalise([3, 1, 2]) == (1.0, 3.0)
    assert domain.width((0.1, 12.3)) == 1
    assert domain.width((2.0, 2.0)) == 0
    assert domain.diameter == domain.span == 12.3 - 0.1
    domain = Numeric(lower=0, upper=1)
    refused(domain.generalise, [[], [0.5, math.nan]])
    refused(domain.width, [(1.0, 0.0)])
    refused(lambda ask: ask([0]), [domain.steps_below, domain.steps_above, domain.grid_values, domain.on_grid])
    refused(Numeric(lower=0, upper=1, resolution=1).steps_below, [[math.nan]])
    with pytest.raises(ParameterError) as caught:
        domain.contains(["secret"])
    assert "secret" not in str(caught.value)


def test_numeric_refuses() -> None:
    bad = {
        "upper": [math.inf, "ten", "1/0", True, None, [1], "1e999999999", 10**800, 10**5000, "9" * 1500],
        "lower": [1, math.nan],
        "unit": [3],
        "resolution": [-0.1, "1e-16"],
        "doubling": [0, "wide"],
    }
    for name, values in bad.items():
        refused(lambda value, name=name: Numeric(**{"lower": 0, "upper": 1, name: value}), values, name)
    doubles = [(0, 10**350), (10**20, 10**20 + 1), (0, "1e-390")]
    refused(lambda ends: Numeric(lower=ends[0], upper=ends[1]), doubles)
    cases = [
        Named((1, 1.75, 0.1, None), ("1.7", "1.8")),
        (2**52, 2**52 + 2, 1, None),
        Named((10**15, 10**15 + 1, None, "0.01"), ("doubling",)),
    ]
    refused(lambda of: Numeric(lower=of[0], upper=of[1], resolution=of[2], doubling=of[3]), cases)


def test_a_tenth_is_on_a_grid_of_tenths() -> None:
    domain = Numeric(lower=0, upper=500, resolution=0.1)
    assert 0.3 / 0.1 != 3
    assert domain.num_steps == 5000
    points = domain.grid_values(np.arange(5001))
    assert points.tolist() == [float(f"{i // 10}.{i % 10}") for i in range(5001)]
    assert domain.on_grid(points).all()
    assert domain.steps_below(points).tolist() == domain.steps_above(points).tolist() == list(range(5001))
    off = np.concatenate([np.nextafter(points[:-1], np.inf), np.nextafter(points[1:], -np.inf)])
    assert not domain.on_grid(off).any()
    assert not domain.on_grid([np.nan, np.inf, -0.1, 500.1]).any()
    domain = Numeric(lower=-1, upper=1, resolution=0.5)
    values = [-np.inf, -1.2, -1.0, 1.0, 1.2, np.inf]
    assert domain.steps_below(values).tolist() == [-1, -1, 0, 4, 4, 4]
    assert domain.steps_above(values).tolist() == [0, 0, 0, 4, 5, 5]


@st.composite
def grids(draw: st.DrawFn) -> Numeric:
    scale = draw(st.sampled_from([1, 3, 7, 10, 100, 10**3, 10**6, 10**9, 2**20, 10**15]))
    first = draw(st.integers(-(2**52) + 1, 2**52 - 2) | st.integers(-1000, 1000))
    step = draw(st.integers(1, 2000))
    most = (2**52 - 1 - first) // step
    if most < 1:
        first, most = 0, 1000
    num_steps = draw(st.integers(1, most) | st.integers(1, min(1000, most)))
    lower, resolution = Fraction(first, scale), Fraction(step, scale)
    return Numeric(lower=lower, upper=lower + num_steps * resolution, resolution=resolution)


@settings(max_examples=250, deadline=None)
@given(domain=grids(), data=st.data())
def test_grid_against_fractions(domain: Numeric, data: st.DataObject) -> None:
    resolution, num_steps = domain.resolution, domain.num_steps
    assert resolution is not None
    assert domain.lower + num_steps * resolution == domain.upper

    def point(step: int) -> float:
        return float(domain.lower + step * resolution)  # correctly rounded

    step = data.draw(st.integers(0, num_steps) | st.sampled_from([0, num_steps]))
    at = point(step)
    steps = np.array([step])
    assert domain.grid_values(steps).tolist() == [at]
    assert point(step - 1) < at < point(step + 1)
    inside = data.draw(st.floats(domain.lower_float, domain.upper_float))
    for value in (at, math.nextafter(at, math.inf), math.nextafter(at, -math.inf), inside):
        if not domain.lower_float <= value <= domain.upper_float:
            continue
        (below,) = domain.steps_below([value]).tolist()
        (above,) = domain.steps_above([value]).tolist()
        assert point(below) <= value
        assert below == num_steps or value < point(below + 1)
        assert point(above) >= value
        assert above == 0 or value > point(above - 1)
        assert domain.on_grid([value]).tolist() == [point(below) == value]


def test_decimal_scale() -> None:
    fit = [([], 1), ([1, 2, -3], 1), ([12.3, 4], 10), ([12.3, 4.05, -0.0], 100), ([1e-9], 10**9), ([2.0**53 - 1], 1)]
    for values, scale in [*fit, ([1.0] * 4999 + [0.25], 100)]:
        assert decimal_scale(np.array(values)) == scale
    for value in (0.1 + 0.2, 1 / 3, 1e-10, 1e300, 2.0**53, math.nan, math.inf):
        assert decimal_scale(np.array([1.0, value])) is None


@settings(max_examples=250, deadline=None)
@given(
    integers=st.lists(st.integers(-(2**53) + 1, 2**53 - 1) | st.integers(-9999, 9999), min_size=1, max_size=3),
    decimals=st.integers(0, 12),
)
def test_decimal_scale_against_fractions(integers: list[int], decimals: int) -> None:
    values = [float(Fraction(integer, 10**decimals)) for integer in integers]

    def fits(value: float, scale: int) -> bool:
        around = round(Fraction(value) * scale)
        return any(abs(n) < 2**53 and float(Fraction(n, scale)) == value for n in range(around - 3, around + 4))

    scales = [10**d for d in range(10) if all(fits(value, 10**d) for value in values)]
    assert decimal_scale(np.array(values)) == (scales[0] if scales else None)
    if decimals <= 9:
        assert scales


def test_ordinal_and_category() -> None:
    domain = Ordinal(levels=("low", "middle", "high", "top"))
    assert domain.labels == ("low", "middle", "high", "top")
    assert domain.distance("top", "middle") == 2
    assert domain.generalise(["high", "low", "high"]) == ("low", "high")
    assert domain.width(("middle", "top")) == 2 / 3
    refused(domain.width, [("top", "low")])
    colours = Category(values=["red", "green", "blue"])
    assert colours == Category(values=["blue", "red", "green"])
    assert (colours.distance("red", "red"), colours.distance("red", "blue")) == (0, 1)
    assert colours.generalise(["red", "blue", "red"]) == ("blue", "red")
    assert colours.width(("blue", "red")) == colours.width(frozenset(["blue", "red"])) == 1 / 2
    assert Category(values=["1", "2"]).contains(np.array([1, "2"], dtype=object)).tolist() == [False, True]
    for single in (Ordinal(levels=["only"]), Category(values=["only"])):
        assert single.diameter == single.width(single.generalise(["only"])) == 0
        assert single.distances().tolist() == [[0]]
    wrong = [[], Named("abc", ("abc",)), 3, Named(["a", 3], ("3",)), ["a", ""], Named(["a", "b", "a"], ("'a'",))]
    refused(lambda labels: Ordinal(levels=labels), wrong, "levels")
    refused(lambda labels: Category(values=labels), wrong, "values")


def test_trees_by_hand() -> None:
    """Bhati's example 7, and the widths of its equation 20."""
    assert PASSENGERS.root == "Person"
    assert set(PASSENGERS.labels) == {"Adult", "Senior Citizen", "Child/Student"}
    assert PASSENGERS.distance("Senior Citizen", "Child/Student") == 2 - 1
    assert PASSENGERS.distance("Adult", "Child/Student") == PASSENGERS.diameter == 3 - 1
    assert PASSENGERS.distance("Adult", "Adult") == 0
    assert PASSENGERS.generalise(["Senior Citizen", "Child/Student"]) == "Not Adult"
    assert PASSENGERS.generalise(["Senior Citizen", "Adult"]) == "Person"
    assert PASSENGERS.generalise(["Adult", "Adult"]) == "Adult"
    assert [PASSENGERS.width(node) for node in ("Adult", "Not Adult", "Person")] == [0, 0.5, 1]
    assert PASSENGERS.levels("Adult") == ("Adult", "Adult", "Person")
    assert PASSENGERS.levels("Child/Student") == ("Child/Student", "Not Adult", "Person")
    assert not PASSENGERS.contains(["Not Adult"]).any()
    refused(PASSENGERS.width, ["Nobody"])
    rows = [PASSENGERS.levels(leaf) for leaf in ("Senior Citizen", "Adult", "Child/Student")]
    tree = Tree.from_levels(rows)
    assert (tree.parents, tree.labels) == (PASSENGERS.parents, PASSENGERS.labels)
    assert tree == Tree.from_levels(rows[::-1])
    assert tree.num_levels == PASSENGERS.num_levels == 3
    kept = Tree.from_levels([["a", "A", "A", "*"], ["b", "B", "A", "*"], ["c", "*", "*", "*"]])
    assert dict(kept.parents) == {"a": "A", "b": "B", "B": "A", "A": "*", "c": "*"}
    assert kept.levels("a") == ("a", "A", "A", "*")
    assert Tree(parents=dict(kept.parents)).levels("a") == ("a", "a", "A", "*")
    assert kept.levels("c") == ("c", "*", "*", "*")
    assert kept.generalise(["a", "b"]) == "A"
    one = Tree.from_levels([["a", "*"]])
    assert one.width("*") == one.width("a") == one.diameter == 0
    deep = {f"leaf{i}": f"node{i}" for i in range(3000)} | {f"node{i}": f"node{i + 1}" for i in range(2999)}
    tree = Tree(parents=deep)
    assert tree.distance("leaf0", "leaf2999") == 2999
    wide = Tree(parents={f"leaf{i}": f"node{i // 10}" for i in range(10_000)} | {f"node{i}": "*" for i in range(1000)})
    assert wide.distance("leaf7", "leaf9") == 9
    values = np.array(random.Random(0).choices(wide.labels, k=200_000), dtype=object)
    assert wide.contains(values).all()
    assert wide.generalise(values) == "*"


@st.composite
def parent_maps(draw: st.DrawFn) -> dict[str, str]:
    num_nodes = draw(st.integers(2, 25))
    names = draw(st.permutations([f"n{node}" for node in range(num_nodes)]))
    return {names[node]: names[draw(st.integers(0, node - 1))] for node in range(1, num_nodes)}


@settings(max_examples=150, deadline=None)
@given(parents=parent_maps(), data=st.data())
def test_tree_against_walking_up(parents: dict[str, str], data: st.DataObject) -> None:
    tree = Tree(parents=parents)

    def path(node: str) -> list[str]:
        return [node, *path(parents[node])] if node in parents else [node]

    leaves = sorted(parents.keys() - set(parents.values()))
    below = {node: {leaf for leaf in leaves if node in path(leaf)} for node in {*parents, tree.root}}

    def ancestor(some: list[str]) -> str:
        return next(node for node in path(some[0]) if below[node].issuperset(some))

    assert sorted(tree.labels) == leaves
    for node, found in below.items():
        codes = sorted(tree.codes(list(found)).tolist())
        assert codes == list(range(codes[0], codes[0] + len(codes)))
        assert tree.width(node) == (len(found) - 1) / max(len(leaves) - 1, 1)
    matrix = tree.distances()
    for (i, a), (j, b) in itertools.product(enumerate(tree.labels), repeat=2):
        assert matrix[i, j] == tree.distance(a, b) == len(below[ancestor([a, b])]) - 1
    some = data.draw(st.lists(st.sampled_from(leaves), min_size=1))
    assert tree.generalise(some) == ancestor(some)
    again = Tree.from_levels([tree.levels(leaf) for leaf in tree.labels])
    assert (again.labels, again.parents) == (tree.labels, tree.parents)
    for either in (tree, again):
        assert domain_from(json.loads(json.dumps(either.describe()))) == either
        check_levels(either)


def check_levels(tree: Tree) -> None:
    """Each level is a coarser partition than the one before, of ancestors."""
    rows = [tree.levels(leaf) for leaf in tree.labels]
    assert {len(row) for row in rows} == {tree.num_levels}
    assert [row[0] for row in rows] == list(tree.labels)
    assert {row[-1] for row in rows} == {tree.root}
    for level in range(tree.num_levels - 1):
        steps = {(row[level], row[level + 1]) for row in rows}
        assert len(steps) == len({label for label, _ in steps})
        assert all(low == high or dict(tree.parents)[low] == high for low, high in steps)


def test_trees_refused(tmp_path: Path) -> None:
    parents = [
        *({}, "ab", 3, ["ab"]),
        Named({"a": 3}, ("3",)),
        Named([("a", "*"), ("a", "b")], ("'a'", "'*'", "'b'")),
        Named({"a": "x", "b": "y"}, ("'x'", "'y'")),
        Named({"a": "a"}, ("'a' -> 'a'",)),
        Named({"z": "*", "a": "b", "b": "c", "c": "b"}, ("'b' -> 'c'",)),
    ]
    refused(lambda of: Tree(parents=of), parents)
    refused(Tree.from_levels, ["ab", 3, ["ab"], Named([["a", 3]], ("1", "3")), [["a", "a"]]])
    refused(lambda of: Tree(parents=of, rows=[["a", "*"]]), [{"a": "b"}])
    path = tmp_path / "types.csv"
    for rows, line, words in (
        ([["a", "A", "*"], ["b", "*"]], 2, "3 2"),
        ([["a"]], 1, "2"),
        ([["a", "", "*"]], 1, "1"),
        ([["a", "A", "*"], ["b", "B", "*"], ["a", "A", "*"]], 3, "'a'"),
        ([["a", "A", "*"], ["b", "B", "all"]], 2, "'*' 'all'"),
        ([["a", "X", "A", "*"], ["b", "X", "B", "*"]], 2, "'X' 1 'B' 'A'"),
        ([["a", "X", "*", "*"], ["b", "B", "X", "*"]], 2, "'X' 2 1"),
        ([["a", "X", "a", "*"]], 1, "'a' 2"),
        ([["a", "a", "*"], ["b", "a", "*"]], 2, "'a' 'b'"),
    ):
        refused(Tree.from_levels, [rows], str(line), *words.split())
        path.write_text("\n" + "\n".join(";".join(row) for row in rows))  # one blank line on top
        with pytest.raises(InputError) as caught:
            Tree.from_csv(path)
        assert all(word in str(caught.value) for word in ("types.csv", f"line {line + 1}", *words.split())), rows


def test_graphs_by_hand() -> None:
    """Bhati's example 8: A and B are neighbours, A and D two hops apart."""
    stations = Graph(edges=[("A", "B"), ("B", "C"), ("B", "D")])
    assert stations.labels == ("A", "B", "C", "D")
    assert (stations.distance("A", "B"), stations.distance("A", "D"), stations.diameter) == (1, 2, 2)
    assert stations.generalise(["D", "A", "D"]) == ("A", "D")
    assert (stations.width(("A", "B")), stations.width(["C"])) == (0.5, 0)
    # A grid of 25 x 40 streets, in shuffled order, has Manhattan distances.
    places = list(itertools.product(range(25), range(40)))
    edges = [(f"{x},{y}", f"{u},{v}") for x, y in places for u, v in ((x + 1, y), (x, y + 1)) if u < 25 and v < 40]
    random.Random(0).shuffle(edges)
    graph = Graph(edges=edges)
    at = np.array([[int(part) for part in label.split(",")] for label in graph.labels])
    assert (graph.distances() == np.abs(at[:, None] - at).sum(axis=2)).all()
    assert graph.diameter == 24 + 39
    # The longest and the shortest lengths there may be, thirds and sevenths: no sum overflows, none is nothing.
    lengths = ["1e12", "1e-12", "1/3", "1/7", "1e12"]
    graph = Graph(edges=[(f"v{i}", f"v{i + 1}", length) for i, length in enumerate(lengths)])
    assert graph.diameter == pytest.approx(2e12)
    assert graph.distance("v0", "v1") == 1e12
    assert 0 < graph.distance("v1", "v2") < 1e-5
    assert graph.distance("v2", "v4") == pytest.approx(1 / 3 + 1 / 7, abs=1e-5)
    assert np.isfinite(graph.distances() ** 2).all()
    tenths = Graph(edges=[("a", "b", 0.1), ("b", "c", 0.2)])
    assert tenths.distance("a", "c") == tenths.distance("c", "a") == 0.3 != 0.1 + 0.2
    # Lengths of 17 digits have no common unit in 63 bits; rounded sums would depend on the direction.
    draw = random.Random(0)
    rounded = Graph(edges=[(f"v{i}", f"v{i + 1}", draw.random()) for i in range(200)])
    assert (rounded.distances() == rounded.distances().T).all()
    # Many denominators are soon given up.
    primes = [number for number in range(10**4, 10**4 + 2000) if all(number % d for d in range(2, 110))]
    long = Graph(edges=[(f"v{i}", f"v{i + 1}", Fraction(prime - 1, prime)) for i, prime in enumerate(primes)])
    assert long.diameter == pytest.approx(math.fsum((prime - 1) / prime for prime in primes), rel=1e-12)
    assert Graph(edges=[("a", "b"), ("b", "a", 1.0), ("a", "b", "1")]) == Graph(edges=[["a", "b"]])


@st.composite
def edge_lists(draw: st.DrawFn, *, directed: bool) -> list[tuple[str, str, int | float | Fraction]]:
    num_vertices = draw(st.integers(2, 9))
    tenths, third = st.integers(1, 99).map(lambda n: n / 10), st.just(Fraction(1, 3))
    kinds: list[Any] = [st.just(1), st.integers(1, 5), tenths, st.floats(1e-3, 1e3), third]
    lengths = draw(st.sampled_from(kinds))
    # A spanning tree or a ring makes it connected; the others come on top.
    ends = {(draw(st.integers(0, end - 1)), end) for end in range(1, num_vertices)}
    if directed:
        ends |= {(i, (i + 1) % num_vertices) for i in range(num_vertices)}
    vertices = st.integers(0, num_vertices - 1)
    more = draw(st.sets(st.tuples(vertices, vertices), max_size=12))
    ends |= {(a, b) for a, b in more if a != b and (directed or a < b)}
    return [(f"v{a}", f"v{b}", draw(lengths)) for a, b in sorted(ends)]


@pytest.mark.parametrize("directed", [False, True])
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_graph_against_floyd_and_warshall(directed: bool, data: st.DataObject) -> None:
    edges = data.draw(edge_lists(directed=directed))
    graph = Graph(edges=edges, directed=directed)
    size = len(graph.labels)
    slow = {(a, b): Fraction(0) if a == b else Fraction(10**9) for a in graph.labels for b in graph.labels}
    for a, b, length in edges:
        exact = Fraction(Decimal(repr(length))) if isinstance(length, float) else Fraction(length)
        slow[a, b] = min(slow[a, b], exact)
        if not directed:
            slow[b, a] = slow[a, b]
    for via, a, b in itertools.product(graph.labels, repeat=3):
        slow[a, b] = min(slow[a, b], slow[a, via] + slow[via, b])
    matrix = graph.distances()
    for (i, a), (j, b) in itertools.product(enumerate(graph.labels), repeat=2):
        # Lengths that have no common unit are rounded to one: 2**-62 of the longest way.
        assert matrix[i, j] == pytest.approx(float(slow[a, b]), rel=1e-11)
        if all(length == round(float(length), 1) for _, _, length in edges):
            assert matrix[i, j] == float(slow[a, b])
    assert matrix.shape == (size, size)
    assert directed or (matrix == matrix.T).all()
    assert domain_from(json.loads(json.dumps(graph.describe()))) == graph
    assert Graph(edges=edges[::-1], directed=directed) == graph


def test_graphs_refused() -> None:
    edges = [
        *([], "ab", 3, ["ab"], [("a", "b", 1, 1)]),
        Named([("a", 3)], ("3",)),
        Named([("a", "a")], ("'a'",)),
        Named([("a", "b", -0.5)], ("-0.5", "'a'", "'b'")),
        Named([("a", "b", math.nan)], ("'a'", "'b'")),
        Named([("a", "b", "1e-13")], ("1e-12",)),
        Named([("a", "b", 1e308)], ("1e12",)),
        Named([("a", "b", 1), ("b", "a", 2)], ("1", "2", "'b'", "'a'")),
        Named([("a", "b"), ("c", "d"), ("d", "e")], ("'a'", "'c'")),
    ]
    refused(lambda of: Graph(edges=of), edges)
    refused(lambda of: Graph(edges=of, directed=True), [[("a", "b")], [("b", "a")]], "'a'", "'b'")
    refused(lambda of: Graph(edges=[("a", "b")], directed=of), [1], "directed")
    both = Graph(edges=[("a", "b", 1), ("b", "a", 2)], directed=True)
    assert both.distance("b", "a") == both.width(["a", "b"]) * both.diameter == 2


def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "types.csv"
    for text in ("a;A;*\nb;B;*\n", "a,A,*\r\n\r\nb,B,*", '\ufeff"a";"A";*\n"b";B;*\n'):
        path.write_bytes(text.encode())
        assert Tree.from_csv(path) == Tree.from_levels([["a", "A", "*"], ["b", "B", "*"]])
    for text, delimiter, labels in (
        ('"a;1",*\nb,*\n', None, ("a;1", "b")),
        ("a, or A;*\nb;*\n", None, ("a, or A", "b")),
        ("a|*\nb|*\n", "|", ("a", "b")),
    ):
        path.write_text(text)
        assert Tree.from_csv(path, delimiter=delimiter).labels == labels
    tree = Tree.from_levels([["a", "A", "*"], ["b", "B", "*"]])
    for header, column in (("type,group,all", ""), ("Type,group,*", "type")):  # names above the labels
        path.write_text(f"{header}\na,A,*\nb,B,*\n")
        assert Tree.from_csv(path, column=column) == tree
    for text in ("type,A,all\na,A,*\nb,B,*\n", "type,group,all\na,A,*\n", "type,group,all\na,A,*\nb,B,+\n"):
        path.write_text(text)  # the first line is a row with a mistake, or nobody can tell
        with pytest.raises(InputError):
            Tree.from_csv(path)
    path = tmp_path / "edges.csv"
    path.write_text("from,to,length\nA,B,0.1\nB,C,2\n")
    assert Graph.from_csv(path) == Graph(edges=[("A", "B", 0.1), ("B", "C", 2)])
    path.write_text("From;To\nA;B\nB;A\n")
    assert Graph.from_csv(path, directed=True) == Graph(edges=[("A", "B"), ("B", "A")], directed=True)
    path = tmp_path / "edges.csv"
    for text, *words in (
        ("A,B\nB,C\n", "line 1", "from,to"),
        ("from,to\nA,B,3\n", "line 2", "3"),
        ("from,to,length\nA,B,1\nB,C,x\n", "line 3", "'B'", "'C'", "'x'"),
        ("from,to\nA,B\nC,D\n", "'A'", "'C'"),
        ("from,to\n",),
        ("",),
        ("from,to\nA,\xff", "UTF-8"),
        ('from,to\nA,"' + "B" * 200_000 + '"\n', "line 2"),
    ):
        path.write_bytes(text.encode("latin-1"))
        with pytest.raises(InputError) as caught:
            Graph.from_csv(path)
        assert all(word in str(caught.value) for word in ("edges.csv", *words)), (text[:30], caught.value)
    path.write_text("a;A;*\n" * 31)
    with pytest.raises(InputError, match="10") as caught:  # all problems are listed, up to 20
        Tree.from_csv(path)
    assert len(caught.value.problems) == 21
    path.write_text("a;a\n")
    for unreadable in (path, tmp_path / "none.csv"):
        with pytest.raises(InputError, match=unreadable.name):
            Tree.from_csv(unreadable)
    path.write_text("a;*\n")
    Tree.from_csv(path)
    monkeypatch.setattr("dunnage.tables.reader.MAX_FILE_BYTES", 2)
    with pytest.raises(InputError, match=path.name):
        Tree.from_csv(path)


def test_hierarchies_by_hand() -> None:
    hierarchy = hierarchy_of(Numeric(lower=10, upper=100, doubling=20))
    assert isinstance(hierarchy, IntervalHierarchy)
    values = np.array([10.0, 29.9, 30.0, 89.9, 90.0, 100.0])
    assert hierarchy.num_levels == 5
    told = [list(zip(*(end.tolist() for end in hierarchy.bounds(values, level)), strict=True)) for level in range(5)]
    assert told[0] == [(value, value) for value in values]
    assert told[1] == [(10, 30), (10, 30), (30, 50), (70, 90), (90, 100), (90, 100)]
    assert told[2] == [(10, 50), (10, 50), (10, 50), (50, 90), (90, 100), (90, 100)]
    assert told[3] == [(10, 90)] * 4 + [(90, 100)] * 2
    assert told[4] == [(10, 100)] * 6
    for level in range(1, 5):
        widths = hierarchy.widths(values, level) / hierarchy.whole
        assert widths.tolist() == pytest.approx([(upper - lower) / 90 for lower, upper in told[level]])
    for doubling in (100, 90, "1e300"):
        two = hierarchy_of(Numeric(lower=10, upper=100, doubling=doubling))
        assert isinstance(two, IntervalHierarchy)
        assert two.num_levels == 2
        assert [end.tolist() for end in two.bounds(np.array([100.0]), 1)] == [[10.0], [100.0]]
    hierarchy = hierarchy_of(Tree(rows=[("a", "A", "*"), ("b", "A", "*"), ("c", "C", "*")]))
    assert isinstance(hierarchy, NodeHierarchy)
    assert [hierarchy.labels(level) for level in range(3)] == [["a", "b", "c"], ["A", "A", "C"], ["*", "*", "*"]]
    assert hierarchy.node_widths == {"a": 0, "b": 0, "c": 0, "A": 1, "C": 0, "*": 2}
    assert hierarchy.whole == 2
    ordinal = hierarchy_of(Ordinal(levels=("s", "m", "l")))
    assert isinstance(ordinal, NodeHierarchy)
    assert [ordinal.labels(level) for level in range(2)] == [["s", "m", "l"], ["*", "*", "*"]]
    assert (ordinal.node_widths, ordinal.whole) == ({"s": 0, "m": 0, "l": 0, "*": 1}, 1)
    single = hierarchy_of(Category(values=["only"]))
    assert single.num_levels == 1
    assert single.widths(np.array([0]), 0).tolist() == [0]
    chain = {f"n{i}": f"n{i + 1}" for i in range(5000)} | {f"leaf{i}": "n0" for i in range(5000)}
    flat, graph = Numeric(lower=0, upper=1), Graph(edges=[("a", "b")])
    refused(hierarchy_of, [Named(flat, ("doubling",)), graph, Category(values=["*", "x"]), Tree(parents=chain)])


@settings(max_examples=200, deadline=None)
@given(
    st.integers(-(10**6), 10**6),
    st.integers(1, 10**6),
    st.integers(1, 10**5),
    st.sampled_from([1, 10, 1000, 10**6]),
    st.data(),
)
def test_intervals_are_those_of_exact_arithmetic(low: int, length: int, step: int, scale: int, data: Any) -> None:
    lower, upper, doubling = (Fraction(number, scale) for number in (low, low + length, step))
    hierarchy = hierarchy_of(Numeric(lower=lower, upper=upper, doubling=doubling))
    assert isinstance(hierarchy, IntervalHierarchy)
    number = Fraction(data.draw(st.integers(low * 10, (low + length) * 10)), 10 * scale)
    value = np.array([float(number)])
    for level in range(1, hierarchy.num_levels):
        width = doubling * 2 ** (level - 1)
        last = -((lower - upper) // width) - 1
        start = lower + min((number - lower) // width, last) * width
        end = min(start + width, upper)
        assert [side.item() for side in hierarchy.bounds(value, level)] == [float(start), float(end)]
        assert Fraction(int(hierarchy.widths(value, level)[0]), hierarchy.whole) == (end - start) / (upper - lower)
    assert (start, end) == (lower, upper)


def test_levels_nest_for_every_kind() -> None:
    uneven = Tree(parents={"a": "A", "b": "A", "A": "X", "c": "X", "d": "*", "X": "*"})
    rows = Tree(rows=[("a", "A", "A", "*"), ("b", "b", "A", "*"), ("c", "C", "C2", "*")])
    numbers = np.linspace(0, 10, 300)
    cases: list[tuple[Any, Any]] = [(Numeric(lower=0, upper=10, doubling=0.7), numbers)]
    cases += [(tree, np.arange(len(tree.labels))) for tree in (uneven, rows)]
    cases += [(Category(values=list("uvw")), np.arange(3)), (Ordinal(levels=("s", "m", "l")), np.arange(3))]
    for domain, values in cases:
        hierarchy = hierarchy_of(domain)
        assert len(np.unique(hierarchy.groups(values, 0))) == len(values)
        for level in range(1, hierarchy.num_levels):
            below, above = hierarchy.groups(values, level - 1), hierarchy.groups(values, level)
            assert len({*zip(below.tolist(), above.tolist(), strict=True)}) == len(np.unique(below))
            assert (hierarchy.widths(values, level - 1) <= hierarchy.widths(values, level)).all()
        assert len(np.unique(hierarchy.groups(values, hierarchy.num_levels - 1))) == 1
        assert (hierarchy.widths(values, hierarchy.num_levels - 1) == hierarchy.whole).all()
