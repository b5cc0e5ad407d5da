# SPDX-License-Identifier: Apache-2.0
"""apply: the owner applies a plan to the true data, sees which bins really overflow, and repairs them.

A number means the decimal it prints as; loads are sums of whole numbers of one unit, divided once. So a bin that is
full to the last gram is full, not overloaded.

A sealed plan says how many packages of each class a bin takes; which ones is drawn here, uniformly among the ways in
which every bin fits.

Repair goes by stages, each only if those before do not do: exchange packages that look alike to the planner; move
packages between bins; open bins; leave packages behind. Whoever knows the weights and fills the trucks by them tells
something about them, so everything exchangeable is redrawn, repairs are searched from many random starts, and one of
those found is drawn at random; moves are not minimised. Truck linkage is restated afterwards.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dunnage.arrays import FloatArray, IntArray
from dunnage.dataset import Dataset
from dunnage.errors import ReleaseError
from dunnage.folders import new_folder
from dunnage.noise import Noise
from dunnage.planning.plan import Plan
from dunnage.planning.trucks import Truck
from dunnage.publication import Key
from dunnage.release import Release, write_csv
from dunnage.settle.drawing import Drawn, draw, told_number
from dunnage.settle.received import received_plan
from dunnage.settle.repair import Repair, find_exchange, find_repair
from dunnage.settle.restating import restated_linkage
from dunnage.settle.task import LEFT_BEHIND, Fill, Task, task_of

FORMAT = 1
SETTLEMENT_FILE = "settlement.json"

Progress = Callable[[str], None]


@dataclass(frozen=True, eq=False, kw_only=True)
class Settlement:
    """A plan applied to the true data. Private; its ``repr`` shows no row.

    Parameters
    ----------
    plan, release
        The plan, and the digest of the release it was made on.
    quantities
        What was packed: name and unit of each quantity.
    loads, capacities
        True load and capacity of each bin of the plan, before repair. Shape: bins by quantities.
    overloaded
        What is above capacity before repair, by bin and quantity: ``bin``, ``quantity``, ``load``, ``capacity``.
    plan_feasible, bins_feasible
        Whether every bin fits, and the share of bins that do; before repair.
    sealed
        For a sealed plan, how many feasible fills one was drawn from (``fills``; None if they were not counted, 1e300
        for any larger number), and whether all were equally likely (``exact``); None for any other plan.
    repair
        None if none was asked for or needed; else ``feasible``, ``permuted``, ``moved``, ``opened``, ``left_behind``,
        ``repairs_found`` and a ``sentence``.
    bin_of_row
        Final bin of each released row, -1 if it is left behind.
    truck_of_bin, final_loads, final_capacities
        Truck, loads and capacities of each final bin; opened ones come last.
    truck_linkage
        As in the plan, restated: exact where the ways to fill the trucks were counted, else an estimate with how many
        repairs it rests on; ``if_seen_to_fit`` bounds it for someone who sees that everything fitted. Empty if the
        release does not say how its noise was drawn.
    above_spread
        Where a repair broke the spread that was planned: ``bin``, ``class_id``, ``count``, ``allowed``.
    unplanned
        Packages that travel outside the plan: ``count``, ``left_out``, ``unsampled`` if the release is of a sample,
        ``suppressed``, ``left_behind``.
    loading
        ``row``, ``source_row``, ``bin`` and the identifiers, by bin; those left behind (bin -1) last.
    task
        The plan beside the truth, as it was settled.
    seconds
        Time taken.
    """

    plan: Plan
    release: str
    quantities: Mapping[str, str]
    loads: FloatArray
    capacities: FloatArray
    overloaded: list[dict[str, Any]]
    plan_feasible: bool
    bins_feasible: float
    sealed: dict[str, Any] | None
    repair: dict[str, Any] | None
    bin_of_row: IntArray
    truck_of_bin: tuple[str, ...]
    final_loads: FloatArray
    final_capacities: FloatArray
    truck_linkage: dict[str, Any]
    above_spread: list[dict[str, int]]
    unplanned: dict[str, int]
    loading: pa.Table
    task: Task
    seconds: float

    def __repr__(self) -> str:
        return f"Settlement({self.plan.num_bins} bins, {len(self._bins_over)} overloaded, private)"

    @property
    def feasible(self) -> bool:
        """Whether every bin fits, in the end."""
        return self.plan_feasible if self.repair is None else bool(self.repair["feasible"])

    @property
    def _bins_over(self) -> set[int]:
        return {item["bin"] for item in self.overloaded}

    def to_dict(self) -> dict[str, Any]:
        """Give everything but the loading list as plain data."""
        only = dict(zip(("quantity", "unit"), next(iter(self.quantities.items())), strict=True))
        return {
            "format": FORMAT,
            "kind": "packing",
            "release": self.release,
            "external": self.plan.external,
            "quantities": dict(self.quantities),
            **(only if len(self.quantities) == 1 else {}),
            "plan_feasible": self.plan_feasible,
            "bins_feasible": self.bins_feasible,
            "feasible": self.feasible,
            "overloaded": self.overloaded,
            "sealed": self.sealed,
            "repair": self.repair,
            "spread": self._spread(),
            "unplanned": self.unplanned,
            "truck_linkage": self.truck_linkage,
            "loads": self._by_quantity(self.loads),
            "capacities": self._by_quantity(self.capacities),
            "final_loads": self._by_quantity(self.final_loads),
            "seconds": round(self.seconds, 3),
        }

    def _spread(self) -> dict[str, Any] | None:
        """Say whether the spread that was planned holds in the end."""
        if self.plan.spread is None:
            return None
        return {"planned": self.plan.spread, "kept": not self.above_spread, "above": self.above_spread}

    def _by_quantity(self, table: FloatArray) -> list[float] | dict[str, list[float]]:
        """Give a table of bins by quantities as a list if there is one quantity, else as one list for each."""
        columns = dict(zip(self.quantities, table.T.tolist(), strict=True))
        return columns if len(columns) > 1 else next(iter(columns.values()))

    def summary(self) -> str:
        """Describe the settlement for its owner."""
        outside = self.unplanned
        worst = max((item["load"] / item["capacity"] for item in self.overloaded), default=1.0) - 1
        over = f"{len(self._bins_over)} overloaded, by {worst:.1%} at most" if self.overloaded else "all of them fit"
        lines = [
            f"Bins        {len(self.loads)}, {over}",
            f"Feasible    plan {'yes' if self.plan_feasible else 'no'}, bins {self.bins_feasible:.1%}",
        ]
        if self.sealed is not None:
            lines.append(f"Sealed      {self._sealed_text()}")
        if self.repair is not None:
            lines.append(f"Repair      {self.repair['sentence']}")
        elif not self.plan_feasible:
            lines.append("Repair      not asked for; --repair tries it")
        if self.above_spread:
            lines.append(
                f"Spread      lost in the repair: {len(self.above_spread)} times a truck takes more than "
                f"1/{self.plan.spread} of a class"
            )
        lines.append(f"Linkage     {self._linkage_text()}")
        if outside["count"]:
            parts = ", ".join(f"{outside[name]} {name.replace('_', ' ')}" for name in list(outside)[1:])
            lines.append(f"Unplanned   {outside['count']} packages: {parts}")
        return "\n".join([*lines, f"Seconds     {self.seconds:.2f}"])

    def _linkage_text(self) -> str:
        linkage = self.truck_linkage
        if not linkage:
            return "unknown: the release does not say how its noise was drawn"
        seen = linkage.get("if_seen_to_fit")
        return (
            f"who knows a weight names its truck with {linkage['mean']:.1%} on average, "
            f"{linkage['worst']:.1%} at worst ({linkage['kind']})"
            + ("" if seen is None else f"; who also sees that all fitted, with {seen:.1%} at most")
        )

    def _sealed_text(self) -> str:
        sealed = self.sealed or {}
        if not self.plan_feasible:
            return "no feasible fill exists" if sealed["exact"] else "no feasible fill was found"
        if not sealed["exact"]:
            return "filled at random; the feasible fills are too many to count, so not all may be equally likely"
        return f"filled at random, each of {sealed['fills']:.4g} feasible fills equally likely"

    def write(self, folder: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write ``settlement.json``, ``loading.csv`` and ``loads.csv``, readable by their owner alone."""
        with new_folder(folder, marker=SETTLEMENT_FILE, force=force, private=True) as work:
            text = json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
            (work / SETTLEMENT_FILE).write_text(text, encoding="utf-8")
            write_csv(self.loading, work / "loading.csv")
            write_csv(self._loads_table(), work / "loads.csv")
        return Path(folder)

    def _loads_table(self) -> pa.Table:
        # loads : bin, truck, load, capacity; with several quantities load_x, capacity_x for each
        columns: dict[str, Any] = {"bin": np.arange(len(self.truck_of_bin)), "truck": list(self.truck_of_bin)}
        for quantity, load, capacity in zip(self.quantities, self.final_loads.T, self.final_capacities.T, strict=True):
            end = f"_{quantity}" if len(self.quantities) > 1 else ""
            columns |= {f"load{end}": load, f"capacity{end}": capacity}
        return pa.table(columns)


