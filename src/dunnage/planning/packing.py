# SPDX-License-Identifier: Apache-2.0
"""pack: released rows into trucks, with a proven bound.

All models differ only in which part of what is known of a weight they read. Those that need more than one number a row
are one problem on classes (:class:`dunnage.bins.ChancePacker`): how many rows of each class a truck takes, and how
likely that fits. Rows are dealt to the places of their class afterwards; which is which makes no difference to the
weights, and is done so that rows that look alike go to different trucks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np

from dunnage.arrays import FloatArray, IntArray
from dunnage.bins import ChancePacker, ClassPacking, Members, l2_bound, pack_bins, whole_numbers
from dunnage.bins.certified import pack_vectors
from dunnage.bins.chances import ClassSizes
from dunnage.bins.exchanges import over_caps, spread_items
from dunnage.errors import NoPlanError, ParameterError
from dunnage.exact import Exact, exact, plain
from dunnage.planning.linkage import (
    ESTIMATE_SECONDS,
    exchangeable,
    least_linked_slots,
    noisy_linkage,
    slots_linkage,
    truck_linkage,
)
from dunnage.planning.models import Model, Robust, Sealed, Standard, Stochastic
from dunnage.planning.noisy import check_model, intervals_hold, likely_plan, plan_odds, simultaneous_sizes
from dunnage.planning.plan import Certified, Linkage, Plan, Slots, Unplanned, whole_if_possible
from dunnage.planning.problem import PackingProblem, Telling, Whole, rows_by_group
from dunnage.planning.published import budgeted_packing, sampled_assignment
from dunnage.planning.trucks import Truck
from dunnage.release import Release

Progress = Callable[[str], None]

DEFAULT_SECONDS = 60.0
LINKAGE_SECONDS = 2.0
MOST_WEIGHED_BINS = 2000
MOST_CLASSES = 2500
MOST_SPREAD_CLASSES = 20_000
START_SHARE = 0.2
PACKING_SHARE = 0.6
LEAST_SECONDS = 0.5
LIKELY_RISKS = (Fraction(0), Fraction(1, 2), Fraction(9, 10))
MULTISETS = "the released multisets: rows of a class are in random order and exchangeable"


@dataclass(frozen=True, eq=False, kw_only=True)
class _Solution:
    """What a model found: the bin of each row or slots, the kind of each bin, a bound in whole costs."""

    kinds: IntArray
    bound: int
    bin_of_row: IntArray | None = None
    slots: Slots | None = None
    certified: Certified | None = None
    linkage: Linkage | None = None
    told: Mapping[str, str] = field(default_factory=dict)  # what the plan's model is to state besides


def pack(
    release: Release,
    *,
    capacity: float | str | Sequence[float | str] | None = None,
    trucks: Sequence[Truck] | None = None,
    model: Model | None = None,
    by: str | None = None,
    apart: str | None = None,
    spread: int | None = None,
    quantity: str | None = None,
    margin: Exact | None = None,
    seconds: float = DEFAULT_SECONDS,
    progress: Progress | None = None,
) -> Plan:
    """Pack released rows into as few trucks, or as cheap ones, as can be found in time, with a proven bound.

    Parameters
    ----------
    release
        What the owner published; nothing else is needed or reached.
    capacity
        What a truck holds: a number, text with the unit (``"500kg"``), or one such for each quantity
        (``["500kg", "volume=9"]``).
    trucks
        Instead of ``capacity``: the kinds of truck, with counts and costs. Several kinds are chosen at least cost.
    model
        By default :class:`Standard` on upper bounds.
    by, apart
        Public columns; different values of either never share a truck.
    spread
        No truck takes more than this part (1/spread) of a class.
    quantity
        What to pack, if only one of several quantities is meant.
    margin
        Part of every capacity that is left free: at least 0, below 1. The plan's trucks keep their capacities.
    seconds
        Time limit; the best plan found by then is returned with its gap.
    progress
        Called with a line whenever plan or bound improves.

    Returns
    -------
    Plan
        With objective, bound, truck linkage and what is unplanned.

    Raises
    ------
    NoPlanError
        If a row is heavier than any truck, there are not enough trucks, or a class cannot be spread so far.
    """
    start = time.monotonic()
    if not seconds > 0:
        raise ParameterError(f"seconds must be more than 0. Got {seconds!r}. Give a time limit.")
    chosen = model or Standard()
    problem = PackingProblem.of(
        release, capacity=capacity, trucks=trucks, by=by, apart=apart, quantity=quantity, spread=spread
    )
    check_model(release, chosen, spread)
    problem.check_spread()
    found = _solved(problem.with_margin(margin), chosen, start + seconds, progress)
    if margin is not None:
        found = _in_true_trucks(problem, chosen, found, start + seconds)
    one = len(problem.trucks) == 1
    bound = found.bound if one else whole_if_possible(found.bound * problem.unit_cost)
    return Plan(
        release=release.certificate.digest,
        bin_of_row=found.bin_of_row,
        slots=found.slots,
        truck_of_bin=tuple(problem.trucks[kind].name for kind in found.kinds.tolist()),
        trucks=problem.trucks,
        model=chosen.describe().model_copy(update=found.told),
        bound=bound,
        seconds=time.monotonic() - start,
        quantities=problem.quantities,
        by=by,
        apart=apart,
        spread=spread,
        margin=None if margin is None else plain(exact(margin, what="margin")),
        certified=found.certified,
        truck_linkage=_linkage(release, found),
        unplanned=_unplanned(release),
    )


def _fits_surely(rests_on: str) -> Certified:
    return Certified(at_least=1.0, at_most=1.0, rests_on=rests_on)


def _assigned(found: _Solution) -> IntArray:
    if found.bin_of_row is None:
        raise ParameterError("a sealed plan states its own linkage.")
    return found.bin_of_row


def _linkage(release: Release, found: _Solution) -> Linkage | None:
    """Return how likely a package's truck is named; None where the law of the noise is not known."""
    if release.noisy:
        return noisy_linkage(release, _assigned(found)) if found.linkage is None else found.linkage
    linkage = found.linkage or truck_linkage(exchangeable(release), _assigned(found))
    likely = 1.0 if found.certified is None else found.certified.at_least
    if found.slots is not None or likely >= 1:
        return linkage
    # What the guess becomes for someone who sees that everything fitted, where that was not sure before. Not for noisy
    # rows: how likely a plan fits over the noise is not how likely it does given the release.
    seen = min(1.0, linkage.worst / likely) if likely > 0 else 1.0
    return linkage.model_copy(update={"if_seen_to_fit": seen})


