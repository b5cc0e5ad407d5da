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

from dunnage.errors import InputError, ParameterError
from dunnage.model import domains
from dunnage.model.domains import (
    Category,
    CodedDomain,
    Graph,
    IntervalHierarchy,
    NodeHierarchy,
    Numeric,
    Ordinal,
    Tree,
    decimal_scale,
    domain_from,
    hierarchy_of,
)

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


# --- every kind ----------------------------------------------------------------------------------------


def refused(make: Any, cases: list[tuple[Any, str]]) -> None:
    for given_, message in cases:
        with pytest.raises(ParameterError, match=message):
            make(given_)


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
        with pytest.raises(ParameterError, match=r"4 that are not, the first at position 1") as caught:
            ask(values)
        assert "secret" not in str(caught.value)
    with pytest.raises(ParameterError, match="Got none"):
        domain.generalise([])


@pytest.mark.parametrize("domain", CODED, ids=repr)
def test_distances_between_some_labels(domain: CodedDomain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domains, "_MAX_AT_ONCE", 2 * len(domain.labels))
    for size in range(1, len(domain.labels) + 1):
        for some in itertools.combinations(range(len(domain.labels)), size):
            codes = np.array(some)
            assert (domain.distances_between(codes) == domain.distances()[np.ix_(codes, codes)]).all()


def test_matrix_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domains, "MOST_IN_MATRIX", 2)
    with pytest.raises(ParameterError, match="at most 2 labels"):
        Category(values=["a", "b", "c"]).distances()
    assert Category(values=["a", "b", "c"]).distances_between(np.array([0, 2])).tolist() == [[0, 1], [1, 0]]
    with pytest.raises(ParameterError, match="at most 2 labels"):
        _ = Graph(edges=[("a", "b"), ("b", "c")]).diameter


def test_domain_from_refuses() -> None:
    refused(
        domain_from,
        [
            ({}, "kind must be one of numeric, ordinal, category, tree, graph"),
            ({"kind": ["tree"]}, "kind must be"),
            ({"kind": "numeric", "lower": 0}, "Give upper"),
            ({"kind": "numeric", "lower": 0, "upper": 1, "step": 1}, "Got step besides"),
            ({"kind": "tree"}, "Got no entry"),
        ],
    )


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


# --- numeric -------------------------------------------------------------------------------------------


def test_numbers_are_read_as_written() -> None:
    tenth = Fraction(1, 10)
    for given_ in (0.1, "0.1", "1/10", Decimal("0.1"), tenth, np.float64(0.1)):
        assert Numeric(lower=given_, upper=1).lower == tenth
    assert Numeric(lower=np.int64(3), upper=4).lower == 3  # type: ignore[arg-type]
    described = Numeric(lower="1/3", upper=500, resolution=None).describe()
    expected = {"kind": "numeric", "lower": "1/3", "upper": 500, "resolution": None, "unit": "", "doubling": None}
    assert described == expected


def test_numeric_refuses() -> None:
    uppers = (math.inf, "ten", "1/0", True, None, [1], "1e999999999", 10**800)
    refused(lambda upper: Numeric(lower=0, upper=upper), [(upper, "upper must be a") for upper in uppers])
    refused(
        lambda parameters: Numeric(**{"lower": 0, "upper": 1, **parameters}),
        [
            ({"lower": 1}, "lower must be below upper. Got 1 and 1"),
            ({"lower": math.nan}, "lower must be a finite number. Got nan"),
            ({"upper": 10**5000}, "a very long number"),
            ({"upper": "9" * 1500}, r"9\.\.\."),
            ({"upper": 10**350}, "different finite doubles"),
            ({"lower": 10**20, "upper": 10**20 + 1}, "different finite doubles"),
            ({"upper": "1e-390"}, "different finite doubles"),
            ({"unit": 3}, "unit must be text"),
            ({"resolution": -0.1}, "resolution must be above 0. Got -0.1"),
            ({"lower": 1, "upper": 1.75, "resolution": 0.1}, "upper to 1.7 or 1.8"),
            ({"resolution": "1e-16"}, "too fine"),
            ({"lower": 2**52, "upper": 2**52 + 2, "resolution": 1}, "too fine"),
            ({"doubling": 0}, "doubling must be above 0. Got 0"),
            ({"lower": 10**15, "upper": 10**15 + 1, "doubling": "0.01"}, "too narrow"),
            ({"doubling": "wide"}, "doubling must be a finite number"),
        ],
    )


