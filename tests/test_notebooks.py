# SPDX-License-Identifier: Apache-2.0
"""Notebooks: they run, and what is shown in them holds no private row."""

from __future__ import annotations

import ast
import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from tests.builders import CANARY, a_policy, parcels

import dunnage as dn
from dunnage.showing.notebooks import Drawing

NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs" / "notebooks").glob("*.ipynb"))
MAX_REPR = 120


def run_cell(source: str, names: dict[str, Any]) -> Any:
    """Run a cell, and return the value of its last expression as a kernel does."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with redirect_stdout(io.StringIO()):
        exec(compile(tree, "cell", "exec"), names)
        return None if last is None else eval(compile(ast.Expression(last.value), "cell", "eval"), names)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_something(path: Path) -> None:
    document = json.loads(path.read_text())
    names: dict[str, Any] = {"__name__": "__main__"}
    shown = []
    for cell in document["cells"]:
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)  # committed without results
            value = run_cell("".join(cell["source"]), names)
            text = getattr(value, "_repr_svg_", getattr(value, "_repr_html_", value.__repr__))()
            shown.append(text)
            is_frame = type(value).__name__ in ("DataFrame", "Series")
            assert is_frame or len(repr(value)) <= MAX_REPR
    assert any(text.startswith("<svg") for text in shown)
    assert any("<table" in text for text in shown)


@pytest.fixture(scope="module")
def story() -> dict[str, Any]:
    data = dn.Dataset.from_table(parcels(), a_policy({"name": "partition", "k": 3, "statistic": "multiset"}))
    release, key = dn.publish(data, ledger=":memory:")
    plan = dn.pack(release, capacity=250, by="destination", seconds=1)
    sealed = dn.pack(release, capacity=250, model=dn.Sealed(), by="destination", seconds=1)
    fleet = dn.FleetPlan(release="", zones=("a", "b"), shuttles=(3, 2))
    audit = dn.audit(release, data, plan, key=key, seconds=1)
    return {"data": data, "release": release, "plan": plan, "sealed": sealed, "fleet": fleet, "audit": audit}


@pytest.mark.parametrize("name", ["release", "plan", "sealed", "fleet", "audit"])
def test_summaries_and_pictures_stand_by_themselves(story: dict[str, Any], name: str, tmp_path: Path) -> None:
    thing = story[name]
    text = thing._repr_html_()
    ElementTree.fromstring(f"<div>{text.replace('<br>', '<br/>')}</div>")
    drawing = thing.plot()
    assert isinstance(drawing, Drawing)
    root = ElementTree.fromstring(drawing.save(tmp_path / "picture.svg").read_text())
    assert root.tag.endswith("svg")
    assert CANARY not in text + drawing.svg() + repr(thing)
    with pytest.raises(dn.UserError):
        drawing.save(tmp_path / "picture.png")


@pytest.mark.parametrize("name", ["release", "plan", "sealed", "fleet", "audit"])
def test_frames_hold_what_the_object_holds(story: dict[str, Any], name: str) -> None:
    thing = story[name]
    frames = [thing.to_polars(), thing.to_pandas()]
    assert [list(frame.columns) for frame in frames] == [thing.to_arrow().column_names] * 2
    lines = {"release": 24, "plan": 24, "fleet": 2, "audit": len(story["audit"].findings)}
    if name in lines:
        assert [len(frame) for frame in frames] == [lines[name]] * 2
    if name == "plan":
        assert frames[0]["bin"].to_list() == story["plan"].assignment.tolist()
    if name == "sealed":
        assert frames[0]["count"].sum() == 24


def test_representations_are_short(story: dict[str, Any]) -> None:
    data, release = story["data"], story["release"]
    promise = dn.promise(data)
    run = dn.rehearse(data, ledger=":memory:")
    things = [*story.values(), data.policy, data.schema, promise, run, release.certificate]
    assert [repr(thing) for thing in things if len(repr(thing)) > MAX_REPR or "\n" in repr(thing)] == []
    assert repr(promise) == "Promise(model k-anonymity, protects package, k 3; proved)"


def test_a_promise_takes_a_policy_its_data_or_its_file(story: dict[str, Any], tmp_path: Path) -> None:
    data = story["data"]
    file = tmp_path / "policy.toml"
    file.write_text(data.policy.to_toml())
    assert dn.promise(data) == dn.promise(data.policy)
    assert dn.promise(file).guarantee == dn.promise(data).guarantee
