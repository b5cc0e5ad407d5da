# SPDX-License-Identifier: Apache-2.0
"""Perturb whole columns: what a gateway does for many vehicles, or a simulation.

One row is one report, and what is kept is the :class:`~dunnage.collecting.tally.Tally`. Rows are perturbed
:data:`CHUNK_ROWS` at a time, so that memory does not grow with them. Every law is that of its scalar sibling in
:mod:`dunnage.devices.numbers` or :mod:`dunnage.devices.places`, exactly, with the entropy of the system:

- choices are drawn by the tables of :mod:`dunnage.noise_arrays`, which round nothing;
- one-hot rows are never made: eight bits of noise are drawn at once, as a byte (:func:`unary`);
- a number becomes a point of its public grid at random by comparing 16 random binary digits with the number in floating
  point, with a bound on all rounding; the few that this leaves open (about one in 32,000) are decided by exact
  fractions and as many more digits as it takes (:func:`round_at_random`);
- a position becomes a cell by comparing it with the least double that is not below each border (:func:`find_cells`).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dunnage import noise_arrays
from dunnage.arrays import FloatArray, IntArray
from dunnage.collecting.tally import BITS, SYMBOLS, Key, Tally
from dunnage.devices.numbers import (
    Attribute,
    Hybrid,
    JointDuchi,
    JointReport,
    LaplaceNumber,
    LiteralPiecewise,
    LocalNumeric,
    NumberLaw,
    SampledReport,
    SquareWave,
    WindowLaw,
)
from dunnage.devices.paths import AreaPaths, Independent, LocalTrajectory, PathCode, ReachablePaths
from dunnage.devices.places import (
    DIRECTIONS,
    HadamardResponse,
    InClear,
    Law,
    LocalLocation,
    OptimisedUnary,
    Planar,
    RandomisedResponse,
)
from dunnage.devices.subjects import Grid
from dunnage.devices.task import Tier
from dunnage.errors import ParameterError
from dunnage.noise import Interval, Noise, ceil_divide, exp_interval

Packed = NDArray[np.uint8]

MOST_DIMENSIONS = 62  # Most numbers that a joint report may have here: their signs are drawn as one word

_ROUNDING_BITS = 16  # random digits that decide nearly all roundings; tests shrink them
_SLACK = 2.0**-50  # eight times the unit of rounding: covers the few operations of a rounding
_LEAST_FACTOR = 2.0**-900
_STEEP = (20, 21, 29)  # a direction near the diagonal, of which proposals are refused least


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
    """Draw one packed row of bits for each index."""
    from dunnage.collecting.kernels import set_bits

    rows = noise_arrays.packed_bits(noise, other, num_inputs, indices.size)
    set_bits(rows, indices, noise_arrays.bernoulli_logistic(noise, own, indices.size))
    return rows


def hadamard(noise: Noise, indices: IntArray, num_blocks: int, num_columns: int, epsilon: Fraction) -> IntArray:
    """Draw for each index a symbol ``column + num_columns * block`` of the Hadamard response.

    Blocks and columns are powers of two. Index ``i`` owns row ``1 + i // num_blocks`` of the Hadamard matrix in block
    ``i % num_blocks``, and agrees with the columns whose common ones with that row are even in number. All half blocks
    have as many columns, so that this is :func:`randomised_response` among half blocks, and then a uniform column of
    the half.
    """
    from dunnage.collecting.kernels import hadamard_symbols

    own = np.zeros(indices.size, dtype=np.int64)
    halves = randomised_response(noise, own, 2 * num_blocks, epsilon)
    columns = noise_arrays.below(noise, num_columns, indices.size)
    return np.asarray(hadamard_symbols(indices, halves, columns, num_blocks, num_columns))


def windowed(
    noise: Noise, indices: IntArray, num_inputs: int, *, stride: int, half: int, epsilon: Fraction
) -> IntArray:
    """Draw for each index a symbol with odds ``exp(epsilon)`` inside its window against each single one outside.

    Symbols are 0 to ``(num_inputs - 1) * stride + 2 * half``; the window of index ``i`` is the ``2 * half + 1`` symbols
    from ``i * stride`` on. The piecewise law and the square wave are of this form.
    """
    width = 2 * half + 1
    num_outside = (num_inputs - 1) * stride
    starts = indices * stride
    inside = noise_arrays.bernoulli_odds(noise, width, num_outside, epsilon, starts.size)
    symbols = np.empty(starts.size, dtype=np.int64)
    near, far = np.flatnonzero(inside), np.flatnonzero(~inside)
    symbols[near] = starts[near] + noise_arrays.below(noise, width, near.size)
    if far.size:
        drawn = noise_arrays.below(noise, num_outside, far.size)
        symbols[far] = drawn + width * (drawn >= starts[far])
    return symbols


def round_at_random(noise: Noise, values: FloatArray, low: Fraction, high: Fraction, steps: int) -> IntArray:
    """Round numbers at random to the ``2 * steps + 1`` points of a public domain, 0 at its low end.

    A number outside is clamped; one that is missing (NaN) goes to the middle. The chance of the upper neighbour is
    exactly the number's distance from the lower one, with the number read as the fraction that its double stands for.
    """
    from dunnage.collecting.kernels import round_values

    values = np.ascontiguousarray(values, dtype=np.float64)
    bits = _ROUNDING_BITS
    points = np.empty(values.size, dtype=np.int64)
    words = noise_arrays.below(noise, 1 << bits, values.size)
    for place in np.flatnonzero(round_values(values, words, _scaling(low, high, steps, bits), points)):
        exact = (Fraction(float(values[place])) - low) * 2 * steps / (high - low)
        points[place] = _round_exactly(noise, exact, int(words[place]), bits)
    return points


@lru_cache(maxsize=256)
def _scaling(low: Fraction, high: Fraction, steps: int, bits: int) -> tuple[float, ...]:
    if not low < high:
        raise ParameterError("The low end of a domain must be below its high end. Give both in rising order.")
    factor = _double(2 * steps / (high - low))
    if not _LEAST_FACTOR < factor < 1 / _LEAST_FACTOR:  # beyond what doubles can hold: leave all to fractions
        factor = math.nan
    # Off by rounding: the low end, the difference, the factor, their product, two sums; each relative to its own size.
    error = _SLACK * (factor * abs(_double(low)) + 2 * steps + 2)
    ends = _double(low), at_most(low), at_least(high)
    return (*ends, factor, float(steps), error, 2.0**-bits, float(2 * steps))


def _round_exactly(noise: Noise, exact: Fraction, word: int, bits: int) -> int:
    """Return the whole part of a fraction plus a uniform number that begins with the digits of a word."""
    whole = exact.numerator // exact.denominator
    down = 1 - (exact - whole)

    def law(digits: int) -> list[Interval]:
        scaled = down.numerator << digits
        return [(scaled // down.denominator, ceil_divide(scaled, down.denominator))]

    return whole + noise.invert(law, word, bits)


def at_least(number: Fraction) -> float:
    """Return the least double that is not below a fraction."""
    near = _double(number)
    if math.isinf(near):
        return near if near > 0 else -sys.float_info.max
    return near if Fraction(near) >= number else math.nextafter(near, math.inf)


def _double(number: Fraction) -> float:
    """Return the double nearest to a fraction; an infinite one beyond the largest."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def at_most(number: Fraction) -> float:
    """Return the largest double that is not above a fraction."""
    return -at_least(-number)


