"""verify on releases of clusters: nonsense in the certificate is seen, and large domains cost little."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.builders import CLUSTERED, RIDE, a_policy, rides

import dunnage as dn
from dunnage.model.certificate import Certificate
from dunnage.model.domains import CodedDomain
from dunnage.model.guarantees import COUNTS_PERSONS


def publish(folder: Path, *, person: bool = True, **parameters: Any) -> dn.Release:
    more = {"contribution": {"person": "card"}} if person else {}
    policy = a_policy({"name": "utility-clusters", **parameters}, RIDE, protects="ride", **more)
    return dn.publish(dn.load(rides(), policy), ledger=dn.Ledger(":memory:"), out=folder / "release").release


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> dn.Release:
    folder = tmp_path_factory.mktemp("published")
    found = publish(folder, **CLUSTERED)
    assert dn.verify(folder / "release").problems == []
    return found


def problems_of(release: dn.Release, body: dict[str, Any], folder: Path) -> list[str]:
    """Write the release with another certificate, all digests and words that follow worked out again."""
    target = folder / "forged"
    target.mkdir()
    replace(release, certificate=Certificate.model_validate(body)).write_files(target)
    return dn.verify(target).problems


def test_persons_are_stated_in_both_places_or_in_none(release: dn.Release, tmp_path: Path) -> None:
    body = release.certificate.plain()
    del body["measures"]["persons"]
    body["measures"]["k_reached"] = body["measures"]["class_size"]["smallest"]
    assert problems_of(release, body, tmp_path)


def test_what_the_owner_is_told_of(release: dn.Release) -> None:
    stated = release.certificate
    told = " ".join(stated.in_clear)
    assert "to three decimals" in told
    assert "the mean of start over all records, to within 0.4 of the width of its domain" in told
    assert "records without start were left out" in told
    refusal = stated.assumptions["refusal may depend on data"]
    assert refusal.endswith("what keep and l and t asked for was reached")
    assert COUNTS_PERSONS in stated.assumptions
    assert "of at least 4 different persons" in stated.meaning.sentences[0]
    assert "k counts persons" in stated.meaning.sentences[1]


def test_without_persons_nothing_is_said_of_them(tmp_path: Path) -> None:
    made = publish(tmp_path, person=False, k=4)
    assert "person" not in " ".join(made.certificate.meaning.sentences)
    assert dn.verify(tmp_path / "release").problems == []
    readme = (tmp_path / "release" / "README.md").read_text()
    assert "different persons" not in readme


def test_the_distance_asked_for_is_reported(release: dn.Release, tmp_path: Path) -> None:
    assert (release.certificate.rows.sensitive or {})["rating"].distance == "ordered earth mover's"
    equal = publish(tmp_path, k=4, t=0.6)
    found = (equal.certificate.rows.sensitive or {})["rating"]
    assert found.distance == "equal (total variation)"
    assert found.t <= 0.6
    assert dn.verify(tmp_path / "release").problems == []


def test_verify_builds_no_matrix_of_labels(
    release: dn.Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder from anywhere must not cost memory by the square of the labels it names."""
    (tmp_path / "release").mkdir()
    release.write_files(tmp_path / "release")

    def refuse(*given: Any) -> None:
        raise AssertionError("a matrix was made")

    monkeypatch.setattr(CodedDomain, "distances_between", refuse)
    assert dn.verify(tmp_path / "release").problems == []
