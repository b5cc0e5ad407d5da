# SPDX-License-Identifier: Apache-2.0
"""audit: findings that can be counted by hand, what may be handed out, files, the page, and bad input."""

from __future__ import annotations

import ast
import json
import math
import random
import stat
import tomllib
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from string import Formatter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError
from tests.builders import Repeated, a_policy
from tests.plans_help import plan_of

import dunnage as dn
from dunnage.auditing import findings
from dunnage.auditing.findings import TOPICS, Finding, wilson
from dunnage.auditing.run import AUDIT_FILE, PAGE_FILE, Audit, audit
from dunnage.errors import InputError, OutputError, ParameterError, ReleaseError
from dunnage.planning.plan import Linkage, Slots
from dunnage.showing.audit import audit_page, sign_off_page, write_audit
from dunnage.text import percent

STATISTICS = ("bounds", "mean", "multiset")
PARCEL = {"role": "identifier"}
WEIGHT = {"role": "quasi-identifier", "kind": "numeric", "domain": [0, 100], "resolution": 1, "unit": "kg"}


def load(columns: dict[str, Any], attributes: dict[str, Any] | None = None, **mechanism: Any) -> dn.Dataset:
    table = {"name": "partition", "k": 3, **mechanism}
    return dn.load(pa.table(columns), a_policy(table, attributes or {"weight": WEIGHT}, small="suppress"))


def parcels(num: int = 60, seed: int = 1, shift: int = 0, noise: Any = None, **mechanism: Any) -> tuple[Any, Any, Any]:
    draw = random.Random(seed)
    columns = {
        "parcel": [f"PRIVATE-{shift + i}" for i in range(num)],
        "weight": [draw.randint(0, 100) for _ in range(num)],
        "town": [draw.choice(["Ghent", "Delft"]) for _ in range(num)],
        "content": [draw.choice(["books", "tools", "cheese"]) for _ in range(num)],
    }
    roles = {"parcel": PARCEL, "weight": WEIGHT, "town": {"role": "public"}, "content": {"role": "sensitive"}}
    data = load(columns, roles, **mechanism)
    return data, *dn.publish(data, ledger=":memory:", noise=noise)


def test_findings_and_their_intervals_make_sense() -> None:
    """Over all outcomes of 40 trials the interval covers the share with about its confidence."""
    for share in (0.05, 0.3, 0.5, 0.9):
        chances = [math.comb(40, hits) * share**hits * (1 - share) ** (40 - hits) for hits in range(41)]
        ends = [wilson(hits, 40) for hits in range(41)]
        covered = sum(c for c, (low, high) in zip(chances, ends, strict=True) if low <= share <= high)
        assert 0.92 < covered < 0.99
    assert (wilson(0, 5)[0], wilson(5, 5)[1]) == (0, 1)
    good = {"baseline": 0.1, "unit": "share", "sentence": "x", "topic": "table", "private": True}
    assert Finding(name="x", value=0.5, interval=(0.4, 0.6), **good).text(0.5) == "50 %"
    assert Finding(name="x", value=5, interval=(5, 5), **{**good, "unit": "kg"}).text(5) == "5 kg"
    for value, interval in ((0.7, (0.4, 0.6)), (math.nan, (0.4, 0.6)), (0.5, (0.4, math.inf))):
        with pytest.raises(ValidationError):
            Finding(name="x", value=value, interval=interval, **good)
    assert percent(0.0004) == "0.04 %"


def test_every_finding_has_interval_baseline_and_sentence() -> None:
    other = parcels(k=4)
    for statistic in STATISTICS:
        data, release, key = parcels(statistic=statistic)
        found = audit(release, data, key=key, population=data, also=[(other[1], data, None)], tolerance=0.1)
        assert len({item.name for item in found.findings}) == len(found.findings)
        for item in found.findings:
            low, high = item.interval
            assert low <= item.value <= high
            assert math.isfinite(item.baseline)
            assert item.sentence.endswith(".")
            assert item.topic in TOPICS
            assert not item.is_share or 0 <= low <= high <= 1
        assert found.statistic == statistic
        assert str(found) == repr(found)
        assert "PRIVATE" not in repr(found) + found.summary() + json.dumps(found.to_dict())


