# SPDX-License-Identifier: Apache-2.0
"""Pages of packing: ``plan.html`` (public) for a plan, ``settlement.html`` (private) for the plan on the true data.

The page of a plan needs only the release and the plan. It shows how full each truck can be, what is in it, and how
often the truck of a class can be named.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dunnage.arrays import BoolArray, FloatArray, IntArray
from dunnage.exact import decimal
from dunnage.planning.boxes import inner_sides
from dunnage.planning.linkage import exchangeable, linkage_of_rows
from dunnage.planning.plan import Plan, Slots
from dunnage.release import Release
from dunnage.settle import Settlement
from dunnage.showing import figures as draw
from dunnage.text import NO_BREAK, number_text, percent, percent_at_least, percent_at_most, plural, several

MAX_COLUMNS, MAX_GAPS = 200, 60  # trucks drawn one by one, and with gaps; more are drawn as a histogram
MAX_OPEN, MAX_LISTED = 40, 400  # lines of a table that are not folded, and lines in all
MAX_VIEWS = 12  # trucks of boxes that are drawn
MAX_CLASSES = 12  # classes that are listed by their linkage
_BASE, _TOP, _STEP = 190.0, 30.0, 5  # of pictures, in pixels; width of a bar of a histogram, in per cent


class _Content(NamedTuple):  # what the trucks take: one line for each truck and class
    bin: IntArray
    group: IntArray  # rows that nobody can distinguish
    num: IntArray
    row: IntArray  # a row of the group, for its description


def plan_page(plan: Plan, release: Release) -> str:
    """Write the page of a packing plan. It needs only what the planner has, so it is public."""
    if plan.slots is not None:
        first = np.unique(release.class_of_row, return_index=True)[1]
        content = _Content(plan.slots.bin, plan.slots.class_id, plan.slots.count, first[plan.slots.class_id])
        loaded = content.bin, content.num, content.row
    else:
        group = exchangeable(release)
        pairs, own_rows, counts = np.unique(
            plan.assignment * (num := int(group.max(initial=0)) + 1) + group, return_index=True, return_counts=True
        )
        content = _Content(pairs // num, pairs % num, counts, own_rows)
        # Rows of a group may differ, so each row counts by itself.
        loaded = plan.assignment, np.ones(len(release), dtype=np.int64), np.arange(len(release))
    # Between what the load of each truck lies. Shape: quantities, trucks.
    known, (bins, nums, of_rows) = [release.uncertain(name) for name in plan.quantities], loaded
    ends = ([item.lower for item in known], [item.upper for item in known])
    least, most = np.array(
        [[np.bincount(bins, weights=nums * end[of_rows], minlength=plan.num_bins) for end in side] for side in ends]
    )
    capacities = np.array([plan.capacity_of_bins(name) for name in plan.quantities])
    if release.members is not None and plan.box is None:  # so many of the smallest or largest members of each class
        slots = plan.slots or Slots.of_assignment(plan.assignment, release.class_of_row)
        least, most = np.zeros_like(least), np.zeros_like(most)
        for place, item in enumerate(known):
            sums = [np.concatenate([[0.0], np.cumsum(np.sort(values))]) for values in item.scenarios or ()]
            for bin_, kind, num in zip(slots.bin.tolist(), slots.class_id.tolist(), slots.count.tolist(), strict=True):
                least[place, bin_] += sums[kind][num]
                most[place, bin_] += sums[kind][-1] - sums[kind][-1 - num]
    if plan.certified is not None and plan.certified.at_least >= 1:  # also if the owner is the one who makes it fit
        most = np.minimum(most, np.maximum(capacities, least))
    record, linkage = release.certificate.guarantee.protects, plan.truck_linkage
    low, high = least / capacities, most / capacities
    sizes = np.bincount(content.bin, weights=content.num, minlength=plan.num_bins).astype(np.int64)
    kinds = np.bincount(content.bin, minlength=plan.num_bins)
    labels: list[str] = []  # the value of the column that splits the plan, for each truck; empty if there is none
    if plan.by is not None and plan.by in release.data.column_names:
        values, labels = release.data.column(plan.by).to_pylist(), [""] * plan.num_bins
        for number, row in zip(content.bin.tolist(), content.row.tolist(), strict=True):
            labels[number] = str(values[row])
    rows = []
    for number in range(plan.num_bins):
        loads = [
            f"{_between(least[place, number], most[place, number])} {unit}".strip()
            for place, unit in enumerate(plan.quantities.values())
        ]
        fullest = float(high[:, number].max())
        cells = [*([labels[number]] if labels else []), *([plan.truck_of_bin[number]] if len(plan.trucks) > 1 else [])]
        rows.append([f"{number}", *cells, f"{sizes[number]:,}", f"{kinds[number]:,}", *loads, percent(fullest)])
    heads = ["Truck", *([plan.by or ""] if labels else []), *(["Kind"] if len(plan.trucks) > 1 else [])]
    counted = "slot" if release.certificate.rows.slots is not None else record
    unit = plural(counted).capitalize()
    heads += [unit, "Classes", *(f"Load ({name})" for name in plan.quantities), "Filled at most"]
    figures = [
        draw.Figure("Trucks", f"{plan.num_bins:,}", _proof(plan)),
        draw.Figure(unit, f"{int(sizes.sum()):,}", f"{sizes.mean():.1f} in a truck on average"),
        draw.Figure("Filled", percent(float(high.max(axis=0).mean())), "at most, on average"),
    ]
    if linkage is not None:
        worst = f"at worst {percent_at_most(linkage.worst)}"
        figures.append(draw.Figure("Truck linkage", percent(linkage.mean), f"{worst} ({linkage.kind})"))
    if plan.certified is not None:
        sure = plan.certified.at_least >= 1
        chance = "certain" if sure else percent_at_least(plan.certified.at_least)
        figures.append(draw.Figure("Everything fits", chance, "by the release" if sure else "probability, at least"))
    if plan.unplanned is not None and plan.unplanned.count:
        figures.append(_outside(plan.unplanned.count, record))
    fills = [
        _fill_picture(name, low[place], high[place], over=high[place] > 1 + draw.SLACK, public=True)
        for place, name in enumerate(plan.quantities)
    ]
    views = _views(plan, release) if plan.box is not None else []
    pictured = _linkage_picture(plan, release, counted) if plan.bin_of_row is not None else None
    classes = _linked_classes(plan, release, content, counted)
    return _page(plan, release, figures, fills, heads, rows, linkage=pictured, classes=classes, views=views)


def _outside(count: int, record: str) -> draw.Figure:
    words = plural(record) if count > 1 else record
    return draw.Figure("Outside the plan", f"{count:,}", f"{words} in none of these trucks")


def settlement_page(settlement: Settlement, release: Release) -> str:
    """Write the owner's page of a plan on the true data. It shows true loads: keep it private (mode 0600)."""
    plan, repair = settlement.plan, settlement.repair
    record, outside = release.certificate.guarantee.protects, settlement.unplanned
    over = {item.bin for item in settlement.overloaded}
    shares = settlement.loads / settlement.capacities
    final = settlement.final_loads / settlement.final_capacities
    repaired = "no repair was needed" if settlement.plan_feasible else "no repair was requested"
    repaired = repaired if repair is None else "after repair"
    figures = [
        draw.Figure("Trucks", f"{len(settlement.truck_of_bin):,}", f"{plan.num_bins:,} planned"),
        draw.Figure("Overloaded", f"{len(over):,}", "by the plan, before any repair"),
        draw.Figure("In the end", "all fit" if settlement.feasible else "does not fit", repaired),
        draw.Figure("Filled", percent(float(final.max(axis=1).mean())), "in truth, on average"),
    ]
    if settlement.truck_linkage is not None:
        kind = settlement.truck_linkage.kind
        figures.append(
            draw.Figure(
                "Truck linkage",
                percent(settlement.truck_linkage.mean),
                kind if repair is None else f"after repair ({kind})",
            )
        )
    if outside.count:
        figures.append(_outside(outside.count, record))
    pictures = []
    for place, name in enumerate(settlement.quantities):
        before, after = shares[:, place], final[:, place]
        title = f"{name}, as planned" if repair is not None else name
        pictures.append(_fill_picture(title, before, before, over=before > 1 + draw.SLACK))
        if repair is not None:
            pictures.append(_fill_picture(f"{name}, after repair", after, after, over=after > 1 + draw.SLACK))
    rows = [
        [
            f"{item.bin}",
            item.quantity,
            f"{number_text(item.load)} {settlement.quantities[item.quantity]}".strip(),
            f"{number_text(item.capacity)} {settlement.quantities[item.quantity]}".strip(),
            percent(item.load / item.capacity - 1) if item.load < 2 * item.capacity else "over 100 %",
        ]
        for item in sorted(settlement.overloaded, key=lambda item: -item.load / item.capacity)
    ]
    heads = ["Truck", "Quantity", "True load", "Capacity", "Too much"]
    return _page(plan, release, figures, pictures, heads, rows, settlement=settlement)


