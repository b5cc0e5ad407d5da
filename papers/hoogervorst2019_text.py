# SPDX-License-Identifier: Apache-2.0
"""Hoogervorst et al. 2019: every figure and finding that the text states, beside ours.

A mean agrees if it lies within what two means of independent draws differ by in 99 of 100 cases, theirs of ten draws
and ours of as many as were measured, both with our standard deviation; and half a digit for rounding. This tolerance is
part of the verdict. Where it is as large as the effect that the paper quotes, agreement would show nothing, so the
verdict is that so few draws cannot tell.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import dunnage as dn
from papers.hoogervorst2019_runs import (
    DOUBLING,
    DOUBLINGS,
    FLASH_MEAN,
    FLASH_UPPER,
    MEAN,
    RISK,
    ROBUST,
    SAMPLED,
    SETTINGS,
    STOCHASTIC,
    UPPER,
    Results,
    mean_sd,
)
from papers.report import Quoted, Statements

says = Statements("hoogervorst2019")

FloatArray = npt.NDArray[np.float64]

PAPER_DRAWS = 10
STANDARD_ERRORS = 2.58
OPTIMA = {"I": 13.5, "II": 27.8, "III": 3.0, "IV": 5.5, "V": 12.2}
MEAN_INCREASE_AT_10 = {"I": 0.07, "II": 0.05, "V": 0.07}
STOCHASTIC_INCREASE = {2: 0.04, 8: 0.27, 10: 0.41}
STOCHASTIC_OVER_MEAN_AT_8 = 0.20
MEAN_FEASIBILITY_AT_8 = 0.13
MOST_DEVIATION = 0.02
ALL_BINS_ABOVE = {"I": 7, "V": 4}
WORSE_THAN_UPPER = {"II": 2, "IV": 5}
SOLVING_MINUTES = 12
TABLE_3 = [
    ("Hepatitis", 21),
    ("HIV", 22),
    ("Flu", 23),
    ("HIV", 23),
    ("Hepatitis", 24),
    ("Cancer", 25),
    ("Cancer", 31),
    ("Cancer", 31),
    ("Cancer", 31),
    ("Flu", 32),
    ("HIV", 34),
    ("Hepatitis", 35),
]
BOB = 33

_DRAWS = "the paper's draws are unpublished"
_HIERARCHY = (
    f"the paper's hierarchy and suppression limit are unpublished; ours doubles from a width of {DOUBLING} and "
    "suppresses nothing"
)


def quoted(results: Results, widths: Sequence[Mapping[str, Any]]) -> list[Quoted]:
    """Compare everything that the text states; ``widths`` is what hierarchies decide."""
    parts: list[Callable[[Results], Iterator[Quoted]]] = [
        _optima,
        _anonymisation_methods,
        lambda found: _all_bins(found, widths),
        _mean_statistic,
        _robust,
        _stochastic_ratios,
        _stochastic_against_upper,
        _feasibility,
        _solving_time,
        _table_3,
    ]
    return [line for part in parts for line in part(results)]


def paper_points(setting: str, column: str, method: str) -> list[tuple[float, float]]:
    """Return the points (k, value) that the paper's text quotes for a curve."""
    points: dict[tuple[str, str, str], list[tuple[float, float]]] = {
        **{(s, "ratio", MEAN): [(10.0, 1 + x)] for s, x in MEAN_INCREASE_AT_10.items()},
        ("I", "plan_feasible", MEAN): [(8.0, MEAN_FEASIBILITY_AT_8)],
        ("I", "ratio", STOCHASTIC): [(float(k), 1 + x) for k, x in STOCHASTIC_INCREASE.items()],
    }
    return points.get((setting, column, method), [])


def _tolerance(values: FloatArray, half_digit: float) -> float:
    _, sd = mean_sd(values)
    spread = 0.0 if math.isnan(sd) else sd * math.sqrt(1 / PAPER_DRAWS + 1 / len(values))
    return half_digit + STANDARD_ERRORS * spread


