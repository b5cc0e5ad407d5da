# SPDX-License-Identifier: Apache-2.0
"""What collector and studio share: who is at the door, errors, bodies of limited size, one line of log an event."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import re
import secrets
import threading
import time
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from dunnage.collecting.store import Database
from dunnage.errors import DunnageError, InternalError, ParameterError, Refusal, StoreError

LOG = logging.getLogger("dunnage")
ANYONE, DEVICE, OPERATOR, ANALYST, MONITOR = "anyone", "device", "operator", "analyst", "monitor"
OWNER, OFFICER, PLANNER, AUDITOR, ADMIN = "owner", "officer", "planner", "auditor", "admin"
STUDIO = (OWNER, OFFICER, PLANNER, AUDITOR, ADMIN)  # roles of people in the studio
PEOPLE = (OPERATOR, ANALYST, MONITOR, *STUDIO)  # roles of people and programs, other than devices
SESSION_SECONDS = 12 * 3600
COOKIE = "dunnage_session"
SESSIONS = (
    "CREATE TABLE IF NOT EXISTS sessions (hash BYTES PRIMARY KEY, person BYTES NOT NULL, expires INTEGER NOT NULL)"
)
LOCAL = b""  # the person who started the service on this machine, who has no token
HEADERS = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._ -]{0,63}")


class HttpError(Exception):
    def __init__(self, status: int, code: str, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status, self.code, self.headers = status, code, headers

    def response(self) -> Response:
        content = {"error": {"code": self.code, "message": str(self)}}
        return JSONResponse(content, self.status, {key.replace("_", "-"): text for key, text in self.headers.items()})

    @classmethod
    def of(cls, error: Exception, line: str) -> HttpError:
        """Return what to say about an error; of one that nobody expected, the log names only type and place."""
        if isinstance(error, HttpError):
            return error
        if isinstance(error, DunnageError) and not isinstance(error, InternalError):
            status = 503 if isinstance(error, StoreError) else 409 if isinstance(error, Refusal) else 422
            return cls(status, type(error).__name__, str(error))
        if os.environ.get("DUNNAGE_TRACEBACK"):  # it may contain private values
            traceback.print_exception(error)
        where = traceback.extract_tb(error.__traceback__)[-1]
        log("error", route=line, error=type(error).__name__, file=Path(where.filename).name, line=where.lineno)
        return cls(500, "internal", "An error that nobody expected. It is in the log.")


def log(event: str, **facts: object) -> None:
    """Write one line of JSON; never a report, an address or an identity."""
    level = logging.ERROR if event in ("error", "failed") else logging.INFO
    LOG.log(level, json.dumps({"event": event, **facts}, sort_keys=True))


def hashed(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def handle(key: bytes) -> str:
    """Name a person in a form; neither the token nor its hash can be told from it."""
    return hashed(key.hex()).hex()[:32]


def checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ParameterError("a name has 1 to 64 letters, digits, dots, dashes and spaces, and begins with a letter.")
    return name


class Person(NamedTuple):
    name: str
    roles: frozenset[str]


class Door:
    """Who asks: people by their tokens, browsers by a session, and whoever has the link that works once."""

    def __init__(self, local: Person | None, *, secure: bool = False) -> None:
        self.people: dict[bytes, Person] = {}  # by the hash of their token
        self.keep: Callable[[bytes, Person], None] | None = None  # keeps an invited person; None where there are none
        self.drop: Callable[[bytes], None] | None = None  # forgets one
        self.book: Database | None = None  # where sessions are kept; without one they end with the process
        self._secure, self._here = secure, dict[bytes, tuple[bytes, int]]()
        self._lock = threading.Lock()
        self._local, self.code = local, secrets.token_urlsafe(24) if local is not None else ""

    def person(self, request: Request, *, changes: bool = False) -> Person | None:
        known = self.known(request, changes=changes)
        return None if known is None else known[1]

    def known(self, request: Request, *, changes: bool = False) -> tuple[bytes, Person] | None:
        """Return who asks; a session counts where something is changed only if a page of ours made the request."""
        tokens, session = request.headers.getlist("authorization"), request.cookies.get(COOKIE)
        if len(tokens) == 1 and tokens[0].startswith("Bearer "):
            key = hashed(tokens[0][7:])
        elif not session or (request.method not in ("GET", "HEAD") and not (changes and same_origin(request))):
            return None
        else:
            key, expires = self._session(hashed(session))
            if expires <= time.time():
                return None
        person = self._local if key == LOCAL else self.people.get(key)
        return None if person is None else (key, person)

    def _session(self, key: bytes) -> tuple[bytes, int]:
        if self.book is None:
            return self._here.get(key, (LOCAL, 0))
        rows = self.book.rows("SELECT person, expires FROM sessions WHERE hash = ?", key)
        return (bytes(rows[0][0]), int(rows[0][1])) if rows else (LOCAL, 0)

    def enter(self, *, code: str = "", token: str = "") -> tuple[bytes, Person]:
        """Return who may sign in by the link, which works once, or by a token."""
        if code and self.code and self._local is not None and secrets.compare_digest(code.encode(), self.code.encode()):
            self.code = ""
            return LOCAL, self._local
        person = self.people.get(hashed(token)) if token else None
        if person is None:
            what = "The token is not known." if token else "The link was used, or is not right."
            raise HttpError(403, "code", f"{what} Start the service again for a new link, or ask for a new token.")
        return hashed(token), person

    def invite(self, name: str, role: str) -> str:
        """Give a person or program a role; return the token, which is shown once."""
        if role not in PEOPLE:
            raise ParameterError(f"a role must be one of {', '.join(PEOPLE)}.")
        if self.keep is None:
            raise ParameterError("only a service for a team has people: dunnage serve --studio.")
        token, person = secrets.token_urlsafe(32), Person(checked_name(name), frozenset([role]))
        self.keep(hashed(token), person)
        self.people[hashed(token)] = person
        return token

    def remove(self, key: bytes) -> Person:
        """Remove a person or program: the token and every session end at once. One admin always stays."""
        with self._lock:
            person = self.people.get(key)
            if person is None:
                raise HttpError(404, "no_person", "There is no such person.")
            if ADMIN in person.roles and sum(ADMIN in one.roles for one in self.people.values()) == 1:
                raise HttpError(409, "last_admin", "This is the last admin. Invite another admin first.")
            if self.drop is not None:
                self.drop(key)
            del self.people[key]
            if self.book is None:
                self._here = {one: kept for one, kept in self._here.items() if kept[0] != key}
            else:
                self.book.write("DELETE FROM sessions WHERE person = ?", key)
        return person

    def begin(self, key: bytes, response: Response, before: str | None = None) -> Response:
        """Begin a new session: an id that was there before sign-in ends, so that nobody can have chosen it."""
        session, expires = secrets.token_urlsafe(32), int(time.time()) + SESSION_SECONDS
        self.end(before)
        if self.book is None:
            self._here[hashed(session)] = key, expires
        else:
            self.book.write("DELETE FROM sessions WHERE expires < ?", int(time.time()))
            self.book.write("INSERT INTO sessions VALUES (?, ?, ?)", hashed(session), key, expires)
        response.set_cookie(
            COOKIE, session, max_age=SESSION_SECONDS, httponly=True, samesite="lax", secure=self._secure
        )
        return response

    def end(self, session: str | None) -> None:
        if session and self.book is not None:
            self.book.write("DELETE FROM sessions WHERE hash = ?", hashed(session))
        elif session:
            self._here.pop(hashed(session), None)


def same_origin(request: Request) -> bool:
    """Return whether a page of ours made the browser send this."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None:
        return site == "same-origin"
    return origin is not None and urlsplit(origin).netloc == request.headers.get("host")


