# SPDX-License-Identifier: Apache-2.0
"""The demo runs all three stories and ends on one page, every number of which leads to the file it was read from."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from urllib.parse import unquote

import pytest

import dunnage as dn
import dunnage_demo as demo
from dunnage.advising.frontier import Frontier
from dunnage.errors import InternalError, OutputError
from dunnage.ledger.store import state_folder
from dunnage.text import unbroken
from dunnage_demo import run_demo
from dunnage_demo.story import Numbers, Story, Traced, bars_picture, find_field, signed

STORIES = ("loads", "riders", "carriers")


class DemoPage(HTMLParser):
    """Reads what a person sees: words in and outside traced links; pictures, file names and citations apart."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.traced: list[tuple[str, str, str]] = []  # file, title, text
        self.links: list[str] = []
        self.words: list[str] = []
        self.pictures = self.sources = 0
        self._open: list[tuple[str, dict[str, str]]] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        named = dict(attrs)
        if tag == "svg" and named.get("role") == "img":
            self.pictures += 1
        if tag == "a":
            self.links.append(named["href"])
        if tag == "a" and named.get("class") == "traced":
            self.traced.append((unquote(named["href"]), named["title"], ""))
        if tag not in ("meta",):
            self._open.append((tag, named))

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self._open.pop()[0] == tag

    def handle_data(self, data):
        tags = [tag for tag, _ in self._open]
        classes = [named.get("class", "") for _, named in self._open]
        if "traced" in classes:
            file, title, text = self.traced[-1]
            self.traced[-1] = (file, title, text + data.replace("\u00a0", " "))
        elif "Data:" in data:
            self.sources += 1
        elif not {"svg", "style", "title", "footer"} & set(tags) and "paper" not in classes:
            self.words.append(data)


@pytest.fixture(scope="module")
def ran(tmp_path_factory, _few_candidates):
    stages: list[str] = []
    done = run_demo(tmp_path_factory.mktemp("demo") / "out", quick=True, progress=stages.append)
    return done, stages


@pytest.fixture(scope="module")
def page(ran):
    return DemoPage(ran[0].report.read_text("utf-8"))


@pytest.fixture(scope="module")
def listed(ran):
    with (ran[0].report.parent / "numbers.csv").open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def test_each_story_is_told_with_progress(ran):
    done, stages = ran
    assert [line.split()[0].lower() for line in done.lines] == list(STORIES)
    assert [stage.partition(":")[0] for stage in stages] == sorted(
        (stage.partition(":")[0] for stage in stages), key=[*STORIES, "writing the page"].index
    )
    for story in STORIES:
        assert any(stage.startswith(f"{story}: frontier") for stage in stages)


def test_everything_is_there_and_verifies(ran):
    folder = ran[0].report.parent
    for release in (
        "loads/release",
        "loads/profile/release",
        "riders/release",
        "riders/laplace",
        "carriers/telemetry",
        "carriers/positions",
    ):
        assert dn.verify(folder / release).ok
    for file in (
        "loads/dunnage-ledger.sqlite",
        "loads/plan-sealed/plan.json",
        "loads/settlement-sealed/loading.csv",
        "riders/plan/fleet.csv",
        "riders/settlement/events.csv",
        "carriers/telemetry-task.json",
        *(f"{story}/frontier/frontier.json" for story in STORIES),
        *(f"{story}/figures.json" for story in STORIES),
    ):
        assert (folder / file).is_file(), file
    for story in STORIES:  # a policy is written only if one keeps to the limit
        frontier = Frontier.read(folder / story / "frontier")
        assert (folder / story / "frontier" / "policy.toml").is_file() == (frontier.recommended is not None)
        assert frontier.choice is not None
    names = {story: {path.name for path in (folder / story).iterdir()} for story in STORIES}
    assert all(names[story] <= demo._WRITTEN[story] for story in STORIES)


def test_the_page_and_its_folders_are_private(ran):
    report = ran[0].report
    assert report.stat().st_mode & 0o777 == 0o600
    assert all((report.parent / story).stat().st_mode & 0o777 == 0o700 for story in STORIES)
    text = report.read_text("utf-8")
    assert "true values" in text
    assert str(report.parent) not in text
    assert "://" not in text.replace("http://www.w3.org/2000/svg", "")


def shown_number(text: str) -> tuple[float, float]:
    """Read the first number of a text, and how far it may be rounded."""
    found = re.search(r"[-+]?\d[\d,]*(\.\d+)?", text)
    number = float(found[0].replace(",", ""))
    decimals = len(found[1]) - 1 if found[1] else 0
    return number, max(0.006 * abs(number), 0.51 * 10.0**-decimals)


