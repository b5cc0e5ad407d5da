# SPDX-License-Identifier: Apache-2.0
"""Classes of similar records that live elsewhere: cut into parts where they live, and clustered part by part.

A cut follows from how often values occur in a part, which one fold counts for all parts of a level. When parts fit into
memory, records are brought together by part, cut further and clustered. The classes are those of memory: the same cuts,
and inside a part the same order of records.
"""

from __future__ import annotations

import io
import itertools
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dunnage.arrays import IntArray
from dunnage.errors import InputError, InternalError
from dunnage.kernels.clusters.growth import Constraints, Cut, Marginal, cuts, grow_in_blocks, num_blocks
from dunnage.mechanisms.base import Progress
from dunnage.mechanisms.classes import (
    CLASS,
    EquivalenceClasses,
    FinestClasses,
    FinestFold,
    RowClasses,
    check_stratum_sizes,
    released_column,
)
from dunnage.mechanisms.clusters import Comparison, MetricColumn, UtilityClusters, ranks_of, record_values
from dunnage.model.domains import Numeric, Tree
from dunnage.model.schema import Schema
from dunnage.tables.columns import Private
from dunnage.tables.finest import CHANGED, Finest
from dunnage.tables.reader import FIRST_ROW
from dunnage.text import plural

if TYPE_CHECKING:
    from dunnage.tables.dataset import Dataset

_ROWS_AT_ONCE = 1 << 20  # records that are brought together; larger parts are cut where they live
_PART, _VALUE = "\0part", "\0value"
_COUNTING = FinestFold((), ())


class Node(NamedTuple):
    """A part of the records: a stratum, or a side of a cut."""

    num: int  # records
    num_blocks: int  # into how many it is to be cut in all; 0 if it is a stratum that is clustered as a whole
    cut: Cut | None = None  # by codes of the domain, in the order of quasi-identifiers
    first: int = 0  # number of the first of its two sides


@dataclass(frozen=True, eq=False, repr=False)
class Parts(Private):
    strata: FinestClasses
    nodes: Sequence[Node]  # strata first; sides come after what they are cut from

    @property
    def stratum(self) -> IntArray:
        """Return the stratum of each part."""
        numbers = np.arange(len(self.nodes))
        for number, node in enumerate(self.nodes):
            if node.cut is not None:
                numbers[node.first : node.first + 2] = numbers[number]
        return numbers

    def of(self, dataset: Dataset, values: Sequence[npt.NDArray[Any]]) -> IntArray:
        """Return the number of the part of each record."""
        numbers = self.strata.numbers(dataset).copy()
        for number, node in enumerate(self.nodes):
            if node.cut is not None and len(rows := np.flatnonzero(numbers == number)):
                numbers[rows] = node.first + ~node.cut.side(values[node.cut.axis][rows])
        return numbers


@dataclass(frozen=True)
class MarginalFold:
    """Count the values of each attribute by itself, in each combination of public values or in some parts."""

    public: tuple[str, ...]
    generalised: tuple[str, ...]
    sensitive: tuple[str, ...]
    parts: Parts | None = None
    chosen: tuple[int, ...] = ()  # parts that are counted

    @classmethod
    def of(cls, schema: Schema) -> MarginalFold:
        roles = (schema.public, schema.quasi_identifiers, schema.sensitive)
        public, generalised, sensitive = (tuple(attribute.name for attribute in role) for role in roles)
        return cls(public, generalised, sensitive)

    def start(self) -> list[list[Finest]]:
        return [[] for _ in (*self.generalised, *self.sensitive)]

    def add(self, state: list[list[Finest]], dataset: Dataset) -> None:
        values = record_values(dataset)
        if self.parts is not None:
            numbers = self.parts.of(dataset, values)
            rows = np.flatnonzero(np.isin(numbers, self.chosen))
            groups, columns = {_PART: pa.array(numbers[rows])}, [pa.array(column[rows]) for column in values]
        else:
            groups = {name: released_column(dataset, name) for name in self.public}
            columns = [pa.array(column) for column in values]
            columns += [released_column(dataset, name) for name in self.sensitive]
        for own, column in zip(state, columns, strict=True):
            _COUNTING.merge(own, [Finest.of({**groups, _VALUE: column})])

    def merge(self, state: list[list[Finest]], other: list[list[Finest]]) -> None:
        for own, more in zip(state, other, strict=True):
            _COUNTING.merge(own, more)

    def dump(self, state: list[list[Finest]]) -> bytes:
        dumped = [_COUNTING.dump(own) for own in state]
        return b"".join([json.dumps([len(own) for own in dumped]).encode(), b"\n", *dumped])

    def load(self, data: bytes) -> list[list[Finest]]:
        head, _, content = data.partition(b"\n")
        ends = np.cumsum(json.loads(head)).tolist()
        return [_COUNTING.load(content[start:end]) for start, end in zip((0, *ends), ends, strict=False)]

    def result(self, state: list[list[Finest]]) -> list[Finest]:
        return [_COUNTING.result(own) for own in state]


