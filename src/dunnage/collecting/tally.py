# SPDX-License-Identifier: Apache-2.0
"""Tally: what a platform keeps of reports: everything that estimates need, and nothing about single devices.

One tally belongs to one purpose and one tier. Its parts are sums of symbols (numbers) or counts of symbols or bits
(places, paths, square waves), all whole numbers, so that tallies add up exactly in any order: a day from its hours, a
fleet from its gateways. Parts are named by *keys*:

- numbers: (attribute, law key) as ``LocalNumeric.read`` gives them: ``(0, "piecewise")``;
- places and paths: what came in clear as ``read`` gives it, the area or the number of the sequence of areas: ``(3,)``;
  nothing if all is hidden: ``()``. Published paths of independent places: the area of each place, ``(3, 1)``, and
  counts of bits that are set together, ``(bits + 1, bits + 1)``, where the last of each axis stands for any.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dunnage.arrays import IntArray
from dunnage.devices.numbers import LaplaceNumber, LocalNumeric
from dunnage.devices.paths import Independent
from dunnage.devices.places import InClear
from dunnage.devices.subjects import Tier
from dunnage.devices.task import Task
from dunnage.errors import InputError, ParameterError, Problem
from dunnage.noise.source import ceil_divide

Packed = NDArray[np.uint8]
Key = tuple[int | str, ...]


FORMAT, TALLIES_KIND = 1, "dunnage tallies"
MAX_COUNTS = 1 << 26  # Counts of one part: half a gigabyte
SYMBOLS, BITS = "symbols", "bits"

_SAFE = 1 << 20  # symbols up to here can be squared and added up a chunk at a time in 64 bits
_BIT_OF_BYTE = (np.arange(256)[:, None] >> np.arange(8) & 1).astype(np.int64)  # (value of a byte, bit)
BITS_OF_BYTE = _BIT_OF_BYTE.sum(axis=1)  # how many bits of a byte are set


@dataclass
class Sums:
    law: ClassVar[tuple[object, ...]] = ("sums",)  # What must be equal in parts that add up
    num: int = 0
    total: int = 0
    squares: int = 0

    def add(self, symbols: IntArray) -> None:
        self.num += symbols.size
        for start in range(0, symbols.size, _SAFE):
            part = symbols[start : start + _SAFE]
            if max(int(part.max()), -int(part.min())) > _SAFE:
                part = part.astype(object)  # Laplace noise may be large: whole numbers without a limit
            self.total += int(part.sum())
            self.squares += int((part * part).sum())

    def add_one(self, symbol: int, times: int = 1) -> None:
        self.num += times
        self.total += times * symbol
        self.squares += times * symbol * symbol

    def divide(self, by: int) -> None:
        self.num, self.total, self.squares = self.num // by, self.total // by, self.squares // by

    def merge(self, other: Part) -> None:
        assert isinstance(other, Sums)
        self.num += other.num
        self.total += other.total
        self.squares += other.squares

    def to_dict(self) -> dict[str, object]:
        return {"kind": "sums", **vars(self)}


@dataclass
class Counts:
    kind: str  # `"symbols"` or `"bits"`
    counts: IntArray  # One count for each symbol or bit; with several axes, for each combination
    num: int = 0  # Number of reports

    @classmethod
    def zeros(cls, kind: str, *shape: int) -> Counts:
        num = math.prod(shape)
        if not 1 <= num <= MAX_COUNTS:
            raise ParameterError(
                f"a tally has at most {MAX_COUNTS:,} counts. Got {num:,}. Use for example a coarser grid."
            )
        return cls(kind, np.zeros(shape, dtype=np.int64))

    def add_symbols(self, symbols: IntArray) -> None:
        from dunnage.collecting.kernels import count_symbols

        count_symbols(symbols, self.counts)
        self.num += symbols.size

    def add_one(self, *places: int | IntArray, times: int = 1) -> None:
        """Count a report: a symbol, the bits that are set, or those set together in several places."""
        self.counts[np.ix_(*(np.atleast_1d(place) for place in places))] += times
        self.num += times

    def divide(self, by: int) -> None:
        self.counts //= by
        self.num //= by

    def add_rows(self, rows: Packed) -> None:
        from dunnage.collecting.kernels import count_bytes

        by_value = np.zeros((rows.shape[1], 256), dtype=np.int64)
        count_bytes(rows, by_value)
        self.counts += (by_value @ _BIT_OF_BYTE).ravel()[: self.counts.size]
        self.num += len(rows)

    def add_together(self, rows: Sequence[Packed]) -> None:
        # The last entry of each axis stands for any place, so it also has the counts of fewer places.
        from dunnage.collecting.kernels import count_together

        num_bits, third = self.counts.shape[0] - 1, rows[2] if len(rows) == 3 else rows[0][:0]
        count_together(rows[0], rows[1], third, num_bits, self.counts.reshape(num_bits + 1, num_bits + 1, -1))
        self.num += len(rows[0])

    @property
    def law(self) -> tuple[object, ...]:
        return self.kind, self.counts.shape

    def merge(self, other: Part) -> None:
        assert isinstance(other, Counts)
        self.counts += other.counts
        self.num += other.num

    def to_dict(self) -> dict[str, object]:
        shape, counts = list(self.counts.shape), self.counts.ravel().tolist()
        return {"kind": self.kind, "num": self.num, "shape": shape, "counts": counts}


Part = Sums | Counts


@dataclass(kw_only=True)
class Tally:
    purpose: str
    tier: str
    num_reports: int = 0
    parts: dict[Key, Part] = field(default_factory=dict)  # Sums and counts by key

    def sums(self, *key: int | str) -> Sums:
        part = self.parts.setdefault(key, Sums())
        if not isinstance(part, Sums):
            raise ParameterError("this part of the tally has counts, not sums. Read its counts.")
        return part

    def counts(self, key: Key, kind: str, *shape: int) -> Counts:
        if key not in self.parts:
            self.parts[key] = Counts.zeros(kind, *shape)
        part = self.parts[key]
        if not isinstance(part, Counts) or part.law != (kind, shape):
            raise ParameterError("this part of the tally has another law. Use one tally for each law.")
        return part

    def add_number(self, law: Any, attribute: int, key: str, symbol: int, times: int = 1) -> None:
        reading = law.reading(attribute, key)
        if reading.counted:
            self.counts((attribute, key), SYMBOLS, reading.num_symbols).add_one(reading.code(symbol), times=times)
        else:
            self.sums(attribute, key).add_one(symbol, times)

    def add_payload(self, mechanism: Any, tier: Tier | str, payload: bytes, times: int = 1) -> None:
        read = mechanism.read(payload, tier=tier)
        if isinstance(mechanism, LocalNumeric):
            for attribute, key, symbol in read:
                self.add_number(mechanism.channel(tier), attribute, key, symbol, times)
        else:
            oracle, places = mechanism.oracle(tier), []
            area: Key = tuple(area for area, _ in read if area is not None)
            if oracle.counts_bits:
                num_bits, together = oracle.num_inputs, len(read) > 1
                for _, symbol in read:
                    data = np.frombuffer(symbol.to_bytes(ceil_divide(num_bits, 8), "little"), dtype=np.uint8)
                    bits = np.flatnonzero(np.unpackbits(data, bitorder="little"))
                    # With several places the last of each axis stands for any bit.
                    places.append(np.append(bits, num_bits) if together else bits)
                self.counts(area, BITS, *((num_bits + together,) * len(places))).add_one(*places, times=times)
            else:
                self.counts(area, SYMBOLS, oracle.num_symbols).add_one(read[0][1], times=times)
        self.num_reports += times

    def divide(self, by: int) -> None:
        """Take each report once, if all of them came so often."""
        for part in self.parts.values():
            part.divide(by)
        self.num_reports //= by

    def merge(self, other: Tally) -> None:
        if (self.purpose, self.tier) != (other.purpose, other.tier):
            raise ParameterError(
                f"only tallies of the same purpose and tier add up. Got {other.purpose}, {other.tier}."
            )
        if any(self.parts[key].law != other.parts[key].law for key in self.parts.keys() & other.parts.keys()):
            raise ParameterError("tallies of different laws do not add up. Merge only tallies of one task.")
        for key, part in other.parts.items():
            if key in self.parts:
                self.parts[key].merge(part)
            else:
                self.parts[key] = copy.deepcopy(part)
        self.num_reports += other.num_reports

    def to_dict(self) -> dict[str, object]:
        # Whole numbers before names, which cannot be compared with them.
        order = sorted(self.parts, key=lambda key: [(isinstance(name, str), name) for name in key])
        parts = [{"key": list(key), **self.parts[key].to_dict()} for key in order]
        return {"purpose": self.purpose, "tier": self.tier, "num_reports": self.num_reports, "parts": parts}

    @classmethod
    def from_dict(cls, data: Any) -> Tally:
        try:
            parts = {tuple(part["key"]): _part(part) for part in data["parts"]}
            names = data["purpose"], data["tier"]
            if len(parts) < len(data["parts"]) or not all(isinstance(name, str) for name in names):
                raise ValueError
            return cls(purpose=names[0], tier=names[1], num_reports=_whole(data["num_reports"]), parts=parts)
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError):
            problem = Problem("this is not a tally", remedy="Write it again from the reports.")
            raise InputError("the tally", [problem]) from None


def _whole(value: object, *, signed: bool = False) -> int:
    if type(value) is not int or (value < 0 and not signed):
        raise ValueError
    return value


def _part(data: Any) -> Part:
    if not all(type(name) in (int, str) for name in data["key"]):
        raise ValueError
    num = _whole(data["num"])
    if data["kind"] == "sums":
        return Sums(num, _whole(data["total"], signed=True), _whole(data["squares"]))
    if data["kind"] not in (SYMBOLS, BITS) or not all(map(_whole, data["shape"])):
        raise ValueError
    part = Counts.zeros(data["kind"], *data["shape"])
    counts = [_whole(count) for count in data["counts"]]
    part.counts[...] = np.array(counts, dtype=np.int64).reshape(part.counts.shape)
    part.num = num
    return part


class Tallies:
    """The tallies of a task, by purpose and tier, and what was left out of them."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.by_tier: dict[tuple[str, str], Tally] = {}  # By purpose and tier; only those with reports
        self.num_read = 0  # Reports that were read, whether they count or not
        self.left_out: Counter[str] = Counter()  # Reports that do not count, by kind
        self.first_bad: list[str] = []  # Why, of the first 20
        self.days: set[int] = set()  # Days of the counted reports

    @property
    def num_reports(self) -> int:
        return sum(tally.num_reports for tally in self.by_tier.values())

    def to_dict(self) -> dict[str, object]:
        tallies = [tally.to_dict() for _, tally in sorted(self.by_tier.items())]
        return {"format": FORMAT, "kind": TALLIES_KIND, "task": self.task.digest, "tallies": tallies}