def test_numeric_range() -> None:
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


def test_numeric_misuse() -> None:
    domain = Numeric(lower=0, upper=1)
    for wrong in ([], [0.5, math.nan]):
        with pytest.raises(ParameterError, match="one or more numbers"):
            domain.generalise(wrong)
    with pytest.raises(ParameterError, match="lower bound first"):
        domain.width((1.0, 0.0))
    with pytest.raises(ParameterError, match="takes numbers") as caught:
        domain.contains(["secret"])
    assert "secret" not in str(caught.value)
    for asked in (domain.steps_below, domain.steps_above, domain.grid_values, domain.on_grid):
        with pytest.raises(ParameterError, match="Give it a resolution"):
            asked([0])
    with pytest.raises(ParameterError, match="NaN has no place"):
        Numeric(lower=0, upper=1, resolution=1).steps_below([math.nan])


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


def test_steps_outside_the_domain() -> None:
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
    scales = [
        ([], 1),
        ([1, 2, -3], 1),
        ([12.3, 4], 10),
        ([12.3, 4.05, -0.0], 100),
        ([0.1 + 0.2], None),
        ([1 / 3], None),
    ]
    scales += [([1e-9], 10**9), ([1e-10], None), ([1e300], None), ([2.0**53], None), ([2.0**53 - 1], 1)]
    scales += [([1.0, np.nan], None), ([1.0, np.inf], None), ([1.0] * 4999 + [0.25], 100)]
    for values, scale in scales:
        assert decimal_scale(np.array(values)) == scale
    assert decimal_scale(np.array([1.5]), largest=0) is None
    for wrong in (-1, 23):
        with pytest.raises(ParameterError, match="0 to 22"):
            decimal_scale([1.0], largest=wrong)


@settings(max_examples=250, deadline=None)
@given(
    integers=st.lists(st.integers(-(2**53) + 1, 2**53 - 1) | st.integers(-9999, 9999), min_size=1, max_size=3),
    decimals=st.integers(0, 9),
    largest=st.integers(0, 9),
)
def test_decimal_scale_against_fractions(integers: list[int], decimals: int, largest: int) -> None:
    values = [float(Fraction(integer, 10**decimals)) for integer in integers]

    def fits(value: float, scale: int) -> bool:
        around = round(Fraction(value) * scale)
        return any(abs(n) < 2**53 and float(Fraction(n, scale)) == value for n in range(around - 3, around + 4))

    scales = [10**d for d in range(largest + 1) if all(fits(value, 10**d) for value in values)]
    assert decimal_scale(np.array(values), largest) == (scales[0] if scales else None)
    if largest >= decimals:
        assert scales


# --- ordinal and category ------------------------------------------------------------------------------


def test_ordinal() -> None:
    domain = Ordinal(levels=("low", "middle", "high", "top"))
    assert domain.labels == ("low", "middle", "high", "top")
    assert domain.distance("top", "middle") == 2
    assert domain.generalise(["high", "low", "high"]) == ("low", "high")
    assert domain.width(("middle", "top")) == 2 / 3
    with pytest.raises(ParameterError, match="higher one first"):
        domain.width(("top", "low"))


def test_category() -> None:
    domain = Category(values=["red", "green", "blue"])
    assert domain == Category(values=["blue", "red", "green"])
    assert domain.distance("red", "red") == 0
    assert domain.distance("red", "blue") == 1
    assert domain.generalise(["red", "blue", "red"]) == ("blue", "red")
    assert domain.width(("blue", "red")) == domain.width(frozenset(["blue", "red"])) == 1 / 2


def test_one_value() -> None:
    for domain in (Ordinal(levels=["only"]), Category(values=["only"])):
        assert domain.diameter == domain.width(domain.generalise(["only"])) == 0
        assert domain.distances().tolist() == [[0]]
    assert Category(values=["1", "2"]).contains(np.array([1, "2"], dtype=object)).tolist() == [False, True]


