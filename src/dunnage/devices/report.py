# SPDX-License-Identifier: Apache-2.0
"""Report: one perturbed message of a device, in a binary and a JSON form, and files of them.

Binary form, numbers as variable-length integers (seven bits a byte, the lowest first, as short as they can be)::

    version 2 | first 8 bytes of the task's digest | purpose | tier | day | slot
              | report id, 16 bytes | length | payload | CRC-32

Version 1, which is still read, has ids of 8 bytes; they count as ids of 16 bytes that end in zeros.

The CRC-32 covers everything before it, most significant byte first. It detects accidents (every single flipped bit,
every damaged run of up to 32 bits), not forgery: anyone can compute it. The channel must say who sent a report. The
JSON form has the same fields, ``day`` as a date, ``payload`` in Base64, and the CRC-32 of the binary form.

A report file is JSON lines (``.jsonl``) or binary (``.bin``): each report after its length in four bytes, most
significant first. Both kinds may be joined end to end. Reading is strict: a report that is damaged, or made for another
task, is a :class:`~dunnage.errors.ReportError` that says why.
"""

from __future__ import annotations

import binascii
import json
import os
import zlib
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date
from io import BufferedReader
from typing import IO, Any, NamedTuple

from dunnage.devices.numbers import varint
from dunnage.devices.task import MAX_DAYS, MINUTES_PER_DAY, PREFIX_BYTES, Task, check_keys, parse_json
from dunnage.errors import InputError, OutputError, ParameterError, Problem, ReportError
from dunnage.folders import new_file, sync_folder

ID_BYTES = 16
BYTES_OF_ID = {1: 8, 2: ID_BYTES}  # by version
MAX_PAYLOAD = 1 << 20
MAX_REPORT = MAX_PAYLOAD + 64
MAX_LINE = 2 * MAX_REPORT
MAX_BAD_NAMED = 20

