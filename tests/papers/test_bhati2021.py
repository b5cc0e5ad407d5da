# SPDX-License-Identifier: Apache-2.0
"""Bhati et al. 2021: its example of eight rides, from Table 2 to Table 3.

Figure 1 (four stations on two lines) is not given in words. Its examples say that A and B are 1 apart and A and D 2.
``NETWORK`` is one that fits: the lines A-B-C and B-D. The classes must not hang on that choice, so every
connected network of these four stations that fits is tried.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dunnage.errors import ParameterError
from dunnage.kernels.clusters.growth import Metric, distance_deviations, near_weights
from dunnage.kernels.clusters.published import published_density
from dunnage.model.domains import Graph, Tree

PASSENGERS = Tree(
    parents={"Adult": "Person", "Not Adult": "Person", "Senior Citizen": "Not Adult", "Child/Student": "Not Adult"}
)
NETWORK = (("A", "B"), ("B", "C"), ("B", "D"))
TABLE_2 = (
    ("Adult", "A", "C", 9 * 60 + 0, 400, 3.6),
    ("Adult", "A", "C", 9 * 60 + 0, 400, 3.6),
    ("Child/Student", "B", "D", 9 * 60 + 5, 320, 2.2),
    ("Adult", "B", "A", 10 * 60 + 0, 280, 2),
    ("Senior Citizen", "A", "D", 11 * 60 + 0, 520, 4.2),
    ("Child/Student", "C", "D", 9 * 60 + 15, 340, 3.8),
    ("Adult", "B", "D", 10 * 60 + 0, 480, 2.2),
    ("Senior Citizen", "A", "D", 11 * 60 + 5, 520, 4.2),
)
TABLE_3 = {
    (1, 2): ("Adult", ("A",), ("C",), (540, 540), (400, 400), (3.6, 3.6)),
    (3, 6): ("Child/Student", ("B", "C"), ("D",), (545, 555), (320, 340), (2.2, 3.8)),
    (4, 7): ("Adult", ("B",), ("A", "D"), (600, 600), (280, 480), (2, 2.2)),
    (5, 8): ("Senior Citizen", ("A",), ("D",), (660, 665), (520, 520), (4.2, 4.2)),
}


def fitting_networks():
    """Every connected network of the four stations in which A and B are 1 apart and A and D 2."""
    pairs = list(itertools.combinations("ABCD", 2))
    for edges in itertools.chain.from_iterable(itertools.combinations(pairs, num) for num in range(3, 7)):
        try:
            network = Graph(edges=edges)
        except ParameterError:  # not connected
            continue
        if network.labels == tuple("ABCD") and (network.distance("A", "B"), network.distance("A", "D")) == (1, 2):
            yield network


def the_metric(network, scaling):
    passengers, boarding, alighting, *numbers = zip(*TABLE_2, strict=True)
    numbers = np.array(numbers, dtype=float)
    domains = (PASSENGERS, network, network)
    codes = [domain.codes(values) for domain, values in zip(domains, (passengers, boarding, alighting), strict=True)]
    codes = np.array(codes, dtype=np.int32)
    tables = tuple(domain.distances().astype(float) for domain in domains)
    weights = np.full(6, 1 / 6)
    diameters = np.concatenate((np.ptp(numbers, axis=1), [domain.diameter for domain in domains]))
    scales = diameters if scaling == "maximum" else distance_deviations(numbers, codes, tables)
    return Metric(numbers, codes, tables, weights / diameters, near_weights(weights, scales))


def classes_of(of_record):
    return sorted(tuple((np.flatnonzero(of_record == number) + 1).tolist()) for number in range(of_record.max() + 1))


def generalised(records, network):
    passengers, boarding, alighting, *numbers = zip(*(TABLE_2[record - 1] for record in records), strict=True)
    return (
        PASSENGERS.generalise(passengers),
        network.generalise(boarding),
        network.generalise(alighting),
        *((min(values), max(values)) for values in numbers),
    )


def test_distances_of_its_examples():
    network = Graph(edges=NETWORK)
    assert PASSENGERS.distance("Senior Citizen", "Child/Student") == 1  # Example 7
    assert (network.distance("A", "B"), network.distance("A", "D")) == (1, 2)  # Example 8


@pytest.mark.parametrize("scaling", ["unit-variance", "maximum"])
def test_eight_rides_come_out_as_in_table_3(scaling):
    network = Graph(edges=NETWORK)
    of_record = published_density(the_metric(network, scaling), 2)
    assert classes_of(of_record) == [(1, 2), (3, 6), (4, 7), (5, 8)]
    assert {records: generalised(records, network) for records in classes_of(of_record)} == TABLE_3


@pytest.mark.parametrize("scaling", ["unit-variance", "maximum"])
def test_every_network_that_fits_the_examples_gives_the_same_classes(scaling):
    networks = list(fitting_networks())
    assert len(networks) > 1
    for network in networks:
        assert classes_of(published_density(the_metric(network, scaling), 2)) == sorted(TABLE_3), network.edges
