# SPDX-License-Identifier: Apache-2.0
"""apply: the owner applies a plan to the true data, sees which bins really overflow, and repairs them.

A number means the decimal it prints as; loads are sums of whole numbers of one unit, divided once. So a bin that is
full to the last gram is full, not overloaded.

Repair goes by stages, each only if those before do not do: exchange packages that look alike to the planner; move
packages between bins; open bins; leave packages behind. Whoever knows the weights and fills the trucks by them tells
something about them, so everything exchangeable is redrawn, repairs are searched from many random starts, and one of
those found is drawn at random; moves are not minimised. Truck linkage is restated afterwards.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dunnage.dataset import Dataset
from dunnage.errors import InputError, ParameterError, ReleaseError
from dunnage.folders import new_folder
from dunnage.noise import Noise
from dunnage.planning.plan import (
    Plan,
    Truck,
    exchangeable,
    named_rows,
    parse_capacity,
    read_assignment,
    truck_linkage,
)
from dunnage.publication import Key
from dunnage.release import Release, write_csv
from dunnage.settle.repair import LEFT_BEHIND, Fill, Repair, Task, find_repair, linkage_after, task_of

FORMAT = 1
SETTLEMENT_FILE = "settlement.json"

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Progress = Callable[[str], None]


@dataclass(frozen=True, eq=False, kw_only=True)
class Settlement:
    """A plan applied to the true data. Private; its ``repr`` shows no row.

    Parameters
    ----------
    plan, release
        The plan, and the digest of the release it was made on.
    quantity, unit
        What was packed.
    loads, capacities
        True load and capacity of each bin of the plan, before repair.
    overloaded
        The bins above capacity, before repair: ``bin``, ``load``, ``capacity``.
    plan_feasible, bins_feasible
        Whether every bin fits, and the share of bins that do; before repair.
    repair
        None if none was asked for or needed; else ``feasible``, ``permuted``, ``moved``, ``opened``, ``left_behind``,
        ``repairs_found`` and a ``sentence``.
    bin_of_row
        Final bin of each released row, -1 if it is left behind.
    truck_of_bin, final_loads, final_capacities
        Truck, load and capacity of each final bin; opened ones come last.
    truck_linkage
        As in the plan, restated: after a repair an estimate, with how many repairs it rests on.
    unplanned
        Packages that travel outside the plan: ``count``, ``left_out``, ``suppressed``, ``left_behind``.
    loading
        ``row``, ``source_row``, ``bin`` and the identifiers, by bin; those left behind (bin -1) last.
    seconds
        Time taken.
    """

    plan: Plan
    release: str
    quantity: str
    unit: str
    loads: FloatArray
    capacities: FloatArray
    overloaded: list[dict[str, Any]]
    plan_feasible: bool
    bins_feasible: float
    repair: dict[str, Any] | None
    bin_of_row: IntArray
    truck_of_bin: tuple[str, ...]
    final_loads: FloatArray
    final_capacities: FloatArray
    truck_linkage: dict[str, Any]
    unplanned: dict[str, int]
    loading: pa.Table
    seconds: float

    def __repr__(self) -> str:
        return f"Settlement({self.plan.objective} bins, {len(self.overloaded)} overloaded, private)"

    @property
    def feasible(self) -> bool:
        """Whether every bin fits, in the end."""
        return self.plan_feasible if self.repair is None else bool(self.repair["feasible"])

    def to_dict(self) -> dict[str, Any]:
        """Give everything but the loading list as plain data."""
        return {
            "format": FORMAT,
            "kind": "packing",
            "release": self.release,
            "external": self.plan.external,
            "quantity": self.quantity,
            "unit": self.unit,
            "plan_feasible": self.plan_feasible,
            "bins_feasible": self.bins_feasible,
            "feasible": self.feasible,
            "overloaded": self.overloaded,
            "repair": self.repair,
            "unplanned": self.unplanned,
            "truck_linkage": self.truck_linkage,
            "loads": self.loads.tolist(),
            "capacities": self.capacities.tolist(),
            "final_loads": self.final_loads.tolist(),
            "seconds": round(self.seconds, 3),
        }

    def summary(self) -> str:
        """Describe the settlement for its owner."""
        linkage, outside = self.truck_linkage, self.unplanned
        worst = max((item["load"] / item["capacity"] for item in self.overloaded), default=1.0) - 1
        over = f"{len(self.overloaded)} overloaded, by {worst:.1%} at most" if self.overloaded else "all of them fit"
        lines = [
            f"Bins        {len(self.loads)}, {over}",
            f"Feasible    plan {'yes' if self.plan_feasible else 'no'}, bins {self.bins_feasible:.1%}",
        ]
        if self.repair is not None:
            lines.append(f"Repair      {self.repair['sentence']}")
        elif not self.plan_feasible:
            lines.append("Repair      not asked for; --repair tries it")
        lines.append(
            f"Linkage     who knows a weight names its truck with {linkage['mean']:.1%} on average, "
            f"{linkage['worst']:.1%} at worst ({linkage['kind']})"
        )
        if outside["count"]:
            parts = ", ".join(f"{outside[name]} {name.replace('_', ' ')}" for name in list(outside)[1:])
            lines.append(f"Unplanned   {outside['count']} packages: {parts}")
        return "\n".join([*lines, f"Seconds     {self.seconds:.2f}"])

    def write(self, folder: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write ``settlement.json``, ``loading.csv`` and ``loads.csv``, readable by their owner alone."""
        with new_folder(folder, marker=SETTLEMENT_FILE, force=force, private=True) as work:
            text = json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
            (work / SETTLEMENT_FILE).write_text(text, encoding="utf-8")
            write_csv(self.loading, work / "loading.csv")
            loads = {
                "bin": np.arange(len(self.truck_of_bin)),
                "truck": list(self.truck_of_bin),
                "load": self.final_loads,
                "capacity": self.final_capacities,
            }
            write_csv(pa.table(loads), work / "loads.csv")
        return Path(folder)


