# SPDX-License-Identifier: Apache-2.0
"""Sealed identity records of carriers and vehicles (name, plate, axles, fuel and the like), and files of them.

Reports carry no identity. If a platform must know who is who, it encrypts each record with authentication (AES-256-GCM,
or SM4-GCM on request) under a key with an id, bound to the vehicle's alias, so that nobody can move a record to another
vehicle unnoticed. A key ring, a private JSON file, keeps the keys. :func:`rotate` seals a record again under the active
key; a retired key opens old records until it is dropped, and then nobody can open them.

A record is padded to a multiple of 256 bytes, so that its length says little. Nonces are 96 random bits: renew a key
before it has sealed 2^32 records (NIST SP 800-38D). Anything that does not fit (another key, nonce or alias, a changed
byte) gives the same :class:`~dunnage.errors.SealError`, which says nothing about the record.

Each record has a version, which nobody can change unnoticed, and the last line of a file is a tag over all lines and
the version of the file: a line that was dropped, added, moved or replaced by an older one is found. A whole older file
with its own tag is found only if the caller knows which version it should be (``at_least``). Files that Dunnage 0.1.0
wrote have neither versions nor a tag; they are still read, and their version is 0.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import secrets
import time
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from dunnage.collecting.files import check_new_file, check_not_input
from dunnage.devices.report import packed, unpacked
from dunnage.errors import InputError, OutputError, Problem, SealError
from dunnage.exact import shown
from dunnage.folders import lock, new_file

FORMAT = 1  # of rings, tags, and records without a version
VERSIONED = 2  # of records with a version
NONCE_BYTES = 12
TAG_BYTES = 16
PADDED_TO = 256
MAX_RECORD = 1 << 20
MAX_FILE_BYTES = 1 << 30
KEY_BYTES = {"AES-256-GCM": 32, "SM4-GCM": 16}  # Algorithms, and the length of their keys
ACTIVE, RETIRED = "active", "retired"

_RING_KIND = "dunnage key ring"
_SEALED_KIND = "dunnage sealed record"
_TAG_KIND = "dunnage sealed file"
NO_TAG = "a dropped or older line would not be found; seal the file again"
_MAX_TEXT = 200
_REFUSED = "the record cannot be opened. It has another key, nonce or alias, or someone changed it."


def encrypt(algorithm: str, key: bytes, nonce: bytes, plain: bytes, associated: bytes) -> bytes:
    """Encrypt and authenticate; return the ciphertext followed by its 16-byte tag."""
    sealing = _cipher(algorithm, key, nonce).encryptor()
    sealing.authenticate_additional_data(associated)
    return bytes(sealing.update(plain) + sealing.finalize() + sealing.tag)


def decrypt(algorithm: str, key: bytes, nonce: bytes, sealed: bytes, associated: bytes) -> bytes:
    from cryptography.exceptions import InvalidTag

    if len(sealed) < TAG_BYTES or len(nonce) != NONCE_BYTES:
        raise SealError(_REFUSED)
    opening = _cipher(algorithm, key, nonce, sealed[-TAG_BYTES:]).decryptor()
    opening.authenticate_additional_data(associated)
    try:
        return bytes(opening.update(sealed[:-TAG_BYTES]) + opening.finalize())
    except InvalidTag:
        raise SealError(_REFUSED) from None


def _cipher(algorithm: str, key: bytes, nonce: bytes, tag: bytes | None = None) -> Any:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    if len(key) != _key_bytes(algorithm):
        raise SealError(
            f"a key for {algorithm} must have {KEY_BYTES[algorithm]} bytes. Restore the key ring from a copy."
        )
    block = algorithms.AES256(key) if algorithm == "AES-256-GCM" else algorithms.SM4(key)
    return Cipher(block, modes.GCM(nonce, tag))


def _key_bytes(algorithm: object) -> int:
    if not isinstance(algorithm, str) or algorithm not in KEY_BYTES:
        raise SealError(f"the algorithm is unknown. Choose one of {', '.join(KEY_BYTES)}.")
    return KEY_BYTES[algorithm]


@dataclass(frozen=True, kw_only=True)
class SealingKey:
    key_id: str  # Public name of the key: 16 hexadecimal digits
    algorithm: str  # `AES-256-GCM` or `SM4-GCM`
    key: bytes = field(repr=False)  # The key itself; never printed
    created: str  # When it was made, in UTC
    state: str = ACTIVE  # `active` (seals and opens) or `retired` (opens only)

    def __post_init__(self) -> None:
        num_bytes = _key_bytes(self.algorithm)
        fits = isinstance(self.key, bytes) and len(self.key) == num_bytes
        texts = all(isinstance(text, str) and 0 < len(text) <= _MAX_TEXT for text in (self.key_id, self.created))
        if not fits or not texts or self.state not in (ACTIVE, RETIRED):
            raise SealError("a key of the ring has a wrong length, id, date or state. Restore the ring from a copy.")

    @classmethod
    def new(cls, algorithm: str = "AES-256-GCM") -> SealingKey:
        key = secrets.token_bytes(_key_bytes(algorithm))
        created = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(key_id=secrets.token_hex(8), algorithm=algorithm, key=key, created=created)


@dataclass(frozen=True)
class KeyRing:
    keys: tuple[SealingKey, ...]

    def __post_init__(self) -> None:
        ids = [key.key_id for key in self.keys]
        if [key.state for key in self.keys].count(ACTIVE) != 1 or len(set(ids)) < len(ids):
            raise SealError(
                "a key ring must have exactly one active key, and no id twice. Restore the ring from a copy."
            )

    @classmethod
    def new(cls, algorithm: str = "AES-256-GCM") -> KeyRing:
        return cls((SealingKey.new(algorithm),))

    @property
    def active(self) -> SealingKey:
        return next(key for key in self.keys if key.state == ACTIVE)

    def key(self, key_id: str) -> SealingKey:
        for key in self.keys:
            if key.key_id == key_id:
                return key
        raise SealError("the record was sealed with a key that is not in the ring. Use the ring it was sealed with.")

    def renewed(self, algorithm: str | None = None) -> KeyRing:
        """Return a ring with a new active key; the others are retired and still open old records."""
        new = SealingKey.new(algorithm or self.active.algorithm)
        return KeyRing((*(replace(key, state=RETIRED) for key in self.keys), new))

    def without(self, key_id: str) -> KeyRing:
        """Return a ring without a retired key: nobody can open the records that are still sealed with it."""
        if key_id not in {key.key_id for key in self.keys}:
            raise SealError(f"the ring has no key {shown(key_id)}. Name one that it lists.")
        if self.key(key_id).state == ACTIVE:
            raise SealError("the active key cannot be dropped. Renew the ring first.")
        return KeyRing(tuple(key for key in self.keys if key.key_id != key_id))

    def __repr__(self) -> str:
        return f"<KeyRing of {len(self.keys)} keys, active {self.active.key_id}>"

    def write(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the ring to a private file (mode 0600) that appears whole or not at all."""
        target = Path(path)
        if os.path.lexists(target) and not force:
            raise OutputError(
                f"{target} already exists. Choose another name: without the old ring its records stay sealed."
            )
        keys = {
            key.key_id: {"algorithm": key.algorithm, "key": packed(key.key), "created": key.created, "state": key.state}
            for key in self.keys
        }
        text = json.dumps({"format": FORMAT, "kind": _RING_KIND, "keys": keys}, indent=2) + "\n"
        with new_file(target, private=True) as sink:
            sink.write(text.encode("ascii"))

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> KeyRing:
        path = Path(path)
        try:
            with path.open("rb") as source:
                if os.name == "posix" and os.fstat(source.fileno()).st_mode & 0o077:
                    raise SealError(f"other users can read the key ring {path}. Make it private: chmod 600.")
                content = source.read(MAX_RECORD + 1)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise SealError(f"the key ring {path} cannot be read: {reason}. Name the right file.") from None
        keys = _table(content, {"format", "kind", "keys"}, _RING_KIND)["keys"]
        if not isinstance(keys, dict) or not all(isinstance(item, dict) for item in keys.values()):
            raise SealError("the key ring is damaged. Restore it from a copy.")
        if any(set(item) != {"algorithm", "key", "created", "state"} for item in keys.values()):
            raise SealError("a key of the ring is damaged. Restore the ring from a copy.")
        return cls(
            tuple(SealingKey(key_id=name, **item | {"key": _unpacked(item["key"])}) for name, item in keys.items())
        )


