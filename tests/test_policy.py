# SPDX-License-Identifier: Apache-2.0
"""Policies: everything wrong with one is told at once, and what is right survives writing and reading."""

from __future__ import annotations

import copy
import random
import tomllib
from datetime import date, time
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.refusals import refusal, refused

from dunnage.errors import ParameterError, PolicyError
from dunnage.ledger import Ledger
from dunnage.model.documents import suggestion
from dunnage.model.domains import Category, Graph, Numeric, Ordinal, Stops, Tree, Windows
from dunnage.model.guarantees import Budget, Neighbours
from dunnage.model.policy import MAX_POLICY_BYTES, PeriodRule, Policy, ReadOptions
from dunnage.model.schema import Contribution, Role
from dunnage.model.trips import Trip
from dunnage.publishing import foresee, mechanism_of, publish, rehearse
from dunnage.tables.dataset import Dataset

PARCELS = """
dataset = "parcels"
protects = "package"
[attributes.parcel_id]
role = "identifier"
[attributes.destination]
role = "public"
[attributes.weight]
role = "quasi-identifier"
kind = "numeric"
domain = [0, 500]
resolution = 0.1
unit = "kg"
[mechanism]
name = "partition"
k = 5
[budget]
epsilon = 0.1
delta = 1e-5
neighbours = "add-remove"
"""


@pytest.fixture
def document() -> dict[str, Any]:
    """Every table and kind a policy can have, as plain data."""
    return {
        "dataset": "rides",
        "protects": "ride",
        "small": "suppress",
        "allow_unbounded": True,
        "together": "card",
        "attributes": {
            "card": {"role": "identifier", "missing": "leave-out"},
            "line": {"role": "public", "kind": "category", "domain": ["red", "blue"]},
            "fare": {
                "role": "quasi-identifier",
                "kind": "numeric",
                "domain": [0, Decimal("9.5")],
                "resolution": Decimal("0.5"),
                "unit": "EUR",
                "missing": "refuse",
                "outside": "clamp",
            },
            "size": {"role": "sensitive", "kind": "ordinal", "domain": ["small", "large"], "outside": "leave-out"},
            "type": {"role": "sensitive", "kind": "tree", "parents": {"child": "person", "adult": "person"}},
            "day": {"role": "drop"},
        },
        "mechanism": {"name": "partition", "k": 5, "bounds": "grid"},
        "read": {"delimiter": ";", "decimal": ",", "encoding": "latin-1", "null": ["NA"]},
        "period": {"column": "day", "length": "month"},
        "budget": {"epsilon": 1, "delta": Decimal("0.00001"), "neighbours": "add-remove"},
    }


def places(source: Any) -> set[str]:
    """Read a policy that must be refused, and say where its problems are."""
    error = refusal(PolicyError, Policy.from_text if isinstance(source, str) else Policy.from_dict, source)
    assert error.exit_code == 2
    assert len(str(error)) < 3_000
    return {problem.where for problem in error.problems}


def changed(document: dict[str, Any], where: str, value: Any) -> dict[str, Any]:
    copied = copy.deepcopy(document)
    *tables, key = where.split(".")
    table = copied
    for name in tables:
        table = table.setdefault(name, {})
    table[key] = value
    return copied


def test_everything_is_read(document: dict[str, Any]) -> None:
    policy = Policy.from_dict(document)
    assert (policy.dataset, policy.schema.protects, policy.small) == ("rides", "ride", "suppress")
    assert policy.allow_unbounded
    assert policy.schema.together == "card"
    merged = {"card": None, "line": "same", "fare": "sum", "size": "same", "type": "same", "day": None}
    assert {attribute.name: attribute.merged for attribute in policy.schema} == merged
    assert policy.read_options == ReadOptions(delimiter=";", decimal=",", encoding="latin-1", null=("NA",))
    assert policy.period == PeriodRule(length="month", column="day")
    fare = policy.schema["fare"]
    assert fare.domain == Numeric(lower=0, upper="9.5", resolution="0.5", unit="EUR")
    assert (fare.role, fare.missing, fare.outside) == (Role.QUASI_IDENTIFIER, "refuse", "clamp")
    assert policy.schema["line"].domain == Category(values=("red", "blue"))
    assert policy.schema["size"].domain == Ordinal(levels=("small", "large"))
    assert policy.schema["type"].domain == Tree(parents={"child": "person", "adult": "person"})
    assert policy.mechanism == {"name": "partition", "k": 5, "bounds": "grid"}


