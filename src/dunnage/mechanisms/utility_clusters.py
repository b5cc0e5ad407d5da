# SPDX-License-Identifier: Apache-2.0
"""UtilityClusters: classes of near records, with numbers, trees, networks and plain labels in one metric.

Local recoding after Bhati, Ivanchev, Bojic, Datta and Eckhoff 2021. A class is charged its largest distance in each
attribute over the diameter of the public domain, times the weight of the attribute; the clustering keeps the sum over
all records low. What it finds is only a choice of classes: that each has k records (or persons) is counted afterwards,
whatever the clustering did. ``docs/proofs/utility-clusters.md`` says what holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from dunnage.dataset import Dataset
from dunnage.domains import MOST_IN_MATRIX, Graph, Numeric
from dunnage.errors import ParameterError
from dunnage.exact import Exact, decimal_text, exact, plain, shown, shown_number
from dunnage.guarantees import Basis, KAnonymity, Promise
from dunnage.ledger import Ledger
from dunnage.measures import (
    CLUSTER_CHOICES,
    CLUSTER_RANGES,
    ENTROPIES,
    IMPORTANCE_RANGE,
    LEAST_K,
    ORDERED_KINDS,
    STATISTICS_KEPT,
    clusters_assume,
    clusters_in_clear,
)
from dunnage.mechanisms.recode import Classes, check_choice, importance_of, release_classes
from dunnage.noise import Noise
from dunnage.publication import Publication
from dunnage.schema import Attribute, Schema

MOST_QUANTILES = 10_000
MOST_SPAN = 1e100
"""Widest domain of a number; beyond it squares of distances would not be finite."""

Pairs = tuple[tuple[str, Fraction], ...]


@dataclass(frozen=True, kw_only=True)
class UtilityClusters:
    """Release classes of near records: intervals of numbers, nodes of trees, sets of stations and other labels.

    Parameters
    ----------
    k
        Fewest records (persons, where the policy tells them apart) that must look alike.
    max_distortion
        Largest total distortion, 0 to 1: the largest k that keeps to it is looked for. Alone it promises k = 2; with
        ``k``, at least that.
    method
        ``growth``: a class grows by the record that raises its charge least. ``published-density`` and
        ``published-greedy``: the paper's own, heads with their nearest records; these count records only.
    scaling
        How distances of attributes are made comparable when neighbours are looked for: over their standard deviation
        (``unit-variance``) or over the diameter of the domain (``maximum``).
    importance
        ``entropy`` (bits, from the records), ``entropy-normalised`` (over its largest possible value), or a table
        attribute = 1 to 5, 1 where it is not given. Shares of the sum are the weights (eq. 2).
    buckets
        In which buckets the entropy of a number is worked out: attribute = width, or attribute = {quantiles = count}.
        Where it is not given, 96 of equal width.
    limits
        Widest that a class may be, by attribute: in the unit of a number, in path length of a network, in leaves of a
        tree, in steps of an ordinal (C1). Records that fit nowhere are suppressed.
    max_suppressed
        Largest share of records that may be suppressed, 0 to 1 (C2). Records of small strata count.
    max_risk
        Largest chance to name the row of a known record (C2): k is at least 1 over it.
    keep
        Statistics of numbers that may change little (C3): attribute = {mean = share, median = share}, in shares of the
        width of the domain, worked out from the middles of released intervals. Else it is refused.
    price
        What losing a record counts in the search, in records generalised to the whole domain.
    l, l_kind
        Least diversity of every sensitive column in a class: ``distinct`` values, or e to their ``entropy``.
    t, t_kind
        Largest distance of a class from the whole table in every sensitive column: ``equal`` (total variation), or
        ``ordered`` (earth mover's over ranks), for which each must be numeric or ordinal.
    symmetrise
        Take the longer way between two vertices of a directed network, which is refused otherwise.
    refine_seconds
        How long a local search may improve the classes.

    Guarantee
    ---------
    k-anonymity over public and generalised columns together, proved: classes are counted.

    Assumptions
    -----------
    Public domains; one record per protected unit, or an identifier that tells persons apart; classes and importance
    depend on data; a refusal may depend on data.

    Runtime
    -------
    ``growth``: one to two CPU-seconds for 10,000 records of four attributes, and above 20,000 in proportion to their
    number, as they are cut into blocks first, which are grouped on all cores. The first run ever compiles for half a
    minute.

    Utility
    -------
    A heuristic without a bound. On tables of rides ``growth`` distorts less (eq. 14) than the paper's density method
    from k = 5 on; at k = 2 the two are close.

    References
    ----------
    Bhati, Ivanchev, Bojic, Datta, Eckhoff 2021, sections II and III.

    Examples
    --------
    >>> UtilityClusters(k=5, max_risk=0.1, limits={"board": 4}).k
    10
    """

    name: ClassVar[str] = "utility-clusters"
    statistic: ClassVar[str] = "bounds"
    counts_persons: ClassVar[bool] = True
    tells_progress: ClassVar[bool] = True
    k: int | None = None
    max_distortion: Fraction | None = None
    method: str = "growth"
    scaling: str = "unit-variance"
    importance: str | Pairs = "entropy"
    buckets: tuple[tuple[str, tuple[str, Fraction]], ...] = ()
    limits: Pairs = ()
    max_suppressed: Fraction | None = None
    max_risk: Fraction | None = None
    keep: tuple[tuple[str, Pairs], ...] = ()
    price: Fraction = Fraction(1)
    l: Fraction | None = None  # noqa: E741 - the literature's name
    l_kind: str = "distinct"
    t: Fraction | None = None
    t_kind: str = "equal"
    symmetrise: bool = False
    refine_seconds: Fraction = Fraction(0)

    if TYPE_CHECKING:  # what may be passed is wider than what is kept

        def __init__(
            self,
            *,
            k: int | None = None,
            max_distortion: Exact | None = None,
            method: str = "growth",
            scaling: str = "unit-variance",
            importance: str | Mapping[str, Exact] | tuple[tuple[str, Exact], ...] = "entropy",
            buckets: Mapping[str, Any] | tuple[tuple[str, Any], ...] = (),
            limits: Mapping[str, Exact] | tuple[tuple[str, Exact], ...] = (),
            max_suppressed: Exact | None = None,
            max_risk: Exact | None = None,
            keep: Mapping[str, Mapping[str, Exact]] | tuple[tuple[str, Any], ...] = (),
            price: Exact = 1,
            l: Exact | None = None,  # noqa: E741
            l_kind: str = "distinct",
            t: Exact | None = None,
            t_kind: str = "equal",
            symmetrise: bool = False,
            refine_seconds: Exact = 0,
        ) -> None: ...

    def __post_init__(self) -> None:
        for name, choices in CLUSTER_CHOICES.items():
            check_choice(name, getattr(self, name), choices)
        if not isinstance(self.symmetrise, bool):
            raise ParameterError(f"symmetrise must be true or false. Got {shown(self.symmetrise)}.")
        self._read_numbers()
        self._read_k()
        self._read_tables()
        if self.method != "growth" and (self.l is not None or self.t is not None):
            raise ParameterError(f'{self.method} knows no l and t. Use method = "growth" with them.')

    def _read_numbers(self) -> None:
        """Read the numbers exactly and refuse those out of range."""
        for name, allowed in CLUSTER_RANGES.items():
            given = getattr(self, name)
            if given is None:
                continue
            value = exact(given, what=name)
            if not allowed.has(value):
                raise ParameterError(f"{name} must be {allowed.words}. Got {shown_number(value)}. Mend the value.")
            object.__setattr__(self, name, value)
        if self.l is not None and self.l_kind == "distinct" and self.l.denominator != 1:
            raise ParameterError(
                f"l counts distinct values, so it must be a whole number. Got {shown_number(self.l)}. Round it, or "
                'use l_kind = "entropy".'
            )

    def _read_k(self) -> None:
        """Read k, which may also follow from a largest risk."""
        if self.k is not None:
            KAnonymity(k=self.k, protects="record")  # refuses a k that is no k
        if self.max_risk is not None:
            object.__setattr__(self, "k", max(self.k or LEAST_K, math.ceil(1 / self.max_risk)))
        if self.k is None and self.max_distortion is None:
            raise ParameterError(
                f"{self.name} needs k, max_risk or max_distortion: what it promises is yours to choose. Got none. "
                "Write k = 5, say."
            )

    def _read_tables(self) -> None:
        """Read the parameters that have one entry for each attribute, as pairs in order of names."""
        if isinstance(self.importance, str):
            check_choice("importance", self.importance, (*ENTROPIES, "a table attribute = 1 to 5"))
        else:
            object.__setattr__(self, "importance", importance_of(self.importance, IMPORTANCE_RANGE))
        object.__setattr__(self, "limits", _numbers(self.limits, "limits", "0 or more", lambda value: value >= 0))
        buckets = tuple((name, _bucket(name, value)) for name, value in _table(self.buckets, "buckets"))
        object.__setattr__(self, "buckets", buckets)
        keep = tuple((name, _statistics(name, value)) for name, value in _table(self.keep, "keep"))
        object.__setattr__(self, "keep", keep)

    @property
    def least_k(self) -> int:
        """The k that is promised, whatever the data."""
        return LEAST_K if self.k is None else self.k

    def promise(self, schema: Schema) -> Promise:
        """State what a release under this schema will guarantee; needs no data."""
        self._check(schema)
        persons = schema.person is not None
        return Promise(
            guarantee=KAnonymity(k=self.least_k, protects=schema.protects),
            basis=Basis.PROVED,
            mechanism=self.describe(),
            assumptions=clusters_assume(self.describe(), persons=persons),
            in_clear=clusters_in_clear(self.describe(), schema.describe(), persons=persons),
            numerics="classes are counted; distances are in double precision and decide only which classes are formed; "
            "the order of rows is an exactly uniform permutation from system entropy",
        )

    def release(
        self, dataset: Dataset, *, ledger: Ledger, noise: Noise, progress: Callable[[str], None] | None = None
    ) -> Publication:
        """Find the classes, spend, and release them with rows in random order.

        Parameters
        ----------
        dataset, ledger, noise
            The rows, what pays for them, and where the order of rows is drawn from.
        progress
            Called with what is being done, now and then.

        Raises
        ------
        Refusal
            If a combination of public values has fewer than k records or persons, or what ``max_distortion``,
            ``max_suppressed``, ``keep``, ``l`` and ``t`` ask for was not reached.
        BudgetError
            If the ledger refuses; nothing is drawn then.
        """
        found = partial(self.classes, progress=progress)
        return release_classes(self, dataset, ledger=ledger, noise=noise, find=found)

    def classes(self, dataset: Dataset, *, progress: Callable[[str], None] | None = None) -> Classes:
        """Find the classes: private, drawn from nothing but the rows.

        Raises
        ------
        Refusal
            If no release that keeps to the parameters was found.
        """
        from dunnage.mechanisms.clustered import find_classes  # clustering is compiled: only when it is needed

        self._check(dataset.schema)
        return find_classes(self, dataset, progress)

    def describe(self) -> dict[str, Any]:
        """Give name and all parameters as plain data."""
        numbers = ("max_distortion", "max_suppressed", "max_risk", "price", "l", "t", "refine_seconds")
        words = ("k", "method", "scaling", "l_kind", "t_kind", "symmetrise")
        given = self.importance
        return {
            "name": self.name,
            **{name: getattr(self, name) for name in words},
            **{name: None if (value := getattr(self, name)) is None else plain(value) for name in numbers},
            "importance": given if isinstance(given, str) else {name: plain(weight) for name, weight in given},
            "buckets": {name: {kind: plain(size)} for name, (kind, size) in self.buckets},
            "limits": {name: plain(limit) for name, limit in self.limits},
            "keep": {name: {what: plain(share) for what, share in kept} for name, kept in self.keep},
        }

    def _check(self, schema: Schema) -> None:
        """Refuse a schema that these parameters make no sense for."""
        attributes = {attribute.name: attribute for attribute in schema.quasi_identifiers}
        if not attributes:
            raise ParameterError(f"{self.name} generalises quasi-identifiers. Got none. Give a column that role.")
        for attribute in attributes.values():
            self._check_attribute(attribute)
        tables = {"limits": self.limits, "buckets": self.buckets, "keep": self.keep}
        if not isinstance(self.importance, str):
            tables["importance"] = self.importance
        for what, table in tables.items():
            for name, _ in table:
                _check_named(what, name, attributes, numeric=what in ("buckets", "keep"))
        if (self.l is not None or self.t is not None) and not schema.sensitive:
            raise ParameterError("l and t speak of sensitive columns. The policy has none. Give a column that role.")
        unordered = [a.name for a in schema.sensitive if a.kind not in ORDERED_KINDS]
        if self.t is not None and self.t_kind == "ordered" and unordered:
            raise ParameterError(
                f'{", ".join(map(repr, unordered))} has no order, so t_kind = "ordered" makes no sense. Give it the '
                'kind ordinal (with its levels in order) or numeric, or use t_kind = "equal".'
            )
        if schema.person is not None and self.method != "growth":
            raise ParameterError(
                f"{self.method} counts records, and the policy tells persons apart by {schema.person!r}. "
                'Use method = "growth", or leave out [contribution].'
            )

    def _check_attribute(self, attribute: Attribute) -> None:
        if attribute.name == "size" and attribute.kind != "numeric":
            raise ParameterError(
                "a quasi-identifier of labels cannot be named 'size', like a column of the table of classes. Rename it."
            )
        if isinstance(attribute.domain, Numeric) and attribute.domain.span > MOST_SPAN:
            raise ParameterError(
                f"the domain of {attribute.name!r} is too wide for distances, more than {MOST_SPAN:g}. Change its unit."
            )
        if isinstance(attribute.domain, Graph) and len(attribute.domain.labels) > MOST_IN_MATRIX:
            raise ParameterError(
                f"the network of {attribute.name!r} has {len(attribute.domain.labels):,} vertices, more than "
                f"{MOST_IN_MATRIX:,}, between which distances can be worked out. Make it coarser, or a tree of places."
            )
        if isinstance(attribute.domain, Graph) and attribute.domain.directed and not self.symmetrise:
            raise ParameterError(
                f"the network of {attribute.name!r} is directed, so the way back may be longer. Make it undirected, or "
                "set symmetrise = true to take the longer way."
            )


def _table(given: Any, what: str) -> list[tuple[str, Any]]:
    """Read a table as pairs in order of names."""
    try:
        return sorted((str(name), value) for name, value in dict(given).items())
    except (TypeError, ValueError):
        raise ParameterError(
            f"{what} must be a table by attribute. Got {shown(given)}. Write [mechanism.{what}]."
        ) from None


def _numbers(given: Any, what: str, words: str, fits: Callable[[Fraction], bool]) -> Pairs:
    """Read a table of numbers."""
    pairs = tuple((name, exact(value, what=f"{what} of {name}")) for name, value in _table(given, what))
    for name, value in pairs:
        if not fits(value):
            raise ParameterError(f"{what} must be {words}. Got {shown_number(value)} for {name!r}. Mend the value.")
    return pairs


def _bucket(name: str, given: Any) -> tuple[str, Fraction]:
    """Read the buckets of one number: their width, or how many quantiles."""
    if isinstance(given, tuple) and len(given) == 2:  # as it is kept
        given = {given[0]: given[1]}
    kind, size = next(iter(given.items())) if isinstance(given, Mapping) and len(given) == 1 else ("width", given)
    check_choice(f"buckets of {name}", kind, ("width", "quantiles"))
    value = exact(size, what=f"buckets of {name}")
    count = kind == "quantiles"
    if value <= 0 or (count and (value.denominator != 1 or not 1 < value <= MOST_QUANTILES)):
        words = f"quantiles must be a whole number from 2 to {MOST_QUANTILES}" if count else "a width must be above 0"
        raise ParameterError(f"buckets of {name!r}: {words}. Got {decimal_text(value)}. Mend the value.")
    return kind, value


def _statistics(name: str, given: Any) -> Pairs:
    """Read which statistics of an attribute are to be kept, and how well."""
    pairs = _numbers(given, f"keep.{name}", "a share from 0 to 1", lambda value: 0 <= value <= 1)
    for statistic, _ in pairs:
        check_choice(f"keep.{name}", statistic, STATISTICS_KEPT)
    return pairs


def _check_named(what: str, name: str, known: Mapping[str, Attribute], *, numeric: bool) -> None:
    """Refuse an entry for a column that is no quasi-identifier, or not of the kind that it is for."""
    fitting: Iterable[str] = [key for key, a in known.items() if not numeric or isinstance(a.domain, Numeric)]
    if name not in fitting:
        kind = "numeric quasi-identifier" if numeric else "quasi-identifier"
        raise ParameterError(
            f"{what} is given for {name!r}, which is no {kind}. There are: {', '.join(fitting) or 'none'}."
        )
