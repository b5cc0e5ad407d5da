# SPDX-License-Identifier: Apache-2.0
"""The sign-off, plans of shuttles in audits, known names of risks, and who is most at risk in every kind of release."""

from __future__ import annotations

import json
import math
import stat
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest
from tests.commands import fine, run
from tests.test_audit import WEIGHT, Page, load, parcels, plan_of
from tests.test_audit_counts import CONSTRAINED, NOISY, policy, published, rows
from tests.test_audit_noisy import load as noisy_load
from tests.test_audit_noisy import publish as noisy_publish
from tests.test_fleet import tiny_city
from tests.test_settle_fleets import WAIT, policy_of, trip_table
from tests.test_settle_fleets import publish as publish_trips

import dunnage as dn
from dunnage.auditing.carriers import EstimatesTruth, EstimatesView, Fleet, FleetTruth, at_risk
from dunnage.auditing.counts import CountsView, WholeLaw, noisy_answer, rider_guess
from dunnage.auditing.findings import mean_interval
from dunnage.auditing.plans import spread_interval
from dunnage.auditing.run import AUDIT_FILE, PAGE_FILE, SIGNOFF_FILE, Audit, approval, audit
from dunnage.errors import InputError, ParameterError, ReleaseError
from dunnage.mechanisms.noisy import NoisyClusters, NoisyValues
from dunnage.planning.plan import FleetPlan
from dunnage.settle.fleets import apply_fleet
from dunnage.showing.audit import audit_page, sign_off_page, write_audit
from dunnage.tables.dataset import Dataset
from dunnage.tables.gtfs import load_city


def said(page: str) -> str:
    """What a page says, without its style."""
    return Page(page).text.replace("\u00a0", " ").partition("@media print")[2].rpartition("}")[2]


def check_findings(found: Audit) -> None:
    """Every finding is finite, in its interval, and says what it means; nothing private is handed out."""
    assert found.findings
    for item in found.findings:
        low, high = item.interval
        assert low <= item.value <= high
        assert all(map(math.isfinite, (low, high, item.baseline)))
        assert item.sentence.endswith(".")
        assert not (found.external and item.private)


def test_a_sign_off_says_policy_odds_risks_cost_terms_and_who() -> None:
    data, release, key = parcels(statistic="multiset")
    plan = plan_of(release, list(range(len(release))))
    found = audit(release, data, plan, key=key, approved_by="Ada <b>Example</b>, officer")
    page = sign_off_page(found)
    text = said(page)
    facts = [release.certificate.digest, data.policy.digest(), "k = 3", "proved", "33.4 %", "singling out", "inference"]
    facts += [*release.certificate.in_clear, *release.certificate.assumptions, found.approved.time[:10]]
    facts += [item.sentence for item in (*found.risks[: found.num_leading], found.finding("trucks"))]
    assert [fact for fact in (*facts, "Ada <b>Example</b>", "officer") if fact not in text] == []
    assert [word for word in ("<b>Example", "://", "PRIVATE") if word in page] == []
    assert "Content-Security-Policy" in page
    assert page == sign_off_page(found.model_copy(update={"seconds": 9.0}))  # nothing but what was found is in it
    blank = sign_off_page(found.model_copy(update={"approved": None}))
    assert blank.count("<dd></dd>") == 4
    # One to hand out has no private figure, even if somebody marks a private audit as external.
    out = audit(release, external=True, approved_by="Ada Example")
    for handed_out in (out, found.model_copy(update={"external": True})):
        text = said(sign_off_page(handed_out))
        assert [item.name for item in found.findings if item.private and item.sentence in text] == []


def test_a_sign_off_is_cut_to_a_page_and_has_no_odds_without_a_bound() -> None:
    data, release, key = parcels()
    found = audit(release, data, key=key)
    long = {f"assumption {number}": "word " * 60 for number in range(30)}
    lists = {"assumptions": long, "in_clear": ("x " * 100,) * 9, "warnings": ("y " * 200,) * 9}
    stated = found.statement.model_copy(update=lists)
    text = said(sign_off_page(found.model_copy(update={"statement": stated, "dataset": "d" * 300})))
    assert " 8 more" in text
    assert len(text) < 6_000
    assert "assumption 3" in text
    data = load({"weight": list(range(40))}, {"weight": WEIGHT})
    release, key = dn.publish(data, ledger=":memory:", noise=dn.Noise(seed=1))
    found = audit(release, data, key=key)
    assert release.certificate.basis == "void"
    text = said(sign_off_page(found))
    assert "void" in text
    assert not [item for item in release.certificate.meaning.odds if str(item) in text]