def check_tally(mechanism: Any, tally: Tally) -> None:
    fits = _numbers_fit if isinstance(mechanism, LocalNumeric) else _places_fit
    if not fits(mechanism, tally):
        problem = Problem(f"no reports of {tally.purpose} add up to it", remedy="Tally the reports of this task again.")
        raise InputError("a tally", [problem])


def note_tally(tally: Tally, seen: set[str], where: str) -> None:
    """Refuse a tally that came before, because its reports would count twice; otherwise note it as seen."""
    text = json.dumps(tally.to_dict(), sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()
    if tally.num_reports and digest in seen:
        what = f"the same tally of {tally.purpose}, tier {tally.tier}, came before: its reports would count twice"
        remedy = "Give each tally once. If they have different reports, tally these together."
        raise InputError(where, [Problem(what, remedy=remedy)])
    seen.add(digest)


def _numbers_fit(mechanism: LocalNumeric, tally: Tally) -> bool:
    report, num_reported = mechanism.channel(tally.tier), 0
    for key, part in tally.parts.items():
        if len(key) != 2 or type(key[0]) is not int or not 0 <= key[0] < len(mechanism.attributes):
            return False
        try:
            reading: Any = report.reading(key[0], str(key[1]))
        except ParameterError:
            return False
        if reading.counted:
            fits = isinstance(part, Counts) and part.law == (SYMBOLS, (reading.num_symbols,)) and _counted(part)
        elif not isinstance(part, Sums) or part.total**2 > part.num * part.squares or (not part.num and part.squares):
            fits = False
        elif reading.signs:
            fits = part.squares == part.num and (part.num + part.total) % 2 == 0
        else:
            fits = isinstance(reading, LaplaceNumber) or part.squares <= part.num * reading.last**2
        if not fits or part.num > tally.num_reports:
            return False
        num_reported += part.num
    return num_reported == round(report.share * len(mechanism.attributes)) * tally.num_reports


def _counted(part: Counts) -> bool:
    return bool((part.counts >= 0).all()) and int(part.counts.sum()) == part.num


def _places_fit(mechanism: Any, tally: Tally) -> bool:
    law, oracle = mechanism.channel(tally.tier), mechanism.oracle(tally.tier)
    shape = (oracle.num_counts,)
    num_keys, num_groups = (1, law.num_groups) if isinstance(law, InClear) else (0, 0)
    if isinstance(law, Independent):
        shape, num_keys, num_groups = (oracle.num_inputs + 1,) * law.steps, law.steps, law.place.num_groups
    for key, part in tally.parts.items():
        named = len(key) == num_keys and all(type(group) is int and 0 <= group < num_groups for group in key)
        if not named or not isinstance(part, Counts) or part.law != (BITS if oracle.counts_bits else SYMBOLS, shape):
            return False
        possible = bool(np.all((part.counts >= 0) & (part.counts <= part.num)))
        if not possible or not (oracle.counts_bits or _counted(part)):
            return False
    return sum(part.num for part in tally.parts.values()) == tally.num_reports
