# SPDX-License-Identifier: Apache-2.0
"""Figures and pages. Figures take data and give SVG: bars, columns, lines, heat maps, maps and their axes and marks.

Horizontal positions are percentages and vertical positions are pixels, so a figure fills a phone or a desktop screen
and its text keeps its size. Maps keep their proportions instead. Colours are classes of ``page.css``, light and dark.

A page is one HTML file with its style inside. It needs no network and, except for the frontier, no script: its
Content-Security-Policy names style and script by their SHA-256 and allows nothing else. Templates own the sentences.
"""

from __future__ import annotations

import base64
import hashlib
import html
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dunnage._version import __version__
from dunnage.arrays import FloatArray, IntArray
from dunnage.model.certificate import OddsRow
from dunnage.model.city import EARTH_KM, City
from dunnage.planning.exports import convex_hull
from dunnage.text import NO_BREAK, large_percent, number_text, percent, plural, several, share_text, unbroken

if TYPE_CHECKING:
    import jinja2

SLACK = 1e-9  # sums of floats; far below any scale's resolution
FAINTEST = 0.06
BASE, TOP = 178.0, 34.0  # lower and upper end of a chart with an axis of numbers at its left, in pixels


class Svg(str):
    """Text that is already markup; any other text is escaped when it is placed into markup."""

    def __html__(self) -> str:
        return self


def tag(name: str, *children: str, **attributes: float | str) -> Svg:
    """Write an element; plain text in attributes and children is escaped."""
    names = {key: key.rstrip("_").replace("_", "-") for key in attributes}
    given = "".join(f' {names[key]}="{html.escape(short(value))}"' for key, value in attributes.items())
    inner = "".join(child if isinstance(child, Svg) else html.escape(child) for child in children)
    return Svg(f"<{name}{given}>{inner}</{name}>" if children else f"<{name}{given}/>")


def short(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.2f}".rstrip("0").rstrip(".")


@dataclass(frozen=True)
class Scale:
    """A linear map from values to positions: per cent across, pixels down."""

    low: float
    high: float
    start: float = 0.0
    stop: float = 100.0

    def at(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.stop - self.start)

    def across(self, value: float) -> str:
        return f"{short(self.at(value))}%"

    def ticks(self, max_steps: int) -> list[float]:
        """Return round values, at most ``max_steps + 1`` of them."""
        rough = (self.high - self.low) / max_steps
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * (1 - SLACK))
        first, last = math.ceil(self.low / step - SLACK), math.floor(self.high / step + SLACK)
        return [index * step for index in range(first, last + 1)]


class LogScale(Scale):
    def at(self, value: float) -> float:
        share = math.log10(value / self.low) / math.log10(self.high / self.low)
        return self.start + share * (self.stop - self.start)

    def ticks(self, max_steps: int) -> list[float]:
        first, last = math.ceil(math.log10(self.low) - SLACK), math.floor(math.log10(self.high) + SLACK)
        return [10.0**power for power in range(first, last + 1)]


def span(low: float, high: float) -> tuple[float, float]:
    """Widen a span a little on both sides, and more if it is a single point."""
    room = 0.02 * (high - low) or 0.05 * abs(high) or 1.0
    return low - room, high + room


Legend = Sequence[tuple[str, str]]  # styles and their meanings


@dataclass(frozen=True, kw_only=True)
class Picture:
    title: str
    svg: Svg
    caption: object  # text, or something that writes itself as markup
    legend: Legend = ()
    note: str = ""
    sources: Sequence[str] = ()  # files with its data, relative to the page


def chart(height: float, parts: Iterable[str], *, label: str, kind: str = "") -> Svg:
    """Combine parts into a figure; the label describes it to readers who cannot see it."""
    return tag("svg", *parts, class_=f"chart {kind}".strip(), height=height, role="img", aria_label=label)


def _stripes(name: str, *inside: Svg) -> Svg:
    size = {"width": 6.0, "height": 6.0}
    return tag("pattern", *inside, id=name, patternUnits="userSpaceOnUse", patternTransform="rotate(45)", **size)


# Fillings that work without colour: of what is too much, and of what is still noise
PATTERNS = tag(
    "defs",
    _stripes(
        "hatch",
        tag("rect", class_="hatch-back", width=6, height=6),
        tag("rect", class_="hatch-line", width=2.6, height=6),
    ),
    _stripes("quiet", tag("rect", class_="quiet-line", width=1.4, height=6)),
)


