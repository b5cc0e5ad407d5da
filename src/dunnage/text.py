# SPDX-License-Identifier: Apache-2.0
"""Numbers and plurals as people read them: one way to write each."""

from __future__ import annotations


def several(num: int, noun: str) -> str:
    """Write a number of things, one of which has no ending: ``1 trip``, ``1,000 trips``."""
    return f"{num:,} {noun}{'' if num == 1 else 's'}"
