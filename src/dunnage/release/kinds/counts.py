# SPDX-License-Identifier: Apache-2.0
"""Releases of counts: one line for each type of trips, or combination of labels, that has any.

All words follow from the certificate; nothing here sees the true counts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa

from dunnage.arrays import IntArray
from dunnage.errors import CheckFailed, ParameterError
from dunnage.exact import decimal_text, exact
from dunnage.model.certificate import Certificate, ExpectedError, FeatureNoise, LevelError
from dunnage.model.schema import RIDER
from dunnage.model.trips import Universe
from dunnage.release.kinds import CELLS, Columns, Kind, fill, require, same
from dunnage.text import large_percent, plural, rounded_percent, several

if TYPE_CHECKING:
    from dunnage.release import Release

NOISE_WORDS = "These counts are noise. Read only the sums that the table does not call noise."
NOT_CHECKED = (
    "that the counts were made from the owner's true trips, and all of them",
    "that stops, windows, zones and modes were chosen without looking at the data",
    "that the noise follows the stated law, is new for every sum, and that nothing else of the true trips was used",
    "that the lists of what is in clear and of what is assumed are complete",
    "that the ledger has the spend, and what else was released about the same trips",
)
BOUND_NOT_CHECKED = ("that no more trips of each rider were counted than stated, and that nobody has two cards",)
CITY_NOT_CHECKED = ("the zone of each stop and the mode of each pair of stops, and so the number of groups by them",)
_HIDDEN = "origin_zone|destination_zone|mode"  # columns whose values a certificate does not list


class CountsKind(Kind):
    table_words: ClassVar = {"data": "one line for each type of trips; **a type that is not listed has none**"}
    unchecked: ClassVar = (
        *((words,) for words in NOT_CHECKED),
        (*BOUND_NOT_CHECKED, f"guarantee.protects~{RIDER}"),
        (*CITY_NOT_CHECKED, f"measures.features.*.feature~.*({_HIDDEN}).*", f"attributes.*.name~{_HIDDEN}"),
        ("the predicted errors, which follow from trips that were generated", "measures.expected"),
    )

    def tables(self, release: Release) -> dict[str, Columns]:
        return {"data": {**dict.fromkeys(_universe(release).cell_columns, pa.string()), "count": pa.int64()}}

    def recount(self, release: Release) -> Iterator[str]:
        cells, counts = release.counted()
        require(bool((np.diff(cells) > 0).all()), "data: a type is listed twice, or out of order")
        kept, what = (counts != 0, "other than") if _signed(release.certificate) else (counts > 0, "above")
        require(bool(kept.all()), f"data: a count is not {what} zero")
        universe, measures = release.universe, release.certificate.counts
        figures = {"trips": _sum(counts), "cells": universe.num_cells, "cells_with_trips": len(cells)}
        wrong = [name for name, value in figures.items() if getattr(measures, name) != value]
        require(not wrong, f"certificate.json: wrong figures: {', '.join(wrong)}")
        bound, time = measures.contribution, universe.time
        unstated = "certificate.json: does not state how many trips of a rider were counted"
        require((bound is not None) == (release.certificate.guarantee.protects == RIDER), unstated)
        if bound is not None:
            require(bound.max >= 1 and (bound.days is None) == (bound.per == "period"), unstated)
            dates = time.calendar(release.certificate.period) if time is not None else None
            follows = bound.days is None or (dates is not None and len(dates) == bound.days)
            require(follows, "certificate.json: the days of a rider do not follow from the service dates")
        yield (
            f"{several(figures['trips'], universe.unit)} of {several(len(cells), 'type')}; each type is one of the "
            f"{universe.num_cells:,} of the public domain, listed once and in order, with a count {what} zero"
        )

    def column_words(self, name: str, release: Release, table: str = "data") -> str:
        universe = release.universe
        times = universe.time
        window = f"start of a window of {several(universe.window_minutes, 'minute')}, HH:MM"
        if times is not None:
            window += f" of a service day from {times.lower} to {times.upper}"
            window += "; times from 24:00 on are on the next calendar day" if times.upper > "24:00" else ""
            window += f"; local time of {times.zone}" if times.zone else ""
        listed = "1 or more, because a type without trips is not listed"
        if _signed(release.certificate):
            listed = "negative where noise outweighs the trips; a type that is not listed has 0"
        words = {
            **dict(
                zip(universe.ends, (f"{universe.level} where the trips {go}" for go in ("start", "end")), strict=False)
            ),
            "window": window,
            "day": "day, or kind of day, on which the trips start",
            "count": f"number of trips with noise; {listed}",
        }
        return words[name]

    def loss_words(self, certificate: Certificate) -> tuple[str, ...]:
        if certificate.basis != "proved":
            return ()
        loss, bound = certificate.counts.loss, _bound_words(certificate)
        delta = getattr(certificate.guarantee, "delta", None)
        each, at = decimal_text(exact(loss.trip), up=True), f" at delta {decimal_text(delta)}" if delta else ""
        trip = f"One trip loses at most epsilon {each}{at}."
        if not bound or loss.rider is None:
            many = "more with each trip" if delta else f"at most epsilon {each} for each trip"
            return trip, f"One rider loses {many}; the number of trips has no bound."
        return f"One rider loses at most epsilon {decimal_text(exact(loss.rider), up=True)}{at}: {bound}.", trip

    def readme(self, release: Release, columns: str) -> str:
        universe = release.universe
        place, (origin, *others) = universe.level, universe.ends
        return fill(
            "counts",
            universe=_universe_words(release.certificate, release.universe),
            days=_days_words(release.universe),
            noise=_noise_words(release.certificate),
            columns=columns,
            place=place,
            origin=origin,
            order="day, window, origin and destination" if others else "day, window and origin",
            across=others[0] if others else "window",
            to=f"to each {place} (columns) over all windows" if others else "in each window (columns) on all days",
            labels=f", columns={place}s" if others else "",
            goes=f" and goes from `{origin}` to `{others[0]}`" if others else f", at `{origin}`",
        )

    def figures(self, release: Release) -> list[str]:
        measures, universe = release.certificate.counts, release.universe
        losses, bound = self.loss_words(release.certificate), _bound_words(release.certificate)
        listed = f"{measures.cells_with_trips:,} of {measures.cells:,} types; a type that is not listed has no trips"
        windows = f"{several(len(universe.windows), 'window')} of {several(universe.window_minutes, 'minute')}"
        parts = [several(len(universe.stops), universe.level), f"{windows} from {universe.windows[0]}"]
        parts += [_day_labels(universe)] if universe.days else []
        dates = sum(universe.num_dates)
        return [
            f"Trips       {measures.trips:,}, of {listed}",
            f"Universe    {', '.join(parts)}" + (f"; {several(dates, 'calendar day')} in all" if dates else ""),
            *(f"Loss        {words}" for words in losses),
            *([f"Riders      {bound}"] if bound and not losses else []),
            *(f"Corrected   {words}" for words in correction_words(release.certificate)),
            *_noise_lines(release.certificate),
            *(expected_lines(measures.expected) if measures.expected is not None else []),
        ]

    def headline(self, certificate: Certificate, num_rows: int, num_left_out: int) -> list[str]:
        measures = certificate.counts
        listed = f"{measures.cells_with_trips:,} of {measures.cells:,} types; the other types have no trips"
        lines = [f"Trips     {measures.trips:,}, of {listed}"]
        if measures.expected is not None:
            lines.append(predicted_words(measures.expected))
        return lines


class CategoriesKind(CountsKind):
    """Counts of records by the labels of some columns."""

    table_words: ClassVar = {"data": "one line for each type of records; **a type that is not listed has none**"}
    unchecked: ClassVar = (
        ("that the counts were made from the owner's true records, and all of them",),
        ("that the labels were chosen without looking at the data",),
        ("that the noise follows the stated law, is new for every sum, and that nothing else of the records was used",),
        ("that the lists of what is in clear and of what is assumed are complete",),
        ("that the ledger has the spend, and what else was released about the same records",),
        ("the predicted errors, which follow from records that were generated", "measures.expected"),
    )

    def column_words(self, name: str, release: Release, table: str = "data") -> str:
        if name == "count":
            return (
                f"number of {plural(release.universe.unit)} with noise; 1 or more, because other types are not listed"
            )
        return f"one of {several(len(release.universe.labels(name)), 'label')} that are listed in `certificate.json`"

    def loss_words(self, certificate: Certificate) -> tuple[str, ...]:
        if certificate.basis != "proved":
            return ()
        each, unit = decimal_text(exact(certificate.counts.loss.trip), up=True), certificate.guarantee.protects
        return (
            f"One {unit} loses at most epsilon {each}.",
            f"Somebody with several {plural(unit)} loses that for each of them.",
        )

    def readme(self, release: Release, columns: str) -> str:
        certificate, universe = release.certificate, release.universe
        return fill(
            "categories",
            period=f"The period is **{certificate.period}**.\n" if certificate.period is not None else "",
            units=plural(universe.unit),
            names=", ".join(universe.cell_columns),
            types=f"{universe.num_cells:,}",
            listed=f"{certificate.counts.cells_with_trips:,}",
            total=several(certificate.counts.trips, universe.unit),
            noise=_noise_words(certificate),
            columns=columns,
            first=json.dumps(universe.cell_columns[0], ensure_ascii=False),
        )

    def figures(self, release: Release) -> list[str]:
        measures, universe = release.certificate.counts, release.universe
        axes = ", ".join(f"{name} ({len(universe.labels(name)):,})" for name in universe.cell_columns)
        return [
            f"Counts      {self._listed(release.certificate)}",
            f"Universe    {axes}",
            *(f"Loss        {words}" for words in self.loss_words(release.certificate)),
            *_noise_lines(release.certificate),
            *(expected_lines(measures.expected) if measures.expected is not None else []),
        ]

    def headline(self, certificate: Certificate, num_rows: int, num_left_out: int) -> list[str]:
        expected = certificate.counts.expected
        lines = [f"Counts    {self._listed(certificate)}"]
        return [*lines, predicted_words(expected)] if expected is not None else lines

    @staticmethod
    def _listed(certificate: Certificate) -> str:
        measures, unit = certificate.counts, certificate.guarantee.protects
        listed = f"{measures.cells_with_trips:,} of {measures.cells:,} types; a type that is not listed has none"
        return f"{several(measures.trips, unit)}, of {listed}"


def _universe(release: Release) -> Universe:
    """Read the universe back, and check that the certificate states it exactly and days follow from the calendar."""
    wrong = "certificate.json: the attributes do not describe what is counted"
    try:
        universe, period = release.universe, release.certificate.period
        time, days = universe.time, universe.days
        calendar: tuple[int, ...] = ()
        if time is not None and (time.day is not None or not days):  # days are not a column of their own
            days, calendar = time.days(period), time.num_dates(period)
    except (ParameterError, KeyError, TypeError, ValueError):
        raise CheckFailed(wrong) from None
    require(same(universe.describe(), [item.plain() for item in release.certificate.attributes]), wrong)
    # Without a calendar the owner may state any number of dates, and without labels fewer than the calendar has.
    stated = universe.num_dates
    fits = stated == calendar
    if not calendar or not days:
        most = calendar or (math.inf,) * len(stated)
        fits |= len(stated) == max(1, len(days)) and all(1 <= num <= top for num, top in zip(stated, most, strict=True))
    require(days == universe.days and fits, "certificate.json: the days, or their number, do not follow from the dates")
    return universe


def _signed(certificate: Certificate) -> bool:
    """Return whether negative counts were kept."""
    return certificate.mechanism.get("negatives") is True


def _sum(counts: IntArray) -> int:
    """Add up in two halves, so that nothing overflows whatever the counts are."""
    return (int((counts >> 32).sum()) << 32) + int((counts & 0xFFFFFFFF).sum())


def _bound_words(certificate: Certificate) -> str:
    """Say how many trips of a rider were counted at most; empty if each trip is protected by itself."""
    bound = certificate.counts.contribution
    if certificate.guarantee.protects != RIDER or bound is None:
        return ""
    counted = f"of each rider at most {several(bound.max, 'trip')}"
    counted += "" if bound.per_cell is None else f" ({bound.per_cell:,} of one type)"
    were = "was" if bound.max == 1 else "were"
    if bound.days is not None:
        return f"{counted} a day {were} counted, on {several(bound.days, 'day')}: {bound.max * bound.days:,} in all"
    return f"{counted} {were} counted in {'the whole period' if certificate.period is not None else 'all'}"


def _spread(law: str, scale: Fraction) -> float:
    from dunnage.model.laws import count_noise_spread  # classes do not need it

    return count_noise_spread(law, scale)


def correction_words(certificate: Certificate) -> tuple[str, ...]:
    """Say what share of all trips was counted, and that counts were divided by it; nothing if it was not measured."""
    if (stated := certificate.counts.correction) is None:
        return ()
    if stated.share is None:
        return ("too few trips were counted to say what share of all trips they are: sums are below the true demand",)
    spread = _spread(stated.law, exact(stated.scale))
    kept, dropped = stated.kept, max(0, stated.dropped)
    off = spread * math.hypot(kept, dropped) / (kept + dropped) ** 2  # to the first order, one standard deviation
    return (
        f"about {rounded_percent(stated.share)} of all trips were counted (give or take {rounded_percent(off)}), and "
        "every count was divided by that share",
        f"trips of one rider beyond {stated.total_max:,} are still missing, and counts of places whose riders travel "
        "more than others are still too low, and those of other places too high",
    )


def _universe_words(certificate: Certificate, universe: Universe) -> str:
    measures = certificate.counts
    listed = measures.cells_with_trips
    period = f"The period is **{certificate.period}**.\n" if certificate.period is not None else ""
    windows = several(len(universe.windows), "window")
    days = f", on {_day_labels(universe)}" if universe.days else ""
    where, there = (
        ("at one stop", "at another stop") if universe.level == "stop" else ("in one zone", "in another zone")
    )
    ends = f", and end {there} or the same" if universe.arrives else "; where they end is not known"
    return (
        f"Each line says how many trips begin {where}, in one window of time{ends}.\n"
        f"{period}With {several(len(universe.stops), universe.level)} and {windows}{days} there "
        f"{'is' if measures.cells == 1 else 'are'} {measures.cells:,} "
        f"type{'' if measures.cells == 1 else 's'} of trips.\n"
        f"{listed:,} of them {'is' if listed == 1 else 'are'} listed, with {several(measures.trips, 'trip')} in "
        "all. **Every other type has a count of 0.**"
    )


def _day_labels(universe: Universe) -> str:
    num = len(universe.days)
    return "1 day or kind of day" if num == 1 else f"{num:,} days or kinds of day"


def _days_words(universe: Universe) -> str:
    num_dates = universe.num_dates
    if not num_dates and universe.days:
        return (
            "The unit is trips on all calendar days of a label together. The number of days of each label is not\n"
            "stated."
        )
    if not num_dates:
        return "The unit is trips on all calendar days that were counted. Their number is not stated."
    if set(num_dates) == {1}:
        return "The unit is trips on one calendar day."
    if not universe.days:
        return f"The unit is trips on {num_dates[0]:,} calendar days together. Divide by that number for one day."
    each = ", ".join(f"{label} {num:,}" for label, num in zip(universe.days, num_dates, strict=True))
    return (
        "The unit is trips on all calendar days of a label together. For one day, divide by the number of days:\n"
        f"{each}."
    )


def _noise_words(certificate: Certificate) -> str:
    unit = _unit(certificate)
    words = [f"Counts have noise: some listed {plural(unit)} never were, and some true {plural(unit)} are missing."]
    if certificate.counts_trips:
        words = ["Counts have noise: some listed trips were never made, and some true trips are missing."]
    if bound := _bound_words(certificate):
        counted = f"{bound[0].upper()}{bound[1:]}, chosen at random"
        if corrected := correction_words(certificate):
            words += [f"{counted}.", *(f"{sentence[0].upper()}{sentence[1:]}." for sentence in corrected)]
        else:
            words.append(f"{counted}:\nsums are below the true demand, by a share that is not public.")
    measures = certificate.counts
    if measures.features is not None:
        # Counts that were fitted to all sums state how close they are.
        modelled = "workload" in certificate.mechanism
        fitted, signed = measures.kkt_residual is not None, _signed(certificate)
        words.append(_feature_words(measures.features, fitted=fitted, modelled=modelled, signed=signed, unit=unit))
    else:
        words.append(_surplus_words(certificate))
    if measures.expected is not None:
        words += ["", _expected_words(measures.expected)]
    return "\n".join(words)


def _surplus_words(certificate: Certificate) -> str:
    measures, noise = certificate.counts, certificate.counts.noise
    if noise is None:
        return ""
    scale, threshold = exact(noise.scale), int(str(certificate.mechanism.get("threshold", 1)))
    from dunnage.model.laws import count_noise_surplus

    each = count_noise_surplus(str(certificate.mechanism.get("rounding", "round")), scale, threshold)
    if measures.correction is not None:
        each /= measures.correction.share or 1.0
    expect, dropped = "**Expect the total to be too large.**", "that was negative"
    if threshold > 1:
        expect = f"**The total is not the number of {plural(_unit(certificate))}.**"
        dropped = f"below {threshold:,}"
    return fill(
        "counts-surplus",
        spread=trips_amount(_spread(noise.law, scale), _unit(certificate)),
        expect=expect,
        dropped=dropped,
        each=amount(each),
        total=trips_amount(each * measures.cells, _unit(certificate)),
        units=plural(_unit(certificate)),
        meaning="demand" if certificate.counts_trips else "true numbers",
    ).rstrip("\n")


def _feature_words(features: list[FeatureNoise], *, fitted: bool, modelled: bool, signed: bool, unit: str) -> str:
    table = "\n".join(
        f"| {item.feature} | {item.groups:,} | {amount(_spread(item.law, exact(item.scale)))} |" for item in features
    )
    made = "least squares made all of them add up;\ncounts below one half became 0"
    after = (
        "**Expect the total to be too large**: negative counts became 0, so the other counts no longer add up to it.\n"
        "Do not read the total, or sums over many types, as demand."
    )
    if signed:
        made = "least squares made all of them add up;\neach count was rounded by itself, and negative ones were kept"
        after = "**Negative counts are noise**, as are most of the others: do not read single ones."
    if fitted:
        made = "the counts are those that are nearest to\nall of them, add up, and are not negative"
        types = f"types of {plural(unit)}"
        after = f"The total, and sums over many {types}, are relatively far more precise than single counts."
    single = f"\n`{CELLS}` are the single types of {plural(unit)}."
    if modelled:
        made, single = "a model was fitted to them. The counts\nare drawn from it: whole numbers that nearly add up", ""
        after = "**Read these sums.** Single counts, and other sums, follow from the model and may be far off."
    return f"""These sums were counted, each got noise, and {made}.{single}

