# SPDX-License-Identifier: Apache-2.0
"""Releases of estimates as whoever receives them sees them: tables, certificate, README, show, and what is refused."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pytest
from tests.estimates_help import GRID, fleet_tallies, fleet_task, wave_release

from dunnage.collecting.estimate import estimate, write_estimates
from dunnage.devices.task import Limits, Schedule, Task
from dunnage.errors import OutputError, ParameterError
from dunnage.model.certificate import canonical
from dunnage.model.guarantees import LocalDP, MetricLocalDP, WithinCluster
from dunnage.release import Release, describe_release
from dunnage.showing import release_text, task_text


def released(*names: str, num: int = 3000, **parameters: Any) -> Release:
    """Estimate a fleet."""
    task = fleet_task(*names, **parameters)
    return estimate(fleet_tallies(task, num), task, allow_noise=True)


@cache
def whole() -> Release:
    """Estimates of all three purposes; never changed."""
    return released()


def test_estimates_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    release = whole()
    folder = write_estimates(release, tmp_path / "release")
    back = Release.read(folder)
    assert back.kind == "estimates"
    assert back.data.equals(release.data)
    files = ["README.md", "certificate.json", "data.csv", "data.parquet", "datapackage.json"]
    assert sorted(path.name for path in folder.iterdir()) == files
    assert pacsv.read_csv(folder / "data.csv").num_rows == len(release)
    assert back.classes is back.members is None
    assert not back.noisy
    with pytest.raises(ParameterError, match="released rows"):
        back.check_rows("pack")
    with pytest.raises(OutputError, match="exists already"):
        write_estimates(release, folder)
    assert write_estimates(release, folder, force=True) == folder


def test_columns_are_those_that_the_task_needs() -> None:
    ends = ["value", "lower", "upper", "unit"]
    assert released("telemetry", num=300).data.column_names == ["quantity", "purpose", "attribute", *ends]
    assert released("places", num=300).data.column_names == ["quantity", "purpose", "cell", "lon", "lat", *ends]
    assert released("paths", num=300).data.column_names == ["quantity", "purpose", "path", *ends]
    assert wave_release().data.column_names == ["quantity", "purpose", "attribute", "bin_lower", "bin_upper", *ends]
    kinds = {item.name: item.type for item in whole().data.schema}
    assert kinds["cell"] == pa.int64()
    assert kinds["value"] == pa.float64()


def test_lines_are_near_the_truth() -> None:
    lines = whole().data.to_pylist()
    speed, load, present = lines[:3]
    assert (speed["quantity"], speed["attribute"], speed["unit"]) == ("mean", "speed", "km/h")
    assert (load["attribute"], load["unit"]) == ("load", "t")
    assert (present["quantity"], present["attribute"], present["unit"]) == ("present", "load", "")
    assert speed["value"] == pytest.approx(55, abs=25)
    assert present["value"] == pytest.approx(0.8, abs=0.25)
    cells = [line for line in lines if line["purpose"] == "places"]
    assert [line["cell"] for line in cells] == list(range(17))
    assert (cells[0]["lon"], cells[0]["lat"]) == GRID.centre(0)
    assert cells[16]["lon"] is None  # outside or missing


def test_a_distribution_has_bins_and_quantiles() -> None:
    lines = wave_release().data.to_pylist()
    speeds = [line for line in lines if line["attribute"] == "speed"]
    bins = [line for line in speeds if line["quantity"] == "share"]
    assert len(bins) == 16
    assert (bins[0]["bin_lower"], bins[-1]["bin_upper"]) == (0.0, 120.0)
    assert math.isclose(sum(line["value"] for line in bins), 1)
    quantiles = [line["value"] for line in speeds if line["quantity"].startswith("quantile")]
    assert quantiles == sorted(quantiles)


def test_the_guarantee_is_that_of_a_slot() -> None:
    body = whole().certificate.plain()
    assert body["guarantee"]["epsilon"] == 6
    assert body["guarantee"]["protects"] == "slot of reports"
    loss = body["measures"]["loss"]
    assert loss["tiers"]["strict"] == {
        "reports": {"telemetry": 1, "places": 1, "paths": 1},
        "slot": 3,
        "day": 6,
    }
    assert loss["lifetime"] == 5000
    assert body["composition"]["total_per_period"] == {"epsilon": 12, "delta": 0}
    assert body["composition"]["total"] == {"epsilon": 5000, "delta": 0}
    assert "slot of reports" in body["meaning"]["sentences"][0]
    assert {"public tiers", "every slot reports", "network not covered", "random slots"} <= body["assumptions"].keys()
    assert body["spend"]["id"].endswith(body["measures"]["task_digest"])


@pytest.mark.parametrize(
    ("names", "parameters", "kind", "epsilon"),
    [
        (("places",), {"places": {"area_in_clear": True}}, WithinCluster, 2),
        (("telemetry", "places"), {"places": {"area_in_clear": True}}, WithinCluster, 4),
        (("places",), {"places": {"method": "planar"}}, MetricLocalDP, 2),
        (("telemetry",), {}, LocalDP, 2),
    ],
)
def test_what_is_proved_where_places_are_special(
    names: tuple[str, ...], parameters: dict[str, Any], kind: type, epsilon: int
) -> None:
    certificate = released(*names, num=800, **parameters).certificate
    assert type(certificate.guarantee) is kind
    assert getattr(certificate.guarantee, "epsilon", None) == epsilon
    assert certificate.basis == "proved"
    if kind is not LocalDP:
        assert certificate.plain()["composition"]["total"] == "none"


@pytest.mark.parametrize(
    ("names", "parameters", "kind", "holds"),
    [
        (("telemetry",), {"telemetry": {"as_published": True}}, "local-dp", 6),
        (("telemetry", "places"), {"telemetry": {"as_published": True}}, "local-dp", 8),
        (("places",), {"places": {"as_published": True}}, "within-cluster", 4),
        (("telemetry", "paths"), {"paths": {"as_published": True}}, "within-cluster", 10),
    ],
)
def test_published_forms_are_claimed(names: tuple[str, ...], parameters: dict[str, Any], kind: str, holds: int) -> None:
    body = released(*names, num=500, **parameters).certificate.plain()
    assert body["basis"] == "claimed"
    assert body["guarantee"]["epsilon"] == 2 * len(names)
    assert (body["holds"]["model"], body["holds"]["epsilon"]) == (kind, holds)
    assert body["claim"]
    assert body["why"]


def test_seeded_reports_are_void() -> None:
    task = fleet_task("telemetry")
    release = estimate(fleet_tallies(task, 50), task, void="the noise was seeded")
    assert release.certificate.basis == "void"
    assert release.certificate.plain()["meaning"]["sentences"] == ["Nothing is promised: the noise was seeded."]
    assert release.certificate.plain()["composition"]["total"] == "none"


def test_a_window_divides_epsilon_among_its_slots() -> None:
    release = released("telemetry", schedule=Schedule(slots_per_day=4, window=2), num=100)
    assert release.certificate.plain()["guarantee"]["epsilon"] == 1
    assert release.certificate.plain()["measures"]["loss"]["tiers"]["basic"]["day"] == 4


def test_how_tiers_were_put_together_is_said() -> None:
    task = fleet_task("telemetry")
    tallies = fleet_tallies(task)
    for rule, assumed in (("auto", "values weigh tiers"), ("precision", "tiers independent"), ("stratify", "")):
        body = estimate(tallies, task, combine=rule).certificate.plain()
        rules = {item["rule"] for item in body["measures"]["combined"]["telemetry"].values()}
        named = " ".join(body["assumptions"])
        assert rule == "stratify" or (assumed in named) == ("precision" in rules)
        assert body["mechanism"]["combine"] == rule
        assert rule != "stratify" or rules == {"stratify"}


def test_readme_and_datapackage_describe_the_table(tmp_path: Path) -> None:
    folder = write_estimates(whole(), tmp_path / "release")
    readme = (folder / "README.md").read_text(encoding="utf-8")
    for words in (
        "tier basic 3,000",
        "a missing value is left out of the mean",
        "gives away at most epsilon 6 a slot",
        "12 a day; 5000 in its lifetime",
        "4 columns by 4 rows",
        "holds the truth with 95 %",
    ):
        assert words in readme
    fields = json.loads((folder / "datapackage.json").read_text())["resources"][0]["schema"]["fields"]
    assert {item["name"]: item["type"] for item in fields}["cell"] == "integer"
    assert all(item["description"] for item in fields)


def test_show_tells_estimates() -> None:
    text = release_text(whole())
    for words in ("telemetry: mean", "speed", "km/h", "cell 16, outside or missing", "the largest 24 of 101", "Loss"):
        assert words in text
    assert describe_release(released("telemetry", num=100))["kind"] == "estimates"


def test_a_task_is_told_with_what_it_would_find() -> None:
    task = fleet_task()
    text = task_text(task, 5000)
    said = ["Predicted for 5,000 vehicles", "together", "speed", "km/h", "bytes of payload", "one report of places"]
    for words in (*said, "one slot", "epsilon 6", "a lifetime", "becomes at most", "lasts for", task.digest):
        assert words in text
    assert "Predicted" not in task_text(task)


def test_a_map_that_would_be_noise_is_told_beforehand() -> None:
    task = fleet_task("places")
    few = Task(dataset="fleet", purposes=task.purposes, schedule=Schedule(), limits=Limits(lifetime=Fraction(100)))
    assert "NOISE: 12 vehicles at epsilon 2, 1: use " in task_text(few, 12)
    unbounded = fleet_task("places", places={"area_in_clear": True})
    assert "no bound" in task_text(unbounded, 5000)


def test_the_certificate_holds_the_task() -> None:
    task = fleet_task("places")
    body = estimate(fleet_tallies(task, 1000), task).certificate.plain()
    assert Task.from_json(json.dumps(body["measures"]["task"])).digest == task.digest
    assert json.loads(canonical(body)) == json.loads(json.dumps(body))
