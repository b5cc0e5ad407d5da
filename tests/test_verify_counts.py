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
from tests.builders import CLOCK, RIDERS, STOP, WEEKDAYS, Case, a_policy, a_trip_policy, trips
from tests.certificates_help import relisted, restated, verified, with_body
from tests.refusals import refusal

import dunnage as dn
from dunnage.errors import CheckFailed
from dunnage.exact import exact, plain
from dunnage.ledger import Ledger
from dunnage.model.guarantees import BOUNDED_CONTRIBUTION
from dunnage.noise.source import Noise
from dunnage.release import Release
from dunnage.release.kinds.counts import BOUND_NOT_CHECKED, CITY_NOT_CHECKED, NOT_CHECKED, _sum
from dunnage.verification import check_release

SHARES = {"cells": "1/2", "total": "1/6", "origin x window": "1/3"}
DAYS = {"time": WEEKDAYS}
HIDDEN = [["origin_zone"], ["origin_zone", "destination_zone", "day"], ["mode", "origin"], ["day"]]
OWN = [["window"], ["origin_zone", "window"], ["origin", "window"]]
BY_DAY = {"protects": "rider", "contribution": {"person": "card", "max": 3, "per": "day"}, **DAYS}
KINDS = {"plain": "noisy-counts", "tree": "hierarchical-counts", "fitted": "constrained-counts"}
PARAMETERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({"epsilon": 2, "threshold": 2}, {}),
    "plain, down": ({"epsilon": "1/3", "rounding": "floor"}, DAYS),
    "plain, riders": ({}, RIDERS),
    "plain, as published": ({"as_published": True}, {}),
    "tree": ({}, DAYS),
    "tree, even": ({"budget": "uniform", "features": "H4"}, {}),
    "tree, as published": ({"as_published": True}, {}),
    "fitted": ({}, {}),
    "fitted, days": ({"epsilon": "0.7"}, DAYS),
    "fitted, cells": ({"budget_shares": "cells"}, {}),
    "fitted, margins": ({"budget_shares": "margins"}, {}),
    "fitted, tree": ({"structure": "hierarchical"}, {}),
    "fitted, shares": ({"features": [[], ["window", "origin"]], "budget_shares": SHARES}, {}),
    "fitted, hidden": ({"epsilon": 3, "features": HIDDEN}, DAYS),
    "tree, own": ({"features": OWN}, {}),
    "plain, riders by day": ({}, BY_DAY),
    "fitted, riders": ({}, RIDERS),
    "fitted, as published": ({"as_published": True}, {}),
}
CASES: dict[str, dict[str, Any]] = {
    name: {"mechanism": {"name": KINDS[name.split(",")[0]], "epsilon": 1, **parameters}, **more}
    for name, (parameters, more) in PARAMETERS.items()
}


@pytest.fixture(scope="module")
def releases() -> dict[str, Release]:
    """A release of each case; never changed."""
    tables = {name: dn.load(trips(300), a_trip_policy(**case)) for name, case in CASES.items()}
    return {name: dn.publish(data, ledger=Ledger(":memory:")).release for name, data in tables.items()}


def totalled(body: dict[str, Any]) -> None:
    """Let odds, composition and totals follow again from the guarantee."""
    restated(body)
    if body["basis"] == "proved":
        total = {"epsilon": 1000, "delta": 0}
        body["composition"].update(total=total, total_per_period=total)


def test_every_kind_of_counts_is_in_order(releases: dict[str, Release], tmp_path: Path) -> None:
    for name, release in releases.items():
        result = verified(release, tmp_path / name)
        assert result.ok, (name, result.problems)
        assert result.basis == ("claimed" if "published" in name else "proved")
        measures = release.certificate.plain()["measures"]
        assert any(f"{measures['trips']:,}" in check for check in result.checks)
        assert set(NOT_CHECKED) <= set(result.not_checked)
        assert (BOUND_NOT_CHECKED[0] in result.not_checked) == ("riders" in name)
        hidden = any("zone" in item["feature"] or "mode" in item["feature"] for item in measures.get("features", []))
        assert (CITY_NOT_CHECKED[0] in result.not_checked) == hidden


def test_periods_and_days_by_a_column_of_their_own_are_in_order(tmp_path: Path) -> None:
    mechanism = {"name": "constrained-counts", "epsilon": 1, "features": [["day"], ["window"]]}
    month = {"column": "at", "length": "month"}
    policy = a_trip_policy(mechanism, {"day": "day-type"}, period=month)
    release = dn.publish(dn.load(trips(300), policy, period="2026-11"), ledger=Ledger(":memory:")).release
    assert release.universe.num_dates == (21, 4, 5)
    assert verified(release, tmp_path / "november").ok
    wrong = with_body(release, lambda body: body.update(period="2026-10"))  # a label may stand for any dates
    assert len(verified(wrong, tmp_path / "october").problems) == 1
    trip = {"origin": "from", "destination": "to", "time": "at", "day": "kind"}
    label = {"role": "quasi-identifier", "kind": "ordinal", "domain": ["work", "rest"]}
    attributes = {"card": {"role": "identifier"}, "from": STOP, "to": STOP, "at": CLOCK, "kind": label}
    policy = a_policy(mechanism, attributes, protects="trip", trip=trip, city={"stops": "stops.csv"})
    data = dn.load(trips(300).append_column("kind", pa.array(["work", "rest", "work"] * 100)), policy)
    own = dn.publish(data, ledger=Ledger(":memory:"), noise=Noise()).release
    assert own.universe.days == ("work", "rest")
    assert verified(own, tmp_path / "own").ok


