# SPDX-License-Identifier: Apache-2.0
"""shown: tell which kind of file or folder something is, by what is in it, and describe it.

What is shown may come from anybody: files are read with limits, and one that does not have the form of what it seems to
be is refused with a message, whatever is in it. Of a dataset only names and types of columns are shown, never a value.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
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

from dunnage.collecting.files import describe_reports, describe_tallies, read_task_file
from dunnage.collecting.identity import KeyRing, SealedRecord
from dunnage.devices.allowance import Spent
from dunnage.errors import (
    AllowanceError,
    CheckFailed,
    DunnageError,
    InputError,
    ParameterError,
    PolicyError,
    SealError,
    TaskError,
)
from dunnage.model.certificate import MAX_CERTIFICATE_BYTES, Certificate, load_public_key
from dunnage.model.policy import Policy, is_for_devices
from dunnage.publishing import promise
from dunnage.showing.text import device_policy_text, policy_text, release_text, statement_text, task_text, titled
from dunnage.tables.reader import EXCEL_ENDINGS, TAB_ENDINGS, ReadOptions, guess_options, read_table
from dunnage.text import several

Content = Mapping[str, Any]  # JSON that anybody may have written
Shown = tuple[Mapping[str, object], str]  # plain data for programs, and text for a person

DEFAULT_DEVICES = 5_000  # for how many vehicles errors are predicted
HEAD_BYTES = 1 << 16  # how much of a file is looked at to tell its kind
MAX_BYTES, MAX_TABLE_BYTES = 1 << 26, 1 << 28  # largest document, and largest table, that is read whole
MAX_LISTED = 200  # columns, files or other things that are listed
_OPENED_WITH = {".html": "a page. Open it in a browser", ".md": "text. Read it as it is"}
# Files that stand for the folder they lie in.
_MAIN_FILES = ("plan.json", "audit.json", "settlement.json", "frontier.json")
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


_MISSHAPEN = (ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


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
    except (*_MISSHAPEN, csv.Error, pa.ArrowException):
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
    # First bytes say what a file is, whatever its name.
    if path.name.endswith(".key.parquet"):
        raise _private_key(path)
    for start, describe in _BY_START.items():
        if head.lstrip().startswith(start):
            return describe(path)
    for kind, describe in _BY_KIND.items():
        if b'"%s"' % kind.encode() in head[:400]:
            return describe(path)
    if path.suffix.lower() == ".toml":
        return _shown_policy(path, devices)
    if path.suffix.lower() == ".json":
        return _shown_json(path, devices)
    if by_ending := _BY_ENDING.get(path.suffix.lower()):
        return by_ending(path)
    if path.suffix in _OPENED_WITH:
        raise ParameterError(f"{path} is {_OPENED_WITH[path.suffix]}, or show the folder it lies in.")
    raise ParameterError(f"{path} is none of the files that are shown. Give {_kinds()}.")


def _kinds() -> str:
    folders = ", ".join(dict.fromkeys(what.split(" ", 1)[1] for what, _, _ in _FOLDERS))
    return f"a folder ({folders}) or a file ({'; '.join(FILE_KINDS)})"


def _shown_folder(path: Path) -> Shown:
    for _, markers, describe in _FOLDERS:
        if all((path / marker).is_file() for marker in markers):
            return describe(path)
    lacks = ", ".join(f"{' and '.join(markers)} ({what})" for what, markers, _ in _FOLDERS)
    raise ParameterError(f"{path} is none of the folders that are shown. It has none of {lacks}. Give another.")


def _private_key(path: Path) -> ParameterError:
    return ParameterError(f"{path} is a key. It is private and never shown. Show the release folder beside it.")


def _check_size(path: Path, most: int) -> None:
    if path.stat().st_size > most:
        raise InputError(str(path), [f"is larger than {most >> 20} MiB, so it is not read. Check the path."])


def _first(items: Mapping[str, Any]) -> dict[str, Any]:
    """Return the first entries, as many as are listed."""
    return dict(list(items.items())[:MAX_LISTED])


# Tables: plans of others, trucks, a demo's numbers, the columns of a dataset


_DELIMITERS = ",;\t|"
_FOLDER_FILES = ("certificate.json", *_MAIN_FILES)
_NUMBER = re.compile(r"[+-]?\d+([.,]\d+)*([eE][+-]?\d+)?")


def _shown_csv(path: Path) -> Shown:
    """Describe a CSV file: a plan that anybody made, trucks, a demo's numbers, or else its columns."""
    policy = _policy_beside(path)
    options = read_options_of(policy) if policy else None
    names, sample, delimiter = _header(path, options)
    for header, describe in _BY_HEADER.items():
        if tuple(names[: len(header)]) == header:
            _check_size(path, MAX_TABLE_BYTES)
            return describe(path, names)
    if all(_NUMBER.fullmatch(name) or not name for name in names):
        raise InputError(str(path), ["its first line holds values, not names of columns. Put a header line before it."])
    how = f", as [read] in {policy} says to read them" if options else ""
    kinds = _types(names, sample, delimiter, options.decimal if options else ".")
    return _columns(path, kinds, f"types are guessed from the first lines{how}; ")


