# SPDX-License-Identifier: Apache-2.0
"""dunnage device, estimate and alarms; dunnage identity: who is who; dunnage serve: the collector."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

import dunnage as dn
from dunnage.cli import shared
from dunnage.cli.shared import DEFAULT_DEVICES, OptInt, OptPath, OptText, print_result, print_text, progress
from dunnage.errors import OutputError, ParameterError
from dunnage.exact import nearest_float, share

if TYPE_CHECKING:
    from dunnage.collecting.vault import Keep, Share
    from dunnage.devices.task import FileColumns, Task
    from dunnage.release import Release

device_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Make tasks and reports for devices; seal identity records.",
    epilog="Example: dunnage device task fleet.toml -o task.json",
)

TaskOption = Annotated[Path, Option("--task", help="Task file that dunnage device task wrote.")]
VehicleColumn = Annotated[OptText, Option(help="Column with the name of the vehicle. Default: as in the policy.")]
TimeColumn = Annotated[
    OptText, Option(help="Column with the time, in UTC unless it has a zone or an offset. Default: as in the policy.")
]
PlaceColumns = Annotated[
    OptText, Option(help="Columns with longitude and latitude, separated by a comma. Default: as in the policy.")
]
MaxAge = Annotated[
    OptInt, Option(help="Maximum age of a row, in minutes, at the moment of its slot. Default: the length of a slot.")
]
FirstDay = Annotated[
    OptText,
    Option("--from", help="First day to report, such as 2026-10-14. Default: that of the task, if it has days."),
]
LastDay = Annotated[OptText, Option("--to", help="Last day to report.")]
WalletOption = Annotated[
    OptPath, Option(help="Tokens of the vehicle, if the collector takes reports without a sender; private.")
]
KeysOption = Annotated[Path, Option("--keys", help="Key ring file that dunnage device keys wrote.")]
AliasColumn = Annotated[str, Option(help="Column with the alias of the vehicle. It stays readable.")]

MAX_ROWS = 10  # estimates printed for each quantity


@device_app.command("task", short_help="Write the task for devices and show what it promises.")
def device_task(
    policy: Annotated[Path, Argument(help="Policy file, for devices.")],
    out: Annotated[Path, Option("-o", "--out", help="Task file to write (.json).")],
    devices: Annotated[int, Option(min=1, help="Number of vehicles to predict errors for.")] = DEFAULT_DEVICES,
    force: shared.ForceFlag = False,
    as_json: shared.JsonFlag = False,
) -> None:
    """Write the task that devices and platform agree on, and show what its reports promise.

    Example: dunnage device task fleet.toml -o task.json
    """
    from dunnage.collecting.tasks import read_task
    from dunnage.devices.client import check_task
    from dunnage.folders import new_file
    from dunnage.showing.text import predictions

    if out.suffix != ".json":
        raise OutputError(f"the task file must end in .json. Got {out}.")
    if out.exists() and not force:
        raise OutputError.taken(out)
    task = read_task(policy)
    statements = check_task(task).statements()
    hints = predictions(task, devices)
    with new_file(out) as sink:
        sink.write(task.to_json().encode())
    result = {"task": str(out), "digest": task.digest, "losses": statements, "predicted": hints}
    lines = [f"Task      {out}", f"Digest    {task.digest}", *(f"Promises  {text}" for text in statements)]
    lines += [f"Predicts  {text}" for text in hints]
    lines.append(f"See also  dunnage show {out} --devices {devices}")
    print_result(result, "\n".join(lines), as_json)


def _columns(task: Task, vehicle: str | None, time: str | None, places: str | None) -> FileColumns:
    names = None if places is None else tuple(name.strip() for name in places.split(","))
    given = {"vehicle": vehicle, "time": time, "places": names}
    return replace(task.file_columns, **{key: value for key, value in given.items() if value is not None})  # type: ignore[arg-type]


@device_app.command("perturb")
def device_perturb(
    data: Annotated[
        Path, Argument(help="CSV, Parquet or Excel file with the rows of the vehicle, or a folder of such files.")
    ],
    task: TaskOption,
    allowance: Annotated[Path, Option(help="Allowance file of the vehicle; private.")],
    out: Annotated[Path, Option("-o", "--out", help="Report file to write (.jsonl or .bin).")],
    vehicle: Annotated[OptText, Option(help="Name of the vehicle, if the file has several.")] = None,
    tier: Annotated[OptText, Option(help="Public tier to enrol the vehicle in.")] = None,
    enrol: Annotated[bool, Option("--enrol", help="Start the allowance of a new vehicle.")] = False,
    adopt: Annotated[
        bool,
        Option("--adopt", help="Switch to another task, or to a new name of the vehicle. What was spent stays spent."),
    ] = False,
    now: Annotated[OptText, Option(help="Report what is due at this time (or: now).")] = None,
    first: FirstDay = None,
    last: LastDay = None,
    accept_clock: Annotated[
        bool, Option("--accept-clock", help="Confirm a time before the last report, or more than 400 days after it.")
    ] = False,
    cap: Annotated[
        OptText, Option(help="Owner's limit: epsilon of a day that no task may exceed (or: none). Without one: 10.")
    ] = None,
    counter: Annotated[
        OptPath, Option(help="Second counter, on another disk: finds an older copy of the whole folder.")
    ] = None,
    received: Annotated[
        OptPath, Option(help="Reports that the collector has of this vehicle: finds an older copy of the allowance.")
    ] = None,
    wallet: WalletOption = None,
    vehicle_column: VehicleColumn = None,
    time_column: TimeColumn = None,
    place_columns: PlaceColumns = None,
    max_age: MaxAge = None,
    force: shared.ForceFlag = False,
    as_json: shared.JsonFlag = False,
) -> None:
    """Make the reports of one vehicle: one for each purpose and slot, at --now or on the days --from to --to.

    A second run writes the same bytes, unless a run has since written later days.

    Example: dunnage device perturb truck.csv --task task.json --allowance truck.own --now now -o truck.jsonl
    """
    from dunnage.collecting.files import check_not_input, read_clock, read_task_file

    check_not_input(out, [task, *([] if received is None else [received])])
    agreed = read_task_file(task)
    with progress() as tell:
        tell("perturbing")
        done = dn.perturb(
            data,
            agreed,
            allowance,
            out,
            vehicle=vehicle,
            tier=tier,
            enrol=enrol,
            adopt=adopt,
            now=None if now is None else read_clock(now),
            days=shared.days_of(first, last),
            accept_clock=accept_clock,
            cap=cap,
            counter=counter,
            received=received,
            wallet=wallet,
            columns=_columns(agreed, vehicle_column, time_column, place_columns),
            max_age=max_age,
            force=force,
        )
    for line in done.warnings:
        print_text(f"WARNING: {data}: {line}", err=True)
    print_result({"out": str(out), **done.to_dict()}, f"{done.summary()}\nWritten   {out}", as_json)


@device_app.command("send")
def device_send(
    collector: Annotated[str, Argument(help="Address of the collector, such as https://collector.example.org.")],
    task: TaskOption,
    allowance: Annotated[Path, Option(help="Allowance file of the vehicle; private.")],
    code: Annotated[
        OptText, Option(help="One-time code to enrol with. The token is then kept beside the file.")
    ] = None,
    wallet: WalletOption = None,
    as_json: shared.JsonFlag = False,
) -> None:
    """Send the reports that an allowance holds to a collector. Nothing is spent; sending again is free.

    It tries for some minutes. The exit code is 1 if reports are left to send. With --wallet it first fetches the tokens
    of today and tomorrow, which device perturb --wallet needs, and then sends reports without a name.

    Example: dunnage device send https://collector.example.org --task task.json --allowance truck.own
    """
    from dunnage.collecting.files import read_task_file
    from dunnage.devices.sending import Collector, send_stored
    from dunnage.devices.tokens import Wallet

    agreed = read_task_file(task)
    with progress() as tell, dn.Allowance.open(allowance, agreed) as account:
        tell("sending")
        tokens = None if wallet is None else Wallet(wallet, agreed)
        done = send_stored(account, Collector(collector, agreed), code=code, wallet=tokens)
    lines = [f"Sent      {done.num_sent} reports are stored now; the collector had {done.num_known} before"]
    lines += [f"Refused   {num} as {kind}" for kind, num in sorted(done.refused.items())]
    lines += [f"Waiting   {done.num_waiting} reports could not be sent. Try again later"] if done.num_waiting else []
    print_result(done.to_dict(), "\n".join(lines), as_json)
    if done.num_waiting:
        raise typer.Exit(1)


@device_app.command("simulate", short_help="Make the reports of every vehicle in a file.")
def device_simulate(
    data: Annotated[
        Path, Argument(help="CSV, Parquet or Excel file with the rows of many vehicles, or a folder of such files.")
    ],
    task: TaskOption,
    out: Annotated[
        Path, Option("-o", "--out", help="Report file to write (.jsonl or .bin); with --tally, a tally file (.json).")
    ],
    tiers_column: Annotated[
        OptText, Option(help="Public column of tiers. Without it, tiers are chosen at random.")
    ] = None,
    seed: Annotated[int | None, Option(min=0, help="Random seed of tiers and slots. Noise never repeats.")] = None,
    every_row: Annotated[bool, Option("--every-row", help="Make every row a slot, and show what that costs.")] = False,
    tally: Annotated[
        bool, Option("--tally", help="Write tallies instead of reports; for many millions of rows.")
    ] = False,
    first: FirstDay = None,
    last: LastDay = None,
    vehicle_column: VehicleColumn = None,
    time_column: TimeColumn = None,
    place_columns: PlaceColumns = None,
    max_age: MaxAge = None,
    force: shared.ForceFlag = False,
    as_json: shared.JsonFlag = False,
) -> None:
    """Make the reports of every vehicle in a file, as its device would.

    Example: dunnage device simulate positions.parquet --task task.json -o reports.jsonl
    """
    from dunnage.collecting.files import read_task_file

    if tiers_column is not None and seed is not None and every_row:
        raise ParameterError("--seed has no effect with --tiers-column and --every-row. Leave it out.")
    agreed = read_task_file(task)
    with progress() as tell:
        tell("reading")
        done = dn.simulate(
            data,
            agreed,
            out,
            columns=_columns(agreed, vehicle_column, time_column, place_columns),
            tiers_column=tiers_column,
            seed=seed,
            every_row=every_row,
            tally=tally,
            days=shared.days_of(first, last),
            max_age=max_age,
            force=force,
            progress=tell,
        )
    print_result({"out": str(out), **done.to_dict()}, f"{done.summary()}\nWritten   {out}", as_json)


def estimate(
    reports: Annotated[
        list[Path], Argument(help="Report files (.jsonl, .bin, .parquet), tally files (.json), or folders of them.")
    ],
    task: TaskOption,
    out: Annotated[Path, Option("-o", "--out", help="Release folder to create.")],
    engine: shared.EngineOption = None,
    confidence: Annotated[str, Option(help="Confidence of the intervals.")] = "0.95",
    combine: Annotated[str, Option(help="How to combine tiers: auto | precision | stratify.")] = "auto",
    allow_noise: Annotated[bool, Option("--allow-noise", help="Also release a map that is mostly noise.")] = False,
    precision: Annotated[
        OptText,
        Option(help="Wanted half width of intervals, 5% of the range | speed=1: says what it takes. Default: 5%."),
    ] = None,
    first: FirstDay = None,
    last: LastDay = None,
    received: Annotated[
        OptText, Option(help="When the reports came in (or: now). Leaves out those of slots that were not due then.")
    ] = None,
    robust: Annotated[
        bool,
        Option(
            "--robust",
            help="Also test whether honest devices sent the reports of maps, and weigh unlikely ones down.",
        ),
    ] = False,
    by: Annotated[
        OptText, Option(help="Also estimate by day | hour | tier | file, into a CSV file beside the release.")
    ] = None,
    sign: shared.SignOption = None,
    force: shared.ForceFlag = False,
    as_json: shared.JsonFlag = False,
) -> None:
    """Estimate means, maps and paths from reports, with intervals and a certificate.

    Example: dunnage estimate reports.jsonl --task task.json -o estimates
    """
    from dunnage.collecting.estimate import write_estimates
    from dunnage.collecting.files import read_clock, read_days, read_task_file, report_sources
    from dunnage.collecting.forged import bits_warnings, robust_maps
    from dunnage.collecting.precision import Precision, more_lines, needs_of_release
    from dunnage.collecting.views import BY, view
    from dunnage.folders import check_new_folder
    from dunnage.model.certificate import load_private_key
    from dunnage.release import CERTIFICATE_FILE, describe_release
    from dunnage.showing.estimates import estimates_page, geojson, has_maps
    from dunnage.showing.text import headlines

    check_new_folder(out, marker=CERTIFICATE_FILE, force=force)
    if by is not None and by not in BY:
        raise ParameterError(f"--by takes {', '.join(BY)}. Got {by}.")
    if engine == "spark" and (robust or by):
        raise ParameterError("--by and --robust read the files here. Leave --engine out.")
    endings = ("html", "geojson", *([] if by is None else [f"by-{by}.csv"]))
    page, cells, *table = beside = [out.resolve().with_name(f"{out.resolve().name}.{end}") for end in endings]
    if not force and (taken := next((path for path in beside if os.path.lexists(path)), None)) is not None:
        raise OutputError.taken(taken)
    if sign is not None:
        load_private_key(sign)  # fail before the reports are read, which may take long
    agreed, wanted = read_task_file(task), Precision.read(precision)
    wanted.check(agreed)
    if (robust or by) and any(path.suffix == ".json" for path in reports):
        raise ParameterError("--robust and --by look at single reports, and tallies have none. Give report files.")
    with progress() as tell:
        came = None if received is None else read_clock(received)
        stated = shared.days_of(first, last)
        collected = dn.collect(reports, agreed, days=stated, received=came, engine=engine, progress=tell)
        for line in collected.lines():
            print_text(f"WARNING: left out: {line}", err=True)
        for warning in collected.warnings:
            print_text(f"WARNING: {warning}", err=True)
        level = nearest_float(share(confidence, what="confidence"))
        for text in bits_warnings(agreed, collected.tallies):
            print_text(f"WARNING: {text}", err=True)
        sources = report_sources(reports) if robust or by else []
        span = None if first is None and last is None else read_days(shared.days_of(first, last), agreed)
        maps = robust_maps(agreed, sources, days=span, received=came, confidence=level) if robust else {}
        tell("estimating")
        release = dn.estimate(
            collected.tallies,
            agreed,
            confidence=level,
            combine=combine,
            allow_noise=allow_noise,
            left_out=collected.left_out,
        )
        write_estimates(release, out, sign=sign, force=force)
        shown = None
        if by is not None:
            tell(f"estimating by {by}")
            shown = view(agreed, sources, by, days=span, received=came, confidence=level, combine=combine)
            table[0].write_text(shown.to_csv(), encoding="utf-8")
        tell("drawing the page")
        page.write_text(estimates_page(dn.Release.read(out)), encoding="utf-8")
        if has_maps(release):
            cells.write_text(geojson(release), encoding="utf-8")
    cautions, needs = release.owner.cautions(release), needs_of_release(release, agreed, wanted)
    lines = [*(f"Caution   {text}" for text in cautions), f"Released  {out}"]
    lines.append(f"Page      {page.name} beside it" + (f"; {cells.name}" if has_maps(release) else ""))
    lines.append(f"Reports   {collected.num_reports:,} counted")
    lines += [f"{title:<9} {text}" for title, text in headlines(release.certificate)]
    if shown is not None:
        lines.append(f"By {by:<6} {table[0].name} beside it: {shown.num_groups} groups")
        lines += [f"          {text}" for text in shown.sentences()]
    lines += [f"Forged    {text}" for made in maps.values() for text in made.lines()]
    lines += [*_rows_text(release), *(f"Precision {text}" for text in more_lines(needs, agreed, collected.num_days))]
    result = {"release": str(out), **collected.to_dict(), **describe_release(release)}
    result |= {"cautions": list(cautions), "precision": [need.to_dict() for need in needs]}
    result |= {} if shown is None else {"by": {"file": str(table[0]), "groups": shown.num_groups, "noise": shown.noise}}
    result |= {"robust": {name: made.to_dict() for name, made in maps.items()}} if robust else {}
    print_result(result, "\n".join(lines), as_json)


def alarms(
    reports: Annotated[list[Path], Argument(help="Report files (.jsonl or .bin), of one day or several.")],
    task: TaskOption,
    when: Annotated[list[str], Option(help="Rule, such as: share of temperature above 8 > 5%. May be given again.")],
    sure: Annotated[str, Option(help="How sure: 1 minus the chance of any false alarm in all looks.")] = "99%",
    looks: Annotated[int, Option(min=1, help="Number of days that will be looked at in all, such as a year.")] = 365,
    first: FirstDay = None,
    last: LastDay = None,
    received: Annotated[
        OptText, Option(help="When the reports came in (or: now). Leaves out those of slots that were not due then.")
    ] = None,
    as_json: shared.JsonFlag = False,
) -> None:
    """Look at each day of the reports, and raise an alarm where a figure of the fleet is surely beyond its limit.

    Rules: mean of speed > 80 | share of temperature above 8 > 5% | readings of speed < 90% | cell 17 of places > 5%

    Example: dunnage alarms reports.jsonl --task task.json --when "share of temperature above 8 > 5%"
    """
    from dunnage.collecting.alarms import look_at
    from dunnage.collecting.files import read_clock, read_days, read_task_file, report_sources

    agreed, stated = read_task_file(task), shared.days_of(first, last)
    if any(path.suffix == ".json" for path in reports):
        raise ParameterError("alarms look at days, and tallies have none. Give report files.")
    with progress() as tell:
        tell("reading")
        done = look_at(
            agreed,
            report_sources(reports),
            when,
            sure=nearest_float(share(sure, what="sure")),
            num_looks=looks,
            days=None if stated is None else read_days(stated, agreed),
            received=None if received is None else read_clock(received),
        )
    lines = [f"{'ALARM' if look.alarm else 'quiet':<9} {look.sentence()}" for look in done.looks]
    print_result(done.to_dict(), "\n".join([*lines, f"Promises  {done.promise()}"]), as_json)


def _rows_text(release: Release) -> list[str]:
    groups: dict[str, list[Any]] = {}
    for row in release.data.to_pylist():
        groups.setdefault(f"{row['purpose']}: {row['quantity']}", []).append(row)
    lines = []
    figures = ("value", "lower", "upper")
    for title, rows in groups.items():
        ranked = rows if len(rows) <= MAX_ROWS else sorted(rows, key=lambda row: -(row["value"] or 0))
        lines.append(title + (f" (top {MAX_ROWS} of {len(rows):,})" if len(rows) > MAX_ROWS else ""))
        for row in ranked[:MAX_ROWS]:
            cells = [row[key] for key in row if key not in ("quantity", "purpose", "unit", *figures)]
            texts = (
                f"{cell:.4f}" if isinstance(cell, float) else str(cell) for cell in cells if cell not in (None, "")
            )
            # The cell after the last one has no place.
            nowhere = row.get("cell") is not None and row["lon"] is None
            name = "outside or missing" if nowhere else ", ".join(texts)
            value, lower, upper = ("-" if row[key] is None else f"{row[key]:.4g}" for key in figures)
            lines.append(f"  {name:<28} {value:>9}  [{lower}, {upper}] {row['unit']}".rstrip())
    return lines


@device_app.command("keys")
def device_keys(
    ring: Annotated[Path, Argument(help="Key ring file to create, renew or show; private.")],
    renew: Annotated[bool, Option("--renew", help="Add a new active key. Old keys still open their records.")] = False,
    drop: Annotated[OptText, Option(help="Drop a retired key. Nobody can open its records after that.")] = None,
    algorithm: Annotated[OptText, Option(help="AES-256-GCM (default) | SM4-GCM.")] = None,
    as_json: shared.JsonFlag = False,
) -> None:
    """Create or renew a key ring. Without options, list the keys of an existing ring, never the keys themselves.

    Example: dunnage device keys fleet.keys
    """
    if renew and drop is not None:
        raise ParameterError("--renew and --drop are two separate steps. Renew, seal again, then drop.")
    from dunnage.collecting.identity import KeyRing, locked_ring
    from dunnage.showing.text import ring_keys, ring_lines

    if not ring.exists():
        if renew or drop is not None:
            raise ParameterError(f"there is no key ring at {ring}. Make one first: dunnage device keys {ring}.")
        keys = KeyRing.new(algorithm or "AES-256-GCM")
        with locked_ring(ring):
            keys.write(ring)
    elif algorithm is not None and not renew:
        raise ParameterError(f"{ring} already exists. Use --algorithm together with --renew.")
    elif renew or drop is not None:
        with locked_ring(ring):
            before = KeyRing.read(ring)
            keys = before.renewed(algorithm) if renew else before.without(str(drop))
            keys.write(ring, force=True)
    else:
        keys = KeyRing.read(ring)
    listed = ring_keys(keys)
    lines = [f"Key ring  {ring} (private; keep a copy: nothing opens without it)", *ring_lines(listed)]
    print_result({"ring": str(ring), "keys": listed}, "\n".join(lines), as_json)


@device_app.command("seal")
def device_seal(
    records: Annotated[Path, Argument(help="CSV file of identity records, or sealed lines (.jsonl) to seal again.")],
    keys: KeysOption,
    out: Annotated[Path, Option("-o", "--out", help="Sealed lines to write (.jsonl).")],
    alias_column: AliasColumn = "vehicle",
    after: Annotated[
        OptPath, Option(help="Sealed lines that these replace: their version goes on. Default: the file replaced.")
    ] = None,
    force: shared.ForceFlag = False,
    as_json: shared.JsonFlag = False,
) -> None:
    """Seal identity records with the active key of the ring. Sealed lines (.jsonl) are sealed again with it.

    Example: dunnage device seal vehicles.csv --keys fleet.keys -o vehicles.jsonl
    """
    from dunnage.collecting.files import check_not_input
    from dunnage.collecting.identity import KeyRing, rotate_file, seal_file

    check_not_input(out, [keys])
    if out.suffix != ".jsonl":
        raise OutputError(f"the file of sealed lines must end in .jsonl. Got {out}.")
    ring = KeyRing.read(keys)
    if records.suffix == ".jsonl":
        file = rotate_file(records, ring, out, force=force)
    else:
        file = seal_file(records, ring, out, alias=alias_column, after=after, force=force)
    num, key = len(file.records), ring.active.key_id
    text = f"Sealed    {out}: {num} records, version {file.version}, with key {key}; aliases stay readable"
    print_result({"out": str(out), "records": num, "key": key, "version": file.version}, text, as_json)


@device_app.command("open")
def device_open(
    sealed: Annotated[Path, Argument(help="Sealed lines (.jsonl).")],
    keys: KeysOption,
    out: Annotated[Path, Option("-o", "--out", help="CSV file to write; private.")],
    alias_column: AliasColumn = "vehicle",
    at_least: Annotated[int, Option(min=0, help="Refuse a file of an earlier version than this.")] = 0,
    force: shared.ForceFlag = False,
    as_json: shared.JsonFlag = False,
) -> None:
    """Open sealed identity records into a private CSV file.

    Example: dunnage device open vehicles.jsonl --keys fleet.keys -o vehicles.csv
    """
    from dunnage.collecting.files import check_not_input
    from dunnage.collecting.identity import NO_TAG, KeyRing, open_file

    check_not_input(out, [keys])
    if out.suffix != ".csv":
        raise OutputError(f"the file to write must end in .csv. Got {out}.")
    file = open_file(sealed, KeyRing.read(keys), out, alias=alias_column, at_least=at_least, force=force)
    if not file.version:
        print_text(f"WARNING: {sealed} has no versions: {NO_TAG}", err=True)
    text = f"Opened    {out}: {len(file.records)} records, version {file.version} (private)"
    print_result({"out": str(out), "records": len(file.records), "version": file.version}, text, as_json)


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
        for path, own in zip(paths, shares, strict=True):
            own.write(path)

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


def serve(
    data: Annotated[OptText, Option(help="Folder for the store and the releases. Default: collector-data.")] = None,
    database: Annotated[OptText, Option(help="PostgreSQL address, in place of SQLite files in the folder.")] = None,
    listen: Annotated[OptText, Option(help="Address and port. Default: 127.0.0.1:8443.")] = None,
    tls_in_front: Annotated[bool, Option("--tls-in-front", help="A proxy in front of it ends TLS.")] = False,
    sign: shared.SignOption = None,
    config: Annotated[OptPath, Option(help="TOML file with settings; flags and DUNNAGE_SERVE_... come first.")] = None,
    invite: Annotated[OptText, Option(help="Give a person or program a role, print the token, and exit.")] = None,
    role: Annotated[
        OptText,
        Option(
            help="With --invite: operator | analyst | officer | monitor; in the studio: owner | officer | planner | "
            "auditor | admin."
        ),
    ] = None,
    studio: Annotated[bool, Option("--studio", help="Serve the studio too, for people with its roles.")] = False,
    check: Annotated[bool, Option("--check", help="Check settings and store, and exit.")] = False,
    as_json: shared.JsonFlag = False,
) -> None:
    """Run the collector: take in reports of devices, close periods, make estimates.

    Without options it keeps everything in a folder and listens on this machine only. It stops on SIGTERM, after
    everything it took in is stored.

    Example: dunnage serve --data collector-data
    """
    try:
        import msgspec  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise ParameterError("dunnage serve needs more packages. Install dunnage[serve].") from None
    from dunnage.serving.service import Service, make_app, run, shared_studio
    from dunnage.serving.settings import read_settings
    from dunnage.serving.web import OPERATOR

    flags = {"data": data, "database": database, "listen": listen, "tls_in_front": tls_in_front or None}
    settings = read_settings({**flags, "sign": None if sign is None else str(sign)}, config)
    if (invite is None) != (role is None):
        raise ParameterError("--invite and --role belong together. Give both.")
    if settings.sign is not None:
        from dunnage.model.certificate import load_private_key

        load_private_key(settings.sign)  # fail now, not at the first closing
    if invite is not None and role is not None:
        service = Service(settings.model_copy(update={"listen": "127.0.0.1:0"}))
        token = service.invite(invite, role)
        service.collector.stop()
        print_result({"name": invite, "role": role, "token": token}, f"Token     {token} (shown once)", as_json)
        return
    service = Service(settings)
    routes = shared_studio(service).routes() if studio else ()
    make_app(service, routes)
    if check:
        service.collector.stop()
        facts = {"tasks": len(service.collector.tasks), "senders": len(service.senders), "people": len(service.people)}
        lines = [f"Ready     {settings.database or settings.data}, would listen on {settings.listen}"]
        lines.append(f"Has       {facts['tasks']} tasks, {facts['senders']} senders, {facts['people']} people")
        print_result(facts, "\n".join(lines), as_json)
        return
    own = Path(settings.data) / "operator.token"
    if not service.people:
        own.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        own.touch(mode=0o600)
        own.write_text(service.invite("first operator", OPERATOR))
        print_text(f"Operator  {own} has the token of the first operator (private)")
    if service.link:
        print_text(f"Pages     {service.link} (works once)")
    raise typer.Exit(run(service, routes))
