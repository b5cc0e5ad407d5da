# SPDX-License-Identifier: Apache-2.0
"""verify on releases of estimates: genuine ones pass, and forgeries with digests that fit are found."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.estimates_help import GRID, fleet_tallies, fleet_task
from tests.oracles import report_laws

from dunnage.certificate import Certificate, meaning
from dunnage.columns import write_csv
from dunnage.documents import canonical
from dunnage.guarantees import Basis, LocalDP, Neighbours, Promise, WithinCluster
from dunnage.local.client import mechanism_of
from dunnage.local.estimate import estimate, write_estimates
from dunnage.local.oracles import choose_oracle
from dunnage.local.task import Grid, Schedule
from dunnage.release import Release, file_digest
from dunnage.verification import verify

GENUINE: list[tuple[tuple[str, ...], dict[str, Any]]] = [
    ((), {}),
    (("telemetry",), {"telemetry": {"method": "square-wave"}}),
    (("telemetry",), {"telemetry": {"method": "duchi"}}),
    (("telemetry",), {"telemetry": {"as_published": True}}),
    (("places",), {"places": {"method": "planar"}}),
    (("telemetry", "places"), {"places": {"method": "planar"}}),
    (("places",), {"places": {"area_in_clear": True}}),
    (("telemetry", "places"), {"places": {"as_published": True}}),
    (("places",), {"places": {"as_published": True}}),
    (("paths",), {"paths": {"as_published": True}}),
    (("paths",), {"paths": {"as_published": True, "method": "qlp"}}),
    (("paths",), {"paths": {"as_published": True, "method": "qjlp"}}),
    (("paths",), {"paths": {"area_in_clear": True}}),
    (("telemetry",), {"schedule": Schedule(slots_per_day=4, window=3)}),
    (("telemetry",), {"telemetry": {"method": "harmony"}}),
    (("telemetry",), {"telemetry": {"method": "laplace", "sampled": 2}}),
    (("telemetry", "paths"), {"telemetry": {"as_published": True}, "paths": {"as_published": True}}),
    (("places",), {"places": {"method": "hadamard"}, "schedule": Schedule(window=2)}),
    (("places", "paths"), {"places": {"area_in_clear": True}, "paths": {"hops": 2, "method": "symmetric-unary"}}),
    (("places", "paths"), {"grid": Grid(box=GRID.box, levels=4, area_levels=1), "paths": {"area_in_clear": True}}),
]


def released(*names: str, num: int = 1000, **parameters: Any) -> Release:
    task = fleet_task(*names, **parameters)
    return estimate(fleet_tallies(task, num), task, allow_noise=True)


@pytest.mark.parametrize(("names", "parameters"), GENUINE, ids=str)
def test_genuine_estimates_are_in_order(tmp_path: Path, names: tuple[str, ...], parameters: dict[str, Any]) -> None:
    result = verify(write_estimates(released(*names, **parameters), tmp_path / "release"))
    assert result.ok, result.summary()
    assert any("forged" in item for item in result.not_checked)


def test_few_void_and_silent_ones_are_in_order(tmp_path: Path) -> None:
    task = fleet_task("telemetry", "places")
    tallies = fleet_tallies(task, 2)
    few = estimate([tally for tally in tallies if tally.purpose == "telemetry"][:1], task)
    assert verify(write_estimates(few, tmp_path / "few")).ok
    published = fleet_task("places", places={"as_published": True})
    for name, asked in (("void", task), ("published", published)):
        void = estimate(fleet_tallies(asked, 500), asked, void="seeded", allow_noise=True)
        result = verify(write_estimates(void, tmp_path / name))
        assert result.ok, result.summary()


def set_cell(column: str, row: int, value: Any) -> Callable[[pa.Table], pa.Table]:
    """Change one cell of the table."""

    def change(table: pa.Table) -> pa.Table:
        values = table.column(column).to_pylist()
        values[row] = value
        at = table.column_names.index(column)
        return table.set_column(at, column, pa.array(values, table.schema.field(column).type))

    return change


def put(*path: Any) -> Callable[[dict[str, Any]], None]:
    """Change one entry of the certificate: keys, and last the value."""

    def change(body: dict[str, Any]) -> None:
        inner: Any = body
        for key in path[:-2]:
            inner = inner[key]
        inner[path[-2]] = path[-1]

    return change


@pytest.fixture(scope="module")
def release() -> Release:
    return released(num=3000)


def forged(release: Release, folder: Path, table: Any = None, body: Any = None) -> str:
    """Write a forgery whose digests fit, and return what verify finds."""
    content = copy.deepcopy(dict(release.certificate.plain()))
    if body is not None:
        body(content)
    data = table(release.data) if table is not None else release.data
    folder.mkdir()
    pq.write_table(data, folder / "data.parquet")
    write_csv(data, folder / "data.csv")
    try:
        shown = Release(certificate=Certificate.model_validate(content), data=data).texts(folder)
    except (ValueError, KeyError):  # nothing can be told of what is no certificate
        shown = release.texts(folder)
    for name, text in shown.items():
        (folder / name).write_bytes(text)
    digests = {path.name: file_digest(path) for path in folder.iterdir()}
    content["files"] = digests
    digest = hashlib.sha256(canonical(content)).hexdigest()
    (folder / "certificate.json").write_bytes(canonical({**content, "digest": digest}))
    result = verify(folder)
    assert not result.ok
    problems = "; ".join(result.problems)
    assert "does not describe" not in problems  # found by what it says, not by the texts beside it
    return problems


FIRST_CELL, LAST_CELL, FIRST_PATH = 3, 19, 20

TABLES: list[tuple[str, Callable[[pa.Table], pa.Table], str]] = [
    ("value above its interval", set_cell("value", 0, 119.9), "outside its interval"),
    ("interval upside down", set_cell("upper", 0, 0.0), "empty or leaves"),
    ("beyond the domain", set_cell("upper", 0, 121.0), "leaves the public domain"),
    ("no number", set_cell("upper", 0, float("nan")), "does not hold the same table"),
    ("no end", set_cell("lower", 0, None), "leaves the public domain"),
    ("no value", set_cell("value", 0, None), "no value"),
    ("another attribute", set_cell("attribute", 0, "weight"), "not that of mean telemetry speed"),
    ("another unit", set_cell("unit", 0, "m/s"), "not that of mean"),
    ("another quantity", set_cell("quantity", 0, "sum"), "not that of mean"),
    ("another cell", set_cell("cell", FIRST_CELL, 5), "not that of share places"),
    ("a cell beyond the grid", set_cell("cell", LAST_CELL, 99), "not that of share places"),
    ("a cell elsewhere", set_cell("lon", FIRST_CELL, 103.0), "not that of share places"),
    ("outside has a place", set_cell("lat", LAST_CELL, 30.6), "not that of share places"),
    ("a cell on a mean", set_cell("cell", 0, 1), "not that of mean"),
    ("no share", set_cell("value", FIRST_CELL, None), "no value"),
    ("a path beyond the grid", set_cell("path", FIRST_PATH, "16>1"), "none of the grid"),
    ("a path too far", set_cell("path", FIRST_PATH, "0>15"), "none of the grid"),
    ("a path too long", set_cell("path", FIRST_PATH, "0>0>0"), "none of the grid"),
    ("a path in words", set_cell("path", FIRST_PATH, "0>x"), "none of the grid"),
    ("a path with a sign", set_cell("path", FIRST_PATH, "0>01"), "none of the grid"),
    ("a path outside in part", set_cell("path", FIRST_PATH, "0>outside"), "none of the grid"),
    ("fewer lines", lambda table: table.slice(0, len(table) - 1), "number of lines"),
    ("a line twice", lambda table: pa.concat_tables([table, table.slice(0, 1)]), "number of lines"),
    ("another order", lambda table: table.take([1, 0, *range(2, len(table))]), "not that of mean"),
    ("another column", lambda table: table.append_column("note", pa.array([""] * len(table))), "columns"),
    ("no unit", lambda table: table.drop_columns(["unit"]), "columns"),
]


@pytest.mark.parametrize(("table", "found"), [case[1:] for case in TABLES], ids=[case[0] for case in TABLES])
def test_a_forged_table_is_found(release: Release, tmp_path: Path, table: Any, found: str) -> None:
    assert found in forged(release, tmp_path / "forged", table)


def test_shares_must_add_up_and_paths_be_in_order(release: Release, tmp_path: Path) -> None:
    lines = release.data.to_pylist()
    widest = max(range(FIRST_CELL, LAST_CELL + 1), key=lambda row: lines[row]["upper"] - lines[row]["value"])
    cells = set_cell("value", widest, lines[widest]["upper"])
    assert "places do not add up" in forged(release, tmp_path / "cells", cells)
    last = len(lines) - 1
    assert "not in order" in forged(release, tmp_path / "paths", set_cell("value", last, lines[last]["upper"]))
    first = set_cell("value", FIRST_PATH, lines[FIRST_PATH]["upper"])
    assert "paths do not add up" in forged(release, tmp_path / "sum", first)


def test_a_path_is_listed_once(release: Release, tmp_path: Path) -> None:
    first = release.data.column("path").to_pylist()[FIRST_PATH]
    assert "listed twice" in forged(release, tmp_path / "forged", set_cell("path", FIRST_PATH + 1, first))


BODIES: list[tuple[str, Callable[[dict[str, Any]], None], str]] = [
    ("smaller epsilon", put("guarantee", "epsilon", 3), ""),
    ("another unit", put("guarantee", "protects", "report"), ""),
    ("smaller loss of a slot", put("measures", "loss", "tiers", "basic", "slot", 2), "does not follow from the task"),
    ("smaller loss of a day", put("measures", "loss", "tiers", "strict", "day", 1), "does not follow from the task"),
    ("a tier less", lambda body: body["measures"]["loss"]["tiers"].pop("strict"), ""),
    ("smaller loss of a report", put("measures", "loss", "tiers", "basic", "reports", "places", 1), "does not follow"),
    ("another lifetime", put("measures", "loss", "lifetime", 10), "does not follow"),
    ("another total", put("composition", "total", {"epsilon": 5001, "delta": 0}), "totals"),
    ("a total too small", put("composition", "total_per_period", {"epsilon": 7, "delta": 0}), "totals"),
    ("another task", put("measures", "task", "version", 2), "digest"),
    ("another dataset", put("dataset", "ships"), "another dataset"),
    ("another mechanism", put("mechanism", "name", "local-numeric"), ""),
    ("a confidence above 1", put("mechanism", "confidence", 1.5), "confidence"),
    ("another combination", put("mechanism", "combine", "best"), ""),
    (
        "another tier",
        put("mechanism", "purposes", "places", "tiers", {"basic": 1, "strict": 1}),
        "not that of the task",
    ),
    ("another grid", put("mechanism", "purposes", "places", "grid", "levels", 2), "not that of the task"),
    ("published in secret", put("mechanism", "purposes", "places", "as_published", True), "not that of the task"),
    ("said to be published", put("mechanism", "as_published", True), ""),
    ("another domain", put("attributes", 0, "domain", "upper", 130), "domain of speed"),
    ("an attribute more", lambda body: body["attributes"].append(body["attributes"][0]), "other attributes"),
    ("reports of a tier that is not", put("measures", "reports", "places", {"gold": 1}), "there cannot be"),
    ("fewer than no reports", put("measures", "reports", "places", "basic", -1), "there cannot be"),
    ("no reports", put("measures", "reports", {"telemetry": {}, "places": {}, "paths": {}}), ""),
    ("a purpose less", lambda body: body["measures"]["reports"].pop("paths"), "other purposes"),
    ("one tier", put("measures", "combined", "places", "shares", {"rule": "one tier"}), "combined that there are not"),
    ("another number of lines", put("measures", "lines", 7), "number of lines"),
    ("another number of paths", put("measures", "paths", "paths", {"paths": 900, "listed": 101}), ""),
    ("a figure more", put("measures", "mean", 3), "measures missing or malformed"),
    ("claimed", put("basis", "claimed"), ""),
    ("holds something else", lambda body: body.update(holds=body["guarantee"]), ""),
    ("another law", put("mechanism", "purposes", "places", "laws", "basic", "hadamard"), "not that of the task"),
    ("area in clear", put("mechanism", "purposes", "places", "area_in_clear", True), "not that of the task"),
    ("more numbers told", put("mechanism", "purposes", "telemetry", "sampled", "basic", 3), "not that of the task"),
    ("another method", put("mechanism", "purposes", "telemetry", "method", "laplace"), "not that of the task"),
    ("more hops", put("mechanism", "purposes", "paths", "hops", 2), "not that of the task"),
    ("a parameter more", put("mechanism", "purposes", "paths", "note", "safe"), "not that of the task"),
    ("missing values told otherwise", put("attributes", 1, "missing", "middle"), "domain of load"),
    ("fewer paths", put("attributes", 3, "domain", "num_paths", 50), "domain of paths"),
    ("nothing in clear", put("in_clear", []), "in clear does not follow"),
    ("less in clear", lambda body: body["in_clear"].pop(), "in clear does not follow"),
    ("more in clear", lambda body: body["in_clear"].append("nothing at all"), "in clear does not follow"),
    ("nothing assumed", put("assumptions", {}), "assumptions do not follow"),
    ("an assumption less", lambda body: body["assumptions"].pop("honest reports"), "assumptions do not follow"),
    ("a comforting assumption", put("assumptions", "network not covered", "it is"), "assumptions do not follow"),
    ("no warnings", lambda body: body.pop("warnings"), "warnings do not follow"),
    ("other warnings", put("warnings", ["all is well"]), "warnings do not follow"),
    ("other numerics", put("numerics", "float"), "numerics do not follow"),
    ("a claim", put("claim", "epsilon 0.1"), "claim does not follow"),
    (
        "a better map",
        put("measures", "maps", "places", "6,000 vehicles at epsilon 2, 1: a share is off by about 0.0001"),
        "",
    ),
    ("a map in other words", put("measures", "maps", "places", "exact"), "map of places does not follow"),
    ("no maps", lambda body: body["measures"].pop("maps"), "maps of other purposes"),
    ("fewer than none left out", put("measures", "left_out", {"duplicate": -1}), "left out that there cannot be"),
    ("left out for another reason", put("measures", "left_out", {"private": 1}), "left out that there cannot be"),
    ("a p-value above 1", put("measures", "combined", "places", "shares", "p_value", 7.0), "p-value"),
    ("a p-value in words", put("measures", "combined", "places", "shares", "p_value", "high"), "malformed"),
    ("tiers that differ", put("measures", "combined", "places", "shares", "p_value", 0.001), "combined that there are"),
    ("another rule", put("measures", "combined", "places", "shares", "rule", "none"), "combined that there are not"),
    ("asked for another rule", put("mechanism", "combine", "stratify"), "combined that there are not"),
    (
        "more told of a number",
        put("measures", "combined", "telemetry", "speed", "reports", 10**6),
        "combined that there",
    ),
    ("combined something else", put("measures", "combined", "ships", {}), "of other purposes"),
    ("another spend", put("spend", "id", "x"), "spend is not that of the task"),
]


@pytest.mark.parametrize(("body", "found"), [case[1:] for case in BODIES], ids=[case[0] for case in BODIES])
def test_a_forged_certificate_is_found(release: Release, tmp_path: Path, body: Any, found: str) -> None:
    assert found in forged(release, tmp_path / "forged", body=body)


def test_a_published_release_cannot_be_called_proved(tmp_path: Path) -> None:
    made = released("telemetry", telemetry={"as_published": True}, num=100)

    def proved(body: dict[str, Any]) -> None:
        body["basis"] = "proved"
        for key in ("why", "claim", "holds"):
            body.pop(key)

    assert forged(made, tmp_path / "proved", body=proved)
    less = {**made.certificate.plain()["holds"], "epsilon": 2}
    assert forged(made, tmp_path / "less", body=put("holds", less))


SLOT: dict[str, Any] = {"protects": "slot of reports", "neighbours": Neighbours.REPLACE_ONE}


def hold(guarantee: LocalDP | WithinCluster) -> Callable[[dict[str, Any]], None]:
    """State that something else holds, with the odds that follow from it."""

    def change(body: dict[str, Any]) -> None:
        promise = Promise(guarantee=guarantee, basis=Basis.CLAIMED, mechanism={}, holds=guarantee, why="it does")
        body.update(holds=guarantee.to_dict(), meaning=meaning(promise).plain())

    return change


PUBLISHED: list[tuple[str, Callable[[dict[str, Any]], None], str]] = [
    ("areas not in clear", lambda body: body["in_clear"].pop(), "in clear does not follow"),
    ("holds across areas", hold(LocalDP(epsilon=Fraction(12), **SLOT)), "what holds does not"),
    ("holds with less", hold(WithinCluster(epsilon=Fraction(4), clusters="areas", **SLOT)), "what holds does not"),
    ("holds in the whole city", put("holds", "clusters", "the whole city"), "what holds does not"),
    ("for no reason", put("why", "for no reason"), "why it is not proved does not"),
    ("claims less", put("claim", "epsilon 0.1"), "claim does not follow"),
    ("no claim", lambda body: body.pop("claim"), "claim does not follow"),
]


@pytest.fixture(scope="module")
def published() -> Release:
    return released("places", "paths", num=300, places={"as_published": True}, paths={"as_published": True})


@pytest.mark.parametrize(("body", "found"), [case[1:] for case in PUBLISHED], ids=[case[0] for case in PUBLISHED])
def test_a_forged_certificate_of_a_published_form_is_found(
    published: Release, tmp_path: Path, body: Any, found: str
) -> None:
    assert found in forged(published, tmp_path / "forged", body=body)


def test_a_published_form_is_not_called_proved_whatever_else_is_said(published: Release, tmp_path: Path) -> None:
    def proved(body: dict[str, Any]) -> None:
        body["basis"], body["mechanism"]["as_published"] = "proved", False
        for told in body["mechanism"]["purposes"].values():
            told["as_published"] = False
        for key in ("why", "claim", "holds"):
            body.pop(key)

    assert forged(published, tmp_path / "proved", body=proved)


def test_verify_says_what_holds_beside_what_is_claimed(published: Release, tmp_path: Path) -> None:
    told = "; ".join(verify(write_estimates(published, tmp_path / "areas")).checks)
    assert "without any bound across areas; within areas epsilon 12 at most, and not epsilon 4 as claimed" in told
    numbers = released("telemetry", telemetry={"as_published": True}, num=100)
    told = "; ".join(verify(write_estimates(numbers, tmp_path / "numbers")).checks)
    assert "gives away epsilon 6 at most, and not epsilon 2 as claimed" in told


def test_a_mean_without_width_is_spoken_of(release: Release, tmp_path: Path) -> None:
    assert "without any width" not in "; ".join(verify(write_estimates(release, tmp_path / "release")).checks)
    value = release.data.column("value").to_pylist()[0]
    changed = set_cell("upper", 0, value)(set_cell("lower", 0, value)(release.data))
    pointed = Release(certificate=release.certificate, data=changed)
    result = verify(write_estimates(pointed, tmp_path / "pointed"))
    assert result.ok, result.summary()
    assert "1 mean without any width" in "; ".join(result.checks)


def test_oracles_are_chosen_again_as_devices_do() -> None:
    for size in (2, 5, 17, 65, 101, 257, 677, 1025, 4097, 4098, 65537):
        for epsilon in ("0.000001", "0.1", "0.5", "1", "3/2", "2", "3", "5", "8", "20", "100"):
            expected = choose_oracle(size, Fraction(epsilon)).name
            assert report_laws._best(size, Fraction(epsilon)) == expected, (size, epsilon)


@pytest.mark.parametrize("num", [3, 300, 30_000])
@pytest.mark.parametrize("place", [{}, {"area_in_clear": True}, {"as_published": True}, {"method": "hadamard"}])
@pytest.mark.parametrize("path", [{}, {"area_in_clear": True}, {"as_published": True, "method": "qlp"}])
def test_maps_are_judged_again_as_before(num: int, place: dict[str, Any], path: dict[str, Any]) -> None:
    for levels in (3, 5):
        grid = Grid(box=GRID.box, levels=levels, area_levels=2)
        task = fleet_task("places", "paths", places=place, paths=path, grid=grid)
        for purpose, told in zip(task.purposes, task.to_dict()["purposes"], strict=True):
            verdict = mechanism_of(task, purpose).noise_verdict(num)
            epsilons = [tier.epsilon for tier in task.slot_tiers(purpose)]
            assert report_laws.verdict_fits(verdict.message, told, epsilons, num)
            assert not report_laws.verdict_fits(verdict.message, told, epsilons, num + 1)


def test_bins_must_be_those_of_the_domain(tmp_path: Path) -> None:
    made = released("telemetry", telemetry={"method": "square-wave"}, num=300)
    rows = made.data.column("quantity").to_pylist()
    first, quantile = rows.index("share"), rows.index("quantile 0.25")
    assert "not that of share" in forged(made, tmp_path / "edge", set_cell("bin_lower", first, 1.0))
    high = made.data.to_pylist()[quantile]["upper"]
    assert forged(made, tmp_path / "order", set_cell("value", quantile, high + 1))
