# SPDX-License-Identifier: Apache-2.0
"""What privacy cost a plan: its bins against the fewest that the true weights need. Private."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dunnage.dataset import Dataset
from dunnage.errors import ParameterError, ReleaseError
from dunnage.planning.packing import Standard, pack, pack_apart
from dunnage.planning.plan import Plan, Truck, rows_by_group
from dunnage.publication import Key
from dunnage.release import Release, Uncertain
from dunnage.settle import Settlement, matched_records
from dunnage.settle.repair import LEFT_BEHIND

DEFAULT_SECONDS = 10.0
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Progress = Callable[[str], None]


@dataclass(frozen=True, eq=False, kw_only=True)
class PlanUtility:
    """What a plan is worth beside the best plan on the true weights. Private.

    Parameters
    ----------
    objective
        Bins in use in the end, opened ones included.
    optimum
        Bins of the best plan found on the true weights of the same packages.
    proven
        Whether no plan on the true weights has fewer.
    plan_feasible, bins_feasible
        Whether every bin of the plan fitted the truth, and the share of bins that did; before any repair.
    truck_linkage
        As the settlement restated it.
    seconds
        Time taken to find the optimum.
    """

    objective: int
    optimum: int
    proven: bool
    plan_feasible: bool
    bins_feasible: float
    truck_linkage: Mapping[str, Any]
    seconds: float

    @property
    def ratio(self) -> float:
        """Bins in use for each bin that the true weights need (o / o_n)."""
        return self.objective / self.optimum

    def to_dict(self) -> dict[str, Any]:
        """Give the result as plain data."""
        return {
            "objective": self.objective,
            "optimum": self.optimum,
            "proven": self.proven,
            "ratio": self.ratio,
            "plan_feasible": self.plan_feasible,
            "bins_feasible": self.bins_feasible,
            "truck_linkage": dict(self.truck_linkage),
            "seconds": round(self.seconds, 3),
        }

    def summary(self) -> str:
        """Describe what privacy cost, for the owner."""
        sure = "proven" if self.proven else "best found"
        return "\n".join(
            [
                f"Bins        {self.objective}, on the true weights {self.optimum} ({sure})",
                f"Ratio       {self.ratio:.3f}",
                f"Feasible    plan {'yes' if self.plan_feasible else 'no'}, bins {self.bins_feasible:.1%}",
                f"Linkage     {self.truck_linkage['mean']:.1%} on average ({self.truck_linkage['kind']})",
            ]
        )


def plan_utility(
    settlement: Settlement, data: Dataset, *, seconds: float = DEFAULT_SECONDS, progress: Progress | None = None
) -> PlanUtility:
    """Compare a settled plan with the best plan on the true weights of the same packages.

    Packages left behind, or heavier than every truck, are in neither. With several kinds of truck the optimum is that
    of the largest kind alone: fewer bins may not be possible, and it does not count as proven.

    Parameters
    ----------
    settlement, data
        The settlement, and the rows it was made with.
    seconds
        Time limit.
    progress
        Called with a line whenever the plan on the true weights improves.

    Raises
    ------
    ReleaseError
        If the settlement names records that the data have not.
    """
    start = time.monotonic()
    kinds = settlement.plan.trucks
    capacity = max(truck.capacity[settlement.quantity] for truck in kinds)
    records, bins = _loaded(settlement, data)
    weights = data.numbers(settlement.quantity)[records]
    fits = weights <= capacity
    if not fits.any():
        raise ParameterError("no package is loaded, so there is nothing to compare. Use larger trucks.")
    groups = _groups(data, settlement.plan.by, records[fits])
    packed, bound = pack_apart(weights[fits], capacity, groups, start + seconds, progress)
    optimum = int(packed.max()) + 1
    return PlanUtility(
        objective=len(np.unique(bins[fits])),
        optimum=optimum,
        proven=optimum == bound and len(kinds) == 1,
        plan_feasible=settlement.plan_feasible,
        bins_feasible=settlement.bins_feasible,
        truck_linkage=settlement.truck_linkage,
        seconds=time.monotonic() - start,
    )


def _loaded(settlement: Settlement, data: Dataset) -> tuple[IntArray, IntArray]:
    """Return the dataset rows that are loaded, and the bin of each."""
    source, bins = (settlement.loading.column(name).to_numpy() for name in ("source_row", "bin"))
    position = {row: number for number, row in enumerate(data.source_rows.tolist())}
    loaded = bins != LEFT_BEHIND
    try:
        return np.array([position[row] for row in source[loaded].tolist()], dtype=np.int64), bins[loaded]
    except KeyError:
        raise ReleaseError("the settlement is of other data. Give the data it was made with.") from None


def _groups(data: Dataset, by: str | None, records: IntArray) -> list[IntArray]:
    """Return positions among the records that are packed together."""
    if by is None:
        return [np.arange(len(records))]
    codes = data.column(by).dictionary_encode().indices.to_numpy(zero_copy_only=False)[records]
    return rows_by_group(codes.astype(np.int64))


@dataclass(frozen=True, kw_only=True, eq=False)
class _TrueWeights(Standard):
    """The standard model on true weights instead of a released statistic."""

    name: ClassVar[str] = "true weights"
    true: FloatArray

    def weights(self, known: Uncertain) -> FloatArray:
        return self.true

    def describe(self) -> dict[str, Any]:
        return {"name": self.name}


def true_plan(
    data: Dataset,
    release: Release,
    key: Key,
    *,
    capacity: float | str | None = None,
    trucks: Sequence[Truck] | None = None,
    by: str | None = None,
    quantity: str | None = None,
    seconds: float = DEFAULT_SECONDS,
    progress: Progress | None = None,
) -> Plan:
    """Plan on the true weights of the released rows, to compare with. Private: never hand it out as a plan.

    Parameters
    ----------
    data, release, key
        The rows that were published, what was published, and which row is which record.
    capacity, trucks, by, quantity, seconds, progress
        As for :func:`dunnage.pack`.
    """
    records = matched_records(data, release, key)
    known = release.quantities
    if quantity is None and len(known) == 1:
        quantity = known[0]
    if quantity not in known:
        raise ParameterError(f"a plan needs one quantity. The release has: {', '.join(known) or 'none'}. Name one.")
    model = _TrueWeights(true=data.numbers(quantity)[records])
    plan = pack(
        release,
        capacity=capacity,
        trucks=trucks,
        model=model,
        by=by,
        quantity=quantity,
        seconds=seconds,
        progress=progress,
    )
    return replace(plan, private=True)
