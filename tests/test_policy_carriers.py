# SPDX-License-Identifier: Apache-2.0
"""Policies for devices: what is read, what is refused and why, and the task that comes of it."""

from __future__ import annotations

import contextlib
import copy
import re
from fractions import Fraction
from pathlib import Path

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st
from tests.commands import run

from dunnage.collecting.tasks import carriers_from_text, read_carriers, read_task, task_of
from dunnage.devices.task import Grid, Limits, Quantity, Schedule, Tier
from dunnage.errors import PolicyError
from dunnage.model.policy import Policy, is_for_devices

QUASI = "quasi-identifier"
BOX = [103.9, 30.5, 104.2, 30.8]
REMOVED = object()


def document(**changes):
    """A policy with everything; changes are by path, with two underscores between its parts."""
    made = {
        "dataset": "fleet",
        "protects": "vehicle",
        "attributes": {
            "truck": {"role": "identifier"},
            "moment": {"role": "drop"},
            "speed": {"role": QUASI, "kind": "numeric", "domain": [0, 130], "unit": "km/h", "missing": "symbol"},
            "load": {"role": QUASI, "kind": "numeric", "domain": [0, 40.5], "steps": 64},
            "place": {"role": QUASI, "kind": "grid", "box": BOX, "levels": 4, "area_levels": 2},
        },
        "tiers": {"basic": 1.0, "strict": 0.5},
        "schedule": {"slots_per_day": 2, "time": "moment", "closing": "04:00"},
        "allowance": {"day": 12, "lifetime": 100},
        "mechanisms": {
            "telemetry": {"name": "local-numeric", "method": "piecewise"},
            "places": {"name": "local-location", "epsilon": 2},
            "paths": {"name": "local-trajectory", "steps": 3, "hops": 2, "tiers": ["strict", "basic"]},
        },
    }
    for where, value in changes.items():
        *tables, key = where.split("__")
        table = made
        for name in tables:
            table = table.setdefault(name, {})
        if value is REMOVED:
            del table[key]
        else:
            table[key] = copy.deepcopy(value)
    return made


def read(**changes):
    return carriers_from_text(tomli_w.dumps(document(**changes)))


def problems(**changes):
    with pytest.raises(PolicyError) as caught:
        task_of(read(**changes))
    return caught.value.problems


def places_of(**changes):
    return [problem.where for problem in problems(**changes)]


def test_everything_is_read():
    policy = read()
    assert (policy.dataset, policy.protects, policy.version) == ("fleet", "vehicle", 1)
    assert (policy.vehicle, policy.time) == ("truck", "moment")
    assert policy.numbers == (
        Quantity(name="speed", low=Fraction(0), high=Fraction(130), unit="km/h", missing="symbol"),
        Quantity(name="load", low=Fraction(0), high=Fraction(81, 2), steps=64, missing="symbol"),
    )
    box = tuple(Fraction(str(side)) for side in BOX)
    assert policy.grids == {"place": Grid(box=box, levels=4, area_levels=2)}
    assert policy.place_columns == {"place": ("lon", "lat")}
    assert policy.columns == ("truck", "moment", "speed", "load", "lon", "lat")
    assert policy.schedule == Schedule(slots_per_day=2, closing="04:00")
    assert policy.limits == Limits(lifetime=Fraction(100), day=Fraction(12))
    telemetry, places, paths = policy.purposes
    basic, strict = Tier(name="basic", epsilon=Fraction(1)), Tier(name="strict", epsilon=Fraction(1, 2))
    assert (telemetry.quantities, telemetry.tiers) == (policy.numbers, (basic, strict))
    assert telemetry.parameters == {"method": "piecewise"}
    assert places.tiers == (Tier(name="all", epsilon=Fraction(2)),)
    assert (places.grid, places.steps) == (policy.grids["place"], 1)
    assert (paths.tiers, paths.steps, paths.parameters) == ((strict, basic), 3, {"hops": 2})


