# SPDX-License-Identifier: Apache-2.0
"""Projects of the studio: a folder each, and a list of changes of which every one can be taken back.

====================  =============================================================  ===================
in a project's folder what it is                                                     who may reach it
====================  =============================================================  ===================
``data/``             uploaded files, by number; their own names are labels only     owner
``policies/``         every version of the policy; none is ever changed              owner, officer
``releases/``         releases with their keys beside them, as ``publish`` writes    owner
``plans/`` ...        settlements and audits                                         owner
``public/releases/``  copies of the releases, without keys: what has left            planner and others
``public/plans/``     plans that were made on them                                   planner and others
``public/cities/``    cities and trucks that a planner uploaded                      planner
====================  =============================================================  ===================

Every change names the version it was made on; if another change came first, it is a :class:`Conflict`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
import time
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from dunnage.collecting.store import Database
from dunnage.errors import InputError, ParameterError, Refusal
from dunnage.publication import KEY_ENDING
from dunnage.release import CERTIFICATE_FILE
from dunnage.serving.web import HttpError

TABLES = """
CREATE TABLE IF NOT EXISTS projects (id TEXT PRIMARY KEY, name TEXT NOT NULL, version INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS changes (project TEXT NOT NULL, version INTEGER NOT NULL, what TEXT NOT NULL,
    by_whom TEXT NOT NULL, at INTEGER NOT NULL, policy INTEGER NOT NULL, data INTEGER NOT NULL, settings TEXT NOT NULL,
    PRIMARY KEY (project, version));
CREATE TABLE IF NOT EXISTS files (project TEXT NOT NULL, number INTEGER NOT NULL, label TEXT NOT NULL,
    name TEXT NOT NULL, bytes INTEGER NOT NULL, at INTEGER NOT NULL, digest TEXT NOT NULL,
    PRIMARY KEY (project, number));
"""
PRIVATE_FOLDERS = ("data", "policies", "releases", "settlements", "audits", "previews", "received")
PUBLIC_FOLDERS = ("public/releases", "public/plans", "public/cities")
_ID = re.compile(r"[a-z0-9]{12,20}")
_LABEL = re.compile(r"[^\w .,()+-]")
SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,80}")


class Conflict(Refusal):
    """Somebody else changed the project first."""

    def __init__(self, project: Project, version: int) -> None:
        super().__init__("Somebody else changed this project after you opened the page. Nothing of yours was kept yet.")
        self.project, self.version = project, version


@dataclass(frozen=True)
class Change:
    version: int
    what: str
    by: str
    at: int
    policy: int  # number of the policy file; 0: none yet
    data: int  # number of the uploaded file; 0: none yet
    settings: dict[str, str]  # what the studio asks beyond the policy: capacity, period ...


@dataclass(frozen=True)
class File:
    number: int
    label: str  # its own name, for people
    name: str  # where it is: data/1.csv
    bytes: int
    at: int
    digest: str  # SHA-256: shows that a file is the same again


@dataclass(frozen=True)
class Project:
    id: str
    name: str
    folder: Path
    now: Change

    @property
    def version(self) -> int:
        return self.now.version

    @property
    def settings(self) -> dict[str, str]:
        return self.now.settings

    @property
    def policy(self) -> str:
        """The file of the current policy, relative to the folder."""
        return policy_name(self.now.policy)

    def policy_text(self, number: int | None = None) -> str:
        number = self.now.policy if number is None else number
        return (self.folder / policy_name(number)).read_text(encoding="utf-8") if number else ""

    @property
    def releases(self) -> list[str]:
        """Names of complete releases, the newest first."""
        folder = self.folder / "releases"
        made = [path for path in folder.iterdir() if (path / CERTIFICATE_FILE).is_file() and SAFE.fullmatch(path.name)]
        made.sort(key=lambda path: (path / CERTIFICATE_FILE).stat().st_mtime_ns, reverse=True)
        return [path.name for path in made]

    def hand_over(self) -> None:
        """Copy releases that are complete to where planners may read; keys and everything else stay."""
        for name in self.releases:
            target = self.folder / "public/releases" / name
            if not target.exists():
                work = target.with_name(f".{name}.{secrets.token_hex(6)}")
                shutil.copytree(self.folder / "releases" / name, work)
                with contextlib.suppress(OSError):  # another request was first
                    os.rename(work, target)
                shutil.rmtree(work, ignore_errors=True)

    def inside(self, place: str, *names: str) -> Path:
        """Return a folder, or with two names a file, in one of the places; whatever leaves it is not there."""
        known = place in PRIVATE_FOLDERS + PUBLIC_FOLDERS and all(map(SAFE.fullmatch, names))
        path = self.folder.joinpath(place, *names) if known else self.folder / "none"
        inside = path.resolve().is_relative_to((self.folder / place).resolve()) if known else False
        if not inside or not (path.is_dir() if len(names) == 1 else path.is_file()):
            raise HttpError(404, "no_file", "There is no such file.")
        return path

    def free_name(self, place: str, wanted: str, taken: set[str] | frozenset[str] = frozenset()) -> str:
        """Return a name that nothing in a folder has, and no stopped run wanted."""
        base = re.sub(r"[^A-Za-z0-9-]+", "-", wanted).strip("-")[:40] or "release"
        number, name = 1, base
        while name in taken or (self.folder / place / name).exists() or self._is_key(place, name):
            number += 1
            name = f"{base}-{number}"
        return name

    def _is_key(self, place: str, name: str) -> bool:
        return (self.folder / place / (name + KEY_ENDING)).exists()


def policy_name(number: int) -> str:
    return f"policies/{number:04}.toml"


class Projects:
    def __init__(self, book: Database, folder: Path) -> None:
        self._book, self._folder = book, folder
        folder.mkdir(mode=0o700, exist_ok=True)

    def create(self, name: str, by: str) -> Project:
        project = f"{time.time_ns() // 1_000_000:011x}{secrets.token_hex(4)}"  # in the order in which they began
        label = _LABEL.sub("", name).strip()[:80] or "Project"
        for place in PRIVATE_FOLDERS + PUBLIC_FOLDERS:
            (self._folder / project / place).mkdir(mode=0o700, parents=True)
        os.chmod(self._folder / project, 0o700)
        with self._book.turn() as book:
            book.execute("INSERT INTO projects VALUES (?, ?, ?)", (project, label, 1))
            line = project, 1, "Project created", by, int(time.time()), 0, 0, "{}"
            book.execute("INSERT INTO changes VALUES (?, ?, ?, ?, ?, ?, ?, ?)", line)
        made = self.get(project)
        assert made is not None
        return made

    def get(self, project: str) -> Project | None:
        if not _ID.fullmatch(project):
            return None
        sql = (
            "SELECT name, c.version, what, by_whom, at, policy, data, settings FROM projects p JOIN changes c "
            "ON c.project = p.id AND c.version = p.version WHERE p.id = ?"
        )
        rows = self._book.rows(sql, project)
        if not rows:
            return None
        name, *change = rows[0]
        return Project(project, name, self._folder / project, _change(change))

    def all(self) -> list[Project]:
        ids = self._book.rows("SELECT project FROM changes WHERE version = 1 ORDER BY at DESC, project DESC")
        return [project for (one,) in ids if (project := self.get(one)) is not None]

    def history(self, project: Project) -> list[Change]:
        sql = "SELECT version, what, by_whom, at, policy, data, settings FROM changes WHERE project = ? "
        return [_change(row) for row in self._book.rows(sql + "ORDER BY version DESC LIMIT 200", project.id)]

    def change(
        self,
        project: Project,
        version: int,  # that the change was made on
        what: str,
        by: str,
        *,
        policy: str | None = None,  # the new text
        data: int | None = None,
        settings: Mapping[str, str | None] | None = None,
    ) -> Project:
        """Change a project, unless it was changed since: all of the change is kept, or nothing."""
        before = self.get(project.id)
        assert before is not None
        number = before.now.policy
        if policy == "":
            number = 0
        elif policy is not None and policy != before.policy_text():
            number = version + 1
            if before.version == version:  # a file of a version that never came to be is replaced
                self._write(project.folder / policy_name(number), policy)
        after: dict[str, str | None] = {**before.settings, **(settings or {})}
        line = (
            project.id, version + 1, what, by, int(time.time()), number, before.now.data if data is None else data,
            json.dumps({name: value for name, value in after.items() if value is not None}),
        )  # fmt: skip
        with self._book.turn() as book:
            sql = "UPDATE projects SET version = ? WHERE id = ? AND version = ?"
            if not book.execute(sql, (version + 1, project.id, version)).rowcount:
                raise Conflict(before, version)
            book.execute("INSERT INTO changes VALUES (?, ?, ?, ?, ?, ?, ?, ?)", line)
        made = self.get(project.id)
        assert made is not None
        return made

    def undo(self, project: Project, version: int, to: int, by: str) -> Project:
        """Go back to how a project was: as a new change, so that it can be taken back too."""
        then = next((change for change in self.history(project) if change.version == to), None)
        if then is None:
            raise ParameterError("there is no such version.")
        gone = dict.fromkeys(project.settings.keys() - then.settings.keys())
        return self.change(
            project, version, f"Back to version {to}", by, data=then.data, settings={**gone, **then.settings},
            policy=project.policy_text(then.policy),
        )  # fmt: skip

    def add_file(self, project: Project, label: str, source: BinaryIO, size: int) -> File:
        """Keep an uploaded file under a number; what it is called decides nothing but the label."""
        ending, label = ending_of(label, source), _LABEL.sub("", label.rsplit("/", 1)[-1].rsplit("\\", 1)[-1])[-80:]
        source.seek(0)
        digest = hashlib.sha256()
        while part := source.read(1 << 20):
            digest.update(part)
        with self._book.turn() as book:
            sql = "SELECT coalesce(max(number), 0) + 1 FROM files WHERE project = ?"
            number = int(book.execute(sql, (project.id,)).fetchone()[0])
            file = File(number, label or "file", f"data/{number}{ending}", size, int(time.time()), digest.hexdigest())
            line = project.id, file.number, file.label, file.name, file.bytes, file.at, file.digest
            book.execute("INSERT INTO files VALUES (?, ?, ?, ?, ?, ?, ?)", line)
        with os.fdopen(os.open(project.folder / file.name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as sink:
            source.seek(0)
            shutil.copyfileobj(source, sink, 1 << 20)
        return file

    def files(self, project: Project) -> list[File]:
        sql = "SELECT number, label, name, bytes, at, digest FROM files WHERE project = ? ORDER BY number"
        return [File(*row) for row in self._book.rows(sql, project.id)]

    def file(self, project: Project, number: int | None = None) -> File:
        wanted = project.now.data if number is None else number
        found = next((file for file in self.files(project) if file.number == wanted), None)
        if found is None:
            raise ParameterError("this project has no file yet. Add one first.")
        return found

    @staticmethod
    def _write(path: Path, text: str) -> None:
        work = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
        with os.fdopen(os.open(work, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as sink:
            sink.write(text)
            sink.flush()
            os.fsync(sink.fileno())
        os.replace(work, path)


def _change(row: Any) -> Change:
    version, what, by, at, policy, data, settings = row
    return Change(version, what, by, at, policy, data, json.loads(settings))


def ending_of(label: str, source: BinaryIO) -> str:
    """Return the ending that a file gets, by what is in it; refuse what is not a table."""
    source.seek(0)
    head = source.read(1 << 16)
    if not head:
        raise InputError("the file", ["is empty. Choose a file with rows."])
    if head[:4] == b"PAR1":
        return ".parquet"
    if head[:4] == b"PK\x03\x04":
        check_archive(source, max_bytes=1 << 32)
        with zipfile.ZipFile(source) as archive:
            if "xl/workbook.xml" in archive.namelist():
                return ".xlsx"
    if head[:2] == b"\x1f\x8b" or head[:4] == b"PK\x03\x04":
        raise InputError("the file", ["is compressed. Unpack it, and upload the table itself."])
    if b"\0" in head and head[:2] not in (b"\xff\xfe", b"\xfe\xff"):
        raise InputError("the file", ["is not a CSV, Parquet or Excel file. Save it as one of these."])
    return ".tsv" if label.lower().endswith((".tsv", ".tab")) else ".csv"


def check_archive(source: BinaryIO, *, max_bytes: int, max_files: int = 10_000, max_ratio: int = 200) -> None:
    """Refuse an archive that unfolds to too much, or whose names leave their folder."""
    try:
        with zipfile.ZipFile(source) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError):
        raise InputError("the file", ["is a damaged archive. Save it again."]) from None
    packed, unpacked = sum(item.compress_size for item in members), sum(item.file_size for item in members)
    if len(members) > max_files or unpacked > max_bytes or unpacked > max_ratio * max(packed, 1 << 16):
        raise InputError("the file", ["unfolds to far more than it holds. It is refused."])
    for item in members:
        parts = Path(item.filename.replace("\\", "/")).parts
        linked = (item.external_attr >> 16) & 0o170000 == 0o120000
        if item.filename.startswith(("/", "\\")) or ".." in parts or ":" in item.filename or linked:
            raise InputError("the file", ["has names that leave its folder. It is refused."])