def apply(
    plan: Plan | str | os.PathLike[str],
    data: Dataset,
    release: Release,
    key: Key,
    *,
    capacity: float | str | None = None,
    trucks: Sequence[Truck] | None = None,
    repair: bool = False,
    leave_behind: bool = False,
    noise: Noise | None = None,
    progress: Progress | None = None,
) -> Settlement:
    """Apply a plan to the true data: what really overflows, repaired if asked, and the loading list.

    Parameters
    ----------
    plan
        A plan, a plan folder, or a CSV file ``row,bin`` of another solver.
    data, release, key
        The rows that were published, what was published, and which row is which record.
    capacity, trucks
        What a truck holds, or the kinds of truck; needed for a CSV file, and replaces the plan's own otherwise.
    repair, leave_behind
        Repair bins that overflow; if nothing else helps, by leaving packages behind (which implies ``repair``).
    noise, progress
        Randomness of the repair, by default the operating system's; called with a line as each of its stages begins.

    Raises
    ------
    UserError
        If key, data, release and plan do not belong together, the plan does not cover every row once, or a bin has no
        truck.
    """
    start = time.monotonic()
    records = matched_records(data, release, key)
    chosen = _plan_of(plan, release, capacity, trucks)
    quantity = _quantity(chosen, release)
    task = task_of(chosen, quantity, data.numbers(quantity)[records], release)
    planned, mended = Fill.of_plan(task), None
    if (repair or leave_behind) and planned.overload:
        mended = find_repair(task, noise or Noise(), leave_behind=leave_behind, tell=progress or (lambda line: None))
    return Settlement(
        plan=chosen,
        release=release.certificate.digest,
        quantity=quantity,
        unit=chosen.unit,
        **_findings(task, planned),
        **_outcome(task, mended.fill if mended else planned, mended, data, key),
        seconds=time.monotonic() - start,
    )


def _outcome(task: Task, final: Fill, mended: Repair | None, data: Dataset, key: Key) -> dict[str, Any]:
    """Say how the trucks are filled in the end."""
    return {
        "repair": mended.report if mended else None,
        "bin_of_row": final.bin_of_row,
        "truck_of_bin": tuple(truck.name for truck in final.truck_of_bin),
        "final_loads": task.amounts(final.loads),
        "final_capacities": task.amounts(final.capacities),
        "truck_linkage": linkage_after(task, final, mended),
        "unplanned": _unplanned(data, final),
        "loading": _loading(key, final.bin_of_row),
    }


