# SPDX-License-Identifier: Apache-2.0
"""What mechanisms that release classes share: strata, equivalence classes, and the release made from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dunnage import noise_arrays
from dunnage.arrays import FloatArray, IntArray
from dunnage.certificate import certify
from dunnage.dataset import Dataset
from dunnage.domains import decimal_scale
from dunnage.errors import InternalError, ParameterError, Refusal
from dunnage.exact import Exact, decimal_text, exact, shown, shown_number
from dunnage.guarantees import KAnonymity, Promise
from dunnage.ledger import Ledger
from dunnage.measures import (
    LOSS_METRIC,
    Range,
    class_sizes,
    order_asked,
    ranked,
    sensitive_measures,
    size_measures,
    sort_key,
)
from dunnage.noise import Noise
from dunnage.publication import Key, Publication
from dunnage.release import SET_TYPE, Release
from dunnage.schema import DIAMETER_SUFFIX, Schema

STATISTICS = ("bounds", "mean", "multiset")
MOST_IMPORTANCE = 10**9
MOST_ALPHA = 10**9


@dataclass(frozen=True, eq=False, kw_only=True)
class Intervals:
    """One numeric attribute generalised to one closed interval per class."""

    name: str
    lower: FloatArray
    upper: FloatArray


@dataclass(frozen=True, eq=False, kw_only=True)
class Nodes:
    """One attribute generalised to one node of its public hierarchy per class, by label."""

    name: str
    labels: tuple[str, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Sets:
    """One attribute generalised to the set of its values in each class, in the order of the domain.

    ``diameters`` are the longest shortest paths inside the sets, where values are vertices of a network.
    """

    name: str
    sets: tuple[tuple[str, ...], ...]
    diameters: FloatArray | None = None


Generalised = Intervals | Nodes | Sets
"""One attribute as a release tells it, class by class."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Classes:
    """Equivalence classes of a dataset."""

    # Class of each dataset row, -1 where suppressed. Classes are numbered from 0 in an order that follows from released
    # values alone
    of_row: IntArray
    generalised: tuple[Generalised, ...]  # The generalised attributes, in the order of the schema
    # For each of them the sum over all records of its share of the loss metric (eq. 7), suppressed ones included at the
    # price alpha; before importance
    losses: tuple[float, ...]
    importance: tuple[float, ...]  # What each counts in the metric (beta in eq. 7)
    # For each the level of its hierarchy that all classes are generalised to, where there is such a level
    levels: tuple[int, ...] = ()
    metric: str = LOSS_METRIC  # Name of the loss metric
    fewest_persons: int | None = None  # Persons in the class that has fewest, where k counts persons
    figures: Mapping[str, Any] = field(default_factory=dict)  # What else the certificate states of these classes

    @property
    def loss_sum(self) -> float:
        """Value of the loss metric (eq. 7) over all records."""
        return sum(weight * loss for weight, loss in zip(self.importance, self.losses, strict=True))


class ClassMechanism(Protocol):
    """A mechanism that releases classes."""

    @property
    def statistic(self) -> str:
        """What is told about a class."""

    def promise(self, schema: Schema) -> Promise:
        """State the guarantee; needs no data."""

    def classes(self, dataset: Dataset) -> Classes:
        """Find the classes; draws nothing."""


def release_classes(
    mechanism: ClassMechanism,
    dataset: Dataset,
    *,
    ledger: Ledger,
    noise: Noise,
    find: Callable[[Dataset], Classes] | None = None,
) -> Publication:
    """Find the classes (by ``find``, if given), spend once, and release them with rows in random order."""
    promise = mechanism.promise(dataset.schema)
    if noise.seeded:
        promise = promise.voided("the order of rows was drawn from a seed that others may know")
    classes = (find or mechanism.classes)(dataset)
    spend = ledger.spend(promise, dataset.purpose)
    return publish_classes(
        dataset,
        classes,
        promise=promise,
        k=promised_k(promise),
        statistic=mechanism.statistic,
        spend={"id": spend.id, "at": spend.at, "composed": ledger.statement(dataset.policy.dataset).composed()},
        noise=noise,
    )


