"""verify on noisy and sampled releases: every figure that follows from others is worked out again, forged or not."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from dunnage.verification.noise import are_around_values

import dunnage as dn
from dunnage.certificate import Certificate, composition_rule, meaning
from dunnage.domains import Numeric
from dunnage.errors import NoPlanError
from dunnage.exact import plain
from dunnage.guarantees import Basis, Promise, guarantee_from
from dunnage.laws import Cells
from dunnage.ledger import Ledger
from dunnage.mechanisms.noisy_clusters import NoisyClusters
from dunnage.mechanisms.noisy_values import NoisyValues
from dunnage.mechanisms.sampled_lattice import SampledLattice
from dunnage.noise import Noise
from dunnage.publication import Publication
from dunnage.release import Release
from dunnage.verification import NOISE_NOT_CHECKED, SAMPLE_NOT_CHECKED

CLUSTERS = {"weight": [20, 50.5]}
MECHANISMS: dict[str, Any] = {
    "values": NoisyValues(epsilon=2),
    "values, piecewise": NoisyValues(epsilon=1, law="piecewise", confidence=0.7),
    "values without intervals": NoisyValues(epsilon="1/3", confidence=0),
    "public borders": NoisyClusters(epsilon=1, borders=CLUSTERS),
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


def load(num: int = 120) -> dn.Dataset:
    """Make packages with two numbers, going to two places."""
    number = {"role": "quasi-identifier", "kind": "numeric", "domain": [0, 100], "resolution": 0.5, "unit": "kg"}
    policy = dn.Policy.from_dict(
        {
            "dataset": "parcels",
            "protects": "package",
            "attributes": {
                "parcel": {"role": "identifier"},
                "place": {"role": "public"},
                "weight": {**number, "doubling": 10},
                "volume": {**number, "domain": [10, 20], "resolution": 0.1, "unit": "l", "doubling": 4},
            },
            "mechanism": {"name": "partition", "k": 2},
        }
    )
    rows = np.arange(num)
    columns = {
        "parcel": [f"P{row}" for row in rows],
        "place": ["Dover", "Calais"] * (num // 2),
        "weight": (rows * 37 % 201) / 2,
        "volume": 10 + (rows * 17 % 101) / 10,
    }
    return dn.load(pa.table(columns), policy)


def released(mechanism: Any, data: dn.Dataset | None = None) -> Publication:
    publication: Publication = mechanism.release(data or load(), ledger=Ledger(":memory:"), noise=Noise())
    return publication


@pytest.fixture(scope="module")
def releases() -> dict[str, Release]:
    """A release of each mechanism, with rows in classes if it is of a sample; never changed."""
    found = {}
    for name, mechanism in MECHANISMS.items():
        found[name] = released(mechanism).release
        while name in SAMPLED and name != "sample of none" and not found[name].classes.num_rows:
            found[name] = released(mechanism).release
    return found


def written(release: Release, folder: Path) -> dn.Verification:
    """Write a release, digests and all, and verify it."""
    folder.mkdir()
    release.write_files(folder)
    return dn.verify(folder)


def with_body(release: Release, change: Callable[[dict[str, Any]], Any]) -> Release:
    """Change the certificate as a careful forger does: words and odds still follow from the guarantee."""
    body = copy.deepcopy(dict(release.certificate.plain()))
    change(body)
    try:
        promise = Promise(
            guarantee=guarantee_from(body["guarantee"]),
            basis=Basis(body["basis"]),
            mechanism=body["mechanism"],
            holds=guarantee_from(body["holds"]) if "holds" in body else None,
            why=body.get("why", ""),
        )
        body["meaning"] = meaning(promise)
        body["composition"]["rule"] = composition_rule(promise.guarantee)
    except Exception:
        assert body["guarantee"] != release.certificate.plain()["guarantee"]  # no guarantee at all: caught as such
    return replace(release, certificate=Certificate(body=body))


def leaves(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to every single value."""
    if isinstance(content, dict | list) and content:
        for key, value in content.items() if isinstance(content, dict) else enumerate(content):
            yield from leaves(value, (*path, key))
    else:
        yield path


