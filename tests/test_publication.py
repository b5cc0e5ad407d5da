"""Writing a publication: a private key beside the folder, nothing half-written, nothing of others deleted."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from tests.builders import a_policy
from tests.commands import run, snapshot
from tests.refusals import refusal

import dunnage as dn
from dunnage.errors import OutputError, ReleaseError
from dunnage.publication import Key, Publication, check_output, key_path

NUM_ROWS = 12
NAMES = ["release", "release.key.parquet"]
ATTRIBUTES = {
    "parcel": {"role": "identifier"},
    "pair": {"role": "identifier"},
    "weight": {"role": "quasi-identifier", "kind": "numeric", "domain": [0, 100]},
}


def dataset(**top: str) -> dn.Dataset:
    weights = [float(number) for number in range(NUM_ROWS)]
    parcels, pairs = ([f"CANARY{number // size}" for number in range(NUM_ROWS)] for size in (1, 2))
    table = pa.table({"parcel": parcels, "pair": pairs, "weight": weights})
    return dn.load(table, a_policy({"name": "partition", "k": 3}, ATTRIBUTES, **top))


@pytest.fixture
def made() -> Publication:
    """A publication in memory."""
    return dn.publish(dataset(), ledger=":memory:")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "release"


def listing(place: Path) -> list[str]:
    return sorted(os.listdir(place))


def test_the_key_is_beside_the_folder_and_private(made: Publication, folder: Path) -> None:
    before = os.umask(0)
    try:
        release, key = made.write(folder)
    finally:
        os.umask(before)
    assert listing(folder.parent) == NAMES
    assert not [name for name in listing(folder) if "key" in name]
    assert stat.S_IMODE(key_path(folder).stat().st_mode) == 0o600
    assert key_path(folder).stat().st_nlink == 1
    assert dn.verify(folder).ok
    again = Key.read(key_path(folder))
    assert again.table.equals(key.table)
    assert (again.salt, again.input_digest) == (key.salt, key.input_digest)
    assert again.certificate_digest == key.certificate_digest == release.certificate.digest
    assert again.belongs_to(dataset())
    assert sorted(again.table.column("source_row").to_pylist()) == list(range(1, NUM_ROWS + 1))
    assert repr(made.key) == str(made.key) == "Key(private)"
    assert "CANARY" not in repr(made)


def test_a_key_of_merged_rows_comes_back_from_its_file(folder: Path) -> None:
    pairs = dataset(together="pair")
    release, key = dn.publish(pairs, ledger=":memory:").write(folder)
    again = Key.read(key_path(folder))
    assert again.table.equals(key.table)
    assert sorted(again.table.column("source_row").to_pylist()) == list(range(1, NUM_ROWS + 1))
    assert sorted(again.table.column("row").to_pylist()) == sorted(2 * list(range(len(release))))
    assert sorted(again.table.column("parcel").to_pylist()) == sorted(f"CANARY{number}" for number in range(NUM_ROWS))
    assert again.belongs_to(pairs)
    assert not again.belongs_to(dataset()), "the same rows, but not together"
    assert dn.verify(folder).ok


def test_whatever_is_no_key_is_refused(made: Publication, tmp_path: Path) -> None:
    refusal(ReleaseError, Key.read, tmp_path / "missing.key.parquet")
    refusal(ReleaseError, Key.read, tmp_path)
    path = tmp_path / "x.key.parquet"
    path.write_bytes(b"PAR1garbagePAR1")
    refusal(ReleaseError, Key.read, path)
    metadata = {"dunnage.key": "1", "dunnage.salt": "00", "dunnage.input": "x"}
    for stated in (None, {**metadata, "dunnage.key": "2"}, metadata):  # any table, a newer key, one without digest
        pq.write_table(made.key.table.replace_schema_metadata(stated), path)
        refusal(ReleaseError, Key.read, path)


def test_an_existing_folder_or_key_is_replaced_by_force_only(made: Publication, folder: Path) -> None:
    first, _ = made.write(folder)
    before = snapshot(folder)
    refusal(OutputError, made.write, folder)
    assert snapshot(folder) == before
    release, _ = dn.publish(dataset(), ledger=":memory:").write(folder, force=True)
    assert release.certificate.digest != first.certificate.digest
    assert dn.Release.read(folder).certificate.digest == release.certificate.digest
    assert Key.read(key_path(folder)).certificate_digest == release.certificate.digest
    assert stat.S_IMODE(key_path(folder).stat().st_mode) == 0o600
    assert listing(folder.parent) == NAMES
    folder.rename(folder.with_name("sent"))
    assert "key.parquet" in str(refusal(OutputError, made.write, folder))
    assert listing(folder.parent) == ["release.key.parquet", "sent"]


@pytest.mark.parametrize("case", ["file", "full", "release and more", "link", "dangling", "key folder", "key link"])
def test_force_deletes_nothing_but_releases(made: Publication, folder: Path, case: str) -> None:
    other = folder.with_name("other")
    other.mkdir()
    (other / "precious.txt").write_text("precious")
    if case == "file":
        folder.write_text("precious")
    elif case in ("full", "key folder"):
        other.rename(folder if case == "full" else key_path(folder))
    elif case == "release and more":
        made.write(folder)
        (folder / "dunnage-ledger.sqlite").write_text("precious")
    elif case in ("link", "dangling"):
        folder.symlink_to(other if case == "link" else folder.with_name("nothing"))
    else:
        key_path(folder).symlink_to(other / "precious.txt")
    before = sorted(folder.parent.rglob("*"))
    refusal(OutputError, made.write, folder, force=True)
    assert sorted(folder.parent.rglob("*")) == before


def test_a_place_that_cannot_be_written_is_found_before_anything_is_spent(made: Publication, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    before = listing(tmp_path)
    for name in ("missing/release", "file/release", "/", "/proc/release", "x" * 300, "x" * 250, "nul\0"):
        refusal(OutputError, dn.publish, dataset(), out=tmp_path / name, ledger=tmp_path / "ledger.sqlite")
        assert listing(tmp_path) == before
    folder = tmp_path / "release"
    folder.mkdir()
    made.write(folder, force=True)  # an empty folder may be filled
    refusal(OutputError, made.write, folder / "inner")  # no key may lie in a release
    assert dn.verify(folder).ok


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write anywhere")
def test_a_folder_without_the_right_to_write_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    refusal(OutputError, check_output, tmp_path / "release", force=False)


@pytest.mark.parametrize("name", ["rename", "fsync", "mkdir"])
@pytest.mark.parametrize("force", [False, True])
def test_a_failing_disk_leaves_what_was_there(
    made: Publication, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, force: bool
) -> None:
    """The n-th call fails, for each n: afterwards the old pair stands whole, or nothing does."""
    true = getattr(os, name)
    first = made.write(folder).release.certificate.digest if force else None
    for number in range(20):
        calls = iter(range(1000))

        def failing(*args: object, number: int = number, calls: object = calls, **more: object) -> object:
            if next(calls) == number:  # type: ignore[call-overload]
                raise OSError(28, "No space left on device")
            return true(*args, **more)

        with monkeypatch.context() as patch:
            patch.setattr(os, name, failing)
            try:
                made.write(folder, force=force)
                break
            except OutputError as error:
                problem = str(error)
        assert "No space left on device" in problem
        assert listing(folder.parent) in ([NAMES] if force else [[], NAMES])
        if first is not None:
            assert Key.read(key_path(folder)).certificate_digest == first
            assert dn.verify(folder).ok
        elif folder.exists():  # only the last sync failed
            break
    assert dn.verify(folder).ok
    assert listing(folder.parent) == NAMES


def test_a_file_system_without_links_will_do(made: Publication, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    made.write(folder)
    made.write(folder, force=True)
    assert listing(folder.parent) == NAMES
    assert dn.verify(folder).ok


def test_another_run_that_comes_first_keeps_its_key(
    made: Publication, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A release put there between our check and our writing is not replaced, nor is its key."""
    true = os.link
    other = dn.publish(dataset(), ledger=":memory:")

    def late(*args: object, **more: object) -> None:
        monkeypatch.setattr(os, "link", true)
        other.write(folder)
        true(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "link", late)
    refusal(OutputError, made.write, folder)
    assert Key.read(key_path(folder)).certificate_digest == dn.Release.read(folder).certificate.digest
    assert Key.read(key_path(folder)).salt == other.key.salt
    assert listing(folder.parent) == NAMES


