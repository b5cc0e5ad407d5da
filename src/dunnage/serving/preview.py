# SPDX-License-Identifier: Apache-2.0
"""Preview a policy for its owner: release all rows in memory, plan on them, and measure. A job; private.

Nothing is spent and nothing leaves: the ledger only says what publishing would cost. Everything is measured by the
functions that the commands use; the preview chooses what to show.
"""

from __future__ import annotations

import copy
import math
import queue
import re
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pyarrow as pa
import tomli_w

from dunnage.advising.frontier import DATA
from dunnage.advising.rows import release_in_memory
from dunnage.advising.sweep import AdviceRequest, BasePolicy, Candidate
from dunnage.advising.trips import REPEATS, measure_shuttles, open_shuttles
from dunnage.auditing.findings import Finding
from dunnage.auditing.run import Audit, audit
from dunnage.errors import DunnageError, NoPlanError
from dunnage.mechanisms import MECHANISMS
from dunnage.mechanisms.counts import true_counts
from dunnage.model.certificate import meaning
from dunnage.model.documents import Model
from dunnage.model.policy import Document, Policy
from dunnage.model.schema import Role
from dunnage.noise.source import Noise
from dunnage.planning.packing import pack
from dunnage.planning.plan import Plan
from dunnage.planning.spreading import HIGH_LINKAGE
from dunnage.publication import Key, unplanned_rows
from dunnage.publishing import DryRun, clear, rehearse
from dunnage.release import Release
from dunnage.release.kinds import COUNTS
from dunnage.release.kinds.counts import level_words
from dunnage.serving.survey import run, show_early
from dunnage.showing.loads import guarantee_words
from dunnage.tables.dataset import Dataset, load
from dunnage.text import number_text, percent, plural, several

NUM_LINES, NUM_LEFT_OUT, NUM_FINDINGS = 10, 50, 6
PACK_SECONDS, TRUTH_SECONDS = 1.0, 0.5
HIGH_COST = 0.2  # share of extra trucks from which on the preview is red
LOW_SEVERITY, HIGH_SEVERITY = 0.05, 0.5  # of what an attacker could learn: shown, and red
HIGH_CHANCE = 0.34  # of naming a record, from which on the preview is red: fewer than three look alike
WAIT_SECONDS = 60.0  # for fleets on true and on released trips
HIGH_LOST = 0.02  # share of rides in zones that get no shuttle, from which on the preview is red
_NO_CITY = (
    "Shuttles and waits are not measured: the list of stops needs zones and coordinates (zone, lat, lon), or give a "
    "city: a GTFS feed or a city folder, as a zip."
)
_NO_STOPS = (
    "Shuttles and waits are not measured: the policy counts trips between zones, and shuttles drive from stop to stop. "
    "Count between stops to see them."
)
_ADVISE = "Measure it by dunnage advise --goal shuttles, which takes as long as it needs."
GOOD, WARN, RED = "good", "warn", "red"
Tell = Callable[[str], None]
Show = Callable[[Model], None]
Waits = tuple[list["Figure"], str]  # and how they were measured, or why not
_SET = re.compile(r'(\w+) = ("[^"]*"|[\d.]+)')
_CHANGE = re.compile(rf"({_SET.pattern}(?:(?:, | and ){_SET.pattern})*) in \[(.+)\]")


class Figure(Model):
    """A number that the owner looks at first."""

    name: str
    value: str
    note: str
    state: str = ""  # good, warn or red


class Sheet(Model):
    columns: list[str]
    lines: list[list[str]]


class Warned(Model):
    """What an attacker could learn, and what would help."""

    sentence: str
    remedy: str
    state: str


class Offer(Model):
    """A policy that would help."""

    label: str
    policy: str  # its text


class Preview(Model):
    """What publishing would promise, cost and give away. Private."""

    records: int
    left_out: int
    unit: str
    asked: str
    left: str
    left_after: str
    promise: str
    basis: str
    meaning: list[str]
    refusals: list[str]
    warnings_of_rows: list[str]
    lines_for_you: list[str]
    may_leave: bool | None  # under the limits of the house; None without any
    clearance: list[str]
    sheets: dict[str, Sheet]  # by caption: rows before and after, or the most frequent trips
    unplanned: Sheet  # the first rows that would be left out
    num_unplanned: int
    figures: list[Figure]
    findings: list[Warned]
    offers: list[Offer]
    not_measured: str = ""
    waits: str = ""  # how shuttles and waits were measured, or what is missing for it


