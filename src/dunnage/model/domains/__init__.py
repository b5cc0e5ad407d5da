# SPDX-License-Identifier: Apache-2.0
"""The public kind and range of an attribute: distance, generalisation, width.

A domain is a public fact, fixed before any private row is read. Every kind answers the same questions
(:class:`Domain`): is a value in it, how far apart are two values, what is the smallest generalised value
that covers a set, and how wide is that on a scale from 0 (nothing lost) to 1 (everything lost).

============  ===========================  ==========================  ============================
kind          distance                     generalised value           width
============  ===========================  ==========================  ============================
``numeric``   difference                   (lower, upper)              length / domain's length
``ordinal``   steps between levels         (lowest, highest) level     steps / (levels - 1)
``category``  0 or 1                       sorted tuple of values      (distinct - 1) / (values - 1)
``tree``      leaves under the least       label of that ancestor      (leaves under it - 1) /
              common ancestor, less one                                (leaves - 1)
``graph``     shortest path                sorted tuple of vertices    longest of their distances
                                                                       / diameter
``stop``      0 or 1                       tuple of stops              (distinct - 1) / (stops - 1)
``time``      seconds of the service day   (first, last) second        length / service day's length
============  ===========================  ==========================  ============================

All but ``numeric`` and ``time`` are *coded* (:class:`CodedDomain`): their values are the ``labels``, and algorithms
work on the positions of values in that tuple and on the matrix of distances.

Where values are generalised level by level, :func:`hierarchy_of` gives the levels.

Domains may be named in error messages, values that were looked up in them may not: those come from
private rows.

References
----------
Bhati, Ivanchev, Bojic, Datta and Eckhoff, "Utility-driven k-anonymization of public transport user data",
IEEE Access 9, 2021: distances are its equations 3 to 9, widths its equation 20.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, cast

from dunnage.errors import ParameterError
from dunnage.model.domains.graph import Graph
from dunnage.model.domains.hierarchy import ANY, Hierarchy, IntervalHierarchy, NodeHierarchy, Tree, hierarchy_of
from dunnage.model.domains.labels import MOST_IN_MATRIX, Category, CodedDomain, Domain, Ordinal, Stops
from dunnage.model.domains.numeric import Numeric, decimal_scale
from dunnage.model.domains.windows import Windows

__all__ = [
    "ANY",
    "KINDS",
    "MOST_IN_MATRIX",
    "Category",
    "CodedDomain",
    "Domain",
    "Graph",
    "Hierarchy",
    "IntervalHierarchy",
    "NodeHierarchy",
    "Numeric",
    "Ordinal",
    "Stops",
    "Tree",
    "Windows",
    "decimal_scale",
    "domain_from",
    "hierarchy_of",
]

KINDS: dict[str, type[Any]] = {made.kind: made for made in (Numeric, Ordinal, Category, Tree, Graph, Stops, Windows)}


def domain_from(description: Mapping[str, object]) -> Domain:
    kind = description.get("kind")
    made = KINDS.get(kind) if isinstance(kind, str) else None
    if made is None:
        raise ParameterError(f"kind must be one of {', '.join(KINDS)}. Got {kind!r}.")
    given = {name: value for name, value in description.items() if name != "kind"}
    known = {field.name: field.default is MISSING for field in fields(made)}
    unknown = sorted(given.keys() - known.keys())
    missing = sorted(name for name, required in known.items() if required and name not in given)
    if unknown or missing:
        raise ParameterError(
            f"A {kind} domain takes {', '.join(known)}. "
            + (f"Got {', '.join(unknown)} besides." if unknown else f"Give {', '.join(missing)}.")
        )
    return cast("Domain", made(**given))
