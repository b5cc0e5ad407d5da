# SPDX-License-Identifier: Apache-2.0
"""Compiled parts of :mod:`dunnage.collecting.batch`: what happens to every report after its random words."""

from __future__ import annotations

from typing import Any

import numpy as np

from dunnage.arrays import kernel, piece

# Any: compiled functions take arrays of several widths.

COUNTED, DAMAGED, OTHER_TASK, IMPOSSIBLE, OTHER_TIME = range(5)  # what becomes of a report
TOO_EARLY, LATE, CLOSED, REPLAYED, TOO_MANY = range(5, 10)  # at the door of a collector, also
EMPTY, USED, FREED = range(3)  # places of a table of ids


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
def place_subsets(rows: Any, indices: Any, inside: Any, draws: Any, num_inputs: int) -> None:
    """Set the bits of a uniform set of inputs in each empty row, with or without the own input; see Floyd 1987."""
    # Column j of the draws is uniform below num_inputs - size + j. With the own input the set has one other fewer, and
    # the first draw is left out.
    size = draws.shape[1]
    for row in range(len(rows)):
        own = indices[row]
        for draw in range(np.int64(inside[row]), size):
            last = num_inputs - 1 - size + draw
            for place in (np.int64(draws[row, draw]), last):  # the last one if the first is taken
                bit = place + (place >= own)  # numbered without the own input
                mask = np.uint8(1 << (bit & 7))
                if not rows[row, bit >> 3] & mask:
                    rows[row, bit >> 3] |= mask
                    break
        if inside[row]:
            rows[row, own >> 3] |= np.uint8(1 << (own & 7))


@piece
def put_point(number: int, prime: int, point: Any) -> None:
    """Write a point of a projective space by its number, the first coordinate that is not 0 being 1."""
    dimension = len(point)
    zeros, size = 0, prime ** (dimension - 1)
    while number >= size:
        point[zeros] = 0
        number -= size
        size //= prime
        zeros += 1
    point[zeros] = 1
    for place in range(dimension - 1, zeros, -1):
        point[place] = number % prime
        number //= prime


@piece
def inverse(number: int, prime: int) -> int:
    result, power, base = 1, prime - 2, number
    while power:
        if power & 1:
            result = result * base % prime
        base = base * base % prime
        power >>= 1
    return result


