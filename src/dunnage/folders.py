# SPDX-License-Identifier: Apache-2.0
"""Folders and files that appear complete under their final name, or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import BinaryIO

from dunnage.errors import OutputError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_MAX_TRIAL_BYTES, _LOCKED_BYTE = 1 << 30, 1 << 40


def check_new_folder(folder: str | os.PathLike[str], *, marker: str, force: bool) -> Path:
    """Check that a folder may be created here."""
    target = Path(os.path.abspath(folder))
    if "\0" in str(target):
        raise OutputError(f"a folder cannot be named {str(target)!r}. Choose another name.")
    if not target.name or not target.parent.is_dir():
        raise OutputError(f"the folder {target.parent} does not exist. Create it first, or choose another place.")
    if os.path.lexists(target):
        if not force:
            raise OutputError.taken(target)
        _check_ours(target, marker)
    return target


def _check_ours(target: Path, marker: str, names: frozenset[str] | None = None) -> None:
    """Check that a folder is empty, or one of ours without other content: nothing else is ever deleted."""
    ours = target.is_dir() and not target.is_symlink()
    contents = list(target.iterdir()) if ours else []
    if not ours or (contents and not (target / marker).is_file()):
        raise OutputError(f"{target} has no {marker}, so it is left as it is. Choose another name.")
    if any(path.is_dir() or (names is not None and path.name not in names) for path in contents):
        raise OutputError(f"{target} contains other files, so it is left as it is. Choose another name.")


def check_room(folder: Path, num_bytes: int) -> None:
    """Check by trying that a folder can be written and has this much room; an :class:`OSError` says why not."""
    # Neither modes nor the superuser's rights show whether a file system can be written, nor its free space a quota.
    trial = folder / f".dunnage-{secrets.token_hex(8)}"
    trial.mkdir()
    trial.rmdir()
    if num_bytes > shutil.disk_usage(folder).free:
        raise OSError(errno.ENOSPC, f"{_size(num_bytes)} are needed, and {_size(shutil.disk_usage(folder).free)} free")
    descriptor = os.open(trial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        if num_bytes and hasattr(os, "posix_fallocate"):  # macOS and Windows have none
            os.posix_fallocate(descriptor, 0, min(num_bytes, _MAX_TRIAL_BYTES))
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):  # this file system cannot set room aside
            raise
    finally:
        os.close(descriptor)
        trial.unlink()


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 2**20:,.1f} MiB"


@contextlib.contextmanager
def new_folder(
    folder: str | os.PathLike[str],
    *,
    marker: str,
    force: bool = False,
    private: bool = False,  # make folder and files readable by their owner alone
    may_hold: Collection[str] = (),
) -> Iterator[Path]:
    """Yield a temporary folder to write into; it gets its final name when the block ends without an error."""
    target = check_new_folder(folder, marker=marker, force=force)
    work = target.with_name(f".{target.name}.{secrets.token_hex(6)}.partial")
    old = work.with_name(work.name + ".old")
    try:
        work.mkdir(mode=0o700 if private else 0o777)
        before = os.umask(0o077) if private else None
        try:
            yield work
        finally:
            if before is not None:
                os.umask(before)
        if force and os.path.lexists(target):
            _check_ours(target, marker, frozenset({marker, *may_hold, *os.listdir(work)}))
            os.rename(target, old)
        os.rename(work, target)  # fails if something else has appeared there
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise OutputError(f"{target} could not be written: {reason}. Choose another place.") from None
    finally:
        if os.path.lexists(old) and not os.path.lexists(target):
            os.rename(old, target)
        for remains in (work, old):
            shutil.rmtree(remains, ignore_errors=True)


@contextlib.contextmanager
def new_file(path: str | os.PathLike[str], *, private: bool = False) -> Iterator[BinaryIO]:
    """Yield a file to write to; when the block ends without an error, it gets its name and replaces an older file."""
    target = Path(os.path.abspath(path))
    work = target.with_name(f".{target.name}.{secrets.token_hex(6)}.partial")
    try:
        descriptor = os.open(work, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666)
        with open(descriptor, "wb") as sink:
            yield sink
            sink.flush()
            os.fsync(descriptor)
        os.replace(work, target)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise OutputError(f"{target} could not be written: {reason}. Choose another place.") from None
    finally:
        with contextlib.suppress(OSError):
            work.unlink()


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """Make sure that the names of new files survive a power cut."""
    if os.name == "nt":  # folders cannot be opened there
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def lock(descriptor: int) -> None:
    """Lock an open file for as long as it stays open here; an :class:`OSError` says that another process has it."""
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    import msvcrt

    os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)  # nobody may read a locked byte there: take one beyond the content
    msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    os.lseek(descriptor, 0, os.SEEK_SET)


def unlock(descriptor: int) -> None:
    """Let others lock a file, even if a process that was started meanwhile still has it open."""
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
