# SPDX-License-Identifier: Apache-2.0
"""Rows that travel together, from publishing to the loading list: one record, one bin, every source row listed once."""

from __future__ import annotations

import json
import re
import shutil
from collections import defaultdict
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest
from tests.commands import fine, run
from tests.commands import rows as lines

import dunnage as dn
from dunnage.auditing.plans import plan_utility
from dunnage.errors import ParameterError, ReleaseError
from dunnage.kernels.bins.scalar import pack_bins
from dunnage.noise.source import Noise
from dunnage.settle import matched_records

NUM_CONSIGNMENTS = 40
CAPACITY = 60
POLICY = """
dataset = "parcels"
protects = "consignment"
together = "consignment"
[attributes.parcel]
role = "identifier"
[attributes.consignment]
role = "identifier"
[attributes.town]
role = "public"
[attributes.weight]
role = "quasi-identifier"
kind = "numeric"
domain = [0, 50]
unit = "kg"
[mechanism]
name = "partition"
k = 5
statistic = "multiset"
"""


def rows_of_file() -> list[dict[str, str]]:
    """One to four parcels a consignment in two towns, in tenths of a kilogram, the consignments interleaved."""
    made = [
        {"parcel": f"P{number}-{part}", "consignment": f"=C{number}", "town": "NS"[number % 2]}
        | {"weight": f"{(37 * number + 53 * part) % 99 / 10 + 0.1:.1f}"}
        for number in range(NUM_CONSIGNMENTS)
        for part in range(number % 4 + 1)
    ]
    return [made[(37 * place) % len(made)] for place in range(len(made))]


