# SPDX-License-Identifier: Apache-2.0
"""Linkage attacks on a k-anonymous release: what somebody who knows a record's values can name or rule out.

The attacker holds the release and knows, of one record, the public values and the generalised ones, exactly or within
bounds. He looks up every class whose description does not rule the record out: by its closed intervals, by the sets of
labels that occur in it, by what its mean leaves possible, or, with multisets, by the values that it lists. Rows of a
class are in random order, so that within a class he can only guess; and what he guesses of several classes is weighed
by how many rows (or listed values) of each fit.

Nothing here is estimated: every figure is counted over all records. A class is ruled out only if it is impossible
beyond rounding.

References
----------
Hoogervorst et al. 2019, section 7 (record, attribute and table linkage); Dankar, El Emam 2010 (prosecutor,
journalist, marketer); Ganta, Kasiviswanathan, Smith 2008 (several releases of the same records).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dunnage.arrays import BoolArray, FloatArray, IntArray
from dunnage.auditing.sight import Known, Sight, positions
from dunnage.errors import ParameterError
from dunnage.publication import Key
from dunnage.release import Release
from dunnage.settle import matched_records
from dunnage.tables.dataset import Dataset

MOST_PAIRS = 2_000_000  # Pairs of a record and a class that are looked at together; bounds the memory
_ROUNDING = 1e-9


# Who may be in which class


class Candidates(NamedTuple):
    """Pairs of a record that is looked for and a class it may be in, by record."""

    record: IntArray
    of_class: IntArray
    weight: IntArray  # How many rows of the class fit what is known; with multisets, how many of the listed values

    @property
    def starts(self) -> IntArray:
        """Position of each record's first pair."""
        return np.flatnonzero(np.concatenate([[True], np.diff(self.record) != 0])) if len(self.record) else self.record


def candidates(sight: Sight, known: Known) -> Iterator[Candidates]:
    """Yield all classes that each record may be in, some records at a time; records without any do not appear."""
    # Classes are looked up by the labels of up to two attributes that were released by sets and of which every record's
    # label is known, once for each combination that they may have: so many must not be too many.
    by: tuple[int, ...] = ()
    lines = np.ones(len(sight.sizes), dtype=np.int64)
    for axis, told in enumerate(sight.told):
        if told.listing is None or not np.array_equal(known.low[axis], known.high[axis]):
            continue
        more = lines * np.bincount(told.listing.of_class, minlength=len(lines))
        if more.sum() <= MOST_PAIRS and len(by) < 2:
            by, lines = (*by, axis), more
    joins = [_Join.of(sight, known, axis, by) for axis in range(len(sight.told))]
    join = min(joins, key=lambda one: int(one.counts.sum()))
    for record, of_class in join.pairs():
        fits = _fits(sight, known, record, of_class)
        record, of_class = record[fits], of_class[fits]
        weight = _members_inside(sight, known, record, of_class) if sight.multisets else sight.sizes[of_class]
        held = weight > 0
        yield Candidates(record[held], of_class[held], weight[held])


@dataclass(frozen=True, eq=False)
class _Join:
    """For each record the run of classes, in one order, that one attribute and some labels do not rule out."""

    order: IntArray
    first: IntArray
    counts: IntArray

    @classmethod
    def of(cls, sight: Sight, known: Known, axis: int, by: tuple[int, ...]) -> _Join:
        """Find each run among the classes sorted by public values, labels of attributes ``by`` and lower bound."""
        # Possible are classes from where an upper bound is first high enough, to where lower bounds are too high.
        of_class, stratum, asked = _grouped(sight, known, by)
        lower, upper = sight.told[axis].lower[of_class], sight.told[axis].upper[of_class]
        order = np.lexsort((lower, stratum))
        ends = np.unique(np.concatenate([lower, upper]))
        width = len(ends) + 1
        opens = (stratum * width + np.searchsorted(ends, lower))[order]
        reach = np.maximum.accumulate((stratum * width + np.searchsorted(ends, upper))[order])
        base = asked * width
        first = np.searchsorted(reach, base + np.searchsorted(ends, known.low[axis], side="left"))
        stop = np.searchsorted(opens, base + np.searchsorted(ends, known.high[axis], side="right"))
        return cls(of_class[order], first, np.where(asked < 0, 0, np.maximum(stop - first, 0)))

    def pairs(self) -> Iterator[tuple[IntArray, IntArray]]:
        until = np.cumsum(self.counts)
        start = 0
        while start < len(self.counts):
            done = int(until[start - 1]) if start else 0
            stop = max(int(np.searchsorted(until, done + MOST_PAIRS, side="right")), start + 1)
            counts = self.counts[start:stop]
            offset = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
            yield (
                np.repeat(np.arange(start, stop), counts),
                self.order[np.repeat(self.first[start:stop], counts) + offset],
            )
            start = stop