def _findings(task: Task, planned: Fill) -> dict[str, Any]:
    """Say what the plan is worth before any repair."""
    loads, capacities = task.amounts(planned.loads), task.amounts(planned.capacities)
    over = planned.overloaded.tolist()
    return {
        "loads": loads,
        "capacities": capacities,
        "overloaded": [{"bin": b, "load": float(loads[b]), "capacity": float(capacities[b])} for b in over],
        "plan_feasible": not over,
        "bins_feasible": (len(loads) - len(over)) / len(loads),
    }


def _unplanned(data: Dataset, final: Fill) -> dict[str, int]:
    parts = {
        "left_out": data.num_left_out,
        "suppressed": len(data) - len(final.bin_of_row),
        "left_behind": int((final.bin_of_row == LEFT_BEHIND).sum()),
    }
    return {"count": sum(parts.values()), **parts}


def _loading(key: Key, bin_of_row: IntArray) -> pa.Table:
    # loading : row, source_row, bin, identifiers
    table = key.table.replace_schema_metadata(None)
    rows = table.column("row").to_numpy()
    bins = bin_of_row[rows]
    identifiers = [name for name in table.column_names if name not in ("row", "source_row", "class_id")]
    columns = {"row": table.column("row"), "source_row": table.column("source_row"), "bin": bins}
    listed = pa.table({**columns, **{name: table.column(name) for name in identifiers}})
    return listed.take(pa.array(np.lexsort((rows, bins, bins == LEFT_BEHIND))))


def matched_records(data: Dataset, release: Release, key: Key) -> IntArray:
    """Return which dataset row each released row is, after checking that key, release and data belong together.

    Raises
    ------
    ReleaseError
        If the key is another release's, or was made from other rows.
    """
    if key.certificate_digest and key.certificate_digest != release.certificate.digest:
        raise ReleaseError("the key belongs to another release. Give the key that was written beside this one.")
    try:
        order = np.argsort(key.table.column("row").to_numpy())
        rows, source, classes = (key.table.column(n).to_numpy()[order] for n in ("row", "source_row", "class_id"))
    except (KeyError, pa.ArrowException):
        raise ReleaseError("the key lacks a column. Give the file that publish wrote.") from None
    whole = np.arange(len(release))
    same = np.array_equal(rows, whole) and np.array_equal(release.data.column("row").to_numpy(), whole)
    if not same or not np.array_equal(classes, release.data.column("class_id").to_numpy()):
        raise ReleaseError("the key does not fit the rows of this release. Give the key that was written beside it.")
    if not key.belongs_to(data):
        raise ReleaseError(
            "the key was not made from these rows: another file, period or policy, or a cell was altered. "
            "Give the data exactly as they were published."
        )
    by_source = np.argsort(data.source_rows)
    records = by_source[np.searchsorted(data.source_rows[by_source], source).clip(max=len(data) - 1)]
    if not np.array_equal(data.source_rows[records], source):
        raise ReleaseError("the key names records that the data have not. Give the file that publish wrote.")
    found: IntArray = records
    return found


def _plan_of(
    plan: Plan | str | os.PathLike[str],
    release: Release,
    capacity: float | str | None,
    trucks: Sequence[Truck] | None,
) -> Plan:
    """Read and check a plan; what is given of trucks replaces its own."""
    if capacity is not None and trucks is not None:
        raise ParameterError("apply takes a capacity or trucks, not both. Drop one.")
    if isinstance(plan, Plan):
        source, found = "plan", plan
    elif (path := Path(plan)).is_dir():
        source, found = str(path), Plan.read(path)
    else:
        return _external_plan(path, release, capacity, trucks)
    if found.release != release.certificate.digest and (found.release or not found.external):
        raise ReleaseError(f"{source} was made on another release. Give that release, or plan on this one.")
    _check_rows(source, found, len(release))
    return _with_trucks(found, _quantity(found, release), capacity, trucks)


