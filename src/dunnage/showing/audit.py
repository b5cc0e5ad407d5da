# SPDX-License-Identifier: Apache-2.0
"""The pages of an audit: every finding with its baseline, some as pictures; and the sign-off, one printed page."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from dunnage.auditing.findings import (
    TOPICS,
    AtRisk,
    Finding,
    RecordAtRisk,
    RiderAtRisk,
    TripAtRisk,
    VehicleAtRisk,
    by_severity,
)
from dunnage.auditing.run import Audit
from dunnage.model.certificate import JsonObject, Total
from dunnage.model.guarantees import Basis
from dunnage.release.page import BASIS_WORDS
from dunnage.showing import figures as draw
from dunnage.text import NO_BREAK, number_text, percent, percent_at_most, several

_STATISTICS = {
    "bounds": "the bounds of each class",
    "mean": "the bounds and the mean of each class",
    "multiset": "the bounds, the mean and every value of each class",
    "values": "the smallest and largest number, the lowest common node, or the set of labels of each class",
    "slots": "slots: how many records of which size there are, with noise and spare slots",
    "noise": "a noisy value and an interval for each record",
    "counts": "a noisy count of the trips of each type",
    "categories": "a noisy count of the records of each type",
    "estimates": "means and shares with intervals, estimated from reports that devices perturbed before sending",
}
# Findings to show first, in this order, by the part of the name before a bracket.
_KEY_FINDINGS = (
    *("localisation, 1 day", "localisation, 30 days", "tuple guess", "unique by areas, 4 hours", "error of the mean"),
    *("RMSE of shares", "membership guess", "membership bound", "shuttles", "wait", "RMSE per cell"),
    *("error of the total", "total variation distance", "trips created in empty cells", "trips created, expected"),
    *("noise", "record linkage", "identification expected", "identification before release", "prosecutor risk"),
    *("attribute linkage", "certain absence", "correspondence, worst", "truck linkage", "objective ratio", "trucks"),
    *("total distortion", "coverage", "interval width"),
)
_MAX_KEY_FIGURES = 6
_RISK_WORDS = (
    "European regulators ask about three risks: singling out (someone's record can be isolated), linkability (records "
    "of the same person, or a record and its truck, can be connected) and inference (a value, or who is in the data, "
    "can be deduced)."
)


def audit_page(audit: Audit) -> str:
    """Write the page of an audit; unless the audit is external, it is private (mode 0600)."""
    pictures = {"utility": [*ride_pictures(audit), *count_pictures(audit)]}
    for topic, more in carrier_pictures(audit).items():
        pictures.setdefault(topic, []).extend(more)
    topics = []
    for topic in TOPICS:
        cards = [
            {**_finding_line(item), "private": item.private, "svg": _finding_bars(item)}
            for item in (audit.findings if topic == "utility" else audit.risks)
            if item.topic == topic
        ]
        if cards:
            topics.append((topic, pictures.get(topic, []), cards))
    # Records most at risk, by their row in the source; empty columns are left out.
    at_risk = []
    for record in audit.at_risk:
        figures = [(title, getattr(record, name), text) for title, name, text in _RISK_COLUMNS[type(record)]]
        cells = {title: "" if figure is None else text(figure) for title, figure, text in figures}
        at_risk.append((f"{record.source_row:,}", cells))
    titles = [title for title in (at_risk[0][1] if at_risk else ()) if any(cells[title] for _, cells in at_risk)]
    first: dict[str, Finding] = {}
    for item in audit.findings:
        name = item.name.partition(" (")[0]
        # If there are several attributes, show the worst risk, and the first of the costs.
        if name not in first or (item.topic != "utility" and item.value > first[name].value):
            first[name] = item
    chosen = [first[name] for name in _KEY_FINDINGS if name in first][:_MAX_KEY_FIGURES]
    content = {
        "audit": audit,
        "title": f"Audit of {audit.dataset}" + (f", {audit.period}" if audit.period else ""),
        "released": _STATISTICS[audit.statistic],
        "figures": [
            draw.Figure(item.name, item.text(item.value), f"baseline {item.text(item.baseline)}") for item in chosen
        ],
        "leading": [
            {**_finding_line(item), "severity": percent(item.severity or 0.0), "scale": _risk_bar(item)}
            for item in audit.risks[: audit.num_leading]
        ],
        "risk_words": _RISK_WORDS,
        "topics": topics,
        "at_risk": {"titles": titles, "lines": [(row, *(cells[title] for title in titles)) for row, cells in at_risk]},
    }
    return draw.render("audit.html", content)


def write_audit(audit: Audit, folder: str | os.PathLike[str], *, force: bool = False) -> Path:
    """Write an audit folder with its page and sign-off; unless the audit is external, only its owner can read it."""
    return audit.write(folder, page=audit_page(audit), sign_off=sign_off_page(audit), force=force)


def _finding_line(item: Finding, room: int | None = None) -> dict[str, str]:
    low, high = item.interval
    sentence = item.sentence if room is None else _cut(item.sentence, room)
    return {
        "name": item.name,
        "value": item.text(item.value),
        "between": f"{item.text(low)} to {item.text(high)}" if low < high else "",
        "baseline": item.text(item.baseline),
        "risk": item.risk or "",
        "remedy": item.remedy,
        "sentence": sentence.replace(" %", f"{NO_BREAK}%"),
    }


def _risk_bar(item: Finding) -> draw.Svg:
    risk = item.severity or 0.0
    parts = [
        draw.tag("rect", class_="none-here", x="0", y="2", width="100%", height="14"),
        draw.tag("rect", class_="bar", x="0", y="2", width=draw.Scale(0.0, 1.0).across(risk), height="14"),
    ]
    return draw.chart(18, parts, label=f"{item.risk}: {percent(risk)}", kind="flat")


def _finding_bars(item: Finding) -> draw.Svg:
    """Draw the value as a bar, the baseline as a fainter bar below it, and the interval, if any, as a line."""
    low, high = item.interval
    scale = draw.Scale(0.0, 1.0 if item.is_share else max(high, item.value, item.baseline, 1e-12))
    parts = [
        draw.tag("line", class_="axis", x1="0", x2="0", y1="0", y2="30"),
        draw.tag("line", class_="grid", x1="100%", x2="100%", y1="0", y2="30"),
        draw.tag("rect", class_="bar", x="0", y="2", width=scale.across(item.value), height="15"),
        draw.tag("rect", class_="range", x="0", y="20", width=scale.across(item.baseline), height="7"),
    ]
    if low < high:
        parts.append(draw.tag("line", class_="limit", x1=scale.across(low), x2=scale.across(high), y1="9.5", y2="9.5"))
    label = f"{item.name}: {item.text(item.value)}, baseline {item.text(item.baseline)}"
    return draw.chart(30, parts, label=label, kind="flat")


_count = "{:,}".format
# Columns of the table of records most at risk: title, field, and format.
_RISK_COLUMNS: Mapping[type[AtRisk], tuple[tuple[str, str, Callable[[Any], str]], ...]] = {
    RecordAtRisk: (
        ("Rows it could be", "rows", _count),
        ("Row identified", "record_linkage", percent),
        ("Value guessed", "attribute_linkage", lambda by: ", ".join(f"{name} {percent(p)}" for name, p in by.items())),
    ),
    TripAtRisk: (
        ("A suspicion of one half becomes", "suspicion", percent),
        ("True trips of its type", "alike", _count),
        ("Released trips of its type", "released", _count),
    ),
    RiderAtRisk: (
        ("Presence guessed", "guess", percent),
        ("Trips counted", "trips", _count),
        ("Types of trip", "types", _count),
    ),
    VehicleAtRisk: (
        ("Rows in one place", "stays", percent),
        ("Located if it never moves", "found_if_it_stays", percent),
    ),
}


# The sign-off. Long texts and lists are cut to fit a page of A4, and the page says how many entries are left out.


MAX_RISKS, MAX_COSTS, MIN_LINES = 4, 4, 2
# Characters that fit on the page, for each part.
_ROOM = {"title": 60, "mechanism": 220, "promise": 450, "in_clear": 400, "warnings": 240, "sentence": 250, "table": 700}
# Characters for the assumptions if nothing else is long; the least for them; and how long all else is then.
_MAX_ASSUMED, _MIN_ASSUMED, _ALL_ELSE = 1150, 280, 2400
# Costs to show, in this order, by the part of the name before a bracket.
_COSTS = (
    *("trucks", "shuttles", "cost", "wait", "plan feasible", "total distortion", "RMSE per cell"),
    *("error of the total", "total variation distance", "RMSE of shares", "error of the mean", "mean absolute error"),
    *("interval width", "top pairs kept", "coverage", "trips created, expected", "noise"),
)


def sign_off_page(audit: Audit) -> str:
    """Write the one-page sign-off of an audit. Unless the audit is external, keep the file private (mode 0600)."""
    stated, assumed = audit.statement, audit.statement.assumptions
    shown = [item for item in audit.findings if not (audit.external and item.private)]
    # Of findings that differ only in the attribute, the time, or between average and worst, the first.
    families: dict[str, Finding] = {}
    for item in by_severity(shown):
        if item.severity is not None:
            families.setdefault(item.name.partition(" (")[0].partition(",")[0], item)
    risks, costs = _fit_page([*families.values()], MAX_RISKS), _chosen(shown, _COSTS, MAX_COSTS)
    # What is promised, in plain words; if that is only claimed, the claim as well.
    promises = [] if stated.meaning is None else list(stated.meaning.sentences)
    if stated.guarantee is not None and stated.basis == Basis.PROVED:
        parts = stated.guarantee.to_dict()
        name, meaning = draw.MODELS[stated.guarantee.model]
        words = meaning.format(unit=stated.guarantee.protects)
        numbers = [f"{key} = {parts[key]}" for key in ("k", "epsilon", "delta", "rho", "beta") if parts.get(key)]
        promises.insert(0, f"{name if name.startswith('k-') else name.capitalize()}: {words} ({', '.join(numbers)}).")
    promises += [f"Claimed: {stated.claim}."] if stated.claim else []
    promise, warnings = _fitting(promises, _ROOM["promise"]), _fitting(stated.warnings, _ROOM["warnings"])
    mechanism = _cut(_mechanism(stated.mechanism), _ROOM["mechanism"])
    # The assumptions get the room that is left. If it is too little, their names are enough to look them up.
    sentences = [_cut(item.sentence, _ROOM["sentence"]) for item in (*risks, *costs)]
    used = sum(map(len, [*sentences, *promise, mechanism, *warnings]))
    room = max(_MIN_ASSUMED, min(_MAX_ASSUMED, _MAX_ASSUMED + _ALL_ELSE - used))
    terms = [f"{name}: {words}" for name, words in assumed.items()]
    terms = terms if sum(map(len, terms)) <= room else [", ".join(assumed)]
    # What this release and all earlier releases of the dataset add up to.
    composition = stated.composition
    if composition is None or not isinstance(composition.total, Total):
        rule = composition.rule if composition else ""
        composed = "no total" + (f": {rule.removeprefix('does not compose: ')}" if rule else "")
    else:
        delta = f", delta {composition.total.delta}" if composition.total.delta else ""
        composed = f"epsilon {composition.total.epsilon}{delta} in total ({composition.neighbours or ''})"
    lists = {
        "It assumes": _fitting(terms, room),
        "Published in clear": _fitting(stated.in_clear, _ROOM["in_clear"]),
        "Warnings": warnings,
    }
    # If the audit is approved, the name and role are filled in.
    approver, _, role = (audit.approved.name if audit.approved else "").partition(",")
    content = {
        "audit": audit,
        "stated": stated,
        "basis_words": BASIS_WORDS,
        "title": _cut(f"Sign-off: {audit.dataset}" + (f", {audit.period}" if audit.period else ""), _ROOM["title"]),
        "dataset": _cut(audit.dataset, _ROOM["title"]),
        "mechanism": mechanism,
        "composed": composed,
        "promise": promise,
        "odds": draw.odds_words(stated.meaning.odds if stated.meaning else (), percent_at_most),
        "risks": [_finding_line(item, _ROOM["sentence"]) for item in risks],
        "costs": [_finding_line(item, _ROOM["sentence"]) for item in costs],
        "lists": [(title, items) for title, items in lists.items() if items],
        "approver": approver.strip(),
        "role": role.strip(),
    }
    return draw.render("signoff.html", content)


def _mechanism(mechanism: JsonObject) -> str:
    parts = []
    for key, value in mechanism.items():
        if key == "purposes" and isinstance(value, dict):
            purposes = []
            for name, item in sorted(value.items()):
                texts = [str(item)]
                if isinstance(item, dict):
                    tiers = item.get("tiers")
                    losses = tiers.items() if isinstance(tiers, dict) else ()
                    texts = [str(item.get("name", "")), *(f"{tier} epsilon {loss}" for tier, loss in losses)]
                purposes.append(f"{name} ({', '.join(text for text in texts if text)})")
            parts.append(f"{key} {' and '.join(purposes)}")
        elif key != "name" and value is not None and value is not False and value != {}:
            parts.append(f"{key} {_parameter(value)}")
    return ": ".join(part for part in (str(mechanism.get("name", "unknown")), ", ".join(parts)) if part)


def _parameter(value: JsonValue) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_parameter(part)}" for name, part in value.items())
    return "/".join(_parameter(part) for part in value) if isinstance(value, list) else str(value)


def _chosen(findings: Sequence[Finding], wanted: Sequence[str], max_lines: int) -> list[Finding]:
    """Choose the findings to show in the room there is; of several attributes, the worst."""
    worst: dict[str, tuple[float, Finding]] = {}
    for item in findings:
        name = item.name.partition(" (")[0]
        badness = item.value / item.baseline if item.baseline else item.value
        if name in wanted and (name not in worst or badness > worst[name][0]):
            worst[name] = badness, item
    return _fit_page([worst[name][1] for name in wanted if name in worst], max_lines)


def _fit_page(findings: Sequence[Finding], max_lines: int) -> list[Finding]:
    kept: list[Finding] = []
    for item in findings:
        room = _ROOM["table"] - sum(len(one.sentence) for one in kept)
        if len(kept) < MIN_LINES or (len(kept) < max_lines and len(item.sentence) <= room):
            kept.append(item)
    return kept


def _fitting(items: Sequence[str], room: int) -> list[str]:
    """Keep as many items as fit, at least one, and say how many are left out."""
    kept: list[str] = []
    for item in items:
        if kept and sum(map(len, kept)) + len(item) > room:
            return [*kept, f"and {len(items) - len(kept)} more: see the certificate."]
        kept.append(_cut(item, room))
    return kept


def _cut(text: str, room: int) -> str:
    """Shorten a text that is too long, between two words if possible."""
    if len(text) <= room:
        return text
    whole = text[:room].rsplit(" ", 1)[0]
    return (whole if 2 * len(whole) > room else text[:room]) + " ..."


# Pictures of clustered records: distortion by attribute, cost of classes, sets of stations on a map. They need only the
# release, so an external audit shows them too.


NETWORK_WIDTH = 440.0
MAX_LABELS_NAMED = 4


def ride_pictures(audit: Audit) -> list[draw.Picture]:
    findings = {item.name: item for item in audit.findings}
    inside, record = findings.get("distortion by generalisation"), audit.protects
    if inside is None or "costs" not in inside.details or "total distortion" not in findings:
        return []
    # Distortion by attribute: first from generalised records, then from suppressed ones.
    total = findings["total distortion"]
    weights = total.details["weights"]
    of_attribute = {name: findings[f"distortion ({name})"] for name in weights}
    items = {"in total": total} | {f"{n}, weight {percent(weights[n])}": item for n, item in of_attribute.items()}
    rows = []
    for words, item in items.items():
        lost = float(item.details["by_suppression"])
        rows.append((f"{words}: {percent(item.value)}", [[("bar", item.value - lost), ("range", lost)]]))
    most = max(weights, key=lambda name: of_attribute[name].value)
    caption = f"{percent(total.value)} is lost in total, most of it in {most}: {percent(of_attribute[most].value)}."
    x = draw.Scale(0.0, 1.04 * max(item.value for item in items.values()) or 1.0)
    by_attribute = draw.Picture(
        title="Distortion by attribute",
        svg=draw.bars(x, rows, axis="distortion", shares=True, label=caption),
        caption=caption,
        legend=[
            ("load", "by generalisation"),
            *([("range", "by suppression")] if total.details["by_suppression"] else []),
        ],
    )
    # The number of records by the cost of their class.
    costs = inside.details["costs"]
    step, records = float(costs["step"]), [int(number) for number in costs["records"]]
    x, y = draw.Scale(0.0, step * max(len(records), 4)), draw.Scale(0.0, 1.05 * max(records), draw.BASE, 38.0)
    stacks = []
    for place, number in enumerate(records):
        tip = f"{number:,} {record}s: {percent(step * place)} to {percent(step * (place + 1))}"
        stacks.append(draw.StackedColumn(step * place, step * (place + 1), [("bar", number)], tip))
    caption = (
        f"Half of the {record}s are in classes that lose at most {percent(costs['median'])} of their detail. The most "
        f"expensive class loses {percent(costs['highest'])}."
    )
    svg = draw.columns(
        x,
        y,
        stacks,
        y_title=f"{record}s",
        whole=True,
        below=draw.x_axis(x, draw.BASE, f"cost of the class of a {record}", shares=True),
        more=draw.upright(x, inside.value, draw.BASE, f"mean {percent(inside.value)}"),
        label=caption,
    )
    legend = [("load", f"{record}s in classes of this cost")]
    by_cost = draw.Picture(title="What classes cost", svg=svg, caption=caption, legend=legend)
    return [by_attribute, by_cost, *_network_pictures(inside, record)]


def _network_pictures(inside: Finding, record: str) -> list[draw.Picture]:
    """Draw the sets of some classes on a map of their network, from the cheapest class to the most expensive."""
    network, units = inside.details.get("network"), inside.details["units"]
    if network is None:
        return []
    names = network["attributes"][: len(draw.MARKS)]
    layout = draw.Network.of(network["edges"])
    width, height = layout.size(width=NETWORK_WIDTH)
    pictures = []
    for item in inside.details["classes"]:
        values, texts = item["told"], []
        for column, value in values.items():
            name = column.removesuffix("_lower")
            if isinstance(value, list):
                first = ", ".join(value[:MAX_LABELS_NAMED])
                few = len(value) <= MAX_LABELS_NAMED
                texts.append(f"{name} {first if few else f'one of {len(value)} ({first}, …)'}")
            elif name in units and name != column:
                end = f"{number_text(values[f'{name}_upper'])} {units[name]}".rstrip()
                texts.append(f"{name} {number_text(value)} to {end}")
            elif isinstance(value, str):
                texts.append(f"{name} {value}")
        caption = f"{values['size']:,} {record}s look alike: {'; '.join(texts)}."
        drawing = layout.drawn({name: values[name] for name in names}, width=NETWORK_WIDTH)
        size = f"0 0 {width:.0f} {height:.0f}"
        pictures.append(
            draw.Picture(
                title=f"Class {values['class_id']:,}, cost {percent(item['cost'])}",
                svg=draw.tag("svg", drawing, class_="chart map", viewBox=size, role="img", aria_label=caption),
                caption=caption,
                legend=list(zip(draw.MARKS, names, strict=False)),
            )
        )
    return pictures


# Pictures of counts of trips: true and released flows, error by feature, trips created. They compare with the true
# trips, so an external audit has none of them.


_ROW = 44.0
_SUMS = "RMSE of sums ("


def count_pictures(audit: Audit) -> list[draw.Picture]:
    findings = {item.name: item for item in audit.findings}
    apart, created = findings.get("total variation distance"), findings.get("trips created in empty cells")
    if apart is None or created is None or "flows" not in apart.details:
        return []
    pictures, units = [], created.unit
    unit = "trip" if units == "trips" else audit.protects
    for kind, words in {"zones": "by zone", "stops": "between the busiest stops"}.items():
        table = apart.details["flows"].get(kind)
        if table is None:
            continue
        # Both tables share one scale of colour, without the rest, which would make every single stop look pale.
        named = len(table["names"]) - bool(table.get("with_rest"))
        cells = [line[:named] for name in ("true", "released") for line in table[name][:named]]
        most = max(map(max, cells), default=0) or 1
        for name in ("true", "released"):
            pictures.append(_flows(table["names"], table[name], most, f"{name.capitalize()} trips {words}"))
    names = {"RMSE per cell": "cells", "error of the total": "total"}
    errors = {names[item.name]: item for item in audit.findings if item.name in names}
    for item in audit.findings:
        if item.name.startswith(_SUMS):  # short, for narrow screens
            errors[item.name[len(_SUMS) : -1].replace("origin_zone x destination_zone", "zone pair")] = item
    errors = {name: item for name, item in errors.items() if item.baseline > 0}  # without trips there is no error
    if errors:  # as a share of the error of publishing nothing
        shares = {name: item.value / item.baseline for name, item in errors.items()}
        x = draw.Scale(0.0, 104 * max([*shares.values(), 0.01]))
        rows = []
        for name, item in errors.items():
            words = f"{name}: {number_text(item.value)} {units} (publishing nothing: {number_text(item.baseline)})"
            rows.append((words, [[("bar", 100 * shares[name])]]))
        worst = max(shares, key=lambda name: shares[name])
        caption = (
            f"Root mean square error, compared with publishing nothing. The largest error, for {worst}, is "
            f"{percent(shares[worst])} of that."
        )
        svg = draw.bars(
            x, rows, row=_ROW, room=6.0, axis="error, if publishing nothing is 100", limit=100.0, label=caption
        )
        legend = [("load", "release, in per cent of publishing nothing"), ("limit", "publishing nothing")]
        chosen = legend[: 1 + (x.high > 100)]
        pictures.append(draw.Picture(title="Error by feature", svg=svg, caption=caption, legend=chosen))
    # What became of the true trips, and where the released trips come from.
    kept, lost, added = (int(created.details[name]) for name in ("kept", "lost", "added"))
    made, empty = int(created.value), "where nobody travelled" if unit == "trip" else "that are empty"
    x = draw.Scale(0.0, 1.02 * max(kept + lost, kept + added + made, 1))
    lanes = [
        (f"truth: {several(kept + lost, unit)}", [[("bar", float(kept)), ("range", lost)]]),
        (f"release: {several(kept + added + made, unit)}", [[("bar", float(kept)), ("more", added), ("made", made)]]),
    ]
    caption = (
        f"{several(kept, unit)} {'is' if kept == 1 else 'are'} kept in the right cell, and {lost:,} lost. {added:,} "
        f"are added to cells that have {units}, and {made:,} are created in "
        f"{several(int(created.details['cells']), 'cell')} {empty}."
    )
    svg = draw.bars(x, lanes, row=_ROW, room=6.0, axis=units, label=caption)
    legend = [("load", "kept"), ("range", "lost"), ("more", "added"), ("made", "created in empty cells")]
    return [*pictures, draw.Picture(title=f"{units.capitalize()} created", svg=svg, caption=caption, legend=legend)]


def _flows(names: list[str], counts: list[list[int]], most: int, title: str) -> draw.Picture:
    """Draw a table of flows; the names of many columns are vertical, so that they fit on a phone."""
    size, gutter, many, max_letters = len(names), 13.0, 6, 9
    wide, high = (100 - gutter) / size, max(24.0, 150.0 / size)
    top = 26.0 if size <= many else 70.0
    before: dict[str, str] = {"x": f"{gutter:.2f}%", "dx": "-8", "text_anchor": "end"}
    heads = [draw.tag("text", "to", class_="name", y=top - 12, **before)]
    for place, label in enumerate(names):
        head = label if len(label) <= max_letters else label[: max_letters - 1] + "…"
        tip, middle = draw.tag("title", label), f"{gutter + (place + 0.5) * wide:.2f}%"
        if size <= many:
            heads.append(draw.tag("text", head, tip, x=middle, y="14", text_anchor="middle"))
        else:
            steep = draw.tag("text", head, tip, x=0, y=4, transform="rotate(-90)")
            heads.append(draw.tag("svg", steep, class_="spread", x=middle, y=top - 6))
        heads.append(draw.tag("text", head, tip, y=top + (place + 0.5) * high + 4, **before))

    def write(row: int, column: int, place: Mapping[str, float | str]) -> list[draw.Svg]:
        """Write a count into its cell, in thousands where it would not fit."""
        number, narrow = counts[row][column], size > many
        style = ("deep" if number / most > 0.53 else "pale") + (" tight" if narrow else "")
        text = f"{number / 1000:.1f}k" if number < 9950 else f"{number / 1000:,.0f}k"
        if number < 1000 or (number < 100_000 and not narrow):
            text = f"{number:,}"
        return [draw.tag("text", text, class_=style, **place)] if number else []

    caption = f"{title}: {sum(map(sum, counts)):,} in all. Rows are origins, columns are destinations."
    svg = draw.heat_map(
        [[number / most for number in line] for line in counts],
        tip=lambda row, column: f"{names[row]} to {names[column]}: {several(counts[row][column], 'trip')}",
        heads=heads,
        text=write,
        left=gutter,
        top=top,
        height=high,
        gap=1.0,
        room=4.0,
        label=caption,
    )
    legend = [("load", f"darkest colour: {several(most, 'trip')} or more, in both tables")]
    return draw.Picture(title=title, svg=svg, caption=caption, legend=legend)


# Pictures of estimates from devices. Means, maps and sequences of areas compare with the truth and are private. How
# soon a parked truck can be located follows from the task alone, so an external audit shows that too.


_HEIGHT, _MAP_HEIGHT = 220.0, 300.0


def carrier_pictures(audit: Audit) -> dict[str, list[draw.Picture]]:
    def named(start: str, detail: str) -> list[tuple[str, Finding]]:
        """Return the findings of a name, each with the text in brackets after it."""
        items = [item for item in audit.findings if item.name.startswith(f"{start} (") and detail in item.details]
        return [(item.name[item.name.index("(") + 1 : -1], item) for item in items]

    means = [item for _, item in named("error of the mean", "truth")]
    maps = [one for place in named("total variation distance", "map") for one in _share_maps(*place)]
    pictures = {
        "utility": [*maps, *([_means_picture(means)] if means else [])],
        "attributes": [_localisation_picture(*place) for place in named("localisation, 1 day", "curve")],
        "records": [_unique_picture(*place) for place in named("unique by areas, 1 hour", "curve")],
    }
    return {topic: items for topic, items in pictures.items() if items}


def _means_picture(items: Sequence[Finding]) -> draw.Picture:
    rows = []
    for item in items:
        facts, unit = item.details, "" if item.unit == "ratio" else f" {item.unit}"
        value = "no estimate" if facts["value"] is None else f"{number_text(facts['value'])}{unit}"
        words = f"{facts['label']}: {value} (true value: {number_text(facts['truth'])})"
        ends = float(facts["low"]), float(facts["high"])
        rows.append(draw.IntervalRow(words, ends, facts["lower"], facts["upper"], facts["value"], facts["truth"]))
    covered = sum(item.details["lower"] <= item.details["truth"] <= item.details["upper"] for item in items)
    caption = (
        f"Estimated means with their intervals, across their domains. {covered} of {len(items)} intervals contain the "
        "true mean."
    )
    return draw.Picture(
        title="Means, estimated and true",
        svg=draw.intervals(rows, label=caption, row=_ROW),
        caption=caption,
        legend=[("range", "interval"), ("first", "estimate"), ("limit", "true value")],
    )


def _share_maps(name: str, item: Finding) -> list[draw.Picture]:
    shares = item.details["map"]
    most = max((share for side in ("true", "released") for line in shares[side] for share in line), default=0.0) or 1.0
    pictures = []
    for side, word in (("true", "True"), ("released", "Estimated")):
        table, title = shares[side], f"{word} shares of {name}"

        def tip(row: int, column: int, table: Sequence[Sequence[float]] = table) -> str:
            where = f"column {column + 1} from the west, row {len(table) - row} from the south"
            return f"{where}: {percent(table[row][column])}"

        caption = f"{title}. North is up. {percent(sum(map(sum, table)))} of all are inside the box."
        cells = [[share / most for share in line] for line in table]
        svg = draw.heat_map(cells, tip=tip, height=_MAP_HEIGHT / len(table), label=caption)
        legend = [("load", f"darkest colour: {percent(most)}, in both maps")]
        pictures.append(draw.Picture(title=title, svg=svg, caption=caption, legend=legend))
    return pictures


def _localisation_picture(name: str, item: Finding) -> draw.Picture:
    """Draw how often a parked truck is located by the number of its reports, on a logarithmic scale."""
    curve = item.details["curve"]
    x = draw.Scale(math.log10(float(curve[0][0])), math.log10(float(curve[-1][0])), 2.0, 96.0)
    y = draw.Scale(0.0, 100.0, _HEIGHT, 22.0)
    dots = [
        draw.Dot(
            math.log10(float(num)),
            100 * value,
            f"{int(num):,} reports: {percent(value)}",
            ends=(100 * low, 100 * high),
        )
        for num, value, low, high in curve
    ]
    labels = [(f"{x.at(one.x):.2f}%", f"{int(num):,}") for one, (num, *_) in zip(dots, curve, strict=True)]
    last = curve[-1]
    caption = (
        f"How often a truck that does not move is located: {percent(curve[0][1])} of the time from one report, "
        f"{percent(last[1])} from {int(last[0]):,}. With one slot a day, 30 reports take a month. With one report "
        "every five minutes, 12 reports take an hour."
    )
    return draw.Picture(
        title=f"Locating a parked truck by its {name}",
        svg=draw.lines(
            x,
            y,
            [("mean", dots)],
            y_title="located, per cent",
            below=draw.lower_axis(_HEIGHT, "reports from one place", labels),
            limit=(100 * item.baseline, ""),
            label=caption,
        ),
        caption=caption,
        legend=[("first", "the likeliest place is the true place"), ("limit", "without reports")],
    )


def _unique_picture(name: str, item: Finding) -> draw.Picture:
    facts, curve = item.details, item.details["curve"]
    x, y = draw.Scale(0.0, max(hours for hours, _ in curve), 0.0, 96.0), draw.Scale(0.0, 100.0, _HEIGHT, 22.0)
    dots = [draw.Dot(hours, 100 * share, f"{number_text(hours)} hours: {percent(share)}") for hours, share in curve]
    caption = (
        f"There are {facts['areas']:,} areas, and each vehicle's area is published in clear at every slot from "
        f"{facts['starts']} UTC on. After {number_text(curve[0][0])} h, {percent(curve[0][1])} of the vehicles have a "
        f"sequence of areas that no other vehicle has; after {number_text(curve[-1][0])} h, {percent(curve[-1][1])}."
    )
    below = draw.x_axis(x, _HEIGHT, "hours")
    svg = draw.lines(
        x, y, [("mean", [draw.Dot(0.0, 0.0), *dots])], y_title="unique, per cent", below=below, label=caption
    )
    legend = [("first", "vehicles with a unique sequence of areas")]
    return draw.Picture(title=f"Unique by areas of {name}", svg=svg, caption=caption, legend=legend)
