# SPDX-License-Identifier: Apache-2.0
"""Pages of packing: ``plan.html`` (public) for a plan, ``settlement.html`` (private) for the plan on the true data.

The page of a plan needs only the release and the plan. It shows how full each truck can be, what is in it, and how
often the truck of a class can be named.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dunnage.arrays import BoolArray, FloatArray, IntArray
from dunnage.planning.linkage import exchangeable, linkage_of_rows
from dunnage.planning.plan import Plan
from dunnage.release import Release
from dunnage.settle import Settlement
from dunnage.showing import figures as draw
from dunnage.text import NO_BREAK, number_text, percent, percent_at_least, percent_at_most, several

MAX_COLUMNS, MAX_GAPS = 200, 60  # trucks drawn one by one, and with gaps; more are drawn as a histogram
MAX_OPEN, MAX_LISTED = 40, 400  # lines of a table that are not folded, and lines in all
MAX_CLASSES = 12  # classes that are listed by their linkage
_BASE, _TOP, _STEP = 190.0, 30.0, 5  # of pictures, in pixels; width of a bar of a histogram, in per cent


class _Bounds(NamedTuple):
    """Between what the load of each truck lies, by quantity, as far as the release shows. Shape: quantities, trucks."""

    low: FloatArray
    high: FloatArray


class _Content(NamedTuple):
    """What the trucks take: one line for each truck and class."""

    bin: IntArray
    group: IntArray  # rows that nobody can distinguish
    num: IntArray
    row: IntArray  # a row of the group, for its description


def plan_page(plan: Plan, release: Release) -> str:
    """Write the page of a packing plan. It needs only what the planner has, so it is public."""
    content = _content(plan, release)
    bounds = _bounds(plan, release, content)
    capacities = np.array([plan.capacity_of_bins(name) for name in plan.quantities])
    record, linkage = release.certificate.guarantee.protects, plan.truck_linkage
    low, high = bounds.low / capacities, bounds.high / capacities
    sizes = np.bincount(content.bin, weights=content.num, minlength=plan.num_bins).astype(np.int64)
    kinds = np.bincount(content.bin, minlength=plan.num_bins)
    labels = _labels_of_bins(plan, release, content)
    rows = []
    for number in range(plan.num_bins):
        loads = [
            f"{_between(bounds.low[place, number], bounds.high[place, number])} {unit}".strip()
            for place, unit in enumerate(plan.quantities.values())
        ]
        fullest = float(high[:, number].max())
        cells = [*([labels[number]] if labels else []), *([plan.truck_of_bin[number]] if len(plan.trucks) > 1 else [])]
        rows.append([f"{number}", *cells, f"{sizes[number]:,}", f"{kinds[number]:,}", *loads, percent(fullest)])
    heads = ["Truck", *([plan.by] if labels else []), *(["Kind"] if len(plan.trucks) > 1 else [])]
    heads += [f"{record}s".capitalize(), "Classes", *(f"Load ({name})" for name in plan.quantities), "Filled at most"]
    figures = [
        draw.Figure("Trucks", f"{plan.num_bins:,}", _proof(plan)),
        draw.Figure(f"{record}s".capitalize(), f"{int(sizes.sum()):,}", f"{sizes.mean():.1f} in a truck on average"),
        draw.Figure("Filled", percent(float(high.max(axis=0).mean())), "at most, on average"),
    ]
    if linkage is not None:
        worst = f"at worst {percent_at_most(linkage.worst)}"
        figures.append(draw.Figure("Truck linkage", percent(linkage.mean), f"{worst} ({linkage.kind})"))
    if plan.certified is not None:
        sure = plan.certified.at_least >= 1
        chance = "certain" if sure else percent_at_least(plan.certified.at_least)
        figures.append(draw.Figure("Everything fits", chance, "by the release" if sure else "probability, at least"))
    return draw.render(
        "packing.html",
        {
            "plan": plan,
            "certificate": release.certificate,
            "settlement": None,
            "record": record,
            "figures": figures,
            "fills": [
                _fill_picture(name, low[place], high[place], over=high[place] > 1 + draw.SLACK, public=True)
                for place, name in enumerate(plan.quantities)
            ],
            "linkage": _linkage_picture(plan, release, record) if plan.bin_of_row is not None else None,
            "classes": _linked_classes(plan, release, content, record),
            "heads": heads,
            "rows": rows[:MAX_LISTED],
            "open": len(rows) <= MAX_OPEN,
            "not_listed": max(0, len(rows) - MAX_LISTED),
        },
    )


def settlement_page(settlement: Settlement, release: Release) -> str:
    """Write the owner's page of a plan on the true data. It shows true loads: keep it private (mode 0600)."""
    plan, repair = settlement.plan, settlement.repair
    record, outside = release.certificate.guarantee.protects, settlement.unplanned
    over = {item.bin for item in settlement.overloaded}
    shares = settlement.loads / settlement.capacities
    final = settlement.final_loads / settlement.final_capacities
    figures = [
        draw.Figure("Trucks", f"{len(settlement.truck_of_bin):,}", f"{plan.num_bins:,} planned"),
        draw.Figure("Overloaded", f"{len(over):,}", "by the plan, before any repair"),
        draw.Figure("In the end", "all fit" if settlement.feasible else "does not fit", _repair_words(settlement)),
        draw.Figure("Filled", percent(float(final.max(axis=1).mean())), "in truth, on average"),
    ]
    if settlement.truck_linkage is not None:
        kind = settlement.truck_linkage.kind
        figures.append(draw.Figure("Truck linkage", percent(settlement.truck_linkage.mean), f"after repair ({kind})"))
    if outside.count:
        figures.append(draw.Figure("Outside the plan", f"{outside.count:,}", f"{record}s that travel otherwise"))
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
    return draw.render(
        "packing.html",
        {
            "plan": plan,
            "certificate": release.certificate,
            "settlement": settlement,
            "record": record,
            "figures": figures,
            "fills": pictures,
            "linkage": None,
            "classes": [],
            "heads": ["Truck", "Quantity", "True load", "Capacity", "Too much"],
            "rows": rows[:MAX_LISTED],
            "open": len(rows) <= MAX_OPEN,
            "not_listed": max(0, len(rows) - MAX_LISTED),
        },
    )


