# SPDX-License-Identifier: Apache-2.0
"""Read tasks, reports and tallies from files, and bring together what estimates are made of."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict, cast

from dunnage.devices.perturbing import day_text
from dunnage.errors import InputError, Problem, ReportError, TaskError
from dunnage.local.client import check_task, mechanism_of
from dunnage.local.report import MOST_BAD_NAMED, ReportFile
from dunnage.local.tally import (
    FORMAT,
    TALLIES_KIND,
    Tallies,
    Tally,
    TallyData,
    check_tally,
    repeated_problem,
    tally_digest,
)
from dunnage.local.task import MOST_BYTES, Task

MOST_TALLY_BYTES = 1 << 30


class _Tallies(TypedDict):
    task: str
    tallies: list[TallyData]


def read_task_file(path: str | os.PathLike[str]) -> Task:
    """Read the task file that ``dunnage device task`` wrote."""
    file = Path(path)
    try:
        with file.open("rb") as source:
            content = source.read(MOST_BYTES + 1)
    except OSError as error:
        raise TaskError(f"the task {file} cannot be read: {error.strerror}. Name a task file.") from None
    if file.suffix == ".toml":
        raise TaskError(f"{file} is a policy, not a task. Make its task with dunnage device task {file} -o TASK.json.")
    task = Task.from_json(content)
    check_task(task)
    return task


@dataclass(kw_only=True)
class Collected:
    """What came in for a task."""

    tallies: Tallies  # What is kept of the reports
    num_read: int = 0  # Reports that were read, and those held by files of tallies
    left_out: Counter[str] = field(default_factory=Counter)  # Reports that were not counted, by kind
    first_bad: list[str] = field(default_factory=list)  # Where the first of them were, and why
    warnings: list[str] = field(default_factory=list)  # What else is to be known
    _seen: set[str] = field(default_factory=set, repr=False)

    @property
    def num_reports(self) -> int:
        return self.tallies.num_reports

    def to_dict(self) -> dict[str, object]:
        return {
            "reports": self.num_reports,
            "left_out": dict(self.left_out),
            "first_bad": self.first_bad,
            "warnings": self.warnings,
        }

    def lines(self) -> list[str]:
        """Say what was left out, for a person."""
        return [f"{_KINDS[kind]}: {num:,}" for kind, num in sorted(self.left_out.items())]


_KINDS = {
    "damaged": "damaged, cut off or no report at all",
    "other_task": "made for another task, or another version of it",
    "impossible": "no device of this task can have made it",
    "duplicate": "sent again, and counted once",
    "conflicting": "with the id of another report, but other content",
}
TALLIES_AND_OTHERS = (
    "tallies hold no ids: whether a report in one is also in another of the files cannot be told, and it would count "
    "twice. See to it that the files are of different reports"
)


def collect(
    paths: Sequence[str | os.PathLike[str]], task: Task, *, progress: Callable[[str], None] | None = None
) -> Collected:
    """Bring together reports and tallies of a task.

    Parameters
    ----------
    paths
        Report files (``.jsonl``, ``.bin``) and files of tallies (``.json``).
    task
        The task they must be of.
    progress
        Called with what is being done.

    Raises
    ------
    InputError
        If a file cannot be read, or a tally came before.
    ReportError
        If no report counts.
    """
    found = Collected(tallies=Tallies(task))
    told = progress or (lambda stage: None)
    for path in paths:
        if not str(path).endswith(".json"):
            _add_reports(found, ReportFile(path), told)
            continue
        for names, tally in read_tallies(path, task).by_tier.items():
            digest = tally_digest(tally)  # before anything is merged into it
            if tally.num_reports and digest in found._seen:
                raise InputError(str(path), [repeated_problem(tally)])
            found._seen.add(digest)
            found.num_read += tally.num_reports
            if names in found.tallies.by_tier:
                found.tallies.by_tier[names].merge(tally)
            else:
                found.tallies.by_tier[names] = tally
    tallies = found.tallies
    counts = {"duplicate": tallies.num_duplicates, "conflicting": tallies.num_conflicting}
    found.left_out.update({kind: num for kind, num in counts.items() if num})
    if not found.num_reports:
        if not found.left_out:
            raise ReportError(
                "there is no report. Got empty files. Name files that devices or dunnage device simulate wrote."
            )
        bad, first = "; ".join(found.lines()), f" The first: {found.first_bad[0]}" if found.first_bad else ""
        raise ReportError(f"no report can be used. Got {bad}. Name the task they were made for.{first}")
    if len(paths) > 1 and any(str(path).endswith(".json") for path in paths):
        found.warnings.append(TALLIES_AND_OTHERS)
    return found


def _add_reports(found: Collected, file: ReportFile, told: Callable[[str], None]) -> None:
    tallies, prefix = found.tallies, found.tallies.task.prefix
    for report in file:
        found.num_read += 1
        if found.num_read % 10_000 == 0:
            told(f"reading: {found.num_read:,} reports")
        before = tallies.num_bad
        if report.task != prefix:
            found.left_out["other_task"] += 1
            _name(found, f"{file.path}: made for another task")
        elif not tallies.add(report) and tallies.num_bad > before:
            found.left_out["impossible"] += 1
            _name(found, f"{file.path}: {tallies.first_bad[-1]}")
    if file.num_bad:
        found.left_out["damaged"] += file.num_bad
        for bad in file.first_bad:
            _name(found, f"{file.path}, {bad}")


def _name(found: Collected, text: str) -> None:
    if len(found.first_bad) < MOST_BAD_NAMED:
        found.first_bad.append(text)


def read_tallies(path: str | os.PathLike[str], task: Task) -> Tallies:
    """Read a file of tallies strictly: nothing that reports of the task cannot add up to."""
    data = _tally_content(Path(path))
    if data.get("task") != task.digest:
        raise _no_tallies(path, "was made for another task", "Name the task it was made for.")
    tallies = Tallies(task)
    for item in data["tallies"]:
        tally = Tally.from_dict(item)
        names = tally.purpose, tally.tier
        if names in tallies.by_tier:
            raise _no_tallies(path, "holds a purpose and tier twice", "Write it again.")
        purposes = [purpose for purpose in task.purposes if purpose.name == tally.purpose]
        if not purposes or tally.tier not in [tier.name for tier in purposes[0].tiers]:
            raise _no_tallies(path, "holds a purpose or tier that the task does not have", "Write it again.")
        try:
            check_tally(mechanism_of(task, purposes[0]), tally)
        except InputError as error:
            raise InputError(str(path), error.problems) from None
        tallies.by_tier[names] = tally
    return tallies


def _tally_content(path: Path) -> _Tallies:
    try:
        with path.open("rb") as source:
            content = source.read(MOST_TALLY_BYTES + 1)
        data = json.loads(content) if len(content) <= MOST_TALLY_BYTES else None
    except OSError as error:
        raise _no_tallies(path, f"cannot be read: {error.strerror}", "Name a file of reports or tallies.") from None
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict) or data.get("kind") != TALLIES_KIND or not isinstance(data.get("tallies"), list):
        raise _no_tallies(path, "is damaged, or no file of tallies", "Name one that --tally wrote.")
    if data.get("format") != FORMAT:
        raise _no_tallies(path, "has a format that is not known here", "Update Dunnage, or write it again.")
    return cast("_Tallies", data)


def _no_tallies(path: str | os.PathLike[str], what: str, remedy: str) -> InputError:
    return InputError(str(path), [Problem(what, remedy=remedy)])


# For people


def describe_reports(path: str | os.PathLike[str]) -> tuple[dict[str, object], str]:
    """Describe a report file without its task: how many reports of which task, purpose, tier and days it has."""
    file = ReportFile(path)
    counts: Counter[tuple[str, int, int]] = Counter()
    days: list[int] = []
    num_bytes = 0
    for report in file:
        counts[report.task.hex(), report.purpose, report.tier] += 1
        days = [report.day, report.day] if not days else [min(days[0], report.day), max(days[1], report.day)]
        num_bytes += len(report.payload)
    groups = [
        {"task": task, "purpose": purpose, "tier": tier, "reports": num}
        for (task, purpose, tier), num in sorted(counts.items())
    ]
    shown_days = [day_text(day) for day in days]
    lines = [f"Reports   {file.num_read:,}" + (f", {shown_days[0]} to {shown_days[1]}" if days else "")]
    lines += [f"  task {g['task']}, purpose {g['purpose']}, tier {g['tier']}: {g['reports']:,}" for g in groups]
    lines += [f"Payload   {num_bytes / file.num_read:.1f} bytes each"] if file.num_read else []
    lines += [f"Damaged   {file.num_bad:,}", *(f"  {bad}" for bad in file.first_bad)] if file.num_bad else []
    described = {"reports": file.num_read, "days": shown_days, "groups": groups, "damaged": file.num_bad}
    return described, "\n".join(lines)


def describe_tallies(path: str | os.PathLike[str]) -> tuple[dict[str, object], str]:
    data = _tally_content(Path(path))
    tallies = [Tally.from_dict(item) for item in data["tallies"]]
    groups = [{"purpose": t.purpose, "tier": t.tier, "reports": t.num_reports} for t in tallies]
    total = sum(tally.num_reports for tally in tallies)
    task = str(data.get("task"))[:16]
    lines = [f"Tallies   of {total:,} reports, task {task}"]
    lines += [f"  {tally.purpose}, tier {tally.tier}: {tally.num_reports:,}" for tally in tallies]
    return {"reports": total, "task": data.get("task"), "groups": groups}, "\n".join(lines)