def test_defaults_and_other_ways_to_say_it():
    one = {"mechanisms": {"places": {"name": "local-location", "epsilon": 1}}, "tiers": REMOVED}
    dropped = {"attributes__speed__role": "drop", "attributes__load": REMOVED}
    policy = read(schedule=REMOVED, allowance__day=REMOVED, **one, **dropped)
    assert (policy.schedule, policy.time, policy.limits.day) == (Schedule(), None, None)
    assert task_of(policy).schedule == Schedule()
    assert read(mechanisms__paths={"name": "local-trajectory"}).purposes[2].steps == 2
    assert read(attributes__truck__role="identifying").vehicle == "truck"
    assert read(attributes__place__columns=["x", "y"]).columns[-2:] == ("x", "y")
    assert read(schedule__hours=["06:00", "20:00"]).schedule.hours == ("06:00", "20:00")
    # The published form has no symbol for a missing number, unless one is requested.
    published = read(mechanisms__telemetry={"name": "local-numeric", "as_published": True})
    assert [quantity.missing for quantity in published.purposes[0].quantities] == ["symbol", "middle"]
    exact = carriers_from_text(tomli_w.dumps(document()).replace("basic = 1.0", "basic = 0.1"))
    assert exact.purposes[0].tiers[0] == Tier(name="basic", epsilon=Fraction(1, 10))
    flags = {"name": "local-location", "epsilon": 2, "area_in_clear": False, "as_published": True}
    assert read(mechanisms__places=flags).purposes[1].parameters == {"as_published": True}
    consent = read(mechanisms__places__area_in_clear=True, allow_unbounded=True)
    assert task_of(consent).limits.allow_unbounded


def test_digests_are_those_of_what_is_said_and_of_version_0_1_0():
    """Devices and platform compare them."""
    text = tomli_w.dumps(document())
    assert carriers_from_text("# a comment\n" + text).digest() == read().digest()
    assert read(allowance__lifetime=101).digest() != read().digest()
    assert read().digest() == "1064e01d87ae42c8c068175cb6d88f7f844d39183ff9da3fd6abb4120d647820"
    # What version 0.1.0 took for granted is now written down.
    task = task_of(read(attributes__load__missing="middle"))
    assert task.digest == "f611f417c7deed3574cb5c1af0a7b09ccf861401087183f185cfd4e0cc5d3a60"


def test_the_policy_of_the_documents():
    page = (Path(__file__).resolve().parents[1] / "docs" / "policy.md").read_text()
    (text,) = [block for block in re.findall(r"```toml\n(.*?)```", page, re.DOTALL) if "[mechanisms." in block]
    task = task_of(carriers_from_text(text))
    assert [purpose.name for purpose in task.purposes] == ["telemetry", "places", "paths"]
    assert task.schedule == Schedule()  # what is written out is what is usual
    assert task.purposes[0].quantities[0].steps == Quantity(name="x", low=Fraction(0), high=Fraction(1)).steps
    awake = text.replace("# window", "window").replace("# allow", "allow")
    assert task_of(carriers_from_text(awake)).schedule.window == 12


def test_each_reader_names_the_other(tmp_path):
    ours, theirs, data = tmp_path / "carriers.toml", tmp_path / "parcels.toml", tmp_path / "fleet.csv"
    ours.write_text(tomli_w.dumps(document()))
    weight = {"role": QUASI, "kind": "numeric", "domain": [0, 1]}
    made = {"dataset": "x", "protects": "y", "attributes": {"weight": weight}}
    partition = {"name": "partition", "k": 2}
    theirs.write_text(tomli_w.dumps({**made, "mechanism": partition}))
    data.write_text("truck,moment,speed,load,lon,lat\n")
    with pytest.raises(PolicyError, match=r"dunnage device task .*carriers\.toml"):
        Policy.read(ours)
    with pytest.raises(PolicyError, match="dunnage publish"):
        read_task(theirs)
    assert read_task(ours).digest == task_of(read_carriers(ours)).digest
    assert Policy.read(theirs).mechanism["k"] == 2
    run("publish", data, "--policy", ours, "-o", tmp_path / "release").refused("dunnage device task")
    assert not (tmp_path / "release").exists()
    # A misspelt mechanism is not taken for devices, and one of devices is not published.
    assert not is_for_devices({"mechanisms": partition})
    for wrong, word in (({"mechanisms": partition}, "'mechanism'"), ({"mechanism": {"name": "local-numeric"}}, "NAME")):
        with pytest.raises(PolicyError, match=word):
            Policy.from_dict({**made, **wrong})


