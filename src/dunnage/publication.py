# SPDX-License-Identifier: Apache-2.0
"""Publication: the release that leaves and the key that stays, and how both are written safely.

A final name never stands for something half-written. The folder and the key are made under temporary names in the same
place; the key gets its final name first, the folder last. The temporary key is there before anything is spent and stays
until then, locked for as long as its writer lives. If a run is killed, its lock is gone but its temporary names remain:
``finish`` completes what is whole, and the next run removes the rest.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dunnage.errors import DunnageError, OutputError, Refusal, ReleaseError
from dunnage.folders import check_room, lock, sync_folder
from dunnage.release import CERTIFICATE_FILE, RELEASE_FILES, Release
from dunnage.release.kinds import DROPPED
from dunnage.tables.dataset import Dataset
from dunnage.tables.parquet import Parquet, max_decoded
from dunnage.tables.reader import FIRST_ROW

KEY_FORMAT = "2"
KEY_ENDING = ".key.parquet"
KEY_REMAINS = ".key.partial"


@dataclass(frozen=True, eq=False, kw_only=True)
class Key:
    """The private map from release rows to true records. Its ``repr`` shows none of it.

    Format 2 counts ``source_row`` from 1, the first line below the header; keys of format 1 counted from 0.
    """

    # `row`, `source_row`, `class_id` and the identifiers, with one line for each source row: a released row that merges
    # several has several lines
    table: pa.Table
    # salt, input_digest: a random key, and the digest of the input under it, which shows whether a file is the one that
    # was released
    salt: bytes
    input_digest: str
    certificate_digest: str = ""  # the release that this key belongs to; empty until the release is written
    # what else only the owner may know about the release, such as how many records were not sampled
    facts: Mapping[str, int] = field(default_factory=dict)
    # the source rows that the mechanism did not release, by reason
    left_out: Mapping[str, Sequence[int]] = field(default_factory=dict)
    cuts: Sequence[int] = ()  # where the input was divided for its digest, if it was read in batches

    def __repr__(self) -> str:
        return "Key(private)"

    def belongs_to(self, dataset: Dataset) -> bool:
        digest = dataset.digest_at(self.salt, self.cuts) if self.cuts else dataset.keyed_digest(self.salt)
        return digest == self.input_digest

    def write(self, path: Path) -> None:
        """Write the key to a file that only its owner can read."""
        with _private_file(path) as stream:
            self._write_to(stream)

    def _write_to(self, stream: BinaryIO) -> None:
        metadata = {
            "dunnage.key": KEY_FORMAT,
            "dunnage.salt": self.salt.hex(),
            "dunnage.input": self.input_digest,
            "dunnage.certificate": self.certificate_digest,
            "dunnage.facts": json.dumps(dict(self.facts), sort_keys=True, allow_nan=False),
            "dunnage.left_out": json.dumps(dict(self.left_out), sort_keys=True),
        } | ({"dunnage.cuts": json.dumps(list(self.cuts))} if self.cuts else {})
        pq.write_table(self.table.replace_schema_metadata(metadata), stream, compression="zstd")
        stream.flush()
        os.fsync(stream.fileno())

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Key:
        try:
            with Path(path).open("rb") as stream:
                table = Parquet.open(stream, max_decoded(os.fstat(stream.fileno()).st_size)).read()
            metadata = {name.decode(): value.decode() for name, value in (table.schema.metadata or {}).items()}
            if metadata["dunnage.key"] not in ("1", KEY_FORMAT):
                raise ReleaseError(f"{os.fspath(path)}: the key has a newer format. Use a newer version of Dunnage.")
            if any(pa.types.is_nested(column.type) for column in table.schema):
                raise TypeError
            if metadata["dunnage.key"] == "1" and "source_row" in table.column_names:
                column = table.column_names.index("source_row")
                table = table.set_column(column, "source_row", pc.add(table.column(column), FIRST_ROW))
            return cls(
                table=table,
                salt=bytes.fromhex(metadata["dunnage.salt"]),
                input_digest=metadata["dunnage.input"],
                certificate_digest=metadata["dunnage.certificate"],
                facts=dict(json.loads(metadata.get("dunnage.facts", "{}"))),
                left_out=dict(json.loads(metadata.get("dunnage.left_out", "{}"))),
                cuts=[int(cut) for cut in json.loads(metadata.get("dunnage.cuts", "[]"))],
            )
        except FileNotFoundError:
            raise ReleaseError(f"{os.fspath(path)} does not exist. Give the key that publish wrote.") from None
        except (OSError, pa.ArrowException, KeyError, TypeError, ValueError):
            raise ReleaseError(f"{os.fspath(path)} is not a readable key. Give the file that publish wrote.") from None


NO_TRUCK, NOT_RELEASED = "no truck", "not released"  # reasons; keys of 0.1.0 do not say why a row was not released


def unplanned_rows(data: Dataset, key: Key, left_behind: Sequence[int] = ()) -> pa.Table:
    """List every source row that travels outside a plan, with the reason, for the owner only."""
    reasons = dict(data.left_out)
    if data.schema.trip is None and DROPPED not in key.facts:  # counts are of all rows
        missing = stated = {row: reason for reason, rows in key.left_out.items() for row in rows}
        if not data.elsewhere:
            every = data.parts.source_rows
            released = np.zeros(int(every.max(initial=0)) + 1, dtype=bool)
            released[key.table.column("source_row").to_numpy()] = True
            missing = {row: stated.get(row, NOT_RELEASED) for row in every[~released[every]].tolist()}
        reasons |= {row: (reason, "") for row, reason in missing.items()}
    reasons |= dict.fromkeys(left_behind, (NO_TRUCK, ""))
    rows = sorted(reasons)
    own = data.cells(np.array(rows, dtype=np.int64), data.policy.listed_columns)
    ours = {"source_row": pa.array(rows, pa.int64())}
    for place, name in enumerate(("reason", "column")):  # a column of the data keeps its name
        texts = pa.array([reasons[row][place] for row in rows], pa.string())
        ours[f"unplanned_{name}" if name in own else name] = texts
    return pa.table({**ours, **own})


def _private_file(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def key_path(folder: str | os.PathLike[str]) -> Path:
    """Return where the key of a release folder is: beside it, never in it."""
    path = Path(folder)
    if path.name in ("", ".."):  # such as "."
        path = Path(os.path.abspath(path))
    return path.with_name(path.name + KEY_ENDING)


class Publication(NamedTuple):
    """A release and its key; unpacks as ``release, key``."""

    release: Release
    key: Key

    def write(
        self,
        folder: str | os.PathLike[str],
        *,
        sign: str | os.PathLike[str] | None = None,
        force: bool = False,
        place: Place | None = None,
    ) -> Publication:
        """Write the key beside the folder, then the folder; each gets its final name only when it is complete.

        ``place`` was reserved for it before anything was spent; by default one is reserved now.
        """
        if place is None:
            with reserved(folder, force=force) as place:
                return self.write(folder, sign=sign, place=place)
        target, work = place.target, place.work
        try:
            _clear_remains(target)
            work.mkdir()
            certificate = self.release.write_files(work, sign=sign)
            key = replace(self.key, certificate_digest=certificate.digest)
            key._write_to(place.stream)
            for path in work.iterdir():
                with path.open("rb") as file:
                    os.fsync(file.fileno())
            sync_folder(work)
            sync_folder(target.parent)
            _put_in_place(work, place.key_work, target, force=place.force)
            sync_folder(target.parent)
        except (OSError, pa.ArrowException) as error:  # the disk, not the user, fails
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise OutputError(
                f"{target} could not be written: {reason}. The budget is spent and not refunded: free some space or "
                "choose another place, then publish with --again."
            ) from None
        return Publication(replace(self.release, certificate=certificate), key)


@dataclass(frozen=True, kw_only=True)
class Place:
    """Temporary names beside a target, taken by a run that may spend and then write there."""

    target: Path
    token: str
    force: bool
    stream: BinaryIO  # of the temporary key, locked

    @property
    def work(self) -> Path:
        return _temporary_names(self.target, self.token)[0]

    @property
    def key_work(self) -> Path:
        return _temporary_names(self.target, self.token)[1]


@contextlib.contextmanager
def reserved(folder: str | os.PathLike[str], *, force: bool) -> Iterator[Place]:
    """Take temporary names beside a folder, and lock them; they are gone when the block ends."""
    target, token = check_output(folder, force=force), secrets.token_hex(6)
    work, key_work = _temporary_names(target, token)
    try:
        stream = _private_file(key_work)
    except OSError as error:
        raise OutputError(f"{target.parent} cannot be written to: {error.strerror}. Choose another place.") from None
    with stream:
        try:
            _lock(stream.fileno())
            yield Place(target=target, token=token, force=force, stream=stream)
        finally:
            _remove(work, key_work)


def finish(folder: str | os.PathLike[str], token: str, spend: str, *, force: bool) -> Publication | None:
    """Give a release that a killed run had completed its final name; None if nothing of it was complete.

    Whether it is complete is read from the files alone: the key names the certificate, and that every other file.
    """
    target = Path(os.path.abspath(folder))
    work, key_work = _temporary_names(target, token)
    with contextlib.ExitStack() as stack:
        if _mode(key_work):
            stream = stack.enter_context(key_work.open("rb"))
            if not _lock(stream.fileno()):
                raise Refusal(f"the run that writes {target} is still running. Wait for it, or stop it.")
        if (done := _complete(target, key_path(target), spend)) is None:
            # On a file system without links the key has its final name alone.
            key = key_work if _mode(key_work) else key_path(target)
            if _complete(work, key, spend) is None:
                _remove(work, key_work)
                return None
            if key == key_work:
                _put_in_place(work, key_work, target, force=force)
            else:
                os.rename(work, target)
            sync_folder(target.parent)
            done = _complete(target, key_path(target), spend)
        _remove(work, key_work)
        return done


def tokens_of(target: Path) -> list[str]:
    """Return the names of runs that left something beside a target, or still write there."""
    return [path.name.removesuffix(KEY_REMAINS)[-12:] for path in _remains(target)]


def has_remains(target: Path, token: str) -> bool:
    return any(map(_mode, _temporary_names(target, token)))


def _complete(folder: Path, key_file: Path, spend: str) -> Publication | None:
    """Return the release of a spend if folder and key are whole."""
    try:
        release, key = Release.read(folder), Key.read(key_file)
        whole = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in release.certificate.files}
    except (DunnageError, OSError):
        return None
    certificate = release.certificate
    fits = certificate.spend.id == spend and key.certificate_digest == certificate.digest
    return Publication(release, key) if fits and whole == dict(certificate.files) else None


def check_output(folder: str | os.PathLike[str], *, force: bool, num_bytes: int = 0) -> Path:
    """Check, before anything is spent, that a release may be written here, and that there is room for it."""
    target = Path(os.path.abspath(folder))
    if not target.name or not target.parent.is_dir():
        raise OutputError(f"the folder {target.parent} does not exist. Create it first, or choose another place.")
    parent, key = target.parent, key_path(target)
    if os.path.lexists(parent / CERTIFICATE_FILE):
        raise OutputError(f"{parent} is a release to hand out, and a key must stay private. Choose another place.")
    for path, mode in ((target, _mode(target)), (key, _mode(key))):
        if mode and not force and not (path == key and _is_abandoned(key)):
            raise OutputError.taken(path)
    if _mode(target) and not _is_replaceable(target):
        raise OutputError(f"{target} is not a release or has other files. It was not touched. Choose another name.")
    if _mode(key) and not stat.S_ISREG(_mode(key)):
        raise OutputError(f"{key} is not a key, and was not touched. Choose another name.")
    try:
        check_room(parent, num_bytes)
    except OSError as error:
        raise OutputError(f"{parent} cannot be written to: {error.strerror}. Choose another place.") from None
    return target


def _mode(path: Path) -> int:
    """Return the type and mode of a path without following links; 0 if nothing is there."""
    try:
        return path.lstat().st_mode
    except FileNotFoundError:
        return 0
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a file name"
        raise OutputError(f"{path} cannot be written: {reason}. Choose another name.") from None


def _is_replaceable(folder: Path) -> bool:
    """Return whether a folder is empty or only a release: nothing else is ever deleted."""
    if not stat.S_ISDIR(_mode(folder)):
        return False
    try:
        names = set(os.listdir(folder))
    except OSError:
        return False
    return not names or (CERTIFICATE_FILE in names and names <= RELEASE_FILES)


def _temporary_names(target: Path, token: str) -> tuple[Path, Path]:
    return target.with_name(f".{target.name}.{token}.partial"), target.with_name(f".{target.name}.{token}{KEY_REMAINS}")


def _lock(descriptor: int) -> bool:
    """Lock an open file for as long as this process lives; False if another process has locked it."""
    try:
        lock(descriptor)
    except OSError:  # locked, or a file system without locks, where nothing ever counts as abandoned
        return False
    return True


def _remains(target: Path) -> list[Path]:
    """Return the temporary keys beside a target, from runs that were killed or are still writing."""
    name = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{12}}{re.escape(KEY_REMAINS)}")
    return [path for path in target.parent.iterdir() if name.fullmatch(path.name)]


def stopped_runs(folder: Path) -> list[str]:
    """Say what runs that were killed left in a folder, and what it is; the files of a living run are its own."""
    sentences, name = [], re.compile(rf"\.(.+)\.[0-9a-f]{{12}}{re.escape(KEY_REMAINS)}")
    for path in sorted(folder.iterdir()) if folder.is_dir() and os.access(folder, os.R_OK) else ():
        if match := name.fullmatch(path.name):
            target = path.with_name(match[1])
            work = _work_of(path, target)
            left = [item for item in (work, _old(work), path, _old(path)) if _mode(item)]
            with contextlib.suppress(OSError), path.open("rb") as stream:
                if not _lock(stream.fileno()):
                    continue
                what = f"a run was stopped while it wrote {target}; {', '.join(str(item) for item in left)} "
                if not path.stat().st_size and not _mode(work):
                    what = f"a run was stopped before it wrote {target}; {path} can be deleted. "
                    what += "Publish there with --resume, which says whether the budget was spent"
                elif _mode(target) and _is_same(path, key_path(target)):
                    what += "can be deleted: the release and its key are complete"
                else:
                    what += "are not a release yet. The budget is spent and not refunded. Publish there with --resume"
                    kept = f"The release that it was to replace is in {_old(work)}: move it back first to keep it"
                    what += f". {kept}" if _mode(_old(work)) else ""
                sentences.append(f"{what}.")
    return sentences


def _is_abandoned(key: Path) -> bool:
    """Return whether a key is from a run that was killed before its folder got its final name."""
    target = key.with_name(key.name.removesuffix(KEY_ENDING))
    if _mode(target) or not stat.S_ISREG(_mode(key)):
        return False
    with contextlib.suppress(OSError):  # it belongs to someone else, or was just removed
        for path in _remains(target):
            if _left_key(path, target):
                with path.open("rb") as stream:
                    if _lock(stream.fileno()):
                        return True
    return False


def _clear_remains(target: Path) -> None:
    """Remove what killed runs left beside a target; the files of a living run stay."""
    for path in _remains(target):
        with contextlib.suppress(OSError), path.open("rb") as stream:
            if _lock(stream.fileno()):
                # The lock is on the file, not its name: meanwhile no other run can treat this key as abandoned.
                if _left_key(path, target):
                    key_path(target).unlink()
                _remove(_work_of(path, target), path)


def _work_of(key_work: Path, target: Path) -> Path:
    return _temporary_names(target, key_work.name.removesuffix(KEY_REMAINS)[-12:])[0]


def _left_key(key_work: Path, target: Path) -> bool:
    """Return whether a run stopped after it wrote or removed one of key and folder, and before the other."""
    key = key_path(target)
    halfway = _is_same(key_work, key) or bool(_mode(key) and _mode(_old(_work_of(key_work, target))))
    return halfway and not _mode(target)


def _is_same(one: Path, other: Path) -> bool:
    return bool(_mode(one) and _mode(other)) and one.samefile(other)


def _old(path: Path) -> Path:
    return path.with_name(path.name + ".old")


def _remove(work: Path, key_work: Path) -> None:
    """Remove temporary folders first, then the temporary keys that mark them."""
    for folder in (work, _old(work)):
        shutil.rmtree(folder, ignore_errors=True)
    for key in (_old(key_work), key_work):
        key.unlink(missing_ok=True)


def _put_in_place(work: Path, key_work: Path, target: Path, *, force: bool) -> None:
    """Move old files out of the way, then give key and folder their final names: never one old and one new."""
    pairs = ((target, _old(work)), (key_path(target), _old(key_work)))
    try:
        for path, old in pairs:
            if force and _mode(path):
                os.rename(path, old)
        # Give the key its final name in addition to the temporary one; never replace a key that appeared meanwhile.
        key = key_path(target)
        try:
            os.link(key_work, key)
        except FileExistsError:
            raise
        except OSError:  # a file system without links
            os.rename(key_work, key)
        os.rename(work, target)
    except BaseException:
        if _is_same(key_work, key_path(target)):
            key_path(target).unlink()
        for path, old in reversed(pairs):
            if _mode(old):
                os.rename(old, path)
        raise
