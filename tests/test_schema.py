# SPDX-License-Identifier: Apache-2.0
"""Schemas: an attribute or schema cannot exist in a bad state."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from dunnage.errors import ParameterError
from dunnage.model.domains import Category, Numeric, Ordinal
from dunnage.model.schema import GENERALISED_SUFFIXES, RESERVED_NAMES, Attribute, Role, Schema

WEIGHT = Attribute(name="weight", role=Role.QUASI_IDENTIFIER, kind="numeric", domain=Numeric(lower=0, upper=5))
TOWN = Attribute(name="town", role=Role.PUBLIC)
CARD = Attribute(name="card", role=Role.IDENTIFIER)
PRICE = Attribute(name="price", role=Role.SENSITIVE, kind="numeric")
NOTE = Attribute(name="note", role=Role.DROP)


@pytest.fixture
def schema() -> Schema:
    """One attribute of each role."""
    return Schema(attributes=(CARD, WEIGHT, TOWN, PRICE, NOTE), protects="package")


def test_attributes_by_role(schema: Schema) -> None:
    assert list(schema) == [CARD, WEIGHT, TOWN, PRICE, NOTE]
    assert schema.quasi_identifiers == (WEIGHT,)
    assert schema.public == (TOWN,)
    assert schema.sensitive == (PRICE,)
    assert schema.identifiers == (CARD,)
    assert schema["weight"].numeric.upper == 5


def test_an_attribute_that_is_not_there(schema: Schema) -> None:
    with pytest.raises(ParameterError, match=r"no attribute 'wight'\. The schema has: card, weight"):
        schema["wight"]
    with pytest.raises(ParameterError, match="'town' is not numeric"):
        _ = schema["town"].numeric
    with pytest.raises(ParameterError, match="'price' is not numeric with a domain"):
        _ = schema["price"].numeric


def test_the_description_names_no_hidden_column(schema: Schema) -> None:
    described = schema.describe()
    assert [item["name"] for item in described] == ["weight", "town", "price"]
    assert described[0]["domain"]["upper"] == 5
    assert described[1] == {"name": "town", "role": "public"}


@pytest.mark.parametrize("name", [*RESERVED_NAMES, "", " ", "=x", "+x", "-x", "@x", "'x", " =x", "a\nb", "a\0"])
@pytest.mark.parametrize("role", [role for role in Role if role is not Role.DROP])
def test_names_that_are_refused(name: str, role: Role) -> None:
    with pytest.raises(ParameterError, match="Rename the column"):
        Attribute(name=name, role=role, domain=Numeric(lower=0, upper=1))
    assert Attribute(name=name, role=Role.DROP).name == name


@pytest.mark.parametrize("name", ["größe", "a.b", "a b", 'a"b', "x=1", "😀", "Row", "weight_kg"])
def test_names_that_are_fine(name: str) -> None:
    assert Attribute(name=name, role=Role.PUBLIC).name == name


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"role": "secret"}, "role must be one of identifier, quasi-identifier"),
        ({"role": Role.QUASI_IDENTIFIER}, "needs a kind and a public domain"),
        ({"missing": "clamp"}, "missing must be one of refuse, leave-out"),
        ({"missing": None}, "missing must be one of"),
        ({"outside": "drop"}, "outside must be one of refuse, leave-out, clamp"),
        ({"outside": "clamp"}, "needs a numeric domain"),
        ({"outside": "clamp", "domain": Category(values=("a", "b"))}, "needs a numeric domain"),
        ({"kind": "tree", "domain": Numeric(lower=0, upper=1)}, "has kind 'tree' but a domain of kind 'numeric'"),
    ],
)
def test_what_an_attribute_cannot_be(bad: dict[str, Any], says: str) -> None:
    with pytest.raises(ParameterError, match=says) as caught:
        Attribute(**{"name": "x", "role": Role.PUBLIC, **bad})
    assert caught.value.exit_code == 2


def test_roles_may_be_given_as_words_and_kinds_follow_domains() -> None:
    made = Attribute(name="size", role="sensitive", domain=Ordinal(levels=("s", "m")))  # type: ignore[arg-type]
    assert made.role is Role.SENSITIVE
    assert made.kind == "ordinal"
    assert made.describe()["kind"] == "ordinal"


def test_what_a_schema_cannot_be() -> None:
    with pytest.raises(ParameterError, match=r"columns declared twice: town\."):
        Schema(attributes=(TOWN, CARD, TOWN), protects="package")
    with pytest.raises(ParameterError, match="one column or more"):
        Schema(attributes=(), protects="package")
    with pytest.raises(ParameterError, match="that is not dropped"):
        Schema(attributes=(NOTE,), protects="package")
    with pytest.raises(ParameterError, match="what one record stands for"):
        Schema(attributes=(TOWN,), protects=" ")


@pytest.mark.parametrize("suffix", GENERALISED_SUFFIXES)
def test_suffixes_collide_only_with_what_is_released(suffix: str) -> None:
    for role in (Role.PUBLIC, Role.SENSITIVE):
        other = Attribute(name=f"weight{suffix}", role=role)
        with pytest.raises(ParameterError, match=f"weight{suffix} collide"):
            Schema(attributes=(WEIGHT, other), protects="package")
    other = dataclasses.replace(WEIGHT, name=f"weight{suffix}")
    with pytest.raises(ParameterError, match="collide"):
        Schema(attributes=(WEIGHT, other), protects="package")
    for role in (Role.IDENTIFIER, Role.DROP):
        Schema(attributes=(WEIGHT, Attribute(name=f"weight{suffix}", role=role)), protects="package")
    Schema(attributes=(TOWN, Attribute(name=f"town{suffix}", role=Role.PUBLIC)), protects="package")


def test_frozen_and_keyword_only() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        WEIGHT.name = "x"  # type: ignore[misc]
    with pytest.raises(TypeError):
        Attribute("x", Role.PUBLIC)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("category", r'public domain, as it is category. Got none. Write domain = \["a", "b"\]'),
        ("numeric", r"public domain, as it is numeric. Got none. Write domain = \[lowest, highest\]"),
        (None, "needs a kind and a public domain"),
    ],
)
def test_what_a_quasi_identifier_lacks_is_named_by_kind(kind: str | None, words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        Attribute(name="bag", role=Role.QUASI_IDENTIFIER, kind=kind)
