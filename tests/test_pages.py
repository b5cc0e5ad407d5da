# SPDX-License-Identifier: Apache-2.0
"""The owner's pages: well-formed, closed to the network, escaped, and true to the story's figures."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from tests.builders import CASES, QUASI, a_policy
from tests.certificates_help import certificate_of
from tests.pages_help import Page, check_closed, plain

import dunnage as dn
from dunnage.auditing.run import audit
from dunnage.model.certificate import Certificate, odds
from dunnage.model.guarantees import Loss
from dunnage.release import Release
from dunnage.samples import metro_edges
from dunnage.samples.packages import PackageSetting, generate_packages
from dunnage.samples.rides import RideSetting, generate_rides
from dunnage.showing.audit import audit_page, ride_pictures
from dunnage.showing.figures import Network
from dunnage.showing.loads import LoadsStory, PlanView, loads_page, loads_pictures
from dunnage.text import unbroken

CAPACITY = 500.0


def weight_in(unit: str) -> list[dict[str, object]]:
    domain = {"kind": "numeric", "lower": 0, "upper": 400, "unit": unit}
    return [{"name": "destination", "role": "public"}, {"name": "weight", "role": QUASI, "domain": domain}]


def a_certificate(num_rows: int, k: int, num_classes: int, **changes: object) -> Certificate:
    measures = {
        "records": num_rows,
        "k_asked": k,
        "k_reached": k,
        "classes": num_classes,
        "class_size": {"smallest": k, "mean": num_rows / num_classes, "largest": k},
        "suppressed": {"count": 0, "share": 0.0},
        "loss": {"metric": "range", "sum": 1.0, "total": 0.125, "attributes": {"weight": 0.125}},
    }
    stated = {
        "guarantee": {"model": "k-anonymity", "protects": "package", "k": k},
        "mechanism": {"name": "partition", "k": k},
        "assumptions": {"public domain": "chosen without looking", "released once": "no other release"},
        "in_clear": ["size of each class"],
        "attributes": weight_in("kg"),
        "measures": measures,
        "meaning": {"sentences": ["Right at most."], "odds": [{"attack": "name the row", "right_at_most": 0.2}]},
    }
    return certificate_of(stated | changes)


def a_release(truth: np.ndarray, k: int, destinations: int = 1, **changes: object) -> Release:
    """A release of sorted classes of k neighbours in weight; the last takes the rest."""
    num_classes = max(1, len(truth) // k)
    rank = np.argsort(np.argsort(truth, kind="stable"))
    class_id = np.minimum(rank // k, num_classes - 1)
    groups = [truth[class_id == i] for i in range(num_classes)]
    columns = {
        "row": np.arange(len(truth)),
        "class_id": class_id,
        "destination": [f"D{i % destinations}" for i in class_id],
        "weight_lower": np.array([group.min() for group in groups])[class_id],
        "weight_upper": np.array([group.max() for group in groups])[class_id],
        "weight_mean": np.array([group.mean() for group in groups])[class_id],
    }
    return Release(certificate=a_certificate(len(truth), k, num_classes, **changes), data=pa.table(columns))


def next_fit(weights: np.ndarray, capacity: float) -> list[list[float]]:
    bins: list[list[float]] = [[]]
    for weight in np.sort(weights)[::-1]:
        if sum(bins[-1]) + weight > capacity and bins[-1]:
            bins.append([])
        bins[-1].append(float(weight))
    return bins


def a_plan(title: str, bins: list[list[float]], optimum: int, **changes: object) -> PlanView:
    fits = [sum(parts) <= CAPACITY for parts in bins]
    known = {"title": title, "bins": bins, "bins_repaired": None, "repair": "", "seconds": 1.5}
    known |= {"objective": len(bins), "bound": len(bins) - 1, "ratio": len(bins) / optimum}
    known |= {"bins_feasible": sum(fits) / len(fits), "plan_feasible": all(fits)}
    known |= {"linkage_mean": 0.2468, "linkage_worst": 0.5, "linkage_kind": "exact"}
    return PlanView(**{**known, **changes})


def a_story(num_rows: int = 50, k: int = 5, destinations: int = 1, **changes: object) -> LoadsStory:
    truth = np.random.default_rng(num_rows).uniform(125, 375, num_rows).round(1)
    best = next_fit(truth, CAPACITY)
    optimum = len(best)
    overfull = [best[0] + best[-1], *best[1:-1]] if optimum > 1 else best
    loose = [*best[:-1], *([weight] for weight in best[-1]), [1.0], [1.0]]
    plans = [
        a_plan("True weights", best, optimum, linkage_mean=None, linkage_worst=None, linkage_kind=""),
        a_plan("Mean", overfull, optimum, bins_repaired=best, repair="Moved 1 package."),
        a_plan("Upper bound", loose, optimum),
    ]
    release = a_release(truth, k, destinations, **changes)
    return LoadsStory(title="Parcels", release=release, quantity="weight", truth=truth, capacity=CAPACITY, plans=plans)


@pytest.fixture(scope="module")
def story() -> LoadsStory:
    return a_story()


@pytest.fixture(scope="module")
def page(story) -> str:
    return loads_page(story)


def test_page_is_well_formed_and_complete(story, page):
    intervals, loads = loads_pictures(story)
    assert list(loads) == ["True weights", "Mean", "Mean, after repair", "Upper bound"]
    assert all(unbroken(card.svg) in page for card in (intervals, *loads.values()))
    read = check_closed(page)
    assert page.startswith("<!DOCTYPE html>")
    assert len([tag for tag, _ in read.tags if tag == "section"]) == 6
    assert all(fact in read.text for fact in ("9.8.7", "2026-11-15T10:00:00Z"))
    assert sum(names.startswith("chart") for names in read.having("class")) == 6
    assert set(re.findall(r"url\(([^)]*)\)", page)) == {"#hatch", "#quiet"}
    shown = repr(story) + repr(story.plans)
    assert not any(f"{value:g}" in shown for value in story.truth)


EVIL = "\"'><script>alert(1)</script>&amp;<img src=x onerror=y>"


def test_every_text_is_escaped(story):
    changed = {
        **dict.fromkeys(("dataset", "claim", "why", "time", "digests_say"), EVIL),
        "in_clear": [EVIL],
        "warnings": [EVIL],
        "assumptions": {EVIL: EVIL},
        "software": {"dunnage": EVIL},
        "basis": "claimed",
        "guarantee": {"model": "k-anonymity", "protects": EVIL, "k": 5},
        "meaning": {"sentences": [EVIL], "odds": [{"attack": EVIL, "right_at_most": 0.2}]},
        "attributes": weight_in(EVIL),
    }
    data = story.release.data
    places = [EVIL + str(i % 3) for i in data.column("class_id").to_pylist()]
    data = data.set_column(2, "destination", pa.array(places))
    body = {**story.release.certificate.plain(), **changed}
    release = Release(certificate=Certificate.model_validate(body), data=data)
    plans = [replace(plan, title=EVIL, repair=EVIL, linkage_kind=EVIL) for plan in story.plans]
    page = loads_page(replace(story, title=EVIL, release=release, plans=plans))
    read = Page(page)
    assert {"script", "img"}.isdisjoint(tag for tag, _ in read.tags)
    assert not read.having("onerror")
    assert read.text.count("<script>") > 15
    assert "<script" not in page
    assert "&amp;amp;" in page


def test_figures_agree_with_plans_and_release(story, page):
    for plan, row in zip(story.plans, Page(page).rows, strict=True):
        repaired = "–" if plan.bins_repaired is None else f"{len(plan.bins_repaired)}"  # noqa: RUF001
        linkage = ["–", "–"] if plan.linkage_mean is None else ["24.7 %", "50 %"]  # noqa: RUF001
        title, trucks, after, bound, ratio, fits, _, *linked, seconds = row.values()
        assert (title, trucks, after, bound) == (plan.title, f"{plan.objective}", repaired, f"{plan.bound}")
        assert (float(ratio), linked, float(seconds)) == (pytest.approx(plan.ratio, abs=5e-4), linkage, plan.seconds)
        assert float(fits.rstrip(" %")) == pytest.approx(100 * plan.bins_feasible, rel=5e-3)
    true, mean, upper = story.plans
    optimum, excess = true.objective, max(math.fsum(parts) for parts in mean.bins) - CAPACITY
    facts = [f"{100 * (upper.ratio - 1):.2g} %", f"{100 * (1 - mean.ratio):.2g} %", f"1 of {mean.objective} "]
    assert [fact for fact in (*facts, f"{excess:g} kg", "Moved 1 package.") if fact not in plain(page)] == []
    head = plain(page)[: plain(page).index("True weights:")]
    for facts in (("50", "5", "10"), (f"{optimum}", "0")):  # rows, k and classes; trucks and the cost of privacy
        assert set(facts) <= set(re.findall(r"\d+", head))
    unrepaired = replace(mean, bins_repaired=None, repair="")
    text = plain(loads_page(replace(story, plans=[true, unrepaired, upper])))
    more = upper.objective - optimum
    assert re.search(rf"{upper.objective} Upper bound .* \+{more} {100 * more / optimum:.2g} %", text)
    assert "+" not in plain(loads_page(replace(story, plans=[replace(mean, bins_repaired=None)])))
    known = story.release.uncertain("weight")
    width = float((known.upper - known.lower).mean())
    assert re.search(rf"\b{width:.4g}\d* kg", plain(page))
    assert f"{100 * width / 400:.3g} %" in plain(page)
    moved = story.truth.copy()
    moved[0] = 399.0
    assert re.search(r"\b49\b", plain(loads_page(replace(story, truth=moved))))
    read = Page(page)
    assert len([attrs for tag, attrs in read.tags if tag == "rect" and attrs.get("class") == "bar over"]) == 1
    assert "▲ 1 " in read.text
    full = a_plan("Mean", [[0.1] * 10], 1)  # at its capacity, but for the last bits of a double
    at_capacity = replace(story, capacity=math.fsum([0.1] * 10) - 1e-12, plans=[full])
    for fits in (replace(story, plans=[story.plans[0]]), at_capacity):
        assert '"bar over"' not in loads_page(fits)
        assert "▲" not in loads_page(fits)


def test_basis_and_what_holds_are_told():
    for basis, sign in (("proved", "✓"), ("claimed", "!"), ("void", "✕")):
        assert f"{sign} {basis} " in plain(loads_page(a_story(basis=basis)))
    why = "the order of rows was drawn from a seed"
    text = plain(loads_page(a_story(basis="void", why=why, meaning={"sentences": [f"None: {why}."], "odds": []})))
    assert text.index("void") < text.index(why) < text.index("k = 5")
    holds = {"model": "dp", "protects": "package", "epsilon": 2, "neighbours": "replace-one"}
    text = plain(loads_page(a_story(basis="claimed", claim="epsilon 1", why="two are spent", holds=holds)))
    assert [fact for fact in ("k = 5", "epsilon = 2", "replace-one", "two are spent") if fact not in text] == []


def test_odds_of_differential_privacy():
    """A noisy release has no classes of its own and no k."""
    truth = np.linspace(130.0, 370.0, 30)
    guarantee = {"model": "dp", "protects": "package", "epsilon": 1, "neighbours": "replace-one"}
    data = pa.table({"row": np.arange(30), "weight": truth, "weight_lower": truth - 9, "weight_upper": truth + 9})
    for loss, facts in (
        (Loss(Fraction(1)), ("10 %", "23.2 %")),
        (Loss(Fraction(1), Fraction(1, 1000)), ("50 %", "73.2 %")),
    ):
        meaning = {"sentences": ["It holds."], "odds": odds(loss)}
        certificate = a_certificate(30, 5, 6, guarantee=guarantee, measures={"records": 30}, meaning=meaning)
        release = Release(certificate=certificate, data=data)
        text = plain(loads_page(replace(a_story(30), release=release, truth=truth)))
        assert [fact for fact in (*facts, "epsilon = 1", "replace-one") if fact not in text] == []
        assert not re.search(r"\bk (=|reached)", text)


def test_small_large_and_odd_sizes(within):
    for num_rows, k in ((2, 2), (5, 5), (20, 20), (250, 5)):
        page = loads_page(a_story(num_rows, k, destinations=3))
        check_closed(page)
        assert len(page.encode()) < 400_000, num_rows
    truth = np.full(20, 250.0)
    assert " 0 kg " in plain(loads_page(replace(a_story(20), truth=truth, release=a_release(truth, 20))))
    story = a_story(10_000, destinations=4)
    with within(3):
        page = loads_page(story)
    assert len(page.encode()) < 2_000_000
    assert re.search(rf"\b120 .*{len(story.plans[0].bins):,} ", plain(page))
    assert "40 dots" in plain(loads_page(a_story(400, 200)))
    for destinations, named in ((3, True), (9, False)):  # names of strata are drawn if they are few
        texts = {text for _, text in Page(loads_page(a_story(60, destinations=destinations))).texts}
        assert ({"D0", "D1", "D2"} <= texts, "D0" in texts) == (named, named)


def test_a_published_release_needs_no_identifiers(tmp_path):
    """From a real publication; identifiers of the owner's records are on no page."""
    data_file, policy = generate_packages(PackageSetting(size=40, destinations=2), tmp_path / "p.csv", seed=1)
    data = dn.load(data_file, policy)
    release, key = dn.publish(data, ledger=dn.Ledger(":memory:"))
    rows = {int(row): i for i, row in enumerate(data.source_rows)}
    truth = np.array([data.numbers("weight")[rows[row]] for row in key.table.column("source_row").to_pylist()])
    plan = a_plan("Upper bound", next_fit(truth, CAPACITY), 10)
    story = LoadsStory(title="P", release=release, quantity="weight", truth=truth, capacity=CAPACITY, plans=[plan])
    page = loads_page(story)
    Page(page)
    assert release.certificate.digest in page
    assert not re.search(r"P\d{7}", page)