def _policy_beside(path: Path) -> Path | None:
    """Return the policy or draft of the same name beside a file, if there is one."""
    places = (path.with_suffix(".toml"), path.with_name(path.name.split(".")[0] + ".toml"))
    return next((place for place in places if place.is_file()), None)


def read_options_of(policy: Path) -> ReadOptions | None:
    """Return how a policy says that its data are written; None if it does not say, or cannot be read."""
    try:
        _check_size(policy, MAX_BYTES)
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
    text = content.decode("latin-1")
    for encoding in ("utf-8-sig", options.encoding if options else "utf-8-sig"):  # the last that fits
        try:
            text = content.decode(encoding).removeprefix("\ufeff")
        except UnicodeError:
            continue
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


def _types(names: Sequence[str], sample: str, delimiter: str, decimal: str) -> Mapping[str, str]:
    """Find the type of each column from the first lines."""
    parse = pacsv.ParseOptions(delimiter=delimiter, newlines_in_values=True, invalid_row_handler=lambda row: "skip")
    convert = pacsv.ConvertOptions(decimal_point=decimal)
    try:
        table = pacsv.read_csv(pa.BufferReader(sample.encode()), parse_options=parse, convert_options=convert)
    except (pa.ArrowException, ValueError):
        return dict.fromkeys(names, "")
    kinds = {item.name.strip(): _word(item.type) for item in table.schema}
    return {name: kinds.get(name, "") for name in names}


def _word(kind: pa.DataType) -> str:
    tests: Mapping[str, Sequence[Callable[[pa.DataType], bool]]] = {
        "number": (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal),
        "time": (pa.types.is_temporal,),
        "text": (pa.types.is_string, pa.types.is_large_string, pa.types.is_dictionary),
        "yes or no": (pa.types.is_boolean,),
        "empty": (pa.types.is_null,),
    }
    return next((word for word, kinds in tests.items() if any(test(kind) for test in kinds)), str(kind)[:40])


def _columns(path: Path, kinds: Mapping[str, str], how: str = "") -> Shown:
    listed = _first(kinds)
    lines = [f"Table       {path}: {len(kinds)} columns; {how}values are never shown"]
    lines += [f"  {name:<24} {kind}".rstrip() for name, kind in listed.items()]
    lines += [f"  ... and {len(kinds) - len(listed)} more"] if len(kinds) > len(listed) else []
    # What to do with a table, by what lies beside it.
    if any((path.parent / name).is_file() for name in _FOLDER_FILES):
        lines.append(f"It is one file of a folder: dunnage show {path.parent}")
    elif policy := _policy_beside(path):
        lines.append(f"To publish it under the policy beside it: dunnage publish {path} --policy {policy} -o release")
    else:
        lines.append(f"To publish it, draft a policy: dunnage draft {path} -o {path.name.split('.')[0]}.toml")
    return {"kind": "table", "columns": listed}, "\n".join(lines)


def _shown_parquet(path: Path) -> Shown:
    """Describe the columns of a Parquet file; a key is refused."""
    try:
        schema = pq.read_schema(path)
    except (pa.ArrowException, OSError, ValueError, RecursionError):
        what = "is not a readable Parquet file. It was cut off or damaged: use a copy."
        raise InputError(str(path), [what]) from None
    if b"dunnage.key" in (schema.metadata or {}):
        raise _private_key(path)
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
    lines += [f"Zone        {zone}: {num}" for zone, num in _first(fleet).items()]
    return {"kind": "fleet", "status": "external", "fleet": fleet}, "\n".join(lines)


