# SPDX-License-Identifier: Apache-2.0
"""Compiled parts of :mod:`dunnage.collecting.batch`: what happens to every report after its random words."""

from __future__ import annotations

from typing import Any

import numpy as np

from dunnage.arrays import kernel, piece

# Any: compiled functions take arrays of several widths.


@kernel
def set_bits(rows: Any, indices: Any, ones: Any) -> None:
    for row in range(len(rows)):
        place, mask = indices[row] >> 3, np.uint8(1 << (indices[row] & 7))
        if ones[row]:
            rows[row, place] |= mask
        else:
            rows[row, place] &= ~mask


@kernel
def count_bytes(rows: Any, counts: Any) -> None:
    """Count how often each byte of a packed row has each value: an eighth of the work of counting bits."""
    for row in range(len(rows)):
        for place in range(rows.shape[1]):
            counts[place, rows[row, place]] += 1


@kernel
def count_symbols(symbols: Any, counts: Any) -> None:
    for symbol in symbols:
        counts[symbol] += 1


@piece
def odd(bits: int) -> int:
    """Return 1 if a number has an odd number of ones among its lowest 64 bits."""
    for width in (32, 16, 8, 4, 2, 1):
        bits ^= bits >> width
    return bits & 1


@kernel
def hadamard_symbols(indices: Any, halves: Any, columns: Any, num_blocks: int, num_columns: int) -> Any:
    """Return for each report a symbol of its half block, uniform like its column."""
    # Half 0 is the half of the own block that agrees with the own row of the Hadamard matrix, 1 the other half of that
    # block, 2 and 3 those of the next block, and so on in a circle. Flipping the lowest bit of the row moves a column
    # of the wrong half into the right one; it maps the two halves to each other one to one.
    symbols = np.empty(len(indices), dtype=np.int64)
    for report in range(len(indices)):
        row, block = 1 + indices[report] // num_blocks, indices[report] % num_blocks
        column = np.int64(columns[report])
        if odd(column & row) != halves[report] & 1:
            column ^= row & -row
        symbols[report] = column + num_columns * ((block + (halves[report] >> 1)) % num_blocks)
    return symbols


@kernel
def round_values(values: Any, words: Any, scaling: Any, points: Any) -> Any:
    """Round values at random to the points 0 to ``top`` of their domain; return which could not be decided here."""
    # The low end, the largest number not above it, the smallest not below the high end, points to a unit, the point of
    # a missing value, the largest error of all this, the width of a word's interval. The point is the whole part of a
    # sum that value and word bound.
    low, bottom, most, factor, middle, error, width, top = scaling
    undecided = np.zeros(len(values), dtype=np.bool_)
    for place in range(len(values)):
        value = values[place]
        if np.isnan(value):
            points[place] = middle
        elif value <= bottom:
            points[place] = 0
        elif value >= most:
            points[place] = top
        else:
            start = (value - low) * factor + words[place] * width
            least, largest = np.floor(start - error), np.floor(start + width + error)
            points[place] = np.int64(least)
            undecided[place] = least != largest  # also if both are NaN
    return undecided


@piece
def slot_of(value: float, borders: Any, last: float, factor: float) -> Any:
    """Return the slot between borders that contains a value, or -1; the last border belongs to the last slot."""
    if not (value >= borders[0] and value <= last):
        return -1
    slot: Any = min(np.int64((value - borders[0]) * factor), np.int64(len(borders) - 1))
    while value < borders[slot]:  # the product is a guess; the borders are exact
        slot -= 1
    while slot + 1 < len(borders) and value >= borders[slot + 1]:
        slot += 1
    return slot


@piece
def spaced(bits: int) -> int:
    """Put a zero before each of the lowest 31 bits."""
    bits = (bits | bits << 16) & 0x0000FFFF0000FFFF
    bits = (bits | bits << 8) & 0x00FF00FF00FF00FF
    bits = (bits | bits << 4) & 0x0F0F0F0F0F0F0F0F
    bits = (bits | bits << 2) & 0x3333333333333333
    return (bits | bits << 1) & 0x5555555555555555


@kernel
def find_cells(lon: Any, lat: Any, across: Any, along: Any, outside: int) -> Any:
    """Return the Morton code of each position; ``across`` and ``along`` are (borders, last, slots to a unit)."""
    cells = np.empty(len(lon), dtype=np.int64)
    for place in range(len(lon)):
        column = slot_of(lon[place], across[0], across[1], across[2])
        row = slot_of(lat[place], along[0], along[1], along[2])
        cells[place] = outside if column < 0 or row < 0 else spaced(column) << 1 | spaced(row)
    return cells


@piece
def gathered(code: int) -> int:
    """Take every second bit of a code, including the last: the inverse of :func:`spaced`."""
    code &= 0x5555555555555555
    code = (code | code >> 1) & 0x3333333333333333
    code = (code | code >> 2) & 0x0F0F0F0F0F0F0F0F
    code = (code | code >> 4) & 0x00FF00FF00FF00FF
    code = (code | code >> 8) & 0x0000FFFF0000FFFF
    return (code | code >> 16) & 0x00000000FFFFFFFF


@kernel
def split_cells(cells: Any) -> Any:
    places = np.empty((2, len(cells)), dtype=np.int64)
    for place in range(len(cells)):
        places[0, place], places[1, place] = gathered(cells[place] >> 1), gathered(cells[place])
    return places


@kernel
def join_cells(columns: Any, rows: Any) -> Any:
    cells = np.empty(len(columns), dtype=np.int64)
    for place in range(len(columns)):
        cells[place] = spaced(columns[place]) << 1 | spaced(rows[place])
    return cells


@piece
def set_places(row: Any, num_bits: int, places: Any) -> int:
    """List the set bits of a packed row, then the number of bits, which stands for any; return how many there are."""
    count = 0
    for bit in range(num_bits):
        if row[bit >> 3] >> (bit & 7) & 1:
            places[count] = bit
            count += 1
    places[count] = num_bits
    return count + 1


@kernel
def count_together(first: Any, second: Any, third: Any, num_bits: int, counts: Any) -> None:
    """Count which bits of two rows are set together, or of three; ``third`` may be empty."""
    ones, twos = np.empty(num_bits + 1, dtype=np.int64), np.empty(num_bits + 1, dtype=np.int64)
    threes = np.empty(num_bits + 1, dtype=np.int64)
    for report in range(len(first)):
        num_ones = set_places(first[report], num_bits, ones)
        num_twos = set_places(second[report], num_bits, twos)
        num_threes = 1
        threes[0] = 0
        if len(third) > 0:
            num_threes = set_places(third[report], num_bits, threes)
        for one in ones[:num_ones]:
            for two in twos[:num_twos]:
                for three in threes[:num_threes]:
                    counts[one, two, three] += 1
