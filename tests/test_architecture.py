# SPDX-License-Identifier: Apache-2.0
"""The shape of the code: import contracts that bite, one public namespace, cheap imports, no stray randomness."""

from __future__ import annotations

import ast
import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace

import grimp
import pytest
from importlinter.application import use_cases
from importlinter.application.app_config import settings
from importlinter.configuration import configure

import dunnage
from dunnage.devices import task
from dunnage.mechanisms import MECHANISMS

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "dunnage"
MODULES = sorted(module.name for module in pkgutil.walk_packages([str(SOURCE)], "dunnage."))
FILES = sorted(SOURCE.rglob("*.py"))


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    """Who imports whom, read once from the source."""
    return grimp.build_graph(
        "dunnage", include_external_packages=True, exclude_type_checking_imports=True, cache_dir=None
    )


def broken(graph: grimp.ImportGraph, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Check the contracts of pyproject.toml on a graph, as lint-imports does; returns the names of those not kept."""
    found = []
    configure()
    monkeypatch.setattr(settings, "GRAPH_BUILDER", SimpleNamespace(build=lambda **_: graph))
    monkeypatch.setattr(use_cases, "render_report", lambda report: found.append(report))
    monkeypatch.setattr(use_cases, "render_exception", lambda problem: found.append(problem))
    kept = use_cases.lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_logo=True)
    names = [contract.name for contract, check in found[0].get_contracts_and_checks() if not check.kept]
    assert kept == (not names)
    return names


def test_contracts_are_kept(graph, monkeypatch):
    """The same contracts that ``make check`` reads: here so that the tests alone also find what breaks them."""
    assert broken(graph, monkeypatch) == []


def test_a_broken_contract_is_found(graph, monkeypatch):
    for module, imported, contract in (
        ("dunnage.planning", "dunnage.tables.dataset", "Planners see releases"),
        ("dunnage.release", "dunnage.model.policy", "Planners see releases"),
        ("dunnage.model.guarantees", "dunnage.release", "Top imports lower"),
        ("dunnage.mechanisms.partition", "dunnage.publishing", "Top imports lower"),
        ("dunnage.mechanisms.partition", "dunnage.planning", "Top imports lower"),
        ("dunnage.noise.source", "numpy", "What a device carries"),
    ):
        assert {module, imported} <= graph.modules
        worse = deepcopy(graph)
        worse.add_import(importer=module, imported=imported)
        assert [name for name in broken(worse, monkeypatch) if name.startswith(contract)], (module, imported)
    worse = deepcopy(graph)
    worse.add_module("dunnage.helpers")  # which has no place
    (name,) = broken(worse, monkeypatch)
    assert name.startswith("Top imports lower")


def test_public_names_can_be_loaded_and_agree_with_their_modules():
    for name, module in dunnage._MODULE_OF.items():
        assert getattr(dunnage, name) is getattr(importlib.import_module(f"dunnage.{module}"), name)
    assert set(dunnage.__all__) == set(dir(dunnage))
    with pytest.raises(AttributeError):
        dunnage.no_such_name  # noqa: B018
    tree = ast.parse((SOURCE / "__init__.py").read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]  # what type checkers see
    shown = [(node.module, alias.name) for node in block.body for alias in getattr(node, "names", ())]
    assert {(module.removeprefix("dunnage."), name) for module, name in shown} == {
        (module, name) for name, module in dunnage._MODULE_OF.items()
    }


def test_imports_and_help_are_cheap():
    """``dunnage --help`` takes 0.5 CPU-seconds because of what it leaves out, which a busy machine does not change."""
    heavy = {"numpy", "pyarrow", "numba", "scipy", "pydantic", "jinja2", "cryptography", "ortools"}
    code = (
        f"import sys, dunnage; assert not {heavy | {'typer'}} & set(sys.modules)\n"
        "import dunnage.cli; sys.argv = ['dunnage', '--help']\n"
        "try: dunnage.cli.main()\n"
        "except SystemExit as end: assert not end.code\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Usage:" in result.stdout
    loaded = set(result.stderr.split())
    assert not loaded & heavy
    assert len({name for name in loaded if name.startswith("dunnage")}) < 40


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings(module):
    result = doctest.testmod(importlib.import_module(module))
    assert result.failed == 0


def test_functions_are_as_long_as_their_thought():
    sizes = []
    for path in FILES:
        blocks: list[ast.AST] = [ast.parse(path.read_text())]
        while blocks:  # expressions hold no functions
            block = blocks.pop()
            blocks += [node for node in ast.iter_child_nodes(block) if isinstance(node, ast.stmt | ast.excepthandler)]
            if isinstance(block, ast.FunctionDef):
                sizes.append(block.end_lineno - block.lineno + 1)
    sizes.sort()
    assert len(sizes) > 1000
    assert sizes[int(0.9 * len(sizes))] <= 60
    assert sizes[-1] <= 190


def test_no_mechanism_is_known_by_name():
    """Others ask the mechanism. Only what writes policies for people to start from spells a name out."""
    module_of = {name: kind.__module__ for name, kind in {**MECHANISMS, **task.MECHANISMS}.items()}
    assert {"partition", "noisy-counts", "local-numeric"} <= module_of.keys()
    spelled = re.compile(f"""["'](?:{"|".join(module_of)})["']""")
    places = []
    for path in FILES:
        place = path.relative_to(SOURCE)
        module = ".".join(("dunnage", *place.with_suffix("").parts))
        if place.parts[0] == "samples" or place.as_posix() == "model/draft.py" or not spelled.search(path.read_text()):
            continue
        texts = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)]
        places += [f"{place}:{text.lineno}" for text in texts if module_of.get(text.value, module) != module]
    assert places == []


def test_the_source_is_typed_and_does_not_grow():
    """It is to become 52,000 lines: lower this with every step."""
    texts = {path: path.read_text() for path in FILES}
    assert [str(path) for path, text in texts.items() if path.name != "documents.py" and "body[" in text] == []
    assert sum(len(re.findall(r"\b(?:dict|Mapping)\[str, Any\]", text)) for text in texts.values()) <= 60
    assert sum(len(text.splitlines()) for text in texts.values()) <= 93_600


def test_privacy_randomness_comes_from_noise_alone():
    """Illustrations, ties and start times of trips alone are drawn elsewhere.

    ``samples`` makes illustrations; ``bins`` and ``spreading`` break ties in searches on bare or released numbers;
    ``demand`` chooses the seconds at which released trips begin. Whoever gives ``bins`` or ``demand`` private numbers
    draws the seed from noise. ``secrets`` makes names of files and spends.
    """
    allowed = {"bins", "samples"}
    for path in FILES:
        text = path.read_text()
        if path.name not in ("source.py", "demand.py", "spreading.py") and path.parent.name not in allowed:
            assert not re.search(r"^\s*(import|from) random\b|np\.random|numpy\.random|os\.urandom", text, re.M), path


def test_one_logger_and_no_prints():
    for path in FILES:
        text = path.read_text()
        assert not re.search(r"^\s*print\(", text, re.M), path
        assert set(re.findall(r"getLogger\(([^)]*)\)", text)) <= {'"dunnage"'}, path


def test_mechanisms_are_listed_by_their_own_names():
    from dunnage.mechanisms import MECHANISMS

    assert [name for name, kind in MECHANISMS.items() if kind.name != name] == []
