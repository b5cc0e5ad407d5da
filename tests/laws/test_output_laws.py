# SPDX-License-Identifier: Apache-2.0
"""The law of everything that a differentially private mechanism shows, refusals included, on tiny files.

Files are as an owner has them: without rows, with cells that are not numbers or times, at the ends of a domain and
beyond. Every output is enumerated, and its chances are compared with what the certificate states.
"""

from __future__ import annotations

import dataclasses
import json

import pyarrow as pa
import pytest
from tests.builders import CASES, Case

import dunnage as dn
from dunnage.errors import InputError, NoPlanError
from dunnage.mechanisms import MECHANISMS
from dunnage.model.guarantees import CHECKED_FILE, KAnonymity
from dunnage.proving.counts import trips_policy
from dunnage.proving.examining import NeighbourCase, examine
from dunnage.proving.replay import Reach
from dunnage.publishing import mechanism_of

NEVER = {"missing": "leave-out", "outside": "clamp", "unreadable": "leave-out"}
BAD = ("abc", "inf", "-inf", "1e400", "NaN", "", "0x1", "1_0", "９")  # noqa: RUF001
WEIGHT = {"role": "quasi-identifier", "kind": "numeric", "domain": [0, 2], "resolution": 1}
TRIPS = {
    "noisy-counts": {},
    "hierarchical-counts": {"features": [[]]},
    "constrained-counts": {"features": [[]]},
    "fitted-counts": {"budget_shares": {"windows": 1}},
    "gaussian-counts": {"delta": "0.01"},
}
PROFILE = {"name": "size-profile", "epsilon": 3, "risk": 0.2, "expected": 2, "intervals": 2}


def weights(mechanism: dict, **rules) -> dn.Policy:
    doubled = {"doubling": 1} if mechanism["name"] == "sampled-lattice" else {}
    column = {**WEIGHT, **doubled, **NEVER, **rules}
    return dn.Policy.from_dict(
        {"dataset": "proof", "protects": "package", "attributes": {"weight": column}, "mechanism": mechanism}
    )


def case_of(policy: dn.Policy, tables: list[list[str]], *, orders: bool = True, **more) -> NeighbourCase:
    rows = [{"weight": list(cells)} for cells in tables]
    reach = Reach(steps=2, orders=orders)
    return NeighbourCase(mechanism=mechanism_of(policy), policy=policy, tables=rows, reach=reach, **more)


SAMPLED = {"name": "sampled-lattice", "k": 2, "beta": 0.5, "epsilon_choice": 1}


def test_one_record_more_in_a_sample():
    """No record against one, and one against two, whatever the cell contains."""
    policy, cells = weights(SAMPLED), ("0", "2", "1.4", "-7", "1e300", *BAD)
    tables = [[], *([cell] for cell in cells), *([cell, "0"] for cell in cells)]
    pairs = [pair for at in range(1, len(cells) + 1) for pair in ((0, at), (at, at + len(cells)))]
    verdict = examine(case_of(policy, tables, orders=False, pairs=pairs))
    assert verdict.as_expected, verdict.sentence
    assert verdict.measured <= float(mechanism_of(policy).promise(policy.schema).guarantee.delta) + 1e-12


def test_one_record_more_in_a_profile():
    policy, cells = weights(PROFILE, domain=[0, 4]), ("0", "4", "1.4", "-7", "1e300")
    tables = [[], *([cell] for cell in cells), *([cell] for cell in BAD)]
    reach = Reach(steps=6, beyond="left out", tail=1e-4)
    case = dataclasses.replace(case_of(policy, tables, pairs=[(0, at) for at in range(1, 1 + len(cells))]), reach=reach)
    verdict = examine(case)
    assert verdict.as_expected, verdict.sentence
    absent = [(0, at) for at in range(1 + len(cells), len(tables))]
    assert examine(dataclasses.replace(case, pairs=absent)).measured == 0


def test_a_sample_that_refuses_tells_everything():
    """What the assumption is about: a policy that refuses shows that no cell was unreadable."""
    policy = weights(SAMPLED, unreadable="refuse")
    verdict = examine(case_of(policy, [[], ["abc"]], orders=False))
    assert verdict.measured == pytest.approx(1)
    assert CHECKED_FILE in mechanism_of(policy).promise(policy.schema).assumptions