_KEYS = ("format", "task", "purpose", "tier", "day", "slot", "id", "payload", "crc32")
_EPOCH = date(1970, 1, 1).toordinal()
MAX_INDEX = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Report:
    """One perturbed message.

    Examples
    --------
    >>> report = Report(task=bytes(8), purpose=0, tier=0, day=20773, slot=7, report_id=bytes(16), payload=b"abc")
    >>> Report.from_bytes(report.to_bytes()) == report == Report.from_json(report.to_json())
    True
    """

    task: bytes  # first 8 bytes of the task's digest
    purpose: int  # purpose, tier: which purpose of the task, and which of its tiers
    tier: int
    day: int  # day, slot: which slot: days after 1 January 1970, and moments after midnight
    slot: int
    report_id: bytes  # 16 random bytes, 8 in version 1; equal copies count once, an id with two contents never
    payload: bytes = field(repr=False)  # what the mechanism wrote

    def __post_init__(self) -> None:
        for value, what, sizes, size in (
            (self.task, "the task digest", (PREFIX_BYTES,), f"{PREFIX_BYTES}"),
            (self.report_id, "the report id", BYTES_OF_ID.values(), f"{ID_BYTES} (version 1: {BYTES_OF_ID[1]})"),
            (self.payload, "the payload", range(MAX_PAYLOAD + 1), f"at most {MAX_PAYLOAD}"),
        ):
            if not isinstance(value, bytes) or len(value) not in sizes:
                got = f"{len(value)} bytes" if isinstance(value, bytes) else type(value).__name__
                raise ReportError(f"{what} of a report must be {size} bytes. Got {got}. {_AGAIN}")
        for name, most in _MAX.items():
            number = getattr(self, name)
            if type(number) is not int or not 0 <= number <= most:
                raise ReportError(f"the {name} of a report must be a whole number from 0 to {most}. {_AGAIN}")

    @property
    def version(self) -> int:
        return 2 if len(self.report_id) == ID_BYTES else 1

    def to_bytes(self) -> bytes:
        numbers = b"".join(varint(getattr(self, name)) for name in _MAX)
        body = bytes((self.version,)) + self.task + numbers + self.report_id + varint(len(self.payload)) + self.payload
        return body + zlib.crc32(body).to_bytes(4, "big")

    def to_json(self) -> str:
        fields = {
            "format": self.version,
            "task": self.task.hex(),
            "purpose": self.purpose,
            "tier": self.tier,
            "day": day_text(self.day),
            "slot": self.slot,
            "id": self.report_id.hex(),
            "payload": packed(self.payload),
            "crc32": self.to_bytes()[-4:].hex(),
        }
        return json.dumps(fields, separators=(",", ":"))

    @classmethod
    def from_bytes(cls, data: bytes, *, task: Task | None = None) -> Report:
        """Read the binary form, all of it; with a task, only a report made for it."""
        if not isinstance(data, bytes | bytearray | memoryview):
            raise ReportError(f"a report must be bytes. Got {type(data).__name__}. Pass what the device sent.")
        content, at = bytes(data), 0

        def take(count: int) -> bytes:
            nonlocal at
            part = content[at : at + count]
            at += count
            if len(part) < count:
                raise ReportError(f"the report is cut off. Got {len(content)} bytes. {_AGAIN}")
            return part

        def take_number(name: str, most: int) -> int:
            number = shift = 0
            while True:
                group = take(1)[0]
                number |= (group & 0x7F) << shift
                shift += 7
                if group < 0x80:
                    break
                if shift > 28:
                    raise ReportError(f"the {name} of the report is damaged. Got more than 5 bytes. {_AGAIN}")
            if number > most or (group == 0 and shift > 7):  # only the shortest way to write a number is valid
                raise ReportError(f"the {name} of the report is damaged. Got {number}. {_AGAIN}")
            return number

        if len(content) > MAX_REPORT:
            raise ReportError(f"a report has at most {MAX_REPORT} bytes. Got {len(content)}. {_AGAIN}")
        if (version := take(1)[0]) not in BYTES_OF_ID:
            raise ReportError(f"this software reads reports of version {_VERSIONS}. Got {version}. Update Dunnage.")
        prefix = take(PREFIX_BYTES)
        numbers = {name: take_number(name, most) for name, most in _MAX.items()}
        report_id = take(BYTES_OF_ID[version])
        payload = take(take_number("length", MAX_PAYLOAD))
        body = content[:at]
        checksum = take(4)
        if at < len(content):
            raise ReportError(f"{len(content) - at} bytes follow the report. {_AGAIN}")
        if checksum != zlib.crc32(body).to_bytes(4, "big"):
            raise ReportError(f"the report is damaged: its checksum is wrong. {_AGAIN}")
        report = cls(task=prefix, report_id=report_id, payload=payload, **numbers)
        if task is not None:
            report.check(task)
        return report

    @classmethod
    def from_json(cls, text: str | bytes, *, task: Task | None = None) -> Report:
        """Read the JSON form; with a task, only a report made for it."""
        parsed = parse_json(text, what="a report", most_bytes=MAX_LINE, error=ReportError)
        version = parsed.get("format", 1) if isinstance(parsed, dict) else 1
        if type(version) is not int or version not in BYTES_OF_ID:  # another version may have other keys
            got = f"Got {version}" if type(version) is int and abs(version) < 1 << 32 else "Got another"
            raise ReportError(
                f"this software reads reports of version {_VERSIONS}. {got}. Update Dunnage, or fix the report."
            )
        given = check_keys(parsed, "a report", _KEYS, (), ReportError)
        try:
            report = cls(
                task=_hexed(given["task"]),
                report_id=_hexed(given["id"]),
                payload=unpacked(given["payload"]),
                day=_day(given["day"]),
                **{name: given[name] for name in ("purpose", "tier", "slot")},
            )
            checksum = _hexed(given["crc32"])
        except (ValueError, TypeError) as error:
            raise ReportError(f"a field of the report is damaged: {str(error)[:80]}. {_AGAIN}") from None
        if checksum != report.to_bytes()[-4:] or version != report.version:
            raise ReportError(f"the report is damaged: its checksum is wrong. {_AGAIN}")
        if task is not None:
            report.check(task)
        return report

    def check(self, task: Task) -> None:
        if self.task != task.prefix:
            raise ReportError(
                f"the report belongs to another task: {self.task.hex()}, not {task.prefix.hex()}. Read it with its own "
                "task."
            )
        if self.purpose >= len(task.purposes):
            raise ReportError(f"the task has {len(task.purposes)} purposes. Got number {self.purpose}. {_AGAIN}")
        tiers = task.purposes[self.purpose].tiers
        if self.tier >= len(tiers):
            raise ReportError(f"the purpose has {len(tiers)} tiers. Got number {self.tier}. {_AGAIN}")
        if not task.schedule.chooses(self.slot):
            raise ReportError(f"no device of the task chooses slot {self.slot} of a day. {_AGAIN}")


_MAX = {"purpose": MAX_INDEX, "tier": MAX_INDEX, "day": MAX_DAYS, "slot": MINUTES_PER_DAY - 1}
CUT_OFF = "the file is cut off or damaged here; the rest cannot be read"
_VERSIONS = " and ".join(map(str, BYTES_OF_ID))
_AGAIN = "Have the device send its stored report again."


