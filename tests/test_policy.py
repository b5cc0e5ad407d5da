# SPDX-License-Identifier: Apache-2.0
"""Policies: everything wrong with one is told at once, and what is right survives writing and reading."""

from __future__ import annotations

import copy
import random
import tomllib
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dunnage.errors import ParameterError, PolicyError
from dunnage.model.documents import suggestion
from dunnage.model.domains import Category, Graph, Numeric, Ordinal, Tree
from dunnage.model.draft import draft_policy
from dunnage.model.guarantees import Budget, Neighbours
from dunnage.model.policy import MAX_POLICY_BYTES, PeriodRule, Policy, ReadOptions
from dunnage.model.schema import Role

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


def problems_of(source: Any) -> str:
    """Read a policy that must be refused, and give its whole message."""
    with pytest.raises(PolicyError) as caught:
        Policy.from_text(source) if isinstance(source, str) else Policy.from_dict(source)
    assert caught.value.exit_code == 2
    assert caught.value.problems
    return str(caught.value)


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


def test_numbers_are_exact_decimals() -> None:
    policy = Policy.from_text(PARCELS)
    assert policy.budget == Budget(
        epsilon=Fraction(1, 10), delta=Fraction(1, 100_000), neighbours=Neighbours.ADD_REMOVE
    )
    assert policy.schema["weight"].numeric.resolution == Fraction(1, 10)
    same = Policy.from_dict(changed(dict(policy.document), "budget.epsilon", 0.1))
    assert same.budget == policy.budget
    assert same.digest() == policy.digest()


def test_the_first_width_of_a_hierarchy_is_read(document: dict[str, Any]) -> None:
    policy = Policy.from_dict(changed(document, "attributes.fare.doubling", Decimal("0.3")))
    assert policy.schema["fare"].numeric.doubling == Fraction(3, 10)
    assert Policy.from_text(policy.to_toml()).schema == policy.schema
    assert policy.digest() != Policy.from_dict(document).digest()


def test_a_fraction_without_decimal_survives() -> None:
    document = changed(tomllib.loads(PARCELS), "budget.epsilon", Fraction(1, 3))
    policy = Policy.from_dict(document)
    assert policy.budget is not None
    assert policy.budget.epsilon == Fraction(1, 3)
    assert Policy.from_text(policy.to_toml()) == policy


def test_numpy_numbers_are_numbers() -> None:
    document = changed(tomllib.loads(PARCELS), "attributes.weight.domain", [np.int64(0), np.float64(0.5)])
    document = changed(document, "attributes.weight.resolution", np.float64(0.1))
    assert Policy.from_dict(document).schema["weight"].numeric.upper == Fraction(1, 2)


# --- wrong values -------------------------------------------------------------------------------------------------

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
    "period.length": ["week", ["day"]],
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
            with pytest.raises(PolicyError) as caught:
                Policy.from_dict(changed(document, where, value))
            places = [problem.where for problem in caught.value.problems]
            # Of a value that fits its key and no other, the place is the table that was to be made of it.
            assert where in places or where.rpartition(".")[0] in places, (where, value, places)


def test_the_place_may_be_another(document: dict[str, Any]) -> None:
    for where, value, place in (
        ("protects", " ", "attributes"),
        ("mechanism", {}, "mechanism.name"),
        ("attributes.card.domain", [0, 1], "attributes.card.kind"),
        ("attributes.type.parents", {}, "attributes.type.hierarchy"),
    ):
        assert f"{place}: " in problems_of(changed(document, where, value))


