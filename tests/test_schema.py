# SPDX-License-Identifier: Apache-2.0
"""Schemas: an attribute or schema cannot exist in a bad state."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from tests.refusals import Named, refusal, refused

from dunnage.errors import ParameterError
from dunnage.model.domains import Category, Numeric, Ordinal, Stops, Windows
from dunnage.model.schema import GENERALISED_SUFFIXES, RESERVED_NAMES, Attribute, Contribution, Role, Schema
from dunnage.model.trips import Trip

QUASI = Role.QUASI_IDENTIFIER
WEIGHT = Attribute(name="weight", role=QUASI, kind="numeric", domain=Numeric(lower=0, upper=5))
TOWN = Attribute(name="town", role=Role.PUBLIC)
CARD = Attribute(name="card", role=Role.IDENTIFIER)
PRICE = Attribute(name="price", role=Role.SENSITIVE, kind="numeric")
NOTE = Attribute(name="note", role=Role.DROP)


def of_packages(*attributes: Attribute) -> Schema:
    return Schema(attributes=attributes, protects="package")


def test_attributes_by_role() -> None:
    schema = of_packages(CARD, WEIGHT, TOWN, PRICE, NOTE)
    assert list(schema) == [CARD, WEIGHT, TOWN, PRICE, NOTE]
    assert (schema.quasi_identifiers, schema.public, schema.sensitive) == ((WEIGHT,), (TOWN,), (PRICE,))
    assert schema.identifiers == (CARD,)
    assert schema["weight"].numeric.upper == 5
    refused(schema.__getitem__, ["wight"], "'wight'", "card", "weight")
    for name in ("town", "price"):
        refused(lambda name: schema[name].numeric, [name], name)
    described = schema.describe()
    assert [item["name"] for item in described] == ["weight", "town", "price"], "no hidden column"
    assert described[0]["domain"]["upper"] == 5
    assert described[1] == {"name": "town", "role": "public"}
    with pytest.raises(dataclasses.FrozenInstanceError):
        WEIGHT.name = "x"  # type: ignore[misc]
    with pytest.raises(TypeError):
        Attribute("x", Role.PUBLIC)  # type: ignore[misc]
    made = Attribute(name="size", role="sensitive", domain=Ordinal(levels=("s", "m")))  # type: ignore[arg-type]
    assert (made.role, made.kind, made.describe()["kind"]) == (Role.SENSITIVE, "ordinal", "ordinal")


def test_names() -> None:
    for name in (*RESERVED_NAMES, "", " ", "=x", "+x", "-x", "@x", "'x", " =x", "a\nb", "a\0"):
        for role in set(Role) - {Role.DROP}:
            refusal(ParameterError, Attribute, name=name, role=role, domain=Numeric(lower=0, upper=1))
        assert Attribute(name=name, role=Role.DROP).name == name
    for name in ("größe", "a.b", "a b", 'a"b', "x=1", "😀", "Row", "weight_kg"):
        assert Attribute(name=name, role=Role.PUBLIC).name == name
    for suffix in GENERALISED_SUFFIXES:  # they collide only with what is released
        name = f"weight{suffix}"
        others = [Attribute(name=name, role=Role.PUBLIC), Attribute(name=name, role=Role.SENSITIVE)]
        for other in (*others, dataclasses.replace(WEIGHT, name=name)):
            assert name in str(refusal(ParameterError, of_packages, WEIGHT, other))
        for role in (Role.IDENTIFIER, Role.DROP):
            of_packages(WEIGHT, Attribute(name=name, role=role))
        of_packages(TOWN, Attribute(name=f"town{suffix}", role=Role.PUBLIC))


def test_what_an_attribute_cannot_be() -> None:
    bad: list[Any] = [
        Named({"role": "secret"}, ("quasi-identifier", "drop")),
        Named({"missing": "clamp"}, ("missing", "refuse", "leave-out")),
        Named({"missing": None}, ("missing",)),
        Named({"outside": "drop"}, ("outside", "refuse", "clamp")),
        Named({"outside": "clamp"}, ("clamp",)),
        Named({"outside": "clamp", "domain": Category(values=("a", "b"))}, ("clamp",)),
        Named({"kind": "tree", "domain": Numeric(lower=0, upper=1)}, ("'tree'", "'numeric'")),
        Named({"role": QUASI}, ("kind", "domain")),
        Named({"role": QUASI, "kind": "category"}, ('["a", "b"]',)),
        Named({"role": QUASI, "kind": "numeric"}, ("[lowest, highest]",)),
    ]
    refused(lambda of: Attribute(**{"name": "x", "role": Role.PUBLIC, **of}), bad)


def test_what_a_schema_cannot_be() -> None:
    refused(lambda of: of_packages(*of), [Named((TOWN, CARD, TOWN), ("town",)), (), (NOTE,)])
    refused(lambda protects: Schema(attributes=(TOWN,), protects=protects), [" "])
    stops, windows = Stops(stops=("A",)), Windows(lower="08:00", upper="09:00", window_minutes=30)
    domains = {"a": stops, "b": stops, "t": windows, "other": Stops(stops=("B",))}
    a, b, t, other = (Attribute(name=name, role=QUASI, domain=domain) for name, domain in domains.items())
    trip = Trip(origin="a", destination="b", time="t")
    assert Schema(attributes=(a, b, t), protects="trip", trip=trip).universe().num_cells == 2
    cards = tuple(Attribute(name=name, role=Role.IDENTIFIER) for name in ("c", "d"))
    bound = {"protects": "rider", "person": "d", "contribution": Contribution(person="c", max=1, per="period")}
    counts = Attribute(name="count", role=Role.IDENTIFIER, counts=True)
    cases = [
        {"attributes": (a, dataclasses.replace(other, name="b"), t)},
        {"attributes": (a, b)},
        {"attributes": (a, b, t, *cards), **bound},
        {"attributes": (a, b, t, counts)},
    ]
    refused(lambda of: Schema(**{"protects": "trip", "trip": trip, **of}), cases)
    refusal(ParameterError, of_packages(TOWN).universe)
    refusal(ParameterError, Contribution, person="c", max=1, per="week")