def _hexed(text: Any) -> bytes:
    if not isinstance(text, str) or not all(digit in "0123456789abcdef" for digit in text):
        raise ValueError("not hexadecimal digits in lower case")
    return bytes.fromhex(text)


def packed(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode("ascii")


def unpacked(text: object) -> bytes:
    """Read Base64 exactly as :func:`packed` writes it; anything else is a ``ValueError``."""
    data = binascii.a2b_base64(text) if isinstance(text, str) and text.isascii() else b""
    if packed(data) != text:  # a2b_base64 skips characters that it does not know
        raise ValueError("not canonical Base64")
    return data


def day_text(day: int) -> str:
    return date.fromordinal(_EPOCH + day).isoformat()


def _day(text: Any) -> int:
    if not isinstance(text, str) or len(text) != 10 or not text.isascii():
        raise ValueError("not a date like 2026-11-16")
    return date.fromisoformat(text).toordinal() - _EPOCH


class BadReport(NamedTuple):
    where: str  # for example "line 7" or "byte 4096"
    why: str

    def __str__(self) -> str:
        return f"{self.where}: {self.why}"


class ReportFile:
    """The reports of a file, and a count of unreadable ones; each iteration starts from the beginning."""

    def __init__(self, path: str | os.PathLike[str], *, task: Task | None = None) -> None:
        self.path, self.task = str(os.fspath(path)), task
        self._binary = _is_binary(self.path)
        self.num_read = self.num_bad = 0
        self.first_bad: list[BadReport] = []

    def __iter__(self) -> Iterator[Report]:
        self.num_read, self.num_bad, self.first_bad = 0, 0, []
        read = Report.from_bytes if self._binary else Report.from_json
        try:
            with open(self.path, "rb") as source:
                for where, data in self._blocks(source) if self._binary else self._lines(source):
                    try:
                        report = read(data, task=self.task)
                    except ReportError as error:
                        self._bad(where, str(error))
                        continue
                    self.num_read += 1
                    yield report
        except OSError as error:
            reason = error.strerror or type(error).__name__
            problem = Problem(f"the reports cannot be read: {reason}", remedy="Give the path of a report file.")
            raise InputError(self.path, [problem]) from None

    def _lines(self, source: BufferedReader) -> Iterator[tuple[str, bytes]]:
        number = 0
        if source.peek(len(BOM_UTF8)).startswith(BOM_UTF8):  # some editors add it
            source.read(len(BOM_UTF8))
        while line := source.readline(MAX_LINE + 1):
            number += 1
            where = f"line {number}"
            if len(line) > MAX_LINE:
                self._bad(where, f"a line has at most {MAX_LINE} bytes")
                while line and not line.endswith(b"\n"):
                    line = source.readline(MAX_LINE)
            elif line.strip():
                yield where, line

    def _blocks(self, source: IO[bytes]) -> Iterator[tuple[str, bytes]]:
        at = 0
        while head := source.read(4):
            length = int.from_bytes(head, "big")
            data = source.read(length) if len(head) == 4 and length <= MAX_REPORT else b""
            if len(head) < 4 or length > MAX_REPORT or len(data) < length:
                self._bad(f"byte {at}", CUT_OFF)
                return
            yield f"byte {at}", data
            at += 4 + length

    def _bad(self, where: str, why: str) -> None:
        self.num_bad += 1
        if len(self.first_bad) < MAX_BAD_NAMED:
            self.first_bad.append(BadReport(where, why))


def _is_binary(path: str) -> bool:
    if not path.endswith((".jsonl", ".bin")):
        name = os.path.basename(path)
        raise ParameterError(f"a report file ends in .jsonl or .bin. Got {name!r}. Choose one of them.")
    return path.endswith(".bin")


def write_reports(path: str | os.PathLike[str], reports: Iterable[Report], *, force: bool = False) -> int:
    """Write reports to a ``.jsonl`` or ``.bin`` file, which appears complete and safely on disk, or not at all."""
    target = os.path.abspath(path)
    binary = _is_binary(target)
    if os.path.lexists(target) and not force:
        raise OutputError.taken(target)
    count = 0
    with new_file(target) as sink:
        for count, report in enumerate(reports, 1):  # noqa: B007
            data = report.to_bytes() if binary else report.to_json().encode("ascii") + b"\n"
            sink.write(len(data).to_bytes(4, "big") + data if binary else data)
    try:
        sync_folder(os.path.dirname(target))
    except OSError as error:
        raise OutputError(f"{target} could not be written: {error.strerror}. Choose another place.") from None
    return count
