"""The studio without a browser: who may do what, what is uploaded, versions, jobs, and the owner's path."""

from __future__ import annotations

import io
import os
import signal
import socket
import time
import zipfile

import pytest

pytest.importorskip("starlette")
pytest.importorskip("multipart")

from tests.studio_help import FILLED, PARCELS, Apart, Here

import dunnage as dn
from dunnage.errors import InternalError, StoreError
from dunnage.serving.web import ANYONE, COOKIE, STUDIO


@pytest.fixture
def database(address):
    return address if address.startswith("postgresql://") else ""


@pytest.fixture
def here(tmp_path, database):
    made = Here(tmp_path / "studio", max_upload=1 << 20, database=database)
    yield made
    made.close()


def test_every_route_names_who_may_use_it_and_nobody_else_may(here):
    project = here.studio.projects.create("parcels", "owner")
    fill = {"{project}": project.id, "{job}": "none", "{file}": "page.css", "{release}": "none", "{plan}": "none",
            "{place}": "releases", "{name}": "none", "{proposal}": "none"}  # fmt: skip
    for line, (roles, _) in here.studio.pages.items():
        method, path = line.split(" ")
        for part, text in fill.items():
            path = path.replace(part, text)
        assert "{" not in path, line
        for role in (None, "wrong", *STUDIO):
            answer = here.call(method, path, role=role)
            allowed = ANYONE in roles or role in roles
            refused = 401 if role in (None, "wrong") and method == "GET" else 403
            assert (answer.status in (401, 403)) != allowed or (allowed and "sign-in" in path), (line, role)
            assert allowed or answer.status == refused, (line, role, answer.status)
            assert answer.status < 500, (line, role, answer.text[-500:])
    here.studio._parts = [type("part", (), {"ROUTES": {"GET /studio/new": ((), None)}, "NAV": []})]
    with pytest.raises(InternalError, match="name who may use it"):
        here.studio.routes()


def test_sessions_begin_anew_at_sign_in_and_only_our_own_pages_change_anything(here):
    link = here.studio.link.partition("8400")[2]
    answer = here.call("GET", link, cookie="chosen-by-somebody-else")
    said = answer.headers["set-cookie"]
    assert (answer.status, answer.place) == (303, "/studio")
    assert "httponly" in said.lower()
    assert "samesite=lax" in said.lower()
    cookie = said.partition(f"{COOKIE}=")[2].partition(";")[0]
    assert cookie != "chosen-by-somebody-else"
    assert here.call("GET", "/studio", cookie="chosen-by-somebody-else").status == 401
    assert here.call("GET", link).status == 403  # it works once
    page = here.call("GET", "/studio", cookie=cookie)
    assert page.status == 200
    rules = page.headers["content-security-policy"]
    assert "default-src 'self'" in rules
    assert "frame-ancestors 'none'" in rules
    assert "<style" not in page.text
    assert "onclick" not in page.text
    new = {"file": ("parcels.csv", b"not,looked,at\n")}
    for site in ({}, {"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"}, {"origin": "http://evil.org"}):
        assert here.call("POST", "/studio/projects", files=new, cookie=cookie, headers=site).status == 403
    assert here.studio.projects.all() == []
    for site in ({"sec-fetch-site": "same-origin"}, {"origin": "http://127.0.0.1:8400"}):
        assert here.call("POST", "/studio/sign-out", cookie=cookie, headers=site).place == "/studio/sign-in"
    assert here.call("GET", "/studio", cookie=cookie).status == 401
    # By a token, and never to another site.
    ours = {"sec-fetch-site": "same-origin"}
    answer = here.call("POST", "/studio/sign-in?next=http://evil.org", {"token": "token of owner"}, headers=ours)
    assert (answer.status, answer.place) == (303, "/studio")
    assert here.call("POST", "/studio/sign-in", {"token": "guess"}, headers=ours).status == 403


