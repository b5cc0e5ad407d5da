# SPDX-License-Identifier: Apache-2.0
"""Perturb whole columns, as a gateway does for many vehicles, or a simulation.

One row is one report, and the result is the :class:`~dunnage.collecting.tally.Tally`. Rows are perturbed
:data:`CHUNK_ROWS` at a time, so memory does not grow with them. Every law is exactly that of its scalar sibling in
:mod:`dunnage.devices.numbers` or :mod:`dunnage.devices.places`, with the entropy of the system. Where 16 random binary
digits and floating point, with a bound on all rounding, leave a choice open (about one in 32,000), exact fractions and
as many more digits as it takes decide it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dunnage.arrays import FloatArray, IntArray
from dunnage.collecting.tally import BITS, SYMBOLS, Packed, Tally
from dunnage.devices import numbers as laws
from dunnage.devices.paths import AreaPaths, Independent, LocalTrajectory, PathCode, ReachablePaths
from dunnage.devices.places import (
    DIRECTIONS,
    Disk,
    HadamardResponse,
    InClear,
    Law,
    LocalLocation,
    OptimisedUnary,
    Planar,
    ProjectiveResponse,
    RandomisedResponse,
    SubsetSelection,
)
from dunnage.devices.subjects import Grid, Tier
from dunnage.errors import ParameterError
from dunnage.exact import nearest_float
from dunnage.noise import arrays as noise_arrays
from dunnage.noise.source import Noise, ceil_divide, exp_interval, ratio_interval

MAX_DIMENSIONS = 62  # Numbers in a joint report: their signs are one word

_ROUNDING_BITS = 16  # random digits that decide nearly all roundings; tests shrink them
_SLACK = 2.0**-50  # eight times the unit of rounding: covers the few operations of a rounding
_MIN_FACTOR = 2.0**-900


def randomised_response(noise: Noise, indices: IntArray, num_inputs: int, epsilon: Fraction) -> IntArray:
    """Draw for each index itself with odds ``exp(epsilon)`` against each single other one."""
    symbols = np.array(indices, dtype=np.int64)
    if num_inputs > 1:
        honest = noise_arrays.bernoulli_odds(noise, 1, num_inputs - 1, epsilon, symbols.size)
        lies = np.flatnonzero(~honest)
        others = noise_arrays.below(noise, num_inputs - 1, lies.size)
        symbols[lies] = others + (others >= symbols[lies])
    return symbols


def unary(noise: Noise, indices: IntArray, num_inputs: int, *, own: Fraction, other: Fraction) -> Packed:
    from dunnage.collecting.kernels import set_bits

    rows = noise_arrays.packed_bits(noise, other, num_inputs, indices.size)
    set_bits(rows, indices, noise_arrays.bernoulli_logistic(noise, own, indices.size))
    return rows


def hadamard(noise: Noise, indices: IntArray, num_blocks: int, num_columns: int, epsilon: Fraction) -> IntArray:
    # All half blocks have the same number of columns, so this is randomised_response among half blocks, then a uniform
    # column of the half.
    from dunnage.collecting.kernels import hadamard_symbols

    own = np.zeros(indices.size, dtype=np.int64)
    halves = randomised_response(noise, own, 2 * num_blocks, epsilon)
    columns = noise_arrays.below(noise, num_columns, indices.size)
    return np.asarray(hadamard_symbols(indices, halves, columns, num_blocks, num_columns))


def subsets(noise: Noise, indices: IntArray, law: SubsetSelection) -> Packed:
    from dunnage.collecting.kernels import place_subsets

    num, size = law.num_inputs, law.size
    inside = noise_arrays.bernoulli_odds(noise, size, num - size, law.epsilon, indices.size)
    limits = range(num - size, num)
    draws = np.stack([noise_arrays.below(noise, limit, indices.size) for limit in limits], axis=1)
    rows = np.zeros((indices.size, ceil_divide(num, 8)), dtype=np.uint8)
    place_subsets(rows, indices, inside, draws, num)
    return rows


def projective(noise: Noise, indices: IntArray, law: ProjectiveResponse) -> IntArray:
    from dunnage.collecting.kernels import projective_symbols

    prime, dimension = law.geometry
    on_plane, off_plane = law.num_supporting, prime ** (dimension - 1)
    inside = noise_arrays.bernoulli_odds(noise, on_plane, off_plane, law.epsilon, indices.size)
    picks = np.empty(indices.size, dtype=np.int64)
    for chosen, limit in ((inside, on_plane), (~inside, off_plane)):
        picks[chosen] = noise_arrays.below(noise, limit, int(chosen.sum()))
    return np.asarray(projective_symbols(indices, inside, picks, prime, dimension))


def windowed(
    noise: Noise, indices: IntArray, num_inputs: int, *, stride: int, half: int, epsilon: Fraction
) -> IntArray:
    """Draw for each index a symbol with odds ``exp(epsilon)`` inside its window against each single one outside."""
    # The window of index i is the 2 * half + 1 symbols from i * stride on, counted from 0.
    width = 2 * half + 1
    num_outside = (num_inputs - 1) * stride
    starts = indices * stride
    inside = noise_arrays.bernoulli_odds(noise, width, num_outside, epsilon, starts.size)
    symbols = np.empty(starts.size, dtype=np.int64)
    near, far = np.flatnonzero(inside), np.flatnonzero(~inside)
    symbols[near] = starts[near] + noise_arrays.below(noise, width, near.size)
    if far.size:
        places = noise_arrays.below(noise, num_outside, far.size)
        symbols[far] = places + width * (places >= starts[far])
    return symbols


def round_at_random(noise: Noise, values: FloatArray, low: Fraction, high: Fraction, steps: int) -> IntArray:
    """Round numbers at random to the ``2 * steps + 1`` points of a public domain, 0 at its low end."""
    # A number outside is clamped; a missing one (NaN) goes to the middle. The chance of the upper neighbour is exactly
    # the number's distance from the lower one, for the fraction that its double stands for.
    from dunnage.collecting.kernels import round_values

    values = np.ascontiguousarray(values, dtype=np.float64)
    bits = _ROUNDING_BITS
    points = np.empty(values.size, dtype=np.int64)
    words = noise_arrays.below(noise, 1 << bits, values.size)
    for place in np.flatnonzero(round_values(values, words, _scaling(low, high, steps, bits), points)):
        # The whole part of a fraction plus a uniform number that begins with the digits of the word.
        exact = (Fraction(float(values[place])) - low) * 2 * steps / (high - low)
        up = noise.invert(lambda n, p=1 - exact % 1: [ratio_interval(p, n)], int(words[place]), bits)  # type: ignore[misc]
        points[place] = exact // 1 + up
    return points


@lru_cache(maxsize=256)
def _scaling(low: Fraction, high: Fraction, steps: int, bits: int) -> tuple[float, ...]:
    if not low < high:
        raise ParameterError("the low end of a domain must be below its high end. Give both in rising order.")
    factor = nearest_float(2 * steps / (high - low))
    if not _MIN_FACTOR < factor < 1 / _MIN_FACTOR:  # beyond the range of doubles: leave everything to fractions
        factor = math.nan
    # Rounding errors: the low end, the difference, the factor, their product, two sums; each relative to its own size.
    error = _SLACK * (factor * abs(nearest_float(low)) + 2 * steps + 2)
    ends = nearest_float(low), at_most(low), at_least(high)
    return (*ends, factor, float(steps), error, 2.0**-bits, float(2 * steps))


def at_least(number: Fraction) -> float:
    near = nearest_float(number)
    if math.isinf(near):
        return near if near > 0 else -sys.float_info.max
    return near if Fraction(near) >= number else math.nextafter(near, math.inf)


def at_most(number: Fraction) -> float:
    return -at_least(-number)


def number_symbols(noise: Noise, law: laws.NumberLaw, points: IntArray) -> Iterator[tuple[str, IntArray]]:
    """Draw a symbol for each point (0 at the low end); yield keys and symbols of ``NumberLaw.split``, in any order."""
    if isinstance(law, laws.LiteralPiecewise):
        raise ParameterError(
            "the printed Algorithm 1 is biased and does not work in bulk. Perturb one number at a time."
        )
    if isinstance(law, laws.Hybrid):
        by_sign = noise_arrays.bernoulli_exp(noise, law.epsilon / 2, points.size)
        yield from number_symbols(noise, law.duchi, points[by_sign])
        yield from number_symbols(noise, law.piecewise, points[~by_sign])
    elif isinstance(law, laws.WindowLaw):
        symbols = windowed(noise, points, law.num_inputs, stride=law.stride, half=law.half, epsilon=law.epsilon)
        yield law.key, symbols - law.last
    elif isinstance(law, laws.Designed):
        yield law.key, intervals(noise, law, points)
    elif isinstance(law, laws.LaplaceNumber):
        yield law.key, points - law.steps + noise_arrays.discrete_laplace(noise, law.noise_scale, points.size)
    else:
        kept = noise_arrays.bernoulli_logistic(noise, law.epsilon, points.size)
        yield law.key, np.where(draw_signs(noise, points, law.steps) == kept, 1, -1)


def intervals(noise: Noise, law: laws.Designed, points: IntArray) -> IntArray:
    """Draw an interval for each point, as ``Designed.perturb`` does."""
    below, rest = np.divmod(points * law.points, law.steps)
    indices = below + (noise_arrays.below(noise, law.steps, points.size) < rest)
    inside = noise_arrays.bernoulli_odds(noise, law.around, law.elsewhere, law.epsilon, points.size)
    symbols, weights = np.empty(points.size, dtype=np.int64), np.array(law.weights)
    for index, of_index in _members(2 * indices + inside):  # one table for each point and side
        chosen = np.array([(index // 2 in arc) == index % 2 for arc in law.arcs])
        ends = np.cumsum(np.where(chosen, weights, 0))
        symbols[of_index] = np.searchsorted(ends, noise_arrays.below(noise, int(ends[-1]), of_index.size), "right")
    return symbols


def draw_signs(noise: Noise, points: IntArray, steps: int) -> NDArray[np.bool_]:
    """Round points at random to the ends of their domain: true, for plus, with probability ``point / (2 steps)``."""
    return noise_arrays.below(noise, 2 * steps, points.size) < points


def joint_signs(noise: Noise, signs: IntArray, law: laws.JointDuchi) -> IntArray:
    """Draw for each sign vector one that agrees with it in more than half of the places, or in no more."""
    dimensions, other = law.dimensions, law.num_inputs - law.num_likely
    if dimensions > MAX_DIMENSIONS:
        raise ParameterError(
            f"a joint report has at most {MAX_DIMENSIONS} numbers. Got {dimensions}. Use method hybrid."
        )
    likely = noise_arrays.bernoulli_odds(noise, law.num_likely, other, law.epsilon, signs.size)
    agreeing, left = np.empty(signs.size, dtype=np.int64), np.arange(signs.size)
    while left.size:  # as on the device: draw again until the vector is on the chosen side
        agreeing[left] = noise_arrays.below(noise, law.num_inputs, left.size)
        left = left[(2 * np.bitwise_count(agreeing[left]) > dimensions) != likely[left]]
    return signs ^ agreeing ^ (law.num_inputs - 1)


def draw_sets(noise: Noise, num: int, size: int, num_rows: int) -> Iterator[IntArray]:
    """Choose for each row a uniform set of ``size`` out of ``num``; yield for each member the rows that have it."""
    wanted = np.full(num_rows, size, dtype=np.int64)
    for member in range(num):  # each is taken with chance "still wanted" in "still left"
        taken = noise_arrays.below(noise, num - member, num_rows) < wanted
        wanted -= taken
        yield np.flatnonzero(taken)


def find_cells(grid: Grid, longitudes: FloatArray, latitudes: FloatArray) -> IntArray:
    from dunnage.collecting import kernels

    west, south, east, north = grid.sides
    across, along = _borders(west, east, grid.num_columns), _borders(south, north, grid.num_columns)
    places = (np.ascontiguousarray(side, dtype=np.float64) for side in (longitudes, latitudes))
    return np.asarray(kernels.find_cells(*places, across, along, grid.outside))


@lru_cache(maxsize=64)
def _borders(low: Fraction, high: Fraction, num: int) -> tuple[FloatArray, float, float]:
    """Return the smallest double of each slot, the largest double of the last one, and how many slots a unit has."""
    firsts = np.array([at_least(low + (high - low) * slot / num) for slot in range(num)])
    firsts.flags.writeable = False
    return firsts, at_most(high), float(num / (high - low))


def find_paths(code: PathCode, cells: IntArray) -> IntArray:
    """Return the number of each path; each row of ``cells`` has one place of all paths."""
    if not isinstance(code, AreaPaths | ReachablePaths):
        raise ParameterError("these paths are perturbed place by place, so a path has no number.")
    missing = (cells == code.grid.outside).any(axis=0)
    inner = np.where(missing, 0, cells)
    if isinstance(code, AreaPaths):
        numbers = []  # of the sequence of areas, and of the places inside them
        for digits, base in (
            (inner >> code.grid.inner_bits, code.grid.num_areas),
            (inner & (code.grid.num_inner - 1), code.grid.num_inner),
        ):
            number = np.zeros(digits.shape[1], dtype=np.int64)
            for row in digits:  # the first highest
                number = number * base + row
            numbers.append(number)
        return np.where(missing, code.num_groups * code.group_size, numbers[0] * code.group_size + numbers[1])
    from dunnage.collecting.kernels import split_cells

    places = np.stack([split_cells(row) for row in inner], axis=1)  # (column or row, step, path)
    ranks = np.zeros((2, cells.shape[1]), dtype=np.int64)
    for rank, walk in zip(ranks, places, strict=True):
        starts, near = 0, walk[0]
        for steps, table in zip(walk, reversed(code.walks_before), strict=True):
            # Each place moves towards the one before until it is near enough.
            near, before = steps.clip(near - code.hops, near + code.hops), np.array(table, dtype=np.int64)
            rank += before[near] - before[starts]
            starts = np.maximum(near - code.hops, 0)
    return np.where(missing, code.num_paths, ranks[0] * code.num_walks + ranks[1])


def disks(noise: Noise, cells: IntArray, law: Disk) -> IntArray:
    """Report cells as ``Disk.perturb`` does."""
    from dunnage.collecting.kernels import split_cells

    every, outside, top = law.starts[-1], cells == law.grid.outside, max(law.reach)
    away = noise_arrays.bernoulli_odds(noise, law.size, every, law.epsilon, cells.size) == 0
    at = noise_arrays.below(noise, every, cells.size)  # which symbol, of those outside the disk
    inner = noise_arrays.below(noise, law.size, cells.size)  # which cell of the disk
    columns, rows = split_cells(np.where(outside, 0, cells))
    starts, margins = np.array(law.starts), np.array(law.margins)
    beside, near = at - law.size, np.full(cells.size, -1)
    for row in range(-top, top + 1):  # as on the device: the disk is a run of symbols in each of its rows
        wide = law.reach[row]
        first = starts[rows + row + top] + margins[rows + row + top] + columns - wide
        near = np.where((near < 0) & (inner < 2 * wide + 1), first + inner, near)
        inner = inner - (2 * wide + 1)
        beside = beside + np.where(beside >= first, 2 * wide + 1, 0)
    symbols = np.where(away, np.where(at < law.size, every, beside), near)
    return np.asarray(np.where(outside, np.where(away, at, every), symbols))


def planar(noise: Noise, cells: IntArray, law: Planar) -> IntArray:
    from dunnage.collecting.kernels import join_cells, split_cells

    places = split_cells(np.where(cells == law.grid.outside, law.centre, cells))
    moved = places + displacements(noise, law, cells.size)
    return np.asarray(join_cells(*moved.clip(0, law.grid.num_columns - 1)))


def displacements(noise: Noise, law: Planar, size: int) -> IntArray:
    moves, left = np.empty((2, size), dtype=np.int64), np.arange(size)
    while left.size:
        proposals = np.stack([noise_arrays.discrete_laplace(noise, 1 / rate, left.size) for rate in law.rates])
        kept = _accept(noise, law, proposals)
        moves[:, left[kept]] = proposals[:, kept]
        left = left[~kept]
    return moves


def _accept(noise: Noise, law: Planar, proposals: IntArray) -> NDArray[np.bool_]:
    """Accept proposals with probability ``exp(-gap)``: nearly always by a float with a bound on all rounding."""
    width, words = 2.0**-_ROUNDING_BITS, noise_arrays.below(noise, 1 << _ROUNDING_BITS, proposals.shape[1])
    far = np.abs(proposals).astype(np.float64)
    across, along = (far[axis] * float(law.epsilon * pitch) for axis, pitch in enumerate(law.grid.pitch_km))
    length = np.max([(a * across + b * along) / c for a, b, c in DIRECTIONS], axis=0)
    proposed = far[0] * float(law.rates[0]) + far[1] * float(law.rates[1])
    chance = np.exp(proposed - length)
    error = chance * (1 + length + proposed) * 64 * _SLACK
    kept = (words + 1) * width <= chance - error
    for place in np.flatnonzero(~kept & (words * width <= chance + error)):
        columns, rows = (int(number) for number in proposals[:, place])
        gap = -law.displacement_exponent(columns, rows) - law.rates[0] * abs(columns) - law.rates[1] * abs(rows)
        kept[place] = not noise.invert(lambda bits, x=gap: [exp_interval(x, bits)], int(words[place]), _ROUNDING_BITS)  # type: ignore[misc]
    return np.asarray(kept)


CHUNK_ROWS = 1 << 16  # Rows perturbed at a time: their reports nearly stay in the processor's cache


def perturb_column(
    mechanism: laws.LocalNumeric | LocalLocation | LocalTrajectory,
    tier: Tier | str,  # The tier of all rows
    values: Any,
    noise: Noise,  # Where the randomness comes from
    *,
    tally: Tally | None = None,  # A tally to continue; by default a new one
    purpose: str | None = None,  # Name of the purpose of a new tally; by default that of the mechanism
) -> Tally:
    name = tier if isinstance(tier, str) else tier.name
    if tally is None:
        tally = Tally(purpose=purpose or mechanism.name, tier=name)
    columns = [np.asarray(column, dtype=np.float64) for column in values]
    num_columns = 2 * mechanism.steps if isinstance(mechanism, LocalTrajectory) else 2
    if isinstance(mechanism, laws.LocalNumeric):
        num_columns = len(mechanism.quantities)
    if {column.shape for column in columns} != {(columns[0].size,)} or len(columns) != num_columns:
        raise ParameterError(f"the values must be {num_columns} columns of the same length. Give them in order.")
    for start in range(0, columns[0].size, CHUNK_ROWS):
        chunk = [column[start : start + CHUNK_ROWS] for column in columns]
        if isinstance(mechanism, laws.LocalNumeric):
            named = {quantity.name: column for quantity, column in zip(mechanism.quantities, chunk, strict=True)}
            attributes = [(attribute, named[attribute.quantity.name]) for attribute in mechanism.attributes]
            add_numbers(tally, mechanism.channel(tier), attributes, noise)
        elif isinstance(mechanism, LocalTrajectory):
            places = zip(chunk[::2], chunk[1::2], strict=True)
            cells = np.stack([find_cells(mechanism.grid, *place) for place in places])
            add_paths(tally, mechanism.channel(tier), mechanism, cells, noise)
        else:
            law = mechanism.channel(tier)
            add_places(tally, law, find_inputs(law, mechanism.grid, *chunk), noise)
    tally.num_reports += columns[0].size
    return tally


def add_numbers(
    tally: Tally,
    report: laws.SampledReport | laws.JointReport,
    attributes: Sequence[tuple[laws.ReportedNumber, FloatArray]],
    noise: Noise,
) -> None:
    num_rows = len(attributes[0][1])
    if isinstance(report, laws.JointReport):
        signs = np.zeros(num_rows, dtype=np.int64)
        for place, (attribute, column) in enumerate(attributes):
            points = find_points(attribute, column, noise)
            signs |= draw_signs(noise, points, attribute.steps).astype(np.int64) << place
        signs = joint_signs(noise, signs, report)
        for place in range(len(attributes)):
            tally.sums(place, report.key).add(2 * (signs >> place & 1) - 1)
        return
    members = draw_sets(noise, len(attributes), report.num_sampled, num_rows)
    for place, ((attribute, column), rows) in enumerate(zip(attributes, members, strict=True)):
        points = find_points(attribute, column[rows], noise)
        for key, symbols in number_symbols(noise, report.laws[place], points):
            law: Any = report.reading(place, key)
            if law.counted:
                tally.counts((place, key), SYMBOLS, law.num_symbols).add_symbols(symbols - law.symbol_range.start)
            elif symbols.size:
                tally.sums(place, key).add(symbols)


def find_points(attribute: laws.ReportedNumber, column: FloatArray, noise: Noise) -> IntArray:
    if attribute.presence:
        return np.where(np.isnan(column), 0, 2)
    quantity = attribute.quantity
    return round_at_random(noise, column, quantity.low, quantity.high, quantity.steps)


def find_inputs(law: Law, grid: Grid, longitudes: FloatArray, latitudes: FloatArray) -> IntArray:
    if isinstance(law, Planar):  # puts what is outside on the border
        west, south, east, north = map(float, grid.box)
        longitudes, latitudes = longitudes.clip(west, east), latitudes.clip(south, north)
    return find_cells(grid, longitudes, latitudes)


def add_places(tally: Tally, law: Law, indices: IntArray, noise: Noise) -> None:
    """Perturb inputs of a place or a path, and add the reports to a tally, except for their number."""
    oracle: Any = law
    parts: Iterable[tuple[tuple[int, ...], Any]] = [((), slice(None))]
    if isinstance(law, InClear):
        oracle = law.oracle
        groups, indices = _split(law, indices)
        parts = [((group,), members) for group, members in _members(groups)]
    reports = perturbed(oracle, indices, noise)
    for key, members in parts:
        counts = tally.counts(key, BITS if oracle.counts_bits else SYMBOLS, oracle.num_counts)
        (counts.add_rows if oracle.counts_bits else counts.add_symbols)(reports[members])


def add_paths(tally: Tally, law: Law, mechanism: LocalTrajectory, cells: IntArray, noise: Noise) -> None:
    if not isinstance(law, Independent):
        add_places(tally, law, find_paths(mechanism.paths, cells), noise)
        return
    oracle, num_groups = law.place.oracle, law.place.num_groups
    groups, inner = _split(law.place, cells)
    rows = [perturbed(oracle, places, noise) for places in inner]
    for group, members in _members(np.ravel_multi_index(tuple(groups), (num_groups,) * law.steps)):
        key = tuple(int(area) for area in np.unravel_index(group, (num_groups,) * law.steps))
        counts = tally.counts(key, BITS, *((oracle.num_inputs + 1,) * law.steps))
        counts.add_together([of_place[members] for of_place in rows])


def _split(law: InClear, indices: IntArray) -> tuple[IntArray, IntArray]:
    missing = indices == law.num_inputs - 1
    groups = np.where(missing, 0, indices // law.group_size)
    return groups, np.where(missing, law.group_size, indices % law.group_size)


def _members(groups: IntArray) -> Iterator[tuple[int, IntArray]]:
    order = np.argsort(groups, kind="stable")
    names, starts = np.unique(groups[order], return_index=True)
    # Without any member, splitting would still make one part.
    yield from zip(names.tolist(), np.split(order, starts[1:])[: names.size], strict=True)


def perturbed(law: Any, indices: IntArray, noise: Noise) -> Any:
    if isinstance(law, RandomisedResponse):
        return randomised_response(noise, indices, law.num_inputs, law.epsilon)
    if isinstance(law, HadamardResponse):
        return hadamard(noise, indices, law.num_blocks, law.num_columns, law.epsilon)
    if isinstance(law, SubsetSelection):
        return subsets(noise, indices, law)
    if isinstance(law, ProjectiveResponse):
        return projective(noise, indices, law)
    if isinstance(law, Disk):
        return disks(noise, indices, law)
    if isinstance(law, Planar):
        return planar(noise, indices, law)
    other = law.ratio_epsilon
    own = 0 * other if isinstance(law, OptimisedUnary) else other
    return unary(noise, indices, law.num_inputs, own=own, other=other)
