# SPDX-License-Identifier: Apache-2.0
"""Checks of the mechanisms that add noise to the values of records: noisy-values and noisy-clusters."""

from __future__ import annotations

import json
import time
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, combinations_with_replacement, pairwise, product
from typing import Any

from dunnage.ledger import Ledger
from dunnage.mechanisms.noisy import NoisyClusters, NoisyValues
from dunnage.noise import Noise
from dunnage.policy import Policy
from dunnage.proving.examining import Case, Rows, dataset_of, examine, examine_point_law
from dunnage.proving.replay import Reach
from dunnage.proving.verdict import FAILS, Checks, Verdict

COLUMNS = ("weight", "length", "width")


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
    found = list(combinations_with_replacement(grid, num))
    pairs = [(a, b) for a, b in combinations(range(len(found)), 2) if _differ_in_one(found[a], found[b])]
    return [records(points) for points in found], pairs


def _differ_in_one(one: Sequence[Any], other: Sequence[Any]) -> bool:
    rest = list(other)
    for point in one:
        if point in rest:
            rest.remove(point)
    return len(rest) == 1


def values_case(
    *,
    epsilon: Any,  # epsilon, law, confidence: parameters of the mechanism
    last: int | Sequence[int],  # Last point of the grid, or of each column's grid
    law: str,
    num: int = 1,  # Records of a dataset
    confidence: Any = 0.9,
    mechanism: Any = None,  # What to examine instead: anything that promises and releases like noisy-values
    variant: str | None = None,  # What sets the case apart; by default told by the parameters
) -> Case:
    lasts = [last] if isinstance(last, int) else list(last)
    made = mechanism or NoisyValues(epsilon=epsilon, law=law, confidence=confidence)
    tables, pairs = replaced(lasts, num)
    told = f"{law}, {len(lasts)} column{'s' * (len(lasts) > 1)}, {num} record{'s' * (num > 1)}"
    policy = rows_policy(lasts, {"name": NoisyValues.name, "epsilon": float(made.epsilon)})
    return Case(
        mechanism=made,
        policy=policy,
        tables=tables,
        pairs=pairs,
        reach=Reach(steps=max(lasts), orders=num > 1),
        name=NoisyValues.name,
        variant=told if variant is None else variant,
    )


def check_noisy_values(long: bool) -> Iterator[Verdict]:
    """Check noisy-values: both laws, several columns that share epsilon, and records beside each other."""
    # With a confidence of one half the window of the piecewise law is a single point, and all of epsilon is used.
    for law, confidence in (("laplace", "0.9"), ("piecewise", "0.5")):
        yield examine(values_case(epsilon=2, last=4, law=law, confidence=confidence), long=long)
        yield examine(values_case(epsilon=3, last=(2, 2), law=law, confidence=confidence), long=long)
        yield examine(values_case(epsilon=2, last=2, law=law, num=2, confidence=confidence), long=long)
        yield examine_point_law(NoisyValues.name, law, last=30 if long else 12, epsilon=1)
    if not long:
        return
    for law, epsilon in product(("laplace", "piecewise"), ("0.1", 5)):
        yield examine(values_case(epsilon=epsilon, last=9, law=law), long=long)
        yield examine(values_case(epsilon=epsilon, last=(2, 2), law=law, confidence=0), long=long)
        yield examine(values_case(epsilon=epsilon, last=3 if law == "laplace" else 2, law=law, num=2), long=long)
        yield examine_point_law(NoisyValues.name, law, last=30, epsilon=epsilon)
    yield examine(values_case(epsilon=2, last=(1, 1, 1), law="laplace"), long=long)


def _cell(borders: Sequence[float], value: float) -> int:
    return sum(value >= border for border in borders)


def _borders(output: Hashable) -> Mapping[str, Sequence[float]]:
    assert isinstance(output, tuple)  # of tables and certificate: the sound forms refuse nothing
    found: Mapping[str, Sequence[float]] = json.loads(output[1])["measures"].get("borders", {})
    return found


def _separates(output: Hashable, one: Rows, other: Rows) -> bool:
    """Tell whether the published borders separate the values in which two datasets differ."""
    borders = _borders(output)
    cells = [
        sorted(
            tuple(_cell(borders.get(name, ()), value) for name, value in zip(rows, point, strict=True))
            for point in zip(*rows.values(), strict=True)
        )
        for rows in (one, other)
    ]
    return cells[0] != cells[1]


def _public_borders(epsilon: Any, last: int, borders: Sequence[int], law: str, num: int) -> Case:
    """Return the case of public borders: neighbours have the differing value between the same two."""
    tables, pairs = replaced([last], num)
    within = [
        (a, b)
        for a, b in pairs
        if sorted(_cell(borders, v) for v in tables[a]["weight"])
        == sorted(_cell(borders, v) for v in tables[b]["weight"])
    ]
    mechanism = NoisyClusters(epsilon=epsilon, borders=borders, law=law)
    policy = rows_policy([last], {"name": NoisyClusters.name, "epsilon": epsilon, "borders": list(borders)})
    ends = [0, *borders, last + 1]
    reach = Reach(steps=max(b - a - 1 for a, b in pairwise(ends)), orders=num > 1)  # noise stays in a cluster
    variant = f"public borders, {law}, {num} record{'s' * (num > 1)}"
    return Case(mechanism=mechanism, policy=policy, tables=tables, pairs=within, reach=reach, variant=variant)


