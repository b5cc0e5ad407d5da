# SPDX-License-Identifier: Apache-2.0
"""Identity records that two people open together: shares, log, rotation, erasure, and crashes in between."""

from __future__ import annotations

import itertools
import json
import shutil
import stat
from collections import Counter

import pytest
from tests.commands import run
from tests.estimates_help import refuses

from dunnage.collecting import vault as vaults
from dunnage.collecting.vault import KEYS_FILE, LOG_FILE, RECORDS_FILE, Share, Vault, _times, join, split
from dunnage.errors import DunnageError, InputError, OutputError, ParameterError, SealError

TABLE = "vehicle,plate,carrier\nT1,W 4711 X,Gruber\nT2,L 8 Q,Huber\nT3,S 1 A,Moser\n"


@pytest.fixture
def made(tmp_path):
    """A vault of three records, and the shares of three custodians."""
    shares = []
    (tmp_path / "vehicles.csv").write_text(TABLE)
    vault = Vault.create(tmp_path / "vault", ["anna", "ben", "chen"], shares.extend)
    assert vault.seal(tmp_path / "vehicles.csv") == 3
    return vault, shares


def test_shares():
    """Any two give the secret, one alone is as likely for every secret; the field is that of AES."""
    assert (_times(0x57, 0x83), _times(0x57, 0x13)) == (0xC1, 0xFE)  # FIPS 197, 4.2
    for number, other in itertools.product((1, 2, 7, 100), (3, 255)):
        assert len({_times(number, x) for x in range(256)}) == 256  # so a random slope hides every byte
        assert _times(number, other) == _times(other, number)
    secret = bytes(range(0, 256, 9))
    for pair in itertools.permutations(split(secret, 5), 2):
        assert join(*pair) == secret
    shares = split(secret, 2)
    for bad in ((shares[0], shares[0]), (shares[0], shares[1][:-1])):
        with refuses(SealError, bad):
            join(*bad)
    counts = Counter(split(b"\0", 2)[0][1] for _ in range(2000))
    assert len(counts) > 200  # 2000 draws of 256 values: fewer has a chance below 1e-9


def test_one_person_alone_opens_nothing(made, tmp_path):
    vault, (anna, ben, chen) = made
    for pair in ((anna, ben), (chen, anna), (ben, chen)):
        assert vault.reveal(["T2"], pair, reason="claim 44") == {"T2": {"plate": "L 8 Q", "carrier": "Huber"}}
    num_lines = len(vault.log())
    twin = Share("dora", anna.platform, anna.secret)
    for bad in ([anna], [], [anna, anna], [anna, twin], [anna, ben, chen], [anna, ben._replace(secret=bytes(33))]):
        with refuses(SealError, bad):
            vault.reveal(["T2"], bad, reason="curious")
    with refuses(ParameterError, "no reason"):
        vault.reveal(["T2"], [anna, ben], reason=" ")
    with refuses(InputError, "no such vehicle") as error:
        vault.reveal(["T2", "T9"], [anna, ben], reason="claim 44")
    assert "T9" not in str(error.value)
    assert len(vault.log()) == num_lines  # nothing was opened, so nothing was noted
    kept = b"".join(path.read_bytes() for path in (tmp_path / "vault").iterdir())
    for word in (b"Huber", b"L 8 Q", anna.secret[1:], join(anna.secret, ben.secret)):
        assert word not in kept
    assert "secret" not in repr(anna)
    assert stat.S_IMODE((tmp_path / "vault").stat().st_mode) == 0o700
    with refuses(SealError, "a record under another name"):  # each is bound to its vehicle
        _rename(tmp_path / "vault", "T1", "T2")
        vault.reveal(["T2"], [anna, ben], reason="claim 44")


def _rename(folder, one, other):
    for name in (KEYS_FILE, RECORDS_FILE):
        text = (folder / name).read_text()
        text = text.replace(f'"{one}"', '"?"').replace(f'"{other}"', f'"{one}"').replace('"?"', f'"{other}"')
        (folder / name).write_text(text)


