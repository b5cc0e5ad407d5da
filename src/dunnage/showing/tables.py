# SPDX-License-Identifier: Apache-2.0
"""Tables and places for a person: plans of others, trucks, the columns of a dataset, cities, GTFS feeds.

Of a dataset only names and types of columns are shown, never a value.
"""

from __future__ import annotations

import csv
import io
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from dunnage.errors import DunnageError, InputError, ParameterError
from dunnage.io import TAB_ENDINGS
from dunnage.policy import ReadOptions
from dunnage.release_words import several
from dunnage.showing.common import HEAD_BYTES, MOST_BYTES, MOST_TABLE_BYTES, Shown, check_size

MOST_COLUMNS = 200
"""Most columns that are listed."""
_DELIMITERS = ",;\t|"
_FOLDER_FILES = ("certificate.json", "plan.json", "settlement.json", "audit.json", "frontier.json")
_NUMBER = re.compile(r"[+-]?\d+([.,]\d+)*([eE][+-]?\d+)?")


def private_key_of_release(path: Path) -> ParameterError:
    """Return the refusal of a key."""
    return ParameterError(f"{path} is a key. It is private and never shown. Show the release folder beside it.")


def shown_csv(path: Path) -> Shown:
    """Describe a CSV file: a plan that anybody made, trucks, a demo's numbers, or else its columns."""
    policy = _policy_beside(path)
    options = read_options_of(policy) if policy else None
    names, sample, delimiter = _header(path, options)
    for header, describe in _BY_HEADER.items():
        if tuple(names[: len(header)]) == header:
            check_size(path, MOST_TABLE_BYTES)
            return describe(path, names)
    if all(_NUMBER.fullmatch(name) or not name for name in names):
        raise InputError(str(path), ["its first line holds values, not names of columns. Put a header line before it."])
    decimal = options.decimal if options else "."
    how = f", as [read] in {policy} says to read them" if options else ""
    kinds = _types(names, sample, delimiter, decimal)
    return _columns(path, kinds, f"types are guessed from the first lines{how}; ")


def _policy_beside(path: Path) -> Path | None:
    """Return the policy or draft of the same name beside a file, if there is one."""
    places = (path.with_suffix(".toml"), path.with_name(path.name.split(".")[0] + ".toml"))
    return next((place for place in places if place.is_file()), None)


def read_options_of(policy: Path) -> ReadOptions | None:
    """Return how a policy says that its data are written; None if it does not say, or cannot be read."""
    try:
        check_size(policy, MOST_BYTES)
        table = tomllib.loads(policy.read_text(encoding="utf-8-sig"))["read"]
        return ReadOptions(**{name: table[name] for name in table.keys() & {"delimiter", "decimal", "encoding"}})
    except (OSError, ValueError, ArithmeticError, RecursionError, TypeError, LookupError, AttributeError, DunnageError):
        return None


def _header(path: Path, options: ReadOptions | None = None) -> tuple[list[str], str, str]:
    """Return the names in the first line, the whole lines of the beginning of a file, and its delimiter."""
    with path.open("rb") as source:
        content = source.read(HEAD_BYTES)
    if len(content) == HEAD_BYTES:
        content = content[: content.rfind(b"\n") + 1]
    text = _decoded(content, options)
    first = next((line for line in text.splitlines() if line.strip()), "")
    if not first or "\0" in text:
        raise InputError(str(path), ["is not a CSV file with a line of column names. Check the path."])
    is_named = options is not None and (options.delimiter != "," or not path.name.endswith(TAB_ENDINGS))
    delimiter = options.delimiter if options and is_named else max(_DELIMITERS, key=first.count)
    rows = csv.reader(io.StringIO(text), delimiter=delimiter)
    try:
        names = [name.strip() for name in next(row for row in rows if row)]
    except (csv.Error, StopIteration):
        raise InputError(str(path), ["has a first line that is no CSV. Mend it."]) from None
    return names, text, delimiter


