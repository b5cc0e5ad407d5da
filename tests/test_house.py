# SPDX-License-Identifier: Apache-2.0
"""The limits of a house, and the verdicts under them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.builders import a_policy, parcels
from tests.commands import Done, run
from tests.pages_help import Page, check_closed

import dunnage as dn
from dunnage.auditing.findings import RISK_OF_TOPIC, Finding, _tables, by_severity, remedy_of, worst_risks
from dunnage.auditing.run import Audit
from dunnage.ledger import Ledger
from dunnage.model.guarantees import Loss
from dunnage.model.house import RISKS, Clearance, House, Limits

NUMBER = {"role": "quasi-identifier", "kind": "numeric", "domain": [0, 99], "resolution": 0.1}
NOISY = {"name": "noisy-values", "epsilon": 1}


def a_house(exceptions: Mapping[str, str] | None = None, **limits: Any) -> House:
    return House.from_dict({"name": "Port", "limits": limits, "exceptions": dict(exceptions or {})})


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with parcels, a policy of k = 4, and a house above both."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "house.toml").write_text('name = "Port"\n[limits]\nmin_k = 5\nmax_truck_linkage = 0.01\n')
    (tmp_path / "work").mkdir()
    assert run("generate", "packages", "-o", "work/p.csv", "--size", 60, "--seed", 1).code == 0
    policy = tmp_path / "work" / "p.toml"
    policy.write_text(re.sub(r"(?m)^k = .*", "k = 4", policy.read_text()))
    return tmp_path


def publish(*more: object) -> Done:
    return run("publish", "work/p.csv", "--policy", "work/p.toml", "-o", "work/r", *more)


def test_a_release_below_the_limits_is_refused_before_anything_is_spent(here: Path) -> None:
    publish().refused("MAY NOT LEAVE", code=1)
    assert sorted(path.name for path in (here / "work").iterdir()) == ["p.csv", "p.toml"]
    dry = publish("--dry-run")
    assert dry.code == 1
    assert dry.out.startswith("MAY NOT LEAVE under the limits of Port\n  min_k: k is 4; at least 5")
    with pytest.raises(dn.CheckFailed):
        dn.publish(dn.load("work/p.csv", "work/p.toml"))  # Python is no way around it


def test_an_exception_is_granted_by_whom_the_house_names_and_kept_in_the_ledger(here: Path) -> None:
    publish("--exception", "Ada: pilot").refused("MAY NOT LEAVE", code=1)  # nobody may grant one
    with (here / "house.toml").open("a") as stream:
        stream.write('[exceptions]\nmin_k = "Ada Example"\n')
    publish().refused("NEEDS AN EXCEPTION by Ada Example", code=1)
    done = publish("--exception", "Ada: pilot")
    assert done.code == 0
    assert done.out.startswith("MAY LEAVE BY EXCEPTION, Ada: pilot")
    (spend,) = Ledger.open_existing("work/dunnage-ledger.sqlite").statement("p").spends
    assert spend.note == "Ada: pilot"


def test_plans_and_audits_say_whether_they_may_leave(here: Path) -> None:
    text = (here / "work" / "p.toml").read_text()
    (here / "work" / "p.toml").write_text(re.sub(r"(?m)^k = .*", "k = 5", text))
    assert publish().out.startswith("MAY LEAVE under the limits of Port (k)")
    packed = run("pack", "work/r", "--capacity", "500kg", "-o", "work/plan", "--time-limit", 1)
    assert packed.code == 1
    assert "max_truck_linkage" in packed.out.splitlines()[1]
    assert (here / "work" / "plan" / "plan.json").is_file()  # the planner still gets it
    audited = run("audit", "work/r", "work/p.csv", "--policy", "work/p.toml", "--plan", "work/plan", "-o", "work/a")
    assert audited.code == 1
    audit = Audit.read("work/a")
    assert audit.clearance is not None
    assert (audit.clearance.verdict, audit.clearance.may_leave) == ("may not leave", False)
    for name in ("audit.html", "sign-off.html"):
        page = Page((here / "work" / "a" / name).read_text())
        assert "MAY NOT LEAVE" in page.text
    (here / "house.toml").unlink()
    assert "LEAVE" not in run("audit", "work/r", "--external", "-o", "work/b").out


def test_what_no_limit_applies_to_is_not_called_checked() -> None:
    for checked, first in ((), "NOT CHECKED"), (("min_k",), "MAY LEAVE"):
        clearance = Clearance(house="Port", checked=checked)
        assert clearance.may_leave
        assert clearance.headline.startswith(first)


def test_a_house_file_with_mistakes_lists_them_all(here: Path) -> None:
    (here / "house.toml").write_text(
        '[limits]\nmin_k = "five"\nmax_delta = 2\nmax_trucks = 3\n[exceptions]\nmax_x = "A"\n'
    )
    done = publish()
    done.refused("house.toml")
    assert all(name in done.err for name in ("limits.min_k", "limits.max_delta", "limits.max_trucks"))
    (here / "house.toml").write_text('[limits]\nmin_k = 5\n[exceptions]\nmax_x = "A"\n')
    publish().refused("exceptions.max_x")


@pytest.mark.parametrize(("spent", "keeps"), [((), True), ((2,), True), ((2, 1), False), ((None,), False)])
def test_the_month_adds_up(spent: tuple[int | None, ...], keeps: bool) -> None:
    house = a_house(max_epsilon_month=3)
    promise = dn.promise(a_policy(NOISY, {"weight": NUMBER}))
    spends = [({"epsilon": 1}, Loss(None if e is None else Fraction(e))) for e in spent]
    clearance = house.clear(house.of_promise(promise, [*spends, ({"k": 5}, Loss(None))]))  # k-anonymity has no epsilon
    assert clearance.may_leave is keeps


def test_what_really_holds_is_compared_not_what_is_claimed() -> None:
    house = a_house(max_epsilon=2, basis="claimed")
    attributes = {"height": NUMBER, "weight": NUMBER}
    sound = dn.promise(a_policy(NOISY, attributes))
    claimed = replace(sound, basis=dn.Basis.CLAIMED, holds=replace(sound.guarantee, epsilon=Fraction(4)))
    assert house.clear(house.of_statement(sound)).may_leave
    assert not house.clear(house.of_statement(claimed)).may_leave
    assert not house.clear(house.of_statement(replace(claimed, holds=None))).may_leave
    assert not house.clear(house.of_statement(sound.voided("seeded"))).may_leave


def test_the_month_is_read_from_the_ledger(tmp_path: Path) -> None:
    policy = a_policy(NOISY, {"weight": NUMBER})
    data = dn.Dataset.from_table(parcels().select(["weight"]), policy)
    house = a_house(max_epsilon_month=2)
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        for _ in range(2):
            dn.publish(data, ledger=ledger, house=house, again=True)
        with pytest.raises(dn.CheckFailed):
            dn.publish(data, ledger=ledger, house=house, again=True)
        assert len(ledger.statement("parcels").spends) == 2


def test_suppression_is_known_only_afterwards() -> None:
    policy = a_policy({"name": "utility-clusters", "k": 3, "max_suppressed": 0.5}, small="suppress")
    data = dn.Dataset.from_table(parcels(), policy)
    release, _ = dn.publish(data, ledger=Ledger(":memory:"))
    share = release.certificate.rows.suppressed.share
    for limit, keeps in ((share, True), (share - 0.01, share == 0)):
        house = a_house(max_suppressed=max(0, limit))
        assert house.clear(house.of_certificate(release.certificate)).may_leave is (keeps or limit < 0)


# Risks


def a_finding(name: str, topic: str, value: float, baseline: float = 0.0, unit: str = "probability") -> Finding:
    interval = (value, value)
    return Finding(
        name=name,
        value=value,
        interval=interval,
        baseline=baseline,
        unit=unit,
        sentence="It is so.",
        topic=topic,
        private=True,
    )


def test_every_finding_about_a_risk_has_a_remedy() -> None:
    assert set(RISK_OF_TOPIC.values()) == set(RISKS)
    for key, entry in _tables().findings.items():
        topics = RISK_OF_TOPIC if "{" in entry.topic else [entry.topic]
        assert all(remedy_of(key, topic) for topic in topics if topic in RISK_OF_TOPIC), key
    assert [getattr(Limits(), f"max_{risk.replace(' ', '_')}") for risk in RISKS] == [None] * 3  # and a limit


def test_the_worst_of_each_risk_comes_first_on_one_scale() -> None:
    findings = [
        a_finding("a", "records", 0.2, 0.1),
        a_finding("b", "attributes", 0.9, 0.88),
        a_finding("c", "trucks", 0.6, 0.2),
        a_finding("d", "records", 0.5, 0.5),
        a_finding("e", "trucks", 0.55, 0.2),
        a_finding("f", "utility", 1.0),
        a_finding("g", "records", 7.0, 1.0, unit="rows"),
    ]
    assert [item.name for item in by_severity(findings)] == ["c", "b", "a", "e", "d", "g"]
    assert [findings[i].severity for i in (0, 3, 5, 6)] == [pytest.approx(1 / 9), 0.0, None, None]
    assert worst_risks(findings)["linkability"] == ("c", pytest.approx(0.5))
    two = SimpleNamespace(risks=by_severity(item for item in findings if item.topic != "attributes"))
    assert Audit.num_leading.fget(two) == 2  # one for each risk that there is, even if one risk has several
    house = a_house(max_linkability=0.5, max_singling_out=0.1)
    exceeded = house.clear(house.of_risks(worst_risks(findings))).exceeded
    assert [item.limit for item in exceeded] == ["max_singling_out"]


# The certificate as a page


def test_the_certificate_is_a_page_that_verify_checks(here: Path) -> None:
    (here / "house.toml").unlink()
    assert publish().code == 0
    folder = here / "work" / "r"
    page = check_closed((folder / "certificate.html").read_text())
    certificate = dn.Release.read(folder).certificate
    for name, words in certificate.assumptions.items():
        assert name in page.text
        assert words in page.text
    assert all(item in page.text for item in (*certificate.in_clear, *certificate.meaning.sentences))
    assert dn.verify(folder).ok
    (folder / "certificate.html").write_text("<p>All is well.</p>")
    assert not dn.verify(folder).ok
