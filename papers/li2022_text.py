# SPDX-License-Identifier: Apache-2.0
"""Li, Erkin, Lagendijk 2022: every figure and finding that the text states, beside ours.

The text states few numbers, most of them "around" or as a range, and figures have no tables. "Around" agrees if our
mean is within 0.1, a range if the mean of every setting it is said of is within it or at most 0.05 beyond.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from dunnage.noise.sampling import sampling_delta, sampling_epsilon
from papers.li2022_runs import (
    AVERAGE,
    BETA,
    CHOICE,
    CLUSTERS,
    DOUBLING,
    HARD,
    K_OPTIMIZE,
    LAPLACE,
    LATTICE,
    MOST,
    TABLE_1,
    FloatArray,
    Results,
    stated,
)
from papers.report import Quoted, Statements, verdict

says = Statements("li2022")

AROUND = 0.1
BEYOND = 0.05
RECOMMENDED = "c = 0.7"
_UNIFORM = ("I", "II", "III", "IV")
_LARGE = ("I", "II", "V", "VI")
_SMALL = ("III", "IV")
_HIERARCHY = f"the hierarchy is unpublished and decides it; ours doubles from a width of {DOUBLING}"
_DRAWS = "draws, and what is done with impossible weights, are unpublished"


def quoted(results: Results, beside: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[Quoted]:
    """Compare everything that the text states; ``beside`` has the tables of ``li2022_beside`` by name."""
    parts: list[Callable[[Results], Iterator[Quoted]]] = [
        _arithmetic,
        _lattice_ratios,
        _lattice_suppression,
        lambda found: _hard_suppression(found, beside["hierarchies"]),
        _clusters,
        _laplace,
        _k_optimize,
        _compared,
        _times,
        _exactly_printed,
        lambda _: _identification(beside["identification"]),
        lambda _: _lattice_identification(beside["lattice identification"]),
    ]
    return [line for part in parts for line in part(results)]


# Arithmetic


def _arithmetic(results: Results) -> Iterator[Quoted]:
    epsilon = float(sampling_epsilon(BETA) + 2 * CHOICE * Fraction(4, 40))
    yield says("epsilon-for-k-4", ours=(epsilon,), agrees=round(epsilon, 1) == 1.8)
    holds = stated(4, 40)
    yield says(
        "the-score-has-sensitivity",
        paper=(holds["epsilon stated"], holds["delta by eq. 14"]),
        ours=(holds["epsilon that holds"], holds["delta that holds"]),
    )
    yield from _deltas()
    deltas = [float(sampling_delta(k, BETA)) for k in (2, 6)]
    yield says("delta-of-the-experiments", ours=(deltas[0], deltas[1], float(sampling_delta(35, BETA))))


def _deltas() -> Iterator[Quoted]:
    delta = float(sampling_delta(40, BETA))
    yield says("delta-for-d-1000", ours=(delta, float(sampling_epsilon(BETA))), agrees=0.00067 < delta <= 0.00068)
    theirs, ours = (float(sampling_delta(40, BETA, "1.3", as_published=form)) for form in (True, False))
    yield says("the-same-at-epsilon", paper=(theirs,), ours=(ours,))


# Algorithm 1


def _by_setting(results: Results, column: str, figure: int, method: str, settings: Sequence[str], **at: float) -> Any:
    return {s: results.mean(column, figure, method, s, **at) for s in settings}


def _listed(found: Mapping[str, float], form: str = ".2f") -> str:
    return ", ".join(f"{setting} {value:{form}}" for setting, value in found.items())


def _outside(found: Mapping[str, float], low: float, high: float) -> list[str]:
    """Return the settings that are beyond a range by more than is allowed."""
    return [s for s, value in found.items() if not low - BEYOND <= value <= high + BEYOND]


def _range_verdict(found: Mapping[str, float], low: float, high: float, why: str) -> str:
    outside = _outside(found, low, high)
    return verdict(not outside, f"not in {', '.join(outside)}; {why}")


def _lattice_ratios(results: Results) -> Iterator[Quoted]:
    most = max(results.effort.ks)
    found = _by_setting(results, "ratio", LATTICE, MOST, [s.numeral for s in TABLE_1[:-1]], x=most)
    yield says(
        "objective-ratio-on-upper",
        what=(most,),
        ours=(most, _listed(found)),
        verdict=(_range_verdict(found, 1.0, 1.2, _HIERARCHY),),
    )
    fits = results.values("plan_feasible", LATTICE, MOST)
    yield says("plans-on-upper-bounds", ours=(int(fits.sum()), len(fits)), agrees=bool(fits.all()))
    broken = {s: 1 - f for s, f in _by_setting(results, "bins_feasible", LATTICE, AVERAGE, _all_settings()).items()}
    yield says("share-of-bins-that", ours=(_listed(broken),), verdict=(_range_verdict(broken, 0.1, 0.2, _HIERARCHY),))
    rising = {s: _slope(results, s) for s in _all_settings()}
    up = [s for s, slope in rising.items() if slope > 0]
    yield says(
        "the-ratio-on-upper",
        ours=(_listed(rising, ".3f"),),
        agrees=len(up) > len(rising) / 2,
        differs=(len(up), len(rising), _HIERARCHY),
    )
    hard = results.values("ratio", LATTICE, MOST, settings=[HARD])
    yield says(
        "objective-ratio-on-upper-bounds",
        ours=(f"mean {hard.mean():.2f}, largest {hard.max():.2f}" if len(hard) else "nothing was kept",),
        agrees=bool(len(hard)) and abs(hard.mean() - 1) <= AROUND,
        differs=(_HIERARCHY,),
    )


def _all_settings() -> list[str]:
    return [setting.numeral for setting in TABLE_1]


def _slope(results: Results, setting: str) -> float:
    xs = results.xs(LATTICE, setting)
    means = [results.mean("ratio", LATTICE, MOST, setting, x=x) for x in xs]
    told = [(x, mean) for x, mean in zip(xs, means, strict=True) if not math.isnan(mean)]
    return float(np.polyfit(*zip(*told, strict=True), 1)[0]) if len(told) > 1 else math.nan


def _lattice_suppression(results: Results) -> Iterator[Quoted]:
    for settings, low, high, paper in (
        (_UNIFORM, 0.10, 0.25, "around 10 to 25 %"),
        (("V",), 0.30, 0.30, "around 30 %"),
        (("VI",), 0.20, 0.30, "20 to 30 %"),
    ):
        found = {s: 1 - kept for s, kept in _by_setting(results, "kept", LATTICE, MOST, settings).items()}
        yield says(
            "share-suppressed-setting",
            what=("s" * (len(settings) > 1), ", ".join(settings)),
            paper=(paper,),
            ours=(_listed(found),),
            verdict=(_range_verdict(found, low, high, _HIERARCHY),),
        )


def _hard_suppression(results: Results, hierarchies: Sequence[Mapping[str, Any]]) -> Iterator[Quoted]:
    most = max(results.effort.hard_ks)
    left = 1 - results.mean("kept", LATTICE, MOST, HARD, x=most)
    others = [f"{row['first width']:g}: {1 - row['kept']:.2f}" for row in hierarchies if row["setting"] == HARD]
    yield says(
        "share-suppressed-setting-vii",
        what=(most,),
        ours=(left, ", ".join(others)),
        agrees=abs(left - 0.1) <= BEYOND,
        differs=(_HIERARCHY,),
    )


# Algorithm 2 and the noise without clusters


def _around(paper: float, values: FloatArray, why: str) -> str:
    off = abs(float(values.mean()) - paper)
    return f"agrees (within {AROUND:g})" if off <= AROUND else f"differs: {off:.2f} off; {why}"


def _over(results: Results, column: str, figure: int, method: str) -> FloatArray:
    """Return the means of the settings over all epsilons."""
    return np.array([results.mean(column, figure, method, s.numeral) for s in TABLE_1])


def _clusters(results: Results) -> Iterator[Quoted]:
    ratios, fits = (_over(results, column, CLUSTERS, RECOMMENDED) for column in ("ratio", "bins_feasible"))
    yield says(
        "algorithm-2-c-0", ours=(ratios.mean(), ratios.min(), ratios.max()), verdict=(_around(1.2, ratios, _DRAWS),)
    )
    yield says("algorithm-2-c-0-7", ours=(fits.mean(), fits.min(), fits.max()), verdict=(_around(0.9, fits, _DRAWS),))
    whole = {c: float(results.values("plan_feasible", CLUSTERS, c).mean()) for c in results.methods(CLUSTERS)}
    yield says(
        "plans-of-algorithm-2",
        ours=(", ".join((f"{name}: {share:.2f}" for name, share in whole.items())),),
        agrees=all((share >= float(name.removeprefix("c = ")) for name, share in whole.items())),
    )
    yield from _converging(results)
    every = results.values("ratio", CLUSTERS)
    yield says(
        "objective-ratio-of-algorithm",
        ours=(every.min(), every.max(), np.mean((every >= 1) & (every <= 1.2))),
        agrees=bool(((every >= 1) & (every <= 1.2)).all()),
    )


def _converging(results: Results) -> Iterator[Quoted]:
    least, most = min(results.effort.epsilons), max(results.effort.epsilons)
    away, fits = (
        {e: float(np.mean(np.abs(results.values(column, CLUSTERS, RECOMMENDED, x=e) - 1))) for e in (least, most)}
        for column in ("ratio", "bins_feasible")
    )
    yield says(
        "as-epsilon-grows-the",
        ours=(away[least], away[most], fits[least], fits[most], least, most),
        agrees=away[most] < away[least] and fits[most] <= fits[least],
        differs=(_DRAWS,),
    )


def _laplace(results: Results) -> Iterator[Quoted]:
    ratios, clustered = (_over(results, "ratio", figure, RECOMMENDED) for figure in (LAPLACE, CLUSTERS))
    yield says(
        "without-clusters-c-0",
        ours=(ratios.mean(), ratios.min(), ratios.max(), clustered.mean()),
        verdict=(_around(1.4, ratios, _DRAWS),),
    )
    sizes = {name: [results.mean("ratio", LAPLACE, RECOMMENDED, s) for s in pair] for name, pair in _SIZES.items()}
    yield says(
        "without-clusters-c-0-7",
        ours=("; ".join((f"{name} {a:.2f}, {b:.2f}" for name, (a, b) in sizes.items())),),
        agrees=all((b > a for a, b in sizes.values())),
        differs=(_DRAWS,),
    )
    fits = {name: float(_over(results, "bins_feasible", figure, RECOMMENDED).mean()) for name, figure in _TWO.items()}
    yield says(
        "feasibility-is-closer-to",
        ours=(", ".join((f"{name} {value:.3f}" for name, value in fits.items())),),
        agrees=fits["clusters"] > fits["without"],
        differs=(_DRAWS,),
    )


_SIZES = {"large packages": ("I", "II"), "small packages": ("III", "IV")}
_TWO = {"clusters": CLUSTERS, "without": LAPLACE}

# K-Optimize


def _k_optimize(results: Results) -> Iterator[Quoted]:
    large = _by_setting(results, "ratio", K_OPTIMIZE, MOST, _LARGE)
    yield says(
        "k-optimize-upper-bounds",
        ours=(_listed(large),),
        verdict=(_range_verdict(large, 1.1, 1.3, "its intervals are at least 4 wide, ours as narrow as the classes"),),
    )
    small = _by_setting(results, "ratio", K_OPTIMIZE, MOST, _SMALL)
    yield says(
        "k-optimize-upper-bounds-objective",
        ours=(_listed(small),),
        verdict=(_range_verdict(small, 1.0, 1.0, "now and then one bin more, of three or six"),),
    )
    fits = _by_setting(results, "bins_feasible", K_OPTIMIZE, AVERAGE, _all_settings())
    most = {s: value for s, value in fits.items() if s not in ("III", "V")}
    within = [s for s in most if s not in _outside(most, 0.8, 0.9)]
    yield says(
        "k-optimize-averages-feasibility", ours=(_listed(most),), agrees=len(within) > len(most) / 2, differs=(_DRAWS,)
    )
    yield says(
        "k-optimize-averages-feasibility-settings",
        ours=(fits["III"], fits["V"]),
        agrees=fits["III"] >= 1 - AROUND and fits["V"] < 0.8,
        differs=(_DRAWS,),
    )
    least, largest = min(results.effort.ks), max(results.effort.ks)
    ends = {s: [results.mean("ratio", K_OPTIMIZE, MOST, s, x=k) for k in (least, largest)] for s in _all_settings()}
    flat = [s for s, (a, b) in ends.items() if b <= a]
    yield says(
        "k-optimize-upper-bounds-the",
        what=(least, largest),
        ours=("; ".join((f"{s} {a:.2f}, {b:.2f}" for s, (a, b) in ends.items())),),
        agrees=not flat,
        differs=(", ".join(flat),),
    )


def _compared(results: Results) -> Iterator[Quoted]:
    settings = [s for s in _all_settings() if s != HARD]
    ours = {c: [results.mean(c, CLUSTERS, "c = 0.5", s, x=1.0) for s in settings] for c in ("ratio", "bins_feasible")}
    theirs = {c: [results.mean(c, K_OPTIMIZE, AVERAGE, s, x=4) for s in settings] for c in ("ratio", "bins_feasible")}
    upper = float(np.mean([results.mean("ratio", K_OPTIMIZE, MOST, s, x=4) for s in settings]))
    mine, other = ({c: float(np.mean(v)) for c, v in found.items()} for found in (ours, theirs))
    yield says(
        "algorithm-2-at-epsilon",
        ours=(mine["ratio"], mine["bins_feasible"], other["ratio"], other["bins_feasible"], upper),
        agrees=mine["ratio"] <= other["ratio"] + AROUND and mine["bins_feasible"] > other["bins_feasible"],
    )
    costs = [
        float(np.mean([abs(results.mean(c, CLUSTERS, RECOMMENDED, s, x=1.0) - 1) for s in _all_settings()]))
        for c in mine
    ]
    yield says(
        "what-algorithm-2-costs",
        ours=(costs[0], costs[1]),
        agrees=all(0.1 - BEYOND <= cost <= 0.2 + BEYOND for cost in costs),
    )
    better = [
        k
        for k in results.effort.ks
        if results.mean("ratio", LATTICE, MOST, "I", x=k) <= results.mean("ratio", K_OPTIMIZE, MOST, "II", x=k)
    ]
    wanted = [k for k in results.effort.ks if k <= 4]
    yield says(
        "algorithm-1-setting-i",
        ours=(f"at k = {', '.join(map(str, better))}" if better else "at no k",),
        agrees=set(wanted) <= set(better),
        differs=(_HIERARCHY,),
    )


# Times


def _times(results: Results) -> Iterator[Quoted]:
    for figure, what, limit, paper, unit in (
        (LATTICE, "algorithm 1", 0.1, "less than 0.1 s", 1.0),
        (CLUSTERS, "algorithm 2", 0.003, "within 3 ms", 1000.0),
    ):
        # The first method is the first to draw noise of its scale, for which exact tables are made.
        seconds = results.values("anonymise_seconds", figure, results.methods(figure)[0])
        name = "s" if unit == 1.0 else "ms"
        yield says(
            "time-to-anonymise",
            where=("VI-C.3" if figure == LATTICE else "VI-D.2",),
            what=(what,),
            paper=(paper,),
            ours=(unit * np.median(seconds), name, unit * seconds.max(), name),
            agrees=float(np.median(seconds)) <= limit,
        )
    seconds = results.values("anonymise_seconds", K_OPTIMIZE)
    yield says("time-of-k-optimize", ours=(np.median(seconds), seconds.max()))


# Privacy


def _exactly_printed(results: Results) -> Iterator[Quoted]:
    printed = {s: results.values("exact", CLUSTERS, settings=[s]) for s in ("I", "II")}
    yield says("clusters-of-5-30", ours=(printed["I"].mean(), printed["II"].mean()))


def _identification(rows: Sequence[Mapping[str, Any]]) -> Iterator[Quoted]:
    for row in rows:
        corrected = (
            ""
            if math.isnan(row["corrected states"])
            else (f"; with its denominators {row['corrected states']:.3f} and {row['corrected hits']:.3f}")
        )
        yield says(
            "probability-of-naming-a",
            what=(row["epsilon"], row["form"]),
            ours=(row["eq. 30 states"], row["eq. 30 hits"], corrected),
        )


def _lattice_identification(rows: Sequence[Mapping[str, Any]]) -> Iterator[Quoted]:
    for row in rows:
        yield says(
            "probability-of-naming-a-package",
            what=(row["k"], row["beta"]),
            paper=(row["beta/k"],),
            ours=(row["before the release"], row["given that it is in it"], row["worst"]),
        )
