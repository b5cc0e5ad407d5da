# SPDX-License-Identifier: Apache-2.0
"""The policy advice begins with, whose mechanism may be blank, and the one it ends with, ready to publish."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dunnage.policy import Policy, is_for_devices, policy_document, policy_text

_HEADER = re.compile(r"^\s*\[\[?\s*(?P<name>[^\]]+?)\s*\]\]?\s*(#.*)?$")
_FILE_KEYS = ("hierarchy", "edges")
_BLANK: tuple[Any, ...] = ("", [])


@dataclass(frozen=True, kw_only=True)
class BasePolicy:
    """A policy as it was written, with or without a mechanism: advice chooses that."""

    text: str = field(repr=False)  # text, document: what is written, as text and as plain data
    document: Mapping[str, Any] = field(repr=False)
    path: Path | None = None  # The file it is from; the files it names are relative to it

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> BasePolicy:
        """Read a policy file, whatever stands in its mechanism."""
        text, file = policy_text(path)
        return cls(text=text, document=policy_document(text, file), path=file)

    @classmethod
    def of(cls, policy: Policy) -> BasePolicy:
        """Begin with a policy that was read already."""
        return cls(text=policy.to_toml(), document=policy.document, path=policy.path)

    @property
    def for_devices(self) -> bool:
        """Whether devices report under it, so that it has a mechanism for each purpose."""
        return is_for_devices(self.document)

    @property
    def blank_kinds(self) -> tuple[str, ...]:
        """Kinds of report whose epsilon is left blank, in a policy for devices."""
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
        """The name the ledger accounts for."""
        return str(self.document.get("dataset", ""))

    def policy(self, mechanism: Mapping[str, Any]) -> Policy:
        """Return the policy with this mechanism: its name and parameters."""
        return Policy.from_dict({**self.document, "mechanism": dict(mechanism)}, path=self.path)

    def text_with(
        self, tables: Mapping[str, Mapping[str, Any]], *, place: Path | None = None, notes: Sequence[str] = ()
    ) -> str:
        """Write the policy with some of its top tables replaced, to be kept in another folder.

        Comments outside those tables stay. Files that the policy names are found from the new place.
        """
        import tomli_w

        files = dict(_files_named(self.document))
        moved = {name: self._moved(name, place) for name in files.values()}
        wanted = _with_files({**self.document, **tables}, moved)
        added = tomli_w.dumps({name: _with_files(dict(table), moved) for name, table in tables.items()})
        kept = _renamed(_without_tables(self.text, tuple(tables)), moved)
        text = f"{kept.strip()}\n\n{added}"
        if policy_document_or_none(text) != policy_document(tomli_w.dumps(wanted)):
            text = tomli_w.dumps(wanted)  # written in some unusual way: comments are lost rather than meaning
        head = "".join(f"# {line}\n" if line else "#\n" for line in notes)
        return f"{head}\n{text}" if head else text

    def _moved(self, name: str, place: Path | None) -> str:
        """Return how a file that the policy names is found from a place."""
        base = Path(os.path.abspath(self.path.parent if self.path else Path()))
        target = base / name
        if place is None or Path(name).is_absolute():
            return Path(os.path.normpath(target)).as_posix()
        return Path(os.path.relpath(target, os.path.abspath(place))).as_posix()


def policy_document_or_none(text: str) -> dict[str, Any] | None:
    """Parse TOML text; None if it is none."""
    from dunnage.errors import PolicyError

    try:
        return policy_document(text)
    except PolicyError:
        return None


def _files_named(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return where a policy names files, and their names."""
    attributes = document.get("attributes")
    named = [
        (f"attributes.{column}.{key}", table[key])
        for column, table in (attributes.items() if isinstance(attributes, Mapping) else ())
        if isinstance(table, Mapping)
        for key in _FILE_KEYS
        if isinstance(table.get(key), str)
    ]
    city = document.get("city")
    if isinstance(city, Mapping):
        named += [(f"city.{key}", name) for key, name in city.items() if isinstance(name, str)]
    return named


def _with_files(document: Mapping[str, Any], moved: Mapping[str, str]) -> dict[str, Any]:
    """Return a document whose files are named otherwise."""
    copy: dict[str, Any] = {key: dict(item) if isinstance(item, Mapping) else item for key, item in document.items()}
    for where, name in _files_named(document):
        table, *rest = where.split(".", 1)
        if table == "city":
            copy["city"][rest[0]] = moved.get(name, name)
        else:
            column, key = rest[0].rsplit(".", 1)
            copy["attributes"][column] = {**copy["attributes"][column], key: moved.get(name, name)}
    return copy


def _without_tables(text: str, tables: Sequence[str]) -> str:
    """Leave out some top tables and those inside them, up to the next table; comments just before that stay."""
    kept: list[str] = []
    inside = False
    for line in text.splitlines():
        header = _HEADER.match(line)
        if header is not None:
            name = header["name"].split(".")[0].strip().strip("\"'")
            inside = name in tables
        if not inside:
            kept.append(line)
    return "\n".join(kept)


def _renamed(text: str, moved: Mapping[str, str]) -> str:
    """Name files otherwise, wherever a line gives one to a key."""
    lines = []
    for line in text.splitlines():
        found = re.match(r'^(\s*[\w"\'.-]+\s*=\s*)(?P<quote>["\'])(?P<name>[^"\'\\]*)(?P=quote)(.*)$', line)
        key = found[1].split("=")[0].strip().split(".")[-1] if found else ""
        if found and found["name"] in moved and (key in _FILE_KEYS or key in ("stops", "modes")):
            line = f'{found[1]}"{moved[found["name"]]}"{found[4]}'
        lines.append(line)
    return "\n".join(lines)
