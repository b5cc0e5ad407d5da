# SPDX-License-Identifier: Apache-2.0
"""publish: mechanisms of policies, default ledgers, order of checks, dry runs, periods, and what the owner is told."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from tests.builders import a_policy
from tests.commands import fine, run
from tests.refusals import refusal

import dunnage as dn
from dunnage.errors import OutputError, ParameterError
from dunnage.mechanisms import MECHANISMS
from dunnage.noise.sampling import exact_delta, sampling_beta
from dunnage.publishing import mechanism_of, owner_warnings, pool_path

NUMBER = {"role": "quasi-identifier", "kind": "numeric", "domain": [0, 100]}
ATTRIBUTES = {"id": {"role": "identifier"}, "day": {"role": "public"}, "weight": NUMBER}
PARTITION = {"name": "partition", "k": 2}
BY_DAY = {"period": {"column": "day", "length": "day"}}


def data_of(mechanism: Any = PARTITION, attributes: Any = ATTRIBUTES, of: str | None = None, **more: Any) -> dn.Dataset:
    days = ["2026-11-14"] * 4 + ["2026-11-15"] * 6
    table = pa.table({"id": [f"p{i}" for i in range(10)], "day": days, "weight": [float(i) for i in range(10)]})
    document = dict(a_policy(mechanism, attributes, **more).document)
    return dn.load(table, dn.Policy.from_dict(document), period=of)


@pytest.fixture
def data(tmp_path: Path) -> dn.Dataset:
    """Rows under a policy that is a file."""
    rules = data_of()
    (tmp_path / "policy.toml").write_text(rules.policy.to_toml())
    return dn.load(rules.parts.table, tmp_path / "policy.toml")


def test_problems_of_the_mechanism_are_policy_errors():
    for change, where, word in (
        ({"k": None}, "mechanism.k", ""),
        ({"k": "five"}, "mechanism", "k"),
        ({"k": 1}, "mechanism", "k"),
        ({"kk": 3}, "mechanism.kk", "partition"),
        ({"statistic": "median"}, "mechanism", "statistic"),
        ({"bounds": "grid"}, "mechanism", "grid"),
        ({"name": "partitions"}, "mechanism.name", "'partition'"),
    ):
        mechanism = {name: value for name, value in {**PARTITION, **change}.items() if value is not None}
        (problem,) = refusal(dn.PolicyError, mechanism_of, a_policy(mechanism, ATTRIBUTES)).problems
        assert problem.where == where
        assert word in str(problem)
    assert list(MECHANISMS) == [kind.name for kind in MECHANISMS.values()]


def test_default_ledger_is_beside_the_policy(data, tmp_path):
    dn.publish(data)
    assert (tmp_path / "dunnage-ledger.sqlite").stat().st_mode & 0o777 == 0o600
    assert "--again" in str(refusal(dn.Refusal, dn.publish, data))
    with pytest.warns(UserWarning, match="not measured"):
        dn.publish(data, again=True)
    assert "ledger=" in str(refusal(ParameterError, dn.publish, data_of())), "a policy without a file needs one"
    own = dn.Ledger(tmp_path / "own.sqlite")
    dn.publish(data, ledger=own)
    dn.publish(data, ledger=own, again=True, warn=[].append)
    assert not own.again
    refusal(dn.Refusal, dn.publish, data, ledger=own)


def test_everything_that_can_be_refused_is_refused_before_the_spend(data, tmp_path):
    ledger = dn.Ledger(":memory:")
    (tmp_path / "there").mkdir()
    (tmp_path / "key.pem").write_text("no key")
    for wrong in ({"out": tmp_path / "there"}, {"out": tmp_path / "no" / "where"}, {"sign": tmp_path / "key.pem"}):
        refusal(dn.UserError, dn.publish, data, ledger=ledger, **wrong)
    assert ledger.datasets() == []


def test_dry_run_says_before_and_after(data, tmp_path):
    ledger = dn.Ledger(":memory:")
    rehearsed = dn.rehearse(data, ledger=ledger)
    assert rehearsed.before.total.epsilon == 0
    assert not rehearsed.after.total.bounded
    assert rehearsed.to_dict()["records"] == 10
    stages = []
    dn.publish(data, ledger=ledger, out=tmp_path / "release", progress=stages.append)
    assert len(stages) == 2
    (repeat,) = dn.rehearse(data, ledger=ledger).refusals
    assert repeat == str(refusal(dn.Refusal, dn.publish, data, ledger=ledger))
    assert dn.rehearse(data, ledger=ledger, again=True).refusals == ()


def test_defaults_that_are_written_down_are_no_other_policy(tmp_path):
    """The guard compares what is promised, with every parameter, not the text of the policy."""
    noisy = {"name": "noisy-values", "epsilon": 1}
    grid = {**NUMBER, "resolution": 1}
    attributes, ledger = {**ATTRIBUTES, "weight": grid}, dn.Ledger(tmp_path / "ledger.sqlite")
    dn.publish(data_of(noisy, attributes), ledger=ledger)
    for written in ({**noisy, "law": "laplace"}, {**noisy, "confidence": "9/10"}, {**noisy, "epsilon": "1.0"}):
        refusal(dn.Refusal, dn.publish, data_of(written, attributes), ledger=ledger)
    refusal(dn.Refusal, dn.publish, data_of(noisy, attributes, small="refuse"), ledger=ledger)
    dn.publish(data_of({**noisy, "law": "piecewise"}, attributes), ledger=ledger)
    dn.publish(data_of({**noisy, "epsilon": 2}, attributes), ledger=ledger)


def test_a_second_k_anonymous_release_is_measured(tmp_path):
    """Ten records: pairs by weight, then threes of all but the first day's pairs, share fewer than k."""
    ledger, first, second = dn.Ledger(tmp_path / "ledger.sqlite"), data_of(), data_of({"name": "partition", "k": 3})
    _, one = dn.publish(first, ledger=ledger, out=tmp_path / "one")
    for data in (second, data_of({**PARTITION, "statistic": "bounds"})):  # another k, and a default written down
        refused = refusal(dn.Refusal, dn.publish, data, ledger=ledger, out=tmp_path / "two")
        assert dn.rehearse(data, ledger=ledger, out=tmp_path / "two").refusals == (str(refused),)
        assert "--again" in str(refused)
        assert "10 packages would be in both" in str(refused)
    said: list[str] = []
    _, two = dn.publish(second, ledger=ledger, out=tmp_path / "two", again=True, warn=said.append)
    pairs = [
        dict(zip(*(key.table[name].to_pylist() for name in ("source_row", "class_id")), strict=True))
        for key in (one, two)
    ]
    joint = [(pairs[0][row], pairs[1][row]) for row in pairs[0]]
    shared = [joint.count(pair) for pair in joint]
    (sentence,) = said
    assert f"{sum(size < 3 for size in shared)} of them look alike with fewer than k = 3" in sentence
    assert f"at worst with {min(shared)}" in sentence
    third: list[str] = []
    dn.publish(second, ledger=ledger, again=True, warn=third.append)
    assert len(third) == 2
    # Without keys nothing is measured, and a file of other rows is not compared.
    (tmp_path / "two.key.parquet").unlink()
    assert "not measured" in dn.rehearse(second, ledger=ledger, again=True).foresight.warnings[1]
    fewer = dn.load(first.parts.table.slice(2), first.policy)
    assert "other rows" in dn.rehearse(fewer, ledger=ledger, again=True).foresight.warnings[0]


