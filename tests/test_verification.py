"""verify: damage and forgery are seen, hostile folders are a failed check and never a crash."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.builders import LEVELLED, WEIGHT, a_policy, rides

import dunnage as dn
from dunnage.errors import ReleaseError
from dunnage.model.certificate import Certificate, meaning
from dunnage.model.guarantees import Basis, KAnonymity, Promise
from dunnage.model.measures import size_measures
from dunnage.release import CERTIFICATE_FILE, Release, file_digest

NUM_ROWS = 24
K = 4


def publish(folder: Path, *, statistic: str = "multiset", bounds: str = "class", **more: Any) -> Release:
    """Release 24 packages to two places, with what is in them."""
    attributes = {
        "parcel": {"role": "identifier"},
        "place": {"role": "public"},
        "content": {"role": "sensitive"},
        "weight": {**WEIGHT, "resolution": 0.5},
    }
    mechanism = {"name": "partition", "k": K, "statistic": statistic, "bounds": bounds, **more}
    policy = a_policy(mechanism, attributes)
    table = pa.table(
        {
            "parcel": [f"P{number}" for number in range(NUM_ROWS)],
            "place": ["Dover", "Calais"] * (NUM_ROWS // 2),
            "content": ["books", "books", "wine"] * (NUM_ROWS // 3),
            "weight": [round(7.3 * number % 97, 1) for number in range(NUM_ROWS)],
        }
    )
    ledger = dn.Ledger(":memory:")
    return dn.publish(dn.load(table, policy), out=folder, ledger=ledger).release


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release in order; never changed."""
    folder = tmp_path_factory.mktemp("original") / "release"
    publish(folder)
    return folder


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    """A copy to be damaged."""
    return Path(shutil.copytree(original, tmp_path / "release"))


def damaged(folder: Path) -> str:
    """Verify a damaged folder and give the problem found."""
    result = dn.verify(folder)
    assert not result.ok
    assert result.summary().startswith("NOT in order")
    assert len(result.problems) == 1
    return result.problems[0]


def forged(folder: Path, release: Release, name: str = "forged") -> Path:
    """Write a changed release with all digests computed again."""
    target = folder.with_name(name)
    target.mkdir()
    release.write_files(target)
    return target


def with_body(release: Release, change: Callable[[dict[str, Any]], Any]) -> Release:
    body = release.certificate.plain()
    change(body)
    return replace(release, certificate=Certificate.model_validate(body))


def with_column(table: pa.Table, name: str, values: Any) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, pa.array(values))


def publish_levels(folder: Path, **more: Any) -> Release:
    """Release rides with a number, a tree and a category, each at one level of its hierarchy."""
    mechanism = {"name": "full-domain", "k": K, "statistic": "multiset", **more}
    return dn.publish(dn.load(rides(), a_policy(mechanism, LEVELLED)), out=folder, ledger=":memory:").release


# In order


@pytest.mark.parametrize("statistic", ["bounds", "mean", "multiset"])
@pytest.mark.parametrize("bounds", ["class", "grid"])
def test_every_kind_of_release_is_in_order(tmp_path: Path, statistic: str, bounds: str) -> None:
    publish(tmp_path / "release", statistic=statistic, bounds=bounds)
    result = dn.verify(tmp_path / "release")
    assert result.problems == []
    assert result.basis == "proved"
    assert result.summary().startswith("In order: ")
    assert any(check.startswith(f"k = {K} asked, {K}") for check in result.checks)
    assert result.to_dict()["ok"] is True


@pytest.mark.parametrize("alpha", ["1/3", 0.35, 7])
def test_a_price_that_is_no_decimal_is_in_order(tmp_path: Path, alpha: Any) -> None:
    publish(tmp_path / "release", alpha=alpha)
    assert dn.verify(tmp_path / "release").problems == []


def test_levels_of_hierarchies_are_in_order(tmp_path: Path) -> None:
    for number, more in enumerate(({"importance": {"start": 3, "bag": "1/7"}}, {"max_suppressed": 0}, {"alpha": 0.4})):
        folder = tmp_path / str(number)
        publish_levels(folder, **more)
        result = dn.verify(folder)
        assert result.problems == []
        assert "every attribute is at one level of its public hierarchy" in result.checks


