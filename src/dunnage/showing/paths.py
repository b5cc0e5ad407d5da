# SPDX-License-Identifier: Apache-2.0
"""shown: tell which kind of file or folder something is, by what is in it, and describe it.

What is shown may come from anybody: files are read with limits, and one that does not have the form of what it seems to
be is refused with a message, whatever is in it.
"""

from __future__ import annotations

import csv
import io
import os
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from dunnage.devices import describe_reports
from dunnage.errors import DunnageError, InputError, ParameterError
from dunnage.showing import devices as of_devices
from dunnage.showing import documents
from dunnage.showing.common import HEAD_BYTES, MOST_BYTES, MOST_TABLE_BYTES, Shown, check_size
from dunnage.showing.texts import policy_text, release_text
from dunnage.tables.reader import EXCEL_ENDINGS, TAB_ENDINGS, ReadOptions, guess_options, read_table
from dunnage.text import several

# --- Tables and places for a person: plans of others, trucks, the columns of a dataset, cities, GTFS feeds.
#
# Of a dataset only names and types of columns are shown, never a value.


MOST_COLUMNS = 200
"""Most columns that are listed."""
_DELIMITERS = ",;\t|"
_FOLDER_FILES = ("certificate.json", "plan.json", "settlement.json", "audit.json", "frontier.json")
_NUMBER = re.compile(r"[+-]?\d+([.,]\d+)*([eE][+-]?\d+)?")


def private_key_of_release(path: Path) -> ParameterError:
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


def shown_workbook(path: Path) -> Shown:
    """Describe the columns of the sheet that holds a table; the first, if several do."""
    table = read_table(path, guess_options(path)).table
    return _columns(path, {item.name: _word(item.type) for item in table.schema})


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
    from dunnage.tables.gtfs import feed_contents

    counts = {
        name: max(sum(1 for line in content.split(b"\n") if line.strip()) - 1, 0)
        for name, content in sorted(feed_contents(path).items())
    }
    lines = [f"GTFS feed   {path}", *(f"  {name:<24} {several(num, 'line')}" for name, num in counts.items())]
    lines.append(f"To make a city of it: dunnage generate city -o city --gtfs {path}")
    return {"kind": "feed", "files": counts}, "\n".join(lines)


DEFAULT_DEVICES = 5_000
"""For how many vehicles errors are predicted."""
_OPENED_WITH = {".html": "a page. Open it in a browser", ".md": "text. Read it as it is"}
_MAIN_FILES = ("plan.json", "audit.json", "settlement.json", "frontier.json")
"""Files that stand for the folder they lie in."""
FILE_KINDS = (
    "policy (.toml)",
    "task, tallies, certificate, datapackage or proof (.json)",
    "reports or sealed records (.jsonl, .bin)",
    "plan, trucks or data (.csv, .parquet)",
    "ledger (.sqlite)",
    "GTFS feed (.zip)",
    "public key (.pem)",
    "allowance",
    "key ring",
)


def shown(path: str | os.PathLike[str], *, devices: int = DEFAULT_DEVICES) -> Shown:
    """Describe any file or folder that commands write or read."""
    place = Path(path)
    try:
        return _shown(place, devices)
    except DunnageError:
        raise
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ParameterError(f"{place} cannot be read: {reason}. Check its name and permissions.") from None
    except (
        ArithmeticError,
        AssertionError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
        csv.Error,
        pa.ArrowException,
    ):
        # Whatever is in it, whoever made it made it so.
        what = "does not have the form of what it seems to be: it was damaged, or made by something else"
        raise InputError(str(place), [f"{what}. Make it anew, or use a copy."]) from None


def _shown(path: Path, devices: int) -> Shown:
    if path.is_dir():
        return _shown_folder(path)
    if not path.exists():
        raise ParameterError(f"{path} does not exist. Give {_kinds()}.")
    if not path.is_file():  # nobody writes into a pipe that waits to be read
        raise ParameterError(f"{path} is neither a file nor a folder. Give {_kinds()}.")
    with path.open("rb") as source:
        head = source.read(HEAD_BYTES)
    if path.name in _MAIN_FILES:
        return _shown_folder(path.parent)
    if (found := _by_content(path, head, devices)) is not None:
        return found
    of_ending: Mapping[str, Callable[[], Shown]] = {
        ".toml": lambda: _shown_policy(path, devices),
        ".sqlite": lambda: _shown_ledger(path),
        ".json": lambda: documents.shown_json(path, devices),
        ".jsonl": lambda: describe_reports(path),
        ".bin": lambda: describe_reports(path),
        ".csv": lambda: shown_csv(path),
        ".tsv": lambda: shown_csv(path),
        ".parquet": lambda: shown_parquet(path),
        ".zip": lambda: shown_feed(path),
        ".pem": lambda: documents.shown_pem(path, head),
    }
    describe = of_ending.get(path.suffix.lower())
    if describe is not None:
        return describe()
    if path.suffix in _OPENED_WITH:
        raise ParameterError(f"{path} is {_OPENED_WITH[path.suffix]}, or show the folder it lies in.")
    raise ParameterError(f"{path} is none of the files that are shown. Give {_kinds()}.")


