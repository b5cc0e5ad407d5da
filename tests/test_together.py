# SPDX-License-Identifier: Apache-2.0
"""Rows that travel together, from publishing to the loading list: one record, one bin, every source row listed once."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import sys
from collections import defaultdict
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

import dunnage as dn
from dunnage.auditing.plans import plan_utility, true_plan
from dunnage.cli import main
from dunnage.errors import ParameterError, ReleaseError
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


def write(path: Path, rows: list[dict[str, str]]) -> None:
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def lines(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


class Done(NamedTuple):
    """What a command did."""

    returncode: int
    stdout: str
    stderr: str


def dunnage(*arguments: object, cwd: Path) -> Done:
    """Run a command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(cwd)
        patch.setattr(sys, "argv", ["dunnage", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
    assert "Traceback" not in err.getvalue()
    return Done(end.value.code if isinstance(end.value.code, int) else 0, out.getvalue(), err.getvalue())


def fine(*arguments: object, cwd: Path) -> dict[str, Any]:
    done = dunnage(*arguments, "--json", cwd=cwd)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


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
    fine("publish", "parcels.csv", "--policy", "parcels.toml", "-o", "release", cwd=folder)
    return folder


@pytest.fixture
def place(published: Path, tmp_path: Path) -> Path:
    shutil.copytree(published, tmp_path / "place")
    return tmp_path / "place"


APPLY = ("parcels.csv", "--policy", "parcels.toml", "--release", "release")


def test_the_file_is_what_it_should_be() -> None:
    rows = rows_of_file()
    assert len({row["parcel"] for row in rows}) == len(rows) == 100
    assert len({row["consignment"] for row in rows}) == NUM_CONSIGNMENTS


def test_each_line_of_a_release_is_a_consignment(published: Path) -> None:
    data = lines(published / "release" / "data.csv")
    assert len(data) == NUM_CONSIGNMENTS
    sums = sorted(float(total) for total in true_weights(rows_of_file()).values())
    assert sorted(float(line["weight"]) for line in lines(published / "release" / "members.csv")) == sums
    certificate = json.loads((published / "release" / "certificate.json").read_text())
    assert certificate["measures"]["records"] == NUM_CONSIGNMENTS
    merged = "rows that travel together were merged into one record, and their weight added up"
    assert merged in certificate["in_clear"]
    assert merged in (published / "release" / "README.md").read_text()
    assert "consignment" not in str(certificate["attributes"]), "identifiers are not named"
    assert dunnage("verify", "release", cwd=published).returncode == 0


def check_loading(folder: Path, name: str) -> None:
    """Every source row is listed once with its identifiers, consignments whole, and nothing is overloaded."""
    source, loading = lines(folder / "parcels.csv"), lines(folder / name / "loading.csv")
    assert sorted(int(line["source_row"]) for line in loading) == list(range(len(source)))
    bins: dict[str, set[str]] = defaultdict(set)
    loads: dict[str, Fraction] = defaultdict(Fraction)
    for line in loading:
        true = source[int(line["source_row"])]
        assert (line["parcel"], line["consignment"].lstrip("'")) == (true["parcel"], true["consignment"])
        bins[true["consignment"]].add(line["bin"])
        loads[line["bin"]] += Fraction(true["weight"])
    assert all(len(where) == 1 for where in bins.values())
    assert "-1" not in loads
    assert max(loads.values()) <= CAPACITY
    told = {line["bin"]: float(line["load"]) for line in lines(folder / name / "loads.csv")}
    assert told == {number: float(load) for number, load in loads.items()}


def test_consignments_ride_in_one_truck(place: Path) -> None:
    plan = fine("pack", "release", "--capacity", f"{CAPACITY}kg", "--by", "town", "-o", "plan", cwd=place)
    done = fine("apply", "plan", *APPLY, "-o", "settlement", cwd=place)
    assert done["plan_feasible"]
    assert len(lines(place / "settlement" / "loads.csv")) == plan["objective"]
    check_loading(place, "settlement")


def test_a_repair_keeps_them_together(place: Path) -> None:
    fine("pack", "release", "--capacity", CAPACITY, "--statistic", "mean", "-o", "plan", cwd=place)
    # Smaller trucks came than were planned for, so that some are too full whichever row is which.
    done = fine("apply", "plan", *APPLY, "--repair", "--capacity", CAPACITY * 0.8, "-o", "settlement", cwd=place)
    assert not done["plan_feasible"]
    assert done["repair"]["feasible"]
    check_loading(place, "settlement")


def refused(place: Path, says: str) -> None:
    done = dunnage("publish", "parcels.csv", "--policy", "parcels.toml", "-o", "new", "--again", cwd=place)
    assert done.returncode == 2, done.stdout
    assert says in re.sub(r"\s+", " ", done.stderr)
    assert "=C" not in done.stderr
    assert not (place / "new").exists()


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('together = "consignment"', 'together = "consignmnet"', "Did you mean 'consignment'?"),
        ('together = "consignment"', 'together = "weight"', "a numeric quasi-identifier, which is added up"),
        ('together = "consignment"', "together = 5", "together: must be"),
        ('[attributes.consignment]\nrole = "identifier"', '[attributes.consignment]\nrole = "drop"', "is dropped"),
        ("domain = [0, 50]", "domain = [0, 12]", "adds up to a value outside the public domain in"),
        (
            '[attributes.parcel]\nrole = "identifier"',
            '[attributes.parcel]\nrole = "sensitive"',
            "is not the same in all",
        ),
    ],
)
def test_policies_that_cannot_be_obeyed(place: Path, old: str, new: str, says: str) -> None:
    assert POLICY.count(old) == 1
    (place / "parcels.toml").write_text(POLICY.replace(old, new))
    refused(place, says)


