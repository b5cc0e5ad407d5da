# SPDX-License-Identifier: Apache-2.0
"""The page of a frontier: cost against risk, the details of every policy, fields for limits, and a table.

The page is complete without its script. The script only moves what is already there, and chooses by the ranking that
the advice made. Positions fit one kind of scale; each element also carries its values, so that the script can
move it to the other kind.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise

from dunnage.advising.advice import ranking
from dunnage.advising.frontier import DATA, GENERATED, SAMPLE, SHARES, Frontier, Limit, Measure, Point
from dunnage.advising.sweep import policy_document_or_none
from dunnage.mechanisms import MECHANISMS
from dunnage.mechanisms.clusters import UtilityClusters
from dunnage.mechanisms.full_domain import FullDomain
from dunnage.mechanisms.noisy import NoisyClusters, NoisyValues
from dunnage.mechanisms.partition import Partition
from dunnage.mechanisms.sampled_lattice import SampledLattice
from dunnage.mechanisms.size_profile import SizeProfile
from dunnage.showing.figures import Scale, Svg, chart, render, short, tag
from dunnage.text import number_text, share_text

HEIGHT, FIGURE_HEIGHT = 400.0, 220.0
_TABLE = (
    ("name", "Policy"),
    ("cost", "Cost"),
    ("risk", "Risk"),
    ("guarantee", "Promise"),
    ("basis", "Basis"),
    ("measured_on", "Measured on"),
    ("dominated", "Beaten"),
)
_MAX_CHANCE_FOR_ODDS = 0.3  # above it, "1 in n" says little, so the field for the risk is in per cent
# JSON inside a script element: nothing may look like the end of the element or, to an old reader, of a line.
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
_ANY = 1e300  # a limit that nothing exceeds


def frontier_page(frontier: Frontier) -> str:
    """Write the page of a frontier. It shows private figures: keep the file private (mode 0600)."""
    plot = Plot.of(frontier, top=TOP, height=HEIGHT, moving=True)
    looks, mixed = looks_of(frontier.points), is_mixed(frontier)
    shown: dict[str, object] = {}
    if frontier.points:  # at first, the panel shows the recommended or closest point, or else the first point
        point = frontier.points[0] if frontier.choice is None else frontier.point(frontier.choice)
        shown = {
            "point": point,
            "facts": _facts(point, frontier),
            "toml": _toml(point, frontier),
            "words": _point_words(point, frontier),
        }
    # The first contents of the fields: the limits of the frontier.
    limit = frontier.limit
    odds = frontier.risk_of_chance < _MAX_CHANCE_FOR_ODDS
    highest = max([1e-3, limit.max_cost or 0.0, *(point.cost.upper for point in frontier.points)])
    step = 10.0 ** math.floor(math.log10(highest)) / 10
    risk = "" if not limit.max_risk else f"{1 / limit.max_risk if odds else 100 * limit.max_risk:.6g}"
    ask = {
        "cost": "" if limit.max_cost is None else f"{100 * limit.max_cost:.6g}",
        "risk": risk,
        "odds": odds,
        "top": f"{100 * step * math.ceil(highest / step - 1e-9):.6g}",
        "step": f"{step:.6g}",
    }
    content = {
        "frontier": frontier,
        "lead": next(iter(frontier.says), ""),
        # Each sentence with its style: a warning, that choosing is not private, or an ordinary one.
        "says": [
            (text, "void" if text.startswith("WARNING") else "claimed" if "not private" in text else "")
            for text in frontier.says[1:]
        ],
        "baseline": frontier.cost_baseline,
        "best": sum(not point.dominated for point in frontier.points),
        "mixed": mixed,
        "legend": [(as_key(picture), words) for picture, words in legend_of(frontier, plot)],
        "crossed": any(why_aside(point, frontier) for point in frontier.points),
        "mechanisms": [(name, as_key(mark(look))) for name, look in looks.items()],
        "chart": chart(
            plot.base + LOWER, plot_parts(frontier, plot), label=summary_of(frontier), kind="frontier-chart"
        ),
        "shown": shown,
        "word": choice_word(frontier),
        "ask": ask,
        "on_devices": any(point.mechanism not in MECHANISMS for point in frontier.points),
        "columns": _TABLE,
        "rows": [
            {
                "point": point,
                "why": why_aside(point, frontier),
                "key": as_key(_mark_of(point, frontier, looks, mixed)),
                "measured_on": frontier.measured_on(point),
            }
            for point in frontier.points
        ],
        "ends": ends_text,
        "data": _data(frontier, plot),
    }
    return render("frontier.html", content, script="frontier.js")


# Words


def measure_text(measure: Measure) -> str:
    text, ends = share_text(measure.value), ends_text(measure)
    return f"{text} ({ends})" if ends else text


def ends_text(measure: Measure) -> str:
    """Write the ends of an interval in per cent; empty if they are equal."""
    if measure.lower == measure.upper:
        return ""
    return f"{share_text(measure.lower)} to {share_text(measure.upper)}{measure.caveat}"


def choice_word(frontier: Frontier) -> str:
    """Label the chosen point: it may only be the closest to the limits."""
    return "recommended" if frontier.meets_limit else "closest"


def _point_words(point: Point, frontier: Frontier) -> str:
    return f"{measure_text(point.cost)} {frontier.cost_unit}, {frontier.risk_name} {measure_text(point.risk)}"


def why_aside(point: Point, frontier: Frontier) -> str:
    """Say why a point is crossed out and left out of the line; empty if it can be recommended."""
    if point.name == frontier.choice:
        return ""
    limited = frontier.limit.max_risk is not None  # which may allow even the last two
    reasons = {
        "promises nothing": point.basis == "void",
        "no better than nothing": point.useless,
        "overloads trucks": point.mended,
        "overloaded fleet": point.late,
        "hardly protects": point.weak and not limited,
        "risk not known": point.vague and not limited,
    }
    return next((why for why, holds in reasons.items() if holds), "")


def _facts(point: Point, frontier: Frontier) -> list[tuple[str, str]]:
    risk = measure_text(point.risk)
    if 0 < point.risk.value < _MAX_CHANCE_FOR_ODDS:
        risk += f", about 1 in {number_text(float(f'{1 / point.risk.value:.2g}'))}"
    shares = {name for name in point.figures if name in SHARES or name.startswith("error of ")}
    figures = {name: (share_text if name in shares else number_text)(value) for name, value in point.figures.items()}
    notes = (
        (point.weak, "hardly protects", "recommended only if your limit on the risk allows it"),
        (point.vague, "risk not known", "its interval is so wide that it says nothing"),
        (point.mended, "not recommended", "its plan overloads many trucks"),
        (
            point.late,
            "overloaded fleet",
            "true waits cannot be predicted; those shown are of a short time",
        ),
        (point.useless, "useless", "it is no better than publishing nothing"),
    )
    return [
        ("mechanism", point.mechanism),
        *((_plain(name), _value_text(value)) for name, value in point.parameters.items()),
        *((f"plan {_plain(name)}", _value_text(value)) for name, value in point.plan.items()),
        (frontier.cost_unit, measure_text(point.cost)),
        (frontier.risk_name, risk),
        ("promise", point.guarantee),
        ("basis", point.basis),
        ("measured on", f"{frontier.measured_on(point)}, {'once' if point.draws == 1 else f'{point.draws} times'}"),
        ("beaten by another", "yes" if point.dominated else "no"),
        *((_plain(name), text) for name, text in figures.items()),
        *((name, text) for holds, name, text in notes if holds),
    ]


def _plain(name: str) -> str:
    return name.replace("_", " ")


def _value_text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return number_text(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _toml(point: Point, frontier: Frontier) -> str:
    import tomli_w

    duty = point.name.partition(": ")[0]
    tables = (policy_document_or_none(frontier.policy) or {}).get("mechanisms")
    table = tables.get(duty) if isinstance(tables, Mapping) else None
    if not isinstance(table, Mapping) or table.get("name") != point.mechanism:
        return tomli_w.dumps({"mechanism": {"name": point.mechanism, **point.parameters}})
    # In a policy for devices, the other settings of this kind of report stay.
    chosen = {name for item in frontier.points for name in item.parameters}
    kept = {name: value for name, value in table.items() if name not in chosen}
    parameters = {name: value for name, value in point.parameters.items() if name != "levels"}
    text = tomli_w.dumps({"mechanisms": {duty: {**kept, **parameters}}})
    levels = point.parameters.get("levels")
    return text if levels is None else f"{text}# In [attributes], set the grid to levels = {levels}\n"


# Data for the script


def _data(frontier: Frontier, plot: Plot) -> Svg:
    """Write the data for the script, safe inside a script element."""
    points = frontier.points
    place = {point.name: index for index, point in enumerate(points)}
    # The order of points depends on what is limited, not on the size of the limit.
    limits = {"cost": Limit(max_cost=_ANY), "risk": Limit(max_risk=_ANY), "both": Limit(max_cost=_ANY, max_risk=_ANY)}
    items = []
    for point in points:
        words, why = _point_words(point, frontier), why_aside(point, frontier)
        label = [f"{point.name}: {words}", *(["beaten by another"] if point.dominated else [])]
        label += [f"not recommended: {why}"] if why else []
        keys = {name: getattr(point, name) for name, _ in _TABLE}
        keys |= {"cost": point.cost.value, "risk": point.risk.value, "measured_on": frontier.measured_on(point)}
        items.append(
            {
                "name": point.name,
                "mechanism": point.mechanism,
                "cost": [point.cost.value, point.cost.lower, point.cost.upper],
                "risk": [point.risk.value, point.risk.lower, point.risk.upper],
                "basis": point.basis,
                "vague": point.vague or point.late,  # keeps to no limit
                "words": words,
                "label": ", ".join(label),
                "facts": _facts(point, frontier),
                "toml": _toml(point, frontier),
                "keys": keys,
            }
        )
    content = {
        "points": items,
        "ranking": {
            kind: [[place[point.name], group] for point, group in ranking(points, limit)]
            for kind, limit in limits.items()
        },
        "axes": {"x": asdict(plot.cost), "y": asdict(plot.risk), "top": plot.top, "base": plot.base},
        "limit": {"cost": frontier.limit.max_cost, "risk": frontier.limit.max_risk},
        "recommended": None if frontier.choice is None else place[frontier.choice],
        "meets": frontier.meets_limit,
        "words": {"odds": frontier.risk_of_chance < _MAX_CHANCE_FOR_ODDS},
    }
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Svg("".join(_ESCAPES.get(letter, letter) for letter in text))


# Scales


TOP, LOWER = 30.0, 44.0  # pixels above and below the plot, for the names of the axes
_TICKS = 5
_WIDE = 40.0  # risks that differ by this factor start on a logarithmic scale
_FAR, _FAR_RISK, _NEAR_ZERO, _ROOM = 2.0, 4.0, 0.3, 0.04
_MIN_SHARE = 1e-9  # smaller shares are shown as 0


@dataclass(frozen=True, kw_only=True)
class Axis:
    """A map from shares to positions between 0 and 1; values beyond an end are placed at that end."""

    low: float  # low, high: ends of the even scale
    high: float
    floor: float  # floor, most: ends of the logarithmic scale, above 0
    most: float
    log: bool = False  # which scale is shown first

    @classmethod
    def of(
        cls, measures: Sequence[tuple[Measure, bool]], others: Iterable[float], *, may_be_log: bool, far: float = _FAR
    ) -> Axis:
        """Fit an axis to other values and to measures, each with whether its point is on the frontier."""
        # Points that are beaten may be far away; the even scale places them at its end.
        needed = [*others, *(end for measure, best in measures if best for end in (measure.lower, measure.upper))]
        cut = far * max(needed, default=0.0) or math.inf
        values = [measure.value for measure, _ in measures]
        inside = [*needed, *(value for value in values if value <= cut)]
        low, high = min(inside, default=0.0), max(inside, default=1.0)
        low = 0.0 if 0 <= low < _NEAR_ZERO * high else low
        high = high if high - low > _MIN_SHARE else low + max(0.1 * abs(low), 0.001)
        # The largest power of ten, or 2 or 5 times one, up to nine tenths of the smallest value.
        least = 0.9 * min(value for value in (*inside, *values, 1.0) if value > _MIN_SHARE)
        power = 10.0 ** math.floor(math.log10(least))
        floor = max((power * step for step in (1, 2, 5) if power * step <= least), default=power)
        return cls(
            low=low and low - _ROOM * (high - low),
            high=high + _ROOM * (high - low),
            floor=floor,
            most=max([*values, high, 10 * floor]) * (1 + _ROOM),
            log=may_be_log and bool(values) and _MIN_SHARE < _WIDE * min(values) < max(values),
        )

    def is_beyond(self, value: float) -> bool:
        return value > (self.most if self.log else self.high)

    def share(self, value: float) -> float:
        if self.log:
            at = math.log(max(value, self.floor) / self.floor) / math.log(self.most / self.floor)
        else:
            at = (value - self.low) / (self.high - self.low)
        return min(max(at, 0.0), 1.0)

    def ticks(self, *, log: bool, most: int) -> list[float]:
        if not log:
            return Scale(self.low, self.high).ticks(most)
        first, last = math.floor(math.log10(self.floor)), math.ceil(math.log10(self.most))
        steps = (1, 2, 5) if last - first <= 3 else (1,)
        every = 1 + (last - first) // (most + 1)
        values = [step * 10.0**power for power in range(first, last + 1, every) for step in steps]
        return [value for value in values if self.floor * (1 - 1e-9) <= value <= self.most]


@dataclass(frozen=True, kw_only=True)
class Plot:
    """The area of a frontier: cost to the right, risk upwards."""

    cost: Axis
    risk: Axis
    top: float  # top, base: upper and lower end, in pixels
    base: float
    moving: bool  # whether every element carries its values, so that the script can move it

    @classmethod
    def of(cls, frontier: Frontier, *, top: float, height: float, moving: bool) -> Plot:
        """Fit all points, the limits and the risk by chance."""
        limit, points = frontier.limit, frontier.points
        best = [not point.dominated and not why_aside(point, frontier) for point in points]
        costs, risks = [point.cost for point in points], [point.risk for point in points]
        also = [0.0, *(end for end in (limit.max_cost,) if end is not None)]
        also_risk = [frontier.risk_of_chance, *(end for end in (limit.max_risk,) if end is not None)]
        return cls(
            cost=Axis.of([*zip(costs, best, strict=True)], also, may_be_log=False),
            risk=Axis.of([*zip(risks, best, strict=True)], also_risk, may_be_log=True, far=_FAR_RISK),
            top=top,
            base=top + height,
            moving=moving,
        )

    def part(self, name: str, *children: str, at: Mapping[str, float], **attributes: float | str) -> Svg:
        """Write an element at costs (``x``, ``x1``, ``x2``) and risks (``y``, ``y1``, ``y2``)."""
        places = {}
        for key, value in at.items():
            down = self.base - self.risk.share(value) * (self.base - self.top)
            places[key] = f"{short(100 * self.cost.share(value))}%" if key[0] == "x" else short(down)
        figures = {f"data_{key}": f"{value:.9g}" for key, value in at.items()} if self.moving else {}
        return tag(name, *children, **places, **figures, **attributes)


# Marks of mechanisms


COLOURS = 6
# Outlines around the middle of a mark.
SHAPES = (
    "M-5 0A5 5 0 1 0 5 0A5 5 0 1 0-5 0Z",
    "M-4.5-4.5H4.5V4.5H-4.5Z",
    "M0-6L5.6 4H-5.6Z",
    "M0-6.3L6.3 0L0 6.3L-6.3 0Z",
    "M0 6L5.6-4H-5.6Z",
    "M-2-6H2V-2H6V2H2V6H-2V2H-6V-2H-2Z",
    "M-3-5.4H3L6 0L3 5.4H-3L-6 0Z",
)
BEYOND = "M-5-5L5 0L-5 5Z"
CROSS = "M-6.5-6.5L6.5 6.5M-6.5 6.5L6.5-6.5"
# These have the same colours on every page; other mechanisms take the remaining colours.
_FIRST_LOOKS = [
    kind.name
    for kind in (Partition, FullDomain, UtilityClusters, SampledLattice, NoisyValues, NoisyClusters, SizeProfile)
]


def looks_of(points: Iterable[Point]) -> dict[str, int]:
    names = list(dict.fromkeys(point.mechanism for point in points))
    looks = {name: _FIRST_LOOKS.index(name) for name in names if name in _FIRST_LOOKS}
    for name in names:
        looks.setdefault(name, next(place for place in range(len(names) + 6) if place not in looks.values()))
    return {name: looks[name] for name in names}


def mark(look: int, *, hollow: bool = False, crossed: bool = False) -> Svg:
    """Draw the mark of a mechanism around the origin: filled, hollow or crossed out."""
    kind = f"mark look-{look % COLOURS}" + (" aside" if crossed else " hollow" if hollow else "")
    shape = tag("path", class_=kind, d=SHAPES[look % len(SHAPES)])
    return Svg(shape + tag("path", class_=f"cross look-{look % COLOURS}", d=CROSS)) if crossed else shape


def _mark_of(point: Point, frontier: Frontier, looks: Mapping[str, int], mixed: bool) -> Svg:
    hollow, crossed = mixed and point.measured_on == GENERATED, bool(why_aside(point, frontier))
    return mark(looks[point.mechanism], hollow=hollow, crossed=crossed)


def as_key(picture: Svg) -> Svg:
    return tag("svg", picture, class_="mark-key", viewBox="-8 -8 16 16", aria_hidden="true")


def is_mixed(frontier: Frontier) -> bool:
    """Whether only some points were measured on generated data; these are hollow."""
    kinds = {point.measured_on for point in frontier.points}
    return GENERATED in kinds and len(kinds) > 1


# The picture


def frontier_figure(frontier: Frontier, *, height: float = FIGURE_HEIGHT) -> Svg:
    """Draw a frontier as a small static figure with a legend, for other pages."""
    legend = [(mark(look), name) for name, look in looks_of(frontier.points).items()]
    legend += legend_of(frontier, Plot.of(frontier, top=0.0, height=height, moving=False))
    # Two entries per row if they are short enough for half a phone screen.
    row_height, max_letters = 19.0, 20
    brief = [item for item in legend if len(item[1]) <= max_letters]
    table = [brief[at : at + 2] for at in range(0, len(brief), 2)]
    table += [[item] for item in legend if len(item[1]) > max_letters]
    plot = Plot.of(frontier, top=TOP + row_height * len(table), height=height, moving=False)
    rows = []
    for row, line in enumerate(table):
        for column, (picture, words) in enumerate(line):
            text, down = tag("text", words, x=13, y=4), 7 + row_height * row
            rows.append(tag("svg", picture, text, class_="spread", x=f"{50 * column}%", y=down))
    parts = [tag("svg", *rows, class_="spread", x=-32, y=0, width="100%"), *plot_parts(frontier, plot)]
    return chart(plot.base + LOWER, parts, label=summary_of(frontier), kind="frontier-figure")


def summary_of(frontier: Frontier) -> str:
    best = sum(not point.dominated for point in frontier.points)
    words = (
        f"{frontier.risk_name} against {frontier.cost_unit}: {len(frontier.points)} policies, {best} of them "
        "not beaten by another."
    )
    if frontier.choice is None:
        return words
    point = frontier.point(frontier.choice)
    return (
        f"{words} {choice_word(frontier).capitalize()}: {point.name}, {share_text(point.cost.value)} "
        f"{frontier.cost_unit}, {frontier.risk_name} {share_text(point.risk.value)}."
    )


def legend_of(frontier: Frontier, plot: Plot) -> list[tuple[Svg, str]]:
    """Explain the looks of marks and lines in a few words each, except for mechanisms."""
    items: list[tuple[Svg, str]] = []
    if is_mixed(frontier):
        items.append((tag("path", class_="mark hollow plain", d=SHAPES[0]), "hollow: measured on generated data"))
    if any(point.dominated for point in frontier.points):
        items.append((tag("path", class_="mark plain faded", d=SHAPES[0]), "faded: beaten by another"))
    if why := {why_aside(point, frontier) for point in frontier.points} - {""}:
        crossed = Svg(tag("path", class_="mark plain aside", d=SHAPES[0]) + tag("path", class_="cross plain", d=CROSS))
        items.append((crossed, f"crossed: {why.pop() if len(why) == 1 else 'not recommended'}"))
    if any(plot.cost.is_beyond(point.cost.value) for point in frontier.points):
        items.append((tag("path", class_="mark plain faded", d=BEYOND), "cost beyond the scale"))
    if any(plot.risk.is_beyond(point.risk.value) for point in frontier.points):
        upwards = tag("path", class_="mark plain faded", d=BEYOND, transform="rotate(-90)")
        items.append((upwards, "risk beyond the scale"))
    if plot.moving or frontier.limit != Limit(asked=frontier.limit.asked):
        key = tag("line", class_="limit", x1=-8, x2=8, y1=0, y2=0)
        items.append((key, "your limit" if frontier.limit.asked else "default limit"))
    if _has_chance(frontier, plot):
        key = tag("line", class_="chance", x1=-8, x2=8, y1=0, y2=0)
        items.append((key, f"by chance: {share_text(frontier.risk_of_chance)}"))
    return items


def _has_chance(frontier: Frontier, plot: Plot) -> bool:
    return frontier.risk_of_chance > max(plot.risk.low, 0.0)


def plot_parts(frontier: Frontier, plot: Plot) -> list[Svg]:
    """Draw axes, limits, the line of the best points, intervals, marks and the choice, in this order."""
    mixed, looks = is_mixed(frontier), looks_of(frontier.points)
    order = sorted(range(len(frontier.points)), key=lambda place: not frontier.points[place].dominated)
    marks = []
    for place in order:
        point, whiskers = frontier.points[place], []
        look, why, cost, risk = looks[point.mechanism], why_aside(point, frontier), point.cost, point.risk
        if cost.lower < cost.upper:
            wide = {"x1": cost.lower, "x2": cost.upper, "y1": risk.value, "y2": risk.value}
            whiskers.append(plot.part("line", at=wide, class_="whisker"))
        if risk.lower < risk.upper:
            high = {"x1": cost.value, "x2": cost.value, "y1": risk.lower, "y2": risk.upper}
            whiskers.append(plot.part("line", at=high, class_="whisker"))
        hit = [tag("circle", class_="hit", r=12)] if plot.moving else []
        inside = [*hit, _mark_of(point, frontier, looks, mixed)]
        for name, axis, value in (("x", plot.cost, cost.value), ("y", plot.risk, risk.value)):
            if axis.is_beyond(value):
                inside.append(tag("path", class_=f"mark beyond beyond-{name}", d=BEYOND))
        sign = plot.part("svg", *inside, at={"x": cost.value, "y": risk.value}, class_="spread")
        reason = f"; not recommended: {why}" if why else ""
        tip = tag("title", f"{point.name}: {measure_text(cost)} cost, {measure_text(risk)} risk{reason}")
        style = f"policy look-{look % COLOURS}" + (" faded" if point.dominated else "")
        named: dict[str, str] = {"id": f"policy-{place}"} if plot.moving else {}
        marks.append(tag("g", tip, *whiskers, sign, class_=style, **named))
    # Join the best points by steps: no measured policy has both a lower cost and a lower risk than the line.
    best, stairs = [p for p in frontier.points if not p.dominated and not why_aside(p, frontier)], []
    for kind in (DATA, SAMPLE, GENERATED):
        pairs = {(point.cost.value, point.risk.value) for point in best if point.measured_on == kind}
        for (x, y), (next_x, next_y) in pairwise(sorted(pairs, key=lambda pair: (pair[0], -pair[1]))):
            across = {"x1": x, "x2": next_x, "y1": y, "y2": y}
            down = {"x1": next_x, "x2": next_x, "y1": y, "y2": next_y}
            stairs += [plot.part("line", at=at, class_=f"stair {kind}") for at in (across, down)]
    limits, chance = [], frontier.risk_of_chance
    if _has_chance(frontier, plot):
        tip = tag("title", f"by chance, without any release: {share_text(chance)}")
        limits.append(plot.part("line", tip, at={"y1": chance, "y2": chance}, class_="chance", x1="0", x2="100%"))
    for name, limit in (("x", frontier.limit.max_cost), ("y", frontier.limit.max_risk)):
        if limit is None and not plot.moving:
            continue
        ends = {"y1": plot.top, "y2": plot.base} if name == "x" else {"x1": "0", "x2": "100%"}
        at = {f"{name}1": limit or 0.0, f"{name}2": limit or 0.0}
        kind = f"limit limit-{name}" + ("" if limit is not None else " off")
        tip = tag("title", f"limit: at most {share_text(limit or 0.0)}")
        limits.append(plot.part("line", tip, at=at, class_=kind, **ends))
    return [
        tag("text", f"{frontier.risk_name}, lower is safer", class_="name", x="-40", y=plot.top - 16),
        tag("text", frontier.cost_unit, class_="name", x="100%", y=plot.base + 36, text_anchor="end"),
        *[_ticks("x", plot, plot.cost, log) for log in ((False, True) if plot.moving else (plot.cost.log,))],
        *[_ticks("y", plot, plot.risk, log) for log in ((False, True) if plot.moving else (plot.risk.log,))],
        tag("line", class_="axis", x1="0", x2="100%", y1=plot.base, y2=plot.base),
        *limits,
        *stairs,
        tag("g", *marks, class_="policies") if marks else Svg(""),
        *_choice(frontier, plot),
    ]


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


def _choice(frontier: Frontier, plot: Plot) -> list[Svg]:
    if frontier.choice is None and not (plot.moving and frontier.points):
        return []
    point = frontier.points[0] if frontier.choice is None else frontier.point(frontier.choice)
    left = plot.cost.share(point.cost.value) > 0.5
    high = plot.risk.share(point.risk.value) > 0.85
    place: dict[str, float | str] = {"x": -14 if left else 14, "y": 16 if high else -10}
    words = tag("text", choice_word(frontier), class_="halo group", **place, text_anchor="end" if left else "start")
    ring = tag("circle", class_="ring", r=10.5)
    kind = "spread choice" + (" off" if frontier.choice is None else "")
    at = {"x": point.cost.value, "y": point.risk.value}
    return [plot.part("svg", ring, words, at=at, class_=kind)]
