# SPDX-License-Identifier: Apache-2.0
"""Checks of the mechanisms that add noise to the values of records or release a sample of them."""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from itertools import accumulate, combinations, combinations_with_replacement, pairwise, permutations, product
from operator import add
from typing import Any

import numpy as np

from dunnage.exact import shown_number
from dunnage.mechanisms.noisy import NoisyClusters, NoisyValues
from dunnage.mechanisms.sampled_lattice import SampledLattice, _CountRule
from dunnage.mechanisms.size_profile import TUBE_SHARES, SizeProfile
from dunnage.model.policy import Policy
from dunnage.noise.sampling import sampling_beta, sampling_delta, sampling_epsilon, smallest_k
from dunnage.noise.source import Noise
from dunnage.proving.examining import NeighbourCase, Rows, Till, dataset_of, examine, examine_point_law, sentence_of
from dunnage.proving.replay import Reach
from dunnage.proving.statistical import UNLIKELY, agrees
from dunnage.proving.verdict import FAILS, UNBOUNDED, Checks, Verdict

COLUMNS = ("weight", "length", "width")
PROFILE_DRAWS = 4_000
LAW_NAMES = ("laplace", "piecewise")


def rows_policy(lasts: Sequence[int], mechanism: Mapping[str, object]) -> Policy:
    attributes = {
        name: {"role": "quasi-identifier", "kind": "numeric", "domain": [0, last], "resolution": 1, "unit": "kg"}
        for name, last in zip(COLUMNS, lasts, strict=False)
    }
    document = {"dataset": "proof", "protects": "package", "attributes": attributes, "mechanism": dict(mechanism)}
    return Policy.from_dict(document)


def records(points: Sequence[Sequence[int]]) -> Rows:
    return {name: [float(point[at]) for point in points] for at, name in enumerate(COLUMNS[: len(points[0])])}


def replaced(lasts: Sequence[int], num: int) -> tuple[list[Rows], list[tuple[int, int]]]:
    """Return all datasets of ``num`` records, and which of them differ in one record."""
    grid = list(product(*(range(last + 1) for last in lasts)))
    datasets = list(combinations_with_replacement(grid, num))
    counters = [Counter(points) for points in datasets]
    pairs = [(a, b) for a, b in combinations(range(len(datasets)), 2) if (counters[b] - counters[a]).total() == 1]
    return [records(points) for points in datasets], pairs


def values_case(
    *,
    epsilon: Any,
    last: int | Sequence[int],  # point of the grid, or of each column's grid
    law: str,
    num: int = 1,  # records of a dataset
    confidence: Any = 0.9,
    mechanism: Any = None,  # to examine instead: any mechanism that promises and releases like noisy-values
    variant: str | None = None,
) -> NeighbourCase:
    lasts = [last] if isinstance(last, int) else list(last)
    made = mechanism or NoisyValues(epsilon=epsilon, law=law, confidence=confidence)
    tables, pairs = replaced(lasts, num)
    words = f"{law}, {len(lasts)} column{'s' * (len(lasts) > 1)}, {num} record{'s' * (num > 1)}"
    policy = rows_policy(lasts, {"name": NoisyValues.name, "epsilon": float(made.epsilon)})
    return NeighbourCase(
        mechanism=made,
        policy=policy,
        tables=tables,
        pairs=pairs,
        reach=Reach(steps=max(lasts), orders=num > 1),
        name=NoisyValues.name,
        variant=words if variant is None else variant,
    )


def check_noisy_values(long: bool) -> Iterator[Verdict]:
    # With a confidence of one half, the window of the piecewise law is a single point, and all of epsilon is used.
    for law, confidence in (("laplace", "0.9"), ("piecewise", "0.5")):
        yield examine(values_case(epsilon=2, last=4, law=law, confidence=confidence), long=long)
        yield examine(values_case(epsilon=3, last=(2, 2), law=law, confidence=confidence), long=long)
        yield examine(values_case(epsilon=2, last=2, law=law, num=2, confidence=confidence), long=long)
        yield examine_point_law(NoisyValues.name, law, last=30 if long else 12, epsilon=1)
    if not long:
        return
    for law, epsilon in product(LAW_NAMES, ("0.1", 5)):
        yield examine(values_case(epsilon=epsilon, last=9, law=law), long=long)
        yield examine(values_case(epsilon=epsilon, last=(2, 2), law=law, confidence=0), long=long)
        yield examine(values_case(epsilon=epsilon, last=3 if law == "laplace" else 2, law=law, num=2), long=long)
        yield examine_point_law(NoisyValues.name, law, last=30, epsilon=epsilon)
    yield examine(values_case(epsilon=2, last=(1, 1, 1), law="laplace"), long=long)


