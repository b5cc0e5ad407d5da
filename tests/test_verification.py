"""verify: damage and forgery are seen, hostile folders are a failed check and never a crash."""

from __future__ import annotations

import copy
import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dunnage as dn
from dunnage.certificate import Certificate, meaning
from dunnage.errors import DunnageError, ReleaseError
from dunnage.guarantees import Basis, KAnonymity, Promise
from dunnage.measures import size_measures
from dunnage.release import CERTIFICATE_FILE, Release, file_digest
from dunnage.showing import release_text

NUM_ROWS = 24
K = 4


def publish(folder: Path, *, statistic: str = "multiset", bounds: str = "class", **more: Any) -> Release:
    """Release 24 packages to two places, with what is in them."""
    policy = dn.Policy.from_dict(
        {
            "dataset": "parcels",
            "protects": "package",
            "attributes": {
                "parcel": {"role": "identifier"},
                "place": {"role": "public"},
                "content": {"role": "sensitive"},
                "weight": {
                    "role": "quasi-identifier",
                    "kind": "numeric",
                    "domain": [0, 100],
                    "resolution": 0.5,
                    "unit": "kg",
                },
            },
            "mechanism": {"name": "partition", "k": K, "statistic": statistic, "bounds": bounds, **more},
        }
    )
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
    body = copy.deepcopy(dict(release.certificate.plain()))
    change(body)
    return replace(release, certificate=Certificate(body=body))


def with_column(table: pa.Table, name: str, values: Any) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, pa.array(values))


def publish_levels(folder: Path, **more: Any) -> Release:
    """Release 60 rides with a tree, a number and a category, each at one level of its hierarchy."""
    parents = {"a": "A", "b": "A", "c": "B", "d": "B", "A": "*", "B": "*"}
    minutes = {"domain": [0, 80], "doubling": 10}
    policy = dn.Policy.from_dict(
        {
            "dataset": "rides",
            "protects": "ride",
            "attributes": {
                "kind": {"role": "quasi-identifier", "kind": "tree", "parents": parents},
                "minutes": {"role": "quasi-identifier", "kind": "numeric", **minutes},
                "bag": {"role": "quasi-identifier", "kind": "category", "domain": ["hand", "none"]},
            },
            "mechanism": {"name": "full-domain", "k": K, "statistic": "multiset", **more},
        }
    )
    table = pa.table(
        {
            "kind": ["a", "b", "c", "c", "d"] * 12,
            "minutes": [float(7 * number % 60) for number in range(60)],
            "bag": ["hand", "none", "none"] * 20,
        }
    )
    return dn.publish(dn.load(table, policy), out=folder, ledger=":memory:").release


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
    for number, more in enumerate(({"importance": {"kind": 3, "bag": "1/7"}}, {"max_suppressed": 0}, {"alpha": 0.4})):
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
        "private = ('dataset', 'publication', 'policy', 'ledger', 'mechanisms', 'io', 'publishing')\n"
        "sys.exit(', '.join(name for name in private if f'dunnage.{name}' in sys.modules) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# Damage


def test_flipped_bits_of_every_file_are_seen(folder: Path) -> None:
    generator = random.Random(20261115)
    for file in sorted(folder.iterdir()):
        true = file.read_bytes()
        positions = {0, len(true) - 1, *(generator.randrange(len(true)) for _ in range(40))}
        for position in positions:
            flipped = bytearray(true)
            flipped[position] ^= 1 << generator.randrange(8)
            file.write_bytes(flipped)
            assert file.name in damaged(folder)
        file.write_bytes(true)
    assert dn.verify(folder).ok


FILES = [
    "README.md",
    "certificate.json",
    "classes.csv",
    "classes.parquet",
    "data.csv",
    "data.parquet",
    "datapackage.json",
    "members.csv",
    "members.parquet",
]


def test_a_release_has_these_files(original: Path) -> None:
    assert sorted(os.listdir(original)) == FILES


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "longer", "folder", "link", "dangling", "pipe", "swap"])
def test_damage_to_any_file_is_a_failed_check(folder: Path, name: str, damage: str) -> None:
    file = folder / name
    content = file.read_bytes()
    moved = folder.with_name("moved")
    file.rename(moved)
    if damage == "empty":
        file.write_bytes(b"")
    if damage == "cut":
        file.write_bytes(content[:-1])
    if damage == "longer":
        file.write_bytes(content + b"\n")
    if damage == "folder":
        file.mkdir()
    if damage == "link":
        file.symlink_to(moved)
    if damage == "dangling":
        file.symlink_to(folder / "nothing")
    if damage == "pipe":
        os.mkfifo(file)
    if damage == "swap":
        other = folder / FILES[FILES.index(name) - 1]
        other.rename(file)
        moved.rename(other)
    problem = damaged(folder)
    assert name in problem or CERTIFICATE_FILE in problem