@pytest.mark.parametrize("statistic", STATISTICS)
def test_linkage_of_disjoint_classes_is_that_of_class_sizes(statistic: str) -> None:
    """Within a town the classes of a partition are disjoint, so everything follows from counting classes."""
    data, release, key = parcels(statistic=statistic, alpha="0.2")
    found = audit(release, data, key=key)
    rows = release.data.to_pylist()
    sizes = Counter(row["class_id"] for row in rows)
    mean = sum(1 / sizes[row["class_id"]] for row in rows) / len(rows)
    assert found.finding("record linkage").value == pytest.approx(mean)
    assert found.finding("marketer risk").value == pytest.approx(mean)
    assert found.finding("record linkage, worst").value == 1 / min(sizes.values())
    assert found.finding("prosecutor risk").value == 1 / min(sizes.values())
    assert found.finding("record linkage").baseline == 1 / len(rows)
    best = {c: Counter(r["content"] for r in rows if r["class_id"] == c).most_common(1)[0][1] for c in sizes}
    linkage = found.finding("attribute linkage (content)")
    assert linkage.value == pytest.approx(sum(best.values()) / len(rows))
    most = Counter(row["content"] for row in rows).most_common(1)[0][1]
    assert linkage.baseline == pytest.approx(most / len(rows))
    alike = {c for c in sizes if len({r["content"] for r in rows if r["class_id"] == c}) == 1}
    assert found.finding("homogeneity (content)").value == pytest.approx(sum(sizes[c] for c in alike) / len(rows))
    points = sum(row["weight_lower"] == row["weight_upper"] for row in rows)
    assert found.finding("homogeneity (weight)").value == pytest.approx(points / len(rows))
    measures, distortion = release.certificate.rows, found.finding("total distortion")
    assert measures.num_suppressed > 0
    assert distortion.value == pytest.approx(measures.loss.total, rel=1e-12)
    assert distortion.details["attributes"] == {"weight": pytest.approx(measures.loss.total)}


def test_certain_absence_by_looking_at_every_value_or_at_some(monkeypatch: pytest.MonkeyPatch) -> None:
    for statistic in ("multiset", "bounds"):
        data, release, key = parcels(statistic=statistic, k=4)
        found = audit(release, data, key=key).finding("certain absence (weight)")
        rows = release.data.to_pylist()
        absent = 0.0
        for town in ("Ghent", "Delft"):
            own = [row for row in rows if row["town"] == town]
            classes = {row["class_id"]: (row["weight_lower"], row["weight_upper"]) for row in own}
            if statistic == "multiset":
                told = {m["weight"] for m in release.members.to_pylist() if m["class_id"] in classes}
            else:
                told = {v for v in range(101) if any(low <= v <= high for low, high in classes.values())}
            absent += len(own) / len(rows) * (101 - len(told)) / 101
        assert found.value == pytest.approx(absent)
        assert (found.interval, found.baseline) == ((found.value, found.value), 0)
    monkeypatch.setattr("dunnage.auditing.classes.MAX_PROBES", 150)
    part = audit(release, data, key=key).finding("certain absence (weight)")
    assert part.interval[0] < part.value < part.interval[1]
    assert part.interval[0] <= found.value <= part.interval[1]
    assert not part.details["every_value_tried"]


def test_values_finer_than_the_public_grid_are_looked_for_on_their_own_grid() -> None:
    """No whole number is released, which does not rule out 7 kg for someone who reads a scale to the kilogram."""
    weights = [number + 0.5 for number in range(60)]
    data = load({"weight": weights}, statistic="multiset")
    release, key = dn.publish(data, ledger=":memory:")
    found = audit(release, data, key=key).finding("certain absence (weight)")
    assert found.details["values"] == 1001
    assert found.value == pytest.approx(941 / 1001)


