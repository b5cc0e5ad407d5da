# SPDX-License-Identifier: Apache-2.0
"""Text for a person: what ``dunnage show`` says about every kind of file and folder, recognised by its content.

Files may come from anybody. They are read with limits, and a file with the wrong structure is refused with a message,
whatever it contains. For a dataset, only the names and types of columns are shown, never a value.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import json
import math
import os
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from dunnage.collecting.estimate import normal_quantile
from dunnage.collecting.files import describe_reports, describe_tallies, read_task_file
from dunnage.collecting.identity import NO_TAG, KeyRing, SealedRecord
from dunnage.collecting.precision import Precision, more_lines, needs_of_release, needs_of_task, plan_lines
from dunnage.collecting.tasks import read_carriers, task_of
from dunnage.devices.allowance import LOST, MAX_DAY_LOSS, Spent
from dunnage.devices.client import check_task
from dunnage.devices.client import mechanism_of as device_mechanism
from dunnage.devices.task import Schedule, Task
from dunnage.errors import (
    AllowanceError,
    CheckFailed,
    DunnageError,
    InputError,
    ParameterError,
    PolicyError,
    ReleaseError,
    SealError,
    TaskError,
)
from dunnage.exact import decimal_text
from dunnage.model.certificate import MAX_CERTIFICATE_BYTES, Certificate, ProofNote, load_public_key, odds
from dunnage.model.domains import Numeric, clock_text, domain_from
from dunnage.model.guarantees import Basis, Guarantee, Loss, Promise, WithinCluster
from dunnage.model.policy import Policy, is_for_devices
from dunnage.publishing import DryRun, mechanism_of, promise
from dunnage.release import Release
from dunnage.release.kinds import ESTIMATES
from dunnage.release.kinds.counts import expected_lines
from dunnage.release.kinds.rows import MAX_LINES
from dunnage.release.page import UNSET
from dunnage.tables.reader import EXCEL_ENDINGS, TAB_ENDINGS, ReadOptions, guess_options, read_table
from dunnage.text import large_percent, number_text, plural, several, time_text

if TYPE_CHECKING:
    from dunnage.usefulness import Usefulness

# Releases, policies, dry runs and tasks: what they promise


PICTURE_WIDTH = 50
MAX_LABELS_NAMED = 4
_LABEL_WORDS = {"tree": "leaves", "graph": "vertices", "ordinal": "levels", "category": "values"}
_FIRST = ("name", "model", "protects", "k", "epsilon", "delta", "beta", "neighbours")


def titled(title: str) -> str:
    return f"{title}\n{'=' * len(title)}"


def labelled(*pairs: tuple[str, object], width: int = 11) -> list[str]:
    """Write labels with their texts, one line each; a text that is None is left out."""
    return [f"{label:<{width}} {text}" for label, text in pairs if text is not None]


def release_text(release: Release) -> str:
    certificate = release.certificate
    title = f"Release of {certificate.dataset}" + (f", period {certificate.period}" if certificate.period else "")
    pictured = [name for name in release.attributes if f"{name}_lower" in release.data.column_names]
    try:
        parts = [
            titled(title),
            *release.owner.cautions(release),
            statement_text(certificate),
            "\n".join(release.owner.figures(release)),
            *(interval_picture(release, name) for name in pictured),
            label_list(release),
            f"Certificate {certificate.digest}\nSpend {certificate.spend.id}, {time_text(certificate.time)}",
        ]
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, ZeroDivisionError):
        # The digests match, so the maker of the release wrote it this way.
        raise ReleaseError("the release is malformed. Check it with dunnage verify.") from None
    return "\n\n".join(part for part in parts if part)


def headlines(certificate: Certificate) -> list[tuple[str, str]]:
    """Say in one or two titled lines what is promised; a claim always comes with what really holds."""
    stated = guarantee_words(certificate.guarantee)
    if certificate.basis is Basis.VOID:
        return [("Promises", f"nothing: {certificate.why}")]
    if certificate.basis is Basis.PROVED:
        return [("Promises", stated)]
    holds = guarantee_words(certificate.holds) if certificate.holds is not None else "no bound is proved"
    return [("Claimed", f"{stated}; not proved"), ("Holds", holds)]


def guarantee_words(guarantee: Guarantee) -> str:
    """Write a guarantee in a line; one within clusters adds that there is no bound across them."""
    stated = guarantee.to_dict()
    words = ", ".join(f"{key} {stated[key]}" for key in _in_order(stated))
    if not isinstance(guarantee, WithinCluster):
        return words
    unit = "area" if "areas" in guarantee.clusters else "cluster"
    return f"{words}; only between values of the same {unit}: across {unit}s there is no bound"


def _in_order(names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda name: _FIRST.index(name) if name in _FIRST else len(_FIRST))


def statement_text(certificate: Certificate) -> str:
    parameters = certificate.mechanism

    def write(key: str, value: Any) -> str:  # the purposes of estimates are long: only what they are
        if key == "purposes" and isinstance(value, dict):
            return " and ".join(f"{name} ({item['name']}, {item['method']})" for name, item in sorted(value.items()))
        return str(value)

    given = {key: parameters[key] for key in _in_order(parameters)}
    lines = labelled(
        ("Stated" if certificate.basis is Basis.CLAIMED else "Guarantee", guarantee_words(certificate.guarantee)),
        ("Basis", certificate.basis),
        ("Mechanism", ", ".join(f"{key} {write(key, value)}" for key, value in given.items() if value not in UNSET)),
        ("Claimed", certificate.claim),
        ("Why", certificate.why),
        ("Holds", None if certificate.holds is None else guarantee_words(certificate.holds)),
        ("Proof", certificate.proof),
        *(("WARNING", warning) for warning in certificate.warnings or []),
    )
    lines += ["What it means", *_bullets(certificate.meaning.sentences)]
    lines += _bullets([row.sentence for row in certificate.meaning.odds if row.sentence is not None])
    lines += [
        "In clear",
        *_bullets(certificate.in_clear or ("nothing",)),
        "Assumes",
        *_bullets(certificate.assumptions),
    ]
    return "\n".join(lines)


def _bullets(items: Iterable[str]) -> list[str]:
    return [f"  - {item}" for item in items]


def interval_picture(release: Release, name: str) -> str:
    if release.classes is None:
        return ""
    stated = release.attributes[name]
    domain = domain_from(stated.domain or {})
    if not isinstance(domain, Numeric):
        return ""
    low, high = float(domain.lower), float(domain.upper)
    lower = release.classes.column(f"{name}_lower").to_numpy()
    upper = release.classes.column(f"{name}_upper").to_numpy()
    sizes = release.classes.column("size").to_numpy()
    strata, scale = _strata_of_classes(release), PICTURE_WIDTH / (high - low)
    unit = f" {stated.unit}" if stated.unit and not stated.clock else ""

    def said(value: float) -> str:
        return clock_text(round(value)) if stated.clock else f"{value:.10g}"

    unit_of_row, shows = "records", "the interval of each class"
    if release.certificate.rows.slots is not None:
        unit_of_row, shows = "slots", "the size of slots"
    lines = [f"{name}: {shows}, between {said(low)} and {said(high)}{unit}"]
    for index in range(min(len(sizes), MAX_LINES)):  # by stratum, then interval
        start = min(int((lower[index] - low) * scale), PICTURE_WIDTH - 1)
        stop = max(start + 1, min(math.ceil((upper[index] - low) * scale), PICTURE_WIDTH))
        bar = f"|{' ' * start}{'█' * (stop - start)}{' ' * (PICTURE_WIDTH - stop)}|"
        label = f"{said(lower[index]):>10} .. {said(upper[index]):<10}"
        lines.append(f"  {index:>5}  {label} {bar} {sizes[index]} {unit_of_row}{strata[index]}")
    if len(sizes) > MAX_LINES:
        lines.append(f"  ... and {len(sizes) - MAX_LINES} more classes")
    return "\n".join(lines)


def label_list(release: Release) -> str:
    """List the node or set of labels of each class, one line per class; empty if there are none."""
    names = [name for name, item in release.attributes.items() if item.role == "quasi-identifier"]
    if release.classes is None or not (names := [name for name in names if name in release.classes.column_names]):
        return ""
    rows = release.classes.select([*names, "size"]).slice(0, MAX_LINES).to_pylist()
    strata = _strata_of_classes(release)
    lines = [f"{', '.join(names)}: the node or set of each class"]
    for index, row in enumerate(rows):
        texts = []
        for name in names:
            labels = row[name]  # one node, or a set
            if not isinstance(labels, str):
                more = [f"and {len(labels) - MAX_LABELS_NAMED} more"] if len(labels) > MAX_LABELS_NAMED else []
                labels = "{" + ", ".join([*labels[:MAX_LABELS_NAMED], *more]) + "}"
            texts.append(f"{name} {labels}")
        lines.append(f"  {index:>5}  {'  '.join(texts)}  {row['size']} records{strata[index]}")
    if len(release.classes) > MAX_LINES:
        lines.append(f"  ... and {len(release.classes) - MAX_LINES} more classes")
    return "\n".join(lines)


def _strata_of_classes(release: Release) -> list[str]:
    public = [name for name, item in release.attributes.items() if item.role == "public"]
    num_classes = len(release.classes) if release.classes is not None else 0
    if not public:
        return [""] * num_classes
    classes, first = np.unique(release.data.column("class_id").to_numpy(), return_index=True)
    first = first[classes >= 0]  # rows below 0 are in no class
    rows = release.data.select(public).take(first[:MAX_LINES]).to_pylist()
    return ["  " + ", ".join(str(value) for value in row.values()) for row in rows]


def policy_text(policy: Policy) -> str:
    mechanism = mechanism_of(policy)
    promised = mechanism.promise(policy.schema)
    lines = [f"Policy for {policy.dataset}, protecting one {policy.schema.protects}", "Columns"]
    for attribute in policy.schema:
        domain = attribute.domain.describe() if attribute.domain is not None else {}
        span = f" [{domain['lower']}, {domain['upper']}] {domain.get('unit', '')}" if "lower" in domain else ""
        labels = getattr(attribute.domain, "labels", ())
        span = f" of {len(labels)} {_LABEL_WORDS[str(attribute.kind)]}" if str(attribute.kind) in _LABEL_WORDS else span
        counted = "identifies persons: k counts persons" if attribute.name == policy.schema.person else ""
        lines.append(f"  {attribute.name:<20} {attribute.role:<17} {attribute.kind or ''}{span}{counted}".rstrip())
    if policy.schema.trip is None and mechanism.kind == "counts":
        universe = policy.schema.universe()
        lines.append(
            f"Counts        {plural(universe.unit)} by {', '.join(universe.columns)}: {universe.num_cells:,} types"
        )
    elif policy.schema.trip is None:
        lines.append(f"Small strata  {policy.small}")
    else:
        trip, time, bound = policy.schema.trip, policy.schema.time, policy.schema.contribution
        windows = f"{several(len(time.labels), 'window')} of {several(time.window_minutes, 'minute')}"
        days = f", days from {trip.day or time.day}" if policy.schema.tells_days else ""
        between = " between zones" if trip.level == "zone" else ""
        where = f"from {trip.origin} to {trip.destination}{between}"
        if trip.destination is None:
            where = f"by where they begin, {'the zone of ' if trip.level == 'zone' else ''}{trip.origin},"
        lines.append(f"Counts trips  {where} at {trip.time}; {windows}{days}")
        if bound is not None:
            corrected = "" if bound.total_max is None else f"; counts are corrected up to {bound.total_max:,} trips"
            counted = f"at most {bound.max:,} trips per {bound.per}; identified by {bound.person}"
            lines.append(f"Each rider    {counted}{corrected}")
    lines.append(f"Budget        {policy.budget or 'none'}")
    if policy.period:
        column = f" of {policy.period.column}" if policy.period.column else ""
        written = f", written as {policy.period.format}" if policy.period.format else ""
        lines.append(f"Period        one {policy.period.length}{column}{written}")
    if policy.loading.columns:
        lines.append(f"Loading list  {', '.join(policy.loading.columns)}, besides identifiers; for the owner only")
    predicted: list[str] = []
    if mechanism.kind == "counts" and policy.expect.size is not None:
        from dunnage.usefulness import predict_usefulness  # it loads the kernels of counts

        try:
            predicted = usefulness_lines(predict_usefulness(policy, mechanism, bounds=True))
        except ParameterError as error:
            later = "Predicted     by dunnage publish --dry-run, for one period"
            predicted = [later if policy.period is not None else f"REFUSED by publish: {error}"]
    return "\n".join([*lines, "", promise_text(promised), *predicted])


def usefulness_lines(usefulness: Usefulness | None) -> list[str]:
    if usefulness is None:
        return []
    refused = [f"REFUSED by publish without --allow-noise: {usefulness.message}"] if usefulness.is_noise else []
    lines = [*expected_lines(usefulness.expected), *refused]
    released = usefulness.expected.levels[0]
    if released.verdict == "rough":
        good = "; ".join(level.level for level in usefulness.expected.levels if level.verdict == "good")
        advice = f"Look only at what is good: {good}." if good else "So are all their sums."
        if usefulness.remedies:
            advice = "Any one of these lines gives good counts:"
        elif not good and usefulness.bounds:
            advice += " Another max may do better:"
        lines += [f"Single counts of {released.level} are rough. {advice}", *usefulness.changes]
    if usefulness.bounds:
        columns = list(zip(*(item.levels for item in usefulness.bounds), strict=True))
        best = [usefulness.bounds[int(np.argmin([level.error for level in own]))].max for own in columns]
        names = [own[0].level for own in columns]
        lines.append("Predicted errors in all, by the largest number of counted trips of a rider (max)")
        lines.append("  ".join(["  max", *names]))
        for item in usefulness.bounds:
            errors = (f"{large_percent(level.error):>{len(level.level)}}" for level in item.levels)
            lines.append("  ".join([f"{item.max:>5}", *errors]))
        which = "; ".join(f"max = {most} for {name}" for most, name in zip(best, names, strict=True))
        lines.append(f"  Best: {which}. Public facts alone say so, so you may follow it.")
    return lines


def promise_text(promise: Promise) -> str:
    proof = promise.to_dict().get("proof")
    lines = labelled(
        (
            "Claims" if promise.basis is Basis.CLAIMED else "Promises",
            f"{guarantee_words(promise.guarantee)}; basis {promise.basis}",
        ),
        ("Claimed", promise.claim or None),
        ("Why", promise.why or None),
        ("Really holds", None if promise.holds is None else guarantee_words(promise.holds)),
        ("Proof", ProofNote.model_validate(proof) if proof else None),
        *(("WARNING", warning) for warning in promise.warnings),
        width=13,
    )
    lines += ["In clear", *_bullets(promise.in_clear or ("nothing",))]
    lines += ["Assumes", *_bullets(f"{item.name}: {item.says}" for item in promise.assumptions)]
    return "\n".join(lines)


def dry_run_text(run: DryRun) -> str:
    foresight = run.foresight  # what the mechanism shows the owner in advance
    left_out = f"{run.num_rows} valid, {run.num_left_out} left out by the policy"
    return "\n".join(
        [
            "Dry run: no noise was sampled, and nothing was spent or written.",
            *(f"Publishing would be refused: {refusal}" for refusal in run.refusals),
            *labelled(("Records", left_out), width=13),
            promise_text(run.promise),
            *labelled(
                ("Would spend", run.asked),
                ("Spent so far", run.before.total),
                ("Left now", run.before.left_text()),
                ("Left then", run.after.left_text()),
                *(("WARNING", warning) for warning in foresight.warnings),
                width=13,
            ),
            *usefulness_lines(run.usefulness),
            *(["For you only", *_bullets(foresight.lines)] if foresight.lines else []),
        ]
    )


def schedule_words(schedule: Schedule) -> str:
    """Say from which moments of a day slots are chosen."""
    hours = f" between {schedule.hours[0]} and {schedule.hours[1]} UTC" if schedule.hours else ""
    return f"{schedule.slots_per_day:,} of {several(len(schedule.moments), 'moment')} a day{hours}"


def task_text(
    task: Task, devices: int | None = None, *, confidence: float = 0.95, precision: Precision | None = None
) -> str:
    """Describe a task: its questions, what vehicles give away, and the predicted error of estimates for a fleet."""
    schedule = task.schedule
    slots = f"{schedule_words(schedule)}, at random, chosen before the day"
    late = f"sent within {several(schedule.lateness_minutes, 'minute')}; a day closes at {schedule.closing} UTC"
    lines = [
        titled(f"Task of {task.dataset}, version {task.version}"),
        *labelled(("Digest", task.digest), ("Protects", task.protects), ("Schedule", f"{slots}; {late}")),
    ]
    for purpose in task.purposes:
        mechanism = device_mechanism(task, purpose)
        parameters = "".join(f", {name} {value}" for name, value in purpose.parameters.items())
        lines += ["", f"{purpose.name}: {purpose.mechanism}{parameters}"]
        for quantity in purpose.quantities:
            unit = f" {quantity.unit}" if quantity.unit else ""
            span = f"{decimal_text(quantity.low)} to {decimal_text(quantity.high)}{unit}"
            lines.append(f"  {quantity.name:<20} {span}; missing: {quantity.missing}")
        if purpose.grid is not None:
            grid, side = purpose.grid, purpose.grid.num_columns
            width, height = (float(pitch) for pitch in grid.pitch_km)
            paths = f"; paths of {purpose.steps} cells" if purpose.steps > 1 else ""
            lines.append(f"  grid of {side:,} x {side:,} cells, {width:.3g} km by {height:.3g} km each{paths}")
        for tier in mechanism.levels:
            bits = mechanism.payload_bits(tier)
            lines.append(
                f"  tier {tier.name:<15} epsilon {decimal_text(tier.epsilon)} a report; "
                f"{several(math.ceil(bits / 8), 'byte')} of payload"
            )
        if devices is None:
            continue
        # The predicted error of each estimate, by tier and for all tiers together, if the tiers are equally large.
        each = max(devices // len(mechanism.levels), 1)
        rows: dict[str, list[float]] = {}
        for tier in mechanism.levels:
            sds = mechanism.predicted_sd(tier, each)
            rows[tier.name] = list(sds) if isinstance(sds, tuple) else [sds]
        if len(rows) > 1:  # more precise tiers have more weight
            together = zip(*rows.values(), strict=True)
            rows["together"] = [math.sqrt(1 / sum(1 / sd**2 for sd in of_tiers)) for of_tiers in together]
        names = [quantity.name for quantity in purpose.quantities] or ["share"]
        units = [quantity.unit for quantity in purpose.quantities] or [""]
        factor = normal_quantile(confidence)
        level = f"{100 * confidence:g} %"
        lines.append(f"  Predicted for {devices:,} vehicles: standard deviation, half the width of a {level} interval")
        for tier_name, deviations in rows.items():
            for name, unit, sd in zip(names, units, deviations, strict=True):
                lines.append(f"    {tier_name:<12} {name:<20} {sd:>10.3g}  +- {factor * sd:.3g} {unit}".rstrip())
        if purpose.grid is not None:
            verdict = mechanism.noise_verdict(devices)
            lines.append(f"  {'NOISE' if verdict.is_noise else 'Map'}: {verdict.message}")
    needs = needs_of_task(task, precision or Precision(), confidence=confidence) if devices is not None else []
    if needs and devices is not None:
        lines += ["", "What a precision takes", *(f"  {text}" for text in plan_lines(needs, task, devices))]
    # What a report, a slot, a day and a lifetime give away, and what this means in odds.
    lines += ["", "What a vehicle gives away"]
    losses = check_task(task)
    for tier_name in task.tier_names:
        day = losses.of_day(tier_name)
        parts: list[tuple[str, Fraction | None]] = [
            *((f"one report of {p.name}", losses.by_report[tier_name, p.name]) for p in task.purposes),
            *([("one slot", losses.of_slot(tier_name))] if len(task.purposes) > 1 else []),
            ("a day", day),
            ("a lifetime", None if day is None else task.limits.lifetime),
        ]
        lines.append(f"  tier {tier_name}")
        for name, loss in parts:
            bound = "no bound" if loss is None else f"{Loss(loss)}: {odds(Loss(loss))[1].sentence}"
            lines.append(f"    {name:<28} {bound}")
        if day is not None:
            lines.append(f"    {'lasts for':<28} {several(task.limits.lifetime // day, 'day')}, then reports stop")
    return "\n".join(lines)


def predictions(task: Task, devices: int) -> list[str]:
    hints = []
    for purpose in task.purposes:
        mechanism = device_mechanism(task, purpose)
        if purpose.grid is not None:
            hints.append(f"{purpose.name}: {mechanism.noise_verdict(devices).message}")
            continue
        tier = min(task.slot_tiers(purpose), key=lambda tier: tier.epsilon)
        sds = mechanism.predicted_sd(tier, devices)
        means = (
            f"{number_text(float(f'{2 * sd:.2g}'))} {q.unit}".rstrip() + f" for {q.name}"
            for q, sd in zip(purpose.quantities, sds, strict=True)
        )
        hints.append(
            f"{purpose.name}: with {devices:,} vehicles, all of tier {tier.name}, means are within about "
            f"{', '.join(means)}"
        )
        if noise := [q.name for q, sd in zip(purpose.quantities, sds, strict=True) if 4 * sd >= q.high - q.low]:
            hints.append(f"{purpose.name}: NOISE, as wide as the whole range: {', '.join(noise)}")
    return hints


def device_policy_text(path: Path, devices: int, precision: Precision) -> tuple[dict[str, object], str]:
    policy = read_carriers(path)
    task = task_of(policy)
    promises = {purpose.name: device_mechanism(task, purpose).promise() for purpose in task.purposes}
    statements, hints = check_task(task).statements(), predictions(task, devices)
    schedule, limits = task.schedule, task.limits
    lines = [f"Policy for {policy.dataset}, protecting one {policy.protects}; for devices", "Reported"]
    lines += [f"  {n.name:<20} number [{float(n.low):g}, {float(n.high):g}] {n.unit}".rstrip() for n in policy.numbers]
    lines += [f"  {name:<20} {grid.num_cells:,} cells of a box" for name, grid in policy.grids.items()]
    tiers = {tier.name: tier.epsilon for purpose in task.purposes for tier in purpose.tiers}
    listed = ", ".join(f"{name} (epsilon {float(epsilon):g})" for name, epsilon in tiers.items())
    day = "" if limits.day is None else f", {float(limits.day):g} for a day"
    slots = f"{schedule_words(schedule)}, chosen at random before the day"
    late = f"a report may come {schedule.lateness_minutes} minutes late; a day closes at {schedule.closing} UTC"
    lines += labelled(
        ("Tiers", listed),
        ("Schedule", f"{slots}; {late}"),
        ("Allowance", f"epsilon {float(limits.lifetime):g} for a lifetime{day}"),
        width=13,
    )
    parts = ["\n".join(lines)]
    parts += [f"Mechanism {name}\n{promise_text(promise)}" for name, promise in promises.items()]
    parts.append("\n".join(["Gives away", *(f"  {text}" for text in statements)]))
    parts.append("\n".join(["Predicted error", *(f"  {text}" for text in hints)]))
    if needs := list(plan_lines(needs_of_task(task, precision), task, devices)):
        parts.append("\n".join(["What a precision takes", *(f"  {text}" for text in needs)]))
    described: dict[str, object] = {
        "dataset": policy.dataset,
        "digest": policy.digest(),
        "task": task.to_dict(),
        "promises": {name: promise.to_dict() for name, promise in promises.items()},
        "losses": statements,
        "predicted": hints,
    }
    return described, "\n\n".join(parts)


# Any file or folder


Shown = tuple[Mapping[str, object], str]  # plain data for programs, and text for a person

DEFAULT_DEVICES = 5_000  # vehicles for which errors are predicted
HEAD_BYTES = 1 << 16  # bytes that are read to recognise a file
MAX_BYTES, MAX_TABLE_BYTES = 1 << 26, 1 << 28  # largest document and largest table that are read as a whole
MAX_LISTED = 200  # columns, files or other items that are listed
_OPENED_WITH = {".html": "a page. Open it in a browser", ".md": "text. Read it as it is"}
# Files that stand for their folder.
_MAIN_FILES = ("plan.json", "audit.json", "settlement.json", "frontier.json")
_FOLDERS = {  # files that a folder of each kind contains
    "a plan": ("plan.json",),
    "an audit": ("audit.json",),
    "a settlement": ("settlement.json",),
    "a frontier": ("frontier.json",),
    "a release": ("certificate.json",),
    "a demo": ("report.html", "numbers.csv"),
    "an unfinished frontier": ("points.jsonl",),
    "a city": ("stops.csv",),
    "a GTFS feed": ("stops.txt",),
}
_MALFORMED = (ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
FILE_KINDS = (
    "policy (.toml)",
    "task, tallies, certificate, datapackage or proof (.json)",
    "reports or sealed records (.jsonl, .bin)",
    "plan, trucks or data (.csv, .parquet)",
    "ledger (.sqlite)",
    "GTFS feed (.zip)",
    "public key (.pem)",
    "allowance",
    "key ring",
)


def shown(path: str | os.PathLike[str], *, devices: int = DEFAULT_DEVICES, precision: Precision | None = None) -> Shown:
    place = Path(path)
    try:
        return _shown(place, devices, precision or Precision())
    except DunnageError:
        raise
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ParameterError(f"{place} cannot be read: {reason}. Check its name and permissions.") from None
    except (*_MALFORMED, csv.Error, pa.ArrowException):  # whatever the file contains
        what = "is damaged, or another program wrote it: its structure is not what its name or first bytes suggest"
        raise InputError(str(place), [f"{what}. Write it again, or use a copy."]) from None


def _shown(path: Path, devices: int, precision: Precision) -> Shown:
    if path.is_dir():
        return _shown_folder(path, precision)
    if not path.exists():
        if note := _proof_note(path):
            return {"kind": "proof note", "text": note}, note
        raise ParameterError(f"{path} does not exist. Name {_kinds()}.")
    if not path.is_file():  # reading a pipe could wait for ever
        raise ParameterError(f"{path} is neither a file nor a folder. Name {_kinds()}.")
    with path.open("rb") as source:
        head = source.read(HEAD_BYTES)
    if path.name in _MAIN_FILES:
        return _shown_folder(path.parent, precision)
    # The first bytes say what a file is, whatever its name.
    if path.name.endswith(".key.parquet"):
        raise _private_key(path)
    for start, describe in _BY_START.items():
        if head.lstrip().startswith(start):
            return describe(path)
    for kind, describe in _BY_KIND.items():
        if b'"%s"' % kind.encode() in head[:400]:
            return describe(path)
    if path.suffix.lower() == ".toml":
        return _shown_policy(path, devices, precision)
    if path.suffix.lower() == ".json":
        return _shown_json(path, devices, precision)
    if by_ending := _BY_ENDING.get(path.suffix.lower()):
        return by_ending(path)
    if path.suffix in _OPENED_WITH:
        raise ParameterError(f"{path} is {_OPENED_WITH[path.suffix]}, or show its folder.")
    raise ParameterError(f"{path} is not a file that dunnage show knows. Name {_kinds()}.")


def _proof_note(path: Path) -> str:
    """Return the note that a certificate names, such as docs/proofs/partition.md#guarantee; empty if it is none."""
    name, package = path.name.partition("#")[0], Path(__file__).parents[1]
    for folder in (package / "proofs", package.parents[1] / "docs" / "proofs"):  # of a wheel, and of the source
        if path.parent == Path("docs/proofs") and (folder / name).is_file():
            return (folder / name).read_text(encoding="utf-8")
    return ""


