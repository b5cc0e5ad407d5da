# SPDX-License-Identifier: Apache-2.0
"""What mechanisms that release classes share: strata, equivalence classes, and the release built from them."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import PlainSerializer, PlainValidator

from dunnage.arrays import BoolArray, FloatArray, IntArray
from dunnage.errors import ParameterError, Refusal
from dunnage.exact import decimal_text, exact, shown, shown_number
from dunnage.mechanisms.base import PLAIN, MadeRows, Mechanism, Outcome, Pairs, Progress, plain_pairs
from dunnage.model.certificate import Distortion, RowLoss, RowMeasures
from dunnage.model.certificate import Importance as ImportanceStatement
from dunnage.model.domains import decimal_scale
from dunnage.model.guarantees import (
    CHOICE_DEPENDS_ON_DATA,
    DATA_DEPENDENT_REFUSAL,
    PUBLIC_DOMAIN,
    RECORDS_NOT_PERSONS,
    SINGLE_RELEASE,
    SYSTEM_ENTROPY,
    Assumption,
    Basis,
    KAnonymity,
    Promise,
)
from dunnage.model.measures import (
    LEAST_K,
    LOSS_METRIC,
    class_sizes,
    ranked,
    sensitive_measures,
    size_measures,
    sort_key,
)
from dunnage.model.schema import COUNTS_SUFFIX, DIAMETER_SUFFIX, Role, Schema
from dunnage.noise import arrays as noise_arrays
from dunnage.noise.source import Noise
from dunnage.release.kinds import generalised
from dunnage.release.kinds.rows import check_figures
from dunnage.tables.columns import COUNTS_TYPE, SET_TYPE, Private
from dunnage.tables.finest import CountingFold, Finest
from dunnage.text import plural, several

if TYPE_CHECKING:
    from dunnage.release import Release
    from dunnage.tables.dataset import Dataset

# What a release shows about a class: its bounds, also the mean of its numbers, or all its values.
Statistic = Literal["bounds", "mean", "multiset"]
SUPPRESSED = "suppressed"  # The reason not to release a record that fits into no class
MAX_IMPORTANCE = 10**9
MAX_ALPHA = 10**9
CLASS = "\0class"  # a column of classes among those of the data
NOT_SIZE = "a quasi-identifier of labels cannot be named 'size': the table of classes has that column. Rename it."


@dataclass(frozen=True, eq=False, kw_only=True)
class Intervals:
    name: str
    lower: FloatArray
    upper: FloatArray


@dataclass(frozen=True, eq=False, kw_only=True)
class Nodes:
    name: str
    labels: tuple[str, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Sets:
    name: str
    sets: tuple[tuple[str, ...], ...]  # of the values of each class, in the order of the domain
    diameters: FloatArray | None = None  # longest shortest paths inside them, if values are vertices of a network
    counts: tuple[tuple[int, ...], ...] | None = None  # how often each value occurs, if multisets are released


Generalised = Intervals | Nodes | Sets  # one attribute as a release shows it, class by class


class ClassFigures(TypedDict, total=False):
    importance: ImportanceStatement
    distortion: Distortion
    k_chosen: int
    limits_chosen: dict[str, Any]


@dataclass(frozen=True, eq=False, kw_only=True)
class EquivalenceClasses:
    # Class of each dataset row, -1 if suppressed; the order of the numbers follows from released values alone
    of_row: IntArray
    generalised: tuple[Generalised, ...]  # the generalised attributes, in the order of the schema
    # For each attribute its share of the loss metric (eq. 7), summed over all records, before importance; a suppressed
    # record costs alpha
    losses: tuple[float, ...]
    importance: tuple[float, ...]  # weight of each attribute in the metric (beta in eq. 7)
    levels: tuple[int, ...] = ()  # level of each attribute in its hierarchy, if it is the same for all classes
    metric: str = LOSS_METRIC
    fewest_persons: int | None = None  # persons in the smallest class, if k counts persons
    found: FinestClasses | None = None  # where classes are unions of finest ones, which need not be here as rows
    rows: RowClasses | None = None  # where rows that live elsewhere have classes of their own
    figures: ClassFigures = field(default_factory=lambda: ClassFigures())  # further figures of the certificate

    @classmethod
    def of_finest(
        cls, dataset: Dataset, fold: FinestFold, finest: Finest, of_finest: IntArray, **shown: Any
    ) -> EquivalenceClasses:
        found = FinestClasses(fold=fold, finest=finest, of_finest=of_finest)
        # Rows that live elsewhere get their classes when they are released.
        of_row = np.zeros(0, dtype=np.int64) if dataset.elsewhere else found.of_rows(dataset)
        return cls(of_row=of_row, found=found, **shown)

    @property
    def sizes(self) -> IntArray:
        """Records in each class."""
        if self.rows is not None:
            return self.rows.sizes
        if self.found is None:
            return class_sizes(self.of_row[self.of_row >= 0])
        kept = self.found.of_finest >= 0
        return class_sizes(self.found.of_finest[kept], self.found.finest.counts[kept])

    def items(self, dataset: Dataset, names: Sequence[str]) -> tuple[IntArray, IntArray, dict[str, pa.Array]]:
        """Return the class of each record in one, how often it counts, and some columns; equal records may be one."""
        if self.found is None:
            kept = np.flatnonzero(self.of_row >= 0)
            columns = {name: dataset.column(name).take(pa.array(kept)) for name in names}
            return self.of_row[kept], np.ones(len(kept), dtype=np.int64), columns
        kept, finest = np.flatnonzero(self.found.of_finest >= 0), self.found.finest
        columns = {name: finest.column(name).take(pa.array(kept)) for name in names}
        return self.found.of_finest[kept], finest.counts[kept], columns

    @property
    def level_of(self) -> dict[str, int]:
        return {column.name: level for column, level in zip(self.generalised, self.levels, strict=False)}

    @property
    def loss_sum(self) -> float:
        return sum(weight * loss for weight, loss in zip(self.importance, self.losses, strict=True))

    def loss_measures(self, num_records: int) -> RowLoss:
        return RowLoss(
            metric=self.metric,
            sum=self.loss_sum,
            total=self.loss_sum / sum(self.importance) / num_records,
            attributes={c.name: loss / num_records for c, loss in zip(self.generalised, self.losses, strict=True)},
        )


@dataclass(frozen=True)
class FinestFold(CountingFold):
    """Count combinations of values: public columns as they are released, then others."""

    public: tuple[str, ...]
    others: tuple[str, ...]

    @classmethod
    def of(cls, schema: Schema, others: tuple[str, ...] | None = None) -> FinestFold:
        named = tuple(a.name for a in schema.quasi_identifiers) if others is None else others
        return cls(tuple(a.name for a in schema.public), named)

    def whole(self, dataset: Dataset) -> Finest:
        """Count rows that are all here; each then knows its combination."""
        return Finest.of(self.columns_of(dataset), with_rows=True)

    def columns_of(self, dataset: Dataset) -> dict[str, pa.Array]:
        shown = {name: released_column(dataset, name) for name in self.public}
        return {**shown, **{name: dataset.column(name) for name in self.others}}


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class FinestClasses(Private):
    """The class of each finest one, -1 if it is suppressed; a task can give rows theirs."""

    fold: FinestFold
    finest: Finest
    of_finest: IntArray

    def of_rows(self, dataset: Dataset) -> IntArray:
        return self.of_finest[self.numbers(dataset)]

    def numbers(self, dataset: Dataset) -> IntArray:
        """Return the finest class of each row."""
        if not self.finest.values:
            return np.zeros(len(dataset.source_rows), dtype=np.int64)
        if self.finest.of_row is not None:  # these are the rows that were counted
            return self.finest.of_row
        return self.finest.of_rows(self.fold.columns_of(dataset), dataset.source)


class RowClasses(NamedTuple):
    """The class of each row that lives elsewhere, on the disk; -1 if it is suppressed."""

    of_position: Any  # by the position of the row
    sizes: IntArray
    strata: FinestClasses
    occurrences: Mapping[str, Finest]  # how often each sensitive value occurs in each class


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ClassRows(Private):
    """Release rows with what their classes show, wherever the rows live."""

    found: FinestClasses  # or strata, if rows have classes of their own
    summary: pa.Table
    k: int
    own: IntArray | None = None  # class of each row of a part

    @cached_property
    def _small(self) -> BoolArray:
        stratum, num = self.found.finest.strata(len(self.found.fold.public))
        small: BoolArray = (np.bincount(stratum, self.found.finest.counts, minlength=num) < self.k)[stratum]
        return small

    def make(self, dataset: Dataset, noise: Noise) -> MadeRows:
        numbers = self.found.numbers(dataset)
        class_id = self.found.of_finest[numbers] if self.own is None else self.own
        rows = np.flatnonzero(class_id >= 0)
        columns = row_columns(dataset, self.summary, rows, class_id[rows])
        return MadeRows(rows, columns, left_out(dataset.schema, class_id < 0, self._small[numbers]))


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class OccurrenceFold(CountingFold, Private):
    """Count how often each value of a sensitive column occurs in each class."""

    found: FinestClasses
    name: str

    def columns_of(self, dataset: Dataset) -> dict[str, pa.Array]:
        class_id = self.found.of_rows(dataset)
        columns = {CLASS: pa.array(class_id), self.name: released_column(dataset, self.name)}
        return {name: column.filter(pa.array(class_id >= 0)) for name, column in columns.items()}


class ClassRelease(Mechanism):
    """A mechanism that releases classes of records that look alike, and what their figures depend on."""

    kind = "classes"
    class_bounds: ClassVar[str] = "class"  # the class's own extremes, a public "grid", or a "level" of a hierarchy
    metric: ClassVar[str] = LOSS_METRIC

    @property
    def sensitive_order(self) -> bool | None:
        return None

    @property
    def price_of_suppression(self) -> Fraction:
        alpha: Fraction = getattr(self, "alpha", Fraction(1))
        return alpha

    @property
    def most_suppressed(self) -> Fraction | None:
        share: Fraction | None = getattr(self, "max_suppressed", None)
        return share

    def weights(self, release: Release) -> Mapping[str, float]:
        given = dict(getattr(self, "importance", ()))
        return {name: float(given.get(name, 1)) for name in generalised(release)}

    def own_figures(self, release: Release, num_suppressed: int) -> Mapping[str, object]:
        """Compute the figures that only this mechanism states, and check the limits it was given."""
        return {}

    def recount(self, release: Release, schema: Schema) -> Iterator[str]:
        yield check_figures(release, self)


class ClassMechanism(ClassRelease):
    seeded = "the order of rows came from a seed that others may know"
    by_attribute: ClassVar[bool] = False  # whether multisets are of one attribute each, not of whole records

    @property
    def least_k(self) -> int:
        """The k that is promised, whatever the data."""
        k: int = getattr(self, "k", LEAST_K)
        return k

    @abc.abstractmethod
    def classes(self, dataset: Dataset, progress: Progress | None = None) -> EquivalenceClasses:
        """Return the classes, which are private and follow from the rows alone; refuse if no release is possible."""

    def prepare(self, dataset: Dataset, progress: Progress | None = None) -> EquivalenceClasses:
        dataset.require_rows()
        return self.classes(dataset, progress)

    def class_promise(
        self,
        schema: Schema,
        *,
        in_clear: tuple[str, ...],  # what is shown besides sizes and unchanged columns
        numerics: str,
        counted: Assumption = RECORDS_NOT_PERSONS,
        choice: Assumption = CHOICE_DEPENDS_ON_DATA,
        refusal: Assumption = DATA_DEPENDENT_REFUSAL,
        mechanism: Mapping[str, object] | None = None,
    ) -> Promise:
        """State k-anonymity, with the assumptions of every release of classes and what it shows."""
        return Promise(
            guarantee=KAnonymity(k=self.least_k, protects=schema.protects),
            basis=Basis.PROVED,
            mechanism=mechanism or self.describe(),
            assumptions=(PUBLIC_DOMAIN, counted, choice, refusal, SINGLE_RELEASE, SYSTEM_ENTROPY),
            in_clear=(
                "the number of released records and of suppressed records, the number of classes, the size of each",
                *in_clear,
                *schema.clear_columns(Role.PUBLIC),
                *schema.clear_columns(Role.SENSITIVE),
                *(attribute.exception for attribute in schema if attribute.exception),
            ),
            numerics=f"{numerics}; the order of rows is an exactly uniform permutation from system entropy",
            notes=self.notes(),
        )

    def draw(self, dataset: Dataset, prepared: EquivalenceClasses, noise: Noise) -> Outcome:
        statistic: Statistic = "bounds" if self.by_attribute else getattr(self, "statistic", "bounds")
        summary, sizes = class_table(dataset, prepared, statistic), prepared.sizes
        k = prepared.figures.get("k_chosen", self.least_k)
        own, occurrences = prepared.rows, dict[str, Finest]()
        if found := own.strata if own is not None else prepared.found if dataset.elsewhere else None:
            maker = ClassRows(found=found, summary=summary, k=k)
            drawn = dataset.draw_rows(maker, noise, None if own is None else own.of_position)
            outcome = Outcome(data=drawn.data, measures=RowMeasures(records=0), drawn=drawn, classes=summary)
            if own is None:
                occurrences = {
                    a.name: dataset.fold_rows(OccurrenceFold(found=found, name=a.name))
                    for a in dataset.schema.sensitive
                }
            else:
                occurrences = dict(own.occurrences)
        else:
            kept = np.flatnonzero(prepared.of_row >= 0)
            order = kept[noise_arrays.permutation(noise, len(kept))]
            class_id = prepared.of_row[order]
            data = pa.table({"row": np.arange(len(order)), **row_columns(dataset, summary, order, class_id)})
            left_out = self._left_out(dataset, prepared, k) if len(kept) < len(dataset) else {}
            outcome = Outcome(
                data=data,
                measures=RowMeasures(records=0),
                rows=order,
                class_id=class_id,
                classes=summary,
                left_out=left_out,
            )
            occurrences = {
                a.name: Finest.of({CLASS: pa.array(class_id), a.name: data.column(a.name).combine_chunks()})
                for a in dataset.schema.sensitive
            }
        figures = {"loss": prepared.loss_measures(len(dataset)), **prepared.figures}
        figures |= {"levels": prepared.level_of} if prepared.levels else {}
        figures["sensitive"] = {
            a.name: sensitive_measures(
                occurrences[a.name].numbers(CLASS).astype(np.int64),
                ranked(occurrences[a.name].column(a.name), a.describe()),
                occurrences[a.name].counts,
                ordered=self.sensitive_order,
            )
            for a in dataset.schema.sensitive
        }
        num_suppressed = len(dataset) - int(sizes.sum())
        measures = size_measures(sizes, self.least_k, num_suppressed, prepared.fewest_persons)
        measures = RowMeasures.model_validate({**measures.plain(), **figures})
        members = None
        if statistic == "multiset":
            # members : class_id and one joint tuple of the generalised attributes, sorted
            of_item, counts, columns = prepared.items(dataset, [item.name for item in prepared.generalised])
            of_item, kept = np.repeat(of_item, counts), np.repeat(np.arange(len(counts)), counts)
            columns = {name: column.take(pa.array(kept)) for name, column in columns.items()}
            sorted_rows = np.lexsort([*(sort_key(column) for column in reversed(columns.values())), of_item])
            joint = {name: column.take(pa.array(sorted_rows)) for name, column in columns.items()}
            members = pa.table({"class_id": of_item[sorted_rows], **joint})
        return replace(outcome, measures=measures, members=members)

    def _left_out(self, dataset: Dataset, prepared: EquivalenceClasses, k: int) -> dict[str, IntArray]:
        """Separate records whose public values are too rare for any class from those that fit nowhere else."""
        stratum, num_strata = strata(dataset)
        of_person = stratum if dataset.persons is None else np.unique(np.stack([stratum, dataset.persons]), axis=1)[0]
        small = np.bincount(of_person, minlength=num_strata)[stratum] < k
        return left_out(dataset.schema, prepared.of_row < 0, small)


def left_out(schema: Schema, suppressed: BoolArray, small: BoolArray) -> dict[str, IntArray]:
    rare = f"too few with the same {', '.join(item.name for item in schema.public)}"
    return {rare: np.flatnonzero(suppressed & small), SUPPRESSED: np.flatnonzero(suppressed & ~small)}


def _alpha(given: Any) -> Fraction:
    """Read alpha, the price of suppressing one record: how many records generalised to the whole domain it equals."""
    value = exact(given, what="alpha")
    if not 0 < value <= MAX_ALPHA:
        raise ParameterError(
            f"alpha must be above 0 and at most {MAX_ALPHA}. Got {shown_number(value)}. The usual price is 1."
        )
    return value


def importance_of(
    given: Any,
    least: Fraction = Fraction(1, MAX_IMPORTANCE),
    most: Fraction = Fraction(MAX_IMPORTANCE),
    remedy: str = "The usual importance is 1.",
) -> Pairs:
    try:
        pairs = sorted(dict(given).items())
    except (TypeError, ValueError):
        raise ParameterError(
            f"importance must be a table of attribute = number. Got {shown(given)}. Write it as [mechanism.importance]."
        ) from None
    weights = tuple((str(name), exact(value, what=f"importance of {name}")) for name, value in pairs)
    for name, weight in weights:
        if not least <= weight <= most:
            raise ParameterError(
                f"importance must lie between {least} and {most}. Got {shown_number(weight)} for {name!r}. {remedy}"
            )
    return weights


Alpha = Annotated[Fraction, PlainValidator(_alpha), PLAIN]
Importance = Annotated[Pairs, PlainValidator(importance_of), PlainSerializer(plain_pairs)]


def check_stratum_sizes(sizes: IntArray, k: int, dataset: Dataset) -> None:
    """Refuse a dataset that cannot be k-anonymous by the sizes of its strata, in persons if it has any."""
    persons = dataset.persons
    num, unit = (len(dataset), dataset.schema.protects) if persons is None else (len(np.unique(persons)), "person")
    if num < k:
        raise Refusal(
            f"{dataset.source}: {several(num, unit)} cannot be {k}-anonymous. Provide at least {k}, or "
            f"{lower_k(dataset)} in [mechanism]."
        )
    small = int((sizes < k).sum())
    names, lower = ", ".join(a.name for a in dataset.schema.public), lower_k(dataset).capitalize()
    if small and (dataset.policy.small == "refuse" or small == len(sizes)):
        raise Refusal(
            f"{dataset.source}: {small} of {len(sizes)} combinations of public values ({names}) have fewer than "
            f'k = {k} {plural(unit)}. {lower}, make {names} coarser, or set small = "suppress" to leave them out.'
            if small < len(sizes)
            else f"{dataset.source}: every combination of public values ({names}) has fewer than k = {k} "
            f"{plural(unit)}. {lower}, or make {names} coarser."
        )


def lower_k(dataset: Dataset) -> str:
    """Say what to do about a k that is too large: the policy may have set max_risk instead of k."""
    given = dataset.policy.mechanism
    return "raise max_risk" if "max_risk" in given and "k" not in given else "lower k"


def refuse_empty(alpha: Fraction) -> Refusal:
    return Refusal(
        f"at alpha = {decimal_text(alpha)} the loss is smallest if every record is suppressed, so nothing would be "
        "released. Raise alpha in [mechanism], or lower k."
    )


def strata(dataset: Dataset) -> tuple[IntArray, int]:
    """Give each combination of public values a number, in the order of those values."""
    if not dataset.schema.public:
        return np.zeros(len(dataset), dtype=np.int64), 1
    finest = FinestFold.of(dataset.schema, ()).whole(dataset)
    assert finest.of_row is not None
    return finest.of_row, len(finest)


def released_column(dataset: Dataset, name: str) -> pa.Array:
    """Return a public or sensitive column as it is released: equal values look equal, in types that all read."""
    # A negative zero equals zero but prints differently, so it would distinguish records of one class.
    column = dataset.column(name)
    if pa.types.is_decimal(column.type) and column.type.bit_width < 128:
        return column.cast(pa.decimal128(column.type.precision, column.type.scale))
    if pa.types.is_float16(column.type):
        column = column.cast(pa.float32())
    return pc.add(column, pa.scalar(0.0, column.type)) if pa.types.is_floating(column.type) else column


def class_table(dataset: Dataset, classes: EquivalenceClasses, statistic: str) -> pa.Table:
    # classes : class_id, size, and per attribute lower, upper[, mean], or the node, or the set[, diameter]
    sizes = classes.sizes
    columns: dict[str, object] = {"class_id": np.arange(len(sizes), dtype=np.int64), "size": sizes}
    for item in classes.generalised:
        if isinstance(item, Nodes):
            columns[item.name] = pa.array(item.labels, pa.string())
        elif isinstance(item, Sets):
            columns[item.name] = pa.array(item.sets, SET_TYPE)
            if item.diameters is not None:
                columns[f"{item.name}{DIAMETER_SUFFIX}"] = item.diameters
            if item.counts is not None:
                columns[f"{item.name}{COUNTS_SUFFIX}"] = pa.array(item.counts, COUNTS_TYPE)
        else:
            columns |= {f"{item.name}_lower": item.lower, f"{item.name}_upper": item.upper}
            if statistic in ("mean", "multiset"):
                of_item, counts, values = classes.items(dataset, [item.name])
                means = class_means(of_item, values[item.name].to_numpy(zero_copy_only=False), counts)
                # Rounding must not move a mean out of its own interval.
                columns[f"{item.name}_mean"] = np.clip(means, item.lower, item.upper)
    return pa.table(columns)


def class_means(class_id: IntArray, values: FloatArray, counts: IntArray | None = None) -> FloatArray:
    """Return the mean of each class, as a function of its values alone."""
    # A floating-point sum depends on the order of its terms, so it would leak the order of the input. Values are
    # therefore added in sorted order, and as whole numbers if they are decimals.
    times = np.ones(len(values), dtype=np.int64) if counts is None else counts
    order = np.lexsort((values, class_id))
    ends = np.cumsum(np.bincount(class_id))
    starts, sizes = np.append(0, ends[:-1]), class_sizes(class_id, times)
    scale = decimal_scale(values)
    if scale is None:
        return np.asarray(np.add.reduceat((values * times)[order], starts) / sizes)
    sums = np.add.reduceat((np.rint(values * scale) * times)[order], starts)
    return np.asarray(sums / (sizes * scale))


def row_columns(dataset: Dataset, summary: pa.Table, order: IntArray, class_id: IntArray) -> dict[str, object]:
    # data : class_id, public and sensitive columns, then the class's columns
    columns: dict[str, object] = {"class_id": class_id}
    for attribute in (*dataset.schema.public, *dataset.schema.sensitive):
        columns[attribute.name] = released_column(dataset, attribute.name).take(pa.array(order))
    for name in summary.column_names[2:]:
        columns[name] = summary.column(name).combine_chunks().take(pa.array(class_id))
    return columns