def test_remedies_are_parameters_that_the_release_has() -> None:
    """Rows in clusters were to be published with statistic = "bounds", which their mechanism does not take."""
    weights = [float(number) for number in range(40)]
    for mechanism, says in (
        ({"statistic": "multiset"}, 'statistic = "bounds"'),
        ({"statistic": "bounds"}, "Ask for a larger k."),
        ({"name": "utility-clusters"}, "Ask for a larger k."),
    ):
        data = load({"weight": weights}, **mechanism)
        release, key = dn.publish(data, ledger=":memory:")
        found = audit(release, data, key=key)
        assert says in found.finding("value linkage (weight)").remedy
        grid = found.finding("certain presence (value)").remedy
        assert ('bounds = "grid"' in grid) == ("name" not in mechanism)
    noisy = dn.load(pa.table({"weight": weights}), a_policy({"name": "noisy-values", "epsilon": 1}, {"weight": WEIGHT}))
    profile = {"name": "size-profile", "epsilon": 1, "risk": 0.05, "expected": 40}
    slots = dn.load(pa.table({"weight": weights}), a_policy(profile, {"weight": WEIGHT}))
    for data in (noisy, slots):
        release, key = dn.publish(data, ledger=":memory:")
        found = audit(release, data, plan=dn.pack(release, capacity=300, seconds=1), key=key)
        risks = [item for item in found.findings if item.remedy]
        assert not any("--spread" in item.remedy or "seal" in item.remedy or "trips" in item.remedy for item in risks)


def test_guessing_a_value_by_class_alone() -> None:
    """Domain 0 to 100, so that a guess must be within 1 kg. Classes 10, 11, 14 and 50, 50, 50, 53."""
    weights = [10, 11, 14, 50, 50, 50, 53]
    # bounds: middles 12 and 51.5, 11 alone; means 11.67 and 50.75: 11, and 50 three times; multiset: 10 or 11, and 50
    for statistic, hits in (("bounds", 1), ("mean", 4), ("multiset", 5)):
        data = load({"weight": weights}, statistic=statistic)
        release, key = dn.publish(data, ledger=":memory:")
        assert release.classes.column("size").to_pylist() == [3, 4]
        found = audit(release, data, key=key)
        linked = found.finding("value linkage (weight)")
        assert linked.details["by_class"] == pytest.approx(hits / 7)
        assert linked.baseline == pytest.approx(3 / 7)
        # Nobody does worse with a release than without.
        assert linked.value == pytest.approx(max(hits, 3) / 7)
        presence = found.finding("certain presence (value)").value
        if statistic == "multiset":
            assert found.finding("value linkage, exact (weight)").value == pytest.approx(4 / 7)
            assert presence == 1
        if statistic == "bounds":  # own bounds tell 10, 14, 50 (three times) and 53
            assert presence == pytest.approx(6 / 7)


def test_journalist_and_presence_with_a_population() -> None:
    """Released: 10, 11, 12 and 50, 51, 52. Beyond them 11, 12 and nobody near 50, so those are certainly there."""
    data = load({"weight": [10, 11, 12, 50, 51, 52]})
    everyone = load({"weight": [10, 11, 12, 50, 51, 52, 11, 12, 99]})
    release, key = dn.publish(data, ledger=":memory:")
    found = audit(release, data, key=key, population=everyone)
    risk = found.finding("journalist risk")
    assert risk.value == 1 / 3
    assert risk.details["mean"] == pytest.approx((3 * 1 / 5 + 3 * 1 / 3) / 6)
    assert risk.private
    presence = found.finding("presence, worst")
    assert (presence.value, presence.baseline) == (1.0, pytest.approx(6 / 9))
    assert presence.details["certain"] == pytest.approx(0.5)
    alone = audit(release, data, key=key).finding("journalist risk")
    assert alone.interval == (0.0, 1 / 3)
    with pytest.raises(ParameterError):
        audit(release, data, key=key, population=load({"weight": [10, 50]}))