def _kinds() -> str:
    folders = ", ".join(dict.fromkeys(what.split(" ", 1)[1] for what in _FOLDERS))
    return f"a folder ({folders}) or a file ({'; '.join(FILE_KINDS)})"


def _shown_folder(path: Path, precision: Precision) -> Shown:
    kinds = (what for what, markers in _FOLDERS.items() if all((path / marker).is_file() for marker in markers))
    match next(kinds, None):
        case "a plan":
            from dunnage.planning.plan import FleetPlan, Plan, states_fleet_plan

            plan: FleetPlan | Plan = FleetPlan.read(path) if states_fleet_plan(path) else Plan.read(path)
            return plan.to_dict(), plan.summary()
        case "an audit":
            from dunnage.auditing.run import Audit

            audit = Audit.read(path)
            return audit.to_dict(), audit.summary()
        case "a settlement":
            from dunnage.settle.fleets import FleetSettlementDocument, read_settlement

            settled = read_settlement(path)
            private = "its lists show true packages; do not share them"
            if isinstance(settled, FleetSettlementDocument):
                private = "it shows true trips; do not share it"
            return settled.plain(), f"{settled.text()}\nRelease     {settled.release}\nPrivate     {private}"
        case "a frontier":
            from dunnage.advising.frontier import Frontier

            frontier = Frontier.read(path)
            return frontier.to_dict(), f"{frontier.summary()}\n\nPage: {path / 'frontier.html'}"
        case "a release":
            from dunnage.release import describe_release

            release = Release.read(path)
            described, text = dict(describe_release(release)), release_text(release)
            if cautions := release.owner.cautions(release):
                described["cautions"] = list(cautions)
            if release.kind == ESTIMATES:
                task = Task.from_json(json.dumps(release.certificate.estimates.task))
                needs = needs_of_release(release, task, precision)
                described["precision"] = [need.to_dict() for need in needs]
                if needs:
                    lines = labelled(*(("Precision", words) for words in more_lines(needs, task, None)))
                    text += "\n\n" + "\n".join(lines)
            return described, text
        case "a demo":
            stories = sorted(item.name for item in path.iterdir() if item.is_dir())[:20]
            report, numbers = path / "report.html", path / "numbers.csv"
            lines = [
                f"Demo        {', '.join(stories) or 'no stories'}",
                f"Page        {report} (open it in a browser; it shows true data)",
                f"Numbers     {numbers}: every number on the page, with its file",
            ]
            facts = {"kind": "demo", "report": str(report), "numbers": str(numbers), "stories": stories}
            return facts, "\n".join(lines)
        case "an unfinished frontier":
            what = "an unfinished frontier. Run the same dunnage advise command again to continue it"
            return {"kind": "frontier begun", "folder": str(path)}, f"{path} is {what}."
        case "a city":
            from dunnage.model.city import City

            city = City.read_folder(path)
            num_hubs, num_buses = int(city.hubs.sum()) if city.hubs is not None else 0, len(city.buses or ())
            stops, zones = f"{len(city.stops):,} stops", f"{len(city.zone_names):,} zones"
            times = "given" if city.times is not None else "not given; computed from the coordinates of stops"
            lines = [
                f"City        {path}: {stops}, {zones}, {num_hubs:,} hubs, {num_buses:,} bus rides between hubs",
                f"Times       {times}",
                f"Modes       {', '.join(city.mode_names[:MAX_LISTED]) if city.modes is not None else 'not given'}",
                *(f"Assumes     {text}" for text in city.assumed),
            ]
            counts = {"stops": len(city.stops), "zones": len(city.zone_names), "hubs": num_hubs, "buses": num_buses}
            return {"kind": "city", **counts, "assumed": list(city.assumed)}, "\n".join(lines)
        case "a GTFS feed":
            return _shown_feed(path)
    missing = ", ".join(f"{' and '.join(markers)} ({what})" for what, markers in _FOLDERS.items())
    raise ParameterError(f"{path} is not a folder that dunnage show knows. It contains none of {missing}.")