| sums by | number of sums | standard deviation of the noise on each, in {plural(unit)} |
| --- | ---: | ---: |
{table}

{after}"""


def expected_rows(expected: ExpectedError) -> list[tuple[str, ...]]:
    """Write what is predicted: what it is about, the names of columns, and a row for each level."""
    units = plural(expected.noun)
    about = (
        f"Predicted from public facts, for {several(expected.trips, expected.noun)}{_hours(expected)}. "
        f"The errors of an empty table are 100 % of all {units} at every level."
    )
    rows: list[tuple[str, ...]] = [(about,), ("level", f"{units} of each", "off by", "errors in all", "verdict")]
    for item in expected.levels:
        verdict = item.verdict.upper() if item.is_noise else item.verdict
        rows.append((item.level, amount(item.trips), f"±{amount(item.off)}", large_percent(item.error), verdict))
    return rows


def expected_lines(expected: ExpectedError) -> list[str]:
    (about,), *rows = expected_rows(expected)
    width = max(len(row[0]) for row in rows)
    num = max(13, len(rows[0][1]))
    return [about, *(f"  {row[0]:<{width}}  {row[1]:>{num}}  {row[2]:>8}  {row[3]:>13}  {row[4]}" for row in rows)]


def _hours(expected: ExpectedError) -> str:
    if expected.hours is None:
        return ""
    hours = " to ".join(expected.hours)
    return (
        f" (predicted for {hours} alone; other sums over the whole day are left out: quiet hours add to their errors)"
    )


def _expected_words(expected: ExpectedError) -> str:
    table = "\n".join(
        f"| {item.level} | {item.sums:,} | {amount(item.trips)} | ±{amount(item.off)} | {large_percent(item.error)} | "
        f"{item.verdict} |"
        for item in expected.levels
    )
    first = ""
    if expected.is_noise:
        first = (
            f"**These counts are noise.** Errors of {expected.levels[0].level} are about as large as if nothing had "
            "been\npublished. Read only the sums that the table does not call noise.\n\n"
        )
    unit, units = expected.noun, plural(expected.noun)
    trips = f"{several(expected.trips, unit)}{_hours(expected)}"
    return f"""{first}The errors below were predicted before any {unit} was counted, for {trips}
