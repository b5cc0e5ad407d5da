# SPDX-License-Identifier: Apache-2.0
"""City: files of stops and modes, and everything that can be wrong with them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dunnage import city
from dunnage.city import City
from dunnage.errors import InputError

PAIRS = [(start, end) for start in "ABC" for end in "ABC"]
MODES = "origin,destination,mode\n" + "".join(f"{a},{b},{'walk' if a == b else 'bus'}\n" for a, b in PAIRS)


def written(tmp_path: Path, stops: str, modes: str | None = None) -> City:
    (tmp_path / "stops.csv").write_text(stops)
    if modes is None:
        return City.read(tmp_path / "stops.csv")
    (tmp_path / "modes.csv").write_text(modes)
    return City.read(tmp_path / "stops.csv", tmp_path / "modes.csv")


def problems_of(tmp_path: Path, stops: str, modes: str | None = None) -> list[str]:
    with pytest.raises(InputError) as caught:
        written(tmp_path, stops, modes)
    return [str(problem) for problem in caught.value.problems]


def test_everything_is_read_in_the_order_of_the_file(tmp_path):
    text = "zone,stop,lon,lat,hub\nnorth,C,-83.5,42.1,yes\nsouth,A,-83.6,42.2,\nnorth,B,-83.7,42.3,0\n"
    made = written(tmp_path, text, MODES)
    assert made.stops == ("C", "A", "B")
    assert made.zone_names == ("north", "south")
    assert made.zones.tolist() == [0, 1, 0]
    assert made.lat.tolist() == [42.1, 42.2, 42.3]
    assert made.lon.tolist() == [-83.5, -83.6, -83.7]
    assert made.hubs.tolist() == [True, False, False]
    assert made.mode_names == ("walk", "bus")
    assert made.modes.tolist() == [[0, 1, 1], [1, 0, 1], [1, 1, 0]]


def test_what_is_not_given_is_none(tmp_path):
    made = written(tmp_path, "stop\nA\n\nB\n")
    assert made.stops == ("A", "B")
    assert made.zones is made.modes is made.lat is made.lon is made.hubs is None
    assert written(tmp_path, "stop,zone,lat,lon\nA,,,\nB,,,\n") == made


def test_equal_files_make_equal_cities(tmp_path):
    stops = "stop,zone\nA,x\nB,y\nC,x\n"
    made = written(tmp_path, stops, MODES)
    header, *lines = MODES.splitlines()
    shuffled = written(tmp_path, stops, "\n".join([header, *reversed(lines)]) + "\n")
    assert shuffled == made
    assert hash(shuffled) == hash(made)
    assert shuffled != written(tmp_path, stops)
    assert written(tmp_path, "stop,zone\nA,x\nB,x\nC,x\n", MODES) != made


def test_all_problems_of_stops_at_once(tmp_path):
    text = "stop;zone;lat;lon;hub\nA;Z;1;2;\n;Z;1;2;1\nA;;100;2;1\n\nB;Q;1;x;maybe\n"
    found = "\n".join(problems_of(tmp_path, text))
    for words in (
        "line 3: the stop is blank",
        "line 4: the stop 'A' is in line 2 already",
        "line 4: other stops have a zone",
        "line 4: lat must be",
        "line 6: lon must be",
        "line 6: hub must be",
    ):
        assert words in found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("stop,name\nA,x\n", "'name' is not one of stop, zone, lat, lon, hub"),
        ("zone\nA\n", "a column stop"),
        ("stop,lat\nA,1\n", "lat and lon go together"),
        ("stop,stop\nA,B\n", "one twice"),
        ("stop,zone\nA\n", "line 2: there must be 2 cells"),
        ("stop\n", "1 to 100000 stops"),
        ("", "no lines"),
        ("stop,lat,lon\nA,nan,1\n", "lat must be"),
    ],
)
def test_stops_that_cannot_be_read(tmp_path, text, words):
    assert any(words in problem for problem in problems_of(tmp_path, text))


def test_all_problems_of_modes_at_once(tmp_path):
    modes = "origin,destination,mode\nA,B,bus\n\nA,C,bus\nA,B,walk\nB,A,\nZ,A,bus\n"
    found = problems_of(tmp_path, "stop\nA\nB\n", modes)
    assert [problem.partition(":")[0] for problem in found[:-1]] == ["line 4", "line 5", "line 6", "line 7"]
    assert "destination is not one" in found[0]
    assert "has a mode already" in found[1]
    assert "mode is blank" in found[2]
    assert "origin is not one" in found[3]
    assert "2 pairs of stops have no mode, first 'A' to 'A'" in found[4]


@pytest.mark.parametrize(
    ("modes", "words"),
    [
        ("origin,destination\nA,A\n", "the header must be origin,destination,mode"),
        ("A,A,bus\n", "the header must be origin,destination,mode"),
        ("", "the header must be origin,destination,mode"),
        ("origin,destination,mode\nA,A\n", "line 2: there must be 3 cells"),
        ("origin,destination,mode\nA,A,bus,x\n", "line 2: there must be 3 cells"),
        ("origin,destination,mode\n", "a pair of stops has no mode"),
        ("origin,destination,mode\n" + 30 * "A,Q,bus\n", "more"),
    ],
)
def test_modes_that_cannot_be_read(tmp_path, modes, words):
    assert any(words in problem for problem in problems_of(tmp_path, "stop\nA\n", modes))


def test_columns_of_modes_may_be_in_any_order_and_quoted(tmp_path):
    made = written(tmp_path, "stop\nA\n", 'mode;destination;origin\n"on\nfoot"; A ;A\n')
    assert made.mode_names == ("on\nfoot",)


def test_limits(tmp_path, monkeypatch):
    monkeypatch.setattr(city, "MOST_STOPS_WITH_MODES", 2)
    assert "at most 2 stops" in problems_of(tmp_path, "stop\nA\nB\nC\n", MODES)[0]
    monkeypatch.setattr(city, "MOST_STOPS_WITH_MODES", 3)
    monkeypatch.setattr(city, "MOST_MODES", 1)
    assert "at most 1 modes. Got 2" in problems_of(tmp_path, "stop\nA\nB\nC\n", MODES)[0]
    monkeypatch.setattr(city, "MOST_MODES_BYTES", 10)
    assert "larger than" in problems_of(tmp_path, "stop\nA\nB\nC\n", MODES)[0]


def test_many_stops_and_pairs_are_read(tmp_path):
    names = [f"S{place}" for place in range(300)]
    lines = [f"{start},{end},m{(a * b) % 7}" for a, start in enumerate(names) for b, end in enumerate(names)]
    made = written(tmp_path, "stop\n" + "\n".join(names), "origin,destination,mode\n" + "\n".join(lines))
    expected = np.multiply.outer(np.arange(300), np.arange(300)) % 7
    assert [[made.mode_names[code] for code in row] for row in made.modes[:9].tolist()] == [
        [f"m{code}" for code in row] for row in expected[:9].tolist()
    ]
    many = written(tmp_path, "stop,zone\n" + "".join(f"S{place},Z{place % 9}\n" for place in range(10_000)))
    assert len(many.stops) == 10_000
    assert len(many.zone_names) == 9