def _separates(output: Hashable, one: Rows, other: Rows) -> bool:
    """Return whether the published borders separate the values in which two datasets differ."""
    assert isinstance(output, tuple)  # of tables and certificate: the sound forms refuse nothing
    borders: Mapping[str, Sequence[float]] = json.loads(output[1])["measures"].get("borders", {})
    cells = [
        sorted(
            tuple(bisect_right(borders.get(name, ()), value) for name, value in zip(rows, point, strict=True))
            for point in zip(*rows.values(), strict=True)
        )
        for rows in (one, other)
    ]
    return cells[0] != cells[1]


def _borders_case(
    epsilon: Any, last: int, law: str, num: int, *, borders: Sequence[int] = (), quantiles: Sequence[Any] = ()
) -> NeighbourCase:
    tables, pairs = replaced([last], num)
    records_text = f"{law}, {num} record{'s' * (num > 1)}"
    if borders:  # the differing value of two neighbours lies between the same two, and noise stays in a cluster
        cells = [sorted(bisect_right(borders, value) for value in table["weight"]) for table in tables]
        pairs = [(a, b) for a, b in pairs if cells[a] == cells[b]]
        parameters: dict[str, Any] = {"borders": list(borders)}
        steps = max(b - a - 1 for a, b in pairwise([0, *borders, last + 1]))
        variant = f"public borders, {records_text}"
    else:
        parameters, steps = {"quantiles": [float(q) for q in quantiles]}, last
        variant = f"{len(quantiles)} private border{'s' * (len(quantiles) > 1)}, {records_text}"
    return NeighbourCase(
        mechanism=NoisyClusters(epsilon=epsilon, law=law, borders=borders or None, quantiles=quantiles or None),
        policy=rows_policy([last], {"name": NoisyClusters.name, "epsilon": epsilon, **parameters}),
        tables=tables,
        pairs=pairs,
        reach=Reach(steps=steps, orders=num > 1),
        separates=None if borders else _separates,
        variant=variant,
    )


class _Listening(Noise):
    """Noise that keeps the scores of its choices."""

    __slots__ = ("scores",)

    def __init__(self) -> None:
        super().__init__()
        self.scores: list[list[Fraction]] = []

    def exponential_choice(self, scores: Sequence[int | Fraction]) -> int:
        self.scores.append([Fraction(score) for score in scores])
        return super().exponential_choice(scores)


def examine_border_shares() -> Verdict:
    """Examine what several borders cost: together no more than their share of epsilon."""
    quantiles, last = ["0.2", "0.4", "0.6", "0.8"], 20
    mechanism = NoisyClusters(epsilon=2, quantiles=quantiles)
    policy = rows_policy([last], {"name": NoisyClusters.name, "epsilon": 2, "quantiles": [float(q) for q in quantiles]})
    pair = []
    for values in (range(last), range(1, last + 1)):  # all but the last point, all but the first: one record differs
        noise = _Listening()
        till: Any = Till(noise)
        data = dataset_of(records([[value] for value in values]), policy)
        mechanism.release(data, ledger=till, noise=noise)
        pair.append(noise.scores)
    # If scores change by at least a and at most b, the odds of a choice change by at most e^(b - a).
    changes = [[b - a for a, b in zip(*scores, strict=True)] for scores in zip(*pair, strict=True)]
    measured = float(sum(max(change) - min(change) for change in changes))
    claimed = float(mechanism.epsilon * mechanism.border_share)
    enough = len(changes) == len(quantiles)
    problems = () if enough else (f"it draws {len(changes)} borders by their scores instead of {len(quantiles)}",)
    return Verdict.of(
        NoisyClusters.name,
        f"epsilon of {len(quantiles)} private borders",
        claimed,
        measured,
        method=f"exact change of the scores of {len(changes)} borders between two neighbours",
        sentence=f"All borders together cost {measured:.3g} of the {claimed:.3g} that is reserved for them.",
        problems=problems,
    )


