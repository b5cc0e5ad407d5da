# SPDX-License-Identifier: Apache-2.0
"""Unlinkable tokens, the device's side: blind RSA signatures (RSABSSA-SHA384-PSS-Deterministic, RFC 9474) of ids.

For each day the collector has one RSA key a task. In its own name, a device asks for one signature for each report that
it will send on the day. It chooses the report ids first and sends them *blinded*: multiplied by a random number that
only it knows, so that the collector signs without learning an id. Later the report travels without a name, with its id
and the signature: the collector sees that *some* enrolled device was allowed this report, and not which. An id is spent
when its report counts, so the ids that the collector keeps against copies are also its list of spent tokens.

A :class:`Wallet`, a private file, keeps the tokens. Until the answer of the collector is in, a request is repeated byte
for byte: the collector signs the same request of a device again, and no other one of the same day. Which token a report
takes follows from its slot and purpose, so a report that was lost before it was stored takes the same id again.

``docs/proofs/unlinkable-tokens.md`` says what this hides and what it does not. Messages need no random
prefix here (*deterministic*): an id has 128 random bits, and each signature 384 bits of salt.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from dunnage.devices.report import ID_BYTES, day_text, packed, unpacked
from dunnage.devices.task import PREFIX_BYTES, Task, check_keys, day_number, parse_json
from dunnage.errors import AllowanceError, ParameterError, ReportError
from dunnage.folders import new_file, sync_folder
from dunnage.noise.source import Noise

EXPONENT = 65537
KEY_BITS = 2048
SALT_BYTES = HASH_BYTES = 48  # SHA-384
MAX_WALLET = 1 << 24
_KEY_KIND, _WALLET_KIND, FORMAT = "dunnage token key", "dunnage token wallet", 1
_PADDING = b"dunnage token 1\0"
_REMEDY = "Fetch the tokens of the day again."


@dataclass(frozen=True, kw_only=True)
class TokenKey:
    """The public key of a task and day, which must be the same for every device."""

    task: str  # digest of the task
    day: int
    modulus: int

    def __post_init__(self) -> None:
        sound = isinstance(self.modulus, int) and self.modulus.bit_length() % 8 == 0 and self.modulus % 2
        if not sound or not KEY_BITS <= self.modulus.bit_length() <= 2 * KEY_BITS:
            raise ReportError(f"the key of a token must be odd and have {KEY_BITS} to {2 * KEY_BITS} bits. {_REMEDY}")

    @property
    def num_bytes(self) -> int:
        return self.modulus.bit_length() // 8

    def to_json(self) -> str:
        number = packed(self.modulus.to_bytes(self.num_bytes, "big"))
        return json.dumps(
            {"format": FORMAT, "kind": _KEY_KIND, "task": self.task, "day": day_text(self.day), "modulus": number},
            separators=(",", ":"),
        )

    @property
    def digest(self) -> str:
        """What devices compare: a collector with a key for each device could tell devices apart."""
        return hashlib.sha256(self.to_json().encode("ascii")).hexdigest()

    @classmethod
    def from_json(cls, text: str | bytes) -> TokenKey:
        data = parse_json(text, what="the key of tokens", most_bytes=1 << 12, error=ReportError)
        given = check_keys(data, "the key of tokens", ("format", "kind", "task", "day", "modulus"), (), ReportError)
        try:
            if given["format"] != FORMAT or given["kind"] != _KEY_KIND or not isinstance(given["task"], str):
                raise ValueError
            modulus = int.from_bytes(unpacked(given["modulus"]), "big")
            return cls(task=given["task"], day=day_number(given["day"]), modulus=modulus)
        except ValueError:
            raise ReportError(f"the key of tokens is damaged, or of a later version. {_REMEDY}") from None

    def message(self, report_id: bytes) -> bytes:
        """Return what is signed: the id, with the task and the day, so that a signature is valid for no other."""
        return _PADDING + bytes.fromhex(self.task) + self.day.to_bytes(4, "big") + report_id


def _masked(data: bytes, seed: bytes) -> bytes:
    """Return data, exclusive or MGF1 with SHA-384 of the seed (RFC 8017, B.2.1)."""
    num_blocks = -(-len(data) // HASH_BYTES)
    mask = b"".join(hashlib.sha384(seed + at.to_bytes(4, "big")).digest() for at in range(num_blocks))[: len(data)]
    return bytes(a ^ b for a, b in zip(data, mask, strict=True))


def _encoded(message: bytes, salt: bytes, num_bits: int) -> bytes:
    """Return EMSA-PSS-ENCODE of a message (RFC 8017, 9.1.1)."""
    num_bytes = -(-num_bits // 8)
    digest = hashlib.sha384(bytes(8) + hashlib.sha384(message).digest() + salt).digest()
    block = bytes(num_bytes - len(salt) - HASH_BYTES - 2) + b"\1" + salt
    masked = bytearray(_masked(block, digest))
    masked[0] &= 0xFF >> 8 * num_bytes - num_bits
    return bytes(masked) + digest + b"\xbc"


def is_signed(modulus: int, message: bytes, signature: bytes) -> bool:
    """Return whether a signature is valid (RSASSA-PSS-VERIFY with SHA-384 and a salt of 48 bytes; RFC 8017, 8.1.2)."""
    number, num_bits = int.from_bytes(signature, "big"), modulus.bit_length() - 1
    if len(signature) != -(-modulus.bit_length() // 8) or number >= modulus:
        return False
    num_bytes = -(-num_bits // 8)
    opened = pow(number, EXPONENT, modulus)
    if opened.bit_length() > num_bits:
        return False
    encoded = opened.to_bytes(num_bytes, "big")
    digest = encoded[-HASH_BYTES - 1 : -1]
    salt = _masked(encoded[: -HASH_BYTES - 1], digest)[-SALT_BYTES:]
    return encoded == _encoded(message, salt, num_bits)  # a function of the salt, so equal exactly if valid


class Blinded(NamedTuple):
    message: bytes  # what the collector signs
    inverse: int  # what takes the blinding out again; secret


def blind(modulus: int, message: bytes, salt: bytes, factor: int) -> Blinded:
    """Blind a message (RFC 9474, 4.2) with a random salt and factor; refuse numbers that the modulus divides."""
    encoded = int.from_bytes(_encoded(message, salt, modulus.bit_length() - 1), "big")
    if math.gcd(encoded, modulus) != 1 or math.gcd(factor, modulus) != 1:
        raise ReportError(f"the key of tokens is no RSA key. {_REMEDY}")  # or its factors were guessed
    blinded = encoded * pow(factor, EXPONENT, modulus) % modulus
    return Blinded(blinded.to_bytes(modulus.bit_length() // 8, "big"), pow(factor, -1, modulus))


def finalize(modulus: int, message: bytes, signed: bytes, inverse: int) -> bytes:
    """Take the blinding out of the collector's answer (RFC 9474, 4.4); refuse an answer that is no signature."""
    size = modulus.bit_length() // 8
    signature = (int.from_bytes(signed, "big") * inverse % modulus).to_bytes(size, "big")
    if len(signed) != size or not is_signed(modulus, message, signature):
        raise ReportError(f"the collector's answer is no valid token. {_REMEDY}")
    return signature


