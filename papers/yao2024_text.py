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
from papers.report import Quoted, verdict
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
    yield Quoted(
        where="3.1.2, eq. 4",
        what="mean absolute error of Laplace noise of scale b = sensitivity/epsilon",
        paper="sqrt(2) b",
        ours="b: the integral of |x| exp(-|x|/b)/(2b) is b",
        verdict="differs: sqrt(2) b is the standard deviation, the root of eq. 5",
    )
    yield Quoted(
        where="3.1.2, eq. 5",
        what="variance of Laplace noise",
        paper="2 b^2",
        ours="2 b^2",
        verdict="agrees",
    )
    yield Quoted(
        where="3.2.1, eq. 8",
        what="personalised local differential privacy: the bound on the ratio of two probabilities for user i",
        paper="MAX(e^epsilon_i)",
        ours="e^epsilon_i",
        verdict="differs: with the largest budget of all users in everyone's bound nobody's own choice holds",
    )
    two = runs.loss_of_numbers(2, Fraction(1, 2))
    yield Quoted(
        where="3.2.1, nature 1",
        what="sequential composition: budgets add up",
        paper="the sum of the epsilons",
        ours=f"two numbers at epsilon 0.5 each: {two}, by looking at every symbol and input",
        verdict=verdict(two == 1, "it does not add up"),
    )


def warner_estimate(share: Fraction, truth: Fraction) -> Fraction:
    """Return the mean of eq. 12 for a true share if answers are true with a probability."""
    yes = share * truth + (1 - share) * (1 - truth)
    return (truth - 1) / (2 * truth - 1) + yes / (2 * truth - 1)


def _warner(_: Results) -> Iterator[Quoted]:
    cases = [(Fraction(share, 7), Fraction(truth, 9)) for share in range(8) for truth in (5, 6, 7, 8)]
    right = all(warner_estimate(share, truth) == share for share, truth in cases)
    yield Quoted(
        where="3.2.2, eqs. 9, 10, 12, 13",
        what="Warner's answers, and the corrected share, which is unbiased",
        paper="E = pi",
        ours=f"the mean is the share itself in {len(cases)} cases, in fractions",
        verdict=verdict(right, "it is not"),
    )
    yield Quoted(
        where="3.2.2, eq. 11",
        what="likelihood of Warner's answers",
        paper="[pi + (1-pi)(1-p)]^n1 [(1-pi)p + pi(1-p)]^(n-n1)",
        ours="[pi p + (1-pi)(1-p)]^n2 [(1-pi)p + pi(1-p)]^(n1-n2)",
        verdict="differs: p is missing by eq. 9, and n1 is the number of users there, not of those who say yes",
    )
    yield Quoted(
        where="3.2.2, eq. 14",
        what="p = 0.75 is a budget of ln 3",
        paper="ln 3",
        ours=f"ln(p/(1-p)) = {math.log(0.75 / 0.25):.6f}, ln 3 = {math.log(3):.6f}",
        verdict="agrees",
    )


def _places(_: Results) -> Iterator[Quoted]:
    yield Quoted(
        where="3.3, eq. 17",
        what="geo-indistinguishability: K(x, z) <= e^d(x, x') K(x', z)",
        paper="no epsilon in the formula, but in the text below it",
        ours="e^(epsilon d(x, x')); local-location, method planar, keeps it exactly on cells",
        verdict="differs: without epsilon there is one level of privacy, set by the unit of length",
    )


# Section 4


def _normalising(_: Results) -> Iterator[Quoted]:
    speed = Quantity(name="speed", low=Fraction(0), high=Fraction(130), unit="km/h")
    values = (0, 26, 65, 130)
    scaled = [speed.normalised(value) for value in values]
    back = [speed.in_units(float(number)) for number in scaled]
    yield Quoted(
        where="4.2.2, eqs. 19-21",
        what="speed of 0, 26, 65, 130 km/h in a domain of [0, 130] to [-1, 1] and back",
        paper="2 (t - low)/(high - low) - 1, and its inverse",
        ours=f"{', '.join(map(str, scaled))}; {listed(back)}",
        verdict=verdict(back == list(values), "it does not come back"),
    )