def test_a_file_that_is_no_policy(tmp_path):
    with pytest.raises(PolicyError):
        read_carriers(tmp_path / "none.toml")
    for text in ("a = ", 'dataset = "x"\nprotects = "y"\n'):
        with pytest.raises(PolicyError):
            carriers_from_text(text)


# What is refused: changes, where the one problem is, and what else it names

ATTRIBUTES = [
    ({"attributes__plate": {"role": "identifier"}}, "attributes", "truck, plate"),
    ({"attributes__truck__role": "drop"}, "attributes"),
    ({"attributes__plate": {"role": "public"}}, "attributes.plate.role"),
    ({"attributes__plate": {"role": "sensitive"}}, "attributes.plate.role"),
    ({"attributes__truck__rol": "x"},),
    ({"attributes__speed__kind": "tree"}, "attributes.speed.kind", "numeric"),
    ({"attributes__speed__missing": "leave-out"}, "attributes.speed.missing", "symbol"),
    ({"attributes__speed__outside": "refuse"}, "attributes.speed.outside", "clamp"),
    ({"attributes__speed__mising": "middle"}, "attributes.speed.mising", "'missing'"),
    *(({"attributes__speed__domain": wrong},) for wrong in ([130, 0], [0], [0, "a"], REMOVED)),
    ({"attributes__speed__steps": 1.5},),
    ({"attributes__speed__steps": 0}, "attributes.speed", "steps"),
    *(({"attributes__place__box": wrong},) for wrong in ([1, 2, 3], [104.2, 30.5, 103.9, 30.8])),
    ({"attributes__place__box": [0, 0, 200, 1]}, "attributes.place", "box"),
    ({"attributes__place__levels": 40}, "attributes.place", "levels"),
    ({"attributes__place__area_levels": 5},),
    ({"attributes__place__missing": "middle"},),
    *(({"attributes__place__columns": wrong},) for wrong in (["lon"], ["lon", "lon"])),
]
REST = [
    *(({"dataset": wrong},) for wrong in (REMOVED, "x" * 65)),
    ({"protects": " x"},),
    ({"shedule": {}}, "shedule", "'schedule'"),
    *(({key: {"name": "x"}},) for key in ("budget", "period", "contribution", "trip", "city", "read", "mechanism")),
    *(({"tiers__basic": wrong},) for wrong in (0, "high")),
    ({"mechanisms__paths__tiers": ["strict", "basc"]}, "mechanisms.paths.tiers", "'basic'"),
    ({"mechanisms__paths__tiers": ["strict", "strict"]},),
    ({"tiers__open": 4, "mechanisms__telemetry__tiers": ["basic", "open"]}, "mechanisms.paths.tiers", "'telemetry'"),
    ({"mechanisms__paths__epsilon": 1},),
    ({"mechanisms__places__epsilon": -1},),
    ({"schedule__time": "momnt"}, "schedule.time", "'moment'"),
    ({"schedule__time": "speed"},),
    ({"schedule__slots": 1},),
    ({"schedule__slots_per_day": "1"},),
    ({"schedule__slot_minutes": 7}, "schedule", "slot_minutes"),
    ({"schedule__closing": "25:00"}, "schedule", "closing"),
    ({"allowance": REMOVED}, "allowance", "lifetime"),
    ({"allowance__lifetime": REMOVED},),
    ({"allowance__lifetime": 11}, "allowance.day", "lifetime"),
    ({"allowance__day": 0},),
    ({"allowance__day": 7}, "", "7"),
    ({"version": 0}, "", "version"),
    ({"mechanisms": REMOVED},),
    ({"mechanisms__places__name": "local-locaton"}, "mechanisms.places.name", "'local-location'"),
    ({"mechanisms__places__hops": 1},),
    ({"mechanisms__paths__hop": 1}, "mechanisms.paths.hop", "'hops'"),
    ({"mechanisms__paths__steps": 4}, "mechanisms.paths", "steps"),
    ({"mechanisms__places__method": "hadamar"}, "mechanisms.places", "method"),
    ({"mechanisms__places__area_in_clear": True}, "", "allow_unbounded"),
    ({"mechanisms__telemetry__method": "gauss"}, "mechanisms.telemetry", "method"),
    ({"mechanisms__telemetry__as_published": True, "allowance__day": 8}, ""),
    ({"mechanisms__telemetry__attributes": ["speed", "lod"]}, "mechanisms.telemetry.attributes", "'load'"),
    ({"mechanisms__telemetry__attributes": ["speed"]}, "attributes.load"),
    ({"mechanisms__telemetry__attributes": ["speed", "load", "load"]},),
    *(({"mechanisms__places__attributes": wrong},) for wrong in (["speed"], [])),
    ({"attributes__speed__role": "drop", "attributes__load": REMOVED}, "mechanisms.telemetry.attributes", "numeric"),
    # A privacy parameter has no default.
    (
        {"tiers": REMOVED, "mechanisms__telemetry": {"name": "local-numeric"}, "mechanisms__paths": REMOVED},
        "mechanisms.telemetry.epsilon",
    ),
]


