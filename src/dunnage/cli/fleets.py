# SPDX-License-Identifier: Apache-2.0
"""dunnage size, and apply for fleets: shuttles for released counts of trips, and what they do on the true ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dunnage.cli.shared import ForceFlag, JsonFlag, PlanOut, SeedOption, print_result, progress
from dunnage.errors import ParameterError

if TYPE_CHECKING:
    pass


def size(
    release: Annotated[Path, typer.Argument(help="Release folder of counts.")],
    city: Annotated[Path, typer.Option("--city", help="City folder, or GTFS feed (folder or zip).")],
    out: PlanOut,
    max_wait: Annotated[float, typer.Option(help="Longest mean wait in each zone, in seconds.")] = 180,
    expansions: Annotated[int, typer.Option(help="Days with random seconds to simulate.")] = 5,
    capacity: Annotated[int, typer.Option(help="Seats of a shuttle.")] = 8,
    day: Annotated[str | None, typer.Option(help="Size for this day only, by its label in the release.")] = None,
    export: Annotated[
        Path | None, typer.Option(help="Folder to make for other tools: FleetPy's files, and GeoJSON.")
    ] = None,
    seed: SeedOption = None,
    force: ForceFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Size the smallest fleet of shuttles per zone for released counts of trips. Needs only release and city.

    Example: dunnage size release --city city --max-wait 180 -o plan
    """
    from dunnage.folders import check_new_folder
    from dunnage.kinds import COUNTS
    from dunnage.pages.fleets import plan_page
    from dunnage.planning.dispatch import Service
    from dunnage.planning.exports import export_plan
    from dunnage.planning.fleet import size as size_fleet
    from dunnage.planning.plan import PLAN_FILE, PLAN_PAGE
    from dunnage.release import Release
    from dunnage.tables.gtfs import load_city

    check_new_folder(out, marker=PLAN_FILE, force=force)
    if export is not None:
        check_new_folder(export, marker=PLAN_FILE, force=False)
        if export.resolve() == out.resolve():
            raise ParameterError("plan and export need a folder each. Got one for both. Name another.")
    with progress() as tell:
        tell("reading release and city")
        received = Release.read(release)
        if received.kind != COUNTS:  # before a city is read
            raise ParameterError(f"size needs a release of counts of trips. Got one of {received.kind}. Give another.")
        plan = size_fleet(
            received,
            (place := load_city(city)),
            max_wait=max_wait,
            expansions=expansions,
            service=Service(capacity=capacity),
            seed=seed or 0,
            day=day,
            progress=tell,
        )
        tell("drawing the page")
        plan.write(out, page=plan_page(plan, received, place), force=force)
        if export is not None:
            tell("exporting")
            export_plan(export, received, place, plan)
    text = f"{plan.summary()}\nPlan        {out}, see {PLAN_PAGE}" + (
        f"\nExports     {export}" if export is not None else ""
    )
    exported = {"export": str(export)} if export is not None else {}
    print_result({"plan": str(out), **exported, **plan.to_dict()}, text, as_json)


def apply_fleet(
    plan: Path,
    data: Path,
    policy: Path,
    release: Path,
    out: Path,
    *,
    city: Path | None,
    key: Path | None,
    period: str | None,
    shuttle_hour: float | None,
    force: bool,
    as_json: bool,
) -> None:
    """Run a planned fleet on the true trips."""
    from dunnage.folders import check_new_folder
    from dunnage.pages.fleets import settlement_page
    from dunnage.publication import Key, key_path
    from dunnage.release import Release
    from dunnage.settle import SETTLEMENT_FILE
    from dunnage.settle.fleets import SETTLEMENT_PAGE
    from dunnage.settle.fleets import apply_fleet as apply_plan
    from dunnage.tables.gtfs import load_city
    from dunnage.tables.load import load

    if city is None:
        raise ParameterError("a plan of shuttles is applied in a city. Got none. Give --city CITY, as for size.")
    check_new_folder(out, marker=SETTLEMENT_FILE, force=force)
    with progress() as tell:
        tell("reading")
        published = Release.read(release)
        trips = load(data, policy, period=period or published.certificate.period)
        beside = key_path(release)
        named = key or (beside if beside.exists() else None)
        done = apply_plan(
            plan,
            trips,
            published,
            load_city(city),
            None if named is None else Key.read(named),
            shuttle_hour=shuttle_hour,
            progress=tell,
        )
        tell("drawing the page")
        done.write(out, page=settlement_page(done, published), force=force)
    result = {"settlement": str(out), **done.to_dict()}
    print_result(result, f"{done.summary()}\nSettlement  {out} (private), see {SETTLEMENT_PAGE}", as_json)