def _private_key(path: Path) -> ParameterError:
    return ParameterError(f"{path} is a key. A key is private and never shown. Show the release folder next to it.")


def _check_size(path: Path, max_bytes: int) -> None:
    if path.stat().st_size > max_bytes:
        raise InputError(str(path), [f"is larger than {max_bytes >> 20} MiB, so it is not read. Check the path."])


def _first(items: Mapping[str, Any]) -> dict[str, Any]:
    return dict(list(items.items())[:MAX_LISTED])


# Tables: plans made elsewhere, trucks, the numbers of a demo, the columns of a dataset


_DELIMITERS = ",;\t|"
_FOLDER_FILES = ("certificate.json", *_MAIN_FILES)
_NUMBER = re.compile(r"[+-]?\d+([.,]\d+)*([eE][+-]?\d+)?")


def _shown_csv(path: Path) -> Shown:
    policy, options = _policy_beside(path), None
    if policy is not None:
        with contextlib.suppress(OSError, DunnageError, *_MALFORMED):  # a policy may say nothing, or be unreadable
            _check_size(policy, MAX_BYTES)
            table = tomllib.loads(policy.read_text(encoding="utf-8-sig"))["read"]
            keys = table.keys() & {"delimiter", "decimal", "encoding"}
            options = ReadOptions(**{name: table[name] for name in keys})
    # The names in the first line, the first complete lines and the delimiter.
    with path.open("rb") as source:
        content = source.read(HEAD_BYTES)
    if len(content) == HEAD_BYTES:
        content = content[: content.rfind(b"\n") + 1]
    text = content.decode("latin-1")
    for encoding in ("utf-8-sig", options.encoding if options else "utf-8-sig"):  # the last one that works
        try:
            text = content.decode(encoding).removeprefix("\ufeff")
        except UnicodeError:
            continue
    first = next((line for line in text.splitlines() if line.strip()), "")
    if not first or "\0" in text:
        raise InputError(str(path), ["is not a CSV file with a header line. Check the path."])
    is_named = options is not None and (options.delimiter != "," or not path.name.endswith(TAB_ENDINGS))
    delimiter = options.delimiter if options and is_named else max(_DELIMITERS, key=first.count)
    rows = csv.reader(io.StringIO(text), delimiter=delimiter)
    try:
        names = [name.strip() for name in next(row for row in rows if row)]
    except (csv.Error, StopIteration):
        raise InputError(str(path), ["has a first line that is not valid CSV. Correct it."]) from None
    if listing := _shown_listing(path, names):
        return listing
    if all(_NUMBER.fullmatch(name) or not name for name in names):
        raise InputError(str(path), ["has values in its first line, not names of columns. Add a header line."])
    how = f", read as [read] in {policy} says" if options else ""
    parse = pacsv.ParseOptions(delimiter=delimiter, newlines_in_values=True, invalid_row_handler=lambda row: "skip")
    convert = pacsv.ConvertOptions(decimal_point=options.decimal if options else ".")
    kinds: dict[str, str] = {}
    with contextlib.suppress(pa.ArrowException, ValueError):
        data = pacsv.read_csv(pa.BufferReader(text.encode()), parse_options=parse, convert_options=convert)
        kinds = {item.name.strip(): _word(item.type) for item in data.schema}
    types = {name: kinds.get(name, "") for name in names}
    return _columns(path, types, f"types are guessed from the first lines{how}; ")