@pytest.fixture(scope="module")
def rides(tmp_path_factory):
    """Generated rides, some of them suppressed, and their audits: private and external."""
    folder = tmp_path_factory.mktemp("rides")
    file, policy, _ = generate_rides(RideSetting(size=600, stations=60, lines=4), folder / "rides.csv", seed=1)
    policy.write_text(policy.read_text() + "\n[mechanism.limits]\nboard = 5\n")
    data = dn.load(file, policy)
    release, key = dn.publish(data, ledger=":memory:")
    return release, audit(release, data, key=key), audit(release, external=True)


def test_pictures_stand_on_both_pages_and_are_the_same(rides):
    _, private, external = rides
    assert (ride_pictures(private), len(ride_pictures(external))) == (ride_pictures(external), 6)
    for found in (private, external):
        text = audit_page(found)
        page = Page(text)
        assert all(picture.caption in page.text and unbroken(picture.svg) in text for picture in ride_pictures(found))
        assert "://" not in text
        assert 'style="' not in text  # the page's policy would not allow it
        shares = {item.name: item for item in found.findings if item.name.startswith("certain absence (")}
        worst = max(shares.values(), key=lambda item: item.value)
        tiles = re.findall(r"<dt>(certain absence.*?)</dt><dd>(.*?)<small>", text)
        assert tiles == [(worst.name, unbroken(worst.text(worst.value)))]


