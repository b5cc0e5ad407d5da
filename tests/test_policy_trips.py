# SPDX-License-Identifier: Apache-2.0
"""Policies of trips: what is read, and what is refused and why."""

from __future__ import annotations

import copy
from datetime import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dunnage.errors import ParameterError, PolicyError
from dunnage.ledger import Ledger
from dunnage.model.domains import Category, Stops, Windows
from dunnage.model.policy import Policy
from dunnage.model.schema import Attribute, Contribution, Role, Schema
from dunnage.model.trips import Trip
from dunnage.publishing import foresee, mechanism_of, publish, rehearse
from dunnage.tables.dataset import Dataset

QUASI = "quasi-identifier"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "stops.csv").write_text("stop,zone\nB,x\nA,y\n")
    (tmp_path / "modes.csv").write_text("origin,destination,mode\nA,A,walk\nA,B,bus\nB,A,bus\nB,B,walk\n")
    return tmp_path


def document(**changes: Any) -> dict[str, Any]:
    made = {
        "dataset": "trips",
        "protects": "trip",
        "trip": {"origin": "board", "destination": "alight", "time": "tap"},
        "city": {"stops": "stops.csv", "modes": "modes.csv"},
        "attributes": {
            "card": {"role": "identifier"},
            "board": {"role": QUASI, "kind": "stop"},
            "alight": {"role": QUASI, "kind": "stop"},
            "tap": {"role": QUASI, "kind": "time", "domain": ["04:00", "28:00"], "window_minutes": 30},
        },
        "mechanism": {"name": "constrained-counts", "epsilon": 1, "features": "O5"},
    }
    for where, value in changes.items():
        *tables, key = where.split("__")
        table: Any = made
        for name in tables:
            table = table.setdefault(name, {})
        if value is None:
            del table[key]
        else:
            table[key] = copy.deepcopy(value)
    return made


def read(folder: Path, **changes: Any) -> Policy:
    return Policy.from_dict(document(**changes), path=folder / "policy.toml")


def problems_of(folder: Path, **changes: Any) -> str:
    with pytest.raises(PolicyError) as caught:
        read(folder, **changes)
    return str(caught.value)


RIDER = {"protects": "rider", "contribution": {"person": "card", "max": 3, "per": "period"}}


def test_a_policy_of_trips_is_read(folder):
    policy = read(folder)
    schema = policy.schema
    assert schema.trip == Trip(origin="board", destination="alight", time="tap")
    assert schema["board"].domain == Stops(stops=("B", "A"))
    assert schema.time == Windows(lower="04:00", upper="28:00", window_minutes=30)
    assert schema.city is not None
    assert schema.city.mode_names == ("walk", "bus")
    universe = schema.universe()
    assert (universe.stops, len(universe.windows), universe.num_cells) == (("B", "A"), 48, 192)
    assert universe.columns == ("origin", "destination", "origin_zone", "destination_zone", "mode", "window")
    assert not schema.tells_days
    assert set(policy.files) == {"stops.csv", "modes.csv"}


def test_the_digest_covers_the_files_of_the_city(folder):
    before = read(folder)
    # As in version 0.1.0: the ledger compares digests.
    assert before.digest() == "9368ce6798654562efb8437060f9922b3d9926f285513d020d18a513e1d59b03"
    (folder / "stops.csv").write_text("stop,zone\nB,x\nA,x\n")
    after = read(folder)
    assert before.digest() != after.digest()
    assert before.schema != after.schema
    assert after.schema == read(folder).schema
    assert Policy.from_text(after.to_toml(), path=folder / "policy.toml").schema == after.schema


def test_days_and_zones_are_read(folder):
    more = {"zone": "America/Detroit", "day": "day-type", "dates": ["2026-11-01", "2026-11-30"]}
    tap = {**document()["attributes"]["tap"], **more, "holidays": ["2026-11-26"], "outside": "leave-out"}
    schema = read(folder, attributes__tap=tap).schema
    assert schema.time.zone == "America/Detroit"
    assert schema.tells_days
    assert schema.universe().days == ("weekday", "saturday", "sunday")
    assert schema.universe("2026-11-26").num_dates == (1,)
    assert schema.universe("2026-11-26").days == ("sunday",)


