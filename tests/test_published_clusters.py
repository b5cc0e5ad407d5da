# SPDX-License-Identifier: Apache-2.0
"""The published clusterings against literal ones, on tables full of ties; spreads of distances against all pairs."""

from __future__ import annotations

import itertools
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dunnage.kernels.clusters.growth import Metric, distance_deviations, distance_moments, near_weights
from dunnage.kernels.clusters.published import published_density, published_greedy

PEOPLE = np.array([[0.0, 2, 2], [2, 0, 1], [2, 1, 0]])


def ring(size):
    steps = np.abs(np.subtract.outer(np.arange(size), np.arange(size)))
    return np.minimum(steps, size - steps).astype(float)


def a_metric(rng, num, *, whole=False):
    """Random records: up to two numbers, a tree and up to two networks, coarse so that values and distances tie."""
    num_numbers, num_rings, tree = rng.integers(0, 3), rng.integers(0, 3), bool(rng.integers(0, 2))
    if num_numbers + num_rings + tree == 0:
        num_numbers = 1
    tables = [PEOPLE] * tree + [ring(int(rng.integers(2, 9))) for _ in range(num_rings)]
    finest = int(rng.choice([1, 3, 20, 1000]))
    numbers = rng.integers(0, finest, size=(num_numbers, num)) / (1 if whole else 7)
    codes = np.array([rng.integers(0, len(table), size=num) for table in tables], dtype=np.int32).reshape(-1, num)
    near, charge = rng.integers(0 if rng.random() < 0.2 else 1, 4, size=(2, len(numbers) + len(tables))).astype(float)
    if not whole:
        near *= rng.random(len(near))
    return Metric(numbers.astype(float), codes, tuple(tables), charge, near)


def gaps_of(metric):
    """All distances by attribute. Shape: attributes, records, records."""
    of_numbers = [np.abs(np.subtract.outer(column, column)) for column in metric.numbers]
    return of_numbers + [table[np.ix_(codes, codes)] for codes, table in zip(metric.codes, metric.tables, strict=True)]


def distances_of(metric):
    total = np.zeros((len(metric), len(metric)))
    for near, gap in zip(metric.near, gaps_of(metric), strict=True):
        total += near * gap
    return total


def literal(metric, k, limits, choose):
    """Algorithm 1 as it stands: look at all living records again after every class."""
    gaps, distances = gaps_of(metric), distances_of(metric)
    living, classes = list(range(len(metric))), []

    def nearest(head):
        return sorted((other for other in living if other != head), key=lambda other: (distances[head, other], other))

    def widths(members):
        return [gap[np.ix_(members, members)].max() for gap in gaps]

    def fits(members):
        return limits is None or all(width <= limit for width, limit in zip(widths(members), limits, strict=True))

    def charge(members):
        return len(members) * sum(price * width for price, width in zip(metric.charge, widths(members), strict=True))

    while len(living) >= k:
        head = choose(living, lambda head: sum(float(distances[head, other]) for other in nearest(head)[: k - 1]))
        members = [head, *nearest(head)[: k - 1]]
        if fits(members):
            classes.append(members)
            living = [record for record in living if record not in members]
        else:
            living.remove(head)
    for record in living:
        allowed = [number for number, members in enumerate(classes) if fits([*members, record])]
        if allowed:
            rises = [charge([*classes[number], record]) - charge(classes[number]) for number in allowed]
            classes[allowed[int(np.argmin(rises))]].append(record)
    of_record = np.full(len(metric), -1)
    for number, members in enumerate(classes):
        of_record[members] = number
    return of_record


def densest(living, total):
    return min(living, key=lambda head: (total(head), head))


def first_of(order):
    return lambda living, _: next(record for record in order if record in living)


def some_limits(rng, metric):
    return None if rng.random() < 0.5 else rng.choice([0.0, 1.0, 2.0, 40.0, np.inf], size=len(metric.near))


def test_both_are_the_literal_ones():
    rng = np.random.default_rng(2)
    for num in rng.integers(1, 45, size=160):
        metric = a_metric(rng, int(num))
        k = int(rng.integers(1, min(num, 9) + 1))
        limits, order = some_limits(rng, metric), rng.permutation(num)
        assert published_density(metric, k, limits=limits).tolist() == literal(metric, k, limits, densest).tolist()
        found = published_greedy(metric, k, order=order, limits=limits)
        assert found.tolist() == literal(metric, k, limits, first_of(order.tolist())).tolist()


def test_density_is_the_literal_one_on_larger_tables():
    num, rng = 160, np.random.default_rng(2)
    codes = [rng.integers(0, size, num) for size in (3, 30, 30)]
    metric = Metric(
        np.sort(rng.integers(0, 400, size=(1, num)) * 60.0),
        np.array(codes, dtype=np.int32),
        (PEOPLE, ring(30), ring(30)),
        np.array([0.3 / 24000, 0.04 / 2, 0.33 / 15, 0.33 / 15]),
        np.array([0.3 / 5600, 0.04 / 0.7, 0.33 / 4.3, 0.33 / 4.3]),
    )
    for k in (2, 5, 30):
        assert published_density(metric, k).tolist() == literal(metric, k, None, densest).tolist(), k