def test_an_audit_folder_holds_its_sign_off_and_who_approved(tmp_path: Path) -> None:
    data, release, key = parcels()
    found = audit(release, data, key=key, approved_by=" Ada Example, officer ")
    folder = write_audit(found, tmp_path / "audit")
    assert sorted(path.name for path in folder.iterdir()) == [PAGE_FILE, AUDIT_FILE, SIGNOFF_FILE]
    assert stat.S_IMODE((folder / SIGNOFF_FILE).stat().st_mode) == 0o600
    read = Audit.read(folder)
    assert read.approved == found.approved
    assert json.loads((folder / AUDIT_FILE).read_text())["approved"] == read.approved.model_dump()
    assert read.approved.name == "Ada Example, officer"
    assert sign_off_page(read) == (folder / SIGNOFF_FILE).read_text()
    write_audit(read, folder, force=True)
    old = json.loads((folder / AUDIT_FILE).read_text())
    for name in ("statement", "approved", "at_risk_says"):  # as they were written before there was a sign-off
        del old[name]
    (folder / AUDIT_FILE).write_text(json.dumps(old))
    said(sign_off_page(Audit.read(folder)))
    (folder / AUDIT_FILE).write_text(json.dumps({**old, "approved": [1]}))
    with pytest.raises(InputError, match=AUDIT_FILE):
        Audit.read(folder)
    for name in ("", "  ", "x" * 200, "Ada\nExample", "Ada\x1b[2J"):
        with pytest.raises(ParameterError):
            approval(name)


def test_noisy_rows_have_risks_under_known_names() -> None:
    data = noisy_load(30)
    release, key = noisy_publish(NoisyValues(epsilon=3), data)
    for found in (audit(release, data, key=key), audit(release, external=True)):
        check_findings(found)
        worst, mean = found.finding("identification expected, worst"), found.finding("identification expected")
        assert found.finding("prosecutor risk").value == worst.value
        assert found.finding("marketer risk").value == mean.value
        assert found.finding("journalist risk").interval == (0.0, worst.interval[1])
        assert not found.finding("prosecutor risk").private
    data = noisy_load(30)
    release, key = noisy_publish(NoisyClusters(epsilon=50, quantiles=[0.5], as_published=True), data)
    found = audit(release, data, key=key)
    check_findings(found)
    assert found.finding("prosecutor risk").value == 1
    assert found.finding("marketer risk").value == found.finding("record linkage").value
    assert len(found.at_risk) == 10
    assert found.at_risk[0].record_linkage == max(item.record_linkage for item in found.at_risk) > 0
    assert "prosecutor risk" not in finding_names(audit(release, external=True))


def test_a_plan_that_is_not_proven_best_is_bounded_by_what_is_proved() -> None:
    """Weights 60, 60, 40, 40 in trucks of 100: the plan takes three, two are the fewest."""
    data = load({"weight": [60, 60, 40, 40]}, {"weight": WEIGHT}, k=2)
    release, key = dn.publish(data, ledger=":memory:")
    light = [row["row"] for row in release.data.to_pylist() if row["weight_lower"] == 40]
    heavy = [row for row in range(4) if row not in light]
    plan = plan_of(release, [0 if row in light else 1 + heavy.index(row) for row in range(4)], capacity=100)
    found = audit(release, data, plan, key=key)
    trucks = found.finding("trucks")
    assert (trucks.value, trucks.baseline, trucks.unit, trucks.private) == (3, 2, "trucks", True)
    assert trucks.details["proven"]
    assert (trucks.details["bound"], trucks.details["packages_outside"]) == (2, 0)