def classes_elsewhere(mechanism: UtilityClusters, dataset: Any, progress: Progress) -> EquivalenceClasses:
    schema, k, counted = dataset.schema, mechanism.least_k, dataset.folded
    num_columns = len(schema.quasi_identifiers)
    columns = [
        MetricColumn.of(attribute, own.numbers(_VALUE), own.counts)
        for attribute, own in zip(schema.quasi_identifiers, counted, strict=False)
    ]
    compared = Comparison(mechanism, columns)
    first, public = counted[0], [item.name for item in schema.public]
    of_stratum, num_strata = first.strata(len(public))
    sizes = np.bincount(of_stratum, first.counts, minlength=num_strata).astype(np.int64)
    check_stratum_sizes(sizes, k, dataset)
    strata = Finest.of({name: first.column(name) for name in public}, first.counts) if public else Finest({}, (), sizes)
    strata_of = FinestClasses(fold=FinestFold(tuple(public), ()), finest=strata, of_finest=np.zeros(num_strata, int))
    nodes = [Node(num, num_blocks(num) if num_blocks(num) > 1 else 0) for num in sizes.tolist()]
    chosen = [number for number, node in enumerate(nodes) if _is_large(node, k)]
    marginals = [(own.strata(len(public))[0], own) for own in counted[:num_columns]]
    while chosen:
        new = []
        for number in chosen:
            node = nodes[number]
            if (cut := _cut_of(node, number, marginals, compared, k)) is not None:
                nodes[number], half = node._replace(cut=cut, first=len(nodes)), node.num_blocks // 2
                new += [len(nodes), len(nodes) + 1]
                nodes += [Node(cut.num, half), Node(node.num - cut.num, node.num_blocks - half)]
        if chosen := [number for number in new if _is_large(nodes[number], k)]:
            progress(f"cutting {plural(schema.protects)} into {len(nodes)} parts")
            fold = replace(MarginalFold.of(schema), sensitive=(), parts=Parts(strata_of, nodes), chosen=tuple(chosen))
            marginals = [(own.numbers(_PART), own) for own in dataset.fold_rows(fold)]
    usable, known = int(sizes[sizes >= k].sum()), zip(schema.sensitive, counted[num_columns:], strict=True)
    sorting = BlockSorting(
        parts=Parts(strata_of, nodes),
        compared=compared,
        k=k,
        constraints=compared.spared(compared.constraints(), usable, len(dataset)),
        sensitive=[Sensitive(item.name, own.values[_VALUE], ranks_of(own.values[_VALUE], item)) for item, own in known],
    )
    return _joined(sorting, dataset, usable, progress)


def _is_large(node: Node, k: int) -> bool:
    return node.num > _ROWS_AT_ONCE and node.num_blocks > 1 and node.num >= k


