# SPDX-License-Identifier: Apache-2.0
"""Usefulness: how far off a table of counts will be at each level, predicted from public facts alone.

Trips (or other records) of the public shape of a policy are generated, as many as it expects. The mechanism runs on
them, and its final table (after projection, thresholds and rounding) is compared with them at each level. An empty
table misses every trip, so its error is all trips at every level: a level whose error is close to that is noise. No
private row is used, so that a refusal reveals nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from dunnage.arrays import BoolArray
from dunnage.errors import ParameterError
from dunnage.exact import decimal_text
from dunnage.mechanisms.base import Mechanism, Progress
from dunnage.mechanisms.counts import (
    ConstrainedCounts,
    Counted,
    CountsMechanism,
    DrawnCounts,
    Feature,
    FeatureColumns,
    FeatureMechanism,
    feature_name,
    true_counts,
)
from dunnage.mechanisms.fitted_counts import FittedCounts
from dunnage.model.certificate import GOOD_ERROR, ExpectedError, LevelError
from dunnage.model.domains import Windows
from dunnage.model.policy import Policy
from dunnage.model.schema import Role, Schema
from dunnage.model.trips import SLOT_COLUMNS, Level, Universe
from dunnage.noise.source import Noise
from dunnage.release.kinds.counts import level_words
from dunnage.samples.shape import like, like_categories, window_shares
from dunnage.tables.dataset import Dataset
from dunnage.text import large_percent, plural, several

SEED = 19  # public facts decide, so the same policy always gets the same verdict
MIN_DRAWS, MAX_DRAWS, DRAWN_TRIPS = 3, 12, 30_000
# How many times as many trips are generated as are used. Leaving some out at random spreads the others more thinly.
# Real taxis and bikes share their type with fewer others than generated trips do, and noise would pass.
THINNING = 2
MAX_TRIPS = 200_000  # with more, only the busiest windows are predicted: all of them would take many seconds
MAX_WINDOW_TRIPS = 1_000_000  # trips of one window that are generated; with more, errors are smaller than predicted
REMEDY_ERROR = 0.5  # the largest predicted error of a table, or of sums, that a refusal recommends
LONGER = (7, 30)  # how many times as long a period could be
BOUNDS = (1, 2, 3, 5, 8, 12, 20, 30, 50)  # on the trips of a rider
EPSILONS = (2, 4, 8)  # by how much epsilon could grow
MAX_EPSILON = 10
NUM_ZONES = (20, 10, 5)  # how many zones a city without any could have
MAX_MARGIN_CELLS = 1 << 18  # estimates of more cells would take many seconds


def unchecked(schema: Schema) -> str:
    key = "trips = 30000" if schema.trip is not None else "records = 5000"
    return (
        f"nobody checked whether these counts will be useful, because the policy does not say how many "
        f"{key.partition(' ')[0]} to expect. Write the number that you expect in one release, from public knowledge "
        f"and not from this file, into the policy: [expect] and, below it, {key}. dunnage publish --dry-run then "
        "predicts the error at each level."
    )


class BoundError(NamedTuple):
    max: int  # the bound on the trips of a rider
    levels: tuple[LevelError, ...]  # the released types, and their coarsest sums but the total


class Remedy(NamedTuple):
    change: str  # what to write, in words
    level: LevelError  # the predicted error of the counts that are then released


@dataclass(frozen=True, kw_only=True)
class Usefulness:
    """The predicted error of a table of counts and, if it is noise or rough, what would help."""

    expected: ExpectedError
    remedies: tuple[Remedy, ...] = ()
    bounds: tuple[BoundError, ...] = ()  # what other bounds on the trips of a rider would lead to

    @property
    def is_noise(self) -> bool:
        return self.expected.is_noise

    @property
    def changes(self) -> list[str]:
        return [f"- {remedy.change}: {self._words(remedy.level)}" for remedy in self.remedies]

    def _words(self, level: LevelError) -> str:
        return level_words(level, self.expected.noun)

    @property
    def message(self) -> str:
        """Say that the counts are noise, which of their sums are not, and what would help."""
        released, *coarser = self.expected.levels
        units = plural(self.expected.noun)
        compared = "further from the truth than" if released.error > 1 else "hardly better than"
        lines = [
            f"these counts would be noise. With {several(self.expected.trips, f'expected {self.expected.noun}')}, the "
            f"errors of {released.level} add up to {large_percent(released.error)} of all {units}: {compared} an "
            "empty table, with 100 %."
        ]
        if useful := [item for item in coarser if item.error <= REMEDY_ERROR]:
            lines.append(f"Only sums of these counts would be useful: {'; '.join(map(self._words, useful))}.")
        if self.remedies:
            lines += ["With any one of these lines, the counts are better than noise:", *self.changes]
        elif self.expected.unit is not None:
            lines.append(
                f"Leaving out columns, {LONGER[-1]} times as many {units} and epsilon {EPSILONS[-1]} times as large do "
                "not help, not even together. Use coarser labels, or do not publish these counts."
            )
        else:
            lines.append(
                f"Zones, longer windows, {LONGER[-1]} times as many trips and epsilon {EPSILONS[-1]} times as large do "
                "not help, not even together. Count between fewer stops, or do not publish these counts."
            )
        return "\n".join(lines)

    def to_dict(self) -> dict[str, object]:
        levels = [{**item.plain(), "verdict": item.verdict} for item in self.expected.levels]
        remedies = [{"change": item.change, **item.level.plain()} for item in self.remedies]
        bounds = [{"max": item.max, "levels": [level.plain() for level in item.levels]} for item in self.bounds]
        stated = {**self.expected.plain(), "levels": levels, "noise": self.is_noise, "remedies": remedies}
        return {**stated, **({"bounds": bounds} if bounds else {})}


class Trial(NamedTuple):
    policy: Policy
    mechanism: CountsMechanism
    period: str | None = None
    longer: int = 1  # times as many trips as expected
    change: str = ""  # in words

    def changed(self, change: str, **parts: Any) -> Trial:
        return self._replace(change=f"{self.change}; {change}" if self.change else change, **parts)


def predict_usefulness(
    policy: Policy,
    mechanism: Mechanism,
    *,
    period: str | None = None,
    helpful: bool = True,  # whether to look for what would help if the counts are noise
    bounds: bool = False,  # whether to try other bounds on the trips of a rider too, and what makes rough counts good
    progress: Progress | None = None,
) -> Usefulness | None:
    """Predict the error of a table of counts; None if the policy does not say how many trips to expect."""
    if (size := policy.expect.size) is None or not isinstance(mechanism, CountsMechanism):
        return None
    tell = progress or (lambda stage: None)
    tell("predicting how useful the counts will be")
    trial = Trial(policy, mechanism, period)
    part = Part.of(policy, period, size)
    unit = {} if policy.schema.trip is not None else {"unit": policy.schema.protects}
    expected = ExpectedError(trips=size, levels=part.errors(trial, MAX_DRAWS), hours=part.hours, **unit)
    tried: tuple[BoundError, ...] = ()
    if bounds and policy.schema.contribution is not None and policy.expect.riders is not None:
        tell("trying bounds on the trips of a rider")
        tried = tuple(_tried_bounds(trial, part))
    # Rough counts are released without a word, so what would make them good is looked for only where somebody reads it.
    if not helpful or expected.levels[0].verdict == "good" or not (expected.is_noise or bounds):
        return Usefulness(expected=expected, bounds=tried)
    tell("looking for a policy with useful counts")
    largest = REMEDY_ERROR if expected.is_noise else GOOD_ERROR
    return Usefulness(expected=expected, remedies=tuple(_remedies(trial, part, largest)), bounds=tried)


def _tried_bounds(trial: Trial, part: Part) -> Iterator[BoundError]:
    """Yield predicted errors bound by bound, until larger bounds have made both levels worse twice."""
    schema, best, worse = trial.policy.schema, (math.inf, math.inf), 0
    assert schema.contribution is not None
    for most in sorted({*BOUNDS, schema.contribution.max}):
        bounded = replace(schema, contribution=replace(schema.contribution, max=most))
        try:
            first, *others = part.errors(trial._replace(policy=replace(trial.policy, schema=bounded)))
        except ParameterError:  # total_max is not above it
            return
        levels = (first, *others[:-1][-2:-1])
        yield BoundError(most, levels)
        now = tuple(level.error for level in (levels[0], levels[-1]))
        worse = worse + 1 if now[0] > best[0] and now[1] > best[1] else 0
        best = (min(best[0], now[0]), min(best[1], now[1]))
        if worse == 2 and most > schema.contribution.max:
            return


class Part(NamedTuple):
    """Generated trips: of the whole service day or, if it is large, of its busiest windows."""

    trips: Dataset
    rows: BoolArray  # the trips that are used: some of them, or those of some riders
    hours: list[str] | None  # None for the whole service day

    @classmethod
    def of(cls, policy: Policy, period: str | None, size: int) -> Part:
        if policy.schema.trip is None:
            records = like_categories(policy, THINNING * min(size, MAX_WINDOW_TRIPS), SEED, period)
            return cls(records, np.arange(len(records)) % THINNING == 0, None)
        whole, hours = policy.schema.universe(period, level="stop"), None
        shares, time = window_shares(whole), policy.schema.time
        num = len(shares)
        while num > 1 and size * np.convolve(shares, np.ones(num), "valid").max() > MAX_TRIPS:
            num -= 1
        if num < len(shares):
            sums = np.convolve(shares, np.ones(num), "valid")
            first = int(np.argmax(sums))
            hours = [whole.windows[first], whole.windows[first + num] if first + num < len(shares) else time.upper]
            size = max(1, round(size * float(sums[first])))
            time = replace(time, lower=hours[0], upper=hours[1])
        narrow = _with_time(policy, time)
        if narrow.period is not None:  # all generated trips are of the period
            narrow = replace(narrow, period=replace(narrow.period, column=None))
        trips = like(narrow, THINNING * min(size, MAX_WINDOW_TRIPS), SEED, period=period)
        units = np.arange(len(trips)) if trips.persons is None else trips.persons
        return cls(trips, units % THINNING == 0, hours)

    def errors(self, trial: Trial, max_draws: int = MIN_DRAWS, largest: float = math.inf) -> list[LevelError]:
        """Run the mechanism on the trips a few times, and compare the final tables with them at each level.

        There are fewer runs where the mean error of what is released is sure to be above the largest.
        """
        policy, whole = trial.policy, trial.policy.schema.universe(self.trips.period)
        if whole.of_trips:
            time = policy.schema.time
            if self.hours is not None:
                time = replace(time, lower=self.hours[0], upper=self.hours[1])
            policy = _with_time(policy, time)
        trips = self.trips.under(policy)
        truth, prepared = true_counts(trips, rows=self.rows), trial.mechanism.prepare(trips)
        num_draws = min(max_draws, max(MIN_DRAWS, DRAWN_TRIPS // max(1, truth.num_trips)))
        asked = trial.mechanism.levels(trial.policy.schema)
        others = {name: columns for name, columns in levels_of(whole).items() if columns not in asked.values()}
        if not whole.of_trips and isinstance(trial.mechanism, FeatureMechanism):  # what is measured is looked at, too
            measured = (query.columns for query in trial.mechanism.queries(trial.policy.schema))
            others |= {feature_name(columns): columns for columns in measured if columns}
        if (
            self.hours is not None
        ):  # sums over all hours also have the errors of quiet hours, where most cells are empty
            others = {name: columns for name, columns in others.items() if not {*columns}.isdisjoint(SLOT_COLUMNS)}
        errors, levels = list[list[float]](), {**asked, **others}
        for draw in range(num_draws):
            if sum(error[0] for error in errors if error) > num_draws * largest:
                break
            noise = Noise(seed=SEED + draw)
            table = trial.mechanism.draw_table(trips, prepared, noise, self.rows)
            own = level_errors(truth, table, levels.values())
            by_zone = feature_name(whole.ends_at("zone"))
            if whole.of_trips and not any(by_zone in item.feature for item in table.figures.get("features", ())):
                skewed = replace(truth, universe=_busy_together(truth))  # the sums by zone are not measured
                own = np.maximum(own, level_errors(skewed, table, levels.values())).tolist()
            errors.append(own)
        places, predicted = truth.universe.split(truth.cells), []
        for (level, columns), error in zip(levels.items(), np.mean(errors, axis=0).tolist(), strict=True):
            busy = len(Feature.of(truth.universe, columns).listed_sums(*places, truth.counts))
            each, size = _short(truth.num_trips / max(1, busy)), Feature.of(whole, columns).size
            predicted.append(LevelError(level=level, sums=size, trips=each, error=_short(error)))
        return predicted


def _busy_together(truth: Counted) -> Universe:
    """Put the busiest stops into the same zones, the smallest first, as in a real city with a centre."""
    # In generated trips zones are about equally busy, so a mechanism that spreads trips evenly would look right.
    universe, city = truth.universe, truth.universe.city
    if universe.level == "zone" or city is None or city.zones is None:
        return universe
    ends = np.concatenate([universe.column_codes(name, truth.cells) for name in universe.ends])
    busiest = np.argsort(
        -np.bincount(ends, np.tile(truth.counts, len(universe.ends)), len(universe.stops)), kind="stable"
    )
    zones, sizes = np.empty_like(city.zones), np.bincount(city.zones)
    zones[busiest] = np.repeat(np.argsort(sizes), np.sort(sizes))
    return replace(universe, city=replace(city, zones=zones))


def levels_of(universe: Universe) -> dict[str, FeatureColumns]:
    """Return the sums that people look at, the released types first, by name, with the columns that define them."""
    if not universe.of_trips:
        each = (universe.columns, *((name,) for name in universe.columns), ())
        return {feature_name(columns): columns for columns in each}
    slots = tuple(name for name in SLOT_COLUMNS if len(universe.labels(name)) > 1)
    levels = dict[str, FeatureColumns]()
    zoned = universe.city is not None and universe.city.zones is not None
    places: tuple[Level, ...] = (universe.level, "zone") if zoned else (universe.level,)
    for place in places:
        name, columns = f"{place} pairs" if universe.arrives else f"{place}s", universe.ends_at(place)
        if slots:
            levels[f"{name} by {' and '.join(slots)}"] = (*columns, *slots)
        levels[name] = columns
    if slots:
        levels[" and ".join(f"{name}s" for name in slots)] = slots
    return {**levels, "total": ()}


def level_errors(truth: Counted, table: DrawnCounts, levels: Iterable[FeatureColumns]) -> list[float]:
    """Return the sum of all errors at each level, as a share of all trips: 1 for an empty table."""
    cells = np.union1d(truth.cells, table.cells)
    differences = np.zeros(len(cells), dtype=np.int64)
    differences[np.searchsorted(cells, truth.cells)] -= truth.counts
    differences[np.searchsorted(cells, table.cells)] += table.counts
    places = truth.universe.split(cells)
    sums = (Feature.of(truth.universe, columns).listed_sums(*places, differences) for columns in levels)
    return [float(np.abs(own).sum()) / max(1, truth.num_trips) for own in sums]


def _short(value: float) -> float:
    return float(f"{value:.3g}")


def _with_time(policy: Policy, time: Windows) -> Policy:
    """Return a policy with other windows; times outside them, or that the clock of a zone skips, are left out."""
    schema = policy.schema
    assert schema.trip is not None  # trips are counted
    attributes = tuple(
        replace(item, domain=time, outside="leave-out") if item.name == schema.trip.time else item for item in schema
    )
    return replace(policy, schema=replace(schema, attributes=attributes))


# What would help


def _remedies(trial: Trial, part: Part, largest: float) -> Iterator[Remedy]:
    """Yield the smallest change of each kind after which errors are small or, if none does, of several together."""
    parts = {1: part}  # generated once for each number of trips

    def remedy(changed: Trial) -> Remedy | None:
        if changed.longer not in parts:
            num_trips = (changed.policy.expect.size or 0) * changed.longer
            parts[changed.longer] = Part.of(trial.policy, changed.period, num_trips)
        try:
            predicted = parts[changed.longer].errors(changed, largest=largest)
        except ParameterError:  # the mechanism refuses such a table
            return None
        # None: a single window for the whole day cannot be predicted from busy hours.
        return Remedy(changed.change, predicted[0]) if predicted and predicted[0].error <= largest else None

    none, of_trips = True, trial.policy.schema.trip is not None
    one_change = (_zones, _windows, _methods, _longer, _epsilons_and_methods)
    for changes in one_change if of_trips else (_columns, _cells, _longer, _epsilons):
        if one := next(filter(None, map(remedy, changes(trial))), None):
            none = False
            yield one
    changed = trial
    several_changes = (_zones, _windows, _longer, _epsilons) if of_trips else (_columns, _longer, _epsilons)
    for changes in several_changes if none else ():
        *_, changed = (changed, *changes(changed))  # the last one changes most
        if one := remedy(changed):
            yield one
            return


def _zones(trial: Trial) -> Iterator[Trial]:
    schema, city = trial.policy.schema, trial.policy.schema.city
    if schema.level == "zone" or schema.trip is None or city is None:
        return
    trip, written = replace(schema.trip, level="zone"), 'level = "zone" in [trip]'
    if len(city.zone_names) > 1:
        yield trial.changed(written, policy=replace(trial.policy, schema=replace(schema, trip=trip)))
        return
    for num in NUM_ZONES:
        if 2 * num <= len(city.stops):  # any zones of equal size: the prediction does not know where stops are
            zones = (np.arange(len(city.stops)) * num // len(city.stops)).astype(np.int32)
            zoned = replace(city, zone_names=tuple(f"zone {zone + 1}" for zone in range(num)), zones=zones)
            coarser = replace(trial.policy, schema=replace(schema, trip=trip, city=zoned))
            column = f"a column zone in the file of stops, with {num} zones for example"
            yield trial.changed(f"{written} and {column}", policy=coarser)


def _columns(trial: Trial) -> Iterator[Trial]:
    """Leave out the columns with most labels, one after the other."""
    universe = trial.policy.schema.universe()
    names = sorted(universe.columns, key=lambda name: -len(universe.labels(name)))
    for num in range(1, len(names)):
        left_out = names[:num]
        attributes = tuple(
            replace(item, role=Role.DROP) if item.name in left_out else item for item in trial.policy.schema
        )
        fewer = replace(trial.policy, schema=replace(trial.policy.schema, attributes=attributes))
        yield trial.changed(f'role = "drop" for {" and ".join(left_out)}', policy=fewer)


def _cells(trial: Trial) -> Iterator[Trial]:
    """Spend more of epsilon on single counts."""
    method, change = trial.mechanism, 'budget_shares = "cells" in [mechanism]'
    if not isinstance(method, ConstrainedCounts):
        method = ConstrainedCounts(epsilon=method.epsilon)
        change = f'name = "{method.name}" and {change}'
    yield trial.changed(change, mechanism=method.model_copy(update={"budget_shares": "cells"}))


def _windows(trial: Trial) -> Iterator[Trial]:
    schema, time = trial.policy.schema, trial.policy.schema.time
    assert schema.trip is not None
    whole = (time.upper_seconds - time.lower_seconds) // 60
    for minutes in (4 * time.window_minutes, whole):
        if time.window_minutes < minutes <= whole:
            coarser = _with_time(trial.policy, replace(time, window_minutes=minutes))
            yield trial.changed(f"window_minutes = {minutes} in [attributes.{schema.trip.time}]", policy=coarser)


def _methods(trial: Trial) -> Iterator[Trial]:
    if not isinstance(trial.mechanism, FittedCounts) and len(trial.policy.schema.ends) == 2:
        fitted = FittedCounts(epsilon=trial.mechanism.epsilon, expected_trips=trial.policy.expect.trips)
        yield trial.changed(f'name = "{fitted.name}" in [mechanism]', mechanism=fitted)
    features = ConstrainedCounts.richest_features(trial.policy.schema.city)
    small = trial.policy.schema.universe(trial.period).num_cells <= MAX_MARGIN_CELLS
    for shares in ("cells", "margins") if small else ("cells",):
        method = ConstrainedCounts(epsilon=trial.mechanism.epsilon, features=features, budget_shares=shares)
        written = f'name = "{method.name}", features = "{features}" and budget_shares = "{shares}" in [mechanism]'
        yield trial.changed(written, mechanism=method)


def _longer(trial: Trial) -> Iterator[Trial]:
    schema = trial.policy.schema
    if schema.trip is None or schema.time.day != "date":  # otherwise each date has counts of its own
        for times in LONGER:
            trips = several(times * (trial.policy.expect.size or 0), schema.universe(trial.period).unit)
            yield trial.changed(f"a period {times} times as long, with {trips} in one release", longer=times)


def _epsilons(trial: Trial) -> Iterator[Trial]:
    for times in EPSILONS:
        if (epsilon := times * trial.mechanism.epsilon) <= MAX_EPSILON:
            method = trial.mechanism.model_copy(update={"epsilon": epsilon})
            yield trial.changed(f"epsilon = {decimal_text(epsilon)} in [mechanism]", mechanism=method)


def _epsilons_and_methods(trial: Trial) -> Iterator[Trial]:
    """Yield what keeps stops and windows, which planners of shuttles need: more epsilon alone, then spent better."""
    yield from _epsilons(trial)
    if trial.policy.schema.universe(trial.period).num_cells <= MAX_MARGIN_CELLS:
        for changed in _epsilons(trial):
            yield from _methods(changed)
