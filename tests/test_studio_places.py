# SPDX-License-Identifier: Apache-2.0
"""Zones that are drawn, ticked or proposed; shuttles and waits in the preview; and people who leave a team."""

from __future__ import annotations

import io
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("starlette")
pytest.importorskip("multipart")

from tests.studio_help import Here
from tests.test_gtfs import FEED
from tests.test_studio_browser import chromium, pytestmark  # noqa: F401
from tests.test_studio_people import entered, team  # noqa: F401
from tests.test_studio_roles import Lines, database, filled_project, here, zipped  # noqa: F401

import dunnage as dn
from dunnage.model.policy import Policy
from dunnage.serving.places import REST
from dunnage.serving.preview import _NO_CITY, _NO_STOPS, _waits, _within
from dunnage.serving.projects import Project
from dunnage.serving.web import ADMIN, OFFICER, OWNER, PLANNER, Door, HttpError, Person, handle, hashed

POLICY = """dataset = "trips"
protects = "trip"
[trip]
origin = "from"
destination = "to"
time = "at"
level = "stop"
[attributes.from]
role = "quasi-identifier"
kind = "stop"
[attributes.to]
role = "quasi-identifier"
kind = "stop"
[attributes.at]
role = "quasi-identifier"
kind = "time"
window_minutes = 60
domain = ["08:00", "09:00"]
[city]
stops = "../data/2.csv"
[expect]
dates = 1
trips = 60
[mechanism]
name = "noisy-counts"
epsilon = 1
"""
STOPS = [(f"S{i:02}", -16.9 + 0.02 * (i // 4), 145.7 + 0.02 * (i % 4)) for i in range(12)]  # three rows of four


def trips_project(studio: Any) -> Project:
    """Make a project with sixty trips between twelve stops that have coordinates and no zone."""
    made = studio.projects.create("Trips", "owner")
    rng = np.random.default_rng(5)
    pairs = [rng.choice(12, 2, replace=False) for _ in range(60)]
    lines = "".join(f"{STOPS[a][0]},{STOPS[b][0]},08:{i % 60:02}\n" for i, (a, b) in enumerate(pairs))
    stops = "stop,lat,lon,name\n" + "".join(f"{stop},{lat},{lon},<b>Quay {stop}</b>\n" for stop, lat, lon in STOPS)
    for label, text in (("trips.csv", "from,to,at\n" + lines), ("stops.csv", stops)):
        studio.projects.add_file(made, label, io.BytesIO(text.encode()), len(text))
    return studio.projects.change(made, 1, "file", "owner", policy=POLICY, data=1)


def zones_of(studio: Any, project: Project) -> dict[str, str]:
    now = studio.projects.get(project.id)
    city = Policy.read(now.folder / now.policy).schema.city
    assert city is not None
    if city.zones is None:
        return {}
    return {stop: city.zone_names[zone] for stop, zone in zip(city.stops, city.zones.tolist(), strict=True)}


def test_zones_are_ticked_or_proposed(here: Here) -> None:  # noqa: F811
    project = trips_project(here.studio)
    place = f"/studio/projects/{project.id}/zones"
    page = here.call("GET", place)
    assert page.status == 200
    assert page.text.count("<circle") == page.text.count('name="stop"') == 12
    assert "<b>Quay" not in page.text  # names of stops stay text

    def send(*stops: int, **form: str) -> Any:
        lines = [("version", here.version(place.removesuffix("/zones"))), *form.items()]
        return here.call("POST", place, Lines([*lines, *(("stop", str(stop)) for stop in stops)]))  # type: ignore[arg-type]

    assert send(0, 1, 4, 5, zone="west", level="zone").status == 303
    drawn = zones_of(here.studio, project)
    assert [stop for stop, zone in drawn.items() if zone == "west"] == ["S00", "S01", "S04", "S05"]
    assert set(drawn.values()) == {"west", REST}
    now = here.studio.projects.get(project.id)
    assert now is not None
    assert 'level = "zone"' in now.policy_text()
    assert "S00,west,-16.9,145.7" in (now.folder / "data" / "3.csv").read_text()
    for form, says in (
        ({"zone": "east"}, "Choose the stops"),
        ({"do": "propose", "num": "0"}, "how many zones"),
        ({"do": "propose", "num": "13"}, "12 stops make"),
        ({"do": "propose", "num": "1", "level": "zone"}, "two zones or more"),
    ):
        answer = send(**form)
        assert (answer.status, says in answer.text) == (422, True), form
    assert send(3, zone="x" * 41).status == send(3).status == 422
    assert zones_of(here.studio, project) == drawn
    assert send(do="propose", num="3", level="stop").status == 303
    assert sorted(map(list(zones_of(here.studio, project).values()).count, ("zone 1", "zone 2", "zone 3"))) == [4, 4, 4]
    old = here.call("POST", place, {"version": "2", "do": "propose", "num": "2"})
    assert old.status == 409  # made on a version that is gone
    assert here.call("GET", f"/studio/projects/{filled_project(here.studio).id}/zones").status == 409  # no trips


def test_stops_and_zones_come_from_a_feed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A feed is read by a job; its stops and zones become a version that can be taken back, also before any policy."""
    here = Here(tmp_path / "studio")  # noqa: F811
    monkeypatch.setattr(here.studio.jobs, "prepare", lambda: None)
    try:
        files = {f"feed/{name}.txt": text.encode() for name, text in FEED.items()}
        project, first = trips_project(here.studio), here.studio.projects.create("Feed first", "owner")
        for made in (project, first):
            base = f"/studio/projects/{made.id}"
            assert 'action="' + base + '/feed"' in here.call("GET", f"{base}/zones").text
        base = f"/studio/projects/{project.id}"

        def upload(content: bytes, num: str = "2", role: str = OWNER) -> Any:
            return here.call("POST", f"{base}/feed", {"num": num}, files={"feed": ("f.zip", content)}, role=role)

        good = zipped(files)
        for answer, says in (
            (here.call("POST", f"{base}/feed", {"num": "2"}), "Choose the zip"),
            (upload(b"stop,lat,lon"), "The file is a damaged archive"),
            (upload(zipped({"stops.txt": b"x", "trips.txt": b"x"})), "not a GTFS feed"),
            (upload(zipped({**files, "../stops.txt": b"x"})), "leave its folder"),
            (upload(zipped({**files, "shapes.txt": b"0" * (1 << 25)})), "unfolds to far more"),
            (upload(good, "0"), "how many zones"),
            (upload(good, "\u00b2"), "how many zones"),
        ):
            assert (answer.status, says in answer.text) == (422, True), says
        assert upload(good, role=PLANNER).status == 403
        assert not list((project.folder / "received").iterdir())

        wrong = {**files, "feed/stop_times.txt": FEED["stop_times"].replace("8:25:00", "<b>25").encode()}
        failed = here.wait(upload(zipped(wrong)))
        page = here.call("GET", f"/studio/jobs/{failed.id}").text
        assert (failed.state, "Traceback" in page) == ("failed", False)
        assert "the uploaded file: stop_times.txt" in page
        assert str(tmp_path) not in page

        job = here.wait(upload(good))
        assert job.state == "done", job.message
        assert job.command.startswith("dunnage generate city --gtfs received/")
        page = here.call("GET", job.place).text
        assert "It has 4 stops with trips, which make 2 zones" in page
        assert 'name="job" value="' + job.id in page
        assert zones_of(here.studio, project) == {}  # until its stops are taken

        def take(at: str, job: str) -> Any:
            form = {"version": here.version(at), "do": "feed", "job": job, "level": "zone"}
            return here.call("POST", f"{at}/zones", form)

        assert take(base, failed.id).status == take(base, "none").status == 422
        assert take(f"/studio/projects/{first.id}", job.id).status == 422  # another project's
        assert take(base, job.id).status == 303
        assert zones_of(here.studio, project).keys() == {"A", "B", "S", "D"}
        assert set(zones_of(here.studio, project).values()) == {"zone 1", "zone 2"}
        form = {"version": here.version(base), "to": "2"}
        assert here.call("POST", f"{base}/undo", form).status == 303
        assert zones_of(here.studio, project) == {}

        # Before the columns are described, the stops wait for the first policy.
        (first.folder / "received/0123456789ab").mkdir()
        (first.folder / "received/0123456789ab/stops.csv").write_text("stop,zone\nA,x\nB,y\n")
        argv = ["dunnage", "generate", "city", "-o", "received/0123456789ab"]
        monkeypatch.setattr(here.studio.jobs._pool, "submit", lambda *_: None)
        place = f"/studio/projects/{first.id}"
        read = here.studio.jobs.start(first.id, "feed", argv, first.folder, role=OWNER, place="", by=OWNER)
        here.studio.jobs._end(read, "done", result='{"stops": 2, "zones": 2, "assumed": []}')
        assert "It has 2 stops with trips" in here.call("GET", f"{place}/zones?feed=read").text
        assert take(place, read).place == f"{place}/columns?story=trips"
        now = here.studio.projects.get(first.id)
        assert now is not None
        assert (now.folder / "policies" / now.settings["stops"]).read_text().startswith("stop,zone\nA,x")
        assert "stops of a feed are kept" in here.call("GET", f"{place}/zones").text
    finally:
        here.close()


def test_shuttles_and_waits_in_the_preview(here: Here) -> None:  # noqa: F811
    """A fleet on released trips beside one on true trips; what is missing is said, and time is limited."""
    project = trips_project(here.studio)
    policy, data = Policy.read(project.folder / project.policy), project.folder / "data/1.csv"
    assert _waits(policy, data, None, None) == ([], _NO_CITY)
    body = {"version": "2", "do": "propose", "num": "2"}
    assert here.call("POST", f"/studio/projects/{project.id}/zones", body).status == 303
    now = here.studio.projects.get(project.id)
    assert now is not None
    figures, words = _within(600, lambda: _waits(Policy.read(now.folder / now.policy), data, None, None))
    shuttles, wait, lost = figures
    assert [shuttles.name, wait.name, lost.name] == ["Shuttles", "Mean wait", "Without a shuttle"]
    assert float(shuttles.value) > 0
    assert float(wait.value.removesuffix(" min")) > 0
    assert "true trips" in shuttles.note
    assert "on your trips" in words
    text = (now.folder / now.policy).read_text().replace('level = "stop"', 'level = "zone"')
    by_zone = Policy.from_text(text, path=now.folder / now.policy)
    assert _waits(by_zone, data, None, None) == ([], _NO_STOPS)
    assert "longer than 0.01 seconds" in _within(0.01, lambda: threading.Event().wait(5) or ([], ""))[1]

    def fails() -> Any:
        raise ValueError("S01 is private")

    assert _within(600, fails) == ([], "Shuttles and waits are not measured: ValueError.")


def test_a_city_for_the_preview_is_kept_and_forgotten(here: Here) -> None:  # noqa: F811
    project = trips_project(here.studio)
    base = f"/studio/projects/{project.id}"
    stops = "stop,zone,lat,lon\n" + "".join(f"{stop},z,{lat},{lon}\n" for stop, lat, lon in STOPS)
    assert here.call("POST", f"{base}/city", {"version": here.version(base)}).status == 422
    upload = {"city": ("city.zip", zipped({"city/stops.csv": stops.encode()}))}
    assert here.call("POST", f"{base}/city", {"version": here.version(base)}, files=upload).status == 303
    page = here.call("GET", f"{base}/preview")
    assert "the city that you uploaded" in page.text
    argv = here.studio.jobs.of(project.id, "preview")[0].argv
    city = argv[argv.index("--city") + 1]
    assert city.startswith("received/")
    assert (project.folder / city / "stops.csv").exists()
    assert here.call("POST", f"{base}/city", {"version": here.version(base), "forget": "yes"}).status == 303
    here.call("GET", f"{base}/preview")
    assert "--city" not in here.studio.jobs.of(project.id, "preview")[0].argv


def test_people_are_removed_at_once_and_what_they_signed_stays(here: Here) -> None:  # noqa: F811
    studio = here.studio
    project, people = filled_project(studio), studio.door.people
    keys = {person.name: key for key, person in people.items()}
    from dunnage.ledger import Ledger, Rule
    from dunnage.model.certificate import load_public_key
    from dunnage.publishing import propose

    signing = {name: studio.key_of(people[keys[name]]) for name in (OWNER, OFFICER)}
    publics = {name: load_public_key(path.with_suffix(".pub.pem")).hex() for name, path in signing.items()}
    with Ledger(studio.ledger) as book:
        book.set_rule("parcels", Rule(people=publics, approvals=1), note="board")
        data = dn.load(project.folder / "data/1.csv", project.folder / "policies/0002.toml")
        proposal = propose(data, sign=signing[OWNER], ledger=studio.ledger).id
        book.decide(proposal, approve=True, key=signing[OFFICER], note="seen by the board")
    answer = here.call("POST", "/studio/sign-in", {"token": here.tokens[OFFICER]}, role=None,
                       headers={"sec-fetch-site": "same-origin"})  # fmt: skip
    session = answer.headers["set-cookie"].partition("=")[2].partition(";")[0]
    place = f"/studio/projects/{project.id}/decisions/{proposal}"
    assert here.call("GET", place, cookie=session).status == 200
    line = b"key", keys[OFFICER], b"public", 0, "Phone", 0
    studio.book.write("INSERT INTO passkeys VALUES (?, ?, ?, ?, ?, ?)", *line)
    dropped: list[bytes] = []
    studio.door.drop = dropped.append

    def remove(name: str, role: str = ADMIN) -> int:
        return here.call("POST", "/studio/people/remove", {"person": handle(keys[name])}, role=role).status

    assert {remove(OFFICER, role) for role in (OWNER, OFFICER, PLANNER)} == {403}
    page = here.call("GET", "/studio/people", role=ADMIN)
    assert handle(keys[OFFICER]) in page.text
    assert keys[OFFICER].hex() not in page.text
    assert remove(OFFICER) == 303
    assert dropped == [keys[OFFICER]]
    assert here.call("GET", place, cookie=session).status == here.call("GET", place, role=OFFICER).status == 401
    for table in ("sessions", "passkeys", "accounts"):
        assert studio.book.rows(f"SELECT * FROM {table} WHERE person = ?", keys[OFFICER]) == []
    assert not signing[OFFICER].exists()
    assert len(list((studio.folder / "keys").glob("officer-*.left-*.pub.pem"))) == 1
    page = here.call("GET", f"/studio/projects/{project.id}/records", role="auditor")
    assert "seen by the board" in page.text
    assert studio.key_of(Person(OFFICER, frozenset([OFFICER]))).exists()  # one of the same name has a key of her own
    assert load_public_key(signing[OFFICER].with_suffix(".pub.pem")).hex() != publics[OFFICER]
    assert [remove(OFFICER), remove(ADMIN)] == [404, 409]  # gone already; the last admin
    here.tokens["second"] = "another admin"
    people[hashed("another admin")] = Person("second", frozenset([ADMIN]))
    assert remove(ADMIN) == 303
    assert here.call("GET", "/studio/people", role=ADMIN).status == 401


def test_two_admins_cannot_remove_each_other() -> None:
    door, keys = Door(None), [b"a" * 32, b"b" * 32]
    door.people |= {key: Person(key.decode()[0], frozenset([ADMIN])) for key in keys}
    waits = threading.Barrier(2)

    def slow(_: bytes) -> None:
        time.sleep(0.02)

    door.drop, said = slow, list[int]()

    def remove(key: bytes) -> None:
        waits.wait()
        try:
            door.remove(key)
        except HttpError as error:
            said.append(error.status)

    threads = [threading.Thread(target=remove, args=(key,)) for key in keys]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (said, len(door.people)) == ([409], 1)


@pytest.mark.parametrize("width", [1280, pytest.param(390, marks=pytest.mark.long)])
def test_zones_are_drawn_in_a_browser(chromium: Any, team: Any, width: int) -> None:  # noqa: F811
    project = trips_project(team.studio)
    walk = entered(chromium, team, OWNER, width)
    page = walk.page
    page.goto(f"http://127.0.0.1:{team.port}/studio/projects/{project.id}/zones")
    walk.look("zones")

    def middle(stop: int) -> tuple[float, float]:
        page.wait_for_selector("#chosen:text('stops ticked')")  # the script has run
        page.locator("svg.drawn").evaluate("map => map.scrollIntoView({block: 'center', behavior: 'instant'})")
        box = page.locator(f"circle[data-stop='{stop}']").bounding_box()
        return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    (left, top), (right, bottom) = middle(8), middle(5)  # a rectangle around S04, S05, S08 and S09
    page.mouse.move(left - 9, top - 9)
    page.mouse.down()
    page.mouse.move(right + 9, bottom + 9, steps=4)
    walk.look("rectangle")
    page.mouse.up()
    assert page.locator("#chosen").inner_text() == "4 of 12 stops ticked."
    page.fill("#zone", "north")
    walk.click("text=Put the ticked stops")
    page.wait_for_selector("span.zone-name:text-is('north')")
    (left, top), (right, bottom) = middle(2), middle(3)
    for x, y in ((left - 9, top - 9), (right + 9, top - 9), (right + 9, bottom + 9), (left - 9, top + 9)):
        page.mouse.click(x, y)
    page.mouse.click(left - 9, top - 9)  # the first corner again
    assert page.locator("#chosen").inner_text() == "2 of 12 stops ticked."
    page.fill("#zone", "south")
    page.select_option("#level", "zone")
    page.press("#zone", "Enter")
    page.wait_for_selector("span.zone-name:text-is('south')")
    drawn = zones_of(team.studio, project)
    assert {zone: [stop for stop in drawn if drawn[stop] == zone] for zone in ("north", "south")} == {
        "north": ["S04", "S05", "S08", "S09"], "south": ["S02", "S03"],
    }  # fmt: skip
    walk.look("zones-drawn")
    assert (walk.outside, walk.complaints, walk.found) == ([], [], [])
    walk.context.close()