def test_a_word_that_is_nearly_right_is_suggested(document: dict[str, Any]) -> None:
    for where, value, meant in (
        ("small", "supress", "suppress"),
        ("together", "crad", "card"),
        ("togther", "card", "together"),
        ("attributes.fare.role", "quasi-identifer", "quasi-identifier"),
        ("attributes.line.domian", ["a"], "domain"),
        ("read.delimeter", ",", "delimiter"),
        ("mechansim", {}, "mechanism"),
    ):
        assert f"Did you mean {meant!r}?" in problems_of(changed(document, where, value))
    assert "Known: card, day, fare" in problems_of(changed(document, "together", "zzz"))
    assert "without quotes" in problems_of(changed(document, "budget.epsilon", "1"))
    assert "Put each value in quotes" in problems_of(changed(document, "read.null", [0]))


@pytest.mark.parametrize("key", ["dataset", "protects", "attributes", "mechanism"])
def test_what_must_be_there(document: dict[str, Any], key: str) -> None:
    del document[key]
    assert f"{key}: is missing" in problems_of(document)


def test_a_budget_without_neighbours_is_refused(document: dict[str, Any]) -> None:
    del document["budget"]["neighbours"]
    assert "budget.neighbours: is missing" in problems_of(document)


def test_all_problems_in_one_error(document: dict[str, Any]) -> None:
    document["dataset"] = 1
    document["attributes"]["fare"]["domain"] = [0]
    document["attributes"]["line"]["role"] = "pubic"
    document["budget"]["epsilon"] = -1
    document["read"]["null"] = [1]
    document["zeal"] = 1
    message = problems_of(document)
    for where in ("dataset:", "attributes.fare.domain:", "attributes.line.role:", "budget:", "read.null:", "zeal:"):
        assert where in message
    assert "6 problems" in message


def test_the_wrong_kind_does_not_make_its_keys_unknown(document: dict[str, Any]) -> None:
    document["attributes"]["fare"]["kind"] = "numerical"
    message = problems_of(document)
    assert "Did you mean 'numeric'?" in message
    assert "not a key" not in message


@pytest.mark.parametrize(("synonym", "role"), [("identifying", "identifier"), ("insensitive", "public")])
def test_arx_words(document: dict[str, Any], synonym: str, role: str) -> None:
    assert Policy.from_dict(changed(document, "attributes.card.role", synonym)).schema["card"].role == role
    document["attributes"]["fare"]["role"] = "quasi-identifying"
    assert Policy.from_dict(document).schema["fare"].role is Role.QUASI_IDENTIFIER


@pytest.mark.parametrize(
    "name", ["row", "class_id", "count", "bin", "source_row", "=1+1", "+x", "@x", " -x", "", "a\tb"]
)
def test_names_that_a_release_cannot_hold(document: dict[str, Any], name: str) -> None:
    document["attributes"][name] = {"role": "public"}
    assert "Rename the column" in problems_of(document)
    document["attributes"][name] = {"role": "drop"}
    assert Policy.from_dict(document).schema[name].role is Role.DROP


@pytest.mark.parametrize("suffix", ["_lower", "_upper", "_mean"])
def test_names_that_a_release_makes(document: dict[str, Any], suffix: str) -> None:
    document["attributes"]["fare" + suffix] = {"role": "public"}
    assert f"fare{suffix} collide" in problems_of(document)


# --- text and files -----------------------------------------------------------------------------------------------


def test_a_syntax_error_names_the_line() -> None:
    assert "line 3" in problems_of('dataset = "x"\nprotects = "y"\nattributes = = 1\n')


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 50_000,
        "a = " + "{b = " * 5_000,
        ".".join(["a"] * 2_000) + " = 1",
        "a = 1e" + "9" * 40,
        "a = " + "1" * 5_000,
        "a = 0x" + "f" * 50_000,
        "a = 1" + "0" * 800 + ".5",
        "a = nan",
        "a = -inf",
        "a = 2026-99-99",
        "a = 1\na = 2",
        "\0",
        "",
    ],
)
def test_hostile_text(text: str) -> None:
    assert len(problems_of(text)) < 3_000


