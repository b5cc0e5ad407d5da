# SPDX-License-Identifier: Apache-2.0
"""What a build holds: the proofs that certificates name, and a bill of the versions that were tested."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import checksums
import pytest
from tests import floors
from tests.commands import run
from tests.fuzzing import OLD

from dunnage.mechanisms import MECHANISMS

ROOT = Path(__file__).parents[1]
PINNED = re.compile(r"(?m)^([a-z0-9-]+)==(\S+)")


def test_floors_are_those_that_work() -> None:
    """Typer 0.12 with a later Click printed the version and exited with 0, whatever the command; Arrow 15 crashed."""
    lowest = dict(line.split("==") for line in floors.floors())
    assert lowest["typer"] == "0.16.*"
    assert lowest["pyarrow"] == "16.*"
    assert all(re.fullmatch(r"[0-9.]+\.\*", version) for version in lowest.values())


def test_the_tested_set_is_pinned_with_digests_and_names_no_registry() -> None:
    text = (ROOT / "constraints.txt").read_text()
    pinned = dict(PINNED.findall(text))
    with (ROOT / "pyproject.toml").open("rb") as stream:
        project = tomllib.load(stream)["project"]
    extras = [project["optional-dependencies"][name] for name in ("solve", "excel", "serve", "postgres", "duckdb")]
    wanted = [re.split(r"[<>=\[]", line)[0].lower() for line in sum(extras, project["dependencies"])]
    assert set(wanted) <= set(pinned)
    assert text.count("--hash=sha256:") >= len(pinned)
    assert "://" not in text
    assert "--index" not in text


def test_the_bill_of_materials() -> None:
    pytest.importorskip("hatchling")
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = (ROOT / "constraints.txt").read_text()
    components = module.bill(text, "1")["components"]
    assert {item["name"]: item["version"] for item in components} == dict(PINNED.findall(text))
    assert all(item["hashes"] for item in components)


def test_checksums_are_signed_so_that_others_can_check_them(tmp_path: Path) -> None:
    (tmp_path / "a.whl").write_bytes(b"wheel")
    (tmp_path / "a.tar.gz").write_bytes(b"source")
    key, public = tmp_path / "key.pem", tmp_path / "key.pub.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", key], check=True)
    subprocess.run(["openssl", "pkey", "-in", key, "-pubout", "-out", public], check=True)
    checksums.main(str(tmp_path), str(key))
    subprocess.run(["sha256sum", "--check", "--quiet", "--strict", "SHA256SUMS"], cwd=tmp_path, check=True)
    check = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", public, "-rawin", "-sigfile", "SHA256SUMS.sig"]
    for expected in (0, 1):
        done = subprocess.run([*check, "-in", "SHA256SUMS"], cwd=tmp_path, capture_output=True, check=False)
        assert done.returncode == expected, done.stderr
        (tmp_path / "SHA256SUMS").write_bytes((tmp_path / "SHA256SUMS").read_bytes().replace(b"a.whl", b"b.whl"))
    checksums.main(str(tmp_path))
    assert not (tmp_path / "SHA256SUMS.sig").exists()


def test_the_proof_that_a_certificate_names_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # not where the source is
    named = {section for kind in MECHANISMS.values() for section in kind.proof}
    assert named
    for section in named:
        told = run("show", f"docs/proofs/{section}")
        assert told.code == 0
        assert told.out.strip() == (ROOT / "docs" / "proofs" / section.partition("#")[0]).read_text().strip()
    for other in ("docs/proofs/nothing.md", "docs/proofs/../index.md", "docs/partition.md", "docs/proofs"):
        run("show", other).refused("does not exist")


@pytest.mark.long
def test_the_wheel_in_an_empty_environment(tmp_path: Path) -> None:
    wheels = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)]
    subprocess.run(wheels, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        bill = json.loads(archive.read("dunnage/sbom.cdx.json"))
    assert bill["bomFormat"] == "CycloneDX"
    assert {f"dunnage/proofs/{path.name}" for path in (ROOT / "docs" / "proofs").glob("*.md")} <= names
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", wheel], check=True)
    alone = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    for line in (f"verify {OLD / 'partition'}", "show docs/proofs/partition.md#guarantee"):
        done = subprocess.run([python, "-m", "dunnage", *line.split()], cwd=tmp_path, env=alone, check=False)
        assert done.returncode == 0


@pytest.mark.long
def test_the_lowest_versions(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, ROOT / "tests" / "floors.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
