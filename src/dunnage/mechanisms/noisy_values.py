# SPDX-License-Identifier: Apache-2.0
"""NoisyValues: release every record with noise that hides its values in the whole public domain.

``docs/proofs/noisy-values.md`` has the proofs.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

from dunnage.dataset import Dataset
from dunnage.exact import Exact, plain
from dunnage.guarantees import Neighbours, Promise, PureDP
from dunnage.laws import Cells
from dunnage.ledger import Ledger
from dunnage.mechanisms.foresight import Foresight
from dunnage.mechanisms.perturb import (
    Drawn,
    check_law,
    confidence_of,
    cut_cells,
    epsilon_of,
    foresee_intervals,
    noisy_domains,
    noisy_promise,
    release_noisy,
)
from dunnage.noise import Noise
from dunnage.publication import Publication
from dunnage.schema import Schema


@dataclass(frozen=True, kw_only=True)
class NoisyValues:
    """Release a noisy value with an interval for each number of each record.

    Parameters
    ----------
    epsilon
        What is kept between any two records: over all noisy columns together, which share it evenly.
    confidence
        How sure an interval is to hold the true value, at least, whatever that is; 0 for no intervals.
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
    Each interval holds the true value with at least the stated confidence, for every value of the domain, on the grid
    or off it.

    References
    ----------
    Holohan, Antonatos, Braghin, Mac Aonghusa 2017, by way of Li, Erkin, Lagendijk 2022, eqs. 21-23; Wang et al. 2019
    (piecewise mechanism). Both are discrete here.

    Examples
    --------
    >>> NoisyValues(epsilon=1, law="piecewise").describe()["confidence"]
    0.9
    """

    name: ClassVar[str] = "noisy-values"
    epsilon: Fraction
    confidence: Fraction = Fraction(9, 10)
    law: str = "laplace"

    if TYPE_CHECKING:  # what may be passed is wider than what is kept

        def __init__(self, *, epsilon: Exact, confidence: Exact = 0.9, law: str = "laplace") -> None: ...

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", epsilon_of(self.epsilon))
        object.__setattr__(self, "confidence", confidence_of(self.confidence))
        check_law(self.law)

    def promise(self, schema: Schema) -> Promise:
        """State what a release under this schema will guarantee; needs no data."""
        self.cells(schema)
        guarantee = PureDP(epsilon=self.epsilon, protects=schema.protects, neighbours=Neighbours.REPLACE_ONE)
        return noisy_promise(guarantee, schema, mechanism=self.describe())

    def release(self, dataset: Dataset, *, ledger: Ledger, noise: Noise) -> Publication:
        """Spend, then release noisy values with rows in random order.

        Raises
        ------
        BudgetError
            If the ledger refuses; nothing is drawn then.
        """
        cells = self.cells(dataset.schema)
        return release_noisy(
            self.promise(dataset.schema),
            lambda data, source: Drawn.of(cells, data, source),
            dataset,
            ledger=ledger,
            noise=noise,
        )

    def foresee(self, dataset: Dataset) -> Foresight:
        """Tell the owner how wide the intervals will be: it follows from public facts alone."""
        return foresee_intervals(self.cells(dataset.schema))

    def describe(self) -> dict[str, Any]:
        """Give name and all parameters as plain data."""
        return {
            "name": self.name,
            "epsilon": plain(self.epsilon),
            "confidence": plain(self.confidence),
            "law": self.law,
        }

    def cells(self, schema: Schema) -> dict[str, Cells]:
        """Return the law of each noisy column.

        Raises
        ------
        ParameterError
            If a column can be given no noise.
        """
        domains = noisy_domains(schema, self.name)
        return cut_cells(domains, {}, law=self.law, epsilon=self.epsilon, confidence=self.confidence)
