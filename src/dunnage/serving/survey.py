# SPDX-License-Identifier: Apache-2.0
"""Survey a file that was uploaded: its columns, what they look like, and what each usually is. A job, with limits.

It prints one JSON object; no value of the file is in it, except what ``dunnage draft`` tells its owner too.
"""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

from dunnage.errors import DunnageError, InternalError
from dunnage.model.documents import Model
from dunnage.model.draft import draft_policy, is_code, likely_story, role_hint, unit_of
from dunnage.model.policy import Document
from dunnage.model.schema import Role
from dunnage.processes import EARLY
from dunnage.tables.dataset import remarks_of, surveyed


class Column(Model):
    name: str
    kind: str  # what its cells look like
    hint: str  # what is usual for such a name
    role: str  # the role that the hint begins with
    unit: str
    code: bool  # whether it has postcodes or the like
    seen: str


class Survey(Model):
    """A file as the columns page needs it."""

    story: str
    rows: int
    columns: list[Column]
    drafts: dict[str, Document]  # by story
    remarks: list[str]  # private


def survey(path: Path, name: str) -> Survey:
    """Return what the columns page begins with: a draft for each story, and for each column what is usual."""
    found = surveyed(path)
    story, rows = likely_story(found.kinds), {"rows", "trips"}
    drafts = {
        kind: draft_policy(name, found.kinds, options=found.options, story=kind, seen=found.seen) for kind in rows
    }
    columns = []
    for column, kind in found.kinds.items():
        hint = role_hint(column, kind)
        role = next((role for role in Role if hint.startswith(role.value)), Role.DROP)
        named = {"name": column, "kind": kind, "hint": hint, "role": role.value, "unit": unit_of(column)}
        columns.append(Column(**named, code=is_code(column, kind), seen=found.seen.get(column, "")))
    return Survey(
        story=story,
        rows=found.table.num_rows,
        columns=columns,
        drafts={kind: tomllib.loads(text) for kind, text in drafts.items()},
        remarks=list(remarks_of(found.table, found.kinds, story)),
    )


def run(work: Callable[[], Model]) -> None:
    """Print what a job returns, or why it failed, as JSON; an error that nobody expected is named by its type."""
    try:
        content = work()
    except DunnageError as error:
        if isinstance(error, InternalError):
            raise
        print_error(type(error).__name__, str(error))
    except MemoryError:
        print_error("MemoryError", "out of memory. Try a smaller file, or one period at a time.")
    except Exception as error:  # its words may hold private values
        print_error("InternalError", f"unexpected: {type(error).__name__}. This is a bug in Dunnage, not your mistake.")
    else:
        sys.stdout.write(content.model_dump_json())


def show_early(content: Model) -> None:
    """Show a part of what a job will return. It is kept in memory, and only while the job runs."""
    sys.stderr.write(f"{EARLY}{content.model_dump_json()}\n")


def print_error(kind: str, message: str) -> None:
    sys.stdout.write(json.dumps({"error": {"kind": kind, "message": message}}))
    sys.stdout.flush()
    sys.exit(2)


if __name__ == "__main__":
    run(lambda: survey(Path(sys.argv[1]), sys.argv[2]))