def test_other_periods_and_other_promises_are_not_compared(tmp_path):
    ledger = dn.Ledger(tmp_path / "ledger.sqlite")
    dn.publish(data_of(of="2026-11-14", **BY_DAY), ledger=ledger)
    dn.publish(data_of({"name": "partition", "k": 3}, of="2026-11-15", **BY_DAY), ledger=ledger)
    refusal(dn.Refusal, dn.publish, data_of({"name": "partition", "k": 4}, of="2026-11-15", **BY_DAY), ledger=ledger)
    noisy = {**ATTRIBUTES, "weight": {**NUMBER, "resolution": 1}}
    dn.publish(data_of({"name": "noisy-values", "epsilon": 1}, noisy, of="2026-11-15", **BY_DAY), ledger=ledger)


def test_each_period_is_released_once(tmp_path):
    ledger = dn.Ledger(tmp_path / "ledger.sqlite")
    for day, num in (("2026-11-14", 4), ("2026-11-15", 6)):
        rows = data_of(of=day, **BY_DAY)
        release, key = dn.publish(rows, ledger=ledger)
        assert release.certificate.plain()["period"] == day
        assert len(release) == num
        assert set(key.table["source_row"].to_pylist()) == set(rows.source_rows.tolist())
        refusal(dn.Refusal, dn.publish, rows, ledger=ledger)
    assert [spend.period for spend in ledger.statement("parcels").spends] == ["2026-11-14", "2026-11-15"]


