# SPDX-License-Identifier: Apache-2.0
"""The page of a frontier: cost against risk with every policy's details, a field to ask for less of either, a table.

The page says everything without its script as well; the script moves what is there already.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict

from dunnage.advising.frontier import GENERATED, SAMPLE, Frontier, Point
from dunnage.advising.policies import policy_document_or_none
from dunnage.mechanisms import MECHANISMS
from dunnage.pages.common import Figure, render
from dunnage.pages.frontier_chart import (
    LOWER,
    TOP,
    Plot,
    as_key,
    choice_word,
    drawn,
    ends_text,
    frontier_figure,
    is_mixed,
    legend_of,
    looks_of,
    mark,
    measure_text,
    summary_of,
    why_aside,
)
from dunnage.svg import Svg, chart
from dunnage.text import number_text, share_text

__all__ = ["frontier_figure", "frontier_page"]

PRIVATE = "Owner's view: a frontier is private. Do not hand out."
NOT_PRIVATE = (
    "Choosing by figures that were measured on the true data is itself not private: what was chosen tells a little "
    "about the data, and no epsilon covers it. Generated data hold nothing of it but what is released as it is, and "
    "its size, rounded where that is not public."
)
HEIGHT = 400.0
_COLUMNS = ("Cost", "Risk", "Promise", "Basis", "Measured on", "Beaten")
_KEYS = ("name", "cost", "risk", "guarantee", "basis", "measured_on", "dominated")
_MOST_CHANCE_FOR_ODDS = 0.3
"""If a coin is right about as often, "1 in n" says little: the risk is asked for in per cent."""
# JSON inside a script element: nothing may look like its end, or like a line's end to an old reader.
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def frontier_page(frontier: Frontier) -> str:
    """Write the page of a frontier. It shows private figures: keep the file private (mode 0600)."""
    plot = Plot.of(frontier, top=TOP, height=HEIGHT, moving=True)
    looks, mixed = looks_of(frontier.points), is_mixed(frontier)
    shown = {}
    if frontier.points:  # the panel shows the recommended point at first, or else the first
        point = frontier.points[0] if frontier.recommended is None else frontier.point(frontier.recommended)
        shown = {"name": point.name, "facts": _facts(point, frontier), "toml": _toml(point, frontier)}
    on_devices = any(point.mechanism not in MECHANISMS for point in frontier.points)
    table = "table of the same name" if on_devices else "[mechanism]"
    content = {
        "frontier": frontier,
        "title": f"Frontier of {frontier.dataset}: {frontier.cost_unit} against {frontier.risk_name}",
        "private": PRIVATE,
        "not_private": NOT_PRIVATE,
        "lead": _unbroken(frontier.says[0]) if frontier.says else "",
        "alerts": [(_alert(sentence), _unbroken(sentence)) for sentence in frontier.says[1:] if _alert(sentence)],
        "rests_on": _rests_on(frontier),
        "figures": _figures(frontier),
        "mixed": mixed,
        "legend": [(as_key(picture), words) for picture, words in legend_of(frontier, plot)],
        "crossed": any(why_aside(point, frontier) for point in frontier.points),
        "mechanisms": [(name, as_key(mark(look))) for name, look in looks.items()],
        "chart": chart(plot.base + LOWER, drawn(frontier, plot), label=summary_of(frontier), kind="frontier-chart"),
        "shown": shown,
        "ask": _ask(frontier),
        "choice_words": _choice_words(frontier),
        "toml_note": f"Put this in place of the policy's {table}.",
        "columns": list(zip(_KEYS, ("Policy", *_COLUMNS), strict=True)),
        "lines": [_line(point, looks[point.mechanism], mixed, frontier) for point in frontier.points],
        "seconds": number_text(round(frontier.seconds)),
        "data": _data(frontier, plot),
    }
    return render("frontier.html", content, script="frontier.js")


# Words


def _alert(sentence: str) -> str:
    """Return how a sentence is set apart: a warning, or that choosing is not private; empty if it is not."""
    if sentence.startswith("WARNING"):
        return "void"
    return "claimed" if "not private" in sentence else ""


def _rests_on(frontier: Frontier) -> list[str]:
    baseline = f"The cost, {frontier.cost_name}, is compared with: {_unbroken(frontier.cost_baseline)}."
    return [*(_unbroken(sentence) for sentence in frontier.says[1:] if not _alert(sentence)), baseline]


def _unbroken(sentence: str) -> str:
    """Keep a number and its sign on one line."""
    return sentence.replace(" %", "\N{NO-BREAK SPACE}%")


def _figures(frontier: Frontier) -> list[Figure]:
    found = []
    if frontier.recommended is not None:
        point, word = frontier.point(frontier.recommended), choice_word(frontier)
        for name, measure in ((frontier.cost_unit, point.cost), (frontier.risk_name, point.risk)):
            found.append(Figure(f"{name}, {word}", share_text(measure.value), ends_text(measure)))
    best = sum(not point.dominated for point in frontier.points)
    chance = f"by chance, without a release: {share_text(frontier.risk_of_chance)}"
    measured = f"{best} beaten by no other; {len(frontier.failed)} could not be measured"
    return [
        *found,
        Figure(f"{frontier.risk_name}, true table", share_text(frontier.risk_without_privacy), chance),
        Figure("policies measured", number_text(len(frontier.points)), measured),
    ]


def _choice_words(frontier: Frontier) -> str:
    if frontier.recommended is None:
        return "Nothing can be recommended."
    point = frontier.point(frontier.recommended)
    told = f"{point.name}: {_point_words(point, frontier)}."
    if frontier.meets_limit:
        return told
    return (
        "No policy shown keeps to that, the upper ends of intervals included. The closest is "
        f"{told} It does NOT keep to what was asked for."
    )


def _point_words(point: Point, frontier: Frontier) -> str:
    return f"{measure_text(point.cost)} {frontier.cost_unit}, {frontier.risk_name} {measure_text(point.risk)}"


# Points


def _facts(point: Point, frontier: Frontier) -> list[tuple[str, str]]:
    risk = measure_text(point.risk)
    if 0 < point.risk.value < _MOST_CHANCE_FOR_ODDS:
        risk += f", about 1 in {number_text(float(f'{1 / point.risk.value:.2g}'))}"
    facts = [
        ("mechanism", point.mechanism),
        *((_plain(name), _value_text(value)) for name, value in point.parameters.items()),
        *((f"plan {_plain(name)}", _value_text(value)) for name, value in point.plan.items()),
        (frontier.cost_unit, measure_text(point.cost)),
        (frontier.risk_name, risk),
        ("promise", point.guarantee),
        ("basis", point.basis),
        ("measured on", f"{_measured_on(point)}, {point.draws} times"),
        ("beaten by another", "yes" if point.dominated else "no"),
        *((_plain(name), number_text(value)) for name, value in point.figures.items()),
    ]
    if point.weak:
        facts.append(("hardly protects", "recommended only if a limit on the risk allows it"))
    if point.mended:
        facts.append(("not recommended", "its plan overloads many trucks"))
    return facts


def _measured_on(point: Point) -> str:
    return {GENERATED: "generated data", SAMPLE: "a sample of the true data"}.get(point.measured_on, "the true data")


def _plain(name: str) -> str:
    return name.replace("_", " ")


def _value_text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return number_text(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _line(point: Point, look: int, mixed: bool, frontier: Frontier) -> dict[str, object]:
    texts = (
        share_text(point.cost.value),
        share_text(point.risk.value),
        point.guarantee,
        point.basis,
        _measured_on(point),
        "yes" if point.dominated else "no",
    )
    notes = (ends_text(point.cost), ends_text(point.risk), "", "", "", "")
    why = why_aside(point, frontier)
    return {
        "key": as_key(mark(look, hollow=mixed and point.measured_on == GENERATED, crossed=bool(why))),
        "name": point.name,
        "aside": f"not recommended: {why}" if why else "",
        "chosen": choice_word(frontier) if point.name == frontier.recommended else "",
        "beaten": point.dominated,
        "cells": list(zip(_COLUMNS, texts, notes, strict=True)),
    }


def _toml(point: Point, frontier: Frontier) -> str:
    import tomli_w

    duty = point.name.partition(": ")[0]
    tables = (policy_document_or_none(frontier.policy) or {}).get("mechanisms")
    table = tables.get(duty) if isinstance(tables, Mapping) else None
    if not isinstance(table, Mapping) or table.get("name") != point.mechanism:
        return tomli_w.dumps({"mechanism": {"name": point.mechanism, **point.parameters}})
    # Of a kind of report, what its policy says besides what is chosen stays.
    chosen = {name for item in frontier.points for name in item.parameters}
    kept = {name: value for name, value in table.items() if name not in chosen}
    parameters = {name: value for name, value in point.parameters.items() if name != "levels"}
    text = tomli_w.dumps({"mechanisms": {duty: {**kept, **parameters}}})
    levels = point.parameters.get("levels")
    return text if levels is None else f"{text}# Its grid in [attributes]: levels = {levels}\n"


# The picture and what the script reads


def _ask(frontier: Frontier) -> dict[str, object]:
    """Fill in the fields at first with what was asked for."""
    limit = frontier.limit
    odds = frontier.risk_of_chance < _MOST_CHANCE_FOR_ODDS
    highest = max([1e-3, limit.max_cost or 0.0, *(point.cost.upper for point in frontier.points)])
    step = 10.0 ** math.floor(math.log10(highest)) / 10
    risk = "" if not limit.max_risk else f"{1 / limit.max_risk if odds else 100 * limit.max_risk:.6g}"
    return {
        "cost": "" if limit.max_cost is None else f"{100 * limit.max_cost:.6g}",
        "risk": risk,
        "odds": odds,
        "risk_words": f"{frontier.risk_name} at most" + (" 1 in" if odds else ""),
        "top": f"{100 * step * math.ceil(highest / step - 1e-9):.6g}",
        "step": f"{step:.6g}",
    }


def _data(frontier: Frontier, plot: Plot) -> Svg:
    """Write what the script reads, safe inside a script element."""
    names = [point.name for point in frontier.points]
    content = {
        "points": [_point_data(point, frontier) for point in frontier.points],
        "axes": {"x": asdict(plot.cost), "y": asdict(plot.risk), "top": plot.top, "base": plot.base},
        "limit": {"cost": frontier.limit.max_cost, "risk": frontier.limit.max_risk},
        "recommended": None if frontier.recommended is None else names.index(frontier.recommended),
        "meets": frontier.meets_limit,
        "words": {"odds": frontier.risk_of_chance < _MOST_CHANCE_FOR_ODDS},
    }
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Svg("".join(_ESCAPES.get(letter, letter) for letter in text))


def _point_data(point: Point, frontier: Frontier) -> dict[str, object]:
    words, why = _point_words(point, frontier), why_aside(point, frontier)
    keys = (
        point.name,
        point.cost.value,
        point.risk.value,
        point.guarantee,
        point.basis,
        _measured_on(point),
        point.dominated,
    )
    return {
        "name": point.name,
        "mechanism": point.mechanism,
        "cost": [point.cost.value, point.cost.lower, point.cost.upper],
        "risk": [point.risk.value, point.risk.lower, point.risk.upper],
        "basis": point.basis,
        "mended": point.mended,
        "weak": point.weak,
        "words": words,
        "label": ", ".join(
            [
                f"{point.name}: {words}",
                *(["beaten by another"] if point.dominated else []),
                *([f"not recommended: {why}"] if why else []),
            ]
        ),
        "facts": _facts(point, frontier),
        "toml": _toml(point, frontier),
        "keys": dict(zip(_KEYS, keys, strict=True)),
    }