def _private_borders(epsilon: Any, last: int, quantiles: Sequence[Any], law: str, num: int) -> Case:
    tables, pairs = replaced([last], num)
    mechanism = NoisyClusters(epsilon=epsilon, quantiles=quantiles, law=law)
    parameters = {"name": NoisyClusters.name, "epsilon": epsilon, "quantiles": [float(q) for q in quantiles]}
    return Case(
        mechanism=mechanism,
        policy=rows_policy([last], parameters),
        tables=tables,
        pairs=pairs,
        reach=Reach(steps=last, orders=num > 1),
        separates=_separates,
        variant=f"{len(quantiles)} private border{'s' * (len(quantiles) > 1)}, {law}, {num} record{'s' * (num > 1)}",
    )


class _Listening(Noise):
    """Noise that keeps what it was asked to choose by."""

    __slots__ = ("asked",)

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[list[Fraction]] = []

    def exponential_choice(self, scores: Sequence[int | Fraction]) -> int:
        """Choose as ever, and keep the scores."""
        self.asked.append([Fraction(score) for score in scores])
        return super().exponential_choice(scores)


def examine_border_shares() -> Verdict:
    """Examine what drawing several borders costs: no more than their share of epsilon, all together.

    If scores change by d, which is at least a and at most b, the odds of what is chosen change by e^(b - a) at most.
    """
    start, quantiles, last = time.perf_counter(), ["0.2", "0.4", "0.6", "0.8"], 20
    mechanism = NoisyClusters(epsilon=2, quantiles=quantiles)
    policy = rows_policy([last], {"name": NoisyClusters.name, "epsilon": 2, "quantiles": [float(q) for q in quantiles]})
    pair = []
    for values in (range(last), range(1, last + 1)):  # all but the last point, all but the first: one record differs
        noise = _Listening()
        data = dataset_of(records([[value] for value in values]), policy)
        mechanism.release(data, ledger=Ledger(":memory:"), noise=noise)
        pair.append(noise.asked)
    changes = [[b - a for a, b in zip(*scores, strict=True)] for scores in zip(*pair, strict=True)]
    measured = float(sum(max(change) - min(change) for change in changes))
    claimed = float(mechanism.epsilon * mechanism.border_share)
    enough = len(changes) == len(quantiles)
    problems = () if enough else (f"it draws {len(changes)} borders by their scores, and {len(quantiles)} are wanted",)
    return Verdict.of(
        NoisyClusters.name,
        f"epsilon of {len(quantiles)} private borders",
        claimed=claimed,
        measured=measured,
        method=f"exact change of the scores of {len(changes)} borders between two neighbours",
        sentence=f"All borders together cost {measured:.3g} of the {claimed:.3g} that is set aside for them.",
        started=start,
        problems=problems,
    )


def check_noisy_clusters(long: bool) -> Iterator[Verdict]:
    """Check noisy-clusters: public and private borders, and the published form, which must fail."""
    # The published form on a pair of neighbours within one cluster.
    mechanism = NoisyClusters(epsilon=1, quantiles=["0.1"], as_published=True)
    parameters = {"name": NoisyClusters.name, "epsilon": 1, "quantiles": [0.1], "as_published": True}
    yield examine(
        Case(
            mechanism=mechanism,
            policy=rows_policy([6], parameters),
            tables=[records([[1], [3]]), records([[1], [6]]), records([[1], [1]])],
            reach=Reach(steps=6),
            variant="as published",
            expected=FAILS,
            sentence="Noise is scaled by the range of the private records, and a cluster of equal values gets none: "
            "widths of intervals tell neighbours apart for sure, and the heaviest of 25 packages would be printed as "
            "it is.",
        ),
        long=long,
    )
    for law in ("laplace", "piecewise"):
        yield examine(_public_borders(1, 6, [3], law, 1), long=long)
        yield examine(_private_borders(2, 6, ["0.1"], law, 1), long=long)
    yield examine(_public_borders(2, 3, [2], "laplace", 2), long=long)
    yield examine_border_shares()
    if not long:
        return
    yield examine(_private_borders(1, 5, ["0.5"], "laplace", 2), long=long)
    for law in ("laplace", "piecewise"):
        yield examine(_public_borders("0.3", 9, [2, 5], law, 1), long=long)
        yield examine(_private_borders(3, 7, ["0.3", "0.7"], law, 1), long=long)


def check_any(kind: type[Any], long: bool) -> Iterator[Verdict]:
    for last, num in ((4, 1), ((2, 2), 1), (2, 2)):
        case = values_case(epsilon=2, last=last, law="its law", num=num, mechanism=kind(epsilon=2))
        yield examine(replace(case, name=kind.name), long=long)


CHECKS: Checks = {NoisyValues: check_noisy_values, NoisyClusters: check_noisy_clusters}