def test_labels_refused() -> None:
    cases: list[tuple[Any, str]] = [
        ([], "must not be empty"),
        ("abc", "must be a list of texts. Got 'abc'"),
        (3, "must be a list of texts"),
        (["a", 3], "Got 3. Put numbers in quotes"),
        (["a", ""], "not empty"),
        (["a", "b", "a"], "Got 'a' twice"),
    ]
    refused(lambda labels: Ordinal(levels=labels), [(labels, f"levels .*{message}") for labels, message in cases])
    refused(lambda labels: Category(values=labels), [(labels, f"values .*{message}") for labels, message in cases])


# --- trees ---------------------------------------------------------------------------------------------


def test_passenger_types() -> None:
    """Bhati's example 7, and the widths of its equation 20."""
    assert PASSENGERS.root == "Person"
    assert set(PASSENGERS.labels) == {"Adult", "Senior Citizen", "Child/Student"}
    assert PASSENGERS.distance("Senior Citizen", "Child/Student") == 2 - 1
    assert PASSENGERS.distance("Adult", "Child/Student") == 3 - 1
    assert PASSENGERS.distance("Adult", "Adult") == 0
    assert PASSENGERS.diameter == 2
    assert PASSENGERS.generalise(["Senior Citizen", "Child/Student"]) == "Not Adult"
    assert PASSENGERS.generalise(["Senior Citizen", "Adult"]) == "Person"
    assert PASSENGERS.generalise(["Adult", "Adult"]) == "Adult"
    assert [PASSENGERS.width(node) for node in ("Adult", "Not Adult", "Person")] == [0, 0.5, 1]
    assert PASSENGERS.levels("Adult") == ("Adult", "Adult", "Person")
    assert PASSENGERS.levels("Child/Student") == ("Child/Student", "Not Adult", "Person")
    assert not PASSENGERS.contains(["Not Adult"]).any()
    with pytest.raises(ParameterError, match="label of a node"):
        PASSENGERS.width("Nobody")


def test_rows_and_parents_give_the_same_tree() -> None:
    rows = [
        ["Senior Citizen", "Not Adult", "Person"],
        ["Adult", "Adult", "Person"],
        ["Child/Student", "Not Adult", "Person"],
    ]
    tree = Tree.from_levels(rows)
    assert tree.parents == PASSENGERS.parents
    assert tree.labels == PASSENGERS.labels
    assert tree == Tree.from_levels(rows[::-1])
    assert all(tree.levels(leaf) == PASSENGERS.levels(leaf) for leaf in tree.labels)
    assert tree.num_levels == PASSENGERS.num_levels == 3


def test_rows_keep_their_levels() -> None:
    tree = Tree.from_levels([["a", "A", "A", "*"], ["b", "B", "A", "*"], ["c", "*", "*", "*"]])
    assert dict(tree.parents) == {"a": "A", "b": "B", "B": "A", "A": "*", "c": "*"}
    assert tree.levels("a") == ("a", "A", "A", "*")
    assert Tree(parents=dict(tree.parents)).levels("a") == ("a", "a", "A", "*")
    assert tree.levels("c") == ("c", "*", "*", "*")
    assert tree.generalise(["a", "b"]) == "A"


def test_one_leaf() -> None:
    tree = Tree.from_levels([["a", "*"]])
    assert tree.width("*") == tree.width("a") == tree.diameter == 0


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
    assert domain_from(json.loads(json.dumps(tree.describe()))) == tree
    check_levels(tree)


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


@settings(max_examples=100, deadline=None)
@given(parents=parent_maps())
def test_levels_make_the_tree_again(parents: dict[str, str]) -> None:
    tree = Tree(parents=parents)
    again = Tree.from_levels([tree.levels(leaf) for leaf in tree.labels])
    assert again.labels == tree.labels
    assert again.parents == tree.parents
    assert domain_from(json.loads(json.dumps(again.describe()))) == again
    check_levels(again)


def test_deep_and_wide_trees() -> None:
    deep = {f"leaf{i}": f"node{i}" for i in range(3000)} | {f"node{i}": f"node{i + 1}" for i in range(2999)}
    tree = Tree(parents=deep)
    assert tree.distance("leaf0", "leaf2999") == 2999
    wide = Tree(parents={f"leaf{i}": f"node{i // 10}" for i in range(10_000)} | {f"node{i}": "*" for i in range(1000)})
    assert wide.distance("leaf7", "leaf9") == 9
    values = np.array(random.Random(0).choices(wide.labels, k=200_000), dtype=object)
    assert wide.contains(values).all()
    assert wide.generalise(values) == "*"


