# SPDX-License-Identifier: Apache-2.0
"""advise: sweep the candidates of a goal, make the frontier, and recommend a policy. Private."""

from __future__ import annotations

import math
import os
import shlex
import shutil
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from dunnage._version import __version__
from dunnage.advising import frontier, rows, trips, vehicles
from dunnage.advising.frontier import SAME, Frontier, Limit, Measure, Point, check_place, with_ends
from dunnage.advising.sweep import (
    ON,
    AdviceRequest,
    BasePolicy,
    Cache,
    Goal,
    Result,
    Subject,
    cache_folder,
    measure_point,
    sweep,
    words,
)
from dunnage.devices.numbers import LocalNumeric
from dunnage.errors import DunnageError, NoPlanError, ParameterError
from dunnage.exact import nearest_float, share
from dunnage.mechanisms import MECHANISMS
from dunnage.model.documents import suggestion
from dunnage.model.policy import Policy
from dunnage.publishing import LEDGER_FILE
from dunnage.text import Progress, large_percent

DEFAULT_MAX_COST = 0.05
DRAWS, QUICK_DRAWS, MAX_DRAWS = 7, 4, 1000

TRUCKS = Goal(
    cost_name="trucks",
    cost_unit="more trucks",
    risk_name="truck linkage",
    open=rows.open_trucks,
    candidates=rows.truck_candidates,
    measure=rows.measure_trucks,
    reference=rows.truck_reference,
    next_step=rows.pack_command,
    help=rows.trucks_help,
    point_seconds=60.0,
)
DISTORTION = Goal(
    cost_name="total distortion",
    cost_unit="distortion",
    risk_name="record linkage",
    open=rows.open_table,
    candidates=rows.table_candidates,
    measure=rows.measure_table,
    reference=rows.table_reference,
    default_max_cost=0.25,
    cost_of_nothing=1.0,
    point_seconds=60.0,
)
SHUTTLES = Goal(
    cost_name="shuttles",
    cost_unit="shuttles too many or missing",
    risk_name="membership guess",
    open=trips.open_shuttles,
    candidates=trips.count_candidates,
    measure=trips.measure_shuttles,
    reference=trips.shuttles_reference,
    next_step=trips.size_command,
    default_max_cost=0.15,
    cost_of_nothing=1.0,
    help=trips.trips_help,
)
NUMBER_ERROR = Goal(
    cost_name="error of a number",
    cost_unit="error of a number, in mean values",
    risk_name="record linkage",
    open=rows.open_numbers,
    candidates=rows.number_candidates,
    measure=rows.measure_numbers,
    reference=rows.numbers_reference,
    cost_of_nothing=1.0,
    point_seconds=60.0,
)
COUNT_ERROR = Goal(
    cost_name="error of a count",
    cost_unit="error of a count, in mean counts",
    risk_name="membership guess",
    open=trips.open_trips,
    candidates=trips.count_candidates,
    measure=trips.measure_counts,
    reference=trips.counts_reference,
    default_max_cost=0.25,
    cost_of_nothing=1.0,
    help=trips.trips_help,
)
REPORT_ERROR = Goal(
    cost_name="error of an estimate",
    cost_unit="error",
    risk_name="naming one vehicle's value",
    open=vehicles.open_fleet,
    candidates=vehicles.fleet_candidates,
    measure=vehicles.measure_fleet,
    reference=vehicles.fleet_reference,
    tables=vehicles.fleet_tables,
    next_step=vehicles.simulate_command,
    help=vehicles.vehicles_help,
)
# By name and what the policy is about; a goal refuses what it cannot measure.
GOALS: Mapping[str, Mapping[str, Goal[Any]]] = {
    "trucks": dict.fromkeys(("rows", "trips", "devices"), TRUCKS),
    "shuttles": dict.fromkeys(("rows", "trips", "devices"), SHUTTLES),
    "distortion": dict.fromkeys(("rows", "trips", "devices"), DISTORTION),
    "error": {"rows": NUMBER_ERROR, "trips": COUNT_ERROR, "devices": REPORT_ERROR},
}


def goal_of(name: str, base: BasePolicy) -> Goal[Any]:
    goal = GOALS[name][base.about]
    if goal is REPORT_ERROR:
        kind = base.document["mechanisms"][vehicles.advised_kind(base)]
        if kind.get("name") != LocalNumeric.name:
            return replace(goal, default_max_cost=vehicles.MAP_COST)
    return goal