def number_symbols(noise: Noise, law: NumberLaw, points: IntArray) -> Iterator[tuple[str, IntArray]]:
    """Draw a symbol for each point (0 at the low end), and yield keys of laws with the symbols they drew.

    Symbols are those of :meth:`~dunnage.devices.numbers.NumberLaw.split`, in no order.
    """
    if isinstance(law, Hybrid):
        by_sign = noise_arrays.bernoulli_exp(noise, law.epsilon / 2, points.size)
        yield law.duchi.key, _number_symbols(noise, law.duchi, points[by_sign])
        yield law.piecewise.key, _number_symbols(noise, law.piecewise, points[~by_sign])
    else:
        yield law.key, _number_symbols(noise, law, points)


def _number_symbols(noise: Noise, law: NumberLaw, points: IntArray) -> IntArray:
    if isinstance(law, LiteralPiecewise):
        raise ParameterError("the printed Algorithm 1 is biased and is not drawn in bulk. Perturb one at a time.")
    if isinstance(law, WindowLaw):
        drawn = windowed(noise, points, law.num_inputs, stride=law.stride, half=law.half, epsilon=law.epsilon)
        return drawn - law.last
    if isinstance(law, LaplaceNumber):
        return points - law.steps + noise_arrays.discrete_laplace(noise, law.noise_scale, points.size)
    kept = noise_arrays.bernoulli_logistic(noise, law.epsilon, points.size)
    return np.where(draw_signs(noise, points, law.steps) == kept, 1, -1)


