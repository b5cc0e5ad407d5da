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

from dunnage.certificate import Certificate, CombinedTiers
from dunnage.collecting import promises
from dunnage.devices.client import TaskLosses, check_task, mechanisms_of
from dunnage.devices.numbers import LocalNumeric
from dunnage.devices.paths import LocalTrajectory
from dunnage.devices.places import LocalLocation, NoiseVerdict
from dunnage.devices.task import Mechanism, Task
from dunnage.errors import CheckFailed, UserError
from dunnage.exact import decimal_text
from dunnage.guarantees import Basis, KAnonymity, Promise
from dunnage.kinds.common import require, same
from dunnage.release import Release
from dunnage.text import several

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
_Line = Mapping[str, Any]


@lru_cache(maxsize=4)
def _made_again(task: str) -> tuple[Task, TaskLosses, Mapping[str, Mechanism]]:
    """Make a task again once, however often it is asked: some laws take long."""
    made = Task.from_json(task)
    return made, check_task(made), mechanisms_of(made)


@dataclass(frozen=True)
class Rebuilt:
    """What a certificate of estimates states, and the task, losses and mechanisms made again from it."""

    stated: Certificate
    task: Task
    losses: TaskLosses
    mechanisms: Mapping[str, Mechanism]  # By purpose

    @classmethod
    def of(cls, certificate: Certificate) -> Rebuilt:
        """Make the task of a certificate again; one that devices would refuse fails the check."""
        try:
            return cls(certificate, *_made_again(json.dumps(certificate.estimates.task)))
        except UserError:
            raise CheckFailed("certificate.json: the task is none that devices would take") from None

    def promise(self) -> Promise:
        """Return what the release promises, by the task and the figures stated."""
        stated = self.stated
        due = promises.estimates_promise(
            self.task,
            self.losses,
            self.mechanisms,
            confidence=float(str(stated.mechanism["confidence"])),
            combine=str(stated.mechanism["combine"]),
            rules={item.rule for told in stated.estimates.combined.values() for item in told.values()},
            verdicts=self.verdicts(),
        )
        return due.voided(stated.why or "") if stated.basis is Basis.VOID else due

    def verdicts(self) -> dict[str, NoiseVerdict]:
        """Judge each map that there are reports for, by their number."""
        nums = {name: sum(told.values()) for name, told in self.stated.estimates.reports.items()}
        return {
            name: mechanism.noise_verdict(nums[name])
            for name, mechanism in self.mechanisms.items()
            if not isinstance(mechanism, LocalNumeric) and nums[name]
        }


def check_estimate_columns(release: Release) -> str:
    """Check that there is one table, of the columns that the task needs, and that the task is the one of the digest."""
    stated, measures = release.certificate, release.certificate.estimates
    canonical = json.dumps(measures.task, sort_keys=True, separators=(",", ":")).encode("ascii")
    fits = hashlib.sha256(canonical).hexdigest() == measures.task_digest
    require(fits, "certificate.json: the task does not fit its digest")
    rebuilt = Rebuilt.of(stated)
    require(rebuilt.task.dataset == stated.dataset, "certificate.json: another dataset")
    require(stated.period is None, "certificate.json: a period, which estimates do not have")
    require(stated.spend.id == promises.spend_id(rebuilt.task), "certificate.json: the spend is not that of the task")
    require(list(release.tables) == ["data"], "the tables are not those that the certificate speaks of")
    found = [(item.name, item.type) for item in release.data.schema]
    fits = found == list(promises.columns_of(rebuilt.mechanisms).items())
    require(fits, "data: the columns are not those that the certificate speaks of")
    # Parameters, laws and public domains are those of the task.
    told, level = stated.mechanism, stated.mechanism.get("confidence")
    keys = {"name", "confidence", "combine", "purposes", "as_published"}
    require(told.keys() == keys and told["name"] == promises.NAME, "certificate.json: another mechanism")
    fits = isinstance(level, float) and 0.5 <= level < 1 and told["combine"] in promises.COMBINATIONS
    require(fits, "certificate.json: a confidence or combination of tiers that there is not")
    purposes = told["purposes"] if isinstance(told["purposes"], dict) else {}
    require(purposes.keys() == rebuilt.mechanisms.keys(), "certificate.json: other purposes")
    for name, mechanism in rebuilt.mechanisms.items():
        fits = same(mechanism.describe(), purposes[name])
        require(fits, f"certificate.json: the mechanism of {name} is not that of the task")
    published = any(mechanism.as_published for mechanism in rebuilt.mechanisms.values())
    require(told["as_published"] is published, "certificate.json: does not say whether it was made as published")
    expected = promises.describe_subjects(rebuilt.mechanisms)
    names = [[(item.purpose, item.name) for item in items] for items in (stated.attributes, expected)]
    require(names[0] == names[1], "certificate.json: other attributes than the task has")
    for item, due in zip(stated.attributes, expected, strict=True):
        fits = same(due.plain(), item.plain())
        require(fits, f"certificate.json: the domain of {item.name} is not that of the task")
    return "table, columns and domains are those of the task, which fits its digest"


