# SPDX-License-Identifier: Apache-2.0
"""Numerical parts of the projection: the dual function, its search along a line, Newton steps, sorting, checking.

All is compiled but the Newton steps by one factor at the end.

Unknowns are held in two rows, a number and what
rounding took of it: where features of great weight contradict each other, theta is a small sum of large unknowns. See
:mod:`dunnage.counting.projection`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dunnage.arrays import FloatArray, IntArray
from dunnage.compiling import kernel, piece

LOOKS = 60  # evaluations in one search along a line; each at least halves the bracket or is a Newton step inside it
CLOSE = 1e-5  # accuracy of one step by conjugate gradients; the next step corrects it
MOST_CONJUGATE = 1_000  # rounds of conjugate gradients; a hundred are usual
SETTLED = 1e-9  # relative residual at which a block by itself is left alone
MOST_SETTLING = 40  # steps in one block by itself; this is but a start
LADDER = 3  # floors, one below the other, that cells are listed down to
LOWEST = -(2.0**60)  # below all values
TINY = 1e-15  # a pivot that cancelled to less than this part of its entry holds no digit: it is put up to that


class Listed(NamedTuple):
    values: FloatArray
    starts: IntArray  # where each group starts
    partial: FloatArray  # for each cell the sum of the values of its group up to it


class Tree(NamedTuple):
    """The unknowns: one for each sum."""

    leaves: IntArray  # for each chain of features and each join group its unknown
    parent: IntArray  # the one above each, always a lower number; -1: none
    slack: FloatArray  # reciprocal of its ratio
    target: FloatArray  # its noisy sum


class Layout(NamedTuple):
    """Where the parts of a Hessian by blocks are."""

    num_shared: int  # unknowns that are in no block
    inner_starts: IntArray
    cross_starts: IntArray  # of the rows of blocks against shared unknowns
    widths: IntArray
    begins: IntArray  # first member of each block


class Arrow(NamedTuple):
    """A Hessian by blocks and a few shared unknowns; see :func:`arrow_step`."""

    layout: Layout
    members: IntArray  # unknowns block by block, the shared ones last
    fixed: FloatArray  # the part that does not depend on active cells
    places: IntArray  # for each pair of chains and join group the entry that its active cells add to


class Chains(NamedTuple):
    """Chains of features that end inside blocks, and the others."""

    inside: IntArray
    outside: IntArray


class Cells(NamedTuple):
    """Cells that are listed: values, falling inside each group, their numbers, and where groups start."""

    values: FloatArray
    cells: IntArray
    starts: IntArray


class Bins(NamedTuple):
    """Bins of values: the lowest value, the highest that is binned, and the logarithm of the width to base 2."""

    low: int
    high: int
    shift: int


@kernel
def partial_sums(values: Any, starts: IntArray) -> Any:
    """Return for each listed cell the sum of the values of its group up to it."""
    partial = np.empty(len(values))
    for group in range(len(starts) - 1):
        total = 0.0
        for cell in range(starts[group], starts[group + 1]):
            total += values[cell]
            partial[cell] = total
    return partial


@kernel
def num_active(values: Any, start: int, stop: int, theta: float, rest: float) -> int:
    """Return how many cells of a group are positive once theta is added: its values fall."""
    low, high = start, stop
    while low < high:
        middle = (low + high) // 2
        if (values[middle] + theta) + rest > 0.0:
            low = middle + 1
        else:
            high = middle
    return low - start


@kernel
def group_sum(listed: Listed, group: int, count: int, theta: float, rest: float) -> Any:
    """Return the sum of the positive cells of a group; cell by cell where partial sums would cancel."""
    values, starts, partial = listed
    start = starts[group]
    total = partial[start + count - 1] + count * theta
    if total < 0.01 * count * abs(theta):
        total = 0.0
        for cell in range(start, start + count):
            total += values[cell] + theta
    return total + count * rest


@kernel
def levels(leaves: IntArray, unknowns: FloatArray) -> Any:
    """Return theta of every group, in two rows: the sum of its unknowns with what each addition rounds off."""
    theta = np.empty((2, leaves.shape[1]))
    for group in range(leaves.shape[1]):
        high, low = 0.0, 0.0
        for chain in range(len(leaves)):
            more = unknowns[0, leaves[chain, group]]
            total = high + more
            part = total - high
            low += (high - (total - part)) + (more - part) + unknowns[1, leaves[chain, group]]
            high = total
        theta[0, group] = high + low
        theta[1, group] = low - (theta[0, group] - high)
    return theta


@kernel
def difference(parent: IntArray, unknowns: FloatArray, place: int) -> Any:
    """Return the multiplier of an unknown: what it is more than the one above it."""
    if parent[place] < 0:
        return unknowns[0, place] + unknowns[1, place]
    return (unknowns[0, place] - unknowns[0, parent[place]]) + (unknowns[1, place] - unknowns[1, parent[place]])


@kernel
def evaluate(
    listed: Listed, tree: Tree, unknowns: FloatArray, theta: FloatArray, counts: Any, gradient: FloatArray
) -> Any:
    """Fill in active cells of each group, whose theta is given, and the gradient of the dual function.

    Return the certified distance to the projection and the largest residual relative to its terms.
    """
    values, starts = listed.values, listed.starts
    leaves, parent, slack, target = tree
    num = len(parent)
    sums, pull = np.zeros(num), np.empty(num)
    for group in range(len(counts)):
        level, rest = theta[0, group], theta[1, group]
        count = num_active(values, starts[group], starts[group + 1], level, rest)
        counts[group] = count
        if count > 0:
            part = group_sum(listed, group, count, level, rest)
            for chain in range(len(leaves)):
                sums[leaves[chain, group]] += part
    for place in range(num):
        pull[place] = slack[place] * difference(parent, unknowns, place) - target[place]
        gradient[place] = pull[place] + sums[place]
    for place in range(num - 1, -1, -1):  # those below come after those above
        if parent[place] >= 0:
            gradient[parent[place]] -= pull[place]
            sums[parent[place]] += sums[place]
    squared, largest, floor = 0.0, 0.0, 0.0
    for place in range(num):
        floor = max(floor, TINY * abs(target[place]))  # so that 1e-60 instead of zero is no error of 100 %
    for place in range(num):
        residual = pull[place] + sums[place]
        squared += residual * residual / slack[place]
        if residual != 0.0:
            above = unknowns[0, parent[place]] if parent[place] >= 0 else 0.0
            scale = floor + sums[place] + abs(target[place]) + slack[place] * (abs(unknowns[0, place]) + abs(above))
            largest = max(largest, abs(residual) / scale)
    return np.sqrt(squared), largest


@kernel
def search(listed: Listed, tree: Tree, theta: FloatArray, gradient: FloatArray, step: FloatArray) -> float:
    """Return how far to go along a step: where the derivative, which rises piecewise linearly, is about zero.

    The end is on the near side of zero, so that the dual function has fallen all the way there, or at zero to
    rounding.
    """
    values, starts = listed.values, listed.starts
    leaves, parent, slack = tree.leaves, tree.parent, tree.slack
    num = theta.shape[1]
    slope = np.zeros(num)
    at_start, bend = 0.0, 0.0
    for place in range(len(step)):
        at_start += gradient[place] * step[place]
        above = step[parent[place]] if parent[place] >= 0 else 0.0
        bend += slack[place] * (step[place] - above) ** 2
    fixed = at_start
    for group in range(num):
        for chain in range(len(leaves)):
            slope[group] += step[leaves[chain, group]]
        count = num_active(values, starts[group], starts[group + 1], theta[0, group], theta[1, group])
        if count > 0:
            fixed -= slope[group] * group_sum(listed, group, count, theta[0, group], theta[1, group])
    low, high, at = 0.0, np.inf, 1.0
    for _ in range(LOOKS):
        rise, second = fixed + at * bend, bend
        for group in range(num):
            level = theta[0, group] + at * slope[group]
            count = num_active(values, starts[group], starts[group + 1], level, 0.0)
            if count > 0:
                rise += slope[group] * group_sum(listed, group, count, level, 0.0)
                second += count * slope[group] ** 2
        if rise <= 0.0:
            low = at
        else:
            high = at
        if rise >= 0.1 * at_start and rise <= -1e-8 * at_start:
            return at
        at -= rise / second
        if not (low < at < high):
            at = 2.0 * low if high == np.inf else 0.5 * (low + high)
    return low


@kernel
def factor(matrix: Any, start: int, num: int, diagonal: Any) -> None:
    """Turn an upper triangle of a flat matrix into its Cholesky factor; ``diagonal`` is that before any subtraction."""
    for row in range(num):
        own = start + row * num
        pivot = np.sqrt(max(matrix[own + row], TINY * diagonal[row]))
        for column in range(row, num):
            matrix[own + column] /= pivot
        matrix[own + row] = pivot
        for lower in range(row + 1, num):
            share, other = matrix[own + lower], start + lower * num
            if share != 0.0:
                for column in range(lower, num):
                    matrix[other + column] -= share * matrix[own + column]


@kernel
def forward(matrix: Any, start: int, num: int, sides: FloatArray, begin: int) -> None:
    """Solve with the transposed factor, in place, for each column of the right-hand sides from row ``begin`` on."""
    width = sides.shape[1]
    for row in range(num):
        own = start + row * num
        for column in range(width):
            sides[begin + row, column] /= matrix[own + row]
        for lower in range(row + 1, num):
            share = matrix[own + lower]
            if share != 0.0:
                for column in range(width):
                    sides[begin + lower, column] -= share * sides[begin + row, column]


@kernel
def backward(matrix: Any, start: int, num: int, side: Any, begin: int) -> None:
    """Solve with the factor, in place, from entry ``begin`` of the right-hand side on."""
    for row in range(num - 1, -1, -1):
        own = start + row * num
        total = side[begin + row]
        for column in range(row + 1, num):
            total -= matrix[own + column] * side[begin + column]
        side[begin + row] = total / matrix[own + row]


@kernel
def reduce_block(entries: FloatArray, layout: Layout, block: int, sides: FloatArray, right: FloatArray) -> None:
    """Factor a block, solve for its rows against the shared unknowns, and take what it says off the shared ones."""
    num_shared, width, begin = layout.num_shared, layout.widths[block], layout.begins[block]
    start, cross, outer = layout.inner_starts[block], layout.cross_starts[block], layout.cross_starts[-1]
    diagonal = np.empty(width)
    for row in range(width):
        diagonal[row] = entries[start + row * width + row]
        for one in range(num_shared):
            sides[begin + row, one] = entries[cross + row * num_shared + one]
    factor(entries, start, width, diagonal)
    forward(entries, start, width, sides, begin)
    for row in range(begin, begin + width):
        for one in range(num_shared):
            share = sides[row, one]
            if share != 0.0:
                right[one, 0] -= share * sides[row, num_shared]
                for other in range(one, num_shared):
                    entries[outer + one * num_shared + other] -= share * sides[row, other]


@kernel
def arrow_step(counts: IntArray, gradient: FloatArray, arrow: Arrow) -> Any:
    """Return the Newton step: a Cholesky factor per block, and one of the Schur complement of the shared unknowns.

    The Hessian is held flat: upper triangles of the blocks, their rows against the shared unknowns, and the triangle of
    those.
    """
    layout, members, fixed, places = arrow
    num_shared, inner_starts, cross_starts, widths, begins = layout
    entries = fixed.copy()
    for pair in range(len(places)):
        for group in range(len(counts)):
            entries[places[pair, group]] += counts[group]
    num, num_local, outer = len(members), len(members) - num_shared, cross_starts[-1]
    sides, right = np.empty((num_local, num_shared + 1)), np.empty((num_shared, 1))
    diagonal = np.empty(num_shared)
    for one in range(num_shared):
        right[one, 0] = -gradient[members[num_local + one]]
        diagonal[one] = entries[outer + one * num_shared + one]
    for row in range(num_local):
        sides[row, num_shared] = -gradient[members[row]]
    for block in range(len(widths)):
        reduce_block(entries, layout, block, sides, right)
    factor(entries, outer, num_shared, diagonal)
    forward(entries, outer, num_shared, right, begins[0])  # zero; as a literal it would have one more version compiled
    answer = np.empty(num)
    for one in range(num_shared):
        answer[num_local + one] = right[one, 0]
    backward(entries, outer, num_shared, answer, num_local)
    for row in range(num_local):
        answer[row] = sides[row, num_shared]
        for one in range(num_shared):
            answer[row] -= sides[row, one] * answer[num_local + one]
    for block in range(len(widths)):
        backward(entries, inner_starts[block], widths[block], answer, begins[block])
    step = np.empty(num)
    for place in range(num):
        step[members[place]] = answer[place]
    return step


@piece
def block_step(counts: Any, gradient: FloatArray, fixed: FloatArray, places: IntArray, start: int) -> Any:
    """Return the Newton step of the unknowns of one block, in rising order, all others held.

    ``fixed`` is the stretch of the block, which starts at ``start``, in the part of the Hessian that does not depend on
    active cells. Unknowns have falling places in it.
    """
    matrix, num, first = fixed.copy(), len(gradient), 0
    for pair in range(len(places)):
        for group in range(len(counts)):
            place = places[pair, group] - start
            if 0 <= place < len(matrix):
                matrix[place] += counts[group]
    side, diagonal = np.empty((num, 1)), np.empty(num)
    for row in range(num):
        side[row, 0], diagonal[row] = -gradient[num - 1 - row], matrix[row * num + row]
    factor(matrix, first, num, diagonal)
    forward(matrix, first, num, side, first)
    answer = side[:, 0].copy()
    backward(matrix, first, num, answer, first)
    return answer[::-1].copy()


@piece
def settle_block(
    listed: Listed, tree: Tree, held: FloatArray, unknowns: FloatArray, fixed: FloatArray, places: IntArray, start: int
) -> None:
    """Minimise the dual function over the unknowns of one block, in place and about; ``held`` is theta of the others.

    Steps are taken as by the method over all blocks, see ``dunnage.counting.projection``.
    """
    num, best = held.shape[0], np.inf
    counts, gradient = np.empty(num, np.int64), np.empty(unknowns.shape[1])
    step, taken, here = np.zeros(unknowns.shape[1]), 0, unknowns.copy()
    theta = levels(tree.leaves, here)
    theta[0] += held
    distance, relative = evaluate(listed, tree, here, theta, counts, gradient)
    while relative > SETTLED and taken < MOST_SETTLING:
        if distance < best:
            best = distance
            unknowns[:] = here
        step = block_step(counts, gradient, fixed, places, start)
        before, slope, origin = theta, gradient.copy(), here.copy()
        for share in range(2):
            here[0] = origin[0] + (step if share == 0 else search(listed, tree, before, slope, step) * step)
            theta = levels(tree.leaves, here)
            theta[0] += held
            distance, relative = evaluate(listed, tree, here, theta, counts, gradient)
            if distance <= best / 2 or relative <= SETTLED:
                break
        taken += 1
    if distance < best:
        unknowns[:] = here


@kernel
def settle_blocks(
    listed: Listed, tree: Tree, chains: Chains, bounds: IntArray, arrow: Arrow, unknowns: FloatArray
) -> None:
    """Minimise the dual function over the unknowns of each block by itself, in place: those that are shared are held.

    Each block takes as many steps as it needs, and as far as it may, while all blocks in one step would go at the pace
    of the slowest. ``bounds`` is where the join groups of each block start, and their number.
    """
    values, starts, partial = listed
    leaves, parent, slack, target = tree
    layout, members, fixed, places = arrow
    inner_starts, widths, begins = layout.inner_starts, layout.widths, layout.begins
    place = np.full(len(parent), -1)
    for block in range(len(widths)):
        for row in range(widths[block]):
            place[members[begins[block] + row]] = widths[block] - 1 - row
    for block in range(len(widths)):
        first, last, width = bounds[block], bounds[block + 1], widths[block]
        held, own_leaves = np.zeros(last - first), np.empty((len(chains.inside), last - first), np.int64)
        for group in range(first, last):
            for chain in chains.outside:
                held[group - first] += unknowns[0, leaves[chain, group]]
            for row in range(len(chains.inside)):
                own_leaves[row, group - first] = place[leaves[chains.inside[row], group]]
        own = members[begins[block] : begins[block] + width][::-1].copy()
        own_parent, own_target, inside = np.full(width, -1), target[own], np.zeros((2, width))
        for row in range(width):
            above = parent[own[row]]
            inside[0, row] = unknowns[0, own[row]]
            if above >= 0:
                own_parent[row] = place[above]
                if place[above] < 0:
                    own_target[row] += slack[own[row]] * unknowns[0, above]
        settle_block(
            Listed(values, starts[first : last + 1], partial),
            Tree(own_leaves, own_parent, slack[own], own_target),
            held,
            inside,
            fixed[inner_starts[block] : inner_starts[block + 1]],
            places[:, first:last],
            inner_starts[block],
        )
        for row in range(width):
            unknowns[0, own[row]], unknowns[1, own[row]] = inside[0, row], inside[1, row]


@piece
def in_blocks(blocks: IntArray, num_blocks: int) -> Any:
    """Return the join groups block by block, and where each block starts among them."""
    bounds = np.zeros(num_blocks + 1, np.int64)
    for block in blocks:
        bounds[block + 1] += 1
    for block in range(num_blocks):
        bounds[block + 1] += bounds[block]
    order, filled = np.empty(len(blocks), np.int64), bounds[:-1].copy()
    for group in range(len(blocks)):
        order[filled[blocks[group]]] = group
        filled[blocks[group]] += 1
    return order, bounds


@piece
def num_above(values: Any, start: int, stop: int, floor: float) -> int:
    """Return how many values of a stretch are above a floor."""
    count, whole = 0, int(np.floor(max(floor, LOWEST)))  # comparing whole numbers is faster
    for cell in range(start, stop):
        count += values[cell] > whole
    return count


@kernel
def first_levels(values: Any, starts: IntArray, blocks: IntArray, bins: Bins, wanted: FloatArray, spare: int) -> Any:
    """Return for each block the level above which values add up to what is wanted, and ever lower floors below it.

    All are lower ends of bins of values. There are at least ``spare`` times as many cells above a floor as above the
    one before it, and above the first as above the level. The last part is how many cells of each group are above the
    first floor.
    """
    low, high, shift = bins
    last = (high - low) >> shift
    levels, floors = np.empty(len(wanted)), np.empty((LADDER, len(wanted)))
    order, bounds = in_blocks(blocks, len(wanted))
    above = np.empty(len(blocks), np.int64)
    table = np.zeros(last + 1, np.int64)  # of one block, from the highest bin down: it stays in the cache
    for block in range(len(wanted)):
        table[:] = 0
        excess = 0.0  # what exceeds the lower end of the bin
        for group in order[bounds[block] : bounds[block + 1]]:
            for cell in range(starts[group], starts[group + 1]):
                value = values[cell]
                if value > high:
                    excess += value - high
                    value = high
                table[last - ((value - low) >> shift)] += 1
        number, at = table[0], 0
        while at < last and excess < wanted[block]:
            excess += number << shift
            at += 1
            number += table[at]
        levels[block] = low + ((last - at) << shift)
        for rung in range(LADDER):
            enough = spare * number + 16
            while at < last and number < enough:
                at += 1
                number += table[at]
            floors[rung, block] = low + ((last - at - 1) << shift) if number >= enough else low - 1
        for group in order[bounds[block] : bounds[block + 1]]:  # now, while they are in the cache
            above[group] = num_above(values, starts[group], starts[group + 1], floors[0, block])
    return levels, floors, above


@kernel
def sort_falling(values: Any, cells: Any, start: int, stop: int) -> None:
    """Sort a stretch of values downwards and the cells with them, by Shell's method: stretches are mostly short."""
    gap = 1
    while gap < (stop - start) // 9:
        gap = 3 * gap + 1
    while gap > 0:
        for place in range(start + gap, stop):
            value, cell, at = values[place], cells[place], place
            while at >= start + gap and values[at - gap] < value:
                values[at], cells[at] = values[at - gap], cells[at - gap]
                at -= gap
            values[at], cells[at] = value, cell
        gap //= 3


