# SPDX-License-Identifier: Apache-2.0
"""Periods: a day of a task is open, closed once, estimated, and at last erased.

Until its last report can be in time a period is open. Closing it removes copies exactly, freezes the tallies and writes
a statement: how many reports of each purpose and tier count, what was left out, a checksum of the ids, and the head of
the chain of blocks. A closed period is never opened again. Estimates are made from the frozen tallies; the reports
themselves are erased when the retention is over, and the tallies stay.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, Annotated, Literal

import numpy as np
from pydantic import Field

from dunnage._version import __version__
from dunnage.arrays import IntArray
from dunnage.collecting.alarms import Rule, look_at
from dunnage.collecting.collector import CLOSED, ERASED, ESTIMATED, OPEN, TALLYING, Collector
from dunnage.collecting.estimate import estimate
from dunnage.collecting.forged import RobustMap, bits_warnings, robust_maps
from dunnage.collecting.frames import Reading, Source, tally_reports
from dunnage.collecting.store import Head, Period, Store
from dunnage.collecting.tally import Tallies, Tally
from dunnage.collecting.views import GROUP, View, view
from dunnage.devices.report import day_text
from dunnage.devices.task import SECONDS_PER_DAY, Task
from dunnage.errors import CheckFailed, ParameterError, Refusal
from dunnage.model.certificate import Signature
from dunnage.model.documents import Model, Software, canonical, check
from dunnage.release import Release

_SIGNED = b"dunnage closing statement\n"
MIN_VEHICLES = 20  # enrolled vehicles from which on reports are kept with the public group of their sender
MIN_SENDING = 10  # vehicles that must have sent the reports of a group that is shown
OTHERS = "(other senders)"


class IdChecksum(Model):
    num: int
    xor: str  # exclusive or of the SHA-256 of all ids


class ClosingStatement(Model):
    """What a closed period contains."""

    format: Literal[1]
    kind: Literal["dunnage closing statement"]
    task: str
    dataset: str
    day: str
    senders: Literal["gateway", "token", "unlinkable"]
    reports: dict[str, dict[str, int]]  # that count, by purpose and tier
    left_out: dict[str, int]
    erased: int  # reports that were erased before closing
    ids: IdChecksum
    blocks: int
    chain: str
    cautions: list[str]  # what makes reports look forged
    closed_at: str
    software: Software
    signature: Signature | None = None

    @property
    def digest(self) -> str:
        unsigned = {name: value for name, value in self.plain().items() if name != "signature"}
        return hashlib.sha256(canonical(unsigned)).hexdigest()

    def signed(self, key: str | os.PathLike[str]) -> ClosingStatement:
        return self.model_copy(update={"signature": Signature.of(key, _SIGNED + self.digest.encode())})

    def check_signature(self, trusted: Sequence[bytes]) -> None:
        """Check that one of these public keys signed the statement."""
        if self.signature is None or self.signature.signer(_SIGNED + self.digest.encode()) not in trusted:
            raise CheckFailed("the closing statement is not signed by a key that you gave.")


class _Stored(io.RawIOBase):
    """The blocks of some periods as one file of reports."""

    def __init__(self, store: Store, periods: Sequence[Period], group: str | None) -> None:
        self._blocks = chain.from_iterable(store.blocks(period, group) for period in periods)
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._rest:
            block = next(self._blocks, None)
            if block is None:
                return 0
            self._rest = block[0].frames
        part, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)


def source_of(store: Store, period: Period) -> Source:
    return Source(day_text(period.day), lambda: _opened(store, [period]))


def _opened(store: Store, periods: Sequence[Period], group: str | None = None) -> IO[bytes]:
    return io.BufferedReader(_Stored(store, periods, group), 1 << 20)


def close_period(
    collector: Collector, period: Period, *, early: bool = False, sign: str | os.PathLike[str] | None = None
) -> ClosingStatement:
    """Close a period; one that is closed already gives its statement again. Call it outside the writer's thread."""
    with collector.closing:  # who comes meanwhile waits, and does not tally the same day again
        task, state = collector.tasks[period.task], collector.states(period.task).get(period.day)
        if state is None:
            raise ParameterError(f"{day_text(period.day)} has no reports, so there is nothing to close.")
        if state == OPEN:
            if not early and not collector.day_is_over(*period):
                raise Refusal(f"reports of {day_text(period.day)} may still come. Wait, or close it early.")
            collector.run(lambda: collector.seal(period)).result()
        if state in (OPEN, TALLYING):
            _freeze(collector, period, task, sign)
        return statement_of(collector.store, period)


