# SPDX-License-Identifier: Apache-2.0
"""Identity records: sealed, bound to their vehicle, opened by the right key alone."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import FrozenInstanceError, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.estimates_help import refuses

from dunnage.collecting.identity import (
    KEY_BYTES,
    KeyRing,
    SealedRecord,
    SealingKey,
    decrypt,
    encrypt,
    locked_ring,
    open_record,
    rotate,
    seal,
)
from dunnage.errors import OutputError, SealError

RECORD = {"name": "Gruber Transporte", "plate": "W 4711 X", "axles": 5, "fuel": "diesel", "leased": False, "note": None}
ALIAS = "vehicle 7"
ALGORITHMS = sorted(KEY_BYTES)

# Published vectors: algorithm, then key, nonce, associated data, plaintext, ciphertext and tag.
ASSOCIATED = "feedfacedeadbeeffeedfacedeadbeefabaddad2"
KNOWN = {
    "McGrew and Viega, The Galois/Counter Mode of Operation, test case 13": (
        "AES-256-GCM",
        ["00" * 32, "00" * 12, "", "", "", "530f8afbc74536b9a963b4f1c4cb738b"],
    ),
    "McGrew and Viega, test case 14": (
        "AES-256-GCM",
        ["00" * 32, "00" * 12, "", "00" * 16, "cea7403d4d606b6e074ec5d3baf39d18", "d0d1c8a799996bf0265b98b5d48ab919"],
    ),
    "McGrew and Viega, test case 16": (
        "AES-256-GCM",
        [
            *("feffe9928665731c6d6a8f9467308308" * 2, "cafebabefacedbaddecaf888", ASSOCIATED),
            "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
            "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39",
            "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa"
            "8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662",
            "76fc6ece0f4e1768cddf8853bb2d551b",
        ],
    ),
    "RFC 8998, appendix A.1": (
        "SM4-GCM",
        [
            *("0123456789abcdeffedcba9876543210", "00001234567800000000abcd", ASSOCIATED),
            "".join(digit * 16 for digit in "abcdefea"),
            "17f399f08c67d5ee19d0dc9969c4bb7d5fd46fd3756489069157b282bb200735"
            "d82710ca5c22f0ccfa7cbf93d496ac15a56834cbcf98c397b4024a2691233b8d",
            "83de3541e4c2b58177e065a9bf7b62ec",
        ],
    ),
}


def test_known_answers():
    for source, (algorithm, texts) in KNOWN.items():
        key, nonce, associated, plain, ciphertext, tag = (bytes.fromhex(text) for text in texts)
        assert encrypt(algorithm, key, nonce, plain, associated) == ciphertext + tag, source
        assert decrypt(algorithm, key, nonce, ciphertext + tag, associated) == plain, source


@pytest.fixture(params=ALGORITHMS)
def ring(request):
    """A new ring of each algorithm."""
    return KeyRing.new(request.param)


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.text(), st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text()))
def test_any_plain_record(record):
    for ring in map(KeyRing.new, ALGORITHMS):
        sealed = seal(record, ring, associated="\U0001f69a")
        assert open_record(sealed, ring, associated="\U0001f69a") == record
        assert open_record(SealedRecord.from_json(sealed.to_json()), ring, associated="\U0001f69a") == record
        assert len(sealed.ciphertext) % 256 == 16  # padded, and the tag


def test_never_the_same_twice_and_the_length_says_little(ring):
    sealed = [seal({"plate": "x" * num}, ring, associated=ALIAS) for num in (*range(200), 7)]
    assert len({record.nonce for record in sealed}) == len({record.ciphertext for record in sealed}) == 201
    assert {len(record.nonce) for record in sealed} == {12}
    assert {len(record.ciphertext) for record in sealed} == {272}


def test_every_change_is_found(ring):
    sealed = seal(RECORD, ring, associated=ALIAS)
    changed = [replace(sealed, ciphertext=sealed.ciphertext[:end]) for end in range(len(sealed.ciphertext))]
    for name in ("nonce", "ciphertext"):
        held = getattr(sealed, name)
        for at in range(len(held)):
            flipped = held[:at] + bytes([held[at] ^ (1 << at % 8)]) + held[at + 1 :]
            changed.append(replace(sealed, **{name: flipped}))
    for each in changed:
        with refuses(SealError, each):
            open_record(each, ring, associated=ALIAS)
    for alias in ("vehicle 8", "vehicle 7 ", "vehicle"):  # another vehicle
        with refuses(SealError, alias):
            open_record(sealed, ring, associated=alias)
    same_id = KeyRing((replace(ring.active, key=os.urandom(len(ring.active.key))),))
    for other in (same_id, KeyRing.new()):
        with refuses(SealError, other):
            open_record(sealed, other, associated=ALIAS)
    assert open_record(sealed, ring, associated=ALIAS) == RECORD


def test_what_is_no_alias_and_no_record(ring):
    for alias in ("", None, b"vehicle 7", 7):
        with refuses(SealError, alias):
            seal(RECORD, ring, associated=alias)
    large = {"a": "x" * (1 << 20)}
    for record in (None, [], "text", {1: 2}, {"a": object()}, {"a": float("nan")}, {"a": b"x"}, large):
        with refuses(SealError, type(record)):
            seal(record, ring, associated=ALIAS)


def test_another_algorithm_under_the_same_id():
    key = os.urandom(16)
    short = SealingKey(key_id="a", algorithm="SM4-GCM", key=key, created="2026-11-16")
    long = replace(short, algorithm="AES-256-GCM", key=key * 2)
    sealed = seal(RECORD, KeyRing((short,)), associated=ALIAS)
    with pytest.raises(SealError):
        open_record(sealed, KeyRing((long,)), associated=ALIAS)


def test_nothing_is_printed(ring):
    sealed = seal(RECORD, ring, associated=ALIAS)
    with pytest.raises(SealError) as caught:
        open_record(sealed, ring, associated="vehicle 8")
    shown = repr(ring) + repr(ring.active) + repr(sealed) + repr(ring.keys) + str(caught.value)
    for secret in ("Gruber Transporte", "W 4711 X", "diesel", ring.active.key.hex(), repr(ring.active.key)):
        assert secret not in shown
    assert caught.value.__cause__ is None


@settings(deadline=None)
@given(st.text(max_size=60) | st.binary(max_size=60))
def test_any_text_is_no_sealed_record(text):
    with pytest.raises(SealError):
        SealedRecord.from_json(text)


@settings(deadline=None)
@given(
    st.sampled_from(["format", "kind", "key_id", "nonce", "ciphertext"]),
    st.none() | st.booleans() | st.integers() | st.text(max_size=20) | st.just([]),
)
def test_any_changed_field_does_not_open(name, value):
    ring = KeyRing.new()
    fields = json.loads(seal(RECORD, ring, associated=ALIAS).to_json())
    if fields[name] == value and type(fields[name]) is type(value):
        return
    with pytest.raises(SealError):
        open_record(SealedRecord.from_json(json.dumps({**fields, name: value})), ring, associated=ALIAS)


def test_versions_of_a_record(ring):
    first, second = (seal(RECORD, ring, associated=ALIAS, version=version) for version in (1, 2))
    assert open_record(second, ring, associated=ALIAS, at_least=2) == RECORD
    for wrong, at_least in ((first, 2), (replace(first, version=2), 2), (replace(second, version=0), 0)):
        with refuses(SealError, wrong):
            open_record(wrong, ring, associated=ALIAS, at_least=at_least)
    old = seal(RECORD, ring, associated=ALIAS, version=0)  # as Dunnage 0.1.0 wrote it
    assert open_record(SealedRecord.from_json(old.to_json()), ring, associated=ALIAS) == RECORD
    assert "version" not in old.to_json()
    assert rotate(old, ring, associated=ALIAS).version == 1
    for version in (-1, 1.5, True, "2"):
        with refuses(SealError, version):
            seal(RECORD, ring, associated=ALIAS, version=version)


def test_rotation(ring):
    old, renewed = seal(RECORD, ring, associated=ALIAS), ring.renewed()
    assert [key.state for key in renewed.keys] == ["retired", "active"]
    assert renewed.active.algorithm == ring.active.algorithm
    new = rotate(old, renewed, associated=ALIAS)
    assert new.key_id == renewed.active.key_id != old.key_id
    assert rotate(new, renewed, associated=ALIAS) is new
    dropped = renewed.without(old.key_id)
    for sealed, keys in ((old, renewed), (new, renewed), (new, dropped)):
        assert open_record(sealed, keys, associated=ALIAS) == RECORD
    with pytest.raises(SealError):
        open_record(old, dropped, associated=ALIAS)
    with pytest.raises(SealError):  # only what can be opened
        rotate(old, renewed, associated="vehicle 8")
    for algorithm in ALGORITHMS:  # to any algorithm
        other = ring.renewed(algorithm)
        new = rotate(old, other, associated=ALIAS)
        assert other.key(new.key_id).algorithm == algorithm
        assert open_record(new, other, associated=ALIAS) == RECORD
    for name in (ring.active.key_id, "another"):  # the active key stays
        with refuses(SealError, name):
            ring.without(name)


def test_files_of_keys(ring, tmp_path):
    path, ring = tmp_path / "keys.json", ring.renewed("SM4-GCM")
    ring.write(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert KeyRing.read(path) == ring
    with pytest.raises(OutputError):
        ring.write(path)
    ring.renewed().write(path, force=True)
    assert len(KeyRing.read(path).keys) == 3
    assert [file.name for file in tmp_path.iterdir()] == ["keys.json"]
    path.chmod(0o640)  # others may read it
    with pytest.raises(SealError, match="chmod 600"):
        KeyRing.read(path)
    with pytest.raises(SealError):
        KeyRing.read(tmp_path / "none")
    with pytest.raises(OutputError):
        ring.write(tmp_path / "no" / "keys.json")


def test_a_damaged_file_of_keys(tmp_path):
    ring, path = KeyRing.new(), tmp_path / "keys.json"
    ring.write(path)
    data = json.loads(path.read_text())
    own = data["keys"][ring.active.key_id]
    changes = [{"format": 2}, {"format": True}, {"kind": "x"}, {"extra": 1}]
    changes += [{"keys": table} for table in ([], {}, {"a": []}, {"a": {}})]
    wrong = [("algorithm", "DES"), ("algorithm", []), ("key", "AAAA"), ("key", "?"), ("key", 5)]
    for name, value in [*wrong, ("state", "old"), ("created", "")]:
        changes.append({"keys": {ring.active.key_id: {**own, name: value}}})
    for change in changes:
        path.write_text(json.dumps({**data, **change}))
        with refuses(SealError, change):
            KeyRing.read(path)


def test_rules_of_rings_and_records(ring):
    retired = replace(ring.active, state="retired")
    for keys in ((ring.active, SealingKey.new()), (retired,), (ring.active, retired)):  # one active, no id twice
        with refuses(SealError, keys):
            KeyRing(keys)
    with pytest.raises(SealError):
        KeyRing.new("DES")
    with pytest.raises(FrozenInstanceError):
        ring.active.state = "retired"
    sealed = seal(RECORD, ring, associated=ALIAS)
    for change in ({"key_id": 5}, {"nonce": b"short"}, {"ciphertext": "text"}):
        with refuses(SealError, change):
            replace(sealed, **change)


def test_nobody_else_has_a_locked_ring(tmp_path):
    path, link = tmp_path / "fleet.keys", tmp_path / "link.keys"
    link.symlink_to(path)
    with locked_ring(path):
        for other in (path, link):
            with pytest.raises(SealError), locked_ring(other, patience=0):
                raise AssertionError
    link.unlink()
    with locked_ring(path, patience=0):
        assert [file.name for file in tmp_path.iterdir()] == ["fleet.keys.lock"]
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OutputError), locked_ring(tmp_path / "none" / "fleet.keys"):
        raise AssertionError
