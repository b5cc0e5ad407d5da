# SPDX-License-Identifier: Apache-2.0
"""What mechanisms that release classes share: strata, equivalence classes, and the release made from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dunnage import noise_arrays
from dunnage.certificate import certify
from dunnage.dataset import Dataset
from dunnage.domains import decimal_scale
from dunnage.guarantees import Promise
from dunnage.measures import LOSS_METRIC, class_sizes, sensitive_measures, size_measures
from dunnage.noise import Noise
from dunnage.publication import Key, Publication
from dunnage.release import Release

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, kw_only=True)
class Intervals:
    """One numeric attribute generalised to one closed interval per class."""

    name: str
    lower: FloatArray
    upper: FloatArray


@dataclass(frozen=True, eq=False, kw_only=True)
class Classes:
    """Equivalence classes of a dataset.

    Parameters
    ----------
    of_row
        Class of each dataset row, -1 where suppressed. Classes are numbered from 0 in an order that follows from
        released values alone.
    intervals
        The generalised attributes.
    loss_sum
        Value of the loss metric (eq. 7) over all records, suppressed ones included.
    """

    of_row: IntArray
    intervals: tuple[Intervals, ...]
    loss_sum: float


def strata(dataset: Dataset) -> tuple[IntArray, int]:
    """Give each combination of public values a number, in the order of those values.

    Returns
    -------
    tuple
        The stratum of each row, and how many there are.
    """
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
    summary = _class_table(dataset, classes, statistic)
    data = _row_table(dataset, summary, order, class_id)
    measures = _measures(data, classes, k, len(dataset) - len(kept), dataset)
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
    return Publication(release, _key(dataset, order, class_id, noise))


def _class_table(dataset: Dataset, classes: Classes, statistic: str) -> pa.Table:
    # classes : class_id, size, and per attribute lower, upper[, mean]
    kept = classes.of_row >= 0
    sizes = class_sizes(classes.of_row[kept])
    columns: dict[str, Any] = {"class_id": np.arange(len(sizes), dtype=np.int64), "size": sizes}
    for interval in classes.intervals:
        columns[f"{interval.name}_lower"] = interval.lower
        columns[f"{interval.name}_upper"] = interval.upper
        if statistic in ("mean", "multiset"):
            means = class_means(classes.of_row[kept], dataset.numbers(interval.name)[kept])
            # Rounding must not carry a mean out of its own interval.
            columns[f"{interval.name}_mean"] = np.clip(means, interval.lower, interval.upper)
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


def _row_table(dataset: Dataset, summary: pa.Table, order: IntArray, class_id: IntArray) -> pa.Table:
    # data : row, class_id, public and sensitive columns, then the class's columns
    columns: dict[str, Any] = {"row": np.arange(len(order), dtype=np.int64), "class_id": class_id}
    for attribute in (*dataset.schema.public, *dataset.schema.sensitive):
        columns[attribute.name] = released_column(dataset, attribute.name).take(pa.array(order))
    for name in summary.column_names[2:]:
        columns[name] = summary.column(name).to_numpy()[class_id]
    return pa.table(columns)


def _member_table(dataset: Dataset, classes: Classes, kept: IntArray) -> pa.Table:
    # members : class_id and one joint tuple of the generalised attributes, sorted
    values = {interval.name: dataset.numbers(interval.name)[kept] for interval in classes.intervals}
    class_id = classes.of_row[kept]
    order = np.lexsort([*reversed(list(values.values())), class_id])
    return pa.table({"class_id": class_id[order], **{name: column[order] for name, column in values.items()}})


def _measures(data: pa.Table, classes: Classes, k: int, num_suppressed: int, dataset: Dataset) -> dict[str, Any]:
    class_id = data.column("class_id").to_numpy()
    measures = size_measures(class_sizes(class_id), k, num_suppressed)
    total = classes.loss_sum / len(dataset)
    measures["loss"] = {
        "metric": LOSS_METRIC,
        "sum": classes.loss_sum,
        "total": total,
        "attributes": {interval.name: total for interval in classes.intervals},
    }
    measures["sensitive"] = {
        a.name: sensitive_measures(class_id, data.column(a.name).combine_chunks()) for a in dataset.schema.sensitive
    }
    return measures


def _key(dataset: Dataset, order: IntArray, class_id: IntArray, noise: Noise) -> Key:
    columns: dict[str, Any] = {
        "row": np.arange(len(order), dtype=np.int64),
        "source_row": dataset.source_rows[order],
        "class_id": class_id,
    }
    for attribute in dataset.schema.identifiers:
        columns[attribute.name] = dataset.column(attribute.name).take(pa.array(order))
    salt = noise.draw_bytes(32)
    return Key(table=pa.table(columns), salt=salt, input_digest=dataset.keyed_digest(salt))