def _in_true_trucks(problem: PackingProblem, model: Model, found: _Solution, deadline: float) -> _Solution:
    """Say of a plan made with a margin what it tells, and how likely it fits, in the trucks as they are."""
    if found.slots is not None:
        members = problem.class_members()
        if members is None:
            return found
        class_of = np.repeat(np.arange(len(problem.class_sizes)), problem.class_sizes)
        room = members[1].rooms[found.kinds]
        told = slots_linkage(class_of, members[1].values, found.slots, room, seconds=_estimating(deadline))
        return replace(found, linkage=told)
    if found.certified is None or found.certified.at_least >= 1:
        return found
    if isinstance(model, Stochastic) and model.prior is not None:
        least, most = plan_odds(problem, model, _assigned(found), found.kinds)
        odds = {"at_least": max(least, found.certified.at_least), "at_most": most}
        return replace(found, certified=found.certified.model_copy(update=odds))
    weighed = _weighed(problem, found)
    return replace(found, certified=weighed or found.certified.model_copy(update={"at_most": 1.0}))


def _solved(problem: PackingProblem, model: Model, deadline: float, progress: Progress | None) -> _Solution:
    words = "trucks" if len(problem.trucks) == 1 else "cost"

    def say(stage: str, value: int, bound: int) -> None:
        if progress is not None:
            progress(f"{stage + ': ' if stage.startswith('part') else ''}{words} {value}, at least {bound}")

    tell: Telling | None = None if progress is None else say
    if isinstance(model, Standard):
        return _standard(problem, model, deadline, tell)
    if isinstance(model, Robust):
        return _robust(problem, model, deadline, tell)
    if isinstance(model, Stochastic):
        if problem.release.noisy:
            return _noisy(problem, model, deadline, tell)
        if model.as_published:
            return _sampled(problem, model, deadline, progress)
        return _stochastic(problem, model, deadline, tell)
    if isinstance(model, Sealed):
        return _sealed(problem, deadline, tell)
    raise ParameterError(f"{type(model).__name__} is no packing model. Use Standard, Robust, Stochastic or Sealed.")


# Standard


def _standard(problem: PackingProblem, model: Standard, deadline: float, tell: Telling | None) -> _Solution:
    values = [model.weights(known) for known in problem.known]
    problem.check_rows_fit(values)
    found = _packed_values(problem, values, deadline, tell)
    if model.statistic == "upper":
        surely = _fits_surely("what is released bounds every weight")
        return replace(found, certified=intervals_hold(problem) if problem.release.noisy else surely)
    return replace(found, certified=_weighed(problem, found))