def test_random_bytes_are_only_refused(tmp_path: Path) -> None:
    dice = random.Random(1)
    path = tmp_path / "p.toml"
    for _ in range(300):
        path.write_bytes(dice.randbytes(dice.randrange(200)))
        with pytest.raises(PolicyError):
            Policy.read(path)


WORDS = [*'[]={}",.#_1ak', "\n", "\r", "1e9", "attributes", "[attributes.a]\n", "role", "'", '"""', "true", "nan", "0x"]
WORDS += ["\\u", "\u00e9", "dataset", ' = "drop"\n']


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(WORDS), max_size=40).map("".join) | st.text(max_size=60))
def test_random_text_is_only_refused(text: str) -> None:
    with pytest.raises(PolicyError):
        Policy.from_text(text)


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.decimals()
    | st.fractions()
    | st.dates()
    | st.binary(max_size=3)
    | st.sampled_from(["", "x", "numeric", "tree", "graph", "/", "/dev/zero", "no\0file", "1/3", ".", "\t", "day"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3),
    max_leaves=5,
)
PLACES = list(WRONG)


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(PLACES), ANYTHING), min_size=1, max_size=3))
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


@pytest.mark.parametrize("value", [5, None, "dataset", [("dataset", "x")]])
def test_what_is_no_table(value: Any) -> None:
    assert "must be a table" in problems_of(value) if not isinstance(value, str) else True


@pytest.mark.parametrize("path", [5, None, b"\xff\0", "no\0file"])
def test_what_is_no_path(path: Any) -> None:
    with pytest.raises(ParameterError, match="policy must be a Policy or the path of one"):
        Policy.read(path)


