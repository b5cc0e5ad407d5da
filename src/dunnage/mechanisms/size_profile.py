# SPDX-License-Identifier: Apache-2.0
"""SizeProfile: how many records of which size there are, with noise, as slots in which all of them very likely fit.

A planner needs no number for every parcel, only how many there are of which size. So records are counted on a public
grid of sizes, the counts get noise, and the noisy tails (how many records are larger than a size) are raised by margins
that follow from the law of the noise. What is released are slots; only the owner knows which record is in which slot,
and which slots are empty. ``docs/proofs/size-profile.md`` has the proof.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np
import pyarrow as pa
from pydantic import PlainSerializer, ValidationInfo, model_validator

from dunnage.arrays import FloatArray, IntArray
from dunnage.errors import ParameterError
from dunnage.exact import exact, plain, shown, shown_number
from dunnage.kernels.counts.margins import first_fit_count, margins_of
from dunnage.mechanisms.base import (
    Epsilon,
    Foresight,
    Mechanism,
    Number,
    Outcome,
    Pairs,
    Progress,
    optional,
    plain_pairs,
)
from dunnage.mechanisms.classes import released_column, strata
from dunnage.mechanisms.noisy import noisy_domains
from dunnage.model.certificate import RowMeasures, SlotGroup, SlotMeasures
from dunnage.model.domains import Numeric
from dunnage.model.guarantees import (
    CHECKED_FILE,
    EPSILON_PER_RECORD,
    PUBLIC_COLUMNS,
    PUBLIC_COUNT,
    PUBLIC_DOMAIN,
    PUBLIC_GROUPS,
    SYSTEM_ENTROPY,
    Basis,
    Neighbours,
    Promise,
    PureDP,
)
from dunnage.model.schema import Schema
from dunnage.noise import arrays as noise_arrays
from dunnage.noise.source import Noise
from dunnage.release.kinds import PUBLIC, comparable, floats, generalised, require, same, with_role
from dunnage.text import large_percent, several

if TYPE_CHECKING:
    from dunnage.release import Release
    from dunnage.tables.dataset import Dataset

NUMERICS = (
    "the noise is exact, on whole counts, from system entropy; sizes of slots are points of the public grid; margins "
    "are computed from the law of the noise in floating point, with its rounding added to the risk"
)
WITHOUT_SLOT = "no free slot of its size"  # why a record is not in a release
MAX_INTERVALS = 512
MAX_STEPS = 32  # intervals of each of several quantities
MAX_SCALE = 5000  # of noise for which margins are computed; beyond, noise would drown any profile
MIN_RISK, MAX_RISK = Fraction(1, 10**4), Fraction(1, 2)
MIN_GROUP_RISK = 1e-7  # below, the rounding of the margins would count
_STEPS_AN_OCTAVE = 3  # numbers of intervals, and of records, that are considered
_NEAR = 1.2  # grids are compared exactly if the rough cost is at most so many times the lowest
_MAX_SECTORS = 4  # parts of an axis by which sizes with several quantities are told apart
_USELESS = 0.9


@dataclass(frozen=True, eq=False)
class Layout:
    """A public grid of sizes in chains of rising sizes, the margins of its tails, and what it probably costs."""

    edges: tuple[IntArray, ...]  # of each quantity: the largest grid step of each interval
    cell_of: IntArray  # the cell of each combination of intervals
    sizes: IntArray  # the size of each cell's slots, in grid steps. Shape: cells by quantities
    chains: tuple[IntArray, ...]  # the cells of each chain, from the largest size on
    margins: tuple[IntArray, ...]  # by how much each tail of a chain is raised
    cost: float = 0.0  # predicted trucks if sizes are spread evenly over the domain, or total size if no truck is known

    @property
    def largest_margin(self) -> int:
        return max((int(margin.max()) for margin in self.margins), default=0)

    def cells(self, steps: list[IntArray]) -> IntArray:
        """Return the cell of each record, from the grid steps of its quantities."""
        levels = [np.searchsorted(edges, column) for edges, column in zip(self.edges, steps, strict=True)]
        return np.asarray(self.cell_of[tuple(levels)])

    def slots(self, counts: IntArray | FloatArray, known: int | None) -> IntArray:
        """Return the number of slots of each cell from noisy counts; ``known`` is the number of records if public."""
        numbers = np.zeros(len(self.sizes), dtype=np.int64)
        for chain, margin in zip(self.chains, self.margins, strict=True):
            tails = np.floor(np.cumsum(counts[chain]) + 1e-9).astype(np.int64) + margin
            tails = np.clip(tails, 0, known)
            # No tail of true counts is above a longer one, so neither need the margins be.
            tails = np.minimum.accumulate(tails[::-1])[::-1]
            numbers[chain] = np.diff(tails, prepend=0)
        return numbers


def _capacity(given: Any, info: ValidationInfo) -> Pairs:
    """Read what a truck takes: a number, or a table of attribute = number."""
    pairs = sorted(given.items()) if isinstance(given, Mapping) else [("", given)]
    if isinstance(given, tuple):
        pairs = list(given)
    made = tuple((str(name), exact(value, what="capacity")) for name, value in pairs)
    if not made or any(value <= 0 for _, value in made):
        raise ParameterError(f"capacity must be above 0. Got {shown(given)}. Write what a truck takes, such as 500.")
    return made


def _plain_capacity(pairs: Pairs | None) -> object:
    if pairs is None or pairs[0][0]:
        return None if pairs is None else plain_pairs(pairs)
    return plain(pairs[0][1])


def _intervals(given: Any, info: ValidationInfo) -> int:
    if type(given) is not int or not 1 <= given <= MAX_INTERVALS:
        raise ParameterError(f"intervals must be a whole number from 1 to {MAX_INTERVALS}. Got {shown(given)}.")
    return given


def _expected(given: Any, info: ValidationInfo) -> int:
    if type(given) is not int or given < 1:
        raise ParameterError(
            f"expected must be a whole number of at least 1, such as the usual number of records. Got {shown(given)}."
        )
    return given


class SizeProfile(Mechanism):
    """Release slots: noisy counts of records on a public grid of sizes, raised so that very likely all records fit.

    Parameters
    ----------
    epsilon
        Privacy loss of one record, over all quantities together.
    risk
        Largest probability that some record finds no slot of at least its size. It is over the noise alone, for any
        data, and no part of the privacy loss.
    expected
        A public guess at the number of records, such as last week's. With it the true number stays hidden, and
        neighbours add or remove a record. Without it the number is public, and neighbours replace a record.
    capacity
        What a truck takes, a number or one for each quantity: the grid is chosen for the fewest predicted trucks.
    intervals
        Number of intervals of each quantity; by default chosen from public facts.

    Guarantee
    ---------
    Epsilon-differential privacy between datasets that differ in the values of one record or, with ``expected``, by one
    record, proved.

    Assumptions
    -----------
    Public domains; which combinations of public values occur is known and, without ``expected``, how often.

    Runtime
    -------
    O(n log n) to match records and slots; the margins take about a second, whatever the number of records.

    Utility
    -------
    With probability at least 1 - risk each record has a slot of at least its size. On average a tail has as many spare
    slots as its margin: a few times sqrt(intervals) / epsilon.

    References
    ----------
    Hardt, Talwar 2010 (noise shaped by the sensitivity, here conditioned on its sum); Xu et al. 2013 (histograms).
    """

    name = "size-profile"
    kind = "classes"
    fast = True
    proof = ("size-profile.md#guarantee", "size-profile.md#margins")
    epsilon: Epsilon
    risk: Number
    expected: Annotated[int | None, optional(_expected)] = None
    capacity: Annotated[Pairs | None, optional(_capacity), PlainSerializer(_plain_capacity)] = None
    intervals: Annotated[int | None, optional(_intervals)] = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not MIN_RISK <= self.risk <= MAX_RISK:
            raise ParameterError(
                f"risk must be at least {shown_number(MIN_RISK)} and at most {shown_number(MAX_RISK)}. "
                f"Got {shown_number(self.risk)}. Try 0.05."
            )
        if self.scale > MAX_SCALE:
            raise ParameterError(
                f"epsilon {shown_number(self.epsilon)} is too small for a profile: the noise would hide any number of "
                f"records. Use at least {shown_number(self.epsilon * self.scale / MAX_SCALE)}."
            )
        return self

    @property
    def hidden(self) -> bool:
        """Whether the number of records stays hidden."""
        return self.expected is not None

    @cached_property
    def scale(self) -> Fraction:
        # One more or less changes one count by 1; a replacement changes two.
        return (1 if self.hidden else 2) / self.epsilon

    def promise(self, schema: Schema) -> Promise:
        self.layout(schema, self.expected or 1, 1)  # refuses columns and capacities that do not fit
        names = ", ".join(attribute.name for attribute in schema.public)
        of_each = f" of each combination of {names}" if names else ""
        in_clear = [
            f"a noisy profile of {', '.join(noisy_domains(schema, self.name))}: slots{of_each}, with spare ones"
        ]
        in_clear += [] if self.hidden else [f"the number of records{of_each}"]
        in_clear += [f"which combinations of public columns occur: {names}"] if names else []
        known = () if not names else (PUBLIC_GROUPS,) if self.hidden else (PUBLIC_COLUMNS,)
        return Promise(
            guarantee=PureDP(
                epsilon=self.epsilon,
                protects=schema.protects,
                neighbours=Neighbours.ADD_REMOVE if self.hidden else Neighbours.REPLACE_ONE,
            ),
            basis=Basis.PROVED,
            mechanism=self.describe(),
            assumptions=(
                PUBLIC_DOMAIN,
                CHECKED_FILE,
                *(() if self.hidden else (PUBLIC_COUNT,)),
                *known,
                EPSILON_PER_RECORD,
                SYSTEM_ENTROPY,
            ),
            in_clear=(*in_clear, *(attribute.exception for attribute in schema if attribute.exception)),
            numerics=NUMERICS,
            notes=self.notes(),
        )

    def layout(self, schema: Schema, num_records: int, num_groups: int) -> Layout:
        """Choose the grid and its margins for so many records (known or expected) in one of some groups."""
        risk = float(self.risk) / max(num_groups, 1)
        if risk < MIN_GROUP_RISK:  # how many combinations there are is public
            raise ParameterError(
                f"{num_groups:,} combinations of public values are too many for a risk of {shown_number(self.risk)}. "
                "Raise the risk, or make public columns coarser."
            )
        # Similar numbers share a grid, so that many groups need few of them.
        steps = round(_STEPS_AN_OCTAVE * math.log2(max(num_records, 1)))
        return _layout(
            *self._space(schema),
            round(2 ** (steps / _STEPS_AN_OCTAVE)),
            self.scale,
            risk,
            self.hidden,
            self.intervals,
        )

    def _space(self, schema: Schema) -> tuple[tuple[Numeric, ...], tuple[Fraction, ...] | None]:
        """Return the domains of the quantities and, in the same order, what a truck takes, if that is given."""
        domains = noisy_domains(schema, self.name)
        capacity = dict(self.capacity or ())
        if "" in capacity and len(domains) == 1:
            capacity = {next(iter(domains)): capacity[""]}
        if capacity and capacity.keys() != domains.keys():
            raise ParameterError(
                f"capacity must have one number for each of {', '.join(domains)}. Write it as [mechanism.capacity]."
            )
        return tuple(domains.values()), tuple(capacity[name] for name in domains) if capacity else None

    def groups(self, dataset: Dataset) -> tuple[IntArray, list[int]]:
        """Return the group of each record, and the number of records of each group, as known or expected."""
        group, num = strata(dataset)
        if self.expected is None:
            return group, np.bincount(group, minlength=num).tolist()
        return group, [max(1, round(self.expected / max(num, 1)))] * num

    def prepare(self, dataset: Dataset, progress: Progress | None = None) -> list[Layout]:
        """Choose all grids, from public facts, so that a refusal costs nothing."""
        _, records = self.groups(dataset)
        return [self.layout(dataset.schema, num, len(records)) for num in records]

    def draw(self, dataset: Dataset, prepared: list[Layout], noise: Noise) -> Outcome:
        # There is always a release, whatever the data; it may have no rows.
        schema, (group, records), layouts = dataset.schema, self.groups(dataset), prepared
        domains = noisy_domains(schema, self.name)
        steps = [domain.steps_above(dataset.numbers(name)) for name, domain in domains.items()]
        starts = np.cumsum([0, *(len(layout.sizes) for layout in layouts)])
        # cell : of each record, numbered over all groups
        cell = np.zeros(len(dataset), dtype=np.int64)
        by_group = np.argsort(group, kind="stable")
        ends = np.searchsorted(group[by_group], np.arange(len(records) + 1))
        for number, layout in enumerate(layouts):
            own = by_group[ends[number] : ends[number + 1]]
            cell[own] = starts[number] + layout.cells([column[own] for column in steps])
        counts = np.bincount(cell, minlength=int(starts[-1]))
        slots = np.zeros_like(counts)
        for number, layout in enumerate(layouts):
            part = slice(starts[number], starts[number + 1])
            noisy = counts[part] + self.perturbation(len(layout.sizes), noise)
            slots[part] = layout.slots(noisy, None if self.hidden else records[number])
        cells = np.flatnonzero(slots)
        class_id = np.repeat(np.arange(len(cells)), slots[cells])
        class_id = class_id[noise_arrays.permutation(noise, len(class_id))]
        # Slots and records by size, in random order where sizes are equal: that decides who gets which slot.
        slot_order = np.argsort(class_id, kind="stable")
        record_order = noise_arrays.permutation(noise, len(cell))
        record_order = record_order[np.argsort(cell[record_order], kind="stable")]
        first_slot, first_record = np.cumsum(slots) - slots, np.cumsum(counts) - counts
        rows, places, without = [], [], []
        for number, layout in enumerate(layouts):
            for chain in layout.chains:
                free: list[tuple[int, int]] = []  # runs of free slots, the smallest sizes last
                for at in (starts[number] + chain).tolist():
                    free.append((int(first_slot[at]), int(first_slot[at] + slots[at])))
                    start, end = int(first_record[at]), int(first_record[at] + counts[at])
                    while start < end and free:
                        begin, stop = free.pop()
                        num = min(stop - begin, end - start)
                        rows.append(record_order[start : start + num])
                        places.append(slot_order[begin : begin + num])
                        start += num
                        free += [(begin + num, stop)] if begin + num < stop else []
                    without.append(record_order[start:end])
        nothing = np.zeros(0, dtype=np.int64)
        group_of = np.searchsorted(starts, cells, side="right") - 1
        # classes : class_id, size, and per quantity the lower end of its domain and the size of the slots
        columns: dict[str, object] = {"class_id": np.arange(len(cells)), "size": slots[cells]}
        in_steps = np.concatenate([layout.sizes for layout in layouts] or [np.zeros((0, len(domains)), dtype=np.int64)])
        for axis, (name, domain) in enumerate(domains.items()):
            columns[f"{name}_lower"] = np.full(len(cells), domain.lower_float)
            columns[f"{name}_upper"] = domain.grid_values(in_steps[cells, axis])
        classes = pa.table(columns)
        # data : row, class_id, public columns, then the class's columns
        columns = {"row": np.arange(len(class_id)), "class_id": class_id}
        for attribute in schema.public:
            one_of_each = pa.array(by_group[ends[:-1]][group_of][class_id])
            columns[attribute.name] = released_column(dataset, attribute.name).take(one_of_each)
        for name in classes.column_names[2:]:
            columns[name] = classes.column(name).combine_chunks().take(pa.array(class_id))
        return Outcome(
            data=pa.table(columns),
            classes=classes,
            measures=self._measures(schema, records, len(class_id), len(cells)),
            rows=np.concatenate([*rows, nothing]),
            places=np.concatenate([*places, nothing]),
            class_id=class_id,
            left_out={WITHOUT_SLOT: np.concatenate([*without, nothing])},
        )

    def perturbation(self, num: int, noise: Noise) -> IntArray:
        """Sample the noise of so many counts; if the number of records is public, given that its sum is 0."""
        if self.hidden:
            return noise_arrays.discrete_laplace(noise, self.scale, num)
        if num <= 2:  # the sum leaves one of two free, with half the scale
            one = noise_arrays.discrete_laplace(noise, self.scale / 2, num - 1)
            return np.append(one, -one.sum())
        # Sample all but the last, which then follows from the sum, and keep this with the probability of its value
        # relative to 0: exp(-|value| / scale), the probability that a geometric number is at least |value|.
        tries = math.ceil(2 * math.sqrt(num)) + 2
        while True:
            drawn = noise_arrays.discrete_laplace(noise, self.scale, tries * (num - 1)).reshape(tries, num - 1)
            last = -drawn.sum(axis=1)
            kept = np.flatnonzero(noise_arrays.geometric(noise, self.scale, tries) >= np.abs(last))
            if len(kept):
                return np.append(drawn[kept[0]], last[kept[0]])

    def _measures(self, schema: Schema, records: list[int], num_slots: int, num_classes: int) -> RowMeasures:
        stated = []
        for num in records:
            layout = self.layout(schema, num, len(records))
            chains = len(layout.chains)
            margin, cells = layout.largest_margin, len(layout.sizes)
            stated.append(SlotGroup(records=num, intervals=cells, chains=chains, margin=margin))
        slots = SlotMeasures(slots=num_slots, risk=plain(self.risk), records_public=not self.hidden, groups=stated)
        return RowMeasures(records=self.expected or sum(records), classes=num_classes, slots=slots)

    def recount(self, release: Release, schema: Schema) -> Iterator[str]:
        stated = release.certificate.rows
        require(stated.slots is not None, "certificate.json: it does not state its slots")
        assert stated.slots is not None
        assert release.classes is not None
        records = [item.records for item in stated.slots.groups]
        if self.expected is None:
            fits = all(num >= 0 for num in records) and len(records) <= len(release) + 1
        else:
            fits = records == [max(1, round(self.expected / max(len(records), 1)))] * len(records)
        require(fits, "certificate.json: the numbers of records are not possible")
        due = self._measures(schema, records, len(release), release.classes.num_rows)
        follow = same(stated.plain(), due.plain())
        require(follow, "certificate.json: slots, intervals or margins do not follow from the mechanism")
        # group : of each class, numbered in the order of the classes
        class_id = release.data.column("class_id").to_numpy()
        group = np.zeros(len(release), dtype=np.int64)
        for name in with_role(release, PUBLIC):
            codes = comparable(release.data).column(name).combine_chunks().dictionary_encode().indices
            both = np.stack([group, codes.to_numpy(zero_copy_only=False)])
            group = np.unique(both, axis=1, return_inverse=True)[1].reshape(-1)
        of_class = group[np.unique(class_id, return_index=True)[1]]
        require(np.array_equal(of_class[class_id], group), "data: a class has slots with different public values")
        of_class = np.cumsum(np.diff(of_class, prepend=of_class[:1]) != 0)
        num_groups = len(np.unique(of_class))
        fits = len(np.unique(group)) == num_groups <= len(records) and (self.hidden or num_groups == len(records))
        require(bool(fits), "classes: the groups of slots are not those of the certificate")
        sizes = release.classes.column("size").to_numpy()
        domains = [schema[name].numeric for name in generalised(release)]
        upper = np.column_stack([floats(release.classes, f"{name}_upper") for name in generalised(release)])
        lower = np.column_stack([floats(release.classes, f"{name}_lower") for name in generalised(release)])
        require(bool((lower == [d.lower_float for d in domains]).all()), "classes: a slot has a lower bound of its own")
        for number in range(num_groups):
            layout, own = self.layout(schema, records[number], len(records)), np.flatnonzero(of_class == number)
            points = [d.grid_values(layout.sizes[:, axis]) for axis, d in enumerate(domains)]
            possible = set(map(tuple, np.column_stack(points).tolist()))
            on_grid = possible.issuperset(map(tuple, upper[own].tolist()))
            require(on_grid, "classes: a slot has a size that is not on the grid of its profile")
            known = self.hidden or len(layout.chains) > 1 or int(sizes[own].sum()) == records[number]
            require(known, "classes: the slots are not as many as the records")
        yield "sizes of slots, intervals and margins follow from the mechanism and the numbers of records"

    def preview(self, dataset: Dataset) -> Foresight:
        """Say from public facts, or what the owner takes for public, what the profile costs."""
        schema, (_, records), layouts = dataset.schema, self.groups(dataset), self.prepare(dataset)
        if not layouts:
            return Foresight(warnings=("there are no rows, and so no groups: the release will have no slots.",))
        domains, capacity = self._space(schema)
        largest = max(layouts, key=lambda layout: len(layout.sizes))
        cost, single = sum(layout.cost for layout in layouts), 0.0
        sizes = np.array([[domain.num_steps for domain in domains]])
        for num in records:
            single += _cost(domains, capacity, sizes, np.array([num]))
        unit = schema.protects
        what = "trucks" if capacity else "total size"
        lines = [
            f"profile: {several(len(largest.sizes), 'interval')} of sizes, tails raised by up to "
            f"{largest.largest_margin}; all records get a slot with probability {shown_number(1 - self.risk)} or more",
            f"predicted from public facts, for sizes spread evenly: {what} {cost:.4g}, {large_percent(cost / single)} "
            f"of {single:.4g} with one slot of the largest size for each {unit}",
        ]
        warnings = []
        if cost > _USELESS * single:
            warnings.append(
                f"the profile hardly helps: it needs {large_percent(cost / single)} of what slots of the largest size "
                f"for every {unit} need. Raise epsilon or risk, release more records at once, make public columns "
                "coarser, or choose a narrower domain."
            )
        return Foresight(warnings=tuple(warnings), lines=tuple(lines), details={"predicted": cost, "single": single})


def _cost(
    domains: tuple[Numeric, ...], capacity: tuple[Fraction, ...] | None, sizes: IntArray, numbers: IntArray
) -> float:
    """Return how many trucks slots need or, without a capacity, their total size in parts of the largest."""
    columns = [domain.grid_values(sizes[:, axis]) for axis, domain in enumerate(domains)]
    if capacity is not None:
        return float(first_fit_count(np.column_stack(columns), numbers, np.array([float(c) for c in capacity])))
    largest = [max(abs(domain.upper_float), abs(domain.lower_float)) for domain in domains]
    return float(np.sum(numbers * np.mean([c / most for c, most in zip(columns, largest, strict=True)], axis=0)))


@lru_cache(maxsize=256)
def _layout(
    domains: tuple[Numeric, ...],
    capacity: tuple[Fraction, ...] | None,
    num_records: int,
    scale: Fraction,
    risk: float,
    hidden: bool,
    intervals: int | None,
) -> Layout:
    """Choose the grid with the lowest predicted cost, from public facts alone."""
    ratio = math.exp(-1 / scale)
    deviation = math.sqrt(2 * ratio) / (1 - ratio)
    ladder = [intervals] if intervals else sorted({round(2 ** (i / _STEPS_AN_OCTAVE)) for i in range(28)})
    # Roughly: half an interval more for each record, and margins of the size of a random walk
    rough = {
        num: 1 / num + 3 * deviation * math.sqrt(num ** len(domains)) / num_records
        for num in ladder
        if num <= (MAX_INTERVALS if len(domains) == 1 else MAX_STEPS)
        and num <= max(domain.num_steps for domain in domains)
    } or {1: 1.0}
    best: Layout | None = None
    for num, cost in rough.items():
        if cost > _NEAR * min(rough.values()) and num > 1:
            continue
        for sectors in range(1, 1 + (_MAX_SECTORS if len(domains) > 1 and num > 1 else 1)):
            made = _grid(domains, capacity, num, sectors, num_records, scale, risk, hidden)
            if best is None or made.cost < best.cost:
                best = made
    assert best is not None
    return best


def _grid(
    domains: tuple[Numeric, ...],
    capacity: tuple[Fraction, ...] | None,
    num: int,
    sectors: int,
    num_records: int,
    scale: Fraction,
    risk: float,
    hidden: bool,
) -> Layout:
    edges = []
    for axis, domain in enumerate(domains):
        # Multiples of a part of the truck, rounded down to the grid: then sizes that add up to the whole truck do fit.
        span, step = domain.upper - domain.lower, domain.resolution or Fraction(1)
        whole = capacity[axis] if capacity else domain.upper if domain.upper > 0 else span
        part = whole / max(1, round(num * whole / span))
        multiples = range(math.floor(domain.lower / part) + 1, math.ceil(domain.upper / part))
        points = (math.floor((number * part - domain.lower) / step) for number in multiples)
        edges.append(np.unique([*(point for point in points if 0 < point < domain.num_steps), domain.num_steps]))
    # Chains. A record's interval on each axis gives its step: the largest, on a common scale. Within a step, its sector
    # says for each axis which part of the step's size is enough. Sizes of a sector rise from step to step.
    lengths = [len(of_axis) for of_axis in edges]
    most = max(lengths)
    levels = np.indices(lengths)
    step_of = np.maximum.reduce([levels[axis] * most // length for axis, length in enumerate(lengths)]) + 1
    parts = []
    for axis, length in enumerate(lengths):
        decides = levels[axis] * most // length + 1 == step_of
        parts.append(np.where(decides, sectors, levels[axis] * sectors * most // (step_of * length) + 1))
    code = np.zeros_like(step_of)
    for part_of in parts:
        code = code * (sectors + 1) + part_of
    code = code * (most + 1) + (most - step_of)  # sectors one after the other, the largest step first
    codes, at, cell_of = np.unique(code, return_index=True, return_inverse=True)
    needed = [
        -(-part_of * step_of * length // (sectors * most)) for part_of, length in zip(parts, lengths, strict=True)
    ]
    sizes = np.column_stack([of_axis[n.reshape(-1)[at] - 1] for of_axis, n in zip(edges, needed, strict=True)])
    chains = np.split(np.arange(len(codes)), np.flatnonzero(np.diff(codes // (most + 1))) + 1)
    known = not hidden
    margins = margins_of([len(chain) for chain in chains], float(scale), risk, fixed_total=known)
    shares = np.ones(())
    for of_axis in edges:
        shares = np.multiply.outer(shares, np.diff(of_axis, prepend=0) / of_axis[-1])
    usual = np.bincount(cell_of.reshape(-1), weights=shares.reshape(-1)) * num_records
    made = Layout(tuple(edges), cell_of.reshape(lengths), sizes, tuple(chains), tuple(margins))
    # Noise also raises the tails that decide how many trucks there are, by about a third of their margins.
    likely = replace(made, margins=tuple(margin + margin // 3 for margin in margins))
    return replace(made, cost=_cost(domains, capacity, sizes, likely.slots(usual, num_records if known else None)))
