# SPDX-License-Identifier: Apache-2.0
"""Checks of sampled-lattice: all samples, nodes and releases of a few records."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from dunnage.mechanisms.sampled_lattice import SampledLattice, _CountRule
from dunnage.policy import Policy
from dunnage.proving.examining import Case, Rows, examine
from dunnage.proving.replay import Reach
from dunnage.proving.verdict import FAILS, UNBOUNDED, Checks, Verdict
from dunnage.sampling_loss import sampling_beta, sampling_delta, sampling_epsilon, smallest_k

BETA = "0.7"
TOLD_APART = (("x", "x"), ("x", "y"), ("y", "x"))
"""Three records of two flags: each flag alone puts the first with one of the others."""
_SIZES = 400
_FLAG = {"role": "quasi-identifier", "kind": "tree", "parents": {"x": "*", "y": "*"}}
_NUMBER = {"role": "quasi-identifier", "kind": "numeric", "resolution": 1, "doubling": 2}


class _OneSampleRule(_CountRule):
    """The sound rule, but for the sample: the node is chosen on the one that is released."""

    def sample(self, released: Any, draw: Any) -> Any:
        return released


class ChosenOnRelease(SampledLattice):
    """Sampled-lattice with its node chosen on the released sample, which the theorem does not allow for."""

    @cached_property
    def _rule(self) -> _OneSampleRule:
        return _OneSampleRule(self.least, self.rate, self.epsilon_choice)


def lattice_policy(attributes: Mapping[str, object]) -> Policy:
    mechanism = {"name": SampledLattice.name, "k": 2, "beta": 0.7, "epsilon_choice": 1}
    document = {"dataset": "proof", "protects": "package", "attributes": attributes, "mechanism": mechanism}
    return Policy.from_dict(document)


FLAGS = {"this": _FLAG, "that": _FLAG}


def flags(points: Sequence[Sequence[str]]) -> Rows:
    return {name: [point[at] for point in points] for at, name in enumerate(FLAGS)}


def numbers(values: Sequence[float]) -> Rows:
    return {"weight": [float(value) for value in values]}


def lattice_case(
    mechanism: SampledLattice, tables: Sequence[Rows], *, last: int = 4, orders: bool = False, **more: Any
) -> Case:
    """Return a case of datasets of which each has one record more than the one before, unless pairs say otherwise."""
    attributes = FLAGS if "this" in tables[0] else {"weight": {**_NUMBER, "domain": [0, last]}}
    more.setdefault("pairs", [(at, at + 1) for at in range(len(tables) - 1)])
    return Case(
        mechanism=mechanism,
        policy=lattice_policy(attributes),
        tables=tables,
        reach=Reach(steps=last, orders=orders),
        name=SampledLattice.name,
        **more,
    )


def _sound(long: bool) -> Iterator[Case]:
    two = [numbers([0.0] * num) for num in (1, 2)]
    yield lattice_case(SampledLattice(k=2, beta=BETA, epsilon_choice=1), two, orders=True, variant="1 number, k 2")
    three = [flags(TOLD_APART[1:]), flags(TOLD_APART)]
    yield lattice_case(SampledLattice(k=2, beta=BETA, epsilon_choice=8), three, variant="2 flags, k 2")
    asked = SampledLattice(epsilon=3, delta="0.3", epsilon_choice="0.5")
    yield lattice_case(asked, [numbers([0.0] * num) for num in (2, 3)], variant="epsilon and delta asked for")
    if long:
        for k, beta, epsilon in ((2, "0.2", "0.5"), (2, "0.5", 1), (3, BETA, 4)):
            mechanism = SampledLattice(k=k, beta=beta, epsilon_choice=epsilon)
            # The case of all datasets of up to so many records of three values, and all their neighbours.
            variant = f"1 number, k {k}, beta {beta}"
            every = [values for num in range(1, 3 + 1) for values in combinations_with_replacement((0, 1, 2), num)]
            places = {values: at for at, values in enumerate(every)}
            grown = [(values, tuple(sorted((*values, extra)))) for values in every for extra in (0, 1, 2)]
            pairs = [(places[one], places[more]) for one, more in grown if more in places]
            yield lattice_case(mechanism, [numbers(values) for values in every], pairs=pairs, variant=variant)
        pooled = SampledLattice(k=2, beta=BETA, epsilon_choice=1, left_out="pool")
        yield lattice_case(pooled, two, variant="left out: pool")


def examine_smallest_k() -> Verdict:
    """Examine the k that is chosen for a delta: what it loses, worked out term by term, is no more than was asked."""
    start = time.perf_counter()
    asked = [(beta, delta) for beta in ("0.1", "0.5", BETA) for delta in ("0.3", "0.05", "1e-4")]
    found = [(_delta_of(smallest_k(beta, delta), float(beta)), float(delta)) for beta, delta in asked]
    measured, claimed = max(found, key=lambda pair: pair[0] / pair[1])
    told = f"The k that is chosen for a delta of {claimed:g} loses one of {measured:.3g}."
    return _figure_verdict("smallest k for a delta", "delta", claimed, measured, len(asked), told, start)


def _delta_of(k: int, beta: float) -> float:
    """Work out the largest chance that a class tells too much: P(Bin(n, beta) > gamma n), over many n."""
    from scipy.special import bdtrc

    gamma = 1 - (1 - beta) ** 2
    first = math.ceil(k / gamma - 1 - 1e-12)
    sizes = np.arange(max(first, 1), first + _SIZES)
    return float(bdtrc(np.floor(gamma * sizes + 1e-9), sizes, beta).max())


def examine_largest_rate() -> Verdict:
    """Examine the rate that is chosen for an epsilon: it costs no more than was asked."""
    start, asked = time.perf_counter(), ("0.01", "0.5", "1", "1.204", "3")
    found = [(-math.log1p(-float(sampling_beta(rest))), float(rest)) for rest in asked]
    measured, claimed = max(found, key=lambda pair: pair[0] / pair[1])
    told = f"The rate that is chosen for an epsilon of {claimed:g} costs {measured:.6g}."
    return _figure_verdict("largest rate for an epsilon", "epsilon", claimed, measured, len(asked), told, start)


def _figure_verdict(
    variant: str, quantity: str, claimed: float, measured: float, num: int, sentence: str, start: float
) -> Verdict:
    return Verdict.of(
        SampledLattice.name,
        variant,
        claimed=claimed,
        measured=measured,
        quantity=quantity,
        method=f"worked out anew for {num} settings, of which this is the worst",
        sentence=sentence,
        started=start,
    )


def _published() -> Case:
    """Return the published form, at the epsilon that it states for the largest sample of three records."""
    chosen = 6
    mechanism = SampledLattice(k=2, beta=BETA, epsilon_choice=chosen, as_published=True)
    return lattice_case(
        mechanism,
        [flags(TOLD_APART[1:]), flags(TOLD_APART)],
        variant="as published",
        expected=FAILS,
        claimed=float(sampling_delta(2, BETA, as_published=True)),
        epsilon=float(sampling_epsilon(BETA)) + 2 * chosen * 2 / 3,
    )


def _on_released_sample() -> Case:
    return lattice_case(
        ChosenOnRelease(k=2, beta=Fraction(BETA), epsilon_choice=Fraction(8)),
        [flags(TOLD_APART[1:]), flags(TOLD_APART)],
        variant="node chosen on the released sample",
        expected=FAILS,
        basis="claimed",
        holds=UNBOUNDED,
        claimed=float(sampling_delta(2, BETA)),
        sentence="Choosing the node on the sample that is released lets it seek the telling class: the theorem of the "
        "sample does not cover that, and a second sample is needed.",
    )


def _noisy_left_out() -> Case:
    mechanism = SampledLattice(k=2, beta=BETA, epsilon_choice=1, left_out="noisy", left_out_epsilon=1)
    return lattice_case(
        mechanism,
        [numbers([1]), numbers([1, 1])],
        last=1,
        variant="left out: noisy",
        expected=FAILS,
        sentence="Rows for the records left out show how many records there are: the sample is no longer secret.",
    )


def check_sampled_lattice(long: bool) -> Iterator[Verdict]:
    """Check sampled-lattice, its published form, and what happens with one sample for choice and release."""
    yield examine_smallest_k()
    yield examine_largest_rate()
    for case in (_published(), _on_released_sample(), _noisy_left_out(), *_sound(long)):
        yield examine(case, long=long)


CHECKS: Checks = {SampledLattice: check_sampled_lattice}
