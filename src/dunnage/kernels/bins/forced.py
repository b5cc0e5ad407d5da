# SPDX-License-Identifier: Apache-2.0
"""Items that share a bin in every packing with a given number of bins, or in one of them if there is any.

All bins together have a known room to spare, so each of them is at least so full. Two steps, as long as one applies:

- If every set of other items that fills the bin of an item far enough has an item of some size, glue the two: no
  packing has them apart, up to exchanges of items of equal size. If no set does, there is no packing.
- Two items that fill a bin exactly share one: whatever is beside the first takes no more room than the second does, so
  exchange them.

Sums of items are the bits of one long integer, so this is exact.
"""

from __future__ import annotations

from dunnage.kernels.deadline import Deadline


def glue_items(sizes: list[int], capacity: int, spare: int, deadline: Deadline) -> list[list[int]] | None:
    """Return groups of positions that share a bin if any packing leaves only so much room; None if none does."""
    groups: dict[int, list[list[int]]] = {}
    for position, size in enumerate(sizes):
        groups.setdefault(size, []).append([position])

    def glue(one: int, other: int) -> None:
        parts = [groups[one].pop(), groups[other].pop()]
        groups.setdefault(one + other, []).append(parts[0] + parts[1])

    changed = True
    while changed:
        changed = False
        for size in sorted(groups):
            rest = capacity - size
            while rest and groups[size] and len(groups.get(rest, ())) > (rest == size):
                glue(size, rest)
                changed = True
        for size in sorted(groups, reverse=True):
            while groups[size] and capacity - size > spare and not deadline.late:
                needed = _needed({key: len(of_size) for key, of_size in groups.items()}, size, capacity - size, spare)
                if needed is None:
                    return None
                if needed == 0:
                    break
                glue(size, needed)
                changed = True
    return [group for of_size in groups.values() for group in of_size]


def _needed(counts: dict[int, int], size: int, room: int, spare: int) -> int | None:
    """Return a size without which nothing fills the room but for the spare; 0 without one, None if nothing fills it."""
    others = sorted(
        ((other, count - (other == size)) for other, count in counts.items() if other <= room), reverse=True
    )
    most = (1 << (room + 1)) - 1
    before = [1]
    for other, count in others:
        reached = before[-1]
        for _ in range(min(count, room // other)):
            reached |= (reached << other) & most
        before.append(reached)
    # The sums that items after some could start from, to end in the window
    window = (most >> (room - spare)) << (room - spare)
    if not before[-1] & window:
        return None
    for (other, count), reached in zip(reversed(others), reversed(before[:-1]), strict=True):
        if count and not reached & window:
            return other
        for _ in range(min(count, room // other)):
            window |= window >> other
    return 0
