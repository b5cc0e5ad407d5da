# SPDX-License-Identifier: Apache-2.0
"""Noisy values: every number of every record with noise, in the whole public domain or within a cluster of it.

``docs/proofs/noisy-values.md`` and ``docs/proofs/noisy-clusters.md`` have the proofs, and say why the published form
has none; it is here to be reproduced and compared.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import numpy as np
import pyarrow as pa
from pydantic import PlainSerializer, ValidationInfo, model_validator

from dunnage.arrays import BoolArray, FloatArray, IntArray
from dunnage.errors import ParameterError, Problem, Refusal
from dunnage.exact import decimal_text, exact, plain, shown, shown_number
from dunnage.mechanisms.base import (
    Confidence,
    Epsilon,
    Flag,
    Foresight,
    MadeRows,
    Mechanism,
    Number,
    Outcome,
    Progress,
    amount,
    optional,
)
from dunnage.mechanisms.classes import released_column
from dunnage.model.certificate import NoiseCell, RowMeasures, StatedConfidence
from dunnage.model.domains import Numeric, PointGrid
from dunnage.model.guarantees import (
    CHECKED_FILE,
    EPSILON_PER_RECORD,
    PUBLIC_BORDERS,
    PUBLIC_COLUMNS,
    PUBLIC_COUNT,
    PUBLIC_DOMAIN,
    SHOWN_CLUSTERS,
    SYSTEM_ENTROPY,
    Assumption,
    Basis,
    Guarantee,
    Neighbours,
    Promise,
    PureDP,
    WithinCluster,
    WithinPublishedBorders,
)
from dunnage.model.laws import Cells, cut_text, exp_bounds
from dunnage.model.schema import Role, Schema
from dunnage.noise import arrays as noise_arrays
from dunnage.noise.source import Noise
from dunnage.release.kinds import floats, generalised, require, same
from dunnage.release.kinds.rows import EachRow, check_each
from dunnage.text import percent_at_most

if TYPE_CHECKING:
    from dunnage.release import Release
    from dunnage.tables.dataset import Dataset

NUMERICS = (
    "the noise is exact, in whole steps of the public grid, from system entropy, and clamped afterwards; released "
    "numbers are the doubles of grid points and of points halfway between them; radii and coverage are rounded to the "
    "safe side"
)
Law = Literal["laplace", "piecewise"]
_WIDE_SHARE = Fraction(1, 2)  # an interval that spans this share of its range says little


@dataclass(frozen=True, eq=False, repr=False)
class NoisyColumns:
    """Noisy columns, one value per record in the order of the dataset, and what the certificate says about them."""

    columns: Mapping[str, tuple[FloatArray, FloatArray, FloatArray]]  # noisy values, lower and upper ends of intervals
    measures: RowMeasures  # public figures

    @classmethod
    def of(cls, cells: Mapping[str, Cells], dataset: Dataset, noise: Noise) -> NoisyColumns:
        columns = {}
        for name, of_column in cells.items():
            noisy = of_column.perturb(dataset.numbers(name), noise)
            columns[name] = (noisy, *of_column.interval(noisy))
        return cls(columns, RowMeasures(records=len(dataset), noise=stated_noise(cells)))

    def released(self, dataset: Dataset, order: IntArray) -> dict[str, object]:
        # data : public columns, then per attribute the noisy value and its interval
        columns: dict[str, object] = {}
        for attribute in dataset.schema.public:
            columns[attribute.name] = released_column(dataset, attribute.name).take(pa.array(order))
        for name, (values, lower, upper) in self.columns.items():
            columns.update({name: values[order], f"{name}_lower": lower[order], f"{name}_upper": upper[order]})
        return columns


def stated_noise(cells: Mapping[str, Cells]) -> dict[str, list[NoiseCell]]:
    return {name: [NoiseCell(**cell) for cell in of_column.describe()] for name, of_column in cells.items()}


@dataclass(frozen=True, eq=False, repr=False)
class NoisyRows:
    """Release rows with noise where they live."""

    cells: Mapping[str, Cells]

    def make(self, dataset: Dataset, noise: Noise) -> MadeRows:
        rows = np.arange(len(dataset))
        return MadeRows(rows, NoisyColumns.of(self.cells, dataset, noise).released(dataset, rows), {})


def _ends_of(name: str) -> tuple[str, str]:
    return f"{name}_lower", f"{name}_upper"


@dataclass(frozen=True)
class EachLaw(EachRow):
    """Intervals follow from the law of the noise."""

    cells: Cells | None = None

    def holds(self, rows: pa.Table) -> bool:
        assert self.cells is not None
        value, *ends = (floats(rows, name) for name in self.columns)
        return all(map(np.array_equal, self.cells.interval(value), ends))


class RowFold:
    """What needs the rows only when they are released."""

    def start(self) -> None: ...

    def add(self, state: None, dataset: Dataset) -> None: ...

    def merge(self, state: None, other: None) -> None: ...

    def dump(self, state: None) -> bytes:
        return b""

    def load(self, data: bytes) -> None: ...

    def result(self, state: None) -> bool:
        return True


class NoisyMechanism(Mechanism):
    kind = "noisy"
    confidence: Confidence = Fraction(9, 10)

    @abc.abstractmethod
    def perturb(self, dataset: Dataset, prepared: Any, noise: Noise) -> NoisyColumns:
        """Return the noisy columns, in the order of the dataset."""

    def draw(self, dataset: Dataset, prepared: Any, noise: Noise) -> Outcome:
        noisy = self.perturb(dataset, prepared, noise)
        order = noise_arrays.permutation(noise, len(dataset))
        data = pa.table({"row": np.arange(len(order)), **noisy.released(dataset, order)})
        return Outcome(data=data, measures=noisy.measures, rows=order)

    @abc.abstractmethod
    def stated_cells(self, release: Release, schema: Schema) -> dict[str, Cells] | None:
        """Return the laws of the noise in a release, by attribute; None if the release does not state them."""

    def recount(self, release: Release, schema: Schema) -> Iterator[str]:
        measures, cells = release.certificate.rows, self.stated_cells(release, schema)
        stated = {"records", "published_intervals"} if cells is None else {"records", "noise"}
        stated |= {"borders"} if measures.borders else set()
        fits = measures.model_fields_set == stated
        require(fits, "certificate.json: it has figures that do not belong to such noise")
        if cells is None:
            stated_ends = {name: {"confidence": plain(self.confidence)} for name in generalised(release)}
            sure = same(stated_ends, measures.plain()["published_intervals"])
            require(sure, "certificate.json: the stated confidence is not that of the mechanism")
            for name in generalised(release) if not self.confidence else ():
                value, *ends = (floats(release.data, f"{name}{end}") for end in ("", "_lower", "_upper"))
                alone = all(np.array_equal(value, end) for end in ends)
                require(alone, f"data: an interval of {name} misses its value or leaves the public domain")
            yield "every noisy value and interval lies in the public domain; the release does not state the noise"
            return
        require(same_noise(cells, measures), "certificate.json: the noise does not follow from the mechanism")
        failure = "data: intervals of {} do not follow from its noise"
        check_each(release, [EachLaw(name, failure.format(name), _ends_of(name), cells[name]) for name in cells])
        yield "every noisy value is on its public grid; intervals follow from the laws of the noise, these from epsilon"

    def noisy_promise(
        self,
        guarantee: Guarantee,
        schema: Schema,
        *,
        in_clear: Sequence[str] = (),
        assumptions: Sequence[Assumption] = (),
    ) -> Promise:
        known_columns = (PUBLIC_COLUMNS,) if schema.public else ()
        unchanged = schema.clear_columns(Role.PUBLIC)
        unchanged += [attribute.exception for attribute in schema if attribute.exception]
        return Promise(
            guarantee=guarantee,
            basis=Basis.PROVED,
            mechanism=self.describe(),
            assumptions=(
                PUBLIC_DOMAIN,
                CHECKED_FILE,
                PUBLIC_COUNT,
                *known_columns,
                *assumptions,
                EPSILON_PER_RECORD,
                SYSTEM_ENTROPY,
            ),
            in_clear=("the number of records", *in_clear, *unchanged),
            numerics=NUMERICS,
            notes=self.notes(),
        )


def same_noise(cells: Mapping[str, Cells], measures: RowMeasures) -> bool:
    return same({name: of_column.describe() for name, of_column in cells.items()}, measures.plain().get("noise"))


def refuse_sensitive(schema: Schema, mechanism: str, roles: str) -> None:
    if schema.sensitive:
        names = ", ".join(attribute.name for attribute in schema.sensitive)
        raise ParameterError(
            f"{mechanism} is differentially private, but it would release the sensitive {names} unchanged. "
            f"Use another role: {roles}."
        )


def noisy_domains(schema: Schema, mechanism: str) -> dict[str, Numeric]:
    refuse_sensitive(schema, mechanism, '"quasi-identifier" for noise, "drop", or "public" if anyone may know it')
    if not schema.quasi_identifiers:
        raise ParameterError(
            f"{mechanism} adds noise to quasi-identifiers. The policy has none. Give that role to at least one column."
        )
    for attribute in schema.quasi_identifiers:
        if not isinstance(attribute.domain, Numeric):
            raise ParameterError(
                f"{mechanism} adds noise to numbers, but {attribute.name!r} is of kind {attribute.kind}. Give it the "
                'role "drop", or "public" if anyone may know it, or choose sampled-lattice.'
            )
        if attribute.domain.resolution is None:
            raise ParameterError(
                f"{mechanism} adds noise on a public grid, but {attribute.name!r} has none. Add a resolution, for "
                "example resolution = 0.1."
            )
    return {attribute.name: attribute.numeric for attribute in schema.quasi_identifiers}


def cut_cells(
    domains: Mapping[str, Numeric],
    borders: Mapping[str, Sequence[Fraction]],
    *,
    law: str,
    epsilon: Fraction,
    confidence: Fraction,
) -> dict[str, Cells]:
    """Cut each domain at its borders, if any. All columns share epsilon evenly."""
    share = epsilon / len(domains)
    cells = {}
    for name, domain in domains.items():
        try:
            cells[name] = Cells.cut(domain, borders.get(name, ()), law=law, epsilon=share, confidence=confidence)
        except ParameterError as error:
            raise ParameterError(f"attribute {name!r}: {error}") from None
    return cells


def foresee_intervals(cells: Mapping[str, Cells]) -> Foresight:
    """Compare the width of intervals with the ranges that hide the values: public facts."""
    lines, warnings = [], []
    for name, of_column in cells.items():
        domain, step = of_column.domain, of_column.domain.resolution or Fraction(0)
        hiding, num_wide = [cell for cell in of_column.cells if cell.law.last], 0
        for cell in of_column.cells:
            share = min(Fraction(1), Fraction(2 * cell.law.radius + 1, cell.law.last + 1))
            num_wide += cell.law.last > 0 and share >= _WIDE_SHARE
            first, last = decimal_text(domain.lower + cell.first * step), amount(domain.lower + cell.end * step, domain)
            if cell.law.last == 0:
                about = "a single point, released exactly"
            elif cell.law.radius < 0:
                about = "noisy values without intervals (confidence 0)"
            else:
                about = (
                    f"{amount(cell.law.radius * step + step / 2, domain)} to either side at "
                    f"{decimal_text(100 * cell.law.confidence)} % confidence, so the interval spans up to "
                    f"{percent_at_most(share, 2)} of the range"
                )
            lines.append(f"{name} from {first} to {last}: {about}")
        if num_wide:
            where = "its range" if len(hiding) == 1 else f"the range in {num_wide} of {len(hiding)} clusters"
            other = "" if hiding[0].law.name == "piecewise" else ', or try law = "piecewise"'
            if of_column.is_noise:
                says = "NOISE: most values are further off than the middle of the range would be. Raise epsilon"
            else:
                says = (
                    f"the interval spans at least half of {where}, so it says little. Raise epsilon or lower confidence"
                )
            warnings.append(f"{name}: {says}{other}.")
    details = {name: of_column.describe() for name, of_column in cells.items()}
    return Foresight(warnings=tuple(warnings), lines=tuple(lines), details={"noise": details})


class NoisyValues(NoisyMechanism):
    """Release a noisy value with an interval for each number of each record.

    Parameters
    ----------
    epsilon
        Privacy loss of one record, over all noisy columns together, which share it evenly.
    confidence
        Smallest probability that an interval contains the true value, whatever that is; 0 for no intervals.
    law
        ``laplace``: discrete Laplace noise, clamped to the domain; ``piecewise``: near the true value, or anywhere.

    Guarantee
    ---------
    Epsilon-differential privacy between datasets that differ in the values of one record, proved.

    Assumptions
    -----------
    Public domains and record count; public columns are known.

    Runtime
    -------
    O(n log n) for the order of rows, O(n) noise for each column.

    Utility
    -------
    Each interval contains the true value with at least the stated confidence, for every value of the domain, on the
    grid or off it.

    References
    ----------
    Holohan, Antonatos, Braghin, Mac Aonghusa 2017, by way of Li, Erkin, Lagendijk 2022, eqs. 21-23; Wang et al. 2019
    (piecewise mechanism). Both are discrete here.
    """

    name = "noisy-values"
    fast = True
    proof = ("noisy-values.md#the-laws",)
    epsilon: Epsilon
    confidence: Confidence = Fraction(9, 10)
    law: Law = "laplace"

    def promise(self, schema: Schema) -> Promise:
        self.cells(schema)
        guarantee = PureDP(epsilon=self.epsilon, protects=schema.protects, neighbours=Neighbours.REPLACE_ONE)
        return self.noisy_promise(guarantee, schema)

    def perturb(self, dataset: Dataset, prepared: None, noise: Noise) -> NoisyColumns:
        return NoisyColumns.of(self.cells(dataset.schema), dataset, noise)

    def preview(self, dataset: Dataset) -> Foresight:
        return foresee_intervals(self.cells(dataset.schema))

    def stated_cells(self, release: Release, schema: Schema) -> dict[str, Cells]:
        return self.cells(schema)

    def fold(self, schema: Schema, period: str | None) -> RowFold:
        return RowFold()

    def draw(self, dataset: Dataset, prepared: None, noise: Noise) -> Outcome:
        if not dataset.elsewhere:
            return super().draw(dataset, prepared, noise)
        cells = self.cells(dataset.schema)
        drawn = dataset.draw_rows(NoisyRows(cells), noise)
        return Outcome(
            data=drawn.data, measures=RowMeasures(records=len(dataset), noise=stated_noise(cells)), drawn=drawn
        )

    def cells(self, schema: Schema) -> dict[str, Cells]:
        """Return the law of each noisy column; refuse a column that cannot get noise."""
        domains = noisy_domains(schema, self.name)
        return cut_cells(domains, {}, law=self.law, epsilon=self.epsilon, confidence=self.confidence)


Numbers = tuple[Fraction, ...]
# Numbers by attribute; the name is "" if there is only one attribute, whatever its name
Table = tuple[tuple[str, Numbers], ...]
MAX_CANDIDATES = 1024  # possible places of a private border
_ONLY = ""
_USUAL_SHARE = Fraction(1, 4)
_UNSURE = Fraction(1, 10)


def _table_of(given: Any, info: ValidationInfo) -> Table:
    """Read a list of rising numbers, or a table of such lists, into an immutable, hashable form."""
    what = str(info.field_name)
    problem = f"{what} must be a list of numbers, or a table of attribute = list. Got {shown(given)}."
    if isinstance(given, str) or not isinstance(given, Sequence | Mapping) or not len(given) or _ONLY in given:
        raise ParameterError(f"{problem} Write {what} = [...] or [mechanism.{what}].")
    if isinstance(given, Mapping):
        pairs: Any = given.items()
    else:
        pairs = given if all(isinstance(item, tuple) for item in given) else ((_ONLY, given),)
    try:
        table = []
        for name, numbers in pairs:
            if isinstance(numbers, str):
                raise TypeError
            rising = tuple(exact(number, what=f"each of {what}") for number in numbers)
            if not rising or any(b <= a for a, b in pairwise(rising)):
                raise ParameterError(
                    f"{what} must be at least one number, in rising order. Got {shown(numbers)}. Sort them, each once."
                )
            table.append((str(name), rising))
        return tuple(sorted(table))
    except ParameterError:
        raise
    except (TypeError, ValueError):
        raise ParameterError(problem) from None


def _plain_table(table: Table | None) -> Any:
    if table is None:
        return None
    plain_lists = {name: [plain(number) for number in numbers] for name, numbers in table}
    return plain_lists.get(_ONLY, plain_lists)


def lists_of(what: str, table: Table | None, domains: Mapping[str, Numeric]) -> dict[str, Numbers]:
    """Return the list of each noisy column; a single list is that of the only one."""
    given, names = dict(table or ()), ", ".join(domains)
    if _ONLY in given:
        if len(domains) > 1:
            raise ParameterError(
                f"{what} is one list, but there are several noisy columns ({names}). Write [mechanism.{what}] with "
                "a list for each."
            )
        given = {next(iter(domains)): given[_ONLY]}
    if strange := sorted(given.keys() - domains.keys()):
        raise ParameterError(
            f"{what} names {', '.join(map(shown, strange))}, which gets no noise. Columns with noise: {names}."
        )
    return given


Given = Annotated[Table | None, optional(_table_of), PlainSerializer(_plain_table)]


class NoisyClusters(NoisyMechanism):
    """Release a noisy value with an interval for each number, within the cluster of the true value.

    Parameters
    ----------
    epsilon
        Privacy loss between values of one cluster, over all noisy columns together, which share it evenly.
    borders
        Public borders: a list for one noisy column, or a table of lists by attribute; a border is the first grid point
        of the cluster above it. An attribute that is not in the table is one cluster.
    quantiles
        Shares of the records, rising between 0 and 1, at which private borders are sampled, in the same form as
        borders. Give either borders or quantiles.
    confidence
        Smallest probability that an interval contains the true value, whatever that is; 0 for no intervals.
    law
        ``laplace``: discrete Laplace noise, clamped to the cluster; ``piecewise``: near the true value, or anywhere.
    border_share
        Share of epsilon for the private borders at quantiles.
    as_published
        Cut by rank at the quantiles and scale noise by the range of each cluster's own values, which keeps no epsilon.

    Guarantee
    ---------
    With ``borders``, epsilon between values of one cluster. With ``quantiles``, epsilon between values that the
    published borders do not separate. Both are proved, for datasets that differ in the values of one record. The
    published form is only claimed.

    Assumptions
    -----------
    Public domains and record count; public columns are known; the release shows the cluster of each value.

    Runtime
    -------
    O(n log n) for the order of rows, O(n) noise for each column; each private border has at most 1024 possible places.

    Utility
    -------
    Each interval contains the true value with at least the stated confidence, for every value of the domain, on the
    grid or off it.

    References
    ----------
    Li, Erkin, Lagendijk 2022, algorithm 2; He, Machanavajjhala, Ding 2014 (Blowfish: partitions as policies); Smith
    2011 (private quantiles by the exponential mechanism).
    """

    name = "noisy-clusters"
    epsilon: Epsilon
    borders: Given = None
    quantiles: Given = None
    confidence: Confidence = Fraction(9, 10)
    law: Law = "laplace"
    as_published: Flag = False
    border_share: Number = _USUAL_SHARE

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.borders is None) == (self.quantiles is None):
            got = "Got neither" if self.borders is None else "Got both"
            raise ParameterError(
                f"noisy-clusters needs borders (public) or quantiles (private borders; as published, the shares of "
                f"records up to each border). {got}. Examples: borders = [100, 250], quantiles = [0.25, 0.5, 0.75]."
            )
        if self.as_published and (self.quantiles is None or self.law != "laplace"):
            raise ParameterError(
                "as_published cuts at shares of the records and adds Laplace noise. Use quantiles, for example "
                'quantiles = [0.05, 0.35, 0.65, 0.95], and law = "laplace".'
            )
        if self.border_share != _USUAL_SHARE and (self.borders is not None or self.as_published):
            raise ParameterError("border_share is only for private borders at quantiles. Leave it out.")
        if not 0 < self.border_share < 1:
            raise ParameterError(
                f"border_share must be above 0 and below 1. Got {shown_number(self.border_share)}. Try 0.25."
            )
        for _, shares in self.quantiles or ():
            if not (shares[0] > 0 and shares[-1] < 1):
                raise ParameterError(
                    "quantiles must be above 0 and below 1. Got "
                    f"{', '.join(map(shown_number, shares))[:60]}. Try [0.25, 0.5, 0.75]."
                )
        return self

    def describe(self) -> dict[str, object]:
        described = super().describe()
        if self.quantiles is None or self.as_published:
            del described["border_share"]
            return described
        return described | {
            "epsilon_borders": plain(self.epsilon * self.border_share),
            "epsilon_values": plain(self.epsilon * (1 - self.border_share)),
        }

    def notes(self) -> tuple[str, ...]:
        form = "public-borders" if self.quantiles is None else "borders-drawn-privately"
        return (f"noisy-clusters.md#{'as-published' if self.as_published else form}",)

    def promise(self, schema: Schema) -> Promise:
        return self._form(schema).promise()

    def prepare(self, dataset: Dataset, progress: Progress | None = None) -> _Clusters:
        form = self._form(dataset.schema)
        if printed := form.printed(dataset):
            raise Refusal(f"{dataset.source}: {' '.join(printed)}")
        return form

    def perturb(self, dataset: Dataset, prepared: _Clusters, noise: Noise) -> NoisyColumns:
        return prepared.perturb(dataset, noise)

    def preview(self, dataset: Dataset) -> Foresight:
        return self._form(dataset.schema).preview(dataset)

    def stated_cells(self, release: Release, schema: Schema) -> dict[str, Cells] | None:
        form, stated = self._form(schema), release.certificate.rows.borders
        if self.as_published:
            return None
        if self.borders is not None:
            return form.cells(form.given, self.epsilon)
        borders = {name: [exact(border) for border in of_name] for name, of_name in (stated or {}).items()}
        fits = stated is not None and borders.keys() == form.given.keys()
        fits = fits and all(0 < len(borders[name]) <= len(shares) for name, shares in form.given.items())
        fits = fits and same({name: [plain(border) for border in of_name] for name, of_name in borders.items()}, stated)
        require(fits, "certificate.json: the mechanism cannot have chosen these borders")
        return form.cells(borders, self.epsilon * (1 - self.border_share))

    def _form(self, schema: Schema) -> _Clusters:
        domains = noisy_domains(schema, self.name)
        what = "quantiles" if self.borders is None else "borders"
        given = lists_of(what, self.borders or self.quantiles, domains)
        private = _AsPublished if self.as_published else _PrivateBorders
        return (private if self.borders is None else _PublicBorders)(self, schema, domains, given)


@dataclass(frozen=True)
class _Clusters(abc.ABC):
    """One of three forms, for one schema: the mechanism, the grids, and the borders or quantiles of each attribute."""

    mechanism: NoisyClusters
    schema: Schema
    domains: Mapping[str, Numeric]
    given: Mapping[str, Numbers]

    @abc.abstractmethod
    def promise(self) -> Promise: ...

    @abc.abstractmethod
    def perturb(self, dataset: Dataset, noise: Noise) -> NoisyColumns: ...

    @abc.abstractmethod
    def preview(self, dataset: Dataset) -> Foresight: ...

    def printed(self, dataset: Dataset) -> list[str]:
        """Say which records would be released exactly: none, as a proved form must not refuse because of records."""
        return []

    def cells(self, borders: Mapping[str, Sequence[Fraction]], epsilon: Fraction) -> dict[str, Cells]:
        law, confidence = self.mechanism.law, self.mechanism.confidence
        return cut_cells(self.domains, borders, law=law, epsilon=epsilon, confidence=confidence)


class _PublicBorders(_Clusters):
    def promise(self) -> Promise:
        cells = self.cells(self.given, self.mechanism.epsilon)
        guarantee = WithinCluster(
            epsilon=self.mechanism.epsilon,
            clusters="; ".join(
                cut_text(name, of_column.domain, self.given.get(name, ())) for name, of_column in cells.items()
            ),
            protects=self.schema.protects,
            neighbours=Neighbours.REPLACE_ONE,
        )
        in_clear = [f"between which borders each {', '.join(self.given)} lies, after rounding to the grid"]
        for name, of_column in cells.items():
            lower, step = of_column.domain.lower, of_column.domain.resolution or Fraction(0)
            if single := [lower + cell.first * step for cell in of_column.cells if cell.law.last == 0]:
                points = ", ".join(map(shown_number, single))
                hides = "such a cluster has one point and hides nothing"
                in_clear.append(f"values of {name} that are {points} after rounding: {hides}")
        return self.mechanism.noisy_promise(guarantee, self.schema, in_clear=in_clear, assumptions=(PUBLIC_BORDERS,))

    def perturb(self, dataset: Dataset, noise: Noise) -> NoisyColumns:
        return NoisyColumns.of(self.cells(self.given, self.mechanism.epsilon), dataset, noise)

    def preview(self, dataset: Dataset) -> Foresight:
        cells = self.cells(self.given, self.mechanism.epsilon)
        sizes: dict[str, list[int]] = {}
        for name in self.given:
            index = cells[name].index(cells[name].steps(dataset.numbers(name)))
            sizes[name] = np.bincount(index, minlength=len(cells[name].cells)).tolist()
        lines = tuple(f"{name}: the clusters have {', '.join(map(str, num))} records" for name, num in sizes.items())
        intervals = foresee_intervals(cells)
        alone = tuple(
            f"{name}: {num.count(1)} of its clusters have a single record, which the cluster alone identifies. "
            "Choose wider clusters."
            for name, num in sizes.items()
            if 1 in num
        )
        return Foresight(
            warnings=(*intervals.warnings, *alone),
            lines=(*intervals.lines, *lines),
            details={**intervals.details, "cluster_sizes": sizes},
        )


class _PrivateBorders(_Clusters):
    """Clusters between borders that the exponential mechanism samples at quantiles."""

    @property
    def border_epsilon(self) -> Fraction:
        mechanism = self.mechanism
        return mechanism.epsilon * mechanism.border_share / sum(len(shares) for shares in self.given.values())

    @property
    def values_epsilon(self) -> Fraction:
        return self.mechanism.epsilon * (1 - self.mechanism.border_share)

    def promise(self) -> Promise:
        for name in self.given:
            domain = self.domains[name]
            if not len(candidate_steps(domain.num_steps)):
                raise ParameterError(
                    f"attribute {name!r}: its grid has {domain.num_steps + 1} points, too few for private borders. "
                    "Choose a finer resolution, or leave it out of quantiles."
                )
        self.cells({}, self.values_epsilon)  # refuses a column that cannot get noise
        guarantee = WithinPublishedBorders(
            epsilon=self.mechanism.epsilon, protects=self.schema.protects, neighbours=Neighbours.REPLACE_ONE
        )
        shown_borders = (
            f"between which of the published borders each {', '.join(self.given)} lies, after rounding to the grid: "
            "if two borders are close, values between them are known that closely"
        )
        return self.mechanism.noisy_promise(
            guarantee, self.schema, in_clear=[shown_borders], assumptions=(SHOWN_CLUSTERS,)
        )

    def perturb(self, dataset: Dataset, noise: Noise) -> NoisyColumns:
        whole = self.cells({}, self.values_epsilon)
        borders: dict[str, list[Fraction]] = {}
        for name, shares in self.given.items():
            domain = self.domains[name]
            steps = whole[name].steps(dataset.numbers(name))
            at_steps = draw_borders(steps, shares, domain.num_steps, epsilon=self.border_epsilon, noise=noise)
            borders[name] = [domain.lower + step * (domain.resolution or 0) for step in at_steps]
        values = NoisyColumns.of(self.cells(borders, self.values_epsilon), dataset, noise)
        stated = {name: [plain(border) for border in of_name] for name, of_name in borders.items()}
        return replace(values, measures=values.measures.model_copy(update={"borders": stated}))

    def preview(self, dataset: Dataset) -> Foresight:
        lines, warnings, details = [], [], {}
        for name, shares in self.given.items():
            num = len(candidate_steps(self.domains[name].num_steps))
            miss = details[name] = math.ceil(2 * math.log(num / _UNSURE) / self.border_epsilon)
            text = (
                f"{name}: each border uses epsilon {shown_number(self.border_epsilon)}; 90 % of the time it misses its "
                f"share by at most {miss} of {len(dataset)} records more than the best place does"
            )
            lines.append(text)
            if miss * (len(shares) + 1) > len(dataset):
                warnings.append(
                    f"{text}: the borders will be arbitrary. Raise epsilon or border_share, or use fewer quantiles."
                )
        return Foresight(warnings=tuple(warnings), lines=tuple(lines), details={"border_miss": details})


def candidate_steps(num_steps: int) -> IntArray:
    """Return the possible grid steps of a private border: public, evenly spaced, at most 1024."""
    # Two steps apart and from the ends of the domain: a cluster with a single point would release it exactly.
    stride = max(2, -(-(num_steps - 1) // MAX_CANDIDATES))
    return np.arange(stride, num_steps, stride, dtype=np.int64)


def border_scores(steps: IntArray, share: Fraction, candidates: IntArray) -> list[Fraction]:
    """Score candidates for a border: minus the records by which its share is off. Sensitivity 1 (replace-one)."""
    below = np.searchsorted(np.sort(steps), candidates, side="left").tolist()
    return [-abs(num - share * len(steps)) for num in below]


def draw_borders(
    steps: IntArray, shares: Sequence[Fraction], num_steps: int, *, epsilon: Fraction, noise: Noise
) -> list[int]:
    """Sample borders at shares of the records by the exponential mechanism; each share costs epsilon."""
    candidates = candidate_steps(num_steps)
    ranked = np.sort(steps)
    borders = set()
    for share in shares:
        scores = [epsilon * score / 2 for score in border_scores(ranked, share, candidates)]
        borders.add(int(candidates[noise.exponential_choice(scores)]))
    return sorted(borders)


class _AsPublished(_Clusters):
    """Algorithm 2 as published: clusters by rank, noise scaled by the range of each cluster's own values."""

    def promise(self) -> Promise:
        epsilon = self.mechanism.epsilon
        for name in self.domains:
            self._grid(name)  # refuses a domain that is too wide for noise, and no range is wider
        cut = "; ".join(f"{name} at {', '.join(map(shown_number, shares))}" for name, shares in self.given.items())
        guarantee = WithinCluster(
            epsilon=epsilon,
            clusters=f"ranks of the records themselves, cut by shares: {cut}",
            protects=self.schema.protects,
            neighbours=Neighbours.REPLACE_ONE,
        )
        widths = "the range of each cluster's own values, through the width of its intervals"
        sound = self.mechanism.noisy_promise(guarantee, self.schema, in_clear=[widths])
        return replace(
            sound,
            basis=Basis.CLAIMED,
            claim=f"epsilon {shown_number(epsilon)} between records of one cluster (Li, Erkin, Lagendijk 2022, IV-B)",
            why="borders and ranges of clusters come from the records, so replacing one record changes the noise of "
            "all records in its cluster, and no bound holds: a cluster of one record has range 0, and its value is "
            "released exactly; each column takes the whole epsilon",
            numerics=f"{sound.numerics}; shares are rounded to the nearest rank, halves up; the noise is discrete on "
            "the public grid, while the paper's noise is continuous",
        )

    def perturb(self, dataset: Dataset, noise: Noise) -> NoisyColumns:
        columns = {}
        for name, domain in self.domains.items():
            noisy, radius = published_noise(
                self._grid(name).steps(dataset.numbers(name)),
                self.given.get(name, ()),
                epsilon=self.mechanism.epsilon,
                confidence=self.mechanism.confidence,
                noise=noise,
            )
            steps = np.clip(noisy, 0, domain.num_steps)
            # The radius down and up, and half a step more for values off the grid, within the domain
            values = domain.grid_values(steps)
            halves = PointGrid.of(domain.lower, (domain.resolution or Fraction(1)) / 2)
            lower = halves.points(np.maximum(2 * (steps - radius) - 1, 0))
            upper = halves.points(np.minimum(2 * (steps + radius) + 1, 2 * domain.num_steps))
            columns[name] = (values, np.where(radius < 0, values, lower), np.where(radius < 0, values, upper))
        stated = dict.fromkeys(columns, StatedConfidence(confidence=plain(self.mechanism.confidence)))
        return NoisyColumns(columns, RowMeasures(records=len(dataset), published_intervals=stated))

    def preview(self, dataset: Dataset) -> Foresight:
        return Foresight(warnings=tuple(self.printed(dataset)))

    def _grid(self, name: str) -> Cells:
        only = {name: self.domains[name]}
        epsilon, confidence = self.mechanism.epsilon, self.mechanism.confidence
        return cut_cells(only, {}, law="laplace", epsilon=epsilon, confidence=confidence)[name]

    def printed(self, dataset: Dataset) -> list[str]:
        """Say, column by column, which records would be released exactly, by their row numbers only."""
        problems = []
        for name in self.domains:
            exposed = exposed_records(self._grid(name).steps(dataset.numbers(name)), self.given.get(name, ()))
            if exposed.any():
                parts = dataset.parts
                rows = np.sort(parts.source_rows[exposed[parts.records]])
                num = int(exposed.sum())
                problem = Problem.in_rows(
                    f"the published form would release {num} record{'s' * (num > 1)} exactly (all values of a cluster "
                    "are equal, so its range is 0 and it gets no noise)",
                    rows,
                    where=f"column {name!r}",
                    remedy="Choose shares with more records to a cluster, or leave as_published out.",
                )
                problems.append(str(problem))
        return problems