def _grouped(sight: Sight, known: Known, by: tuple[int, ...]) -> tuple[IntArray, IntArray, IntArray]:
    """Return classes, once for each combination of labels, the group of each, and the group that each record is in.

    A group is a combination of public values, together with the labels; -1 where the release has none such.
    """
    group, asked = sight.public.of_class, known.stratum
    of_class = np.arange(len(group))
    for axis in by:
        listing, num, label = sight.told[axis].listing, sight.told[axis].num_labels, known.low[axis].astype(np.int64)
        assert listing is not None  # chosen because there is one
        counts = np.bincount(listing.of_class, minlength=len(sight.sizes))
        times = counts[of_class]
        line = np.repeat((np.cumsum(counts) - counts)[of_class] - (np.cumsum(times) - times), times)
        place = listing.places[line + np.arange(len(line))].astype(np.int64)
        group, of_class = np.repeat(group, times) * num + place, np.repeat(of_class, times)
        asked = np.where((asked < 0) | (label < 0), -1, asked * num + label)
    return of_class, group, asked


def _fits(sight: Sight, known: Known, record: IntArray, of_class: IntArray) -> BoolArray:
    """Tell which pairs no attribute rules out."""
    fits = np.ones(len(record), dtype=bool)
    for axis in _axes_known(known):
        told, sizes = sight.told[axis], sight.sizes[of_class]
        low, high = known.low[axis, record], known.high[axis, record]
        lower, upper = told.lower[of_class], told.upper[of_class]
        fits &= (lower <= high) & (upper >= low)
        if told.listing is not None:
            # What covers the whole set needs no look at its labels.
            open_ = np.flatnonzero(fits & ((low > lower) | (high < upper)))
            fits[open_] = _ranked_inside(*told.listing, of_class[open_], low[open_], high[open_]) > 0
        if sight.multisets:
            continue
        # With own bounds one member is the smallest and one the largest, so a class of two has no other. The mean
        # bounds what one more member can be: those besides cannot sum to more than their upper bounds, nor to less than
        # their lower ones.
        least, most, fixed = lower, upper, 2 if told.own_bounds else 0
        if told.means is not None:
            slack = _ROUNDING * sizes * np.maximum(np.abs(lower), np.abs(upper))
            free = sizes * told.means[of_class] - (lower + upper if told.own_bounds else 0.0)
            others = np.maximum(sizes - fixed - 1, 0)
            least = np.maximum(lower, free - others * upper - slack)
            most = np.minimum(upper, free - others * lower + slack)
        inner = (sizes > fixed) & (np.maximum(least, low) <= np.minimum(most, high))
        at_an_end = ((low <= lower) & (lower <= high)) | ((low <= upper) & (upper <= high))
        fits &= inner | at_an_end if told.own_bounds else inner
    return fits


def _axes_known(known: Known) -> list[int]:
    """List the attributes of which anything is known of any record."""
    told = (known.low > -np.inf) | (known.high < np.inf)
    return [int(axis) for axis in np.flatnonzero(told.any(axis=1))]


def _members_inside(sight: Sight, known: Known, record: IntArray, of_class: IntArray) -> IntArray:
    if len(sight.told) == 1:
        low, high = known.low[0, record], known.high[0, record]
        return _ranked_inside(sight.members[0], sight.class_of_member, of_class, low, high)
    sizes = sight.sizes[of_class]
    starts = (np.cumsum(sight.sizes) - sight.sizes)[of_class]
    pair = np.repeat(np.arange(len(record)), sizes)
    member = np.arange(len(pair)) + np.repeat(starts - (np.cumsum(sizes) - sizes), sizes)
    values, asked = sight.members[:, member], record[pair]
    inside = ((values >= known.low[:, asked]) & (values <= known.high[:, asked])).all(axis=0)
    return np.bincount(pair[inside], minlength=len(record)).astype(np.int64)