def test_every_number_is_in_the_file_it_leads_to(ran, listed):
    folder = ran[0].report.parent
    contents: dict[str, object] = {}
    assert {line["chapter"] for line in listed} == set(STORIES)
    for line in listed:
        file = line["file"]
        assert not Path(file).is_absolute()
        assert file.startswith(f"{line['chapter']}/")
        content = contents.setdefault(file, json.loads((folder / file).read_bytes()))
        value = find_field(content, line["field"])
        if isinstance(value, str):
            assert value == line["value"] == line["text"]
            continue
        assert json.loads(line["value"]) == value
        if line["text"].startswith("over 99.9"):
            assert 0.9995 <= value < 1
            continue
        number, room = shown_number(line["text"])
        assert number == pytest.approx(value * (100 if "%" in line["text"] else 1), abs=room), line


def test_figures_name_what_they_were_worked_out_from(ran):
    folder = ran[0].report.parent
    for story in STORIES:
        figures = json.loads((folder / story / "figures.json").read_text("utf-8"))["figures"]
        assert figures
        for figure in figures.values():
            assert figure["how"]
            assert figure["from"]
            for place in figure["from"]:
                file, _, field = place.partition("#")
                assert (folder / file).is_file()
                if field:
                    find_field(json.loads((folder / file).read_bytes()), field)


def test_no_number_on_the_page_stands_by_itself(page, listed):
    loose = [words for words in page.words if re.search(r"\d", words)]
    assert loose == []
    known = {(line["file"], line["text"]) for line in listed}
    assert len(page.traced) > 100
    for file, title, text in page.traced:
        assert (file, text) in known
        assert file in title


def test_numbers_are_listed_once_and_shown_or_worked_with(ran, page, listed):
    names = [(line["chapter"], line["name"]) for line in listed]
    assert len(set(names)) == len(names)
    folder, text = ran[0].report.parent, ran[0].report.read_text("utf-8")
    linked = {title for _, title, _ in page.traced}
    figures = [json.loads((folder / story / "figures.json").read_bytes())["figures"] for story in STORIES]
    inputs = {place for found in figures for figure in found.values() for place in figure["from"]}
    for line in listed:
        drawn = f": {unbroken(line['text'])}</text>" in text
        is_input = f"{line['file']}#{line['field']}" in inputs
        assert f"{line['name']}: {line['file']} {line['field']}" in linked or drawn or is_input, line


def test_no_epsilon_is_a_percentage(ran):
    text = re.sub(r"<[^>]*>", "", ran[0].report.read_text("utf-8"))
    assert re.search(r"epsilon \d", text)
    assert not re.search(r"epsilon[\s=]*[\d.,]+\s*%", text)
    assert not re.search(r"together lose [\d.,]+\s*%", text)


def test_links_lead_somewhere_and_pictures_name_their_files(ran, page):
    folder = ran[0].report.parent
    for link in page.links:
        if link.startswith("#"):
            assert link[1:] in STORIES
        else:
            assert (folder / unquote(link)).is_file(), link
    assert page.pictures >= 15
    assert page.sources == page.pictures


def test_what_the_papers_claimed_is_told_as_it_came_out(ran):
    folder = ran[0].report.parent
    figures = {story: json.loads((folder / story / "figures.json").read_text())["figures"] for story in STORIES}
    assert figures["loads"]["weights printed exactly"]["value"] >= 2
    weights = [float(line.split(",")[0]) for line in (folder / "loads/as-published.csv").read_text().split()[1:]]
    assert figures["loads"]["heaviest weight, as printed"]["value"] == max(weights)
    assert figures["riders"]["fleet on plain noise"]["value"] > 1.3
    proof = json.loads((folder / "carriers/proof.json").read_text())
    assert proof["measured"] == {"published": 2 * proof["claimed"], "sound": proof["claimed"]}


# The folder


def a_story(folder: Path, *, quick: bool, tell: object) -> Story:
    numbers = Numbers(folder)
    numbers.compute("one", 1, "counted", [])
    return Story(numbers, "one line", {}, {})


@pytest.fixture
def brief(monkeypatch):
    monkeypatch.setattr(demo, "_STORIES", dict.fromkeys(STORIES, a_story))
    monkeypatch.setattr(demo, "demo_page", lambda stories: ", ".join(stories))


