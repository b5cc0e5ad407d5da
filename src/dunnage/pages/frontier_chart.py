# SPDX-License-Identifier: Apache-2.0
"""The picture of a frontier: risk against cost, a colour and a shape for each mechanism, the recommended point marked.

Every place is drawn for one kind of scale; on the page it is told in the data's own figures as well, so that a script
can move it to the other kind.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from dunnage.advising.frontier import DATA, GENERATED, SAMPLE, Frontier, Limit, Measure, Point
from dunnage.mechanisms.clusters import UtilityClusters
from dunnage.mechanisms.full_domain import FullDomain
from dunnage.mechanisms.noisy import NoisyClusters, NoisyValues
from dunnage.mechanisms.partition import Partition
from dunnage.mechanisms.sampled_lattice import SampledLattice
from dunnage.svg import Scale, Svg, chart, short, tag
from dunnage.text import share_text

TOP, LOWER = 30.0, 44.0
"""Pixels above the plot, for the name of its axis, and below, for that of the other."""
FIGURE_HEIGHT = 220.0
COLOURS = 6
SHAPES = (
    "M-5 0A5 5 0 1 0 5 0A5 5 0 1 0-5 0Z",
    "M-4.5-4.5H4.5V4.5H-4.5Z",
    "M0-6L5.6 4H-5.6Z",
    "M0-6.3L6.3 0L0 6.3L-6.3 0Z",
    "M0 6L5.6-4H-5.6Z",
    "M-2-6H2V-2H6V2H2V6H-2V2H-6V-2H-2Z",
    "M-3-5.4H3L6 0L3 5.4H-3L-6 0Z",
)
"""Outlines around the middle of a mark."""
BEYOND = "M-5-5L5 0L-5 5Z"
CROSS = "M-6.5-6.5L6.5 6.5M-6.5 6.5L6.5-6.5"
# Their colours are the same on every page; others take those that are left.
_KNOWN = tuple(
    kind.name for kind in (Partition, FullDomain, UtilityClusters, SampledLattice, NoisyValues, NoisyClusters)
)
_LEGEND_ROW, _SHORT, _TICKS = 19.0, 20, 5
_WIDE = 40.0
"""Risks that differ by so much as a factor are drawn on a logarithmic scale at first."""
_FAR, _FAR_RISK, _NEAR_ZERO, _ROOM = 2.0, 4.0, 0.3, 0.04
_LEAST = 1e-9
"""Shares below are drawn as nothing."""


def measure_text(measure: Measure) -> str:
    """Write a measure in per cent, with the ends of its interval if they differ."""
    text, ends = share_text(measure.value), ends_text(measure)
    return f"{text} ({ends})" if ends else text


def ends_text(measure: Measure) -> str:
    """Write the ends of a measure's interval in per cent; empty if they are the same."""
    if measure.lower == measure.upper:
        return ""
    return f"{share_text(measure.lower)} to {share_text(measure.upper)}"


# Scales


