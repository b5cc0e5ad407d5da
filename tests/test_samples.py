# SPDX-License-Identifier: Apache-2.0
"""Generated packages follow the laws of the papers' settings, rides look like a metro's; starter policies work."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

import dunnage as dn
from dunnage.errors import OutputError, ParameterError
from dunnage.model.domains import Graph, Numeric, Tree
from dunnage.samples import (
    PASSENGER_PARENTS,
    SERVICE_DAY,
    RideSetting,
    draw_weights,
    generate_rides,
    metro_edges,
    rides,
)
from dunnage.samples.packages import PackageSetting, generate_packages, package_setting, packages

PAPER_SETTINGS = {
    # Hoogervorst et al. 2019, Table 2
    "25-L-U": (25, 500, 125, 375),
    "50-L-U": (50, 500, 125, 375),
    "25-S-U": (25, 2500, 125, 375),
    "50-S-U": (50, 2500, 125, 375),
    "25-L-Un": (25, 500, 125, 375),
    # Li et al. 2022, Tables 1 and 2
    "80-L-U": (80, 500, 125, 375),
    "80-S-U": (80, 2500, 125, 375),
    "25-L-N": (25, 500, 0, 500),
    "50-L-N": (50, 500, 0, 500),
    "50-L-Un": (50, 500, 125, 375),
    "200-L": (200, 100_000, 20_000, 35_000),
}


def test_settings_by_name(tmp_path):
    for name, (size, capacity, low, high) in PAPER_SETTINGS.items():
        setting = package_setting(name)
        assert (setting.size, setting.capacity, setting.low, setting.high) == (size, capacity, low, high)
        data = dn.load(*generate_packages(setting, tmp_path / "p.csv", seed=3, force=True))
        assert (len(data), dn.promise(data.policy).guarantee.k) == (size, 5)
        weights = data.numbers("weight")
        assert ((weights >= low) & (weights <= high) & (weights == np.rint(weights))).all()


def test_impossible_settings_are_refused():
    for name in ("", "25", "25-X-U", "25-L-Q", "0-L-U", "25-S", "25-S-N", "x25-L-U"):
        with pytest.raises(ParameterError):
            package_setting(name)
    nan, inf = float("nan"), float("inf")
    wrong = [{"size": 0}, {"law": "cauchy"}, {"low": 5.0, "high": 5.0}, {"low": -1.0}, {"high": inf}, {"high": nan}]
    wrong += [{"law": "normal", "sd": 0.0}, {"law": "normal", "mean": 1e9}, {"decimals": 7}, {"destinations": -1}]
    for parameters in wrong:
        with pytest.raises(ParameterError):
            PackageSetting(**parameters)
    for parameters in ({"size": 0}, {"lines": 2}, {"lines": 13}, {"stations": 79}, {"stations": 2_001, "lines": 3}):
        with pytest.raises(ParameterError):
            RideSetting(**parameters)


def law(name: str):
    """The continuous law of a setting, as its distribution function."""
    low_half, high_half = stats.uniform(125, 125), stats.uniform(250, 125)
    return {
        "uniform": stats.uniform(125, 250).cdf,
        "normal": stats.truncnorm((0 - 250) / 100, (500 - 250) / 100, loc=250, scale=100).cdf,
        "unequal": lambda x: 0.75 * low_half.cdf(x) + 0.25 * high_half.cdf(x),
    }[name]


def test_weights_follow_their_law():
    """400,000 draws: a bound that is off by 3 kg of 250 is found with probability above 0.999."""
    for name in ("uniform", "normal", "unequal"):
        bounds = {"low": 0.0, "high": 500.0} if name == "normal" else {}
        setting = PackageSetting(size=400_000, law=name, decimals=6, **bounds)
        assert stats.kstest(draw_weights(setting, np.random.default_rng()), law(name)).pvalue > 1e-9
    off = PackageSetting(size=400_000, low=128.0, high=375.0, decimals=6)
    assert stats.kstest(draw_weights(off, np.random.default_rng()), law("uniform")).pvalue < 1e-9


def test_seeds_repeat_and_existing_files_are_kept(tmp_path):
    setting = PackageSetting(size=101, destinations=12, decimals=2)
    first, second = (packages(setting, seed=5) for _ in range(2))
    assert first.equals(second)
    assert not first.equals(packages(setting, seed=6))
    counts = np.unique(first["destination"].to_pylist(), return_counts=True)[1]
    assert len(counts) == 12
    assert counts.max() - counts.min() <= 1
    setting = package_setting("25-L-U")
    (tmp_path / "p.toml").write_text("mine")
    with pytest.raises(OutputError):
        generate_packages(setting, tmp_path / "p.csv")
    assert not (tmp_path / "p.csv").exists()
    assert (tmp_path / "p.toml").read_text() == "mine"
    generate_packages(setting, tmp_path / "p.csv", force=True)
    for path in ("p.txt", "nowhere/p.csv"):
        with pytest.raises(OutputError):
            generate_packages(setting, tmp_path / path)


def test_the_network_is_a_metro():
    for stations, lines in ((150, 8), (30, 3), (120, 12)):
        edges = metro_edges(stations, lines)
        network = Graph(edges=edges)  # refuses what is not connected
        assert len(network.labels) == stations
        assert len({frozenset(edge) for edge in edges}) == len(edges)
        degrees = Counter(Counter(station for edge in edges for station in edge).values())
        assert degrees[2] > stations / 2
        assert sum(times for degree, times in degrees.items() if degree > 2) >= lines - 1  # places to change
        assert 4 <= network.diameter <= stations / 2
        assert all(name.isalnum() and name[0] in "ABCDEFGHIJKL"[:lines] for name in network.labels)


def test_rides_look_like_those_of_a_metro(within):
    table = rides(20_000, seed=4)
    assert table.num_rows == 20_000
    rows = table.to_pylist()
    network = Graph(edges=metro_edges())
    assert {row["type"] for row in rows} == set(Tree(parents=PASSENGER_PARENTS).labels)
    assert {row["board"] for row in rows} | {row["alight"] for row in rows} <= set(network.labels)
    assert all(row["board"] != row["alight"] for row in rows)
    starts = np.array([row["start"] for row in rows])
    assert (np.diff(starts) >= 0).all()
    assert SERVICE_DAY[0] <= starts[0] <= starts[-1] <= SERVICE_DAY[1]
    hours = np.bincount(starts // 3600, minlength=24)
    assert min(hours[8], hours[17]) > 2 * hours[11]  # two rush hours
    busiest = [times for _, times in Counter(row["board"] for row in rows).most_common()]
    assert busiest[0] > 10 * busiest[len(busiest) // 2] / 3
    far = network.distances()
    codes = [network.codes([row[name] for row in rows]) for name in ("board", "alight")]
    mixed = np.random.default_rng(1).permutation(codes[1])
    assert far[codes[0], codes[1]].mean() < 0.95 * far[codes[0], mixed].mean()  # near places are chosen more often
    # Bhati et al. 2021, Table 4: weights .036, .328, .325 and .309 from entropies in bits.
    table = rides(10_000, seed=7)
    bits = []
    for name in ("type", "board", "alight", "start"):
        column = np.array(table[name].to_pylist())
        counts = np.unique(column // 900 if name == "start" else column, return_counts=True)[1]
        bits.append(stats.entropy(counts, base=2))
    assert np.abs(np.array(bits) / sum(bits) - [0.036, 0.328, 0.325, 0.309]).max() < 0.02
    assert rides(777, seed=5).equals(rides(RideSetting(size=777), seed=5))
    assert not rides(777, seed=5).equals(rides(777, seed=6))
    assert rides(1, seed=1).num_rows == 1
    with within(2):
        assert rides(250_000, seed=1).num_rows == 250_000


def test_a_card_goes_on_from_where_it_is():
    cards = defaultdict(list)
    for row in rides(5_000, seed=2).to_pylist():
        cards[row["card"]].append(row)
    times = Counter(map(len, cards.values()))
    assert set(times) == {1, 2, 3, 4}
    assert times[2] > len(cards) / 3
    there_and_back = 0
    for own in cards.values():
        assert len({row["type"] for row in own}) == 1
        for before, after in pairwise(own):
            assert before["alight"] == after["board"]
            assert before["start"] < after["start"]
            there_and_back += before["board"] == after["alight"]
    assert there_and_back > len(cards) / 3


def test_the_starter_policy_of_rides_works(tmp_path):
    paths = generate_rides(RideSetting(size=300, stations=60, lines=4), tmp_path / "r.csv", seed=1)
    assert [path.name for path in paths] == ["r.csv", "r.toml", "r.edges.csv"]
    data = dn.load(*paths[:2])
    assert (len(data), data.schema.person) == (300, "card")
    assert [a.name for a in data.schema.quasi_identifiers] == ["type", "board", "alight", "start"]
    start = data.schema["start"].domain
    assert isinstance(start, Numeric)
    assert (start.lower, start.upper) == SERVICE_DAY
    assert data.schema["board"].domain == Graph(edges=metro_edges(60, 4))
    assert dn.promise(data.policy).guarantee.k == 10
    with pytest.raises(OutputError):
        generate_rides(RideSetting(), tmp_path / "r.csv")
