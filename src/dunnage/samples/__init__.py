# SPDX-License-Identifier: Apache-2.0
"""Generated datasets for demos, documents, tests and benchmarks. Illustrations, not evidence.

Nothing here protects anyone, so ordinary seeded random numbers are used.
"""

from dunnage.routes import TRIP_MODES
from dunnage.samples.packages import (
    LAWS,
    PackageSetting,
    draw_weights,
    generate_packages,
    package_setting,
    packages,
    packages_policy,
)
from dunnage.samples.rides import (
    PASSENGER_PARENTS,
    PASSENGER_TYPES,
    SERVICE_DAY,
    RideSetting,
    generate_rides,
    metro_edges,
    rides,
    rides_policy,
)
from dunnage.samples.telemetry import (
    CITY_BOX,
    TELEMETRY_LAWS,
    PositionSetting,
    Sensor,
    TelemetrySetting,
    generate_positions,
    generate_telemetry,
    positions,
    positions_policy,
    telemetry,
    telemetry_policy,
)
from dunnage.samples.town import CitySetting, city, generate_city, trip_modes, trip_stops
from dunnage.samples.trips import TripSetting, generate_city_trips, generate_trips, trips, trips_policy

__all__ = [
    "CITY_BOX",
    "LAWS",
    "PASSENGER_PARENTS",
    "PASSENGER_TYPES",
    "SERVICE_DAY",
    "TELEMETRY_LAWS",
    "TRIP_MODES",
    "CitySetting",
    "PackageSetting",
    "PositionSetting",
    "RideSetting",
    "Sensor",
    "TelemetrySetting",
    "TripSetting",
    "city",
    "draw_weights",
    "generate_city",
    "generate_city_trips",
    "generate_packages",
    "generate_positions",
    "generate_rides",
    "generate_telemetry",
    "generate_trips",
    "metro_edges",
    "package_setting",
    "packages",
    "packages_policy",
    "positions",
    "positions_policy",
    "rides",
    "rides_policy",
    "telemetry",
    "telemetry_policy",
    "trip_modes",
    "trip_stops",
    "trips",
    "trips_policy",
]