def _packed_values(
    problem: PackingProblem, values: Sequence[FloatArray], deadline: float, tell: Telling | None
) -> _Solution:
    """Pack rows that each have one value for every quantity."""
    if problem.release.noisy and problem.release.classes is None:
        return _packed_rows(problem, values, deadline, tell)
    scalar = len(values) == 1 and len(problem.trucks) == 1
    if scalar:
        found = _packed_scalars(problem, values[0], deadline, tell)
        if found is not None:
            return found
    return _packed_types(problem, values, deadline, tell)


def _packed_rows(
    problem: PackingProblem, values: Sequence[FloatArray], deadline: float, tell: Telling | None
) -> _Solution:
    """Pack rows that are each a class of their own: none can be dealt another's place."""
    if len(values) > 1 or len(problem.trucks) > 1:
        whole = problem.whole(values)
        bins, kinds, bound = _packed_members(problem, whole, problem.group, deadline, tell)
        return _Solution(kinds=kinds, bound=bound if whole.exact else 0, bin_of_row=bins)
    room = problem.trucks[0].capacity[problem.known[0].name]
    bins, bound = pack_apart(values[0], room, rows_by_group(problem.group), deadline, tell)
    num = int(bins.max()) + 1
    _check_count(problem, num, bound)
    return _Solution(kinds=np.zeros(num, dtype=np.int64), bound=bound, bin_of_row=bins)


def _packed_scalars(
    problem: PackingProblem, values: FloatArray, deadline: float, tell: Telling | None
) -> _Solution | None:
    """Pack one quantity into one kind of truck; None if a spread was asked for and not found with as few trucks."""
    truck, known = problem.trucks[0], problem.known[0]
    bin_of_row, bound = pack_apart(values, truck.capacity[known.name], rows_by_group(problem.group), deadline, tell)
    num = int(bin_of_row.max()) + 1
    if problem.spread is None and len(problem.class_sizes) > MOST_SPREAD_CLASSES:  # mostly rows by themselves
        _check_count(problem, num, bound)
        return _Solution(kinds=np.zeros(num, dtype=np.int64), bound=bound, bin_of_row=bin_of_row)
    whole = problem.whole([values])
    room = np.repeat(whole.rooms, num, axis=0)
    spread = spread_items(
        whole.values, problem.class_id, problem.group, bin_of_row, room, caps=problem.caps, seconds=_short(deadline)
    )
    if over_caps(problem.class_id, spread, problem.caps, num):
        return None
    _check_count(problem, num, bound)
    return _Solution(
        kinds=np.zeros(num, dtype=np.int64), bound=bound, bin_of_row=_least_linked(problem, bin_of_row, spread)
    )


def _check_count(problem: PackingProblem, num: int, bound: int) -> None:
    count = problem.trucks[0].count
    if count is not None and num > count:
        if problem.spread is not None:
            raise _no_plan(problem)
        more = "cannot be enough" if bound > count else "were not enough in the time given"
        raise NoPlanError(f"{count} trucks {more}: {num} are needed by this plan, {bound} at least.")


def _short(deadline: float) -> float:
    return min(LINKAGE_SECONDS, max(deadline - time.monotonic(), 0.02))


def _least_linked(problem: PackingProblem, *assignments: IntArray) -> IntArray:
    """Return the assignment that tells least of those that respect the spread, each dealt well inside classes."""
    group = exchangeable(problem.release)
    fine = []
    for bin_of_row in assignments:
        num = int(bin_of_row.max()) + 1
        if not over_caps(problem.class_id, bin_of_row, problem.caps, num):
            fine += [bin_of_row, _dealt(problem, group, Slots.of_assignment(bin_of_row, problem.class_id))]
    return min(fine, key=lambda bins: (truck_linkage(group, bins).mean, truck_linkage(group, bins).worst))


def _dealt(problem: PackingProblem, group: IntArray, slots: Slots) -> IntArray:
    """Give the places of each class to its rows in turn, so that rows that look alike go to different trucks."""
    turn = np.arange(int(slots.count.sum())) - np.repeat(np.cumsum(slots.count) - slots.count, slots.count)
    bins, classes = np.repeat(slots.bin, slots.count), np.repeat(slots.class_id, slots.count)
    bin_of_row = np.empty(len(problem.class_id), dtype=np.int64)
    bin_of_row[np.lexsort((group, problem.class_id))] = bins[np.lexsort((bins, turn, classes))]
    return bin_of_row


