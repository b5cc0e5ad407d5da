# SPDX-License-Identifier: Apache-2.0
"""Pictures of counts of trips: flows true against released, error by feature, trips created. Private, all of them.

They compare with the truth, so that an external audit has none.
"""

from __future__ import annotations

from dunnage.auditing.findings import Finding
from dunnage.auditing.run import Audit
from dunnage.svg import Picture, Scale, Svg, bar_rows, chart, heat, tag, x_axis
from dunnage.text import number_text, percent, several

ROW = 44.0
HEAT_TOP, STEEP_TOP, GUTTER = 26.0, 70.0, 13.0
"""Pixels above the cells of a table of flows, and where names stand upright; per cent of the width before them."""
MOST_LETTERS, MANY = 9, 6
"""Letters of a name that is written in full; columns whose names lie side by side, at most."""
_SUMS = "RMSE of sums ("
_ZONE_PAIR = ("origin_zone x destination_zone", "zone pair")
_TABLES = {"zones": "by zone", "stops": "between the busiest stops"}


def count_pictures(audit: Audit) -> list[Picture]:
    found = {item.name: item for item in audit.findings}
    apart, created = found.get("total variation distance"), found.get("trips created in empty cells")
    if apart is None or created is None or "flows" not in apart.details:
        return []
    pictures = []
    for kind, words in _TABLES.items():
        table = apart.details["flows"].get(kind)
        if table is None:
            continue
        # Both tables are in one scale of colour; the rest would outshine every single stop.
        named = len(table["names"]) - bool(table.get("with_rest"))
        lines = [line[:named] for name in ("true", "released") for line in table[name][:named]]
        most = max(map(max, lines), default=0) or 1
        for name in ("true", "released"):
            pictures.append(_flows(table["names"], table[name], most, f"{name.capitalize()} trips {words}"))
    names = {"RMSE per cell": "cells", "error of the total": "total"}
    errors = [(names[item.name], item) for item in audit.findings if item.name in names]
    sums = [item for item in audit.findings if item.name.startswith(_SUMS)]
    errors += [(item.name[len(_SUMS) : -1].replace(*_ZONE_PAIR), item) for item in sums]  # short, for narrow screens
    errors = [(name, item) for name, item in errors if item.baseline > 0]  # without trips there is none to be off by
    return [*pictures, *([_error_picture(errors)] if errors else []), _created_picture(created)]


def _flows(names: list[str], counts: list[list[int]], most: int, title: str) -> Picture:
    size = len(names)
    wide, high = (100 - GUTTER) / size, max(24.0, 150.0 / size)
    narrow = wide < (100 - GUTTER) / MANY
    top = HEAT_TOP if size <= MANY else STEEP_TOP
    before: dict[str, str] = {"x": f"{GUTTER:.2f}%", "dx": "-8", "text_anchor": "end"}
    parts = [tag("text", "to", class_="name", y=top - 12, **before)]
    for place, label in enumerate(names):
        head = label if len(label) <= MOST_LETTERS else label[: MOST_LETTERS - 1] + "…"
        tip, middle = tag("title", label), f"{GUTTER + (place + 0.5) * wide:.2f}%"
        if size <= MANY:
            parts.append(tag("text", head, tip, x=middle, y="14", text_anchor="middle"))
        else:  # upright, so that they stay apart on a phone
            steep = tag("text", head, tip, x=0, y=4, transform="rotate(-90)")
            parts.append(tag("svg", steep, class_="spread", x=middle, y=STEEP_TOP - 6))
        parts.append(tag("text", head, tip, y=top + (place + 0.5) * high + 4, **before))
    for row, line in enumerate(counts):
        for column, number in enumerate(line):
            x, y = GUTTER + column * wide, top + row * high
            says = f"{names[row]} to {names[column]}: {several(number, 'trip')}"
            parts.append(heat(x, y, wide, high, number / most, says, gap=1.0))
            if number:
                style = ("deep" if number / most > 0.53 else "pale") + (" tight" if narrow else "")
                across = {"x": f"{x + wide / 2:.2f}%", "text_anchor": "middle"}
                parts.append(tag("text", _figure(number, narrow), class_=style, y=y + high / 2 + 4, **across))
    caption = f"{title}: {sum(map(sum, counts)):,} in all, rows from, columns to."
    return Picture(
        title=title,
        svg=chart(top + high * size + 4, parts, label=caption, kind="flat"),
        caption=caption,
        legend=[("load", f"darkest: {several(most, 'trip')} or more, in both tables")],
    )


def _figure(number: int, narrow: bool) -> str:
    """Write a count into a cell, in thousands where they would not fit."""
    if number < 1000 or (number < 100_000 and not narrow):
        return f"{number:,}"
    return f"{number / 1000:.1f}k" if number < 9950 else f"{number / 1000:,.0f}k"


def _error_picture(lines: list[tuple[str, Finding]]) -> Picture:
    """Draw errors of cells and sums as a share of what publishing nothing would be off by."""
    shares = {name: item.value / item.baseline for name, item in lines}
    x = Scale(0.0, 104 * max([*shares.values(), 0.01]))
    height = ROW * len(lines) + 6
    parts = x_axis(x, height, "error, publishing nothing is 100")
    legend = [("load", "released, in per cent of publishing nothing")]
    if x.high > 100:
        parts.append(tag("line", class_="limit", x1=x.across(100), x2=x.across(100), y1="0", y2=height))
        legend.append(("limit", "publishing nothing"))
    rows = [
        (
            f"{name}: {number_text(item.value)} trips (nothing: {number_text(item.baseline)})",
            [[("bar", 100 * shares[name])]],
        )
        for name, item in lines
    ]
    worst = max(shares, key=lambda name: shares[name])
    caption = (
        f"Root mean square error beside that of publishing nothing. Furthest off: {worst}, {percent(shares[worst])} "
        "of it."
    )
    svg = chart(height + 40, [*parts, *bar_rows(x, rows, row=ROW)], label=caption, kind="flat")
    return Picture(title="Error by feature", svg=svg, caption=caption, legend=legend)


def _created_picture(created: Finding) -> Picture:
    """Draw where true trips went, and where released ones come from."""
    kept, lost, added = (int(created.details[name]) for name in ("kept", "lost", "added"))
    made = int(created.value)
    x = Scale(0.0, 1.02 * max(kept + lost, kept + added + made, 1))
    rows = [
        (f"truth: {several(kept + lost, 'trip')}", [[("bar", kept), ("range", lost)]]),
        (f"release: {several(kept + added + made, 'trip')}", [[("bar", kept), ("more", added), ("made", made)]]),
    ]
    height = ROW * len(rows) + 6
    parts: list[Svg] = [*x_axis(x, height, "trips"), *bar_rows(x, rows, row=ROW)]
    caption = (
        f"{several(kept, 'trip')} {'is' if kept == 1 else 'are'} where {'it was' if kept == 1 else 'they were'}. Lost: "
        f"{lost:,}; added where there are some: {added:,}; created where nobody travelled: {made:,}, in "
        f"{several(int(created.details['cells']), 'cell')}."
    )
    return Picture(
        title="Trips created",
        svg=chart(height + 40, parts, label=caption, kind="flat"),
        caption=caption,
        legend=[("load", "kept"), ("range", "lost"), ("more", "added"), ("made", "created in empty cells")],
    )