def advise(
    data: Any,
    *,
    policy: str | os.PathLike[str] | Policy,
    goal: str,
    out: str | os.PathLike[str] | None = None,
    period: str | None = None,
    capacity: Sequence[str | float] | str | float = (),
    by: str | None = None,
    city: str | os.PathLike[str] | None = None,
    max_cost: str | float | None = None,
    max_risk: str | float | None = None,
    on: str = "auto",
    size: int | None = None,
    draws: int | None = None,
    quick: bool = False,
    jobs: int = 1,
    force: bool = False,
    progress: Progress | None = None,
) -> Frontier:
    """Measure what suitable policies cost in the unit of a decision, and recommend one. Nothing is published or spent.

    A policy that misses a limit, that another one beats, or that is no better than publishing nothing is never
    recommended: :attr:`Frontier.recommended` is then None, and :attr:`Frontier.closest` names what comes closest.

    Parameters
    ----------
    data
        Path of the private rows, or a frame with the Arrow C stream interface.
    policy
        The policy to begin with; its mechanism may be absent or blank, because advice chooses it.
    goal
        ``trucks``, ``shuttles``, ``distortion`` or ``error``.
    out
        Where :meth:`Frontier.write` will write the frontier: finished points are kept beside it until :func:`finish`,
        and paths in the recommended policy are relative to it. Nothing is written to it.
    period
        Which period of the data, if the policy distinguishes periods.
    capacity, by
        For trucks: the capacity, ``"500kg"`` or several such, and a public column; different values never share one.
    city
        For shuttles: the city.
    max_cost, max_risk
        Limits on cost and risk: ``"5%"``, ``"1/20"``, 0.05. If neither is given, a cost of at most 5 %, or the
        ``default_max_cost`` of the goal: 15 % of shuttles, 25 % of distortion and of counts of trips, 50 % of shares
        on a map.
    on, size
        ``data``, ``generated``, or ``auto`` for k-anonymous mechanisms on all rows and others on generated rows; and
        how many rows are generated, or measured on at most. Trips are as many as the policy expects, if it says so.
    draws, quick
        How many times each point is measured, 7 by default; a quick run takes 4, and fewer candidates. Points on all
        rows are measured twice if both agree, and more often if that is cheap.
    jobs
        How many processes measure. With more than one, a script must be guarded by ``if __name__ == "__main__"``.
    force
        Replace the frontier and the unfinished points of a different run; points of the same run are taken over.
    progress
        Called with a line whenever a point is done.

    Raises
    ------
    UserError
        If something is missing or does not fit; the message says what to give.
    NoPlanError
        If no candidate could be measured.
    """
    start, tell = time.monotonic(), progress or (lambda line: None)
    if goal not in GOALS:
        raise ParameterError(f"there is no goal {str(goal)[:20]!r}. {suggestion(str(goal), GOALS)}")
    limit_of(max_cost, max_risk)  # refuse unreadable limits before anything is opened
    if on not in ON:
        raise ParameterError(f"on must be one of {', '.join(ON)}. Got {str(on)[:20]!r}.")
    num = (QUICK_DRAWS if quick else DRAWS) if draws is None else draws
    for name, value, least, most in (("draws", num, 2, MAX_DRAWS), ("size", size, 2, 10**7), ("jobs", jobs, 1, 64)):
        if value is not None and (type(value) is not int or not least <= value <= most):
            raise ParameterError(f"{name} must be a whole number from {least} to {most:,}. Got {str(value)[:20]!r}.")
    capacities = [capacity] if isinstance(capacity, str | int | float) else list(capacity)
    request = AdviceRequest(
        data=data,
        base=BasePolicy.of(policy) if isinstance(policy, Policy) else BasePolicy.read(policy),
        period=period,
        capacity=tuple(str(item) for item in capacities),
        by=by,
        city=None if city is None else Path(city),
        on=on,
        size=size,
        draws=num,
        quick=quick,
    )
    chosen = goal_of(goal, request.base)
    limit = limit_of(max_cost, max_risk, chosen.default_max_cost)
    if out is not None:
        check_place(out, force=force)
    tell("reading")
    subject = chosen.open(request)
    candidates, unfit = chosen.candidates(subject)
    digest = request.digest(goal, subject.digest)
    cache = None if out is None else Cache.open(cache_folder(out), digest, done=_measured(out, digest), force=force)
    points, failed = sweep(candidates, partial(measure_point, chosen, subject), jobs=jobs, progress=tell, cache=cache)
    if not points:
        reasons = "".join(f"\n  - {item.name}: {item.why}" for item in (*unfit, *failed))
        raise NoPlanError(f"no policy could be measured for the goal {goal}. {chosen.help(subject, ())}{reasons}")
    tell("comparing")
    reference, choice = chosen.reference(subject), choose(points, limit)
    recommended = choice.point if choice.meets_limit else None
    noise = recommended is not None and subject.unit == "trip" and trips.refused_as_noise(request, recommended)
    says = [_recommendation_says(chosen, subject, points, choice, limit), *([words("allow noise")] if noise else [])]
    says += [*_measured_says(subject, points), *reference.says]
    if names := list(dict.fromkeys(item.name for item in unfit if item.name in MECHANISMS)):
        says.append(words("not tried", names=", ".join(names)))
    place = None if out is None else Path(out)
    return Frontier(
        dataset=request.base.dataset,
        goal=goal,
        cost_name=chosen.cost_name,
        cost_unit=chosen.cost_unit,
        cost_baseline=reference.cost_baseline,
        risk_name=chosen.risk_name,
        risk_without_privacy=reference.risk_without_privacy,
        risk_of_chance=reference.risk_of_chance,
        points=points,
        failed=(*unfit, *failed),
        limit=limit,
        recommended=None if recommended is None else recommended.name,
        noise=noise,
        meets_limit=choice.meets_limit,
        closest=choice.point.name if choice.point is not None and not choice.meets_limit else None,
        unit=subject.unit,
        says=(*says, *subject.private_says),
        policy=_policy_text(goal, chosen, subject, recommended, says, place, noise=noise),
        run=digest,
        seconds=time.monotonic() - start,
    )


