# SPDX-License-Identifier: Apache-2.0
"""The documents are true: their Python runs, their commands run, their links lead somewhere."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import importlib
import io
import itertools
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from pydantic import BaseModel
from tests.scenarios.harness import steady_entropy

import dunnage as dn

ROOT = Path(__file__).resolve().parents[1]
COMMAND = str(Path(sys.executable).with_name("dunnage"))
PAGES = ["README.md", "docs/index.md"]
LOADS = "docs/tutorials/loads.md"
RIDERS = "docs/tutorials/riders.md"
CARRIERS = "docs/tutorials/carriers.md"
OWN = "docs/tutorials/your-own-file.md"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def run(command: list[str], folder: Path) -> str:
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def execute(code: str, folder: Path) -> list[str]:
    """Run Python in this process, where all is imported, and return the lines that it prints."""
    with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()) as out:
        exec(code, {"__name__": "__main__"})
    return out.getvalue().splitlines()


def test_python_examples_run(tmp_path):
    for number, page in enumerate(PAGES):  # each begins with a ledger of its own
        (code,) = blocks(page, "python")
        (tmp_path / str(number)).mkdir()
        execute(code, tmp_path / str(number))


def test_start_page_commands_run_in_order(tmp_path, monkeypatch):
    lines = [line.split("  #")[0] for block in blocks("docs/index.md", "sh") for line in block.splitlines() if line]
    assert len(lines) >= 5
    run([COMMAND, *lines[0].split()[1:]], tmp_path)  # as it is installed
    monkeypatch.chdir(tmp_path)
    for line in lines[1:]:
        obey(line.split()[1:])
    assert (tmp_path / "release" / "certificate.json").exists()


HURRY = {"advise": ["--draws", "2", "--jobs", "1", "--max-cost", "1000%"], "prove": ["--jobs", "1"]}
"""What makes advice and proofs short, with a limit that few draws keep to; what is said in them is tested elsewhere."""


def commands(text: str) -> list[list[str]]:
    """The words of every command of a text, in order; advice from few draws, all in this process."""
    lines = "".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL)).splitlines()
    words = [shlex.split(line)[1:] for line in lines]
    return [[*line, *HURRY.get(line[0], [])] for line in words]


def obey(words: list[str]) -> None:
    """Run a command in this process, where all is imported, on steady bytes: nothing here may fail by chance."""
    from dunnage.cli import app

    with steady_entropy():
        assert app(words, standalone_mode=False) in (None, 0), words


@pytest.fixture
def _proved_elsewhere(monkeypatch):
    """Take the first verdict of every proof: tests of proofs make all of them."""
    from dunnage.proving import verdict as desk

    firsts = {name: lambda long, check=check: itertools.islice(check(long), 1) for name, check in desk.checks().items()}
    monkeypatch.setattr(desk, "checks", lambda: firsts)


def run_story(page: str, size: int, capsys: pytest.CaptureFixture[str]) -> str:
    """Run every command of a tutorial in order, advice on few records; returns what was printed."""
    found = commands((ROOT / page).read_text())
    assert {"advise", "audit", "prove"} <= {words[0] for words in found}
    for words in found:
        obey([*words, "--size", str(size)] if words[0] == "advise" else words)
    printed = capsys.readouterr().out
    # Few candidates on few records need not hold one that can be recommended; the command then says so.
    assert Path("frontier/policy.toml").exists() != ("No policy was written" in " ".join(printed.split()))
    return printed


@pytest.mark.usefixtures("_proved_elsewhere", "_few_candidates")
def test_loads_tutorial_runs(tmp_path, monkeypatch, capsys):
    """Every command in order, then the Python, in one folder."""
    monkeypatch.chdir(tmp_path)
    run_story(LOADS, 24, capsys)
    (code,) = blocks(LOADS, "python")
    lines = execute(code, tmp_path)
    assert [line.split()[0] for line in lines] == ["upper", "mean"]
    assert "1.0 of bins fit" in lines[0]
    for name in ("settlement", "settlement-mean"):
        assert (tmp_path / name / "loading.csv").stat().st_mode & 0o777 == 0o600


@pytest.mark.usefixtures("_proved_elsewhere", "_few_candidates")
def test_riders_tutorial_runs(tmp_path, monkeypatch, capsys):
    """Every command in order, then the Python; what is printed in the tutorial is printed by the commands."""
    (policy,) = blocks(RIDERS, "toml")
    (tmp_path / "riders.toml").write_text(policy)
    monkeypatch.chdir(tmp_path)
    printed = run_story(RIDERS, 100, capsys)
    told = [line for block in blocks(RIDERS, "text") for line in block.splitlines()]
    assert len(told) >= 10
    assert [line for line in told if line not in printed] == []
    (code,) = blocks(RIDERS, "python")
    sums = {line.rsplit(" ", 1)[0]: int(line.split()[-1]) for line in execute(code, tmp_path)}
    total = sums.pop("trips")
    assert abs(total - 4878) < 300
    assert sum(sums.values()) == total


@pytest.mark.usefixtures("_proved_elsewhere", "_few_candidates")
def test_carriers_tutorial_runs(tmp_path, monkeypatch, capsys):
    """Every command in order, then the Python; what is printed in the tutorial is printed by the commands."""
    (policy,) = blocks(CARRIERS, "toml")
    (tmp_path / "fleet.toml").write_text(policy)
    monkeypatch.chdir(tmp_path)
    printed = run_story(CARRIERS, 500, capsys)
    told = [line for block in blocks(CARRIERS, "text") for line in block.splitlines()]
    assert len(told) >= 20
    assert [line for line in told if line not in printed] == []
    assert (tmp_path / "truck.jsonl").read_bytes() == (tmp_path / "again.jsonl").read_bytes()
    assert (tmp_path / "truck.allowance").stat().st_mode & 0o777 == 0o600
    (code,) = blocks(CARRIERS, "python")
    shares, *places = execute(code, tmp_path)
    assert shares == "shares 65 1.0"
    figures = [[float(figure) for figure in line.split()[1:]] for line in places]
    assert len(figures) == 5
    assert all(0 <= lower <= value <= upper <= 1 for value, lower, upper in figures)


FILES = {"shipments": 0, "rides": 1, "trucks": 2}  # and in which part of the tutorial they are


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory):
    """A folder with the files of the newcomer's tutorial, and its policies as they are filled in there."""
    folder = tmp_path_factory.mktemp("newcomer")
    for code in blocks(OWN, "python"):
        execute(code.replace("range(80)", "range(30)").replace("range(1500)", "range(400)"), folder)
    (stops,) = blocks(OWN, "csv")
    (folder / "stops.csv").write_text(stops)
    return folder


