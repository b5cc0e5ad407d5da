# SPDX-License-Identifier: Apache-2.0
"""What a plan reveals, and what privacy cost: trucks that can be named, and the plan beside the best on true data.

Packages: the bins of a plan against the fewest that the true weights need, and how likely the plan fits. Shuttles: the
planned fleet beside the one that the true trips need, by the same method, both run on the true trips. Single trips have
their own seconds, so figures are counted. For trips known only as counts, seconds are sampled, so waits are estimated.
Everything except truck linkage is private.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dunnage.arrays import BoolArray, FloatArray, IntArray
from dunnage.auditing.findings import CONFIDENCE, NORMAL_REACH, Interval, KeyFigure, Progress, figure, words
from dunnage.errors import NoPlanError, ParameterError, ReleaseError
from dunnage.exact import exact, share
from dunnage.kernels.bins.certified import BinKind, pack_vectors
from dunnage.kernels.bins.chances import clopper_pearson, fits_by_permutation
from dunnage.kernels.bins.fills import FillSlots, Items, count_fills
from dunnage.kernels.deadline import Deadline
from dunnage.model.city import City
from dunnage.model.guarantees import SampledDP
from dunnage.noise.source import Noise
from dunnage.planning.boxes import Box, BoxRows, fitting, place_boxes, stacked_first
from dunnage.planning.linkage import MEMBER_NOTE, linkage_of_plan, noisy_linkage, truck_linkage
from dunnage.planning.packing import packed_group
from dunnage.planning.plan import FleetPlan, Linkage, Plan, whole_if_possible
from dunnage.planning.problem import combinations, rows_by_group
from dunnage.planning.trucks import Truck
from dunnage.publication import Key
from dunnage.release import Release
from dunnage.settle import Settlement, apply
from dunnage.settle.fleets import apply_fleet, true_days, true_universe
from dunnage.settle.repair import LEFT_BEHIND, Fill, RepairTask, counted_fills, planned_counts, whole_table
from dunnage.tables.dataset import Dataset
from dunnage.text import for_unit, percent, several

DEFAULT_SECONDS = 10.0
DEFAULT_PERMUTATIONS = 10_000
MAX_PERMUTED = 100_000_000
BINS_SECONDS = 5.0
MIN_SECONDS = 0.05
_KERNEL_BITS = 40


# Trucks that can be named, by release and plan alone


def truck_figures(release: Release, plan: Plan | None) -> Iterator[KeyFigure]:
    """Compute how likely someone who knows a package names its truck; nothing if the law of the noise is not stated."""
    if plan is None:
        return
    if release.noisy and (plan.slots is not None or len(plan.assignment) != len(release)):
        raise ParameterError("the plan does not assign every row of the release once. Plan on the release again.")
    stated = noisy_linkage(release, plan.assignment) if release.noisy else linkage_of_plan(plan, release)
    if stated is None:
        return
    record, chance = release.certificate.guarantee.protects, without_release(release, plan)
    # A package may be missing from the release because it was not sampled.
    sample = isinstance(release.certificate.guarantee, SampledDP) and not release.noisy
    for worst, part, how in (("", "mean", "on average"), (", worst", "worst", "at worst")):
        value, baseline = getattr(stated, part), getattr(chance, part)
        # The error of an estimate is unknown: it lies between what public values give and certainty.
        interval, error = (min(value, baseline), 1.0), words("error unknown")
        if stated.kind == "exact":
            interval, error = (value, value), ""
        elif release.noisy:
            interval, error = noisy_interval(stated, part), words("error if evenly spread")
        facts = {"worst": worst, "how": how, "blind": chance.words(baseline, record), "error": error}
        facts["sample"] = f" This is {MEMBER_NOTE}." if sample else ""
        facts["lower_it"] = _remedy(release, plan, worst=value if worst else None)
        details = {"kind": stated.kind, "note": stated.note}
        yield figure("truck linkage{worst}", value, baseline, interval, details, **facts)


def _remedy(release: Release, plan: Plan, *, worst: float | None) -> str:
    """Say what lowers truck linkage: its mean, or its worst case if that is given."""
    profile = release.certificate.rows.slots is not None
    if plan.box is not None:
        return "Let the planner choose among more look-alike boxes: publish with a larger k"
    if worst is not None and release.classes is not None:
        smallest = int(release.classes.column("size").to_numpy().min())
        if worst * smallest <= 1 + 1e-9:  # each row of the smallest class already has a truck of its own
            larger = "fewer intervals in [mechanism], which may take more trucks" if profile else "a larger k"
            rows = several(smallest, "slot" if profile else "row")
            return f"Publish with {larger}; more trucks alone do not help, because the smallest class has {rows}"
    if plan.slots is None and release.classes is not None and not profile:
        return "Let the planner spread classes: pack --spread, --extra-trucks or --max-linkage; or seal the plan"
    return "Let the planner use more trucks: pack --extra-trucks or --max-linkage"


def noisy_interval(stated: Linkage, part: str) -> Interval:
    """Bound the ``mean`` or ``worst`` of noisy linkage under its prior: a point if every true value was tried."""
    value = stated.mean if part == "mean" else stated.worst
    if stated.points is None:
        return value, value
    reach = NORMAL_REACH * (stated.error or 0.0)
    return (max(0.0, value - reach), min(1.0, value + reach)) if part == "mean" else (value, 1.0)


class TruckByChance(NamedTuple):
    """How likely someone who sees the plan, and knows only the public values of a record, names its truck."""

    mean: float  # mean, worst: over all planned records, and for the public values that reveal most
    worst: float
    columns: tuple[str, ...]  # The public columns; without any, the best guess is always the fullest truck

    def words(self, chance: float, record: str) -> str:
        if not self.columns:
            return words("fullest truck", chance=chance, record=record)
        return words("public and plan", columns=", ".join(self.columns), chance=chance)


def without_release(release: Release, plan: Plan) -> TruckByChance:
    """Return the baseline of truck linkage: the fullest truck among those that public values leave."""
    public = [name for name, item in release.attributes.items() if item.role == "public"]
    codes, slots = combinations(release, public), plan.slots
    if slots is None:
        linkage = truck_linkage(codes, plan.assignment)
    else:  # the rows of a class have the same public values
        class_id = release.data.column("class_id").combine_chunks().to_numpy(zero_copy_only=False)
        of_class = np.zeros(int(class_id.max()) + 1, dtype=np.int64)
        of_class[class_id] = codes
        linkage = truck_linkage(np.repeat(of_class[slots.class_id], slots.count), np.repeat(slots.bin, slots.count))
    return TruckByChance(linkage.mean, linkage.worst, tuple(public))


# A packing plan beside the truth


def plan_figures(
    release: Release, data: Dataset, key: Key | None, plan: Plan, seconds: float, tell: Progress
) -> tuple[list[KeyFigure], list[str]]:
    """Apply a plan to the truth and compare it with the best plan on true weights; return figures and notes."""
    if key is None:
        return [], [words("no key for plan")]
    tell("applying the plan")
    done = apply(plan, data, release, key)
    tell("packing the true weights")
    worth, record = plan_utility(done, data, seconds=seconds, progress=tell), release.certificate.guarantee.protects
    # A plan takes at least one truck, the cheapest; trucks that cost nothing bound nothing.
    least = max(worth.bound, 1.0 if len(plan.trucks) == 1 else min(float(truck.cost) for truck in plan.trucks))
    # If the best is not proven, the ratio may be larger; packages outside were packed as well as time allowed.
    most = worth.ratio if worth.proven else max(worth.ratio, float(worth.objective / (least or 1)))
    in_all = worth.in_plan + worth.outside_bound
    unit, num = "trucks" if plan.minimises == "trucks" else "in cost", worth.packages_outside
    overloaded = words("overloaded", share=1 - worth.bins_feasible)
    interval, details = (min(worth.ratio, in_all / worth.optimum), most), {"objective": worth.objective}
    details |= {"optimum": worth.optimum, "proven": worth.proven}
    facts = {"unit": unit, "takes": for_unit(words("plan and outside take" if num else "plan takes"), record)}
    facts["sure"] = words("nothing better" if worth.proven else "not proven")
    facts["fit"] = "" if worth.plan_feasible else words("does not fit", overloaded=overloaded)
    figures = [figure("objective ratio", worth.ratio, 1.0, interval, details, **facts)]
    more = worth.objective - worth.optimum
    begins = words("privacy costs", more=more, unit="truck" if unit == "trucks" and more == 1 else unit)
    if not worth.plan_feasible:  # nobody knows what a plan that does not fit costs
        begins = words("may take more", overloaded=overloaded)
    others = f"{record} outside it" if num == 1 else f"{num:,} {record}s outside it"
    facts = {"begins": begins, "everyone": f" for all {worth.packages:,}" if num else ""}
    facts["others"] = words("outside more", others=others, outside=worth.outside) if num else ""
    facts["sure"] = "" if worth.proven else words("best known", bound=worth.bound)
    parts = ("proven", "bound", "in_plan", "outside", "packages", "packages_outside")
    details, interval = {name: getattr(worth, name) for name in parts}, (min(worth.objective, in_all), worth.objective)
    # The baseline is a plan without privacy, of all packages.
    key_of_cost = "trucks" if unit == "trucks" else "cost"
    figures += [
        figure(key_of_cost, worth.objective, worth.optimum, interval, details, **facts),
        figure("plan feasible", float(worth.plan_feasible), 1.0, fits=words(f"fits: {worth.plan_feasible}")),
        figure("bins feasible", worth.bins_feasible, 1.0),
    ]
    if release.classes is not None:  # noisy rows are not interchangeable: the plan fits or it does not
        likely = worth.feasibility
        how = {"kind": likely.kind, "permutations": likely.permutations}
        figures.append(figure("joint feasibility", likely.value, 1.0, likely.interval, how))
    return figures, []


class Feasibility(NamedTuple):
    """How likely a plan fits, over all ways to match rows of a class with its packages (Hoogervorst 2019, 6.1)."""

    value: float  # Probability that every bin fits (f_k); for a sealed plan 1 if it can be filled at all
    interval: Interval  # Its 95 % interval; for an exact one the value twice
    bins: float  # Share of bins that fit, on average
    kind: str  # `exact` if all arrangements were counted, otherwise `estimate`
    permutations: int = 0  # How many were sampled for an estimate, 0 for an exact one

    @classmethod
    def exactly(cls, value: float, bins: float) -> Feasibility:
        return cls(value, (value, value), bins, "exact")


@dataclass(frozen=True, eq=False, kw_only=True)
class PlanUtility:
    """A plan compared with the best plan on the true weights. Private."""

    # Both sides ship the same packages: all that could be read, released or not, except those that were left behind or
    # are heavier than every truck. Rows that were left out on reading have no weight, and are on neither side.
    objective: float  # Bins in use, also for packages outside the plan; with several kinds, their cost
    optimum: float  # The same for the best known plan on the true weights of all these packages
    proven: bool  # Whether no plan on the true weights does better
    plan_feasible: bool  # plan_feasible, bins_feasible: whether every bin fitted the truth, and the share, unrepaired
    bins_feasible: float
    feasibility: Feasibility
    truck_linkage: Linkage | None  # As the settlement restated it
    seconds: float  # Time taken to compute the optimum
    bound: float = 0.0  # No plan on the true weights does better than this: proved
    packages: int = 0  # packages, packages_outside: those shipped, and those of them outside the plan
    packages_outside: int = 0
    outside: float = 0.0  # outside, outside_bound: what those take in trucks of their own, and its proved lower bound
    outside_bound: float = 0.0

    @property
    def in_plan(self) -> float:
        return whole_if_possible(exact(self.objective, what="objective") - exact(self.outside, what="outside"))

    @property
    def ratio(self) -> float:
        """Bins in use for each bin that the true weights need, or the same for costs (o / o_n)."""
        return self.objective / self.optimum

    def to_dict(self) -> dict[str, Any]:
        return {
            **{name: getattr(self, name) for name in ("objective", "optimum", "proven", "bound", "ratio")},
            "plan_feasible": self.plan_feasible,
            "bins_feasible": self.bins_feasible,
            "feasibility": {**self.feasibility._asdict(), "interval": list(self.feasibility.interval)},
            "truck_linkage": self.truck_linkage.plain() if self.truck_linkage else {},
            "outside": {"packages": self.packages_outside, "objective": self.outside, "bound": self.outside_bound},
            "packages": self.packages,
            "seconds": round(self.seconds, 3),
        }

    def summary(self) -> str:
        low, high = self.feasibility.interval
        likely = f"{percent(self.feasibility.value)}" + (f" ({percent(low)} to {percent(high)})" if low < high else "")
        outside, linkage = self.packages_outside, self.truck_linkage
        rest = f" ({self.outside:g} of it for {outside:,} outside the plan)" if outside else ""
        best = f"{self.optimum:g} ({'proven' if self.proven else 'best known'})"
        lines = [
            f"Objective   {self.objective:g}{rest}, on the true weights {best}",
            f"Ratio       {self.ratio:.3f}",
            f"Feasible    plan {'yes' if self.plan_feasible else 'no'}, bins {percent(self.bins_feasible)}",
            f"Likely      every bin fits {likely} of the time",
            f"Linkage     {f'{percent(linkage.mean)} on average ({linkage.kind})' if linkage else 'unknown'}",
        ]
        return "\n".join(lines)


def plan_utility(
    settlement: Settlement,
    data: Dataset,
    *,
    seconds: float = DEFAULT_SECONDS,  # Time limit for the best plan
    permutations: int = DEFAULT_PERMUTATIONS,  # Arrangements to sample where they are too many to count
    noise: Noise | None = None,
    progress: Progress | None = None,
) -> PlanUtility:
    """Compare a settled plan with the best plan on the true weights of all packages.

    Packages that were not released (suppressed, not sampled) must be shipped too: beside the plan they take trucks of
    their own, and the best plan on the true weights packs them with the others.
    """
    start, plan = time.monotonic(), settlement.plan
    # loading : one line for each source row; records in none of them were not released
    source, bins = (settlement.loading.column(name).to_numpy() for name in ("source_row", "bin"))
    planned, loaded = data.parts.records_of(source), bins != LEFT_BEHIND
    if (planned[loaded] < 0).any():
        raise ReleaseError("the settlement was made with other data. Give those data.")
    first = np.sort(np.unique(planned[loaded], return_index=True)[1])
    records, bins = planned[loaded][first], bins[loaded][first]
    shipped = np.concatenate([records, np.setdiff1d(np.arange(len(data)), planned)])
    amounts = np.column_stack([data.numbers(quantity)[shipped] for quantity in plan.quantities])
    rooms = np.array([[truck.capacity[quantity] for quantity in plan.quantities] for truck in plan.trucks])
    fits = np.any(np.all(amounts[:, None] <= rooms, axis=2), axis=1)  # some truck
    in_plan = np.arange(len(shipped)) < len(records)
    if not (fits & in_plan).any():
        raise ParameterError("no package is loaded, so there is nothing to compare. Use larger trucks.")
    used = Counter(settlement.truck_of_bin[bin_] for bin_ in np.unique(bins[fits[in_plan]]).tolist())
    group = group_codes(data, (plan.by, plan.apart), shipped)

    boxes = None if plan.box is None else _true_boxes(plan.box, plan, data, shipped, group)
    if boxes is not None and plan.box is not None:
        fits &= fitting(boxes, plan.trucks, plan.box.sides)

    def packed(chosen: BoolArray, kinds: Sequence[Truck], deadline: float) -> TruePacking:
        stop = Deadline(deadline)
        summed = pack_truth(
            amounts[chosen],
            list(plan.quantities),
            kinds,
            group[chosen],
            deadline=deadline if boxes is None else stop.part(1 / 3),
            progress=progress,
        )
        if boxes is None or plan.box is None:
            return summed
        names = [name for name in stacked_first(plan.box, plan.units) if name not in plan.box.sides]
        unit = math.lcm(*(exact(truck.cost, what="cost").denominator for truck in kinds))
        costs = [1 if len(kinds) == 1 else int(exact(truck.cost, what="cost") * unit) for truck in kinds]
        least = math.ceil(summed.bound * (1 if len(kinds) == 1 else unit))
        result = place_boxes(
            boxes.some(chosen), kinds, plan.box.sides, names, costs, bound=least, start=None, deadline=stop
        )
        if result is None:
            raise NoPlanError("there are not enough trucks for the true boxes. Use more trucks.")
        used = tuple(kinds[kind].name for kind in result.kinds.tolist())
        bound = Fraction(result.bound, 1 if len(kinds) == 1 else unit)
        return TruePacking(result.bin_of_row, used, cost_of(kinds, Counter(used)), bound)

    rest = fits & ~in_plan
    outside = TruePacking(np.zeros(0, dtype=np.int64), (), Fraction(0), Fraction(0))
    if rest.any():
        unlimited = [replace(truck, count=None) for truck in plan.trucks]
        outside = packed(rest, unlimited, start + seconds * float(rest.sum() / fits.sum()))
    objective, optimum, bound = cost_of(plan.trucks, used) + outside.cost, None, Fraction(0)
    # Packages outside the plan may take more trucks than it had: allow as many of each kind as are used.
    taken = used + Counter(outside.truck_of_bin)
    kinds = [
        truck if truck.count is None else replace(truck, count=max(truck.count, taken[truck.name]))
        for truck in plan.trucks
    ]
    try:
        truth = packed(fits, kinds, start + seconds)
        optimum, bound = truth.cost, truth.bound
    except NoPlanError:  # the search gave no packing, but the settlement may be one
        if not settlement.feasible:
            raise
    if settlement.feasible and (optimum is None or objective < optimum):
        optimum = objective
    assert optimum is not None
    spent, sealed, bins_feasible = time.monotonic() - start, settlement.sealed, settlement.bins_feasible
    if sealed is None:
        likely = _likely(settlement.task, permutations, noise or Noise())
    elif settlement.plan_feasible or sealed.exact:
        # A sealed plan fits for certain if it can be filled at all, because its owner knows the weights.
        likely = Feasibility.exactly(float(settlement.plan_feasible), bins_feasible)
    else:
        likely = Feasibility(0.0, (0.0, 1.0), bins_feasible, "estimate")
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
        bins_feasible=bins_feasible,
        feasibility=likely,
        truck_linkage=settlement.truck_linkage,
        seconds=spent,
    )


def _true_boxes(box: Box, plan: Plan, data: Dataset, records: IntArray, group: IntArray) -> BoxRows:
    rules = box.rules(lambda name: data.column(name).take(pa.array(records)).to_pylist(), len(records), plan.units)
    names = [name for name in stacked_first(box, plan.units) if name not in box.sides]
    amounts = [data.numbers(name)[records] for name in names]
    sides = np.column_stack([data.numbers(side)[records] for side in box.sides])
    table = np.column_stack(amounts) if amounts else np.zeros((len(records), 0))
    return BoxRows(sides, table, *rules, group, np.arange(len(records)), float(share(box.support)))


def group_codes(data: Dataset, names: Iterable[str | None], records: IntArray | None = None) -> IntArray:
    """Give records, or some of them, with equal values in all columns the same number, from 0 on."""
    records = np.arange(len(data)) if records is None else records
    codes = np.zeros(len(records), dtype=np.int64)
    for name in dict.fromkeys(name for name in names if name is not None):
        column = data.column(name).dictionary_encode(null_encoding="encode").indices
        own = column.to_numpy(zero_copy_only=False)[records].astype(np.int64)
        codes = np.unique(codes * (int(own.max(initial=0)) + 1) + own, return_inverse=True)[1].reshape(-1)
    return codes


# How likely a plan fits


def _likely(task: RepairTask, permutations: int, noise: Noise) -> Feasibility:
    if len(np.unique(task.group)) == len(task.group):  # nothing to exchange: the plan's own fill is the only one
        num_over, num_bins = len(Fill.of(task, task.start).overloaded), task.plan.num_bins
        return Feasibility.exactly(float(not num_over), 1 - num_over / num_bins)
    fills = counted_fills(task)
    bins = _mean_of_bins(task) if fills is not None else None
    if fills is not None and bins is not None:
        return Feasibility.exactly(float(Fraction(fills.number, _num_fills(planned_counts(task)))), bins)
    # Estimate from random orders: fewer if there are very many rows, and the interval shows it.
    num = min(permutations, max(MAX_PERMUTED // len(task.whole), 100))
    # Doubles represent whole numbers up to 2**53; amounts with more digits are compared as the data have them.
    whole = int(max(task.whole.sum(axis=0))) < 2**53
    values = task.whole.astype(np.float64) if whole else task.amounts
    rooms = task.rooms.astype(np.float64) if whole else task.in_units(task.rooms)
    hits, share = 0, 0.0
    for fits in fits_by_permutation(values, task.group, task.start, rooms, permutations=num, seed=noise.bits(32)):
        hits += int(fits.all(axis=1).sum())
        share += float(fits.mean(axis=1).sum())
    return Feasibility(hits / num, clopper_pearson(hits, num), share / num, "estimate", num)


def _num_fills(counts: IntArray) -> int:
    """Return in how many ways rows can fill the places that the plan has for their group. Shape: bins by groups."""
    sizes = [math.factorial(size) for size in counts.sum(axis=0).tolist()]
    repeats = [math.prod(map(math.factorial, column)) for column in counts.T.tolist()]
    return math.prod(size // repeat for size, repeat in zip(sizes, repeats, strict=True))


def _mean_of_bins(task: RepairTask) -> float | None:
    """Return the mean over bins of the probability that one fits; None if one cannot be counted."""
    counts, rooms, deadline = planned_counts(task), task.rooms, time.monotonic() + BINS_SECONDS
    whole, sizes = task.whole.sum(axis=0), counts.sum(axis=0)
    rows_of = np.split(np.argsort(task.group, kind="stable"), np.cumsum(sizes)[:-1])
    computed: dict[bytes, Fraction] = {}
    chances = []
    for bin_, room in enumerate(rooms):
        sort = counts[bin_].tobytes() + room.tobytes()
        if sort not in computed:  # the others are one bin that fits everything, and only groups of this bin matter
            groups = np.flatnonzero(counts[bin_])
            pair = np.stack([counts[bin_, groups], sizes[groups] - counts[bin_, groups]])
            rows = np.concatenate([rows_of[group] for group in groups.tolist()] or [np.zeros(0, dtype=np.int64)])
            items = Items(np.repeat(np.arange(len(groups)), sizes[groups]), task.whole[rows])
            fills = count_fills(items, FillSlots(pair, np.stack([np.minimum(room, whole), whole])), deadline=deadline)
            if fills is None:
                return None
            computed[sort] = Fraction(fills.number, _num_fills(pair))
        chances.append(computed[sort])
    return float(sum(chances, Fraction(0)) / len(chances))


# The best packing of the true amounts
# One quantity and one kind of truck go to the scalar kernel, everything else to the vector kernel. Both prove a bound.


@dataclass(frozen=True, eq=False, repr=False)
class TruePacking:
    """Rows in bins by their true amounts. Private: its ``repr`` shows nothing of it."""

    bin_of_row: IntArray  # bin_of_row, truck_of_bin: the bin of each row, and the name of the truck that a bin is
    truck_of_bin: tuple[str, ...]
    cost: Fraction  # What the trucks cost together; with a single kind, their number
    bound: Fraction  # No packing costs less: proved


def cost_of(trucks: Sequence[Truck], used: Mapping[str, int]) -> Fraction:
    """Return what trucks cost together; with a single kind, their number."""
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
    """Pack true amounts at the lowest cost that the time allows, each group of rows by itself."""
    tell = progress or (lambda line: None)
    bins: list[IntArray] = []
    bound = Fraction(0)
    if len(trucks) == 1 and len(quantities) == 1:
        groups = rows_by_group(group)
        for number, rows in enumerate(groups):  # the next group gets the time that one leaves over
            seconds = max(deadline - time.monotonic(), MIN_SECONDS) / (len(groups) - number)
            packed, lower_bound = packed_group(amounts[rows, 0], trucks[0].capacity[quantities[0]], seconds)
            bins += [rows[items] for items in packed]
            bound += lower_bound
            tell(f"true weights: {number + 1} of {len(groups)} parts packed")
        names = [trucks[0].name] * len(bins)
    else:
        capacities = np.array([[truck.capacity[quantity] for quantity in quantities] for truck in trucks])
        whole, rooms = whole_table(amounts, capacities)[:2]
        same = whole.dtype != object
        if not same:  # rounded outward to 64 bits, so that what fits after rounding truly fits
            most = [max(int(room).bit_length() - _KERNEL_BITS, 0) for room in rooms.max(axis=0)]
            shift, same = np.array(most, dtype=object), not any(most)
            whole, rooms = (-(-whole >> shift)).astype(np.int64), (rooms >> shift).astype(np.int64)
        several = len(trucks) > 1
        costs = [exact(truck.cost, what="cost") if several else 1 for truck in trucks]
        kinds = [
            BinKind(capacity=tuple(room), cost=cost, count=truck.count if several else None)
            for truck, cost, room in zip(trucks, costs, rooms.tolist(), strict=True)
        ]
        tell("packing the true amounts")
        seconds = max(deadline - time.monotonic(), MIN_SECONDS)
        packing = pack_vectors(whole, kinds, seconds=seconds, groups=group)
        bins = [np.array(rows, dtype=np.int64) for rows in packing.bins]
        names = [trucks[kind].name for kind in packing.kind_of_bin]
        bound = packing.bound if same else bound
    bin_of_row = np.empty(len(amounts), dtype=np.int64)
    for number, rows in enumerate(bins):
        bin_of_row[rows] = number
    return TruePacking(bin_of_row, tuple(names), cost_of(trucks, Counter(names)), bound)


# A plan of shuttles beside the truth


def fleet_figures(
    plan: FleetPlan, data: Dataset, release: Release, city: City, key: Key | None, price: float | None, tell: Progress
) -> tuple[list[KeyFigure], list[str]]:
    """Run the planned shuttles on the true trips, beside those that the trips need; return figures and notes."""
    done = apply_fleet(plan, data, release, city, key, shuttle_hour=price, progress=tell)
    universe = true_universe(done.plan, data)
    # Seconds of trips are sampled where only their counts are known.
    sampled = true_days(data, universe, done.task.ground, done.plan.model.day if done.plan.model else None) is None
    target, wait, known = float(done.task.max_wait), done.wait_seconds, done.needed is not None
    notes = [] if done.checked else [words("fleet unchecked")]
    figures: list[KeyFigure] = []
    if done.needed is None:
        notes.append(words("no fleet", target=target))
    else:  # compare the shuttles, and their cost a day, with those that the true trips need
        needed, hours = sum(done.needed), (done.task.span[1] - done.task.span[0]) / 3600
        price = done.cost.per_shuttle_hour if done.cost is not None else None
        day, unit = (hours, "shuttle-hours a day") if price is None else (hours * price, "a day")
        because = ""
        if done.shuttles != needed and needed:
            side = "more" if done.shuttles > needed else "fewer"
            because = words("because of privacy", share=abs(done.shuttles - needed) / needed, side=side)
        by_zone = zip(done.zones, done.planned, done.needed, strict=True)
        zones = {zone: {"planned": planned, "needed": own} for zone, planned, own in by_zone}
        more, details = (done.shuttles - needed) * day, {"hours_a_day": hours, "per_shuttle_hour": price}
        facts = {"unit": unit, "priced": "" if price is None else words("priced", price=price)}
        if not all(done.meets_target):  # a fleet that misses its target is no saving
            facts["difference"] = words("fleet late")
        else:
            facts["difference"] = words("fleet costs" if more >= 0 else "fleet saves", more=abs(more))
        figures = [
            figure("shuttles", done.shuttles, needed, None, {"zones": zones}, because=because),
            figure("cost | fleet", done.shuttles * day, needed * day, None, details, **facts),
        ]
    interval = wait, wait
    if sampled:
        notes.append(words("waits estimated"))
        waits = [run.waits for run in done.served.operate(done.planned) if len(run.waits)]
        most = max((float(own.max()) for own in waits), default=0.0)
        interval = spread_interval([float(own.mean()) for own in waits], wait, most=most)
    ideal = done.ideal.wait_seconds.mean if known and done.ideal else (0.0 if known else target)
    interval = min(interval[0], wait), max(interval[1], wait)
    details = {"max_wait_seconds": target, "unserved": done.unserved, "idle_seconds": done.idle_seconds}
    facts = {"without": words("ideal wait", ideal=ideal) if known else words("no ideal wait")}
    facts["late"] = words("unserved", num=done.unserved) if done.unserved else ""
    figures.append(figure("wait", wait, ideal, interval, details, **facts))
    met, num, best = sum(done.meets_target), len(done.zones), words("ideal in all" if known else "ideal in none")
    missed = {"missed": [zone for zone, in_time in zip(done.zones, done.meets_target, strict=True) if not in_time]}
    figures.append(figure("zones in time", met / num, 1.0, None, missed, met=met, num=num, best=best))
    return figures, notes


def spread_interval(means: Sequence[float], value: float, *, most: float) -> Interval:
    """Return Student's 95 % interval around a value from the spread of some means; a single mean shows no spread."""
    if len(means) < 2:
        return 0.0, max(most, value)
    from scipy.stats import t

    reach = float(t.ppf((1 + CONFIDENCE) / 2, len(means) - 1) * np.std(means, ddof=1)) / math.sqrt(len(means))
    return max(0.0, value - reach), value + reach