def preview(
    policy: Path,
    data: Path,
    *,
    ledger: str,
    period: str | None,
    capacity: list[str],
    city: Path | None,
    tell: Tell,
    show: Show,
) -> Preview:
    """Preview a policy; what is known before plans are made and attacked is shown first."""
    tell("reading and checking the data")
    rules = Policy.read(policy)
    rows = load(data, rules, period=period)
    tell("rehearsing")
    dry, clearance = rehearse(rows, ledger=ledger), clear(rows, ledger=ledger)
    tell("releasing all rows in memory")
    release, key = release_in_memory(rows, Noise())
    counts, left = release.kind == COUNTS, unplanned_rows(rows, key)
    plan, figures, not_measured = None, list[Figure](), ""
    early = Preview(
        records=dry.num_rows,
        left_out=dry.num_left_out,
        unit=rules.schema.protects,
        asked=str(dry.asked),
        left=dry.before.left_text(),
        left_after=dry.after.left_text(),
        promise=guarantee_words(dry.promise.guarantee),
        basis=str(dry.promise.basis),
        meaning=meaning(dry.promise).sentences,
        refusals=list(dry.refusals),
        warnings_of_rows=list(dry.foresight.warnings),
        lines_for_you=list(dry.foresight.lines),
        may_leave=None if clearance is None else clearance.may_leave,
        clearance=[] if clearance is None else clearance.text().splitlines(),
        sheets=_most_frequent(rows, release) if counts else _side_by_side(rows, release, key),
        unplanned=_sheet(left.slice(0, NUM_LEFT_OUT)),
        num_unplanned=left.num_rows,
        figures=_count_figures(dry) if counts else [],
        findings=[],
        offers=[],
    )
    show(early)
    if capacity and not counts:
        tell("packing")
        try:
            plan = pack(release, capacity=capacity, seconds=PACK_SECONDS)
        except NoPlanError as error:
            figures.append(Figure(name="Trucks", value="no plan", note=str(error), state=RED))
    tell("measuring risk and cost")
    try:
        measured: Audit | None = audit(release, rows, plan, key=None if counts else key, seconds=TRUTH_SECONDS)
    except DunnageError as error:  # some releases cannot be audited without a plan, or at all
        measured, not_measured = None, str(error)
    figures += early.figures if counts else _figures(measured, plan)
    risks = [(item.severity or 0, item) for item in (measured.findings if measured else ())]
    risks.sort(key=lambda risk: -risk[0])
    findings = [
        Warned(sentence=item.sentence, remedy=item.remedy, state=RED if severity >= HIGH_SEVERITY else WARN)
        for severity, item in risks[:NUM_FINDINGS]
        if severity >= LOW_SEVERITY
    ]
    offers = list(_offers(rules, dry, figures))
    more = {"figures": figures, "findings": findings, "offers": offers, "not_measured": not_measured}
    final = early.model_copy(update=more)
    if rules.schema.trip is None:
        return final
    show(final)
    tell("sizing shuttles on true and on released trips")
    waits, lacking = _within(WAIT_SECONDS, lambda: _waits(rules, data, period, city))
    state = {"figures": [*waits, *figures], "waits": lacking}
    return final.model_copy(update=state)


def _within(seconds: float, work: Callable[[], Waits]) -> Waits:
    """Measure for a limited time; what takes longer ends with the process."""
    answers = queue.SimpleQueue[Waits]()

    def answer() -> None:
        try:
            answers.put(work())
        except DunnageError as error:
            answers.put(([], f"Shuttles and waits are not measured: {error}"))
        except Exception as error:  # its words may hold private values
            answers.put(([], f"Shuttles and waits are not measured: {type(error).__name__}."))

    threading.Thread(target=answer, daemon=True).start()
    try:
        return answers.get(timeout=seconds)
    except queue.Empty:
        return [], f"Shuttles and waits are not measured: it takes longer than {seconds:g} seconds. {_ADVISE}"