def _measured(out: str | os.PathLike[str], digest: str) -> Mapping[str, Result]:
    """Return the points of a frontier that is replaced, if it was made from the same data with the same options."""
    try:
        before = Frontier.read(out)
    except DunnageError:
        return {}
    points = {point.name: point for point in before.points}
    return {**points, **{item.name: item for item in before.failed}} if before.run == digest else {}


def finish(out: str | os.PathLike[str]) -> None:
    """Remove the points that were kept beside a frontier, now that it is written."""
    shutil.rmtree(cache_folder(out), ignore_errors=True)


# --- Which point keeps to the owner's limits ------------------------------------------------------------------------


def share_of(given: str | float | Fraction, what: str, *, most: float = float("inf")) -> float:
    """Read ``5%``, ``1/20`` or ``0.05``."""
    value = share(given, what=what)
    if not 0 <= value <= most:
        limit = f"at most {most:g}" if value > 0 else "at least 0"
        raise ParameterError(f"{what} must be {limit}. Got {str(given)[:20]!r}. Write for example 5% or 0.05.")
    return nearest_float(value)


def limit_of(
    max_cost: str | float | None, max_risk: str | float | None, default_max_cost: float = DEFAULT_MAX_COST
) -> Limit:
    """Read the owner's limits; without any, the default limit on the cost."""
    if max_cost is None and max_risk is None:
        return Limit(max_cost=default_max_cost, asked=False)
    return Limit(
        max_cost=None if max_cost is None else share_of(max_cost, "max_cost"),
        max_risk=None if max_risk is None else share_of(max_risk, "max_risk", most=1.0),
    )


class Recommendation(NamedTuple):
    point: Point | None
    meets_limit: bool  # including the upper ends of its intervals


def choose(points: Sequence[Point], limit: Limit) -> Recommendation:
    """Choose a point: with a limit on the cost the one of lowest risk, with a limit on the risk alone the cheapest."""
    # Proved guarantees come before claimed ones; a void one is never chosen, nor one that is no better than an empty
    # release. A point with a plan that overloads many trucks is chosen only if there is no other, and so is one that
    # protects hardly anybody, unless there is a limit on the risk. A point that another beats is never recommended. If
    # no point keeps to the limit, the closest one is chosen.
    return first_within(ranking(points, limit), limit)


def first_within(ranked: Sequence[Ranked], limit: Limit) -> Recommendation:
    usable = [item for item in ranked if item.group == ranked[0].group]
    for item in usable:
        if _excess(item.point, limit) <= SAME:
            return Recommendation(item.point, meets_limit=True)
    if not usable:
        return Recommendation(None, meets_limit=False)
    first = [item.point for item in usable if item.point.basis == usable[0].point.basis]
    return Recommendation(min(first, key=lambda point: _excess(point, limit)), meets_limit=False)


class Ranked(NamedTuple):
    point: Point
    group: int  # a point of a later group is chosen only if the earlier groups are empty


