# SPDX-License-Identifier: Apache-2.0
"""What every story of the demo gives back, and what all of them need."""

from __future__ import annotations

import csv
import io
import json
import os
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dunnage.advising.advice import advise, finish
from dunnage.advising.frontier import Frontier, Point
from dunnage.documents import to_text
from dunnage.errors import CheckFailed, InternalError
from dunnage.folders import new_file
from dunnage.pages.demo import Chapter, KeyFigure, Part, Told, Traced
from dunnage.pages.frontier import frontier_page
from dunnage.pages.frontier_chart import frontier_figure
from dunnage.svg import Picture
from dunnage.text import number_text, percent
from dunnage.verification import verify

# --- Numbers of the demo's page: each is read from a file of its chapter, and knows where it stands there.
#
# What has to be worked out first, a ratio say, is written into the chapter's ``figures.json`` beside what it was worked
# out from, and read from there like all others.


FIGURES_FILE = "figures.json"
NUMBERS_FILE = "numbers.csv"
HEADER = ("chapter", "name", "value", "text", "file", "field")
Shown = Callable[[Any], str]
_IN_UNIT = ("value", "baseline")


def plain(value: Any) -> str:
    """Write a number for a person, and words as they are."""
    return value if isinstance(value, str) else number_text(float(value))


def signed(share: float) -> str:
    """Write by what part something is more or less.

    Examples
    --------
    >>> signed(0.0384), signed(-0.1), signed(0.0)
    ('+3.84 %', '-10 %', '0 %')
    """
    return f"{100 * share:+.3g} %" if share else "0 %"


def times(ratio: float) -> str:
    return f"{ratio:.2f} times"


def seconds(value: float) -> str:
    return f"{value:.0f} s"


def find_field(content: Any, field: str) -> Any:
    """Return what a JSON pointer leads to.

    Examples
    --------
    >>> find_field({"a/b": [1, {"c": 2}]}, "/a~1b/1/c")
    2
    """
    for part in field.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        content = content[int(key)] if isinstance(content, list) else content[key]
    return content


class Numbers:
    """The numbers of one chapter, as they are read from the files of its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.found: list[Traced] = []
        self._named: dict[str, Traced] = {}
        self._contents: dict[str, Any] = {}
        self._figures: dict[str, dict[str, object]] = {}

    def name(self, **numbers: Traced) -> None:
        """Give numbers the names that sentences of the chapter know them by."""
        self._named |= numbers

    def __getitem__(self, name: str) -> Traced:
        return self._named[name]

    def say(self, words: str) -> Told:
        """Fill in the numbers that a sentence names."""
        names = [name for _, name, *_ in string.Formatter().parse(words) if name is not None]
        return Told(words, **{name: self._named[name] for name in names})

    def key_figure(self, title: str, name: str, note: str) -> KeyFigure:
        """Show a number among those that the chapter begins with."""
        return KeyFigure(name=title, value=self._named[name], note=self.say(note))

    def read(self, name: str, file: str, field: str, show: Shown = plain) -> Traced:
        value = find_field(self._content(file), field)
        if not isinstance(value, int | float | str):
            raise InternalError(f"{file} has no number at {field}.")
        found = Traced(name=name, value=value, text=show(value), file=self.place(file), field=field)
        self.found.append(found)
        return found

    def finding(self, file: str, finding: str, part: str = "value", show: Shown | None = None) -> Traced:
        """Read a finding of an audit: its value, or another part of it such as ``baseline`` or ``details/lower``.

        Value and baseline are in the finding's unit; details may be in another, and are plain numbers unless ``show``
        says how they are written.
        """
        items = self._content(file)["findings"]
        number = [item["name"] for item in items].index(finding)
        is_share = part in _IN_UNIT and items[number]["unit"] in ("probability", "share")
        shown = show or (percent if is_share else plain)
        return self.read(f"{finding}, {part}", file, f"/findings/{number}/{part}", shown)

    def compute(self, name: str, value: float, how: str, inputs: Sequence[Traced | str], show: Shown = plain) -> Traced:
        """Write a number that was worked out into ``figures.json``, with what it was worked out from; then read it."""
        places = [self.place(item) if isinstance(item, str) else f"{item.file}#{item.field}" for item in inputs]
        self._figures[name] = {"value": value, "how": how, "from": places}
        write_json(self.folder / FIGURES_FILE, {"format": 1, "figures": self._figures})
        self._contents.pop(FIGURES_FILE, None)
        key = name.replace("~", "~0").replace("/", "~1")  # as a part of a JSON pointer
        return self.read(name, FIGURES_FILE, f"/figures/{key}/value", show)

    def place(self, file: str) -> str:
        """Name a file of the chapter as the page does."""
        return f"{self.folder.name}/{file}"

    def _content(self, file: str) -> Any:
        if file not in self._contents:
            self._contents[file] = json.loads((self.folder / file).read_bytes())
        return self._contents[file]


def numbers_table(chapters: Sequence[Numbers]) -> str:
    """List all numbers of the page and its pictures, and those they were worked out from, as CSV text."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    for chapter in chapters:
        for item in dict.fromkeys(chapter.found):
            value = item.value if isinstance(item.value, str) else json.dumps(item.value)
            writer.writerow((chapter.folder.name, item.name, value, item.text, item.file, item.field))
    return text.getvalue()