def _check_rows(source: str, plan: Plan, num_rows: int) -> None:
    planned = len(plan.bin_of_row)
    if planned < num_rows:
        missing = np.arange(planned, num_rows)
        raise InputError(source, [f"row {named_rows(missing)} is missing. Assign every row of the release."])
    if planned > num_rows:
        more = np.arange(num_rows, planned)
        raise InputError(source, [f"the release has no row {named_rows(more)}. Plan on the rows it has."])
    bad = np.flatnonzero((plan.bin_of_row < 0) | (plan.bin_of_row >= plan.objective))
    if len(bad):
        raise InputError(source, [f"row {named_rows(bad)} is in a bin without a truck. Name a truck for every bin."])


def _with_trucks(plan: Plan, quantity: str, capacity: float | str | None, trucks: Sequence[Truck] | None) -> Plan:
    if capacity is not None and len(plan.trucks) != 1:
        raise ParameterError(f"the plan has {len(plan.trucks)} kinds of truck. Give trucks instead of a capacity.")
    if capacity is not None:
        held = {quantity: parse_capacity(str(capacity), quantity, plan.unit)}
        trucks = [replace(plan.trucks[0], capacity=held)]
    plan = plan if trucks is None else replace(plan, trucks=tuple(trucks))
    kinds = {truck.name: truck for truck in plan.trucks}
    for name, times in Counter(plan.truck_of_bin).items():
        if name not in kinds:
            raise ParameterError(f"{times} bins have no truck: no kind is called {name!r}. Add it to the trucks.")
        held_by = kinds[name].capacity.get(quantity, 0)
        if not (math.isfinite(held_by) and held_by > 0):
            raise ParameterError(f"truck {name!r} has no capacity for {quantity}. Give it one above 0.")
        most = kinds[name].count
        if most is not None and times > most:
            raise ParameterError(
                f"{times - most} bins have no truck: the plan fills {times} of kind {name!r}, there are {most}. "
                "Give more trucks or another plan."
            )
    return plan


def _external_plan(path: Path, release: Release, capacity: float | str | None, trucks: Sequence[Truck] | None) -> Plan:
    """Make a plan of somebody else's ``row,bin``."""
    bin_of_row = read_assignment(path, num_rows=len(release))
    if capacity is None and trucks is None:
        raise ParameterError(f"{path} does not say what a truck holds. Give --capacity 500kg, or --trucks trucks.csv.")
    if trucks is not None and len(trucks) != 1:
        raise ParameterError(
            f"{path} does not say which bin is which of {len(trucks)} kinds of truck. Give one kind, or a plan folder "
            "with bins.csv."
        )
    quantity = _named_quantity(release, capacity, trucks)
    unit = release.uncertain(quantity).unit
    held = {quantity: parse_capacity(str(capacity), quantity, unit)} if trucks is None else {}
    truck = trucks[0] if trucks is not None else Truck(name="truck", capacity=held)
    plan = Plan(
        release="",
        bin_of_row=bin_of_row,
        truck_of_bin=(truck.name,) * (int(bin_of_row.max()) + 1),
        trucks=(truck,),
        model={"name": "external", "quantity": quantity},
        bound=0,
        seconds=0.0,
        unit=unit,
        truck_linkage=truck_linkage(exchangeable(release), bin_of_row),
        external=True,
    )
    return _with_trucks(plan, quantity, None, None)


def _named_quantity(release: Release, capacity: float | str | None, trucks: Sequence[Truck] | None) -> str:
    """Return the quantity that a capacity or truck is about."""
    known = release.quantities
    given = list(trucks[0].capacity) if trucks else [str(capacity).rpartition("=")[0].strip()]
    found = [name for name in known if name in given] or known
    if len(found) != 1:
        raise ParameterError(
            f"the release has the quantities {', '.join(known) or 'none'}. Say which one trucks hold: weight=500."
        )
    return found[0]


def _quantity(plan: Plan, release: Release) -> str:
    known = release.quantities
    quantity = plan.model.get("quantity", known[0] if len(known) == 1 else None)
    if quantity not in known:
        raise ParameterError(
            f"the plan packs {quantity!r}, the release has {', '.join(known) or 'none'}. Plan on the release."
        )
    return str(quantity)
