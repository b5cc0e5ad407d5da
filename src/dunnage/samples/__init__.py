# SPDX-License-Identifier: Apache-2.0
"""Generated datasets for demos, documents, tests, benchmarks and advice. They illustrate, and prove nothing.

Nothing here protects anyone, so ordinary seeded random numbers are enough.
"""

from typing import TYPE_CHECKING

from dunnage.model.routes import TRIP_MODES as TRIP_MODES
from dunnage.samples.packages import LAWS as LAWS
from dunnage.samples.packages import PackageSetting as PackageSetting
from dunnage.samples.packages import draw_weights as draw_weights
from dunnage.samples.packages import generate_packages as generate_packages
from dunnage.samples.packages import package_setting as package_setting
from dunnage.samples.packages import packages as packages
from dunnage.samples.packages import packages_policy as packages_policy
from dunnage.samples.rides import PASSENGER_PARENTS as PASSENGER_PARENTS
from dunnage.samples.rides import PASSENGER_TYPES as PASSENGER_TYPES
from dunnage.samples.rides import SERVICE_DAY as SERVICE_DAY
from dunnage.samples.rides import RideSetting as RideSetting
from dunnage.samples.rides import generate_rides as generate_rides
from dunnage.samples.rides import metro_edges as metro_edges
from dunnage.samples.rides import rides as rides
from dunnage.samples.rides import rides_policy as rides_policy
from dunnage.samples.telemetry import CITY_BOX as CITY_BOX
from dunnage.samples.telemetry import TELEMETRY_LAWS as TELEMETRY_LAWS
from dunnage.samples.telemetry import PositionSetting as PositionSetting
from dunnage.samples.telemetry import TelemetrySetting as TelemetrySetting
from dunnage.samples.telemetry import generate_positions as generate_positions
from dunnage.samples.telemetry import generate_telemetry as generate_telemetry
from dunnage.samples.telemetry import positions as positions
from dunnage.samples.telemetry import positions_policy as positions_policy
from dunnage.samples.telemetry import telemetry as telemetry
from dunnage.samples.telemetry import telemetry_policy as telemetry_policy
from dunnage.samples.trips import CitySetting as CitySetting
from dunnage.samples.trips import TripSetting as TripSetting
from dunnage.samples.trips import city as city
from dunnage.samples.trips import generate_city as generate_city
from dunnage.samples.trips import generate_city_trips as generate_city_trips
from dunnage.samples.trips import generate_trips as generate_trips
from dunnage.samples.trips import trip_modes as trip_modes
from dunnage.samples.trips import trip_stops as trip_stops
from dunnage.samples.trips import trips as trips
from dunnage.samples.trips import trips_policy as trips_policy

if TYPE_CHECKING:
    from dunnage.samples.shape import like as like


def __getattr__(name: str) -> object:
    """Load ``like`` when it is used: it needs policies and datasets, which the other generators do not."""
    if name != "like":
        raise AttributeError(name)
    from dunnage.samples.shape import like

    return like