@piece
def room(array: Any, more: int) -> Any:
    longer = np.empty(len(array) + more + 1, array.dtype)
    longer[: len(array)] = array
    return longer


@kernel
def list_above(values: Any, starts: IntArray, floors: FloatArray, fresh: Any, counts: Any, before: Cells) -> Any:
    """Return the cells above the floor of their group.

    Only groups that are ``fresh`` are looked at; the others are taken from what was returned ``before``. ``counts`` are
    the numbers of cells to list, if they are known.
    """
    begins, filled = np.zeros(len(starts), np.int64), 0
    more = counts.sum() if len(counts) > 0 else len(before.values) // 8 + 1_000  # at first; the room grows
    kept, cells = np.empty(len(before.values) + more + 1), np.empty(len(before.cells) + more + 1, np.int64)
    for group in range(len(floors)):
        count = before.starts[group + 1] - before.starts[group]
        if len(counts) > 0:
            count = counts[group]
        elif fresh[group]:
            count = num_above(values, starts[group], starts[group + 1], floors[group])
        if filled + count >= len(kept):  # one to spare: writes do not branch
            kept, cells = room(kept, len(kept) + count), room(cells, len(cells) + count)
        at, filled = filled, filled + count
        begins[group + 1] = filled
        if count > 0 and fresh[group]:
            floor = int(np.floor(max(floors[group], LOWEST)))
            for cell in range(starts[group], starts[group + 1]):
                kept[at], cells[at] = values[cell], cell
                at += values[cell] > floor
            sort_falling(kept, cells, begins[group], filled)
        elif count > 0:
            shift = before.starts[group] - at
            for place in range(at, filled):
                kept[place], cells[place] = before.values[place + shift], before.cells[place + shift]
    return Cells(kept[:filled], cells[:filled], begins)