def test_numbers_are_exact(document: dict[str, Any]) -> None:
    policy = Policy.from_text(PARCELS)
    assert policy.budget == Budget(epsilon="1/10", delta="1/100000", neighbours=Neighbours.ADD_REMOVE)
    assert policy.schema["weight"].numeric.resolution == Fraction(1, 10)
    same = Policy.from_dict(changed(dict(policy.document), "budget.epsilon", 0.1))
    assert (same.budget, same.digest()) == (policy.budget, policy.digest())
    third = Policy.from_dict(changed(tomllib.loads(PARCELS), "budget.epsilon", Fraction(1, 3)))
    assert third.budget is not None
    assert third.budget.epsilon == Fraction(1, 3)
    assert Policy.from_text(third.to_toml()) == third
    numpy = changed(tomllib.loads(PARCELS), "attributes.weight.domain", [np.int64(0), np.float64(0.5)])
    numpy = changed(numpy, "attributes.weight.resolution", np.float64(0.1))
    assert Policy.from_dict(numpy).schema["weight"].numeric.upper == Fraction(1, 2)
    doubled = Policy.from_dict(changed(document, "attributes.fare.doubling", Decimal("0.3")))
    assert doubled.schema["fare"].numeric.doubling == Fraction(3, 10)
    assert Policy.from_text(doubled.to_toml()).schema == doubled.schema
    assert doubled.digest() != Policy.from_dict(document).digest()


WRONG: dict[str, list[Any]] = {
    "dataset": [5, "", "  ", "a\x1bb", ["x"]],
    "protects": [{"a": 1}, True, ""],
    "small": ["supress", 1],
    "allow_unbounded": ["true", 1],
    "together": [5, "", "crad", "zzz", "day", "fare"],
    "togther": ["card"],
    "attributes": [{}, [], [{"role": "drop"}], "weight"],
    "attributes.fare": ["numeric"],
    "attributes.fare.role": ["quasi-identifer", ["public"]],
    "attributes.fare.kind": ["number", 3],
    "attributes.fare.domain": [[0], [False, True], ["0", "9.5"], {"lower": 0}, [9, 0], [0, Decimal("Infinity")], None],
    "attributes.fare.resolution": ["0.1", True, -1, [1]],
    "attributes.fare.doubling": ["wide", 0],
    "attributes.fare.unit": [5],
    "attributes.fare.missing": ["drop", "clamp"],
    "attributes.fare.outside": [False],
    "attributes.size.outside": ["clamp"],
    "attributes.size.domain": [[1, 2], ["a", "a"]],
    "attributes.type.parents": [{"a": ["b"]}, {"a": 1}, {"a": "b", "b": "a"}, "h.csv"],
    "attributes.type.hierarchy": ["h.csv"],
    "attributes.line.domian": [["a"]],
    "attributes.card.kind": ["number"],
    "mechanism": ["partition", [{"name": "partition"}]],
    "mechanism.name": [5],
    "mechanism.k": ["", float("nan")],
    "mechanism.since": [date(2026, 1, 1)],
    "read": [[], "csv"],
    "read.delimiter": [",", ";;", "é", '"', "\n", "x", 1],
    "read.decimal": ["'"],
    "read.encoding": ["utf-9", "base64", "a\0b"],
    "read.null": ["NA", [0]],
    "read.delimeter": [","],
    "period": ["day"],
    "period.length": ["year", ["day"]],
    "period.column": ["date"],
    "period.lenght": ["day"],
    "budget": [1],
    "budget.epsilon": [-1, 0, True, "1", "1/0", {"value": 1}, float("inf")],
    "budget.delta": [1],
    "budget.neighbours": ["add"],
    "budget.unit": ["day"],
    "epsilon": [1],
    "mechansim": [{}],
}


