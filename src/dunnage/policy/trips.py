# SPDX-License-Identifier: Apache-2.0
"""What a policy says about trips: their columns, the city they are made in, and how many of one rider count."""

from __future__ import annotations

from collections.abc import Mapping

from dunnage.city import MOST_MODES_BYTES, City
from dunnage.domains import Windows
from dunnage.errors import ParameterError
from dunnage.policy.options import PeriodRule
from dunnage.policy.tables import Context, Table, attempt
from dunnage.schema import CONTRIBUTION_SPANS, Contribution, Schema
from dunnage.trips import Trip

_STOP_COLUMN = {"zones": "zone", "zone": "zone", "hubs": "hub", "hub": "hub", "lat": "lat", "lon": "lon"}
"""Facts that belong into the file of stops, and the columns they are there."""


def read_city(top: Table, context: Context) -> None:
    """Read ``[city]`` and the files it names; the attributes that hold stops need them."""
    data = top.take("city", (Mapping,), "a table [city]", default=None)
    if data is None:
        return
    context.city_named = True
    table = Table(data, "city", top.problems)
    stops = table.text("stops", '"stops.csv", a list of all stops')
    modes = table.text("modes", '"modes.csv" with columns origin,destination,mode', default=None)
    for key in [key for key in data if key in _STOP_COLUMN]:
        table.seen.add(key)
        remedy = f"Write it into a column {_STOP_COLUMN[key]} of the file that stops names."
        table.problem(key, "is not a key this version knows", remedy)
    table.finish()
    if stops is None:
        return

    def read() -> City:
        modes_path = None if modes is None else context.file(modes, MOST_MODES_BYTES)
        return City.read(context.file(stops), modes_path)

    context.city = attempt(top.problems, "city", read)


def read_trip(top: Table, context: Context) -> Trip | None:
    """Read ``[trip]``: which columns describe a trip."""
    data = top.take("trip", (Mapping,), "a table [trip]", default=None)
    if data is None:
        return None
    table = Table(data, "trip", top.problems)
    origin = table.text("origin", '"board_stop", the column that holds where it began')
    destination = table.text("destination", '"alight_stop", the column that holds where it ended')
    time = table.text("time", '"tap_in", the column that holds when it began')
    count = table.text("count", '"trips", the column that holds how many trips a row stands for', default=None)
    day = table.text("day", '"day", the column that holds the label of a day', default=None)
    table.finish()
    context.count_column = count
    if origin is None or destination is None or time is None:
        return None
    made: Trip | None = attempt(
        top.problems,
        "trip",
        lambda: Trip(origin=origin, destination=destination, time=time, count=count, day=day),
    )
    return made


def read_contribution(top: Table) -> tuple[str | None, Contribution | None]:
    """Read ``[contribution]``: the identifier of persons, and how many trips of one are counted if that is bounded."""
    data = top.take("contribution", (Mapping,), "a table [contribution]", default=None)
    if data is None:
        return None, None
    table = Table(data, "contribution", top.problems)
    person = table.text("person", '"card", the identifier that tells persons apart')
    bounded = bool({"max", "per"} & data.keys())
    required = {} if bounded else {"default": None}
    most = table.take("max", (int,), "a whole number of trips, such as 3", **required)
    per = table.choice("per", CONTRIBUTION_SPANS, **required)
    table.finish()
    if person is None or most is None or per is None:
        return person, None
    made: Contribution | None = attempt(
        top.problems, "contribution", lambda: Contribution(person=person, max=most, per=per)
    )
    return person, made


def check_dates(top: Table, schema: Schema, period: PeriodRule | None) -> None:
    """Refuse a policy that needs to know which dates there are, where nothing says it."""
    if schema.trip is None or period is not None or schema.time.dates is not None:
        return
    remedy = f'Write dates = ["2026-11-01", "2026-11-30"], say, in [attributes.{schema.trip.time}], or [period].'
    if schema.time.day == "date":
        top.problem(f"attributes.{schema.trip.time}.day", "needs to know which dates there are", remedy)
    if schema.contribution is not None and schema.contribution.per == "day":
        what = "= day needs to know how many days there are, to say what a rider can change in all"
        top.problem("contribution.per", what, remedy)


def read_windows(table: Table) -> Windows | None:
    """Read a domain of times."""
    bounds = table.texts("domain", '["04:00", "28:00"], the service day')
    minutes = table.take("window_minutes", (int,), "a whole number of minutes, such as 30")
    zone = table.text("zone", '"America/Detroit", the zone whose clock is meant', default=None)
    day = table.text("day", '"date", "weekday" or "day-type"', default=None)
    dates = table.texts("dates", "the first and the last service date, in quotes", default=None)
    holidays = table.texts("holidays", "a list of dates, in quotes", default=())
    if bounds is None or minutes is None or holidays is None:
        return None
    if len(bounds) != 2:
        raise ParameterError(f'domain must be two times ["04:00", "28:00"]. Got {len(bounds)}. Mend it.')
    return Windows(
        lower=bounds[0],
        upper=bounds[1],
        window_minutes=minutes,
        zone=zone,
        day=day,
        dates=dates,
        holidays=holidays,
    )
