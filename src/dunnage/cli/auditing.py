# SPDX-License-Identifier: Apache-2.0
"""The command ``audit``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

import dunnage as dn
from dunnage.cli.shared import (
    ForceFlag,
    JsonFlag,
    KeyOption,
    OptFloat,
    OptInt,
    OptPath,
    OptText,
    PeriodOption,
    ReleaseArgument,
    ShuttleHour,
    print_result,
    progress,
)
from dunnage.errors import ParameterError

if TYPE_CHECKING:
    from dunnage.auditing.carriers import Fleet
    from dunnage.publication import Key
    from dunnage.tables.dataset import Dataset


def audit(
    release: ReleaseArgument,
    out: Annotated[Path, Option("-o", "--out", help="Audit folder to make; private unless --external.")],
    data: Annotated[OptPath, Argument(help="The private rows that were published.")] = None,
    policy: Annotated[OptPath, Option("--policy", help="Policy file.")] = None,
    plan: Annotated[OptPath, Option(help="Plan made on the release, of packages or shuttles.")] = None,
    city: Annotated[
        OptPath, Option("--city", help="Shuttles: city folder or GTFS feed the fleet was sized in.")
    ] = None,
    shuttle_hour: ShuttleHour = None,
    key: KeyOption = None,
    period: PeriodOption = None,
    known_within: Annotated[OptFloat, Option(help="Also attack with numbers known within this share: 0.05.")] = None,
    population: Annotated[OptPath, Option(help="Everyone the records were drawn from, under the same policy.")] = None,
    also: Annotated[list[Path] | None, Option(help="Another release of the same records; repeatable.")] = None,
    also_data: Annotated[
        list[Path] | None, Option(help="Its private rows, in the order of --also; by default DATA.")
    ] = None,
    also_policy: Annotated[
        list[Path] | None, Option(help="Its policy, in the order of --also; by default --policy.")
    ] = None,
    external: Annotated[
        bool, Option("--external", help="Only what release and plan tell anyone; takes no DATA.")
    ] = False,
    approved_by: Annotated[OptText, Option(help='Who approves the release, for the sign-off: "Name, role".')] = None,
    time_limit: Annotated[float, Option(min=0.1, help="Seconds to pack the true weights at most.")] = 10.0,
    force: ForceFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Audit a release: attacks against chance, errors against the truth, and with a plan what privacy cost. Private.

    Example: dunnage audit release parcels.csv --policy parcels.toml --plan plan -o audit
    """
    from dunnage.auditing.run import AUDIT_FILE, PAGE_FILE, SIGNOFF_FILE
    from dunnage.folders import check_new_folder
    from dunnage.showing.audit import write_audit

    if external and (data is not None or policy is not None):
        raise ParameterError("--external looks at release and plan alone. Got DATA or --policy. Leave them out.")
    check_new_folder(out, marker=AUDIT_FILE, force=force)
    with progress() as tell:
        tell("reading")
        place = None
        if city is not None and not external:
            if plan is None:
                raise ParameterError("--city goes with a plan of shuttles. Got no --plan. Give both, or neither.")
            place = dn.load_city(city)
        found = dn.audit(
            release,
            None if external else _audited_rows(release, data, policy, period),
            plan,
            key=None if external else _key(release, plan, key),
            city=place,
            shuttle_hour=shuttle_hour,
            population=None if external or population is None else _audited(release, population, policy, period),
            also=[] if external else _others(also, also_data or [], also_policy or [], data, policy),
            tolerance=known_within,
            external=external,
            approved_by=approved_by,
            seconds=time_limit,
            progress=tell,
        )
        write_audit(found, out, force=force)
    kept = "may be handed out" if external else "private"
    where = f"Audit       {out} ({kept}), see {PAGE_FILE}; {SIGNOFF_FILE} is one page to sign"
    print_result({"audit": str(out), **found.to_dict()}, f"{found.summary()}\n\n{where}", as_json)


def _key(release: Path, plan: Path | None, key: Path | None) -> Key | None:
    """Read the key: the one named, or, where a plan of packages cannot be applied without, the one beside."""
    from dunnage.planning.plan import is_fleet_plan
    from dunnage.publication import key_path

    if key is None and plan is not None and not is_fleet_plan(plan):
        key = key_path(release)
    return None if key is None else dn.Key.read(key)


def _audited_rows(release: Path, data: Path | None, policy: Path | None, period: str | None) -> Dataset | Fleet:
    """Load the rows that a release was made from, or those that devices reported from."""
    if data is not None and policy is not None and dn.Release.read(release).kind == "estimates":
        from dunnage.auditing.carriers import Fleet

        return Fleet.read(data, policy)
    return _audited(release, data, policy, period)


def _audited(release: Path, data: Path | None, policy: Path | None, period: str | None) -> Dataset:
    """Load the rows that a release was made from."""
    if data is None or policy is None:
        raise ParameterError(
            "an audit needs DATA and --policy. Give both, or see what anyone can tell with --external."
        )
    return dn.load(data, policy, period=period or dn.Release.read(release).certificate.period)