def _decoded(content: bytes, options: ReadOptions | None) -> str:
    for encoding in (options.encoding if options else "utf-8-sig", "utf-8-sig"):
        try:
            return content.decode(encoding).removeprefix("\ufeff")
        except UnicodeError:
            continue
    return content.decode("latin-1")


def _types(names: Sequence[str], sample: str, delimiter: str, decimal: str) -> Mapping[str, str]:
    """Find the type of each column from the first lines."""
    try:
        table = pacsv.read_csv(
            pa.BufferReader(sample.encode()),
            parse_options=pacsv.ParseOptions(
                delimiter=delimiter, newlines_in_values=True, invalid_row_handler=lambda row: "skip"
            ),
            convert_options=pacsv.ConvertOptions(decimal_point=decimal),
        )
    except (pa.ArrowException, ValueError):
        return dict.fromkeys(names, "")
    kinds = {item.name.strip(): _word(item.type) for item in table.schema}
    return {name: kinds.get(name, "") for name in names}


def _word(kind: pa.DataType) -> str:
    is_kind: Mapping[str, Sequence[Callable[[pa.DataType], bool]]] = {
        "number": (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal),
        "time": (pa.types.is_temporal,),
        "text": (pa.types.is_string, pa.types.is_large_string, pa.types.is_dictionary),
        "yes or no": (pa.types.is_boolean,),
        "empty": (pa.types.is_null,),
    }
    return next((word for word, tests in is_kind.items() if any(test(kind) for test in tests)), str(kind)[:40])


def _columns(path: Path, kinds: Mapping[str, str], how: str = "") -> Shown:
    listed = dict(list(kinds.items())[:MOST_COLUMNS])
    lines = [f"Table       {path}: {len(kinds)} columns; {how}values are never shown"]
    lines += [f"  {name:<24} {kind}".rstrip() for name, kind in listed.items()]
    lines += [f"  ... and {len(kinds) - len(listed)} more"] if len(kinds) > len(listed) else []
    return {"kind": "table", "columns": listed}, "\n".join([*lines, _onward(path)])


def _onward(path: Path) -> str:
    """Say what to do with a table, by what lies beside it."""
    if any((path.parent / name).is_file() for name in _FOLDER_FILES):
        return f"It is one file of a folder: dunnage show {path.parent}"
    if policy := _policy_beside(path):
        return f"To publish it under the policy beside it: dunnage publish {path} --policy {policy} -o release"
    return f"To publish it, draft a policy: dunnage draft {path} -o {path.name.split('.')[0]}.toml"


def shown_parquet(path: Path) -> Shown:
    """Describe the columns of a Parquet file; a key is refused."""
    try:
        schema = pq.read_schema(path)
    except (pa.ArrowException, OSError, ValueError, RecursionError):
        raise InputError(
            str(path), ["is not a readable Parquet file. It was cut off or damaged: use a copy."]
        ) from None
    if b"dunnage.key" in (schema.metadata or {}):
        raise private_key_of_release(path)
    return _columns(path, {item.name: _word(item.type) for item in schema})


def _shown_assignment(path: Path, names: Sequence[str]) -> Shown:
    from dunnage.planning.plan import read_assignment

    bins = read_assignment(path)
    num_bins = int(bins.max()) + 1
    lines = [
        f"Plan        {path}: {len(bins):,} rows in {num_bins:,} bins, somebody's own",
        "Apply it    dunnage apply PLAN DATA --policy P.toml --release RELEASE --capacity 500kg -o SETTLEMENT",
    ]
    return {"kind": "packing", "status": "external", "rows": len(bins), "bins": num_bins}, "\n".join(lines)