def _policy_beside(path: Path) -> Path | None:
    """Return the policy or draft with the same name in the same folder, if there is one."""
    places = (path.with_suffix(".toml"), path.with_name(path.name.split(".")[0] + ".toml"))
    return next((place for place in places if place.is_file()), None)


def _word(kind: pa.DataType) -> str:
    tests: Mapping[str, Sequence[Callable[[pa.DataType], bool]]] = {
        "number": (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal),
        "time": (pa.types.is_temporal,),
        "text": (pa.types.is_string, pa.types.is_large_string, pa.types.is_dictionary),
        "yes or no": (pa.types.is_boolean,),
        "empty": (pa.types.is_null,),
    }
    return next((word for word, kinds in tests.items() if any(test(kind) for test in kinds)), str(kind)[:40])


def _columns(path: Path, kinds: Mapping[str, str], how: str = "") -> Shown:
    listed = _first(kinds)
    lines = [f"Table       {path}: {len(kinds)} columns; {how}values are never shown"]
    lines += [f"  {name:<24} {kind}".rstrip() for name, kind in listed.items()]
    lines += [f"  ... and {len(kinds) - len(listed)} more"] if len(kinds) > len(listed) else []
    # What to do next depends on the other files in the folder.
    if any((path.parent / name).is_file() for name in _FOLDER_FILES):
        lines.append(f"This file belongs to a folder: dunnage show {path.parent}")
    elif policy := _policy_beside(path):
        lines.append(f"To publish it with its policy: dunnage publish {path} --policy {policy} -o release")
    else:
        lines.append(f"To publish it, draft a policy: dunnage draft {path} -o {path.name.split('.')[0]}.toml")
    return {"kind": "table", "columns": listed}, "\n".join(lines)


