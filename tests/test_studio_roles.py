# SPDX-License-Identifier: Apache-2.0
"""The studio as a whole: who may open what, uploads that nobody trusts, and what browsers are tricked into."""

from __future__ import annotations

import io
import re
import shutil
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pytest

pytest.importorskip("starlette")
pytest.importorskip("multipart")

from tests.builders import CANARY, Case, Repeated, parcels
from tests.studio_help import Answer, Here

import dunnage as dn
from dunnage.publication import key_path
from dunnage.publishing import propose
from dunnage.serving.owner import _received_plan
from dunnage.serving.projects import Project
from dunnage.serving.studio import Studio, Upload
from dunnage.serving.web import ADMIN, ANYONE, AUDITOR, COOKIE, OFFICER, OWNER, PLANNER, STUDIO

HOSTILE = '<img src=x onerror="alert(1)">'
ROWS = parcels().set_column(1, "destination", pa.array([HOSTILE, "=HYPERLINK(A1)"] * 12))
CASE = Case("partition", {"k": 3})
POLICY = f"""dataset = "parcels"
protects = "package"
[attributes.parcel]
role = "identifier"
[attributes.destination]
role = "public"
[attributes.content]
role = "sensitive"
[attributes.weight]
role = "quasi-identifier"
kind = "numeric"
domain = [0, 100]
resolution = 0.1
unit = "kg"
doubling = 5
[mechanism]
name = "partition"
k = 3
# {CANARY} stays with those who may read the policy
"""
TRICKS = (
    "..",
    ".",
    "../releases",
    "..%2f..%2fdata",
    "r.key.parquet",
    "r.unplanned.csv",
    "%00",
    "1.csv",
    "C:",
    "a" * 200,
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database: str) -> Iterator[Here]:
    """A studio in which no job runs."""
    made = Here(tmp_path / "studio", database=database)
    monkeypatch.setattr(made.studio.jobs._pool, "submit", lambda *_: None)
    monkeypatch.setattr(made.studio.jobs, "prepare", lambda: None)
    yield made
    made.close()


@pytest.fixture
def database(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue("postgres")()) if getattr(request, "param", "") else ""


@pytest.fixture
def project(here: Here) -> Project:
    return filled_project(here.studio)


def filled_project(studio: Studio) -> Project:
    """Make a project with private data, a policy, a release with its key, a plan, a settlement and an audit."""
    made = studio.projects.create("Parcels", "owner")
    content = io.BytesIO()
    pacsv.write_csv(ROWS, content)
    file = studio.projects.add_file(made, "parcels.csv", content, len(content.getvalue()))
    studio.projects.change(made, 1, "file", "owner", policy=POLICY, data=file.number)
    data = dn.load(made.folder / file.name, made.folder / "policies/0002.toml")
    publication = dn.publish(data, ledger=studio.ledger, noise=Repeated(seed=5))
    publication.write(made.folder / "releases" / "r")
    assert key_path(made.folder / "releases" / "r").exists()
    release = dn.Release.read(made.folder / "releases" / "r")
    plan = dn.pack(release, capacity="500kg", seconds=2)
    plan.write(made.folder / "public/plans/p")
    dn.audit(release, data, plan=plan).write(made.folder / "audits" / "a")
    done = dn.apply(plan, data, release, publication.key)
    done.write(made.folder / "settlements" / "s")
    found = studio.projects.get(made.id)
    assert found is not None
    found.hand_over()
    return found


def filled(path: str, project: Project, trick: str | None = None) -> str:
    """Fill in the parts of a path: with what is there, or the last one with a trick."""
    usual = {"project": project.id, "release": "r", "plan": "p", "place": "releases", "name": "r", "file": "data.csv"}
    usual |= {"job": "none", "proposal": "0" * 32}
    names = re.findall(r"{(\w+)}", path)
    for number, name in enumerate(names):
        text = trick if trick is not None and number == len(names) - 1 else usual[name]
        path = path.replace(f"{{{name}}}", text)
    return path


def call(here: Here, line: str, path: str, role: str | None) -> Answer:
    method = line.split(" ")[0]
    return here.call(method, path, {"version": "1"} if method == "POST" else None, role=role)


