# SPDX-License-Identifier: Apache-2.0
"""Priorities: a random order of rows that every engine and every retry agrees on, BLAKE2b-128 under one random key."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dunnage.arrays import IntArray, kernel, piece

Words = NDArray[np.uint64]
_COMPILE_FROM = 20_000
KEY_BYTES = 32  # of the one key that is sampled after a spend, and then forgotten
_START = np.array(
    [
        0x6A09E667F3BCC908, 0xBB67AE8584CAA73B, 0x3C6EF372FE94F82B, 0xA54FF53A5F1D36F1,
        0x510E527FADE682D1, 0x9B05688C2B3E6C1F, 0x1F83D9ABFB41BD6B, 0x5BE0CD19137E2179,
    ],
    dtype=np.uint64,
)  # fmt: skip
_ORDERS = np.array(
    [[int(digit, 16) for digit in order] for order in (
        "0123456789abcdef", "ea489fd61c02b753", "b8c052fdae367194", "7931dcbe265a40f8",
        "905724afe1bc683d", "2c6a0b834d75fe19", "c51fed4a0763928b", "db7ec13950f4862a",
        "6fe9b308c2d714a5", "a2847615fb9e3cd0", "0123456789abcdef", "ea489fd61c02b753",
    )]
)  # fmt: skip


@piece
def compress(values: Any, block: Any, length: int, last: bool, start: Any, orders: Any, state: Any) -> None:
    state[:8], state[8:] = values, start
    state[12] ^= np.uint64(length)
    if last:
        state[14] = ~state[14]
    for order in orders:
        for number in range(8):  # columns, then diagonals
            shift = number >> 2
            a, b = number & 3, 4 + (number + shift & 3)
            c, d = 8 + (number + 2 * shift & 3), 12 + (number + 3 * shift & 3)
            for half in range(2):
                first, second = np.uint64(32 - 16 * half), np.uint64(24 + 39 * half)
                state[a] = state[a] + state[b] + block[order[2 * number + half]]
                turned = state[d] ^ state[a]
                state[d] = turned >> first | turned << np.uint64(64) - first
                state[c] = state[c] + state[d]
                turned = state[b] ^ state[c]
                state[b] = turned >> second | turned << np.uint64(64) - second
    for number in range(8):
        values[number] ^= state[number] ^ state[8 + number]


@kernel
def _digests(key: Any, data: Any, begins: Any, ends: Any, start: Any, orders: Any) -> Any:
    """Return BLAKE2b-128 of each part of the data, none of them empty, under a key of 32 bytes, as two words."""
    result, state, block = np.empty((len(ends), 2), np.uint64), np.empty(16, np.uint64), np.zeros(16, np.uint64)
    keyed, values = start.copy(), np.empty(8, np.uint64)
    keyed[0] ^= np.uint64(0x01010000 ^ (32 << 8) ^ 16)
    block[:4] = key
    compress(keyed, block, 128, False, start, orders, state)
    for number in range(len(ends)):
        values[:] = keyed
        begin = begins[number]
        at, size = 0, ends[number] - begin
        while at < size:
            block[:] = 0
            num = min(128, size - at)
            for byte in range(num):
                block[byte >> 3] |= np.uint64(data[begin + at + byte]) << np.uint64(8 * (byte & 7))
            at += num
            compress(values, block, 128 + at, at == size, start, orders, state)
        result[number] = values[:2]
    return result


def digests(key: bytes, data: NDArray[np.uint8], ends: IntArray, begins: IntArray | None = None) -> Words:
    """Return the digest of each part of some bytes; by default one follows the other. No part may be empty."""
    begins = np.append(0, ends)[: len(ends)] if begins is None else begins
    if len(ends) < _COMPILE_FROM:
        content, parts = data.tobytes(), zip(begins.tolist(), ends.tolist(), strict=True)
        own = (hashlib.blake2b(content[i:j], key=key, digest_size=16).digest() for i, j in parts)
        return np.frombuffer(b"".join(own), dtype="<u8").reshape(-1, 2)
    words: Words = _digests(np.frombuffer(key, dtype="<u8"), data, begins, ends, _START, _ORDERS)
    return words


def priorities(key: bytes, rows: IntArray, choice: int) -> Words:
    """Return the priority of each row, by its number, in one of several choices."""
    content = np.stack([rows, np.full(len(rows), choice)], axis=1).astype("<i8").view(np.uint8).reshape(-1)
    return digests(key, content, 16 * np.arange(1, len(rows) + 1))
