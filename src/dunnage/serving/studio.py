# SPDX-License-Identifier: Apache-2.0
"""The studio: the whole loop in a browser. Every route names who may use it; the studio does not start if one does not.

A page is a function that takes a :class:`Visit` and returns a response; it runs in a thread, so it may read files.
``owner`` and its siblings each have a table ``ROUTES`` of them. What takes longer than a moment, and everything that
reads what somebody uploaded, is a job (``jobs``). All that a page shows can also be done by a command.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import mimetypes
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.formparsers import FormParser, MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from dunnage.collecting.store import Database, Postgres, SqliteFile
from dunnage.errors import InternalError, StoreError
from dunnage.publishing import LEDGER_FILE
from dunnage.serving import jobs as job_states
from dunnage.serving import web
from dunnage.serving.jobs import Job, Jobs
from dunnage.serving.projects import TABLES as PROJECT_TABLES
from dunnage.serving.projects import Conflict, Project, Projects
from dunnage.serving.web import (
    ADMIN,
    ANYONE,
    AUDITOR,
    COOKIE,
    HEADERS,
    LOG,
    OFFICER,
    OWNER,
    PLANNER,
    STUDIO,
    Door,
    HttpError,
    Person,
    body_parts,
    content_type,
)
from dunnage.showing import figures as draw

if TYPE_CHECKING:
    from dunnage.serving import signin

POLICY = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
PREVIEW_DAYS, JOB_DAYS = 7, 90  # how long what has ended is kept
KEPT_JOBS = {"preview": PREVIEW_DAYS, "survey": 36_500, "size": 36_500}  # pages need what files and fleets were
MAX_FIELDS, MAX_FIELD_BYTES, FORM_SECONDS = 5_000, 1 << 20, 3_600
_EVENT_SECONDS, _EVENTS_FOR = 0.25, 900
_RECEIVED = re.compile(r"(received|public/cities)/[0-9a-f]{12}\.(zip|csv)")
_WORDS = {
    job_states.WAITING: "Waiting for its turn",
    job_states.RUNNING: "Working",
    job_states.DONE: "Done",
    job_states.FAILED: "It failed",
    job_states.CANCELLED: "Cancelled",
    job_states.STOPPED: "Stopped",
}

Page = Callable[["Visit"], Response]
Routes = Mapping[str, tuple[tuple[str, ...], Page]]  # by method and path: who may use it, and what answers


@dataclass(frozen=True)
class StudioSettings:
    folder: Path
    listen: str = "127.0.0.1:8400"
    ledger: str = ""  # a file or postgresql://...; by default one file in the folder, for all projects
    database: str = field(default="", repr=False)  # postgresql://..., in place of a SQLite file in the folder
    site: str = ""  # the address that people use, such as https://studio.example.org
    max_upload: int = 1 << 30  # bytes
    memory_mb: int = 8192  # of a job
    seconds: int = 3600  # of a job
    parallel: int = 2  # jobs at once


@dataclass(frozen=True)
class Upload:
    label: str  # its own name: for people, never a path
    file: BinaryIO = field(repr=False)
    size: int


@dataclass
class Visit:
    """One request of a signed-in person."""

    studio: Studio
    request: Request
    person: Person
    form: dict[str, str] = field(default_factory=dict, repr=False)
    lists: dict[str, list[str]] = field(default_factory=dict, repr=False)  # all values of a field
    uploads: dict[str, Upload] = field(default_factory=dict, repr=False)

    def __getitem__(self, name: str) -> str:
        """Return a part of the path."""
        return str(self.request.path_params[name])

    def may(self, *roles: str) -> bool:
        return not self.person.roles.isdisjoint(roles)

    @property
    def project(self) -> Project:
        project = self.studio.projects.get(self["project"])
        if project is None:
            raise HttpError(404, "no_project", "There is no such project.")
        return project

    @property
    def version(self) -> int:
        """The version of the project that the form was made from."""
        text = self.form.get("version", "")
        if not text.isdigit():
            raise HttpError(422, "version", "The form is not complete. Open the page again.")
        return int(text)

    def page(self, template: str, status: int = 200, **content: Any) -> Response:
        """Fill in ``showing/templates/studio/TEMPLATE.html``."""
        project = content.get("project")
        inside = {
            "person": self.person,
            "roles": sorted(self.person.roles & set(STUDIO)),
            "nav": self.studio.nav(self, project),
            "here": self.request.url.path,
            "project": project,
            "said": self.said,
            "team": bool(self.studio.door.people),
            "provider": self.studio.signing.provider,
            **content,
        }
        text = draw.render(f"studio/{template}.html", inside)
        return HTMLResponse(text, status, {**HEADERS, "content-security-policy": POLICY})

    def go(self, path: str) -> Response:
        return RedirectResponse(path, 303, {"cache-control": "no-store"})

    def at(self, *parts: object) -> str:
        """Return the address of a page of the project of this visit."""
        return "/".join(["/studio/projects", self["project"], *map(str, parts)])

    def start(self, project: Project, kind: str, *argv: str, role: str, place: str, spends: bool = False) -> str:
        """Start a job in the project's folder; return its id. ``argv`` begins with a module, such as ``dunnage``."""
        self.studio.tidy()
        return self.studio.jobs.start(
            project.id, kind, argv, project.folder, role=role, place=place, by=self.person.name, spends=spends
        )

    def wait(self, job_id: str) -> Response:
        """Go to the page that waits for a job."""
        return self.go(f"/studio/jobs/{job_id}")

    def said(self, job: Job) -> str:
        """Return why a job failed, with the names that people gave their files."""
        text, project = job.message, self.studio.projects.get(job.project)
        for file in reversed(self.studio.projects.files(project) if project is not None else []):
            text = text.replace(file.name, file.label)
        return _RECEIVED.sub("the uploaded file", text)

    def document(self, path: Path) -> Response:
        """Show a page that the product wrote, under the rules it states, apart from the studio's own pages."""
        text = path.read_text(encoding="utf-8")
        policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)
        rules = f"{policy[1] if policy else POLICY}; frame-ancestors 'none'; sandbox allow-scripts allow-downloads"
        return HTMLResponse(text, headers={**HEADERS, "content-security-policy": rules})

    def download(self, path: Path, name: str) -> Response:
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        return FileResponse(
            path, headers={**HEADERS, "content-security-policy": POLICY}, media_type=kind, filename=name
        )


