# SPDX-License-Identifier: Apache-2.0
"""Releases of classes: records of one class look alike, told by intervals, nodes, sets, means or multisets.

Everything that is printed of classes is counted again here from the tables; what depends on how classes were formed is
asked of the mechanism (:class:`ClassRules`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dunnage.arrays import FloatArray, IntArray
from dunnage.certificate import Certificate, RowMeasures
from dunnage.domains import (
    CodedDomain,
    Domain,
    Graph,
    Hierarchy,
    IntervalHierarchy,
    NodeHierarchy,
    Numeric,
    Tree,
    domain_from,
    hierarchy_of,
)
from dunnage.guarantees import KAnonymity, SampledDP
from dunnage.kinds.common import (
    PUBLIC,
    SENSITIVE,
    Columns,
    comparable,
    floats,
    generalised,
    is_number,
    numeric_domain,
    require,
    with_role,
)
from dunnage.kinds.noisy import NOISE_NOT_CHECKED, NOT_CHECKED, NoisyRows, check_rows, check_unchanged, noise_lines
from dunnage.measures import class_sizes, ranked, sensitive_measures, set_widths, size_figures, size_measures, sort_key
from dunnage.tables.columns import SET_TYPE

if TYPE_CHECKING:
    from dunnage.release import Release

_TOLERANCE = 1e-9
PERSONS_NOT_CHECKED = (
    "that each class holds records of as many persons as is stated: only the owner's key names them",
)
KEPT_NOT_CHECKED = ("that statistics of the true records changed as little as was asked for",)
SAMPLE_NOT_CHECKED = (
    "that the sample was drawn at the stated rate, afresh for this release, and is kept secret",
    "that the levels were drawn as stated, on a second such sample, and rows left out for no other reason",
)


class ClassRules(Protocol):
    """How classes were formed, as far as figures of the certificate depend on it: public parameters."""

    @property
    def class_bounds(self) -> str:
        """What bounds are: of the ``class`` itself, of the public ``grid``, or of a ``level`` of a hierarchy."""

    @property
    def price_of_suppression(self) -> Fraction:
        """What suppressing a record counts in the loss, in records generalised to the whole domain."""

    @property
    def most_suppressed(self) -> Fraction | None:
        """Largest share of records that may be suppressed, if there is one."""

    @property
    def metric(self) -> str:
        """Name of the loss metric."""

    @property
    def sensitive_order(self) -> bool | None:
        """Whether sensitive values are compared by order; None if by their kind."""

    def weights(self, release: Release) -> Mapping[str, float]:
        """Return what the loss of each generalised attribute counts."""

    def own_figures(self, release: Release, num_suppressed: int) -> Mapping[str, object]:
        """Work out the figures that only this mechanism states; check what it was asked to keep to."""


class ClassRows(NoisyRows):
    """Rows told by classes."""

    def tables(self, release: Release) -> dict[str, Columns]:
        """Return rows, classes and, with multisets, members."""
        as_is: Columns = dict.fromkeys(with_role(release, PUBLIC, SENSITIVE))
        classes: Columns = {**class_columns(release)}
        tables: dict[str, Columns] = {
            "data": {"row": pa.int64(), "class_id": pa.int64(), **as_is, **classes},
            "classes": {"class_id": pa.int64(), "size": pa.int64(), **classes},
        }
        if release.certificate.mechanism.get("statistic") == "multiset":
            values = {name: pa.float64() if is_number(release, name) else pa.string() for name in generalised(release)}
            tables["members"] = {"class_id": pa.int64(), **values}
        return tables

    def recount(self, release: Release) -> Iterator[str]:
        """Count k again, and check that sizes, bounds, nodes, sets and multisets agree and lie in public domains."""
        if not isinstance(release.certificate.guarantee, KAnonymity):
            check_unchanged(release)
        yield check_rows(release)
        yield _check_k(release)
        yield _check_classes(release)
        yield _check_domains(release)
        if release.members is not None:
            yield _check_members(release, release.members)
        if release.certificate.rows.levels is not None or told_by_nodes(release):
            yield _check_levels(release)

    def not_checked(self, certificate: Certificate) -> tuple[str, ...]:
        """Say what nobody can see from classes alone."""
        measures = certificate.rows
        more: tuple[str, ...] = NOISE_NOT_CHECKED if measures.noisy else ()
        more += PERSONS_NOT_CHECKED if measures.persons is not None else ()
        more += KEPT_NOT_CHECKED if certificate.mechanism.get("keep") else ()
        if not isinstance(certificate.guarantee, SampledDP):
            return (*NOT_CHECKED, *more)
        return ("that the rows are the owner's true records", *NOT_CHECKED[1:], *SAMPLE_NOT_CHECKED, *more)

    def figures(self, release: Release) -> list[str]:
        """Describe k, class sizes, loss, risks, and what classes tell of sensitive columns."""
        measures = release.certificate.rows
        if measures.suppressed is None:
            return _sampled_figures(measures)
        size, loss, risks = measures.class_size, measures.loss, measures.risks
        if size is None or loss is None or risks is None:
            return []
        suppressed = f"{measures.suppressed.count} suppressed ({measures.suppressed.share:.2%})"
        sizes = f"size {size.smallest} smallest, {size.mean:.1f} mean, {size.largest} largest"
        return [
            f"Records     {measures.records} released, {suppressed}",
            f"k           {measures.k_asked} asked, {measures.k_reached} reached"
            + (", of persons" if measures.persons is not None else ""),
            f"Classes     {measures.classes}; {sizes}",
            f"Loss        {loss.total:.4f} of 1 ({loss.metric})",
            f"Risks       prosecutor {risks.prosecutor_highest:.3g} at most, marketer {risks.marketer:.3g}",
            *(
                f"Sensitive   {name}: l {item.l}, t {item.t:.3f} ({item.distance})"
                for name, item in (measures.sensitive or {}).items()
            ),
        ]

    def headline(self, certificate: Certificate, num_rows: int, num_left_out: int) -> list[str]:
        """Say how many records and classes were released, and what that lost."""
        measures = certificate.rows
        if measures.suppressed is None or measures.class_size is None or measures.loss is None:
            return super().headline(certificate, num_rows, num_left_out)
        persons = f", fewest persons {measures.k_reached}" if measures.persons is not None else ""
        smallest = f"smallest {measures.class_size.smallest}{persons}"
        return [
            f"Records   {measures.records} released, {measures.suppressed.count} suppressed, "
            f"{num_left_out} left out by the policy",
            f"Classes   {measures.classes}, {smallest}, loss {measures.loss.total:.4f}",
        ]


def _sampled_figures(measures: RowMeasures) -> list[str]:
    """Describe classes of which only the released rows are told."""
    lines = [f"Records     {measures.records} released"]
    if measures.class_size is not None and measures.loss is not None:
        size = measures.class_size
        lines += [
            f"k           {measures.k_asked} asked, {measures.k_reached} reached",
            f"Classes     {measures.classes}; size {size.smallest} smallest, {size.mean:.1f} mean, "
            f"{size.largest} largest",
            f"Loss        {measures.loss.total:.4f} of 1, of released rows ({measures.loss.metric})",
        ]
    lines.append(f"Levels      {', '.join(f'{name} {level}' for name, level in (measures.levels or {}).items())}")
    return [*lines, *noise_lines(measures.noise or {})]


# What the tables tell


def is_clustered(release: Release) -> bool:
    """Return whether classes are clusters, told by intervals, nodes and sets, not by levels of hierarchies."""
    return release.certificate.rows.distortion is not None


def is_set_valued(release: Release, name: str) -> bool:
    """Return whether an attribute is told by sets of labels."""
    return is_clustered(release) and release.attributes[name].domain_kind not in (Numeric.kind, Tree.kind)


def told_by_nodes(release: Release) -> list[str]:
    """Return the attributes that are told by nodes of a public hierarchy."""
    return [name for name in generalised(release) if not (is_number(release, name) or is_clustered(release))]


def class_columns(release: Release) -> dict[str, pa.DataType]:
    """Return the columns in which the records of a class look alike, besides public ones, with their types."""
    told = release.certificate.mechanism.get("statistic")
    ends = ("lower", "upper", "mean") if told in ("mean", "multiset") else ("lower", "upper")
    columns: dict[str, pa.DataType] = {}
    for name in generalised(release):
        if is_number(release, name):
            columns |= {f"{name}_{end}": pa.float64() for end in ends}
        else:
            columns[name] = SET_TYPE if is_set_valued(release, name) else pa.string()
        if is_set_valued(release, name) and release.attributes[name].domain_kind == Graph.kind:
            columns[f"{name}_diameter"] = pa.float64()
    return columns


def _classes(release: Release) -> pa.Table:
    require(release.classes is not None, "the tables are not those that the certificate speaks of")
    return release.classes


def in_classes(release: Release) -> pa.Table:
    """Return the rows of data that are in a class: all but those that a sample left out, and noise tells of."""
    return release.data.filter(pc.greater_equal(release.data.column("class_id"), 0)) if release.noisy else release.data


def k_of(release: Release) -> int:
    """Return how many records of a class must look alike."""
    guarantee = release.certificate.guarantee
    if isinstance(guarantee, KAnonymity):
        return guarantee.k
    k = release.certificate.mechanism.get("k")
    require(type(k) is int and k >= 2, "certificate.json: the mechanism does not state its k")
    return cast("int", k)


def _check_k(release: Release) -> str:
    """Count k again: smallest group over all public and generalised columns together."""
    k = k_of(release)
    columns = [*with_role(release, PUBLIC), *class_columns(release)]
    data = in_classes(release)
    if not data.num_rows:
        require(not isinstance(release.certificate.guarantee, KAnonymity), "data: no row, so nothing is k-anonymous")
        return f"k = {k} asked, of no rows"
    groups = comparable(data).group_by(columns).aggregate([([], "count_all"), ("class_id", "min"), ("class_id", "max")])
    smallest = int(np.min(groups.column("count_all").to_numpy()))
    require(smallest >= k, f"data: the smallest class has {smallest} records, not {k}")
    require(groups.column("class_id_min").equals(groups.column("class_id_max")), "data: class_id splits a class")
    num_classes = len(np.unique(data.column("class_id").to_numpy()))
    require(groups.num_rows == num_classes, "data: class_id joins records that do not look alike")
    return f"k = {k} asked, {smallest} reached, counted over {', '.join(columns)}"


def _check_classes(release: Release) -> str:
    """Check that sizes, bounds and means are the same wherever they are printed."""
    data, classes = in_classes(release), _classes(release)
    class_id = data.column("class_id").to_numpy()
    ids = classes.column("class_id").to_numpy()
    require(bool(np.array_equal(ids, np.arange(len(ids)))), "classes: class_id is not 0, 1, 2 ...")
    # Looked at before counting: a huge number would be a huge array.
    ends = (int(class_id.min()), int(class_id.max())) if len(class_id) else (0, -1)
    require(ends == (0, len(ids) - 1), "data: a class_id is not in classes")
    sizes = class_sizes(class_id)
    require(bool(np.array_equal(sizes, classes.column("size").to_numpy())), "classes: sizes do not add up")
    classes, data = comparable(classes), comparable(data)
    for name in class_columns(release):
        same = np.array_equal(classes.column(name).to_numpy()[class_id], data.column(name).to_numpy())
        require(bool(same), f"classes: {name} differs between classes and data")
    return "class sizes, bounds, nodes, sets and means agree between data and classes"


def _check_domains(release: Release) -> str:
    """Check that intervals lie in the public domain, and nodes and sets in the public hierarchy."""
    classes = _classes(release)
    for name in with_role(release, PUBLIC, SENSITIVE):
        if release.attributes[name].domain is not None:
            values = np.asarray(release.data.column(name).unique().to_pylist())
            inside = domain_of(release, name).contains(values)
            require(bool(inside.all()), f"data: a value of {name} leaves the public domain")
    for name in generalised(release):
        if is_number(release, name):
            domain = numeric_domain(release, name)
            lower, upper = (floats(classes, f"{name}_{end}") for end in ("lower", "upper"))
            inside = domain.contains(lower) & domain.contains(upper) & (lower <= upper)
            require(bool(inside.all()), f"classes: an interval of {name} is empty or leaves the public domain")
            if f"{name}_mean" in classes.column_names:
                mean = floats(classes, f"{name}_mean")
                within = (lower <= mean) & (mean <= upper)
                require(bool(within.all()), f"classes: a mean of {name} lies outside its interval")
        elif is_set_valued(release, name):
            _check_sets(release, classes, name)
        elif is_clustered(release):
            known = set(classes.column(name).to_pylist()) <= _tree(release, name).node_sizes.keys()
            require(known, f"classes: {name} has a label that is no node of the public tree")
        else:
            known = set(classes.column(name).to_pylist()) <= _nodes(release, name).node_widths.keys()
            require(known, f"classes: {name} has a label that is no node of the public hierarchy")
    return "every interval, node and set lies in the public domain"


def _check_sets(release: Release, classes: pa.Table, name: str) -> None:
    """Check that sets are sorted, without repeats, not larger than their class, and as wide as is stated."""
    domain, codes, sizes = _set_codes(release, classes, name)
    fits = (sizes >= 1) & (sizes <= classes.column("size").to_numpy())
    require(bool(fits.all()), f"classes: a set of {name} is empty or has more values than its class has records")
    new_set = np.repeat(np.arange(len(sizes)), sizes)
    in_order = (np.diff(codes) > 0) | (np.diff(new_set) > 0)
    require(bool(in_order.all()), f"classes: a set of {name} is not in order")
    if f"{name}_diameter" in classes.column_names:
        equal = np.array_equal(set_widths(domain, codes, sizes), floats(classes, f"{name}_diameter"))
        require(equal, f"classes: {name}_diameter is not the longest path inside its set")


def _set_codes(release: Release, classes: pa.Table, name: str) -> tuple[CodedDomain, IntArray, IntArray]:
    """Return the domain of a column of sets, the codes of all labels, set after set, and the size of each set."""
    domain = cast("CodedDomain", domain_of(release, name))
    column = classes.column(name).combine_chunks()
    labels = column.flatten().dictionary_encode()
    known = np.asarray(labels.dictionary.to_pylist(), dtype=object)
    require(bool(domain.contains(known).all()), f"classes: a set of {name} leaves the public domain")
    codes = domain.codes(known)[labels.indices.to_numpy(zero_copy_only=False)]
    return domain, codes, pc.list_value_length(column).to_numpy(zero_copy_only=False).astype(np.int64)


def domain_of(release: Release, name: str) -> Domain:
    """Return the public domain of an attribute."""
    return _domain_of(json.dumps(release.attributes[name].domain))


@lru_cache(maxsize=8)
def _domain_of(description: str) -> Domain:
    """Make a domain once, however often it is looked at: distances in a large network take long."""
    return domain_from(json.loads(description))


def _tree(release: Release, name: str) -> Tree:
    return cast("Tree", domain_of(release, name))


def _hierarchy(release: Release, name: str) -> Hierarchy:
    return hierarchy_of(domain_of(release, name))


def _nodes(release: Release, name: str) -> NodeHierarchy:
    return cast("NodeHierarchy", _hierarchy(release, name))


def _check_members(release: Release, members: pa.Table) -> str:
    """Check that multisets are sorted and have the size, bounds and mean of their class."""
    classes = _classes(release)
    class_id, sizes = members.column("class_id").to_numpy(), classes.column("size").to_numpy()
    require(bool(class_id.min() >= 0 and class_id.max() < len(sizes)), "members: a class_id is not in classes")
    require(bool(np.array_equal(np.bincount(class_id, minlength=len(sizes)), sizes)), "members: sizes do not add up")
    columns = [sort_key(members.column(name).combine_chunks()) for name in generalised(release)]
    in_order = np.lexsort((*reversed(columns), class_id)) == np.arange(len(class_id))
    require(bool(in_order.all()), "members: not sorted, so their order may tell whose they are")
    starts = np.cumsum(sizes) - sizes
    for name in (name for name in generalised(release) if is_number(release, name)):
        values = floats(members, name)
        least, most = np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
        lower, upper = floats(classes, f"{name}_lower"), floats(classes, f"{name}_upper")
        fits = (lower <= least) & (most <= upper)
        require(bool(fits.all()), f"members: values of {name} do not fit the bounds of their class")
        means = np.add.reduceat(values, starts) / sizes
        slack = _TOLERANCE * np.maximum(np.abs(lower), np.abs(upper))
        close = np.abs(means - floats(classes, f"{name}_mean")) <= slack
        require(bool(close.all()), f"members: means of {name} differ")
    return "multisets fit the sizes, bounds and means of their classes"


def _check_levels(release: Release) -> str:
    """Check that each attribute is generalised to the one level of its public hierarchy that is stated."""
    levels, classes = release.certificate.rows.levels or {}, _classes(release)
    stated = levels.keys() == set(generalised(release))
    require(stated, "certificate.json: does not state one level for each generalised attribute")
    for name, level in levels.items():
        hierarchy = _hierarchy(release, name)
        require(0 <= level < hierarchy.num_levels, f"certificate.json: the hierarchy of {name} has no such level")
        if isinstance(hierarchy, IntervalHierarchy):
            told = [floats(classes, f"{name}_{end}") for end in ("lower", "upper")]
            at_level = all(map(np.array_equal, told, hierarchy.bounds(told[0], level)))
        else:
            told = [classes.column(name).to_numpy()]
            at_level = set(told[0]) <= set(hierarchy.labels(level))
        require(at_level, f"classes: {name} is not at the level that is stated")
        if release.members is None:
            continue
        class_id, values = release.members.column("class_id").to_numpy(), release.members.column(name).to_numpy()
        inside = hierarchy.domain.contains(values)
        require(bool(inside.all()), f"members: a value of {name} leaves the public domain")
        if isinstance(hierarchy, IntervalHierarchy):
            of_members: tuple[NDArray[Any], ...] = hierarchy.bounds(values, level)
        else:
            of_members = (np.asarray(hierarchy.labels(level), dtype=object)[hierarchy.domain.codes(values)],)
        fits = all(np.array_equal(of_class[class_id], each) for of_class, each in zip(told, of_members, strict=True))
        require(fits, f"members: values of {name} are not below the node or interval of their class")
    return "every attribute is at one level of its public hierarchy"


# What depends on how classes were formed


def check_figures(release: Release, rules: ClassRules) -> str:
    """Check that bounds are as the mechanism makes them, and every figure comes out again from the tables."""
    classes = _classes(release)
    _check_bounds(release, classes, rules.class_bounds)
    stated = release.certificate.rows.plain()
    require("loss" in stated, "certificate.json: the loss is wrong")
    loss = stated.pop("loss")
    if rules.class_bounds == "level":  # what they are was looked at with the hierarchies
        told = stated.pop("levels", None) is not None
        require(told, "certificate.json: does not state one level for each generalised attribute")
    sizes = classes.column("size").to_numpy()
    if isinstance(release.certificate.guarantee, KAnonymity):
        suppressed, words = release.certificate.rows.suppressed, "k, class sizes, risks, l, t and loss"
        require(
            suppressed is not None and suppressed.count >= 0,
            "certificate.json: the number of suppressed records is no number",
        )
        num_suppressed = release.certificate.rows.num_suppressed
        most = rules.most_suppressed
        fits = most is None or num_suppressed <= most * (release.data.num_rows + num_suppressed)
        require(fits, "certificate.json: more records are suppressed than the mechanism's limit")
        fewest = _fewest_persons(release, sizes)
        figures: dict[str, object] = size_measures(sizes, k_of(release), num_suppressed, fewest).plain()
        class_id = release.data.column("class_id").to_numpy()
        figures["sensitive"] = {
            name: sensitive_measures(class_id, sensitive_column(release, name), ordered=rules.sensitive_order).plain()
            for name in with_role(release, SENSITIVE)
        }
        own = rules.own_figures(release, num_suppressed)
        figures |= own
        words = "k, class sizes, risks, l, t, importance and distortion" if own else words
    else:  # what was suppressed would tell of records that are not released
        num_suppressed, words = 0, "k, class sizes and loss"
        figures = RowMeasures(**size_figures(sizes, k_of(release))).plain()
        stated.pop("noise" if release.noisy else "", None)  # looked at with the sample
    wrong = [name for name in figures.keys() | stated.keys() if not _agree(figures.get(name, ""), stated.get(name, ""))]
    require(not wrong, f"certificate.json: wrong figures: {', '.join(sorted(wrong))}")
    if len(sizes):
        _check_loss(release, classes, num_suppressed, rules)
    require(len(sizes) > 0 or loss is None, "certificate.json: states a loss of no rows")
    return f"{words} of the certificate come out again"


def _check_bounds(release: Release, classes: pa.Table, bounds: str) -> None:
    """Check that bounds are on the public grid if they should be, and those of the members if these are told."""
    for name in (name for name in generalised(release) if is_number(release, name)):
        domain = numeric_domain(release, name)
        lower, upper = floats(classes, f"{name}_lower"), floats(classes, f"{name}_upper")
        if bounds == "grid":
            on_grid = domain.on_grid(lower) & domain.on_grid(upper)
            require(bool(on_grid.all()), f"classes: a bound of {name} is not on the public grid")
        if release.members is None or bounds == "level":
            continue
        sizes = classes.column("size").to_numpy()
        values, starts = floats(release.members, name), np.cumsum(sizes) - sizes
        least, most = np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
        if bounds == "grid":
            least, most = domain.grid_values(domain.steps_below(least)), domain.grid_values(domain.steps_above(most))
        fits = (least == lower) & (most == upper)
        require(bool(fits.all()), f"members: values of {name} do not fit the bounds of their class")


def sensitive_column(release: Release, name: str) -> pa.Array:
    """Return the values of a sensitive column as they are compared."""
    return ranked(release.data.column(name).combine_chunks(), release.attributes[name].plain())


def _fewest_persons(release: Release, sizes: IntArray) -> int | None:
    """Return how many persons are said to be in the class with fewest: at least k, at most its records."""
    persons = release.certificate.rows.persons
    if persons is None:
        return None
    fits = k_of(release) <= persons.smallest <= int(sizes.min())
    require(fits, "certificate.json: the number of persons does not fit k and the class sizes")
    return persons.smallest


def _agree(counted: object, stated: object) -> bool:
    """Return whether figures are the same, up to rounding where they are fractions."""
    if isinstance(counted, dict) and isinstance(stated, dict):
        return counted.keys() == stated.keys() and all(_agree(value, stated[name]) for name, value in counted.items())
    if isinstance(counted, float) and isinstance(stated, float):
        return math.isclose(counted, stated, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
    return type(counted) is type(stated) and counted == stated


def _check_loss(release: Release, classes: pa.Table, num_suppressed: int, rules: ClassRules) -> None:
    alpha, weights, stated = float(rules.price_of_suppression), rules.weights(release), release.certificate.rows.loss
    sizes = classes.column("size").to_numpy()
    num_records = int(sizes.sum()) + num_suppressed
    sums, slack = {}, 0.0
    for name in generalised(release):
        widths, rounding = class_widths(release, classes, name)
        sums[name] = float((sizes * widths).sum()) + alpha * num_suppressed
        slack += weights[name] * float((sizes * rounding).sum())
    total = sum(weights[name] * value for name, value in sums.items())
    wrong = "certificate.json: the loss is wrong"
    require(stated is not None and stated.attributes.keys() == sums.keys() and stated.metric == rules.metric, wrong)
    if stated is not None:
        pairs = [(total, stated.sum), (total / sum(weights.values()) / num_records, stated.total)]
        pairs += [(value / num_records, stated.attributes[name]) for name, value in sums.items()]
        near = (math.isclose(one, two, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE + slack) for one, two in pairs)
        require(all(near), wrong)


def class_widths(release: Release, classes: pa.Table, name: str) -> tuple[FloatArray, FloatArray]:
    """Return the width of each class as a share of the domain, and how far rounding may have moved it."""
    if is_number(release, name):
        lower, upper = floats(classes, f"{name}_lower"), floats(classes, f"{name}_upper")
        diameter = numeric_domain(release, name).diameter
        # The loss was added up from decimals, of which a bound is only the nearest double.
        return (upper - lower) / diameter, (np.spacing(np.abs(lower)) + np.spacing(np.abs(upper))) / diameter
    if is_set_valued(release, name):
        domain, codes, sizes = _set_codes(release, classes, name)
        widths = set_widths(domain, codes, sizes) / (domain.diameter or 1.0)
    elif is_clustered(release):
        tree = _tree(release, name)
        sizes_of = tree.node_sizes
        leaves = np.array([sizes_of[label] for label in classes.column(name).to_pylist()])
        widths = (leaves - 1) / (tree.diameter or 1.0)
    else:
        hierarchy = _nodes(release, name)
        labels = classes.column(name).to_pylist()
        widths = np.asarray([hierarchy.node_widths[label] / hierarchy.whole for label in labels])
    return np.asarray(widths), np.zeros(len(classes))
