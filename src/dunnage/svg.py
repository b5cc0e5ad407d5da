# SPDX-License-Identifier: Apache-2.0
"""Small pieces to draw figures with: SVG elements, scales, axes.

Horizontal positions are percentages and vertical ones pixels, so that a figure fills a phone or a desk and its text
keeps its size.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable
from dataclasses import dataclass

from dunnage.text import number_text

SLACK = 1e-9  # sums of floats; far below any scale's resolution


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
    given = "".join(f' {_attribute(key)}="{html.escape(short(value))}"' for key, value in attributes.items())
    inner = "".join(child if isinstance(child, Svg) else html.escape(child) for child in children)
    return Svg(f"<{name}{given}>{inner}</{name}>" if children else f"<{name}{given}/>")


def _attribute(key: str) -> str:
    return key.rstrip("_").replace("_", "-")


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


def chart(height: float, parts: Iterable[str], *, label: str, kind: str = "") -> Svg:
    """Put parts together into a figure with a label for who cannot see it."""
    return tag("svg", *parts, class_=f"chart {kind}".strip(), height=height, role="img", aria_label=label)


def x_axis(scale: Scale, y: float, title: str) -> list[Svg]:
    """Draw a line with numbers below, faint lines upwards, and the axis's name under its end."""
    parts = [tag("line", class_="axis", x1="0", x2="100%", y1=y, y2=y)]
    for value in scale.ticks(6):
        x = scale.across(value)
        parts.append(tag("line", class_="grid", x1=x, x2=x, y1="0", y2=y + 4))
        parts.append(tag("text", number_text(value), x=x, y=y + 17, text_anchor="middle"))
    return [*parts, tag("text", title, class_="name", x="100%", y=y + 34, text_anchor="end")]


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