def draw_signs(noise: Noise, points: IntArray, steps: int) -> NDArray[np.bool_]:
    """Round points at random to the ends of their domain: true, for plus, with probability ``point / (2 steps)``."""
    return noise_arrays.below(noise, 2 * steps, points.size) < points


def joint_signs(noise: Noise, signs: IntArray, law: JointDuchi) -> IntArray:
    """Draw for each sign vector one that agrees with it in more than half of the places, or in no more."""
    dimensions, other = law.dimensions, law.num_inputs - law.num_likely
    if dimensions > MOST_DIMENSIONS:
        raise ParameterError(f"at most {MOST_DIMENSIONS} numbers go into one word. Got {dimensions}. Use hybrid, say.")
    likely = noise_arrays.bernoulli_odds(noise, law.num_likely, other, law.epsilon, signs.size)
    agreeing, left = np.empty(signs.size, dtype=np.int64), np.arange(signs.size)
    while left.size:  # as the device does: drawn again until it is on the side that was drawn
        agreeing[left] = noise_arrays.below(noise, law.num_inputs, left.size)
        left = left[(2 * np.bitwise_count(agreeing[left]) > dimensions) != likely[left]]
    return signs ^ agreeing ^ (law.num_inputs - 1)


def draw_sets(noise: Noise, num: int, size: int, num_rows: int) -> Iterator[IntArray]:
    """Draw for each row a set of ``size`` out of ``num``, all alike; yield for each member in which rows it is."""
    wanted = np.full(num_rows, size, dtype=np.int64)
    for member in range(num):  # each is taken with chance "still wanted" in "still there"
        taken = noise_arrays.below(noise, num - member, num_rows) < wanted
        wanted -= taken
        yield np.flatnonzero(taken)


def find_cells(grid: Grid, longitudes: FloatArray, latitudes: FloatArray) -> IntArray:
    """Return the cell of each position, the same as :meth:`~dunnage.devices.task.Grid.cell` bit for bit."""
    from dunnage.collecting import kernels

    west, south, east, north = (Fraction(float(side)) for side in grid.box)  # as the grid reads its sides for places
    across, along = _borders(west, east, grid.num_columns), _borders(south, north, grid.num_rows)
    places = (np.ascontiguousarray(side, dtype=np.float64) for side in (longitudes, latitudes))
    return np.asarray(kernels.find_cells(*places, across, along, grid.outside))


@lru_cache(maxsize=64)
def _borders(low: Fraction, high: Fraction, num: int) -> tuple[FloatArray, float, float]:
    """Return the least double of each slot, the largest double of the last one, and how many slots a unit has."""
    firsts = np.array([at_least(low + (high - low) * slot / num) for slot in range(num)])
    firsts.flags.writeable = False
    return firsts, at_most(high), float(num / (high - low))


def find_paths(code: PathCode, cells: IntArray) -> IntArray:
    """Return the number of each path; each row of ``cells`` has one place of all paths."""
    if not isinstance(code, AreaPaths | ReachablePaths):
        raise ParameterError("these paths are perturbed place by place: they have no number of their own.")
    missing = (cells == code.grid.outside).any(axis=0)
    inner = np.where(missing, 0, cells)
    if isinstance(code, AreaPaths):
        groups = _joined(inner >> code.grid.inner_bits, code.grid.num_areas)
        inside = _joined(inner & (code.grid.num_inner - 1), code.grid.num_inner)
        return np.where(missing, code.num_groups * code.group_size, groups * code.group_size + inside)
    from dunnage.collecting.kernels import split_cells

    places = np.stack([split_cells(row) for row in inner], axis=1)  # (column or row, step, path)
    columns, rows = (_ranks(code, walk) for walk in places)
    return np.where(missing, code.num_paths, (columns * code.num_walks + rows))