def _thresholds(_: Results) -> Iterator[Quoted]:
    shown = [runs.printed_thresholds(float(epsilon)) for epsilon in CHECKED]
    at = f"at epsilon {listed(map(float, CHECKED))}"
    yield Quoted(
        where="4.2.1",
        what="threshold of L-PM, first form",
        paper="e^(eps/2)/(e^(eps/2) - 1)",
        ours=f"{listed(one['4.2.1'] for one in shown)} {at}",
        verdict="differs: above 1, so that it is no probability",
    )
    inside = [_in_window(epsilon) for epsilon in CHECKED]
    right = [one["4.2.2"] for one in shown]
    yield Quoted(
        where="4.2.2",
        what="threshold of L-PM, second form",
        paper="e^(eps/2)/(e^(eps/2) + 1)",
        ours=f"{listed(right)}; probability of the window in the exact discrete form {listed(inside)} {at}",
        verdict=verdict(all(math.isclose(a, b, rel_tol=0.01) for a, b in zip(right, inside, strict=True)), "not near"),
    )
    slopes = [runs.printed_slope(float(epsilon)) for epsilon in CHECKED]
    discrete = [runs.literal_slope(epsilon) for epsilon in CHECKED]
    yield Quoted(
        where="4.2.2, Algorithm 1",
        what="threshold of L-PM, third form",
        paper="e^(eps/2)/(e^eps + 1)",
        ours=f"E[t*] = t/(e^eps + 1): {listed(slopes)} t {at} (exact discrete form {listed(discrete)})",
        verdict="differs: the mean of a report is a fraction of the number that it stands for",
    )
    yield Quoted(
        where="4.2.2, eq. 22",
        what="density of L-PM, p = (e^eps - e^(eps/2))/(2 e^eps + 2)",
        paper="a probability density",
        ours=f"integrates to {listed(runs.density_integral(float(e)) for e in CHECKED)} {at}; with "
        f"2 e^(eps/2) + 2 below to {listed(runs.density_integral(float(e), corrected=True) for e in CHECKED)}",
        verdict="differs: the denominator must be 2 e^(eps/2) + 2",
    )


def _in_window(epsilon: Fraction) -> float:
    """Return the probability of the published window in its exact discrete form."""
    law = PublishedPiecewise(epsilon=epsilon, steps=1024)
    inner = law.window * odds_of(epsilon)
    return float(inner / (inner + law.num_outside))


def _mechanisms(_: Results) -> Iterator[Quoted]:
    at_end, at_zero = ({epsilon: runs.duchi_variance(epsilon, number) for epsilon in CHECKED} for number in (1.0, 0.0))
    below = [epsilon for epsilon in CHECKED if at_end[epsilon] < 1]
    yield Quoted(
        where="4.2.2",
        what="Duchi's values are beyond 1, so that their variance is always greater than 1",
        paper="always",
        ours=f"of a number in the middle {listed(at_zero.values())}, at an end of the domain "
        f"{listed(at_end.values())} at epsilon {listed(map(float, CHECKED))}",
        verdict=verdict(not below, "so for numbers in the middle; at the ends it falls below 1"),
    )
    piecewise = [runs.piecewise_variance(float(epsilon), 1.0) for epsilon in CHECKED]
    discrete = [PublishedPiecewise(epsilon=epsilon, steps=1024).variance_at(1.0) for epsilon in CHECKED]
    duchi = [max(at_end[epsilon], at_zero[epsilon]) for epsilon in CHECKED]
    yield Quoted(
        where="4.2.2",
        what="PM is very accurate at a large budget, where Duchi is not",
        paper="very accurate",
        ours=f"worst variance {listed(piecewise)} (exact discrete form {listed(discrete)}), Duchi {listed(duchi)}, "
        f"at epsilon {listed(map(float, CHECKED))}",
        verdict=verdict(piecewise[-1] < duchi[-1] / 2, "it is not"),
    )
    half = Fraction(1, 2)
    p, q = PublishedUnary(num_inputs=16, epsilon=half).chances(half)
    printed = [(z * (2 - 1) + 2 + 1) / (2 * Fraction(2) + 2) for z in (1, -1)]  # at e^eps = 2
    yield Quoted(
        where="4.3.3, Algorithm 3",
        what="L-RR: chance of a 1 where the bit is 1 and where it is 0",
        paper="(z (e^eps - 1) + e^eps + 1)/(2 e^eps + 2)",
        ours=f"e^eps/(e^eps + 1) and 1/(e^eps + 1); at e^eps = 2 {printed[0]} and {printed[1]}",
        verdict=verdict([p, q] == printed, "another law"),
    )