def _packed_types(
    problem: PackingProblem, values: Sequence[FloatArray], deadline: float, tell: Telling | None
) -> _Solution:
    """Pack several quantities, several kinds of truck or a spread: rows of one class and size are one type."""
    whole = problem.whole(values)
    table = np.column_stack([problem.group, problem.class_id, whole.values])
    types, first, type_of, times = np.unique(table, axis=0, return_index=True, return_inverse=True, return_counts=True)
    type_of = type_of.reshape(-1)
    # A class that is one type is capped as a class; true weights split classes, and are never spread.
    caps = np.minimum(times, problem.caps[types[:, 1]])
    found, bound = _class_plan(problem, whole, types[:, 2:], first, times, caps, types[:, 0], deadline, tell)
    bins = np.empty(len(type_of), dtype=np.int64)
    order = np.argsort(type_of, kind="stable")
    at = 0
    for kind in range(len(types)):
        held = np.repeat(np.arange(len(found.kinds)), found.counts[:, kind])
        bins[order[at : at + len(held)]] = held
        at += len(held)
    return _Solution(kinds=found.kinds, bound=bound, bin_of_row=_least_linked(problem, bins))


def _class_plan(
    problem: PackingProblem,
    whole: Whole,
    sizes: IntArray,
    first: IntArray,
    times: IntArray,
    caps: IntArray,
    groups: IntArray,
    deadline: float,
    tell: Telling | None,
) -> tuple[ClassPacking, int]:
    """Pack types of rows surely; the bound comes from numbers rounded down where they had to be rounded."""

    def classes(table: IntArray) -> list[ClassSizes]:
        return [Members(np.repeat(line[None], number, axis=0)) for line, number in zip(table, times, strict=True)]

    kinds = problem.kinds(whole.rooms)
    packer = ChancePacker(classes(sizes), caps, kinds, risk=Fraction(0), groups=groups)
    found = packer.solve(seconds=deadline - time.monotonic(), progress=tell)
    if found is None:
        raise _no_plan(problem)
    bound = found.bound
    if not whole.exact:
        below = ChancePacker(
            classes(whole.below[first]), caps, problem.kinds(whole.below_rooms), risk=Fraction(0), groups=groups
        )
        lower = below.solve(seconds=max(deadline - time.monotonic(), 0.1))
        bound = 0 if lower is None else lower.bound
    return _less_linked(packer, replace(found, bound=bound), deadline), bound


def _no_plan(problem: PackingProblem) -> NoPlanError:
    counts = [f"{truck.count} of {truck.name}" for truck in problem.trucks if truck.count is not None]
    if problem.spread is not None:
        return NoPlanError(
            f"no such plan was found with a spread of {problem.spread}"
            + (f" and the trucks there are ({', '.join(counts)})" if counts else "")
            + f". {_largest_spread(problem)}"
        )
    return NoPlanError(
        f"no plan was found with the trucks there are ({', '.join(counts) or 'any number'}). Give more or larger ones."
    )


