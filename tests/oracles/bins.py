# SPDX-License-Identifier: Apache-2.0
"""Every way to put a few items into bins."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Lines = Any  # nested lists, or arrays of numbers


def partitions(num: int, so_far: tuple[int, ...] = ()) -> Iterator[list[int]]:
    """Yield the bin of each item, for every way to put items into bins that are not told apart."""
    if len(so_far) == num:
        yield list(so_far)
        return
    for bin_ in range(max(so_far, default=-1) + 2):
        yield from partitions(num, (*so_far, bin_))


def parts(num: int) -> Iterator[list[list[int]]]:
    """Yield the items of each bin, for every way."""
    for bins in partitions(num):
        yield [[item for item in range(num) if bins[item] == bin_] for bin_ in range(max(bins, default=-1) + 1)]


def all_fills(class_of: Lines, sizes: Lines, counts: Lines, capacities: Lines) -> list[tuple[int, ...]]:
    """List every way to put items into bins that take so many of each class and have so much room."""
    found: list[tuple[int, ...]] = []

    def place(fill: tuple[int, ...]) -> None:
        if len(fill) == len(class_of):
            found.append(fill)
            return
        item = len(fill)
        for b, (count, capacity) in enumerate(zip(counts, capacities, strict=True)):
            inside = [i for i in range(item) if fill[i] == b]
            same = sum(class_of[i] == class_of[item] for i in inside)
            rooms = zip(*(sizes[i] for i in (*inside, item)), strict=True)
            if same < count[class_of[item]] and all(sum(q) <= room for q, room in zip(rooms, capacity, strict=True)):
                place((*fill, b))

    place(())
    return found