def apply(
    plan: Plan | str | os.PathLike[str],
    data: Dataset,
    release: Release,
    key: Key,
    *,
    capacity: float | str | Sequence[str | float] | None = None,
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
        What a truck holds, or the kinds of truck; needed for a CSV file, and replaces the plan's own otherwise. Several
        capacities are of several quantities: ``["500kg", "volume=9"]``.
    repair, leave_behind
        Repair bins that overflow; if nothing else helps, by leaving packages behind (which implies ``repair``).
    noise, progress
        Randomness of a sealed plan's fill and of the repair, by default the operating system's; called with a line as
        each stage begins.

    Raises
    ------
    UserError
        If key, data, release and plan do not belong together, the plan does not cover every row once, or a bin has no
        truck.
    """
    start = time.monotonic()
    noise, tell = noise or Noise(), progress or (lambda line: None)
    records = matched_records(data, release, key)
    chosen = received_plan(plan, release, capacity, trucks)
    amounts = np.column_stack([data.numbers(quantity)[records] for quantity in chosen.quantities])
    task = task_of(chosen, amounts, release, noise)
    drawn = _fill_slots(task, noise, tell) if chosen.slots is not None else None
    planned, mended = Fill.of(task, task.start if drawn is None or drawn.bin_of_row is None else drawn.bin_of_row), None
    if (repair or leave_behind) and planned.overload:
        mended = find_repair(task, noise, leave_behind=leave_behind, tell=tell, tried=drawn)
    return Settlement(
        plan=chosen,
        release=release.certificate.digest,
        quantities=dict(chosen.quantities),
        **_findings(task, planned),
        sealed={"fills": told_number(drawn.number), "exact": drawn.exact} if drawn is not None else None,
        **_outcome(task, release, mended.fill if mended else planned, mended, drawn),
        unplanned=_unplanned(data, key, mended.fill if mended else planned),
        loading=_loading(key, (mended.fill if mended else planned).bin_of_row),
        task=task,
        seconds=time.monotonic() - start,
    )


def _fill_slots(task: Task, noise: Noise, tell: Progress) -> Drawn:
    """Choose which packages go into the slots of a sealed plan."""
    tell("filling sealed slots")
    drawn = draw(task, noise)
    return drawn if drawn.exact or drawn.bin_of_row is not None else find_exchange(task, noise)


def _findings(task: Task, planned: Fill) -> dict[str, Any]:
    """Say what the plan is worth before any repair."""
    loads, capacities = task.in_units(planned.loads), task.in_units(planned.capacities)
    over = np.argwhere(planned.loads > planned.capacities).tolist()
    names = list(task.plan.quantities)
    return {
        "loads": loads,
        "capacities": capacities,
        "overloaded": [
            {"bin": b, "quantity": names[q], "load": float(loads[b, q]), "capacity": float(capacities[b, q])}
            for b, q in over
        ],
        "plan_feasible": not over,
        "bins_feasible": (len(loads) - len(planned.overloaded)) / len(loads),
    }


def _outcome(task: Task, release: Release, final: Fill, mended: Repair | None, drawn: Drawn | None) -> dict[str, Any]:
    """Say how the trucks are filled in the end."""
    return {
        "repair": mended.report if mended else None,
        "bin_of_row": final.bin_of_row,
        "truck_of_bin": tuple(truck.name for truck in final.truck_of_bin),
        "final_loads": task.in_units(final.loads),
        "final_capacities": task.in_units(final.capacities),
        "truck_linkage": restated_linkage(task, release, final, mended, drawn),
        "above_spread": task.above_spread(final.bin_of_row),
    }


def _unplanned(data: Dataset, key: Key, final: Fill) -> dict[str, int]:
    not_released = len(data) - len(final.bin_of_row)
    given = key.facts.get("unsampled")
    # Without the figure, or with a strange one, all that was not released counts as suppressed.
    unsampled = given if isinstance(given, int) and 0 <= given <= not_released else None
    parts = {
        "left_out": data.num_left_out,
        **({} if unsampled is None else {"unsampled": unsampled}),
        "suppressed": not_released - (unsampled or 0),
        "left_behind": int((final.bin_of_row == LEFT_BEHIND).sum()),
    }
    return {"count": sum(parts.values()), **parts}


def _loading(key: Key, bin_of_row: IntArray) -> pa.Table:
    # loading : row, source_row, bin, identifiers; a line per source row, so several for a row of merged ones
    table = key.table.replace_schema_metadata(None)
    rows = table.column("row").to_numpy()
    bins = bin_of_row[rows]
    identifiers = [name for name in table.column_names if name not in ("row", "source_row", "class_id")]
    columns = {"row": table.column("row"), "source_row": table.column("source_row"), "bin": bins}
    listed = pa.table({**columns, **{name: table.column(name) for name in identifiers}})
    return listed.take(pa.array(np.lexsort((rows, bins, bins == LEFT_BEHIND))))


def matched_records(data: Dataset, release: Release, key: Key) -> IntArray:
    """Return which dataset row each released row is, after checking that key, release and data belong together."""
    if key.certificate_digest and key.certificate_digest != release.certificate.digest:
        raise ReleaseError("the key belongs to another release. Give the key that was written beside this one.")
    by_class = [name for name in ("class_id",) if name in release.data.column_names]
    try:
        # key : a line per source row
        lines = [key.table.column(name).cast(pa.int64()).to_numpy() for name in ("row", "source_row", *by_class)]
    except (KeyError, pa.ArrowException):
        raise ReleaseError("the key lacks a column. Give the file that publish wrote.") from None
    rows, source, *classes = lines
    whole = np.arange(len(release))
    listed, first = np.unique(rows, return_index=True)
    same = np.array_equal(listed, whole) and np.array_equal(release.data.column("row").to_numpy(), whole)
    if not same or any(not np.array_equal(own, release.data.column("class_id").to_numpy()[rows]) for own in classes):
        raise ReleaseError("the key does not fit the rows of this release. Give the key that was written beside it.")
    if not key.belongs_to(data):
        raise ReleaseError(
            "the key was not made from these rows: another file, period or policy, or a cell was altered. "
            "Give the data exactly as they were published."
        )
    found = data.parts.records_of(source)
    records: IntArray = found[first]
    one_each = np.array_equal(found, records[rows]) and len(np.unique(source)) == len(source)
    if (found < 0).any() or not one_each or len(data.parts.of(records)[0]) != len(source):
        raise ReleaseError("the key names records that the data have not. Give the file that publish wrote.")
    return records