def test_a_wrong_value_is_named(document: dict[str, Any]) -> None:
    for where, values in WRONG.items():
        for value in values:
            found = places(changed(document, where, value))
            # Of a value that fits its key and no other, the place is the table that was to be made of it.
            assert where in found or where.rpartition(".")[0] in found, (where, value, found)
    for where, value, place in (
        ("protects", " ", "protects"),
        ("mechanism", {}, "mechanism.name"),
        ("attributes.card.domain", [0, 1], "attributes.card.kind"),
        ("attributes.type.parents", {}, "attributes.type.hierarchy"),
    ):
        assert place in places(changed(document, where, value))
    for key in ("dataset", "protects", "attributes", "mechanism", "budget.neighbours"):
        lacking = copy.deepcopy(document)
        del (lacking["budget"] if "." in key else lacking)[key.rpartition(".")[2]]
        assert places(lacking) == {key}
    for value in (5, None, [("dataset", "x")]):
        places(value)


def test_a_word_that_is_nearly_right_is_suggested(document: dict[str, Any]) -> None:
    for where, value, meant in (
        ("small", "supress", "suppress"),
        ("together", "crad", "card"),
        ("togther", "card", "together"),
        ("attributes.fare.role", "quasi-identifer", "quasi-identifier"),
        ("attributes.fare.kind", "numerical", "numeric"),
        ("attributes.line.domian", ["a"], "domain"),
        ("read.delimeter", ",", "delimiter"),
        ("mechansim", {}, "mechanism"),
    ):
        error = refusal(PolicyError, Policy.from_dict, changed(document, where, value))
        assert len(error.problems) == 1, "the wrong kind does not make its keys unknown"
        assert repr(meant) in str(error)
    assert "card" in str(refusal(PolicyError, Policy.from_dict, changed(document, "together", "zzz")))
    assert "'weight'" in suggestion("wieght", ["weight", "town"])
    assert "a, b" in suggestion("zzz", ["b", "a"])
    assert suggestion("zzz", [])


def test_all_problems_in_one_error(document: dict[str, Any]) -> None:
    document["dataset"] = 1
    document["attributes"]["fare"]["domain"] = [0]
    document["attributes"]["line"]["role"] = "pubic"
    document["budget"]["epsilon"] = -1
    document["read"]["null"] = [1]
    document["zeal"] = 1
    error = refusal(PolicyError, Policy.from_dict, document)
    found = ["attributes.fare.domain", "attributes.line.role", "budget", "dataset", "read.null", "zeal"]
    assert sorted(problem.where for problem in error.problems) == found
    assert all(f"{where}: " in str(error) for where in found)


def test_roles_and_names(document: dict[str, Any]) -> None:
    for synonym, role in (("identifying", "identifier"), ("insensitive", "public")):  # ARX's words
        assert Policy.from_dict(changed(document, "attributes.card.role", synonym)).schema["card"].role == role
    quasi = changed(document, "attributes.fare.role", "quasi-identifying")
    assert Policy.from_dict(quasi).schema["fare"].role is Role.QUASI_IDENTIFIER
    refused_names = ["row", "class_id", "count", "bin", "source_row", "=1+1", "+x", "@x", " -x", "", "a\tb"]
    for name in (*refused_names, "fare_lower", "fare_upper", "fare_mean"):
        for role in ("public", "drop"):
            other = copy.deepcopy(document)
            other["attributes"][name] = {"role": role}
            if role == "drop":
                assert Policy.from_dict(other).schema[name].role is Role.DROP
            else:
                assert places(other) <= {"attributes", f"attributes.{name}"}


def test_hostile_text() -> None:
    syntax = refusal(PolicyError, Policy.from_text, 'dataset = "x"\nprotects = "y"\nattributes = = 1\n')
    assert "line 3" in str(syntax)
    deep = ["[" * 50_000, "{b = " * 5_000, "1e" + "9" * 40, "1" * 5_000, "0x" + "f" * 50_000, "1" + "0" * 800 + ".5"]
    for text in (*deep, "nan", "-inf", "2026-99-99", "1\na = 2"):
        places(f"a = {text}")
    for text in (".".join(["a"] * 2_000) + " = 1", "\0", ""):
        places(text)