@dataclass(frozen=True, kw_only=True)
class Axis:
    """A map from shares to places between 0 and 1; what is beyond an end is placed there."""

    low: float  # low, high: ends of the even scale
    high: float
    floor: float  # floor, most: ends of the logarithmic scale, above 0
    most: float
    log: bool = False  # Which of both is drawn at first

    @classmethod
    def of(
        cls, measures: Sequence[tuple[Measure, bool]], others: Iterable[float], *, may_be_log: bool, far: float = _FAR
    ) -> Axis:
        """Fit an axis to measures, each with whether no other beats it, and to other values.

        What is beaten may be far beyond all else; the even scale leaves it at its end.
        """
        needed = [*others, *(end for measure, best in measures if best for end in (measure.lower, measure.upper))]
        cut = far * max(needed, default=0.0) or math.inf
        values = [measure.value for measure, _ in measures]
        inside = [*needed, *(value for value in values if value <= cut)]
        low, high = min(inside, default=0.0), max(inside, default=1.0)
        low = 0.0 if 0 <= low < _NEAR_ZERO * high else low
        high = high if high - low > _LEAST else low + max(0.1 * abs(low), 0.001)
        # The power of ten, or 2 or 5 of it, at or below nine tenths of the least value.
        least = 0.9 * min(value for value in (*inside, *values, 1.0) if value > _LEAST)
        power = 10.0 ** math.floor(math.log10(least))
        floor = max((power * step for step in (1, 2, 5) if power * step <= least), default=power)
        return cls(
            low=low and low - _ROOM * (high - low),
            high=high + _ROOM * (high - low),
            floor=floor,
            most=max([*values, high, 10 * floor]) * (1 + _ROOM),
            log=may_be_log and bool(values) and _LEAST < _WIDE * min(values) < max(values),
        )

    def is_beyond(self, value: float) -> bool:
        """Whether a value is beyond the upper end of what is drawn at first."""
        return value > (self.most if self.log else self.high)

    def share(self, value: float) -> float:
        if self.log:
            at = math.log(max(value, self.floor) / self.floor) / math.log(self.most / self.floor)
        else:
            at = (value - self.low) / (self.high - self.low)
        return min(max(at, 0.0), 1.0)

    def ticks(self, *, log: bool, most: int) -> list[float]:
        """Return round values of one of both scales."""
        if not log:
            return Scale(self.low, self.high).ticks(most)
        first, last = math.floor(math.log10(self.floor)), math.ceil(math.log10(self.most))
        steps = (1, 2, 5) if last - first <= 3 else (1,)
        every = 1 + (last - first) // (most + 1)
        found = [step * 10.0**power for power in range(first, last + 1, every) for step in steps]
        return [value for value in found if self.floor * (1 - 1e-9) <= value <= self.most]


@dataclass(frozen=True, kw_only=True)
class Plot:
    """Where things of a frontier are drawn: cost to the right, risk upwards."""

    cost: Axis  # cost, risk: the axes
    risk: Axis
    top: float  # top, base: pixels of the plot's upper and lower end
    base: float
    moving: bool  # Whether every part tells its place in the data's figures, for a script to move it

    @classmethod
    def of(cls, frontier: Frontier, *, top: float, height: float, moving: bool) -> Plot:
        """Make room for all points, the limits, and what is known by chance."""
        limit = frontier.limit
        best = [not point.dominated and not why_aside(point, frontier) for point in frontier.points]
        return cls(
            cost=Axis.of(
                [(point.cost, good) for point, good in zip(frontier.points, best, strict=True)],
                [0.0, *([limit.max_cost] if limit.max_cost is not None else [])],
                may_be_log=False,
            ),
            risk=Axis.of(
                [(point.risk, good) for point, good in zip(frontier.points, best, strict=True)],
                [frontier.risk_of_chance, *([limit.max_risk] if limit.max_risk is not None else [])],
                may_be_log=True,
                far=_FAR_RISK,
            ),
            top=top,
            base=top + height,
            moving=moving,
        )

    def part(self, name: str, *children: str, at: Mapping[str, float], **attributes: float | str) -> Svg:
        """Write an element at places given as costs (``x``, ``x1``, ``x2``) and risks (``y``, ``y1``, ``y2``)."""
        places = {}
        for key, value in at.items():
            down = self.base - self.risk.share(value) * (self.base - self.top)
            places[key] = f"{short(100 * self.cost.share(value))}%" if key[0] == "x" else short(down)
        told = {f"data_{key}": f"{value:.9g}" for key, value in at.items()} if self.moving else {}
        return tag(name, *children, **places, **told, **attributes)


# Looks of mechanisms


def looks_of(points: Iterable[Point]) -> dict[str, int]:
    """Give each mechanism a number of its own: that of its colour and shape."""
    names = list(dict.fromkeys(point.mechanism for point in points))
    looks = {name: _KNOWN.index(name) for name in names if name in _KNOWN}
    for name in names:
        looks.setdefault(name, next(place for place in range(len(names) + 6) if place not in looks.values()))
    return {name: looks[name] for name in names}