def _waits(rules: Policy, data: Path, period: str | None, city: Path | None) -> Waits:
    """Measure what privacy costs in shuttles and waits, as the goal of advice does, on the owner's trips."""
    own = rules.schema.city
    parameters: Any = {key: value for key, value in rules.mechanism.items() if key != "name"}
    if rules.schema.trip is not None and rules.schema.trip.level == "zone":
        return [], _NO_STOPS
    if city is None and (own is None or own.zones is None or own.lat is None):
        return [], _NO_CITY
    with tempfile.TemporaryDirectory(prefix="city-") as folder:
        if city is None:
            assert own is not None
            city = own.write(Path(folder) / "city")
        request = AdviceRequest(
            data=str(data), base=BasePolicy.of(rules), period=period, city=city, on=DATA, quick=True
        )  # fmt: skip
        subject = open_shuttles(request)
    name = str(rules.mechanism["name"])
    candidate, began = Candidate(name=name, mechanism=name, parameters=parameters, on=DATA), time.monotonic()
    draws = [measure_shuttles(subject, candidate)]
    while len(draws) < REPEATS and time.monotonic() - began < WAIT_SECONDS / 4:
        draws.append(measure_shuttles(subject, candidate))
    mean = {key: fmean(draw.figures[key] for draw in draws) for key in draws[0].figures}
    cost, wait, target = fmean(draw.cost for draw in draws), mean["wait_seconds"], mean["wait_target_seconds"]
    sized, needed = number_text(round(mean["shuttles"], 1)), number_text(round(mean["shuttles_needed"], 1))
    longer = RED if wait > (1 + HIGH_COST) * target else WARN if wait > target else GOOD
    lost = mean["unserved"]
    notes = " ".join([f"Shuttles and waits: {several(len(draws), 'trial')} on your trips.", *subject.says])
    return [
        Figure(name="Shuttles", value=sized, note=f"{needed} on true trips; {percent(cost)} too many or missing, "
               "zone by zone", state=RED if cost > HIGH_COST else GOOD),
        Figure(name="Mean wait", value=f"{number_text(round(wait / 60, 1))} min",
               note=f"with those shuttles; {number_text(round(target / 60, 1))} min is the target", state=longer),
        Figure(name="Without a shuttle", value=percent(lost), note="of rides, in zones that get none",
               state=RED if lost > HIGH_LOST else WARN if lost else GOOD),
    ], notes  # fmt: skip


def _found(measured: Audit | None, name: str) -> Finding | None:
    return next((item for item in (measured.findings if measured else ()) if item.name == name), None)


def _figures(measured: Audit | None, plan: Plan | None) -> Iterator[Figure]:
    """Say what privacy costs in trucks, and how likely a record and its truck are named."""
    if plan is not None:
        trucks, fits = _found(measured, "trucks"), _found(measured, "bins feasible")
        if trucks is not None:
            extra = int(trucks.value - trucks.baseline)
            note = f"{trucks.value:,.0f} instead of {trucks.baseline:,.0f} without privacy"
            state = RED if extra > HIGH_COST * trucks.baseline else GOOD
            yield Figure(name="Extra trucks", value=f"{extra:,}", note=note, state=state)
        else:
            yield Figure(name="Trucks", value=f"{plan.num_bins:,}", note="on the release")
        if fits is not None:
            over = round((1 - fits.value) * plan.num_bins)
            note = f"of {several(plan.num_bins, 'truck')}"
            yield Figure(name="Overloaded", value=f"{over:,}", note=note, state=WARN if over else GOOD)
    for name, label in (("record linkage", "Chance to find one"), ("truck linkage", "Chance to name its truck")):
        if (item := _found(measured, name)) is not None:
            high = HIGH_LINKAGE if name == "truck linkage" else HIGH_CHANCE
            state = RED if item.value >= high else WARN if item.value >= high / 2 else GOOD
            yield Figure(name=label, value=_odds(item.value), note=f"{percent(item.value)} on average", state=state)


def _odds(chance: float) -> str:
    return "certain" if chance > 0.95 else f"1 in {number_text(max(1.1, round(1 / chance, 1)))}" if chance else "none"


def _count_figures(dry: DryRun) -> list[Figure]:
    """Say how far off the sums of each level are predicted to be."""
    if dry.usefulness is None:
        return []
    states = {"good": GOOD, "rough": WARN, "noise": RED}
    figures = []
    for level in dry.usefulness.expected.levels:
        note, state = f"{level.verdict}: {level_words(level, dry.usefulness.expected.noun)}", states[level.verdict]
        figures.append(Figure(name=level.level, value=percent(level.error), note=note, state=state))
    return figures


def _side_by_side(rows: Dataset, release: Release, key: Key) -> dict[str, Sheet]:
    """Show ten records as they are and as they would be released."""
    table = key.table.to_pydict()
    if not table["row"]:
        return {}
    picked = np.unique(np.linspace(0, len(table["row"]) - 1, NUM_LINES).astype(int))
    sources = np.array([table["source_row"][at] for at in picked], dtype=np.int64)
    records, own = rows.parts.records_of(sources), rows.original.take(sources)
    columns = {}
    for item in rows.schema:
        if item.name in own.column_names:
            columns[item.name] = own.column(item.name)
        elif item.role is not Role.DROP:
            columns[item.name] = rows.column(item.name).take(pa.array(records))
    after = release.data.take([table["row"][at] for at in picked])
    return {"Ten of your rows": _sheet(pa.table(columns)), "The same rows as released": _sheet(after)}