@pytest.mark.parametrize("name", ["extra.csv", ".hidden", "release.key.parquet", "\x1b[2Jx", "line\nok  all fine"])
def test_a_file_too_many_is_a_failed_check(folder: Path, name: str) -> None:
    (folder / name).write_text("x")
    problem = damaged(folder)
    assert "not listed" in problem
    assert problem.isprintable()


def test_a_folder_too_many_is_a_failed_check(folder: Path) -> None:
    (folder / "more").mkdir()
    assert "not listed" in damaged(folder)


def test_no_folder_at_all_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for name in ("missing", "file"):
        with pytest.raises(ReleaseError, match="not a folder"):
            dn.verify(tmp_path / name)


def test_an_empty_folder_is_a_failed_check(tmp_path: Path) -> None:
    assert "no certificate.json" in damaged(tmp_path)


# Fuzzing: each value of the certificate replaced in turn, the digest computed again


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Give the path of every value in plain data."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


def replaced(body: Any, path: tuple[Any, ...], value: Any) -> Any:
    changed = copy.deepcopy(body)
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return changed


# What is the owner's word, which nobody can recount from outside.
FREE = {
    ("dataset",),
    ("numerics",),
    ("digests_say",),
    ("software", "dunnage"),
    ("spend", "id"),
    ("in_clear",),
    ("assumptions",),
    ("composition", "total_per_period_assumes"),
    ("composition", "neighbours"),
    ("kind",),
    ("mechanism", "name"),
    ("mechanism", "bounds"),  # without it bounds may be wider than the class needs
    ("mechanism", "alpha"),  # a price that nothing was sold for: nothing is suppressed here
}
FREE_PARTS = ("assumptions", "in_clear", "attributes", "software")
STRANGE: list[Any] = [None, True, -7, 2.5, 10**30, "x", ["x"], {"x": 1}, [{}]]


def test_no_value_in_a_certificate_makes_verify_crash(folder: Path) -> None:
    body = dict(Certificate.from_bytes((folder / CERTIFICATE_FILE).read_bytes()).body)
    for path in places(body):
        for value in STRANGE:
            (folder / CERTIFICATE_FILE).write_bytes(Certificate(body=replaced(body, path, value)).to_bytes())
            result = dn.verify(folder)
            if result.ok:
                assert path in FREE or path[0] in FREE_PARTS, (path, value)
            try:
                release_text(Release.read(folder))
            except DunnageError:
                assert not result.ok


def test_no_missing_value_in_a_certificate_makes_verify_crash(folder: Path) -> None:
    body = dict(Certificate.from_bytes((folder / CERTIFICATE_FILE).read_bytes()).body)
    for path in places(body):
        changed = replaced(body, path, None)
        inner = changed
        for key in path[:-1]:
            inner = inner[key]
        del inner[path[-1]]
        (folder / CERTIFICATE_FILE).write_bytes(Certificate(body=changed).to_bytes())
        result = dn.verify(folder)
        if result.ok:
            assert path in FREE | {("mechanism", "k")} or path[0] in FREE_PARTS, path


@pytest.mark.parametrize(
    "name", ["../other.csv", "/etc/passwd", "", ".", "..", "a\0b", "data.csv/", "\x1b[2J", "x" * 5000]
)
def test_a_certificate_that_lists_strange_names_is_a_failed_check(folder: Path, name: str) -> None:
    body = dict(Certificate.from_bytes((folder / CERTIFICATE_FILE).read_bytes()).body)
    body["files"] = {**body["files"], name: "0" * 64}
    (folder / CERTIFICATE_FILE).write_bytes(Certificate(body=body).to_bytes())
    assert damaged(folder).isprintable()
    with pytest.raises(ReleaseError):
        Release.read(folder)


def relisted(folder: Path) -> None:
    """Compute the digests of whatever is in a folder again."""
    body = dict(Certificate.from_bytes((folder / CERTIFICATE_FILE).read_bytes()).body)
    names = sorted(set(os.listdir(folder)) - {CERTIFICATE_FILE})
    body["files"] = {name: file_digest(folder / name) for name in names}
    (folder / CERTIFICATE_FILE).write_bytes(Certificate(body=body).to_bytes())


