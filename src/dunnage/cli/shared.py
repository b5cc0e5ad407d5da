# SPDX-License-Identifier: Apache-2.0
"""What all commands share: options, printing, and the progress line."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from dunnage.errors import CheckFailed, ParameterError, ReleaseError
from dunnage.processes import STAGES

if TYPE_CHECKING:
    from dunnage.model.house import Clearance, House
    from dunnage.release import Release

OptPath = Path | None
OptText = str | None
OptInt = int | None
OptFloat = float | None

JsonFlag = Annotated[bool, Option("--json", help="Print JSON for programs.")]
ForceFlag = Annotated[bool, Option("--force", help="Replace an existing file or folder.")]
PolicyOption = Annotated[Path, Option("--policy", help="Policy file.")]
ReleaseArgument = Annotated[Path, Argument(help="Release folder.")]
KeyOption = Annotated[OptPath, Option(help="Key file. Default: RELEASE.key.parquet.")]
PeriodOption = Annotated[OptText, Option(help="Period that was published. Default: the period of the release.")]
ShuttleHour = Annotated[OptFloat, Option(help="Shuttles: cost of one shuttle for one hour.")]
PlanOut = Annotated[Path, Option("-o", "--out", help="Plan folder to create.")]
HouseOption = Annotated[
    OptPath, Option("--house", help="Limits of your organisation. Default: the nearest house.toml, if there is one.")
]
ExceptionOption = Annotated[
    OptText, Option("--exception", help='Who granted an exception to a limit, and why: "Name: reason".')
]
EngineOption = Annotated[
    OptText, Option(help="Where rows live: memory | files (any size) | spark (Parquet files). Default: memory.")
]
LedgerOption = Annotated[
    OptText, Option(help="Ledger: a file or postgresql://... Default: dunnage-ledger.sqlite beside the policy.")
]
SignOption = Annotated[OptPath, Option(help="Ed25519 private key (PEM) to sign with.")]
SeedOption = Annotated[OptInt, Option(min=0, help="Random seed; the same seed gives the same result.")]

DEFAULT_DEVICES = 5_000  # vehicles for which errors are predicted

# Names of files and columns come from other people: none may send control codes to the terminal.
_CONTROL_CODES = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def print_text(text: str, *, err: bool = False) -> None:
    typer.echo(_CONTROL_CODES.sub("\N{REPLACEMENT CHARACTER}", text), err=err)


def print_result(result: Mapping[str, object], text: str, as_json: bool) -> None:
    print_text(json.dumps(result, indent=2) if as_json else text)


def check_ledger(ledger: str | None) -> None:
    if ledger is not None and ":memory:" in ledger:
        raise ParameterError("a ledger in memory forgets what you spent. Name a file with --ledger.")


def received(folder: Path, verb: str = "") -> Release:
    """Read a release to plan on. One whose parts contradict each other is refused here, not deep inside a planner."""
    from dunnage.release import Release
    from dunnage.verification import check_release

    release = Release.read(folder)
    if verb:
        release.check_rows(verb)
    try:
        check_release(release)
    except CheckFailed as failure:
        what = str(failure).rstrip(".")
        raise ReleaseError(f"{folder} is not a usable release: {what}. Run dunnage verify on it.") from None
    return release


def house_of(house: Path | None, near: Path, exception: str | None = None) -> House | None:
    """Read the house file that was given, or the one nearest to a folder; refuse a bad exception before any work."""
    from dunnage.model.house import House

    limits = House.read(house) if house is not None else House.find(near)
    if limits is not None:
        limits.clear((), exception)
    return limits


def print_cleared(result: Mapping[str, object], text: str, as_json: bool, clearance: Clearance | None) -> None:
    """Print a result below its verdict; exit with code 1 if it may not leave."""
    if clearance is None:
        print_result(result, text, as_json)
        return
    print_result({**result, "clearance": clearance.to_dict()}, f"{clearance.text()}\n\n{text}", as_json)
    if not clearance.may_leave:
        raise typer.Exit(1)


PLAIN_SECONDS = 5.0  # between two lines of progress where there is no terminal to update one on


@contextlib.contextmanager
def progress(*, plain: bool = False) -> Iterator[Callable[[str], None]]:
    """Show the stage of a command on a terminal; elsewhere, if ``plain``, as lines every few seconds."""
    if not sys.stderr.isatty():
        last = time.monotonic()

        def tell(stage: str) -> None:
            nonlocal last
            if time.monotonic() - last >= (0 if os.environ.get(STAGES) else PLAIN_SECONDS):
                print_text(f"progress: {stage}", err=True)
                last = time.monotonic()

        yield tell if plain or os.environ.get(STAGES) else lambda stage: None
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as status:
        yield lambda stage: status.update(stage)


def days_of(first: str | None, last: str | None) -> tuple[str, str] | None:
    if first is None and last is None:
        return None
    if first is None or last is None:
        raise ParameterError("--from and --to belong together. Give both; for one day, the same day twice.")
    return first, last
