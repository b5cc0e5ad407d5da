# SPDX-License-Identifier: Apache-2.0
"""The demo: all three stories end to end on generated data, ending on one page whose numbers lead to their files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dunnage.demo import carriers, loads, riders
from dunnage.demo.story import NUMBERS_FILE, Progress, Story, numbers_table, write_text
from dunnage.errors import OutputError
from dunnage.pages.demo import demo_page

__all__ = ["Demo", "run_demo"]

REPORT = "report.html"
_STORIES = {loads.NAME: loads.tell_loads, riders.NAME: riders.tell_riders, carriers.NAME: carriers.tell_carriers}
_WRITTEN: Mapping[str, frozenset[str]] = {
    loads.NAME: loads.WRITTEN,
    riders.NAME: riders.WRITTEN,
    carriers.NAME: carriers.WRITTEN,
}
_EARLIER = frozenset(
    {
        REPORT,
        "parcels.csv",
        "parcels.toml",
        "dunnage-ledger.sqlite",
        "release",
        "release.key.parquet",
        *(f"{kind}-{name}" for kind in ("plan", "settlement") for name in loads.PLANS),
    }
)
"""What the demo wrote when it told of loads alone."""


@dataclass(frozen=True, eq=False)
class Demo:
    report: Path  # The page
    lines: tuple[str, ...]  # What came out, one line a story


def run_demo(
    out: str | os.PathLike[str], *, quick: bool = False, force: bool = False, progress: Progress | None = None
) -> Demo:
    folder = _fresh_folder(Path(out), force=force)
    tell = progress or (lambda stage: None)
    told = [_run(folder / name, name, quick, tell) for name in _STORIES]
    tell("writing the page")
    write_text(folder / NUMBERS_FILE, numbers_table([story.numbers for story in told]))
    report = folder / REPORT
    write_text(report, demo_page([story.chapter for story in told]))
    return Demo(report, tuple(str(story.line) for story in told))


def _run(folder: Path, name: str, quick: bool, tell: Progress) -> Story:
    folder.mkdir(mode=0o700)
    return _STORIES[name](folder, quick=quick, tell=tell)


def _fresh_folder(folder: Path, *, force: bool) -> Path:
    """Make the folder; with ``force`` replace one that holds nothing but what a demo writes."""
    if os.path.lexists(folder):
        if not _is_ours(folder):
            raise OutputError(
                f"{folder} exists already and holds more than a demo wrote. It is left as it is: choose another place."
            )
        if not force and any(folder.iterdir()):
            raise OutputError(f"{folder} exists already. Choose another place, or replace it with --force.")
        shutil.rmtree(folder)
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise OutputError(f"{folder} cannot be made: {error.strerror}. Choose another place.") from None
    return folder


def _is_ours(folder: Path) -> bool:
    """Return whether a folder holds nothing that a demo does not write."""
    if folder.is_symlink() or not folder.is_dir():
        return False
    names = {path.name for path in folder.iterdir()}
    if {REPORT, "parcels.csv", "release"} <= names <= _EARLIER:
        return True
    if not names <= {*_WRITTEN, REPORT, NUMBERS_FILE}:
        return False
    chapters = [folder / name for name in names & _WRITTEN.keys()]
    return all(
        path.is_dir() and not path.is_symlink() and {item.name for item in path.iterdir()} <= _WRITTEN[path.name]
        for path in chapters
    )