SEED = 2026
Progress = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Story:
    chapter: Chapter  # Its chapter of the page
    numbers: Numbers  # All numbers on it
    line: Told  # What came out, in a line


def check(release: Path) -> None:
    found = verify(release)
    if not found.ok:
        raise CheckFailed(found.summary())


def write_json(path: Path, content: Mapping[str, object]) -> None:
    write_text(path, to_text(content))


def write_text(path: Path, text: str) -> None:
    with new_file(path, private=True) as sink:
        sink.write(text.encode())


# --- The frontier of a story: other policies, what each would cost and what it would tell.


FOLDER, FILE = "frontier", "frontier/frontier.json"
JOBS = 2
DRAWS, QUICK_DRAWS = 3, 2


def write_frontier(
    folder: Path, data: Path, policy: Path, *, goal: str, quick: bool, tell: Progress, **more: Any
) -> None:
    """Measure a small frontier and write it into a chapter's folder, with its page."""
    place = folder / FOLDER
    jobs = 1 if quick else min(JOBS, os.cpu_count() or 1)
    found = advise(
        data,
        policy=policy,
        goal=goal,
        out=place,
        on="generated",
        quick=True,
        draws=QUICK_DRAWS if quick else DRAWS,
        jobs=jobs,
        progress=tell,
        **more,
    )
    found.write(place, page=frontier_page(found))
    finish(place)


def frontier_part(numbers: Numbers, *, cost: str, risk: str, note: str = "", more: Sequence[Told] = ()) -> Part:
    """Tell of the frontier in a chapter's folder, and why what is recommended is."""
    found = Frontier.read(numbers.folder / FOLDER)
    numbers.name(tried=numbers.compute("policies measured", len(found.points), "points of the frontier", [FILE]))
    picture = Picture(
        title="Cost against risk",
        svg=frontier_figure(found),
        caption=Told("Each mark is a policy, measured several times; the nearer to the corner, the better." + note),
        sources=[numbers.place("frontier/frontier.csv")],
    )
    words = [numbers.say("{tried} policies were measured: what each costs, and what it leaves an attacker.")]
    advice = advised(numbers)
    if advice is not None:
        point = f"/points/{advice[1]}"
        limit, field, request = (
            ("most that privacy may cost", "/limit/max_cost", f"at most {{asked}} {cost}")
            if found.limit.max_cost is not None
            else ("most that may be risked", "/limit/max_risk", f"that {risk} {{asked}} at most")
        )
        numbers.name(
            asked=numbers.read(limit, FILE, field, percent),
            advice=numbers.read("recommended policy", FILE, "/recommended"),
            advice_risk=numbers.read("risk of the advice", FILE, f"{point}/risk/value", percent),
            **{
                f"advice_{end}": numbers.read(f"cost of the advice, {end}", FILE, f"{point}/cost/{end}", percent)
                for end in ("value", "lower", "upper")
            },
        )
        keeps = "the advice is" if found.meets_limit else "no policy surely keeps to it; the closest is"
        sentence = (
            f"Asked for {request}, {keeps} {{advice}}: {{advice_value}} {cost} ({{advice_lower}} to {{advice_upper}}), "
            f"and {risk} {{advice_risk}}. It is written as a policy, ready to publish with."
        )
        words += [numbers.say(sentence), *more]
    words.append(
        Told(
            "To choose a policy by looking at one's own data is itself not private, so that all were measured on "
            "generated data of the same public shape."
        )
    )
    return Part(title="What other policies would cost", words=words, pictures=[picture])


def advised(numbers: Numbers) -> tuple[Point, int] | None:
    """Return the recommended point of the frontier in a chapter's folder, and its place; None if there is none."""
    found = Frontier.read(numbers.folder / FOLDER)
    if found.recommended is None:
        return None
    return found.point(found.recommended), [point.name for point in found.points].index(found.recommended)
