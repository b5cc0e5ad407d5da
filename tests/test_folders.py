"""Folders appear whole or not at all, and nothing of others is deleted."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from dunnage.errors import OutputError
from dunnage.folders import check_new_folder, new_folder

MARKER = "plan.json"


def make(folder: Path, text: str = "new", *, force: bool = False, private: bool = False) -> None:
    with new_folder(folder, marker=MARKER, force=force, private=private) as work:
        (work / MARKER).write_text(text)


def listing(place: Path) -> list[str]:
    return sorted(os.listdir(place))


def test_a_folder_gets_its_name_when_it_is_whole(tmp_path: Path) -> None:
    with new_folder(tmp_path / "plan", marker=MARKER) as work:
        (work / MARKER).write_text("x")
        assert not (tmp_path / "plan").exists()
    assert listing(tmp_path) == ["plan"]
    assert (tmp_path / "plan" / MARKER).read_text() == "x"


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(TypeError), new_folder(tmp_path / "plan", marker=MARKER) as work:
        (work / MARKER).write_text(len("half"))  # type: ignore[arg-type]
    assert listing(tmp_path) == []


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    make(tmp_path / "plan", "old")
    with pytest.raises(OutputError, match="No space"), new_folder(tmp_path / "plan", marker=MARKER, force=True):
        raise OSError(28, "No space left on device")
    assert listing(tmp_path) == ["plan"]
    assert (tmp_path / "plan" / MARKER).read_text() == "old"


@pytest.mark.parametrize("number", [0, 1])
def test_a_failing_rename_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    make(tmp_path / "plan", "old")
    true, calls = os.rename, iter(range(100))

    def failing(source: Path, target: Path) -> None:
        if next(calls) == number:
            raise OSError(5, "Input/output error")
        true(source, target)

    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises(OutputError, match="Input/output error"):
        make(tmp_path / "plan", force=True)
    assert listing(tmp_path) == ["plan"]
    assert (tmp_path / "plan" / MARKER).read_text() == "old"


def test_what_exists_is_replaced_by_force_only(tmp_path: Path) -> None:
    make(tmp_path / "plan", "old")
    with pytest.raises(OutputError, match="--force"):
        make(tmp_path / "plan")
    assert (tmp_path / "plan" / MARKER).read_text() == "old"
    make(tmp_path / "plan", "new", force=True)
    assert (tmp_path / "plan" / MARKER).read_text() == "new"
    assert listing(tmp_path) == ["plan"]


@pytest.mark.parametrize("case", ["file", "other", "more", "folder", "link", "dangling"])
def test_force_deletes_nothing_of_others(tmp_path: Path, case: str) -> None:
    target, other = tmp_path / "plan", tmp_path / "elsewhere"
    other.mkdir()
    (other / MARKER).write_text("precious")
    if case == "file":
        target.write_text("precious")
    if case == "other":
        target.mkdir()
        (target / "precious.csv").write_text("precious")
    if case in ("more", "folder"):
        make(target, "old")
    if case == "more":
        (target / "precious.csv").write_text("precious")
    if case == "folder":
        (target / "precious").mkdir()
    if case == "link":
        target.symlink_to(other)
    if case == "dangling":
        target.symlink_to(tmp_path / "nothing")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(OutputError, match="left as it is"):
        make(target, force=True)
    assert sorted(tmp_path.rglob("*")) == before


def test_force_may_fill_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "plan").mkdir()
    make(tmp_path / "plan", force=True)
    assert listing(tmp_path / "plan") == [MARKER]


def test_what_another_run_puts_there_meanwhile_stays(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="could not be written"), new_folder(tmp_path / "plan", marker=MARKER):
        make(tmp_path / "plan", "theirs")
    assert (tmp_path / "plan" / MARKER).read_text() == "theirs"
    assert listing(tmp_path) == ["plan"]


@pytest.mark.parametrize("name", ["missing/plan", "/", "x" * 300, "nul\0"], ids=["missing", "root", "long", "nul"])
def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(OutputError):
        make(tmp_path / name)
    assert listing(tmp_path) == []


def test_private_folders_are_their_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make(tmp_path / "private", private=True)
        assert os.umask(0) == 0, "the umask is put back"
        make(tmp_path / "public")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "private").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "private" / MARKER).stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "public" / MARKER).stat().st_mode) == 0o666


def test_checking_writes_nothing(tmp_path: Path) -> None:
    assert check_new_folder(tmp_path / "plan", marker=MARKER, force=False) == tmp_path / "plan"
    assert listing(tmp_path) == []


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    from dunnage.folders import new_file

    target = tmp_path / "file"
    with new_file(target, private=True) as sink:
        sink.write(b"first")
        assert not target.exists()
    assert target.read_bytes() == b"first"
    assert target.stat().st_mode & 0o777 == 0o600
    with pytest.raises(RuntimeError), new_file(target) as sink:  # noqa: PT012
        sink.write(b"second")
        raise RuntimeError
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert target.read_bytes() == b"first"
    with pytest.raises(OutputError, match="could not be written"), new_file(tmp_path / "none" / "file"):
        pytest.fail("the block must not run")