def promised_k(promise: Promise) -> int:
    """Return the k of a promise of k-anonymity."""
    if not isinstance(promise.guarantee, KAnonymity):
        raise InternalError("classes were released under a promise that is not k-anonymity")
    return promise.guarantee.k


def suppression_price(alpha: Exact) -> Fraction:
    """Read alpha, the price of suppressing one record in records generalised to the whole domain."""
    value = exact(alpha, what="alpha")
    if not 0 < value <= MOST_ALPHA:
        raise ParameterError(
            f"alpha must be more than 0 and at most {MOST_ALPHA}. Got {shown_number(value)}. Use 1, the usual price."
        )
    return value


def check_choice(name: str, given: str, choices: Sequence[str]) -> None:
    """Refuse a word that is none of the choices."""
    if given not in choices:
        raise ParameterError(f"{name} must be one of {', '.join(choices)}. Got {shown(given)}.")


def check_stratum_sizes(sizes: IntArray, k: int, dataset: Dataset) -> None:
    """Refuse what cannot be k-anonymous, by the sizes of its strata; counts are the owner's to see.

    Sizes are of persons where the policy tells them apart.
    """
    persons = dataset.persons
    num, unit = (len(dataset), "records") if persons is None else (len(np.unique(persons)), "persons")
    if num < k:
        raise Refusal(
            f"{dataset.source}: {num} {unit} cannot be {k}-anonymous. Give at least {k}, or {lower_k(dataset)} in "
            "[mechanism]."
        )
    small = int((sizes < k).sum())
    names, lower = ", ".join(a.name for a in dataset.schema.public), lower_k(dataset).capitalize()
    if small and (dataset.policy.small == "refuse" or small == len(sizes)):
        raise Refusal(
            f"{dataset.source}: {small} of {len(sizes)} combinations of public values ({names}) have fewer than "
            f'k = {k} {unit}. {lower}, make {names} coarser, or set small = "suppress" to leave them out.'
            if small < len(sizes)
            else f"{dataset.source}: every combination of public values ({names}) has fewer than k = {k} "
            f"{unit}. {lower}, or make {names} coarser."
        )


def lower_k(dataset: Dataset) -> str:
    """Say what to do about a k that is too large: it may follow from a largest risk, without being given."""
    given = dataset.policy.mechanism
    return "raise max_risk" if "max_risk" in given and "k" not in given else "lower k"


def refuse_empty(alpha: Fraction) -> Refusal:
    """Make the refusal of a release that would suppress everything."""
    return Refusal(
        f"at alpha = {decimal_text(alpha)} suppressing every record loses least, so nothing would be "
        "released. Raise alpha in [mechanism], or lower k."
    )


def strata(dataset: Dataset) -> tuple[IntArray, int]:
    """Give each combination of public values a number, in the order of those values."""
    codes = np.zeros(len(dataset), dtype=np.int64)
    num = 1
    for attribute in dataset.schema.public:
        column = released_column(dataset, attribute.name)
        ranks = pc.rank(column, tiebreaker="dense").to_numpy().astype(np.int64) - 1
        # Renumbered after each column, so that the product stays below n^2.
        present, codes = np.unique(codes * (int(ranks.max()) + 1) + ranks, return_inverse=True)
        num = len(present)
    return codes, num


def released_column(dataset: Dataset, name: str) -> pa.Array:
    """Return a public or sensitive column as it is released: equal values look equal, in types all readers know.

    A negative zero equals zero and yet is printed differently, so it would tell apart the records of one class.
    """
    column = dataset.column(name)
    if pa.types.is_decimal(column.type) and column.type.bit_width < 128:
        return column.cast(pa.decimal128(column.type.precision, column.type.scale))
    if pa.types.is_float16(column.type):
        column = column.cast(pa.float32())
    return pc.add(column, pa.scalar(0.0, column.type)) if pa.types.is_floating(column.type) else column