def _shown_parquet(path: Path) -> Shown:
    try:
        schema = pq.read_schema(path.absolute())
    except (pa.ArrowException, OSError, ValueError, RecursionError):
        raise InputError(str(path), ["is not a readable Parquet file. It is damaged or cut off: use a copy."]) from None
    if b"dunnage.key" in (schema.metadata or {}):
        raise _private_key(path)
    return _columns(path, {item.name: _word(item.type) for item in schema})


def _shown_listing(path: Path, names: list[str]) -> Shown | None:
    """Describe a table by its header: a plan made elsewhere, trucks, or the numbers of a demo."""
    match names:
        case ["row", "bin", *_]:
            from dunnage.planning.plan import read_assignment

            _check_size(path, MAX_TABLE_BYTES)
            bins = read_assignment(path)
            num_bins = int(bins.max()) + 1
            content = {"kind": "packing", "status": "external", "rows": len(bins), "bins": num_bins}
            lines = [
                f"Plan        {path}: {len(bins):,} rows in {num_bins:,} bins, made outside Dunnage",
                "Next        dunnage apply PLAN DATA --policy P.toml --release RELEASE --capacity 500kg -o SETTLEMENT",
            ]
        case ["zone", "shuttles", *_]:
            from dunnage.planning.plan import FleetPlan

            _check_size(path, MAX_TABLE_BYTES)
            plan = FleetPlan.read(path)
            fleet = dict(zip(plan.zones, plan.shuttles, strict=True))
            content = {"kind": "fleet", "status": "external", "fleet": fleet}
            lines = [f"Plan        {path}: {sum(plan.shuttles):,} shuttles, made outside Dunnage"]
            lines += [f"Zone        {zone}: {num}" for zone, num in _first(fleet).items()]
        case ["truck", "count", "cost", *quantities]:
            from dunnage.planning.trucks import read_trucks

            _check_size(path, MAX_TABLE_BYTES)
            trucks = read_trucks(path, quantities)
            facts = [{"truck": t.name, "count": t.count, "cost": t.cost, "capacity": dict(t.capacity)} for t in trucks]
            content, lines = {"kind": "trucks", "trucks": facts}, [f"Trucks      {path}: {len(trucks)} kinds"]
            for truck in trucks[:MAX_LISTED]:
                capacity = ", ".join(f"{name} {amount:g}" for name, amount in truck.capacity.items())
                count = "any number" if truck.count is None else f"{truck.count}"
                lines.append(f"  {truck.name:<24} {count}, cost {truck.cost:g}; holds {capacity}")
        case ["chapter", "name", "value", "text", "file", "field", *_]:
            _check_size(path, MAX_TABLE_BYTES)
            with path.open(encoding="utf-8", newline="") as source:
                rows = list(csv.DictReader(source))
            chapters = dict(Counter(row["chapter"] for row in rows).most_common(MAX_LISTED))
            content = {"kind": "numbers", "chapters": chapters}
            lines = [f"Numbers     {path}: {len(rows)} numbers on the page of the demo, each with its file and field"]
            lines += [f"  {name:<24} {several(num, 'number')}" for name, num in chapters.items()]
        case _:
            return None
    return content, "\n".join(lines)