def mark(look: int, *, hollow: bool = False, crossed: bool = False) -> Svg:
    """Draw the mark of a mechanism around the origin; crossed out, it is neither filled nor hollow."""
    kind = f"mark look-{look % COLOURS}" + (" aside" if crossed else " hollow" if hollow else "")
    shape = tag("path", class_=kind, d=SHAPES[look % len(SHAPES)])
    return Svg(shape + tag("path", class_=f"cross look-{look % COLOURS}", d=CROSS)) if crossed else shape


def as_key(picture: Svg) -> Svg:
    """Let a small picture around the origin stand in a line of text."""
    return tag("svg", picture, class_="mark-key", viewBox="-8 -8 16 16", aria_hidden="true")


def is_mixed(frontier: Frontier) -> bool:
    """Whether points were measured on different data, so that those on generated data are drawn hollow."""
    kinds = {point.measured_on for point in frontier.points}
    return GENERATED in kinds and len(kinds) > 1


def why_aside(point: Point, frontier: Frontier) -> str:
    """Say why a point cannot be recommended, so that it is crossed out and not on the line; empty if it can be."""
    if point.name == frontier.recommended:
        return ""
    if point.basis == "void":
        return "promises nothing"
    if point.mended:
        return "overloads trucks"
    # A limit on the risk may ask even for this.
    return "hardly protects" if point.weak and frontier.limit.max_risk is None else ""


# Parts


def frontier_figure(frontier: Frontier, *, height: float = FIGURE_HEIGHT) -> Svg:
    """Draw a frontier as one small figure with its legend, for a page of other things; nothing moves."""
    marks = [(mark(look), name) for name, look in looks_of(frontier.points).items()]
    legend = [*marks, *legend_of(frontier, Plot.of(frontier, top=0.0, height=height, moving=False))]
    # Two in a row, as far as words are short enough for half a phone.
    short_ones = [item for item in legend if len(item[1]) <= _SHORT]
    long_ones = [item for item in legend if len(item[1]) > _SHORT]
    lines = [short_ones[at : at + 2] for at in range(0, len(short_ones), 2)] + [[item] for item in long_ones]
    plot = Plot.of(frontier, top=TOP + _LEGEND_ROW * len(lines), height=height, moving=False)
    rows = [
        tag(
            "svg", picture, tag("text", words, x=13, y=4), class_="spread", x=f"{50 * column}%", y=7 + _LEGEND_ROW * row
        )
        for row, line in enumerate(lines)
        for column, (picture, words) in enumerate(line)
    ]
    parts = [tag("svg", *rows, class_="spread", x=-32, y=0, width="100%"), *drawn(frontier, plot)]
    return chart(plot.base + LOWER, parts, label=summary_of(frontier), kind="frontier-figure")


def summary_of(frontier: Frontier) -> str:
    """Say in a sentence what the picture shows, for who cannot see it."""
    best = sum(not point.dominated for point in frontier.points)
    told = (
        f"{frontier.risk_name} against {frontier.cost_unit}: {len(frontier.points)} policies, {best} of them beaten by "
        "no other."
    )
    if frontier.recommended is None:
        return told
    point = frontier.point(frontier.recommended)
    return (
        f"{told} {choice_word(frontier).capitalize()}: {point.name}, {share_text(point.cost.value)} "
        f"{frontier.cost_unit}, {frontier.risk_name} {share_text(point.risk.value)}."
    )


def choice_word(frontier: Frontier) -> str:
    """Name the mark of the recommended point: it may only be the closest to what was asked for."""
    return "recommended" if frontier.meets_limit else "closest"