def test_a_planner_reaches_no_private_file(here):
    project = here.studio.projects.create("parcels", "owner")
    file = here.studio.projects.add_file(project, "secret.csv", io.BytesIO(b"a,b\n1,2\n"), 8)
    (project.folder / "releases" / "r.key.parquet").write_bytes(b"key")
    base = f"/studio/projects/{project.id}"
    tries = [
        f"{base}/{file.name}", f"{base}/files/data/1.csv/x", f"{base}/files/releases/../data/1.csv",
        f"{base}/files/releases/..%2Fdata/1.csv", f"{base}/files/releases/%2e%2e/data",
        f"{base}/releases/r.key.parquet", f"{base}/files/releases/r.key.parquet/x",
        f"{base}/files/releases/./r.key.parquet", "/studio/static/../studio.sqlite",
        "/studio/static/%2e%2e/web.py", f"{base}/releases/../../{project.id}/zip", f"{base}/policies/0001.toml",
    ]  # fmt: skip
    for role in ("planner", "auditor", "admin", "owner"):
        for path in tries:
            answer = here.call("GET", path, role=role)
            assert answer.status in (403, 404, 422), (role, path, answer.status)
            assert b"1,2" not in answer.content
            assert b"key" not in answer.content[:3]


def bomb() -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/workbook.xml", b"0" * (1 << 26))
    return made.getvalue()


def archive_of(*names: str) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name in names:
            archive.writestr(name, "x")
    return made.getvalue()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (bomb(), "unfolds"),
        (archive_of("xl/workbook.xml", "../../evil"), "leave its folder"),
        (archive_of("xl/workbook.xml", "/etc/passwd"), "leave its folder"),
        (archive_of("data.csv"), "compressed"),
        (b"PK\x03\x04 damaged", "damaged"),
        (b"\x1f\x8b\x08\x00 gzip", "compressed"),
        (b"\x7fELF\x00\x00\x00", "not a CSV"),
        (b"a" * (2 << 20), "at most"),
    ],
)
def test_uploads_that_are_not_tables_are_refused_with_a_sentence(here, content, says):
    answer = here.call("POST", "/studio/projects", files={"file": ("../../x.csv", content)})
    assert answer.status in (413, 422), answer.text
    assert says in answer.text
    assert answer.text.count('role="alert"') == 1
    assert not [path for path in (here.studio.folder / "projects").rglob("*") if path.is_file()]


def test_two_browsers_do_not_lose_each_others_changes(here):
    projects = here.studio.projects
    project = projects.create("parcels", "ann")
    one = projects.change(
        project, project.version, "Ann's", "ann", policy='dataset = "a"\n', settings={"capacity": "1kg"}
    )
    base = f"/studio/projects/{project.id}"
    answer = here.call("POST", f"{base}/undo", {"version": str(project.version), "to": "1"})
    assert answer.status == 409
    assert "Ann&#39;s" in answer.text
    assert "dataset = &#34;a&#34;" in answer.text
    now = projects.get(project.id)
    assert (now.version, now.policy_text()) == (one.version, 'dataset = "a"\n')
    two = projects.change(one, one.version, "other", "ann", policy='dataset = "b"\n', settings={"capacity": None})
    assert (two.policy_text(), two.settings) == ('dataset = "b"\n', {})
    assert here.call("POST", f"{base}/undo", {"version": str(two.version), "to": str(one.version)}).status == 303
    back = projects.get(project.id)
    assert (back.version, back.policy_text(), back.settings) == (
        two.version + 1,
        'dataset = "a"\n',
        {"capacity": "1kg"},
    )


def test_one_folder_has_one_studio_and_is_private(here, tmp_path):
    assert os.stat(here.studio.folder).st_mode & 0o077 == 0
    assert {path.stat().st_mode & 0o077 for path in here.studio.folder.glob("studio.sqlite")} <= {0}
    with pytest.raises(StoreError, match="another studio"):
        Here(tmp_path / "studio")


