# SPDX-License-Identifier: Apache-2.0
"""What READMEs of releases of counts and of estimates tell whoever receives them: units, noise, how to read them.

Everything follows from the certificate. Nothing here is given the counts or estimates themselves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from dunnage.exact import decimal_text, exact
from dunnage.text import several
from dunnage.trips import Universe

CELLS = "cells"
ESTIMATES_TABLE_WORDS = "one line an estimated value, with its interval"
COUNTS_TABLE_WORDS = "one line a type of trips that has any; **one that is not listed has none**"


def count_column_words(name: str, universe: Universe) -> str:
    """Say in a few words what a column of released counts is."""
    times = universe.time
    window = f"start of a window of {several(universe.window_minutes, 'minute')}, HH:MM"
    if times is not None:
        window += f" of a service day from {times.lower} to {times.upper}"
        window += "; from 24:00 on it is the next calendar day" if times.upper > "24:00" else ""
        window += f"; local time of {times.zone}" if times.zone else ""
    words = {
        "origin": "stop where the trips begin",
        "destination": "stop where the trips end",
        "window": window,
        "day": "day, or kind of day, on which the trips begin",
        "count": "number of trips, changed by noise; 1 or more, since a type of trips without any is not listed",
    }
    return words[name]


def loss_words(body: Mapping[str, Any]) -> tuple[str, ...]:
    """Say what one trip and one rider lose by released counts; nothing if no loss is proved."""
    if body["basis"] != "proved":
        return ()
    loss, bound = body["measures"]["loss"], bound_words(body)
    trip = f"One trip loses at most epsilon {decimal_text(exact(loss['trip']))}."
    if not bound:
        each = decimal_text(exact(loss["trip"]))
        return trip, f"One rider loses at most epsilon {each} for each trip; how many trips one made is not bounded."
    return f"One rider loses at most epsilon {decimal_text(exact(loss['rider']))}: {bound}.", trip


def bound_words(body: Mapping[str, Any]) -> str:
    """Say how many trips of a rider were counted at most; empty if trips are protected one by one."""
    most = most_trips_of(body)
    if most is None:
        return ""
    bound = body["measures"]["contribution"]
    counted = f"of each rider at most {several(bound['max'], 'trip')}"
    were = "was" if bound["max"] == 1 else "were"
    if bound["per"] == "day":
        return f"{counted} a day {were} counted, on {several(bound['days'], 'day')}: {most:,} in all"
    return f"{counted} {were} counted in {'the whole period' if 'period' in body else 'all'}"


def counts_readme(body: Mapping[str, Any], universe: Universe, columns: str) -> str:
    """Write what follows after promise and files in the README of a release of counts."""
    return f"""
## What it is

{_universe_words(body, universe)}

{_days_words(universe)}

{_noise_words(body)}

## Columns of `data`

{columns}

Lines are in the order of day, window, origin and destination, each as it is listed under `attributes` in
`certificate.json`. There are no missing values.

## Read it

```python
import json

import pandas as pd

data = pd.read_parquet("data.parquet")
with open("certificate.json", encoding="utf-8") as file:
    stops = json.load(file)["attributes"][0]["domain"]["stops"]
# Trips from each stop (lines) to each stop (columns) over all windows; 0 where nothing is listed.
matrix = data.groupby(["origin", "destination"])["count"].sum().unstack(fill_value=0)
matrix = matrix.reindex(index=stops, columns=stops, fill_value=0)
```

## Use it