@pytest.mark.parametrize("name", FILES)
def test_the_newcomers_policies_are_filled_in_drafts(name, newcomer):
    """What the tutorial has filled in is what a draft has, but for blanks; only k or epsilon may stay blank."""
    import tomllib

    from dunnage.tables.dataset import draft

    (filled,) = [tomllib.loads(text) for text in blocks(OWN, "toml") if f'dataset = "{name}"' in text]
    drafted = tomllib.loads(draft(newcomer / f"{name}.csv"))
    assert list(filled["attributes"]) == list(drafted["attributes"])
    assert set(filled) == set(drafted)
    assert filled.get("read") == drafted.get("read")
    for table in ("trip", "schedule"):
        assert {**drafted.get(table, {}), **filled.get(table, {})} == filled.get(table, {})
    for column, drafted_table in drafted["attributes"].items():
        for key in ("kind", "unit"):
            if filled["attributes"][column]["role"] == "quasi-identifier":
                assert filled["attributes"][column].get(key) == drafted_table.get(key)


@pytest.mark.usefixtures("_few_candidates")
@pytest.mark.parametrize("name", FILES)
def test_a_newcomer_gets_from_a_file_to_a_plan(name, newcomer, monkeypatch):
    """Every command of the tutorial that is about one of its files, in order; advice from few rows and draws."""
    monkeypatch.chdir(newcomer)
    (filled,) = [text for text in blocks(OWN, "toml") if f'dataset = "{name}"' in text]
    part = re.split(r"^## (?:Trips|Readings of devices|When something)", (ROOT / OWN).read_text(), flags=re.M)[
        FILES[name]
    ]
    for words in commands(part):
        obey(words)
        if words[0] == "draft":
            # Without a resolution nothing noisy is tried.
            Path(f"{name}.toml").write_text(filled.replace("resolution = 1\n", ""))
    made = {"shipments": ["settlement/loading.csv", "audit/audit.html"], "rides": ["counts/data.csv"]}
    for file in made.get(name, ["estimates/data.csv"]):
        assert Path(file).exists()