def _shown_feed(path: Path) -> Shown:
    """Describe a GTFS feed (a folder or a zip) by the lines of each file; or a workbook, which is also a zip."""
    from dunnage.tables.gtfs import feed_contents

    if path.suffix.lower() in EXCEL_ENDINGS:  # the first sheet with a table
        table = read_table(path, guess_options(path)).table
        return _columns(path, {item.name: _word(item.type) for item in table.schema})
    counts = {
        name: max(sum(1 for line in content.split(b"\n") if line.strip()) - 1, 0)
        for name, content in sorted(feed_contents(path).items())
    }
    lines = [f"GTFS feed   {path}", *(f"  {name:<24} {several(num, 'line')}" for name, num in counts.items())]
    lines.append(f"To make a city from it: dunnage generate city -o city --gtfs {path}")
    return {"kind": "feed", "files": counts}, "\n".join(lines)


# Documents: a certificate by itself, a datapackage, a proof, figures of a demo, a task


def _shown_json(path: Path, devices: int, precision: Precision) -> Shown:
    _check_size(path, MAX_BYTES)
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise InputError(str(path), ["is not JSON. It is damaged or cut off: use a copy, or write it again."]) from None
    # By fields that only one kind of document has.
    match content:
        case {"basis": _, "guarantee": _, "digest": _}:
            # By itself, without checking the other files.
            _check_size(path, MAX_CERTIFICATE_BYTES)
            try:
                certificate = Certificate.from_bytes(path.read_bytes())
            except CheckFailed as error:  # an unreadable file: no check was requested
                raise InputError(str(path.parent), [str(error)]) from None
            period = f", period {certificate.period}" if certificate.period is not None else ""
            signer = certificate.signature.public_key if certificate.signature is not None else None
            lines = [
                titled(f"Certificate of {certificate.dataset}{period}"),
                statement_text(certificate),
                f"Signed      {f'by {signer}; not checked here' if signer else 'no'}",
                f"Files       {', '.join(sorted(certificate.files)[:MAX_LISTED])}; not checked here",
                f"Digest      {certificate.digest}",
                "To check everything: dunnage verify FOLDER",
            ]
            stated = {name: value for name, value in certificate.plain().items() if name != "signature"}
            return {**stated, "digest": certificate.digest, "signed_by": signer}, "\n".join(lines)
        case {"resources": [*_]}:
            lines = [f"Datapackage {content.get('name', path.name)}: the columns of each table, for programs"]
            resources = []
            for item in content["resources"][:MAX_LISTED]:
                fields = item.get("schema", {}).get("fields", [])[:MAX_LISTED]
                columns = {str(field["name"]): str(field.get("type", "")) for field in fields}
                lines.append(f"Table       {item['path']}")
                lines += [f"  {name:<24} {kind}".rstrip() for name, kind in columns.items()]
                resources.append({"path": str(item["path"]), "columns": columns})
            lines.append("To see what the release promises, show its folder.")
            return {"kind": "datapackage", "resources": resources}, "\n".join(lines)
        case {"mechanisms": rows}:  # the output of dunnage prove --json, or the part that a demo keeps
            from dunnage.model.documents import check
            from dunnage.proving.verdict import Proof, Verdict

            remedy = "Run dunnage prove --json again."
            verdicts = tuple(check(row, Verdict, path, what="a proof", remedy=remedy) for row in rows[:MAX_LISTED])
            seconds = float(content.get("seconds", sum(item.seconds for item in verdicts)))
            proof = Proof(verdicts=verdicts, seconds=seconds)
            words = f"Proof       {path}: a copy, not run again\n\n{proof.summary()}"
            return {"kind": "proof", **proof.to_dict()}, words
        case {"mechanism": mechanism, "claimed": claimed, "measured": measured, "how": how}:
            # The worst cases of a mechanism in the forms that a demo compares.
            claimed = float(claimed)
            lines = [f"Proof       {path}: {mechanism}, epsilon {claimed:g} claimed", f"How         {how}"]
            for form, value in _first(measured).items():
                holds = value is not None and float(value) <= claimed * (1 + 1e-9)
                loss = "no bound" if value is None else f"epsilon {float(value):.4g}"
                lines.append(f"  {form:<24} {loss}: {'holds' if holds else 'fails'}")
            return {"kind": "proof", **content}, "\n".join(lines)
        case {"format": _, "figures": figures}:
            lines = [f"Figures     {path}: calculated for the page of the demo; numbers.csv lists all its numbers"]
            lines += [f"  {name}: {item['value']} ({item['how']})" for name, item in _first(figures).items()]
            return {"kind": "figures", "figures": _first(figures)}, "\n".join(lines)
        case {"format": _, "capacity": _, "plans": plans}:
            lines = [f"Utility     {path}: the trucks of each plan, compared with a plan on true weights"]
            for name, item in _first(plans).items():
                lines.append(f"  {name:<24} {item['objective']} trucks, {item['optimum']} needed")
            return {"kind": "utility", **content}, "\n".join(lines)
    try:
        task = read_task_file(path)
    except TaskError as error:
        if isinstance(content, dict) and content.get("kind") == "dunnage task":
            raise
        raise ParameterError(
            f"{path} is not a certificate, a datapackage, a proof, a file of tallies or a task: {error}"
        ) from None
    needs = [need.to_dict() for need in needs_of_task(task, precision)]
    described = {"digest": task.digest, "devices": devices, "task": json.loads(task.to_json()), "precision": needs}
    return described, task_text(task, devices, precision=precision)