def _page(
    plan: Plan,
    release: Release,
    figures: Sequence[draw.Figure],
    fills: Sequence[draw.Picture],
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    settlement: Settlement | None = None,
    linkage: draw.Picture | None = None,
    classes: Sequence[Sequence[str]] = (),
    views: Sequence[draw.Picture] = (),
) -> str:
    content = {"plan": plan, "certificate": release.certificate, "settlement": settlement, "figures": figures}
    content |= {
        "record": release.certificate.guarantee.protects,
        "linkage": linkage,
        "classes": classes,
        "fills": fills,
        "views": views,
    }
    listed = {"heads": heads, "rows": rows[:MAX_LISTED], "not_listed": max(0, len(rows) - MAX_LISTED)}
    return draw.render("packing.html", {**content, **listed, "open": len(rows) <= MAX_OPEN})


# Pictures


def _fill_picture(
    name: str, low: FloatArray, high: FloatArray, *, over: BoolArray, public: bool = False
) -> draw.Picture:
    """Draw how full trucks are: each as a column if there are few, otherwise how many are how full."""
    num, mean, most = len(high), float(high.mean()) if len(high) else 0.0, " at most" if public else ""
    too_full = f"; {several(int(over.sum()), 'truck')} can be overloaded" if public and over.any() else ""
    if not public:
        too_full = f"; {int(over.sum()):,} overloaded" if over.any() else "; none is overloaded"
    caption = f"{several(num, 'truck')}, filled to {percent(min(mean, 1.0))}{most} on average{too_full}."
    if num <= MAX_COLUMNS:
        y = draw.Scale(0.0, max(112.0, 102 * float(high.max(initial=0.0))), _BASE, _TOP)
        x = draw.Scale(0.0, float(max(num, 8)))
        stacks = []
        for place, number in enumerate(np.argsort(-high, kind="stable").tolist()):
            sure, full = 100 * float(low[number]), 100 * float(high[number])
            between = percent(high[number]) if sure == full else f"{percent(low[number])} to {percent(high[number])}"
            pieces = [("bar over" if over[number] and not public else "bar", sure), ("range", full - sure)]
            # without gaps, each bar reaches a little under the next, so that no seam is visible
            left, right = (place + 0.06, place + 0.94) if num <= MAX_GAPS else (place, place + 1.1)
            stacks.append(draw.StackedColumn(left, right, pieces, f"Truck {number}: {between}"))
        labels = [(x.across(place - 0.5), f"{place:,}") for place in sorted({1, num})]
        below, limit = draw.lower_axis(_BASE, "trucks, fullest first", labels), draw.level(y, 100.0, "capacity")
        svg = draw.columns(x, y, stacks, y_title="filled, per cent", below=below, gap=0.0, more=limit, label=caption)
    else:
        svg = _histogram(100 * high, f"filled{most}, per cent", "trucks", caption)
    legend = [("load", "certain load"), ("range", "more is possible, up to here")]
    shown = legend if public and num <= MAX_COLUMNS and (high > low).any() else []
    return draw.Picture(title=name, svg=svg, caption=caption, legend=shown)