that are spread as {units} usually are. In an empty table, the errors add up to 100 % of the {units} at every level.

| sums by | number of sums | {units} of a sum that has any | error of each | errors in all | verdict |
| --- | ---: | ---: | ---: | ---: | --- |
{table}"""


def level_words(level: LevelError, unit: str = "trip") -> str:
    return f"{level.level} to ±{amount(level.off)} of {trips_amount(level.trips, unit)} ({level.verdict})"


def predicted_words(expected: ExpectedError) -> str:
    return f"Predicted {'; '.join(level_words(level, expected.noun) for level in expected.levels)}"


def _unit(certificate: Certificate) -> str:
    return "trip" if certificate.counts_trips else certificate.guarantee.protects


def _noise_lines(certificate: Certificate) -> list[str]:
    measures = certificate.counts
    if measures.features is None:
        noise = measures.noise
        if noise is None:
            return []
        spread = trips_amount(_spread(noise.law, exact(noise.scale)), _unit(certificate))
        return [f"Noise       {noise.law}, standard deviation {spread} on each type"]
    return [
        f"Noise       {item.feature}: {_part_words(item)}, standard deviation "
        f"{trips_amount(_spread(item.law, exact(item.scale)), _unit(certificate))} on each of {item.groups:,}"
        for item in measures.features
    ]


def _part_words(item: FeatureNoise) -> str:
    if item.rho is not None:
        return f"rho {float(exact(item.rho)):.3g}"
    return f"epsilon {decimal_text(exact(item.epsilon or 0))}"


def amount(trips: float) -> str:
    return f"{trips:,.0f}" if trips >= 100 else f"{trips:.3g}"


def trips_amount(trips: float, unit: str = "trip") -> str:
    text = amount(trips)
    return f"{text} {unit if text == '1' else plural(unit)}"
