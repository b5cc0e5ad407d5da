"""A studio that is called without a network, and one that runs in a process of its own."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from dunnage.serving.jobs import Job
from dunnage.serving.studio import Studio, StudioSettings, make_app
from dunnage.serving.web import COOKIE, STUDIO, Person, hashed

PARCELS = "parcel_id,town,weight\n" + "".join(f"P{i:03},{'AB'[i % 2]},{20 + i % 37}\n" for i in range(120))
FILLED = {
    "story": "rows", "dataset": "parcels", "protects": "parcel", "name0": "parcel_id", "role0": "identifier",
    "name1": "town", "role1": "public", "kind1": "category", "name2": "weight", "role2": "quasi-identifier",
    "kind2": "numeric", "low2": "0", "high2": "100", "step2": "1", "unit2": "kg", "amount": "5", "capacity": "200kg",
    "mechanism": "partition",
}  # fmt: skip
BOUNDARY = "boundary"


class Answer:
    def __init__(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.status, self.headers, self.content = status, headers, content
        self.text, self.place = content.decode("utf-8", "replace"), headers.get("location", "")


def body_of(form: dict[str, str], files: dict[str, tuple[str, bytes]] | None = None) -> tuple[str, bytes]:
    """Write a form as a browser does; with files, in parts."""
    if not files:
        return "application/x-www-form-urlencoded", urlencode(form).encode()
    parts = [f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{text}\r\n'.encode()
             for name, text in form.items()]  # fmt: skip
    for name, (label, content) in files.items():
        head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"; filename="{label}"\r\n\r\n'
        parts.append(head.encode() + content + b"\r\n")
    return f"multipart/form-data; boundary={BOUNDARY}", b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


class Here:
    """The routes of a studio, in this process; each role has a person with a token."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.studio = Studio(StudioSettings(folder, **settings))
        self.app, self.loop = make_app(self.studio), asyncio.new_event_loop()
        self.tokens = {role: f"token of {role}" for role in STUDIO}
        for role, token in self.tokens.items():
            self.studio.door.people[hashed(token)] = Person(role, frozenset([role]))

    def close(self) -> None:
        self.studio.close()
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()

    def call(
        self, method: str, path: str, form: dict[str, str] | None = None, *, role: str | None = "owner",
        files: dict[str, tuple[str, bytes]] | None = None, cookie: str = "", headers: dict[str, str] | None = None,
    ) -> Answer:  # fmt: skip
        kind, body = body_of(form or {}, files)
        said = {"host": "127.0.0.1:8400", "content-type": kind, **(headers or {})}
        said |= {"authorization": f"Bearer {self.tokens.get(role, role)}"} if role and not cookie else {}
        said |= {"cookie": f"{COOKIE}={cookie}"} if cookie else {}
        route, _, query = path.partition("?")
        scope = {"type": "http", "http_version": "1.1", "method": method, "path": route, "raw_path": route.encode()}
        scope |= {"query_string": query.encode(), "scheme": "http", "root_path": "", "client": ("127.0.0.1", 1)}
        scope |= {"headers": [(name.encode(), text.encode()) for name, text in said.items()], "server": ("x", 1)}
        pieces = [body[at : at + 65536] for at in range(0, len(body), 65536)] or [b""]
        sent: list[Any] = []

        async def receive() -> Any:
            if not pieces:
                await asyncio.sleep(3600)
            return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}

        async def send(message: Any) -> None:
            sent.append(message)

        self.loop.run_until_complete(self.app(scope, receive, send))
        head: dict[str, str] = {}
        for name, text in sent[0]["headers"]:  # a page may set several cookies
            head[name.decode()] = "; ".join([*filter(None, [head.get(name.decode())]), text.decode("latin-1")])
        return Answer(sent[0]["status"], head, b"".join(message.get("body", b"") for message in sent[1:]))

    def wait(self, answer: Answer) -> Job:
        """Wait for the job that an answer goes to."""
        assert answer.place.startswith("/studio/jobs/"), (answer.status, answer.text[-2000:])
        for _ in range(2400):
            job = self.studio.jobs.get(answer.place.rsplit("/", 1)[-1])
            assert job is not None
            if job.is_over:
                return job
            time.sleep(0.05)
        raise AssertionError("the job does not end")

    def begin(self, content: str = PARCELS, label: str = "parcels.csv") -> str:
        """Upload a file and survey it; return the address of its project."""
        job = self.wait(self.call("POST", "/studio/projects", files={"file": (label, content.encode())}))
        assert job.state == "done", job.message
        return f"/studio/projects/{job.project}"

    def version(self, project: str) -> str:
        found = self.studio.projects.get(project.rsplit("/", 1)[-1])
        assert found is not None
        return str(found.version)

    def save(self, project: str, **changes: str) -> Answer:
        return self.call("POST", f"{project}/columns", {**FILLED, "version": self.version(project), **changes})


class Apart:
    """A studio in a process of its own, with the cookie of whoever used its link."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port, self.cookie = folder, port, ""
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "dunnage", "studio", "--folder", str(self.folder), "--port", str(self.port)]
        self.process = subprocess.Popen(
            [*command, "--no-browser"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env={**os.environ}
        )
        assert self.process.stdout is not None
        found = re.search(r"http\S+", self.process.stdout.readline())
        assert found is not None, "the studio did not start"
        self.link = found[0]
        if not self.cookie:
            answer = self.call("GET", self.link.partition(str(self.port))[2])
            self.cookie = answer.headers["set-cookie"].partition(";")[0]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def call(self, method: str, path: str, form: dict[str, str] | None = None, **files: tuple[str, bytes]) -> Answer:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        kind, body = body_of(form or {}, files)
        said = {"cookie": self.cookie, "sec-fetch-site": "same-origin", "content-type": kind}
        connection.request(method, path, body if method == "POST" else None, said)
        got = connection.getresponse()
        answer = Answer(got.status, {name.lower(): text for name, text in got.getheaders()}, got.read())
        connection.close()
        return answer

    def follow(self, answer: Answer) -> Answer:
        """Wait on the page of a job until it goes on, or says why not."""
        for _ in range(1200):
            page = self.call("GET", answer.place)
            if page.status == 303 or "data-events" not in page.text:
                return page
            time.sleep(0.1)
        raise AssertionError("the job does not end")
