# SPDX-License-Identifier: Apache-2.0
"""The result of a story of the demo, and what all stories share.

A number on the page of the demo is a :class:`Traced`: it was read from a file of its chapter, and knows its place
there. A number that must be calculated first, for example a ratio, is written to the chapter's ``figures.json`` with
its sources, and then read from there. The sentences around the numbers are in ``demo.html``, which contains no digits.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from dunnage.advising.advice import advise, finish
from dunnage.advising.frontier import Frontier, Point
from dunnage.errors import CheckFailed, InternalError
from dunnage.folders import new_file
from dunnage.model.documents import to_text
from dunnage.showing.figures import Legend, Picture, Scale, bars, tag
from dunnage.showing.frontier import frontier_figure, frontier_page
from dunnage.text import NO_BREAK, number_text, percent
from dunnage.verification import verify

SEED = 2026
FIGURES_FILE, NUMBERS_FILE = "figures.json", "numbers.csv"
FRONTIER = "frontier/frontier.json"
Show = Callable[[Any], str]
Progress = Callable[[str], None]


def plain(value: Any) -> str:
    return value if isinstance(value, str) else number_text(float(value))


def signed(share: float) -> str:
    """Format a relative change: ``+3.84 %``, ``-10 %``, ``0 %``."""
    return f"{100 * share:+.3g} %" if share else "0 %"


def find_field(content: Any, field: str) -> Any:
    for part in field.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        content = content[int(key)] if isinstance(content, list) else content[key]
    return content


@dataclass(frozen=True, kw_only=True)
class Traced:
    name: str  # what it is
    value: float | str  # as the file has it
    text: str  # as the page has it
    file: str  # its file, relative to the page
    field: str  # where in the file it is, as a JSON pointer

    def __str__(self) -> str:
        return self.text

    def __float__(self) -> float:
        return float(self.value)

    def __html__(self) -> str:
        words = self.text if isinstance(self.value, str) else self.text.replace(" ", NO_BREAK)
        return tag("a", words, class_="traced", href=quote(self.file), title=f"{self.name}: {self.file} {self.field}")


class Numbers:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.all: list[Traced] = []
        self.named: dict[str, Traced] = {}  # by their names in the sentences of the chapter
        self._contents: dict[str, Any] = {}
        self._figures: dict[str, dict[str, object]] = {}

    def __getitem__(self, name: str) -> Traced:
        return self.named[name]

    def name(self, **numbers: Traced) -> None:
        self.named |= numbers

    def read(self, name: str, file: str, field: str, show: Show = plain) -> Traced:
        value = find_field(self._content(file), field)
        if not isinstance(value, int | float | str):
            raise InternalError(f"{file} has no number at {field}.")
        number = Traced(name=name, value=value, text=show(value), file=self.place(file), field=field)
        self.all.append(number)
        return number

    def finding(self, file: str, finding: str, part: str = "value", show: Show | None = None) -> Traced:
        """Read a finding of an audit: its value, or another part, for example ``baseline`` or ``details/lower``.

        Value and baseline are in the unit of the finding. Details may have another unit, and are plain numbers unless
        ``show`` formats them.
        """
        items = self._content(file)["findings"]
        number = [item["name"] for item in items].index(finding)
        is_share = part in ("value", "baseline") and items[number]["unit"] in ("probability", "share")
        write = show or (percent if is_share else plain)
        return self.read(f"{finding}, {part}", file, f"/findings/{number}/{part}", write)

    def compute(self, name: str, value: float, how: str, inputs: Sequence[Traced | str], show: Show = plain) -> Traced:
        """Write a calculated number to ``figures.json``, with its sources; then read it from there."""
        places = [self.place(item) if isinstance(item, str) else f"{item.file}#{item.field}" for item in inputs]
        self._figures[name] = {"value": value, "how": how, "from": places}
        write_json(self.folder / FIGURES_FILE, {"format": 1, "figures": self._figures})
        self._contents.pop(FIGURES_FILE, None)
        key = name.replace("~", "~0").replace("/", "~1")  # as a part of a JSON pointer
        return self.read(name, FIGURES_FILE, f"/figures/{key}/value", show)

    def place(self, file: str) -> str:
        return f"{self.folder.name}/{file}"

    def _content(self, file: str) -> Any:
        if file not in self._contents:
            self._contents[file] = json.loads((self.folder / file).read_bytes())
        return self._contents[file]


def numbers_table(chapters: Sequence[Numbers]) -> str:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("chapter", "name", "value", "text", "file", "field"))
    for chapter in chapters:
        for item in dict.fromkeys(chapter.all):
            value = item.value if isinstance(item.value, str) else json.dumps(item.value)
            writer.writerow((chapter.folder.name, item.name, value, item.text, item.file, item.field))
    return text.getvalue()


class Story(NamedTuple):
    numbers: Numbers  # all numbers of its chapter
    line: str  # its result in one line
    pictures: Mapping[str, Picture]  # of its chapter, by their names in the template
    facts: Mapping[str, object]  # what else the template needs


def bars_picture(
    title: str,
    rows: Sequence[tuple[str, Traced, str]],  # label, number, style
    caption: str,
    *,
    most: float | None = None,  # the number at the full width; by default a little more than the largest
    legend: Legend = (),
) -> Picture:
    values = [float(number) for _, number, _ in rows]
    scale = Scale(0.0, most or 1.04 * max(*values, 1e-9))
    lengths = [
        (f"{name}: {number.text}", [[(style, min(value, scale.high))]])
        for (name, number, style), value in zip(rows, values, strict=True)
    ]
    svg = bars(scale, lengths, row=42.0, bar=15.0, label=f"{title}. {caption}")
    sources = dict.fromkeys(number.file for _, number, _ in rows)
    return Picture(title=title, svg=svg, caption=caption, sources=tuple(sources), legend=legend)


def check(release: Path) -> None:
    result = verify(release)
    if not result.ok:
        raise CheckFailed(result.summary())


def write_json(path: Path, content: Mapping[str, object]) -> None:
    write_text(path, to_text(content))


def write_text(path: Path, text: str) -> None:
    with new_file(path, private=True) as sink:
        sink.write(text.encode())


# The frontier of a story: the cost and the risk of other policies.
def write_frontier(
    folder: Path, data: Path, policy: Path, *, goal: str, quick: bool, tell: Progress, **more: Any
) -> None:
    place = folder / "frontier"
    frontier = advise(
        data,
        policy=policy,
        goal=goal,
        out=place,
        on="generated",
        quick=True,
        draws=4,  # with fewer, intervals span everything
        jobs=1 if quick else min(2, os.cpu_count() or 1),
        progress=lambda stage: tell(f"{folder.name}: frontier, {stage}"),
        **more,
    )
    frontier.write(place, page=frontier_page(frontier))
    finish(place)


def read_frontier(numbers: Numbers) -> tuple[Picture, Frontier, Point | None]:
    frontier = Frontier.read(numbers.folder / "frontier")
    numbers.name(tried=numbers.compute("policies measured", len(frontier.points), "points of the frontier", [FRONTIER]))
    picture = Picture(
        title="Cost against risk",
        svg=frontier_figure(frontier),
        caption="",
        sources=[numbers.place("frontier/frontier.csv")],
    )
    if frontier.choice is None:
        return picture, frontier, None
    point = f"/points/{[point.name for point in frontier.points].index(frontier.choice)}"
    limit = ("maximum cost of privacy", "/limit/max_cost")
    if frontier.limit.max_cost is None:
        limit = ("maximum risk", "/limit/max_risk")
    numbers.name(
        asked=numbers.read(limit[0], FRONTIER, limit[1], percent),
        advice=numbers.read("recommended or closest policy", FRONTIER, f"{point}/name"),
        advice_risk=numbers.read("risk of the advice", FRONTIER, f"{point}/risk/value", percent),
    )
    for end in ("value", "lower", "upper"):
        cost = numbers.read(f"cost of the advice, {end}", FRONTIER, f"{point}/cost/{end}", percent)
        numbers.name(**{f"advice_{end}": cost})
    return picture, frontier, frontier.point(frontier.choice)
