# SPDX-License-Identifier: Apache-2.0
"""Measure what k and epsilon mean, in trucks and in odds, and draw it; run through ``draw_pictures.py``."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
from picture_parts import curve, legend, notes, panel, picture

from dunnage.kernels.bins.scalar import pack_bins
from dunnage.ledger import Ledger
from dunnage.mechanisms.partition import Partition
from dunnage.noise.source import Noise
from dunnage.planning.models import Sealed, Standard
from dunnage.planning.packing import pack
from dunnage.release import Release
from dunnage.samples import generate_packages, package_setting
from dunnage.showing.figures import Scale, Svg, tag, x_axis, y_axis
from dunnage.tables.dataset import load

KS, SEEDS = (2, 3, 5, 10, 20), range(1, 4)
CASES = {"large": ("100-L-U", 500), "small": ("100-S-U", 2500)}
MODELS = {"upper bounds": Standard(), "sealed slots": Sealed()}
EPSILONS = (0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0)
SUSPICIONS = {"sealed": 0.01, "standard": 0.1, "stochastic": 0.5}

Measured = dict[tuple[str, str, int], tuple[float, float, float]]


def suspicion_after(before: float, epsilon: float) -> float:
    """Return what a suspicion becomes at most when a release of this epsilon is seen."""
    return before * math.exp(epsilon) / (1 - before + before * math.exp(epsilon))


def guess_of_two(epsilon: float) -> float:
    """Return how often somebody is right at best who must tell two neighbouring datasets apart."""
    return suspicion_after(0.5, epsilon)


def _published(setting: str, seed: int, k: int) -> tuple[Release, int]:
    """Publish generated packages as multisets, with none suppressed; also say how many trucks the truth needs."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "parcels.csv"
        law = package_setting(setting)
        generate_packages(law, file, seed=seed)
        data = load(file, file.with_suffix(".toml"))
        mechanism = Partition(k=k, alpha=law.size, statistic="multiset")
        release, _ = mechanism.release(data, ledger=Ledger(str(file.with_suffix(".sqlite"))), noise=Noise(seed=seed))
    weights = np.asarray(data.numbers("weight")).astype(np.int64)
    capacity = next(size for name, size in CASES.values() if name == setting)
    return release, len(pack_bins(weights, capacity, seconds=10).bins)


def measured() -> Measured:
    """Return trucks over those the truth needs, and truck linkage (mean and worst), by case, model and k."""
    found: dict[tuple[str, str, int], list[tuple[float, float, float]]] = {}
    for (case, (setting, capacity)), k, seed in product(CASES.items(), KS, SEEDS):
        release, needed = _published(setting, seed, k)
        for words, model in MODELS.items():
            plan = pack(release, capacity=capacity, model=model, seconds=10)
            linkage = plan.truck_linkage
            figures = (plan.objective / needed, linkage.mean, linkage.worst)
            found.setdefault((case, words, k), []).append(figures)
    return {at: tuple(np.mean(figures, axis=0).tolist()) for at, figures in found.items()}


def draw(found: Measured) -> None:
    """Draw truck linkage against k, and suspicions against epsilon."""
    left, top, width, height, gap = 60.0, 64.0, 280.0, 220.0, 90.0
    down = Scale(0.0, 1.0, height, 0.0)
    across = Scale(0.0, float(max(KS)))
    inner: list[Svg] = [*x_axis(across, height, "k"), *y_axis(down, "")]
    inner.append(tag("text", "truck linkage", class_="name", x=-40, y=-16))
    for kind, case in (("standard", "small"), ("stochastic", "large")):
        inner += curve(kind, across, down, [(float(k), found[case, "upper bounds", k][1]) for k in KS])
    inner += curve("plain", across, down, [(float(k), 1 / k) for k in KS], marks=False)
    parts: list[Svg] = [panel(left, top, width, height, inner)]
    rightwards = Scale(0.0, max(EPSILONS))
    inner = [*x_axis(rightwards, height, "epsilon"), *y_axis(down, "")]
    inner.append(tag("text", "suspicion afterwards, at most", class_="name", x=-40, y=-16))
    for kind, before in SUSPICIONS.items():
        inner += curve(kind, rightwards, down, [(at, suspicion_after(before, at)) for at in (0.0, *EPSILONS)])
    parts.append(panel(left + width + gap, top, width, height, inner))
    below = top + height + 62
    parts += legend(below, [("standard", "small packages", left), ("stochastic", "large packages", left + 130)])
    parts += legend(below, [("plain", "1 / k", left + 260)])
    start = left + width + gap
    names = [
        (kind, f"{before:.0%} before", start + 100 * number) for number, (kind, before) in enumerate(SUSPICIONS.items())
    ]
    parts += legend(below, names)
    words = "Left: 100 packages, plans on upper bounds, means of 3 draws. Right: the bound that epsilon states."
    parts += notes(below + 34, [words])
    picture("k-and-epsilon.svg", below + 50, parts, "Truck linkage against k, and suspicions against epsilon")


def odds() -> None:
    """Measure, print and draw what k and epsilon mean."""
    found = measured()
    for (case, words, k), (ratio, mean, worst) in found.items():
        print(f"{case:6} {words:13} k {k:3} trucks {ratio:.3f} linkage {mean:.3f} worst {worst:.3f}")
    for epsilon in EPSILONS:
        after = " ".join(f"{before:.0%}: {suspicion_after(before, epsilon):.1%}" for before in SUSPICIONS.values())
        print(f"epsilon {epsilon:4} {after} guess {guess_of_two(epsilon):.1%}")
    draw(found)


DRAWN: dict[str, Callable[[], None]] = {"k-and-epsilon": odds}
