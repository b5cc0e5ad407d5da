# SPDX-License-Identifier: Apache-2.0
"""verify on releases of estimates: genuine ones pass, and forgeries with digests that fit are found."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.estimates_help import GRID, fleet_tallies, fleet_task, wave_release
from tests.oracles import report_laws

from dunnage.collecting.estimate import estimate, write_estimates
from dunnage.devices.client import mechanism_of
from dunnage.devices.places import choose_oracle
from dunnage.devices.task import Grid, Schedule
from dunnage.model.certificate import Certificate, meaning
from dunnage.model.guarantees import Basis, LocalDP, Neighbours, Promise, WithinCluster
from dunnage.release import Release
from dunnage.verification import verify

GENUINE: list[tuple[tuple[str, ...], dict[str, Any]]] = [
    ((), {}),
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
    content = release.certificate.plain()
    if body is not None:
        body(content)
    data = table(release.data) if table is not None else release.data
    folder.mkdir()
    Release(certificate=Certificate.model_validate(content), data=data).write_files(folder)
    result = verify(folder)
    assert not result.ok
    return "; ".join(result.problems)


FIRST_CELL, LAST_CELL, FIRST_PATH = 3, 19, 20


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


PUBLISHED: list[tuple[str, Callable[[dict[str, Any]], None]]] = [
    ("holds across areas", hold(LocalDP(epsilon=Fraction(12), **SLOT))),
    ("holds with less", hold(WithinCluster(epsilon=Fraction(4), clusters="areas", **SLOT))),
]


@pytest.fixture(scope="module")
def published() -> Release:
    return released("places", "paths", num=300, places={"as_published": True}, paths={"as_published": True})


@pytest.mark.parametrize("body", [case[1] for case in PUBLISHED], ids=[case[0] for case in PUBLISHED])
def test_a_forged_certificate_of_a_published_form_is_found(published: Release, tmp_path: Path, body: Any) -> None:
    assert forged(published, tmp_path / "forged", body=body)


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
    made = wave_release()
    assert verify(write_estimates(made, tmp_path / "genuine")).ok
    rows = made.data.column("quantity").to_pylist()
    first, quantile = rows.index("share"), rows.index("quantile 0.25")
    assert "not that of share" in forged(made, tmp_path / "edge", set_cell("bin_lower", first, 1.0))
    high = made.data.to_pylist()[quantile]["upper"]
    assert forged(made, tmp_path / "order", set_cell("value", quantile, high + 1))