@pytest.mark.parametrize("name", [name for name in FILES if name not in ("certificate.json", "README.md")])
def test_garbage_with_the_right_digest_is_a_failed_check(folder: Path, name: str) -> None:
    true = (folder / name).read_bytes()
    generator = random.Random(7)
    noisy = [bytearray(true) for _ in range(25)]
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


@pytest.mark.parametrize("name", [name for name in FILES if name not in ("certificate.json", "README.md")])
def test_a_file_taken_out_of_the_list_is_a_failed_check(folder: Path, name: str) -> None:
    (folder / name).unlink()
    relisted(folder)
    damaged(folder)


def test_a_table_that_claims_more_than_its_csv_holds_is_not_unpacked(folder: Path) -> None:
    pq.write_table(pa.table({"row": np.zeros(5_000_000, np.int64)}), folder / "data.parquet", compression="zstd")
    relisted(folder)
    assert "more cells" in damaged(folder)


# Forgeries: consistent files, wrong contents


def move_row(release: Release) -> Release:
    class_id = release.data.column("class_id").to_numpy().copy()
    class_id[0] = (class_id[0] + 1) % len(release.classes or [])
    return replace(release, data=with_column(release.data, "class_id", class_id))


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


def class_column(name: str, change: Callable[[Any], Any]) -> Callable[[Release], Release]:
    def forge(release: Release) -> Release:
        assert release.classes is not None
        values = release.classes.column(name).to_numpy().copy()
        values[0] = change(values[0])
        classes = with_column(release.classes, name, values)
        if name not in release.data.column_names:
            return replace(release, classes=classes)
        data = with_column(release.data, name, values[release.data.column("class_id").to_numpy()])
        return replace(release, classes=classes, data=data)

    return forge


def member(change: Callable[[Any], Any]) -> Callable[[Release], Release]:
    def forge(release: Release) -> Release:
        assert release.members is not None
        values = release.members.column("weight").to_numpy().copy()
        change(values)
        return replace(release, members=with_column(release.members, "weight", values))

    return forge


def swap_first_two(values: Any) -> None:
    values[[1, 2]] = values[[2, 1]]


def body(*path: str, to: Any) -> Callable[[Release], Release]:
    def forge(release: Release) -> Release:
        return with_body(release, lambda body: body.update(replaced(body, path, to)))

    return forge


def claim_dp(release: Release) -> Release:
    def change(body: dict[str, Any]) -> None:
        body["guarantee"] = {"model": "dp", "epsilon": 1, "protects": "package", "neighbours": "add-remove"}

    return with_body(release, change)


def flatter(release: Release) -> Release:
    """State a larger k, with words and odds to match."""

    def change(body: dict[str, Any]) -> None:
        better = KAnonymity(k=10, protects="package")
        body["guarantee"]["k"] = body["mechanism"]["k"] = body["measures"]["k_asked"] = 10
        body["meaning"] = meaning(Promise(guarantee=better, basis=Basis.PROVED, mechanism={}))

    return with_body(release, change)


def add_column(table: str, name: str) -> Callable[[Release], Release]:
    def forge(release: Release) -> Release:
        held = release.tables[table]
        return replace(release, **{table: held.append_column(name, pa.array(np.arange(held.num_rows)))})

    return forge


def huge_class(release: Release) -> Release:
    class_id = release.data.column("class_id").to_numpy().copy()
    class_id[class_id == class_id.max()] = 2**60
    return replace(release, data=with_column(release.data, "class_id", class_id))


def drop_attribute(release: Release) -> Release:
    return with_body(release, lambda body: body["attributes"].pop(1))


def repeat_attribute(release: Release) -> Release:
    return with_body(release, lambda body: body["attributes"].append(body["attributes"][0]))


def empty(release: Release) -> Release:
    return replace(release, data=release.data.slice(0, 0))


def null_weight(release: Release) -> Release:
    assert release.members is not None
    values = release.members.column("weight").to_pylist()
    return replace(release, members=with_column(release.members, "weight", [None, *values[1:]]))