def test_readme_commands_are_real():
    from typer.testing import CliRunner

    from dunnage.cli import app

    lines = [line for block in blocks("README.md", "sh") for line in block.splitlines() if line.startswith("dunnage")]
    assert lines
    for command in {line.split()[1] for line in lines}:
        assert "Example" in CliRunner().invoke(app, [command, "--help"]).output


def test_readme_has_the_two_set_up_commands():
    first = blocks("README.md", "sh")[0]
    assert re.findall(r"^make \w+", first, re.M) == ["make demo", "make test"]


def test_policy_page_is_a_policy(tmp_path):
    from dunnage import Policy

    policy, trips, table, _carriers, read, period, loading, budget = blocks("docs/policy.md", "toml")
    assert Policy.from_text(policy).mechanism["k"] == 5
    more = "".join(f'[attributes.{name}]\nrole = "drop"\n' for name in ("day", "address", "door"))
    whole = Policy.from_text("\n".join([policy, more, read, period, loading, budget]))
    assert whole.read_options.decimal == ","
    assert whole.period is not None
    assert whole.loading.columns == ("address", "door")
    assert whole.budget is not None
    counted = read_trips(trips, tmp_path)
    assert counted.schema.universe().days == ("weekday", "saturday", "sunday")
    assert counted.schema.contribution.max == 3
    assert Policy.from_text(table).schema.universe().columns == ("depot", "weekday")


@pytest.mark.parametrize("number", range(5))
def test_count_mechanisms_of_the_policy_page(number, tmp_path):
    """Each text block with a mechanism that counts trips promises something under the policy of the page."""
    from dunnage.publishing import promise

    trips = blocks("docs/policy.md", "toml")[1]
    found = [block for block in blocks("docs/policy.md", "text") if re.search(r'^name = "\S+-counts"', block, re.M)]
    assert len(found) == 5
    policy = read_trips(trips[: trips.index("[mechanism]")] + found[number], tmp_path)
    assert promise(policy).guarantee.protects == "rider"


def read_trips(text, folder):
    """Read a policy of trips beside the files of a generated city."""
    from dunnage.model.policy import Policy
    from dunnage.samples import TripSetting, generate_trips

    generate_trips(TripSetting(size=1), folder / "trips.csv", seed=1)
    (folder / "policy.toml").write_text(text)
    return Policy.read(folder / "policy.toml")


def test_proof_notes_are_listed_and_say_where_they_are_checked():
    from dunnage.devices.task import MECHANISMS as ON_DEVICES
    from dunnage.mechanisms import MECHANISMS

    index = (ROOT / "docs/proofs/index.md").read_text()
    for name in (*MECHANISMS, *ON_DEVICES):
        assert f"`{name}`" in index
    for note in (ROOT / "docs/proofs").glob("*.md"):
        if note.name != "index.md":
            assert f"({note.name}" in index
            _, checked = note.read_text().split("\n## Checked\n")
            assert "**Tests**" in checked
            for file in re.findall(r"`(tests/[\w/.]+)`", checked):
                assert (ROOT / file).exists(), (note.name, file)


def test_every_page_is_on_the_site():
    nav = (ROOT / "mkdocs.yml").read_text()
    for page in (ROOT / "docs").rglob("*.md"):
        assert page.relative_to(ROOT / "docs").as_posix() in nav


