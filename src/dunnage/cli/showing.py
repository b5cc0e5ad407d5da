# SPDX-License-Identifier: Apache-2.0
"""The command ``show``: every kind of file that commands write or read, for a person."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dunnage.cli.devices import DEFAULT_DEVICES
from dunnage.cli.shared import JsonFlag, print_result


def show(
    path: Annotated[Path, typer.Argument(help="Any folder or file that commands write or read.")],
    devices: Annotated[
        int, typer.Option(min=1, help="Task, or policy for devices: how many vehicles to predict errors for.")
    ] = DEFAULT_DEVICES,
    as_json: JsonFlag = False,
) -> None:
    """Show anything that commands write or read: what it is, what it promises, what it says.

    Folders: release, plan, settlement, audit, frontier, city, GTFS feed, demo. Files: policy, task, reports, tallies,
    ledger, certificate, datapackage, plan or trucks as CSV, public key, key ring, allowance, sealed records, proof,
    figures of a demo. Of your data it lists columns and types, never values; of a draft, what is still blank. Keys are
    refused.

    Example: dunnage show release
    """
    from dunnage.showing import shown

    print_result(*shown(path, devices=devices), as_json)