def _shown_trucks(path: Path, names: Sequence[str]) -> Shown:
    from dunnage.planning.trucks import read_trucks

    trucks = read_trucks(path, names[3:])
    lines, listed = [f"Trucks      {path}: {len(trucks)} kinds"], []
    for truck in trucks:
        holds = ", ".join(f"{name} {amount:g}" for name, amount in truck.capacity.items())
        count = "any number" if truck.count is None else f"{truck.count}"
        lines.append(f"  {truck.name:<24} {count}, cost {truck.cost:g}; holds {holds}")
        listed.append({"truck": truck.name, "count": truck.count, "cost": truck.cost, "capacity": dict(truck.capacity)})
    return {"kind": "trucks", "trucks": listed}, "\n".join(lines[: MAX_LISTED + 1])


def _shown_numbers(path: Path, names: Sequence[str]) -> Shown:
    with path.open(encoding="utf-8", newline="") as source:
        rows = list(csv.DictReader(source))
    chapters = dict(Counter(row["chapter"] for row in rows).most_common(MAX_LISTED))
    lines = [f"Numbers     {path}: {len(rows)} numbers of the demo's page, and the file and field each is from"]
    lines += [f"  {name:<24} {several(num, 'number')}" for name, num in chapters.items()]
    return {"kind": "numbers", "chapters": chapters}, "\n".join(lines)


_BY_HEADER: Mapping[tuple[str, ...], Callable[[Path, Sequence[str]], Shown]] = {
    ("row", "bin"): _shown_assignment,
    ("zone", "shuttles"): _shown_fleet,
    ("truck", "count", "cost"): _shown_trucks,
    ("chapter", "name", "value", "text", "file", "field"): _shown_numbers,
}


# Folders


def _shown_release(path: Path) -> Shown:
    from dunnage.release import Release, describe_release

    release = Release.read(path)
    return dict(describe_release(release)), release_text(release)


def _shown_plan(path: Path) -> Shown:
    from dunnage.planning.plan import FleetPlan, Plan, told_fleet_plan

    plan: FleetPlan | Plan = FleetPlan.read(path) if told_fleet_plan(path) else Plan.read(path)
    return plan.to_dict(), plan.summary()


def _shown_settlement(path: Path) -> Shown:
    """Describe a settlement for its owner, of packages or of shuttles."""
    from dunnage.settle.fleets import FleetSettlementDocument, read_settlement

    settled = read_settlement(path)
    of_fleet = isinstance(settled, FleetSettlementDocument)
    what = "it tells of true trips" if of_fleet else "loading.csv and loads.csv tell of true packages"
    return settled.plain(), f"{settled.text()}\nPrivate     {what}; keep it to yourself"


def _shown_audit(path: Path) -> Shown:
    from dunnage.auditing.run import Audit

    audit = Audit.read(path)
    return audit.to_dict(), audit.summary()


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


def _shown_city(path: Path) -> Shown:
    from dunnage.model.city import City

    city = City.read_folder(path)
    num_hubs, num_buses = int(city.hubs.sum()) if city.hubs is not None else 0, len(city.buses or ())
    counts = f"{len(city.stops):,} stops, {len(city.zone_names):,} zones, {num_hubs:,} hubs, {num_buses:,} bus rides"
    lines = [
        f"City        {path}: {counts} between hubs",
        f"Times       {'given' if city.times is not None else 'not given; computed from where stops are'}",
        f"Modes       {', '.join(city.mode_names[:MAX_LISTED]) if city.modes is not None else 'not given'}",
        *(f"Assumes     {text}" for text in city.assumed),
    ]
    numbers = {"stops": len(city.stops), "zones": len(city.zone_names), "hubs": num_hubs, "buses": num_buses}
    return {"kind": "city", **numbers, "assumed": list(city.assumed)}, "\n".join(lines)


def _shown_feed(path: Path) -> Shown:
    """Describe a GTFS feed, folder or zip: how many lines each file has; or a workbook, which is a zip too."""
    from dunnage.tables.gtfs import feed_contents

    if path.suffix.lower() in EXCEL_ENDINGS:  # of several sheets that hold a table, the first
        table = read_table(path, guess_options(path)).table
        return _columns(path, {item.name: _word(item.type) for item in table.schema})
    counts = {
        name: max(sum(1 for line in content.split(b"\n") if line.strip()) - 1, 0)
        for name, content in sorted(feed_contents(path).items())
    }
    lines = [f"GTFS feed   {path}", *(f"  {name:<24} {several(num, 'line')}" for name, num in counts.items())]
    lines.append(f"To make a city of it: dunnage generate city -o city --gtfs {path}")
    return {"kind": "feed", "files": counts}, "\n".join(lines)


