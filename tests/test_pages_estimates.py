# SPDX-License-Identifier: Apache-2.0
"""The page and the GeoJSON of estimates."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.commands import run
from tests.pages_help import check_closed

import dunnage as dn
from dunnage.showing.estimates import estimates_page, geojson, has_maps


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Estimates of places and paths of 300 vehicles, as the commands make them."""
    folder, before = tmp_path_factory.mktemp("places"), Path.cwd()
    os.chdir(folder)
    try:
        for line in (
            "generate positions -o pos.csv --size 300 --seed 1",
            "device task pos.toml -o task.json",
            "device simulate pos.csv --task task.json -o reports.bin",
            "estimate reports.bin --task task.json -o est --allow-noise",
        ):
            assert run(line).code == 0
    finally:
        os.chdir(before)
    return folder


def test_the_page_shows_every_cell_and_hatches_noise(places: Path) -> None:
    release = dn.Release.read(places / "est")
    text = (places / "est.html").read_text()
    assert text == estimates_page(release)
    page = check_closed(text)
    lines = [row for row in release.data.to_pylist() if row.get("lon") is not None]
    noise = [row for row in lines if row["lower"] <= 0]
    assert noise  # 300 vehicles are few
    assert len([None for _, attrs in page.tags if attrs.get("class") == "still-noise"]) == len(noise)
    assert f"{len(noise):,} of {len(lines):,} cells" in page.text
    assert dn.verify(places / "est").ok  # page and cells lie beside the folder, not in it


def test_geojson_has_the_cells_of_the_table(places: Path) -> None:
    release = dn.Release.read(places / "est")
    assert has_maps(release)
    document = json.loads((places / "est.geojson").read_text())
    assert document == json.loads(geojson(release))
    lines = {row["cell"]: row for row in release.data.to_pylist() if row.get("lon") is not None}
    assert len(document["features"]) == len(lines)
    box = [float(end) for end in next(item for item in release.certificate.attributes if item.domain).domain["box"]]
    for feature in document["features"]:
        facts, (ring,) = feature["properties"], feature["geometry"]["coordinates"]
        row = lines[facts["cell"]]
        assert (facts["value"], facts["still_noise"]) == (row["value"], row["lower"] <= 0)
        assert ring[0] == ring[-1]
        middle = [sum(corner[axis] for corner in ring[:4]) / 4 for axis in (0, 1)]
        assert middle == pytest.approx([row["lon"], row["lat"]])
        assert all(box[0] - 1e-6 <= x <= box[2] + 1e-6 and box[1] - 1e-6 <= y <= box[3] + 1e-6 for x, y in ring)


def test_existing_pages_are_refused_before_anything_is_read(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(places)
    Path("more.html").write_text("mine")
    run("estimate reports.bin --task task.json -o more --allow-noise").refused("more.html")
    assert Path("more.html").read_text() == "mine"
    assert not Path("more").exists()
