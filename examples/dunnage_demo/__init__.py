# SPDX-License-Identifier: Apache-2.0
"""The demo: three stories from start to end on generated data, and one page with links from its numbers to files."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dunnage.errors import OutputError
from dunnage.ledger.store import STATE
from dunnage.showing.figures import Svg, render
from dunnage_demo import carriers, loads, riders
from dunnage_demo.story import NUMBERS_FILE, Progress, Story, numbers_table, write_text

__all__ = ["Demo", "run_demo"]

REPORT = "report.html"
_STORIES = {"loads": loads.tell_loads, "riders": riders.tell_riders, "carriers": carriers.tell_carriers}
_WRITTEN = {"loads": loads.WRITTEN, "riders": riders.WRITTEN, "carriers": carriers.WRITTEN}
# What the demo wrote when its only story was loads.
_EARLIER = {
    *(REPORT, "parcels.csv", "parcels.toml", "dunnage-ledger.sqlite", "release", "release.key.parquet"),
    *(f"{kind}-{name}" for kind in ("plan", "settlement") for name in loads.PLANS),
}


@dataclass(frozen=True, eq=False)
class Demo:
    report: Path  # the page
    lines: tuple[str, ...]  # one line per story


def run_demo(
    out: str | os.PathLike[str], *, quick: bool = False, force: bool = False, progress: Progress | None = None
) -> Demo:
    folder, tell = Path(out), progress or (lambda stage: None)
    if os.path.lexists(folder):  # replaced by force if it contains only the files of a demo
        if not _is_ours(folder):
            message = f"{folder} already exists and has other files. Nothing was changed. Choose another place."
            raise OutputError(message)
        if not force and any(folder.iterdir()):
            raise OutputError(f"{folder} already exists. Choose another place, or replace it with --force.")
        shutil.rmtree(folder)
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise OutputError(f"{folder} cannot be created: {error.strerror}. Choose another place.") from None
    stories: dict[str, Story] = {}
    with _ledgers_forgotten():
        for name, run in _STORIES.items():
            (folder / name).mkdir(mode=0o700)
            stories[name] = run(folder / name, quick=quick, tell=tell)
    tell("writing the page")
    write_text(folder / NUMBERS_FILE, numbers_table([story.numbers for story in stories.values()]))
    write_text(folder / REPORT, demo_page(stories))
    return Demo(folder / REPORT, tuple(story.line for story in stories.values()))


@contextmanager
def _ledgers_forgotten() -> Iterator[None]:
    """Let the machine forget the ledgers of the demo: its data are generated, and --force deletes its ledgers."""
    before = os.environ.get(STATE)
    with tempfile.TemporaryDirectory() as folder:
        os.environ[STATE] = folder
        try:
            yield
        finally:
            os.environ.pop(STATE)
            if before is not None:
                os.environ[STATE] = before


def demo_page(stories: dict[str, Story]) -> str:
    """Write the page of the demo. It shows true values: keep the file private (mode 0600)."""
    numbers = {
        name: {key: Svg(number.__html__()) for key, number in story.numbers.named.items()}
        for name, story in stories.items()
    }
    return render("demo.html", {"stories": stories, "numbers": numbers})


def _is_ours(folder: Path) -> bool:
    if folder.is_symlink() or not folder.is_dir():
        return False
    names = {path.name for path in folder.iterdir()}
    if {REPORT, "parcels.csv", "release"} <= names <= _EARLIER:
        return True
    return names <= {*_WRITTEN, REPORT, NUMBERS_FILE} and all(
        (folder / name).is_dir()
        and not (folder / name).is_symlink()
        and {item.name for item in (folder / name).iterdir()} <= _WRITTEN[name]
        for name in names & _WRITTEN.keys()
    )