def _cut_of(node: Node, number: int, marginals: Any, compared: Comparison, k: int) -> Cut | None:
    """Return the first cut that leaves k records on both sides."""
    own = []
    for axis in compared.axes:
        of_part, finest = marginals[axis]
        inside, column = of_part == number, compared.columns[axis]
        values, counts = finest.numbers(_VALUE)[inside], finest.counts[inside]
        own.append(Marginal(values if column.coded is None else np.searchsorted(column.values, values), counts))
    for cut in cuts(own, compared.tables, compared.charge, node.num_blocks):
        if min(cut.num, node.num - cut.num) >= max(k, 1):
            axis = int(compared.axes[cut.axis])
            return cut._replace(axis=axis, first=compared.columns[axis].values[cut.first].astype(np.int64))
    return None


class Sensitive(NamedTuple):
    name: str
    values: pa.Array  # each once
    ranks: IntArray  # of these values


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class BlockSorting(Private):
    """Bring records together by part, and cluster each part."""

    parts: Parts
    compared: Comparison
    k: int
    constraints: Constraints | None
    sensitive: Sequence[Sensitive]

    @property
    def bucket_of(self) -> IntArray:
        """Return the bucket of each part; -1 of those that are cut, and of strata that are too small."""
        sizes = np.array([node.num if node.cut is None and node.num >= self.k else 0 for node in self.parts.nodes])
        return np.where(sizes > 0, (np.cumsum(sizes) - sizes) // _ROWS_AT_ONCE, -1)

    @property
    def num_buckets(self) -> int:
        return int(self.bucket_of.max(initial=0)) + 1

    @property
    def line(self) -> np.dtype[Any]:
        kinds = ["<f8" if column.coded is None else "<i4" for column in self.compared.columns]
        fields = [("part", "<i4"), *((f"value{at}", kind) for at, kind in enumerate(kinds))]
        return np.dtype([*fields, *((f"sensitive{at}", "<i4") for at in range(len(self.sensitive))), ("row", "<i8")])

    def spread(self, dataset: Dataset) -> Iterator[tuple[int, bytes]]:
        values = record_values(dataset)
        lines = np.empty(len(dataset.source_rows), dtype=self.line)
        lines["part"], lines["row"] = self.parts.of(dataset, values), dataset.source_rows
        for at, column in enumerate(values):
            lines[f"value{at}"] = column
        for at, item in enumerate(self.sensitive):
            codes = pc.index_in(released_column(dataset, item.name), value_set=item.values)
            if codes.null_count:
                raise InputError(dataset.source, [CHANGED])
            lines[f"sensitive{at}"] = codes.to_numpy()
        bucket = self.bucket_of[lines["part"]]
        order = np.argsort(bucket, kind="stable")
        ends = np.cumsum(np.bincount(bucket + 1, minlength=self.num_buckets + 1))
        for number, (start, end) in enumerate(itertools.pairwise(ends)):
            if end > start:
                yield number, lines[order[start:end]].tobytes()

    def gather(self, content: bytes) -> bytes:
        lines = np.frombuffer(content, dtype=self.line)
        names = [f"value{at}" for at in range(len(self.compared.columns))]
        ranks = [item.ranks[lines[f"sensitive{at}"]] for at, item in enumerate(self.sensitive)]
        keys = [lines["part"], *(lines[name] for name in names), *ranks, lines["row"]]
        lines = lines[np.lexsort(keys[::-1])]
        values = [lines[name] for name in names]
        classes, num, parts = np.full(len(lines), -1, dtype=np.int64), 0, list[IntArray]()
        starts = np.flatnonzero(np.diff(lines["part"], prepend=-1))
        for start, end in zip(starts, np.append(starts[1:], len(lines)), strict=True):
            part = int(lines["part"][start])
            metric = self.compared.metric([column[start:end] for column in values])
            price, blocks = float(self.compared.mechanism.price), self.parts.nodes[part].num_blocks
            found = grow_in_blocks(metric, self.k, num=blocks or None, constraints=self.constraints, price=price)
            classes[start:end] = np.where(found >= 0, found + num, -1)
            parts.append(np.full(int(found.max(initial=-1)) + 1, part))
            num += len(parts[-1])
        made: dict[str, npt.NDArray[Any]] = {
            "row": lines["row"],
            "class": classes.astype(np.int32),
            "part": np.concatenate(parts),
        }
        inside = np.flatnonzero(classes >= 0)
        inside = inside[np.argsort(classes[inside], kind="stable")]
        made["sizes"] = np.bincount(classes[inside], minlength=num)
        for at, column in enumerate(self.compared.columns):
            made[f"value{at}"], made[f"of{at}"] = _members(column, values[at][inside], classes[inside])
        for at, item in enumerate(self.sensitive):
            pairs = classes[inside] * len(item.values) + lines[f"sensitive{at}"][inside]
            made[f"pair{at}"], made[f"times{at}"] = np.unique(pairs, return_counts=True)
        sink = io.BytesIO()
        np.savez(sink, **cast("Any", made))
        return sink.getvalue()


def _members(column: MetricColumn, values: npt.NDArray[Any], classes: IntArray) -> tuple[npt.NDArray[Any], IntArray]:
    """Return of the values in each class what decides how it looks: the ends of a range, or each code once."""
    if isinstance(column.attribute.domain, Numeric | Tree):
        starts = np.flatnonzero(np.diff(classes, prepend=-1))
        if not len(starts):
            return values, classes
        ends = np.stack([np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)], axis=1)
        return ends.reshape(-1), np.repeat(classes[starts], 2)
    num = int(column.values[-1]) + 1
    owners, codes = np.divmod(np.unique(classes * num + values), num)
    return codes, owners