def _others(
    releases: list[Path] | None, data: list[Path], policies: list[Path], own_data: Path | None, own_policy: Path | None
) -> list[tuple[Path, Dataset]]:
    """Load the rows of other releases; what is not named is that of the audited one."""
    also = releases or []
    for name, given in (("--also-data", data), ("--also-policy", policies)):
        if len(given) not in (0, len(also)):
            raise ParameterError(f"{name} goes with --also. Got {len(given)} for {len(also)} releases. Give one each.")
    every_data: list[Path | None] = [*data] if data else [own_data] * len(also)
    every_policy: list[Path | None] = [*policies] if policies else [own_policy] * len(also)
    return [
        (path, _audited(path, rows, rules, None))
        for path, rows, rules in zip(also, every_data, every_policy, strict=True)
    ]


# --- The command ``advise``.


def advise(
    data: Annotated[Path, Argument(help="The private rows: CSV or Parquet.")],
    policy: Annotated[Path, Option("--policy", help="Policy to begin with; its mechanism may be blank.")],
    goal: Annotated[str, Option("--goal", help="trucks | shuttles | distortion | error: what privacy costs.")],
    out: Annotated[Path, Option("-o", "--out", help="Frontier folder to make; private.")],
    capacity: Annotated[list[str] | None, Option(help="Trucks: what one holds, 500kg or volume=9; repeatable.")] = None,
    by: Annotated[OptText, Option(help="Trucks: public column whose values never share one.")] = None,
    city: Annotated[OptPath, Option(help="Shuttles: city folder or GTFS feed.")] = None,
    period: Annotated[OptText, Option(help="Which period of the data.")] = None,
    max_cost: Annotated[OptText, Option(help="Most that privacy may cost: 5%. Default by goal.")] = None,
    max_risk: Annotated[OptText, Option(help="Most that an attacker may succeed with: 1/20.")] = None,
    on: Annotated[
        str, Option("--on", help="Measure on data | generated | auto: k-anonymous on data, DP on generated.")
    ] = "auto",
    size: Annotated[OptInt, Option(min=2, help="Records to generate, and to measure on at most.")] = None,
    draws: Annotated[OptInt, Option(min=2, help="Times each point is measured; 7, quick 4.")] = None,
    quick: Annotated[bool, Option("--quick", help="Fewer candidates and draws.")] = False,
    jobs: Annotated[int, Option(min=1, max=64, help="Processes that measure.")] = 2,
    force: ForceFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Sweep mechanisms and parameters, draw the frontier of cost against risk, and recommend a policy. Private.

    Nothing is published or spent. A run that was interrupted continues when it is started again.

    Example: dunnage advise parcels.csv --policy parcels.toml --goal trucks --capacity 500kg -o frontier
    """
    from dunnage.advising.advice import finish, publish_command
    from dunnage.advising.sweep import BasePolicy
    from dunnage.showing.frontier import frontier_page

    with progress() as tell:
        frontier = dn.advise(
            data,
            policy=policy,
            goal=goal,
            out=out,
            period=period,
            capacity=capacity or (),
            by=by,
            city=city,
            max_cost=max_cost,
            max_risk=max_risk,
            on=on,
            size=size,
            draws=draws,
            quick=quick,
            jobs=jobs,
            force=force,
            progress=tell,
        )
        frontier.write(out, page=frontier_page(frontier), force=force)
        finish(out)
    text = f"{frontier.summary()}\n\nFrontier in {out} (private)."
    if frontier.recommended is not None:
        onward = publish_command(BasePolicy.read(policy), out, data=str(data), period=period)
        chosen = "recommended" if frontier.meets_limit else "closest"
        text += f" To go on with the {chosen} policy:\n  {onward}"
    print_result({"frontier": str(out), **frontier.to_dict()}, text, as_json)


# --- The command ``prove``.


def prove(
    mechanisms: Annotated[
        list[str] | None,
        Argument(
            metavar="MECHANISM",
            help="Names as in a policy; all by default. The noise they draw from is checked with any.",
        ),
    ] = None,
    long: Annotated[bool, Option("--long", help="Larger domains and more parameters: about five minutes.")] = False,
    jobs: Annotated[int, Option(min=1, max=64, help="Processes to use.")] = 2,
    as_json: JsonFlag = False,
) -> None:
    """Check mechanisms themselves: what each claims, what it really gives away, and the verdict.

    Exit 1 if anything proved exceeds its bound, or a published form that is known to be wrong does not fail.

    Example: dunnage prove noisy-counts noisy-clusters
    """
    with progress() as tell:
        found = dn.prove(mechanisms or None, long=long, jobs=jobs, progress=tell)
    print_result(found.to_dict(), found.summary(), as_json)
    if not found.as_expected:
        raise typer.Exit(1)