def ranking(points: Sequence[Point], limit: Limit) -> list[Ranked]:
    """Order the points that promise something, the best first, by which limits there are, not by their values."""
    # Each point comes before all that it beats: `_in_order` never turns two such points round, and a point keeps to
    # every limit that a point it beats keeps to.
    classes: dict[tuple[int, bool], list[Point]] = {}
    for point in points:
        if point.basis != "void" and not point.useless:
            group = 2 * (point.mended or point.late) + ((point.weak or point.vague) and limit.max_risk is None)
            classes.setdefault((group, point.basis != "proved"), []).append(point)
    first, second = (attrgetter(name) for name in (("cost", "risk") if limit.max_cost is None else ("risk", "cost")))
    return [
        Ranked(point, key[0])
        for key in sorted(classes)
        for alike in _in_order(classes[key], first)
        for equal in _in_order(alike, second)
        for point in sorted(equal, key=lambda point: point.cost.value + point.risk.value)
    ]


def _in_order(points: Sequence[Point], measure: Callable[[Point], Measure]) -> Iterator[list[Point]]:
    """Yield points by a measure, the lowest first; those within the interval of the lowest one are alike."""
    left = sorted(points, key=lambda point: measure(point).value)
    while left:
        num = sum(measure(point).value <= measure(left[0]).upper + SAME for point in left)
        yield left[:num]
        left = left[num:]


def _excess(point: Point, limit: Limit) -> float:
    pairs = ((point.cost, limit.max_cost), (point.risk, limit.max_risk))
    # A risk that nobody knows keeps to no limit, also where only the cost has one; nor does an overloaded fleet.
    return point.vague + point.late + sum(max(measure.upper - most, 0.0) for measure, most in pairs if most is not None)


def wish(limit: Limit, cost_unit: str, risk_name: str) -> str:
    cost = [] if limit.max_cost is None else [f"at most {large_percent(limit.max_cost)} {cost_unit}"]
    risk = [] if limit.max_risk is None else [f"{risk_name} of at most {large_percent(limit.max_risk)}"]
    return " and ".join(cost + risk)


# --- The sentences ---------------------------------------------------------------------------------------------------


def _recommendation_says(
    goal: Goal[Any], subject: Subject, points: Sequence[Point], choice: Recommendation, limit: Limit
) -> str:
    request, point = wish(limit, goal.cost_unit, goal.risk_name), choice.point
    if not limit.asked:
        request = words("default limit", limit=request)
    if point is None:
        best = min((item for item in points if item.useless), key=lambda item: item.cost.value, default=None)
        if best is None:
            return words("nothing recommended", limit=request)
        nothing = large_percent(goal.cost_of_nothing or 0.0)
        facts = {"name": best.name, "cost": with_ends(best.cost), "nothing": nothing, "unit": goal.cost_unit}
        return words("useless", limit=request, help=goal.help(subject, points), **facts)
    overloaded = point.figures.get(frontier.OVERLOADED, 0.0)
    more = words("overloaded", share=large_percent(overloaded)) if overloaded > 0 else ""
    more += words("late" if point.late else "waits", **point.figures) if "wait_seconds" in point.figures else ""
    more += words("of a sample") if point.measured_on == frontier.SAMPLE else ""
    facts = {"name": point.name, "guarantee": point.guarantee, "basis": point.basis, "unit": goal.cost_unit}
    facts |= {"cost": with_ends(point.cost), "risk_name": goal.risk_name, "risk": with_ends(point.risk)}
    if choice.meets_limit:
        return words("recommended", limit=request, point=words("point", **facts), more=more)
    # The smallest limits that the closest point keeps to, in whole per cent; not for what is mostly noise.
    raised = [
        f"--{name} {math.ceil(100 * measure.upper - SAME)}%"
        for name, measure, most in (("max-cost", point.cost, limit.max_cost), ("max-risk", point.risk, limit.max_risk))
        if most is not None and measure.upper > most + SAME
    ]
    good = goal.cost_of_nothing is None or point.cost.upper <= goal.cost_of_nothing / 2
    again = words("again", options=" ".join([*raised, "--force"])) if good and raised else ""
    remedy = {"help": goal.help(subject, points), "again": again}
    return words("closest", limit=request, point=words("point", **facts), more=more, **remedy)