def true_weights(rows: list[dict[str, str]]) -> dict[str, Fraction]:
    weights: dict[str, Fraction] = defaultdict(Fraction)
    for row in rows:
        weights[row["consignment"]] += Fraction(row["weight"])
    return weights


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data, policy, release and key."""
    folder = tmp_path_factory.mktemp("together")
    write(folder / "parcels.csv", rows_of_file())
    (folder / "parcels.toml").write_text(POLICY)
    data, policy = folder / "parcels.csv", folder / "parcels.toml"
    fine("publish", data, "--policy", policy, "-o", folder / "release", "--ledger", folder / "ledger.sqlite")
    return folder


@pytest.fixture
def place(published: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(published, tmp_path / "place"))


def write(path: Path, rows: list[dict[str, str]]) -> None:
    pacsv.write_csv(pa.Table.from_pylist(rows), path)


def applying(place: Path, *options: object) -> tuple[object, ...]:
    data, policy = place / "parcels.csv", place / "parcels.toml"
    return ("apply", place / "plan", data, "--policy", policy, "--release", place / "release", *options)


def test_each_line_of_a_release_is_a_consignment(published: Path) -> None:
    assert len(lines(published / "release" / "data.csv")) == NUM_CONSIGNMENTS
    sums = sorted(float(total) for total in true_weights(rows_of_file()).values())
    assert sorted(float(line["weight"]) for line in lines(published / "release" / "members.csv")) == sums
    certificate = json.loads((published / "release" / "certificate.json").read_text())
    assert certificate["measures"]["records"] == NUM_CONSIGNMENTS
    merged = dn.Policy.from_text(POLICY).schema["weight"].exception
    assert merged in certificate["in_clear"]
    assert merged in (published / "release" / "README.md").read_text()
    assert "consignment" not in str(certificate["attributes"]), "identifiers are not named"
    assert run("verify", published / "release").code == 0


def check_loading(folder: Path, name: str) -> None:
    """Every source row is listed once with its identifiers, consignments whole, and nothing is overloaded."""
    source, loading = lines(folder / "parcels.csv"), lines(folder / name / "loading.csv")
    assert sorted(int(line["source_row"]) for line in loading) == list(range(1, len(source) + 1))
    bins: dict[str, set[str]] = defaultdict(set)
    loads: dict[str, Fraction] = defaultdict(Fraction)
    for line in loading:
        true = source[int(line["source_row"]) - 1]
        assert (line["parcel"], line["consignment"].lstrip("'")) == (true["parcel"], true["consignment"])
        bins[true["consignment"]].add(line["bin"])
        loads[line["bin"]] += Fraction(true["weight"])
    assert all(len(where) == 1 for where in bins.values())
    assert "-1" not in loads
    assert max(loads.values()) <= CAPACITY
    told = {line["bin"]: float(line["load"]) for line in lines(folder / name / "loads.csv")}
    assert told == {number: float(load) for number, load in loads.items()}


def test_consignments_ride_in_one_truck_and_a_repair_keeps_them_together(place: Path) -> None:
    plan = fine("pack", place / "release", "--capacity", f"{CAPACITY}kg", "--by", "town", "-o", place / "plan")
    assert fine(*applying(place, "-o", place / "settlement"))["plan_feasible"]
    assert len(lines(place / "settlement" / "loads.csv")) == plan["objective"]
    check_loading(place, "settlement")
    fine("pack", place / "release", "--capacity", CAPACITY, "--statistic", "mean", "-o", place / "plan", "--force")
    # Smaller trucks came than were planned for, so that some are too full whichever row is which.
    done = fine(*applying(place, "--repair", "--capacity", CAPACITY * 0.8, "-o", place / "repaired"))
    assert (done["plan_feasible"], done["repair"]["feasible"]) == (False, True)
    check_loading(place, "repaired")
    rows = rows_of_file()  # and not to rows that are grouped otherwise
    first, second = (next(row for row in rows if row["consignment"] == name) for name in ("=C3", "=C5"))
    first["weight"], second["weight"] = second["weight"], first["weight"]
    write(place / "parcels.csv", rows)
    run(*applying(place, "-o", place / "other")).refused()


def refused(place: Path, *facts: str) -> None:
    asked = ("publish", place / "parcels.csv", "--policy", place / "parcels.toml", "-o", place / "new", "--again")
    done = run(*asked, "--ledger", place / "ledger.sqlite")
    done.refused()
    text = re.sub(r"\s+", " ", done.err)
    assert [fact for fact in facts if fact not in text] == []
    assert "=C" not in done.err
    assert not (place / "new").exists()


def test_policies_that_cannot_be_obeyed(place: Path) -> None:
    together = 'together = "consignment"'
    for old, new, fact in (
        (together, 'together = "consignmnet"', "'consignment'"),
        (together, 'together = "weight"', "together"),
        (together, "together = 5", "together"),
        ('[attributes.consignment]\nrole = "identifier"', '[attributes.consignment]\nrole = "drop"', "together"),
        ("domain = [0, 50]", "domain = [0, 12]", "'weight'"),
        ('[attributes.parcel]\nrole = "identifier"', '[attributes.parcel]\nrole = "sensitive"', "'parcel'"),
    ):
        assert POLICY.count(old) == 1
        (place / "parcels.toml").write_text(POLICY.replace(old, new))
        refused(place, fact)
    (place / "parcels.toml").write_text(POLICY)
    rows = rows_of_file()  # public values that differ
    next(row for row in rows if row["consignment"] == "=C3")["town"] = "CANARYVILLE"
    write(place / "parcels.csv", rows)
    numbers = [str(number) for number, row in enumerate(rows, start=1) if row["consignment"] == "=C3"]
    refused(place, "'town'", "'consignment'", ", ".join(numbers))


def test_every_quasi_identifier_says_that_rows_were_merged() -> None:
    size = '[attributes.size]\nrole = "quasi-identifier"\nkind = "ordinal"\ndomain = ["small", "large"]\n[mechanism]'
    schema = dn.Policy.from_text(POLICY.replace("[mechanism]", size)).schema
    assert schema["size"].exception != schema["weight"].exception != ""
    assert schema["town"].exception == schema["consignment"].exception == ""
    apart = replace(schema, together=None)
    assert all(attribute.merged is None and not attribute.exception for attribute in apart)
    assert not any("merged" in item for item in apart.describe())
    assert [item["merged"] for item in schema.describe()] == ["same", "sum", "same"]
    with pytest.raises(ParameterError, match="'shipment'"):
        replace(schema, together="shipment")
    with pytest.raises(ParameterError, match="merged"):
        replace(schema["weight"], merged="mean")


@pytest.fixture(scope="module")
def made() -> tuple[dn.Dataset, dn.Release, dn.Key]:
    rows = rows_of_file()
    table = pa.table({name: [row[name] for row in rows] for name in rows[0]})
    data = dn.load(table, dn.Policy.from_text(POLICY))
    return (data, *dn.publish(data, ledger=":memory:"))


def test_the_key_has_a_line_for_each_source_row_in_any_order(made: tuple[dn.Dataset, dn.Release, dn.Key]) -> None:
    data, release, key = made
    source = rows_of_file()
    assert sorted(key.table["source_row"].to_pylist()) == list(range(1, len(source) + 1))
    classes = release.data["class_id"].to_pylist()
    rows: dict[int, set[str]] = defaultdict(set)
    for line in key.table.to_pylist():
        true = source[line["source_row"] - 1]
        assert (line["parcel"], line["consignment"]) == (true["parcel"], true["consignment"])
        assert line["class_id"] == classes[line["row"]]
        rows[line["row"]].add(true["consignment"])
    assert sorted(rows) == list(range(NUM_CONSIGNMENTS))
    assert all(len(names) == 1 for names in rows.values())
    weights = true_weights(source)
    expected = [float(weights[next(iter(rows[row]))]) for row in range(NUM_CONSIGNMENTS)]
    assert data.numbers("weight")[matched_records(data, release, key)].tolist() == expected
    data, release, key = made
    turned = replace(key, table=key.table.take(pa.array(np.arange(key.table.num_rows)[::-1])))
    assert np.array_equal(matched_records(data, release, turned), matched_records(data, release, key))


def spoiled(table: pa.Table) -> dict[str, pa.Table]:
    """Tamper with the line of one part of a consignment of several."""
    rows = table["row"].to_numpy()
    line = int(np.flatnonzero(np.bincount(rows)[rows] > 1)[0])
    everything = np.arange(table.num_rows)
    instead = np.where(everything == line + 1, line, everything)
    found = {"less": np.delete(everything, line), "twice": np.append(everything, line), "instead": instead}
    found = {how: table.take(pa.array(places)) for how, places in found.items()}
    for column, value in (("row", int(rows.max() - rows[line])), ("source_row", 10**6), ("class_id", 10**6)):
        values = np.where(everything == line, value, table[column].to_numpy())
        found[column] = table.set_column(table.column_names.index(column), column, pa.array(values))
    return found


def test_a_key_with_other_parts_is_refused(made: tuple[dn.Dataset, dn.Release, dn.Key]) -> None:
    data, release, key = made
    taken = []
    for how, table in spoiled(key.table).items():
        with suppress(ReleaseError):
            matched_records(data, release, replace(key, table=table))
            taken.append(how)
    assert taken == []


def test_what_privacy_cost_counts_consignments(made: tuple[dn.Dataset, dn.Release, dn.Key]) -> None:
    data, release, key = made
    done = dn.apply(dn.pack(release, capacity=CAPACITY), data, release, key, repair=True, noise=Noise(seed=1))
    assert done.feasible
    cost = plan_utility(done, data)
    tenths = np.round(10 * data.numbers("weight")).astype(np.int64)
    best = pack_bins(tenths, 10 * CAPACITY, seconds=5.0)
    assert (cost.packages, cost.optimum) == (len(data), len(best.bins))
