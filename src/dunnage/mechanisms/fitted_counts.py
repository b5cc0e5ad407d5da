# SPDX-License-Identifier: Apache-2.0
"""Counts of trips fitted to noisy margins: the sums that people will ask for get noise, and cells follow from them.

The proof is in ``docs/proofs/fitted-counts.md``, the model in :mod:`dunnage.kernels.counts.fitting`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
from pydantic import PlainSerializer, PlainValidator

from dunnage.errors import ParameterError, Problem
from dunnage.exact import decimal_text, exact, shown
from dunnage.kernels.counts.fitting import BUSY, Ends, Margin, Table, fit, whole_counts
from dunnage.mechanisms.base import Foresight, Pairs, plain_pairs
from dunnage.mechanisms.counts import (
    EXACT,
    MAX_DENSE_CELLS,
    ConstrainedCounts,
    Counted,
    CountForm,
    DrawnCounts,
    FeatureColumns,
    FeatureMechanism,
    NoisyCounts,
    NoisyQueries,
    Query,
    true_counts,
)
from dunnage.model.documents import suggestion
from dunnage.model.guarantees import Promise
from dunnage.model.schema import Schema
from dunnage.model.trips import END_COLUMNS, SLOT_COLUMNS, Level
from dunnage.noise.source import Noise
from dunnage.text import several

if TYPE_CHECKING:
    from dunnage.tables.dataset import Dataset

MAX_PAIRS = 1 << 24  # of stops, 2.4 GB
MAX_SUMS = 1 << 25  # in all margins
PREDICTED = "predicted"
BY_WINDOW = " by window"
SPREAD = 4.0  # squared spread of counts over their squared mean
FIRST_MORE = 0.25  # of an even share that the first question gets on top of one
FIRST = 1.5  # weight of the error of the first question, against 1 for others
STEPS = 100  # shares are multiples of one part in so many
# Smallest numbers of steps, for the first question, for stops and zones over all windows, and for windows. The relative
# errors of the last two are small, and they matter. Where tables by window are clear, they follow from those.
RESERVED_FIRST, RESERVED_ENDS, RESERVED_WINDOWS = 36, 8, 4
CLEAR_ENDS, CLEAR_WINDOWS = 4, 1
WINDOWS = "windows"
_ENDS: Mapping[str, Ends] = {
    "stop pairs": "pairs",
    "zone pairs": "zones",
    "departures": "origins",
    "arrivals": "destinations",
}
QUESTIONS = (*(name + slots for name in _ENDS for slots in ("", BY_WINDOW)), WINDOWS)


def table_of(question: str, level: Level) -> Table:
    """Return which sums a question is about; between zones, pairs of zones are the finest."""
    if question == WINDOWS:
        return "all", True
    name = question.removesuffix(BY_WINDOW)
    ends: Ends = "pairs" if level == "zone" and name == "zone pairs" else _ENDS[name]
    return ends, name != question


def columns_of(question: str, level: Level, *, days: bool) -> FeatureColumns:
    """Return the public columns that define the sums of a question."""
    ends, by_slot = table_of(question, level)
    origin, destination = END_COLUMNS["zone" if ends == "zones" else level]
    chosen = {"origins": (origin,), "destinations": (destination,), "all": ()}.get(ends, (origin, destination))
    return (*chosen, *(name for name in SLOT_COLUMNS if by_slot and (days or name != "day")))


def _questions(given: object) -> tuple[str, ...]:
    asked = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Iterable) else ()
    wrong = [name for name in asked if name not in QUESTIONS]
    if wrong or (not asked and given != ()) or len(set(asked)) < len(asked):
        what = f"Got {shown(wrong[0] if wrong else given)}. {suggestion(str(wrong[0]), QUESTIONS) if wrong else ''}"
        raise ParameterError(f"workload must be one or several of {', '.join(QUESTIONS)}. {what}".rstrip())
    return tuple(map(str, asked))


def _shares(given: object) -> str | Pairs:
    if given == PREDICTED:
        return PREDICTED
    if not isinstance(given, Mapping) or not given:
        raise ParameterError(f"budget_shares must be {PREDICTED}, or a table of margin = share. Got {shown(given)}.")
    shares = {name: exact(given[name], what=f"the share of {name}") for name in _questions(tuple(given))}
    if min(shares.values()) <= 0 or sum(shares.values()) != 1:
        total = decimal_text(sum(shares.values(), Fraction(0)))
        raise ParameterError(f"budget_shares must be above 0 and add up to 1. Got a sum of {total}.")
    return tuple(sorted(shares.items(), key=_place))


def _place(share: tuple[str, Fraction]) -> int:
    return QUESTIONS.index(share[0])  # always in this order, as files sort their keys


def _trips(given: object) -> int | None:
    if given is None or (isinstance(given, int) and not isinstance(given, bool) and given >= 1):
        return given
    raise ParameterError(f"expected_trips must be a whole number of trips from 1. Got {shown(given)}.")


class Asked(NamedTuple):
    """A table of sums that is asked for, or could be measured, and how many it has."""

    ends: Ends
    by_slot: bool
    groups: int
    least: int = 0  # smallest share, in steps

    def refines(self, other: Asked) -> bool:
        finer = other.ends in (self.ends, "all") or self.ends == "pairs"
        return finer and (self.by_slot or not other.by_slot)


def error_of_nothing(trips: float) -> float:
    """Return the predicted squared error of zero for a count that has trips, from the mean of all counts."""
    busy = trips + BUSY
    return busy + SPREAD * busy**2


def predicted_shares(asked: Sequence[Asked], trips: float, scale: float) -> list[Fraction]:
    """Choose the share of each table with which the sum of all predicted relative errors is smallest."""
    # Few counts of a table have any trips, and those that do spread more than they are large. The error of such a count
    # follows from that and from the noise of its table and of the tables that refine it; it is compared with the error
    # of an empty table. The first question counts more than others.
    nothing = [error_of_nothing(trips / one.groups) for one in asked]

    def errors(parts: Sequence[int]) -> float:
        total = 0.0
        for one, guess in zip(asked, nothing, strict=True):
            weight = 1 / guess
            for other, part in zip(asked, parts, strict=True):
                if part and other.refines(one):
                    weight += one.groups / other.groups / (2 * (scale * STEPS / part) ** 2)
            total += math.sqrt(1 / (weight * guess)) * (FIRST if one is asked[0] else 1)
        return total

    free = STEPS - sum(one.least for one in asked)
    parts = [one.least + 2 * (free // 2 // len(asked)) for one in asked]
    parts[0] += STEPS - sum(parts)
    best = errors(parts)
    while True:
        moves = [
            [part + step * ((place == to) - (place == away)) for place, part in enumerate(parts)]
            for away in range(len(parts))
            for to in range(len(parts))
            for step in (2, 4, 10, parts[away] - asked[away].least)
            if to != away and 0 < step <= parts[away] - asked[away].least
        ]
        lowest = min(moves, key=errors, default=parts)
        if errors(lowest) >= best:
            return [Fraction(part, STEPS) for part in parts]
        parts, best = lowest, errors(lowest)


class FittedCounts(FeatureMechanism):
    """Add noise to the sums that people will ask for, fit a model to them, and draw whole counts from it.

    Parameters
    ----------
    epsilon
        Privacy loss of one trip, or of one rider, as the policy says; the margins share it.
    workload
        What will be asked: one or several of ``stop pairs``, ``zone pairs``, ``departures``, ``arrivals``, each also
        ``by window``, and ``windows``; by default pairs, and departures and arrivals by window.
    budget_shares
        ``predicted`` (margins and shares are chosen by their predicted error), or a table of margin = share.
    expected_trips
        How many trips one release will have, roughly and from public knowledge; a policy takes it from ``[expect]``.

    Guarantee
    ---------
    Epsilon-differential privacy between datasets that differ by one trip (or rider), proved.

    Assumptions
    -----------
    Public stops, windows and zones.

    Runtime
    -------
    O(pairs x windows) operations on O(pairs + trips) memory: about 140 bytes for each of at most 2^24 pairs of stops.
    Cells are only measured if they are asked for and there are at most 2^22.

    Utility
    -------
    Sums that were asked for are off by about their noise or less; single cells are estimates of a model unless they
    were asked for. Where pairs (or cells) are asked for and noise drowns them, they are left out.

    References
    ----------
    Deming, Stephan 1940 (iterative proportional fitting); McKenna, Sheldon, Miklau 2019 (models from noisy margins).
    """

    name = "fitted-counts"
    proof = ("fitted-counts.md#privacy",)
    workload: Annotated[tuple[str, ...], PlainValidator(_questions), PlainSerializer(list)] = ()
    budget_shares: Annotated[
        str | Pairs,
        PlainValidator(_shares),
        PlainSerializer(lambda kept: kept if isinstance(kept, str) else plain_pairs(kept)),
    ] = PREDICTED
    expected_trips: Annotated[int | None, PlainValidator(_trips)] = None

    @property
    def form(self) -> CountForm:
        return EXACT

    def promise(self, schema: Schema) -> Promise:
        """State the guarantee, with the workload and the shares that were chosen from public facts."""
        if len(schema.ends) == 1:
            raise ParameterError(
                f"{self.name} fits a model of pairs of stops, and boardings have no destination. Use "
                f"{ConstrainedCounts.name} or {NoisyCounts.name}, or name the destination in [trip]."
            )
        return replace(super().promise(schema), mechanism=self.settled(schema).describe())

    def questions(self, schema: Schema) -> tuple[str, ...]:
        return self.workload or (f"{schema.level} pairs", f"departures{BY_WINDOW}", f"arrivals{BY_WINDOW}")

    def levels(self, schema: Schema) -> dict[str, FeatureColumns]:
        asked = {name: columns_of(name, schema.level, days=schema.tells_days) for name in self.questions(schema)}
        return {name.replace("stop", schema.level): columns for name, columns in asked.items()}

    def settled(self, schema: Schema) -> FittedCounts:
        """Return the same mechanism with its workload and shares written out."""
        return self.model_copy(update={"workload": self.questions(schema), "budget_shares": self.shares(schema)})

    def shares(self, schema: Schema) -> Pairs:
        """Return the share of each margin, if need be from numbers of stops and windows, expected trips and epsilon."""
        if not isinstance(self.budget_shares, str):
            return self.budget_shares
        workload = self.questions(schema)
        # Nobody needs to name sums over windows, the stops of pairs, or windows: all are cheap, and pairs rest on them.
        implied = [name.removesuffix(BY_WINDOW) for name in workload]
        implied += ["departures", "arrivals"] if f"{schema.level} pairs" in implied else []
        every = list(dict.fromkeys((*workload, *implied, WINDOWS)))
        assert schema.trip is not None  # it has promised
        size = len(schema[schema.trip.origin].domain.stops)  # type: ignore[union-attr]
        zones = 1 if schema.city is None else max(1, len(schema.city.zone_names))
        if schema.level == "zone" and schema.city is not None:
            size = zones
        try:
            slots = schema.universe().num_slots
        except ParameterError:  # the days of a period that is not known yet
            slots = len(schema.time.labels)
        numbers = {"pairs": size**2, "zones": zones**2, "all": 1}
        trips, asked = float(self.expected_trips or size**2), {}
        scale = float((schema.contribution.max if schema.contribution is not None else 1) / self.epsilon)
        shared = [name for name in workload if name == f"{schema.level} pairs" or BY_WINDOW in name]
        clear: set[str] = set()
        for name in every:
            ends, by_slot = table_of(name, schema.level)
            table = Asked(ends, by_slot, numbers.get(ends, size) * (slots if by_slot else 1))
            mean = trips / table.groups
            fine, wide = by_slot and ends != "all", ends == "pairs"
            spread = error_of_nothing(mean) if wide else mean + SPREAD * mean**2
            # No table by window is measured that all of epsilon would not make better than nothing, nor too many cells.
            if not fine or (2 * scale**2 <= spread and (not wide or table.groups <= MAX_DENSE_CELLS)):
                asked[name] = table
                clear |= {name} if name in shared and 2 * (scale * len(shared)) ** 2 < spread else set()
        first, even = next(name for name in every if name in asked), any(asked[name].by_slot for name in clear)
        for name, table in asked.items():
            least = 0 if table.by_slot or table.ends == "pairs" else CLEAR_ENDS if even else RESERVED_ENDS
            least = (CLEAR_WINDOWS if even else RESERVED_WINDOWS) if table.ends == "all" else least
            asked[name] = table._replace(least=RESERVED_FIRST if name == first and not even else least)
        if even:
            # Tables that rise above the noise of an even share get one, and the first question a quarter more.
            clear.add(first)
            left = STEPS - sum(table.least for name, table in asked.items() if name not in clear)
            own = int(left / (len(clear) + FIRST_MORE))
            parts = {name: own if name in clear else table.least for name, table in asked.items()}
            parts[first] += STEPS - sum(parts.values())
            shares = {name: Fraction(part, STEPS) for name, part in parts.items()}
        else:
            shares = dict(zip(asked, predicted_shares(list(asked.values()), trips, scale), strict=True))
        return tuple(sorted(((name, share) for name, share in shares.items() if share), key=_place))

    def queries(self, schema: Schema) -> tuple[Query, ...]:
        return tuple(
            Query(columns=columns_of(name, schema.level, days=schema.tells_days), share=share)
            for name, share in self.shares(schema)
        )

    def problems(self, schema: Schema) -> Iterator[Problem]:
        zoned, where = schema.city is not None and schema.city.zones is not None, "mechanism.workload"
        named = (*self.questions(schema), *dict(self.shares(schema)))
        for name in dict.fromkeys(named):
            if schema.level == "zone" and name.startswith("stop"):
                remedy = 'Ask for zone pairs, or write level = "stop" in [trip].'
                yield Problem(f"{name} need stops, but trips are counted between zones", where=where, remedy=remedy)
            elif name.startswith("zone") and not zoned:
                remedy = "Add a column zone to the stops file, or ask for stop pairs."
                yield Problem(f"{name} need the zone of each stop", where=where, remedy=remedy)

    def check_size(self, queries: NoisyQueries) -> None:
        universe, sums = queries.universe, sum(queries.sizes)
        cells = any(set(universe.cell_columns) <= set(query.columns or ()) for query in queries.queries)
        # Plain noise with a threshold lists only some of the pairs.
        remedy = (
            f"Use {NoisyCounts.name} with a threshold" if universe.num_pairs > MAX_PAIRS else "Ask for coarser sums"
        )
        if universe.num_pairs > MAX_PAIRS or sums > MAX_SUMS or (cells and universe.num_cells > MAX_DENSE_CELLS):
            raise ParameterError(
                f"{self.name} takes at most {math.isqrt(MAX_PAIRS):,} stops and {MAX_SUMS:,} sums, and measures at "
                f"most {MAX_DENSE_CELLS:,} single cells. Got {several(len(universe.stops), 'stop')} and {sums:,} sums. "
                f'{remedy}, or write level = "zone" in [trip].'
            )

    def draw_counts(self, counted: Counted, prepared: NoisyQueries, noise: Noise) -> DrawnCounts:
        universe, size = prepared.universe, len(prepared.universe.stops)
        zones, margins = None, dict[Table, Margin]()
        sums = prepared.noisy_sums(counted, noise)
        for feature, law, noisy in zip(prepared.features, prepared.laws, sums, strict=True):
            named = {*feature.columns} - {*SLOT_COLUMNS}
            ends: Ends = "all"
            if named == {*universe.ends}:
                ends = "pairs"
            elif len(named) == 1:
                ends = "origins" if universe.ends[0] in named else "destinations"
            elif named:
                ends, zones = "zones", feature.pairs.axes[0].codes.astype(np.int64)
            by_slot = len(named) < len(feature.columns)
            shape: Any = {"all": (), "pairs": (size, size), "zones": (math.isqrt(feature.pairs.num),) * 2}
            table = noisy.reshape(feature.slots.num, feature.pairs.num).T.astype(np.float64)
            table = table.reshape((*shape.get(ends, (size,)), feature.slots.num))
            table = table if by_slot else table[..., 0]
            margins[ends, by_slot] = Margin(table, np.full(table.shape, law.spread**2))
        asked = {table_of(name, universe.level) for name in self.workload or ("stop pairs",)}
        # A bound on the trips of a rider drops an unknown part of what is expected.
        change = prepared.laws[0].scale * prepared.queries[0].share * prepared.whole
        expected = self.expected_trips if change == 1 else None
        fitted = fit(margins, size, universe.num_slots, zones, expected)
        pairs, slots, counts = whole_counts(fitted, zones, asked, margins)
        cells = slots * universe.num_pairs + pairs
        order = np.argsort(cells)
        return DrawnCounts(cells=cells[order], counts=counts[order], figures={"features": prepared.describe()})

    def preview(self, dataset: Dataset) -> Foresight:
        line = "single types are drawn from a model of these sums; sums that are not listed may be off by more"
        return self.asked(dataset).foresee(true_counts(dataset), line)