def drawn(frontier: Frontier, plot: Plot) -> list[Svg]:
    """Draw axes, limits, the line of points that no other beats, intervals, marks and the choice, in this order."""
    mixed, looks = is_mixed(frontier), looks_of(frontier.points)
    order = sorted(range(len(frontier.points)), key=lambda place: not frontier.points[place].dominated)
    marks = [_mark_part(plot, place, frontier, looks, mixed) for place in order]
    kinds = (False, True) if plot.moving else (None,)
    return [
        tag("text", f"{frontier.risk_name}, lower is safer", class_="name", x="-40", y=plot.top - 16),
        tag("text", frontier.cost_unit, class_="name", x="100%", y=plot.base + 36, text_anchor="end"),
        *[_ticks("x", plot, plot.cost, plot.cost.log if kind is None else kind) for kind in kinds],
        *[_ticks("y", plot, plot.risk, plot.risk.log if kind is None else kind) for kind in kinds],
        tag("line", class_="axis", x1="0", x2="100%", y1=plot.base, y2=plot.base),
        *_limits(frontier, plot),
        *_stairs([point for point in frontier.points if not why_aside(point, frontier)], plot),
        tag("g", *marks, class_="policies") if marks else Svg(""),
        *_choice(frontier, plot),
    ]


def legend_of(frontier: Frontier, plot: Plot) -> list[tuple[Svg, str]]:
    """List what looks of marks and lines mean, besides mechanisms, each in a few words."""
    found: list[tuple[Svg, str]] = []
    if is_mixed(frontier):
        found.append((tag("path", class_="mark hollow plain", d=SHAPES[0]), "hollow: on generated data"))
    if any(point.dominated for point in frontier.points):
        found.append((tag("path", class_="mark plain faded", d=SHAPES[0]), "faded: another beats it"))
    why = {why_aside(point, frontier) for point in frontier.points} - {""}
    if why:
        crossed = Svg(tag("path", class_="mark plain aside", d=SHAPES[0]) + tag("path", class_="cross plain", d=CROSS))
        found.append((crossed, f"crossed: {why.pop() if len(why) == 1 else 'not recommended'}"))
    if any(plot.cost.is_beyond(point.cost.value) for point in frontier.points):
        found.append((tag("path", class_="mark plain faded", d=BEYOND), "costs more than is shown"))
    if any(plot.risk.is_beyond(point.risk.value) for point in frontier.points):
        upwards = tag("path", class_="mark plain faded", d=BEYOND, transform="rotate(-90)")
        found.append((upwards, "risks more than is shown"))
    if plot.moving or frontier.limit != Limit(asked=frontier.limit.asked):
        found.append((_line_key("limit"), "limit asked for" if frontier.limit.asked else "limit, by default"))
    if _has_chance(frontier, plot):
        found.append((_line_key("chance"), f"by chance: {share_text(frontier.risk_of_chance)}"))
    return found


def _line_key(kind: str) -> Svg:
    return tag("line", class_=kind, x1=-8, x2=8, y1=0, y2=0)


def _has_chance(frontier: Frontier, plot: Plot) -> bool:
    """Whether what an attacker has by chance is drawn."""
    return frontier.risk_of_chance > max(plot.risk.low, 0.0)


def _ticks(name: str, plot: Plot, axis: Axis, log: bool) -> Svg:
    parts: list[Svg] = []
    for value in axis.ticks(log=log, most=_TICKS):
        at, text = {f"{name}1": value, f"{name}2": value}, share_text(value)
        if name == "x":
            parts.append(plot.part("line", at=at, class_="grid", y1=plot.top, y2=plot.base + 4))
            parts.append(plot.part("text", text, at={"x": value}, y=plot.base + 18, text_anchor="middle"))
        else:
            parts.append(plot.part("line", at=at, class_="grid", x1="0", x2="100%"))
            parts.append(plot.part("text", text, at={"y": value}, x="-6", dy="4", text_anchor="end"))
    kind = f"ticks {name}-{'log' if log else 'even'}" + ("" if log == axis.log else " off")
    return tag("g", *(parts or [Svg("")]), class_=kind)


