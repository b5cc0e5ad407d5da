# SPDX-License-Identifier: Apache-2.0
"""Unlinkable tokens, the platform's side: one RSA key a task and day, blind signatures for devices, and their check.

:class:`Issuer` keeps a private folder: the key of each open day and a list of who requested tokens of which day. It
signs one request of a device and day, of at most one token for each slot and purpose; the same request again gets the
same answer, another one is refused. So one enrolled device sends at most as many reports as the schedule has for it,
even if somebody takes it over. The list says nothing about reports.

:func:`valid_tokens` checks the tokens of reports. Whether one was spent before needs no list of its own: a token is for
one report id, and an id counts once.
"""

from __future__ import annotations

import hashlib
import math
import os
import secrets
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from dunnage.devices.report import day_text
from dunnage.devices.task import Task
from dunnage.devices.tokens import EXPONENT, KEY_BITS, SALT_BYTES, TokenKey
from dunnage.errors import InternalError, OutputError, ParameterError, Refusal
from dunnage.folders import new_file, sync_folder

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPrivateNumbers, RSAPublicKey

_LIST = "requests.sqlite"
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS requests (device TEXT NOT NULL, day INTEGER NOT NULL, digest BLOB NOT NULL, "
    "PRIMARY KEY (device, day)) WITHOUT ROWID"
)


class Issuer:
    def __init__(self, folder: str | os.PathLike[str], task: Task) -> None:
        self.folder, self.task = Path(os.path.abspath(folder)), task
        try:
            self.folder.mkdir(mode=0o700, exist_ok=True)
            with closing(self._opened()) as book:
                book.execute(_SCHEMA)
        except (OSError, sqlite3.Error) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise OutputError(f"the folder of token keys {self.folder} cannot be used: {reason}.") from None
        self._keys: dict[int, RSAPrivateKey] = {}

    def __repr__(self) -> str:
        return f"<Issuer of task {self.task.digest[:16]}>"

    @property
    def num_tokens(self) -> int:
        return self.task.schedule.slots_per_day * len(self.task.purposes)

    def key(self, day: int) -> TokenKey:
        """Return the public key of a day, which is made when it is first needed."""
        if not self.task.schedule.covers(day):
            raise Refusal(f"the task does not collect on {day_text(day)}. Ask for a day of the task.")
        modulus = self._private(day).public_key().public_numbers().n
        return TokenKey(task=self.task.digest, day=day, modulus=modulus)

    def sign(self, device: str, day: int, blinded: Sequence[bytes]) -> list[bytes]:
        """Sign the blinded messages of a device for a day: once, or the same ones again."""
        key = self.key(day)
        numbers = [int.from_bytes(message, "big") for message in blinded]
        # RFC 9474, 4.3: a number below the modulus. The gcd keeps out numbers that no device blinds.
        sound = all(len(message) == key.num_bytes for message in blinded)
        sound = sound and all(1 < number < key.modulus and math.gcd(number, key.modulus) == 1 for number in numbers)
        if not sound or not 1 <= len(set(numbers)) == len(numbers) <= self.num_tokens:
            raise ParameterError(
                f"a request must have 1 to {self.num_tokens} different blinded messages of {key.num_bytes} bytes. "
                "Send what the wallet requests."
            )
        digest = hashlib.sha256(b"".join(blinded)).digest()
        with closing(self._opened()) as book:  # durable before anything is signed
            book.execute("INSERT OR IGNORE INTO requests VALUES (?, ?, ?)", (device, day, digest))
            (noted,) = book.execute(
                "SELECT digest FROM requests WHERE device = ? AND day = ?", (device, day)
            ).fetchone()
        if noted != digest:
            raise Refusal(
                f"this device has its tokens for {day_text(day)} already. It gets the same ones again, and no others."
            )
        private = self._private(day).private_numbers()
        return [_signed(private, number).to_bytes(key.num_bytes, "big") for number in numbers]

    def forget(self, before: int) -> None:
        """Destroy the keys of days that have closed, and the list of who requested their tokens."""
        for path in self.folder.glob("*.pem"):
            if path.stem < day_text(before):
                path.unlink()
        sync_folder(self.folder)
        self._keys = {day: key for day, key in self._keys.items() if day >= before}
        with closing(self._opened()) as book:
            book.execute("DELETE FROM requests WHERE day < ?", (before,))

    def erase(self, device: str) -> None:
        """Remove a device from the list of requests. Its tokens cannot be told from others, and stay valid."""
        with closing(self._opened()) as book:
            book.execute("DELETE FROM requests WHERE device = ?", (device,))

    def _opened(self) -> sqlite3.Connection:
        book = sqlite3.connect(self.folder / _LIST, timeout=30, isolation_level=None)
        book.execute("PRAGMA synchronous=FULL")
        book.execute("PRAGMA secure_delete=ON")
        return book

    def _private(self, day: int) -> RSAPrivateKey:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import rsa

        if day not in self._keys:
            path = self.folder / f"{day_text(day)}.pem"
            if not path.exists():
                made = rsa.generate_private_key(public_exponent=EXPONENT, key_size=KEY_BITS)
                form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
                content = made.private_bytes(serialization.Encoding.PEM, *form)
                draft = path.with_suffix(f".{secrets.token_hex(6)}")
                with new_file(draft, private=True) as sink:
                    sink.write(content)
                try:  # the first process that makes a key wins, so that all devices get the same one
                    os.link(draft, path)
                except FileExistsError:
                    pass
                finally:
                    draft.unlink()
                sync_folder(self.folder)
            loaded = serialization.load_pem_private_key(path.read_bytes(), password=None)
            if not isinstance(loaded, rsa.RSAPrivateKey):
                raise InternalError("the key of a day is no RSA key.")
            self._keys[day] = loaded
        return self._keys[day]


def _signed(key: RSAPrivateNumbers, number: int) -> int:
    """Return RSASP1 of a number, by the Chinese remainder theorem, checked (RFC 9474, 4.3)."""
    modulus = key.public_numbers.n
    # The number is a stranger's: a random factor keeps the time from depending on it and on the key's primes.
    factor = 1 + secrets.randbelow(modulus - 1)
    masked = number * pow(factor, EXPONENT, modulus) % modulus
    of_p, of_q = pow(masked, key.dmp1, key.p), pow(masked, key.dmq1, key.q)
    root = (of_q + key.q * (key.iqmp * (of_p - of_q) % key.p)) * pow(factor, -1, modulus) % modulus
    if pow(root, EXPONENT, modulus) != number:  # a wrong root would give the primes away
        raise InternalError("a signature is wrong. Check the machine's memory.")
    return root


def valid_tokens(key: TokenKey, report_ids: Sequence[bytes], signatures: Sequence[bytes]) -> list[bool]:
    """Return which signatures are valid for the ids of their reports."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import padding

    public, scheme = _public(key.modulus), padding.PSS(mgf=padding.MGF1(hashes.SHA384()), salt_length=SALT_BYTES)
    algorithm, valid = hashes.SHA384(), []
    for report_id, signature in zip(report_ids, signatures, strict=True):
        try:
            public.verify(signature, key.message(report_id), scheme, algorithm)
        except InvalidSignature:
            valid.append(False)
        else:
            valid.append(True)
    return valid


@lru_cache(maxsize=16)
def _public(modulus: int) -> RSAPublicKey:
    from cryptography.hazmat.primitives.asymmetric import rsa

    return rsa.RSAPublicNumbers(EXPONENT, modulus).public_key()
