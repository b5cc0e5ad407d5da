# SPDX-License-Identifier: Apache-2.0
"""What every story of the demo gives back, and what all of them need."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dunnage.demo.numbers import Numbers
from dunnage.errors import CheckFailed
from dunnage.folders import new_file
from dunnage.pages.demo import Chapter, Told
from dunnage.verification import verify

SEED = 2026
Progress = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Story:
    """A story that was run."""

    chapter: Chapter  # Its chapter of the page
    numbers: Numbers  # All numbers on it
    line: Told  # What came out, in a line


def check(release: Path) -> None:
    """Verify a release that was just written."""
    found = verify(release)
    if not found.ok:
        raise CheckFailed(found.summary())


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write plain data, readable by their owner alone."""
    with new_file(path, private=True) as sink:
        sink.write((json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode())


def write_text(path: Path, text: str) -> None:
    """Write text, readable by its owner alone."""
    with new_file(path, private=True) as sink:
        sink.write(text.encode())