WORDS = [*'[]={}",.#_1ak', "\n", "\r", "1e9", "attributes", "[attributes.a]\n", "role", "'", '"""', "true", "nan", "0x"]
WORDS += ["\\u", "\u00e9", "dataset", ' = "drop"\n']


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(WORDS), max_size=40).map("".join) | st.text(max_size=60))
def test_random_text_is_only_refused(text: str) -> None:
    with pytest.raises(PolicyError):
        Policy.from_text(text)


TEXTS = st.sampled_from(["", "x", "numeric", "tree", "graph", "/", "/dev/zero", "no\0file", "1/3", ".", "\t", "day"])
NUMBERS = st.one_of(st.booleans(), st.integers(), st.floats(), st.decimals(), st.fractions())
ANYTHING = st.recursive(
    st.one_of(st.none(), NUMBERS, st.dates(), st.binary(max_size=3), TEXTS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(list(WRONG)), ANYTHING), min_size=1, max_size=3))
def test_any_value_anywhere_is_taken_or_refused(changes: list[tuple[str, Any]]) -> None:
    document = tomllib.loads(PARCELS)
    for where, value in changes:
        try:
            document = changed(document, where, value)
        except (AttributeError, TypeError):
            return  # the place was overwritten by the change before
    try:
        policy = Policy.from_dict(document)
    except PolicyError:
        return
    again = Policy.from_text(policy.to_toml())
    assert again == policy
    assert again.digest() == policy.digest()