def test_every_route_with_every_role(here: Here, project: Project) -> None:
    """Only the named roles come in; nobody causes an internal error; no page can be framed, and none sends away."""
    pages = here.studio.pages
    assert len(pages) > 40
    for line, (roles, _) in pages.items():
        path = filled(line.split(" ")[1], project)
        for role in (*STUDIO, None):
            answer = call(here, line, path, role)
            allowed = ANYONE in roles or role in roles
            refused = answer.status == 403 or (role is None and answer.status == 401)
            assert allowed or refused, (line, role, answer.status)
            assert not allowed or answer.status not in (401, 500) or "sign-in" in path, (line, role, answer.text[-500:])
            empty = role == ADMIN and path.endswith(project.id)  # no page of a project is for admins
            assert not allowed or answer.status != 403 or "sign-in" in path or empty, (line, role)
            assert not answer.place or re.match(r"/studio($|[/?])", answer.place), (line, answer.place)
            kind = answer.headers.get("content-type", "")
            if kind.startswith("text/html") and "alert" not in answer.text[:40]:
                assert "frame-ancestors 'none'" in answer.headers["content-security-policy"], line
            assert answer.headers.get("x-content-type-options") == "nosniff" or answer.status == 303, line


SECRETS = (CANARY, "source_row")


@pytest.mark.parametrize("database", ["", "postgres"], indirect=True)
def test_private_files_are_out_of_reach(here: Here, project: Project) -> None:
    """Whatever planners, auditors and admins write into an address, no private value comes back."""
    assert CANARY in here.call("GET", f"/studio/projects/{project.id}/files/settlements/s/loading.csv", role=OWNER).text
    for line, (roles, _) in here.studio.pages.items():
        if not line.startswith("GET") or "events" in line:
            continue
        for role in (PLANNER, AUDITOR, ADMIN):
            for trick in (None, *TRICKS):
                answer = call(here, line, filled(line.split(" ")[1], project, trick), role)
                assert answer.status < 500, (line, trick)
                if role == AUDITOR and "decisions" in line:
                    continue  # shows the policy
                assert not any(secret in answer.text for secret in SECRETS), (line, role, trick)
                assert role in roles or ANYONE in roles or answer.status in (403, 404), (line, role, trick)
    for role in (PLANNER, AUDITOR):
        archive = here.call("GET", f"/studio/projects/{project.id}/planning/r/zip", role=role)
        names = zipfile.ZipFile(io.BytesIO(archive.content)).namelist()
        assert {name.rsplit("/", 1)[-1] for name in names} <= dn.release.RELEASE_FILES  # type: ignore[attr-defined]


def test_html_and_formulas_stay_text(here: Here, project: Project) -> None:
    base = f"/studio/projects/{project.id}"
    for path in ("planning", "planning/r", "planning/r/certificate", "plans/p", "plans/p/sheets"):
        answer = here.call("GET", f"{base}/{path}", role=PLANNER)
        assert answer.status == 200, (path, answer.text[-600:])
        assert "<img" not in answer.text
    assert "&lt;img" in here.call("GET", f"{base}/plans/p/sheets", role=PLANNER).text
    for path in ("decisions", "records"):
        answer = here.call("GET", f"{base}/{path}", role=OFFICER)
        assert answer.status == 200, answer.text[-600:]
        assert "<img" not in answer.text
    book = zipfile.ZipFile(io.BytesIO(here.call("GET", f"{base}/plans/p/xlsx", role=PLANNER).content))
    assert not any(b"<f>" in book.read(name) for name in book.namelist() if "worksheets" in name)
    for name in ("certificate.html", "verify.html"):  # of a folder that anybody may have written
        answer = here.call("GET", f"{base}/planning/r/files/{name}", role=PLANNER)
        assert answer.headers["content-disposition"].startswith("attachment")


def zipped(files: dict[str, bytes], *, links: tuple[str, ...] = ()) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            item = zipfile.ZipInfo(name)
            item.compress_type = zipfile.ZIP_DEFLATED
            item.external_attr = ((stat.S_IFLNK if name in links else stat.S_IFREG) | 0o644) << 16
            archive.writestr(item, data)
    return content.getvalue()


