# SPDX-License-Identifier: Apache-2.0
"""The projection for any partitions of cells, and the same by a general solver of quadratic programs.

:func:`project_cells` takes partitions as they are, cell by cell, and finds the join groups by itself.
:func:`project_general` is the plain alternative to :func:`project`: it hands the problem
as it stands to PIQP (Schwan, Jiang, Kuhn and Jones 2023), an interior-point solver. It takes some hundred times longer
and is less exact; it shares no code with the method of this package but the check of the answer.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dunnage.arrays import FloatArray, IntArray
from dunnage.errors import InternalError
from dunnage.kernels.counts.projection import Family, ListedCells, Projection, check_lengths, optimality, project

# By its own settings PIQP calls some of these problems infeasible, where weights are far apart: none is.
SETTINGS = {
    "eps_abs": 1e-10,
    "eps_rel": 1e-12,
    "eps_duality_gap_abs": 1e-10,
    "eps_duality_gap_rel": 1e-14,
    "iterative_refinement_always_enabled": True,
    "preconditioner_scale_cost": True,
}


def project_cells(
    cells: npt.ArrayLike,  # Noisy value of each cell
    groups: Sequence[npt.ArrayLike],  # For each coarse feature the group of each cell, numbered from 0
    sums: Sequence[npt.ArrayLike],  # For each coarse feature the noisy sums of its groups
    weights: Sequence[float],  # Weight of the cells, then that of each coarse feature
    *,
    tolerance: float = 1e-10,  # Largest residual that is let through
    method: Literal["newton", "general"] = "newton",
) -> Projection:
    """Return the projection of cells under any partitions; ``x`` is in the order of the cells."""
    values = np.asarray(cells, dtype=np.float64)
    parts = [np.asarray(part, dtype=np.float64) for part in sums]
    codes = [np.asarray(part) for part in groups]
    join, num_groups = join_groups(codes)
    order = np.lexsort((-values, join))
    starts = np.searchsorted(join[order], np.arange(num_groups + 1)).astype(np.int64)
    firsts = order[starts[:-1]]  # every join group has a cell
    family = Family(
        groups=tuple(part[firsts].astype(np.int64) for part in codes),
        sizes=tuple(len(part) for part in parts),
        ratios=tuple(weight / weights[0] for weight in weights[1:]),
    )
    candidates = ListedCells(values=values[order], starts=starts, floors=np.full(num_groups, -np.inf), cells=order)
    solve = project if method == "newton" else project_general
    found = solve(candidates, family, parts, tolerance=tolerance)
    x = np.empty(len(values))
    x[order] = found.x
    return replace(found, x=x)


def join_groups(groups: Sequence[npt.NDArray[Any]]) -> tuple[IntArray, int]:
    """Return the join group of each cell, numbered from 0, and their number: cells are together if all groups agree."""
    join, num = np.zeros(len(groups[0]), dtype=np.int64), 1
    for part in groups:
        keys = join * (int(part.max(initial=0)) + 1) + part
        found, join = np.unique(keys, return_inverse=True)
        num = len(found)
    return join.astype(np.int64), num


def project_general(
    candidates: ListedCells,
    family: Family,
    sums: Sequence[FloatArray],
    *,
    tolerance: float = 1e-6,
    start: Sequence[FloatArray] | None = None,
) -> Projection:
    """Return the projection over the listed cells by PIQP; all as for ``project``, except for speed and accuracy.

    The start is not used: an interior-point method has no use for one. ``distance`` is not certified: infinite.
    """
    check_lengths(candidates, family, sums)
    values = np.asarray(candidates.values, dtype=np.float64)
    lengths = np.diff(candidates.starts)
    x, iterations = _solve(values, lengths, family, sums)
    residual, totals = optimality(x, values, candidates.starts, family, sums)
    if not residual <= tolerance:
        raise InternalError(
            f"PIQP did not reach the tolerance. Got a relative residual of {residual:.1e}, "
            f"allowed are {tolerance:.1e}. Use project, which is more exact."
        )
    duals = tuple(
        ratio * (np.asarray(noisy) - total) for ratio, noisy, total in zip(family.ratios, sums, totals, strict=True)
    )
    theta = np.zeros(len(family))
    for dual, groups in zip(duals, family.groups, strict=True):
        theta += dual[groups]
    active = np.repeat(np.arange(len(family)), lengths)[values + np.repeat(theta, lengths) > 0]
    return Projection(
        theta=theta,
        rest=np.zeros(len(family)),
        x=x,
        counts=np.bincount(active, minlength=len(family)),
        sums=totals,
        duals=duals,
        residual=residual,
        distance=np.inf,
        iterations=iterations,
        needed=-theta < candidates.floors,
    )


def quadratic_program(
    values: FloatArray, lengths: IntArray, family: Family, sums: Sequence[FloatArray]
) -> tuple[dict[str, Any], FloatArray]:
    """Return what PIQP is set up with, and lower bounds: cells and sums are variables, tied by rows."""
    from scipy import sparse

    num, num_sums = len(values), sum(family.sizes)
    weights = np.repeat(family.ratios, family.sizes)
    noisy = np.concatenate([np.asarray(part, dtype=np.float64) for part in sums])
    firsts = np.cumsum((0, *family.sizes[:-1]))
    rows = np.concatenate([first + np.repeat(own, lengths) for first, own in zip(firsts, family.groups, strict=True)])
    columns = np.tile(np.arange(num), len(family.sizes))
    ties = sparse.csc_matrix((np.ones(len(rows)), (rows, columns)), shape=(num_sums, num))
    program = {
        "P": sparse.csc_matrix(sparse.diags_array(np.concatenate([np.ones(num), weights]))),
        "c": -np.concatenate([values, weights * noisy]),
        "A": sparse.csc_matrix(sparse.hstack([ties, -sparse.eye_array(num_sums)])),
        "b": np.zeros(num_sums),
    }
    return program, np.concatenate([np.zeros(num), np.full(num_sums, -np.inf)])


def _solve(values: FloatArray, lengths: IntArray, family: Family, sums: Sequence[FloatArray]) -> tuple[FloatArray, int]:
    """Return counts and number of iterations of PIQP; with these settings it reached 1e-6 on 300 random trials."""
    solver = importlib.import_module("piqp").SparseSolver()
    for name, setting in SETTINGS.items():
        setattr(solver.settings, name, setting)
    program, lower = quadratic_program(values, lengths, family, sums)
    solver.setup(**program, x_l=lower)
    solver.solve()
    return np.maximum(np.asarray(solver.result.x)[: len(values)], 0.0), int(solver.result.info.iter)