def test_tables_of_a_file_move_to_postgresql_once_and_stay_with_one_studio(tmp_path, postgres, monkeypatch):
    before = Here(tmp_path / "studio")
    project = before.studio.projects.create("parcels", "ann")
    made = before.studio.projects.change(project, 1, "Policy", "ann", policy='dataset = "a"\n')
    before.close()
    url = postgres()
    for _ in range(2):
        here = Here(tmp_path / "studio", database=url)
        assert here.studio.projects.all() == [made]
        here.studio.projects.change(made, made.version, "Policy", "ann", policy='dataset = "b"\n')
        made = here.studio.projects.get(made.id)
        if made.version == 3:
            here.close()
    monkeypatch.setattr("dunnage.collecting.store.ALONE_SECONDS", 0.1)
    with pytest.raises(StoreError, match="another studio uses this database"):
        Here(tmp_path / "other", database=url)
    here.close()


def test_jobs_end_as_they_should(tmp_path, monkeypatch, database):
    (tmp_path / "jobs_of_test.py").write_text(
        "import sys, time, os\nwhat = sys.argv[1]\n"
        "if what == 'nap': sys.stderr.write('early: {\"answer\": 1}\\nprogress: sleeping\\n'); time.sleep(600)\n"
        "if what == 'much': x = bytearray(4 << 30)\n"
        "if what == 'fail': sys.stderr.write('error: no such thing\\n'); sys.exit(2)\n"
        "if what == 'crash': raise ValueError('private value')\n"
        "print('{\"answer\": 42}')\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    here = Here(tmp_path / "studio", parallel=2, memory_mb=3000, database=database)
    try:
        folder = here.studio.projects.create("p", "owner").folder
        jobs = here.studio.jobs

        def start(what: str):
            return jobs.start("p", "test", ["jobs_of_test", what], folder, role="owner", place="/studio", by="owner")

        def over(job_id: str):
            while not (job := jobs.get(job_id)).is_over:
                time.sleep(0.02)
            return job

        nap, good = start("nap"), start("good")
        assert over(good).result["answer"] == 42
        assert [over(start("fail")).message, over(start("much")).state] == ["no such thing", "failed"]
        assert "private value" not in over(start("crash")).message
        while jobs.get(nap).stage != "sleeping":
            time.sleep(0.02)
        assert jobs.get(nap).result == {"answer": 1}  # a part, while it runs
        process = jobs._workers[nap].process
        jobs.cancel(nap)
        assert (over(nap).state, over(nap).result) == ("cancelled", {})
        assert process.poll() == -signal.SIGKILL
        again = start("nap")
        while jobs.get(again).state != "running":
            time.sleep(0.02)
    finally:
        here.close()
    assert here.studio.jobs.get(again).state == "stopped"  # marked, and not started again
    here.studio.book.close()


def test_old_previews_and_jobs_are_deleted_and_what_pages_need_stays(here):
    project, jobs = here.studio.projects.create("p", "owner"), here.studio.jobs
    now, day = time.time(), 86_400
    for kind, spends in (("preview", 0), ("pack", 0), ("survey", 0), ("size", 0), ("publish", 1)):
        for age in (1, 8, 91, None):
            ended = None if age is None else int(now) - age * day
            line = f"{kind}{age}", project.id, kind, "[]", spends, "", "owner", "", "done", "", "", "", 0, ended
            here.studio.book.write(f"INSERT INTO jobs VALUES ({', '.join('?' * 14)})", *line)
    old, new = (project.folder / "previews" / f"{name}.toml" for name in ("old", "new"))
    for path, age in ((old, 8), (new, 6)):
        path.write_text("")
        os.utime(path, (now - age * day,) * 2)
    here.studio._tidied = 0.0
    here.studio.tidy()
    left = {job.id for job in jobs.of(project.id)}
    gone = {"preview8", "preview91", "pack91"}
    assert left == {f"{kind}{age}" for kind in ("preview", "pack", "survey", "size", "publish")
                    for age in (1, 8, 91, None)} - gone  # fmt: skip
    assert (old.exists(), new.exists()) == (False, True)


def test_the_owners_path_from_a_file_to_the_next_week(tmp_path):
    here = Here(tmp_path / "studio")
    try:
        project = here.begin(PARCELS.replace("P007", "<script>alert(1)</script>"))
        assert "&lt;" not in here.call("GET", f"{project}/columns").text  # no value is on the page
        problems = here.save(project, low2="", amount="")
        assert problems.status == 422
        assert "domain" in problems.text
        assert "mechanism.k" in problems.text
        assert here.call("GET", f"{project}/preview").status == 409  # there is no policy yet
        assert here.save(project, period_length="week", period="2026-W47").place == f"{project}/preview"
        page = here.call("GET", f"{project}/preview")
        assert "data-events" not in page.text
        (job,) = here.studio.jobs.of(project.rsplit("/", 1)[-1], "preview")
        while not here.studio.jobs.get(job.id).is_over:
            time.sleep(0.05)
        page = here.call("GET", f"{project}/preview")
        assert "Before and after" in page.text, page.text[-3000:]
        assert "<script>alert" not in page.text
        assert here.studio.jobs.of(job.project, "preview")[0].id == job.id  # looked up, not measured again
        form = {"version": here.version(project), "amount": "5", "capacity": "200kg", "period": "2026-W47"}
        assert here.call("POST", f"{project}/keep", {**form, "next": "publish"}).place == f"{project}/publish"
        stale = here.call("POST", f"{project}/publish", {"version": "1", "period": "2026-W47"})
        assert stale.status == 409
        form = {"version": here.version(project), "period": "2026-W47", "sign": "yes"}
        done = here.wait(here.call("POST", f"{project}/publish", form))
        assert done.state == "done", done.message
        assert done.spends
        release = here.studio.projects.get(job.project).folder / "releases" / "2026-W47"
        assert dn.verify(release, signed_by=[here.studio.key_of(_person("owner")).with_suffix(".pub.pem")]).ok
        with zipfile.ZipFile(io.BytesIO(here.call("GET", f"{done.place}/zip").content)) as archive:
            names = archive.namelist()
        assert "2026-W47/certificate.json" in names
        assert not any("key" in name for name in names)
        assert "Download the release" in here.call("GET", done.place).text
        plan = "row,bin\n" + "".join(f"{row},{row // 4}\n" for row in range(120))
        sent = here.call("POST", f"{done.place}/apply", {"capacity": "200kg", "repair": "yes"},
                         files={"plan_file": ("plan.csv", plan.encode())})  # fmt: skip
        applied = here.wait(sent)
        assert applied.state == "done", applied.message
        page = here.call("GET", applied.place)
        assert "loading.csv" in page.text
        loading = here.call("GET", applied.place.replace("settlements/", "files/settlements/") + "/loading.csv")
        assert loading.status == 200
        # The same week again spends nothing; the same file next week is noticed.
        again = here.wait(here.call("POST", f"{project}/publish", form))
        assert again.state == "failed"
        files = {"file": ("parcels.csv", PARCELS.replace("P007", "<script>alert(1)</script>").encode())}
        same = here.call(
            "POST", f"{project}/next", {"version": here.version(project), "period": "2026-W48"}, files=files
        )
        assert same.status == 409
        assert "same file" in same.text
        other = {"file": ("next.csv", PARCELS.encode())}
        assert here.call("POST", f"{project}/next", form, files=other).place == f"{project}/preview"
        history = here.call("GET", f"{project}/history")
        assert "2026-W47" in history.text
        with dn.Ledger.open_existing(here.studio.ledger) as book:
            assert len(book.statement("parcels").spends) == 1
    finally:
        here.close()


@pytest.mark.long
def test_a_rule_asks_for_another_person_first(tmp_path):
    from dunnage.ledger import Rule
    from dunnage.model.certificate import load_public_key

    here = Here(tmp_path / "studio")
    try:
        project = here.begin()
        assert here.save(project).status == 303
        keys = {name: here.studio.key_of(_person(name)) for name in ("owner", "officer")}
        people = {name: load_public_key(key.with_suffix(".pub.pem")).hex() for name, key in keys.items()}
        with dn.Ledger(here.studio.ledger) as book:
            book.set_rule("parcels", Rule(people=people, approvals=1), note="two people")
        form = {"version": here.version(project)}
        assert "Propose this release" in here.call("GET", f"{project}/publish").text
        assert here.wait(here.call("POST", f"{project}/publish", form)).state == "failed"
        proposed = here.wait(here.call("POST", f"{project}/propose", {**form, "note": "please"}))
        assert proposed.state == "done", proposed.message
        assert "waits for 1 more approval" in here.call("GET", f"{project}/publish").text
        with dn.Ledger(here.studio.ledger) as book:
            book.decide(proposed.result["proposal"], approve=True, key=keys["officer"], note="", facts={})
        done = here.wait(here.call("POST", f"{project}/publish", form))
        assert done.state == "done", done.message
    finally:
        here.close()


def test_a_team_shares_the_studio_with_its_collector(tmp_path, database):
    from tests.collector_help import Api

    from dunnage.serving import service

    api = Api(tmp_path / "data", database=database or None)
    try:
        studio = service.shared_studio(api.service)
        api.app = service.make_app(api.service, studio.routes())
        tokens = {role: api.service.invite(role, role) for role in ("owner", "admin", "operator")}
        seen = {role: api.call("GET", "/studio", token=token)[0] for role, token in tokens.items()}
        assert seen == {"owner": 200, "admin": 200, "operator": 403}
        assert api.call("GET", "/v1/tasks", token=tokens["owner"])[0] == 401
        form, kind = b"name=Bo&role=planner", "application/x-www-form-urlencoded"
        assert api.call("POST", "/studio/people", form, token=tokens["owner"], kind=kind)[0] == 403
        status, page, _ = api.call("POST", "/studio/people", form, token=tokens["admin"], kind=kind)
        assert status == 200
        token = page.decode().partition("<code>")[2].partition("</code>")[0]
        assert api.call("GET", "/studio", token=token)[0] == 200
        assert api.service.store.book.rows("SELECT roles FROM people WHERE name = ?", "Bo") == [("planner",)]
        studio.close()
    finally:
        api.close()


def _person(name):
    from dunnage.serving.web import Person

    return Person(name, frozenset())


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize(
    "moment",
    [0.6, *(pytest.param(0.1 * at, marks=pytest.mark.long) for at in range(1, 41) if at != 6)],
    ids="{:.1f}".format,
)
def test_a_killed_studio_never_publishes_by_half_or_spends_twice(tmp_path, moment):
    apart = Apart(tmp_path / "studio", free_port())
    try:
        columns = apart.follow(apart.call("POST", "/studio/projects", file=("parcels.csv", PARCELS.encode()))).place
        project = columns.removesuffix("/columns")
        assert apart.call("POST", columns, {**FILLED, "version": "2"}).status == 303
        before = time.monotonic()
        apart.call("POST", f"{project}/publish", {"version": "3"})
        time.sleep(max(0.0, moment - (time.monotonic() - before)))
        apart.kill()
        apart.start()
        page = apart.call("GET", f"{project}/publish")  # the session goes on
        assert page.status == 200
        home = next((tmp_path / "studio" / "projects").iterdir())
        ledger = tmp_path / "studio" / "dunnage-ledger.sqlite"
        if "Finish it" in page.text:
            job = page.text.partition('name="job" value="')[2].partition('"')[0]
            apart.follow(apart.call("POST", f"{project}/resume", {"job": job}))
        spends = []
        if ledger.exists():
            with dn.Ledger.open_existing(ledger) as book:
                spends = list(book.statement("parcels").spends) if "parcels" in book.datasets() else []
        assert len(spends) <= 1
        releases = [path for path in (home / "releases").iterdir() if path.is_dir() and path.name[0] != "."]
        assert len(releases) <= len(spends)
        assert all(dn.verify(path).ok for path in releases)
        page = apart.call("GET", f"{project}/publish").text
        assert "Finish it" not in page
        assert releases or "No spend of it is open" in page or "nothing of the release was complete" in page
    finally:
        apart.kill()