@kernel
def positive(x: Any, cells: Any, starts: IntArray, counts: Any) -> Any:
    """Return the numbers of the positive cells, rising, and their counts: they are the first ones of each group."""
    numbers, found, filled = np.empty(counts.sum(), np.int64), np.empty(counts.sum()), 0
    for group in range(len(counts)):
        first = filled
        for place in range(starts[group], starts[group] + counts[group]):
            numbers[filled], found[filled] = -cells[place], x[place]
            filled += x[place] > 0.0  # rounding may have left nothing of a count
        sort_falling(numbers, found, first, filled)
    return -numbers[:filled], found[:filled]


@kernel
def moved(values: Any, starts: IntArray, theta: FloatArray) -> Any:
    """Return the counts of all cells: values moved by theta of their group, or zero."""
    x = np.empty(len(values))
    for group in range(theta.shape[1]):
        for cell in range(starts[group], starts[group + 1]):
            count = (values[cell] + theta[0, group]) + theta[1, group]
            x[cell] = count if count > 0.0 else 0.0
    return x


@kernel
def conditions(x: Any, values: Any, starts: IntArray, members: IntArray, ratios: Any, noisy: Any) -> Any:
    """Return the largest relative violation of the optimality conditions (see ``kkt_residual``), and the sums of x.

    ``members`` is for each feature and join group the number of its group among all groups of all features.
    """
    sums, size, worst = np.zeros(len(noisy)), 0.0, 0.0
    for group in range(len(starts) - 1):
        total = 0.0
        for cell in range(starts[group], starts[group + 1]):
            total += x[cell]
            size = max(size, abs(x[cell]), abs(float(values[cell])))
        for feature in range(len(members)):
            sums[members[feature, group]] += total
    for group in range(len(starts) - 1):
        pull, scale = 0.0, 0.0
        for feature in range(len(members)):
            own = members[feature, group]
            pull += ratios[feature] * (sums[own] - noisy[own])
            scale += ratios[feature] * (abs(sums[own]) + abs(noisy[own]))
        for cell in range(starts[group], starts[group + 1]):
            gradient = x[cell] - values[cell] + pull
            if gradient != 0.0:
                gradient /= scale + abs(x[cell]) + abs(values[cell])
            share = x[cell] / size if size > 0.0 else 0.0
            worst = max(worst, abs(min(gradient, share)))  # below zero each counts, above zero the smaller one
    return worst, sums


