# SPDX-License-Identifier: Apache-2.0
"""Identity records over HTTP: an operator seals them; two officers open one together, each with a share of their own.

The first officer names vehicles, a reason and their share; the second, a different person, sees the request and adds
theirs. Only then does the platform key exist, for a moment. Requests wait in memory alone, for an hour at most. Shares
and the log are those of :mod:`dunnage.collecting.vault`.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from dunnage.collecting.store import Database
from dunnage.collecting.vault import Share, Vault
from dunnage.errors import ParameterError, Refusal
from dunnage.serving.web import log

if TYPE_CHECKING:
    from dunnage.serving.service import Handlers, Service

VAULT = "vault"  # folder below the data of a service
WAIT_SECONDS = 3600
MAX_WAITING, MAX_OPENED, MAX_SEALED, MAX_TEXT = 100, 100, 10_000, 1_000


class Records(msgspec.Struct, forbid_unknown_fields=True):
    records: dict[str, dict[str, str]]  # by vehicle


class ShareFile(msgspec.Struct, forbid_unknown_fields=True):
    """What stands in the file of a custodian."""

    format: int
    kind: str
    custodian: str
    platform: str
    share: str


class Opening(msgspec.Struct, forbid_unknown_fields=True):
    vehicles: list[str]
    reason: str
    share: ShareFile


class SecondShare(msgspec.Struct, forbid_unknown_fields=True):
    share: ShareFile


class Erasure(msgspec.Struct, forbid_unknown_fields=True):
    reason: str


class Waiting(NamedTuple):
    by: str
    vehicles: list[str]
    reason: str
    share: Share
    until: float


class Identities:
    """The vault of a service, and the requests that wait for a second officer."""

    def __init__(self, book: Database, folder: Path) -> None:
        self._book, self._folder = book, folder
        self._waiting: dict[str, Waiting] = {}
        self._turn = threading.Lock()

    def vault(self) -> Vault:
        if not self._folder.is_dir():
            raise Refusal(
                f"there is no vault. Make one on the machine of the service: dunnage identity create DATA/{VAULT}."
            )
        return Vault.open(self._folder)

    def describe(self) -> dict[str, object]:
        vault = self.vault()
        waiting = [
            {"opening": name, "by": one.by, "vehicles": one.vehicles, "reason": one.reason}
            for name, one in self._current().items()
        ]
        custodians = {"platform": vault.platform, "custodians": list(vault.custodians)}
        return {**custodians, "vehicles": vault.vehicles, "waiting": waiting}

    def seal(self, person: str, records: Mapping[str, Mapping[str, str]]) -> int:
        if not 1 <= len(records) <= MAX_SEALED:
            raise ParameterError(f"give 1 to {MAX_SEALED:,} records.")
        if not all(name.strip() and len(name) <= MAX_TEXT for name in records):
            raise ParameterError(f"an alias of a vehicle has 1 to {MAX_TEXT:,} characters.")
        return self.vault().seal_rows([(name, dict(record)) for name, record in records.items()], by=[person])

    def ask(self, person: str, given: Opening) -> str:
        """Note what an officer wants to open, with their share; return the name of the request."""
        vault, share = self.vault(), self._own_share(person, given.share)
        vehicles = list(dict.fromkeys(given.vehicles))
        if not 1 <= len(vehicles) <= MAX_OPENED or not set(vehicles) <= set(vault.vehicles):
            raise ParameterError(f"name 1 to {MAX_OPENED} vehicles that have a record.")
        if not given.reason.strip() or len(given.reason) > MAX_TEXT:
            raise ParameterError(f"opening a record needs a reason of at most {MAX_TEXT:,} characters.")
        vault.check_share(share)
        waiting, name = self._current(), secrets.token_urlsafe(12)
        if len(waiting) >= MAX_WAITING:
            raise Refusal("too many requests wait for a second officer. Withdraw some.")
        with self._turn:
            self._waiting[name] = Waiting(person, vehicles, given.reason, share, time.monotonic() + WAIT_SECONDS)
        return name

    def open(self, person: str, name: str, share: ShareFile) -> dict[str, dict[str, object]]:
        """Open what another officer asked for; the log of the vault names both."""
        asked = self._asked(name)
        if asked.by == person:
            raise Refusal("another officer must agree. Nobody opens a record alone.")
        shares = [asked.share, self._own_share(person, share)]
        opened = self.vault().reveal(asked.vehicles, shares, reason=asked.reason)
        with self._turn:
            self._waiting.pop(name, None)
        return opened

    def withdraw(self, name: str) -> None:
        self._asked(name)
        with self._turn:
            self._waiting.pop(name, None)

    def erase_device(self, task: str, name: str) -> list[str]:
        """Erase the record of a device that is enrolled for this task alone; return what was erased."""
        tasks = {found for (found,) in self._book.rows("SELECT task FROM devices WHERE name = ?", name)}
        if tasks != {task} or not self._folder.is_dir():
            return []
        vault = self.vault()
        if name not in vault.vehicles:
            return []
        vault.erase(name, reason="the device was erased")
        return ["identity record"]

    def _own_share(self, person: str, given: ShareFile) -> Share:
        share = Share.of(msgspec.structs.asdict(given))
        if share.custodian != person:
            raise Refusal("the share is not yours: it carries the name of another custodian.")
        return share

    def _current(self) -> dict[str, Waiting]:
        now = time.monotonic()
        with self._turn:
            self._waiting = {name: one for name, one in self._waiting.items() if one.until > now}
            return dict(self._waiting)

    def _asked(self, name: str) -> Waiting:
        asked = self._current().get(name)
        if asked is None:
            raise Refusal("no such request waits: it was opened, withdrawn or is older than an hour. Ask again.")
        return asked


def handlers(service: Service) -> Handlers:
    from dunnage.serving.service import decoded

    own, settings = service.identities, service.settings

    def person(request: Request) -> str:
        found = service.door.person(request)
        assert found is not None  # the route's role was checked
        return found.name

    def answer(content: object, status: int = 200) -> Response:
        return JSONResponse(content, status, {"cache-control": "no-store"})

    async def describe(request: Request) -> Response:
        return answer(await run_in_threadpool(own.describe))

    async def history(request: Request) -> Response:
        return answer({"log": await run_in_threadpool(lambda: own.vault().log())})

    async def seal(request: Request) -> Response:
        given = await decoded(request, Records, settings)
        num = await run_in_threadpool(lambda: own.seal(person(request), given.records))
        log("identity", what="sealed", records=num)
        return answer({"sealed": num}, 201)

    async def erase(request: Request) -> Response:
        given, vehicle = await decoded(request, Erasure, settings), str(request.path_params["vehicle"])

        def work() -> None:
            own.vault().erase(vehicle, reason=given.reason[:MAX_TEXT], by=[person(request)])

        await run_in_threadpool(work)
        log("identity", what="erased", records=1)
        return answer({"erased": ["identity record"]})

    async def ask(request: Request) -> Response:
        given = await decoded(request, Opening, settings)
        name = await run_in_threadpool(lambda: own.ask(person(request), given))
        log("identity", what="asked", records=len(given.vehicles))
        return answer({"opening": name, "waits_for": "another officer", "seconds": WAIT_SECONDS}, 202)

    async def agree(request: Request) -> Response:
        given, name = await decoded(request, SecondShare, settings), str(request.path_params["opening"])
        opened = await run_in_threadpool(lambda: own.open(person(request), name, given.share))
        log("identity", what="opened", records=len(opened))
        return answer({"records": opened})

    async def withdraw(request: Request) -> Response:
        await run_in_threadpool(own.withdraw, str(request.path_params["opening"]))
        return answer({"withdrawn": True})

    return {
        "GET /v1/identity": describe,
        "GET /v1/identity/log": history,
        "POST /v1/identity/records": seal,
        "POST /v1/identity/records/{vehicle}/erase": erase,
        "POST /v1/identity/openings": ask,
        "POST /v1/identity/openings/{opening}": agree,
        "DELETE /v1/identity/openings/{opening}": withdraw,
    }