def _losses(_: Results) -> Iterator[Quoted]:
    epsilon = Fraction(1, 2)
    of_numbers = {d: runs.loss_of_numbers(d, epsilon) for d in (1, 2, 3)}
    yield Quoted(
        where="4.4, eq. 23",
        what="L-PM on one number: largest ratio of two probabilities",
        paper="e^epsilon_i",
        ours=f"loss {of_numbers[1]} at epsilon 1/2, by looking at every symbol and input",
        verdict=verdict(of_numbers[1] == epsilon, "another loss") + " (with the second threshold)",
    )
    yield Quoted(
        where="4.4, eq. 24",
        what="e-L_LDP, a whole report of d numbers, is epsilon-locally private",
        paper="e^epsilon",
        ours=f"loss {', '.join(str(loss) for loss in of_numbers.values())} for d = 1, 2, 3 at epsilon 1/2: d epsilon",
        verdict="differs: the proof looks at one number; all are sent, and budgets add up (its own nature 1)",
    )
    bits = runs.loss_of_bits(9, epsilon)
    yield Quoted(
        where="4.4, eq. 26",
        what="L-RR: largest ratio of two probabilities of a vector",
        paper="e^epsilon_i",
        ours=f"loss {bits} at epsilon 1/2: 2 epsilon",
        verdict="differs: the second line drops all bits but one; two one-hot vectors differ in two",
    )
    loss = runs.loss_of_place(epsilon)
    yield Quoted(
        where="4.4, eq. 25",
        what="e-LT_LDP, area code and vector, is epsilon-locally private",
        paper="e^epsilon",
        ours="no bound: a report of one area cannot come from another" if loss is None else str(loss),
        verdict="differs: the area code H is sent as it is; within one area the loss is 2 epsilon",
    )


def _bounds(_: Results) -> Iterator[Quoted]:
    yield Quoted(
        where="4.4",
        what="with min epsilon_i = epsilon/sqrt(n), largest error of e-L_LDP by its own bound "
        "O(sqrt(d log(d/beta))/(min epsilon_i sqrt(n)))",
        paper="O(sqrt(d log(d/beta))/(epsilon sqrt(n)))",
        ours="O(sqrt(d log(d/beta))/epsilon): sqrt(n) cancels, and errors would not fall with the number of carriers",
        verdict="differs: the step is wrong; with epsilon/sqrt(d), as in section 5, it is "
        "O(d sqrt(log(d/beta))/(epsilon sqrt(n)))",
    )
    yield Quoted(
        where="4.4, 5.2, 5.3",
        what="range of the personal budgets",
        paper="from epsilon/sqrt(n) in section 4, from epsilon/sqrt(d) in section 5, to epsilon",
        ours="from epsilon/sqrt(d); for places and paths, where d is not said, d = 2 (two coordinates)",
        verdict="differs: the two sections do not agree",
    )