def _verdict_of_mean(
    paper: float, values: FloatArray, half_digit: float, why: str = _DRAWS, *, no_effect: float = 0.0
) -> str:
    """Compare a mean with the paper's; ``no_effect`` is what there would be to see if there were nothing."""
    tolerance = _tolerance(values, half_digit)
    off = abs(paper - float(np.mean(values)))
    if off > tolerance and len(values) >= PAPER_DRAWS:
        return f"differs: not within ± {tolerance:.2g}; {why}"
    if off > tolerance or tolerance >= abs(paper - no_effect):
        return f"not reproducible: {len(values)} draws tell it to ± {tolerance:.2g} only, ours is {off:.2g} off"
    return f"agrees (within ± {tolerance:.2g})"


def _with_sd(values: FloatArray, form: str = ".2f") -> str:
    mean, sd = mean_sd(values)
    spread = "" if math.isnan(sd) else f", sd {sd:{form}}"
    return f"{mean:{form}}{spread} ({len(values)} draws)"


def _increase(ratios: FloatArray) -> str:
    mean, sd = mean_sd(ratios)
    spread = "" if math.isnan(sd) else f", sd {100 * sd:.0f}"
    return f"{100 * (mean - 1):+.1f} %{spread} ({len(ratios)} draws)"


def _optima(results: Results) -> Iterator[Quoted]:
    for setting, paper in OPTIMA.items():
        values = results.optima[setting]
        yield says(
            "bins-of-the-true",
            what=(setting,),
            paper=(paper,),
            ours=(_with_sd(values),),
            verdict=(_verdict_of_mean(paper, values, 0.05),),
        )


def _mean_over_k(results: Results, column: str, setting: str, method: str) -> float:
    return float(np.mean(results.values(column, setting, method)))


def _compared(results: Results, column: str, first: str, second: str) -> dict[str, tuple[float, float]]:
    return {
        s.numeral: tuple(_mean_over_k(results, column, s.numeral, m) for m in (first, second))  # type: ignore[misc]
        for s in SETTINGS
    }


def _pairs_text(pairs: dict[str, tuple[float, float]]) -> str:
    return "; ".join(f"{setting} {a:.3f} and {b:.3f}" for setting, (a, b) in pairs.items())


def _anonymisation_methods(results: Results) -> Iterator[Quoted]:
    for flash, ours, name in ((FLASH_UPPER, UPPER, "upper bounds"), (FLASH_MEAN, MEAN, "means")):
        pairs = _compared(results, "ratio", flash, ours)
        no_worse = [setting for setting, (a, b) in pairs.items() if a <= b]
        yield says(
            "flash-needs-more-bins", what=(name,), ours=(_pairs_text(pairs),), verdict=(_verdict_of_flash(no_worse),)
        )
    pairs = {s: p for s, p in _compared(results, "plan_feasible", FLASH_MEAN, MEAN).items() if s in ("I", "II", "V")}
    no_higher = [setting for setting, (a, b) in pairs.items() if a <= b]
    yield says("plans-on-means-fit", ours=(_pairs_text(pairs),), verdict=(_verdict_of_flash(no_higher),))


def _verdict_of_flash(exceptions: list[str]) -> str:
    if exceptions:
        return f"differs: not in {', '.join(exceptions)}; {_HIERARCHY}"
    return f"agrees (with intervals that double from a width of {DOUBLING}; others may not)"


def _all_bins(results: Results, widths: Sequence[Mapping[str, Any]]) -> Iterator[Quoted]:
    for setting, k in ALL_BINS_ABOVE.items():
        found = {
            width: _always_full_from(
                [row for row in widths if (row["setting"], row["first_width"]) == (setting, width)]
            )
            for width in DOUBLINGS
        }
        yield says(
            "least-k-from-which",
            what=(setting,),
            paper=(k + 1,),
            ours=(
                "; ".join((f"first width {width:g}: {least or 'none'}" for width, least in found.items())),
                ", ".join(map(str, results.effort.ks)),
            ),
        )