def test_archives_are_not_trusted(here: Here, project: Project, tmp_path: Path) -> None:
    release = {path.name: path.read_bytes() for path in (project.folder / "public/releases/r").iterdir()}
    whole, before = zipped(release), sorted(path for path in tmp_path.rglob("*") if "uploads" not in path.parts)
    lying = bytearray(whole)
    lying[-6:-2] = b"\xff\xff\xff\x7f"  # where its list of files begins
    changed = bytearray(zipped({**release, "data.csv": b"x" * 5000}))
    at = changed.index(b"data.csv") + len(b"data.csv") + 8
    changed[at] ^= 0xFF
    bad = {
        "a bomb": zipped({**release, "data.csv": b"\0" * (200 << 20)}),
        "upwards": zipped({**release, "../data.csv": b"x"}),
        "upwards, other slash": zipped({**release, "..\\evil.csv": b"x"}),
        "absolute": zipped({**release, "/etc/data.csv": b"x"}),
        "a drive": zipped({**release, "C:data.csv": b"x"}),
        "a link": zipped({**release, "README.md": b"/etc/passwd"}, links=("README.md",)),
        "twice": zipped({**{f"a/{name}": data for name, data in release.items()}, "b/data.csv": b"x"}),
        "deep": zipped({f"a/b/c/{name}": data for name, data in release.items()}),
        "other files": zipped({**release, "run.sh": b"x"}),
        "a key": zipped({**release, "r.key.parquet": b"x"}),
        "many files": zipped({**release, **{f"f{i}": b"" for i in range(60)}}),
        "no certificate": zipped({"data.csv": release["data.csv"]}),
        "not an archive": b"PK\x03\x04 and then nothing",
        "empty": b"",
        "text": b"row,bin\n0,0\n",
        "a lying list": bytes(lying),
        "damaged": bytes(changed),
    }
    num = len(here.studio.projects.all())
    for what, content in bad.items():
        answer = here.call("POST", "/studio/received", files={"release": ("r.zip", content)}, role=PLANNER)
        assert answer.status == 422, (what, answer.status, answer.place)
        assert len(here.studio.projects.all()) == num, what
    assert sorted(path for path in tmp_path.rglob("*") if "uploads" not in path.parts) == before
    answer = here.call("POST", "/studio/received", files={"release": ("../../r.zip", whole)}, role=PLANNER)
    assert answer.status == 303
    newest = here.studio.projects.all()[0]
    names = [path.name for path in (newest.folder / "public/releases").iterdir()]
    assert len(names) == 1
    assert dn.verify(newest.folder / "public/releases" / names[0]).ok
    assert here.call("POST", "/studio/received", {}, role=PLANNER).status == 422


def test_files_in_other_encodings_and_odd_forms(here: Here, project: Project) -> None:
    """Whatever is sent as a table or a form, the answer is a page, never an internal error."""
    text = "parcel,weight\nÄ1,5\n"
    contents = [text.encode("latin-1"), text.encode("utf-16"), b"\xff\xfe\xff", b"\0" * 100, b"", text.encode() * 1000]
    for content in [*contents, b"\x1f\x8b" + b"x" * 50, b"PAR1nothing"]:
        for label in ("a.csv", "a.parquet", "../../a.csv", "a\r\nb.csv", "<b>.csv"):
            answer = here.call("POST", "/studio/projects", files={"file": (label, content)}, role=OWNER)
            assert answer.status in (303, 422), (label, content[:20], answer.status)
    base = f"/studio/projects/{project.id}/planning/r/pack"
    fits = {"quantity": "weight", "capacity": "5"}
    for form in ({}, {**fits, "capacity": "--force"}, {**fits, "by": "--out=x"}, {**fits, "model": "\n"}):
        answer = here.call("POST", base, form, role=PLANNER)
        assert answer.status in (303, 422), (form, answer.status)
    assert here.call("POST", base, {**fits, "by": "--out=x"}, role=PLANNER).status == 422
    for content in contents:  # each is kept under a name of its own; the job says what is wrong with it
        answer = here.call("POST", base, {}, files={"trucks": ("../trucks.csv", content)}, role=PLANNER)
        assert answer.status in (303, 422)
    kept = [path.name for path in (project.folder / "public/cities").iterdir()]
    assert len(kept) >= 4
    assert all(re.fullmatch(r"[0-9a-f]{12}\.csv", name) for name in kept)


def test_other_sites_cannot_act(here: Here, project: Project) -> None:
    """Cross-site requests with the cookie of a session are refused, for every route that changes something."""
    entered = here.call("GET", f"/studio/sign-in?code={here.studio.door.code}", role=None)
    cookie = re.match(rf"{COOKIE}=([^;]+)", entered.headers["set-cookie"])[1]  # type: ignore[index]
    assert all(word in entered.headers["set-cookie"].lower() for word in ("httponly", "samesite=lax"))
    assert here.call("GET", "/studio", cookie=cookie).status == 200
    foreign: list[dict[str, str]] = [
        {}, {"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"}, {"sec-fetch-site": "none"},
        {"origin": "https://evil.example"}, {"origin": "null"}, {"origin": "http://127.0.0.1:9999"},
    ]  # fmt: skip
    for line, (roles, _) in here.studio.pages.items():
        if line.startswith("POST") and ANYONE not in roles:
            path = filled(line.split(" ")[1], project)
            for headers in foreign:
                answer = here.call("POST", path, {"version": "1"}, cookie=cookie, headers=headers)
                assert answer.status in (401, 403), (line, headers, answer.status)
    same = {"sec-fetch-site": "same-origin"}
    assert (
        here.call("POST", f"/studio/projects/{project.id}/planning/r/verify", cookie=cookie, headers=same).status == 303
    )
    assert here.call("POST", "/studio/sign-in", {"token": "x"}, role=None, headers=foreign[1]).status == 403


