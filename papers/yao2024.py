# SPDX-License-Identifier: Apache-2.0
"""Yao et al. 2024: local differential privacy for carriers. Figures 6 to 9, and what sections 3 to 5 state.

Measured in ``yao2024_runs``. Every method is shown at the budget that it declares and, beside it, with reports that all
give away the same. Formulas and losses are checked exactly. Of the figures only what the text says of them can be
compared: an order or a direction must hold for the means of every case named, and where it fails by less than the
intervals show, the verdict says so.

References
----------
Yao, Tan, Yi, Fu, Zhang, Tan, Xie, She, Yang, Wu, Ye, Yu 2024, Sensitive data privacy protection of carrier in
intelligent logistics system. Symmetry 16(1), 68.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import Any

from dunnage.devices.numbers import Duchi, PublishedPiecewise, odds_of
from dunnage.devices.places import PublishedUnary
from dunnage.devices.subjects import Quantity
from dunnage.devices.task import Tier
from papers import report
from papers import yao2024_runs as runs
from papers.measuring import in_parallel
from papers.report import Curve, Quoted, Row, Statements, Svg, short_intervals, verdict
from papers.yao2024_runs import (
    CENSUS,
    CENSUS_DIMENSIONS,
    DECLARED,
    DIMENSIONS,
    DUCHI,
    EPSILON,
    EQUAL,
    FLEET,
    GAUSS,
    GRID_EPSILONS,
    GRID_LEVELS,
    GRIDS,
    HARMONY,
    L_LDP,
    L_LDP_WEIGHED,
    LT_LDP,
    NUM_EPOCHS,
    NUM_VEHICLES,
    NUMBER_METHODS,
    NUMBERS,
    OURS,
    OURS_ALIKE,
    OURS_CLEAR,
    PAPERS_NUMBERS,
    PAPERS_SHARES,
    PATHS,
    PLACES,
    PM,
    QJLP,
    QLP,
    RAISED,
    SHARE_METHODS,
    STEPS,
    TERMS,
    UNIFORM,
    Results,
)

NEAR = 1.5  # errors within this factor are called close
LARGE = 2.0  # an error by which another is multiplied to be called significantly larger
CHECKED = (Fraction(1, 2), Fraction(1), Fraction(2), Fraction(5))  # budgets at which formulas are shown
_BUDGET = "e-L_LDP spends d times what it declares, the others once"
says = Statements("yao2024", budget=_BUDGET)


def quoted(results: Results) -> list[Quoted]:
    """Compare everything that the text states."""
    parts = (_section_3, _section_4, _setting_and_figure_6, _figure_7, _figures_8_9)
    return [line for part in parts for line in part(results)]


def listed(values: Iterable[float]) -> str:
    """Write numbers with three digits."""
    return ", ".join(f"{value:.3g}" for value in values)


def _section_3(results: Results) -> Iterator[Quoted]:
    yield says("mean-absolute-error-of")
    yield says("variance-of-laplace-noise")
    yield says("personalised-local-differential-privacy")
    two = runs.loss_of_numbers(2, Fraction(1, 2))
    yield says("sequential-composition-budgets-add", ours=two, agrees=two == 1)
    cases = [(Fraction(share, 7), Fraction(truth, 9)) for share in range(8) for truth in (5, 6, 7, 8)]
    right = all(warner_estimate(share, truth) == share for share, truth in cases)
    yield says("warner-s-answers-and", ours=len(cases), agrees=right)
    yield says("likelihood-of-warner-s")
    yield says("p-0-75-is", ours=(math.log(0.75 / 0.25), math.log(3)))
    yield says("geo-indistinguishability-k-x")


def warner_estimate(share: Fraction, truth: Fraction) -> Fraction:
    """Return the mean of eq. 12 for a true share if answers are true with a probability."""
    yes = share * truth + (1 - share) * (1 - truth)
    return (truth - 1) / (2 * truth - 1) + yes / (2 * truth - 1)


def _section_4(results: Results) -> Iterator[Quoted]:
    speed = Quantity(name="speed", low=Fraction(0), high=Fraction(130), unit="km/h")
    values = (0, 26, 65, 130)
    scaled = [speed.normalised(value) for value in values]
    back = [speed.in_units(float(number)) for number in scaled]
    yield says("speed-of-0-26", ours=(", ".join(map(str, scaled)), listed(back)), agrees=back == list(values))
    shown = [runs.printed_thresholds(float(epsilon)) for epsilon in CHECKED]
    at = f"at epsilon {listed(map(float, CHECKED))}"
    yield says("threshold-of-l-pm", ours=(listed(one["4.2.1"] for one in shown), at))
    laws = [PublishedPiecewise(epsilon=epsilon, steps=1024) for epsilon in CHECKED]
    odds = [law.window * odds_of(law.epsilon) for law in laws]  # of the published window in its exact discrete form
    inside = [float(inner / (inner + law.num_outside)) for inner, law in zip(odds, laws, strict=True)]
    right = [one["4.2.2"] for one in shown]
    yield says(
        "threshold-of-l-pm-second",
        ours=(listed(right), listed(inside), at),
        agrees=all((math.isclose(a, b, rel_tol=0.01) for a, b in zip(right, inside, strict=True))),
    )
    slopes = [runs.printed_slope(float(epsilon)) for epsilon in CHECKED]
    discrete = [runs.literal_slope(epsilon) for epsilon in CHECKED]
    yield says("threshold-of-l-pm-third", ours=(listed(slopes), at, listed(discrete)))
    yield says(
        "density-of-l-pm",
        ours=(
            listed(runs.density_integral(float(e)) for e in CHECKED),
            at,
            listed(runs.density_integral(float(e), corrected=True) for e in CHECKED),
        ),
    )
    at_end, at_zero = (
        {epsilon: Duchi(epsilon=epsilon, steps=1).variance_at(number) for epsilon in CHECKED} for number in (1.0, 0.0)
    )
    below = [epsilon for epsilon in CHECKED if at_end[epsilon] < 1]
    yield says(
        "duchi-s-values-are",
        ours=(listed(at_zero.values()), listed(at_end.values()), listed(map(float, CHECKED))),
        agrees=not below,
    )
    piecewise = [runs.piecewise_variance(float(epsilon), 1.0) for epsilon in CHECKED]
    discrete = [PublishedPiecewise(epsilon=epsilon, steps=1024).variance_at(1.0) for epsilon in CHECKED]
    duchi = [max(at_end[epsilon], at_zero[epsilon]) for epsilon in CHECKED]
    yield says(
        "pm-is-very-accurate",
        ours=(listed(piecewise), listed(discrete), listed(duchi), listed(map(float, CHECKED))),
        agrees=piecewise[-1] < duchi[-1] / 2,
    )
    half = Fraction(1, 2)
    p, q = PublishedUnary(num_inputs=16, epsilon=half).chances(half)
    printed = [(z * (2 - 1) + 2 + 1) / (2 * Fraction(2) + 2) for z in (1, -1)]  # at e^eps = 2
    yield says("l-rr-chance-of", ours=(printed[0], printed[1]), agrees=[p, q] == printed)
    on = runs.grid(3, 2)
    west, south, east, north = on.box
    place = west + (east - west) * Fraction(5, 8), south + (north - south) * Fraction(3, 8)
    area, inner, bit = runs.paper_code(*place, on)
    cell = on.cell(*place)
    ours = f"{on.area(cell):02b}", f"{on.inner(cell):02b}", on.inner(cell) + 1
    yield says(
        "area-code-h-inner",
        paper=(area, inner, bit),
        ours=(ours[0], ours[1], ours[2]),
        agrees=ours == (area, inner, bit),
    )
    corner = on.cell(float(east), float(north))
    yield says("a-place-on-the", ours=(corner, on.num_cells - 1), agrees=corner == on.num_cells - 1)
    yield says("bits-of-m-and")
    epsilon = Fraction(1, 2)
    of_numbers = {d: runs.loss_of_numbers(d, epsilon) for d in (1, 2, 3)}
    yield says("l-pm-on-one", ours=of_numbers[1], verdict=verdict(of_numbers[1] == epsilon, "another loss"))
    yield says("e-l-ldp-a", ours=", ".join(str(loss) for loss in of_numbers.values()))
    bits = runs.loss_of_bits(9, epsilon)
    yield says("l-rr-largest-ratio", ours=bits)
    loss = runs.loss_of_place(epsilon)
    yield says(
        "e-lt-ldp-area", ours="no bound: a report of one area cannot come from another" if loss is None else str(loss)
    )
    yield says("with-min-epsilon-i")
    yield says("range-of-the-personal")


def _setting_and_figure_6(results: Results) -> Iterator[Quoted]:
    yield says("census-records-of-brazil")
    yield says("mean-square-error")
    yield says("budgets-of-figure-7", ours=listed(results.effort.epsilons))
    longitudes, _ = runs.fleet()
    yield says(
        "taxis-in-chengdu-vehicles", paper=(NUM_VEHICLES, NUM_EPOCHS), ours=(longitudes.shape[1], longitudes.shape[0])
    )
    yield says("mape-where-a-true", ours=runs.FLOOR)
    yield says("what-qlp-and-qjlp")
    named = {GAUSS: "GAUSS", UNIFORM: "UNIFORM"}
    mse = {(data, method): _by_size(results, method, data) for data in named for method in PAPERS_NUMBERS}
    at = f"d = {listed(DIMENSIONS)}"
    falls = [f"{method} ({named[data]})" for (data, method), own in mse.items() if own[-1] <= own[0]]
    yield says(
        "mse-of-all-four",
        ours=("; ".join(f"{method} {listed(mse[GAUSS, method])}" for method in PAPERS_NUMBERS), at),
        agrees=not falls,
        differs=", ".join(falls),
    )
    growth = {key: own[-1] / own[0] for key, own in mse.items()}
    most = {max(PAPERS_NUMBERS, key=lambda method: growth[data, method]) for data in named}
    yield says(
        "that-of-harmony-grows",
        ours="; ".join(
            f"{named[data]}: " + ", ".join(f"{m} {growth[data, m]:.1f}" for m in PAPERS_NUMBERS) for data in named
        ),
        agrees=most == {HARMONY},
    )
    near = {data: [mse[data, method][0] for method in (PM, DUCHI, L_LDP)] for data in named}
    far = [f"{named[data]}{_apart(results, data)}" for data, own in near.items() if max(own) > LARGE * min(own)]
    yield says(
        "at-d-2-pm",
        ours="; ".join((f"{named[data]} {listed(own)}" for data, own in near.items())),
        agrees=not far,
        differs=(LARGE, ", ".join(far)),
    )
    lost = [
        f"{named[data]} d = {size}"
        for data in named
        for place, size in enumerate(DIMENSIONS[1:], start=1)
        if mse[data, L_LDP][place] >= min(mse[data, m][place] for m in (HARMONY, DUCHI, PM))
    ]
    equal = {data: _by_size(results, L_LDP, data, EQUAL) for data in named}
    yield says(
        "above-d-2-the",
        ours=(
            "; ".join(f"{named[data]} {listed(mse[data, L_LDP])}" for data in named),
            "; ".join(f"{named[data]} {listed(equal[data])}" for data in named),
        ),
        verdict=verdict(not lost, f"not at {', '.join(lost)}"),
    )
    others = {data: [_by_size(results, m, data, EQUAL) for m in (HARMONY, DUCHI, PM)] for data in named}
    worst = [
        f"{named[data]} d = {size}"
        for data in named
        for place, size in enumerate(DIMENSIONS)
        if equal[data][place] <= max(own[place] for own in others[data])
    ]
    yield says(
        "e-l-ldp-is",
        ours=("; ".join(f"{named[data]} {listed(_by_best(equal[data], others[data]))}" for data in named), at),
        verdict=f" (not below all others at {', '.join(worst)})" if worst else ": it is the worst of all",
    )


def _mse(
    results: Results, method: str, size: int, data: str, *, epsilon: float = EPSILON, terms: str = DECLARED
) -> float:
    return results.mean("mse", method, epsilon, size, kind=NUMBERS, data=data, terms=terms)


def _by_size(results: Results, method: str, data: str, terms: str = DECLARED) -> list[float]:
    return [_mse(results, method, size, data, terms=terms) for size in DIMENSIONS]


def _apart(results: Results, data: str) -> str:
    """Say whether that Duchi and e-L_LDP are far apart at d = 2 may be chance."""
    high, low = (
        results.interval("mse", method, EPSILON, 2, kind=NUMBERS, data=data, terms=DECLARED)
        for method in (DUCHI, L_LDP)
    )
    return " (may be chance)" if high[0] - high[1] <= LARGE * (low[0] + low[1]) else ""


def _by_best(values: Sequence[float], others: Sequence[Sequence[float]]) -> list[float]:
    return [value / min(own) for value, own in zip(values, zip(*others, strict=True), strict=True)]


def _figure_7(results: Results) -> Iterator[Quoted]:
    epsilons = results.effort.epsilons
    mse = {
        method: {e: _mse(results, method, CENSUS_DIMENSIONS, CENSUS, epsilon=e) for e in epsilons}
        for method in PAPERS_NUMBERS
    }
    yield says(
        "mse-of-all-four-falls",
        ours=("; ".join((f"{m} {listed(own.values())}" for m, own in mse.items())), listed(epsilons)),
        agrees=all(own[epsilons[0]] > own[epsilons[-1]] for own in mse.values()),
    )
    ratios = {e: mse[PM][e] / mse[L_LDP][e] for e in epsilons}
    yield says(
        "e-l-ldp-against",
        ours=(listed(ratios.values()), listed(epsilons)),
        agrees=ratios[0.5] < NEAR and ratios[1.5] > LARGE,
        differs=(ratios[0.5], ratios[1.5]),
    )
    not_least = [e for e in epsilons if mse[L_LDP][e] >= min(mse[m][e] for m in (HARMONY, DUCHI, PM))]
    yield says(
        "the-mse-of-e",
        ours=f"smallest at all but {listed(not_least)}" if not_least else "smallest at all",
        verdict=verdict(not not_least, f"not at {listed(not_least)}"),
    )
    low = [e for e in epsilons if e <= 2]
    harmony = [mse[HARMONY][e] / mse[L_LDP][e] for e in low]
    higher = {e: ratio for e, ratio in zip(low, harmony, strict=True) if ratio < LARGE}
    yield says(
        "harmony-s-mse-is", ours=(listed(harmony), listed(low)), agrees=not higher, differs=(LARGE, listed(higher))
    )
    apart = {e: max(own[e] for own in mse.values()) - min(own[e] for own in mse.values()) for e in epsilons}
    yield says(
        "above-epsilon-3-the",
        ours=(
            listed(apart.values()),
            listed(max(own[e] for own in mse.values()) / min(own[e] for own in mse.values()) for e in epsilons),
        ),
        verdict=verdict(max(apart[e] for e in epsilons if e >= 3) < min(apart[e] for e in epsilons if e < 3), "not so"),
    )


def _shares(
    results: Results, column: str, method: str, steps: int, kind: str = PATHS, terms: str = DECLARED
) -> list[float]:
    return [
        results.mean(column, method, epsilon, steps, kind=kind, data=FLEET, terms=terms)
        for epsilon in results.effort.epsilons
    ]


def _all_fall(curves: Iterable[Sequence[float]]) -> bool:
    return all(curve[-1] < curve[0] for curve in curves)


def _figures_8_9(results: Results) -> Iterator[Quoted]:
    epsilons = results.effort.epsilons
    at = f"epsilon {listed(epsilons)}"
    for steps, panels in ((3, "8a, 8b"), (2, "8c, 8d")):
        mape = {m: _shares(results, "mape", m, steps) for m in PAPERS_SHARES}
        rmse = {m: _shares(results, "rmse", m, steps) for m in PAPERS_SHARES}
        yield says(
            "mape-and-rmse-of",
            where=panels,
            what=steps,
            ours=("; ".join((f"{m} {listed(own)}" for m, own in mape.items())), at),
            agrees=_all_fall(mape.values()) and _all_fall(rmse.values()),
        )
        lost = {m: [e for e, a, b in zip(epsilons, mape[LT_LDP], mape[m], strict=True) if a >= b] for m in (QLP, QJLP)}
        text = "; ".join(f"{m} is lower at epsilon {listed(own)}" for m, own in lost.items() if own)
        yield says(
            "mape-of-e-lt",
            where=panels.split(",")[0],
            what=steps,
            ours=text or "every",
            agrees=not text,
            differs=(steps, steps),
        )
    rmse = {m: _shares(results, "rmse", m, 2) for m in PAPERS_SHARES}
    ratio = rmse[LT_LDP][0] / rmse[QJLP][0]
    yield says("rmse-of-e-lt", ours=(rmse[LT_LDP][0], rmse[QJLP][0], ratio), agrees=1 / NEAR <= ratio <= NEAR)
    off = [a / b for a, b in zip(rmse[QLP], rmse[LT_LDP], strict=True)]
    yield says(
        "rmse-of-e-lt-ldp",
        ours=(listed(off), at),
        verdict=verdict(min(off) >= LARGE, f"less than {LARGE:g} times somewhere"),
    )
    long = {m: _shares(results, "rmse", m, 3) for m in (LT_LDP, QJLP)}
    falls = {m: own[0] / own[-1] for m, own in long.items()}
    yield says(
        "the-budget-has-a",
        ours="; ".join((f"{m} falls by {fall:.3g} times" for m, fall in falls.items())),
        agrees=max(falls.values()) < LARGE,
    )
    for steps, name in ((3, "9a"), (2, "9b")):
        mape = {m: _shares(results, "mape", m, steps, PLACES) for m in PAPERS_SHARES}
        broken = [
            (less, more, epsilon)
            for less, more in ((QLP, LT_LDP), (LT_LDP, QJLP))
            for epsilon, low, high in zip(results.effort.epsilons, mape[less], mape[more], strict=True)
            if low >= high
        ]
        yield says(
            "places-qlp-has-the",
            where=name,
            what=steps,
            ours="; ".join((f"{m} {listed(own)}" for m, own in mape.items())),
            verdict=verdict(not broken, _broken(results, broken, steps)),
        )
    every = [_shares(results, "mape", m, steps, PLACES) for m in PAPERS_SHARES for steps in STEPS]
    yield says("mape-of-places-falls", agrees=_all_fall(every))
    gains = {data: number_gains(results, data, EQUAL) for data in (GAUSS, UNIFORM)}
    yield says(
        "higher-usability-of-e",
        ours=("; ".join((f"{data} {listed(own)}" for data, own in gains.items())), listed(DIMENSIONS)),
    )
    places = share_gains(results, LT_LDP, OURS_CLEAR, STEPS[0], PLACES)
    paths = {steps: share_gains(results, LT_LDP, OURS, steps, PATHS) for steps in STEPS}
    yield says(
        "higher-usability-of-e-lt",
        ours=(
            listed(results.effort.epsilons),
            listed(places),
            "; ".join((f"paths of {steps}, our areas hidden {listed(own)}" for steps, own in paths.items())),
        ),
    )
    yield says("privacy-of-both-algorithms")


def _broken(results: Results, orders: Sequence[tuple[str, str, float]], steps: int) -> str:
    """Name the cases in which an order of places is broken, and whether that may be chance."""
    sentences = []
    for less, more, epsilon in orders:
        low, high = (
            results.interval("mape", method, epsilon, steps, kind=PLACES, data=FLEET, terms=DECLARED)
            for method in (less, more)
        )
        chance = " (may be chance)" if low[0] - low[1] <= high[0] + high[1] else ""
        sentences.append(f"{less} is not below {more} at epsilon {epsilon:g}{chance}")
    return "; ".join(sentences)


def number_gains(results: Results, data: str, terms: str) -> list[float]:
    """Return by what the MSE of e-L_LDP is a multiple of ours, at equal true loss, by the number of attributes."""
    published, ours = (_by_size(results, method, data, terms) for method in (L_LDP, OURS))
    return [a / b for a, b in zip(published, ours, strict=True)]


def share_gains(results: Results, method: str, ours: str, size: int, kind: str, column: str = "rmse") -> list[float]:
    """Return by what a published error is a multiple of ours, at equal true loss within areas, by epsilon."""
    published, own = (_shares(results, column, m, size, kind, EQUAL) for m in (method, ours))
    return [a / b for a, b in zip(published, own, strict=True)]


# What the paper does not look at


def findings(results: Results) -> list[str]:
    """Say what else came out; every number is measured or exact."""
    losses = [runs.printed_duchi_loss(float(epsilon), 4) for epsilon in CHECKED]
    duchi = says.sentence("duchi", listed(losses), listed(map(float, CHECKED)))
    return [*_found(results), duchi]


def _found(results: Results) -> Iterator[str]:
    for data in (GAUSS, UNIFORM):
        lowered, raised = (number_gains(results, data, terms) for terms in (EQUAL, RAISED))
        weighed = [
            a / b
            for a, b in zip(
                _by_size(results, L_LDP_WEIGHED, data, EQUAL), _by_size(results, OURS, data, EQUAL), strict=True
            )
        ]
        honest = [a / b for a, b in zip(_by_size(results, OURS, data), _by_size(results, L_LDP, data), strict=True)]
        yield says.sentence("numbers", data, *map(listed, (DIMENSIONS, lowered, raised, weighed, honest)))
    best = [_by_size(results, method, GAUSS) for method in (HARMONY, DUCHI, PM)]
    one = _by_best(_by_size(results, OURS_ALIKE, GAUSS), best)
    yield says.sentence("one-budget", listed(one))
    epsilons = listed(results.effort.epsilons)
    for steps in STEPS:
        for method in (LT_LDP, QJLP):
            clear = share_gains(results, method, OURS_CLEAR, steps, PATHS)
            hidden = share_gains(results, method, OURS, steps, PATHS)
            yield says.sentence("paths", steps, method, listed(clear), listed(hidden), epsilons)
    clear = share_gains(results, LT_LDP, OURS_CLEAR, STEPS[0], PLACES)
    hidden = share_gains(results, LT_LDP, OURS, STEPS[0], PLACES)
    yield says.sentence("places", listed(clear), listed(hidden), epsilons)

    def rmse(column: str, method: str, levels: int) -> list[float]:
        return [results.mean(column, method, e, levels, kind=GRIDS, data=FLEET) for e in GRID_EPSILONS]

    finest = max(runs.GRID_LEVELS)
    price = [a / b for a, b in zip(rmse("rmse", OURS, finest), rmse("rmse", OURS_CLEAR, finest), strict=True)]
    won = [a / b for a, b in zip(rmse("rmse", OURS, finest), rmse("rmse_projected", OURS, finest), strict=True)]
    yield says.sentence("grids", 4 ** (finest - 1), listed(GRID_EPSILONS), listed(price), listed(won))


PAGE = says.page()

STYLES = {
    HARMONY: (7, False),
    DUCHI: (4, False),
    PM: (3, False),
    L_LDP: (1, False),
    L_LDP_WEIGHED: (1, True),
    OURS: (0, False),
    OURS_ALIKE: (0, True),
    QLP: (4, True),
    QJLP: (3, False),
    LT_LDP: (1, False),
    OURS_CLEAR: (2, False),
}
"""Number of the colour, and whether dashed."""
TERM_NAMES = {
    DECLARED: "as declared",
    EQUAL: "equal true loss",
    RAISED: "equal true loss, as much as e-L_LDP gives away",
}
_MEASURES = {"mape": "MAPE", "rmse": "RMSE", "rmse_projected": "RMSE after projection"}


def reproduce(out: Path, *, quick: bool, workers: int) -> Path:
    """Measure everything and write tables, a report and a page, as :class:`report.Reproduce` says."""
    effort = runs.QUICK if quick else runs.FULL
    out.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    found = in_parallel(runs.measure, runs.jobs(effort), workers=workers, warm_up=runs.warm_up)
    results = Results.of(found, effort)
    tables = tables_of(results)
    note = (
        f"{'Quick' if quick else 'Full'} form: {effort.number_runs} repetitions of each method on numbers, "
        f"{effort.runs} on places and paths ({effort.long_runs} with three steps); means with 95 % intervals "
        f"(Student's). Every method at the budget it declares, and at equal true loss. Took "
        f"{time.monotonic() - start:.0f} s."
    )
    drawings = {
        "figure6": lambda: _draw_6(results),
        "figure7": lambda: _draw_7(results),
        "figure8": lambda: _draw_shares(results, PATHS),
        "figure9": lambda: _draw_shares(results, PLACES),
    }
    return report.Reproduction(
        page=PAGE,
        note=note,
        data="carriers",
        lines=quoted(results),
        findings=findings(results),
        files={
            "runs": [asdict(run) for run in results.runs],
            **{name: report.intervals_named(rows) for name, rows in tables.items()},
        },
        markdown=[(PAGE.titles[name], PAGE.why[name], short_intervals(rows)) for name, rows in tables.items()],
        sections=report.table_sections(PAGE, tables, lambda name, rows: short_intervals(_across(name, rows)), drawings),
    ).write(out)


def true_loss(method: str, terms: str, kind: str, size: int) -> str:
    """Say what one report of a method really gives away."""
    own = "ε" if terms == DECLARED and method in runs.ONE_BUDGET else "ε_i"
    if kind == NUMBERS:
        times = size if terms == RAISED or (terms == DECLARED and method == L_LDP) else 1
        return f"{times} {own}" if times > 1 else own
    times = runs.place_factor(size, method, kind) if terms == DECLARED else 1
    within = f"{times} {own}" if times > 1 else own
    return within if method == OURS else f"{within} in an area, ∞ across"


def tables_of(results: Results) -> dict[str, list[dict[str, object]]]:
    """Return everything measured as tables by name."""
    return {
        "losses": _loss_table(),
        "thresholds": _threshold_table(),
        "figure6": _table_6(results),
        "equal-numbers": _equal_numbers(results),
        "figure7": _table_7(results),
        "figure8": _share_table(results, PATHS),
        "figure9": _share_table(results, PLACES),
        "equal-shares": _equal_shares(results),
        "grids": _grids(results),
    }


def _loss_table() -> list[dict[str, object]]:
    found = runs.exact_losses(Fraction(1, 2))
    return [
        {"report": name, "declared": 0.5, "true loss": "no bound" if loss is None else float(loss), "found by": way}
        for name, way, loss in found
    ]


def _threshold_table() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for epsilon in CHECKED:
        printed = runs.printed_thresholds(float(epsilon))
        rows.append(
            {
                "epsilon": float(epsilon),
                **{f"threshold, {where}": value for where, value in printed.items()},
                "density integrates to": runs.density_integral(float(epsilon)),
                "corrected to": runs.density_integral(float(epsilon), corrected=True),
                "Algorithm 1: mean of t = 1": runs.printed_slope(float(epsilon)),
                "exact discrete form": runs.literal_slope(epsilon),
                "worst variance": runs.piecewise_variance(float(epsilon), 1.0),
            }
        )
    return rows


def _number_row(results: Results, method: str, terms: str, data: str, epsilon: float, size: int) -> dict[str, object]:
    mean, half = results.interval("mse", method, epsilon, size, kind=NUMBERS, data=data, terms=terms)
    loss = true_loss(method, terms, NUMBERS, size)
    return {"terms": TERM_NAMES[terms], "method": method, "true loss": loss, "MSE": mean, "MSE_sd": half}


def _table_6(results: Results) -> list[dict[str, object]]:
    return [
        {"data": data, "d": size, **_number_row(results, method, terms, data, EPSILON, size)}
        for data in (GAUSS, UNIFORM)
        for terms in TERMS
        for size in DIMENSIONS
        for method in NUMBER_METHODS[terms]
    ]


def _table_7(results: Results) -> list[dict[str, object]]:
    return [
        {"epsilon": epsilon, **_number_row(results, method, terms, CENSUS, epsilon, CENSUS_DIMENSIONS)}
        for terms in NUMBER_METHODS
        for epsilon in results.effort.epsilons
        for method in NUMBER_METHODS[terms]
    ]


def _equal_numbers(results: Results) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for data in (GAUSS, UNIFORM):
        for terms in (EQUAL, RAISED):
            gains = number_gains(results, data, terms)
            for size, gain in zip(DIMENSIONS, gains, strict=True):
                row: dict[str, object] = {"data": data, "d": size}
                row |= {"a report gives away": true_loss(OURS, terms, NUMBERS, size), "e-L_LDP by ours": gain}
                own = runs.budgets(EPSILON, size, L_LDP, terms)
                spent = [runs.spent(budget, size, L_LDP, terms) for budget in own]
                row["expected, e-L_LDP"] = runs.expected_mse(runs.numbers(data, size), spent)
                for method in (L_LDP, L_LDP_WEIGHED, OURS):
                    mean, half = results.interval("mse", method, EPSILON, size, kind=NUMBERS, data=data, terms=terms)
                    row |= {method: mean, f"{method}_sd": half}
                rows.append(row)
    return rows


def _share_table(results: Results, kind: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for steps in STEPS:
        for terms in TERMS:
            for epsilon in results.effort.epsilons:
                for method in SHARE_METHODS:
                    row: dict[str, object] = {"steps": steps, "terms": TERM_NAMES[terms], "epsilon": epsilon}
                    row |= {"method": method, "true loss": true_loss(method, terms, kind, steps)}
                    for column in ("mape", "rmse", "mape_projected", "rmse_projected"):
                        mean, half = results.interval(
                            column, method, epsilon, steps, kind=kind, data=FLEET, terms=terms
                        )
                        name = column.replace("_", ", ").replace("mape", "MAPE").replace("rmse", "RMSE")
                        row |= {name: mean, f"{name}_sd": half}
                    rows.append(row)
    return rows


def _equal_shares(results: Results) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for kind, steps in ((PLACES, STEPS[0]), *((PATHS, steps) for steps in STEPS)):
        for method in PAPERS_SHARES:
            ways = {f"{name}{suffix}": (ours, column) for name, ours in _SIDES.items() for suffix, column in _FORMS}
            gains = {
                name: share_gains(results, method, ours, steps, kind, column) for name, (ours, column) in ways.items()
            }
            for place, epsilon in enumerate(results.effort.epsilons):
                row: dict[str, object] = {"what": kind if kind == PLACES else f"{kind} of {steps}", "published": method}
                rows.append({**row, "epsilon": epsilon, **{name: own[place] for name, own in gains.items()}})
    return rows


_SIDES = {"areas in clear": OURS_CLEAR, "ours hidden": OURS}
_FORMS = (("", "rmse"), (", projected", "rmse_projected"))


def _grids(results: Results) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    ways = [(LT_LDP, DECLARED), (LT_LDP, EQUAL), (OURS_CLEAR, DECLARED), (OURS, DECLARED)]
    for levels in GRID_LEVELS:
        for epsilon in GRID_EPSILONS:
            one = Tier(name="all", epsilon=Fraction(str(epsilon)))
            hidden = runs.share_mechanism(OURS, runs.grid(levels), 1, [one])
            judged = hidden.noise_verdict(runs.NUM_VEHICLES)
            row: dict[str, object] = {"cells": 4 ** (levels - 1), "epsilon": epsilon}
            row |= {"noise": "yes" if judged.is_noise else "no", "predicted, ours": judged.predicted_sd}
            row["all alike"] = runs.nothing(GRIDS, levels, results.effort.runs)["rmse"]
            for method, terms in ways:
                name = method + (f", {TERM_NAMES[terms]}" if method == LT_LDP else "")
                for suffix, column in _FORMS:
                    mean, half = results.interval(column, method, epsilon, levels, kind=GRIDS, data=FLEET, terms=terms)
                    row |= {f"{name}{suffix}": mean, f"{name}{suffix}_sd": half}
            rows.append(row)
    return rows


def _across(name: str, rows: Sequence[Row]) -> Sequence[Row]:
    """Put what is drawn across a figure beside each other, one measure a line."""
    shares = "epsilon", ("MAPE", "RMSE", "RMSE, projected")
    spread: dict[str, tuple[str, tuple[str, ...]]] = {"figure8": shares, "figure9": shares}
    spread |= {"figure6": ("d", ("MSE",)), "figure7": ("epsilon", ("MSE",))}
    if name not in spread:
        return rows
    across, measures = spread[name]
    found: dict[tuple[object, ...], dict[str, object]] = {}
    for row in rows:
        for measure in measures:
            kept = {key: row[key] for key in ("data", "steps", "terms", "method") if key in row}
            kept |= {"true loss": row["true loss"]} if across == "epsilon" else {}
            line = found.setdefault((*kept.values(), measure), {**kept, "measure": measure})
            label = f"{across} {row[across]:g}"
            line |= {label: row[measure], f"{label}_sd": row[f"{measure}_sd"]}
    return list(found.values())


def _curves(results: Results, column: str, methods: Iterable[str], xs: Mapping[float, Any], **case: str) -> list[Curve]:
    """Draw a measure of methods; ``xs`` has epsilon and size at each place."""
    return [
        Curve(m, [(x, *results.interval(column, m, *at, **case)) for x, at in xs.items()], *STYLES[m]) for m in methods
    ]


_LOG = {"draw": report.log_chart, "wide": True, "named": False}


def _draw_6(results: Results) -> list[Svg]:
    parts, xs = [_legend(NUMBERS, (DECLARED, EQUAL), "d")], {size: (EPSILON, size) for size in DIMENSIONS}
    for data in (GAUSS, UNIFORM):
        by_title = {
            f"{data.upper()}, {TERM_NAMES[terms]}": _curves(
                results, "mse", NUMBER_METHODS[terms], xs, kind=NUMBERS, data=data, terms=terms
            )
            for terms in TERMS
        }
        parts += report.figure(by_title, x_title="attributes (d)", y_title="MSE", **_LOG)
    return parts


def _draw_7(results: Results) -> list[Svg]:
    xs = {epsilon: (epsilon, CENSUS_DIMENSIONS) for epsilon in results.effort.epsilons}
    by_title = {
        f"five skewed numbers, {TERM_NAMES[terms]}": _curves(
            results, "mse", NUMBER_METHODS[terms], xs, kind=NUMBERS, data=CENSUS, terms=terms
        )
        for terms in TERMS
    }
    named = _legend(NUMBERS, (DECLARED, EQUAL), str(CENSUS_DIMENSIONS))
    return [named, *report.figure(by_title, x_title="epsilon", y_title="MSE", **_LOG)]


def _draw_shares(results: Results, kind: str) -> list[Svg]:
    parts = []
    ordered = sorted(SHARE_METHODS, key=lambda method: method == QLP)  # dashed: at equal true loss it is on e-LT_LDP
    for steps in reversed(STEPS):
        what = f"paths of {steps}" if kind == PATHS else f"places, QJLP from paths of {steps}"
        parts += [report.tag("h3", what, class_="measure"), _legend(kind, TERMS, str(steps))]
        limits, xs = (
            runs.nothing(kind, steps, results.effort.long_runs),
            {e: (e, steps) for e in results.effort.epsilons},
        )
        for column, title in _MEASURES.items():
            by_title = {
                f"{title}, {TERM_NAMES[terms]}": _curves(
                    results, column, ordered, xs, kind=kind, data=FLEET, terms=terms
                )
                for terms in TERMS
            }
            level = dict.fromkeys(by_title, limits[column])
            parts += report.figure(by_title, x_title="epsilon", y_title=title.split(" ")[0], limits=level, **_LOG)
    return parts


def _legend(kind: str, terms: Sequence[str], size: str) -> Svg:
    """Name the colours, each with what a report really gives away on the left and on the right."""
    methods = dict.fromkeys(
        method for one in terms for method in (NUMBER_METHODS[one] if kind == NUMBERS else SHARE_METHODS)
    )
    curves = []
    for method in methods:
        along = size == "d"  # along a curve of Figure 6 it changes
        own = [one for one in terms if kind != NUMBERS or method in NUMBER_METHODS[one]]
        losses = [true_loss(method, one, kind, 2 if along else int(size)) for one in own]
        losses = [loss.replace("2", "d") if along else loss for loss in losses]
        name = f"{method} (true loss {', then '.join(dict.fromkeys(losses))})"
        curves.append(Curve(name, [], *STYLES[method]))
    return report.legend(curves, limit="" if kind == NUMBERS else "a table that says nothing")