def test_bars_of_attributes_are_as_long_as_their_distortion(rides):
    release, _, external = rides
    picture = ride_pictures(external)[0]
    bars = [
        (kind, float(width)) for kind, width in re.findall(r'<rect class="(\w+)"[^>]* width="([\d.]+)%', picture.svg)
    ]
    lost = release.certificate.rows.suppressed.share
    assert lost > 0
    names = ["total distortion", *(f"distortion ({name})" for name in ("type", "board", "alight", "start"))]
    values = [external.finding(name).value for name in names]
    scale = 100 / (1.04 * max(values))
    assert [kind for kind, _ in bars] == ["bar", "range"] * 5
    for (_, inside), (_, outside), value in zip(bars[::2], bars[1::2], values, strict=True):
        assert outside == pytest.approx(lost * scale, abs=0.01)
        assert inside + outside == pytest.approx(value * scale, abs=0.02)
    assert len(picture.legend) == 2


def test_costs_of_classes_by_hand(rides):
    release, _, external = rides
    body = release.certificate.plain()
    weights = body["measures"]["importance"]["weights"]
    stations = dn.Graph(edges=release.attributes["board"].domain["edges"])
    types = {"Person": 1.0, "Not Adult": 0.5}
    costs, sizes = [], []
    for line in release.classes.to_pylist():
        wide = {
            "type": types.get(line["type"], 0.0),
            "board": line["board_diameter"] / stations.diameter,
            "alight": line["alight_diameter"] / stations.diameter,
            "start": (line["start_upper"] - line["start_lower"]) / (86400 - 18000),
        }
        costs.append(sum(weights[name] * wide[name] for name in wide))
        sizes.append(line["size"])
    told = external.finding("distortion by generalisation").details
    step, bars = told["costs"]["step"], told["costs"]["records"]
    assert sum(bars) == sum(sizes) == len(release)
    for place, number in enumerate(bars):
        low, high = step * place - 1e-9, step * (place + 1) - 1e-9
        assert number == sum(size for cost, size in zip(costs, sizes, strict=True) if low <= cost < high)
    assert told["costs"]["highest"] == pytest.approx(max(costs))
    cheaper = sum(size for cost, size in zip(costs, sizes, strict=True) if cost <= told["costs"]["median"] + 1e-9)
    assert cheaper >= len(release) / 2
    shown = [item["cost"] for item in told["classes"]]
    assert shown == sorted(shown)
    for item in told["classes"]:
        assert item["cost"] == pytest.approx(costs[item["told"]["class_id"]])


