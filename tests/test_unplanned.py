# SPDX-License-Identifier: Apache-2.0
"""Nobody disappears: every row outside a plan is named with its reason, and the dock gets the columns it needs."""

from __future__ import annotations

import csv
import json
import stat
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.builders import QUASI, WEIGHT, a_policy, a_trip_policy
from tests.commands import fine, run
from tests.pages_help import Page, check_closed
from tests.refusals import found, refusal

import dunnage as dn
from dunnage.publication import NO_TRUCK, NOT_RELEASED, unplanned_rows
from dunnage.settle import matched_records
from dunnage.showing.loading import loading_page
from dunnage.text import for_unit, several

ATTRIBUTES = {
    "parcel": {"role": "identifier"},
    "town": {"role": "public"},
    "weight": {**WEIGHT, "missing": "leave-out", "outside": "leave-out"},
    "address": {"role": "drop"},
    "door": {"role": "drop"},
}
LOADING = {"loading": {"columns": ["address", "door"]}}
PARTITION = {"name": "partition", "k": 3, "alpha": 0.1}
POLICY = a_policy(PARTITION, ATTRIBUTES, small="suppress", **LOADING)
# Rows 1 to 6 are alike; 7 is the heaviest by far; 8 has no weight; 9 is too heavy; 10 is alone in its town.
WEIGHTS = ["5", "5", "5", "6", "6", "6", "99", "", "250", "5"]
TOWNS = [*["Metz"] * 9, "Nice"]
REASONS = {
    7: ("suppressed", ""),
    8: ("missing value", "weight"),
    9: ("outside the domain", "weight"),
    10: ("too few with the same town", ""),
}


def rows(**changes: Any) -> dict[str, list[Any]]:
    num = len(WEIGHTS)
    columns = {"parcel": [f"P{i}" for i in range(1, num + 1)], "town": TOWNS, "weight": WEIGHTS}
    return columns | {"address": [f"{i} Main St" for i in range(1, num + 1)], "door": ["A", "B"] * 5} | changes


def write(path: Path, columns: dict[str, list[Any]]) -> None:
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


def listed(path: Path) -> list[dict[str, str]]:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    return list(csv.DictReader(path.read_text().splitlines()))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write(Path("data.csv"), rows())
    Path("policy.toml").write_text(POLICY.to_toml())
    return tmp_path


def test_units_of_policies_have_their_plurals():
    counts = {"box": "2 boxes", "delivery": "2 deliveries", "order": "2 orders", "day": "2 days", "batch": "2 batches"}
    assert {noun: several(2, noun) for noun in counts} == counts
    assert several(1, "box") == "1 box"
    assert for_unit("packages of a package", "box") == "boxes of a box"


def test_every_row_is_in_the_loading_list_or_named_with_its_reason(place: Path) -> None:
    result = fine("publish data.csv --policy policy.toml -o release")
    assert result["owner"]["unplanned"] == "release.unplanned.csv"
    named = listed(Path("release.unplanned.csv"))
    assert {int(line["source_row"]): (line["reason"], line["column"]) for line in named} == REASONS
    assert list(named[0]) == ["source_row", "reason", "column", "parcel", "address", "door"]
    fine("pack release --capacity 20kg -o plan")
    fine("apply plan data.csv --policy policy.toml --release release -o settlement")
    assert listed(Path("settlement/unplanned.csv")) == named
    loading = listed(Path("settlement/loading.csv"))
    assert sorted(int(line["source_row"]) for line in loading + named) == list(range(1, 11))
    for line in loading + named:
        number = line["source_row"]
        assert (line["parcel"], line["address"]) == (f"P{number}", f"{number} Main St")
    page = check_closed(Path("settlement/loading.html").read_text())
    assert stat.S_IMODE(Path("settlement/loading.html").stat().st_mode) == 0o600
    cells = [(row["Row in the file"], row["address"], row.get("reason")) for row in page.rows]
    assert sorted(int(row) for row, _, _ in cells) == list(range(1, 11)), "each row once, in a truck or in none"
    assert all(address == f"{row} Main St" for row, address, _ in cells)
    assert {int(row) for row, _, reason in cells if reason} == set(REASONS)
    assert len([tag for tag, named in page.tags if tag == "section" and named["class"] == "truck"]) == 3


def test_a_list_of_an_earlier_release_does_not_stay_and_nothing_is_replaced_unasked(place: Path) -> None:
    fine("publish data.csv --policy policy.toml -o release")
    run("publish data.csv --policy policy.toml -o other --again")
    Path("third.unplanned.csv").write_text("mine")
    run("publish data.csv --policy policy.toml -o third --again").refused("third.unplanned.csv")
    assert (Path("third.unplanned.csv").read_text(), Path("third").exists()) == ("mine", False)
    whole = rows(weight=["5"] * 10, town=["Metz"] * 10)
    write(Path("data.csv"), whole)
    assert "unplanned" not in fine("publish data.csv --policy policy.toml -o release --again --force")["owner"]
    assert not Path("release.unplanned.csv").exists()