def _shown_pem(path: Path) -> Shown:
    with path.open("rb") as source:
        if b"PRIVATE KEY" in source.read(HEAD_BYTES):
            raise ParameterError(
                f"{path} is a private key, which is never shown. Extract and show its public half: "
                f"openssl pkey -in {path} -pubout -out {path.stem}.pub.pem"
            )
    raw = load_public_key(path)
    fingerprint = hashlib.sha256(raw).hexdigest()
    lines = [
        f"Public key  {raw.hex()} (Ed25519), as written in a signed certificate",
        f"SHA-256     {fingerprint}",
        f"Check with  dunnage verify RELEASE --signed-by {path}",
    ]
    content = {"kind": "public key", "algorithm": "ed25519", "public_key": raw.hex(), "sha256": fingerprint}
    return content, "\n".join(lines)


def _shown_ledger(path: Path) -> Shown:
    from dunnage.ledger import Ledger

    with Ledger.open_existing(path) as ledger:
        return ledger.to_dict(), ledger.summary()


# Policies, and drafts of them


def _shown_policy(path: Path, devices: int, precision: Precision) -> Shown:
    try:
        try:
            for_devices = is_for_devices(tomllib.loads(path.read_text(encoding="utf-8-sig")))
        except (OSError, ValueError, ArithmeticError, RecursionError):
            for_devices = False  # Policy.read says what is wrong
        if for_devices:
            return device_policy_text(path, devices, precision)
        policy = Policy.read(path)
    except PolicyError as error:
        # A draft lists its blanks and other problems; a policy without blanks is an error.
        blank = [problem for problem in error.problems if problem.what.startswith("is blank")]
        if not blank:
            raise
        others = [problem for problem in error.problems if problem not in blank]
        lines = [f"Draft       {path}: {several(len(blank), 'value')} to fill in"]
        lines += [f"  {problem.where:<28} {problem.remedy}" for problem in blank]
        lines += ["Also wrong", *(f"  - {problem}" for problem in others)] if others else []
        draft: dict[str, object] = {
            "kind": "draft",
            "blank": [{"key": problem.where, "remedy": problem.remedy} for problem in blank],
            "problems": [str(problem) for problem in others],
        }
        return draft, "\n".join(lines)
    text = policy_text(policy)
    described: dict[str, object] = {
        "dataset": policy.dataset,
        "attributes": policy.schema.describe(),
        "digest": policy.digest(),
        "promise": promise(policy).to_dict(),
    }
    return described, text