FORGERIES: dict[str, tuple[Callable[[Release], Release], str]] = {
    "a row in another class": (move_row, "class"),
    "another proof": (body("proof", "sections", to=["docs/proofs/noise.md"]), "another proof"),
    "no section of a proof": (body("proof", "sections", to=[]), "another proof"),
    "a proof of another project": (body("proof", "project", to="other"), "not of its software"),
    "a proof of another version": (body("proof", "version", to="0.0.1"), "not of its software"),
    "a row wholly in another class": (move_row_wholly, "smallest class|sizes"),
    "a class of k - 1": (small_class, "smallest class has 3"),
    "bounds shrunk": (shrink_bounds, "bounds"),
    "bounds outside the domain": (class_column("weight_lower", lambda x: -1.0), "domain"),
    "an interval turned round": (class_column("weight_lower", lambda x: 99.9), "empty"),
    "a bound that is no number": (class_column("weight_upper", lambda x: float("nan")), "."),
    "a wrong size": (class_column("size", lambda x: x + 1), "sizes"),
    "a wrong mean": (class_column("weight_mean", lambda x: x + 1e-6), "mean"),
    "a mean outside its interval": (class_column("weight_mean", lambda x: 100.0), "mean"),
    "a member changed": (member(lambda values: values.__setitem__(1, values[1] + 0.01)), "means"),
    "members out of order": (member(swap_first_two), "sorted"),
    "a member that is missing": (null_weight, "missing values"),
    "fewer suppressed": (body("measures", "suppressed", "count", to=-1), "suppressed"),
    "more suppressed": (body("measures", "suppressed", "count", to=5), "suppressed"),
    "suppressed true": (body("measures", "suppressed", "count", to=False), "suppressed"),
    "another share": (body("measures", "suppressed", "share", to=0.5), "suppressed"),
    "another loss": (body("measures", "loss", "sum", to=0.5), "loss"),
    "another total loss": (body("measures", "loss", "total", to=0.01), "loss"),
    "another loss of an attribute": (body("measures", "loss", "attributes", "weight", to=0.01), "loss"),
    "another metric": (body("measures", "loss", "metric", to="my own"), "loss"),
    "another l": (body("measures", "sensitive", "content", "l", to=9), "sensitive"),
    "another t": (body("measures", "sensitive", "content", "t", to=0.0), "sensitive"),
    "another distance": (body("measures", "sensitive", "content", "distance", to="mine"), "sensitive"),
    "another k reached": (body("measures", "k_reached", to=9), "k_reached"),
    "another k asked": (body("measures", "k_asked", to=9), "k_asked"),
    "lower risks": (body("measures", "risks", "prosecutor_highest", to=0.01), "risks"),
    "a figure too many": (body("measures", "quality", to="high"), "quality"),
    "another k in the guarantee": (body("guarantee", "k", to=3), "."),
    "another k in the mechanism": (body("mechanism", "k", to=9), "another k"),
    "a larger k throughout": (flatter, "smallest class has 4"),
    "flattered odds": (body("meaning", "odds", to=[]), "odds"),
    "flattered words": (body("meaning", "sentences", to=["All is well."]), "odds"),
    "void without a reason": (body("basis", to="void"), "void"),
    "proved with a reason": (body("why", to="seeded"), "reason"),
    "proved, and something else holds": (body("holds", to={"model": "k-anonymity", "k": 9, "protects": "x"}), "holds"),
    "another rule": (body("composition", "rule", to="adds up"), "rule"),
    "a total that does not exist": (body("composition", "total", to={"epsilon": 1}), "total"),
    "differential privacy": (claim_dp, "."),
    "another statistic": (body("mechanism", "statistic", to="mean"), "tables"),
    "other bounds": (body("mechanism", "bounds", to="grid"), "grid"),
    "another time": (body("time", to="2020-01-01T00:00:00Z"), "time"),
    "a wider domain": (body("attributes", to=[]), "columns"),
    "no classes": (lambda release: replace(release, classes=None), "tables"),
    "no members": (lambda release: replace(release, members=None), "tables"),
    "no rows": (empty, "."),
    "a column too many": (add_column("data", "serial"), "columns"),
    "a column of members too many": (add_column("members", "serial"), "columns"),
    "a column of classes too many": (add_column("classes", "serial"), "columns"),
    "a column that is not listed": (drop_attribute, "columns"),
    "a column listed twice": (repeat_attribute, "twice"),
    "a huge class number": (huge_class, "class_id"),
}


def class_label(old: str, new: str) -> Callable[[Release], Release]:
    """Give a node of kind another label wherever it stands for a class."""

    def forge(release: Release) -> Release:
        tables = {}
        for table in ("data", "classes"):
            held = release.tables[table]
            labels = [new if label == old else label for label in held.column("kind").to_pylist()]
            tables[table] = with_column(held, "kind", labels)
        return replace(release, **tables)

    return forge


def member_label(release: Release) -> Release:
    """Let the last member of the first class, which is under A, be one of the other branch."""
    assert release.members is not None
    labels = release.members.column("kind").to_pylist()
    labels[release.members.column("class_id").to_pylist().count(0) - 1] = "d"
    return replace(release, members=with_column(release.members, "kind", labels))