def others(value: Any) -> list[Any]:
    """Return values that a forger might write instead: the smallest changes, and gross ones."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value - 1, float(value)]
    if isinstance(value, float):
        return [value * 1.001 + 1e-6, value * 0.999 - 1e-6]
    if value is None:
        return [1]
    return [f"{value} ", "drop" if value == "noisy" else "noisy"]


def put(body: dict[str, Any], path: tuple[Any, ...], value: Any) -> None:
    for key in path[:-1]:
        body = body[key]
    body[path[-1]] = value


def get(body: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        body = body[key]
    return body


def is_harmless(name: str, path: tuple[Any, ...], value: Any, before: Any) -> bool:
    """Tell what nobody can object to: other words for what is protected, a weaker promise, an unused parameter."""
    part, key = path[0], path[-1]
    if key == "protects" and str(value).strip():
        return True
    if part == "mechanism" and isinstance(value, float) and value == before:
        return True  # read as the same number
    if name in NOISY:
        # Where records were cut, and at which shares, is not seen from outside.
        published = name == "clusters as published" and key in ("clusters", "law")
        return published or (part == "mechanism" and "quantiles" in path)
    if key in ("epsilon", "delta") and isinstance(value, int | float):
        if part == "mechanism":  # more might have been asked for than was met; k is a whole number, so delta is less
            return value >= (before or 0) or key == "delta"
        weaker = value > before and name in ("sample", "sample and noise", "sample of none")
        return weaker or (name == "sample, asked" and key == "delta" and before < value < 0.1)
    less = key == "epsilon_choice" and 0 < value < before
    unused = key in ("left_out_epsilon", "confidence") and name != "sample and noise"
    # The published form costs more, so that its promise is a weak but true one of the other.
    cheaper = key == "as_published" and before is True
    return less or unused or cheaper or ("levels" in path and name == "sample of none")


@pytest.mark.parametrize("name", list(MECHANISMS))
def test_in_order(releases: dict[str, Release], name: str, tmp_path: Path) -> None:
    found = written(releases[name], tmp_path / "release")
    assert found.ok, found.summary()
    assert ("intervals follow from the laws" in found.summary()) == (name in NOISY and "as published" not in name)
    assert ("follow from k and beta" in found.summary()) == (name in SAMPLED)
    assert set(SAMPLE_NOT_CHECKED) <= set(found.not_checked) or name in NOISY
    assert set(NOISE_NOT_CHECKED) <= set(found.not_checked) or name in SAMPLED


@pytest.mark.parametrize("name", list(MECHANISMS))
def test_every_altered_figure_is_seen(releases: dict[str, Release], name: str, tmp_path: Path) -> None:
    """Change each figure by itself, everything else made to match: verify objects to all that is not harmless."""
    release, missed, tried = releases[name], [], 0
    for part in ("guarantee", "mechanism", "measures"):
        for rest in leaves(release.certificate.plain()[part]):
            path = (part, *rest)
            before = get(release.certificate.plain(), path)
            for number, value in enumerate(others(before)):
                if is_harmless(name, path, value, before):
                    continue
                tried += 1
                forged = with_body(release, lambda body, path=path, value=value: put(body, path, value))
                found = written(forged, tmp_path / f"{len(missed)}-{tried}-{number}")
                if found.ok:
                    missed.append((path, before, value))
    assert tried > 10
    assert not missed


@pytest.mark.parametrize("name", ["values", "sample", "public borders"])
@pytest.mark.parametrize("total", ["total", "total_per_period"])
def test_a_total_is_at_least_this_release(releases: dict[str, Release], name: str, total: str, tmp_path: Path) -> None:
    """Nothing lost together is less than what one release loses, and nothing adds up where no bound exists."""
    own = releases[name].certificate.plain()["guarantee"]["epsilon"]
    change = {total: {"epsilon": float(own) * 0.99, "delta": 0.9}}
    assert not written(with_body(releases[name], lambda body: body["composition"].update(change)), tmp_path / "x").ok


@pytest.mark.parametrize("name", list(MECHANISMS))
def test_figures_that_are_missing_or_too_many(releases: dict[str, Release], name: str, tmp_path: Path) -> None:
    """Neither leave a figure out, nor print one that may not be known: n, unsampled, suppressed."""
    release = releases[name]
    changes: list[Callable[[dict[str, Any]], Any]] = [
        lambda body, key=key: body["measures"].pop(key) for key in release.certificate.plain()["measures"]
    ]
    for key in ("n", "unsampled", "suppressed", "risks", "borders", "noise", "published_intervals", "sensitive"):
        if key not in release.certificate.plain()["measures"]:
            changes.append(lambda body, key=key: body["measures"].update({key: {"count": 3}}))
    for number, change in enumerate(changes):
        assert not written(with_body(release, change), tmp_path / str(number)).ok


def with_column(release: Release, name: str, values: Any, table: str = "data") -> Release:
    held = release.tables[table]
    column = pa.array(np.asarray(values, dtype=np.float64), pa.float64())
    return replace(release, **{table: held.set_column(held.column_names.index(name), name, column)})


def moved(name: str, by: float, row: int = 3) -> Callable[[Release], Release]:
    def forge(release: Release) -> Release:
        values = release.data.column(name).to_numpy().copy()
        values[row] += by if values[row] + by <= 100 else -by
        return with_column(release, name, values)

    return forge


def bare(release: Release, **change: Any) -> Release:
    return replace(release, **change)


@pytest.mark.parametrize("name", ["values", "values, piecewise", "public borders", "private borders"])
@pytest.mark.parametrize(
    "forge",
    [
        moved("weight", 0.25),
        moved("weight_lower", 0.5),
        moved("weight_upper", 0.5),
        moved("weight", float("nan")),
        moved("weight", -1e6),
        lambda release: with_column(release, "weight_upper", release.data.column("weight").to_numpy()),
        lambda release: bare(release, data=release.data.slice(0, 100)),
        lambda release: bare(release, data=release.data.drop(["weight_lower"])),
        lambda release: bare(release, data=release.data.append_column("class_id", pa.array(np.arange(120)))),
        lambda release: bare(release, classes=pa.table({"class_id": [0], "size": [120]})),
        lambda release: bare(release, data=release.data.take(pa.array(np.arange(120)[::-1]))),
    ],
)
def test_altered_noisy_rows(
    releases: dict[str, Release], name: str, forge: Callable[[Release], Release], tmp_path: Path
) -> None:
    assert not written(forge(releases[name]), tmp_path / "forged").ok


@pytest.mark.parametrize(
    "forge",
    [
        moved("weight", 0.25),
        lambda release: with_column(release, "weight_upper", release.data.column("weight").to_numpy() - 0.5),
        lambda release: with_column(release, "weight_upper", np.full(120, 100.5)),
    ],
)
def test_altered_rows_as_published(
    releases: dict[str, Release], forge: Callable[[Release], Release], tmp_path: Path
) -> None:
    assert not written(forge(releases["clusters as published"]), tmp_path / "forged").ok


@pytest.mark.parametrize("name", NOISY)
def test_another_guarantee_is_none_of_the_mechanism(releases: dict[str, Release], name: str, tmp_path: Path) -> None:
    """Only what the mechanism keeps may be stated, however well words and odds are made to match."""
    common = {"epsilon": releases[name].certificate.plain()["guarantee"]["epsilon"], "protects": "package"}
    stated = [
        {"model": "dp", **common, "neighbours": "replace-one"},
        {"model": "dp", **common, "neighbours": "add-remove"},
        {"model": "dp", **common, "neighbours": "replace-one", "delta": 0},
        {"model": "within-cluster", **common, "neighbours": "replace-one", "clusters": "all of it"},
        {"model": "within-published-borders", **common, "neighbours": "replace-one"},
        {"model": "local-dp", **common, "neighbours": "replace-one"},
        {"model": "k-anonymity", "k": 2, "protects": "package"},
        {"model": "sampled-dp", **common, "neighbours": "add-remove", "delta": 0.5, "beta": 0.5},
    ]
    own = releases[name].certificate.plain()["guarantee"]
    for number, guarantee in enumerate(stated):
        if guarantee["model"] != own["model"] or guarantee["neighbours"] != own["neighbours"]:
            forged = with_body(releases[name], lambda body, guarantee=guarantee: body.update(guarantee=guarantee))
            assert not written(forged, tmp_path / str(number)).ok


@pytest.mark.parametrize("name", ["clusters as published", "sample as published", "sample, pooled", "sample and noise"])
def test_claims_are_not_proofs(releases: dict[str, Release], name: str, tmp_path: Path) -> None:
    def prove(body: dict[str, Any]) -> None:
        body["basis"] = "proved"
        for key in ("why", "holds", "claim"):
            body.pop(key, None)

    def hold(body: dict[str, Any]) -> None:
        body["holds"] = {**body["guarantee"], "epsilon": 0.5}

    for number, change in enumerate((prove, hold)):
        assert not written(with_body(releases[name], change), tmp_path / str(number)).ok


def test_delta_by_either_rounding(tmp_path: Path) -> None:
    """A delta of one more digit down is too small, and one that is larger is a weaker promise that holds."""
    release = released(SampledLattice(k=4, beta=0.6, epsilon_choice=9)).release
    delta = Fraction(str(release.certificate.plain()["guarantee"]["delta"]))
    for factor, ok in ((1 - Fraction(1, 10**9), False), (Fraction(1), True), (Fraction(2), True)):
        stated = plain(delta * factor)

        def change(body: dict[str, Any], stated: Any = stated) -> None:
            body["guarantee"]["delta"] = stated
            body["composition"].update(total="none", total_per_period="none")

        assert written(with_body(release, change), tmp_path / str(factor).replace("/", "-")).ok is ok


def with_classes(release: Release, class_id: Any) -> Release:
    held = release.data
    return replace(release, data=held.set_column(1, "class_id", pa.array(np.asarray(class_id, dtype=np.int64))))


def test_altered_sampled_rows(releases: dict[str, Release], tmp_path: Path) -> None:
    sampled, noisy = releases["sample"], releases["sample and noise"]
    class_id = sampled.data.column("class_id").to_numpy()
    beside = noisy.data.column("class_id").to_numpy()
    alone, kept = np.flatnonzero(beside < 0), np.flatnonzero(beside >= 0)
    forgeries = {
        "a class below k": replace(sampled, data=sampled.data.slice(0, len(sampled) - 1)),
        "a row of no class without noise": with_classes(sampled, np.where(np.arange(len(class_id)) == 0, -1, class_id)),
        "a class below -1": with_classes(noisy, np.where(np.arange(len(beside)) == alone[0], -2, beside)),
        "a kept row called noisy": with_classes(noisy, np.where(np.arange(len(beside)) == kept[0], -1, beside)),
        "a noisy interval moved": moved("weight_upper", 0.5, int(alone[0]))(noisy),
        "a noisy interval of another attribute moved": moved("volume_lower", 0.05, int(alone[1]))(noisy),
        "a class's interval moved": moved("weight_upper", 0.5, int(kept[0]))(noisy),
    }
    for name, forged in forgeries.items():
        assert not written(forged, tmp_path / name).ok, name


def test_noise_does_not_excuse_rows_of_a_k_anonymous_release(tmp_path: Path) -> None:
    """Rows of no class are for samples alone, whatever the certificate says of noise."""
    release = dn.publish(load(), ledger=":memory:").release
    assert written(release, tmp_path / "fine").ok
    class_id = release.data.column("class_id").to_numpy().copy()
    class_id[0] = -1
    described = Cells.cut(
        Numeric(lower=0, upper=100, resolution=0.5), [], law="laplace", epsilon=Fraction(1), confidence=Fraction(1, 2)
    ).describe()
    forged = with_body(
        with_classes(release, class_id), lambda body: body["measures"].update(noise={"weight": described})
    )
    assert not written(forged, tmp_path / "forged").ok


def test_too_many_borders_to_check(releases: dict[str, Release], tmp_path: Path) -> None:
    def crowd(body: dict[str, Any]) -> None:
        body["mechanism"]["borders"] = {"weight": list(range(20_000))}

    assert not written(with_body(releases["public borders"], crowd), tmp_path / "forged").ok


@pytest.mark.parametrize("epsilon", ["1/10", "1", "5"])
@pytest.mark.parametrize("confidence", ["0", "1/2", "9/10"])
@pytest.mark.parametrize("last", [1, 4, 5, 30])
def test_intervals_around_values(last: int, confidence: str, epsilon: str) -> None:
    """Exactly the intervals around a grid point are accepted, of all that have their ends on half steps."""
    cells = Cells.cut(
        Numeric(lower=2, upper=2 + last, resolution=1),
        [],
        law="laplace",
        epsilon=Fraction(epsilon),
        confidence=Fraction(confidence),
    )
    right = set(zip(*(ends.tolist() for ends in cells.interval(2.0 + np.arange(last + 1))), strict=True))
    halves = [2 + half / 2 for half in range(-1, 2 * last + 2)]
    for lower, upper in itertools.product(halves, halves):
        if last <= 5 or (lower, upper) in right or hash((lower, upper)) % 50 == 0:
            found = are_around_values(cells, np.array([lower]), np.array([upper]))
            assert found == ((lower, upper) in right)


class TestNoRows:
    """A sample may keep nothing: that is a release too, in order, and nothing can be planned on it."""

    def test_verified_read_and_told(self, tmp_path: Path) -> None:
        publication = released(MECHANISMS["sample of none"]).write(tmp_path / "release")
        assert len(publication.release) == 0
        assert dn.verify(tmp_path / "release").ok
        assert "This time there is none" in (tmp_path / "release" / "README.md").read_text()
        again = Release.read(tmp_path / "release")
        assert again.data.schema == publication.release.data.schema
        assert len(again) == len(again.uncertain("weight")) == 0

    def test_no_plan(self) -> None:
        release = released(MECHANISMS["sample of none"]).release
        with pytest.raises(NoPlanError, match="no row"):
            dn.pack(release, capacity=["weight=500"])

    def test_only_noise(self, tmp_path: Path) -> None:
        mechanism = SampledLattice(k=300, beta=0.5, epsilon_choice=1, left_out="noisy", left_out_epsilon=1)
        release = released(mechanism).release
        assert (release.data.column("class_id").to_numpy() == -1).all()
        assert written(release, tmp_path / "release").ok


class TestWords:
    """README and datapackage tell the receiver what noisy and sampled columns are."""

    def words(self, release: Release, folder: Path) -> str:
        folder.mkdir()
        release.write_files(folder)
        return (folder / "README.md").read_text() + (folder / "datapackage.json").read_text()

    def test_noisy(self, releases: dict[str, Release], tmp_path: Path) -> None:
        told = self.words(releases["values"], tmp_path / "values")
        assert "weight in kg with noise, on the public grid" in told
        assert "lower end of the interval for weight in kg (closed interval at confidence 0.9)" in told
        assert "far less likely" in told
        assert "smallest possible" not in told
        assert "both ends are possible" not in told
        assert "class" not in told.replace("classes", "").split("## Columns")[1].split("## Read")[0]
        without = self.words(releases["values without intervals"], tmp_path / "without")
        assert "No intervals" in without
        assert "the noisy value itself" in without

    def test_sampled(self, releases: dict[str, Release], tmp_path: Path) -> None:
        told = self.words(releases["sample"], tmp_path / "sample")
        assert "secret sample" in told
        assert "smallest possible weight in kg (closed interval)" in told
        beside = self.words(releases["sample and noise"], tmp_path / "beside")
        assert "-1 for a noisy row" in beside
        assert "of a noisy row, at confidence 0.9" in beside
