# SPDX-License-Identifier: Apache-2.0
"""What figures are drawn with: SVG elements, scales, axes, and a few kinds of charts.

Horizontal positions are percentages and vertical ones pixels, so that a figure fills a phone or a desk and its text
keeps its size.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from dunnage.text import number_text, percent

SLACK = 1e-9  # sums of floats; far below any scale's resolution
FAINTEST = 0.06


class Svg(str):
    """Text that is markup already; anything else is escaped when it is placed into markup."""

    def __html__(self) -> str:
        return self


def tag(name: str, *children: str, **attributes: float | str) -> Svg:
    """Write an element; attribute values and children that are plain text are escaped.

    Examples
    --------
    >>> tag("text", "<b>", x=1.5, class_="a")
    '<text x="1.5" class="a">&lt;b&gt;</text>'
    """
    names = {key: key.rstrip("_").replace("_", "-") for key in attributes}
    given = "".join(f' {names[key]}="{html.escape(short(value))}"' for key, value in attributes.items())
    inner = "".join(child if isinstance(child, Svg) else html.escape(child) for child in children)
    return Svg(f"<{name}{given}>{inner}</{name}>" if children else f"<{name}{given}/>")


def short(value: float | str) -> str:
    """Write a place with two decimals at most."""
    return value if isinstance(value, str) else f"{value:.2f}".rstrip("0").rstrip(".")


@dataclass(frozen=True)
class Scale:
    """A straight map from values to places: per cent across, pixels down."""

    low: float
    high: float
    start: float = 0.0
    stop: float = 100.0

    def at(self, value: float) -> float:
        """Return the place of a value."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.stop - self.start)

    def across(self, value: float) -> str:
        """Return the place of a value in per cent of the width."""
        return f"{short(self.at(value))}%"

    def ticks(self, most: int) -> list[float]:
        """Return round values, at most so many and one."""
        rough = (self.high - self.low) / most
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * (1 - SLACK))
        first, last = math.ceil(self.low / step - SLACK), math.floor(self.high / step + SLACK)
        return [index * step for index in range(first, last + 1)]


def span(low: float, high: float) -> tuple[float, float]:
    """Widen a span that is a point, and leave a little room on both sides."""
    room = 0.02 * (high - low) or 0.05 * abs(high) or 1.0
    return low - room, high + room


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A figure as pages show it."""

    title: str
    svg: Svg
    caption: object  # Words, or what writes itself as markup
    legend: Sequence[tuple[str, str]] = ()  # Styles, and what they mean
    note: str = ""
    sources: Sequence[str] = ()  # Files it was drawn from, relative to the page


def chart(height: float, parts: Iterable[str], *, label: str, kind: str = "") -> Svg:
    """Put parts together into a figure with a label for who cannot see it."""
    return tag("svg", *parts, class_=f"chart {kind}".strip(), height=height, role="img", aria_label=label)


# Axes


def lower_axis(
    base: float,
    title: str,
    labels: Iterable[tuple[str, str]],  # Places and their texts
    *,
    grid: float | None = None,  # Where faint lines upwards end
    first: str = "middle",  # How a text at the very left is anchored
) -> list[Svg]:
    """Draw a line with texts below, and the axis's name under its end."""
    parts = [tag("line", class_="axis", x1="0", x2="100%", y1=base, y2=base)]
    for x, text in labels:
        if grid is not None:
            parts.append(tag("line", class_="grid", x1=x, x2=x, y1=grid, y2=base + 4))
        parts.append(tag("text", text, x=x, y=base + 17, text_anchor=first if x == "0%" else "middle"))
    return [*parts, tag("text", title, class_="name", x="100%", y=base + 34, text_anchor="end")]


def x_axis(scale: Scale, y: float, title: str) -> list[Svg]:
    """Draw an axis of round numbers."""
    return lower_axis(y, title, [(scale.across(value), number_text(value)) for value in scale.ticks(6)], grid=0)


def share_axis(scale: Scale, y: float, title: str) -> list[Svg]:
    """Draw an axis of shares, in per cent."""
    labels = [(scale.across(value), percent(value)) for value in scale.ticks(6)]
    return lower_axis(y, title, labels, grid=0, first="start")