def _views(plan: Plan, release: Release) -> list[draw.Picture]:
    """Draw the first trucks from above and from the side: the front wall at the left, the doors at the right."""
    assert plan.cells is not None
    assert plan.box is not None
    cells, unload = plan.cells, plan.box.unload
    stops = [] if unload is None else [str(stop) for stop in release.data.column(unload).to_pylist()]
    colours = {
        stop: place % draw.ZONE_STYLES for place, stop in enumerate(dict.fromkeys(sorted(stops, key=_by_number)))
    }
    rooms, pictures = inner_sides(plan.trucks, plan.box.sides), list[draw.Picture]()
    kinds, unit = {truck.name: place for place, truck in enumerate(plan.trucks)}, plan.units[plan.box.sides[0]]
    for number in range(min(plan.num_bins, MAX_VIEWS)):
        rows, room = np.flatnonzero(plan.assignment == number), rooms[kinds[plan.truck_of_bin[number]]]
        scale, parts, top = 460.0 / room[0], list[draw.Svg](), 14.0
        for name, axis, other in (("from above", 1, 2), ("from the side", 2, 1)):
            high = float(room[axis] * scale)
            parts.append(draw.tag("text", name, x=0, y=top - 4))
            # What is nearer to the eye is drawn last.
            for row in rows[np.argsort(cells[rows, other] * (1 if axis == 1 else -1), kind="stable")].tolist():
                low, size = cells[row, [0, axis]] * scale, cells[row, [3, 3 + axis]] * scale
                y = top + low[1] if axis == 1 else top + high - low[1] - size[1]
                sides = " x ".join(number_text(side) for side in cells[row, 3:].tolist())
                where = ", ".join(number_text(at) for at in cells[row, :3].tolist())
                tip = f"row {row}: {sides} {unit} at {where}" + (f", {unload} {stops[row]}" if unload else "")
                style = f"cell zone-{colours[stops[row]] if stops else row % draw.ZONE_STYLES}"
                place = {"x": float(low[0]), "y": float(y), "width": float(size[0]), "height": float(size[1])}
                parts.append(draw.tag("rect", draw.tag("title", tip), class_=style, **place))
            parts.append(draw.tag("rect", class_="truck", x=0, y=top, width=460, height=high))
            top += high + 26
        filled = float(np.prod(cells[rows, 3:], axis=1).sum() / np.prod(room))
        words = f"{several(len(rows), plan.protects)} take {percent(filled)} of the space."
        label = f"Truck {number} from above and from the side. {words}"
        size = f"-2 0 464 {top - 20:.0f}"
        svg = draw.tag("svg", *parts, class_="chart map", viewBox=size, role="img", aria_label=label)
        pictures.append(draw.Picture(title=f"Truck {number}", svg=svg, caption=words))
    return pictures


