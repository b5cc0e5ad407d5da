# SPDX-License-Identifier: Apache-2.0
"""The policy advice begins with, whose mechanism may be blank, and the one it ends with, ready to publish."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dunnage.advising.frontier import Table
from dunnage.errors import PolicyError
from dunnage.model.policy import Policy, Written, is_for_devices

_HEADER = re.compile(r"^\s*\[\[?\s*(?P<name>[^\]]+?)\s*\]\]?\s*(#.*)?$")
_FILE = re.compile(r'^(\s*[\w"\'.-]+\s*=\s*)(?P<quote>["\'])(?P<name>[^"\'\\]*)(?P=quote)(.*)$')
_FILE_KEYS = ("hierarchy", "edges", "stops", "modes")
_BLANK: tuple[object, ...] = ("", [])


@dataclass(frozen=True, kw_only=True)
class BasePolicy(Written):
    """A policy as it was written, with or without a mechanism: advice chooses that."""

    @classmethod
    def of(cls, policy: Policy) -> BasePolicy:
        return cls(text=policy.to_toml(), document=policy.document, path=policy.path)

    @property
    def for_devices(self) -> bool:
        """Whether devices report under it, so that it has a mechanism for each purpose."""
        return is_for_devices(self.document)

    @property
    def blank_kinds(self) -> tuple[str, ...]:
        tables = self.document.get("mechanisms")
        kinds = tables.items() if isinstance(tables, Mapping) else ()
        return tuple(
            str(name) for name, table in kinds if isinstance(table, Mapping) and table.get("epsilon") in _BLANK
        )

    @property
    def about(self) -> str:
        """What it is about: ``rows``, ``trips`` or ``devices``."""
        if self.for_devices:
            return "devices"
        return "trips" if "trip" in self.document else "rows"

    @property
    def dataset(self) -> str:
        return str(self.document.get("dataset", ""))

    def policy(self, mechanism: Table) -> Policy:
        return Policy.from_dict({**self.document, "mechanism": dict(mechanism)}, path=self.path)

    def text_with(self, tables: Mapping[str, Table], *, place: Path | None = None, notes: Sequence[str] = ()) -> str:
        """Write the policy with some of its top tables replaced, to be kept in another folder.

        Comments outside those tables stay. Files that the policy names are found from the new place.
        """
        import tomli_w

        base = Path(os.path.abspath(self.path.parent if self.path else Path()))
        moved: dict[str, str] = {}

        def renamed(table: Any) -> Any:
            """Return a table whose files are found from the new place."""
            if not isinstance(table, Mapping):
                return table
            for key in _FILE_KEYS:
                if isinstance(name := table.get(key), str):
                    target = os.path.normpath(base / name)
                    if place is not None and not Path(name).is_absolute():
                        target = os.path.relpath(target, os.path.abspath(place))
                    moved[name] = Path(target).as_posix()
            return {key: moved.get(item, item) if key in _FILE_KEYS else item for key, item in table.items()}

        wanted = {**self.document, **tables}
        if "city" in wanted:
            wanted["city"] = renamed(wanted["city"])
        if isinstance(columns := wanted.get("attributes"), Mapping):
            wanted["attributes"] = {name: renamed(table) for name, table in columns.items()}
        kept: list[str] = []
        inside = False  # one of those tables; comments just before the next table stay
        for line in self.text.splitlines():
            if (header := _HEADER.match(line)) is not None:
                inside = header["name"].split(".")[0].strip().strip("\"'") in tables
            match = _FILE.match(line)
            key = match[1].split("=")[0].strip().split(".")[-1] if match else ""
            if match and match["name"] in moved and key in _FILE_KEYS:
                line = f'{match[1]}"{moved[match["name"]]}"{match[4]}'
            kept += [] if inside else [line]
        unchanged = "\n".join(kept).strip()
        text = f"{unchanged}\n\n{tomli_w.dumps({name: wanted[name] for name in tables})}"
        if policy_document_or_none(text) != policy_document_or_none(tomli_w.dumps(wanted)):
            text = tomli_w.dumps(wanted)  # written in some unusual way: comments are lost rather than meaning
        head = "".join(f"# {line}\n" if line else "#\n" for line in notes)
        return f"{head}\n{text}" if head else text


def policy_document_or_none(text: str) -> Mapping[str, object] | None:
    try:
        return Written.from_text(text).document
    except PolicyError:
        return None