def check_estimate_lines(release: Release) -> str:
    """Check that lines are those of the task, values in their intervals, these in the domain, and shares parts of 1."""
    lines, rebuilt = release.data.to_pylist(), Rebuilt.of(release.certificate)
    measures = release.certificate.estimates
    require(len(lines) == measures.lines, "certificate.json: another number of lines")
    _check_reports(rebuilt)
    rest = iter(lines)
    for name, mechanism in rebuilt.mechanisms.items():
        if isinstance(mechanism, LocalNumeric):
            _check_numbers(name, mechanism, measures.combined[name], rest)
        elif measures.reports[name] and isinstance(mechanism, LocalTrajectory):
            _check_paths(name, mechanism, (measures.paths or {}).get(name, {}), rest)
        elif measures.reports[name] and isinstance(mechanism, LocalLocation):
            shares = []
            for cell in range(mechanism.grid.num_cells + promises.has_outside(mechanism)):
                expected = {
                    "quantity": "share",
                    "purpose": name,
                    "cell": cell,
                    **promises.place_of(mechanism.grid, cell),
                }
                shares.append(_check_line(next(rest, None), expected, 0.0, 1.0))
            _check_sum(shares, name)
    require(next(rest, None) is None, "data: more lines than the task has quantities")
    reports = sum(num for tiers in measures.reports.values() for num in tiers.values())
    pointed = sum(line["lower"] == line["upper"] for line in lines if line["quantity"] == "mean")
    told = f"; {several(pointed, 'mean')} without any width, which is rare: ask for the reports" if pointed else ""
    return (
        f"{several(len(lines), 'line')} from {several(reports, 'report')}: each is of the task, its value lies in its "
        f"interval and this in the public domain; shares add up to 1{told}"
    )


def _check_reports(rebuilt: Rebuilt) -> None:
    """Check how many reports there were, were left out and told of each number, and what is said of each map."""
    measures = rebuilt.stated.estimates
    reports, combined, left_out = measures.reports, measures.combined, measures.left_out or {}
    stated = all(getattr(measures, name) is not None for name in measures.model_fields_set)
    fits = (
        stated
        and measures.left_out != {}
        and left_out.keys() <= set(promises.LEFT_OUT)
        and all(num >= 0 for num in left_out.values())
    )
    require(fits, "certificate.json: reports left out that there cannot be")
    require(reports.keys() == rebuilt.mechanisms.keys(), "certificate.json: reports of other purposes")
    for purpose in rebuilt.task.purposes:
        known, told = {tier.name for tier in purpose.tiers}, reports[purpose.name]
        fits = told.keys() <= known and all(num > 0 for num in told.values())
        require(fits, f"certificate.json: reports of {purpose.name} that there cannot be")
        _check_combined(rebuilt, purpose.name, combined.get(purpose.name, {}))
    require(combined.keys() <= reports.keys(), "certificate.json: tiers combined of other purposes")
    require(any(reports.values()), "certificate.json: estimates from no report")
    maps, verdicts = measures.maps or {}, rebuilt.verdicts()
    require(maps.keys() == verdicts.keys() and measures.maps != {}, "certificate.json: maps of other purposes")
    on_ways = {name for name in verdicts if isinstance(rebuilt.mechanisms[name], LocalTrajectory)}
    on_task = (measures.paths or {}).keys() == on_ways and (measures.paths is not None) == bool(on_ways)
    require(on_task, "certificate.json: paths of other purposes")
    for name, verdict in verdicts.items():
        fits = maps[name] == verdict.message
        require(fits, f"certificate.json: what is said of the map of {name} does not follow from the task")


def _check_combined(rebuilt: Rebuilt, name: str, stated: Mapping[str, CombinedTiers]) -> None:
    """Check that tiers were put together by the rule asked for, and how many reports told of each number."""
    wrong = f"certificate.json: tiers of {name} combined that there are not"
    mechanism, told = rebuilt.mechanisms[name], rebuilt.stated.estimates.reports[name]
    asked = str(rebuilt.stated.mechanism["combine"])
    numbers = isinstance(mechanism, LocalNumeric)
    subjects = [item.name for item in mechanism.quantities] if isinstance(mechanism, LocalNumeric) else ["shares"]
    require(sorted(stated) == sorted(subjects if told or numbers else []), wrong)
    for item in stated.values():
        require((item.reports is not None) is numbers, wrong)
        silent = item.reports == 0
        sound = "p_value" not in item.model_fields_set or (item.p_value is not None and 0 <= item.p_value <= 1)
        require(sound, "certificate.json: a p-value that is none")
        require(
            item.rule == (promises.NO_TIER if silent else promises.chosen_rule(asked, len(told), item.p_value)), wrong
        )
        require("p_value" not in item.model_fields_set or (len(told) > 1 and not silent), wrong)
    if isinstance(mechanism, LocalNumeric):
        most = sum(num * mechanism.num_told(tier) for tier, num in told.items())
        counts = [item.reports or 0 for item in stated.values()]
        require(all(0 <= num <= sum(told.values()) for num in counts), wrong)
        whole = len(counts) == len(mechanism.attributes)
        require(sum(counts) == most if whole else sum(counts) <= most, wrong)