def _always_full_from(rows: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the least k from which every draw used all bins."""
    least = None
    for row in sorted(rows, key=lambda row: -row["k"]):
        if row["all_bins_used"] < 1:
            break
        least = int(row["k"])
    return least


def _mean_statistic(results: Results) -> Iterator[Quoted]:
    for setting, paper in MEAN_INCREASE_AT_10.items():
        values = results.values("ratio", setting, MEAN, k=10)
        yield says(
            "bins-on-means-at",
            what=(setting,),
            paper=(100 * paper,),
            ours=(_increase(values),),
            verdict=(_verdict_of_mean(1 + paper, values, 0.005, no_effect=1),),
        )
    for setting in ("III", "IV"):
        by_k = [mean_sd(results.values("ratio", setting, MEAN, k=k))[0] - 1 for k in results.effort.ks]
        worst = max(by_k, key=abs)
        yield says(
            "largest-deviation-over-k",
            what=(setting,),
            ours=(100 * worst,),
            agrees=abs(worst) < MOST_DEVIATION,
            differs=(_DRAWS,),
        )
    values = results.values("plan_feasible", "I", MEAN, k=8)
    bins = results.values("bins_feasible", "I", MEAN, k=8)
    yield says(
        "feasibility-of-plans-on",
        paper=(MEAN_FEASIBILITY_AT_8,),
        ours=(_with_sd(values), np.mean(bins)),
        verdict=(
            _verdict_of_mean(
                MEAN_FEASIBILITY_AT_8, values, 0.005, f"{_DRAWS}; of equally good plans on means any may be returned"
            ),
        ),
    )


def _robust(results: Results) -> Iterator[Quoted]:
    pairs = [
        (a, b)
        for s in SETTINGS
        for k in results.effort.ks
        for a, b in zip(results.of(s.numeral, ROBUST, k=k), results.of(s.numeral, UPPER, k=k), strict=True)
    ]
    equal = sum(a.bins == b.bins and a.plan_feasible == b.plan_feasible for a, b in pairs)
    budgets = [math.sqrt(-2 * n * math.log(RISK / n)) for n in (25, 50)]
    yield says(
        "robust-with-the-published", ours=(equal, len(pairs), budgets[0], budgets[1]), agrees=equal == len(pairs)
    )


def _stochastic_ratios(results: Results) -> Iterator[Quoted]:
    for k, paper in STOCHASTIC_INCREASE.items():
        values = results.values("ratio", "I", STOCHASTIC, k=k)
        yield says(
            "stochastic-against-the-true",
            what=(k,),
            paper=(100 * paper,),
            ours=(_increase(values),),
            verdict=(_verdict_of_mean(1 + paper, values, 0.005, no_effect=1),),
        )
    over_mean = results.values("bins", "I", STOCHASTIC, k=8) / results.values("bins", "I", MEAN, k=8)
    yield says(
        "stochastic-against-the-mean",
        paper=(100 * STOCHASTIC_OVER_MEAN_AT_8,),
        ours=(_increase(over_mean),),
        verdict=(_verdict_of_mean(1 + STOCHASTIC_OVER_MEAN_AT_8, over_mean, 0.01, no_effect=1),),
    )
    values = results.values("ratio", "III", STOCHASTIC)
    yield says(
        "stochastic-has-no-trade",
        ours=(values.min(), values.max(), values.mean()),
        agrees=values.max() == 1.0,
        differs=(np.mean(values > 1), _DRAWS),
    )


def _stochastic_against_upper(results: Results) -> Iterator[Quoted]:
    lower = {
        s.numeral: all(
            np.mean(results.values("bins", s.numeral, STOCHASTIC, k=k))
            <= np.mean(results.values("bins", s.numeral, UPPER, k=k))
            for k in results.effort.ks
        )
        for s in SETTINGS
    }
    yield says(
        "stochastic-needs-no-more",
        ours=(", ".join((f"{setting} {('yes' if holds else 'no')}" for setting, holds in lower.items())),),
        agrees=all(lower[s] for s in ("I", "III", "V")),
    )
    for setting, paper in WORSE_THAN_UPPER.items():
        worse = sum(
            np.mean(results.values("bins", setting, STOCHASTIC, k=k))
            > np.mean(results.values("bins", setting, UPPER, k=k))
            for k in results.effort.ks
        )
        yield says(
            "values-of-k-at",
            what=(setting,),
            paper=(paper,),
            ours=(worse, len(results.effort.ks)),
            agrees=worse == paper,
        )


def _feasibility(results: Results) -> Iterator[Quoted]:
    certified = [r for r in results.runs if r.method == STOCHASTIC]
    worst, missed = min(r.plan_feasible for r in certified), sum(map(results.misses, certified))
    yield says("stochastic-plans-fit-with", ours=(len(certified) - missed, len(certified), worst), agrees=not missed)
    sampled = [r for r in results.runs if r.method == SAMPLED]
    # A plan that surely fits was not improved by the solver; only the others can overfit.
    improved = [r for r in sampled if r.plan_feasible < 1]
    failed = [r for r in improved if results.misses(r)]
    least = min((r.plan_feasible for r in failed), default=1.0)
    yield says(
        "stochastic-plans-fit-with-95",
        ours=(len(failed), len(sampled), least, len(sampled) - len(improved)),
        agrees=len(failed) <= 0.1 * len(sampled),
    )


def _solving_time(results: Results) -> Iterator[Quoted]:
    seconds = np.array([r.solve_seconds for r in results.runs if r.method == STOCHASTIC])
    gaps = sum(r.bins > r.bound for r in results.runs if r.method == STOCHASTIC)
    yield says(
        "solving-the-stochastic-model",
        paper=(SOLVING_MINUTES,),
        ours=(seconds.max(), np.median(seconds), gaps, len(seconds)),
        agrees=False,
    )


def _table_3(results: Results) -> Iterator[Quoted]:
    risks, told = {}, {}
    for statistic in ("bounds", "multiset"):
        release = table_3(statistic)
        risks[statistic] = release.certificate.plain()["measures"]["risks"]["prosecutor_highest"]
        told[statistic] = _surely_absent(release, BOB)
    yield says(
        "record-linkage-at-k",
        ours=(risks["bounds"], risks["multiset"]),
        agrees=all(math.isclose(risk, 1 / 6) for risk in risks.values()),
    )
    yield says(
        "bob-33-is-surely",
        ours=(", ".join((f"{statistic} {('yes' if absent else 'no')}" for statistic, absent in told.items())),),
        agrees=told == {"bounds": False, "multiset": True},
    )


def table_3(statistic: str) -> dn.Release:
    """Release Table 3 with one of its two statistics."""
    document = {
        "dataset": "patients",
        "protects": "person",
        "attributes": {
            "disease": {"role": "sensitive"},
            "age": {"role": "quasi-identifier", "kind": "numeric", "domain": [0, 120]},
        },
        "mechanism": {"name": "partition", "k": 6, "statistic": statistic},
    }
    columns = {"disease": [disease for disease, _ in TABLE_3], "age": [age for _, age in TABLE_3]}
    data = dn.Dataset.from_table(pa.table(columns), dn.Policy.from_dict(document))
    mechanism = dn.Partition(k=6, statistic=statistic)
    release, _ = mechanism.release(data, ledger=dn.Ledger(":memory:"), noise=dn.Noise(seed=1))
    return release


def _surely_absent(release: dn.Release, age: float) -> bool:
    if release.members is not None:
        return age not in release.members.column("age").to_pylist()
    known = release.uncertain("age")
    return not bool(((known.lower <= age) & (age <= known.upper)).any())
