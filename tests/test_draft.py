# SPDX-License-Identifier: Apache-2.0
"""Drafts: blanks that reading lists, comments that guide, and nothing of the values."""

from __future__ import annotations

import csv
import io
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.refusals import found, refusal

from dunnage.collecting.tasks import carriers_from_text
from dunnage.errors import InputError, ParameterError, PolicyError
from dunnage.model.draft import SEEN, STORIES, draft_policy, likely_story
from dunnage.model.policy import Policy, ReadOptions
from dunnage.model.schema import Role
from dunnage.tables.dataset import draft, load

PARCELS = {"Parcel ID": "text", "ZIP": "text", "Weight (kg)": "numeric", "fragile": "flag", "day": "time"}
TRIPS = {"card": "text", "from_stop": "text", "to_stop": "text", "departure": "time", "fare": "text"}
READINGS = {"truck": "text", "time": "time", "speed_kmh": "numeric", "lat": "numeric", "lon": "numeric", "road": "text"}
KINDS = ("numeric", "text", "time", "date", "flag")


def blanks(read: Callable[[str], object], text: str) -> list[str]:
    return sorted(problem.where for problem in refusal(PolicyError, read, text).problems)


def filled(text: str, **blank: str) -> str:
    """Fill the blanks of keys in; roles that are still blank become ``role``."""
    for key, value in blank.items():
        text = text.replace(f'{key} = ""', f"{key} = {value}").replace(f"{key} = []", f"{key} = {value}")
    return text


def told(text: str, column: str) -> str:
    return text.split(f"[attributes.{column}]\n")[1].split("\n\n")[0]


def comment_of(text: str, column: str) -> str:
    return told(text, column).splitlines()[0].partition("#")[2]


def first_role(text: str, column: str) -> str:
    """Give the role that the comment of a column names first."""
    comment = comment_of(text, column)
    return min((role for role in Role if role in comment), key=comment.index)


def tables(kinds: dict[str, str], **options: Any) -> Any:
    return tomllib.loads(draft_policy("x", kinds, **options))["attributes"]


def kinds_of(words: str) -> dict[str, str]:
    """Columns by name: with a hash numbers, with an at sign times, else text."""
    kinds = {"#": "numeric", "@": "time"}
    return {word.rstrip("#@"): kinds.get(word[-1], "text") for word in words.split()}


def test_names_tell_what_rows_stand_for():
    for kinds, story in ((PARCELS, "rows"), (TRIPS, "trips"), (READINGS, "devices")):
        assert likely_story(kinds) == story
        assert draft_policy("x", kinds) == draft_policy("x", kinds, story=story)
        for other in STORIES:
            assert (f"--story {other}" in draft_policy("x", kinds)) == (other != story)
    for words in (
        "origin destination day@ weight#",  # goods that travel
        "origin destination weekday",  # no moment
        "truck day@ content",  # nothing is measured
        "truck day@ order pallets#",  # what a truck carried
        "order due@ lat# lon#",  # where to deliver
        "kg# due@ lat# lon#",
        "container_id lat# lon# temp_c#",  # at no time
        "speed# time@",  # nobody's
        "destination kg#",
        "",
    ):
        assert likely_story(kinds_of(words)) == "rows", words
    measured = ["container_id recorded_at@ temp_c# lat# lon#", "id seen@ lat# lon#", "sensor ts@ co2#"]
    for words in (*measured, "trailer_no ts@ lat# lng#", "parcel ts@ lat# lon# shock#"):
        assert likely_story(kinds_of(words)) == "devices", words
    assert "'trips'" in str(refusal(ParameterError, draft_policy, "x", TRIPS, story="trip"))


def test_what_rows_leave_blank():
    text = draft_policy("parcels", PARCELS)
    roles = [f"attributes.{name}.role" for name in PARCELS]
    assert blanks(Policy.from_text, text) == sorted([*roles, "attributes.Weight (kg).domain", "mechanism.k"])
    policy = Policy.from_text(filled(text, role='"public"', domain="[0, 5]", k="5"))
    assert policy.schema["Weight (kg)"].numeric.upper == 5
    # A domain left blank matters only to a quasi-identifier.
    first, second = draft_policy("parcels", {"number": "numeric", "weight": "numeric"}).split("[attributes.weight]")
    text = filled(first, role='"identifier"') + "[attributes.weight]" + filled(second, role='"quasi-identifier"', k="2")
    assert blanks(Policy.from_text, text) == ["attributes.weight.domain"]
    first, second = text.split("[attributes.weight]")
    text = f"{first}[attributes.weight]{filled(second, domain='[0, 9]')}"
    assert Policy.from_text(text).schema["number"].domain is None


