# SPDX-License-Identifier: Apache-2.0
"""Identification in a release of a secret sample: before it is seen, given a class, and with the sample drawn again.

Eq. 25 of Li et al. 2022, beta / k, bounds how likely a record's row is named **before** the release is seen: it must be
sampled, and then stand among k rows or more. Who sees the release, and knows that the record is in it, names its row
with 1 / j where j rows are in its class: at most 1 / k, as for any k-anonymous release.
``docs/proofs/identification.md`` has both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist

import numpy as np

from dunnage import noise_arrays
from dunnage.arrays import IntArray
from dunnage.auditing.finding import CONFIDENCE, About, Figure, Finding, wilson
from dunnage.auditing.sight import Sight
from dunnage.domains import hierarchy_of
from dunnage.errors import ParameterError
from dunnage.guarantees import SampledDP
from dunnage.mechanisms.classes import strata
from dunnage.mechanisms.full_domain import LatticeColumn, Records
from dunnage.noise import Noise
from dunnage.publication import Key
from dunnage.tables.dataset import Dataset
from dunnage.text import percent

MOST_DRAWS = 400
LEAST_DRAWS = 20
MOST_DRAWN = 20_000_000
NO_ROWS = "The release has no class: too few sampled records looked alike. Nobody can be named by one."


@dataclass(frozen=True)
class _Sampling:
    """The rate of the sample and the fewest rows of a class, as the release states them."""

    beta: Fraction
    k: int

    @classmethod
    def of(cls, sight: Sight) -> _Sampling:
        stated = sight.release.certificate
        assert isinstance(stated.guarantee, SampledDP)
        return cls(stated.guarantee.beta, stated.rows.k_asked or 1)

    @property
    def bound(self) -> float:
        """How likely a row is named before the release is seen, at most: eq. 25."""
        return float(self.beta / self.k)


def sampled_outside_findings(sight: Sight) -> list[Finding]:
    """Find how likely a row is named before the release is seen, and given the class."""
    asked, record, rows = _Sampling.of(sight), sight.protects, int(sight.sizes.sum())
    beta, alone = float(asked.beta), 1 / asked.k
    findings = []
    if not sight.release.noisy:  # beside noisy rows of the others nobody is hidden by not being sampled
        findings.append(
            About("probability", "records").finding(
                Figure("identification before release", asked.bound, beta / rows if rows else 0.0, (0.0, asked.bound)),
                f"Before the release is seen, somebody who knows a {record} names its row with at most "
                f"{percent(asked.bound)}: it is sampled with {percent(beta)}, and then stands among "
                f"{asked.k:,} rows or more. k-anonymity alone gives {percent(alone)}.",
                {"beta": beta, "k": asked.k, "k_anonymous": alone},
            )
        )
    if not rows:
        return findings
    words = {
        "identification given the class": (len(sight.sizes) / rows, "on average"),
        "identification given the class, worst": (1 / int(sight.sizes.min()), "at worst"),
    }
    return findings + [
        About("probability", "records").finding(
            Figure(name, value, 1 / rows),
            f"Once the release is seen, somebody who knows that a {record} is in it, and its class, names its row with "
            f"{percent(value)} {how}; beta no longer helps. k-anonymity alone gives {percent(alone)} at most.",
            {"k": asked.k, "k_anonymous": alone},
        )
        for name, (value, how) in words.items()
    ]


def sampled_inside_findings(sight: Sight, data: Dataset, key: Key | None, noise: Noise | None = None) -> list[Finding]:
    """Draw the sample again at the released levels, and tell the owner who is in the release; private."""
    asked = _Sampling.of(sight)
    findings = []
    if not sight.release.noisy:
        findings.append(_simulated(sight, asked, groups_at_levels(sight, data), noise or Noise()))
    if key is not None:
        kept, facts = int(sight.sizes.sum()), {name: value for name, value in key.facts.items() if type(value) is int}
        left = ", ".join(f"{facts[name]:,} {name}" for name in sorted(facts))
        findings.append(
            About("share", "utility", private=True).finding(
                Figure("records in classes", kept / len(data), float(asked.beta)),
                f"{kept:,} of {len(data):,} records stand in released classes"
                + (f" ({left})" if left else "")
                + f"; a sample takes {percent(float(asked.beta))}. Only the owner may know this.",
                {**facts, "records": len(data), "in_classes": kept},
            )
        )
    return findings


def groups_at_levels(sight: Sight, data: Dataset) -> IntArray:
    """Give all records that look alike at the released levels, public values included, the same number from 0 on."""
    levels = sight.release.certificate.rows.levels or {}
    if set(levels) != set(sight.names):
        raise ParameterError("the release does not state a level for each attribute. Verify it.")
    everyone = np.arange(len(data))
    columns = [LatticeColumn.of(data, told.name, hierarchy_of(told.domain), everyone) for told in sight.told]
    records = Records.of(strata(data)[0], columns)
    keys, _ = records.keys(tuple(levels[told.name] for told in sight.told), np.arange(len(records.counts)))
    return np.unique(keys, return_inverse=True)[1].reshape(-1)[records.of_row]


def named_before(sizes: IntArray, beta: Fraction, k: int) -> float:
    """Return how likely a record's row is named before the release is seen, at fixed levels, on average over records.

    A class of m records is released with j of them if j >= k are sampled; then one of the j is named right, on average.
    So of all n records as many are named right as classes are released: sum of P(Bin(m, beta) >= k), over n.

    Examples
    --------
    >>> named_before(np.array([2]), Fraction(1, 2), 2)
    0.125
    """
    from scipy.special import bdtrc

    return float(np.sum(np.where(sizes >= k, bdtrc(k - 1, np.maximum(sizes, k), float(beta)), 0.0)) / sizes.sum())


def _simulated(sight: Sight, asked: _Sampling, group: IntArray, noise: Noise) -> Finding:
    num, record = len(group), sight.protects
    draws = min(MOST_DRAWS, max(LEAST_DRAWS, MOST_DRAWN // num))
    named, kept = np.zeros(draws), np.zeros(draws)
    for number in range(draws):
        sampled = noise_arrays.bernoulli(noise, asked.beta, num)
        sizes = np.bincount(group[sampled])
        large = sizes[sizes >= asked.k]
        # In a class of j rows each record is named right with 1/j: one of them on average.
        named[number], kept[number] = len(large), large.sum()
    value = float(named.mean() / num)
    reach = NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * float(named.std(ddof=1)) / math.sqrt(draws) / num
    if named.min() == named.max():
        # Draws that are all alike do not tell their spread: at most log(20) in so many of others were missed at 95 %,
        # and no other has more rows named than there are groups.
        reach = -math.log(1 - CONFIDENCE) / draws * max(float(named[0]), len(np.unique(group)) - float(named[0])) / num
    closed = named_before(np.bincount(group), asked.beta, asked.k)
    given = float(named.sum() / kept.sum()) if kept.sum() else 0.0
    return About("probability", "records", private=True).finding(
        Figure(
            "identification by simulation",
            value,
            1 / num,
            (max(0.0, value - reach), min(1.0, value + reach)) if named.any() else wilson(0, draws * num),
        ),
        f"With the sample drawn again {draws:,} times at the released levels, somebody who knows a {record} "
        f"names its row with {percent(value)} (computed: {percent(closed)}; at most {percent(asked.bound)}), and with "
        f"{percent(given)} when it is in the release.",
        {"draws": draws, "computed": closed, "bound": asked.bound, "given_release": given},
    )