@contextmanager
def locked_ring(path: str | os.PathLike[str], *, patience: float = 30.0) -> Iterator[None]:
    name, until = f"{os.path.realpath(path)}.lock", time.monotonic() + patience
    while True:
        try:
            own = os.open(name, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise OutputError(f"{name} cannot be written: {error.strerror}. Choose another place.") from None
        with suppress(OSError):  # another process has it, or has just removed it
            lock(own)
            if os.path.samestat(os.fstat(own), os.stat(name)):
                break
        os.close(own)
        if time.monotonic() > until:
            raise SealError("another command uses the key ring. Try again when it has ended.")
        time.sleep(0.02)
    try:
        yield
    finally:
        with suppress(PermissionError):  # Windows removes no open file; the next command locks the one that is left
            os.unlink(name)
        os.close(own)


@dataclass(frozen=True, kw_only=True)
class SealedRecord:
    key_id: str  # Which key opens it
    nonce: bytes = field(repr=False)  # 96 random bits
    ciphertext: bytes = field(repr=False)  # The encrypted record with its tag
    version: int = 0  # Higher than that of any earlier record of the vehicle; 0 if it has none

    def __post_init__(self) -> None:
        if type(self.version) is not int or self.version < 0:
            raise SealError("this is not a sealed record: its version is not a whole number. Use a copy.")
        key_id = isinstance(self.key_id, str) and 0 < len(self.key_id) <= _MAX_TEXT
        nonce = isinstance(self.nonce, bytes) and len(self.nonce) == NONCE_BYTES
        if not key_id or not nonce or not isinstance(self.ciphertext, bytes):
            raise SealError("this is not a sealed record: its key id, nonce or ciphertext is damaged. Use a copy.")

    def to_json(self) -> str:
        return json.dumps(self._plain(), separators=(",", ":"))

    def _plain(self) -> dict[str, int | str]:
        data = {"key_id": self.key_id, "nonce": packed(self.nonce), "ciphertext": packed(self.ciphertext)}
        if not self.version:
            return {"format": FORMAT, "kind": _SEALED_KIND, **data}
        return {"format": VERSIONED, "kind": _SEALED_KIND, "version": self.version, **data}

    @classmethod
    def from_json(cls, text: str | bytes) -> SealedRecord:
        keys = {"format", "kind", "key_id", "nonce", "ciphertext"}
        try:
            given = _table(text, keys | {"version"}, _SEALED_KIND, VERSIONED)
        except SealError:
            given = _table(text, keys, _SEALED_KIND) | {"version": 0}
        else:
            if given["version"] == 0:
                raise SealError("this is not a sealed record: its version is 0. Use a copy.")
        data = {name: _unpacked(given[name]) for name in ("nonce", "ciphertext")}
        return cls(key_id=given["key_id"], version=given["version"], **data)


def _table(text: str | bytes, keys: set[str], kind: str, form: int = FORMAT) -> dict[str, Any]:
    data: Any = None
    with suppress(ValueError, RecursionError):
        data = json.loads(text) if len(text) <= 2 * MAX_RECORD else None
    fits = isinstance(data, dict) and set(data) == keys and data["kind"] == kind
    if not fits or type(data["format"]) is not int or data["format"] != form:
        raise SealError(f"this is not a {kind} that this version reads. Name the right file, or update Dunnage.")
    return dict(data)


def _unpacked(text: object) -> bytes:
    try:
        return unpacked(text)
    except ValueError:
        raise SealError("a field is not valid Base64. Use a copy.") from None


def _bound(key: SealingKey, associated: str, version: int) -> bytes:
    """Return what is authenticated beside the record: its format, key, owner and version, clearly separated."""
    if not isinstance(associated, str) or not associated:
        raise SealError("a sealed record needs the alias of its vehicle. Got none. Pass it as associated.")
    form = [VERSIONED, version] if version else [FORMAT]
    return json.dumps([_SEALED_KIND, *form, key.algorithm, key.key_id, associated]).encode("ascii")


def seal(record: Mapping[str, object], keyring: KeyRing, *, associated: str, version: int = 1) -> SealedRecord:
    """Seal an identity record (also nested) under the active key, bound to the vehicle's alias and to its version."""
    plain, key, nonce = padded(record), keyring.active, secrets.token_bytes(NONCE_BYTES)
    sealed = encrypt(key.algorithm, key.key, nonce, plain, _bound(key, associated, version))
    return SealedRecord(key_id=key.key_id, nonce=nonce, ciphertext=sealed, version=version)


def padded(record: Mapping[str, object]) -> bytes:
    """Write a record so that its length says little."""
    try:
        if not isinstance(record, Mapping) or not all(isinstance(name, str) for name in record):
            raise TypeError
        plain = json.dumps(dict(record), allow_nan=False, separators=(",", ":")).encode("ascii")
    except (TypeError, ValueError, RecursionError):
        raise SealError("a record must have names with plain values. Pass text and numbers.") from None
    if len(plain) > MAX_RECORD:
        raise SealError(f"a record has at most {MAX_RECORD:,} bytes. Got more. Split it.")
    return plain + b" " * (-len(plain) % PADDED_TO)


def open_record(sealed: SealedRecord, keyring: KeyRing, *, associated: str, at_least: int = 0) -> dict[str, object]:
    """Open a sealed record; any other key, alias or version, or a changed byte, gives the same error."""
    if sealed.version < at_least:
        raise SealError(f"the record is an older one: version {sealed.version}, not {at_least}. Use the latest.")
    key = keyring.key(sealed.key_id)
    plain = decrypt(key.algorithm, key.key, sealed.nonce, sealed.ciphertext, _bound(key, associated, sealed.version))
    return dict(json.loads(plain))


def rotate(sealed: SealedRecord, keyring: KeyRing, *, associated: str, version: int | None = None) -> SealedRecord:
    """Seal a record again under the active key, as its next version; return it unchanged if it already is."""
    record = open_record(sealed, keyring, associated=associated)
    if sealed.version and sealed.key_id == keyring.active.key_id:
        return sealed
    return seal(record, keyring, associated=associated, version=version or sealed.version + 1)


class SealedFile(NamedTuple):
    records: list[tuple[str, SealedRecord]]  # By alias
    name: str  # Random, the same in all versions of a file
    version: int  # 0 if it has no tag: a dropped or older line cannot be found then


def _tagged_lines(records: Iterable[tuple[str, SealedRecord]]) -> bytes:
    plain = ({"alias": alias, "sealed": record._plain()} for alias, record in records)
    return b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in plain)