def _joined(digits: IntArray, base: int) -> IntArray:
    """Write digits, the first row highest, as numbers."""
    numbers = np.zeros(digits.shape[1], dtype=np.int64)
    for row in digits:
        numbers = numbers * base + row
    return numbers


def _ranks(code: ReachablePaths, walks: IntArray) -> IntArray:
    """Return the numbers of walks, each place first moved towards the one before until it is near enough."""
    ranks, starts, before_it = np.zeros(walks.shape[1], dtype=np.int64), 0, walks[0]
    for places, table in zip(walks, reversed(code.walks_before), strict=True):
        near, before = places.clip(before_it - code.hops, before_it + code.hops), np.array(table, dtype=np.int64)
        ranks += before[near] - before[starts]
        starts, before_it = np.maximum(near - code.hops, 0), near
    return ranks


def planar(noise: Noise, cells: IntArray, law: Planar) -> IntArray:
    from dunnage.collecting.kernels import join_cells, split_cells

    last = law.grid.num_columns - 1
    places = split_cells(np.where(cells == law.grid.outside, law.centre, cells)) + _displacements(
        noise, law, cells.size
    )
    return np.asarray(join_cells(*places.clip(0, last)))


def _displacements(noise: Noise, law: Planar, size: int) -> IntArray:
    """Draw columns and rows to move by, as :meth:`~dunnage.devices.places.Planar.displacement` does."""
    # A rate for columns and one for rows: the proposal is one of the scalar products whose maximum the law's norm is.
    rates = [law.epsilon * pitch * part / _STEEP[2] for pitch, part in zip(law.grid.pitch_km, _STEEP, strict=False)]
    found, left = np.empty((2, size), dtype=np.int64), np.arange(size)
    while left.size:
        drawn = np.stack([noise_arrays.discrete_laplace(noise, 1 / rate, left.size) for rate in rates])
        kept = _accept(noise, law, rates, drawn)
        found[:, left[kept]] = drawn[:, kept]
        left = left[~kept]
    return found


def _accept(noise: Noise, law: Planar, rates: list[Fraction], drawn: IntArray) -> NDArray[np.bool_]:
    """Accept proposals with probability ``exp(-gap)``: nearly always by a float and a bound on all rounding."""
    width, words = 2.0**-_ROUNDING_BITS, noise_arrays.below(noise, 1 << _ROUNDING_BITS, drawn.shape[1])
    far = np.abs(drawn).astype(np.float64)
    across, along = (far[axis] * float(law.epsilon * pitch) for axis, pitch in enumerate(law.grid.pitch_km))
    length = np.max([(a * across + b * along) / c for a, b, c in DIRECTIONS], axis=0)
    proposed = far[0] * float(rates[0]) + far[1] * float(rates[1])
    chance = np.exp(proposed - length)
    error = chance * (1 + length + proposed) * 64 * _SLACK
    kept = (words + 1) * width <= chance - error
    for place in np.flatnonzero(~kept & (words * width <= chance + error)):
        columns, rows = (int(number) for number in drawn[:, place])
        gap = -law.displacement_exponent(columns, rows) - rates[0] * abs(columns) - rates[1] * abs(rows)
        kept[place] = not noise.invert(lambda bits, x=gap: [exp_interval(x, bits)], int(words[place]), _ROUNDING_BITS)  # type: ignore[misc]
    return np.asarray(kept)


Mechanism = LocalNumeric | LocalLocation | LocalTrajectory

CHUNK_ROWS = 1 << 16  # Rows perturbed at a time: their reports stay in the processor's cache, or nearly