def _check_line(line: _Line | None, expected: Mapping[str, object], low: float, high: float) -> float:
    """Check what a line is about and that its value and interval lie where they must; return the value."""
    if line is None:
        raise CheckFailed("data: fewer lines than the task has quantities")
    words = " ".join(str(expected[key]) for key in ("quantity", "purpose", "attribute") if expected.get(key))
    figures = ("value", "lower", "upper")
    fits = all(same(line[name], expected.get(name, promises.EMPTY[name])) for name in line if name not in figures)
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
    name: str, mechanism: LocalNumeric, combined: Mapping[str, CombinedTiers], rest: Iterator[_Line]
) -> None:
    for item in mechanism.quantities:
        expected = {"quantity": "mean", "purpose": name, "attribute": item.name, "unit": item.unit}
        _check_line(next(rest, None), expected, float(item.low), float(item.high))
    for attribute in mechanism.attributes:
        if attribute.presence:
            expected = {"quantity": "present", "purpose": name, "attribute": attribute.quantity.name}
            _check_line(next(rest, None), expected, 0.0, 1.0)
    for item in mechanism.quantities:
        if not promises.has_bins(mechanism) or not combined[item.name].reports:
            continue
        common, shares, points = {"purpose": name, "attribute": item.name}, [], []
        for low, high in itertools.pairwise(promises.bin_edges(item)):
            of_bin = {"quantity": "share", **common, "bin_lower": low, "bin_upper": high}
            shares.append(_check_line(next(rest, None), of_bin, 0.0, 1.0))
        _check_sum(shares, f"bins of {item.name}")
        for level in promises.QUANTILES:
            expected = {"quantity": f"quantile {level}", **common, "unit": item.unit}
            points.append(_check_line(next(rest, None), expected, float(item.low), float(item.high)))
        require(points == sorted(points), f"data: quantiles of {item.name} are not in order")


def _check_paths(name: str, mechanism: LocalTrajectory, told: Mapping[str, int], rest: Iterator[_Line]) -> None:
    fits = told.keys() == {"paths", "listed"} and 0 < told["listed"] <= told["paths"] == promises.num_paths(mechanism)
    require(fits, f"certificate.json: does not tell the paths of {name}")
    shares, paths = [], []
    for _ in range(told["listed"] + (told["listed"] < told["paths"])):
        line = next(rest, None)
        path = None if line is None else line.get("path")
        shares.append(_check_line(line, {"quantity": "share", "purpose": name, "path": path}, 0.0, 1.0))
        paths.append(str(path))
    if told["listed"] < told["paths"]:
        require(paths.pop() == promises.OTHER, f"data: what is left of the paths of {name} is not the last line")
    require(len(set(paths)) == len(paths), f"data: a path of {name} is listed twice")
    sound = all(promises.path_index(mechanism, path) is not None for path in paths)
    require(sound, f"data: a path of {name} is none of the grid")
    ordered = all(one >= other for one, other in itertools.pairwise(shares[: told["listed"]]))
    require(ordered, f"data: the paths of {name} are not in order of their shares")
    _check_sum(shares, name)


def check_estimate_loss(release: Release) -> str:
    """Check what a report, a slot and a day give away, and that everything promised follows from the task."""
    stated, rebuilt = release.certificate, Rebuilt.of(release.certificate)
    task, losses, measures = rebuilt.task, rebuilt.losses, stated.estimates
    fits = same(promises.loss_measures(task, losses).plain(), measures.loss.plain())
    require(fits, "certificate.json: what vehicles give away does not follow from the task")
    promise = rebuilt.promise()
    require(stated.basis is promise.basis, "certificate.json: the basis does not follow from the task")
    expected, told = promise.to_dict(), stated.plain()
    for name, words in _STATED.items():
        require(same(expected.get(name), told.get(name)), f"certificate.json: {words} not follow from the task")
    totals = (made.plain() for made in (promises.composed(task, losses, promise), stated.composition))
    fits = same(*([made["total"], made["total_per_period"]] for made in totals))
    require(fits, "certificate.json: the totals of a day and a lifetime do not follow from the task")
    within = f"epsilon {decimal_text(promises.loss_within(task, losses, rebuilt.mechanisms))}"
    words = f"a slot of reports gives away {within}"
    if any(losses.of_slot(tier) is None for tier in task.tier_names):
        words = f"a slot of reports shows areas as they are, without any bound across areas; within areas {within}"
    claim = decimal_text(promise.guarantee.epsilon) if not isinstance(promise.guarantee, KAnonymity) else ""
    agrees = f"and not epsilon {claim} as claimed" if promise.basis is Basis.CLAIMED else "as stated"
    return f"{words} at most, {agrees}, by the laws of the task"
