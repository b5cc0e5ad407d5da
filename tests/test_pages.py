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
from tests.pages_help import Page, check_closed, plain

import dunnage as dn
from dunnage.auditing.findings import Finding
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

CAPACITY = 500.0


def a_body(num_rows: int, k: int, num_classes: int, **changes: object) -> dict[str, object]:
    return {
        "format": 1,
        "kind": "rows",
        "dataset": "parcels",
        "guarantee": {"model": "k-anonymity", "protects": "package", "k": k},
        "basis": "proved",
        "mechanism": {"name": "partition", "k": k},
        "assumptions": {"public domain": "chosen without looking", "released once": "no other release"},
        "in_clear": ["size of each class"],
        "numerics": "exact",
        "attributes": [
            {"name": "destination", "role": "public"},
            {
                "name": "weight",
                "role": "quasi-identifier",
                "domain": {"kind": "numeric", "lower": 0, "upper": 400, "unit": "kg"},
            },
        ],
        "measures": {
            "records": num_rows,
            "k_asked": k,
            "k_reached": k,
            "classes": num_classes,
            "class_size": {"smallest": k, "mean": num_rows / num_classes, "largest": k},
            "suppressed": {"count": 0, "share": 0.0},
            "risks": {
                "prosecutor_highest": 1 / k,
                "prosecutor_mean": 1 / k,
                "marketer": 1 / k,
                "journalist": "unknown",
            },
            "loss": {"metric": "range", "sum": 1.0, "total": 0.125, "attributes": {"weight": 0.125}},
        },
        "meaning": {
            "sentences": ["A guess is right with at most 20 %."],
            "odds": [{"attack": "name the row", "right_at_most": 0.2}],
        },
        "spend": {"id": "0" * 32, "at": "2026-11-15T10:00:00Z"},
        "composition": {"rule": "does not compose"},
        "software": {"dunnage": "9.8.7"},
        "time": "2026-11-15T10:00:00Z",
        "digests_say": "Digests detect accidents.",
        "files": {},
        **changes,
    }


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
    return Release(
        certificate=Certificate.model_validate(a_body(len(truth), k, num_classes, **changes)), data=pa.table(columns)
    )


def next_fit(weights: np.ndarray, capacity: float) -> list[list[float]]:
    bins: list[list[float]] = [[]]
    for weight in np.sort(weights)[::-1]:
        if sum(bins[-1]) + weight > capacity and bins[-1]:
            bins.append([])
        bins[-1].append(float(weight))
    return bins


def a_plan(title: str, bins: list[list[float]], optimum: int, **changes: object) -> PlanView:
    fits = [sum(parts) <= CAPACITY for parts in bins]
    known = {
        "title": title,
        "bins": bins,
        "bins_repaired": None,
        "objective": len(bins),
        "bound": len(bins) - 1,
        "ratio": len(bins) / optimum,
        "bins_feasible": sum(fits) / len(fits),
        "plan_feasible": all(fits),
        "linkage_mean": 0.2468,
        "linkage_worst": 0.5,
        "linkage_kind": "exact",
        "seconds": 1.5,
        "repair": "",
    }
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
    return LoadsStory(
        title="Parcels",
        release=a_release(truth, k, destinations, **changes),
        quantity="weight",
        truth=truth,
        capacity=CAPACITY,
        plans=plans,
    )


@pytest.fixture(scope="module")
def story() -> LoadsStory:
    return a_story()


@pytest.fixture(scope="module")
def page(story) -> str:
    return loads_page(story)


def test_pictures_by_themselves_are_those_of_the_page():
    story = a_story()
    text, (intervals, loads) = loads_page(story), loads_pictures(story)
    assert intervals.svg in text
    assert list(loads) == ["True weights", "Mean", "Mean, after repair", "Upper bound"]
    assert all(card.svg in text for card in loads.values())


def test_page_is_well_formed_and_complete(page):
    read = check_closed(page)
    assert page.startswith("<!DOCTYPE html>")
    assert len([tag for tag, _ in read.tags if tag == "section"]) == 6
    for words in ("Owner's view: shows true weights. Do not hand out.", "9.8.7", "2026-11-15T10:00:00Z"):
        assert words in read.text
    assert sum(names.startswith("chart") for names in read.having("class")) == 6
    assert set(re.findall(r"url\(([^)]*)\)", page)) == {"#hatch"}


EVIL = "\"'><script>alert(1)</script>&amp;<img src=x onerror=y>"