def _shown_fleet(path: Path, names: Sequence[str]) -> Shown:
    from dunnage.planning.plan import FleetPlan

    plan = FleetPlan.read(path)
    fleet = dict(zip(plan.zones, plan.shuttles, strict=True))
    lines = [f"Plan        {path}: {sum(plan.shuttles):,} shuttles, somebody's own"]
    lines += [f"Zone        {zone}: {num}" for zone, num in list(fleet.items())[:MOST_COLUMNS]]
    return {"kind": "fleet", "status": "external", "fleet": fleet}, "\n".join(lines)


def _shown_trucks(path: Path, names: Sequence[str]) -> Shown:
    from dunnage.planning.trucks import read_trucks

    trucks = read_trucks(path, names[3:])
    lines = [f"Trucks      {path}: {len(trucks)} kinds"]
    for truck in trucks[:MOST_COLUMNS]:
        holds = ", ".join(f"{name} {amount:g}" for name, amount in truck.capacity.items())
        count = "any number" if truck.count is None else f"{truck.count}"
        lines.append(f"  {truck.name:<24} {count}, cost {truck.cost:g}; holds {holds}")
    listed = [
        {"truck": truck.name, "count": truck.count, "cost": truck.cost, "capacity": dict(truck.capacity)}
        for truck in trucks
    ]
    return {"kind": "trucks", "trucks": listed}, "\n".join(lines)


def _shown_numbers(path: Path, names: Sequence[str]) -> Shown:
    with path.open(encoding="utf-8", newline="") as source:
        rows = list(csv.DictReader(source))
    chapters = dict(Counter(row["chapter"] for row in rows).most_common(MOST_COLUMNS))
    lines = [
        f"Numbers     {path}: {len(rows)} numbers of the demo's page, and the file and field each is from",
        *(f"  {name:<24} {several(num, 'number')}" for name, num in chapters.items()),
    ]
    return {"kind": "numbers", "chapters": chapters}, "\n".join(lines)


_BY_HEADER: Mapping[tuple[str, ...], Callable[[Path, Sequence[str]], Shown]] = {
    ("row", "bin"): _shown_assignment,
    ("zone", "shuttles"): _shown_fleet,
    ("truck", "count", "cost"): _shown_trucks,
    ("chapter", "name", "value", "text", "file", "field"): _shown_numbers,
}


def shown_city(path: Path) -> Shown:
    """Describe the folder of a city."""
    from dunnage.city import City

    city = City.read_folder(path)
    num_hubs, num_buses = int(city.hubs.sum()) if city.hubs is not None else 0, len(city.buses or ())
    counts = f"{len(city.stops):,} stops, {len(city.zone_names):,} zones, {num_hubs:,} hubs, {num_buses:,} bus rides"
    lines = [
        f"City        {path}: {counts} between hubs",
        f"Times       {'given' if city.times is not None else 'not given; computed from where stops are'}",
        f"Modes       {', '.join(city.mode_names[:MOST_COLUMNS]) if city.modes is not None else 'not given'}",
        *(f"Assumes     {text}" for text in city.assumed),
    ]
    content = {
        "kind": "city",
        "stops": len(city.stops),
        "zones": len(city.zone_names),
        "hubs": num_hubs,
        "buses": num_buses,
        "assumed": list(city.assumed),
    }
    return content, "\n".join(lines)


def shown_feed(path: Path) -> Shown:
    """Describe a GTFS feed, folder or zip: how many lines each file has."""
    from dunnage.gtfs_files import unpacked

    with unpacked(path) as folder:
        counts = {file.name: _num_lines(file) - 1 for file in sorted(folder.iterdir())}
    lines = [f"GTFS feed   {path}", *(f"  {name:<24} {several(num, 'line')}" for name, num in counts.items())]
    lines.append(f"To make a city of it: dunnage generate city -o city --gtfs {path}")
    return {"kind": "feed", "files": counts}, "\n".join(lines)


def _num_lines(path: Path) -> int:
    with path.open("rb") as source:
        return max(sum(1 for line in source if line.strip()), 1)