def _codes(_: Results) -> Iterator[Quoted]:
    on = runs.grid(3, 2)
    west, south, east, north = on.box
    place = west + (east - west) * Fraction(5, 8), south + (north - south) * Fraction(3, 8)
    area, inner, bit = runs.paper_code(*place, on)
    cell = on.cell(*place)
    ours = f"{on.area(cell):02b}", f"{on.inner(cell):02b}", on.inner(cell) + 1
    yield Quoted(
        where="4.3.4, Algorithm 4",
        what="area code H, inner code C and set bit of B of a place in column 2, row 1 of 4 (l = 3, m = 2)",
        paper=f"followed by hand: {area}, {inner}, {bit}",
        ours=f"{ours[0]}, {ours[1]}, {ours[2]}",
        verdict=verdict(ours == (area, inner, bit), "another code"),
    )
    corner = on.cell(float(east), float(north))
    yield Quoted(
        where="4.3.4, Algorithm 4, lines 3-4",
        what="a place on the east or north side of the box belongs to the last column or row",
        paper="min(..., 2^(l-1) - 1)",
        ours=f"the north-east corner is in cell {corner} of 0 to {on.num_cells - 1}",
        verdict=verdict(corner == on.num_cells - 1, "another cell"),
    )
    yield Quoted(
        where="4.3.4, Algorithm 4, lines 1-2, S-2",
        what="bits of M and H, entries of B",
        paper="2^(l-1); 2^h; 2h",
        ours="2(l-1); 2(m-1); 4^(l-m), and one more for a place that is outside or missing",
        verdict="differs: line 7 takes 2(m-1) bits of M and line 8 2(l-m), so M has 2(l-1); h is not defined",
    )


# Section 5


