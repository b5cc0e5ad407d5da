# SPDX-License-Identifier: Apache-2.0
"""SampledLattice: release the k-anonymous part of a secret sample, at levels chosen with noise.

Algorithm 1 of Li, Erkin and Lagendijk 2022, with a corrected score and sample for the choice, so that the guarantee is
one of differential privacy. ``docs/proofs/sampled-lattice.md`` has the proofs, and says what the published form lacks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import PlainValidator, model_validator

from dunnage.arrays import BoolArray, FloatArray, IntArray
from dunnage.errors import ParameterError
from dunnage.exact import bounded_text, plain, shown_number
from dunnage.mechanisms.base import (
    Flag,
    Foresight,
    Number,
    OptionalConfidence,
    OptionalEpsilon,
    OptionalNumber,
    Outcome,
)
from dunnage.mechanisms.classes import (
    SUPPRESSED,
    ClassRelease,
    EquivalenceClasses,
    class_table,
    released_column,
    row_columns,
)
from dunnage.mechanisms.full_domain import Node, Records, generalised_at, hierarchies_of
from dunnage.mechanisms.noisy import (
    Given,
    cut_cells,
    foresee_intervals,
    lists_of,
    noisy_domains,
    refuse_sensitive,
    same_noise,
    stated_noise,
)
from dunnage.model.certificate import RowMeasures
from dunnage.model.guarantees import (
    CHECKED_FILE,
    EPSILON_PER_RECORD,
    FRESH_SAMPLE,
    PUBLIC_DOMAIN,
    SECRET_SAMPLE,
    SYSTEM_ENTROPY,
    Basis,
    Loss,
    Neighbours,
    Promise,
    SampledDP,
)
from dunnage.model.hierarchies import Hierarchy
from dunnage.model.laws import Cells
from dunnage.model.measures import class_sizes, size_figures
from dunnage.model.schema import Role, Schema
from dunnage.noise import arrays as noise_arrays
from dunnage.noise.sampling import (
    LARGE_DELTA,
    exact_delta,
    published_choice_delta,
    sampling_beta,
    sampling_delta,
    sampling_epsilon,
    smallest_k,
)
from dunnage.noise.source import Noise
from dunnage.release.kinds import floats, require

if TYPE_CHECKING:
    from dunnage.release import Release
    from dunnage.tables.dataset import Dataset

MAX_NODES = 2**15  # nodes of a lattice: the choice needs the score of every node
_MIN_DELTA = Fraction(1, 10**300)
_MAX_NODES_SHOWN = 10
_FORMS = "k, beta and epsilon_choice, or epsilon, delta and epsilon_choice"
_NUMERICS = (
    "samples, choice and order of rows are exact, from system entropy; scores are fractions; epsilon and delta are "
    "rounded up"
)
_WHY_POOL = (
    "the statement holds for this release alone. This secret sample decides which records go into the pool of the next "
    "release, so the samples of successive releases depend on each other, and it is not proved that losses add up"
)
_WHY_NOISY = (
    "the records left out are released with noisy values, so the number of all rows is the number of all records, and "
    "a row shows whether its record was sampled and kept: the sample is no longer secret"
)
_WHY_PUBLISHED = (
    "its sensitivity k/|D| depends on the size of the secret sample, and the node is chosen on the released sample, "
    "which makes a revealing class likelier than delta allows. What holds follows from scores between 0 and 1, "
    "whatever the data"
)


@dataclass(frozen=True)
class _CountRule:
    """Choose by counts, on a separate sample: weights of exp(epsilon_1 u / 2k), u = count kept x precision."""

    k: int
    beta: Fraction
    epsilon_choice: Fraction
    accounting: str

    def sample(self, released: BoolArray, draw: Callable[[], BoolArray]) -> BoolArray:
        return draw()

    def scores(self, utility: Sequence[int], unit: Fraction, num_sampled: int) -> list[Fraction]:
        """Return the logarithm of each node's weight; utility is count kept x precision, in a unit."""
        factor = self.epsilon_choice * unit / (2 * self.k)
        return [factor * value for value in utility]

    def epsilon(self, least: Fraction) -> Fraction:
        """Return the cost of sample and choice together; ``least`` is the cost of the sample alone."""
        return least + self.epsilon_choice

    def delta(self) -> Fraction:
        return (exact_delta if self.accounting == "exact" else sampling_delta)(self.k, self.beta)

    def claim(self) -> str:
        return ""


