# SPDX-License-Identifier: Apache-2.0
"""Counts of trips with Gaussian noise, whose loss adds up slowly over many releases.

The proof is in ``docs/proofs/gaussian-counts.md``.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import numpy as np
from pydantic import PlainValidator, model_validator

from dunnage.errors import ParameterError
from dunnage.exact import exact, plain, shown_number
from dunnage.kernels.counts.laplace import DiscreteGaussian
from dunnage.mechanisms.base import PLAIN, Foresight
from dunnage.mechanisms.counts import (
    CORRECTION_SHARE,
    EXACT,
    MAX_DENSE_CELLS,
    ConstrainedCounts,
    Counted,
    CountForm,
    DrawnCounts,
    FeatureMechanism,
    Features,
    NoisyQueries,
    Query,
    even_shares,
    most_trips,
    read_features,
    sensitivity,
    true_counts,
)
from dunnage.model.certificate import TripLoss
from dunnage.model.guarantees import ConcentratedDP, Neighbours, concentrated_epsilon
from dunnage.model.schema import Schema
from dunnage.noise.arrays import MAX_VARIANCE
from dunnage.noise.source import Noise

if TYPE_CHECKING:
    from dunnage.release import Release
    from dunnage.tables.dataset import Dataset

_largest_rho = lru_cache(maxsize=64)(ConcentratedDP.largest_rho)


def _delta(given: Any) -> Fraction:
    delta = exact(given, what="delta")
    if not 0 < delta < 1:
        raise ParameterError(f"delta must be above 0 and below 1. Got {shown_number(delta)}. Try 0.000001.")
    return delta


class GaussianCounts(ConstrainedCounts):
    """Add discrete Gaussian noise to cells, and to features if there are any; then compute the nearest counts.

    Parameters
    ----------
    epsilon, delta
        Privacy loss of one trip, or of one rider, as the policy says; together they give rho, which features share.
    features
        As for ``constrained-counts``; by default none: only the cells are counted.
    budget_shares
        ``uniform``, ``cells``, or a table with the share of each feature: shares of rho.
    feature_weights, structure
        As for ``constrained-counts``.

    Guarantee
    ---------
    rho-zero-concentrated differential privacy between datasets that differ by one trip (or rider), and so epsilon at
    delta, proved.

    Assumptions
    -----------
    Public stops, windows, zones and modes.

    Runtime
    -------
    O(cells), at most 4,194,304.

    Utility
    -------
    More noise than Laplace noise has for one release of trips. Less for riders of many trips whose trips in one cell
    are limited (``per_cell`` in ``[contribution]``), and for many releases under a budget with concentrated accounting.

    References
    ----------
    Bun, Steinke 2016; Canonne, Kamath, Steinke 2020 (the discrete Gaussian law).
    """

    name = "gaussian-counts"
    counts_categories = False
    proof = ("gaussian-counts.md#privacy",)
    delta: Annotated[Fraction, PlainValidator(_delta), PLAIN]
    features: Features = ()

    as_published: Literal[False] = False  # nobody has published it in floating point

    @model_validator(mode="after")
    def _check_shares(self) -> Self:
        if self._margins:
            raise ParameterError(f'{self.name} has no budget_shares = "margins". Use "cells", or a table of shares.')
        return self

    @property
    def form(self) -> CountForm:
        return replace(EXACT, law=DiscreteGaussian)

    def guarantee(self, schema: Schema) -> ConcentratedDP:
        return ConcentratedDP(
            epsilon=self.epsilon,
            delta=self.delta,
            rho=self.rho,
            protects=schema.protects,
            neighbours=Neighbours.ADD_REMOVE,
        )

    @property
    def rho(self) -> Fraction:
        return _largest_rho(self.epsilon, self.delta)

    def correction_epsilon(self, schema: Schema) -> Fraction:
        """Return a plain epsilon whose rho, half its square, is about the share of rho for dropped trips."""
        corrected = schema.contribution is not None and schema.contribution.total_max is not None
        return Fraction(f"{math.sqrt(2 * self.rho * CORRECTION_SHARE):.3g}") if corrected else Fraction(0)

    def whole(self, schema: Schema) -> tuple[Literal["epsilon", "rho"], Fraction]:
        return "rho", self.rho - self.correction_epsilon(schema) ** 2 / 2

    def scale(self, query: Query, part: Fraction, change: int, schema: Schema) -> Fraction:
        """Return the variance with which a query has its part of rho."""
        squares, bound = change**2, schema.contribution
        if query.columns is None and bound is not None and bound.per_cell is not None:
            # Of all ways to spread trips with at most so many in a cell, full cells have the largest sum of squares.
            whole, rest = divmod(change, min(change, bound.per_cell))
            squares = whole * min(change, bound.per_cell) ** 2 + rest**2
        variance = squares / (2 * part)
        if variance >= MAX_VARIANCE:
            raise ParameterError(f"the noise would exceed 2^{MAX_VARIANCE.bit_length() // 2} trips. Raise epsilon.")
        return variance

    def losses(self, schema: Schema, period: str | None) -> TripLoss:
        """Return the largest epsilon, at delta, of one trip and of one rider."""
        most = most_trips(schema, period)
        if most is None:
            return TripLoss(trip=plain(self.epsilon), rider=None)
        # One more trip adds to one sum of a feature, or moves from one to another: squares add up to 2 at most, so that
        # rho is one over the variance. It also changes one of the two sums that correct counts by 1.
        _, whole = self.whole(schema)
        parts = (1 / self.scale(query, query.share * whole, most, schema) for query in self.queries(schema))
        rho = sum(parts, Fraction(0))
        if schema.contribution is not None and schema.contribution.total_max is not None:
            rho += (self.correction_epsilon(schema) / schema.contribution.total_max) ** 2 / 2
        epsilon = Fraction(math.ceil(concentrated_epsilon(rho, self.delta) * 10**6), 10**6)
        return TripLoss(trip=plain(epsilon), rider=plain(self.epsilon))

    def queries(self, schema: Schema) -> tuple[Query, ...]:
        columns = read_features(self.features, days=schema.tells_days, ends=schema.ends)
        return super().queries(schema) if columns else even_shares([])

    def asked(self, dataset: Dataset) -> NoisyQueries:
        schema, period = dataset.schema, dataset.period
        universe, change, (part, whole) = schema.universe(period), sensitivity(schema, period), self.whole(schema)
        if universe.num_cells > MAX_DENSE_CELLS:
            raise ParameterError(
                f"{self.name} needs noise for every cell, and takes at most {MAX_DENSE_CELLS:,} cells. Got "
                f"{universe.num_cells:,}. Use constrained-counts, zones or longer windows."
            )
        queries = self.queries(schema)
        laws = tuple(DiscreteGaussian(self.scale(query, query.share * whole, change, schema)) for query in queries)
        noisy = NoisyQueries.of(universe, queries, whole, change, DiscreteGaussian)
        self.check_size(noisy)
        return replace(noisy, laws=laws, part=part)

    def check_noise(self, release: Release, schema: Schema, change: int) -> set[str]:
        cells_alone = len(self.queries(schema)) == 1
        return (
            FeatureMechanism.check_noise(self, release, schema, change)
            if cells_alone
            else super().check_noise(release, schema, change)
        )

    def draw_counts(self, counted: Counted, prepared: NoisyQueries, noise: Noise) -> DrawnCounts:
        if prepared.features:
            return super().draw_counts(counted, prepared, noise)
        counts = prepared.laws[0].draw(noise, prepared.universe.num_cells).astype(np.int64)
        counts[counted.cells] += counted.counts
        cells = np.flatnonzero(counts > 0)
        return DrawnCounts(cells=cells, counts=counts[cells], figures={"features": prepared.describe()})

    def preview(self, dataset: Dataset) -> Foresight:
        queries = self.asked(dataset)
        if queries.features:
            return super().preview(dataset)
        created = queries.laws[0].spread / math.sqrt(2 * math.pi) * queries.universe.num_cells
        line = f"negative counts become zero, which creates up to about {created:,.0f} trips in empty cells"
        return queries.foresee(true_counts(dataset), line)