# Pages


class Figure(NamedTuple):
    name: str
    value: str
    note: str


# Name and meaning of each model of a guarantee.
MODELS = {
    "k-anonymity": ("k-anonymity", "every released record looks like at least k - 1 others"),
    "dp": ("differential privacy", "the release hardly depends on any one {unit}"),
    "concentrated-dp": ("concentrated differential privacy", "the release hardly depends on any one {unit}"),
    "sampled-dp": (
        "differential privacy by sampling",
        "because the sample is secret, the release hardly shows whether any one {unit} is in the data",
    ),
    "within-cluster": (
        "differential privacy within clusters",
        "the release hardly distinguishes between values of the same cluster",
    ),
    "within-published-borders": (
        "differential privacy within published borders",
        "the release hardly distinguishes between values within the same borders",
    ),
    "local-dp": ("local differential privacy", "a device adds noise before it sends, so no report reveals much"),
    "metric-local-dp": (
        "local differential privacy by distance",
        "a report hardly distinguishes between nearby values",
    ),
}


def unbroken_percent(share: float) -> str:
    return large_percent(share).replace(" ", NO_BREAK)


def odds_words(rows: Iterable[OddsRow], write: Callable[[float], str]) -> list[tuple[str, str]]:
    """Say what a suspicion can become, or how often an attack is right, each with its upper bound."""
    words = []
    for row in rows:
        before = f"a suspicion of {unbroken_percent(row.before or 0.0)}"
        if row.right_at_most is not None:
            words.append((row.attack or "a guess is right", write(row.right_at_most)))
        elif row.at_most is not None:
            words.append((f"{before} becomes", write(row.at_most)))
        elif row.right_guess_at_most is not None:
            words.append((f"with {before}, the best guess is right", write(row.right_guess_at_most)))
    return words