# What is in the trucks


def _content(plan: Plan, release: Release) -> _Content:
    if plan.slots is not None:
        first = np.unique(release.class_of_row, return_index=True)[1]
        return _Content(plan.slots.bin, plan.slots.class_id, plan.slots.count, first[plan.slots.class_id])
    group = exchangeable(release)
    num = int(group.max(initial=0)) + 1
    pairs, rows, counts = np.unique(plan.assignment * num + group, return_index=True, return_counts=True)
    return _Content(pairs // num, pairs % num, counts, rows)


def _bounds(plan: Plan, release: Release, content: _Content) -> _Bounds:
    known = [release.uncertain(name) for name in plan.quantities]
    sums = [
        [np.bincount(content.bin, weights=content.num * end[content.row], minlength=plan.num_bins) for end in ends]
        for ends in ((item.lower, item.upper) for item in known)
    ]
    if plan.slots is None:  # rows of a group may differ, so each row counts by itself
        bins = plan.assignment
        sums = [
            [np.bincount(bins, weights=end, minlength=plan.num_bins) for end in (item.lower, item.upper)]
            for item in known
        ]
    return _Bounds(np.array([low for low, _ in sums]), np.array([high for _, high in sums]))


def _labels_of_bins(plan: Plan, release: Release, content: _Content) -> list[str]:
    """Return the value of the column that splits the plan, for each truck; empty if there is none."""
    if plan.by is None or plan.by not in release.data.column_names:
        return []
    values = release.data.column(plan.by).to_pylist()
    labels = [""] * plan.num_bins
    for number, row in zip(content.bin.tolist(), content.row.tolist(), strict=True):
        labels[number] = str(values[row])
    return labels


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
        draw.StackedColumn(
            _STEP * place,
            _STEP * (place + 1),
            [("bar", float(count))],
            f"{_STEP * place} to {_STEP * (place + 1)} %: {count:,} {what}",
        )
        for place, count in enumerate(counts.tolist())
    ]
    return draw.columns(x, y, stacks, y_title=what, whole=True, below=draw.x_axis(x, _BASE, title), label=label)


def _linkage_picture(plan: Plan, release: Release, record: str) -> draw.Picture | None:
    """Draw for how many records the truck can be named how often; noisy rows have no classes to go by."""
    if release.noisy:
        return None
    chances = linkage_of_rows(exchangeable(release), plan.assignment)
    certain = int((chances >= 1 - draw.SLACK).sum())
    caption = (
        f"How often someone who knows a {record}'s values names its truck: {percent(float(chances.mean()))} of the "
        f"time on average." + (f" For {several(certain, record)} the truck is certain." if certain else "")
    )
    svg = _histogram(100 * chances, "truck named, per cent", f"{record}s", caption)
    return draw.Picture(title="Truck linkage", svg=svg, caption=caption)


def _linked_classes(plan: Plan, release: Release, content: _Content, record: str) -> list[list[str]]:
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
    return [
        [
            _description(release, plan, int(row_of[group])),
            f"{int(sizes[group]):,} {record}{'' if sizes[group] == 1 else 's'}",
            f"{int(largest[group]):,} in truck {int(where[group])}",
            percent(float(shares[group])),
        ]
        for group in worst.tolist()
        if sizes[group]
    ]


def _description(release: Release, plan: Plan, row: int) -> str:
    parts = []
    for name, unit in plan.quantities.items():
        known = release.uncertain(name)
        parts.append(f"{name} {_between(known.lower[row], known.upper[row])}{NO_BREAK}{unit}".strip())
    for name, item in release.attributes.items():
        if item.role in ("public", "sensitive") and name in release.data.column_names:
            parts.append(f"{name} {release.data.column(name)[row].as_py()}")
    return ", ".join(parts)


# Words


def _between(low: float, high: float) -> str:
    first, last = number_text(float(low)), number_text(float(high))
    return first if first == last else f"{first} to {last}"


def _proof(plan: Plan) -> str:
    if plan.external:
        return "made by another program"
    if plan.status == "optimal":
        return (
            "no plan of this model takes fewer" if plan.minimises == "trucks" else f"cost {plan.objective:g}, optimal"
        )
    least = f"at least {plan.bound:g} needed"
    return least if plan.minimises == "trucks" else f"cost {plan.objective:g}, {least}"


def _repair_words(settlement: Settlement) -> str:
    if settlement.repair is None:
        return "no repair was needed" if settlement.plan_feasible else "no repair was requested"
    return "after repair"
