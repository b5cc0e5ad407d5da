"""Folders and files appear whole or not at all, and nothing of others is deleted."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from tests.refusals import refusal

from dunnage.errors import OutputError
from dunnage.folders import check_new_folder, new_file, new_folder
from dunnage.samples import PackageSetting, generate_packages

MARKER = "plan.json"


def make(folder: Path, text: str = "new", *, force: bool = False, private: bool = False) -> None:
    with new_folder(folder, marker=MARKER, force=force, private=private) as work:
        (work / MARKER).write_text(text)
        assert force or not folder.exists(), "it gets its name when it is whole"


def check_only(place: Path, text: str) -> None:
    """Check that there is a folder of this content, and nothing else."""
    assert os.listdir(place) == ["plan"]
    assert (place / "plan" / MARKER).read_text() == text


def test_what_exists_is_replaced_by_force_only(tmp_path: Path) -> None:
    target = tmp_path / "plan"
    assert check_new_folder(target, marker=MARKER, force=False) == target
    assert os.listdir(tmp_path) == [], "checking writes nothing"
    make(target, "old")
    check_only(tmp_path, "old")
    assert "--force" in str(refusal(OutputError, make, target))
    check_only(tmp_path, "old")
    make(target, "new", force=True)
    check_only(tmp_path, "new")
    (target / MARKER).unlink()
    make(target, "filled", force=True)  # an empty folder
    check_only(tmp_path, "filled")


def test_a_failure_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "plan"
    with pytest.raises(TypeError), new_folder(target, marker=MARKER) as work:
        (work / MARKER).write_text(len("half"))  # type: ignore[arg-type]
    assert os.listdir(tmp_path) == []
    with pytest.raises(OutputError), new_folder(target, marker=MARKER):  # another run puts one there meanwhile
        make(target, "old")
    check_only(tmp_path, "old")
    with pytest.raises(OutputError, match="No space"), new_folder(target, marker=MARKER, force=True):
        raise OSError(28, "No space left on device")
    check_only(tmp_path, "old")
    rename = os.rename
    for number in (0, 1):
        calls = iter(range(100))

        def failing(source: Path, target: Path, number: int = number, calls: object = calls) -> None:
            if next(calls) == number:  # type: ignore[call-overload]
                raise OSError(5, "Input/output error")
            rename(source, target)

        monkeypatch.setattr(os, "rename", failing)
        assert "Input/output error" in str(refusal(OutputError, make, target, force=True))
        check_only(tmp_path, "old")


@pytest.mark.parametrize("case", ["file", "other", "more", "folder", "link", "dangling"])
def test_force_deletes_nothing_of_others(tmp_path: Path, case: str) -> None:
    target, other = tmp_path / "plan", tmp_path / "elsewhere"
    other.mkdir()
    (other / MARKER).write_text("precious")
    if case == "file":
        target.write_text("precious")
    elif case in ("link", "dangling"):
        target.symlink_to(other if case == "link" else tmp_path / "nothing")
    elif case == "other":
        target.mkdir()
    else:
        make(target, "old")
    if case == "folder":
        (target / "precious").mkdir()
    elif case in ("other", "more"):
        (target / "precious.csv").write_text("precious")
    before = sorted(tmp_path.rglob("*"))
    refusal(OutputError, make, target, force=True)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    for name in ("missing/plan", "/", "x" * 300, "nul\0"):
        refusal(OutputError, make, tmp_path / name)
    assert os.listdir(tmp_path) == []


def test_private_folders_are_their_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make(tmp_path / "private", private=True)
        assert os.umask(0) == 0, "the umask is put back"
        make(tmp_path / "public")
    finally:
        os.umask(before)
    modes = {"private": 0o700, f"private/{MARKER}": 0o600, f"public/{MARKER}": 0o666}
    assert {name: stat.S_IMODE((tmp_path / name).stat().st_mode) for name in modes} == modes


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "file"
    with new_file(target, private=True) as sink:
        sink.write(b"first")
        assert not target.exists()
    assert target.read_bytes() == b"first"
    assert target.stat().st_mode & 0o777 == 0o600
    with pytest.raises(RuntimeError), new_file(target) as sink:  # noqa: PT012
        sink.write(b"second")
        raise RuntimeError
    assert os.listdir(tmp_path) == ["file"]
    assert target.read_bytes() == b"first"
    with pytest.raises(OutputError), new_file(tmp_path / "none" / "file"):
        pytest.fail("the block must not run")


def test_publishing_locks_without_fcntl(tmp_path: Path) -> None:
    """As on Windows: neither fcntl nor the flags of POSIX, locks of bytes instead."""
    code = """
import os, subprocess, sys, types  # those of the library that look for msvcrt come first
import fcntl as posix
windows = types.ModuleType("msvcrt")
windows.LK_NBLCK = 2
windows.locking = lambda file, mode, size: posix.lockf(file, posix.LOCK_EX | posix.LOCK_NB, size, 0, 1)
sys.modules |= {"fcntl": None, "msvcrt": windows}
del os.O_CLOEXEC
from dunnage.folders import lock
if sys.argv[1:] == ["lock"]:
    with open("parcels.csv", "rb+") as file:
        lock(file.fileno())
        if os.fork() == 0:
            with open("parcels.csv", "rb+") as other:
                try: lock(other.fileno())
                except OSError: os._exit(3)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 3, "a second process got the lock"
else:
    from dunnage.cli import main
    main()
"""
    generate_packages(PackageSetting(size=40, destinations=2), tmp_path / "parcels.csv", seed=1)
    for words in (["lock"], ["publish", "parcels.csv", "--policy", "parcels.toml", "-o", "release"]):
        done = subprocess.run([sys.executable, "-c", code, *words], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "release" / "certificate.json").exists()
