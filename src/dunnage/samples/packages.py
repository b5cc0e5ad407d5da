# SPDX-License-Identifier: Apache-2.0
"""Generated packages with weights, as in the settings of the papers."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from dunnage.arrays import FloatArray
from dunnage.errors import ParameterError
from dunnage.exact import shown
from dunnage.samples.common import MAX_ROWS, starter_policy, targets

LAWS = ("uniform", "normal", "unequal")
MAX_DESTINATIONS = 100_000
_SETTING = re.compile(r"^(?P<size>[1-9][0-9]{0,9})-(?P<items>[LS])(-(?P<law>U|N|Un))?$")
_CITIES = ("Antwerp", "Bremen", "Calais", "Dover", "Esbjerg", "Felixstowe", "Gdansk", "Hamburg", "Imatra", "Jakobstad")


@dataclass(frozen=True, kw_only=True)
class PackageSetting:
    size: int = 200
    # uniform on [low, high]; normal with mean and sd, truncated to [low, high]; or unequal: three quarters uniform on
    # the lower half of [low, high], the others uniform on the upper half
    law: str = "uniform"
    low: float = 125.0
    high: float = 375.0
    mean: float = 250.0
    sd: float = 100.0
    capacity: float = 500.0  # of a truck, in the paper of the setting
    destinations: int = 0  # 0 leaves the column out
    decimals: int = 0

    def __post_init__(self) -> None:
        ends = (self.size, MAX_ROWS), (self.destinations + 1, MAX_DESTINATIONS + 1), (self.decimals + 1, 7)
        if not all(1 <= number <= largest for number, largest in ends):
            raise ParameterError(
                f"size must be from 1 to {MAX_ROWS:,}, destinations from 0 to {MAX_DESTINATIONS:,} and decimals from 0 "
                f"to 6. Got {shown(self.size)}, {shown(self.destinations)}, {shown(self.decimals)}."
            )
        if self.law not in LAWS:
            raise ParameterError(f"law must be one of {', '.join(LAWS)}. Got {self.law!r}.")
        if not 0 <= self.low < self.high < float("inf") or (self.law == "normal" and not self.sd > 0):
            raise ParameterError(
                f"weights need 0 <= low < high and sd > 0. Got low {self.low:g}, high {self.high:g}, sd {self.sd:g}."
            )
        if self.law == "normal" and not self.low - 4 * self.sd <= self.mean <= self.high + 4 * self.sd:
            raise ParameterError(f"the mean must be within 4 sd of [low, high]. Got {self.mean:g}.")


def package_setting(name: str) -> PackageSetting:
    """Return a setting of the papers by its name: ``25-L-U``, or ``200-L`` for Scholl's hard instance.

    The parts are the number of packages, Large (capacity 500) or Small (2500), and the law: Uniform on [125, 375],
    Normal(250, 100) on [0, 500], or Unequal halves (Hoogervorst et al. 2019, Table 2; Li et al. 2022, Tables 1, 2).
    """
    match = _SETTING.match(name)
    if not match or (match["law"] is None and match["items"] == "S"):
        raise ParameterError(f"there is no setting {name!r}. Use for example 25-L-U, 50-S-U, 25-L-N, 25-L-Un or 200-L.")
    size = int(match["size"])
    if match["law"] is None:
        return PackageSetting(size=size, low=20_000.0, high=35_000.0, capacity=100_000.0)
    if match["law"] == "N":
        if match["items"] == "S":
            raise ParameterError(f"there is no setting {name!r}: normal weights are only for large items. Use L-N.")
        return PackageSetting(size=size, law="normal", low=0.0, high=500.0)
    law = {"U": "uniform", "Un": "unequal"}[match["law"]]
    return PackageSetting(size=size, law=law, capacity=500.0 if match["items"] == "L" else 2500.0)


def draw_weights(setting: PackageSetting, generator: np.random.Generator) -> FloatArray:
    """Generate the weights of a setting, rounded to its decimals, within [low, high]."""
    low, high = setting.low, setting.high
    if setting.law == "normal":
        weights = np.empty(0)
        while len(weights) < setting.size:
            more = generator.normal(setting.mean, setting.sd, 2 * setting.size)
            weights = np.concatenate([weights, more[(more >= low) & (more <= high)]])
        weights = weights[: setting.size]
    elif setting.law == "unequal":
        num_light = round(0.75 * setting.size)
        middle = (low + high) / 2
        light = generator.uniform(low, middle, num_light)
        weights = generator.permutation(
            np.concatenate([light, generator.uniform(middle, high, setting.size - num_light)])
        )
    else:
        weights = generator.uniform(low, high, setting.size)
    return np.clip(np.round(weights, setting.decimals), low, high)


def packages(setting: PackageSetting, *, seed: int | None = None) -> pa.Table:
    """Generate packages: ``parcel_id``, ``destination`` (if the setting has destinations), ``weight``."""
    generator = np.random.default_rng(seed)
    weights = draw_weights(setting, generator)
    columns: dict[str, object] = {"parcel_id": [f"P{number:07d}" for number in range(1, setting.size + 1)]}
    if setting.destinations:
        again = [divmod(number, len(_CITIES)) for number in range(setting.destinations)]
        names = np.array([f"{_CITIES[city]} {time + 1}" if time else _CITIES[city] for time, city in again])
        columns["destination"] = generator.permutation(names[np.arange(setting.size) % setting.destinations])
    columns["weight"] = weights
    return pa.table(columns)


def packages_policy(setting: PackageSetting, dataset: str) -> str:
    destination = '\n[attributes.destination]\nrole = "public"\n' if setting.destinations else ""
    return starter_policy(
        "packages",
        dataset=json.dumps(dataset),
        destination=destination,
        low=f"{setting.low:g}",
        high=f"{setting.high:g}",
        resolution=f"{10.0**-setting.decimals:g}",
    )


def generate_packages(
    setting: PackageSetting, out: str | os.PathLike[str], *, seed: int | None = None, force: bool = False
) -> tuple[Path, Path]:
    """Write generated packages as CSV, with a starter policy; return both paths."""
    path, policy = targets(out, (".toml",), force)
    pacsv.write_csv(packages(setting, seed=seed), str(path))
    policy.write_text(packages_policy(setting, path.stem), encoding="utf-8")
    return path, policy
