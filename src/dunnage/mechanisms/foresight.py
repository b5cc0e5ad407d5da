# SPDX-License-Identifier: Apache-2.0
"""Foresight: what an owner is told of a release before it is paid for, and nobody else ever."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Foresight:
    """What a mechanism tells the owner before it spends. Private: it is printed for the owner, and enters no release.

    Nothing is drawn for it, so that it cannot be used to draw until one likes the outcome.

    Parameters
    ----------
    warnings
        What the owner should not overlook.
    lines
        What else there is to know, a line each.
    details
        The same as plain data.
    """

    warnings: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return "Foresight(private)"

    def to_dict(self) -> dict[str, Any]:
        """Give everything as plain data."""
        return {"warnings": list(self.warnings), "lines": list(self.lines), **self.details}