def test_two_releases_of_the_same_records() -> None:
    """Alone 3 look alike. Sorted by weight one release cuts after 3, the other, of shifted weights, elsewhere."""
    roles = {"parcel": PARCEL, "weight": WEIGHT, "content": {"role": "sensitive"}}
    names, content = list("abcdef"), ["tools", "books", "books", "tools", "books", "tools"]
    first = load({"parcel": names, "weight": [1, 2, 3, 51, 52, 53], "content": content}, roles)
    second = load({"parcel": names, "weight": [1, 2, 51, 3, 52, 53], "content": content}, roles)
    one, other = (dn.publish(data, ledger=":memory:") for data in (first, second))
    found = audit(one.release, first, key=one.key, also=[(other.release, second, other.key)])
    # classes {a, b, c}, {d, e, f} and {a, b, d}, {c, e, f}: pairs {a, b}, {c}, {d}, {e, f}
    together = found.finding("correspondence")
    assert together.value == pytest.approx((2 * 1 / 2 + 1 + 1 + 2 * 1 / 2) / 6)
    assert together.baseline == pytest.approx(1 / 3)
    assert together.details["fewest_alike"] == 1
    assert found.finding("correspondence, worst").value == 1
    # both values occur in all four classes but {tools, books} has no third: nothing is known
    assert found.finding("correspondence, one value left (content)").value == 0
    width = found.finding("correspondence, width (weight)")
    assert (width.value, width.unit) == (pytest.approx((2 * 2 + 0 + 0 + 2 * 2) / 6), "kg")
    assert width.baseline == 2
    again = audit(one.release, first, key=one.key, also=[(other.release, second), (one.release, first, one.key)])
    assert again.finding("correspondence 2").value == pytest.approx(1 / 3)


def test_multisets_of_two_releases_leave_one_value_and_others_nothing() -> None:
    roles = {"parcel": PARCEL, "weight": WEIGHT}
    data = load({"parcel": list("abcd"), "weight": [1, 2, 3, 4]}, roles, k=2, statistic="multiset")
    one = dn.publish(data, ledger=":memory:")
    other = dn.Partition(k=4, statistic="multiset").release(data, ledger=dn.Ledger(":memory:"), noise=dn.Noise())
    found = audit(one.release, data, key=one.key, also=[(other.release, data, other.key)])
    assert found.finding("correspondence, one value left (weight)").value == 0
    assert found.finding("correspondence").value == 0.5
    (data, release, key), (rows, apart, its_key) = parcels(), parcels(shift=1000)
    assert len(audit(release, data, key=key, also=[(apart, rows, its_key)]).notes) == 1


def test_nodes_of_a_hierarchy_and_several_attributes() -> None:
    towns = {"Ghent": "BE", "Liege": "BE", "Delft": "NL", "Breda": "NL", "BE": "*", "NL": "*"}
    columns = {
        "weight": [1, 2, 3, 4, 61, 62, 63, 64],
        "town": ["Ghent", "Liege", "Ghent", "Ghent", "Delft", "Breda", "Delft", "Delft"],
        "content": ["a", "a", "a", "a", "a", "b", "b", "b"],
    }
    roles = {
        "weight": {**WEIGHT, "doubling": 50},
        "town": {"role": "quasi-identifier", "kind": "tree", "parents": towns},
        "content": {"role": "sensitive"},
    }
    data = load(columns, roles, name="full-domain", k=4)
    for statistic in STATISTICS:
        mechanism = dn.FullDomain(k=4, statistic=statistic)
        release, key = mechanism.release(data, ledger=dn.Ledger(":memory:"), noise=dn.Noise())
        assert sorted(release.classes.column("town").to_pylist()) == ["BE", "NL"]
        found = audit(release, data, key=key, tolerance=0.05)
        assert found.finding("record linkage").value == 0.25
        assert found.finding("attribute linkage (content)").value == pytest.approx((4 + 3) / 8)
        assert found.finding("homogeneity (content)").value == pytest.approx(0.5)
        assert found.finding("certain absence (town)").value == 0
        losses = release.certificate.rows.loss
        distortion = found.finding("total distortion")
        assert distortion.value == pytest.approx(losses.total)
        assert distortion.details["attributes"] == pytest.approx(losses.attributes)
        assert found.finding("distortion (town)").value == pytest.approx(1 / 3)
        assert "value linkage (town)" not in {item.name for item in found.findings}


