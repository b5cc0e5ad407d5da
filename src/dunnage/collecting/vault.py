# SPDX-License-Identifier: Apache-2.0
"""Vault: identity records that only two people together can open, each under a key of its own.

A vault is a private folder. Each record is sealed under its own random key, and that key is wrapped for the *platform
key*: an X25519 key pair whose public half lies in the vault and whose private half nobody has. It exists as shares, one
for each custodian, of which any two give the key back (Shamir, over bytes): one share alone is a random string.

- Sealing takes the public key alone, so a service can enrol vehicles and cannot open a record.
- Opening takes the shares of two people and a reason. Who opened which records when and why is written to a log, each
  line with the digest of the one before, before anything is opened.
- Erasing a vehicle deletes its key. Its sealed record may lie in backups for ever: nobody can open it. So leave
  ``keys.json`` out of backups that are kept, or erase there too.
- Rotating makes a new platform key and new shares, wraps all keys again and leaves the records as they are. Old shares
  open nothing of the new vault. Rotate when a custodian leaves.

``keys.json`` (platform key, custodians, wrapped keys) is the vault's state and is replaced as a whole; a record counts
if its key is there. So a crash at any moment leaves the state before a command, or the one after it.

The log is a record for honest people: two custodians who work around this program leave no line. Whoever can write the
folder can put a record of their own in place of another, and cannot read any.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from dunnage.collecting.identity import MAX_FILE_BYTES, NONCE_BYTES, decrypt, encrypt, locked_ring, padded, read_records
from dunnage.devices.report import packed, unpacked
from dunnage.errors import InputError, OutputError, ParameterError, Problem, SealError
from dunnage.folders import new_file, new_folder, sync_folder

FORMAT, ALGORITHM = 1, "AES-256-GCM"
KEYS_FILE, RECORDS_FILE, LOG_FILE = "keys.json", "records.jsonl", "log.jsonl"
MAX_CUSTODIANS = 100
_VAULT_KIND, _SHARE_KIND, _WRAPPED = "dunnage vault", "dunnage vault share", b"dunnage vault key 1"
_SHARE_FIELDS = {"format", "kind", "custodian", "platform", "share"}
_FIELDS = {"format", "kind", "platform", "public", "custodians", "keys"}
_DAMAGED = "is damaged, or of a later version. Use a copy."


# Shamir's scheme with threshold two, byte by byte in GF(2^8): share x of a byte s is s + x * r.
def _times(a: int, b: int) -> int:
    product = 0
    for bit in range(8):
        product ^= a << bit if b >> bit & 1 else 0
    for bit in range(14, 7, -1):  # modulo x^8 + x^4 + x^3 + x + 1
        product ^= 0x11B << bit - 8 if product >> bit & 1 else 0
    return product


def split(secret: bytes, num: int) -> list[bytes]:
    """Split a secret into shares, any two of which give it back; each begins with its number."""
    slope = secrets.token_bytes(len(secret))
    return [
        bytes([x, *(byte ^ _times(x, r) for byte, r in zip(secret, slope, strict=True))]) for x in range(1, num + 1)
    ]


def join(first: bytes, second: bytes) -> bytes:
    """Give a secret back from two different shares."""
    x, y = first[0], second[0]
    if x == y or len(first) != len(second):
        raise SealError("the shares of two different custodians are needed.")
    inverse = next(z for z in range(1, 256) if _times(z, x ^ y) == 1)
    # s = (y a + x b) / (x + y), where a and b are the shares of x and y.
    return bytes(_times(inverse, _times(y, a) ^ _times(x, b)) for a, b in zip(first[1:], second[1:], strict=True))


class Share(NamedTuple):
    """What one custodian keeps; of no use without another one."""

    custodian: str
    platform: str  # id of the platform key
    secret: bytes

    def __repr__(self) -> str:
        return f"<Share of {self.custodian}, platform key {self.platform}>"

    def write(self, path: str | os.PathLike[str]) -> None:
        if os.path.lexists(path):
            raise OutputError.taken(path)
        data = {"format": FORMAT, "kind": _SHARE_KIND, "custodian": self.custodian, "platform": self.platform}
        with new_file(path, private=True) as sink:
            sink.write(json.dumps(data | {"share": packed(self.secret)}, indent=2).encode() + b"\n")

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Share:
        data = _read_json(Path(path), _SHARE_FIELDS, _SHARE_KIND)
        if os.name == "posix" and os.stat(path).st_mode & 0o077:
            raise SealError(f"other users can read the share {path}. Make it private: chmod 600.")
        return cls.of(data, str(path))

    @classmethod
    def of(cls, data: Any, place: str = "the share") -> Share:
        """Make a share from the content of its file."""
        share = cls(str(data.get("custodian")), str(data.get("platform")), _bytes(data.get("share"), place))
        if not _has_form(data, _SHARE_FIELDS, _SHARE_KIND) or len(share.secret) != 33 or not share.secret[0]:
            raise InputError(place, [_DAMAGED])
        return share


Keep = Callable[[list[Share]], None]  # hands shares to their custodians


@dataclass
class Vault:
    folder: Path
    public: bytes = field(repr=False)
    platform: str  # id of the platform key
    custodians: tuple[str, ...]

    @classmethod
    def create(cls, folder: str | os.PathLike[str], custodians: Sequence[str], keep: Keep) -> Vault:
        """Make an empty vault, after its custodians have their shares (``keep``), which are nowhere else."""
        vault, shares = _new_platform(Path(os.path.abspath(folder)), custodians)
        with new_folder(folder, marker=KEYS_FILE, private=True) as work:
            keep(shares)
            (work / KEYS_FILE).write_bytes(vault._stated({}))
            (work / RECORDS_FILE).write_bytes(b"")
            (work / LOG_FILE).write_bytes(b"")
        vault._note("created", custodians=list(custodians))
        return vault

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Vault:
        place = Path(os.path.abspath(folder))
        data = _read_json(place / KEYS_FILE, _FIELDS, _VAULT_KIND)
        names = data["custodians"]
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise InputError(str(place / KEYS_FILE), [_DAMAGED])
        return cls(place, _bytes(data["public"], place / KEYS_FILE), str(data["platform"]), tuple(names))

    def seal(self, records: str | os.PathLike[str], *, alias: str = "vehicle") -> int:
        """Seal the rows of a CSV file, each under a new key; a row of a vehicle replaces its record."""
        return self.seal_rows(read_records(Path(records), alias))

    def seal_rows(self, rows: Sequence[tuple[str, dict[str, str]]], *, by: Sequence[str] = ()) -> int:
        with self._changing():
            keys, lines = self._keys(), self._lines()
            for name, record in rows:
                key, nonce, key_id = secrets.token_bytes(32), secrets.token_bytes(NONCE_BYTES), secrets.token_hex(8)
                sealed = encrypt(ALGORITHM, key, nonce, padded(record), self._bound(name))
                lines[name, key_id] = packed(nonce + sealed)
                keys[name] = f"{key_id}:{self._wrap(name, key)}"
            self._note("sealed", **_people(by), vehicles=[name for name, _ in rows])
            self._write_lines(lines)  # beside those that they replace
            self._replace(KEYS_FILE, self._stated(keys))
            self._prune()
        return len(rows)

    def reveal(self, vehicles: Sequence[str], shares: Sequence[Share], *, reason: str) -> dict[str, dict[str, object]]:
        """Open the records of some vehicles with the shares of two custodians; the log is written first."""
        if not reason.strip():
            raise ParameterError("opening a record needs a reason. It is written to the log.")
        private = self._private(shares)
        with self._changing():
            keys, lines = self._keys(), self._lines()
            places = {name: (name, keys[name].partition(":")[0]) for name in vehicles if name in keys}
            if missing := [name for name in vehicles if places.get(name) not in lines]:
                where = f"{len(missing)} of {len(vehicles)} vehicles have no record, or were erased"
                raise InputError(str(self.folder), [Problem(where, remedy="Name vehicles of the vault.")])
            self._note("opened", by=[share.custodian for share in shares], vehicles=list(vehicles), reason=reason)
        opened = {}
        for name in vehicles:
            key, data = self._unwrap(name, keys[name], private), _bytes(lines[places[name]], self.folder / RECORDS_FILE)
            plain = decrypt(ALGORITHM, key, data[:NONCE_BYTES], data[NONCE_BYTES:], self._bound(name))
            opened[name] = dict(json.loads(plain))
        return opened

    def erase(self, vehicle: str, *, reason: str, by: Sequence[str] = ()) -> None:
        """Delete the key of a vehicle: nobody can open its record any more, wherever copies of it lie."""
        if not reason.strip():
            raise ParameterError("erasing a record needs a reason. It is written to the log.")
        with self._changing():
            keys = self._keys()
            if vehicle not in keys:
                raise InputError(str(self.folder), [Problem("the vehicle has no record, or was erased")])
            del keys[vehicle]
            self._note("erased", **_people(by), vehicles=[vehicle], reason=reason)
            self._replace(KEYS_FILE, self._stated(keys))
            self._prune()

    def rotate(self, shares: Sequence[Share], custodians: Sequence[str], keep: Keep) -> Vault:
        """Make a new platform key, and wrap all keys for it after its custodians have their shares (``keep``)."""
        private = self._private(shares)
        renewed, made = _new_platform(self.folder, custodians)
        with self._changing():
            keys = {
                name: f"{text.partition(':')[0]}:{renewed._wrap(name, self._unwrap(name, text, private))}"
                for name, text in self._keys().items()
            }
            keep(made)
            self._note("rotated", by=[share.custodian for share in shares], custodians=list(custodians))
            self._replace(KEYS_FILE, renewed._stated(keys))
        return renewed

    @property
    def vehicles(self) -> list[str]:
        return sorted(self._keys())

    def log(self) -> list[dict[str, object]]:
        """Return the log, checked: each line has the digest of the one before."""
        entries, before = [], ""
        for number, line in enumerate(self._read(LOG_FILE).splitlines(), 1):
            try:
                entry = json.loads(line)
                sound = entry["before"] == before
            except (ValueError, KeyError, TypeError):
                sound = False
            if not sound:
                problem = Problem(f"line {number} does not follow from the one before: somebody changed the log")
                raise InputError(str(self.folder / LOG_FILE), [problem])
            entries.append(entry)
            before = hashlib.sha256(line).hexdigest()
        return entries

    def _note(self, what: str, **facts: object) -> None:
        lines = self._read(LOG_FILE).splitlines()
        before = hashlib.sha256(lines[-1]).hexdigest() if lines else ""
        entry = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "what": what, **facts, "before": before}
        with open(self.folder / LOG_FILE, "ab") as sink:
            sink.write(json.dumps(entry).encode("ascii") + b"\n")
            sink.flush()
            os.fsync(sink.fileno())

    def _bound(self, name: str) -> bytes:
        return json.dumps(["dunnage identity", FORMAT, ALGORITHM, name]).encode("ascii")

    def _wrap(self, name: str, key: bytes) -> str:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

        once = X25519PrivateKey.generate()
        shared = once.exchange(X25519PublicKey.from_public_bytes(self.public))
        sender = once.public_key().public_bytes_raw()
        # The wrapping key is used once, so a fixed nonce is safe.
        wrapped = encrypt(ALGORITHM, _derived(shared, sender, self.public), bytes(NONCE_BYTES), key, self._bound(name))
        return packed(sender + wrapped)

    def _unwrap(self, name: str, text: str, private: Any) -> bytes:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

        data = _bytes(text.partition(":")[2], self.folder / KEYS_FILE)
        shared = private.exchange(X25519PublicKey.from_public_bytes(data[:32]))
        wrapping = _derived(shared, data[:32], private.public_key().public_bytes_raw())
        return decrypt(ALGORITHM, wrapping, bytes(NONCE_BYTES), data[32:], self._bound(name))

    def _private(self, shares: Sequence[Share]) -> Any:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        if len(shares) != 2 or shares[0].custodian == shares[1].custodian:
            raise SealError("the shares of two different custodians are needed.")
        for share in shares:
            self.check_share(share)
        private = X25519PrivateKey.from_private_bytes(join(shares[0].secret, shares[1].secret))
        if private.public_key().public_bytes_raw() != self.public:
            raise SealError("the shares do not give the platform key. One of them is damaged.")
        return private

    def check_share(self, share: Share) -> None:
        if share.platform != self.platform or share.custodian not in self.custodians:
            raise SealError("a share belongs to another vault, or to an earlier platform key. Use the latest shares.")

    @contextmanager
    def _changing(self) -> Iterator[None]:
        with locked_ring(self.folder / KEYS_FILE):
            yield

    def _stated(self, keys: Mapping[str, str]) -> bytes:
        data = {"format": FORMAT, "kind": _VAULT_KIND, "platform": self.platform, "public": packed(self.public)}
        return json.dumps(data | {"custodians": self.custodians, "keys": dict(keys)}, indent=1).encode("ascii") + b"\n"

    def _keys(self) -> dict[str, str]:
        """Return the id of the key and the wrapped key of each vehicle."""
        data = _read_json(self.folder / KEYS_FILE, _FIELDS, _VAULT_KIND)
        keys = data["keys"]
        if not isinstance(keys, dict) or not all(isinstance(text, str) for text in keys.values()):
            raise InputError(str(self.folder / KEYS_FILE), [_DAMAGED])
        if data["platform"] != self.platform:
            raise SealError("the vault has another platform key by now. Open it again, with its latest shares.")
        return dict(keys)

    def _lines(self) -> dict[tuple[str, str], str]:
        """Return the sealed records by vehicle and id of their key."""
        lines = {}
        for line in self._read(RECORDS_FILE).splitlines():
            try:
                entry = json.loads(line)
                lines[str(entry["vehicle"]), str(entry["key"])] = str(entry["sealed"])
            except (ValueError, KeyError, TypeError):
                raise InputError(str(self.folder / RECORDS_FILE), [_DAMAGED]) from None
        return lines

    def _prune(self) -> None:
        keys = {(name, text.partition(":")[0]) for name, text in self._keys().items()}
        self._write_lines({place: sealed for place, sealed in self._lines().items() if place in keys})

    def _write_lines(self, lines: Mapping[tuple[str, str], str]) -> None:
        entries = ({"vehicle": name, "key": key_id, "sealed": sealed} for (name, key_id), sealed in lines.items())
        self._replace(RECORDS_FILE, "".join(json.dumps(entry) + "\n" for entry in entries).encode("ascii"))

    def _replace(self, name: str, content: bytes) -> None:
        with new_file(self.folder / name, private=True) as sink:
            sink.write(content)
        sync_folder(self.folder)

    def _read(self, name: str) -> bytes:
        return _content(self.folder / name)


def _new_platform(folder: Path, custodians: Sequence[str]) -> tuple[Vault, list[Share]]:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    names = [name.strip() for name in custodians]
    if not 2 <= len(names) <= MAX_CUSTODIANS or len(set(names)) < len(names) or not all(names):
        raise ParameterError(f"a vault needs 2 to {MAX_CUSTODIANS} custodians with different names.")
    private, platform = X25519PrivateKey.generate(), secrets.token_hex(8)
    shares = split(private.private_bytes_raw(), len(names))
    vault = Vault(folder, private.public_key().public_bytes_raw(), platform, tuple(names))
    return vault, [Share(name, platform, share) for name, share in zip(names, shares, strict=True)]


def _people(by: Sequence[str]) -> dict[str, list[str]]:
    return {"by": list(by)} if by else {}  # nobody is known on the command line


def _derived(shared: bytes, sender: bytes, public: bytes) -> bytes:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=_WRAPPED + sender + public).derive(shared)


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as source:
            content = source.read(MAX_FILE_BYTES)
    except OSError as error:
        raise InputError(str(path), [f"cannot be read: {error.strerror}. Name a vault, or a share of one."]) from None
    return content


def _read_json(path: Path, names: set[str], kind: str) -> Any:
    try:
        data = json.loads(_content(path))
        if not _has_form(data, names, kind):
            raise ValueError
    except (ValueError, TypeError, RecursionError):
        raise InputError(str(path), [_DAMAGED]) from None
    return data


def _has_form(data: Any, names: set[str], kind: str) -> bool:
    return set(data) == names and data["format"] == FORMAT and data["kind"] == kind


def _bytes(text: object, path: Path | str) -> bytes:
    try:
        return unpacked(text)
    except ValueError:
        raise InputError(str(path), [_DAMAGED]) from None
