# SPDX-License-Identifier: Apache-2.0
"""Drafts: blanks that reading lists, comments that guide, and nothing of the values."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dunnage.collecting.tasks import carriers_from_text
from dunnage.errors import InputError, ParameterError, PolicyError
from dunnage.model.draft import SEEN, STORIES, draft_policy, likely_story
from dunnage.model.policy import Policy, ReadOptions
from dunnage.tables.dataset import draft

PARCELS = {"Parcel ID": "text", "ZIP": "text", "Weight (kg)": "numeric", "fragile": "flag", "day": "time"}
TRIPS = {"card": "text", "from_stop": "text", "to_stop": "text", "departure": "time", "fare": "text"}
READINGS = {"truck": "text", "time": "time", "speed_kmh": "numeric", "lat": "numeric", "lon": "numeric", "road": "text"}
KINDS = ("numeric", "text", "time", "date", "flag")


def problems(read: Callable[[str], object], text: str) -> list[str]:
    with pytest.raises(PolicyError) as error:
        read(text)
    return [line.strip("- ").partition(". ")[0] for line in str(error.value).splitlines() if ": is " in line]


def comment_of(text: str, column: str) -> str:
    table = text.split(f"[attributes.{column}]\n")[1]
    return table.splitlines()[0].partition("#")[2]


@pytest.mark.parametrize(("kinds", "story"), [(PARCELS, "rows"), (TRIPS, "trips"), (READINGS, "devices")])
def test_names_tell_what_rows_stand_for(kinds, story):
    assert likely_story(kinds) == story
    assert draft_policy("x", kinds) == draft_policy("x", kinds, story=story)
    for other in STORIES:
        assert (f"--story {other}" in draft_policy("x", kinds)) == (other != story)


def kinds_of(words: str) -> dict[str, str]:
    """Columns by name: with a hash numbers, with an at sign times, else text."""
    kinds = {"#": "numeric", "@": "time"}
    return {word.rstrip("#@"): kinds.get(word[-1], "text") for word in words.split()}


def test_what_names_look_like():
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
    for words in (
        "container_id recorded_at@ temp_c# lat# lon#",
        "id seen@ lat# lon#",
        "sensor ts@ co2#",
        "trailer_no ts@ lat# lng#",
        "parcel ts@ lat# lon# shock#",
    ):
        assert likely_story(kinds_of(words)) == "devices", words


def test_a_story_that_is_none():
    with pytest.raises(ParameterError, match=r"unknown story. Got 'trip'. Did you mean 'trips'\?"):
        draft_policy("x", TRIPS, story="trip")


def test_what_rows_leave_blank():
    found = problems(Policy.from_text, draft_policy("parcels", PARCELS))
    assert sorted(line.partition(": ")[0] for line in found) == sorted(
        [*(f"attributes.{name}.role" for name in PARCELS), "attributes.Weight (kg).domain", "mechanism.k"]
    )


def test_what_trips_leave_blank(tmp_path):
    text = draft_policy("trips", TRIPS)
    assert sorted(line.partition(": ")[0] for line in problems(Policy.from_text, text)) == [
        "attributes.card.role",
        "attributes.departure.domain",
        "attributes.fare.role",
        "city.stops",
        "mechanism.epsilon",
    ]
    (tmp_path / "stops.csv").write_text("stop\nA\nB\n")
    text = text.replace('role = "" ', 'role = "drop" ').replace('stops = ""', 'stops = "stops.csv"')
    text = text.replace("domain = []", 'domain = ["06:00", "22:00"]').replace('epsilon = ""', "epsilon = 1")
    policy = Policy.from_text(text, path=tmp_path / "p.toml")
    assert policy.schema.trip is not None
    assert policy.schema.universe().num_cells == 2 * 2 * 16


def test_a_bound_on_trips_needs_only_its_comment_marks_taken_away(tmp_path):
    (tmp_path / "stops.csv").write_text("stop\nA\nB\n")
    text = (
        draft_policy("trips", TRIPS)
        .replace('role = "" ', 'role = "drop" ')
        .replace('stops = ""', 'stops = "stops.csv"')
    )
    text = text.replace("domain = []", 'domain = ["06:00", "22:00"]').replace('epsilon = ""', "epsilon = 1")
    head, tail = text.split("# [contribution]")
    text = head.replace('protects = "trip"', 'protects = "rider"') + "[contribution]" + tail.replace("\n# ", "\n")
    text = text.replace('[attributes.card]\nrole = "drop"', '[attributes.card]\nrole = "identifier"')
    assert Policy.from_text(text, path=tmp_path / "p.toml").schema.contribution.person == "card"


def test_what_devices_leave_blank():
    text = draft_policy("fleet", READINGS)
    assert sorted(line.partition(": ")[0] for line in problems(carriers_from_text, text)) == [
        "allowance.lifetime",
        "attributes.place.box",
        "attributes.speed_kmh.role",
        "mechanisms.numbers.epsilon",
        "mechanisms.places.epsilon",
    ]
    text = text.replace('role = ""                  # quasi', 'role = "quasi-identifier"  # quasi')
    assert any("attributes.speed_kmh.domain" in line for line in problems(carriers_from_text, text))
    text = text.replace('role = "" ', 'role = "drop" ').replace("domain = []", "domain = [0, 130]")
    text = text.replace("box = []", "box = [11, 48, 12, 49]").replace('lifetime = ""', "lifetime = 60")
    carriers = carriers_from_text(text.replace('epsilon = ""', "epsilon = 1"))
    assert [duty.name for duty in carriers.purposes] == ["numbers", "places"]


MEANINGS = [
    ("row", "numeric", "releases use this name"),
    ("count", "text", "releases use this name"),
    ("parcelId", "text", "identifier"),
    ("Sendungsnr", "text", "identifier"),
    ("customer", "text", "identifier, if it names a person"),
    ("Kunden-ID", "text", "identifier, if it names a person"),
    *((name, "numeric", "identifier, if it names one record") for name in ("job", "parcel", "shipment", "Order")),
    ("parcel_weight", "numeric", "quasi-identifier"),
    ("order_value", "numeric", "sensitive"),
    ("weight", "numeric", "quasi-identifier"),
    ("zip", "numeric", "public"),
    ("destination", "text", "public"),
    ("remarks", "text", "drop"),
    ("due", "date", "drop, or public"),
    ("price", "numeric", "sensitive"),
    ("x", "flag", "public if everyone"),
    ("x", "numeric", "quasi-identifier"),
]


def test_what_a_name_usually_means():
    for column, kind, says in MEANINGS:
        text = draft_policy("x", {column: kind})
        assert says in comment_of(text, column)
        assert tomllib.loads(text)["attributes"][column]["role"] == ""


def test_units_are_read_from_names():
    tables = tomllib.loads(draft_policy("x", dict.fromkeys(("Weight (kg)", "volume_m3", "size"), "numeric")))[
        "attributes"
    ]
    assert [table.get("unit") for table in tables.values()] == ["kg", "m3", None]


def test_units_that_a_name_may_mean_are_suggested():
    likely = {"weight_g": "g", "distance_m": "m", "Volumen (l)": "l", "temp_c": "°C", "g_force": "kg", "l": "l"}
    for name, unit in likely.items():
        text = draft_policy("x", {name: "numeric"})
        assert f'# unit = "{unit}"' in text
        assert "unit" not in tomllib.loads(text)["attributes"][name]


def test_two_kinds_of_reports_are_said_to_be_two():
    text = draft_policy("x", READINGS)
    for says in ("Keep only those you need", "--devices N", "--allow-noise", "delete [attributes.place]"):
        assert text.count(says) == 1
    assert "Keep only" not in draft_policy("x", {name: kind for name, kind in READINGS.items() if name != "lat"})


def test_times_that_state_their_difference_from_utc_ask_for_a_zone():
    text = draft_policy("x", TRIPS, seen={"departure": "offset"})
    assert "attributes.departure.zone" in {line.partition(": ")[0] for line in problems(Policy.from_text, text)}
    assert "# zone = " in draft_policy("x", TRIPS)


def test_a_draft_for_devices_says_how_to_try_it_out():
    text = draft_policy("x", {"truck": "text", "seen at": "time", "lat": "numeric", "Longitude": "numeric"})
    assert "--vehicle-column truck --time-column NAME --place-columns Longitude,lat -o" in text
    assert "task.json -o reports" in draft_policy("x", {**READINGS, "vehicle": "text"}).replace(
        " --vehicle-column truck", ""
    )


def test_files_of_devices_must_be_plain():
    assert "save this one so" in draft_policy("x", READINGS, options=ReadOptions(delimiter=";"))
    assert "[read]" not in draft_policy("x", READINGS, options=ReadOptions(delimiter=";"))


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=8), st.sampled_from(KINDS), max_size=4),
    st.sampled_from([None, *STORIES]),
    st.sampled_from([None, *SEEN]),
    st.sampled_from([",", ";"]),
)
def test_any_names_in_any_story_are_toml(kinds, story, what, delimiter):
    seen = dict.fromkeys(kinds, what) if what else None
    options = ReadOptions(delimiter=delimiter)
    document = tomllib.loads(draft_policy("x", kinds, options=options, story=story, seen=seen))
    if story != "devices":
        assert list(document.get("attributes", {})) == list(kinds)


def test_types_of_cells(tmp_path: Path):
    lines = [
        "a,when,noon,day,yes,n,mixed,blank",
        "x,2026-11-15T08:12:30Z,8:15,15.11.2026,Yes,1,2026-11-15,",
        ",2026-11-15 08:12,25:10:00,1/2/26,no,2.5,later,",
    ]
    path = tmp_path / "cells.csv"
    path.write_text("\n".join(lines) + "\n")
    text = draft(path, story="rows")
    assert "the time of day" not in text
    for column, says in {
        "when": "[period]",
        "noon": "[period]",
        "day": "[period]",
        "yes": "sensitive if",
        "mixed": "else identifier",
    }.items():
        assert says in comment_of(text, column), column
    assert "these are not" in text.split("[attributes.day]")[1].split("[attributes.yes]")[0]
    assert "2026-11-15T" not in text


def test_types_of_parquet(tmp_path: Path):
    moments = pa.array([0, 1], pa.timestamp("s"))
    pq.write_table(pa.table({"t": moments, "b": [True, False], "x": [1, 2]}), tmp_path / "x.parquet")
    text = draft(tmp_path / "x.parquet")
    assert "[period]" in comment_of(text, "t")
    assert "sensitive if" in comment_of(text, "b")
    assert tomllib.loads(text)["attributes"]["x"]["kind"] == "numeric"


# --- how cells are written ----------------------------------------------------------------------------------------


def drafted(folder: Path, lines: list[str], name: str = "cells.csv") -> str:
    (folder / name).write_text("\n".join(lines) + "\n")
    return draft(folder / name)


def told(text: str, column: str) -> str:
    return text.split(f"[attributes.{column}]\n")[1].split("\n\n")[0]


def test_decimal_marks_that_are_mixed_are_told_and_no_value_is(tmp_path: Path):
    rows = ["nr;weight;volume;price", *(f"{number};1,5;11,25;10.50" for number in range(30)), "31;2,5;1.234,5;75.99"]
    text = drafted(tmp_path, rows)
    document = tomllib.loads(text)
    assert document["read"] == {"delimiter": ";", "decimal": ","}
    assert document["attributes"]["weight"]["kind"] == "numeric"
    assert "kind" not in document["attributes"]["volume"]
    assert "marks between thousands" in told(text, "volume")
    assert '# kind = "numeric"' in told(text, "volume")
    assert "a decimal point" in told(text, "price")
    for value in ("1,5", "11,25", "10.50", "1.234", "75.99"):
        assert value not in text


def test_a_decimal_comma_that_is_not_read_is_suggested(tmp_path: Path):
    text = drafted(tmp_path, ["weight;price", "1,5;10.5", "2,5;11.5"])
    assert tomllib.loads(text)["read"] == {"delimiter": ";"}
    assert "some cells look like numbers with a decimal comma" in told(text, "weight")
    assert '# decimal = ","' in text.split("\n[read]\n")[1]
    text = drafted(tmp_path, ["weight,price", '"1,5",10.5', '"2,5",11.5'])
    assert "save the file with semicolons" in told(text, "weight")
    assert "[read]" not in text.split("[mechanism]")[1]


def test_numbers_among_words_are_told(tmp_path: Path):
    text = drafted(tmp_path, ["weight,town", "1.5,Bern", "n.a.,Chur", "2,4051"])
    assert "words such as n/a in [read] null" in told(text, "weight")
    assert "category" in told(text, "town")


def test_times_with_an_offset_are_seen(tmp_path: Path):
    rows = ["from_stop,to_stop,departure", "A,B,2026-09-11T19:43:04+02:00"]
    assert 'zone = "" ' in drafted(tmp_path, rows)
    assert 'zone = "" ' not in drafted(tmp_path, [rows[0], "A,B,2026-09-11T19:43:04"])


def test_columns_of_one_name_are_refused_by_name(tmp_path: Path):
    with pytest.raises(InputError, match="column 'a': appears several times"):
        drafted(tmp_path, ["a,b,a", "1,2,3"])
    with pytest.raises(InputError, match="first line seems to hold values") as error:
        drafted(tmp_path, ["83721,83721,5", "1,2,3"])
    assert "83721" not in str(error.value)


@pytest.mark.parametrize(("lines", "line"), [(["a,b", "1,2", "3"], 3), (['a,"b', 'c"', "", "1,2,3", "1,2"], 4)])
def test_ragged_lines_are_refused_by_number(tmp_path: Path, lines: list[str], line: int):
    with pytest.raises(InputError, match=rf"more or fewer cells .* Look at line {line} of the file"):
        drafted(tmp_path, lines)


def test_a_header_alone_is_drafted_and_said_to_be_alone(tmp_path: Path):
    text = drafted(tmp_path, ["id,weight_kg"])
    assert text.count("there are no rows") == 2
    assert '# unit = "kg"' in told(text, "weight_kg")


def test_tabs(tmp_path: Path):
    from dunnage.tables.dataset import load

    text = drafted(tmp_path, ["Order\tweight", *(f"O{number}\t1.5" for number in range(4))], "orders.tsv")
    assert tomllib.loads(text)["read"] == {"delimiter": "\t"}
    filled = text.replace('role = "" ', 'role = "public" ').replace('k = ""', "k = 2")
    assert len(load(tmp_path / "orders.tsv", Policy.from_text(filled))) == 4
    assert len(load(tmp_path / "orders.tsv", Policy.from_text(filled.split("[read]")[0]))) == 4