def test_sessions_cannot_be_chosen_for_others(here: Here) -> None:
    """An id that was there before sign-in is never taken over, and ends; a link works once; sign-out ends it."""
    code, chosen = here.studio.door.code, "chosen-by-somebody-else"
    assert here.call("GET", "/studio", cookie=chosen).status == 401
    entered = here.call("GET", f"/studio/sign-in?code={code}", cookie=chosen)
    cookie = re.match(rf"{COOKIE}=([^;]+)", entered.headers["set-cookie"])[1]  # type: ignore[index]
    assert cookie != chosen
    assert here.call("GET", "/studio", cookie=chosen).status == 401
    assert here.call("GET", f"/studio/sign-in?code={code}", role=None).status == 403
    again = here.call("POST", "/studio/sign-in", {"token": here.tokens[PLANNER]}, cookie=cookie,
                      headers={"sec-fetch-site": "same-origin"})  # fmt: skip
    other = re.match(rf"{COOKIE}=([^;]+)", again.headers["set-cookie"])[1]  # type: ignore[index]
    assert here.call("GET", "/studio", cookie=cookie).status == 401
    assert here.call("GET", "/studio", cookie=other).status == 200
    here.call("POST", "/studio/sign-out", cookie=other, headers={"sec-fetch-site": "same-origin"})
    assert here.call("GET", "/studio", cookie=other).status == 401


def test_nothing_redirects_elsewhere(here: Here) -> None:
    for path in (
        "/studio/sign-in?next=//evil.example",
        "/studio/sign-in?code=x&place=https://evil.example",
        "//evil.example",
    ):
        answer = here.call("GET", path, role=None)
        assert "evil" not in answer.place
        assert answer.status in (200, 403, 404)


def test_officers_decide_with_reasons(here: Here, project: Project) -> None:
    studio, base = here.studio, f"/studio/projects/{project.id}"
    assert here.call("POST", f"{base}/rule", {"note": ""}, role=OFFICER).status == 422
    people = {person.name: person for person in studio.door.people.values()}
    from dunnage.ledger import Ledger, Rule
    from dunnage.model.certificate import load_public_key

    keys = {name: studio.key_of(people[name]) for name in (OWNER, OFFICER)}
    publics = {name: load_public_key(key.with_suffix(".pub.pem")).hex() for name, key in keys.items()}
    with Ledger(studio.ledger) as book:
        book.set_rule("parcels", Rule(people=publics, approvals=1), note="board")
    data = dn.load(project.folder / "data/1.csv", project.folder / "policies/0002.toml")
    proposal = propose(data, sign=keys[OWNER], ledger=studio.ledger, note=HOSTILE).id
    house = studio.folder / "house.toml"  # stricter than when it was proposed
    house.write_text('name = "Port"\n[limits]\nmin_k = 5\nbasis = "proved"\n')
    page = here.call("GET", f"{base}/decisions/{proposal}", role=OFFICER)
    assert page.status == 200, page.text[-500:]
    assert "<img" not in page.text
    assert page.text.count('name="assumption"') >= 3
    assert "MAY NOT LEAVE" in page.text
    for word in ("Singling out", "Linkability", "Inference"):
        assert word in page.text
    place = f"{base}/decisions/{proposal}"
    ticks = re.findall(r'name="assumption" value="([^"]+)"', page.text)

    def decide(role: str, *ticked: str, **form: str) -> Answer:
        lines = [*form.items(), *(("assumption", tick) for tick in ticked)]
        return here.call("POST", place, Lines(lines), role=role)  # type: ignore[arg-type]

    assert decide(OFFICER).status == 422
    assert decide(OFFICER, decision="refuse").status == 422
    assert decide(OFFICER, *ticks[1:], decision="approve").status == 422
    for role in (OWNER, PLANNER, AUDITOR, ADMIN):
        assert decide(role, *ticks, decision="approve").status == 403
    answer = decide(OFFICER, *ticks, decision="approve")
    assert answer.status == 303, re.findall(r'role="alert">(.*?)</div>', answer.text, re.DOTALL)
    assert "approved" in here.call("GET", f"{base}/decisions", role=OFFICER).text
    house.unlink()
    second = propose(data, sign=keys[OWNER], ledger=studio.ledger).id
    place = f"{base}/decisions/{second}"
    assert decide(OFFICER, decision="refuse", note="too few parcels").status == 303
    assert "too few parcels" in here.call("GET", f"{base}/records", role=AUDITOR).text
    own = propose(data, sign=keys[OFFICER], ledger=studio.ledger).id
    place = f"{base}/decisions/{own}"
    assert decide(OFFICER, *ticks, decision="approve").status == 409  # her own
    assert here.call("GET", f"{base}/decisions/{own}", role=AUDITOR).status == 200


