# SPDX-License-Identifier: Apache-2.0
"""NoisyValues: release every record with noise that hides its values in the whole public domain.

``docs/proofs/noisy-values.md`` has the proofs.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from dunnage.guarantees import Neighbours, Promise, PureDP
from dunnage.laws import Cells
from dunnage.mechanisms.base import Confidence, Epsilon, Foresight
from dunnage.mechanisms.perturb import Law, NoisyColumns, NoisyMechanism, cut_cells, foresee_intervals, noisy_domains
from dunnage.noise import Noise
from dunnage.schema import Schema

if TYPE_CHECKING:
    from dunnage.release import Release
    from dunnage.tables.dataset import Dataset


class NoisyValues(NoisyMechanism):
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

    def cells(self, schema: Schema) -> dict[str, Cells]:
        """Return the law of each noisy column; refuse a column that can be given no noise."""
        domains = noisy_domains(schema, self.name)
        return cut_cells(domains, {}, law=self.law, epsilon=self.epsilon, confidence=self.confidence)