def _freeze(collector: Collector, period: Period, task: Task, sign: str | os.PathLike[str] | None) -> None:
    store = collector.store
    source, days = source_of(store, period), (period.day, period.day)
    tallies = tally_reports(task, [source], days=days)
    total, num = 0, 0
    parts: Iterable[IntArray] = (
        np.stack([batch.high[batch.counted], batch.low[batch.counted]], axis=1)
        for batch in Reading(task, days, None).batches(source)
    )
    if tallies.left_out["duplicate"] or tallies.left_out["conflicting"]:  # nobody but this collector wrote: never
        parts = [np.unique(np.concatenate(list(parts)), axis=0)]
    for part in parts:
        num, ids = num + len(part), part.astype(">u8").tobytes()
        for at in range(0, len(ids), 16):
            total ^= int.from_bytes(hashlib.sha256(ids[at : at + 16]).digest(), "big")
    head = Head.first(period)
    for _, head in store.blocks(period):  # noqa: B007
        continue
    reports: dict[str, dict[str, int]] = {}
    for (purpose, tier), tally in sorted(tallies.by_tier.items()):
        reports.setdefault(purpose, {})[tier] = tally.num_reports
    now = collector.now()
    statement = ClosingStatement(
        format=1,
        kind="dunnage closing statement",
        task=task.digest,
        dataset=task.dataset,
        day=day_text(period.day),
        senders=collector.senders[task.digest],  # type: ignore[arg-type]
        reports=reports,
        left_out=dict(tallies.left_out),
        erased=len(store.erased(period)),
        ids=IdChecksum(num=num, xor=f"{total:064x}"),
        blocks=head.seq,
        chain=head.chain.hex(),
        cautions=bits_warnings(task, tallies),
        closed_at=datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds"),
        software=Software(dunnage=__version__),
    )
    if sign is not None:
        statement = statement.signed(sign)
    store.book.write(
        "UPDATE periods SET state = ?, statement = ?, tallies = ?, closed_at = ? "
        "WHERE task = ? AND day = ? AND state = ?",
        CLOSED,
        canonical(statement.plain()).decode(),
        json.dumps([tally.to_dict() for _, tally in sorted(tallies.by_tier.items())], separators=(",", ":")),
        int(now),
        *period,
        TALLYING,
    )
    store.forget_senders(period)  # nobody needs to know any more who sent how much


def statement_of(store: Store, period: Period) -> ClosingStatement:
    rows = store.book.rows("SELECT statement FROM periods WHERE task = ? AND day = ?", *period)
    if not rows or rows[0][0] is None:
        raise Refusal(f"{day_text(period.day)} is not closed yet. Close it first.")
    return check(json.loads(rows[0][0]), ClosingStatement, "the store", what="a closing statement")


def frozen(collector: Collector, digest: str, first: int, last: int) -> Tallies:
    """Return the tallies of the closed periods from a first to a last day, added up."""
    tallies = Tallies(collector.tasks[digest])
    states = collector.states(digest)
    days = [day for day in states if first <= day <= last]
    if waiting := [day_text(day) for day in days if states[day] in (OPEN, TALLYING)]:
        raise Refusal(f"not closed yet: {', '.join(waiting)}. Close them first.")
    for day in days:
        statement = statement_of(collector.store, Period(digest, day))
        tallies.left_out += Counter(statement.left_out)
        (text,) = collector.store.book.rows("SELECT tallies FROM periods WHERE task = ? AND day = ?", digest, day)[0]
        for tally in map(Tally.from_dict, json.loads(text)):
            names = tally.purpose, tally.tier
            if names in tallies.by_tier:
                tallies.by_tier[names].merge(tally)
            else:
                tallies.by_tier[names] = tally
        tallies.days.add(day)
    if not tallies.num_reports:
        raise Refusal("no report of these days counts, so there is nothing to estimate.")
    return tallies


def estimate_days(
    collector: Collector, digest: str, first: int, last: int, *, confidence: float = 0.95, allow_noise: bool = False
) -> Release:
    """Estimate from the tallies of closed periods; the certificate names who sent the reports."""
    return estimate(
        frozen(collector, digest, first, last),
        collector.tasks[digest],
        confidence=confidence,
        allow_noise=allow_noise,
        senders=collector.senders[digest],
    )


def note_estimated(collector: Collector, period: Period) -> None:
    collector.store.book.write(
        "UPDATE periods SET state = ? WHERE task = ? AND day = ? AND state = ?", ESTIMATED, *period, CLOSED
    )


def erase_period(collector: Collector, period: Period) -> None:
    """Erase the reports of a closed period; tallies and statement stay."""
    state = collector.states(period.task).get(period.day)
    if state not in (CLOSED, ESTIMATED, ERASED):
        raise Refusal(f"{day_text(period.day)} is not closed, so its reports are still needed. Close it first.")
    collector.store.drop(period)  # again, if the collector stopped before it was noted
    collector.store.book.write("UPDATE periods SET state = ? WHERE task = ? AND day = ?", ERASED, *period)


def due_work(collector: Collector) -> Iterator[tuple[str, Period]]:
    """Yield what the clock asks for: periods to close, and periods whose retention is over."""
    now = collector.now()
    for digest, retention in collector.store.book.rows("SELECT digest, retention_days FROM tasks ORDER BY digest"):
        rows = collector.store.book.rows(
            "SELECT day, state, closed_at FROM periods WHERE task = ? AND state <> ? ORDER BY day", digest, ERASED
        )
        for day, state, closed_at in rows:
            if state == TALLYING or (state == OPEN and collector.day_is_over(digest, day)):
                yield "close", Period(digest, day)
            elif closed_at is not None and now > closed_at + retention * SECONDS_PER_DAY:
                yield "erase", Period(digest, day)


