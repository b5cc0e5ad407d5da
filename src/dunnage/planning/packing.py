# SPDX-License-Identifier: Apache-2.0
"""pack: released rows into trucks, with a proven bound.

All models differ only in which part of what is known of a weight they read. The standard model takes one number for
each row: the upper bound (every truth fits) or the mean (fewer trucks, some may overflow).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dunnage.bins import l2_bound, pack_bins, whole_numbers
from dunnage.errors import NoPlanError, ParameterError
from dunnage.planning.plan import (
    Plan,
    Truck,
    combinations,
    exchangeable,
    parse_capacity,
    rows_by_group,
    truck_linkage,
)
from dunnage.release import Release, Uncertain

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Progress = Callable[[str], None]

STATISTICS = ("upper", "mean")
DEFAULT_SECONDS = 60.0
_MOST_ROWS_NAMED = 20


@dataclass(frozen=True, kw_only=True)
class Standard:
    """Pack each row as if its weight were one number.

    Parameters
    ----------
    statistic
        ``upper``: the upper bound, so that every truth fits; ``mean``: the class mean, so that some bins may overflow.

    References
    ----------
    Hoogervorst et al. 2019, section 3.1 (eqs. 3-6) and section 6.3.
    """

    name: ClassVar[str] = "standard"
    statistic: str = "upper"

    def __post_init__(self) -> None:
        if self.statistic not in STATISTICS:
            raise ParameterError(f"statistic must be one of {', '.join(STATISTICS)}. Got {self.statistic!r}.")

    def weights(self, known: Uncertain) -> FloatArray:
        """Return the one number for each row."""
        if self.statistic == "upper":
            return known.upper
        if known.nominal is None:
            raise ParameterError(
                f"the release tells no mean of {known.name}. Pack on the upper bound, or ask the owner for "
                'statistic = "mean" or "multiset".'
            )
        return known.nominal

    def describe(self) -> dict[str, Any]:
        """Give name and parameters as plain data."""
        return {"name": self.name, "statistic": self.statistic}


def pack(
    release: Release,
    *,
    capacity: float | str | None = None,
    trucks: Sequence[Truck] | None = None,
    model: Standard | None = None,
    by: str | None = None,
    quantity: str | None = None,
    seconds: float = DEFAULT_SECONDS,
    progress: Progress | None = None,
) -> Plan:
    """Pack released rows into as few trucks as can be found in time, with a proven bound.

    Parameters
    ----------
    release
        What the owner published; nothing else is needed or reached.
    capacity
        What a truck holds: a number, or text with the unit (``"500kg"``).
    trucks
        Instead of ``capacity``: the kind of truck, with its count.
    model
        By default :class:`Standard` on upper bounds.
    by
        A public column: each of its values is packed apart.
    quantity
        What to pack, if the release has several quantities.
    seconds
        Time limit; the best plan found by then is returned with its gap.
    progress
        Called with a line whenever plan or bound improves.

    Returns
    -------
    Plan
        With objective, bound, truck linkage and what is unplanned.

    Raises
    ------
    NoPlanError
        If a row is heavier than any truck, or there are not enough trucks.
    """
    start = time.monotonic()
    if not seconds > 0:
        raise ParameterError(f"seconds must be more than 0. Got {seconds!r}. Give a time limit.")
    if not len(release):
        raise NoPlanError("the release has no row to pack. Ask the owner for one that has.")
    chosen = model or Standard()
    known = release.uncertain(quantity or _only_quantity(release))
    truck = _truck(capacity, trucks, known)
    weights = chosen.weights(known)
    _check_rows_fit(weights, truck, known)
    groups = _groups(release, by)
    bin_of_row, bound = pack_apart(weights, truck.capacity[known.name], groups, start + seconds, progress)
    objective = int(bin_of_row.max()) + 1
    if truck.count is not None and objective > truck.count:
        more = "cannot be enough" if bound > truck.count else f"were not enough within {seconds:g} seconds"
        raise NoPlanError(f"{truck.count} trucks {more}: {objective} are needed by this plan, {bound} at least.")
    return Plan(
        release=release.certificate.digest,
        bin_of_row=bin_of_row,
        truck_of_bin=(truck.name,) * objective,
        trucks=(truck,),
        model={**chosen.describe(), "quantity": known.name},
        bound=bound,
        seconds=time.monotonic() - start,
        unit=known.unit,
        by=by,
        truck_linkage=truck_linkage(exchangeable(release), bin_of_row),
        unplanned=_unplanned(release),
    )


def _only_quantity(release: Release) -> str:
    names = release.quantities
    if len(names) != 1:
        found = ", ".join(names) or "none"
        raise ParameterError(f"pack needs one quantity. The release has: {found}. Name one with quantity=.")
    return names[0]


def _truck(capacity: float | str | None, trucks: Sequence[Truck] | None, known: Uncertain) -> Truck:
    if (capacity is None) == (trucks is None):
        raise ParameterError("pack needs either a capacity or trucks. Give --capacity 500kg, or --trucks trucks.csv.")
    if trucks is None:
        return Truck(name="truck", capacity={known.name: parse_capacity(str(capacity), known.name, known.unit)})
    if len(trucks) != 1:
        raise ParameterError(
            f"the standard model packs one kind of truck. Got {len(trucks)}. Leave one line in the file."
        )
    held = trucks[0].capacity.get(known.name, 0.0)
    if not 0 < held < float("inf"):
        raise ParameterError(f"truck {trucks[0].name!r} has no capacity for {known.name}. Give it one above 0.")
    return trucks[0]


def _check_rows_fit(weights: FloatArray, truck: Truck, known: Uncertain) -> None:
    heavy = np.flatnonzero(weights > truck.capacity[known.name])
    if len(heavy):
        rows = ", ".join(str(row) for row in heavy[:_MOST_ROWS_NAMED].tolist())
        raise NoPlanError(
            f"no truck can take {len(heavy)} released rows, heavier than {truck.capacity[known.name]:g} {known.unit}: "
            f"row {rows}{' and more' if len(heavy) > _MOST_ROWS_NAMED else ''}. Use a larger truck."
        )


def _groups(release: Release, by: str | None) -> list[IntArray]:
    """Return the rows to be packed together."""
    if by is None:
        return [np.arange(len(release), dtype=np.int64)]
    public = [name for name, item in release.attributes.items() if item["role"] == "public"]
    if by not in public:
        known = ", ".join(public) or "none, so leave it out"
        raise ParameterError(f"rows can be packed apart by a public column only. Got {by!r}. There is: {known}.")
    return rows_by_group(combinations(release, [by]))


def pack_apart(
    weights: FloatArray, capacity: float, groups: list[IntArray], deadline: float, progress: Progress | None
) -> tuple[IntArray, int]:
    """Pack each group of rows apart; time that one leaves over is the next one's.

    Returns
    -------
    tuple
        The bin of each row, and how many bins are needed at least.
    """
    bin_of_row = np.empty(len(weights), dtype=np.int64)
    num_bins = bound = 0
    for number, rows in enumerate(groups):
        left = max(deadline - time.monotonic(), 0.05) / (len(groups) - number)
        packing = _pack_group(weights[rows], capacity, left, _telling(progress, number, len(groups)))
        for items in packing[0]:
            bin_of_row[rows[items]] = num_bins
            num_bins += 1
        bound += packing[1]
    return bin_of_row, bound


def _pack_group(
    weights: FloatArray, capacity: float, seconds: float, progress: Callable[[str, int, int], None] | None
) -> tuple[list[list[int]], int]:
    start = time.monotonic()
    numbers = whole_numbers(weights, capacity)
    packing = pack_bins(numbers.items, numbers.capacity, seconds=seconds, progress=progress)
    if numbers.below is None:
        return packing.bins, packing.bound
    # Packed on numbers rounded outward: only a bound on numbers rounded inward holds in truth.
    items, room = numbers.below
    bound = max(l2_bound(items, room), 1)
    left = seconds - (time.monotonic() - start)
    if bound < len(packing.bins) and left > 0:
        bound = max(bound, pack_bins(items, room, seconds=left).bound)
    return packing.bins, bound


def _telling(progress: Progress | None, number: int, total: int) -> Callable[[str, int, int], None] | None:
    if progress is None:
        return None
    part = f"part {number + 1} of {total}: " if total > 1 else ""
    return lambda stage, bins, bound: progress(f"{part}{bins} bins, at least {bound} needed")


def _unplanned(release: Release) -> dict[str, Any]:
    """Say which packages are known to travel outside the plan; a release may keep their number to itself."""
    suppressed = release.certificate.body["measures"].get("suppressed", {}).get("count")
    leaves_out = any("leave-out" in (item.get("missing"), item.get("outside")) for item in release.attributes.values())
    # Rows that the policy left out are the owner's to count; None says that there may be some.
    return {"count": suppressed, "suppressed": suppressed, "left_out": None if leaves_out else 0}
