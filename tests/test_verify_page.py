# SPDX-License-Identifier: Apache-2.0
"""``verify.html`` agrees with ``dunnage verify``: on genuine releases, and on forged ones except for what it lists."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import random
import re
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from tests.browser_help import chromium
from tests.certificates_help import relisted
from tests.pages_help import check_closed
from tests.test_forgeries import (
    FLEETS,
    ROWS,
    canonical,
    forged_tables,
    forgeries,
    genuine,
    hidden_parquet,
    lax_csv,
    replaced,
    seen,
)
from tests.verify_page_help import engine, examined, page_text

import dunnage as dn
from dunnage.release import CERTIFICATE_FILE, RELEASE_FILES, VERIFY_FILE, Release
from dunnage.release.kinds import kind_of
from dunnage.release.page import NOT_HERE

PROMISE, PARQUET, TEXTS, CLASSES, NOISE, CALENDAR, TASK, CLOCK = (words for words, *_ in NOT_HERE)
HERE: dict[str, str] = {
    r"(guarantee|basis|holds|claim|why|warnings|assumptions|in_clear|numerics|meaning|composition)(\..*)?": PROMISE,
    r"(proof|mechanism|attributes|software|spend|dataset|period|digests_say)(\..*)?": PROMISE,
    r"measures\.\w+": PROMISE,  # a figure that this kind of release does not have, or none where it has one
    r"measures\.(class_size|loss|levels|sensitive|importance|distortion|suppressed|risks)(\..*)?": CLASSES,
    r"measures\.(noise|published_intervals|borders|slots|features|expected|contribution|loss)(\..*)?": NOISE,
    r"attributes\.\d\.(num_dates|domain)(\..*)?": CALENDAR,
    r"measures\.(task|reports|combined|loss|maps|paths|left_out|senders)(\..*)?": TASK,
}
"""Where ``verify`` sees a forged certificate and the page does not, with the item of its list that says so."""
CELLS: dict[str, str] = {
    ".*_diameter|weight.*|start.*|rating|content": CLASSES,
    "weight.*|size|class_id": NOISE,
    "lon|lat|path|value|lower|upper|bin_lower|bin_upper": TASK,
}
QUICK = ("full-domain-3-0.5-{'weight': 2}-multiset", "noisy-values-1", "noisy-counts-0.5-floor-2", "estimates of areas")
MORE = ("utility-clusters-3-multiset", "size-profile-1-0.05", "sampled-lattice-3-0.9-1", "fitted-counts-1", "estimates")
assert {*QUICK, *MORE} <= {*ROWS, *FLEETS}


def written(name: str, folder: Path) -> Path:
    folder.mkdir()
    genuine(name).write_files(folder)
    return folder


def test_the_page_is_closed_small_and_the_same_for_all(tmp_path: Path) -> None:
    check_closed(page_text(), scripts=2)
    assert len(page_text().encode()) < 60_000
    for number, name in enumerate(QUICK[:2]):
        assert (written(name, tmp_path / str(number)) / VERIFY_FILE).read_text("utf-8") == page_text()


def test_hashes_and_canonical_form_are_those_of_python() -> None:
    hashed, rng = engine().get("hashed"), random.Random(4)
    for length in (0, 1, 55, 56, 63, 64, 65, 119, 120, 1000):
        text = bytes(rng.randrange(256) for _ in range(length))
        assert hashed(text.decode("latin-1")) == hashlib.sha256(text).hexdigest()
    engine().eval("globalThis.again = (text) => [page.canonical(page.parse(text)), ''].join('\\n')")
    doubles = [struct.unpack("<d", rng.randbytes(8))[0] for _ in range(300)]
    numbers = [x for x in doubles if x == x and abs(x) != float("inf")]
    numbers += [0.1, -0.0, 1e16, 1e-5, 123456789012345680.0, 1e22, 5e-324, 1.0, 2**53 + 1, -(2**62)]
    content = {
        "ä": numbers,
        "\ue000": {},
        "\U0001f69a": [],
        "z": [True, None, '\x7f\u2028\\"\n\x01', {"b": 1, "a": [{}]}],
    }
    text = canonical(content).decode()
    assert engine().get("again")(text) == text


FIRST = {re.match(r"[a-z-]+", name)[0]: name for name in reversed([*ROWS, *FLEETS])}.values()  # type: ignore[index]


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in FIRST else pytest.mark.long, id=name) for name in [*ROWS, *FLEETS]],
)
def test_genuine_releases_pass(name: str, tmp_path: Path) -> None:
    folder = written(name, tmp_path / "release")
    made, certificate = examined(folder), genuine(name).certificate
    assert made["problems"] == []
    assert made["ok"]
    kind = kind_of(certificate)
    assert kind is not None
    assert made["alone"][:-1] == list(kind.not_checked(certificate))
    assert PROMISE in made["here"]


def agree(here: list[str], *, passes_here: bool, passes: bool, place: str, rules: dict[str, str]) -> bool:
    """Whether the page says what verify says, or lists why it cannot."""
    if passes_here == passes:
        return True
    return not passes and any(re.fullmatch(pattern, place) and item in here for pattern, item in rules.items())


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.long) for name in MORE)])
def test_forged_certificates_are_seen_or_listed(name: str, tmp_path: Path, thorough: bool) -> None:
    folder, release = written(name, tmp_path / "release"), genuine(name)
    file = folder / CERTIFICATE_FILE
    plain = {**release.certificate.plain(), "files": json.loads(file.read_bytes())["files"]}
    tried = list(forgeries(release.certificate, gross=True))
    tried, missed, num_seen = tried[7 :: 5 if thorough else len(tried) // 32], [], 0
    assert len(tried) >= 32
    for path, value in tried:
        body = replaced(plain, path, value)
        file.write_bytes(canonical({**body, "digest": hashlib.sha256(canonical(body)).hexdigest()}))
        made, passes, place = examined(folder), not seen(body, release), ".".join(map(str, path))
        num_seen += not made["ok"]
        if not agree(made["here"], passes_here=made["ok"], passes=passes, place=place, rules=HERE):
            missed.append((place, value, made["problems"]))
    assert not missed
    assert num_seen > len(tried) // 4


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.long) for name in MORE)])
def test_forged_tables_are_seen_or_listed(name: str, tmp_path: Path, thorough: bool) -> None:
    release, missed, number = genuine(name), [], 0
    for table in release.tables:
        changes = list(forged_tables(release.tables[table]))
        for place, forged in changes[:: 1 if thorough else max(1, len(changes) // 12)]:
            folder, number = tmp_path / str(number), number + 1
            folder.mkdir()
            changed = Release(certificate=release.certificate, **{**release.tables, table: forged})
            try:
                changed.write_files(folder)
            except Exception:  # nobody can write such a release
                continue
            made, passes = examined(folder), dn.verify(folder).ok
            if not agree(made["here"], passes_here=made["ok"], passes=passes, place=place, rules=CELLS):
                missed.append((table, place, made["problems"], dn.verify(folder).problems))
    assert not missed


def changed_folders(folder: Path) -> Iterator[tuple[str, bool]]:
    """Change the files of a folder in one way after the other, with a word for it and whether the page must see it."""
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for name, content in before.items():
        (folder / name).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        yield f"changed {name}", True
        (folder / name).unlink()
        yield f"removed {name}", True
        (folder / name).write_bytes(content)
    for name in ("more.txt", ".hidden", "data (1).csv"):
        (folder / name).write_text("x")
        yield f"added {name}", True
        relisted(folder)
        yield f"added and listed {name}", True
        (folder / name).unlink()
        (folder / CERTIFICATE_FILE).write_bytes(before[CERTIFICATE_FILE])
    for what, content in lax_csv(before["data.csv"]):
        if content != before["data.csv"]:
            (folder / "data.csv").write_bytes(content)
            relisted(folder)
            yield f"csv: {what}", True
    (folder / "data.csv").write_bytes(before["data.csv"])
    for name in ("README.md", "datapackage.json", "certificate.html", VERIFY_FILE):
        (folder / name).write_bytes(before[name] + b" ")
        relisted(folder)
        yield f"texts: {name}", False
        (folder / name).write_bytes(before[name])
    for what, content in list(hidden_parquet(genuine("partition-3").data))[:4]:
        (folder / "data.parquet").write_bytes(content)
        relisted(folder)
        yield f"parquet: {what}", False


def test_changed_files_are_seen_or_listed(tmp_path: Path) -> None:
    folder = written("partition-3", tmp_path / "release")
    num = 0
    for num, (what, must_see) in enumerate(changed_folders(folder), 1):  # noqa: B007
        made = examined(folder)
        assert made["ok"] != must_see, (what, made["problems"])
        assert must_see or {TEXTS, PARQUET} <= set(made["here"])
        try:
            assert not dn.verify(folder).ok, what
        except dn.ReleaseError:
            assert "certificate.json" in what
    assert num > 45


def signing_key(folder: Path) -> tuple[str, Path]:
    """Make a key: the public one as hexadecimal digits, and the private one as a file."""
    key, pem = Ed25519PrivateKey.generate(), folder / "key.pem"
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    pem.write_bytes(key.private_bytes(*form))
    pem.chmod(0o600)
    return key.public_key().public_bytes_raw().hex(), pem


def test_signatures(tmp_path: Path) -> None:
    (public, pem), folder = signing_key(tmp_path), tmp_path / "release"
    folder.mkdir()
    genuine("partition-3").write_files(folder, sign=pem)
    assert examined(folder, (public,))["checks"][1][0] == "ok"
    assert examined(folder)["checks"][1][0] == "note"
    assert not examined(folder, ("0" * 64,))["ok"]
    body = json.loads((folder / CERTIFICATE_FILE).read_bytes())
    body["signature"]["value"] = "0" * 128
    (folder / CERTIFICATE_FILE).write_bytes(canonical(body))
    assert not examined(folder, (public,))["ok"]
    assert not examined(written("partition-3", tmp_path / "unsigned"), (public,))["ok"]
    shim = "globalThis.atob = (t) => textOfBytes(bytesOf(unbase(t))); globalThis.keysIn = (t) => page.keysOf(t).join()"
    engine().add_callable("unbase", lambda text: base64.b64decode(text).decode("latin-1"))
    engine().eval(shim)
    spki = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public)).public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    assert engine().get("keysIn")(f"{spki.decode()}\n{'a' * 64}  # Ada") == f"{public},{'a' * 64}"


def test_a_release_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    """It has no page of its own; the page of this version checks it."""
    fixtures = [path.parent for path in Path(__file__).parent.glob("fixtures/v0.1.0/**/certificate.json")]
    assert fixtures
    for number, source in enumerate(sorted(fixtures)):
        folder = shutil.copytree(source, tmp_path / str(number))
        assert VERIFY_FILE not in {path.name for path in folder.iterdir()}
        assert examined(folder)["ok"] == dn.verify(folder).ok, (source, examined(folder)["problems"])
    assert VERIFY_FILE in RELEASE_FILES


def test_nothing_that_a_forger_writes_breaks_the_checks(tmp_path: Path) -> None:
    """Never passes, never fails otherwise than with a problem."""
    folder = written("partition-3", tmp_path / "release")
    true: dict[str, Any] = {path.name: path.read_bytes() for path in folder.iterdir()}
    for content in (b"", b"{}", b"[", b"\xff", b'{"format": 1}', b'{"__proto__": 1, "format": 1}', b"[" * 5000):
        (folder / CERTIFICATE_FILE).write_bytes(content)
        made = examined(folder)
        assert made["problems"]
        assert not made["ok"]
    (folder / CERTIFICATE_FILE).write_bytes(true[CERTIFICATE_FILE])
    for content in (b"", b'"row"\n', b"\xff", b'"' * 999, true["data.csv"].replace(b"0,", b"1e999,", 1)):
        (folder / "data.csv").write_bytes(content)
        relisted(folder)
        assert not examined(folder)["ok"]


def test_a_browser_agrees(tmp_path: Path) -> None:
    """From the disk, by dropping files, with a signature that WebCrypto checks; no request leaves the page."""
    key, pem = signing_key(tmp_path)
    folder = tmp_path / "release"
    folder.mkdir()
    genuine("partition-3-multiset-2").write_files(folder, sign=pem)
    other = written("noisy-counts-1", tmp_path / "other")
    with chromium() as browser:
        requests: list[str] = []
        for width in (1280, 390):
            page = browser.new_page(viewport={"width": width, "height": 900})
            page.on("request", lambda request: requests.append(request.url))
            messages: list[str] = []
            page.on("console", lambda message, to=messages: to.append(message.text))
            page.goto((folder / VERIFY_FILE).as_uri())
            page.locator("summary").click()
            page.locator("#keys").fill(key)
            page.locator("#folder").set_input_files(folder)
            page.locator("#verdict.proved").wait_for()
            assert page.locator("#checks .failed").count() == 0
            assert page.locator("#checks .note").count() == 0
            lines = page.locator("#checks li").count()
            assert lines >= 8
            assert page.locator("#alone li").count() > 4
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            if out := os.environ.get("DUNNAGE_SHOTS"):
                page.screenshot(path=Path(out) / f"verify-{width}.png", full_page=True)
            page.locator("#keys").fill("0" * 64)
            page.locator("#keys").blur()
            page.locator("#checks .failed").wait_for()
            page.locator("#keys").fill("")
            page.locator("#files").set_input_files(sorted(other.iterdir()))
            page.locator("#verdict.proved").wait_for()
            (other / "more.txt").write_text("x")
            page.locator("#files").set_input_files(sorted(other.iterdir()))
            page.locator("#checks .failed").wait_for()
            (other / "more.txt").unlink()
            page.locator("#files").set_input_files([path for path in other.iterdir() if path.name != "data.csv"])
            page.locator("#checks .failed").wait_for()
            assert messages == []
        assert {url.partition("?")[0] for url in requests} == {(folder / VERIFY_FILE).as_uri()}