class Lines:
    """A form in which a name occurs several times."""

    def __init__(self, lines: list[tuple[str, str]]) -> None:
        self._lines = lines

    def __bool__(self) -> bool:
        return True

    def items(self) -> list[tuple[str, str]]:
        return self._lines


def test_a_planner_packs_a_release_that_was_sent(tmp_path: Path) -> None:
    """Upload, lights, pack, page, sheets and downloads; what comes back can be applied."""
    here, folder = Here(tmp_path / "studio"), tmp_path / "release"
    try:
        data = dn.load(ROWS, CASE.policy())
        publication = dn.publish(data, ledger=dn.Ledger(":memory:"), noise=Repeated(seed=5))
        publication.write(folder)
        content = zipped({f"release/{path.name}": path.read_bytes() for path in folder.iterdir()})
        job = here.wait(here.call("POST", "/studio/received", files={"release": ("sent.zip", content)}, role=PLANNER))
        assert job.state == "done", job.message
        page = here.call("GET", job.place, role=PLANNER).text
        assert "Every check passed" in page
        assert page.count("light-ok") > 8
        form = {"quantity": "weight", "capacity": "500", "by": "destination", "time_limit": "2"}
        job = here.wait(here.call("POST", f"{job.place}/pack", form, role=PLANNER))
        assert job.state == "done", job.message
        page = here.call("GET", job.place, role=PLANNER).text
        assert "At least needed" in page
        back = tmp_path / "back"
        zipfile.ZipFile(io.BytesIO(here.call("GET", f"{job.place}/zip", role=PLANNER).content)).extractall(back)
        (plan,) = back.iterdir()
        assert dn.apply(plan, data, dn.Release.read(folder), publication.key).plan.num_bins >= 4
        shutil.rmtree(back)
        for role in (OFFICER, AUDITOR, ADMIN):
            assert here.call("GET", job.place, role=role).status == 403
            assert here.call("GET", f"/studio/jobs/{job.id}", role=role).status in (403, 404)
    finally:
        here.close()


def test_a_plan_that_was_made_here_can_be_applied(here: Here, project: Project) -> None:
    """The archive that a planner downloads is one that the owner's upload takes."""
    content = here.call("GET", f"/studio/projects/{project.id}/plans/p/zip", role=PLANNER).content
    place = _received_plan(project, Upload("p.zip", io.BytesIO(content), len(content)))
    assert dn.Plan.read(project.folder / place).num_bins >= 1


def test_a_fleet_that_was_sized_elsewhere_is_applied_in_its_city(here: Here, project: Project) -> None:
    argv = ["dunnage", "publish", "data/1.csv", "--policy", "policies/0002.toml", "-o", "releases/r"]
    here.studio.jobs.start(project.id, "publish", argv, project.folder, role=OWNER, place="", by=OWNER)
    place, plan = f"/studio/projects/{project.id}/releases/r/apply", ("plan.csv", b"row,bin\n0,0\n")
    feed = {"stops.txt": b"x", "stop_times.txt": b"x", "trips.txt": b"x"}
    for files, ending in ((feed, ".zip"), ({"city/stops.csv": b"x", "city/zones.csv": b"x"}, "")):
        answer = here.call("POST", place, files={"plan_file": plan, "city": ("../c.zip", zipped(files))})
        job = here.studio.jobs.get(answer.place.rsplit("/", 1)[-1])
        assert job is not None
        city = job.argv[job.argv.index("--city") + 1]
        assert re.fullmatch(rf"received/[0-9a-f]{{12}}{ending}", city)
        assert (project.folder / city).exists()
    assert not list((project.folder / "public/cities").iterdir())  # a planner does not see it
    bad = {"plan_file": plan, "city": ("c.zip", zipped({"../x": b"x"}))}
    assert here.call("POST", place, files=bad).status == 422