def test_files_that_are_no_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in (5, None, b"\xff\0", "no\0file"):
        refusal(ParameterError, Policy.read, wrong)
    path = tmp_path / "p.toml"
    path.write_text(PARCELS, encoding="utf-8-sig")  # a byte order mark is no problem
    assert Policy.read(path) == Policy.from_text(PARCELS)
    for content, words in ((b'dataset = "x"\n# \xe9\n', "line 2"), (PARCELS.encode("utf-16"), "UTF-8")):
        path.write_bytes(content)
        assert words in str(refusal(PolicyError, Policy.read, path))
    path.write_text(PARCELS + "#" * (MAX_POLICY_BYTES + 1))
    for large in (path, "/dev/zero"):
        assert "1 MiB" in str(refusal(PolicyError, Policy.read, large))
    for unreadable in (tmp_path / "none.toml", tmp_path):
        assert unreadable.name in str(refusal(PolicyError, Policy.read, unreadable))

    def denied(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", denied)
    assert "p.toml" in str(refusal(PolicyError, Policy.read, path))


TREE = PARCELS + '[attributes.place]\nrole = "quasi-identifier"\nkind = "tree"\nhierarchy = "h.csv"\n'
GRAPH = PARCELS + '[attributes.place]\nrole = "quasi-identifier"\nkind = "graph"\nedges = "e.csv"\n'


def test_hierarchies_and_edges(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    for text, file, contents in (
        (TREE, "h.csv", ("a;x;*\nb;x;*\nc;y;*\n", "a;x;*\nb;y;*\nc;y;*\n")),
        (GRAPH, "e.csv", ("from,to\na,b\nb,c\n", "from,to\na,b\na,c\n")),
    ):
        path.write_text(text)
        named, digests = tmp_path / file, set()
        assert {problem.where for problem in refusal(PolicyError, Policy.read, path).problems} == {"attributes.place"}
        named.mkdir()
        assert file in str(refusal(PolicyError, Policy.read, path))
        named.rmdir()
        for bad in (b"", b"\xff\xfe", b"a,b\nc\n", b'"a,b', b"from,to\nA\n", b"from,to\nA,A\n"):
            named.write_bytes(bad)
            (problem,) = refusal(PolicyError, Policy.read, path).problems
            assert problem.where == "attributes.place"
            assert file in str(problem)
        for content in (*contents, contents[1]):
            named.write_text(content)
            policy = Policy.read(path)
            domain = policy.schema["place"].domain
            assert isinstance(domain, Tree | Graph)
            assert domain.labels == ("a", "b", "c")
            digests.add(policy.digest())
        assert len(digests) == 2
    for name in ("/dev/zero", "no\\u0000file"):
        assert places(TREE.replace("h.csv", name)) == {"attributes.place"}


def test_digests(document: dict[str, Any]) -> None:
    """The ledger compares them: a policy that did not change must not look changed."""
    rows = "cb65e14f1f6324ca4dc2a6c58f877519713aeb99fa5062c3ded1a3bd334acb52"
    assert Policy.from_dict(document).digest() == rows
    assert Policy.from_text(PARCELS).digest() == "aacc3c515e4d859fc2e9ece5b2448c7bbbc67d3bc22dd371e63f9d011d24bf44"
    head, rest = PARCELS.split("[mechanism]", 1)
    moved = f"# why\n{head}[budget]{rest.split('[budget]')[1]}\n[mechanism]  # what\nk = 5\nname = 'partition'\n"
    assert Policy.from_text(moved).digest() == Policy.from_text(PARCELS).digest()
    policy = Policy.from_dict(document)
    digest = policy.digest()
    document["mechanism"]["k"] = 2
    document["attributes"]["fare"]["domain"][1] = 1000
    assert policy.digest() == digest
    assert policy.mechanism["k"] == 5
    rest = {"allow_unbounded": False, "read.null": ["-"], "mechanism.k": 6, "budget.delta": 0}
    flat: dict[str, Any] = {**dict(word.split("=") for word in OTHER.split()), **rest}
    flat |= {"attributes.line.domain": ["red", "blue", "green"], "attributes.size.domain": ["large", "small"]}
    flat |= {"attributes.fare.domain": [0, 10], "attributes.fare.resolution": 0.25, "budget.epsilon": 1.1}
    assert set(flat) | KINDS == set(leaves(document))
    digests = {Policy.from_dict(changed(document, where, value)).digest() for where, value in flat.items()}
    assert len(digests | {Policy.from_dict(document).digest()}) == len(flat) + 1


OTHER = """
dataset=rides2 protects=trip small=refuse together=line
attributes.card.role=public attributes.card.missing=refuse attributes.line.role=sensitive
attributes.fare.role=sensitive attributes.fare.unit=USD attributes.fare.missing=leave-out attributes.fare.outside=refuse
attributes.size.role=public attributes.size.kind=category attributes.size.outside=refuse
attributes.type.role=public attributes.day.role=public mechanism.name=other mechanism.bounds=class
read.delimiter=| read.decimal=. read.encoding=utf-8 period.column=card period.length=day budget.neighbours=replace-one
"""
KINDS = {"attributes.line.kind", "attributes.fare.kind", "attributes.type.kind"}  # another kind needs other keys
KINDS |= {"attributes.type.parents.child", "attributes.type.parents.adult"}


def leaves(value: Any, where: str = "") -> list[str]:
    if isinstance(value, dict):
        return [leaf for key, item in value.items() for leaf in leaves(item, f"{where}.{key}".lstrip("."))]
    return [where]


NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=8).filter(
    lambda name: name[0] not in "=+-@'" and name not in {"row", "class_id", "count", "bin", "source_row"}
)
AMOUNTS = st.decimals(min_value="0.001", max_value="0.9", places=3) | st.floats(0.001, 0.9)


@st.composite
def attributes(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(["numeric", "ordinal", "category", "tree", None]))
    labels = draw(st.lists(NAMES, min_size=2, max_size=4, unique=True))
    table: dict[str, Any] = {"role": draw(st.sampled_from(["identifier", "sensitive", "public", "drop"]))}
    if kind is not None:
        table |= {"kind": kind, "role": draw(st.sampled_from(["quasi-identifier", "public"]))}
    if kind == "numeric":
        table |= {"domain": [draw(st.integers(-5, 0)), draw(AMOUNTS)], "unit": draw(NAMES)}
        table |= {"outside": draw(st.sampled_from(["refuse", "clamp", "leave-out"]))}
    elif kind == "tree":
        table["parents"] = dict.fromkeys(labels, "everything there is")
    elif kind is not None:
        table["domain"] = labels
    return table


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    document: dict[str, Any] = {
        "dataset": draw(NAMES),
        "protects": draw(st.from_regex(r"[a-z]{1,12}( [a-z0-9]{1,8}){0,2}", fullmatch=True)),
        "attributes": draw(st.dictionaries(NAMES, attributes(), min_size=1, max_size=4)),
        "mechanism": {
            "name": draw(NAMES.filter(lambda name: not name.startswith("local-"))),  # those are for devices
            "k": draw(st.integers()),
            "x": draw(AMOUNTS | st.lists(AMOUNTS, min_size=1)),
        },
    }
    if draw(st.booleans()):
        neighbours = draw(st.sampled_from(["add-remove", "replace-one"]))
        document["budget"] = {"epsilon": draw(AMOUNTS), "delta": draw(AMOUNTS), "neighbours": neighbours}
    if draw(st.booleans()):
        document["read"] = {"null": draw(st.lists(st.text(max_size=4), min_size=1)), "delimiter": "\t"}
    return document


@settings(max_examples=150, deadline=None)
@given(documents(), st.randoms())
def test_writing_and_reading_gives_the_same_policy(document: dict[str, Any], dice: random.Random) -> None:
    names = document["attributes"]
    assume(not any(name + suffix in names for name in names for suffix in ("_lower", "_upper", "_mean")))
    assume(any(table["role"] != "drop" for table in names.values()))
    policy = Policy.from_dict(document)
    written = policy.to_toml()
    again = Policy.from_text(written)
    assert again == policy
    assert again.digest() == policy.digest()
    assert again.to_toml() == written
    keys = list(document)
    dice.shuffle(keys)
    assert Policy.from_dict({key: document[key] for key in keys}).digest() == policy.digest()


def test_periods_and_purposes() -> None:
    refused(lambda length: PeriodRule(length=length), ["year"], "day", "week", "month", "label")
    policy = Policy.from_text(PARCELS)
    purpose = policy.purpose("2026-11")
    assert (purpose.dataset, purpose.period, purpose.budget) == ("parcels", "2026-11", policy.budget)
    assert purpose.policy_digest == policy.digest()
    assert not purpose.allow_unbounded


# --- trips --------------------------------------------------------------------------------------------------------

QUASI = "quasi-identifier"
TAP = {"role": QUASI, "kind": "time", "domain": ["04:00", "28:00"], "window_minutes": 30}
TRIPS = {
    "dataset": "trips",
    "protects": "trip",
    "trip": {"origin": "board", "destination": "alight", "time": "tap"},
    "city": {"stops": "stops.csv", "modes": "modes.csv"},
    "attributes": {
        "card": {"role": "identifier"},
        "board": {"role": QUASI, "kind": "stop"},
        "alight": {"role": QUASI, "kind": "stop"},
        "tap": TAP,
    },
    "mechanism": {"name": "constrained-counts", "epsilon": 1, "features": "O5"},
}
RIDER = {"protects": "rider", "contribution": {"person": "card", "max": 3, "per": "period"}}
NUMBER = {"role": QUASI, "kind": "numeric", "domain": [0, 9]}
GONE = object()


@pytest.fixture
def city(tmp_path: Path) -> Path:
    (tmp_path / "stops.csv").write_text("stop,zone\nB,x\nA,y\n")
    (tmp_path / "bare.csv").write_text("stop\nB\nA\n")
    (tmp_path / "modes.csv").write_text("origin,destination,mode\nA,A,walk\nA,B,bus\nB,A,bus\nB,B,walk\n")
    return tmp_path


def of_trips(folder: Path, changes: dict[str, Any] | None = None) -> Policy:
    """Read a policy of trips with something changed, or gone."""
    made = copy.deepcopy(TRIPS)
    for where, value in (changes or {}).items():
        made = changed(made, where, value)
        if value is GONE:
            *tables, key = where.split(".")
            del (made[tables[0]][tables[1]] if tables[1:] else made[tables[0]] if tables else made)[key]
    return Policy.from_dict(made, path=folder / "policy.toml")


def test_a_policy_of_trips_is_read(city: Path) -> None:
    policy = of_trips(city)
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
    rider = of_trips(city, RIDER).schema
    assert (rider.contribution, rider.person) == (Contribution(person="card", max=3, per="period"), "card")
    # The digest covers the files of the city, and is that of version 0.1.0: the ledger compares digests.
    assert policy.digest() == "9368ce6798654562efb8437060f9922b3d9926f285513d020d18a513e1d59b03"
    (city / "stops.csv").write_text("stop,zone\nB,x\nA,x\n")
    after = of_trips(city)
    assert policy.digest() != after.digest()
    assert policy.schema != after.schema
    assert after.schema == of_trips(city).schema
    assert Policy.from_text(after.to_toml(), path=city / "policy.toml").schema == after.schema


def test_days_and_counts_of_trips(city: Path) -> None:
    days = {"zone": "America/Detroit", "day": "day-type", "dates": ["2026-11-01", "2026-11-30"]}
    schema = of_trips(city, {"attributes.tap": {**TAP, **days, "holidays": ["2026-11-26"]}}).schema
    assert schema.time.zone == "America/Detroit"
    assert schema.tells_days
    assert schema.universe().days == ("weekday", "saturday", "sunday")
    holiday = schema.universe("2026-11-26")
    assert (holiday.num_dates, holiday.days) == ((1,), ("sunday",))
    day = {"role": QUASI, "kind": "category", "domain": ["work", "free"]}
    schema = of_trips(city, {"attributes.kind": day, "trip.day": "kind"}).schema
    assert schema.tells_days
    assert (schema.universe("2026-11").days, schema.universe("2026-11").num_dates) == (("free", "work"), ())
    period = {"period": {"length": "month", "column": "tap"}}
    dated = of_trips(city, {"attributes.tap.day": "date", **period}).schema
    assert dated.universe("2026-11").num_cells == 4 * 48 * 30
    of_trips(city, {**RIDER, "contribution.per": "day", **period})
    for name in ("count", "trips"):
        assert of_trips(city, {f"attributes.{name}": NUMBER, "trip.count": name}).schema[name].counts
    of_trips(city, {"attributes.other": {**TAP, "role": "drop"}})


def test_policies_of_trips_refused(city: Path) -> None:
    day = {"role": QUASI, "kind": "ordinal", "domain": ["a"]}
    for place, cases in {
        "attributes.board.kind attributes.alight.kind": [{"city": GONE}],
        "city": [{"city.stops": "none.csv"}],
        "city.stops": [{"city.stops": GONE}],
        "city.lines": [{"city.lines": "lines.csv"}],
        "city.zones": [{"city.zones": "zones.csv"}],
        "trip": [{"trip.origin": "bord"}, {"trip.origin": "alight"}],
        "trip.origin": [{"trip.origin": GONE}, {"attributes.board.role": "public"}],
        "trip.card": [{"trip.card": "card"}],
        "attributes.tap trip.origin trip.time trip.destination": [{"trip.origin": "tap", "trip.time": "board"}],
        "trip.destination": [{"attributes.alight": {"role": QUASI, "kind": "category", "domain": ["A"]}}],
        "attributes.line": [{"attributes.line": {"role": role}} for role in ("public", "sensitive")],
        "attributes.x": [{"attributes.x": {"role": QUASI, "kind": "stop"}}],
        "attributes.board": [{"attributes.board.outside": "clamp"}],
        "attributes.tap": [
            {"attributes.tap.outside": "clamp"},
            {"attributes.tap.window_minutes": 0},
            {"attributes.tap.domain": ["04:00"]},
            {"attributes.tap.zone": "Nowhere"},
            {"attributes.tap.zone": "localtime"},
            *({"trip": GONE, "protects": "ride", "attributes.tap.role": role} for role in Role if role != "drop"),
        ],
        "attributes.tap.window_minutes": [{"attributes.tap.window_minutes": value} for value in (GONE, "30")],
        "attributes.tap.domain": [{"attributes.tap.domain": ends} for ends in ([4, 28], [time(4), time(22)])],
        "attributes.tap.day": [{"attributes.tap.day": "date"}],
        "attributes.tap.windows": [{"attributes.tap.windows": 3}],
        "together": [{"together": "card"}],
        "protects": [{"protects": "package"}],
        "contribution": [
            {"protects": "rider"},
            {"protects": "rider", "contribution": {"person": "card"}},
            {"contribution": {"person": "card"}},
            {"contribution": {"person": "card", "max": 3, "per": "day"}},
            *({**RIDER, "contribution.max": bound} for bound in (0, 2**31)),
            {"trip": GONE, "attributes.tap": GONE, "protects": "ride", "contribution": RIDER["contribution"]},
        ],
        "contribution.max": [{**RIDER, "contribution.max": bound} for bound in (GONE, 1.5, "3")],
        "contribution.per": [{**RIDER, "contribution.per": per} for per in (GONE, "week", "day")],
        "contribution.person": [{**RIDER, "contribution.person": name} for name in ("crad", "board")],
        "trip.count": [
            {**RIDER, "attributes.n": NUMBER, "trip.count": "n"},
            {"attributes.n": {**NUMBER, "domain": [-1, 9]}, "trip.count": "n"},
        ],
        "trip.day": [{"attributes.kind": day, "trip.day": "kind", "attributes.tap.day": "weekday"}],
        "mechanism.features": [{"mechanism.features": []}],
        "attributes.count": [{"attributes.count": NUMBER}],
        "attributes.row": [{"attributes.row": NUMBER, "trip.count": "row"}],
    }.items():
        for case in cases:
            found = [problem.where for problem in refusal(PolicyError, of_trips, city, case).problems]
            assert set(found) == set(place.split()), case
            assert len(found) <= 2 or "trip.time" in found, "one problem is told once"
    several = {"city.stops": "none.csv", "trip.origin": GONE, "attributes.tap.window_minutes": GONE}
    error = refusal(PolicyError, of_trips, city, {**several, "protects": "rider"})
    assert {"city", "trip.origin", "attributes.tap.window_minutes"} <= {problem.where for problem in error.problems}
    assert "attributes.board" not in str(error), "nothing is wrong with it but the city's file"


def test_mechanisms_and_trips(city: Path) -> None:
    for features, stops, word in (
        ("O5", "stops.csv", "mode"),
        ("O4", "bare.csv", "zone"),
        ([["day"]], "bare.csv", "tap"),
    ):
        policy = of_trips(city, {"city": {"stops": stops}, "mechanism.features": features})
        (problem,) = refusal(PolicyError, mechanism_of, policy).problems
        assert problem.where == "mechanism.features"
        assert word in str(problem)
    for name, parameters in {
        "partition": {"k": 2},
        "full-domain": {"k": 2},
        "noisy-values": {"epsilon": 1},
        "noisy-clusters": {"epsilon": 1, "borders": {"tap": [1]}},
        "sampled-lattice": {"k": 2, "beta": 0.1, "epsilon_choice": 1},
    }.items():
        policy = of_trips(city, {"mechanism": {"name": name, **parameters}})
        assert [problem.where for problem in refusal(PolicyError, mechanism_of, policy).problems] == ["trip"]
    # A stop is a category to other mechanisms, and a person may be named without a bound.
    others = {"trip": GONE, "attributes.tap": GONE, "attributes.alight": GONE, "protects": "ride"}
    mechanism_of(of_trips(city, {**others, "mechanism": {"name": "full-domain", "k": 2}}))
    clusters = {"name": "utility-clusters", "k": 2}
    mechanism_of(of_trips(city, {**others, "mechanism": clusters, "attributes.fare": NUMBER}))
    assert of_trips(city, {**others, "contribution": {"person": "card"}}).schema.person == "card"
    # Features that are no tree are the policy's fault, whatever is done with it.
    tree = {"name": "hierarchical-counts", "epsilon": 1, "features": [["mode"], ["window"]]}
    row = {"card": ["c"], "board": ["A"], "alight": ["B"], "tap": ["2026-11-15T08:12"]}
    dataset = Dataset.from_table(pa.table(row), of_trips(city, {"mechanism": tree}))
    for verb in (foresee, rehearse, publish):
        (problem,) = refusal(PolicyError, verb, dataset).problems
        assert problem.where == "mechanism"
    nobody = Dataset.from_table(pa.table({name: pa.array([], pa.string()) for name in row}), of_trips(city))
    assert foresee(nobody).warnings
    with Ledger(":memory:") as book:
        publish(nobody, ledger=book)
