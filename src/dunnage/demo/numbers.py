# SPDX-License-Identifier: Apache-2.0
"""Numbers of the demo's page: each is read from a file of its chapter, and knows where it stands there.

What has to be worked out first, a ratio say, is written into the chapter's ``figures.json`` beside what it was worked
out from, and read from there like all others.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dunnage.auditing.finding import percent
from dunnage.errors import InternalError
from dunnage.folders import new_file
from dunnage.pages.demo import Traced
from dunnage.svg import number_text

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
    """Write how many times as large something is."""
    return f"{ratio:.2f} times"


def seconds(value: float) -> str:
    """Write a time of less than an hour."""
    return f"{value:.0f} s"


def escaped(key: str) -> str:
    """Write a key as a part of a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")


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
        self._contents: dict[str, Any] = {}
        self._figures: dict[str, dict[str, Any]] = {}

    def read(self, name: str, file: str, field: str, show: Shown = plain) -> Traced:
        """Read a number from a JSON file."""
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
        text = json.dumps({"format": 1, "figures": self._figures}, indent=2, ensure_ascii=False) + "\n"
        with new_file(self.folder / FIGURES_FILE, private=True) as sink:
            sink.write(text.encode())
        self._contents.pop(FIGURES_FILE, None)
        return self.read(name, FIGURES_FILE, f"/figures/{escaped(name)}/value", show)

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
