# SPDX-License-Identifier: Apache-2.0
"""City: its files and everything that can be wrong with them, travel times, zones, homes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dunnage.errors import InputError, OutputError, ParameterError, Refusal
from dunnage.model import city as city_module
from dunnage.model.city import Buses, City

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


def test_stops_that_cannot_be_read(tmp_path):
    for text, words in (
        ("stop,colour\nA,x\n", "'colour' is not one of stop, zone, lat, lon, hub, name"),
        ("zone\nA\n", "a column stop"),
        ("stop,lat\nA,1\n", "lat and lon go together"),
        ("stop,stop\nA,B\n", "one twice"),
        ("stop,zone\nA\n", "line 2: there must be 2 cells"),
        ("stop\n", "1 to 100000 stops"),
        ("", "no lines"),
        ("stop,lat,lon\nA,nan,1\n", "lat must be"),
    ):
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


def test_modes_that_cannot_be_read(tmp_path):
    header = "origin,destination,mode\n"
    for modes, words in (
        ("origin,destination\nA,A\n", "the header must be origin,destination,mode"),
        ("A,A,bus\n", "the header must be origin,destination,mode"),
        ("", "the header must be origin,destination,mode"),
        (header + "A,A\n", "line 2: there must be 3 cells"),
        (header + "A,A,bus,x\n", "line 2: there must be 3 cells"),
        (header, "a pair of stops has no mode"),
        (header + 30 * "A,Q,bus\n", "more"),
    ):
        assert any(words in problem for problem in problems_of(tmp_path, "stop\nA\n", modes))


def test_columns_of_modes_may_be_in_any_order_and_quoted(tmp_path):
    made = written(tmp_path, "stop\nA\n", 'mode;destination;origin\n"on\nfoot"; A ;A\n')
    assert made.mode_names == ("on\nfoot",)


def test_limits(tmp_path, monkeypatch):
    monkeypatch.setattr(city_module, "MAX_STOPS_WITH_PAIRS", 2)
    assert "at most 2 stops" in problems_of(tmp_path, "stop\nA\nB\nC\n", MODES)[0]
    monkeypatch.setattr(city_module, "MAX_STOPS_WITH_PAIRS", 3)
    monkeypatch.setattr(city_module, "MAX_MODES", 1)
    assert "at most 1 modes. Got 2" in problems_of(tmp_path, "stop\nA\nB\nC\n", MODES)[0]
    monkeypatch.setattr(city_module, "MAX_PAIRS_BYTES", 10)
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


# Folders: travel times, buses, what was assumed

STOPS = "stop,zone,lat,lon,hub\nA,x,42,-83,1\nB,x,42.01,-83,\nC,y,42.02,-83,1\n"
TIMES = "from,to,seconds\n" + "".join(f"{a},{b},{60 + 10 * place}\n" for place, (a, b) in enumerate(PAIRS) if a != b)
BUS_COLUMNS = {"origins": [0, 2], "destinations": [2, 0], "seconds": [9, 8], "headway_seconds": [7, 6]}
BUSES = "from,to,seconds,headway_seconds\nC,A,300,600\nA,C,240,600\n"


def folder(tmp_path: Path, **files: str) -> Path:
    place = tmp_path / "city"
    place.mkdir(exist_ok=True)
    for name, text in {"stops": STOPS, **files}.items():
        (place / f"{name}.{'json' if name == 'city' else 'csv'}").write_text(text)
    return place


def folder_problems(tmp_path: Path, **files: str) -> str:
    with pytest.raises(InputError) as caught:
        City.read_folder(folder(tmp_path, **files))
    return str(caught.value)


def test_a_folder_is_read_whole(tmp_path):
    said = '{"format": 1, "assumed": ["Made up."]}'
    made = City.read_folder(folder(tmp_path, times=TIMES, buses=BUSES, modes=MODES, city=said))
    assert made.times.tolist() == [[0, 70, 80], [90, 0, 110], [120, 130, 0]]
    assert made.times.dtype == np.int32
    assert made.buses.origins.tolist() == [0, 2]
    assert made.buses.destinations.tolist() == [2, 0]
    assert made.buses.seconds.tolist() == [240, 300]
    assert made.buses.headway_seconds.tolist() == [600, 600]
    assert made.mode_names == ("walk", "bus")
    assert made.assumed == ("Made up.",)
    assert len(made.buses) == 2


def test_what_is_written_is_read_back_equal(tmp_path):
    names = ('Zoë, "the" hub', "a;b", "line\nbreak", "=1+1", "日本")
    generator = np.random.default_rng(1)
    times = generator.integers(1, 999, (5, 5)).astype(np.int32)
    np.fill_diagonal(times, 0)
    made = City(
        stops=names,
        zone_names=("x, y", "z"),
        zones=np.array([0, 1, 0, 1, 1], dtype=np.int32),
        lat=generator.uniform(-90, 90, 5),
        lon=generator.uniform(-180, 180, 5),
        hubs=np.array([True, False, True, False, False]),
        times=times,
        buses=Buses(**{name: np.array(column, np.int32) for name, column in BUS_COLUMNS.items()}),
        assumed=("It is — made up.",),
    ).with_modes(["bus", "walk"], generator.integers(0, 2, (5, 5)))
    assert City.read_folder(made.write(tmp_path / "new")) == made
    with pytest.raises(OutputError, match="exists already"):
        made.write(tmp_path / "new")
    fewer = City(stops=names)
    assert City.read_folder(fewer.write(tmp_path / "new", force=True)) == fewer
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["city.json", "stops.csv"]
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_all_problems_of_times_at_once(tmp_path):
    times = "from,to,seconds\nA,A,5\nA,B,-1\nA,C,x\nA,B,3\nB,Q,4\nB,A,inf\nB,C,\nC,A,86401\n\nC,B,0.5\n"
    found = folder_problems(tmp_path, times=times)
    for words in (
        "line 2: a stop is 0 seconds from itself",
        "line 3: seconds must be a number from 0 to 86400: all stops are within reach",
        "line 4: seconds must be",
        "line 5: this pair of stops has a travel time already",
        "line 6: to is not one of the stops",
        "line 7: seconds must be",
        "line 8: seconds must be",
        "line 9: seconds must be",
    ):
        assert words in found
    assert "line 11" not in found
    half = City.read_folder(folder(tmp_path, times=TIMES.replace("C,B,130", "C,B,0.5")))
    assert half.times[2, 1] == 1


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"times": "from,to,seconds\nA,B,1\n"}, "5 pairs of stops have no travel time, first 'A' to 'C'"),
        ({"times": "from,to\nA,B\n"}, "the header must be from,to,seconds"),
        ({"times": TIMES.replace("A,B,70", "A,B")}, "there must be 3 cells"),
        ({"buses": "from,to,seconds,headway_seconds\nA,B,1,2\n"}, "line 2: a bus goes from hub to hub"),
        ({"buses": "from,to,seconds,headway_seconds\nA,A,1,2\n"}, "from one stop to another"),
        ({"buses": "from,to,seconds,headway_seconds\nA,C,1,0\n"}, "headway_seconds must be"),
        ({"buses": "from,to,seconds,headway_seconds\nA,C,,9\n"}, "seconds must be"),
        ({"buses": "from,to,seconds,headway_seconds\nA,C,1,9\nA,C,2,9\n"}, "has a bus already"),
        ({"buses": "from,to,seconds,headway_seconds\nA,Z,1,9\n"}, "to is not one of the stops"),
        ({"city": "{"}, "this is not JSON"),
        ({"city": "[]"}, "format must be 1"),
        ({"city": '{"format": 2}'}, "format must be 1"),
        ({"city": '{"format": 1, "assumed": "x"}'}, "a list of at most"),
        ({"stops": "stop\nA\nA\n"}, "in line 2 already"),
    ],
)
def test_folders_that_cannot_be_read(tmp_path, files, words):
    assert words in folder_problems(tmp_path, **files)


def test_parts_of_a_second_are_rounded(tmp_path):
    (tmp_path / "stops.csv").write_text("stop\na\nb\n")
    (tmp_path / "times.csv").write_text("from,to,seconds\na,b,1.5\nb,a,2.4\n")
    assert City.read_folder(tmp_path).times.tolist() == [[0, 2], [2, 0]]


def test_a_folder_without_stops_is_none(tmp_path):
    with pytest.raises(InputError, match=r"there is no stops\.csv"):
        City.read_folder(tmp_path)


def test_times_of_too_many_stops_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(city_module, "MAX_STOPS_WITH_PAIRS", 2)
    assert "travel times are read for at most 2 stops" in folder_problems(tmp_path, times=TIMES)


def test_a_city_made_in_python_is_checked():
    hubs = np.array([True, False, True])
    with pytest.raises(ParameterError, match="times must be seconds"):
        City(stops=("a", "b"), times=np.ones((2, 2), np.int32))
    with pytest.raises(ParameterError, match="times must be seconds"):
        City(stops=("a", "b"), times=np.zeros((2, 3), np.int32))
    buses = Buses(**{name: np.array([0, 1], np.int32) for name in BUS_COLUMNS})
    with pytest.raises(ParameterError, match="buses go from hub to hub"):
        City(stops=("a", "b", "c"), hubs=hubs, buses=buses)


# Travel times, zones, homes


def test_distances_are_those_on_a_sphere():
    """A degree of latitude, a quarter of the equator, and two towns whose distance is known: 343.6 km."""
    lat, lon = np.array([0.0, 1.0, 0.0, 51.5074, 48.8566]), np.array([0.0, 0.0, 90.0, -0.1278, 2.3522])
    far = City(stops=tuple("abcde"), lat=lat, lon=lon).kilometres()
    assert far[0, 1] == pytest.approx(111.195, abs=0.001)
    assert far[0, 2] == pytest.approx(10007.557, abs=0.01)
    assert far[3, 4] == pytest.approx(343.56, abs=0.1)
    assert np.allclose(far, far.T)
    assert not np.diagonal(far).any()


def test_travel_times_from_coordinates_say_what_was_assumed():
    made = City(stops=("a", "b"), lat=np.array([0.0, 0.1]), lon=np.zeros(2)).with_times(speed_kmh=20, detour=1.5)
    assert made.times[0, 1] == round(11.1195 * 1.5 / 20 * 3600)
    assert made.assumed == (
        "Travel times are distances as the crow flies, times 1.5 for detours, at 20 km/h: none were given.",
    )
    assert made.with_times() is made


@pytest.mark.parametrize(
    ("made", "arguments", "error", "words"),
    [
        ({}, {}, Refusal, "neither travel times nor coordinates"),
        ({"lat": np.array([0.0, 80]), "lon": np.array([0.0, 170])}, {}, Refusal, "Check lat and lon"),
        ({"lat": np.zeros(2), "lon": np.zeros(2)}, {"speed_kmh": 0}, ParameterError, "a speed is above 0"),
        ({"lat": np.zeros(2), "lon": np.zeros(2)}, {"detour": 0.9}, ParameterError, "a detour at least 1"),
        ({"lat": np.zeros(2), "lon": np.zeros(2)}, {"speed_kmh": float("nan")}, ParameterError, "a speed is above 0"),
    ],
)
def test_travel_times_that_cannot_be_computed(made, arguments, error, words):
    with pytest.raises(error, match=words):
        City(stops=("a", "b"), **made).with_times(**arguments)


def test_fleets_need_zones_and_times():
    zones = {"zone_names": ("x",), "zones": np.zeros(2, np.int32)}
    with pytest.raises(Refusal, match=r"no zones \(a column zone in stops.csv"):
        City(stops=("a", "b"), times=np.zeros((2, 2), np.int32)).for_fleets()
    with pytest.raises(Refusal, match=r"no travel times \(times.csv"):
        City(stops=("a", "b"), **zones).for_fleets()
    assert City(stops=("a", "b"), lat=np.zeros(2), lon=np.zeros(2), **zones).for_fleets().times is not None


def test_zones_are_cut_evenly_and_apart():
    generator = np.random.default_rng(2)
    made = City(stops=tuple(map(str, range(53))), lat=generator.random(53), lon=generator.random(53))
    for num in (1, 2, 3, 4, 7, 53):
        cut = made.with_zones(num)
        sizes = np.bincount(cut.zones, minlength=num)
        assert sizes.max() - sizes.min() <= 2
        assert len(cut.zone_names) == num == len(sizes)
        _, first = np.unique(cut.zones, return_index=True)
        assert (np.diff(first) > 0).all()
    halves = made.with_zones(2)
    axis = made.lat if np.ptp(made.lat) > np.ptp(made.lon) * np.cos(np.radians(np.median(made.lat))) else made.lon
    sides = [axis[halves.zones == zone] for zone in (0, 1)]
    assert sides[0].max() <= sides[1].min() or sides[1].max() <= sides[0].min()
    for num in (0, 54):
        with pytest.raises(ParameterError, match="Ask for fewer"):
            made.with_zones(num)
    with pytest.raises(Refusal, match="where stops are"):
        City(stops=("a",)).with_zones(1)


def test_shuttles_are_at_home_at_the_hub_or_stop_nearest_to_their_zone():
    line = np.arange(6)
    made = City(
        stops=tuple("abcdef"),
        zone_names=("x", "y"),
        zones=np.array([0, 0, 0, 1, 1, 1], np.int32),
        times=(60 * np.abs(line[:, None] - line)).astype(np.int32),
        hubs=np.array([1, 0, 0, 0, 0, 0], bool),
    )
    assert made.homes.tolist() == [0, 4]
