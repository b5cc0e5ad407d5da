"""verify on releases of clusters: nonsense in the certificate is seen, and large domains cost little."""

from __future__ import annotations

import copy
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dunnage as dn
from dunnage.certificate import Certificate, meaning
from dunnage.domains.labels import Coded
from dunnage.guarantees import COUNTS_PERSONS, Promise

LEVELS = ["poor", "fair", "good"]
ATTRIBUTES: dict[str, dict[str, Any]] = {
    "card": {"role": "identifier"},
    "board": {"role": "quasi-identifier", "kind": "graph", "edges": "edges.csv"},
    "start": {"role": "quasi-identifier", "kind": "numeric", "domain": [0, 1000], "missing": "leave-out"},
    "bag": {"role": "quasi-identifier", "kind": "category", "domain": ["box", "none", "rucksack"]},
    "rating": {"role": "sensitive", "kind": "ordinal", "domain": LEVELS},
}
PARAMETERS: dict[str, Any] = {
    "k": 4,
    "t": 0.5,
    "t_kind": "ordered",
    "l": 2,
    "limits": {"board": 6},
    "keep": {"start": {"mean": 0.4}},
    "buckets": {"start": 100},
}


def policy_of(folder: Path, *, person: str | None = "card", **parameters: Any) -> dn.Policy:
    (folder / "edges.csv").write_text("from,to\n" + "\n".join(f"S{number},S{number + 1}" for number in range(6)))
    document = {
        "dataset": "rides",
        "protects": "ride",
        "attributes": ATTRIBUTES,
        "mechanism": {"name": "utility-clusters", **parameters},
        **({"contribution": {"person": person}} if person else {}),
    }
    return dn.Policy.from_dict(document, path=folder / "rides.toml")


def table(num: int = 80) -> pa.Table:
    draw = random.Random(3)
    return pa.table(
        {
            "card": [f"card-{draw.randrange(num // 2)}" for _ in range(num)],
            "board": [f"S{draw.randrange(7)}" for _ in range(num)],
            "start": [float(draw.randrange(1000)) for _ in range(num)],
            "bag": [draw.choice(["box", "none", "rucksack"]) for _ in range(num)],
            "rating": [draw.choice(LEVELS) for _ in range(num)],
        }
    )


def publish(policy: dn.Policy, out: Path) -> dn.Release:
    dn.publish(dn.load(table(), policy), ledger=dn.Ledger(":memory:"), out=out)
    return dn.Release.read(out)


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> dn.Release:
    folder = tmp_path_factory.mktemp("published")
    found = publish(policy_of(folder, **PARAMETERS), folder / "release")
    assert dn.verify(folder / "release").problems == []
    return found


def problems_of(release: dn.Release, body: dict[str, Any], folder: Path) -> list[str]:
    """Write the release with another certificate, all digests and words that follow worked out again."""
    target = folder / "forged"
    target.mkdir()
    replace(release, certificate=Certificate(body=body)).write_files(target)
    return dn.verify(target).problems


NONSENSE: list[tuple[str, Any]] = [
    ("method", "foo"),
    ("method", "published-density"),
    ("scaling", "none"),
    ("scaling", None),
    ("price", "abc"),
    ("price", None),
    ("price", 0),
    ("price", "1/1"),
    ("l_kind", "zz"),
    ("l", 1.5),
    ("l_kind", ["distinct"]),
    ("t_kind", "zz"),
    ("refine_seconds", -5),
    ("refine_seconds", True),
    ("symmetrise", "yes"),
    ("symmetrise", 1),
    ("max_suppressed", -1),
    ("max_risk", 2),
    ("importance", "guess"),
    ("importance", {"board": 9}),
    ("importance", {"nobody": 1}),
    ("buckets", {"board": {"width": 1}}),
    ("buckets", {"start": {"height": 1}}),
    ("buckets", {"start": {"width": 0}}),
    ("buckets", {"start": 100}),
    ("limits", {"board": -1}),
    ("limits", {"nobody": 1}),
    ("limits", 3),
    ("keep", {"start": {"mode": 0.1}}),
    ("keep", {"start": {"mean": 2}}),
    ("keep", {"bag": {"mean": 0.1}}),
    ("keep", {}),
    ("keep", {"start": {"mean": 0.5}}),
    ("unheard", 1),
]


