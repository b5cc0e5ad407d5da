# SPDX-License-Identifier: Apache-2.0
"""Counts fitted to noisy margins: a log-linear model, shrinkage towards what was measured, and whole numbers.

A margin is a noisy table of sums over pairs, origins, destinations or pairs of zones, with or without slots of time.
From the noisy sums alone, in this order:

1. Each table of sums that a step needs is the mean of all measured margins that are as fine or finer, weighted by
   their precision.
2. Origins, destinations and slots shrink towards equal shares, by :func:`beliefs`.
3. Pairs are expected to have origin times destination over the total, times what zones have in common and, as far as
   that helps, what is known of the way back; if pairs were measured, each shrinks towards that by how noisy it is; then
   their sums are moved to those of origins, destinations and zones.
4. Slots: origins and destinations by slot shrink towards their sums, the slots and the patterns by slot that stops have
   in common. The count of a cell is c[o, d] a[o, t] b[d, t] g[zone, zone, t], by iterative proportional fitting to the
   tables of pairs, origins by slot, destinations by slot and pairs of zones by slot. All sums are products of small
   matrices, so that no table of cells exists unless cells were measured, which then shrink towards the model.
5. Whole numbers: a pair gets a whole number of trips, so that origins keep their sums and destinations nearly do; then
   its trips get slots, so that origins and destinations by slot nearly keep theirs.

Everything here sees noisy sums and public facts only.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from dunnage.arrays import FloatArray, IntArray, kernel
from dunnage.kernels.counts.projection import sort_falling
from dunnage.kernels.counts.tables import SMALLEST_SCALE, fit_weights, lookup

Ends = Literal["pairs", "origins", "destinations", "zones", "all"]
Table = tuple[Ends, bool]  # sums over what, and whether by slot

SWEEPS = 12  # of proportional fitting; the sums of origins and destinations by slot are then off by less than rounding
ROUNDS = 8  # corrections of a table towards its sums, one after the other
FAR = 24.0  # scales beyond which noise explains nothing
GROWTH = 1.05  # steps between larger noisy values
RATE_STEP, MAX_RATES = 0.2, 32  # classes of expected counts, by their logarithm
# of what is expected of a count, closer together near 1
MULTIPLES = 2.0 ** np.concatenate([np.arange(-6, -1, 0.5), np.arange(-1, 1, 0.25), np.arange(1, 8.5, 0.5)])
_LOGNORMAL = np.exp(-((np.log(MULTIPLES) + 0.28) ** 2) / 2) * np.gradient(np.log(MULTIPLES))
FIRST_WEIGHTS = np.append(0.2, 0.8 * _LOGNORMAL / _LOGNORMAL.sum())  # of zero and of each multiple: their mean is 1
BELIEF = 10.0  # counts' worth of belief in them, more if noise leaves each count less to say
BUSY = 3.0  # trips of a count that has any, if counts have none on average; measured on bikes and taxis
MANY = 40  # counts from which a Poisson law is called normal
MEETING = 0.09  # part of a mean by which it is off at worst if multiples are the only means
NEAR = (-1e4, 40.0)  # widths of a law between which it is cut; beyond, numbers are too large or too small to hold
WIDE = 20.0  # scales of noise from which a law is so wide that noise is like a normal law
MAX_PATTERNS = 1024  # stops or slots up to which patterns are computed
FLOOR = 0.05  # smallest part of what is expected of a pair that is left of it by what is known of the way back
LEAST = 1e-6  # smallest share of the mean that a fitted count may have: nothing is surely empty
PULL = 0.3  # how much the sums by slot decide where the next trip of a pair goes, against its own share
SLOT_PULL = 0.02  # the same for the sums of slots
PAIR_PULL = 0.1  # the same for the sums of destinations and the next pair of an origin
ROUGHLY = 0.5  # part of the expected number of trips by which it may well be off
FEW = 0.1  # smallest share of trips worth keeping once uncertain ones are gone: those are the largest noise
GAIN = 0.8  # part of what a table is expected to explain that counts when it is compared with an empty table
_TINY = 1e-300


class Margin(NamedTuple):
    sums: FloatArray  # noisy; pairs (origin, destination), ends (stop,), zones (zone, zone), all (); slots come last
    variances: FloatArray  # of the noise of each


class Fitted(NamedTuple):
    pairs: FloatArray  # (origin, destination)
    origins: FloatArray  # factors, (origin, slot)
    destinations: FloatArray  # (destination, slot)
    zones: FloatArray  # (zone, zone, slot)
    by_slot: tuple[FloatArray, ...]  # sums of origins and of destinations, (stop, slot)
    cells: FloatArray  # (origin, destination, slot) if cells were measured, else empty
    alone: FloatArray  # the same before cells were moved to their sums, so that noise gained nothing


def coarser(table: FloatArray, ends: Ends, wanted: Ends, zone_of: FloatArray, *, slots: bool) -> FloatArray:
    """Add a table up to coarser ends, and over slots if they are not wanted."""
    if wanted != ends:
        if ends == "pairs" and wanted == "zones":
            table = np.tensordot(zone_of, np.tensordot(zone_of, table, (0, 0)), (0, 1)).swapaxes(0, 1)
        elif ends == "pairs" and wanted != "all":
            table = table.sum(axis=1 if wanted == "origins" else 0)
        else:
            table = table.sum(axis=(0, 1) if ends in ("pairs", "zones") else 0)
    return table if slots else table.sum(axis=-1)


def pooled(margins: Mapping[Table, Margin], wanted: Ends, zone_of: FloatArray, *, slots: bool) -> Margin | None:
    """Return the best estimate of a table from all margins that refine it; None if none does."""
    parts = [
        [coarser(part if by_slot else part[..., None], ends, wanted, zone_of, slots=slots) for part in margin]
        for (ends, by_slot), margin in margins.items()
        if (by_slot or not slots) and (wanted in (ends, "all") or ends == "pairs")
    ]
    if not parts:
        return None
    weight = sum((1 / variances for _, variances in parts), np.zeros(()))
    return Margin(sum((sums / variances for sums, variances in parts), np.zeros(())) / weight, 1 / weight)


class Beliefs(NamedTuple):
    means: FloatArray  # of each count, given its noisy value and what is expected of it
    variances: FloatArray


def beliefs(margin: Margin, expected: FloatArray) -> Beliefs:
    """Return what is known of counts after a noisy look: the noisy values decide how far to trust what is expected."""
    # A count has a Poisson law whose mean is a multiple of what is expected. All counts share one law of multiples: at
    # first lognormal with mean 1 and some zeros, then fitted to the noisy values by expectation maximisation.
    scale = max(float(np.sqrt(np.mean(margin.variances) / 2)), SMALLEST_SCALE)
    reach = np.ceil(FAR * scale)
    values = np.clip(margin.sums.reshape(-1), -reach, 2.0**52)
    rates = np.maximum(expected.reshape(-1), LEAST * max(float(expected.mean()), _TINY))
    places = np.log(rates / rates.min())
    bins = (places / max(RATE_STEP, float(places.max()) / MAX_RATES)).astype(np.int64)
    used = np.bincount(bins) > 0
    bins = (np.cumsum(used) - 1)[bins]
    centres = np.bincount(bins, rates) / np.bincount(bins)
    even = np.arange(-reach, reach + 1, max(1.0, np.floor(scale / 4)))
    num_more = max(0, int(np.ceil(np.log(max(float(values.max()), 1.0) / even[-1]) / np.log(GROWTH)))) + 1
    grid = np.concatenate([even, even[-1] * GROWTH ** np.arange(1, num_more + 1)])
    below = np.minimum(np.searchsorted(grid, values, side="right") - 1, len(grid) - 2)
    step = (values - grid[below]) / (grid[below + 1] - grid[below])
    flat = bins * len(grid) + below
    seen = np.bincount(flat + (step >= 0.5), minlength=len(centres) * len(grid)).reshape(len(centres), -1)
    tables = noisy_poisson(grid, np.multiply.outer(centres, np.append(0.0, MULTIPLES)), scale)
    belief = BELIEF * (1 + 2 * (scale / (float(expected.mean()) + BUSY)) ** 2)
    weights = fit_weights(tables[0], seen.astype(np.float64), FIRST_WEIGHTS, belief=belief)
    chance, mean, square = (table @ weights for table in tables)
    known = chance > _TINY  # otherwise nothing explains the value but itself
    mean = np.where(known, mean / np.maximum(chance, _TINY), np.maximum(grid, 0.0))
    variance = np.where(known, square / np.maximum(chance, _TINY) - mean**2, 2 * scale**2)
    return Beliefs(*(np.maximum(lookup(part, flat, step), 0.0).reshape(expected.shape) for part in (mean, variance)))


def noisy_poisson(grid: FloatArray, rates: FloatArray, scale: float) -> list[FloatArray]:
    """Return for each rate and noisy value the chance of it, and that times mean and square of the count behind it."""
    # Shapes: grid (values,), rates (bins, laws) -> three times (bins, values, laws)
    from scipy.special import gammaln

    flat, tables = rates.reshape(-1), np.empty((3, len(grid), rates.size))
    few, many = np.flatnonzero(flat < MANY), np.flatnonzero(flat >= MANY)
    numbers = np.arange(3 * MANY)
    law = np.exp(numbers * np.log(np.maximum(flat[few], _TINY))[:, None] - flat[few, None] - gammaln(numbers + 1))
    noise = np.exp(-np.abs(grid - numbers[:, None]) / scale) * np.tanh(1 / (2 * scale))
    for power in range(3):
        tables[power][:, few] = ((law * numbers**power) @ noise).T
    # Larger counts are normal, and at least so wide that neighbouring multiples meet.
    widths, value = np.sqrt(flat + (MEETING * flat) ** 2), grid[:, None]
    wide = widths > WIDE * scale
    for part, moments in ((many[wide[many]], _normal_noise), (many[~wide[many]], _laplace_noise)):
        for power, table in enumerate(moments(value, flat[part], widths[part], scale)):
            tables[power][:, part] = table
    return [np.moveaxis(table.reshape(len(grid), *rates.shape), 0, 1) for table in tables]


def _normal_noise(value: FloatArray, rate: FloatArray, width: FloatArray, scale: float) -> list[FloatArray]:
    """Return the chances, and their products, of normal counts so wide that noise is like a normal law."""
    spread, distance = width**2 + 2 * scale**2, value - rate
    pull = 2 * scale**2 / spread
    plain = np.exp(-np.minimum(distance**2 / (2 * spread), 700.0)) / np.sqrt(2 * np.pi * spread)
    mean = value - pull * distance
    return [plain, plain * mean, plain * (mean**2 + pull * width**2)]


def _laplace_noise(value: FloatArray, rate: FloatArray, width: FloatArray, scale: float) -> list[FloatArray]:
    """Return the chances, and their products, of normal counts with Laplace noise."""
    from scipy.special import log_ndtr

    distance, ratio, ends = value - rate, width / scale, log_ndtr(NEAR)
    tables = [np.zeros(distance.shape) for _ in range(3)]
    for side in (1.0, -1.0):  # noise above and below zero: a normal law that is tilted, and cut at the value
        at = side * distance / width - ratio
        tail = log_ndtr(at)
        log = -side * distance / scale + ratio**2 / 2 + tail
        near, near_tail = np.clip(at, *NEAR), np.clip(tail, *ends)  # log_ndtr never falls
        hazard = width * np.exp(-(near**2) / 2 - 0.5 * np.log(2 * np.pi) - near_tail)
        middle = rate + side * width * ratio
        square = middle**2 + width**2 - side * hazard * (value + middle)
        weight = np.exp(np.minimum(log, 0)) / (2 * scale)
        for table, part in zip(tables, (1.0, middle - side * hazard, square), strict=True):
            table += weight * part
    return tables


def moved(table: FloatArray, spread: FloatArray, sums: list[tuple[int, FloatArray]]) -> FloatArray:
    """Move a table to its sums over each axis in turn, the uncertain entries most, and none below zero."""
    parts = [(axis, wanted, np.maximum(spread.sum(axis=axis), _TINY)) for axis, wanted in sums]
    for _ in range(ROUNDS):
        for axis, wanted, room in parts:
            table = np.maximum(table + spread * np.expand_dims((wanted - table.sum(axis=axis)) / room, axis), 0.0)
    return table


def level(margin: Margin | None, size: int, total: float) -> FloatArray:
    """Return the counts of origins, destinations or slots: equal if nobody asked, and adding up to the total."""
    expected = np.full(size, total / size)
    if margin is None:
        return expected
    counts = moved(*beliefs(margin, expected), [(0, np.asarray(total))])
    counts = np.maximum(counts, LEAST * total / size)
    return np.asarray(counts * (total / counts.sum()))


def fit(
    margins: Mapping[Table, Margin], size: int, slots: int, zones: IntArray | None, trips: int | None = None
) -> Fitted:
    """Fit counts to noisy margins; ``zones`` are those of stops, if any margin is by zone; ``trips`` are expected."""
    zone_of = np.ones((size, 1)) if zones is None else np.eye(int(zones.max()) + 1)[zones]

    def known(wanted: Ends, *, by_slot: bool = False) -> Margin | None:
        return pooled(margins, wanted, zone_of, slots=by_slot)

    whole = known("all")
    total = 1.0
    if whole is not None and trips is not None:
        part = 1 / (1 + float(whole.variances) / (ROUGHLY * trips) ** 2)
        total = max(total, part * float(whole.sums) + (1 - part) * trips)
    elif whole is not None and whole.sums > 0:  # as much of it as noise does not explain
        total = max(total, float(whole.sums - min(whole.variances / whole.sums, whole.sums)))
    origins, destinations = (level(known(ends), size, total) for ends in ("origins", "destinations"))
    windows = level(known("all", by_slot=True), slots, total)
    between = known("zones") if zones is not None else None
    # Not from cells: each would hear its own noise in what is expected of it.
    pairs = fit_pairs(margins.get(("pairs", False)), origins, destinations, between, zone_of)
    # Sums by slot: where they were measured, shrunk towards those of the model without them
    sums = [pairs.sum(axis=1), pairs.sum(axis=0), zone_of.T @ pairs @ zone_of]
    every: tuple[Ends, ...] = ("origins", "destinations", "zones")
    measured = [known(ends, by_slot=True) if ends != "zones" or zones is not None else None for ends in every]
    expected = [np.maximum(own.reshape(-1, 1), LEAST * total / own.size) * windows / total for own in sums]
    # Origins and destinations side by side: what stops have in common shows in both.
    if ends := [(place, margin) for place, margin in enumerate(measured[:2]) if margin is not None]:
        beside = Margin(*(np.hstack(parts) for parts in zip(*(margin for _, margin in ends), strict=True)))
        shared = np.hsplit(in_common(beside, np.hstack([expected[place] for place, _ in ends])), len(ends))
        for (place, _), table in zip(ends, shared, strict=True):
            expected[place] = table
    for place, (own, margin) in enumerate(zip(sums, measured, strict=True)):
        if margin is not None:
            noisy = Margin(*(part.reshape(own.size, slots) for part in margin))
            table = moved(*beliefs(noisy, expected[place]), [(0, windows), (1, own.reshape(-1))])
            table = np.maximum(table, LEAST * total / table.size)
            expected[place] = table * (own.reshape(-1) / table.sum(axis=1))[:, None]
    targets = [
        table.reshape((*own.shape, slots)) if margin is not None else None
        for table, own, margin in zip(expected, sums, measured, strict=True)
    ]
    fitted = proportional(pairs, targets, zone_of, windows)._replace(by_slot=tuple(expected[:2]))
    cells = margins.get(("pairs", True))
    if cells is None:
        return fitted
    model = np.maximum(cells_of(fitted, zone_of), LEAST * total / cells.sums.size)
    alone = beliefs(cells, model)
    pairs = fit_pairs(known("pairs"), origins, destinations, between, zone_of)
    table = moved(*alone, [(2, pairs), (1, model.sum(axis=1)), (0, model.sum(axis=0))])
    return fitted._replace(pairs=table.sum(axis=2), cells=table, alone=alone.means)


def in_common(margin: Margin, expected: FloatArray) -> FloatArray:
    """Add what stops have in common to what is expected of them: the few patterns by slot that stand out of noise."""
    if min(expected.shape) > MAX_PATTERNS:
        return expected
    spread = np.sqrt(margin.variances + expected)  # of noise and of a Poisson count
    size = max(expected.shape)
    left, values, right = np.linalg.svd((margin.sums - expected) / spread, full_matrices=False)
    # The singular values of noise alone end at 1 + sqrt(aspect); above it this is the best weight of each pattern
    # (Gavish, Donoho 2017, for the Frobenius norm).
    y, aspect = values**2 / size, min(expected.shape) / size
    best = np.sqrt(np.maximum((y - aspect - 1) ** 2 - 4 * aspect, 0.0) / np.maximum(y, _TINY) * size)
    best[y <= (1 + aspect**0.5) ** 2] = 0.0
    return np.asarray(np.maximum(expected + (left * best) @ right * spread, FLOOR * expected))


def fit_pairs(
    measured: Margin | None, origins: FloatArray, destinations: FloatArray, zones: Margin | None, zone_of: FloatArray
) -> FloatArray:
    """Return the counts of pairs, over all slots."""
    total = float(origins.sum())
    expected = np.multiply.outer(origins, destinations / total)
    if zones is not None:  # what zones have in common
        blocks = zone_of.T @ expected @ zone_of
        between = np.maximum(beliefs(zones, blocks).means, LEAST * total / blocks.size)
        for _ in range(SWEEPS):
            expected *= zone_of @ (between / np.maximum(zone_of.T @ expected @ zone_of, _TINY)) @ zone_of.T
            expected *= (origins / np.maximum(expected.sum(axis=1), _TINY))[:, None]
            expected *= destinations / np.maximum(expected.sum(axis=0), _TINY)
    if measured is None:
        return np.asarray(expected)
    # The way back: the noise of one direction knows nothing of the other, so that regression shows how alike they are.
    back = (beliefs(measured, expected).means - expected).T
    alike = float(((measured.sums - expected) * back).sum() / max(float((back**2).sum()), _TINY))
    expected = np.maximum(expected + min(max(alike, 0.0), 1.0) * back, FLOOR * expected)
    return moved(*beliefs(measured, expected), [(1, origins), (0, destinations)])


def proportional(
    pairs: FloatArray, targets: list[FloatArray | None], zone_of: FloatArray, windows: FloatArray
) -> Fitted:
    """Fit the factors of slots to the sums of origins, destinations and pairs of zones by slot, where there are any."""
    by_origin, by_destination, by_zone = targets
    slots, num_zones = len(windows), zone_of.shape[1]
    a, b = np.ones((len(pairs), slots)), np.tile(windows / windows.sum(), (len(pairs), 1))
    g = np.ones((num_zones, num_zones, slots))
    members = [np.flatnonzero(zone_of[:, zone]) for zone in range(num_zones)]
    for _ in range(SWEEPS):
        scaled = pairs / np.maximum(pair_sums(a, b, g, members), _TINY)
        inner = np.stack([scaled[:, own] @ b[own] for own in members], axis=1)  # (origin, zone, slot)
        if by_origin is not None:
            a = by_origin / np.maximum((inner * np.einsum("oz,zyt->oyt", zone_of, g)).sum(axis=1), _TINY)
        if by_zone is not None:
            g = by_zone / np.maximum(np.einsum("oz,oyt->zyt", zone_of, inner * a[:, None]), _TINY)
        if by_destination is not None:
            outer = np.stack([scaled[own].T @ a[own] for own in members])  # (zone, destination, slot)
            b = by_destination / np.maximum(np.einsum("zdt,dy,zyt->dt", outer, zone_of, g, optimize=True), _TINY)
        a, b, g = (part / max(float(part.mean()), _TINY) for part in (a, b, g))
    none = np.zeros((0, 0, 0))
    return Fitted(pairs=pairs, origins=a, destinations=b, zones=g, by_slot=(), cells=none, alone=none)


def pair_sums(a: FloatArray, b: FloatArray, g: FloatArray, members: list[IntArray]) -> FloatArray:
    """Return the sum over slots of the factors of each pair."""
    sums = np.empty((len(a), len(b)))
    for one, own in enumerate(members):
        for other, others in enumerate(members):
            sums[np.ix_(own, others)] = (a[own] * g[one, other]) @ b[others].T
    return sums


def cells_of(fitted: Fitted, zone_of: FloatArray) -> FloatArray:
    """Return the counts of all cells by the model. Shapes: -> (origin, destination, slot)."""
    factors = np.einsum("oz,zyt,dy->odt", zone_of, fitted.zones, zone_of, optimize=True)
    factors = factors * fitted.origins[:, None] * fitted.destinations
    sums = factors.sum(axis=2, keepdims=True)
    even = np.full(factors.shape[2], 1 / factors.shape[2])
    return np.asarray(fitted.pairs[..., None] * np.where(sums > 0, factors / np.maximum(sums, _TINY), even))


def whole_counts(
    fitted: Fitted, zones: IntArray | None, asked: Collection[Table], measured: Collection[Table]
) -> tuple[IntArray, IntArray, IntArray]:
    """Return pairs, slots and counts of all cells with trips: whole numbers that nearly keep the fitted sums.

    Tables that are asked for must not be further from the truth than an empty one, as far as the fit can tell.
    """
    size, num_slots = len(fitted.pairs), fitted.origins.shape[1]
    numbers = round_pairs(fitted.pairs)
    if ("pairs", False) in asked or ("pairs", True) in asked:
        numbers = worthwhile(numbers, fitted.pairs)
    of_stop = np.zeros(size, dtype=np.int64) if zones is None else zones.astype(np.int64)
    pairs, slots, counts, parts = spread_pairs(
        numbers, fitted.origins, fitted.destinations, fitted.zones, fitted.cells, of_stop
    )
    if ("pairs", True) in asked:
        flat, alone = fitted.pairs.reshape(-1), fitted.alone.reshape(-1)
        counts = worthwhile(counts, alone[pairs * num_slots + slots] if len(alone) else parts * flat[pairs])
    for place, ends in enumerate(("origins", "destinations")):
        if set(asked) == {(ends, True)}:
            means = fitted.by_slot[place].reshape(-1)
            stops = pairs // size if place == 0 else pairs % size
            sums = np.bincount(stops * num_slots + slots, counts, minlength=len(means))
            few = means.mean() < 0.5 and (ends, True) not in measured  # zero is nearest to most, nobody knows to which
            if few or (sums * (sums - 2 * GAIN * means)).sum() > 0:
                counts = np.zeros_like(counts)
    held = counts > 0
    return pairs[held], slots[held], counts[held]


def worthwhile(numbers: IntArray, expected: FloatArray) -> IntArray:
    """Keep numbers if all together are expected to be closer to the truth than zeros, else those that are by itself."""
    losses = numbers * (numbers - 2 * GAIN * expected)  # of the squared error, against zero
    if float(losses.sum()) <= 0:
        return numbers
    kept = np.where(losses < 0, numbers, 0)
    return kept if kept.sum() >= FEW * numbers.sum() else np.zeros_like(numbers)


@kernel
def round_pairs(pairs: Any) -> Any:
    """Round pairs so that origins keep their sums, the largest remainders first, and destinations nearly do."""
    size = len(pairs)
    numbers, owed, over = np.zeros((size, size), np.int64), np.zeros(size), 0.0
    scores = np.empty(size)
    for origin in range(size):
        total, taken = over, 0
        for other in range(size):
            count = pairs[origin, other]
            low = int(np.floor(count))
            numbers[origin, other] = low
            total += count
            taken += low
            scores[other] = -np.inf if count - low < 1e-9 else count - low + PAIR_PULL * owed[other]
        more = min(max(int(np.floor(total + 0.5)) - taken, 0), size)
        if more > 0:
            order = np.arange(size)
            sort_falling(scores, order, 0, size)
            for place in range(more):
                if scores[place] > -np.inf:
                    numbers[origin, order[place]] += 1
                    taken += 1
        over = min(max(total - taken, -1.0), 1.0)
        for other in range(size):
            owed[other] += pairs[origin, other] - numbers[origin, other]
    return numbers


@kernel
def spread_pairs(numbers: Any, a: Any, b: Any, g: Any, cells: Any, zones: IntArray) -> Any:
    """Give the trips of each pair slots, in proportion to its fitted counts, so that sums by slot are nearly kept."""
    size, num_slots, room = len(numbers), a.shape[1], 0
    for origin in range(size):
        for other in range(size):
            room += min(numbers[origin, other], num_slots)
    pairs, slots, counts = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int64)
    parts, filled = np.empty(room), 0
    owed, shares, given = np.zeros((size, num_slots)), np.empty(num_slots), np.empty(num_slots, np.int64)
    every = np.zeros(num_slots)
    for origin in range(size):
        own = np.zeros(num_slots)
        for other in range(size):
            number = numbers[origin, other]
            if number == 0:
                continue
            total = 0.0
            for slot in range(num_slots):
                if len(cells) > 0:
                    shares[slot] = cells[origin, other, slot]
                else:
                    shares[slot] = a[origin, slot] * b[other, slot] * g[zones[origin], zones[other], slot]
                total += shares[slot]
            left = number
            for slot in range(num_slots):
                shares[slot] = number * (shares[slot] / total if total > 0.0 else 1.0 / num_slots)
                given[slot] = min(int(np.floor(shares[slot])), left)
                left -= given[slot]
            while left > 0:
                best, at = -np.inf, 0
                for slot in range(num_slots):
                    score = shares[slot] - given[slot] + PULL * (own[slot] + owed[other, slot])
                    score += SLOT_PULL * every[slot]
                    if score > best:
                        best, at = score, slot
                step = max(1, left // num_slots)
                given[at] += step
                left -= step
            for slot in range(num_slots):
                own[slot] += shares[slot] - given[slot]
                every[slot] += shares[slot] - given[slot]
                owed[other, slot] += shares[slot] - given[slot]
                if given[slot] > 0:
                    pairs[filled], slots[filled], counts[filled] = origin * size + other, slot, given[slot]
                    parts[filled] = shares[slot] / number
                    filled += 1
    return pairs[:filled], slots[:filled], counts[:filled], parts[:filled]
