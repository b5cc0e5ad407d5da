# SPDX-License-Identifier: Apache-2.0
"""What everything that is shown shares: its type, limits, and reading JSON that anybody may have written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dunnage.errors import InputError

Content = Mapping[str, Any]
"""JSON that anybody may have written."""
Shown = tuple[Mapping[str, object], str]
"""Plain data for programs, and text for a person."""

HEAD_BYTES = 1 << 16
"""How much of a file is looked at to tell its kind."""
MOST_BYTES = 1 << 26
"""Largest document that is read whole."""
MOST_TABLE_BYTES = 1 << 28
"""Largest table that is read whole."""


def check_size(path: Path, most: int) -> None:
    if path.stat().st_size > most:
        raise InputError(str(path), [f"is larger than {most >> 20} MiB, so it is not read. Check the path."])


def read_json(path: Path) -> Any:
    check_size(path, MOST_BYTES)
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise InputError(str(path), ["is not JSON. It was cut off or damaged: use a copy, or make it anew."]) from None