def test_decimals_far_from_zero_are_in_order(tmp_path: Path) -> None:
    """Bounds are the nearest doubles of decimals; their differences are not exact."""
    weight = {"role": "quasi-identifier", "kind": "numeric", "domain": [1_700_000_000, 1_700_000_100]}
    policy = dn.Policy.from_dict(
        {
            "dataset": "times",
            "protects": "trip",
            "attributes": {"second": weight},
            "mechanism": {"name": "partition", "k": 2, "statistic": "multiset"},
        }
    )
    values = [1_700_000_000 + round(random.Random(number).random() * 100, 3) for number in range(2000)]
    data = dn.load(pa.table({"second": values}), policy)
    dn.publish(data, out=tmp_path / "release", ledger=":memory:")
    assert dn.verify(tmp_path / "release").problems == []


def test_verify_needs_and_loads_nothing_private() -> None:
    code = (
        "import sys; from dunnage.verification import verify; import dunnage.release\n"
        "private = ('dataset', 'publication', 'policy', 'ledger', 'io', 'publishing')\n"
        "sys.exit(', '.join(name for name in private if f'dunnage.{name}' in sys.modules) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# Damage


def test_flipped_bits_of_every_file_are_seen(folder: Path) -> None:
    generator = random.Random(20261115)
    for file in sorted(folder.iterdir()):
        true = file.read_bytes()
        positions = {0, len(true) - 1, *(generator.randrange(len(true)) for _ in range(12))}
        for position in positions:
            flipped = bytearray(true)
            flipped[position] ^= 1 << generator.randrange(8)
            file.write_bytes(flipped)
            assert file.name in damaged(folder)
        file.write_bytes(true)
    assert dn.verify(folder).ok


TABLES = ["classes.csv", "classes.parquet", "data.csv", "data.parquet", "members.csv", "members.parquet"]
FILES = sorted(["README.md", "certificate.json", "datapackage.json", *TABLES])


@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "longer", "folder", "link", "dangling", "pipe", "swap"])
def test_damage_to_any_file_is_a_failed_check(original: Path, tmp_path: Path, damage: str) -> None:
    assert sorted(os.listdir(original)) == FILES
    for name in FILES:
        folder = Path(shutil.copytree(original, tmp_path / name / "release"))
        file, moved = folder / name, folder.with_name("moved")
        content = file.read_bytes()
        file.rename(moved)
        if damage in ("empty", "cut", "longer"):
            file.write_bytes({"empty": b"", "cut": content[:-1], "longer": content + b"\n"}[damage])
        if damage == "folder":
            file.mkdir()
        if damage in ("link", "dangling"):
            file.symlink_to(moved if damage == "link" else folder / "nothing")
        if damage == "pipe":
            os.mkfifo(file)
        if damage == "swap":
            other = folder / FILES[FILES.index(name) - 1]
            other.rename(file)
            moved.rename(other)
        problem = damaged(folder)
        assert name in problem or CERTIFICATE_FILE in problem


def test_a_file_or_folder_too_many_is_a_failed_check(folder: Path) -> None:
    for name in ("extra.csv", ".hidden", "release.key.parquet", "\x1b[2Jx", "line\nok  all fine"):
        (folder / name).write_text("x")
        problem = damaged(folder)
        assert "not listed" in problem
        assert problem.isprintable()
        (folder / name).unlink()
    (folder / "more").mkdir()
    assert "not listed" in damaged(folder)


