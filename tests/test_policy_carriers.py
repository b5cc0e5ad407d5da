# SPDX-License-Identifier: Apache-2.0
"""Policies for devices: what is read, what is refused and why, and the task that comes of it."""

from __future__ import annotations

import contextlib
import copy
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from dunnage.collecting.tasks import CarrierPolicy, carriers_from_text, read_carriers, read_task, task_of
from dunnage.devices.task import Grid, Limits, Quantity, Schedule, Tier
from dunnage.errors import PolicyError
from dunnage.model.policy import Policy, is_for_devices

QUASI = "quasi-identifier"
BOX = [103.9, 30.5, 104.2, 30.8]
REMOVED = object()


def document(**changes: Any) -> dict[str, Any]:
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
        table: Any = made
        for name in tables:
            table = table.setdefault(name, {})
        if value is REMOVED:
            del table[key]
        else:
            table[key] = copy.deepcopy(value)
    return made


def read(**changes: Any) -> CarrierPolicy:
    return carriers_from_text(tomli_w.dumps(document(**changes)))


def problems(**changes: Any) -> list[str]:
    with pytest.raises(PolicyError) as caught:
        task_of(read(**changes))
    return [str(problem) for problem in caught.value.problems]


def problem(**changes: Any) -> str:
    (found,) = problems(**changes)
    return found


# What is read


def test_everything_is_read() -> None:
    policy = read()
    assert (policy.dataset, policy.protects, policy.version) == ("fleet", "vehicle", 1)
    assert (policy.vehicle, policy.time) == ("truck", "moment")
    assert policy.numbers == (
        Quantity(name="speed", low=Fraction(0), high=Fraction(130), unit="km/h", missing="symbol"),
        Quantity(name="load", low=Fraction(0), high=Fraction(81, 2), steps=64),
    )
    west, south, east, north = (Fraction(str(side)) for side in BOX)
    assert policy.grids == {"place": Grid(box=(west, south, east, north), levels=4, area_levels=2)}
    assert policy.place_columns == {"place": ("lon", "lat")}
    assert policy.columns == ("truck", "moment", "speed", "load", "lon", "lat")
    assert policy.schedule == Schedule(slots_per_day=2, closing="04:00")
    assert policy.limits == Limits(lifetime=Fraction(100), day=Fraction(12))
    telemetry, places, paths = policy.purposes
    assert telemetry.quantities == policy.numbers
    basic, strict = Tier(name="basic", epsilon=Fraction(1)), Tier(name="strict", epsilon=Fraction(1, 2))
    assert telemetry.tiers == (basic, strict)
    assert telemetry.parameters == {"method": "piecewise"}
    assert places.tiers == (Tier(name="all", epsilon=Fraction(2)),)
    assert (places.grid, places.steps) == (policy.grids["place"], 1)
    assert paths.tiers == (strict, basic)
    assert (paths.steps, paths.parameters) == (3, {"hops": 2})


def test_defaults() -> None:
    policy = read(
        schedule=REMOVED,
        allowance__day=REMOVED,
        mechanisms={"places": {"name": "local-location", "epsilon": 1}},
        tiers=REMOVED,
        attributes__speed__role="drop",
        attributes__load=REMOVED,
    )
    assert (policy.schedule, policy.time, policy.limits.day) == (Schedule(), None, None)
    assert task_of(policy).schedule == Schedule()
    assert read(mechanisms__paths={"name": "local-trajectory"}).purposes[2].steps == 2


def test_role_synonyms() -> None:
    for word in ["identifying", "identifier"]:
        assert read(attributes__truck__role=word).vehicle == "truck"


def test_columns_of_a_grid_can_be_named() -> None:
    assert read(attributes__place__columns=["x", "y"]).columns[-2:] == ("x", "y")


def test_numbers_are_exact() -> None:
    policy = carriers_from_text(tomli_w.dumps(document()).replace("basic = 1.0", "basic = 0.1"))
    assert policy.purposes[0].tiers[0] == Tier(name="basic", epsilon=Fraction(1, 10))


def test_flags_that_are_false_are_not_parameters() -> None:
    places = {"name": "local-location", "epsilon": 2, "area_in_clear": False, "as_published": True}
    assert read(mechanisms__places=places).purposes[1].parameters == {"as_published": True}


def test_the_digest_is_that_of_what_is_said() -> None:
    text = tomli_w.dumps(document())
    assert carriers_from_text("# a comment\n" + text).digest() == carriers_from_text(text).digest()
    assert read(allowance__lifetime=101).digest() != read().digest()