- As demand: so many trips begin in the window and want to go from `origin` to `destination`.
- Add up before you conclude: a count of a few trips may be noise alone.
- Whatever is computed from these files alone keeps the promise.
"""


def _universe_words(body: Mapping[str, Any], universe: Universe) -> str:
    measures, listed = body["measures"], body["measures"]["cells_with_trips"]
    period = f"The period is **{body['period']}**.\n" if "period" in body else ""
    windows = several(len(universe.windows), "window")
    days = f", on {days_words(universe)}" if universe.days else ""
    return (
        "Each line says how many trips begin at one stop, in one window of time, and end at another stop or the same.\n"
        f"{period}With {several(len(universe.stops), 'stop')} and {windows}{days} there "
        f"{'is' if measures['cells'] == 1 else 'are'} {measures['cells']:,} "
        f"type{'' if measures['cells'] == 1 else 's'} of trips.\n"
        f"{listed:,} of them {'is' if listed == 1 else 'are'} listed, with {several(measures['trips'], 'trip')} in "
        "all. **Every other type has a count of 0.**"
    )


def days_words(universe: Universe) -> str:
    """Say how many labels of days are told apart."""
    num = len(universe.days)
    return "1 day or kind of day" if num == 1 else f"{num:,} days or kinds of day"


def _days_words(universe: Universe) -> str:
    """Say what the unit of a count is: trips in how many calendar days."""
    num_dates = universe.num_dates
    if not num_dates and universe.days:
        return (
            "The unit is trips on all calendar days of a label together. How many days each label stands for is not\n"
            "stated."
        )
    if not num_dates:
        return "The unit is trips, on all calendar days that were counted. How many these were is not stated."
    if set(num_dates) == {1}:
        return "The unit is trips on one calendar day."
    if not universe.days:
        return f"The unit is trips on {num_dates[0]:,} calendar days together; divide by that for one day."
    each = ", ".join(f"{label} {num:,}" for label, num in zip(universe.days, num_dates, strict=True))
    return (
        "The unit is trips on all calendar days of a label together. For one day divide by how many there were:\n"
        f"{each}."
    )


def _noise_words(body: Mapping[str, Any]) -> str:
    """Say how far off counts and their sums may be, as far as public facts tell."""
    words = ["Noise was added, so counts are not the true ones: trips are listed that nobody made, and others missing."]
    if bound := bound_words(body):
        words.append(
            f"{bound[0].upper()}{bound[1:]}, chosen at random:\nsums are lower than the true demand by a share that is "
            "not told."
        )
    if "features" in body["measures"]:
        words.append(_feature_words(body["mechanism"], body["measures"]["features"]))
    else:
        words.append(_surplus_words(body["mechanism"], body["measures"]))
    return "\n".join(words)


def _surplus_words(mechanism: Mapping[str, Any], measures: Mapping[str, Any]) -> str:
    """Say why the total of counts with plain noise is too large, and by how much at most."""
    scale, law, threshold = exact(measures["noise"]["scale"]), measures["noise"]["law"], mechanism["threshold"]
    each = noise_surplus(scale, mechanism["rounding"], threshold)
    expect, dropped = "**Expect the total to be too large.**", "that was negative"
    if threshold > 1:
        expect, dropped = "**The total is not that of the trips.**", f"of less than {threshold:,}, noise or not,"
    return f"""The noise on each count has a standard deviation of {trips_amount(noise_spread(scale, law))}.

{expect} A noisy count {dropped} became 0, so noise does not cancel out:
a type without trips was given {amount(each)} on average, one with trips less. Noise alone has thus made up to about
{trips_amount(each * measures["cells"])}; the fewer types have any, the closer to that. Do not read the total,
or sums over many types, as demand."""


def _feature_words(mechanism: Mapping[str, Any], features: Sequence[Mapping[str, Any]]) -> str:
    """Say which sums were asked with how much noise, and what was made of them."""
    lines = [
        f"| {item['feature']} | {item['groups']:,} | {amount(noise_spread(exact(item['scale']), item['law']))} |"
        for item in features
    ]
    made = "all were made to add up by least squares;\ncounts that came out below one half became 0"
    after = (
        "**Expect the total to be too large**: negative counts became 0, so that the others no longer add up to it.\n"
        "Do not read the total, or sums over many types, as demand."
    )
    if mechanism["name"] == "constrained-counts":
        made = "the counts were found that are nearest to\nall of them, add up, and are not negative"
        after = "The total, and sums over many types of trips, are far surer for their size than single counts."
    table = "\n".join(lines)
    return f"""These sums were counted, noise was added to each, and {made}.
`{CELLS}` are the types of trips one by one.

| sums by | number of sums | standard deviation of the noise on each, in trips |
| --- | ---: | ---: |
{table}

