# SPDX-License-Identifier: Apache-2.0
"""Identity records: sealed, bound to their vehicle, opened by the right key alone."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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

# Published vectors: algorithm, key, nonce, associated data, plaintext, ciphertext, tag.
KNOWN = {
    "McGrew and Viega, The Galois/Counter Mode of Operation, test case 13": (
        "AES-256-GCM",
        "00" * 32,
        "00" * 12,
        "",
        "",
        "",
        "530f8afbc74536b9a963b4f1c4cb738b",
    ),
    "McGrew and Viega, test case 14": (
        "AES-256-GCM",
        "00" * 32,
        "00" * 12,
        "",
        "00" * 16,
        "cea7403d4d606b6e074ec5d3baf39d18",
        "d0d1c8a799996bf0265b98b5d48ab919",
    ),
    "McGrew and Viega, test case 16": (
        "AES-256-GCM",
        "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308",
        "cafebabefacedbaddecaf888",
        "feedfacedeadbeeffeedfacedeadbeefabaddad2",
        "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
        "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39",
        "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa"
        "8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662",
        "76fc6ece0f4e1768cddf8853bb2d551b",
    ),
    "RFC 8998, appendix A.1": (
        "SM4-GCM",
        "0123456789abcdeffedcba9876543210",
        "00001234567800000000abcd",
        "feedfacedeadbeeffeedfacedeadbeefabaddad2",
        "aaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbccccccccccccccccdddddddddddddddd"
        "eeeeeeeeeeeeeeeeffffffffffffffffeeeeeeeeeeeeeeeeaaaaaaaaaaaaaaaa",
        "17f399f08c67d5ee19d0dc9969c4bb7d5fd46fd3756489069157b282bb200735"
        "d82710ca5c22f0ccfa7cbf93d496ac15a56834cbcf98c397b4024a2691233b8d",
        "83de3541e4c2b58177e065a9bf7b62ec",
    ),
}


def test_known_answers() -> None:
    for source in sorted(KNOWN):
        algorithm, *texts = KNOWN[source]
        key, nonce, associated, plain, ciphertext, tag = (bytes.fromhex(text) for text in texts)
        assert encrypt(algorithm, key, nonce, plain, associated) == ciphertext + tag
        assert decrypt(algorithm, key, nonce, ciphertext + tag, associated) == plain


@pytest.fixture(params=ALGORITHMS)
def ring(request: pytest.FixtureRequest) -> KeyRing:
    """A new ring of each algorithm."""
    return KeyRing.new(request.param)


class TestSealing:
    def test_round_trip(self, ring: KeyRing) -> None:
        sealed = seal(RECORD, ring, associated=ALIAS)
        assert open_record(sealed, ring, associated=ALIAS) == RECORD
        assert open_record(SealedRecord.from_json(sealed.to_json()), ring, associated=ALIAS) == RECORD

    @settings(max_examples=50, deadline=None)
    @given(st.dictionaries(st.text(), st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text()))
    def test_any_plain_record(self, record: dict[str, object]) -> None:
        for algorithm in ALGORITHMS:
            ring = KeyRing.new(algorithm)
            sealed = seal(record, ring, associated="\U0001f69a")
            assert open_record(sealed, ring, associated="\U0001f69a") == record
            assert len(sealed.ciphertext) % 256 == 16  # padded, and the tag

    def test_never_the_same_twice(self, ring: KeyRing) -> None:
        sealed = [seal(RECORD, ring, associated=ALIAS) for _ in range(200)]
        assert len({record.nonce for record in sealed}) == len({record.ciphertext for record in sealed}) == 200
        assert {len(record.nonce) for record in sealed} == {12}

    def test_the_length_says_little(self, ring: KeyRing) -> None:
        lengths = {len(seal({"plate": "x" * n}, ring, associated=ALIAS).ciphertext) for n in range(200)}
        assert lengths == {272}

    def test_every_changed_byte_is_found(self, ring: KeyRing) -> None:
        sealed = seal(RECORD, ring, associated=ALIAS)
        for name in ("nonce", "ciphertext"):
            held = getattr(sealed, name)
            for at in range(len(held)):
                changed = held[:at] + bytes([held[at] ^ (1 << at % 8)]) + held[at + 1 :]
                with pytest.raises(SealError, match="cannot be opened"):
                    open_record(replace(sealed, **{name: changed}), ring, associated=ALIAS)

    def test_every_cut_is_found(self, ring: KeyRing) -> None:
        sealed = seal(RECORD, ring, associated=ALIAS)
        for end in range(len(sealed.ciphertext)):
            with pytest.raises(SealError, match="cannot be opened"):
                open_record(replace(sealed, ciphertext=sealed.ciphertext[:end]), ring, associated=ALIAS)

    def test_another_vehicle(self, ring: KeyRing) -> None:
        sealed = seal(RECORD, ring, associated=ALIAS)
        for alias in ("vehicle 8", "vehicle 7 ", "vehicle"):
            with pytest.raises(SealError, match="cannot be opened"):
                open_record(sealed, ring, associated=alias)

    def test_what_is_no_alias_and_no_record(self, ring: KeyRing) -> None:
        for alias in ("", None, b"vehicle 7", 7):
            with pytest.raises(SealError, match="alias"):
                seal(RECORD, ring, associated=alias)
        large = {"a": "x" * (1 << 20)}
        for record in (None, [], "text", {1: 2}, {"a": object()}, {"a": float("nan")}, {"a": b"x"}, large):
            with pytest.raises(SealError):
                seal(record, ring, associated=ALIAS)

    def test_another_key_under_the_same_id(self, ring: KeyRing) -> None:
        sealed = seal(RECORD, ring, associated=ALIAS)
        wrong = KeyRing((replace(ring.active, key=os.urandom(len(ring.active.key))),))
        with pytest.raises(SealError, match="cannot be opened"):
            open_record(sealed, wrong, associated=ALIAS)

    def test_another_algorithm_under_the_same_id(self) -> None:
        key = os.urandom(16)
        short = SealingKey(key_id="a", algorithm="SM4-GCM", key=key, created="2026-11-16")
        long = replace(short, algorithm="AES-256-GCM", key=key * 2)
        sealed = seal(RECORD, KeyRing((short,)), associated=ALIAS)
        with pytest.raises(SealError, match="cannot be opened"):
            open_record(sealed, KeyRing((long,)), associated=ALIAS)

    def test_an_unknown_key(self, ring: KeyRing) -> None:
        sealed = seal(RECORD, ring, associated=ALIAS)
        with pytest.raises(SealError, match="not in the ring"):
            open_record(sealed, KeyRing.new(), associated=ALIAS)

    def test_nothing_is_printed(self, ring: KeyRing) -> None:
        sealed = seal(RECORD, ring, associated=ALIAS)
        shown = repr(ring) + repr(ring.active) + repr(sealed) + repr(ring.keys)
        for secret in (*map(str, RECORD.values()), ring.active.key.hex(), repr(ring.active.key)):
            if len(secret) > 5:
                assert secret not in shown
        with pytest.raises(SealError) as caught:
            open_record(sealed, ring, associated="vehicle 8")
        assert "Gruber" not in str(caught.value)
        assert caught.value.__cause__ is None


class TestRotation:
    def test_rotate(self, ring: KeyRing) -> None:
        old = seal(RECORD, ring, associated=ALIAS)
        renewed = ring.renewed()
        assert [key.state for key in renewed.keys] == ["retired", "active"]
        assert renewed.active.algorithm == ring.active.algorithm
        new = rotate(old, renewed, associated=ALIAS)
        assert new.key_id == renewed.active.key_id != old.key_id
        assert rotate(new, renewed, associated=ALIAS) is new
        for sealed in (old, new):
            assert open_record(sealed, renewed, associated=ALIAS) == RECORD
        dropped = renewed.without(old.key_id)
        assert open_record(new, dropped, associated=ALIAS) == RECORD
        with pytest.raises(SealError, match="not in the ring"):
            open_record(old, dropped, associated=ALIAS)

    def test_to_another_algorithm(self) -> None:
        ring = KeyRing.new("AES-256-GCM")
        renewed = ring.renewed("SM4-GCM")
        new = rotate(seal(RECORD, ring, associated=ALIAS), renewed, associated=ALIAS)
        assert renewed.key(new.key_id).algorithm == "SM4-GCM"
        assert open_record(new, renewed, associated=ALIAS) == RECORD

    def test_only_what_can_be_opened(self, ring: KeyRing) -> None:
        with pytest.raises(SealError):
            rotate(seal(RECORD, ring, associated=ALIAS), ring.renewed(), associated="vehicle 8")

    def test_the_active_key_stays(self, ring: KeyRing) -> None:
        with pytest.raises(SealError, match="active"):
            ring.without(ring.active.key_id)
        with pytest.raises(SealError, match="no such key"):
            ring.without("another")


class TestKeyRing:
    def test_file(self, ring: KeyRing, tmp_path: Path) -> None:
        path = tmp_path / "keys.json"
        ring = ring.renewed("SM4-GCM")
        ring.write(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert KeyRing.read(path) == ring
        with pytest.raises(OutputError, match="exists"):
            ring.write(path)
        ring.renewed().write(path, force=True)
        assert len(KeyRing.read(path).keys) == 3
        assert [file.name for file in tmp_path.iterdir()] == ["keys.json"]

    def test_a_file_that_others_may_read(self, ring: KeyRing, tmp_path: Path) -> None:
        path = tmp_path / "keys.json"
        ring.write(path)
        path.chmod(0o640)
        with pytest.raises(SealError, match="chmod 600"):
            KeyRing.read(path)

    def test_no_file(self, ring: KeyRing, tmp_path: Path) -> None:
        with pytest.raises(SealError, match="cannot be read"):
            KeyRing.read(tmp_path / "none")
        with pytest.raises(OutputError):
            ring.write(tmp_path / "no" / "keys.json")

    def test_a_damaged_file(self, ring: KeyRing, tmp_path: Path) -> None:
        path = tmp_path / "keys.json"
        ring.write(path)
        data = json.loads(path.read_text())
        tables = ([], {}, {"a": []}, {"a": {}})
        changed = [{**data, **change} for change in ({"format": 2}, {"format": True}, {"kind": "x"}, {"extra": 1})]
        changed += [{**data, "keys": table} for table in tables]
        wrong = {"algorithm": ("DES", []), "key": ("AAAA", "?", 5), "state": ("old",), "created": ("",)}
        for name, value in [(name, value) for name, values in wrong.items() for value in values]:
            key = {**data["keys"][ring.active.key_id], name: value}
            changed.append({**data, "keys": {ring.active.key_id: key}})
        for each in changed:
            path.write_text(json.dumps(each))
            with pytest.raises(SealError):
                KeyRing.read(path)

    def test_rules(self, ring: KeyRing) -> None:
        with pytest.raises(SealError, match="exactly one active"):
            KeyRing((ring.active, SealingKey.new()))
        with pytest.raises(SealError, match="exactly one active"):
            KeyRing((replace(ring.active, state="retired"),))
        with pytest.raises(SealError, match="no id twice"):
            KeyRing((ring.active, replace(ring.active, state="retired")))
        with pytest.raises(SealError, match="not known"):
            KeyRing.new("DES")
        with pytest.raises(FrozenInstanceError):
            ring.active.state = "retired"


class TestLocking:
    def test_nobody_else_until_it_is_let_go(self, tmp_path: Path) -> None:
        path = tmp_path / "fleet.keys"
        with locked_ring(path):
            with pytest.raises(SealError, match="in use"), locked_ring(path, patience=0.05):
                raise AssertionError
            other = tmp_path / "link.keys"
            other.symlink_to(path)
            with pytest.raises(SealError, match="in use"), locked_ring(other, patience=0):
                raise AssertionError
            other.unlink()
        with locked_ring(path, patience=0):
            assert [file.name for file in tmp_path.iterdir()] == ["fleet.keys.lock"]
        assert list(tmp_path.iterdir()) == []

    def test_no_folder(self, tmp_path: Path) -> None:
        with pytest.raises(OutputError, match="could not be written"), locked_ring(tmp_path / "none" / "fleet.keys"):
            raise AssertionError


class TestSealedRecordJson:
    @settings(deadline=None)
    @given(st.text(max_size=60) | st.binary(max_size=60))
    def test_any_text_is_an_error(self, text: str | bytes) -> None:
        with pytest.raises(SealError):
            SealedRecord.from_json(text)

    @settings(deadline=None)
    @given(
        st.sampled_from(["format", "kind", "key_id", "nonce", "ciphertext"]),
        st.none() | st.booleans() | st.integers() | st.text(max_size=20) | st.just([]),
    )
    def test_any_changed_field_does_not_open(self, name: str, value: object) -> None:
        ring = KeyRing.new()
        fields = json.loads(seal(RECORD, ring, associated=ALIAS).to_json())
        if fields[name] == value and type(fields[name]) is type(value):
            return
        with pytest.raises(SealError):
            open_record(SealedRecord.from_json(json.dumps({**fields, name: value})), ring, associated=ALIAS)

    def test_refuses(self) -> None:
        for change in [{"key_id": 5}, {"nonce": b"short"}, {"ciphertext": "text"}]:
            sealed = seal(RECORD, KeyRing.new(), associated=ALIAS)
            with pytest.raises(SealError):
                replace(sealed, **change)