def test_parents_refused() -> None:
    refused(
        lambda parents: Tree(parents=parents),
        [
            ({}, "Got no entry"),
            ("ab", "map each child"),
            (3, "map each child"),
            (["ab"], "pairs"),
            ({"a": 3}, "Got 3"),
            ([("a", "*"), ("a", "b")], "'a' has two parents, '\\*' and 'b'"),
            ({"a": "x", "b": "y"}, "one root. Got 2: 'x' and 'y'"),
            ({"a": "a"}, "'a' -> 'a' is part of a cycle"),
            ({"z": "*", "a": "b", "b": "c", "c": "b"}, "'b' is above itself: its entry 'b' -> 'c'"),
        ],
    )
    refused(
        Tree.from_levels,
        [
            ("ab", "rows must be a list of rows"),
            (3, "rows must be a list of rows"),
            (["ab"], "A row must be a list of labels"),
            ([["a", 3]], "level 1 must be text. Got 3"),
            ([["a", "a"]], "Got no entry"),
        ],
    )
    with pytest.raises(ParameterError, match="must agree"):
        Tree(parents={"a": "b"}, rows=[["a", "*"]])


BAD_ROWS = [
    ([["a", "A", "*"], ["b", "*"]], 2, "as many labels as the first, at least 2: the first has 3, this one 2"),
    ([["a"]], 1, "at least 2"),
    ([["a", "", "*"]], 1, "label at level 1 must be text"),
    ([["a", "A", "*"], ["b", "B", "*"], ["a", "A", "*"]], 3, "the leaf 'a' has an earlier row"),
    ([["a", "A", "*"], ["b", "B", "all"]], 2, "last label must be '\\*' as in the first row. Got 'all'"),
    ([["a", "X", "A", "*"], ["b", "X", "B", "*"]], 2, "not monotone: 'X' at level 1 becomes 'B' here and 'A'"),
    ([["a", "X", "*", "*"], ["b", "B", "X", "*"]], 2, "'X' means different things at levels 2 and 1"),
    ([["a", "X", "a", "*"]], 1, "'a' comes again at level 2, above another label"),
    ([["a", "a", "*"], ["b", "a", "*"]], 2, "'a' generalises 'b' but is a leaf itself"),
]


def test_rows_refused(tmp_path: Path) -> None:
    path = tmp_path / "types.csv"
    for rows, line, message in BAD_ROWS:
        with pytest.raises(ParameterError, match=f"Hierarchy row {line}: .*{message}"):
            Tree.from_levels(rows)
        path.write_text("\n" + "\n".join(";".join(row) for row in rows))  # one blank line on top
        with pytest.raises(InputError, match=f"types.csv.*\n?.*line {line + 1}: .*{message}"):
            Tree.from_csv(path)


# --- graphs --------------------------------------------------------------------------------------------


def test_stations() -> None:
    """Bhati's example 8: A and B are neighbours, A and D two hops apart."""
    stations = Graph(edges=[("A", "B"), ("B", "C"), ("B", "D")])
    assert stations.labels == ("A", "B", "C", "D")
    assert (stations.distance("A", "B"), stations.distance("A", "D"), stations.diameter) == (1, 2, 2)
    assert stations.generalise(["D", "A", "D"]) == ("A", "D")
    assert (stations.width(("A", "B")), stations.width(["C"])) == (0.5, 0)


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


def test_decimal_lengths_add_up() -> None:
    graph = Graph(edges=[("a", "b", 0.1), ("b", "c", 0.2)])
    assert 0.1 + 0.2 != 0.3
    assert graph.distance("a", "c") == graph.distance("c", "a") == 0.3


def test_rounded_lengths_are_symmetric() -> None:
    """Lengths of 17 digits have no common unit in 63 bits; rounded sums would depend on the direction."""
    draw = random.Random(0)
    graph = Graph(edges=[(f"v{i}", f"v{i + 1}", draw.random()) for i in range(200)])
    assert (graph.distances() == graph.distances().T).all()