_FOLDERS: tuple[tuple[str, tuple[str, ...], Callable[[Path], Shown]], ...] = (
    ("a plan", ("plan.json",), _shown_plan),
    ("an audit", ("audit.json",), _shown_audit),
    ("a settlement", ("settlement.json",), _shown_settlement),
    ("a frontier", ("frontier.json",), _shown_frontier),
    ("a release", ("certificate.json",), _shown_release),
    ("a demo", ("report.html", "numbers.csv"), _shown_demo),
    ("a frontier begun", ("points.jsonl",), _shown_begun),
    ("a city", ("stops.csv",), _shown_city),
    ("a GTFS feed", ("stops.txt",), _shown_feed),
)


# Documents: a certificate by itself, a datapackage, a proof, figures of a demo, a task


def _shown_json(path: Path, devices: int) -> Shown:
    _check_size(path, MAX_BYTES)
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise InputError(str(path), ["is not JSON. It was cut off or damaged: use a copy, or make it anew."]) from None
    is_table = isinstance(content, dict)
    if is_table and content.keys() >= {"basis", "guarantee", "digest"}:
        return _shown_certificate(path)
    if is_table and isinstance(content.get("resources"), list):
        return _shown_datapackage(path, content)
    for fields, describe in _BY_FIELDS.items():
        if is_table and content.keys() >= fields:
            return describe(path, content)
    try:
        task = read_task_file(path)
    except TaskError as error:
        if is_table and content.get("kind") == "dunnage task":
            raise
        raise ParameterError(
            f"{path} is neither a certificate nor a datapackage, a proof, a file of tallies nor a task: {error}"
        ) from None
    described = {"digest": task.digest, "devices": devices, "task": json.loads(task.to_json())}
    return described, task_text(task, devices)


def _shown_certificate(path: Path) -> Shown:
    """Describe a certificate by itself; whether the other files fit it is not looked at."""
    _check_size(path, MAX_CERTIFICATE_BYTES)
    try:
        certificate = Certificate.from_bytes(path.read_bytes())
    except CheckFailed as error:  # a file that cannot be read: nothing was asked to be checked
        raise InputError(str(path.parent), [str(error)]) from None
    period = f", period {certificate.period}" if certificate.period is not None else ""
    signer = certificate.signature.public_key if certificate.signature is not None else None
    lines = [
        titled(f"Certificate of {certificate.dataset}{period}"),
        statement_text(certificate),
        f"Signed      {f'by {signer}; not checked here' if signer else 'no'}",
        f"Files       {', '.join(sorted(certificate.files)[:MAX_LISTED])}; not checked here",
        f"Digest      {certificate.digest}",
        "Check it all with dunnage verify FOLDER.",
    ]
    stated = {name: value for name, value in certificate.plain().items() if name != "signature"}
    return {**stated, "digest": certificate.digest, "signed_by": signer}, "\n".join(lines)


def _shown_datapackage(path: Path, content: Content) -> Shown:
    """Describe a datapackage: its tables, and the columns of each."""
    lines = [f"Datapackage {content.get('name', path.name)}: what is in which column, for programs"]
    resources = []
    for item in content["resources"][:MAX_LISTED]:
        fields = item.get("schema", {}).get("fields", [])[:MAX_LISTED]
        columns = {str(field["name"]): str(field.get("type", "")) for field in fields}
        lines.append(f"Table       {item['path']}")
        lines += [f"  {name:<24} {kind}".rstrip() for name, kind in columns.items()]
        resources.append({"path": str(item["path"]), "columns": columns})
    lines.append("The release it belongs to says what it promises: show its folder.")
    return {"kind": "datapackage", "resources": resources}, "\n".join(lines)


def _shown_proof(path: Path, content: Content) -> Shown:
    """Describe what ``dunnage prove --json`` printed, or a demo kept of it: the table of verdicts."""
    from dunnage.model.documents import check
    from dunnage.proving.verdict import Proof, Verdict

    rows = content["mechanisms"][:MAX_LISTED]
    verdicts = tuple(check(row, Verdict, path, what="a proof", remedy="Run dunnage prove --json anew.") for row in rows)
    proof = Proof(verdicts=verdicts, seconds=float(content.get("seconds", sum(item.seconds for item in verdicts))))
    return {"kind": "proof", **proof.to_dict()}, f"Proof       {path}: a copy, not run again\n\n{proof.summary()}"


