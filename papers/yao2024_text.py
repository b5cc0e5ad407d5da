# SPDX-License-Identifier: Apache-2.0
"""Yao et al. 2024: what sections 3 to 5 state, beside ours.

Formulas and losses are checked exactly. Of the figures only what the text says of them can be compared: an order or a
direction must hold for the means of every case named, and where it fails by less than the intervals tell, that is said.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction

from dunnage.devices.numbers import PublishedPiecewise, odds_of
from dunnage.devices.places import PublishedUnary
from dunnage.devices.subjects import Quantity
from papers import yao2024_runs as runs
from papers.report import Quoted, Statements, verdict
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
    GRIDS,
    HARMONY,
    L_LDP,
    L_LDP_WEIGHED,
    LT_LDP,
    NUM_EPOCHS,
    NUM_VEHICLES,
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
    STEPS,
    UNIFORM,
    Results,
)

says = Statements("yao2024")

NEAR = 1.5  # errors within this factor are called close
LARGE = 2.0  # an error by which another is multiplied to be called significantly larger
CHECKED = (Fraction(1, 2), Fraction(1), Fraction(2), Fraction(5))  # budgets at which formulas are shown
_BUDGET = "e-L_LDP spends d times what it declares, the others once"


def quoted(results: Results) -> list[Quoted]:
    """Compare everything that the text states."""
    parts: list[Callable[[Results], Iterator[Quoted]]] = [
        _preliminaries,
        _warner,
        _places,
        _normalising,
        _thresholds,
        _mechanisms,
        _codes,
        _losses,
        _bounds,
        _setting,
        _figure_6,
        _figure_7,
        _figure_8,
        _figure_9,
        _usability,
    ]
    return [line for part in parts for line in part(results)]


def listed(values: Iterable[float]) -> str:
    """Write numbers with three digits."""
    return ", ".join(f"{value:.3g}" for value in values)


# Section 3


def _preliminaries(_: Results) -> Iterator[Quoted]:
    yield says("mean-absolute-error-of")
    yield says("variance-of-laplace-noise")
    yield says("personalised-local-differential-privacy")
    two = runs.loss_of_numbers(2, Fraction(1, 2))
    yield says("sequential-composition-budgets-add", ours=(two,), agrees=two == 1)


def warner_estimate(share: Fraction, truth: Fraction) -> Fraction:
    """Return the mean of eq. 12 for a true share if answers are true with a probability."""
    yes = share * truth + (1 - share) * (1 - truth)
    return (truth - 1) / (2 * truth - 1) + yes / (2 * truth - 1)


def _warner(_: Results) -> Iterator[Quoted]:
    cases = [(Fraction(share, 7), Fraction(truth, 9)) for share in range(8) for truth in (5, 6, 7, 8)]
    right = all(warner_estimate(share, truth) == share for share, truth in cases)
    yield says("warner-s-answers-and", ours=(len(cases),), agrees=right)
    yield says("likelihood-of-warner-s")
    yield says("p-0-75-is", ours=(math.log(0.75 / 0.25), math.log(3)))


def _places(_: Results) -> Iterator[Quoted]:
    yield says("geo-indistinguishability-k-x")


# Section 4


def _normalising(_: Results) -> Iterator[Quoted]:
    speed = Quantity(name="speed", low=Fraction(0), high=Fraction(130), unit="km/h")
    values = (0, 26, 65, 130)
    scaled = [speed.normalised(value) for value in values]
    back = [speed.in_units(float(number)) for number in scaled]
    yield says("speed-of-0-26", ours=(", ".join(map(str, scaled)), listed(back)), agrees=back == list(values))


def _thresholds(_: Results) -> Iterator[Quoted]:
    shown = [runs.printed_thresholds(float(epsilon)) for epsilon in CHECKED]
    at = f"at epsilon {listed(map(float, CHECKED))}"
    yield says("threshold-of-l-pm", ours=(listed(one["4.2.1"] for one in shown), at))
    inside = [_in_window(epsilon) for epsilon in CHECKED]
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


def _in_window(epsilon: Fraction) -> float:
    """Return the probability of the published window in its exact discrete form."""
    law = PublishedPiecewise(epsilon=epsilon, steps=1024)
    inner = law.window * odds_of(epsilon)
    return float(inner / (inner + law.num_outside))


def _mechanisms(_: Results) -> Iterator[Quoted]:
    at_end, at_zero = ({epsilon: runs.duchi_variance(epsilon, number) for epsilon in CHECKED} for number in (1.0, 0.0))
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


def _losses(_: Results) -> Iterator[Quoted]:
    epsilon = Fraction(1, 2)
    of_numbers = {d: runs.loss_of_numbers(d, epsilon) for d in (1, 2, 3)}
    yield says("l-pm-on-one", ours=(of_numbers[1],), verdict=(verdict(of_numbers[1] == epsilon, "another loss"),))
    yield says("e-l-ldp-a", ours=(", ".join(str(loss) for loss in of_numbers.values()),))
    bits = runs.loss_of_bits(9, epsilon)
    yield says("l-rr-largest-ratio", ours=(bits,))
    loss = runs.loss_of_place(epsilon)
    yield says(
        "e-lt-ldp-area",
        ours=("no bound: a report of one area cannot come from another" if loss is None else str(loss),),
    )


def _bounds(_: Results) -> Iterator[Quoted]:
    yield says("with-min-epsilon-i")
    yield says("range-of-the-personal")


def _codes(_: Results) -> Iterator[Quoted]:
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


# Section 5


def _setting(results: Results) -> Iterator[Quoted]:
    yield says("census-records-of-brazil")
    yield says("mean-square-error")
    yield says("budgets-of-figure-7", ours=(listed(results.effort.epsilons),))
    longitudes, _ = runs.fleet()
    yield says(
        "taxis-in-chengdu-vehicles", paper=(NUM_VEHICLES, NUM_EPOCHS), ours=(longitudes.shape[1], longitudes.shape[0])
    )
    yield says("mape-where-a-true", ours=(runs.FLOOR,))
    yield says("what-qlp-and-qjlp")


def _mse(
    results: Results, method: str, size: int, data: str, *, epsilon: float = EPSILON, terms: str = DECLARED
) -> float:
    return results.mean("mse", method, epsilon, size, kind=NUMBERS, data=data, terms=terms)


def _by_size(results: Results, method: str, data: str, terms: str = DECLARED) -> list[float]:
    return [_mse(results, method, size, data, terms=terms) for size in DIMENSIONS]


def _figure_6(results: Results) -> Iterator[Quoted]:
    named = {GAUSS: "GAUSS", UNIFORM: "UNIFORM"}
    mse = {(data, method): _by_size(results, method, data) for data in named for method in PAPERS_NUMBERS}
    at = f"d = {listed(DIMENSIONS)}"
    falls = [f"{method} ({named[data]})" for (data, method), own in mse.items() if own[-1] <= own[0]]
    yield says(
        "mse-of-all-four",
        ours=("; ".join(f"{method} {listed(mse[GAUSS, method])}" for method in PAPERS_NUMBERS), at),
        agrees=not falls,
        differs=(", ".join(falls),),
    )
    growth = {key: own[-1] / own[0] for key, own in mse.items()}
    most = {method for data in named for method in PAPERS_NUMBERS if growth[data, method] == _largest(growth, data)}
    yield says(
        "that-of-harmony-grows",
        ours=(
            "; ".join(
                f"{named[data]}: " + ", ".join(f"{m} {growth[data, m]:.1f}" for m in PAPERS_NUMBERS) for data in named
            ),
        ),
        agrees=most == {HARMONY},
    )
    near = {data: [mse[data, method][0] for method in (PM, DUCHI, L_LDP)] for data in named}
    far = [f"{named[data]}{_apart(results, data)}" for data, own in near.items() if max(own) > LARGE * min(own)]
    yield says(
        "at-d-2-pm",
        ours=("; ".join((f"{named[data]} {listed(own)}" for data, own in near.items())),),
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
        verdict=(verdict(not lost, f"not at {', '.join(lost)}"), _BUDGET),
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
        verdict=(f" (not below all others at {', '.join(worst)})" if worst else ": it is the worst of all",),
    )


def _apart(results: Results, data: str) -> str:
    """Say whether that Duchi and e-L_LDP are far apart at d = 2 may be chance."""
    high, low = (
        results.interval("mse", method, EPSILON, 2, kind=NUMBERS, data=data, terms=DECLARED)
        for method in (DUCHI, L_LDP)
    )
    return " (may be chance)" if high[0] - high[1] <= LARGE * (low[0] + low[1]) else ""


def _largest(growth: Mapping[tuple[str, str], float], data: str) -> float:
    return max(value for (own, _), value in growth.items() if own == data)


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
        ours=(f"smallest at all but {listed(not_least)}" if not_least else "smallest at all",),
        verdict=(verdict(not not_least, f"not at {listed(not_least)}"), _BUDGET),
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
        verdict=(
            verdict(max(apart[e] for e in epsilons if e >= 3) < min(apart[e] for e in epsilons if e < 3), "not so"),
        ),
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


def _figure_8(results: Results) -> Iterator[Quoted]:
    epsilons = results.effort.epsilons
    at = f"epsilon {listed(epsilons)}"
    for steps, panels in ((3, "8a, 8b"), (2, "8c, 8d")):
        mape = {m: _shares(results, "mape", m, steps) for m in PAPERS_SHARES}
        rmse = {m: _shares(results, "rmse", m, steps) for m in PAPERS_SHARES}
        yield says(
            "mape-and-rmse-of",
            where=(panels,),
            what=(steps,),
            ours=("; ".join((f"{m} {listed(own)}" for m, own in mape.items())), at),
            agrees=_all_fall(mape.values()) and _all_fall(rmse.values()),
        )
        lost = {m: [e for e, a, b in zip(epsilons, mape[LT_LDP], mape[m], strict=True) if a >= b] for m in (QLP, QJLP)}
        text = "; ".join(f"{m} is lower at epsilon {listed(own)}" for m, own in lost.items() if own)
        yield says(
            "mape-of-e-lt",
            where=(panels.split(",")[0],),
            what=(steps,),
            ours=(text or "every",),
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
        verdict=(verdict(min(off) >= LARGE, f"less than {LARGE:g} times somewhere"),),
    )
    long = {m: _shares(results, "rmse", m, 3) for m in (LT_LDP, QJLP)}
    falls = {m: own[0] / own[-1] for m, own in long.items()}
    yield says(
        "the-budget-has-a",
        ours=("; ".join((f"{m} falls by {fall:.3g} times" for m, fall in falls.items())),),
        agrees=max(falls.values()) < LARGE,
    )


def _broken(results: Results, orders: Sequence[tuple[str, str, float]], steps: int) -> str:
    """Name the cases in which an order of places is broken, and whether that may be chance."""
    told = []
    for less, more, epsilon in orders:
        low, high = (
            results.interval("mape", method, epsilon, steps, kind=PLACES, data=FLEET, terms=DECLARED)
            for method in (less, more)
        )
        chance = " (may be chance)" if low[0] - low[1] <= high[0] + high[1] else ""
        told.append(f"{less} is not below {more} at epsilon {epsilon:g}{chance}")
    return "; ".join(told)


def _figure_9(results: Results) -> Iterator[Quoted]:
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
            where=(name,),
            what=(steps,),
            ours=("; ".join((f"{m} {listed(own)}" for m, own in mape.items())),),
            verdict=(verdict(not broken, _broken(results, broken, steps)),),
        )
    every = [_shares(results, "mape", m, steps, PLACES) for m in PAPERS_SHARES for steps in STEPS]
    yield says("mape-of-places-falls", agrees=_all_fall(every))


def number_gains(results: Results, data: str, terms: str) -> list[float]:
    """Return by what the MSE of e-L_LDP is a multiple of ours, at equal true loss, by the number of attributes."""
    published, ours = (_by_size(results, method, data, terms) for method in (L_LDP, OURS))
    return [a / b for a, b in zip(published, ours, strict=True)]


def share_gains(results: Results, method: str, ours: str, size: int, kind: str, column: str = "rmse") -> list[float]:
    """Return by what a published error is a multiple of ours, at equal true loss within areas, by epsilon."""
    published, own = (_shares(results, column, m, size, kind, EQUAL) for m in (method, ours))
    return [a / b for a, b in zip(published, own, strict=True)]


def _usability(results: Results) -> Iterator[Quoted]:
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


# What the paper does not look at


def findings(results: Results) -> list[str]:
    """Say what else came out; every number is measured or exact."""
    return [*_numbers_found(results), *_shares_found(results), _grids_found(results), _duchi_found()]


def _numbers_found(results: Results) -> Iterator[str]:
    for data in (GAUSS, UNIFORM):
        lowered, raised = (number_gains(results, data, terms) for terms in (EQUAL, RAISED))
        weighed = [
            a / b
            for a, b in zip(
                _by_size(results, L_LDP_WEIGHED, data, EQUAL), _by_size(results, OURS, data, EQUAL), strict=True
            )
        ]
        honest = [a / b for a, b in zip(_by_size(results, OURS, data), _by_size(results, L_LDP, data), strict=True)]
        yield (
            f"Numbers, {data}, d = {listed(DIMENSIONS)}, MSE of e-L_LDP by ours at equal true loss: {listed(lowered)} "
            f"where a report gives away epsilon_i, {listed(raised)} where it gives away d epsilon_i. With our weights "
            f"for tiers e-L_LDP is still {listed(weighed)} times off. At the budgets that are declared honesty costs "
            f"{listed(honest)} times the MSE."
        )
    best = [_by_size(results, method, GAUSS) for method in (HARMONY, DUCHI, PM)]
    one = _by_best(_by_size(results, OURS_ALIKE, GAUSS), best)
    yield f"Ours at one budget for all has {listed(one)} times the MSE of the best of Harmony, Duchi and PM (gauss)."


def _shares_found(results: Results) -> Iterator[str]:
    epsilons = listed(results.effort.epsilons)
    for steps in STEPS:
        for method in (LT_LDP, QJLP):
            clear = share_gains(results, method, OURS_CLEAR, steps, PATHS)
            hidden = share_gains(results, method, OURS, steps, PATHS)
            yield (
                f"Paths of {steps}, RMSE of {method} by ours at equal true loss: {listed(clear)} with areas in clear "
                f"on both sides, {listed(hidden)} with ours hidden (epsilon {epsilons})."
            )
    clear = share_gains(results, LT_LDP, OURS_CLEAR, STEPS[0], PLACES)
    hidden = share_gains(results, LT_LDP, OURS, STEPS[0], PLACES)
    yield (
        f"Places, RMSE of e-LT_LDP by ours at equal true loss: {listed(clear)} with areas in clear on both sides, "
        f"{listed(hidden)} with ours hidden: hiding the area has its price (epsilon {epsilons})."
    )


def _grids_found(results: Results) -> str:
    def rmse(column: str, method: str, levels: int) -> list[float]:
        return [results.mean(column, method, e, levels, kind=GRIDS, data=FLEET) for e in GRID_EPSILONS]

    finest = max(runs.GRID_LEVELS)
    price = [a / b for a, b in zip(rmse("rmse", OURS, finest), rmse("rmse", OURS_CLEAR, finest), strict=True)]
    won = [a / b for a, b in zip(rmse("rmse", OURS, finest), rmse("rmse_projected", OURS, finest), strict=True)]
    return (
        f"Map of {4 ** (finest - 1)} cells, epsilon {listed(GRID_EPSILONS)}: hiding the area multiplies the RMSE by "
        f"{listed(price)}; the projection onto shares that add up divides it by {listed(won)}."
    )


def _duchi_found() -> str:
    losses = [runs.printed_duchi_loss(float(epsilon), 4) for epsilon in CHECKED]
    return (
        f"Duchi's law for several numbers, as usually printed, gives away ln(e^eps + 1) at even d: {listed(losses)} at "
        f"epsilon {listed(map(float, CHECKED))}. Here ties are on one side only, and it gives away epsilon."
    )