def _ranked_inside(
    values: FloatArray, groups: IntArray, asked: IntArray, low: FloatArray, high: FloatArray
) -> IntArray:
    """Count the values of one group each that lie between bounds; values are sorted by group."""
    ranks = np.unique(values)
    width = len(ranks) + 1
    places = groups * width + np.searchsorted(ranks, values)
    stop = np.searchsorted(places, asked * width + np.searchsorted(ranks, high, side="right"))
    first = np.searchsorted(places, asked * width + np.searchsorted(ranks, low, side="left"))
    return np.asarray(stop - first, dtype=np.int64)


# Record linkage


@dataclass(frozen=True, eq=False)
class RecordLinkage:
    """For each record: how many released rows may be it, and how likely the best guess is right."""

    rows: IntArray
    probability: FloatArray


def record_linkage(sight: Sight, known: Known) -> RecordLinkage:
    """Look for the row of each record; records that no class fits have no rows and probability 0."""
    rows, probability = np.zeros(len(known), dtype=np.int64), np.zeros(len(known))
    axes = _axes_known(known)
    if len(axes) == 1 and np.array_equal(known.low[axes[0]], known.high[axes[0]]):
        told = sight.told[axes[0]]
        if told.means is None and told.listing is None and not sight.multisets:
            rows = _rows_at(sight, known, axes[0])
            return RecordLinkage(rows, np.divide(1, rows, out=probability, where=rows > 0))
    for found in candidates(sight, known):
        if not len(found.record):
            continue
        starts, sizes = found.starts, sight.sizes[found.of_class]
        records = found.record[starts]
        rows[records] = np.add.reduceat(sizes, starts)
        total = np.repeat(np.add.reduceat(found.weight, starts), np.diff(np.append(starts, len(sizes))))
        # One division of whole numbers, so that 1 of 6 is 1/6 to the last digit.
        probability[records] = np.maximum.reduceat(found.weight / (sizes * total), starts)
    return RecordLinkage(rows, probability)


def _rows_at(sight: Sight, known: Known, axis: int) -> IntArray:
    """Count the rows whose interval of one attribute holds the value of each record: begun less ended ones."""
    told, strata, value = sight.told[axis], sight.public.of_class, known.low[axis]
    ends = np.unique(np.concatenate([told.lower, told.upper]))
    width = len(ends) + 1
    lower, upper = (strata * width + np.searchsorted(ends, bound) for bound in (told.lower, told.upper))
    base = known.stratum * width
    after, at = (base + np.searchsorted(ends, value, side="right"), base + np.searchsorted(ends, value))

    def below(places: IntArray, some: BoolArray, asked: IntArray) -> IntArray:
        """Add up the sizes of the classes that stand before each place asked for."""
        order = np.argsort(places[some], kind="stable")
        sums = np.concatenate(([0], np.cumsum(sight.sizes[some][order])))
        return np.asarray(sums[np.searchsorted(places[some][order], asked)], dtype=np.int64)

    inner = sight.sizes > (2 if told.own_bounds else 0)
    rows = below(lower, inner, after) - below(upper, inner, at)
    # A class of two has nothing between its own bounds: it counts at either of them, once.
    for bounds, some in ((lower, ~inner), (upper, ~inner & (lower != upper))):
        rows += below(bounds, some, after) - below(bounds, some, at)
    return rows  # what is in no stratum stands before all classes


def unique_classes(sight: Sight, known: Known) -> tuple[IntArray, IntArray]:
    """Return for each record a class that fits it (-1 if none does), and how many do."""
    of_record, times = np.full(len(known), -1, dtype=np.int64), np.zeros(len(known), dtype=np.int64)
    for found in candidates(sight, known):
        of_record[found.record] = found.of_class
        times += np.bincount(found.record, minlength=len(known))
    return of_record, times


