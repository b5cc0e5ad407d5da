# SPDX-License-Identifier: Apache-2.0
"""The shape of the code: import contracts that bite, one public namespace, cheap imports, no stray randomness."""

from __future__ import annotations

import ast
import doctest
import importlib
import pkgutil
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import dunnage

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "dunnage"
MODULES = sorted(module.name for module in pkgutil.walk_packages([str(SOURCE)], "dunnage."))


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    environment = {"PYTHONPATH": str(folder / "src"), "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_contracts_are_kept(copy):
    result = lint_imports(copy)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("planning/__init__.py", "import dunnage.dataset", "Planners see releases"),
        ("planning/__init__.py", "import dunnage.io", "Planners see releases"),
        ("release.py", "from dunnage.policy import Policy", "Planners see releases"),
        ("guarantees.py", "from dunnage.certificate import odds", "Top imports lower"),
        ("mechanisms/partition.py", "from dunnage.publishing import publish", "Top imports lower"),
        ("mechanisms/partition.py", "import dunnage.planning", "Top imports lower"),
        ("noise.py", "import numpy", "What a device carries"),
    ],
)
def test_a_broken_contract_is_found(copy, module, line, contract):
    path = copy / "src" / "dunnage" / module
    path.write_text(path.read_text() + f"\n{line}\n")
    result = lint_imports(copy)
    assert result.returncode == 1
    assert re.search(rf"{contract}.*BROKEN", result.stdout), result.stdout


def test_a_module_without_a_place_is_found(copy):
    (copy / "src" / "dunnage" / "helpers.py").write_text('"""No place in the layers."""\n')
    assert lint_imports(copy).returncode == 1


def test_public_names_can_be_loaded_and_agree_with_their_modules():
    for name, module in dunnage._MODULE_OF.items():
        assert getattr(dunnage, name) is getattr(importlib.import_module(f"dunnage.{module}"), name)
    assert set(dunnage.__all__) == set(dir(dunnage))
    with pytest.raises(AttributeError):
        dunnage.no_such_name  # noqa: B018


def test_public_names_agree_with_those_shown_to_type_checkers():
    tree = ast.parse((SOURCE / "__init__.py").read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    shown = {
        (node.module.removeprefix("dunnage."), alias.name)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert shown == {(module, name) for name, module in dunnage._MODULE_OF.items()}


def test_import_is_cheap():
    heavy = ("numpy", "pyarrow", "numba", "pydantic", "typer")
    code = f"import sys, dunnage; print([m for m in {heavy} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_help_is_quick():
    """Goal: 0.3 CPU-seconds. The test allows for a busy machine and still finds an import of pyarrow or numba."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "dunnage", "--help"], capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1.0
    heavy = ("numpy", "pyarrow", "numba", "pydantic", "rich.console")
    code = f"import sys, dunnage.cli; print([m for m in {heavy} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings(module):
    result = doctest.testmod(importlib.import_module(module))
    assert result.failed == 0


def functions() -> list[tuple[str, ast.FunctionDef]]:
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                found.append((f"{path.relative_to(SOURCE)}:{node.name}", node))
    return found


def test_functions_are_short():
    sizes = sorted(node.end_lineno - node.lineno + 1 for _, node in functions())
    assert sizes[len(sizes) // 2] < 12
    assert sizes[int(0.9 * len(sizes))] < 50
    assert sizes[-1] < 120


def test_privacy_randomness_comes_from_noise_alone():
    """``samples`` draws illustrations, ``bins`` breaks ties in searches on bare numbers; nothing else may draw.

    Only ``demand`` also draws, on released counts: the seconds at which trips begin.

    Whoever gives ``bins`` or ``demand`` private numbers draws the seed from noise.

    ``secrets`` makes names of files and spends.
    """
    allowed = {"bins", "samples"}
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text()
        if path.name not in ("noise.py", "demand.py") and path.parent.name not in allowed:
            assert not re.search(r"^\s*(import|from) random\b|np\.random|numpy\.random|os\.urandom", text, re.M), path


def test_one_logger_and_no_prints():
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text()
        assert not re.search(r"^\s*print\(", text, re.M), path
        assert set(re.findall(r"getLogger\(([^)]*)\)", text)) <= {'"dunnage"'}, path