def test_every_text_is_escaped():
    plain_story = a_story()
    body = plain_story.release.certificate.plain()
    changed = {
        "dataset": EVIL,
        "in_clear": [EVIL],
        "assumptions": {EVIL: EVIL},
        "basis": "claimed",
        "claim": EVIL,
        "why": EVIL,
        "warnings": [EVIL],
        "time": EVIL,
        "software": {"dunnage": EVIL},
        "digests_say": EVIL,
        "guarantee": {"model": "k-anonymity", "protects": EVIL, "k": 5},
        "meaning": {"sentences": [EVIL], "odds": [{"attack": EVIL, "right_at_most": 0.2}]},
        "attributes": [
            {"name": "destination", "role": "public"},
            {
                "name": "weight",
                "role": "quasi-identifier",
                "domain": {"kind": "numeric", "lower": 0, "upper": 400, "unit": EVIL},
            },
        ],
    }
    data = plain_story.release.data
    places = [EVIL + str(i % 3) for i in data.column("class_id").to_pylist()]
    data = data.set_column(2, "destination", pa.array(places))
    release = Release(certificate=Certificate.model_validate({**body, **changed}), data=data)
    plans = [replace(plan, title=EVIL, repair=EVIL, linkage_kind=EVIL) for plan in plain_story.plans]
    page = loads_page(replace(plain_story, title=EVIL, release=release, plans=plans))
    read = Page(page)
    assert {"script", "img"}.isdisjoint(tag for tag, _ in read.tags)
    assert not read.having("onerror")
    assert read.text.count("<script>") > 15
    assert "<script" not in page
    assert "&amp;amp;" in page


def test_table_holds_the_figures_of_the_story(story, page):
    for plan, row in zip(story.plans, Page(page).rows, strict=True):
        assert row["Plan"] == plan.title
        assert int(row["Trucks"]) == plan.objective
        assert int(row["Bound"]) == plan.bound
        assert float(row["Ratio"]) == pytest.approx(plan.ratio, abs=5e-4)
        assert float(row["Bins feasible"].rstrip(" %")) == pytest.approx(100 * plan.bins_feasible, rel=5e-3)
        assert row["Plan feasible"] == ("yes" if plan.plan_feasible else "no")
        assert float(row["Seconds"]) == plan.seconds
        assert row["After repair"] == ("–" if plan.bins_repaired is None else str(len(plan.bins_repaired)))  # noqa: RUF001
    assert [row["Truck linkage, mean"] for row in Page(page).rows] == ["–", "24.7 %", "24.7 %"]  # noqa: RUF001
    assert [row["Truck linkage, worst"] for row in Page(page).rows] == ["–", "50 %", "50 %"]  # noqa: RUF001


def test_findings_agree_with_the_plans(story, page):
    text = plain(page)
    true, mean, upper = story.plans
    optimum = true.objective
    more = f"{100 * (upper.ratio - 1):.2g} % more than the true optimum of {optimum}"
    fewer = f"{100 * (1 - mean.ratio):.2g} % fewer than the true optimum of {optimum}"
    excess = max(math.fsum(parts) for parts in mean.bins) - CAPACITY
    assert f"True weights: {optimum} trucks, as many as the true optimum of {optimum}; none overflows." in text
    assert f"Upper bound: {upper.objective} trucks, {more}; none overflows." in text
    assert (
        f"Mean: {mean.objective} trucks, {fewer}; 1 of {mean.objective} overflows, the worst by {excess:g} kg" in text
    )
    assert f"After repair {optimum} trucks, none overflows." in text
    assert "Mean: Moved 1 package." in text


def test_key_figures(story, page):
    text = plain(page)
    assert "packages 50 released k reached 5 5 asked, proved classes 10 mean size 5" in text
    optimum = story.plans[0].objective
    assert f"trucks, no privacy {optimum} true optimum trucks, private {optimum} Mean, after repair" in text
    assert "cost of privacy 0 no more trucks" in text


def test_cost_of_privacy_is_that_of_the_best_plan_that_fits(story):
    true, mean, upper = story.plans
    text = plain(loads_page(replace(story, plans=[true, replace(mean, bins_repaired=None, repair=""), upper])))
    more = upper.objective - true.objective
    percent = f"{100 * more / true.objective:.2g}"
    assert f"trucks, private {upper.objective} Upper bound cost of privacy +{more} {percent} % more" in text
    assert "Mean: It overflows and was not repaired." in text


def test_without_a_plan_that_fits_no_cost_is_stated(story):
    text = plain(loads_page(replace(story, plans=[replace(story.plans[1], bins_repaired=None)])))
    assert "none fit every plan overflows" in text
    assert "cost of privacy" not in text


