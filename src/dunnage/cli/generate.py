# SPDX-License-Identifier: Apache-2.0
"""The commands of ``dunnage generate``: sample data of each kind, with a starter policy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from dunnage.cli import shared
from dunnage.cli.shared import OptFloat, OptInt, OptPath, OptText, print_result, progress
from dunnage.errors import OutputError
from dunnage.text import several

generate_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Generate sample data with a starter policy.",
    epilog="Example: dunnage generate packages -o parcels.csv --seed 1",
)


@generate_app.command("packages", short_help="Generate packages with weights.")
def generate_packages(
    out: Annotated[Path, Option("-o", "--out", help="CSV file to write; the policy goes beside it.")],
    setting: Annotated[OptText, Option(help="A setting of the papers: 25-L-U, 50-S-U, 25-L-N, 25-L-Un ...")] = None,
    size: Annotated[OptInt, Option(help="Number of packages.")] = None,
    law: Annotated[OptText, Option(help="Distribution of the weights: uniform | normal | unequal.")] = None,
    low: Annotated[OptFloat, Option(help="Smallest weight.")] = None,
    high: Annotated[OptFloat, Option(help="Largest weight.")] = None,
    mean: Annotated[OptFloat, Option(help="Mean of the normal distribution.")] = None,
    sd: Annotated[OptFloat, Option(help="Standard deviation of the normal distribution.")] = None,
    destinations: Annotated[OptInt, Option(help="Number of destinations; 0 leaves the column out.")] = None,
    decimals: Annotated[OptInt, Option(help="Number of decimals of each weight.")] = None,
    seed: shared.SeedOption = None,
    force: shared.ForceFlag = False,
    as_json: shared.JsonFlag = False,
) -> None:
    """Generate packages with weights, and a starter policy beside them.

    Example: dunnage generate packages -o parcels.csv --setting 25-L-U --seed 1
    """
    from dataclasses import replace

    from dunnage.samples import PackageSetting, package_setting
    from dunnage.samples import generate_packages as generate

    free = {"size": size, "law": law, "low": low, "high": high, "mean": mean, "sd": sd}
    free |= {"destinations": destinations, "decimals": decimals}
    given: dict[str, Any] = {name: value for name, value in free.items() if value is not None}
    chosen = replace(package_setting(setting) if setting else PackageSetting(), **given)
    data, policy = generate(chosen, out, seed=seed, force=force)
    text = f"Data      {data}: {chosen.size} packages\nPolicy    {policy}, to start with"
    print_result({"data": str(data), "policy": str(policy), "size": chosen.size}, text, as_json)


@generate_app.command("rides", short_help="Generate rides on a metro network.")
def generate_rides(
    out: Annotated[Path, Option("-o", "--out", help="CSV file to write; policy and edges go beside it.")],
    size: Annotated[int, Option(help="Number of rides.")] = 10_000,
    stations: Annotated[int, Option(help="Number of stations in the network.")] = 150,
    lines: Annotated[int, Option(help="Number of lines in the network.")] = 8,
    seed: shared.SeedOption = None,
    force: shared.ForceFlag = False,
    as_json: shared.JsonFlag = False,
) -> None:
    """Generate rides on a metro, with a starter policy and the edges of the network beside them.

    Example: dunnage generate rides -o rides.csv --size 10000 --seed 1
    """
    from dunnage.samples import RideSetting
    from dunnage.samples import generate_rides as generate

    setting = RideSetting(size=size, stations=stations, lines=lines)
    data, policy, edges = generate(setting, out, seed=seed, force=force)
    text = f"Data      {data}: {size} rides\nPolicy    {policy}, to start with\nNetwork   {edges}"
    print_result({"data": str(data), "policy": str(policy), "edges": str(edges), "size": size}, text, as_json)


@generate_app.command("trips", short_help="Generate trips of a day between stops.")
def generate_trips(
    out: Annotated[Path, Option("-o", "--out", help="CSV file to write; policy, stops, modes go beside it.")],
    size: Annotated[OptInt, Option(help="Number of trips. Default: as many as in the paper.")] = None,
    weekend: Annotated[bool, Option("--weekend", help="Generate a Saturday, not a weekday.")] = False,
    start: Annotated[str, Option("--from", help="Trips start at this time or later; a full or half hour.")] = "00:00",
    end: Annotated[str, Option("--to", help="Trips start before this time.")] = "24:00",
    city: Annotated[OptPath, Option(help="City folder to place the trips in; the policy then names its files.")] = None,
    level: Annotated[str, Option(help="What the policy counts trips between: zone; or stop, for shuttles.")] = "zone",
    seed: shared.SeedOption = None,
    force: shared.ForceFlag = False,
    as_json: shared.JsonFlag = False,
) -> None:
    """Generate trips of a day between stops, with a starter policy, the stops and the modes of travel beside them.

    Example: dunnage generate trips -o trips.csv --from 08:00 --to 10:00 --seed 1
    """
    from dunnage.samples import TripSetting, generate_city_trips
    from dunnage.samples import generate_trips as generate

    setting = TripSetting(size=size, weekend=weekend, window=(start, end), level=level)  # type: ignore[arg-type]
    written: tuple[Path, ...]
    if city is None:
        written = generate(setting, out, seed=seed, force=force)
    else:
        written = generate_city_trips(setting, city, out, seed=seed, force=force)
    paths = dict(zip(("data", "policy", "stops", "modes"), map(str, written), strict=False))
    text = (
        f"Data      {paths['data']}: {several(setting.num_trips, 'trip')}\nPolicy    {paths['policy']}, to start with"
    )
    text += f"\nStops     {paths['stops']}\nModes     {paths['modes']}" if city is None else f"\nCity      {city}"
    print_result({**paths, "size": setting.num_trips}, text, as_json)


@generate_app.command("city", short_help="Generate a city for shuttle fleets, or make one from GTFS or your stops.")
def generate_city(
    out: Annotated[Path, Option("-o", "--out", help="City folder to create: stops, travel times, buses, modes.")],
    stops: Annotated[OptInt, Option(help="Number of stops of an invented city. Default: 130.")] = None,
    zones: Annotated[OptInt, Option(help="Number of zones. Default: 4.")] = None,
    gtfs: Annotated[OptPath, Option(help="Make the city from this GTFS feed (folder or zip).")] = None,
    own: Annotated[
        OptPath, Option(help="Make zones and modes for these stops of your own: a file with stop, lat and lon.")
    ] = None,
    date: Annotated[
        OptText, Option(help="Service day of the feed, such as 2026-11-16. Default: the busiest day.")
    ] = None,
    hubs: Annotated[OptInt, Option(help="Number of hubs to choose from the feed. Default: 12.")] = None,
    zone_id: Annotated[bool, Option("--zone-id", help="Use the zones that the feed names.")] = False,
    seed: shared.SeedOption = None,
    force: shared.ForceFlag = False,
    as_json: shared.JsonFlag = False,
) -> None:
    """Generate a city for shuttle fleets: invented, from a GTFS feed, or from your own list of stops.

    Example: dunnage generate city -o city --stops 200 --zones 5 --seed 1

    Example: dunnage generate city -o city --gtfs feed.zip --date 2026-11-16 --zones 4 --hubs 12

    Example: dunnage generate city -o city --own stops.csv --zones 6
    """
    from dunnage.errors import ParameterError
    from dunnage.model.city import City

    of_feed = {"--date": date, "--hubs": hubs, "--zone-id": zone_id or None}
    made_up = {"--stops": stops, "--seed": seed}
    wrong = [name for name, value in (of_feed if gtfs is None else made_up).items() if value is not None]
    if wrong and gtfs is None:
        raise ParameterError(f"{', '.join(wrong)} needs a GTFS feed. Name one with --gtfs, or leave it out.")
    wrong += [name for name, value in made_up.items() if own is not None and value is not None]
    if wrong or (own is not None and gtfs is not None):
        source = "--gtfs" if own is None else "--own"
        raise ParameterError(f"{', '.join(wrong) or '--gtfs'} cannot be used with {source}. Leave one of them out.")
    if own is not None:
        from dunnage.tables.gtfs import generate_own_city

        made = generate_own_city(own, out, zones, force=force)
    elif gtfs is None:
        from dunnage.samples import CitySetting
        from dunnage.samples import generate_city as generate

        numbers = {name: value for name, value in (("stops", stops), ("zones", zones)) if value is not None}
        generate(CitySetting(**numbers), out, seed=seed, force=force)
        made = City.read_folder(out)
    else:
        from dunnage.tables.gtfs import FeedSetting, generate_feed_city, read_date

        if zone_id and zones is not None:
            raise ParameterError("--zones and --zone-id cannot be used together. Leave one out.")
        options = {
            "date": None if date is None else read_date(date),
            "hubs": hubs,
            "zones": "zone_id" if zone_id else zones,
        }
        given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
        with progress() as tell:
            tell("reading the feed")
            made = generate_feed_city(gtfs, out, FeedSetting(**given), force=force)
    num_hubs, num_buses = int(made.hubs.sum()) if made.hubs is not None else 0, len(made.buses or ())
    counts = f"{len(made.stops)} stops, {len(made.zone_names)} zones, {num_hubs} hubs, {num_buses} bus rides"
    text = "\n".join([f"City      {out}: {counts}", *(f"Assumes   {sentence}" for sentence in made.assumed)])
    result = {
        "city": str(out),
        "stops": len(made.stops),
        "zones": len(made.zone_names),
        "hubs": num_hubs,
        "buses": num_buses,
        "assumed": list(made.assumed),
    }
    print_result(result, text, as_json)


@generate_app.command("network", short_help="Make a network of stations from GTFS.")
def generate_network(
    gtfs: Annotated[Path, Argument(help="GTFS feed (folder or zip).")],
    out: Annotated[Path, Option("-o", "--out", help="CSV file to write: from, to, and minutes between neighbours.")],
    names: Annotated[
        bool, Option("--names", help="Use the names of stops, as in your data, instead of their ids.")
    ] = False,
    force: shared.ForceFlag = False,
    as_json: shared.JsonFlag = False,
) -> None:
    """Make a network of stations from a GTFS feed, for a column with kind = "graph".

    Example: dunnage generate network feed.zip -o edges.csv
    """
    from dunnage.tables.gtfs import generate_network as generate

    with progress() as tell:
        tell("reading the feed")
        made = generate(gtfs, out, names=names, force=force)
    counts = f"{several(len(made.stops), 'station')}, {several(len(made.edges), 'edge')}"
    lines = [f"Network   {out}: {counts}", *(f"Assumes   {sentence}" for sentence in made.assumed)]
    lines.append(f'Policy    kind = "graph", edges = "{out.name}" (beside the policy)')
    result = {"network": str(out), "stations": len(made.stops), "edges": len(made.edges), "assumed": list(made.assumed)}
    print_result(result, "\n".join(lines), as_json)


@generate_app.command("telemetry", short_help="Generate sensor readings of trucks.")
def generate_telemetry(
    out: Annotated[Path, Option("-o", "--out", help="CSV or Parquet file to write; the policy goes beside it.")],
    size: Annotated[int, Option(help="Number of vehicles.")] = 5_000,
    days: Annotated[int, Option(help="Number of days.")] = 1,
    readings: Annotated[int, Option(help="Number of rows for each vehicle and day.")] = 24,
    attributes: Annotated[OptInt, Option(help="Number of measurements in a row, 2 to 10.")] = None,
    law: Annotated[str, Option(help="Distribution of the readings: fleet | gauss | uniform | census.")] = "fleet",
    seed: shared.SeedOption = None,
    force: shared.ForceFlag = False,
    as_json: shared.JsonFlag = False,
) -> None:
    """Generate sensor readings of trucks, with a starter policy for devices beside them.

    Example: dunnage generate telemetry -o telemetry.csv --size 5000 --seed 1
    """
    from dunnage.samples import TelemetrySetting
    from dunnage.samples import generate_telemetry as generate

    setting = TelemetrySetting(size=size, days=days, readings=readings, attributes=attributes, law=law)
    data, policy = generate(setting, out, seed=seed, force=force)
    _print_made(data, policy, "readings", size, setting.num_rows, as_json)


@generate_app.command("positions", short_help="Generate positions of a fleet in a city.")
def generate_positions(
    out: Annotated[Path, Option("-o", "--out", help="CSV or Parquet file to write; the policy goes beside it.")],
    size: Annotated[int, Option(help="Number of vehicles.")] = 9_858,
    epochs: Annotated[int, Option(help="Number of moments, five minutes apart.")] = 265,
    seed: shared.SeedOption = None,
    force: shared.ForceFlag = False,
    as_json: shared.JsonFlag = False,
) -> None:
    """Generate positions of a fleet in a city, with a starter policy for devices beside them.

    Example: dunnage generate positions -o positions.parquet --size 9858 --seed 1
    """
    from dunnage.samples import PositionSetting
    from dunnage.samples import generate_positions as generate

    setting = PositionSetting(size=size, epochs=epochs)
    with progress() as tell:
        tell("moving the fleet")
        data, policy = generate(setting, out, seed=seed, force=force)
    _print_made(data, policy, "positions", size, setting.num_rows, as_json)


def _print_made(data: Path, policy: Path, what: str, size: int, num_rows: int, as_json: bool) -> None:
    text = f"Data      {data}: {num_rows:,} {what} of {several(size, 'vehicle')}\nPolicy    {policy}, to start with"
    print_result({"data": str(data), "policy": str(policy), "size": size, "rows": num_rows}, text, as_json)


def taps(
    data: Annotated[Path, Argument(help="CSV, Parquet or Excel file with one row for each tap; private.")],
    feed: Annotated[Path, Option("--gtfs", help="GTFS feed of the lines: a .zip file or a folder.")],
    out: Annotated[Path, Option("-o", "--out", help="File of trips to write (.csv); private.")],
    card: Annotated[str, Option(help="Column with the card.")] = "card",
    stop: Annotated[str, Option(help="Column with the stop_id of the boarding.")] = "stop",
    time: Annotated[str, Option(help="Column with local date and time.")] = "time",
    route: Annotated[OptText, Option(help="Column with the route_id, if taps have it.")] = None,
    walk: Annotated[float, Option(help="Longest walk between getting off and the next boarding, in km.")] = 1.0,
    transfer: Annotated[float, Option(help="Longest time between two rides of one trip, in minutes.")] = 30.0,
    day_starts: Annotated[int, Option(help="Hour at which a service day begins.")] = 4,
    force: shared.ForceFlag = False,
    as_json: shared.JsonFlag = False,
) -> None:
    """Infer trips with destinations from taps of riders who only tap on, for counts of trips.

    A ride ends where its line comes nearest to the next boarding; the last one of a day leads back to the first
    boarding of that day, or to that of the next day. Rides that follow each other closely are one trip. Trips whose
    end cannot be inferred are left out; their share is printed for you.

    Example: dunnage taps taps.csv --gtfs feed.zip -o trips.csv
    """
    from dunnage.folders import new_file
    from dunnage.tables.columns import write_csv
    from dunnage.tables.gtfs import feed_rides
    from dunnage.tables.taps import TapSetting, infer_trips

    if out.exists() and (not force or out.samefile(data)):
        raise OutputError.taken(out)
    setting = TapSetting(
        card=card, stop=stop, time=time, route=route, walk_km=walk, transfer_minutes=transfer, day_starts=day_starts
    )
    found = infer_trips(data, feed_rides(feed), setting)
    with new_file(out, private=True) as stream:
        write_csv(found.table, stream)
    lines = [found.summary(), f"Written   {out} (private). Protect riders, not trips: one tap can change two trips"]
    print_result({"trips": str(out), "owner": found.to_dict()}, "\n".join(lines), as_json)