def test_whole_distances_do_not_depend_on_the_order_of_attributes():
    for seed in range(20):
        metric = a_metric(np.random.default_rng([seed, 3]), 30, whole=True)
        num = len(metric.numbers)
        charge, near = (np.concatenate((own[:num][::-1], own[num:][::-1])) for own in (metric.charge, metric.near))
        turned = Metric(metric.numbers[::-1], metric.codes[::-1], metric.tables[::-1], charge, near)
        assert published_density(metric, 4).tolist() == published_density(turned, 4).tolist(), seed


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_every_class_has_k_records_and_none_is_lost_without_limits(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    num = data.draw(st.integers(1, 120))
    metric, k = a_metric(rng, num), data.draw(st.integers(1, num))
    for of_record in (published_density(metric, k), published_greedy(metric, k, order=rng.permutation(num))):
        sizes = np.bincount(of_record)  # refuses -1
        assert sizes.min() >= k
        assert len(sizes) == num // k


def on_a_line(*values):
    return Metric(np.array([values], float), np.zeros((0, len(values)), dtype=np.int32), (), np.ones(1), np.ones(1))


def test_by_hand():
    for k, expected in ((1, [0, 1, 2, 3, 4, 5, 6]), (3, [0, 0, 0, 1, 1, 1, 0]), (7, [0] * 7)):
        assert published_density(on_a_line(*[0] * 7), k).tolist() == expected  # equal records go by number
    # Averages are computed again: 1 and 2 are nearest; without them 0 is far from all but 4 and 5 are near each other.
    assert published_density(on_a_line(3, 4, 4.5, 10, 11.5), 2).tolist() == [0, 0, 0, 1, 1]
    assert published_density(on_a_line(3, 4, 4.5, 10, 11.5, 13.1), 2).tolist() == [2, 0, 0, 1, 1, 2]
    # A head beyond the limits is suppressed, and its neighbours stay free.
    for limit, expected in ((2.0, [-1, 0, 0, -1]), (3.0, [0, 0, 0, -1])):
        found = published_greedy(on_a_line(0, 2, 3, 9), 2, order=np.array([3, 1, 0, 2]), limits=np.array([limit]))
        assert found.tolist() == expected
    assert published_density(on_a_line(0, 2, 4), 2, limits=np.zeros(1)).tolist() == [-1, -1, -1]
    # It widens {0, 1, 2} by 1.5 and {3, 4, 5} by 1.9, but four records are then charged 4.5 (9 more) or 1.9 (7.6 more).
    assert published_density(on_a_line(0, 1.5, 3, 6.4, 6.4, 6.4, 4.5), 3).tolist() == [1, 1, 1, 0, 0, 0, 0]


def test_importing_the_module_does_not_load_the_compiler():
    code = "import sys, dunnage.kernels.clusters.published; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def moments_of_pairs(values, distance):
    pairs = [distance(one, other) for one, other in itertools.combinations(values, 2)]
    return (float(np.mean(pairs)), float(np.std(pairs))) if pairs else (0.0, 0.0)


@given(st.lists(st.integers(-(10**6), 10**6) | st.sampled_from([0, 1, 2]), max_size=40), st.sampled_from([1, 7, 1e-3]))
@settings(deadline=None)
def test_moments_of_numbers_are_those_of_all_pairs(values, unit):
    values = np.array(values, dtype=float) / unit
    assert distance_moments(values) == pytest.approx(moments_of_pairs(values, lambda a, b: abs(a - b)), rel=1e-9)


@given(arrays(np.int32, st.integers(0, 40), elements=st.integers(0, 6)))
@settings(deadline=None)
def test_moments_of_codes_are_those_of_all_pairs(codes):
    table = ring(7) * 1.7
    expected = moments_of_pairs(codes, lambda a, b: table[a, b])
    assert distance_moments(codes, table) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_distances_that_are_all_alike_do_not_deviate_at_all_and_drop_out():
    for values in ([], [0.3], [0.1, 0.7], [0.1] * 9):
        assert distance_moments(np.array(values))[1] == 0
    assert distance_moments(np.arange(7), 0.1 * (1 - np.eye(7)))[1] == 0
    assert distance_moments(np.zeros(7, dtype=int), ring(4))[1] == 0
    numbers, codes = np.array([[5.0, 5, 5], [0, 1, 3]]), np.array([[0, 1, 1]], dtype=np.int32)
    deviations = distance_deviations(numbers, codes, (ring(2),))
    assert deviations == pytest.approx([0, np.std([1, 2, 3]), np.std([1, 1, 0])])
    assert near_weights(np.ones(3), deviations) == pytest.approx([0, 1 / deviations[1], 1 / deviations[2]])
