# SPDX-License-Identifier: Apache-2.0
"""Draw the pictures of the documents: measure, write SVG files, print figures.

Those of rides, trips, fleets, carriers and peers are in files of their own, ``pictures_*.py``. By hand: ``python
docs/draw_pictures.py [NAME ...]``, with the names of ``DRAWN`` (by default all; some minutes). All draws are seeded; a
search that ends on the clock may differ by a little from one machine to the next.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable, Iterable
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pictures_carriers
import pictures_fleets
import pictures_peers
import pictures_rides
import pictures_trips
import pyarrow as pa
from picture_parts import curve, generated, legend, mark, mean, panel, picture, published, side_by_side

from dunnage.arrays import FloatArray
from dunnage.auditing.plans import plan_utility
from dunnage.kernels.bins.scalar import best_fit_decreasing, pack_bins
from dunnage.mechanisms.noisy import NoisyClusters, NoisyValues
from dunnage.mechanisms.partition import Partition
from dunnage.mechanisms.sampled_lattice import SampledLattice
from dunnage.model.policy import Policy
from dunnage.noise.source import Noise
from dunnage.planning.boxes import Box
from dunnage.planning.linkage import exchangeable, truck_linkage
from dunnage.planning.models import Sealed, Standard, Stochastic
from dunnage.planning.packing import pack
from dunnage.publication import Key
from dunnage.release import Release
from dunnage.samples import PackageSetting, draw_weights, generate_packages, package_setting
from dunnage.settle import apply
from dunnage.showing.figures import Scale, Svg, lower_axis, span, tag, x_axis, y_axis
from dunnage.tables.dataset import Dataset
from dunnage.text import number_text

LARGE, SMALL = ("25-L-U", 500), ("25-S-U", 2500)
MODELS: dict[str, Standard | Stochastic | Sealed] = {
    "standard": Standard(),
    "stochastic": Stochastic(),
    "sealed": Sealed(),
}
MEAN = Standard(statistic="mean")
FRONTIER_K, SPREADS, FRONTIER_SEEDS = 10, (1, 3, 5, 10), range(1, 7)
KS, K_SEEDS = (2, 3, 4, 5, 6, 8, 10), range(1, 7)
EXAMPLE_K, EXAMPLE_SEED = 5, 1
TRUCKS_SHOWN = 4
PROMISE_SETTINGS = {"Large: about two to a truck": "100-L-U", "Small: about ten to a truck": "100-S-U"}
EPSILONS, PROMISE_SEEDS, LATTICE_SEEDS = (1, 2, 4, 8), range(1, 4), range(1, 31)
CONFIDENCE, RISK = Fraction(7, 10), Fraction(1, 20)
QUARTERS = (Fraction(1, 4), Fraction(1, 2), Fraction(3, 4))
LATTICE_DELTA = Fraction(1, 200)

# What is measured


class Published(NamedTuple):
    data: Dataset
    release: Release
    key: Key


def multisets(setting: str, seed: int, k: int) -> Published:
    """Generate packages of a setting and publish their multisets; suppressing is priced so high that none is."""
    law = package_setting(setting)
    data = generated(generate_packages, law, seed)
    return Published(data, *published(Partition(k=k, alpha=law.size, statistic="multiset"), data, seed))


def best_fit(release: Release, capacity: int) -> tuple[float, float]:
    """Return trucks and mean truck linkage of plain best fit on upper bounds, which never looks at classes."""
    upper = release.uncertain("weight").upper.astype(np.int64)
    bins = best_fit_decreasing(upper, list(range(len(upper))), capacity)
    bin_of_row = np.empty(len(upper), dtype=np.int64)
    for number, rows in enumerate(bins):
        bin_of_row[rows] = number
    return float(len(bins)), float(truck_linkage(exchangeable(release), bin_of_row).mean)


Points = dict[tuple[str, int], tuple[float, float]]


def frontier(setting: str, capacity: int) -> Points:
    """Return trucks and truck linkage by model and spread (1: none), each the mean over the draws."""
    found: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for seed in FRONTIER_SEEDS:
        release = multisets(setting, seed, FRONTIER_K).release
        found.setdefault(("plain", 1), []).append(best_fit(release, capacity))
        for name, model in MODELS.items():
            for spread in SPREADS:
                plan = pack(release, capacity=capacity, model=model, spread=spread)
                linkage = float(plan.truck_linkage.mean)
                found.setdefault((name, spread), []).append((plan.objective, linkage))
    return {case: tuple(np.mean(plans, axis=0).tolist()) for case, plans in found.items()}


def by_k(setting: str, capacity: int) -> tuple[dict[str, list[float]], list[float]]:
    """Return trucks by model, and how likely the plan on means fits, for each k; means over the draws."""
    trucks: dict[str, list[float]] = {name: [] for name in (*MODELS, "mean")}
    likely: list[float] = []
    for k in KS:
        cases = [multisets(setting, seed, k) for seed in K_SEEDS]
        for name, model in {**MODELS, "mean": MEAN}.items():
            plans = [pack(case.release, capacity=capacity, model=model) for case in cases]
            trucks[name].append(mean(plan.objective for plan in plans))
        # The last plans are those on means.
        done = [(apply(plan, *case), case.data) for plan, case in zip(plans, cases, strict=True)]
        worths = [plan_utility(one, data, seconds=0.1, noise=Noise(seed=1)) for one, data in done]
        likely.append(mean(worth.feasibility.value for worth in worths))
    return trucks, likely


class Promise(NamedTuple):
    """A way to publish weights at a given epsilon: its mark, its words, the model it keeps, and its mechanism."""

    mark: str
    words: str
    model: str
    mechanism: Callable[[Fraction, PackageSetting], NoisyValues | NoisyClusters | SampledLattice]


def _quarters(epsilon: Fraction, law: PackageSetting) -> NoisyClusters:
    borders = [round(law.low + (law.high - law.low) * float(share)) for share in QUARTERS]
    return NoisyClusters(epsilon=epsilon, borders=borders, confidence=CONFIDENCE)


def _lattice(epsilon: Fraction, _: PackageSetting) -> SampledLattice:
    """Spend on the sample what samples up to 70 %, the rest on the choice; k is the smallest that has the delta."""
    choice = epsilon - min(epsilon * Fraction(3, 5), Fraction(6, 5))
    return SampledLattice(epsilon=epsilon, delta=LATTICE_DELTA, epsilon_choice=choice)


def _values(law: str) -> Callable[[Fraction, PackageSetting], NoisyValues]:
    return lambda epsilon, _: NoisyValues(epsilon=epsilon, confidence=CONFIDENCE, law=law)


def _quantiles(epsilon: Fraction, _: PackageSetting) -> NoisyClusters:
    return NoisyClusters(epsilon=epsilon, quantiles=QUARTERS, confidence=CONFIDENCE)


PROMISES = (
    Promise("standard", "public borders", "within-cluster", _quarters),
    Promise("stochastic", "drawn borders", "within-published-borders", _quantiles),
    Promise("sealed", "Laplace", "dp, replace-one", _values("laplace")),
    Promise("mean", "piecewise", "dp, replace-one", _values("piecewise")),
    Promise("plain", "sampled lattice", "sampled-dp, add-remove", _lattice),
)
Judged = dict[
    str, float
]  # trucks by those that the same packages need, how well bins and plan fit, and what is planned


def noised(law: PackageSetting, promise: Promise, epsilon: int, seed: int) -> tuple[Release, FloatArray]:
    weights = draw_weights(law, np.random.default_rng(seed))
    mechanism = promise.mechanism(Fraction(epsilon), law)
    weight = {"role": "quasi-identifier", "kind": "numeric", "domain": [law.low, law.high], "resolution": 1}
    document = {"dataset": "packages", "protects": "package", "mechanism": {"name": mechanism.name}}
    attributes = {"weight": {**weight, "doubling": (law.high - law.low) / 4}}
    data = Dataset.from_table(pa.table({"weight": weights}), Policy.from_dict({**document, "attributes": attributes}))
    release, key = published(mechanism, data, 1000 * epsilon + seed)
    record = np.empty(len(release), dtype=np.int64)
    record[key.table.column("row").to_numpy()] = key.table.column("source_row").to_numpy() - 1
    return release, weights[record]


def judged(release: Release, truth: FloatArray, law: PackageSetting, model: Standard | Stochastic) -> Judged:
    if not len(release):
        return {"planned": 0.0}
    plan = pack(release, capacity=law.capacity, model=model, seconds=0.5)
    least = len(pack_bins(truth.astype(np.int64), int(law.capacity), seconds=1.0).bins)
    fits = np.bincount(plan.assignment, weights=truth) <= law.capacity
    own = {"ratio": plan.num_bins / least, "bins_fit": float(fits.mean()), "plan_fits": float(fits.all())}
    return {**own, "planned": len(release) / law.size}


Bought = dict[tuple[str, int], tuple[list[Judged], list[Judged]]]


def bought(setting: str) -> Bought:
    """Return plans that fit with 95 %, and plans on upper ends, by promise and epsilon.

    A sampled lattice has no noise on weights: upper ends always hold, and stand for both.
    """
    law, likely = package_setting(setting), Stochastic(risk=RISK, prior="uniform")
    found: Bought = {}
    for promise, epsilon in product(PROMISES, EPSILONS):
        sampled = promise.mark == "plain"
        releases = [noised(law, promise, epsilon, seed) for seed in (LATTICE_SEEDS if sampled else PROMISE_SEEDS)]
        upper = [judged(release, truth, law, Standard()) for release, truth in releases]
        sure = upper if sampled else [judged(release, truth, law, likely) for release, truth in releases]
        found[promise.mark, epsilon] = (sure, upper)
    return found


def _over(plans: Iterable[Judged], measure: str) -> float:
    """Return the mean of a measure over the draws that left something to plan."""
    values = [plan[measure] for plan in plans if measure in plan]
    return mean(values) if values else math.nan


def frontiers() -> None:
    panels = []
    for title, (setting, capacity) in (("Large: about two to a truck", LARGE), ("Small: about ten to a truck", SMALL)):
        points = frontier(setting, capacity)
        panels.append((title, points))
        for (model, spread), (num, linkage) in points.items():
            print(f"{setting} {model:10} spread {spread:2} trucks {num:6.2f} linkage {linkage:.3f}")
    top, height, width = 84.0, 250.0, 300.0
    down, drawn = Scale(0.0, 0.7, height, 0.0), []
    entries = [("standard", "upper bounds", 24), ("stochastic", "stochastic, 95 %", 150)]
    entries += [("sealed", "sealed slots", 300), ("plain", "best fit that never looks at classes", 420)]
    for title, points in panels:
        across = Scale(min(x for x, _ in points.values()) - 0.8, max(x for x, _ in points.values()) + 0.4)
        inner = [*x_axis(across, height, "trucks"), *y_axis(down, "")]
        for model in MODELS:
            inner += curve(model, across, down, [points[model, spread] for spread in SPREADS], marks=False)
        for (model, _), (trucks, linkage) in points.items():
            inner.append(mark(model, across.across(trucks), down.at(linkage)))
        drawn.append((title, [*inner, *_spread_labels(points, across, down, width)]))
    place = {"left": 60, "top": top, "width": width, "height": height, "gap": 80, "title_at": (0, -22)}
    parts = [*legend(24, entries), *side_by_side(drawn, **place)]
    picture("frontier", top + height + 62, parts, k=FRONTIER_K, draws=len(FRONTIER_SEEDS))


def _spread_labels(points: Points, across: Scale, down: Scale, width: float) -> list[Svg]:
    """Write the spread beside each mark, once where marks lie together."""
    places: list[tuple[float, float, set[int]]] = []
    for (model, spread), (trucks, linkage) in points.items():
        x, y = across.at(trucks) / 100 * width, down.at(linkage)
        near = [one for one in places if abs(x - one[0]) < 16 and abs(y - one[1]) < 12]
        if near:
            near[0][2].add(spread)
        elif model != "plain":
            places.append((x, y, {spread}))
    labels: list[Svg] = []
    written: list[tuple[float, float]] = []
    for x, y, spreads in sorted(places, key=lambda place: -place[1]):
        crowded = any(abs(x - other) < 22 and abs(y - 9 - level) < 16 for other, level in written)
        level = y + 20 if crowded else y - 9
        written.append((x, level))
        words = f"≤{max(spreads)}" if 1 in spreads else ", ".join(map(str, sorted(spreads)))
        words = "none" if spreads == {1} else words
        labels.append(tag("text", words, x=f"{x / width * 100:.2f}%", y=level, text_anchor="middle"))
    return labels


def trucks_by_k() -> None:
    trucks, likely = by_k(*LARGE)
    for number, k in enumerate(KS):
        print(
            f"k {k:2}",
            *(f"{model} {line[number]:.2f}" for model, line in trucks.items()),
            f"means fit {likely[number]:.3f}",
        )
    left, top, width, height = 60.0, 60.0, 520.0, 240.0
    across = Scale(*span(min(KS), max(KS)))
    every = [value for line in trucks.values() for value in line]
    down = Scale(*span(min(every), max(every)), height, 0.0)
    inner = [*x_axis(across, height, "k"), *y_axis(down, ""), tag("text", "trucks", class_="name", x=-40, y=-16)]
    names = {"standard": "upper bounds", "stochastic": "stochastic, 95 %", "mean": "means", "sealed": "sealed slots"}
    for model, line in trucks.items():
        inner += curve(model, across, down, zip(map(float, KS), line, strict=True))
    parts: list[Svg] = [panel(left, top, width, height, inner)]
    lowest = 0.0  # labels move down until none overlaps another
    for end, model in sorted((top + down.at(line[-1]) + 4, model) for model, line in trucks.items()):
        lowest = max(end, lowest + 18)
        parts.append(tag("text", names[model], x=left + width + 14, y=lowest))
    bars = Scale(0.0, 1.0, 0.0, 46.0)
    base = top + height + 128
    strip: list[Svg] = []
    for k, share in zip(KS, likely, strict=True):
        tall = bars.at(share)
        x = across.at(k) / 100 * width
        strip.append(tag("rect", class_="mean full", x=x - 11, y=base - tall, width=22, height=tall))
        strip.append(tag("text", f"{share:.0%}", x=x, y=base + 16, text_anchor="middle"))
    parts.append(tag("svg", *strip, x=left, y="0", overflow="visible"))
    title = "how likely the plan on means fits"
    parts.append(tag("text", title, class_="name", x=left - 40, y=base - bars.stop - 14))
    picture("trucks-by-k", base + 46, parts, draws=len(K_SEEDS))


LETTERS = "ABCDEFGHIJ"
CLASS_STYLES = ("standard", "stochastic", "sealed", "mean", "plain")


def draw_slots(case: Published) -> None:
    rows = pack(case.release, capacity=LARGE[1])
    sealed = pack(case.release, capacity=LARGE[1], model=Sealed())
    class_of = np.asarray(case.release.uncertain("weight").class_id)
    assert sealed.slots is not None
    table = sealed.slots.table(sealed.num_bins, int(class_of.max()) + 1)
    members = [np.flatnonzero(rows.assignment == bin_).tolist() for bin_ in range(rows.num_bins)]
    named = [[(int(class_of[row]), f"row {row} ({LETTERS[class_of[row]]})") for row in own] for own in members]
    slots = [
        [(kind, f"one of {LETTERS[kind]}") for kind in np.repeat(np.arange(len(line)), line).tolist()]
        for line in table.tolist()
    ]
    parts = [
        *_fleet(24, "Assignment: which row rides where", named, "full", rows.num_bins),
        *_fleet(404, "Sealed slots: how many of each class", slots, "slot dashed", sealed.num_bins),
    ]
    assert case.release.classes is not None
    ends = case.release.classes.select(["weight_lower", "weight_upper"]).to_pydict().values()
    bounds = enumerate(zip(*ends, strict=True))
    words = ", ".join(f"{LETTERS[i]} {number_text(low)} to {number_text(high)} kg" for i, (low, high) in bounds)
    trucks = {"rows": rows.num_bins, "sealed": sealed.num_bins, "fills": sealed.truck_linkage.fills}
    picture("slots", 96.0 + TRUCKS_SHOWN * 50, parts, classes=words, **trucks)


def _cartons(_: object, file: Path, *, seed: int) -> None:
    """Write the cartons of the example, and their policy."""
    draw, kind = random.Random(seed), 'role = "quasi-identifier", kind = "numeric"'
    formats = [(120, 80, 60), (80, 60, 50), (60, 40, 40), (60, 40, 20), (40, 30, 30)]
    lines = ["carton,stop,length,width,height,weight"]
    for carton in range(240):
        sides = draw.choice(formats)
        lines.append(",".join(map(str, (carton, draw.randint(1, 3), *sides, draw.randint(3, 30)))))
    file.write_text("\n".join(lines))
    attributes = ['carton = {role = "identifier"}', 'stop = {role = "public"}']
    attributes += [f'{name} = {{{kind}, domain = [0, 120], unit = "cm"}}' for name in ("length", "width", "height")]
    attributes.append(f'weight = {{{kind}, domain = [0, 100], unit = "kg"}}')
    head = ['dataset = "cartons"', 'protects = "carton"', 'mechanism = {name = "partition", k = 4}', "[attributes]"]
    file.with_suffix(".toml").write_text("\n".join(head + attributes))


def draw_boxes() -> None:
    data = generated(_cartons, None, EXAMPLE_SEED)
    release, _ = published(Partition(k=4), data, EXAMPLE_SEED)
    box = Box(sides=("length", "width", "height"), unload="stop")
    plan = pack(release, capacity=["600x240x240cm", "3000kg"], box=box, seconds=10)
    stops, parts, top, scale = release.data.column("stop").to_pylist(), list[Svg](), 60.0, 700 / 600
    assert plan.cells is not None
    members = np.flatnonzero(plan.assignment == 0)
    for words, axis, other in (("from above", 1, 2), ("from the side", 2, 1)):
        parts.append(tag("text", words, class_="faint", x=24, y=top - 8))
        for row in members[np.argsort(plan.cells[members, other] * (3 - 2 * axis), kind="stable")].tolist():
            (x, y), (wide, high) = plan.cells[row, [0, axis]] * scale, plan.cells[row, [3, 3 + axis]] * scale
            y = top + y if axis == 1 else top + 240 * scale - y - high
            style = ("standard", "stochastic", "sealed")[int(stops[row]) - 1]
            place = {"x": 24 + float(x), "y": float(y), "width": float(wide), "height": float(high)}
            parts.append(tag("rect", class_="page", **place))
            parts.append(tag("rect", class_=f"{style} full", **place))
        parts.append(tag("rect", class_="hull", x=24, y=top, width=700, height=240 * scale))
        top += 240 * scale + 40
    picture("boxes", top, parts, trucks=plan.num_bins, cartons=len(members))


def _fleet(left: float, title: str, trucks: list[list[tuple[int, str]]], kind: str, num: int) -> list[Svg]:
    parts = [tag("text", title, class_="title", x=left, y=26)]
    kinds = [tuple(kind for kind, _ in content) for content in trucks]
    first = sorted(range(len(trucks)), key=lambda number: kinds.index(kinds[number]) != number)  # unlike ones first
    shown = [trucks[number] for number in first[:TRUCKS_SHOWN]]
    for number, content in enumerate(shown):
        top = 42.0 + 50 * number
        parts.append(tag("text", f"truck {number}", class_="faint", x=left, y=top + 23))
        parts.append(tag("rect", class_="hull", x=left + 58, y=top, width=250, height=36, rx=4))
        for place, (group, words) in enumerate(content):
            x = left + 64 + 122 * place
            style = f"{CLASS_STYLES[group]} {kind}"
            parts.append(tag("rect", class_=style, x=x, y=top + 5, width=116, height=26, rx=3))
            parts.append(tag("text", words, x=x + 58, y=top + 22, text_anchor="middle"))
    below = 48.0 + 50 * TRUCKS_SHOWN
    return [*parts, tag("text", f"and {num - len(shown)} more", class_="faint", x=left + 58, y=below)]


def promises() -> None:
    panels = []
    for title, setting in PROMISE_SETTINGS.items():
        found = bought(setting)
        panels.append((title, found))
        for promise, epsilon in product(PROMISES, EPSILONS):
            sure, upper = found[promise.mark, epsilon]
            print(
                f"{setting} {promise.words:16} epsilon {epsilon} planned {_over(sure, 'planned'):.2f}",
                f"at 95 %: ratio {_over(sure, 'ratio'):.2f} plans fit {_over(sure, 'plan_fits'):.2f};",
                f"upper ends: ratio {_over(upper, 'ratio'):.2f} bins fit {_over(upper, 'bins_fit'):.3f}",
                f"plans fit {_over(upper, 'plan_fits'):.2f}",
            )
    top, height, width = 124.0, 250.0, 300.0
    down, across = Scale(0.95, 1.95, height, 0.0), Scale(-0.2, len(EPSILONS) - 0.8)
    parts, drawn = [], []
    for number, promise in enumerate(PROMISES):
        entry = (promise.mark, f"{promise.words}: {promise.model}", 24.0 + 365 * (number // 3))
        parts += legend(24.0 + 22 * (number % 3), [entry])
    for title, found in panels:
        # Each epsilon is double the one before.
        labels = [(across.across(place), str(epsilon)) for place, epsilon in enumerate(EPSILONS)]
        inner = [*lower_axis(height, "epsilon", labels, grid=0), *y_axis(down, "")]
        for promise in PROMISES:
            ratios = [_over(found[promise.mark, epsilon][0], "ratio") for epsilon in EPSILONS]
            places = [(float(i), ratio) for i, ratio in enumerate(ratios) if not math.isnan(ratio)]
            inner += curve(promise.mark, across, down, places)
        drawn.append((title, inner))
    place = {"left": 60, "top": top, "width": width, "height": height, "gap": 80, "title_at": (0, -22)}
    parts += side_by_side(drawn, **place)
    picture("promises", top + height + 62, parts, draws=len(PROMISE_SEEDS), lattice=len(LATTICE_SEEDS))


ODDS_KS, ODDS_SEEDS = (2, 3, 5, 10, 20), range(1, 4)
ODDS_CASES = {"large": ("100-L-U", 500), "small": ("100-S-U", 2500)}
ODDS_MODELS = {"upper bounds": Standard(), "sealed slots": Sealed()}
ODDS_EPSILONS = (0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0)
SUSPICIONS = {"sealed": 0.01, "standard": 0.1, "stochastic": 0.5}


def suspicion_after(before: float, epsilon: float) -> float:
    """Return what a suspicion becomes at most when a release of this epsilon is seen."""
    return before * math.exp(epsilon) / (1 - before + before * math.exp(epsilon))


def odds() -> None:
    found: dict[tuple[str, str, int], Any] = {}  # trucks over those that the truth needs; linkage, mean and worst
    for (case, (setting, capacity)), k in product(ODDS_CASES.items(), ODDS_KS):
        for seed in ODDS_SEEDS:
            data, release, _ = multisets(setting, seed, k)
            needed = len(pack_bins(np.asarray(data.numbers("weight")).astype(np.int64), capacity, seconds=10).bins)
            for words, model in ODDS_MODELS.items():
                plan = pack(release, capacity=capacity, model=model, seconds=10)
                figures = (plan.objective / needed, plan.truck_linkage.mean, plan.truck_linkage.worst)
                found.setdefault((case, words, k), []).append(figures)
    found = {at: np.mean(figures, axis=0).tolist() for at, figures in found.items()}
    for (case, words, k), (ratio, linkage, worst) in found.items():
        print(f"{case:6} {words:13} k {k:3} trucks {ratio:.3f} linkage {linkage:.3f} worst {worst:.3f}")
    for epsilon in ODDS_EPSILONS:
        after = " ".join(f"{before:.0%}: {suspicion_after(before, epsilon):.1%}" for before in SUSPICIONS.values())
        # Whoever must tell two neighbouring datasets apart is right so often at best.
        print(f"epsilon {epsilon:4} {after} guess {suspicion_after(0.5, epsilon):.1%}")
    left, top, width, height, gap = 60.0, 64.0, 280.0, 220.0, 90.0
    down, across, rightwards = Scale(0.0, 1.0, height, 0.0), Scale(0.0, max(ODDS_KS)), Scale(0.0, max(ODDS_EPSILONS))
    linkages = [*x_axis(across, height, "k"), *y_axis(down, ""), *_named("truck linkage")]
    for kind, case in (("standard", "small"), ("stochastic", "large")):
        linkages += curve(kind, across, down, [(float(k), found[case, "upper bounds", k][1]) for k in ODDS_KS])
    linkages += curve("plain", across, down, [(float(k), 1 / k) for k in ODDS_KS], marks=False)
    suspicions = [*x_axis(rightwards, height, "epsilon"), *y_axis(down, ""), *_named("suspicion afterwards, at most")]
    for kind, before in SUSPICIONS.items():
        points = [(at, suspicion_after(before, at)) for at in (0.0, *ODDS_EPSILONS)]
        suspicions += curve(kind, rightwards, down, points)
    start, below = left + width + gap, top + height + 62
    entries = [("standard", "small packages", left), ("stochastic", "large packages", left + 130)]
    entries.append(("plain", "1 / k", left + 260))
    entries += [(kind, f"{b:.0%} before", start + 100 * at) for at, (kind, b) in enumerate(SUSPICIONS.items())]
    parts = [panel(x, top, width, height, inner) for x, inner in ((left, linkages), (start, suspicions))]
    picture("k-and-epsilon", below + 34, [*parts, *legend(below, entries)])


def _named(words: str) -> list[Svg]:
    return [tag("text", words, class_="name", x=-40, y=-16)]


DRAWN: dict[str, Callable[[], None]] = {
    "slots": lambda: draw_slots(multisets(LARGE[0], EXAMPLE_SEED, EXAMPLE_K)),
    "boxes": draw_boxes,
    "frontier": frontiers,
    "trucks-by-k": trucks_by_k,
    "promises": promises,
    **pictures_rides.DRAWN,
    **pictures_trips.DRAWN,
    **pictures_fleets.DRAWN,
    **pictures_carriers.DRAWN,
    **pictures_peers.DRAWN,
    "k-and-epsilon": odds,
}


if __name__ == "__main__":
    if unknown := set(sys.argv[1:]) - set(DRAWN):
        raise SystemExit(f"no picture {', '.join(sorted(unknown))}. There are {', '.join(DRAWN)}.")
    for name in sys.argv[1:] or DRAWN:
        DRAWN[name]()
