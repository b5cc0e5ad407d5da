# SPDX-License-Identifier: Apache-2.0
"""The page of the demo: a chapter for each story, on which every number leads to the file it was read from.

A number on the page is a :class:`Traced`; words take numbers in no other way, as :class:`Told` refuses digits of its
own.
"""

from __future__ import annotations

import html
import re
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

from dunnage._version import __version__
from dunnage.errors import ParameterError
from dunnage.pages.common import render
from dunnage.svg import Picture, Scale, bar_rows, chart, tag

ROW, BAR = 42.0, 15.0
SAYS = "Owner's view: shows true values. Do not hand out."
_DIGIT = re.compile(r"\d")
_FORMATTER = string.Formatter()


@dataclass(frozen=True, kw_only=True)
class Traced:
    """A number that was read from a file."""

    name: str  # What it is
    value: float | str  # As the file has it
    text: str  # As the page has it
    file: str  # Its file, relative to the page
    field: str  # Where in the file it is, as a JSON pointer

    def __str__(self) -> str:
        return self.text

    def __html__(self) -> str:
        words = self.text if isinstance(self.value, str) else self.text.replace(" ", "\u00a0")
        return tag("a", words, class_="traced", href=quote(self.file), title=f"{self.name}: {self.file} {self.field}")


@dataclass(frozen=True, init=False)
class Told:
    """Words with traced numbers in them, and no others.

    Examples
    --------
    >>> of = Traced(name="trucks", value=130, text="130", file="plan/plan.json", field="/objective")
    >>> str(Told("{trucks} trucks", trucks=of))
    '130 trucks'
    """

    words: str  # With a `{name}` for each number
    numbers: Mapping[str, Traced]  # The numbers by their names

    def __init__(self, words: str, **numbers: Traced) -> None:
        object.__setattr__(self, "words", words)
        object.__setattr__(self, "numbers", numbers)
        parts = list(_FORMATTER.parse(words))
        if any(_DIGIT.search(literal) for literal, *_ in parts):
            raise ParameterError(f"a number in {words!r} leads to no file. Give it by name.")
        if {name for _, name, *_ in parts if name is not None} != set(numbers):
            raise ParameterError(f"{words!r} does not use just the numbers it was given. Mend either.")

    def _filled(self) -> Iterator[str | Traced]:
        for literal, name, *_ in _FORMATTER.parse(self.words):
            yield literal
            if name is not None:
                yield self.numbers[name]

    def __str__(self) -> str:
        return "".join(map(str, self._filled()))

    def __html__(self) -> str:
        return "".join(part.__html__() if isinstance(part, Traced) else html.escape(part) for part in self._filled())


@dataclass(frozen=True, kw_only=True)
class KeyFigure:
    name: str
    value: Traced
    note: Told


@dataclass(frozen=True, kw_only=True)
class Table:
    """Names of columns, and of each row its name and its cells."""

    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[Traced | Told | str]]]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What a paper says, and what came out here."""

    paper: str  # Its authors and year
    claimed: Told  # claimed, found: both in a sentence or two
    found: Told
    holds: bool | None  # Whether what the paper says is true; None if in part

    @property
    def style(self) -> str:
        return {True: "proved", None: "claimed", False: "void"}[self.holds]

    @property
    def verdict(self) -> str:
        return {True: "✓ holds", None: "! holds in part", False: "✕ does not hold"}[self.holds]


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """A part of a chapter: words, a table, pictures, claims; each may be left out."""

    title: str
    words: Sequence[Told] = ()
    table: Table | None = None
    pictures: Sequence[Picture] = ()
    claims: Sequence[Claim] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Chapter:
    name: str  # Its word and its folder: `loads`, `riders`, `carriers`
    title: str  # title, lead: its heading, and what it is about
    lead: Told
    tile: tuple[Traced, Told]  # What the top of the page says of it: a number and what that is
    figures: Sequence[KeyFigure]  # figures, parts: the figures it begins with, and what follows
    parts: Sequence[Part]
    # Pages and folders of the story: words, and place relative to the page
    links: Sequence[tuple[str, str]] = field(default=())


def demo_page(chapters: Sequence[Chapter]) -> str:
    """Write the page of the demo. It shows true values: keep the file private (mode 0600)."""
    return render("demo.html", {"chapters": chapters, "says": SAYS, "version": __version__})


def bars_picture(
    title: str,  # title, caption, legend: of the picture
    bars: Sequence[tuple[str, Traced, str]],
    caption: Told,
    *,
    most: float | None = None,  # The number whose bar would fill the width; by default a little more than the largest
    legend: Sequence[tuple[str, str]] = (),
) -> Picture:
    values = [float(number.value) for _, number, _ in bars]
    scale = Scale(0.0, most or 1.04 * max(*values, 1e-9))
    rows = [
        (f"{name}: {number.text}", [[(style, min(value, scale.high))]])
        for (name, number, style), value in zip(bars, values, strict=True)
    ]
    axis = tag("line", class_="axis", x1="0", x2="0", y1="0", y2=ROW * len(bars))
    parts = [axis, *bar_rows(scale, rows, row=ROW, bar=BAR, indent=6)]
    svg = chart(ROW * len(bars) + 4, parts, label=f"{title}. {caption}", kind="flat")
    sources = dict.fromkeys(number.file for _, number, _ in bars)
    return Picture(title=title, svg=svg, caption=caption, sources=tuple(sources), legend=legend)