def test_without_the_key_values_alone_tell_the_class_unless_classes_touch() -> None:
    """On a grid of 10 the classes 0, 1, 2, 10 and 10, 11, 12 both hold a weight of 10."""
    data, release, key = parcels(alpha="0.2")
    with_key, without = audit(release, data, key=key), audit(release, data)
    assert {f.name: f.value for f in with_key.findings} == {f.name: f.value for f in without.findings}
    assert without.notes == ()
    coarse = {**WEIGHT, "resolution": 10}
    data = load({"weight": [1, 2, 10, 11, 12, 13]}, {"weight": coarse}, bounds="grid")
    release, key = dn.publish(data, ledger=":memory:")
    assert release.classes.column("weight_upper").to_pylist() == [10, 20]
    found = audit(release, data)
    assert len(found.notes) == 1
    assert "value linkage (weight)" not in {item.name for item in found.findings}
    exactly = audit(release, data, key=key)
    # the weight of 10 may be in either class: 1/6; all others 1/3
    assert exactly.finding("record linkage").value == pytest.approx((5 / 3 + 1 / 6) / 6)


def test_other_data_are_refused() -> None:
    data, release, key = parcels()
    other = parcels(seed=9)
    for given in ((other[0], None), (data, other[2])):
        with pytest.raises(ReleaseError):
            audit(release, given[0], key=given[1])
    with pytest.raises(ReleaseError, match="'town'"):
        audit(release, load({"weight": [1, 2, 3]}))
    with pytest.raises(ParameterError, match="external"):
        audit(release)
    for tolerance in (0, 1, -1):
        with pytest.raises(ParameterError, match="tolerance"):
            audit(release, data, key=key, tolerance=tolerance)
    with pytest.raises(ParameterError):
        audit(release, data, key=key).finding("nothing")


def test_most_at_risk_are_named_by_source_row() -> None:
    data, release, key = parcels()
    found = audit(release, data, key=key)
    assert len(found.at_risk) == 10
    chances = [item.record_linkage for item in found.at_risk]
    assert chances == sorted(chances, reverse=True)
    assert chances[0] == found.finding("record linkage, worst").value
    sizes = Counter(release.data.column("class_id").to_pylist())
    class_of = dict(zip(*(key.table.column(n).to_pylist() for n in ("source_row", "class_id")), strict=True))
    for item in found.at_risk:
        assert item.rows == sizes[class_of[item.source_row]]


def test_an_external_audit_never_sees_the_data(tmp_path: Path) -> None:
    """Names, weights and figures that only the data have are in no file, however they are written."""
    data, release, key = parcels()
    inside, out = audit(release, data, key=key), audit(release, external=True)
    assert [f.to_dict() for f in out.findings] == [f.to_dict() for f in inside.findings if not f.private]
    assert (out.at_risk, out.notes) == ((), ())
    private = {"record linkage", "attribute linkage (content)", "value linkage (weight)", "certain presence (value)"}
    assert not private & {f.name for f in out.findings}
    assert audit(release, data, key=key, external=True).to_dict()["findings"] == out.to_dict()["findings"]
    write_audit(out, tmp_path / "one")
    text = "".join(path.read_text() for path in (tmp_path / "one").iterdir())
    assert "PRIVATE" not in text
    assert "source_row" not in text
    weights = [10.25, 11.5, 17.125, 50.0, 52.75, 61.625]
    data = load({"weight": weights}, {"weight": {**WEIGHT, "resolution": 10}}, bounds="grid")
    release, key = dn.publish(data, ledger=":memory:")
    inside, out = audit(release, data, key=key), audit(release, external=True).model_copy(update={"seconds": 0.0})
    write_audit(out, tmp_path / "out")
    text = "".join(path.read_text() for path in (tmp_path / "out").iterdir())
    known = {json.dumps(f.value) for f in out.findings} | {json.dumps(f.baseline) for f in out.findings}
    for item in inside.findings:
        if item.private and json.dumps(item.value) not in known:
            assert json.dumps(item.value) not in text
            assert item.name not in text
    assert not [weight for weight in weights if str(weight) in text and weight != 50.0]


