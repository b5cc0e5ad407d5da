"""verify on noisy and sampled releases: every figure that follows from others is worked out again, forged or not."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dunnage as dn
from dunnage.errors import NoPlanError
from dunnage.exact import plain
from dunnage.ledger import Ledger
from dunnage.mechanisms.noisy import NoisyClusters, NoisyValues
from dunnage.mechanisms.sampled_lattice import SampledLattice, _are_around_values
from dunnage.model.certificate import Certificate, composition_rule, meaning
from dunnage.model.domains import Numeric
from dunnage.model.guarantees import Basis, Promise, guarantee_from
from dunnage.model.laws import Cells
from dunnage.noise.source import Noise
from dunnage.publication import Publication
from dunnage.release import Release
from dunnage.release.kinds.rows import NOISE_NOT_CHECKED, SAMPLE_NOT_CHECKED

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
    body = release.certificate.plain()
    change(body)
    try:
        promise = Promise(
            guarantee=guarantee_from(body["guarantee"]),
            basis=Basis(body["basis"]),
            mechanism=body["mechanism"],
            holds=guarantee_from(body["holds"]) if "holds" in body else None,
            why=body.get("why", ""),
        )
        body["meaning"] = meaning(promise).plain()
        body["composition"]["rule"] = composition_rule(promise.guarantee)
    except Exception:
        assert body["guarantee"] != release.certificate.plain()["guarantee"]  # no guarantee at all: caught as such
    return replace(release, certificate=Certificate.model_validate(body))


@pytest.mark.parametrize("name", list(MECHANISMS))
def test_in_order(releases: dict[str, Release], name: str, tmp_path: Path) -> None:
    found = written(releases[name], tmp_path / "release")
    assert found.ok, found.summary()
    assert ("intervals follow from the laws" in found.summary()) == (name in NOISY and "as published" not in name)
    assert ("follow from k and beta" in found.summary()) == (name in SAMPLED)
    assert set(SAMPLE_NOT_CHECKED) <= set(found.not_checked) or name in NOISY
    assert set(NOISE_NOT_CHECKED) <= set(found.not_checked) or name in SAMPLED


@pytest.mark.parametrize("name", ["values", "sample", "public borders"])
@pytest.mark.parametrize("total", ["total", "total_per_period"])
def test_a_total_is_at_least_this_release(releases: dict[str, Release], name: str, total: str, tmp_path: Path) -> None:
    """Nothing lost together is less than what one release loses, and nothing adds up where no bound exists."""
    own = releases[name].certificate.plain()["guarantee"]["epsilon"]
    change = {total: {"epsilon": float(own) * 0.99, "delta": 0.9}}
    assert not written(with_body(releases[name], lambda body: body["composition"].update(change)), tmp_path / "x").ok


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
    """A delta of one more digit down is too small, and a larger one is not what the mechanism promises."""
    release = released(SampledLattice(k=4, beta=0.6, epsilon_choice=9)).release
    delta = Fraction(str(release.certificate.plain()["guarantee"]["delta"]))
    for factor, ok in ((1 - Fraction(1, 10**9), False), (Fraction(1), True), (Fraction(2), False)):
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
            found = _are_around_values(cells, np.array([lower]), np.array([upper]))
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
