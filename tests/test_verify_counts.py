# SPDX-License-Identifier: Apache-2.0
"""verify on releases of counts: every figure that follows from others is worked out again, forged or not."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dunnage.verification.counts import BOUND_NOT_CHECKED, CITY_NOT_CHECKED, COUNTS_NOT_CHECKED, _sum
from hypothesis import given
from hypothesis import strategies as st
from tests.test_release_counts import RIDERS, WEEKDAYS, policy_of, released, trips

import dunnage as dn
from dunnage.certificate import Certificate, composition_rule, meaning
from dunnage.columns import write_csv
from dunnage.errors import DunnageError
from dunnage.exact import exact, plain
from dunnage.guarantees import BOUNDED_CONTRIBUTION, Basis, Promise, guarantee_from
from dunnage.ledger import Ledger
from dunnage.noise import Noise
from dunnage.release import CERTIFICATE_FILE, Release, file_digest
from dunnage.showing import release_text

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
    body = copy.deepcopy(dict(release.certificate.plain()))
    change(body)
    return replace(release, certificate=Certificate(body=body))


def with_data(release: Release, data: pa.Table) -> Release:
    """Change the table, and all figures that are counted of it."""

    def recount(body: dict[str, Any]) -> None:
        counts = data.column("count").to_pylist()
        body["measures"].update(trips=sum(counts), cells_with_trips=len(counts))

    return with_body(replace(release, data=data), recount)


def with_column(release: Release, name: str, change: Callable[[list[Any]], Any]) -> Release:
    values = release.data.column(name).to_pylist()
    changed = change(values) or values
    kind = release.data.schema.field(name).type
    place = release.data.column_names.index(name)
    return with_data(release, release.data.set_column(place, name, pa.array(changed, kind)))


def restated(body: dict[str, Any]) -> None:
    """Let odds, composition and totals follow again from the guarantee."""
    promise = Promise(
        guarantee=guarantee_from(body["guarantee"]),
        basis=Basis(body["basis"]),
        mechanism=body["mechanism"],
        why=body.get("why", ""),
    )
    body["meaning"] = meaning(promise)
    body["composition"] = {**body["composition"], "rule": composition_rule(promise.guarantee)}
    if body["basis"] == "proved":
        total = {"epsilon": "1000", "delta": "0"}
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
    assert set(COUNTS_NOT_CHECKED) <= set(result.not_checked)
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
        "bad = [m for m in sys.modules if m.startswith(('dunnage.mechanisms.pipeline', 'dunnage.dataset', "
        "'dunnage.policy', 'dunnage.ledger', 'dunnage.publication', 'numba', 'scipy'))]; assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code, str(folder)], check=True)


# Forgeries of the table; figures that are counted of it follow.


def repeat(release: Release) -> Release:
    data = pa.concat_tables([release.data.slice(0, 1), release.data])
    return with_data(release, data)


def swap(release: Release) -> Release:
    order = [1, 0, *range(2, len(release))]
    return with_data(release, release.data.take(order))


def nothing(values: list[Any]) -> None:
    values[0] = 0


def negative(values: list[Any]) -> None:
    values[-1] = -3


def strange_stop(values: list[Any]) -> None:
    values[0] = "Nowhere"


def missing(values: list[Any]) -> None:
    values[0] = None


def between(values: list[Any]) -> None:
    values[0] = "08:15"


def lower_type(release: Release) -> Release:
    place = release.data.column_names.index("count")
    return replace(release, data=release.data.set_column(place, "count", release.data.column("count").cast(pa.int32())))


def more_columns(release: Release) -> Release:
    return replace(release, data=release.data.append_column("true_count", release.data.column("count")))


def fewer_columns(release: Release) -> Release:
    return replace(release, data=release.data.drop_columns(["window"]))


def other_table(release: Release) -> Release:
    return replace(release, members=release.data)


TABLES: dict[str, tuple[Callable[[Release], Release], str]] = {
    "a cell twice": (repeat, "listed twice"),
    "two cells swapped": (swap, "not in order"),
    "a count of zero": (lambda release: with_column(release, "count", nothing), "not above zero"),
    "a negative count": (lambda release: with_column(release, "count", negative), "not above zero"),
    "a stop from elsewhere": (lambda release: with_column(release, "origin", strange_stop), "label of origin"),
    "a window between windows": (lambda release: with_column(release, "window", between), "label of window"),
    "a missing stop": (lambda release: with_column(release, "destination", missing), "missing values in destination"),
    "another type": (lower_type, "columns"),
    "a column too many": (more_columns, "columns"),
    "a column too few": (fewer_columns, "columns"),
    "a table too many": (other_table, "tables"),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_forged_table_is_seen(releases: dict[str, Release], tmp_path: Path, name: str) -> None:
    forge, words = TABLES[name]
    forged = forge(releases["plain"])
    if "column" in name or "table" in name:  # which no words can be made of
        folder = written(releases["plain"], tmp_path)
        rewritten(folder, forged)
    else:
        folder = written(forged, tmp_path)
    assert words in problem(folder)


def rewritten(folder: Path, release: Release) -> None:
    """Put other tables into a folder and list them, whatever its words say."""
    for name, table in release.tables.items():
        pq.write_table(table, folder / f"{name}.parquet")
        write_csv(table, folder / f"{name}.csv")
    files = {path.name: file_digest(path) for path in folder.iterdir() if path.name != CERTIFICATE_FILE}
    (folder / CERTIFICATE_FILE).write_bytes(release.certificate.with_files(files).to_bytes())


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


def at(*path: Any, to: Any) -> Callable[[dict[str, Any]], None]:
    def change(body: dict[str, Any]) -> None:
        inner: Any = body
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = to

    return change


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


def swapped_features(body: dict[str, Any]) -> None:
    features = body["measures"]["features"]
    features[1], features[2] = features[2], features[1]


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
    )


def in_floats(body: dict[str, Any]) -> None:
    body["measures"]["trips"] = float(body["measures"]["trips"])


def fewer_stops(body: dict[str, Any]) -> None:
    for item in body["attributes"][:2]:
        item["domain"]["stops"] = item["domain"]["stops"][:5]


CERTIFICATES: dict[str, tuple[str, Callable[[dict[str, Any]], Any], str]] = {
    "other trips": ("plain", at("measures", "trips", to=7), "wrong figures: trips"),
    "trips as a float": ("plain", in_floats, "wrong figures: trips"),
    "other cells": ("plain", at("measures", "cells", to=7), "wrong figures: cells"),
    "other cells with trips": ("plain", at("measures", "cells_with_trips", to=7), "wrong figures: cells_with_trips"),
    "a figure of the true trips": ("plain", at("measures", "true_trips", to=300), "figures that do not belong"),
    "half of epsilon": ("plain", cheaper, "noise does not follow from epsilon"),
    "half of epsilon, features": ("fitted", cheaper, "do not add up"),
    "half of epsilon, throughout": ("fitted", cheaper_throughout, "noise on cells does not follow"),
    "less noise": ("plain", at("measures", "noise", "scale", to=0.25), "noise does not follow"),
    "another law": ("plain", at("measures", "noise", "law", to="discrete"), "noise does not follow"),
    "another rounding": ("plain", at("mechanism", "rounding", to="up"), "rounding is not one"),
    "a lower threshold than counts": ("plain", at("mechanism", "threshold", to=50), "below the threshold"),
    "no threshold": ("plain", at("mechanism", "threshold", to=True), "threshold is no whole number"),
    "less noise on cells": ("fitted", at("measures", "features", 0, "scale", to=1), "noise on cells does not follow"),
    "another law of cells": ("fitted", at("measures", "features", 0, "law", to="floating"), "noise on cells"),
    "more said of a feature": ("fitted", at("measures", "features", 1, "true", to=300), "noise on total"),
    "an epsilon that is not canonical": (
        "fitted",
        at("measures", "features", 0, "epsilon", to="1/5"),
        "noise on cells",
    ),
    "a share moved": ("fitted", moved_share, "epsilon is not shared"),
    "a share moved, by table": ("fitted, shares", moved_share, "epsilon is not shared"),
    "a share moved, tree": ("tree", moved_share, "epsilon is not shared"),
    "other shares": ("fitted", at("mechanism", "budget_shares", to="all"), "epsilon is not shared"),
    "features in another order": ("fitted", swapped_features, "other sums"),
    "a feature not asked": ("fitted", lambda body: body["measures"]["features"].pop(), "other sums"),
    "other features": ("fitted", at("mechanism", "features", to="O4"), "other sums"),
    "unknown features": ("fitted", at("mechanism", "features", to="O9"), "unknown name"),
    "a feature by strangers": (
        "fitted",
        at("mechanism", "features", to=[["colour"]]),
        "columns that trips do not have",
    ),
    "a feature twice": ("fitted", at("mechanism", "features", to=[["window"], ["window"]]), "asked twice"),
    "other groups of cells": ("fitted", at("measures", "features", 0, "groups", to=143), "cells has another number"),
    "other groups in all": ("fitted", at("measures", "features", 1, "groups", to=2), "total has another number"),
    "other groups by window": ("fitted", at("measures", "features", 2, "groups", to=5), "window has another number"),
    "zones that are no square": ("fitted", at("measures", "features", 3, "groups", to=32), "another number of groups"),
    "zones not in every window": ("fitted", at("measures", "features", 3, "groups", to=35), "another number of groups"),
    "more modes than pairs": ("fitted", at("measures", "features", 4, "groups", to=400), "another number of groups"),
    "more zones than stops": (
        "fitted, hidden",
        at("measures", "features", 1, "groups", to=7),
        "another number of groups",
    ),
    "fewer groups than stops": ("fitted, hidden", at("measures", "features", 3, "groups", to=5), "another number"),
    "days that are not told apart": ("fitted", at("mechanism", "features", to=[["day"]]), "other sums"),
    "not the nearest": ("fitted", at("measures", "kkt_residual", to=1e-9), "nearest"),
    "no residual": ("fitted", at("measures", "kkt_residual", to=None), "nearest"),
    "a negative residual": ("fitted", at("measures", "kkt_residual", to=-1e-12), "nearest"),
    "as published, yet proved": ("fitted, as published", proved, "made as published"),
    "as published, plain, yet proved": ("plain, as published", proved, "made as published"),
    "as published, and holds": ("tree, as published", holding, "says what holds"),
    "not as published": ("fitted, as published", at("mechanism", "as_published", to=False), "noise on cells"),
    "as published, perhaps": ("plain", at("mechanism", "as_published", to=0), "whether"),
    "riders instead of trips": ("plain, down", at("guarantee", "protects", to="rider"), "odds"),
    "riders of two trips": ("plain", as_riders(2), "noise does not follow"),
    "riders under the assumptions of trips": ("plain", relabelled, "under other assumptions: bounded contribution"),
    "trips under the assumptions of riders": ("plain, riders", as_trips, "under other assumptions: epsilon per trip"),
    "a domain that is not public": (
        "fitted",
        lambda body: body["assumptions"].pop("public domain"),
        "other assumptions: public domain",
    ),
    "other features assumed": (
        "fitted",
        at("assumptions", "public features", to="zones are secret"),
        "other assumptions: public features",
    ),
    "no entropy": ("tree", lambda body: body["assumptions"].pop("system entropy"), "other assumptions: system entropy"),
    "both units assumed": ("plain", at("assumptions", "bounded contribution", to="so it was"), "other assumptions"),
    "a bound where trips are protected": (
        "plain",
        at("measures", "contribution", to={"max": 1, "per": "period", "days": None}),
        "figures that do not belong",
    ),
    "no bound": ("plain, riders", lambda body: body["measures"].pop("contribution"), "figures that do not belong"),
    "another bound": ("plain, riders", at("measures", "contribution", "max", to=3), "lose"),
    "half a bound": ("plain, riders", at("measures", "contribution", "max", to=2.0), "how many trips of a rider"),
    "another span": ("plain, riders", at("measures", "contribution", "per", to="week"), "how many trips of a rider"),
    "days of a period": ("plain, riders", at("measures", "contribution", "days", to=1), "how many trips of a rider"),
    "by day without dates": (
        "plain, riders",
        at("measures", "contribution", to={"max": 2, "per": "day", "days": 1}),
        "days of a rider",
    ),
    "other days of a rider": ("plain, riders by day", at("measures", "contribution", "days", to=7), "days of a rider"),
    "no days of a rider": ("plain, riders by day", at("measures", "contribution", "days", to=None), "days of a rider"),
    "more said of the bound": ("plain, riders", at("measures", "contribution", "mean", to=1.7), "how many trips of"),
    "more for the cells": ("fitted, cells", shared("0.8", *["0.05"] * 4), "epsilon is not shared"),
    "cells, not even": ("fitted, cells", shared("0.6", "0.25", *["0.05"] * 3), "epsilon is not shared"),
    "more for the margin": ("fitted, margins", shared("0.6", *["0.075"] * 4, "0.1"), "epsilon is not shared"),
    "margins, not even": (
        "fitted, margins",
        shared("0.65", "0.15", *["0.05"] * 3, "0.05"),
        "epsilon is not shared",
    ),
    "margins, other weights": ("fitted, margins", at("mechanism", "feature_weights", to="uniform"), "margins with"),
    "margins alone": ("fitted, margins", at("mechanism", "features", to=[["origin", "destination"]]), "margins with"),
    "a tree by a flat name": ("tree, even", at("mechanism", "features", to="O5"), "are no tree"),
    "a tree that is none": ("tree, even", as_tree([["window"], ["mode"]]), "are no tree"),
    "a tree upside down": ("tree, even", as_tree([["origin"], ["origin_zone"]]), "are no tree"),
    "a tree without levels": ("tree, even", as_tree([]), "are no tree"),
    "a parameter too many": ("plain", at("mechanism", "seed", to=1), "other parameters"),
    "a parameter of another mechanism": ("tree", at("mechanism", "threshold", to=1), "other parameters"),
    "a parameter too few": ("fitted", lambda body: body["mechanism"].pop("feature_weights"), "other parameters"),
    "a threshold out of range": ("plain", at("mechanism", "threshold", to=2**63), "out of range"),
    "an epsilon out of range": ("plain", enormous, "epsilon is out of range"),
    "fewer groups by zone and mode than by zone": (
        "tree",
        at("measures", "features", 4, "groups", to=8 * 28),
        "than what it tells apart",
    ),
    "another number of zones each": (
        "fitted, hidden",
        at("measures", "features", 1, "groups", to=2),
        "groups by zone each",
    ),
    "more trips of a rider": ("plain, riders", more_trips, "noise does not follow"),
    "more trips of a rider, features": ("fitted, riders", more_trips, "noise on cells does not follow"),
    "a rider loses less": ("plain, riders", at("measures", "loss", "rider", to=0.5), "lose"),
    "half a trip": ("plain, riders", at("measures", "loss", "trip", to=0.3), "lose"),
    "a trip loses less, of a rider": ("plain, riders", at("measures", "loss", "trip", to=0.5), "lose"),
    "a trip loses nothing": ("plain, riders", at("measures", "loss", "trip", to=0), "lose"),
    "a trip loses less": ("plain", at("measures", "loss", "trip", to=1), "lose"),
    "a bound on riders from nowhere": ("plain", at("measures", "loss", "rider", to=2), "lose"),
    "a loss not said": ("plain", at("measures", "loss", to={"trip": 2}), "does not state what"),
    "other neighbours": ("plain", other_neighbours, "another guarantee"),
    "another mechanism": ("plain", at("mechanism", "name", to="noisy-values"), "another guarantee"),
    "another epsilon of the mechanism": ("plain", at("mechanism", "epsilon", to=1), "another epsilon"),
    "fewer stops": ("plain", fewer_stops, "label of|wrong figures"),
    "other stops at the end": ("plain", lambda body: body["attributes"][1]["domain"]["stops"].pop(), "types of trips"),
    "more said of an attribute": ("plain", at("attributes", 0, "trips", to=300), "types of trips"),
    "another window length": ("plain", at("attributes", 2, "domain", "window_minutes", to=60), "label|wrong figures"),
    "other days": ("tree", at("attributes", 3, "num_dates", to=[1] * 7), "service dates"),
    "a number of days without dates": ("plain", at("attributes", 2, "num_dates", to=[3]), "service dates"),
    "rows": ("plain", at("kind", to="rows"), ""),
    "another kind": ("plain", at("kind", to="pictures"), "cannot check"),
}


@pytest.mark.parametrize("name", CERTIFICATES)
def test_a_forged_certificate_is_seen(releases: dict[str, Release], tmp_path: Path, name: str) -> None:
    case, change, words = CERTIFICATES[name]
    folder = written(releases[case], tmp_path)
    forged = with_body(releases[case], change)
    rewritten(folder, forged)
    found = problem(folder)
    assert any(word in found for word in words.split("|")), found


def test_a_void_release_is_in_order_but_void(tmp_path: Path) -> None:
    data = dn.load(trips(), policy_of(tmp_path, {"name": "noisy-counts", "epsilon": 1}))
    release = dn.publish(data, ledger=Ledger(":memory:"), noise=Noise(seed=1)).release
    result = dn.verify(written(release, tmp_path))
    assert result.ok
    assert "void: nothing is promised" in result.summary()
    wrong = with_body(release, proved)
    result = dn.verify(written(wrong, tmp_path, "proved"))
    assert result.ok, "a seed leaves no trace in counts"


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Give the path of every value in plain data."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


# What is the owner's word, which nobody can recount from outside.
FREE = {
    ("dataset",),
    ("numerics",),
    ("digests_say",),
    ("spend", "id"),
    ("composition", "total_per_period_assumes"),
    ("composition", "neighbours"),
    ("mechanism", "prune"),
    ("attributes", 2, "domain", "zone"),
    ("attributes", 2, "domain", "holidays"),
}
FREE_PARTS = {
    ("in_clear",),
    ("software",),
    ("composition", "total"),  # with earlier releases it may be more
    ("composition", "total_per_period"),
}
STRANGE: list[Any] = [None, True, -7, 2.5, 10**30, "x", ["x"], {"x": 1}, [{}]]


@pytest.mark.parametrize("name", ["plain, riders", "tree", "fitted"])
def test_no_value_in_a_certificate_makes_verify_or_show_crash(
    releases: dict[str, Release], tmp_path: Path, name: str
) -> None:
    folder = written(releases[name], tmp_path)
    body = dict(Certificate.from_bytes((folder / CERTIFICATE_FILE).read_bytes()).body)
    for path in places(body):
        for value in [*STRANGE, KeyError]:
            changed = copy.deepcopy(body)
            inner: Any = changed
            for key in path[:-1]:
                inner = inner[key]
            if value is KeyError:
                del inner[path[-1]]
            else:
                inner[path[-1]] = value
            (folder / CERTIFICATE_FILE).write_bytes(Certificate(body=changed).to_bytes())
            result = dn.verify(folder)
            if result.ok and changed != body:
                assert path in FREE or path[:1] in FREE_PARTS or path[:2] in FREE_PARTS, (path, value)
            try:
                release_text(Release.read(folder))
            except DunnageError:
                assert not result.ok


@given(st.lists(st.integers(1, 2**63 - 1), max_size=8))
def test_sums_do_not_overflow(counts: list[int]) -> None:
    assert _sum(np.array(counts, dtype=np.int64)) == sum(counts)
