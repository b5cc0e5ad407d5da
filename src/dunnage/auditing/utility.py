# SPDX-License-Identifier: Apache-2.0
"""What privacy cost a plan: its bins against the fewest that the true weights need, and how likely it fits. Private."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from dunnage.arrays import FloatArray, IntArray
from dunnage.bins import BinKind, pack_vectors
from dunnage.bins.fills import FillSlots, Items, count_fills
from dunnage.bins.sampling import clopper_pearson, fits_by_permutation
from dunnage.errors import NoPlanError, ParameterError, ReleaseError
from dunnage.exact import exact
from dunnage.noise import Noise
from dunnage.planning.linkage import exchangeable
from dunnage.planning.models import PackingModel
from dunnage.planning.packing import packed_group
from dunnage.planning.plan import Linkage, Plan, whole_if_possible
from dunnage.planning.problem import rows_by_group
from dunnage.planning.trucks import Truck, parse_capacities
from dunnage.publication import Key
from dunnage.release import Release
from dunnage.settle import Capacity, Settlement, check_kinds, listed, matched_records, planned_linkage, received_plan
from dunnage.settle.repair import (
    LEFT_BEHIND,
    Fill,
    Task,
    columns_apart,
    counted_fills,
    draw,
    planned_counts,
    task_of,
    whole_table,
)
from dunnage.tables.dataset import Dataset

DEFAULT_SECONDS = 10.0
DEFAULT_PERMUTATIONS = 10_000
MOST_PERMUTED = 100_000_000
BINS_SECONDS = 5.0
LEAST_SECONDS = 0.05
_KERNEL_BITS = 40
Progress = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Feasibility:
    """How likely a plan fits, over all ways in which the rows of a class may be the packages of the class. Private.

    References
    ----------
    Hoogervorst et al. 2019, section 6.1.
    """

    value: float  # Probability that every bin fits (f_k); for a sealed plan 1 if it can be filled at all
    interval: tuple[float, float]  # Where it lies with 95 % confidence; for an exact one the value twice
    bins: float  # Share of bins that fit, on average
    kind: str  # `exact` if all arrangements were counted, else `estimate`
    permutations: int = 0  # How many were drawn for an estimate, 0 for an exact one

    def to_dict(self) -> dict[str, Any]:
        """Give the result as plain data."""
        return {**asdict(self), "interval": list(self.interval)}


@dataclass(frozen=True, eq=False, kw_only=True)
class PlanUtility:
    """What a plan is worth beside the best plan on the true weights. Private.

    Both sides ship the same packages: all that could be read, released or not, but for those that were left behind or
    are heavier than every truck. Rows that were left out on reading have no weight to count, and are on neither side.

    Parameters
    ----------
    objective
        Bins in use in the end, opened ones included, and those of the packages outside the plan; with several kinds of
        truck what they cost.
    optimum
        That of the best plan found on the true weights of all these packages.
    proven
        Whether no plan on the true weights does better.
    bound
        No plan on the true weights does better than this: proved.
    plan_feasible, bins_feasible
        Whether every bin of the plan fitted the truth, and the share of bins that did; before any repair.
    feasibility
        How likely the plan was to fit.
    truck_linkage
        As the settlement restated it.
    seconds
        Time taken to find the optimum.
    packages, packages_outside
        How many packages are shipped, and how many of them are in no plan, as they were suppressed or not sampled.
    outside, outside_bound
        What those outside take, in trucks of their own of the plan's kinds, as many as there must be; and what they
        take at least, proved. Part of the objective.
    """

    objective: float
    optimum: float
    proven: bool
    plan_feasible: bool
    bins_feasible: float
    feasibility: Feasibility
    truck_linkage: Linkage | None
    seconds: float
    bound: float = 0.0
    packages: int = 0
    packages_outside: int = 0
    outside: float = 0.0
    outside_bound: float = 0.0

    @property
    def in_plan(self) -> float:
        """The part of the objective that the plan itself takes."""
        return whole_if_possible(exact(self.objective, what="objective") - exact(self.outside, what="outside"))

    @property
    def ratio(self) -> float:
        """Bins in use for each bin that the true weights need, or the same of costs (o / o_n)."""
        return self.objective / self.optimum

    def to_dict(self) -> dict[str, Any]:
        """Give the result as plain data."""
        return {
            "objective": self.objective,
            "optimum": self.optimum,
            "proven": self.proven,
            "bound": self.bound,
            "ratio": self.ratio,
            "plan_feasible": self.plan_feasible,
            "bins_feasible": self.bins_feasible,
            "feasibility": self.feasibility.to_dict(),
            "truck_linkage": self.truck_linkage.plain() if self.truck_linkage else {},
            "outside": {"packages": self.packages_outside, "objective": self.outside, "bound": self.outside_bound},
            "packages": self.packages,
            "seconds": round(self.seconds, 3),
        }

    def summary(self) -> str:
        """Describe what privacy cost, for the owner."""
        low, high = self.feasibility.interval
        likely = f"{self.feasibility.value:.1%}" + (f" ({low:.1%} to {high:.1%})" if low < high else "")
        outside, linkage = self.packages_outside, self.truck_linkage
        rest = f" ({self.outside:g} of it for {outside:,} outside the plan)" if outside else ""
        best = f"{self.optimum:g} ({'proven' if self.proven else 'best found'})"
        lines = [
            f"Objective   {self.objective:g}{rest}, on the true weights {best}",
            f"Ratio       {self.ratio:.3f}",
            f"Feasible    plan {'yes' if self.plan_feasible else 'no'}, bins {self.bins_feasible:.1%}",
            f"Likely      every bin fits with {likely}",
            f"Linkage     {f'{linkage.mean:.1%} on average ({linkage.kind})' if linkage else 'unknown'}",
        ]
        return "\n".join(lines)


def plan_utility(
    settlement: Settlement,
    data: Dataset,
    *,
    seconds: float = DEFAULT_SECONDS,
    permutations: int = DEFAULT_PERMUTATIONS,
    noise: Noise | None = None,
    progress: Progress | None = None,
) -> PlanUtility:
    """Compare a settled plan with the best plan on the true weights of all packages.

    Packages that were not released (suppressed, not sampled) must be shipped too: beside the plan they take trucks of
    their own, and the best plan on the true weights takes them with the others. Packages left behind, or heavier than
    every truck, are in neither; nor are rows left out on reading, which have no weight that could be counted.

    Parameters
    ----------
    settlement, data
        The settlement, and the rows it was made with.
    seconds
        Time limit for the best plan.
    permutations, noise
        How many arrangements to try where they are too many to count, and the randomness of it.
    progress
        Called with a line as parts of the best plan are done.

    Raises
    ------
    ReleaseError
        If the settlement names records that the data have not.
    """
    start, plan = time.monotonic(), settlement.plan
    # loading : a line per source row; records that are in none of them were not released
    source, bins = (settlement.loading.column(name).to_numpy() for name in ("source_row", "bin"))
    planned, loaded = data.parts.records_of(source), bins != LEFT_BEHIND
    if (planned[loaded] < 0).any():
        raise ReleaseError("the settlement is of other data. Give the data it was made with.")
    first = np.sort(np.unique(planned[loaded], return_index=True)[1])
    records, bins = planned[loaded][first], bins[loaded][first]
    shipped = np.concatenate([records, np.setdiff1d(np.arange(len(data)), planned)])
    amounts = np.column_stack([data.numbers(quantity)[shipped] for quantity in plan.quantities])
    fits = _fits_some_truck(amounts, list(plan.quantities), plan.trucks)
    in_plan = np.arange(len(shipped)) < len(records)
    if not (fits & in_plan).any():
        raise ParameterError("no package is loaded, so there is nothing to compare. Use larger trucks.")
    used = Counter(settlement.truck_of_bin[bin_] for bin_ in np.unique(bins[fits[in_plan]]).tolist())
    group = _group(data, (plan.by, plan.apart), shipped)

    def packed(chosen: npt.NDArray[np.bool_], kinds: Sequence[Truck], deadline: float) -> TruePacking:
        return pack_truth(
            amounts[chosen], list(plan.quantities), kinds, group[chosen], deadline=deadline, progress=progress
        )

    rest = fits & ~in_plan
    outside = TruePacking(np.zeros(0, dtype=np.int64), (), Fraction(0), Fraction(0))
    if rest.any():
        unlimited = [replace(truck, count=None) for truck in plan.trucks]
        outside = packed(rest, unlimited, start + seconds * float(rest.sum() / fits.sum()))
    objective, optimum, bound = cost_of(plan.trucks, used) + outside.cost, None, Fraction(0)
    # Packages outside the plan may take more trucks than it had: there are as many of each kind as are used.
    taken = used + Counter(outside.truck_of_bin)
    kinds = [
        truck if truck.count is None else replace(truck, count=max(truck.count, taken[truck.name]))
        for truck in plan.trucks
    ]
    try:
        truth = packed(fits, kinds, start + seconds)
        optimum, bound = truth.cost, truth.bound
    except NoPlanError:  # no packing was found, but the settlement may be one
        if not settlement.feasible:
            raise
    if settlement.feasible and (optimum is None or objective < optimum):
        optimum = objective
    assert optimum is not None
    found, sealed = time.monotonic() - start, settlement.sealed
    return PlanUtility(
        objective=whole_if_possible(objective),
        optimum=whole_if_possible(optimum),
        proven=optimum == bound,
        bound=whole_if_possible(bound),
        packages=int(fits.sum()),
        packages_outside=int(rest.sum()),
        outside=whole_if_possible(outside.cost),
        outside_bound=whole_if_possible(outside.bound),
        plan_feasible=settlement.plan_feasible,
        bins_feasible=settlement.bins_feasible,
        feasibility=_likely(settlement.task, permutations, noise or Noise())
        if sealed is None
        else _fillable(settlement.plan_feasible, sealed.exact, settlement.bins_feasible),
        truck_linkage=settlement.truck_linkage,
        seconds=found,
    )


def _fits_some_truck(amounts: FloatArray, quantities: Sequence[str], trucks: Sequence[Truck]) -> npt.NDArray[np.bool_]:
    held = np.array([[truck.capacity[quantity] for quantity in quantities] for truck in trucks])
    return np.asarray(np.any(np.all(amounts[:, None] <= held, axis=2), axis=1))


def _group(data: Dataset, apart: Sequence[str | None], records: IntArray) -> IntArray:
    codes = np.zeros(len(records), dtype=np.int64)
    for name in {name for name in apart if name is not None}:
        column = data.column(name).dictionary_encode(null_encoding="encode").indices
        own = column.to_numpy(zero_copy_only=False)[records].astype(np.int64)
        codes = np.unique(codes * (int(own.max()) + 1) + own, return_inverse=True)[1].reshape(-1)
    return codes


# --- The plan that privacy did not allow -------------------------------------------------------------------------


def true_plan(
    data: Dataset,
    release: Release,
    key: Key,
    *,
    capacity: Capacity | None = None,
    trucks: Sequence[Truck] | None = None,
    by: str | None = None,
    apart: str | None = None,
    seconds: float = DEFAULT_SECONDS,
    progress: Progress | None = None,
) -> Plan:
    """Plan on the true weights of the released rows, to compare with. Private: never hand it out as a plan.

    Packages that were not released are not in it; :func:`plan_utility` counts what all packages take.
    """
    start = time.monotonic()
    records = matched_records(data, release, key)
    kinds, packed = _kinds(capacity, trucks, release)
    amounts = np.column_stack([data.numbers(quantity)[records] for quantity in packed])
    heavy = int((~_fits_some_truck(amounts, list(packed), kinds)).sum())
    if heavy:
        raise NoPlanError(f"no truck can take {heavy} of the released packages. Use a larger truck.")
    columns_apart(release, by, apart)
    group = _group(data, (by, apart), records)
    truth = pack_truth(amounts, list(packed), kinds, group, deadline=start + seconds, progress=progress)
    if len(kinds) == 1 and kinds[0].count is not None and truth.cost > kinds[0].count:
        raise NoPlanError(
            f"{kinds[0].count} trucks are not enough: {truth.cost} are needed by this plan, {truth.bound} at least."
        )
    return Plan(
        release=release.certificate.digest,
        bin_of_row=truth.bin_of_row,
        truck_of_bin=truth.truck_of_bin,
        trucks=kinds,
        model=PackingModel(name="true weights"),
        bound=whole_if_possible(truth.bound),
        seconds=time.monotonic() - start,
        quantities=packed,
        by=by,
        apart=apart,
        truck_linkage=planned_linkage(release, exchangeable(release), truth.bin_of_row),
        private=True,
    )


def _kinds(
    capacity: Capacity | None, trucks: Sequence[Truck] | None, release: Release
) -> tuple[tuple[Truck, ...], dict[str, str]]:
    """Return the kinds of truck, and name and unit of the quantities that all of them hold."""
    if (capacity is None) == (not trucks):
        raise ParameterError("a plan needs either a capacity or trucks. Give one of them.")
    units = {name: release.uncertain(name).unit for name in release.quantities}
    held = {} if capacity is None else parse_capacities(listed(capacity), units)
    kinds = tuple(trucks or (Truck(name="truck", capacity=held),))
    packed = {name: unit for name, unit in units.items() if all(truck.capacity.get(name, 0) > 0 for truck in kinds)}
    if not packed:
        raise ParameterError("no quantity has a capacity in every kind of truck. Give trucks that hold something.")
    check_kinds(kinds, packed)
    return kinds, packed


# --- How likely a plan fits --------------------------------------------------------------------------------------


def feasibility(
    plan: Plan,
    data: Dataset,
    release: Release,
    key: Key,
    *,
    permutations: int = DEFAULT_PERMUTATIONS,  # How many orders to try if they are too many to count
    noise: Noise | None = None,  # Randomness of the trial, by default the operating system's
) -> Feasibility:
    """Say how likely every bin of a plan fits, over all orders in which a class's rows may be its packages.

    Rows are published in random order, so all orders of rows that nobody can tell apart are equally likely; the plan
    was made for all of them.
    """
    noise = noise or Noise()
    records = matched_records(data, release, key)
    chosen = received_plan(plan, release, None, None)
    amounts = np.column_stack([data.numbers(quantity)[records] for quantity in chosen.quantities])
    task = task_of(chosen, amounts, release, noise)
    if chosen.slots is None:
        return _likely(task, permutations, noise)
    drawn = draw(task, noise)
    return _fillable(drawn.bin_of_row is not None, drawn.exact, float(drawn.bin_of_row is not None))


def _fillable(found: bool, counted: bool, bins: float) -> Feasibility:
    """Say that a sealed plan fits surely if it can be filled at all: its owner knows the weights."""
    sure, value = found or counted, float(found)
    interval = (value, value) if sure else (0.0, 1.0)
    return Feasibility(value=value, interval=interval, bins=bins, kind="exact" if sure else "estimate")


def _likely(task: Task, permutations: int, noise: Noise) -> Feasibility:
    if len(np.unique(task.group)) == len(task.group):  # nothing to exchange: the plan's own fill is the only one
        num_over, num_bins = len(Fill.of(task, task.start).overloaded), task.plan.num_bins
        value = float(not num_over)
        return Feasibility(value=value, interval=(value, value), bins=1 - num_over / num_bins, kind="exact")
    fills = counted_fills(task)
    bins = _mean_of_bins(task) if fills is not None else None
    if fills is None or bins is None:
        return _tried(task, permutations, noise)
    value = float(Fraction(fills.number, _num_fills(planned_counts(task))))
    return Feasibility(value=value, interval=(value, value), bins=bins, kind="exact")


def _num_fills(counts: IntArray) -> int:
    """Return in how many ways rows can be put where the plan wants their like. Shape: bins by groups."""
    sizes = [math.factorial(size) for size in counts.sum(axis=0).tolist()]
    repeats = [math.prod(map(math.factorial, column)) for column in counts.T.tolist()]
    return math.prod(size // repeat for size, repeat in zip(sizes, repeats, strict=True))


def _mean_of_bins(task: Task) -> float | None:
    """Return the mean over bins of the probability that one fits; None if one cannot be counted."""
    counts = planned_counts(task)
    rooms = task.rooms
    deadline = time.monotonic() + BINS_SECONDS
    known: dict[bytes, Fraction] = {}
    chances = []
    for bin_, room in enumerate(rooms):
        sort = counts[bin_].tobytes() + room.tobytes()
        if sort not in known:
            alone = np.broadcast_to(task.whole.sum(axis=0), rooms.shape).copy()  # the others hold everything
            alone[bin_] = np.minimum(room, alone[bin_])
            fills = count_fills(Items(task.group, task.whole), FillSlots(counts, alone), deadline=deadline)
            if fills is None:
                return None
            known[sort] = Fraction(fills.number, _num_fills(counts))
        chances.append(known[sort])
    return float(sum(chances, Fraction(0)) / len(chances))


def _tried(task: Task, permutations: int, noise: Noise) -> Feasibility:
    """Estimate from random orders: fewer where rows are very many, and the interval says so."""
    num = min(permutations, max(MOST_PERMUTED // len(task.whole), 100))
    # Doubles hold whole numbers up to 2**53; amounts with more digits are compared as the data have them.
    whole = int(max(task.whole.sum(axis=0))) < 2**53
    values = task.whole.astype(np.float64) if whole else task.amounts
    rooms = task.rooms.astype(np.float64) if whole else task.in_units(task.rooms)
    hits, share = 0, 0.0
    for fits in fits_by_permutation(values, task.group, task.start, rooms, permutations=num, seed=noise.bits(32)):
        hits += int(fits.all(axis=1).sum())
        share += float(fits.mean(axis=1).sum())
    return Feasibility(
        value=hits / num, interval=clopper_pearson(hits, num), bins=share / num, kind="estimate", permutations=num
    )


# --- The best packing of the true amounts -------------------------------------------------------------------------
# One quantity and one kind of truck go to the scalar kernel, all else to the one for vectors. Both prove a bound.


@dataclass(frozen=True, eq=False, repr=False)
class TruePacking:
    """Rows in bins by their true amounts. Private: its ``repr`` shows none of it."""

    bin_of_row: IntArray  # bin_of_row, truck_of_bin: the bin of each row, and the name of the truck that a bin is
    truck_of_bin: tuple[str, ...]
    cost: Fraction  # What the trucks cost together; of a single kind, their number
    bound: Fraction  # No packing costs less: proved


def cost_of(trucks: Sequence[Truck], used: Mapping[str, int]) -> Fraction:
    """Return what trucks cost together; of a single kind, their number.

    Examples
    --------
    >>> cost_of([Truck(name="van", capacity={}, cost=2.5), Truck(name="lorry", capacity={})], {"van": 2})
    Fraction(5, 1)
    """
    if len(trucks) == 1:
        return Fraction(sum(used.values()))
    return sum((exact(truck.cost, what="cost") * used.get(truck.name, 0) for truck in trucks), Fraction(0))


def pack_truth(
    amounts: FloatArray,  # Each row fits some truck. Shape: rows by quantities
    quantities: Sequence[str],
    trucks: Sequence[Truck],
    group: IntArray,  # Number of the group of each row; groups never share a truck
    *,
    deadline: float,
    progress: Progress | None = None,
) -> TruePacking:
    """Pack true amounts at the least cost that can be found in time, each group of rows apart."""
    tell = progress or (lambda line: None)
    bins: list[IntArray] = []
    bound = Fraction(0)
    if len(trucks) == 1 and len(quantities) == 1:
        groups = rows_by_group(group)
        for number, rows in enumerate(groups):  # time that one group leaves over is the next one's
            seconds = max(deadline - time.monotonic(), LEAST_SECONDS) / (len(groups) - number)
            found, least = packed_group(amounts[rows, 0], trucks[0].capacity[quantities[0]], seconds)
            bins += [rows[items] for items in found]
            bound += least
            tell(f"true weights: {number + 1} of {len(groups)} parts packed")
        names = [trucks[0].name] * len(bins)
    else:
        held = np.array([[truck.capacity[quantity] for quantity in quantities] for truck in trucks])
        whole, rooms = whole_table(amounts, held)[:2]
        same = whole.dtype != object
        if not same:  # rounded outward to 64 bits, so that what fits by them fits in truth
            most = [max(int(room).bit_length() - _KERNEL_BITS, 0) for room in rooms.max(axis=0)]
            shift, same = np.array(most, dtype=object), not any(most)
            whole, rooms = (-(-whole >> shift)).astype(np.int64), (rooms >> shift).astype(np.int64)
        several = len(trucks) > 1
        kinds = [
            BinKind(
                capacity=tuple(room),
                cost=exact(truck.cost, what="cost") if several else 1,
                count=truck.count if several else None,
            )
            for truck, room in zip(trucks, rooms.tolist(), strict=True)
        ]
        tell("packing the true amounts")
        seconds = max(deadline - time.monotonic(), LEAST_SECONDS)
        packing = pack_vectors(whole, kinds, seconds=seconds, groups=group)
        bins = [np.array(rows, dtype=np.int64) for rows in packing.bins]
        names = [trucks[kind].name for kind in packing.kind_of_bin]
        bound = packing.bound if same else bound
    bin_of_row = np.empty(len(amounts), dtype=np.int64)
    for number, rows in enumerate(bins):
        bin_of_row[rows] = number
    return TruePacking(bin_of_row, tuple(names), cost_of(trucks, Counter(names)), bound)