def _measured_says(subject: Subject, points: Sequence[Point]) -> list[str]:
    """Say which points were measured on which data, and what choosing by them reveals."""
    of_data = [point for point in points if point.measured_on != frontier.GENERATED]
    generated, about = len(of_data) < len(points), subject.request.base.about
    on = Counter(point.measured_on for point in points)
    kinds = {kind: on[kind] for kind in (frontier.DATA, frontier.SAMPLE, frontier.GENERATED)}
    parts = [words(f"on {kind}", num=num) for kind, num in kinds.items() if num]
    says = []
    if len(parts) > 1:
        listed = f"{', '.join(parts[:-1])} and {parts[-1]}"
        says.append(words("different data", parts=listed, alike=words("alike") if generated else "."))
    elif generated:
        says.append(words("all generated"))
    if generated:
        parts = [words("in clear")] if about == "rows" else []
        parts += [] if subject.public_size else [words(f"number {about}")]
        nothing = f"Apart from {' and '.join(parts)}, nothing" if parts else "Nothing"
        says.append(words("generated", spread=words(f"spread {about}"), nothing=nothing))
    says.append(words("choosing by data" if of_data else "choosing by generated"))
    if private := [point for point in of_data if not point.guarantee.startswith("k-anonymity")]:
        ends = (f"with a differential-privacy guarantee {verb}" for verb in ("was", "were"))
        says.append(words("private", points=_points(private, *ends)))
    if vague := [point for point in points if point.vague]:
        says.append(words("vague", points=_points(vague, "has", "have")))
    if useless := [point for point in points if point.useless]:
        says.append(words("no better", points=_points(useless, "is", "are")))
    if weak := [point for point in points if point.weak]:
        says.append(words("weak", points=_points(weak, "is", "are"), share=large_percent(frontier.WEAK_RISK)))
    if repaired := [point for point in points if point.mended]:
        named = _points(repaired, "is not recommended and does", "are not recommended and do")
        says.append(words("mended", points=named, share=large_percent(frontier.MAX_OVERLOADED)))
    if late := [point for point in points if point.late]:
        says.append(words("late points", points=_points(late, "has", "have")))
    if unproven := [point for point in points if point.figures.get(frontier.PROVEN, 1.0) < 1]:
        says.append(words("unproven", points=_points(unproven, "was", "were")))
    nums = sorted({point.draws for point in points})
    if nums[-1] == 1:
        return [*says, words("one draw")]
    draws = f"{nums[-1]} times" if nums[0] == nums[-1] else f"{nums[0]} to {nums[-1]} times"
    return [*says, words("draws", draws=draws, confidence=large_percent(frontier.CONFIDENCE))]


def _points(points: Sequence[Point], one: str, several: str) -> str:
    return f"1 point {one}" if len(points) == 1 else f"{len(points)} points {several}"


def next_commands(
    base: BasePolicy, place: Path | None, *, data: str = "DATA", period: str | None = None, noise: bool = False
) -> tuple[str, ...]:
    """Return the commands that publish under the recommended policy: a dry run, which spends nothing, comes first."""
    policy = Path(frontier.POLICY_FILE) if place is None else place / frontier.POLICY_FILE
    if base.for_devices:
        command = ["dunnage", "device", "task", str(policy), "-o", "TASK.json"]
        if len(base.blank_kinds) > 1:  # advice filled in one of them
            command = ["dunnage", "advise", data, "--policy", str(policy), "--goal", "error", "-o", "NEXT"]
        return (shlex.join(command),)
    ledger = [] if base.path is None else ["--ledger", str(base.path.parent / LEDGER_FILE)]
    of_period = [] if period is None else ["--period", period]
    publish = ["dunnage", "publish", data, "--policy", str(policy), *of_period, *ledger]
    allowed = ["--allow-noise"] if noise else []
    return shlex.join([*publish, "--dry-run"]), shlex.join([*publish, *allowed, "-o", "RELEASE"])


def _policy_text(
    name: str,
    goal: Goal[Any],
    subject: Subject,
    point: Point | None,
    says: Sequence[str],
    place: Path | None,
    *,
    noise: bool,
) -> str:
    """Write the recommended policy; nothing if none is recommended, so that nobody publishes under it by mistake."""
    request = subject.request
    if point is None:
        return ""
    ledger = "" if request.base.for_devices else ", with the ledger beside your original policy"
    notes = [
        f"Made by dunnage advise {__version__} for the goal {name}. Private until you publish under it.",
        *says,
        "",
        f"Next steps{ledger}:",
        *(f"  {command}" for command in next_commands(request.base, place, period=request.period, noise=noise)),
        *([f"  {step}"] if goal.next_step is not None and (step := goal.next_step(subject, point)) else []),
    ]
    lines: list[str] = []
    for note in notes:  # an indented line is a command, which stays whole
        whole = not note or note.startswith(" ")
        lines += [note] if whole else textwrap.wrap(note, 116, break_long_words=False, break_on_hyphens=False)
    wrapped = [" ".join(line.splitlines()) for line in lines]
    return request.base.text_with(goal.tables(subject, point), place=place, notes=wrapped)
