# SPDX-License-Identifier: Apache-2.0
"""ConstrainedCounts: noisy counts of several features, made consistent and non-negative by an exact projection.

``docs/proofs/constrained-counts.md`` has the proofs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Literal, Self

import numpy as np
from pydantic import PlainSerializer, PlainValidator, model_validator

from dunnage.arrays import FloatArray, IntArray
from dunnage.counting.laplace import addresses
from dunnage.counting.projection import Candidates, Family, Projection, project
from dunnage.counting.reconciled import Margin, project_estimates
from dunnage.counting.tables import project_lazily, project_table, round_tree
from dunnage.errors import ParameterError
from dunnage.exact import exact, shown
from dunnage.kinds.common import require
from dunnage.mechanisms.base import Flag, Foresight, Pairs, plain_pairs
from dunnage.mechanisms.counting import Counted, true_counts
from dunnage.mechanisms.features import Feature, FeatureColumns, Layout, nested, read_features
from dunnage.mechanisms.tabulated import (
    MOST_DENSE_CELLS,
    Asked,
    CountFigures,
    DrawnCounts,
    FeatureMechanism,
    Features,
    Query,
    even_shares,
    given_shares,
)
from dunnage.noise import Noise
from dunnage.schema import Schema

if TYPE_CHECKING:
    from dunnage.release import Release
    from dunnage.tables.dataset import Dataset

PRESETS = ("uniform", "cells", "margins")
Structure = Literal["flat", "hierarchical"]
CELLS_SHARE = Fraction(3, 5)
"""Part of epsilon that the preset ``cells`` gives to the cells themselves."""

MOST_GROUPS = 1 << 24

MARGIN: FeatureColumns = ("origin", "destination")
MARGIN_SHARE = Fraction(1, 20)
MARGINS_CELLS_SHARE = Fraction(13, 20)
"""Parts of epsilon that the preset ``margins`` gives to margin and cells; the other features share the rest."""

MOST_RESIDUAL = 1e-10
"""Largest relative residual of the optimality conditions at which counts are those nearest to the noisy sums."""


def _kept_shares(given: object) -> str | Pairs:
    """Check shares as far as it goes without features, and keep them in a form that cannot be changed."""
    if isinstance(given, str):
        if given not in PRESETS:
            raise ParameterError(f"budget_shares must be one of {', '.join(PRESETS)}. Got {shown(given)}.")
        return given
    try:
        pairs = dict(given).items()  # type: ignore[call-overload]
    except (TypeError, ValueError):
        raise ParameterError(
            f"budget_shares must be one of {', '.join(PRESETS)} or a table feature = share. Got {shown(given)}."
        ) from None
    return tuple((str(name), exact(value, what=f"the share of {name}")) for name, value in pairs)


def _plain_shares(kept: str | Pairs) -> object:
    return kept if isinstance(kept, str) else plain_pairs(kept)


class ConstrainedCounts(FeatureMechanism):
    """Ask several features with noise, then find the consistent, non-negative counts nearest to all answers.

    Parameters
    ----------
    epsilon
        What is kept about one trip, or one rider, as the policy says; the features share it.
    features
        ``O3``, ``O4``, ``O5`` (or ``H3`` to ``H5``), or a list of lists of columns, an empty one for the total; the
        cells themselves are always the first feature.
    budget_shares
        ``uniform``; ``cells`` (three fifths of epsilon for the cells); ``margins`` (an origin-destination margin over
        all windows besides, and a Bayes estimate of each cell from the noisy counts alone); or a table with the share
        of each feature.
    feature_weights
        ``size``: answers of a feature weigh one over its number of groups, as in the paper; ``uniform``: all the same.
    structure
        ``flat``, or ``hierarchical``: each feature tells apart all that the one before does.
    as_published
        Draw in floating point and round each count by itself, as the paper does; nothing is proved of that.

    Guarantee
    ---------
    Epsilon-differential privacy between datasets of which one has a trip (or rider) more, proved.

    Assumptions
    -----------
    Public stops, windows, zones and modes.

    Runtime
    -------
    O(cells), or O(trips + groups) where cells are too many to hold.

    Utility
    -------
    In the norm it minimises, never further from the truth than the noisy answers are. Counts are whole numbers; sums by
    join group, by slot as far as features tell slots apart, and in total are those of the projection, rounded up or
    down. Made for sparse tables: where most cells are busy, noisy counts with all of epsilon on the cells are closer.

    References
    ----------
    Fioretto, Lee, Van Hentenryck 2018, "Constrained-based differential privacy for mobility services".

    Examples
    --------
    >>> ConstrainedCounts(epsilon=1, features=[[], ["window"]]).describe()["features"]
    [[], ['window']]
    """

    name = "constrained-counts"
    proof = ("constrained-counts.md#privacy",)
    fewest_features = "O3"
    features: Features = "O5"
    budget_shares: Annotated[str | Pairs, PlainValidator(_kept_shares), PlainSerializer(_plain_shares)] = "uniform"
    feature_weights: Literal["size", "uniform"] = "size"
    structure: Structure = "flat"
    as_published: Flag = False

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self._margins and (self.as_published or self.feature_weights != "size"):
            raise ParameterError(
                'budget_shares = "margins" is not the paper\'s, and weighs features by what the noise says. Got '
                "as_published or feature_weights besides. Leave them out."
            )
        return self

    def queries(self, schema: Schema) -> tuple[Query, ...]:
        columns = read_features(self.features, days=schema.tells_days)
        if not columns:
            raise ParameterError(f"{self.name} needs a feature besides the cells. Got none. Use [[]] or noisy-counts.")
        if self.structure == "hierarchical":
            columns = nested(columns)
        if self._margins:
            # Share epsilon out between cells, features and an origin-destination margin, which comes last.
            others = [item for item in columns if item != MARGIN]
            if not others:
                raise ParameterError('budget_shares = "margins" needs a feature besides the margin. Use O5, say.')
            rest = (1 - MARGINS_CELLS_SHARE - MARGIN_SHARE) / len(others)
            return (
                Query(columns=None, share=MARGINS_CELLS_SHARE),
                *(Query(columns=item, share=rest) for item in others),
                Query(columns=MARGIN, share=MARGIN_SHARE),
            )
        if not isinstance(self.budget_shares, str):
            return given_shares(dict(self.budget_shares), columns)
        return even_shares(columns, cells=None if self.budget_shares == "uniform" else CELLS_SHARE)

    def asked(self, dataset: Dataset) -> Asked:
        universe = dataset.schema.universe(dataset.period)
        if universe.num_cells > MOST_DENSE_CELLS and (self._margins or self.as_published):
            raise ParameterError(
                f'as_published and budget_shares = "margins" look at every cell, at most {MOST_DENSE_CELLS:,}. Got '
                f'{universe.num_cells:,}. Use budget_shares = "cells", or longer windows.'
            )
        asked = self.ask(dataset)
        joined = asked.features[:-1] if self._margins else asked.features
        groups = Layout.of(universe, joined).num_groups
        if groups > MOST_GROUPS:
            raise ParameterError(
                f"these features cut the cells into {groups:,} groups, at most {MOST_GROUPS:,} are held. Use coarser "
                "features (zones instead of stops, say) or longer windows."
            )
        return asked

    def check_noise(self, release: Release, schema: Schema, change: int) -> set[str]:
        """Check the sums that were asked, and that counts are those nearest to them."""
        residual = release.certificate.counts.kkt_residual
        near = residual is not None and 0 <= residual < math.inf and (self.as_published or residual <= MOST_RESIDUAL)
        require(near, "certificate.json: the counts are not those nearest to the noisy sums")
        return {"kkt_residual", *super().check_noise(release, schema, change)}

    @property
    def _margins(self) -> bool:
        return bool(self.budget_shares == "margins")

    def family(self, features: Sequence[Feature], layout: Layout) -> Family:
        """Return the groups of features by join group, with their weights."""
        ratios = [layout.universe.num_cells / feature.size for feature in features]
        return Family(
            groups=tuple(layout.groups_of(feature) for feature in features),
            sizes=tuple(feature.size for feature in features),
            ratios=tuple(ratios if self.feature_weights == "size" else [1.0] * len(ratios)),
            blocks=layout.slot_class_of(),
        )

    def draw_counts(self, counted: Counted, prepared: Asked, noise: Noise) -> DrawnCounts:
        asked = prepared
        if self._margins:
            # Estimate cells with the help of the margin, which is the last feature, and project the estimates.
            *features, _ = asked.features
            layout = Layout.of(asked.universe, features)
            *sums, margin = asked.noisy_sums(counted, noise)
            every = np.repeat(np.arange(layout.num_groups), layout.sizes)
            cells = layout.cells(every, np.arange(len(every)) - layout.starts[every])
            projection = project_estimates(
                asked.noisy_cells(counted, layout, noise),
                float(asked.laws[0].scale),
                starts=layout.starts,
                margin=Margin(pairs=asked.universe.split(cells)[0], sums=margin, scale=float(asked.laws[-1].scale)),
                family=self.family(features, layout),
                sums=sums,
                variances=[law.spread**2 for law in asked.laws[1:-1]],
            )
            return _rounded(projection, asked, layout, noise)
        layout = Layout.of(asked.universe, asked.features)
        sums = asked.noisy_sums(counted, noise)
        many = asked.universe.num_cells > MOST_DENSE_CELLS
        sound = self._draw_lazily if many else self._draw_densely
        draw = self._draw_as_published if self.as_published else sound
        return draw(counted, asked, layout, sums, noise)

    def _draw_densely(
        self, counted: Counted, asked: Asked, layout: Layout, sums: list[FloatArray], noise: Noise
    ) -> DrawnCounts:
        noisy = asked.noisy_cells(counted, layout, noise)
        projection = project_table(noisy, layout.starts, self.family(asked.features, layout), sums)
        return _rounded(projection, asked, layout, noise)

    def _draw_as_published(
        self, counted: Counted, asked: Asked, layout: Layout, sums: list[FloatArray], noise: Noise
    ) -> DrawnCounts:
        """Project noise in floating point and round each count by itself."""
        noisy = asked.noisy_cells(counted, layout, noise)
        order = np.lexsort((-noisy, np.repeat(np.arange(layout.num_groups), layout.sizes)))
        floors = np.full(layout.num_groups, -np.inf)
        candidates = Candidates(values=noisy[order], starts=layout.starts, floors=floors)
        projection = project(candidates, self.family(asked.features, layout), sums)
        counts = np.rint(projection.x).astype(np.int64)
        kept = counts > 0
        return DrawnCounts.at(layout, order[kept], counts[kept], _figures(asked, projection.residual))

    def _draw_lazily(
        self, counted: Counted, asked: Asked, layout: Layout, sums: list[FloatArray], noise: Noise
    ) -> DrawnCounts:
        groups, ranks = layout.places(counted.cells)
        law = asked.laws[0]
        listed = project_lazily(
            noise,
            law.scale,
            sizes=layout.sizes,
            groups=groups,
            values=counted.counts + law.draw(noise, len(groups)).astype(np.int64),
            family=self.family(asked.features, layout),
            sums=sums,
        )
        starts = np.searchsorted(listed.groups, np.arange(layout.num_groups + 1))
        counts = _whole(listed.counts, starts, layout, noise)
        kept = counts > 0
        owners, occupied = listed.groups[kept], listed.occupied[kept]
        taken, created = layout.starts[groups] + ranks, occupied < 0
        places = np.empty(len(owners), dtype=np.int64)
        places[~created] = taken[occupied[~created]]
        places[created] = addresses(noise, layout.starts, owners[created], np.sort(taken))
        return DrawnCounts.at(layout, places, counts[kept], _figures(asked, listed.residual))

    def preview(self, dataset: Dataset) -> Foresight:
        asked = self.asked(dataset)
        lines = ["sums will be off by about their noise; most of the noise of cells is taken out by the projection"]
        if self._margins:
            lines = ["cells are estimated, so that sums are off by somewhat more than their noise"]
        if not any(query.columns == () for query in asked.queries):
            lines.append("the total is not among the features, so it may be off by far: add [] to features")
        return asked.foresee(true_counts(dataset), *lines)


def _rounded(projection: Projection, asked: Asked, layout: Layout, noise: Noise) -> DrawnCounts:
    found = projection.cells if projection.cells is not None else np.flatnonzero(projection.x > 0)
    values = projection.x if projection.cells is not None else projection.x[found]
    counts = _whole(values, np.searchsorted(found, layout.starts), layout, noise)
    kept = counts > 0
    return DrawnCounts.at(layout, found[kept], counts[kept], _figures(asked, projection.residual))


def _whole(values: FloatArray, starts: IntArray, layout: Layout, noise: Noise) -> IntArray:
    """Round counts, join group by join group, so that the sums of join groups and slots and the total are kept."""
    return round_tree(values, [starts, starts[:: layout.pairs.num], np.array([0, len(values)])], noise)


def _figures(asked: Asked, residual: float) -> CountFigures:
    return {"features": asked.describe(), "kkt_residual": residual}
