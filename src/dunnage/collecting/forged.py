# SPDX-License-Identifier: Apache-2.0
"""Forged reports: what can be seen of them, and estimates that leave out what no honest device sends.

In a unary law each of k bits is sampled by itself: the own bit is 1 with chance p, the others with chance q. So the
*number* of set bits follows one law, whatever places the vehicles report. Two things follow from it alone:

- a test: how many reports have at most, or at least, so many bits is binomial with a known chance. The smallest of all
  these p-values times their number is a p-value for all reports together, exact for any number of them.
- a robust estimate: where more reports have some number of bits than honest devices send, all of them get a lower
  weight, so that together they count as many as is likely (:data:`SPREAD`). Weights depend on numbers of bits alone, so
  with p and q as they are given these weights, the estimate is as unbiased as the plain one.

Neither sees a forger who imitates the noise. One forged report moves a share by up to (1 - q) / (p - q) honest ones
(``influence``), and only a limit on reports a device bounds that: :func:`widened` says what is certain if at most a
stated share of the reports is forged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from dunnage.arrays import FloatArray, IntArray
from dunnage.collecting.estimate import Shares, estimate_shares
from dunnage.collecting.frames import Batch, Source, TierReader, tally_groups
from dunnage.collecting.promises import AUTO
from dunnage.collecting.tally import Counts, Packed, Tallies, Tally
from dunnage.devices.client import mechanisms_of
from dunnage.devices.places import InClear, LocalLocation, Number, OptimisedUnary, SubsetSelection
from dunnage.devices.task import Task
from dunnage.errors import ParameterError
from dunnage.text import percent

SPREAD = 3.0  # standard deviations above what is expected, up to which reports with a number of bits count in full
ALARM = 1e-6  # p-value below which reports count as forged
NOT_IMITATED = "forgers do not imitate the noise"
AT_MOST = "at most the stated share of the reports is forged"


def bits_law(oracle: Any) -> FloatArray:
    """Return the chance of 0, 1, ..., k set bits in a report."""
    from scipy.stats import binom

    others = binom.pmf(np.arange(oracle.num_inputs), oracle.num_inputs - 1, oracle.q)
    return np.convolve([1 - oracle.p, oracle.p], others)


def bits_p_value(counts: IntArray, law: FloatArray) -> float:
    """Return a p-value for reports with these numbers of set bits, by the exact law of each sum from either end."""
    from scipy.stats import binom

    num, smallest = int(counts.sum()), 1.0
    for observed, chances in ((counts, law), (counts[::-1], law[::-1])):
        tails = binom.sf(np.cumsum(observed) - 1, num, np.minimum(np.cumsum(chances), 1.0))
        smallest = min(smallest, float(tails.min()))
    return min(1.0, 2 * law.size * smallest)


def total_bits_p_value(mechanism: LocalLocation, tally: Tally) -> float | None:
    """Return a p-value for the number of set bits in a whole tally (Bernstein's inequality); None without bits."""
    oracle: Any = mechanism.oracle(tally.tier)
    parts = [part for part in tally.parts.values() if isinstance(part, Counts) and part.counts.ndim == 1]
    if not oracle.counts_bits or isinstance(oracle, SubsetSelection) or not parts:
        return None
    num, total = sum(part.num for part in parts), sum(int(part.counts.sum()) for part in parts)
    p, q, others = oracle.p, oracle.q, oracle.num_inputs - 1
    away = abs(total - num * (p + others * q))
    variance = num * (p * (1 - p) + others * q * (1 - q))
    return min(1.0, 2 * math.exp(-(away**2) / (2 * (variance + away / 3))))


def bits_warnings(task: Task, tallies: Tallies) -> list[str]:
    """Say which reports of maps honest devices did not send, as far as their tallies show it."""
    warnings = []
    mechanisms = mechanisms_of(task)
    for (name, _), tally in tallies.by_tier.items():
        if isinstance(mechanism := mechanisms[name], LocalLocation):
            p_value = total_bits_p_value(mechanism, tally)
            if p_value is not None and p_value < ALARM:
                warnings.append(
                    f"{name}, tier {tally.tier}: honest devices send another number of set bits (p = {p_value:.2g}), "
                    "so some reports are forged. Look at the robust map (--robust), and limit who may send"
                )
    return warnings


@dataclass(frozen=True, kw_only=True)
class _Given(OptimisedUnary):
    """A unary law given how many reports have each number of set bits."""

    name: ClassVar[str] = "given numbers of bits"
    given: tuple[float, float]  # chances that the own bit, and another one, is set

    def chances(self, ratio: Number) -> tuple[Number, Number]:
        return self.given  # type: ignore[return-value]


def given_bits(oracle: Any, weights: FloatArray) -> _Given:
    """Return the law of reports of which these weights, or numbers, have 0, 1, ..., k set bits."""
    from scipy.stats import binom

    num_bits, chances = np.arange(oracle.num_inputs + 1), bits_law(oracle)
    with_own = oracle.p * binom.pmf(num_bits - 1, oracle.num_inputs - 1, oracle.q)
    own = np.divide(with_own, chances, out=np.zeros_like(chances), where=chances > 0)
    own[-1] = 1.0  # all bits are set
    shares = weights / weights.sum()
    p = float(shares @ own)
    q = float(shares @ ((num_bits - own) / (oracle.num_inputs - 1)))
    return _Given(num_inputs=oracle.num_inputs, epsilon=oracle.epsilon, given=(p, q))


@dataclass(frozen=True, kw_only=True)
class BitCheck:
    """The numbers of set bits in the reports of one purpose and tier, compared with their law."""

    purpose: str
    tier: str
    num_reports: int
    p_value: float  # of all reports together; below :data:`ALARM` honest devices did not send them
    num_unlikely: float  # how many reports too many there are, over all numbers of set bits
    bits: int | None  # the number of set bits with the most of them
    influence: float  # how many honest reports of a place one forged report outweighs

    @property
    def alarm(self) -> bool:
        return self.p_value < ALARM

    def sentence(self) -> str:
        what = f"{self.purpose}, tier {self.tier}: the numbers of set bits"
        chance = f"p = {self.p_value:.2g}" if self.p_value > 1e-99 else "p below 1e-99"
        if not self.alarm:
            return f"{what} fit honest devices ({chance}); forgers who imitate the noise cannot be seen"
        few = f"about {self.num_unlikely:,.0f} of {self.num_reports:,} reports are too many"
        return f"{what} do not come from honest devices ({chance}): {few}, most of them with {self.bits} set"

    def to_dict(self) -> dict[str, str | int | float | bool]:
        return {**vars(self), "alarm": self.alarm}


@dataclass(frozen=True, kw_only=True)
class RobustMap:
    """The shares of a map from all reports, and with unlikely numbers of set bits weighted down."""

    checks: Sequence[BitCheck]  # one for each tier
    plain: Shares
    robust: Shares
    assumption: str = NOT_IMITATED

    @property
    def differing(self) -> list[int]:
        """Cells whose robust share is outside the plain interval, or the other way round."""
        plain, robust = self.plain, self.robust
        apart = (robust.value < plain.lower) | (robust.value > plain.upper)
        apart |= (plain.value < robust.lower) | (plain.value > robust.upper)
        return [int(cell) for cell in np.flatnonzero(apart)]

    def lines(self) -> list[str]:
        lines = [check.sentence() for check in self.checks]
        for cell in self.differing:
            ends = [
                f"{percent(float(shares.value[cell]))} [{percent(float(shares.lower[cell]))}, "
                f"{percent(float(shares.upper[cell]))}]"
                for shares in (self.plain, self.robust)
            ]
            lines.append(
                f"{self.checks[0].purpose}, cell {cell}: {ends[0]} of all, {ends[1]} with lower weights for them"
            )
        return lines

    def to_dict(self) -> dict[str, object]:
        names = ("value", "lower", "upper")
        shares = {kind: {name: getattr(given, name).tolist() for name in names} for kind, given in self.maps().items()}
        checks = [check.to_dict() for check in self.checks]
        return {"checks": checks, **shares, "differing": self.differing, "assumption": self.assumption}

    def maps(self) -> Mapping[str, Shares]:
        return {"plain": self.plain, "robust": self.robust}


def robust_maps(
    task: Task,
    sources: Sequence[Source],
    *,
    days: tuple[int, int] | None = None,
    received: float | None = None,
    confidence: float = 0.95,
) -> dict[str, RobustMap]:
    """Test the numbers of set bits and estimate robustly, for each purpose with a unary law."""
    mechanisms = mechanisms_of(task)
    groups = tally_groups(task, sources, _num_bits, days=days, received=received)
    result = {}
    for name, mechanism in mechanisms.items():
        if not isinstance(mechanism, LocalLocation):
            continue
        checks, every, kept, laws = [], [], [], dict[str, object]()
        for level in mechanism.levels:
            of_tier = {num: group.by_tier.get((name, level.name)) for num, group in groups.items()}
            tallies = {num: tally for num, tally in of_tier.items() if tally is not None}
            if not tallies or min(tallies) < 0:
                continue
            oracle: Any = mechanism.oracle(level)
            law, chances = mechanism.channel(level), bits_law(oracle)
            counts = np.zeros(chances.size)
            for num, tally in tallies.items():
                counts[num] = tally.num_reports
            total = counts.sum()
            likely = total * chances + SPREAD * np.sqrt(total * chances * (1 - chances))
            weights = np.minimum(1.0, likely / np.maximum(counts, 1))
            unlikely = np.maximum(counts - likely, 0.0)
            checks.append(
                BitCheck(
                    purpose=name,
                    tier=level.name,
                    num_reports=int(total),
                    p_value=bits_p_value(counts.astype(np.int64), chances),
                    num_unlikely=float(unlikely.sum()),
                    bits=int(np.argmax(unlikely)) if unlikely.any() else None,
                    influence=(1 - oracle.q) * oracle.scale,
                )
            )
            every.append(Tally(purpose=name, tier=level.name))
            for tally in tallies.values():
                every[-1].merge(tally)
            # As many reports as are worth as much as these with their weights (Kish's effective number).
            worth = float((weights * counts).sum() / (weights**2 * counts).sum())
            kept.append(_weighted(tallies, worth * weights))
            given = given_bits(oracle, weights * counts)
            laws[level.name] = replace(law, oracle=given) if isinstance(law, InClear) else given
        if any(tally.num_reports for tally in kept):
            plain = estimate_shares(mechanism, every, confidence=confidence, rule=AUTO)
            robust = estimate_shares(mechanism, kept, confidence=confidence, rule=AUTO, law_of=laws.__getitem__)
            result[name] = RobustMap(checks=checks, plain=plain, robust=robust)
    return result


def _weighted(tallies: Mapping[int, Tally], weights: FloatArray) -> Tally:
    """Return the sum of tallies with a weight each; its counts are no whole numbers."""
    first = next(iter(tallies.values()))
    result = Tally(purpose=first.purpose, tier=first.tier)
    for num, tally in tallies.items():
        own: Any = Tally(purpose=first.purpose, tier=first.tier, num_reports=tally.num_reports)
        own.num_reports = tally.num_reports * weights[num]
        for key, part in tally.parts.items():
            assert isinstance(part, Counts)
            own.parts[key] = Counts(part.kind, part.counts * weights[num], part.num * weights[num])
        result.merge(own)
    return result


def _num_bits(reader: TierReader, batch: Batch, own: IntArray, rows: Packed) -> IntArray:
    return reader.bits_set(rows) if reader.has_bits else np.full(len(own), -1, dtype=np.int64)


def widened(shares: Shares, oracle: Any, forged: float) -> Shares:
    """Return the intervals that hold if at most a share of the reports is forged, in whatever way."""
    if not 0 <= forged < 1:
        raise ParameterError(f"the share of forged reports must be at least 0 and below 1. Got {forged:g}.")
    # What all reports estimate is (1 - f) times what honest ones do, and f times a number in [-q, 1 - q] / (p - q).
    lowest, highest = -oracle.q * oracle.scale, (1 - oracle.q) * oracle.scale
    lower = (shares.lower - forged * highest) / (1 - forged)
    upper = (shares.upper - forged * lowest) / (1 - forged)
    return shares._replace(lower=np.clip(lower, 0.0, shares.value), upper=np.clip(upper, shares.value, 1.0))
