"""The wheel for devices imports and perturbs in an empty environment, and vectors are reproduced without Dunnage."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tests.wire_vectors import vectors

from dunnage.devices.numbers import LocalNumeric
from dunnage.devices.places import LocalLocation

ROOT = Path(__file__).parents[1]
PERTURB = """
import sys
sys.path.insert(0, sys.argv[1])
import dunnage_device.backport as backport
backport.NEW = backport.NEW and sys.argv[2] == "new"
from dunnage_device.devices import allowance, client, sending, tokens
from dunnage_device.devices.numbers import LocalNumeric, Quantity
from dunnage_device.devices.paths import LocalTrajectory
from dunnage_device.devices.places import Grid, LocalLocation
from dunnage_device.devices.task import Task
from dunnage_device.noise.source import Noise

noise, grid, made = Noise(), Grid(box=("103.9", "30.5", "104.2", "30.8"), levels=3), 0
for method in LocalLocation.methods:
    mechanism = LocalLocation(grid=grid, epsilon="1", method=method)
    mechanism.read(mechanism.perturb((104.0, 30.6), tier="all", noise=noise), tier="all")
    made += 1
for method in LocalNumeric.methods:
    speed = Quantity(name="speed", low=0, high=120, steps=1 if method == "warner" else 64)
    mechanism = LocalNumeric(quantities=(speed,), epsilon="1", method=method)
    mechanism.read(mechanism.perturb({"speed": 63.5}, tier="all", noise=noise), tier="all")
    made += 1
paths = LocalTrajectory(grid=grid, epsilon="1", steps=2)
paths.read(paths.perturb([(104.0, 30.6), (104.0, 30.7)], tier="all", noise=noise), tier="all")
task = Task.from_json(open(sys.argv[3]).read())
assert not [name for name in sys.modules if name == "dunnage" or name.startswith(("dunnage.", "numpy", "pyarrow"))]
try:
    Grid(levels=3)
except TypeError:
    print(made, task.digest)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    for name in ("one", "two"):
        command = [sys.executable, ROOT / "device" / "build_wheel.py", "--outdir", out / name]
        subprocess.run(command, check=True, capture_output=True)
    (one,), (two,) = (list((out / name).glob("*.whl")) for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()
    return one


def test_it_is_for_python_3_9_without_dependencies(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = next(archive.read(name).decode() for name in names if name.endswith("METADATA"))
        for name in names:
            if name.endswith(".py"):
                tree = ast.parse(archive.read(name), feature_version=(3, 9))
                for node in ast.walk(tree):
                    base = node.module if isinstance(node, ast.ImportFrom) else None
                    base = node.names[0].name if isinstance(node, ast.Import) else base
                    known = base is None or base.split(".")[0] in {*sys.stdlib_module_names, "dunnage_device"}
                    assert known, (name, base)
                    assert base != "tomllib"
    assert "Requires-Python: >=3.9" in metadata
    assert "Requires-Dist" not in metadata
    assert not any(name.startswith("dunnage/") for name in names)


def test_it_perturbs_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    (tmp_path / "task.json").write_text(json.dumps(vectors()["task"]))
    num = len(LocalLocation.methods) + len(LocalNumeric.methods)
    others = [which for name in ("python3.9", "python3.10") if (which := shutil.which(name))]
    runs = [each for each in others if not subprocess.run([each, "-V"], capture_output=True, check=False).returncode]
    found = {sys.executable, *runs}
    for python in sorted(found):
        for form in ("new", "old"):  # also as if dataclasses had no kw_only
            command = [python, "-I", "-S", "-c", PERTURB, tmp_path / "site", form, tmp_path / "task.json"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            assert done.stdout.split() == [str(num), vectors()["digest"]]


def test_vectors_are_those_of_the_page_and_reproduced_without_dunnage() -> None:
    page = ROOT / "docs" / "wire-vectors.json"
    assert json.loads(page.read_text()) == json.loads(json.dumps(vectors()))
    command = [sys.executable, "-I", "-S", ROOT / "tests" / "wire_client.py", page]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "dunnage" not in {
        line.split()[1].split(".")[0]
        for line in (ROOT / "tests" / "wire_client.py").read_text().splitlines()
        if line.startswith(("import ", "from "))
    }