def test_packages_without_a_truck_are_named() -> None:
    table = pa.table({"parcel": list("abcdef"), "town": ["Metz"] * 6, "weight": [40.0] * 6, "address": ["x"] * 6})
    attributes = {name: table_ for name, table_ in ATTRIBUTES.items() if name != "door"}
    data = dn.load(table, a_policy({"name": "partition", "k": 3}, attributes))
    release, key = dn.publish(data, ledger=":memory:")
    plan = dn.pack(release, capacity=50, seconds=1)
    trucks = [dn.Truck(name=kind.name, capacity={"weight": 50}, count=6) for kind in plan.trucks]
    done = dn.apply(plan, data, release, key, trucks=trucks, capacity=None)
    assert done.unplanned_rows.num_rows == 0
    trucks = [dn.Truck(name=kind.name, capacity={"weight": 30}, count=6) for kind in plan.trucks]
    done = dn.apply(plan, data, release, key, trucks=trucks, leave_behind=True)
    left = done.loading.filter(pa.array(done.loading["bin"].to_numpy() < 0))["source_row"].to_pylist()
    assert done.unplanned_rows["source_row"].to_pylist() == sorted(left) == [1, 2, 3, 4, 5, 6]
    assert set(done.unplanned_rows["reason"].to_pylist()) == {NO_TRUCK}
    assert loading_page(done).count("<h2>") == len(done.truck_of_bin) + 1


def test_consignments_and_sums_are_named_row_by_row() -> None:
    attributes = {
        "order": {"role": "identifier"},
        "weight": {**WEIGHT, "domain": [0, 10], "outside": "leave-out", "missing": "leave-out"},
    }
    policy = a_policy({"name": "partition", "k": 2}, attributes, together="order")
    # a adds up to 16; b has a row without weight; c, d are released.
    table = pa.table({"order": list("aabbccd"), "weight": [8.0, 8.0, 1.0, None, 2.0, 2.0, 4.0]})
    data = dn.load(table, policy)
    assert dict(data.left_out) == {
        1: ("outside the domain", "weight"),
        2: ("outside the domain", "weight"),
        3: ("travels with a row that is left out", "order"),
        4: ("missing value", "weight"),
    }
    assert (repr(data.left_out), data.num_left_out) == ("LeftOut(private)", 4)
    _, key = dn.publish(data, ledger=":memory:")
    assert unplanned_rows(data, key)["order"].to_pylist() == ["a", "a", "b", "b"]


def test_sampled_records_say_whether_they_were_sampled_and_where_they_are(place: Path) -> None:
    weights = [float(i % 40) for i in range(300)]
    table = pa.table({"parcel": [f"p{i}" for i in range(300)], "weight": weights})
    attributes = {"parcel": {"role": "identifier"}, "weight": {**WEIGHT, "doubling": 5}}
    for left_out, place_ in (("drop", ""), ("pool", ", kept in the pool")):
        mechanism = {"name": "sampled-lattice", "k": 5, "beta": 0.5, "epsilon_choice": 1, "left_out": left_out}
        data = dn.load(table, a_policy(mechanism, attributes))
        _, key = dn.publish(data, ledger=":memory:")
        named = unplanned_rows(data, key).to_pydict()
        counts = {reason: named["reason"].count(reason) for reason in set(named["reason"])}
        facts = {f"not sampled{place_}": key.facts["unsampled"], f"suppressed{place_}": key.facts["suppressed"]}
        assert counts == {reason: num for reason, num in facts.items() if num}
        assert sorted([*named["source_row"], *key.table["source_row"].to_pylist()]) == list(range(1, 301))
        assert named["parcel"] == [f"p{row - 1}" for row in named["source_row"]]


def test_trips_that_the_policy_leaves_out_are_named_and_no_others(place: Path) -> None:
    mechanism = {"name": "noisy-counts", "epsilon": 1, "threshold": 1}
    policy = a_trip_policy(mechanism, {"outside": "leave-out", "missing": "leave-out"})
    table = pa.table(
        {"card": list("abcd"), "from": ["s0"] * 4, "to": ["s1"] * 4, "at": ["08:10", "23:10", "", "09:10"]}
    )
    stops = policy.schema["from"].domain.labels
    table = table.set_column(1, "from", pa.array([stops[0]] * 4)).set_column(2, "to", pa.array([stops[1]] * 4))
    data = dn.load(table, policy)
    dn.publish(data, ledger=":memory:", out=place / "counts")
    named = listed(place / "counts.unplanned.csv")
    assert [(line["source_row"], line["reason"], line["column"], line["card"]) for line in named] == [
        ("2", "outside the domain", "at", "b"),
        ("3", "missing value", "at", "c"),
    ]