def wider(release: Release) -> Release:
    """Let every interval end half a minute later, so that it still holds all members."""
    tables = {}
    for table in ("data", "classes"):
        held = release.tables[table]
        tables[table] = with_column(held, "minutes_upper", held.column("minutes_upper").to_numpy() + 0.5)
    return replace(release, **tables)


def raise_level(name: str) -> Callable[[Release], Release]:
    return lambda release: with_body(
        release, lambda body: body["measures"]["levels"].update({name: body["measures"]["levels"][name] + 1})
    )


LEVEL_FORGERIES: dict[str, tuple[Callable[[Release], Release], str]] = {
    "another level of a tree": (raise_level("kind"), "kind is not at the level"),
    "another level of a number": (raise_level("minutes"), "minutes is not at the level"),
    "a level that there is not": (body("measures", "levels", "bag", to=7), "no such level"),
    "a level that is no number": (body("measures", "levels", "bag", to=True), "no such level"),
    "no level of an attribute": (body("measures", "levels", to={"kind": 1}), "one level for each"),
    "no levels": (body("measures", "levels", to=None), "one level for each"),
    "a label that is no node": (class_label("A", "Z"), "no node of the public hierarchy"),
    "a label of another level": (class_label("A", "a"), "kind is not at the level"),
    "a member of another node": (member_label, "not below the node"),
    "wider intervals": (wider, "minutes is not at the level"),
    "another importance": (body("mechanism", "importance", to={"kind": 5}), "loss"),
    "importance of nothing": (body("mechanism", "importance", to={"colour": 1}), "makes no sense"),
    "negative importance": (body("mechanism", "importance", to={"kind": -1}), "makes no sense"),
    "another tree": (body("attributes", to=[]), "columns"),
}


@pytest.mark.parametrize("name", LEVEL_FORGERIES)
def test_a_forged_level_is_seen(tmp_path: Path, name: str) -> None:
    release = publish_levels(tmp_path / "release", importance={"minutes": 2})
    assert release.certificate.plain()["measures"]["levels"] == {"kind": 1, "minutes": 2, "bag": 0}
    forge, words = LEVEL_FORGERIES[name]
    problem = damaged(forged(tmp_path / "release", forge(release)))
    assert re.search(words, problem), problem


def test_more_suppressed_than_the_limit_is_seen(tmp_path: Path) -> None:
    release = publish_levels(tmp_path / "release", alpha=0.1)
    assert release.certificate.plain()["measures"]["suppressed"]["count"] > 0
    lower = body("mechanism", "max_suppressed", to=0.01)
    assert "limit" in damaged(forged(tmp_path / "release", lower(release)))


def test_no_value_in_a_certificate_with_levels_makes_verify_crash(tmp_path: Path) -> None:
    folder = tmp_path / "release"
    publish_levels(folder)
    content = dict(Certificate.from_bytes((folder / CERTIFICATE_FILE).read_bytes()).body)
    parts = ("attributes", "mechanism", "measures")
    for path in places({name: content[name] for name in parts}):
        for value in (None, -7, 10**30, "x", ["x"], {"x": 1}):
            (folder / CERTIFICATE_FILE).write_bytes(Certificate(body=replaced(content, path, value)).to_bytes())
            if dn.verify(folder).ok:
                assert path in FREE | {("mechanism", "max_suppressed")} or path[0] == "attributes", (path, value)


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
    forge, words = FORGERIES[name]
    target = forged(folder, forge(Release.read(folder)))
    problem = damaged(target)
    assert re.search(words, problem), problem


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
            ),
        ),
    )
    void = forged(policy_folder, seeded, "void")
    result = dn.verify(void)
    assert result.ok
    assert result.basis == "void"
    assert "void: nothing is promised" in result.summary()
    proved = forged(policy_folder, with_body(seeded, lambda body: body.update(basis="proved")), "proved")
    assert "reason" in damaged(proved)


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


def test_a_column_of_another_type_is_seen(folder: Path) -> None:
    release = Release.read(folder)
    data = with_column(release.data, "class_id", release.data.column("class_id").cast(pa.float64()).to_pylist())
    assert "columns" in damaged(forged(folder, replace(release, data=data)))


def test_a_grid_bound_that_is_too_tight_is_seen(tmp_path: Path) -> None:
    release = publish(tmp_path / "release", bounds="grid")
    forge = class_column("weight_upper", lambda x: x - 0.5)
    assert "bounds" in damaged(forged(tmp_path / "release", forge(release)))


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
