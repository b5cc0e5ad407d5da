# SPDX-License-Identifier: Apache-2.0
"""Checks of the mechanisms that release counts of trips, and of the published floating-point noise."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, get_args

from dunnage.errors import ParameterError
from dunnage.kernels.counts.laplace import DiscreteLaplace, FlooredLaplace, RoundedLaplace
from dunnage.mechanisms import counts as mechanisms
from dunnage.mechanisms.counts import ConstrainedCounts, HierarchicalCounts, NoisyCounts, true_counts
from dunnage.mechanisms.fitted_counts import QUESTIONS, FittedCounts
from dunnage.mechanisms.gaussian_counts import GaussianCounts
from dunnage.model.policy import Policy
from dunnage.noise.source import Noise
from dunnage.proving.examining import (
    NeighbourCase,
    Rows,
    Till,
    dataset_of,
    examine,
    examine_count_law,
    examine_floating_noise,
)
from dunnage.proving.replay import Decisions, Reach, diverted, outcomes, with_values
from dunnage.proving.statistical import UNLIKELY, agrees
from dunnage.proving.verdict import FAILS, UNBOUNDED, Checks, Verdict, as_sentence
from dunnage.tables.dataset import Dataset

Draw = Callable[[Dataset, Noise], mechanisms.DrawnCounts]

WINDOWS = ("08:00", "08:30", "09:00")
DAYS = ("2026-11-01", "2026-11-02")
_RIDER = "rider"
_FEATURES: tuple[Any, ...] = ("H3", "H4", "H5", [[]], [["window"]], [[], ["window"], ["origin", "window"]])
_FLAT_FEATURES: tuple[Any, ...] = (*_FEATURES, "O3", "O4", "O5", [["origin"], ["destination"]])
_LAZY_DRAWS = 1_200


@cache
def trips_policy(
    num_windows: int = 2,
    *,
    most: int | None = None,
    total: int | None = None,
    per_cell: int | None = None,
    daily: bool = False,
) -> Policy:
    attributes: dict[str, dict[str, Any]] = {
        "card": {"role": "identifier"},
        "from": {"role": "quasi-identifier", "kind": "stop"},
        "to": {"role": "quasi-identifier", "kind": "stop"},
        "at": {
            "role": "quasi-identifier",
            "kind": "time",
            "window_minutes": 30,
            "domain": ["08:00", f"{8 + num_windows // 2:02d}:{30 * (num_windows % 2):02d}"],
        },
    }
    if daily:
        attributes["at"]["dates"] = list(DAYS)
    document: dict[str, Any] = {
        "dataset": "proof",
        "protects": "trip",
        "trip": {"origin": "from", "destination": "to", "time": "at"},
        "attributes": attributes,
        "city": {"stops": "stops.csv"},
        "mechanism": {"name": NoisyCounts.name, "epsilon": 1},
    }
    if most is not None:
        document |= {"protects": _RIDER, "contribution": {"person": "card", "max": most}}
        document["contribution"]["per"] = "day" if daily else "period"
        more = {"total_max": total, "per_cell": per_cell}
        document["contribution"] |= {name: value for name, value in more.items() if value is not None}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "stops.csv").write_text("stop\nS\n")
        return Policy.from_dict(document, path=Path(folder) / "policy.toml")


def trips(counts: Sequence[int], *, cards: Sequence[str] | None = None) -> Rows:
    """Return the given number of trips in each window, each of its own card unless cards are given."""
    times = [f"{window}:00" for window, count in zip(WINDOWS, counts, strict=False) for _ in range(count)]
    named = list(cards) if cards is not None else [f"C{at}" for at in range(len(times))]
    return {"card": named, "from": ["S"] * len(times), "to": ["S"] * len(times), "at": times}


def _case(mechanism: Any, policy: Policy, tables: Sequence[Rows], steps: int, **more: Any) -> NeighbourCase:
    reach = Reach(steps=steps, beyond="left out", orders=True)
    return NeighbourCase(mechanism=mechanism, policy=policy, tables=tables, reach=reach, **more)


def counts_case(mechanism: Any, tables: Sequence[Sequence[int]], *, steps: int, **more: Any) -> NeighbourCase:
    """Return a case of tables of counts; those that differ by one trip are neighbours."""
    pairs = [(a, b) for a in range(len(tables)) for b in range(a)]
    apart = [sorted(x - y for x, y in zip(tables[a], tables[b], strict=True)) for a, b in pairs]
    one_more = [*[0] * (len(tables[0]) - 1), 1]
    more.setdefault("pairs", [pair for pair, own in zip(pairs, apart, strict=True) if own == one_more])
    return _case(mechanism, trips_policy(len(tables[0])), [trips(counts) for counts in tables], steps, **more)


TABLES = ((0, 0), (1, 0), (1, 1), (2, 0))


def _categories_case(mechanism: Any, *, steps: int) -> NeighbourCase:
    """Return the case of one more record in a table of two columns, of which one has a single label."""
    document: dict[str, Any] = {
        "dataset": "proof",
        "protects": "parcel",
        "attributes": {
            "goods": {"role": "quasi-identifier", "kind": "category", "domain": ["paper", "steel"]},
            "hazard": {"role": "quasi-identifier", "kind": "ordinal", "domain": ["none"]},
        },
        "mechanism": {"name": mechanism.name, "epsilon": 1},
    }
    tables: list[Rows] = [{"goods": goods, "hazard": ["none"] * len(goods)} for goods in ([], ["steel"])]
    return _case(mechanism, Policy.from_dict(document), tables, steps, variant="a table of categories")


def _riders(mechanism: Any, *, most: int, trips_of_rider: Sequence[int], steps: int) -> NeighbourCase:
    """Return the case of one more rider, with trips of the given kinds, beside another rider with one trip."""
    other = trips((1, 0), cards=["A"])
    both = trips([1 + trips_of_rider[0], trips_of_rider[1]], cards=["A"] + ["B"] * sum(trips_of_rider))
    variant = f"riders of at most {most} trip{'s' * (most > 1)}"
    return _case(mechanism, trips_policy(2, most=most), [other, both], steps, variant=variant)


def _days(mechanism: Any, *, most: int, steps: int) -> NeighbourCase:
    """Return the case of a rider with trips on two days, of which ``most`` count on each."""
    stamps = [f"{DAYS[0]}T{WINDOWS[0]}:00", *(f"{day}T{WINDOWS[0]}:00" for day in DAYS for _ in range(most))]
    rider: Rows = {"card": ["B"] * len(stamps), "from": ["S"] * len(stamps), "to": ["S"] * len(stamps), "at": stamps}
    variant = f"riders of at most {most} trip{'s' * (most > 1)} on each of 2 days"
    return _case(mechanism, trips_policy(1, most=most, daily=True), [trips(()), rider], steps, variant=variant)


def examine_correction(mechanism: Any, *, long: bool) -> Verdict:
    """Examine a rider with two trips, of which one counts; the sums that correct counts see both."""
    tables = [trips((1,), cards=["A"]), trips((3,), cards=["A", "B", "B"])]
    variant = "counts corrected for dropped trips of riders"
    # Half of epsilon is for these sums, so that the tails of all laws are within reach.
    with with_values([(mechanisms, "CORRECTION_SHARE", Fraction(1, 2))]):
        return examine(_case(mechanism, trips_policy(1, most=1, total=2), tables, 2, variant=variant), long=long)


def _group(mechanism: Any, size: int, steps: int) -> NeighbourCase:
    """Return the case of a rider with several trips under a promise for single trips: a multiple of epsilon."""
    return counts_case(
        mechanism,
        [(0, 0), (size, 0)],
        steps=steps,
        pairs=[(0, 1)],
        variant=f"{size} trips of one rider, promised for one trip",
        claimed=size * float(mechanism.epsilon),
        sentence=f"A rider with {size} trips loses {size} times as much as one trip, as the rule for groups says.",
    )


def examine_extremes(
    mechanism: Any, *, variant: str = "as published", holds: float | str | None = UNBOUNDED
) -> Verdict:
    """Examine how large a count can get: the largest with one trip must be possible without it, or it reveals it."""
    # Only the first and the last word of every number are tried: a released count rises with the noise of its cell and
    # of sums over it, and falls with the noise of other cells.
    policy = trips_policy(2)
    promise = mechanism.promise(policy.schema)
    largest = []
    for counts in ((0, 0), (1, 0)):
        data = dataset_of(trips(counts), policy)

        def first_count(noise: Decisions, data: Dataset = data) -> int:
            release, _ = mechanism.release(data, ledger=Till(noise), noise=noise)
            windows, released = (release.data[name].to_pylist() for name in ("window", "count"))
            return int(dict(zip(windows, released, strict=True)).get(WINDOWS[0], 0))

        with diverted():
            law = outcomes(first_count, Reach(steps=1, beyond="extremes"))
        largest.append(max(int(str(count)) for count in law.chances))
    none, one = largest
    claimed = float(promise.guarantee.epsilon)
    reason = (
        f"A count of {one} can be released if there was a trip, and never without it: floating-point noise is bounded, "
        "and its last digits reveal the count."
    )
    return Verdict.of(
        mechanism.name,
        variant,
        claimed,
        UNBOUNDED if one > none else claimed,
        basis=promise.basis,
        holds=holds,
        method="the first and the last word of all noise, tried on two neighbours",
        expected=FAILS,
        sentence=reason if one > none else "Both neighbours can lead to every count that was tried.",
    )


def examine_shares(mechanisms: Sequence[Any]) -> Verdict:
    """Examine how mechanisms of one kind share epsilon: exact fractions that must not exceed 1 in total."""
    schema, sums = trips_policy(2).schema, []
    for mechanism in mechanisms:
        try:
            queries: Sequence[Any] = mechanism.queries(schema)
        except ParameterError:
            queries = ()
        sums.append(sum((query.share for query in queries), Fraction(0)))
    worst = max(sums)
    over = f"The features of a release together get {float(worst):.3g} times epsilon."
    return Verdict.of(
        mechanisms[0].name,
        "shares of epsilon",
        1.0,
        float(worst),
        method=f"exact sums of the shares of {len(sums)} settings",
        sentence=over if worst > 1 else "However epsilon is shared, the features never get more than epsilon together.",
        problems=("its shares add up to more than 1",) if worst > 1 else (),
    )


def examine_large_universe(mechanism: Any, draw: Draw, *, steps: int, draws: int, variant: str) -> Verdict:
    """Examine how a mechanism samples too many cells: with the same law as noise on each cell."""
    # It samples two cells as if they were too many, and the result is compared with all outputs for two cells.
    policy = trips_policy(2)
    data = dataset_of(trips((2, 0)), policy)
    promise = mechanism.promise(policy.schema)

    def seen(noise: Noise) -> Hashable:
        table = draw(data, noise)
        return tuple(table.cells.tolist()), tuple(table.counts.tolist())

    with diverted():
        law = outcomes(seen, Reach(steps=steps, beyond="left out", orders=True))
    noise = Noise()
    with with_values([(mechanisms, "MAX_DENSE_CELLS", 1)]):
        sample = Counter(seen(noise) for _ in range(draws))
    wrong = agrees(sample, law.chances) < UNLIKELY
    problem = "draws from very many cells do not have the law of noise on each cell"
    return Verdict.of(
        mechanism.name,
        variant,
        float(promise.guarantee.epsilon),
        0.0,
        basis=promise.basis,
        confidence=1 - UNLIKELY,
        method=f"{draws:,} tables sampled as if there were too many cells; {len(law):,} outputs enumerated",
        sentence=as_sentence(problem if wrong else "draws from very many cells have the law of noise on each cell"),
        problems=(problem,) if wrong else (),
    )


def check_noisy_counts(long: bool) -> Iterator[Verdict]:
    yield examine_extremes(NoisyCounts(epsilon=1, as_published=True))
    yield examine_floating_noise(NoisyCounts.name, Fraction(1))
    for rounding in ("discrete", "round", "floor"):
        mechanism = NoisyCounts(epsilon=4, rounding=rounding)
        yield examine(counts_case(mechanism, TABLES, steps=3, variant=f"{rounding}, 2 cells"), long=long)
    yield examine(_categories_case(NoisyCounts(epsilon=4), steps=3), long=long)
    yield examine(_group(NoisyCounts(epsilon=3), 2, steps=5), long=long)
    rider = NoisyCounts(epsilon=6)
    yield examine(_riders(rider, most=2, trips_of_rider=(2, 0), steps=5), long=long)
    yield examine(_riders(rider, most=1, trips_of_rider=(1, 1), steps=3), long=long)
    yield examine(_days(rider, most=1, steps=5), long=long)
    yield examine_correction(NoisyCounts(epsilon=24), long=long)
    for rounding in ("discrete", "floor"):
        made = NoisyCounts(epsilon=2, rounding=rounding)

        def table(data: Dataset, noise: Noise, made: NoisyCounts = made) -> mechanisms.DrawnCounts:
            return made.draw_counts(true_counts(data), made.law(data), noise)

        yield examine_large_universe(made, table, steps=6, draws=_LAZY_DRAWS, variant=f"{rounding}, very many cells")
    for law in (DiscreteLaplace, RoundedLaplace, FlooredLaplace):
        yield examine_count_law(NoisyCounts.name, law(Fraction(5)), reach=60)
    if not long:
        return
    for rounding, epsilon, threshold in (("discrete", 1, 1), ("floor", 1, 1), ("round", 2, 3), ("discrete", 4, 2)):
        mechanism = NoisyCounts(epsilon=epsilon, rounding=rounding, threshold=threshold)
        variant = f"{rounding}, 2 cells, threshold {threshold}"
        yield examine(counts_case(mechanism, TABLES, steps=16 // epsilon + 2, variant=variant), long=long)
    yield examine(
        counts_case(NoisyCounts(epsilon=6), ((0, 0, 0), (1, 0, 0)), steps=3, variant="discrete, 3 cells"), long=long
    )
    for scale in (Fraction(1, 3), Fraction(20)):
        for law in (DiscreteLaplace, RoundedLaplace, FlooredLaplace):
            yield examine_count_law(NoisyCounts.name, law(scale), reach=int(12 * scale) + 8)


def check_hierarchical_counts(long: bool) -> Iterator[Verdict]:
    yield examine_extremes(HierarchicalCounts(epsilon=1, features=[[]], prune=False, as_published=True))
    yield examine_count_law(HierarchicalCounts.name, DiscreteLaplace(Fraction(3)), reach=50)
    yield examine_shares(
        [HierarchicalCounts(epsilon=1, features=f, budget=b) for f in _FEATURES for b in ("geometric", "uniform")]
    )
    rider = HierarchicalCounts(epsilon=16, features=[[]], budget="uniform")
    yield examine(_riders(rider, most=2, trips_of_rider=(2, 0), steps=2), long=long)
    yield examine(_days(rider, most=1, steps=2), long=long)
    for prune in (True, False) if long else (True,):
        made = HierarchicalCounts(epsilon=9 if long else 12, features=[[]], budget="uniform", prune=prune)
        variant = f"2 cells and their total{'' if prune else ', not pruned'}"
        tables = TABLES if long else TABLES[:2]
        yield examine(counts_case(made, tables, steps=3 if long else 2, variant=variant), long=long)
    if long:
        grown = HierarchicalCounts(epsilon=9, features=[[]])
        yield examine(counts_case(grown, TABLES[:3], steps=3, variant="geometric budget"), long=long)


def check_constrained_counts(long: bool) -> Iterator[Verdict]:
    yield examine_extremes(ConstrainedCounts(epsilon=1, features=[[]], as_published=True))
    yield examine_count_law(ConstrainedCounts.name, DiscreteLaplace(Fraction(5, 2)), reach=40)
    # Settings of all presets, and two tables of shares, one of which adds up to 2 and must be refused.
    presets = product(_FLAT_FEATURES, mechanisms.PRESETS, get_args(mechanisms.Structure))
    settings: list[dict[str, Any]] = [{"features": f, "budget_shares": p, "structure": s} for f, p, s in presets]
    for table in ({"cells": "0.7", "total": "0.3"}, {"cells": 1, "total": 1}):
        settings.append({"features": [[]], "budget_shares": table})
    yield examine_shares([ConstrainedCounts(epsilon=1, **setting) for setting in settings])
    # The total is nearly exact, so that the draws of the cells show in how they share it.
    shares = {"cells": "0.2", "total": "0.8"}
    made = ConstrainedCounts(epsilon=5, features=[[]], budget_shares=shares, feature_weights="uniform")
    yield examine_large_universe(
        made,
        lambda data, noise: made.draw_counts(true_counts(data), made.asked(data), noise),
        steps=4,
        draws=_LAZY_DRAWS // 4,
        variant="flat, very many cells",
    )
    for structure in ("flat", "hierarchical"):
        made = ConstrainedCounts(epsilon=9 if long else 12, features=[[]], structure=structure)
        tables = TABLES if long else TABLES[:2]
        yield examine(counts_case(made, tables, steps=3 if long else 2, variant=structure), long=long)
    made = ConstrainedCounts(epsilon=12, features=[["hazard"]])
    yield examine(_categories_case(made, steps=2), long=long)
    if long:
        cells = ConstrainedCounts(epsilon=16, features=[[]], budget_shares="cells")
        yield examine(counts_case(cells, TABLES[:3], steps=2, variant="flat, shares by cells"), long=long)
        margins = ConstrainedCounts(epsilon=24, features=[[]], budget_shares="margins")
        case = counts_case(margins, TABLES[:2], steps=1, variant="flat, shares by margins")
        # The scales of its laws are far apart.
        yield examine(replace(case, reach=replace(case.reach, tail=1e-6)), long=long)
        even = ConstrainedCounts(epsilon=9, features=[[]], feature_weights="uniform")
        yield examine(counts_case(even, TABLES[:3], steps=3, variant="flat, uniform weights"), long=long)
    rider = ConstrainedCounts(epsilon=16, features=[[]])
    yield examine(_riders(rider, most=2, trips_of_rider=(2, 0), steps=2), long=long)
    yield examine(_days(rider, most=1, steps=2), long=long)


def check_fitted_counts(long: bool) -> Iterator[Verdict]:
    """Check one margin and two, riders, the law of their noise, and all shares."""
    yield examine_count_law(FittedCounts.name, DiscreteLaplace(Fraction(7, 3)), reach=40)
    workloads = [(), *((one,) for one in QUESTIONS), ("departures", "stop pairs by window")]
    chosen = product(workloads, (Fraction(1, 100), Fraction(1), Fraction(20)), (None, 1, 10**6))
    yield examine_shares([FittedCounts(epsilon=e, workload=w, expected_trips=n) for w, e, n in chosen])
    one = FittedCounts(epsilon=4, budget_shares={"windows": 1})
    yield examine(counts_case(one, TABLES, steps=3 if long else 2, variant="one margin"), long=long)
    two = FittedCounts(epsilon=9 if long else 12, budget_shares={"windows": "0.6", "departures": "0.4"})
    tables = TABLES if long else TABLES[:2]
    yield examine(counts_case(two, tables, steps=3 if long else 2, variant="two margins"), long=long)
    rider = FittedCounts(epsilon=6, budget_shares={"windows": 1})
    yield examine(_riders(rider, most=2, trips_of_rider=(2, 0), steps=5), long=long)
    yield examine(_days(rider, most=1, steps=5), long=long)


def check_gaussian_counts(long: bool) -> Iterator[Verdict]:
    """Check cells alone, cells with their total, riders whose trips in a cell are limited, and all shares."""
    shares = product(((), [[]], [["window"]]), ("uniform", "cells"))
    yield examine_shares([GaussianCounts(epsilon=1, delta="1e-6", features=f, budget_shares=s) for f, s in shares])
    cells = GaussianCounts(epsilon=6, delta="0.01")
    yield examine(counts_case(cells, TABLES, steps=4, variant="2 cells"), long=long)
    total = GaussianCounts(epsilon=12, delta="0.01", features=[[]])
    yield examine(counts_case(total, TABLES if long else TABLES[:2], steps=3, variant="2 cells and total"), long=long)
    policy = trips_policy(2, most=2, per_cell=1)
    tables = [trips((1, 0), cards=["A"]), trips((2, 1), cards=["A", "B", "B"])]
    variant = "riders of at most 2 trips, one in a cell"
    yield examine(_case(GaussianCounts(epsilon=8, delta="0.01"), policy, tables, 4, variant=variant), long=long)


def check_any(kind: type[Any], long: bool) -> Iterator[Verdict]:
    yield examine(counts_case(kind(epsilon=6), TABLES, steps=3, variant="2 cells"), long=long)
    yield examine(_group(kind(epsilon=6), 2, steps=5), long=long)


CHECKS: Checks = {
    NoisyCounts: check_noisy_counts,
    HierarchicalCounts: check_hierarchical_counts,
    ConstrainedCounts: check_constrained_counts,
    FittedCounts: check_fitted_counts,
    GaussianCounts: check_gaussian_counts,
}
