# SPDX-License-Identifier: Apache-2.0
"""publish, dry runs and show with differentially private mechanisms: what the owner is told, and what leaves."""

from __future__ import annotations

import json
import stat

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import dunnage as dn
from dunnage.cli import app
from dunnage.errors import OutputError
from dunnage.noise.sampling import sampling_beta, sampling_delta
from dunnage.publishing import owner_warnings, pool_path

WEIGHT = """
[attributes.weight]
role = "quasi-identifier"
kind = "numeric"
domain = [0, 100]
resolution = 0.5
doubling = 5
unit = "kg"
"""
HEAD = """
dataset = "parcels"
protects = "package"
[attributes.parcel]
role = "identifier"
[attributes.remark]
role = "drop"
"""
SAMPLED = '[mechanism]\nname = "sampled-lattice"\nk = 4\nbeta = 0.7\nepsilon_choice = 1\n'
NOISY = '[mechanism]\nname = "noisy-values"\nepsilon = 4\n'
PUBLISHED = '[mechanism]\nname = "noisy-clusters"\nepsilon = 1\nquantiles = [0.5]\nas_published = true\n'


@pytest.fixture
def place(tmp_path):
    rng = np.random.default_rng(5)
    lines = [f"P{i},note {i},{weight:g}" for i, weight in enumerate(rng.integers(0, 201, 137) / 2)]
    (tmp_path / "parcels.csv").write_text("\n".join(["parcel,remark,weight", *lines]) + "\n")
    return tmp_path


def policy(place, mechanism):
    path = place / "policy.toml"
    path.write_text(HEAD + WEIGHT + mechanism)
    return path


def run(*words):
    result = CliRunner().invoke(app, [str(word) for word in words])
    return result.exit_code, result.stdout


def test_dry_run_foretells_and_publish_warns_the_owner(place):
    rules = policy(place, SAMPLED)
    data = dn.load(place / "parcels.csv", rules)
    run_ = dn.rehearse(data, ledger=dn.Ledger(":memory:"))
    assert any("1/n" in warning for warning in run_.foresight.warnings)
    assert abs(sum(node["probability"] for node in run_.foresight.to_dict()["nodes"]) - 1) < 1e-9
    assert owner_warnings(data) == run_.foresight.warnings
    code, text = run("publish", place / "parcels.csv", "--policy", rules, "--dry-run")
    assert code == 0
    assert "WARNING" in text
    assert "chosen with" in text
    result = CliRunner().invoke(
        app, ["publish", str(place / "parcels.csv"), "--policy", str(rules), "-o", str(place / "release")]
    )
    assert result.exit_code == 0
    assert "1/n" in result.stderr
    assert "unsampled" in result.stdout


def test_facts_stay_in_the_key(place):
    rules = policy(place, SAMPLED)
    code, text = run("publish", place / "parcels.csv", "--policy", rules, "-o", place / "release", "--json")
    assert code == 0
    owner = json.loads(text)["owner"]
    key = dn.Key.read(place / "release.key.parquet")
    assert key.facts == {"unsampled": owner["unsampled"], "suppressed": owner["suppressed"]}
    released = json.loads(text)["measures"]["records"]
    assert released + owner["unsampled"] + owner["suppressed"] == 137
    body = json.loads((place / "release" / "certificate.json").read_text())
    assert not {"unsampled", "suppressed", "left_out"} & body["measures"].keys()
    assert 137 not in json.loads(json.dumps(body["measures"])).values()


def test_pool_holds_the_rest_and_can_be_published_again(place):
    rules = policy(place, SAMPLED + 'left_out = "pool"\n')
    data = dn.load(place / "parcels.csv", rules)
    release, key = dn.publish(data, out=place / "release")
    pool = pool_path(place / "release", data)
    assert pool.name == "release.pool.csv"
    assert stat.S_IMODE(pool.stat().st_mode) == 0o600
    rest = pacsv.read_csv(pool)
    kept = set(key.table.column("parcel").to_pylist())
    names = {f"P{i}" for i in range(137)}
    assert set(rest.column("parcel").to_pylist()) == names - kept
    assert len(rest) == 137 - len(release)
    again = dn.load(pool, rules)
    assert len(again) == len(rest)
    assert release.certificate.basis is dn.Basis.CLAIMED
    with pytest.raises(OutputError):
        dn.rehearse(data, out=place / "release", again=True)
    (place / "other.pool.csv").write_text("mine")
    with pytest.raises(OutputError, match=r"other\.pool\.csv"):
        dn.publish(data, out=place / "other", again=True)
    assert (place / "other.pool.csv").read_text() == "mine"
    assert not (place / "other").exists()
    dn.publish(data, out=place / "release", again=True, force=True)
    assert len(pacsv.read_csv(pool)) == 137 - len(dn.Release.read(place / "release"))