@kernel
def projective_symbols(indices: Any, inside: Any, picks: Any, prime: int, dimension: int) -> Any:
    """Return for each report a point on the hyperplane of its input, or off it; as ``ProjectiveResponse.perturb``."""
    symbols = np.empty(len(indices), dtype=np.int64)
    own, vector = np.empty(dimension, dtype=np.int64), np.empty(dimension, dtype=np.int64)
    last = prime * ((prime ** (dimension - 1) - 1) // (prime - 1))
    for report in range(len(indices)):
        own[:] = 0
        own[0], pivot = 1, 0
        if indices[report] < last:
            own[0] = indices[report] % prime
            put_point(indices[report] // prime, prime, own[1:])
            pivot = 1
            while own[pivot] != 1:
                pivot += 1
        others = vector[1:]
        if inside[report]:
            put_point(picks[report], prime, others)
        else:
            number = picks[report]
            for place in range(dimension - 1):
                others[place] = number % prime
                number //= prime
        for place in range(pivot):
            vector[place] = vector[place + 1]
        vector[pivot] = 0
        product = np.int64(0 if inside[report] else 1)
        for place in range(dimension):
            product = (product - own[place] * vector[place]) % prime
        vector[pivot] = product
        zeros, symbol, size = 0, 0, prime ** (dimension - 1)
        while vector[zeros] == 0:
            symbol += size
            size //= prime
            zeros += 1
        factor, number = inverse(vector[zeros], prime), 0
        for place in range(zeros + 1, dimension):
            number = number * prime + vector[place] * factor % prime
        symbols[report] = symbol + number
    return symbols


@kernel
def count_agreeing(symbols: Any, num_inputs: int, prime: int, dimension: int) -> Any:
    """Count for each row how many of its symbols, points of a projective space, support each input."""
    counts = np.zeros((len(symbols), num_inputs), dtype=np.int64)
    size, num = prime ** (dimension - 1), (num_inputs + prime - 1) // prime
    num = min(num, (size - 1) // (prime - 1))
    directions, point = np.empty((num, dimension - 1), dtype=np.int64), np.empty(dimension, dtype=np.int64)
    for direction in range(num):
        put_point(direction, prime, directions[direction])
    for row in range(len(symbols)):
        for symbol in symbols[row]:
            put_point(symbol, prime, point)
            for direction in range(num):
                product = 0
                for place in range(dimension - 1):
                    product = (product + directions[direction, place] * point[place + 1]) % prime
                first = direction * prime
                if point[0]:  # one input in each direction
                    if first + -product % prime < num_inputs:
                        counts[row, first + -product % prime] += 1
                elif product == 0:  # or all of them
                    counts[row, first : first + prime] += 1
            if not point[0] and num_inputs > num * prime:
                counts[row, -1] += 1
    return counts


@kernel
def spread_points(counts: Any, prime: int, dimension: int) -> Any:
    """Return the count of each point at all vectors that are multiples of it, by their digits; 0 at the vector 0."""
    table = np.zeros(prime**dimension, dtype=np.float64)
    point = np.empty(dimension, dtype=np.int64)
    for number in range(len(counts)):
        put_point(number, prime, point)
        for factor in range(1, prime):
            vector = 0
            for place in range(dimension):
                vector = vector * prime + point[place] * factor % prime
            table[vector] = counts[number]
    return table


@kernel
def lines_through(first: int, stop: int, prime: int, dimension: int) -> Any:
    """Return the vectors 0, u, 2u, ... by their digits, for some points u."""
    lines, point = np.zeros((stop - first, prime), dtype=np.int64), np.empty(dimension, dtype=np.int64)
    for number in range(first, stop):
        put_point(number, prime, point)
        for factor in range(1, prime):
            for place in range(dimension):
                lines[number - first, factor] = lines[number - first, factor] * prime + point[place] * factor % prime
    return lines


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


@kernel
def decode_frames(
    data: Any, places: Any, prefix: Any, chosen: Any, first_group: Any, widths: Any, tables: Any, limits: Any, out: Any
) -> Any:
    """Read reports; return how many are complete, where the rest begins, and whether it is damaged."""
    # Reports have their lengths before them, unless `places` says where each begins and the last ends.
    # The same rules as Report.from_bytes and Report.check, which say in words what is wrong with a single report.
    start, size, status, group, day, slot, high, low, payload_at = out
    max_report, max_index, max_day, max_slot, max_payload = limits
    most = (max_index, max_index, max_day, max_slot, max_payload)
    numbers = np.zeros(5, dtype=np.int64)  # purpose, tier, day, slot, length of the payload
    num: Any = 0
    at: Any = 0
    while num < len(start) and (num + 1 < len(places) if len(places) else at + 4 <= len(data)):
        if len(places):
            begin, end = places[num], places[num + 1]
            length = end - begin
        else:
            length = (
                (np.int64(data[at]) << 24)
                | (np.int64(data[at + 1]) << 16)
                | (np.int64(data[at + 2]) << 8)
                | np.int64(data[at + 3])
            )
            if length > max_report:
                return num, at, True
            if at + 4 + length > len(data):
                break
            begin, end = at + 4, at + 4 + length
        start[num], size[num], at = begin, length, end
        place, id_bytes = begin + 9, 16 if length and data[begin] == 2 else 8
        sound = 13 < length <= max_report and 1 <= data[begin] <= 2
        for field in range(5):
            if field == 4:
                high[num] = low[num] = np.uint64(0)
                if sound and place + id_bytes <= end - 4:
                    for byte in range(8):
                        high[num] = high[num] << np.uint64(8) | np.uint64(data[place + byte])
                        if id_bytes == 16:
                            low[num] = low[num] << np.uint64(8) | np.uint64(data[place + 8 + byte])
                place += id_bytes
            number: Any = 0
            shift, last = 0, np.int64(0x80)
            while sound and last >= 0x80:
                if place >= end - 4 or shift > 28:
                    sound = False
                    break
                last = np.int64(data[place])
                number |= (last & 0x7F) << shift
                place, shift = place + 1, shift + 7
            sound = sound and number <= most[field] and not (last == 0 and shift > 7)
            numbers[field] = number
        status[num] = DAMAGED
        if sound and place + numbers[4] == end - 4:
            crc: Any = 0xFFFFFFFF
            byte = begin
            while byte + 8 <= end - 4:  # eight bytes at a time
                crc = (
                    np.int64(tables[7, (crc ^ data[byte]) & 0xFF])
                    ^ np.int64(tables[6, (crc >> 8 ^ data[byte + 1]) & 0xFF])
                    ^ np.int64(tables[5, (crc >> 16 ^ data[byte + 2]) & 0xFF])
                    ^ np.int64(tables[4, (crc >> 24 ^ data[byte + 3]) & 0xFF])
                    ^ np.int64(tables[3, data[byte + 4]])
                    ^ np.int64(tables[2, data[byte + 5]])
                    ^ np.int64(tables[1, data[byte + 6]])
                    ^ np.int64(tables[0, data[byte + 7]])
                )
                byte += 8
            while byte < end - 4:
                crc = (crc >> 8) ^ np.int64(tables[0, (crc ^ data[byte]) & 0xFF])
                byte += 1
            stated: Any = 0
            for byte in range(end - 4, end):
                stated = stated << 8 | np.int64(data[byte])
            if crc ^ 0xFFFFFFFF == stated:
                status[num] = COUNTED
                for byte in range(8):
                    if data[begin + 1 + byte] != prefix[byte]:
                        status[num] = OTHER_TASK
        purpose, tier = numbers[0], numbers[1]
        group[num], day[num], slot[num], payload_at[num] = -1, numbers[2], numbers[3], place
        if status[num] == COUNTED:
            known = purpose < len(first_group) - 1 and tier < first_group[purpose + 1] - first_group[purpose]
            if known:
                group[num] = first_group[purpose] + tier
                known = chosen[numbers[3]] and widths[group[num]] in (-1, numbers[4])
            if not known:
                status[num] = IMPOSSIBLE
        num += 1
    return num, at, False


@kernel
def gather_rows(data: Any, starts: Any, width: int) -> Any:
    rows = np.empty((len(starts), width), dtype=np.uint8)
    for row in range(len(starts)):
        for byte in range(width):
            rows[row, byte] = data[starts[row] + byte]
    return rows


@kernel
def decode_requests(
    data: Any,
    ends: Any,
    least: int,
    prefix: Any,
    chosen: Any,
    first_group: Any,
    widths: Any,
    tables: Any,
    limits: Any,
    out: Any,
) -> Any:
    """Read the reports of several requests; whatever is wrong with one of them takes nothing from the others."""
    start, size, status, group, day, slot, high, low, payload_at, request = out
    broken, none = np.zeros(len(ends), dtype=np.bool_), np.zeros(0, dtype=np.int64)
    num: Any = 0
    begin: Any = 0
    for which in range(len(ends)):
        end = ends[which]
        to = num + (end - begin) // least + 1  # frames that are shorter than any report must not use others' room
        rest = (
            start[num:to],
            size[num:to],
            status[num:to],
            group[num:to],
            day[num:to],
            slot[num:to],
            high[num:to],
            low[num:to],
            payload_at[num:to],
        )
        part = data[begin:end]
        more, used, _ = decode_frames(part, none, prefix, chosen, first_group, widths, tables, limits, rest)
        broken[which] = begin + used < end
        for place in range(num, num + more):
            start[place] += begin
            payload_at[place] += begin
            request[place] = which
        num += more
        begin = end
    return num, broken


@piece
def _place_of_id(high: Any, low: Any, key: Any, table: Any, state: Any) -> Any:
    """Return where an id is in a table, or else where it belongs, and whether it is there."""
    # Senders choose ids: without a secret key they could choose ids that all belong to one place.
    mixed = (high ^ key) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(29)) ^ low) * np.uint64(0xBF58476D1CE4E5B9)
    mask = np.uint64(len(state) - 1)
    place = (mixed ^ (mixed >> np.uint64(32))) & mask
    free: Any = -1
    while state[place] != EMPTY:
        if state[place] == FREED:
            free = np.int64(place) if free < 0 else free
        elif table[place, 0] == high and table[place, 1] == low:
            return np.int64(place), True
        place = (place + np.uint64(1)) & mask
    return (np.int64(place) if free < 0 else free), False


@kernel
def admit_ids(high: Any, low: Any, status: Any, own: Any, key: Any, table: Any, state: Any) -> Any:
    """Add the ids of own reports that count; those with an id that is there are copies. Return how many are new."""
    num = 0
    for report in range(len(high)):
        if own[report] and status[report] == COUNTED:
            place, known = _place_of_id(high[report], low[report], key, table, state)
            if known:
                status[report] = REPLAYED
            else:
                table[place, 0], table[place, 1], state[place] = high[report], low[report], USED
                num += 1
    return num


@kernel
def forget_ids(high: Any, low: Any, key: Any, table: Any, state: Any) -> None:
    for report in range(len(high)):
        place, known = _place_of_id(high[report], low[report], key, table, state)
        if known:
            state[place] = FREED


@kernel
def gather_frames(data: Any, start: Any, size: Any, order: Any) -> Any:
    """Copy reports with their lengths, in an order."""
    total: Any = 0
    for report in order:
        total += size[report] + 4
    out = np.empty(total, dtype=np.uint8)
    at: Any = 0
    for report in order:
        length = size[report] + 4
        out[at : at + length] = data[start[report] - 4 : start[report] - 4 + length]
        at += length
    return out
