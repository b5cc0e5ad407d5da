# SPDX-License-Identifier: Apache-2.0
"""What all pictures of the documents are made of: one style for light and dark pages, panels, marks, legends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from dunnage.showing.figures import Scale, Svg, tag

PICTURES = Path(__file__).resolve().parent / "pictures"
WIDTH = 760.0

STYLE = """
svg { font: 13px system-ui, sans-serif; }
.page { fill: #ffffff; } text { fill: #1b1f24; stroke: none; } .faint { fill: #59626d; }
.axis { stroke: #59626d; } .grid { stroke: #d9dde2; } .name, .title { fill: #59626d; } .title { font-weight: 600; }
.standard { stroke: #0072b2; fill: #0072b2; } .stochastic { stroke: #d55e00; fill: #d55e00; }
.sealed { stroke: #00704f; fill: #00704f; } .mean { stroke: #a3478a; fill: #a3478a; }
.plain { stroke: #59626d; fill: #59626d; }
path.standard, path.stochastic, path.sealed, path.mean { fill: none; stroke-width: 2; }
.hull { fill: none; stroke: #59626d; stroke-width: 1.5; } .slot { fill-opacity: 0; stroke-width: 1.5; }
.slot.dashed { stroke-dasharray: 4 3; }
.full { fill-opacity: 0.18; stroke-width: 1.5; }
@media (prefers-color-scheme: dark) {
  .page { fill: #14171b; } text { fill: #e8eaed; } .faint { fill: #a3acb7; }
  .axis { stroke: #a3acb7; } .grid { stroke: #363c44; } .name, .title { fill: #a3acb7; }
  .standard { stroke: #56b4e9; fill: #56b4e9; } .stochastic { stroke: #f08a3c; fill: #f08a3c; }
  .sealed { stroke: #4fd0a8; fill: #4fd0a8; } .mean { stroke: #e08cc6; fill: #e08cc6; }
  .plain { stroke: #a3acb7; fill: #a3acb7; } .hull { stroke: #a3acb7; }
}
"""


def picture(name: str, height: float, parts: Iterable[str], label: str, *, style: str = "") -> None:
    """Write a figure that stands by itself, on a page of its own colour; it may have some style of its own."""
    page = tag("rect", class_="page", width="100%", height="100%")
    size: dict[str, float | str] = {"width": WIDTH, "height": height, "viewBox": f"0 0 {WIDTH:g} {height:g}"}
    figure = tag(
        "svg",
        tag("style", Svg(STYLE + style)),
        page,
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        role="img",
        aria_label=label,
        **size,
    )
    PICTURES.mkdir(exist_ok=True)
    (PICTURES / name).write_text(figure + "\n", encoding="utf-8")
    print(f"wrote docs/pictures/{name}")


def panel(x: float, y: float, width: float, height: float, parts: Sequence[str]) -> Svg:
    """Place a part whose horizontal positions are per cent of its own width."""
    return tag("svg", *parts, x=x, y=y, width=width, height=height, overflow="visible")


def mark(model: str, x: str, y: float) -> Svg:
    """Draw the mark of a model: shapes differ, not only colours. ``x`` is in per cent."""
    shapes = {
        "standard": [tag("circle", r=5)],
        "stochastic": [tag("rect", x=-4.5, y=-4.5, width=9, height=9)],
        "sealed": [tag("rect", x=-4.5, y=-4.5, width=9, height=9, transform="rotate(45)")],
        "mean": [tag("path", d="M0 -6 L6 5 L-6 5 Z", style="fill: inherit")],
        "plain": [tag("path", d="M-7 -7 L7 7 M-7 7 L7 -7", stroke_width="2")],
    }
    return tag("svg", tag("g", *shapes[model], class_=model), x=x, y=y, overflow="visible")


def joined(model: str, scale: Scale, points: Sequence[tuple[float, float]]) -> list[Svg]:
    """Draw lines between points given as (value, pixels)."""
    lines = []
    for (x1, y1), (x2, y2) in pairwise(points):
        lines.append(
            tag("line", class_=model, x1=scale.across(x1), y1=y1, x2=scale.across(x2), y2=y2, stroke_width="2")
        )
    return lines


def legend(y: float, entries: Sequence[tuple[str, str, float]]) -> list[Svg]:
    """Draw marks with words beside them, at given places."""
    parts = []
    for model, words, x in entries:
        parts += [mark(model, f"{x:g}", y - 4), tag("text", words, x=x + 12, y=y)]
    return parts
