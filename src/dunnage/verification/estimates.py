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
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dunnage.certificate import Certificate
from dunnage.errors import CheckFailed
from dunnage.exact import decimal_text, exact, plain
from dunnage.guarantees import LocalDP, MetricLocalDP, Neighbours, WithinCluster, guarantee_from
from dunnage.release import Release
from dunnage.release_words import several
from dunnage.verification.reading import require, same

ESTIMATES_NOT_CHECKED = (
    "that the reports were made by devices of the task, each vehicle's as scheduled, and that none was forged",
    "that values and intervals are those that the reports give: the reports themselves are not at hand",
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
_NUMBERS, _PLACES, _PATHS = "local-numeric", "local-location", "local-trajectory"
_QUANTILES = (0.25, 0.5, 0.75)
_MOST_BINS = 16
_SUM_TOLERANCE = 1e-6
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


def _method(purpose: Mapping[str, Any]) -> str:
    return str(purpose["parameters"].get("method", ""))


def check_estimate_columns(release: Release, folder: Path) -> str:
    """Check that there is one table, of the columns that the task needs, and that the task is the one of the digest."""
    measures = release.certificate.body["measures"]
    known = _FIGURES <= measures.keys() <= _FIGURES | _OTHER_FIGURES
    require(known, "certificate.json: figures that do not belong to estimates")
    canonical = json.dumps(measures["task"], sort_keys=True, separators=(",", ":")).encode("ascii")
    fits = hashlib.sha256(canonical).hexdigest() == measures["task_digest"]
    require(fits, "certificate.json: the task does not fit its digest")
    require(measures["task"]["dataset"] == release.certificate.body["dataset"], "certificate.json: another dataset")
    require(list(release.tables) == ["data"], "the tables are not those that the certificate speaks of")
    wanted = set(_ALWAYS)
    for purpose in _purposes(release):
        waves = {"bin_lower", "bin_upper"} if _method(purpose) == "square-wave" else set()
        wanted |= {
            _NUMBERS: {"attribute"} | waves,
            _PLACES: {"cell", "lon", "lat"},
            _PATHS: {"path"},
        }[purpose["mechanism"]]
    kinds = {name: kind for name, kind in _TYPES.items() if name in wanted}
    found = {item.name: item.type for item in release.data.schema}
    fits = release.data.column_names == list(kinds) and found == kinds
    require(fits, "data: the columns are not those that the certificate speaks of")
    _check_described(release)
    return "table, columns and domains are those of the task, which fits its digest"


def _check_described(release: Release) -> None:
    """Check that parameters and public domains are those of the task."""
    mechanism, purposes = release.certificate.body["mechanism"], _purposes(release)
    names = {"name", "confidence", "combine", "purposes", "as_published"}
    require(mechanism.keys() == names and mechanism["name"] == "estimates", "certificate.json: another mechanism")
    level = mechanism["confidence"]
    fits = isinstance(level, float) and 0.5 <= level < 1 and mechanism["combine"] in _RULES
    require(fits, "certificate.json: a confidence or combination of tiers that there is not")
    told = mechanism["purposes"]
    require(sorted(told) == sorted(purpose["name"] for purpose in purposes), "certificate.json: other purposes")
    window = release.certificate.body["measures"]["task"]["schedule"].get("window") or 1
    for purpose in purposes:
        stated = told[purpose["name"]]
        tiers = {tier["name"]: plain(exact(tier["epsilon"]) / window) for tier in purpose["tiers"]}
        subject = "quantities" if purpose["mechanism"] == _NUMBERS else "grid"
        fits = (
            stated["name"] == purpose["mechanism"]
            and same(tiers, stated["tiers"])
            and same(purpose[subject], stated[subject])
            and stated["as_published"] is purpose["parameters"].get("as_published", False)
        )
        require(fits, f"certificate.json: the mechanism of {purpose['name']} is not that of the task")
    published = any(stated["as_published"] for stated in told.values())
    require(mechanism["as_published"] is published, "certificate.json: does not say whether it was made as published")
    expected = [(p["name"], name) for p in purposes for name in _subjects(p)]
    stated_names = [(item["purpose"], item["name"]) for item in release.certificate.body["attributes"]]
    require(stated_names == expected, "certificate.json: other attributes than the task has")
    for item, domain in zip(release.certificate.body["attributes"], _domains(purposes), strict=True):
        agree = all(same(item["domain"].get(key), value) for key, value in domain.items())
        require(agree, f"certificate.json: the domain of {item['name']} is not that of the task")


def _subjects(purpose: Mapping[str, Any]) -> list[str]:
    return [quantity["name"] for quantity in purpose.get("quantities", [])] or [purpose["name"]]


def _domains(purposes: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    for purpose in purposes:
        for quantity in purpose.get("quantities", []):
            ends = {"lower": plain(exact(quantity["low"])), "upper": plain(exact(quantity["high"]))}
            yield {"kind": "numeric", "unit": quantity["unit"], **ends}
        if "grid" in purpose:
            yield {"kind": "paths" if purpose["mechanism"] == _PATHS else "grid", **purpose["grid"]}


def check_estimate_lines(release: Release, folder: Path) -> str:
    """Check that lines are those of the task, values in their intervals, these in the domain, and shares parts of 1."""
    lines, measures = release.data.to_pylist(), release.certificate.body["measures"]
    require(same(len(lines), measures["lines"]), "certificate.json: another number of lines")
    _check_reports(release)
    rest = iter(lines)
    for purpose in _purposes(release):
        if purpose["mechanism"] == _NUMBERS:
            _check_numbers(release, purpose, rest)
        elif measures["reports"][purpose["name"]]:
            (_check_places if purpose["mechanism"] == _PLACES else _check_paths)(release, purpose, rest)
    require(next(rest, None) is None, "data: more lines than the task has quantities")
    reports = sum(num for tiers in measures["reports"].values() for num in tiers.values())
    return (
        f"{several(len(lines), 'line')} from {several(reports, 'report')}: each is of the task, its value lies in its "
        "interval and this in the public domain; shares add up to 1"
    )


def _check_reports(release: Release) -> None:
    measures = release.certificate.body["measures"]
    reports, combined = measures["reports"], measures["combined"]
    purposes = _purposes(release)
    require(sorted(reports) == sorted(p["name"] for p in purposes), "certificate.json: reports of other purposes")
    for purpose in purposes:
        known = {tier["name"] for tier in purpose["tiers"]}
        told = reports[purpose["name"]]
        fits = told.keys() <= known and all(type(num) is int and num > 0 for num in told.values())
        require(fits, f"certificate.json: reports of {purpose['name']} that there cannot be")
        rules = [item["rule"] for item in combined.get(purpose["name"], {}).values()]
        one = all(rule in ("one tier", "none") for rule in rules) == (len(told) <= 1) or "none" in rules
        require(one or not rules, f"certificate.json: tiers of {purpose['name']} combined that there are not")
    require(any(reports.values()), "certificate.json: estimates from no report")


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
        if _method(purpose) == "square-wave" and known[item["name"]]:
            _check_distribution(name, item, rest)


def _ends(item: Mapping[str, Any]) -> tuple[float, float]:
    return float(exact(item["low"])), float(exact(item["high"]))


def _check_distribution(purpose: str, item: Mapping[str, Any], rest: Iterator[_Line]) -> None:
    low, high, bins = exact(item["low"]), exact(item["high"]), min(_MOST_BINS, 2 * item["steps"])
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
    outside = 0 if _method(purpose) == "planar" else 1
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
    require(whole and 0 < told["listed"] <= told["paths"], f"certificate.json: does not tell the paths of {name}")
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
    parameters = purpose["parameters"]
    return not (parameters.get("as_published") or parameters.get("area_in_clear"))


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
    _check_guarantee(release, within)
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
    slot = max(within.values())
    return f"a slot of reports gives away epsilon {decimal_text(slot)} at most, as stated, by the laws of the task"


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
    epsilon, parameters = _epsilon(task, purpose, tier), purpose["parameters"]
    published = parameters.get("as_published", False)
    if purpose["mechanism"] == _NUMBERS:
        numbers = sum(2 if item["missing"] == "symbol" else 1 for item in purpose["quantities"])
        return (epsilon * numbers if published else epsilon,) * 2
    if _method(purpose) == "planar":  # the distance of corners is not measured again
        far = exact(stated[purpose["name"]])
        return far, far
    factor = 1
    if published:
        product = purpose["mechanism"] == _PATHS and _method(purpose) in ("", "auto", "product")
        factor = 2 * (purpose["steps"] if product else 1)
    shown = published or parameters.get("area_in_clear", False)
    return None if shown and purpose["grid"]["area_levels"] > 1 else epsilon * factor, epsilon * factor


def _check_guarantee(release: Release, within: Mapping[str, Fraction]) -> None:
    """Check that what holds is the loss of a slot in the tier that gives away most."""
    body, guarantee = release.certificate.body, release.certificate.guarantee
    task = body["measures"]["task"]
    wrong = "certificate.json: the guarantee does not follow from the task"
    held = guarantee_from(body["holds"]) if "holds" in body else guarantee
    stated = max(sum((_epsilon(task, purpose, tier) for purpose in task["purposes"]), Fraction(0)) for tier in within)
    require(isinstance(held, LocalDP | WithinCluster | MetricLocalDP), wrong)
    assert isinstance(held, LocalDP | WithinCluster | MetricLocalDP)
    require(held.neighbours is Neighbours.REPLACE_ONE, wrong)
    require(held.protects == ("report" if len(task["purposes"]) == 1 else "slot of reports"), wrong)
    if isinstance(held, MetricLocalDP):
        require(len(task["purposes"]) == 1 and held.epsilon == stated and held.distance == "1 km", wrong)
        return
    void = body["basis"] == "void"
    in_clear = any(told["slot"] is None for told in body["measures"]["loss"]["tiers"].values())
    published = body["mechanism"]["as_published"]
    require("holds" in body or not published or void, wrong)
    true = stated if void and published else max(within.values())
    require(held.epsilon == true, wrong)
    require(isinstance(held, WithinCluster) == in_clear or (void and published), wrong)
    require(not published or (isinstance(guarantee, LocalDP) and guarantee.epsilon == stated), wrong)