def _tag_bound(key: SealingKey, name: str, version: int, lines: bytes) -> bytes:
    digest = hashlib.sha256(lines).hexdigest()
    return json.dumps([_TAG_KIND, FORMAT, key.algorithm, key.key_id, name, version, digest]).encode("ascii")


def read_sealed(path: str | os.PathLike[str], keyring: KeyRing, *, at_least: int = 0) -> SealedFile:
    """Read a file of records, and check that none was dropped, added, moved or replaced since it was written."""
    records, tag = _sealed(Path(path))
    if tag is None:
        if any(record.version for _, record in records):
            raise SealError("the last line of the file, its tag, is missing. It is cut off, or someone changed it.")
        file = SealedFile(records, "", 0)
    else:
        given = _table(json.dumps(tag), {"format", "kind", "key_id", "file", "version", "nonce", "tag"}, _TAG_KIND)
        key = keyring.key(str(given["key_id"]))
        bound = _tag_bound(key, str(given["file"]), given["version"], _tagged_lines(records))
        try:
            decrypt(key.algorithm, key.key, _unpacked(given["nonce"]), _unpacked(given["tag"]), bound)
        except SealError:
            what = "a line was dropped, added, moved or replaced by another, or its key is another"
            raise SealError(f"the file does not match its tag: {what}. Use a copy.") from None
        file = SealedFile(records, str(given["file"]), int(given["version"]))
    if file.version < at_least:
        raise SealError(f"the file is an older one: version {file.version}, not {at_least}. Use the latest.")
    return file


