"""verify: damage and forgery are seen, hostile folders are a failed check and never a crash."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.builders import CLUSTERED, LEVELLED, RIDE, a_policy, parcels, rides
from tests.certificates_help import relisted, restated, verified, with_body, with_column
from tests.refusals import refusal

import dunnage as dn
from dunnage.errors import CheckFailed, NoPlanError, ParameterError, ReleaseError
from dunnage.exact import plain
from dunnage.mechanisms.noisy import NoisyClusters, NoisyValues
from dunnage.mechanisms.partition import Partition
from dunnage.mechanisms.sampled_lattice import SampledLattice, _are_around_values
from dunnage.model.certificate import Certificate
from dunnage.model.domains import CodedDomain, Numeric
from dunnage.model.guarantees import COUNTS_PERSONS
from dunnage.model.laws import Cells
from dunnage.model.measures import size_measures
from dunnage.publication import Publication
from dunnage.release import CERTIFICATE_FILE, Release
from dunnage.release.kinds.rows import NOISE_NOT_CHECKED, SAMPLE_NOT_CHECKED
from dunnage.verification import check_release

K = 4
STATISTICS = ("bounds", "mean", "multiset")


def publish(folder: Path, **more: Any) -> Release:
    """Release 24 packages to two places, with what is in them."""
    policy = a_policy({"name": "partition", "k": K, "statistic": "multiset", **more})
    return dn.publish(dn.load(parcels(), policy), out=folder, ledger=":memory:").release


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
    (problem,) = result.problems
    return problem


def publish_levels(folder: Path, **more: Any) -> Release:
    """Release rides with a number, a tree and a category, each at one level of its hierarchy."""
    mechanism = {"name": "full-domain", "k": K, "statistic": "multiset", **more}
    return dn.publish(dn.load(rides(), a_policy(mechanism, LEVELLED)), out=folder, ledger=":memory:").release


def test_every_kind_of_release_is_in_order(tmp_path: Path) -> None:
    kinds = [{"statistic": statistic, "bounds": bounds} for statistic in STATISTICS for bounds in ("class", "grid")]
    for number, more in enumerate([*kinds, *({"alpha": alpha} for alpha in ("1/3", 0.35, 7))]):
        publish(tmp_path / str(number), **more)
        result = dn.verify(tmp_path / str(number))
        assert result.problems == [], more
        assert result.basis == "proved"
        assert any(f"k = {K}" in check for check in result.checks)
        assert result.to_dict()["ok"] is True
    for more in ({"importance": {"start": 3, "bag": "1/7"}}, {"max_suppressed": 0}, {"alpha": 0.4}):
        folder = tmp_path / next(iter(more))
        publish_levels(folder, **more)
        assert dn.verify(folder).problems == []
    # Bounds are the nearest doubles of decimals; their differences are not exact far from zero.
    second = {"role": "quasi-identifier", "kind": "numeric", "domain": [1_700_000_000, 1_700_000_100]}
    policy = a_policy({"name": "partition", "k": 2, "statistic": "multiset"}, {"second": second})
    values = [1_700_000_000 + round(random.Random(number).random() * 100, 3) for number in range(2000)]
    dn.publish(dn.load(pa.table({"second": values}), policy), out=tmp_path / "times", ledger=":memory:")
    assert dn.verify(tmp_path / "times").problems == []


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
FILES = sorted(["README.md", "certificate.html", "certificate.json", "datapackage.json", "verify.html", *TABLES])


def test_damage_to_any_file_is_a_failed_check(original: Path, tmp_path: Path) -> None:
    assert sorted(os.listdir(original)) == FILES
    for damage in ("missing", "empty", "cut", "longer", "folder", "link", "dangling", "pipe", "swap"):
        for name in FILES:
            folder = Path(shutil.copytree(original, tmp_path / damage / name / "release"))
            file, moved = folder / name, folder.with_name("moved")
            content = file.read_bytes()
            file.rename(moved)
            if damage in ("empty", "cut", "longer"):
                file.write_bytes({"empty": b"", "cut": content[:-1], "longer": content + b"\n"}[damage])
            elif damage == "folder":
                file.mkdir()
            elif damage in ("link", "dangling"):
                file.symlink_to(moved if damage == "link" else folder / "nothing")
            elif damage == "pipe":
                os.mkfifo(file)
            elif damage == "swap":
                other = folder / FILES[FILES.index(name) - 1]
                other.rename(file)
                moved.rename(other)
            problem = damaged(folder)
            assert name in problem or CERTIFICATE_FILE in problem, damage


def test_a_file_or_folder_too_many_is_a_failed_check(folder: Path, tmp_path: Path) -> None:
    for name in ("extra.csv", ".hidden", "release.key.parquet", "\x1b[2Jx", "line\nok  all fine"):
        (folder / name).write_text("x")
        assert damaged(folder).isprintable()
        (folder / name).unlink()
    (folder / "more").mkdir()
    assert "more" in damaged(folder)
    content = json.loads(json.dumps(dn.verify(folder).to_dict()))
    assert content["ok"] is False
    assert set(content) == {"release", "ok", "basis", "checks", "problems", "not_checked"}
    (folder / "more").rmdir()
    (folder / "names.csv").write_text("P1")
    relisted(folder)
    assert "names.csv" in damaged(folder), "listed, but no file of a release"
    (tmp_path / "empty").mkdir()
    assert CERTIFICATE_FILE in damaged(tmp_path / "empty")
    (tmp_path / "file").write_text("x")
    for name in ("missing", "file"):
        refusal(ReleaseError, dn.verify, tmp_path / name)


def test_a_certificate_that_lists_strange_names_is_a_failed_check(folder: Path) -> None:
    certificate = Certificate.from_bytes((folder / CERTIFICATE_FILE).read_bytes())
    for name in ("../other.csv", "/etc/passwd", "", ".", "..", "a\0b", "data.csv/", "\x1b[2J", "x" * 5000):
        forged_list = certificate.with_files({**certificate.files, name: "0" * 64})
        (folder / CERTIFICATE_FILE).write_bytes(forged_list.to_bytes())
        assert damaged(folder).isprintable()
        refusal(ReleaseError, Release.read, folder)


def test_garbage_with_the_right_digest_is_a_failed_check(original: Path, tmp_path: Path) -> None:
    for name in ("datapackage.json", *TABLES):
        folder = Path(shutil.copytree(original, tmp_path / name))
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
        (folder / name).unlink()  # taken out of the list as well
        relisted(folder)
        damaged(folder)


def test_a_table_that_claims_more_than_its_csv_holds_is_not_unpacked(folder: Path) -> None:
    pq.write_table(pa.table({"row": np.zeros(5_000_000, np.int64)}), folder / "data.parquet", compression="zstd")
    relisted(folder)
    assert "cells" in damaged(folder)


def move_row_wholly(release: Release) -> Release:
    """Give a row the class and bounds of another class of the same place."""
    data = release.data.to_pylist()
    other = next(
        row for row in data if row["destination"] == data[0]["destination"] and row["class_id"] != data[0]["class_id"]
    )
    data[0] = {**other, "row": data[0]["row"], "content": data[0]["content"]}
    return replace(release, data=pa.Table.from_pylist(data, schema=release.data.schema))


def small_class(release: Release) -> Release:
    """Take one row and one member of a class of k away, and mend sizes and figures."""
    sizes = release.classes.column("size").to_numpy().copy()
    victim = int(np.argmin(sizes))
    sizes[victim] -= 1
    rows = release.data.column("class_id").to_numpy()
    kept = np.delete(np.arange(len(rows)), np.flatnonzero(rows == victim)[0])
    members = release.members.column("class_id").to_numpy()
    left = np.delete(np.arange(len(members)), np.flatnonzero(members == victim)[1])
    made = replace(release, data=release.data.take(kept), members=release.members.take(left))
    made = with_column(with_column(made, "row", np.arange(len(kept))), "size", sizes, "classes")
    figures = size_measures(sizes, K, 0).plain()
    return with_body(made, lambda body: body["measures"].update(figures))


def shrink_bounds(release: Release) -> Release:
    upper = release.classes.column("weight_upper").to_numpy().copy()
    upper[0] -= 0.1
    told = upper[release.data.column("class_id").to_numpy()]
    return with_column(with_column(release, "weight_upper", upper, "classes"), "weight_upper", told)


def claim_dp(release: Release) -> Release:
    dp = {"model": "dp", "epsilon": 1, "protects": "package", "neighbours": "add-remove"}
    return with_body(release, lambda body: body.update(guarantee=dp))


def flatter(release: Release) -> Release:
    """State a larger k, with words and odds to match."""

    def change(body: dict[str, Any]) -> None:
        body["guarantee"]["k"] = body["mechanism"]["k"] = body["measures"]["k_asked"] = 10
        restated(body)

    return with_body(release, change)


def huge_class(release: Release) -> Release:
    class_id = release.data.column("class_id").to_numpy().copy()
    class_id[class_id == class_id.max()] = 2**60
    return with_column(release, "class_id", class_id)


def sensitive_moved(release: Release) -> Release:
    class_id = release.data.column("class_id").to_numpy()
    content = np.empty(len(class_id), dtype=object)
    content[np.argsort(class_id)] = sorted(release.data.column("content").to_pylist())
    return with_column(release, "content", content)


def test_a_consistent_forgery_is_seen(original: Path, tmp_path: Path) -> None:
    release = Release.read(original)
    for forge in (move_row_wholly, small_class, shrink_bounds, flatter, claim_dp, huge_class, sensitive_moved):
        result = verified(forge(release), tmp_path / forge.__name__)
        assert len(result.problems) == 1, forge.__name__


def test_proofs_of_other_versions(original: Path, tmp_path: Path) -> None:
    release = Release.read(original)
    assert verified(with_body(release, lambda body: body.pop("proof")), tmp_path / "older").ok
    assert "docs/proofs" not in (tmp_path / "older" / "README.md").read_text()
    assert "docs/proofs/partition.md" in (original / "README.md").read_text()
    for note, ok in (("partition.md#moved", True), ("noise.md", False)):

        def elsewhere(body: dict[str, Any], note: str = note) -> None:
            body["software"]["dunnage"] = body["proof"]["version"] = "9.9"
            body["proof"]["sections"] = [f"docs/proofs/{note}"]

        assert verified(with_body(release, elsewhere), tmp_path / note).ok is ok


def test_void_turned_into_proved_is_seen(original: Path, tmp_path: Path) -> None:
    def void(body: dict[str, Any], why: str = Partition.seeded) -> None:
        body.update(basis="void", why=why)
        restated(body)

    seeded = with_body(Release.read(original), void)
    result = verified(seeded, tmp_path / "void")
    assert (result.ok, result.basis, len(result.problems)) == (False, "void", 1)
    assert [dn.verify(tmp_path / "void", require=basis).ok for basis in dn.Basis] == [False, False, True]
    assert [dn.verify(original, require=basis).ok for basis in dn.Basis] == [True, True, True]
    refusal(ParameterError, dn.verify, original, require="certain")
    other = with_body(Release.read(original), lambda body: void(body, "rows of three customers"))
    assert "why" in verified(other, tmp_path / "other").problems[0]
    assert not verified(with_body(seeded, lambda body: body.update(basis="proved")), tmp_path / "proved").ok


def test_csv_and_parquet_must_hold_the_same_table(folder: Path) -> None:
    for name in ("data", "classes", "members"):
        file = folder / f"{name}.csv"
        text = file.read_text(encoding="utf-8")
        lines = text.splitlines(keepends=True)
        moved = [lines[:-1], [*lines, lines[-1]], [lines[0], lines[2], lines[1], *lines[3:]], lines[1:], lines[:1]]
        pairs = (("north", "paris"), ('"class_id"', '"klass_id"'), (",4,", ",5,"), ("0,", "0,0,"))
        for changed in (*map("".join, moved), *(text.replace(old, new, 1) for old, new in pairs if old in text)):
            file.write_text(changed, encoding="utf-8")
            relisted(folder)
            damaged(folder)
        file.write_text(text, encoding="utf-8")


def test_an_unreadable_file_is_a_failed_check(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("dunnage.release.file_digest", refuse)
    assert "Permission denied" in damaged(folder)


# --- clusters -----------------------------------------------------------------------------------------------------


def publish_clusters(folder: Path, *, person: bool = True, **parameters: Any) -> Release:
    more = {"contribution": {"person": "card"}} if person else {}
    policy = a_policy({"name": "utility-clusters", **parameters}, RIDE, protects="ride", **more)
    release = dn.publish(dn.load(rides(), policy), ledger=":memory:", out=folder).release
    assert dn.verify(folder).problems == []
    return release


def test_clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release = publish_clusters(tmp_path / "persons", **CLUSTERED)
    stated = release.certificate
    assert any("start" in line and "0.4" in line for line in stated.in_clear)
    assert COUNTS_PERSONS in stated.assumptions
    assert all("person" in sentence for sentence in stated.meaning.sentences[:2])
    other = publish_clusters(tmp_path / "rides", person=False, k=4, t=0.6)
    assert "person" not in " ".join(other.certificate.meaning.sentences)
    assert COUNTS_PERSONS not in other.certificate.assumptions
    # The distance that t asks for is the one that is reported.
    ordered, equal = (made.certificate.rows.sensitive["rating"] for made in (release, other))
    assert ordered.distance != equal.distance
    assert equal.t <= 0.6

    def without_persons(body: dict[str, Any]) -> None:
        del body["measures"]["persons"]
        body["measures"]["k_reached"] = body["measures"]["class_size"]["smallest"]

    assert not verified(with_body(release, without_persons), tmp_path / "forged").ok

    def refuse(*given: Any) -> None:
        raise AssertionError("a folder from anywhere must not cost memory by the square of the labels it names")

    monkeypatch.setattr(CodedDomain, "distances_between", refuse)
    assert dn.verify(tmp_path / "persons").problems == []


# --- noise and samples --------------------------------------------------------------------------------------------

BORDERS = {"weight": [20, 50.5]}
MECHANISMS: dict[str, Any] = {
    "values": NoisyValues(epsilon=2),
    "values, piecewise": NoisyValues(epsilon=1, law="piecewise", confidence=0.7),
    "values without intervals": NoisyValues(epsilon="1/3", confidence=0),
    "public borders": NoisyClusters(epsilon=1, borders=BORDERS),
    "private borders": NoisyClusters(epsilon=1, quantiles={"weight": [0.3, 0.6]}),
    "clusters as published": NoisyClusters(epsilon=1, quantiles={"weight": [0.5]}, as_published=True),
    "sample": SampledLattice(k=4, beta=0.6, epsilon_choice=9),
    "sample, asked": SampledLattice(epsilon=10, delta="0.1", epsilon_choice=9),
    "sample, pooled": SampledLattice(k=4, beta=0.6, epsilon_choice=9, left_out="pool"),
    "sample and noise": SampledLattice(k=4, beta=0.6, epsilon_choice=9, left_out="noisy", left_out_epsilon=2),
    "sample as published": SampledLattice(k=4, beta=0.6, epsilon_choice=9, as_published=True),
    "sample of none": SampledLattice(k=300, beta=0.6, epsilon_choice=1),
}
NOISY = [name for name in MECHANISMS if not name.startswith("sample")]
SAMPLED = [name for name in MECHANISMS if name.startswith("sample")]
NUMBER = {"role": "quasi-identifier", "kind": "numeric", "domain": [0, 100], "resolution": 0.5, "unit": "kg"}
NUMBERS = {
    "parcel": {"role": "identifier"},
    "place": {"role": "public"},
    "weight": {**NUMBER, "doubling": 10},
    "volume": {**NUMBER, "domain": [10, 20], "resolution": 0.1, "unit": "l", "doubling": 4},
}


def packages(num: int = 120) -> dn.Dataset:
    """Make packages with two numbers, going to two places."""
    rows = np.arange(num)
    columns = {
        "parcel": [f"P{row}" for row in rows],
        "place": ["Dover", "Calais"] * (num // 2),
        "weight": (rows * 37 % 201) / 2,
        "volume": 10 + (rows * 17 % 101) / 10,
    }
    return dn.load(pa.table(columns), a_policy({"name": "partition", "k": 2}, NUMBERS))


def released(mechanism: Any) -> Release:
    publication: Publication = mechanism.release(packages(), ledger=dn.Ledger(":memory:"), noise=dn.Noise())
    return publication.release


@pytest.fixture(scope="module")
def releases() -> dict[str, Release]:
    """A release of each mechanism, with rows in classes if it is of a sample; never changed."""
    made = {}
    for name, mechanism in MECHANISMS.items():
        made[name] = released(mechanism)
        while name in SAMPLED and name != "sample of none" and not made[name].classes.num_rows:
            made[name] = released(mechanism)
    return made


def restating(release: Release, change: Callable[[dict[str, Any]], Any]) -> Release:
    """Change the certificate as a careful forger does: words and odds still follow from the guarantee."""

    def changed(body: dict[str, Any]) -> None:
        change(body)
        try:
            restated(body)
        except Exception:
            assert body["guarantee"] != release.certificate.plain()["guarantee"]  # no guarantee: caught as such

    return with_body(release, changed)


def test_noise_and_samples_in_order(releases: dict[str, Release], tmp_path: Path) -> None:
    for name, release in releases.items():
        result = verified(release, tmp_path / name)
        assert result.ok, (name, result.problems)
        assert set(SAMPLE_NOT_CHECKED) <= set(result.not_checked) or name in NOISY
        assert set(NOISE_NOT_CHECKED) <= set(result.not_checked) or name in SAMPLED


def test_a_total_is_at_least_this_release(releases: dict[str, Release], tmp_path: Path) -> None:
    """Nothing lost together is less than what one release loses, and nothing adds up where no bound exists."""
    for name, total in itertools.product(("values", "sample", "public borders"), ("total", "total_per_period")):
        own = releases[name].certificate.plain()["guarantee"]["epsilon"]
        less = {total: {"epsilon": float(own) * 0.99, "delta": 0.9}}
        forged = restating(releases[name], lambda body, less=less: body["composition"].update(less))
        assert not verified(forged, tmp_path / f"{name} {total}").ok


def moved(release: Release, name: str, by: float, row: int) -> Release:
    values = release.data.column(name).to_numpy().copy()
    values[row] += by if values[row] + by <= 100 else -by
    return with_column(release, name, values)


def test_another_guarantee_is_none_of_the_mechanism(releases: dict[str, Release]) -> None:
    """Only what the mechanism keeps may be stated, however well words and odds are made to match."""
    for name in NOISY:
        own = releases[name].certificate.plain()["guarantee"]
        common = {"epsilon": own["epsilon"], "protects": "package", "neighbours": "replace-one"}
        for guarantee in (
            {"model": "dp", **common},
            {"model": "dp", **common, "neighbours": "add-remove"},
            {"model": "dp", **common, "delta": 0},
            {"model": "within-cluster", **common, "clusters": "all of it"},
            {"model": "within-published-borders", **common},
            {"model": "local-dp", **common},
            {"model": "k-anonymity", "k": 2, "protects": "package"},
            {"model": "sampled-dp", **common, "neighbours": "add-remove", "delta": 0.5, "beta": 0.5},
        ):
            if guarantee["model"] != own["model"] or guarantee["neighbours"] != own["neighbours"]:
                try:
                    forged = restating(releases[name], lambda body, other=guarantee: body.update(guarantee=other))
                except ValueError:
                    continue  # no certificate can say it
                refusal(CheckFailed, check_release, forged)


def test_claims_are_not_proofs(releases: dict[str, Release]) -> None:
    def prove(body: dict[str, Any]) -> None:
        body["basis"] = "proved"
        for key in ("why", "holds", "claim"):
            body.pop(key, None)

    def hold(body: dict[str, Any]) -> None:
        body["holds"] = {**body["guarantee"], "epsilon": 0.5}

    for name in ("clusters as published", "sample as published", "sample, pooled", "sample and noise"):
        for change in (prove, hold):
            refusal(CheckFailed, check_release, restating(releases[name], change))


def test_delta_by_either_rounding(releases: dict[str, Release]) -> None:
    """A delta of one more digit down is too small, and a larger one is not what the mechanism promises."""
    release = releases["sample"]
    delta = Fraction(str(release.certificate.plain()["guarantee"]["delta"]))

    def stating(factor: Fraction) -> Release:
        def change(body: dict[str, Any]) -> None:
            body["guarantee"]["delta"] = plain(delta * factor)
            body["composition"].update(total="none", total_per_period="none")

        return restating(release, change)

    check_release(stating(Fraction(1)))
    for factor in (1 - Fraction(1, 10**9), Fraction(2)):
        refusal(CheckFailed, check_release, stating(factor))


def test_altered_sampled_rows(releases: dict[str, Release], tmp_path: Path) -> None:
    sampled, noisy = releases["sample"], releases["sample and noise"]
    class_id = sampled.data.column("class_id").to_numpy()
    beside = noisy.data.column("class_id").to_numpy()
    alone, kept = np.flatnonzero(beside < 0), np.flatnonzero(beside >= 0)

    def at(values: Any, row: int, other: int) -> Any:
        return np.where(np.arange(len(values)) == row, other, values)

    forgeries = {
        "a class below k": replace(sampled, data=sampled.data.slice(0, len(sampled) - 1)),
        "a row of no class without noise": with_column(sampled, "class_id", at(class_id, 0, -1)),
        "a class below -1": with_column(noisy, "class_id", at(beside, alone[0], -2)),
        "a kept row called noisy": with_column(noisy, "class_id", at(beside, kept[0], -1)),
        "a noisy interval moved": moved(noisy, "weight_upper", 0.5, int(alone[0])),
        "a noisy interval of another attribute moved": moved(noisy, "volume_lower", 0.05, int(alone[1])),
        "a class's interval moved": moved(noisy, "weight_upper", 0.5, int(kept[0])),
    }
    # Rows of no class are for samples alone, whatever the certificate says of noise.
    release = dn.publish(packages(), ledger=":memory:").release
    assert verified(release, tmp_path / "fine").ok
    grid = Numeric(lower=0, upper=100, resolution=0.5)
    cells = Cells.cut(grid, [], law="laplace", epsilon=Fraction(1), confidence=Fraction(1, 2))
    excused = with_column(release, "class_id", at(release.data.column("class_id").to_numpy(), 0, -1))
    noise = {"weight": cells.describe()}
    forgeries["k-anonymous"] = restating(excused, lambda body: body["measures"].update(noise=noise))
    crowd = {"weight": list(range(20_000))}
    borders = restating(releases["public borders"], lambda body: body["mechanism"].update(borders=crowd))
    for name, forged in {**forgeries, "too many borders to check": borders}.items():
        assert not verified(forged, tmp_path / name).ok, name


def test_intervals_around_values() -> None:
    """Exactly the intervals around a grid point are accepted, of all that have their ends on half steps."""
    for last, confidence, epsilon in itertools.product([1, 4, 5, 30], ["0", "1/2", "9/10"], ["1/10", "1", "5"]):
        law = {"law": "laplace", "epsilon": Fraction(epsilon), "confidence": Fraction(confidence)}
        cells = Cells.cut(Numeric(lower=2, upper=2 + last, resolution=1), [], **law)
        right = set(zip(*(ends.tolist() for ends in cells.interval(2.0 + np.arange(last + 1))), strict=True))
        halves = [2 + half / 2 for half in range(-1, 2 * last + 2)]
        for lower, upper in itertools.product(halves, halves):
            if last <= 5 or (lower, upper) in right or hash((lower, upper)) % 50 == 0:
                found = _are_around_values(cells, np.array([lower]), np.array([upper]))
                assert found == ((lower, upper) in right)


def test_a_sample_may_keep_nothing(releases: dict[str, Release], tmp_path: Path) -> None:
    """That is a release too, in order, and nothing can be planned on it."""
    none = releases["sample of none"]
    assert len(none) == 0
    assert verified(none, tmp_path / "release").ok
    again = Release.read(tmp_path / "release")
    assert again.data.schema == none.data.schema
    assert len(again) == len(again.uncertain("weight")) == 0
    refusal(NoPlanError, dn.pack, none, capacity=["weight=500"])
    noise_alone = SampledLattice(k=300, beta=0.5, epsilon_choice=1, left_out="noisy", left_out_epsilon=1)
    release = released(noise_alone)
    assert (release.data.column("class_id").to_numpy() == -1).all()
    assert verified(release, tmp_path / "noise").ok


def test_a_number_that_is_none_is_a_missing_value(tmp_path: Path) -> None:
    """The bits of a NaN are not in the CSV file, so they could have anything in them."""
    attributes = {
        "weight": {"role": "quasi-identifier", "kind": "numeric", "domain": [0, 100]},
        "price": {"role": "sensitive", "kind": "numeric"},
    }
    table = pa.table({"weight": [float(number) for number in range(12)], "price": [1.5] * 12})
    release = dn.publish(dn.load(table, a_policy({"name": "partition", "k": 4}, attributes)), ledger=":memory:").release
    assert verified(release, tmp_path / "fine").ok
    forged = with_column(release, "price", [float("nan"), *[1.5] * 11])
    assert "missing" in verified(forged, tmp_path / "forged").problems[0]


def test_planners_refuse_a_folder_that_verify_refuses_by_its_shape(folder: Path) -> None:
    Release.read(folder)
    (folder / "notes.txt").write_text("12 Quay Street")
    assert "notes.txt" in str(refusal(ReleaseError, Release.read, folder))
    relisted(folder)
    assert "notes.txt" in str(refusal(ReleaseError, Release.read, folder))
    (folder / "notes.txt").unlink()
    data = pq.read_table(folder / "data.parquet")
    pq.write_table(data.drop_columns(["weight_upper"]), folder / "data.parquet", compression="none")
    relisted(folder)
    assert "columns" in str(refusal(ReleaseError, Release.read, folder))