def test_public_values_that_differ(place: Path) -> None:
    rows = rows_of_file()
    several = next(row for row in rows if row["consignment"] == "=C3")
    several["town"] = "CANARYVILLE"
    write(place / "parcels.csv", rows)
    numbers = [number for number, row in enumerate(rows, start=1) if row["consignment"] == "=C3"]
    refused(
        place,
        f"column 'town': is not the same in all rows that share a value of 'consignment' in 4 rows: "
        f"{', '.join(map(str, numbers))}. Make it the same",
    )


def test_a_plan_is_not_applied_to_rows_grouped_otherwise(place: Path) -> None:
    fine("pack", "release", "--capacity", CAPACITY, "-o", "plan", cwd=place)
    rows = rows_of_file()
    first, second = (next(row for row in rows if row["consignment"] == name) for name in ("=C3", "=C5"))
    first["weight"], second["weight"] = second["weight"], first["weight"]
    write(place / "parcels.csv", rows)
    done = dunnage("apply", "plan", *APPLY, "-o", "settlement", cwd=place)
    assert done.returncode == 2
    assert "not made from these rows" in done.stderr


def test_every_quasi_identifier_says_that_rows_were_merged() -> None:
    size = '[attributes.size]\nrole = "quasi-identifier"\nkind = "ordinal"\ndomain = ["small", "large"]\n[mechanism]'
    schema = dn.Policy.from_text(POLICY.replace("[mechanism]", size)).schema
    assert schema["size"].exception.endswith("merged into one record, all of them of the same size")
    assert schema["weight"].exception.endswith("merged into one record, and their weight added up")
    assert schema["town"].exception == schema["consignment"].exception == ""
    apart = replace(schema, together=None)
    assert all(attribute.merged is None and not attribute.exception for attribute in apart)
    assert not any("merged" in item for item in apart.describe())
    assert [item["merged"] for item in schema.describe()] == ["same", "sum", "same"]


def test_a_schema_cannot_be_told_nonsense() -> None:
    schema = dn.Policy.from_text(POLICY).schema
    with pytest.raises(ParameterError, match="'shipment' is not a declared attribute"):
        replace(schema, together="shipment")
    with pytest.raises(ParameterError, match="merged must be one of sum, same"):
        replace(schema["weight"], merged="mean")


@pytest.fixture(scope="module")
def made() -> tuple[dn.Dataset, dn.Release, dn.Key]:
    rows = rows_of_file()
    table = pa.table({name: [row[name] for row in rows] for name in rows[0]})
    data = dn.load(table, dn.Policy.from_text(POLICY))
    return (data, *dn.publish(data, ledger=":memory:"))


def test_the_key_has_a_line_for_each_source_row(made: tuple[dn.Dataset, dn.Release, dn.Key]) -> None:
    data, release, key = made
    source = rows_of_file()
    assert sorted(key.table["source_row"].to_pylist()) == list(range(len(source)))
    classes = release.data["class_id"].to_pylist()
    rows: dict[int, set[str]] = defaultdict(set)
    for line in key.table.to_pylist():
        true = source[line["source_row"]]
        assert (line["parcel"], line["consignment"]) == (true["parcel"], true["consignment"])
        assert line["class_id"] == classes[line["row"]]
        rows[line["row"]].add(true["consignment"])
    assert sorted(rows) == list(range(NUM_CONSIGNMENTS))
    assert all(len(names) == 1 for names in rows.values())
    weights = true_weights(source)
    expected = [float(weights[next(iter(rows[row]))]) for row in range(NUM_CONSIGNMENTS)]
    assert data.numbers("weight")[matched_records(data, release, key)].tolist() == expected


def test_the_order_of_a_key_does_not_matter(made: tuple[dn.Dataset, dn.Release, dn.Key]) -> None:
    data, release, key = made
    turned = replace(key, table=key.table.take(pa.array(np.arange(key.table.num_rows)[::-1])))
    assert np.array_equal(matched_records(data, release, turned), matched_records(data, release, key))


def spoiled(table: pa.Table, how: str) -> pa.Table:
    """Tamper with the line of one part of a consignment of several."""
    rows = table["row"].to_numpy()
    line = int(np.flatnonzero(np.bincount(rows)[rows] > 1)[0])
    everything = np.arange(table.num_rows)
    if how == "a part less":
        return table.take(pa.array(np.delete(everything, line)))
    if how == "a part twice":
        return table.take(pa.array(np.append(everything, line)))
    if how == "a part instead of another":
        everything[line + 1] = line
        return table.take(pa.array(everything))
    column, value = {
        "a part in another row": ("row", int(rows.max() - rows[line])),
        "a part of nothing": ("source_row", 10**6),
        "a part of another class": ("class_id", 10**6),
    }[how]
    values = table[column].to_numpy().copy()
    values[line] = value
    return table.set_column(table.column_names.index(column), column, pa.array(values))


@pytest.mark.parametrize(
    "how",
    [
        "a part less",
        "a part twice",
        "a part instead of another",
        "a part in another row",
        "a part of nothing",
        "a part of another class",
    ],
)
def test_a_key_with_other_parts_is_refused(made: tuple[dn.Dataset, dn.Release, dn.Key], how: str) -> None:
    data, release, key = made
    with pytest.raises(ReleaseError, match="key"):
        matched_records(data, release, replace(key, table=spoiled(key.table, how)))


def test_what_privacy_cost_counts_consignments(made: tuple[dn.Dataset, dn.Release, dn.Key]) -> None:
    data, release, key = made
    best = true_plan(data, release, key, capacity=CAPACITY)
    done = dn.apply(best, data, release, key, noise=Noise(seed=1))
    assert done.feasible
    cost = plan_utility(done, data)
    assert cost.objective == cost.optimum == best.objective
