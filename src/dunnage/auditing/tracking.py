# SPDX-License-Identifier: Apache-2.0
"""Tracking: where somebody who collects reports finds a vehicle, which ones are unique, and who moved. Pure numbers.

A vehicle that stays where it is sends one report after another through the same channel. Whoever sees them guesses the
likeliest place. With a loss of ``l`` in each report, the posterior of a place is proportional to its prior times
``exp(l * n)``, n being the reports that speak for it: so the guess depends on these numbers alone, and the chance that
it is right is a sum over them.

==========================  ========================================================================================
unary encoding              numbers are binomial and independent of each other: closed form, also with a prior
randomised response         numbers are multinomial: closed form by generating functions for places that are alike
any law, few outcomes       all multisets of symbols are looked at
Hadamard response, others   drawn again and again, with an interval
==========================  ========================================================================================

Closed forms have sums of positive terms only, so that nothing cancels in floating point.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import combinations_with_replacement
from typing import Any, NamedTuple

import numpy as np

from dunnage.arrays import BoolArray, FloatArray, IntArray
from dunnage.auditing.findings import Interval, wilson
from dunnage.collecting import batch
from dunnage.collecting.estimate import planar_matrix, walsh_hadamard
from dunnage.devices.numbers import (
    Hybrid,
    JointReport,
    LaplaceNumber,
    NumberLaw,
    Reading,
    SampledReport,
    WindowLaw,
    odds_of,
)
from dunnage.devices.paths import Independent
from dunnage.devices.places import HadamardResponse, InClear, OptimisedUnary, Planar, RandomisedResponse, SymmetricUnary
from dunnage.errors import ParameterError
from dunnage.noise import arrays as noise_arrays
from dunnage.noise.source import Noise

# How often what has no closed form is drawn; the more symbols there are, the less often
SIMULATIONS, MIN_SIMULATIONS = 2_000, 200
MAX_ENUMERATED = 1 << 17  # Most multisets of symbols that are looked at one by one
MAX_ENTRIES = 1 << 22  # Most entries of a channel's matrix, or of a table of draws, that are held at once
MAX_RESPONSES = 600  # Most reports for which randomised response is computed in closed form
MAX_DRAWN_REPORTS = 2_000  # Most reports of one vehicle that are drawn; more never find it less often
MAX_WITH_PRIOR = 1_200  # Most places of unary encoding that are told apart by a prior in closed form
_NEGLIGIBLE = 1e-18
_TIE = 1e-9
_WORD = 53


class Guess(NamedTuple):
    """How often the likeliest guess is right."""

    value: float  # The chance
    interval: Interval  # Itself, if it was computed; at 95 % confidence if it was estimated by drawing
    baseline: float  # The same without any report: the likeliest place beforehand

    @property
    def computed(self) -> bool:
        return self.interval[0] == self.interval[1]

    @classmethod
    def exactly(cls, value: float, baseline: float) -> Guess:
        """Make a guess whose chance was computed; guessing never gets worse by reports."""
        value = min(1.0, max(float(value), baseline))
        return cls(value, (value, value), baseline)


def locate(law: Any, num_reports: int, prior: FloatArray | None = None, *, noise: Noise | None = None) -> Guess:
    """Return how often a vehicle that stays in one place is found by its reports."""
    noise = noise or Noise()
    if isinstance(law, Independent):  # every place of a path was perturbed by itself; places are alike
        one = locate(law.place, num_reports, noise=noise)
        low, high = (end**law.steps for end in one.interval)
        return Guess(one.value**law.steps, (low, high), one.baseline**law.steps)
    beforehand = np.full(law.num_inputs, 1 / law.num_inputs)
    if prior is not None:
        beforehand = np.asarray(prior, dtype=np.float64)
        if beforehand.shape != (law.num_inputs,) or not (beforehand >= 0).all() or not beforehand.sum() > 0:
            raise ParameterError(f"a prior has a chance for each of the {law.num_inputs} inputs. Give their shares.")
        beforehand = np.asarray(beforehand / beforehand.sum())
    if not isinstance(law, InClear) or not num_reports:
        return _within(law, num_reports, beforehand, noise)
    # Guess inside each area: which one it is, is seen.
    size, found = law.group_size, np.zeros(3)
    inside = np.zeros((law.num_groups, size + 1))
    inside[:, :size] = beforehand[:-1].reshape(law.num_groups, size)
    inside[0, size] = beforehand[-1]
    alike, how_many = np.unique(inside, axis=0, return_counts=True)
    for chances, num in zip(alike, how_many, strict=True):
        if (weight := float(chances.sum())) > 0:
            guess = _within(law.oracle, num_reports, chances / weight, noise)
            found += num * weight * np.array([guess.value, *guess.interval])
    value, low, high = np.minimum(found, 1.0).tolist()
    return Guess(value, (min(low, value), max(high, value)), float(beforehand.max()))


def _within(law: Any, num_reports: int, prior: FloatArray, noise: Noise) -> Guess:
    baseline, possible = float(prior.max()), prior[prior > 0]
    if not num_reports:
        return Guess.exactly(baseline, baseline)
    alike = bool(np.ptp(possible) <= _TIE * baseline)
    if isinstance(law, OptimisedUnary | SymmetricUnary) and (alike or len(possible) <= MAX_WITH_PRIOR):
        chance = unary_guess(possible, law.p, law.q, float(law.loss), num_reports, alike=alike)
        return Guess.exactly(chance, baseline)
    if isinstance(law, RandomisedResponse) and alike and num_reports <= MAX_RESPONSES:
        return Guess.exactly(response_guess(len(possible), law.num_inputs, law.p, num_reports), baseline)
    few = law.num_symbols <= MAX_ENUMERATED and law.num_inputs * law.num_symbols <= MAX_ENTRIES
    if few and math.comb(law.num_symbols + num_reports - 1, num_reports) <= MAX_ENUMERATED:
        return Guess.exactly(enumerated_guess(channel_matrix(law), prior, num_reports), baseline)
    if num_reports > MAX_DRAWN_REPORTS:
        fewer = _within(law, MAX_DRAWN_REPORTS, prior, noise)
        return Guess(fewer.value, (fewer.interval[0], 1.0), baseline)
    if isinstance(law, HadamardResponse):
        if num_reports == 1 and alike and len(possible) == law.num_inputs >= 3 * law.num_blocks:
            # Of the rows 1, 2 and 3 of a block one agrees with any column: every symbol speaks for some place.
            return Guess.exactly(2 * law.num_blocks * law.p / law.num_inputs, baseline)
        return _hadamard_drawn(law, num_reports, prior, noise)
    return _matrix_drawn(law, num_reports, prior, noise)


# Closed forms


def mixed_powers(
    first: FloatArray, second: FloatArray, num: int, times: Callable[[FloatArray, FloatArray], FloatArray]
) -> FloatArray:
    """Return the sum over i < num of ``first^i second^(num - 1 - i)``, without a difference that could cancel."""
    # With S(m) the sum of m terms: S(2m) = S(m) (A^m + B^m) and S(m + 1) = A S(m) + B^m, from S(2) = A + B on.
    powers, total, done = (first, second), np.zeros(0), 1
    for digit in f"{num:b}"[1:]:
        both = powers[0] + powers[1]
        total = both if done == 1 else times(total, both)
        powers, done = (times(powers[0], powers[0]), times(powers[1], powers[1])), 2 * done
        if digit == "1":
            total = times(first, total) + powers[1]
            powers, done = (times(powers[0], first), times(powers[1], second)), done + 1
    return total


def unary_guess(prior: FloatArray, p: float, q: float, loss: float, num_reports: int, *, alike: bool) -> float:
    """Return the chance for unary encoding: the own bit is set with p, each other one with q, all independently."""
    from scipy.stats import binom

    counts = np.arange(num_reports + 1)
    own, upto = binom.pmf(counts, num_reports, p), binom.cdf(counts, num_reports, q)
    if len(prior) == 1:
        return 1.0
    if alike:
        below = np.concatenate([[0.0], upto[:-1]])
        # Of t others that have as many, each is guessed as often: the mean of 1 / (1 + t), none having more.
        return float(own @ mixed_powers(upto, below, len(prior), np.multiply)) / len(prior)
    total = 0.0
    for place, chance in enumerate(prior):
        # For each number of reports that speak for the place, the chance that no other place is likelier.
        lead = (math.log(chance) - np.log(np.delete(prior, place))) / loss
        limits = counts[:, None] + lead  # others may have up to so many: (counts, others)
        whole = np.rint(limits)
        tied = np.abs(limits - whole) < _TIE
        first = np.arange(len(prior) - 1) < place  # ties go to whichever comes first
        most = np.where(tied, whole - first, np.floor(limits)).astype(np.int64)
        chances = np.where(most < 0, 0.0, upto[np.clip(most, 0, num_reports)])
        total += chance * (own @ chances.prod(axis=1))
    return float(total)


def response_guess(num_places: int, num_symbols: int, p: float, num_reports: int) -> float:
    """Return the chance for randomised response among places that are alike.

    That others come up at most as often as the own place is a coefficient of a power of a truncated exponential series;
    each is weighed as a Poisson number here, so that coefficients are chances.
    """
    from scipy.stats import binom, poisson

    def most_often(own: int, rest: int) -> float:
        """Return the chance that a place which came up so often is guessed, all others having the rest together."""
        if own > rest or num_places == 1:
            return 1.0
        if not rest:
            return 1 / num_places
        mean = rest / (num_symbols - 1)
        series = poisson.pmf(np.arange(rest + 1), mean)
        upto, below = series.copy(), series.copy()
        upto[own + 1 :], below[own:] = 0.0, 0.0

        def times(one: FloatArray, other: FloatArray) -> FloatArray:
            return np.convolve(one, other)[: rest + 1]

        guessed = mixed_powers(upto, below, num_places, times) / num_places
        free = num_symbols - num_places  # symbols that are no places come up as they like
        if free:
            guessed = times(guessed, poisson.pmf(np.arange(rest + 1), mean * free))
        return float(guessed[rest] / poisson.pmf(rest, mean * (num_symbols - 1)))

    chances = binom.pmf(np.arange(num_reports + 1), num_reports, p).tolist()
    likely = ((own, chance) for own, chance in enumerate(chances) if chance > _NEGLIGIBLE)
    return math.fsum(chance * most_often(own, num_reports - own) for own, chance in likely)


# All outcomes, or many of them


def channel_matrix(law: Any) -> FloatArray:
    """Return the probability of each symbol (columns) for each input (rows) of a law of few of both."""
    if law.num_inputs * law.num_symbols > MAX_ENTRIES:
        planar = "the grid is too fine for the attack on the planar law. Choose fewer levels."
        other = "there are too many symbols to look at them all. Choose fewer levels."
        raise ParameterError(planar if isinstance(law, Planar) else other)
    if isinstance(law, Planar):
        rows = planar_matrix(law).T
        rows = np.vstack([rows, rows[law.centre]])  # a missing place counts as the middle
        return np.asarray(rows / rows.sum(axis=1, keepdims=True))
    exponents = [
        [-math.inf if (e := law.exponent(index, symbol)) is None else float(e) for symbol in range(law.num_symbols)]
        for index in range(law.num_inputs)
    ]
    base = np.zeros(law.num_symbols)  # the part of each logarithm that is the same for all inputs
    if isinstance(law, OptimisedUnary | SymmetricUnary):
        bits = np.array([symbol.bit_count() for symbol in range(law.num_symbols)])
        base = bits * math.log(law.q / (1 - law.q))
    weights = np.exp(np.array(exponents) + base)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def enumerated_guess(matrix: FloatArray, prior: FloatArray, num_reports: int) -> float:
    total = []
    for symbols in combinations_with_replacement(range(matrix.shape[1]), num_reports):
        counts = np.bincount(symbols, minlength=1)
        orders = math.factorial(num_reports) / math.prod(math.factorial(int(count)) for count in counts)
        total.append(orders * float((prior * matrix[:, symbols].prod(axis=1)).max()))
    return math.fsum(total)


def _uniforms(noise: Noise, size: int) -> FloatArray:
    return np.asarray(noise_arrays.below(noise, 1 << _WORD, size) / float(1 << _WORD))


def _drawn(
    scores: Callable[[IntArray], FloatArray], prior: FloatArray, width: int, num_reports: int, noise: Noise
) -> Guess:
    """Draw places, and count how often the one of the highest score is the true one, of several an even part."""
    step = max(1, MAX_ENTRIES // max(width, num_reports))
    num = min(SIMULATIONS, max(MIN_SIMULATIONS, 2 * MAX_ENTRIES // width))
    with np.errstate(divide="ignore"):
        logs = np.log(prior)
    ends, last = np.cumsum(prior), np.flatnonzero(prior)[-1]  # none is drawn whose chance is 0
    hits = 0
    for start in range(0, num, step):
        drawn = np.searchsorted(ends, _uniforms(noise, min(step, num - start)) * ends[-1], side="right")
        true = np.asarray(np.minimum(drawn, last), dtype=np.int64)
        posterior = scores(true) + logs
        tied = posterior >= posterior.max(axis=1, keepdims=True) - _TIE
        # Of several that are as likely one is chosen by a coin, so that the count stays binomial.
        chosen = _uniforms(noise, len(true)) * tied.sum(axis=1) < 1
        hits += int((tied[np.arange(len(true)), true] & chosen).sum())
    return Guess(hits / num, wilson(hits, num), float(prior.max()))


def _hadamard_drawn(law: HadamardResponse, num_reports: int, prior: FloatArray, noise: Noise) -> Guess:
    blocks, columns, loss = law.num_blocks, law.num_columns, float(law.loss)
    of_row, of_block = np.divmod(np.arange(law.num_inputs), blocks)

    def scores(true: IntArray) -> FloatArray:
        drawn = batch.hadamard(noise, np.repeat(true, num_reports), blocks, columns, law.epsilon)
        counts = _counts_by_row(drawn.reshape(len(true), num_reports), blocks * columns)
        table = walsh_hadamard(counts.reshape(-1, columns)).reshape(len(true), blocks, columns)
        # Reports of the own block that agree: (all of the block + those that agree - those that do not) / 2.
        return loss * (table[:, of_block, 0] + table[:, of_block, of_row + 1]) / 2

    return _drawn(scores, prior, law.num_symbols, num_reports, noise)


def _counts_by_row(symbols: IntArray, num_symbols: int) -> IntArray:
    rows = np.arange(len(symbols))[:, None] * num_symbols
    return np.bincount((rows + symbols).ravel(), minlength=len(symbols) * num_symbols).reshape(-1, num_symbols)


def _matrix_drawn(law: Any, num_reports: int, prior: FloatArray, noise: Noise) -> Guess:
    matrix = channel_matrix(law)
    ends = np.cumsum(matrix, axis=1)
    with np.errstate(divide="ignore"):
        logs = np.maximum(np.log(matrix), -1e6)  # what cannot be weighs most, and stays finite

    def scores(true: IntArray) -> FloatArray:
        symbols = np.empty((len(true), num_reports), dtype=np.int64)
        for place in np.unique(true).tolist():
            rows = np.flatnonzero(true == place)
            drawn = np.searchsorted(ends[place], _uniforms(noise, len(rows) * num_reports) * ends[place, -1], "right")
            symbols[rows] = np.minimum(drawn, matrix.shape[1] - 1).reshape(len(rows), num_reports)
        return np.asarray(_counts_by_row(symbols, matrix.shape[1]) @ logs.T)

    return _drawn(scores, prior, max(matrix.shape), num_reports, noise)


# Who moved


class Movement(NamedTuple):
    """How well two reports tell whether a vehicle moved between them, from one known place to another."""

    # Advantage of the best test when every report is drawn anew: the total variation between the two places
    fresh: float
    # The same when a device keeps the symbol it once drew for a place and sends it again (memoisation): staying shows
    # as the same symbol, and moving only by accident
    kept: float


def movement(law: Any) -> Movement:
    """Return how well moves are seen, between the two places for which it is easiest."""
    if isinstance(law, InClear):
        return Movement(1.0, 1.0) if law.num_groups > 1 else movement(law.oracle)
    if isinstance(law, Planar):
        rows = channel_matrix(law)
        fresh = max(float(np.abs(rows - row).sum(axis=1).max()) / 2 for row in rows)
        return Movement(fresh, 1 - float((rows @ rows.T).min()))
    p, q, num = law.p, law.q, law.num_inputs
    if isinstance(law, RandomisedResponse):
        return Movement(p - q, 1 - (2 * p * q + (num - 2) * q * q))
    if isinstance(law, HadamardResponse):
        # Two halves of blocks are told apart; between inputs of one block only half of each is.
        apart, each = law.num_blocks > 1, 2 / law.num_columns
        halves = 2 * law.num_blocks
        same = 2 * p * q + (halves - 2) * q * q if apart else (p + q) ** 2 / 2
        return Movement((p - q) if apart else (p - q) / 2, 1 - each * same)
    agree = (p * q + (1 - p) * (1 - q)) ** 2 * (q * q + (1 - q) ** 2) ** (num - 2)
    return Movement(p - q, 1 - agree)


# Sequences of areas


def unique_shares(areas: IntArray, lengths: Sequence[int]) -> list[float]:
    """Return the share of vehicles whose sequence of areas, so many moments long, no other vehicle has."""
    groups, done, found = np.zeros(len(areas), dtype=np.int64), 0, {}
    for length in sorted(set(lengths)):
        for column in areas.T[done:length]:
            # The groups so far, split by the next area: numbered anew, so that numbers stay small.
            _, groups = np.unique(np.stack([groups, column]), axis=1, return_inverse=True)
            groups = groups.reshape(-1)
        done = length
        sizes = np.bincount(groups)
        found[length] = float((sizes == 1).sum()) / max(len(areas), 1)
    return [found[length] for length in lengths]


def unique_by_slots(areas: IntArray, seen: BoolArray) -> float:
    """Return the share of vehicles that no other one was with at all moments at which they were seen."""
    alone = 0
    for row, moments in zip(areas, seen, strict=False):
        same = (areas[:, moments] == row[moments]).all(axis=1)
        alone += int(same.sum()) == 1
    return alone / max(len(seen), 1)


# Numbers


class NumberGuess(NamedTuple):
    """How often the bucket of a number is guessed right."""

    told: float  # Chance if the report tells of the number
    share: float  # How often a report does
    baseline: float  # Chance without a report: of the likeliest bucket

    @property
    def value(self) -> float:
        return self.share * self.told + (1 - self.share) * self.baseline


def bucket_weights(values: FloatArray, num_buckets: int, steps: int) -> FloatArray:
    """Return the chances of buckets (rows) and points (columns), of numbers of [-1, 1] rounded to points at random."""
    kept = np.clip(values[~np.isnan(values)], -1.0, 1.0)
    if not kept.size:
        kept = np.linspace(-1, 1, 2 * num_buckets + 1)[1::2]
    buckets = np.minimum(((kept + 1) / 2 * num_buckets).astype(np.int64), num_buckets - 1)
    scaled = (kept + 1) * steps
    below = np.minimum(np.floor(scaled).astype(np.int64), 2 * steps - 1)
    table = np.zeros((num_buckets, 2 * steps + 1))
    np.add.at(table, (buckets, below), 1 - (scaled - below))
    np.add.at(table, (buckets, below + 1), scaled - below)
    return table / kept.size


def even_weights(num_buckets: int, steps: int) -> FloatArray:
    """Return the same for a number that is spread evenly over its domain: many numbers, evenly apart, stand for it."""
    num = num_buckets * max(16, -(-8 * steps // num_buckets))
    return bucket_weights((np.arange(num) + 0.5) * 2 / num - 1, num_buckets, steps)


def number_guess(law: Reading, weights: FloatArray) -> float:
    """Return how often the likeliest bucket is right, of a number that a report tells by a law."""
    if isinstance(law, Hybrid):  # which law was drawn is seen
        parts = (law.share, law.piecewise), (1 - law.share, law.duchi)
        return sum(share * number_guess(part, weights) for share, part in parts)
    if isinstance(law, WindowLaw):
        odds = float(odds_of(law.epsilon))
        symbols = np.arange(-law.last, law.last + 1)
        before = np.pad(np.cumsum(weights, axis=1), ((0, 0), (1, 0)))  # (buckets, points + 1)
        # Points whose window a symbol lies in: from first to the one before stop.
        first = np.clip(-(-(symbols - law.half) // law.stride) + law.steps, 0, 2 * law.steps + 1)
        stop = np.clip((symbols + law.half) // law.stride + law.steps + 1, 0, 2 * law.steps + 1)
        joint = weights.sum(axis=1, keepdims=True) + (odds - 1) * (before[:, stop] - before[:, first])
        return float(joint.max(axis=0).sum() / (law.window * odds + law.num_outside))
    if isinstance(law, LaplaceNumber):
        from scipy.signal import lfilter

        ratio = math.exp(-float(1 / law.noise_scale))
        ahead = lfilter([1.0], [1.0, -ratio], weights, axis=1)
        behind = lfilter([1.0], [1.0, -ratio], weights[:, ::-1], axis=1)[:, ::-1]
        best = (ahead + behind - weights).max(axis=0)
        # Beyond the outermost points nothing changes but the size of all.
        return float((best.sum() + (best[0] + best[-1]) * ratio / (1 - ratio)) * (1 - ratio) / (1 + ratio))
    # A sign: its mean is the number over the scale.
    points = np.linspace(-1.0, 1.0, weights.shape[1])
    lean, all_of = weights @ points / law.scale, weights.sum(axis=1)
    return float(((all_of + lean) / 2).max() + ((all_of - lean) / 2).max())


def guess_numbers(report: SampledReport | JointReport, weights: Sequence[FloatArray | None]) -> list[NumberGuess]:
    found = []
    for place, table in enumerate(weights):
        if table is None:
            found.append(NumberGuess(1.0, report.share, 1.0))
            continue
        law: Reading | NumberLaw = report if isinstance(report, JointReport) else report.laws[place]
        baseline = float(table.sum(axis=1).max())
        told = min(1.0, max(number_guess(law, table), baseline))
        found.append(NumberGuess(told, report.share, baseline))
    return found


def guess_tuple(guesses: Sequence[NumberGuess], num_told: int) -> float:
    """Return how often all buckets are guessed right at once, if numbers have nothing to do with each other."""
    sets = [1.0] + [0.0] * num_told  # sums over sets of products, by how many of the numbers so far are told
    for guess in guesses:
        sets = [
            guess.baseline * sets[num] + (guess.told * sets[num - 1] if num else 0.0) for num in range(num_told + 1)
        ]
    return sets[num_told] / math.comb(len(guesses), num_told)