def test_budget_is_fixed_by_the_first_policy(tmp_path):
    ledger = dn.Ledger(tmp_path / "ledger.sqlite")
    budget = {"budget": {"epsilon": 1, "neighbours": "add-remove"}}
    refusal(dn.BudgetError, dn.publish, data_of(**budget), ledger=ledger)
    assert not (tmp_path / "ledger.sqlite").exists()
    dn.publish(data_of(**budget, allow_unbounded=True), ledger=ledger)
    other = data_of(budget={**budget["budget"], "epsilon": 2}, allow_unbounded=True)
    assert not isinstance(refusal(dn.Refusal, dn.publish, other, ledger=ledger), dn.BudgetError)
    third = {"ledger": ledger, "again": True, "warn": [].append}
    refusal(dn.BudgetError, dn.publish, data_of({**PARTITION, "k": 3}), **third)
    assert len(ledger.statement("parcels").spends) == 1


def test_what_departs_from_the_truth_is_said(tmp_path):
    """A clamped weight stands at the end of its domain, so nobody may read the interval as the truth."""
    day, weight = {"role": "public", "missing": "leave-out"}, {**NUMBER, "domain": [2, 7], "outside": "clamp"}
    departing = data_of(attributes={**ATTRIBUTES, "day": day, "weight": weight})
    release, _ = dn.publish(departing, ledger=":memory:", out=tmp_path / "release")
    plain, _ = dn.publish(data_of(), ledger=":memory:")
    said = set(release.certificate.plain()["in_clear"]) - set(plain.certificate.plain()["in_clear"])
    assert all(any(name in line for line in said) for name in ("weight", "day"))
    assert release.attributes["weight"].outside == "clamp"
    assert all(line in (tmp_path / "release" / "README.md").read_text() for line in said)
    assert dn.verify(tmp_path / "release").ok


# --- differential privacy: what the owner is told, and what leaves ------------------------------------------------

WEIGHT = {**NUMBER, "resolution": 0.5, "doubling": 5, "unit": "kg"}
PARCELS = {"parcel": {"role": "identifier"}, "remark": {"role": "drop"}, "weight": WEIGHT}
SAMPLED = {"name": "sampled-lattice", "k": 4, "beta": 0.7, "epsilon_choice": 1}
POOLED = {**SAMPLED, "left_out": "pool"}
NOISY = {"name": "noisy-values", "epsilon": 4}
PUBLISHED = {"name": "noisy-clusters", "epsilon": 1, "quantiles": [0.5], "as_published": True}


@pytest.fixture
def place(tmp_path):
    rng = np.random.default_rng(5)
    lines = [f"P{i},note {i},{weight:g}" for i, weight in enumerate(rng.integers(0, 201, 137) / 2)]
    (tmp_path / "parcels.csv").write_text("\n".join(["parcel,remark,weight", *lines]) + "\n")
    return tmp_path


def policy(place, mechanism, attributes=PARCELS, **more):
    path = place / "policy.toml"
    path.write_text(a_policy(mechanism, attributes, **more).to_toml())
    return path


def test_dry_run_foretells_and_facts_stay_in_the_key(place):
    rules = policy(place, SAMPLED)
    command = ("publish", place / "parcels.csv", "--policy", rules)
    rows = dn.load(place / "parcels.csv", rules)
    foresight = dn.rehearse(rows, ledger=dn.Ledger(":memory:")).foresight
    assert foresight.warnings
    assert owner_warnings(rows) == foresight.warnings
    assert abs(sum(node["probability"] for node in foresight.to_dict()["nodes"]) - 1) < 1e-9
    dry = run(*command, "--dry-run")
    assert dry.code == 0
    assert all(" ".join(warning.split()) in " ".join(dry.out.split()) for warning in foresight.warnings)
    done = run(*command, "-o", place / "release", "--json")
    told = done.json()
    assert all(" ".join(warning.split()) in " ".join(done.err.split()) for warning in foresight.warnings)
    owner = told["owner"]
    key = dn.Key.read(place / "release.key.parquet")
    assert key.facts == {"unsampled": owner["unsampled"], "suppressed": owner["suppressed"]}
    assert told["measures"]["records"] + owner["unsampled"] + owner["suppressed"] == 137
    body = json.loads((place / "release" / "certificate.json").read_text())
    assert not {"unsampled", "suppressed", "left_out"} & body["measures"].keys()
    assert 137 not in json.loads(json.dumps(body["measures"])).values()