def perturb_column(
    mechanism: Mechanism,
    tier: Tier | str,  # The tier of all rows
    values: Any,
    noise: Noise,  # Where the randomness comes from
    *,
    tally: Tally | None = None,  # A tally to go on with; a new one if left out
    purpose: str | None = None,  # Name of the purpose for a new tally; that of the mechanism if left out
) -> Tally:
    """Perturb a column of values, one report for each row, and keep the tally of the reports.

    Examples
    --------
    >>> from dunnage.devices.places import LocalLocation
    >>> grid = Grid(box=("103.9", "30.5", "104.2", "30.8"), levels=3)
    >>> places = LocalLocation(grid=grid, epsilon=1, method="randomised-response")
    >>> perturb_column(places, "all", (np.full(9, 104.0), np.full(9, 30.6)), Noise()).num_reports
    9
    """
    name = tier if isinstance(tier, str) else tier.name
    if tally is None:
        tally = Tally(purpose=purpose or mechanism.name, tier=name)
    columns = [np.asarray(column, dtype=np.float64) for column in values]
    if {column.shape for column in columns} != {(columns[0].size,)} or len(columns) != _num_columns(mechanism):
        raise ParameterError(f"the values must be {_num_columns(mechanism)} columns of one length. Give them in order.")
    tallied = _tallier(mechanism, tier)
    for start in range(0, columns[0].size, CHUNK_ROWS):
        tallied(tally, [column[start : start + CHUNK_ROWS] for column in columns], noise)
    tally.num_reports += columns[0].size
    return tally


def _num_columns(mechanism: Mechanism) -> int:
    if isinstance(mechanism, LocalNumeric):
        return len(mechanism.quantities)
    return 2 * mechanism.steps if isinstance(mechanism, LocalTrajectory) else 2


def _tallier(mechanism: Mechanism, tier: Tier | str) -> Callable[[Tally, list[FloatArray], Noise], None]:
    """Return what perturbs a chunk of columns and adds it to a tally, but for the number of reports."""
    if isinstance(mechanism, LocalNumeric):
        report = mechanism.channel(tier)
        return lambda tally, columns, noise: add_numbers(tally, report, _attributes(mechanism, columns), noise)
    law = mechanism.channel(tier)
    if isinstance(mechanism, LocalTrajectory):
        return lambda tally, columns, noise: add_paths(tally, law, mechanism, _path_cells(mechanism, columns), noise)
    return lambda tally, columns, noise: add_places(tally, law, find_inputs(law, mechanism.grid, *columns), noise)


def _attributes(mechanism: LocalNumeric, columns: list[FloatArray]) -> list[tuple[Attribute, FloatArray]]:
    of_quantity = {quantity.name: column for quantity, column in zip(mechanism.quantities, columns, strict=True)}
    return [(attribute, of_quantity[attribute.quantity.name]) for attribute in mechanism.attributes]


def add_numbers(
    tally: Tally, report: SampledReport | JointReport, attributes: Sequence[tuple[Attribute, FloatArray]], noise: Noise
) -> None:
    """Perturb numbers, a column for each attribute, and add the reports to a tally, but for their number."""
    if isinstance(report, JointReport):
        _add_joint(tally, report, attributes, noise)
        return
    num_rows = len(attributes[0][1])
    told = draw_sets(noise, len(attributes), report.num_sampled, num_rows)
    for place, ((attribute, column), rows) in enumerate(zip(attributes, told, strict=True)):
        points = find_points(attribute, column[rows], noise)
        for key, symbols in number_symbols(noise, report.laws[place], points):
            law = report.reading(place, key)
            if isinstance(law, SquareWave):
                tally.counts((place, key), SYMBOLS, 2 * law.last + 1).add_symbols(symbols + law.last)
            elif symbols.size:
                tally.sums(place, key).add(symbols)


def _add_joint(
    tally: Tally, report: JointReport, attributes: Sequence[tuple[Attribute, FloatArray]], noise: Noise
) -> None:
    signs = np.zeros(len(attributes[0][1]), dtype=np.int64)
    for place, (attribute, column) in enumerate(attributes):
        points = find_points(attribute, column, noise)
        signs |= draw_signs(noise, points, attribute.steps).astype(np.int64) << place
    drawn = joint_signs(noise, signs, report.law)
    for place in range(len(attributes)):
        tally.sums(place, report.law.key).add(2 * (drawn >> place & 1) - 1)