def test_caption_of_ranges_agrees_with_the_release(story, page):
    known = story.release.uncertain("weight")
    width = float((known.upper - known.lower).mean())
    (said, share) = re.search(r"is ([\d.]+) kg wide on average, ([\d.]+) % of the public", plain(page)).groups()
    assert float(said) == pytest.approx(width, rel=1e-3)
    assert float(share) == pytest.approx(100 * width / 400, rel=1e-2)
    assert "all of the 50 true weights lie within" in plain(page)
    moved = story.truth.copy()
    moved[0] = 399.0
    assert "49 of the 50 true weights lie within" in plain(loads_page(replace(story, truth=moved)))


def test_overloaded_trucks_are_marked_by_pattern_and_label(story, page):
    read = Page(page)
    assert len([attrs for tag, attrs in read.tags if tag == "rect" and attrs.get("class") == "bar over"]) == 1
    assert "▲ 1 overloaded" in read.text
    fits = loads_page(replace(story, plans=[story.plans[0]]))
    assert '"bar over"' not in fits
    assert "No plan needed a repair" in plain(fits)


def test_a_true_load_at_capacity_is_no_overload():
    story = a_story()
    parts = [0.1] * 10
    full = a_plan("Mean", [parts], 1)
    page = loads_page(replace(story, capacity=math.fsum(parts) - 1e-12, plans=[full]))
    assert "none overflows" in plain(page)


def test_basis_is_a_word_with_its_meaning():
    for basis, says in (
        ("proved", "✓ proved The stated guarantee follows from the code"),
        ("claimed", "! claimed The guarantee is stated as in the paper"),
        ("void", "✕ void This release is not private. Nothing is promised."),
    ):
        assert says in plain(loads_page(a_story(basis=basis)))


def test_void_certificate_is_told_at_the_top():
    why = "the order of rows was drawn from a seed that others may know"
    meaning = {"sentences": [f"Nothing is promised: {why}."], "odds": []}
    text = plain(loads_page(a_story(basis="void", why=why, meaning=meaning)))
    head = text[: text.index("What the planner saw")]
    assert "but the certificate is void: nothing is promised." in head
    assert f"Why: {why}." in head
    assert "looks like at least" not in head
    assert "Stated, but void: k-anonymity with k = 5, for one package." in text
    assert "No odds are stated" in text


def test_claimed_certificate_says_what_holds():
    holds = {"model": "dp", "protects": "package", "epsilon": 2, "neighbours": "replace-one"}
    text = plain(loads_page(a_story(basis="claimed", claim="epsilon 1", why="two are spent", holds=holds)))
    assert "Claimed: k-anonymity with k = 5, for one package." in text
    assert "What holds: differential privacy with epsilon = 2, for one package (replace-one neighbours)." in text
    assert "Why: two are spent." in text


@pytest.mark.parametrize(
    ("loss", "says"),
    [
        (Loss(Fraction(1)), "a suspicion of 10 % becomes 23.2 %"),
        (Loss(Fraction(1), Fraction(1, 1000)), "with a suspicion of 50 %, the best guess is right 73.14 %"),
    ],
)
def test_odds_of_differential_privacy(loss, says):
    """A noisy release has no classes of its own and no k."""
    truth = np.linspace(130.0, 370.0, 30)
    guarantee = {"model": "dp", "protects": "package", "epsilon": 1, "neighbours": "replace-one"}
    meaning = {"sentences": ["It holds."], "odds": odds(loss)}
    body = a_body(30, 5, 6, guarantee=guarantee, measures={"records": 30}, meaning=meaning)
    data = pa.table({"row": np.arange(30), "weight": truth, "weight_lower": truth - 9, "weight_upper": truth + 9})
    release = Release(certificate=Certificate.model_validate(body), data=data)
    text = plain(loads_page(replace(a_story(30), release=release, truth=truth)))
    assert says in text
    assert "with differential privacy with epsilon = 1, for one package (replace-one neighbours)." in text
    assert "How many look alike" not in text


def test_small_usual_and_odd_sizes(story):
    for num_rows, k in ((2, 2), (5, 5), (20, 5), (20, 20), (250, 5)):
        page = loads_page(a_story(num_rows, k, destinations=3))
        check_closed(page)
        assert len(page.encode()) < 400_000
    one = loads_page(replace(story, plans=[a_plan("Upper bound", [[100.0, 150.0]], 1)]))
    assert "Upper bound: 1 truck, as many as the true optimum of 1; none overflows." in plain(one)
    truth = np.full(20, 250.0)
    equal = loads_page(replace(a_story(20), truth=truth, release=a_release(truth, 20)))
    assert "is 0 kg wide on average" in plain(equal)


def test_ten_thousand_rows_stay_small_and_quick(within):
    story = a_story(10_000, destinations=4)
    with within(3):
        page = loads_page(story)
    assert len(page.encode()) < 2_000_000
    Page(page)
    text = plain(page)
    assert "neighbouring classes from the middle of D" in text
    assert f"Drawn: the 120 fullest of {len(story.plans[0].bins):,} trucks." in text