def test_verify_needs_nothing_private_and_no_drawing(releases: dict[str, Release], tmp_path: Path) -> None:
    folders = {"counts": releases["fitted"], "rows": Case("partition", {"k": 3}).release()}
    assert all(verified(release, tmp_path / name).ok for name, release in folders.items())
    code = (
        "import sys; from dunnage.verification import verify; assert all(verify(name).ok for name in sys.argv[1:]); "
        "bad = [m for m in sys.modules if m.startswith(('dunnage.publishing', 'dunnage.tables.dataset', "
        "'dunnage.model.policy', 'dunnage.ledger', 'dunnage.publication', 'numba', 'scipy'))]; "
        "assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code, *(str(tmp_path / name) for name in folders)], check=True)


def test_a_forged_table_is_seen(releases: dict[str, Release], tmp_path: Path) -> None:
    """Figures that are counted of it follow."""
    release = releases["plain"]
    data = release.data
    repeated, swapped = pa.concat_tables([data.slice(0, 1), data]), data.take([1, 0, *range(2, len(data))])
    for name, forged in (("repeated", repeated), ("swapped", swapped)):
        counts = {"trips": sum(forged.column("count").to_pylist()), "cells_with_trips": len(forged)}
        wrong = with_body(replace(release, data=forged), lambda body, counts=counts: body["measures"].update(counts))
        assert len(verified(wrong, tmp_path / name).problems) == 1
    folder = tmp_path / "fitted"
    assert verified(releases["fitted"], folder).ok
    lines = (folder / "data.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    for changed in (lines[:-1], [*lines, lines[-1]], [lines[0], lines[2], lines[1], *lines[3:]]):
        (folder / "data.csv").write_text("".join(changed), encoding="utf-8")
        relisted(folder)
        (problem,) = dn.verify(folder).problems
        assert "data.csv" in problem


def cheaper(body: dict[str, Any]) -> None:
    """State half of epsilon, with all that follows but the noise."""
    half = plain(exact(body["guarantee"]["epsilon"]) / 2)
    body["guarantee"]["epsilon"] = body["mechanism"]["epsilon"] = half
    body["measures"]["loss"] = {"trip": half, "rider": None}
    totalled(body)


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
    totalled(body)


def as_riders(most: int) -> Callable[[dict[str, Any]], None]:
    """Say that riders of at most so many trips are protected where one trip is, with all that follows."""

    def change(body: dict[str, Any]) -> None:
        body["guarantee"]["protects"] = "rider"
        epsilon = exact(body["guarantee"]["epsilon"])
        body["measures"]["loss"] = {"trip": plain(2 * epsilon / most), "rider": plain(epsilon)}
        body["measures"]["contribution"] = {"max": most, "per": "period", "days": None}
        del body["assumptions"]["epsilon per trip"]
        body["assumptions"][BOUNDED_CONTRIBUTION.name] = BOUNDED_CONTRIBUTION.says
        totalled(body)

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
    totalled(body)


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
    totalled(body)


def more_trips(body: dict[str, Any]) -> None:
    body["measures"]["loss"] = {"trip": 0.25, "rider": 1}
    body["measures"]["contribution"]["max"] = 8


def other_neighbours(body: dict[str, Any]) -> None:
    body["guarantee"]["neighbours"] = "replace-one"
    totalled(body)
    body["composition"].update(total="none", total_per_period="none")


def holding(body: dict[str, Any]) -> None:
    body["holds"] = body["guarantee"]
    restated(body)


def fewer_stops(body: dict[str, Any]) -> None:
    for item in body["attributes"][:2]:
        item["domain"]["stops"] = item["domain"]["stops"][:4]


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
    refusal(CheckFailed, check_release, with_body(releases[case], change))


def test_a_void_release_is_in_order_but_void(tmp_path: Path) -> None:
    data = dn.load(trips(300), a_trip_policy({"name": "noisy-counts", "epsilon": 1}))
    release = dn.publish(data, ledger=Ledger(":memory:"), noise=Noise(seed=1)).release
    result = verified(release, tmp_path / "void")
    assert (result.ok, result.basis, len(result.problems)) == (False, "void", 1)
    assert dn.verify(tmp_path / "void", require="void").ok
    assert verified(with_body(release, proved), tmp_path / "proved").ok, "a seed leaves no trace in counts"


@given(st.lists(st.integers(1, 2**63 - 1), max_size=8))
def test_sums_do_not_overflow(counts: list[int]) -> None:
    assert _sum(np.array(counts, dtype=np.int64)) == sum(counts)
