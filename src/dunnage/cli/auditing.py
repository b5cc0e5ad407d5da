# SPDX-License-Identifier: Apache-2.0
"""dunnage audit, advise, prove, export."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

import dunnage as dn
from dunnage.cli import shared
from dunnage.cli.shared import OptFloat, OptInt, OptPath, OptText, print_result, progress
from dunnage.errors import OutputError, ParameterError

if TYPE_CHECKING:
    from dunnage.auditing.carriers import Fleet
    from dunnage.tables.dataset import Dataset


def audit(
    release: shared.ReleaseArgument,
    out: Annotated[Path, Option("-o", "--out", help="Audit folder to create; private unless --external.")],
    data: Annotated[OptPath, Argument(help="The private rows that you published.")] = None,
    policy: Annotated[OptPath, Option("--policy", help="Policy file.")] = None,
    plan: Annotated[OptPath, Option(help="Plan made on the release, for packages or for shuttles.")] = None,
    city: Annotated[
        OptPath, Option("--city", help="Shuttles: the city folder or GTFS feed that the fleet was sized for.")
    ] = None,
    shuttle_hour: shared.ShuttleHour = None,
    key: shared.KeyOption = None,
    period: shared.PeriodOption = None,
    first: Annotated[
        OptText, Option("--from", help="Devices: first day of the reports, if the policy has no days.")
    ] = None,
    last: Annotated[OptText, Option("--to", help="Devices: last day of the reports.")] = None,
    known_within: Annotated[
        OptFloat, Option(help="Also attack with numbers known to within this share, such as 0.05.")
    ] = None,
    population: Annotated[OptPath, Option(help="Everyone the records come from, under the same policy.")] = None,
    also: Annotated[list[Path] | None, Option(help="Another release of the same records. Repeatable.")] = None,
    also_data: Annotated[
        list[Path] | None, Option(help="Private rows of each --also, in the same order. Default: DATA.")
    ] = None,
    also_policy: Annotated[
        list[Path] | None, Option(help="Policy of each --also, in the same order. Default: --policy.")
    ] = None,
    external: Annotated[
        bool, Option("--external", help="Only what anyone can learn from release and plan. Takes no DATA.")
    ] = False,
    approved_by: Annotated[OptText, Option(help='Who approves the release, for the sign-off: "Name, role".')] = None,
    time_limit: Annotated[float, Option(min=0.1, help="Maximum seconds for packing the true weights.")] = 10.0,
    house: shared.HouseOption = None,
    exception: shared.ExceptionOption = None,
    every: Annotated[bool, Option("--all", help="Print every finding, not only those that matter most.")] = False,
    force: shared.ForceFlag = False,
    as_json: shared.JsonFlag = False,
) -> None:
    """Audit a release: attacks compared with chance, errors compared with the truth, and the cost of privacy.

    The cost needs a plan. The audit is private.

    Example: dunnage audit release parcels.csv --policy parcels.toml --plan plan -o audit
    """
    from dunnage.auditing.run import AUDIT_FILE, PAGE_FILE, SIGNOFF_FILE
    from dunnage.folders import check_new_folder
    from dunnage.planning.plan import is_fleet_plan
    from dunnage.publication import key_path
    from dunnage.showing.audit import write_audit

    if external and (data is not None or policy is not None):
        raise ParameterError("--external uses the release and the plan alone. Leave out DATA and --policy.")
    check_new_folder(out, marker=AUDIT_FILE, force=force)
    with progress() as tell:
        tell("reading")
        for folder in (release, *(also or [])):
            shared.received(folder)
        # A plan for packages cannot be applied without the key; by default it lies beside the release.
        if key is None and plan is not None and not external and not is_fleet_plan(plan):
            key = key_path(release)
        place = None
        if city is not None and not external:
            if plan is None:
                raise ParameterError("--city needs a plan for shuttles. Add --plan, or leave out --city.")
            place = dn.load_city(city)
        result = dn.audit(
            release,
            None if external else _rows(release, data, policy, period, shared.days_of(first, last)),
            plan,
            key=dn.Key.read(key) if key is not None and not external else None,
            city=place,
            shuttle_hour=shuttle_hour,
            population=None if external or population is None else _audited(release, population, policy, period),
            also=[] if external else _others(also, also_data or [], also_policy or [], data, policy),
            tolerance=known_within,
            external=external,
            approved_by=approved_by,
            house=shared.house_of(house, (policy or release).parent),
            exception=exception,
            seconds=time_limit,
            progress=tell,
        )
        write_audit(result, out, force=force)
    access = "may be shared" if external else "private"
    where = f"Audit       {out} ({access}), see {PAGE_FILE}; {SIGNOFF_FILE} is one page to sign"
    print_result({"audit": str(out), **result.to_dict()}, f"{result.summary(every=every)}\n\n{where}", as_json)
    if result.clearance is not None and not result.clearance.may_leave:
        raise typer.Exit(1)


def _rows(
    release: Path, data: Path | None, policy: Path | None, period: str | None, days: tuple[str, str] | None
) -> Dataset | Fleet:
    """Load the rows that a release was made from, or that devices reported from."""
    if data is not None and policy is not None and dn.Release.read(release).kind == "estimates":
        from dunnage.auditing.carriers import Fleet

        return Fleet.read(data, policy, days=days)
    if days is not None:
        raise ParameterError("--from and --to are for reports of devices. Leave them out; --period names a period.")
    return _audited(release, data, policy, period)


def _audited(release: Path, data: Path | None, policy: Path | None, period: str | None) -> Dataset:
    if data is None or policy is None:
        raise ParameterError("an audit needs DATA and --policy. Give both, or see what anyone can learn: --external.")
    return dn.load(data, policy, period=period or dn.Release.read(release).certificate.period)


def _others(
    releases: list[Path] | None, data: list[Path], policies: list[Path], own_data: Path | None, own_policy: Path | None
) -> list[tuple[Path, Dataset]]:
    also = releases or []
    for name, given in (("--also-data", data), ("--also-policy", policies)):
        if len(given) not in (0, len(also)):
            raise ParameterError(f"{name} needs one value for each --also. Got {len(given)} for {len(also)} releases.")
    every_data: list[Path | None] = [*data] if data else [own_data] * len(also)
    every_policy: list[Path | None] = [*policies] if policies else [own_policy] * len(also)
    return [
        (path, _audited(path, rows, rules, None))
        for path, rows, rules in zip(also, every_data, every_policy, strict=True)
    ]


# --- The command ``advise``.


def advise(
    data: Annotated[Path, Argument(help="The private rows: CSV, Parquet or Excel.")],
    policy: Annotated[Path, Option("--policy", help="Policy to start from; its mechanism may be blank.")],
    goal: Annotated[str, Option("--goal", help="What privacy costs: trucks | shuttles | distortion | error.")],
    out: Annotated[Path, Option("-o", "--out", help="Frontier folder to create; private.")],
    capacity: Annotated[
        list[str] | None, Option(help="Trucks: capacity, such as 500kg or volume=9. Repeatable.")
    ] = None,
    by: Annotated[OptText, Option(help="Trucks: public column; different values never share a truck.")] = None,
    city: Annotated[OptPath, Option(help="Shuttles: city folder or GTFS feed.")] = None,
    period: Annotated[OptText, Option(help="Period of the data to use.")] = None,
    max_cost: Annotated[
        OptText, Option(help="Maximum cost of privacy, such as 5%. The default depends on the goal.")
    ] = None,
    max_risk: Annotated[OptText, Option(help="Maximum success rate of an attacker, such as 1/20.")] = None,
    on: Annotated[
        str,
        Option("--on", help="Measure on: data | generated | auto. auto: all rows for k-anonymity, generated for DP."),
    ] = "auto",
    size: Annotated[OptInt, Option(min=2, help="Number of records to generate, and maximum to measure on.")] = None,
    draws: Annotated[OptInt, Option(min=2, help="Times to measure each point. Default: 7, or 4 with --quick.")] = None,
    quick: Annotated[bool, Option("--quick", help="A faster, rougher run: fewer candidates and draws.")] = False,
    jobs: Annotated[int, Option(min=1, max=64, help="Number of processes to use.")] = 2,
    force: shared.ForceFlag = False,
    as_json: shared.JsonFlag = False,
) -> None:
    """Measure the cost and the risk of many policies, draw the frontier and recommend one. The result is private.

    Nothing is published or spent. A policy that misses a limit, or is no better than publishing nothing, is never
    recommended. If you interrupt a run, start it again and it continues. With other limits and --force, a finished run
    measures nothing again.

    Example: dunnage advise parcels.csv --policy parcels.toml --goal trucks --capacity 500kg -o frontier
    """
    from dunnage.advising.advice import finish, next_commands
    from dunnage.advising.sweep import BasePolicy
    from dunnage.showing.frontier import frontier_page

    with progress(plain=True) as tell:
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
        commands = next_commands(BasePolicy.read(policy), out, data=str(data), period=period, noise=frontier.noise)
        first = "Under the recommended policy, first see what publishing would do, then publish"
        text += f" {first if len(commands) > 1 else 'Next step'}:\n" + "\n".join(f"  {line}" for line in commands)
    else:
        text += " No policy was written, because none keeps to your limit. Its page shows all of them."
    print_result({"frontier": str(out), **frontier.to_dict()}, text, as_json)


# --- The command ``prove``.


def prove(
    mechanisms: Annotated[
        list[str] | None,
        Argument(
            metavar="MECHANISM", help="Names as in a policy. Default: all. The source of noise is always checked."
        ),
    ] = None,
    long: Annotated[
        bool, Option("--long", help="Larger domains and more parameters. Takes about five minutes.")
    ] = False,
    jobs: Annotated[int, Option(min=1, max=64, help="Number of processes to use.")] = 2,
    as_json: shared.JsonFlag = False,
) -> None:
    """Check the mechanisms: what each claims, what it really gives away, and the verdict.

    The exit code is 1 if a proved bound is exceeded, or if a published form that is known to be wrong does not fail.

    Example: dunnage prove noisy-counts noisy-clusters
    """
    with progress() as tell:
        proof = dn.prove(mechanisms or None, long=long, jobs=jobs, progress=tell)
    print_result(proof.to_dict(), proof.summary(), as_json)
    if not proof.as_expected:
        raise typer.Exit(1)


def export(
    release: shared.ReleaseArgument,
    to: Annotated[
        OptText,
        Option(help="registry (OpenDP deployments) | croissant | dcat (mobilityDCAT-AP) | assessment (impact, HTML)."),
    ] = None,
    about: Annotated[Path, Option(help="What only people know; --draft writes one to fill in.")] = Path("about.toml"),
    out: Annotated[OptPath, Option("-o", "--out", help="File to write.")] = None,
    draft: Annotated[OptPath, Option("--draft", help="Write an about.toml with blanks to this place instead.")] = None,
    audited: Annotated[OptPath, Option("--audit", help="Assessment: audit folder of this release.")] = None,
    house: shared.HouseOption = None,
    force: shared.ForceFlag = False,
    as_json: shared.JsonFlag = False,
) -> None:
    """Describe a release for a catalogue, in its own format, or draft a data-protection impact assessment.

    Everything comes from the certificate, and from an audit if you give one; what only people know is in about.toml.
    Nothing is submitted anywhere.

    Example: dunnage export release --to croissant --about about.toml -o croissant.json
    """
    from dunnage.auditing.run import Audit
    from dunnage.folders import new_file
    from dunnage.showing.exports import ASSESSMENT, draft_about, exported

    target = draft or out
    if target is None or (draft is None) == (to is None):
        raise ParameterError("export needs --draft ABOUT.toml, or --to FORMAT and -o FILE.")
    if target.exists() and not force:
        raise OutputError.taken(target)
    given, findings = shared.received(release), None if audited is None else Audit.read(audited)
    if draft is not None:
        text, says = draft_about(given), f"Draft in {draft}. Fill in the blanks, then run export with --to."
    else:
        limits = shared.house_of(house, release.absolute().parent) if to == ASSESSMENT else None
        if findings is not None and to != ASSESSMENT:
            raise ParameterError("--audit is for --to assessment: others must not see private figures. Leave it out.")
        text, says = (
            exported(given, str(to), about, audit=findings, house=limits),
            f"Written to {out}: {to} of {release}.",
        )
    private = findings is not None and not findings.external
    with new_file(target, private=private) as stream:
        stream.write(text.encode())
    print_result({"file": str(target), "to": to, "private": private}, says, as_json)