@pytest.mark.parametrize(
    "mechanism",
    [
        {"name": "noisy-values", "epsilon": 1},
        {"name": "noisy-values", "epsilon": 2, "law": "piecewise", "confidence": 0.5},
        {"name": "noisy-clusters", "epsilon": 1, "borders": [1]},
    ],
    ids=str,
)
def test_values_at_the_ends_and_beyond(mechanism):
    """Neighbours replace a value; a cell that is not a number is no record, as if the row were not there."""
    policy, inside = weights(mechanism), ["1", "1.4", "2", "7", "1e300"]  # one cluster, and what is moved into it
    tables = [*([cell] for cell in inside), [], *([cell] for cell in BAD)]
    same = [(a, b) for a in range(len(inside)) for b in range(a)]
    absent = [(len(inside), at) for at in range(len(inside) + 1, len(tables))]
    verdict = examine(case_of(policy, tables, pairs=same))
    assert verdict.as_expected, verdict.sentence
    assert examine(case_of(policy, tables, pairs=absent)).measured == 0


def test_private_borders_of_no_record():
    policy = weights({"name": "noisy-clusters", "epsilon": 1, "quantiles": [0.5]}, domain=[0, 4])
    assert examine(case_of(policy, [[], ["abc"]])).measured == 0


TIMES = ("08:00", "08:29:59", "07:59", "08:30", "abc", "2026-13-45T99:99", "08:00+01:00", "")


def one_trip(stop: str, time: str) -> dict[str, list[str]]:
    return {"card": ["1"], "from": [stop], "to": ["S"], "at": [time]}


@pytest.mark.parametrize("name", TRIPS)
def test_one_trip_more(name, tmp_path):
    """No trip against one, with times that nobody can read, at the ends of the day and beyond."""
    (tmp_path / "stops.csv").write_text("stop\nS\n")
    made, never = trips_policy(1).document, dict.fromkeys(NEVER, "leave-out")
    columns = {column: {**table, **never} for column, table in made["attributes"].items()}
    mechanism = {"name": name, "epsilon": 30, **TRIPS[name]}
    document = {**made, "attributes": columns, "mechanism": mechanism}
    policy = dn.Policy.from_dict(document, path=tmp_path / "policy.toml")
    none: dict[str, list[str]] = {column: [] for column in columns}
    tables = [none, *(one_trip("S", time) for time in TIMES), one_trip("?", "08:00"), one_trip("", "08:00")]
    verdict = examine(
        NeighbourCase(
            mechanism=mechanism_of(policy),
            policy=policy,
            tables=tables,
            pairs=[(0, at) for at in range(1, len(tables))],
            reach=Reach(steps=2, beyond="left out", orders=True),
        )
    )
    assert verdict.as_expected, verdict.sentence


def is_private(case: Case) -> bool:
    return not isinstance(mechanism_of(case.policy()).promise(case.policy().schema).guarantee, KAnonymity)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_files_without_rows(case, tmp_path):
    """Differentially private mechanisms release them; classes of k records cannot be made, which is said."""
    policy = case.policy()
    data = dn.Dataset.from_table(pa.table({item.name: pa.array([], pa.string()) for item in policy.schema}), policy)
    ledger = dn.Ledger(":memory:")
    if not is_private(case):
        with pytest.raises(InputError):
            dn.publish(data, ledger=ledger)
        assert not ledger.datasets()
        return
    assert dn.rehearse(data, ledger=ledger).foresight.warnings
    release, _ = dn.publish(data, ledger=ledger, out=tmp_path / "release")
    assert CHECKED_FILE.name in release.certificate.assumptions
    verified = dn.verify(tmp_path / "release")
    assert verified.ok, verified.problems
    assert json.loads((tmp_path / "release" / "certificate.json").read_text())
    if release.certificate.kind == "rows":
        assert len(release.data) == 0
        with pytest.raises(NoPlanError):
            dn.pack(release, capacity=500)
        with pytest.raises(InputError):
            dn.audit(release, data)


def test_every_private_mechanism_is_here():
    private = {case.name for case in CASES if is_private(case)}
    assert private == {"noisy-values", "noisy-clusters", "sampled-lattice", PROFILE["name"], *TRIPS} <= set(MECHANISMS)
