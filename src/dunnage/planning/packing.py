# SPDX-License-Identifier: Apache-2.0
"""pack: put released rows into trucks, with a proved bound.

The models differ only in what they use of the knowledge about a weight. Those that need more than one number per row
are one problem on classes (:class:`ChancePacker`): how many rows of each class a truck takes, and how likely that fits.
The rows of a class are assigned to its places afterwards. This does not change the weights, and is done so that rows
that look alike go to different trucks.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from dunnage.arrays import FloatArray, IntArray
from dunnage.errors import NoPlanError, ParameterError
from dunnage.exact import Exact, exact, nearest_float, plain, share, shown
from dunnage.kernels.bins.certified import ChancePacker, ClassPacking, bound_parts, pack_types, pack_vectors
from dunnage.kernels.bins.chances import ClassSizes, Members, within_class_permutations
from dunnage.kernels.bins.covering import CoverProgram, KindPatterns, PatternList
from dunnage.kernels.bins.first_fit import MAX_COUNTS, too_many_types
from dunnage.kernels.bins.scalar import WholeNumbers, l2_bound, pack_bins, whole_numbers
from dunnage.kernels.bins.spreading import over_caps
from dunnage.kernels.deadline import Deadline, solve_in_turn
from dunnage.planning.boxes import (
    Box,
    box_rows,
    check_boxes_fit,
    faults,
    inner_sides,
    place_boxes,
    stacked_first,
    whole_cells,
)
from dunnage.planning.linkage import (
    ESTIMATE_SECONDS,
    exchangeable,
    linkage_note,
    noisy_linkage,
    slots_linkage,
    truck_linkage,
)
from dunnage.planning.models import Model, Prior, Robust, Sealed, Standard, Stochastic
from dunnage.planning.noisy import check_model, intervals_hold, likely_plan, odds_of, plan_odds, simultaneous_sizes
from dunnage.planning.plan import Certified, Linkage, Plan, Slots, Unplanned, whole_if_possible
from dunnage.planning.problem import PackingProblem, Telling, Whole, rows_by_group
from dunnage.planning.spreading import (
    Effort,
    Outcome,
    Purchase,
    class_table,
    least_together,
    more_trucks,
    spread_checked,
    spread_likely,
    spread_members,
    spread_rows,
    spread_slots,
    together,
)
from dunnage.planning.trucks import Capacity, Truck, listed
from dunnage.release import Release, Uncertain

Progress = Callable[[str], None]

DEFAULT_SECONDS = 60.0
# The share of the time limit that is kept for linkage (less of the first seconds, in which most trucks are saved), up
# to some seconds and one more for each so many rows
LINKAGE_SHARE, FIRST_SECONDS, FIRST_LINKAGE_SHARE = 0.5, 2.0, 0.15
BASE_LINKAGE_SECONDS, ROWS_A_SECOND = 3.0, 500
MIN_LINKAGE_SECONDS = 0.25
LINKAGE_SECONDS = 2.0
MAX_TIGHTENED_CLASSES = 300
TIGHTENED_SECONDS = 1.0
MAX_WEIGHED_BINS = 2000
MAX_CLASSES = 2500  # of a group
MAX_GROUPED_COUNTS = 4 * MAX_COUNTS  # trucks times classes of all groups
MAX_COUNTED_ROWS = 2000
COUNTING_SECONDS = 0.3
VARIANTS, MAX_VARIED_ROWS = 4, 150
START_SHARE = 0.2
PACKING_SHARE = 0.6
UPPER_SHARE = 0.4  # of the time for linkage, to spread a plan on upper bounds that takes no more trucks
BUDGETED_SHARE = 0.4
SUMS_SHARE, SUMS_SECONDS = 0.25, 5.0  # of the time for boxes, to pack them by sums
WEIGHING_SHARE = 0.2
MIN_SECONDS = 0.5
LIKELY_RISKS = (Fraction(0), Fraction(1, 2), Fraction(9, 10))
SLOTS_HOLD = (
    "the law of the noise, for any data: all slots fit the trucks, and with this probability each record has a slot "
    "of at least its size"
)
MULTISETS = "the released multisets: rows of a class are in random order and exchangeable"


@dataclass(frozen=True, eq=False, kw_only=True)
class _Solution:
    """The result of a model: the bin of each row or slots, the kind of each bin, and a bound in whole costs."""

    kinds: IntArray
    bound: int
    bin_of_row: IntArray | None = None
    slots: Slots | None = None
    certified: Certified | None = None
    linkage: Linkage | None = None
    cells: FloatArray | None = None  # of boxes: places and sides. Shape: rows by 6
    facts: Mapping[str, str] = field(default_factory=dict)  # what else the plan states about its model
    less: Less | None = None  # how rows may change places under the model
    weighed_last: bool = False  # whether the probability of fit is computed for the final plan only

    @property
    def assignment(self) -> IntArray:
        assert self.bin_of_row is not None  # a sealed plan states its own linkage
        return self.bin_of_row

    def placed(self, bin_of_row: IntArray, kinds: IntArray, **more: Any) -> _Solution:
        """Return the same solution with other bins; those without rows are dropped."""
        used, bins = np.unique(bin_of_row, return_inverse=True)
        return replace(self, bin_of_row=bins.reshape(-1), kinds=kinds[used], **more)

    def lowered(self, problem: PackingProblem, extra: int, effort: Effort) -> _Solution | None:
        """Lower the linkage with some more trucks; None if there are not as many."""
        kinds = more_trucks(problem, self.kinds, extra)
        return None if kinds is None or self.less is None else self.less(self, kinds, effort)


Less = Callable[[_Solution, IntArray, Effort], _Solution | None]
"""Lower the linkage of a solution on its trucks and some more."""


def pack(
    release: Release,
    *,
    capacity: Capacity | None = None,
    trucks: Sequence[Truck] | None = None,
    model: Model | None = None,
    by: str | None = None,
    apart: str | None = None,
    spread: int | None = None,
    quantity: str | None = None,
    box: Box | None = None,
    margin: Exact | None = None,
    extra_trucks: int | None = None,
    max_linkage: Exact | None = None,
    seconds: float = DEFAULT_SECONDS,
    progress: Progress | None = None,
) -> Plan:
    """Pack released rows into as few or as cheap trucks as the time allows, with a proved bound.

    Parameters
    ----------
    release
        What the owner published. Nothing else is used.
    capacity
        The capacity of a truck: a number, a text with its unit (``"500kg"``), or one of these for each quantity
        (``["500kg", "volume=9"]``, or ``{"weight": 500, "volume": 9}``).
    trucks
        Instead of ``capacity``: the kinds of truck, with counts and costs. Kinds are chosen for the lowest cost.
    model
        By default :class:`Standard` on upper bounds.
    by, apart
        Public columns. Rows with different values in either never share a truck.
    spread
        No truck takes more than this part (1/spread) of a class.
    quantity
        What to pack, if the release has several quantities and you want only one.
    box
        The sides of a box: they are placed in the truck, whose capacities for them are its inner sides. Such a plan has
        a cell for each row.
    margin
        Share of every capacity to leave free: at least 0, less than 1. The trucks of the plan keep their capacities.
    extra_trucks
        How many trucks the plan may use beyond the fewest, to lower truck linkage.
    max_linkage
        Largest mean truck linkage. The plan gets as few extra trucks as the search needs for it.
    seconds
        Time limit. You get the best plan within this time, with its gap.
    progress
        Called with a line of text whenever the plan or the bound improves.

    Returns
    -------
    Plan
        With its objective, bound, truck linkage and what is unplanned.

    Raises
    ------
    NoPlanError
        If a row is heavier than any truck, there are not enough trucks, or a class cannot be spread that far; or if no
        plan was found with a linkage of at most ``max_linkage``.
    """
    start = time.monotonic()
    if not isinstance(seconds, int | float) or not seconds > 0:
        raise ParameterError(f"seconds must be more than 0. Got {shown(seconds)}.")
    purchase = Purchase.of(extra_trucks, max_linkage)
    chosen = model or Standard()
    if box is not None and capacity is not None:
        capacity = box.capacities(listed(capacity))
    sides = () if box is None else box.sides
    problem = PackingProblem.of(
        release, capacity=capacity, trucks=trucks, by=by, apart=apart, quantity=quantity, spread=spread, sides=sides
    )
    check_model(release, chosen, spread)
    if box is not None:
        _check_box(problem, box, chosen, purchase)
    problem.check_spread()
    deadline = start + seconds
    kept = max(FIRST_LINKAGE_SHARE * seconds, LINKAGE_SHARE * (seconds - FIRST_SECONDS))
    reserve = min(kept, BASE_LINKAGE_SECONDS + len(release) / ROWS_A_SECOND)
    packer = _Packer(problem.with_margin(margin), deadline - reserve, progress)
    base = packer.solve(chosen) if box is None else packer.placed(chosen, box)
    if progress is not None:
        progress(f"{len(base.kinds)} trucks: lowering truck linkage")

    @cache
    def linkage_of(one: _Solution) -> Linkage | None:
        return _linkage(release, one)

    def mean_linkage(one: _Solution) -> float | None:
        linkage = linkage_of(one)
        return None if linkage is None else linkage.mean

    # The linkage of many noisy rows takes its time, which the plan that is returned in the end needs once more.
    before = time.monotonic()
    if release.noisy:
        linkage_of(base)
    deadline -= time.monotonic() - before
    hasty = Deadline(deadline).late
    notes = list(release.owner.cautions(release))
    if base.cells is not None or (hasty and base.bin_of_row is not None and purchase == Purchase()):
        outcome = Outcome(base)
        if base.cells is None:
            notes.append("There was no time to lower truck linkage. Pack again with a longer --time-limit.")
    else:  # slots, and trucks that are to lower linkage, need some time in any case
        stop = Deadline(max(deadline, time.monotonic() + MIN_LINKAGE_SECONDS))
        stop = stop.part(1 - WEIGHING_SHARE if base.weighed_last else 1.0)
        look = release.class_of_row if base.bin_of_row is None else exchangeable(release)
        least = None if release.noisy else len(np.unique(look)) / len(look)  # no plan on this release gets below
        less = partial(base.lowered, packer.problem)
        again = None if release.noisy or base.bin_of_row is None else _go_on(packer.problem)
        outcome = purchase.spend(base, len(base.kinds), less, mean_linkage, least, stop, again=again, hasty=hasty)
    solution = outcome.solution
    if solution.weighed_last:
        solution = replace(solution, certified=_weighed(packer.problem, solution, deadline))
    if margin is not None and box is None:
        solution = _Packer(problem, deadline, progress).in_true_trucks(chosen, solution)
    bound = solution.bound if len(problem.trucks) == 1 else whole_if_possible(solution.bound * problem.unit_cost)
    linkage = linkage_of(solution)
    free = [name for name in release.quantities if name not in problem.quantities]
    if free and quantity is None:
        notes.append(f"The plan does not limit {' and '.join(free)}: the trucks have no capacity for it.")
    if isinstance(chosen, Standard) and problem.without_weights == len(solution.kinds):
        unit = release.certificate.guarantee.protects
        notes.append(
            f"The release saves no truck: a plan with every {unit} as large as its range allows takes as many."
        )
    # Only the owner knows how many rows the policy left out; None says that there may be some.
    attributes = release.certificate.attributes
    leaves_out = any("leave-out" in (item.missing, item.outside, item.unreadable) for item in attributes)
    stated, noise_only = release.certificate.rows.suppressed, release.noisy and release.classes is None
    suppressed = (0 if noise_only else None) if stated is None else stated.count  # noise leaves no row out
    return Plan(
        release=release.certificate.digest,
        bin_of_row=solution.bin_of_row,
        slots=solution.slots,
        truck_of_bin=tuple(problem.trucks[kind].name for kind in solution.kinds.tolist()),
        trucks=problem.trucks if box is None else tuple(map(box.with_volume, problem.trucks)),
        box=box,
        cells=solution.cells,
        model=chosen.describe().model_copy(update=solution.facts),
        bound=bound,
        seconds=time.monotonic() - start,
        quantities=problem.quantities if box is None else _with_volume(problem, box),
        by=by,
        apart=apart,
        spread=spread,
        margin=None if margin is None else plain(share(margin, what="margin")),
        extra_trucks=extra_trucks,
        max_linkage=None if max_linkage is None else plain(share(max_linkage, what="max_linkage")),
        certified=solution.certified,
        protects=release.certificate.guarantee.protects,
        truck_linkage=None if linkage is None else linkage.for_unit(release.certificate.guarantee.protects),
        lower_linkage=outcome.offers,
        least_linkage=outcome.least,
        notes=tuple(notes),
        unplanned=Unplanned(count=suppressed, suppressed=suppressed, left_out=None if leaves_out else 0),
    )


def _go_on(problem: PackingProblem) -> Callable[[_Solution, Effort], _Solution | None]:
    return lambda solution, effort: solution.lowered(problem, 0, effort)


def _linkage(release: Release, solution: _Solution) -> Linkage | None:
    if release.noisy:
        return noisy_linkage(release, solution.assignment) if solution.linkage is None else solution.linkage
    linkage = solution.linkage or truck_linkage(exchangeable(release), solution.assignment)
    if release.certificate.rows.slots is not None:
        return linkage.model_copy(update={"note": linkage_note(release)})
    likely = 1.0 if solution.certified is None else solution.certified.at_least
    if solution.slots is not None or likely >= 1:
        return linkage
    # If it was not certain that everything fits, seeing that it does improves the guess. Not so for noisy rows: the
    # probability over the noise that a plan fits is not its probability given the release.
    after = min(1.0, linkage.worst / likely) if likely > 0 else 1.0
    return linkage.model_copy(update={"if_seen_to_fit": after})


def _check_box(problem: PackingProblem, box: Box, model: Model, purchase: Purchase) -> None:
    """Refuse what does not go with boxes, each with what to do instead."""
    release, units = problem.release, problem.quantities
    missing = [side for side in box.sides if side not in units]
    if missing:
        raise ParameterError(
            f"the truck has no inner {missing[0]}. Give the capacities of all sides of the box, for example "
            f"--capacity 600x240x240{release.uncertain(missing[0]).unit}."
        )
    if len({units[side] for side in box.sides}) > 1:
        raise ParameterError("the sides of a box are released in different units. Ask the owner for one unit.")
    sure = isinstance(model, Stochastic) and release.noisy and model.prior is None
    if model != Standard() and not sure:
        raise ParameterError(
            "boxes are placed by their upper bounds, so that every box fits into its cell. Use the standard model, or "
            "on noisy rows the stochastic model with a risk."
        )
    if release.certificate.rows.slots is not None:
        raise ParameterError(
            "the release has slots instead of rows, and which package fills a slot is open, so no box can be placed. "
            "Pack by volume, or ask the owner for a release with classes."
        )
    if problem.spread is not None or purchase != Purchase():
        raise ParameterError(
            "a spread, extra trucks and a largest linkage are not for boxes: boxes that look alike go to different "
            "trucks as far as they fit. Leave these options out."
        )


def _with_volume(problem: PackingProblem, box: Box) -> dict[str, str]:
    """Return what adds up in a plan of boxes: the other quantities, and the volume."""
    others = {name: unit for name, unit in problem.quantities.items() if name not in box.sides}
    return {**others, box.volume: problem.release.uncertain(box.volume).unit}


@dataclass(frozen=True, eq=False)
class _Packer:
    """A packing problem and its deadline, with one method for each model."""

    problem: PackingProblem
    deadline: float
    progress: Progress | None

    def solve(self, model: Model) -> _Solution:
        match model:
            case Standard():
                return self.standard(model)
            case Robust():
                return self.robust(model)
            case Stochastic() if self.problem.release.noisy:
                return self.noisy(model)
            case Stochastic():
                return self.sampled(model) if model.as_published else self.stochastic(model)
            case Sealed():
                return self.sealed()
        raise ParameterError(
            f"{type(model).__name__} is not a packing model. Use Standard, Robust, Stochastic or Sealed."
        )

    @property
    def seconds_left(self) -> float:
        return max(self.deadline - time.monotonic(), 0.0)

    @property
    def tell(self) -> Telling | None:
        progress, words = self.progress, "trucks" if len(self.problem.trucks) == 1 else "cost"
        if progress is None:
            return None
        return lambda stage, value, bound: progress(
            f"{stage + ': ' if stage.startswith('part') else ''}{words} {value}, at least {bound} needed"
        )

    def in_true_trucks(self, model: Model, solution: _Solution) -> _Solution:
        """Restate the linkage and the probability of fit of a plan made with a margin, for the full capacities."""
        problem, certified = self.problem, solution.certified
        if solution.slots is not None:
            members = problem.class_members()
            if members is None:
                return solution
            # There is always time for an estimate.
            seconds = min(ESTIMATE_SECONDS, max(self.seconds_left / 2, MIN_SECONDS / 2))
            whole, class_of = members[1], problem.class_of_member
            linkage = slots_linkage(
                class_of, whole.values, solution.slots, whole.rooms[solution.kinds], seconds=seconds
            )
            return replace(solution, linkage=linkage)
        if certified is None or certified.at_least >= 1:
            return solution
        if isinstance(model, Stochastic) and model.prior is not None:
            low, high = plan_odds(problem, model, solution.assignment, solution.kinds, Deadline(self.deadline))
            odds = {"at_least": max(low, certified.at_least), "at_most": high}
            return replace(solution, certified=certified.model_copy(update=odds))
        return replace(
            solution,
            certified=_weighed(problem, solution, self.deadline) or certified.model_copy(update={"at_most": 1.0}),
        )

    # Boxes: sides that are placed, and quantities that are added up

    def placed(self, model: Model, box: Box) -> _Solution:
        problem, release = self.problem, self.problem.release
        size_of = {known.name: known.upper for known in problem.known}
        certified: Certified | None = _fits_surely("the release gives an upper bound on every side")
        if release.noisy:
            noisy = replace(problem, known=tuple(known for known in problem.known if known.name in release.bounded))
            if isinstance(model, Stochastic):
                sizes, certified = simultaneous_sizes(noisy, model.risk)
                size_of |= {known.name: size for known, size in zip(noisy.known, sizes, strict=True)}
            else:
                certified = intervals_hold(noisy)
        look = release.class_of_row if release.noisy else exchangeable(release)
        rows = box_rows(problem, box, size_of, look)
        names = [name for name in stacked_first(box, problem.quantities) if name not in box.sides]
        if names:
            others = [known for known in problem.known if known.name in names]
            replace(problem, known=tuple(others)).check_rows_fit([size_of[known.name] for known in others])
        check_boxes_fit(rows, problem.trucks, box.sides)
        # What only adds up is a bound, and a first guess of what goes together.
        whole = whole_cells(rows.sides, inner_sides(problem.trucks, box.sides))
        volume, rooms = whole.volumes()
        known = Uncertain(box.volume, "", volume, volume, None, problem.class_id, None)
        summed = replace(
            problem,
            known=(*(known for known in problem.known if known.name in names), known),
            trucks=tuple(
                replace(truck, capacity={**truck.capacity, box.volume: room})
                for truck, room in zip(problem.with_any_number().trucks, rooms.tolist(), strict=True)
            ),
        )
        stop = Deadline(self.deadline)
        share = stop.part(SUMS_SHARE, SUMS_SECONDS)
        sums = replace(self, problem=summed, deadline=share, progress=None)
        start = sums.by_values([size_of.get(known.name, volume) for known in summed.known])
        result = place_boxes(
            rows,
            problem.trucks,
            box.sides,
            names,
            [int(kind.cost) for kind in problem.kinds(whole.rooms)],
            bound=start.bound,
            start=(start.assignment, start.kinds) if names else None,
            deadline=stop,
            progress=self.tell,
        )
        if result is None:
            raise _no_plan(problem)
        checked = faults(result.cells, result.bin_of_row, inner_sides(problem.trucks, box.sides)[result.kinds], rows)
        if checked:  # the check shares nothing with the search
            raise RuntimeError(f"row {checked[0].row} is not placed well: {checked[0].words}")
        return _Solution(
            kinds=result.kinds,
            bound=result.bound,
            bin_of_row=result.bin_of_row,
            cells=result.cells,
            certified=certified,
        )

    # Standard: one number per row

    def standard(self, model: Standard) -> _Solution:
        values = [model.weights(known) for known in self.problem.known]
        self.problem.check_rows_fit(values)
        solution = self.by_values(values)
        if model.statistic != "upper":
            return replace(solution, weighed_last=True)
        if (slots := self.problem.release.certificate.rows.slots) is not None:
            sure = nearest_float(1 - exact(slots.risk, what="risk"))
            return replace(solution, certified=Certified(at_least=sure, at_most=1.0, rests_on=SLOTS_HOLD))
        if self.problem.release.noisy:
            return replace(solution, certified=intervals_hold(self.problem))
        return replace(solution, certified=_fits_surely("the release gives an upper bound on every weight"))

    def by_values(self, values: Sequence[FloatArray]) -> _Solution:
        problem = self.problem
        # Each noisy row is a class of its own, so it cannot take the place of another.
        alone = problem.release.noisy and problem.release.classes is None
        if len(values) == 1 and len(problem.trucks) == 1:
            room = problem.trucks[0].capacity[problem.known[0].name]
            stop = Deadline(self.deadline).part(1.0 if problem.spread is None else 1 / 2)
            bins, least, numbers = pack_apart(values[0], room, rows_by_group(problem.group), stop, self.tell)
            bound = sum(map(max, least, problem.fewest_trucks))
            num = int(bins.max()) + 1
            kinds = np.zeros(num, dtype=np.int64)
            if problem.spread is not None and not any(map(int.__lt__, numbers, problem.fewest_trucks)):
                effort = Effort(time.monotonic() + _short(self.deadline))
                bins = spread_rows(problem, problem.whole(values), bins, kinds, effort)
            if not over_caps(problem.class_id, bins, problem.caps, num):
                _check_count(problem, num, bound)
                return self.by_sums(values, _Solution(kinds=kinds, bound=bound, bin_of_row=bins))
        elif alone:
            whole = problem.whole(values)
            bins, kinds, bound = self.by_members(whole, problem.group)
            bound = bound if whole.exact else self.bound_below(whole, problem.group)
            solution = _Solution(kinds=kinds, bound=bound, bin_of_row=bins)
            return self.by_sums(values, solution)
        return self.by_types(values)

    def by_sums(self, values: Sequence[FloatArray], solution: _Solution, look: IntArray | None = None) -> _Solution:
        """Say that rows may change places as long as their values fit."""
        problem, whole = self.problem, self.problem.whole(values)
        own = problem.class_id if problem.release.noisy else exchangeable(problem.release) if look is None else look

        def less(solution: _Solution, kinds: IntArray, effort: Effort) -> _Solution:
            spread = solution.placed(spread_rows(problem, whole, solution.assignment, kinds, effort, look), kinds)
            few = not problem.release.noisy and len(problem.class_sizes) <= MAX_TIGHTENED_CLASSES
            if (
                len(kinds) > len(solution.kinds)
                or not few
                or effort.hasty
                or effort.over
                or together(own, spread.assignment) <= least_together(own, len(kinds))
            ):
                return spread
            # A spread that costs no truck may need another packing, which exchanges do not reach.
            with contextlib.suppress(NoPlanError):
                stop = time.monotonic() + min(TIGHTENED_SECONDS, max(effort.deadline - time.monotonic(), 0.0))
                other = replace(self, deadline=stop, progress=None).by_types(values)
                costs = [sum(problem.trucks[kind].cost for kind in one.kinds.tolist()) for one in (other, spread)]
                bins = spread_rows(problem, whole, other.assignment, other.kinds, effort, look)
                if costs[0] <= costs[1] and together(own, bins) < together(own, spread.assignment):
                    return solution.placed(bins, other.kinds)
            return spread

        return replace(solution, less=less)

    def by_types(self, values: Sequence[FloatArray]) -> _Solution:
        """Pack several quantities, several kinds of truck, or a spread: rows of one class and size are a type."""
        problem, whole = self.problem, self.problem.whole(values)
        table = np.column_stack([problem.group, problem.class_id, whole.values])
        types, first, type_of, times = np.unique(
            table, axis=0, return_index=True, return_inverse=True, return_counts=True
        )
        # A class of one type is capped as a class. True weights split classes, but they are never spread.
        caps, groups = np.minimum(times, problem.caps[types[:, 1]]), types[:, 0]
        if too_many_types(types[:, 2:], times, whole.rooms):
            kinds = problem.kinds(whole.rooms)
            packed = pack_types(types[:, 2:], times, caps, groups, kinds, seconds=self.seconds_left, progress=self.tell)
            if packed is None:
                raise _no_plan(problem)
            bins = packed[0].bin_of_item(type_of.reshape(-1))
            least = packed[1] if whole.exact else self.bound_below(whole, problem.group)
            solution = _Solution(kinds=packed[0].kinds, bound=least, bin_of_row=_least_linked(problem, bins))
            return self.by_sums(values, solution)

        def packer(sizes: IntArray, rooms: IntArray) -> ChancePacker:
            classes: list[ClassSizes] = [
                Members(np.repeat(line[None], number, axis=0)) for line, number in zip(sizes, times, strict=True)
            ]
            return ChancePacker(classes, caps, problem.kinds(rooms), risk=Fraction(0), groups=groups)

        surely = packer(types[:, 2:], whole.rooms)
        share = 1.0 if whole.exact else PACKING_SHARE
        packing = surely.solve(deadline=Deadline(self.deadline).part(share), progress=self.tell)
        if packing is None:
            raise _no_plan(problem)
        bound = packing.bound
        if not whole.exact:  # then the bound needs numbers that are rounded down
            below = packer(whole.below[first], whole.below_rooms)
            lower = below.solve(deadline=Deadline(self.deadline))
            bound = 0 if lower is None else lower.bound
        packing = _less_linked(surely, replace(packing, bound=bound), self.deadline)
        bins = np.empty(len(table), dtype=np.int64)
        order = np.argsort(type_of.reshape(-1), kind="stable")
        of_type, places = np.nonzero(packing.counts.T)
        bins[order] = np.repeat(places, packing.counts[places, of_type])
        solution = _Solution(kinds=packing.kinds, bound=bound, bin_of_row=_least_linked(problem, bins))
        return self.by_sums(values, solution)

    def by_members(self, whole: Whole, group_of: IntArray) -> tuple[IntArray, IntArray, int]:
        """Pack single items in whole numbers: bin of each, kind of each bin, bound."""
        kinds = self.problem.kinds(whole.rooms)
        if len(kinds) == 1 and whole.values.shape[1] == 1 and int(whole.values.max()) <= kinds[0].capacity[0]:
            numbers, room = whole.values[:, 0].astype(np.float64), float(kinds[0].capacity[0])
            bins, least, _ = pack_apart(numbers, room, rows_by_group(group_of), self.deadline, self.tell)
            num = int(bins.max()) + 1
            if kinds[0].count is not None and num > kinds[0].count:
                raise _no_plan(self.problem)
            return bins, np.zeros(num, dtype=np.int64), sum(map(max, least, self.problem.fewest_trucks))
        try:
            packed = pack_vectors(whole.values, kinds, seconds=self.seconds_left, groups=group_of, progress=self.tell)
        except NoPlanError:
            self.problem.check_rows_fit([known.lower for known in self.problem.known])
            raise _no_plan(self.problem) from None
        bins = np.empty(len(whole.values), dtype=np.int64)
        for number, items in enumerate(packed.bins):
            bins[items] = number
        return bins, np.array(packed.kind_of_bin, dtype=np.int64), int(packed.bound)

    # Stochastic and robust

    def noisy(self, model: Stochastic) -> _Solution:
        problem = self.problem
        if model.prior is None:
            sizes, certified = simultaneous_sizes(problem, model.risk)
            problem.check_rows_fit(sizes)
            return replace(self.by_values(sizes), certified=certified)
        # The sizes may need more trucks than there are, even if the rows do not.
        free = problem.with_any_number()

        def packed(sizes: Sequence[FloatArray], seconds: float) -> tuple[IntArray, IntArray, int]:
            free.check_rows_fit(sizes)
            solution = _Packer(free, time.monotonic() + seconds, None).by_values(sizes)
            return solution.assignment, solution.kinds, solution.bound

        plan = likely_plan(free, model, packed, rows_by_group(problem.group), self.deadline, self.tell)
        if len(problem.trucks) == 1:
            _check_count(problem, len(plan.kinds), plan.bound)
        odds, risk = odds_of(problem, Prior.parse(model.prior)), model.risk

        def less(solution: _Solution, kinds: IntArray, effort: Effort) -> _Solution:
            start = solution.assignment
            stop, likely = Deadline(effort.deadline), 0.0

            def accepted(bins: IntArray) -> bool:
                nonlocal likely
                chance = odds.at_least(bins, kinds, stop)
                likely = chance if chance >= 1 - risk else likely
                return chance >= 1 - risk

            bins = spread_checked(problem, start, kinds, accepted, effort)
            if bins is start:
                return solution.placed(bins, kinds)
            stated = {"at_least": likely, "at_most": odds.at_most(bins, kinds, stop)}
            return solution.placed(bins, kinds, certified=plan.certified.model_copy(update=stated))

        return _Solution(
            kinds=plan.kinds, bound=plan.bound, bin_of_row=plan.bin_of_row, certified=plan.certified, less=less
        )

    def stochastic(self, model: Stochastic) -> _Solution:
        release, members = self.problem.release, self.problem.class_members()
        if members is not None:
            return self.by_chance(*members, model.risk, MULTISETS)
        if release.certificate.rows.levels is not None:
            # The ends of intervals of a public hierarchy say nothing about where the weights inside are.
            return self.surely()
        rests = "bounds alone, assuming that one member of a class is at each end and the others are uniform in between"
        if any(known.nominal is not None for known in self.problem.known):
            rests += " (the mean is not used)"
        return self.by_chance(*self.problem.class_bounds(), model.risk, rests)

    def by_chance(self, classes: list[ClassSizes], whole: Whole, risk: Fraction, rests: str) -> _Solution:
        problem = self.problem
        if int(np.bincount(problem.group_of_class).max()) > MAX_CLASSES:
            return self.surely()
        packer = ChancePacker(
            classes, problem.caps, problem.kinds(whole.rooms), risk=risk, groups=problem.group_of_class
        )
        start, upper = None, None
        try:  # the plan on upper bounds is valid at any risk
            # With very many classes, or with groups and no risk, the first plan is most of what the time allows.
            much = len(classes) > MAX_CLASSES or (risk == 0 and problem.group.any())
            share = PACKING_SHARE if much else START_SHARE
            stop = time.monotonic() + self.seconds_left * share
            upper = replace(self, deadline=stop, progress=None).standard(Standard())
            slots = Slots.of_assignment(upper.assignment, problem.class_id)
            if len(classes) > MAX_CLASSES and len(upper.kinds) * len(classes) > MAX_GROUPED_COUNTS:
                return self.surely()
            start = slots.table(len(upper.kinds), len(problem.class_sizes)), upper.kinds
        except NoPlanError:
            pass
        packing = packer.solve(deadline=Deadline(self.deadline), progress=self.tell, start=start)
        if packing is None:
            problem.check_rows_fit([known.upper for known in problem.known])
            raise _no_plan(problem)
        first = None if start is None else packer.planned(*start)
        packing = _less_linked(packer, packing, self.deadline, also=[] if first is None else [first])
        # Sizes that were rounded up prove neither that more trucks are needed nor that other orders do not fit.
        bound, at_most = (packing.bound, packing.at_most) if whole.exact else (self.least_cost(), 1.0)
        # Row numbers are random. Sensitive values may depend on weights: assigned by them, a plan would fit less often.
        alike = exchangeable(problem.release) if risk == 0 else problem.class_id
        certified = Certified(at_least=packing.at_least, at_most=at_most, rests_on=rests)
        bins = _dealt(problem, alike, _slots(packing.counts))

        def cost(kinds: IntArray) -> int:
            return sum(int(packer.costs[kind]) for kind in kinds.tolist())

        def less(solution: _Solution, kinds: IntArray, effort: Effort) -> _Solution:
            look, sure = exchangeable(problem.release), None
            if upper is not None and cost(upper.kinds) <= cost(kinds):  # upper bounds are spread faster, and fit surely
                free = len(kinds) - (len(upper.kinds) if len(problem.trucks) == 1 else len(solution.kinds))
                sure = upper.lowered(problem, free, effort.part(UPPER_SHARE))
            lowest, start = solution, solution.assignment
            if sure is not None and np.array_equal(sure.kinds, kinds[: len(sure.kinds)]):
                start = min(start, sure.assignment, key=lambda bins: together(alike, bins))
            spread = spread_likely(problem, packer, whole, alike, start, kinds, effort)
            if spread is not None:
                odds = {"at_least": spread.packing.at_least, "at_most": spread.packing.at_most if whole.exact else 1.0}
                stated = solution.certified if risk == 0 else certified.model_copy(update=odds)
                # Rows of a class are assigned in turn, as above.
                bins = spread.bin_of_row if risk == 0 else _dealt(problem, alike, _slots(spread.packing.counts))
                lowest = solution.placed(bins, kinds, certified=stated)
            if (
                sure is None
                or cost(sure.kinds) > cost(lowest.kinds)
                or together(look, sure.assignment) >= together(look, lowest.assignment)
            ):
                return lowest
            stated = solution.certified if risk == 0 else sure.certified
            return solution.placed(sure.assignment, sure.kinds, certified=stated)

        return _Solution(kinds=packing.kinds, bound=bound, bin_of_row=bins, certified=certified, less=less)

    def surely(self) -> _Solution:
        """Plan on upper bounds, valid at any risk, for many classes or if weights inside a class are unknown."""
        problem = self.problem
        solution = replace(self, deadline=time.monotonic() + self.seconds_left / 2).standard(Standard())
        facts = {"from_": f"upper bounds: {len(problem.class_sizes)} classes"}
        return replace(solution, bound=min(self.least_cost(), solution.bound), facts=facts)

    def least_cost(self) -> int:
        """Bound the cost of any plan that can fit: there is room for the true weights, or for the smallest possible."""
        problem, members = self.problem, self.problem.release.members
        values, group = [known.lower for known in problem.known], problem.group
        if members is not None:
            values = [members.column(known.name).to_numpy() for known in problem.known]
            group = problem.group_of_class[problem.class_of_member]
        return self.bound_below(problem.whole(values), group)

    def bound_below(self, whole: Whole, group: IntArray) -> int:
        """Bound the cost by numbers that are rounded down, and rooms that are rounded up."""
        kinds = self.problem.kinds(whole.below_rooms)
        items = [whole.below[rows] for rows in rows_by_group(group)]
        costs, stop = [int(kind.cost) for kind in kinds], Deadline(self.deadline).part(START_SHARE)
        return bound_parts(items, self.problem.fewest_trucks, kinds, costs, stop).total

    def robust(self, model: Robust) -> _Solution:
        members = self.problem.class_members() if model.budget == "largest" else None
        if members is not None:
            solution = self.by_chance(*members, Fraction(0), "")
            return replace(solution, certified=_fits_surely("the released multisets: the largest members fit"))
        if model.budget == "largest":
            raise ParameterError(
                "the robust model with the largest members of a class needs multisets, which the release does not "
                "have. Use the standard, stochastic or sealed model. An owner who releases by partition or full-domain "
                'can add multisets: statistic = "multiset".'
            )
        if len(self.problem.known) > 1 or len(self.problem.trucks) > 1:
            raise ParameterError(
                "the budgeted robust model packs only one quantity into one kind of truck. Use the stochastic model, "
                'or budget="largest".'
            )
        # Upper bounds may need more trucks than there are, even if the model does not.
        free = replace(self, problem=self.problem.with_any_number())
        solution = replace(free, deadline=Deadline(self.deadline).part(BUDGETED_SHARE)).standard(Standard())
        least, num_upper = 0, len(solution.kinds)
        if self.problem.known[0].nominal is not None:  # the means alone are a lower bound for the model
            part = replace(free, progress=None, deadline=Deadline(self.deadline).part(BUDGETED_SHARE))
            least = part.by_values([self.problem.known[0].nominal]).bound
        if least == num_upper:
            solution = replace(solution, facts={"equals": "upper bounds: the means need as many trucks"})
        elif (packing := budgeted_packing(free.problem, model, deadline=self.deadline, known_bins=num_upper)) is None:
            # The budget covers all rows of any bin, so the model is the upper bound.
            solution = replace(solution, facts={"equals": "upper bounds: the budget is more than a bin holds"})
        elif packing.counts is None:
            solution = replace(solution, bound=max(packing.bound, least))
        else:
            bins = _dealt(free.problem, free.problem.class_id, _slots(packing.counts))
            kinds = np.zeros(len(packing.counts), dtype=np.int64)
            solution = _Solution(kinds=kinds, bound=max(packing.bound, least), bin_of_row=bins, weighed_last=True)
            solution = replace(solution, less=self.checked(lambda bins: budget_holds(self.problem, model, bins)))
        _check_count(self.problem, len(solution.kinds), solution.bound)
        return solution

    def sampled(self, model: Stochastic) -> _Solution:
        problem, scenarios = self.problem, self.problem.known[0].scenarios
        simple = len(problem.known) == 1 and len(problem.trucks) == 1 and problem.spread is None
        if not simple or problem.group.any() or scenarios is None:
            raise ParameterError(
                "the published stochastic model packs only one quantity of a release with multisets into one kind of "
                "truck, without groups or spread. Use Stochastic(risk=...) without as_published."
            )
        problem.check_rows_fit([problem.known[0].upper])
        capacity = problem.trucks[0].capacity[problem.known[0].name]
        bins, bound = sampled_assignment(
            scenarios,
            problem.class_id,
            capacity,
            risk=model.risk,
            num_scenarios=model.scenarios,
            seconds=self.seconds_left * (1 - WEIGHING_SHARE),
            seed=model.seed,
            progress=self.progress,
        )
        num = int(bins.max()) + 1
        _check_count(problem, num, bound or 0)
        # The bound is for the sampled model. It says nothing about plans that really fit.
        kinds = np.zeros(num, dtype=np.int64)
        solution = _Solution(kinds=kinds, bound=min(bound or 0, num), bin_of_row=bins, weighed_last=True)
        numbers, weights = _sampled_weights(scenarios, problem.class_id, capacity, model.scenarios, model.seed)
        sample = _Sample(weights, numbers.capacity, _misses(model.risk, model.scenarios), 1, bins)
        return replace(solution, less=self.checked(sample.fits))

    def checked(self, accepted: Callable[[IntArray], bool]) -> Less:
        """Say that rows may change places as long as a check accepts the whole assignment."""
        return lambda solution, kinds, effort: solution.placed(
            spread_checked(self.problem, solution.assignment, kinds, accepted, effort), kinds
        )

    # Sealed

    def sealed(self) -> _Solution:
        """Pack the members themselves, but reveal only how many of each class go into a bin."""
        problem, members = self.problem, self.problem.class_members()
        if members is None:
            open_ = self.standard(Standard())
            open_ = self.by_sums([known.upper for known in problem.known], open_, look=problem.class_id)

            def sealed(solution: _Solution, kinds: IntArray, effort: Effort) -> _Solution | None:
                spread = None if open_.less is None else open_.less(open_, kinds, effort)
                if spread is None:
                    return None
                return replace(_in_slots(problem, spread), facts=solution.facts, less=solution.less)

            return replace(_in_slots(problem, open_), facts={"from_": "upper bounds"}, less=sealed)
        classes, whole = members
        class_of = problem.class_of_member
        part = replace(self, deadline=time.monotonic() + PACKING_SHARE * self.seconds_left)
        kinds, bins, bound = part.spread_members(whole, class_of)
        likely, cheaper = self.likely_slots(classes, whole, kinds, bound)
        if likely is not None and cheaper:
            kinds = likely.kinds
        upper: _Solution | None = None
        with contextlib.suppress(NoPlanError):  # upper bounds may need no more trucks; then every fill fits
            stop = time.monotonic() + START_SHARE * self.seconds_left
            upper = replace(self, deadline=stop, progress=None).standard(Standard())
            upper = self.by_sums([known.upper for known in problem.known], upper, look=problem.class_id)
        choice = problem.kinds(whole.rooms)
        packers = [
            ChancePacker(classes, problem.caps, choice, risk=risk, groups=problem.group_of_class)
            for risk in LIKELY_RISKS
        ]

        def cost(kinds: IntArray) -> int:
            return sum(int(choice[kind].cost) for kind in kinds.tolist())

        def less(solution: _Solution, ours: IntArray, effort: Effort) -> _Solution | None:
            extra = len(ours) - len(kinds)
            options: list[tuple[float, float, IntArray, IntArray]] = []  # guess at the linkage, odds, kinds, counts

            def offer(counts: IntArray, kinds: IntArray, at_least: float) -> None:
                # Roughly what slots reveal: the share of a class in one bin, relative to the number of fills.
                used = counts.any(axis=1)
                guess = counts.max(axis=0).sum() / counts.sum() / max(at_least, 0.05)
                options.append((float(guess), at_least, kinds[used], counts[used]))

            if upper is not None and cost(upper.kinds) <= cost(ours):
                free = len(ours) - len(upper.kinds) if len(choice) == 1 else extra
                spread = upper.lowered(problem, free, effort)
                if spread is not None and cost(spread.kinds) <= cost(ours):
                    counts = class_table(spread.assignment, problem.class_id, len(spread.kinds), len(classes))
                    offer(counts, spread.kinds, 1.0)
            if likely is not None and cost(likely.kinds) <= cost(kinds):
                theirs = more_trucks(problem, likely.kinds, extra)
                rows = _dealt(problem, problem.class_id, _slots(likely.counts))
                for packer in () if effort.hasty else packers:
                    floor = least_together(class_of, len(ours)) / len(class_of)
                    if theirs is None or effort.over or min((option[0] for option in options), default=1.0) <= floor:
                        break
                    likelier = spread_likely(problem, packer, whole, problem.class_id, rows, theirs, effort)
                    if likelier is not None:
                        offer(likelier.packing.counts, theirs, likelier.packing.at_least)
            if not (likely is not None and cheaper):
                variants = [bins]
                for seed in range(VARIANTS if len(class_of) <= MAX_VARIED_ROWS else 1):
                    variants.append(spread_members(problem, whole, bins, ours, effort, seed))
                for variant in variants:
                    if not over_caps(class_of, variant, problem.caps, len(ours)):
                        offer(class_table(variant, class_of, len(ours), len(classes)), ours, 0.0)
            if not options:
                assert likely is not None
                offer(likely.counts, likely.kinds, likely.at_least)
            best: _Solution | None = None
            for _, at_least, own, counts in sorted(options, key=lambda option: option[0]):
                # No fill hides more than the largest share of a class does.
                least = float(counts.max(axis=0).sum() / counts.sum())
                if best is not None and best.linkage is not None:
                    counted = best.linkage.kind == "exact" and not effort.over
                    if best.linkage.mean <= least or not (counted or at_least == 1):
                        continue
                slots = _slots(counts)
                if at_least == 1 and len(class_of) > MAX_COUNTED_ROWS:  # every fill fits
                    rows = np.repeat(slots.class_id, slots.count)
                    linkage: Linkage | None = truck_linkage(rows, np.repeat(slots.bin, slots.count))
                else:
                    left = max(effort.deadline - time.monotonic(), MIN_SECONDS)
                    seconds = min(effort.estimating, left) if best is None else 0.0
                    linkage = slots_linkage(
                        class_of, whole.values, slots, whole.rooms[own], seconds=seconds, counting=COUNTING_SECONDS
                    )
                if linkage is not None and (best is None or best.linkage is None or linkage.mean < best.linkage.mean):
                    best = replace(solution, kinds=own, slots=slots, linkage=linkage)
            if best is None or best.slots is None or best.linkage is None or best.linkage.kind != "exact":
                return best
            slots, linkage = spread_slots(problem, whole, best.slots, best.kinds, best.linkage, effort)
            return replace(best, slots=slots, linkage=linkage)

        return _Solution(
            kinds=kinds,
            bound=bound if whole.exact else self.bound_below(whole, problem.group_of_class[class_of]),
            certified=_fits_surely("the owner knows the weights and fills the slots; a feasible fill exists"),
            facts={"from_": "multisets"},
            less=less,
        )

    def likely_slots(
        self, classes: list[ClassSizes], whole: Whole, kinds: IntArray, bound: int
    ) -> tuple[ClassPacking | None, bool]:
        """Find slots that reveal less, because many fills fit, at no higher cost; and whether they cost less."""
        problem = self.problem
        choice = problem.kinds(whole.rooms)
        if len(classes) * len(kinds) > MAX_COUNTS:
            return None, False
        most = sum(int(choice[kind].cost) for kind in kinds.tolist())
        plans: list[ClassPacking] = []
        for risk in LIKELY_RISKS:
            packer = ChancePacker(classes, problem.caps, choice, risk=risk, groups=problem.group_of_class)
            # Packing the members may have taken all the time, and still be worse than a quick packing by classes.
            seconds = min(LINKAGE_SECONDS, self.seconds_left)
            if risk and not seconds:
                break
            plan = packer.solve(seconds=seconds, aim=min(bound, most))
            if plan is not None and plan.cost <= min([most, *(one.cost for one in plans)]):
                plans.append(_less_linked(packer, plan, self.deadline))
        if not plans:
            return None, False
        cost = min(plan.cost for plan in plans)
        # Roughly what slots reveal: the share of a class in one bin, relative to the number of fills.
        best = min(
            (p for p in plans if p.cost == cost), key=lambda p: p.counts.max(axis=0).sum() / max(p.at_least, 0.05)
        )
        return best, cost < most

    def spread_members(self, whole: Whole, class_of: IntArray) -> tuple[IntArray, IntArray, int]:
        """Pack members within the spread, with more bins if necessary: kinds of bins, bin of each member, bound."""
        problem, rooms = self.problem, whole.rooms
        group_of = problem.group_of_class[class_of]
        bins, kinds, bound = self.by_members(whole, group_of)
        if problem.spread is not None:  # a group may need more trucks for its classes than for its weights
            used = np.bincount(group_of[np.unique(bins, return_index=True)[1]], minlength=len(problem.fewest_trucks))
            more = more_trucks(problem, kinds, int(np.maximum(np.array(problem.fewest_trucks) - used, 0).sum()))
            if more is None:
                raise _no_plan(problem)
            kinds = more
        while over_caps(class_of, bins, problem.caps, len(kinds)):
            if not self.seconds_left:
                # There is no time to spread them: pack upper bounds within the spread, which first fit does at once.
                largest = np.maximum.reduceat(whole.values, np.cumsum(problem.class_sizes) - problem.class_sizes)
                sizes, caps, groups = problem.class_sizes, problem.caps, problem.group_of_class
                packed = pack_types(largest, sizes, caps, groups, problem.kinds(rooms), seconds=0.0)
                if packed is None:
                    raise _no_plan(problem)
                bins, kinds = packed[0].bin_of_item(class_of), packed[0].kinds
                break
            bins = spread_members(problem, whole, bins, kinds, Effort(time.monotonic() + _short(self.deadline)))
            if not over_caps(class_of, bins, problem.caps, len(kinds)):
                break
            more = more_trucks(problem, kinds, 1)
            if more is None:
                raise _no_plan(problem)
            kinds = more
        used, bins = np.unique(bins, return_inverse=True)
        cheapest = min(int(kind.cost) for kind in problem.kinds(rooms))
        return kinds[used], bins.reshape(-1), max(bound, sum(problem.fewest_trucks) * cheapest)


def _in_slots(problem: PackingProblem, solution: _Solution) -> _Solution:
    """Seal a plan of which every fill fits, so that all fills are equally likely."""
    slots = Slots.of_assignment(solution.assignment, problem.class_id)
    return replace(solution, bin_of_row=None, slots=slots, linkage=truck_linkage(problem.class_id, solution.assignment))


def _fits_surely(rests_on: str) -> Certified:
    return Certified(at_least=1.0, at_most=1.0, rests_on=rests_on)


def _short(deadline: float) -> float:
    return Deadline(deadline).part(most=LINKAGE_SECONDS).left


def _check_count(problem: PackingProblem, num: int, bound: int) -> None:
    count = problem.trucks[0].count
    if count is not None and num > count:
        if problem.spread is not None:
            raise _no_plan(problem)
        more = "cannot be enough" if bound > count else "were not enough in the time limit"
        raise NoPlanError(f"{count} trucks {more}: this plan needs {num}, and any plan needs at least {bound}.")


def _no_plan(problem: PackingProblem) -> NoPlanError:
    counts = [f"{truck.count} of {truck.name}" for truck in problem.trucks if truck.count is not None]
    if problem.spread is None:
        available = ", ".join(counts) or "any number"
        return NoPlanError(
            f"Dunnage could not make a plan with the available trucks ({available}). Use more or larger trucks."
        )
    # How far classes could be spread over the available trucks, judging by numbers alone.
    most = None if len(counts) < len(problem.trucks) else sum(truck.count or 0 for truck in problem.trucks)
    sizes = problem.class_sizes
    fitting = [
        spread
        for spread in range(1, int(sizes.min()) + 1)
        if most is None or bool((-(-sizes // (sizes // spread)) <= most).all())
    ]
    return NoPlanError(
        f"Dunnage could not make a plan with a spread of {problem.spread}"
        + (f" and the available trucks ({', '.join(counts)})" if counts else "")
        + (f". The spread can be at most {max(fitting)}." if fitting else ". Use more trucks.")
    )


def _slots(counts: IntArray) -> Slots:
    bins, classes = np.nonzero(counts)
    return Slots(bins, classes, counts[bins, classes])


def _dealt(problem: PackingProblem, group: IntArray, slots: Slots) -> IntArray:
    """Assign the places of each class to its rows in turn, so that rows that look alike go to different trucks."""
    turn = np.arange(int(slots.count.sum())) - np.repeat(np.cumsum(slots.count) - slots.count, slots.count)
    bins, classes = np.repeat(slots.bin, slots.count), np.repeat(slots.class_id, slots.count)
    bin_of_row = np.empty(len(problem.class_id), dtype=np.int64)
    bin_of_row[np.lexsort((group, problem.class_id))] = bins[np.lexsort((bins, turn, classes))]
    return bin_of_row


def _least_linked(problem: PackingProblem, bin_of_row: IntArray) -> IntArray:
    """Return the assignment, or the same with rows assigned in turn, whichever reveals less."""
    group = exchangeable(problem.release)
    in_turn = _dealt(problem, group, Slots.of_assignment(bin_of_row, problem.class_id))
    linkages = [(truck_linkage(group, bins), bins) for bins in (bin_of_row, in_turn)]
    return min(linkages, key=lambda one: (one[0].mean, one[0].worst))[1]


def _less_linked(
    packer: ChancePacker, plan: ClassPacking, deadline: float, also: Sequence[ClassPacking] = ()
) -> ClassPacking:
    """Look for a plan of the same cost, also among others, that spreads classes more widely: tighten the caps."""
    stop = time.monotonic() + _short(deadline)
    best = plan
    if len(packer.classes) > MAX_TIGHTENED_CLASSES or (packer.risk and len(packer.kinds[0].capacity) > 1):
        stop = -math.inf  # each try takes too long
    low, high = 1, len(plan.kinds)  # spreading over ``low`` bins works; over more than ``high`` does not
    while low < high and time.monotonic() < stop:
        middle = (low + high + 1) // 2
        caps = np.minimum(packer.caps, np.maximum(1, -(-packer.demand // middle)))
        tighter = ChancePacker(
            packer.classes, caps, packer.kinds, risk=packer.exact_risk, groups=packer.groups, seed=packer.seed
        )
        packing = tighter.solve(deadline=Deadline(stop), aim=plan.cost)
        if packing is not None and packing.cost <= plan.cost:
            best, low = replace(packing, bound=plan.bound), middle
        else:
            high = middle - 1
    others = [replace(one, bound=plan.bound) for one in also if one.cost <= plan.cost]
    return min([plan, best, *others], key=lambda one: int(one.counts.max(axis=0).sum()))


def _weighed(problem: PackingProblem, solution: _Solution, deadline: float = math.inf) -> Certified | None:
    """Compute how likely everything fits, for a model that does not; None if that is unknown or time is up."""
    members = problem.class_members()
    if members is None or solution.bin_of_row is None or len(solution.kinds) > MAX_WEIGHED_BINS:
        return None
    classes, whole = members
    kinds = problem.kinds(whole.rooms)
    packer = ChancePacker(classes, problem.class_sizes, kinds, risk=Fraction(0), groups=problem.group_of_class)
    slots = Slots.of_assignment(solution.bin_of_row, problem.class_id)
    stop = Deadline(deadline)
    low, high = packer.weighed(slots.table(len(solution.kinds), len(classes)), solution.kinds, stop)
    if stop.late and (low, high) == (0.0, 1.0):
        return None
    return Certified(at_least=low, at_most=high, rests_on=MULTISETS)


# Groups of rows packed apart, one quantity into one kind of truck


class Apart(NamedTuple):
    bin_of_row: IntArray
    bounds: list[int]  # of each group
    bins: list[int]  # of each group


def pack_apart(
    weights: FloatArray, capacity: float, groups: list[IntArray], deadline: float, progress: Telling | None
) -> Apart:
    """Pack each group of rows apart; time that some do not use goes to those with a gap."""
    plans: dict[int, tuple[list[list[int]], int]] = {}

    def solve(number: int, stop: Deadline, before: tuple[list[list[int]], int] | None) -> tuple[list[list[int]], int]:
        tell, seconds = progress if len(groups) == 1 else None, max(stop.left, 0.05 / len(groups))
        bins, least = packed_group(weights[groups[number]], capacity, seconds, tell, seed=int(before is not None))
        if before is not None:
            bins, least = min(bins, before[0], key=len), max(least, before[1])
        plans[number] = bins, least
        if progress is not None and len(groups) > 1:
            so_far = [len(bins) for bins, _ in plans.values()], [least for _, least in plans.values()]
            progress(f"part {number + 1} of {len(groups)}", sum(so_far[0]), sum(so_far[1]))
        return plans[number]

    solve_in_turn(len(groups), solve, lambda plan: len(plan[0]) - plan[1], Deadline(deadline))
    bin_of_row = np.empty(len(weights), dtype=np.int64)
    lines = [rows[items] for number, rows in enumerate(groups) for items in plans[number][0]]
    bin_of_row[np.concatenate(lines)] = np.repeat(np.arange(len(lines)), [len(line) for line in lines])
    ordered = [plans[number] for number in range(len(groups))]
    return Apart(bin_of_row, [least for _, least in ordered], [len(bins) for bins, _ in ordered])


def packed_group(
    weights: FloatArray, capacity: float, seconds: float, progress: Telling | None = None, seed: int = 0
) -> tuple[list[list[int]], int]:
    """Pack weights that may share a truck: the rows of each bin, and the minimum number of bins."""
    start = time.monotonic()
    numbers = whole_numbers(weights, capacity)
    packing = pack_bins(numbers.items, numbers.capacity, seconds=seconds, progress=progress, seed=seed)
    if numbers.below is None:
        return packing.bins, packing.bound
    # The packing uses numbers rounded up, but only a bound on numbers rounded down is true.
    items, room = numbers.below
    bound = max(l2_bound(items, room), 1)
    left = seconds - (time.monotonic() - start)
    if bound < len(packing.bins) and left > 0:
        bound = max(bound, pack_bins(items, room, seconds=left).bound)
    return packing.bins, bound


# The robust and the stochastic model as published.
#
# Budgeted: a bin fits if it fits while only some of its rows deviate, by as much as they can. A bin with rows of means
# mu and deviations d (upper bound less mean) fits under a budget g if the sum of mu and the g largest d, the last in
# part, is at most the capacity. That is eqs. 20 and 21 with the inner maximum solved. The model does not distinguish
# rows of a class, so it is a cover by patterns.
#
# Sampled: every bin fits in all but a share of some sampled permutations inside classes. The items have labels,
# although rows of a class are exchangeable, so a solver can choose the labels that suit this sample: the plan fits the
# sample, but other permutations less often than it should (it overfits). The model is here to show this; for plans to
# rely on, use the exact probabilities of :class:`dunnage.Stochastic`.
#
# Hoogervorst et al. 2019, section 5.1, eqs. 12-16, and section 5.2, eqs. 17-21.


MAX_PATTERNS = 60_000
_ROUNDING = 1e-9


class BudgetedPacking(NamedTuple):
    counts: IntArray | None  # rows of each class in each bin; None if there is no better plan
    bound: int


def budget_of(model: Robust, num_rows: int, in_bin: int) -> float:
    """Return how many rows of a bin may deviate at the same time."""
    over = num_rows if model.budget == "published" else in_bin
    assert model.risk is not None  # such a budget has one
    return math.sqrt(-2 * over * math.log(float(model.risk) / num_rows))


def robust_load(mean: FloatArray, deviation: FloatArray, budget: float) -> float:
    ordered = -np.sort(-deviation)
    whole = min(len(ordered), int(budget))
    part = (budget - whole) * ordered[whole] if whole < len(ordered) else 0.0
    return float(mean.sum() + ordered[:whole].sum() + part)


def budget_holds(problem: PackingProblem, model: Robust, bin_of_row: IntArray) -> bool:
    known = problem.known[0]
    assert known.nominal is not None
    mean, room = known.nominal, problem.trucks[0].capacity[known.name] * (1 + _ROUNDING)
    parts = [(rows, budget_of(model, len(bin_of_row), len(rows))) for rows in rows_by_group(bin_of_row)]
    return all(robust_load(mean[rows], (known.upper - mean)[rows], budget) <= room for rows, budget in parts)


def budgeted_packing(
    problem: PackingProblem, model: Robust, *, deadline: float, known_bins: int
) -> BudgetedPacking | None:
    """Pack under the budget; None if it covers all rows of any bin, so that upper bounds are the answer."""
    known = problem.known[0]
    if known.nominal is None:
        raise ParameterError(
            f"the budgeted robust model needs the mean of {known.name}, which the release does not have. Use the "
            'standard model, or ask the owner for statistic = "mean" or "multiset".'
        )
    first = np.unique(problem.class_id, return_index=True)[1]
    mean = known.nominal[first]
    deviation = known.upper[first] - mean
    capacity = problem.trucks[0].capacity[known.name]
    most = int(capacity // max(float(mean.min()), 1e-12)) if mean.min() > 0 else len(problem.class_id)
    if budget_of(model, len(problem.class_id), max(1, most)) >= most:
        return None
    # List every pattern that fits, class by class.
    num = len(problem.class_id)
    patterns: list[tuple[tuple[int, int], ...]] = []
    stack: list[tuple[int, tuple[tuple[int, int], ...]]] = [(0, ())]
    stop = Deadline(deadline)
    while stack:
        kind, taken = stack.pop()
        if len(patterns) > MAX_PATTERNS or stop.late:
            return BudgetedPacking(None, 0)
        if kind == len(mean):
            if taken:
                patterns.append(taken)
            continue
        stack.append((kind + 1, taken))
        if taken and problem.group_of_class[taken[0][0]] != problem.group_of_class[kind]:
            continue
        for number in range(1, int(problem.caps[kind]) + 1):
            longer = (*taken, (kind, number))
            rows = np.repeat([one for one, _ in longer], [times for _, times in longer])
            load = robust_load(mean[rows], deviation[rows], budget_of(model, num, len(rows)))
            if load > capacity * (1 + _ROUNDING):
                break
            stack.append((kind + 1, longer))
    pairs = np.array([pair for pattern in patterns for pair in pattern], dtype=np.int64).reshape(-1, 2)
    starts = np.concatenate([[0], np.cumsum([len(pattern) for pattern in patterns])]).astype(np.int64)
    listing = PatternList(starts, pairs[:, 0], pairs[:, 1], np.zeros(len(patterns)), len(mean))
    program = CoverProgram(problem.class_sizes, [KindPatterns(listing, 1, problem.trucks[0].count)])
    cover = program.solve(deadline=deadline, at_most=known_bins)
    bound = known_bins if cover.bound is None else cover.bound
    return BudgetedPacking(cover.patterns if cover.cost is not None else None, bound)


_BOUND_MARGIN = 0.01  # far above the tolerances of solvers
SAMPLE_START_SHARE = 0.1  # of the time, for the first plan, and again for a bound
SOLVER_SECONDS = 0.01  # no solver accepts a limit of 0
_TERMS_A_SECOND = 300_000  # speed of writing down eq. 13


@dataclass(frozen=True, eq=False)
class _Sample:
    """Eqs. 12-16 in whole numbers."""

    weights: IntArray  # of each row in each scenario. Shape: scenarios, rows
    capacity: int  # of a bin
    misses: int  # number of scenarios in which a bin may overflow
    least: int  # minimum number of bins, from the weights alone
    start: IntArray  # bin of each row in a plan that fits in every scenario

    @property
    def num_rows(self) -> int:
        return int(self.weights.shape[1])

    def fits(self, bin_of_row: IntArray) -> bool:
        loads = np.zeros((len(self.weights), int(bin_of_row.max()) + 1), dtype=np.int64)
        np.add.at(loads.T, bin_of_row, self.weights.T)
        return int((loads > self.capacity).any(axis=1).sum()) <= self.misses

    def apart(self) -> list[tuple[int, int]]:
        pairs = [(i, j) for j in range(self.num_rows) for i in range(j)]
        first, second = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        over = (self.weights[:, first] + self.weights[:, second] > self.capacity).sum(axis=0) > self.misses
        return [pairs[number] for number in np.flatnonzero(over).tolist()]


def sampled_assignment(
    members_by_class: Sequence[FloatArray],  # the released values of each class
    class_of_row: IntArray,  # class of each row, as its place in `members_by_class`; a class has as many rows as values
    capacity: float,  # of a bin
    *,
    risk: Exact,  # share of the sampled permutations in which some bin may overflow
    num_scenarios: int = 100,  # number of sampled permutations
    seconds: float,
    seed: int,  # for the sample and the solver
    progress: Progress | None = None,  # called with a line of text whenever the plan improves
) -> tuple[IntArray, int]:
    """Pack rows so that all bins fit in all but a share ``risk`` of sampled permutations inside classes."""
    # Solved with OR-Tools CP-SAT (one worker) if it is installed, otherwise with HiGHS. The search starts from a
    # packing of the largest values of the classes, so there is always a plan. The model has a term for each scenario
    # and pair of rows: if there is no time to write them all down, there is no search.
    deadline = Deadline.after(seconds)
    num_terms = num_scenarios * len(class_of_row) * (len(class_of_row) + 1) // 2
    # Permutations are sampled only if there is time to use them.
    num_used = num_scenarios if num_terms <= seconds * _TERMS_A_SECOND else 0
    numbers, weights = _sampled_weights(members_by_class, class_of_row, capacity, num_used, seed)
    largest = np.zeros(len(members_by_class), dtype=np.int64)
    np.maximum.at(largest, class_of_row, numbers.items)
    packed = pack_bins(largest[class_of_row], numbers.capacity, seconds=seconds * SAMPLE_START_SHARE, seed=seed)
    start = np.empty(len(class_of_row), dtype=np.int64)
    for number, rows in enumerate(packed.bins):
        start[rows] = number
    # At least one scenario must fit, and all have the same weights. Numbers rounded up give no lower bound.
    below = numbers.below or (numbers.items, numbers.capacity)
    least = max(pack_bins(*below, seconds=seconds * SAMPLE_START_SHARE, seed=seed).bound, 1)
    if not num_used or start.max() < least or num_terms > deadline.left * _TERMS_A_SECOND:
        return start, least
    sample = _Sample(weights, numbers.capacity, _misses(risk, num_used), least, start)
    solve = _solve_cp_sat if importlib.util.find_spec("ortools") else _solve_highs
    bins, bound = solve(sample, deadline, seed, progress)
    better = bins is not None and bins.max() < start.max() and sample.fits(bins)
    return bins if bins is not None and better else start, max(bound, least)


def _sampled_weights(
    members_by_class: Sequence[FloatArray], class_of_row: IntArray, capacity: float, num_scenarios: int, seed: int
) -> tuple[WholeNumbers, IntArray]:
    """Return the values and the capacity in whole numbers, and the weight of each row in each scenario."""
    # Rows of a class are exchangeable, so it does not matter which value a row starts with.
    values = np.empty(len(class_of_row))
    values[np.argsort(class_of_row, kind="stable")] = np.concatenate(members_by_class)
    if values.max() > capacity:
        raise NoPlanError(f"a released value is larger than the capacity of a bin, {capacity:g}. Use larger bins.")
    numbers = whole_numbers(values, capacity)
    return numbers, numbers.items[within_class_permutations(class_of_row, num_scenarios, seed)]


def _misses(risk: Exact, num_scenarios: int) -> int:
    """Read a share of scenarios as a decimal: 0.29 of 100 scenarios are 29 of them."""
    return math.floor(exact(risk, what="risk") * num_scenarios)


class _Program(NamedTuple):
    """Eqs. 12-16 as a program in numbers that are 0 or 1: of a row in a bin, of bins and of missed scenarios."""

    pairs: list[tuple[int, int]]  # bin and row; a bin has the name of its first row, so that it has only one name
    rules: list[tuple[dict[int, int], float, float]]  # coefficients by number, least and most of their sum
    cost: FloatArray  # eq. 12: 1 for the first row of a bin

    @classmethod
    def of(cls, sample: _Sample) -> _Program:
        rows, free = range(sample.num_rows), math.inf
        pairs = [(first, row) for row in rows for first in range(row + 1)]
        number_of = {pair: number for number, pair in enumerate(pairs)}
        missed = range(len(pairs), len(pairs) + len(sample.weights))
        rules: list[tuple[dict[int, int], float, float]] = []
        for first in rows:
            for miss, scenario in zip(missed, sample.weights[:, first:].tolist(), strict=True):  # eq. 13
                line = {number_of[first, first + place]: weight for place, weight in enumerate(scenario)}
                line[number_of[first, first]] -= sample.capacity
                rules.append((line | {miss: -max(sum(scenario) - sample.capacity, 0)}, -free, 0))
        rules += [({number_of[i, j]: 1, number_of[i, i]: -1}, -free, 0) for i, j in pairs if i < j]
        rules += [({number_of[first, row]: 1 for first in range(row + 1)}, 1, 1) for row in rows]  # eq. 14
        rules.append((dict.fromkeys(missed, 1), -free, sample.misses))  # eq. 15
        rules.append(({number_of[row, row]: 1 for row in rows}, sample.least, free))
        for one, other in sample.apart():
            rules += [({number_of[first, one]: 1, number_of[first, other]: 1}, -free, 1) for first in range(one + 1)]
        cost = np.zeros(missed.stop)
        cost[[number_of[row, row] for row in rows]] = 1.0
        return cls(pairs, rules, cost)

    def bins(self, used: Sequence[int]) -> IntArray:
        """Return the bin of each row, from the numbers of the pairs in use."""
        first_of_row = {row: first for first, row in (self.pairs[number] for number in used)}
        return np.unique([first_of_row[row] for row in range(len(first_of_row))], return_inverse=True)[1].reshape(-1)


def _solve_cp_sat(
    sample: _Sample, deadline: Deadline, seed: int, progress: Progress | None
) -> tuple[IntArray | None, int]:
    cp_model: Any = importlib.import_module("ortools.sat.python.cp_model")
    model, program = cp_model.CpModel(), _Program.of(sample)
    numbers = [model.new_bool_var("") for _ in program.cost]
    model.minimize(sum(number for number, cost in zip(numbers, program.cost, strict=True) if cost))
    for line, least, most in program.rules:
        total = cp_model.LinearExpr.weighted_sum([numbers[number] for number in line], list(line.values()))
        if least == most:
            model.add(total == most)
        elif math.isfinite(most):
            model.add(total <= most)
        else:
            model.add(total >= least)
    _, first_rows, bin_of_row = np.unique(sample.start, return_index=True, return_inverse=True)
    start = first_rows[bin_of_row]  # the first row of each row's bin
    used = [bool(start[row] == first) for first, row in program.pairs] + [False] * len(sample.weights)
    for number, value in zip(numbers, used, strict=True):
        model.add_hint(number, value)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = max(deadline.left, SOLVER_SECONDS)
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed % 2**31

    class Teller(cp_model.CpSolverSolutionCallback):  # type: ignore[misc]  # known at run time only
        def on_solution_callback(self) -> None:
            if progress is not None:
                progress(f"{self.objective_value:.0f} bins, at least {self.best_objective_bound:.0f} needed")

    status = solver.solve(model, Teller() if progress is not None else None)
    bound = max(math.ceil(solver.best_objective_bound - _BOUND_MARGIN), 0)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None, bound
    return program.bins([place for place, _ in enumerate(program.pairs) if solver.value(numbers[place])]), bound


def _solve_highs(
    sample: _Sample, deadline: Deadline, seed: int, progress: Progress | None
) -> tuple[IntArray | None, int]:
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_matrix

    program = _Program.of(sample)
    lines, least, most = zip(*program.rules, strict=True)
    values = [float(value) for line in lines for value in line.values()]
    columns = [column for line in lines for column in line]
    shape = (len(lines), len(program.cost))
    table = csr_matrix((values, columns, np.cumsum([0, *map(len, lines)])), shape=shape)
    seconds = deadline.left
    if not seconds:
        return None, 0
    # A relative gap would stop short of the optimum when there are many bins.
    options = {"time_limit": max(seconds, SOLVER_SECONDS), "mip_rel_gap": 0.0}
    rule, whole = LinearConstraint(table, least, most), np.ones(len(program.cost))
    result = milp(program.cost, constraints=rule, integrality=whole, bounds=Bounds(0, 1), options=options)
    dual = result.get("mip_dual_bound")
    bound = max(math.ceil(dual - _BOUND_MARGIN), 0) if dual is not None and math.isfinite(dual) else 0
    if progress is not None:
        progress(f"at least {max(bound, sample.least)} bins needed")
    if result.x is None:
        return None, bound
    return program.bins(np.flatnonzero(result.x[: len(program.pairs)] > 0.5).tolist()), bound
