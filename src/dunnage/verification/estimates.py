# SPDX-License-Identifier: Apache-2.0
"""Checks of releases of estimates: lines against the task, values against intervals, and what vehicles give away.

The certificate holds the whole task, by its digest the one that devices agreed to. Everything else follows from it: the
lines there must be, the public domains they lie in, and the loss of a report, a slot and a day.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dunnage.certificate import Certificate
from dunnage.errors import CheckFailed
from dunnage.exact import decimal_text, exact, plain, shown_number
from dunnage.guarantees import (
    CLAMPED,
    HONEST_REPORTS,
    INDEPENDENT_TIERS,
    RANDOM_SLOTS,
    REPORT_ASSUMPTIONS,
    WEIGHED_VALUES,
    Assumption,
    Basis,
    Guarantee,
    LocalDP,
    MetricLocalDP,
    Neighbours,
    Promise,
    WithinCluster,
    guarantee_from,
)
from dunnage.release import Release
from dunnage.text import several
from dunnage.verification.reading import require, same
from dunnage.verification.report_laws import (
    NUMBERS,
    PATHS,
    PLACES,
    is_published,
    law_of,
    method_of,
    num_paths,
    shows_areas,
    verdict_fits,
)

ESTIMATES_NOT_CHECKED = (
    "that the reports were made by devices of the task, each vehicle's as scheduled, and that none was forged",
    "that values and intervals, at their confidence, are those that the reports give, which are not at hand",
    "how many reports there were and were left out, and whether one counted twice",
    "that domains, grids and tiers were chosen without looking at the data",
    "that no vehicle gave away more than its allowance, and what else was collected from it",
    "that what is said to be in clear and assumed is complete",
)
PLANAR_NOT_CHECKED = ("what a planar report gives away between the corners of the box",)

_TYPES: Mapping[str, pa.DataType] = {
    "quantity": pa.string(),
    "purpose": pa.string(),
    "attribute": pa.string(),
    "bin_lower": pa.float64(),
    "bin_upper": pa.float64(),
    "cell": pa.int64(),
    "lon": pa.float64(),
    "lat": pa.float64(),
    "path": pa.string(),
    "value": pa.float64(),
    "lower": pa.float64(),
    "upper": pa.float64(),
    "unit": pa.string(),
}
_ALWAYS = ("quantity", "purpose", "value", "lower", "upper", "unit")
_QUANTILES = (0.25, 0.5, 0.75)
_MOST_BINS = 16
_SUM_TOLERANCE = 1e-6
_EPSILON_EACH = Fraction(5, 2)
_SIGNIFICANCE = 0.05
_SLOT = "slot of reports"
IN_CLEAR = "how many reports there are of each purpose and tier, and in which tier and at which slot each was made"
LEFT_OUT = ("damaged", "other_task", "impossible", "duplicate", "conflicting")
_STATED = {
    "guarantee": "the guarantee does",
    "holds": "what holds does",
    "in_clear": "what is in clear does",
    "assumptions": "the assumptions do",
    "claim": "the claim does",
    "why": "why it is not proved does",
    "warnings": "the warnings do",
    "numerics": "the numerics do",
}
_FIGURES = {"task", "task_digest", "reports", "lines", "combined", "loss"}
_OTHER_FIGURES = {"maps", "paths", "left_out"}
_RULES = ("auto", "precision", "stratify")
_Line = dict[str, Any]


def estimates_not_checked(certificate: Certificate) -> tuple[str, ...]:
    """Return what nobody can see from a release of estimates alone."""
    planar = '"method": "planar"' in json.dumps(certificate.body["mechanism"])
    return (*ESTIMATES_NOT_CHECKED, *(PLANAR_NOT_CHECKED if planar else ()))


def _purposes(release: Release) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = release.certificate.body["measures"]["task"]["purposes"]
    return found


def check_estimate_columns(release: Release, folder: Path) -> str:
    """Check that there is one table, of the columns that the task needs, and that the task is the one of the digest."""
    measures = release.certificate.body["measures"]
    known = _FIGURES <= measures.keys() <= _FIGURES | _OTHER_FIGURES
    require(known, "certificate.json: figures that do not belong to estimates")
    canonical = json.dumps(measures["task"], sort_keys=True, separators=(",", ":")).encode("ascii")
    fits = hashlib.sha256(canonical).hexdigest() == measures["task_digest"]
    require(fits, "certificate.json: the task does not fit its digest")
    require(measures["task"]["dataset"] == release.certificate.body["dataset"], "certificate.json: another dataset")
    task_id = f"allowances of task {measures['task_digest']}"
    require(release.certificate.body["spend"]["id"] == task_id, "certificate.json: the spend is not that of the task")
    require(list(release.tables) == ["data"], "the tables are not those that the certificate speaks of")
    wanted = set(_ALWAYS)
    for purpose in _purposes(release):
        waves = {"bin_lower", "bin_upper"} if method_of(purpose) == "square-wave" else set()
        wanted |= {
            NUMBERS: {"attribute"} | waves,
            PLACES: {"cell", "lon", "lat"},
            PATHS: {"path"},
        }[purpose["mechanism"]]
    kinds = {name: kind for name, kind in _TYPES.items() if name in wanted}
    found = {item.name: item.type for item in release.data.schema}
    fits = release.data.column_names == list(kinds) and found == kinds
    require(fits, "data: the columns are not those that the certificate speaks of")
    _check_described(release)
    return "table, columns and domains are those of the task, which fits its digest"


def _check_described(release: Release) -> None:
    """Check that parameters, laws and public domains are those of the task."""
    body, purposes = release.certificate.body, _purposes(release)
    mechanism = body["mechanism"]
    names = {"name", "confidence", "combine", "purposes", "as_published"}
    require(mechanism.keys() == names and mechanism["name"] == "estimates", "certificate.json: another mechanism")
    level = mechanism["confidence"]
    fits = isinstance(level, float) and 0.5 <= level < 1 and mechanism["combine"] in _RULES
    require(fits, "certificate.json: a confidence or combination of tiers that there is not")
    told = mechanism["purposes"]
    require(sorted(told) == sorted(purpose["name"] for purpose in purposes), "certificate.json: other purposes")
    for purpose in purposes:
        fits = same(_described(body["measures"]["task"], purpose), told[purpose["name"]])
        require(fits, f"certificate.json: the mechanism of {purpose['name']} is not that of the task")
    published = any(is_published(purpose) for purpose in purposes)
    require(mechanism["as_published"] is published, "certificate.json: does not say whether it was made as published")
    expected = [item for purpose in purposes for item in _attributes(purpose)]
    stated_names = [(item["purpose"], item["name"]) for item in body["attributes"]]
    wanted = [(item["purpose"], item["name"]) for item in expected]
    require(stated_names == wanted, "certificate.json: other attributes than the task has")
    for item, due in zip(body["attributes"], expected, strict=True):
        require(same(due, item), f"certificate.json: the domain of {item['name']} is not that of the task")


def _described(task: Mapping[str, Any], purpose: Mapping[str, Any]) -> dict[str, Any]:
    """Return name and parameters of a purpose's mechanism."""
    parameters, tiers = purpose["parameters"], _slot_tiers(task, purpose)
    common = {
        "name": purpose["mechanism"],
        "tiers": {name: plain(epsilon) for name, epsilon in tiers.items()},
        "method": method_of(purpose),
        "as_published": is_published(purpose),
    }
    if purpose["mechanism"] == NUMBERS:
        sampled = {name: _num_sampled(purpose, epsilon) for name, epsilon in tiers.items()}
        return {**common, "quantities": purpose["quantities"], "sampled": sampled}
    laws = {name: law_of(purpose, epsilon).oracle for name, epsilon in tiers.items()}
    paths = {"steps": purpose["steps"], "hops": parameters.get("hops", 1)} if purpose["mechanism"] == PATHS else {}
    return {**common, "grid": purpose["grid"], "laws": laws, "area_in_clear": shows_areas(purpose), **paths}