def _shown_worst_cases(path: Path, content: Content) -> Shown:
    """Describe the worst cases that a demo found of one mechanism, of which it compares forms."""
    claimed = float(content["claimed"])
    lines = [
        f"Proof       {path}: {content['mechanism']}, epsilon {claimed:g} claimed",
        f"How         {content['how']}",
    ]
    for form, value in _first(content["measured"]).items():
        holds = value is not None and float(value) <= claimed * (1 + 1e-9)
        loss = "no bound" if value is None else f"epsilon {float(value):.4g}"
        lines.append(f"  {form:<24} {loss}: {'holds' if holds else 'fails'}")
    return {"kind": "proof", **content}, "\n".join(lines)


def _shown_figures(path: Path, content: Content) -> Shown:
    """Describe the figures that a demo worked out from other files."""
    figures = _first(content["figures"])
    lines = [f"Figures     {path}: worked out for the demo's page; numbers.csv lists all of its numbers"]
    lines += [f"  {name}: {item['value']} ({item['how']})" for name, item in figures.items()]
    return {"kind": "figures", "figures": figures}, "\n".join(lines)


def _shown_utility(path: Path, content: Content) -> Shown:
    """Describe what plans of a demo cost beside the one on true weights."""
    lines = [f"Utility     {path}: what each plan costs beside the one on true weights"]
    for name, item in _first(content["plans"]).items():
        lines.append(f"  {name:<24} {item['objective']} trucks, {item['optimum']} needed")
    return {"kind": "utility", **content}, "\n".join(lines)


# By fields that no other document has together.
_BY_FIELDS: Mapping[frozenset[str], Callable[[Path, Content], Shown]] = {
    frozenset({"mechanisms"}): _shown_proof,
    frozenset({"mechanism", "claimed", "measured", "how"}): _shown_worst_cases,
    frozenset({"format", "figures"}): _shown_figures,
    frozenset({"format", "capacity", "plans"}): _shown_utility,
}


def _shown_pem(path: Path) -> Shown:
    """Describe a public key; a private one is refused."""
    with path.open("rb") as source:
        if b"PRIVATE KEY" in source.read(HEAD_BYTES):
            raise ParameterError(
                f"{path} is a private key, which is never shown. Show its public half: "
                f"openssl pkey -in {path} -pubout -out {path.stem}.pub.pem"
            )
    raw = load_public_key(path)
    fingerprint = hashlib.sha256(raw).hexdigest()
    lines = [
        f"Public key  {raw.hex()} (Ed25519), as a signed certificate names it",
        f"SHA-256     {fingerprint}",
        f"Check with  dunnage verify RELEASE --signed-by {path}",
    ]
    content = {"kind": "public key", "algorithm": "ed25519", "public_key": raw.hex(), "sha256": fingerprint}
    return content, "\n".join(lines)


def _shown_ledger(path: Path) -> Shown:
    from dunnage.ledger import Ledger

    with Ledger.open_existing(path) as ledger:
        return ledger.to_dict(), ledger.summary()


# Policies, and drafts of them


def _shown_policy(path: Path, devices: int) -> Shown:
    try:
        if _is_device_policy(path):
            return device_policy_text(path, devices)
        policy = Policy.read(path)
    except PolicyError as error:
        return _shown_draft(path, error)
    text = policy_text(policy)
    described: dict[str, object] = {
        "dataset": policy.dataset,
        "attributes": policy.schema.describe(),
        "digest": policy.digest(),
        "promise": promise(policy).to_dict(),
    }
    return described, text


def _is_device_policy(path: Path) -> bool:
    """Tell whether a file is a policy for devices; one that cannot be read is left to others to complain about."""
    try:
        return is_for_devices(tomllib.loads(path.read_text(encoding="utf-8-sig")))
    except (OSError, ValueError, ArithmeticError, RecursionError):
        return False