def test_days_of_a_column(folder):
    day = {"role": QUASI, "kind": "category", "domain": ["work", "free"]}
    schema = read(folder, attributes__kind=day, trip__day="kind").schema
    assert schema.tells_days
    assert schema.universe("2026-11").days == ("free", "work")
    assert schema.universe("2026-11").num_dates == ()


def test_a_column_of_counts_may_be_called_count(folder):
    count = {"role": QUASI, "kind": "numeric", "domain": [0, 1000]}
    schema = read(folder, attributes__count=count, trip__count="count").schema
    assert schema["count"].counts
    assert read(folder, attributes__trips=count, trip__count="trips").schema["trips"].counts
    assert "reserved" in problems_of(folder, attributes__count=count)
    assert "reserved" in problems_of(folder, attributes__row=count, trip__count="row")
    assert "Begin it at 0" in problems_of(
        folder, attributes__count={**count, "domain": [-1, 1000]}, trip__count="count"
    )


def test_riders_are_protected_with_a_bound(folder):
    schema = read(folder, **RIDER).schema
    assert schema.contribution == Contribution(person="card", max=3, per="period")
    assert schema.person == "card"


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"city": None}, "attributes.board.kind: is stop, but nothing says which stops there are"),
    ({"city__stops": "none.csv"}, "city: "),
    ({"city__stops": None}, "city.stops: is missing"),
    ({"city__lines": "lines.csv"}, "city.lines: is not a key"),
    ({"city__zones": "zones.csv"}, "city.zones: is not a key this version knows. Write it into a column zone"),
    ({"trip__origin": None}, "trip.origin: is missing"),
    ({"trip__card": "card"}, "trip.card: is not a key"),
    ({"trip__origin": "bord"}, "'bord' is not a declared attribute"),
    ({"trip__origin": "alight"}, "a column for each of its parts"),
    ({"trip__origin": "tap", "trip__time": "board"}, 'the time of a trip needs role = "quasi-identifier" and kind'),
    ({"attributes__board__role": "public"}, "trip.origin: the origin of a trip needs"),
    ({"attributes__alight__kind": "category", "attributes__alight__domain": ["A"]}, "trip.destination: the dest"),
    ({"attributes__line": {"role": "public"}}, "attributes.line: a table of counts has no rows"),
    ({"attributes__line": {"role": "sensitive"}}, "attributes.line: a table of counts has no rows"),
    ({"attributes__x": {"role": QUASI, "kind": "stop"}}, "attributes.x: a table of counts has no rows"),
    ({"attributes__tap__outside": "clamp"}, "outside = clamp needs a numeric domain"),
    ({"attributes__board__outside": "clamp"}, "outside = clamp needs a numeric domain"),
    ({"attributes__tap__window_minutes": None}, "attributes.tap.window_minutes: is missing"),
    ({"attributes__tap__window_minutes": 0}, "window_minutes must be a whole number from 1"),
    ({"attributes__tap__window_minutes": "30"}, "window_minutes: must be a whole number of minutes"),
    ({"attributes__tap__domain": [4, 28]}, "attributes.tap.domain: must be"),
    ({"attributes__tap__domain": ["04:00"]}, "must be two times"),
    ({"attributes__tap__zone": "Nowhere"}, "IANA name"),
    ({"attributes__tap__zone": "localtime"}, "means something else on each machine"),
    ({"attributes__tap__day": "date"}, "attributes.tap.day: needs to know which dates there are"),
    ({"attributes__tap__windows": 3}, "attributes.tap.windows: is not a key"),
    ({"together": "card"}, "trips are counted row by row"),
    ({"protects": "package"}, "protects: counts of trips protect"),
    ({"protects": "rider"}, "contribution: a rider is protected only if"),
    ({"contribution": {"person": "card"}}, "contribution: bounding the trips of a rider"),
    ({"contribution": {"person": "card", "max": 3, "per": "day"}}, "contribution: bounding the trips of a rider"),
    ({**RIDER, "contribution__max": None}, "contribution.max: is missing"),
    ({**RIDER, "contribution__per": None}, "contribution.per: is missing"),
    ({**RIDER, "contribution__per": "week"}, "contribution.per: 'week' is not one of day | period"),
    ({**RIDER, "contribution__max": 0}, "max must be a whole number of trips from 1 to 2147483647"),
    ({**RIDER, "contribution__max": 2**31}, "max must be a whole number of trips from 1 to 2147483647"),
    ({**RIDER, "contribution__max": 1.5}, "contribution.max: must be a whole number"),
    ({**RIDER, "contribution__per": "day"}, "contribution.per: = day needs to know how many days"),
    ({**RIDER, "contribution__person": "crad"}, "contribution.person: 'crad' is not a declared"),
    ({**RIDER, "contribution__person": "board"}, "contribution.person: persons cannot be told apart"),
    (
        {
            **RIDER,
            "attributes__n": {"role": QUASI, "kind": "numeric", "domain": [0, 9]},
            "trip__count": "n",
        },
        "trip.count: rows that are counts do not say whose trips",
    ),
    (
        {
            "attributes__kind": {"role": QUASI, "kind": "ordinal", "domain": ["a"]},
            "trip__day": "kind",
            "attributes__tap__day": "weekday",
        },
        "trip.day: days are told apart by 'kind' and by 'tap'",
    ),
]