def test_private_files_are_for_the_owner_alone(tmp_path: Path) -> None:
    data, release, key = parcels()
    found = audit(release, data, key=key)
    write_audit(found, tmp_path / "audit")
    assert stat.S_IMODE((tmp_path / "audit").stat().st_mode) == 0o700
    for name in (AUDIT_FILE, PAGE_FILE):
        assert stat.S_IMODE((tmp_path / "audit" / name).stat().st_mode) == 0o600
    content = json.loads((tmp_path / "audit" / AUDIT_FILE).read_text())
    assert content["format"] == 1
    assert {"name", "value", "interval", "baseline", "unit", "sentence"} <= set(content["findings"][0])
    again = Audit.read(tmp_path / "audit")
    assert again.to_dict() == {**found.to_dict(), "seconds": again.to_dict()["seconds"]}
    with pytest.raises(OutputError):
        write_audit(found, tmp_path / "audit")
    write_audit(found, tmp_path / "audit", force=True)
    for content in ("", "[]", '{"format": 2}', '{"format": 1, "kind": "audit", "findings": [1]}'):
        (tmp_path / AUDIT_FILE).write_text(content)
        for place in (tmp_path, tmp_path / "nowhere"):
            with pytest.raises(InputError):
                Audit.read(place)


class Page(HTMLParser):
    """Reads a page strictly: every tag closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.seen: Counter[str] = Counter()
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen[tag] += 1
        assert not {"src", "href", "style", "onload", "onclick"} & {name for name, _ in attrs}
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.seen[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_says_every_finding_and_names_cannot_break_it() -> None:
    data, release, key = parcels(statistic="multiset")
    found = audit(release, data, key=key, tolerance=0.05)
    page = audit_page(found)
    read = Page(page)
    assert read.seen["svg"] == len(found.findings) + found.num_leading
    assert read.seen["script"] == read.seen["link"] == read.seen["img"] == 0
    said = read.text.replace("\u00a0", " ")
    assert not [item.name for item in found.findings if item.sentence not in said or item.name not in said]
    assert "://" not in page
    odd = "<b>&\"'"
    data = load({odd: [1, 2, 3, 4]}, {odd: WEIGHT})
    release, key = dn.publish(data, ledger=":memory:")
    page = audit_page(audit(release, data, key=key))
    Page(page)
    assert "<b>&" not in page


def test_a_plan_is_scored_against_the_truth() -> None:
    """Weights 60, 60, 40, 40 in classes {40, 40} and {60, 60}: two trucks of 100 would do, this plan takes three."""
    data = load({"weight": [60, 60, 40, 40]}, k=2)
    release, key = dn.publish(data, ledger=":memory:")
    light = [row["row"] for row in release.data.to_pylist() if row["weight_lower"] == 40]
    heavy = [row for row in range(4) if row not in light]
    plan = plan_of(release, [0 if row in light else 1 + heavy.index(row) for row in range(4)], capacity=100)
    found = audit(release, data, plan, key=key)
    value = {item.name: item.value for item in found.findings}
    assert value["objective ratio"] == 1.5
    assert found.finding("objective ratio").details["proven"]
    assert value["plan feasible"] == value["bins feasible"] == value["joint feasibility"] == 1
    assert (value["truck linkage"], value["truck linkage, worst"]) == (0.75, 1.0)  # (2 + 2 * 1/2) / 4
    assert found.finding("truck linkage").baseline == 0.5
    crowded = audit(release, data, plan_of(release, [0] * 4, capacity=100), key=key)
    assert crowded.finding("plan feasible").value == crowded.finding("bins feasible").value == 0
    over = audit(release, data, plan_of(release, [0 if row in light else 1 for row in range(4)], capacity=100), key=key)
    for name in ("trucks", "objective ratio"):  # it overloads one of two, and what it costs is not said of it
        assert over.finding(name).sentence != found.finding(name).sentence
    assert "50 %" in over.finding("trucks").sentence
    assert "50 %" in sign_off_page(over).replace("\u00a0", " ")


def test_what_may_be_told_of_a_plan() -> None:
    data, release, _ = parcels(num=24, seed=3, statistic="multiset")
    plan = plan_of(release, [row // 2 for row in range(24)], capacity=300)
    out = {item.name for item in audit(release, plan=plan, external=True).findings}
    assert {"truck linkage", "truck linkage, worst"} <= out
    assert not {"objective ratio", "plan feasible", "bins feasible", "joint feasibility"} & out
    without = audit(release, data, plan)
    assert any("key" in note for note in without.notes)
    assert "truck linkage" in {item.name for item in without.findings}
    with pytest.raises(ReleaseError):
        audit(parcels(num=24, seed=4)[1], plan=plan, external=True)
    with pytest.raises(ParameterError, match="nowhere"):
        audit(release, data, "nowhere")
    with pytest.raises(ParameterError):
        audit(release, plan=replace(plan, private=True), external=True)


def test_linkage_is_computed_whatever_a_plan_states(monkeypatch: pytest.MonkeyPatch) -> None:
    _, release, _ = parcels(num=24, seed=3, statistic="multiset", noise=Repeated(seed=1))
    bins = [row // 2 for row in range(24)]
    told = Linkage(mean=0.01, worst=0.01, kind="exact")  # not the true one
    slots = Slots.of_assignment(np.array(bins), release.data.column("class_id").to_numpy())
    sealed = replace(plan_of(release, bins, capacity=150), bin_of_row=None, slots=slots, truck_linkage=told)
    rows = replace(plan_of(release, [0] * 24), truck_linkage=told)
    assert audit(release, plan=rows, external=True).finding("truck linkage").value == 1.0
    linkage = audit(release, plan=sealed, external=True).finding("truck linkage")
    of_town = Counter(zip(release.data.column("town").to_pylist(), bins, strict=True))
    fullest = sum(max(num for (name, _), num in of_town.items() if name == town) for town in ("Ghent", "Delft")) / 24
    assert linkage.value >= linkage.baseline == pytest.approx(fullest)
    short = replace(sealed, slots=Slots(slots.bin, slots.class_id, slots.count * 2))
    with pytest.raises(ParameterError):
        audit(release, plan=short, external=True)
    monkeypatch.setattr("dunnage.planning.linkage.count_fills", lambda *given, **more: None)
    linkage = audit(release, plan=sealed, external=True).finding("truck linkage")
    assert linkage.interval == (pytest.approx(linkage.baseline), 1.0)


def test_without_a_release_the_trucks_of_a_depot_are_known_by_the_plan() -> None:
    """Two trucks for each of two towns: who knows the town and the plan guesses among two trucks, not four."""
    columns = {"weight": [10, 11, 12, 13, 20, 21, 22, 23], "town": ["A"] * 4 + ["B"] * 4}
    data = load(columns, {"weight": WEIGHT, "town": {"role": "public"}}, k=4)
    release, _ = dn.publish(data, ledger=":memory:")
    seen = Counter[str]()
    bins = []
    for town in release.data.column("town").to_pylist():
        first = {"A": 0, "B": 2}[town]
        bins.append(first + (seen[town] >= {"A": 2, "B": 1}[town]))
        seen[town] += 1
    found = audit(release, plan=plan_of(release, bins), external=True)
    assert found.finding("truck linkage").baseline == pytest.approx((2 + 3) / 8)
    assert found.finding("truck linkage, worst").baseline == pytest.approx(3 / 4)
    assert "town" in found.finding("truck linkage").sentence
    assert found.finding("truck linkage").value == pytest.approx((2 + 3) / 8)  # one class a town tells no more


def test_suppressed_packages_need_trucks_on_both_sides() -> None:
    """58 and 9 are alone in their tenths, so suppressed. 41 + 58, 42 + 42 + 9 and 41 make three trucks of 100."""
    mechanism = {"name": "full-domain", "k": 2, "max_suppressed": 0.5, "alpha": 0.01}
    data = load({"weight": [41, 41, 42, 42, 58, 9]}, {"weight": {**WEIGHT, "doubling": 10}}, **mechanism)
    release, key = dn.publish(data, ledger=":memory:")
    assert len(release) == 4
    plan = plan_of(release, [0, 1, 2, 3], capacity=100)
    found = audit(release, data, plan, key=key)
    trucks = found.finding("trucks")
    assert (trucks.value, trucks.baseline, trucks.interval) == (5, 3, (5, 5))
    figures = {"proven": True, "bound": 3, "in_plan": 4, "outside": 1, "packages": 6, "packages_outside": 2}
    assert trucks.details == figures
    assert found.finding("objective ratio").value == pytest.approx(5 / 3)


def test_homogeneous_values_are_compared_with_values_dealt_at_random() -> None:
    """Weights 5, 5, 7, 7 in two classes of two: by chance the second of a class is its twin in one case of three."""
    for statistic in ("bounds", "multiset"):
        data = load({"weight": [5, 5, 7, 7]}, k=2, statistic=statistic)
        release, _ = dn.publish(data, ledger=":memory:")
        found = audit(release, external=True).finding("homogeneity (weight)")
        assert (found.value, found.baseline) == (1, pytest.approx(1 / 3))
        assert "33.3 %" in found.sentence
    data = load({"weight": [5, 5, 7, 8]}, k=2)
    part = audit(dn.publish(data, ledger=":memory:")[0], external=True).finding("homogeneity (weight)")
    assert part.baseline == pytest.approx(2 * 2 / 4 / 6)  # as far as values are told


def test_records_at_risk_of_every_kind_are_listed() -> None:
    data, release, key = parcels()
    content = audit(release, data, key=key).to_dict()
    kinds: list[dict[str, Any]] = [
        {"record_linkage": 0.5, "rows": 2, "attribute_linkage": {"content": 0.25}},
        {"suspicion": 0.75, "alike": 1, "released": 3},
        {"guess": 0.75, "trips": 4, "types": 2},
        {"stays": 0.9, "found_if_it_stays": 0.99},
        {"record_linkage": 0.5},
    ]
    for kind in kinds:
        listed = {"at_risk": [{"source_row": 123_456_789, **kind}], "at_risk_says": "said"}
        read = Page(audit_page(Audit.model_validate({**content, **listed})))
        assert "said" in read.text
        assert "123,456,789" in read.text


def test_every_sentence_has_its_use_and_every_use_its_sentence() -> None:
    """Names in the table are those that the code asks for, and what a template says of a note is handed to it."""
    source = Path(findings.__file__).parent
    tables = tomllib.loads((source / "findings.toml").read_text())
    entries, phrases = tables["findings"], tables["words"]
    trees = [ast.parse(path.read_text()) for path in sorted(source.glob("*.py"))]
    texts = {node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    composed = ("RMSE {where}", "MAE {where}", "RMSE of shares", "MAE of shares", "candidate rows, ", "fits: ")
    composed = (*composed, "staying on a ", "estimates: ", "counts: ", "noise: ", "slots: ")
    assert [key for key in (*entries, *phrases) if key not in texts and not key.startswith(composed)] == []
    for call in (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)):
        name = getattr(call.func, "id", "")
        keys = [node.value for node in ast.walk(call.args[0]) if isinstance(node, ast.Constant)] if call.args else []
        for key in keys if name in ("figure", "words") else ():
            if name == "figure" and isinstance(call.args[0], ast.Constant | ast.IfExp):
                assert key in entries or key == "trucks"
            if name == "words" and isinstance(call.args[0], ast.Constant):
                fields = {field for _, field, _, _ in Formatter().parse(phrases[key]) if field}
                assert fields == {word.arg for word in call.keywords}, key
    for _, topic, seen_by, *_ in entries.values():
        assert topic in (*TOPICS, "{topic}")
        assert seen_by in ("anyone", "owner")