def test_one_problem_is_told_once_and_where():
    for changes, *rest in ATTRIBUTES + REST:
        found = problems(**changes)
        where = rest[0] if rest else next(iter(changes)).replace("__", ".")
        assert [problem.where for problem in found] == [where], changes
        assert rest[1:] == [] or rest[1] in str(found[0]), changes


def test_all_problems_are_told_at_once():
    told = places_of(
        dataset=REMOVED,
        attributes__speed__domain=[1, 0],
        attributes__truck__role="drop",
        tiers__basic=-1,
        schedule__closng="03:00",
        allowance__lifetime=REMOVED,
        mechanisms__paths__tiers=["base"],
        budget={"epsilon": 1},
    )
    starts = ["dataset", "attributes.speed.domain", "attributes", "schedule.closng", "allowance.lifetime"]
    assert told == [*starts, "tiers.basic", "mechanisms.paths.tiers", "budget"]
    told = places_of(mechanisms__places__method="none", mechanisms__telemetry__method="none")
    assert told == ["mechanisms.telemetry", "mechanisms.places"]
    told = places_of(attributes__speed__steps=-1, attributes__place__levels=99, schedule__slots_per_day=0)
    assert told == ["attributes.speed", "attributes.place", "schedule"]


def test_several_grids_must_be_told_apart():
    other = {"role": QUASI, "kind": "grid", "box": BOX, "levels": 2}
    assert places_of(attributes__district=other) == ["mechanisms.places.attributes", "mechanisms.paths.attributes"]
    chosen = read(
        attributes__district=other, mechanisms__places__attributes=["place"], mechanisms__paths__attributes=["district"]
    )
    assert [purpose.grid for purpose in chosen.purposes[1:]] == [chosen.grids["place"], chosen.grids["district"]]


VALUES = st.recursive(
    st.one_of(st.integers(-3, 300), st.booleans(), st.sampled_from(["", "basic", "speed", "grid", "03:00"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.sampled_from(["name", "x", "role"]), inner, max_size=3)
    ),
    max_leaves=6,
)
KEYS = "dataset tiers tiers__basic version allowance allowance__lifetime schedule schedule__time schedule__window"
KEYS += " attributes attributes__speed attributes__speed__domain attributes__place__box attributes__place__levels"
KEYS += " attributes__place__columns mechanisms mechanisms__paths mechanisms__paths__tiers"
KEYS += " mechanisms__paths__attributes mechanisms__paths__steps"


@given(st.dictionaries(st.sampled_from(KEYS.split()), VALUES, min_size=1, max_size=2))
def test_whatever_is_written_is_read_or_refused(changes):
    ordered = dict(sorted(changes.items(), key=lambda item: -item[0].count("__")))
    with contextlib.suppress(PolicyError):
        assert task_of(read(**ordered)).purposes
