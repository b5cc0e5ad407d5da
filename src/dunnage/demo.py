# SPDX-License-Identifier: Apache-2.0
"""The main story end to end on generated data: generate, publish, verify, and a report of what came out."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from dunnage.errors import CheckFailed, OutputError
from dunnage.io import load
from dunnage.publishing import publish, rehearse
from dunnage.release import Release
from dunnage.samples import PackageSetting, generate_packages
from dunnage.showing import dry_run_text, release_text
from dunnage.verification import verify

REPORT = "report.md"


def run_demo(
    out: str | os.PathLike[str],
    *,
    quick: bool = False,
    force: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Path:
    """Run the demo into a new folder and return the path of its report.

    Parameters
    ----------
    out
        Folder to make.
    quick
        Fewer packages.
    force
        Replace a folder that an earlier demo made.
    progress
        Called with the name of each stage.
    """
    folder = _fresh_folder(Path(out), force=force)
    tell = progress or (lambda stage: None)
    tell("generating packages")
    setting = PackageSetting(size=60 if quick else 240, destinations=3 if quick else 4, decimals=1)
    data_file, policy_file = generate_packages(setting, folder / "parcels.csv", seed=2026)
    data = load(data_file, policy_file)
    tell("rehearsing")
    rehearsal = dry_run_text(rehearse(data, out=folder / "release"))
    tell("publishing")
    publish(data, out=folder / "release")
    tell("verifying")
    verification = verify(folder / "release")
    if not verification.ok:
        raise CheckFailed(verification.summary())
    report = folder / REPORT
    shown = release_text(Release.read(folder / "release"))
    report.write_text(_report(policy_file.read_text(), rehearsal, shown, verification.summary()))
    return report


def _fresh_folder(folder: Path, *, force: bool) -> Path:
    if folder.exists():
        ours = (folder / "parcels.csv").exists() or not any(folder.iterdir()) if folder.is_dir() else False
        if not force or not ours:
            why = (
                "Choose another place, or replace it with --force."
                if ours
                else "It is not a demo folder: choose another."
            )
            raise OutputError(f"{folder} exists already. {why}")
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    return folder


def _report(policy: str, rehearsal: str, shown: str, verification: str) -> str:
    return f"""# Dunnage demo: packages published privately

A delivery centre publishes the weights of its packages so that an outside planner can pack trucks without learning
which package is which. Everything below was made by the commands named, on generated packages (`parcels.csv`).

## The owner's policy

```toml
{policy.strip()}
```

## `dunnage publish parcels.csv --policy parcels.toml --dry-run`

```text
{rehearsal}
```

## `dunnage publish parcels.csv --policy parcels.toml -o release`, then `dunnage show release`

```text
{shown}
```

The folder `release` leaves the owner. `release.key.parquet` and `dunnage-ledger.sqlite` stay.

## `dunnage verify release`

```text
{verification}
```
"""
