# SPDX-License-Identifier: Apache-2.0
"""shown: tell which kind of file or folder something is, by what is in it, and describe it.

What is shown may come from anybody: files are read with limits, and one that does not have the form of what it seems to
be is refused with a message, whatever is in it.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from dunnage.errors import DunnageError, InputError, ParameterError
from dunnage.showing import devices as of_devices
from dunnage.showing import documents, tables
from dunnage.showing.common import HEAD_BYTES, Shown
from dunnage.showing.texts import policy_text, release_text

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
        ".jsonl": lambda: of_devices.shown_reports(path),
        ".bin": lambda: of_devices.shown_reports(path),
        ".csv": lambda: tables.shown_csv(path),
        ".tsv": lambda: tables.shown_csv(path),
        ".parquet": lambda: tables.shown_parquet(path),
        ".zip": lambda: tables.shown_feed(path),
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
        raise tables.private_key_of_release(path)
    if head.startswith(b"PAR1"):
        return tables.shown_parquet(path)
    if head.startswith(b"SQLite format 3\0"):
        return _shown_ledger(path)
    if head.lstrip().startswith(b"-----BEGIN"):
        return documents.shown_pem(path, head)
    if head.startswith(b"PK\x03\x04"):
        return tables.shown_feed(path)
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
    ("a city", ("stops.csv",), tables.shown_city),
    ("a GTFS feed", ("stops.txt",), tables.shown_feed),
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
    described: dict[str, Any] = {
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