def test_no_release_at_all(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "no certificate.json" in damaged(tmp_path / "empty")
    (tmp_path / "file").write_text("x")
    for name in ("missing", "file"):
        with pytest.raises(ReleaseError, match="not a folder"):
            dn.verify(tmp_path / name)


def test_a_certificate_that_lists_strange_names_is_a_failed_check(folder: Path) -> None:
    certificate = Certificate.from_bytes((folder / CERTIFICATE_FILE).read_bytes())
    for name in ("../other.csv", "/etc/passwd", "", ".", "..", "a\0b", "data.csv/", "\x1b[2J", "x" * 5000):
        forged_list = certificate.with_files({**certificate.files, name: "0" * 64})
        (folder / CERTIFICATE_FILE).write_bytes(forged_list.to_bytes())
        assert damaged(folder).isprintable()
        with pytest.raises(ReleaseError):
            Release.read(folder)


def relisted(folder: Path) -> None:
    """Compute the digests of whatever is in a folder again."""
    body = Certificate.from_bytes((folder / CERTIFICATE_FILE).read_bytes()).plain()
    names = sorted(set(os.listdir(folder)) - {CERTIFICATE_FILE})
    body["files"] = {name: file_digest(folder / name) for name in names}
    (folder / CERTIFICATE_FILE).write_bytes(Certificate.model_validate(body).to_bytes())


@pytest.mark.parametrize("name", ["datapackage.json", *TABLES])
def test_garbage_with_the_right_digest_is_a_failed_check(folder: Path, name: str) -> None:
    true = (folder / name).read_bytes()
    generator = random.Random(7)
    noisy = [bytearray(true) for _ in range(8)]
    for content in noisy:
        content[generator.randrange(len(true))] ^= 1 << generator.randrange(8)
    for content in (b"", b"\0" * 100, generator.randbytes(2000), true[: len(true) // 2], b"[]", b"{}", b"PAR1"):
        (folder / name).write_bytes(content)
        relisted(folder)
        damaged(folder)
    for flipped in noisy:  # may hit a byte that means nothing, such as one of a file's statistics
        (folder / name).write_bytes(flipped)
        relisted(folder)
        dn.verify(folder)


def test_a_listed_file_that_no_release_has_is_a_failed_check(folder: Path) -> None:
    (folder / "names.csv").write_text("P1")
    relisted(folder)
    assert "no file of a release" in damaged(folder)


@pytest.mark.parametrize("name", ["datapackage.json", *TABLES])
def test_a_file_taken_out_of_the_list_is_a_failed_check(folder: Path, name: str) -> None:
    (folder / name).unlink()
    relisted(folder)
    damaged(folder)


def test_a_table_that_claims_more_than_its_csv_holds_is_not_unpacked(folder: Path) -> None:
    pq.write_table(pa.table({"row": np.zeros(5_000_000, np.int64)}), folder / "data.parquet", compression="zstd")
    relisted(folder)
    assert "more cells" in damaged(folder)


# Forgeries: consistent files, wrong contents


def move_row_wholly(release: Release) -> Release:
    """Give a row the class and bounds of another class of the same place."""
    data = release.data.to_pylist()
    other = next(row for row in data if row["place"] == data[0]["place"] and row["class_id"] != data[0]["class_id"])
    data[0] = {**other, "row": data[0]["row"], "content": data[0]["content"]}
    return replace(release, data=pa.Table.from_pylist(data, schema=release.data.schema))


def small_class(release: Release) -> Release:
    """Take one row and one member of a class of k away, and mend sizes and figures."""
    assert release.classes is not None
    assert release.members is not None
    sizes = release.classes.column("size").to_numpy().copy()
    victim = int(np.argmin(sizes))
    sizes[victim] -= 1
    rows = release.data.column("class_id").to_numpy()
    kept = np.delete(np.arange(len(rows)), np.flatnonzero(rows == victim)[0])
    members = release.members.column("class_id").to_numpy()
    left = np.delete(np.arange(len(members)), np.flatnonzero(members == victim)[1])
    data = release.data.take(kept)
    made = replace(
        release,
        data=with_column(data, "row", np.arange(len(kept))),
        classes=with_column(release.classes, "size", sizes),
        members=release.members.take(left),
    )
    figures = size_measures(sizes, K, 0).plain()
    return with_body(made, lambda body: body["measures"].update(figures))


def shrink_bounds(release: Release) -> Release:
    assert release.classes is not None
    upper = release.classes.column("weight_upper").to_numpy().copy()
    upper[0] -= 0.1
    class_id = release.data.column("class_id").to_numpy()
    return replace(
        release,
        classes=with_column(release.classes, "weight_upper", upper),
        data=with_column(release.data, "weight_upper", upper[class_id]),
    )


def claim_dp(release: Release) -> Release:
    def change(body: dict[str, Any]) -> None:
        body["guarantee"] = {"model": "dp", "epsilon": 1, "protects": "package", "neighbours": "add-remove"}

    return with_body(release, change)


def flatter(release: Release) -> Release:
    """State a larger k, with words and odds to match."""

    def change(body: dict[str, Any]) -> None:
        better = KAnonymity(k=10, protects="package")
        body["guarantee"]["k"] = body["mechanism"]["k"] = body["measures"]["k_asked"] = 10
        body["meaning"] = meaning(Promise(guarantee=better, basis=Basis.PROVED, mechanism={})).plain()

    return with_body(release, change)


def huge_class(release: Release) -> Release:
    class_id = release.data.column("class_id").to_numpy().copy()
    class_id[class_id == class_id.max()] = 2**60
    return replace(release, data=with_column(release.data, "class_id", class_id))


FORGERIES: dict[str, Callable[[Release], Release]] = {
    "a row wholly in another class": move_row_wholly,
    "a class of k - 1": small_class,
    "bounds shrunk": shrink_bounds,
    "a larger k throughout": flatter,
    "differential privacy": claim_dp,
    "a huge class number": huge_class,
}


def test_a_certificate_that_names_no_proof_is_in_order(folder: Path) -> None:
    older = with_body(Release.read(folder), lambda body: body.pop("proof"))
    target = forged(folder, older)
    assert dn.verify(target).ok
    assert "docs/proofs" not in (target / "README.md").read_text()
    assert "docs/proofs/partition.md" in (folder / "README.md").read_text()


def test_a_proof_of_another_version_may_have_other_sections(folder: Path) -> None:
    def elsewhere(note: str) -> Callable[[dict[str, Any]], None]:
        def change(body: dict[str, Any]) -> None:
            body["software"]["dunnage"] = body["proof"]["version"] = "9.9"
            body["proof"]["sections"] = [note]

        return change

    received = Release.read(folder)
    moved = with_body(received, elsewhere("docs/proofs/partition.md#moved"))
    assert dn.verify(forged(folder, moved, "moved")).ok
    other = with_body(received, elsewhere("docs/proofs/noise.md"))
    assert "another proof" in damaged(forged(folder, other, "other"))


@pytest.mark.parametrize("name", FORGERIES)
def test_a_consistent_forgery_is_seen(folder: Path, name: str) -> None:
    damaged(forged(folder, FORGERIES[name](Release.read(folder))))


def test_a_wider_domain_flatters_the_loss_and_is_seen(folder: Path) -> None:
    def widen(body: dict[str, Any]) -> None:
        body["attributes"][-1]["domain"]["upper"] = 1000

    target = forged(folder, with_body(Release.read(folder), widen))
    assert "loss" in damaged(target)


def test_void_turned_into_proved_is_seen(tmp_path: Path) -> None:
    policy_folder = tmp_path / "release"
    release = publish(policy_folder)
    seeded = with_body(
        release,
        lambda body: body.update(
            basis="void",
            why="seeded",
            meaning=meaning(
                Promise(guarantee=KAnonymity(k=K, protects="package"), basis=Basis.VOID, mechanism={}, why="seeded")
            ).plain(),
        ),
    )
    void = forged(policy_folder, seeded, "void")
    result = dn.verify(void)
    assert result.ok
    assert result.basis == "void"
    assert "void: nothing is promised" in result.summary()
    proved = forged(policy_folder, with_body(seeded, lambda body: body.update(basis="proved")), "proved")
    assert "why" in damaged(proved)


@pytest.mark.parametrize("name", ["data", "classes", "members"])
def test_csv_and_parquet_must_hold_the_same_table(folder: Path, name: str) -> None:
    file = folder / f"{name}.csv"
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    for changed in (lines[:-1], [*lines, lines[-1]], [lines[0], lines[2], lines[1], *lines[3:]], lines[1:], lines[:1]):
        file.write_text("".join(changed), encoding="utf-8")
        relisted(folder)
        damaged(folder)
    text = "".join(lines)
    for old, new in (("Dover", "Paris"), ('"class_id"', '"klass_id"'), (",4,", ",5,"), ("0,", "0,0,")):
        if old in text:
            file.write_text(text.replace(old, new, 1), encoding="utf-8")
            relisted(folder)
            damaged(folder)


def test_sensitive_values_that_move_are_seen(folder: Path) -> None:
    release = Release.read(folder)
    class_id = release.data.column("class_id").to_numpy()
    content = np.empty(len(class_id), dtype=object)
    content[np.argsort(class_id)] = sorted(release.data.column("content").to_pylist())
    data = with_column(release.data, "content", content)
    assert "sensitive" in damaged(forged(folder, replace(release, data=data)))


def test_an_unreadable_file_is_a_failed_check(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("dunnage.verification.file_digest", refuse)
    assert "Permission denied" in damaged(folder)


def test_the_result_is_plain_data(folder: Path) -> None:
    (folder / "x").write_text("")
    content = json.loads(json.dumps(dn.verify(folder).to_dict()))
    assert content["ok"] is False
    assert set(content) == {"release", "ok", "basis", "checks", "problems", "not_checked"}
