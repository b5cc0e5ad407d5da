# SPDX-License-Identifier: Apache-2.0
"""The pictures of ``docs/rides.md``: generate rides, publish them in clusters, measure distortion, draw.

Rides are those of ``dunnage generate rides --seed 1``.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from picture_parts import curve, frame, generated, legend, panel, picture, published, side_by_side

from dunnage.arrays import FloatArray
from dunnage.auditing.classes import ClassesView
from dunnage.auditing.rides import ClassDistortion, own_weights
from dunnage.mechanisms.clusters import UtilityClusters
from dunnage.samples import RideSetting, generate_rides
from dunnage.showing.figures import Network as Map
from dunnage.showing.figures import Scale, tag, y_axis
from dunnage.tables.dataset import Dataset
from dunnage.text import percent

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
SHARES = (0.1, 0.5, 0.8, 0.97)
PRICES = ("1", "0.7", "0.5", "0.4", "0.35", "0.3", "0.27", "0.25")
HOPS = (8, 6, 5, 4)
REFINE_SECONDS = 60  # more than the local search takes: it ends when nothing helps any more


@dataclass(frozen=True, eq=False)
class Measured:
    view: ClassesView
    found: ClassDistortion
    weights: dict[str, float]

    @property
    def costs(self) -> FloatArray:
        return self.found.class_costs(self.weights)

    def summary(self) -> str:
        by_name = ", ".join(f"{name} {self.found.attribute(name):.4f}" for name in self.view.names)
        inside, lost = self.found.by_generalisation(self.weights), self.found.suppressed
        return f"total {self.found.total(self.weights):.4f}, inside {inside:.4f}, lost {lost:.4f}; {by_name}"


@lru_cache(maxsize=2)
def rides(cards: bool) -> Dataset:
    """Generate rides; k counts their cards, or the rides themselves, as the published methods do."""
    every_card = "[contribution]\nperson"
    return generated(
        generate_rides, RideSetting(size=SIZE), SEED, lambda text: text if cards else text.replace(every_card, "#")
    )


def measured(*, cards: bool = False, **parameters: Any) -> Measured:
    view = ClassesView.of(published(UtilityClusters(k=K, **parameters), rides(cards), SEED).release)
    return Measured(view, ClassDistortion.of(view), own_weights(view))


def scenarios() -> None:
    left, top, column, row = 150.0, 92.0, 120.0, 50.0
    parts = [
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
            # Two distortions: one as a bar, one as a tick.
            scale, x = Scale(0.0, 0.65, 0.0, column - 18), left + column * at
            tick, kind = x + scale.at(theirs[name]), "standard" if name in preferred else "standard full"
            parts += [
                tag("text", f"{100 * ours[name]:.1f} % ({100 * theirs[name]:.1f})", x=x, y=y + 20),
                tag("rect", class_=kind, x=x, y=y + 28, width=max(scale.at(ours[name]), 1.0), height=12),
                tag("line", class_="stochastic", x1=tick, x2=tick, y1=y + 25, y2=y + 43, stroke_width="3"),
            ]
    picture("rides-scenarios", top + row * len(SCENARIOS) + 26, parts, SIZE=SIZE, K=K)


def _distortions(scenario: str, method: str, importance: dict[str, int] | str) -> dict[str, float]:
    one = measured(method=method, importance=importance, buckets=BUCKETS)
    print(f"{scenario} {method}: {one.summary()}")
    found = {name: one.found.attribute(name) for name in ATTRIBUTES}
    return {**found, "all": one.found.total(dict.fromkeys(ATTRIBUTES, 0.25))}


def costs() -> None:
    found = {
        "standard": measured(buckets=BUCKETS),
        "stochastic": measured(method="published-density", buckets=BUCKETS),
    }
    words = {"standard": "growth", "stochastic": "published-density"}
    bars = {}
    for kind, one in found.items():
        each, sizes = one.costs, one.view.sizes
        bars[kind] = np.bincount(np.floor(each / STEP + 1e-9).astype(int), weights=sizes, minlength=round(1 / STEP))
        shares = [float(sizes[each > border].sum() / sizes.sum()) for border in (0.1, 0.2, 0.3, 0.4)]
        print(f"{words[kind]}: {one.summary()}; rides above .1 .2 .3 .4: {shares}; most expensive {each.max():.3f}")
    left, top, width, height = 70.0, 84.0, 640.0, 230.0
    across, down = Scale(0.0, 1.0), Scale(0.0, 1.08 * max(line.max() for line in bars.values()), height, 0.0)
    shares = {value: percent(value) for value in across.ticks(6)}
    inner = [*frame(across, down, shares, {}, "cost of the class of a ride"), *y_axis(down, "")]
    for kind, line in bars.items():
        # A histogram as one shape.
        step = width / len(line)
        points = [(at * step, down.at(number)) for place, number in enumerate(line) for at in (place, place + 1)]
        path = " ".join(f"L{x:.1f} {y:.1f}" for x, y in points)
        shape = f"M0 {height:.1f} {path} L{width:.1f} {height:.1f}"
        inner += [tag("path", class_=f"{kind} area", d=shape), tag("path", class_=kind, d=shape)]
    for kind, one in found.items():
        x = across.across(one.found.by_generalisation(one.weights))
        line = {"x1": x, "x2": x, "y1": "0", "y2": height}
        inner.append(tag("line", class_=kind, **line, stroke_width="1.5", stroke_dasharray="5 4"))
    entries = [
        (kind, f"{words[kind]}, mean {percent(m.found.by_generalisation(m.weights))}", 24.0 + 210 * at)
        for at, (kind, m) in enumerate(found.items())
    ]
    parts = [
        *legend(52, entries),
        tag("text", "rides", class_="name", x=24, y=top - 8),
        panel(left, top, width, height, inner),
    ]
    picture("rides-costs", top + height + 62, parts, style="rides", SIZE=SIZE, K=K)


def stations() -> None:
    one = measured(cards=True)
    release, each, sizes = one.view.release, one.costs, one.view.sizes
    assert release.classes is not None
    order = np.argsort(each, kind="stable")
    shown = order[np.searchsorted(np.cumsum(sizes[order]) / sizes.sum(), SHARES)].tolist()
    map_ = Map.of(release.attributes["board"].domain["edges"])
    width, height = map_.size(width=330)
    parts = [
        tag("circle", class_="first", cx=30, cy=46, r=4.5),
        tag("text", "may have boarded here", x=42, y=50),
        tag("circle", class_="second", cx=222, cy=46, r=7.5),
        tag("text", "may have alighted here", x=236, y=50),
    ]
    for at, number in enumerate(shown):
        row = release.classes.slice(number, 1).to_pylist()[0]
        kind = "any type" if row["type"] == "Person" else row["type"]
        words = f"{row['size']} rides, {kind}, {_clock(row['start_lower'])} to {_clock(row['start_upper'])}"
        cost = f"{percent(SHARES[at])} of the rides cost less: {percent(float(each[number]))}"
        left, top = 24 + (width + 12) * (at % 2), 92 + (height + 44) * (at // 2)
        sets = {"boarding": row["board"], "alighting": row["alight"]}
        parts += [
            tag("text", cost, class_="title", x=left, y=top - 12),
            tag("text", words, class_="faint", x=left, y=top + 6),
            tag("g", map_.drawn(sets, width=330), transform=f"translate({left:.1f} {top + 12:.1f})"),
        ]
        print(f"class {row}, cost {each[number]:.4f}")
    picture("rides-stations", 92 + 2 * (height + 44) + 4, parts, style="rides", SIZE=SIZE, K=K)


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 3600:02}:{int(seconds) % 3600 // 60:02}"


def suppression() -> None:
    trials: dict[str, list[tuple[str, dict[str, Any]]]] = {
        "standard": [(price, {"price": Fraction(price)}) for price in PRICES],
        "stochastic": [(str(hops), {"limits": {"board": hops, "alight": hops}}) for hops in HOPS],
    }
    # Of each point its label, the share lost, and the distortion of the rest and in total, by style.
    lines: dict[str, list[tuple[str, float, tuple[float, float]]]] = {}
    for kind, cases in trials.items():
        for label, parameters in cases:
            one = measured(cards=True, refine_seconds=REFINE_SECONDS, **parameters)
            print(f"{kind} {label}: {one.summary()}")
            distortion = one.found.by_generalisation(one.weights), one.found.total(one.weights)
            lines.setdefault(kind, []).append((label, one.found.suppressed, distortion))
    top, height, panels = 116.0, 250.0, []
    across, down = Scale(-0.005, 0.148), Scale(0.12, 0.26, height, 0.0)
    for number, title in enumerate(("Of a published ride", "In total: a lost ride is lost altogether")):
        x_ticks, y_ticks = ({value: percent(value) for value in side.ticks(6)} for side in (across, down))
        inner = frame(across, down, x_ticks, y_ticks, "rides lost")
        for kind, points in lines.items():
            inner += curve(kind, across, down, [(lost, distortion[number]) for _, lost, distortion in points])
            last = (-1.0, -1.0)
            for label, lost, distortion in points:
                y = down.at(distortion[number])
                if abs(lost - last[0]) >= 0.011 or abs(y - last[1]) >= 16:  # labels of points that lie apart
                    last = (lost, y)
                    y += 20 if kind == "standard" else -10
                    inner.append(tag("text", label, x=across.across(lost), y=y, text_anchor="middle"))
        panels.append((title, inner))
    place = {"left": 64, "top": top, "width": 290, "height": height, "gap": 86, "title_at": (-40, -18)}
    entries = [("standard", "price of a lost ride", 30), ("stochastic", "limit on both stations, hops", 200)]
    parts = [*legend(52, entries), *side_by_side(panels, **place)]
    picture("rides-suppression", top + height + 66, parts, SIZE=SIZE, K=K)


DRAWN = {
    "rides-scenarios": scenarios,
    "rides-costs": costs,
    "rides-stations": stations,
    "rides-suppression": suppression,
}