def test_rows_without_a_date_are_in_every_period() -> None:
    attributes = {
        "parcel": {"role": "identifier"},
        "weight": WEIGHT,
        "day": {"role": "drop", "missing": "leave-out"},
    }
    policy = a_policy({"name": "partition", "k": 2}, attributes, period={"length": "week", "column": "day"})
    days = ["2026-11-16", "", "2026-11-17", "2026-11-23", "2026-11-24"]
    table = pa.table({"parcel": list("abcde"), "weight": [1.0] * 5, "day": days})
    for period in ("2026-W47", "2026-W48"):
        assert dict(dn.load(table, policy, period=period).left_out) == {2: ("missing value", "day")}


def test_names_in_data_keep_their_columns() -> None:
    attributes = {
        "reason": {"role": "identifier"},
        "column": {"role": "drop"},
        "weight": WEIGHT | {"missing": "leave-out"},
    }
    policy = a_policy({"name": "partition", "k": 2}, attributes, loading={"columns": ["column", "weight"]})
    table = pa.table({"reason": list("abc"), "column": list("xyz"), "weight": [1.0, 1.0, None]})
    data = dn.load(table, policy)
    release, key = dn.publish(data, ledger=":memory:")
    names = ["source_row", "unplanned_reason", "unplanned_column", "reason", "column", "weight"]
    assert unplanned_rows(data, key).to_pylist() == [
        dict(zip(names, (3, "missing value", "weight", "c", "z", None), strict=True))
    ]
    done = dn.apply(dn.pack(release, capacity=10, seconds=1), data, release, key)
    assert done.loading.column_names == ["row", "source_row", "bin", "reason", "column", "weight"]
    assert Page(loading_page(done)).rows


def test_loading_columns_are_declared_shown_and_no_part_of_the_promise() -> None:
    for columns, word in ((["adress"], "address"), (["bin"], "bin"), ([""], "''"), ("door", "list")):
        attributes = {**ATTRIBUTES, "bin": {"role": "drop"}}
        error = refusal(dn.PolicyError, a_policy, PARTITION, attributes, loading={"columns": columns})
        assert error.problems[0].where.startswith("loading")
        assert word in str(error)
    plain = a_policy(PARTITION, ATTRIBUTES, small="suppress")
    assert plain.digest() == POLICY.digest(), "adding columns for the dock is no other policy"
    table = pa.table({**rows(weight=[5.0] * 10), "address": [["nested"]] * 10})
    assert found(refusal(dn.InputError, dn.load, table, POLICY)) == [("address",)]
    # Frames with views of text, and dictionaries.
    for frame in (pl.DataFrame(rows()), pa.table({n: pa.array(c).dictionary_encode() for n, c in rows().items()})):
        data = dn.load(frame, POLICY)
        _, key = dn.publish(data, ledger=":memory:")
        assert unplanned_rows(data, key)["address"].to_pylist() == [f"{i} Main St" for i in REASONS]


def test_keys_of_the_first_format_counted_from_0(tmp_path: Path) -> None:
    data = dn.load(pa.table(rows()), POLICY)
    release, key = dn.publish(data, ledger=":memory:", out=tmp_path / "release")
    path = tmp_path / "release.key.parquet"
    table = pq.read_table(path)
    old = {**table.schema.metadata, b"dunnage.key": b"1"}
    old.pop(b"dunnage.left_out")
    column = table.column_names.index("source_row")
    table = table.set_column(column, "source_row", pa.array(table["source_row"].to_numpy() - 1))
    pq.write_table(table.replace_schema_metadata(old), path)
    again = dn.Key.read(path)
    assert again.table["source_row"].to_pylist() == key.table["source_row"].to_pylist()
    assert np.array_equal(matched_records(data, release, again), matched_records(data, release, key))
    reasons = unplanned_rows(data, again).to_pydict()
    assert dict(zip(reasons["source_row"], reasons["reason"], strict=True)) == {
        7: NOT_RELEASED,
        8: "missing value",
        9: "outside the domain",
        10: NOT_RELEASED,
    }


def test_persons_decide_what_is_rare() -> None:
    attributes = {
        "card": {"role": "identifier"},
        "line": {"role": "public"},
        "x": {"role": QUASI, "kind": "numeric", "domain": [0, 9]},
    }
    policy = a_policy(
        {"name": "utility-clusters", "k": 3}, attributes, contribution={"person": "card"}, small="suppress"
    )
    # Line 2 has three rides, but of one person.
    table = pa.table({"card": ["a", "b", "c", "d", "e", "e", "e"], "line": list("1111222"), "x": [1.0] * 7})
    data = dn.load(table, policy)
    _, key = dn.publish(data, ledger=":memory:")
    assert key.left_out == {"too few with the same line": [5, 6, 7]}


def test_audits_of_the_first_version_counted_from_0(tmp_path: Path) -> None:
    old = Path(__file__).parent / "fixtures" / "v0.1.0" / "audit"
    written = json.loads((old / "audit.json").read_text())["at_risk"]
    audit = dn.Audit.read(old)
    assert [item.source_row for item in audit.at_risk] == [item["source_row"] + 1 for item in written] != []
    audit.write(tmp_path / "audit")
    assert dn.Audit.read(tmp_path / "audit").at_risk == audit.at_risk