def test_what_is_refused(folder):
    for changes, words in REFUSED:
        assert words in problems_of(folder, **changes)


def test_a_wrong_bound_is_one_problem(folder):
    for bound in ({"max": 0}, {"max": 1.5}, {"max": "3"}, {"max": None}, {"per": "week"}, {"per": None}):
        with pytest.raises(PolicyError) as caught:
            read(folder, **RIDER, **{f"contribution__{key}": value for key, value in bound.items()})
        assert len(caught.value.problems) == 1
    assert "Got no bound" in problems_of(folder, protects="rider", contribution={"person": "card"})


def test_dates_and_times_without_quotes_are_one_problem(folder):
    with pytest.raises(PolicyError) as caught:
        read(folder, attributes__tap__domain=[time(4), time(22)])
    (problem,) = caught.value.problems
    assert str(problem).startswith("attributes.tap.domain: cannot be of type time")
    assert "put dates and times in quotes" in problem.remedy


def test_blank_features_may_be_deleted(folder):
    assert "mechanism.features: is blank. Fill it in, or delete the line." in problems_of(
        folder, mechanism__features=[]
    )


@pytest.mark.parametrize(
    ("features", "city", "words"),
    [
        ("O5", {"stops": "stops.csv"}, "the feature mode x window needs the mode of each pair"),
        ("O4", {"stops": "bare.csv"}, "needs the zone of each stop"),
        ([["day"]], {"stops": "stops.csv"}, 'Write day = "weekday", say, in [attributes.tap], or choose'),
    ],
)
def test_features_need_what_they_are_made_of(folder, features, city, words):
    (folder / "bare.csv").write_text("stop\nB\nA\n")
    with pytest.raises(PolicyError) as caught:
        mechanism_of(read(folder, city=city, mechanism__features=features))
    (problem,) = caught.value.problems
    assert problem.where == "mechanism.features"
    assert words in str(problem)
    assert "policy.toml" in str(caught.value)


@pytest.mark.parametrize("verb", [foresee, rehearse, publish])
def test_features_that_are_no_tree_are_the_policys(folder, verb):
    tree = {"name": "hierarchical-counts", "epsilon": 1, "features": [["mode"], ["window"]]}
    row = {"card": ["c"], "board": ["A"], "alight": ["B"], "tap": ["2026-11-15T08:12"]}
    dataset = Dataset.from_table(pa.table(row), read(folder, mechanism=tree))
    with pytest.raises(PolicyError, match=r"policy.toml: mechanism: .* features .* Use H5"):
        verb(dataset)


def test_the_owner_is_told_that_there_are_no_trips(folder):
    names = ("card", "board", "alight", "tap")
    dataset = Dataset.from_table(pa.table({name: pa.array([], pa.string()) for name in names}), read(folder))
    assert "there are no trips" in foresee(dataset).warnings[-1]
    with Ledger(":memory:") as book:
        publish(dataset, ledger=book)


