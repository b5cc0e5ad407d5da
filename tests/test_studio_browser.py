"""The studio in a real browser: a first-time user's path, what axe finds, and pages without JavaScript.

Set DUNNAGE_SHOTS to a folder to keep a picture of every page.
"""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("starlette")
axe = pytest.importorskip("axe_playwright_python.sync_playwright")

from tests.browser_help import chromium as a_browser  # noqa: E402
from tests.studio_help import Apart  # noqa: E402
from tests.test_studio import free_port  # noqa: E402

import dunnage as dn  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
PATIENCE = 240_000  # milliseconds: a busy machine is slow, which is no fault of the studio


@pytest.fixture(scope="module")
def chromium():
    with a_browser() as browser:
        yield browser


@pytest.fixture
def apart(tmp_path):
    made = Apart(tmp_path / "studio", free_port())
    yield made
    made.kill()


class Walk:
    """A page that counts clicks, and notes what leaves the machine, what the console says and what axe finds."""

    def __init__(self, browser, apart: Apart, width: int, **how) -> None:
        self.context = browser.new_context(viewport={"width": width, "height": 900}, accept_downloads=True, **how)
        self.page, self.clicks, self.shots, self.width = self.context.new_page(), 0, 0, width
        self.page.set_default_timeout(PATIENCE)
        self.outside, self.complaints, self.found = [], [], []
        own = f"http://127.0.0.1:{apart.port}/"
        self.page.on(
            "request", lambda made: None if made.url.startswith((own, "data:")) else self.outside.append(made.url)
        )
        self.page.on("console", lambda said: self.complaints.append(said.text) if said.type == "error" else None)
        name, _, value = apart.cookie.partition("=")
        self.context.add_cookies([{"name": name, "value": value, "url": own}])
        self.page.goto(f"{own}studio")

    def click(self, what: str) -> None:
        self.clicks += 1
        self.page.click(what)

    def look(self, name: str) -> None:
        """Check a page with axe, that nothing is wider than the screen, and keep a picture if asked."""
        self.shots += 1
        if folder := os.environ.get("DUNNAGE_SHOTS"):
            Path(folder).mkdir(parents=True, exist_ok=True)
            picture = Path(folder) / f"{self.width}-{self.shots:02}-{name}.png"
            self.page.screenshot(path=str(picture), full_page=True)
        violations = axe.Axe().run(self.page).response["violations"]
        grave = [item for item in violations if item["impact"] in ("serious", "critical")]
        self.found += [(name, item["id"], item["nodes"][0]["html"][:200]) for item in grave]
        wide = self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 1, (name, wide)


@pytest.mark.parametrize("width", [1280, pytest.param(390, marks=pytest.mark.long)])
def test_a_first_time_user_gets_from_a_file_to_a_release(chromium, apart, tmp_path, width):
    lines = "".join(f"P{i:04},{['Bern', 'Basel', 'Genf'][i % 3]},{20 + (i * 37) % 380 / 10}\n" for i in range(1200))
    (tmp_path / "parcels.csv").write_text("parcel_id,town,weight\n" + lines)
    walk = Walk(chromium, apart, width, color_scheme="dark" if width < 600 else "light")
    page = walk.page
    walk.look("home")
    walk.clicks += 1  # the dialogue in which the file is chosen
    page.set_input_files("#file", tmp_path / "parcels.csv")
    walk.click("text=Begin with this file")
    page.wait_for_url("**/columns")
    walk.look("columns")
    for field, text in {"low2": "0", "high2": "100", "unit2": "kg", "amount": "5", "capacity": "200kg"}.items():
        page.fill(f"#{field}", text)
    walk.click("text=Save and preview")
    page.wait_for_selector("text=Before and after")
    page.wait_for_selector("text=Chance to name its truck")
    walk.look("preview")
    assert page.locator("table.sheet-table tbody tr").count() >= 20
    page.fill("#amount", "8")
    page.press("#amount", "Tab")
    page.wait_for_selector("text=Keep k = 8")  # measured again, without leaving the page
    walk.click("text=Keep, and go on to publish")
    page.wait_for_url("**/publish")
    walk.look("publish")
    walk.click("button:text-is('Publish')")
    page.wait_for_url("**/releases/*")
    walk.look("release")
    with page.expect_download() as download:
        walk.click("text=Download the release (zip)")
    download.value.save_as(tmp_path / "release.zip")
    assert walk.clicks <= 12
    with zipfile.ZipFile(tmp_path / "release.zip") as archive:
        archive.extractall(tmp_path / "received")
    (received,) = (tmp_path / "received").iterdir()
    assert dn.verify(received).ok
    assert dn.Release.read(received).certificate.guarantee.k == 8
    project = page.url.rsplit("/", 2)[0]
    for name in ("releases", "next", "history", "columns"):
        page.goto(f"{project}/{name}")
        walk.look(name)
    page.goto(f"{project}/files/releases/parcels/certificate.html")
    assert "k-anonymity" in page.inner_text("body")
    assert (walk.outside, walk.complaints, walk.found) == ([], [], [])
    walk.context.close()


@pytest.mark.long
def test_pages_work_without_javascript(chromium, apart, tmp_path):
    (tmp_path / "parcels.csv").write_text("parcel_id,weight\n" + "".join(f"P{i},{20 + i % 30}\n" for i in range(60)))
    walk = Walk(chromium, apart, 390, java_script_enabled=False)
    page = walk.page
    page.set_input_files("#file", tmp_path / "parcels.csv")
    page.click("text=Begin with this file")
    page.wait_for_selector("#amount")  # the page that waits reloads itself
    for field, text in {"low1": "0", "high1": "100", "amount": "5"}.items():
        page.fill(f"#{field}", text)
    page.click("text=Save and preview")
    page.wait_for_selector("text=Before and after")
    page.click("text=Go on to publish")
    page.wait_for_selector("button:text-is('Publish')")
    walk.context.close()
