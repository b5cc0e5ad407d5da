# SPDX-License-Identifier: Apache-2.0
"""UtilityClusters: classes of similar records, with numbers, trees, networks and plain labels in one metric.

A class is charged its largest distance in each attribute over the diameter of the public domain, times the weight of
the attribute. The clustering only proposes classes: the mechanism then counts that each has k records (or persons).
``docs/proofs/utility-clusters.md`` says what is proved.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Self, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, PlainSerializer, PlainValidator, ValidationInfo, model_validator

from dunnage.arrays import FloatArray, IntArray
from dunnage.errors import InternalError, ParameterError, Refusal
from dunnage.exact import decimal_text, exact, plain, shown, shown_number
from dunnage.kernels.clusters.growth import Constraints, Marginal, Metric, distance_moments, near_weights
from dunnage.mechanisms.base import PLAIN, Flag, OptionalK, Pairs, Progress, label_codes, optional, plain_pairs
from dunnage.mechanisms.classes import (
    NOT_SIZE,
    ClassMechanism,
    EquivalenceClasses,
    Generalised,
    Intervals,
    Nodes,
    Sets,
    check_stratum_sizes,
    importance_of,
    lower_k,
    released_column,
    strata,
)
from dunnage.model import measures
from dunnage.model.certificate import Distortion, Importance
from dunnage.model.domains import MOST_IN_MATRIX, CodedDomain, Domain, Graph, Numeric, Tree
from dunnage.model.guarantees import (
    COUNTS_PERSONS,
    DATA_DEPENDENT_REFUSAL,
    RECORDS_NOT_PERSONS,
    Assumption,
    KAnonymity,
    Promise,
)
from dunnage.model.schema import COUNTS_SUFFIX, Attribute, Schema
from dunnage.release.kinds import SENSITIVE, domain_of, generalised, require, with_role
from dunnage.release.kinds.rows import class_widths, sensitive_column
from dunnage.tables.columns import Private
from dunnage.text import percent

if TYPE_CHECKING:
    from dunnage.release import Release
    from dunnage.tables.dataset import Dataset

MAX_QUANTILES = 10_000
MAX_SPAN = 1e100  # widest domain of a number; beyond it, squares of distances would not be finite
NUM_BUCKETS = 96  # default number of buckets of equal width for the entropy of a number
PROGRESS_FROM = 5_000  # with fewer records the classes are ready before there is any progress to show
IMPORTANCE_DIGITS = 3  # an entropy is rounded before it is used, so that the printed number is the one in use
STATISTICS_KEPT = ("mean", "median")
ORDERED_KINDS = ("numeric", "ordinal")  # kinds of sensitive columns that have an order
PERSONS_COUNTED = Assumption(
    COUNTS_PERSONS, "k counts persons; the identifier that the owner named has one value for each person"
)
_SETS = ("graph", "category", "ordinal")  # kinds of labels that are released as sets
_SHOWN = {
    "the smallest and the largest value, two exact values, of": ("numeric",),
    "the lowest node above all values of": ("tree",),
    "the set of all values that occur of": _SETS,
}
AUTOMATIC = "auto"
MAX_HALVINGS = 7  # of a domain's diameter, in the search for limits
_MAY_REFUSE = ("max_distortion", "max_suppressed", "keep", "l", "t")


class _Range(NamedTuple):
    least: int
    most: int | None = None
    above: bool = False  # whether the least itself is excluded

    def read(self, given: Any, info: ValidationInfo) -> Fraction:
        return self.check(given, str(info.field_name))

    def check(self, given: Any, name: str) -> Fraction:
        value = exact(given, what=name)
        enough = value > self.least if self.above else value >= self.least
        if enough and (self.most is None or value <= self.most):
            return value
        words = f"from {self.least} to {self.most}"
        if self.most is None:
            words = f"at least {self.least}"
        elif self.above:
            words = f"above {self.least} and at most {self.most}"
        raise ParameterError(f"{name} must be {words}. Got {shown_number(value)}.")


def _table(given: Any, what: str) -> list[tuple[str, Any]]:
    try:
        return sorted((str(name), value) for name, value in dict(given).items())
    except (TypeError, ValueError):
        raise ParameterError(
            f"{what} must be a table by attribute. Got {shown(given)}. Write it as [mechanism.{what}]."
        ) from None


def _numbers(given: Any, what: str, words: str, fits: Callable[[Fraction], bool]) -> Pairs:
    pairs = tuple((name, exact(value, what=f"{what} of {name}")) for name, value in _table(given, what))
    for name, value in pairs:
        if not fits(value):
            raise ParameterError(f"{what} must be {words}. Got {shown_number(value)} for {name!r}.")
    return pairs


def _bucket(name: str, given: Any) -> tuple[str, Fraction]:
    if isinstance(given, tuple) and len(given) == 2:  # the form that is stored
        given = {given[0]: given[1]}
    kind, size = next(iter(given.items())) if isinstance(given, Mapping) and len(given) == 1 else ("width", given)
    if kind not in ("width", "quantiles"):
        raise ParameterError(f"buckets of {name} must be one of width, quantiles. Got {shown(kind)}.")
    value = exact(size, what=f"buckets of {name}")
    count = kind == "quantiles"
    if value <= 0 or (count and (value.denominator != 1 or not 1 < value <= MAX_QUANTILES)):
        words = f"quantiles must be a whole number from 2 to {MAX_QUANTILES}" if count else "a width must be above 0"
        raise ParameterError(f"buckets of {name!r}: {words}. Got {decimal_text(value)}.")
    return kind, value


def _statistics(name: str, given: Any) -> Pairs:
    pairs = _numbers(given, f"keep.{name}", "a share from 0 to 1", lambda value: 0 <= value <= 1)
    for statistic, _ in pairs:
        if statistic not in STATISTICS_KEPT:
            raise ParameterError(f"keep.{name} must be one of {', '.join(STATISTICS_KEPT)}. Got {shown(statistic)}.")
    return pairs


def _importance(given: Any) -> str | Pairs:
    if isinstance(given, str):
        if given not in measures.ENTROPIES:
            choices = ", ".join((*measures.ENTROPIES, "a table of attribute = 1 to 5"))
            raise ParameterError(f"importance must be one of {choices}. Got {shown(given)}.")
        return given
    return importance_of(given, Fraction(1), Fraction(5), "Use 1 for the least important attribute.")


def _limits(given: Any) -> str | Pairs:
    return AUTOMATIC if given == AUTOMATIC else _numbers(given, "limits", "0 or more", lambda value: value >= 0)


_Share = Annotated[Fraction | None, optional(_Range(0, 1).read), PLAIN]


class UtilityClusters(ClassMechanism):
    """Release classes of similar records: intervals of numbers, nodes of trees, sets of stations and other labels.

    Parameters
    ----------
    k
        Smallest number of records (persons, if the policy distinguishes them) that must look alike.
    max_distortion
        Largest total distortion, 0 to 1: the mechanism searches for the largest k that stays within it. Alone it
        promises k = 2; with ``k``, at least that.
    method
        ``growth``: a class grows by the record that raises its charge least. ``published-density`` and
        ``published-greedy``: the paper's methods, which join heads with their nearest records and count records only.
    scaling
        How to make distances of attributes comparable in the search for neighbours: divide by their standard deviation
        (``unit-variance``) or by the diameter of the domain (``maximum``).
    importance
        ``entropy`` (bits, from the records), ``entropy-normalised`` (over its largest possible value), or a table of
        attribute = 1 to 5, by default 1. The weights are shares of the sum (eq. 2).
    buckets
        Buckets for the entropy of a number: attribute = width, or attribute = {quantiles = count}. The default is 96 of
        equal width.
    limits
        Largest width of a class, by attribute: in the unit of a number, in path length of a network, in leaves of a
        tree, in steps of an ordinal (C1). Records that fit nowhere are suppressed. ``auto`` searches for limits that
        lower the total distortion, in which a suppressed record counts 1, among halvings of each domain's diameter;
        with ``max_distortion``, for the largest k with some limits.
    max_suppressed
        Largest share of records that may be suppressed, 0 to 1 (C2). Records of small strata count.
    max_risk
        Largest chance of naming the row of a known record (C2): k is at least 1 over it.
    keep
        Statistics of numbers that may change only a little (C3): attribute = {mean = share, median = share}, in shares
        of the width of the domain, computed from the middles of released intervals. A larger change is refused.
    price
        Cost of losing a record in the search, in records generalised to the whole domain.
    l, l_kind
        Smallest diversity of every sensitive column in a class: ``distinct`` values, or e to their ``entropy``.
    t, t_kind
        Largest distance of a class from the whole table in every sensitive column: ``equal`` (total variation), or
        ``ordered`` (earth mover's over ranks), which needs numeric or ordinal columns.
    statistic
        ``bounds``: sets of labels. ``multiset``: also how often each label occurs in its class, one attribute apart
        from the others, so that counts can be read from the release (:meth:`Release.spread`).
    symmetrise
        Take the longer way between two vertices of a directed network, which is otherwise refused.
    refine_seconds
        How long a local search may improve the classes, in seconds.

    Guarantee
    ---------
    k-anonymity over public and generalised columns together, proved: the mechanism counts the classes.

    Assumptions
    -----------
    Public domains; one record per protected unit, or an identifier of persons; classes and importance depend on the
    data; a refusal may depend on the data.

    Runtime
    -------
    ``growth``: one to two CPU-seconds for 10,000 records of four attributes. Above 20,000 records the time grows in
    proportion to their number: they are first cut into blocks, which are grouped on all cores. The very first run
    compiles for half a minute.

    Utility
    -------
    A heuristic without a bound. On tables of rides ``growth`` distorts less (eq. 14) than the paper's density method
    from k = 5 on; at k = 2 the two are close.

    References
    ----------
    Bhati, Ivanchev, Bojic, Datta, Eckhoff 2021, sections II and III.
    """

    name = "utility-clusters"
    fast = True  # unless limits besides k need many searches
    apart = True
    proof = ("utility-clusters.md#guarantee",)
    counts_persons = True
    by_attribute = True
    metric = measures.DISTORTION_METRIC
    k: OptionalK = None
    method: Literal["growth", "published-greedy", "published-density"] = "growth"
    scaling: Literal["unit-variance", "maximum"] = "unit-variance"
    l_kind: Literal["distinct", "entropy"] = "distinct"
    t_kind: Literal["equal", "ordered"] = "equal"
    # Certificates of earlier versions do not state it.
    statistic: Annotated[Literal["bounds", "multiset"], Field(exclude_if=lambda given: given == "bounds")] = "bounds"
    symmetrise: Flag = False
    max_distortion: _Share = None
    max_suppressed: _Share = None
    max_risk: Annotated[Fraction | None, optional(_Range(0, 1, above=True).read), PLAIN] = None
    price: Annotated[Fraction, PlainValidator(_Range(0, 10**9, above=True).read), PLAIN] = Fraction(1)
    l: Annotated[Fraction | None, optional(_Range(1).read), PLAIN] = None  # noqa: E741 - the literature's name
    t: _Share = None
    refine_seconds: Annotated[Fraction, PlainValidator(_Range(0, 86_400).read), PLAIN] = Fraction(0)
    importance: Annotated[
        str | Pairs,
        PlainValidator(_importance),
        PlainSerializer(lambda given: given if isinstance(given, str) else plain_pairs(given)),
    ] = "entropy"
    buckets: Annotated[
        tuple[tuple[str, tuple[str, Fraction]], ...],
        PlainValidator(lambda given: tuple((name, _bucket(name, value)) for name, value in _table(given, "buckets"))),
        PlainSerializer(lambda buckets: {name: {kind: plain(size)} for name, (kind, size) in buckets}),
    ] = ()
    limits: Annotated[
        str | Pairs,
        PlainValidator(_limits),
        PlainSerializer(lambda limits: limits if isinstance(limits, str) else plain_pairs(limits)),
    ] = ()
    keep: Annotated[
        tuple[tuple[str, Pairs], ...],
        PlainValidator(lambda given: tuple((name, _statistics(name, value)) for name, value in _table(given, "keep"))),
        PlainSerializer(lambda keep: {name: plain_pairs(kept) for name, kept in keep}),
    ] = ()

    @model_validator(mode="before")
    @classmethod
    def _k_of_risk(cls, given: Mapping[str, Any]) -> Mapping[str, object]:
        if given.get("max_risk") is None:
            return given
        least = math.ceil(1 / _Range(0, 1, above=True).check(given["max_risk"], "max_risk"))
        if given.get("k") is not None:
            least = max(least, KAnonymity(k=given["k"], protects="record").k)  # refuses an invalid k
        return {**given, "k": max(least, measures.LEAST_K)}

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.l is not None and self.l_kind == "distinct" and self.l.denominator != 1:
            raise ParameterError(
                f"l counts distinct values, so it must be a whole number. Got {shown_number(self.l)}. Round it, or "
                'use l_kind = "entropy".'
            )
        if self.k is None and self.max_distortion is None:
            raise ParameterError(
                f"{self.name} needs k, max_risk or max_distortion, because you choose what is promised. Got none of "
                "them. For example, write k = 5."
            )
        if self.method != "growth" and (self.l is not None or self.t is not None):
            raise ParameterError(f'{self.method} does not support l and t. Use method = "growth" with them.')
        return self

    @property
    def least_k(self) -> int:
        return measures.LEAST_K if self.k is None else self.k

    @property
    def given_limits(self) -> Pairs:
        return () if isinstance(self.limits, str) else self.limits

    def weights(self, release: Release) -> Mapping[str, float]:
        stated = release.certificate.rows.importance
        require(stated is not None, "certificate.json: the importance of attributes makes no sense")
        return stated.weights if stated is not None else {}

    def own_figures(self, release: Release, num_suppressed: int) -> Mapping[str, object]:
        """Compute importance and distortion; only the certificate knows the entropy of the true records."""
        stated, classes, names = release.certificate.rows, release.classes, generalised(release)
        if isinstance(self.importance, str):
            factors = stated.importance.factors if stated.importance is not None else {}
        else:
            given = dict(self.importance)
            factors = {name: float(given.get(name, 1)) for name in names}
        sensible = factors.keys() == set(names) and all(0 <= value < math.inf for value in factors.values())
        require(sensible, "certificate.json: the importance of attributes makes no sense")
        assert classes is not None  # the columns were checked before
        sizes = classes.column("size").to_numpy()
        weights = measures.shares_of({name: factors[name] for name in names})
        widths = {name: class_widths(release, classes, name)[0] for name in names}
        limits, chosen = self.given_limits, stated.limits_chosen
        if self.limits == AUTOMATIC:
            limits = tuple((name, exact(limit)) for name, limit in (chosen or {}).items())
            possible = {name: {limit for _, limit in halvings(domain_of(release, name))} for name in names}
            fits = chosen is not None and all(limit in possible.get(name, ()) for name, limit in limits)
            require(fits, "certificate.json: the mechanism cannot have chosen these limits")
        for name, limit in limits:
            domain = domain_of(release, name)
            most = measures.width_limit(domain, limit) * (1 + measures.LIMIT_TOLERANCE) + measures.LIMIT_TOLERANCE
            require(float(widths[name].max()) * domain.diameter <= most, f"classes: {name} is wider than its limit")
        if self.max_distortion is not None:
            most = float(self.max_distortion) * (1 + measures.LIMIT_TOLERANCE) + measures.LIMIT_TOLERANCE
            fits = stated.loss is not None and stated.loss.total <= most
            fits = fits and self.least_k <= (stated.k_chosen or 0) <= (stated.k_reached or 0)
            require(fits, "certificate.json: max_distortion does not allow this distortion or k")
        for name in with_role(release, SENSITIVE) if self.l is not None or self.t is not None else ():
            require(
                all(self.reaches(release.data.column("class_id").to_numpy(), sensitive_column(release, name))),
                f"data: {name} is less diverse, or farther from the whole table, than the mechanism promises",
            )
        lost = math.fsum(weights[name] * float(sizes @ widths[name]) for name in names)
        released = int(sizes.sum())
        return {
            "importance": {"factors": factors, "weights": weights},
            "distortion": {
                "generalisation": lost / released,
                "suppression": num_suppressed / (released + num_suppressed),
            },
            **({} if self.max_distortion is None else {"k_chosen": stated.k_chosen}),
            **({"limits_chosen": chosen} if self.limits == AUTOMATIC else {}),
        }

    def reaches(self, class_id: IntArray, column: pa.Array) -> tuple[bool, bool]:
        """Return whether the classes of a sensitive column keep to ``l``, and whether they keep to ``t``."""
        diverse = close = True
        if self.l is not None:
            if self.l_kind == "entropy":
                reached: float = measures.entropy_diversity(class_id, column)
            else:
                reached = measures.sensitive_measures(class_id, column).l
            diverse = reached >= float(self.l) - measures.LIMIT_TOLERANCE
        if self.t is not None:
            t = measures.closeness(class_id, column, ordered=self.t_kind == "ordered")
            close = t <= float(self.t) + measures.LIMIT_TOLERANCE
        return diverse, close

    @property
    def sensitive_order(self) -> bool | None:
        return None if self.t is None else self.t_kind == "ordered"

    def promise(self, schema: Schema) -> Promise:
        self._check_schema(schema)
        persons = schema.person is not None
        in_clear = []
        for words, kinds in _SHOWN.items():
            names = [attribute.name for attribute in schema.quasi_identifiers if attribute.kind in kinds]
            often = " and how often each occurs" if self.statistic == "multiset" and kinds == _SETS else ""
            in_clear += [f"{words} {', '.join(names)} in each class{often}"] if names else []
        if isinstance(self.importance, str):
            in_clear.append(
                "the entropy of each generalised attribute over all records, to three decimals (importance)"
            )
        if self.max_distortion is not None:
            in_clear.append("the k of the classes: the largest k in the search with a low enough distortion")
        if self.limits == AUTOMATIC:
            in_clear.append("which limits on widths, among halvings of each domain, gave the lowest distortion")
        in_clear += [
            f"the {statistic} of {name} over all records, to within {plain(share)} of the width of its domain: the "
            f"{statistic} of the middles of intervals is that close to it"
            for name, kept in self.keep
            for statistic, share in kept
        ]
        if persons:
            in_clear.append("the number of persons in the class with the fewest persons")
        refusal = DATA_DEPENDENT_REFUSAL
        if conditions := [name for name in _MAY_REFUSE if getattr(self, name) not in (None, ())]:
            refusal = replace(refusal, says=f"{refusal.says}, and that {' and '.join(conditions)} could be kept")
        return self.class_promise(
            schema,
            in_clear=tuple(in_clear),
            numerics="classes are counted; distances are in double precision and decide only which classes are formed",
            counted=PERSONS_COUNTED if persons else RECORDS_NOT_PERSONS,
            refusal=refusal,
        )

    def classes(self, dataset: Dataset, progress: Progress | None = None) -> EquivalenceClasses:
        """Return the classes.

        Refuses if a combination of public values has fewer than k records or persons, or if no classes keep to
        ``max_distortion``, ``max_suppressed``, ``keep``, ``l`` and ``t``.
        """
        self._check_schema(dataset.schema)
        if dataset.elsewhere:
            from dunnage.mechanisms.cluster_blocks import classes_elsewhere

            return classes_elsewhere(self, dataset, progress or (lambda stage: None))
        records = _Records(self, dataset, progress)
        most = math.inf if self.max_distortion is None else len(records) * float(self.max_distortion)
        most *= 1 + measures.LIMIT_TOLERANCE
        k, classes = self.least_k, records.classes(self.least_k)
        if self.max_distortion is None or classes.loss_sum > most:
            classes = records.with_best_limits(k, classes)
        if self.max_distortion is None:
            return classes
        # Double k while the distortion is low enough, then halve the gap: this k is good enough, and k + 1 is not.
        # Distortion need not rise with every k, so an even larger k may be good enough as well.
        if classes.loss_sum > most:
            raise Refusal(
                f"at k = {k} the distortion is {classes.loss_sum / len(records):.4f}, above max_distortion = "
                f"{shown_number(self.max_distortion)}. Raise max_distortion, or change the importance of attributes."
            )
        sizes = records.sizes
        bad, doubling = int(sizes.min() if dataset.policy.small == "refuse" else sizes.max()) + 1, True
        while k + 1 < bad:
            larger = min(2 * k, bad - 1) if doubling else (k + bad) // 2
            try:
                attempt = records.classes(larger)
                if attempt.loss_sum > most:
                    attempt = records.with_best_limits(larger, attempt)
                fits = attempt.loss_sum <= most
            except Refusal:
                fits = False
            if fits:
                k, classes = larger, attempt
            else:
                bad, doubling = larger, False
        if self.limits == AUTOMATIC and "limits_chosen" not in classes.figures:
            classes = records.with_best_limits(k, classes)
        return replace(classes, figures={**classes.figures, "k_chosen": k})

    def fold(self, schema: Schema, period: str | None) -> Any:
        """Count values where rows live, if one growth of classes is enough and needs no persons or sensitive values."""
        repeated = self.max_distortion is not None or self.limits == AUTOMATIC or self.refine_seconds > 0
        whole = self.method != "growth" or schema.person is not None or self.keep or self.statistic != "bounds"
        if repeated or whole or self.l is not None or self.t is not None:
            return None
        from dunnage.mechanisms.cluster_blocks import MarginalFold

        return MarginalFold.of(schema)

    def _check_schema(self, schema: Schema) -> None:
        attributes = {attribute.name: attribute for attribute in schema.quasi_identifiers}
        if not attributes:
            raise ParameterError(
                f"{self.name} generalises quasi-identifiers. The policy has none. Give that role to a column."
            )
        released = {attribute.name for attribute in schema}
        for name, attribute in attributes.items():
            domain = attribute.domain
            if name == "size" and attribute.kind != "numeric":
                raise ParameterError(NOT_SIZE)
            if self.statistic == "multiset" and attribute.kind in _SETS and name + COUNTS_SUFFIX in released:
                raise ParameterError(
                    f"column {name + COUNTS_SUFFIX!r} has the name of the counts of {name}. Rename it."
                )
            if isinstance(domain, Numeric) and domain.span > MAX_SPAN:
                raise ParameterError(
                    f"the domain of {name!r} is too wide for distances: more than {MAX_SPAN:g}. Change its unit."
                )
            if isinstance(domain, Graph) and len(domain.labels) > MOST_IN_MATRIX:
                raise ParameterError(
                    f"the network of {name!r} has {len(domain.labels):,} vertices, too many to compute all distances "
                    f"(at most {MOST_IN_MATRIX:,}). Make it coarser, or use a tree of places."
                )
            if isinstance(domain, Graph) and domain.directed and not self.symmetrise:
                raise ParameterError(
                    f"the network of {name!r} is directed, so the way back may be longer. Make it undirected, or "
                    "set symmetrise = true to take the longer way."
                )
        tables = {"limits": self.given_limits, "buckets": self.buckets, "keep": self.keep}
        if not isinstance(self.importance, str):
            tables["importance"] = self.importance
        for what, table in tables.items():
            for name, _ in table:
                # Refuse an entry for a column that is not a quasi-identifier, or not of the right kind.
                numeric = what in ("buckets", "keep")
                fitting = [key for key, a in attributes.items() if not numeric or isinstance(a.domain, Numeric)]
                if name not in fitting:
                    kind = "numeric quasi-identifier" if numeric else "quasi-identifier"
                    raise ParameterError(
                        f"{what} names {name!r}, which is not a {kind}. Choose from: {', '.join(fitting) or 'none'}."
                    )
        if (self.l is not None or self.t is not None) and not schema.sensitive:
            raise ParameterError("l and t apply to sensitive columns. The policy has none. Give that role to a column.")
        unordered = [a.name for a in schema.sensitive if a.kind not in ORDERED_KINDS]
        if self.t is not None and self.t_kind == "ordered" and unordered:
            raise ParameterError(
                f'{", ".join(map(repr, unordered))} has no order, so t_kind = "ordered" makes no sense. Give it the '
                'kind ordinal (with its levels in order) or numeric, or use t_kind = "equal".'
            )
        if schema.person is not None and self.method != "growth":
            raise ParameterError(
                f"{self.method} counts records, but the policy identifies persons by {schema.person!r}. "
                'Use method = "growth", or leave out [contribution].'
            )


def halvings(domain: Any) -> list[tuple[float, Fraction]]:
    """Return widths that halve the diameter of a public domain, the widest first, and the limits that say so."""
    first = int(isinstance(domain, Tree))  # the limit of a tree counts leaves
    whole = domain.upper - domain.lower if isinstance(domain, Numeric) else Fraction(domain.diameter)
    shares = (whole / 2**times for times in range(1, MAX_HALVINGS + 1))
    if not isinstance(domain, Numeric | Graph):
        shares = (Fraction(math.floor(share)) for share in shares)
    return [(float(share), share + first) for share in shares]


# How classes are formed: records are put into one metric, clustered stratum by stratum, then counted. They are sorted
# by their values first, so that the order of the input decides at most between records that are equal in every
# released column. Classes that would look alike become one class. Nothing here is random.
@dataclass(frozen=True, eq=False, repr=False)
class MetricColumn(Private):
    """One generalised attribute: the values of all records, each once and rising, and how often each occurs."""

    attribute: Attribute
    values: npt.NDArray[Any]  # numbers, or codes of labels
    counts: IntArray

    @classmethod
    def of(cls, attribute: Attribute, values: npt.NDArray[Any], times: IntArray | None = None) -> MetricColumn:
        distinct, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
        if times is not None:
            counts = np.bincount(inverse.reshape(-1), times).astype(np.int64)  # exact below 2^53
        return cls(attribute, distinct, counts)

    @property
    def coded(self) -> CodedDomain | None:
        return None if isinstance(self.attribute.domain, Numeric) else cast("CodedDomain", self.attribute.domain)

    @cached_property
    def diameter(self) -> float:
        return float(cast("Domain", self.attribute.domain).diameter)

    @cached_property
    def distances(self) -> FloatArray:
        """Distances between the labels that occur."""
        if len(self.values) > MOST_IN_MATRIX:
            raise Refusal(
                f"{self.attribute.name!r} has more than {MOST_IN_MATRIX:,} different values, too many to compute all "
                "distances. Make its domain coarser, or leave the column out."
            )
        assert self.coded is not None
        return measures.label_distances(self.coded, self.values.astype(np.int64))

    def entropy(self, bucket: tuple[str, Fraction] | None, *, normalised: bool) -> float:
        """Return the entropy in bits (eq. 1); normalised, divided by its largest possible value."""
        codes = self.values
        if self.coded is not None:
            num = len(self.coded.labels)
        else:
            domain = self.attribute.numeric
            kind, size = bucket or ("width", (domain.upper - domain.lower) / NUM_BUCKETS)
            if kind == "quantiles":
                num, own = int(size), Marginal(self.values, self.counts)
                # As numpy computes quantiles of all records: between the two at a place in sorted order.
                places = np.arange(1, num) / num * (int(self.counts.sum()) - 1)
                low, high = (own.at(ends(places).astype(np.int64)) for ends in (np.floor, np.ceil))
                share = places - np.floor(places)
                edges = np.where(share < 0.5, low + (high - low) * share, high - (high - low) * (1 - share))
                codes = np.searchsorted(np.unique(edges), self.values, side="right").astype(np.int64)
            else:
                num = math.ceil((domain.upper - domain.lower) / size)
                buckets = np.floor((self.values - float(domain.lower)) / float(size)).astype(np.int64)
                codes = np.unique(np.clip(buckets, 0, num - 1), return_inverse=True)[1]
        counts = np.bincount(codes, self.counts)
        shares = counts[counts > 0] / self.counts.sum()
        bits = abs(float(-(shares * np.log2(shares)).sum()))
        return bits / max(1.0, math.log2(num)) if normalised else bits


def record_values(dataset: Dataset) -> list[npt.NDArray[Any]]:
    """Return the generalised attributes of all records: numbers, and codes of labels."""
    columns = list[npt.NDArray[Any]]()
    for attribute in dataset.schema.quasi_identifiers:
        if isinstance(attribute.domain, Numeric):
            columns.append(dataset.numbers(attribute.name) + 0.0)  # no negative zero, which prints otherwise
        else:
            columns.append(label_codes(dataset, attribute.name).astype(np.int32))
    return columns


class Comparison(Private):
    """What all records together decide: the weights of attributes, and the metric in which records are compared."""

    def __init__(self, mechanism: UtilityClusters, columns: Sequence[MetricColumn]) -> None:
        self.mechanism, self.columns = mechanism, columns
        self.factors, importance = {}, mechanism.importance
        for column in self.columns:
            name = column.attribute.name
            if isinstance(importance, str):
                bits = column.entropy(dict(mechanism.buckets).get(name), normalised=importance == "entropy-normalised")
                self.factors[name] = round(bits, IMPORTANCE_DIGITS)
            else:
                self.factors[name] = float(dict(importance).get(name, Fraction(1)))
        self.weights = measures.shares_of(self.factors)
        # Numeric attributes come first in the metric.
        self.axes = np.argsort([column.coded is not None for column in self.columns], kind="stable")
        ordered = [self.columns[axis] for axis in self.axes]
        self.tables = tuple(column.distances for column in ordered if column.coded is not None)
        weights = np.array([self.weights[column.attribute.name] for column in ordered])
        scales = diameters = np.array([column.diameter for column in ordered])
        if mechanism.scaling == "unit-variance":
            tables: list[FloatArray | None] = [None] * (len(ordered) - len(self.tables))
            pairs = zip(ordered, [*tables, *self.tables], strict=True)
            scales = np.array(
                [
                    distance_moments(c.values if table is None else np.arange(len(c.values)), table, c.counts)[1]
                    for c, table in pairs
                ]
            )
        self.charge, self.near = near_weights(weights, diameters), near_weights(weights, scales)
        self.limits = dict(mechanism.given_limits)

    def metric(self, values: Sequence[npt.NDArray[Any]]) -> Metric:
        """Put the generalised attributes of some records into the metric."""
        num = len(values[0])
        ordered = [(self.columns[axis], values[axis]) for axis in self.axes]
        numbers = [own for column, own in ordered if column.coded is None]
        codes = [np.searchsorted(column.values, own) for column, own in ordered if column.coded is not None]
        number_rows = np.array(numbers) if numbers else np.zeros((0, num))
        code_rows = np.array(codes, dtype=np.int32).reshape(len(codes), num)
        return Metric(number_rows, code_rows, self.tables, self.charge, self.near)

    def constraints(self, **diverse: Any) -> Constraints | None:
        """Return the constraints of clusterings; None if there are none, and then no clustering suppresses records."""
        own = self.mechanism
        if not self.limits and own.max_suppressed is None and own.l is None and own.t is None and own.price >= 1:
            return None
        limits = [measures.width_limit(c.attribute.domain, self.limits.get(c.attribute.name)) for c in self.columns]
        most = 1.0 if own.max_suppressed is None else float(own.max_suppressed)
        return Constraints(limits=np.array(limits)[self.axes], max_suppressed=most, **diverse)

    def spared(self, constraints: Constraints | None, usable: int, num: int) -> Constraints | None:
        """Return the constraints with the share of records that may still be suppressed besides small strata."""
        most = self.mechanism.max_suppressed
        if constraints is None or most is None:
            return constraints
        spare = math.floor(most * num) - (num - usable)
        return replace(constraints, max_suppressed=min(1.0, max(0, spare) / usable))

    def relief(self, dataset: Dataset) -> str:
        own = self.mechanism
        ways = {
            "widen the limits": bool(self.limits),
            "lower l": own.l is not None,
            "raise t": own.t is not None,
            "raise the price": own.price < 1,
            lower_k(dataset): True,
        }
        *others, last = [way for way, given in ways.items() if given]
        text = f"{', '.join(others)}, or {last}" if others else last
        return text[0].upper() + text[1:]

    def looks(
        self, stratum: IntArray, members: Sequence[tuple[npt.NDArray[Any], IntArray]]
    ) -> tuple[IntArray, list[Generalised]]:
        """Give classes numbers by what is released about them, so that those that look alike become one."""
        # Members are, for each attribute, values in the order of classes; extremes, or each code once, are enough.
        columns = []
        for column, (values, classes) in zip(self.columns, members, strict=True):
            starts = np.flatnonzero(np.diff(classes, prepend=-1))
            columns.append(_generalised(column, values, classes, starts))
        keys = [stratum, *(key for _, column_keys in columns for key in column_keys)]
        _, representative, merged = np.unique(np.stack(keys, axis=1), axis=0, return_index=True, return_inverse=True)
        return merged.reshape(-1), [_chosen(of_class, representative) for of_class, _ in columns]

    def checked(
        self, dataset: Dataset, sizes: IntArray, generalised: Sequence[Generalised], **where: Any
    ) -> EquivalenceClasses:
        """Check widths and suppression, and return the classes with what is stated about them."""
        sums, num, lost = [], len(dataset), len(dataset) - int(sizes.sum())
        for column, of_class in zip(self.columns, generalised, strict=True):
            widths, name = _widths(of_class, column), column.attribute.name
            limit = measures.width_limit(column.attribute.domain, self.limits.get(name))
            if float(widths.max()) > limit + measures.LIMIT_TOLERANCE * max(1.0, limit):
                raise InternalError(f"a class is wider in {name!r} than its limit")
            sums.append(float(sizes @ (widths / (column.diameter or 1.0))))
        most = self.mechanism.max_suppressed
        if most is not None and lost > most * num:
            raise Refusal(
                f"{percent(lost / num)} of the records would be suppressed, more than max_suppressed = "
                f"{shown_number(most)} allows. Raise it. Or: {self.relief(dataset)}."
            )
        weights = tuple(self.weights[column.attribute.name] for column in self.columns)
        generalisation = math.fsum(w * s for w, s in zip(weights, sums, strict=True)) / (num - lost)
        return EquivalenceClasses(
            generalised=tuple(generalised),
            losses=tuple(value + lost for value in sums),
            importance=weights,
            metric=measures.DISTORTION_METRIC,
            figures={
                "importance": Importance(factors=self.factors, weights=self.weights),
                "distortion": Distortion(generalisation=generalisation, suppression=lost / num),
            },
            **where,
        )

    def refuse_all(self, dataset: Dataset, k: int) -> Refusal:
        return Refusal(
            f"at k = {k} every record would be suppressed, so nothing would be released. {self.relief(dataset)}."
        )


class _Records:
    """All records of a dataset in one metric, sorted by their values. Private."""

    def __init__(self, mechanism: UtilityClusters, dataset: Dataset, progress: Progress | None = None) -> None:
        self.mechanism, self.dataset = mechanism, dataset
        self.progress: Progress = progress or (lambda stage: None)
        stratum, self.num_strata = strata(dataset)
        values = record_values(dataset)
        # Order the rows by stratum, generalised values, sensitive values and persons.
        keys: list[npt.NDArray[Any]] = [stratum, *values]
        keys += [ranks_of(released_column(dataset, item.name), item) for item in dataset.schema.sensitive]
        keys += [] if dataset.persons is None else [dataset.persons]
        self.order = np.lexsort(keys[::-1])
        self.values = [column[self.order] for column in values]
        self.stratum = stratum[self.order]
        self.person = None if dataset.persons is None else dataset.persons[self.order]
        columns = map(MetricColumn.of, dataset.schema.quasi_identifiers, values)
        self.compared = Comparison(mechanism, list(columns))
        self.metric = self.compared.metric(self.values)
        self.constraints = self._constraints()
        self.sizes = self._persons(self.stratum, self.num_strata)

    def __len__(self) -> int:
        return len(self.order)

    def _constraints(self) -> Constraints | None:
        own = self.mechanism
        diverse = own.l is not None or own.t is not None
        sensitive = self.dataset.schema.sensitive if diverse else ()
        ranks = [ranks_of(released_column(self.dataset, item.name), item)[self.order] for item in sensitive]
        for attribute, values in zip(sensitive, ranks, strict=True):
            num = int(values.max()) + 1
            if own.l is not None and own.l > num:
                raise Refusal(
                    f"l = {shown_number(own.l)} requires more different values of {attribute.name!r} in each class "
                    f"than the {num} in the data. Lower l."
                )
        return self.compared.constraints(
            l=1.0 if own.l is None else float(own.l),
            l_kind=own.l_kind,
            t=math.inf if own.t is None else float(own.t),
            t_kind=own.t_kind,
            sensitive=np.array(ranks, dtype=np.int32).reshape(len(ranks), len(self)),
        )

    def _persons(self, of_record: IntArray, num: int) -> IntArray:
        """Count the persons of each class or stratum, or the records if the policy does not identify persons."""
        inside = of_record >= 0
        groups = of_record[inside]
        if self.person is not None:
            person = self.person[inside]
            groups = np.unique(groups * (int(self.person.max()) + 1) + person) // (int(self.person.max()) + 1)
        return np.bincount(groups, minlength=num).astype(np.int64)

    def classes(self, k: int) -> EquivalenceClasses:
        check_stratum_sizes(self.sizes, k, self.dataset)
        if self.mechanism.max_distortion is not None:
            self.progress(f"forming classes of {k}")
        of_record = self._clustered(k)
        if (of_record < 0).all():
            raise self.compared.refuse_all(self.dataset, k)
        # Records in the order of their classes, so that a class is a slice
        records = np.flatnonzero(of_record >= 0)
        records = records[np.argsort(of_record[records], kind="stable")]
        classes = of_record[records]
        firsts = records[np.flatnonzero(np.diff(classes, prepend=-1))]
        looks, generalised = self.compared.looks(
            self.stratum[firsts], [(values[records], classes) for values in self.values]
        )
        of_record[records] = looks[classes]
        if self.mechanism.statistic == "multiset":
            pairs = zip(generalised, self.values, strict=True)
            generalised = [_counted(look, values[records], of_record[records]) for look, values in pairs]
        # Count what is promised: whatever the clustering did, no smaller class is released.
        num_persons = int(self._persons(of_record, int(of_record.max()) + 1).min())
        if num_persons < k:
            raise InternalError("a class is smaller than k")
        sizes = measures.class_sizes(of_record[of_record >= 0])
        of_row = np.empty(len(self), dtype=np.int64)
        of_row[self.order] = of_record
        fewest = None if self.person is None else num_persons
        found = self.compared.checked(self.dataset, sizes, generalised, of_row=of_row, fewest_persons=fewest)
        # Refuse classes if their middles change a statistic by more than allowed (C3).
        for column, values, of_class in zip(self.compared.columns, self.values, generalised, strict=True):
            for statistic, most in dict(self.mechanism.keep).get(column.attribute.name, ()):
                assert isinstance(of_class, Intervals)  # _check_schema: only numbers have statistics
                middles = np.repeat((of_class.lower + of_class.upper) / 2, sizes)
                compute = np.mean if statistic == "mean" else np.median
                if (change := abs(float(compute(middles)) - float(compute(values))) / column.diameter) > most:
                    raise Refusal(
                        f"the {statistic} of {column.attribute.name!r} would change by {change:.3g} of its domain, but "
                        f"keep allows {shown_number(most)}. Raise that, raise its importance, or lower k."
                    )
        inside = of_record >= 0
        for attribute in self.dataset.schema.sensitive:
            column = released_column(self.dataset, attribute.name).take(pa.array(self.order[inside]))
            diverse, close = self.mechanism.reaches(of_record[inside], measures.ranked(column, attribute.describe()))
            if not (diverse and close):
                limited = ", or max_suppressed" if self.mechanism.max_suppressed is not None else ""
                distance = "close to those of all released records as t" if diverse else "diverse as l"
                raise Refusal(
                    f"the search ended without classes with values of {attribute.name!r} that are as {distance} "
                    f"requires. {'Raise t or k' if diverse else 'Lower l, raise k'}{limited}: larger classes are more "
                    "like the whole table."
                )
        return found

    def with_best_limits(self, k: int, classes: EquivalenceClasses) -> EquivalenceClasses:
        """Lower the distortion by limits that halve one domain after the other, the most important attribute first."""
        if self.mechanism.limits != AUTOMATIC:
            return classes
        best: dict[str, Fraction] = {}
        for column in sorted(self.compared.columns, key=lambda one: -self.compared.weights[one.attribute.name]):
            name = column.attribute.name
            for _, limit in halvings(column.attribute.domain):
                self.compared.limits = {**best, name: limit}
                self.constraints = self._constraints()
                try:
                    attempt = self.classes(k)
                except Refusal:
                    break  # a narrower limit suppresses even more
                if attempt.loss_sum < classes.loss_sum - measures.LIMIT_TOLERANCE:
                    best, classes = dict(self.compared.limits), attempt
                elif (attempt.of_row < 0).any():
                    break  # records are lost for nothing
        self.compared.limits = {}
        self.constraints = self._constraints()
        return replace(classes, figures={**classes.figures, "limits_chosen": plain_pairs(tuple(sorted(best.items())))})

    def _clustered(self, k: int) -> IntArray:
        own, usable = self.mechanism, int((self.sizes[self.stratum] >= k).sum())
        constraints = self.compared.spared(self.constraints, usable, len(self))
        of_record, num = np.full(len(self), -1, dtype=np.int64), 0
        starts = np.searchsorted(self.stratum, np.arange(self.num_strata + 1))  # records are sorted by stratum first
        for stratum in np.flatnonzero(self.sizes >= k).tolist():
            records = np.arange(starts[stratum], starts[stratum + 1])
            whole = len(records) == len(self)
            metric = self.metric if whole else self.metric.take(records)
            inside = constraints if whole or constraints is None else constraints.take(records)
            person = None if self.person is None else self.person[records]
            limits, price = None if inside is None else inside.limits, float(own.price)
            if own.method == "published-greedy":
                from dunnage.kernels.clusters.published import published_greedy

                clusters = published_greedy(metric, k, order=_scattered(len(metric)), limits=limits)
            elif own.method == "published-density":
                from dunnage.kernels.clusters.published import published_density

                clusters = published_density(metric, k, limits=limits)
            else:
                from dunnage.kernels.clusters.growth import grow_in_blocks

                note = _by_tenths(self.progress, "growing classes") if len(metric) >= PROGRESS_FROM else None
                clusters = grow_in_blocks(metric, k, constraints=inside, person=person, price=price, progress=note)
            if (seconds := float(own.refine_seconds) * len(records) / len(self)) > 0:
                from dunnage.kernels.clusters.refine import refine

                note = _by_tenths(self.progress, "refining classes")
                clusters = refine(
                    metric, clusters, k, seconds=seconds, person=person, constraints=inside, price=price, progress=note
                )
            of_record[records] = np.where(clusters >= 0, clusters + num, -1)
            num += int(clusters.max(initial=-1)) + 1
        return of_record


def _by_tenths(progress: Progress, what: str) -> Callable[[float], None]:
    """Turn shares of the completed work into progress lines, one for each tenth."""
    tenths = -1

    def note(share: float) -> None:
        nonlocal tenths
        if int(10 * min(share, 1.0)) > tenths:
            tenths = int(10 * min(share, 1.0))
            progress(f"{what}: {10 * tenths} %")

    return note


def _generalised(
    column: MetricColumn, values: npt.NDArray[Any], classes: IntArray, starts: IntArray
) -> tuple[Generalised, list[IntArray]]:
    """Return what is released about an attribute, class by class, and keys that classes which look alike share."""
    name, domain = column.attribute.name, column.attribute.domain
    if isinstance(domain, Numeric):
        lower, upper = np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
        return Intervals(name=name, lower=lower, upper=upper), [_dense(lower), _dense(upper)]
    if isinstance(domain, Tree):
        # The lowest node above the leaves between two codes; codes follow a depth-first walk.
        ends = np.stack((np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)), axis=1)
        pairs, which = np.unique(ends, axis=0, return_inverse=True)
        nodes = [domain.generalise([domain.labels[code] for code in pair]) for pair in pairs.tolist()]
        labels = tuple(nodes[number] for number in which.reshape(-1).tolist())
        return Nodes(name=name, labels=labels), [_dense(np.asarray(labels))]
    coded = cast("CodedDomain", domain)
    num = len(coded.labels)
    owners, codes = np.divmod(np.unique(classes * num + values), num)
    sizes = measures.class_sizes(owners)
    groups = [tuple(group.tolist()) for group in np.split(codes, np.cumsum(sizes)[:-1])]
    rank = {group: number for number, group in enumerate(sorted(set(groups)))}
    sets = tuple(tuple(coded.labels[code] for code in group) for group in groups)
    diameters = measures.set_widths(coded, codes, sizes) if isinstance(coded, Graph) else None
    key = np.array([rank[group] for group in groups], dtype=np.int64)
    return Sets(name=name, sets=sets, diameters=diameters), [key]


def _counted(item: Generalised, codes: npt.NDArray[Any], classes: IntArray) -> Generalised:
    """Say how often each label of a set occurs; sets are in the order of their codes."""
    if not isinstance(item, Sets):
        return item
    _, counts = np.unique(classes * (int(codes.max()) + 1) + codes, return_counts=True)
    ends = np.cumsum([len(labels) for labels in item.sets])
    return replace(item, counts=tuple(tuple(part.tolist()) for part in np.split(counts, ends[:-1])))


def _dense(values: npt.NDArray[Any]) -> IntArray:
    return np.unique(values, return_inverse=True)[1].astype(np.int64)


def _chosen(item: Generalised, classes: IntArray) -> Generalised:
    if isinstance(item, Intervals):
        return replace(item, lower=item.lower[classes], upper=item.upper[classes])
    if isinstance(item, Nodes):
        return replace(item, labels=tuple(item.labels[number] for number in classes.tolist()))
    diameters = None if item.diameters is None else item.diameters[classes]
    return replace(item, sets=tuple(item.sets[number] for number in classes.tolist()), diameters=diameters)


def _widths(item: Generalised, column: MetricColumn) -> FloatArray:
    if isinstance(item, Intervals):
        return np.asarray(item.upper - item.lower)
    if isinstance(item, Nodes):
        sizes = cast("Tree", column.attribute.domain).node_sizes
        return np.array([sizes[label] - 1.0 for label in item.labels])
    if item.diameters is not None:
        return item.diameters
    domain = cast("CodedDomain", column.attribute.domain)
    codes = domain.codes([label for labels in item.sets for label in labels])
    return measures.set_widths(domain, codes, np.array([len(labels) for labels in item.sets]))


def ranks_of(column: pa.Array, attribute: Attribute) -> IntArray:
    ranks = pc.rank(measures.ranked(column, attribute.describe()), tiebreaker="dense")
    return np.asarray(ranks.to_numpy(zero_copy_only=False), dtype=np.int64) - 1


def _scattered(num: int) -> IntArray:
    """Return a patternless order of records that is the same each time: by a hash of their numbers (splitmix64)."""
    hashed = (np.arange(1, num + 1, dtype=np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        hashed = (hashed ^ (hashed >> np.uint64(shift))) * np.uint64(factor)
    return np.argsort(hashed ^ (hashed >> np.uint64(31)), kind="stable")