def test_lengths_of_all_sizes_are_measured() -> None:
    """The longest and the shortest lengths there may be, thirds and sevenths: no sum overflows, none is nothing."""
    lengths = ["1e12", "1e-12", "1/3", "1/7", "1e12"]
    graph = Graph(edges=[(f"v{i}", f"v{i + 1}", length) for i, length in enumerate(lengths)])
    assert graph.diameter == pytest.approx(2e12)
    assert graph.distance("v0", "v1") == 1e12
    assert 0 < graph.distance("v1", "v2") < 1e-5
    assert graph.distance("v2", "v4") == pytest.approx(1 / 3 + 1 / 7, abs=1e-5)
    assert np.isfinite(graph.distances() ** 2).all()


def test_many_denominators_are_soon_given_up() -> None:
    primes = [number for number in range(10**4, 10**4 + 2000) if all(number % d for d in range(2, 110))]
    edges = [(f"v{i}", f"v{i + 1}", Fraction(prime - 1, prime)) for i, prime in enumerate(primes)]
    graph = Graph(edges=edges)
    assert graph.diameter == pytest.approx(math.fsum((prime - 1) / prime for prime in primes), rel=1e-12)


def test_repeated_edges_are_one_edge() -> None:
    assert Graph(edges=[("a", "b"), ("b", "a", 1.0), ("a", "b", "1")]) == Graph(edges=[["a", "b"]])


def test_large_graph() -> None:
    """A grid of 25 x 40 streets, in shuffled order, has Manhattan distances."""
    places = list(itertools.product(range(25), range(40)))
    edges = [(f"{x},{y}", f"{u},{v}") for x, y in places for u, v in ((x + 1, y), (x, y + 1)) if u < 25 and v < 40]
    random.Random(0).shuffle(edges)
    graph = Graph(edges=edges)
    at = np.array([[int(part) for part in label.split(",")] for label in graph.labels])
    assert (graph.distances() == np.abs(at[:, None] - at).sum(axis=2)).all()
    assert graph.diameter == 24 + 39


def test_edges_refused() -> None:
    refused(
        lambda edges: Graph(edges=edges),
        [
            ([], "one or more edges"),
            ("ab", "list of edges"),
            (3, "list of edges"),
            (["ab"], "An edge must be"),
            ([("a", "b", 1, 1)], "An edge must be"),
            ([("a", 3)], "Got 3"),
            ([("a", "a")], "join two vertices. Got the edge from 'a' to 'a'"),
            ([("a", "b", -0.5)], "above 0. Got -0.5 for the edge from 'a' to 'b'"),
            ([("a", "b", math.nan)], "length of the edge from 'a' to 'b' must be a finite number"),
            ([("a", "b", "1e-13")], "at least 1e-12"),
            ([("a", "b", 1e308)], "at most 1e12"),
            ([("a", "b", 1), ("b", "a", 2)], "Got 1 and 2 for the edge from 'b' to 'a'"),
            ([("a", "b"), ("c", "d"), ("d", "e")], "no path from 'a' to 'c'"),
        ],
    )


def test_directed_graphs_must_lead_back() -> None:
    with pytest.raises(ParameterError, match="no path from 'b' to 'a'"):
        Graph(edges=[("a", "b")], directed=True)
    with pytest.raises(ParameterError, match="no path from 'a' to 'b'"):
        Graph(edges=[("b", "a")], directed=True)
    both = Graph(edges=[("a", "b", 1), ("b", "a", 2)], directed=True)
    assert both.distance("b", "a") == both.width(["a", "b"]) * both.diameter == 2
    with pytest.raises(ParameterError, match="directed must be"):
        Graph(edges=[("a", "b")], directed=1)  # type: ignore[arg-type]


# --- files ---------------------------------------------------------------------------------------------


def test_tree_from_csv(tmp_path: Path) -> None:
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


def test_all_problems_of_a_file_are_listed(tmp_path: Path) -> None:
    path = tmp_path / "types.csv"
    path.write_text("a;A;*\n" + "a;A;*\n" * 30)
    with pytest.raises(InputError, match="and 10 more") as caught:
        Tree.from_csv(path)
    assert len(caught.value.problems) == 21


