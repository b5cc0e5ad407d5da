# SPDX-License-Identifier: Apache-2.0
"""Rows to measure on: some of the true ones, or generated ones of the same public shape.

Generated rows rest on public facts alone: domains, resolutions, labels, hierarchies and networks of the policy, over
which values are spread evenly. Public and sensitive columns are released as they are, so theirs may be taken from the
data; each is taken apart from the quasi-identifiers, and sensitive ones apart from one another.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dunnage import noise_arrays
from dunnage.arrays import IntArray
from dunnage.dataset import Dataset
from dunnage.domains import Numeric, Windows
from dunnage.errors import ParameterError
from dunnage.guarantees import Guarantee, KAnonymity, Neighbours
from dunnage.noise import Noise
from dunnage.policy import Policy
from dunnage.schema import Attribute, Role

MOST_RECORDS = 1500
"""Records that one draw measures on unless more are asked for: some seconds each, and many draws make a frontier."""
MOST_ALONG_ONE, MOST_ALONG_SEVERAL = 200_000, 10_000
"""Records that a fast mechanism is measured on, where nothing is planned: with one quasi-identifier, and with more."""
_FINE_STEPS = 10**6


def with_mechanism(policy: Policy, mechanism: Mapping[str, Any]) -> Policy:
    """Return the same policy with another mechanism: its name and parameters."""
    return replace(policy, mechanism=dict(mechanism), document={**policy.document, "mechanism": dict(mechanism)})


def under(data: Dataset, policy: Policy) -> Dataset:
    """Return the same rows under a policy that differs in its mechanism only."""
    return _dataset(data, policy, np.arange(len(data)))


def some_rows(
    data: Dataset, policy: Policy, groups: Sequence[IntArray], noise: Noise, most: int = MOST_RECORDS
) -> Dataset:
    """Return all rows, or if they are many some whole groups at random; of a group that is too large, some rows."""
    if len(data) <= most:
        return under(data, policy)
    return _dataset(data, policy, np.sort(_some(np.arange(len(data)), groups, most, noise)))


def takes_whole_groups(groups: Sequence[IntArray], most: int) -> bool:
    """Whether :func:`some_rows` takes whole groups, or whole groups inside one, whichever it chooses."""
    sizes = np.unique(groups[0], return_counts=True)[1]
    smallest, largest = int(sizes.min()), int(sizes.max())
    if largest <= most and (2 * largest <= most or 2 * smallest >= most):
        return True
    # More than half the rows are left to be taken from inside a group that is too large.
    return any(4 * int(np.unique(inner, return_counts=True)[1].max()) <= most for inner in groups[1:])


def _some(rows: IntArray, groups: Sequence[IntArray], most: int, noise: Noise) -> IntArray:
    """Choose whole groups at random, as many as fit; if that is little, also rows of the next one."""
    if len(rows) <= most:
        return rows
    if not groups:
        return rows[noise_arrays.permutation(noise, len(rows))[:most]]
    place, sizes = np.unique(groups[0][rows], return_inverse=True, return_counts=True)[1:]
    order = noise_arrays.permutation(noise, len(sizes))
    fitting = int(np.searchsorted(np.cumsum(sizes[order]), most, side="right"))
    whole = rows[np.isin(place.reshape(-1), order[:fitting])]
    if 2 * len(whole) >= most:
        return whole
    following = rows[place.reshape(-1) == order[fitting]]
    return np.concatenate([whole, _some(following, groups[1:], most - len(whole), noise)])


def _dataset(data: Dataset, policy: Policy, records: IntArray) -> Dataset:
    names = [item.name for item in data.schema if item.role is not Role.DROP and _has(data, item.name)]
    table = pa.table({name: data.column(name) for name in names}).take(pa.array(records))
    return Dataset(
        table=table,
        policy=policy,
        period=data.period,
        source=data.source,
        parts=data.parts.take(records),
        num_left_out=0,
    )


def _has(data: Dataset, name: str) -> bool:
    """Whether records have a column: identifiers of merged rows are kept with their parts alone."""
    try:
        data.column(name)
    except KeyError:
        return False
    return True


# --- Generated rows ------------------------------------------------------------------------------------------------


def generated_size(asked: int | None, data: Dataset, guarantee: Guarantee, most: int = MOST_RECORDS) -> int:
    """Return how many records to generate: as asked; else as many as there are if that may be told, else about so many.

    If they are many, some are enough.

    Examples
    --------
    >>> rounded(4321), rounded(97), rounded(8)
    (4000, 100, 8)
    """
    if asked is not None:
        return asked
    public = isinstance(guarantee, KAnonymity) or getattr(guarantee, "neighbours", None) is Neighbours.REPLACE_ONE
    return min(len(data) if public else rounded(len(data)), most)


def rounded(number: int) -> int:
    """Round to one significant digit."""
    scale: int = 10 ** max(len(str(number)) - 1, 0)
    return max(math.floor(number / scale + 0.5) * scale, 1)


def generated_rows(
    data: Dataset, policy: Policy, size: int, noise: Noise, most: Mapping[str, float] | None = None
) -> Dataset:
    """Generate rows of the same public shape."""
    same = size == len(data)
    rows = np.arange(size) if same else noise_arrays.below(noise, len(data), size)
    columns = {item.name: _column(item, data, rows, size, noise, (most or {}).get(item.name)) for item in policy.schema}
    if policy.schema.together is not None:
        columns[policy.schema.together] = _labels("group", size)
    if policy.period is not None and policy.period.column is not None and data.period is not None:
        day = data.period if len(data.period) > len("2026-11") else f"{data.period}-01"
        columns[policy.period.column] = pa.array([day] * size)
    return Dataset.from_table(pa.table(columns), policy, period=data.period, source="generated data")


def _column(item: Attribute, data: Dataset, rows: IntArray, size: int, noise: Noise, most: float | None) -> pa.Array:
    if item.role is Role.QUASI_IDENTIFIER:
        return _values(item, size, noise, most)
    if item.role is Role.PUBLIC:
        return data.column(item.name).take(pa.array(rows))
    if item.role is Role.SENSITIVE:
        return data.column(item.name).take(pa.array(rows[noise_arrays.permutation(noise, size)]))
    return pa.array(np.arange(size, dtype=np.float64)) if item.kind == Numeric.kind else _labels("generated", size)


def _labels(word: str, size: int) -> pa.Array:
    return pa.array([f"{word} {number}" for number in range(size)])


def _values(item: Attribute, size: int, noise: Noise, most: float | None) -> pa.Array:
    """Spread values evenly over a public domain."""
    domain = item.domain
    if isinstance(domain, Numeric):
        return pa.array(_numbers(domain, size, noise, most))
    if domain is None or isinstance(domain, Windows) or not hasattr(domain, "labels"):
        raise ParameterError(f"rows with {item.name!r} cannot be generated. Measure on the data: --on data.")
    labels = np.array(domain.labels, dtype=object)
    return pa.array(labels[noise_arrays.below(noise, len(labels), size)].tolist())


def _numbers(domain: Numeric, size: int, noise: Noise, most: float | None) -> npt.NDArray[np.float64]:
    upper = domain.upper_float if most is None else min(domain.upper_float, most)
    if domain.resolution is not None:
        steps = int(domain.steps_below([max(upper, domain.lower_float)])[0])
        return domain.grid_values(noise_arrays.below(noise, steps + 1, size))
    share = noise_arrays.below(noise, _FINE_STEPS + 1, size) / _FINE_STEPS
    return np.clip(domain.lower_float + share * (upper - domain.lower_float), domain.lower_float, domain.upper_float)