def check_noisy_clusters(long: bool) -> Iterator[Verdict]:
    # The published form on a pair of neighbours within one cluster.
    parameters = {"name": NoisyClusters.name, "epsilon": 1, "quantiles": [0.1], "as_published": True}
    published = NeighbourCase(
        mechanism=NoisyClusters(epsilon=1, quantiles=["0.1"], as_published=True),
        policy=rows_policy([6], parameters),
        tables=[records([[1], [3]]), records([[1], [6]]), records([[1], [1]])],
        reach=Reach(steps=6),
        variant="as published",
        expected=FAILS,
        sentence="Noise is scaled by the range of the private records, and a cluster of equal values gets none: widths "
        "of intervals distinguish neighbours for certain, and the heaviest of 25 packages would be printed as it is.",
    )
    yield examine(published, long=long)
    for law in LAW_NAMES:
        yield examine(_borders_case(1, 6, law, 1, borders=[3]), long=long)
        yield examine(_borders_case(2, 6, law, 1, quantiles=["0.1"]), long=long)
    yield examine(_borders_case(2, 3, "laplace", 2, borders=[2]), long=long)
    yield examine_border_shares()
    if not long:
        return
    yield examine(_borders_case(1, 5, "laplace", 2, quantiles=["0.5"]), long=long)
    for law in LAW_NAMES:
        yield examine(_borders_case("0.3", 9, law, 1, borders=[2, 5]), long=long)
        yield examine(_borders_case(3, 7, law, 1, quantiles=["0.3", "0.7"]), long=long)


def check_any(kind: type[Any], long: bool) -> Iterator[Verdict]:
    for last, num in ((4, 1), ((2, 2), 1), (2, 2)):
        case = values_case(epsilon=2, last=last, law="its law", num=num, mechanism=kind(epsilon=2))
        yield examine(replace(case, name=kind.name), long=long)


BETA = "0.7"
APART = (("x", "x"), ("x", "y"), ("y", "x"))
"""Three records with two flags: each flag alone puts the first record with one of the others."""
_SIZES = 400
_FLAG = {"role": "quasi-identifier", "kind": "tree", "parents": {"x": "*", "y": "*"}}
_NUMBER = {"role": "quasi-identifier", "kind": "numeric", "resolution": 1, "doubling": 2}


class _OneSampleRule(_CountRule):
    """The sound rule, except that the node is chosen on the released sample."""

    def sample(self, released: Any, draw: Any) -> Any:
        return released


class ChosenOnRelease(SampledLattice):
    """Sampled-lattice with its node chosen on the released sample, which the theorem does not cover."""

    @cached_property
    def _rule(self) -> _OneSampleRule:
        return _OneSampleRule(self.least, self.rate, self.epsilon_choice, self.accounting)


FLAGS = {"this": _FLAG, "that": _FLAG}


def flags(points: Sequence[Sequence[str]]) -> Rows:
    return {name: [point[at] for point in points] for at, name in enumerate(FLAGS)}


def numbers(values: Sequence[float]) -> Rows:
    return {"weight": [float(value) for value in values]}


def lattice_case(
    mechanism: SampledLattice, tables: Sequence[Rows], *, last: int = 4, orders: bool = False, **more: Any
) -> NeighbourCase:
    """Return a case of datasets, each with one record more than the one before, unless pairs are given."""
    attributes = FLAGS if "this" in tables[0] else {"weight": {**_NUMBER, "domain": [0, last]}}
    table = {"name": SampledLattice.name, "k": 2, "beta": 0.7, "epsilon_choice": 1}
    more.setdefault("pairs", [(at, at + 1) for at in range(len(tables) - 1)])
    return NeighbourCase(
        mechanism=mechanism,
        policy=Policy.from_dict(
            {"dataset": "proof", "protects": "package", "attributes": attributes, "mechanism": table}
        ),
        tables=tables,
        reach=Reach(steps=last, orders=orders),
        name=SampledLattice.name,
        **more,
    )