def seal_file(
    records: str | os.PathLike[str],  # CSV file, one row for each vehicle
    keyring: KeyRing,  # The key ring
    out: str | os.PathLike[str],  # File of JSON lines to write
    *,
    alias: str = "vehicle",
    after: str | os.PathLike[str] | None = None,  # The file before it; its version goes on. By default the one replaced
    force: bool = False,  # Replace an existing file
) -> SealedFile:
    check_not_input(out, [records])
    target = check_new_file(out, force=force)
    rows = read_records(Path(records), alias)
    before = SealedFile([], "", 0)
    if after is not None:
        before = read_sealed(after, keyring)
    elif target.exists():
        with suppress(InputError):  # another kind of file may be replaced
            before = read_sealed(target, keyring)
    version = before.version + 1
    sealed = [(name, seal(record, keyring, associated=name, version=version)) for name, record in rows]
    return _write_sealed(target, keyring, SealedFile(sealed, before.name, version))


def rotate_file(
    sealed: str | os.PathLike[str], keyring: KeyRing, out: str | os.PathLike[str], *, force: bool = False
) -> SealedFile:
    target = check_new_file(out, force=force)
    before = read_sealed(sealed, keyring)
    version = before.version + 1
    rows = [(name, rotate(record, keyring, associated=name, version=version)) for name, record in before.records]
    return _write_sealed(target, keyring, SealedFile(rows, before.name, version))