def y_axis(scale: Scale, title: str, *, whole: bool = False) -> list[Svg]:
    """Draw lines across with numbers at the left, and the axis's name on top."""
    parts = [tag("text", title, class_="name", x="-40", y="12")]
    for value in scale.ticks(4):
        if whole and value != round(value):
            continue
        y = scale.at(value)
        parts.append(tag("line", class_="grid", x1="0", x2="100%", y1=y, y2=y))
        parts.append(tag("text", number_text(value), x="-6", y=y + 4, text_anchor="end"))
    return parts


# Kinds of charts


def bar_rows(
    x: Scale,
    rows: Iterable[tuple[str, Sequence[Sequence[tuple[str, float]]]]],  # Words, and lanes of styled lengths
    *,
    row: float = 40.0,
    bar: float = 14.0,
    indent: float = 0.0,  # Of the words, in pixels
) -> list[Svg]:
    """Draw rows below each other: words, then bars, each of pieces one after the other."""
    parts = []
    for place, (words, lanes) in enumerate(rows):
        top = row * place
        parts.append(tag("text", words, class_="halo", x=indent, y=top + 15))
        for lane, pieces in enumerate(lanes):
            at, y = 0.0, top + 20 + lane * (bar + 1)
            for style, length in pieces:
                if length > 0:
                    left, width = x.across(at), x.across(length)
                    parts.append(tag("rect", class_=style, x=left, y=y, width=width, height=bar))
                at += length
    return parts


def column(
    left: float, width: float, y: Scale, pieces: Iterable[tuple[str, float]], tip: str, *, gap: float = 0.06
) -> list[Svg]:
    """Draw pieces upon each other; left and width are per cent of the figure, the gap is a share of the width."""
    across = {"x": f"{short(left + gap * width)}%", "width": f"{short((1 - 2 * gap) * width)}%"}
    parts, at = [], 0.0
    for style, size in pieces:
        if size > 0:
            top = y.at(at + size)
            parts.append(tag("rect", tag("title", tip), class_=style, y=top, height=y.at(at) - top, **across))
        at += size
    return parts


def joined(points: Iterable[tuple[float, float]], style: str) -> list[Svg]:
    """Draw straight lines between points; a line may end in per cent, a path may not."""
    return [
        tag("line", class_=style, x1=f"{short(x1)}%", y1=y1, x2=f"{short(x2)}%", y2=y2)
        for (x1, y1), (x2, y2) in pairwise(points)
    ]


def dot(x: float, y: float, tip: str, *, style: str = "first", radius: float = 5.0) -> Svg:
    """Draw a mark at per cent across and pixels down."""
    return tag("circle", tag("title", tip), class_=style, cx=f"{short(x)}%", cy=y, r=radius)


def heat(x: float, y: float, wide: float, high: float, share: float, tip: str, *, gap: float = 0.0) -> Svg:
    """Draw a cell of a table or map, the deeper the larger its share; ``gap`` is in pixels, and tenths of a per cent.

    A cell with something in it has at least :data:`FAINTEST` of the colour.
    """
    opacity = f"{FAINTEST + (1 - FAINTEST) * min(1.0, share):.3f}" if share > 0 else "1"
    across = {"x": f"{x + gap / 10:.3f}%", "width": f"{wide - gap / 5:.3f}%"}
    style = "heat" if share > 0 else "none-here"
    place = {"y": y + gap, "height": high - 2 * gap}
    return tag("rect", tag("title", tip), class_=style, fill_opacity=opacity, **across, **place)


def level(y: Scale, value: float, words: str = "") -> list[Svg]:
    """Draw a limit across the figure, with words above its end."""
    line = tag("line", class_="limit", x1="0", x2="100%", y1=y.at(value), y2=y.at(value))
    text = tag("text", words, class_="halo", x="100%", y=y.at(value) - 5, text_anchor="end")
    return [line, text] if words else [line]


def upright(x: Scale, value: float, base: float, words: str) -> list[Svg]:
    """Draw a limit from the base upwards, with words beside its upper end."""
    place = x.across(value)
    line = tag("line", class_="limit", x1=place, x2=place, y1=20, y2=base)
    return [line, tag("text", words, class_="halo", x=place, dx="5", y=30)]
