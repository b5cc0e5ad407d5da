# SPDX-License-Identifier: Apache-2.0
"""publish: from policy to mechanism, default ledger, order of checks, dry runs, periods."""

from __future__ import annotations

import pyarrow as pa
import pytest

import dunnage as dn
from dunnage.errors import ParameterError
from dunnage.mechanisms import MECHANISMS
from dunnage.publishing import mechanism_of

POLICY = """
dataset = "parcels"
protects = "package"
[attributes.id]
role = "identifier"
[attributes.day]
role = "public"
[attributes.weight]
role = "quasi-identifier"
kind = "numeric"
domain = [0, 100]
[mechanism]
name = "partition"
k = 2
"""
PERIOD = '[period]\ncolumn = "day"\nlength = "day"\n'


def table() -> pa.Table:
    days = ["2026-11-14"] * 4 + ["2026-11-15"] * 6
    return pa.table({"id": [f"p{i}" for i in range(10)], "day": days, "weight": [float(i) for i in range(10)]})


@pytest.fixture
def policy(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text(POLICY)
    return dn.Policy.read(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("", "mechanism.k: is missing"),
        ('k = "five"', "k must be a whole number"),
        ("k = 1", "k must be a whole number of at least 2"),
        ("k = 2\nkk = 3", "mechanism.kk: is not a parameter of partition"),
        ('k = 2\nstatistic = "median"', "statistic must be one of"),
        ('k = 2\nbounds = "grid"', "needs a public grid"),
    ],
)
def test_problems_of_the_mechanism_are_policy_errors(change, message):
    policy = dn.Policy.from_text(POLICY.replace("k = 2", change))
    with pytest.raises(dn.PolicyError, match=message):
        mechanism_of(policy)


def test_an_unknown_mechanism_names_those_that_exist():
    policy = dn.Policy.from_text(POLICY.replace('"partition"', '"partitions"'))
    with pytest.raises(dn.PolicyError, match="Did you mean 'partition'"):
        mechanism_of(policy)
    assert list(MECHANISMS) == [kind.name for kind in MECHANISMS.values()]


def test_default_ledger_is_beside_the_policy(policy, tmp_path):
    dn.publish(dn.load(table(), policy))
    assert (tmp_path / "dunnage-ledger.sqlite").stat().st_mode & 0o777 == 0o600
    with pytest.raises(dn.Refusal, match="--again"):
        dn.publish(dn.load(table(), policy))
    dn.publish(dn.load(table(), policy), again=True)


def test_a_policy_without_a_file_needs_a_ledger():
    with pytest.raises(ParameterError, match="ledger="):
        dn.publish(dn.load(table(), dn.Policy.from_text(POLICY)))


def test_everything_that_can_be_refused_is_refused_before_the_spend(policy, tmp_path):
    data = dn.load(table(), policy)
    ledger = dn.Ledger(":memory:")
    (tmp_path / "there").mkdir()
    (tmp_path / "key.pem").write_text("no key")
    for wrong in ({"out": tmp_path / "there"}, {"out": tmp_path / "no" / "where"}, {"sign": tmp_path / "key.pem"}):
        with pytest.raises(dn.UserError):
            dn.publish(data, ledger=ledger, **wrong)
    assert ledger.datasets() == []


def test_dry_run_says_before_and_after(policy):
    ledger = dn.Ledger(":memory:")
    data = dn.load(table(), policy)
    run = dn.rehearse(data, ledger=ledger)
    assert str(run.before.total) == "epsilon 0"
    assert str(run.after.total) == "no bound"
    assert run.to_dict()["records"] == 10
    dn.publish(data, ledger=ledger)
    with pytest.raises(dn.Refusal, match="--again"):
        dn.rehearse(data, ledger=ledger)


def test_each_period_is_released_once(tmp_path):
    policy = dn.Policy.from_text(POLICY + PERIOD)
    ledger = dn.Ledger(tmp_path / "ledger.sqlite")
    for day, num in (("2026-11-14", 4), ("2026-11-15", 6)):
        data = dn.load(table(), policy, period=day)
        release, key = dn.publish(data, ledger=ledger)
        assert release.certificate.plain()["period"] == day
        assert len(release) == num
        assert set(key.table["source_row"].to_pylist()) == set(data.source_rows.tolist())
        with pytest.raises(dn.Refusal, match="already spent"):
            dn.publish(data, ledger=ledger)
    assert [spend.period for spend in ledger.statement("parcels").spends] == ["2026-11-14", "2026-11-15"]


def test_budget_is_fixed_by_the_first_policy(tmp_path):
    ledger = dn.Ledger(tmp_path / "ledger.sqlite")
    budget = '[budget]\nepsilon = 1\nneighbours = "add-remove"\n'
    allowed = "allow_unbounded = true\n" + POLICY
    with pytest.raises(dn.BudgetError, match="allow_unbounded"):
        dn.publish(dn.load(table(), dn.Policy.from_text(POLICY + budget)), ledger=ledger)
    assert not (tmp_path / "ledger.sqlite").exists()
    dn.publish(dn.load(table(), dn.Policy.from_text(allowed + budget)), ledger=ledger)
    other = dn.Policy.from_text(allowed + budget.replace("epsilon = 1", "epsilon = 2"))
    with pytest.raises(dn.Refusal, match="budget set"):
        dn.publish(dn.load(table(), other), ledger=ledger)
    with pytest.raises(dn.BudgetError, match="no bound"):
        dn.publish(dn.load(table(), dn.Policy.from_text(POLICY.replace("k = 2", "k = 3"))), ledger=ledger)
    assert len(ledger.statement("parcels").spends) == 1


def test_progress_names_the_stages(policy, tmp_path):
    stages = []
    dn.publish(dn.load(table(), policy), out=tmp_path / "release", progress=stages.append)
    assert stages == ["finding classes", "writing the release"]


def test_again_is_honoured_for_a_ledger_given(policy, tmp_path):
    ledger = dn.Ledger(tmp_path / "own.sqlite")
    data = dn.load(table(), policy)
    dn.publish(data, ledger=ledger)
    dn.publish(data, ledger=ledger, again=True)
    assert not ledger.again
    with pytest.raises(dn.Refusal, match="--again"):
        dn.publish(data, ledger=ledger)


def test_what_departs_from_the_truth_is_said(tmp_path):
    """A clamped weight stands at the end of its domain, so nobody may read the interval as the truth."""
    text = POLICY.replace("domain = [0, 100]", 'domain = [2, 7]\noutside = "clamp"').replace(
        '[attributes.day]\nrole = "public"', '[attributes.day]\nrole = "public"\nmissing = "leave-out"'
    )
    release, _ = dn.publish(dn.load(table(), dn.Policy.from_text(text)), ledger=":memory:", out=tmp_path / "release")
    told = " ".join(release.certificate.plain()["in_clear"])
    assert "values of weight outside its domain were moved to the nearest end" in told
    assert "records without day were left out" in told
    assert release.attributes["weight"].outside == "clamp"
    assert "values outside the domain were moved" in (tmp_path / "release" / "README.md").read_text()
    assert dn.verify(tmp_path / "release").ok
