# SPDX-License-Identifier: Apache-2.0
"""Run commands in this process, and read what they did."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any, NamedTuple

from tests.scenarios.harness import run_main


class Done(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)

    def refused(self, says: str = "", code: int = 2) -> None:
        """Check that the command failed with this code and a message with these words."""
        assert (self.code, self.err[:7]) == (code, "error: "), self.out + self.err
        assert says in self.err, self.err


def run(*arguments: object, code: int | None = None) -> Done:
    """Run a command; one string is a line as one would type it. A bug (70) or an interrupt must be expected."""
    words = str(arguments[0]).split() if len(arguments) == 1 else arguments
    done = Done(*run_main(*words))
    assert "(raised" not in done.err
    if code is None:
        assert "Traceback" not in done.out + done.err
        assert done.code in (0, 1, 2), done.err
    else:
        assert done.code == code, done.err
    return done


def fine(*arguments: object) -> Any:
    """Run a command that succeeds, and return what it tells programs."""
    words = str(arguments[0]).split() if len(arguments) == 1 else list(arguments)
    return run(*words, "--json").json()


def rows(path: str | Path) -> list[dict[str, str]]:
    with Path(path).open(newline="") as stream:
        return list(csv.DictReader(stream))


def snapshot(folder: Path) -> dict[str, bytes | str]:
    """All there is in a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else str(path.lstat().st_mode)
        for path in sorted(folder.rglob("*"))
        if path.suffix != ".lock"
    }