def test_pool_holds_the_rest_and_can_be_published_again(place):
    rules = policy(place, POOLED)
    rows = dn.load(place / "parcels.csv", rules)
    release, key = dn.publish(rows, out=place / "release")
    pool = pool_path(place / "release", rows)
    assert pool.name == "release.pool.csv"
    assert stat.S_IMODE(pool.stat().st_mode) == 0o600
    rest = pacsv.read_csv(pool)
    kept = set(key.table.column("parcel").to_pylist())
    assert set(rest.column("parcel").to_pylist()) == {f"P{i}" for i in range(137)} - kept
    assert len(rest) == len(dn.load(pool, rules)) == 137 - len(release)
    assert release.certificate.basis is dn.Basis.CLAIMED
    (way,) = dn.rehearse(rows, out=place / "release", again=True).refusals
    assert way == str(refusal(OutputError, dn.publish, rows, out=place / "release", again=True))
    (place / "other.pool.csv").write_text("mine")
    assert "other.pool.csv" in str(refusal(OutputError, dn.publish, rows, out=place / "other", again=True))
    assert (place / "other.pool.csv").read_text() == "mine"
    assert not (place / "other").exists()
    dn.publish(rows, out=place / "release", again=True, force=True)
    assert len(pacsv.read_csv(pool)) == 137 - len(dn.Release.read(place / "release"))


def test_pool_rows_are_as_they_were_read(place):
    """Dialect, dropped period column, cells that a spreadsheet would run, and clamped values all survive."""
    rows = [f"-x{i};=A;2026-11-15;{i % 70},5;note" for i in range(90)] + ["y;B;2026-11-14;3,5;other day"]
    (place / "d.csv").write_text("\n".join(["id;place;day;weight;remark", *rows]) + "\n", encoding="utf-8")
    roles = {"id": "identifier", "place": "public", "day": "drop", "remark": "drop"}
    attributes = {name: {"role": role} for name, role in roles.items()}
    attributes["weight"] = {**WEIGHT, "domain": [0, 60], "outside": "clamp"}
    rules = policy(place, POOLED, attributes, **BY_DAY, read={"delimiter": ";", "decimal": ","})
    _, key = dn.publish(dn.load(place / "d.csv", rules, period="2026-11-15"), out=place / "r")
    lines = (place / "r.pool.csv").read_text().splitlines()
    kept = set(key.table.column("id").to_pylist())
    assert lines == ["id;place;day;weight;remark", *(row for row in rows[:90] if row.split(";")[0] not in kept)]
    assert len(dn.load(place / "r.pool.csv", rules, period="2026-11-15")) == 90 - len(kept)
    # The pool of a frame is Parquet.
    rules = policy(place, POOLED, {name: attributes[name] for name in ("id", "weight")})
    frame = pa.table({"id": [f"P{i}" for i in range(50)], "weight": [float(i) for i in range(50)]})
    _, key = dn.publish(dn.load(frame, rules), out=place / "frame", again=True)
    rest = pq.read_table(place / "frame.pool.parquet")
    kept = set(key.table.column("id").to_pylist())
    assert rest.column("id").to_pylist() == [f"P{i}" for i in range(50) if f"P{i}" not in kept]
    assert rest.schema == frame.schema


def test_show_describes_noise_samples_and_claims(place):
    for mechanism, *words in ((NOISY, "laplace", "epsilon 4"), (SAMPLED, "Levels"), (PUBLISHED, "claimed")):
        out = place / words[0]
        fine("publish", place / "parcels.csv", "--policy", policy(place, mechanism), "-o", out)
        done = run("show", out)
        assert done.code == 0
        assert all(word in done.out for word in words)
    done = run("show", policy(place, SAMPLED))
    assert done.code == 0
    assert "0.2401" in done.out  # 0.7^4, before there are data


def test_epsilon_and_delta_choose_k():
    asked = {"name": "sampled-lattice", "epsilon": 2, "delta": 1e-4, "epsilon_choice": 0.8}
    promise = dn.promise(a_policy(asked, PARCELS))
    k, beta = promise.mechanism["k"], sampling_beta("1.2")
    assert float(exact_delta(k, beta)) <= 1e-4 < float(exact_delta(k - 1, beta))
    assert float(promise.guarantee.epsilon) == 2


def test_show_names_the_public_values_of_classes_beside_noisy_rows(place):
    rows = [f"P{i},{'A' if i % 2 else 'B'},{i % 4}" for i in range(120)]
    (place / "d.csv").write_text("\n".join(["parcel,place,weight", *rows]) + "\n")
    attributes = {"parcel": {"role": "identifier"}, "place": {"role": "public"}, "weight": WEIGHT}
    rules = policy(place, {**SAMPLED, "left_out": "noisy", "left_out_epsilon": 1}, attributes)
    fine("publish", place / "d.csv", "--policy", rules, "-o", place / "r")
    table = dn.Release.read(place / "r").data.to_pydict()
    expected = {c: p for c, p in zip(table["class_id"], table["place"], strict=True) if c >= 0}
    lines = run("show", place / "r").out.splitlines()
    for number, value in expected.items():
        assert any(line.split()[:1] == [str(number)] and line.endswith(value) for line in lines)
