# SPDX-License-Identifier: Apache-2.0
"""What all commands share: options, printing, and the stage that is shown while one waits."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

OptPath = Path | None
OptText = str | None
OptInt = int | None
OptFloat = float | None

JsonFlag = Annotated[bool, Option("--json", help="Print JSON for programs.")]
ForceFlag = Annotated[bool, Option("--force", help="Replace what is there.")]
PolicyOption = Annotated[Path, Option("--policy", help="Policy file.")]
ReleaseArgument = Annotated[Path, Argument(help="Release folder.")]
KeyOption = Annotated[OptPath, Option(help="Key file; by default RELEASE.key.parquet.")]
PeriodOption = Annotated[OptText, Option(help="Which period was published; by default the release's.")]
ShuttleHour = Annotated[OptFloat, Option(help="Shuttles: what an hour of one costs.")]
PlanOut = Annotated[Path, Option("-o", "--out", help="Plan folder to make.")]
SignOption = Annotated[OptPath, Option(help="Ed25519 private key (PEM) to sign with.")]
SeedOption = Annotated[OptInt, Option(min=0, help="Seed, for the same result again.")]

# Names of files and columns come from others: none may steer the terminal it is printed on.
_STEERS_TERMINAL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def print_text(text: str, *, err: bool = False) -> None:
    """Print text, without what would steer the terminal."""
    typer.echo(_STEERS_TERMINAL.sub("\N{REPLACEMENT CHARACTER}", text), err=err)


def print_result(result: Mapping[str, object], text: str, as_json: bool) -> None:
    """Print a result for a person, or as JSON for programs."""
    print_text(json.dumps(result, indent=2) if as_json else text)


@contextlib.contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Show the current stage on the terminal, if there is one."""
    if not sys.stderr.isatty():
        yield lambda stage: None
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as status:
        yield lambda stage: status.update(stage)
