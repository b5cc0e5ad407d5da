# SPDX-License-Identifier: Apache-2.0
"""Checks of releases whose classes are clusters: sets, trees, importance, distortion, and what was asked of classes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dunnage._version import __version__
from dunnage.arrays import FloatArray, IntArray
from dunnage.domains import CodedDomain, Domain, Tree, domain_from
from dunnage.errors import CheckFailed, ParameterError
from dunnage.exact import exact
from dunnage.guarantees import COUNTS_PERSONS
from dunnage.measures import (
    ENTROPIES,
    LIMIT_TOLERANCE,
    diversity_reached,
    set_widths,
    shares_of,
    width_limit,
)
from dunnage.mechanisms import mechanism_from
from dunnage.release import Release
from dunnage.schema import Attribute, Role, Schema
from dunnage.verification.reading import (
    floats,
    generalised,
    is_clustered,
    is_number,
    is_set_valued,
    k_of,
    numeric_domain,
    require,
    sensitive_column,
    with_role,
)


def _domain(release: Release, name: str) -> Domain:
    return _domain_of(json.dumps(release.attributes[name]["domain"]))


@lru_cache(maxsize=8)
def _domain_of(description: str) -> Domain:
    """Make a domain once, however often it is looked at: distances in a large network take long."""
    return domain_from(json.loads(description))


def _tree(release: Release, name: str) -> Tree:
    return cast("Tree", _domain(release, name))


def _set_codes(release: Release, classes: pa.Table, name: str) -> tuple[CodedDomain, IntArray, IntArray]:
    """Return the domain of a column of sets, the codes of all labels, set after set, and the size of each set."""
    domain = cast("CodedDomain", _domain(release, name))
    column = classes.column(name).combine_chunks()
    labels = column.flatten().dictionary_encode()
    known = np.asarray(labels.dictionary.to_pylist(), dtype=object)
    require(bool(domain.contains(known).all()), f"classes: a set of {name} leaves the public domain")
    codes = domain.codes(known)[labels.indices.to_numpy(zero_copy_only=False)]
    return domain, codes, pc.list_value_length(column).to_numpy(zero_copy_only=False).astype(np.int64)


def check_labels(release: Release, classes: pa.Table, name: str) -> None:
    """Check that nodes are in the public tree and sets in the public domain, well formed and as wide as is stated."""
    if is_set_valued(release, name):
        _check_sets(release, classes, name)
        return
    known = set(classes.column(name).to_pylist()) <= _tree(release, name).node_sizes.keys()
    require(known, f"classes: {name} has a label that is no node of the public tree")


def cluster_widths(release: Release, classes: pa.Table, name: str) -> FloatArray:
    """Return the largest distance in each class, as a share of the diameter of the domain."""
    if is_number(release, name):
        width = floats(classes, f"{name}_upper") - floats(classes, f"{name}_lower")
        return np.asarray(width / numeric_domain(release, name).diameter)
    if is_set_valued(release, name):
        domain, codes, sizes = _set_codes(release, classes, name)
        return set_widths(domain, codes, sizes) / (domain.diameter or 1.0)
    tree = _tree(release, name)
    sizes_of = tree.node_sizes
    leaves = np.array([sizes_of[label] for label in classes.column(name).to_pylist()])
    return np.asarray((leaves - 1) / (tree.diameter or 1.0))


def _check_sets(release: Release, classes: pa.Table, name: str) -> None:
    """Check that sets are sorted, without repeats, not larger than their class, and as wide as is stated."""
    domain, codes, sizes = _set_codes(release, classes, name)
    fits = (sizes >= 1) & (sizes <= classes.column("size").to_numpy())
    require(bool(fits.all()), f"classes: a set of {name} is empty or has more values than its class has records")
    new_set = np.repeat(np.arange(len(sizes)), sizes)
    in_order = (np.diff(codes) > 0) | (np.diff(new_set) > 0)
    require(bool(in_order.all()), f"classes: a set of {name} is not in order")
    if f"{name}_diameter" in classes.column_names:
        found = set_widths(domain, codes, sizes)
        equal = np.array_equal(found, floats(classes, f"{name}_diameter"))
        require(equal, f"classes: {name}_diameter is not the longest path inside its set")


def check_parameters(release: Release) -> None:
    """Check that clusters of these attributes can be asked for like this, and promise what is stated."""
    if not is_clustered(release):
        return
    body = release.certificate.body
    persons = COUNTS_PERSONS in body["assumptions"]
    counted = persons == ("persons" in body["measures"])
    require(counted, "certificate.json: either k counts persons and their number is stated, or neither")
    try:
        promise = mechanism_from(body["mechanism"]).promise(_schema(body, persons=persons))
    except ParameterError as error:
        raise CheckFailed(f"certificate.json: {error}") from None
    if body["software"]["dunnage"] == __version__:  # another one may have put it in other words
        require(body["in_clear"] == list(promise.in_clear), "certificate.json: what is in clear is not what is shown")
        assumed = {a.name: a.says for a in promise.assumptions}
        require(body["assumptions"] == assumed, "certificate.json: the assumptions are not those of clusters")


def _schema(body: Mapping[str, Any], *, persons: bool) -> Schema:
    """Make the public part of a schema; identifiers are not released, so that one stands for them."""
    attributes = [
        Attribute(**{**described, "domain": domain_from(described["domain"]) if "domain" in described else None})
        for described in body["attributes"]
    ]
    hidden = Attribute(name="identifier of its owner", role=Role.IDENTIFIER)
    return Schema(
        attributes=(*attributes, hidden),
        protects=body["guarantee"]["protects"],
        person=hidden.name if persons else None,
        together=hidden.name if any(attribute.merged for attribute in attributes) else None,
    )


def fewest_persons(release: Release, sizes: IntArray) -> int | None:
    """Return how many persons are said to be in the class with fewest: at least k, at most its records."""
    stated = release.certificate.body["measures"].get("persons")
    if stated is None or not is_clustered(release):
        return None
    fewest = stated["smallest"]
    fits = type(fewest) is int and k_of(release) <= fewest <= int(sizes.min())
    require(fits, "certificate.json: the number of persons does not fit k and the class sizes")
    return cast("int", fewest)


def cluster_figures(release: Release, classes: pa.Table, suppressed: int) -> dict[str, Any]:
    """Work out the figures that only clusters have; the entropy of true records is taken as stated."""
    body = release.certificate.body
    given, stated = body["mechanism"]["importance"], body["measures"]["importance"]["factors"]
    names, sizes = generalised(release), classes.column("size").to_numpy()
    if isinstance(given, str):
        require(given in ENTROPIES, "certificate.json: an importance that this version does not know")
    else:
        require(given.keys() <= set(names), "certificate.json: the importance of attributes makes no sense")
        stated = {name: float(exact(given.get(name, 1), what="importance")) for name in names}
    sensible = list(stated) == names or stated.keys() == set(names)
    sensible = sensible and all(type(value) is float and 0 <= value < math.inf for value in stated.values())
    require(sensible, "certificate.json: the importance of attributes makes no sense")
    weights = shares_of({name: stated[name] for name in names})
    lost = math.fsum(weights[name] * float(sizes @ cluster_widths(release, classes, name)) for name in names)
    released = int(sizes.sum())
    chosen = body["measures"].get("k_chosen")
    return {
        "importance": {"factors": stated, "weights": weights},
        "distortion": {"generalisation": lost / released, "suppression": suppressed / (released + suppressed)},
        **({} if body["mechanism"]["max_distortion"] is None else {"k_chosen": chosen}),
    }


def check_asked(release: Release, classes: pa.Table) -> None:
    """Check what clusters were asked to keep to, as far as it can be seen: limits, risk, distortion, l and t."""
    if not is_clustered(release):
        return
    check_parameters(release)
    body = release.certificate.body
    mechanism, measures = body["mechanism"], body["measures"]
    for name, limit in mechanism["limits"].items():
        domain = _domain(release, name)
        most = width_limit(domain, exact(limit)) * (1 + LIMIT_TOLERANCE) + LIMIT_TOLERANCE
        widest = float(cluster_widths(release, classes, name).max()) * domain.diameter
        require(widest <= most, f"classes: wider in {name} than the limit")
    if mechanism["max_risk"] is not None:
        require(exact(mechanism["max_risk"]) * k_of(release) >= 1, "certificate.json: k allows more than max_risk")
    if mechanism["max_distortion"] is not None:
        fits = (
            measures["loss"]["total"]
            <= float(exact(mechanism["max_distortion"])) * (1 + LIMIT_TOLERANCE) + LIMIT_TOLERANCE
        )
        chosen = measures["k_chosen"]
        fits = fits and type(chosen) is int and k_of(release) <= chosen <= measures["k_reached"]
        require(fits, "certificate.json: distortion or k are not those that max_distortion allows")
    class_id = release.data.column("class_id").to_numpy()
    for name in with_role(release, "sensitive"):
        reached = diversity_reached(mechanism, class_id, sensitive_column(release, name))
        require(all(reached), f"data: {name} is less diverse or farther from the whole table than was asked for")
