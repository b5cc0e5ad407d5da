# SPDX-License-Identifier: Apache-2.0
"""Attributes and their domains, as a policy writes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from dunnage.domains import Category, Domain, Graph, Numeric, Ordinal, Stops, Tree
from dunnage.policy.tables import Context, Table, attempt, number_of
from dunnage.policy.trips import read_windows
from dunnage.schema import MISSING_RULES, OUTSIDE_RULES, Attribute, Role

ROLE_SYNONYMS = {"identifying": "identifier", "quasi-identifying": "quasi-identifier", "insensitive": "public"}


def read_attribute(name: str, data: Any, context: Context) -> Attribute | None:
    """Read one column: role, domain and rules; None after noting what is wrong with it."""
    before = len(context.problems)
    where = f"attributes.{name}"
    table = Table(_with_role_synonyms(data), where, context.problems)
    role = table.choice("role", tuple(Role))
    domain = _read_domain(table, context)
    missing = table.choice("missing", MISSING_RULES, default="refuse")
    outside = table.choice("outside", OUTSIDE_RULES, default="refuse")
    table.finish()
    if len(context.problems) > before or role is None or missing is None or outside is None:
        return None
    kind = table.data.get("kind")
    if kind == Stops.kind and domain is None:
        return None  # what is wrong with the city's files has been noted
    make = partial(Attribute, name=name, role=Role(role), domain=domain, missing=missing, outside=outside)
    make = partial(make, kind=kind, counts=name == context.count_column)
    made: Attribute | None = attempt(context.problems, where, make)
    return made


def _read_domain(table: Table, context: Context) -> Domain | None:
    kind = table.choice("kind", tuple(_DOMAIN_READERS), default=None)
    if kind is not None:
        made: Domain | None = attempt(context.problems, table.where, lambda: _DOMAIN_READERS[kind](table, context))
        return made
    # Keys that only mean something with a kind are no unknown keys.
    table.seen |= _DOMAIN_KEYS
    given = sorted(_DOMAIN_KEYS & table.data.keys())
    if given and "kind" not in table.data:
        table.problem("kind", f"is missing, but {', '.join(given)} needs it", 'Write kind = "numeric", say.')
    return None


def _with_role_synonyms(data: Any) -> Any:
    if not isinstance(data, Mapping):
        return data
    role = data.get("role")
    return {**data, "role": ROLE_SYNONYMS[role]} if isinstance(role, str) and role in ROLE_SYNONYMS else data


def _read_numeric(table: Table, context: Context) -> Domain | None:
    if table.data.get("domain") == [] and table.data.get("role") not in ("", Role.QUASI_IDENTIFIER):
        table.seen.add("domain")  # left blank in a draft, and only a quasi-identifier needs one
        bounds = None
    else:
        bounds = table.items("domain", "[lowest, highest], public bounds", default=None)
    resolution = table.number("resolution", "the step of the public grid", default=None)
    unit = table.text("unit", '"kg", say', default="")
    doubling = table.number("doubling", "the width of the narrowest intervals of its hierarchy", default=None)
    if bounds is None:
        return None
    ends = [number_of(bound) for bound in bounds]
    if len(ends) != 2 or ends[0] is None or ends[1] is None:
        table.problem("domain", "must be two numbers [lowest, highest]", "Mend the value.")
        return None
    return Numeric(lower=ends[0], upper=ends[1], resolution=resolution, unit=unit or "", doubling=doubling)


_LABELS = 'a list of texts ["a", "b"]'


def _read_ordinal(table: Table, context: Context) -> Domain | None:
    labels = table.texts("domain", _LABELS)
    return Ordinal(levels=labels) if labels else None


def _read_category(table: Table, context: Context) -> Domain | None:
    labels = table.texts("domain", _LABELS, default=None)
    return Category(values=labels) if labels else None


def _read_tree(table: Table, context: Context) -> Domain | None:
    hierarchy = table.text("hierarchy", '"hierarchy.csv", one row a leaf', default=None)
    parents = table.take("parents", (Mapping,), "a table child = parent", default=None)
    if (hierarchy is None) == (not parents):
        remedy = 'A tree needs one of hierarchy = "file.csv" and a table parents.'
        table.problem("hierarchy", "and parents are both given" if parents else "is missing", remedy)
        return None
    return Tree.from_csv(context.file(hierarchy)) if hierarchy is not None else Tree(parents=parents)


def _read_graph(table: Table, context: Context) -> Domain | None:
    edges = table.text("edges", '"edges.csv" with columns from,to[,length]')
    directed = table.flag("directed", False)
    return Graph.from_csv(context.file(edges), directed=directed) if edges is not None else None


def _read_stop(table: Table, context: Context) -> Domain | None:
    if context.city is not None:
        return Stops(stops=context.city.stops)
    if not context.city_named:
        table.problem("kind", "is stop, but nothing says which stops there are", 'Write [city] stops = "stops.csv".')
    return None


def _read_time(table: Table, context: Context) -> Domain | None:
    return read_windows(table)


_DOMAIN_READERS: Mapping[str, Callable[[Table, Context], Domain | None]] = {
    "numeric": _read_numeric,
    "ordinal": _read_ordinal,
    "category": _read_category,
    "tree": _read_tree,
    "graph": _read_graph,
    "stop": _read_stop,
    "time": _read_time,
}
_DOMAIN_KEYS = {"domain", "resolution", "unit", "doubling", "hierarchy", "parents", "edges", "directed"}
_DOMAIN_KEYS |= {"window_minutes", "zone", "day", "dates", "holidays"}