class _PublishedRule(_CountRule):
    """Choose by shares, on the released sample: weights of exp(epsilon' u / |D|), u / |D| between 0 and 1."""

    def sample(self, released: BoolArray, draw: Callable[[], BoolArray]) -> BoolArray:
        return released

    def scores(self, utility: Sequence[int], unit: Fraction, num_sampled: int) -> list[Fraction]:
        factor = self.epsilon_choice * unit / max(num_sampled, 1)
        return [factor * value for value in utility]

    def epsilon(self, least: Fraction) -> Fraction:
        return least + 2 * self.epsilon_choice

    def delta(self) -> Fraction:
        return published_choice_delta(self.k, self.beta, self.epsilon_choice)

    def claim(self) -> str:
        delta = sampling_delta(self.k, self.beta, as_published=True)
        return (
            f"epsilon = -ln(1 - beta) + 2 epsilon' k / |D|, where epsilon' = {shown_number(self.epsilon_choice)} and "
            f"|D| is the size of the secret sample, and delta {bounded_text(delta, up=True)} "
            "(Li, Erkin, Lagendijk 2022, eqs. 13, 14, 18 and 20)"
        )


class SampledLattice(ClassRelease):
    """Release records of a secret sample at one level per attribute, chosen with noise, at least k to a combination.

    Give ``k`` and ``beta``, or ``epsilon`` and ``delta``: then the rate of the sample is
    1 - e^-(epsilon - epsilon_choice), and k the smallest one that meets delta.

    Parameters
    ----------
    epsilon_choice
        Privacy loss of the choice of levels.
    k, beta
        Smallest number of records that must look alike in the sample, and the probability that a record is sampled.
    epsilon, delta
        Privacy loss of the whole release.
    left_out
        What happens to records that are not sampled or are suppressed: ``drop``; ``pool``, a file for the next release;
        or ``noisy``, released with noise. The last two are claimed, not proved.
    accounting
        How delta is computed: ``exact``, the smallest that holds for this mechanism, or ``theorem``, the larger bound
        of the theorem, which releases before version 0.2 and published forms state.
    left_out_epsilon
        For ``noisy``: epsilon of their noise, which the columns share.
    confidence
        For ``noisy``: the confidence of their intervals; 0.9 by default.
    left_out_borders
        For ``noisy``: public borders, as of ``noisy-clusters``. Noise then stays within the cluster of a value, and
        which cluster that is becomes public.
    suppression_weight
        How much it counts that records are kept at all, from 0 (the default: kept records count as much as they are
        precise) to below 1: a kept record then counts at least so much, however coarse it is.
    as_published
        Choose as Li et al. 2022 do: ``epsilon_choice`` is then their epsilon', and the guarantee is only claimed.

    Guarantee
    ---------
    (epsilon, delta)-differential privacy under sampling, between datasets that differ by one record, proved, with
    epsilon = -ln(1 - beta) + epsilon_choice and the exact delta of a release at levels chosen on a sample of its own.

    Assumptions
    -----------
    Public domains and hierarchies; a secret sample, new for each release; one record per protected unit.

    Runtime
    -------
    There are two samples: one to choose the levels, one to release. The choice visits every node of the lattice once,
    in as many steps as a node below it has classes.

    Utility
    -------
    Precision is 1 less the mean of level / top level. A node is e^(epsilon_1 d / 2k) times as likely as another if its
    count kept x (w + (1 - w) precision) is larger by d, w the suppression weight.

    References
    ----------
    Li, Erkin, Lagendijk 2022, algorithm 1; Li, Qardaji, Su 2012, theorem 1.
    """

    name = "sampled-lattice"
    fast = True
    class_bounds = "level"
    seeded = "the sample and the choice came from a seed that others may know"
    k: Annotated[int | None, PlainValidator(lambda k: k)] = None  # checked together with beta
    beta: OptionalNumber = None
    epsilon_choice: Number
    epsilon: OptionalNumber = None
    delta: OptionalNumber = None
    left_out_epsilon: OptionalEpsilon = None
    confidence: OptionalConfidence = None
    left_out_borders: Given = None
    suppression_weight: Number = Fraction(0)
    left_out: Literal["drop", "pool", "noisy"] = "drop"
    accounting: Literal["exact", "theorem"] = "exact"
    as_published: Flag = False

    @model_validator(mode="before")
    @classmethod
    def _usual(cls, given: Mapping[str, object]) -> Mapping[str, object]:
        usual = {"accounting": "theorem"} if given.get("as_published") is True else {}  # exact needs a second sample
        noisy = given.get("left_out") == "noisy" and given.get("confidence") is None
        return {**usual, **given, **({"confidence": Fraction(9, 10)} if noisy else {})}

    @model_validator(mode="after")
    def _check(self) -> Self:
        # Exactly one of the two forms must be there, and complete.
        given = [name for name in ("k", "beta", "epsilon", "delta") if getattr(self, name) is not None]
        if given not in (["k", "beta"], ["epsilon", "delta"]):
            raise ParameterError(
                f"sampled-lattice takes {_FORMS}. Got {', '.join([*given, 'epsilon_choice'])}. Give one of the two."
            )
        if self.as_published and self.epsilon is not None:
            raise ParameterError(
                "as published, epsilon depends on the size of the secret sample, so you cannot choose it. Give k, beta "
                "and epsilon_choice, which is the paper's epsilon'."
            )
        if self.as_published and self.accounting == "exact":
            raise ParameterError("as published, levels depend on the released sample. Leave accounting out.")
        if self.epsilon is not None and self.epsilon <= self.epsilon_choice:
            raise ParameterError(
                f"epsilon_choice is a part of epsilon. Got {shown_number(self.epsilon_choice)} of "
                f"{shown_number(self.epsilon)}, which leaves nothing for the sample. Lower it, or raise epsilon."
            )
        if self.left_out != "noisy":
            for name in ("left_out_epsilon", "confidence", "left_out_borders"):
                if getattr(self, name) is not None:
                    raise ParameterError(
                        f'{name} is only for left_out = "noisy". Got it with {self.left_out!r}. Remove it.'
                    )
        elif self.left_out_epsilon is None:
            raise ParameterError('left_out = "noisy" needs left_out_epsilon, the epsilon of the noise.')
        if not 0 < self.epsilon_choice <= 700:
            raise ParameterError(
                f"epsilon_choice must be above 0 and at most 700. Got {shown_number(self.epsilon_choice)}. "
                "Use a part of epsilon, for example 0.5."
            )
        if not 0 <= self.suppression_weight < 1 or (self.as_published and self.suppression_weight):
            raise ParameterError(
                f"suppression_weight must be at least 0 and below 1, and is not for published forms. "
                f"Got {shown_number(self.suppression_weight)}. Try 0.5."
            )
        self._rule.delta()  # refuses an invalid k, rate or delta
        return self

    def describe(self) -> dict[str, object]:
        description = super().describe() | {"k": self.least, "beta": plain(self.rate)}
        if self.accounting == "theorem":  # as in certificates before version 0.2
            del description["accounting"]
        for name in ("left_out_borders", "suppression_weight"):
            if not description[name]:
                del description[name]
        return description

    @classmethod
    def _given(cls, description: Mapping[str, object]) -> dict[str, object]:
        follow = ("k", "beta") if description.get("epsilon") is not None else ()
        given = {name: value for name, value in super()._given(description).items() if name not in follow}
        return {"accounting": "theorem", **given}

    def notes(self) -> tuple[str, ...]:
        form = "as-published" if self.as_published else "guarantee"
        left_out = () if self.left_out == "drop" else ("sampled-lattice.md#records-that-are-left-out",)
        return (f"sampled-lattice.md#{form}", *left_out)

    @property
    def pools(self) -> bool:
        return self.left_out == "pool"

    @cached_property
    def rate(self) -> Fraction:
        """The probability that a record is sampled: beta, or the largest that epsilon allows."""
        if self.epsilon is not None:
            return sampling_beta(self.epsilon - self.epsilon_choice)
        assert self.beta is not None  # one of the two forms is complete
        return self.beta

    @cached_property
    def least(self) -> int:
        """Smallest number of records that must look alike: k, or the smallest that meets delta."""
        if self.delta is not None:
            return smallest_k(self.rate, self.delta, by_theorem=self.accounting == "theorem")
        assert self.k is not None  # one of the two forms is complete
        return self.k

    @cached_property
    def _rule(self) -> _CountRule:
        rule = _PublishedRule if self.as_published else _CountRule
        return rule(self.least, self.rate, self.epsilon_choice, self.accounting)

    def promise(self, schema: Schema) -> Promise:
        self._check_schema(schema)
        epsilon = self._rule.epsilon(sampling_epsilon(self.rate)) if self.epsilon is None else self.epsilon
        guarantee = SampledDP(
            epsilon=epsilon,
            delta=max(self._rule.delta(), _MIN_DELTA),
            beta=self.rate,
            protects=schema.protects,
            neighbours=Neighbours.ADD_REMOVE,
        )
        warning = f"delta {bounded_text(guarantee.delta, up=True)}: with this probability nothing is promised"
        names = ", ".join(attribute.name for attribute in schema.quasi_identifiers)
        counts = "the number of released records, the number of classes, the size of each class"
        if self.left_out != "noisy":
            counts += "; not the numbers of all records, of sampled records and of suppressed records"
        in_clear = [
            counts,
            f"the generalisation of each released record in the public hierarchies of {names}, at one level for each; "
            "the level is chosen with noise (level 0 is the value itself)",
        ]
        in_clear += schema.clear_columns(Role.PUBLIC, " of released records")
        if self.left_out == "noisy":
            in_clear.append(
                "the number of all records, and which rows belong to records that were not sampled or were suppressed, "
                f"with noisy values of {names}"
            )
            in_clear += ["for these rows, between which public borders each value is"] if self.left_out_borders else []
        claim = self._rule.claim()
        # Why the published choice, or the use of the records left out, is not proved
        why = [_WHY_PUBLISHED] if claim else []
        why += [_WHY_POOL] if self.left_out == "pool" else [_WHY_NOISY] if self.left_out == "noisy" else []
        return Promise(
            guarantee=guarantee,
            basis=Basis.CLAIMED if why else Basis.PROVED,
            mechanism=self.describe(),
            assumptions=(PUBLIC_DOMAIN, CHECKED_FILE, SECRET_SAMPLE, FRESH_SAMPLE, EPSILON_PER_RECORD, SYSTEM_ENTROPY),
            in_clear=(*in_clear, *(a.exception for a in schema if a.exception)),
            numerics=_NUMERICS,
            claim=claim,
            holds=guarantee if why and self.left_out != "noisy" else None,
            why="; ".join(why),
            warnings=(warning,) if guarantee.delta >= LARGE_DELTA else (),
            notes=self.notes(),
        )

    def draw(self, dataset: Dataset, prepared: None, noise: Noise) -> Outcome:
        # There is always a release, whatever the data; it may have no rows.
        lattice = _Lattice.of(dataset, self._check_schema(dataset.schema))
        sampled = noise_arrays.bernoulli(noise, self.rate, len(dataset))
        # The rule decides on which sample the node is chosen.
        examined = self._rule.sample(sampled, lambda: noise_arrays.bernoulli(noise, self.rate, len(sampled)))
        kept = lattice.records.only(examined).kept_counts(self.least)
        scores = lattice.scores(self._rule, kept, int(examined.sum()), self.suppression_weight)
        node = lattice.node(noise.exponential_choice(scores))
        classes = lattice.classes(sampled, node, self.least)
        summary = class_table(dataset, classes, "bounds")
        rows = np.flatnonzero(classes.of_row >= 0)
        data = pa.table({"row": np.arange(len(rows)), **row_columns(dataset, summary, rows, classes.of_row[rows])})
        num_sampled, num_kept = int(sampled.sum()), len(rows)
        # No figure depends on a record that was left out.
        sizes = class_sizes(classes.of_row[rows])
        loss = classes.loss_measures(num_kept) if num_kept else None
        measures = RowMeasures(**size_figures(sizes, self.least), levels=classes.level_of, loss=loss)
        if cells := self._cells(dataset.schema):  # the rows left out are released with noise
            left_out = np.flatnonzero(classes.of_row < 0)
            # left out : row, class_id -1, public columns, intervals around noisy values
            columns: dict[str, object] = {"row": left_out, "class_id": np.full(len(left_out), -1, dtype=np.int64)}
            for attribute in dataset.schema.public:
                columns[attribute.name] = released_column(dataset, attribute.name).take(pa.array(left_out))
            for name, of_column in cells.items():
                lower, upper = of_column.interval(of_column.perturb(dataset.numbers(name)[left_out], noise))
                columns |= {f"{name}_lower": lower, f"{name}_upper": upper}
            data = pa.concat_tables([data, pa.table(columns).cast(data.schema)])
            rows = np.concatenate([rows, left_out])
            measures = measures.model_copy(update={"noise": stated_noise(cells)})
        place = ", kept in the pool" if self.pools else ""
        not_released = {f"not sampled{place}": np.flatnonzero(~sampled)}
        not_released[f"{SUPPRESSED}{place}"] = np.flatnonzero(sampled & (classes.of_row < 0))
        order = noise_arrays.permutation(noise, len(rows))
        data = data.take(pa.array(order)).set_column(0, "row", pa.array(np.arange(len(rows), dtype=np.int64)))
        return Outcome(
            data=data,
            measures=measures,
            rows=rows[order],
            class_id=classes.of_row[rows[order]],
            classes=summary,
            facts={"unsampled": len(dataset) - num_sampled, "suppressed": num_sampled - num_kept},
            left_out=not_released if not cells else {},
        )

    def recount(self, release: Release, schema: Schema) -> Iterator[str]:
        """Recount sizes and losses. Records that the sample left out may appear only with noise, if at all."""
        yield from super().recount(release, schema)
        noisy = release.data.filter(pc.less(release.data.column("class_id"), 0))
        consistent = (self.left_out == "noisy") == release.noisy
        require(consistent, "certificate.json: it states noise on records that are not released")
        require(bool((noisy.column("class_id").to_numpy() == -1).all()), "data: a class_id is below -1")
        cells = self._cells(schema) or {}
        follows = not cells or same_noise(cells, release.certificate.rows)
        require(follows, "certificate.json: the noise does not follow from the mechanism")
        for name, of_column in cells.items():
            lower, upper = floats(noisy, f"{name}_lower"), floats(noisy, f"{name}_upper")
            fits = _are_around_values(of_column, lower, upper)
            require(fits, f"data: intervals of {name} do not follow from its noise")
        guarantee = release.certificate.guarantee
        if isinstance(guarantee, SampledDP):
            losses = str(Loss(guarantee.epsilon, guarantee.delta)).replace(", delta", " and delta")
            yield f"{losses} follow from k and beta"

    def preview(self, dataset: Dataset) -> Foresight:
        # Probabilities are those of a choice on all rows, without a sample.
        lattice, num = _Lattice.of(dataset, self._check_schema(dataset.schema)), len(dataset)
        kept = lattice.records.kept_counts(self.least)
        scores = np.array([float(score) for score in lattice.scores(self._rule, kept, num, self.suppression_weight)])
        weights = np.exp(scores - scores.max())
        probability = weights / weights.sum()
        nodes, lines, names = [], [], [column.name for column in lattice.records.columns]
        for number in np.argsort(-probability, kind="stable")[:_MAX_NODES_SHOWN]:  # among equals, lower levels first
            levels = dict(zip(names, lattice.node(int(number)), strict=True))
            would_keep, chance = int(kept.flat[number]), float(probability[number])
            share = would_keep / max(num, 1)
            nodes.append({"levels": levels, "kept": would_keep, "share": share, "probability": chance})
            named = ", ".join(f"{name} {level}" for name, level in levels.items())
            lines.append(
                f"levels {named}: chosen with probability {100 * chance:.3g} %; these would keep {would_keep} of {num} "
                f"records ({100 * share:.0f} %) if all records were sampled"
            )
        cells = self._cells(dataset.schema)
        noisy = foresee_intervals(cells) if cells else Foresight()
        details = {"records": num, "delta": float(self._rule.delta()), "nodes": nodes, **noisy.details}
        warnings = (*self.warnings(dataset), *noisy.warnings)
        return Foresight(warnings=warnings, lines=(*lines, *noisy.lines), details=details)

    def warnings(self, dataset: Dataset) -> tuple[str, ...]:
        delta, num_records, warnings = self._rule.delta(), len(dataset), []
        if delta * num_records >= 1:
            warnings.append(
                f"delta {bounded_text(delta, up=True)} is at least 1/n for these {num_records} records, so a record "
                "may be revealed outright. Raise k, sample less, or choose a smaller delta."
            )
        if self.least > num_records:
            warnings.append(f"k = {self.least} exceeds the {num_records} records: everything will be suppressed.")
        elif self.least > self.rate * num_records:
            warnings.append(
                f"the sample will have about {float(self.rate * num_records):.0f} of {num_records} records, fewer than "
                f"k = {self.least}: most likely everything will be suppressed."
            )
        return tuple(warnings)

    def _check_schema(self, schema: Schema) -> dict[str, Hierarchy]:
        """Return the hierarchy of each quasi-identifier; refuse a schema that does not fit."""
        refuse_sensitive(schema, self.name, '"quasi-identifier", "drop", or "public" to make it part of the class')
        if self.left_out == "noisy":
            self._cells(schema)
        return hierarchies_of(schema, mechanism=self.name, verb="chooses among", max_nodes=MAX_NODES)

    def _cells(self, schema: Schema) -> dict[str, Cells]:
        """Return the noise of the records left out; empty unless they are released with noise."""
        if self.left_out_epsilon is None or self.confidence is None:
            return {}
        domains = noisy_domains(schema, f'{self.name} with left_out = "noisy"')
        borders = lists_of("left_out_borders", self.left_out_borders, domains)
        return cut_cells(domains, borders, law="laplace", epsilon=self.left_out_epsilon, confidence=self.confidence)