# Steps by one factor


def hessian_matrix(leaves: IntArray, parent: IntArray, slack: FloatArray, counts: IntArray) -> Any:
    """Return the Hessian of the dual function as a sparse matrix."""
    from scipy import sparse

    active = np.flatnonzero(counts)
    leaves, weights = leaves[:, active], counts[active].astype(np.float64)
    below = np.flatnonzero(parent >= 0)
    everyone = np.arange(len(parent))
    rows = [everyone, parent[below], below, parent[below]]
    columns = [everyone, parent[below], parent[below], below]
    entries = [slack, slack[below], -slack[below], -slack[below]]
    for one in leaves:
        for other in leaves:
            rows.append(one)
            columns.append(other)
            entries.append(weights)
    shape = (len(parent), len(parent))
    return sparse.csc_matrix((np.concatenate(entries), (np.concatenate(rows), np.concatenate(columns))), shape=shape)


def factor_step(hessian: Any, gradient: FloatArray, inside: IntArray | None) -> FloatArray:
    """Return the Newton step by one factor, refined once; by a dense one if the unknowns to eliminate are given."""
    solve = _sparse_solver(hessian) if inside is None else _dense_solver(hessian, inside)
    step = solve(-gradient)
    return step + solve(-gradient - hessian @ step)


def conjugate_step(
    hessian: Any, gradient: FloatArray, parts: tuple[Any, Any], precondition: Callable[[FloatArray], FloatArray]
) -> FloatArray:
    """Return a Newton step, accurate to CLOSE, by conjugate gradients on the Schur complement of what is kept."""
    from scipy import sparse

    inside, kept = parts
    diagonal = hessian.diagonal()[inside]
    across, among = sparse.csr_matrix(hessian[inside][:, kept]), sparse.csr_matrix(hessian[kept][:, kept])
    back = sparse.csr_matrix(across.T)
    residual = -gradient[kept] + back @ (gradient[inside] / diagonal)
    answer = np.zeros(len(kept))
    direction = near = precondition(residual)
    size = first = float(residual @ near)
    for _ in range(MOST_CONJUGATE):
        if not size > CLOSE**2 * first:
            break
        image = among @ direction - back @ ((across @ direction) / diagonal)
        share = size / float(direction @ image)
        answer += share * direction
        residual = residual - share * image
        near = precondition(residual)
        size, before = float(residual @ near), size
        direction = near + (size / before) * direction
    step = np.empty(len(gradient))
    step[kept] = answer
    step[inside] = -(gradient[inside] + across @ answer) / diagonal
    return step