def test_a_key_that_a_living_run_has_just_written_is_not_taken_for_abandoned(
    made: Publication, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    true = os.rename
    seen = []

    def look(source: Path, target: Path) -> None:
        if Path(target) == folder:
            seen.append(str(refusal(OutputError, check_output, folder, force=False)))
        true(source, target)

    monkeypatch.setattr(os, "rename", look)
    made.write(folder)
    assert ["key.parquet" in message for message in seen] == [True]


def test_signing_a_publication(made: Publication, folder: Path, tmp_path: Path) -> None:
    pem = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "key.pem").write_bytes(pem)
    (tmp_path / "key.pem").chmod(0o600)
    release, key = made.write(folder, sign=tmp_path / "key.pem")
    assert release.certificate.signature is not None
    assert key.certificate_digest == release.certificate.digest
    assert dn.verify(folder).ok


def test_where_the_key_of_a_folder_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert key_path("out/release/") == Path("out/release.key.parquet")
    assert key_path("release.v1") == Path("release.v1.key.parquet")
    monkeypatch.chdir(tmp_path)
    assert key_path(".") == tmp_path.with_name(tmp_path.name + ".key.parquet")


# Room and permission, before anything is spent


def test_no_room_costs_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(folder.parent)._replace(free=1 << 19)
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage)
    with dn.Ledger(":memory:") as ledger:
        told = str(refusal(OutputError, dn.publish, dataset(), out=folder, ledger=ledger))
        assert "0.5 MiB" in told
        assert ledger.datasets() == []
        (why,) = dn.rehearse(dataset(), out=folder, ledger=ledger).refusals
    assert "0.5 MiB" in why
    assert listing(folder.parent) == []


def test_a_limit_on_files_costs_nothing(tmp_path: Path) -> None:
    """What free space does not show: a quota, or as here a limit of the process; both fail only when they are tried."""
    run("generate", "packages", "-o", tmp_path / "p.csv", "--size", 3000, "--seed", 1)
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))\n"
        "from dunnage.cli import main; main()"
    )
    publish = ["publish", "p.csv", "--policy", "p.toml", "-o", "r"]
    done = subprocess.run(
        [sys.executable, "-c", code, *publish], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr[:7]) == (2, "error: ")
    assert listing(tmp_path) == ["p.csv", "p.toml"]  # no ledger: nothing was spent