def test_what_trips_leave_blank(tmp_path):
    text = draft_policy("trips", TRIPS)
    blank = ["attributes.card.role", "attributes.departure.domain", "attributes.fare.role", "city.stops"]
    assert blanks(Policy.from_text, text) == [*blank, "expect.dates", "expect.trips", "mechanism.epsilon"]
    # Times that state their difference from UTC ask for a zone.
    zoned = draft_policy("x", TRIPS, seen={"departure": "offset"})
    assert "attributes.departure.zone" in blanks(Policy.from_text, zoned)
    assert "# zone = " in text
    (tmp_path / "stops.csv").write_text("stop\nA\nB\n")
    text = filled(
        text, role='"drop"', stops='"stops.csv"', domain='["06:00", "22:00"]', epsilon="1", dates="5", trips="900"
    )
    policy = Policy.from_text(text, path=tmp_path / "p.toml")
    assert policy.schema.trip is not None
    assert policy.expect.trips == 900
    assert (policy.schema.universe().num_cells, policy.schema.universe().num_dates) == (2 * 2 * 16, (5,))
    # A bound on trips needs only its comment marks taken away.
    head, tail = text.split("# [contribution]")
    text = head.replace('protects = "trip"', 'protects = "rider"') + "[contribution]" + tail.replace("\n# ", "\n")
    text = text.replace('[attributes.card]\nrole = "drop"', '[attributes.card]\nrole = "identifier"')
    refused = refusal(PolicyError, Policy.from_text, text, path=tmp_path / "p.toml").problems
    assert [problem.where for problem in refused] == ["contribution.max"]  # the owner chooses it
    text = filled(text, max="3")
    assert Policy.from_text(text, path=tmp_path / "p.toml").schema.contribution.person == "card"


def test_what_devices_leave_blank():
    text = draft_policy("fleet", READINGS)
    blank = ["allowance.lifetime", "attributes.place.box", "attributes.speed_kmh.role", "mechanisms.numbers.epsilon"]
    assert blanks(carriers_from_text, text) == [*blank, "mechanisms.places.epsilon"]
    text = text.replace('role = ""                  # quasi', 'role = "quasi-identifier"  # quasi')
    assert "attributes.speed_kmh.domain" in blanks(carriers_from_text, text)
    text = filled(text, role='"drop"', domain="[0, 130]", box="[11, 48, 12, 49]", lifetime="60", epsilon="1")
    assert [duty.name for duty in carriers_from_text(text).purposes] == ["numbers", "places"]
    text = draft_policy("x", {"truck": "text", "seen at": "time", "lat": "numeric", "Longitude": "numeric"})
    assert "dunnage device simulate DATA --task task.json -o" in text, "the task names the columns"
    assert "[read]" not in draft_policy("x", READINGS, options=ReadOptions(delimiter=";")), "files must be plain"


def test_what_a_name_usually_means():
    things = dict.fromkeys(("job#", "parcel#", "shipment#", "Order#", "parcelId", "Sendungsnr"), "identifier")
    persons = {"customer": "identifier", "Kunden-ID": "identifier"}
    amounts = {"parcel_weight#": "quasi-identifier", "weight#": "quasi-identifier", "x#": "quasi-identifier"}
    others = {"order_value#": "sensitive", "price#": "sensitive", "zip#": "public", "destination": "public"}
    for words, role in {**things, **persons, **amounts, **others, "remarks": "drop", "due@": "drop"}.items():
        ((column, kind),) = kinds_of(words).items()
        text = draft_policy("x", {column: kind})
        assert first_role(text, column) == role, words
        assert tomllib.loads(text)["attributes"][column]["role"] == ""
    assert first_role(draft_policy("x", {"x": "flag"}), "x") == "public"
    for reserved in ("row", "count"):
        assert first_role(draft_policy("x", {reserved: "numeric"}), reserved) == "drop"