def classes_by_key(sight: Sight, data: Dataset, key: Key) -> IntArray:
    """Return the class of each record, -1 where it was suppressed."""
    of_record = np.full(len(data), -1, dtype=np.int64)
    of_record[matched_records(data, sight.release, key)] = sight.release.data.column("class_id").to_numpy()
    return of_record


# Attribute linkage


@dataclass(frozen=True, eq=False)
class Occurrences:
    """How often each value of a column occurs in each class, by class, then value; values are numbered."""

    starts: IntArray  # Where each class begins; one entry more than there are classes
    values: IntArray
    counts: IntArray

    @classmethod
    def of(cls, class_id: IntArray, codes: IntArray, num_classes: int) -> Occurrences:
        width = int(codes.max()) + 1
        pairs, counts = np.unique(class_id * width + codes, return_counts=True)
        classes, values = np.divmod(pairs, width)
        return cls(np.searchsorted(classes, np.arange(num_classes + 1)), values, counts)

    @property
    def distinct(self) -> IntArray:
        return np.diff(self.starts)

    def expand(self, classes: IntArray) -> tuple[IntArray, IntArray]:
        """Return, for a list of classes, positions in the list and lines here, one for each value."""
        times = self.distinct[classes]
        place = np.repeat(np.arange(len(classes)), times)
        line = np.arange(len(place)) + np.repeat(self.starts[classes] - (np.cumsum(times) - times), times)
        return place, line


def sensitive_codes(release: Release, name: str) -> IntArray:
    """Give each value of a sensitive column a number, row by row."""
    encoded = release.data.column(name).combine_chunks().dictionary_encode(null_encoding="encode")
    codes: IntArray = encoded.indices.to_numpy(zero_copy_only=False)
    return codes.astype(np.int64)


