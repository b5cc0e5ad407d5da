# SPDX-License-Identifier: Apache-2.0
"""What all pictures of the documents are made of: data published in memory, one style for light and dark pages, panels.

Noise is seeded, so that everything comes out the same again, and certificates are void.
"""

from __future__ import annotations

import tempfile
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from dunnage.ledger import Ledger
from dunnage.model.policy import Policy
from dunnage.noise.source import Noise
from dunnage.publication import Publication
from dunnage.showing.figures import Scale, Svg, lower_axis, tag
from dunnage.tables.dataset import Dataset, load

DOCS = Path(__file__).resolve().parent
PICTURES = DOCS / "pictures"
TEXTS = tomllib.loads((DOCS / "pictures.toml").read_text(encoding="utf-8"))
WIDTH = 760.0


def generated(
    generate: Callable[..., Any], setting: Any, seed: int, policy: Callable[[str], str] = lambda text: text
) -> Dataset:
    """Generate a dataset and read it; its policy may be changed before."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "data.csv"
        generate(setting, file, seed=seed)
        rules = file.with_suffix(".toml")
        rules.write_text(policy(rules.read_text(encoding="utf-8")), encoding="utf-8")
        return load(file, Policy.read(rules))


def published(mechanism: Any, data: Dataset, seed: int) -> Publication:
    return mechanism.release(data, ledger=Ledger(":memory:"), noise=Noise(seed=seed))


def mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


def picture(name: str, base: float, parts: Iterable[str], *, style: str = "", **values: object) -> None:
    """Write a figure that stands by itself, on a page of its own colour; it may have some style of its own.

    Its title, label and the notes below, from ``base`` on, are written in ``pictures.toml``.
    """
    texts, names = TEXTS[name], ["pictures", *([f"pictures_{style}"] if style else [])]
    css = "".join("\n" + (DOCS / f"{own}.css").read_text(encoding="utf-8") for own in names)
    title, lines = (texts.get(key, empty) for key, empty in (("title", ""), ("lines", [])))
    heading = [tag("text", title.format(**values), class_="title", x=24, y=26)] if title else []
    notes = [
        tag("text", line.format(**values), class_="faint", x=24, y=base + 18 * number)
        for number, line in enumerate(lines)
    ]
    height = base + 18 * len(lines)
    page = tag("rect", class_="page", width="100%", height="100%")
    size: dict[str, float | str] = {"width": WIDTH, "height": height, "viewBox": f"0 0 {WIDTH:g} {height:g}"}
    figure = tag(
        "svg",
        tag("style", Svg(css)),
        page,
        *heading,
        *parts,
        *notes,
        xmlns="http://www.w3.org/2000/svg",
        role="img",
        aria_label=texts["label"],
        **size,
    )
    PICTURES.mkdir(exist_ok=True)
    (PICTURES / f"{name}.svg").write_text(figure + "\n", encoding="utf-8")
    print(f"wrote docs/pictures/{name}.svg")


def panel(x: float, y: float, width: float, height: float, parts: Sequence[str]) -> Svg:
    """Place a part whose horizontal positions are per cent of its own width."""
    return tag("svg", *parts, x=x, y=y, width=width, height=height, overflow="visible")


def side_by_side(
    panels: Iterable[tuple[str, Sequence[str]]],  # titles and parts
    *,
    left: float,
    top: float,
    width: float,
    height: float,
    gap: float,
    title_at: tuple[float, float] = (0.0, -14.0),  # from the corner of a panel
) -> list[Svg]:
    parts = []
    for number, (title, inner) in enumerate(panels):
        x = left + number * (width + gap)
        parts.append(panel(x, top, width, height, inner))
        parts.append(tag("text", title, class_="title", x=x + title_at[0], y=top + title_at[1]))
    return parts


def mark(model: str, x: str, y: float) -> Svg:
    """Draw the mark of a model: shapes differ, not only colours. ``x`` is in per cent."""
    shapes = {
        "standard": [tag("circle", r=5)],
        "stochastic": [tag("rect", x=-4.5, y=-4.5, width=9, height=9)],
        "sealed": [tag("rect", x=-4.5, y=-4.5, width=9, height=9, transform="rotate(45)")],
        "mean": [tag("path", d="M0 -6 L6 5 L-6 5 Z", style="fill: inherit")],
        "plain": [tag("path", d="M-7 -7 L7 7 M-7 7 L7 -7", stroke_width="2")],
    }
    return tag("svg", tag("g", *shapes[model], class_=model), x=x, y=y, overflow="visible")


def curve(
    model: str, across: Scale, down: Scale, points: Iterable[tuple[float, float]], *, marks: bool = True
) -> list[Svg]:
    places = [(across.across(x), down.at(y)) for x, y in points]
    lines = [
        tag("line", class_=model, x1=x1, y1=y1, x2=x2, y2=y2, stroke_width="2")
        for (x1, y1), (x2, y2) in pairwise(places)
    ]
    return [*lines, *(mark(model, x, y) for x, y in places if marks)]


def frame(
    across: Scale,
    down: Scale,
    x_ticks: Mapping[float, str],
    y_ticks: Mapping[float, str],
    title: str = "",
    *,
    grid: float | None = 0.0,  # where faint lines upwards end
) -> list[Svg]:
    """Draw axes with words at given values, and the name of the one below under its end."""
    labels = [(across.across(value), words) for value, words in x_ticks.items()]
    parts = lower_axis(down.start, title, labels, grid=grid)
    for value, words in y_ticks.items():
        y = down.at(value)
        parts.append(tag("line", class_="grid", x1="0", x2="100%", y1=y, y2=y))
        parts.append(tag("text", words, x="-6", y=y + 4, text_anchor="end"))
    return parts


def across_line(down: Scale, value: float) -> Svg:
    """Draw a dotted line at what is reached without anything."""
    return tag("line", class_="nothing", x1="0", x2="100%", y1=down.at(value), y2=down.at(value))


def legend(y: float, entries: Sequence[tuple[str, str, float]]) -> list[Svg]:
    parts = []
    for model, words, x in entries:
        parts += [mark(model, f"{x:g}", y - 4), tag("text", words, x=x + 12, y=y)]
    return parts