@dataclass(frozen=True, eq=False, repr=False)
class _Lattice:
    """All rows of a dataset, encoded for every node. Private."""

    records: Records
    precision: IntArray  # for every node 1 less the mean of level / top level, in units of 1 / denominator
    denominator: int

    @classmethod
    def of(cls, dataset: Dataset, hierarchies: Mapping[str, Hierarchy]) -> _Lattice:
        records = Records.of_dataset(dataset, hierarchies)
        # The precision of every node in whole units; a single level loses nothing.
        num_levels = [hierarchy.num_levels for hierarchy in hierarchies.values()]
        tops = [max(num - 1, 1) for num in num_levels]
        common = math.lcm(*tops)
        lost = np.zeros((), dtype=np.int64)
        for num, top in zip(num_levels, tops, strict=True):
            lost = np.add.outer(lost, np.arange(num, dtype=np.int64) * (common // top))
        return cls(records, common * len(tops) - lost, common * len(tops))

    def node(self, number: int) -> Node:
        return tuple(int(level) for level in np.unravel_index(number, self.precision.shape))

    def scores(self, rule: _CountRule, kept: IntArray, num_sampled: int, weight: Fraction) -> list[Fraction]:
        # A kept record counts weight + (1 - weight) precision, at most 1, so one record changes utility by at most k.
        most, part = weight.denominator, weight.numerator
        worth = [part * self.denominator + (most - part) * own for own in self.precision.ravel().tolist()]
        utility = [int(num) * own for num, own in zip(kept.ravel().tolist(), worth, strict=True)]
        return rule.scores(utility, Fraction(1, most * self.denominator), num_sampled)

    def classes(self, sampled: BoolArray, node: Node, k: int) -> EquivalenceClasses:
        records = self.records.only(sampled)
        of_record = records.classes(node, k)
        of_row = np.where(sampled, of_record[records.of_row], -1)
        generalised, lost = generalised_at(node, records, of_record)
        return EquivalenceClasses(
            of_row=of_row,
            generalised=generalised,
            losses=tuple(float(loss) for loss in lost),
            importance=(1.0,) * len(node),
            levels=node,
        )


def _are_around_values(cells: Cells, lower: FloatArray, upper: FloatArray) -> bool:
    """Return whether each interval is the one around some value."""
    if not (cells.domain.contains(lower) & cells.domain.contains(upper)).all():
        return False
    # The value is one radius of its cluster from an end, or in the middle if both ends are those of the cluster.
    places = [cells.steps((lower + upper) / 2)]
    for radius in {cell.law.radius for cell in cells.cells}:
        places += [cells.steps(lower) + radius, cells.steps(upper) - radius - 1]
    around = np.zeros(len(lower), dtype=bool)
    for steps in places:
        low, high = cells.interval(cells.domain.grid_values(np.clip(steps, 0, cells.domain.num_steps)))
        around |= (low == lower) & (high == upper)
    return bool(around.all())