def attribute_linkage(sight: Sight, known: Known, column: str) -> FloatArray:
    """Return for each record how likely the best guess of its sensitive value is right; 0 where no class fits."""
    class_id = sight.release.data.column("class_id").to_numpy()
    told = Occurrences.of(class_id, sensitive_codes(sight.release, column), len(sight.sizes))
    probability = np.zeros(len(known))
    for found in candidates(sight, known):
        if not len(found.record):
            continue
        total = np.bincount(found.record, weights=found.weight)
        pair, line = told.expand(found.of_class)
        record = found.record[pair]
        chance = found.weight[pair] * told.counts[line] / (sight.sizes[found.of_class[pair]] * total[record])
        width = int(told.values.max()) + 1
        guesses, guess = np.unique(record * width + told.values[line], return_inverse=True)
        summed = np.bincount(guess.reshape(-1), weights=chance)
        np.maximum.at(probability, guesses // width, np.minimum(summed, 1.0))
    return probability


def share_homogeneous(class_id: IntArray, codes: IntArray) -> tuple[float, float]:
    """Return the share of rows whose class has one value only, and what it would be by chance.

    By chance means: the same values dealt to the same classes at random.
    """
    sizes = np.bincount(class_id)
    alike = Occurrences.of(class_id, codes, len(sizes)).distinct == 1
    return float(sizes[alike].sum() / len(class_id)), homogeneous_by_chance(sizes, np.bincount(codes))


def homogeneous_by_chance(sizes: IntArray, values: IntArray) -> float:
    """Return which share of rows is in classes with one value only if values are dealt to classes at random.

    Examples
    --------
    >>> round(homogeneous_by_chance(np.array([2, 2]), np.array([2, 2])), 6)
    0.333333
    """
    from scipy.special import gammaln

    num, expected = int(sizes.sum()), 0.0
    for size, often in zip(*(part.tolist() for part in np.unique(sizes, return_counts=True)), strict=True):
        enough = values[values >= size]
        # choose(count, size) / choose(num, size), in logarithms
        logs = gammaln(enough + 1) - gammaln(enough - size + 1) - gammaln(num + 1) + gammaln(num - size + 1)
        expected += often * size * float(np.exp(logs).sum())
    return min(expected / num, 1.0)


# Guessing the generalised value of who is known by class alone


def guessed_within(values: FloatArray, class_id: IntArray, guesses: FloatArray, reach: float) -> float:
    """Return for how many rows, as a share, the guess for their class is within reach of the true value."""
    return float(np.mean(np.abs(values - guesses[class_id]) <= reach * (1 + _ROUNDING)))


def best_window(values: FloatArray, groups: IntArray, reach: float) -> float:
    """Return the share of values within reach of the best single guess for their group."""
    order = np.lexsort((values, groups))
    values, groups = values[order], groups[order]
    inside = _ranked_inside(values, groups, groups, values, values + 2 * reach * (1 + _ROUNDING))
    most = np.zeros(int(groups.max()) + 1, dtype=np.int64)
    np.maximum.at(most, groups, inside)
    return float(most.sum() / len(values))


# Table linkage


@dataclass(frozen=True, eq=False, kw_only=True)
class Match:
    """What a release tells about somebody whose values are known.

    Parameters
    ----------
    candidates
        Released rows that may be this record.
    probability
        How likely the best guess of the row is right, if the record is known to be among the released ones.
    certainly_absent
        Whether no released row can be this record. A record that was suppressed or left out is not in the release
        and yet in the owner's data.
    value_told
        Whether the release says that a record of exactly these values is in it. That is this very person or package
        only if no other has the same values.
    """

    candidates: int
    probability: float
    certainly_absent: bool
    value_told: bool


def look_up(
    release: Release, known: Mapping[str, Any], *, public: Mapping[str, Any] | None = None, tolerance: float = 0.0
) -> Match:
    """Look for one record in a release, as an attacker would.

    Parameters
    ----------
    release
        A k-anonymous release of numbers.
    known
        Value of each generalised attribute.
    public
        Value of each public attribute, if there are any.
    tolerance
        Share of each value by which the attacker's knowledge may be off.

    Examples
    --------
    >>> import dunnage as dn, pyarrow as pa
    >>> document = {"dataset": "people", "protects": "person", "mechanism": {"name": "partition", "k": 2},
    ...             "attributes": {"age": {"role": "quasi-identifier", "kind": "numeric", "domain": [0, 120]}}}
    >>> data = dn.load(pa.table({"age": [21, 22, 23, 41, 43, 45]}), dn.Policy.from_dict(document))
    >>> release, key = dn.publish(data, ledger=":memory:")
    >>> look_up(release, {"age": 22}).candidates, look_up(release, {"age": 30}).certainly_absent
    (3, True)
    """
    sight = Sight.of(release)
    names = [name for name, *_ in sight.public.columns]
    given = dict(public or {})
    if set(known) != set(sight.names) or set(given) != set(names):
        raise ParameterError(
            f"an attacker knows {', '.join(sight.names)} and the public {', '.join(names) or 'nothing'}. "
            f"Got {', '.join([*known, *given]) or 'nothing'}. Give a value for each."
        )
    try:
        values = np.array([told.numbers(pa.array([known[told.name]])) for told in sight.told])
        columns = {name: pa.array([given[name]], release.data.schema.field(name).type) for name in names}
    except (pa.ArrowException, ValueError, TypeError):
        raise ParameterError("a value is not of the kind of its attribute. Give numbers as numbers.") from None
    about = Known.of_values(sight, sight.public.look_up(columns, 1), values, tolerance)
    found = record_linkage(sight, about)
    return Match(
        candidates=int(found.rows[0]),
        probability=float(found.probability[0]),
        certainly_absent=bool(found.rows[0] == 0),
        value_told=bool(values_told(sight, about)[0]),
    )


def values_told(sight: Sight, known: Known) -> BoolArray:
    """Tell for which records, known exactly, the release says that a record of the same values is in it.

    With multisets every value is listed. Otherwise, with one attribute: own bounds are values of records, and so is
    the third value of a class of three whose mean was released. With several: only classes of one point.
    """
    told, one = np.zeros(len(known), dtype=bool), sight.told[0]
    points = np.logical_and.reduce([each.lower == each.upper for each in sight.told])
    for found in candidates(sight, known):
        exact: BoolArray = (known.low[:, found.record] == known.high[:, found.record]).all(axis=0)
        if not sight.multisets and (len(sight.told) > 1 or not one.own_bounds):
            exact = exact & points[found.of_class]
        elif not sight.multisets:
            value, size = known.low[0, found.record], sight.sizes[found.of_class]
            ends = (value == one.lower[found.of_class]) | (value == one.upper[found.of_class])
            exact = exact & (ends | ((size == 3) & (one.means is not None)))
        told[found.record[exact]] = True
    return told


def populations(sight: Sight, population: Known) -> IntArray:
    counts = np.zeros(len(sight.sizes), dtype=np.int64)
    for found in candidates(sight, population):
        counts += np.bincount(found.of_class, minlength=len(counts))
    return counts


# Several releases of the same records


@dataclass(frozen=True, eq=False, kw_only=True)
class Correspondence:
    """What two releases tell together about the records that are in both."""

    shared: IntArray  # For each common record: how many common records share both its classes
    alone: IntArray  # For each: the size of its class in the first release
    first: IntArray  # first, second: class of each in either release
    second: IntArray
    records: tuple[IntArray, IntArray]  # Which record of the first data each is, and which of the second


def correspond(
    sights: tuple[Sight, Sight], classes: tuple[IntArray, IntArray], matched: tuple[IntArray, IntArray]
) -> Correspondence:
    first, second = classes[0][matched[0]], classes[1][matched[1]]
    both = (first >= 0) & (second >= 0)
    first, second = first[both], second[both]
    _, place, times = np.unique(first * (len(sights[1].sizes) + 1) + second, return_inverse=True, return_counts=True)
    return Correspondence(
        shared=times[place.reshape(-1)],
        alone=sights[0].sizes[first],
        first=first,
        second=second,
        records=(matched[0][both], matched[1][both]),
    )


def match_records(one: Dataset, other: Dataset) -> tuple[IntArray, IntArray]:
    """Find the records that are in both datasets: by an identifier that both have, or where the same rows stood."""

    def identifying(data: Dataset) -> list[str]:
        together = data.schema.together  # where rows are put together, the column they share
        return [a.name for a in data.schema.identifiers] if together is None else [together]

    shared = [name for name in identifying(one) if name in identifying(other)]
    if not shared:
        _, first, second = np.intersect1d(one.source_rows, other.source_rows, return_indices=True)
        names = {a.name for a in one.schema.quasi_identifiers} & {a.name for a in other.schema.quasi_identifiers}
        same = [one.column(name).take(first).equals(other.column(name).take(second)) for name in names]
        if not same or not all(same):
            raise ParameterError(
                "records of two releases are matched by an identifier. The two datasets have none in common and are "
                "not the same rows. Declare the identifier in both policies."
            )
        return first, second
    columns = [[data.column(name).cast(pa.string()) for name in shared] for data in (one, other)]
    left, right = (pc.binary_join_element_wise(*found, "\x1f") for found in columns)
    if any(len(column.unique()) < len(column) for column in (left, right)):
        raise ParameterError(
            f"the identifier {', '.join(shared)} names some records twice, so records of two releases cannot be "
            "matched. Give each record its own."
        )
    place = positions(left, right)
    found = np.flatnonzero(place >= 0)
    return found, place[found]


def values_left(first: Occurrences, second: Occurrences, found: Correspondence) -> IntArray:
    """Count, for each common record, the values that occur in both its classes; both number them alike."""
    width = int(max(first.values.max(), second.values.max())) + 1
    second_class = np.repeat(np.arange(len(second.starts) - 1), second.distinct)
    known = second_class * width + second.values
    pairs, place = np.unique(np.stack([found.first, found.second]), axis=1, return_inverse=True)
    pair, line = first.expand(pairs[0])
    asked = pairs[1][pair] * width + first.values[line]
    at = np.searchsorted(known, asked).clip(max=len(known) - 1)
    return np.bincount(pair[known[at] == asked], minlength=pairs.shape[1])[place.reshape(-1)].astype(np.int64)


def joint_occurrences(
    columns: tuple[pa.Array, pa.Array], groups: tuple[IntArray, IntArray], num_classes: tuple[int, int]
) -> tuple[Occurrences, Occurrences]:
    """Give the values of one column in two releases the same numbers, and count them by class."""
    values = pa.concat_arrays([column.cast(pa.string()) for column in columns]).unique()
    first, second = (
        Occurrences.of(group, positions(column.cast(pa.string()), values), num)
        for column, group, num in zip(columns, groups, num_classes, strict=True)
    )
    return first, second