# Files of devices: key rings, sealed records, allowances


def _shown_ring(path: Path) -> Shown:
    """List the keys of a ring, but never the keys themselves."""
    keys = ring_keys(KeyRing.read(path))
    lines = [f"Key ring    {path} (private; keep a copy: without it, nobody can open the records)", *ring_lines(keys)]
    return {"kind": "key ring", "keys": keys}, "\n".join(lines)


def ring_keys(ring: KeyRing) -> list[dict[str, str]]:
    return [
        {"id": key.key_id, "algorithm": key.algorithm, "created": key.created, "state": key.state} for key in ring.keys
    ]


def ring_lines(keys: list[dict[str, str]]) -> list[str]:
    return [f"  {key['id']}  {key['algorithm']:<11}  {key['created']}  {key['state']}" for key in keys]


def _shown_sealed(path: Path) -> Shown:
    """Count sealed records by their key; aliases are not listed."""
    _check_size(path, MAX_TABLE_BYTES)
    counts: Counter[str] = Counter()
    version = 0
    with path.open("rb") as source:
        for number, line in enumerate(source, 1):
            if line.strip():
                try:
                    data = json.loads(line)
                    if "tag" in data:
                        version = int(data["tag"]["version"])
                        continue
                    counts[SealedRecord.from_json(json.dumps(data["sealed"])).key_id] += 1
                except (ValueError, KeyError, TypeError, RecursionError, SealError):
                    what = f"line {number} is not a complete sealed record. Use a copy."
                    raise InputError(str(path), [what]) from None
    lines = [f"Sealed      {counts.total():,} identity records"]
    lines += [f"  key {key}: {num:,}" for key, num in counts.items()]
    lines.append(f"Version     {version}" if version else f"Version     none: {NO_TAG}")
    lines.append(f"To open them: dunnage device open {path} --keys RING -o RECORDS.csv")
    content = {"kind": "sealed records", "records": counts.total(), "keys": dict(counts), "version": version}
    return content, "\n".join(lines)


def _shown_allowance(path: Path) -> Shown:
    """Say what a vehicle has spent, but not what it reported."""
    _check_size(path, MAX_BYTES)
    line, _, checksum = path.read_bytes().partition(b"\n")
    try:
        if checksum != b"sha256 %s\n" % hashlib.sha256(line).hexdigest().encode():
            raise ValueError
        book = json.loads(line)
        spent = {str(name): str(Spent.from_list(item)) for name, item in book["lifetime"].items()}
        tier, task, days = str(book["tier"]), str(book["task"]), len(book["days"])
        cap, pairs = str(book.get("cap", MAX_DAY_LOSS)), book.get("clocks", [])
        clocks = [[f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%S}" for at in pair] for pair in pairs]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, ArithmeticError):
        raise AllowanceError(f"the allowance {path} is damaged. {LOST}") from None
    lines = [
        f"Allowance   {path}, of one vehicle in tier {tier} (private)",
        f"Task        {task}",
        *(f"Spent       {name}: {words}" for name, words in spent.items()),
        f"Open days   {days}",
        f"Cap         epsilon {cap} a day, whatever the task",
        *(f"Clock       set back from {before} to {after}" for before, after in clocks),
    ]
    content = {"kind": "allowance", "tier": tier, "task": task, "spent": spent, "open_days": days, "cap": cap}
    return {**content, "clock_set_back": clocks}, "\n".join(lines)


_Describe = Callable[[Path], Shown]
_BY_START: Mapping[bytes, _Describe] = {
    b"PAR1": _shown_parquet,
    b"SQLite format 3\0": _shown_ledger,
    b"-----BEGIN": _shown_pem,
    b"PK\x03\x04": _shown_feed,
}
# By the kind that a file states near its beginning.
_BY_KIND: Mapping[str, _Describe] = {
    "dunnage tallies": describe_tallies,
    "dunnage key ring": _shown_ring,
    "dunnage sealed record": _shown_sealed,
    "dunnage allowance": _shown_allowance,
}
_BY_ENDING: Mapping[str, _Describe] = {
    ".sqlite": _shown_ledger,
    ".jsonl": describe_reports,
    ".bin": describe_reports,
    ".csv": _shown_csv,
    ".tsv": _shown_csv,
    ".parquet": _shown_parquet,
    ".zip": _shown_feed,
    ".pem": _shown_pem,
}
