# SPDX-License-Identifier: Apache-2.0
"""What checks read from a release: roles, kinds, columns."""

from __future__ import annotations

import json
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from dunnage.arrays import FloatArray
from dunnage.domains import Numeric, Tree, domain_from
from dunnage.errors import CheckFailed
from dunnage.guarantees import KAnonymity, SampledDP
from dunnage.measures import ranked
from dunnage.release import Release, is_set, set_text


def require(condition: bool, failure: str) -> None:
    """Fail a check unless a condition holds."""
    if not condition:
        raise CheckFailed(failure)


def with_role(release: Release, *roles: str) -> list[str]:
    """Return the names of attributes by role, role after role."""
    return [name for role in roles for name, item in release.attributes.items() if item["role"] == role]


def has_classes(release: Release) -> bool:
    """Return whether records are told by classes that look alike, not by noise."""
    return isinstance(release.certificate.guarantee, KAnonymity | SampledDP)


def k_of(release: Release) -> int:
    """Return how many records of a class must look alike."""
    guarantee = release.certificate.guarantee
    if isinstance(guarantee, KAnonymity):
        return guarantee.k
    k = release.certificate.body["mechanism"].get("k")
    require(type(k) is int and k >= 2, "certificate.json: the mechanism does not state its k")
    return cast("int", k)


def generalised(release: Release) -> list[str]:
    """Return the names of the generalised or perturbed attributes."""
    return with_role(release, "quasi-identifier")


def kind_of(release: Release, name: str) -> str:
    """Return the kind of an attribute's public domain."""
    return str(release.attributes[name]["domain"]["kind"])


def is_clustered(release: Release) -> bool:
    """Return whether classes are clusters, told by intervals, nodes and sets, not by levels of hierarchies."""
    return bool(release.certificate.body["mechanism"].get("name") == "utility-clusters")


def is_set_valued(release: Release, name: str) -> bool:
    """Return whether an attribute is told by sets of labels."""
    return is_clustered(release) and kind_of(release, name) not in (Numeric.kind, Tree.kind)


def is_number(release: Release, name: str) -> bool:
    """Return whether an attribute is numeric."""
    return kind_of(release, name) == Numeric.kind


def num_missing(column: pa.ChunkedArray) -> int:
    """Count missing values, and missing labels in sets."""
    inside = pc.list_flatten(column).null_count if is_set(column.type) else 0
    return int(column.null_count + inside)


def comparable(table: pa.Table) -> pa.Table:
    """Return a table whose sets are texts, which can be grouped by and compared."""
    for index, item in enumerate(table.schema):
        if is_set(item.type):
            table = table.set_column(index, item.name, set_text(table.column(index)))
    return table


def sensitive_column(release: Release, name: str) -> pa.Array:
    """Return the values of a sensitive column as they are compared."""
    return ranked(release.data.column(name).combine_chunks(), release.attributes[name].plain())


def numeric_domain(release: Release, name: str) -> Numeric:
    """Return the public domain of a numeric attribute."""
    return cast("Numeric", domain_from(release.attributes[name]["domain"]))


def floats(table: pa.Table, name: str) -> FloatArray:
    """Return a column of numbers."""
    values: FloatArray = table.column(name).to_numpy()
    return values


def same(found: Any, stated: Any) -> bool:
    """Return whether plain data is the same in a file: 1 is neither 1.0 nor true."""
    return json.dumps(found, sort_keys=True) == json.dumps(stated, sort_keys=True)
