"""The command line: exit codes, messages, JSON, and that a refused command leaves everything as it was."""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

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

import dunnage as dn
from dunnage.cli import main
from dunnage.demo import Demo

COMMAND = [sys.executable, "-c", "from dunnage.cli import main; main()"]
PUBLISH = ("publish", "parcels.csv", "--policy", "parcels.toml", "-o", "release")
LEDGER = "dunnage-ledger.sqlite"


class Done(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Done]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command in this process."""

    def run_here(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["dunnage", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        printed = capsys.readouterr()
        assert "Traceback" not in printed.out + printed.err
        return Done(end.value.code if isinstance(end.value.code, int) else 0, printed.out, printed.err)

    return run_here


def run_outside(*arguments: str, cwd: Path, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], cwd=cwd, capture_output=True, text=True, check=False, **more)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> Path:
    """A folder to work in, with generated packages and their policy."""
    monkeypatch.chdir(tmp_path)
    size = ("--size", 60, "--destinations", 2, "--decimals", 1, "--seed", 1)
    assert run("generate", "packages", "-o", "parcels.csv", *size).code == 0
    return tmp_path


def snapshot(folder: Path) -> dict[str, bytes | str]:
    """All there is in a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else str(path.lstat().st_mode)
        for path in sorted(folder.rglob("*"))
    }


# Help