def find_points(attribute: Attribute, column: FloatArray, noise: Noise) -> IntArray:
    """Round values at random to points of an attribute, 0 at its low end."""
    if attribute.presence:
        return np.where(np.isnan(column), 0, 2)
    quantity = attribute.quantity
    return round_at_random(noise, column, quantity.low, quantity.high, quantity.steps)


def _path_cells(mechanism: LocalTrajectory, columns: list[FloatArray]) -> IntArray:
    places = zip(columns[::2], columns[1::2], strict=True)
    return np.stack([find_cells(mechanism.grid, *place) for place in places])


def find_inputs(law: Law, grid: Grid, longitudes: FloatArray, latitudes: FloatArray) -> IntArray:
    """Return the input of each position, as :meth:`~dunnage.devices.places.LocalLocation.index` does."""
    if isinstance(law, Planar):  # puts what is outside on the border
        west, south, east, north = map(float, grid.box)
        longitudes, latitudes = longitudes.clip(west, east), latitudes.clip(south, north)
    return find_cells(grid, longitudes, latitudes)


def add_places(tally: Tally, law: Law, indices: IntArray, noise: Noise) -> None:
    """Perturb inputs of a place or a path, and add the reports to a tally, but for their number."""
    if not isinstance(law, InClear):
        _count(tally, (), law, _draw(law, indices, noise))
        return
    groups, inner = _split(law, indices)
    drawn = _draw(law.oracle, inner, noise)
    for group, members in _members(groups):
        _count(tally, (group,), law.oracle, drawn[members])


def add_paths(tally: Tally, law: Law, mechanism: LocalTrajectory, cells: IntArray, noise: Noise) -> None:
    """Perturb paths, each row of ``cells`` a place of theirs, and add the reports to a tally, but for their number."""
    if not isinstance(law, Independent):
        add_places(tally, law, find_paths(mechanism.paths, cells), noise)
        return
    oracle, num_groups = law.place.oracle, law.place.num_groups
    groups, inner = _split(law.place, cells)
    rows = [_draw(oracle, places, noise) for places in inner]
    for group, members in _members(np.ravel_multi_index(tuple(groups), (num_groups,) * law.steps)):
        key = tuple(int(area) for area in np.unravel_index(group, (num_groups,) * law.steps))
        counts = tally.counts(key, BITS, *((oracle.num_inputs + 1,) * law.steps))
        counts.add_together([of_place[members] for of_place in rows])


def _split(law: InClear, indices: IntArray) -> tuple[IntArray, IntArray]:
    """Return groups and inner inputs, as :meth:`~dunnage.devices.places.InClear.split` does."""
    missing = indices == law.num_inputs - 1
    groups = np.where(missing, 0, indices // law.group_size)
    return groups, np.where(missing, law.group_size, indices % law.group_size)


def _members(groups: IntArray) -> Iterator[tuple[int, IntArray]]:
    """Yield each group that comes up, and where."""
    order = np.argsort(groups, kind="stable")
    found, starts = np.unique(groups[order], return_index=True)
    yield from zip(found.tolist(), np.split(order, starts[1:]), strict=True)


def _draw(law: Any, indices: IntArray, noise: Noise) -> Any:
    """Draw symbols, or packed rows of bits."""
    if isinstance(law, RandomisedResponse):
        return randomised_response(noise, indices, law.num_inputs, law.epsilon)
    if isinstance(law, HadamardResponse):
        return hadamard(noise, indices, law.num_blocks, law.num_columns, law.epsilon)
    if isinstance(law, Planar):
        return planar(noise, indices, law)
    other = law.ratio_epsilon
    own = 0 * other if isinstance(law, OptimisedUnary) else other
    return unary(noise, indices, law.num_inputs, own=own, other=other)


def _count(tally: Tally, key: Key, law: Any, drawn: Any) -> None:
    if drawn.ndim == 1:
        tally.counts(key, SYMBOLS, law.num_symbols).add_symbols(drawn)
    else:
        tally.counts(key, BITS, law.num_inputs).add_rows(drawn)