def test_units_are_read_from_names_or_suggested():
    units = tables(dict.fromkeys(("Weight (kg)", "volume_m3", "size"), "numeric")).values()
    assert [table.get("unit") for table in units] == ["kg", "m3", None]
    read = {
        "Speed [km/h]": "km/h",
        "mph": "mph",
        "degF": "°F",
        "Temp (°C)": "°C",
        "v (m/s)": "m/s",
        "odometer_km": "km",
    }
    assert {name: table.get("unit") for name, table in tables(dict.fromkeys(read, "numeric")).items()} == read
    likely = {"weight_g": "g", "distance_m": "m", "Volumen (l)": "l", "temp_c": "°C", "g_force": "kg", "l": "l"}
    for name, unit in likely.items():
        assert f'# unit = "{unit}"' in draft_policy("x", {name: "numeric"})
        assert "unit" not in tables({name: "numeric"})[name]


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=8), st.sampled_from(KINDS), max_size=4),
    st.sampled_from([None, *STORIES]),
    st.sampled_from([None, *SEEN]),
    st.sampled_from([",", ";", "\t"]),
)
def test_any_names_in_any_story_are_toml(kinds, story, what, delimiter):
    seen = dict.fromkeys(kinds, what) if what else None
    options = ReadOptions(delimiter=delimiter)
    for dataset in ("x", *kinds):
        document = tomllib.loads(draft_policy(dataset, kinds, options=options, story=story, seen=seen))
        assert document["dataset"] == dataset
        if story in ("rows", "trips"):
            assert list(document.get("attributes", {})) == list(kinds)
            assert document.get("read", {}).get("delimiter", ",") == delimiter


# --- files --------------------------------------------------------------------------------------------------------


@pytest.fixture
def drafted(tmp_path: Path) -> Callable[..., str]:
    def write(*lines: str, name: str = "cells.csv", **options: Any) -> str:
        (tmp_path / name).write_text("\n".join(lines) + "\n")
        return draft(tmp_path / name, **options)

    return write


def test_types_of_cells(drafted, tmp_path):
    text = drafted(
        "a,when,noon,day,yes,n,mixed,blank",
        "x,2026-11-15T08:12:30Z,8:15,15.11.2026,Yes,1,2026-11-15,",
        ",2026-11-15 08:12,25:10:00,1/2/26,no,2.5,later,",
        story="rows",
    )
    kinds = {"when": "[period]", "noon": "[period]", "day": "[period]", "yes": "sensitive", "mixed": "identifier"}
    for column, says in kinds.items():
        assert says in comment_of(text, column), column
    assert "2026-11-15T" not in text
    document = tomllib.loads(text)["attributes"]
    assert {name for name, table in document.items() if table.get("kind") == "numeric"} == {"n"}
    moments = pa.array([0, 1], pa.timestamp("s"))
    pq.write_table(pa.table({"t": moments, "b": [True, False], "x": [1, 2]}), tmp_path / "x.parquet")
    text = draft(tmp_path / "x.parquet")
    assert "[period]" in comment_of(text, "t")
    assert "sensitive" in comment_of(text, "b")
    assert tomllib.loads(text)["attributes"]["x"]["kind"] == "numeric"


def test_how_numbers_are_written_is_told_and_no_value_is(drafted, tmp_path):
    rows = [f"{number};1,5;11,25;10.50" for number in range(30)]
    text = drafted("nr;weight;volume;price", *rows, "31;2,5;1.234,5;75.99")
    document = tomllib.loads(text)
    assert document["read"] == {"delimiter": ";", "decimal": ","}
    assert document["attributes"]["weight"]["kind"] == "numeric"
    assert "kind" not in document["attributes"]["volume"]
    assert SEEN["thousands"] in told(text, "volume")
    assert '# kind = "numeric"' in told(text, "volume")
    assert SEEN["point"] in told(text, "price")
    for value in ("1,5", "11,25", "10.50", "1.234", "75.99"):
        assert value not in text
    # A decimal comma that is not read is suggested.
    text = drafted("weight;price", "1,5;10.5", "2,5;11.5")
    assert tomllib.loads(text)["read"] == {"delimiter": ";"}
    assert SEEN["comma"] in told(text, "weight")
    assert '# decimal = ","' in text.split("\n[read]\n")[1]
    text = drafted("weight,price", '"1,5",10.5', '"2,5",11.5')
    assert SEEN["comma"] in told(text, "weight")
    assert "[read]" not in text.split("[mechanism]")[1]
    text = drafted("weight,town", "1.5,Bern", "n.a.,Chur", "2,4051")
    assert SEEN["words"] in told(text, "weight")
    assert "category" in told(text, "town")
    path = tmp_path / "pakete.csv"
    path.write_bytes("nr;gew;ort\n1;1,5;Köln\n2;2,25;Bonn\n".encode("latin-1"))
    text = draft(path)
    assert tomllib.loads(text)["read"] == {"delimiter": ";", "decimal": ",", "encoding": "latin-1"}
    assert len(load(path, Policy.from_text(filled(text, role='"public"', k="2")))) == 2