def rank_clusters(num: int, shares: Sequence[Fraction]) -> list[slice]:
    """Cut ``num`` sorted records at cumulative shares, rounded to the nearest rank, halves up; no cluster is empty."""
    ends = [0, *(math.floor(share * num + Fraction(1, 2)) for share in shares), num]
    return [slice(a, b) for a, b in pairwise(ends) if a < b]


def exposed_records(steps: IntArray, shares: Sequence[Fraction]) -> BoolArray:
    order = np.argsort(steps, kind="stable")
    exposed = np.zeros(len(steps), dtype=bool)
    for cluster in rank_clusters(len(steps), shares):
        members = order[cluster]
        exposed[members] = steps[members[0]] == steps[members[-1]]
    return exposed


def published_noise(
    steps: IntArray, shares: Sequence[Fraction], *, epsilon: Fraction, confidence: Fraction, noise: Noise
) -> tuple[IntArray, IntArray]:
    """Add noise as published, in grid steps, and refuse and clamp nothing: a cluster of range 0 stays as it is."""
    noisy = np.array(steps, dtype=np.int64)
    radius = np.zeros(len(noisy), dtype=np.int64)
    order = np.argsort(noisy, kind="stable")
    for cluster in rank_clusters(len(noisy), shares):
        members = order[cluster]
        if scale := Fraction(int(steps[members[-1]]) - int(steps[members[0]])) / epsilon:
            noisy[members] += noise_arrays.discrete_laplace(noise, scale, len(members))
            radius[members] = laplace_radius(scale, confidence)
    return noisy, (radius if confidence else np.full_like(radius, -1))


def laplace_radius(scale: Fraction, confidence: Fraction) -> int:
    """Return the smallest radius that discrete Laplace noise stays within, with at least this probability."""
    # P(|X| > r) = 2 e^(-(r + 1) / scale) / (1 + e^(-1 / scale)), rounded up
    allowed = (1 - confidence) * (1 + exp_bounds(-1 / scale)[0]) / 2
    low, high = -1, 0
    while exp_bounds(-(high + 1) / scale)[1] > allowed:
        low, high = high, 2 * high + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if exp_bounds(-(middle + 1) / scale)[1] <= allowed else (middle, high)
    return high