def _joined(sorting: BlockSorting, dataset: Any, usable: int, progress: Progress) -> EquivalenceClasses:
    """Give the classes of all parts numbers by how they look, and keep the class of each row on the disk."""
    with tempfile.TemporaryFile() as file:
        file.truncate(4 * dataset.num_read)
        of_position: npt.NDArray[np.int32] = np.memmap(file, dtype=np.int32, mode="r+", shape=(dataset.num_read,))
    of_position[:] = -1
    made: dict[str, list[npt.NDArray[Any]]] = {}
    num, done, compared = 0, 0, sorting.compared
    for content in dataset.sort_rows(sorting):
        with np.load(io.BytesIO(content)) as part:
            own = dict(part)
        rows, classes = own.pop("row") - FIRST_ROW, own.pop("class")
        of_position[rows] = np.where(classes >= 0, classes + num, -1)
        shifts = {f"of{at}": num for at in range(len(compared.columns))}
        shifts |= {f"pair{at}": num * len(item.values) for at, item in enumerate(sorting.sensitive)}
        for name, array in own.items():
            made.setdefault(name, []).append(array + shifts.get(name, 0))
        num, done = num + len(own["sizes"]), done + len(rows)
        progress(f"growing classes: {100 * done // usable} %")
    if done != usable:
        raise InputError(dataset.source, [CHANGED])
    if not num:
        raise compared.refuse_all(dataset, sorting.k)
    joined = {name: np.concatenate(parts) for name, parts in made.items()}
    members = [(joined[f"value{at}"], joined[f"of{at}"]) for at in range(len(compared.columns))]
    looks, generalised = compared.looks(sorting.parts.stratum[joined["part"]], members)
    sizes = np.bincount(looks, joined["sizes"]).astype(np.int64)
    if int(sizes.min()) < sorting.k:
        raise InternalError("a class is smaller than k")
    numbers = np.append(looks, -1).astype(np.int32)  # the last, for rows without a class
    for start in range(0, len(of_position), _ROWS_AT_ONCE):
        of_position[start : start + _ROWS_AT_ONCE] = numbers[of_position[start : start + _ROWS_AT_ONCE]]
    occurrences = {}
    for at, item in enumerate(sorting.sensitive):
        classes, codes = np.divmod(joined[f"pair{at}"], len(item.values))
        columns = {CLASS: pa.array(looks[classes]), item.name: item.values.take(pa.array(codes))}
        occurrences[item.name] = Finest.of(columns, joined[f"times{at}"])
    own_rows = RowClasses(of_position, sizes, sorting.parts.strata, occurrences)
    return compared.checked(dataset, sizes, generalised, of_row=np.zeros(0, dtype=np.int64), rows=own_rows)