def pooled(place, text, extra, source):
    """Publish rows of which most are left out, and read the pool under the same policy."""
    (place / source).write_text(text, encoding="utf-8")
    rules = place / "p.toml"
    head = 'dataset = "d"\nprotects = "package"\n' + extra
    rules.write_text(head + WEIGHT.replace("[0, 100]", "[0, 60]") + SAMPLED + 'left_out = "pool"\n')
    return rules


def test_pool_rows_are_as_they_were_read(place):
    """Dialect, dropped period column, cells that a spreadsheet would run, and clamped values all survive."""
    rows = [f"-x{i};=A;2026-11-15;{i % 70},5;note" for i in range(90)] + ["y;B;2026-11-14;3,5;other day"]
    extra = """
[period]
column = "day"
length = "day"
[read]
delimiter = ";"
decimal = ","
[attributes.id]
role = "identifier"
[attributes.place]
role = "public"
[attributes.day]
role = "drop"
[attributes.remark]
role = "drop"
"""
    rules = pooled(place, "\n".join(["id;place;day;weight;remark", *rows]) + "\n", extra, "d.csv")
    rules.write_text(rules.read_text().replace('unit = "kg"', 'unit = "kg"\noutside = "clamp"'))
    data = dn.load(place / "d.csv", rules, period="2026-11-15")
    _, key = dn.publish(data, out=place / "r")
    lines = (place / "r.pool.csv").read_text().splitlines()
    kept = set(key.table.column("id").to_pylist())
    assert lines == ["id;place;day;weight;remark", *(row for row in rows[:90] if row.split(";")[0] not in kept)]
    again = dn.load(place / "r.pool.csv", rules, period="2026-11-15")
    assert len(again) == 90 - len(kept)


def test_pool_of_a_frame_is_parquet(place):
    rules = pooled(place, "", '[attributes.id]\nrole = "identifier"\n', "none.csv")
    frame = pa.table({"id": [f"P{i}" for i in range(50)], "weight": [float(i) for i in range(50)]})
    data = dn.load(frame, rules)
    _, key = dn.publish(data, out=place / "r")
    rest = pq.read_table(place / "r.pool.parquet")
    kept = set(key.table.column("id").to_pylist())
    assert rest.column("id").to_pylist() == [f"P{i}" for i in range(50) if f"P{i}" not in kept]
    assert rest.schema == frame.schema


def test_show_describes_noise_samples_and_claims(place):
    code, text = run("publish", place / "parcels.csv", "--policy", policy(place, NOISY), "-o", place / "noisy")
    assert code == 0
    code, text = run("show", place / "noisy")
    assert code == 0
    assert "Noise       weight 0 to 100: laplace, epsilon 4" in text
    run("publish", place / "parcels.csv", "--policy", policy(place, SAMPLED), "-o", place / "sampled")
    code, text = run("show", place / "sampled")
    assert code == 0
    assert "Levels      weight" in text
    run("publish", place / "parcels.csv", "--policy", policy(place, PUBLISHED), "-o", place / "claimed")
    code, text = run("show", place / "claimed")
    assert code == 0
    assert "Claimed" in text
    assert "Basis       claimed" in text


def test_show_of_a_policy_prints_delta_before_there_are_data(place):
    code, text = run("show", policy(place, SAMPLED))
    assert code == 0
    assert "delta 0.2401" in text  # 0.7^4


def test_epsilon_and_delta_choose_k(place):
    asked = '[mechanism]\nname = "sampled-lattice"\nepsilon = 2\ndelta = 1e-4\nepsilon_choice = 0.8\n'
    promise = dn.promise(dn.Policy.read(policy(place, asked)))
    k, beta = promise.mechanism["k"], sampling_beta("1.2")
    assert sampling_delta(k, beta) <= sampling_delta(k - 1, beta)
    assert float(sampling_delta(k, beta)) <= 1e-4 < float(sampling_delta(k - 1, beta))
    assert float(promise.guarantee.epsilon) == 2


def test_show_names_the_public_values_of_classes_beside_noisy_rows(place):
    rows = [f"P{i},{'A' if i % 2 else 'B'},{i % 4}" for i in range(120)]
    (place / "d.csv").write_text("\n".join(["parcel,place,weight", *rows]) + "\n")
    noisy = 'left_out = "noisy"\nleft_out_epsilon = 1\n'
    head = HEAD.replace('[attributes.remark]\nrole = "drop"', '[attributes.place]\nrole = "public"')
    (place / "p.toml").write_text(head + WEIGHT + SAMPLED + noisy)
    code, _ = run("publish", place / "d.csv", "--policy", place / "p.toml", "-o", place / "r")
    assert code == 0
    release = dn.Release.read(place / "r")
    _, text = run("show", place / "r")
    table = release.data.to_pydict()
    expected = {c: p for c, p in zip(table["class_id"], table["place"], strict=True) if c >= 0}
    for number, value in expected.items():
        assert any(line.split()[:1] == [str(number)] and line.endswith(value) for line in text.splitlines())
