# SPDX-License-Identifier: Apache-2.0
"""Columns as people have them: postcodes, times of day, stations of a feed, customers with several parcels."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.builders import QUASI, a_policy
from tests.commands import fine, rows, run
from tests.refusals import refusal
from tests.test_gtfs import FEED, TIMES, TRIPS, feed

import dunnage as dn
from dunnage.errors import InputError, ParameterError, PolicyError, Refusal
from dunnage.model.domains import Graph, Numeric, Tree, domain_from
from dunnage.model.hierarchies import Prefixes
from dunnage.publishing import owner_warnings
from dunnage.samples.shape import like
from dunnage.tables.dataset import drafted
from dunnage.tables.gtfs import feed_network

ZIP = {"role": QUASI, "kind": "prefix", "length": 5, "prefix": [3, 2]}
CLOCK = {"role": QUASI, "kind": "clock", "domain": ["04:00", "28:00"], "doubling": 30}
CLUSTERS = {"name": "utility-clusters", "k": 3}
COARSE = {"name": "full-domain", "k": 3}


def published(mechanism: dict[str, Any], attributes: dict[str, Any], table: pa.Table, **more: Any) -> dn.Publication:
    data = dn.load(table, a_policy(mechanism, attributes, **more))
    return dn.publish(data, ledger=dn.Ledger(":memory:"), noise=dn.Noise(seed=2))


def column(attribute: dict[str, Any], cells: Any) -> list[Any]:
    """Load one column, and return its values."""
    data = dn.load(pa.table({"it": cells}), a_policy(CLUSTERS, {"it": attribute}))
    return data.column("it").to_pylist()


# --- Postcodes


def test_codes_are_shortened_to_their_first_characters():
    cells = ["80331", " 80333 ", "01067", "10001-1234", "803**"]
    assert column(ZIP, cells) == ["803**", "803**", "010**", "100**", "803**"]
    assert column(ZIP, pa.array([80331, 1067])) == ["803**", "010**"]  # numbers have lost their zeros
    assert column({**ZIP, "prefix": [5], "domain": ["80331", "80333"]}, ["80331"]) == ["80331"]
    canada = {**ZIP, "length": 6, "prefix": [3, 1], "domain": ["K1A0B1", "K1N5T5", "H2X1Y4"]}
    assert column(canada, ["K1A0B9", "H2X1Y4"]) == ["K1A***", "H2X***"]


@pytest.mark.parametrize("cell", ["1067", "803311", "8033A", "", "80*31"])
def test_cells_that_are_no_codes_are_refused_by_row(cell):
    attribute = {**ZIP, "prefix": [4, 2]}
    (problem,) = refusal(InputError, column, attribute, ["80331", cell]).problems
    assert problem.rows == (2,)


def test_the_tree_of_codes_follows_from_the_rule():
    tree = Prefixes(length=4, kept=(2, 1)).tree()
    assert len(tree.labels) == 100
    assert tree.levels("07**") == ("07**", "0***", "****")
    for first, second in itertools.product(("07**", "01**", "17**"), repeat=2):
        shared = next((num for num in (2, 1) if first[:num] == second[:num]), 0)
        assert tree.generalise([first, second]) == first[:shared] + "*" * (4 - shared)
    assert domain_from(json.loads(json.dumps(tree.describe()))) == tree
    listed = Prefixes(length=3, kept=(2,), codes=("123", "124", "200")).tree()
    assert listed == Tree(rows=[("12*", "***"), ("20*", "***")])


@pytest.mark.parametrize(
    "change",
    [
        {"prefix": []},
        {"prefix": [2, 3]},
        {"prefix": [6]},
        {"prefix": [3, 0]},
        {"prefix": [3, 3]},
        {"length": 0},
        {"prefix": [5]},
        {"domain": ["80331", "803"]},
        {"domain": ["803**"]},
    ],
)
def test_impossible_rules_are_refused(change):
    (problem,) = refusal(PolicyError, a_policy, CLUSTERS, {"zip": {**ZIP, **change}}).problems
    assert problem.where.startswith("attributes.zip")


def test_postcodes_are_released_as_nodes_or_as_strata(tmp_path):
    draw = random.Random(1)
    table = pa.table({"zip": [f"{draw.choice((803, 804, 101))}{draw.randrange(100):02d}" for _ in range(60)]})
    for mechanism in (CLUSTERS, COARSE):
        publication = published(mechanism, {"zip": ZIP}, table)
        publication.write(tmp_path / mechanism["name"])
        assert set(publication.release.data["zip"].to_pylist()) <= {"803**", "804**", "101**", "80***", "*****"}
        assert dn.verify(tmp_path / mechanism["name"], require="void").ok
    both = table.append_column("weight", pa.array([float(number) for number in range(60)]))
    weight = {"role": QUASI, "kind": "numeric", "domain": [0, 60]}
    attributes = {"zip": {**ZIP, "role": "public", "prefix": [2]}, "weight": weight}
    publication = published({"name": "partition", "k": 3}, attributes, both)
    publication.write(tmp_path / "public")
    assert set(publication.release.data["zip"].to_pylist()) == {"80***", "10***"}
    # Nothing says that shortened codes are unchanged.
    assert "public columns, shortened as in 00***: zip" in publication.release.certificate.in_clear
    for file in ("README.md", "certificate.html", "datapackage.json"):
        text = (tmp_path / "public" / file).read_text()
        assert "shortened as in 00***" in text
        assert "unchanged" not in text
    assert dn.verify(tmp_path / "public", require="void").ok


# --- Times of day


def test_times_of_day_become_minutes_of_the_service_day():
    cells = ["08:12", "8:12:59", "2026-11-09T08:12", "01:30", "25:30"]
    assert column(CLOCK, cells) == [492.0, 492.0, 492.0, 1530.0, 1530.0]
    day = {**CLOCK, "domain": ["06:00", "22:00"], "zone": "Europe/Madrid"}
    assert column(day, ["2026-11-09T07:12Z"]) == [492.0]
    for wrong in ("noon", "05:59", "8.12"):
        (problem,) = refusal(InputError, column, {**CLOCK, "domain": ["06:00", "22:00"]}, ["06:00", wrong]).problems
        assert problem.rows == (2,)
    for change in ({"domain": ["28:00", "04:00"]}, {"domain": ["04:00"]}, {"outside": "clamp"}, {"zone": "Mars"}):
        refusal(PolicyError, a_policy, CLUSTERS, {"it": {**CLOCK, **change}})


def test_only_clocks_say_so_in_a_description():
    clock = a_policy(CLUSTERS, {"it": CLOCK}).schema["it"].numeric
    assert (clock.lower, clock.upper, clock.clock) == (240, 1680, True)
    assert domain_from(clock.describe()) == clock
    assert "clock" not in Numeric(lower=0, upper=1).describe()  # as in releases of earlier versions
    refusal(ParameterError, Numeric, lower=0, upper=1, clock="yes")


@pytest.mark.parametrize("mechanism", [CLUSTERS, COARSE, {"name": "noisy-values", "epsilon": 1}])
def test_times_of_day_are_released_as_intervals_of_clocks(tmp_path, mechanism):
    draw = random.Random(3)
    weights = [float(draw.randrange(60)) for _ in range(40)]
    table = pa.table({"at": [f"{draw.randrange(4, 24):02d}:{draw.randrange(60):02d}" for _ in weights], "kg": weights})
    kg = {"role": QUASI, "kind": "numeric", "domain": [0, 60], "doubling": 10, "resolution": 1, "unit": "kg"}
    publication = published(mechanism, {"at": CLOCK, "kg": kg}, table)
    publication.write(tmp_path / "release")
    release = dn.Release.read(tmp_path / "release")
    minutes = list(zip(*(release.data[f"at_{end}"].to_pylist() for end in ("lower", "upper")), strict=True))
    for row, (low, high) in zip(rows(tmp_path / "release" / "data.csv"), minutes, strict=True):
        for text, value in ((row["at_lower"], low), (row["at_upper"], high)):
            hour, minute = text.split(":")
            assert 60 * int(hour) + int(minute) == value
    assert release.quantities == ["kg"]  # no truck is loaded with times
    assert dn.verify(tmp_path / "release", require="void").ok
    assert ":" in run(f"show {tmp_path / 'release'}").out
    data = dn.load(table, a_policy(mechanism, {"at": CLOCK, "kg": kg}))
    assert dn.audit(release, data).findings
    text = (tmp_path / "release" / "data.csv").read_text()
    (tmp_path / "release" / "data.csv").write_text(text.replace(":0", ":1", 1))
    assert not dn.verify(tmp_path / "release").ok


def test_rows_of_one_record_do_not_add_up_their_times():
    table = pa.table({"order": ["a", "a", "b"], "at": ["08:00", "08:00", "09:00"]})
    data = dn.load(table, a_policy(CLUSTERS, {"order": {"role": "identifier"}, "at": CLOCK}, together="order"))
    assert data.numbers("at").tolist() == [480.0, 540.0]


def test_generated_rows_have_the_shape_of_such_columns():
    data = like(a_policy(CLUSTERS, {"zip": ZIP, "at": CLOCK}), 200, seed=1)
    assert set(map(len, data.column("zip").to_pylist())) == {5}
    assert 240 <= data.numbers("at").min() < data.numbers("at").max() < 1680


# --- Networks of stations


def test_a_feed_becomes_a_network(tmp_path):
    made = feed_network(feed(tmp_path))
    edges = {(start, end): length for start, end, length in made.edges}
    # By hand: A to B takes 5 minutes, one of them filled in evenly; B to the station 5, 7 and 9; on to D 17 to 22.
    assert edges == {("A", "B"): 5.0, ("B", "S"): 7.0, ("D", "S"): 20.0, ("A", "D"): 10.0}
    assert made.stops == ("A", "B", "D", "S")
    by_name = feed_network(feed(tmp_path), names=True)
    assert "Station" in by_name.stops
    assert len(by_name.edges) == 4


def test_parts_of_a_network_are_joined_on_foot(tmp_path):
    apart = {"trips": TRIPS + "r9,week,far\n", "stop_times": TIMES + "far,08:00:00,08:00:00,R,1\nfar,08:09:00,,X,2\n"}
    stops = FEED["stops"] + "X,Island,42.10,-83.00,z2,0,\nY,Quay,42.0002,-83.00,z2,0,\n"
    apart["stop_times"] += "far,08:20:00,,Y,3\n"
    made = feed_network(feed(tmp_path, stops=stops, **apart))
    edges = {(start, end): length for start, end, length in made.edges}
    assert edges["A", "Y"] == pytest.approx(0.3, abs=0.05)  # 22 m on foot
    cut = {"stop_times": apart["stop_times"].replace("far,08:20:00,,Y,3\n", "")}
    edges = {
        (start, end): length
        for start, end, length in feed_network(feed(tmp_path, stops=stops, **{**apart, **cut})).edges
    }
    assert edges["D", "R"] == pytest.approx(1.11 / 4.5 * 60, rel=0.02)  # the nearest stops of the two parts
    Graph(edges=made.edges)


def test_the_command_writes_an_edge_list_for_a_policy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    feed(tmp_path)
    told = fine("generate network feed -o edges.csv")
    assert (told["stations"], told["edges"]) == (4, 4)
    assert len(Graph.from_csv("edges.csv").labels) == 4
    run("generate network feed -o edges.csv").refused("edges.csv")
    run("generate network nothing -o other.csv").refused("nothing")
    station = {"role": QUASI, "kind": "graph", "edges": "feed.zip"}
    (problem,) = refusal(PolicyError, a_policy, CLUSTERS, {"at": station}).problems
    assert (problem.where, "generate network" in problem.remedy) == ("attributes.at.edges", True)
    feed(tmp_path, stop_times="trip_id,arrival_time,departure_time,stop_id,stop_sequence\nt1,08:00:00,,A,1\n")
    refusal(Refusal, feed_network, tmp_path / "feed")
    assert not Path("other.csv").exists()


# --- Persons with several rows


def test_owners_are_warned_of_identifiers_that_repeat():
    weight = {"role": QUASI, "kind": "numeric", "domain": [0, 60]}
    table = pa.table({"customer": ["a", "b", "a", "c"] * 3, "weight": [float(i) for i in range(12)]})
    attributes = {"customer": {"role": "identifier"}, "weight": weight}

    def warnings(mechanism: dict[str, Any], **more: Any) -> list[str]:
        return [w for w in owner_warnings(dn.load(table, a_policy(mechanism, attributes, **more))) if "customer" in w]

    (warning,) = warnings({"name": "partition", "k": 2})
    assert "[contribution] person" in warning
    assert len(warnings(CLUSTERS)) == 1
    assert not warnings(CLUSTERS, contribution={"person": "customer"})
    assert not warnings(CLUSTERS, together="customer")
    table = table.set_column(0, "customer", pa.array([f"p{i}" for i in range(12)]))
    assert not warnings(CLUSTERS)


def test_a_draft_notices_customers_postcodes_and_times(tmp_path):
    draw = random.Random(5)
    lines = [f"P{i},K{draw.randrange(60)},{draw.randrange(100000):05d},08:{i % 60:02d}" for i in range(200)]
    (tmp_path / "p.csv").write_text("parcel,customer,zip,pickup\n" + "\n".join(lines) + "\n")
    text, remarks = drafted(tmp_path / "p.csv")
    assert '# person = "customer"' in text
    assert '# kind = "prefix"' in text.split("[attributes.zip]")[1].split("\n\n")[0]
    assert '# kind = "clock"' in text.split("[attributes.pickup]")[1].split("\n\n")[0]
    (remark,) = remarks  # parcels do not repeat, and postcodes are not persons
    assert "'customer'" in remark
    assert remark not in text
    table = pa.table(
        {"customer_zip": ["1", "1"], "customer": pa.array(["a", "a"]).dictionary_encode(), "tags": [[1], []]}
    )
    pq.write_table(table, tmp_path / "p.parquet")
    (remark,) = drafted(tmp_path / "p.parquet").remarks
    assert "'customer'" in remark
    (tmp_path / "q.csv").write_text("parcel,weight\nA,3\nB,4\n")
    assert drafted(tmp_path / "q.csv").remarks == ()