def _by_number(text: str) -> tuple[float, str]:
    number = decimal(text)
    return (number, "") if math.isfinite(number) else (math.inf, text)


def counts_picture(plan: Plan) -> draw.Picture:
    """Draw how many rows each truck takes: all that a plan shows without its release."""
    bins = plan.assignment if plan.slots is None else np.repeat(plan.slots.bin, plan.slots.count)
    counts = np.sort(np.bincount(bins, minlength=plan.num_bins))[::-1]
    x = draw.Scale(0.0, float(max(len(counts), 8)))
    y = draw.Scale(0.0, 1.1 * max(1, int(counts.max(initial=0))), _BASE, _TOP)
    stacks = [
        draw.StackedColumn(place, place + 1, [("bar", float(num))], f"{num:,} rows")
        for place, num in enumerate(counts.tolist())
    ]
    caption = f"{several(plan.num_bins, 'truck')} for {several(int(counts.sum()), 'row')}, the fullest first."
    below = draw.lower_axis(_BASE, "trucks", [])
    svg = draw.columns(x, y, stacks, y_title="rows", whole=True, below=below, label=caption)
    return draw.Picture(title="Rows in each truck", svg=svg, caption=caption)


def _histogram(values: FloatArray, title: str, what: str, label: str) -> draw.Svg:
    """Count values in per cent by steps; values beyond the last step are in it."""
    top = min(200, max(100, int(-(-values.max(initial=0.0) // _STEP) * _STEP)))
    counts = np.bincount(np.clip(values // _STEP, 0, top // _STEP - 1).astype(np.int64), minlength=top // _STEP)
    x, y = draw.Scale(0.0, float(top)), draw.Scale(0.0, 1.05 * max(1, int(counts.max())), _BASE, _TOP)
    stacks = [
        draw.StackedColumn(low, low + _STEP, [("bar", float(count))], f"{low} to {low + _STEP} %: {count:,} {what}")
        for low, count in zip(range(0, top, _STEP), counts.tolist(), strict=True)
    ]
    return draw.columns(x, y, stacks, y_title=what, whole=True, below=draw.x_axis(x, _BASE, title), label=label)


def _linkage_picture(plan: Plan, release: Release, counted: str) -> draw.Picture | None:
    """Draw for how many records the truck can be named how often; noisy rows have no classes to go by."""
    if release.noisy:
        return None
    chances = linkage_of_rows(exchangeable(release), plan.assignment)
    certain = int((chances >= 1 - draw.SLACK).sum())
    caption = (
        f"How often someone who knows a {release.certificate.guarantee.protects}'s values names its truck: "
        f"{percent(float(chances.mean()))} of the time on average."
        + (f" For {several(certain, counted)} the truck is certain." if certain else "")
    )
    svg = _histogram(100 * chances, "truck named, per cent", plural(counted), caption)
    return draw.Picture(title="Truck linkage", svg=svg, caption=caption)


def _linked_classes(plan: Plan, release: Release, content: _Content, counted: str) -> list[list[str]]:
    """List the classes whose trucks are easiest to name: how many of a class are together, and where."""
    if release.noisy:
        return []
    sizes = np.bincount(content.group, weights=content.num)
    largest, where = np.zeros(len(sizes)), np.zeros(len(sizes), dtype=np.int64)
    order = np.lexsort((content.bin, content.num))
    largest[content.group[order]], where[content.group[order]] = content.num[order], content.bin[order]
    shares = np.divide(largest, sizes, out=np.zeros(len(sizes)), where=sizes > 0)
    row_of = np.zeros(len(sizes), dtype=np.int64)
    row_of[content.group] = content.row
    worst = np.lexsort((-sizes, -shares))[:MAX_CLASSES]
    known = [(release.uncertain(name), unit) for name, unit in plan.quantities.items()]
    named = [name for name, item in release.attributes.items() if item.role in ("public", "sensitive")]
    columns = {name: release.data.column(name) for name in named if name in release.data.column_names}

    def describe(row: int) -> str:
        spans = (f"{of.name} {_between(of.lower[row], of.upper[row])}{NO_BREAK}{unit}".strip() for of, unit in known)
        return ", ".join([*spans, *(f"{name} {column[row].as_py()}" for name, column in columns.items())])

    return [
        [
            describe(int(row_of[group])),
            several(int(sizes[group]), counted),
            f"{int(largest[group]):,} in truck {int(where[group])}",
            percent(float(shares[group])),
        ]
        for group in worst.tolist()
        if sizes[group]
    ]


# Words


def _between(low: float, high: float) -> str:
    first, last = number_text(float(low)), number_text(float(high))
    return first if first == last else f"{first} to {last}"


def _proof(plan: Plan) -> str:
    if plan.external:
        return "made by another program"
    cost = "" if plan.minimises == "trucks" else f"cost {plan.objective:g}, "
    if plan.status == "optimal":
        return f"{cost}optimal" if cost else "no plan of this model takes fewer"
    return f"{cost}at least {plan.bound:g} needed"
