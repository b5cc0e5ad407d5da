# SPDX-License-Identifier: Apache-2.0
"""Whether a tally, wherever it came from, can be one of a mechanism: keys, shapes and sums that its laws allow.

Tallies hold no ids, so that nobody can tell whether two are of the same reports; but two that are equal are refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

import numpy as np

from dunnage.errors import InputError, ParameterError, Problem
from dunnage.local.numeric import LocalNumeric
from dunnage.local.numeric_laws import Duchi, JointSign, LaplaceNumber, SquareWave, Warner
from dunnage.local.oracles import InClear, OptimisedUnary, SymmetricUnary
from dunnage.local.tally import BITS, SYMBOLS, Counts, Key, Part, Sums, Tally
from dunnage.local.trajectory import Independent


def check_tally(mechanism: Any, tally: Tally) -> None:
    """Check that a tally can be one of a mechanism."""
    numeric = isinstance(mechanism, LocalNumeric)
    fits = _numbers_fit(mechanism, tally) if numeric else _places_fit(mechanism, tally)
    if not fits:
        problem = Problem(f"no reports of {tally.purpose} add up to it", remedy="Tally the reports of this task again.")
        raise InputError("a tally", [problem])


def tally_digest(tally: Tally) -> str:
    """Return the SHA-256 of what a tally holds."""
    text = json.dumps(tally.to_dict(), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def check_repeated(tallies: Iterable[Tally]) -> None:
    """Check that no tally is given twice: its reports would count twice."""
    seen: set[str] = set()
    for tally in tallies:
        digest = tally_digest(tally)
        if tally.num_reports and digest in seen:
            raise InputError("the tallies", [repeated_problem(tally)])
        seen.add(digest)


def repeated_problem(tally: Tally) -> Problem:
    """Say that a tally came before."""
    return Problem(
        f"the same tally of {tally.purpose}, tier {tally.tier}, came before: its reports would count twice",
        remedy="Give each tally once. If they are of different reports, tally those together.",
    )


def _numbers_fit(mechanism: LocalNumeric, tally: Tally) -> bool:
    report, told = mechanism.channel(tally.tier), 0
    for key, part in tally.parts.items():
        if len(key) != 2 or type(key[0]) is not int or not 0 <= key[0] < len(mechanism.attributes):
            return False
        try:
            reading = report.reading(key[0], str(key[1]))
        except ParameterError:
            return False
        if not _sums_fit(reading, part) or part.num > tally.num_reports:
            return False
        told += part.num
    return told == round(report.share * len(mechanism.attributes)) * tally.num_reports


def _sums_fit(reading: Any, part: Part) -> bool:
    if isinstance(reading, SquareWave):
        shape = (2 * reading.last + 1,)
        return isinstance(part, Counts) and part.kind == SYMBOLS and part.counts.shape == shape and _counted(part)
    if not isinstance(part, Sums) or part.total**2 > part.num * part.squares or (not part.num and part.squares):
        return False
    if isinstance(reading, Duchi | Warner | JointSign):
        return part.squares == part.num and (part.num + part.total) % 2 == 0
    return isinstance(reading, LaplaceNumber) or part.squares <= part.num * reading.last**2


def _counted(part: Counts) -> bool:
    """Return whether each report was counted once."""
    return bool((part.counts >= 0).all()) and int(part.counts.sum()) == part.num


def _places_fit(mechanism: Any, tally: Tally) -> bool:
    law, oracle = mechanism.channel(tally.tier), mechanism.oracle(tally.tier)
    unary = isinstance(oracle, OptimisedUnary | SymmetricUnary)
    shape = (oracle.num_inputs,) if unary else (oracle.num_symbols,)
    if isinstance(law, Independent):
        shape = (oracle.num_inputs + 1,) * law.steps
    for key, part in tally.parts.items():
        fits = isinstance(part, Counts) and part.kind == (BITS if unary else SYMBOLS) and part.counts.shape == shape
        if not fits or not _key_fits(law, key) or not isinstance(part, Counts):
            return False
        if not (bool(np.all((part.counts >= 0) & (part.counts <= part.num))) if unary else _counted(part)):
            return False
    return sum(part.num for part in tally.parts.values()) == tally.num_reports


def _key_fits(law: Any, key: Key) -> bool:
    if isinstance(law, Independent):
        return len(key) == law.steps and all(_group_fits(law.place, group) for group in key)
    return len(key) == 1 and _group_fits(law, key[0]) if isinstance(law, InClear) else key == ()


def _group_fits(law: InClear, group: int | str) -> bool:
    return type(group) is int and 0 <= group < law.num_groups
