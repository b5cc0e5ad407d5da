# SPDX-License-Identifier: Apache-2.0
"""apply: the owner applies a plan to the true data, sees which bins really overflow, and repairs them.

A number means the decimal it prints as. Loads are sums of whole numbers of one unit, divided once, so a bin that is
full to the last gram is full, not overloaded.

A sealed plan says how many packages of each class a bin takes. Which packages these are is chosen here, uniformly at
random among the ways in which every bin fits.

A repair has stages, and a stage is used only if all earlier stages fail: exchange packages that look alike to the
planner; move packages between bins; open bins; leave packages behind. An owner who fills trucks by weight reveals
something about the weights. So everything exchangeable is chosen again at random, the search starts from many random
fills, and the result is one of the repairs at random; the number of moves is not minimised.

Truck linkage is restated afterwards. A uniformly random feasible fill reveals least. Its linkage is exact if the fills
can be counted; otherwise it is estimated from the repairs. Noisy rows are never exchanged, so there the linkage depends
on how well a row can be recognised by its noisy values.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dunnage.arrays import FloatArray, IntArray
from dunnage.errors import InputError, ParameterError, Problem, ReleaseError, check_kind
from dunnage.folders import new_folder
from dunnage.kernels.bins.boxes import TURNS
from dunnage.model import documents
from dunnage.model.documents import Number, OrEmpty
from dunnage.noise.source import Noise
from dunnage.notebooks import Summarised
from dunnage.planning.boxes import ROUNDING, Box, BoxRows, box_rows, faults, inner_sides
from dunnage.planning.linkage import (
    exchangeable,
    linkage_note,
    linkage_of_rows,
    noisy_linkage,
    storable_count,
    truck_linkage,
)
from dunnage.planning.models import PackingModel, Standard
from dunnage.planning.plan import PLACES_HEADER, Linkage, Plan, linkage_text, named_rows, read_assignment
from dunnage.planning.problem import PackingProblem
from dunnage.planning.trucks import Capacity, Truck, check_kinds, listed, parse_capacities
from dunnage.publication import Key, unplanned_rows
from dunnage.release import Release
from dunnage.settle.repair import (
    ESTIMATE_NOTE,
    LEFT_BEHIND,
    LINKAGE_NOTE,
    AboveSpread,
    Fill,
    PrivateModel,
    RandomFill,
    Repair,
    RepairReport,
    RepairTask,
    draw,
    find_exchange,
    find_repair,
    most_frequent_share,
    repair_task,
)
from dunnage.tables.columns import write_csv
from dunnage.tables.dataset import Dataset
from dunnage.text import Progress, for_unit, large_percent, percent, percent_at_most, several

SETTLEMENT_FILE, SETTLEMENT_PAGE = "settlement.json", "settlement.html"
UNPLANNED_FILE, LOADING_PAGE = "unplanned.csv", "loading.html"


class Overload(PrivateModel):
    bin: int
    quantity: str
    load: float
    capacity: float


class SealedFill(PrivateModel):
    """The number of feasible fills (None: not counted, 1e300: or more), and whether all were equally likely."""

    fills: Number | None
    exact: bool


class SlotsFilled(PrivateModel):
    """How the slots of a profile were used."""

    filled: int
    empty: int
    idle_trucks: int  # with empty slots only
    placed: int  # packages without a slot of their size that a repair put into an empty one


class Misplaced(PrivateModel):
    """A true box that does not fit where the plan puts it."""

    bin: int
    row: int
    problem: str


class BoxesPlaced(PrivateModel):
    """How true boxes fit into their cells, which have the sides that were released."""

    larger: int  # boxes that are larger than their cell, which noise can cause
    misplaced: list[Misplaced]  # those that do not fit into their truck, or overlap others


class SpreadKept(PrivateModel):
    """Whether the final bins keep the planned spread, and where they do not."""

    planned: int
    kept: bool
    above: list[AboveSpread]


class Outside(PrivateModel):
    count: int
    left_out: int
    unsampled: int | None = None  # only if the release is of a sample
    suppressed: int
    left_behind: int


class SettlementDocument(PrivateModel):
    """``settlement.json`` of a packing plan; tables of bins by quantities are lists if there is one quantity."""

    format: Literal[1]
    kind: Literal["packing"]
    release: str
    external: bool
    quantities: dict[str, str]
    quantity: str | None = None  # quantity, unit: if there is only one
    unit: str | None = None
    plan_feasible: bool
    bins_feasible: float
    feasible: bool
    overloaded: list[Overload]
    sealed: SealedFill | None
    slots: SlotsFilled | None = None
    boxes: BoxesPlaced | None = None
    repair: RepairReport | None
    spread: SpreadKept | None
    unplanned: Outside
    protects: str = "package"  # what one row is; older settlements do not say
    truck_linkage: OrEmpty[Linkage]
    loads: list[float] | dict[str, list[float]]
    capacities: list[float] | dict[str, list[float]]
    final_loads: list[float] | dict[str, list[float]]
    seconds: Number

    def text(self) -> str:
        num_bins = len(self.loads if isinstance(self.loads, list) else next(iter(self.loads.values()), []))
        sealed, linkage, outside, fit = self.sealed, self.truck_linkage, self.unplanned, "all of them fit"
        if self.boxes is not None and self.boxes.misplaced:
            fit = f"{len({item.bin for item in self.boxes.misplaced})} with boxes that do not fit"
        if self.overloaded:
            worst = max(item.load / item.capacity for item in self.overloaded) - 1
            fit = f"{len({item.bin for item in self.overloaded})} overloaded, by at most {large_percent(worst)}"
        lines = [
            f"Bins        {num_bins}, {fit}",
            f"Feasible    plan {'yes' if self.plan_feasible else 'no'}, bins {percent(self.bins_feasible)}; "
            f"in the end {'yes' if self.feasible else 'no'}",
        ]
        if sealed is not None and not self.plan_feasible:
            outcome = "no feasible fill exists" if sealed.exact else "the search ended without a feasible fill"
            lines.append(f"Sealed      {outcome}")
        elif sealed is not None and sealed.exact:
            fills = "over 1e+300" if (num := sealed.fills or 1) >= 1e300 else f"{num:.4g}"
            lines.append(f"Sealed      filled at random, each of {fills} feasible fills equally likely")
        elif sealed is not None:
            why = "there are too many feasible fills to count, so they may not all be equally likely"
            lines.append(f"Sealed      filled at random; {why}")
        if (slots := self.slots) is not None:
            placed = f"; {several(slots.placed, self.protects)} without a slot of its size went into an empty one"
            idle = f"; {several(slots.idle_trucks, 'truck')} of the plan stay empty" if slots.idle_trucks else ""
            filled = f"{slots.filled} filled, {slots.empty} empty{idle}"
            lines.append(f"Slots       {filled}{placed if slots.placed else ''}")
        if (boxes := self.boxes) is not None:
            inside = "every true box fits into its cell; fill the gaps with padding"
            if boxes.larger:
                inside = f"{several(boxes.larger, self.protects)} larger than the cell"
            lines.append(f"Boxes       {inside}")
        if boxes is not None and boxes.misplaced:
            rows = ", ".join(str(item.row) for item in boxes.misplaced[:20])
            more = f" and {len(boxes.misplaced) - 20} more" if len(boxes.misplaced) > 20 else ""
            lines.append(f"Misplaced   {several(len(boxes.misplaced), self.protects)} not placed: row {rows}{more}")
        if self.repair is not None:
            lines.append(f"Repair      {self.repair.sentence}")
        elif not self.plan_feasible and self.boxes is None:
            lines.append("Repair      not requested; use --repair to try one")
        if (spread := self.spread) is not None:
            lost = f"lost in the repair: {len(spread.above)} times a truck takes more than this part of a class"
            lines.append(f"Spread      1/{spread.planned}, {'kept' if spread.kept else lost}")
        if linkage is None:
            lines.append("Linkage     unknown: the release does not state the law of its noise")
        else:
            after = linkage.if_seen_to_fit
            seen = "for someone who also sees that everything fitted"
            fitted = "" if after is None else f"; at most {percent_at_most(after)} {seen}"
            lines.append(f"Linkage     {linkage_text(linkage, self.protects)}{fitted}")
        if outside.count:
            parts = [f"{num} {name.replace('_', ' ')}" for name, num in outside.plain().items() if name != "count"]
            travels = "travels" if outside.count == 1 else "travel"
            what = f"{several(outside.count, self.protects)} {travels} outside the plan"
            lines.append(f"Unplanned   {what}: {', '.join(parts)}; {UNPLANNED_FILE} names them")
        return "\n".join([*lines, f"Seconds     {self.seconds:.2f}"])


@dataclass(frozen=True, eq=False, kw_only=True)
class Settlement(Summarised):
    """A plan applied to the true data. Private; its ``repr`` shows no rows."""

    plan: Plan
    release: str  # digest of the release
    quantities: Mapping[str, str]  # name and unit of each packed quantity
    loads: FloatArray  # loads, capacities: of each bin in truth, before repair. Shape: bins by quantities
    capacities: FloatArray
    overloaded: list[Overload]  # before repair, by bin and quantity
    plan_feasible: bool  # whether every bin fits, before repair
    bins_feasible: float  # share of bins that fit, before repair
    sealed: SealedFill | None  # only for a sealed plan
    slots: SlotsFilled | None  # only for a release of slots
    boxes: BoxesPlaced | None  # only for a plan that places boxes
    repair: RepairReport | None  # None if it was not requested or not needed
    bin_of_row: IntArray  # final bin of each released row; -1 if left behind
    truck_of_bin: tuple[str, ...]  # truck, loads and capacities of each final bin; opened bins come last
    final_loads: FloatArray
    final_capacities: FloatArray
    # Restated: exact if the ways to fill the trucks were counted, otherwise an estimate with the number of repairs it
    # is based on. `if_seen_to_fit` is a bound for someone who sees that everything fitted.
    truck_linkage: Linkage | None
    above_spread: list[AboveSpread]  # where a repair exceeds the planned spread
    unplanned: Outside  # packages that travel outside the plan
    # row, source_row, bin, identifiers and the columns of [loading], by bin; packages left behind (bin -1) last
    loading: pa.Table
    unplanned_rows: pa.Table  # source_row, reason, column, identifiers and the columns of [loading]
    task: RepairTask  # the plan and the true amounts
    seconds: float  # time taken
    protects: str = "package"  # what one row is, as the certificate of the release says

    def __repr__(self) -> str:
        over = {item.bin for item in self.overloaded}
        return f"Settlement({self.plan.num_bins} bins, {len(over)} overloaded, private)"

    @property
    def feasible(self) -> bool:
        """Whether every final bin fits."""
        return self.plan_feasible if self.repair is None else self.repair.feasible

    @property
    def document(self) -> SettlementDocument:
        stated = {name: getattr(self, name) for name in SettlementDocument.model_fields if hasattr(self, name)}
        spread = None
        if self.plan.spread is not None:
            spread = SpreadKept(planned=self.plan.spread, kept=not self.above_spread, above=self.above_spread)
        derived: dict[str, object] = {
            "format": 1,
            "kind": "packing",
            "external": self.plan.external,
            "spread": spread,
            "seconds": round(self.seconds, 3),
        }
        for name in ("loads", "capacities", "final_loads"):  # bins by quantities: a list if there is one quantity
            columns = dict(zip(self.quantities, getattr(self, name).T.tolist(), strict=True))
            derived[name] = columns if len(columns) > 1 else next(iter(columns.values()))
        if len(self.quantities) == 1:
            derived["quantity"], derived["unit"] = next(iter(self.quantities.items()))
        return SettlementDocument.model_validate(stated | derived)

    def to_dict(self) -> dict[str, Any]:
        """Return everything except the loading list as plain data."""
        return self.document.plain()

    def summary(self) -> str:
        """Describe the settlement for its owner."""
        return self.document.text()

    def write(self, folder: str | os.PathLike[str], *, page: str = "", sheets: str = "", force: bool = False) -> Path:
        """Write ``settlement.json``, the lists and the pages, readable only by their owner.

        ``loading.csv`` says which package goes where, ``loads.csv`` how full each truck is, and ``unplanned.csv`` which
        packages travel outside the plan, and why. ``sheets`` is the page to print for the dock.
        """
        may_hold = (LOADING_PAGE, SETTLEMENT_PAGE)
        with new_folder(folder, marker=SETTLEMENT_FILE, force=force, private=True, may_hold=may_hold) as work:
            if page:
                (work / SETTLEMENT_PAGE).write_text(page, encoding="utf-8")
            (work / SETTLEMENT_FILE).write_text(documents.to_text(self.to_dict()), encoding="utf-8")
            if sheets:
                (work / LOADING_PAGE).write_text(sheets, encoding="utf-8")
            write_csv(self.loading, work / "loading.csv")
            write_csv(self.unplanned_rows, work / UNPLANNED_FILE)
            # loads : bin, truck, load, capacity; with several quantities load_x, capacity_x for each
            columns = {"bin": pa.array(np.arange(len(self.truck_of_bin))), "truck": pa.array(self.truck_of_bin)}
            tables = zip(self.quantities, self.final_loads.T, self.final_capacities.T, strict=True)
            for quantity, load, capacity in tables:
                end = f"_{quantity}" if len(self.quantities) > 1 else ""
                columns |= {f"load{end}": pa.array(load), f"capacity{end}": pa.array(capacity)}
            write_csv(pa.table(columns), work / "loads.csv")
        return Path(folder)


def apply(
    plan: Plan | str | os.PathLike[str],
    data: Dataset,
    release: Release,
    key: Key,
    *,
    capacity: Capacity | None = None,
    trucks: Sequence[Truck] | None = None,
    repair: bool = False,
    leave_behind: bool = False,
    noise: Noise | None = None,
    progress: Progress | None = None,
) -> Settlement:
    """Apply a plan to the true data: which bins really overflow, a repair if you want one, and the loading list.

    Parameters
    ----------
    plan
        A plan, a plan folder, or a CSV file ``row,bin`` from another solver.
    data, release, key
        The true rows, the release, and the key that links both.
    capacity, trucks
        The capacity of a truck, or the kinds of truck. A CSV file needs one of them; otherwise they replace those of
        the plan. Give several capacities for several quantities: ``["500kg", "volume=9"]``.
    repair, leave_behind
        Repair bins that overflow. With ``leave_behind``, packages may stay behind if nothing else helps (this implies
        ``repair``).
    noise, progress
        The randomness of fills and repairs, by default from the operating system; and a function that is called with a
        line of text as each stage begins.

    Raises
    ------
    UserError
        If key, data, release and plan do not belong together, the plan does not assign every row once, or a bin has no
        truck.
    """
    start = time.monotonic()
    for given, kind in ((plan, Plan | str | os.PathLike), (data, Dataset), (release, Release), (key, Key)):
        check_kind(
            given, kind, "apply takes a plan, a Dataset, a Release and a Key: dn.apply(plan, data, release, key)"
        )
    noise, unit = noise or Noise(), release.certificate.guarantee.protects
    records = matched_records(data, release, key)
    chosen = received_plan(plan, release, capacity, trucks)
    if chosen.box is not None and (repair or leave_behind):
        raise ParameterError(
            "a repair moves packages between trucks, and this plan places boxes. Leave the repair out; the settlement "
            "names the boxes that do not fit. A plan with --risk or --margin leaves more room."
        )
    records, placed = _with_unplaced(records, data, release, chosen) if repair or leave_behind else (records, [])
    # An empty slot weighs nothing.
    amounts = np.column_stack([np.where(records >= 0, data.numbers(q)[records], 0.0) for q in chosen.quantities])
    task = repair_task(chosen, amounts, release, noise)

    def tell(line: str) -> None:
        if progress is not None:
            progress(for_unit(line, unit))

    fill, start_bins, changed = None, task.start, None
    if chosen.slots is not None:
        tell("filling sealed slots")
        fill = draw(task, noise)
        if not fill.exact and fill.bin_of_row is None:
            fill = find_exchange(task, noise)
        start_bins = task.start if fill.bin_of_row is None else fill.bin_of_row
    planned = Fill.of(task, start_bins)
    if (repair or leave_behind) and planned.overload:
        changed = find_repair(task, noise, leave_behind=leave_behind, tell=tell, tried=fill)
    final = changed.fill if changed else planned
    filled = records >= 0
    not_released = len(data) - int(filled.sum())
    left_behind = int((filled & (final.bin_of_row == LEFT_BEHIND)).sum())
    outside = {
        "count": data.num_left_out + not_released + left_behind,
        "left_out": data.num_left_out,
        "suppressed": not_released,
        "left_behind": left_behind,
    }
    unsampled = key.facts.get("unsampled")
    # Without a valid number, all records that were not released count as suppressed.
    if isinstance(unsampled, int) and 0 <= unsampled <= not_released:
        outside |= {"unsampled": unsampled, "suppressed": not_released - unsampled}
    # loading : row, source_row, bin, identifiers, [loading]; one line per source row, so several for merged rows
    table = key.table.replace_schema_metadata(None)
    if placed:
        which, position = data.parts.of(records[placed])
        more = {"row": np.array(placed)[which], "source_row": data.parts.source_rows[position]}
        more |= {a.name: data.parts.column(a.name).take(pa.array(position)) for a in data.schema.identifiers}
        names = [name for name in table.column_names if name in more]
        table = pa.concat_tables([table.select(names), pa.table(more).select(names)], promote_options="permissive")
    rows = table.column("row").to_numpy()
    bins = final.bin_of_row[rows]
    columns = {"row": table.column("row"), "source_row": table.column("source_row"), "bin": bins}
    columns |= {name: table.column(name) for name in table.column_names if name not in (*columns, "class_id")}
    if chosen.cells is not None:
        sides = dict(zip(PLACES_HEADER[2:], chosen.cells[rows].T, strict=True))
        columns |= {name: side for name, side in sides.items() if name not in columns}
    source = table.column("source_row").to_numpy()
    columns |= data.cells(source, [name for name in data.policy.loading.columns if name not in columns])
    loading = pa.table(columns).take(pa.array(np.lexsort((rows, bins, bins == LEFT_BEHIND))))
    report = None if changed is None else changed.report
    if report is not None:
        report = report.model_copy(update={"sentence": for_unit(report.sentence, unit)})
    linkage = restated_linkage(task, release, final, changed, fill)
    outside_rows = unplanned_rows(data, key, source[bins == LEFT_BEHIND].tolist())
    slots = None
    if release.certificate.rows.slots is not None:
        used = len(np.unique(final.bin_of_row[filled & (final.bin_of_row != LEFT_BEHIND)]))
        slots = SlotsFilled(
            filled=int(filled.sum()),
            empty=int((~filled).sum()),
            idle_trucks=len(final.truck_of_bin) - used,
            placed=len(placed),
        )
        travels = pc.is_in(outside_rows.column("source_row"), pa.array(source[bins != LEFT_BEHIND]))
        outside_rows = outside_rows.filter(pc.invert(travels))
    # The plan before any repair. Shapes: bins by quantities
    loads, capacities = task.in_units(planned.loads), task.in_units(planned.capacities)
    over, names = np.argwhere(planned.loads > planned.capacities).tolist(), list(chosen.quantities)
    boxes = None if chosen.box is None else _placed(chosen, chosen.box, data, records)
    bad = {bin_ for bin_, _ in over} | {item.bin for item in (boxes.misplaced if boxes is not None else [])}
    return Settlement(
        plan=chosen,
        release=release.certificate.digest,
        quantities=dict(chosen.quantities),
        loads=loads,
        capacities=capacities,
        overloaded=[
            Overload(bin=b, quantity=names[q], load=float(loads[b, q]), capacity=float(capacities[b, q]))
            for b, q in over
        ],
        plan_feasible=not bad,
        bins_feasible=(len(loads) - len(bad)) / len(loads),
        sealed=None if fill is None else SealedFill(fills=storable_count(fill.number), exact=fill.exact),
        slots=slots,
        boxes=boxes,
        repair=report,
        bin_of_row=final.bin_of_row,
        truck_of_bin=tuple(truck.name for truck in final.truck_of_bin),
        final_loads=task.in_units(final.loads),
        final_capacities=task.in_units(final.capacities),
        truck_linkage=None if linkage is None else linkage.for_unit(unit),
        above_spread=task.above_spread(final.bin_of_row),
        unplanned=Outside(**outside),
        loading=loading,
        unplanned_rows=outside_rows,
        task=task,
        seconds=time.monotonic() - start,
        protects=unit,
    )


def _placed(plan: Plan, box: Box, data: Dataset, records: IntArray) -> BoxesPlaced:
    """Put the true boxes where the plan has their cells, turned as planned, and check that they fit."""
    assert plan.cells is not None
    sides, cells = np.column_stack([data.numbers(side)[records] for side in box.sides]), plan.cells
    turned = np.stack([sides[:, turn] for turn in TURNS], axis=1)  # rows, turns, axes
    # The turn in which a box exceeds its cell least.
    excess = np.maximum(turned - cells[:, None, 3:], 0.0).sum(axis=2)
    rules = box.rules(lambda name: data.column(name).take(pa.array(records)).to_pylist(), len(records), plan.units)
    allowed = (rules[0][:, None] >> np.arange(len(TURNS))) & 1 == 1
    best = np.where(allowed, excess, np.inf).argmin(axis=1)
    true = np.column_stack([cells[:, :3], turned[np.arange(len(best)), best]])
    nothing = np.zeros(len(best), dtype=np.int64)
    rows = BoxRows(sides, np.zeros((len(best), 0)), *rules, nothing, nothing, 0.0)
    rooms = inner_sides([plan.truck(name) for name in plan.truck_of_bin], box.sides)
    wrong = faults(true, plan.assignment, rooms, rows, true=True)
    misplaced = [Misplaced(bin=int(plan.assignment[row]), row=row, problem=words) for row, words in wrong]
    larger = int((excess[np.arange(len(best)), best] > ROUNDING * cells[:, 3:].sum(axis=1)).sum())
    return BoxesPlaced(larger=larger, misplaced=misplaced)


def check_key(key: Key, release: Release, data: Dataset) -> None:
    if key.certificate_digest and key.certificate_digest != release.certificate.digest:
        raise ReleaseError("the key belongs to another release. Use the key that was written with this release.")
    if not key.belongs_to(data):
        raise ReleaseError(
            "the key was not made from these rows: the file, period or policy is different, or a cell has changed. Use "
            "the data exactly as they were published."
        )


def _with_unplaced(records: IntArray, data: Dataset, release: Release, plan: Plan) -> tuple[IntArray, list[int]]:
    """Put records without a slot into empty ones, where trucks have most room; return also which slots these are."""
    records, placed = records.copy(), list[int]()
    missing = np.setdiff1d(np.arange(len(data)), records)
    if release.certificate.rows.slots is None or not len(missing):
        return records, placed
    names = [name for name, item in release.attributes.items() if item.role == "public"]
    looks = [tuple(map(str, line)) for line in zip(*(release.data.column(n).to_pylist() for n in names), strict=True)]
    rooms = np.array([[plan.truck(name).capacity[q] for q in plan.quantities] for name in plan.truck_of_bin])
    shares = np.column_stack([data.numbers(q) for q in plan.quantities]) / rooms.max(axis=0)
    left = rooms / rooms.max(axis=0)
    if plan.slots is None:
        filled = np.flatnonzero(records >= 0)
        np.subtract.at(left, plan.assignment[filled], shares[records[filled]])
    for record in missing[np.argsort(-shares[missing].max(axis=1))].tolist():
        look = tuple(str(data.column(name)[record].as_py()) for name in names)
        empty = [row for row in np.flatnonzero(records < 0).tolist() if not names or looks[row] == look]
        if not empty:
            continue
        if plan.slots is None:
            row = max(empty, key=lambda row: float((left[plan.assignment[row]] - shares[record]).min()))
            left[plan.assignment[row]] -= shares[record]
        else:  # the fill is chosen so that everything fits, if that is possible
            row = max(empty, key=lambda row: float(release.uncertain(next(iter(plan.quantities))).upper[row]))
        records[row] = record
        placed.append(row)
    return records, placed


def matched_records(data: Dataset, release: Release, key: Key) -> IntArray:
    """Return the dataset row of each released row, after checking that key, release and data belong together.

    It is -1 for an empty slot.
    """
    check_key(key, release, data)
    by_class = [name for name in ("class_id",) if name in release.data.column_names]
    try:
        # key : one line per source row
        lines = [key.table.column(name).cast(pa.int64()).to_numpy() for name in ("row", "source_row", *by_class)]
    except (KeyError, pa.ArrowException):
        raise ReleaseError("the key lacks a column. Use the file that dunnage publish wrote.") from None
    rows, source, *classes = lines
    whole = np.arange(len(release))
    listed, first = np.unique(rows, return_index=True)
    some = release.certificate.rows.slots is not None  # then slots may be empty
    all_rows = np.isin(listed, whole).all() if some else np.array_equal(listed, whole)
    same = all_rows and np.array_equal(release.data.column("row").to_numpy(), whole)
    if not same or any(not np.array_equal(own, release.data.column("class_id").to_numpy()[rows]) for own in classes):
        raise ReleaseError("the key does not match the rows of this release. Use the key that was written with it.")
    matches = data.parts.records_of(source)
    records = np.full(len(release), -1, dtype=np.int64)
    records[listed] = matches[first]
    one_each = np.array_equal(matches, records[rows]) and len(np.unique(source)) == len(source)
    if (matches < 0).any() or not one_each or len(data.parts.of(matches[first])[0]) != len(source):
        raise ReleaseError("the key names records that are not in the data. Use the file that dunnage publish wrote.")
    return records


# A plan as the owner receives it, checked against the release before any private number is used


def received_plan(
    plan: Plan | str | os.PathLike[str], release: Release, capacity: Capacity | None, trucks: Sequence[Truck] | None
) -> Plan:
    """Read and check a plan; a given capacity or trucks replace those of the plan."""
    if capacity is not None and trucks is not None:
        raise ParameterError("apply needs a capacity or trucks, not both. Remove one.")
    if not len(release):
        raise ReleaseError("the release has no rows, so no plan can be applied to it. Publish the data again.")
    if isinstance(plan, Plan):
        source, chosen = "plan", plan
    elif (path := Path(plan)).is_dir():
        source, chosen = str(path), Plan.read(path)
    else:
        source, chosen = str(path), _external_plan(path, release, capacity, trucks)
    if chosen.release != release.certificate.digest and (chosen.release or not chosen.external):
        raise ReleaseError(f"{source} was made from another release. Use that release, or make a plan from this one.")
    if chosen.slots is None:
        bins, num_rows = chosen.assignment, len(release)
        bad = np.flatnonzero((bins < 0) | (bins >= chosen.num_bins))
        problem = ""
        if len(bins) < num_rows:
            missing = named_rows(np.arange(len(bins), num_rows))
            problem = f"row {missing} is missing. Assign every row of the release."
        elif len(bins) > num_rows:
            more = named_rows(np.arange(num_rows, len(bins)))
            problem = f"the release has no row {more}. Make the plan again from this release."
        elif len(bad):
            problem = f"row {named_rows(bad)} is in a bin without a truck. Name a truck for every bin."
        if problem:
            raise InputError(source, [problem])
        if chosen.box is not None and chosen.cells is not None and not problem:
            _check_cells(chosen, chosen.box, release, source)
    else:
        slots = chosen.slots  # they must take each class exactly
        if not len(slots.bin) or min(slots.class_id.min(), slots.count.min()) < 0:
            raise InputError(source, ["has no slots, or negative numbers in them. Make the plan again."])
        if slots.bin.min() < 0 or slots.bin.max() >= chosen.num_bins:
            raise InputError(source, ["has slots in a bin without a truck. Name a truck for every bin."])
        taken: Counter[int] = Counter()
        for number, count in zip(slots.class_id.tolist(), slots.count.tolist(), strict=True):
            taken[number] += count
        sizes = Counter(release.class_of_row.tolist())
        if wrong := [number for number in sorted(taken.keys() | sizes.keys()) if taken[number] != sizes[number]]:
            problems = [
                f"class {number} has {sizes[number]} rows in the release, but the slots take {taken[number]}"
                for number in wrong[:20]
            ]
            more = f" (and {len(wrong) - 20} more classes)" if len(wrong) > 20 else ""
            raise InputError(source, [*problems[:-1], f"{problems[-1]}{more}. Give every row of a class one slot."])
    unknown = [name for name in chosen.units if name not in (*release.quantities, *_sides(chosen))]
    if unknown or not chosen.quantities:
        raise ParameterError(
            f"the plan packs {', '.join(map(repr, unknown)) or 'nothing'}, but the release has "
            f"{', '.join(release.quantities) or 'no quantities'}. Make the plan from this release."
        )
    if trucks is not None:
        chosen = replace(chosen, trucks=tuple(trucks))
    elif capacity is not None:
        if len(chosen.trucks) != 1:
            num = len(chosen.trucks)
            raise ParameterError(f"the plan has {num} kinds of truck. Use trucks instead of a capacity.")
        texts = listed(capacity) if chosen.box is None else chosen.box.capacities(listed(capacity))
        room = {**chosen.trucks[0].capacity, **parse_capacities(texts, chosen.units)}
        chosen = replace(chosen, trucks=(replace(chosen.trucks[0], capacity=room),))
    if chosen.box is not None and (trucks is not None or capacity is not None):
        check_kinds(chosen.trucks, chosen.units)
        chosen = replace(chosen, trucks=tuple(map(chosen.box.with_volume, chosen.trucks)))
    # There must be a truck for every bin.
    check_kinds(chosen.trucks, chosen.quantities)
    kinds = {truck.name: truck for truck in chosen.trucks}
    for name, times in Counter(chosen.truck_of_bin).items():
        if name not in kinds:
            raise ParameterError(f"{times} bins have no truck: there is no kind {name!r}. Add it to the trucks.")
        count = kinds[name].count
        if count is not None and times > count:
            raise ParameterError(
                f"{times - count} bins have no truck: the plan needs {times} of kind {name!r}, but there are {count}. "
                "Use more trucks or another plan."
            )
    return chosen


def _sides(plan: Plan) -> tuple[str, ...]:
    return () if plan.box is None else plan.box.sides


def _check_cells(plan: Plan, box: Box, release: Release, source: str) -> None:
    """Check the places of a plan against the release: a plan may come from anywhere."""
    assert plan.cells is not None
    known = tuple(release.uncertain(name) for name in plan.units)
    problem = PackingProblem(release=release, known=known, trucks=plan.trucks, by=plan.by, apart=plan.apart)
    size_of = {one.name: one.upper for one in known}
    rows = box_rows(problem, box, size_of, release.class_of_row)
    if plan.model != Standard().describe():  # sizes that a risk gives are not in the release
        rows = rows._replace(sides=np.zeros_like(rows.sides), bears=np.full(len(release), np.inf))
    rooms = inner_sides([plan.truck(name) for name in plan.truck_of_bin], box.sides)
    wrong = faults(plan.cells, plan.assignment, rooms, rows)
    if wrong:
        problems = [Problem(f"row {row}: {words}") for row, words in wrong[:20]]
        raise InputError(source, [*problems, "Make the plan again."])


def _external_plan(path: Path, release: Release, capacity: Capacity | None, trucks: Sequence[Truck] | None) -> Plan:
    bin_of_row = read_assignment(path, num_rows=len(release))
    if trucks is not None and len(trucks) != 1:
        raise ParameterError(
            f"{path} does not say which of {len(trucks)} kinds of truck each bin is. Use one kind, or a plan folder "
            "with bins.csv."
        )
    units = {name: release.uncertain(name).unit for name in release.quantities}
    if trucks is not None:
        truck = trucks[0]
    elif capacity is not None:
        truck = Truck(name="truck", capacity=parse_capacities(listed(capacity), units))
    else:
        raise ParameterError(f"{path} does not say what a truck holds. Use --capacity 500kg or --trucks trucks.csv.")
    return Plan(
        release="",
        bin_of_row=bin_of_row,
        truck_of_bin=(truck.name,) * (int(bin_of_row.max()) + 1),
        trucks=(truck,),
        model=PackingModel(name="external"),
        bound=0,
        seconds=0.0,
        quantities={name: unit for name, unit in units.items() if name in truck.capacity},
        truck_linkage=planned_linkage(release, exchangeable(release), bin_of_row),
        protects=release.certificate.guarantee.protects,
        external=True,
    )


# Truck linkage once the trucks are filled


OUTSIDE_NOTE = "packages outside the plan travel in other trucks, so the plan does not hide them"
MOVED_NOTE = "packages were moved by their true weights: someone who sees which ones learns more, which is not counted"


def planned_linkage(release: Release, group: IntArray, bin_of_row: IntArray) -> Linkage | None:
    """Return the truck linkage of a plan on a release: by its classes, or by its noise."""
    if release.noisy:
        return noisy_linkage(release, bin_of_row)
    return truck_linkage(group, bin_of_row, linkage_note(release))


def restated_linkage(
    task: RepairTask, release: Release, final: Fill, repair: Repair | None, fill: RandomFill | None
) -> Linkage | None:
    """Return the truck linkage of the final bins; packages left behind count as one truck."""
    counted = repair.counted if repair is not None else fill
    if counted is not None and (best := counted.best_guess) is not None:
        note = LINKAGE_NOTE if counted.exact else f"{LINKAGE_NOTE}; {ESTIMATE_NOTE}"
        kind: Literal["exact", "estimate"] = "exact" if counted.exact and not release.noisy else "estimate"
        mean, worst = float(best.mean()), float(best.max())
        return Linkage(mean=mean, worst=worst, kind=kind, note=f"{note}; {OUTSIDE_NOTE}")
    bins = np.where(final.bin_of_row == LEFT_BEHIND, len(final.loads), final.bin_of_row)
    linkage = planned_linkage(release, task.group, bins)
    if linkage is None:
        return None
    note = f"{linkage.note}; {OUTSIDE_NOTE}"
    if repair is None:
        fits = task.plan.slots is None and not len(final.overloaded)
        likely = 0.0 if task.plan.certified is None else task.plan.certified.at_least
        # With noise, the probability that everything fits is not its probability given the release.
        if release.noisy or release.certificate.rows.slots is not None or not fits or likely <= 0:
            return linkage.model_copy(update={"note": note})
        # Seeing an event of probability f multiplies no other probability by more than 1/f.
        return linkage.model_copy(update={"note": note, "if_seen_to_fit": min(1.0, linkage.worst / likely)})
    if "class_id" not in release.data.column_names:
        return linkage.model_copy(update={"note": f"{note}; {MOVED_NOTE}"})
    # Bins have the same numbers in all repairs. Opened bins have no fixed numbers, so they count as one.
    num, num_bins = len(repair.options), task.plan.num_bins
    frequent = most_frequent_share(np.array([np.minimum(fill.bin_of_row, num_bins) for fill in repair.options]))
    share = np.maximum(linkage_of_rows(task.group, bins), frequent)
    return Linkage(
        mean=float(share.mean()),
        worst=float(share.max()),
        kind="estimate",
        repairs=num,
        note=f"{note}; the repair is one of {num}, chosen at random; others may exist, and few make the estimate high",
    )