{after}"""


def most_trips_of(body: Mapping[str, Any]) -> int | None:
    """Return how many trips of one rider were counted at most, if riders are protected."""
    if body["guarantee"]["protects"] != "rider":
        return None
    bound = body["measures"]["contribution"]
    return int(bound["max"] * (bound["days"] if bound["per"] == "day" else 1))


def noise_spread(scale: Fraction, law: str) -> float:
    """Return the standard deviation of noise on counts, around zero."""
    ratio, rest = math.exp(-1 / scale), -math.expm1(-1 / scale)
    spreads = {
        "discrete": math.sqrt(2 * ratio) / rest,
        "round": math.sqrt(math.sqrt(ratio) * (1 + ratio)) / rest,
        "floor": (1 + ratio) / (math.sqrt(2) * rest),
        "floating": math.sqrt(2) * float(scale),
    }
    return spreads[law]


def noise_surplus(scale: Fraction, rounding: str, threshold: int) -> float:
    """Return what noise alone gives a cell on average, if what is below a threshold of 1 or more becomes none.

    A cell that has trips gains less: what it loses below the threshold counts against it.
    """
    ratio, rest = math.exp(-1 / scale), -math.expm1(-1 / scale)
    shift = {"round": 0.5, "floor": 0.0}[rounding]
    return math.exp(-(threshold - shift) / scale) / 2 * (threshold + ratio / rest)


def amount(trips: float) -> str:
    """Write a number of trips that is not exact."""
    return f"{trips:,.0f}" if trips >= 100 else f"{trips:.3g}"


def trips_amount(trips: float) -> str:
    """Write a number of trips that is not exact, with its unit."""
    text = amount(trips)
    return f"{text} trip{'' if text == '1' else 's'}"


def estimate_column_words(name: str, body: Mapping[str, Any]) -> str:
    """Say in a few words what a column of released estimates is."""
    level = f"{100 * body['mechanism']['confidence']:g} %"
    words = {
        "quantity": "what is estimated: mean, present (share of vehicles that have a value), share, quantile",
        "purpose": "reporting duty that it comes from",
        "attribute": "number that it is about; empty for places and paths",
        "bin_lower": "lower end of the bin whose share it is, in the unit of the number",
        "bin_upper": "upper end of the bin whose share it is",
        "cell": "cell of the grid whose share it is, by its quadtree code; the one past the last: outside or missing",
        "lon": "longitude of the middle of the cell, in degrees",
        "lat": "latitude of the middle of the cell, in degrees",
        "path": "path whose share it is: its cells in order; outside: outside or missing; other: all not listed",
        "value": "the estimate; empty if no report told of it",
        "lower": f"lower end of the interval (closed) that holds the truth with {level}",
        "upper": f"upper end of the interval (closed) that holds the truth with {level}",
        "unit": "unit of value, lower and upper; empty for shares, which are parts of 1",
    }
    return words[name]


def estimate_loss_words(body: Mapping[str, Any]) -> tuple[str, ...]:
    """Say what a vehicle of each tier gives away by a slot, a day and a lifetime of reports; nothing if void."""
    if body["basis"] == "void":
        return ()
    loss = body["measures"]["loss"]
    return tuple(_tier_loss_words(tier, told, loss["lifetime"]) for tier, told in sorted(loss["tiers"].items()))


def _tier_loss_words(tier: str, told: Mapping[str, Any], lifetime: Any) -> str:
    if told["slot"] is None:
        return f"A vehicle of tier {tier} gives away more than any bound, as it shows areas as they are."
    slot, day = (decimal_text(exact(told[key])) for key in ("slot", "day"))
    each = ", ".join(f"{name} {decimal_text(exact(part))}" for name, part in sorted(told["reports"].items()))
    whole = f"; {decimal_text(exact(lifetime))} in its lifetime, then it falls silent" if lifetime is not None else ""
    return f"A vehicle of tier {tier} gives away at most epsilon {slot} a slot ({each}), {day} a day{whole}."


def estimates_readme(body: Mapping[str, Any], columns: str) -> str:
    """Write what follows after promise and files in the README of a release of estimates."""
    return f"""
## What it is

{_reports_words(body["measures"]["reports"])}

{_interval_words(body)}

## Columns of `data`

{columns}

{_subject_words(body)}

## Read it

```python
import pandas as pd

data = pd.read_parquet("data.parquet")
means = data[data["quantity"] == "mean"]
shares = data[data["quantity"] == "share"]
```

Whatever is computed from these files alone keeps the promise.
"""


def tiers_words(reports: Mapping[str, int]) -> str:
    """Say how many reports came from each tier."""
    return ", ".join(f"tier {tier} {num:,}" for tier, num in sorted(reports.items())) or "none, so no estimate"


def _reports_words(reports: Mapping[str, Mapping[str, int]]) -> str:
    said = "\n".join(f"- {purpose}: {tiers_words(tiers)}" for purpose, tiers in sorted(reports.items()))
    return f"Estimates from reports that vehicles had perturbed before they sent them:\n\n{said}"


def _interval_words(body: Mapping[str, Any]) -> str:
    level, combine = f"{100 * body['mechanism']['confidence']:g} %", body["mechanism"]["combine"]
    tiers = {
        "auto": "Values weigh tiers by precision unless these were found to differ; intervals hold either way.",
        "precision": "Tiers are weighed by precision: right only if they have nothing to do with what is reported.",
        "stratify": "Each tier weighs as much as it has reports.",
    }
    return (
        f"Each interval holds the truth with {level} by itself, not all of them at once. It is of vehicles at random\n"
        "moments, as many as reported, and clipped to the public domain. Shares are not negative and add up to 1;\n"
        f"where that moved one out of its interval, the interval was extended to it.\n{tiers[combine]}"
    )


def _subject_words(body: Mapping[str, Any]) -> str:
    """Describe grids and numbers, from which cells and intervals are understood."""
    lines = []
    for item in body["attributes"]:
        domain = item["domain"]
        if domain["kind"] == "numeric":
            missing = {"middle": "counts as the middle of it", "symbol": "is left out of the mean"}[item["missing"]]
            unit = f" {domain['unit']}" if domain["unit"] else ""
            span = f"{decimal_text(exact(domain['lower']))} to {decimal_text(exact(domain['upper']))}{unit}"
            lines.append(f"- {item['name']}: public domain {span}; a missing value {missing}")
        else:
            side, box = 2 ** (domain["levels"] - 1), ", ".join(str(end) for end in domain["box"])
            lines.append(
                f"- {item['name']}: {side:,} columns by {side:,} rows over west, south, east, north {box}; the code of "
                "a cell has a bit of the column before a bit of the row, the coarsest first"
            )
    return "\n".join(lines)