def test_trips_most_at_risk_are_those_that_the_noise_tells_of() -> None:
    release, data, key = published(NOISY)
    found = audit(release, data, key=key)
    check_findings(found)
    assert len(found.at_risk) == 10
    table = {name: data.column(name).to_pylist() for name in ("board", "alight", "tap")}
    types = [
        (start, end, (stamp % 200_000 - 8 * 3600) // 1800) for start, end, stamp in zip(*table.values(), strict=True)
    ]
    alike, starts = Counter(types), ("08:00", "08:30", "09:00")
    seen = {(r["origin"], r["destination"], starts.index(r["window"])): r["count"] for r in release.data.to_pylist()}
    law = WholeLaw("round", Fraction(1))
    for item in found.at_risk:
        own = types[item.source_row - 1]
        assert (item.alike, item.released) == (alike[own], seen.get(own, 0))
        above = item.released - item.alike
        there, missing = (float(np.exp(law.log_mass(above + more))) for more in (0, 1))
        if item.released:
            assert item.suspicion == pytest.approx(there / (there + missing))
    order = [(-round(item.suspicion, 9), item.alike) for item in found.at_risk]
    assert order == sorted(order)
    page = said(audit_page(found))
    assert found.risk_says in page
    assert not audit(release, external=True).at_risk


def test_trips_and_riders_listed_and_nobody() -> None:
    release, data, key = published(CONSTRAINED)
    found = audit(release, data, key=key)
    assert found.at_risk == ()
    assert "73.2 %" in found.risk_says
    assert found.risk_says in said(audit_page(found))
    assert found.to_dict()["at_risk_says"] == found.risk_says
    release, *_ = published(NOISY, bound=3)
    other = audit(release, Dataset.from_table(rows(120), policy(NOISY)))
    assert other.at_risk == ()
    assert other.risk_says not in ("", found.risk_says)
    # Two sums that move by one and by two: the best test by adding up over a box of noise.
    release, *_ = published(NOISY, bound=3)
    sight = CountsView.of(release)
    law = sight.answers[0].law
    values = np.arange(-80, 81)
    absent = np.exp(law.log_mass(values)[:, None] + law.log_mass(values)[None, :])
    present = np.exp(law.log_mass(values - 1)[:, None] + law.log_mass(values - 2)[None, :])
    assert rider_guess(sight, ((1, 2),)) == pytest.approx((1 + np.maximum(present - absent, 0).sum()) / 2, abs=1e-6)
    assert len(noisy_answer(law, 2)) >= 2
    low, high = mean_interval(np.full(50, 0.3))
    assert low < 0.3 < high
    assert spread_interval([5.0, 5.0], 5.0, most=9.0) == (5.0, 5.0)
    assert spread_interval([], 0.0, most=0.0) == (0.0, 0.0)


@pytest.mark.parametrize("mechanism", [NOISY, CONSTRAINED])
def test_riders_most_at_risk_have_most_trips_of_one_type(mechanism: dict[str, Any]) -> None:
    release, data, key = published(mechanism, bound=3)
    found = audit(release, data, key=key)
    check_findings(found)
    assert data.persons is not None
    assert len(found.at_risk) == len(np.unique(data.persons)) == 7
    guesses = [item.guess for item in found.at_risk]
    assert guesses == sorted(guesses, reverse=True)
    assert all(item.trips <= 3 and item.types <= item.trips for item in found.at_risk)
    worst = found.finding("membership guess").value  # all three of one type
    alone = [item.guess for item in found.at_risk if item.types == 1 and item.trips == 3]
    assert alone == pytest.approx([worst] * len(alone))
    assert max(guesses) <= worst + 1e-12


def test_vehicles_most_at_risk_are_those_that_stay(tmp_path: Path) -> None:
    """Three vehicles: one parked, one half of the time in one cell, one never twice."""
    rules = tmp_path / "fleet.toml"
    rules.write_text(
        'dataset = "fleet"\nprotects = "vehicle"\n[attributes.vehicle]\nrole = "identifier"\n'
        '[attributes.time]\nrole = "drop"\n[attributes.place]\nrole = "quasi-identifier"\nkind = "grid"\n'
        'box = [0, 0, 4, 4]\nlevels = 3\ncolumns = ["lon", "lat"]\n'
        '[schedule]\ntime = "time"\nslots_per_day = 1\nslot_minutes = 60\n[allowance]\nlifetime = 30\n'
        '[mechanisms.places]\nname = "local-location"\nattributes = ["place"]\nepsilon = 1\n'
    )
    places = {"roams": [0, 1, 2, 3], "parked": [1, 1, 1, 1], "half": [2, 2, 0, 3]}
    hours = [
        f"{name},2026-10-14T0{hour}:00:00,{own[hour] + 0.5},0.5" for hour in range(4) for name, own in places.items()
    ]
    (tmp_path / "fleet.csv").write_text("\n".join(["vehicle,time,lon,lat", *hours]) + "\n")
    fleet = Fleet.read(tmp_path / "fleet.csv", rules)
    assert fleet.policy_digest
    sight = EstimatesView(task=fleet.task, num_reports=12, confidence=0.95, means=(), maps={})
    case = EstimatesTruth(view=sight, fleet=fleet, truth=FleetTruth.of(fleet, by_row=True))
    listed, says = at_risk(case)
    assert [(item.source_row, item.stays) for item in listed] == [(2, 1.0), (3, 0.5), (1, 0.25)]
    assert 0 < listed[0].found_if_it_stays <= 1
    assert "30" in says


@pytest.fixture(scope="module")
def shuttled(tmp_path_factory: Any) -> tuple[Any, ...]:
    """A day's trips of a small city, published, and a fleet that was sized on the release."""
    folder = tmp_path_factory.mktemp("shuttled")
    tiny_city(1).write(folder / "city")
    place = load_city(folder / "city")
    data = dn.load(trip_table(place, 5), policy_of(folder, place))
    release, key = publish_trips(data)
    return place, data, release, key, dn.size(release, place, max_wait=WAIT, expansions=2), folder


def test_shuttles_are_compared_with_those_that_the_truth_needs(shuttled: Any) -> None:
    place, data, release, key, plan, _ = shuttled
    found = audit(release, data, plan, key=key, city=place, shuttle_hour=40)
    check_findings(found)
    done = apply_fleet(plan, data, release, place, key, shuttle_hour=40)
    shuttles, wait, cost = (found.finding(name) for name in ("shuttles", "wait", "cost"))
    assert (shuttles.value, shuttles.baseline) == (plan.objective, sum(done.needed))
    assert (wait.value, wait.baseline) == (done.wait_seconds, done.ideal.wait_seconds.mean)
    assert wait.interval == (wait.value, wait.value)  # single trips: counted
    assert (cost.value, cost.baseline) == (done.cost.planned_per_day, done.cost.needed_per_day)
    assert found.finding("zones in time").value == sum(done.meets_target) / len(done.zones)
    assert all(item.private for item in (shuttles, wait, cost))
    text = said(sign_off_page(found))
    assert shuttles.sentence in text
    assert wait.sentence in text
    unpriced = audit(release, data, plan, city=place)
    assert unpriced.finding("cost").unit == "shuttle-hours a day"
    assert unpriced.finding("cost").value == 2 * plan.objective  # two hours a day
    assert len(unpriced.notes) > len(found.notes)


def test_waits_of_counted_trips_are_estimated(tmp_path: Path) -> None:
    place = tiny_city(1)
    lines = trip_table(place, 5).drop_columns(["card"]).append_column("trips", pa.array([2] * 200))
    data = dn.load(lines, policy_of(tmp_path, place, count=True))
    release, key = publish_trips(data)
    plan = dn.size(release, place, max_wait=WAIT, expansions=2)
    found = audit(release, data, plan, key=key, city=place)
    low, high = found.finding("wait").interval
    assert low < found.finding("wait").value < high
    assert found.notes
    assert all(item.alike >= 2 for item in found.at_risk)  # each line stands for two trips


def test_the_command_audits_a_plan_of_shuttles(shuttled: Any, tmp_path: Path) -> None:
    place, data, release, _, plan, folder = shuttled
    (tmp_path / "release").mkdir()
    written = release.write_files(tmp_path / "release")
    replace(plan, release=written.digest).write(tmp_path / "plan")
    pacsv.write_csv(trip_table(place, 5), tmp_path / "trips.csv")
    (folder / "p.toml").write_text(data.policy.to_toml())
    asked = ("audit", tmp_path / "release", tmp_path / "trips.csv", "--policy", folder / "p.toml")
    with_plan, city = (*asked, "--plan", tmp_path / "plan"), ("--city", folder / "city")
    run(*with_plan, "-o", tmp_path / "lacking").refused("--city")
    run(*asked, *city, "-o", tmp_path / "planless").refused("--plan")
    told = fine(*with_plan, *city, "--approved-by", "Ada Example", "-o", tmp_path / "audit")
    assert {"shuttles", "wait", "cost"} <= {item["name"] for item in told["findings"]}
    assert told["approved"]["name"] == "Ada Example"
    assert (tmp_path / "audit" / SIGNOFF_FILE).is_file()
    fine(*asked[:2], "--plan", tmp_path / "plan", "--external", "-o", tmp_path / "external")
    page = (tmp_path / "external" / SIGNOFF_FILE).read_text()
    assert all(item["sentence"] not in page for item in told["findings"] if item["private"])


def finding_names(found: Audit) -> set[str]:
    return {item.name for item in found.findings}


def test_wrong_plans_are_refused() -> None:
    data, release, key = parcels()
    counts, trips, own = published(NOISY)

    def fleet(digest: str) -> FleetPlan:
        return FleetPlan(release=digest, zones=("a",), shuttles=(1,))

    sized = fleet(counts.certificate.digest)
    for error, asked, owner in (
        (ParameterError, (release, data, fleet(release.certificate.digest)), key),
        (ParameterError, (counts, trips, plan_of(release, list(range(len(release))))), own),
        (ReleaseError, (counts, trips, fleet("0" * 64)), own),
        (ParameterError, (counts, trips, sized), own),  # without a city
    ):
        with pytest.raises(error):
            audit(*asked, key=owner)
    out = audit(counts, None, sized, external=True)
    assert any("1 " in note for note in out.notes)
    check_findings(out)
    assert not {"shuttles", "wait", "cost"} & finding_names(out)
