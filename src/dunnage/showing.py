# SPDX-License-Identifier: Apache-2.0
"""Text for a person: what ``dunnage show`` prints of a release, a policy, a dry run."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dunnage.errors import ReleaseError
from dunnage.exact import decimal_text, exact
from dunnage.mechanisms.foresight import Foresight
from dunnage.policy import Policy
from dunnage.publishing import DryRun, mechanism_of
from dunnage.release import COUNTS, Release
from dunnage.release_words import bound_words, days_words, loss_words, noise_spread, several, trips_amount
from dunnage.schema import Schema
from dunnage.trips import Universe

PICTURE_WIDTH = 50
MOST_CLASSES_DRAWN = 24
MOST_LABELS_NAMED = 4
_LABEL_WORDS = {"tree": "leaves", "graph": "vertices", "ordinal": "levels", "category": "values"}
_SAID = {"claim": "Claimed", "why": "Why"}


def release_text(release: Release) -> str:
    """Describe a release: what it promises, what it shows, how its classes lie.

    Raises
    ------
    ReleaseError
        If its figures do not have the form of a release; :func:`dunnage.verify` says more.
    """
    try:
        return _release_text(release)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, ZeroDivisionError):
        # The digests fit, so whoever made the release made it so.
        raise ReleaseError("the release does not have the form of one. Run dunnage verify on it.") from None


def _release_text(release: Release) -> str:
    body = release.certificate.body
    title = f"Release of {body['dataset']}" + (f", period {body['period']}" if "period" in body else "")
    parts = [
        f"{title}\n{'=' * len(title)}",
        _statement_text(body),
        _counts_text(release) if release.kind == COUNTS else _measures_text(body["measures"]),
        *(interval_picture(release, name) for name in _pictured(release)),
        label_list(release),
        f"Certificate {release.certificate.digest}\nSpend {body['spend']['id']}, {body['time']}",
    ]
    return "\n\n".join(part for part in parts if part)


def _statement_text(body: dict[str, Any] | Any) -> str:
    guarantee = ", ".join(f"{key} {value}" for key, value in body["guarantee"].items())
    mechanism = ", ".join(f"{key} {value}" for key, value in body["mechanism"].items())
    lines = [f"Guarantee   {guarantee}", f"Basis       {body['basis']}", f"Mechanism   {mechanism}"]
    lines += [f"{word:<11} {body[key]}" for key, word in _SAID.items() if key in body]
    if "holds" in body:
        lines.append(f"Holds       {', '.join(f'{key} {value}' for key, value in body['holds'].items())}")
    lines += [f"WARNING     {warning}" for warning in body.get("warnings", [])]
    lines += ["What it means", *_bullets(body["meaning"]["sentences"])]
    lines += _bullets([row["sentence"] for row in body["meaning"]["odds"] if "sentence" in row])
    lines += ["In clear", *_bullets(body["in_clear"]), "Assumes", *_bullets([*body["assumptions"]])]
    return "\n".join(lines)


def _bullets(items: list[str]) -> list[str]:
    return [f"  - {item}" for item in items]


def _measures_text(measures: dict[str, Any]) -> str:
    if "noise" in measures and "k_asked" not in measures:
        return _noise_text(measures)
    if "suppressed" not in measures:
        return _released_text(measures) if "k_asked" in measures else ""
    size, suppressed, loss, risks = (measures[key] for key in ("class_size", "suppressed", "loss", "risks"))
    sizes = f"size {size['smallest']} smallest, {size['mean']:.1f} mean, {size['largest']} largest"
    lines = [
        f"Records     {measures['records']} released, {suppressed['count']} suppressed ({suppressed['share']:.2%})",
        f"k           {measures['k_asked']} asked, {measures['k_reached']} reached"
        + (", of persons" if "persons" in measures else ""),
        f"Classes     {measures['classes']}; {sizes}",
        f"Loss        {loss['total']:.4f} of 1 ({loss['metric']})",
        f"Risks       prosecutor {risks['prosecutor_highest']:.3g} at most, marketer {risks['marketer']:.3g}",
    ]
    for name, item in measures["sensitive"].items():
        lines.append(f"Sensitive   {name}: l {item['l']}, t {item['t']:.3f} ({item['distance']})")
    return "\n".join(lines)


def _counts_text(release: Release) -> str:
    """Describe released counts: how many, of what, and with how much noise."""
    body, universe = release.certificate.body, release.universe
    measures, losses, bound = body["measures"], loss_words(body), bound_words(body)
    listed = f"{measures['cells_with_trips']:,} of {measures['cells']:,} types; a type that is not listed has none"
    return "\n".join(
        [
            f"Trips       {measures['trips']:,}, of {listed}",
            f"Universe    {_universe_text(universe)}",
            *(f"Loss        {words}" for words in losses),
            *([f"Riders      {bound}"] if bound and not losses else []),
            *_noisy_sums(measures),
        ]
    )


def _universe_text(universe: Universe) -> str:
    """Describe of what types trips can be."""
    windows, minutes = several(len(universe.windows), "window"), several(universe.window_minutes, "minute")
    parts = [several(len(universe.stops), "stop"), f"{windows} of {minutes} from {universe.windows[0]}"]
    if universe.days:
        parts.append(days_words(universe))
    dates = sum(universe.num_dates)
    return ", ".join(parts) + (f"; {several(dates, 'calendar day')} in all" if dates else "")


def _noisy_sums(measures: dict[str, Any]) -> list[str]:
    """Describe the sums that noise was added to."""
    if "features" not in measures:
        noise = measures["noise"]
        spread = trips_amount(noise_spread(exact(noise["scale"]), noise["law"]))
        return [f"Noise       {noise['law']}, standard deviation {spread} on each type"]
    return [
        f"Noise       {item['feature']}: epsilon {decimal_text(exact(item['epsilon']))}, standard deviation "
        f"{trips_amount(noise_spread(exact(item['scale']), item['law']))} on each of {item['groups']:,}"
        for item in measures["features"]
    ]


def _released_text(measures: dict[str, Any]) -> str:
    """Describe classes of which only the released rows are told."""
    lines = [f"Records     {measures['records']} released"]
    if measures["records"]:
        size = measures["class_size"]
        lines += [
            f"k           {measures['k_asked']} asked, {measures['k_reached']} reached",
            f"Classes     {measures['classes']}; size {size['smallest']} smallest, {size['mean']:.1f} mean, "
            f"{size['largest']} largest",
            f"Loss        {measures['loss']['total']:.4f} of 1, of released rows ({measures['loss']['metric']})",
        ]
    levels = ", ".join(f"{name} {level}" for name, level in measures["levels"].items())
    lines.append(f"Levels      {levels}")
    return "\n".join([*lines, *(_noise_lines(measures["noise"]) if "noise" in measures else [])])


def _noise_text(measures: dict[str, Any]) -> str:
    return "\n".join([f"Records     {measures['records']}", *_noise_lines(measures["noise"])])


def _noise_lines(noise: dict[str, Any]) -> list[str]:
    """Describe the noise of each attribute, cell by cell."""
    return [
        f"Noise       {name} {cell['lower']:g} to {cell['upper']:g}: {cell['law']}, epsilon {cell['epsilon']}"
        + (f", within {cell['radius']:g} with at least {cell['coverage']:.4g}" if cell["coverage"] else "")
        for name, cells in noise.items()
        for cell in cells[:MOST_CLASSES_DRAWN]
    ]


def foresight_text(foresight: Foresight) -> str:
    """Describe what a mechanism tells its owner beforehand; empty if that is nothing."""
    lines = [f"WARNING       {warning}" for warning in foresight.warnings]
    if foresight.lines:
        lines += ["For you only", *_bullets(list(foresight.lines))]
    return "\n".join(lines)


def _pictured(release: Release) -> list[str]:
    return [name for name in release.attributes if f"{name}_lower" in release.data.column_names]


def interval_picture(release: Release, name: str) -> str:
    """Draw the interval of each class over the public domain, one line a class."""
    if release.classes is None:
        return ""
    domain = release.attributes[name]["domain"]
    low, high = float(domain["lower"]), float(domain["upper"])
    lower = release.classes.column(f"{name}_lower").to_numpy()
    upper = release.classes.column(f"{name}_upper").to_numpy()
    sizes = release.classes.column("size").to_numpy()
    order = np.arange(len(sizes))[:MOST_CLASSES_DRAWN]  # by stratum, then interval
    strata = _strata_of_classes(release)
    unit = f" {domain['unit']}" if domain.get("unit") else ""
    lines = [f"{name}, the interval of each class between {low:g} and {high:g}{unit}"]
    for index in order:
        bar = _bar(lower[index], upper[index], low, high)
        label = f"{lower[index]:>10.10g} .. {upper[index]:<10.10g}"
        lines.append(f"  {int(index):>5}  {label} {bar} {sizes[index]} records{strata[index]}")
    if len(sizes) > MOST_CLASSES_DRAWN:
        lines.append(f"  ... and {len(sizes) - MOST_CLASSES_DRAWN} more classes")
    return "\n".join(lines)


def label_list(release: Release) -> str:
    """List the nodes and sets of each class, one line a class; empty if there are none."""
    names = [name for name, item in release.attributes.items() if item["role"] == "quasi-identifier"]
    if release.classes is None or not (names := [name for name in names if name in release.classes.column_names]):
        return ""
    rows = release.classes.select([*names, "size"]).slice(0, MOST_CLASSES_DRAWN).to_pylist()
    strata = _strata_of_classes(release)
    lines = [f"{', '.join(names)}, the node or set of each class"]
    for index, row in enumerate(rows):
        told = "  ".join(f"{name} {_labels_text(row[name])}" for name in names)
        lines.append(f"  {index:>5}  {told}  {row['size']} records{strata[index]}")
    if len(release.classes) > MOST_CLASSES_DRAWN:
        lines.append(f"  ... and {len(release.classes) - MOST_CLASSES_DRAWN} more classes")
    return "\n".join(lines)


def _labels_text(told: str | list[str]) -> str:
    """Write a node, or a set by its first labels."""
    if isinstance(told, str):
        return told
    more = [f"and {len(told) - MOST_LABELS_NAMED} more"] if len(told) > MOST_LABELS_NAMED else []
    return "{" + ", ".join([*told[:MOST_LABELS_NAMED], *more]) + "}"


def _strata_of_classes(release: Release) -> list[str]:
    """Return the public values of each class, to be printed behind it."""
    public = [name for name, item in release.attributes.items() if item["role"] == "public"]
    num_classes = len(release.classes) if release.classes is not None else 0
    if not public:
        return [""] * num_classes
    classes, first = np.unique(release.data.column("class_id").to_numpy(), return_index=True)
    first = first[classes >= 0]  # rows below 0 are in no class
    rows = release.data.select(public).take(first[:MOST_CLASSES_DRAWN]).to_pylist()
    return ["  " + ", ".join(str(value) for value in row.values()) for row in rows]


def _bar(lower: float, upper: float, low: float, high: float) -> str:
    scale = PICTURE_WIDTH / (high - low)
    start = min(int((lower - low) * scale), PICTURE_WIDTH - 1)
    stop = max(start + 1, min(math.ceil((upper - low) * scale), PICTURE_WIDTH))
    return "|" + " " * start + "█" * (stop - start) + " " * (PICTURE_WIDTH - stop) + "|"


def policy_text(policy: Policy) -> str:
    """Describe a policy: each column, and what the mechanism promises."""
    promise = mechanism_of(policy).promise(policy.schema)
    lines = [f"Policy for {policy.dataset}, protecting one {policy.schema.protects}", "Columns"]
    for attribute in policy.schema:
        domain = attribute.domain.describe() if attribute.domain is not None else {}
        span = f" [{domain['lower']}, {domain['upper']}] {domain.get('unit', '')}" if "lower" in domain else ""
        labels = getattr(attribute.domain, "labels", ())
        span = f" of {len(labels)} {_LABEL_WORDS[str(attribute.kind)]}" if str(attribute.kind) in _LABEL_WORDS else span
        counted = "tells persons apart: k counts them" if attribute.name == policy.schema.person else ""
        lines.append(f"  {attribute.name:<20} {attribute.role:<17} {attribute.kind or ''}{span}{counted}".rstrip())
    if policy.schema.trip is None:
        lines.append(f"Small strata  {policy.small}")
    else:
        lines += _trip_lines(policy.schema)
    lines.append(f"Budget        {policy.budget or 'none'}")
    if policy.period:
        lines.append(
            f"Period        one {policy.period.length}"
            + (f" of {policy.period.column}" if policy.period.column else "")
        )
    return "\n".join([*lines, "", promise_text(promise.to_dict())])


def _trip_lines(schema: Schema) -> list[str]:
    """Describe which trips a policy counts."""
    trip, time, bound = schema.trip, schema.time, schema.contribution
    assert trip is not None
    windows = f"{several(len(time.labels), 'window')} of {several(time.window_minutes, 'minute')}"
    days = f", days told apart by {trip.day or time.day}" if schema.tells_days else ""
    lines = [f"Counts trips  from {trip.origin} to {trip.destination} at {trip.time}; {windows}{days}"]
    if bound is not None:
        lines.append(f"Of a rider    at most {bound.max:,} a {bound.per}, told apart by {bound.person}")
    return lines


def promise_text(promise: dict[str, Any]) -> str:
    """Describe a promise."""
    guarantee = ", ".join(f"{key} {value}" for key, value in promise["guarantee"].items())
    lines = [f"Promises      {guarantee}; basis {promise['basis']}"]
    lines += [f"{word:<13} {promise[key]}" for key, word in _SAID.items() if key in promise]
    if "holds" in promise:
        lines.append(f"Really holds  {', '.join(f'{key} {value}' for key, value in promise['holds'].items())}")
    lines += [f"WARNING       {warning}" for warning in promise.get("warnings", [])]
    lines += ["In clear", *_bullets(promise["in_clear"])]
    lines += ["Assumes", *_bullets([f"{name}: {says}" for name, says in promise["assumptions"].items()])]
    return "\n".join(lines)


def dry_run_text(run: DryRun) -> str:
    """Describe what publishing would do."""
    return "\n".join(
        [
            "Dry run: nothing was drawn, spent or written.",
            f"Records       {run.num_rows} valid, {run.num_left_out} left out by the policy",
            promise_text(run.promise.to_dict()),
            f"Would spend   {run.asked}",
            f"Spent so far  {run.before.total}",
            f"Left now      {run.before.left_text()}",
            f"Left then     {run.after.left_text()}",
            *([text] if (text := foresight_text(run.foresight)) else []),
        ]
    )