def _limits(frontier: Frontier, plot: Plot) -> list[Svg]:
    """Draw what was asked for, and what an attacker has by chance."""
    parts = []
    chance = frontier.risk_of_chance
    if _has_chance(frontier, plot):
        tip = tag("title", f"by chance, without any release: {share_text(chance)}")
        parts.append(plot.part("line", tip, at={"y1": chance, "y2": chance}, class_="chance", x1="0", x2="100%"))
    for name, value in (("x", frontier.limit.max_cost), ("y", frontier.limit.max_risk)):
        if value is None and not plot.moving:
            continue
        ends = {"y1": plot.top, "y2": plot.base} if name == "x" else {"x1": "0", "x2": "100%"}
        at = {f"{name}1": value or 0.0, f"{name}2": value or 0.0}
        kind = f"limit limit-{name}" + ("" if value is not None else " off")
        tip = tag("title", f"asked for: at most {share_text(value or 0.0)}")
        parts.append(plot.part("line", tip, at=at, class_=kind, **ends))
    return parts


def _stairs(points: Sequence[Point], plot: Plot) -> list[Svg]:
    """Join points that no other beats by steps: up to there a policy with less of both was not found."""
    parts = []
    for kind in (DATA, SAMPLE, GENERATED):
        best = sorted(
            {(p.cost.value, p.risk.value) for p in points if not p.dominated and p.measured_on == kind},
            key=lambda pair: (pair[0], -pair[1]),
        )
        for (cost, risk), (next_cost, next_risk) in pairwise(best):
            across = {"x1": cost, "x2": next_cost, "y1": risk, "y2": risk}
            down = {"x1": next_cost, "x2": next_cost, "y1": risk, "y2": next_risk}
            parts += [plot.part("line", at=at, class_=f"stair {kind}") for at in (across, down)]
    return parts


def _mark_part(plot: Plot, place: int, frontier: Frontier, looks: Mapping[str, int], mixed: bool) -> Svg:
    """Draw a point with its intervals and, for a mouse, what it is."""
    point = frontier.points[place]
    look, why = looks[point.mechanism], why_aside(point, frontier)
    cost, risk = point.cost, point.risk
    whiskers = []
    if cost.lower < cost.upper:
        across = {"x1": cost.lower, "x2": cost.upper, "y1": risk.value, "y2": risk.value}
        whiskers.append(plot.part("line", at=across, class_="whisker"))
    if risk.lower < risk.upper:
        upwards = {"x1": cost.value, "x2": cost.value, "y1": risk.lower, "y2": risk.upper}
        whiskers.append(plot.part("line", at=upwards, class_="whisker"))
    beyond = [
        tag("path", class_=f"mark beyond beyond-{name}", d=BEYOND)
        for name, axis, value in (("x", plot.cost, cost.value), ("y", plot.risk, risk.value))
        if axis.is_beyond(value)
    ]
    inside = [
        *([tag("circle", class_="hit", r=12)] if plot.moving else []),
        mark(look, hollow=mixed and point.measured_on == GENERATED, crossed=bool(why)),
        *beyond,
    ]
    sign = plot.part("svg", *inside, at={"x": cost.value, "y": risk.value}, class_="spread")
    told_why = f"; not recommended: {why}" if why else ""
    tip = tag("title", f"{point.name}: {measure_text(cost)} cost, {measure_text(risk)} risk{told_why}")
    kind = f"policy look-{look % COLOURS}" + (" faded" if point.dominated else "")
    told: dict[str, str] = {"id": f"policy-{place}"} if plot.moving else {}
    return tag("g", tip, *whiskers, sign, class_=kind, **told)


def _choice(frontier: Frontier, plot: Plot) -> list[Svg]:
    """Draw a ring around the recommended point, with a word beside it."""
    if frontier.recommended is None and not (plot.moving and frontier.points):
        return []
    point = frontier.points[0] if frontier.recommended is None else frontier.point(frontier.recommended)
    left = plot.cost.share(point.cost.value) > 0.5
    high = plot.risk.share(point.risk.value) > 0.85
    words = tag(
        "text",
        choice_word(frontier),
        class_="halo group",
        x=-14 if left else 14,
        y=16 if high else -10,
        text_anchor="end" if left else "start",
    )
    ring = tag("circle", class_="ring", r=10.5)
    kind = "spread choice" + (" off" if frontier.recommended is None else "")
    at = {"x": point.cost.value, "y": point.risk.value}
    return [plot.part("svg", ring, words, at=at, class_=kind)]
