# SPDX-License-Identifier: Apache-2.0
"""Generated data of the public shape of a policy: rows, trips and reports of vehicles.

Everything comes from public facts: domains, resolutions, labels, hierarchies, networks, stops, windows, days, boxes and
a rough number of records. Public and sensitive columns of rows are released as they are, so they may come from the
data: each independent of the quasi-identifiers, and sensitive columns independent of each other. Destinations are
invented each time: homes and workplaces of different weight, fewer trips between stops within walking distance or far
apart, most trips on few pairs but most cells with one or two trips, and more trips in the rush hours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dunnage.arrays import FloatArray, IntArray
from dunnage.devices.task import Purpose
from dunnage.errors import ParameterError
from dunnage.model.city import City, haversine
from dunnage.model.domains import DAY_SECONDS, Numeric, Windows, clock_text
from dunnage.model.periods import dates_of
from dunnage.model.policy import Policy
from dunnage.model.schema import Role
from dunnage.model.trips import Universe
from dunnage.noise import arrays as noise_arrays
from dunnage.noise.source import Noise
from dunnage.planning.demand import stop_numbers, window_seconds
from dunnage.samples.common import choose, deterrence, second_text, texts
from dunnage.samples.trips import outward_shares, trips_of_hours
from dunnage.tables.dataset import Dataset

_FINE_STEPS = 10**6
_WORD = 53
# Standard deviations of the logarithms of how much stops and pairs attract, and trips for each habit, group and rider.
# With them, the busiest pair of 213 zones has 0.7 % of 6,383 trips, and the busiest 500 pairs have 44 %; of real taxi
# trips in New York they have 0.6 % and 51 %. A month of bikes (30,000 trips between 70 stations) has 1.5 trips for each
# cell with trips if dates are counted separately, and 2.9 if not: real systems have 1.4 to 3.5.
_STOPS_DIFFER, _PAIRS_DIFFER = 1.0, 1.2
# The same for labels of other records, and combinations of labels.
_LABELS_DIFFER, _TYPES_DIFFER = 0.7, 0.7
_TRIPS_OF_HABIT, _TRIPS_OF_GROUP, _TRIPS_OF_RIDER = 0.8, 0.7, 1.7
# Where the number of riders is expected, their trips differ as if a fifth of them made two thirds of all trips.
_RIDERS_DIFFER = 1.3
_TRIPS_A_DATE = 3.0  # of the most frequent riders: without a limit, some would make 20 trips a day
_MAX_STOPS = 1_000  # of generated trips, chosen at random
_SOME_MONDAY = date(2026, 10, 12).toordinal()
_NUM_LABELS = 10  # of a column without a domain
_MISSING = 0.02
_CENTRES, _EVENLY, _AROUND, _STEP = 5, 0.3, 0.08, 0.03


def like(
    policy: Policy,
    size: int,
    seed: int | None = None,
    *,
    noise: Noise | None = None,  # instead of a seed
    period: str | None = None,
    data: Dataset | None = None,  # its public and sensitive columns are used as they are
    largest: Mapping[str, float] | None = None,  # values by column, if something other than the domain limits them
    city: City | None = None,  # for the distances of trips; by default that of the policy
) -> Dataset:
    noise = noise or Noise(seed=seed)
    if policy.schema.trip is not None:
        # Rows name stops, whatever is released.
        schema = replace(policy.schema, trip=replace(policy.schema.trip, level="stop"))
        rows = _like_trips(replace(policy, schema=schema), size, noise, period, city or schema.city)
        return rows.under(policy)
    return _like_rows(policy, size, noise, period if data is None else data.period, data, largest or {}, {})


def like_categories(policy: Policy, size: int, seed: int, period: str | None) -> Dataset:
    """Generate records whose labels, and combinations of labels, are unevenly frequent."""
    noise, universe = Noise(seed=seed), policy.schema.universe(period)
    logs = _TYPES_DIFFER * _normals(noise, universe.num_cells)
    cells = np.arange(universe.num_cells)
    for name in universe.columns:
        logs += (_LABELS_DIFFER * _normals(noise, len(universe.labels(name))))[universe.column_codes(name, cells)]
    shares = np.exp(logs - logs.max())
    drawn = choose(shares / shares.sum(), _uniforms(noise, size))
    labels = {name: texts(universe.labels(name), universe.column_codes(name, drawn)) for name in universe.columns}
    return _like_rows(policy, size, noise, period, None, {}, labels)


def _uniforms(noise: Noise, size: int) -> FloatArray:
    return np.asarray((noise_arrays.below(noise, 1 << _WORD, size) + 0.5) / float(1 << _WORD))


def _normals(noise: Noise, size: int) -> FloatArray:
    from scipy.special import ndtri

    return np.asarray(ndtri(_uniforms(noise, size)))


def _like_rows(
    policy: Policy,
    size: int,
    noise: Noise,
    period: str | None,
    data: Dataset | None,
    largest: Mapping[str, float],
    labels: Mapping[str, pa.Array],
) -> Dataset:
    """Generate rows with the given labels; other quasi-identifiers are uniform, up to the largest allowed values."""
    rows = np.arange(size)
    if data is not None and size != len(data):
        rows = noise_arrays.below(noise, len(data), size)
    columns: dict[str, pa.Array] = {}
    for item in policy.schema:
        domain = item.domain
        if item.name in labels:
            column = labels[item.name]
        elif data is not None and item.role is Role.PUBLIC:
            column = data.column(item.name).take(pa.array(rows))
        elif data is not None and item.role is Role.SENSITIVE:
            column = data.column(item.name).take(pa.array(rows[noise_arrays.permutation(noise, size)]))
        elif item.role in (Role.IDENTIFIER, Role.DROP):
            column = pa.array(np.arange(size, dtype=np.float64)) if item.kind == Numeric.kind else _labels(size)
        elif isinstance(domain, Numeric):
            upper = min(domain.upper_float, largest.get(item.name, domain.upper_float))
            if domain.resolution is not None:
                steps = int(domain.steps_below([max(upper, domain.lower_float)])[0])
                values = domain.grid_values(noise_arrays.below(noise, steps + 1, size))
            else:
                share = noise_arrays.below(noise, _FINE_STEPS + 1, size) / _FINE_STEPS
                values = domain.lower_float + share * (upper - domain.lower_float)
                values = np.clip(values, domain.lower_float, domain.upper_float)
            column = pa.array(values)
        elif domain is not None and not isinstance(domain, Windows) and hasattr(domain, "labels"):
            names = np.array(domain.labels, dtype=object)
            column = pa.array(names[noise_arrays.below(noise, len(names), size)].tolist())
        elif item.role is Role.QUASI_IDENTIFIER:
            raise ParameterError(f"rows with {item.name!r} cannot be generated. Measure on your own data: --on data.")
        else:
            column = _labels(_NUM_LABELS).take(pa.array(noise_arrays.below(noise, _NUM_LABELS, size)))
        if isinstance(domain, Numeric) and domain.clock:  # as times of day are written; the last minute is exclusive
            minutes = np.minimum(column.to_numpy(zero_copy_only=False), domain.upper_float - 1)
            column = pa.array([clock_text(int(minute)) for minute in minutes], pa.string())
        columns[item.name] = column
    if policy.schema.together is not None:
        columns[policy.schema.together] = _labels(size, "group")
    columns |= _of_period(policy, period, size)
    return Dataset.from_table(pa.table(columns), policy, period=period, source="generated data")


def _of_period(policy: Policy, period: str | None, size: int) -> dict[str, pa.Array]:
    """Return the column that says which period a row belongs to, if there is one besides the time of trips."""
    rule, trip = policy.period, policy.schema.trip
    if rule is None or rule.column is None or period is None or (trip is not None and trip.time == rule.column):
        return {}
    dates = dates_of(period)
    return {rule.column: pa.array([date.fromordinal(dates.start) if dates else period] * size)}


def _labels(size: int, word: str = "generated") -> pa.Array:
    return pa.array([f"{word} {number}" for number in range(size)])


class SlotTrips(NamedTuple):
    origins: IntArray
    destinations: IntArray
    slots: IntArray
    riders: IntArray


def _like_trips(policy: Policy, size: int, noise: Noise, period: str | None, city: City | None) -> Dataset:
    """Generate trips as people make them: habits on few pairs of stops at their hour, in small groups, on some days."""
    universe = policy.schema.universe(period)
    stops = np.sort(noise_arrays.permutation(noise, len(universe.stops))[:_MAX_STOPS])
    num = len(stops)
    homes, work = _STOPS_DIFFER * _normals(noise, num), _STOPS_DIFFER * _normals(noise, num)
    pairs = _PAIRS_DIFFER * _normals(noise, num * num).reshape(num, num)
    # attraction : (stops, stops), as logarithms
    attraction = homes[:, None] + work[None] + pairs - deterred(universe, stops, city)
    if num > 1:
        np.fill_diagonal(attraction, -np.inf)
    num_habits, num_groups = 1 + round(size / _TRIPS_OF_HABIT), 1 + round(size / _TRIPS_OF_GROUP)
    # habits : a pair of stops and a window; in the morning most lead from home to work, in the evening back
    ways = choose(np.exp(attraction - attraction.max()).reshape(-1), _uniforms(noise, num_habits))
    windows = choose(window_shares(universe), _uniforms(noise, num_habits))
    starts, lengths = window_seconds(universe)
    outward = outward_shares(((starts + lengths / 2) / 3600 % 24)[windows])
    ends = np.stack(np.divmod(ways, num))
    ends = np.where(_uniforms(noise, num_habits) < outward, ends, ends[::-1])
    # groups : of riders who share a habit on one day; trips : each in a group
    dates = np.array(universe.num_dates or [1] * max(1, len(universe.days)), dtype=np.float64)
    habits, days = noise_arrays.below(noise, num_habits, num_groups), choose(dates, _uniforms(noise, num_groups))
    groups = noise_arrays.below(noise, num_groups, size)
    origins, destinations = stops[ends[:, habits[groups]]]
    riders = noise_arrays.below(noise, max(1, round(size / _TRIPS_OF_RIDER)), size)
    if policy.expect.riders is not None and policy.expect.trips is not None:
        # Few riders make most trips, and each of them mostly the same ones: riders take trips in the order of origins.
        num_riders = max(1, round(size * policy.expect.riders / policy.expect.trips))
        rates = np.exp(_RIDERS_DIFFER * _normals(noise, num_riders))
        rates = _cut_off(rates / rates.sum() * size, _TRIPS_A_DATE * sum(universe.num_dates or [math.inf]))
        riders = np.empty(size, dtype=np.int64)
        riders[np.lexsort((destinations, origins))] = np.sort(choose(rates, _uniforms(noise, size)))
    slots = days[groups] * len(universe.windows) + windows[habits[groups]]
    return trip_rows(policy, period, universe, SlotTrips(origins, destinations, slots, riders), noise)


def _cut_off(rates: FloatArray, most: float) -> FloatArray:
    """Cut off rates above a limit, and raise the others so that the sum stays the same; if that is possible."""
    total = float(rates.sum())
    while rates.max() > most * (1 + 1e-9) and most * len(rates) > total:
        high = rates >= most
        rates = np.where(high, most, rates * (total - most * high.sum()) / max(float(rates[~high].sum()), 1e-9))
    return rates


def window_shares(universe: Universe) -> FloatArray:
    starts, lengths = window_seconds(universe)
    middles, hours = (starts + lengths / 2) / 3600 % 24, trips_of_hours()
    weights = lengths * np.interp(middles, np.arange(-1, 26) + 0.5, [hours[-1], *hours, *hours[:2]])
    return np.asarray(weights / weights.sum())


def deterred(universe: Universe, stops: IntArray, city: City | None) -> FloatArray:
    """Return how much distance keeps people from riding; nothing where it is not known."""
    if city is not None and city.lat is not None and city.lon is not None:
        places = stop_numbers(universe.stops, city)[stops]
        if (places >= 0).all():
            return deterrence(haversine(city.lat[places], city.lon[places]))
    return np.zeros((len(stops), len(stops)))


def trip_rows(policy: Policy, period: str | None, universe: Universe, trips: SlotTrips, noise: Noise) -> Dataset:
    trip = policy.schema.trip
    assert trip is not None
    days, windows = np.divmod(trips.slots, len(universe.windows))
    starts, lengths = window_seconds(universe)
    seconds = starts[windows] + noise_arrays.below_each(noise, lengths[windows])
    times = _times(policy.schema.time, period, days, seconds, noise)
    if policy.schema[trip.time].format is not None and pc.match_substring(times, "T").true_count:
        times = times.cast(pa.timestamp("s"))  # the format is about dates in text
    columns = {
        trip.origin: texts(universe.stops, trips.origins),
        **({trip.destination: texts(universe.stops, trips.destinations)} if trip.destination else {}),
        trip.time: times,
        **_of_period(policy, period, len(seconds)),
    }
    if trip.count is not None:
        columns[trip.count] = pa.array(["1"] * len(seconds), pa.string())
    if trip.day is not None:
        columns[trip.day] = texts(universe.days, days)
    for attribute in policy.schema:
        columns.setdefault(attribute.name, _written(trips.riders, lambda rider: f"r{rider}"))
    return Dataset.from_table(pa.table(columns), policy, period=period, source="generated trips")


def _written(numbers: IntArray, write: Callable[[int], str]) -> pa.Array:
    """Write each number once, however often it occurs."""
    unique, codes = np.unique(numbers, return_inverse=True)
    return texts([write(number) for number in unique.tolist()], codes)


def _times(time: Windows, period: str | None, days: IntArray, seconds: IntArray, noise: Noise) -> pa.Array:
    """Write moments as a policy of trips reads them: with a date if days are distinguished or counted."""
    calendar = time.calendar(period)
    if calendar is None and time.day is None:
        return _written(seconds, second_text)
    dates = np.arange(*((calendar.start, calendar.stop) if calendar else (_SOME_MONDAY, _SOME_MONDAY + 7)))
    codes = time.day_codes(dates, period)
    labels = days if time.day is not None else np.zeros_like(days)
    ordinals = np.zeros(len(days), dtype=np.int64)
    for day in np.unique(labels).tolist():
        rows, own = np.flatnonzero(labels == day), dates[codes == day]
        ordinals[rows] = own[noise_arrays.below(noise, len(own), len(rows))]

    def moment(second: int) -> str:
        return f"{date.fromordinal(second // DAY_SECONDS).isoformat()}T{second_text(second % DAY_SECONDS)}"

    return _written(ordinals * DAY_SECONDS + seconds, moment)


def like_reports(purpose: Purpose, num: int, noise: Noise) -> tuple[FloatArray, ...]:
    """Generate reports of vehicles: numbers around random middles, or places and paths around some centres."""
    columns: list[FloatArray] = []
    if purpose.grid is None:
        from scipy.special import expit

        for quantity in purpose.quantities:
            middle, spread = _normals(noise, 1)[0], 0.5 + _uniforms(noise, 1)[0]
            low, high = float(quantity.low), float(quantity.high)
            values = low + (high - low) * np.asarray(expit(middle + spread * _normals(noise, num)))
            if quantity.missing == "symbol":
                values = np.where(_uniforms(noise, num) < _MISSING, np.nan, values)
            columns.append(values)
        return tuple(columns)
    west, south, east, north = (float(side) for side in purpose.grid.box)
    centres = _uniforms(noise, 2 * _CENTRES).reshape(_CENTRES, 2)
    near = centres[noise_arrays.below(noise, _CENTRES, num)] + _AROUND * _normals(noise, 2 * num).reshape(num, 2)
    anywhere = _uniforms(noise, num) < _EVENLY
    places = np.where(anywhere[:, None], _uniforms(noise, 2 * num).reshape(num, 2), near)
    for _ in range(purpose.steps):
        columns += [west + (east - west) * places[:, 0], south + (north - south) * places[:, 1]]
        places = places + _STEP * _normals(noise, 2 * num).reshape(num, 2)
    return tuple(columns)
