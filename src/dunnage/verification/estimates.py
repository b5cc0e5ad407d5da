# SPDX-License-Identifier: Apache-2.0
"""Checks of releases of estimates: the task is made again and asked, then lines and figures are counted.

The certificate holds the whole task, by its digest the one that devices agreed to. From it follow the mechanisms, what
a report, a slot and a day give away, the promise, the columns and the lines there must be. What is left are figures of
the reports, which are not at hand: these must lie where they can.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from dunnage.certificate import Certificate
from dunnage.errors import CheckFailed, UserError
from dunnage.exact import decimal_text, exact
from dunnage.guarantees import Basis, Promise
from dunnage.kinds.common import require, same
from dunnage.local.client import TaskLosses, check_task, mechanisms_of
from dunnage.local.location import LocalLocation, NoiseVerdict
from dunnage.local.numeric import LocalNumeric
from dunnage.local.promises import (
    COMBINATIONS,
    EMPTY,
    LEFT_OUT,
    NAME,
    NO_TIER,
    OTHER,
    QUANTILES,
    bin_edges,
    chosen_rule,
    columns_of,
    composed,
    describe_subjects,
    estimates_promise,
    has_bins,
    has_outside,
    loss_measures,
    loss_within,
    num_paths,
    path_index,
    place_of,
    spend_id,
)
from dunnage.local.subjects import Quantity
from dunnage.local.task import Mechanism, Task
from dunnage.local.trajectory import LocalTrajectory
from dunnage.release import Release
from dunnage.text import several

ESTIMATES_NOT_CHECKED = (
    "that the reports were made by devices of the task, each vehicle's as scheduled, and that none was forged",
    "that values and intervals, at their confidence, are those that the reports give, which are not at hand",
    "how many reports there were and were left out, and whether one counted twice",
    "that domains, grids and tiers were chosen without looking at the data",
    "that no vehicle gave away more than its allowance, and what else was collected from it",
    "that what is said to be in clear and assumed is complete",
)
_SUM_TOLERANCE = 1e-6
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
_Line = Mapping[str, Any]


def _stated(certificate: Certificate) -> Mapping[str, Any]:
    """Return what a certificate states, as plain data."""
    return certificate.body


@lru_cache(maxsize=4)
def _made_again(task: str) -> tuple[Task, TaskLosses, Mapping[str, Mechanism]]:
    """Make a task again once, however often it is asked: some laws take long."""
    made = Task.from_json(task)
    return made, check_task(made), mechanisms_of(made)


@dataclass(frozen=True)
class Rebuilt:
    """What a certificate of estimates states, and the task, losses and mechanisms made again from it."""

    stated: Mapping[str, Any]
    task: Task
    losses: TaskLosses
    mechanisms: Mapping[str, Mechanism]  # By purpose

    @classmethod
    def of(cls, certificate: Certificate) -> Rebuilt:
        """Make the task of a certificate again; one that devices would refuse fails the check."""
        stated = _stated(certificate)
        try:
            return cls(stated, *_made_again(json.dumps(stated["measures"]["task"])))
        except UserError:
            raise CheckFailed("certificate.json: the task is none that devices would take") from None

    @property
    def measures(self) -> Mapping[str, Any]:
        return self.stated["measures"]  # type: ignore[no-any-return]

    def verdicts(self) -> dict[str, NoiseVerdict]:
        """Judge each map that there are reports for, by their number."""
        nums = {name: sum(told.values()) for name, told in self.measures["reports"].items()}
        return {
            name: mechanism.noise_verdict(nums[name])
            for name, mechanism in self.mechanisms.items()
            if not isinstance(mechanism, LocalNumeric) and nums[name]
        }

    def promise(self) -> Promise:
        """Return what the release promises, by the task and the figures stated."""
        mechanism, combined = self.stated["mechanism"], self.measures["combined"]
        due = estimates_promise(
            self.task,
            self.losses,
            self.mechanisms,
            confidence=mechanism["confidence"],
            combine=mechanism["combine"],
            rules={item["rule"] for told in combined.values() for item in told.values()},
            verdicts=self.verdicts(),
        )
        return due.voided(self.stated["why"]) if self.stated["basis"] == Basis.VOID else due


def check_estimate_columns(release: Release) -> str:
    """Check that there is one table, of the columns that the task needs, and that the task is the one of the digest."""
    stated = _stated(release.certificate)
    measures = stated["measures"]
    known = _FIGURES <= measures.keys() <= _FIGURES | _OTHER_FIGURES
    require(known, "certificate.json: figures that do not belong to estimates")
    canonical = json.dumps(measures["task"], sort_keys=True, separators=(",", ":")).encode("ascii")
    fits = hashlib.sha256(canonical).hexdigest() == measures["task_digest"]
    require(fits, "certificate.json: the task does not fit its digest")
    rebuilt = Rebuilt.of(release.certificate)
    require(rebuilt.task.dataset == stated["dataset"], "certificate.json: another dataset")
    require("period" not in stated, "certificate.json: a period, which estimates do not have")
    require(stated["spend"]["id"] == spend_id(rebuilt.task), "certificate.json: the spend is not that of the task")
    require(list(release.tables) == ["data"], "the tables are not those that the certificate speaks of")
    columns = columns_of(rebuilt.mechanisms)
    found = [(item.name, item.type) for item in release.data.schema]
    require(found == list(columns.items()), "data: the columns are not those that the certificate speaks of")
    _check_described(rebuilt)
    return "table, columns and domains are those of the task, which fits its digest"


def _check_described(rebuilt: Rebuilt) -> None:
    """Check that parameters, laws and public domains are those of the task."""
    told = rebuilt.stated["mechanism"]
    keys = {"name", "confidence", "combine", "purposes", "as_published"}
    require(told.keys() == keys and told["name"] == NAME, "certificate.json: another mechanism")
    level = told["confidence"]
    fits = isinstance(level, float) and 0.5 <= level < 1 and told["combine"] in COMBINATIONS
    require(fits, "certificate.json: a confidence or combination of tiers that there is not")
    require(told["purposes"].keys() == rebuilt.mechanisms.keys(), "certificate.json: other purposes")
    for name, mechanism in rebuilt.mechanisms.items():
        fits = same(mechanism.describe(), told["purposes"][name])
        require(fits, f"certificate.json: the mechanism of {name} is not that of the task")
    published = any(mechanism.as_published for mechanism in rebuilt.mechanisms.values())
    require(told["as_published"] is published, "certificate.json: does not say whether it was made as published")
    subjects, expected = rebuilt.stated["attributes"], describe_subjects(rebuilt.mechanisms)
    names = [[(item["purpose"], item["name"]) for item in items] for items in (subjects, expected)]
    require(names[0] == names[1], "certificate.json: other attributes than the task has")
    for item, due in zip(subjects, expected, strict=True):
        require(same(due, item), f"certificate.json: the domain of {item['name']} is not that of the task")


def check_estimate_lines(release: Release) -> str:
    """Check that lines are those of the task, values in their intervals, these in the domain, and shares parts of 1."""
    lines, rebuilt = release.data.to_pylist(), Rebuilt.of(release.certificate)
    measures = rebuilt.measures
    require(same(len(lines), measures["lines"]), "certificate.json: another number of lines")
    _check_reports(rebuilt)
    rest = iter(lines)
    for name, mechanism in rebuilt.mechanisms.items():
        if isinstance(mechanism, LocalNumeric):
            _check_numbers(name, mechanism, measures["combined"][name], rest)
        elif measures["reports"][name] and isinstance(mechanism, LocalTrajectory):
            _check_paths(name, mechanism, measures["paths"][name], rest)
        elif measures["reports"][name] and isinstance(mechanism, LocalLocation):
            _check_places(name, mechanism, rest)
    require(next(rest, None) is None, "data: more lines than the task has quantities")
    reports = sum(num for tiers in measures["reports"].values() for num in tiers.values())
    pointed = sum(line["lower"] == line["upper"] for line in lines if line["quantity"] == "mean")
    told = f"; {several(pointed, 'mean')} without any width, which is rare: ask for the reports" if pointed else ""
    return (
        f"{several(len(lines), 'line')} from {several(reports, 'report')}: each is of the task, its value lies in its "
        f"interval and this in the public domain; shares add up to 1{told}"
    )


def _check_reports(rebuilt: Rebuilt) -> None:
    """Check how many reports there were, were left out and told of each number, and what is said of each map."""
    measures = rebuilt.measures
    reports, combined, left_out = measures["reports"], measures["combined"], measures.get("left_out", {})
    fits = (
        measures.get("left_out") != {}
        and left_out.keys() <= set(LEFT_OUT)
        and all(_is_count(num) for num in left_out.values())
    )
    require(fits, "certificate.json: reports left out that there cannot be")
    require(reports.keys() == rebuilt.mechanisms.keys(), "certificate.json: reports of other purposes")
    for purpose in rebuilt.task.purposes:
        known, told = {tier.name for tier in purpose.tiers}, reports[purpose.name]
        fits = told.keys() <= known and all(_is_count(num) and num for num in told.values())
        require(fits, f"certificate.json: reports of {purpose.name} that there cannot be")
        _check_combined(rebuilt, purpose.name, combined.get(purpose.name, {}))
    require(combined.keys() <= reports.keys(), "certificate.json: tiers combined of other purposes")
    require(any(reports.values()), "certificate.json: estimates from no report")
    maps, verdicts = measures.get("maps", {}), rebuilt.verdicts()
    require(maps.keys() == verdicts.keys() and measures.get("maps") != {}, "certificate.json: maps of other purposes")
    on_ways = {name for name in verdicts if isinstance(rebuilt.mechanisms[name], LocalTrajectory)}
    ways = measures["paths"].keys() if measures.get("paths") else set()
    told = ways == on_ways and ("paths" in measures) == bool(on_ways)
    require(told, "certificate.json: paths of other purposes")
    for name, verdict in verdicts.items():
        fits = maps[name] == verdict.message
        require(fits, f"certificate.json: what is said of the map of {name} does not follow from the task")


def _is_count(num: object) -> bool:
    return type(num) is int and num >= 0


def _check_combined(rebuilt: Rebuilt, name: str, stated: Mapping[str, Mapping[str, Any]]) -> None:
    """Check that tiers were put together by the rule asked for, and how many reports told of each number."""
    wrong = f"certificate.json: tiers of {name} combined that there are not"
    mechanism, told, asked = rebuilt.mechanisms[name], rebuilt.measures["reports"][name], rebuilt.stated["mechanism"]
    numbers = isinstance(mechanism, LocalNumeric)
    subjects = [item.name for item in mechanism.quantities] if isinstance(mechanism, LocalNumeric) else ["shares"]
    require(sorted(stated) == sorted(subjects if told or numbers else []), wrong)
    for item in stated.values():
        require({"rule"} <= item.keys() <= {"rule", "p_value", *(["reports"] if numbers else [])}, wrong)
        silent, p_value = numbers and item["reports"] == 0, item.get("p_value")
        sound = "p_value" not in item or (isinstance(p_value, float) and 0 <= p_value <= 1)
        require(sound, "certificate.json: a p-value that is none")
        require(item["rule"] == (NO_TIER if silent else chosen_rule(asked["combine"], len(told), p_value)), wrong)
        require("p_value" not in item or (len(told) > 1 and not silent), wrong)
    if isinstance(mechanism, LocalNumeric):
        most = sum(num * mechanism.num_told(tier) for tier, num in told.items())
        counts = [item["reports"] for item in stated.values()]
        require(all(_is_count(num) and num <= sum(told.values()) for num in counts), wrong)
        whole = len(counts) == len(mechanism.attributes)
        require(sum(counts) == most if whole else sum(counts) <= most, wrong)


def _check_line(line: _Line | None, expected: Mapping[str, Any], low: float, high: float) -> float:
    """Check what a line is about and that its value and interval lie where they must; return the value."""
    if line is None:
        raise CheckFailed("data: fewer lines than the task has quantities")
    words = " ".join(str(expected[key]) for key in ("quantity", "purpose", "attribute") if expected.get(key))
    figures = ("value", "lower", "upper")
    fits = all(same(line[name], expected.get(name, EMPTY[name])) for name in line if name not in figures)
    require(fits and expected.keys() <= line.keys(), f"data: a line is not that of {words}")
    value, lower, upper = (line[name] for name in figures)
    bounded = lower is not None and upper is not None and low <= lower <= upper <= high
    require(bounded, f"data: an interval of {words} is empty or leaves the public domain")
    if value is None:
        whole = lower == low and upper == high and expected["quantity"] in ("mean", "present")
        require(whole, f"data: no value of {words}, yet an interval within the domain")
        return math.nan
    require(lower <= value <= upper, f"data: a value of {words} lies outside its interval")
    return float(value)


def _check_sum(values: Sequence[float], what: str) -> None:
    require(abs(math.fsum(values) - 1) <= _SUM_TOLERANCE, f"data: shares of {what} do not add up to 1")


def _check_numbers(
    name: str, mechanism: LocalNumeric, combined: Mapping[str, Mapping[str, Any]], rest: Iterator[_Line]
) -> None:
    for item in mechanism.quantities:
        expected = {"quantity": "mean", "purpose": name, "attribute": item.name, "unit": item.unit}
        _check_line(next(rest, None), expected, float(item.low), float(item.high))
    for attribute in mechanism.attributes:
        if attribute.presence:
            expected = {"quantity": "present", "purpose": name, "attribute": attribute.quantity.name}
            _check_line(next(rest, None), expected, 0.0, 1.0)
    for item in mechanism.quantities:
        if has_bins(mechanism) and combined[item.name]["reports"] > 0:
            _check_distribution(name, item, rest)


def _check_distribution(purpose: str, item: Quantity, rest: Iterator[_Line]) -> None:
    common = {"purpose": purpose, "attribute": item.name}
    shares, points = [], []
    for low, high in itertools.pairwise(bin_edges(item)):
        expected = {"quantity": "share", **common, "bin_lower": low, "bin_upper": high}
        shares.append(_check_line(next(rest, None), expected, 0.0, 1.0))
    _check_sum(shares, f"bins of {item.name}")
    for level in QUANTILES:
        expected = {"quantity": f"quantile {level}", **common, "unit": item.unit}
        points.append(_check_line(next(rest, None), expected, float(item.low), float(item.high)))
    require(points == sorted(points), f"data: quantiles of {item.name} are not in order")


def _check_places(name: str, mechanism: LocalLocation, rest: Iterator[_Line]) -> None:
    shares = []
    for cell in range(mechanism.grid.num_cells + has_outside(mechanism)):
        expected = {"quantity": "share", "purpose": name, "cell": cell, **place_of(mechanism.grid, cell)}
        shares.append(_check_line(next(rest, None), expected, 0.0, 1.0))
    _check_sum(shares, name)


def _check_paths(name: str, mechanism: LocalTrajectory, told: Mapping[str, Any], rest: Iterator[_Line]) -> None:
    whole = told.keys() == {"paths", "listed"} and all(type(num) is int for num in told.values())
    fits = whole and 0 < told["listed"] <= told["paths"] == num_paths(mechanism)
    require(fits, f"certificate.json: does not tell the paths of {name}")
    shares, paths = [], []
    for _ in range(told["listed"] + (told["listed"] < told["paths"])):
        line = next(rest, None)
        path = None if line is None else line.get("path")
        shares.append(_check_line(line, {"quantity": "share", "purpose": name, "path": path}, 0.0, 1.0))
        paths.append(str(path))
    if told["listed"] < told["paths"]:
        require(paths.pop() == OTHER, f"data: what is left of the paths of {name} is not the last line")
    require(len(set(paths)) == len(paths), f"data: a path of {name} is listed twice")
    sound = all(path_index(mechanism, path) is not None for path in paths)
    require(sound, f"data: a path of {name} is none of the grid")
    ordered = all(one >= other for one, other in itertools.pairwise(shares[: told["listed"]]))
    require(ordered, f"data: the paths of {name} are not in order of their shares")
    _check_sum(shares, name)


def check_estimate_loss(release: Release) -> str:
    """Check what a report, a slot and a day give away, and that everything promised follows from the task."""
    rebuilt = Rebuilt.of(release.certificate)
    stated, task, losses = rebuilt.stated, rebuilt.task, rebuilt.losses
    fits = same(loss_measures(task, losses), rebuilt.measures["loss"])
    require(fits, "certificate.json: what vehicles give away does not follow from the task")
    promise = rebuilt.promise()
    require(stated["basis"] == promise.basis, "certificate.json: the basis does not follow from the task")
    expected = promise.to_dict()
    for name, words in _STATED.items():
        require(same(expected.get(name), stated.get(name)), f"certificate.json: {words} not follow from the task")
    due, totals = composed(task, losses, promise), stated["composition"]
    fits = all(same(due[key], totals[key]) for key in ("total", "total_per_period"))
    require(fits, "certificate.json: the totals of a day and a lifetime do not follow from the task")
    within = f"epsilon {decimal_text(loss_within(task, losses, rebuilt.mechanisms))}"
    words = f"a slot of reports gives away {within}"
    if any(losses.of_slot(tier) is None for tier in task.tier_names):
        words = f"a slot of reports shows areas as they are, without any bound across areas; within areas {within}"
    epsilon = decimal_text(exact(stated["guarantee"]["epsilon"]))
    agrees = f"and not epsilon {epsilon} as claimed" if promise.basis is Basis.CLAIMED else "as stated"
    return f"{words} at most, {agrees}, by the laws of the task"
