# SPDX-License-Identifier: Apache-2.0
"""Service: the collector over HTTP. Every route names who may use it; the service does not start if one does not.

A request with reports is authenticated, read up to its limits and handed to the writer; its answer comes when the
reports are on disk. Nothing about a sender is logged or stored with a report.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import re
import secrets
import signal
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from dunnage._version import __version__
from dunnage.collecting import collector as collecting
from dunnage.collecting import periods
from dunnage.collecting.collector import (
    DEFAULT_RETENTION,
    GATEWAY,
    MALFORMED,
    UNLINKABLE,
    Answer,
    Collector,
    frames_of_lines,
)
from dunnage.collecting.estimate import write_estimates
from dunnage.collecting.intake import CODES, NEAR
from dunnage.collecting.periods import ClosingStatement
from dunnage.collecting.store import Period, Store
from dunnage.collecting.tokens import Issuer, valid_tokens
from dunnage.collecting.views import GROUP, View, view
from dunnage.devices.report import ID_BYTES, Report
from dunnage.devices.sending import CONTENT_TYPE, CONTENT_TYPE_WITH_TOKENS
from dunnage.devices.task import MAX_BYTES as MAX_TASK_BYTES
from dunnage.devices.task import Task, day_number
from dunnage.devices.tokens import KEY_BITS, TokenKey, split_tokens
from dunnage.errors import DunnageError, InternalError, ParameterError, ReportError
from dunnage.model.documents import canonical, check
from dunnage.release import Release
from dunnage.serving.identity import VAULT, Identities
from dunnage.serving.senders import Sender, Senders
from dunnage.serving.settings import Settings
from dunnage.serving.web import (
    ANALYST,
    ANYONE,
    COOKIE,
    DEVICE,
    LOG,
    MONITOR,
    OFFICER,
    OPERATOR,
    PEOPLE,
    Door,
    HttpError,
    Person,
    checked_name,
    content_type,
    hashed,
    log,
    read_body,
)

if TYPE_CHECKING:
    from dunnage.serving.studio import Studio

FRAMES, LINES, WITH_TOKENS = CONTENT_TYPE, "application/x-ndjson", CONTENT_TYPE_WITH_TOKENS
NO_TOKEN = "no_token"  # code of a report without a valid token
VIEWS = ("day", "hour", "tier", GROUP)
ROBUST_FILE = "robust.json"  # beside a release: what the numbers of set bits say of its maps
MAX_LINES, MAX_JSON = 1_000, MAX_TASK_BYTES + (1 << 16)
RETRY_SECONDS = "5"

Handlers = Mapping[str, Callable[..., Awaitable[Any]]]  # by method and path

# Who may use each route.
MAY: Mapping[str, tuple[str, ...]] = {
    "GET /v1/tasks/{task}": (ANYONE,),
    "POST /v1/tasks/{task}/enrol": (ANYONE,),  # whoever has a one-time code
    "POST /v1/tasks/{task}/reports": (DEVICE,),  # or, where senders are unlinkable, whoever has a token for each report
    "GET /v1/tasks/{task}/tokens/{day}": (ANYONE,),
    "POST /v1/tasks/{task}/tokens/{day}": (DEVICE,),
    "DELETE /v1/tasks/{task}/reports/{report}": (DEVICE,),
    "GET /v1/tasks": (OPERATOR, ANALYST),
    "POST /v1/tasks": (OPERATOR,),
    "PUT /v1/tasks/{task}/retention": (OPERATOR,),
    "POST /v1/tasks/{task}/codes": (OPERATOR,),
    "GET /v1/tasks/{task}/devices": (OPERATOR,),
    "DELETE /v1/tasks/{task}/devices/{device}": (OPERATOR,),
    "GET /v1/tasks/{task}/periods": (OPERATOR, ANALYST),
    "GET /v1/tasks/{task}/periods/{day}": (OPERATOR, ANALYST),
    "POST /v1/tasks/{task}/periods/{day}/close": (OPERATOR,),
    "POST /v1/tasks/{task}/periods/{day}/erase": (OPERATOR,),
    "POST /v1/tasks/{task}/estimates": (OPERATOR, ANALYST),
    "GET /v1/tasks/{task}/estimates/{days}/{file}": (OPERATOR, ANALYST),
    "GET /v1/tasks/{task}/views/{by}": (OPERATOR, ANALYST),
    "GET /v1/tasks/{task}/alarms": (OPERATOR, ANALYST),
    "PUT /v1/tasks/{task}/alarms": (OPERATOR, ANALYST),
    "GET /v1/identity": (OFFICER,),
    "GET /v1/identity/log": (OFFICER,),
    "POST /v1/identity/records": (OPERATOR, OFFICER),
    "POST /v1/identity/records/{vehicle}/erase": (OFFICER,),
    "POST /v1/identity/openings": (OFFICER,),
    "POST /v1/identity/openings/{opening}": (OFFICER,),  # another one
    "DELETE /v1/identity/openings/{opening}": (OFFICER,),
    "GET /v1/health": (ANYONE,),
    "GET /v1/ready": (ANYONE,),
    "GET /v1/metrics": (MONITOR, OPERATOR),
    "GET /v1/openapi.json": (ANYONE,),
    "GET /": (OPERATOR, ANALYST),
    "GET /tasks/{task}": (OPERATOR, ANALYST),
    "GET /sign-in": (ANYONE,),  # whoever has the one-time link
}


class NewTask(msgspec.Struct, forbid_unknown_fields=True):
    task: msgspec.Raw
    senders: str
    retention_days: int = DEFAULT_RETENTION


class Retention(msgspec.Struct, forbid_unknown_fields=True):
    days: int


class NewCodes(msgspec.Struct, forbid_unknown_fields=True):
    names: list[str]
    vehicles: int = 1  # behind one gateway
    valid_days: int = 7
    group: str = ""  # public, such as a company or a region


class Enrolment(msgspec.Struct, forbid_unknown_fields=True):
    code: str


class Blinded(msgspec.Struct, forbid_unknown_fields=True):
    blinded: list[bytes]  # in Base64


class Closing(msgspec.Struct, forbid_unknown_fields=True):
    early: bool = False


class Days(msgspec.Struct, forbid_unknown_fields=True, rename={"first": "from", "last": "to"}):
    first: str
    last: str
    confidence: float = 0.95
    allow_noise: bool = False


class Service:
    """The routes of a collector, over one store."""

    def __init__(self, settings: Settings, *, clock: Any = None) -> None:
        self.settings, self.data = settings, Path(settings.data)
        self.loop: asyncio.AbstractEventLoop | None = None
        self.stop_server: Callable[[], None] = lambda: None
        clocks = {} if clock is None else {"clock": clock}
        self.store = Store.open(settings.database or self.data)
        local = Person("you", frozenset(PEOPLE)) if settings.is_loopback else None
        self.door = Door(local, secure=settings.tls_in_front)
        self.door.keep, self.door.drop = self._keep_person, self._drop_person
        for key, name, roles in self.store.book.rows("SELECT hash, name, roles FROM people"):
            self.people[bytes(key)] = Person(name, frozenset(roles.split()))
        try:
            settings.check_exposure(bool(self.people))
        except BaseException:
            self.store.close()
            raise
        self.collector = Collector(self.store, self._deliver, stopped=self._stopped, **clocks)
        self.senders = Senders()
        sql = "SELECT hash, task, name, vehicles, public_group FROM devices WHERE hash IS NOT NULL"
        for key, *facts in self.store.book.rows(sql):
            self.senders.put(bytes(key), self._sender(*facts))
        self.requests: Counter[tuple[str, int]] = Counter()
        self._buckets: dict[tuple[str, str], tuple[float, float]] = {}
        self._answers: dict[int, bytes] = {}
        self.closing: list[Callable[[], None]] = []  # what else ends with the service
        self._issuers: dict[str, Issuer] = {}
        self.identities = Identities(self.store.book, self.data / VAULT)

    @property
    def people(self) -> dict[bytes, Person]:
        return self.door.people

    @property
    def link(self) -> str:
        """A link that signs in once, for whoever started the service on this machine."""
        return f"{self.settings.origin}/sign-in?code={self.door.code}" if self.door.code else ""

    def invite(self, name: str, role: str) -> str:
        """Give a person or program a role; return the token, which is shown once."""
        return self.door.invite(name, role)

    def _drop_person(self, key: bytes) -> None:
        self.store.book.write("DELETE FROM people WHERE hash = ?", key)

    def _keep_person(self, key: bytes, person: Person) -> None:
        self.store.book.write("INSERT INTO people VALUES (?, ?, ?)", key, person.name, " ".join(sorted(person.roles)))

    def _sender(self, digest: str, name: str, vehicles: int, group: str) -> Sender:
        task = self.collector.tasks[digest]
        limit = vehicles * task.schedule.slots_per_day * len(task.purposes)
        is_gateway = self.collector.senders[digest] == GATEWAY
        per_second = 0.0 if is_gateway else self.settings.requests_per_minute / 60
        return Sender(digest, name, limit, per_second, vehicles, group)

    # Reports

    def _deliver(self, answered: list[tuple[collecting.Request, Answer | None]]) -> None:
        if self.loop is not None:
            self.loop.call_soon_threadsafe(_resolve, answered)

    def _stopped(self, reason: str) -> None:
        log("stopped", reason=reason)
        if self.loop is not None:
            self.loop.call_soon_threadsafe(self.stop_server)

    def authenticate(self, scope: Any, task: str) -> Sender:
        tokens = [text for name, text in scope["headers"] if name == b"authorization"]
        if len(tokens) != 1 or not tokens[0].startswith(b"Bearer "):
            raise HttpError(401, "no_token", "Send one header: Authorization: Bearer TOKEN.", WWW_Authenticate="Bearer")
        sender = self.senders.get(hashlib.sha256(tokens[0][7:]).digest())
        if sender is None or sender.task != task:
            raise HttpError(
                401,
                "unknown_token",
                "The token is not known for this task, or was revoked. Enrol again.",
                WWW_Authenticate="Bearer",
            )
        return sender

    def _limit_rate(self, sender: Sender) -> None:
        """Allow a minute's requests at once, then as many as the rate allows."""
        if not sender.per_second:
            return
        most, now = 60 * sender.per_second, time.monotonic()
        if len(self._buckets) > 1 << 20:
            self._buckets.clear()
        left, at = self._buckets.get(sender[:2], (most, now))
        left = min(most, left + (now - at) * sender.per_second)
        if left < 1:
            raise HttpError(429, "too_fast", "Too many requests. Send again later.", Retry_After=RETRY_SECONDS)
        self._buckets[sender[:2]] = left - 1, now

    async def reports(self, scope: Any, receive: Any, send: Any) -> None:
        """Take in a request with reports: the path that is used most, so without a framework's request and response."""
        try:
            body, status, headers = await self._take(scope, receive), 200, []
        except HttpError as error:
            response = error.response()
            body, status = bytes(response.body), error.status
            headers = [line for line in response.raw_headers if not line[0].startswith(b"content-")]
        except ClientDisconnect:
            return
        self.requests["reports", status] += 1
        length = (b"content-length", str(len(body)).encode())
        await send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [(b"content-type", b"application/json"), length, *headers],
            }
        )
        await send({"type": "http.response.body", "body": body})

    async def _take(self, scope: Any, receive: Any) -> bytes:
        task = scope["path_params"]["task"]
        unlinkable = self.collector.senders.get(task) == UNLINKABLE
        if not unlinkable:
            sender = self.authenticate(scope, task)
            self._limit_rate(sender)
        elif any(name in (b"authorization", b"cookie") for name, _ in scope["headers"]):
            message = "Reports of this task travel without a name. Send no Authorization and no cookies."
            raise HttpError(400, "named", message)
        else:
            sender = Sender(task, "", 0, 0.0)
        kind = content_type(scope)
        if kind not in ((WITH_TOKENS,) if unlinkable else (FRAMES, LINES)):
            kinds = WITH_TOKENS if unlinkable else f"{FRAMES} or {LINES}"
            raise HttpError(415, "content_type", f"Send reports as {kinds}.")
        if self.collector.pending_bytes > self.settings.max_pending:
            raise busy()
        body = await read_body(scope, receive, self.settings.max_bytes, self.settings.body_seconds)
        num_bad, unsigned = 0, list[tuple[str, str]]()
        if unlinkable:
            body, unsigned = await run_in_threadpool(self._with_tokens, task, body)
        elif kind == LINES:
            try:
                body, num_bad = await run_in_threadpool(frames_of_lines, body, MAX_LINES)
            except ParameterError as error:
                raise HttpError(413, "too_many_reports", str(error)) from None
        # No report is shorter than this, so a request below it cannot have too many.
        elif len(body) > 30 * self.settings.max_reports and count_frames(body) > self.settings.max_reports:
            message = f"A request has at most {self.settings.max_reports} reports. Send several requests."
            raise HttpError(413, "too_many_reports", message)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer | None] = loop.create_future()
        group = self.senders.kept_group(sender)
        self.collector.submit(collecting.Request(task, body, sender.name, sender.limit, future, group))
        answer = await future
        if answer is None:
            raise busy()
        return self._written(Answer(answer.accepted, answer.failures + unsigned) if unsigned else answer, num_bad)

    # Tokens that hide who sends

    def _issuer(self, digest: str) -> Issuer:
        if self.collector.senders[digest] != UNLINKABLE:
            raise HttpError(404, "no_tokens", "Senders of this task have names, so there are no blind tokens.")
        folder = self.data / "tokens"
        if digest not in self._issuers:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._issuers[digest] = Issuer(folder / digest, self.collector.tasks[digest])
        return self._issuers[digest]

    def _key(self, digest: str, day: int) -> TokenKey | None:
        """Return the key of a day; None of one that is so far away that no report of it is in time."""
        near = abs(day - int(self.collector.now()) // 86_400) <= NEAR
        return self._issuer(digest).key(day) if near and self.collector.tasks[digest].schedule.covers(day) else None

    def _with_tokens(self, digest: str, content: bytes) -> tuple[bytes, list[tuple[str, str]]]:
        """Return the reports that have a valid token, as frames, and id and code of the others."""
        try:
            reports, signatures = split_tokens(content, KEY_BITS // 8)
        except ParameterError as error:
            raise HttpError(422, "tokens", str(error)) from None
        if len(reports) > MAX_LINES:
            raise HttpError(413, "too_many_reports", f"A request has at most {MAX_LINES} reports with tokens.")
        frames, refused = list[bytes](), list[tuple[str, str]]()
        for data, signature in zip(reports, signatures, strict=True):
            try:
                report = Report.from_bytes(data)
            except ReportError:
                refused.append(("", MALFORMED))
                continue
            key = self._key(digest, report.day)
            if key is not None and not valid_tokens(key, [report.report_id], [signature])[0]:
                refused.append((report.report_id.hex(), NO_TOKEN))
            else:  # without a key it is far too early or too late, which its answer will say
                frames.append(len(data).to_bytes(4, "big") + data)
        return b"".join(frames), refused

    async def token_key(self, request: Request) -> Response:
        key = await run_in_threadpool(self._key, *self._day(request))
        if key is None:
            raise HttpError(404, "unknown_day", "Tokens are for days around today.")
        return Response(key.to_json(), media_type="application/json")

    async def sign_tokens(self, request: Request) -> Response:
        period = self._day(request)
        sender = self.authenticate(request.scope, period.task)
        self._limit_rate(sender)
        given = await decoded(request, Blinded, self.settings)
        if await run_in_threadpool(self._key, *period) is None:
            raise HttpError(404, "unknown_day", "Tokens are for days around today.")
        signed = await run_in_threadpool(self._issuer(period.task).sign, sender.name, period.day, given.blinded)
        return Response(msgspec.json.encode({"signed": signed}), media_type="application/json")

    def _written(self, answer: Answer, num_bad: int) -> bytes:
        if not answer.failures and not num_bad:
            known = self._answers.get(answer.accepted)
            if known is None:
                known = self._answers[answer.accepted] = b'{"accepted":%d,"refused":{},"failures":[]}' % answer.accepted
            return known
        failures = answer.failures + [("", MALFORMED)] * num_bad
        content = {
            "accepted": answer.accepted,
            "refused": dict(Counter(code for _, code in failures)),
            "failures": [{"id": name, "code": code} for name, code in failures if name],
        }
        return msgspec.json.encode(content)

    async def erase_report(self, request: Request) -> Response:
        digest = self._task(request)
        self._limit_rate(self.authenticate(request.scope, digest))
        try:
            name = bytes.fromhex(request.path_params["report"])
            checksum = bytes.fromhex(request.query_params.get("checksum", ""))
        except ValueError:
            name = checksum = b""
        if len(name) not in (8, ID_BYTES) or len(checksum) != 4:
            raise HttpError(400, "id", "Give the id of the report, and ?checksum= with its CRC-32, in hexadecimal.")
        day = await run_in_threadpool(self.collector.erase_report, digest, name, checksum)
        if not day:
            raise HttpError(
                404,
                "not_found",
                "No open period has a report with this id and checksum. Closed periods keep only sums.",
            )
        return JSONResponse({"erased": True, "day": day})

    # Tasks and devices

    def _task(self, request: Request) -> str:
        digest = str(request.path_params["task"])
        if digest not in self.collector.tasks:
            raise HttpError(404, "unknown_task", "The collector does not know this task.")
        return digest

    def _day(self, request: Request) -> Period:
        digest = self._task(request)
        try:
            return Period(digest, day_number(request.path_params["day"]))
        except DunnageError:
            raise HttpError(404, "unknown_day", "A day is a date, such as 2026-11-15.") from None

    async def task(self, request: Request) -> Response:
        task = self.collector.tasks[self._task(request)]
        return Response(task.to_json(), media_type="application/json")

    async def tasks(self, request: Request) -> Response:
        found = [
            {"digest": digest, "dataset": task.dataset, "senders": self.collector.senders[digest]}
            for digest, task in self.collector.tasks.items()
        ]
        return JSONResponse({"tasks": found})

    async def add_task(self, request: Request) -> Response:
        given = await decoded(request, NewTask, self.settings)
        task = Task.from_json(bytes(given.task))
        if not 0 <= given.retention_days <= 3660:
            raise ParameterError("retention_days must be 0 to 3660.")
        is_new = await run_in_threadpool(self.collector.add_task, task, given.senders, given.retention_days)
        log("task", dataset=task.dataset, digest=task.digest, new=is_new)
        return JSONResponse({"digest": task.digest, "new": is_new}, 201 if is_new else 200)

    async def set_retention(self, request: Request) -> Response:
        digest, given = self._task(request), await decoded(request, Retention, self.settings)
        if not 0 <= given.days <= 3660:
            raise ParameterError("days must be 0 to 3660.")
        sql = "UPDATE tasks SET retention_days = ? WHERE digest = ?"
        await run_in_threadpool(self.store.book.write, sql, given.days, digest)
        return JSONResponse({"days": given.days})

    async def make_codes(self, request: Request) -> Response:
        digest, given = self._task(request), await decoded(request, NewCodes, self.settings)
        names = list(dict.fromkeys(map(checked_name, given.names)))
        if not 1 <= len(names) <= 10_000 or not 1 <= given.valid_days <= 366:
            raise ParameterError("name 1 to 10,000 devices, with codes that are valid for 1 to 366 days.")
        most = 10_000_000 if self.collector.senders[digest] == GATEWAY else 1
        if not 1 <= given.vehicles <= most:
            raise ParameterError(f"vehicles must be 1 to {most:,} with these senders.")
        if given.group and self.collector.senders[digest] == UNLINKABLE:
            raise ParameterError("vehicles that nobody can tell apart have no group. Leave group out.")
        group = checked_name(given.group) if given.group else ""
        expires = int(self.collector.now()) + given.valid_days * 86_400
        codes = {name: secrets.token_urlsafe(15) for name in names}

        def write() -> None:
            with self.store.book.turn() as book:
                for name, code in codes.items():
                    book.execute("DELETE FROM codes WHERE task = ? AND name = ?", (digest, name))
                    line = hashed(code), digest, name, given.vehicles, expires, group
                    book.execute("INSERT INTO codes VALUES (?, ?, ?, ?, ?, ?)", line)

        await run_in_threadpool(write)
        return JSONResponse({"codes": codes}, 201)

    async def enrol(self, request: Request) -> Response:
        digest, given = self._task(request), await decoded(request, Enrolment, self.settings)
        token = secrets.token_urlsafe(32)

        def write() -> tuple[str, int, str] | None:
            with self.store.book.turn() as book:
                where = "hash = ? AND task = ? AND expires > ?"
                sql = f"DELETE FROM codes WHERE {where} RETURNING name, vehicles, public_group"
                now = int(self.collector.now())
                found = book.execute(sql, (hashed(given.code), digest, now)).fetchall()
                if not found:
                    return None
                (name, vehicles, group), *_ = found
                book.execute(
                    "INSERT INTO devices VALUES (?, ?, ?, ?, ?) ON CONFLICT (task, name) DO UPDATE "
                    "SET hash = excluded.hash, vehicles = excluded.vehicles, public_group = excluded.public_group",
                    (digest, name, hashed(token), vehicles, group),
                )
                return name, vehicles, group

        done = await run_in_threadpool(write)
        if done is None:
            raise HttpError(403, "code", "The code is not known, was used, or has expired. Ask for a new one.")
        self.senders.put(hashed(token), self._sender(digest, *done))
        return JSONResponse({"token": token}, 201)

    async def devices(self, request: Request) -> Response:
        sql = "SELECT name, vehicles, public_group FROM devices WHERE task = ? ORDER BY name"
        rows = await run_in_threadpool(self.store.book.rows, sql, self._task(request))
        return JSONResponse({"devices": [dict(zip(("name", "vehicles", "group"), row, strict=True)) for row in rows]})

    async def erase_device(self, request: Request) -> Response:
        digest, name = self._task(request), str(request.path_params["device"])

        def write() -> int:
            with self.store.book.turn() as book:
                book.execute("DELETE FROM codes WHERE task = ? AND name = ?", (digest, name))
                return int(book.execute("DELETE FROM devices WHERE task = ? AND name = ?", (digest, name)).rowcount)

        of_identity = await run_in_threadpool(self.identities.erase_device, digest, name)
        if not await run_in_threadpool(write):
            raise HttpError(404, "unknown_device", "No device of this task has that name.")
        self.senders.drop(digest, name)
        await run_in_threadpool(lambda: self.collector.forget_sender(digest, name))
        if self.collector.senders[digest] == UNLINKABLE:
            await run_in_threadpool(self._issuer(digest).erase, name)
        erased = ["token", "enrolment", "counts of reports", *of_identity]
        kept = (
            "Its reports carry no name, so nobody can find them. A vehicle that kept their ids can erase those of open "
            "periods itself."
        )
        return JSONResponse({"erased": erased, "kept": kept})

    # Periods

    async def periods(self, request: Request) -> Response:
        digest = self._task(request)
        states = await run_in_threadpool(self.collector.states, digest)
        return JSONResponse({"periods": [self._state(digest, day, state) for day, state in states.items()]})

    def _state(self, digest: str, day: int, state: str) -> dict[str, object]:
        over = self.collector.tasks[digest].schedule.moment(day + 1, 0) < self.collector.now()
        shown = "closing" if state == collecting.TALLYING or (state == collecting.OPEN and over) else state
        return {"day": date.fromordinal(719163 + day).isoformat(), "state": shown}

    async def period(self, request: Request) -> Response:
        period = self._day(request)
        return JSONResponse(await run_in_threadpool(self._describe, period))

    def _describe(self, period: Period) -> dict[str, object]:
        state = self.collector.states(period.task).get(period.day)
        if state is None:
            raise HttpError(404, "unknown_day", "No report of this day has come.")
        facts = self._state(period.task, period.day, state)
        if state in (collecting.OPEN, collecting.TALLYING):
            tallied = self.collector.progress(period)
            return {**facts, **tallied}
        return {**facts, "statement": periods.statement_of(self.store, period).plain()}

    async def close(self, request: Request) -> Response:
        period, given = self._day(request), await decoded(request, Closing, self.settings)
        statement = await run_in_threadpool(self.close_period, period, given.early)
        return Response(canonical(statement.plain()), media_type="application/json")

    def close_period(self, period: Period, early: bool = False) -> ClosingStatement:
        statement = periods.close_period(self.collector, period, early=early, sign=self.settings.sign)
        log("closed", task=period.task, day=statement.day, reports=statement.ids.num, cautions=len(statement.cautions))
        for sentence in periods.look_at_period(self.collector, period) if statement.reports else ():
            log("alarm", task=period.task, says=sentence)
        return statement

    async def erase(self, request: Request) -> Response:
        period = self._day(request)
        await run_in_threadpool(periods.erase_period, self.collector, period)
        log("erased", task=period.task, day=period.day)
        return JSONResponse({"state": collecting.ERASED})

    async def estimate(self, request: Request) -> Response:
        digest, given = self._task(request), await decoded(request, Days, self.settings)
        first, last = _days(given.first, given.last)
        done = await run_in_threadpool(self.make_estimate, digest, first, last, given.confidence, given.allow_noise)
        return JSONResponse(done, 201)

    def make_estimate(
        self, digest: str, first: int, last: int, confidence: float = 0.95, allow_noise: bool = False
    ) -> dict[str, object]:
        """Estimate some days, write the release, verify it, and say where its files are."""
        from dunnage.showing.estimates import estimates_page, geojson, has_maps
        from dunnage.verification import verify

        release = periods.estimate_days(
            self.collector, digest, first, last, confidence=confidence, allow_noise=allow_noise
        )
        folder = periods.release_folder(self.data, digest, first, last)
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_estimates(release, folder, sign=self.settings.sign, force=True)
        checked = verify(folder)
        if not checked.ok:
            raise InternalError("estimates that were just written do not verify.")
        folder.with_suffix(".html").write_text(estimates_page(Release.read(folder)), encoding="utf-8")
        maps = periods.robust_of_days(self.collector, digest, first, last, confidence)
        robust = {name: {**made.to_dict(), "says": made.lines()} for name, made in maps.items()}
        beside = folder.with_name(f"{folder.name}.{ROBUST_FILE}")
        beside.unlink(missing_ok=True)
        if robust:
            beside.write_bytes(msgspec.json.encode(robust))
        if has_maps(release):
            folder.with_suffix(".geojson").write_text(geojson(release), encoding="utf-8")
        if first == last:
            periods.note_estimated(self.collector, Period(digest, first))
        log("estimated", task=digest, days=folder.name)
        files = sorted(path.name for path in folder.iterdir())
        reports = sum(sum(tiers.values()) for tiers in release.certificate.estimates.reports.values())
        says = [line for made in maps.values() for line in made.lines()]
        return {"days": folder.name, "reports": reports, "verified": checked.ok, "files": files, "robust": says}

    async def estimate_file(self, request: Request) -> Response:
        digest, days, name = self._task(request), request.path_params["days"], request.path_params["file"]
        if not re.fullmatch(r"\d{4}-\d\d-\d\d(_\d{4}-\d\d-\d\d)?", days) or not re.fullmatch(r"[\w.-]{1,60}", name):
            raise HttpError(404, "not_found", "There is no such file.")
        folder = self.data / "releases" / digest
        beside = {"cells.geojson": f"{days}.geojson", ROBUST_FILE: f"{days}.{ROBUST_FILE}"}
        path = folder / beside.get(name, f"{days}/{name}")
        if not path.is_file():
            raise HttpError(404, "not_found", "There is no such file.")
        kinds = {
            ".json": "application/json",
            ".csv": "text/csv",
            ".md": "text/markdown",
            ".geojson": "application/geo+json",
        }
        headers = {"content-disposition": f'attachment; filename="{name}"', "x-content-type-options": "nosniff"}
        content = await run_in_threadpool(path.read_bytes)
        return Response(content, headers=headers, media_type=kinds.get(path.suffix, "application/octet-stream"))

    # Views and alarms

    async def view(self, request: Request) -> Response:
        digest, given = self._task(request), request.query_params
        first, last = _days(given.get("from", ""), given.get("to", ""))
        made, few = await run_in_threadpool(self._view, digest, first, last, request.path_params["by"])
        says = made.sentences() + ([f"groups with too few reports are left out: {', '.join(few)}"] if few else [])
        return JSONResponse({"by": made.by, "lines": made.lines, "noise": made.noise, "says": says})

    def _view(self, digest: str, first: int, last: int, by: str) -> tuple[View, list[str]]:
        if by == GROUP:
            return periods.view_of_groups(self.collector, digest, first, last)
        if by not in VIEWS:
            raise ParameterError(f"a view is by {', '.join(VIEWS)}.")
        sources = periods.stored_sources(self.collector, digest, first, last)
        return view(self.collector.tasks[digest], sources, by), []

    async def alarms(self, request: Request) -> Response:
        digest = self._task(request)
        given = await run_in_threadpool(periods.alarms_of, self.collector, digest)
        looks = await run_in_threadpool(periods.looks_of, self.collector, digest)
        return JSONResponse({"alarms": None if given is None else given.plain(), "looks": looks})

    async def set_alarms(self, request: Request) -> Response:
        digest, content = self._task(request), await decoded(request, Any, self.settings)
        given = check(content, periods.AlarmRules, "the alarms", what="alarms")
        await run_in_threadpool(periods.set_alarms, self.collector, digest, given)
        return JSONResponse(given.plain())

    # The service itself

    async def health(self, request: Request) -> Response:
        return JSONResponse({"alive": True, "version": __version__})

    async def ready(self, request: Request) -> Response:
        if not self.collector.is_ready:
            self.collector.run(self.collector.look_up)  # the next request for readiness sees what came of it
        reason = self.collector.failed or ("the clock was set" if self.collector.clock_jumped() else "")
        is_ready = self.collector.is_ready
        return JSONResponse({"ready": is_ready, "reason": reason}, 200 if is_ready else 503)

    async def metrics(self, request: Request) -> Response:
        counts = self.collector.counts
        lines = ["# TYPE dunnage_reports_total counter"]
        kinds = ("accepted", *dict.fromkeys(CODES.values()))
        lines += [f'dunnage_reports_total{{answer="{kind}"}} {counts[kind]}' for kind in kinds]
        lines += ["# TYPE dunnage_requests_total counter"]
        lines += [
            f'dunnage_requests_total{{route="{route}",status="{status}"}} {num}'
            for (route, status), num in sorted(self.requests.items())
        ]
        for name, kind, number in (
            ("groups_total", "counter", counts["groups"]),
            ("failed_commits_total", "counter", counts["failed commits"]),
            ("pending_bytes", "gauge", self.collector.pending_bytes),
            ("ids_in_memory", "gauge", self.collector.num_ids),
            ("devices", "gauge", len(self.senders)),
            ("ready", "gauge", int(self.collector.is_ready)),
        ):
            lines += [f"# TYPE dunnage_{name} {kind}", f"dunnage_{name} {number}"]
        return PlainTextResponse("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4")

    async def openapi(self, request: Request) -> Response:
        from dunnage.serving.openapi import document

        return JSONResponse(document())

    # Who may do what

    def roles_of(self, request: Request) -> frozenset[str]:
        # Cookies only read: nothing that a page of somebody else makes a browser send can change anything.
        person = self.door.person(request)
        if person is None:
            return frozenset()
        # A session may be that of whoever sits at this machine; an officer of identity records has a token.
        return person.roles if "authorization" in request.headers else person.roles - {OFFICER}

    async def sign_in(self, request: Request) -> Response:
        key, person = self.door.enter(code=request.query_params.get("code", ""))
        place = "/" if person.roles & {OPERATOR, ANALYST} else "/studio"
        return self.door.begin(key, Response(status_code=303, headers={"location": place}), request.cookies.get(COOKIE))

    async def work(self) -> None:
        """Close what is over and erase what is due, once a minute."""
        while True:
            if self.collector.is_ready:
                try:
                    await run_in_threadpool(self.do_due)
                except Exception as error:  # tried again in a minute
                    log("failed", work="due", error=type(error).__name__)
            await asyncio.sleep(60)

    def do_due(self) -> None:
        for digest, senders in self.collector.senders.items():
            if senders == UNLINKABLE:  # all days before have closed
                self._issuer(digest).forget(int(self.collector.now()) // 86_400 - NEAR)
        for kind, period in list(periods.due_work(self.collector)):
            try:
                if kind == "close":
                    self.close_period(period)
                else:
                    periods.erase_period(self.collector, period)
                    log("erased", task=period.task, day=period.day)
            except DunnageError as error:
                log("failed", work=kind, error=type(error).__name__)


def _resolve(answered: list[tuple[collecting.Request, Answer | None]]) -> None:
    for request, answer in answered:
        if not request.handle.done():
            request.handle.set_result(answer)


def _days(first: str, last: str) -> tuple[int, int]:
    days = day_number(first), day_number(last)
    if not days[0] <= days[1] < days[0] + 3_660:
        raise ParameterError("the first day must not be after the last.")
    return days


def busy() -> HttpError:
    message = "The reports could not be stored now. Send them again later."
    return HttpError(503, "busy", message, Retry_After=RETRY_SECONDS)


def count_frames(content: bytes) -> int:
    num = at = 0
    while at + 4 <= len(content):
        at += 4 + int.from_bytes(content[at : at + 4], "big")
        num += 1
    return num


async def decoded(request: Request, kind: type[Any], settings: Settings) -> Any:
    if content_type(request.scope) != "application/json":
        raise HttpError(415, "content_type", "Send application/json.")
    body = await read_body(request.scope, request.receive, MAX_JSON, settings.body_seconds)
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HttpError(422, "body", f"The body does not fit: {str(error)[:200]}.") from None


def make_app(service: Service, more: Sequence[Route] = ()) -> Starlette:
    """Put the routes together; each must have a line in ``MAY``, and each line a route. Those of the studio follow."""
    from dunnage.serving import identity, pages

    handlers: Handlers = {
        "GET /v1/tasks/{task}": service.task,
        "POST /v1/tasks/{task}/enrol": service.enrol,
        "POST /v1/tasks/{task}/reports": service.reports,
        "GET /v1/tasks/{task}/tokens/{day}": service.token_key,
        "POST /v1/tasks/{task}/tokens/{day}": service.sign_tokens,
        "DELETE /v1/tasks/{task}/reports/{report}": service.erase_report,
        "GET /v1/tasks": service.tasks,
        "POST /v1/tasks": service.add_task,
        "PUT /v1/tasks/{task}/retention": service.set_retention,
        "POST /v1/tasks/{task}/codes": service.make_codes,
        "GET /v1/tasks/{task}/devices": service.devices,
        "DELETE /v1/tasks/{task}/devices/{device}": service.erase_device,
        "GET /v1/tasks/{task}/periods": service.periods,
        "GET /v1/tasks/{task}/periods/{day}": service.period,
        "POST /v1/tasks/{task}/periods/{day}/close": service.close,
        "POST /v1/tasks/{task}/periods/{day}/erase": service.erase,
        "POST /v1/tasks/{task}/estimates": service.estimate,
        "GET /v1/tasks/{task}/estimates/{days}/{file}": service.estimate_file,
        "GET /v1/tasks/{task}/views/{by}": service.view,
        "GET /v1/tasks/{task}/alarms": service.alarms,
        "PUT /v1/tasks/{task}/alarms": service.set_alarms,
        "GET /v1/health": service.health,
        "GET /v1/ready": service.ready,
        "GET /v1/metrics": service.metrics,
        "GET /v1/openapi.json": service.openapi,
        "GET /sign-in": service.sign_in,
        **pages.handlers(service),
        **identity.handlers(service),
    }
    app = Starlette(routes=[*guarded(service, handlers), *more])
    app.router.redirect_slashes = False
    return app


def shared_studio(service: Service) -> Studio:
    """Return the studio of a team, in the same folder: its people are those of the service."""
    from dunnage.serving.studio import Studio, StudioSettings

    settings = StudioSettings(
        service.data / "studio", service.settings.listen, database=service.settings.database or "",
        site=service.settings.site or "",
    )  # fmt: skip
    studio = Studio(settings, service.door, service.settings.provider())
    service.closing.append(studio.close)
    return studio


def guarded(service: Service, handlers: Handlers) -> list[Route]:
    """Make routes that check who asks; one without a role does not start."""
    if handlers.keys() != MAY.keys():
        unlike = sorted(handlers.keys() ^ MAY.keys())
        raise InternalError(f"every route must name who may use it, and every name a route: {', '.join(unlike)}.")
    routes = []
    for line, handler in handlers.items():
        method, path = line.split(" ")
        roles = MAY[line]
        endpoint = _Reports(handler) if handler == service.reports else _guard(service, line, roles, handler)
        routes.append(Route(path, endpoint, methods=[method]))
    return routes


class _Reports:
    """An ASGI application, which Starlette calls without making a request of it."""

    def __init__(self, handler: Callable[[Any, Any, Any], Awaitable[None]]) -> None:
        self._handler = handler

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._handler(scope, receive, send)


def _guard(
    service: Service, line: str, roles: tuple[str, ...], handler: Callable[[Request], Awaitable[Response]]
) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        try:
            if not {ANYONE, DEVICE} & set(roles) and not service.roles_of(request) & set(roles):
                message = f"This needs the role {' or '.join(roles)}. Send its token: Authorization: Bearer TOKEN."
                raise HttpError(401, "role", message, WWW_Authenticate="Bearer")
            response = await handler(request)
        except ClientDisconnect:
            response = Response(status_code=400)
        except Exception as error:
            response = HttpError.of(error, line).response()
        service.requests[line.partition(" ")[2], response.status_code] += 1
        return response

    return endpoint


def run(service: Service, more: Sequence[Route] = ()) -> int:
    """Serve until SIGTERM or SIGINT; what was taken in is stored and answered first."""
    import uvicorn

    host, port = service.settings.address
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    LOG.addHandler(handler)
    LOG.setLevel(logging.INFO)
    config = uvicorn.Config(
        make_app(service, more),
        host=host,
        port=port,
        access_log=False,
        log_config=None,
        log_level="critical",
        server_header=False,
        date_header=False,
        proxy_headers=False,
        lifespan="off",
        timeout_graceful_shutdown=30,
        limit_concurrency=4096,
        h11_max_incomplete_event_size=1 << 16,
    )

    class Server(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield  # the signal is handled below; here it would end the process before everything is stored

    server = Server(config)

    def stop() -> None:
        server.should_exit = True

    async def serve() -> None:
        service.loop, service.stop_server = asyncio.get_running_loop(), stop
        for number in (signal.SIGTERM, signal.SIGINT):
            service.loop.add_signal_handler(number, stop)
        work = asyncio.create_task(service.work())
        log("started", listen=service.settings.listen, version=__version__)
        try:
            await server.serve()
        finally:
            work.cancel()

    try:
        with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
            runner.run(serve())
    finally:
        for close in service.closing:
            close()
        service.collector.stop()
        log("stopped", reason=service.collector.failed or "signal")
        LOG.removeHandler(handler)
    return 1 if service.collector.failed or not server.started else 0