COMMANDS = [
    ("demo",),
    ("advise",),
    ("prove",),
    ("generate", "packages"),
    ("generate", "rides"),
    ("generate", "trips"),
    ("generate", "city"),
    ("generate", "telemetry"),
    ("generate", "positions"),
    ("draft",),
    ("publish",),
    ("show",),
    ("verify",),
    ("pack",),
    ("size",),
    ("apply",),
    ("audit",),
    ("budget", "show"),
    ("budget", "set"),
    ("device", "task"),
    ("device", "perturb"),
    ("device", "simulate"),
    ("device", "keys"),
    ("device", "seal"),
    ("device", "open"),
    ("estimate",),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_help_has_an_example(run: Run, command: tuple[str, ...]) -> None:
    done = run(*command, "--help")
    assert done.code == 0
    assert re.search(r"Example:\s+dunnage\s+" + r"\s+".join(command), done.out)


def test_every_command_is_listed_here() -> None:
    from dunnage.cli import app

    groups = {group.name: group.typer_instance for group in app.registered_groups}
    single = [(item.name or item.callback.__name__,) for item in app.registered_commands if item.callback]
    nested = [
        (str(name), str(item.name)) for name, group in groups.items() if group for item in group.registered_commands
    ]
    assert sorted(single + nested) == sorted(COMMANDS)


def test_every_example_has_options_that_exist(run: Run) -> None:
    from typer.main import get_command

    from dunnage.cli import app

    root = get_command(app)
    for names in COMMANDS:
        command: Any = root
        for name in names:
            command = command.commands[name]
        known = {option for item in command.params for option in item.opts}
        examples = [line for line in (command.help or "").splitlines() if line.startswith("Example: ")]
        assert examples
        for example in examples:
            words = shlex.split(example.removeprefix("Example: "))
            assert words[: len(names) + 1] == ["dunnage", *names]
            assert {word for word in words if re.match(r"--?[a-z]", word)} <= known
            required = [item for item in command.params if item.required and item.opts[0].startswith("-")]
            assert all(set(item.opts) & set(words) for item in required)


def test_version_and_no_arguments(run: Run) -> None:
    assert run("--version").out == f"dunnage {dn.__version__}\n"
    bare = run()
    assert bare.code == 2
    assert "Usage:" in bare.out + bare.err


# The way it should go


def test_publish_then_verify(place: Path, run: Run) -> None:
    done = run(*PUBLISH)
    assert done.code == 0, done.err
    assert done.err == ""
    assert "\x1b" not in done.out
    assert stat.S_IMODE((place / "release.key.parquet").stat().st_mode) == 0o600
    assert stat.S_IMODE((place / LEDGER).stat().st_mode) == 0o600
    assert not [name for name in os.listdir(place / "release") if "key" in name]
    checked = run("verify", "release")
    assert checked.code == 0
    assert checked.out.startswith("In order: release\n")


def test_json_on_every_command(place: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    generated = run("generate", "packages", "-o", "more.csv", "--json").json()
    assert generated["size"] == 200
    assert run("draft", "more.csv", "-o", "draft.toml", "--json").json() == {"policy": "draft.toml"}
    dry = run(*PUBLISH, "--dry-run", "--json").json()
    assert dry["dry_run"] is True
    made = run(*PUBLISH, "--json").json()
    assert made["release"] == "release"
    assert made["key"] == "release.key.parquet"
    assert made["basis"] == "proved"
    assert run("verify", "release", "--json").json()["ok"] is True
    assert run("show", "release", "--json").json()["digest"] == made["digest"]
    assert run("show", "parcels.toml", "--json").json()["dataset"] == "parcels"
    assert run("show", LEDGER, "--json").json()["datasets"][0]["dataset"] == "parcels"
    assert run("budget", "show", LEDGER, "--json").json()["format"] == 1
    assert run("budget", "show", LEDGER, "--dataset", "parcels", "--json").json()["dataset"] == "parcels"
    budget = ("--dataset", "x", "--epsilon", "2", "--neighbours", "add-remove", "--note", "why")
    assert run("budget", "set", LEDGER, *budget, "--json").json()["dataset"] == "x"
    # The demo itself is run where it is tested.
    monkeypatch.setattr("dunnage.demo.run_demo", lambda out, **_: Demo(Path(out) / "report.html", ("Loads", "Riders")))
    assert run("demo", "--quick", "--out", "demo", "--json").json() == {
        "report": str(Path("demo", "report.html")),
        "stories": ["Loads", "Riders"],
    }
    (place / "release" / "data.csv").write_text("x")
    failed = run("verify", "release", "--json")
    assert failed.code == 1
    assert failed.json()["ok"] is False


def test_dry_run_draws_spends_and_writes_nothing(place: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("noise was drawn")

    monkeypatch.setattr("dunnage.noise.arrays.permutation", refuse)
    monkeypatch.setattr("dunnage.noise.source.Noise.draw_bytes", refuse)
    before = snapshot(place)
    done = run(*PUBLISH, "--dry-run")
    assert done.code == 0
    for words in ("Promises", "Would spend", "Spent so far", "Left now", "Left then", "nothing was drawn"):
        assert words in done.out
    content = run(*PUBLISH[:4], "--dry-run", "--json").json()
    assert {"promise", "asked", "spent", "left", "left_after"} <= set(content)
    assert snapshot(place) == before


def test_a_seed_voids_the_certificate(place: Path, run: Run) -> None:
    assert "basis void" in run(*PUBLISH, "--seed", 7).out
    checked = run("verify", "release")
    assert checked.code == 0
    assert "void: nothing is promised" in checked.out
    assert run("verify", "release", "--json").json()["basis"] == "void"
    assert "void" in run("show", "release").out


def test_force_replaces_folder_and_key(place: Path, run: Run) -> None:
    assert run(*PUBLISH).code == 0
    first = snapshot(place)
    assert run(*PUBLISH, "--again", "--force").code == 0
    second = snapshot(place)
    assert set(first) == set(second)
    for name in ("release/certificate.json", "release.key.parquet"):
        assert first[name] != second[name]
    assert run("verify", "release").code == 0


def test_budget_show_and_set(place: Path, run: Run) -> None:
    budget = ("--dataset", "rides", "--epsilon", "1.5", "--neighbours", "replace-one", "--note", "the board, 3 May")
    assert "1.5" in run("budget", "set", LEDGER, *budget).out
    shown = run("budget", "show", LEDGER)
    assert "rides" in shown.out
    assert "the board, 3 May" in run("budget", "show", LEDGER, "--json").out
    assert stat.S_IMODE((place / LEDGER).stat().st_mode) == 0o600


def test_show_tells_a_person(place: Path, run: Run) -> None:
    run(*PUBLISH)
    release = run("show", "release").out
    assert "k           5 asked, 5 reached" in release
    assert "weight, the interval of each class between 125 and 375 kg" in release
    assert "Promises" in run("show", "parcels.toml").out
    assert "parcels" in run("show", LEDGER).out


# Errors: exit 2, one message, everything as it was


def replace_in(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def typo(place: Path) -> None:
    replace_in(place / "parcels.toml", "quasi-identifier", "quasi-identfier")


def unknown_setting(place: Path) -> None:
    replace_in(place / "parcels.toml", "k = 5", "k = 5\nkk = 5")


def budget_in_policy(place: Path) -> None:
    replace_in(place / "parcels.toml", "[mechanism]", '[budget]\nepsilon = 1\nneighbours = "add-remove"\n[mechanism]')


def undeclared(place: Path) -> None:
    replace_in(place / "parcels.toml", '[attributes.parcel_id]\nrole = "identifier"\n', "")


def existing_folder(place: Path) -> None:
    (place / "release").mkdir()


def existing_file(place: Path) -> None:
    (place / "release").write_text("mine")


def existing_key(place: Path) -> None:
    (place / "release.key.parquet").write_text("mine")


def no_data(place: Path) -> None:
    (place / "parcels.csv").unlink()


def no_policy(place: Path) -> None:
    (place / "parcels.toml").unlink()


def bad_ledger(place: Path) -> None:
    (place / LEDGER).write_text("not a ledger")


def nothing(place: Path) -> None:
    pass


REFUSED: dict[str, tuple[Callable[[Path], None], tuple[str, ...], str]] = {
    "no data": (no_data, PUBLISH, "does not exist"),
    "no policy": (no_policy, PUBLISH, "cannot be read"),
    "a typo": (typo, PUBLISH, "Did you mean"),
    "an unknown setting": (unknown_setting, PUBLISH, "kk"),
    "an undeclared column": (undeclared, PUBLISH, "parcel_id"),
    "an existing folder": (existing_folder, PUBLISH, "exists already"),
    "an existing file": (existing_file, PUBLISH, "exists already"),
    "an existing file, with force": (existing_file, (*PUBLISH, "--force"), "left as it is"),
    "an existing key": (existing_key, PUBLISH, "exists already"),
    "a missing folder": (nothing, (*PUBLISH[:-1], "missing/release"), "not a folder"),
    "a file for a folder": (nothing, (*PUBLISH[:-1], "parcels.csv/release"), "not a folder"),
    "the root": (nothing, (*PUBLISH[:-1], "/"), "not a folder"),
    "this folder": (nothing, (*PUBLISH[:-1], ".", "--force"), "left as it is"),
    "an unwritable place": (nothing, (*PUBLISH[:-1], "/proc/release"), "cannot be written"),
    "no output": (nothing, PUBLISH[:-2], "-o RELEASE"),
    "a budget": (budget_in_policy, PUBLISH, "allow_unbounded"),
    "a budget, in a dry run": (budget_in_policy, (*PUBLISH, "--dry-run"), "allow_unbounded"),
    "a period": (nothing, (*PUBLISH, "--period", "2026-11"), "[period]"),
    "a key to sign with": (nothing, (*PUBLISH, "--sign", "parcels.csv"), "Ed25519"),
    "a missing key to sign with": (nothing, (*PUBLISH, "--sign", "none.pem", "--dry-run"), "cannot be read"),
    "a ledger": (bad_ledger, PUBLISH, "not a Dunnage ledger"),
    "a ledger nowhere": (nothing, (*PUBLISH, "--ledger", "missing/ledger.sqlite"), "no folder"),
    "a ledger elsewhere": (nothing, (*PUBLISH, "--ledger", "postgresql://x"), "postgresql"),
    "a seed": (nothing, (*PUBLISH, "--seed", "-1"), "seed"),
    "an option": (nothing, (*PUBLISH, "--forse"), "--forse"),
    "a number": (nothing, (*PUBLISH, "--seed", "one"), "--seed"),
    "a missing argument": (nothing, ("publish",), "Missing"),
    "a command": (nothing, ("publich",), "publich"),
    "a verified file": (nothing, ("verify", "parcels.csv"), "not a folder"),
    "a shown nothing": (nothing, ("show", "none"), "does not exist"),
    "a shown page": (nothing, ("show", "report.html"), "does not exist"),
    "a shown folder": (nothing, ("show", "."), "certificate.json"),
    "a shown ledger": (bad_ledger, ("show", LEDGER), "not a Dunnage ledger"),
    "a shown policy": (typo, ("show", "parcels.toml"), "Did you mean"),
    "a drafted nothing": (nothing, ("draft", "none.csv", "-o", "none.toml"), "does not exist"),
    "a draft over its data": (nothing, ("draft", "parcels.csv", "-o", "parcels.csv", "--force"), "exists already"),
    "a draft over a policy": (nothing, ("draft", "parcels.csv", "-o", "parcels.toml"), "exists already"),
    "a draft nowhere": (nothing, ("draft", "parcels.csv", "-o", "missing/x.toml"), "cannot be written"),
    "generated twice": (nothing, ("generate", "packages", "-o", "parcels.csv"), "exists already"),
    "an unknown law": (nothing, ("generate", "packages", "-o", "x.csv", "--law", "odd"), "law"),
    "an unknown paper": (nothing, ("generate", "packages", "-o", "x.csv", "--setting", "odd"), "odd"),
    "a negative size": (nothing, ("generate", "packages", "-o", "x.csv", "--size", "-5"), "size"),
    "too few stations": (nothing, ("generate", "rides", "-o", "x.csv", "--stations", "5"), "stations"),
    "trips at no half-hour": (nothing, ("generate", "trips", "-o", "x.csv", "--from", "8:15"), "half-hour"),
    "no ledger": (nothing, ("budget", "show", "none.sqlite"), "no ledger"),
    "a demo in the way": (existing_file, ("demo", "--out", "release", "--force"), "exists already"),
    "neighbours": (
        nothing,
        ("budget", "set", LEDGER, "--dataset", "x", "--epsilon", "1", "--neighbours", "odd", "--note", "x"),
        "neighbours",
    ),
    "an epsilon": (
        nothing,
        ("budget", "set", LEDGER, "--dataset", "x", "--epsilon", "one", "--neighbours", "add-remove", "--note", "x"),
        "epsilon",
    ),
    "no note": (
        nothing,
        ("budget", "set", LEDGER, "--dataset", "x", "--epsilon", "1", "--neighbours", "add-remove", "--note", " "),
        "note",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_command_changes_nothing(place: Path, run: Run, name: str) -> None:
    arrange, arguments, words = REFUSED[name]
    arrange(place)
    before = snapshot(place)
    done = run(*arguments)
    assert done.code == 2
    assert done.err.startswith("error: ")
    assert words in done.err
    assert done.out == ""
    as_json = run(*arguments, "--json")
    assert as_json.code == 2
    if name != "a command":
        assert words in as_json.json()["error"]["message"]
    assert snapshot(place) == before


def test_a_budget_error_says_what_is_left(place: Path, run: Run) -> None:
    budget_in_policy(place)
    error = run(*PUBLISH, "--json").json()["error"]
    assert error["kind"] == "BudgetError"
    assert error["asked"] == "no bound"
    assert error["left"] == "epsilon 1"
    replace_in(place / "parcels.toml", 'dataset = "parcels"', 'dataset = "parcels"\nallow_unbounded = true')
    assert run(*PUBLISH).code == 0


def test_an_unknown_dataset_of_a_ledger(place: Path, run: Run) -> None:
    run(*PUBLISH)
    done = run("budget", "show", LEDGER, "--dataset", "none")
    assert (done.code, done.out) == (2, "")
    assert "It has: parcels" in done.err


def test_the_same_again_needs_again(place: Path, run: Run) -> None:
    run(*PUBLISH)
    before = snapshot(place)
    done = run(*PUBLISH[:-1], "second")
    assert done.code == 2
    assert "--again" in done.err
    assert snapshot(place) == before
    assert run(*PUBLISH[:-1], "second", "--again").code == 0


def test_a_key_is_never_shown(place: Path, run: Run) -> None:
    run(*PUBLISH)
    for json_flag in ((), ("--json",)):
        done = run("show", "release.key.parquet", *json_flag)
        assert done.code == 2
        assert "private" in done.err
        assert "P0000" not in done.out + done.err
    (place / "release.key.parquet").rename(place / "other.parquet")
    assert run("show", "other.parquet").code == 2


# Signatures


def pem_keys(folder: Path, name: str) -> tuple[str, str]:
    key = Ed25519PrivateKey.generate()
    private, public = f"{name}.pem", f"{name}.pub.pem"
    (folder / private).write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    (folder / public).write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return private, public


def test_sign_and_verify(place: Path, run: Run) -> None:
    private, public = pem_keys(place, "mine")
    _, other = pem_keys(place, "other")
    assert run(*PUBLISH, "--sign", private).code == 0
    assert "signed by the key given" in run("verify", "release", "--signed-by", public).out
    assert "by whom is not checked" in run("verify", "release").out
    wrong = run("verify", "release", "--signed-by", other)
    assert (wrong.code, "another key" in wrong.out) == (1, True)
    certificate = place / "release" / "certificate.json"
    content = json.loads(certificate.read_bytes())
    del content["signature"]
    text = json.dumps(content, sort_keys=True, indent=2, ensure_ascii=False) + "\n"
    certificate.write_text(text, encoding="utf-8")
    assert run("verify", "release").code == 0
    removed = run("verify", "release", "--signed-by", public)
    assert (removed.code, "not signed" in removed.out) == (1, True)


def test_keys_of_another_kind_are_refused_and_nothing_is_spent(place: Path, run: Run) -> None:
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
        done = run(*PUBLISH, "--sign", name)
        assert done.code == 2
        assert done.err.startswith("error: ")
    assert snapshot(place) == before
    run(*PUBLISH)
    for name in (*contents, "missing.pem", "."):
        done = run("verify", "release", "--signed-by", name)
        assert (done.code, done.out) == (2, "")


# Terminals and pipes


def test_a_reader_that_leaves_early_sees_no_traceback(place: Path, run: Run) -> None:
    run(*PUBLISH)
    reading, writing = os.pipe()
    os.close(reading)
    for command in (["show", "release"], ["verify", "release", "--json"], ["--help"]):
        done = subprocess.run([*COMMAND, *command], cwd=place, stdout=writing, stderr=subprocess.PIPE, check=False)
        assert done.stderr == b""
    os.close(writing)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_a_full_disk_behind_stdout_is_an_error(place: Path, run: Run) -> None:
    run(*PUBLISH)
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*COMMAND, "show", "release"], cwd=place, stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 2
    assert done.stderr.startswith(b"error: ")
    assert b"Traceback" not in done.stderr


def test_outside_a_terminal_there_are_no_codes(place: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1", "TERM": "xterm-256color"}
    published = run_outside(*PUBLISH, cwd=place, env=environment)
    shown = run_outside("show", "release", cwd=place, env=environment, encoding="latin-1")
    assert (published.returncode, shown.returncode) == (0, 0)
    for done in (published, shown):
        assert "\x1b" not in done.stdout
        assert "\r" not in done.stdout
        assert done.stderr == ""


def test_names_in_a_folder_cannot_steer_the_terminal(place: Path, run: Run) -> None:
    run(*PUBLISH)
    (place / "release" / "\x1b[2J\u202eok").write_text("")
    done = run("verify", "release")
    assert done.code == 1
    assert "\x1b" not in done.out
    assert "\u202e" not in done.out
    strange = run("show", "\x1b[2J")
    assert (strange.code, "\x1b" in strange.err) == (2, False)


# Several at once


def test_of_many_at_once_exactly_one_is_let_through(place: Path) -> None:
    outputs = [f"release{number}" for number in range(8)]
    before = set(os.listdir(place))
    running = [
        subprocess.Popen([*COMMAND, *PUBLISH[:-1], output], cwd=place, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for output in outputs
    ]
    ends = [(process.communicate()[1].decode(), process.returncode) for process in running]
    codes = [code for _, code in ends]
    assert sorted(codes) == [0, *[2] * 7], ends
    winner = outputs[codes.index(0)]
    assert set(os.listdir(place)) - before == {winner, f"{winner}.key.parquet", LEDGER}
    assert all("--again" in text for text, code in ends if code)
    assert dn.verify(place / winner).ok
    with dn.Ledger.open_existing(place / LEDGER) as ledger:
        assert len(ledger.statement("parcels").spends) == 1


def test_columns_from_parquet_of_every_kind(place: Path, run: Run) -> None:
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
    replace_in(place / "parcels.toml", '[attributes.destination]\nrole = "public"\n', attributes)
    replace_in(place / "parcels.toml", "domain = [125, 375]", "domain = [0, 500]")
    done = run("publish", "mixed.parquet", "--policy", "parcels.toml", "-o", "release")
    assert done.code == 0, done.err
    assert run("verify", "release").code == 0
    for path in (place / "release").iterdir():
        assert b"CANARY" not in path.read_bytes()
