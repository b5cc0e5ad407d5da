# SPDX-License-Identifier: Apache-2.0
"""The documents are true: their Python runs, their commands run, their links lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
COMMAND = str(Path(sys.executable).with_name("dunnage"))
PAGES = ["README.md", "docs/index.md"]
LOADS = "docs/tutorials/loads.md"
RIDERS = "docs/tutorials/riders.md"
CARRIERS = "docs/tutorials/carriers.md"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def run(command: list[str], folder: Path) -> str:
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.parametrize("page", PAGES)
def test_python_examples_run(page, tmp_path):
    (code,) = blocks(page, "python")
    run([sys.executable, "-c", code], tmp_path)


def test_start_page_commands_run_in_order(tmp_path):
    lines = [line.split("  #")[0] for block in blocks("docs/index.md", "sh") for line in block.splitlines() if line]
    assert len(lines) >= 5
    for line in lines:
        run([COMMAND, *line.split()[1:]], tmp_path)
    assert (tmp_path / "release" / "certificate.json").exists()


def test_loads_tutorial_runs(tmp_path):
    """Every command in order, then the Python, in one folder."""
    for block in blocks(LOADS, "sh"):
        for line in block.splitlines():
            run([COMMAND, *line.split()[1:]], tmp_path)
    (code,) = blocks(LOADS, "python")
    lines = run([sys.executable, "-c", code], tmp_path).splitlines()
    assert [line.split()[0] for line in lines] == ["upper", "mean"]
    assert "1.0 of bins fit" in lines[0]
    for name in ("settlement", "settlement-mean"):
        assert (tmp_path / name / "loading.csv").stat().st_mode & 0o777 == 0o600


def test_riders_tutorial_runs(tmp_path):
    """Every command in order, then the Python; what is printed in the tutorial is printed by the commands."""
    (policy,) = blocks(RIDERS, "toml")
    (tmp_path / "riders.toml").write_text(policy)
    lines = [line for block in blocks(RIDERS, "sh") for line in block.splitlines()]
    printed = "".join(run([COMMAND, *line.split()[1:]], tmp_path) for line in lines)
    told = [line for block in blocks(RIDERS, "text") for line in block.splitlines()]
    assert len(told) >= 10
    assert [line for line in told if line not in printed] == []
    (code,) = blocks(RIDERS, "python")
    sums = {
        line.rsplit(" ", 1)[0]: int(line.split()[-1])
        for line in run([sys.executable, "-c", code], tmp_path).splitlines()
    }
    total = sums.pop("trips")
    assert abs(total - 4878) < 300
    assert sum(sums.values()) == total


def test_carriers_tutorial_runs(tmp_path):
    """Every command in order, then the Python; what is printed in the tutorial is printed by the commands."""
    (policy,) = blocks(CARRIERS, "toml")
    (tmp_path / "fleet.toml").write_text(policy)
    lines = [line for block in blocks(CARRIERS, "sh") for line in block.splitlines()]
    printed = "".join(run([COMMAND, *line.split()[1:]], tmp_path) for line in lines)
    told = [line for block in blocks(CARRIERS, "text") for line in block.splitlines()]
    assert len(told) >= 20
    assert [line for line in told if line not in printed] == []
    assert (tmp_path / "truck.jsonl").read_bytes() == (tmp_path / "again.jsonl").read_bytes()
    assert (tmp_path / "truck.allowance").stat().st_mode & 0o777 == 0o600
    (code,) = blocks(CARRIERS, "python")
    shares, *places = run([sys.executable, "-c", code], tmp_path).splitlines()
    assert shares == "shares 65 1.0"
    figures = [[float(figure) for figure in line.split()[1:]] for line in places]
    assert len(figures) == 5
    assert all(0 <= lower <= value <= upper <= 1 for value, lower, upper in figures)


def test_readme_commands_are_real():
    for block in blocks("README.md", "sh"):
        for line in block.splitlines():
            if line.startswith("dunnage"):
                assert "Example" in run([COMMAND, line.split()[1], "--help"], ROOT)


def test_readme_has_the_two_set_up_commands():
    first = blocks("README.md", "sh")[0]
    assert re.findall(r"^make \w+", first, re.M) == ["make demo", "make test"]


def test_policy_page_is_a_policy(tmp_path):
    from dunnage import Policy

    policy, trips, _carriers, read, period, budget = blocks("docs/policy.md", "toml")
    assert Policy.from_text(policy).mechanism["k"] == 5
    day = '[attributes.day]\nrole = "drop"\n'
    whole = Policy.from_text("\n".join([policy, day, read, period, budget]))
    assert whole.read_options.decimal == ","
    assert whole.period is not None
    assert whole.budget is not None
    counted = read_trips(trips, tmp_path)
    assert counted.schema.universe().days == ("weekday", "saturday", "sunday")
    assert counted.schema.contribution.max == 3


@pytest.mark.parametrize("number", range(3))
def test_count_mechanisms_of_the_policy_page(number, tmp_path):
    """Each text block with a mechanism that counts trips promises something under the policy of the page."""
    from dunnage.publishing import promise

    trips = blocks("docs/policy.md", "toml")[1]
    found = [block for block in blocks("docs/policy.md", "text") if re.search(r'^name = "\S+-counts"', block, re.M)]
    assert len(found) == 3
    policy = read_trips(trips[: trips.index("[mechanism]")] + found[number], tmp_path)
    assert promise(policy).guarantee.protects == "rider"


def read_trips(text, folder):
    """Read a policy of trips beside the files of a generated city."""
    from dunnage.policy import Policy
    from dunnage.samples import TripSetting, generate_trips

    generate_trips(TripSetting(size=1), folder / "trips.csv", seed=1)
    (folder / "policy.toml").write_text(text)
    return Policy.read(folder / "policy.toml")


def test_links_and_reference():
    run([sys.executable, "docs/check_docs.py"], ROOT)
