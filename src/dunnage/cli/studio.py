# SPDX-License-Identifier: Apache-2.0
"""The command ``studio``."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from dunnage.cli import shared
from dunnage.cli.shared import print_text
from dunnage.errors import ParameterError


def studio(
    folder: Annotated[Path, Option(help="Folder that everything stays in; private.")] = Path("dunnage-studio"),
    port: Annotated[int, Option(min=0, max=65535, help="Port on this machine. 0: any free one.")] = 8400,
    browser: Annotated[bool, Option("--browser/--no-browser", help="Open a browser, or print the link only.")] = True,
    ledger: shared.LedgerOption = None,
    memory: Annotated[int, Option(min=512, help="Memory that one job may use, in MB.")] = 8192,
) -> None:
    """Open the studio in a browser: from a file to a release, a plan and its settlement. On this machine only.

    There is no account: a link that works once signs you in. Everything stays in one folder.

    Example: dunnage studio --folder studio
    """
    missing = [name for name in ("starlette", "uvicorn", "multipart") if find_spec(name) is None]
    if missing:
        raise ParameterError("dunnage studio needs more packages. Install dunnage[serve].")
    from dunnage.serving.studio import Studio, StudioSettings, run

    shared.check_ledger(ledger)
    made = Studio(StudioSettings(folder, f"127.0.0.1:{port or _free_port()}", ledger or "", memory_mb=memory))

    def opened(link: str) -> None:
        print_text(f"Studio    {link} (works once)")
        print_text(f"Folder    {folder} (private); stop with Ctrl-C")
        if browser:
            import webbrowser

            webbrowser.open(link)

    raise typer.Exit(run(made, opened=opened))


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