def _write_sealed(target: Path, keyring: KeyRing, file: SealedFile) -> SealedFile:
    file = file._replace(name=file.name or secrets.token_hex(8))
    key, nonce, lines = keyring.active, secrets.token_bytes(NONCE_BYTES), _tagged_lines(file.records)
    tag = encrypt(key.algorithm, key.key, nonce, b"", _tag_bound(key, file.name, file.version, lines))
    names = {"key_id": key.key_id, "file": file.name, "version": file.version}
    last = {"tag": {"format": FORMAT, "kind": _TAG_KIND, **names, "nonce": packed(nonce), "tag": packed(tag)}}
    with new_file(target) as sink:
        sink.write(lines + json.dumps(last, separators=(",", ":")).encode("ascii") + b"\n")
    return file


def open_file(
    sealed: str | os.PathLike[str],
    keyring: KeyRing,
    out: str | os.PathLike[str],
    *,
    alias: str = "vehicle",
    at_least: int = 0,  # Refuse a file of an earlier version
    force: bool = False,
) -> SealedFile:
    check_not_input(out, [sealed])
    target = check_new_file(out, force=force)
    file = read_sealed(sealed, keyring, at_least=at_least)
    write_opened(
        target, [(name, open_record(record, keyring, associated=name)) for name, record in file.records], alias
    )
    return file