def _setting(results: Results) -> Iterator[Quoted]:
    yield Quoted(
        where="5.2",
        what="census records of Brazil and Mexico; domains of the baselines are the ranges of the data",
        paper="BR and MX, 5 numbers each",
        ours="5 generated skewed numbers in public domains",
        verdict="not reproducible: the records are licensed to who asks for them, and the extract is not named. A "
        "range of the data as a domain is itself a release, and is not private: ours are public",
    )
    yield Quoted(
        where="5.2, eq. 27",
        what="mean square error",
        paper="mean over n of (t_i - estimate)^2, n not said",
        ours="mean over the d numbers of the squared error of an estimated mean, in units of [-1, 1]",
        verdict="not reproducible: neither n, units nor domains are said. Errors compare only with each other",
    )
    yield Quoted(
        where="5.2.2",
        what="budgets of Figure 7",
        paper="0.5, 1.5, 2, ..., 5 in the list; 1.0 is spoken of",
        ours=f"{listed(results.effort.epsilons)}",
        verdict="differs: 1.0 is missing in the list",
    )
    longitudes, _ = runs.fleet()
    yield Quoted(
        where="5.3",
        what="taxis in Chengdu: vehicles and five-minute moments",
        paper=f"{NUM_VEHICLES:,} x {NUM_EPOCHS} points, of 49,851,265 records",
        ours=f"{longitudes.shape[1]:,} x {longitudes.shape[0]} generated points",
        verdict="not reproducible: neither the records nor the chosen rectangle, levels l and m are given; ours are a "
        "made-up city, 64 cells in 4 areas",
    )
    yield Quoted(
        where="5.3, eq. 28",
        what="MAPE where a true share is 0",
        paper="not said",
        ours=f"of places and paths that occur, divided by the share or by {runs.FLOOR:g} if that is more",
        verdict="not reproducible: not defined at 0; the floor is ours",
    )
    yield Quoted(
        where="5.3",
        what="what QLP and QJLP are, and how shares are estimated from reports",
        paper="cited; no estimator",
        ours="QLP: each place's inner code one-hot, at epsilon/L in a path of L, at epsilon by itself; QJLP: the L "
        "inner codes joined, one-hot, at epsilon; unbiased estimates, for places perturbed one by one the mean of "
        "products",
        verdict="not reproducible: definitions and estimators are ours",
    )


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
    yield Quoted(
        where="5.2.1, Figure 6",
        what="MSE of all four grows with the number of attributes",
        paper="gradually",
        ours="; ".join(f"{method} {listed(mse[GAUSS, method])}" for method in PAPERS_NUMBERS) + f" (GAUSS, {at})",
        verdict=verdict(not falls, f"not that of {', '.join(falls)}"),
    )
    growth = {key: own[-1] / own[0] for key, own in mse.items()}
    most = {method for data in named for method in PAPERS_NUMBERS if growth[data, method] == _largest(growth, data)}
    yield Quoted(
        where="5.2.1, Figure 6",
        what="that of Harmony grows most",
        paper="more significantly",
        ours="; ".join(
            f"{named[data]}: " + ", ".join(f"{m} {growth[data, m]:.1f}" for m in PAPERS_NUMBERS) for data in named
        )
        + " times from d = 2 to 10",
        verdict=verdict(
            most == {HARMONY},
            "Harmony, Duchi and PM all grow about in proportion to d at a small budget",
        ),
    )
    near = {data: [mse[data, method][0] for method in (PM, DUCHI, L_LDP)] for data in named}
    far = [f"{named[data]}{_apart(results, data)}" for data, own in near.items() if max(own) > LARGE * min(own)]
    yield Quoted(
        where="5.2.1, Figure 6",
        what="at d = 2 PM, Duchi and e-L_LDP do not differ significantly",
        paper="not significantly",
        ours="; ".join(f"{named[data]} {listed(own)}" for data, own in near.items()),
        verdict=verdict(not far, f"by a factor of {LARGE:g} or more in {', '.join(far)}"),
    )
    lost = [
        f"{named[data]} d = {size}"
        for data in named
        for place, size in enumerate(DIMENSIONS[1:], start=1)
        if mse[data, L_LDP][place] >= min(mse[data, m][place] for m in (HARMONY, DUCHI, PM))
    ]
    equal = {data: _by_size(results, L_LDP, data, EQUAL) for data in named}
    yield Quoted(
        where="5.2.1, Figure 6",
        what="above d = 2 the MSE of e-L_LDP is lowest",
        paper="lowest",
        ours="; ".join(f"{named[data]} {listed(mse[data, L_LDP])}" for data in named)
        + ". With reports that really give away epsilon_i: "
        + "; ".join(f"{named[data]} {listed(equal[data])}" for data in named),
        verdict=verdict(not lost, f"not at {', '.join(lost)}") + f" (at what is declared; {_BUDGET})",
    )
    others = {data: [_by_size(results, m, data, EQUAL) for m in (HARMONY, DUCHI, PM)] for data in named}
    worst = [
        f"{named[data]} d = {size}"
        for data in named
        for place, size in enumerate(DIMENSIONS)
        if equal[data][place] <= max(own[place] for own in others[data])
    ]
    yield Quoted(
        where="5.2.1, conclusion of Figure 6",
        what="e-L_LDP is better in terms of usability",
        paper="better",
        ours="at equal true loss it is "
        + "; ".join(f"{named[data]} {listed(_by_best(equal[data], others[data]))}" for data in named)
        + f" times the best of Harmony, Duchi and PM ({at})",
        verdict="differs: the order is turned round once every report gives away the same"
        + (f" (not below all others at {', '.join(worst)})" if worst else ": it is the worst of all"),
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
    yield Quoted(
        where="5.2.2, Figure 7",
        what="MSE of all four falls as the budget grows",
        paper="gradually",
        ours="; ".join(f"{m} {listed(own.values())}" for m, own in mse.items()) + f" at epsilon {listed(epsilons)}",
        verdict=verdict(all(own[epsilons[0]] > own[epsilons[-1]] for own in mse.values()), "not of all"),
    )
    ratios = {e: mse[PM][e] / mse[L_LDP][e] for e in epsilons}
    yield Quoted(
        where="5.2.2, Figure 7, MX",
        what="e-L_LDP against PM: slightly lower at 0.5, close at 1, significantly lower at 1.5, closer from 2 on",
        paper="slightly, close, significantly",
        ours=f"PM has {listed(ratios.values())} times its MSE at epsilon {listed(epsilons)}",
        verdict=verdict(
            ratios[0.5] < NEAR and ratios[1.5] > LARGE,
            f"lower by {ratios[0.5]:.1f} at 0.5 and {ratios[1.5]:.1f} at 1.5; the budget that is not declared works at "
            "every epsilon",
        ),
    )
    not_least = [e for e in epsilons if mse[L_LDP][e] >= min(mse[m][e] for m in (HARMONY, DUCHI, PM))]
    yield Quoted(
        where="5.2.2, Figure 7, BR",
        what="the MSE of e-L_LDP is smallest at any budget",
        paper="any",
        ours=f"smallest at all but {listed(not_least)}" if not_least else "smallest at all",
        verdict=verdict(not not_least, f"not at {listed(not_least)}") + f" (at what is declared; {_BUDGET})",
    )
    low = [e for e in epsilons if e <= 2]
    harmony = [mse[HARMONY][e] / mse[L_LDP][e] for e in low]
    higher = {e: ratio for e, ratio in zip(low, harmony, strict=True) if ratio < LARGE}
    yield Quoted(
        where="5.2.2, Figure 7",
        what="Harmony's MSE is significantly higher than that of e-L_LDP, most of all up to epsilon 2",
        paper="significantly",
        ours=f"{listed(harmony)} times at epsilon {listed(low)}",
        verdict=verdict(not higher, f"higher, but by less than a factor of {LARGE:g} at epsilon {listed(higher)}"),
    )
    apart = {e: max(own[e] for own in mse.values()) - min(own[e] for own in mse.values()) for e in epsilons}
    yield Quoted(
        where="5.2.2, Figure 7",
        what="above epsilon 3 the four differ less",
        paper="less",
        ours=f"largest less smallest MSE: {listed(apart.values())}; as a ratio "
        + listed(max(own[e] for own in mse.values()) / min(own[e] for own in mse.values()) for e in epsilons),
        verdict=verdict(max(apart[e] for e in epsilons if e >= 3) < min(apart[e] for e in epsilons if e < 3), "not so")
        + " (as differences; as ratios they differ more)",
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
        yield Quoted(
            where=f"5.3.1, Figure {panels}",
            what=f"MAPE and RMSE of paths of length {steps} fall as the budget grows",
            paper="fall, and converge",
            ours="MAPE " + "; ".join(f"{m} {listed(own)}" for m, own in mape.items()) + f" ({at})",
            verdict=verdict(_all_fall(mape.values()) and _all_fall(rmse.values()), "not all"),
        )
        lost = {m: [e for e, a, b in zip(epsilons, mape[LT_LDP], mape[m], strict=True) if a >= b] for m in (QLP, QJLP)}
        text = "; ".join(f"{m} is lower at epsilon {listed(own)}" for m, own in lost.items() if own)
        yield Quoted(
            where=f"5.3.1, Figure {panels.split(',')[0]}",
            what=f"MAPE of e-LT_LDP is below QLP and QJLP at every budget, length {steps}",
            paper="every",
            ours=text or "every",
            verdict=verdict(
                not text,
                f"products of {steps} noisy places lose to one noisy path at small budgets, although a report of "
                f"e-LT_LDP gives away {steps} times as much as one of QJLP",
            ),
        )
    rmse = {m: _shares(results, "rmse", m, 2) for m in PAPERS_SHARES}
    ratio = rmse[LT_LDP][0] / rmse[QJLP][0]
    yield Quoted(
        where="5.3.1, Figure 8d",
        what="RMSE of e-LT_LDP and QJLP are very close at epsilon 0.5, length 2",
        paper="very close",
        ours=f"{rmse[LT_LDP][0]:.3g} and {rmse[QJLP][0]:.3g}: {ratio:.2f} times",
        verdict=verdict(1 / NEAR <= ratio <= NEAR, "squares of the variance of one place"),
    )
    off = [a / b for a, b in zip(rmse[QLP], rmse[LT_LDP], strict=True)]
    yield Quoted(
        where="5.3.1, Figure 8d",
        what="RMSE of e-LT_LDP is significantly smaller than that of QLP, length 2",
        paper="significantly",
        ours=f"QLP has {listed(off)} times as much ({at})",
        verdict=verdict(min(off) >= LARGE, f"less than {LARGE:g} times somewhere")
        + " (it gives away twice as much; at equal true loss the two are one law)",
    )
    long = {m: _shares(results, "rmse", m, 3) for m in (LT_LDP, QJLP)}
    falls = {m: own[0] / own[-1] for m, own in long.items()}
    yield Quoted(
        where="5.3.1, Figure 8b",
        what="the budget has a small effect on the RMSE of e-LT_LDP and QJLP, length 3",
        paper="small",
        ours="; ".join(f"{m} falls by {fall:.3g} times" for m, fall in falls.items()) + " from epsilon 0.5 to 5",
        verdict=verdict(max(falls.values()) < LARGE, "the noise of unbiased estimates falls like that of any report"),
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
        yield Quoted(
            where=f"5.3.2, Figure {name}",
            what=f"places: QLP has the lowest MAPE, then e-LT_LDP, then QJLP (of paths of {steps})",
            paper="at every budget",
            ours="; ".join(f"{m} {listed(own)}" for m, own in mape.items()),
            verdict=verdict(not broken, _broken(results, broken, steps))
            + " (QLP and e-LT_LDP are one law for a place; e-LT_LDP is run at smaller budgets)",
        )
    every = [_shares(results, "mape", m, steps, PLACES) for m in PAPERS_SHARES for steps in STEPS]
    yield Quoted(
        where="5.3.2, Figure 9",
        what="MAPE of places falls as the budget grows",
        paper="gradually",
        ours="falls for all three",
        verdict=verdict(_all_fall(every), "not for all"),
    )


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
    yield Quoted(
        where="abstract, 5.2, 6",
        what="higher usability of e-L_LDP under the same privacy budget",
        paper="higher",
        ours="MSE of e-L_LDP by that of ours, a report giving away epsilon_i by both: "
        + "; ".join(f"{data} {listed(own)}" for data, own in gains.items())
        + f" (d = {listed(DIMENSIONS)})",
        verdict="differs: lower, as soon as the budget is what a report gives away",
    )
    places = share_gains(results, LT_LDP, OURS_CLEAR, STEPS[0], PLACES)
    paths = {steps: share_gains(results, LT_LDP, OURS, steps, PATHS) for steps in STEPS}
    yield Quoted(
        where="abstract, 5.3, 6",
        what="higher usability of e-LT_LDP under the same privacy budget",
        paper="higher",
        ours=f"RMSE of e-LT_LDP by that of ours at epsilon {listed(results.effort.epsilons)}, both giving away "
        f"epsilon_i: places, area in clear {listed(places)}; "
        + "; ".join(f"paths of {steps}, our areas hidden {listed(own)}" for steps, own in paths.items()),
        verdict="differs: an exact choice of the law for places is no worse, and paths reported as one are better, "
        "even with their areas hidden",
    )
    yield Quoted(
        where="6",
        what="privacy of both algorithms is rigorously proved",
        paper="proved",
        ours="d epsilon for e-L_LDP; 2 epsilon within an area and no bound across for e-LT_LDP",
        verdict="differs: eqs. 24 to 26",
    )


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