def _shown_draft(path: Path, error: PolicyError) -> Shown:
    """Say what is blank in a draft; a policy that is wrong in other ways as well says all of it."""
    blank = [problem for problem in error.problems if problem.what.startswith("is blank")]
    if not blank:
        raise error
    others = [problem for problem in error.problems if problem not in blank]
    lines = [f"Draft       {path}: {len(blank)} blank"]
    lines += [f"  {problem.where:<28} {problem.remedy}" for problem in blank]
    lines += ["Also wrong", *(f"  - {problem}" for problem in others)] if others else []
    described = {
        "kind": "draft",
        "blank": [{"key": problem.where, "remedy": problem.remedy} for problem in blank],
        "problems": [str(problem) for problem in others],
    }
    return described, "\n".join(lines)


# What belongs to devices: key rings, sealed records, allowances


def _shown_ring(path: Path) -> Shown:
    """Say which keys a ring has, never the keys themselves."""
    keys = ring_keys(KeyRing.read(path))
    lines = [f"Key ring    {path} (private; keep a copy: without it nothing opens)", *ring_lines(keys)]
    return {"kind": "key ring", "keys": keys}, "\n".join(lines)


def ring_keys(ring: KeyRing) -> list[dict[str, str]]:
    return [
        {"id": key.key_id, "algorithm": key.algorithm, "created": key.created, "state": key.state} for key in ring.keys
    ]


def ring_lines(keys: list[dict[str, str]]) -> list[str]:
    return [f"  {key['id']}  {key['algorithm']:<11}  {key['created']}  {key['state']}" for key in keys]


def _shown_sealed(path: Path) -> Shown:
    """Count sealed records by the key that opens them; aliases are not listed."""
    _check_size(path, MAX_TABLE_BYTES)
    counts: Counter[str] = Counter()
    with path.open("rb") as source:
        for number, line in enumerate(source, 1):
            if line.strip():
                try:
                    counts[SealedRecord.from_json(json.dumps(json.loads(line)["sealed"])).key_id] += 1
                except (ValueError, KeyError, TypeError, RecursionError, SealError):
                    what = f"line {number} is no sealed record, or is cut off. Use a copy."
                    raise InputError(str(path), [what]) from None
    lines = [f"Sealed      {counts.total():,} identity records"]
    lines += [f"  key {key}: {num:,}" for key, num in counts.items()]
    lines.append(f"To open them: dunnage device open {path} --keys RING -o RECORDS.csv")
    return {"kind": "sealed records", "records": counts.total(), "keys": dict(counts)}, "\n".join(lines)


def _shown_allowance(path: Path) -> Shown:
    """Say what a vehicle has spent; what it reported stays in the file."""
    _check_size(path, MAX_BYTES)
    line, _, checksum = path.read_bytes().partition(b"\n")
    try:
        if checksum != b"sha256 %s\n" % hashlib.sha256(line).hexdigest().encode():
            raise ValueError
        book = json.loads(line)
        spent = {str(name): str(Spent.from_list(item)) for name, item in book["lifetime"].items()}
        tier, task, days = str(book["tier"]), str(book["task"]), len(book["days"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, ArithmeticError):
        raise AllowanceError(f"the allowance {path} is damaged. Use the vehicle's copy, if there is one.") from None
    lines = [
        f"Allowance   {path}, of one vehicle in tier {tier} (private)",
        f"Task        {task}",
        *(f"Spent       {name}: {words}" for name, words in spent.items()),
        f"Open days   {days}",
    ]
    return {"kind": "allowance", "tier": tier, "task": task, "spent": spent, "open_days": days}, "\n".join(lines)


_Describe = Callable[[Path], Shown]
_BY_START: Mapping[bytes, _Describe] = {
    b"PAR1": _shown_parquet,
    b"SQLite format 3\0": _shown_ledger,
    b"-----BEGIN": _shown_pem,
    b"PK\x03\x04": _shown_feed,
}
# By the kind that a file names near its beginning.
_BY_KIND: Mapping[str, _Describe] = {
    "dunnage tallies": describe_tallies,
    "dunnage key ring": _shown_ring,
    "dunnage sealed record": _shown_sealed,
    "dunnage allowance": _shown_allowance,
}
_BY_ENDING: Mapping[str, _Describe] = {
    ".sqlite": _shown_ledger,
    ".jsonl": describe_reports,
    ".bin": describe_reports,
    ".csv": _shown_csv,
    ".tsv": _shown_csv,
    ".parquet": _shown_parquet,
    ".zip": _shown_feed,
    ".pem": _shown_pem,
}