def _sampled_cases(long: bool) -> Iterator[NeighbourCase]:
    """Yield all samples, nodes and releases of a few records, the published form, and one sample for both uses."""
    three, chosen = [flags(APART[1:]), flags(APART)], 6
    # The published form, at the epsilon that it states for the largest sample of three records.
    yield lattice_case(
        SampledLattice(k=2, beta=BETA, epsilon_choice=chosen, as_published=True),
        three,
        variant="as published",
        expected=FAILS,
        claimed=float(sampling_delta(2, BETA, as_published=True)),
        epsilon=float(sampling_epsilon(BETA)) + 2 * chosen * 2 / 3,
    )
    yield lattice_case(
        ChosenOnRelease(k=2, beta=Fraction(BETA), epsilon_choice=Fraction(8)),
        three,
        variant="node chosen on the released sample",
        expected=FAILS,
        basis="claimed",
        holds=UNBOUNDED,
        claimed=float(sampling_delta(2, BETA)),
        sentence="A node that is chosen on the released sample can seek out the class that reveals most: the theorem "
        "about the sample does not cover that, and a second sample is needed.",
    )
    yield lattice_case(
        SampledLattice(k=2, beta=BETA, epsilon_choice=1, left_out="noisy", left_out_epsilon=1),
        [numbers([1]), numbers([1, 1])],
        last=1,
        variant="left out: noisy",
        expected=FAILS,
        sentence="Rows for the records left out show how many records there are: the sample is no longer secret.",
    )
    two = [numbers([0.0] * num) for num in (0, 1, 2)]
    yield lattice_case(SampledLattice(k=2, beta=BETA, epsilon_choice=1), two, orders=True, variant="1 number, k 2")
    yield lattice_case(SampledLattice(k=2, beta=BETA, epsilon_choice=8), three, variant="2 flags, k 2")
    requested = SampledLattice(epsilon=3, delta="0.3", epsilon_choice="0.5")
    yield lattice_case(requested, [numbers([0.0] * num) for num in (2, 3)], variant="epsilon and delta requested")
    if long:
        for k, beta, epsilon in ((2, "0.2", "0.5"), (2, "0.5", 1), (3, BETA, 4)):
            mechanism = SampledLattice(k=k, beta=beta, epsilon_choice=epsilon)
            # All datasets of up to three records with three values, and all their neighbours.
            variant = f"1 number, k {k}, beta {beta}"
            every = [values for num in range(3 + 1) for values in combinations_with_replacement((0, 1, 2), num)]
            places = {values: at for at, values in enumerate(every)}
            grown = [(values, tuple(sorted((*values, extra)))) for values in every for extra in (0, 1, 2)]
            pairs = [(places[one], places[more]) for one, more in grown if more in places]
            yield lattice_case(mechanism, [numbers(values) for values in every], pairs=pairs, variant=variant)
        pooled = SampledLattice(k=2, beta=BETA, epsilon_choice=1, left_out="pool")
        yield lattice_case(pooled, two, variant="left out: pool")


def examine_smallest_k() -> Verdict:
    """Examine the k that is chosen for a delta: its loss, computed term by term, is no more than requested."""
    settings = [(beta, delta) for beta in ("0.1", "0.5", BETA) for delta in ("0.3", "0.05", "1e-4")]
    losses = [(_delta_of(smallest_k(beta, delta), float(beta)), float(delta)) for beta, delta in settings]
    words = "The k that is chosen for a delta of {:g} gives a delta of {:.3g}."
    return _worst_figure("smallest k for a delta", "delta", losses, words)


def _delta_of(k: int, beta: float) -> float:
    """Compute the largest loss beyond epsilon of classes of many sizes, from how many of their records are sampled."""
    from scipy.special import bdtrc

    gamma = 1 - (1 - beta) ** 2
    sizes = np.arange(k, math.ceil(k / gamma) + _SIZES)
    below = np.maximum(k, np.floor(gamma * sizes + 1e-9) + 1) - 1  # more than these are likelier with the record
    return float((bdtrc(below, sizes, beta) - bdtrc(below, sizes - 1, beta) / (1 - beta)).max())


def examine_largest_rate() -> Verdict:
    """Examine the rate that is chosen for an epsilon: it costs no more than requested."""
    settings = ("0.01", "0.5", "1", "1.204", "3")
    losses = [(-math.log1p(-float(sampling_beta(rest))), float(rest)) for rest in settings]
    words = "The rate that is chosen for an epsilon of {:g} costs {:.6g}."
    return _worst_figure("largest rate for an epsilon", "epsilon", losses, words)


def _worst_figure(variant: str, quantity: str, losses: Sequence[tuple[float, float]], words: str) -> Verdict:
    measured, claimed = max(losses, key=lambda pair: pair[0] / pair[1])
    method = f"computed independently for {len(losses)} settings, of which this is the worst"
    sentence = words.format(claimed, measured)
    return Verdict.of(
        SampledLattice.name, variant, claimed, measured, quantity=quantity, method=method, sentence=sentence
    )


def check_sampled_lattice(long: bool) -> Iterator[Verdict]:
    yield examine_smallest_k()
    yield examine_largest_rate()
    for case in _sampled_cases(long):
        yield examine(case, long=long)


