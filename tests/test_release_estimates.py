# SPDX-License-Identifier: Apache-2.0
"""Releases of estimates: tables, certificate, README and show; verify passes genuine ones and finds forgeries."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from functools import cache

import pyarrow as pa
import pyarrow.csv as pacsv
import pytest
from tests.estimates_help import GRID, fleet_tallies, fleet_task, wave_release

from dunnage.collecting.estimate import estimate, write_estimates
from dunnage.devices.task import Grid, Schedule, Task
from dunnage.errors import OutputError, ParameterError
from dunnage.model.certificate import Certificate, canonical, meaning
from dunnage.model.guarantees import Basis, LocalDP, Neighbours, Promise, WithinCluster
from dunnage.release import Release
from dunnage.verification import verify


def released(*names, num=1000, **parameters):
    """Estimate a fleet."""
    task = fleet_task(*names, **parameters)
    return estimate(fleet_tallies(task, num), task, allow_noise=True)


@cache
def whole():
    """Estimates of all three purposes; never changed."""
    return released(num=3000)


def test_estimates_are_read_back_as_they_were_written(tmp_path):
    release = whole()
    folder = write_estimates(release, tmp_path / "release")
    back = Release.read(folder)
    assert (back.kind, back.noisy, back.classes, back.members) == ("estimates", False, None, None)
    assert back.data.equals(release.data)
    files = [
        "README.md",
        "certificate.html",
        "certificate.json",
        "data.csv",
        "data.parquet",
        "datapackage.json",
        "verify.html",
    ]
    assert sorted(path.name for path in folder.iterdir()) == files
    assert pacsv.read_csv(folder / "data.csv").num_rows == len(release)
    fields = json.loads((folder / "datapackage.json").read_text())["resources"][0]["schema"]["fields"]
    assert {item["name"]: item["type"] for item in fields}["cell"] == "integer"
    assert all(item["description"] for item in fields)
    readme = (folder / "README.md").read_text(encoding="utf-8")
    assert all(fact in readme for fact in ("3,000", "epsilon 6", "95 %"))  # reports of a tier, loss, confidence
    with pytest.raises(ParameterError):
        back.check_rows("pack")
    with pytest.raises(OutputError):
        write_estimates(release, folder)
    assert write_estimates(release, folder, force=True) == folder


def test_columns_are_those_that_the_task_needs():
    for release, columns in [
        (released("telemetry", num=300), ["attribute"]),
        (released("places", num=300), ["cell", "lon", "lat"]),
        (released("paths", num=300), ["path"]),
        (wave_release(), ["attribute", "bin_lower", "bin_upper"]),
    ]:
        expected = ["quantity", "purpose", *columns, "value", "lower", "upper", "unit"]
        assert release.data.column_names == expected
    kinds = {item.name: item.type for item in whole().data.schema}
    assert (kinds["cell"], kinds["value"]) == (pa.int64(), pa.float64())


def test_lines_are_near_the_truth():
    lines = whole().data.to_pylist()
    told = [(line["quantity"], line["attribute"], line["unit"]) for line in lines[:3]]
    assert told == [("mean", "speed", "km/h"), ("mean", "load", "t"), ("present", "load", "")]
    assert lines[0]["value"] == pytest.approx(55, abs=25)
    assert lines[2]["value"] == pytest.approx(0.8, abs=0.25)
    cells = [line for line in lines if line["purpose"] == "places"]
    assert [line["cell"] for line in cells] == list(range(17))
    assert (cells[0]["lon"], cells[0]["lat"]) == GRID.centre(0)
    assert cells[16]["lon"] is None  # outside or missing
    speeds = [line for line in wave_release().data.to_pylist() if line["attribute"] == "speed"]
    bins = [line for line in speeds if line["quantity"] == "share"]
    assert (len(bins), bins[0]["bin_lower"], bins[-1]["bin_upper"]) == (8, 0.0, 120.0)
    assert math.isclose(sum(line["value"] for line in bins), 1)
    quantiles = [line["value"] for line in speeds if line["quantity"].startswith("quantile")]
    assert quantiles == sorted(quantiles)


def test_the_guarantee_is_that_of_a_slot():
    body = whole().certificate.plain()
    assert (body["guarantee"]["epsilon"], body["guarantee"]["protects"]) == (6, "slot of reports")
    loss = body["measures"]["loss"]
    reports = {"telemetry": 1, "places": 1, "paths": 1}
    assert loss["tiers"]["strict"] == {"reports": reports, "slot": 3, "day": 6}
    assert loss["lifetime"] == 5000
    assert body["composition"]["total_per_period"] == {"epsilon": 12, "delta": 0}
    assert body["composition"]["total"] == {"epsilon": 5000, "delta": 0}
    assert {"public tiers", "every slot reports", "network not covered", "random slots"} <= body["assumptions"].keys()
    assert body["spend"]["id"].endswith(body["measures"]["task_digest"])
    told = Task.from_json(json.dumps(body["measures"]["task"]))
    assert told.digest == fleet_task().digest == body["measures"]["task_digest"]
    assert json.loads(canonical(body)) == json.loads(json.dumps(body))
    body = released("telemetry", schedule=Schedule(slots_per_day=4, window=2), num=100).certificate.plain()
    assert body["guarantee"]["epsilon"] == 1  # a window divides epsilon among its slots
    assert body["measures"]["loss"]["tiers"]["basic"]["day"] == 4


PUBLISHED, CLEAR, PLANAR = {"as_published": True}, {"area_in_clear": True}, {"method": "planar"}


def test_what_is_proved_and_what_is_claimed():
    for names, parameters, model, epsilon in [
        ("places", {"places": CLEAR}, "within-cluster", 2),
        ("telemetry places", {"places": CLEAR}, "within-cluster", 4),
        ("places", {"places": PLANAR}, "metric-local-dp", 2),
        ("telemetry", {}, "local-dp", 2),
    ]:
        body = released(*names.split(), num=800, **parameters).certificate.plain()
        assert (body["guarantee"]["model"], body["guarantee"]["epsilon"], body["basis"]) == (model, epsilon, "proved")
        assert model == "local-dp" or body["composition"]["total"] == "none"
    for names, parameters, model, holds in [
        ("telemetry", {"telemetry": PUBLISHED}, "local-dp", 6),
        ("telemetry places", {"telemetry": PUBLISHED}, "local-dp", 8),
        ("places", {"places": PUBLISHED}, "within-cluster", 4),
        ("telemetry paths", {"paths": PUBLISHED}, "within-cluster", 10),
    ]:
        body = released(*names.split(), num=500, **parameters).certificate.plain()
        assert (body["basis"], body["guarantee"]["epsilon"]) == ("claimed", 2 * len(names.split()))
        assert (body["holds"]["model"], body["holds"]["epsilon"]) == (model, holds)
        assert body["claim"]
        assert body["why"]
    task = fleet_task("telemetry")
    void = estimate(fleet_tallies(task, 50), task, void="the noise was seeded").certificate
    assert (void.basis, void.plain()["composition"]["total"]) == ("void", "none")
    assert len(void.plain()["meaning"]["sentences"]) == 1


def test_how_tiers_were_put_together_is_said():
    task = fleet_task("telemetry")
    tallies = fleet_tallies(task)
    for rule, assumed in (("auto", "values weigh tiers"), ("precision", "tiers independent"), ("stratify", "")):
        body = estimate(tallies, task, combine=rule).certificate.plain()
        rules = {item["rule"] for item in body["measures"]["combined"]["telemetry"].values()}
        assert rule == "stratify" or (assumed in " ".join(body["assumptions"])) == ("precision" in rules)
        assert body["mechanism"]["combine"] == rule
        assert rule != "stratify" or rules == {"stratify"}


GENUINE = [
    ("", {}),
    ("telemetry", {"telemetry": {"method": "duchi"}}),
    ("telemetry", {"telemetry": PUBLISHED}),
    ("places", {"places": PLANAR}),
    ("telemetry places", {"places": PLANAR}),
    ("places", {"places": CLEAR}),
    ("telemetry places", {"places": PUBLISHED}),
    ("places", {"places": PUBLISHED}),
    ("paths", {"paths": PUBLISHED}),
    ("paths", {"paths": {**PUBLISHED, "method": "qlp"}}),
    ("paths", {"paths": {**PUBLISHED, "method": "qjlp"}}),
    ("paths", {"paths": CLEAR}),
    ("telemetry", {"schedule": Schedule(slots_per_day=4, window=3)}),
    ("telemetry", {"telemetry": {"method": "harmony"}}),
    ("telemetry", {"telemetry": {"method": "laplace", "sampled": 2}}),
    ("telemetry paths", {"telemetry": PUBLISHED, "paths": PUBLISHED}),
    ("places", {"places": {"method": "hadamard"}, "schedule": Schedule(window=2)}),
    ("places paths", {"places": CLEAR, "paths": {"hops": 2, "method": "symmetric-unary"}}),
    ("places paths", {"grid": Grid(box=GRID.box, levels=4, area_levels=1), "paths": CLEAR}),
]


def test_genuine_estimates_are_in_order(tmp_path):
    made = {f"{names} {parameters}": released(*names.split(), **parameters) for names, parameters in GENUINE}
    task, published = fleet_task("telemetry", "places"), fleet_task("places", places=PUBLISHED)
    made["few and silent"] = estimate(fleet_tallies(task, 2)[:1], task)
    for asked in (task, published):
        void = estimate(fleet_tallies(asked, 500), asked, void="seeded", allow_noise=True)
        made[f"void {len(asked.purposes)}"] = void
    made["distributions"] = wave_release()
    for at, (name, release) in enumerate(made.items()):
        folder = write_estimates(release, tmp_path / str(at))
        assert verify(folder).ok == (not name.startswith("void"))
        result = verify(folder, require="void")
        assert result.ok, (name, result.summary())
        assert result.not_checked


def with_cell(column, row, value, table):
    """Change one cell of a table."""
    values = table.column(column).to_pylist()
    values[row] = value
    at = table.column_names.index(column)
    return table.set_column(at, column, pa.array(values, table.schema.field(column).type))


def forged(release, folder, data=None, **changes):
    """Write a forgery whose digests fit, and return what verify finds; a change to None removes an entry."""
    body = {**release.certificate.plain(), **changes}
    body = {key: value for key, value in body.items() if value is not None}
    folder.mkdir()
    data = release.data if data is None else data
    Release(certificate=Certificate.model_validate(body), data=data).write_files(folder)
    result = verify(folder)
    assert not result.ok
    return result.problems


FIRST_CELL, LAST_CELL, FIRST_PATH = 3, 19, 20


def test_forged_tables_are_found(tmp_path):
    release, waves = whole(), wave_release()
    lines, last = release.data.to_pylist(), len(release.data) - 1
    widest = max(range(FIRST_CELL, LAST_CELL + 1), key=lambda row: lines[row]["upper"] - lines[row]["value"])
    rows = waves.data.column("quantity").to_pylist()
    first, quantile = rows.index("share"), rows.index("quantile 0.25")
    beyond = waves.data.to_pylist()[quantile]["upper"] + 1
    swapped = release.data
    for column in ("value", "lower", "upper"):
        for row, other in ((FIRST_PATH, last), (last, FIRST_PATH)):
            swapped = with_cell(column, row, lines[other][column], swapped)
    forged(release, tmp_path / "paths are in order", swapped)
    for name, made, column, row, value, word in [
        ("shares of places add up", release, "value", widest, lines[widest]["upper"], "places"),
        ("shares of paths add up", release, "value", FIRST_PATH, lines[FIRST_PATH]["upper"], "paths"),
        ("a path is listed once", release, "path", FIRST_PATH + 1, lines[FIRST_PATH]["path"], ""),
        ("bins are those of the domain", waves, "bin_lower", first, 1.0, "share"),
        ("a quantile is within its bounds", waves, "value", quantile, beyond, ""),
        ("a mean is within its interval", release, "value", 0, lines[0]["upper"] + 0.1, "speed"),
    ]:
        found = forged(made, tmp_path / name, with_cell(column, row, value, made.data))
        assert any(word in problem for problem in found), name
    # A mean without any width is no forgery, but is spoken of.
    value = lines[0]["value"]
    pointed = with_cell("upper", 0, value, with_cell("lower", 0, value, release.data))
    checks = []
    for data in (release.data, pointed):
        folder = tmp_path / str(len(checks))
        result = verify(write_estimates(Release(certificate=release.certificate, data=data), folder))
        assert result.ok, result.summary()
        checks.append(result.checks)
    assert checks[0] != checks[1]


def hold(guarantee):
    """State that something else holds, with the odds that follow from it."""
    promise = Promise(guarantee=guarantee, basis=Basis.CLAIMED, mechanism={}, holds=guarantee, why="it does")
    return {"holds": guarantee.to_dict(), "meaning": meaning(promise).plain()}


def test_forged_certificates_of_published_forms_are_found(tmp_path):
    slot = {"protects": "slot of reports", "neighbours": Neighbours.REPLACE_ONE}
    proved = {"basis": "proved", "why": None, "claim": None, "holds": None}
    numbers = released("telemetry", telemetry=PUBLISHED, num=100)
    published = released("places", "paths", num=300, places=PUBLISHED, paths=PUBLISHED)
    mechanism = published.certificate.plain()["mechanism"]
    purposes = {name: {**told, "as_published": False} for name, told in mechanism["purposes"].items()}
    denied = {"mechanism": {**mechanism, "as_published": False, "purposes": purposes}}
    forged(numbers, tmp_path / "called proved", **proved)
    forged(numbers, tmp_path / "holds for less", holds={**numbers.certificate.plain()["holds"], "epsilon": 2})
    forged(published, tmp_path / "called proved whatever else is said", **proved, **denied)
    forged(published, tmp_path / "holds across areas", **hold(LocalDP(epsilon=Fraction(12), **slot)))
    within = WithinCluster(epsilon=Fraction(4), clusters="areas", **slot)
    forged(published, tmp_path / "holds within areas for less", **hold(within))
    # What holds is said beside what is claimed.
    for made, holds, claimed in ((published, 12, 4), (numbers, 6, 2)):
        checks = verify(write_estimates(made, tmp_path / str(holds))).checks
        assert any(f"epsilon {holds}" in line and f"epsilon {claimed}" in line for line in checks)
