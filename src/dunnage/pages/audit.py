# SPDX-License-Identifier: Apache-2.0
"""The page of an audit: every finding as a sentence, its value as a bar against its baseline; some as pictures."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dunnage._version import __version__
from dunnage.auditing.findings import TOPICS, AtRisk, Finding, RecordAtRisk, RiderAtRisk, TripAtRisk, VehicleAtRisk
from dunnage.auditing.run import Audit
from dunnage.pages.carriers import carrier_pictures
from dunnage.pages.common import render
from dunnage.pages.counts import count_pictures
from dunnage.pages.rides import ride_pictures
from dunnage.pages.signoff import sign_off_page, told_line
from dunnage.svg import Scale, Svg, chart, tag
from dunnage.text import percent

_TITLES = {
    "records": "Can a row be named?",
    "attributes": "Can a value be guessed?",
    "table": "Can presence or absence be told?",
    "several releases": "What do several releases tell together?",
    "trucks": "Can a truck be named?",
    "utility": "What did privacy cost?",
}
_STATISTICS = {
    "bounds": "the bounds of each class",
    "mean": "bounds and mean of each class",
    "multiset": "bounds, mean and every value of each class",
    "values": "of each class the smallest and largest number, the lowest common node, or the set of labels",
    "noise": "a noisy value and an interval for each record",
    "counts": "how many trips there are of each type, as noise allows",
    "estimates": "means and shares with intervals, estimated from what devices perturbed before they sent it",
}
_BASELINES = {
    False: "what somebody has without the release",
    True: "what somebody has without the release or, where a sentence speaks of the true table, who has that table "
    "without names",
}
# Shown first, in this order, as far as they were found; the part of a name before a bracket.
_KEY_FINDINGS = (
    "localisation, 1 day",
    "localisation, 30 days",
    "tuple guess",
    "unique by areas, 4 hours",
    "error of the mean",
    "RMSE of shares",
    "membership guess",
    "membership bound",
    "shuttles",
    "wait",
    "RMSE per cell",
    "error of the total",
    "total variation distance",
    "trips created in empty cells",
    "trips created, expected",
    "noise",
    "record linkage",
    "identification expected",
    "identification before release",
    "prosecutor risk",
    "attribute linkage",
    "certain absence",
    "correspondence, worst",
    "truck linkage",
    "objective ratio",
    "trucks",
    "total distortion",
    "coverage",
    "interval width",
)
_MOST_KEY_FIGURES = 6


def audit_page(audit: Audit) -> str:
    """Write the page of an audit.

    That of an audit which is not external shows private figures: keep the file private (mode 0600).
    """
    topics = [(topic, [item for item in audit.findings if item.topic == topic]) for topic in TOPICS]
    pictures = {"utility": [*ride_pictures(audit), *count_pictures(audit)]}
    for topic, drawn in carrier_pictures(audit).items():
        pictures.setdefault(topic, []).extend(drawn)
    content = {
        "audit": audit,
        "title": f"Audit of {audit.dataset}" + (f", {audit.period}" if audit.period else ""),
        "told": _STATISTICS[audit.statistic],
        "baseline": _BASELINES[audit.statistic == "values" and not audit.external],
        "figures": _key_figures(audit.findings),
        "topics": [
            (
                _TITLES[topic],
                pictures.get(topic, []),
                [{**told_line(item), "private": item.private, "svg": _bars(item)} for item in items],
            )
            for topic, items in topics
            if items
        ],
        "at_risk": _risk_table(audit),
        "version": __version__,
    }
    return render("audit.html", content)


def write_audit(audit: Audit, folder: str | os.PathLike[str], *, force: bool = False) -> Path:
    """Write an audit folder with its page and sign-off, readable by its owner alone unless the audit is external."""
    return audit.write(folder, page=audit_page(audit), sign_off=sign_off_page(audit), force=force)


def _key_figures(findings: Sequence[Finding]) -> list[dict[str, str]]:
    first: dict[str, Finding] = {}
    for item in findings:
        name = item.name.partition(" (")[0]
        # Of several attributes the worst is shown; of what privacy cost, the first.
        if name not in first or (item.topic != "utility" and item.value > first[name].value):
            first[name] = item
    chosen = [first[name] for name in _KEY_FINDINGS if name in first][:_MOST_KEY_FIGURES]
    return [
        {"name": item.name, "value": item.text(item.value), "note": f"baseline {item.text(item.baseline)}"}
        for item in chosen
    ]


def _bars(item: Finding) -> Svg:
    """Draw the value as a bar, the baseline as a fainter one below it, and the interval as a line, if it is one."""
    low, high = item.interval
    top = 1.0 if item.is_share else max(high, item.value, item.baseline, 1e-12)
    scale = Scale(0.0, top)
    parts = [
        tag("line", class_="axis", x1="0", x2="0", y1="0", y2="30"),
        tag("line", class_="grid", x1="100%", x2="100%", y1="0", y2="30"),
        tag("rect", class_="bar", x="0", y="2", width=scale.across(item.value), height="15"),
        tag("rect", class_="range", x="0", y="20", width=scale.across(item.baseline), height="7"),
    ]
    if low < high:
        parts.append(tag("line", class_="limit", x1=scale.across(low), x2=scale.across(high), y1="9.5", y2="9.5"))
    label = f"{item.name}: {item.text(item.value)}, baseline {item.text(item.baseline)}"
    return chart(30, parts, label=label, kind="flat")


class _Column(NamedTuple):
    """A column of the table of records most at risk: its title, the figure it tells, and how that is written."""

    title: str
    name: str
    text: Callable[[Any], str]


_count = "{:,}".format
_RISK_COLUMNS: Mapping[type[AtRisk], tuple[_Column, ...]] = {
    RecordAtRisk: (
        _Column("Rows that may be it", "rows", _count),
        _Column("Row named", "record_linkage", percent),
        _Column(
            "Value guessed", "attribute_linkage", lambda by: ", ".join(f"{name} {percent(p)}" for name, p in by.items())
        ),
    ),
    TripAtRisk: (
        _Column("Suspicion of one half became", "suspicion", percent),
        _Column("Trips of its type", "alike", _count),
        _Column("Released of its type", "released", _count),
    ),
    RiderAtRisk: (
        _Column("Presence guessed", "guess", percent),
        _Column("Trips counted", "trips", _count),
        _Column("Types of trip", "types", _count),
    ),
    VehicleAtRisk: (
        _Column("Rows in one place", "stays", percent),
        _Column("Found if it always stays", "found_if_it_stays", percent),
    ),
}


def _risk_table(audit: Audit) -> dict[str, object]:
    """List the records most at risk by their place in the source, from 1 below the header, without empty columns."""
    columns = _RISK_COLUMNS[type(audit.at_risk[0])] if audit.at_risk else ()
    lines = []
    for record in audit.at_risk:
        figures = [(title, getattr(record, name), text) for title, name, text in columns]
        cells = [(title, "" if figure is None else text(figure)) for title, figure, text in figures]
        lines.append((f"{record.source_row + 1:,}", cells))
    told = [item.title for place, item in enumerate(columns) if any(cells[place][1] for _, cells in lines)]
    return {"titles": told, "lines": [(row, [cell for cell in cells if cell[0] in told]) for row, cells in lines]}