class Wallet:
    """The tokens of one device, by day, in a private file that is replaced as a whole."""

    def __init__(self, path: str | os.PathLike[str], task: Task, noise: Noise | None = None) -> None:
        self.path, self.task, self._noise = os.path.abspath(path), task, noise or Noise()
        # By day: its key, and id, blinded message, inverse and signature of each token
        self._days: dict[int, tuple[TokenKey, list[dict[str, str]]]] = {}
        if os.path.lexists(self.path):
            self._read()

    @property
    def num_tokens(self) -> int:
        """How many tokens a device gets for a day: one for each slot and purpose."""
        return self.task.schedule.slots_per_day * len(self.task.purposes)

    def __repr__(self) -> str:
        return f"<Wallet of task {self.task.digest[:16]}, {len(self._days)} days>"

    def request(self, key: TokenKey) -> list[bytes]:
        """Return the blinded messages to have signed for a day; until they are, always the same ones."""
        if key.task != self.task.digest:
            raise ReportError("the key of tokens belongs to another task. Fetch the key of this task.")
        own = self._days.get(key.day)
        if own is not None and own[0] != key:
            # Another key for the same day may be a way to recognise this device.
            raise ReportError(f"the collector has another key for {day_text(key.day)} than before. Ask its operator.")
        if own is None:
            tokens = []
            for _ in range(self.num_tokens):
                report_id, salt = self._noise.draw_bytes(ID_BYTES), self._noise.draw_bytes(SALT_BYTES)
                factor = 1 + self._noise.below(key.modulus - 1)
                blinded = blind(key.modulus, key.message(report_id), salt, factor)
                inverse = blinded.inverse.to_bytes(key.num_bytes, "big")
                values = {"id": report_id.hex(), "blinded": packed(blinded.message), "inverse": packed(inverse)}
                tokens.append(values)
            own = self._days[key.day] = key, tokens
            self._write()  # before anything is sent
        return [unpacked(token["blinded"]) for token in own[1] if "blinded" in token]

    def accept(self, day: int, signed: Sequence[bytes]) -> None:
        """Take the collector's answer to a request; all of it, or nothing."""
        key, tokens = self._days.get(day, (None, []))
        if key is None or len(signed) != len(tokens) or not all("blinded" in token for token in tokens):
            raise ReportError("the answer does not belong to a request of this wallet. Request the tokens again.")
        done = []
        for token, answer in zip(tokens, signed, strict=True):
            inverse = int.from_bytes(unpacked(token["inverse"]), "big")
            message = key.message(bytes.fromhex(token["id"]))
            done.append({"id": token["id"], "signature": packed(finalize(key.modulus, message, answer, inverse))})
        self._days[day] = key, done
        self._write()

    def has(self, day: int) -> bool:
        """Return whether the tokens of a day are signed."""
        return day in self._days and all("signature" in token for token in self._days[day][1])

    def report_id(self, day: int, place: int) -> bytes:
        """Return the id of a report, by its place among the reports of the day; nothing may be sent without one."""
        _, tokens = self._days.get(day, (None, []))
        if not 0 <= place < len(tokens) or "signature" not in tokens[place]:
            raise AllowanceError(
                f"there is no token for a report of {day_text(day)}. Fetch the tokens of the day first."
            )
        return bytes.fromhex(tokens[place]["id"])

    def signature(self, day: int, report_id: bytes) -> bytes:
        for token in self._days.get(day, (None, []))[1]:
            if token["id"] == report_id.hex() and "signature" in token:
                return unpacked(token["signature"])
        raise AllowanceError("the report has no token of this wallet. It was made without it.")

    def forget(self, before: int) -> None:
        """Drop the tokens of days that have closed."""
        if closed := [day for day in self._days if day < before]:
            for day in closed:
                del self._days[day]
            self._write()

    def _write(self) -> None:
        days = {day_text(day): {"key": key.to_json(), "tokens": own} for day, (key, own) in self._days.items()}
        data = {"format": FORMAT, "kind": _WALLET_KIND, "task": self.task.digest, "days": days}
        with new_file(self.path, private=True) as sink:
            sink.write(json.dumps(data).encode("ascii"))
        sync_folder(os.path.dirname(self.path))

    def _read(self) -> None:
        def damaged(text: str) -> AllowanceError:
            return AllowanceError(f"the wallet {self.path} cannot be read: {text} Delete it and fetch tokens again.")

        try:
            with open(self.path, "rb") as source:
                content = source.read(MAX_WALLET + 1)
        except OSError as error:
            raise damaged(f"{error.strerror}.") from None
        data = parse_json(content, what="a wallet", most_bytes=MAX_WALLET, error=damaged)
        given = check_keys(data, "a wallet", ("format", "kind", "task", "days"), (), damaged)
        if given["task"] != self.task.digest:
            raise AllowanceError("the wallet belongs to another task. Use one wallet for each task.")
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            if given["kind"] == _WALLET_KIND and given["format"] == FORMAT:
                for day, own in given["days"].items():
                    self._days[day_number(day)] = TokenKey.from_json(own["key"]), [_token(one) for one in own["tokens"]]
                return
        raise damaged("it is damaged.")


def _token(data: Any) -> dict[str, str]:
    names = {"id", "signature"} if "signature" in data else {"id", "blinded", "inverse"}
    if set(data) != names or len(bytes.fromhex(data["id"])) != ID_BYTES:
        raise ValueError
    for name in names - {"id"}:
        unpacked(data[name])
    return dict(data)


def with_token(report: bytes, signature: bytes) -> bytes:
    """Return a report as it travels with a token: its length in four bytes, the report, the signature."""
    return len(report).to_bytes(4, "big") + report + signature


def split_tokens(data: bytes, size: int) -> tuple[list[bytes], list[bytes]]:
    """Split what :func:`with_token` joined into reports and signatures of ``size`` bytes."""
    reports, signatures, at = [], [], 0
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        if end - at < 4 + 1 + PREFIX_BYTES or end + size > len(data):
            raise ParameterError("a report is cut off, or has no token. Send reports as with_token() writes them.")
        reports.append(data[at + 4 : end])
        signatures.append(data[end : end + size])
        at = end + size
    return reports, signatures
