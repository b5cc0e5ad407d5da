# SPDX-License-Identifier: Apache-2.0
"""The pictures of ``docs/rides.md``: generate rides, publish them in clusters, measure distortion, draw.

``draw_pictures.py`` runs them. Rides are those of ``dunnage generate rides --seed 1``; releases are made in memory with
seeded noise, so that their certificates are void.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from picture_parts import curve, heading, legend, notes, panel, picture

from dunnage.auditing.classes import ClassesView
from dunnage.auditing.rides import ClassDistortion, own_weights
from dunnage.ledger import Ledger
from dunnage.mechanisms.clusters import UtilityClusters
from dunnage.model.policy import Policy
from dunnage.noise.source import Noise
from dunnage.samples import RideSetting, generate_rides
from dunnage.showing.figures import Network as Map
from dunnage.showing.figures import Scale, Svg, tag, y_axis
from dunnage.tables.dataset import Dataset, load
from dunnage.text import percent

FloatArray = npt.NDArray[np.float64]

SIZE, SEED, K = 10_000, 1, 10
ATTRIBUTES = {"type": "passenger type", "board": "boarding", "alight": "alighting", "start": "start time"}
EQUAL = dict.fromkeys(ATTRIBUTES, 1)
SCENARIOS: dict[str, tuple[str, dict[str, int] | str, tuple[str, ...]]] = {
    "S_OD": ("stations 5, others 1", {**EQUAL, "board": 5, "alight": 5}, ("board", "alight")),
    "S_RST": ("start time 5, others 1", {**EQUAL, "start": 5}, ("start",)),
    "S_PT": ("passenger type 5, others 1", {**EQUAL, "type": 5}, ("type",)),
    "S_EQ": ("all alike", EQUAL, ()),
    "S_AUTO": ("entropy", "entropy", ()),
}
"""Of Bhati et al. 2021, Table 4: what counts, the importance, and what is preferred."""
BUCKETS = {"start": 900}
STEP = 0.02
STYLE = """
.edge { fill: none; stroke: #d9dde2; stroke-width: 2; } .vertex { fill: #59626d; }
.first { fill: #0072b2; } .second { fill: none; stroke: #d55e00; stroke-width: 2.5; }
path.area { fill-opacity: 0.15; stroke: none; }
path.area.standard { fill: #0072b2; } path.area.stochastic { fill: #d55e00; }
@media (prefers-color-scheme: dark) {
  .edge { stroke: #363c44; } .vertex { fill: #a3acb7; } .first { fill: #56b4e9; } .second { stroke: #f08a3c; }
  path.area.standard { fill: #56b4e9; } path.area.stochastic { fill: #f08a3c; }
}
"""
SHARES = (0.1, 0.5, 0.8, 0.97)
PRICES = ("1", "0.7", "0.5", "0.4", "0.35", "0.3", "0.27", "0.25")
HOPS = (8, 6, 5, 4)
REFINE_SECONDS = 60  # more than the local search takes: it ends when nothing helps any more


# What is measured


@dataclass(frozen=True, eq=False)
class Measured:
    """A release and what it cost."""

    sight: ClassesView
    found: ClassDistortion
    weights: dict[str, float]

    @property
    def costs(self) -> FloatArray:
        """What each class is charged for one of its records."""
        return self.found.class_costs(self.weights)

    def summary(self) -> str:
        """Write the figures in a line."""
        by_name = ", ".join(f"{name} {self.found.attribute(name):.4f}" for name in self.sight.names)
        inside, lost = self.found.by_generalisation(self.weights), self.found.suppressed
        return f"total {self.found.total(self.weights):.4f}, inside {inside:.4f}, lost {lost:.4f}; {by_name}"


@lru_cache(maxsize=2)
def rides(cards: bool) -> Dataset:
    """Generate rides; k counts their cards, or the rides themselves, as the published methods do."""
    with tempfile.TemporaryDirectory() as folder:
        file, policy, _ = generate_rides(RideSetting(size=SIZE), Path(folder) / "rides.csv", seed=SEED)
        if not cards:
            text = policy.read_text(encoding="utf-8")
            policy.write_text(text.replace("[contribution]\nperson", "#"), encoding="utf-8")
        return load(file, Policy.read(policy))


def published(*, cards: bool = False, **parameters: Any) -> Measured:
    """Publish the rides in memory and measure what that cost."""
    mechanism = UtilityClusters(k=K, **parameters)
    release, _ = mechanism.release(rides(cards), ledger=Ledger(":memory:"), noise=Noise(seed=SEED))
    sight = ClassesView.of(release)
    return Measured(sight, ClassDistortion.of(sight), own_weights(sight))


# Distortion by attribute and scenario


def scenarios() -> None:
    """Measure and draw what importance does to each attribute, by growth and as published."""
    left, top, column, row = 150.0, 92.0, 120.0, 50.0
    parts = [
        heading("What is called important keeps its detail, and growth keeps more than the published method"),
        tag("rect", class_="standard", x=24, y=40, width=16, height=10),
        tag("text", "growth, preferred attribute", x=46, y=50),
        tag("rect", class_="standard full", x=234, y=40, width=16, height=10),
        tag("text", "growth", x=256, y=50),
        tag("line", class_="stochastic", x1=324, x2=324, y1=38, y2=52, stroke_width="3"),
        tag("text", "published-density, in brackets", x=332, y=50),
    ]
    names = [*ATTRIBUTES.values(), "equal weights"]
    parts += [tag("text", name, class_="name", x=left + column * at, y=top - 8) for at, name in enumerate(names)]
    for line, (scenario, (words, importance, preferred)) in enumerate(SCENARIOS.items()):
        ours, theirs = (_distortions(scenario, method, importance) for method in ("growth", "published-density"))
        y = top + row * line
        parts += [
            tag("line", class_="grid", x1=24, x2=736, y1=y, y2=y),
            tag("text", scenario, x=24, y=y + 20),
            tag("text", words.replace("passenger type", "type"), class_="faint", x=24, y=y + 37, font_size="11"),
        ]
        for at, name in enumerate(ours):
            place = (left + column * at, y)
            parts += _beside(place, column - 18, ours[name], theirs[name], solid=name in preferred)
    base = top + row * len(SCENARIOS) + 26
    words = (
        f"Distortion: the share that is lost. {SIZE:,} generated rides, k = {K} rides. Equal weights: mean of the four."
    )
    parts += notes(base, [words])
    picture("rides-scenarios.svg", base + 18, parts, "Distortion by attribute and scenario")


def _distortions(scenario: str, method: str, importance: dict[str, int] | str) -> dict[str, float]:
    """Return the distortion of each attribute, and of all with equal weights."""
    measured = published(method=method, importance=importance, buckets=BUCKETS)
    print(f"{scenario} {method}: {measured.summary()}")
    found = {name: measured.found.attribute(name) for name in ATTRIBUTES}
    return {**found, "all": measured.found.total(dict.fromkeys(ATTRIBUTES, 0.25))}


def _beside(place: tuple[float, float], width: float, ours: float, theirs: float, *, solid: bool) -> list[Svg]:
    """Draw two distortions: one as a bar, one as a tick."""
    scale, (x, y) = Scale(0.0, 0.65, 0.0, width), place
    tick = x + scale.at(theirs)
    kind = "standard" if solid else "standard full"
    return [
        tag("text", f"{100 * ours:.1f} % ({100 * theirs:.1f})", x=x, y=y + 20),
        tag("rect", class_=kind, x=x, y=y + 28, width=max(scale.at(ours), 1.0), height=12),
        tag("line", class_="stochastic", x1=tick, x2=tick, y1=y + 25, y2=y + 43, stroke_width="3"),
    ]


# What classes cost


def costs() -> None:
    """Measure and draw how the cost of classes is spread over rides, by growth and as published."""
    found = {
        "standard": published(buckets=BUCKETS),
        "stochastic": published(method="published-density", buckets=BUCKETS),
    }
    words = {"standard": "growth", "stochastic": "published-density"}
    bars = {}
    for kind, measured in found.items():
        each, sizes = measured.costs, measured.sight.sizes
        bars[kind] = np.bincount(np.floor(each / STEP + 1e-9).astype(int), weights=sizes, minlength=round(1 / STEP))
        shares = [float(sizes[each > border].sum() / sizes.sum()) for border in (0.1, 0.2, 0.3, 0.4)]
        print(f"{words[kind]}: {measured.summary()}; rides above .1 .2 .3 .4: {shares}; dearest {each.max():.3f}")
    left, top, width, height = 70.0, 84.0, 640.0, 230.0
    across, down = Scale(0.0, 1.0), Scale(0.0, 1.08 * max(line.max() for line in bars.values()), height, 0.0)
    inner = [*_percent_axis(across, height, "cost of the class of a ride"), *y_axis(down, "")]
    for kind, line in bars.items():
        inner += _outline(kind, line.tolist(), down, width)
    for kind, measured in found.items():
        x = across.across(measured.found.by_generalisation(measured.weights))
        inner.append(
            tag("line", class_=kind, x1=x, x2=x, y1="0", y2=height, stroke_width="1.5", stroke_dasharray="5 4")
        )
    title = "Growth has more rides in cheap classes, and fewer in dear ones"
    entries = [
        (kind, f"{words[kind]}, mean {percent(m.found.by_generalisation(m.weights))}", 24.0 + 210 * at)
        for at, (kind, m) in enumerate(found.items())
    ]
    parts = [
        heading(title),
        *legend(52, entries),
        tag("text", "rides", class_="name", x=24, y=top - 8),
        panel(left, top, width, height, inner),
    ]
    note = (
        f"Cost: the share of a ride that its class leaves open, by automatic importance. {SIZE:,} rides, k = {K} rides."
    )
    parts += notes(top + height + 62, [note])
    picture(
        "rides-costs.svg", top + height + 80, parts, "Histogram of class costs by growth and as published", style=STYLE
    )


def _outline(kind: str, bars: Sequence[float], down: Scale, width: float) -> list[Svg]:
    """Draw a histogram as one shape."""
    step = width / len(bars)
    points = [(at * step, number) for place, number in enumerate(bars) for at in (place, place + 1)]
    path = " ".join(f"L{x:.1f} {down.at(number):.1f}" for x, number in points)
    shape = f"M0 {down.start:.1f} {path} L{width:.1f} {down.start:.1f}"
    return [tag("path", class_=f"{kind} area", d=shape), tag("path", class_=kind, d=shape)]


def _percent_axis(scale: Scale, y: float, title: str) -> list[Svg]:
    parts = [tag("line", class_="axis", x1="0", x2="100%", y1=y, y2=y)]
    for value in scale.ticks(6):
        x = scale.across(value)
        parts.append(tag("line", class_="grid", x1=x, x2=x, y1="0", y2=y + 4))
        parts.append(tag("text", percent(value), x=x, y=y + 17, text_anchor="middle"))
    return [*parts, tag("text", title, class_="name", x="100%", y=y + 36, text_anchor="end")]


# Sets of stations


def stations() -> None:
    """Draw the sets of some classes, from cheap to dear, on a schematic map of the network."""
    measured = published(cards=True)
    release, each, sizes = measured.sight.release, measured.costs, measured.sight.sizes
    assert release.classes is not None
    order = np.argsort(each, kind="stable")
    shown = order[np.searchsorted(np.cumsum(sizes[order]) / sizes.sum(), SHARES)].tolist()
    map_ = Map.of(release.attributes["board"]["domain"]["edges"])
    width, height = map_.size(width=330)
    parts = [
        heading("Most classes tell a neighbourhood at both ends; in dear ones it is wide"),
        *_map_legend(50),
    ]
    for at, number in enumerate(shown):
        told = release.classes.slice(number, 1).to_pylist()[0]
        left, top = 24 + (width + 12) * (at % 2), 92 + (height + 44) * (at // 2)
        sets = {"boarding": told["board"], "alighting": told["alight"]}
        parts += [
            tag(
                "text",
                f"{percent(SHARES[at])} of the rides cost less: {percent(float(each[number]))}",
                class_="title",
                x=left,
                y=top - 12,
            ),
            tag("text", _words(told), class_="faint", x=left, y=top + 6),
            tag("g", map_.drawn(sets, width=330), transform=f"translate({left:.1f} {top + 12:.1f})"),
        ]
        print(f"class {told}, cost {each[number]:.4f}")
    base = 92 + 2 * (height + 44) + 4
    note = f"{SIZE:,} generated rides, k = {K} cards. The map is laid out from the edges alone."
    parts += notes(base, [note])
    picture("rides-stations.svg", base + 18, parts, "Station sets of four classes on a schematic map", style=STYLE)


def _map_legend(y: float) -> list[Svg]:
    return [
        tag("circle", class_="first", cx=30, cy=y - 4, r=4.5),
        tag("text", "may have boarded here", x=42, y=y),
        tag("circle", class_="second", cx=222, cy=y - 4, r=7.5),
        tag("text", "may have alighted here", x=236, y=y),
    ]


def _words(told: dict[str, Any]) -> str:
    kind = "any type" if told["type"] == "Person" else told["type"]
    return f"{told['size']} rides, {kind}, {_clock(told['start_lower'])} to {_clock(told['start_upper'])}"


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 3600:02}:{int(seconds) % 3600 // 60:02}"


# Suppression


Line = tuple[str, list[tuple[str, float, tuple[float, float]]]]
"""Style, and of each point its label, the share lost, and the distortion of the rest and in total."""


def suppression() -> None:
    """Measure and draw what losing rides buys: by a price, and by limits."""
    trials: dict[str, list[tuple[str, dict[str, Any]]]] = {
        "standard": [(price, {"price": Fraction(price)}) for price in PRICES],
        "stochastic": [(str(hops), {"limits": {"board": hops, "alight": hops}}) for hops in HOPS],
    }
    lines: list[Line] = []
    for kind, cases in trials.items():
        points = []
        for label, parameters in cases:
            measured = published(cards=True, refine_seconds=REFINE_SECONDS, **parameters)
            print(f"{kind} {label}: {measured.summary()}")
            weights = measured.weights
            inside, total = measured.found.by_generalisation(weights), measured.found.total(weights)
            points.append((label, measured.found.suppressed, (inside, total)))
        lines.append((kind, points))
    draw_suppression(lines)


def draw_suppression(lines: Sequence[Line]) -> None:
    """Draw distortion against lost rides: of those that are published, and in total."""
    top, width, height = 116.0, 290.0, 250.0
    parts = [
        heading("A price on lost rides buys detail for the others, a limit hardly; in total neither pays"),
        *legend(
            52,
            [
                ("standard", "price of a lost ride", 30),
                ("stochastic", "limit on both stations, hops", 200),
            ],
        ),
    ]
    across, down = Scale(-0.005, 0.148), Scale(0.12, 0.26, height, 0.0)
    for number, title in enumerate(("Of a published ride", "In total: a lost ride is lost altogether")):
        inner = [*_percent_axis(across, height, "rides lost"), *_percent_lines(down)]
        for kind, points in lines:
            places = [(lost, down.at(distortion[number])) for _, lost, distortion in points]
            inner += curve(kind, across, down, [(lost, distortion[number]) for _, lost, distortion in points])
            inner += _point_labels(kind, [point[0] for point in points], across, places)
        left = 64 + number * (width + 86)
        parts += [tag("text", title, class_="title", x=left - 40, y=top - 18), panel(left, top, width, height, inner)]
    note = f"Distortion. {SIZE:,} rides, k = {K} cards, automatic importance, local search to its end."
    parts += notes(top + height + 66, [note])
    picture("rides-suppression.svg", top + height + 84, parts, "Distortion against lost rides, by price and by limits")


def _percent_lines(down: Scale) -> list[Svg]:
    parts = []
    for value in down.ticks(6):
        y = down.at(value)
        parts.append(tag("line", class_="grid", x1="0", x2="100%", y1=y, y2=y))
        parts.append(tag("text", percent(value), x="-6", y=y + 4, text_anchor="end"))
    return parts


def _point_labels(kind: str, labels: Sequence[str], across: Scale, places: Sequence[tuple[float, float]]) -> list[Svg]:
    """Write the labels of points that lie apart from the one before."""
    parts, last = [], (-1.0, -1.0)
    for label, (x, y) in zip(labels, places, strict=True):
        if abs(x - last[0]) < 0.011 and abs(y - last[1]) < 16:
            continue
        last = (x, y)
        down = 20 if kind == "standard" else -10
        parts.append(tag("text", label, x=across.across(x), y=y + down, text_anchor="middle"))
    return parts


DRAWN: dict[str, Callable[[], None]] = {
    "rides-scenarios": scenarios,
    "rides-costs": costs,
    "rides-stations": stations,
    "rides-suppression": suppression,
}