def test_digests_are_those_of_version_0_1_0() -> None:
    """Devices and platform compare them."""
    assert read().digest() == "1064e01d87ae42c8c068175cb6d88f7f844d39183ff9da3fd6abb4120d647820"
    assert task_of(read()).digest == "f611f417c7deed3574cb5c1af0a7b09ccf861401087183f185cfd4e0cc5d3a60"


def test_the_policy_of_the_documents() -> None:
    page = (Path(__file__).resolve().parents[1] / "docs" / "policy.md").read_text()
    (text,) = [block for block in re.findall(r"```toml\n(.*?)```", page, re.DOTALL) if "[mechanisms." in block]
    task = task_of(carriers_from_text(text))
    assert [purpose.name for purpose in task.purposes] == ["telemetry", "places", "paths"]
    assert task.schedule == Schedule()  # what is written out is what is usual
    assert task.purposes[0].quantities[0].steps == Quantity(name="x", low=Fraction(0), high=Fraction(1)).steps
    awake = text.replace("# window", "window").replace("# allow", "allow")
    assert task_of(carriers_from_text(awake)).schedule.window == 12


# Which policy is for whom


def test_each_reader_names_the_other(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "carriers.toml", tmp_path / "parcels.toml"
    ours.write_text(tomli_w.dumps(document()))
    theirs.write_text(
        'dataset = "x"\nprotects = "y"\n[attributes.weight]\nrole = "quasi-identifier"\nkind = "numeric"\n'
        'domain = [0, 1]\n[mechanism]\nname = "partition"\nk = 2\n'
    )
    with pytest.raises(PolicyError, match=r"this policy is for devices: use dunnage device task .*carriers\.toml"):
        Policy.read(ours)
    with pytest.raises(PolicyError, match="this policy is for publishing, not for devices: use dunnage publish"):
        read_task(theirs)
    assert read_task(ours).digest == task_of(read_carriers(ours)).digest
    assert Policy.read(theirs).mechanism["k"] == 2


def test_a_misspelt_mechanism_is_not_taken_for_devices() -> None:
    made = {"name": "partition", "k": 2}
    assert not is_for_devices({"mechanisms": made})
    with pytest.raises(PolicyError, match="Did you mean 'mechanism'"):
        Policy.from_dict({"dataset": "x", "protects": "y", "attributes": {}, "mechanisms": made})


def test_a_device_mechanism_is_not_published() -> None:
    weight = {"role": QUASI, "kind": "numeric", "domain": [0, 1]}
    made = {"dataset": "x", "protects": "y", "attributes": {"w": weight}}
    with pytest.raises(PolicyError, match=r"mechanism.name: 'local-numeric' is for devices. .*\[mechanisms.NAME\]"):
        Policy.from_dict({**made, "mechanism": {"name": "local-numeric", "epsilon": 1}})


def test_tables_of_publishers_are_refused() -> None:
    for key in ["budget", "period", "contribution", "trip", "city", "read", "mechanism"]:
        assert problem(**{key: {"name": "x"}}).startswith(f"{key}: is for publishing, not for devices. ")


def test_a_file_that_is_no_policy(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="cannot be read"):
        read_carriers(tmp_path / "none.toml")
    with pytest.raises(PolicyError, match="not valid TOML"):
        carriers_from_text("a = ")
    with pytest.raises(PolicyError, match=r"mechanisms: is missing"):
        carriers_from_text('dataset = "x"\nprotects = "y"\n')


# What is refused: (changes, what the one problem says)

ONE_PROBLEM = [
    ({"dataset": REMOVED}, "dataset: is missing"),
    ({"protects": " x"}, "protects: is blank, unprintable or too long"),
    ({"dataset": "x" * 65}, "at most 64"),
    ({"shedule": {}}, "shedule: is not a key this version knows. Did you mean 'schedule'?"),
    # attributes
    ({"attributes__plate": {"role": "identifier"}}, "one column must be the identifier of vehicles; got truck, plate"),
    ({"attributes__truck__role": "drop"}, "got none"),
    ({"attributes__truck__rol": "x"}, "attributes.truck.rol: is not a key"),
    ({"attributes__plate": {"role": "public"}}, "devices send nothing unperturbed"),
    ({"attributes__plate": {"role": "sensitive"}}, "devices send nothing unperturbed"),
    ({"attributes__speed__kind": "tree"}, "'tree' is not one of numeric | grid"),
    ({"attributes__speed__missing": "leave-out"}, "gives that away. Use middle or symbol."),
    ({"attributes__speed__outside": "refuse"}, "gives that away. Use clamp."),
    ({"attributes__speed__mising": "middle"}, "Did you mean 'missing'?"),
    ({"attributes__speed__domain": [130, 0]}, "attributes.speed.domain: must begin below"),
    ({"attributes__speed__domain": [0]}, "attributes.speed.domain: must be two numbers"),
    ({"attributes__speed__domain": [0, "a"]}, "attributes.speed.domain: must be two numbers"),
    ({"attributes__speed__domain": REMOVED}, "attributes.speed.domain: is missing"),
    ({"attributes__speed__steps": 1.5}, "attributes.speed.steps: must be a whole number"),
    ({"attributes__speed__steps": 0}, "attributes.speed: steps of speed must be a whole number from 1"),
    ({"attributes__place__box": [1, 2, 3]}, "attributes.place.box: must be four numbers"),
    ({"attributes__place__box": [104.2, 30.5, 103.9, 30.8]}, "attributes.place.box: has no inside"),
    ({"attributes__place__box": [0, 0, 200, 1]}, "attributes.place: a box must have west below east"),
    ({"attributes__place__levels": 40}, "attributes.place: levels of a grid must be a whole number"),
    ({"attributes__place__area_levels": 5}, "attributes.place.area_levels: must be from 1 to levels"),
    ({"attributes__place__missing": "middle"}, "one symbol of the grid"),
    ({"attributes__place__columns": ["lon"]}, "attributes.place.columns: must be two columns"),
    ({"attributes__place__columns": ["lon", "lon"]}, "attributes.place.columns: must be two columns"),
    # tiers
    ({"tiers__basic": 0}, "tiers.basic: must be a number above 0"),
    ({"tiers__basic": "high"}, "tiers.basic: must be a number above 0; got text"),
    ({"mechanisms__paths__tiers": ["strict", "basc"]}, "'basc' is not a tier. Did you mean 'basic'?"),
    ({"mechanisms__paths__tiers": ["strict", "strict"]}, "names a tier twice"),
    ({"mechanisms__paths__epsilon": 1}, "mechanisms.paths.epsilon: and tiers are both given"),
    ({"mechanisms__places__epsilon": -1}, "mechanisms.places.epsilon: must be a number above 0"),
    # schedule and allowance
    ({"schedule__time": "momnt"}, "'momnt' is not a declared attribute. Declare it with role = \"drop\". Did you mean"),
    ({"schedule__time": "speed"}, "is reported itself"),
    ({"schedule__slots": 1}, "schedule.slots: is not a key"),
    ({"schedule__slots_per_day": "1"}, "schedule.slots_per_day: must be a whole number"),
    ({"schedule__slot_minutes": 7}, "schedule: slot_minutes must divide a day"),
    ({"schedule__closing": "25:00"}, "schedule: closing must be a time of day"),
    ({"allowance": REMOVED}, "allowance: is missing. Write allowance = a table [allowance] with lifetime"),
    ({"allowance__lifetime": REMOVED}, "allowance.lifetime: is missing"),
    ({"allowance__lifetime": 11}, "allowance.day: exceeds lifetime"),
    ({"allowance__day": 0}, "allowance.day: must be a number above 0"),
    ({"allowance__day": 7}, "the scheduled slots of a day do not fit the limit 7"),
    ({"version": 0}, "the version of a task must be a whole number"),
    # mechanisms
    ({"mechanisms": REMOVED}, "mechanisms: is missing"),
    ({"mechanisms__places__name": "local-locaton"}, "Did you mean 'local-location'?"),
    ({"mechanisms__places__hops": 1}, "mechanisms.places.hops: is not a key"),
    ({"mechanisms__paths__hop": 1}, "Did you mean 'hops'?"),
    ({"mechanisms__paths__steps": 4}, "mechanisms.paths: steps of paths"),
    ({"mechanisms__places__method": "hadamar"}, "mechanisms.places: method must be one of auto"),
    ({"mechanisms__places__area_in_clear": True}, "gives away more than any bound"),
    ({"mechanisms__telemetry__method": "gauss"}, "mechanisms.telemetry: method"),
    ({"mechanisms__telemetry__as_published": True, "allowance__day": 8}, "Got a true loss of"),
    ({"mechanisms__telemetry__attributes": ["speed", "lod"]}, "Did you mean 'load'?"),
    ({"mechanisms__telemetry__attributes": ["speed"]}, "attributes.load: is reported by no mechanism"),
    ({"mechanisms__telemetry__attributes": ["speed", "load", "load"]}, "names one twice"),
    ({"mechanisms__places__attributes": ["speed"]}, "is not a quasi-identifier of kind = 'grid'"),
    ({"mechanisms__places__attributes": []}, "mechanisms.places.attributes: is blank"),
]


def test_one_problem_is_told_once_and_where() -> None:
    for changes, says in ONE_PROBLEM:
        assert says in problem(**changes)


def test_no_epsilon_anywhere_is_refused() -> None:
    """A privacy parameter has no default."""
    mechanisms = {"telemetry": {"name": "local-numeric"}, "places": {"name": "local-location", "epsilon": 1}}
    told = problem(tiers=REMOVED, mechanisms=mechanisms)
    assert told.startswith("mechanisms.telemetry.epsilon: is missing, and there are no [tiers]. ")
    assert "no default" in told


def test_purposes_of_several_tiers_have_the_same() -> None:
    told = problem(tiers__open=4, mechanisms__telemetry__tiers=["basic", "open"])
    assert told.startswith("mechanisms.paths.tiers: differ from those of 'telemetry'")


def test_several_grids_must_be_told_apart() -> None:
    other = {"role": QUASI, "kind": "grid", "box": BOX, "levels": 2}
    told = problems(attributes__district=other)
    assert len(told) == 2
    assert told[0].startswith("mechanisms.places.attributes: local-location reports the cells of one grid")
    chosen = read(
        attributes__district=other, mechanisms__places__attributes=["place"], mechanisms__paths__attributes=["district"]
    )
    assert [purpose.grid for purpose in chosen.purposes[1:]] == [chosen.grids["place"], chosen.grids["district"]]


def test_nothing_to_report() -> None:
    told = problems(attributes__speed__role="drop", attributes__load=REMOVED)
    assert told == [
        "mechanisms.telemetry.attributes: there is nothing that local-numeric could report. "
        'Declare one with role = "quasi-identifier" and kind = "numeric".'
    ]


def test_all_problems_are_told_at_once() -> None:
    told = problems(
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
    starts += ["tiers.basic", "mechanisms.paths.tiers", "budget"]
    assert [text.split(": ")[0] for text in told] == starts


def test_problems_of_mechanisms_are_told_at_once() -> None:
    told = problems(mechanisms__places__method="none", mechanisms__telemetry__method="none")
    assert [text.split(": ")[0] for text in told] == ["mechanisms.telemetry", "mechanisms.places"]


def test_an_unbounded_mechanism_needs_consent() -> None:
    policy = read(mechanisms__places__area_in_clear=True, allow_unbounded=True)
    assert task_of(policy).limits.allow_unbounded


def test_problems_of_the_task_are_told_at_once() -> None:
    told = problems(attributes__speed__steps=-1, attributes__place__levels=99, schedule__slots_per_day=0)
    assert [text.split(": ")[0] for text in told] == ["attributes.speed", "attributes.place", "schedule"]


VALUES = st.recursive(
    st.one_of(st.integers(-3, 300), st.booleans(), st.sampled_from(["", "basic", "speed", "grid", "03:00"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.sampled_from(["name", "x", "role"]), inner, max_size=3)
    ),
    max_leaves=6,
)
PLACES = ["dataset", "tiers", "tiers__basic", "version", "allowance", "allowance__lifetime"]
PLACES += ["schedule", "schedule__time", "schedule__window", "attributes", "attributes__speed"]
PLACES += ["attributes__speed__domain", *(f"attributes__place__{key}" for key in ("box", "levels", "columns"))]
PLACES += [
    "mechanisms",
    "mechanisms__paths",
    *(f"mechanisms__paths__{key}" for key in ("tiers", "attributes", "steps")),
]


@given(st.dictionaries(st.sampled_from(PLACES), VALUES, min_size=1, max_size=2))
def test_whatever_is_written_is_read_or_refused(changes: dict[str, Any]) -> None:
    ordered = dict(sorted(changes.items(), key=lambda item: -item[0].count("__")))
    with contextlib.suppress(PolicyError):
        assert task_of(read(**ordered)).purposes


def test_publish_names_the_right_command(tmp_path: Path) -> None:
    policy, data = tmp_path / "fleet.toml", tmp_path / "fleet.csv"
    policy.write_text(tomli_w.dumps(document()))
    data.write_text("truck,moment,speed,load,lon,lat\n")
    command = ["publish", str(data), "--policy", str(policy), "-o", str(tmp_path / "release")]
    done = subprocess.run([sys.executable, "-m", "dunnage", *command], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "this policy is for devices: use dunnage device task" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "release").exists()
