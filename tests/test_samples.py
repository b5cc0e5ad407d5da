# SPDX-License-Identifier: Apache-2.0
"""Generated packages follow the laws of the papers' settings; the starter policy works on them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import dunnage as dn
from dunnage.samples import draw_weights

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


@pytest.mark.parametrize("name", PAPER_SETTINGS)
def test_settings_by_name(name, tmp_path):
    size, capacity, low, high = PAPER_SETTINGS[name]
    setting = dn.package_setting(name)
    assert (setting.size, setting.capacity, setting.low, setting.high) == (size, capacity, low, high)
    data_file, policy_file = dn.generate_packages(setting, tmp_path / "p.csv", seed=3)
    data = dn.load(data_file, policy_file)
    assert len(data) == size
    assert dn.promise(data.policy).guarantee.k == 5
    weights = data.numbers("weight")
    assert ((weights >= low) & (weights <= high) & (weights == np.rint(weights))).all()


@pytest.mark.parametrize("name", ["", "25", "25-X-U", "25-L-Q", "0-L-U", "25-S", "25-S-N", "x25-L-U"])
def test_unknown_settings_are_refused(name):
    with pytest.raises(dn.ParameterError, match=f"no setting '{name}'"):
        dn.package_setting(name)


@pytest.mark.parametrize(
    "wrong",
    [
        {"size": 0},
        {"law": "cauchy"},
        {"low": 5.0, "high": 5.0},
        {"low": -1.0},
        {"law": "normal", "sd": 0.0},
        {"law": "normal", "mean": 1e9},
        {"decimals": 7},
        {"destinations": -1},
        {"high": float("inf")},
        {"high": float("nan")},
    ],
)
def test_impossible_parameters_are_refused(wrong):
    with pytest.raises(dn.ParameterError):
        dn.PackageSetting(**wrong)


def law(name: str):
    """The continuous law of a setting, as its distribution function."""
    low_half, high_half = stats.uniform(125, 125), stats.uniform(250, 125)
    return {
        "uniform": stats.uniform(125, 250).cdf,
        "normal": stats.truncnorm((0 - 250) / 100, (500 - 250) / 100, loc=250, scale=100).cdf,
        "unequal": lambda x: 0.75 * low_half.cdf(x) + 0.25 * high_half.cdf(x),
    }[name]


@pytest.mark.parametrize("name", ["uniform", "normal", "unequal"])
def test_weights_follow_their_law(name):
    """400,000 draws: a bound that is off by 3 kg of 250 is found with probability above 0.999."""
    bounds = {"low": 0.0, "high": 500.0} if name == "normal" else {}
    setting = dn.PackageSetting(size=400_000, law=name, decimals=6, **bounds)
    weights = draw_weights(setting, np.random.default_rng())
    assert stats.kstest(weights, law(name)).pvalue > 1e-9


def test_the_law_test_can_fail():
    setting = dn.PackageSetting(size=400_000, low=128.0, high=375.0, decimals=6)
    weights = draw_weights(setting, np.random.default_rng())
    assert stats.kstest(weights, law("uniform")).pvalue < 1e-9


def test_seed_repeats_and_destinations_are_balanced():
    setting = dn.PackageSetting(size=101, destinations=12, decimals=2)
    first, second = (dn.packages(setting, seed=5) for _ in range(2))
    assert first.equals(second)
    assert not first.equals(dn.packages(setting, seed=6))
    counts = np.unique(first["destination"].to_pylist(), return_counts=True)[1]
    assert len(counts) == 12
    assert counts.max() - counts.min() <= 1


def test_existing_files_are_kept(tmp_path):
    setting = dn.package_setting("25-L-U")
    (tmp_path / "p.toml").write_text("mine")
    with pytest.raises(dn.OutputError, match="exists already"):
        dn.generate_packages(setting, tmp_path / "p.csv")
    assert not (tmp_path / "p.csv").exists()
    assert (tmp_path / "p.toml").read_text() == "mine"
    dn.generate_packages(setting, tmp_path / "p.csv", force=True)
    with pytest.raises(dn.OutputError, match=r"\.csv"):
        dn.generate_packages(setting, tmp_path / "p.txt")
    with pytest.raises(dn.OutputError, match="not a folder"):
        dn.generate_packages(setting, tmp_path / "nowhere" / "p.csv")
