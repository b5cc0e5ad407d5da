# SPDX-License-Identifier: Apache-2.0
"""Install the lowest versions that ``pyproject.toml`` allows in a new environment, and use the commands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
# A line, and its exit code. The first ones ended otherwise with older versions of Typer.
SMOKE = (
    ("--version", 0),
    ("verify nothing", 2),
    ("publish --help", 0),
    ("publish a b c", 2),
    ("generate packages -o parcels.csv --size 60 --seed 1", 0),
    ("draft parcels.csv -o draft.toml", 0),
    ("publish parcels.csv --policy parcels.toml -o release", 0),
    ("publish parcels.csv --policy parcels.toml -o release", 2),
    ("verify release", 0),
    ("show release --json", 0),
    ("pack release --capacity 500kg -o plan --time-limit 1", 0),
    ("apply plan parcels.csv --policy parcels.toml --release release --repair -o settlement", 0),
    ("audit release parcels.csv --policy parcels.toml -o audit --time-limit 1", 0),
    ("generate city -o city --stops 32 --zones 2 --seed 1", 0),
    ("generate trips -o trips.csv --size 60 --city city --seed 1", 0),
    ("publish trips.csv --policy trips.toml -o counts --allow-noise", 0),
    ("verify counts", 0),
    ("generate telemetry -o telemetry.csv --size 20 --readings 3 --attributes 2 --seed 1", 0),
    ("device task telemetry.toml -o task.json", 0),
    ("device simulate telemetry.csv --task task.json --max-age 1440 -o reports.jsonl", 0),
    ("estimate reports.jsonl --task task.json --allow-noise -o estimates", 0),
    ("device keys fleet.keys", 0),
    ("budget show dunnage-ledger.sqlite", 0),
)


def floors() -> list[str]:
    """Return each dependency at its lowest version."""
    with (ROOT / "pyproject.toml").open("rb") as stream:
        dependencies = tomllib.load(stream)["project"]["dependencies"]
    return [re.sub(r"^([A-Za-z0-9-]+)>=([0-9.]+).*$", r"\1==\2.*", line) for line in dependencies]


def lowest(line: str) -> str:
    """Narrow "typer==0.16.*" to its first version: only the index knows whether that is 0.16, 0.16.0 or 0.16.1."""
    name, series = line.removesuffix(".*").split("==")
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "index", "versions", name, "--disable-pip-version-check"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    versions = re.search(r"Available versions: (.*)", listed)
    fitting = [v for v in (versions[1].split(", ") if versions else []) if f"{v}.".startswith(f"{series}.")]
    return f"{name}=={fitting[-1]}" if fitting else line


def smoke(command: list[str], folder: Path) -> list[str]:
    """Run the lines and return those that ended otherwise than they should."""
    wrong = []
    for line, code in SMOKE:
        done = subprocess.run([*command, *line.split()], cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode != code or (line == "verify nothing" and "nothing" not in done.stderr):
            wrong.append(f"{line}: exit {done.returncode}, not {code}\n{done.stdout[-500:]}{done.stderr[-1500:]}")
    return wrong


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        subprocess.run([sys.executable, "-m", "venv", f"{place}/venv"], check=True)
        python = f"{place}/venv/bin/python"
        pinned = [lowest(line) for line in floors()]
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(ROOT), *pinned]
        subprocess.run(install, check=True)
        folder = Path(place, "work")
        folder.mkdir()
        os.environ.pop("PYTHONPATH", None)
        wrong = smoke([python, "-m", "dunnage"], folder)
    sys.stdout.write("\n".join([f"floors: {', '.join(pinned)}", *(wrong or [f"{len(SMOKE)} commands work"])]) + "\n")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
