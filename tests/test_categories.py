# SPDX-License-Identifier: Apache-2.0
"""Counts of records by their labels: any table of categories, not only trips."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.verify_page_help import examined

import dunnage as dn
from dunnage.auditing.counts import in_units
from dunnage.errors import DunnageError, ParameterError, PolicyError, Refusal, ReleaseError
from dunnage.mechanisms.counts import ConstrainedCounts, Feature, Layout, NoisyCounts, true_counts
from dunnage.mechanisms.fitted_counts import FittedCounts
from dunnage.mechanisms.gaussian_counts import GaussianCounts
from dunnage.model.categories import Categories
from dunnage.model.certificate import AttributeStatement
from dunnage.model.domains import Category, Ordinal
from dunnage.model.policy import Policy
from dunnage.noise.source import Noise
from dunnage.publishing import predicted

LABELS = {
    "depot": [f"D{number}" for number in range(8)],
    "goods": ["chilled", "food", "paper", "steel"],
    "day": ["mon", "tue", "wed"],
}
TREE = {"fresh": ["chilled", "food"], "dry": ["paper", "steel"], "any goods": ["fresh", "dry"]}


def a_policy(mechanism: Any, **more: Any) -> dict[str, Any]:
    parents = {child: parent for parent, children in TREE.items() for child in children}
    return {
        "dataset": "loads",
        "protects": "delivery",
        "attributes": {
            "load": {"role": "identifier"},
            "depot": {"role": "quasi-identifier", "kind": "category", "domain": LABELS["depot"]},
            "goods": {"role": "quasi-identifier", "kind": "tree", "parents": parents},
            "day": {"role": "quasi-identifier", "kind": "ordinal", "domain": LABELS["day"], "outside": "leave-out"},
        },
        "mechanism": {"epsilon": 1, **mechanism},
        **more,
    }


def loads(num: int = 2_000, seed: int = 3) -> pd.DataFrame:
    chance = np.random.default_rng(seed)
    columns = {}
    for name, labels in LABELS.items():
        weights = np.arange(len(labels), 0, -1) ** 1.5
        columns[name] = chance.choice(labels, num, p=weights / weights.sum())
    return pd.DataFrame({"load": [f"L{number}" for number in range(num)], **columns})


CONSTRAINED = {"name": ConstrainedCounts.name}
EXPECTED = {"expect": {"records": 2_000}}


@pytest.mark.parametrize("mechanism", [CONSTRAINED, {"name": NoisyCounts.name}], ids=lambda given: given["name"])
def test_a_table_from_rows_to_audit(mechanism: dict[str, Any], tmp_path: Path):
    frame, policy = loads(), Policy.from_dict(a_policy(mechanism, **EXPECTED))
    frame.loc[frame.index[-1], "day"] = "sun"
    data = dn.load(frame, policy=policy)
    assert len(data) == len(frame) - 1
    folder = tmp_path / "release"
    written = dn.publish(data, out=folder, ledger=tmp_path / "ledger.sqlite")
    release = dn.Release.read(folder)
    assert dn.verify(folder).ok
    page = examined(folder)
    assert page["ok"], page["problems"]
    assert "zones" not in " ".join(page["alone"])

    # The table itself: whole numbers above zero, of types in the order of the domain.
    table = release.data.to_pandas()
    assert list(table.columns) == [*LABELS, "count"]
    assert (table["count"] > 0).all()
    _, counts = release.counted()
    assert release.certificate.counts.trips == counts.sum() == table["count"].sum()
    assert release.certificate.counts.cells == 8 * 4 * 3 == release.universe.num_cells

    # Everybody reads about deliveries, not trips.
    shown = "\n".join(release.owner.figures(release)) + (folder / "README.md").read_text()
    assert "deliveries" in shown
    assert "trip" not in shown
    assert "rider" not in shown

    found = dn.audit(release, data, key=written.key)
    assert found.finding("RMSE per cell").unit == "deliveries"
    assert found.finding("membership guess").value <= found.finding("membership bound").value + 1e-9
    assert not any("trip" in item.sentence or "rider" in item.sentence for item in found.findings)
    sums = {item.name for item in found.findings}
    assert {f"RMSE of sums ({name})" for name in LABELS} <= sums
    other = a_policy(mechanism)
    other["attributes"]["day"]["domain"] = [*LABELS["day"], "thu"]
    rows = dn.load(frame, policy=Policy.from_dict(other))
    with pytest.raises(ReleaseError, match="another policy"):
        dn.audit(release, rows)
    with pytest.raises(ParameterError, match="rows"):
        dn.pack(release, capacity=3)


def test_fleets_refuse_a_table(tmp_path: Path):
    release, _ = dn.publish(dn.load(loads(50), policy=Policy.from_dict(a_policy(CONSTRAINED))), ledger=":memory:")
    from dunnage.planning.demand import released_counts

    with pytest.raises(ParameterError, match="counts of trips between stops"):
        released_counts(release, city=None)  # type: ignore[arg-type]


def test_sums_that_are_measured_are_far_closer_than_those_of_noisy_cells():
    data = dn.load(loads(), policy=Policy.from_dict(a_policy(CONSTRAINED)))
    truth = true_counts(data)
    errors = {}
    for name, made in (("margins", ConstrainedCounts(epsilon=1)), ("cells", NoisyCounts(epsilon="0.2"))):
        # Both have the same noise on each cell: a fifth of epsilon.
        squares = []
        for seed in range(20):
            drawn = made.draw_table(data, made.prepare(data), Noise(seed=seed))
            wrong = np.zeros(truth.universe.num_cells)
            wrong[drawn.cells] = drawn.counts
            wrong[truth.cells] -= truth.counts
            own = wrong.reshape(truth.universe.axes)
            squares += [(own.sum(axis=tuple({0, 1, 2} - {at})) ** 2).mean() for at in range(3)]
        errors[name] = np.sqrt(np.mean(squares))
    assert errors["margins"] < errors["cells"] / 2


def test_labels_are_counted_as_they_are():
    frame = loads(300)
    truth = true_counts(dn.load(frame, policy=Policy.from_dict(a_policy(CONSTRAINED))))
    universe = truth.universe
    expected = frame.groupby(list(LABELS)).size()
    labels = [np.array(universe.labels(name))[universe.column_codes(name, truth.cells)] for name in LABELS]
    assert dict(zip(zip(*labels, strict=True), truth.counts.tolist(), strict=True)) == expected.to_dict()


@pytest.mark.parametrize("features", [[()], [("a",)], [("a", "c"), ("b",)], [("a", "b", "c")]])
def test_features_and_layout_of_three_columns(features: list[tuple[str, ...]]):
    domains = {
        "a": Category(values=["x", "y"]),
        "b": Ordinal(levels=["1", "2", "3"]),
        "c": Category(values=list("stuvw")),
    }
    universe = Categories(domains=domains)
    counts = np.random.default_rng(5).integers(0, 9, universe.axes)
    cells = np.arange(universe.num_cells)
    made = [Feature.of(universe, columns) for columns in features]
    for feature in made:
        left = tuple(at for at, name in enumerate(domains) if name not in feature.columns)
        assert (feature.sums(*universe.split(cells), counts.reshape(-1)) == counts.sum(axis=left).reshape(-1)).all()
    layout = Layout.of(universe, made)
    groups, ranks = layout.places(cells)
    assert (layout.cells(groups, ranks) == cells).all()
    assert len(np.unique(layout.starts[groups] + ranks)) == universe.num_cells
    for feature in made:
        assert (layout.groups_of(feature)[groups] == feature.groups(*universe.split(cells))).all()
    stated = [AttributeStatement.model_validate(item) for item in universe.describe()]
    assert Categories.stated(stated, "box").describe() == universe.describe()


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"attributes": {"weight": {"role": "quasi-identifier", "kind": "numeric", "domain": [0, 9]}}}, "weight"),
        ({"attributes": {"weight": {"role": "public"}}}, "weight"),
        ({"attributes": {"total": {"role": "quasi-identifier", "kind": "category", "domain": ["a"]}}}, "total"),
        ({"attributes": {"a x b": {"role": "quasi-identifier", "kind": "category", "domain": ["a"]}}}, "a x b"),
        ({"protects": "rider"}, "one record"),
        ({"contribution": {"person": "load"}}, "one record"),
        ({"together": "load"}, "together"),
        ({"mechanism": {"features": "O3"}}, "features of trips"),
        ({"mechanism": {"features": [["window"]]}}, "depot, goods, day"),
        ({"mechanism": {"budget_shares": "margins"}}, "margins"),
        ({"mechanism": {"name": FittedCounts.name}}, "counts trips"),
        ({"mechanism": {"name": GaussianCounts.name, "delta": "1e-9"}}, "counts trips"),
        ({"expect": {"records": 0}}, "records"),
    ],
)
def test_what_no_table_has_is_refused(change: dict[str, Any], what: str):
    document = a_policy(CONSTRAINED)
    for name, value in change.items():
        document[name] = {**document.get(name, {}), **value} if isinstance(value, dict) else value
    with pytest.raises(PolicyError, match=what):
        dn.promise(Policy.from_dict(document))


def test_too_many_combinations_are_refused():
    document, many = a_policy(CONSTRAINED), [str(number) for number in range(2_000)]
    document["attributes"]["depot"]["domain"] = document["attributes"]["day"]["domain"] = many
    with pytest.raises(PolicyError, match="16,000,000"):
        dn.promise(Policy.from_dict(document))


def test_noise_is_refused_from_public_facts_alone(tmp_path: Path):
    policy = Policy.from_dict(a_policy({**CONSTRAINED, "epsilon": "0.05"}, expect={"records": 200}))
    said = set()
    for frame in (loads(200), loads(200, seed=4), loads(1)):
        with pytest.raises(Refusal) as refusal:
            dn.publish(dn.load(frame, policy=policy), ledger=tmp_path / "ledger.sqlite")
        said.add(str(refusal.value))
    assert len(said) == 1
    assert "200 expected deliveries" in said.pop()
    release, _ = dn.publish(dn.load(loads(200), policy=policy), ledger=tmp_path / "ledger.sqlite", allow_noise=True)
    expected = release.certificate.counts.expected
    assert expected is not None
    assert expected.is_noise
    assert [level.level for level in expected.levels] == ["depot x goods x day", *LABELS, "total"]


def test_errors_are_predicted_as_they_are():
    """Roughly: how evenly labels are spread, only the rows say."""
    data = dn.load(loads(), policy=Policy.from_dict(a_policy(CONSTRAINED, **EXPECTED)))
    usefulness = predicted(data)
    assert usefulness is not None
    truth, made, errors = true_counts(data), ConstrainedCounts(epsilon=1), []
    for seed in range(12):
        drawn = made.draw_table(data, made.prepare(data), Noise(seed=100 + seed))
        wrong = np.zeros(truth.universe.num_cells)
        wrong[drawn.cells] = drawn.counts
        wrong[truth.cells] -= truth.counts
        errors.append(np.abs(wrong).sum() / truth.num_trips)
    assert usefulness.expected.levels[0].error == pytest.approx(np.mean(errors), rel=0.5)


def test_sums_that_a_certificate_states_are_recounted(tmp_path: Path):
    release, _ = dn.publish(dn.load(loads(50), policy=Policy.from_dict(a_policy(CONSTRAINED))), ledger=":memory:")
    mechanism = ConstrainedCounts.from_description(release.certificate.mechanism)
    schema = Policy.from_dict(a_policy(CONSTRAINED)).schema
    assert list(mechanism.recount(release, schema))
    features = release.certificate.counts.features
    assert features is not None
    features[2] = features[2].model_copy(update={"groups": 7})
    with pytest.raises(DunnageError, match="wrong number of groups"):
        list(mechanism.recount(release, schema))


def test_words_about_trips_become_words_about_records():
    said = "Trips: 2 trips of a rider where nobody else travelled; riders' trips in striped rows"
    assert in_units(said, "box") == (
        "Boxes: 2 boxes of a person of a type that nobody else has; persons' boxes in striped rows"
    )
