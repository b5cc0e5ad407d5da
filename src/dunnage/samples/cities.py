# SPDX-License-Identifier: Apache-2.0
"""Generated cities, for demos and tests of fleets."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from dunnage.city import City
from dunnage.samples.town import lay_town


@dataclass(frozen=True, kw_only=True)
class CitySetting:
    """Which city is generated.

    Parameters
    ----------
    stops
        Number of stops.
    zones
        Number of zones; each has two hubs, and all share one more in the centre.
    """

    stops: int = 130
    zones: int = 4


def city(stops: int = 130, zones: int = 4, seed: int | None = None) -> City:
    """Generate a city with zones, hubs, travel times, buses and the mode of each pair of stops.

    Examples
    --------
    >>> len(city(60, 3, seed=1).zone_names)
    3
    """
    return lay_town(stops, zones, seed).city


def generate_city(
    setting: CitySetting, out: str | os.PathLike[str], *, seed: int | None = None, force: bool = False
) -> Path:
    """Write the folder of a generated city.

    Returns
    -------
    Path
        The folder.
    """
    return city(setting.stops, setting.zones, seed).write(out, force=force)