def _most_frequent(rows: Dataset, release: Release) -> dict[str, Sheet]:
    """Show the ten most frequent types of trips: true and released counts."""
    counted, (cells, counts) = true_counts(rows), release.counted()
    universe, released = counted.universe, dict(zip(cells.tolist(), counts.tolist(), strict=True))
    first = np.argsort(-counted.counts, kind="stable")[:NUM_LINES]
    labels = [
        [universe.labels(name)[code] for code in universe.column_codes(name, counted.cells[first])]
        for name in universe.cell_columns
    ]
    lines = [
        [*names, f"{count:,}", f"{released.get(cell, 0):,}"]
        for *names, cell, count in zip(
            *labels, counted.cells[first].tolist(), counted.counts[first].tolist(), strict=True
        )
    ]
    units = plural(universe.unit)
    names = [*universe.cell_columns, f"true {units}", f"released {units}"]
    caption = f"The ten most frequent {units}, true and as one release would have them"
    return {caption: Sheet(columns=names, lines=lines)}


def _sheet(table: Any) -> Sheet:
    lines = [["" if cell is None else _text(cell) for cell in row.values()] for row in table.to_pylist()]
    return Sheet(columns=table.column_names, lines=lines)


def _text(cell: object) -> str:
    if isinstance(cell, float):
        return number_text(cell) if math.isfinite(cell) else str(cell)
    return ", ".join(map(str, cell)) if isinstance(cell, list) else str(cell)[:80]


def _offers(rules: Policy, dry: DryRun, figures: list[Figure]) -> Iterator[Offer]:
    """Offer policies that would help where something is red."""
    document = copy.deepcopy(dict(rules.document))
    mechanism, kind = document["mechanism"], MECHANISMS[str(rules.mechanism["name"])]
    red = [figure for figure in figures if figure.state == RED]
    if "k" in mechanism and any("Chance" in figure.name for figure in red):
        for k in (2 * int(mechanism["k"]), 4 * int(mechanism["k"])):
            yield Offer(label=f"Use k = {k}", policy=_written(document, {"mechanism": {"k": k}}))
    statistic = kind.model_fields.get("statistic")
    if statistic is not None and mechanism.get("statistic", statistic.default) == "multiset" and red:
        text = _written(document, {"mechanism": {"statistic": "bounds"}})
        yield Offer(label="Publish bounds instead of every value", policy=text)
    for remedy in dry.usefulness.remedies if dry.usefulness is not None else ():
        changes: Any = {}
        for part in remedy.change.split("; "):
            if (match := _CHANGE.fullmatch(part)) is None:
                break
            where = changes
            for name in match.groups()[-1].replace('"', "").split("."):
                where = where.setdefault(name, {})
            where |= {name: tomllib.loads(f"x = {text}")["x"] for name, text in _SET.findall(match[1])}
        else:
            yield Offer(label=f"Write {remedy.change}", policy=_written(document, changes))


def _written(document: Document, changes: Document) -> str:
    """Write a policy with some values changed; another mechanism keeps nothing of the one before but its epsilon."""

    def merged(old: Any, new: Any) -> Any:
        if not isinstance(old, Mapping) or not isinstance(new, Mapping):
            return new
        return {**old, **{name: merged(old.get(name), value) for name, value in new.items()}}

    base = dict(document)
    if "name" in changes.get("mechanism", {}):
        kept = {name: value for name, value in base["mechanism"].items() if name == "epsilon"}
        base["mechanism"] = kept
    return tomli_w.dumps(merged(base, changes))


def main() -> None:
    given = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True))

    def tell(stage: str) -> None:
        sys.stderr.write(f"progress: {stage}\n")

    run(
        lambda: preview(
            Path(given["--policy"]),
            Path(given["--data"]),
            ledger=given["--ledger"],
            period=given.get("--period") or None,
            city=Path(given["--city"]) if given.get("--city") else None,
            capacity=[text for text in given.get("--capacity", "").split(",") if text.strip()],
            tell=tell,
            show=show_early,
        )
    )


if __name__ == "__main__":
    main()
