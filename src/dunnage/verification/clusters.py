# SPDX-License-Identifier: Apache-2.0
"""Checks of releases whose classes are clusters: sets, trees, importance, distortion, and what was asked of classes."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dunnage.domains import CodedDomain, FloatArray, IntArray, Tree, domain_from
from dunnage.exact import exact
from dunnage.measures import (
    ENTROPIES,
    LIMIT_TOLERANCE,
    diversity_reached,
    label_distances,
    set_diameters,
    shares_of,
    width_limit,
)
from dunnage.release import Release
from dunnage.verification.reading import (
    floats,
    generalised,
    is_clustered,
    is_number,
    is_set_valued,
    k_of,
    numeric_domain,
    require,
    with_role,
)


def _tree(release: Release, name: str) -> Tree:
    return cast("Tree", domain_from(release.attributes[name]["domain"]))


def _set_codes(release: Release, classes: pa.Table, name: str) -> tuple[CodedDomain, IntArray, IntArray]:
    """Return the domain of a column of sets, the codes of all labels, set after set, and the size of each set."""
    domain = cast("CodedDomain", domain_from(release.attributes[name]["domain"]))
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
        distances = label_distances(domain)
        return np.asarray(set_diameters(codes, sizes, distances) / (distances.max() or 1.0))
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
        found = set_diameters(codes, sizes, label_distances(domain))
        same = np.array_equal(found, floats(classes, f"{name}_diameter"))
        require(same, f"classes: {name}_diameter is not the longest path inside its set")


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
    body = release.certificate.body
    mechanism, measures = body["mechanism"], body["measures"]
    for name, limit in mechanism["limits"].items():
        domain = domain_from(release.attributes[name]["domain"])
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
        reached = diversity_reached(mechanism, class_id, release.data.column(name).combine_chunks())
        require(all(reached), f"data: {name} is less diverse or farther from the whole table than was asked for")