def test_erased_is_gone_and_rotation_keeps_the_others(made, tmp_path):
    vault, (anna, ben, chen) = made
    shutil.copytree(tmp_path / "vault", tmp_path / "backup")
    vault.erase("T1", reason="sold")
    assert vault.vehicles == ["T2", "T3"]
    shutil.copy(tmp_path / "backup" / RECORDS_FILE, tmp_path / "vault" / RECORDS_FILE)  # a backup of the records
    for name in ("T1", "T9"):
        with refuses(InputError, name):
            vault.reveal([name], [anna, ben], reason="claim 44")
        with refuses(InputError, name):
            vault.erase(name, reason="sold")
    new = []
    renewed = vault.rotate([ben, chen], ["anna", "dora"], new.extend)
    assert renewed.custodians == Vault.open(tmp_path / "vault").custodians == ("anna", "dora")
    assert renewed.reveal(["T2", "T3"], new, reason="audit")["T3"] == {"plate": "S 1 A", "carrier": "Moser"}
    for bad in ([anna, ben], [new[0], ben]):
        with refuses(SealError, "old shares"):
            renewed.reveal(["T2"], bad, reason="audit")
    with refuses(SealError, "a vault that was rotated"):
        vault.seal(tmp_path / "vehicles.csv")
    (tmp_path / "more.csv").write_text("vehicle,plate\nT3,S 2 B\nT4,S 3 C\n")
    renewed.seal(tmp_path / "more.csv")
    assert renewed.reveal(["T3", "T4"], new, reason="audit")["T3"] == {"plate": "S 2 B"}
    assert len((tmp_path / "vault" / RECORDS_FILE).read_text().splitlines()) == 3  # the replaced record is gone
    told = [(entry["what"], entry.get("by")) for entry in renewed.log()]
    assert told[:3] == [("created", None), ("sealed", None), ("erased", None)]
    assert told[3:5] == [("rotated", ["ben", "chen"]), ("opened", ["anna", "dora"])]
    lines = (tmp_path / "vault" / LOG_FILE).read_bytes().splitlines(keepends=True)
    for changed in (lines[1:], lines[:2] + lines[3:], [lines[1], *lines], [lines[0].replace(b"2", b"3"), *lines[1:]]):
        (tmp_path / "vault" / LOG_FILE).write_bytes(b"".join(changed))
        with refuses(InputError, "a changed log"):
            renewed.log()


def test_a_crash_leaves_the_state_before_or_after(made, tmp_path, monkeypatch):
    _, (anna, ben, _) = made
    real = vaults.new_file
    for command, stop in itertools.product(("seal", "erase", "rotate"), range(1, 5)):
        shutil.rmtree(tmp_path / "trial", ignore_errors=True)
        shutil.copytree(tmp_path / "vault", tmp_path / "trial")
        trial, writes, new = Vault.open(tmp_path / "trial"), itertools.count(1), []
        (tmp_path / "more.csv").write_text("vehicle,plate\nT3,S 2 B\n")

        def crashing(path, *, private=False, writes=writes, stop=stop):
            if next(writes) == stop:
                raise OutputError("power cut")
            return real(path, private=private)

        monkeypatch.setattr(vaults, "new_file", crashing)
        try:
            if command == "seal":
                trial.seal(tmp_path / "more.csv")
            elif command == "erase":
                trial.erase("T1", reason="sold")
            else:
                trial.rotate([anna, ben], ["anna", "dora"], new.extend)
        except OutputError:
            pass
        monkeypatch.setattr(vaults, "new_file", real)
        after = Vault.open(tmp_path / "trial")
        shares = [anna, ben] if after.platform == anna.platform else new
        assert len(after.reveal(after.vehicles, shares, reason="after a crash")) >= 2, (command, stop)
        assert after.reveal(["T3"], shares, reason="again")["T3"]["plate"] in ("S 1 A", "S 2 B")


def test_commands_and_bad_input(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "vehicles.csv").write_text(TABLE)
    (tmp_path / "shares").mkdir()
    people = ("--custodian", "anna", "--custodian", "ben", "--shares", "shares")
    run("identity", "create", "vault", *people[:2], *people[4:]).refused("2 to 100")
    run("identity", "create", "vault", *people[:4], "--shares", "nowhere").refused("nowhere")
    assert not (tmp_path / "vault").exists()
    assert not list((tmp_path / "shares").iterdir())
    run("identity", "create", "vault", *people, code=0)
    run("identity", "create", "vault", *people).refused("share")
    run("identity", "seal", "vault", "vehicles.csv", code=0)
    two = ("--share", "shares/anna.share", "--share", "shares/ben.share")
    opening = ("identity", "open", "vault", "--vehicle", "T2", "--reason", "claim 44", "-o", "t2.csv")
    run(*opening, *two[:2]).refused("two different custodians")
    assert not (tmp_path / "t2.csv").exists()
    run(*opening, *two, code=0)
    assert (tmp_path / "t2.csv").read_text() == "vehicle,plate,carrier\nT2,L 8 Q,Huber\n"
    assert stat.S_IMODE((tmp_path / "t2.csv").stat().st_mode) == 0o600
    run("identity", "erase", "vault", "--vehicle", "T1", "--reason", "sold", code=0)
    (tmp_path / "new").mkdir()
    run("identity", "rotate", "vault", *two, *people[:4], "--shares", "new", code=0)
    shown = run("identity", "log", "vault", "--json").json()
    assert [entry["what"] for entry in shown["log"]] == ["created", "sealed", "opened", "erased", "rotated"]
    assert "claim 44" in run("identity", "log", "vault").out
    (tmp_path / "shares" / "anna.share").chmod(0o644)
    run(*opening[:-1], "t3.csv", *two).refused("chmod 600")
    for name, text in itertools.product((KEYS_FILE, RECORDS_FILE), ("", "{", "[1]", json.dumps({"format": 9}))):
        before = (tmp_path / "vault" / name).read_bytes()
        (tmp_path / "vault" / name).write_text(text)
        new = [Share.read(tmp_path / "new" / f"{one}.share") for one in ("anna", "ben")]
        with refuses(DunnageError, (name, text)):
            Vault.open(tmp_path / "vault").reveal(["T2"], new, reason="x")
        (tmp_path / "vault" / name).write_bytes(before)