def test_a_map_marks_exactly_the_stations_of_its_class(rides):
    release, _, external = rides
    edges = release.attributes["board"].domain["edges"]
    lines = {line["class_id"]: line for line in release.classes.to_pylist()}
    for picture in ride_pictures(external)[2:]:
        line = lines[int(picture.title.split(",")[0].split()[1])]
        assert picture.svg.count('class="vertex"') == 60
        assert len(re.findall(r"M[\d.]+ [\d.]+L[\d.]+ [\d.]+", picture.svg)) == len(edges)
        for kind, name in (("first", "board"), ("second", "alight")):
            found = re.findall(rf'<circle class="{kind}"[^>]*><title>([^<]*): {name}</title>', picture.svg)
            assert found == line[name]
        facts = (f"{line['size']} ", f"{line['start_lower']:,.0f}", f"{line['start_upper']:,.0f}")
        assert all(fact in picture.caption for fact in facts)


def test_other_releases_have_no_such_pictures_or_no_map():
    release, _ = dn.publish(CASES[1].dataset(), ledger=":memory:")
    assert ride_pictures(audit(release, external=True)) == []
    table = pa.table({"x<b>": list(range(40)), "kind": ["p", "q"] * 20})
    attributes = {
        "x<b>": {"role": QUASI, "kind": "numeric", "domain": [0, 40]},
        "kind": {"role": QUASI, "kind": "category", "domain": ["p", "q"]},
    }
    policy = a_policy({"name": "utility-clusters", "k": 4}, attributes)
    release, _ = dn.publish(dn.Dataset.from_table(table, policy), ledger=":memory:")
    found = audit(release, external=True)
    assert len(ride_pictures(found)) == 2
    text = audit_page(found)
    Page(text)
    assert "x<b>" not in text


@pytest.mark.parametrize(
    "edges",
    [
        [("a", "b")],
        [("hub", f"s{number}") for number in range(12)],
        [(f"s{number}", f"s{(number + 1) % 15}") for number in range(15)],
        [("a", "b"), ("b", "a"), ("b", "c")],
        list(metro_edges()),
    ],
    ids=["edge", "star", "ring", "both ways", "metro"],
)
def test_a_map_keeps_vertices_apart_and_neighbours_near(edges):
    found = Network.of(edges)
    assert Network.of([list(edge) for edge in edges]).places == found.places
    names = {name for edge in edges for name in edge}
    assert set(found.places) == names
    places = np.array(list(found.places.values()))
    assert np.isfinite(places).all()
    assert (places >= -1e-12).all()
    assert places[:, 0].max() == pytest.approx(1)
    apart = np.linalg.norm(places[:, None] - places, axis=2)
    lengths = [math.dist(found.places[start], found.places[end]) for start, end in edges]
    assert apart[~np.eye(len(names), dtype=bool)].min() > 0.1 * np.mean(lengths)
    assert max(lengths) < 2.5 * np.mean(lengths)