def test_what_else_is_seen_of_cells(drafted, tmp_path):
    rows = ["from_stop,to_stop,departure", "A,B,2026-09-11T19:43:04+02:00"]
    assert 'zone = "" ' in drafted(*rows)
    assert 'zone = "" ' not in drafted(rows[0], "A,B,2026-09-11T19:43:04")
    text = drafted("id,weight_kg")  # a header alone
    assert text.count(SEEN["nothing"]) == 2
    assert '# unit = "kg"' in told(text, "weight_kg")
    for delimiter in (";", "\t", "|"):
        document = tomllib.loads(drafted(*(line.replace(",", delimiter) for line in ("id,town", "1,A", "2,B"))))
        assert (list(document["attributes"]), document["read"]) == (["id", "town"], {"delimiter": delimiter})
    text = drafted("Order\tweight", *(f"O{number}\t1.5" for number in range(4)), name="orders.tsv")
    assert tomllib.loads(text)["read"] == {"delimiter": "\t"}
    whole = filled(text, role='"public"', k="2")
    for policy in (whole, whole.split("[read]")[0]):
        assert len(load(tmp_path / "orders.tsv", Policy.from_text(policy))) == 4
    names = ['a "b"', "a.b", "[x]", "größe", "😀", "a\\b", "x\x7f", "", "line\nline"]
    header = io.StringIO()
    csv.writer(header).writerow(names)
    assert list(tomllib.loads(drafted(header.getvalue()))["attributes"]) == names
    text = drafted("id,town,weight", "x1,canary-83721,83721", "x2,B,", name="parcels.2026.csv")
    assert "83721" not in text
    document = tomllib.loads(text)
    assert document["dataset"] == "parcels"
    kinds = {name: table.get("kind") for name, table in document["attributes"].items()}
    assert kinds == {"id": None, "town": None, "weight": "numeric"}
    pq.write_table(pa.table({"id": ["a"], "town": ["x"], "weight": [1.5]}), tmp_path / "d.parquet")
    assert tomllib.loads(draft(tmp_path / "d.parquet"))["attributes"] == document["attributes"]


def test_files_that_cannot_be_drafted(drafted, tmp_path):
    assert found(refusal(InputError, drafted, "a,b,a", "1,2,3")) == [("a",)]
    assert "83721" not in str(refusal(InputError, drafted, "83721,83721,5", "1,2,3"))
    for lines, line in ((["a,b", "1,2", "3"], 3), (['a,"b', 'c"', "", "1,2,3", "1,2"], 4)):
        assert f"line {line}" in str(refusal(InputError, drafted, *lines))
    for name in ("x.txt", "empty.csv", "empty.parquet"):
        (tmp_path / name).write_text("")
        refusal(InputError, draft, tmp_path / name)
    for path in (tmp_path, tmp_path / "no.csv"):
        refusal(InputError, draft, path)
    refusal(ParameterError, draft, pa.table({"a": [1]}))


@pytest.mark.parametrize("ends", [("tap_on_stop", "tap_off_stop"), ("in_station", "out_station"), ("start", "end")])
def test_stops_by_any_usual_name_are_the_ends_of_trips(ends: tuple[str, str]) -> None:
    kinds = {"card": "text", ends[0]: "text", ends[1]: "numeric", "tapped": "time"}
    assert likely_story(kinds) == "trips"
    text = draft_policy("taps", kinds)
    assert f'origin = "{ends[0]}"' in text
    assert f'destination = "{ends[1]}"' in text


def test_rides_as_rows_are_not_drafted_as_loads() -> None:
    """Drafts of rides named trucks, dropped stations and times, and took a mechanism for numbers."""
    kinds = {"card": "text", "from_station": "text", "to_station": "text", "departure": "time", "fare": "numeric"}
    text = draft_policy("rides", kinds, story="rows")
    assert not any(word in text for word in ("truck", "loading", "partition"))
    assert [text.count(f'# kind = "{kind}"') for kind in ("graph", "clock")] == [2, 1]
    assert all(line in text for line in ('protects = "ride"', 'name = "utility-clusters"', "--goal distortion"))
    loads = draft_policy("loads", {"parcel": "text", "weight": "numeric"}, story="rows")
    assert all(word in loads for word in ("trucks", "[loading]", "partition"))