def test_odds_on_the_page_are_those_of_certificates():
    from fractions import Fraction

    from dunnage.model.certificate import odds
    from dunnage.model.guarantees import Loss

    rows = re.findall(
        r"^\| ([\d.]+) \| ([\d.]+ %) \| ([\d.]+ %) \| ([\d.]+ %) \|$",
        (ROOT / "docs/k-and-epsilon.md").read_text(),
        re.M,
    )
    assert len(rows) >= 8
    for epsilon, *printed in rows:
        sentences = [row.sentence for row in odds(Loss(Fraction(epsilon)))]
        assert all(said.endswith(f"at most {bound}") for said, bound in zip(sentences, printed, strict=True))


BENT = re.compile(
    r"\b(mend(s|ed|ing)?|anew|dear(er|est)?|thereof|told|asked)\b|, say[,.)]|\bis none\.|\bleave \w+ away\b", re.I
)
"""Words of the left column of STYLE B8 that have no place in what people read."""


def sentences() -> Iterator[tuple[str, str]]:
    """Everything that people read, by file: documents, templates, texts as data, and strings of the source."""
    pages = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
    source = [path for root in ("src", "examples") for path in (ROOT / root).rglob("*")]
    texts = [path for path in source if path.suffix in (".html", ".toml", ".js", ".md", ".txt")]
    for path in [*pages, *(ROOT / "docs").rglob("*.md"), *texts]:
        text = re.sub(r"\{\{.*?\}\}|\{%.*?%\}", "", path.read_text(), flags=re.DOTALL)  # code in templates
        yield path.relative_to(ROOT).as_posix(), re.sub(r'^"?[\w ,()-]+"? = ', "", text, flags=re.M)  # keys of data
    for path in source:
        if path.suffix != ".py":
            continue
        if not BENT.search(re.sub(r'"\s+\w?"', "", path.read_text())):  # also where a string goes on in the next line
            continue  # parsing takes much longer
        tree = ast.parse(path.read_text())
        notes = set()  # docstrings are for developers, except where they are the help of a command
        if path.parent.name != "cli":
            notes = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            text = node.value if isinstance(node, ast.Constant) and id(node) not in notes else None
            if isinstance(text, str) and len(text.split()) > 2:
                yield f"{path.relative_to(ROOT).as_posix()}:{node.lineno}", text


def test_plain_words():
    fixed = "persons told apart"  # the name of an assumption, which certificates of all versions state
    bent = [(place, word[0]) for place, text in sentences() for word in BENT.finditer(text.replace(fixed, ""))]
    assert bent == []


def test_the_reference_explains_every_field_of_what_is_returned(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    site_hooks = importlib.import_module("site_hooks")
    page = SimpleNamespace(file=SimpleNamespace(src_uri="reference.md"))
    assert "::: dunnage.Audit\n\n- `dataset`, `period`: " in site_hooks.on_page_markdown("", page=page)
    for kind in (dn.Audit, dn.Finding, dn.Frontier, dn.Verdict, dn.DryRun, dn.Promise, dn.Key, dn.Release, dn.Plan):
        fields = kind.model_fields if issubclass(kind, BaseModel) else [item.name for item in dataclasses.fields(kind)]
        listed = re.findall(r"`(\w+)`", re.sub(r"(?m): .*$", "", site_hooks.fields_of(kind.__name__)))
        assert set(fields) - set(listed) <= {"format", "kind", "warnings"}, kind


def test_scripts_outside_the_package_can_be_imported():
    """Pictures, papers and benchmarks use internals: what is moved there must be moved here too."""
    names = [
        f"{folder.name}.{file.stem}"
        for folder in (ROOT / "papers", ROOT / "benchmarks")
        for file in folder.glob("*.py")
    ]
    names = [*sorted(name.removesuffix(".__init__") for name in names if "__main__" not in name), "draw_pictures"]
    code = f"import importlib, sys; sys.path[:0] = ['docs', '.']; [importlib.import_module(name) for name in {names}]"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