@pytest.mark.parametrize(("name", "value"), NONSENSE, ids=str)
def test_nonsense_in_the_mechanism_is_seen(release: dn.Release, tmp_path: Path, name: str, value: Any) -> None:
    body = copy.deepcopy(dict(release.certificate.plain()))
    body["mechanism"][name] = value
    assert problems_of(release, body, tmp_path)


@pytest.mark.parametrize("name", ["method", "price", "limits", "symmetrise", "l", "t_kind"])
def test_a_missing_parameter_is_seen(release: dn.Release, tmp_path: Path, name: str) -> None:
    body = copy.deepcopy(dict(release.certificate.plain()))
    del body["mechanism"][name]
    assert problems_of(release, body, tmp_path)


def test_persons_are_stated_in_both_places_or_in_none(release: dn.Release, tmp_path: Path) -> None:
    body = copy.deepcopy(dict(release.certificate.plain()))
    del body["measures"]["persons"]
    body["measures"]["k_reached"] = body["measures"]["class_size"]["smallest"]
    (problem,) = problems_of(release, body, tmp_path)
    assert "counts persons" in problem


@pytest.mark.parametrize("what", ["in_clear", "assumptions"])
def test_what_is_in_clear_and_assumed_must_be_said(release: dn.Release, tmp_path: Path, what: str) -> None:
    body = copy.deepcopy(dict(release.certificate.plain()))
    body[what] = type(body[what])()
    body["meaning"] = meaning(
        Promise(guarantee=release.certificate.guarantee, basis=release.certificate.basis, mechanism=body["mechanism"])
    )
    if what == "in_clear":
        body["meaning"] = release.certificate.plain()["meaning"]
    (problem,) = problems_of(release, body, tmp_path)
    assert ("in clear" if what == "in_clear" else "persons") in problem


def test_an_assumption_left_out_is_seen(release: dn.Release, tmp_path: Path) -> None:
    body = copy.deepcopy(dict(release.certificate.plain()))
    del body["assumptions"]["released once"]
    (problem,) = problems_of(release, body, tmp_path)
    assert "assumptions" in problem


def test_what_the_owner_is_told_of(release: dn.Release) -> None:
    body = release.certificate.plain()
    told = " ".join(body["in_clear"])
    assert "to three decimals" in told
    assert "the mean of start over all records, to within 0.4 of the width of its domain" in told
    assert "records without start were left out" in told
    refusal = body["assumptions"]["refusal may depend on data"]
    assert refusal.endswith("what keep and l and t asked for was reached")
    assert COUNTS_PERSONS in body["assumptions"]
    assert "of at least 4 different persons" in body["meaning"]["sentences"][0]
    assert "k counts persons" in body["meaning"]["sentences"][1]


def test_without_persons_nothing_is_said_of_them(tmp_path: Path) -> None:
    made = publish(policy_of(tmp_path, person=None, k=4), tmp_path / "release")
    assert "person" not in " ".join(made.certificate.plain()["meaning"]["sentences"])
    assert dn.verify(tmp_path / "release").problems == []
    readme = (tmp_path / "release" / "README.md").read_text()
    assert "different persons" not in readme


def test_the_distance_asked_for_is_reported(release: dn.Release, tmp_path: Path) -> None:
    assert release.certificate.plain()["measures"]["sensitive"]["rating"]["distance"] == "ordered earth mover's"
    equal = publish(policy_of(tmp_path, k=4, t=0.6), tmp_path / "release")
    found = equal.certificate.plain()["measures"]["sensitive"]["rating"]
    assert found["distance"] == "equal (total variation)"
    assert found["t"] <= 0.6
    assert dn.verify(tmp_path / "release").problems == []


def test_verify_builds_no_matrix_of_labels(
    release: dn.Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder from anywhere must not cost memory by the square of the labels it names."""
    (tmp_path / "release").mkdir()
    release.write_files(tmp_path / "release")

    def refuse(*given: Any) -> None:
        raise AssertionError("a matrix was made")

    monkeypatch.setattr(Coded, "distances_between", refuse)
    assert dn.verify(tmp_path / "release").problems == []
