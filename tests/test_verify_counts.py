# SPDX-License-Identifier: Apache-2.0
"""verify on releases of counts: every figure that follows from others is worked out again, forged or not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.test_release_counts import RIDERS, WEEKDAYS, policy_of, released, trips

import dunnage as dn
from dunnage.errors import CheckFailed
from dunnage.exact import exact, plain
from dunnage.ledger import Ledger
from dunnage.model.certificate import Certificate, composition_rule, meaning
from dunnage.model.guarantees import BOUNDED_CONTRIBUTION, Basis, Promise, guarantee_from
from dunnage.noise.source import Noise
from dunnage.release import CERTIFICATE_FILE, Release, file_digest
from dunnage.release.kinds.counts import BOUND_NOT_CHECKED, CITY_NOT_CHECKED, NOT_CHECKED, _sum
from dunnage.verification import check_release

SHARES = {"cells": "1/2", "total": "1/6", "origin x window": "1/3"}
DAYS = {"time": WEEKDAYS}
CASES: dict[str, dict[str, Any]] = {
    "plain": {"mechanism": {"name": "noisy-counts", "epsilon": 2, "threshold": 2}},
    "plain, down": {"mechanism": {"name": "noisy-counts", "epsilon": "1/3", "rounding": "floor"}, **DAYS},
    "plain, riders": {"mechanism": {"name": "noisy-counts", "epsilon": 1}, **RIDERS},
    "plain, as published": {"mechanism": {"name": "noisy-counts", "epsilon": 1, "as_published": True}},
    "tree": {"mechanism": {"name": "hierarchical-counts", "epsilon": 1}, **DAYS},
    "tree, even": {"mechanism": {"name": "hierarchical-counts", "epsilon": 1, "budget": "uniform", "features": "H4"}},
    "tree, as published": {"mechanism": {"name": "hierarchical-counts", "epsilon": 1, "as_published": True}},
    "fitted": {"mechanism": {"name": "constrained-counts", "epsilon": 1}},
    "fitted, days": {"mechanism": {"name": "constrained-counts", "epsilon": "0.7"}, **DAYS},
    "fitted, cells": {"mechanism": {"name": "constrained-counts", "epsilon": 1, "budget_shares": "cells"}},
    "fitted, margins": {"mechanism": {"name": "constrained-counts", "epsilon": 1, "budget_shares": "margins"}},
    "fitted, tree": {"mechanism": {"name": "constrained-counts", "epsilon": 1, "structure": "hierarchical"}},
    "fitted, shares": {
        "mechanism": {
            "name": "constrained-counts",
            "epsilon": 1,
            "features": [[], ["window", "origin"]],
            "budget_shares": SHARES,
        }
    },
    "fitted, hidden": {
        "mechanism": {
            "name": "constrained-counts",
            "epsilon": 3,
            "features": [["origin_zone"], ["origin_zone", "destination_zone", "day"], ["mode", "origin"], ["day"]],
        },
        **DAYS,
    },
    "tree, own": {
        "mechanism": {
            "name": "hierarchical-counts",
            "epsilon": 1,
            "features": [["window"], ["origin_zone", "window"], ["origin", "window"]],
        }
    },
    "plain, riders by day": {
        "mechanism": {"name": "noisy-counts", "epsilon": 1},
        "protects": "rider",
        "contribution": {"person": "card", "max": 3, "per": "day"},
        **DAYS,
    },
    "fitted, riders": {"mechanism": {"name": "constrained-counts", "epsilon": 1}, **RIDERS},
    "fitted, as published": {"mechanism": {"name": "constrained-counts", "epsilon": 1, "as_published": True}},
}


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Release]:
    """A release of each case; never changed."""
    folder = tmp_path_factory.mktemp("city")
    return {name: released(folder, **case) for name, case in CASES.items()}


def written(release: Release, folder: Path, name: str = "release") -> Path:
    """Write a release, with all digests computed again."""
    target = folder / name
    target.mkdir()
    release.write_files(target)
    return target


def problem(folder: Path) -> str:
    """Verify a forged folder and give the problem found."""
    result = dn.verify(folder)
    assert not result.ok
    assert len(result.problems) == 1
    return result.problems[0]


def with_body(release: Release, change: Callable[[dict[str, Any]], Any]) -> Release:
    body = release.certificate.plain()
    change(body)
    return replace(release, certificate=Certificate.model_validate(body))


def with_data(release: Release, data: pa.Table) -> Release:
    """Change the table, and all figures that are counted of it."""

    def recount(body: dict[str, Any]) -> None:
        counts = data.column("count").to_pylist()
        body["measures"].update(trips=sum(counts), cells_with_trips=len(counts))

    return with_body(replace(release, data=data), recount)


def restated(body: dict[str, Any]) -> None:
    """Let odds, composition and totals follow again from the guarantee."""
    promise = Promise(
        guarantee=guarantee_from(body["guarantee"]),
        basis=Basis(body["basis"]),
        mechanism=body["mechanism"],
        why=body.get("why", ""),
    )
    body["meaning"] = meaning(promise).plain()
    body["composition"] = {**body["composition"], "rule": composition_rule(promise.guarantee)}
    if body["basis"] == "proved":
        total = {"epsilon": 1000, "delta": 0}
        body["composition"].update(total=total, total_per_period=total)


@pytest.mark.parametrize("name", CASES)
def test_every_kind_of_counts_is_in_order(releases: dict[str, Release], tmp_path: Path, name: str) -> None:
    result = dn.verify(written(releases[name], tmp_path))
    assert result.ok, result.problems
    assert result.basis == ("claimed" if "published" in name else "proved")
    text = "\n".join(result.checks)
    measures = releases[name].certificate.plain()["measures"]
    assert f"{measures['trips']:,} trips of {measures['cells_with_trips']:,} types" in text
    assert "CSV and Parquet files hold the same tables" in text
    assert "README.md and datapackage.json describe this release" in text
    assert set(NOT_CHECKED) <= set(result.not_checked)
    assert (BOUND_NOT_CHECKED[0] in result.not_checked) == ("riders" in name)
    hidden = any("zone" in item["feature"] or "mode" in item["feature"] for item in measures.get("features", []))
    assert (CITY_NOT_CHECKED[0] in result.not_checked) == hidden
    assert not any("row" in item or "record" in item for item in result.not_checked)


def test_periods_and_days_by_a_column_of_their_own_are_in_order(tmp_path: Path) -> None:
    mechanism = {"name": "constrained-counts", "epsilon": 1, "features": [["day"], ["window"]]}
    monthly = {"period": {"column": "at", "length": "month"}, "time": {"day": "day-type"}, "of_period": "2026-11"}
    release = released(tmp_path, mechanism, **monthly)
    assert release.universe.num_dates == (21, 4, 5)
    folder = written(release, tmp_path)
    assert dn.verify(folder).ok
    wrong = with_body(release, lambda body: body.update(period="2026-10"))
    assert "service dates" in problem(written(wrong, tmp_path, "october"))
    wrong = with_body(release, lambda body: body.update(period="soon"))
    assert "types of trips" in problem(written(wrong, tmp_path, "soon"))
    label = {"role": "quasi-identifier", "kind": "ordinal", "domain": ["work", "rest"]}
    policy = policy_of(tmp_path, mechanism)
    document = {
        "dataset": "trips",
        "protects": "trip",
        "trip": {"origin": "from", "destination": "to", "time": "at", "day": "kind"},
        "city": {"stops": "stops.csv"},
        "attributes": {
            "card": {"role": "identifier"},
            **{name: {"role": "quasi-identifier", "kind": "stop"} for name in ("from", "to")},
            "at": {"role": "quasi-identifier", "kind": "time", "domain": ["08:00", "10:00"], "window_minutes": 60},
            "kind": label,
        },
        "mechanism": mechanism,
    }
    table = trips().append_column("kind", pa.array(["work", "rest", "work"] * 100))
    data = dn.load(table, dn.Policy.from_dict(document, path=policy.path))
    own = dn.publish(data, ledger=Ledger(":memory:"), noise=Noise()).release
    assert own.universe.days == ("work", "rest")
    folder = written(own, tmp_path, "own")
    assert dn.verify(folder).ok
    assert "all calendar days of a label together" in (folder / "README.md").read_text(encoding="utf-8")


def test_verify_needs_nothing_private_and_no_drawing(releases: dict[str, Release], tmp_path: Path) -> None:
    folder = written(releases["fitted"], tmp_path)
    code = (
        "import sys; from dunnage.verification import verify; assert verify(sys.argv[1]).ok; "
        "bad = [m for m in sys.modules if m.startswith(('dunnage.mechanisms.pipeline', 'dunnage.tables.dataset', "
        "'dunnage.model.policy', 'dunnage.ledger', 'dunnage.publication', 'numba', 'scipy'))]; assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code, str(folder)], check=True)


# Forgeries of the table; figures that are counted of it follow.


def repeat(release: Release) -> Release:
    data = pa.concat_tables([release.data.slice(0, 1), release.data])
    return with_data(release, data)


def swap(release: Release) -> Release:
    order = [1, 0, *range(2, len(release))]
    return with_data(release, release.data.take(order))


@pytest.mark.parametrize("forge", [repeat, swap])
def test_a_forged_table_is_seen(releases: dict[str, Release], tmp_path: Path, forge: Any) -> None:
    assert problem(written(forge(releases["plain"]), tmp_path))


def test_csv_and_parquet_must_hold_the_same_counts(releases: dict[str, Release], tmp_path: Path) -> None:
    folder = written(releases["fitted"], tmp_path)
    lines = (folder / "data.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    for changed in (lines[:-1], [*lines, lines[-1]], [lines[0], lines[2], lines[1], *lines[3:]]):
        (folder / "data.csv").write_text("".join(changed), encoding="utf-8")
        files = {path.name: file_digest(path) for path in folder.iterdir() if path.name != CERTIFICATE_FILE}
        certificate = releases["fitted"].certificate.with_files(files)
        (folder / CERTIFICATE_FILE).write_bytes(certificate.to_bytes())
        assert "data.csv does not hold the same table" in problem(folder)


# Forgeries of the certificate.


def cheaper(body: dict[str, Any]) -> None:
    """State half of epsilon, with all that follows but the noise."""
    half = plain(exact(body["guarantee"]["epsilon"]) / 2)
    body["guarantee"]["epsilon"] = body["mechanism"]["epsilon"] = half
    body["measures"]["loss"] = {"trip": half, "rider": None}
    restated(body)


def cheaper_throughout(body: dict[str, Any]) -> None:
    """State half of epsilon for every feature as well, and keep the scales."""
    cheaper(body)
    for item in body["measures"]["features"]:
        item["epsilon"] = plain(exact(item["epsilon"]) / 2)


def moved_share(body: dict[str, Any]) -> None:
    """Give the cells more than they have, at the price of the total, with scales that follow."""
    cells, total = body["measures"]["features"][:2]
    for item, change in ((cells, Fraction(1, 100)), (total, Fraction(-1, 100))):
        share = exact(item["epsilon"]) + change
        item.update(epsilon=plain(share), scale=plain(1 / share))


def proved(body: dict[str, Any]) -> None:
    body["basis"] = "proved"
    del body["why"]
    body.pop("claim", None)
    restated(body)


def as_riders(most: int) -> Callable[[dict[str, Any]], None]:
    """Say that riders of at most so many trips are protected where one trip is, with all that follows."""

    def change(body: dict[str, Any]) -> None:
        body["guarantee"]["protects"] = "rider"
        epsilon = exact(body["guarantee"]["epsilon"])
        body["measures"]["loss"] = {"trip": plain(2 * epsilon / most), "rider": plain(epsilon)}
        body["measures"]["contribution"] = {"max": most, "per": "period", "days": None}
        del body["assumptions"]["epsilon per trip"]
        body["assumptions"][BOUNDED_CONTRIBUTION.name] = BOUNDED_CONTRIBUTION.says
        restated(body)

    return change


def relabelled(body: dict[str, Any]) -> None:
    """Say that riders of one trip are protected, whose noise is that of a trip, and assume what it was before."""
    assumed = dict(body["assumptions"])
    as_riders(1)(body)
    body["assumptions"] = assumed


def as_trips(body: dict[str, Any]) -> None:
    """Say that one trip is protected where riders are."""
    body["guarantee"]["protects"] = "trip"
    body["measures"]["loss"] = {"trip": body["guarantee"]["epsilon"], "rider": None}
    del body["measures"]["contribution"]
    restated(body)


def shared(*shares: str) -> Callable[[dict[str, Any]], None]:
    """Give features other shares of an epsilon of 1, with scales that follow."""

    def change(body: dict[str, Any]) -> None:
        for item, share in zip(body["measures"]["features"], shares, strict=True):
            item.update(epsilon=plain(exact(share)), scale=plain(1 / exact(share)))

    return change


def as_tree(features: Any) -> Callable[[dict[str, Any]], None]:
    """Say of even levels that others were asked."""

    def change(body: dict[str, Any]) -> None:
        body["mechanism"]["features"] = features
        columns = features if isinstance(features, list) else [[], ["window"], ["mode", "window"]]
        names = ["cells", *(" x ".join(item) or "total" for item in columns)]
        part = Fraction(1, len(names))
        body["measures"]["features"] = [
            {"feature": name, "groups": 4, "epsilon": plain(part), "scale": plain(1 / part), "law": "discrete"}
            for name in names
        ]

    return change


def enormous(body: dict[str, Any]) -> None:
    body["guarantee"]["epsilon"] = body["mechanism"]["epsilon"] = 701
    body["measures"].update(loss={"trip": 701, "rider": None}, noise={"scale": "1/701", "law": "round"})
    restated(body)


def more_trips(body: dict[str, Any]) -> None:
    body["measures"]["loss"] = {"trip": 0.25, "rider": 1}
    body["measures"]["contribution"]["max"] = 8


def other_neighbours(body: dict[str, Any]) -> None:
    body["guarantee"]["neighbours"] = "replace-one"
    restated(body)
    body["composition"].update(total="none", total_per_period="none")


def holding(body: dict[str, Any]) -> None:
    body["holds"] = body["guarantee"]
    restated(body)
    body["meaning"] = meaning(
        Promise(
            guarantee=guarantee_from(body["guarantee"]),
            basis=Basis.CLAIMED,
            mechanism=body["mechanism"],
            holds=guarantee_from(body["holds"]),
            why=body["why"],
        )
    ).plain()


def fewer_stops(body: dict[str, Any]) -> None:
    for item in body["attributes"][:2]:
        item["domain"]["stops"] = item["domain"]["stops"][:5]


CERTIFICATES: dict[str, tuple[str, Callable[[dict[str, Any]], Any]]] = {
    "half of epsilon": ("plain", cheaper),
    "half of epsilon, features": ("fitted", cheaper),
    "half of epsilon, throughout": ("fitted", cheaper_throughout),
    "a share moved": ("fitted", moved_share),
    "a share moved, by table": ("fitted, shares", moved_share),
    "a share moved, tree": ("tree", moved_share),
    "as published, yet proved": ("fitted, as published", proved),
    "as published, plain, yet proved": ("plain, as published", proved),
    "as published, and holds": ("tree, as published", holding),
    "riders of two trips": ("plain", as_riders(2)),
    "riders under the assumptions of trips": ("plain", relabelled),
    "trips under the assumptions of riders": ("plain, riders", as_trips),
    "more for the cells": ("fitted, cells", shared("0.8", *["0.05"] * 4)),
    "cells, not even": ("fitted, cells", shared("0.6", "0.25", *["0.05"] * 3)),
    "more for the margin": ("fitted, margins", shared("0.6", *["0.075"] * 4, "0.1")),
    "margins, not even": ("fitted, margins", shared("0.65", "0.15", *["0.05"] * 3, "0.05")),
    "a tree that is none": ("tree, even", as_tree([["window"], ["mode"]])),
    "a tree upside down": ("tree, even", as_tree([["origin"], ["origin_zone"]])),
    "a tree without levels": ("tree, even", as_tree([])),
    "an epsilon out of range": ("plain", enormous),
    "more trips of a rider": ("plain, riders", more_trips),
    "more trips of a rider, features": ("fitted, riders", more_trips),
    "other neighbours": ("plain", other_neighbours),
    "fewer stops": ("plain", fewer_stops),
}


@pytest.mark.parametrize("name", CERTIFICATES)
def test_a_certificate_forged_in_several_places_is_seen(releases: dict[str, Release], name: str) -> None:
    case, change = CERTIFICATES[name]
    with pytest.raises(CheckFailed):
        check_release(with_body(releases[case], change))


def test_a_void_release_is_in_order_but_void(tmp_path: Path) -> None:
    data = dn.load(trips(), policy_of(tmp_path, {"name": "noisy-counts", "epsilon": 1}))
    release = dn.publish(data, ledger=Ledger(":memory:"), noise=Noise(seed=1)).release
    result = dn.verify(written(release, tmp_path))
    assert result.ok
    assert "void: nothing is promised" in result.summary()
    wrong = with_body(release, proved)
    result = dn.verify(written(wrong, tmp_path, "proved"))
    assert result.ok, "a seed leaves no trace in counts"


# What is the owner's word, which nobody can recount from outside.
@given(st.lists(st.integers(1, 2**63 - 1), max_size=8))
def test_sums_do_not_overflow(counts: list[int]) -> None:
    assert _sum(np.array(counts, dtype=np.int64)) == sum(counts)
