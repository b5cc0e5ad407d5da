"""The command line: exit codes, messages, JSON, and that a refused command leaves everything as it was."""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from tests.commands import fine, run, snapshot
from typer.main import get_command

import dunnage as dn
from dunnage.cli import app
from dunnage_demo import Demo

COMMAND = [sys.executable, "-c", "from dunnage.cli import main; main()"]
PUBLISH = "publish parcels.csv --policy parcels.toml -o release"
LEDGER = "dunnage-ledger.sqlite"
BUDGET = f"budget set {LEDGER} --dataset x"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with generated packages and their policy."""
    monkeypatch.chdir(tmp_path)
    fine("generate packages -o parcels.csv --size 60 --destinations 2 --decimals 1 --seed 1")
    return tmp_path


@pytest.fixture
def published(place: Path) -> Path:
    assert run(PUBLISH).code == 0
    return place


# Help


def commands(command: Any, *names: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, *names, name)
    if not hasattr(command, "commands"):
        yield names, command


def test_every_command_has_examples_with_options_that_exist() -> None:
    found = dict(commands(get_command(app)))
    assert len(found) == 50
    for names, command in found.items():
        done = run(*names, "--help")
        assert done.code == 0
        assert re.search(r"Example:\s+dunnage\s+" + r"\s+".join(names), done.out)
        known = {option for item in command.params for option in item.opts}
        examples = [line for line in (command.help or "").splitlines() if line.startswith("Example: ")]
        assert examples
        for example in examples:
            words = shlex.split(example.removeprefix("Example: "))
            assert words[: len(names) + 1] == ["dunnage", *names]
            assert {word for word in words if re.match(r"--?[a-z]", word)} <= known
            required = [item for item in command.params if item.required and item.opts[0].startswith("-")]
            assert all(set(item.opts) & set(words) for item in required)


def test_version_and_no_arguments() -> None:
    assert run("--version").out == f"dunnage {dn.__version__}\n"
    bare = run()
    assert bare.code == 2
    assert "Usage:" in bare.out + bare.err


# The way it should go


def test_publish_then_verify(place: Path) -> None:
    done = run(PUBLISH)
    assert (done.code, done.err, "\x1b" in done.out) == (0, "", False)
    assert stat.S_IMODE((place / "release.key.parquet").stat().st_mode) == 0o600
    assert stat.S_IMODE((place / LEDGER).stat().st_mode) == 0o600
    assert not [name for name in os.listdir(place / "release") if "key" in name]
    checked = run("verify release")
    assert checked.code == 0
    release = run("show release").out
    assert "k 5" in release
    assert "between 125 and 375 kg" in release
    assert "k 5" in run("show parcels.toml").out
    assert "parcels" in run(f"show {LEDGER}").out


def test_json_on_every_command(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fine("generate packages -o more.csv")["size"] == 200
    assert fine("draft more.csv -o draft.toml") == {"policy": "draft.toml", "owner": {"remarks": []}}
    assert fine(f"{PUBLISH} --dry-run")["dry_run"] is True
    made = fine(PUBLISH)
    assert (made["release"], made["key"], made["basis"]) == ("release", "release.key.parquet", "proved")
    assert fine("verify release")["ok"] is True
    assert fine("show release")["digest"] == made["digest"]
    assert fine("show parcels.toml")["dataset"] == "parcels"
    assert fine(f"show {LEDGER}")["datasets"][0]["dataset"] == "parcels"
    assert fine(f"budget show {LEDGER}")["format"] == 1
    assert fine(f"budget show {LEDGER} --dataset parcels")["dataset"] == "parcels"
    assert fine(f"{BUDGET} --epsilon 2 --neighbours add-remove --note why")["dataset"] == "x"
    # The demo itself is run where it is tested.
    monkeypatch.setattr("dunnage_demo.run_demo", lambda out, **_: Demo(Path(out) / "report.html", ("Loads", "Riders")))
    report = str(Path("demo", "report.html"))
    assert fine("demo --quick --out demo") == {"report": report, "stories": ["Loads", "Riders"]}
    (place / "release" / "data.csv").write_text("x")
    failed = run("verify release --json")
    assert failed.code == 1
    assert json.loads(failed.out)["ok"] is False


def test_dry_run_draws_spends_and_writes_nothing(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("noise was drawn")

    monkeypatch.setattr("dunnage.noise.arrays.permutation", refuse)
    monkeypatch.setattr("dunnage.noise.source.Noise.draw_bytes", refuse)
    before = snapshot(place)
    done = run(f"{PUBLISH} --dry-run")
    assert done.code == 0
    assert "k 5" in done.out
    content = fine("publish parcels.csv --policy parcels.toml --dry-run")
    assert {"promise", "asked", "spent", "left", "left_after"} <= set(content)
    assert (snapshot(place), content["refusals"]) == (before, [])
    WITH_BUDGET()
    Path("release").mkdir()
    (Path("release") / "mine").write_text("mine")
    before = snapshot(place)
    refusals = fine(f"{PUBLISH} --dry-run")["refusals"]
    assert [word in text for word, text in zip(("release", "allow_unbounded"), refusals, strict=True)] == [True, True]
    assert snapshot(place) == before


def test_a_seed_voids_the_certificate(place: Path) -> None:
    assert "basis void" in run(f"{PUBLISH} --seed 7").out
    checked = run("verify release")
    assert checked.code == 1
    assert "void" in checked.out
    assert fine("verify release --require void")["basis"] == "void"
    assert run("verify release --require proved").code == 1
    assert run("verify release --require certain").code == 2
    assert "void" in run("show release").out


def test_force_replaces_folder_and_key(published: Path) -> None:
    first = snapshot(published)
    assert run(f"{PUBLISH} --again --force").code == 0
    second = snapshot(published)
    assert set(first) == set(second)
    for name in ("release/certificate.json", "release.key.parquet"):
        assert first[name] != second[name]
    assert run("verify release").code == 0


def test_budget_show_and_set(published: Path) -> None:
    words = ("--dataset", "rides", "--epsilon", "1.5", "--neighbours", "replace-one", "--note", "the board, 3 May")
    assert "1.5" in run("budget", "set", LEDGER, *words).out
    assert "rides" in run(f"budget show {LEDGER}").out
    assert "the board, 3 May" in run(f"budget show {LEDGER} --json").out
    done = run(f"budget show {LEDGER} --dataset none")
    done.refused("parcels, rides")
    assert done.out == ""


# Errors: exit 2, one message, everything as it was


def replaced(file: str, old: str, new: str) -> Callable[[], None]:
    def change() -> None:
        text = Path(file).read_text(encoding="utf-8")
        assert old in text
        Path(file).write_text(text.replace(old, new), encoding="utf-8")

    return change


def written(file: str, text: str = "mine") -> Callable[[], object]:
    return lambda: Path(file).write_text(text)


TYPO = replaced("parcels.toml", "quasi-identifier", "quasi-identfier")
WITH_BUDGET = replaced("parcels.toml", "[mechanism]", '[budget]\nepsilon = 1\nneighbours = "add-remove"\n[mechanism]')
UNDECLARED = replaced("parcels.toml", '[attributes.parcel_id]\nrole = "identifier"\n', "")
BAD_LEDGER = written(LEDGER, "not a ledger")
INTO = PUBLISH.removesuffix("release")
# What is arranged, what is run, and words of the message; many more are in the scenarios of refusals.
REFUSED: tuple[tuple[Callable[[], object] | None, str, str], ...] = (
    (UNDECLARED, PUBLISH, "parcel_id"),
    (lambda: Path("release").mkdir(), PUBLISH, "release"),
    (written("release"), PUBLISH, "release"),
    (written("release"), f"{PUBLISH} --force", "release"),
    (written("release.key.parquet"), PUBLISH, "release"),
    (None, f"{INTO}missing/release", "missing"),
    (None, f"{INTO}parcels.csv/release", "parcels.csv"),
    (None, f"{INTO}/", ""),
    (None, f"{INTO}. --force", "release"),
    (None, f"{INTO}/proc/release", "/proc"),
    (WITH_BUDGET, PUBLISH, "allow_unbounded"),
    (None, f"{PUBLISH} --sign parcels.csv", "Ed25519"),
    (None, f"{PUBLISH} --sign none.pem --dry-run", "none.pem"),
    (BAD_LEDGER, PUBLISH, LEDGER),
    (None, f"{PUBLISH} --ledger missing/ledger.sqlite", "missing"),
    (None, f"{PUBLISH} --ledger mysql://x", "mysql"),
    (None, f"{PUBLISH} --seed one", "--seed"),
    (None, "verify parcels.csv", "parcels.csv"),
    (None, "show .", "certificate.json"),
    (BAD_LEDGER, f"show {LEDGER}", LEDGER),
    (TYPO, "show parcels.toml", "quasi-identifier"),
    (None, "draft parcels.csv -o parcels.csv --force", "parcels.csv"),
    (None, "draft parcels.csv -o missing/x.toml", "missing"),
    (None, "generate packages -o x.csv --size -5", "size"),
    (None, "budget show none.sqlite", "none.sqlite"),
    (written("release"), "demo --out release --force", "release"),
    (None, f"{BUDGET} --epsilon 1 --neighbours odd --note x", "neighbours"),
    (None, f"{BUDGET} --epsilon one --neighbours add-remove --note x", "epsilon"),
)


def test_a_refused_command_changes_nothing(place: Path) -> None:
    start = {path: path.read_bytes() for path in place.iterdir()}
    for arrange, line, words in REFUSED:
        if arrange is not None:
            arrange()
        before = snapshot(place)
        done = run(line)
        done.refused(words)
        assert done.out == ""
        as_json = run(f"{line} --json")
        assert as_json.code == 2
        assert words in json.loads(as_json.out)["error"]["message"]
        assert snapshot(place) == before, line
        for path in place.iterdir():
            path.rmdir() if path.is_dir() else path.unlink()
        for path, content in start.items():
            path.write_bytes(content)
    run(*f"{BUDGET} --epsilon 1 --neighbours add-remove --note".split(), " ").refused("note")
    assert snapshot(place) == {path.name: content for path, content in sorted(start.items())}


def test_a_budget_error_says_what_is_left(place: Path) -> None:
    WITH_BUDGET()
    error = json.loads(run(f"{PUBLISH} --json").out)["error"]
    assert (error["kind"], error["asked"], error["left"]) == ("BudgetError", "no bound", "epsilon 1")
    replaced("parcels.toml", 'dataset = "parcels"', 'dataset = "parcels"\nallow_unbounded = true')()
    assert run(PUBLISH).code == 0


def test_the_same_again_needs_again(published: Path) -> None:
    before = snapshot(published)
    run(f"{INTO}second").refused("--again")
    assert snapshot(published) == before
    assert run(f"{INTO}second --again").code == 0


def test_a_key_is_never_shown(published: Path) -> None:
    for more in ("", " --json"):
        done = run(f"show release.key.parquet{more}")
        done.refused("private")
        assert "P0000" not in done.out + done.err
    (published / "release.key.parquet").rename(published / "other.parquet")
    run("show other.parquet").refused()


def run_outside(line: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *line.split()], capture_output=True, text=True, check=False, **more)


# Signatures


def pem_keys(folder: Path, name: str) -> tuple[str, str]:
    key = Ed25519PrivateKey.generate()
    private, public = f"{name}.pem", f"{name}.pub.pem"
    (folder / private).write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    (folder / private).chmod(0o600)
    (folder / public).write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return private, public


def test_sign_and_verify(place: Path) -> None:
    private, public = pem_keys(place, "mine")
    _, other = pem_keys(place, "other")
    assert run(f"{PUBLISH} --sign {private}").code == 0
    assert run(f"verify release --signed-by {public}").code == 0
    assert run("verify release").code == 0
    assert run(f"verify release --signed-by {other} --signed-by {public}").code == 0
    (place / "revoked.txt").write_text(f"{run(f'show {public} --json').json()['public_key']} stolen\n")
    for words in ("", f"--signed-by {public}"):
        revoked = run(f"verify release {words} --revoked revoked.txt")
        assert (revoked.code, "revoked" in revoked.out) == (1, True)
    assert run(f"verify release --signed-by {public} --revoked missing.txt").code == 2
    wrong = run(f"verify release --signed-by {other}")
    assert (wrong.code, "NOT in order" in wrong.out) == (1, True)
    certificate = place / "release" / "certificate.json"
    content = json.loads(certificate.read_bytes())
    del content["signature"]
    text = json.dumps(content, sort_keys=True, indent=2, ensure_ascii=False) + "\n"
    certificate.write_text(text, encoding="utf-8")
    assert run("verify release").code == 0
    removed = run(f"verify release --signed-by {public}")
    assert (removed.code, "NOT in order" in removed.out) == (1, True)


def test_keys_of_another_kind_are_refused_and_nothing_is_spent(place: Path) -> None:
    rsa = generate_private_key(65537, 2048)
    locked = Ed25519PrivateKey.generate()
    contents = {
        "garbage.pem": b"\x00garbage",
        "rsa.pem": rsa.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        "locked.pem": locked.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x")),
    }
    for name, content in contents.items():
        (place / name).write_bytes(content)
    before = snapshot(place)
    for name in (*contents, "missing.pem", "."):
        done = run(f"{PUBLISH} --sign {name}")
        assert done.code == 2
        assert done.err.startswith("error: ")
    assert snapshot(place) == before
    run(PUBLISH)
    for name in (*contents, "missing.pem", "."):
        done = run("verify", "release", "--signed-by", name)
        assert (done.code, done.out) == (2, "")


# Terminals and pipes


def test_outside_a_terminal_there_are_no_codes(place: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1", "TERM": "xterm-256color"}
    published = run_outside(PUBLISH, env=environment)
    shown = run_outside("show release", env=environment, encoding="latin-1")
    assert (published.returncode, shown.returncode) == (0, 0)
    for done in (published, shown):
        assert "\x1b" not in done.stdout
        assert "\r" not in done.stdout
        assert done.stderr == ""


def test_publishing_loads_few_modules(place: Path) -> None:
    counted = "import atexit, sys; from dunnage.cli import main; atexit.register(lambda: print(*sys.modules)); main()"
    done = subprocess.run([sys.executable, "-c", counted, *PUBLISH.split()], capture_output=True, text=True, check=True)
    assert sum(name.split(".")[0] == "dunnage" for name in done.stdout.split()) <= 50


def test_names_in_a_folder_cannot_steer_the_terminal(place: Path) -> None:
    run(PUBLISH)
    (place / "release" / "\x1b[2J\u202eok").write_text("")
    done = run("verify release")
    assert done.code == 1
    assert "\x1b" not in done.out
    assert "\u202e" not in done.out
    strange = run("show", "\x1b[2J")
    assert (strange.code, "\x1b" in strange.err) == (2, False)


# Several at once


def test_of_many_at_once_exactly_one_is_let_through(place: Path) -> None:
    outputs = [f"release{number}" for number in range(3)]
    before = set(os.listdir(place))
    running = [
        subprocess.Popen(
            [*COMMAND, *f"{INTO}{output}".split()], cwd=place, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for output in outputs
    ]
    ends = [(process.communicate()[1].decode(), process.returncode) for process in running]
    codes = [code for _, code in ends]
    assert sorted(codes) == [0, 2, 2], ends
    winner = outputs[codes.index(0)]
    assert set(os.listdir(place)) - before == {winner, f"{winner}.key.parquet", LEDGER}
    assert all("--again" in text for text, code in ends if code)
    assert dn.verify(place / winner).ok
    with dn.Ledger.open_existing(place / LEDGER) as ledger:
        assert len(ledger.statement("parcels").spends) == 1


def test_columns_from_parquet_of_every_kind(place: Path) -> None:
    table = pa.table(
        {
            "parcel_id": [f"CANARY{number}" for number in range(20)],
            "day": pa.array([20_000] * 20, pa.date32()),
            "at": pa.array([1_800_000_000] * 20, pa.timestamp("s", "Europe/Paris")),
            "fragile": [True, False] * 10,
            "pieces": [-1, 2] * 10,
            "note": ["=HYPERLINK()", 'say "hi", then\nleave'] * 10,
            "weight": [float(number) for number in range(20)],
        }
    )
    pq.write_table(table, place / "mixed.parquet")
    roles = {"day": "public", "at": "sensitive", "fragile": "public", "pieces": "sensitive", "note": "sensitive"}
    attributes = "".join(f'[attributes.{name}]\nrole = "{role}"\n' for name, role in roles.items())
    replaced("parcels.toml", '[attributes.destination]\nrole = "public"\n', attributes)()
    replaced("parcels.toml", "domain = [125, 375]", "domain = [0, 500]")()
    done = run("publish mixed.parquet --policy parcels.toml -o release")
    assert done.code == 0, done.err
    assert run("verify release").code == 0
    for path in (place / "release").iterdir():
        assert b"CANARY" not in path.read_bytes()