def test_files_that_are_no_policy(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    with pytest.raises(PolicyError, match=r"p\.toml: cannot be read: No such file"):
        Policy.read(path)
    with pytest.raises(PolicyError, match="Is a directory"):
        Policy.read(tmp_path)
    path.write_bytes(b'dataset = "x"\n# \xe9\n')
    with pytest.raises(PolicyError, match=r"not UTF-8 text \(line 2\)"):
        Policy.read(path)
    path.write_text("#" * (MAX_POLICY_BYTES + 1))
    with pytest.raises(PolicyError, match="larger than 1 MiB"):
        Policy.read(path)
    with pytest.raises(PolicyError, match="larger than 1 MiB"):
        Policy.read("/dev/zero")
    path.write_text(PARCELS, encoding="utf-16")
    with pytest.raises(PolicyError, match="not UTF-8"):
        Policy.read(path)


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(PolicyError, match="cannot be read: Permission denied"):
        Policy.read(tmp_path / "p.toml")


def test_a_byte_order_mark_is_no_problem(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text(PARCELS, encoding="utf-8-sig")
    assert Policy.read(path) == Policy.from_text(PARCELS)


TREE = PARCELS + '[attributes.place]\nrole = "quasi-identifier"\nkind = "tree"\nhierarchy = "h.csv"\n'
GRAPH = PARCELS + '[attributes.place]\nrole = "quasi-identifier"\nkind = "graph"\nedges = "e.csv"\n'


def test_files_are_relative_to_the_policy_and_count_in_the_digest(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text(TREE)
    (tmp_path / "h.csv").write_text("a;x;*\nb;x;*\nc;y;*\n")
    first = Policy.read(path)
    assert isinstance(first.schema["place"].domain, Tree)
    assert Policy.read(path).digest() == first.digest()
    (tmp_path / "h.csv").write_text("a;x;*\nb;y;*\nc;y;*\n")
    assert Policy.read(path).digest() != first.digest()


def test_an_edge_list(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text(GRAPH)
    (tmp_path / "e.csv").write_text("from,to\nA,B\nB,C\n")
    domain = Policy.read(path).schema["place"].domain
    assert isinstance(domain, Graph)
    assert domain.labels == ("A", "B", "C")


@pytest.mark.parametrize(("text", "file"), [(TREE, "h.csv"), (GRAPH, "e.csv")])
def test_bad_hierarchies_and_edges(tmp_path: Path, text: str, file: str) -> None:
    path, named = tmp_path / "p.toml", tmp_path / file
    path.write_text(text)
    with pytest.raises(PolicyError, match=rf"attributes\.place: .*{file} does not exist\. Paths are relative"):
        Policy.read(path)
    named.mkdir()
    with pytest.raises(PolicyError, match=f"{file} is not a file"):
        Policy.read(path)
    named.rmdir()
    for content in (b"", b"\xff\xfe", b"a,b\nc\n", b'"a,b', b"from,to\nA\n", b"from,to\nA,A\n"):
        named.write_bytes(content)
        with pytest.raises(PolicyError, match=rf"attributes\.place: .*{file}"):
            Policy.read(path)


def test_a_hierarchy_that_is_no_regular_file() -> None:
    for name in ("/dev/zero", "no\\u0000file"):
        assert "Paths are relative to the policy" in problems_of(TREE.replace("h.csv", name))


# --- digests and round trips --------------------------------------------------------------------------------------


def test_digests_are_those_of_version_0_1_0(document: dict[str, Any]) -> None:
    """The ledger compares them: a policy that did not change must not look changed."""
    rows = "cb65e14f1f6324ca4dc2a6c58f877519713aeb99fa5062c3ded1a3bd334acb52"
    assert Policy.from_dict(document).digest() == rows
    assert Policy.from_text(PARCELS).digest() == "aacc3c515e4d859fc2e9ece5b2448c7bbbc67d3bc22dd371e63f9d011d24bf44"


def test_comments_and_order_do_not_count() -> None:
    first = Policy.from_text(PARCELS)
    head, rest = PARCELS.split("[mechanism]", 1)
    mechanism, budget = rest.split("[budget]")
    moved = f"# why\n{head}[budget]{budget}\n[mechanism]  # what\nk = 5\nname = 'partition'\n"
    assert Policy.from_text(moved).digest() == first.digest()
    assert mechanism


def leaves(value: Any, where: str = "") -> list[str]:
    if isinstance(value, dict):
        return [leaf for key, item in value.items() for leaf in leaves(item, f"{where}.{key}".lstrip("."))]
    return [where]


def test_every_value_counts(document: dict[str, Any]) -> None:
    other = {
        "dataset": "rides2",
        "protects": "trip",
        "small": "refuse",
        "allow_unbounded": False,
        "together": "line",
        "attributes.card.role": "public",
        "attributes.card.missing": "refuse",
        "attributes.line.role": "sensitive",
        "attributes.line.kind": None,
        "attributes.line.domain": ["red", "blue", "green"],
        "attributes.fare.role": "sensitive",
        "attributes.fare.kind": None,
        "attributes.fare.domain": [0, 10],
        "attributes.fare.resolution": Decimal("0.25"),
        "attributes.fare.unit": "USD",
        "attributes.fare.missing": "leave-out",
        "attributes.fare.outside": "refuse",
        "attributes.size.role": "public",
        "attributes.size.kind": "category",
        "attributes.size.domain": ["large", "small"],
        "attributes.size.outside": "refuse",
        "attributes.type.role": "public",
        "attributes.type.kind": None,
        "attributes.type.parents.child": "minor",
        "attributes.type.parents.adult": "minor",
        "attributes.day.role": "public",
        "mechanism.name": "other",
        "mechanism.k": 6,
        "mechanism.bounds": "class",
        "read.delimiter": "|",
        "read.decimal": ".",
        "read.encoding": "utf-8",
        "read.null": ["-"],
        "period.column": "card",
        "period.length": "day",
        "budget.epsilon": Decimal("1.1"),
        "budget.delta": 0,
        "budget.neighbours": "replace-one",
    }
    assert set(other) == set(leaves(document))
    digests = {Policy.from_dict(document).digest()}
    tried = [where for where, value in other.items() if value is not None and "parents" not in where]
    for where in tried:
        digests.add(Policy.from_dict(changed(document, where, other[where])).digest())
    assert len(digests) == len(tried) + 1


def test_a_policy_does_not_change_with_what_it_was_read_from(document: dict[str, Any]) -> None:
    policy = Policy.from_dict(document)
    digest = policy.digest()
    document["mechanism"]["k"] = 2
    document["attributes"]["fare"]["domain"][1] = 1000
    assert policy.digest() == digest
    assert policy.mechanism["k"] == 5


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
        "protects": draw(NAMES),
        "attributes": draw(st.dictionaries(NAMES, attributes(), min_size=1, max_size=4)),
        "mechanism": {
            "name": draw(NAMES),
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


# --- drafts -------------------------------------------------------------------------------------------------------

ODD_NAMES = ['a "b"', "a.b", "[x]", "größe", "😀", "a\\b", "\x7f", "tab\t", "line\nline", "", "#", "a'b", "\x00", "1"]


def test_a_draft_lists_all_its_blanks() -> None:
    text = draft_policy("parcels", {"weight": "numeric", "town": "text"})
    message = problems_of(text)
    for where in ("attributes.weight.role", "attributes.weight.domain", "attributes.town.role", "mechanism.k"):
        assert f"{where}: is blank" in message
    assert "4 problems" in message


def test_a_filled_in_draft_is_a_policy() -> None:
    text = draft_policy("parcels", {"weight": "numeric", "town": "text"}, options=ReadOptions(delimiter=";"))
    text = text.replace('role = ""', 'role = "public"').replace("domain = []", "domain = [0, 5]")
    policy = Policy.from_text(text.replace('k = ""', "k = 5"))
    assert policy.read_options.delimiter == ";"
    assert policy.schema["weight"].numeric.upper == 5


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_draft_of_odd_names(name: str) -> None:
    document = tomllib.loads(
        draft_policy(name, {name: "numeric", "other": "text"}, options=ReadOptions(delimiter="\t"))
    )
    assert document["dataset"] == name
    assert list(document["attributes"]) == [name, "other"]
    assert document["read"]["delimiter"] == "\t"


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=10), unique=True, max_size=4))
def test_a_draft_of_any_names(names: list[str]) -> None:
    document = tomllib.loads(draft_policy("x", dict.fromkeys(names, "text")))
    assert list(document.get("attributes", {})) == names


def test_suggestions() -> None:
    assert suggestion("wieght", ["weight", "town"]) == "Did you mean 'weight'?"
    assert suggestion("zzz", ["b", "a"]) == "Known: a, b."
    assert suggestion("zzz", []) == "Known: none."


def test_a_period_rule_of_another_length() -> None:
    with pytest.raises(ParameterError, match="a period is one of day, month"):
        PeriodRule(length="week")


def test_the_purpose_carries_what_the_ledger_needs() -> None:
    policy = Policy.from_text(PARCELS)
    purpose = policy.purpose("2026-11")
    assert (purpose.dataset, purpose.period, purpose.budget) == ("parcels", "2026-11", policy.budget)
    assert purpose.policy_digest == policy.digest()
    assert not purpose.allow_unbounded


def test_a_domain_left_blank_matters_only_to_a_quasi_identifier() -> None:
    text = draft_policy("parcels", {"number": "numeric", "weight": "numeric"})
    first, second = text.split("[attributes.weight]")
    filled = first.replace('role = ""', 'role = "identifier"') + "[attributes.weight]"
    quasi = second.replace('role = ""', 'role = "quasi-identifier"').replace('k = ""', "k = 2")
    with pytest.raises(PolicyError) as error:
        Policy.from_text(filled + quasi)
    assert "attributes.weight.domain: is blank" in str(error.value)
    assert "number" not in str(error.value)
    assert Policy.from_text(filled + quasi.replace("domain = []", "domain = [0, 9]")).schema["number"].domain is None
