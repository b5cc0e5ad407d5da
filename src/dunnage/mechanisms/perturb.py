# SPDX-License-Identifier: Apache-2.0
"""What mechanisms that release noisy values share: which attributes they take, the promise, and the table."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from dunnage import noise_arrays
from dunnage.arrays import FloatArray
from dunnage.certificate import NoiseCell, RowMeasures
from dunnage.domains import Numeric
from dunnage.errors import ParameterError
from dunnage.exact import decimal_text, plain
from dunnage.guarantees import (
    EPSILON_PER_RECORD,
    PUBLIC_COLUMNS,
    PUBLIC_COUNT,
    PUBLIC_DOMAIN,
    SYSTEM_ENTROPY,
    Assumption,
    Basis,
    Guarantee,
    Promise,
)
from dunnage.kinds.common import floats, generalised, require, same
from dunnage.laws import Cell, Cells
from dunnage.mechanisms.base import Confidence, Drawn, Foresight, Mechanism
from dunnage.mechanisms.recode import released_column
from dunnage.noise import Noise
from dunnage.schema import Attribute, Schema

if TYPE_CHECKING:
    from dunnage.release import Release
    from dunnage.tables.dataset import Dataset

NUMERICS = (
    "noise is drawn exactly, in whole steps of the public grid, from system entropy, and clamped afterwards; released "
    "numbers are the doubles of grid points and of points halfway between them; radii and coverage are rounded to the "
    "safe side"
)
Law = Literal["laplace", "piecewise"]
_LITTLE_TOLD = Fraction(1, 2)


@dataclass(frozen=True, eq=False, repr=False)
class NoisyColumns:
    """Noisy columns, a value per record in the order of the dataset, and what the certificate says of them."""

    # For each attribute the noisy values, and the lower and upper ends of their intervals
    columns: Mapping[str, tuple[FloatArray, FloatArray, FloatArray]]
    measures: RowMeasures  # Public figures

    @classmethod
    def of(cls, cells: Mapping[str, Cells], dataset: Dataset, noise: Noise) -> NoisyColumns:
        columns = {}
        for name, of_column in cells.items():
            told = of_column.perturb(dataset.numbers(name), noise)
            columns[name] = (told, *of_column.interval(told))
        return cls(columns, RowMeasures(records=len(dataset), noise=stated_noise(cells)))


def stated_noise(cells: Mapping[str, Cells]) -> dict[str, list[NoiseCell]]:
    return {name: [NoiseCell(**cell) for cell in of_column.describe()] for name, of_column in cells.items()}


class NoisyMechanism(Mechanism):
    """A mechanism that releases a noisy value with an interval for each number of each record."""

    kind = "noisy"
    confidence: Confidence = Fraction(9, 10)

    @abc.abstractmethod
    def perturb(self, dataset: Dataset, prepared: Any, noise: Noise) -> NoisyColumns:
        """Draw the noisy columns, in the order of the dataset."""

    def draw(self, dataset: Dataset, prepared: Any, noise: Noise) -> Drawn:
        drawn = self.perturb(dataset, prepared, noise)
        order = noise_arrays.permutation(noise, len(dataset))
        # data : row, public columns, then per attribute the noisy value and its interval
        columns: dict[str, object] = {"row": np.arange(len(order), dtype=np.int64)}
        for attribute in dataset.schema.public:
            columns[attribute.name] = released_column(dataset, attribute.name).take(pa.array(order))
        for name, (told, lower, upper) in drawn.columns.items():
            columns.update({name: told[order], f"{name}_lower": lower[order], f"{name}_upper": upper[order]})
        return Drawn(data=pa.table(columns), measures=drawn.measures, rows=order)

    @abc.abstractmethod
    def stated_cells(self, release: Release, schema: Schema) -> dict[str, Cells] | None:
        """Return the laws that a release must have been drawn by, by attribute; None if it does not state them."""

    def recount(self, release: Release, schema: Schema) -> Iterator[str]:
        """Check that intervals follow from noisy values, and laws from epsilon."""
        measures, cells = release.certificate.rows, self.stated_cells(release, schema)
        stated = {"records", "published_intervals"} if cells is None else {"records", "noise"}
        stated |= {"borders"} if measures.borders else set()
        fits = measures.model_fields_set == stated
        require(fits, "certificate.json: figures that do not belong to such noise")
        if cells is None:
            stated_ends = {name: {"confidence": plain(self.confidence)} for name in generalised(release)}
            sure = same(stated_ends, measures.plain()["published_intervals"])
            require(sure, "certificate.json: another confidence")
            for name in generalised(release) if not self.confidence else ():
                value, *ends = (floats(release.data, f"{name}{end}") for end in ("", "_lower", "_upper"))
                alone = all(np.array_equal(value, end) for end in ends)
                require(alone, f"data: an interval of {name} misses its value or leaves the public domain")
            yield "every noisy value and interval lies in the public domain; by what noise is not stated"
            return
        require(same_noise(cells, measures), "certificate.json: the noise does not follow from the mechanism")
        for name, of_column in cells.items():
            value, *ends = (floats(release.data, f"{name}{end}") for end in ("", "_lower", "_upper"))
            fits = all(map(np.array_equal, of_column.interval(value), ends))
            require(fits, f"data: intervals of {name} do not follow from its noise")
        yield "every noisy value is on its public grid; intervals follow from the laws of the noise, these from epsilon"

    def noisy_promise(
        self,
        guarantee: Guarantee,
        schema: Schema,
        *,
        in_clear: Sequence[str] = (),
        assumptions: Sequence[Assumption] = (),
    ) -> Promise:
        """State a proved guarantee of noisy values, with what all of them rest on and show."""
        known = (PUBLIC_COLUMNS,) if schema.public else ()
        names = ", ".join(attribute.name for attribute in schema.public)
        unchanged = [f"public columns as they are: {names}"] if names else []
        unchanged += [attribute.exception for attribute in schema if attribute.exception]
        return Promise(
            guarantee=guarantee,
            basis=Basis.PROVED,
            mechanism=self.describe(),
            assumptions=(PUBLIC_DOMAIN, PUBLIC_COUNT, *known, *assumptions, EPSILON_PER_RECORD, SYSTEM_ENTROPY),
            in_clear=("number of records", *in_clear, *unchanged),
            numerics=NUMERICS,
            notes=self.notes(),
        )


def same_noise(cells: Mapping[str, Cells], measures: RowMeasures) -> bool:
    laws = {name: of_column.describe() for name, of_column in cells.items()}
    return same(laws, measures.plain().get("noise"))


def noisy_domains(schema: Schema, mechanism: str) -> dict[str, Numeric]:
    if schema.sensitive:
        names = ", ".join(attribute.name for attribute in schema.sensitive)
        raise ParameterError(
            f"{mechanism} is differentially private, which a value released unchanged is not. Got the sensitive "
            f'{names}. Give it the role "quasi-identifier" for noise, "drop", or "public" if anyone may know it.'
        )
    if not schema.quasi_identifiers:
        raise ParameterError(
            f"{mechanism} adds noise to quasi-identifiers. Got none. Give one column or more that role."
        )
    return {attribute.name: _grid_domain(attribute, mechanism) for attribute in schema.quasi_identifiers}


def _grid_domain(attribute: Attribute, mechanism: str) -> Numeric:
    if not isinstance(attribute.domain, Numeric):
        raise ParameterError(
            f"{mechanism} adds noise to numbers. Got {attribute.name!r} of kind {attribute.kind}. Give it the role "
            '"drop", or "public" if anyone may know it, or choose sampled-lattice.'
        )
    if attribute.domain.resolution is None:
        raise ParameterError(
            f"{mechanism} draws noise on a public grid. Got {attribute.name!r} without one. Add resolution = 0.1, say."
        )
    return attribute.domain


def cut_cells(
    domains: Mapping[str, Numeric],
    borders: Mapping[str, Sequence[Fraction]],
    *,
    law: str,
    epsilon: Fraction,
    confidence: Fraction,
) -> dict[str, Cells]:
    """Cut each domain at its borders, if it has any; all columns share epsilon evenly."""
    share = epsilon / len(domains)
    cells = {}
    for name, domain in domains.items():
        try:
            cells[name] = Cells.cut(domain, borders.get(name, ()), law=law, epsilon=share, confidence=confidence)
        except ParameterError as error:
            raise ParameterError(f"attribute {name!r}: {error}") from None
    return cells


def foresee_intervals(cells: Mapping[str, Cells]) -> Foresight:
    """Tell how wide the intervals will be beside the ranges that values are hidden in: public facts."""
    found = [(name, of_column, cell) for name, of_column in cells.items() for cell in of_column.cells]
    lines = tuple(_interval_line(name, of_column, cell) for name, of_column, cell in found)
    warnings = tuple(_little_told(name, of_column) for name, of_column in cells.items())
    details = {name: of_column.describe() for name, of_column in cells.items()}
    return Foresight(
        warnings=tuple(warning for warning in warnings if warning), lines=lines, details={"noise": details}
    )


def _little_told(name: str, of_column: Cells) -> str:
    """Warn of a column whose intervals tell little; empty if they tell enough."""
    cells = [cell for cell in of_column.cells if cell.law.last]
    wide = sum(_told_share(cell) >= _LITTLE_TOLD for cell in cells)
    if not wide:
        return ""
    where = "its range" if len(cells) == 1 else f"the range in {wide} of {len(cells)} clusters"
    other = "" if cells[0].law.name == "piecewise" else ', or try law = "piecewise"'
    return (
        f"{name}: the interval spans half of {where} or more: little is told. Raise epsilon or lower confidence{other}."
    )


def _told_share(cell: Cell) -> Fraction:
    return min(Fraction(1), Fraction(2 * cell.law.radius + 1, cell.law.last + 1))


def _interval_line(name: str, of_column: Cells, cell: Cell) -> str:
    lower, resolution = of_column.domain.lower, of_column.domain.resolution or Fraction(0)
    where = f"{name} from {with_unit(lower + cell.first * resolution)} to " + with_unit(
        lower + cell.end * resolution, of_column.domain
    )
    if cell.law.last == 0:
        return f"{where}: a single point, printed as it is"
    if cell.law.radius < 0:
        return f"{where}: noisy values without intervals (confidence 0)"
    radius = with_unit(cell.law.radius * resolution + resolution / 2, of_column.domain)
    confidence = f"{decimal_text(100 * cell.law.confidence)} %"
    share = f"{float(100 * _told_share(cell)):.0f} %"
    return f"{where}: {radius} to either side at {confidence} confidence, the interval spans up to {share} of it"


def with_unit(number: Fraction, domain: Numeric | None = None) -> str:
    return f"{decimal_text(number)} {domain.unit if domain else ''}".strip()
