# SPDX-License-Identifier: Apache-2.0
"""A feasible fill of sealed slots, looked for by the walks that estimates rest on."""

from __future__ import annotations

import time

from dunnage.arrays import IntArray
from dunnage.kernels.bins.fills import MAX_ROUNDS, FillSlots, Items, _Board, _Chains, _check_match, seeded_words


def find_fill(items: Items, slots: FillSlots, *, seconds: float, seed: int = 0) -> IntArray | None:
    """Look for a feasible fill by walks from random starts."""
    _check_match(items, slots)
    board, words = _Board.of(items, slots), seeded_words(seed)
    deadline = time.monotonic() + seconds
    while True:
        chains = _Chains(board, items, words, None)
        for _ in range(MAX_ROUNDS):
            chains.go_round(note=True)
            if chains.num_met:
                return chains.kept
            if time.monotonic() > deadline:
                return None
