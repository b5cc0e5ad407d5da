# SPDX-License-Identifier: Apache-2.0
"""The commands ``pack``, ``size`` and ``apply``: make a plan on a release, and apply it to the true data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

import dunnage as dn
from dunnage.cli import shared
from dunnage.cli.shared import OptInt, OptPath, OptText, print_result, print_text, progress
from dunnage.errors import ParameterError
from dunnage.exact import whole

if TYPE_CHECKING:
    from dunnage.planning.models import Model


def pack(
    release: shared.ReleaseArgument,
    out: shared.PlanOut,
    capacity: Annotated[
        list[str] | None, Option(help="Capacity of a truck, such as 500kg or volume=9. Repeatable.")
    ] = None,
    trucks: Annotated[
        OptPath, Option(help="Trucks file: CSV with columns truck,count,cost and the capacities.")
    ] = None,
    by: Annotated[OptText, Option(help="Public column; each of its values is packed separately.")] = None,
    apart: Annotated[OptText, Option(help="Another public column; different values never share a truck.")] = None,
    model: Annotated[
        OptText,
        Option(
            help="standard | robust | stochastic | sealed. Default: standard, or stochastic with --risk or --prior. "
            "Noisy releases take standard or stochastic."
        ),
    ] = None,
    box: Annotated[
        OptText,
        Option(
            help="Sides to place as a box, such as length,width,height; the capacities of the truck are then its inner "
            "sides: --capacity 600x240x240cm."
        ),
    ] = None,
    turn: Annotated[OptText, Option(help="Boxes: upright (default) | any | none, or a public column of these.")] = None,
    stack: Annotated[
        OptText,
        Option(help="Boxes: any (default) | none | 3 (layers) | 200kg (weight on top), or a public column of these."),
    ] = None,
    unload: Annotated[
        OptText, Option(help="Boxes: public column with the order of unloading; nothing blocks what comes out earlier.")
    ] = None,
    support: Annotated[
        OptText, Option(help="Boxes: share of each base that rests on something. Default: 100%.")
    ] = None,
    statistic: Annotated[
        OptText,
        Option(help="Standard: upper (everything fits; if noisy, with the stated confidence) | mean (fewer trucks)."),
    ] = None,
    risk: Annotated[
        OptText,
        Option(
            help="Accepted chance that something does not fit, such as 5%. For stochastic, and for robust with "
            "--budget items or published."
        ),
    ] = None,
    prior: Annotated[
        OptText, Option(help="Stochastic on noisy releases: distribution of the weights, uniform | normal:MEAN:SD.")
    ] = None,
    budget: Annotated[OptText, Option(help="Robust: budget of uncertainty, largest | items | published.")] = None,
    as_published: Annotated[
        bool, Option("--as-published", help="Stochastic: use the sampled model of the paper.")
    ] = False,
    spread: Annotated[OptInt, Option(help="No truck carries more than 1/SPREAD of a class.")] = None,
    margin: Annotated[
        OptText, Option(help="Share of each capacity to leave free, such as 5%. Works with every model.")
    ] = None,
    extra_trucks: Annotated[
        OptInt, Option(help="Trucks to allow beyond the fewest, so that fewer packages can be linked to their truck.")
    ] = None,
    max_linkage: Annotated[
        OptText, Option(help="Largest mean truck linkage, such as 20%; adds the trucks that this takes.")
    ] = None,
    time_limit: Annotated[float, Option(min=0.1, help="Seconds after which the best plan so far is returned.")] = 60.0,
    house: shared.HouseOption = None,
    exception: shared.ExceptionOption = None,
    force: shared.ForceFlag = False,
    as_json: shared.JsonFlag = False,
) -> None:
    """Pack released rows into as few trucks as possible, with a proven lower bound. Needs only the release.

    Example: dunnage pack release --capacity 500kg --model stochastic --risk 0.05 -o plan

    Boxes: dunnage pack release --box length,width,height --capacity 600x240x240cm --capacity 3000kg -o plan
    """
    from dunnage.arrays import compile_seconds
    from dunnage.folders import check_new_folder
    from dunnage.planning.plan import PLAN_FILE, PLAN_PAGE
    from dunnage.planning.spreading import HIGH_LINKAGE
    from dunnage.showing.packing import plan_page

    compiled = compile_seconds()  # before; a program may pack several times
    # Make the model that the options describe; refuse an option that it does not take.
    name = model if model is not None else "standard" if risk is None and prior is None else "stochastic"
    given: dict[str, str | bool | None] = {"statistic": statistic, "risk": risk, "prior": prior, "budget": budget}
    given["as_published"] = as_published or None
    takes: dict[str, tuple[Any, tuple[str, ...]]] = {
        "standard": (dn.Standard, ("statistic",)),
        "robust": (dn.Robust, ("risk", "budget")),
        "stochastic": (dn.Stochastic, ("risk", "prior", "as_published")),
        "sealed": (dn.Sealed, ()),
    }
    if name not in takes:
        raise ParameterError(f"model must be one of {', '.join(takes)}. Got {name!r}.")
    kind, options = takes[name]
    if wrong := [option for option, value in given.items() if value is not None and option not in options]:
        listed = ", ".join(f"--{option.replace('_', '-')}" for option in wrong)
        raise ParameterError(f"the {name} model does not take {listed}. Leave it out, or choose another --model.")
    chosen: Model = kind(**{option: given[option] for option in options if given[option] is not None})
    rules = {"turn": turn, "stack": stack, "unload": unload, "support": support}
    if box is None and (strange := [name for name, value in rules.items() if value is not None]):
        raise ParameterError(f"--{strange[0]} is for boxes. Name their sides: --box length,width,height.")
    boxes = dn.Box.parse(box, **rules) if box is not None else None
    check_new_folder(out, marker=PLAN_FILE, force=force)
    limits = shared.house_of(house, release.parent, exception)
    with progress() as tell:
        tell("reading the release")
        received = shared.received(release, "pack")
        sides = () if boxes is None else boxes.sides
        named = list(dict.fromkeys([*received.quantities, *sides]))
        kinds = dn.read_trucks(trucks, named) if trucks is not None else None
        tell("packing")
        plan = dn.pack(
            received,
            capacity=capacity,
            trucks=kinds,
            model=chosen,
            by=by,
            apart=apart,
            spread=spread,
            box=boxes,
            margin=margin,
            extra_trucks=extra_trucks,
            max_linkage=max_linkage,
            seconds=time_limit,
            progress=tell,
        )
        tell("drawing the page")
        plan.write(out, page=plan_page(plan, received), force=force)
    linkage = plan.truck_linkage.mean if plan.truck_linkage is not None else None
    improvable = plan.status != "optimal" or (linkage or 0) >= HIGH_LINKAGE
    if improvable and (seconds := compile_seconds() - compiled) >= time_limit / 10:
        print_text(
            f"WARNING: compiling the search took {seconds:.0f} s of the time limit. That happens once after an "
            "installation: pack again for a plan that was searched for in the whole time.",
            err=True,
        )
    clearance = limits.clear(limits.of_linkage(linkage, plan.protects), exception) if limits is not None else None
    text = f"{plan.summary()}\nPlan        {out}, see {PLAN_PAGE}"
    shared.print_cleared({"plan": str(out), **plan.to_dict()}, text, as_json, clearance)


def size(
    release: Annotated[Path, Argument(help="Release folder of counts.")],
    city: Annotated[Path, Option("--city", help="City folder or GTFS feed (folder or zip).")],
    out: shared.PlanOut,
    max_wait: Annotated[float, Option(help="Maximum mean wait in each zone, in seconds.")] = 180,
    expansions: Annotated[int, Option(help="Number of days to simulate, each with random start times.")] = 5,
    capacity: Annotated[int, Option(help="Number of seats in a shuttle.")] = 8,
    shift: Annotated[
        float | None, Option(help="Hours of a driver's shift: the plan then also lists the fewest shifts.")
    ] = None,
    break_: Annotated[float, Option("--break", help="Minutes of the break in a shift.")] = 0,
    drive: Annotated[float, Option(help="Maximum hours at the wheel before or after the break.")] = 4.5,
    day: Annotated[OptText, Option(help="Use this day only; its label in the release.")] = None,
    dates: Annotated[
        list[str] | None,
        Option(help="How many dates the trips cover, if the release does not say: 5, or weekday=20. Repeatable."),
    ] = None,
    export: Annotated[OptPath, Option(help="Folder to create for other tools: FleetPy files and GeoJSON.")] = None,
    seed: shared.SeedOption = None,
    time_limit: Annotated[
        float | None,
        Option(min=0.1, help="Seconds after which the first fleet that meets the wait is returned. Default: no limit."),
    ] = None,
    force: shared.ForceFlag = False,
    as_json: shared.JsonFlag = False,
) -> None:
    """Find the smallest shuttle fleet of each zone for released counts of trips. Needs only the release and the city.

    The fleet is for an average day: counts are divided by the number of dates that they cover.

    Example: dunnage size release --city city --max-wait 180 -o plan
    """
    from dunnage.folders import check_new_folder
    from dunnage.planning.dispatch import Service
    from dunnage.planning.plan import PLAN_FILE, PLAN_PAGE
    from dunnage.planning.shifts import ShiftRule
    from dunnage.release.kinds import COUNTS
    from dunnage.showing.fleets import plan_page

    rule = None if shift is None else ShiftRule(shift_hours=shift, break_minutes=break_, drive_hours=drive)
    if rule is None and break_:
        raise ParameterError("--break is for drivers' shifts. Add --shift, such as --shift 8.")
    check_new_folder(out, marker=PLAN_FILE, force=force)
    if export is not None:
        check_new_folder(export, marker=PLAN_FILE, force=False)
        if export.resolve() == out.resolve():
            raise ParameterError("--out and --export need different folders. Change one of them.")
    with progress(plain=True) as tell:
        tell("reading release and city")
        received = shared.received(release)
        if received.kind != COUNTS:  # fail before the city is read
            raise ParameterError(f"size needs a release of counts of trips. Got a release of {received.kind}.")
        given = dates or []
        parts = [part.strip(" \t") for text in given for part in text.split(",")]
        numbers = dict(part.rpartition("=")[::2] for part in parts)
        counts = {label.strip(): n for label, text in numbers.items() if (n := whole(text)) is not None}
        if len(counts) < len(parts) or ("" in counts and len(counts) > 1):
            raise ParameterError(
                f"--dates takes one number, such as 5, or LABEL=NUMBER for each label. Got {', '.join(given)}."
            )
        plan = dn.size(
            received,
            (place := dn.load_city(city)),
            max_wait=max_wait,
            expansions=expansions,
            service=Service(capacity=capacity),
            seed=seed or 0,
            day=day,
            dates=counts.get("", counts) if counts else None,
            seconds=time_limit,
            shifts=rule,
            progress=tell,
        )
        tell("drawing the page")
        plan.write(out, page=plan_page(plan, received, place), force=force)
        if export is not None:
            tell("exporting")
            dn.export_plan(export, received, place, plan)
    text = f"{plan.summary()}\nPlan        {out}, see {PLAN_PAGE}" + (
        f"\nExports     {export}" if export is not None else ""
    )
    exported = {"export": str(export)} if export is not None else {}
    print_result({"plan": str(out), **exported, **plan.to_dict()}, text, as_json)


def apply(
    plan: Annotated[Path, Argument(help="Plan folder, or a CSV file from another planner: row,bin or zone,shuttles.")],
    data: Annotated[Path, Argument(help="The private rows that you published.")],
    policy: shared.PolicyOption,
    release: Annotated[Path, Option("--release", help="Release folder that the plan was made on.")],
    out: Annotated[Path, Option("-o", "--out", help="Settlement folder to create; private.")],
    key: shared.KeyOption = None,
    period: shared.PeriodOption = None,
    repair: Annotated[bool, Option("--repair", help="Repair trucks that overflow.")] = False,
    leave_behind: Annotated[
        bool, Option("--leave-behind", help="Repair, and leave packages behind if necessary.")
    ] = False,
    capacity: Annotated[
        list[str] | None, Option(help="Capacity of a truck, for a CSV plan or to replace that of the plan. Repeatable.")
    ] = None,
    trucks: Annotated[OptPath, Option(help="Trucks file, for a CSV plan or to replace that of the plan.")] = None,
    city: Annotated[
        OptPath, Option(help="Shuttles: the city folder or GTFS feed that the fleet was sized for.")
    ] = None,
    shuttle_hour: shared.ShuttleHour = None,
    force: shared.ForceFlag = False,
    as_json: shared.JsonFlag = False,
) -> None:
    """Apply a plan to the true data: see what really overflows and repair it, or see how the shuttles really run.

    Example: dunnage apply plan parcels.csv --policy parcels.toml --release release --repair -o settlement
    """
    from dunnage.folders import check_new_folder
    from dunnage.planning.plan import states_fleet_plan
    from dunnage.publication import key_path
    from dunnage.settle import SETTLEMENT_FILE, SETTLEMENT_PAGE
    from dunnage.showing import packing

    for_fleet = states_fleet_plan(plan)
    if for_fleet:
        for_packages = {"--repair": repair, "--leave-behind": leave_behind, "--capacity": capacity, "--trucks": trucks}
        _refuse_options(for_packages, "a plan for shuttles")
        if city is None:
            raise ParameterError("a plan for shuttles needs its city. Give --city, as you did for size.")
    else:
        _refuse_options({"--city": city, "--shuttle-hour": shuttle_hour}, "a plan for packages")
    check_new_folder(out, marker=SETTLEMENT_FILE, force=force)
    with progress() as tell:
        tell("reading")
        published = shared.received(release, "" if for_fleet else "apply")
        rows = dn.load(data, policy, period=period or published.certificate.period)
        if city is not None:
            from dunnage.showing.fleets import settlement_page

            town, named = dn.load_city(city), key or key_path(release)
            own = dn.Key.read(named) if key is not None or named.exists() else None
            ran = dn.apply_fleet(plan, rows, published, town, own, shuttle_hour=shuttle_hour, progress=tell)
            tell("drawing the page")
            ran.write(out, page=settlement_page(ran, published), force=force)
            result, text = ran.to_dict(), f"{ran.summary()}\nSettlement  {out} (private), see {SETTLEMENT_PAGE}"
        else:
            kinds = None
            if trucks is not None:  # a plan from a CSV file packs every quantity of the release
                packed = list(dn.Plan.read(plan).units) if plan.is_dir() else published.quantities
                kinds = dn.read_trucks(trucks, packed)
            from dunnage.settle import LOADING_PAGE
            from dunnage.showing.loading import loading_page

            tell("applying the plan")
            done = dn.apply(
                plan,
                rows,
                published,
                dn.Key.read(key or key_path(release)),
                capacity=capacity or None,
                trucks=kinds,
                repair=repair or leave_behind,
                leave_behind=leave_behind,
                progress=tell,
            )
            tell("drawing the page")
            done.write(out, page=packing.settlement_page(done, published), sheets=loading_page(done), force=force)
            pages = f"see {SETTLEMENT_PAGE}; {LOADING_PAGE} is for the dock"
            result, text = done.to_dict(), f"{done.summary()}\nSettlement  {out} (private), {pages}"
    print_result({"settlement": str(out), **result}, text, as_json)


def _refuse_options(options: Mapping[str, object], what: str) -> None:
    """Refuse options that a kind of plan does not take; an option that was not given is None, False or empty."""
    if given := [name for name, value in options.items() if not (value is None or value is False or value == [])]:
        raise ParameterError(f"{what} does not take {', '.join(given)}. Leave it out.")