def publish_classes(
    dataset: Dataset,
    classes: Classes,
    *,
    promise: Promise,
    k: int,
    statistic: str,
    spend: Mapping[str, Any],
    noise: Noise,
) -> Publication:
    """Make the release and the key of a table of classes, rows in random order.

    Called only after the ledger has accepted the spend: this is where noise is first drawn.
    """
    kept = np.flatnonzero(classes.of_row >= 0)
    order = kept[noise_arrays.permutation(noise, len(kept))]
    class_id = classes.of_row[order]
    summary = class_table(dataset, classes, statistic)
    data = row_table(dataset, summary, order, class_id)
    measures = _measures(data, classes, k, len(dataset) - len(kept), dataset)
    measures["sensitive"] = _sensitive(data, class_id, dataset.schema, promise)
    certificate = certify(
        promise,
        kind="rows",
        dataset=dataset.policy.dataset,
        period=dataset.period,
        attributes=dataset.schema.describe(),
        measures=measures,
        spend=spend,
    )
    members = _member_table(dataset, classes, kept) if statistic == "multiset" else None
    release = Release(certificate=certificate, data=data, classes=summary, members=members)
    return Publication(release, key_of(dataset, order, class_id, noise))


def class_table(dataset: Dataset, classes: Classes, statistic: str) -> pa.Table:
    """Make the table of classes, a line each."""
    # classes : class_id, size, and per attribute lower, upper[, mean], or the node, or the set[, diameter]
    kept = classes.of_row >= 0
    sizes = class_sizes(classes.of_row[kept])
    columns: dict[str, Any] = {"class_id": np.arange(len(sizes), dtype=np.int64), "size": sizes}
    for told in classes.generalised:
        if isinstance(told, Nodes):
            columns[told.name] = pa.array(told.labels, pa.string())
            continue
        if isinstance(told, Sets):
            columns[told.name] = pa.array(told.sets, SET_TYPE)
            if told.diameters is not None:
                columns[f"{told.name}{DIAMETER_SUFFIX}"] = told.diameters
            continue
        columns[f"{told.name}_lower"] = told.lower
        columns[f"{told.name}_upper"] = told.upper
        if statistic in ("mean", "multiset"):
            means = class_means(classes.of_row[kept], dataset.numbers(told.name)[kept])
            # Rounding must not carry a mean out of its own interval.
            columns[f"{told.name}_mean"] = np.clip(means, told.lower, told.upper)
    return pa.table(columns)


def class_means(class_id: IntArray, values: FloatArray) -> FloatArray:
    """Return the mean of each class, as a function of its values alone.

    Floating-point sums depend on the order of their terms, and so would tell something of the order of the input.
    Values are therefore added in sorted order, and as whole numbers wherever they are decimals.
    """
    order = np.lexsort((values, class_id))
    sizes = class_sizes(class_id)
    starts = np.cumsum(sizes) - sizes
    scale = decimal_scale(values)
    if scale is None:
        return np.asarray(np.add.reduceat(values[order], starts) / sizes)
    sums = np.add.reduceat(np.rint(values * scale)[order], starts)
    return np.asarray(sums / (sizes * scale))


def row_table(dataset: Dataset, summary: pa.Table, order: IntArray, class_id: IntArray) -> pa.Table:
    """Make the table of released rows, in the order given."""
    # data : row, class_id, public and sensitive columns, then the class's columns
    columns: dict[str, Any] = {"row": np.arange(len(order), dtype=np.int64), "class_id": class_id}
    for attribute in (*dataset.schema.public, *dataset.schema.sensitive):
        columns[attribute.name] = released_column(dataset, attribute.name).take(pa.array(order))
    for name in summary.column_names[2:]:
        columns[name] = summary.column(name).combine_chunks().take(pa.array(class_id))
    return pa.table(columns)


