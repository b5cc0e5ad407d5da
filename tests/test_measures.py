# SPDX-License-Identifier: Apache-2.0
"""Figures about classes against their definitions, computed slowly with fractions."""

from __future__ import annotations

import datetime
import itertools
import math
import random
import tracemalloc
from collections import Counter
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dunnage.model import measures
from dunnage.model.domains import Category, Graph, Ordinal
from dunnage.model.measures import class_sizes, sensitive_measures, set_widths, size_measures

ORDERED, EQUAL = "ordered earth mover's", "equal (total variation)"


def ids(class_id):
    return np.asarray(class_id, dtype=np.int64)


def test_sizes_and_risks_by_hand():
    sizes = class_sizes(ids([0, 1, 0, 2, 1, 1, 2, 0, 1]))
    assert sizes.tolist() == [3, 4, 2]
    found = size_measures(sizes, 2, 1).plain()
    assert found["risks"].pop("journalist")
    assert found == {
        "records": 9,
        "k_asked": 2,
        "k_reached": 2,
        "classes": 3,
        "class_size": {"smallest": 2, "mean": 3.0, "largest": 4},
        "suppressed": {"count": 1, "share": 0.1},
        "risks": {"prosecutor_highest": 0.5, "prosecutor_mean": 1 / 3, "marketer": 1 / 3},
    }


@given(st.lists(st.integers(1, 50), min_size=1, max_size=20), st.integers(0, 5))
def test_risks_by_definition(sizes, suppressed):
    class_id = np.repeat(np.arange(len(sizes)), sizes)
    np.random.default_rng(0).shuffle(class_id)
    found = size_measures(class_sizes(ids(class_id)), 2, suppressed).plain()
    # The prosecutor knows that a person is in the table and picks among the class; the mean is over records.
    risks = [Fraction(1, sizes[number]) for number in class_id]
    assert found["risks"]["prosecutor_highest"] == float(max(risks))
    assert math.isclose(found["risks"]["prosecutor_mean"], float(sum(risks) / len(risks)))
    assert found["records"] == sum(sizes)
    assert found["suppressed"]["share"] == suppressed / (sum(sizes) + suppressed)


def shares(values):
    return {value: Fraction(count, len(values)) for value, count in Counter(values).items()}


def groups(class_id, values):
    return [[v for c, v in zip(class_id, values, strict=True) if c == number] for number in sorted(set(class_id))]


def slow_l(class_id, values):
    return min(len(set(group)) for group in groups(class_id, values))


def slow_ordered_t(class_id, values):
    """Li, Li, Venkatasubramanian 2007: mean over the steps between sorted distinct values of the mass that moves."""
    domain, whole = sorted(set(values)), shares(values)
    if len(domain) == 1:
        return 0.0
    distances = []
    for group in groups(class_id, values):
        part, moved, work = shares(group), Fraction(0), Fraction(0)
        for value in domain:
            moved += part.get(value, Fraction(0)) - whole[value]
            work += abs(moved)
        distances.append(work / (len(domain) - 1))
    return float(max(distances))


def slow_equal_t(class_id, values):
    """Half the sum of absolute differences."""
    whole = shares(values)
    return float(
        max(
            sum(abs(shares(group).get(value, Fraction(0)) - whole[value]) for value in whole) / 2
            for group in groups(class_id, values)
        )
    )


@st.composite
def tables(draw, values):
    """Draw a class for each row, numbered without gaps, and values."""
    num_classes = draw(st.integers(1, 6))
    more = draw(st.lists(st.integers(0, num_classes - 1), max_size=30))
    class_id = draw(st.permutations([*range(num_classes), *more]))
    return class_id, draw(st.lists(values, min_size=len(class_id), max_size=len(class_id)))


DOUBLES = st.sampled_from([-0.0, 0.0, 0.1, 0.30000000000000004, 1e300]) | st.floats(-5, 5)
ORDERED_CASES = [
    tables(st.integers(-4, 4) | st.integers(-(2**62), 2**62)).map(lambda table: (*table, pa.int64())),
    tables(DOUBLES).map(lambda table: (*table, pa.float64())),
    tables(st.decimals(-5, 5, places=1)).map(lambda table: (*table, pa.decimal128(10, 1))),
]


@settings(max_examples=900, deadline=None)
@given(st.one_of(ORDERED_CASES))
def test_numbers(case):
    class_id, values, kind = case
    found = sensitive_measures(ids(class_id), pa.array(values, kind)).plain()
    assert found["distance"] == ORDERED
    assert found["l"] == slow_l(class_id, values)
    assert math.isclose(found["t"], slow_ordered_t(class_id, values), abs_tol=1e-12)