def content_type(scope: Any) -> str:
    kinds = [text for name, text in scope["headers"] if name == b"content-type"]
    return kinds[0].decode("latin-1").partition(";")[0].strip().lower() if len(kinds) == 1 else ""


async def read_body(scope: Any, receive: Callable[[], Awaitable[Any]], most: int, seconds: float) -> bytes:
    """Read a body of limited size in limited time."""
    parts = [part async for part in body_parts(scope, receive, most, seconds)]
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def body_parts(scope: Any, receive: Callable[[], Awaitable[Any]], most: int, seconds: float) -> Any:
    """Yield the parts of a body of limited size and time; a compressed one is refused, so that none can unfold."""
    large = HttpError(413, "too_large", f"A request has at most {most} bytes. Send several requests.")
    for name, text in scope["headers"]:
        if name == b"content-encoding" and text.strip().lower() != b"identity":
            raise HttpError(415, "content_encoding", "Send the request without compression.")
        if name == b"content-length" and (not text.isdigit() or int(text) > most):
            raise large
    size, more, until = 0, True, asyncio.get_running_loop().time() + seconds
    while more:
        try:
            async with asyncio.timeout_at(until):
                message = await receive()
        except TimeoutError:
            raise HttpError(408, "too_slow", "The request took too long. Send it again.") from None
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        part = message.get("body", b"")
        size, more = size + len(part), message.get("more_body", False)
        if size > most:
            raise large
        yield part