def profile_case(mechanism: SizeProfile, tables: Sequence[Rows], last: int, **more: Any) -> NeighbourCase:
    """Return a case of datasets on a grid; neighbours add a record, or replace one if their number is public."""
    sizes = [Counter(zip(*rows.values(), strict=True)) for rows in tables]
    far = 1 if mechanism.hidden else 2
    pairs = combinations(range(len(tables)), 2)
    return NeighbourCase(
        mechanism=mechanism,
        policy=rows_policy([last] * len(tables[0]), {"name": mechanism.name, "epsilon": 1, "risk": 0.05}),
        tables=tables,
        pairs=[(a, b) for a, b in pairs if ((sizes[a] - sizes[b]) + (sizes[b] - sizes[a])).total() == far],
        reach=Reach(steps=6, beyond="left out", tail=1e-6),  # as many slots as the noise says
        **more,
    )


def examine_profile_law(mechanism: SizeProfile, num: int, reach: int, tube: Fraction = Fraction(0)) -> Verdict:
    """Examine the noise of counts: its law, computed from its definition, between counts that differ in one record."""
    every = [v for v in product(range(-reach, reach + 1), repeat=num) if mechanism.hidden or sum(v) == 0]
    tails = [max(map(abs, accumulate(v))) for v in every]
    counts, largest = float((1 - tube) / mechanism.scale), float(mechanism.epsilon * tube)
    weights = [math.exp(-counts * sum(map(abs, v)) - largest * tail) for v, tail in zip(every, tails, strict=True)]
    total = math.fsum(weights)
    law = {v: weight / total for v, weight in zip(every, weights, strict=True)}
    # A record comes or goes if their number is hidden; otherwise it moves from one count to another.
    one = [tuple(int(at == own) for at in range(num)) for own in range(num)]
    steps = one if mechanism.hidden else [tuple(np.subtract(a, b).tolist()) for a, b in permutations(one, 2)]
    measured = 0.0
    for step, v in product(steps, every):
        if (moved := tuple(map(add, v, step))) in law:
            measured = max(measured, abs(math.log(law[v] / law[moved])))
    noise, epsilon = Noise(), float(mechanism.epsilon)
    sample = Counter(tuple(mechanism.perturbation(num, noise, tube).tolist()) for _ in range(PROFILE_DRAWS))
    off = agrees(sample, law) < UNLIKELY
    known = "" if mechanism.hidden else " with a known sum"
    return Verdict.of(
        mechanism.name,
        f"law of {num} counts{known}" + (f", {shown_number(tube)} of epsilon for the largest tail" if tube else ""),
        epsilon,
        measured,
        method=f"chances of {len(law):,} noises from their definition; {PROFILE_DRAWS:,} sampled",
        sentence=sentence_of("package", epsilon, measured),
        problems=("its draws do not follow the law",) if off else (),
    )


def check_size_profile(long: bool) -> Iterator[Verdict]:
    """Check whole releases with two and three counts, with a hidden and a public number, and the law beyond."""
    few = [numbers(values) for num in range(3) for values in combinations_with_replacement((0, 4), num)]
    hidden = SizeProfile(epsilon=3, risk="0.2", expected=2, intervals=2)
    yield examine(profile_case(hidden, few[:4], 4, variant="hidden number, 2 intervals"), long=long)
    public = SizeProfile(epsilon=2, risk="0.2", intervals=2)
    same = [rows for rows in few if len(rows["weight"]) == 2]
    yield examine(profile_case(public, same, 4, variant="public number, 2 intervals"), long=long)
    two = [records([(0, 0)]), records([(4, 4)])]
    yield examine(profile_case(public, two, 4, variant="public number, 2 quantities"), long=long)
    if long:
        three = SizeProfile(epsilon=5, risk="0.2", expected=2, intervals=3)
        yield examine(profile_case(three, few[:3], 4, variant="hidden number, 3 intervals"), long=long)
    yield examine_profile_law(SizeProfile(epsilon=2, risk="0.2"), 3, 14)
    yield examine_profile_law(SizeProfile(epsilon=3, risk="0.2"), 4, 10, TUBE_SHARES[0])
    yield examine_profile_law(SizeProfile(epsilon=3, risk="0.2", expected=9), 3, 8, TUBE_SHARES[0])


CHECKS: Checks = {
    NoisyValues: check_noisy_values,
    NoisyClusters: check_noisy_clusters,
    SizeProfile: check_size_profile,
}
SAMPLED_CHECKS: Checks = {SampledLattice: check_sampled_lattice}