@settings(max_examples=400, deadline=None)
@given(tables(st.sampled_from(["flu", "Flu", "", "ÅÄÖ", "北京"])))
def test_texts(table):
    class_id, values = table
    found = sensitive_measures(ids(class_id), pa.array(values)).plain()
    assert found["distance"] == EQUAL
    assert found["l"] == slow_l(class_id, values)
    assert math.isclose(found["t"], slow_equal_t(class_id, values), abs_tol=1e-12)


def test_types():
    for values, distance in (
        ([True, False, True, True], EQUAL),
        ([datetime.date(2026, 1, day) for day in (1, 2, 1, 1)], EQUAL),
        ([Decimal("1.5"), Decimal("2.5"), Decimal("1.5"), Decimal("1.5")], ORDERED),
        ([1.5, 2.5, 1.5, 1.5], ORDERED),
    ):
        found = sensitive_measures(ids([0, 0, 1, 1]), pa.array(values)).plain()
        assert found == {"l": 1, "t": 0.25, "distance": distance}
    assert sensitive_measures(ids([0, 0, 0]), pa.array([1, 2, 3])).t == pytest.approx(0, abs=1e-15)
    assert sensitive_measures(ids([0, 1, 1]), pa.array([7, 7, 7])).plain() == {"l": 1, "t": 0.0, "distance": ORDERED}


def test_salaries_of_the_t_closeness_paper():
    # Li, Li, Venkatasubramanian 2007, section 3: salaries 3k..11k; {3k,4k,5k} is 0.375 off, {6k,8k,11k} is 0.167 off.
    salaries = [3, 4, 5, 6, 11, 8, 7, 9, 10]
    found = sensitive_measures(ids([0, 0, 0, 1, 1, 1, 2, 2, 2]), pa.array(salaries)).plain()
    assert found["t"] == pytest.approx(0.375)
    assert slow_ordered_t([0, 1, 1, 0, 1, 0, 1, 1, 1], [6, 3, 4, 8, 5, 11, 7, 9, 10]) == pytest.approx(1 / 6)
    # Those in the first class are 3k, 4k, 5k; the order of rows does not matter.
    order = np.random.default_rng(1).permutation(9)
    shuffled = pa.array(salaries).take(pa.array(order))
    again = sensitive_measures(ids([0, 0, 0, 1, 1, 1, 2, 2, 2])[order], shuffled).plain()
    assert again == found


def test_many_classes_lose_no_digits():
    # A running sum of shares over 100,000 classes would be 1e-8 off.
    num = 100_000
    class_id = np.repeat(np.arange(num), 3)
    values = np.tile([0, 1, 2], num)
    values[-3:] = [0, 0, 1]
    found = sensitive_measures(ids(class_id), pa.array(values)).plain()
    low = Fraction(num + 1, 3 * num)
    expected = (Fraction(2, 3) - low + 1 - Fraction(2 * num + 1, 3 * num)) / 2
    assert math.isclose(found["t"], float(expected), rel_tol=1e-13)


NAMES = [f"v{number}" for number in range(7)]
RING = [(a, b, length) for a, b, length in zip(NAMES, [*NAMES[1:], NAMES[0]], [1, 2, 3, 0.5, 1, 7, 2], strict=True)]


def test_widths_of_sets_pair_by_pair(monkeypatch):
    monkeypatch.setattr(measures, "_MAX_PAIRS", 10)  # several blocks, as many labels would make
    monkeypatch.setattr("dunnage.model.domains._MAX_AT_ONCE", 21)  # three vertices at a time
    sets = [sorted(group) for size in range(1, 8) for group in itertools.combinations(range(7), size)]
    random.Random(0).shuffle(sets)
    codes, sizes = ids([code for group in sets for code in group]), ids([len(group) for group in sets])
    graphs = Graph(edges=RING), Graph(edges=RING, directed=True)
    for domain in (Category(values=NAMES), Ordinal(levels=NAMES), *graphs):
        expected = [max(domain.distance(NAMES[a], NAMES[b]) for a in group for b in group) for group in sets]
        assert set_widths(domain, codes, sizes).tolist() == expected


def test_widths_of_sets_need_no_matrix():
    labels = [f"{number:05}" for number in range(30_000)]
    for domain in (Category(values=labels), Ordinal(levels=labels)):
        tracemalloc.start()
        widths = set_widths(domain, ids([5, 0, 29_999]), ids([1, 2])) / domain.diameter
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert widths.tolist() == [0, 1]
        assert most < 10**6