def release_folder(data: Path, digest: str, first: int, last: int) -> Path:
    days = day_text(first) if first == last else f"{day_text(first)}_{day_text(last)}"
    return data / "releases" / digest / days


class AlarmRules(Model):
    """What alarms look for in each period that closes, and how sure they must be over all looks together."""

    rules: Annotated[list[str], Field(min_length=1, max_length=50)]
    sure: Annotated[float, Field(ge=0.5, lt=1)]  # chance of no false alarm in all looks, if no limit is ever exceeded
    looks: Annotated[int, Field(ge=1, le=100_000)]  # periods that are looked at, for example 365


def stored_sources(collector: Collector, digest: str, first: int, last: int) -> list[Source]:
    """Return the reports of the closed periods from a first to a last day that are not erased."""
    return [source_of(collector.store, period) for period in _stored_periods(collector, digest, first, last)]


def _stored_periods(collector: Collector, digest: str, first: int, last: int) -> list[Period]:
    states = collector.states(digest)
    days = [day for day in states if first <= day <= last and states[day] in (CLOSED, ESTIMATED)]
    if not days:
        raise Refusal("no day among these is closed and still has its reports.")
    return [Period(digest, day) for day in days]


def view_of_groups(collector: Collector, digest: str, first: int, last: int) -> tuple[View, list[str]]:
    """Estimate each public group of senders; also name those left out because too few vehicles may be behind them."""
    task, store = collector.tasks[digest], collector.store
    periods, nums = _stored_periods(collector, digest, first, last), Counter[str]()
    for period in periods:
        nums.update(store.groups(period))
    # No vehicle sends more reports a day than this, so that many reports come from as many vehicles at least.
    least = MIN_SENDING * task.schedule.slots_per_day * len(task.purposes) * len(periods)
    few = sorted(group or OTHERS for group, num in nums.items() if num < least)
    of_groups = [
        Source(group or OTHERS, partial(_opened, store, periods, group))
        for group in sorted(nums)
        if nums[group] >= least
    ]
    if not of_groups:
        raise Refusal(f"a group is shown from {least:,} reports in these days on. No group has as many.")
    return view(task, of_groups, GROUP), few


def robust_of_days(
    collector: Collector, digest: str, first: int, last: int, confidence: float = 0.95
) -> dict[str, RobustMap]:
    """Test and weigh the reports of closed days by their numbers of set bits; nothing if reports are erased already."""
    if any(state == ERASED for day, state in collector.states(digest).items() if first <= day <= last):
        return {}
    sources = stored_sources(collector, digest, first, last)
    return robust_maps(collector.tasks[digest], sources, confidence=confidence)


def set_alarms(collector: Collector, digest: str, given: AlarmRules) -> None:
    """Set the alarms of a task; looks are counted from the beginning."""
    for text in given.rules:
        Rule.read(text, collector.tasks[digest])  # refuses what the task cannot answer
    with collector.store.book.turn() as book:
        book.execute("DELETE FROM looks WHERE task = ?", (digest,))
        book.execute(
            "INSERT INTO alarms VALUES (?, ?) ON CONFLICT (task) DO UPDATE SET rules = excluded.rules",
            (digest, json.dumps(given.plain())),
        )


def alarms_of(collector: Collector, digest: str) -> AlarmRules | None:
    rows = collector.store.book.rows("SELECT rules FROM alarms WHERE task = ?", digest)
    return AlarmRules.model_validate(json.loads(rows[0][0])) if rows else None


def looks_of(collector: Collector, digest: str) -> list[dict[str, object]]:
    """Return what alarms said of periods, the latest first."""
    rows = collector.store.book.rows("SELECT result FROM looks WHERE task = ? ORDER BY day DESC", digest)
    return [look for (result,) in rows for look in json.loads(result)]


def look_at_period(collector: Collector, period: Period) -> list[str]:
    """Look at a period that has closed, once; return a sentence for each alarm that is raised."""
    given, book = alarms_of(collector, period.task), collector.store.book
    if given is None:
        return []
    ((num,),) = book.rows("SELECT count(*) FROM looks WHERE task = ?", period.task)
    if num >= given.looks or book.rows("SELECT day FROM looks WHERE task = ? AND day = ?", *period):
        return []
    source = source_of(collector.store, period)
    made = look_at(collector.tasks[period.task], [source], given.rules, sure=given.sure, num_looks=given.looks)
    looks = [{**vars(look), "from_value": look.from_value, "sentence": look.sentence()} for look in made.looks]
    book.write("INSERT INTO looks VALUES (?, ?, ?) ON CONFLICT DO NOTHING", *period, json.dumps(looks))
    return [look.sentence() for look in made.looks if look.alarm]
