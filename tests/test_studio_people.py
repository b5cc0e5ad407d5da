# SPDX-License-Identifier: Apache-2.0
"""Planner, officer and auditor of a team in a real browser, each signed in by a token."""

from __future__ import annotations

import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

uvicorn = pytest.importorskip("uvicorn")
pytest.importorskip("multipart")

from tests.studio_help import Here  # noqa: E402
from tests.test_studio import free_port  # noqa: E402
from tests.test_studio_browser import Walk, chromium, pytestmark  # noqa: E402, F401
from tests.test_studio_roles import filled_project, zipped  # noqa: E402

import dunnage as dn  # noqa: E402
from dunnage.publishing import propose  # noqa: E402
from dunnage.serving.web import AUDITOR, COOKIE, OFFICER, OWNER, PLANNER  # noqa: E402


@pytest.fixture
def team(tmp_path: Path) -> Iterator[Any]:
    """A studio of five people, one for each role, on a port of this machine."""
    here, port = Here(tmp_path / "studio"), free_port()
    server = uvicorn.Server(uvicorn.Config(here.app, port=port, log_config=None, lifespan="off"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    yield SimpleNamespace(here=here, studio=here.studio, port=port, cookie=f"{COOKIE}=none")
    server.should_exit = True
    thread.join()
    here.studio.close()
    here.loop.close()


def entered(browser: Any, team: Any, role: str, width: int) -> Walk:
    walk = Walk(browser, team, width)
    walk.complaints.clear()  # the page that asks to sign in has the status 401
    walk.page.fill("#token", team.here.tokens[role])
    walk.click("button:text-is('Sign in')")
    walk.page.wait_for_selector("h1:text-is('Projects')")
    return walk


@pytest.mark.parametrize("width", [1280, pytest.param(390, marks=pytest.mark.long)])
def test_a_planner_opens_packs_and_sends_back(chromium: Any, team: Any, tmp_path: Path, width: int) -> None:  # noqa: F811
    project = filled_project(team.studio)
    files = {f"r/{path.name}": path.read_bytes() for path in (project.folder / "public/releases/r").iterdir()}
    (tmp_path / "sent.zip").write_bytes(zipped(files))
    walk = entered(chromium, team, PLANNER, width)
    page = walk.page
    walk.look("planner-home")
    page.set_input_files("#release", tmp_path / "sent.zip")
    walk.click("text=Check this release")
    page.wait_for_selector("text=Every check passed")
    walk.look("planner-release")
    page.fill("#capacity1", "500")
    page.select_option("#by", "destination")
    page.fill("#time_limit", "3")
    walk.click("button:text-is('Pack')")
    page.wait_for_url("**/plans/*")
    walk.look("planner-plan")
    with page.expect_download() as download:
        walk.click("text=Download the plan (zip)")
    with zipfile.ZipFile(download.value.path()) as archive:
        assert any(name.endswith("plan.json") for name in archive.namelist())
    with page.expect_download():
        walk.click("text=As a workbook (xlsx)")
    walk.click("text=One sheet a truck, to print")
    page.wait_for_selector("h2:text-is('Truck 0')")
    walk.look("planner-sheets")
    page.go_back()
    walk.click("text=The plan as a page")
    page.wait_for_url("**/plan.html")
    page.goto(f"http://127.0.0.1:{team.port}/studio/projects/{project.id}")
    page.wait_for_url("**/planning")  # of a project that an owner shares
    walk.look("planner-shared")
    assert (walk.outside, walk.complaints, walk.found) == ([], [], [])
    walk.context.close()


@pytest.mark.parametrize("width", [1280, pytest.param(390, marks=pytest.mark.long)])
def test_an_officer_decides_and_an_auditor_reads(chromium: Any, team: Any, width: int) -> None:  # noqa: F811
    project, people = filled_project(team.studio), {one.name: one for one in team.studio.door.people.values()}
    (team.studio.folder / "house.toml").write_text(
        'name = "Port of Example"\n[limits]\nmin_k = 3\nmax_inference = 0.9\n'
    )
    base = f"http://127.0.0.1:{team.port}/studio/projects/{project.id}"
    walk = entered(chromium, team, OFFICER, width)
    page = walk.page
    page.goto(f"{base}/decisions")
    for box in page.locator("input[name=person]").all():
        box.set_checked(box.get_attribute("value") in (OWNER, OFFICER))
    page.fill("#note", "the board asked for two people")
    walk.look("officer-rule")
    walk.click("text=Set the rule")
    page.wait_for_selector("text=by somebody other than the proposer")
    data = dn.load(project.folder / "data/1.csv", project.folder / "policies/0002.toml")
    for note in ("week 47", "again"):
        propose(data, sign=team.studio.key_of(people[OWNER]), ledger=team.studio.ledger, note=note)
    page.reload()
    walk.look("officer-proposals")
    page.locator(".projects a").last.click()
    page.wait_for_selector("text=tick each one")
    walk.look("officer-decision")
    page.check("#approve")
    walk.click("text=Sign the decision")
    page.wait_for_selector("text=Not ticked")
    for box in page.locator("input[name=assumption]").all():
        box.check()
    page.check("#approve")
    walk.click("text=Sign the decision")
    page.wait_for_selector("dd:text-is('approved')")
    page.goto(f"{base}/decisions")
    page.locator(".projects a").first.click()
    page.check("#refuse")
    page.fill("#note", "one release is enough")
    walk.click("text=Sign the decision")
    page.wait_for_selector("dd:has-text('refused by')")
    walk.complaints = [text for text in walk.complaints if "422" not in text]  # the answer to what was not ticked
    assert (walk.outside, walk.complaints, walk.found) == ([], [], [])
    walk.context.close()
    walk = entered(chromium, team, AUDITOR, width)
    walk.page.goto(f"{base}/records")
    walk.look("auditor-records")
    assert "one release is enough" in walk.page.inner_text("main")
    assert (walk.outside, walk.complaints, walk.found) == ([], [], [])
    walk.context.close()
