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
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
from pydantic import PlainSerializer, ValidationInfo, model_validator

from dunnage.arrays import BoolArray, FloatArray, IntArray
from dunnage.errors import ParameterError
from dunnage.exact import exact, plain, shown, shown_number
from dunnage.kernels.counts.margins import NoiseLaw, first_fit_count, margins_of, mass_of
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
_STEPS_AN_OCTAVE = 3  # numbers of records that are considered; of intervals twice as many
_NEAR = 1.2  # grids are compared exactly if the rough cost is at most so many times the lowest
_MAX_SECTORS = 4  # parts of an axis by which sizes with several quantities are told apart
_USELESS = 0.9
_TYPICAL = 512  # sizes that stand for those of all records in predictions
TUBE_SHARES = (Fraction(3, 10), Fraction(1, 5), Fraction(1, 10))  # of the loss, for the largest tail: the best first
_MAX_DRAWN = 1e7  # random numbers that the noise of a profile may take on average: about a second
_MAX_FOLLOWED = 3e7  # steps in which the chance of failure is computed: about a tenth of a second


@dataclass(frozen=True, eq=False)
class Layout:
    """A public grid of sizes in chains of rising sizes, the margins of its tails, and what it probably costs."""

    edges: tuple[IntArray, ...]  # of each quantity: the largest grid step of each interval
    cell_of: IntArray  # the cell of each combination of intervals
    sizes: IntArray  # the size of each cell's slots, in grid steps. Shape: cells by quantities
    chains: tuple[IntArray, ...]  # the cells of each chain, from the largest size on
    margins: tuple[IntArray, ...]  # by how much each tail of a chain is raised
    law: NoiseLaw
    tube: Fraction  # share of the loss that keeps all tails small together
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