def test_large_classes_are_thinned():
    text = plain(loads_page(a_story(400, 200)))
    assert "At most 40 dots a class." in text


def test_strata_are_named_if_few():
    assert {"D0", "D1", "D2"} <= {text for _, text in Page(loads_page(a_story(60, destinations=3))).texts}
    assert "D0" not in {text for _, text in Page(loads_page(a_story(60, destinations=9))).texts}


def test_nothing_private_is_printed(story):
    shown = repr(story) + repr(story.plans)
    assert not any(f"{value:g}" in shown for value in story.truth)


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
    assert "all of the 40 true weights lie within" in plain(page)
    assert release.certificate.digest in page
    assert not re.search(r"P\d{7}", page)


# Pictures of clustered rides


@pytest.fixture(scope="module")
def rides(tmp_path_factory):
    """Generated rides, some of them suppressed, and their audits: private and external."""
    folder = tmp_path_factory.mktemp("rides")
    file, policy, _ = generate_rides(RideSetting(size=600, stations=60, lines=4), folder / "rides.csv", seed=1)
    policy.write_text(policy.read_text() + "\n[mechanism.limits]\nboard = 5\n")
    data = dn.load(file, policy)
    release, key = dn.publish(data, ledger=":memory:")
    return release, audit(release, data, key=key), audit(release, external=True)


def test_pictures_are_the_same_for_who_has_the_release_alone(rides):
    _, private, external = rides
    assert ride_pictures(private) == ride_pictures(external)
    assert [one.title.split(",")[0].split()[0] for one in ride_pictures(external)] == [
        "Distortion",
        "What",
        *["Class"] * 4,
    ]


def test_pictures_stand_on_both_pages(rides):
    _, private, external = rides
    for found in (private, external):
        text = audit_page(found)
        page = Page(text)
        for picture in ride_pictures(found):
            assert picture.caption in page.text
            assert picture.svg in text
        assert "://" not in text
        assert 'style="' not in text  # the page's policy would not allow it


def test_the_lead_says_what_clusters_tell_and_what_baselines_are(rides):
    _, private, external = rides
    for found in (private, external):
        text = Page(audit_page(found)).text
        assert "the lowest common node, or the set of labels" in text
        assert "the bounds of each class" not in text
        assert ("who has that table without names" in text) == (not found.external)


def test_the_worst_attribute_is_shown_first(rides):
    _, private, external = rides
    for found in (private, external):
        shares = {item.name: item for item in found.findings if item.name.startswith("certain absence (")}
        worst = max(shares.values(), key=lambda item: item.value)
        assert worst is not next(iter(shares.values()))  # the first would be no proof
        tiles = re.findall(r"<dt>(certain absence.*?)</dt><dd>(.*?)<small>", audit_page(found))
        assert tiles == [(worst.name, worst.text(worst.value))]


def test_one_is_not_plural():
    more = {"unit": "persons", "sentence": "x", "topic": "records", "private": True}
    one = Finding(name="persons", value=1.0, interval=(1.0, 1.0), baseline=2.0, **more)
    assert (one.text(1), one.text(2)) == ("1 person", "2 persons")
    assert one.model_copy(update={"unit": "ms"}).text(1) == "1 ms"


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
    assert [words for _, words in picture.legend] == ["by generalisation", "by suppression"]


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
        assert f"{line['size']} rides look alike" in picture.caption
        assert f"start {line['start_lower']:,.0f} to {line['start_upper']:,.0f} s" in picture.caption


def test_other_releases_have_no_such_pictures(tmp_path):
    generate_packages(PackageSetting(size=50), tmp_path / "parcels.csv", seed=1)
    release, _ = dn.publish(dn.load(tmp_path / "parcels.csv", tmp_path / "parcels.toml"), ledger=":memory:")
    assert ride_pictures(audit(release, external=True)) == []


def test_clusters_without_a_network_have_no_map(tmp_path):
    table = pa.table({"x<b>": list(range(40)), "kind": ["p", "q"] * 20})
    attributes = {
        "x<b>": {"role": "quasi-identifier", "kind": "numeric", "domain": [0, 40]},
        "kind": {"role": "quasi-identifier", "kind": "category", "domain": ["p", "q"]},
    }
    mechanism = {"name": "utility-clusters", "k": 4}
    policy = dn.Policy.from_dict({"dataset": "d", "protects": "trip", "attributes": attributes, "mechanism": mechanism})
    release, _ = dn.publish(dn.Dataset.from_table(table, policy), ledger=":memory:")
    found = audit(release, external=True)
    assert [one.title for one in ride_pictures(found)] == ["Distortion by attribute", "What classes cost"]
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