def test_demo_replaces_only_its_own_folder(brief, tmp_path):
    out = tmp_path / "out"
    run_demo(out)
    with pytest.raises(OutputError, match="--force"):
        run_demo(out)
    run_demo(out, force=True)
    for place in (out / "thesis.txt", out / "loads" / "thesis.txt"):
        place.write_text("keep")
        with pytest.raises(OutputError, match="other files"):
            run_demo(out, force=True)
        assert place.read_text() == "keep"
        place.unlink()
    run_demo(out, force=True)


def test_a_demo_of_an_older_version_is_replaced(brief, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    for name in demo._EARLIER:
        (out / name).write_text("old")
    with pytest.raises(OutputError, match="--force"):
        run_demo(out)
    (out / "thesis.txt").write_text("keep")
    with pytest.raises(OutputError, match="other files"):
        run_demo(out, force=True)
    (out / "thesis.txt").unlink()
    run_demo(out, force=True)
    assert not (out / "parcels.csv").exists()


def test_an_owners_folder_is_no_demo(brief, tmp_path):
    (tmp_path / "parcels.csv").write_text("mine")
    (tmp_path / "release").mkdir()
    with pytest.raises(OutputError, match="other files"):
        run_demo(tmp_path, force=True)


def test_demo_follows_no_link_and_replaces_no_file(brief, tmp_path):
    kept = tmp_path / "kept"
    run_demo(kept)
    (tmp_path / "link").symlink_to(kept)
    (tmp_path / "file").write_text("keep")
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "loads").symlink_to(kept / "loads")
    for place in ("link", "file", "inside"):
        with pytest.raises(OutputError, match="other files"):
            run_demo(tmp_path / place, force=True)
    with pytest.raises(OutputError, match="deeper"):
        run_demo(tmp_path / "file" / "deeper")
    assert (kept / "loads" / "figures.json").exists()


# Numbers and words


def test_numbers_lead_to_their_files_and_are_escaped():
    number = Traced(name='"', value="<i>", text="<i>", file="a b/<.json", field="/x")
    assert str(number) == "<i>"
    assert number.__html__() == (
        '<a class="traced" href="a%20b/%3C.json" title="&quot;: a b/&lt;.json /x">&lt;i&gt;</a>'
    )
    bars = bars_picture(
        "Bars", [("<all>", replace(number, value=0.5), "bar"), ("none", replace(number, value=0), "x")], "c"
    )
    assert bars.sources == ("a b/<.json",)
    assert "&lt;all&gt;" in bars.svg


def test_sentences_of_the_page_have_no_digits_of_their_own():
    text = resources.files("dunnage.showing").joinpath("templates", "demo.html").read_text("utf-8")
    text = re.sub(r"</?h\d|, \d{4}\"", "", text)  # headings, and years of papers
    assert not re.search(r"\d", text)


@pytest.mark.parametrize(("share", "text"), [(0.0384, "+3.84 %"), (-0.5, "-50 %"), (0.0, "0 %")])
def test_shares_more_or_less(share, text):
    assert signed(share) == text


def test_numbers_are_read_from_files(tmp_path):
    folder = tmp_path / "loads"
    folder.mkdir()
    (folder / "f.json").write_text(json.dumps({"a/b": [{"c": 0.25}], "words": {}}))
    numbers = Numbers(folder)
    one = numbers.read("one", "f.json", "/a~1b/0/c")
    assert (one.value, one.text, one.file) == (0.25, "0.25", "loads/f.json")
    half = numbers.compute("half/of it", 0.125, "halved", [one, "f.json"])
    assert half.field == "/figures/half~1of it/value"
    kept = json.loads((folder / "figures.json").read_text())["figures"]["half/of it"]
    assert kept == {"value": 0.125, "how": "halved", "from": ["loads/f.json#/a~1b/0/c", "loads/f.json"]}
    with pytest.raises(InternalError, match="no number"):
        numbers.read("words", "f.json", "/words")


def test_only_value_and_baseline_of_a_finding_are_in_its_unit(tmp_path):
    finding = {"name": "guess", "unit": "probability", "value": 0.5, "baseline": 0.25, "details": {"loss": 2.0}}
    (tmp_path / "audit.json").write_text(json.dumps({"findings": [finding]}))
    numbers = Numbers(tmp_path)
    parts = ("value", "baseline", "details/loss")
    assert [numbers.finding("audit.json", "guess", part).text for part in parts] == ["50 %", "25 %", "2"]


def test_the_machine_forgets_the_ledgers_of_a_demo():
    """A second demo in the same folder has new ledgers, which the machine would refuse as old copies."""
    before = state_folder()
    with demo._ledgers_forgotten():
        assert state_folder() != before
    assert state_folder() == before