@cache
def _environment() -> jinja2.Environment:
    """Make what compiles templates, once: it keeps those that are compiled."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("dunnage.showing", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": number_text,
        "percent": percent,
        "share": share_text,
        "several": several,
        "plural": plural,
        "unbroken_percent": unbroken_percent,
    }
    environment.globals["patterns"] = PATTERNS
    return environment


def render(template: str, content: Mapping[str, object], *, script: str | None = None) -> str:
    """Fill in a template; text that is not already markup is escaped."""
    inside = {"version": __version__, "script_hash": ""}
    for name, file in (("style", "page.css"), ("script", script)):
        if file is not None:
            text = resources.files("dunnage.showing").joinpath("templates", file).read_text("utf-8")
            inside[name] = Svg(text)
            inside[f"{name}_hash"] = Svg(base64.b64encode(hashlib.sha256(text.encode()).digest()).decode())
    return unbroken(_environment().get_template(template).render(**inside, **content))


# Axes and marks


def lower_axis(
    base: float,
    title: str,
    labels: Iterable[tuple[str, str]],  # positions and texts
    *,
    grid: float | None = None,  # the upper end of faint vertical lines
    first: str = "middle",  # how a text at the left edge is anchored
) -> list[Svg]:
    """Draw a line with labels below it, and the name of the axis under its end."""
    parts = [tag("line", class_="axis", x1="0", x2="100%", y1=base, y2=base)]
    for x, text in labels:
        if grid is not None:
            parts.append(tag("line", class_="grid", x1=x, x2=x, y1=grid, y2=base + 4))
        parts.append(tag("text", text, x=x, y=base + 17, text_anchor=first if x == "0%" else "middle"))
    return [*parts, *([tag("text", title, class_="name", x="100%", y=base + 34, text_anchor="end")] if title else [])]


def x_axis(scale: Scale, y: float, title: str, *, shares: bool = False) -> list[Svg]:
    """Draw an axis of round numbers, or of shares in per cent."""
    write = percent if shares else number_text
    labels = [(scale.across(value), write(value)) for value in scale.ticks(6)]
    return lower_axis(y, title, labels, grid=0, first="start" if shares else "middle")


def y_axis(scale: Scale, title: str, *, whole: bool = False) -> list[Svg]:
    """Draw horizontal lines with numbers at the left, and the name of the axis on top."""
    parts = [tag("text", title, class_="name", x="-40", y="12")]
    for value in scale.ticks(4):
        if whole and value != round(value):
            continue
        y = scale.at(value)
        parts.append(tag("line", class_="grid", x1="0", x2="100%", y1=y, y2=y))
        parts.append(tag("text", number_text(value), x="-6", y=y + 4, text_anchor="end"))
    return parts


def joined(points: Iterable[tuple[float, float]], style: str) -> list[Svg]:
    """Join points by lines: unlike a path, a line accepts positions in per cent."""
    return [
        tag("line", class_=style, x1=f"{short(x1)}%", y1=y1, x2=f"{short(x2)}%", y2=y2)
        for (x1, y1), (x2, y2) in pairwise(points)
    ]


def dot(x: float, y: float, tip: str, *, style: str = "first", radius: float = 5.0) -> Svg:
    return tag("circle", tag("title", tip), class_=style, cx=f"{short(x)}%", cy=y, r=radius)


def level(y: Scale, value: float, words: str = "") -> list[Svg]:
    """Draw a horizontal limit across the figure, with words above its end."""
    line = tag("line", class_="limit", x1="0", x2="100%", y1=y.at(value), y2=y.at(value))
    text = tag("text", words, class_="halo", x="100%", y=y.at(value) - 5, text_anchor="end")
    return [line, text] if words else [line]


def upright(x: Scale, value: float, base: float, words: str) -> list[Svg]:
    """Draw a vertical limit, with words beside its upper end."""
    place = x.across(value)
    line = tag("line", class_="limit", x1=place, x2=place, y1=20, y2=base)
    return [line, tag("text", words, class_="halo", x=place, dx="5", y=30)]


# Kinds of charts


def bars(
    x: Scale,
    rows: Sequence[tuple[str, Sequence[Sequence[tuple[str, float]]]]],  # label, and lanes of styled lengths
    *,
    label: str,
    axis: str = "",  # its name; without one, there is only a line at the left and no numbers
    shares: bool = False,
    limit: float | None = None,
    row: float = 40.0,
    bar: float = 14.0,
    room: float = 4.0,  # below the last row, in pixels
) -> Svg:
    """Draw rows of a label and its bars; each bar consists of pieces, one after the other."""
    height = row * len(rows) + room
    parts = x_axis(x, height, axis, shares=shares) if axis else []
    if not axis:
        parts.append(tag("line", class_="axis", x1="0", x2="0", y1="0", y2=row * len(rows)))
    if limit is not None and x.high > limit:
        parts.append(tag("line", class_="limit", x1=x.across(limit), x2=x.across(limit), y1="0", y2=height))
    for place, (words, lanes) in enumerate(rows):
        parts.append(tag("text", words, class_="halo", x=0 if axis else 6, y=row * place + 15))
        for lane, pieces in enumerate(lanes):
            at, y = 0.0, row * place + 20 + lane * (bar + 1)
            for style, length in pieces:
                if length > 0:
                    across = {"x": x.across(at), "width": x.across(length)}
                    parts.append(tag("rect", class_=style, y=y, height=bar, **across))
                at += length
    return chart(height + (40 if axis else 0), parts, label=label, kind="flat")


class IntervalRow(NamedTuple):
    words: str
    domain: tuple[float, float]  # the ends of the row
    low: float
    high: float
    value: float | None
    truth: float | None = None


def intervals(rows: Sequence[IntervalRow], *, label: str, row: float = 40.0) -> Svg:
    """Draw values with their intervals, each across its own domain, and the true value if it is known."""
    height = row * len(rows) + 6
    parts = x_axis(Scale(0.0, 100.0), height, "per cent of the domain")
    for number, item in enumerate(rows):
        y, domain = row * number + 29, Scale(*item.domain)
        low, high = domain.at(item.low), domain.at(item.high)
        inside = max(0.0, min(low, 100.0)), min(100.0, max(high, 0.0))
        width = f"{max(inside[1] - inside[0], 0.1):.2f}%"
        parts.append(tag("rect", class_="range", x=f"{inside[0]:.2f}%", width=width, y=y - 5, height=10))
        if item.truth is not None:
            truth = domain.at(item.truth)
            parts += joined([(truth, y - 10), (truth, y + 10)], "limit")
        if item.value is not None:
            parts.append(dot(domain.at(item.value), y, item.words))
        parts.append(tag("text", item.words, class_="halo", x="0", y=y - 13))
    return chart(height + 40, parts, label=label, kind="flat")


class StackedColumn(NamedTuple):
    left: float  # left, right: in the unit of the axis below
    right: float
    pieces: Sequence[tuple[str, float]]  # styles and heights, stacked
    tip: str


def columns(
    x: Scale,
    y: Scale,
    stacks: Iterable[StackedColumn],
    *,
    label: str,
    y_title: str,
    below: Sequence[Svg],  # the lower axis
    whole: bool = False,
    gap: float = 0.06,  # on each side, as a share of the width
    steps: Sequence[float] | None = None,  # heights of a stepped line, in the unit of the left axis
    more: Sequence[Svg] = (),
) -> Svg:
    """Draw stacked columns: a histogram, activity by hour, or loads."""
    parts, edges = [*y_axis(y, y_title, whole=whole), *below], []
    for stack in stacks:
        left, width, at = x.at(stack.left), x.at(stack.right) - x.at(stack.left), 0.0
        across = {"x": f"{short(left + gap * width)}%", "width": f"{short((1 - 2 * gap) * width)}%"}
        edges.append((left, left + width))
        for style, size in stack.pieces:
            if size > 0:
                top = y.at(at + size)
                tip = tag("title", stack.tip)
                parts.append(tag("rect", tip, class_=style, y=top, height=y.at(at) - top, **across))
            at += size
    if steps is not None:
        corners = [(edge, y.at(height)) for ends, height in zip(edges, steps, strict=True) for edge in ends]
        parts.append(tag("g", *joined(corners, "step")))
    return chart(max(y.start, y.stop) + 40, [*parts, *more], label=label)


class Dot(NamedTuple):
    x: float
    y: float
    tip: str = ""  # without one, the line passes through and there is no mark
    style: str = "first"
    radius: float = 5.0
    ends: tuple[float, float] | None = None  # of its interval


def lines(
    x: Scale,
    y: Scale,
    series: Iterable[tuple[str, Sequence[Dot]]],  # styles of lines, and the dots they join
    *,
    label: str,
    y_title: str,
    below: Sequence[Svg],
    limit: tuple[float, str] | None = None,  # value and words
    room: float = 42.0,
) -> Svg:
    """Draw lines through dots, with the interval of each dot, and a limit."""
    parts = [*y_axis(y, y_title), *below, *(level(y, *limit) if limit else [])]
    for style, dots in series:
        parts += joined([(x.at(one.x), y.at(one.y)) for one in dots], style)
        for one in dots:
            if one.ends is not None and one.ends[0] < one.ends[1]:
                parts += joined([(x.at(one.x), y.at(end)) for end in one.ends], "axis")
            if one.tip:
                parts.append(dot(x.at(one.x), y.at(one.y), one.tip, style=one.style, radius=one.radius))
    return chart(y.start + room, parts, label=label)


def heat_map(
    shares: Sequence[Sequence[float]],  # of the darkest colour
    *,
    label: str,
    tip: Callable[[int, int], str],  # of row and column
    heads: Sequence[Svg] = (),
    text: Callable[[int, int, Mapping[str, float | str]], Sequence[Svg]] = lambda row, column, place: (),
    left: float = 0.0,  # per cent before the cells
    top: float = 0.0,  # pixels above them
    height: float,  # of a row
    gap: float = 0.0,  # between cells: pixels, and tenths of a per cent
    room: float = 0.0,
    kind: str = "flat",
) -> Svg:
    """Draw a table of cells, darker for larger shares; a share above 0 has at least the opacity :data:`FAINTEST`."""
    wide, parts = (100 - left) / max(map(len, shares)), list(heads)
    for row, cells in enumerate(shares):
        for column, share in enumerate(cells):
            x, y = left + column * wide, top + row * height
            opacity = f"{FAINTEST + (1 - FAINTEST) * min(1.0, share):.3f}" if share > 0 else "1"
            across = {"x": f"{x + gap / 10:.3f}%", "width": f"{wide - gap / 5:.3f}%"}
            style, place = "heat" if share > 0 else "none-here", {"y": y + gap, "height": height - 2 * gap}
            title = tag("title", tip(row, column))
            parts.append(tag("rect", title, class_=style, fill_opacity=opacity, **across, **place))
            middle: dict[str, float | str] = {"x": f"{x + wide / 2:.2f}%", "text_anchor": "middle"}
            parts += text(row, column, {"y": y + height / 2 + 4, **middle})
    return chart(top + height * len(shares) + room, parts, label=label, kind=kind)


# A schematic map of a network: positions of its vertices, with sets of vertices marked on it.


ROUNDS = 200
NUDGE = 0.01  # share of an edge by which vertices are first moved apart, so that no two coincide
GOLDEN_ANGLE = 2.399963229728653
MARKS = ("first", "second")  # styles of sets: a dot, and a ring around it


@dataclass(frozen=True, eq=False)
class Network:
    """Positions of the vertices of a network, the same in every picture."""

    places: Mapping[str, tuple[float, float]]  # across and down of each vertex, as shares of the width
    edges: tuple[tuple[str, str], ...]  # pairs of neighbours

    @classmethod
    def of(cls, edges: Sequence[Sequence[str]]) -> Network:
        return _laid_out(tuple((start, end) for start, end, *_ in edges))

    def drawn(self, sets: Mapping[str, Sequence[str]], *, width: float, room: float = 10.0) -> Svg:
        """Draw the network and mark the first two sets of vertices."""
        at = {name: (room + x * width, room + y * width) for name, (x, y) in self.places.items()}
        ends = [(*at[start], *at[end]) for start, end in self.edges]
        paths = " ".join(f"M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" for x1, y1, x2, y2 in ends)
        parts = [tag("path", class_="edge", d=paths)]
        parts += [tag("circle", class_="vertex", cx=x, cy=y, r=1.8) for x, y in at.values()]
        for kind, radius, (name, members) in zip(MARKS, (4.5, 7.5), sets.items(), strict=False):
            for vertex in members:
                tip = tag("title", f"{vertex}: {name}")
                parts.append(tag("circle", tip, class_=kind, cx=at[vertex][0], cy=at[vertex][1], r=radius))
        return tag("g", *parts)

    def size(self, *, width: float, room: float = 10.0) -> tuple[float, float]:
        return width + 2 * room, max(down for _, down in self.places.values()) * width + 2 * room


@lru_cache(maxsize=4)
def _laid_out(edges: tuple[tuple[str, str], ...]) -> Network:
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import shortest_path

    names = sorted({name for edge in edges for name in edge})
    code = {name: number for number, name in enumerate(names)}
    ends = np.array([(code[start], code[end]) for start, end in edges]).T
    table = csr_matrix((np.ones(len(edges)), (ends[0], ends[1])), shape=(len(names), len(names)))
    # The number of edges on the shortest path between any two vertices, ignoring directions.
    hops = np.asarray(shortest_path(table, directed=False, unweighted=True))
    # Distances close to these, near vertices first (Gansner, Koren, North 2004, Graph Drawing by Stress Majorization).
    num = len(hops)
    # Classical scaling: the plane that preserves most of the distances.
    middle = np.eye(num) - 1 / num
    values, vectors = np.linalg.eigh(-middle @ hops**2 @ middle / 2)
    places = np.asarray(vectors[:, -2:] * np.sqrt(np.maximum(values[-2:], 0.0)))
    turns = GOLDEN_ANGLE * np.arange(num)
    places += NUDGE * np.stack([np.cos(turns), np.sin(turns)], axis=1)
    apart = np.where(hops > 0, hops, 1.0)
    weights = np.where(hops > 0, apart**-2, 0.0)
    solved = np.linalg.pinv(np.diag(weights.sum(axis=1)) - weights)
    for _ in range(ROUNDS):
        now = np.linalg.norm(places[:, None] - places, axis=2)
        pull = -weights * apart / np.where(now > 0, now, np.inf)
        np.fill_diagonal(pull, 0.0)
        np.fill_diagonal(pull, -pull.sum(axis=1))
        places = solved @ (pull @ places)
    # The longest side is horizontal; the first vertex is in the upper left quarter.
    centred = places - places.mean(axis=0)
    _, axes = np.linalg.eigh(centred.T @ centred)
    turned = centred @ axes[:, ::-1]
    turned *= np.where(turned[0] > 0, -1.0, 1.0)
    width = float(np.ptp(turned[:, 0])) or 1.0
    scaled = ((turned - turned.min(axis=0)) / width).tolist()
    return Network({name: (x, y) for name, (x, y) in zip(names, scaled, strict=True)}, edges)


# A map of a city: zones, stops, hubs and the largest flows of trips, from coordinates alone. North is up. Nothing is
# downloaded, so there is no background.


MAP_WIDTH, MAX_HEIGHT, MIN_HEIGHT, ROOM, FOOT = 460.0, 480.0, 150.0, 22.0, 30.0  # in pixels, at its own size
MAX_FLOWS = 80
THINNEST, THICKEST = 0.7, 8.0
HUB, LETTER, NAME_HIGH = 6.5, 9.6, 16.0  # half of a hub's mark; approximate width of a letter and height of a name
ZONE_STYLES = 6  # colours of zones; with more zones, colours repeat. Names are written as well


@dataclass(frozen=True, eq=False, kw_only=True)
class Flows:
    """Trips between pairs of stops on an average day, both ways together, the largest pair first. Shape: pairs."""

    ends: IntArray  # the two stops of each pair, by number. Shape: (pairs, 2)
    trips: FloatArray  # trips of each pair

    @classmethod
    def of(cls, origin: IntArray, destination: IntArray, trips: FloatArray, num_stops: int) -> Flows:
        """Add up trips both ways, without those that end where they begin."""
        apart = origin != destination
        low, high = np.minimum(origin, destination)[apart], np.maximum(origin, destination)[apart]
        pairs, place = np.unique(low * num_stops + high, return_inverse=True)
        sums = np.bincount(place.reshape(-1), weights=trips[apart], minlength=len(pairs)).astype(np.float64)
        order = np.argsort(-sums, kind="stable")
        return cls(ends=np.stack(np.divmod(pairs[order], num_stops), axis=1), trips=sums[order])

    @property
    def most(self) -> float:
        return float(self.trips[0]) if len(self.trips) else 0.0

    @property
    def shown(self) -> int:
        return min(MAX_FLOWS, len(self.trips))

    @property
    def shown_share(self) -> float:
        total = float(self.trips.sum())
        return float(self.trips[: self.shown].sum()) / total if total else 1.0


class CityMap:
    def __init__(self, city: City) -> None:
        self.city = city
        lat, lon = np.asarray(city.lat, dtype=float), np.asarray(city.lon, dtype=float)
        if np.ptp(lon) > 180:  # around the date line
            lon = np.where(lon < 0, lon + 360, lon)
        shrink, degree = math.cos(math.radians(float(np.median(lat)))), EARTH_KM * math.pi / 180
        # East and south of each stop in kilometres, from the north-west corner. Shape: (stops, 2)
        ground = np.column_stack([(lon - lon.min()) * shrink, lat.max() - lat]) * degree
        wide, high = np.ptp(ground, axis=0).tolist()
        fits = [room / size for room, size in ((MAP_WIDTH - 2 * ROOM, wide), (MAX_HEIGHT - 2 * ROOM, high)) if size > 0]
        self.pixels_a_kilometre: float | None = min(fits, default=None)  # None if all stops are in one place
        pixels = ground * (self.pixels_a_kilometre or 1.0)
        self.origin = float(lon.min()), float(lat.max()), shrink * degree, degree
        wide, high = np.ptp(pixels, axis=0).tolist()
        self.height = max(MIN_HEIGHT, high + 2 * ROOM) + FOOT  # in pixels, including the scale below
        corner = np.array([(MAP_WIDTH - wide) / 2, (self.height - FOOT - high) / 2])
        self.corner = corner
        self.places: FloatArray = np.asarray(pixels + corner)  # across and down of each stop, in pixels

    def drawn(self, flows: Flows, *, most: float, style: str, label: str) -> Svg:
        city, places, parts = self.city, self.places, list[Svg]()
        num, hubs = len(city.stops), np.zeros(len(city.stops), dtype=bool) if city.hubs is None else city.hubs
        zones = np.zeros(num, dtype=np.int64) if city.zones is None else city.zones
        named = [] if city.zones is None else [*enumerate(city.zone_names)]
        members = [(zone, name, stops) for zone, name in named if len(stops := np.flatnonzero(zones == zone))]
        for zone, name, stops in members:
            ring = convex_hull(places[stops].tolist())
            border = "L".join(f"{x:.1f} {y:.1f}" for x, y in (ring if len(ring) > 1 else ring * 2))
            colour = f"zone zone-{zone % ZONE_STYLES}"
            parts.append(tag("path", tag("title", name), class_=colour, d=f"M{border}Z"))
        # Roads and tracks, as far as the map reaches.
        west, north, wide, high = self.origin
        for line in city.lines:
            east = [(lon - west + 180) % 360 - 180 for _, lon in line]
            south = [north - lat for lat, _ in line]
            ways = self.corner + np.column_stack([np.array(east) * wide, np.array(south) * high]) * (
                self.pixels_a_kilometre or 1.0
            )
            inside = [f"{x:.1f} {y:.1f}" for x, y in ways.tolist() if 0 <= x <= MAP_WIDTH and 0 <= y <= self.height]
            if len(inside) > 1:
                parts.append(tag("path", class_="road", d="M" + "L".join(inside)))
        for number in range(flows.shown - 1, -1, -1):  # the largest on top
            (start, end), trips = flows.ends[number].tolist(), float(flows.trips[number])
            (x1, y1), (x2, y2) = places[start].tolist(), places[end].tolist()
            words = f"{city.called(start)} and {city.called(end)}: {number_text(round(trips, 1))} trips a day"
            width = max(THINNEST, THICKEST * math.sqrt(trips / most))
            place: dict[str, float | str] = {"x1": x1, "y1": y1, "x2": x2, "y2": y2, "stroke_width": width}
            parts.append(tag("line", tag("title", words), class_=f"flow {style}", **place))
        radius = 2.6 if num <= 300 else 1.6
        for stop in sorted(range(num), key=lambda stop: bool(hubs[stop])):
            x, y = places[stop].tolist()
            tip = tag("title", f"{city.called(stop)}{', a hub' if hubs[stop] else ''}")
            if hubs[stop]:
                diamond = f"M{x:.1f} {y - HUB:.1f}l{HUB} {HUB}l-{HUB} {HUB}l-{HUB} -{HUB}Z"
                parts.append(tag("path", tip, class_="hub", d=diamond))
            else:
                parts.append(tag("circle", tip, class_=f"stop zone-{zones[stop] % ZONE_STYLES}", cx=x, cy=y, r=radius))
        # The name of each zone at its centre, or as near as possible without hiding a hub or another name.
        marks, taken = places[np.asarray(hubs, dtype=bool)], list[tuple[float, float, float]]()
        steps = [(float(dx), float(dy)) for dx in range(-60, 61, 12) for dy in range(-60, 61, 6)]
        steps.sort(key=lambda step: math.hypot(*step))

        def is_clear(x: float, y: float, half: float) -> bool:
            if not (half <= x <= MAP_WIDTH - half and NAME_HIGH <= y <= self.height - FOOT):
                return False
            # A hub is around its position; a name is above its baseline.
            across, down = np.abs(marks[:, 0] - x), np.abs(marks[:, 1] - (y - NAME_HIGH / 2 + 2))
            on_hub = bool(((across < half + HUB + 6) & (down < NAME_HIGH / 2 + HUB + 3)).any())
            return not on_hub and not any(abs(x - u) < half + more and abs(y - v) < NAME_HIGH for u, v, more in taken)

        for _, name, stops in members:
            middle, half = places[stops].mean(axis=0).tolist(), LETTER * len(name) / 2
            near = [(middle[0] + dx, middle[1] + dy) for dx, dy in steps]
            x, y = next((place for place in near if is_clear(*place, half)), (middle[0], middle[1]))
            taken.append((x, y, half))
            parts.append(tag("text", name, class_="halo zone-name", x=x, y=y, text_anchor="middle"))
        # A ruler of a round length at the lower left, at most a fifth of the width, unless all stops coincide.
        if self.pixels_a_kilometre is not None:
            rough = MAP_WIDTH / 5 / self.pixels_a_kilometre
            power = 10.0 ** math.floor(math.log10(rough))
            length = max(power * factor for factor in (1, 2, 5) if power * factor <= rough)
            y, right = self.height - 8, ROOM + length * self.pixels_a_kilometre
            words = f"{number_text(length)} km" if length >= 1 else f"{number_text(1000 * length)} m"
            parts.append(tag("path", class_="ruler", d=f"M{ROOM:.1f} {y - 5:.1f}v5H{right:.1f}v-5"))
            parts.append(tag("text", words, x=right + 7, y=y + 1))
        size = f"0 0 {MAP_WIDTH:.0f} {self.height:.0f}"
        return tag("svg", *parts, class_="chart map", viewBox=size, role="img", aria_label=label)