def test_graph_from_csv(tmp_path: Path) -> None:
    path = tmp_path / "edges.csv"
    path.write_text("from,to,length\nA,B,0.1\nB,C,2\n")
    assert Graph.from_csv(path) == Graph(edges=[("A", "B", 0.1), ("B", "C", 2)])
    path.write_text("From;To\nA;B\nB;A\n")
    assert Graph.from_csv(path, directed=True) == Graph(edges=[("A", "B"), ("B", "A")], directed=True)


def test_edge_files_refused(tmp_path: Path) -> None:
    path = tmp_path / "edges.csv"
    for text, message in (
        ("A,B\nB,C\n", "line 1: the header must be from,to"),
        ("from,to\nA,B,3\n", "line 2: there must be 2 cells as in the header. Got 3"),
        ("from,to,length\nA,B,1\nB,C,x\n", "line 3: The length of the edge from 'B' to 'C'.*Got 'x'"),
        ("from,to\nA,B\nC,D\n", "no path from 'A' to 'C'"),
        ("from,to\n", "one or more edges"),
        ("", "no lines"),
        ("from,to\nA,\xff", "not UTF-8"),
        ('from,to\nA,"' + "B" * 200_000 + '"\n', "line 2: this is not CSV"),
    ):
        path.write_bytes(text.encode("latin-1"))
        with pytest.raises(InputError, match=f"edges.csv: .*{message}"):
            Graph.from_csv(path)


def test_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        Tree.from_csv(tmp_path / "none.csv")
    path = tmp_path / "types.csv"
    path.write_text("a;a\n")
    with pytest.raises(InputError, match="Got no entry"):
        Tree.from_csv(path)
    monkeypatch.setattr("dunnage.tables.reader.MAX_FILE_BYTES", 2)
    with pytest.raises(InputError, match="larger than"):
        Tree.from_csv(path)


# Hierarchies


def test_intervals_double_up_to_the_whole_domain() -> None:
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


@pytest.mark.parametrize("doubling", [100, 90, "1e300"])
def test_a_first_width_of_the_whole_domain_leaves_two_levels(doubling: Any) -> None:
    hierarchy = hierarchy_of(Numeric(lower=10, upper=100, doubling=doubling))
    assert isinstance(hierarchy, IntervalHierarchy)
    assert hierarchy.num_levels == 2
    assert [end.tolist() for end in hierarchy.bounds(np.array([100.0]), 1)] == [[10.0], [100.0]]


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


def test_nodes_have_labels_and_widths() -> None:
    hierarchy = hierarchy_of(Tree(rows=[("a", "A", "*"), ("b", "A", "*"), ("c", "C", "*")]))
    assert isinstance(hierarchy, NodeHierarchy)
    assert [hierarchy.labels(level) for level in range(3)] == [["a", "b", "c"], ["A", "A", "C"], ["*", "*", "*"]]
    assert hierarchy.node_widths == {"a": 0, "b": 0, "c": 0, "A": 1, "C": 0, "*": 2}
    assert hierarchy.whole == 2
    ordinal = hierarchy_of(Ordinal(levels=("s", "m", "l")))
    assert isinstance(ordinal, NodeHierarchy)
    assert [ordinal.labels(level) for level in range(2)] == [["s", "m", "l"], ["*", "*", "*"]]
    assert (ordinal.node_widths, ordinal.whole) == ({"s": 0, "m": 0, "l": 0, "*": 1}, 1)


def test_a_single_value_has_nothing_to_generalise() -> None:
    hierarchy = hierarchy_of(Category(values=["only"]))
    assert hierarchy.num_levels == 1
    assert hierarchy.widths(np.array([0]), 0).tolist() == [0]


def test_what_has_no_hierarchy_says_why() -> None:
    with pytest.raises(ParameterError, match="Add doubling = WIDTH"):
        hierarchy_of(Numeric(lower=0, upper=1))
    with pytest.raises(ParameterError, match="A graph has no levels"):
        hierarchy_of(Graph(edges=[("a", "b")]))
    with pytest.raises(ParameterError, match="Rename the value"):
        hierarchy_of(Category(values=["*", "x"]))
    chain = {f"n{i}": f"n{i + 1}" for i in range(5000)} | {f"leaf{i}": "n0" for i in range(5000)}
    with pytest.raises(ParameterError, match="Use a coarser or shallower one"):
        hierarchy_of(Tree(parents=chain))