def _largest_spread(problem: PackingProblem) -> str:
    """Say how far classes could be spread over the trucks there are, as far as counting alone can tell."""
    total = [truck.count for truck in problem.trucks]
    most = sum(count for count in total if count is not None) if None not in total else None
    sizes = problem.class_sizes
    fitting = [
        spread
        for spread in range(1, int(sizes.min()) + 1)
        if most is None or bool((-(-sizes // (sizes // spread)) <= most).all())
    ]
    return f"The largest spread is {max(fitting)} at most." if fitting else "Give more trucks."


def _less_linked(
    packer: ChancePacker, plan: ClassPacking, deadline: float, also: Sequence[ClassPacking] = ()
) -> ClassPacking:
    """Look for a plan of the same cost whose classes are spread wider: tighten the caps as far as they hold.

    ``also`` are other plans to choose from, where they cost no more.
    """
    stop = time.monotonic() + _short(deadline)
    best = plan
    low, high = 1, len(plan.kinds)  # spread over so many bins is known to work, and cannot be more
    while low < high and time.monotonic() < stop:
        middle = (low + high + 1) // 2
        caps = np.minimum(packer.caps, np.maximum(1, -(-packer.demand // middle)))
        tighter = ChancePacker(
            packer.classes, caps, packer.kinds, risk=packer.exact_risk, groups=packer.groups, seed=packer.seed
        )
        found = tighter.solve(seconds=max(stop - time.monotonic(), 0.02), aim=plan.cost)
        if found is not None and found.cost <= plan.cost:
            best, low = replace(found, bound=plan.bound), middle
        else:
            high = middle - 1
    others = [replace(one, bound=plan.bound) for one in also if one.cost <= plan.cost]
    return min([plan, best, *others], key=lambda one: int(one.counts.max(axis=0).sum()))


# Noisy rows


def _noisy(problem: PackingProblem, model: Stochastic, deadline: float, tell: Telling | None) -> _Solution:
    if model.prior is None:
        sizes, certified = simultaneous_sizes(problem, model.risk)
        problem.check_rows_fit(sizes)
        return replace(_packed_values(problem, sizes, deadline, tell), certified=certified)
    # ClassSizes may need more trucks than there are where the rows do not.
    one = len(problem.trucks) == 1
    free = replace(problem, trucks=(replace(problem.trucks[0], count=None),)) if one else problem

    def packed(sizes: Sequence[FloatArray], seconds: float) -> tuple[IntArray, IntArray, int]:
        free.check_rows_fit(sizes)
        found = _packed_rows(free, sizes, time.monotonic() + seconds, None)
        return _assigned(found), found.kinds, found.bound

    found = likely_plan(free, model, packed, rows_by_group(problem.group), deadline, tell)
    if one:
        _check_count(problem, len(found.kinds), found.bound)
    return _Solution(kinds=found.kinds, bound=found.bound, bin_of_row=found.bin_of_row, certified=found.certified)


# Stochastic and robust


def _classes(problem: PackingProblem) -> tuple[list[ClassSizes], Whole, str]:
    """Return what is known of the classes, and what that rests on."""
    found = problem.class_members()
    if found is not None:
        return (*found, MULTISETS)
    rests = "bounds alone, assuming that one member of a class sits at each end and the rest uniformly between"
    return (*problem.class_bounds(), rests)


def _stochastic(problem: PackingProblem, model: Stochastic, deadline: float, tell: Telling | None) -> _Solution:
    if problem.release.members is None and problem.release.certificate.rows.levels is not None:
        # Intervals of a public hierarchy do not end where weights lie, and so say nothing of how these lie inside.
        return _surely(problem, deadline, tell)
    classes, whole, rests = _classes(problem)
    if problem.release.members is None and any(known.nominal is not None for known in problem.known):
        rests += " (the mean is not used)"
    return _by_chance(problem, classes, whole, model.risk, rests, deadline, tell)


def _by_chance(
    problem: PackingProblem,
    classes: list[ClassSizes],
    whole: Whole,
    risk: Fraction,
    rests: str,
    deadline: float,
    tell: Telling | None,
) -> _Solution:
    if len(classes) > MOST_CLASSES:
        return _surely(problem, deadline, tell)
    groups = problem.group_of_class
    packer = ChancePacker(classes, problem.caps, problem.kinds(whole.rooms), risk=risk, groups=groups)
    start = _start(problem, deadline)
    found = packer.solve(seconds=deadline - time.monotonic(), progress=tell, start=start)
    if found is None:
        problem.check_rows_fit([known.upper for known in problem.known])
        raise _no_plan(problem)
    also = [] if start is None else [packer.planned(*start)]
    found = _less_linked(packer, found, deadline, also=[plan for plan in also if plan is not None])
    # ClassSizes that had to be rounded up prove neither that fewer trucks cannot do nor that more orders do not fit.
    bound, at_most = (found.bound, found.at_most) if whole.exact else (0, 1.0)
    # Row numbers are random, sensitive values may tell of weights: dealt by those, a plan would not fit as often.
    alike = exchangeable(problem.release) if risk == 0 else problem.class_id
    bins = _dealt(problem, alike, _slots(found.counts))
    certified = Certified(at_least=found.at_least, at_most=at_most, rests_on=rests)
    return _Solution(kinds=found.kinds, bound=bound, bin_of_row=bins, certified=certified)


def _start(problem: PackingProblem, deadline: float) -> tuple[IntArray, IntArray] | None:
    """Return the plan on upper bounds, which holds at any risk, as counts and kinds; None if there is none."""
    left = deadline - time.monotonic()
    try:
        upper = _standard(problem, Standard(), time.monotonic() + left * START_SHARE, None)
    except NoPlanError:
        return None
    slots = Slots.of_assignment(_assigned(upper), problem.class_id)
    return slots.table(len(upper.kinds), len(problem.class_sizes)), upper.kinds


def _surely(problem: PackingProblem, deadline: float, tell: Telling | None) -> _Solution:
    """Plan on upper bounds, which holds at any risk, with a bound that holds for any plan.

    For very many classes, and where nothing is known of how weights lie inside a class.
    """
    half = time.monotonic() + (deadline - time.monotonic()) / 2
    done = _standard(problem, Standard(), half, tell)
    least = 0
    if len(problem.trucks) == 1:  # any plan that ever fits holds the smallest weights there can be
        for known in problem.known:
            room = problem.trucks[0].capacity[known.name]
            lower = np.minimum(known.lower, room)
            least = max(least, pack_apart(lower, room, rows_by_group(problem.group), deadline, None)[1])
    return replace(
        done, bound=min(least, done.bound), told={"from_": f"upper bounds: {len(problem.class_sizes)} classes"}
    )


def _slots(counts: IntArray) -> Slots:
    bins, classes = np.nonzero(counts)
    return Slots(bins, classes, counts[bins, classes])


def _robust(problem: PackingProblem, model: Robust, deadline: float, tell: Telling | None) -> _Solution:
    if model.budget != "largest":
        return _budgeted(problem, model, deadline, tell)
    found = problem.class_members()
    if found is None:
        raise ParameterError(
            "the robust model with the largest members of a class needs multisets, which the release has not. Use "
            "the standard model, or stochastic or sealed; an owner who releases by partition or full-domain can add "
            'them: statistic = "multiset".'
        )
    done = _by_chance(problem, *found, Fraction(0), "", deadline, tell)
    return replace(done, certified=_fits_surely("the released multisets: the largest members fit"))


def _budgeted(problem: PackingProblem, model: Robust, deadline: float, tell: Telling | None) -> _Solution:
    if len(problem.known) > 1 or len(problem.trucks) > 1:
        raise ParameterError(
            "the budgeted robust model packs one quantity into one kind of truck. Use the stochastic model, or "
            'budget="largest".'
        )
    # Upper bounds may need more trucks than there are where the model does not.
    free = replace(problem, trucks=(replace(problem.trucks[0], count=None),))
    done = _budgeted_freely(free, model, deadline, tell)
    _check_count(problem, len(done.kinds), done.bound)
    return done


def _budgeted_freely(problem: PackingProblem, model: Robust, deadline: float, tell: Telling | None) -> _Solution:
    upper = _standard(problem, Standard(), deadline, tell)
    told = problem.known[0].nominal is not None
    # Means alone bound the model from below.
    least = _standard(problem, Standard(statistic="mean"), deadline, None).bound if told else 0
    if least == len(upper.kinds):
        return replace(upper, told={"equals": "upper bounds: the means need as many trucks"})
    found = budgeted_packing(problem, model, deadline=deadline, known_bins=len(upper.kinds))
    if found is None:
        # The budget is at least what any bin holds, so that the model is the upper bound.
        return replace(upper, told={"equals": "upper bounds: the budget is more than a bin holds"})
    if found.counts is None:
        return replace(upper, bound=max(found.bound, least))
    bins = _dealt(problem, problem.class_id, _slots(found.counts))
    done = _Solution(kinds=np.zeros(len(found.counts), dtype=np.int64), bound=max(found.bound, least), bin_of_row=bins)
    return replace(done, certified=_weighed(problem, done))


def _weighed(problem: PackingProblem, found: _Solution) -> Certified | None:
    """State how likely everything fits, for a model that does not look at that itself; None if it is not known."""
    members = problem.class_members()
    if members is None or found.bin_of_row is None or len(found.kinds) > MOST_WEIGHED_BINS:
        return None
    classes, whole = members
    kinds = problem.kinds(whole.rooms)
    packer = ChancePacker(classes, problem.class_sizes, kinds, risk=Fraction(0), groups=problem.group_of_class)
    slots = Slots.of_assignment(found.bin_of_row, problem.class_id)
    least, most = packer.weighed(slots.table(len(found.kinds), len(classes)), found.kinds)
    return Certified(at_least=least, at_most=most, rests_on=MULTISETS)


def _sampled(problem: PackingProblem, model: Stochastic, deadline: float, progress: Progress | None) -> _Solution:
    scenarios = problem.known[0].scenarios
    plain = len(problem.known) == 1 and len(problem.trucks) == 1 and not problem.group.any() and problem.spread is None
    if not plain or scenarios is None:
        raise ParameterError(
            "the published stochastic model packs one quantity of a release with multisets into one kind of truck, "
            "with neither groups nor spread. Use Stochastic(risk=...) without as_published."
        )
    problem.check_rows_fit([problem.known[0].upper])
    bins, bound = sampled_assignment(
        scenarios,
        problem.class_id,
        problem.trucks[0].capacity[problem.known[0].name],
        risk=model.risk,
        num_scenarios=model.scenarios,
        seconds=max(deadline - time.monotonic(), 0.05),
        seed=model.seed,
        progress=progress,
    )
    num = int(bins.max()) + 1
    _check_count(problem, num, bound or 0)
    # The bound is that of the sampled model: it says nothing about plans that really hold.
    done = _Solution(kinds=np.zeros(num, dtype=np.int64), bound=min(bound or 0, num), bin_of_row=bins)
    return replace(done, certified=_weighed(problem, done))


# Sealed


def _sealed(problem: PackingProblem, deadline: float, tell: Telling | None) -> _Solution:
    members = problem.class_members()
    if members is None:
        done = _standard(problem, Standard(), deadline, tell)
        bins = _assigned(done)
        slots = Slots.of_assignment(bins, problem.class_id)
        linkage = truck_linkage(problem.class_id, bins)  # every fill fits, so that none is more likely
        return replace(done, bin_of_row=None, slots=slots, linkage=linkage, told={"from_": "upper bounds"})
    return _sealed_members(problem, *members, deadline, tell)


def _sealed_members(
    problem: PackingProblem, classes: list[ClassSizes], whole: Whole, deadline: float, tell: Telling | None
) -> _Solution:
    """Pack the members themselves, and say only how many of each class go where."""
    class_of = np.repeat(np.arange(len(problem.class_sizes)), problem.class_sizes)
    start = time.monotonic()
    kinds, bins, bound = _spread_members(problem, whole, class_of, start + PACKING_SHARE * (deadline - start), tell)
    likely, cheaper = _likely_slots(problem, classes, whole, kinds, bound, deadline)
    sealed = _Solution(
        kinds=kinds,
        bound=bound if whole.exact else 0,
        certified=_fits_surely("the owner fills the slots, knowing the weights; a feasible fill exists"),
        told={"from_": "multisets"},
    )
    if likely is not None:
        slots, room = _slots(likely.counts), whole.rooms[likely.kinds]
        linkage = slots_linkage(class_of, whole.values, slots, room, seconds=_estimating(deadline))
        sealed = replace(sealed, kinds=likely.kinds, slots=slots, linkage=linkage)
        if cheaper or likely.at_least == 1:
            return sealed  # if every fill fits, slots tell no more than classes do
    slots, linkage = least_linked_slots(
        class_of,
        whole.values,
        problem.group_of_class[class_of],
        bins,
        whole.rooms[kinds],
        problem.caps,
        seconds=_short(deadline),
        estimating=_estimating(deadline),
    )
    if sealed.linkage is not None and sealed.linkage.mean <= linkage.mean:
        return sealed
    return replace(sealed, kinds=kinds, slots=slots, linkage=linkage)


def _likely_slots(
    problem: PackingProblem, classes: list[ClassSizes], whole: Whole, kinds: IntArray, bound: int, deadline: float
) -> tuple[ClassPacking | None, bool]:
    """Find slots of no more cost that many fills fit, and say whether they cost less.

    The fewer fills overflow, the less the slots tell.
    """
    choice = problem.kinds(whole.rooms)
    most = sum(int(choice[kind].cost) for kind in kinds.tolist())
    found: list[ClassPacking] = []
    for risk in LIKELY_RISKS:
        packer = ChancePacker(classes, problem.caps, choice, risk=risk, groups=problem.group_of_class)
        # The packing of the members may have taken all the time and be worse than one by classes is at once.
        seconds = max(_short(deadline), LEAST_SECONDS if risk == 0 else 0.0)
        plan = packer.solve(seconds=seconds, aim=min(bound, most))
        if plan is not None and plan.cost <= min([most, *(one.cost for one in found)]):
            found.append(_less_linked(packer, plan, deadline))
    if not found:
        return None, False
    cost = min(plan.cost for plan in found)
    # About what slots tell: how much of a class goes into one bin, by how many fills there are.
    best = min((p for p in found if p.cost == cost), key=lambda p: p.counts.max(axis=0).sum() / max(p.at_least, 0.05))
    return best, cost < most


def _estimating(deadline: float) -> float:
    """Return how long an estimate may take; one is always made."""
    return min(ESTIMATE_SECONDS, max(deadline - time.monotonic(), LEAST_SECONDS))


def _spread_members(
    problem: PackingProblem, whole: Whole, class_of: IntArray, deadline: float, tell: Telling | None
) -> tuple[IntArray, IntArray, int]:
    """Pack members so that the spread is kept, with more bins if need be: kinds of bins, bin of each member, bound."""
    group_of = problem.group_of_class[class_of]
    bins, kinds, bound = _packed_members(problem, whole, group_of, deadline, tell)
    rooms = whole.rooms
    while over_caps(class_of, bins, problem.caps, len(kinds)):
        spread = spread_items(
            whole.values, class_of, group_of, bins, rooms[kinds], caps=problem.caps, seconds=_short(deadline)
        )
        if not over_caps(class_of, spread, problem.caps, len(kinds)):
            bins = spread
            break
        kinds = np.append(kinds, _another(problem, kinds))
        bins = spread
    used, bins = np.unique(bins, return_inverse=True)
    # A class goes into as many bins at least as its cap asks for.
    least = int((-(-problem.class_sizes // np.maximum(problem.caps, 1))).max())
    cheapest = min(int(kind.cost) for kind in problem.kinds(rooms))
    return kinds[used], bins.reshape(-1), max(bound, least * cheapest)


def _packed_members(
    problem: PackingProblem, whole: Whole, group_of: IntArray, deadline: float, tell: Telling | None
) -> tuple[IntArray, IntArray, int]:
    kinds = problem.kinds(whole.rooms)
    if len(kinds) == 1 and whole.values.shape[1] == 1 and int(whole.values.max()) <= kinds[0].capacity[0]:
        numbers = whole.values[:, 0].astype(np.float64)
        bins, least = pack_apart(numbers, float(kinds[0].capacity[0]), rows_by_group(group_of), deadline, tell)
        num = int(bins.max()) + 1
        if kinds[0].count is not None and num > kinds[0].count:
            raise _no_plan(problem)
        return bins, np.zeros(num, dtype=np.int64), least
    try:
        left = deadline - time.monotonic()
        packed = pack_vectors(whole.values, kinds, seconds=left, groups=group_of, progress=tell)
    except NoPlanError:
        problem.check_rows_fit([known.lower for known in problem.known])
        raise _no_plan(problem) from None
    bins = np.empty(len(whole.values), dtype=np.int64)
    for number, items in enumerate(packed.bins):
        bins[items] = number
    return bins, np.array(packed.kind_of_bin, dtype=np.int64), int(packed.bound)


def _another(problem: PackingProblem, kinds: IntArray) -> int:
    """Return the kind of one bin more: the cheapest of which there is one left."""
    for kind in np.argsort([truck.cost for truck in problem.trucks], kind="stable").tolist():
        count = problem.trucks[kind].count
        if count is None or int((kinds == kind).sum()) < count:
            return int(kind)
    raise _no_plan(problem)


def _unplanned(release: Release) -> Unplanned:
    """Say which packages are known to travel outside the plan; a release may keep their number to itself."""
    none = 0 if release.noisy and release.classes is None else None  # noise leaves no row out
    stated = release.certificate.rows.suppressed
    suppressed = none if stated is None else stated.count
    leaves_out = any("leave-out" in (item.missing, item.outside) for item in release.certificate.attributes)
    # Rows that the policy left out are the owner's to count; None says that there may be some.
    return Unplanned(count=suppressed, suppressed=suppressed, left_out=None if leaves_out else 0)


# Groups of rows packed apart, one quantity into one kind of truck


def pack_apart(
    weights: FloatArray, capacity: float, groups: list[IntArray], deadline: float, progress: Telling | None
) -> tuple[IntArray, int]:
    """Pack each group of rows apart; time that one leaves over is the next one's."""
    bin_of_row = np.empty(len(weights), dtype=np.int64)
    num_bins = bound = 0
    for number, rows in enumerate(groups):
        left = max(deadline - time.monotonic(), 0.05) / (len(groups) - number)
        packing = packed_group(weights[rows], capacity, left, progress if len(groups) == 1 else None)
        for items in packing[0]:
            bin_of_row[rows[items]] = num_bins
            num_bins += 1
        bound += packing[1]
        if progress is not None and len(groups) > 1:
            progress(f"part {number + 1} of {len(groups)}", num_bins, bound)
    return bin_of_row, bound


def packed_group(
    weights: FloatArray, capacity: float, seconds: float, progress: Telling | None = None
) -> tuple[list[list[int]], int]:
    """Pack weights that may share a truck: the rows of each bin, and how many bins are needed at least."""
    start = time.monotonic()
    numbers = whole_numbers(weights, capacity)
    packing = pack_bins(numbers.items, numbers.capacity, seconds=seconds, progress=progress)
    if numbers.below is None:
        return packing.bins, packing.bound
    # Packed on numbers rounded outward: only a bound on numbers rounded inward holds in truth.
    items, room = numbers.below
    bound = max(l2_bound(items, room), 1)
    left = seconds - (time.monotonic() - start)
    if bound < len(packing.bins) and left > 0:
        bound = max(bound, pack_bins(items, room, seconds=left).bound)
    return packing.bins, bound
