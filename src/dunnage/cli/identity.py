# SPDX-License-Identifier: Apache-2.0
"""dunnage identity: records of who is who, which only two people together can open."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from dunnage.cli import shared
from dunnage.cli.devices import AliasColumn
from dunnage.cli.shared import print_result
from dunnage.errors import OutputError, ParameterError

if TYPE_CHECKING:
    from dunnage.collecting.vault import Keep, Share

identity_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Keep identity records that only two people together can open.",
    epilog="Example: dunnage identity create vault --custodian anna --custodian ben --shares shares",
)

VaultArgument = Annotated[Path, Argument(help="Vault folder; private.")]
Custodians = Annotated[list[str], Option("--custodian", help="Name of a custodian; give two or more.")]
SharesFolder = Annotated[
    Path, Option("--shares", help="Folder to write a share for each custodian to. Give each away, and delete it here.")
]
ShareFiles = Annotated[list[Path], Option("--share", help="Share file of a custodian; give those of two people.")]
Reason = Annotated[str, Option(help="Why; it is written to the log.")]


def _keeping(folder: Path, custodians: list[str]) -> tuple[Keep, list[Path]]:
    """Return what writes the shares of custodians, and where; refuse before anything is changed."""
    if not all(name.replace("-", "").replace("_", "").isalnum() for name in custodians):
        raise ParameterError("custodians are named by letters, digits, - and _, because share files are named by them.")
    if not folder.is_dir():
        raise OutputError(f"the folder {folder} does not exist. Create it, where only you can read it.")
    paths = [folder / f"{name}.share" for name in custodians]
    if (taken := next((path for path in paths if path.exists()), None)) is not None:
        raise OutputError.taken(taken)

    def keep(shares: list[Share]) -> None:
        for path, share in zip(paths, shares, strict=True):
            share.write(path)

    return keep, paths


def _shared(vault: Path, paths: list[Path], as_json: bool, what: str) -> None:
    lines = [f"{what:<9} {vault} (private)"]
    lines += [f"Share     {path}: give it to {path.stem}, and delete it here" for path in paths]
    print_result({"vault": str(vault), "shares": [str(path) for path in paths]}, "\n".join(lines), as_json)


@identity_app.command("create")
def identity_create(
    vault: VaultArgument, custodian: Custodians, shares: SharesFolder, as_json: shared.JsonFlag = False
) -> None:
    """Make an empty vault, and a share of its key for each custodian. Any two of them can open records.

    Example: dunnage identity create vault --custodian anna --custodian ben --custodian chen --shares shares
    """
    from dunnage.collecting.vault import Vault

    keep, paths = _keeping(shares, custodian)
    Vault.create(vault, custodian, keep)
    _shared(vault, paths, as_json, "Vault")


@identity_app.command("seal")
def identity_seal(
    vault: VaultArgument,
    records: Annotated[Path, Argument(help="CSV file of identity records, one row for each vehicle.")],
    alias_column: AliasColumn = "vehicle",
    as_json: shared.JsonFlag = False,
) -> None:
    """Seal identity records, each under a key of its own. This takes no share, and cannot open anything.

    Example: dunnage identity seal vault vehicles.csv
    """
    from dunnage.collecting.vault import Vault

    num = Vault.open(vault).seal(records, alias=alias_column)
    text = f"Sealed    {num} records in {vault}. Delete {records}: it is readable"
    print_result({"vault": str(vault), "records": num}, text, as_json)


@identity_app.command("open")
def identity_open(
    vault: VaultArgument,
    share: ShareFiles,
    reason: Reason,
    out: Annotated[Path, Option("-o", "--out", help="CSV file to write; private.")],
    vehicle: Annotated[list[str], Option(help="Alias of a vehicle whose record to open; may be given again.")],
    alias_column: AliasColumn = "vehicle",
    as_json: shared.JsonFlag = False,
) -> None:
    """Open the records of some vehicles with the shares of two people. The log says who did, when and why.

    Example: dunnage identity open vault --share anna.share --share ben.share --vehicle 17 --reason "claim 44" -o 17.csv
    """
    from dunnage.collecting.files import check_new_file
    from dunnage.collecting.identity import write_opened
    from dunnage.collecting.vault import Share, Vault

    target = check_new_file(out, force=False)
    opened = Vault.open(vault).reveal(vehicle, [Share.read(path) for path in share], reason=reason)
    write_opened(target, list(opened.items()), alias_column)
    text = f"Opened    {out}: {len(opened)} records (private); noted in the log of {vault}"
    print_result({"out": str(out), "records": len(opened)}, text, as_json)


@identity_app.command("erase")
def identity_erase(
    vault: VaultArgument,
    vehicle: Annotated[str, Option(help="Alias of the vehicle to erase.")],
    reason: Reason,
    as_json: shared.JsonFlag = False,
) -> None:
    """Delete the key of a vehicle's record: nobody can open it any more, wherever copies of the record lie.

    Example: dunnage identity erase vault --vehicle 17 --reason "sold"
    """
    from dunnage.collecting.vault import Vault

    Vault.open(vault).erase(vehicle, reason=reason)
    text = f"Erased    the key of one record in {vault}. Copies of keys.json still have it: erase it there too"
    print_result({"vault": str(vault), "erased": 1}, text, as_json)


@identity_app.command("rotate")
def identity_rotate(
    vault: VaultArgument,
    share: ShareFiles,
    custodian: Custodians,
    shares: SharesFolder,
    as_json: shared.JsonFlag = False,
) -> None:
    """Make a new platform key with new shares, for example when a custodian leaves. Records stay as they are.

    Example: dunnage identity rotate vault --share a.share --share b.share --custodian anna --custodian eva --shares new
    """
    from dunnage.collecting.vault import Share, Vault

    keep, paths = _keeping(shares, custodian)
    Vault.open(vault).rotate([Share.read(path) for path in share], custodian, keep)
    _shared(vault, paths, as_json, "Rotated")


@identity_app.command("log")
def identity_log(vault: VaultArgument, as_json: shared.JsonFlag = False) -> None:
    """Show the log of a vault, after checking that nobody changed it: who opened what, when and why.

    Example: dunnage identity log vault
    """
    from dunnage.collecting.vault import Vault

    opened = Vault.open(vault)
    entries = opened.log()
    lines = [f"Vault     {vault}: {len(opened.vehicles)} records; custodians {', '.join(opened.custodians)}"]
    for entry in entries:
        people, vehicles = entry.get("by") or [], entry.get("vehicles") or []
        facts = [f"by {' and '.join(people)}"] if people else []  # type: ignore[arg-type]
        facts += [f"{len(vehicles)} vehicles"] if vehicles else []  # type: ignore[arg-type]
        facts += [str(entry["reason"])] if "reason" in entry else []
        lines.append(f"{entry['at']}  {entry['what']:<8} {', '.join(facts)}".rstrip())
    print_result({"vault": str(vault), "records": len(opened.vehicles), "log": entries}, "\n".join(lines), as_json)
