# SPDX-License-Identifier: Apache-2.0
"""The goal ``trucks``: what privacy costs in trucks, against how likely a package's truck is named."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from pydantic import JsonValue

from dunnage.advising.common import (
    KS,
    MOST_RECORDS,
    QUICK_KS,
    Opened,
    checked_tasks,
    codes_of,
    opened,
    ranges_of,
    released,
    sampled_says,
)
from dunnage.advising.frontier import GENERATED, OVERLOADED, PROVEN, Failure, Point, Table
from dunnage.advising.sweep import Asked, Drawn, Goal, Reference, Task, Tasks
from dunnage.arrays import FloatArray, IntArray
from dunnage.domains import Numeric
from dunnage.errors import NoPlanError, ParameterError
from dunnage.mechanisms import MECHANISMS
from dunnage.mechanisms.base import Mechanism
from dunnage.mechanisms.full_domain import FullDomain
from dunnage.mechanisms.noisy_clusters import NoisyClusters
from dunnage.mechanisms.noisy_values import NoisyValues
from dunnage.mechanisms.partition import Partition
from dunnage.mechanisms.sampled_lattice import SampledLattice
from dunnage.noise import Noise
from dunnage.planning.models import Model, Sealed, Standard, Stochastic

if TYPE_CHECKING:
    from dunnage.auditing.plans import TruePacking
    from dunnage.dataset import Dataset

EPSILONS, QUICK_EPSILONS = (0.5, 1, 2, 4, 8), (1, 4)
LAWS = ("laplace", "piecewise")
NUM_RANGES = 4
LEAST_SEALED = 5
"""With smaller classes it takes long to find a sealed plan that tells little: of many packages, or if it must be quick,
none is tried."""
DELTA = 1e-3
MOST_WITH_SEVERAL = 1000
"""Packages that a draw with several quantities is measured on."""
MOST_SIMPLE = 10_000
"""Packages of which classes are packed by their upper bounds or means in some seconds."""
MOST_IN_A_TRUCK = 12
"""Packages in a truck up to which sealed and certified plans with several quantities are tried."""
MANY_PACKAGES = 1000
SEALED_SECONDS = 12.0
"""In less time a sealed plan that tells more is found: what is measured must not depend on how busy the machine is."""
UPPER, MEAN, CERTIFIED, SEALED = "upper bounds", "mean", "certified 95 %", "sealed"
ESTIMATED_REACH, SEALED_REACH = 0.2, 0.05
"""Shares of truck linkage that it may be off by: estimated from the repairs or fills found, or of the plan found."""

# What each plan is told of a class, and how pack is asked for it.
_STATISTICS = {UPPER: "bounds", MEAN: "mean", CERTIFIED: "multiset", SEALED: "multiset"}
_PLANS: Mapping[str, Table] = {
    UPPER: {"model": "standard", "statistic": "upper"},
    MEAN: {"model": "standard", "statistic": "mean"},
    CERTIFIED: {"model": "stochastic", "risk": 0.05},
    SEALED: {"model": "sealed"},
}
_MODELS: Mapping[str, Model] = {
    UPPER: Standard(statistic="upper"),
    MEAN: Standard(statistic="mean"),
    CERTIFIED: Stochastic(risk=Fraction(1, 20)),
    SEALED: Sealed(),
}


@dataclass(frozen=True, eq=False, kw_only=True)
class TrucksCase(Opened):
    held: Mapping[str, float]  # What a truck holds, by quantity

    @property
    def most(self) -> int:
        """How many packages a draw is measured on, at most: fewer if several quantities make packing slow."""
        return self.asked.size or (MOST_WITH_SEVERAL if self.several else MOST_RECORDS)

    def most_of(self, tried: Task) -> int:
        """How many packages a draw is measured on, at most: more, if classes are packed by one number each."""
        simple = "statistic" in MECHANISMS[tried.mechanism].model_fields and tried.plan.get("name") in (UPPER, MEAN)
        return self.most_compared if simple else self.most

    @property
    def most_compared(self) -> int:
        return self.most if self.several else self.asked.size or MOST_SIMPLE

    @property
    def several(self) -> bool:
        return len(self.held) > 1

    @property
    def largest(self) -> Mapping[str, float]:
        """What a truck holds: no generated package has more."""
        return self.held

    @property
    def seconds(self) -> float:
        """How long a packing on one number a package may take; most end before."""
        return min(2.0 + self.num_measured / 500, 4.0) if self.several else min(2.0 + self.num_measured / 1000, 6.0)

    @property
    def truth_seconds(self) -> float:
        """How long a packing of true weights may take: with several quantities it seldom proves more later."""
        return 2.0 if self.several else self.seconds

    @property
    def weighable(self) -> bool:
        """Whether it can be computed in time how likely a truck of a class plan fits.

        With several quantities that takes minutes once there are many packages in a truck.
        """
        if not self.several:
            return True
        full = (case_amounts(self, self.data).mean(axis=0) / _rooms(self)).max()
        return bool(full * MOST_IN_A_TRUCK >= 1)


def _open(asked: Asked) -> TrucksCase:
    if not asked.capacity:
        raise ParameterError("the goal trucks needs what a truck holds. Got none. Give --capacity 500kg, say.")
    policy, data, digest = opened(asked, "trucks")
    quantities = [item for item in policy.schema.quasi_identifiers if isinstance(item.domain, Numeric)]
    if not quantities:
        raise ParameterError(
            "the goal trucks packs numeric quasi-identifiers. The policy has none. Give the column of weights "
            'role = "quasi-identifier", kind = "numeric" and a domain.'
        )
    public = [item.name for item in policy.schema.public]
    if asked.by is not None and asked.by not in public:  # the planner will not see it
        known = f"Public are: {', '.join(public)}." if public else 'Give one role = "public" in the policy.'
        raise ParameterError(f"trucks can be kept apart by a public column. Got {asked.by!r}, which is none. {known}")
    from dunnage.planning.trucks import parse_capacities

    held = parse_capacities(asked.capacity, {item.name: item.numeric.unit for item in quantities})
    case = TrucksCase(asked=asked, data=data, digest=digest, policy=policy, held=held)
    heavy = int((case_amounts(case, data) > _rooms(case)).any(axis=1).sum())
    if heavy:
        raise ParameterError(f"{heavy:,} of the packages are too large for the truck. Give a larger --capacity.")
    return case


def _tasks(case: TrucksCase) -> Tasks:
    tasks, failed = checked_tasks(case, _candidates(case))
    if case.weighable:
        return tasks, failed
    kinds = [CERTIFIED, SEALED]
    left_out = [Failure(name=f"{kind} plans", why=_TOO_SLOW) for kind in kinds[case.asked.quick :]]
    return [task for task in tasks if task.plan["name"] not in kinds], [*failed, *left_out]


def _measure(case: TrucksCase, task: Task) -> Drawn:
    """Publish, plan, apply and repair once, count the trucks, and compare with the best plan on the true weights."""
    from dunnage.planning.packing import pack
    from dunnage.settle import apply

    noise = Noise()
    data = case.rows(task, noise)
    everything = task.on != GENERATED and len(case.data) <= case.most_of(task)
    best = _best_of_data(case) if everything else _packed(case, data)
    release, key = released(data, noise)
    if not len(release):
        raise NoPlanError("nothing was released, so there is nothing to plan on.")
    name, model = task.plan["name"], _MODELS[str(task.plan["name"])]
    seconds = SEALED_SECONDS if name == SEALED else case.seconds
    plan = pack(release, capacity=case.asked.capacity, by=case.asked.by, model=model, seconds=seconds)
    done = apply(plan, data, release, key, repair=True, noise=noise)
    if not done.feasible:
        raise NoPlanError("the plan overloads trucks, and no repair was found. Use larger trucks.")
    linkage = done.truck_linkage
    if linkage is None:
        raise NoPlanError("truck linkage is not known, as the release does not say how its noise was drawn.")
    # Packages that were not released are in no plan, and need trucks, too.
    num_rest = len(data) - len(release)
    trucks = len(np.unique(done.bin_of_row[done.bin_of_row >= 0]))
    if num_rest:
        planned = data.parts.records_of(done.loading.column("source_row").to_numpy())
        trucks += int(_packed(case, data, np.setdiff1d(np.arange(len(data)), planned)).cost)
    optimum = min(int(best.cost), trucks)
    sure = best.cost == best.bound and done.plan.objective == done.plan.bound
    same = everything and done.plan_feasible and not num_rest and sure
    reach = SEALED_REACH * linkage.mean if name == SEALED else 0.0
    if linkage.kind == "estimate" and not release.noisy:  # of noise it is computed by its law
        reach = ESTIMATED_REACH * linkage.mean
    return Drawn(
        cost=trucks / optimum - 1,
        risk=linkage.mean,
        cost_step=0.0 if same else 1 / optimum,
        risk_step=1 / len(data),
        risk_reach=reach,  # how far it may be off on another machine, where it rests on a search bounded in time
        cost_least=0.0,
        figures={
            "trucks": float(trucks),
            "optimum": float(optimum),
            PROVEN: float(optimum == best.bound),
            "planned trucks": float(done.plan.num_bins),
            OVERLOADED: 1 - done.bins_feasible,
            "packages moved": float(done.repair.moved if done.repair else 0),
            "packages outside the plan": float(num_rest),
            "worst truck linkage": linkage.worst,
            "packages": float(len(data)),
        },
    )


def _reference(case: TrucksCase) -> Reference:
    """Pack the true weights, and see what somebody who has them all, or nothing but the plan, names."""
    from dunnage.planning.linkage import truck_linkage

    data = case.rows_alike(Noise())
    best = _packed(case, data)
    told = [item.name for item in (*case.policy.schema.public, *case.policy.schema.quasi_identifiers)]
    public = [name for name in told if case.policy.schema[name] in case.policy.schema.public]
    where = "generated packages" if case.asked.on == GENERATED else f"{len(data):,} packages"
    sure = "proven" if best.cost == best.bound else f"not proven: at least {best.bound}"
    return Reference(
        risk_without_privacy=truck_linkage(codes_of(data, told), best.bin_of_row).mean,
        risk_of_chance=truck_linkage(codes_of(data, public), best.bin_of_row).mean,
        cost_baseline=f"{best.cost} trucks for {where}: the best plan on the true weights ({sure})",
        says=(_REPAIR, _SEARCHED, *sampled_says(case, _tasks(case)[0])),
    )


def _next_step(case: TrucksCase, point: Point) -> str:
    options = [part for name, value in point.plan.items() if name != "name" for part in (f"--{name}", str(value))]
    capacity = [part for text in case.asked.capacity for part in ("--capacity", text)]
    by = ["--by", case.asked.by] if case.asked.by else []
    return shlex.join(["dunnage", "pack", "RELEASE", *capacity, *by, *options, "-o", "PLAN"])


_REPAIR = (
    "Trucks are those in use after repair on the truth, with trucks for packages that were not released. Where a plan "
    "overloads trucks, packages are moved by their true weights: who sees which ones learns more of them, which truck "
    "linkage does not count. See the share of trucks that a plan overloaded: one that must be mended a lot is none."
)
_SEARCHED = (
    "What a sealed plan or a repair tells depends on which one a search finds in its time: those intervals reach at "
    f"least {100 * SEALED_REACH:g} % of the figure to either side, or {100 * ESTIMATED_REACH:g} % where it was "
    "estimated."
)
_TOO_SLOW = (
    "with several quantities and many packages a truck they take minutes to measure. Try one by hand: dunnage pack."
)


# --- Tasks ----------------------------------------------------------------------------------------------------


def _candidates(case: TrucksCase) -> Iterator[Task]:
    quick = case.asked.quick
    ks = [k for k in (QUICK_KS if quick else KS) if k <= case.num_measured // 2]
    if case.several:  # they take longer to pack
        ks = ks[1:] if quick else ks[::2]
    least_sealed = LEAST_SEALED if quick or case.num_measured >= MANY_PACKAGES else 0
    for k in ks:
        for plan in (UPPER, MEAN, SEALED) if quick else (UPPER, MEAN, CERTIFIED, SEALED):
            if plan != SEALED or k >= least_sealed:
                yield _planned(Partition, {"k": k, "statistic": _STATISTICS[plan]}, f"k={k}", plan)
    for k in ks if case.several and not quick else ks[::2]:
        for plan in (UPPER, SEALED):
            yield _planned(FullDomain, {"k": k, "statistic": _STATISTICS[plan]}, f"k={k}", plan)
    epsilons: Sequence[float] = QUICK_EPSILONS if quick else EPSILONS[::2] if case.several else EPSILONS
    plans = (MEAN,) if quick else (UPPER, MEAN)
    for epsilon in epsilons:
        for law in LAWS if not quick and epsilon in QUICK_EPSILONS else LAWS[:1]:
            for plan in plans:
                yield _planned(NoisyValues, {"epsilon": epsilon, "law": law}, f"epsilon={epsilon:g}, {law}", plan)
    for epsilon in epsilons:
        for what, table in _ranges(case, private=not quick and epsilon in QUICK_EPSILONS):
            for plan in plans:
                yield _planned(NoisyClusters, {"epsilon": epsilon, **table}, f"epsilon={epsilon:g}, {what}", plan)
    for epsilon in [epsilon for epsilon in epsilons if epsilon >= 1]:
        parameters = {"epsilon": epsilon, "delta": DELTA, "epsilon_choice": epsilon / 4}
        yield _planned(SampledLattice, parameters, f"epsilon={epsilon:g}, delta={DELTA:g}", UPPER)


def _ranges(case: TrucksCase, *, private: bool) -> Iterator[tuple[str, Table]]:
    """Give the ways to cut domains into ranges: at public borders, and if asked for at private quantiles."""
    domains = {
        item.name: item.numeric
        for item in case.policy.schema.quasi_identifiers
        if isinstance(item.domain, Numeric) and item.numeric.resolution is not None
    }
    borders = {name: found for name, domain in domains.items() if (found := ranges_of(domain, NUM_RANGES))}
    if borders and len(borders) == len(domains):
        yield f"{NUM_RANGES} public ranges", {"borders": _alone(borders)}
    if private:
        shares: JsonValue = [number / NUM_RANGES for number in range(1, NUM_RANGES)]
        quantiles = _alone(dict.fromkeys(domains, shares)) if domains else shares
        yield f"{NUM_RANGES} private ranges", {"quantiles": quantiles}


def _alone(table: Table) -> JsonValue:
    """Write the list of a single attribute without its name."""
    return next(iter(table.values())) if len(table) == 1 else dict(table)


def _planned(kind: type[Mechanism], parameters: Table, words: str, plan: str) -> Task:
    return Task.of(kind, f"{words}, {plan} plan", parameters, {"name": plan, **_PLANS[plan]})


# --- Packing -------------------------------------------------------------------------------------------------------


def case_amounts(case: TrucksCase, data: Dataset) -> FloatArray:
    return np.column_stack([data.numbers(name) for name in case.held])


def _rooms(case: TrucksCase) -> FloatArray:
    return np.array(list(case.held.values()))


@lru_cache(maxsize=2)
def _best_of_data(case: TrucksCase) -> TruePacking:
    return _packed(case, case.data)


def _packed(case: TrucksCase, data: Dataset, records: IntArray | None = None) -> TruePacking:
    """Pack packages, or some of them, as well as is found in time."""
    from dunnage.auditing.plans import pack_truth
    from dunnage.planning.trucks import Truck

    records = np.arange(len(data)) if records is None else records
    group = codes_of(data, [case.asked.by] if case.asked.by else [])[records]
    return pack_truth(
        case_amounts(case, data)[records],
        list(case.held),
        [Truck(name="truck", capacity=dict(case.held))],
        group,
        deadline=time.monotonic() + case.truth_seconds,
    )


TRUCKS = Goal(
    name="trucks",
    cost_name="trucks",
    cost_unit="more trucks",
    risk_name="truck linkage",
    open=_open,
    tasks=_tasks,
    measure=_measure,
    reference=_reference,
    next_step=_next_step,
    draw_seconds=60.0,
)