class Space(NamedTuple):
    """The quantities, and what is public about them."""

    domains: tuple[Numeric, ...]
    capacity: tuple[Fraction, ...] | None  # what a truck takes, in the order of the domains
    usual: tuple[Fraction, ...] | None  # medians, as the owner guesses them

    @property
    def bends(self) -> list[float]:
        """Return for each domain the power of evenly spread numbers that has its usual size as the median."""
        shares = [(u - d.lower) / (d.upper - d.lower) for d, u in zip(self.domains, self.usual or (), strict=False)]
        return [-math.log2(share) for share in shares] or [1.0] * len(self.domains)

    def typical(self, num: int) -> tuple[IntArray, IntArray]:
        """Return so many records with the sizes that grids are chosen for: their grid steps, and how many of each."""
        points = (np.arange(_TYPICAL) + 0.5) / _TYPICAL
        columns = []
        for axis, (domain, bend) in enumerate(zip(self.domains, self.bends, strict=True)):
            # Multiples of irrational numbers are spread as evenly as independent ones, and the same for everybody.
            own = points if axis == 0 else np.arange(_TYPICAL) * math.sqrt(axis + 1) % 1
            own = np.where(np.arange(_TYPICAL) % 2 == 0, points, own) if self.usual else own
            columns.append(np.ceil(domain.num_steps * own**bend).astype(np.int64))
        return np.column_stack(columns), np.diff(num * np.arange(_TYPICAL + 1) // _TYPICAL)


def _sizes(given: Any, info: ValidationInfo) -> Pairs:
    """Read what a truck takes, or what is usual: a number, or a table of attribute = number."""
    pairs = sorted(given.items()) if isinstance(given, Mapping) else [("", given)]
    if isinstance(given, tuple):
        pairs = list(given)
    made = tuple((str(name), exact(value, what=str(info.field_name))) for name, value in pairs)
    if not made or any(value <= 0 for _, value in made):
        what = "what a truck takes, such as 500" if info.field_name == "capacity" else "a usual size, such as 8"
        raise ParameterError(f"{info.field_name} must be above 0. Got {shown(given)}. Write {what}.")
    return made


def _plain_sizes(pairs: Pairs | None) -> object:
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
    usual
        A public guess at the median size, a number or one for each quantity, if most records are small or most are
        large: the grid is then finer there. By default sizes are taken to be spread evenly over the domain.
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
    capacity: Annotated[Pairs | None, optional(_sizes), PlainSerializer(_plain_sizes)] = None
    usual: Annotated[Pairs | None, optional(_sizes), PlainSerializer(_plain_sizes)] = None
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
        near = round(2 ** (round(_STEPS_AN_OCTAVE * math.log2(max(num_records, 1))) / _STEPS_AN_OCTAVE))
        made = _layout(self._space(schema), near, self.scale, risk, self.hidden, self.intervals)
        return replace(made, cost=made.cost * max(num_records, 1) / near)

    def _space(self, schema: Schema) -> Space:
        domains = noisy_domains(schema, self.name)
        sizes = []
        for what, given in (("capacity", self.capacity), ("usual", self.usual)):
            of_name = dict(given or ())
            if "" in of_name and len(domains) == 1:
                of_name = {next(iter(domains)): of_name[""]}
            if of_name and of_name.keys() != domains.keys():
                raise ParameterError(
                    f"{what} must have one number for each of {', '.join(domains)}. Write it as [mechanism.{what}]."
                )
            sizes.append(tuple(of_name[name] for name in domains) if of_name else None)
        made = Space(tuple(domains.values()), *sizes)
        pairs = zip(made.domains, made.usual or (), strict=False)
        if any(not domain.lower < size < domain.upper for domain, size in pairs):
            raise ParameterError("usual must be inside the domain. Write a public guess at the median size.")
        return made

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
            noisy = counts[part] + self.perturbation(len(layout.sizes), noise, layout.tube)
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

    def perturbation(self, num: int, noise: Noise, tube: Fraction = Fraction(0)) -> IntArray:
        """Sample the noise of so many counts; if the number of records is public, with sum 0.

        The share ``tube`` of the loss is for the largest tail, of counts that are in one chain.
        """
        if num <= 2 and not self.hidden:  # the sum leaves one of two free, with half the scale
            one = noise_arrays.discrete_laplace(noise, self.scale / 2, num - 1)
            return np.append(one, -one.sum())
        scale = self.scale / (1 - tube)

        def keeps(values: IntArray, share: Fraction) -> BoolArray:
            """Keep values with probability exp(-|value| share): that a geometric number is at least |value|."""
            if not share:
                return np.ones(len(values), dtype=np.bool_)
            return noise_arrays.geometric(noise, 1 / share, len(values)) >= np.abs(values)

        def walks(cells: int, few: int, pull: Fraction) -> tuple[IntArray, IntArray]:
            """Sample the steps of so many walks that a pull towards 0 keeps, and how far from 0 each of them goes."""
            kept, furthest, tries = [np.zeros((0, cells), dtype=np.int64)], [np.zeros(0, dtype=np.int64)], few
            while sum(map(len, kept)) < few:
                steps = noise_arrays.discrete_laplace(noise, scale, tries * cells).reshape(tries, cells)
                far = np.abs(np.cumsum(steps, axis=1)).max(axis=1, initial=0)
                stay = keeps(far, pull)
                kept.append(steps[stay])
                furthest.append(far[stay])
                tries = min(2 * tries, max(few, 2**18 // max(cells, 1)))
            return np.concatenate(kept)[:few], np.concatenate(furthest)[:few]

        pull = self.epsilon * tube
        if self.hidden:
            return np.asarray(walks(num, 1, pull)[0][0])
        # Two walks, from each end: the count between them follows from the sum. max(a, b) is (a + b + |a - b|) / 2.
        few = math.ceil(2 * math.sqrt(num)) + 2
        while True:
            (left, far), (right, far_right) = (walks(part, few, pull / 2) for part in (num // 2, num - 1 - num // 2))
            middle = -left.sum(axis=1) - right.sum(axis=1)
            kept = keeps(middle, 1 / scale) & keeps(far - far_right, pull / 2)
            if kept.any():
                first = int(np.argmax(kept))
                return np.concatenate([left[first], middle[first : first + 1], right[first, ::-1]])

    def _measures(self, schema: Schema, records: list[int], num_slots: int, num_classes: int) -> RowMeasures:
        stated = []
        for num in records:
            layout = self.layout(schema, num, len(records))
            chains, tube = len(layout.chains), plain(layout.tube)
            margin, cells = layout.largest_margin, len(layout.sizes)
            stated.append(SlotGroup(records=num, intervals=cells, chains=chains, tube=tube, margin=margin))
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
        space = self._space(schema)
        largest = max(layouts, key=lambda layout: len(layout.sizes))
        cost, single, fewest = sum(layout.cost for layout in layouts), 0.0, 0.0
        sizes = np.array([[domain.num_steps for domain in space.domains]])
        for num in records:
            single += _cost(space, sizes, np.array([num]))
            fewest += _cost(space, *space.typical(num))
        unit = schema.protects
        what = "trucks" if space.capacity else "total size"
        spread = "with the usual sizes as medians" if space.usual else "for sizes spread evenly"
        lines = [
            f"profile: {several(len(largest.sizes), 'interval')} of sizes, tails raised by up to "
            f"{largest.largest_margin}; all records get a slot with probability {shown_number(1 - self.risk)} or more",
            f"predicted from public facts, {spread}: {what} {cost:.4g}, {large_percent(cost / fewest)} of {fewest:.4g} "
            f"without privacy, and {large_percent(cost / single)} of {single:.4g} with slots of the largest size",
        ]
        warnings = []
        if cost > _USELESS * single:
            warnings.append(
                f"the profile hardly helps: it needs {large_percent(cost / single)} of what slots of the largest size "
                f"for every {unit} need. Raise epsilon or risk, release more records at once, make public columns "
                "coarser, or choose a narrower domain."
            )
        return Foresight(
            warnings=tuple(warnings),
            lines=tuple(lines),
            details={"predicted": cost, "single": single, "fewest": fewest},
        )


def _cost(space: Space, sizes: IntArray, numbers: IntArray) -> float:
    """Return how many trucks slots need or, without a capacity, their total size in parts of the largest."""
    columns = [domain.grid_values(sizes[:, axis]) for axis, domain in enumerate(space.domains)]
    if space.capacity is not None:
        return float(first_fit_count(np.column_stack(columns), numbers, np.array([float(c) for c in space.capacity])))
    largest = [max(abs(domain.upper_float), abs(domain.lower_float)) for domain in space.domains]
    return float(np.sum(numbers * np.mean([c / most for c, most in zip(columns, largest, strict=True)], axis=0)))


@lru_cache(maxsize=256)
def _layout(
    space: Space,
    num_records: int,
    scale: Fraction,
    risk: float,
    hidden: bool,
    intervals: int | None,
) -> Layout:
    """Choose the grid with the lowest predicted cost, from public facts alone."""
    domains, ratio = space.domains, math.exp(-1 / scale)
    deviation = math.sqrt(2 * ratio) / (1 - ratio)
    ladder = [intervals] if intervals else sorted({round(2 ** (i / (2 * _STEPS_AN_OCTAVE))) for i in range(55)})
    # Roughly: half an interval more for each record, and margins of the size of a random walk
    grows = 0.4 if len(domains) == 1 else len(domains) / 2
    rough = {
        num: 1 / num + 3 * deviation * num**grows / num_records
        for num in ladder
        if num <= (MAX_INTERVALS if len(domains) == 1 else MAX_STEPS)
        and num <= max(domain.num_steps for domain in domains)
    } or {1: 1.0}
    near = [num for num, cost in rough.items() if cost <= _NEAR * min(rough.values()) or num == 1]
    common = (num_records, scale, risk, hidden)
    many = range(1, 1 + _MAX_SECTORS if len(domains) > 1 else 2)
    best = _middle_of_best([_grid(space, num, n, *common) for num in near for n in many if num > 1 or n == 1])
    return replace(best, margins=tuple(margins_of([len(chain) for chain in best.chains], best.law, risk)))


def _laws(lengths: list[int], scale: Fraction, hidden: bool) -> Iterator[tuple[Fraction, NoiseLaw]]:
    """Yield noise without a tube and, for one chain, with the best share of the loss that is quick to sample."""
    num, epsilon = sum(lengths), (1 if hidden else 2) / scale
    yield Fraction(0), NoiseLaw(float(scale), not hidden)
    for tube in TUBE_SHARES if len(lengths) == 1 and num > 2 else ():
        law = NoiseLaw(float(scale / (1 - tube)), not hidden, float(1 / (epsilon * tube)))
        if num * (30 * law.tube) ** 2 > _MAX_FOLLOWED:
            continue
        drawn = num / mass_of((num,), law, law.stride).kept
        if not hidden:  # halves are kept one by one, and one count closes the sum
            half = mass_of((num // 2,), NoiseLaw(law.scale, False, 2 * law.tube), law.stride).kept
            drawn *= half * (1 - law.ratio) / (1 + law.ratio)
        if drawn <= _MAX_DRAWN:
            yield tube, law
            return


def _middle_of_best(layouts: list[Layout]) -> Layout:
    """Return the layout of lowest cost; of equal ones the middle one, as predicted trucks are whole numbers."""
    lowest = min(made.cost for made in layouts)
    equal = [made for made in layouts if made.cost == lowest]
    return equal[len(equal) // 2]


def _grid(
    space: Space,
    num: int,
    sectors: int,
    num_records: int,
    scale: Fraction,
    risk: float,
    hidden: bool,
) -> Layout:
    (domains, capacity, _), bends = space, space.bends
    edges = []
    for axis, domain in enumerate(domains):
        if bends[axis] != 1:
            # Of sizes x = u^bend, u spread evenly, these intervals add the least when sizes are rounded up.
            ends = domain.num_steps * (np.arange(1, num) / num) ** (2 * bends[axis] / (bends[axis] + 1))
            edges.append(np.unique([*np.floor(ends - 1e-9).astype(np.int64).clip(1), domain.num_steps]))
            continue
        # Multiples of a part of the truck, rounded down to the grid: then sizes that add up to the whole truck do fit.
        span, step = domain.upper - domain.lower, domain.resolution or Fraction(1)
        whole = capacity[axis] if capacity else domain.upper if domain.upper > 0 else span
        part = whole / max(1, round(num * whole / span))
        multiples = range(math.floor(domain.lower / part) + 1, math.ceil(domain.upper / part))
        points = (math.floor((number * part - domain.lower) / step) for number in multiples)
        edges.append(np.unique([*(point for point in points if 0 < point < domain.num_steps), domain.num_steps]))
    # Chains. A record's interval on each axis gives its step: the largest, on a common scale. Within a step, its sector
    # says for each axis which part of the step's size is enough. Sizes of a sector rise from step to step.
    axes = [len(of_axis) for of_axis in edges]
    most = max(axes)
    levels = np.indices(axes)
    step_of = np.maximum.reduce([levels[axis] * most // length for axis, length in enumerate(axes)]) + 1
    parts = []
    for axis, length in enumerate(axes):
        decides = levels[axis] * most // length + 1 == step_of
        parts.append(np.where(decides, sectors, levels[axis] * sectors * most // (step_of * length) + 1))
    code = np.zeros_like(step_of)
    for part_of in parts:
        code = code * (sectors + 1) + part_of
    code = code * (most + 1) + (most - step_of)  # sectors one after the other, the largest step first
    codes, at, cell_of = np.unique(code, return_index=True, return_inverse=True)
    needed = [-(-part_of * step_of * length // (sectors * most)) for part_of, length in zip(parts, axes, strict=True)]
    sizes = np.column_stack([of_axis[n.reshape(-1)[at] - 1] for of_axis, n in zip(edges, needed, strict=True)])
    chains = np.split(np.arange(len(codes)), np.flatnonzero(np.diff(codes // (most + 1))) + 1)
    known = not hidden
    shares, together = np.ones(()), np.ones(axes)
    for axis, (of_axis, bend) in enumerate(zip(edges, bends, strict=True)):
        parts_below = (of_axis / of_axis[-1]) ** (1 / bend)
        shares = np.multiply.outer(shares, np.diff(parts_below, prepend=0))
        together = np.minimum(together, parts_below[levels[axis]])
    if space.usual:  # half of the records have quantities that rise together, half independent ones
        for axis in range(len(edges)):
            together = np.diff(together, prepend=0, axis=axis)
        shares = (shares + together) / 2
    usual = np.bincount(cell_of.reshape(-1), weights=shares.reshape(-1)) * num_records
    layouts, lengths = [], [len(chain) for chain in chains]
    for tube, law in _laws(lengths, scale, hidden):
        margins = tuple(margins_of(lengths, law, risk, rough=True))
        made = Layout(tuple(edges), cell_of.reshape(axes), sizes, tuple(chains), margins, law, tube)
        # Noise also raises the tails that decide how many trucks there are: by up to about a third of their margins.
        likely = [made, replace(made, margins=tuple(margin + margin // 3 for margin in margins))]
        costs = [_cost(space, sizes, layout.slots(usual, num_records if known else None)) for layout in likely]
        layouts.append(replace(made, cost=sum(costs) / 2))
    return min(layouts, key=lambda layout: layout.cost)
