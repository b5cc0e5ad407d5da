# SPDX-License-Identifier: Apache-2.0
"""City: its files and everything that can be wrong with them, travel times, zones, homes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from dunnage.errors import InputError, OutputError, ParameterError, Refusal
from dunnage.model import city as city_module
from dunnage.model.city import Buses, City
from dunnage.model.routes import find_routes

PAIRS = [(start, end) for start in "ABC" for end in "ABC"]
MODES = "origin,destination,mode\n" + "".join(f"{a},{b},{'walk' if a == b else 'bus'}\n" for a, b in PAIRS)


def written(tmp_path: Path, stops: str, modes: str | None = None) -> City:
    (tmp_path / "stops.csv").write_text(stops)
    if modes is not None:
        (tmp_path / "modes.csv").write_text(modes)
    return City.read(tmp_path / "stops.csv", None if modes is None else tmp_path / "modes.csv")


def refused(facts: list[str], read: Callable[..., City], *args: object, **more: object) -> list[str]:
    """Check that what is read has these problems at least: lines and columns or names; returns them all."""
    with pytest.raises(InputError) as caught:
        read(*args, **more)
    problems = [str(problem) for problem in caught.value.problems]
    for fact in facts:
        assert any(all(word in problem for word in fact.split("|")) for problem in problems), (fact, problems)
    return problems


def test_everything_is_read_in_the_order_of_the_file(tmp_path):
    text = "zone,stop,lon,lat,hub\nnorth,C,-83.5,42.1,yes\nsouth,A,-83.6,42.2,\nnorth,B,-83.7,42.3,0\n"
    made = written(tmp_path, text, MODES)
    assert (made.stops, made.zone_names) == (("C", "A", "B"), ("north", "south"))
    assert (made.zones.tolist(), made.lat.tolist()) == ([0, 1, 0], [42.1, 42.2, 42.3])
    assert (made.lon.tolist(), made.hubs.tolist()) == ([-83.5, -83.6, -83.7], [True, False, False])
    assert (made.mode_names, made.modes.tolist()) == (("walk", "bus"), [[0, 1, 1], [1, 0, 1], [1, 1, 0]])
    bare = written(tmp_path, "stop\nA\n\nB\n")
    assert bare.stops == ("A", "B")
    assert bare.zones is bare.modes is bare.lat is bare.lon is bare.hubs is None
    assert written(tmp_path, "stop,zone,lat,lon\nA,,,\nB,,,\n") == bare
    quoted = written(tmp_path, "stop\nA\n", 'mode;destination;origin\n"on\nfoot"; A ;A\n')
    assert quoted.mode_names == ("on\nfoot",)
    stops = "stop,zone\nA,x\nB,y\nC,x\n"
    made = written(tmp_path, stops, MODES)
    header, *lines = MODES.splitlines()
    shuffled = written(tmp_path, stops, "\n".join([header, *reversed(lines)]) + "\n")
    assert (shuffled, hash(shuffled)) == (made, hash(made))
    assert shuffled != written(tmp_path, stops)
    assert written(tmp_path, "stop,zone\nA,x\nB,x\nC,x\n", MODES) != made
    names = [f"S{place}" for place in range(300)]
    lines = [f"{start},{end},m{(a * b) % 7}" for a, start in enumerate(names) for b, end in enumerate(names)]
    made = written(tmp_path, "stop\n" + "\n".join(names), "origin,destination,mode\n" + "\n".join(lines))
    expected = np.multiply.outer(np.arange(300), np.arange(300)) % 7
    assert [[made.mode_names[code] for code in row] for row in made.modes[:9].tolist()] == [
        [f"m{code}" for code in row] for row in expected[:9].tolist()
    ]
    many = written(tmp_path, "stop,zone\n" + "".join(f"S{place},Z{place % 9}\n" for place in range(10_000)))
    assert (len(many.stops), len(many.zone_names)) == (10_000, 9)


def test_all_problems_at_once(tmp_path):
    text = "stop;zone;lat;lon;hub\nA;Z;1;2;\n;Z;1;2;1\nA;;100;2;1\n\nB;Q;1;x;maybe\n"
    facts = ["line 3: |stop", "line 4: |'A'|line 2", "line 4: |zone", "line 4: |lat", "line 6: |lon", "line 6: |hub"]
    refused(facts, written, tmp_path, text)
    modes = "origin,destination,mode\nA,B,bus\n\nA,C,bus\nA,B,walk\nB,A,\nZ,A,bus\n"
    facts = ["line 4: |destination", "line 5: ", "line 6: |mode", "line 7: |origin", "2 pairs|'A' to 'A'"]
    assert len(refused(facts, written, tmp_path, "stop\nA\nB\n", modes)) == 5
    times = "from,to,seconds\nA,A,5\nA,B,-1\nA,C,x\nA,B,3\nB,Q,4\nB,A,inf\nB,C,\nC,A,86401\n\nC,B,0.5\n"
    facts = ["line 2: ", "line 5: ", "line 6: ", *(f"line {line}: |seconds|86400" for line in (3, 4, 7, 8, 9))]
    found = refused(facts, City.read_folder, folder(tmp_path, times=times))
    assert not any("line 11" in problem for problem in found)
    half = City.read_folder(folder(tmp_path, times=TIMES.replace("C,B,130", "C,B,0.5").replace("A,B,70", "A,B,1.5")))
    assert (half.times[2, 1], half.times[0, 1]) == (1, 2)  # parts of a second are rounded


def test_what_cannot_be_read(tmp_path, monkeypatch):
    for text, fact in (
        ("stop,colour\nA,x\n", "'colour'"),
        ("zone\nA\n", "stop"),
        ("stop,lat\nA,1\n", "lat|lon"),
        ("stop,stop\nA,B\n", ""),
        ("stop,zone\nA\n", "line 2: |2 cells"),
        ("stop\n", "100000"),
        ("", ""),
        ("stop,lat,lon\nA,nan,1\n", "lat"),
    ):
        refused([fact], written, tmp_path, text)
    header = "origin,destination,mode\n"
    for modes, fact in (
        *((text, "origin,destination,mode") for text in ("origin,destination\nA,A\n", "A,A,bus\n", "")),
        *((header + line, "line 2: |3 cells") for line in ("A,A\n", "A,A,bus,x\n")),
        (header, "mode"),
        (header + 30 * "A,Q,bus\n", "20"),
    ):
        refused([fact], written, tmp_path, "stop\nA\n", modes)
    for number, (files, fact) in enumerate(
        (
            ({"times": "from,to,seconds\nA,B,1\n"}, "5 pairs|'A' to 'C'"),
            ({"times": "from,to\nA,B\n"}, "from,to,seconds"),
            ({"times": TIMES.replace("A,B,70", "A,B")}, "3 cells"),
            ({"buses": BUSES + "A,B,1,2\n"}, "line 4: |hub"),
            ({"buses": BUSES + "A,A,1,2\n"}, "line 4: "),
            ({"buses": BUSES + "A,C,1,0\n"}, "line 4: |headway_seconds"),
            ({"buses": BUSES + "A,C,,9\n"}, "line 4: |seconds"),
            ({"buses": BUSES + "A,C,1,9\n"}, "line 4: "),
            ({"buses": BUSES + "A,Z,1,9\n"}, "line 4: "),
            ({"buses": SEATED + "A,C,240,600,\n"}, "line 3: |seats"),
            ({"buses": SEATED + "A,C,240,600,0\n"}, "line 3: |seats"),
            ({"buses": SEATED + "A,C,240,600,2.5\n"}, "line 3: |seats"),
            ({"buses": SEATED + "A,C,240,600,10001\n"}, "line 3: |seats"),
            ({"buses": BUSES.replace("headway_seconds", "headway_seconds,color")}, "from,to,seconds"),
            ({"city": "{"}, "JSON"),
            ({"city": "[]"}, "format|1"),
            ({"city": '{"format": 2}'}, "format|1"),
            ({"city": '{"format": 1, "assumed": "x"}'}, "assumed"),
            ({"stops": "stop\nA\nA\n"}, "line 2"),
        )
    ):
        (tmp_path / str(number)).mkdir()
        refused([fact], City.read_folder, folder(tmp_path / str(number), **files))
    refused(["stops.csv"], City.read_folder, tmp_path / "0")
    three = "stop\nA\nB\nC\n"
    for name, limit, fact in (
        ("MAX_STOPS_WITH_PAIRS", 2, "2 stops"),
        ("MAX_MODES", 1, "1 |2"),
        ("MAX_PAIRS_BYTES", 10, ""),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(city_module, name, limit)
            refused([fact], written, tmp_path, three, MODES)
            if name == "MAX_STOPS_WITH_PAIRS":
                refused([fact], City.read_folder, folder(tmp_path, times=TIMES))


STOPS = "stop,zone,lat,lon,hub\nA,x,42,-83,1\nB,x,42.01,-83,\nC,y,42.02,-83,1\n"
TIMES = "from,to,seconds\n" + "".join(f"{a},{b},{60 + 10 * place}\n" for place, (a, b) in enumerate(PAIRS) if a != b)
BUS_COLUMNS = {"origins": [0, 2], "destinations": [2, 0], "seconds": [9, 8], "headway_seconds": [7, 6]}
BUSES = "from,to,seconds,headway_seconds\nC,A,300,600\nA,C,240,600\n"
SEATED = "from,to,seconds,headway_seconds,seats\nC,A,300,600,80\n"


def folder(tmp_path: Path, **files: str) -> Path:
    place = tmp_path / "city"
    place.mkdir(exist_ok=True)
    for name, text in {"stops": STOPS, **files}.items():
        (place / f"{name}.{'json' if name == 'city' else 'csv'}").write_text(text)
    return place


def test_a_folder_is_read_whole(tmp_path):
    said = '{"format": 1, "assumed": ["Made up."]}'
    made = City.read_folder(folder(tmp_path, times=TIMES, buses=BUSES, modes=MODES, city=said))
    assert made.times.tolist() == [[0, 70, 80], [90, 0, 110], [120, 130, 0]]
    assert (made.times.dtype, made.buses.origins.tolist()) == (np.int32, [0, 2])
    assert (made.buses.destinations.tolist(), made.buses.seconds.tolist()) == ([2, 0], [240, 300])
    assert (made.buses.headway_seconds.tolist(), made.mode_names) == ([600, 600], ("walk", "bus"))
    assert (made.assumed, len(made.buses), made.buses.seats) == (("Made up.",), 2, None)
    seated = City.read_folder(folder(tmp_path, buses=SEATED + "A,C,240,600,20\n"))
    assert seated.buses.seats.tolist() == [20, 80]
    assert seated != made
    assert City.read_folder(seated.write(tmp_path / "seated")) == seated


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
    with pytest.raises(OutputError):
        made.write(tmp_path / "new")
    fewer = City(stops=names)
    assert City.read_folder(fewer.write(tmp_path / "new", force=True)) == fewer
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["city.json", "stops.csv"]
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_a_city_made_in_python_is_checked():
    hubs = np.array([True, False, True])
    buses = Buses(**{name: np.array([0, 1], np.int32) for name in BUS_COLUMNS})
    for wrong, name in (
        ({"stops": ("a", "b"), "times": np.ones((2, 2), np.int32)}, "times"),
        ({"stops": ("a", "b"), "times": np.zeros((2, 3), np.int32)}, "times"),
        ({"stops": ("a", "b", "c"), "hubs": hubs, "buses": buses}, "buses"),
    ):
        with pytest.raises(ParameterError, match=name):
            City(**wrong)


def test_distances_are_those_on_a_sphere():
    # A degree of latitude, a quarter of the equator, and two towns whose distance is known: 343.6 km.
    lat, lon = np.array([0.0, 1.0, 0.0, 51.5074, 48.8566]), np.array([0.0, 0.0, 90.0, -0.1278, 2.3522])
    far = City(stops=tuple("abcde"), lat=lat, lon=lon).kilometres()
    assert (far[0, 1], far[0, 2]) == (pytest.approx(111.195, abs=0.001), pytest.approx(10007.557, abs=0.01))
    assert far[3, 4] == pytest.approx(343.56, abs=0.1)
    assert np.allclose(far, far.T)
    assert not np.diagonal(far).any()
    line = np.arange(6)
    made = City(
        stops=tuple("abcdef"),
        zone_names=("x", "y"),
        zones=np.array([0, 0, 0, 1, 1, 1], np.int32),
        times=(60 * np.abs(line[:, None] - line)).astype(np.int32),
        hubs=np.array([1, 0, 0, 0, 0, 0], bool),
    )
    assert made.homes.tolist() == [0, 4]


def test_travel_times_from_coordinates_say_what_was_assumed():
    made = City(stops=("a", "b"), lat=np.array([0.0, 0.1]), lon=np.zeros(2)).with_times(speed_kmh=20, detour=1.5)
    assert made.times[0, 1] == round(11.1195 * 1.5 / 20 * 3600)
    (said,) = made.assumed
    assert "1.5" in said
    assert "20 km/h" in said
    assert made.with_times() is made
    here, far = ({"lat": np.array([0.0, a]), "lon": np.array([0.0, b])} for a, b in ((0, 0), (80, 170)))
    for where, arguments, error, fact in (
        ({}, {}, Refusal, "coordinates"),
        (far, {}, Refusal, "lat"),
        (here, {"speed_kmh": 0}, ParameterError, "speed"),
        (here, {"detour": 0.9}, ParameterError, "detour"),
        (here, {"speed_kmh": float("nan")}, ParameterError, "speed"),
    ):
        with pytest.raises(error, match=fact):
            City(stops=("a", "b"), **where).with_times(**arguments)
    zones = {"zone_names": ("x",), "zones": np.zeros(2, np.int32)}
    for lacking, fact in (({"times": np.zeros((2, 2), np.int32)}, "stops.csv"), (zones, "times.csv")):
        with pytest.raises(Refusal, match=fact):
            City(stops=("a", "b"), **lacking).for_fleets()
    assert City(stops=("a", "b"), **here, **zones).for_fleets().times is not None


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
        with pytest.raises(ParameterError):
            made.with_zones(num)
    with pytest.raises(Refusal):
        City(stops=("a",)).with_zones(1)


def test_tables_of_pairs_are_the_same_part_by_part(tmp_path, monkeypatch):
    rng = np.random.default_rng(2)
    num = 9
    place = City(stops=tuple(f"S{i}" for i in range(num)), lat=rng.random(num) / 9, lon=rng.random(num) / 9)
    place = replace(place.with_zones(2).with_times(), hubs=np.arange(num) % 4 == 0)
    routes = find_routes(place)
    folder = place.with_modes(routes.mode_names, routes.mode).write(tmp_path / "city")
    streamed = City.read_folder(folder)
    monkeypatch.setattr(city_module, "_BLOCK_PAIRS", 20)
    bare = replace(place, times=None, assumed=place.assumed[:-1])
    assert bare.with_times() == place
    again = find_routes(place)
    assert all(np.array_equal(getattr(routes, item.name), getattr(again, item.name)) for item in fields(routes))
    # A file that is not quite plain is read as a whole, with the same result.
    lines = (folder / "times.csv").read_text().splitlines()
    (folder / "times.csv").write_text("\n".join([lines[0], *(f" {line} " for line in lines[1:])]) + "\n")
    monkeypatch.setattr(city_module.reader, "pair_batches", lambda *_: iter([None]))
    assert City.read_folder(folder) == streamed