def test_dates_may_come_from_a_period(folder):
    period = {"length": "month", "column": "tap"}
    assert read(folder, attributes__tap__day="date", period=period).schema.universe("2026-11").num_cells == 4 * 48 * 30
    read(folder, **{**RIDER, "contribution__per": "day"}, period=period)


def test_all_problems_at_once(folder):
    found = problems_of(
        folder, city__stops="none.csv", trip__origin=None, attributes__tap__window_minutes=None, protects="rider"
    )
    for words in ("none.csv", "trip.origin", "attributes.tap.window_minutes"):
        assert words in found
    assert "attributes.board" not in found  # nothing is wrong with it but the city's file


NUMBER = {"role": QUASI, "kind": "numeric", "domain": [0, 10]}


def test_a_stop_is_a_category_to_other_mechanisms(folder):
    others = {"trip": None, "attributes__tap": None, "attributes__alight": None}
    full = {"name": "full-domain", "k": 2}
    mechanism_of(read(folder, **others, mechanism=full, protects="ride"))
    clusters = {"name": "utility-clusters", "k": 2}
    mechanism_of(read(folder, **others, mechanism=clusters, protects="ride", attributes__fare=NUMBER))


@pytest.mark.parametrize("role", [QUASI, "public", "sensitive", "identifier"])
def test_a_time_is_of_a_trip_alone(folder, role):
    found = problems_of(folder, trip=None, protects="ride", attributes__tap__role=role)
    assert 'attributes.tap: kind = "time" is for the time of a trip' in found
    read(folder, attributes__other={**document()["attributes"]["tap"], "role": "drop"})


@pytest.mark.parametrize(
    "mechanism",
    [
        {"name": "partition", "k": 2},
        {"name": "full-domain", "k": 2},
        {"name": "noisy-values", "epsilon": 1},
        {"name": "noisy-clusters", "epsilon": 1, "borders": {"tap": [1]}},
        {"name": "sampled-lattice", "k": 2, "beta": 0.1, "epsilon_choice": 1},
    ],
)
def test_other_mechanisms_refuse_trips(folder, mechanism):
    with pytest.raises(PolicyError, match=r"trip: .* releases rows, not counts of trips"):
        mechanism_of(read(folder, mechanism=mechanism))


def test_bounds_need_trips(folder):
    others = {"trip": None, "attributes__tap": None, "protects": "ride"}
    assert "Got no [trip]" in problems_of(folder, **others, contribution=RIDER["contribution"])
    assert read(folder, **others, contribution={"person": "card"}).schema.person == "card"


def attribute(name: str, domain: Any) -> Attribute:
    return Attribute(name=name, role=Role.QUASI_IDENTIFIER, domain=domain)


def test_schemas_of_code_are_checked_alike():
    stops, windows = Stops(stops=("A",)), Windows(lower="08:00", upper="09:00", window_minutes=30)
    parts = (attribute("a", stops), attribute("b", stops), attribute("t", windows))
    trip = Trip(origin="a", destination="b", time="t")
    assert Schema(attributes=parts, protects="trip", trip=trip).universe().num_cells == 2
    others = (parts[0], attribute("b", Stops(stops=("B",))), parts[2])
    with pytest.raises(ParameterError, match="the same stops"):
        Schema(attributes=others, protects="trip", trip=trip)
    with pytest.raises(ParameterError, match="not a declared"):
        Schema(attributes=parts[:2], protects="trip", trip=trip)
    cards = tuple(Attribute(name=name, role=Role.IDENTIFIER) for name in ("c", "d"))
    bound = Contribution(person="c", max=1, per="period")
    with pytest.raises(ParameterError, match="name two columns"):
        Schema(attributes=(*parts, *cards), protects="rider", trip=trip, person="d", contribution=bound)
    with pytest.raises(ParameterError, match="under a policy with"):
        Schema(attributes=(attribute("a", Category(values=("x",))),), protects="ride").universe()
    counts = Attribute(name="count", role=Role.IDENTIFIER, counts=True)
    with pytest.raises(ParameterError, match="counts is for"):
        Schema(attributes=(*parts, counts), protects="trip", trip=trip)
    with pytest.raises(ParameterError, match="per must be one of"):
        Contribution(person="c", max=1, per="week")