class Studio:
    """Projects, jobs and people in one folder."""

    def __init__(
        self, settings: StudioSettings, door: Door | None = None, provider: signin.Provider | None = None
    ) -> None:
        from dunnage.serving import officer, owner, places, planner, signin

        self.settings, self.folder = settings, Path(os.path.abspath(settings.folder))
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.chmod(self.folder, 0o700)
        self._lock = _locked(self.folder / "studio.lock")
        try:
            self.book = _book(self.folder / "studio.sqlite", settings.database)
        except BaseException:
            self._lock.close()
            raise
        self.door = door or Door(Person("you", frozenset(STUDIO)))
        self.door.book = self.book
        self.projects = Projects(self.book, self.folder / "projects")
        (self.folder / "uploads").mkdir(mode=0o700, exist_ok=True)
        for left in (self.folder / "uploads").iterdir():  # of a studio that was killed
            left.unlink(missing_ok=True)
        how = {"parallel": settings.parallel, "memory_mb": settings.memory_mb, "seconds": settings.seconds}
        self.jobs = Jobs(self.book, **how)
        self._tidied = 0.0
        self.tidy()
        site = settings.site or f"http://localhost:{settings.listen.rpartition(':')[2]}"
        self.signing = signin.SignIn(site, provider)
        self._parts = [owner, places, planner, officer, signin]  # modules with ROUTES and NAV

    def tidy(self) -> None:
        """Delete previews and finished jobs that are old: when the studio starts, and at most once a day."""
        now = time.time()
        if now - self._tidied < 86_400:
            return
        self._tidied = now
        self.jobs.forget(KEPT_JOBS, usually=JOB_DAYS, now=now)
        for path in (self.folder / "projects").glob("*/previews/*.toml"):
            if path.stat().st_mtime < now - PREVIEW_DAYS * 86_400:
                path.unlink(missing_ok=True)

    @property
    def ledger(self) -> str:
        return self.settings.ledger or str(self.folder / LEDGER_FILE)

    def key_of(self, person: Person) -> Path:
        """Return the file with a person's signing key; it is made when it is first needed, and stays in the folder."""
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        path = self._key_file(person)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        if not path.exists():
            key, pem = Ed25519PrivateKey.generate(), serialization.Encoding.PEM
            private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
            public = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
            for place, content in ((path.with_suffix(".pub.pem"), public), (path, private)):
                with os.fdopen(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as sink:
                    sink.write(content)
        return path

    def _key_file(self, person: Person) -> Path:
        name = f"{re.sub(r'[^A-Za-z0-9-]', '_', person.name)}-{web.hashed(person.name).hex()[:8]}.pem"
        return self.folder / "keys" / name

    def retire_key(self, person: Person) -> None:
        """Delete the key of somebody who left: nobody of the same name signs with it. Its public half stays."""
        path = self._key_file(person)
        public = path.with_suffix(".pub.pem")
        path.unlink(missing_ok=True)
        if public.exists():
            os.rename(public, public.with_name(f"{path.stem}.left-{time.time_ns()}.pub.pem"))

    @property
    def link(self) -> str:
        host, _, port = self.settings.listen.rpartition(":")
        return f"http://{host}:{port}/studio/sign-in?code={self.door.code}"

    @property
    def pages(self) -> Routes:
        return {
            name: page for table in (ROUTES, *(part.ROUTES for part in self._parts)) for name, page in table.items()
        }

    def nav(self, visit: Visit, project: Project | None) -> list[tuple[str, str]]:
        """Return the pages of a project that a visitor may open: address and name."""
        if project is None:
            return []
        lines = [line for part in self._parts for line in part.NAV]
        may = [(path, name) for path, name in lines if visit.may(*self.pages[f"GET {path}"][0])]
        return [(path.replace("{project}", project.id), name) for path, name in may]

    def routes(self) -> list[Route]:
        tempfile.tempdir = str(self.folder / "uploads")  # uploads are private from their first byte
        made = []
        for line, (roles, page) in self.pages.items():
            if not roles or not set(roles) <= {ANYONE, *STUDIO}:
                raise InternalError(f"every route must name who may use it: {line}.")
            method, path = line.split(" ")
            made.append(Route(path, self._guard(line, roles, page), methods=[method]))
        return made

    def _guard(self, line: str, roles: tuple[str, ...], page: Page) -> Callable[[Request], Any]:
        async def endpoint(request: Request) -> Response:
            visit = Visit(self, request, Person("", frozenset()))
            try:
                person = await run_in_threadpool(self.door.person, request, changes=True)
                visit.person = person or visit.person
                if ANYONE not in roles and not visit.may(*roles):
                    crossed = person is None and request.method == "POST" and not web.same_origin(request)
                    if crossed:
                        raise HttpError(403, "cross_site", "This did not come from a page of the studio.")
                    if person is None:
                        raise HttpError(401, "sign_in", "Sign in first.")
                    raise HttpError(403, "role", f"This needs the role {' or '.join(roles)}.")
                if request.method == "POST":
                    await self._read_form(visit)
                return await run_in_threadpool(page, visit)
            except ClientDisconnect:
                return Response(status_code=400)
            except Exception as error:
                return await run_in_threadpool(self._failed, visit, error, line)
            finally:
                for upload in visit.uploads.values():
                    upload.file.close()

        return endpoint

    def _failed(self, visit: Visit, error: Exception, line: str) -> Response:
        if isinstance(error, Conflict):
            return visit.page("conflict", 409, title="Somebody else was first", **_both(self, visit, error))
        known = HttpError.of(error, line)
        if known.status == 401:
            return visit.page("sign_in", 401, title="Sign in", says="")
        sentences = [text.strip().removeprefix("- ") for text in str(known).splitlines() if text.strip()]
        if visit.request.headers.get("hx-request"):
            return HTMLResponse(draw.render("studio/alert.html", {"sentences": sentences}), headers=HEADERS)
        return visit.page("error", known.status, title="That did not work", sentences=sentences)

    async def _read_form(self, visit: Visit) -> None:
        request = visit.request
        stream = body_parts(request.scope, request.receive, self.settings.max_upload, FORM_SECONDS)
        kind = content_type(request.scope)
        try:
            if kind == "multipart/form-data":
                limits = {"max_files": 4, "max_fields": MAX_FIELDS, "max_part_size": MAX_FIELD_BYTES}
                form = await MultiPartParser(request.headers, stream, **limits).parse()
            elif kind == "application/x-www-form-urlencoded":
                form = await FormParser(request.headers, _limited(stream, MAX_FIELD_BYTES)).parse()
            else:
                raise HttpError(415, "content_type", "Send a form.")
        except MultiPartException as error:
            raise HttpError(422, "form", f"The form cannot be read: {error.message}") from None
        for name, value in form.multi_items():
            if isinstance(value, UploadFile):
                if value.filename:
                    visit.uploads[name] = Upload(value.filename, value.file, value.size or 0)
            else:
                visit.form[name] = value
                visit.lists.setdefault(name, []).append(value)

    def close(self) -> None:
        self.jobs.close()
        self.book.close()
        tempfile.tempdir = None
        self._lock.close()


def _book(path: Path, database: str) -> Database:
    """Open the studio's tables. What an earlier version kept in a file moves to PostgreSQL, once."""
    from dunnage.serving import signin

    tables = PROJECT_TABLES, job_states.TABLE, web.SESSIONS, signin.TABLES
    if not database:
        return SqliteFile(path, *tables)
    book = Postgres(database, *tables, schema="studio", alone=True)
    book.rows("SELECT 1")  # whether it can be used is known now
    if path.exists():
        file = SqliteFile(path, *tables)
        with book.turn():
            for name in ("projects", "changes", "files", "jobs"):
                for row in file.rows(f"SELECT * FROM {name}"):
                    marks = ", ".join("?" * len(row))
                    book.execute(f"INSERT INTO {name} VALUES ({marks}) ON CONFLICT DO NOTHING", row)
        file.close()
        os.rename(path, path.with_suffix(".moved"))
    return book


async def _limited(stream: AsyncIterator[bytes], most: int) -> AsyncGenerator[bytes, None]:
    size = 0
    async for part in stream:
        size += len(part)
        if size > most:
            raise HttpError(413, "too_large", "The form is too long.")
        yield part
    yield b""


def _locked(path: Path) -> Any:
    """Keep a folder for one studio: two would not know of each other's jobs."""
    import fcntl

    lock = open(path, "w")  # noqa: SIM115
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise StoreError(f"another studio uses {path.parent}. Close it, or choose another folder.") from None
    return lock


def _both(studio: Studio, visit: Visit, conflict: Conflict) -> dict[str, object]:
    """Show what was kept in the meantime beside what this browser sent."""
    project = studio.projects.get(conflict.project.id) or conflict.project
    since = [change for change in studio.projects.history(project) if change.version > conflict.version]
    yours = [(name, text[:500]) for name, text in visit.form.items() if name != "version" and text]
    return {"project": project, "since": since, "yours": yours, "theirs": project.policy_text()}


# --- pages that everyone shares ------------------------------------------------------------------------------------


def _has_team(visit: Visit) -> bool:
    return visit.may(ADMIN) and visit.studio.door.keep is not None


def _home(visit: Visit) -> Response:
    projects, may = visit.studio.projects.all(), {"may_add": visit.may(OWNER), "may_plan": visit.may(PLANNER)}
    return visit.page("home", title="Projects", projects=projects, admin=_has_team(visit), **may)


def _project(visit: Visit) -> Response:
    """Open the first page of a project that this person may see."""
    project = visit.project
    pages = visit.studio.nav(visit, project)
    if not pages:
        raise HttpError(404, "role", "Nothing of this project is for your role yet.")
    return visit.go(pages[0][0])


def _people(visit: Visit) -> Response:
    return _people_page(visit, "")


def _people_page(visit: Visit, token: str) -> Response:
    people = [(web.handle(key), *person) for key, person in visit.studio.door.people.items()]
    people.sort(key=lambda one: (one[1].lower(), one[0]))
    return visit.page("people", title="People", people=people, token=token, offers=STUDIO)


def _invite(visit: Visit) -> Response:
    token = visit.studio.door.invite(visit.form.get("name", "").strip(), visit.form.get("role", ""))
    return _people_page(visit, token)


def _remove(visit: Visit) -> Response:
    """Remove a person: token, sessions, passkeys, accounts and signing key. What they signed stays in the ledger."""
    studio, wanted = visit.studio, visit.form.get("person", "")
    key = next((key for key in studio.door.people if web.handle(key) == wanted), b"")
    person = studio.door.remove(key)
    for table in ("passkeys", "accounts"):
        studio.book.write(f"DELETE FROM {table} WHERE person = ?", key)
    if person.name not in {one.name for one in (*studio.door.people.values(), visit.person)}:
        studio.retire_key(person)
    return visit.go("/studio/people")


def _sign_in_page(visit: Visit) -> Response:
    code = visit.request.query_params.get("code", "")
    if not code:
        return visit.page("sign_in", title="Sign in", says="")
    key, _ = visit.studio.door.enter(code=code)
    return visit.studio.door.begin(key, visit.go("/studio"), visit.request.cookies.get(COOKIE))


def _sign_in(visit: Visit) -> Response:
    if not web.same_origin(visit.request):
        raise HttpError(403, "cross_site", "This did not come from a page of the studio.")
    try:
        key, _ = visit.studio.door.enter(token=visit.form.get("token", "").strip() or "-")
    except HttpError as error:
        return visit.page("sign_in", 403, title="Sign in", says=str(error))
    return visit.studio.door.begin(key, visit.go("/studio"), visit.request.cookies.get(COOKIE))


def _sign_out(visit: Visit) -> Response:
    visit.studio.door.end(visit.request.cookies.get(COOKIE))
    response = visit.go("/studio/sign-in")
    response.delete_cookie(COOKIE)
    return response


def _job_of(visit: Visit) -> Job:
    job = visit.studio.jobs.get(visit["job"])
    if job is None or not visit.may(job.role):
        raise HttpError(404, "no_job", "There is no such job.")
    return job


def _job(visit: Visit) -> Response:
    """Wait for a job; when it is done, its own page follows."""
    job = _job_of(visit)
    if job.state == job_states.DONE:
        return visit.go(job.place)
    project = visit.studio.projects.get(job.project)
    return visit.page("job", title=_WORDS[job.state], project=project, job=job, says=_says(job))


def _says(job: Job) -> str:
    return job.stage[:1].upper() + job.stage[1:] if job.stage else _WORDS[job.state]


def _job_events(visit: Visit) -> Response:
    """Send the state of a job whenever it changes, until it is over."""
    job, jobs = _job_of(visit), visit.studio.jobs

    async def events() -> AsyncIterator[str]:
        last = ""
        for _ in range(int(_EVENTS_FOR / _EVENT_SECONDS)):
            if await run_in_threadpool(visit.studio.door.person, visit.request) is None:
                return  # somebody who was removed, or signed out
            now = await run_in_threadpool(jobs.get, job.id) or job
            place = now.place if now.state == job_states.DONE else f"/studio/jobs/{job.id}"
            text = json.dumps({"says": _says(now), "over": now.is_over, "place": place})
            if text != last:
                yield f"data: {text}\n\n"
                last = text
            if now.is_over:
                return
            await asyncio.sleep(_EVENT_SECONDS)

    return StreamingResponse(events(), headers={**HEADERS, "x-accel-buffering": "no"}, media_type="text/event-stream")


def _job_cancel(visit: Visit) -> Response:
    job = _job_of(visit)
    visit.studio.jobs.cancel(job.id)
    return visit.go(f"/studio/jobs/{job.id}")


_STATIC = {"studio.css": "text/css", "studio.js": "text/javascript", "htmx.min.js": "text/javascript"}


def _static(visit: Visit) -> Response:
    name = visit["file"]
    if name == "page.css":
        content = resources.files("dunnage.showing").joinpath("templates", name).read_bytes()
    elif name in _STATIC:
        content = resources.files("dunnage.serving").joinpath("static", name).read_bytes()
    else:
        raise HttpError(404, "no_file", "There is no such file.")
    headers = {"cache-control": "max-age=3600", "x-content-type-options": "nosniff"}
    return Response(content, headers=headers, media_type=_STATIC.get(name, "text/css"))


ROUTES: Routes = {
    "GET /studio": (STUDIO, _home),
    "GET /studio/projects/{project}": (STUDIO, _project),
    "GET /studio/people": ((ADMIN,), _people),
    "POST /studio/people": ((ADMIN,), _invite),
    "POST /studio/people/remove": ((ADMIN,), _remove),
    "GET /studio/sign-in": ((ANYONE,), _sign_in_page),
    "POST /studio/sign-in": ((ANYONE,), _sign_in),
    "POST /studio/sign-out": ((ANYONE,), _sign_out),
    "GET /studio/jobs/{job}": ((OWNER, PLANNER, OFFICER, AUDITOR), _job),
    "GET /studio/jobs/{job}/events": ((OWNER, PLANNER, OFFICER, AUDITOR), _job_events),
    "POST /studio/jobs/{job}/cancel": ((OWNER, PLANNER), _job_cancel),
    "GET /studio/static/{file}": ((ANYONE,), _static),
}


def make_app(studio: Studio) -> Starlette:
    async def index(request: Request) -> Response:
        return RedirectResponse("/studio", 303)

    async def missing(request: Request, error: Exception) -> Response:
        return HTMLResponse(draw.render("studio/alert.html", {"sentences": ["There is no such page."]}), 404, HEADERS)

    app = Starlette(routes=[Route("/", index), *studio.routes()], exception_handlers={404: missing})
    app.router.redirect_slashes = False
    return app


def run(studio: Studio, *, opened: Callable[[str], object] | None = None) -> int:
    """Serve the studio on this machine until SIGTERM or SIGINT."""
    import uvicorn

    host, _, port = studio.settings.listen.rpartition(":")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    LOG.addHandler(handler)
    LOG.setLevel(logging.WARNING)
    config = uvicorn.Config(
        make_app(studio), host=host.strip("[]"), port=int(port), access_log=False, log_config=None,
        log_level="critical", server_header=False, date_header=False, proxy_headers=False, lifespan="off",
        timeout_graceful_shutdown=3,
    )  # fmt: skip
    server = uvicorn.Server(config)

    def announce() -> None:
        while not server.started and not server.should_exit:
            time.sleep(0.05)
        if server.started and opened is not None:
            opened(studio.link)

    studio.jobs.prepare()
    threading.Thread(target=announce, daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt):
        server.run()
    studio.close()
    LOG.removeHandler(handler)
    return 0 if server.started else 1
