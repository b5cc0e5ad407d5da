# SPDX-License-Identifier: Apache-2.0
"""Draw the comparisons of ``peers.md``: how many times better ours is, on a logarithmic scale."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from picture_parts import DOCS, mark, panel, picture

from dunnage.showing.figures import LogScale, lower_axis, tag

ROW, TOP, LEFT, WIDTH = 18.0, 48.0, 400.0, 336.0
SECTION = re.compile(r"(?s)\n## ([^\n]+)\n.*?\|---\|\n((?:\|[^\n]*\n)+)")


def peers() -> None:
    parts, down = [], TOP
    found = SECTION.findall((DOCS / "peers.md").read_text(encoding="utf-8"))
    tables = [(name, [line.strip("| ").split(" | ") for line in table.splitlines()]) for name, table in found]
    ratios = [float(cells[4]) for _, rows in tables for cells in rows]
    across = LogScale(min(*ratios, 0.1), max(10.0, *(ratio for ratio in ratios if math.isfinite(ratio))))
    marks = []
    for name, rows in tables:
        parts.append(tag("text", name, class_="title", x=24, y=down))
        for cells in rows:
            down += ROW
            words = f"{_short(cells[0])}; {cells[1].split(',')[0]}"
            parts.append(tag("text", words, x=24, y=down))
            ratio = min(float(cells[4]), across.high)  # what the peer never does is at the end of the scale
            marks.append(mark("standard" if ratio >= 1 else "stochastic", across.across(ratio), down - 4))
        down += 1.6 * ROW
    ticks = [(across.across(value), f"{value:g}") for value in across.ticks(6)]
    one = tag("line", class_="axis", x1=across.across(1.0), x2=across.across(1.0), y1=TOP - 20, y2=down)
    axis = lower_axis(down, "times better than the peer", ticks, grid=TOP - 20)
    picture("peers", down + 62, [*parts, panel(LEFT, 0, WIDTH, down, [*axis, one, *marks])])


def _short(what: str) -> str:
    """Leave out what every line of a section says."""
    before, _, after = what.rpartition(": ")
    place = re.search(r"(k = \d+, [a-z-]+|unary too|HARD0 to HARD4)", before)
    return f"{place[0]}: {after}" if place else after or what


DRAWN: dict[str, Callable[[], None]] = {"peers": peers}