def _member_table(dataset: Dataset, classes: Classes, kept: IntArray) -> pa.Table:
    # members : class_id and one joint tuple of the generalised attributes, sorted
    rows = pa.array(kept)
    columns = {told.name: dataset.column(told.name).take(rows) for told in classes.generalised}
    class_id = classes.of_row[kept]
    order = np.lexsort([*(sort_key(column) for column in reversed(columns.values())), class_id])
    sorted_columns = {name: column.take(pa.array(order)) for name, column in columns.items()}
    return pa.table({"class_id": class_id[order], **sorted_columns})


def _measures(data: pa.Table, classes: Classes, k: int, num_suppressed: int, dataset: Dataset) -> dict[str, Any]:
    class_id = data.column("class_id").to_numpy()
    measures = size_measures(class_sizes(class_id), k, num_suppressed, classes.fewest_persons)
    measures |= classes.figures
    names = [column.name for column in classes.generalised]
    measures["loss"] = {
        "metric": classes.metric,
        "sum": classes.loss_sum,
        "total": classes.loss_sum / sum(classes.importance) / len(dataset),
        "attributes": {name: loss / len(dataset) for name, loss in zip(names, classes.losses, strict=True)},
    }
    if classes.levels:
        measures["levels"] = dict(zip(names, classes.levels, strict=True))
    return measures


def _sensitive(data: pa.Table, class_id: IntArray, schema: Schema, promise: Promise) -> dict[str, Any]:
    """Measure sensitive columns by the distance that was asked for, or else by that of their kind."""
    ordered = order_asked(promise.mechanism)
    columns = {a.name: ranked(data.column(a.name).combine_chunks(), a.describe()) for a in schema.sensitive}
    return {name: sensitive_measures(class_id, column, ordered=ordered) for name, column in columns.items()}


def key_of(dataset: Dataset, order: IntArray, class_id: IntArray | None, noise: Noise) -> Key:
    """Make the key of released rows: the dataset row of each, and its class if there are classes."""
    # key : a line per source row, so several for a row of merged ones
    parts = dataset.parts
    row, position = parts.of(order)
    columns: dict[str, Any] = {"row": row, "source_row": parts.source_rows[position]}
    if class_id is not None:
        columns["class_id"] = class_id[row]
    for attribute in dataset.schema.identifiers:
        columns[attribute.name] = parts.column(attribute.name).take(pa.array(position))
    salt = noise.draw_bytes(32)
    return Key(table=pa.table(columns), salt=salt, input_digest=dataset.keyed_digest(salt))


def importance_of(given: Any, allowed: Range | None = None) -> tuple[tuple[str, Fraction], ...]:
    """Read a table of importance; kept as pairs in order of names, which cannot be changed and can be hashed."""
    try:
        pairs = sorted(dict(given).items())
    except (TypeError, ValueError):
        raise ParameterError(
            f"importance must be a table attribute = number. Got {shown(given)}. Write [mechanism.importance]."
        ) from None
    weights = tuple((str(name), exact(value, what=f"importance of {name}")) for name, value in pairs)
    for name, weight in weights:
        if allowed is not None and not allowed.has(weight):
            raise ParameterError(
                f"importance must lie between {allowed.least} and {allowed.most}. Got {shown_number(weight)} for "
                f"{name!r}. Use {allowed.least} for what matters least."
            )
        if not Fraction(1, MOST_IMPORTANCE) <= weight <= MOST_IMPORTANCE:
            raise ParameterError(
                f"importance must lie between 1/{MOST_IMPORTANCE} and {MOST_IMPORTANCE}. "
                f"Got {shown_number(weight)} for {name!r}. Use 1, the usual importance."
            )
    return weights
