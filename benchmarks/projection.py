# SPDX-License-Identifier: Apache-2.0
"""Speed of the projection of noisy trip counts, one core, after warm-up, beside PIQP in the same run.

The table is like that of Fioretto et al. 2018: 130 stops (16,900 pairs), half-hour slots, 4 zones, 12 modes; features
are cells, total, slots, zone pairs by slot and modes by slot (O5 of the paper), each with a fifth of epsilon = 1, that
is discrete Laplace noise of scale 5, and weight 1 / number of groups. Demand sits on few pairs: about 1,220 trips and
150 non-empty pairs a slot. Two hours are 67,600 cells, a day 811,200. Our time is that from noisy integers to counts,
sorting included; what depends on public data alone (which group a cell is in) is prepared before. PIQP gets its
matrices ready made and runs at its default tolerances; what it reaches is shown beside ours. It is not run on the day
nor on ten days, 8,112,000 cells, which no longer fit into caches.
Processor time is the least of some runs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tests.oracles.projection import quadratic_program

from benchmarks.measuring import Row, row, taken
from dunnage.arrays import FloatArray, IntArray
from dunnage.kernels.counts.projection import Family, Projection, optimality
from dunnage.kernels.counts.tables import project_table

STOPS, ZONES, MODES = 130, 4, 12
TRIPS, PAIRS_USED, HOT = 1_220, 150, 300  # trips and non-empty pairs of a slot, pairs that are ever used
SCALE = 5
RESIDUAL = "relative KKT residual"


@dataclass(frozen=True, eq=False)
class Table:
    """Noisy values join group by join group, coarse features and their noisy sums."""

    values: IntArray
    starts: IntArray
    family: Family
    sums: tuple[FloatArray, ...]

    def project(self) -> Projection:
        return project_table(self.values, self.starts, self.family, self.sums)


def trips(num_slots: int, rng: np.random.Generator) -> IntArray:
    """Return trips by slot and pair: few pairs, heavy-tailed."""
    num_pairs = STOPS**2
    hot, weight = rng.choice(num_pairs, HOT, replace=False), rng.pareto(1.2, HOT) + 0.1
    table = np.zeros((num_slots, num_pairs), dtype=np.int64)
    for slot in table:
        used = rng.choice(HOT, PAIRS_USED, replace=False, p=weight / weight.sum())
        slot[hot[used]] = rng.multinomial(TRIPS, weight[used] / weight[used].sum())
    return table


def noise(num: int, rng: np.random.Generator) -> IntArray:
    """Return discrete Laplace noise; not for releases."""
    stop = 1 - np.exp(-1 / SCALE)
    return np.asarray(rng.geometric(stop, num) - rng.geometric(stop, num), dtype=np.int64)


def make(num_slots: int, seed: int = 2018) -> Table:
    """Make a noisy table of some slots, stored join group by join group: slot, zone pair, mode."""
    rng = np.random.default_rng(seed)
    origin, destination = np.divmod(np.arange(STOPS**2), STOPS)
    zone, mode = rng.integers(0, ZONES, STOPS), rng.integers(0, MODES, STOPS**2)
    classes, join = np.unique((zone[origin] * ZONES + zone[destination]) * MODES + mode, return_inverse=True)
    truth = trips(num_slots, rng)[:, np.argsort(join, kind="stable")].ravel()
    starts = np.concatenate([[0], np.cumsum(np.tile(np.bincount(join), num_slots))]).astype(np.int64)
    slot, place = np.divmod(np.arange(num_slots * len(classes)), len(classes))
    zone_pair, its_mode = np.divmod(classes[place], MODES)
    groups = (np.zeros_like(slot), slot, slot * ZONES**2 + zone_pair, slot * MODES + its_mode)
    sizes = (1, num_slots, num_slots * ZONES**2, num_slots * MODES)
    of_group = np.add.reduceat(truth, starts[:-1])
    sums = tuple(
        np.bincount(own, of_group, minlength=size) + noise(size, rng) for own, size in zip(groups, sizes, strict=True)
    )
    family = Family(groups=groups, sizes=sizes, ratios=tuple(len(truth) / size for size in sizes))
    return Table(truth + noise(len(truth), rng), starts, family, sums)


def every(table: Table, found: Projection) -> FloatArray:
    x = np.zeros(len(table.values))
    x[found.cells] = found.x
    return x


def by_piqp(table: Table) -> tuple[FloatArray, float]:
    import piqp

    program, lower = quadratic_program(table.values.astype(np.float64), np.diff(table.starts), table.family, table.sums)

    def solve() -> FloatArray:
        solver = piqp.SparseSolver()
        solver.setup(**program, x_l=lower)
        solver.solve()
        return np.maximum(np.asarray(solver.result.x)[: len(table.values)], 0.0)

    return taken(solve, 2)


def run() -> list[Row]:
    hours, more, day, days = (make(num_slots) for num_slots in (4, 40, 48, 480))
    for table in (hours, more, day, days):
        table.project()
    found, seconds = taken(hours.project, 30)
    _, longer = taken(more.project, 10)
    whole, of_day = taken(day.project, 10)
    _, of_days = taken(days.project, 5)
    theirs, piqp_seconds = by_piqp(hours)
    name = "projection of 67,600 cells (two hours)"
    return [
        row(f"{name}; peer PIQP", seconds, piqp_seconds),
        row(f"{name}; peer PIQP", _residual(hours, every(hours, found)), _residual(hours, theirs), RESIDUAL),
        row("projection of 676,000 cells; peer 12 times that of 67,600", longer, 12 * seconds),
        row("projection of 811,200 cells (a day); peer 0.15 s", of_day, 0.15),
        row("projection of 8,112,000 cells (ten days); peer 12 times a day", of_days, 12 * of_day),
        row("projection of 811,200 cells (a day); peer 1e-10", _residual(day, every(day, whole)), 1e-10, RESIDUAL),
    ]


def _residual(table: Table, x: FloatArray) -> float:
    return optimality(x, table.values, table.starts, table.family, table.sums)[0]