def _by_content(path: Path, head: bytes, devices: int) -> Shown | None:
    """Describe a file whose first bytes say what it is, whatever its name; None if they do not."""
    if path.name.endswith(".key.parquet"):
        raise private_key_of_release(path)
    if head.startswith(b"PAR1"):
        return shown_parquet(path)
    if head.startswith(b"SQLite format 3\0"):
        return _shown_ledger(path)
    if head.lstrip().startswith(b"-----BEGIN"):
        return documents.shown_pem(path, head)
    if head.startswith(b"PK\x03\x04"):
        return shown_workbook(path) if path.suffix.lower() in EXCEL_ENDINGS else shown_feed(path)
    for kind, describe in of_devices.BY_KIND.items():
        if b'"%s"' % kind.encode() in head[:400]:
            return describe(path, devices)
    return None


def _kinds() -> str:
    folders = ", ".join(dict.fromkeys(what.split(" ", 1)[1] for what, _, _ in _FOLDERS))
    return f"a folder ({folders}) or a file ({'; '.join(FILE_KINDS)})"


def _shown_folder(path: Path) -> Shown:
    for _, markers, describe in _FOLDERS:
        if all((path / marker).is_file() for marker in markers):
            return describe(path)
    lacks = ", ".join(f"{' and '.join(markers)} ({what})" for what, markers, _ in _FOLDERS)
    raise ParameterError(f"{path} is none of the folders that are shown. It has none of {lacks}. Give another.")


def _shown_release(path: Path) -> Shown:
    from dunnage.release import Release, describe_release

    release = Release.read(path)
    return dict(describe_release(release)), release_text(release)


def _shown_plan(path: Path) -> Shown:
    from dunnage.planning.plan import FleetPlan, Plan, told_fleet_plan

    plan: FleetPlan | Plan = FleetPlan.read(path) if told_fleet_plan(path) else Plan.read(path)
    return plan.to_dict(), plan.summary()


def _shown_audit(path: Path) -> Shown:
    from dunnage.auditing.audit import Audit

    found = Audit.read(path)
    return found.to_dict(), found.summary()


def _shown_frontier(path: Path) -> Shown:
    from dunnage.advising.frontier import Frontier

    frontier = Frontier.read(path)
    return frontier.to_dict(), f"{frontier.summary()}\n\nPage: {path / 'frontier.html'}"


def _shown_begun(path: Path) -> Shown:
    what = "a frontier that was begun. Start the same dunnage advise again to go on with it"
    return {"kind": "frontier begun", "folder": str(path)}, f"{path} is {what}."


def _shown_demo(path: Path) -> Shown:
    stories = sorted(item.name for item in path.iterdir() if item.is_dir())[:20]
    report, numbers = path / "report.html", path / "numbers.csv"
    lines = [
        f"Demo        {', '.join(stories) or 'no story'}",
        f"Page        {report} (open it in a browser; it shows true data)",
        f"Numbers     {numbers}: every number of the page, and the file it is from",
    ]
    return {"kind": "demo", "report": str(report), "numbers": str(numbers), "stories": stories}, "\n".join(lines)


_FOLDERS: tuple[tuple[str, tuple[str, ...], Callable[[Path], Shown]], ...] = (
    ("a plan", ("plan.json",), _shown_plan),
    ("an audit", ("audit.json",), _shown_audit),
    ("a settlement", ("settlement.json",), documents.shown_settlement),
    ("a frontier", ("frontier.json",), _shown_frontier),
    ("a release", ("certificate.json",), _shown_release),
    ("a demo", ("report.html", "numbers.csv"), _shown_demo),
    ("a frontier begun", ("points.jsonl",), _shown_begun),
    ("a city", ("stops.csv",), shown_city),
    ("a GTFS feed", ("stops.txt",), shown_feed),
)


def _shown_ledger(path: Path) -> Shown:
    from dunnage.ledger import Ledger

    with Ledger.open_existing(path) as ledger:
        return ledger.to_dict(), ledger.summary()


def _shown_policy(path: Path, devices: int) -> Shown:
    from dunnage.errors import PolicyError
    from dunnage.policy import Policy
    from dunnage.publishing import promise

    try:
        if of_devices.is_device_policy(path):
            return of_devices.shown_device_policy(path, devices)
        policy = Policy.read(path)
    except PolicyError as error:
        return _shown_draft(path, error)
    text = policy_text(policy)
    described: dict[str, object] = {
        "dataset": policy.dataset,
        "attributes": policy.schema.describe(),
        "digest": policy.digest(),
    }
    return {**described, "promise": promise(policy).to_dict()}, text


def _shown_draft(path: Path, error: Any) -> Shown:
    """Say what is blank in a draft; a policy that is wrong in other ways as well says all of it."""
    blank = [problem for problem in error.problems if problem.what.startswith("is blank")]
    if not blank:
        raise error
    others = [problem for problem in error.problems if problem not in blank]
    lines = [
        f"Draft       {path}: {len(blank)} blank",
        *(f"  {problem.where:<28} {problem.remedy}" for problem in blank),
    ]
    lines += ["Also wrong", *(f"  - {problem}" for problem in others)] if others else []
    described = {
        "kind": "draft",
        "blank": [{"key": problem.where, "remedy": problem.remedy} for problem in blank],
        "problems": [str(problem) for problem in others],
    }
    return described, "\n".join(lines)