def write_opened(target: Path, opened: Sequence[tuple[str, Mapping[str, object]]], alias: str) -> None:
    """Write opened records to a private CSV file."""
    names = list(dict.fromkeys(key for _, record in opened for key in record))
    if alias in names:
        raise SealError(
            f"a sealed record itself has a field {alias!r}. Give the alias another name with --alias-column."
        )
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([alias, *names])
    for name, record in opened:
        values = (record.get(key, "") for key in names)
        cells = ["" if value is None else value if isinstance(value, str) else json.dumps(value) for value in values]
        writer.writerow([name, *cells])
    with new_file(target, private=True) as sink:
        sink.write(text.getvalue().encode())


def read_records(path: Path, alias: str) -> list[tuple[str, dict[str, str]]]:
    try:
        text = _content(path).decode("utf-8-sig")
        header, *rows = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row] or [[]]
    except (UnicodeError, csv.Error):
        problem = Problem("is not a CSV file in UTF-8, or has an unclosed quote", remedy="Save it again.")
        raise InputError(str(path), [problem]) from None
    if not rows:
        raise InputError(str(path), ["is empty. Give a header line and at least one row."])
    problems = []
    if alias not in header:
        problems.append(Problem("there is no such column", where=alias, remedy="Name it with --alias-column."))
    if len(set(header)) < len(header):
        problems.append(Problem("the header names a column twice", remedy="Rename one."))
    if uneven := [at for at, row in enumerate(rows, 1) if len(row) != len(header)]:
        what, remedy = "has more or fewer cells than the header", "Fix or quote the cells."
        problems.append(Problem.in_rows(what, uneven, remedy=remedy))
    if problems:
        raise InputError(str(path), problems)
    records = [dict(zip(header, row, strict=True)) for row in rows]
    aliases = [record.pop(alias) for record in records]
    if blank := [number for number, name in enumerate(aliases, 1) if not name.strip()]:
        problems.append(Problem.in_rows("is missing", blank, where=alias, remedy="Every vehicle needs an alias."))
    if twice := _repeated(aliases):
        problems.append(Problem.in_rows("comes twice", twice, where=alias, remedy="Write one row for each vehicle."))
    if problems:
        raise InputError(str(path), problems)
    return list(zip(aliases, records, strict=True))


def _repeated(aliases: list[str]) -> list[int]:
    seen: set[str] = set()
    return [number for number, name in enumerate(aliases, 1) if name in seen or seen.add(name)]  # type: ignore[func-returns-value]


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as source:
            content = source.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InputError(str(path), [f"cannot be read: {error.strerror}. Check the path."]) from None
    if len(content) > MAX_FILE_BYTES:
        raise InputError(str(path), ["is larger than 1 GiB. Split it."])
    return content


def _sealed(path: Path) -> tuple[list[tuple[str, SealedRecord]], object]:
    lines = [line for line in _content(path).removeprefix(BOM_UTF8).split(b"\n") if line.strip()]
    if not lines:
        raise InputError(str(path), ["is empty. Name a file that dunnage device seal wrote."])
    records, tag = [], None
    for number, line in enumerate(lines, 1):
        data = None
        with suppress(ValueError, RecursionError):
            data = json.loads(line)
        if number == len(lines) and isinstance(data, dict) and data.keys() == {"tag"} and data["tag"] is not None:
            tag = data["tag"]
            break
        if not isinstance(data, dict) or set(data) != {"alias", "sealed"} or not isinstance(data["alias"], str):
            problem = Problem(f"line {number} is not a sealed record, or is cut off", remedy="Use a copy of the file.")
            raise InputError(str(path), [problem])
        records.append((data["alias"], SealedRecord.from_json(json.dumps(data["sealed"]))))
    if twice := _repeated([name for name, _ in records]):
        remedy = "Keep one line for each vehicle."
        problem = Problem.in_rows("the alias of a sealed record comes twice", twice, remedy=remedy)
        raise InputError(str(path), [problem])
    return records, tag
