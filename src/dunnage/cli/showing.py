# SPDX-License-Identifier: Apache-2.0
"""The command ``show``: every kind of file that commands write, for a person."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dunnage.cli.devices import (
    DEFAULT_DEVICES,
    is_device_policy,
    shown_device_policy,
    shown_reports,
    shown_task,
)
from dunnage.cli.shared import JsonFlag, print_result
from dunnage.errors import ParameterError


def show(
    path: Annotated[
        Path, typer.Argument(help="A release, plan or audit folder, a policy, task, report file or ledger.")
    ],
    devices: Annotated[
        int, typer.Option(min=1, help="A task, or a policy for devices: predict errors for this many vehicles.")
    ] = DEFAULT_DEVICES,
    as_json: JsonFlag = False,
) -> None:
    """Show a release, plan, audit, policy, task, report file or ledger for a person.

    Example: dunnage show release
    """
    print_result(*_shown(path, devices), as_json)


def _shown_folder(path: Path) -> tuple[dict[str, Any], str]:
    from dunnage.planning.fleet_plan import FleetPlan, is_fleet_plan
    from dunnage.planning.plan import PLAN_FILE, Plan

    if (path / PLAN_FILE).is_file():
        plan: FleetPlan | Plan = FleetPlan.read(path) if is_fleet_plan(path) else Plan.read(path)
        return plan.to_dict(), plan.summary()
    from dunnage.auditing.audit import AUDIT_FILE, Audit
    from dunnage.release import Release, describe_release
    from dunnage.settle import SETTLEMENT_FILE
    from dunnage.showing import release_text

    if (path / AUDIT_FILE).is_file():
        found = Audit.read(path)
        return found.to_dict(), found.summary()

    if (path / SETTLEMENT_FILE).is_file():
        from dunnage.settle.fleets import read_settlement, settlement_text

        if (settled := read_settlement(path)) is not None:
            return settled, f"{settlement_text(settled)}\nPrivate     it tells of true trips; keep it to yourself"
        raise ParameterError(f"{path} is a settlement, private to its owner. Read its {SETTLEMENT_FILE} and loads.csv.")

    release = Release.read(path)
    return dict(describe_release(release)), release_text(release)


def _shown(path: Path, devices: int) -> tuple[dict[str, Any], str]:
    if path.is_dir():
        return _shown_folder(path)
    if not path.exists():
        raise ParameterError(f"{path} does not exist. Give a release, a plan, a policy (.toml) or a ledger (.sqlite).")
    if path.suffix == ".json":
        return shown_task(path, devices)
    if path.suffix in (".jsonl", ".bin"):
        return shown_reports(path)
    if path.suffix == ".toml" and is_device_policy(path):
        return shown_device_policy(path, devices)
    if path.suffix == ".toml":
        from dunnage.policy import Policy
        from dunnage.publishing import promise
        from dunnage.showing import policy_text

        policy = Policy.read(path)
        text = policy_text(policy)
        described = {"dataset": policy.dataset, "attributes": policy.schema.describe(), "digest": policy.digest()}
        return {**described, "promise": promise(policy).to_dict()}, text
    if path.suffix == ".sqlite":
        from dunnage.ledger import Ledger

        with Ledger.open_existing(path) as ledger:
            return ledger.to_dict(), ledger.summary()
    if path.name.endswith(".key.parquet"):
        raise ParameterError(f"{path} is a key. It is private and never shown. Show the release folder beside it.")
    raise ParameterError(
        f"{path} is neither a release, a plan, a policy (.toml), a task (.json), a report file (.jsonl, .bin) nor a "
        "ledger (.sqlite). Give one of these."
    )