def _sparse_solver(hessian: Any) -> Callable[[FloatArray], FloatArray]:
    """Return what solves with a matrix, by a sparse factor of it scaled to a unit diagonal."""
    from scipy import sparse
    from scipy.sparse.linalg import splu

    scale = 1 / np.sqrt(hessian.diagonal())
    scaling = sparse.diags_array(scale)
    factor = splu(
        sparse.csc_matrix(scaling @ hessian @ scaling),
        permc_spec="MMD_AT_PLUS_A",
        diag_pivot_thresh=0.0,
        options={"SymmetricMode": True},
    )
    return lambda right: np.asarray(scale * factor.solve(scale * right), dtype=np.float64)


def _dense_solver(hessian: Any, inside: IntArray) -> Callable[[FloatArray], FloatArray]:
    """Return what solves with a matrix, after eliminating unknowns that are not coupled among each other."""
    from scipy import sparse

    kept = np.setdiff1d(np.arange(hessian.shape[0]), inside, assume_unique=True)
    diagonal = hessian.diagonal()
    rows = sparse.csr_matrix(hessian[inside][:, kept])
    shares = sparse.diags_array(1 / diagonal[inside]) @ rows
    solve_kept = _cholesky((hessian[kept][:, kept] - rows.T @ shares).toarray(), diagonal[kept])

    def solve(right: FloatArray) -> FloatArray:
        answer = np.empty(len(right))
        answer[kept] = solve_kept(right[kept] - shares.T @ right[inside])
        answer[inside] = (right[inside] - rows @ answer[kept]) / diagonal[inside]
        return answer

    return solve


def _cholesky(matrix: FloatArray, diagonal: FloatArray) -> Callable[[FloatArray], FloatArray]:
    """Return what solves with a positive definite matrix, scaled; where rounding undid that, with a nearby one."""
    from scipy.linalg import cho_factor, cho_solve

    scale = 1 / np.sqrt(diagonal)
    matrix = matrix * scale[:, None] * scale
    factor, lift = None, 0.0
    while factor is None:
        try:
            factor = cho_factor(matrix + lift * np.eye(len(matrix)), check_finite=False)
        except np.linalg.LinAlgError:
            lift = max(1e-15, 10 * lift)
    return lambda right: np.asarray(scale * cho_solve(factor, scale * right, check_finite=False), dtype=np.float64)