def _slot_tiers(task: Mapping[str, Any], purpose: Mapping[str, Any]) -> dict[str, Fraction]:
    """Return the stated epsilon of one slot by tier."""
    window = task["schedule"].get("window") or 1
    return {tier["name"]: exact(tier["epsilon"]) / window for tier in purpose["tiers"]}


def _num_attributes(purpose: Mapping[str, Any]) -> int:
    """Return how many numbers a vehicle has to tell: quantities, and whether they are there where that is told."""
    return sum(2 if item["missing"] == "symbol" else 1 for item in purpose["quantities"])


def _num_sampled(purpose: Mapping[str, Any], epsilon: Fraction) -> int:
    """Return how many numbers one report tells."""
    num = _num_attributes(purpose)
    if is_published(purpose) or method_of(purpose) == "duchi":
        return num
    best = 1 if method_of(purpose) == "harmony" else max(1, min(num, math.floor(epsilon / _EPSILON_EACH)))
    return int(purpose["parameters"].get("sampled", best))


def _attributes(purpose: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Describe what is estimated for a purpose."""
    common = {"role": "estimate", "purpose": purpose["name"]}
    for item in purpose.get("quantities", []):
        ends = {"lower": plain(exact(item["low"])), "upper": plain(exact(item["high"]))}
        bins = {"bins": _num_bins(item)} if method_of(purpose) == "square-wave" else {}
        domain = {"kind": "numeric", "unit": item["unit"], **ends, **bins}
        yield {"name": item["name"], "missing": item["missing"], "domain": domain, **common}
    if purpose["mechanism"] == PLACES:
        domain = {"kind": "grid", **purpose["grid"], "outside": method_of(purpose) != "planar"}
        yield {"name": purpose["name"], "domain": domain, **common}
    if purpose["mechanism"] == PATHS:
        figures = {"steps": purpose["steps"], "hops": purpose["parameters"].get("hops", 1)}
        domain = {"kind": "paths", **purpose["grid"], **figures, "num_paths": num_paths(purpose)}
        yield {"name": purpose["name"], "domain": domain, **common}


def _num_bins(item: Mapping[str, Any]) -> int:
    return int(min(_MOST_BINS, 2 * item["steps"]))


def check_estimate_lines(release: Release, folder: Path) -> str:
    """Check that lines are those of the task, values in their intervals, these in the domain, and shares parts of 1."""
    lines, measures = release.data.to_pylist(), release.certificate.body["measures"]
    require(same(len(lines), measures["lines"]), "certificate.json: another number of lines")
    _check_reports(release)
    rest = iter(lines)
    for purpose in _purposes(release):
        if purpose["mechanism"] == NUMBERS:
            _check_numbers(release, purpose, rest)
        elif measures["reports"][purpose["name"]]:
            (_check_places if purpose["mechanism"] == PLACES else _check_paths)(release, purpose, rest)
    require(next(rest, None) is None, "data: more lines than the task has quantities")
    reports = sum(num for tiers in measures["reports"].values() for num in tiers.values())
    pointed = sum(line["lower"] == line["upper"] for line in lines if line["quantity"] == "mean")
    told = f"; {several(pointed, 'mean')} without any width, which is rare: ask for the reports" if pointed else ""
    return (
        f"{several(len(lines), 'line')} from {several(reports, 'report')}: each is of the task, its value lies in its "
        f"interval and this in the public domain; shares add up to 1{told}"
    )


def _check_reports(release: Release) -> None:
    """Check how many reports there were, were left out and told of each number, and how tiers were put together."""
    measures = release.certificate.body["measures"]
    reports, combined, left_out = measures["reports"], measures["combined"], measures.get("left_out", {})
    purposes = _purposes(release)
    fits = left_out.keys() <= set(LEFT_OUT) and all(_is_count(num) for num in left_out.values())
    require(fits, "certificate.json: reports left out that there cannot be")
    require(sorted(reports) == sorted(p["name"] for p in purposes), "certificate.json: reports of other purposes")
    for purpose in purposes:
        known = {tier["name"] for tier in purpose["tiers"]}
        told = reports[purpose["name"]]
        fits = told.keys() <= known and all(_is_count(num) and num for num in told.values())
        require(fits, f"certificate.json: reports of {purpose['name']} that there cannot be")
        _check_combined(release, purpose, combined.get(purpose["name"], {}))
    require(combined.keys() <= reports.keys(), "certificate.json: tiers combined of other purposes")
    require(any(reports.values()), "certificate.json: estimates from no report")
    _check_maps(release)


def _is_count(num: object) -> bool:
    return type(num) is int and num >= 0


def _check_combined(release: Release, purpose: Mapping[str, Any], stated: Mapping[str, Any]) -> None:
    """Check that tiers were put together by the rule asked for, and how many reports told of each number."""
    body, name = release.certificate.body, purpose["name"]
    told, numbers = body["measures"]["reports"][name], purpose["mechanism"] == NUMBERS
    wrong = f"certificate.json: tiers of {name} combined that there are not"
    subjects = [item["name"] for item in purpose["quantities"]] if numbers else ["shares"] if told else []
    require(sorted(stated) == sorted(subjects), wrong)
    for item in stated.values():
        require({"rule"} <= item.keys() <= {"rule", "p_value", *(["reports"] if numbers else [])}, wrong)
        silent = numbers and item["reports"] == 0
        rule = _rule(body["mechanism"]["combine"], len(told), item.get("p_value"))
        require(item["rule"] == ("none" if silent else rule), wrong)
        require("p_value" not in item or (len(told) > 1 and not silent), wrong)
    if numbers:
        tiers = _slot_tiers(body["measures"]["task"], purpose)
        most = sum(num * _num_sampled(purpose, tiers[tier]) for tier, num in told.items())
        counts = [item["reports"] for item in stated.values()]
        require(all(_is_count(num) and num <= sum(told.values()) for num in counts), wrong)
        whole = len(counts) == _num_attributes(purpose)
        require(sum(counts) == most if whole else sum(counts) <= most, wrong)


def _rule(combine: str, num_tiers: int, p_value: object) -> str:
    """Return how tiers are put together."""
    sound = p_value is None or (isinstance(p_value, float) and 0 <= p_value <= 1)
    require(sound, "certificate.json: a p-value that is none")
    if num_tiers <= 1:
        return "one tier"
    if combine != "auto":
        return combine
    return "stratify" if isinstance(p_value, float) and p_value < _SIGNIFICANCE else "precision"


def _check_maps(release: Release) -> None:
    """Check what is said of each map: how far it is off, or that it is noise."""
    measures = release.certificate.body["measures"]
    maps, reports = measures.get("maps", {}), measures["reports"]
    drawn = [purpose for purpose in _purposes(release) if purpose["mechanism"] != NUMBERS and reports[purpose["name"]]]
    require(sorted(maps) == sorted(purpose["name"] for purpose in drawn), "certificate.json: maps of other purposes")
    for purpose in drawn:
        name = purpose["name"]
        epsilons = list(_slot_tiers(measures["task"], purpose).values())
        fits = verdict_fits(maps[name], purpose, epsilons, sum(reports[name].values()))
        require(fits, f"certificate.json: what is said of the map of {name} does not follow from the task")


def _check_line(line: _Line | None, expected: Mapping[str, Any], low: float, high: float) -> _Line:
    """Check what a line is about and that its value and interval lie where they must."""
    if line is None:
        raise CheckFailed("data: fewer lines than the task has quantities")
    words = " ".join(str(expected[key]) for key in ("quantity", "purpose", "attribute") if expected.get(key))
    empty = {name: "" if _TYPES[name] == pa.string() else None for name in line}
    figures = ("value", "lower", "upper")
    fits = all(same(line[name], expected.get(name, empty[name])) for name in line if name not in figures)
    require(fits and expected.keys() <= line.keys(), f"data: a line is not that of {words}")
    value, lower, upper = (line[name] for name in figures)
    bounded = lower is not None and upper is not None and low <= lower <= upper <= high
    require(bounded, f"data: an interval of {words} is empty or leaves the public domain")
    if value is None:
        whole = lower == low and upper == high and expected["quantity"] in ("mean", "present")
        require(whole, f"data: no value of {words}, yet an interval within the domain")
    else:
        require(lower <= value <= upper, f"data: a value of {words} lies outside its interval")
    return line


def _check_sum(values: Sequence[float], what: str) -> None:
    require(abs(math.fsum(values) - 1) <= _SUM_TOLERANCE, f"data: shares of {what} do not add up to 1")


def _check_numbers(release: Release, purpose: Mapping[str, Any], rest: Iterator[_Line]) -> None:
    name, quantities = purpose["name"], purpose["quantities"]
    known = {}
    for item in quantities:
        expected = {"quantity": "mean", "purpose": name, "attribute": item["name"], "unit": item["unit"]}
        _check_line(next(rest, None), expected, *_ends(item))
        known[item["name"]] = release.certificate.body["measures"]["combined"][name][item["name"]]["reports"] > 0
    for item in quantities:
        if item["missing"] == "symbol":
            expected = {"quantity": "present", "purpose": name, "attribute": item["name"]}
            _check_line(next(rest, None), expected, 0.0, 1.0)
    for item in quantities:
        if method_of(purpose) == "square-wave" and known[item["name"]]:
            _check_distribution(name, item, rest)


def _ends(item: Mapping[str, Any]) -> tuple[float, float]:
    return float(exact(item["low"])), float(exact(item["high"]))


def _check_distribution(purpose: str, item: Mapping[str, Any], rest: Iterator[_Line]) -> None:
    low, high, bins = exact(item["low"]), exact(item["high"]), _num_bins(item)
    edges = [float(low + (high - low) * at / bins) for at in range(bins + 1)]
    common = {"purpose": purpose, "attribute": item["name"]}
    shares = [
        _check_line(
            next(rest, None),
            {"quantity": "share", **common, "bin_lower": edges[at], "bin_upper": edges[at + 1]},
            0.0,
            1.0,
        )["value"]
        for at in range(bins)
    ]
    _check_sum(shares, f"bins of {item['name']}")
    points = [
        _check_line(next(rest, None), {"quantity": f"quantile {level}", **common, "unit": item["unit"]}, *_ends(item))[
            "value"
        ]
        for level in _QUANTILES
    ]
    require(points == sorted(points), f"data: quantiles of {item['name']} are not in order")


def _check_places(release: Release, purpose: Mapping[str, Any], rest: Iterator[_Line]) -> None:
    grid = purpose["grid"]
    side = 1 << (grid["levels"] - 1)
    outside = 0 if method_of(purpose) == "planar" else 1
    shares = []
    for cell in range(side * side + outside):
        place = dict(zip(("lon", "lat"), _centre(grid, cell), strict=True)) if cell < side * side else {}
        expected = {"quantity": "share", "purpose": purpose["name"], "cell": cell, **place}
        shares.append(_check_line(next(rest, None), expected, 0.0, 1.0)["value"])
    _check_sum(shares, purpose["name"])


def _centre(grid: Mapping[str, Any], cell: int) -> tuple[float, float]:
    """Return longitude and latitude of the middle of a cell, of a code that begins with a bit of the column."""
    side = 1 << (grid["levels"] - 1)
    bits = f"{cell:0{2 * (grid['levels'] - 1)}b}" if grid["levels"] > 1 else "00"
    column, row = int(bits[::2], 2), int(bits[1::2], 2)
    west, south, east, north = (exact(end) for end in grid["box"])
    middle = Fraction(1, 2)
    return float(west + (column + middle) * (east - west) / side), float(
        south + (row + middle) * (north - south) / side
    )


def _check_paths(release: Release, purpose: Mapping[str, Any], rest: Iterator[_Line]) -> None:
    name, told = purpose["name"], release.certificate.body["measures"]["paths"][purpose["name"]]
    whole = told.keys() == {"paths", "listed"} and all(type(num) is int for num in told.values())
    fits = whole and 0 < told["listed"] <= told["paths"] == num_paths(purpose)
    require(fits, f"certificate.json: does not tell the paths of {name}")
    shares, paths = [], []
    for _ in range(told["listed"] + (told["listed"] < told["paths"])):
        line = next(rest, None)
        path = None if line is None else line.get("path")
        expected = {"quantity": "share", "purpose": name, "path": path}
        shares.append(_check_line(line, expected, 0.0, 1.0)["value"])
        paths.append(str(path))
    if told["listed"] < told["paths"]:
        require(paths.pop() == "other", f"data: what is left of the paths of {name} is not the last line")
    side = 1 << (purpose["grid"]["levels"] - 1)
    hops = purpose["parameters"].get("hops", 1) if _reachable_only(purpose) else side
    require(len(set(paths)) == len(paths), f"data: a path of {name} is listed twice")
    sound = all(_is_path(path, purpose, side, hops) for path in paths)
    require(sound, f"data: a path of {name} is none of the grid")
    listed = np.array(shares[: told["listed"]])
    require(bool((np.diff(listed) <= 0).all()), f"data: the paths of {name} are not in order of their shares")
    _check_sum(shares, name)


def _reachable_only(purpose: Mapping[str, Any]) -> bool:
    return not shows_areas(purpose)


def _is_path(path: str, purpose: Mapping[str, Any], side: int, hops: int) -> bool:
    """Return whether a text is one of a path: cells of the grid, each within reach of the one before."""
    if path == "outside":
        return True
    places = path.split(">")
    inside = [place for place in places if place != "outside"]
    plain_form = all(place.isascii() and place.isdigit() and str(int(place)) == place for place in inside)
    if len(places) != purpose["steps"] or not plain_form or (len(inside) < len(places) and _reachable_only(purpose)):
        return False
    cells = [int(place) for place in inside]
    if not all(cell < side * side for cell in cells):
        return False
    spots = [_spot(cell) for cell in cells]
    return all(max(abs(a[0] - b[0]), abs(a[1] - b[1])) <= hops for a, b in itertools.pairwise(spots))


def _spot(cell: int) -> tuple[int, int]:
    """Return column and row of a cell."""
    bits = f"{cell:b}"
    bits = bits.zfill(len(bits) + len(bits) % 2)
    return int(bits[::2], 2), int(bits[1::2], 2)


def check_estimate_loss(release: Release, folder: Path) -> str:
    """Check what a report, a slot and a day give away, and that the guarantee is that of a slot."""
    body = release.certificate.body
    task, loss = body["measures"]["task"], body["measures"]["loss"]
    expected, within = _losses(task, loss)
    require(same(expected, loss), "certificate.json: what vehicles give away does not follow from the task")
    _check_promise(release)
    days = [told["day"] for told in loss["tiers"].values()]
    known = [exact(day) for day in days if day is not None]
    totals = [body["composition"][key] for key in ("total", "total_per_period")]
    held = guarantee_from(body.get("holds", body["guarantee"]))
    if len(known) == len(days) and isinstance(held, LocalDP) and body["basis"] != "void":
        stated = [plain(exact(task["limits"]["lifetime"])), plain(max(known))]
        due: list[Any] = [{"epsilon": epsilon, "delta": 0} for epsilon in stated]
    else:
        due = ["none", "none"]
    require(same(due, totals), "certificate.json: the totals of a day and a lifetime do not follow from the task")
    return _loss_words(release, max(within.values()))


def _loss_words(release: Release, within: Fraction) -> str:
    """Say what a slot of reports gives away, and what is claimed if that is something else."""
    body, epsilon = release.certificate.body, f"epsilon {decimal_text(within)}"
    claimed = body["basis"] == Basis.CLAIMED
    if any(told["slot"] is None for told in body["measures"]["loss"]["tiers"].values()):
        words = f"a slot of reports shows areas as they are, without any bound across areas; within areas {epsilon}"
    else:
        words = f"a slot of reports gives away {epsilon}"
    stated = decimal_text(exact(body["guarantee"]["epsilon"]))
    agrees = f"and not epsilon {stated} as claimed" if claimed else "as stated"
    return f"{words} at most, {agrees}, by the laws of the task"


def _losses(task: Mapping[str, Any], stated: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Fraction]]:
    """Return what vehicles of each tier give away, and what they do between values of one area."""
    tiers, within = {}, {}
    for tier in _tier_names(task):
        reports = {
            purpose["name"]: _report_loss(task, purpose, tier, stated["tiers"][tier]["reports"])
            for purpose in task["purposes"]
        }
        known = [total for total, _ in reports.values() if total is not None]
        slot = sum(known, Fraction(0)) if len(known) == len(reports) else None
        day = None if slot is None else slot * task["schedule"]["slots_per_day"]
        tiers[tier] = {
            "reports": {name: _plain(total) for name, (total, _) in reports.items()},
            "slot": _plain(slot),
            "day": _plain(day),
        }
        within[tier] = sum((inner for _, inner in reports.values()), Fraction(0))
    bounded = all(told["day"] is not None for told in tiers.values())
    lifetime = plain(exact(task["limits"]["lifetime"])) if bounded else None
    return {"tiers": tiers, "lifetime": lifetime}, within


def _plain(loss: Fraction | None) -> int | float | str | None:
    return None if loss is None else plain(loss)


def _tier_names(task: Mapping[str, Any]) -> list[str]:
    """Return the tiers a vehicle may be in: of the purposes with several, else of the first one."""
    several_tiers = [purpose for purpose in task["purposes"] if len(purpose["tiers"]) > 1]
    return [tier["name"] for tier in (several_tiers or task["purposes"])[0]["tiers"]]


def _epsilon(task: Mapping[str, Any], purpose: Mapping[str, Any], tier: str) -> Fraction:
    """Return the stated epsilon of one slot."""
    tiers = {item["name"]: item["epsilon"] for item in purpose["tiers"]}
    stated = tiers[tier] if len(tiers) > 1 else next(iter(tiers.values()))
    return exact(stated) / (task["schedule"].get("window") or 1)


def _report_loss(
    task: Mapping[str, Any], purpose: Mapping[str, Any], tier: str, stated: Mapping[str, Any]
) -> tuple[Fraction | None, Fraction]:
    """Return the true loss of a report between any two values, None without a bound, and between those of one area."""
    epsilon = _epsilon(task, purpose, tier)
    if purpose["mechanism"] == NUMBERS:
        return (epsilon * _num_attributes(purpose) if is_published(purpose) else epsilon,) * 2
    if method_of(purpose) == "planar":  # the distance of corners is not measured again
        far = exact(stated[purpose["name"]])
        return far, far
    return _grid_loss(purpose, epsilon)


def _grid_loss(purpose: Mapping[str, Any], epsilon: Fraction) -> tuple[Fraction | None, Fraction]:
    """Return the true loss of a report of a place or path: between any two, and between those of one area."""
    factor = 1
    if is_published(purpose):
        factor = 2 * (purpose["steps"] if method_of(purpose) == "product" else 1)
    shown = shows_areas(purpose) and purpose["grid"]["area_levels"] > 1
    return None if shown else epsilon * factor, epsilon * factor


def _check_promise(release: Release) -> None:
    """Check that everything stated of the promise follows from the task."""
    body = release.certificate.body
    due = _promise(release)
    void = body["basis"] == Basis.VOID
    require(void or body["basis"] == due.basis, "certificate.json: the basis does not follow from the task")
    expected = (due.voided(body["why"]) if void else due).to_dict()
    for name, words in _STATED.items():
        require(same(expected.get(name), body.get(name)), f"certificate.json: {words} not follow from the task")


def _promise(release: Release) -> Promise:
    """Return what a release of estimates of the task promises, for the reports of one slot."""
    body = release.certificate.body
    measures, task = body["measures"], body["measures"]["task"]
    parts = [_part(task, purpose, measures["loss"]) for purpose in task["purposes"]]
    guarantee, holds = _guarantees(task, parts, _losses(task, measures["loss"])[1])
    claimed = any(part.basis is Basis.CLAIMED for part in parts)
    noisy = [f"{name} is noise: {text}" for name, text in _in_order(task, measures.get("maps", {})) if ": use " in text]
    return Promise(
        guarantee=guarantee,
        basis=Basis.CLAIMED if claimed else Basis.PROVED,
        mechanism=body["mechanism"],
        assumptions=_assumed(body["mechanism"]["combine"], measures["combined"]),
        in_clear=(IN_CLEAR, *dict.fromkeys(item for part in parts for item in part.in_clear)),
        claim="; ".join(_named(task, [part.claim for part in parts])),
        holds=holds,
        why="; ".join(_named(task, [part.why for part in parts])),
        warnings=(*dict.fromkeys(item for part in parts for item in part.warnings), *noisy),
    )


def _in_order(task: Mapping[str, Any], told: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(purpose["name"], told[purpose["name"]]) for purpose in task["purposes"] if purpose["name"] in told]


def _named(task: Mapping[str, Any], texts: Sequence[str]) -> list[str]:
    """Return texts, with the purpose before each if there are several."""
    told = zip(task["purposes"], texts, strict=True)
    return [f"{purpose['name']}: {text}" if len(texts) > 1 else text for purpose, text in told if text]


def _assumed(combine: str, combined: Mapping[str, Any]) -> tuple[Assumption, ...]:
    rules = {item["rule"] for told in combined.values() for item in told.values()}
    weighed = WEIGHED_VALUES if combine == "auto" else INDEPENDENT_TIERS
    always = (*REPORT_ASSUMPTIONS, RANDOM_SLOTS, CLAMPED, HONEST_REPORTS)
    return (*always, weighed) if "precision" in rules else always


def _part(task: Mapping[str, Any], purpose: Mapping[str, Any], loss: Mapping[str, Any]) -> Promise:
    """Return what one report of a purpose promises, in the tier that gives away most."""
    epsilon = max(_slot_tiers(task, purpose).values())
    if purpose["mechanism"] == NUMBERS:
        return _numbers_part(task, purpose, epsilon)
    if method_of(purpose) == "planar":
        return _planar_part(purpose, epsilon, loss)
    return _grid_part(purpose, epsilon)


def _local(epsilon: Fraction, protects: str = "report") -> LocalDP:
    return LocalDP(epsilon=epsilon, protects=protects, neighbours=Neighbours.REPLACE_ONE)


def _numbers_part(task: Mapping[str, Any], purpose: Mapping[str, Any], epsilon: Fraction) -> Promise:
    num = _num_attributes(purpose)
    drawn = any(_num_sampled(purpose, each) < num for each in _slot_tiers(task, purpose).values())
    middle = [item["name"] for item in purpose["quantities"] if item["missing"] == "middle"]
    stated = Promise(
        guarantee=_local(epsilon),
        basis=Basis.PROVED,
        mechanism={},
        in_clear=("which of the numbers a report tells, drawn without looking at them",) if drawn else (),
        warnings=(f"a missing number counts as the middle of its domain: {', '.join(middle)}",) if middle else (),
    )
    if not is_published(purpose):
        return stated
    loss = shown_number(num * epsilon)
    return replace(
        stated,
        basis=Basis.CLAIMED,
        claim=f"epsilon {shown_number(epsilon)} for all numbers of a report",
        holds=_local(num * epsilon),
        why=f"each of {num} numbers is hidden at the whole epsilon: a report gives away {loss}",
    )


def _planar_part(purpose: Mapping[str, Any], epsilon: Fraction, loss: Mapping[str, Any]) -> Promise:
    far = max(exact(told["reports"][purpose["name"]]) for told in loss["tiers"].values())
    guarantee = MetricLocalDP(epsilon=epsilon, protects="report", neighbours=Neighbours.REPLACE_ONE, distance="1 km")
    warnings = (
        f"between the corners of the box a report gives away epsilon {float(far):.4g}",
        "a place outside the box is moved to its border, a missing one to its middle",
        "distances are those between cells",
    )
    return Promise(guarantee=guarantee, basis=Basis.PROVED, mechanism={}, warnings=warnings)


def _grid_part(purpose: Mapping[str, Any], epsilon: Fraction) -> Promise:
    held, in_clear = _grid_held(purpose, epsilon)
    stated = Promise(
        guarantee=held, basis=Basis.PROVED, mechanism={}, in_clear=in_clear, warnings=_path_warnings(purpose)
    )
    if not is_published(purpose):
        return stated
    what = "paths" if purpose["mechanism"] == PATHS else "places"
    why = f"every bit is turned over with odds of its own: two {what} differ by epsilon {shown_number(held.epsilon)}"
    return replace(
        stated,
        guarantee=_local(epsilon),
        basis=Basis.CLAIMED,
        claim=f"epsilon {shown_number(epsilon)} between any two {what}",
        holds=held,
        why=why + (", and areas are shown as they are: across areas there is no bound" if in_clear else ""),
    )


def _grid_held(purpose: Mapping[str, Any], epsilon: Fraction) -> tuple[LocalDP | WithinCluster, tuple[str, ...]]:
    """Return what holds for a report of a place or path, and what it shows in clear."""
    total, within = _grid_loss(purpose, epsilon)
    if total is not None:
        return _local(total), ()
    depth = purpose["grid"]["area_levels"]
    areas = f"the {4 ** (depth - 1)} areas of the first {depth} levels of the grid"
    if purpose["mechanism"] == PATHS:
        areas = f"the sequences of {purpose['steps']} of {areas}"
    held = WithinCluster(epsilon=within, protects="report", neighbours=Neighbours.REPLACE_ONE, clusters=areas)
    shows = f"which of {areas} a report comes from; one of a place outside the box, or missing, comes from the first"
    return held, (shows,)


def _path_warnings(purpose: Mapping[str, Any]) -> tuple[str, ...]:
    if purpose["mechanism"] != PATHS or is_published(purpose):
        return ()
    missing = "a path with a place that is outside the box or missing is reported as missing"
    if shows_areas(purpose):
        return (missing,)
    hops = purpose["parameters"].get("hops", 1)
    moved = f"a path with a step of more than {hops} cells is moved to a reachable one before it is perturbed: "
    return missing, moved + "each cell towards the one before"


def _guarantees(
    task: Mapping[str, Any], parts: Sequence[Promise], within: Mapping[str, Fraction]
) -> tuple[Guarantee, Guarantee | None]:
    """Return what is stated of a slot of reports, and what holds instead if that is only claimed."""
    if len(parts) == 1:
        return parts[0].guarantee, parts[0].holds
    held: LocalDP | WithinCluster = _local(max(within.values()), _SLOT)
    found = [item for part in parts for item in (part.guarantee, part.holds) if isinstance(item, WithinCluster)]
    if found:
        clusters = " and ".join(dict.fromkeys(item.clusters for item in found))
        held = WithinCluster(epsilon=held.epsilon, protects=_SLOT, neighbours=Neighbours.REPLACE_ONE, clusters=clusters)
    if all(part.basis is Basis.PROVED for part in parts):
        return held, None
    stated = max(sum((_epsilon(task, purpose, tier) for purpose in task["purposes"]), Fraction(0)) for tier in within)
    return _local(stated, _SLOT), held


# Laws of reports of places and paths, written down again: which oracle is the best, and how far shares are off.
